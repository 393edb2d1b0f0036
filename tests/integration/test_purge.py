# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What becomes of deleted volumes whose trees are of the worst kind: deep beyond measure, with a
file system mounted in them, with things in them that nobody can remove.

Runs inside a lab. Deep3 and Deep4 are against a real nfs-ganesha; Kernel3 and Kernel4 need --kernel
nfsd. LAB_LEVELS says how deep the trees of the former are, 100000 by default, 300000 in a long run.
"""
import os
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from cases import CODE, DISK, GIB, LAB, SERVER, STATE, Base, OnServer
from csi_client import capability
from driver import FEW_IN_GUEST, Driver
from servers import Image, KernelServer, wait_for

MEMORY_KIB = 15 << 10  # 8 MiB are usual; 160 bytes for each of 50000 levels would be too many
MOVED_FILES = 20000 if harness.LONG else 8000
LEVELS = int(os.environ.get("LAB_LEVELS", 300000 if harness.LONG else 50000))
DIG = """
import os, sys
os.chdir(sys.argv[1])
for i in range(int(sys.argv[2])):
    os.mkdir("d")
    os.chdir("d")
with open("bottom", "w") as f:
    f.write("x")
"""


def dig(path, levels):
    """Nest directories deeper than any path can be. In a process of its own: it goes there."""
    subprocess.run([sys.executable, "-c", DIG, path, str(levels)], check=True)


def peak_kib(driver):
    """The most resident memory that the process has had."""
    with open("/proc/%d/status" % driver.process.pid, encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))


class Trash:
    """Looks into the trash of self.folder."""

    @property
    def trash(self):
        return os.path.join(self.folder, STATE, "trash")

    def entries(self):
        return sorted(os.listdir(self.trash)) if os.path.isdir(self.trash) else []

    def is_purged(self, left=0):
        """Waits as long as something becomes less, or the driver says so in its log."""
        state, since = None, time.monotonic()
        while len(self.entries()) > left:
            now = self.entries(), os.path.getsize(self.driver.log)
            if now != state:
                state, since = now, time.monotonic()
            if time.monotonic() - since > 60:
                break
            time.sleep(0.2)
        self.assertEqual(len(self.entries()), left, self.driver.tail())

    def said(self, *words):
        """The lines of the log that hold these words."""
        with open(self.driver.log, encoding="utf-8", errors="replace") as f:
            return [line for line in f if all(word in line for word in words)]


class Deep(Trash, OnServer):
    """Mixed into a case beside Base, for each version."""

    @property
    def folder(self):
        return self.share

    def test_levels(self):
        volume_id = self.create("deep").volume_id
        with self.server_down():
            dig(self.path("deep"), LEVELS)
        self.restart()
        self.delete(volume_id)
        self.is_purged()
        self.assertLess(peak_kib(self.driver), MEMORY_KIB)

    def hold(self, path, seconds):
        """Do what a deletion does that was paused for long, moves a directory, and is killed."""
        key = path.replace("%", "%25").replace("/", "%2F")
        name = "%s.%x.1.h0" % (key, time.time_ns() - seconds * 10 ** 9)
        os.rename(self.path(path), os.path.join(self.trash, name))
        return name

    def test_taken_from_volumes(self):
        """What a volume misses is put back from the trash, and what nobody misses stays a day."""
        ids = [self.create("plain").volume_id,
               self.create("nested", subDir="team/in 100%/nested").volume_id]
        paths = ["plain", "team/in 100%/nested"]
        with self.server_down():
            for path in [*paths, "foreign"]:
                os.makedirs(self.path(path), exist_ok=True)
                with open(self.path(path, "file"), "w", encoding="ascii") as file:
                    file.write(path)
            for path in paths:
                self.hold(path, 120)
            stays = self.hold("foreign", 7200)
            os.makedirs(self.path("foreign"))
            self.hold("foreign", 90000)
        self.restart()
        self.create("next")
        self.assertTrue(wait_for(lambda: self.entries() == [stays], 60), self.driver.tail())
        for path in paths:
            with open(self.path(path, "file"), encoding="ascii") as file:
                self.assertEqual(file.read(), path)
            words = ("has been put back", "directory=", path)
            wait_for(lambda: self.said(*words), 30)  # written after the rename
            self.assertEqual(len(self.said(*words)), 1, self.driver.tail())
        for volume_id in ids:
            self.delete(volume_id)
        self.is_purged(1)
        with self.server_down():
            servers.run("rm", "-rf", os.path.join(self.trash, stays))

    def test_levels_of_a_stranger_to_root(self):
        """Who is not root needs the modes of all that is moved, too."""
        share = self.path("squashed")
        os.makedirs(share)
        os.chown(share, 1234, 1234)
        volume_id = self.create("deep", share=share, uid="1234", gid="1234").volume_id
        with self.server_down():
            dig(os.path.join(share, "deep"), 1000)
            servers.run("chown", "-R", "1234:1234", os.path.join(share, "deep"))
            servers.run("find", os.path.join(share, "deep"), "-mindepth", "1", "-depth",
                        "-type", "d", "-exec", "chmod", "0", "{}", "+")
        self.delete(volume_id)
        trash = os.path.join(share, STATE, "trash")
        self.assertTrue(wait_for(lambda: not os.listdir(trash), 60), self.driver.tail())
        servers.run("rm", "-rf", share)


class Deep3(Deep, Base, unittest.TestCase):
    protocols = "3"
    version = "3"


class Deep4(Deep, Base, unittest.TestCase):
    protocols = "4"
    version = "4"


class Kernel(Trash):
    """On Linux's own server, whose export shows what is mounted in it: a mix-in beside Base."""

    version = None

    @classmethod
    def setUpClass(cls):
        cls.image = Image(os.path.join(DISK, cls.__name__), 400,
                          "mkfs.ext4", "-q", "-F", "-N", "60000")
        cls.image.mount()
        cls.folder = cls.image.path
        cls.share = cls.folder if cls.version == "3" else "/"
        cls.server = KernelServer(
            cls.folder, "rw,no_root_squash,insecure,fsid=0,no_subtree_check,crossmnt").start()

    @classmethod
    def tearDownClass(cls):
        cls.server.done()
        cls.image.unmount()

    def setUp(self):
        name = self.id().rsplit(".", 1)[1]
        self.start(type(self).__name__ + "." + name)

    def start(self, name, *options):
        self.driver = Driver(LAB, *options, name=name, workers=FEW_IN_GUEST).start()
        self.addCleanup(self.driver.stop)

    def create(self, name):
        return self.driver.client.CreateVolume(
            name=name, volume_capabilities=[capability(flags=["vers=" + self.version])],
            parameters={"server": SERVER, "share": self.share}, secrets=self.secrets,
            capacity_range={"required_bytes": GIB}).volume.volume_id

    @property
    def secrets(self):
        return {"mountOptions": "vers=" + self.version}

    def delete(self, volume_id):
        self.driver.client.DeleteVolume(volume_id=volume_id, secrets=self.secrets)

    def put(self, *parts):
        path = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as f:
            f.write("x")
        return path

    def inner(self, *parts):
        """A file system mounted there, with a file in it that has to stay."""
        path = os.path.join(self.folder, *parts)
        image = Image(path, 8, "mkfs.ext4", "-q", "-F")
        image.file = os.path.join(LAB, type(self).__name__ + ".inner")
        image.mount()
        os.mkdir(os.path.join(path, "folder"))
        with open(os.path.join(path, "folder", "canary"), "w", encoding="ascii") as f:
            f.write("alive")
        return image

    @staticmethod
    def mounted_at(image):
        """Where it is now: it moves with the directories above it."""
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            lines = [line.split() for line in f]
        loops = servers.run("losetup", "-n", "-O", "NAME", "-j", image.file).stdout.split()
        return [words[4] for words in lines if words[words.index("-") + 2] in loops][0]

    def end(self, image):
        """Unmount it, which the server may delay: it holds what it shows until its cache is
        flushed. While it asks mountd about a path, that too; and if a directory of the path is
        renamed before mountd answers, as deletions do, the answer is refused, and Linux forgets
        the question after CACHE_NEW_EXPIRY, 120 s."""
        path = self.mounted_at(image)

        def is_unmounted():
            servers.run("exportfs", "-f")
            return servers.run("umount", path, check=False).returncode == 0

        self.assertTrue(wait_for(is_unmounted, 180, 1))
        os.unlink(image.file)

    def lives(self, image):
        with open(os.path.join(self.mounted_at(image), "folder", "canary"), encoding="ascii") as f:
            self.assertEqual(f.read(), "alive")

    def left(self):
        """What is in the trash without what is mounted there."""
        return sorted(servers.run("find", self.trash, "-xdev", "-mindepth", "2", "-printf",
                                  "%P\n").stdout.split())

    def test_border(self):
        volume_id = self.create("outer")
        for i in range(200):
            self.put("outer", "folder-%d" % (i % 10), "in", "file-%d" % i)
        image = self.inner("outer", "folder-3", "in", "mounted")
        try:
            self.delete(volume_id)
            other = self.create("other")
            self.put("other", "file")
            self.delete(other)
            words = "stays in the trash", "folder-3/in/mounted", "unmount"
            self.assertTrue(wait_for(lambda: self.said(*words), 60), self.driver.tail())
            self.is_purged(1)
            root = self.entries()[0]
            self.assertEqual(self.left(), [root + "/folder-3", root + "/folder-3/in",
                                           root + "/folder-3/in/mounted"])
            self.lives(image)
            # Another look at the trash is another purge, and has nothing new to say.
            third = self.create("third")
            self.put("third", "file")
            self.delete(third)
            self.is_purged(1)
            self.lives(image)
            self.assertEqual(len(self.said("stays in the trash")), 1, self.driver.tail())
            self.assertEqual(self.said("failed"), [])
        finally:
            self.end(image)
        self.driver.restart()
        self.create("again")
        self.is_purged()

    def test_border_within_the_call(self):
        self.driver.stop()
        self.start(self.id() + ".inline", "--delete-mode=inline")
        volume_id = self.create("outer")
        self.put("outer", "folder", "file")
        image = self.inner("outer", "mounted")
        try:
            for _ in range(2):
                self.fails(CODE.FAILED_PRECONDITION, self.driver.client.DeleteVolume, "mounted",
                           "unmount", volume_id=volume_id, secrets=self.secrets)
                self.lives(image)
            self.assertEqual([os.path.basename(name) for name in self.left()], ["mounted"])
        finally:
            self.end(image)
        self.delete(volume_id)
        self.assertEqual(self.entries(), [])

    def test_mounted_volume(self):
        """The volume itself is the border: nothing of it is touched."""
        volume_id = self.create("outer")
        image = self.inner("outer")
        try:
            self.fails((CODE.FAILED_PRECONDITION, CODE.PERMISSION_DENIED, CODE.ABORTED,
                        CODE.UNAVAILABLE, CODE.INTERNAL),
                       self.driver.client.DeleteVolume, volume_id=volume_id, secrets=self.secrets)
            self.lives(image)
        finally:
            self.end(image)
        self.delete(volume_id)
        self.is_purged()

    def test_undeletable_in_front(self):
        """300 that cannot be removed beside 700 that can, which are more than one look takes."""
        self.create("first")
        self.driver.stop()
        held = [self.put(STATE, "trash", "held-%d.1.2.3" % i, "file") for i in range(300)]
        servers.run("chattr", "+i", *held)
        try:
            for i in range(700):
                self.put(STATE, "trash", "gone-%d.1.2.3" % i, "file")
            self.driver.start()
            self.create("second")
            self.assertTrue(wait_for(lambda: len(self.entries()) <= 300, 60), len(self.entries()))
            self.assertEqual([n for n in self.entries() if n.startswith("gone")], [])
            self.assertTrue(wait_for(lambda: self.said("will be tried again", "failed=300"), 30),
                            self.driver.tail())
        finally:
            servers.run("chattr", "-i", *held)
        self.driver.restart()
        self.create("third")
        self.is_purged()

    def test_levels(self):
        volume_id = self.create("deep")
        dig(os.path.join(self.folder, "deep"), 3000)
        self.delete(volume_id)
        self.is_purged()

    def test_moved_out(self):
        """Who is quick enough to move something out of the trash keeps it."""
        volume_id = self.create("deep")
        for i in range(MOVED_FILES):
            self.put("deep", "kept" if i % 2 else "gone", "%d" % (i // 2 % 100), "%d" % i)
        rescued = os.path.join(self.folder, "rescued")
        self.delete(volume_id)
        wait_for(self.entries, 10, 0.001)
        root = os.path.join(self.trash, self.entries()[0])
        # Not before the purge is at work in it.
        self.assertTrue(wait_for(lambda: sum(len(os.listdir(os.path.join(root, name)))
                                             for name in os.listdir(root)) < 200, 60, 0.001))
        os.rename(root, rescued)
        try:
            time.sleep(5)
            before = servers.run("find", rescued).stdout.count("\n")
            self.assertGreater(before, 100, "the machine was too slow for this test")
            time.sleep(5)
            self.assertEqual(servers.run("find", rescued).stdout.count("\n"), before)
            self.is_purged()
        finally:
            servers.run("rm", "-rf", rescued)


class Kernel3(Kernel, Base, unittest.TestCase):
    version = "3"


class Kernel4(Kernel, Base, unittest.TestCase):
    version = "4"


if __name__ == "__main__":
    harness.main("purge")
