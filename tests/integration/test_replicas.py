# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Two controllers on one share, as the manifests have them, against a real nfs-ganesha.

Pairs: one replica is held at each operation of a call that changes the share, in turn; the other
one makes a call that conflicts with it; then the first goes on. Seeds: both are driven at once,
with few names. Afterwards nothing may be on the share that a record does not name, and nothing be
missing.

    test_replicas.py [--seeds N] [--first SEED] [Class[.test]...]

Runs inside a lab, with CSI_NFS naming the driver.
"""
import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
from csi_client import capability
from driver import Driver
from rpc_proxy import Proxy, Rule
from servers import Export, Ganesha, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
CODE = grpc.StatusCode
GIB = 1 << 30
SERVER = "127.0.0.1"
STATE = ".csi-nfs"
AGAIN = (CODE.ABORTED, CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED)
POINTS_MAX = 80  # operations of one call
SEEDS = 3
STEPS = 30  # of each of the callers of a seed
PATIENCE = 3  # seconds, of --replica-timeout


class Replica:
    """A controller, and the calls that it is asked. Each answers a code."""

    def __init__(self, case, driver, flags):
        self.case = case
        self.driver = driver
        self.flags = flags

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.flags)}

    def ask(self, method, **fields):
        try:
            getattr(self.driver.client, method)(**fields)
        except grpc.RpcError as e:
            return e.code()
        return CODE.OK

    def create(self, name, content=None, **parameters):
        fields = {"volume_content_source": content} if content else {}
        return self.ask("CreateVolume", name=name, secrets=self.secrets,
                        capacity_range={"required_bytes": GIB},
                        volume_capabilities=[capability(flags=self.flags)],
                        parameters={"server": SERVER, "share": self.case.share, **parameters},
                        **fields)

    def clone(self, name, source):
        return self.create(name, {"volume": {"volume_id": self.case.volume_id(source)}})

    def restore(self, name, snapshot, source):
        return self.create(name, {"snapshot": {
            "snapshot_id": self.case.snapshot_id(snapshot, source)}})

    def delete(self, name, directory=None, policy=""):
        return self.ask("DeleteVolume", volume_id=self.case.volume_id(name, directory, policy),
                        secrets=self.secrets)

    def snap(self, name, source):
        return self.ask("CreateSnapshot", name=name, secrets=self.secrets,
                        source_volume_id=self.case.volume_id(source),
                        parameters={"compression": "none"})

    def snap_tree(self, name, source):
        return self.ask("CreateSnapshot", name=name, secrets=self.secrets,
                        source_volume_id=self.case.volume_id(source),
                        parameters={"format": "tree"})

    def unsnap(self, name, source):
        return self.ask("DeleteSnapshot", snapshot_id=self.case.snapshot_id(name, source),
                        secrets=self.secrets)

    def expand(self, name, gibibytes):
        return self.ask("ControllerExpandVolume", volume_id=self.case.volume_id(name),
                        capacity_range={"required_bytes": gibibytes * GIB},
                        volume_capability=capability(), secrets=self.secrets)

    def modify(self, name, **parameters):
        return self.ask("ControllerModifyVolume", volume_id=self.case.volume_id(name),
                        mutable_parameters=parameters, secrets=self.secrets)


def until_answered(call, *args, seconds=60, **more):
    """The first answer that a CO does not ask again after."""
    end = time.monotonic() + seconds
    pause = 0.01
    while True:
        code = call(*args, **more)
        if code not in AGAIN or time.monotonic() > end:
            return code
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


class Base(unittest.TestCase):
    maxDiff = None
    options = ()  # of both drivers
    squash = "No_Root_Squash"

    @classmethod
    def setUpClass(cls):
        tag = cls.__name__
        cls.share = os.path.join(DISK, tag, "share")
        cls.server = Ganesha(os.path.join(LAB, tag),
                             [Export(cls.share, squash=cls.squash)]).start()
        cls.proxy = Proxy(cls.server.port).start()
        direct = cls.server.flags("3")
        held = ["port=%d" % cls.proxy.port if f.startswith("port=") else f for f in direct]
        cls.replicas = []
        for number, flags in enumerate((held, direct)):
            driver = Driver(LAB, "--replica-timeout=%d" % PATIENCE, *cls.options,
                            name="%s-%d" % (tag, number))
            driver.start()
            cls.replicas.append(Replica(cls, driver, flags))

    @classmethod
    def tearDownClass(cls):
        try:
            for replica in cls.replicas:
                if replica.driver.process is not None:
                    replica.driver.process.send_signal(signal.SIGCONT)
                replica.driver.stop()
        finally:
            cls.proxy.stop()
            cls.server.stop()

    @classmethod
    def volume_id(cls, name, directory=None, policy=""):
        key = name if directory else ""
        return "#".join((SERVER, cls.share.strip("/"), directory or name, key, policy))

    @classmethod
    def snapshot_id(cls, name, source):
        return "#".join((SERVER, cls.share.strip("/"), name, name, source))

    def state(self, folder):
        path = os.path.join(self.share, STATE, folder)
        return sorted(os.listdir(path)) if os.path.isdir(path) else []

    def directories(self):
        return sorted(n for n in os.listdir(self.share)
                      if n != STATE and not n.startswith("archived-"))

    def records(self):
        return sorted(self.state("volumes") + self.state("snapshots"))

    def leftovers(self):
        return [f + "/" + n for f in ("busy", "work", "trash") for n in self.state(f)]

    def is_consistent(self, names=None):
        """Each record has a directory, each directory a record, and nothing is under way."""
        wait_for(lambda: not self.leftovers(), 20)
        self.assertEqual(self.leftovers(), [], self.log())
        self.assertEqual(self.records(), self.directories(), self.log())
        if names is not None:
            self.assertEqual(self.directories(), sorted(names), self.log())

    def log(self):
        """What the drivers say last, and what is on the share."""
        found = subprocess.run(["find", self.share, "-printf", "%P %y %l\\n"], text=True,
                               stdout=subprocess.PIPE, check=False).stdout
        return "\n".join([r.driver.tail(12) for r in self.replicas] + sorted(found.splitlines()))

    def put_data(self, name, text="data"):
        with open(os.path.join(self.share, name, "file"), "w", encoding="ascii") as f:
            f.write(text)

    def data(self, name):
        with open(os.path.join(self.share, name, "file"), encoding="ascii") as f:
            return f.read()

    def record(self, name):
        return os.readlink(os.path.join(self.share, STATE, "volumes", name))

    def archive_is_whole(self, name, source, text="data"):
        with tarfile.open(os.path.join(self.share, name, source + ".tar")) as tar:
            found = [m for m in tar.getmembers() if m.name.endswith("file")]
            self.assertEqual(len(found), 1)
            self.assertEqual(tar.extractfile(found[0]).read().decode(), text)

    def is_ok(self, *codes):
        self.assertEqual(set(codes), {CODE.OK}, self.log())


class Pairs(Base):
    """The second replica's call in the middle of the first one's."""

    def setUp(self):
        self.held, self.other = self.replicas
        self.number = 0
        # So that a call has no folders to make, and its operations are the same each time.
        self.is_ok(until_answered(self.held.create, "warm"))
        self.put_data("warm")
        self.is_ok(until_answered(self.held.snap, "warm-snap", "warm"),
                   until_answered(self.held.unsnap, "warm-snap", "warm"),
                   until_answered(self.held.delete, "warm"))

    def tearDown(self):
        # What a failure left is not the next one's.
        for name in self.state("snapshots"):
            if "~" not in name:
                for source in self.directories():
                    until_answered(self.other.unsnap, name, source, seconds=10)
        for name in set(self.state("volumes")) | set(self.directories()):
            if "~" not in name:
                until_answered(self.other.delete, name, seconds=10)

    def hold(self, calls, number):
        """Hold the first replica at its call of that number of these, until self.proxy.end().
        Return an event: it is held."""
        held = threading.Event()
        self.proxy.begin([Rule(calls, number, "hold", held.set)])
        return held

    def at_each_point(self, prepare, first, second, check, calls="changing"):
        """first is held at each of its operations, in turn: for each, prepare(), second() in the
        middle of first(), and check() with their answers. The names are new ones each time."""
        for point in range(1, POINTS_MAX):
            self.number += 1
            n = str(self.number)
            prepare(n)
            with self.subTest(point=point), concurrent.futures.ThreadPoolExecutor(1) as pool:
                held = self.hold(calls, point)
                running = pool.submit(first, n)
                self.assertTrue(wait_for(lambda: held.is_set() or running.done(), 60))
                reached = held.is_set()
                code = second(n) if reached else None
                self.proxy.end()
                check(n, running.result(), code)
            if not reached:
                self.assertGreater(point, 1, "nothing was held")
                return
        self.fail("no end of operations")

    def settle(self, first, second, n, codes):
        """Both again, as often as they say so."""
        a, b = codes
        while a in AGAIN or b in AGAIN or b is None:
            if b in AGAIN or b is None:
                b = until_answered(second, n)
            if a in AGAIN:
                a = until_answered(first, n)
        return a, b

    def volume(self, n):
        self.is_ok(until_answered(self.other.create, "v" + n))
        self.put_data("v" + n)

    def snapshot(self, n):
        self.volume(n)
        self.is_ok(until_answered(self.other.snap, "s" + n, "v" + n))

    def snapshot_tree(self, n):
        self.volume(n)
        self.is_ok(until_answered(self.other.snap_tree, "s" + n, "v" + n))

    def pair(self, prepare, first, second, left, also=None):
        """Whichever wins: both come to an end, and what they leave is what left says."""
        def check(n, a, b):
            a, b = self.settle(first, second, n, (a, b))
            self.assertIn(a, (CODE.OK, CODE.NOT_FOUND), self.log())
            self.assertIn(b, (CODE.OK, CODE.NOT_FOUND), self.log())
            self.is_consistent()
            if left is not None:
                self.is_consistent([prefix + n for prefix in left])
            if also is not None:
                also(n, a, b)
            self.clear(n)

        self.at_each_point(prepare, first, second, check)

    def clear(self, n):
        if self.has_snapshot(n):
            self.is_ok(until_answered(self.other.unsnap, "s" + n, "v" + n))
        for name in ("v" + n, "w" + n):
            self.is_ok(until_answered(self.other.delete, name))
        self.is_consistent([])

    def nothing(self, n):
        pass

    # ---- one volume ----

    def test_create_and_delete(self):
        """The deletion of a volume that is being made: either it was there in time, or not."""
        self.pair(self.nothing, lambda n: self.held.create("v" + n),
                  lambda n: self.other.delete("v" + n), None)

    def test_create_and_create(self):
        self.pair(self.nothing, lambda n: self.held.create("v" + n),
                  lambda n: self.other.create("v" + n), ["v"])

    def test_delete_and_create(self):
        """Under the name that is being deleted: the new one is empty, or is deleted as well."""
        def is_empty(n, *_):
            if os.path.isdir(os.path.join(self.share, "v" + n)):
                self.assertEqual(os.listdir(os.path.join(self.share, "v" + n)), [])

        self.pair(self.volume, lambda n: self.held.delete("v" + n),
                  lambda n: self.other.create("v" + n), None, is_empty)

    def test_delete_and_delete(self):
        self.pair(self.volume, lambda n: self.held.delete("v" + n),
                  lambda n: self.other.delete("v" + n), [])

    def test_delete_late(self):
        """A deletion that waits while another replica finishes it, and makes the volume anew: the
        new one keeps its directory, and what is in it."""
        def again(n):
            until_answered(self.other.delete, "v" + n)
            code = until_answered(self.other.create, "v" + n)
            self.put_data("v" + n, "new")
            return code

        def check(n, a, b):
            # It may be held before it has begun; then it deletes the new one, as it should.
            self.assertIn(a, (CODE.OK,) + AGAIN)
            self.is_consistent()
            if b == CODE.OK and os.path.isdir(os.path.join(self.share, "v" + n)):
                self.assertEqual(self.data("v" + n), "new")
                kept.append(n)
            self.clear(n)

        kept = []
        self.at_each_point(self.volume, lambda n: self.held.delete("v" + n), again, check)
        self.assertTrue(kept)

    def test_delete_late_empty(self):
        """The same of a volume without data, whose directory goes by RMDIR."""
        def again(n):
            until_answered(self.other.delete, "v" + n)
            return until_answered(self.other.create, "v" + n)

        def check(n, a, b):
            self.assertIn(a, (CODE.OK,) + AGAIN)
            self.is_consistent()
            if b == CODE.OK and os.path.isdir(os.path.join(self.share, "v" + n)):
                kept.append(n)
            self.clear(n)

        kept = []
        self.at_each_point(lambda n: self.is_ok(until_answered(self.other.create, "v" + n)),
                           lambda n: self.held.delete("v" + n), again, check)
        self.assertTrue(kept)

    def late(self, prepare, first, second, stays, *more):
        """first goes on after second has deleted the same and made another one in its place: it may
        be told so, and stays() says that the other one is whole. Also held at what only reads."""
        def check(n, a, b):
            self.assertIn(a, (CODE.OK, CODE.NOT_FOUND, CODE.FAILED_PRECONDITION) + AGAIN)
            self.assertTrue(wait_for(lambda: not self.leftovers(), 20), self.log())
            if b == CODE.OK:
                stays(n)
                kept.append(n)
            for name in more:
                until_answered(self.other.delete, "v" + n, name + n)
            self.clear(n)

        kept = []
        self.at_each_point(prepare, first, second, check, "changing|LOOKUP|READDIR|READLINK")
        self.assertTrue(kept)

    def test_delete_late_another_of_the_name(self):
        """A volume of the same name in another directory."""
        def prepare(n):
            self.is_ok(until_answered(self.other.create, "v" + n, subDir="a" + n))

        def again(n):
            until_answered(self.other.delete, "v" + n, "a" + n)
            code = until_answered(self.other.create, "v" + n, subDir="b" + n)
            self.put_data("b" + n, "new")
            return code

        def stays(n):
            self.assertEqual(self.data("b" + n), "new")
            self.assertIn("v" + n, self.state("volumes"), self.log())
            self.assertIn("b" + n, self.record("v" + n))

        self.late(prepare, lambda n: self.held.delete("v" + n, "a" + n), again, stays, "a", "b")

    def test_delete_late_of_a_foreign_volume(self):
        """One that csi-driver-nfs made, without a record."""
        def prepare(n):
            os.makedirs(os.path.join(self.share, "v" + n))

        def again(n):
            until_answered(self.other.delete, "v" + n)
            code = until_answered(self.other.create, "v" + n)
            self.put_data("v" + n, "new")
            return code

        def stays(n):
            if "v" + n in self.records():  # else it was deleted, as a whole
                self.assertEqual(self.data("v" + n), "new")
            else:
                self.assertNotIn("v" + n, self.directories(), self.log())

        self.late(prepare, lambda n: self.held.delete("v" + n), again, stays)

    # ---- changes of the record ----

    def test_expand_and_delete(self):
        """A record that is changed does not come back from the dead."""
        self.pair(self.volume, lambda n: self.held.expand("v" + n, 2),
                  lambda n: self.other.delete("v" + n), [])

    def test_expand_in_the_middle_of_a_delete(self):
        """Of a volume whose record has gone already: it is not one that never had a record."""
        def check(n, a, b):
            self.assertIn(b, (None, CODE.OK, CODE.ABORTED, CODE.NOT_FOUND))
            if a == CODE.OK:
                self.assertNotIn("v" + n, self.state("volumes"), self.log())
            self.is_ok(until_answered(self.held.delete, "v" + n))
            self.is_consistent([])

        self.at_each_point(self.volume, lambda n: self.held.delete("v" + n),
                           lambda n: self.other.expand("v" + n, 2), check)

    def test_modify_and_delete(self):
        self.pair(self.volume, lambda n: self.held.modify("v" + n, mountPermissions="0750"),
                  lambda n: self.other.delete("v" + n), [])

    def test_delete_and_expand(self):
        self.pair(self.volume, lambda n: self.held.delete("v" + n),
                  lambda n: self.other.expand("v" + n, 2), [])

    def test_expand_and_modify(self):
        """Neither undoes what the other has changed."""
        def both(n, *codes):
            self.is_ok(*codes)
            text = self.record("v" + n)
            self.assertIn(";size=%d;" % (2 * GIB), text)
            self.assertIn(";m.mode=0750", text)

        def expand(n):
            return self.held.expand("v" + n, 2)

        def modify(n):
            return self.other.modify("v" + n, mountPermissions="0750")

        self.pair(self.volume, expand, modify, ["v"], both)
        self.pair(self.volume, lambda n: self.held.modify("v" + n, mountPermissions="0750"),
                  lambda n: self.other.expand("v" + n, 2), ["v"], both)

    # ---- one directory, two volumes ----

    def test_delete_and_create_in_one_directory(self):
        """A volume begins to use a directory while the last one that did is deleted."""
        def first(n):
            self.is_ok(until_answered(self.other.create, "v" + n, subDir="d" + n))
            self.put_data("d" + n)

        def check(n, a, b):
            a, b = self.settle(lambda n: self.held.delete("v" + n, "d" + n),
                               lambda n: self.other.create("w" + n, subDir="d" + n), n, (a, b))
            self.is_ok(a, b)
            self.assertTrue(os.path.isdir(os.path.join(self.share, "d" + n)), self.log())
            self.assertEqual(self.state("volumes"), ["w" + n])
            self.assertEqual(self.leftovers(), [n for n in self.leftovers()
                                                if n.startswith("trash/")])
            self.is_ok(until_answered(self.other.delete, "w" + n, "d" + n))
            self.is_consistent([])

        self.at_each_point(first, lambda n: self.held.delete("v" + n, "d" + n),
                           lambda n: self.other.create("w" + n, subDir="d" + n), check)

    def test_delete_late_and_create_above(self):
        """A volume gets the directory above while the deletion of the last one in it is held."""
        def check(n, a, b):
            self.assertIn(a, (CODE.OK,) + AGAIN)
            if b == CODE.OK:
                self.assertTrue(os.path.isdir(os.path.join(self.share, "d" + n)), self.log())
                kept.append(n)
            self.is_ok(until_answered(self.held.delete, "v" + n, "d%s/sub" % n))
            self.is_ok(until_answered(self.other.create, "w" + n, subDir="d" + n))
            self.assertTrue(os.path.isdir(os.path.join(self.share, "d" + n)), self.log())
            self.is_ok(until_answered(self.other.delete, "w" + n, "d" + n))
            self.is_consistent([])

        kept = []
        self.at_each_point(
            lambda n: self.is_ok(until_answered(self.other.create, "v" + n, subDir="d%s/sub" % n)),
            lambda n: self.held.delete("v" + n, "d%s/sub" % n),
            lambda n: until_answered(self.other.create, "w" + n, subDir="d" + n), check)
        self.assertTrue(kept)

    # ---- copies ----

    def whole(self, is_there, look, call=None):
        """What is there is whole: look. It is there if the call of that number was answered OK;
        without a number, another call may have deleted it."""
        def check(n, *codes):
            there = is_there(n)
            self.assertTrue(there or call is None or codes[call] != CODE.OK, self.log())
            if there:
                look(n)
        return check

    def has_data(self, name, call=None):
        return self.whole(lambda n: name + n in self.directories(),
                          lambda n: self.assertEqual(self.data(name + n), "data"), call)

    def test_clone_and_delete_of_its_source(self):
        self.pair(self.volume, lambda n: self.held.clone("w" + n, "v" + n),
                  lambda n: self.other.delete("v" + n), None, self.has_data("w", 0))

    def test_clone_and_its_own_delete(self):
        self.pair(self.volume, lambda n: self.held.clone("w" + n, "v" + n),
                  lambda n: self.other.delete("w" + n), None, self.has_data("w"))

    def test_clone_and_clone(self):
        self.pair(self.volume, lambda n: self.held.clone("w" + n, "v" + n),
                  lambda n: self.other.clone("w" + n, "v" + n), ["v", "w"], self.has_data("w", 0))

    def test_delete_and_clone_of_it(self):
        self.pair(self.volume, lambda n: self.held.delete("v" + n),
                  lambda n: self.other.clone("w" + n, "v" + n), None, self.has_data("w", 1))

    def has_snapshot(self, n):
        return "s" + n in self.state("snapshots")

    def is_snapshot(self, call=None):
        return self.whole(self.has_snapshot, lambda n: self.archive_is_whole("s" + n, "v" + n),
                          call)

    def test_snapshot_and_delete_of_its_volume(self):
        self.pair(self.volume, lambda n: self.held.snap("s" + n, "v" + n),
                  lambda n: self.other.delete("v" + n), None, self.is_snapshot(0))

    def test_delete_and_snapshot_of_it(self):
        self.pair(self.volume, lambda n: self.held.delete("v" + n),
                  lambda n: self.other.snap("s" + n, "v" + n), None, self.is_snapshot(1))

    def test_snapshot_and_its_own_delete(self):
        self.pair(self.volume, lambda n: self.held.snap("s" + n, "v" + n),
                  lambda n: self.other.unsnap("s" + n, "v" + n), None, self.is_snapshot())

    def foreign_snapshot(self, n):
        """One that csi-driver-nfs made."""
        os.makedirs(os.path.join(self.share, "s" + n))
        with tarfile.open(os.path.join(self.share, "s" + n, "v" + n + ".tar"), "w"):
            pass

    def test_delete_late_of_a_foreign_snapshot(self):
        """While another replica deletes it, and makes one of the same name of another volume."""
        def prepare(n):
            self.is_ok(until_answered(self.other.create, "w" + n))
            self.put_data("w" + n)
            self.foreign_snapshot(n)

        def again(n):
            until_answered(self.other.unsnap, "s" + n, "v" + n)
            return until_answered(self.other.snap, "s" + n, "w" + n)

        def stays(n):
            self.archive_is_whole("s" + n, "w" + n)
            self.assertIn("s" + n, self.state("snapshots"), self.log())
            self.is_ok(until_answered(self.other.unsnap, "s" + n, "w" + n))

        self.late(prepare, lambda n: self.held.unsnap("s" + n, "v" + n), again, stays)

    def test_delete_of_a_foreign_snapshot_twice(self):
        """It goes while the other replica looks what it is."""
        def unsnap(replica, n):
            return until_answered(replica.unsnap, "s" + n, "v" + n)

        def check(_, a, b):
            self.is_ok(a, b or CODE.OK)
            self.is_consistent([])

        self.at_each_point(self.foreign_snapshot, lambda n: unsnap(self.held, n),
                           lambda n: unsnap(self.other, n), check,
                           "changing|LOOKUP|READDIR")

    def test_snapshot_and_snapshot(self):
        self.pair(self.volume, lambda n: self.held.snap("s" + n, "v" + n),
                  lambda n: self.other.snap("s" + n, "v" + n), ["s", "v"], self.is_snapshot(0))

    def test_delete_of_a_snapshot_and_a_new_one(self):
        self.pair(self.snapshot, lambda n: self.held.unsnap("s" + n, "v" + n),
                  lambda n: self.other.snap("s" + n, "v" + n), None, self.is_snapshot())

    def test_restore_and_delete_of_the_snapshot(self):
        self.pair(self.snapshot, lambda n: self.held.restore("w" + n, "s" + n, "v" + n),
                  lambda n: self.other.unsnap("s" + n, "v" + n), None, self.has_data("w", 0))

    def tree_is_whole(self, n):
        self.assertEqual(os.listdir(os.path.join(self.share, "s" + n)), ["v" + n + ".tree"])
        self.assertEqual(self.data(os.path.join("s" + n, "v" + n + ".tree")), "data")

    def is_tree(self, call=None):
        return self.whole(self.has_snapshot, self.tree_is_whole, call)

    def test_tree_and_its_own_delete(self):
        self.pair(self.volume, lambda n: self.held.snap_tree("s" + n, "v" + n),
                  lambda n: self.other.unsnap("s" + n, "v" + n), None, self.is_tree())

    def test_tree_and_delete_of_its_volume(self):
        self.pair(self.volume, lambda n: self.held.snap_tree("s" + n, "v" + n),
                  lambda n: self.other.delete("v" + n), None, self.is_tree(0))

    def test_tree_and_tree(self):
        self.pair(self.volume, lambda n: self.held.snap_tree("s" + n, "v" + n),
                  lambda n: self.other.snap_tree("s" + n, "v" + n), ["s", "v"], self.is_tree(0))

    def test_restore_and_delete_of_the_tree(self):
        self.pair(self.snapshot_tree, lambda n: self.held.restore("w" + n, "s" + n, "v" + n),
                  lambda n: self.other.unsnap("s" + n, "v" + n), None, self.has_data("w", 0))

    def test_delete_of_a_tree_and_restore(self):
        self.pair(self.snapshot_tree, lambda n: self.held.unsnap("s" + n, "v" + n),
                  lambda n: self.other.restore("w" + n, "s" + n, "v" + n), None,
                  self.has_data("w", 1))

    def test_delete_of_a_snapshot_and_restore(self):
        self.pair(self.snapshot, lambda n: self.held.unsnap("s" + n, "v" + n),
                  lambda n: self.other.restore("w" + n, "s" + n, "v" + n), None,
                  self.has_data("w"))


class Exclusion(Pairs):
    """What a call that lasts keeps others from, and for how long."""

    # Those of the class above once is enough.
    for _name in [n for n in dir(Pairs) if n.startswith("test_")]:
        locals()[_name] = None
    del _name

    def while_held(self, call, *args):
        """Run a call of the first replica up to its data. Return a function that continues it."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        held = self.hold("WRITE|CREATE", 1)
        self.addCleanup(self.proxy.end)
        running = pool.submit(call, *args)
        self.assertTrue(wait_for(lambda: held.is_set() or running.done(), 30))
        self.assertTrue(held.is_set(), "it was over: %s" % running)

        def go_on():
            self.proxy.end()
            code = running.result()
            pool.shutdown()
            return code
        return go_on

    def test_a_snapshot_keeps_its_volume(self):
        self.volume("")
        go_on = self.while_held(self.held.snap, "s", "v")
        refused = self.other.delete("v")
        code = go_on()
        self.assertEqual((refused, code), (CODE.ABORTED, CODE.OK))
        self.archive_is_whole("s", "v")
        self.is_consistent(["s", "v"])
        self.clear("")

    def test_a_restore_keeps_its_snapshot(self):
        self.snapshot("")
        go_on = self.while_held(self.held.restore, "w", "s", "v")
        refused = self.other.unsnap("s", "v")
        code = go_on()
        self.assertEqual((refused, code), (CODE.ABORTED, CODE.OK))
        self.assertEqual(self.data("w"), "data")
        self.clear("")

    def test_trees_keep_their_source(self):
        self.volume("")
        go_on = self.while_held(self.held.snap_tree, "s", "v")
        refused = (self.other.delete("v"), self.other.unsnap("s", "v"))
        code = go_on()
        self.assertEqual((refused, code), ((CODE.ABORTED,) * 2, CODE.OK))
        self.is_tree("")
        go_on = self.while_held(self.held.restore, "w", "s", "v")
        refused = self.other.unsnap("s", "v")
        code = go_on()
        self.assertEqual((refused, code), (CODE.ABORTED, CODE.OK))
        self.assertEqual(self.data("w"), "data")
        self.clear("")

    def test_a_clone_keeps_its_source_and_itself(self):
        self.volume("")
        go_on = self.while_held(self.held.clone, "w", "v")
        refused = (self.other.delete("v"), self.other.delete("w"), self.other.clone("w", "v"))
        code = go_on()
        self.assertEqual(refused, (CODE.ABORTED,) * 3)
        self.assertEqual(code, CODE.OK)
        self.assertEqual(self.data("w"), "data")
        self.clear("")

    def test_a_clone_renews_its_notes_as_who_wrote_them(self):
        """The owner of the volume reads its files, and may not look into the driver's folder. A
        copy whose notes cannot be renewed is made once more."""
        owner = {"uid": "1000", "gid": "1000"}
        self.is_ok(self.held.create("v", **owner))
        self.put_data("v")
        state = os.stat(os.path.join(self.share, STATE))
        self.assertEqual((state.st_uid, state.st_mode & 0o777), (0, 0o700))
        content = {"volume": {"volume_id": self.volume_id("v")}}
        for call in (lambda: self.held.create("w", content, **owner),
                     lambda: self.held.snap("s", "v"), lambda: self.held.snap_tree("t", "v")):
            self.proxy.begin()
            self.addCleanup(self.proxy.end)
            self.is_ok(call())
            self.assertEqual(self.proxy.counts["WRITE"], 1, self.log())
        self.assertEqual(self.data("w"), "data")
        self.is_ok(self.held.unsnap("s", "v"), self.held.unsnap("t", "v"),
                   self.held.delete("w"), self.held.delete("v"))
        self.is_consistent([])
        self.assertNotIn("Purging deleted volumes failed", self.log())

    def test_a_slow_clone_keeps_its_notes_alive(self):
        """However short --replica-timeout is: the notes are renewed in time."""
        self.volume("")
        go_on = self.while_held(self.held.clone, "w", "v")
        end = time.monotonic() + 3 * PATIENCE
        while time.monotonic() < end:
            self.assertEqual((self.other.delete("v"), self.other.delete("w")), (CODE.ABORTED,) * 2)
            time.sleep(0.2)
        self.assertEqual(go_on(), CODE.OK)
        self.assertEqual(self.data("w"), "data")
        self.clear("")

    def test_a_dead_replica_keeps_nothing_for_long(self):
        """Its notes count until they have not changed for a time; a restart needs none of it."""
        self.volume("")
        go_on = self.while_held(self.held.snap, "s", "v")
        self.held.driver.kill()
        go_on()
        self.assertTrue([n for n in self.state("busy") if "~u~" in n])
        self.assertEqual(self.other.delete("v"), CODE.ABORTED)
        begun = time.monotonic()
        self.is_ok(until_answered(self.other.delete, "v"))
        self.assertGreater(time.monotonic() - begun, PATIENCE / 2)
        self.held.driver.start()
        self.is_ok(until_answered(self.other.unsnap, "s", "v"))
        self.is_consistent([])

    def test_a_restarted_replica_knows_its_own_notes(self):
        self.volume("")
        go_on = self.while_held(self.held.snap, "s", "v")
        self.held.driver.kill()
        go_on()
        self.held.driver.start()
        self.is_ok(self.held.delete("v"), self.held.unsnap("s", "v"))
        self.is_consistent([])

    def test_a_paused_replica_finds_out(self):
        """One that was taken for dead does not put its work into place when it wakes up."""
        self.volume("")
        go_on = self.while_held(self.held.clone, "w", "v")
        os.kill(self.held.driver.process.pid, signal.SIGSTOP)
        self.is_ok(until_answered(self.other.delete, "v"), until_answered(self.other.delete, "w"))
        self.is_consistent_but_for_work()
        os.kill(self.held.driver.process.pid, signal.SIGCONT)
        self.assertIn(go_on(), AGAIN + (CODE.NOT_FOUND,))
        self.is_ok(until_answered(self.other.delete, "w"))
        self.is_consistent([])

    def is_consistent_but_for_work(self):
        self.assertEqual((self.records(), self.directories()), ([], []))


