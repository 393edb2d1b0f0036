#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Whether the adversary does what it says: each fault reaches the driver, the same rules hit the
same calls, and the oracle finds what is wrong with a copy.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import harness  # noqa: E402
import trees  # noqa: E402
import wire  # noqa: E402
from changing import Changing  # noqa: E402
from rpc_proxy import Rule  # noqa: E402
from world import CODE, Broken, Case, Server, decode, plant  # noqa: E402

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]


class Faults(unittest.TestCase):
    """Of the proxy, by what the driver makes of them."""

    number = 0

    @classmethod
    def setUpClass(cls):
        cls.server = Server(os.path.join(LAB, "faults"), os.path.join(DISK, "faults"))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def case(self, version="3"):
        Faults.number += 1
        case = Case(self.server, "case-%d" % self.number, version, ("--window=1",))
        self.addCleanup(case.__exit__)
        return case.__enter__()

    def under(self, case, rules, call=None):
        """Creates a volume, or what call says, by rules: the error, and what was counted."""
        case.proxy.begin(rules, versions=case.versions)
        failure = case.once("CreateVolume", **(call or case.request("v")))[1]
        counts = dict(case.proxy.counts)
        self.assertEqual(case.proxy.problems, [])
        for rule, hits in case.proxy.end():
            self.assertGreater(hits, 0, rule)
        return failure, counts

    def clone_of(self, case, big=600000):
        source = case.must("CreateVolume", **case.request("source")).volume.volume_id
        plant(case.path("source"), big)
        for i in range(40):
            trees.write(case.path("source", "d", "file-%d" % i))
        os.sync()  # what takes no room yet may be taken for a hole
        return case.request("copy", source=("volume", source))

    def is_copied(self, case):
        self.assertEqual(trees.differences(trees.survey(case.path("source")),
                                           trees.survey(case.path("copy"))), [])

    def test_errors_are_told(self):
        for version in ("3", "4.0", "4.2"):
            for name, code in (("NOSPC", CODE.RESOURCE_EXHAUSTED), ("IO", CODE.UNAVAILABLE),
                               ("ACCES", CODE.PERMISSION_DENIED)):
                with self.subTest(version=version, status=name):
                    case = self.case(version)
                    failure, _ = self.under(case, [Rule("MKDIR", 1, "status " + name)])
                    self.assertIsNotNone(failure, "it is answered OK")
                    self.assertEqual(failure.code(), code)
                    self.assertFalse(os.path.exists(case.path("v")))

    def test_delay_is_asked_again(self):
        for version in ("3", "4.0", "4.2"):
            case = self.case(version)
            failure, counts = self.under(case, [Rule("MKDIR", 1, "status DELAY", count=2)])
            self.assertIsNone(failure)
            self.assertEqual(counts["MKDIR"], 3)

    def test_cut_before_and_after(self):
        for version in ("3", "4.0", "4.2"):
            for what, done in (("cut-before", False), ("cut-after", True)):
                with self.subTest(version=version, what=what):
                    case = self.case(version)
                    there = []

                    def look(_, case=case, there=there):
                        case.kill()
                        there.append(os.path.isdir(case.path("v")))
                    rules = [Rule("MKDIR", 1, "hook-after", look)] if done else \
                        [Rule("MKDIR", 1, "hook", look), Rule("MKDIR", 1, what)]
                    self.assertIsNotNone(self.under(case, rules)[0])
                    self.assertEqual(there, [done])
                    self.assertEqual(os.path.isdir(case.path("v")), done)

    def test_a_connection_that_is_cut(self):
        for what in ("cut-before", "cut-after"):
            case = self.case()
            self.under(case, [Rule("MKDIR", 1, what)])
            case.must("CreateVolume", **case.request("v"))
            self.assertTrue(os.path.isdir(case.path("v")))

    def test_slowness(self):
        for what, value in (("delay-call", 0.5), ("delay-reply", 0.5), ("stall", 0.5),
                            ("trickle", 0.005)):
            with self.subTest(what=what):
                case = self.case()
                begun = time.monotonic()
                self.assertIsNone(self.under(case, [Rule("MKDIR", 1, what, value)])[0])
                self.assertGreater(time.monotonic() - begun, 0.5)

    def test_a_call_that_is_held(self):
        case = self.case()
        held = threading.Event()
        case.proxy.begin([Rule("SYMLINK|MKDIR", 2, "hold", held.set)], versions=case.versions)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(case.once, "CreateVolume", **case.request("v"))
            self.assertTrue(held.wait(20), case.proxy.trace())
            time.sleep(0.3)
            self.assertFalse(call.done() or os.path.exists(case.path("v")), case.proxy.trace())
            case.proxy.end()
            self.assertIsNone(call.result()[1])
        self.assertTrue(os.path.isdir(case.path("v")))

    def test_an_answer_twice(self):
        case = self.case()
        self.under(case, [Rule("SYMLINK", 1, "double")])
        case.must("CreateVolume", **case.request("v"))

    def test_a_change_gets_its_first_answer(self):
        """A session sends a change whose reply was lost again, with the same slot and number."""
        for name in ("MKDIR", "SYMLINK", "RENAME", "REMOVE", "RMDIR", "CREATE", "LINK"):
            with self.subTest(name=name):
                case = self.case("4.2")
                request = self.clone_of(case)
                sent = []

                def keep(call, name=name, sent=sent):
                    if call.name == name:
                        at = call.ops[0].at
                        sent.append(bytes(call.data[at:at + 24]))  # session, number, slot
                rule = Rule(name, 1 if name == "LINK" else 2, "cut-after")
                case.proxy.begin([rule], keep, case.versions)
                self.assertIsNone(case.once("CreateVolume", **request)[1])
                self.is_copied(case)
                case.must_delete(case.volume_id("copy"))
                case.purged()
                self.assertEqual(case.proxy.problems, [])
                self.assertEqual(rule.hits, 1)
                self.assertEqual(len(sent) - len(set(sent)), 1)

    def test_short_pages_and_reads(self):
        for version in ("3", "4.0", "4.2"):
            case = self.case(version)
            request = self.clone_of(case)
            plain = self.under(case, [], request)[1]
            case.must_delete(case.volume_id("copy"))
            failure, short = self.under(case, [Rule("READDIR", 1, "short-page", 1500, 1000),
                                               Rule("READ", 1, "short-read", 10000, 1000)], request)
            self.assertIsNone(failure)
            pages = "READDIRPLUS" if version == "3" else "READDIR"
            self.assertGreater(short[pages], plain[pages] + 3)
            self.assertGreater(short["READ"], plain["READ"] + 50)
            self.is_copied(case)

    def test_writes_that_are_lost_are_made_again(self):
        for version in ("3", "4.0", "4.2"):
            case = self.case(version)
            request = self.clone_of(case, big=2000000)
            plain = self.under(case, [], request)[1]
            case.must_delete(case.volume_id("copy"))
            rule = Rule("WRITE", 1, "lose-write", count=1000)
            case.proxy.begin([rule], versions=case.versions)
            case.once("CreateVolume", timeout=5, **request)
            lost = rule.hits
            case.proxy.end()
            self.assertGreater(lost, 0, plain)
            case.must("CreateVolume", **request)
            self.is_copied(case)

    def test_the_same_rules_hit_the_same_calls(self):
        traces = []
        for _ in range(2):
            case = self.case()
            # The purger may look at the share meanwhile, but it has nothing to change there.
            self.under(case, [Rule("MKDIR", 3, "status DELAY"),
                              Rule("changing", 2, "delay-reply", 0.01)],
                       case.request("v", subDir="a/b/v"))
            # Names of notes about parents have the numbers of this share's directories.
            lines = [re.sub(r"~[0-9a-f.]+$", "~", re.sub(r"^ *\d+ ", "", line))
                     for line in case.proxy.trace()]
            traces.append([line for line in lines
                           if "^" in line or line.split()[1] in wire.MUTATING])
        self.assertEqual(*traces)
        self.assertIn("MKDIR#3", str(traces[0]))


