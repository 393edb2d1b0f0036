# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Extended attributes of files and directories in clones, snapshots and restored volumes, on the
kernel's own server with NFSv4.2. They are set and compared on the server's disk. Runs inside a lab
with --kernel nfsd --kernel xfs.
"""
import io
import os
import re
import shutil
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import trees
from cases import CODE, DISK, LAB, SERVER, STATE, Base
from csi_client import capability
from driver import FEW_IN_GUEST, Driver
from servers import Image, KernelServer, fill_disk, run, wait_for

MIB = 1 << 20
NAMES = ("plain", "with.dots", "a b", "per%cent", "%41", "x=y", "caf\u00e9", "\u202e\U0001f600",
         "n" * 250)


def survey(root):
    """The extended attributes of user.* below root, by path."""
    root = os.fsencode(root)
    found = {}
    for name in [b"."] + list(trees.walk(root)):
        path = os.path.join(root, name)
        if os.path.islink(path):
            continue
        found[name] = {key: os.getxattr(path, key) for key in os.listxattr(path)
                       if key.startswith("user.")}
    return found


class Xattrs:
    """Cases that run once for each file system."""

    mkfs = ()
    large = 0  # bytes of the largest value
    options = "rw,no_root_squash,insecure,fsid=0,no_subtree_check,crossmnt"
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.image = Image(os.path.join(DISK, cls.__name__), 400, *cls.mkfs).mount()
        cls.addClassCleanup(cls.image.unmount)
        cls.mount_more()
        cls.server = KernelServer(cls.image.path, options=cls.options).start()
        cls.addClassCleanup(cls.server.done)
        cls.driver = Driver(LAB, name=cls.__name__, workers=FEW_IN_GUEST).start()
        cls.addClassCleanup(cls.driver.stop)

    @classmethod
    def mount_more(cls):
        """Before the server, which keeps it busy."""

    @property
    def share_3(self):
        """The share's path in version 3."""
        return self.image.path

    def path(self, *parts):
        return os.path.join(self.image.path, *parts)

    def create(self, name, flags=None, share="/", **more):
        flags = self.flags if flags is None else flags
        return self.driver.client.CreateVolume(
            name=name, volume_capabilities=[capability(flags=list(flags))], timeout=120,
            parameters={"server": SERVER, "share": share},
            secrets={"mountOptions": ",".join(flags)},
            capacity_range={"required_bytes": MIB}, **more).volume.volume_id

    def clone(self, name, volume_id, **more):
        return self.create(name, volume_content_source={"volume": {"volume_id": volume_id}}, **more)

    def delete(self, *volume_ids):
        for volume_id in volume_ids:
            self.driver.client.DeleteVolume(volume_id=volume_id)
        trash = self.path(STATE, "trash")
        self.assertTrue(wait_for(lambda: not os.path.exists(trash) or not os.listdir(trash), 60))

    def fill(self, volume):
        """Files and directories of several modes, with attributes of several kinds."""
        root = self.path(volume)
        for folder, mode in (("open", 0o755), ("closed", 0o500), ("closed/deep", 0o1777)):
            os.mkdir(os.path.join(root, folder))
            os.chmod(os.path.join(root, folder), mode)
        for name, mode, data in (("empty", 0o644, b""), ("open/read only", 0o400, b"x" * 9000),
                                 ("closed/deep/none", 0, b"y"), ("open/suid", 0o4755, b"z"),
                                 ("large", 0o640, os.urandom(3 * MIB)), ("bare", 0o644, b"b")):
            trees.write(os.path.join(root, name), data, mode)
        os.link(os.path.join(root, "large"), os.path.join(root, "open/second name"))
        os.symlink("large", os.path.join(root, "link"))
        for i, name in enumerate((".", "open", "closed", "closed/deep", "empty", "open/read only",
                                  "closed/deep/none", "open/suid", "large")):
            path = os.path.join(root, name)
            os.setxattr(path, "user.%s" % NAMES[i], os.urandom(i * 10))  # one is empty
            os.setxattr(path, "user.same", b"of all")
        for name in NAMES:
            os.setxattr(os.path.join(root, "empty"), "user." + name, name.encode())
        os.setxattr(os.path.join(root, "large"), "user.large", os.urandom(self.large))
        os.setxattr(os.path.join(root, "large"), "trusted.not.ours", b"stays behind")
        for name in ("open/read only", "open", "."):
            os.utime(os.path.join(root, name), ns=(10 ** 18 + 7, 10 ** 18 + 9))

    def same(self, a, b):
        self.assertEqual(trees.differences(trees.survey(self.path(a)),
                                           trees.survey(self.path(b))), [])
        self.assertEqual(survey(self.path(a)), survey(self.path(b)))

    def lost(self, what):
        """What the log says of a copy that has ended: how many were lost, and the warnings."""
        with open(self.driver.log, encoding="utf-8") as f:
            lines = [line for line in f if re.search('what="?%s[" ]' % what, line)]
        ended = [line for line in lines if "Copied" in line]
        self.assertEqual(len(ended), 1, lines)
        return (int(re.search(r"xattrs_lost=(\d+)", ended[0]).group(1)),
                [line for line in lines if "were not kept" in line])

    def test_clone_snapshot_restore(self):
        source = self.create("source")
        self.fill("source")
        self.same("source", "source")
        copy = self.clone("copy", source)
        self.same("source", "copy")
        snapshot = self.driver.client.CreateSnapshot(
            name="snapshot", source_volume_id=source, timeout=120).snapshot.snapshot_id
        archive = self.path("snapshot", "source.tar.gz")
        with tarfile.open(archive) as tar:
            empty = tar.getmember("empty").pax_headers
        self.assertEqual(empty["SCHILY.xattr.user.same"], "of all")
        self.assertFalse([key for key in empty if key.startswith("LIBARCHIVE.xattr")])
        restored = self.create("restored", volume_content_source={
            "snapshot": {"snapshot_id": snapshot}})
        self.same("source", "restored")
        for what in ("copy", "snapshot", "restored"):
            self.assertEqual(self.lost(what), (0, []))
        self.driver.client.DeleteSnapshot(snapshot_id=snapshot)
        self.delete(source, copy, restored)

    def test_archive_for_tree(self):
        """An administrator has put an archive in the place of a snapshot that is a tree, on a share
        that is used over version 3, which has no extended attributes."""
        old = {"mountOptions": "vers=3"}
        source = self.create("old", flags=("vers=3",), share=self.share_3)
        trees.write(self.path("old", "file"), b"data", 0o644)
        snapshot = self.driver.client.CreateSnapshot(
            name="tree", source_volume_id=source, secrets=old, timeout=120,
            parameters={"format": "tree"}).snapshot.snapshot_id
        shutil.rmtree(self.path("tree", "old.tree"))
        with tarfile.open(self.path("tree", "old.tar"), "w", format=tarfile.PAX_FORMAT) as tar:
            for name, kind, data in ((".", tarfile.DIRTYPE, b""), ("file", None, b"other data")):
                member = tarfile.TarInfo(name)
                member.type = kind or member.type
                member.mode = 0o755
                member.size = len(data)
                member.pax_headers = {"SCHILY.xattr.user.of": name}
                tar.addfile(member, io.BytesIO(data))
        restored = self.create("new", volume_content_source={
            "snapshot": {"snapshot_id": snapshot}})
        self.assertEqual(survey(self.path("new")),
                         {b".": {"user.of": b"."}, b"file": {"user.of": b"file"}})
        self.assertEqual(self.lost("new"), (0, []))
        self.driver.client.DeleteSnapshot(snapshot_id=snapshot, secrets=old)
        self.driver.client.DeleteVolume(volume_id=source, secrets=old)
        self.delete(restored)

    def test_older_call_before(self):
        """Calls without options use those of the last call; a clone of 4.2 reads over 4.2."""
        source = self.create("read", flags=("vers=4.2",))
        os.setxattr(self.path("read"), "user.kept", b"1")
        other = self.create("older", flags=("vers=4.1",))
        copy = self.clone("newer", source, flags=("vers=4.2",))
        self.assertEqual(survey(self.path("newer"))[b"."]["user.kept"], b"1")
        self.delete(source, other, copy)

    def test_target_without(self):
        """What the target cannot keep is counted, said once, and fails nothing."""
        source = self.create("with", flags=("vers=4.2",))
        self.fill("with")
        copy = self.clone("without", source, flags=("vers=3",), share=self.share_3)
        self.assertEqual(trees.differences(trees.survey(self.path("with")),
                                           trees.survey(self.path("without"))), [])
        self.assertFalse(any(survey(self.path("without")).values()))
        wanted = sum(map(len, survey(self.path("with")).values()))
        wanted -= len(survey(self.path("with"))[b"open/second name"])
        number, warnings = self.lost("without")
        self.assertEqual(number, wanted)
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("NFSv4.2", warnings[0])
        self.delete(source, copy)


