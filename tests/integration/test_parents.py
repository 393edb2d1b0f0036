# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The directories above volumes, against a real nfs-ganesha: volumes of one parent that come and go
at once, from one controller and from two; directories that somebody made by hand; parents of
earlier versions of csi-nfs; names that archives find taken; full file systems.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import concurrent.futures
import errno
import os
import sys
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from cases import CODE, DISK, LAB, STATE, Base, OnServer
from csi_client import Client
from driver import Driver
from servers import Export, Image, wait_for

AGAIN = (CODE.ABORTED, CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED)
PATIENCE = 120  # seconds
ROUNDS = 12  # each left the parent behind with four in five chances


class Parents(OnServer):
    """What is common to both protocol versions."""

    def setUp(self):
        self.forget_failed_case(self.share)

    def notes(self):
        try:
            return sorted(os.listdir(self.path(STATE, "parents")))
        except FileNotFoundError:
            return []

    def until_answered(self, call, **fields):
        """Call like a sidecar, until there is an answer that ends it."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return call(**fields)
            except grpc.RpcError as e:
                if e.code() not in AGAIN or time.monotonic() > end:
                    raise
            self.server.revive()
            time.sleep(0.02)

    def come_and_go(self, endpoint, name, times=4):
        """Create and delete a volume in p, some times."""
        client = Client(endpoint)
        try:
            for _ in range(times):
                self.until_answered(client.CreateVolume,
                                    **self.request(name, subDir="p/q/" + name))
                self.until_answered(client.DeleteVolume, secrets=self.secrets,
                                    volume_id=self.volume_id("p/q/" + name, name))
        finally:
            client.close()

    def go_together(self, endpoints):
        for i in range(ROUNDS):
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                calls = [pool.submit(self.come_and_go, endpoints[n % len(endpoints)], "v%d" % n)
                         for n in range(3)]
                for call in calls:
                    call.result()
            self.assertEqual((self.listed(), self.notes()), ([], []), "round %d" % i)

    def test_come_and_go_at_once(self):
        self.go_together([self.driver.endpoint])

    def test_come_and_go_at_two_controllers(self):
        second = Driver(LAB, *self.options, name=type(self).__name__ + "-2").start()
        try:
            self.go_together([self.driver.endpoint, second.endpoint])
        finally:
            second.stop()

    def test_a_parent_that_became_a_volume(self):
        """Its note goes with it, so that a directory that somebody makes there later stays."""
        for policy in ("delete", "archive"):
            with self.subTest(policy=policy):
                inner = self.create("v1", subDir="p/x")
                self.assertEqual(len(self.notes()), 1)
                outer = self.create("v2", subDir="p", onDelete=policy)
                with open(self.path("p/x/file"), "w", encoding="ascii"):
                    pass
                self.delete(inner.volume_id)  # the directory is in the other volume: it stays
                self.assertTrue(os.path.exists(self.path("p/x/file")))
                self.delete(outer.volume_id)
                self.assertFalse(os.path.exists(self.path("p")))
                self.assertEqual(self.notes(), [])
                self.stays_by_hand()
                with self.server_down():
                    servers.run("find", self.share, "-mindepth", "1", "-delete")

    def stays_by_hand(self):
        """An empty directory that somebody makes stays when a volume in it goes."""
        with self.server_down():
            os.mkdir(self.path("p"), 0o2770)
            os.chown(self.path("p"), 4321, 4321)
        self.delete(self.create("w", subDir="p/w").volume_id)
        self.assertEqual(os.stat(self.path("p")).st_uid, 4321)
        self.assertEqual(os.listdir(self.path("p")), [])

    def test_a_parent_that_was_replaced_by_hand(self):
        """The note is about the directory that the driver made, not about its name."""
        first = self.create("v", subDir="p/v")
        with self.server_down():
            servers.run("rm", "-r", self.path("p"))
        self.stays_by_hand()
        self.delete(first.volume_id)
        self.assertEqual(os.stat(self.path("p")).st_uid, 4321)

    def test_a_parent_that_was_removed_by_hand(self):
        volume = self.create("v", subDir="p/q/v")
        self.assertEqual(len(self.notes()), 2)
        with self.server_down():
            servers.run("rm", "-r", self.path("p"))
        self.delete(volume.volume_id)
        self.assertEqual(self.notes(), [])

    def test_a_parent_of_an_earlier_version(self):
        """Its note has the name of the path alone."""
        volume = self.create("v", subDir="p/q/v")
        with self.server_down():
            for name in self.notes():
                os.rename(self.path(STATE, "parents", name),
                          self.path(STATE, "parents", name.split("~")[0]))
        self.assertEqual(self.notes(), ["p", "p%2Fq"])
        second = self.create("w", subDir="p/q/w")
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), ["p"])
        self.delete(second.volume_id)
        self.assertEqual((self.listed(), self.notes()), ([], []))

    def test_file_in_the_place_of_an_archive(self):
        type(self).restart("--remove-archived-volume-path", *self.options)
        for kind in ("file", "link"):
            with self.subTest(kind=kind):
                volume = self.create("x", onDelete="archive")
                with open(self.path("x/data"), "w", encoding="ascii"):
                    pass
                with self.server_down():
                    if kind == "file":
                        with open(self.path("archived-x"), "w", encoding="ascii"):
                            pass
                    else:
                        os.symlink("x", self.path("archived-x"))
                self.delete(volume.volume_id)
                names = self.listed()
                self.assertEqual(len(names), 2, names)
                self.assertEqual(names[0], "archived-x")
                self.assertFalse(os.path.isdir(self.path(names[0])))
                self.assertEqual(os.listdir(self.path(names[1])), ["data"])
                with self.server_down():
                    servers.run("find", self.share, "-mindepth", "1", "-delete")


class OnVersion3(Parents, Base):
    version = "3"


class OnVersion4(Parents, Base):
    version = "4"


class BothVersions(Parents, Base):
    """A parent goes also if the last volume in it is of the other protocol version."""

    test_come_and_go_at_once = None
    test_come_and_go_at_two_controllers = None

    def test_one_after_the_other(self):
        for first, last in (("3", "4"), ("4", "3")):
            with self.subTest(first=first, last=last):
                self.version = first
                made = self.create("v", subDir="p/q/v")
                self.version = last
                other = self.create("w", subDir="p/q/w")
                self.version = first
                self.delete(made.volume_id)
                self.assertEqual(self.listed(), ["p"])
                self.version = last
                self.delete(other.volume_id)
                self.assertEqual((self.listed(), self.notes()), ([], []))


class Full(OnServer, Base):
    """A share on a small file system of its own."""

    @classmethod
    def more_exports(cls):
        cls.small = os.path.join(DISK, cls.__name__, "small")
        return [Export(cls.small, cls.protocols)]

    @classmethod
    def setUpClass(cls):
        cls.small = os.path.join(DISK, cls.__name__, "small")
        cls.image = Image(cls.small, 8, "mkfs.ext4", "-q", "-F", "-N", "64")
        cls.image.mount()
        cls.addClassCleanup(cls.image.unmount)
        super().setUpClass()

    def setUp(self):
        self.forget_failed_case(self.small)

    def fill(self, volume):
        """Make files until there is no inode left. Root may use the last blocks of a file system,
        so it never runs out of those."""
        count = 0
        while os.statvfs(self.small).f_ffree:
            with open(os.path.join(self.small, volume, str(count)), "w", encoding="ascii"):
                count += 1

    def is_purged(self):
        self.assertTrue(wait_for(
            lambda: not os.listdir(os.path.join(self.small, STATE, "trash")), 60))

    def test_first_deletion(self):
        """Nothing has to be made for it."""
        volume = self.create("v", share=self.small)
        self.fill("v")
        self.delete(volume.volume_id)
        self.assertFalse(os.path.exists(os.path.join(self.small, "v")))
        self.is_purged()

    def test_what_to_do(self):
        """A volume of an earlier version: no trash was made for it."""
        volume = self.create("v", share=self.small)
        archived = self.create("a", share=self.small, subDir="in/a", onDelete="archive")
        with self.server_down():
            os.rmdir(os.path.join(self.small, STATE, "trash"))
            self.fill("v")
        for volume_id in (volume.volume_id, archived.volume_id):
            self.fails(CODE.RESOURCE_EXHAUSTED, self.client.DeleteVolume, "free some space",
                       volume_id=volume_id, secrets=self.secrets)
        with self.server_down():
            for name in range(5):
                os.unlink(os.path.join(self.small, "v", str(name)))
        for volume_id in (volume.volume_id, archived.volume_id):
            self.delete(volume_id)
        self.is_purged()


if __name__ == "__main__":
    harness.main("parents")
