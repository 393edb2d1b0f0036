# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The images as containers with the user of the image, no capabilities and a read-only root, but
without a network and a cgroup of their own. Runs inside a lab."""
import json
import os
import subprocess
import unittest

from images import Image

# pylint: disable=wrong-import-order
import harness
from csi_client import Client, capability
import trees
from servers import Export, Failure, Ganesha, run, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
HOST = "127.0.0.1"
NAMESPACES = ("pid", "mount", "ipc", "uts")


class Container:
    """A container of an image, run by crun. socket: where the program serves CSI."""

    def __init__(self, image, name, *args):
        self.image = image
        self.name = name
        self.args = args
        self.folder = os.path.join(LAB, name)
        self.log = os.path.join(self.folder, "log")
        self.shared = os.path.join(self.folder, "csi")
        self.socket = os.path.join(self.shared, "csi.sock")
        self.process = None
        os.makedirs(self.shared)
        self._write()

    def _write(self):
        config = self.image.config["config"]
        uid, gid = (int(number) for number in config["User"].split(":"))
        os.chown(self.shared, uid, gid)
        spec = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": uid, "gid": gid}, "cwd": "/", "env": config["Env"],
                "args": config["Entrypoint"] + list(self.args), "noNewPrivileges": True,
                "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted",
                                                       "inheritable", "ambient")}},
            "root": {"path": self.image.root, "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                 "options": ["nosuid", "mode=755"]},
                {"destination": "/csi", "type": "bind", "source": self.shared,
                 "options": ["bind", "rw"]}],
            "linux": {"namespaces": [{"type": kind} for kind in NAMESPACES]},
        }
        with open(os.path.join(self.folder, "config.json"), "w", encoding="ascii") as file:
            json.dump(spec, file)

    def _command(self, *words):
        return ["crun", "--root", os.path.join(LAB, "crun"), "--cgroup-manager=disabled", *words]

    def output(self):
        return run(*self._command("run", "--bundle", self.folder, self.name), check=False)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self._command("run", "--bundle", self.folder, self.name),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if not wait_for(lambda: os.path.exists(self.socket) or self.process.poll() is not None):
            self.process.kill()
        if self.process.poll() is not None:
            raise Failure("the container ended:\n" + self.text())
        return self

    def __exit__(self, *unused):
        run(*self._command("kill", self.name, "TERM"), check=False)
        self.process.wait(30)


def setUpModule():
    """crun wants the one hierarchy of cgroup2, also where it is told to leave cgroups alone."""
    if os.path.isdir("/sys/fs/cgroup/unified"):
        run("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")


class Running(unittest.TestCase):
    def test_version(self):
        for target in ("controller", "node"):
            with self.subTest(target):
                done = Container(Image(target), "version-" + target, "--version").output()
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertRegex(done.stdout, r"^csi-nfs [0-9.]+")

    def serve(self, target):
        """A volume's life with the user of the image, on a share that this user may write."""
        image = Image(target)
        uid, gid = (int(number) for number in image.config["config"]["User"].split(":"))
        home = os.path.join(LAB, "server-" + target)
        share = os.path.join(DISK, target)
        for folder in (home, share):
            os.makedirs(folder)
        os.chown(share, uid, gid)
        with Ganesha(home, [Export(share)]) as server, \
                Container(image, "serving-" + target, "--mode=controller",
                          "--endpoint=unix:///csi/csi.sock") as container, \
                Client("unix://" + container.socket) as client:
            self.assertTrue(client.Probe(timeout=30).ready.value)
            request = {"parameters": {"server": HOST, "share": share},
                       "volume_capabilities": [capability(flags=server.flags("4"))]}
            made = client.CreateVolume(name="pvc-1", **request).volume
            folder = os.stat(os.path.join(share, "pvc-1"))
            self.assertEqual(folder.st_uid, uid)
            for i, name in enumerate(trees.NAMES):
                path = os.path.join(os.fsencode(share), b"pvc-1", name)
                trees.write(path, b"%d\n" % i * 100)
                os.chown(path, uid, gid)
            for compression in ("none", "gzip", "zstd"):
                with self.subTest(compression):
                    self.archive(client, request, made.volume_id, share, compression)
            client.DeleteVolume(volume_id=made.volume_id)
            self.assertFalse(os.path.exists(os.path.join(share, "pvc-1")))
            self.assertNotIn("level=error", container.text())

    def archive(self, client, request, volume, share, compression):
        """A snapshot of pvc-1 and a volume of it are the same, with names of any bytes."""
        snapshot = client.CreateSnapshot(
            source_volume_id=volume, name="snapshot-" + compression,
            parameters={"compression": compression}).snapshot.snapshot_id
        restored = client.CreateVolume(
            name="pvc-" + compression,
            volume_content_source={"snapshot": {"snapshot_id": snapshot}}, **request).volume
        there, back = (trees.survey(os.path.join(share, name))
                       for name in ("pvc-1", "pvc-" + compression))
        self.assertEqual(trees.differences(there, back), [])
        self.assertGreaterEqual(len(back), len(trees.NAMES))
        client.DeleteSnapshot(snapshot_id=snapshot)
        client.DeleteVolume(volume_id=restored.volume_id)

    def test_controller_serves(self):
        self.serve("controller")

    def test_node_image_serves_as_controller(self):
        self.serve("node")


if __name__ == "__main__":
    harness.main("running")
