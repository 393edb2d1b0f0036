# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Snapshots that are trees, against a real nfs-ganesha: what differs from archives.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import os
import stat
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
import trees
from cases import CODE, GIB, SERVER, STATE, Base
from copies import FAR_SERVER, Chosen, Trees
from rpc_proxy import Proxy
from servers import Export, wait_for

SUFFIX = ".tree"


class SnapshotTrees(Trees):
    """The calls about snapshots, of a class with format=tree."""

    def snap_tree(self, name, volume_id, **parameters):
        return self.snap(name, volume_id, format="tree", **parameters)

    def tree(self, name, source, share=None):
        """Return the path of a snapshot's tree, and check what is around it."""
        folder = os.path.join(share or self.share, name)
        self.assertTrue(os.path.isdir(folder), "there is no folder " + folder)
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700, "others can enter " + folder)
        self.assertEqual(os.listdir(folder), [source + SUFFIX], "in the folder of the snapshot")
        return os.path.join(folder, source + SUFFIX)

    def is_tree_of(self, source, name, share=None):
        path = self.tree(name, source, share)
        self.is_same(self.sources[source], trees.survey(path), path, root=True)

    def test_what_is_told(self):
        source = self.source("small")
        before = time.time()
        snapshot = self.snap_tree("snap", source)
        self.assertEqual(snapshot.snapshot_id, self.snapshot_id("snap", "small"))
        self.assertEqual(snapshot.source_volume_id, source)
        self.assertTrue(snapshot.ready_to_use)
        self.assertEqual(snapshot.size_bytes, GIB)
        made = snapshot.creation_time.seconds + snapshot.creation_time.nanos / 1e9
        self.assertTrue(before - 2 < made < time.time() + 2)
        self.is_tree_of("small", "snap")
        number = os.stat(self.path("snap")).st_ino
        for row in ("again", "after a restart"):
            with self.subTest(row=row):
                self.assertEqual(self.snap_tree("snap", source), snapshot)
                self.assertEqual(os.stat(self.path("snap")).st_ino, number, "it was copied again")
                for filters in ({"snapshot_id": snapshot.snapshot_id},
                                {"source_volume_id": source}):
                    listed = self.list_snapshots(**filters).entries
                    self.assertEqual([e.snapshot for e in listed], [snapshot])
                got = self.client.GetSnapshot(snapshot_id=snapshot.snapshot_id,
                                              secrets=self.secrets).snapshot
                self.assertEqual(got, snapshot)
                self.driver.restart()
        for _ in range(2):
            self.unsnap(snapshot.snapshot_id)
            self.assertFalse(os.path.lexists(self.path("snap")))
        self.assertEqual(list(self.list_snapshots(snapshot_id=snapshot.snapshot_id).entries), [])

    def test_restore(self):
        """Everything, sockets too; and neither of the two changes the other."""
        source = self.clone("small-2", self.source("small")).volume_id
        snapshot = self.snap_tree("snap", source).snapshot_id
        self.delete(source)
        self.driver.restart()
        volume = self.restore("restored", snapshot)
        self.assertEqual(volume.content_source.snapshot.snapshot_id, snapshot)
        self.is_copy("small", "restored", root=True)
        with self.server_down():
            trees.write(self.path("restored", "new"), b"new")
        self.is_same(self.sources["small"], trees.survey(self.tree("snap", "small-2")), "the tree",
                     root=True)
        again = self.restore("again", snapshot, mountPermissions="2770")
        self.is_copy("small", "again")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("again")).st_mode), 0o2770)
        self.unsnap(snapshot)
        self.is_copy("small", "again")
        for made in (volume, again):
            self.delete(made.volume_id)

    def test_restore_is_refused(self):
        snapshot = self.snap_tree("snap", self.source("plain")).snapshot_id
        self.fails(CODE.OUT_OF_RANGE, lambda: self.restore("less", snapshot, size=1))
        self.unsnap(snapshot)
        self.fails(CODE.NOT_FOUND, lambda: self.restore("late", snapshot))

    def test_same_name_again(self):
        """The format is not part of what a snapshot is: another one finds what is there."""
        one, two = self.source("plain"), self.source("small")
        tree = self.snap_tree("tree", one)
        archive = self.snap("archive", one)
        for call in (self.snap_tree, self.snap):
            self.assertEqual(call("tree", one), tree)
            self.assertEqual(call("archive", one), archive)
            self.fails(CODE.ALREADY_EXISTS, call, name="tree", volume_id=two)
        self.is_tree_of("plain", "tree")
        self.archive("archive", "plain")
        self.unsnap(tree.snapshot_id)
        self.unsnap(archive.snapshot_id)

    def test_parameters(self):
        source = self.source("plain")
        for row, server, share in (("another share", SERVER, self.other),
                                   ("another server", FAR_SERVER, self.far)):
            with self.subTest(destination=row):
                snapshot = self.snap("snap", source, server=server, share=share,
                                     FORMAT="Tree").snapshot_id
                self.assertEqual(snapshot, self.snapshot_id("snap", "plain", share, server))
                self.is_tree_of("plain", "snap", share)
                self.assertFalse(os.path.lexists(self.path("snap")), "beside the source")
                volume = self.restore("restored", snapshot)
                self.is_copy("plain", "restored", root=True)
                self.delete(volume.volume_id)
                self.unsnap(snapshot)
                self.assertEqual(self.listed(share), [])
        snapshot = self.snap("snap", source, format="archive", compression="none").snapshot_id
        self.archive("snap", "plain", "none")
        self.unsnap(snapshot)
        for parameters in ({"format": "zip"}, {"format": ""}):
            self.fails(CODE.INVALID_ARGUMENT, lambda p=parameters: self.snap("snap", source, **p),
                       "format", "archive or tree")
        self.fails(CODE.INVALID_ARGUMENT,
                   lambda: self.snap_tree("snap", source, compression="gzip"), "compression")
        self.assertTrue(wait_for(lambda: not self.leftovers(), 15), "something was made")

    def test_volume_of_its_name(self):
        """A pod that had it could change the snapshot."""
        snapshot = self.snap_tree("snap", self.source("plain"))
        for place in ("", "snap", "snap/below", "snap/plain.tree", "snap/plain.tree/folder-000"):
            with self.subTest(subDir=place):
                self.fails(CODE.FAILED_PRECONDITION, self.create, "snapshot",
                           name="other" if place else "snap",
                           **({"subDir": place} if place else {}))
        self.is_tree_of("plain", "snap")
        self.unsnap(self.snapshot_id("snap", "small"))  # of another volume: it has none
        self.is_tree_of("plain", "snap")
        self.unsnap(snapshot.snapshot_id)

    def test_removed_by_hand(self):
        source = self.source("plain")
        snapshot = self.snap_tree("snap", source).snapshot_id
        other = self.snap_tree("other", source).snapshot_id
        with self.server_down():
            servers.run("rm", "-r", self.path("snap"), self.tree("other", "plain"))
        for name in ("snap", "other"):
            self.fails(CODE.FAILED_PRECONDITION, lambda name=name: self.snap_tree(name, source),
                       "tree of snapshot '%s'" % name, "removed", "delete the snapshot")
        self.fails(CODE.NOT_FOUND, lambda: self.restore("victim", snapshot))
        self.unsnap(snapshot)
        self.unsnap(other)

    def test_without_a_record(self):
        """Only a record makes a tree a snapshot: volumes of csi-driver-nfs have none either."""
        source = self.source("plain")
        snapshot = self.snap_tree("snap", source).snapshot_id
        record = self.path(STATE, "snapshots", "snap")
        text = os.readlink(record)
        with self.server_down():
            os.unlink(record)
        self.assertEqual(list(self.list_snapshots(snapshot_id=snapshot).entries), [])
        self.fails(CODE.NOT_FOUND, lambda: self.restore("victim", snapshot))
        self.fails(CODE.FAILED_PRECONDITION, lambda: self.snap_tree("snap", source), "move it away")
        self.unsnap(snapshot)
        self.is_tree_of("plain", "snap")
        with self.server_down():
            os.symlink(text, record)
        self.assertEqual(self.snap_tree("snap", source).snapshot_id, snapshot)
        self.unsnap(snapshot)

    def test_record(self):
        """One that was cut short is damaged, and nothing is made or removed by it."""
        source = self.source("plain")
        snapshot = self.snap_tree("snap", source).snapshot_id
        record = self.path(STATE, "snapshots", "snap")
        text = os.readlink(record)
        self.assertIn(";file=plain.tree;", text)
        with self.server_down():
            os.unlink(record)
            os.symlink(text[:text.index(".tree;") + 4], record)
        for call in (lambda: self.snap_tree("snap", source), lambda: self.unsnap(snapshot),
                     lambda: self.restore("victim", snapshot)):
            self.fails(CODE.FAILED_PRECONDITION, call, "snapshots", "damaged")
        self.is_tree_of("plain", "snap")
        with self.server_down():
            os.unlink(record)
            os.symlink(text, record)
        self.unsnap(snapshot)

    def test_made_again(self):
        """As after a crash in front of the rename, with a class of another format."""
        source = self.source("plain")
        record = self.path(STATE, "snapshots", "snap")
        for first, second in (("archive", "tree"), ("tree", "archive")):
            with self.subTest(first=first, second=second):
                snapshot = self.snap("snap", source, format=first).snapshot_id
                text = os.readlink(record)
                with self.server_down():
                    servers.run("rm", "-rf", self.path("snap"))
                    os.unlink(record)
                    os.symlink(text.split(";time=")[0], record)
                self.assertEqual(self.snap("snap", source, format=second).snapshot_id, snapshot)
                if second == "tree":
                    self.is_tree_of("plain", "snap")
                    self.assertNotIn("crc32", os.readlink(record))
                else:
                    self.archive("snap", "plain")
                volume = self.restore("restored", snapshot)
                self.is_copy("plain", "restored")
                self.delete(volume.volume_id)
                self.unsnap(snapshot)

    def test_packed_by_hand(self):
        """Before a change to csi-driver-nfs, which knows archives only. Both formats are read."""
        snapshot = self.snap_tree("snap", self.source("plain")).snapshot_id
        with self.server_down():
            tree = self.tree("snap", "plain")
            subprocess.run(["tar", "--numeric-owner", "--format=posix", "-C", tree, "-czf",
                            self.path("snap", "plain.tar.gz"), "."], check=True)
            servers.run("rm", "-r", tree)
        volume = self.restore("restored", snapshot)
        self.is_copy("plain", "restored")
        self.delete(volume.volume_id)
        self.unsnap(snapshot)

    def test_damage_of_the_copy(self):
        """--verify-clones counts for trees as well."""
        with open(self.path("plain", "folder-000", "file-00000"), "rb") as f:
            data = f.read()

        def damage(call):
            if call.name == "WRITE":
                call.data = call.data.replace(data, data[::-1])

        source = self.source("plain")
        self.restart("--verify-clones", *self.options)
        with Proxy(self.server.port, self.server.mount_port) as proxy, self.through(proxy):
            proxy.begin(on_call=damage)
            self.fails(CODE.DATA_LOSS, lambda: self.snap_tree("snap", source), "file-00000")
            proxy.end()
            snapshot = self.snap_tree("snap", source).snapshot_id
            self.is_tree_of("plain", "snap")
            proxy.begin(on_call=damage)
            self.fails(CODE.DATA_LOSS, lambda: self.restore("restored", snapshot), "file-00000")
            proxy.end()
            volume = self.restore("restored", snapshot)
            self.is_copy("plain", "restored")
        self.delete(volume.volume_id)
        self.unsnap(snapshot)


