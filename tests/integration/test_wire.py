# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What servers and networks do that a healthy nfs-ganesha does not: a disk that is slow, replies
that come byte by byte or in half, READs and WRITEs that have to be small, directories without
attributes, owners that have names, and times that do not fit.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import concurrent.futures
import contextlib
import os
import socketserver
import stat
import struct
import sys
import threading
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
import trees
import wire
from cases import CODE, DISK, GIB, LAB, SERVER, Base
from copies import NOT_FINAL, Trees
from csi_client import capability
from driver import Driver
from servers import Export, Ganesha, wait_for
from rpc_proxy import ALWAYS, Proxy, Rule

SLOW = 15  # seconds, more than a server that answers nothing is waited for
ENDS = 12  # seconds, more than a driver takes that has been told to end
LONG = 45  # seconds, in which a server that is dead has to be found out
SMALL = 4096  # bytes
MEGABYTE = bytes(range(1, 251)) * 4195  # nowhere zero
SET_ID = stat.S_ISUID | stat.S_ISGID


def slow(call, seconds=3600):
    return Rule(call, 1, "delay-reply", seconds, ALWAYS)


class Wired(Trees):
    """After a test's through(), everything goes through a new proxy, a new server to the driver."""

    folders = ("share",)
    proxy = None

    @classmethod
    def plant(cls):
        trees.make(os.path.join(cls.share, "small"), depth=5, many=10, megabytes=1, sockets=False)
        os.makedirs(os.path.join(cls.share, "big"))
        trees.write(os.path.join(cls.share, "big", "file"), MEGABYTE * 3)

    def through(self, *rules, on_call=None):
        self.proxy = Proxy(self.server.port).start()
        self.addCleanup(self.proxy.stop)
        self.proxy.begin(rules, on_call)

    @property
    def flags(self):
        flags = self.server.flags(self.version)
        if self.proxy is not None:
            flags[1] = "port=%d" % self.proxy.port
        return flags

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.flags)}

    def request(self, name, size=GIB, cap=None, share=None, **parameters):
        cap = cap or capability(flags=self.flags)
        return super().request(name, size, cap, share, **parameters)


class Small:
    """A server that promises no more than a few KiB in a READ or a WRITE."""

    def test_small_transfers(self):
        most = []  # bytes of each READ and WRITE
        self.through(Rule("FSINFO", 1, "small-transfers", SMALL, ALWAYS),
                     on_call=lambda call: most.append(call.transfer_length()))
        for name in ("small", "big"):
            volume = self.clone("copy", self.source(name), timeout=120)
            self.is_copy(name, "copy")
            self.delete(volume.volume_id)
        self.assertGreater(max(most), 0)
        self.assertLessEqual(max(most), SMALL)


