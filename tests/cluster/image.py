# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Container images without a registry: a program, the libraries that it needs, and nothing else, as
an archive that `ctr images import` reads.
"""
import hashlib
import io
import json
import os
import re
import tarfile

from servers import run

FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "var")


def needed(program):
    """The paths of the shared libraries of a program, as it looks them up."""
    text = run("ldd", program, check=False).stdout
    return [word for word in text.split() if word.startswith("/") and os.path.exists(word)]


def loaded(program):
    """The paths of the libraries that it loads by name, which its section .note.dlopen lists."""
    note = run("readelf", "-p", ".note.dlopen", program, check=False).stdout
    names = re.findall(r'"soname":\["([^"]+)"', note)
    known = dict(re.findall(r"^\s*(\S+) \(.*x86-64.*\) => (\S+)$",
                            run("/sbin/ldconfig", "-p").stdout, re.MULTILINE))
    return [known[name] for name in names]


def libraries(program):
    return {path for used in (program, *loaded(program)) for path in needed(used)} | {
        *loaded(program)}


def add_bytes(archive, name, data, mode=0o755):
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size = len(data)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(data))


def add_file(archive, path, name):
    with open(os.path.realpath(path), "rb") as file:
        add_bytes(archive, name, file.read())


def layer_of(programs, links):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            folder.mode = 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        for name, target in (("var/run", "../run"), *links):
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type = tarfile.SYMTYPE
            link.linkname = target
            archive.addfile(link)
        shared = {path for program in programs for path in libraries(program)}
        for path in sorted(shared):
            add_file(archive, path, path)
        for path, name in programs.items():
            add_file(archive, path, name)
    return data.getvalue()


def write(path, reference, programs, entrypoint, links=(), environment=()):
    """Write an image. programs: path here -> path in the image; links: pairs of path, target."""
    layer = layer_of(programs, links)
    config = json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {"Entrypoint": entrypoint,
                   "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", *environment]},
        "rootfs": {"type": "layers",
                   "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference],
                            "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as archive:
        add_bytes(archive, name, config, 0o644)
        add_bytes(archive, "layer.tar", layer, 0o644)
        add_bytes(archive, "manifest.json", manifest, 0o644)