class Nested(Pairs):
    """Two volumes in one directory, which the driver makes and removes. The first replica is held
    at each of its operations, also those that only look."""

    # Those of the class above once is enough.
    for _name in [n for n in dir(Pairs) if n.startswith("test_")]:
        locals()[_name] = None
    del _name

    def setUp(self):
        super().setUp()
        self.is_ok(until_answered(self.held.create, "warm", subDir="p/warm"),
                   until_answered(self.held.delete, "warm", "p/warm"))

    def tearDown(self):
        for name in self.state("volumes"):
            until_answered(self.other.delete, name, "p/" + name, seconds=10)

    def is_left(self, *names):
        """These volumes, and nothing else of their parent than they need."""
        wait_for(lambda: not self.leftovers(), 20)
        self.assertEqual(self.leftovers(), [], self.log())
        self.assertEqual(self.state("volumes"), sorted(names), self.log())
        self.assertEqual(self.directories(), ["p"] if names else [], self.log())
        notes = self.state("parents")
        if not names:
            self.assertEqual(notes, [])
            return
        parent = os.path.join(self.share, "p")
        self.assertEqual(sorted(os.listdir(parent)), sorted(names))
        self.assertEqual([n.split(".")[0] for n in notes], ["p~%x" % os.stat(parent).st_ino])

    def come(self, replica, name):
        return until_answered(replica.create, name, subDir="p/" + name)

    def go(self, replica, name):
        return until_answered(replica.delete, name, "p/" + name)

    def come_and_go(self, name):
        """By the second replica."""
        code = self.come(self.other, name)
        return code if code != CODE.OK else self.go(self.other, name)

    def nest(self, prepare, first, second, left):
        def check(n, a, b):
            if a in AGAIN:
                a = until_answered(first, n)
            self.is_ok(a, *([] if b is None else [b]))
            if b is not None:
                self.is_left(*(prefix + n for prefix in left))
            for prefix in ("v", "w", "x"):
                self.is_ok(self.go(self.other, prefix + n))
            self.is_left()

        self.at_each_point(prepare, first, second, check, "any")

    def one(self, n):
        self.is_ok(self.come(self.other, "v" + n))

    def two(self, n):
        self.is_ok(self.come(self.other, "v" + n), self.come(self.other, "w" + n))

    def held_create(self, n):
        return self.held.create("v" + n, subDir="p/v" + n)

    def held_delete(self, n):
        return self.held.delete("v" + n, "p/v" + n)

    def test_create_and_create(self):
        self.nest(self.nothing, self.held_create, lambda n: self.come(self.other, "w" + n), "vw")

    def test_create_and_one_that_comes_and_goes(self):
        self.nest(self.nothing, self.held_create, lambda n: self.come_and_go("w" + n), "v")

    def test_delete_and_create(self):
        self.nest(self.one, self.held_delete, lambda n: self.come(self.other, "w" + n), "w")

    def test_delete_and_one_that_comes_and_goes(self):
        self.nest(self.one, self.held_delete, lambda n: self.come_and_go("w" + n), "")

    def test_delete_and_delete(self):
        self.nest(self.two, self.held_delete, lambda n: self.go(self.other, "w" + n), "")

    def test_delete_and_replacement(self):
        """The other one goes, and the parent with it if it is the last; then a new one comes."""
        def replace(n):
            self.is_ok(self.go(self.other, "w" + n))
            return self.come(self.other, "x" + n)

        self.nest(self.two, self.held_delete, replace, "x")


