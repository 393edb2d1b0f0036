# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Clones and volumes restored from snapshots, against a real nfs-ganesha: that everything of the
source is in them, that nobody sees one half made, and what is left when the driver, the disk or the
files give way.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import concurrent.futures
import contextlib
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
import trees
from cases import CODE, DISK, GIB, LAB, SERVER, STATE, Base
from copies import FAR_SERVER, SUFFIXES, Chosen, Trees
from csi_client import Client
from servers import Export, Ganesha, Image, wait_for

REPORT_S = 10  # between two lines about what is being copied


class Content(Trees):
    """Everything of the source is in the copy, and nobody sees a copy that is not complete."""

    @classmethod
    def plant(cls):
        super().plant()
        trees.make(os.path.join(cls.share, "full"), many=3000 if harness.LONG else 1500)

    def test_mode_of_a_clone(self):
        """A clone has just the mode that its class asks for, whatever bits its source has."""
        source = self.create("moded", mountPermissions="2770").volume_id
        for mode in ("0700", "1777"):
            volume = self.clone("copy", source, mountPermissions=mode)
            self.assertEqual(os.stat(self.path("copy")).st_mode & 0o7777, int(mode, 8))
            self.delete(volume.volume_id)
        self.delete(source)

    def test_clone(self):
        source = self.source("full")
        volume = self.clone("clone", source)
        self.assertEqual(volume.volume_id, self.volume_id("clone"))
        self.assertEqual(volume.content_source.volume.volume_id, source,
                         "the answer does not tell its source")
        self.assertEqual(volume.capacity_bytes, GIB)
        self.is_copy("full", "clone")
        taken = os.stat(os.path.join(os.fsencode(self.path("clone")), trees.SPARSE)).st_blocks * 512
        self.assertLess(taken, trees.SPARSE_MAX, "the holes of a sparse file are filled")
        self.is_copy("full", "full", root=True)  # the source is as it was
        self.assertGreater(self.said("Copied", "clone")["files"], 20)
        self.delete(volume.volume_id)

    def test_clone_into_another_share(self):
        source = self.source("small")
        for row, share, more in (("of the same server", self.other, {}),
                                 ("of another server", self.far, {"server": FAR_SERVER})):
            with self.subTest(share=row):
                volume = self.clone("away", source, share=share, **more)
                self.assertEqual(volume.volume_id.split("#")[:3],
                                 [more.get("server", SERVER), share.strip("/"), "away"])
                self.is_copy("small", "away", share)
                self.assertEqual(self.listed(share), ["away"])
                again = self.clone("again", volume.volume_id)  # and back
                self.is_copy("small", "again")
                self.delete(again.volume_id)
                self.delete(volume.volume_id)

    def test_clone_into_a_server_on_other_ports(self):
        """Its mount options are those of the call; the source is reached as it was before."""
        source = self.source("small")
        share = os.path.join(self.place, "apart")
        with Ganesha(os.path.join(LAB, self.id()), [Export(share, self.protocols)],
                     protocols=self.protocols) as apart:
            self.server = apart  # for the mount options of what follows
            try:
                volume = self.until_ok(lambda: self.create("known", share=share, server=FAR_SERVER))
                self.delete(volume.volume_id)
                volume = self.clone("away", source, share=share, server=FAR_SERVER)
                self.is_copy("small", "away", share)
                self.delete(volume.volume_id)
                self.is_clean(share)
            finally:
                del self.server

    def test_clone_of_a_clone(self):
        first = self.clone("first", self.source("small")).volume_id
        second = self.clone("second", first).volume_id
        self.delete(first)
        self.is_copy("small", "second")
        self.delete(second)

    def test_clone_with_subdir(self):
        volume = self.clone("nested", self.source("small"), subDir="team/claim")
        self.is_copy("small", "team/claim")
        source = volume.volume_id
        volume = self.clone("of-nested", source)
        self.is_copy("small", "of-nested")
        for volume_id in (volume.volume_id, source):
            self.delete(volume_id)

    def test_clone_of_nothing(self):
        empty = self.create("empty").volume_id
        volume = self.clone("copy", empty)
        self.assertEqual(os.listdir(self.path("copy")), [])
        self.delete(volume.volume_id)
        self.delete(empty)

    def test_share_in_its_source(self):
        """A copy there would hold a copy of itself, and so on."""
        outer = self.create("outer").volume_id
        share = self.path("outer", "inner")
        os.mkdir(share)
        self.fails(CODE.FAILED_PRECONDITION, self.clone, "another share", name="clone",
                   volume_id=outer, share=share)
        for format_ in ("archive", "tree"):
            self.fails(CODE.FAILED_PRECONDITION, self.snap, "another share", name="snap",
                       volume_id=outer, share=share, format=format_)
        self.assertEqual(self.listed(share), [])
        self.assertEqual(self.records(share), [])
        self.delete(outer)

    def test_the_directory_itself(self):
        """Its mode, owner and time: who used the source uses the copy."""
        source = self.source("small")
        snapshot = self.snap("snap", source).snapshot_id
        for make, origin in ((self.clone, source), (self.restore, snapshot)):
            with self.subTest(call=make.__name__):
                volume = make("same", origin)
                wanted, got = self.sources["small"], trees.survey(self.path("same"))
                self.is_same({b".": wanted[b"."]}, {b".": got[b"."]}, "the volume's directory",
                             root=True)
                self.delete(volume.volume_id)
        self.unsnap(snapshot)

    def test_restore(self):
        source = self.source("full")
        snapshot = self.snap("snap", source)
        path = self.archive("snap", "full")
        self.is_archive_of("full", path)
        volume = self.restore("restored", snapshot.snapshot_id)
        self.assertEqual(volume.content_source.snapshot.snapshot_id, snapshot.snapshot_id,
                         "the answer does not tell its source")
        self.is_restored("full", "restored")
        taken = os.stat(os.path.join(os.fsencode(self.path("restored")),
                                     trees.SPARSE)).st_blocks * 512
        self.assertLess(taken, trees.SPARSE_MAX, "the holes of a sparse file are filled")
        self.is_copy("full", "full", root=True)  # the source is as it was
        self.assertEqual(self.archive("snap", "full"), path)
        self.delete(volume.volume_id)
        self.unsnap(snapshot.snapshot_id)

    def test_restore_into_another_share(self):
        snapshot = self.snap("snap", self.source("small")).snapshot_id
        for row, share, more in (("of the same server", self.other, {}),
                                 ("of another server", self.far, {"server": FAR_SERVER})):
            with self.subTest(share=row):
                volume = self.restore("away", snapshot, share=share, **more)
                self.is_restored("small", "away", share)
                self.delete(volume.volume_id)
        self.unsnap(snapshot)

    def test_compressions(self):
        source = self.source("small")
        for compression in SUFFIXES:
            with self.subTest(compression=compression):
                snapshot = self.snap("snap-" + compression, source, compression=compression)
                self.assertTrue(snapshot.ready_to_use)
                path = self.archive(snapshot.snapshot_id.split("#")[2], "small", compression)
                self.is_archive_of("small", path)
                volume = self.restore("restored", snapshot.snapshot_id)
                self.is_restored("small", "restored")
                self.delete(volume.volume_id)
                self.unsnap(snapshot.snapshot_id)

    def test_other_programs_unpack_it(self):
        """Python's tarfile and tar restore what csi-nfs archives."""
        snapshot = self.snap("snap", self.source("small"))
        path = self.archive("snap", "small")
        with tempfile.TemporaryDirectory(dir=self.place) as place:
            for program in ("tarfile", "tar"):
                with self.subTest(program=program):
                    out = os.path.join(place, program)
                    os.mkdir(out)
                    if program == "tar":
                        servers.run("tar", "-C", out, "--numeric-owner", "-xpf", path)
                    else:
                        with trees.unpacked(path) as f, trees.opened(f) as tar:
                            tar.extractall(out, numeric_owner=True)
                    # Python's times are floating-point numbers.
                    self.is_same(self.sources["small"], trees.survey(out), "unpacked by " + program,
                                 sockets=False, precision=1000 if program == "tarfile" else 0)
        self.unsnap(snapshot.snapshot_id)

    def test_sparse_files_in_the_archive(self):
        """As PAX has them, version 1.0 of the three that there are."""
        snapshot = self.snap("snap", self.source("small"), compression="none")
        path = self.archive("snap", "small", "none")
        self.assertLess(os.path.getsize(path), 8 << 20, "the archive holds holes")
        found = {}
        with trees.unpacked(path) as f, trees.opened(f) as tar:
            for info in tar:
                found[trees.clean_name(info.name)] = info.pax_headers
        self.assertIn(trees.SPARSE, found)
        headers = {k: v for k, v in found[trees.SPARSE].items() if k.startswith("GNU.sparse")}
        self.assertEqual((headers.get("GNU.sparse.major"), headers.get("GNU.sparse.minor"),
                          headers.get("GNU.sparse.realsize")),
                         ("1", "0", str(trees.SPARSE_SIZE)), headers)
        self.unsnap(snapshot.snapshot_id)

    # ---- sizes and names ----

    @staticmethod
    def origin_of(make, origin):
        return {"volume_id" if make.__name__ == "clone" else "snapshot_id": origin}

    def each_origin(self, check):
        """Calls check(call, id of the source, id of another source): for what clones and restores
        share."""
        one, two = self.source("plain"), self.create("empty").volume_id
        snapshots = [self.snap("snap-%d" % i, v).snapshot_id for i, v in enumerate((one, two))]
        for make, origins in ((self.clone, (one, two)), (self.restore, snapshots)):
            with self.subTest(call=make.__name__):
                check(make, *origins)
        for snapshot in snapshots:
            self.unsnap(snapshot)
        self.delete(two)

    def test_size(self):
        self.each_origin(self.check_sizes)

    def check_sizes(self, make, origin, _):
        for size, wanted in ((None, GIB), (GIB, GIB), (3 * GIB, 3 * GIB)):
            with self.subTest(size=size):
                volume = make("sized", origin, size=size)
                self.assertEqual(volume.capacity_bytes, wanted)
                shown = self.client.ControllerGetVolume(volume_id=volume.volume_id).volume
                self.assertEqual(shown.capacity_bytes, wanted)
                self.delete(volume.volume_id)
        for size in (1, GIB - 1):
            with self.subTest(size=size):
                self.fails(CODE.OUT_OF_RANGE, make, name="sized", size=size,
                           **self.origin_of(make, origin))
                self.assertFalse(os.path.lexists(self.path("sized")))

    def test_size_that_was_expanded(self):
        source = self.clone("grown", self.source("plain")).volume_id
        self.client.ControllerExpandVolume(volume_id=source, secrets=self.secrets,
                                           capacity_range={"required_bytes": 2 * GIB})
        snapshot = self.snap("snap", source)
        self.assertEqual(snapshot.size_bytes, 2 * GIB)
        for make, origin in ((self.clone, source), (self.restore, snapshot.snapshot_id)):
            with self.subTest(call=make.__name__):
                self.fails(CODE.OUT_OF_RANGE, make, name="v", size=GIB,
                           **self.origin_of(make, origin))
                volume = make("v", origin, size=None)
                self.assertEqual(volume.capacity_bytes, 2 * GIB)
                self.delete(volume.volume_id)
        self.delete(source)
        self.unsnap(snapshot.snapshot_id)

    def test_same_name_again(self):
        self.each_origin(self.check_same_name)

    def check_same_name(self, make, origin, other):
        volume = make("twice", origin)
        self.assertEqual(make("twice", origin), volume, "the same call answers otherwise")
        self.driver.restart()
        self.assertEqual(make("twice", origin), volume, "after a restart of the driver")
        taken = CODE.ALREADY_EXISTS
        self.fails(taken, make, name="twice", **self.origin_of(make, other))
        self.fails(taken, self.client.CreateVolume, **self.request("twice"))
        if make.__name__ == "clone":
            self.fails(taken, self.restore, name="twice",
                       snapshot_id=self.snapshot_id("snap-0", "plain"))
        else:
            self.fails(taken, self.clone, name="twice", volume_id=self.volume_id("plain"))
        self.is_copy("plain", "twice")
        self.delete(volume.volume_id)
        plain = self.create("twice")
        self.fails(taken, make, name="twice", **self.origin_of(make, origin))
        self.assertEqual(os.listdir(self.path("twice")), [])
        self.delete(plain.volume_id)

    def test_no_such_source(self):
        share = self.share.strip("/")
        rows = {self.clone: (self.volume_id("absent"), "%s#%s#absent#v#" % (SERVER, share),
                             "fake-vol-id", "#", "###"),
                self.restore: (self.snapshot_id("absent", "plain"),
                               self.snapshot_id("plain", "plain"), "fake-snapshot", "####",
                               self.snapshot_id("absent", "plain") + "#more", "a#b#c")}
        for make, origins in rows.items():
            for origin in origins:
                with self.subTest(call=make.__name__, source=origin):
                    self.fails(CODE.NOT_FOUND, make, name="never", **self.origin_of(make, origin))
                    self.assertFalse(os.path.lexists(self.path("never")))

    # ---- while it is made ----

    def said(self, message, name):
        """The numbers of a line of the log."""
        lines = re.findall(r'msg="?%s"? what="?%s"? (.*)' % (message, name), self.driver.tail(100))
        self.assertTrue(lines, "the log has no line '%s': %s" % (message, self.driver.tail(20)))
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", lines[-1])}

    def slowed(self, call, name):
        """Return the answer to a call during which the driver runs for a fiftieth of the time,
        until it reports. It must not stop for longer: its NFS calls would be too late."""
        reported = re.compile(r'msg="?Copying"? what="?%s"? ' % name)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            future = self.begins(pool, call)
            while not reported.search(self.driver.tail(100)):
                if future.done():
                    self.fail("it is made too fast for this test: %s" % future.result())
                os.kill(self.driver.process.pid, signal.SIGSTOP)
                time.sleep(0.5)
                os.kill(self.driver.process.pid, signal.SIGCONT)
                time.sleep(0.01)
            return future.result()

    def test_progress(self):
        source = self.source("full")
        rows = (("slow", lambda: self.clone("slow", source, timeout=600)),
                ("snap", lambda: self.snap("snap", source, timeout=600)))
        for name, call in rows:
            with self.subTest(making=name):
                made = self.slowed(call, name)
                copied, copying = self.said("Copied", name), self.said("Copying", name)
                self.assertEqual(copying["all_files"], copied["files"])
                self.assertGreaterEqual(copying["seconds"], REPORT_S)
                self.assertLess(copying["files"], copied["files"])
                # The line may come when next to nothing is left.
                left = 1 - copying["files"] / copied["files"]
                self.assertGreaterEqual(copying["seconds_left"],
                                        int(copying["seconds"] * left / 2))
                if name == "slow":
                    self.assertEqual(copying["all_bytes"], copied["bytes"])
                    self.is_copy("full", name)
                    self.delete(made.volume_id)
                else:
                    self.is_archive_of("full", self.archive(name, "full"))
                    self.unsnap(made.snapshot_id)

    def seen(self, path, wanted, **how):
        """Waits until something is at path, and that must be all of it."""
        self.assertTrue(wait_for(lambda: os.path.lexists(path), 60, 0.002),
                        "it does not go on when the caller has gone")
        self.is_same(wanted, trees.survey(path), "at first sight", **how)

    def begins(self, pool, call):
        """Calls with a short deadline, and waits until the work has begun."""
        future = pool.submit(call)
        self.assertTrue(wait_for(self.at_work, 20, 0.001),
                        "there is nothing in %s/work: %s" % (STATE, future))
        return future

    def late(self, future):
        error = future.exception()
        self.assertIsNotNone(error, "answered OK: the tree is too small for this test")
        self.assertEqual(error.code(), CODE.DEADLINE_EXCEEDED, error.details())

    def test_while_a_clone_is_made(self):
        source = self.source("full")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = self.begins(pool, lambda: self.clone("late", source, timeout=0.3))
            self.assertFalse(os.path.lexists(self.path("late")), "half made, under its name")
            self.fails(CODE.ABORTED, self.clone, name="late", volume_id=source)
            self.fails(CODE.ABORTED, self.client.DeleteVolume, volume_id=source,
                       secrets=self.secrets)
            self.late(first)
        self.seen(self.path("late"), self.sources["full"])
        volume = self.until_ok(lambda: self.clone("late", source))
        self.assertEqual(volume.volume_id, self.volume_id("late"))
        self.is_copy("full", "late")
        self.delete(volume.volume_id)

    def test_while_a_snapshot_and_a_restore_are_made(self):
        source = self.source("full")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = self.begins(pool, lambda: self.snap("late", source, timeout=0.3))
            self.fails(CODE.ABORTED, self.snap, name="late", volume_id=source)
            self.fails(CODE.ABORTED, self.client.DeleteVolume, volume_id=source,
                       secrets=self.secrets)
            self.late(first)
        path = self.path("late", "full.tar.gz")
        self.assertTrue(wait_for(lambda: os.path.lexists(path), 60, 0.002),
                        "it does not go on when the caller has gone")
        self.is_archive_of("full", path)
        snapshot = self.until_ok(lambda: self.snap("late", source)).snapshot_id
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = self.begins(pool, lambda: self.restore("back", snapshot, timeout=0.3))
            self.assertFalse(os.path.lexists(self.path("back")), "half made, under its name")
            self.fails(CODE.ABORTED, self.restore, name="back", snapshot_id=snapshot)
            self.late(first)
        self.seen(self.path("back"), self.sources["full"], sockets=False)
        volume = self.until_ok(lambda: self.restore("back", snapshot))
        self.delete(volume.volume_id)
        self.unsnap(snapshot)

    def test_two_at_once(self):
        source = self.source("small")
        snapshot = self.snap("snap", source).snapshot_id
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            # One more than is made at a time: whichever comes last has to come again.
            def submit(call, *args):
                return pool.submit(self.until_ok, lambda: call(*args))
            futures = [submit(self.clone, "clone-%d" % i, source) for i in range(2)]
            futures += [submit(self.restore, "restored-%d" % i, snapshot) for i in range(2)]
            other = submit(self.snap, "other", source)
            volumes = [f.result() for f in futures]
        for volume in volumes:
            name = volume.volume_id.split("#")[2]
            self.is_copy("small", name, sockets=name.startswith("clone"))
            self.delete(volume.volume_id)
        self.is_archive_of("small", self.archive("other", "small"))
        for snapshot_id in (snapshot, other.result().snapshot_id):
            self.unsnap(snapshot_id)