class Wire:
    """Cases of both versions."""

    def copies_big(self):
        volume = self.clone("copy", self.source("big"), timeout=120)
        self.is_copy("big", "copy")
        self.delete(volume.volume_id)

    def test_slow_commit(self):
        """A disk that takes longer than a dead server is waited for: one attempt is enough."""
        self.through(slow("COMMIT", SLOW))
        self.copies_big()
        self.assertEqual(self.proxy.counts["COMMIT"], 1)

    def test_slow_writes(self):
        self.through(slow("WRITE", SLOW))
        self.copies_big()

    def test_stale_for_a_moment_while_listing(self):
        """As after a failover: no volume and no snapshot is missing in a list that answers OK."""
        self.through()
        volumes = [self.create("listed-%d" % i).volume_id for i in range(4)]
        snapshot = self.client.CreateSnapshot(source_volume_id=volumes[0], name="listed",
                                              secrets=self.secrets).snapshot.snapshot_id
        for times in (1, 2, 3):
            self.proxy.begin([Rule("READLINK", 1, "status STALE", count=times)])
            listed = [e.volume.volume_id for e in self.client.ListVolumes().entries]
            self.assertEqual([v for v in volumes if v not in listed], [], times)
        self.proxy.begin([Rule("READLINK", 1, "status STALE")])
        listed = [e.snapshot.snapshot_id for e in self.client.ListSnapshots().entries]
        self.assertIn(snapshot, listed)
        self.proxy.begin([Rule("READLINK", 1, "status STALE", count=ALWAYS)])
        for call in (self.client.ListVolumes, self.client.ListSnapshots):
            self.fails(CODE.UNAVAILABLE, call)
        self.proxy.end()
        self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        for volume in volumes:
            self.delete(volume)

    def test_a_call_without_an_answer(self):
        """From a server that answers all others: nfs-ganesha drops calls of version 3 after some
        errors of its own. One attempt of the CO is enough, whether the server did it or not."""
        lost, done = Rule("MKDIR", 1, "drop-call"), Rule("RENAME", 1, "drop-reply")
        self.through(lost)
        volume = self.create("unanswered")
        self.proxy.begin([done])
        self.delete(volume.volume_id)
        self.assertEqual((lost.hits, done.hits), (1, 1))
        self.is_tidy()

    def test_dies_at_work(self):
        """A server that is at work on something slow, and dies over it."""
        for way, rule in (("mute", slow("COMMIT")),
                          ("half", Rule("COMMIT", 1, "half", count=ALWAYS))):
            with self.subTest(way=way), concurrent.futures.ThreadPoolExecutor(1) as pool:
                self.through(rule)
                call = pool.submit(self.clone, "copy", self.source("big"), timeout=120)
                self.assertTrue(wait_for(lambda rule=rule: rule.hits))
                if way == "mute":
                    self.now_dead()
                begun = time.monotonic()
                self.fails(NOT_FINAL, call.result)
                self.assertLess(time.monotonic() - begun, LONG)
                self.proxy.end()
                self.delete(self.until_ok(lambda: self.clone("copy", self.source("big"))).volume_id)
                self.is_tidy()

    def ends(self, what):
        """SIGTERM while something waits for the server: kubelet gives 30 s, for all of a pod."""
        begun = time.monotonic()
        try:
            self.assertEqual(self.driver.stop(), 0, what)
            self.assertLess(time.monotonic() - begun, ENDS, what)
        finally:
            self.proxy.end()
            self.driver.start()

    def now_dead(self):
        self.proxy.begin([Rule("every", 1, "drop-reply", count=ALWAYS)])

    def test_ends_while_a_copy_waits(self):
        for what in ("slow write", "slow commit", "dead server"):
            with self.subTest(what=what), concurrent.futures.ThreadPoolExecutor(1) as pool:
                name = "COMMIT" if what == "slow commit" else "WRITE"
                self.through(slow(name))
                call = pool.submit(self.clone, "copy", self.source("big"), timeout=120)
                self.assertTrue(wait_for(lambda name=name: self.proxy.counts[name]))
                if what == "dead server":
                    self.now_dead()
                self.ends(what)
                self.fails(NOT_FINAL, call.result)
                self.delete(self.until_ok(lambda: self.clone("copy", self.source("big"))).volume_id)
                self.is_tidy()

    def test_ends_while_a_purge_waits(self):
        for what in ("slow removal", "dead server"):
            with self.subTest(what=what):
                self.through()
                volume = self.create("full")
                for number in range(5000):
                    with open(self.path("full", str(number)), "wb"):
                        pass
                self.delete(volume.volume_id)
                # The call has removed its notes; from now on it is the purge that removes.
                self.proxy.begin([slow("REMOVE")])
                self.assertTrue(wait_for(lambda: self.proxy.counts["REMOVE"]))
                if what == "dead server":
                    self.now_dead()
                self.ends(what)
                self.delete(self.until_ok(lambda: self.create("next")).volume_id)
                self.is_tidy()

    def test_replies_that_trickle(self):
        """Half a minute a reply is no answer, though something comes all the time."""
        self.through()
        self.source("small")
        self.proxy.begin([Rule("every", 1, "trickle", 1.5, ALWAYS)])
        begun = time.monotonic()
        self.fails(CODE.UNAVAILABLE, self.create, name="never")
        self.assertLess(time.monotonic() - begun, LONG)
        self.proxy.end()
        self.delete(self.until_ok(lambda: self.create("never")).volume_id)
        self.is_tidy()

    def test_owner_of_a_volume(self):
        self.through()
        volume = self.create("owned", uid="1", gid="2", mountPermissions="02770")
        found = os.stat(self.path("owned"))
        self.assertEqual((found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)), (1, 2, 0o2770))
        self.delete(volume.volume_id)


