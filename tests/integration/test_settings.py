# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What a volume is besides its name and size, against a real nfs-ganesha: its owner, on exports
that squash root and on others; what ControllerModifyVolume changes; directories that several
volumes use; what the record tells of the server.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
from cases import CODE, DISK, LAB, SERVER, STATE, Base, OnServer
from csi_client import capability
from driver import Driver
from rpc_proxy import Proxy
from servers import Export, Ganesha, wait_for

OWNER = 1234
OTHER = 2345


class Settings(OnServer):
    """Cases that run once for each version of NFS: mixed into Base below."""

    @classmethod
    def more_exports(cls):
        return [Export(os.path.join(cls.place, "squashed"), cls.protocols, squash="Root_Squash")]

    @property
    def squashed(self):
        return os.path.join(self.place, "squashed")

    def setUp(self):
        self.forget_failed_case(self.share, self.squashed)
        os.chown(self.squashed, 0, 0)
        os.chmod(self.squashed, 0o755)

    def tearDown(self):
        for share in (self.share, self.squashed):
            # A new process purges what an old one has left when it first uses the share.
            self.fails(CODE.NOT_FOUND, self.client.ValidateVolumeCapabilities,
                       volume_id=self.volume_id("none", share=share), secrets=self.secrets,
                       volume_capabilities=[capability()])
            for folder in ("volumes", "users", "parents", "trash"):
                path = os.path.join(share, STATE, folder)
                if os.path.isdir(path) and not wait_for(lambda p=path: not os.listdir(p)):
                    left = os.listdir(path)
                    self.empty(share)  # else every case after this one waits in vain, too
                    self.fail("left in %s: %s" % (folder, left))
            self.assertEqual(self.listed(share), [])

    def own(self, mode=0o755, uid=OWNER):
        """A share as administrators of root-squashed exports have them: it belongs to the users."""
        os.chown(self.squashed, uid, uid)
        os.chmod(self.squashed, mode)

    def status(self, *parts, share=None):
        found = os.lstat(os.path.join(share or self.share, *parts))
        return found.st_uid, found.st_gid, found.st_mode & 0o7777

    def text(self, name, share=None):
        """The text of a record."""
        return os.readlink(os.path.join(share or self.share, STATE, "volumes", name))

    def fill(self, *parts, share=None):
        here = os.path.join(share or self.share, *parts)
        for i in range(5):
            os.makedirs(os.path.join(here, "deep%d" % i, "deeper"))
            with open(os.path.join(here, "deep%d" % i, "file"), "w", encoding="ascii") as f:
                f.write("data")
        for where, folders, names in os.walk(here):
            for name in folders + names:
                os.chown(os.path.join(where, name), OWNER, OWNER)

    # ---- owners ----

    def test_squashed_export_without_owner(self):
        self.own()
        before = self.status(share=self.squashed)
        self.fails(CODE.PERMISSION_DENIED, self.client.CreateVolume, "check squashing",
                   self.squashed, "uid 0", **self.request("squashed", share=self.squashed))
        self.assertEqual(self.listed(self.squashed) + self.records(self.squashed), [])
        self.assertEqual(self.status(share=self.squashed), before)

    def test_squashed_export_with_owner(self):
        for mode in (0o755, 0o700, 0o1777):
            with self.subTest(mode=oct(mode)):
                self.own(mode)
                before = self.status(share=self.squashed)
                volume = self.create("owned", share=self.squashed, uid=str(OWNER), gid=str(OWNER),
                                     mountPermissions="0770")
                self.assertEqual(self.status("owned", share=self.squashed), (OWNER, OWNER, 0o770))
                self.assertEqual(self.status(share=self.squashed), before)
                self.fill("owned", share=self.squashed)
                again = self.create("owned", share=self.squashed, uid=str(OWNER), gid=str(OWNER),
                                    mountPermissions="0770")
                self.assertEqual(volume, again)
                # What only its memory knew is gone: the rest has to be on the share.
                self.restart()
                self._live(volume)
                self.delete(volume.volume_id)
                self.assertEqual(self.listed(self.squashed), [])
                self.assertEqual(self.status(share=self.squashed), before)
                trash = os.path.join(self.squashed, STATE, "trash")
                self.assertTrue(wait_for(lambda t=trash: not os.listdir(t)), os.listdir(trash))
                self.delete(volume.volume_id)

    def test_squashed_export_deletion_that_was_killed(self):
        """The record has become the tombstone: only that says as whom to go on."""
        def is_buried():
            return not os.path.lexists(os.path.join(self.squashed, STATE, "volumes", "owned"))

        def is_moved():
            return not os.path.isdir(os.path.join(self.squashed, "sub", "owned"))

        with Proxy(self.server.port, self.server.mount_port) as proxy:
            for mode, policy, is_time in ((0o755, "delete", is_buried),
                                          (0o711, "archive", is_buried),
                                          (0o1777, "delete", is_moved)):
                with self.subTest(mode=oct(mode), policy=policy):
                    self.own(mode)
                    volume = self.create("owned", share=self.squashed, subDir="sub/owned",
                                         onDelete=policy, uid=str(OWNER), gid=str(OWNER))
                    self.fill("sub", "owned", share=self.squashed)
                    self.kill_when(is_time, proxy, self.client.DeleteVolume,
                                   volume_id=volume.volume_id)
                    self.restart()
                    self.delete(volume.volume_id)
                    self.assertEqual(self.listed(self.squashed),
                                     ["archived-sub"] if policy == "archive" else [])
                    for folder in ("busy", "trash"):
                        path = os.path.join(self.squashed, STATE, folder)
                        self.assertTrue(wait_for(lambda p=path: not os.listdir(p)),
                                        os.listdir(path))
                    self.empty(self.squashed)

    def flags_through(self, proxy):
        """Mount options that lead to the server through the proxy."""
        ports = {"port=%d" % self.server.port: "port=%d" % proxy.port,
                 "mountport=%d" % self.server.mount_port: "mountport=%d" % proxy.mount_port}
        return [ports.get(flag, flag) for flag in self.server.flags(self.version)]

    def kill_when(self, is_time, proxy, call, **fields):
        """Kill the driver in the middle of the call."""
        def look(*_):
            if is_time() and self.driver.is_running():
                self.driver.process.kill()
                self.driver.process.wait()

        proxy.begin([], look)
        secrets = {"mountOptions": ",".join(self.flags_through(proxy))}
        self.fails(CODE.UNAVAILABLE, call, **dict(fields, secrets=secrets))
        proxy.end()

    def test_squashed_export_note_of_another(self):
        """The note of a copy that was killed counts no more, even if it cannot be removed."""
        owner = {"uid": str(OWNER), "gid": str(OWNER)}
        busy = os.path.join(self.squashed, STATE, "busy")

        def notes():
            return [name for name in os.listdir(busy) if name.startswith("new~m")]

        self.own(0o1777, 0)
        source = self.create("owned", share=self.squashed, **owner).volume_id
        with Proxy(self.server.port, self.server.mount_port) as proxy:
            through = capability(flags=self.flags_through(proxy))
            self.kill_when(lambda: os.path.isdir(busy) and notes(), proxy,
                           self.client.CreateVolume,
                           volume_content_source={"volume": {"volume_id": source}},
                           **self.request("new", cap=through, share=self.squashed, **owner))
        self.assertEqual(len(notes()), 1)
        self.restart()
        self.delete(self.volume_id("new", share=self.squashed))
        self.delete(source)
        self.assertEqual(self.listed(self.squashed), [])
        self.empty(self.squashed)

    def test_squashed_export_snapshots(self):
        """Only the owner of the volume may enter the directory of its snapshot."""
        owner = {"uid": str(OWNER), "gid": str(OWNER)}

        def is_buried():
            return not os.path.lexists(os.path.join(self.squashed, STATE, "snapshots", "snap"))

        with Proxy(self.server.port, self.server.mount_port) as proxy:
            for uid, mode, form in ((0, 0o1777, "archive"), (0, 0o1777, "tree"),
                                    (OWNER, 0o755, "archive")):
                with self.subTest(uid=uid, mode=oct(mode), form=form):
                    self.own(mode, uid)
                    volume = self.create("owned", share=self.squashed, **owner)
                    self.fill("owned", share=self.squashed)
                    source = {"source_volume_id": volume.volume_id, "secrets": self.secrets,
                              "parameters": {"format": form}}
                    first = self.client.CreateSnapshot(name="snap", **source).snapshot
                    again = self.client.CreateSnapshot(name="snap", **source).snapshot
                    self.assertEqual(first, again)
                    content = {"snapshot": {"snapshot_id": first.snapshot_id}}
                    restored = self.client.CreateVolume(
                        volume_content_source=content,
                        **self.request("restored", share=self.squashed, **owner)).volume
                    self.assertEqual(self.status("restored", "deep1", "file",
                                                 share=self.squashed)[:2], (OWNER, OWNER))
                    self.restart()
                    self.kill_when(is_buried, proxy, self.client.DeleteSnapshot,
                                   snapshot_id=first.snapshot_id)
                    self.restart()
                    self.client.DeleteSnapshot(snapshot_id=first.snapshot_id,
                                               secrets=self.secrets)
                    for left in (volume, restored):
                        self.delete(left.volume_id)
                    self.assertEqual(self.listed(self.squashed), [])
                    for folder in ("busy", "snapshots", "trash"):
                        path = os.path.join(self.squashed, STATE, folder)
                        self.assertTrue(wait_for(lambda p=path: not os.listdir(p)),
                                        os.listdir(path))
                    self.empty(self.squashed)

    def _live(self, volume):
        self.client.ControllerExpandVolume(volume_id=volume.volume_id, secrets=self.secrets,
                                           capacity_range={"required_bytes": 1 << 31})
        got = self.client.ControllerGetVolume(volume_id=volume.volume_id)
        self.assertFalse(got.status.volume_condition.abnormal, got)
        self.assertEqual(got.volume.capacity_bytes, 1 << 31)
        self.client.ValidateVolumeCapabilities(
            volume_id=volume.volume_id, volume_capabilities=[capability()], secrets=self.secrets)
        listed = [e.volume.volume_id for e in self.client.ListVolumes().entries]
        self.assertIn(volume.volume_id, listed)

    def test_several_owners_on_a_squashed_export(self):
        self.own(0o1777)
        volumes = [self.create("of-%d" % uid, share=self.squashed, subDir="sub/of-%d" % uid
                               if uid == OWNER else "of-%d" % uid, uid=str(uid), gid=str(uid))
                   for uid in (OWNER, OTHER)]
        nobody = self.create("of-nobody", share=self.squashed)
        self.assertEqual(self.status("sub/of-%d" % OWNER, share=self.squashed)[0], OWNER)
        self.assertEqual(self.status("of-%d" % OTHER, share=self.squashed)[0], OTHER)
        self.assertNotIn(self.status("of-nobody", share=self.squashed)[0], (0, OWNER, OTHER))
        self.restart()
        for volume in [nobody] + volumes:
            self.delete(volume.volume_id)

    def test_owner_on_an_export_that_does_not_squash(self):
        volume = self.create("given", uid=str(OWNER), gid=str(OTHER), mountPermissions="2770")
        self.assertEqual(self.status("given"), (OWNER, OTHER, 0o2770))
        self.fill("given")
        self.assertEqual(self.status(STATE)[2], 0o700)
        self.delete(volume.volume_id)
        volume = self.create("group", gid=str(OTHER))
        self.assertEqual(self.status("group"), (0, OTHER, 0o755))
        self.delete(volume.volume_id)

    def test_owner_of_a_directory_that_is_there(self):
        os.mkdir(self.path("there"))
        volume = self.create("adopts", subDir="there", uid=str(OWNER))
        self.assertEqual(self.status("there")[0], OWNER)
        self.delete(volume.volume_id)
        self.own(0o1777)
        os.mkdir(os.path.join(self.squashed, "there"))
        self.fails(CODE.PERMISSION_DENIED, self.client.CreateVolume, "there", "check squashing",
                   str(OWNER), **self.request("adopts", share=self.squashed, subDir="there",
                                              uid=str(OWNER)))
        self.assertEqual(self.listed(self.squashed), ["there"])
        with self.server_down():
            os.rmdir(os.path.join(self.squashed, "there"))

    def test_other_owner_is_another_volume(self):
        volume = self.create("mine", uid=str(OWNER))
        for more in ({"uid": str(OTHER)}, {}, {"uid": str(OWNER), "gid": "5"}):
            self.fails(CODE.ALREADY_EXISTS, self.client.CreateVolume,
                       **self.request("mine", **more))
        self.delete(volume.volume_id)

    def test_bad_owners(self):
        for key in ("uid", "gid"):
            for value in ("-1", "root", "4294967295", "1.5", "0x10", "99999999999"):
                self.fails(CODE.INVALID_ARGUMENT, self.client.CreateVolume, key,
                           **self.request("bad", **{key: value}))

    def test_trash_of_another_process_is_purged_with_its_owner(self):
        """A driver that was killed between the rename and the purge."""
        self.own()
        volume = self.create("owned", share=self.squashed, uid=str(OWNER), gid=str(OWNER))
        trash = os.path.join(self.squashed, STATE, "trash")
        left = os.path.join(trash, "old.1.2.3@%d:%d" % (OWNER, OWNER))
        os.makedirs(left, exist_ok=True)
        os.chmod(trash, 0o1777)
        self.fill("", share=left)
        os.chown(left, OWNER, OWNER)
        self.restart()
        self._live(volume)
        self.assertTrue(wait_for(lambda: not os.listdir(trash)), os.listdir(trash))
        self.delete(volume.volume_id)

    # ---- ControllerModifyVolume ----

    def modify(self, volume, **changes):
        self.client.ControllerModifyVolume(volume_id=volume.volume_id, secrets=self.secrets,
                                           mutable_parameters=changes)

    def refused(self, code, volume_id, *words, **changes):
        self.fails(code, self.client.ControllerModifyVolume, *words, volume_id=volume_id,
                   secrets=self.secrets, mutable_parameters=changes)

    def test_modify(self):
        volume = self.create("changed", mountPermissions="0750")
        for _ in range(2):
            self.modify(volume, mountPermissions="0777", uid=str(OWNER), gid=str(OTHER))
            self.assertEqual(self.status("changed"), (OWNER, OTHER, 0o777))
        self.modify(volume, gid="7")
        self.assertEqual(self.status("changed"), (OWNER, 7, 0o777))
        self.modify(volume, mountPermissions="2750")
        self.modify(volume, uid=str(OTHER))
        self.assertEqual(self.status("changed"), (OTHER, 7, 0o2750))
        # It is still the volume that was asked for.
        self.assertEqual(self.create("changed", mountPermissions="0750"), volume)
        self.assertEqual(self.status("changed"), (OTHER, 7, 0o2750))
        self.assertEqual(self.client.ControllerGetVolume(volume_id=volume.volume_id).volume, volume)
        self.delete(volume.volume_id)

    def test_special_bits_of_kubelet_stay(self):
        """It sets the set-group-id bit for fsGroup; without it, it goes over all files."""
        for before, asked, after in (("2770", "0770", 0o2770), ("3755", "0770", 0o3770),
                                     ("2770", "1777", 0o1777)):
            with self.subTest(before=before, asked=asked):
                # The server would not notice at once what changes on its disk.
                volume = self.create("special", mountPermissions="0700")
                self.modify(volume, mountPermissions=before)
                self.assertEqual(self.status("special")[2], int(before, 8))
                self.modify(volume, mountPermissions=asked)
                self.assertEqual(self.status("special")[2], after)
                self.modify(volume, mountPermissions="0" + asked[1:], uid=str(OWNER))
                self.assertEqual(self.status("special")[2], after)
                self.delete(volume.volume_id)
                os.mkdir(self.path("special"))
                os.chmod(self.path("special"), int(before, 8))
                volume = self.create("special", mountPermissions=asked)
                self.assertEqual(self.status("special")[2], after)
                self.delete(volume.volume_id)

    def test_modify_the_policy(self):
        volume = self.create("kept")
        self.modify(volume, onDelete="retain")
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), ["kept"])
        volume = self.create("kept", onDelete="retain")
        self.modify(volume, ONDELETE="Delete")
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), [])

    def test_default_policy_at_the_deletion(self):
        """An administrator may want volumes to stay that are there already."""
        plain = self.create("plain").volume_id
        asked = self.create("asked", onDelete="delete").volume_id
        below = self.create("below", subDir="a/${pvc.metadata.name}",
                            **{"csi.storage.k8s.io__pvc__name": "b"}).volume_id
        request = self.request("clone")
        request["volume_content_source"] = {"volume": {"volume_id": plain}}
        clone = self.client.CreateVolume(**request).volume
        self.restart("--default-ondelete-policy=retain")
        self.assertEqual(self.client.CreateVolume(**request).volume, clone)
        later = self.create("later").volume_id
        self.assertTrue(later.endswith("##retain"), later)
        for volume_id in (plain, asked, below, clone.volume_id):
            self.delete(volume_id)
            self.delete(volume_id)
        self.restart(*self.options)
        self.delete(later)
        for volume_id in (plain, below, clone.volume_id):  # the answers were lost
            self.delete(volume_id)
        self.assertEqual(self.listed(), ["a", "clone", "later", "plain"])
        self.assertEqual(self.listed(self.path("a")), ["b"])
        self.empty(self.share)  # also the note that a/b is retained

    def test_modify_is_all_or_nothing(self):
        volume = self.create("whole", mountPermissions="0750")
        before, record = self.status("whole"), self.text("whole")
        invalid = CODE.INVALID_ARGUMENT
        vid = volume.volume_id
        self.refused(invalid, vid, "size", mountPermissions="0777", size="1")
        self.refused(invalid, vid, "onDelete", mountPermissions="0777", onDelete="burn")
        self.refused(invalid, vid, "mountPermissions", uid="1", mountPermissions="999")
        self.refused(invalid, vid, "uid", uid="nobody", mountPermissions="0777")
        self.refused(invalid, vid, "server", server="192.0.2.1")
        self.refused(invalid, vid, "subDir", subDir="elsewhere")
        self.refused(invalid, vid, "mutable_parameters")
        self.refused(invalid, "", "volume_id", uid="1")
        self.refused(CODE.NOT_FOUND, vid.replace("whole", "absent"), uid="1")
        self.refused(CODE.NOT_FOUND, vid.replace("whole", "absent"))
        self.refused(CODE.NOT_FOUND, "fake-vol-id", uid="1")
        self.assertEqual((self.status("whole"), self.text("whole")), (before, record))
        self.delete(vid)

    def test_modify_on_a_squashed_export(self):
        """Root is nobody there, and owners give nothing away."""
        self.own()
        volume = self.create("owned", share=self.squashed, uid=str(OWNER), gid=str(OWNER))
        self.modify(volume, mountPermissions="0700")
        before = self.status("owned", share=self.squashed)
        self.assertEqual(before, (OWNER, OWNER, 0o700))
        record = self.text("owned", self.squashed)
        self.refused(CODE.INVALID_ARGUMENT, volume.volume_id, "check squashing", uid=str(OTHER),
                     mountPermissions="0777", onDelete="retain")
        self.assertEqual(self.status("owned", share=self.squashed), before)
        self.assertEqual(self.text("owned", self.squashed), record)
        self.delete(volume.volume_id)

    def test_modify_what_another_driver_made(self):
        os.mkdir(self.path("theirs"))
        vid = "%s#%s#theirs##" % (SERVER, self.share.strip("/"))
        self.client.ControllerModifyVolume(volume_id=vid, secrets=self.secrets,
                                           mutable_parameters={"uid": str(OWNER)})
        self.assertEqual(self.status("theirs")[0], OWNER)
        self.delete(vid)

    def test_create_with_a_class(self):
        request = self.request("classy", mountPermissions="0750", onDelete="delete")
        request["mutable_parameters"] = {"mountPermissions": "0711", "uid": str(OWNER),
                                         "csi.storage.k8s.io/pvc/name": "claim"}
        volume = self.client.CreateVolume(**request).volume
        self.assertEqual(self.status("classy"), (OWNER, 0, 0o711))
        self.assertEqual(self.client.CreateVolume(**request).volume, volume)
        request["mutable_parameters"]["uid"] = str(OTHER)
        self.fails(CODE.ALREADY_EXISTS, self.client.CreateVolume, **request)
        request["mutable_parameters"] = {"share": "/elsewhere"}
        self.fails(CODE.INVALID_ARGUMENT, self.client.CreateVolume, "share", **request)
        self.delete(volume.volume_id)

    # ---- directories that several volumes use ----

    def test_one_directory_of_two_volumes(self):
        for policy in ("delete", "archive"):
            with self.subTest(policy=policy):
                volumes = [self.create("user-%d" % i, subDir="team/shared", onDelete=policy)
                           for i in range(3)]
                self.fill("team", "shared")
                before = os.listdir(self.path("team", "shared"))
                for volume in volumes[:2]:
                    self.delete(volume.volume_id)
                    self.assertEqual(os.listdir(self.path("team", "shared")), before)
                self.delete(volumes[2].volume_id)
                self.assertFalse(os.path.exists(self.path("team")))
                if policy == "archive":
                    self.archive_is_removed("archived-team")

    def archive_is_removed(self, name):
        """As an administrator does it."""
        self.assertEqual(self.listed(), [name])
        with self.server_down():
            shutil.rmtree(self.path(name))
            notes = os.listdir(self.path(STATE, "parents"))
            self.assertEqual([n.split("~")[0] for n in notes], [name])
            os.unlink(self.path(STATE, "parents", notes[0]))

    def test_a_directory_in_another_volume(self):
        outer = self.create("outer", subDir="out")
        inner = self.create("inner", subDir="out/in/side")
        self.fill("out", "in", "side")
        # The inner one is data of the outer one.
        self.delete(inner.volume_id)
        self.assertEqual(len(os.listdir(self.path("out", "in", "side"))), 5)
        inner = self.create("inner", subDir="out/in/side")
        self.delete(outer.volume_id)
        self.assertEqual(len(os.listdir(self.path("out", "in", "side"))), 5)
        self.delete(inner.volume_id)
        self.assertFalse(os.path.exists(self.path("out", "in", "side")))
        with self.server_down():
            shutil.rmtree(self.path("out"))
            shutil.rmtree(self.path(STATE, "parents"))

    def test_the_directory_of_a_volume_without_subdir(self):
        plain = self.create("plain")
        guest = self.create("guest", subDir="plain")
        deep = self.create("deep", subDir="plain/below")
        self.fill("plain", "below")
        for volume in (plain, guest):
            self.delete(volume.volume_id)
            self.assertEqual(len(os.listdir(self.path("plain", "below"))), 5)
        self.delete(deep.volume_id)
        self.assertEqual(os.listdir(self.path("plain")), [])
        with self.server_down():
            os.rmdir(self.path("plain"))

    def test_names_that_only_begin_alike(self):
        volumes = [self.create("v%d" % i, subDir=s) for i, s in enumerate(("ab", "a", "abc/d"))]
        for volume, gone in zip(volumes, ("ab", "a", "abc")):
            self.delete(volume.volume_id)
            self.assertFalse(os.path.exists(self.path(gone)))

    def test_notes_without_a_record_count_for_nothing(self):
        volume = self.create("noted", subDir="there")
        os.symlink("v=1", self.path(STATE, "users", "there", "long-gone"))
        os.symlink("v=1", self.path(STATE, "users", "there", "~odd~"))
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), [])
        with self.server_down():
            shutil.rmtree(self.path(STATE, "users"))

    # ---- deletion within the call ----

    def test_inline_deletion(self):
        """Nothing is left when the call answers; one that was cut off is finished by the next."""
        self.restart("--delete-mode=inline")
        trash = self.path(STATE, "trash")
        try:
            for _ in range(3):
                volume = self.create("gone", subDir="a/gone")
                self.fill("a", "gone")
                self.delete(volume.volume_id)
                self.assertEqual(self.listed(), [])
                self.assertEqual(os.listdir(trash), [])
            volume = self.create("gone", subDir="a/gone")
            with self.server_down():
                os.rename(self.path("a", "gone"), os.path.join(trash, "a%2Fgone.1.2.3"))
                os.mkdir(os.path.join(trash, "a%2Fgone.1.2.3", "full"))
            self.delete(volume.volume_id)
            self.assertEqual(os.listdir(trash), [])
        finally:
            self.restart()

    # ---- archives ----

    def test_replacing_an_archive(self):
        self.restart("--remove-archived-volume-path")
        try:
            for content in ("old", "new"):
                volume = self.create("filed", subDir="files/filed", onDelete="archive")
                self.fill("files", "filed")
                with open(self.path("files", "filed", content), "w", encoding="ascii") as f:
                    f.write(content)
                self.delete(volume.volume_id)
                self.delete(volume.volume_id)
            self.assertEqual(os.listdir(self.path("archived-files")), ["filed"])
            got = os.listdir(self.path("archived-files", "filed"))
            self.assertIn("new", got)
            self.assertNotIn("old", got)
            self.archive_is_removed("archived-files")
        finally:
            self.restart()

    # ---- what the record tells ----

    def test_the_record_tells_how_the_server_was_reached(self):
        cap = capability(flags=self.server.flags(self.version) + ["sec=sys"])
        volume = self.create("reached", cap=cap)
        pairs = dict(p.split("=", 1) for p in self.text("reached").split(";"))
        self.assertEqual(pairs["vers"], self.version)
        self.assertEqual(pairs["port"], str(self.server.port))
        self.assertEqual(pairs.get("mountport"),
                         str(self.server.mount_port) if self.version == "3" else None)
        self.assertEqual(pairs["sec"], "sys")
        self.delete(volume.volume_id)