class Archives(Pairs):
    """An archive replaces an older one, never the one that was just made."""

    # Those of the class above once is enough.
    for _name in [n for n in dir(Pairs) if n.startswith("test_")]:
        locals()[_name] = None
    del _name

    options = ("--remove-archived-volume-path",)

    def with_an_older_archive(self, n):
        for text in ("older", "newer"):
            self.is_ok(until_answered(self.other.create, "v" + n, onDelete="archive"))
            self.put_data("v" + n, text)
            if text == "older":
                self.is_ok(self.archive(self.other, n))

    def archive(self, replica, n):
        return until_answered(replica.delete, "v" + n, policy="archive")

    def test_archive_and_archive(self):
        def check(n, a, _):
            self.is_ok(a if a not in AGAIN else self.archive(self.held, n))
            self.assertEqual(self.data("archived-v" + n), "newer", self.log())
            self.is_consistent([])

        self.at_each_point(self.with_an_older_archive,
                           lambda n: self.held.delete("v" + n, policy="archive"),
                           lambda n: self.archive(self.other, n), check)


class InPlace(Pairs):
    """A directory that cannot be moved into the trash is removed where it is. A new volume may get
    its path meanwhile, and keeps what is in it."""

    # Those of the class above once is enough.
    for _name in [n for n in dir(Pairs) if n.startswith("test_")]:
        locals()[_name] = None
    del _name

    squash = "Root_Squash"
    owner = 1000

    def setUp(self):
        self.held, self.other = self.replicas
        self.number = 0
        os.chown(self.share, self.owner, self.owner)
        self.is_ok(self.create("neighbor", "neighbor"))  # the directory above stays
        trash = os.path.join(self.share, STATE, "trash")
        os.chown(trash, 0, 0)
        os.chmod(trash, 0o555)

    def tearDown(self):
        pass

    def create(self, name, directory):
        return until_answered(self.other.create, name, subDir="team/${pvc.metadata.name}",
                              uid=str(self.owner), gid=str(self.owner),
                              **{"csi.storage.k8s.io/pvc/name": directory})

    def write(self, *names):
        for name in names:
            path = os.path.join(self.share, name)
            with open(path, "w", encoding="ascii") as f:
                f.write("data")
            os.chown(path, self.owner, self.owner)

    def test_delete_and_create_in_its_place(self):
        def fill(n):
            self.is_ok(self.create("v" + n, "d" + n))
            self.write(*("team/d%s/old%d" % (n, i) for i in range(3)))

        def create(n):
            code = self.create("w" + n, "d" + n)
            if code == CODE.OK:
                self.write("team/d%s/new" % n)
            time.sleep(1.2)  # the removal looks at the name from time to time
            return code

        def check(n, a, b):
            self.is_ok(b)
            if a in AGAIN:
                a = until_answered(self.held.delete, "v" + n, "team/d" + n)
            self.is_ok(a)
            self.assertEqual(os.listdir(os.path.join(self.share, "team/d" + n)), ["new"],
                             self.log())

        for calls, number in (("REMOVE", 1), ("REMOVE", 2), ("REMOVE", 3)):
            with self.subTest(calls=calls, number=number), \
                    concurrent.futures.ThreadPoolExecutor(1) as pool:
                n = calls + str(number)
                fill(n)
                held = self.hold(calls, number)
                running = pool.submit(self.held.delete, "v" + n, "team/d" + n)
                self.assertTrue(wait_for(held.is_set, 60), "nothing was held")
                code = create(n)
                self.proxy.end()
                check(n, running.result(), code)