class OnVersion3(Wire, Small, Wired, Base):
    """Of version 3."""

    protocols = "3"
    version = "3"

    @classmethod
    def plant(cls):
        super().plant()
        os.makedirs(os.path.join(cls.share, "old"))
        for name, when in (("1960", -315619200), ("1969", -1), ("1970", 0), ("2070", 3155760000)):
            path = os.path.join(cls.share, "old", name)
            trees.write(path)
            os.utime(path, (when, when))

    def test_without_readdirplus(self):
        self.through(Rule("READDIRPLUS", 1, "status NOTSUPP", count=ALWAYS))
        volume = self.clone("copy", self.source("small"), timeout=120)
        self.is_copy("small", "copy")
        self.delete(volume.volume_id)
        self.is_tidy()  # what is deleted is listed, too
        self.assertGreater(self.proxy.counts["READDIR"], 0)
        # Each connection finds out by what it has in flight.
        self.assertLess(self.proxy.counts["READDIRPLUS"], self.proxy.counts["READDIR"])

    def test_times_before_1970(self):
        """Version 3 has none: they become the first that it has, and that is said."""
        source = self.source("old")
        snapshot = self.snap("snap", source).snapshot_id
        made = [self.clone("copy", source), self.restore("back", snapshot)]
        for name in ("copy", "back"):
            for file, when in (("1960", 0), ("1969", 0), ("1970", 0), ("2070", 3155760000)):
                self.assertEqual(os.stat(self.path(name, file)).st_mtime, when, name + "/" + file)
        log = self.driver.tail(200)
        self.assertEqual(log.count("clamped=2"), 2, log)
        self.assertIn("cannot store times before 1970", log)
        for volume in made:
            self.delete(volume.volume_id)
        self.unsnap(snapshot)


class OnVersion4(Wire, Wired, Base):
    """Of version 4."""

    protocols = "4"
    version = "4"

    @classmethod
    def plant(cls):
        super().plant()
        os.makedirs(os.path.join(cls.share, "old"))
        trees.write(os.path.join(cls.share, "old", "1960"))
        os.utime(os.path.join(cls.share, "old", "1960"), (-315619200, -315619200))

    def test_times_before_1970(self):
        source = self.source("old")
        snapshot = self.snap("snap", source).snapshot_id
        made = [self.clone("copy", source), self.restore("back", snapshot)]
        self.is_copy("old", "copy")
        self.is_copy("old", "back")
        for volume in made:
            self.delete(volume.volume_id)
        self.unsnap(snapshot)


class SmallOnVersion4(Small, Wired, Base):
    """Of version 4, which the proxy leaves alone."""

    protocols = "4"
    version = "4"
    export_options = "MaxRead = %d; MaxWrite = %d; " % (SMALL, SMALL)


class Named(Wired, Base):
    """A server of version 4 alone that sends owners by name."""

    protocols = "4"
    version = "4"
    numeric = False

    @classmethod
    def plant(cls):
        here = os.path.join(cls.share, "owned")
        os.makedirs(os.path.join(here, "folder"))
        os.symlink("file", os.path.join(here, "link"))
        os.mkfifo(os.path.join(here, "fifo"))
        for name, uid, gid, mode in (("file", 1, 1, 0o6755), ("of root", 0, 0, 0o4711),
                                     ("mixed", 0, 2, 0o2755), ("other", 2, 0, 0o640)):
            path = os.path.join(here, name)
            trees.write(path)
            os.chown(path, uid, gid)
            os.chmod(path, mode)
        for name, mode in (("folder", 0o2775), ("link", None), ("fifo", 0o644)):
            path = os.path.join(here, name)
            os.lchown(path, 2, 1)
            if mode is not None:
                os.chmod(path, mode)

    def test_copies(self):
        source = self.source("owned")
        snapshot = self.snap("snap", source).snapshot_id
        made = [self.clone("copy", source), self.restore("back", snapshot)]
        self.is_copy("owned", "copy")
        self.is_copy("owned", "back")
        for volume in made:
            self.delete(volume.volume_id)
        self.unsnap(snapshot)

    def test_owner_of_a_volume(self):
        """By number, which such a server may take; if not, nobody else gets it."""
        volume = self.create("owned by one", uid="1", gid="1", mountPermissions="02770")
        found = os.stat(self.path("owned by one"))
        self.assertEqual((found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)), (1, 1, 0o2770))
        self.delete(volume.volume_id)


