# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The node service when things go wrong, with mounts of a real kernel: nfs-ganesha stopped, killed,
restarted and emptied below mounted volumes; many volumes of a dead server beside those of a live
one; the driver killed at any moment. And what a node tells and remembers of its volumes.

Runs inside a lab with a kernel that has NFS, with CSI_NFS naming the driver. LAB_ROUNDS is the
number of kills at random, 8 by default. Cases that wait for timeouts run on one version, unless
LAB_LONG is set.
"""
import concurrent.futures
import os
import random
import resource
import shutil
import socket
import signal
import sys
import threading
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from csi_client import capability, patiently, pb
from driver import Driver
from rpc_proxy import ALWAYS, Proxy, Rule
from servers import Export, Ganesha, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
CODE = grpc.StatusCode
HOST = "127.0.0.1"
ROUNDS = int(os.environ.get("LAB_ROUNDS", "8" if harness.LONG else "5"))
VERSIONS = ("3", "4.0", "4.1", "4.2")
MANY = 50
LIVE = MANY if harness.LONG else 5
LOOKS = 10 if harness.LONG else 5
STATS_S = 12  # 2.5 s, and up to 7.5 in which the helper has no processor
BYTES, INODES = pb.VolumeUsage.BYTES, pb.VolumeUsage.INODES


def mounted(below):
    """Mount points below a folder, of the last mount first."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        points = [line.split()[4] for line in f]
    return [p for p in reversed(points) if p.startswith(below + "/")]


