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

CONTAINERFILE = os.path.join(SOURCE, "deploy", "Containerfile")


class Containerfile:
    """Instructions of the Containerfile: lines joined, comments left out."""

    def __init__(self):
        with open(CONTAINERFILE, encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if not line.lstrip().startswith("#")]
        text = re.sub(r"\\\n", " ", "\n".join(lines))
        self.instructions = [tuple(line.strip().split(None, 1))
                             for line in text.splitlines() if line.strip()]

    def all(self, name):
        return [rest for keyword, *found in self.instructions for rest in found
                if keyword.upper() == name]

    def packages(self):
        found = []
        for command in self.all("RUN"):
            for part in re.split(r"&&|;", command):
                words = shlex.split(part)
                if "install" in words and "apt-get" in words:
                    found += [word for word in words[words.index("install") + 1:]
                              if not word.startswith("-")]
        return found


def check_base_images(_):
    stages = set()
    images = Containerfile().all("FROM")
    if not images:
        yield "no FROM"
    for words in map(str.split, images):
        base, tag = image_parts(words[0])
        if words[0] not in stages and (not base or not tag or tag == "latest"):
            yield f"FROM {words[0]} has no fixed tag"
        if len(words) == 3 and words[1].upper() == "AS":
            stages.add(words[2])


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


def check_copied_sources(_):
    """The build stage has to get every file and folder that configure and make read."""
    copied = {os.path.normpath(word) for rest in Containerfile().all("COPY")
              for word in shlex.split(rest)}
    wanted = {"configure.ac", "Makefile.am", "proto"}  # src/Makemodule.am reads proto
    with open(os.path.join(SOURCE, "Makefile.am"), encoding="utf-8") as file:
        includes = re.findall(r"^include (\S+)/\S+", file.read(), re.M)
    wanted |= {path.split("/")[0] for path in includes}
    for path in sorted(wanted - copied):
        yield f"{path} is not copied"


def check_entry_point(_):
    entries = Containerfile().all("ENTRYPOINT")
    if entries != ['["/usr/sbin/csi-nfs"]']:
        yield f"ENTRYPOINT is {entries}"


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
    ("Containerfile: entry point", check_entry_point),
    ("Containerfile: packages exist", check_packages),
]
