# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What an NFSv4.2 server does by itself: shared blocks (CLONE), copies (COPY) and holes (SEEK), of
the kernel's own server with 4.2 alone, on XFS and ext4. Runs inside a lab with --kernel nfsd
--kernel xfs.
"""
import collections
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import trees
from cases import DISK, LAB, SERVER, STATE, Base
from csi_client import capability
from driver import FEW_IN_GUEST, Driver, binary
from rpc_proxy import Proxy, Rule
from servers import Image, KernelServer, wait_for

MIB = 1 << 20
LARGE = (48 if harness.LONG else 24) * MIB
MANY = 300 if harness.LONG else 120
HUGE = 1 << 40


class OnImage(Base):
    """A driver, and the kernel's server with a file system of its own."""

    mkfs = ("mkfs.ext4", "-q", "-F")
    size_mb = 700
    options = "rw,no_root_squash,insecure,fsid=0,no_subtree_check"
    without = ("3", "4.0", "4.1")
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.image = cls.new_image().mount()
        cls.addClassCleanup(cls.image.unmount)
        cls.server = KernelServer(cls.image.path, cls.options, cls.without).start()
        cls.addClassCleanup(cls.server.done)
        cls.driver = Driver(LAB, name=cls.__name__, workers=FEW_IN_GUEST).start()
        cls.addClassCleanup(cls.driver.stop)

    @classmethod
    def new_image(cls):
        return Image(os.path.join(DISK, cls.__name__), cls.size_mb, *cls.mkfs)

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.flags)}

    def path(self, *parts):
        return os.path.join(self.image.path, *parts)

    def create(self, name, owner=None, **more):
        ids = {"uid": owner, "gid": owner} if owner else {}
        return self.driver.client.CreateVolume(
            name=name, volume_capabilities=[capability(flags=list(self.flags))], timeout=120,
            parameters={"server": SERVER, "share": "/", **ids}, secrets=self.secrets,
            capacity_range={"required_bytes": MIB}, **more).volume.volume_id

    def clone(self, name, volume_id, owner=None):
        return self.create(name, owner,
                           volume_content_source={"volume": {"volume_id": volume_id}})

    def same(self, a, b):
        self.assertEqual(trees.differences(trees.survey(self.path(a)),
                                           trees.survey(self.path(b))), [])

    def delete(self, *volume_ids):
        """Delete the volumes and wait for the purger: it takes the files with which the next copy
        tries CLONE and COPY, too, and that tries once more then."""
        for volume_id in volume_ids:
            self.driver.client.DeleteVolume(volume_id=volume_id, secrets=self.secrets)
        trash = self.path(STATE, "trash")
        self.assertTrue(wait_for(lambda: not os.path.exists(trash) or not os.listdir(trash), 60))