class Seeds(Base):
    """Both replicas at once, with few names, by seeds."""

    names = ("v0", "v1", "v2")
    copies = ("c0", "c1")
    snapshots = (("s0", "v0"), ("s1", "v1"))

    def calls(self, rng, replica):
        """A call to make, and the answers that are right beside those of until_answered()."""
        volume = rng.choice(self.names)
        copy = rng.choice(self.copies)
        snapshot = rng.choice(self.snapshots)
        gone = (CODE.NOT_FOUND,)
        source = gone + (CODE.OUT_OF_RANGE, CODE.ALREADY_EXISTS)  # one that has grown since
        return rng.choice((
            (replica.create, (volume,), ()),
            (replica.create, (volume,), ()),
            (replica.delete, (volume,), ()),
            (replica.delete, (copy,), ()),
            (replica.clone, (copy, "v" + copy[1]), source),
            (replica.snap, snapshot, gone),
            (replica.unsnap, snapshot, ()),
            (replica.expand, (volume, rng.randrange(1, 5)), gone),
            (replica.modify, (volume,), gone),
        ))

    def caller(self, seed, number):
        rng = random.Random("%s.%d" % (seed, number))
        replica = self.replicas[number % 2]
        for step in range(STEPS):
            call, args, also = self.calls(rng, replica)
            more = {"mountPermissions": rng.choice(("0700", "0770"))} \
                if call == replica.modify else {}
            code = until_answered(call, *args, **more)
            if code != CODE.OK and code not in also:
                raise AssertionError("seed %s, caller %d, step %d: %s%s is %s\n%s" % (
                    seed, number, step, call.__name__, args, code, self.log()))

    def pauses(self, seed, end):
        """Stops one of the processes for a moment, now and then."""
        rng = random.Random("%s.pauses" % seed)
        while not end.wait(rng.random() / 4):
            pid = rng.choice(self.replicas).driver.process.pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.random() / 10)
            os.kill(pid, signal.SIGCONT)

    def run_seed(self, seed):
        end = threading.Event()
        pauses = threading.Thread(target=self.pauses, args=(seed, end))
        pauses.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                for result in [pool.submit(self.caller, seed, i) for i in range(6)]:
                    result.result()
        finally:
            end.set()
            pauses.join()
        self.is_consistent()
        for name, source in self.snapshots:
            if name in self.state("snapshots"):
                tarfile.open(os.path.join(self.share, name, source + ".tar")).getmembers()
        one, two = self.replicas
        for name in self.names:
            self.is_ok(until_answered(one.create, name))
            self.assertIn(name, self.directories())
        for name, source in self.snapshots:
            self.is_ok(until_answered(two.unsnap, name, source))
        for name in self.names + self.copies:
            self.is_ok(until_answered(two.delete, name))
        self.is_consistent([])

    def test_seeds(self):
        for seed in range(Seeds.first, Seeds.first + Seeds.count):
            with self.subTest(seed=seed):
                print("seed %d: test_replicas.py --first %d --seeds 1 Seeds" % (seed, seed),
                      flush=True)
                self.run_seed(seed)


def take_option(name, default):
    """Takes a number from the command line."""
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    return value


if __name__ == "__main__":
    Seeds.count = take_option("--seeds", SEEDS)
    Seeds.first = take_option("--first", int(time.time()) % 1000000)
    harness.main("replicas")
