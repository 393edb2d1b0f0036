# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The controller with many calls at once, against a real nfs-ganesha: one connection with 200
calls, one name from many callers, create against delete, two controllers on one share, a server
that is stopped beside one that is not, slow ones beside a live one, and clones, snapshots and
restores at once and against deletions. tests/run builds the driver with ThreadSanitizer for it.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import concurrent.futures
import contextlib
import os
import sys
import time
import unittest
from unittest import mock

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import cases
import harness
import trees
from copies import Trees
from csi_client import capability
from driver import Driver
from rpc_proxy import ALWAYS, Proxy, Rule
from servers import Export, Ganesha, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
CODE = grpc.StatusCode
SERVER = "127.0.0.1"
STATE = ".csi-nfs"
CALLERS = 200
TSAN_OPTIONS = "halt_on_error=0 exitcode=66"
ROUNDS = 20 if harness.LONG else 10  # of deletions against clones


def stop_clean(driver):
    """Ends a driver, which must not have had anything to report."""
    status = driver.stop()
    with open(driver.log, encoding="utf-8", errors="replace") as f:
        text = f.read()
    found = text.find("WARNING: ThreadSanitizer")
    if found >= 0 or status != 0:
        raise AssertionError("the driver ended with status %s:\n%s"
                             % (status, text[max(found, 0):][:4000]))