# ---- what goes wrong meanwhile ----

class Writer:
    """Changes files of a folder all the time."""

    def __init__(self, folder):
        self.folder = folder
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.rounds = 0

    def run(self):
        choice = random.Random(4)
        while not self.ended.is_set():
            path = os.path.join(self.folder, "file-%05d" % choice.randrange(100))
            other = os.path.join(self.folder, "file-%05d" % choice.randrange(100))
            what = choice.randrange(5)
            try:
                if what == 0:
                    os.unlink(path)
                elif what == 1:
                    os.rename(path, other)
                elif what == 2:
                    os.truncate(path, choice.randrange(200000))
                else:
                    with open(path, "ab") as f:
                        f.write(bytes(choice.randrange(100000)))
                    if os.path.getsize(path) > 1 << 20:
                        os.truncate(path, 10)
            except FileNotFoundError:
                pass
            self.rounds += 1
            self.ended.wait(0.0005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.ended.set()
        self.thread.join()


class Interrupted(Trees):
    """The driver dies, the disk is full, the files change."""

    CLONE_POINTS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.1, 1.5)[::1 if harness.LONG else 2]
    OTHER_POINTS = (0.02, 0.08, 0.2, 0.4, 0.8)

    @classmethod
    def more_exports(cls):
        return [Export(cls.tiny, cls.protocols)]

    @classmethod
    def plant(cls):
        trees.make(os.path.join(cls.share, "source"), depth=20, many=400, megabytes=2)
        trees.make_plain(os.path.join(cls.share, "live", "stable"), 200)
        trees.make_plain(os.path.join(cls.share, "live", "moving"), 100, 100000)
        trees.make_plain(os.path.join(cls.tiny, "big"), 60, 200000)

    @classmethod
    def setUpClass(cls):
        cls.image = Image(os.path.join(DISK, cls.__name__, "image"), 64, "mkfs.ext4", "-q", "-F",
                          "-b", "4096", "-m", "0", "-I", "256", "-O", "^has_journal").mount()
        cls.addClassCleanup(cls.image.unmount)
        cls.tiny = os.path.join(cls.image.path, "share")
        cls.fill = os.path.join(cls.image.path, "fill")
        super().setUpClass()
        cls.sources["big"] = trees.survey(os.path.join(cls.tiny, "big"))

    def shares(self):
        return super().shares() + [self.tiny]

    # ---- SIGKILL ----

    def cut(self, call, seconds):
        """Makes a call, and kills the driver so many seconds later."""
        def attempt():
            try:
                with Client(self.driver.endpoint) as client:
                    call(client=client)
            except grpc.RpcError:
                pass  # that is what a killed driver looks like
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            doomed = pool.submit(attempt)
            time.sleep(seconds)
            self.driver.kill()
            doomed.result()
        self.driver.start()

    def each_cut(self, points, make, check):
        """Cuts a call at each point, and calls check(again): what comes then is the same call, or
        a deletion."""
        for i, seconds in enumerate(points):
            with self.subTest(seconds=seconds):
                self.cut(make, seconds)
                check(i % 2 == 0)
                self.is_tidy()

    def gone(self, volume_id):
        self.until_ok(lambda: self.delete(volume_id) or True)

    def check_volume(self, again, make, sockets):
        """Of the volume 'torn', which is then deleted."""
        volume_id = self.volume_id("torn")
        if again:
            self.assertEqual(self.until_ok(make).volume_id, volume_id)
            self.is_copy("source", "torn", sockets=sockets)
        self.gone(volume_id)
        self.assertFalse(os.path.lexists(self.path("torn")), "it is not deleted")

    def test_kill_in_a_clone(self):
        source = self.source("source")

        def make(client=None):
            return self.clone("torn", source, client=client)

        def check(again):
            self.check_volume(again, make, True)
            if again:
                self.assertEqual(os.listdir(self.path(STATE, "busy")), [])
        self.each_cut(self.CLONE_POINTS, make, check)
        self.is_copy("source", "source", root=True)

    def test_kill_in_a_restore(self):
        snapshot = self.snap("snap", self.source("source")).snapshot_id

        def make(client=None):
            return self.restore("torn", snapshot, client=client)
        self.sources["snap"] = None  # it stays
        try:
            self.each_cut(self.OTHER_POINTS, make,
                          lambda again: self.check_volume(again, make, False))
        finally:
            del self.sources["snap"]
        self.unsnap(snapshot)

    def test_kill_in_a_snapshot(self):
        source = self.source("source")
        snapshot = self.snapshot_id("torn", "source")
        path = self.path("torn", "source.tar.gz")

        def make(client=None):
            return self.snap("torn", source, client=client)

        def check(again):
            if os.path.lexists(path):
                self.is_archive_of("source", path)  # complete, or not there
            if again:
                self.assertEqual(self.until_ok(make).snapshot_id, snapshot)
                self.is_archive_of("source", self.archive("torn", "source"))
            self.until_ok(lambda: self.unsnap(snapshot) or True)
            self.assertFalse(os.path.lexists(self.path("torn")), "it is not deleted")
        self.each_cut(self.OTHER_POINTS, make, check)

    def test_kill_in_a_deletion(self):
        source = self.source("source")
        for seconds in (0.01, 0.05, 0.15):
            with self.subTest(seconds=seconds):
                volume_id = self.clone("torn", source).volume_id
                self.cut(lambda client, v=volume_id: client.DeleteVolume(
                    volume_id=v, secrets=self.secrets), seconds)
                self.gone(volume_id)
                self.is_tidy()

    # ---- full ----

    @contextlib.contextmanager
    def only(self, mebibytes):
        """The small file system takes so much more, for a while."""
        try:
            servers.fill_disk(self.fill, mebibytes << 20)
            yield
        finally:
            os.unlink(self.fill)

    def test_full(self):
        source = self.create("big", share=self.tiny).volume_id
        archive = self.snap("whole", source, compression="none", share=self.other).snapshot_id
        self.sources["whole"] = None  # on the other share, stays
        rows = {
            "clone": lambda: self.clone("new", source, share=self.tiny),
            "restore": lambda: self.restore("new", archive, share=self.tiny),
            "snapshot": lambda: self.snap("new", source, compression="none")}
        try:
            for row, call in rows.items():
                for room in (0, 1, 6):
                    with self.subTest(call=row, room=room), self.only(room):
                        self.fails(CODE.RESOURCE_EXHAUSTED, call)
                        self.assertEqual(self.listed(self.tiny), ["big"])
                        self.is_tidy()
                with self.subTest(call=row, room="enough"):
                    self.until_ok(call)
                    if row == "snapshot":
                        self.is_archive_of("big", self.archive("new", "big", "none", self.tiny))
                        self.unsnap(self.snapshot_id("new", "big", self.tiny))
                    else:
                        self.is_copy("big", "new", self.tiny)
                        self.delete(self.volume_id("new", share=self.tiny))
                    self.is_tidy()  # before the next one needs the room
            self.is_copy("big", "big", self.tiny)
        finally:
            del self.sources["whole"]
        self.unsnap(archive)

    # ---- files that change ----

    @staticmethod
    def stable(entries):
        return {k: v for k, v in entries.items() if k.startswith(b"stable/")}

    def test_changing_files(self):
        source = self.source("live")
        wanted = self.stable(self.sources["live"])
        self.assertEqual(len(wanted), 202)
        with Writer(self.path("live", "moving", "folder-000")) as writer:
            for i in range(3):
                with self.subTest(i=i):
                    before = writer.rounds
                    snapshot = self.snap("snap", source).snapshot_id
                    got = trees.read_archive(self.archive("snap", "live"))
                    self.is_same(wanted, self.stable(got), "the archive")
                    volume = self.restore("restored", snapshot).volume_id
                    self.is_same(wanted, self.stable(trees.survey(self.path("restored"))),
                                 "restored")
                    self.delete(volume)
                    self.unsnap(snapshot)
                    volume = self.clone("clone", source).volume_id
                    self.is_same(wanted, self.stable(trees.survey(self.path("clone"))), "the clone")
                    self.delete(volume)
                    self.assertGreater(writer.rounds, before + 20, "nothing changed meanwhile")


class ContentOnVersion3(Content, Base):
    protocols = "3"
    version = "3"


class ContentOnVersion4(Content, Base):
    protocols = "4"
    version = "4"


class ContentOnBoth(Chosen, Content, Base):
    pass


class InterruptedOnVersion3(Interrupted, Base):
    protocols = "3"
    version = "3"


class InterruptedOnVersion4(Interrupted, Base):
    protocols = "4"
    version = "4"


if __name__ == "__main__":
    harness.main("clones and restores")