def helpers():
    """Process ids of mount helpers."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if len(words) > 1 and words[1] == b"mount-helper":
            found.append(int(pid))
    return found


class Faults(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.live = cls._server("live")
        cls.dying = cls._server("dying")
        cls.state = os.path.join(LAB, "state")
        cls.driver = Driver(LAB, "--mode=node", "--nodeid=n", "--state-dir=" + cls.state,
                            "--inline-volumes=%s:%s/sub" % (HOST, cls.live.exports[0].path)).start()

    @classmethod
    def _server(cls, name):
        others = [Export(os.path.join(DISK, name + "-ro"), access="RO"),
                  Export(os.path.join(DISK, name + "-denied"), clients="192.0.2.1"),
                  Export(os.path.join(DISK, name + "-v3"), "3"),
                  Export(os.path.join(DISK, name + "-v4"), "4")] if name == "live" else []
        exports = [Export(os.path.join(DISK, name))] + others
        server = Ganesha(os.path.join(LAB, name), exports).start()
        for export in others:
            os.makedirs(os.path.join(export.path, "v0"), exist_ok=True)
        for i in range(MANY):
            os.makedirs(os.path.join(DISK, name, "v%d" % i), exist_ok=True)
        return server

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        for server in (cls.live, cls.dying):
            server.kill()

    def setUp(self):
        """Servers that answer, and a driver that knows of no outage and of no volumes."""
        for server in (self.live, self.dying):
            if not server.is_running():
                server.start()
            server.thaw()
        self.driver.stop()
        shutil.rmtree(self.state, ignore_errors=True)
        self.driver.start()
        self.parent = os.path.join(LAB, "pods", self.id().rsplit(".", 1)[1])
        os.makedirs(self.parent, exist_ok=True)

    def tearDown(self):
        left = mounted(self.parent)
        for place in left:
            servers.run("umount", "-l", place, check=False)
        shutil.rmtree(self.parent, ignore_errors=True)
        # A case that failed half-way leaves notes; those of mounts that are gone count for nothing.
        for name in os.listdir(self.state) if os.path.isdir(self.state) else ():
            os.unlink(os.path.join(self.state, name))
        self.assertEqual(left, [])

    def scene(self):
        return "\n".join(["-- the driver's log", self.driver.tail(), "-- the live server's log",
                          self.live.tail(10), "-- the dying server's log", self.dying.tail(10)])

    @property
    def client(self):
        return self.driver.client

    def target(self, name):
        return os.path.join(self.parent, name)

    def publish(self, server, version="4.2", volume="v0", target="t", mode=None, timeout=60,
                flags=(), volume_id=None, host=HOST, readonly=False, **context):
        options = server.flags(version) + (["nolock"] if version == "3" else []) + list(flags)
        given = {"server": host, "share": server.exports[0].path, "subdir": volume}
        given.update(context)
        return self.client.NodePublishVolume(
            volume_id=volume_id or "%s#%s" % (server.home, volume), target_path=self.target(target),
            volume_context=given, timeout=timeout, readonly=readonly,
            volume_capability=capability(mode or "MULTI_NODE_MULTI_WRITER", options))

    def unpublish(self, target="t", volume_id="v", timeout=60):
        self.client.NodeUnpublishVolume(volume_id=volume_id, target_path=self.target(target),
                                        timeout=timeout)

    def stats(self, target="t", **fields):
        return self.client.NodeGetVolumeStats(volume_id="v", volume_path=self.target(target),
                                              **fields)

    def fails(self, codes, call, *args, **fields):
        """The call fails soon with one of these codes. Returns the message and how long it took."""
        begun = time.monotonic()
        with self.assertRaises(grpc.RpcError) as got:
            call(*args, **fields)
        took = time.monotonic() - begun
        self.assertIn(got.exception.code(), codes, got.exception.details())
        return got.exception.details(), took

    def is_gone(self, target="t"):
        self.assertNotIn(self.target(target), mounted(self.parent))
        self.assertFalse(os.path.lexists(self.target(target)))

    # ---- what a volume is like ----

    def usage(self, answer, unit):
        return [u for u in answer.usage if u.unit == unit][0]

    def test_stats(self):
        for number, version in enumerate(VERSIONS):
            with self.subTest(version=version):
                # Another volume each time: what is remembered of one is no answer for the next.
                self.publish(self.live, version, volume="v%d" % number)
                self.is_well("t")
                answer = self.stats()
                want = os.statvfs(self.target("t"))
                got = self.usage(answer, BYTES)
                self.assertEqual(got.total, want.f_blocks * want.f_frsize)
                self.assertAlmostEqual(got.available, want.f_bavail * want.f_frsize, delta=1 << 24)
                self.assertAlmostEqual(got.used, (want.f_blocks - want.f_bfree) * want.f_frsize,
                                       delta=1 << 24)
                self.assertEqual(self.usage(answer, INODES).total, want.f_files)
                self.assertFalse(answer.volume_condition.abnormal)
                self.assertTrue(answer.volume_condition.message)
                self.unpublish()
                self.is_gone()

    def test_stats_are_kept_for_seconds(self):
        self.publish(self.live)
        first = self.stats()
        with open(os.path.join(self.target("t"), "filler"), "wb") as f:
            f.write(b"x" * (4 << 20))
            f.flush()
            os.fsync(f.fileno())
        self.assertEqual(self.stats(), first)
        self.assertTrue(wait_for(lambda: self.stats() != first, 10, 0.5))
        os.unlink(os.path.join(self.target("t"), "filler"))
        self.unpublish()

    def test_stats_beside_an_unpublish(self):
        """The directory below a mount belongs to the node: its numbers are nobody's usage."""
        self.publish(self.live)
        total = self.usage(self.stats(), BYTES).total
        self.unpublish()
        over, right, wrong = threading.Event(), [], []
        below = os.statvfs(self.parent)
        self.assertNotEqual(below.f_blocks * below.f_frsize, total)

        def look():
            while not over.is_set():
                try:
                    answer = self.stats()
                except grpc.RpcError as e:
                    if e.code() not in (CODE.NOT_FOUND, CODE.UNAVAILABLE):
                        wrong.append((e.code(), e.details()))
                    continue
                condition = answer.volume_condition
                if not condition.abnormal:
                    found = self.usage(answer, BYTES).total
                    (right if found == total else wrong).append(found)
                elif "does not answer" not in condition.message:
                    wrong.append(condition.message)
        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(1, LOOKS + 1):
                # Of another volume nothing is remembered: the looks reach the mount.
                patiently(self.publish, server=self.live, volume="v%d" % turn)
                if turn == LOOKS:
                    self.assertTrue(wait_for(lambda: right or wrong))
                patiently(self.unpublish)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])

    def test_stats_of_what_is_not_mounted(self):
        os.mkdir(self.target("empty"))
        for path in (self.target("empty"), self.target("absent"), "/nonexistent/a/b", "some/path",
                     "/proc", "/"):
            self.fails((CODE.NOT_FOUND,), self.client.NodeGetVolumeStats, volume_id="v",
                       volume_path=path)
        for fields in ({"volume_path": "/a"}, {"volume_id": "v"}):
            self.fails((CODE.INVALID_ARGUMENT,), self.client.NodeGetVolumeStats, **fields)

    def test_stats_that_nobody_could_take(self):
        """They say nothing about the volume, which is well: the call fails."""
        self.publish(self.live)
        self.driver.restart()
        self.client.NodeGetInfo()  # the connection stays
        pid = self.driver.process.pid
        used = set(map(int, os.listdir("/proc/%d/fd" % pid)))
        free = min(set(range(len(used) + 1)) - used)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        # mountinfo can be read, but no helper process be talked to.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free + 1, before[1]))
        try:
            words, _ = self.fails((CODE.ABORTED,), self.stats)
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        self.assertIn("cannot run a helper process", words)
        answer = self.stats()
        self.assertFalse(answer.volume_condition.abnormal)
        self.assertGreater(self.usage(answer, BYTES).total, 0)
        self.unpublish()

    # ---- a server that refuses ----

    def test_refusals(self):
        """What the server does not give is told with what to do, for each version."""
        refused = (CODE.PERMISSION_DENIED, CODE.NOT_FOUND)
        for version in VERSIONS:
            for share, codes, word in (("-denied", refused, HOST), ("-absent", refused, HOST)):
                with self.subTest(version=version, share=share):
                    words, took = self.fails(codes, self.publish, self.live, version,
                                             share=os.path.join(DISK, "live") + share)
                    self.assertIn(word, words)
                    self.assertIn("this node's address", words)
                    self.assertLess(took, 20)
                    self.is_gone()

    def test_locks_need_answers_too(self):
        """mount.nfs, which alone can do the locks of version 3, would try for two minutes."""
        for share, port in (("", servers.free_port()), ("-absent", None)):
            flags = ["lock"] + (["port=%d" % port, "mountport=%d" % port] if port else [])
            begun = time.monotonic()
            with self.assertRaises(grpc.RpcError) as got:
                self.client.NodePublishVolume(
                    volume_id="v", target_path=self.target("t"),
                    volume_context={"server": HOST, "share": os.path.join(DISK, "live") + share},
                    volume_capability=capability("MULTI_NODE_MULTI_WRITER",
                                                 self.live.flags("3") + flags))
            self.assertLess(time.monotonic() - begun, 20)
            self.assertNotIn(got.exception.code(), (CODE.OK, CODE.INTERNAL),
                             got.exception.details())
            self.is_gone()

    def test_read_only_export(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                # Another target each time: what is remembered of one is no answer for the next.
                self.publish(self.live, version, share=os.path.join(DISK, "live-ro"),
                             target=version, mountPermissions="0777")
                self.is_well(version)
                with self.assertRaises(OSError):
                    os.mkdir(os.path.join(self.target(version), "x"))
                self.unpublish(version)
                self.is_gone(version)

    def test_slow_server(self):
        """It sleeps most of the time: every call has an answer, most of them the right one."""
        over = threading.Event()

        def naps():
            while not over.is_set():
                self.dying.freeze()
                over.wait(0.8)
                self.dying.thaw()
                over.wait(0.2)
        thread = threading.Thread(target=naps)
        thread.start()
        good = 0
        try:
            for version in VERSIONS:
                for call in (lambda v=version: self.publish(self.dying, v), self.stats,
                             self.unpublish):
                    begun = time.monotonic()
                    try:
                        call()
                        good += 1
                    except grpc.RpcError as e:
                        self.assertIn(e.code(), (CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED,
                                                 CODE.NOT_FOUND, CODE.ABORTED), e.details())
                    self.assertLess(time.monotonic() - begun, 50)
        finally:
            over.set()
            thread.join()
        self.assertGreater(good, len(VERSIONS) * 3 // 2)
        self.comes_back("4.2")

    def test_server_that_answers_null_calls_only(self):
        """While the kernel waits for such a server, it begins no first mount of another one: so
        mounts of it are tried one at a time, each not for long, and with pauses."""
        fresh = self._server("fresh")
        self.addCleanup(fresh.kill)
        over = threading.Event()
        with Proxy(self.dying.port) as proxy:
            proxy.begin([Rule("any", 1, "drop-call", None, ALWAYS)])
            port = ["port=%d" % proxy.port]

            def ask(number):
                codes = set()
                while not over.is_set():
                    with self.assertRaises(grpc.RpcError) as got:
                        self.publish(self.dying, "4.1", "v%d" % number, "h%d" % number, flags=port)
                    codes.add(got.exception.code())
                    over.wait(0.5)
                return codes

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                callers = [pool.submit(ask, i) for i in range(8)]
                try:
                    self.assertTrue(servers.wait_for(lambda: proxy.counts))
                    begun = time.monotonic()
                    self.publish(fresh, "4.1", target="fresh", timeout=110)
                    took = time.monotonic() - begun
                finally:
                    over.set()
                for caller in callers:
                    self.assertLessEqual(caller.result(),
                                         {CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED, CODE.ABORTED})
        self.unpublish("fresh")
        self.assertLess(took, 35)  # 45 without a limit for first mounts

    def test_mount_service_that_is_silent(self):
        """Only a mount over version 3 waits for it: the server's other volumes go on."""
        with socket.create_server((HOST, 0), backlog=64) as silent:
            port = "mountport=%d" % silent.getsockname()[1]
            for _ in range(2):
                text, _ = self.fails({CODE.UNAVAILABLE}, self.publish, self.live, "3", flags=[port])
                self.assertIn("mount service", text)
                self.publish(self.live, "4.2", target="beside")
                self.unpublish("beside")
        self.is_gone()

    # ---- a server that stops answering ----

    def test_server_stops(self):
        """Whatever is asked of it meanwhile has an answer in seconds."""
        for version in harness.one_of(VERSIONS, 0):
            with self.subTest(version=version):
                self._server_stops(version)
        with self.subTest(version="4.1, soft"):
            self._server_stops("4.1", "soft", "timeo=20", "retrans=1")

    def _server_stops(self, version, *flags):
        self.publish(self.dying, version, flags=flags)
        before = self.stats()
        time.sleep(5)  # what is remembered is no answer any more
        self.dying.freeze()
        try:
            for _ in range(2):
                begun = time.monotonic()
                answer = self.stats()
                self.assertLess(time.monotonic() - begun, STATS_S)
                self.assertTrue(answer.volume_condition.abnormal)
                self.assertIn(HOST, answer.volume_condition.message)
                self.assertEqual(answer.usage, before.usage)
            words, took = self.fails((CODE.UNAVAILABLE,), self.publish, self.dying, version,
                                     target="other", volume="v1")
            self.assertLess(took, 8)
            self.assertIn(HOST, words)
            words, took = self.fails((CODE.UNAVAILABLE,), self.publish, self.dying, version,
                                     target="other", volume="v1")
            self.assertLess(took, 1, "it is known by now: " + words)
            self.is_gone("other")
            begun = time.monotonic()
            self.unpublish()
            self.assertLess(time.monotonic() - begun, 10)
            self.is_gone()
            self.publish(self.live, version)
            self.unpublish()
        finally:
            self.dying.thaw()
        self.comes_back(version)

    def test_address_goes_away(self):
        """The server lives, and no packet finds it any more; later one does again."""
        for number, version in enumerate(harness.one_of(VERSIONS, 1), 1):
            with self.subTest(version=version):
                far = "198.51.100.%d" % number
                servers.run("ip", "addr", "add", far + "/32", "dev", "lo")
                try:
                    self.publish(self.dying, version, host=far)
                    time.sleep(5)  # what is remembered of the mount before is no answer any more
                    servers.run("ip", "addr", "del", far + "/32", "dev", "lo")
                    begun = time.monotonic()
                    answer = self.stats()
                    self.assertLess(time.monotonic() - begun, STATS_S)
                    self.assertTrue(answer.volume_condition.abnormal)
                    words, took = self.fails((CODE.UNAVAILABLE,), self.publish, self.dying,
                                             version, host=far, target="other")
                    self.assertLess(took, 8)
                    self.assertIn(far, words)
                    self.is_gone("other")
                    self.publish(self.live, version, target="other")
                    self.unpublish("other")
                    begun = time.monotonic()
                    self.unpublish()
                    self.assertLess(time.monotonic() - begun, 10)
                    self.is_gone()
                    servers.run("ip", "addr", "add", far + "/32", "dev", "lo")
                    self.comes_back(version, far)
                finally:
                    servers.run("ip", "addr", "del", far + "/32", "dev", "lo", check=False)

    def test_address_of_nobody(self):
        words, took = self.fails((CODE.UNAVAILABLE,), self.publish, self.live, host="203.0.113.9")
        self.assertLess(took, 8)
        self.assertIn("203.0.113.9", words)
        self.is_gone()

    def comes_back(self, version, host=HOST):
        def works():
            try:
                self.publish(self.dying, version, host=host)
                return True
            except grpc.RpcError as e:
                self.assertIn(e.code(), (CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED), e.details())
                return False
        self.assertTrue(wait_for(works, 60, 0.5))
        with open(os.path.join(self.target("t"), "back"), "w", encoding="ascii") as f:
            f.write("back")
        self.unpublish()
        self.is_gone()

    def test_server_killed_and_restarted(self):
        for version in harness.one_of(("3", "4.2"), 1):
            with self.subTest(version=version):
                self.publish(self.dying, version)
                self.dying.kill()
                time.sleep(5)
                begun = time.monotonic()
                self.assertTrue(self.stats().volume_condition.abnormal)
                self.assertLess(time.monotonic() - begun, STATS_S)
                self.dying.start()
                self.assertTrue(wait_for(
                    lambda: not self.stats().volume_condition.abnormal, 90, 1))
                self.publish(self.dying, version)
                self.unpublish()
                self.is_gone()
        self.comes_back("4.2")

    def test_mode_that_a_crash_left_unset(self):
        """The next call sets it, and none after that. If the server refuses it, the code is not
        final: a mount that an earlier call has made cannot be unmounted, since a pod may use it."""
        place = os.path.join(DISK, "live", "v3")
        os.chmod(place, 0o755)
        with Proxy(self.live.port) as proxy:
            def publish():
                self.publish(self.live, "3", volume="v3", mountPermissions="0711",
                             flags=["port=%d" % proxy.port])
            lost = Rule("SETATTR", 1, "drop-call", None, ALWAYS)
            proxy.begin([lost])
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                call = pool.submit(publish)
                self.assertTrue(wait_for(lambda: lost.hits))
                self.driver.kill()
                self.assertIsInstance(call.exception(), grpc.RpcError)
            self.assertTrue(wait_for(lambda: not helpers(), 10))
            self.assertEqual(mounted(self.parent), [self.target("t")])
            self.assertEqual(os.stat(place).st_mode & 0o7777, 0o755)
            self.driver.start()
            proxy.begin([Rule("SETATTR", 1, "status ACCES", None, ALWAYS)])
            text, _ = self.fails((CODE.ABORTED,), publish)
            self.assertIn("was root squashed", text)
            proxy.end()
            patiently(publish)
            self.assertEqual(os.stat(place).st_mode & 0o7777, 0o711)
            os.chmod(self.target("t"), 0o700)
            patiently(publish)
            self.assertEqual(os.stat(place).st_mode & 0o7777, 0o700)
            self.unpublish()

    def test_many_volumes_of_a_dead_server(self):
        """Volumes of a live server come, report and go, while those of a dead one wait."""
        for i in range(MANY // 2):
            self.publish(self.dying, target="dead%d" % i, volume="v%d" % i)
        usual = max(self._live_round(i) for i in range(5))
        self.dying.freeze()
        stuck = concurrent.futures.ThreadPoolExecutor(MANY)
        done = threading.Event()
        try:
            calls = [stuck.submit(self._patiently, self.unpublish, "dead%d" % i, done)
                     for i in range(MANY // 2)]
            calls += [stuck.submit(self._patiently, self._publish_dead, "more%d" % i, done)
                      for i in range(MANY // 2)]
            slowest = max(self._live_round(i) for i in range(LIVE))
            self.assertLess(slowest, max(30, 10 * usual),
                            "they wait behind those of the dead server")
            for call in calls[:MANY // 2]:
                call.result(120)
            self.assertEqual([p for p in mounted(self.parent) if "/dead" in p], [])
        finally:
            done.set()
            self.dying.thaw()
            stuck.shutdown()
        for call in calls:
            call.result()
        self.assertEqual(mounted(self.parent), [])
        self.assertTrue(wait_for(lambda: not helpers(), 30), "helpers are left")
        self.comes_back("4.2")

    def _live_round(self, number):
        """How long a volume of the live server takes from its publish to its unpublish."""
        name = "live%d" % number
        begun = time.monotonic()
        patiently(self.publish, server=self.live, target=name, volume="v%d" % number, version="3")
        self.is_well(name)
        patiently(self.unpublish, target=name)
        self.client.Probe(timeout=30)
        return time.monotonic() - begun

    def is_well(self, target):
        """On a machine that has no processor for it, the helper that looks may be late, which shows
        as a server that does not answer: what counts is that this passes."""
        self.assertTrue(wait_for(lambda: not self.stats(target).volume_condition.abnormal, 30, 0.2))

    def _patiently(self, call, target, done):
        """As kubelet: again and again until it works, or the case is over."""
        while not done.is_set():
            try:
                return call(target)
            except grpc.RpcError as e:
                self.assertIn(e.code(), (CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED, CODE.ABORTED),
                              e.details())
                time.sleep(0.5)
        return None

    def _publish_dead(self, target):
        self.publish(self.dying, target=target)
        self.unpublish(target)

    # ---- the driver dies ----

    def test_driver_killed_at_random(self):
        chance = random.Random(20260101)
        for number in range(ROUNDS):
            version = VERSIONS[number % len(VERSIONS)]
            for call in (lambda v=version: self.publish(self.live, v), self.unpublish):
                self._killed_in(call, chance.random() * 0.6)
            self.unpublish()
            self.is_gone()
        self.assertTrue(wait_for(lambda: not helpers(), 5), "helpers outlive their driver")
        self.assertEqual(os.listdir(self.parent), [])
        self.assertEqual(os.listdir(self.state), [])

    def _killed_in(self, call, seconds):
        killer = threading.Timer(seconds, lambda: self.driver.process.kill())
        killer.start()
        try:
            call()
        except grpc.RpcError:
            pass
        killer.join()
        self.driver.restart(signal.SIGKILL)
        call()

    # ---- who may have a volume ----

    def test_single_writer(self):
        alone, shared = "SINGLE_NODE_SINGLE_WRITER", "SINGLE_NODE_MULTI_WRITER"
        self.publish(self.live, mode=alone)
        self.publish(self.live, mode=alone)
        for mode in (alone, shared):
            words, _ = self.fails((CODE.FAILED_PRECONDITION,), self.publish, self.live, mode=mode,
                                  target="second")
            self.assertIn(self.target("t"), words)
            self.is_gone("second")
        self.publish(self.live, mode=alone, target="other", volume="v1")
        for how in (signal.SIGTERM, signal.SIGKILL):
            self.driver.restart(how)
            self.fails((CODE.FAILED_PRECONDITION,), self.publish, self.live, mode=alone,
                       target="second")
        self.unpublish()
        self.publish(self.live, mode=shared, target="second")
        self.publish(self.live, mode=shared, target="third")
        self.fails((CODE.FAILED_PRECONDITION,), self.publish, self.live, mode=alone)
        self.unpublish("second")
        # Unmounted by somebody else: what is noted of it counts for nothing.
        servers.run("umount", self.target("third"))
        self.publish(self.live, mode=alone)
        for name in ("t", "third", "other"):
            self.unpublish(name)
        self.assertEqual(os.listdir(self.state), [])

    def test_single_writer_with_newlines(self):
        """In the volume id and in the target path."""
        more = {"mode": "SINGLE_NODE_SINGLE_WRITER"}
        for volume_id, target in (("a\nb", "t"), ("a\n", "t\n\n"), ("v", "t\nexclusive\n")):
            with self.subTest(volume_id=volume_id, target=target):
                for _ in range(2):
                    self.publish(self.live, target=target, volume_id=volume_id, **more)
                self.driver.restart(signal.SIGKILL)
                self.fails((CODE.FAILED_PRECONDITION,), self.publish, self.live, target="second",
                           volume_id=volume_id, **more)
                self.is_gone("second")
                self.unpublish(target)
                self.assertEqual(os.listdir(self.state), [])

    def test_inline(self):
        os.makedirs(os.path.join(DISK, "live", "sub", "dir"), exist_ok=True)
        pod = {"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "p"}
        self.publish(self.live, volume="sub/dir", mode="SINGLE_NODE_WRITER", **pod)
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            options = [l.split()[5] for l in f if l.split()[4] == self.target("t")]
        self.assertIn("nosuid", options[0])
        self.assertIn("nodev", options[0])
        self.unpublish()
        for hidden in ('x="', '"', 'context="', 'x=\\', 'context="a"x"'):
            for readonly in (False, True):
                with self.subTest(options=hidden, readonly=readonly):
                    self.fails((CODE.INVALID_ARGUMENT,), self.publish, self.live,
                               volume="sub/dir", mode="SINGLE_NODE_WRITER", readonly=readonly,
                               mountOptions=hidden, **pod)
                    self.is_gone("t")
        for option in ("port=2049", "vers=3,mountport=1", "nfsprog=1", "lock,mountprog=1"):
            text, _ = self.fails((CODE.PERMISSION_DENIED,), self.publish, self.live,
                                 volume="sub/dir", mode="SINGLE_NODE_WRITER", mountOptions=option,
                                 **pod)
            self.assertIn("'%s'" % option.rsplit(",", 1)[-1].split("=")[0], text)
        for volume in ("v0", "subway", ".."):
            self.fails((CODE.PERMISSION_DENIED, CODE.INVALID_ARGUMENT), self.publish, self.live,
                       volume=volume, **pod)
        self.fails((CODE.PERMISSION_DENIED,), self.publish, self.dying, volume="sub", **pod)
        # Without pod information kubelet does not say what it is, but for the id.
        self.fails((CODE.PERMISSION_DENIED,), self.publish, self.live, volume_id="csi-" + "0a" * 32)
        self.publish(self.live, volume_id="csi-" + "0a" * 31)
        self.unpublish()
        self.is_gone()

    def test_settings_that_do_not_allow_what_is_mounted(self):
        """A final error would let kubelet forget the mount."""
        os.makedirs(os.path.join(DISK, "live", "sub"), exist_ok=True)
        pod = {"csi.storage.k8s.io/ephemeral": "true"}
        self.publish(self.live, volume="sub", mode="SINGLE_NODE_WRITER", **pod)
        options = self.driver.options
        self.driver.stop()
        try:
            self.driver.options = [o for o in options if not o.startswith("--inline-volumes")]
            self.driver.start()
            for target, code in (("t", CODE.ABORTED), ("other", CODE.PERMISSION_DENIED)):
                text, _ = self.fails((code,), self.publish, self.live, volume="sub", target=target,
                                     mode="SINGLE_NODE_WRITER", **pod)
                self.assertIn("--inline-volumes", text)
        finally:
            self.driver.stop()
            self.driver.options = options
            self.driver.start()
        self.unpublish()
        self.is_gone()


if __name__ == "__main__":
    harness.main("node and faults (%s)" % os.environ["LAB_KIND"])
