# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Images as tests/image/run built them: OCI layouts in the folder that CSI_NFS_IMAGES names."""
import gzip
import hashlib
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

FOLDER = os.environ["CSI_NFS_IMAGES"]
STATUS = "var/lib/dpkg/status.d"


class NotBuilt(Exception):
    """An image was not built; the message has the end of the log."""


class Image:
    """One image. root: its files, unpacked."""

    def __init__(self, name):
        self.name = name
        self.layout = os.path.join(FOLDER, name)
        self.root = os.path.join(FOLDER, name + ".root")
        if not os.path.isdir(self.layout):
            with open(os.path.join(FOLDER, name + ".log"), encoding="utf-8",
                      errors="replace") as file:
                raise NotBuilt("".join(file.readlines()[-40:]))
        with open(os.path.join(self.layout, "index.json"), encoding="ascii") as file:
            self.digest = json.load(file)["manifests"][0]["digest"]
        self.manifest = json.loads(self.blob(self.digest))
        self.config = json.loads(self.blob(self.manifest["config"]["digest"]))

    def blob(self, digest):
        with open(os.path.join(self.layout, "blobs", *digest.split(":")), "rb") as file:
            data = file.read()
        assert hashlib.sha256(data).hexdigest() == digest.split(":")[1]
        return data

    def layers(self):
        """Each layer as a tar archive. None removes files: the image begins empty."""
        for layer in self.manifest["layers"]:
            data = self.blob(layer["digest"])
            yield gzip.decompress(data) if layer["mediaType"].endswith("gzip") else data

    def path(self, name):
        return os.path.join(self.root, name.lstrip("/"))

    def unpack(self):
        if not os.path.isdir(self.root):
            os.makedirs(self.root)
            for layer in self.layers():
                subprocess.run(["tar", "-xpf", "-", "-C", self.root], input=layer, check=True)
        return self

    def files(self):
        """The paths of everything in it but folders, relative to the root."""
        for where, folders, names in os.walk(self.root):
            links = [name for name in folders if os.path.islink(os.path.join(where, name))]
            for name in names + links:
                yield os.path.relpath(os.path.join(where, name), self.root)

    def packages(self):
        """Package -> the files that it brought."""
        found = {}
        for name in os.listdir(self.path(STATUS)):
            package, is_list, _ = name.partition(".md5sums")
            files = found.setdefault(package, {})
            if is_list:
                with open(self.path(f"{STATUS}/{name}"), encoding="utf-8") as file:
                    for line in file:
                        digest, path = line.rstrip("\n").split("  ", 1)
                        files[path] = digest
        return found