class Offload:
    """Cases that run once for each file system."""

    shares = False  # blocks between files

    def used(self, *parts):
        """Bytes on the disk: of a path, or of the file system."""
        subprocess.run(["sync"], check=True)
        if parts:
            words = subprocess.run(["du", "-s", "-B1", self.path(*parts)], check=True,
                                   stdout=subprocess.PIPE, text=True).stdout.split()
            return int(words[0])
        space = os.statvfs(self.image.path)
        return (space.f_blocks - space.f_bfree) * space.f_frsize

    def test_large_files(self):
        source = self.create("large")
        for i in range(2):
            os.mkdir(self.path("large", "d%d" % i))
            trees.write(self.path("large", "d%d" % i, "file"), os.urandom(LARGE))
        trees.write(self.path("large", "odd"), os.urandom(3 * MIB + 17), 0o4755)
        before = self.used()
        copy = self.clone("copy", source)
        self.same("large", "copy")
        grown = self.used() - before
        if self.shares:
            self.assertLess(grown, LARGE)
        else:
            self.assertGreater(grown, LARGE)
        self.delete(source, copy)

    def test_snapshot_tree(self):
        """A snapshot and its restore move no data where files share blocks."""
        source = self.create("large")
        trees.write(self.path("large", "file"), os.urandom(LARGE))
        trees.write(self.path("large", "odd"), os.urandom(3 * MIB + 17), 0o4755)
        before = self.used()
        snapshot = self.driver.client.CreateSnapshot(
            name="snapshot", source_volume_id=source, secrets=self.secrets, timeout=120,
            parameters={"format": "tree"}).snapshot.snapshot_id
        restored = self.create("restored", volume_content_source={
            "snapshot": {"snapshot_id": snapshot}})
        grown = self.used() - before
        self.same("large", os.path.join("snapshot", "large.tree"))
        self.same("large", "restored")
        if self.shares:
            self.assertLess(grown, LARGE // 2)
        else:
            self.assertGreater(grown, LARGE)
        self.driver.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        self.same("large", "restored")
        self.delete(source, restored)

    def test_holes(self):
        source = self.create("holes")
        with open(self.path("holes", "huge"), "wb") as f:
            f.truncate(HUGE)
            for place in (0, HUGE // 3, HUGE - 2 * MIB):
                f.seek(place)
                f.write(os.urandom(MIB))
        with open(self.path("holes", "nothing"), "wb") as f:
            f.truncate(HUGE)
        copy = self.clone("copy", source)
        for name in ("huge", "nothing"):
            self.assertEqual(os.path.getsize(self.path("copy", name)), HUGE)
        self.assertLess(self.used("copy"), 16 * MIB)
        with open(self.path("holes", "huge"), "rb") as a, open(self.path("copy", "huge"),
                                                               "rb") as b:
            for place in (0, HUGE // 3, HUGE - 2 * MIB):
                a.seek(place)
                b.seek(place)
                self.assertEqual(a.read(2 * MIB), b.read(2 * MIB))
        self.delete(source, copy)

    def test_all_kinds(self):
        """Everything that a tree may have, and an archive of it."""
        source = self.create("kinds")
        trees.make(self.path("kinds"), depth=20, many=MANY)
        copy = self.clone("copy", source)
        self.same("kinds", "copy")
        snapshot = self.driver.client.CreateSnapshot(
            name="snapshot", source_volume_id=source, secrets=self.secrets,
            timeout=120).snapshot.snapshot_id
        restored = self.create("restored", volume_content_source={
            "snapshot": {"snapshot_id": snapshot}})
        self.assertEqual(trees.differences(trees.survey(self.path("kinds")),
                                           trees.survey(self.path("restored")), sockets=False), [])
        self.driver.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        self.delete(source, copy, restored)


class OnXfs(Offload, OnImage):
    mkfs = ("mkfs.xfs", "-q", "-f")
    shares = True


class OnExt4(Offload, OnImage):
    pass


class Squashed(OnImage):
    """Root is nobody, so each volume is made by its owner."""

    mkfs = ("mkfs.xfs", "-q", "-f")
    options = "rw,root_squash,insecure,fsid=0,no_subtree_check"

    def test_owner_who_may_not_read_the_source(self):
        """CLONE and COPY open both files with the identity of the new volume."""
        os.chmod(self.image.path, 0o777)
        source = self.create("private", owner="1000")
        path = self.path("private", "file")
        with open(path, "wb") as f:
            f.write(os.urandom(9 * MIB))
        os.chown(path, 1000, 1000)
        os.chmod(path, 0o600)
        self.clone("given", source, owner="2000")
        copy = self.path("given", "file")
        subprocess.run(["cmp", path, copy], check=True)
        self.assertEqual((os.stat(copy).st_uid, os.stat(copy).st_mode & 0o7777), (2000, 0o600))


class Proxied(OnImage):
    """Everything goes through a proxy."""

    flags = property(lambda self: ["port=%d" % self.proxy.port])

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.proxy = Proxy(cls.server.port).start()
        cls.addClassCleanup(cls.proxy.stop)


class Asynchronous(Proxied):
    """A server that copies only asynchronously, and does not tell the end: older Linux servers,
    behind a proxy that refuses what is synchronous."""

    size_mb = 400

    def copy(self, *rules):
        """Copy large files under these rules. Return how often each call came."""
        source = self.create("source")
        os.mkdir(self.path("source", "d"))
        trees.write(self.path("source", "d", "file"), os.urandom(LARGE))
        trees.write(self.path("source", "odd"), os.urandom(3 * MIB + 17), 0o4755)
        calls = collections.Counter()
        refusal = Rule("COPY", 1, "status OFFLOAD_NO_REQS")
        self.proxy.begin((refusal,) + rules, on_call=lambda call: calls.update([call.name]))
        copy = self.clone("copy", source)
        self.proxy.end()
        self.same("source", "copy")
        self.assertEqual(refusal.hits, 1)
        self.delete(copy, source)
        return calls

    def test_end_is_not_told(self):
        calls = self.copy()
        self.assertEqual(calls["COPY"], 2)
        self.assertGreater(calls["OFFLOAD_STATUS"], 0)
        self.assertEqual(calls["OFFLOAD_CANCEL"], 1)
        self.assertGreater(calls["WRITE"], LARGE >> 18)

    def test_no_status(self):
        calls = self.copy(Rule("OFFLOAD_STATUS", 1, "status NOTSUPP"))
        self.assertEqual((calls["COPY"], calls["OFFLOAD_STATUS"]), (2, 1))
        self.assertEqual(calls["OFFLOAD_CANCEL"], 1)
        self.assertGreater(calls["WRITE"], LARGE >> 18)

    def test_connection_is_lost(self):
        """The call starts over, and the copy of the first attempt reaches no file of the second."""
        calls = self.copy(Rule("OFFLOAD_STATUS", 1, "cut-after"))
        self.assertGreater(calls["OFFLOAD_STATUS"], 0)

    def test_check_says_so(self):
        self.proxy.begin([Rule("COPY", 1, "status OFFLOAD_NO_REQS")])
        got = subprocess.run(
            [binary(), "check", "--server", SERVER, "--share", "/",
             "--mount-options", "vers=4.2," + self.flags[0]],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
        self.proxy.end()
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        self.assertIn(", asynchronous COPY, ", got.stdout)


class Tmpfs:
    """A file system without shared blocks, as servers.Image."""

    def __init__(self, path):
        self.path = path

    def mount(self):
        os.makedirs(self.path, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.path], check=True)
        return self

    def unmount(self):
        subprocess.run(["umount", self.path], check=True)


def xattrs_work(path):
    try:
        os.setxattr(path, "user.any", b"value")
    except OSError:
        return False
    return True


class ChosenForCopy(Proxied):
    """With all versions there, none in the mount options, and no shared blocks, the server copies
    large files."""

    without = ()

    @classmethod
    def new_image(cls):
        return Tmpfs(os.path.join(DISK, cls.__name__))

    def test_sizes(self):
        has_xattrs = xattrs_work(self.path())  # since Linux 6.6: all goes over 4.2
        for size, copies in ((24 * MIB, True), (3000, False)):
            with self.subTest(size=size):
                source = self.create("source")
                trees.write(self.path("source", "file"), os.urandom(size))
                calls = collections.Counter()
                self.proxy.begin(on_call=lambda call, calls=calls: calls.update(
                    [call.name] if call.version == 4 else ["version 3"]))
                copy = self.clone("copy", source)
                self.proxy.end()
                self.same("source", "copy")
                self.assertEqual(calls["COPY"] > 1, copies, calls)  # one may be a try
                self.assertEqual(calls["version 3"] > 0, not copies and not has_xattrs, calls)
                self.delete(copy, source)


class Chosen(Offload, OnImage):
    """With all versions there, and none in the mount options: by what the tree is of."""

    mkfs = ("mkfs.xfs", "-q", "-f")
    shares = True
    without = ()


if __name__ == "__main__":
    harness.main("copies on the server")
