# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Snapshots, volumes restored from them, and clones, byte for byte."""
import os

from world import Scenario


class Snapshots(Scenario):
    expected = (
        # More copies at once than the driver makes.
        ("ProvisioningFailed", "copies and archives are already running; try again later"),
        ("ProvisioningFailed", "requested 1073741824 but source is 5368709120"),
    )

    def setUp(self):
        super().setUp()
        self.name = self.storage_class()

    def fill(self, volume):
        """A tree with modes, owners, a hole, hard and symbolic links, odd names. It is written on
        the server's disk in one go: nfs-ganesha does not see what comes after its first look."""
        top = self.path(volume)
        os.makedirs(os.path.join(top, "a", "b", "empty"))
        for name, content in (("file", b"text"), ("a/random", os.urandom(3 << 20)),
                              ("a/b/odd \u00e9 name", b""), ("a/b/second", os.urandom(70000))):
            with open(os.path.join(top, name), "wb") as file:
                file.write(content)
        os.truncate(os.path.join(top, "file"), 5 << 20)
        os.link(os.path.join(top, "a", "random"), os.path.join(top, "a", "b", "linked"))
        os.symlink("../file", os.path.join(top, "a", "link"))
        os.chown(os.path.join(top, "a", "b", "second"), 1001, 1002)
        os.chmod(os.path.join(top, "a", "b", "second"), 0o640)
        os.chmod(os.path.join(top, "a"), 0o2750)
        return self.tree(top)

    def source(self):
        self.claim("source", self.name)
        volume = self.bound("source")
        return volume, self.fill(volume)

    def test_clone(self):
        _, wanted = self.source()
        self.clone("copy", "source", self.name)
        copy = self.bound("copy")
        self.assertEqual(self.tree(self.path(copy)), wanted)
        links = os.stat(self.path(copy, "a", "random"))
        self.assertEqual(links.st_nlink, 2)

    def test_restore(self):
        """Also after the source is gone."""
        volume, wanted = self.source()
        self.snapshot("snap", "source")
        self.ready("snap")
        self.delete_claim("source")
        self.gone(volume)
        self.restore("restored", "snap", self.name)
        self.assertEqual(self.tree(self.path(self.bound("restored"))), wanted)
        self.api.delete("VolumeSnapshot", "snap", self.namespace)
        self.until("the snapshot's content is deleted",
                   lambda: not self.api.list("VolumeSnapshotContent"))
        self.assertEqual(self.cluster.records("snapshots"), [])

    def test_compressions(self):
        _, wanted = self.source()
        for compression in ("none", "zstd"):
            with self.subTest(compression):
                name = "%s-%s" % (self.namespace, compression)
                self.api.create("VolumeSnapshotClass", name, driver="nfs.csi.k8s.io",
                                deletionPolicy="Delete", parameters={"compression": compression})
                self.addCleanup(self.api.delete, "VolumeSnapshotClass", name)
                self.snapshot(compression, "source", name)
                self.ready(compression)
                self.restore("from-" + compression, compression, self.name)
                self.assertEqual(self.tree(self.path(self.bound("from-" + compression))), wanted)

    def test_trees(self):
        """Snapshots of a class whose format is tree, as deploy/examples has it."""
        volume, wanted = self.source()
        name = self.namespace + "-tree"
        self.api.create("VolumeSnapshotClass", name, driver="nfs.csi.k8s.io",
                        deletionPolicy="Delete", parameters={"format": "tree"})
        self.addCleanup(self.api.delete, "VolumeSnapshotClass", name)
        self.snapshot("snap", "source", name)
        self.ready("snap")
        self.delete_claim("source")
        self.gone(volume)
        held = self.cluster.records("snapshots")
        self.assertEqual(len(held), 1)
        self.assertEqual(self.tree(self.path(held[0], volume + ".tree")), wanted)
        for number in range(2):
            self.restore("restored-%d" % number, "snap", self.name)
        for number in range(2):
            copy = self.bound("restored-%d" % number)
            self.assertEqual(self.tree(self.path(copy)), wanted)
        self.api.delete("VolumeSnapshot", "snap", self.namespace)
        self.until("the snapshot's content is deleted",
                   lambda: not self.api.list("VolumeSnapshotContent"))
        self.assertEqual(self.cluster.records("snapshots"), [])
        self.assertFalse(os.path.exists(self.path(held[0])))

    def test_source_of_another_size(self):
        """A volume that is smaller than its source is refused, and the claim's event says so."""
        self.claim("big", self.name, size="5Gi")
        self.bound("big")
        self.clone("small", "big", self.name)
        self.until("an event", lambda: [message for kind, _, message, _ in self.events("small")
                                        if kind == "Warning"])
        self.assertEqual(self.get_claim("small")["status"]["phase"], "Pending")

    def test_many_at_once(self):
        """Three clones and three restored volumes beside deletions."""
        _, wanted = self.source()
        self.snapshot("snap", "source")
        self.claim("other", self.name)
        other = self.bound("other")
        self.ready("snap")
        for number in range(3):
            self.clone("clone-%d" % number, "source", self.name)
            self.restore("restored-%d" % number, "snap", self.name)
        self.delete_claim("other")
        for number in range(3):
            for name in ("clone", "restored"):
                copy = self.bound("%s-%d" % (name, number))
                self.assertEqual(self.tree(self.path(copy)), wanted)
        self.gone(other)