class OnXfs(Xattrs, Base):
    mkfs = ("mkfs.xfs", "-q", "-f")
    large = 60 << 10

    def test_many_of_one_file(self):
        """More names than 4 KiB hold. knfsd of Linux 6.1 does not go on after so many."""
        source = self.create("crowd")
        for name, number in (("some", 345), ("more", 700), ("most", 4900)):
            path = self.path("crowd", name)
            trees.write(path, b"x")
            for i in range(number):
                os.setxattr(path, "user.key%04d" % i, b"")
        copy = self.clone("crowd-copy", source)
        self.same("crowd", "crowd-copy")
        self.assertEqual(self.lost("crowd-copy"), (0, []))
        self.delete(source, copy)

    def test_tree_packed_by_hand(self):
        """As the manual says, which then removes the tree: for csi-driver-nfs."""
        with open(os.path.join(HERE, "..", "..", "man", "csi-nfs.8.in"), encoding="utf-8") as f:
            command = re.search(r"^tar .*\n(?:.*\n)*?rm .*\n", f.read(), re.M).group()
        for roff, text in (("\\e\n", "\\\n"), ("\\-", "-"), ("\\(aq", "'")):
            command = command.replace(roff, text)
        command = re.sub(r"\\fI\w+\\fR", "packed", command)
        source = self.create("packed")
        self.fill("packed")
        snapshot = self.driver.client.CreateSnapshot(
            name="by-hand", source_volume_id=source, timeout=120,
            parameters={"format": "tree"}).snapshot.snapshot_id
        run("sh", "-ec", 'cd "$1"\n' + command, "sh", self.path("by-hand"))
        self.assertEqual(os.listdir(self.path("by-hand")), ["packed.tar.gz"])
        restored = self.create("unpacked", volume_content_source={
            "snapshot": {"snapshot_id": snapshot}})
        self.assertEqual(survey(self.path("unpacked")), survey(self.path("packed")))
        self.driver.client.DeleteSnapshot(snapshot_id=snapshot)
        self.delete(source, restored)


