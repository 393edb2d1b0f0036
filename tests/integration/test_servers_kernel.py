# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The life of volumes on the kernel's NFS server, on each file system of doc/servers.md and with
options of its exports. Runs inside a lab whose kernel has nfsd.
"""
import os
import shutil
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import lives
from cases import CODE, LAB, STATE
from lives import Folder
from servers import Image, KernelServer, run, wait_for

NOBODY = 65534
VERSIONS = ("3", "4.0", "4.1", "4.2")


def has_file_system(name):
    with open("/proc/filesystems", encoding="ascii") as f:
        return name in f.read().split()


class OnKernel(Folder):
    """A file system that the kernel exports. turn: which version a short run uses."""

    turn = 0
    kind = None  # file system that the kernel must have
    options = ()
    exported = "rw,no_root_squash,insecure,fsid=0,no_subtree_check"

    @classmethod
    def mount(cls):
        """Mount the file system at cls.folder."""

    @classmethod
    def unmount(cls):
        run("umount", cls.folder)

    @classmethod
    def setUpClass(cls):
        if cls.kind is not None and not has_file_system(cls.kind):
            raise unittest.SkipTest("this kernel has no %s" % cls.kind)
        super().setUpClass()

    @classmethod
    def start_server(cls):
        cls.mount()
        cls.prepare()
        return Exported(cls.folder, cls.exported).start()

    @classmethod
    def prepare(cls):
        """Change the exported directory."""

    @classmethod
    def stop_server(cls):
        cls.server.done()
        if cls.mount.__func__ is not OnKernel.mount.__func__:
            cls.unmount()

    @staticmethod
    def unmount_in_share(path):
        run("umount", "-l", path)  # the kernel keeps what it has exported busy for a while
        run("exportfs", "-f")

    def test_life(self):
        for self.version in harness.one_of(VERSIONS, self.turn):
            with self.subTest(version=self.version):
                self.share = self.folder if self.version == "3" else "/"
                self.restart()  # it would list the same volumes by both names of the share
                lives.live(self)


class Exported(KernelServer):
    """The kernel's server, as lives.py uses a server."""

    @staticmethod
    def flags(version):
        return [] if version is None else ["vers=" + version]


class OnImage(OnKernel):
    """A file system in an image."""

    mkfs = ()
    mebibytes = 128

    @classmethod
    def mount(cls):
        cls.image = Image(cls.folder, cls.mebibytes, *cls.mkfs).mount()

    @classmethod
    def unmount(cls):
        cls.image.unmount()


class OnExt4(OnImage):
    """ext4 without the directory that mkfs makes."""

    kind = "ext4"
    mkfs = ("mkfs.ext4", "-q")

    @classmethod
    def prepare(cls):
        os.rmdir(os.path.join(cls.folder, "lost+found"))


class Ext4(OnExt4, unittest.TestCase):
    """ext4."""

    turn = 3

    def test_share_that_is_a_link(self):
        """The mount service, which only version 3 uses, follows links."""
        target = os.path.join(self.folder, "target")
        os.mkdir(target)
        self.addCleanup(shutil.rmtree, target)
        os.symlink("target", os.path.join(self.folder, "link"))
        self.addCleanup(os.unlink, os.path.join(self.folder, "link"))
        for self.version in harness.one_of(VERSIONS, self.turn) + ["3"]:
            with self.subTest(version=self.version):
                self.share = os.path.join(self.folder if self.version == "3" else "/", "link")
                if self.version == "3":
                    volume = self.create("followed")
                    self.assertTrue(os.path.isdir(os.path.join(target, "followed")))
                    self.delete(volume.volume_id)
                else:
                    self.fails((CODE.FAILED_PRECONDITION,), self.create, "is a symbolic link",
                               name="refused")


class Xfs(OnImage, unittest.TestCase):
    """XFS."""

    turn = 2
    kind = "xfs"
    mkfs = ("mkfs.xfs", "-q")
    mebibytes = 320


class Btrfs(OnImage, unittest.TestCase):
    """btrfs."""

    turn = 3
    kind = "btrfs"
    mkfs = ("mkfs.btrfs", "-q")
    mebibytes = 256

    def test_subvolume_and_its_snapshot(self):
        """Files and those of a snapshot differ in nothing but their handles."""
        for self.version in ["3"] + harness.one_of(VERSIONS[1:], self.turn):
            with self.subTest(version=self.version):
                self.share = self.folder if self.version == "3" else "/"
                self.restart()
                self.copies_a_snapshot("snapshot-" + self.version)

    def copies_a_snapshot(self, name):
        made = self.create(name)
        top = os.path.join(self.folder, name)
        run("btrfs", "subvolume", "create", top + "/a")
        os.mkdir(top + "/a/sub")
        self.put(name + "/a/sub/f", b"old")
        os.link(top + "/a/sub/f", top + "/a/z")
        run("btrfs", "filesystem", "sync", top)
        # In the middle of the subvolume, so that a name of each file comes before and after it.
        run("btrfs", "subvolume", "snapshot", top + "/a", top + "/a/sub/snapshot")
        copy = self.create(name + "-copy", source={"volume": {"volume_id": made.volume_id}})
        below = "a/sub/snapshot/"
        links = {}
        for path in ("a/sub/f", "a/z", below + "sub/f", below + "z"):
            links.setdefault(os.stat(top + "-copy/" + path).st_ino, set()).add(path)
        self.assertEqual(sorted(map(sorted, links.values())),
                         sorted([["a/sub/f", "a/z"], [below + "sub/f", below + "z"]]))
        for volume in (copy, made):
            self.delete(volume.volume_id)
        self.is_clean()