class OnVersion3(Settings, Base):
    version = "3"


class OnVersion4(Settings, Base):
    version = "4"


class Sessions(Base):
    """Servers with one minor version of NFSv4."""

    def test_one_minor_version(self):
        for minor in ("0", "1", "2"):
            with self.subTest(minor=minor):
                share = os.path.join(DISK, "only" + minor)
                with Ganesha(os.path.join(LAB, "only" + minor), [Export(share, "4")],
                             protocols="4", minor_versions=minor) as server, \
                        Driver(LAB, name="only" + minor) as driver:
                    self._try(server, driver, share, minor)

    def _try(self, server, driver, share, minor):
        only = OnServer()
        only.server, only.driver, only.share, only.version = server, driver, share, "4." + minor
        for flags in (["vers=4." + minor], ["vers=4"], []):
            flags = flags + ["port=%d" % server.port]
            volume = driver.client.CreateVolume(**only.request(
                "v", cap=capability(flags=flags))).volume
            driver.client.DeleteVolume(volume_id=volume.volume_id, secrets=only.secrets)
        for other in {"0", "1", "2"} - {minor}:
            self.fails(CODE.FAILED_PRECONDITION, driver.client.CreateVolume, "4." + other,
                       **only.request("w", cap=capability(flags=server.flags("4." + other))))
        self.assertTrue(wait_for(lambda: only.listed() == [] and only.records() == []))


if __name__ == "__main__":
    harness.main("settings of volumes")
