# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The real helm and kustomize, and what they make of deploy/, for tests/check-manifests."""

import json
import os
import re
import shutil
import subprocess
import tempfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(os.path.dirname(os.path.dirname(HERE)), "deploy")
CHART = os.path.join(DEPLOY, "helm")
VALUES = os.path.join(HERE, "values")
NAMESPACE = "kube-system"
RELEASE = "csi-driver-nfs"

# Where the resources of the snapshot API are published: a Go module, its version and checksum.
SNAPSHOT_API = ("github.com/kubernetes-csi/external-snapshotter/client/v8", "v8.6.0",
                "h1:FtGewu2k6HWw6evLGXY8JqUZ9eHpti1kd3e4amj+ilA=")


class Unavailable(Exception):
    """Why this machine cannot build or fetch the tools."""


class Tools:
    """Builds the programs on first use."""

    def __init__(self):
        self.folder = None

    def program(self, name):
        if self.folder is None:
            self.folder = build()
        return os.path.join(self.folder, name)

    def run(self, name, *arguments, text=None):
        """Exit status and output. No file of the user is read or written."""
        with tempfile.TemporaryDirectory() as home:
            environment = {"HOME": home, "PATH": os.environ.get("PATH", "")}
            done = subprocess.run([self.program(name), *arguments], input=text, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  encoding="utf-8", env=environment)
        return done.returncode, done.stdout

    def output(self, name, *arguments):
        rc, text = self.run(name, *arguments)
        if rc != 0:
            raise ValueError(f"{name} {' '.join(arguments)}: {' '.join(text.split())}")
        return text

    def helm(self, *values, options=(), chart=CHART):
        """The text that the chart gives with files of tests/deploy/values."""
        files = [word for name in values for word in ("-f", os.path.join(VALUES, name))]
        return self.output("helm", "template", RELEASE, chart, "-n", NAMESPACE, *files, *options)

    def kustomize(self, folder):
        return self.output("kustomize", "build", os.path.join(DEPLOY, folder))

    def strict(self, text):
        """What the types of the API refuse, one problem a line; without unknown kinds."""
        rc, lines = self.run("objects", text=text)
        problems = [line for line in lines.splitlines() if not line.startswith("unknown ")]
        if rc != 0 and not problems:
            problems = [f"objects ended with {rc}"]
        return problems

    def notes(self, *values):
        """NOTES.txt, which helm prints for a cluster only: rendered as another template."""
        with tempfile.TemporaryDirectory() as folder:
            chart = os.path.join(folder, "chart")
            shutil.copytree(CHART, chart)
            with open(os.path.join(chart, "templates", "NOTES.txt"), encoding="utf-8") as file:
                text = file.read()
            with open(os.path.join(chart, "templates", "n.yaml"), "w", encoding="utf-8") as file:
                file.write('{{ define "n" }}' + text + '{{ end }}'
                           'notes: {{ include "n" . | quote }}')
            shown = self.helm(*values, options=("--show-only", "templates/n.yaml"), chart=chart)
        return objects_of(shown)[0]["notes"]


def build():
    """The folder of the programs. What is built is shown, since it takes minutes."""
    done = subprocess.run([os.path.join(HERE, "build")], stdout=subprocess.PIPE, encoding="utf-8",
                          check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode == 77:
        raise Unavailable(last)
    if done.returncode != 0:
        raise ValueError(f"tests/deploy/build ended with {done.returncode}")
    return last


def snapshot_api():
    """The folder of the published module, whose checksum is compared with the pinned one."""
    module, version, checksum = SNAPSHOT_API
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, GOTOOLCHAIN="local", GOFLAGS="-mod=mod")
        done = subprocess.run(["go", "mod", "download", "-json", f"{module}@{version}"], cwd=folder,
                              stdout=subprocess.PIPE, check=False, env=environment)
    answer = json.loads(done.stdout or "{}")
    if "Dir" not in answer:
        raise ValueError(f"{module}: {answer.get('Error', 'go mod download failed')}")
    if answer["Sum"] != checksum:
        raise ValueError(f"{module}: checksum {answer['Sum']}, not {checksum}")
    return answer["Dir"]


def objects_of(text):
    return [one for one in yaml.safe_load_all(text) if one]


def differences(one, other, path=""):
    """Where two objects differ, as "path: this, not that"."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            yield from differences(one.get(key), other.get(key), f"{path}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other)):
            yield from differences(*pair, f"{path}/{number}")
    elif one != other:
        yield f"{path}: {one}, not {other}"


def field(objects, kind, name, path):
    """A field such as "spec/template/spec/containers/nfs/args": lists by name or number."""
    found = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    if len(found) != 1:
        raise LookupError(f"{len(found)} objects {kind} {name}")
    here = found[0]
    for step in path.split("/"):
        if isinstance(here, list):
            named = [item for item in here if isinstance(item, dict) and item.get("name") == step]
            here = named[0] if named else here[int(step)] if re.fullmatch(r"\d+", step) else None
        elif isinstance(here, dict):
            here = here.get(step.replace("~1", "/"))
        else:
            return None
    return here
