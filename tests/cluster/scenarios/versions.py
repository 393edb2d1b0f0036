# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Servers with NFSv3 only and with NFSv4 only, on ports of their own."""
import os

from servers import Export, Ganesha
from world import Scenario


class Versions(Scenario):

    server = None

    def setUp(self):
        """Start a server, which has to outlive the volumes."""
        version = self._testMethodName[-1]
        home = os.path.join(self.cluster.folder, "only-" + version)
        self.share = os.path.join(os.environ["LAB_DISK"], "only-" + version)
        os.makedirs(home)
        self.server = Ganesha(home, [Export(self.share, protocols=version, privileged=True)],
                              protocols=version)
        self.addCleanup(self.server.stop)
        self.server.start()
        super().setUp()

    def life(self, *options):
        """Volumes of a class with these options, with data, a snapshot and copies."""
        ports = ["port=%d" % self.server.port]
        if self.server.has_v3:
            ports.append("mountport=%d" % self.server.mount_port)
        name = self.storage_class(share=self.share, options=[*options, *ports])
        self.claim("data", name)
        volume = self.bound("data")
        self.pod("writer", "echo text >/data/file; grep ' /data ' /proc/mounts", {"data": "data"})
        mount = self.succeeds("writer")
        self.delete_pod("writer")
        self.snapshot("snap", "data")
        self.ready("snap")
        self.claim("clone", name, dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
        self.claim("restored", name, dataSource={
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"})
        for copy in ("clone", "restored"):
            with open(os.path.join(self.share, self.bound(copy), "file"), encoding="ascii") as file:
                self.assertEqual(file.read(), "text\n")
        for kind, names in (("VolumeSnapshot", ["snap"]),
                            ("PersistentVolumeClaim", ["data", "clone", "restored"])):
            for one in names:
                self.api.delete(kind, one, self.namespace)
        self.gone(volume)
        self.until("nothing is left", lambda: not self.volumes() and not any(
            self.cluster.records(kind, self.share) for kind in ("volumes", "snapshots", "trash")))
        self.assertEqual(self.cluster.directories(self.share), [])
        return mount

    def test_only_3(self):
        """With the version in the class, and found out. The nodes have no rpc.statd."""
        for options in (["nfsvers=3", "nolock"], ["nolock"]):
            with self.subTest(options):
                self.assertIn("vers=3", self.life(*options))

    def test_only_4(self):
        for options in (["nfsvers=4.1"], []):
            with self.subTest(options):
                self.assertIn("vers=4.", self.life(*options))
