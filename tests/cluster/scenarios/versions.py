# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Servers that have NFSv3 only, or NFSv4 only: volumes, snapshots, clones and pods."""
from world import Scenario


class Versions(Scenario):

    def life(self, name, version, *options):
        """A pod writes to a volume, and another one reads its clone and the volume restored from
        its snapshot. version: the start of what the node's mount says."""
        storage_class = self.storage_class(options=options, mountPermissions="0777")
        source, clone, restored, snapshot = (
            "%s-%s" % (name, part) for part in ("source", "clone", "restored", "snapshot"))
        self.claim(source, storage_class)
        self.pod(name + "-writer", "echo text >/data/file; ln -s file /data/link", {"data": source})
        self.succeeds(name + "-writer")
        self.snapshot(snapshot, source)
        self.clone(clone, source, storage_class)
        self.ready(snapshot)
        self.restore(restored, snapshot, storage_class)
        self.pod(name + "-reader", "cat /clone/link /restored/link; grep ' /clone ' /proc/mounts",
                 {"clone": clone, "restored": restored})
        lines = self.succeeds(name + "-reader").splitlines()
        self.assertEqual(lines[:2], ["text", "text"])
        self.assertIn("vers=" + version, lines[2])
        self.resize(source, "2Gi")
        self.until("the claim has grown", lambda: self.capacity(source) == "2Gi")
        for pod in ("-writer", "-reader"):
            self.delete_pod(name + pod)

    def test_only_3(self):
        self.cluster.change_server(protocols="3")
        self.life("named", "3", "nfsvers=3", "nolock")
        self.life("found", "3", "nolock")

    def test_only_4(self):
        self.cluster.change_server(protocols="4")
        self.life("named", "4.1", "nfsvers=4.1")
        self.life("found", "4")
