# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Clones and snapshots of volumes that are written to meanwhile, and of servers that forget their
handles for a moment: what is answered OK is whole.

Runs inside a lab (Kernel: with --kernel nfs and nfsd), with CSI_NFS naming the driver.
"""
import contextlib
import os
import random
import shutil
import sys
import threading
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from cases import CODE, DISK, LAB, SERVER, Base, OnServer
from driver import Driver
from servers import Export, Image, KernelServer

BUSY = (CODE.ABORTED, CODE.UNAVAILABLE)
BLOCK = 4096


class Live:
    """What a copy of a volume promises that somebody works in: mixed in beside OnServer."""

    megabytes = 100 if harness.LONG else 50
    asking = False  # a call is under way
    met = 0  # times that what goes on meanwhile fell into a call

    def copies(self, name, volume_id):
        """A clone and what is restored from a snapshot, one after the other: where they are."""
        yield "clone", self.until_ok(lambda: self.client.CreateVolume(
            volume_content_source={"volume": {"volume_id": volume_id}},
            **self.request("clone-" + name, share=self.other)))
        self.delete(self.volume_id("clone-" + name, share=self.other))
        snapshot = self.until_ok(lambda: self.client.CreateSnapshot(
            name="snap-" + name, source_volume_id=volume_id, parameters={"compression": "none"},
            secrets=self.secrets)).snapshot.snapshot_id
        yield "restore", self.until_ok(lambda: self.client.CreateVolume(
            volume_content_source={"snapshot": {"snapshot_id": snapshot}},
            **self.request("restore-" + name, share=self.other)))
        self.delete(self.volume_id("restore-" + name, share=self.other))
        self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)

    def until_ok(self, call, seconds=200):
        """The answer, when it comes: as a CO asks again."""
        end = time.monotonic() + seconds
        while True:
            self.asking = True
            try:
                return call()
            except grpc.RpcError as e:
                self.assertIn(e.code(), BUSY + (CODE.DEADLINE_EXCEEDED,), e.details())
                self.assertLess(time.monotonic(), end, e.details())
            finally:
                self.asking = False
            time.sleep(0.2)

    @contextlib.contextmanager
    def meanwhile(self, work, *words):
        """Calls work(stop, ...) in a thread of its own."""
        stop = threading.Event()
        failed = []

        def run():
            try:
                work(stop, *words)
            except Exception as e:  # pylint: disable=broad-except
                failed.append(e)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        self.assertEqual(failed, [])

    def write_version(self, path, byte):
        with open(path, "wb") as f:
            for _ in range(self.megabytes):
                f.write(bytes([byte]) * (1 << 20))

    def replace(self, stop, folder):
        """Whole versions, each of one byte: at each moment the name is that of one of them."""
        for n in range(8):
            self.write_version(os.path.join(folder, "..", "new"), ord("b") + n)
            os.rename(os.path.join(folder, "..", "new"), os.path.join(folder, "file"))
            self.met += self.asking
            if stop.wait(random.uniform(0.1, 1.0)):
                return

    def worked_in(self, name):
        """Where those who work in the volume find it."""
        return self.path(name)

    def is_version(self, what, path):
        with open(path, "rb") as f:
            first = f.read(1 << 20)
            self.assertEqual(first, first[:1] * (1 << 20), what + ": several versions at the start")
            for n in range(1, self.megabytes):
                self.assertEqual(f.read(1 << 20), first,
                                 "%s: another version at %d MiB" % (what, n))
            self.assertEqual(f.read(1), b"", what + ": longer than any version")

    def test_replaced_by_rename(self):
        volume = self.create("replaced").volume_id
        folder = self.worked_in("replaced")
        self.write_version(os.path.join(folder, "file"), ord("a"))
        for _ in range(20):
            with self.meanwhile(self.replace, folder):
                for what, _ in self.copies("replaced", volume):
                    self.is_version(what, os.path.join(self.other, what + "-replaced", "file"))
            if self.met > 0:
                break
        self.assertGreater(self.met, 0)
        self.delete(volume)

    @staticmethod
    def block(offset, generation):
        return (b"%012d %08d\n" % (offset, generation)) * (BLOCK // 22) + b"." * (BLOCK % 22)

    def overwrite(self, stop, path):
        """All blocks anew, in any order, generation by generation."""
        generation = 0
        with open(path, "r+b", buffering=0) as f:
            while not stop.is_set():
                generation += 1
                self.generation = generation  # before anything of it is written
                for _ in range(500):
                    offset = random.randrange(self.megabytes << 20) // BLOCK * BLOCK
                    f.seek(offset)
                    f.write(self.block(offset, generation))
                time.sleep(0.02)

    def is_of_blocks(self, got, offset):
        """Whether each byte is that of a generation so far. A reader on the server's disk may get
        the head of a block and the tail of the one before: ext4 does not lock pages for reads."""
        digits = [set() for _ in range(8)]
        for generation in range(self.generation + 1):
            for at, digit in enumerate(b"%08d" % generation):
                digits[at].add(digit)
        wanted = self.block(offset, 0)
        last = len(wanted) - BLOCK % 22
        return len(got) == len(wanted) and all(
            byte in digits[at % 22 - 13] if at < last and 13 <= at % 22 < 21 else byte == wanted[at]
            for at, byte in enumerate(got))

    def is_written_in_place(self, what, path):
        """Each byte is one that stood there."""
        with open(path, "rb") as f:
            for offset in range(0, self.megabytes << 20, BLOCK):
                got = f.read(BLOCK)
                if not got[13:21].isdigit() or got != self.block(offset, int(got[13:21])):
                    self.assertTrue(self.is_of_blocks(got, offset),
                                    "%s: no block of the file at %d: %r" % (what, offset, got))
            self.assertEqual(f.read(1), b"", what + ": it is longer")

    def test_written_in_place(self):
        volume = self.create("written").volume_id
        path = os.path.join(self.worked_in("written"), "file")
        self.generation = 0
        with open(path, "wb") as f:
            for offset in range(0, self.megabytes << 20, BLOCK):
                f.write(self.block(offset, 0))
        with self.meanwhile(self.overwrite, path):
            for what, _ in self.copies("written", volume):
                self.is_written_in_place(what, os.path.join(self.other, what + "-written", "file"))
        self.delete(volume)


class OnGanesha(Live, OnServer):
    """What nfs-ganesha makes of it, which keeps files open that are read."""

    @classmethod
    def more_exports(cls):
        cls.other = os.path.join(cls.place, "other")
        return [Export(cls.other, cls.protocols)]


class Version3(OnGanesha, Base):
    protocols = "3"


class Version4(OnGanesha, Base):
    protocols = "4"
    version = "4"


class Kernel(Live, Base):
    """Linux's own server, which forgets a file when a client takes its name away."""

    megabytes = 30
    OPTIONS = "rw,no_root_squash,insecure,no_subtree_check,"

    @classmethod
    def setUpClass(cls):
        cls.place = os.path.join(DISK, "live")
        cls.share, cls.other = (os.path.join(cls.place, n) for n in ("share", "other"))
        os.makedirs(cls.other)
        os.makedirs(cls.share)
        cls.server = KernelServer(cls.share, cls.OPTIONS + "fsid=1,crossmnt")
        cls.server.start()
        for fsid, path in ((2, cls.other), (0, cls.place)):  # 0: the root of the version 4 tree
            servers.run("exportfs", "-i", "-o", cls.OPTIONS + "fsid=%d" % fsid, "*:" + path)
        cls.mounted = os.path.join(LAB, "mounted")
        os.makedirs(cls.mounted)
        servers.run("mount", "-t", "nfs", "-o", "vers=3,nolock,actimeo=0,port=2049,tcp,soft",
                    "%s:%s" % (SERVER, cls.share), cls.mounted)
        cls.driver = Driver(LAB, name="live")
        cls.driver.start()

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        servers.run("umount", "--force", "--lazy", cls.mounted)
        cls.server.done()

    client = OnServer.client
    secrets = OnServer.secrets
    request = OnServer.request
    create = OnServer.create
    delete = OnServer.delete
    volume_id = OnServer.volume_id
    path = OnServer.path
    version = "3"

    def setUp(self):
        self.server.flags = lambda version: ["vers=" + version]

    def worked_in(self, name):
        return os.path.join(self.mounted, name)

    def unexport(self, stop):
        """Nothing is known for 0.4 s, again and again."""
        while not stop.wait(random.uniform(0.2, 0.8)):
            servers.run("exportfs", "-u", "*:" + self.share)
            self.met += self.asking
            stop.wait(0.4)
            servers.run("exportfs", "-i", "-o", self.server.options, "*:" + self.share)

    def test_unexported_for_a_moment(self):
        volume = self.create("many").volume_id
        for n in range(3000):
            folder = self.path("many", "%d" % (n % 30), "in")
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "%d" % n), "w", encoding="ascii") as f:
                f.write("contents of %d" % n)
        answers = {}
        for n in range(40):
            if n >= (2 if harness.LONG else 1) and self.met > 0:
                break
            name = "away-%d" % n
            with self.meanwhile(self.unexport):
                self.asking = True
                try:
                    self.client.CreateVolume(  # the deadline is for a hang, not for a slow guest
                        volume_content_source={"volume": {"volume_id": volume}}, timeout=300,
                        **self.request(name, share=self.other))
                    answers[name] = CODE.OK
                except grpc.RpcError as e:
                    self.assertIn(e.code(), BUSY, e.details())
                    answers[name] = e.code()
                self.asking = False
            if answers[name] != CODE.OK:
                self.until_ok(lambda name=name: self.client.CreateVolume(
                    volume_content_source={"volume": {"volume_id": volume}},
                    **self.request(name, share=self.other)))
            found = sum(len(files) for _, _, files in os.walk(os.path.join(self.other, name)))
            self.assertEqual(found, 3000, "%s was answered %s" % (name, answers[name]))
            self.delete(self.volume_id(name, share=self.other))
        self.assertGreater(self.met, 0)
        self.delete(volume)

    @contextlib.contextmanager
    def only_version_4(self):
        """The same server and another driver, which knows nothing of version 3."""
        kernel = ("rpc.nfsd", "--lease-time", "10", "--grace-time", "10")
        self.driver.stop()
        servers.run("rpc.nfsd", "0")
        servers.run(*kernel, "--no-nfs-version", "3", "8")
        with open("/proc/fs/nfsd/v4_end_grace", "w", encoding="ascii") as f:
            f.write("Y")
        self.version = "4"
        self.driver.start()
        try:
            yield
        finally:
            self.driver.stop()
            servers.run("rpc.nfsd", "0")
            servers.run(*kernel, "--nfs-version", "3", "8")
            self.version = "3"
            self.driver.start()

    def shown(self, path):
        """As the server shows it."""
        return path if self.version == "3" else path[len(self.place):]

    def clone_without_what_is_mounted(self):
        name = "copy-" + self.version
        source = self.volume_id("outer", share=self.shown(self.share))
        self.until_ok(lambda: self.client.CreateVolume(
            volume_content_source={"volume": {"volume_id": source}},
            **self.request(name, share=self.shown(self.other))))
        copy = os.path.join(self.other, name)
        self.assertEqual(sorted(os.listdir(copy)), ["beside", "mounted"], name)
        self.assertEqual(os.listdir(os.path.join(copy, "mounted")), [], name)
        told = [line for line in self.driver.tail(50).splitlines() if "Copied" in line]
        self.assertIn("left_out=1", told[-1])
        self.delete(self.volume_id(name, share=self.shown(self.other)))

    def test_mounted_inside(self):
        """What is mounted in the volume is left out, over both versions, and that is said."""
        volume = self.create("outer").volume_id
        inner = Image(self.path("outer", "mounted"), 16, "mkfs.ext4", "-q")
        inner.file = os.path.join(self.place, "inner.image")
        inner.mount()
        try:
            shutil.copy("/etc/passwd", self.path("outer", "beside"))
            shutil.copy("/etc/passwd", self.path("outer", "mounted", "inside"))
            self.clone_without_what_is_mounted()
            with self.only_version_4():
                self.clone_without_what_is_mounted()
        finally:
            servers.run("umount", "--lazy", inner.path)  # the server may have it open for a while
        self.delete(volume)


if __name__ == "__main__":
    harness.main("copies of what is at work")