class Vfat(OnImage, unittest.TestCase):
    """vfat: no links, no owners, times of two seconds, names without case."""

    turn = 1
    kind = "vfat"
    mkfs = ("mkfs.vfat",)

    def has_links(self):
        return False


class Tmpfs(OnKernel, unittest.TestCase):
    """tmpfs."""

    turn = 2
    kind = "tmpfs"

    @classmethod
    def mount(cls):
        run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", cls.folder)


class Overlay(OnKernel, unittest.TestCase):
    """overlayfs, with the options by which it can be exported."""

    turn = 3
    kind = "overlay"

    @classmethod
    def mount(cls):
        places = [cls.folder + "-" + part for part in ("lower", "upper", "work")]
        for place in places:
            os.makedirs(place)
        run("mount", "-t", "overlay", "-o",
            "lowerdir=%s,upperdir=%s,workdir=%s,index=on,nfs_export=on" % tuple(places), "overlay",
            cls.folder)


class Squashed(OnKernel, unittest.TestCase):
    """Root is nobody, who owns the exported directory."""

    turn = 2
    owner = NOBODY
    exported = "rw,root_squash,insecure,fsid=0,no_subtree_check"

    @classmethod
    def prepare(cls):
        os.chown(cls.folder, NOBODY, NOBODY)


class AllSquashed(Squashed):
    """Everybody is one user."""

    turn = 0
    exported = "rw,all_squash,anonuid=65534,anongid=65534,insecure,fsid=0,no_subtree_check"


class Secure(OnKernel, unittest.TestCase):
    """Source ports below 1024 only, and other file systems below are exported, too."""

    turn = 1
    exported = "rw,no_root_squash,secure,crossmnt,fsid=0,no_subtree_check"


class SubtreeCheck(OnKernel, unittest.TestCase):
    """Handles of files tell their directories."""

    turn = 2
    exported = "rw,no_root_squash,insecure,fsid=0,subtree_check"

    def test_hard_links(self):
        """Each name has a handle of its own, and yet is a name of the same file."""
        for self.version in ["3"] + harness.one_of(VERSIONS[1:], self.turn):
            with self.subTest(version=self.version):
                self.share = self.folder if self.version == "3" else "/"
                self.restart()
                name = "links-" + self.version
                made = self.create(name)
                top = os.path.join(self.folder, name)
                for folder in ("a", "b", "c"):
                    self.put("%s/%s" % (name, folder))
                self.put(name + "/a/f", b"data")
                os.link(top + "/a/f", top + "/b/f")
                os.link(top + "/a/f", top + "/c/f")
                copy = self.create(name + "-copy",
                                   source={"volume": {"volume_id": made.volume_id}})
                numbers = {os.stat("%s-copy/%s/f" % (top, folder)).st_ino for folder in "abc"}
                self.assertEqual(len(numbers), 1)
                for volume in (copy, made):
                    self.delete(volume.volume_id)
                self.is_clean()


class BindMount(OnExt4, unittest.TestCase):
    """Another directory of the same file system is mounted in a volume. The kernel identifies the
    export by UUID, so that both have one file system id."""

    turn = 3
    exported = "rw,no_root_squash,insecure,no_subtree_check,crossmnt"

    @classmethod
    def start_server(cls):
        cls.mount()
        cls.prepare()
        server = Exported(cls.folder, cls.exported).start()
        run("exportfs", "-i", "-o", cls.exported + ",fsid=0", "*:" + LAB)
        return server

    def test_life(self):
        for self.version in ["3"] + harness.one_of(VERSIONS[1:], self.turn):
            with self.subTest(version=self.version):
                self.share = self.folder if self.version == "3" else self.folder[len(LAB):]
                self.restart()
                for inline in (False, True):
                    self.keeps("v-%s-%d" % (self.version, inline), inline)
        lives.live(self)

    def keeps(self, name, inline):
        """Neither a deletion nor a copy enters the mount."""
        outside = os.path.join(self.folder, "outside")
        os.makedirs(outside)
        for i in range(20):
            with open(os.path.join(outside, "kept%d" % i), "wb") as f:
                f.write(b"kept")
        made = self.create(name)
        self.put(name + "/beside/file", b"data")
        mount = os.path.join(self.folder, name, "beside", "mount")
        os.makedirs(mount)
        run("mount", "--bind", outside, mount)
        copy = self.create(name + "-copy", source={"volume": {"volume_id": made.volume_id}})
        self.assertEqual(self.tree(name + "-copy"),
                         {"beside": None, "beside/file": b"data", "beside/mount": None})
        self.delete(copy.volume_id)
        if inline:
            top = os.path.join(self.folder, "top")
            os.makedirs(top)
            self.create("top-of-" + name, subDir="top")
            run("mount", "--bind", outside, top)
            self.fails((CODE.FAILED_PRECONDITION,), self.delete, "is a mount point",
                       volume_id=self.volume_id("top", "top-of-" + name))
            self.unmount_in_share(top)
            self.delete(self.volume_id("top", "top-of-" + name))
        self.delete(made.volume_id)
        trash = os.path.join(self.folder, STATE, "trash")
        left = [entry for entry in os.listdir(trash) if not entry.startswith(name + "-copy")]
        self.assertEqual(len(left), 1)
        message = left[0] + "/beside/mount' on "  # of the purge, not of a deletion above
        wait_for(lambda: message in self.driver.tail(), 20)
        self.assertIn(message, self.driver.tail())
        self.assertEqual(len(os.listdir(outside)), 20)
        self.unmount_in_share(os.path.join(trash, left[0], "beside", "mount"))
        shutil.rmtree(outside)
        self.restart()  # a purger looks at once at a share that it does not know yet
        self.delete(self.create(name + "-next").volume_id)
        self.is_clean()


