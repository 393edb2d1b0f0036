# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Quotas that the server has for directories: project quotas of an XFS, exported by the kernel's
own NFS server, which tells them by FSSTAT and by space_total. (nfs-ganesha tells the space of the
whole file system for each of its directories.) Runs inside a lab with --kernel nfsd --kernel xfs.
"""
import errno
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from cases import CODE, DISK, GIB, LAB, SERVER, STATE, Base
from csi_client import capability
from driver import FEW_IN_GUEST, Driver
from servers import Image, KernelServer

MIB = 1 << 20


class Quota:
    """Cases that run once for each version: mixed into Base below."""

    version = None

    @classmethod
    def setUpClass(cls):
        cls.image = Image(os.path.join(DISK, cls.__name__), 400, "mkfs.xfs", "-q", "-f",
                          options="loop,prjquota")
        try:
            cls.image.mount()
        except servers.NotMounted as e:
            # Without quotas it has to be possible.
            servers.run("mount", "-o", "loop", cls.image.file, cls.image.path)
            cls.image.unmount()
            raise unittest.SkipTest("this kernel has no project quotas on XFS") from e
        cls.projects = 0
        cls.server = KernelServer(cls.image.path).start()
        cls.driver = Driver(LAB, name=cls.__name__, workers=FEW_IN_GUEST).start()

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        cls.server.done()
        cls.image.unmount()

    def setUp(self):
        """A share for each case, since projects stay with their folders."""
        name = self.id().rsplit(".", 1)[1]
        self.folder = os.path.join(self.image.path, name)
        os.mkdir(self.folder)
        # The export is the root of the version 4 tree.
        self.share = self.folder if self.version == "3" else "/" + name

    @property
    def client(self):
        return self.driver.client

    @property
    def flags(self):
        return ["vers=" + self.version]

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.flags)}

    def request(self, name, size=MIB, **parameters):
        return {"name": name, "volume_capabilities": [capability(flags=self.flags)],
                "parameters": dict({"server": SERVER, "share": self.share}, **parameters),
                "capacity_range": {"required_bytes": size}, "secrets": self.secrets}

    def create(self, name, **more):
        return self.client.CreateVolume(**self.request(name, **more)).volume.volume_id

    def delete(self, volume_id):
        self.client.DeleteVolume(volume_id=volume_id, secrets=self.secrets)

    def size(self, volume_id):
        return self.client.ControllerGetVolume(volume_id=volume_id).volume.capacity_bytes

    def request_size(self, volume_id, required, limit=0):
        return {"volume_id": volume_id, "secrets": self.secrets,
                "capacity_range": {"required_bytes": required, "limit_bytes": limit}}

    def expand(self, volume_id, required):
        return self.client.ControllerExpandVolume(
            **self.request_size(volume_id, required)).capacity_bytes

    def is_over(self, volume_id, required, *words):
        """OUT_OF_RANGE, and the volume keeps its size."""
        before = self.records()
        self.fails(CODE.OUT_OF_RANGE, self.client.ControllerExpandVolume, "quota", *words,
                   **self.request_size(volume_id, required))
        self.assertEqual(self.records(), before)

    def records(self):
        """The records, with their texts."""
        volumes = os.path.join(self.folder, STATE, "volumes")
        return {n: os.readlink(os.path.join(volumes, n)) for n in os.listdir(volumes)}

    def new_project(self, *parts):
        """A directory, with what is and comes below it, becomes a project of its own."""
        type(self).projects += 1
        path = os.path.join(self.folder, *parts)
        servers.run("xfs_quota", "-x", "-c", "project -s -p %s %d" % (path, self.projects),
                    self.image.path)
        return self.projects

    def limit(self, project, size):
        """What the project may hold, in bytes; 0: what it wants."""
        servers.run("xfs_quota", "-x", "-c", "limit -p bhard=%d %d" % (size, project),
                    self.image.path)

    def test_of_the_directory(self):
        volume_id = self.create("pv")
        project = self.new_project("pv")
        self.limit(project, 50 * MIB)
        self.assertEqual(self.expand(volume_id, 49 * MIB), 49 * MIB)
        self.assertEqual(self.expand(volume_id, 50 * MIB), 50 * MIB)
        self.is_over(volume_id, 50 * MIB + 1, "'pv'", str(50 * MIB))
        self.is_over(volume_id, GIB)
        self.assertEqual(self.size(volume_id), 50 * MIB)
        self.limit(project, 60 * MIB)
        self.assertEqual(self.expand(volume_id, 60 * MIB), 60 * MIB)
        self.is_over(volume_id, 60 * MIB + 1, str(60 * MIB))
        self.assertEqual(self.size(volume_id), 60 * MIB)

    def test_none(self):
        """A size is a number: without a quota it may be more than the file system has."""
        volume_id = self.create("pv")
        other = self.create("other")
        project = self.new_project("other")
        self.limit(project, 50 * MIB)
        self.assertEqual(self.expand(volume_id, GIB), GIB)
        self.limit(project, 0)
        self.assertEqual(self.expand(other, GIB), GIB)

    def test_below_the_size(self):
        """A quota is no reason to refuse what asks for no more than there is."""
        volume_id = self.create("pv", size=GIB)
        self.limit(self.new_project("pv"), 50 * MIB)
        self.assertEqual(self.expand(volume_id, GIB), GIB)
        self.assertEqual(self.expand(volume_id, MIB), GIB)
        self.is_over(volume_id, GIB + 1)

    def test_of_a_directory_above(self):
        volume_id = self.create("pv", subDir="team/claim")
        self.limit(self.new_project("team"), 50 * MIB)
        self.assertEqual(self.expand(volume_id, 50 * MIB), 50 * MIB)
        self.is_over(volume_id, 50 * MIB + 1, "'team/claim'")
        # What is made in a project belongs to it.
        other = self.create("pv-2", subDir="team/other")
        self.is_over(other, 50 * MIB + 1, "'team/other'")
        self.delete(volume_id)
        self.delete(other)
        self.assertEqual(os.listdir(self.folder), [STATE])

    def test_of_a_volume_without_record(self):
        os.mkdir(os.path.join(self.folder, "peer"))
        self.create("pv")
        self.limit(self.new_project("peer"), 50 * MIB)
        volume_id = "#".join((SERVER, self.share.strip("/"), "peer", "", ""))
        self.is_over(volume_id, 50 * MIB + 1, "'peer'")
        self.assertEqual(self.size(volume_id), 0)
        self.assertEqual(self.expand(volume_id, 50 * MIB), 50 * MIB)
        self.assertEqual(self.size(volume_id), 50 * MIB)

    def fill(self, path):
        """Write to the file until there is no room for a block."""
        with open(path, "wb", buffering=0) as f:
            for size in (65536, 4096):
                try:
                    while True:
                        f.write(b"x" * size)
                        os.fsync(f.fileno())
                except OSError as e:
                    self.assertIn(e.errno, (errno.ENOSPC, errno.EDQUOT))

    def test_used_up(self):
        """The share's own: nothing can be made, and nothing is left."""
        self.delete(self.create("first", subDir="a/first"))
        self.limit(self.new_project(), 2 * MIB)
        before = self.records(), os.listdir(self.folder)
        fill = os.path.join(self.folder, "fill")
        self.fill(fill)
        # More than fits into the inodes of a record and of a directory.
        self.fails(CODE.RESOURCE_EXHAUSTED, self.client.CreateVolume, **self.request(
            "pv", subDir="a/b/c", **{"csi.storage.k8s.io/pvc/name": "n" * 2000}))
        os.unlink(fill)
        self.assertEqual((self.records(), os.listdir(self.folder)), before)
        self.create("pv")

    def test_share_that_becomes_a_project(self):
        """The records of its volumes stay outside: a symbolic link cannot be given a project."""
        volume_id = self.create("pv")
        long = self.create("long", **{"csi.storage.k8s.io/pvc/name": "n" * 2000})
        snapshot = self.client.CreateSnapshot(
            name="snap", source_volume_id=volume_id, secrets=self.secrets).snapshot.snapshot_id
        self.limit(self.new_project(), 50 * MIB)
        self.assertEqual(self.expand(volume_id, 2 * MIB), 2 * MIB)
        self.delete(long)
        self.delete(volume_id)
        self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        self.assertEqual(os.listdir(self.folder), [STATE])
        self.assertEqual(self.records(), {})

    def test_full_share_that_becomes_a_project(self):
        """There is no room to make the records anew either."""
        short = self.create("short")
        long = self.create("long", **{"csi.storage.k8s.io/pvc/name": "n" * 2000})
        with open(os.path.join(self.folder, "fill"), "wb") as f:
            f.write(os.urandom(2 * MIB))
        self.limit(self.new_project(), MIB)
        self.delete(short)
        self.delete(long)
        self.assertEqual(sorted(os.listdir(self.folder)), [STATE, "fill"])
        self.assertEqual(self.records(), {})

    def test_trash_without_room(self):
        """Entries that cannot be purged take all the room of the trash. No block is left for it to
        grow, but volumes can be deleted, which makes room."""
        project = self.new_project()
        volumes = [self.create("volume-with-a-long-name-%d" % i) for i in range(3)]
        for i in range(3):
            with open(os.path.join(self.folder, "volume-with-a-long-name-%d" % i, "data"),
                      "wb") as f:
                f.write(os.urandom(65536))
        self.limit(project, 2 * MIB)
        trash = os.path.join(self.folder, STATE, "trash")
        stuck = []
        while os.stat(trash).st_size < 300:  # XFS has room for 336 bytes in the inode
            name = "stuck-%016d" % len(stuck)
            aside = os.path.join(self.folder, name)
            os.mkdir(aside)
            with open(os.path.join(aside, "file"), "wb"):
                servers.run("chattr", "+i", os.path.join(aside, "file"))
            os.rename(aside, os.path.join(trash, name))
            stuck.append(os.path.join(trash, name, "file"))
        self.addCleanup(servers.run, "chattr", "-i", *stuck)
        self.fill(os.path.join(self.folder, "fill"))
        with self.assertRaises(OSError):
            os.mkdir(os.path.join(trash, "n" * 40))
        for volume_id in volumes:
            self.delete(volume_id)
        self.assertEqual(sorted(os.listdir(self.folder)), [STATE, "fill"])
        self.assertEqual(self.records(), {})

    def test_one_within_the_other(self):
        """A share with a quota and a volume with its own. XFS moves nothing from one to the other,
        not into the trash either: the volume is deleted where it is."""
        os.mkdir(os.path.join(self.folder, STATE))
        self.limit(self.new_project(), 200 * MIB)
        volume_id = self.create("pv")
        self.limit(self.new_project("pv"), 50 * MIB)
        self.is_over(volume_id, 50 * MIB + 1)
        path = os.path.join(self.folder, "pv")
        os.makedirs(os.path.join(path, "deep"))
        with self.assertRaises(OSError) as caught:
            os.rename(path, os.path.join(self.folder, STATE, "pv"))
        self.assertEqual(caught.exception.errno, errno.EXDEV)
        self.delete(volume_id)
        self.assertEqual(os.listdir(self.folder), [STATE])
        self.assertEqual(self.records(), {})

    def test_long_record(self):
        """XFS takes 1,024 bytes in a symbolic link, which is why records have parts."""
        for length in (600, 900, 1200, 3500):
            with self.subTest(length=length):
                volume_id = self.create("pv", **{"csi.storage.k8s.io/pvc/name": "n" * length})
                self.assertEqual(self.expand(volume_id, 2 * MIB), 2 * MIB)
                self.assertEqual(self.size(volume_id), 2 * MIB)
                self.delete(volume_id)
                self.assertEqual(self.records(), {})