class Strict(Named):
    """It takes no numbers either."""

    numeric = None

    def test_owner_of_a_volume(self):
        """Nobody else gets it: what cannot be given away is not there, or as it was before."""
        self.fails(CODE.FAILED_PRECONDITION, self.create, "Only_Numeric_Owners", name="never",
                   uid="1", gid="1")
        self.assertEqual(self.leftovers(), [])
        os.mkdir(self.path("there"))
        os.chown(self.path("there"), 2, 2)
        self.fails(CODE.FAILED_PRECONDITION, self.create, "Only_Numeric_Owners", name="there",
                   uid="1", gid="1")
        found = os.stat(self.path("there"))
        self.assertEqual((found.st_uid, found.st_gid), (2, 2))
        os.rmdir(self.path("there"))


class Trickle:
    """A server that accepts every call and sends its reply, without results, byte by byte, with
    seconds between the bytes."""

    def __init__(self, seconds=1.5, address=("127.0.0.1", 0)):
        outer = self
        self.calls = 0

        class Handler(socketserver.BaseRequestHandler):
            """One connection."""

            def handle(self):
                with contextlib.suppress(OSError):
                    for call in wire.receive_records(self.request):
                        outer.calls += 1
                        for byte in wire.framed(call[:4] + struct.pack(">5I", 1, 0, 0, 0, 0)):
                            self.request.sendall(bytes([byte]))
                            time.sleep(seconds)

        class Server(socketserver.ThreadingTCPServer):
            """As many connections as come."""

            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 64

        self.tcp = Server(address, Handler)
        self.port = self.tcp.server_address[1]
        threading.Thread(target=self.tcp.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.tcp.shutdown()
        self.tcp.server_close()


class Trickled(Base):
    """Peers that send a byte now and then hold nobody up for long, and nobody else at all."""

    @classmethod
    def setUpClass(cls):
        cls.share = os.path.join(DISK, cls.__name__)
        cls.server = Ganesha(os.path.join(LAB, cls.__name__), [Export(cls.share, "4")],
                             protocols="4").start()
        cls.driver = Driver(LAB, name=cls.__name__).start()

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        cls.server.stop()

    def create(self, name, *flags):
        return self.driver.client.CreateVolume(
            name=name, parameters={"server": SERVER, "share": self.share},
            volume_capabilities=[capability(flags=list(flags))],
            secrets={"mountOptions": ",".join(flags)}, timeout=300)

    def holds_up_nobody(self, *flags):
        def call(number):
            begun = time.monotonic()
            try:
                self.create("slow-%d" % number, *flags)
            except grpc.RpcError as e:
                return e.code(), time.monotonic() - begun
            return None, 0

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            calls = [pool.submit(call, n) for n in range(16)]
            time.sleep(1)
            begun = time.monotonic()
            self.create("quick", *self.server.flags("4"))
            self.assertLess(time.monotonic() - begun, LONG / 2)
            answers = [c.result() for c in calls]
        self.assertEqual({code for code, _ in answers}, {CODE.UNAVAILABLE}, answers)
        self.assertLess(max(took for _, took in answers), LONG, answers)

    def test_null_call(self):
        for version in ("3", "4"):
            with self.subTest(version=version):
                peer = Trickle()
                self.addCleanup(peer.stop)
                self.holds_up_nobody("vers=" + version, "port=%d" % peer.port)
                self.assertGreater(peer.calls, 0)

    def test_portmapper_and_mount_service(self):
        """Of a server that answers NULL calls as it should."""
        servers.Rpcbind.stop()
        portmapper = Trickle(address=("127.0.0.1", 111))
        self.addCleanup(portmapper.stop)
        peers = [Trickle(seconds=0), Trickle(seconds=0), Trickle()]
        for peer in peers:
            self.addCleanup(peer.stop)
        self.holds_up_nobody("vers=3", "port=%d" % peers[0].port)
        self.assertGreater(portmapper.calls, 0)
        self.holds_up_nobody("vers=3", "port=%d" % peers[1].port, "mountport=%d" % peers[2].port)
        self.assertGreater(peers[2].calls, 0)


if __name__ == "__main__":
    harness.main("wire")