class HiddenMount(OnExt4, unittest.TestCase):
    """A file system that is not exported is mounted in a volume, or on one. The server shows the
    directory below it, and does not remove that."""

    turn = 1

    def test_life(self):
        for self.version in harness.one_of(VERSIONS[1:], self.turn):
            with self.subTest(version=self.version):
                self.share = "/"
                self.restart()
                self.keeps("in-" + self.version)
                self.refuses("on-" + self.version)
                self.is_clean()

    @staticmethod
    def hide(path):
        os.makedirs(path, exist_ok=True)
        run("mount", "-t", "tmpfs", "hidden", path)
        with open(os.path.join(path, "kept"), "wb") as f:
            f.write(b"kept")

    def keeps(self, name):
        made = self.create(name)
        self.put(name + "/beside/file", b"data")
        self.hide(os.path.join(self.folder, name, "beside", "mount"))
        self.delete(made.volume_id)
        trash = os.path.join(self.folder, STATE, "trash")
        left = os.listdir(trash)
        self.assertEqual(len(left), 1)
        message = left[0] + "/beside/mount' on 127.0.0.1:/ is a mount point on the server"
        wait_for(lambda: message in self.driver.tail(), 20)
        self.assertIn(message, self.driver.tail())
        beside = os.path.join(trash, left[0], "beside")
        self.assertEqual(os.listdir(beside), ["mount"])
        self.assertEqual(os.listdir(os.path.join(beside, "mount")), ["kept"])
        self.unmount_in_share(os.path.join(beside, "mount"))
        self.restart()  # a purger looks at once at a share that it does not know yet
        self.delete(self.create(name + "-next").volume_id)
        self.is_clean()

    def refuses(self, name):
        made = self.create(name)
        path = os.path.join(self.folder, name)
        self.hide(path)
        self.fails((CODE.FAILED_PRECONDITION,), self.delete, "is a mount point", "unmount it",
                   volume_id=made.volume_id)
        self.assertEqual(os.listdir(path), ["kept"])
        self.unmount_in_share(path)
        self.delete(made.volume_id)


class SamePath(OnExt4, unittest.TestCase):
    """One path leads to one file system in version 3 and to another in version 4, whose directories
    have the same file ids. The server has version 4.0 at most, so trees go over version 3."""

    mebibytes = 16
    exported = "rw,no_root_squash,insecure,no_subtree_check,crossmnt"

    @classmethod
    def start_server(cls):
        cls.root = cls.folder + "-root"
        cls.below = cls.root + cls.folder
        os.makedirs(cls.below)
        cls.mount()
        cls.other = Image(cls.below, cls.mebibytes, *cls.mkfs).mount()
        server = Exported(cls.root, cls.exported + ",fsid=0", without=("4.1", "4.2")).start()
        run("exportfs", "-i", "-o", cls.exported, "*:" + cls.folder)
        return server

    @classmethod
    def unmount(cls):
        cls.other.unmount()
        super().unmount()

    def test_life(self):
        for self.version, top in (("3", self.folder), ("4.0", self.below)):
            self.restart()
            made = self.create("source")
            with open(os.path.join(top, "source", "data"), "wb") as f:
                f.write(self.version.encode())
        self.assertEqual(os.stat(self.folder).st_ino, os.stat(self.below).st_ino)
        self.assertEqual(os.stat(os.path.join(self.folder, STATE)).st_ino,
                         os.stat(os.path.join(self.below, STATE)).st_ino)
        self.restart()  # it remembers the version of the last volume
        self.version = None
        self.create("copy", source={"volume": {"volume_id": made.volume_id}})
        self.assertEqual(os.listdir(os.path.join(self.folder)).count("copy"), 0)
        with open(os.path.join(self.below, "copy", "data"), "rb") as f:
            self.assertEqual(f.read(), b"4.0")


if __name__ == "__main__":
    harness.main("servers-kernel")
