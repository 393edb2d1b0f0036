# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Checks of deploy/Containerfile, for tests/check-manifests."""

import os
import re
import shlex
import shutil
import subprocess

from manifests import SOURCE, image_parts
from tools import Unavailable


class Containerfile:
    """Instructions of a Containerfile, or of its text: lines joined, comments left out."""

    def __init__(self, text=None):
        text = text or read_source("deploy/Containerfile")
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        text = re.sub(r"\\\n", " ", "\n".join(lines))
        self.instructions = [tuple(line.strip().split(None, 1))
                             for line in text.splitlines() if line.strip()]

    def all(self, name):
        return [rest for keyword, *found in self.instructions for rest in found
                if keyword.upper() == name]

    def packages(self):
        found = []
        for command in self.all("RUN"):
            words = shlex.split(command)
            while "apt-get" in words:
                words = words[words.index("apt-get"):]
                end = words.index("&&") if "&&" in words else len(words)
                if "install" in words[:end]:
                    found += [re.sub(r":\$\w+$", "", word)
                              for word in words[words.index("install") + 1:end]
                              if not word.startswith("-")]
                words = words[end:]
        return [package for package in found if "$" not in package]

    def goals(self):
        """What make is called for in the build, "all" where no goal is named."""
        found = set()
        for command in self.all("RUN"):
            lines = " ".join(shlex.split(command)).split(" && ")
            for words in [line.split() for line in lines]:
                if words[0] == "make":
                    found |= {word for word in words[1:]
                              if not word.startswith("-") and "=" not in word} or {"all"}
        return found

    def stages(self):
        """Pairs of the base and the name, with the defaults of arguments filled in."""
        defaults = dict(words.split("=", 1) for words in self.all("ARG") if "=" in words)
        for rest in self.all("FROM"):
            words = [word for word in rest.split() if not word.startswith("--")]
            base = re.sub(r"\$\{?(\w+)\}?", lambda found: defaults.get(found[1], ""), words[0])
            yield base, words[2] if len(words) == 3 and words[1].upper() == "AS" else ""


def check_base_images(_):
    stages = set()
    for image, name in Containerfile().stages():
        base, tag = image_parts(image)
        if image not in stages | {"scratch"} and (not base or not tag or tag == "latest"):
            yield f"FROM {image} has no fixed tag"
        stages.add(name)
    for target in ("controller", "node"):
        if target not in stages:
            yield f"no target {target}"


def check_copies(_):
    copies = [shlex.split(rest) for rest in Containerfile().all("COPY")]
    if not copies:
        yield "no COPY"
    for words in copies:
        if any(word.startswith("--from=") for word in words):
            continue
        for path in [word for word in words if not word.startswith("--")][:-1]:
            if not os.path.exists(os.path.join(SOURCE, path)):
                yield f"COPY {path}: there is no such file"


def read_source(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def files_of_all(makefiles):
    """The files of the source tree that automake's lists make "all" depend on."""
    text = re.sub(r"\\\n", " ", "\n".join(read_source(path) for path in makefiles))
    lists = [(name, files) for name, files in re.findall(r"^(\w+)\s*\+?=(.*)$", text, re.M)
             if re.search(r"_(DATA|HEADERS|MANS|SCRIPTS)$", name) and "check_" not in name]
    return {path for _, files in lists for path in files.split()
            if os.path.isfile(os.path.join(SOURCE, path))}


def missing_sources(containerfile):
    """Files and folders that configure and make read, and that no COPY brings."""
    copied = {os.path.normpath(word) for rest in containerfile.all("COPY")
              for word in shlex.split(rest)[:-1] if not word.startswith("--")}
    wanted = {"configure.ac", "Makefile.am", "proto"}  # src/Makemodule.am reads proto
    wanted |= set(re.findall(r"^include (\S+)", read_source("Makefile.am"), re.M))
    makefiles = [path for path in wanted if path.endswith(".am")]
    for makefile in makefiles:
        named = re.findall(r"\$\(top_srcdir\)/([\w./-]+)", read_source(makefile))
        wanted |= {path for path in named if os.path.isfile(os.path.join(SOURCE, path))
                   and not path.startswith("tests/")}  # which "make all" does not read
    if "all" in containerfile.goals():
        wanted |= files_of_all(makefiles)
    return [path for path in sorted(wanted)
            if not any(path == name or path.startswith(name + "/") for name in copied)]


def check_copied_sources(_):
    """The build stage has to get every file and folder that configure and make read."""
    for path in missing_sources(Containerfile()):
        yield f"{path} is not copied"


def check_missing_sources(_):
    """A build of everything, as it was once, needs documents that are not copied."""
    text = read_source("deploy/Containerfile")
    plain = re.sub(r'(make -j"\$\(nproc\)") csi-nfs', r"\1", text)
    if plain == text:
        yield "the Containerfile does not build csi-nfs alone"
    missing = missing_sources(Containerfile(plain))
    for path in ("SECURITY.md", "doc/hacking.md", "deploy/kubernetes/node.yaml"):
        if path not in missing:
            yield f"{path}, which make all needs, is not missed"


def check_entry_point(_):
    entries = Containerfile().all("ENTRYPOINT")
    if entries != ['["/usr/sbin/csi-nfs"]']:
        yield f"ENTRYPOINT is {entries}"
    users = Containerfile().all("USER")
    if len(users) != 2 or not re.match(r"[1-9]\d*:[1-9]\d*$", users[0]):
        yield f"USER is {users}, the controller's has to be a number and not root"


def check_version(_):
    with open(os.path.join(SOURCE, "configure.ac"), encoding="utf-8") as file:
        version = re.search(r"^AC_INIT\(\[csi-nfs\], \[(.*)\]\)$", file.read(), re.M)[1]
    for rest in Containerfile().all("ARG"):
        if rest.startswith("VERSION=") and rest != "VERSION=" + version:
            yield f"ARG {rest}, but configure.ac has {version}"


def check_packages(_):
    packages = Containerfile().packages()
    if not packages:
        yield "no packages are installed"
    if shutil.which("apt-cache") is None:
        raise Unavailable("no apt-cache on this machine")
    release = os_release()
    if release != ("debian", "12"):
        raise Unavailable(f"this is {' '.join(release)}, the image is Debian 12")
    known = known_to_apt(packages + ["libc6"])
    if "libc6" not in known:
        raise Unavailable("apt has no package lists")
    for package in packages:
        if package not in known:
            yield f"apt does not know the package {package}"


def known_to_apt(packages):
    run = subprocess.run(["apt-cache", "show", "--no-all-versions", *packages], check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return set(re.findall(r"^Package: (\S+)", run.stdout, re.M))


def os_release():
    values = {}
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.strip().partition("=")
                values[key] = value.strip('"')
    except OSError:
        pass  # then the answer is that it is unknown
    return values.get("ID", "an unknown system"), values.get("VERSION_ID", "")


CHECKS = [
    ("Containerfile: base images pinned by tag", check_base_images),
    ("Containerfile: what is copied exists", check_copies),
    ("Containerfile: what the build reads is copied", check_copied_sources),
    ("Containerfile: a list of documents that is not copied is found", check_missing_sources),
    ("Containerfile: entry point and user", check_entry_point),
    ("Containerfile: version", check_version),
    ("Containerfile: packages exist", check_packages),
]