class Oracle(unittest.TestCase):
    """What Changing finds in copies."""

    def setUp(self):
        self.place = os.path.join(DISK, "oracle")
        self.copy = os.path.join(self.place, "copy")
        os.makedirs(os.path.join(self.place, "tree"))
        self.addCleanup(shutil.rmtree, self.place)
        self.tree = Changing(os.path.join(self.place, "tree"), 1)

    def copied(self):
        subprocess.run(["cp", "-a", self.tree.root, self.copy], check=True)

    def path(self, name):
        return os.path.join(self.copy, name)

    def is_wrong(self, *words):
        with self.assertRaises(Broken) as got:
            self.tree.check(self.copy)
        for word in words:
            self.assertIn(word, str(got.exception))

    def again(self, name, data):
        """Other data in the copy, at the old time."""
        when = os.lstat(self.path(name)).st_mtime_ns
        with open(self.path(name), "r+b") as f:
            f.write(data)
        os.utime(self.path(name), ns=(when, when))

    def test_a_copy_before_in_between_and_after(self):
        for _ in range(100):
            if self.tree.number % 7 == 0:
                self.copied()
                self.tree.check(self.copy)
                shutil.rmtree(self.copy)
            self.tree.step()
        self.copied()
        self.tree.check(self.copy)

    def test_a_missing_name(self):
        self.copied()
        os.unlink(self.path("busy/hot-0"))
        self.is_wrong("busy/hot-0 is missing")

    def test_a_name_too_many(self):
        self.copied()
        trees.write(self.path("still/more"))
        self.is_wrong("still/more was never there")

    def test_another_byte(self):
        self.copied()
        self.again("busy/hot-0", b"\0")
        self.is_wrong("busy/hot-0 is none of the 1", "from byte 0 on")

    def test_half_of_two_versions(self):
        self.copied()
        with open(self.path("busy/hot-0"), "rb") as f:
            old = f.read()
        for _ in range(100):
            self.tree.step("replace")
        new = self.tree.now["busy/hot-0"].data
        self.assertNotEqual(new, old)
        self.again("busy/hot-0", new[:100])
        self.is_wrong("busy/hot-0 is none of")

    def test_written_in_place(self):
        before = self.tree.now["busy/hot-0"].data
        while not self.tree.now["busy/hot-0"].is_written:
            self.tree.step("write")
        self.copied()
        self.again("busy/hot-0", before[:4096])  # each byte stood there
        self.tree.check(self.copy)
        self.again("busy/hot-0", b"\xff")
        self.is_wrong("byte 0 is 0xff")

    def test_attributes(self):
        for change, word in ((lambda p: os.chmod(p, 0o600), "its mode is 600"),
                             (lambda p: os.chown(p, 7, 7), "it belongs to 7:7"),
                             (lambda p: os.utime(p, (1, 1)), "its time is")):
            self.copied()
            change(self.path("busy/hot-0"))
            self.is_wrong(word)
            shutil.rmtree(self.copy)

    def test_links(self):
        self.copied()
        subprocess.run(["cp", "-a", "--remove-destination",
                        os.path.join(self.tree.root, "busy/linked"), self.path("busy/linked")],
                       check=True)
        self.is_wrong("is linked with")


class Wire(unittest.TestCase):
    """What needs no server."""

    def test_what_is_no_call(self):
        for data in (b"", b"\0" * 40, os.urandom(20)):
            with self.assertRaises(wire.Malformed):
                wire.Call(data)

    def test_records(self):
        self.assertEqual(decode("v=1;name=a%3Bb;p.share=/x"),
                         {"v": "1", "name": "a;b", "p.share": "/x"})


if __name__ == "__main__":
    harness.main("proxy")