class OnExt4(Xattrs, Base):
    """One block holds all attributes of a file."""

    mkfs = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256")
    large = 2000


class Between(Xattrs, Base):
    """From XFS to ext4, whose files have room for little."""

    mkfs = OnExt4.mkfs + ("-m", "0")  # root has no more room than others
    large = 60 << 10

    @classmethod
    def mount_more(cls):
        # Below the export: version 4 shows it, as a file system of its own.
        cls.xfs = Image(os.path.join(DISK, "xfs"), 400, "mkfs.xfs", "-q", "-f")
        cls.xfs.path = os.path.join(cls.image.path, "xfs")
        cls.xfs.mount()
        cls.addClassCleanup(cls.xfs.unmount)

    def test_clone_snapshot_restore(self):
        """What is too large for ext4 is lost, and all else is kept."""
        source = self.create("source", share="/xfs")
        self.fill("xfs/source")
        copy = self.clone("copy", source)
        self.assertEqual(trees.differences(trees.survey(self.path("xfs/source")),
                                           trees.survey(self.path("copy"))), [])
        wanted, found = survey(self.path("xfs/source")), survey(self.path("copy"))
        self.assertLess(found[b"large"].items(), wanted[b"large"].items())
        del wanted[b"large"]["user.large"]
        del wanted[b"open/second name"]["user.large"]
        self.assertEqual(found, wanted)
        number, warnings = self.lost("copy")
        self.assertEqual((number, len(warnings)), (1, 1), warnings)
        self.assertIn("too large", warnings[0])
        self.driver.client.DeleteVolume(volume_id=source)
        self.delete(copy)

    def test_full(self):
        """Attributes for which there is no room at present are not too large: the call fails."""
        source = self.create("roomy", share="/xfs")
        for i in range(64):
            trees.write(self.path("xfs", "roomy", str(i)), b"")
            os.setxattr(self.path("xfs", "roomy", str(i)), "user.note", os.urandom(1500))
        fill = self.path("fill")
        fill_disk(fill, 96 << 10)
        self.fails(CODE.RESOURCE_EXHAUSTED, self.clone, "full", name="later", volume_id=source)
        os.unlink(fill)
        copy = self.clone("later", source)
        self.assertEqual(survey(self.path("xfs", "roomy")), survey(self.path("later")))
        self.assertEqual(self.lost("later"), (0, []))
        self.driver.client.DeleteVolume(volume_id=source)
        self.delete(copy)

    def test_target_without(self):
        """From XFS, by version 4.2, to ext4 by version 3."""
        source = self.create("with", share="/xfs", flags=("vers=4.2",))
        self.fill("xfs/with")
        copy = self.clone("without", source, flags=("vers=3",), share=self.share_3)
        self.assertFalse(any(survey(self.path("without")).values()))
        number, warnings = self.lost("without")
        self.assertGreater(number, 10)
        self.assertEqual(len(warnings), 1, warnings)
        self.driver.client.DeleteVolume(volume_id=source)
        self.delete(copy)