class QuotaOnVersion3(Quota, Base):
    version = "3"


class QuotaOnVersion4(Quota, Base):
    version = "4"

    def clone(self, name, source):
        return self.client.CreateVolume(
            volume_content_source={"volume": {"volume_id": source}},
            **self.request(name)).volume.volume_id

    def test_attributes_without_room(self):
        """XFS answers ENOSPC when a project's quota is used up, as ext4 does for an attribute that
        is too large for it. Only a directory shows what the quota leaves."""
        plain = os.path.join(self.image.path, "plain")
        os.mkdir(plain)
        source = self.create("source", share="/plain")
        # One file: XFS makes no other one when so little is left.
        kept = {"user.%d" % i: os.urandom(50000) for i in range(8)}
        path = os.path.join(plain, "source", "file")
        with open(path, "wb"):
            for name, value in kept.items():
                os.setxattr(path, name, value)
        self.delete(self.create("first"))
        self.limit(self.new_project(), 2 * MIB)
        fill = os.path.join(self.folder, "fill")
        self.fill(fill)
        os.truncate(fill, os.stat(fill).st_size - (250 << 10))
        self.fails(CODE.RESOURCE_EXHAUSTED, self.clone, "extended attributes", name="later",
                   source=source)
        os.unlink(fill)
        servers.run("sync", "-f", self.folder)  # XFS frees blocks later
        copy = self.clone("later", source)
        path = os.path.join(self.folder, "later", "file")
        self.assertEqual({name: os.getxattr(path, name) for name in os.listxattr(path)}, kept)
        self.delete(source)
        self.delete(copy)


if __name__ == "__main__":
    harness.main("quotas of the kernel's server")
