# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Shares that somebody has moved or copied to another path or server, with the records, which name
the former one: against a real nfs-ganesha, over NFSv3 and NFSv4.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
import trees
from cases import CODE, SERVER, STATE, Base
from copies import FAR_SERVER, Trees
from csi_client import capability


class Moved(Trees):
    """The other share is a copy of the share. The share stays, so that what leads back there is
    seen."""

    @classmethod
    def plant(cls):
        trees.make_plain(os.path.join(cls.share, "plain"))

    def copy_share(self):
        with self.server_down():
            servers.run("cp", "-a", self.share + "/.", self.other)

    def forget_copy(self):
        self.empty(self.other)

    # ---- volumes ----

    def test_created_again(self):
        """Who asks for a volume of that name gets the one on the copy, not the one that the record
        was written for: nodes would mount that, and a deletion would delete it."""
        long = "subdir/" + "x" * 120  # which no id holds
        for more in ({}, {"subDir": "team/mine"}, {"subDir": long, "onDelete": "archive"}):
            with self.subTest(**more):
                self._created_again(more.get("subDir", "mine"), more)

    def _created_again(self, directory, more):
        first = self.create("mine", **more)
        trees.write(self.path(directory, "file"))
        self.copy_share()
        copy = self.create("mine", share=self.other, **more)
        fields = copy.volume_id.split("#")
        self.assertEqual(fields[:2], [SERVER, self.other.strip("/")])
        self.assertEqual(fields[2:], first.volume_id.split("#")[2:])
        wanted = dict(first.volume_context, share=self.other)
        self.assertEqual(dict(copy.volume_context), wanted)
        self.assertEqual(self.client.ControllerGetVolume(volume_id=copy.volume_id).volume, copy)
        self.is_confirmed(copy.volume_id, wanted)
        self.delete(copy.volume_id)
        self.assertFalse(os.path.lexists(os.path.join(self.other, directory)))
        self.assertTrue(os.path.exists(self.path(directory, "file")))
        self.assertEqual(self.create("mine", **more), first)
        self.forget_copy()
        self.delete(first.volume_id)
        self.empty_archive()

    def test_context_in_other_words(self):
        """The context of the reply is the volume's, however the class spells the address."""
        first = self.create("mine")
        self.copy_share()
        for share, server in ((self.other + "//", SERVER), (self.other, "[::1]")):
            with self.subTest(share=share, server=server):
                request = self.request("mine", share=share)
                request["parameters"]["server"] = server
                copy = self.client.CreateVolume(**request).volume
                self.assertEqual((copy.volume_context["server"], copy.volume_context["share"]),
                                 (server, share))
                self.is_confirmed(copy.volume_id, copy.volume_context)
                self.is_confirmed(copy.volume_id, first.volume_context, False)
        self.forget_copy()
        self.delete(first.volume_id)

    def is_confirmed(self, volume_id, context, confirmed=True):
        answer = self.client.ValidateVolumeCapabilities(
            volume_id=volume_id, volume_context=context, secrets=self.secrets,
            volume_capabilities=[capability()])
        self.assertEqual(answer.HasField("confirmed"), confirmed, answer.message)

    def empty_archive(self):
        with self.server_down():
            for name in self.listed():
                if name.startswith("archived-"):
                    servers.run("rm", "-r", self.path(name))
            servers.run("rm", "-rf", self.path(STATE, "parents"))

    def test_another_name_of_the_server(self):
        """It is the same volume, by the name that was asked for."""
        first = self.create("mine")
        request = self.request("mine")
        request["parameters"]["server"] = FAR_SERVER
        renamed = self.client.CreateVolume(**request).volume
        self.assertEqual(renamed.volume_id, first.volume_id.replace(SERVER, FAR_SERVER))
        self.assertEqual(renamed.volume_context["server"], FAR_SERVER)
        self.delete(renamed.volume_id)
        self.assertFalse(os.path.lexists(self.path("mine")))

    def test_copy_created_again(self):
        """The source of a clone has moved along, and so has the snapshot of a restored volume."""
        source = self.source("plain")
        snapshot = self.snap("snap", source).snapshot_id
        clone, restored = self.clone("clone", source), self.restore("restored", snapshot)
        self.copy_share()
        source_there = self.volume_id("plain", share=self.other)
        snapshot_there = self.snapshot_id("snap", "plain", share=self.other)
        for where in (source, source_there):
            again = self.clone("clone", where, share=self.other)
            self.assertEqual(again.volume_id, self.volume_id("clone", share=self.other))
            self.assertEqual(again.content_source.volume.volume_id, where)
        for where in (snapshot, snapshot_there):
            again = self.restore("restored", where, share=self.other)
            self.assertEqual(again.volume_id, self.volume_id("restored", share=self.other))
            self.assertEqual(again.content_source.snapshot.snapshot_id, where)
        # Another source is another one.
        self.fails(CODE.ALREADY_EXISTS, self.clone, "volume_content_source", name="clone",
                   volume_id=self.volume_id("restored", share=self.other), share=self.other)
        self.fails(CODE.ALREADY_EXISTS, self.restore, "volume_content_source", name="clone",
                   snapshot_id=snapshot_there, share=self.other)
        self.forget_copy()
        self.delete(clone.volume_id)
        self.delete(restored.volume_id)
        self.unsnap(snapshot)

    # ---- snapshots ----

    def test_snapshot(self):
        """It is found, listed, restored and deleted where it is now."""
        for format_ in ("archive", "tree"):
            with self.subTest(format=format_):
                self._snapshot(format_)

    def _snapshot(self, format_):
        source = self.source("plain")
        snapshot = self.snap("snap", source, format=format_)
        self.copy_share()
        moved = self.snapshot_id("snap", "plain", share=self.other)
        source_there = self.volume_id("plain", share=self.other)
        wanted = type(snapshot)()
        wanted.CopyFrom(snapshot)
        wanted.snapshot_id, wanted.source_volume_id = moved, source_there
        listed = [e.snapshot for e in self.list_snapshots(snapshot_id=moved).entries]
        self.assertEqual(listed, [wanted])
        got = self.client.GetSnapshot(snapshot_id=moved, secrets=self.secrets).snapshot
        self.assertEqual(got, wanted)
        self.assertEqual(self.snap("snap", source_there, format=format_), wanted)
        volume = self.restore("back", moved, share=self.other)
        self.is_copy("plain", "back", share=self.other, sockets=format_ == "tree")
        self.delete(volume.volume_id)
        self.unsnap(moved)
        self.assertFalse(os.path.lexists(os.path.join(self.other, "snap")))
        self.assertEqual(list(self.list_snapshots(snapshot_id=moved).entries), [])
        # The one in the former place is another one, and is as it was.
        listed = [e.snapshot for e in self.list_snapshots(snapshot_id=snapshot.snapshot_id).entries]
        self.assertEqual(listed, [snapshot])
        self.forget_copy()
        self.unsnap(snapshot.snapshot_id)

    def test_snapshot_of_another_volume(self):
        """Names of snapshots count as before."""
        self.snap("snap", self.source("plain"))
        self.copy_share()
        other = self.create("other", share=self.other).volume_id
        self.fails(CODE.ALREADY_EXISTS, self.snap, name="snap", volume_id=other)
        self.unsnap(self.snapshot_id("snap", "other", share=self.other))  # there is none
        self.archive("snap", "plain", share=self.other)
        self.forget_copy()
        self.unsnap(self.snapshot_id("snap", "plain"))

    def test_snapshot_elsewhere(self):
        """Volume and snapshot are on two shares, of which one is now another one."""
        source = self.source("plain")
        snapshot = self.snap("snap", source, share=self.other).snapshot_id
        renamed = self.snapshot_id("snap", "plain", self.other, FAR_SERVER)
        listed = [e.snapshot for e in self.list_snapshots(snapshot_id=renamed).entries]
        self.assertEqual([(s.snapshot_id, s.source_volume_id) for s in listed],
                         [(renamed, source)])
        # A volume on another share may be another one.
        self.fails(CODE.ALREADY_EXISTS, self.snap, name="snap", share=self.other,
                   volume_id=source.replace(SERVER, FAR_SERVER))
        self.unsnap(renamed)
        self.assertEqual(list(self.list_snapshots(snapshot_id=snapshot).entries), [])


class MovedOnVersion3(Moved, Base):
    protocols = "3"
    version = "3"


class MovedOnVersion4(Moved, Base):
    protocols = "4"
    version = "4"


if __name__ == "__main__":
    harness.main("moved and copied shares against nfs-ganesha")