class Below(Base):
    """A volume of csi-driver-nfs on XFS that is mounted below the export, whose own file system, a
    tmpfs, has no extended attributes in this kernel."""

    flags = ("vers=4.2",)
    volume = "%s##xfs/source##" % SERVER
    lost = Xattrs.lost

    @classmethod
    def setUpClass(cls):
        cls.root = root = os.path.join(DISK, cls.__name__)
        os.mkdir(root)
        run("mount", "-t", "tmpfs", "-o", "size=50m", "none", root)
        cls.addClassCleanup(run, "umount", root)
        os.mkdir(os.path.join(root, "xfs"))
        cls.image = Image(os.path.join(DISK, "xfs"), 400, "mkfs.xfs", "-q", "-f")
        cls.image.path = os.path.join(root, "xfs")
        cls.image.mount()
        cls.addClassCleanup(cls.image.unmount)
        cls.server = KernelServer(root, options=Xattrs.options).start()
        cls.addClassCleanup(cls.server.done)
        cls.driver = Driver(LAB, name=cls.__name__, workers=FEW_IN_GUEST).start()
        cls.addClassCleanup(cls.driver.stop)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def create(self, name, source, share="/"):
        return self.driver.client.CreateVolume(
            name=name, volume_capabilities=[capability(flags=list(self.flags))], timeout=120,
            parameters={"server": SERVER, "share": share}, volume_content_source=source,
            secrets={"mountOptions": ",".join(self.flags)},
            capacity_range={"required_bytes": MIB}).volume.volume_id

    def test_clone_snapshot_restore(self):
        if self.has_xattrs("."):
            self.skipTest("this kernel's tmpfs has extended attributes")
        os.mkdir(self.path("xfs", "source"))
        trees.write(self.path("xfs", "source", "file"), b"x" * 1000, 0o644)
        for i in range(3):
            os.setxattr(self.path("xfs", "source", "file"), "user.%d" % i, b"value")
        source = {"volume": {"volume_id": self.volume}}
        # On the export's own file system, which loses them, and says so.
        self.create("copy", source)
        number, warnings = self.lost("copy")
        self.assertEqual((number, len(warnings)), (3, 1), warnings)
        # An archive has them, and so has what is restored from it where they can be.
        snapshot = self.driver.client.CreateSnapshot(
            name="snapshot", source_volume_id=self.volume, timeout=120,
            secrets={"mountOptions": ",".join(self.flags)}).snapshot.snapshot_id
        self.assertEqual(self.lost("snapshot"), (0, []))
        self.create("restored", {"snapshot": {"snapshot_id": snapshot}}, "/xfs")
        self.assertEqual(survey(self.path("xfs", "source")), survey(self.path("xfs", "restored")))
        self.assertEqual(self.lost("restored"), (0, []))
        # A tree that goes from one export to the other.
        self.create("again", source, "/xfs")
        self.assertEqual(survey(self.path("xfs", "source")), survey(self.path("xfs", "again")))

    def has_xattrs(self, *parts):
        try:
            os.setxattr(self.path(*parts), "user.test", b"")
        except OSError:
            return False
        os.removexattr(self.path(*parts), "user.test")
        return True