class Squashed(Trees):
    """Where root is squashed, the volume's owner makes the tree and restores it."""

    folders = ("share", "other", "far")
    protocols = "3, 4"
    version = "3"
    owner = 1234

    @classmethod
    def plant(cls):
        pass

    @classmethod
    def more_exports(cls):
        path = os.path.join(cls.place, "squashed")
        os.makedirs(path)
        os.chown(path, cls.owner, cls.owner)
        return [Export(path, cls.protocols, squash="Root_Squash")]

    def is_reached(self):
        return True

    def test_snapshot_and_restore(self):
        share = os.path.join(self.place, "squashed")
        more = {"uid": str(self.owner), "gid": str(self.owner), "mountPermissions": "0700"}
        source = self.create("source", share=share, **more).volume_id
        with self.server_down():
            trees.write(os.path.join(share, "source", "secret"), b"secret", 0o600)
            os.chown(os.path.join(share, "source", "secret"), self.owner, self.owner)
        snapshot = self.snap("snap", source, format="tree").snapshot_id
        folder = os.stat(os.path.join(share, "snap"))
        self.assertEqual((stat.S_IMODE(folder.st_mode), folder.st_uid), (0o700, self.owner))
        self.driver.restart()
        volume = self.restore("restored", snapshot, share=share, **more).volume_id
        self.is_same(trees.survey(os.path.join(share, "source")),
                     trees.survey(os.path.join(share, "restored")), "restored", root=True)
        self.unsnap(snapshot)
        for made in (source, volume):
            self.delete(made)
        wait_for(lambda: not os.listdir(os.path.join(share, STATE, "trash")), 40)
        self.assertEqual(self.listed(share), [])


class TreesOnVersion3(SnapshotTrees, Base):
    protocols = "3"
    version = "3"


class TreesOnVersion4(SnapshotTrees, Base):
    protocols = "4"
    version = "4.0"


class Newest(SnapshotTrees, Base):
    protocols = "4"
    version = "4.2"


class TreesOnBoth(Chosen, SnapshotTrees, Base):
    pass


class SquashedOnVersion3(Squashed, Base):
    pass


class SquashedOnVersion4(Squashed, Base):
    version = "4.2"


if __name__ == "__main__":
    harness.main("snapshots that are trees")