def together(calls):
    """The results of all calls, made at once."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(*call) for call in calls]]


class Through:
    """A server that is reached through a proxy."""

    def __init__(self, server, proxy):
        self.server = server
        self.proxy = proxy
        self.ports = {"port=%d" % server.port: "port=%d" % proxy.port,
                      "mountport=%d" % server.mount_port: "mountport=%d" % proxy.mount_port}
        self.exports = server.exports

    def flags(self, version):
        return [self.ports.get(flag, flag) for flag in self.server.flags(version)]


class Base(unittest.TestCase):
    version = "4"

    @classmethod
    def setUpClass(cls):
        os.environ["TSAN_OPTIONS"] = TSAN_OPTIONS
        tag = cls.__name__
        cls.share = os.path.join(DISK, tag, "share")
        cls.server = Ganesha(os.path.join(LAB, tag), [Export(cls.share)]).start()
        cls.drivers = [Driver(LAB, name="%s-%d" % (tag, i)) for i in range(2)]
        for driver in cls.drivers:
            driver.start()

    @classmethod
    def tearDownClass(cls):
        try:
            for driver in cls.drivers:
                stop_clean(driver)
        finally:
            cls.server.stop()

    @property
    def options(self):
        return self.server.flags(self.version)

    def request(self, name, server=None):
        server = server or self.server
        return {"name": name, "capacity_range": {"required_bytes": 1 << 30},
                "volume_capabilities": [capability(flags=server.flags(self.version))],
                "parameters": {"server": SERVER, "share": server.exports[0].path}}

    def create(self, client, name, server=None):
        """The volume id, or the status code."""
        try:
            return client.CreateVolume(**self.request(name, server)).volume.volume_id
        except grpc.RpcError as e:
            return e.code()

    def delete(self, client, volume_id):
        try:
            client.DeleteVolume(volume_id=volume_id,
                                secrets={"mountOptions": ",".join(self.options)})
            return volume_id
        except grpc.RpcError as e:
            return e.code()

    def volume_id(self, name):
        return "%s#%s#%s##" % (SERVER, self.share.strip("/"), name)

    def directories(self):
        return sorted(n for n in os.listdir(self.share) if n != STATE)

    def records(self):
        return sorted(os.listdir(os.path.join(self.share, STATE, "volumes")))

    def until_clean(self):
        """Deletes what is left, as a CO does that was told ABORTED."""
        client = self.drivers[0].client
        for name in set(self.records()) | set(self.directories()):
            self.assertEqual(self.delete(client, self.volume_id(name)), self.volume_id(name))
        self.assertTrue(wait_for(lambda: not self.directories() and not self.records()))


class OnVersion4(Base):

    def setUp(self):
        self.addCleanup(self.until_clean)  # also of a case that failed

    def test_many_calls_on_one_connection(self):
        client = self.drivers[0].client
        names = ["many-%d" % i for i in range(CALLERS)]
        self.assertEqual(together([(self.create, client, n) for n in names]),
                         [self.volume_id(n) for n in names])
        self.assertEqual(self.directories(), sorted(names))
        self.assertEqual(self.records(), sorted(names))
        listed = [e.volume.volume_id for e in client.ListVolumes().entries]
        self.assertEqual(listed, [self.volume_id(n) for n in sorted(names)])
        ids = [self.volume_id(n) for n in names]
        self.assertEqual(together([(self.delete, client, i) for i in ids]), ids)
        self.assertEqual(self.directories() + self.records(), [])

    def test_one_name_from_many_callers_and_two_controllers(self):
        for number in range(5):
            name = "one-%d" % number
            got = together([(self.create, self.drivers[i % 2].client, name)
                            for i in range(CALLERS)])
            self.assertLessEqual(set(got), {self.volume_id(name), CODE.ABORTED})
            self.assertIn(self.volume_id(name), got)
            self.assertEqual((self.directories(), self.records()), ([name], [name]))
            self.until_clean()

    def test_create_against_delete(self):
        """Whatever wins: a record and a directory, or neither, once somebody asks again."""
        for number in range(5):
            name = "torn-%d" % number
            calls = []
            for i in range(CALLERS):
                client = self.drivers[i % 2].client
                calls.append((self.create, client, name) if i % 4 < 2 else
                             (self.delete, client, self.volume_id(name)))
            got = together(calls)
            self.assertLessEqual(set(got), {self.volume_id(name), CODE.ABORTED, CODE.UNAVAILABLE})
            self.assertEqual(self.create(self.drivers[1].client, name), self.volume_id(name))
            self.assertEqual((self.directories(), self.records()), ([name], [name]))
            self.until_clean()

    def test_a_stopped_server_beside_a_live_one(self):
        """Calls to a server that does not answer keep no others waiting, however many there are.
        They are held without a worker for some time, and all say the same."""
        other = Ganesha(os.path.join(LAB, self.id()), [Export(self.share + "-other")]).start()
        self.addCleanup(other.stop)
        client = self.drivers[0].client
        try:
            there = self.create(client, "there", other)
            self.assertEqual(there.split("#")[2], "there")
            other.freeze()
            with concurrent.futures.ThreadPoolExecutor(100) as pool:
                stuck = [pool.submit(self.create, client, "stuck-%d" % i, other)
                         for i in range(100)]
                begun = time.monotonic()
                for i in range(50):
                    self.assertEqual(self.create(client, "live-%d" % i),
                                     self.volume_id("live-%d" % i))
                    client.Probe(timeout=5)
                alive = time.monotonic() - begun
                codes = {f.result() for f in stuck}
            self.assertLessEqual(codes, {CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED})
            self.assertLess(alive, 10)
            self.held(client, other)
        finally:
            other.thaw()
        back = there.replace("there", "back")
        self.assertTrue(wait_for(lambda: self.create(client, "back", other) == back, 40))

    def test_a_slow_server_beside_a_live_one(self):
        """Calls to a server that answers, and takes its time, leave workers for other servers.
        However many there are, all are made in the end."""
        other = Ganesha(os.path.join(LAB, self.id()), [Export(self.share + "-slow")]).start()
        self.addCleanup(other.stop)
        client = self.drivers[0].client
        with Proxy(other.port, other.mount_port) as proxy:
            slow = Through(other, proxy)
            self.create(client, "there", slow)
            proxy.begin([Rule("changing", 1, "delay-call", 1.5, ALWAYS)])
            names = ["slow-%d" % i for i in range(120)]
            with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
                calls = [pool.submit(self.create, client, name, slow) for name in names]
                self.assertTrue(wait_for(lambda: sum(proxy.counts.values()) > 15))
                for i in range(5):
                    self.assertEqual(self.create(client, "live-%d" % i),
                                     self.volume_id("live-%d" % i))
                done = sum(call.done() for call in calls)
                proxy.end()
                made = [call.result().split("#")[2] for call in calls]
        self.assertLess(done, 17)  # those that were at work first
        self.assertEqual(made, names)

    def test_several_slow_servers_beside_a_live_one(self):
        """However many calls for slow servers there are, a worker is left for another one."""
        other = Ganesha(os.path.join(LAB, self.id()), [Export(self.share + "-slow")]).start()
        self.addCleanup(other.stop)
        with contextlib.ExitStack() as stack:
            slow = [Through(other, stack.enter_context(Proxy(other.port, other.mount_port)))
                    for _ in range(3)]
            driver = Driver(LAB, "--mode=controller", name=self.id()[-20:]).start()
            self.addCleanup(stop_clean, driver)
            for i, server in enumerate(slow):
                self.create(driver.client, "there-%d" % i, server)
                server.proxy.begin([Rule("changing", 1, "delay-call", 3, ALWAYS)])
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(180))
            calls = [pool.submit(self.create, driver.client, "slow-%d" % i, slow[i % len(slow)])
                     for i in range(180)]
            self.assertTrue(wait_for(lambda: all(sum(s.proxy.counts.values()) for s in slow)))
            time.sleep(0.5)  # the others queue up
            begun = time.monotonic()
            for i in range(5):
                self.assertEqual(self.create(driver.client, "live-%d" % i),
                                 self.volume_id("live-%d" % i))
            alive = time.monotonic() - begun
            for server in slow:
                server.proxy.end()
            refused = {call.result() for call in calls} - {
                "%s#%s#slow-%d##" % (SERVER, other.exports[0].path.strip("/"), i)
                for i in range(180)}
        self.assertLessEqual(refused, {CODE.UNAVAILABLE})
        self.assertLess(alive, 10)

    def held(self, client, server):
        """Wait as long as the deadline allows, and answer before it."""
        self.create(client, "asks", server)
        begun = time.monotonic()
        texts = set()
        for i in range(2):
            # Of its own each: the handler of a call that is answered may still ask the server.
            with self.assertRaises(grpc.RpcError) as caught:
                client.CreateVolume(timeout=5, **self.request("held-%d" % i, server))
            texts.add((caught.exception.code(), caught.exception.details()))
        self.assertGreater(time.monotonic() - begun, 2)
        self.assertEqual(len(texts), 1, texts)
        code, text = texts.pop()
        self.assertEqual(code, CODE.UNAVAILABLE)
        self.assertIn("does not answer", text)


class OnVersion3(OnVersion4):
    version = "3"


class Copies(Trees):
    """Clones, snapshots and restores, of which the driver makes three at a time on a server."""

    @classmethod
    def plant(cls):
        """Without large files, which take ThreadSanitizer long and tell it nothing new."""
        maker = trees.Maker(os.path.join(cls.share, "small"), 3)
        for part in (maker.names, maker.links, maker.hard_links, maker.owners, maker.modes):
            part()
        maker.deep(20)
        maker.many(150)
        maker.times()
        trees.make_plain(os.path.join(cls.share, "plain"))

    @classmethod
    def setUpClass(cls):
        os.environ["TSAN_OPTIONS"] = TSAN_OPTIONS
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        try:
            stop_clean(cls.driver)
        finally:
            cls.server.stop()

    def codes(self, call, until=(CODE.OK,), pause=0.02):
        """What a call is answered that is made until one of these codes comes."""
        seen = []
        end = time.monotonic() + 60
        while not seen or seen[-1] not in until:
            if seen:
                self.assertLess(time.monotonic(), end, "no end, the last answer: %s" % seen[-1])
                time.sleep(pause)
            try:
                call()
                seen.append(CODE.OK)
            except grpc.RpcError as e:
                seen.append(e.code())
                self.assertIn(e.code(), until + (CODE.ABORTED,), e.details())
        return seen

    def all_at_once(self, calls):
        """Every answer to calls that are made as often as it takes."""
        return sum(together([(self.codes, call) for call in calls]), [])

    def test_many_at_once(self):
        for _ in range(3 if harness.LONG else 1):
            self.many_at_once()

    def many_at_once(self):
        source = self.source("small")
        first = self.snap("first", source).snapshot_id
        size = os.path.getsize(self.driver.log)
        clones = ["clone-%d" % i for i in range(4)]
        restores = ["restore-%d" % i for i in range(2)]
        hows = ("none", "gzip", "zstd")
        codes = self.all_at_once(
            [lambda n=n: self.clone(n, source) for n in clones]
            + [lambda h=h: self.snap("snap-" + h, source, compression=h) for h in hows]
            + [lambda n=n: self.restore(n, first) for n in restores])
        # Six wait for their turn in the driver, which refuses each only every 20 s.
        self.assertLess(codes.count(CODE.ABORTED), 30, codes)
        self.assertRegex(self.driver.logged_since(size),
                         "Call waits until .*copies and archives are already")
        for name in clones:
            self.is_copy("small", name)
        for how in hows:
            self.is_archive_of("small", self.archive("snap-" + how, "small", how))
        for name in restores:
            self.is_restored("small", name)
        snapshots = [first] + [self.snapshot_id("snap-" + h, "small") for h in hows]
        self.all_at_once([lambda n=n: self.delete(self.volume_id(n)) for n in clones + restores]
                         + [lambda s=s: self.unsnap(s) for s in snapshots])
        self.is_tidy()

    def test_copies_of_a_slow_server_beside_a_live_one(self):
        """Copies that take long keep their turns, and others of that server wait for theirs. Those
        of another server have turns of their own."""
        share = os.path.join(self.place, "slow")
        trees.make_plain(os.path.join(share, "source"), count=3)
        other = Ganesha(os.path.join(LAB, self.id()), [Export(share, self.protocols)],
                        protocols=self.protocols).start()
        self.addCleanup(other.stop)
        size = os.path.getsize(self.driver.log)
        names = ["slow-%d" % i for i in range(6)]
        with Proxy(other.port, other.mount_port) as proxy:
            with mock.patch.object(self, "server", Through(other, proxy)):
                secrets = self.secrets
                source = self.create("source", share=share).volume_id
                requests = [self.request(name, share=share) for name in names]
            proxy.begin([Rule("READ", 1, "delay-call", 300, ALWAYS)])
            with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
                calls = [pool.submit(self.until_ok, lambda r=r: self.client.CreateVolume(
                    volume_content_source={"volume": {"volume_id": source}}, **r), 120)
                         for r in requests]
                try:
                    self.assertTrue(wait_for(lambda: self.driver.logged_since(size).count(
                        "copies and archives are already") >= 3))
                    beside = self.source("plain")
                    live = together([(self.clone, "live-%d" % i, beside) for i in range(3)])
                    self.assertFalse(any(call.done() for call in calls))
                finally:
                    proxy.end()
                slow = [call.result().volume for call in calls]
            for volume in slow:
                self.client.DeleteVolume(volume_id=volume.volume_id, secrets=secrets)
        for volume in live:
            self.delete(volume.volume_id)

    def test_deletion_against_a_clone(self):
        """Of its source, and of itself. Whatever wins: all of the tree, or nothing."""
        seen = {"clone": [], "source": [], "itself": []}
        for number in range(ROUNDS):
            names = ["source-%d" % number, "clone-%d" % number]
            source = self.clone(names[0], self.source("plain")).volume_id
            itself = self.volume_id(names[1])
            self.race(seen, number, source, itself)
            self.assertFalse(os.path.lexists(self.path(names[0])))
            if os.path.lexists(self.path(names[1])):
                self.is_copy("plain", names[1])
            self.delete(itself)
        self.assertLessEqual(set(seen["clone"]), {CODE.OK, CODE.ABORTED, CODE.NOT_FOUND})
        for who in ("source", "itself"):
            self.assertEqual(set(seen[who]), {CODE.OK, CODE.ABORTED}, "no race: " + who)
        self.is_tidy()

    def race(self, seen, number, source, itself):
        """One clone and two deletions, which begin a little later in each round. That of the clone
        is given up in every other one when it is refused, so that something is left to look at."""
        def later(call, until=(CODE.OK,)):
            time.sleep(number * 0.2 / ROUNDS)
            return self.codes(call, until, pause=0.005)

        got = together([
            (self.codes, lambda: self.clone("clone-%d" % number, source),
             (CODE.OK, CODE.NOT_FOUND, CODE.FAILED_PRECONDITION)),
            (later, lambda: self.delete(source)),
            (later, lambda: self.delete(itself), (CODE.OK, CODE.ABORTED)[:1 + number % 2])])
        for who, codes in zip(("clone", "source", "itself"), got):
            seen[who] += codes


class CopiesOnVersion3(Copies, cases.Base):
    protocols = "3"
    version = "3"


class CopiesOnVersion4(Copies, cases.Base):
    protocols = "4"
    version = "4"


if __name__ == "__main__":
    harness.main("concurrent calls")