class Chosen(Xattrs, Base):
    """One export with the same path in versions 3 and 4: a folder of the file system that is the
    root of version 4, mounted where that path leads for version 3."""

    mkfs = OnXfs.mkfs
    large = OnXfs.large
    same_path = os.path.join(DISK, "same")

    @classmethod
    def mount_more(cls):
        inner = cls.image.path + cls.same_path
        os.makedirs(inner)
        os.makedirs(cls.same_path)
        run("mount", "--bind", inner, cls.same_path)
        cls.addClassCleanup(run, "umount", cls.same_path)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run("exportfs", "-i", "-o", "rw,no_root_squash,insecure,fsid=7,no_subtree_check",
            "*:" + cls.same_path)

    @property
    def share_3(self):
        return self.same_path

    def path(self, *parts):
        return os.path.join(self.same_path, *parts)

    def create(self, name, flags=None, share=None, **more):
        return super().create(name, flags, share or self.same_path, **more)

    @staticmethod
    def made_by_version_3():
        """Files that the server has created over version 3 so far."""
        with open("/proc/net/rpc/nfsd", encoding="ascii") as f:
            words = next(line.split() for line in f if line.startswith("proc3 "))
        return int(words[10])

    def thirty_files(self, name):
        """A volume with 30 files, and how many files version 3 has made so far."""
        source = self.create(name)
        for i in range(30):
            trees.write(self.path(name, "file%d" % i), b"x" * 100)
        return source, self.made_by_version_3()

    def test_choice(self):
        """4.2 where there may be some."""
        source, before = self.thirty_files("any")
        copy = self.clone("any2", source)
        self.same("any", "any2")
        self.assertEqual(self.made_by_version_3(), before)
        self.delete(source, copy)

    def test_choice_of_few_slots(self):
        """Version 3 for files that have none, and 4.2 if one has. Linux divides its memory for
        sessions, 1/128 of all, by its threads: a session of the guest's has 20 slots or so."""
        run("rpc.nfsd", "256")
        self.addCleanup(run, "rpc.nfsd", "8")
        self.driver.restart()
        source, before = self.thirty_files("plain")
        copy = self.clone("plain2", source)
        self.same("plain", "plain2")
        self.assertEqual(self.made_by_version_3() - before, 30)
        os.setxattr(self.path("plain", "file17"), "user.one", b"1")
        second = self.clone("plain3", source)
        self.same("plain", "plain3")
        self.assertEqual(self.made_by_version_3() - before, 30)
        self.delete(source, copy, second)


if __name__ == "__main__":
    harness.main("extended attributes")
