# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The controller with many calls at once, against a real nfs-ganesha: one connection with 200 calls,
one name from many callers, create against delete, two controllers on one share, and a server that
is stopped beside one that is not. tests/run builds the driver with ThreadSanitizer for it.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import concurrent.futures
import os
import signal
import sys
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
from csi_client import capability
from driver import Driver
from servers import Export, Ganesha, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
CODE = grpc.StatusCode
SERVER = "127.0.0.1"
STATE = ".csi-nfs"
CALLERS = 200


class Base(unittest.TestCase):
    version = "4"

    @classmethod
    def setUpClass(cls):
        os.environ["TSAN_OPTIONS"] = "halt_on_error=0 exitcode=66"
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
                status = driver.stop()
                with open(driver.log, encoding="utf-8", errors="replace") as f:
                    text = f.read()
                found = text.find("WARNING: ThreadSanitizer")
                if found >= 0 or status != 0:
                    raise AssertionError("the driver ended with status %s:\n%s"
                                         % (status, text[max(found, 0):][:4000]))
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

    @staticmethod
    def together(calls):
        """The results of all calls, made at once."""
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            return [f.result() for f in [pool.submit(*call) for call in calls]]

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

    def test_many_calls_on_one_connection(self):
        client = self.drivers[0].client
        names = ["many-%d" % i for i in range(CALLERS)]
        self.assertEqual(self.together([(self.create, client, n) for n in names]),
                         [self.volume_id(n) for n in names])
        self.assertEqual(self.directories(), sorted(names))
        self.assertEqual(self.records(), sorted(names))
        listed = [e.volume.volume_id for e in client.ListVolumes().entries]
        self.assertEqual(listed, [self.volume_id(n) for n in sorted(names)])
        ids = [self.volume_id(n) for n in names]
        self.assertEqual(self.together([(self.delete, client, i) for i in ids]), ids)
        self.assertEqual(self.directories() + self.records(), [])

    def test_one_name_from_many_callers_and_two_controllers(self):
        for number in range(5):
            name = "one-%d" % number
            got = self.together([(self.create, self.drivers[i % 2].client, name)
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
            got = self.together(calls)
            self.assertLessEqual(set(got), {self.volume_id(name), CODE.ABORTED, CODE.UNAVAILABLE})
            self.assertEqual(self.create(self.drivers[1].client, name), self.volume_id(name))
            self.assertEqual((self.directories(), self.records()), ([name], [name]))
            self.until_clean()

    def test_a_stopped_server_beside_a_live_one(self):
        """Calls to a server that does not answer keep no others waiting, however many there are. Once
        one has found out, the others are refused at once, and told when it is tried again."""
        other = Ganesha(os.path.join(LAB, self.id()), [Export(self.share + "-other")]).start()
        client = self.drivers[0].client
        try:
            self.assertEqual(self.create(client, "there", other).split("#")[2], "there")
            os.kill(other.process.pid, signal.SIGSTOP)
            with concurrent.futures.ThreadPoolExecutor(100) as pool:
                stuck = [pool.submit(self.create, client, "stuck-%d" % i, other) for i in range(100)]
                begun = time.monotonic()
                for i in range(50):
                    self.assertEqual(self.create(client, "live-%d" % i),
                                     self.volume_id("live-%d" % i))
                    client.Probe(timeout=5)
                alive = time.monotonic() - begun
                codes = {f.result() for f in stuck}
            self.assertLessEqual(codes, {CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED})
            self.assertLess(alive, 10)
            self.refused_at_once(client, other)
        finally:
            os.kill(other.process.pid, signal.SIGCONT)
        self.assertTrue(wait_for(lambda: self.create(client, "back", other) not in codes, 40))
        other.stop()
        self.until_clean()

    def refused_at_once(self, client, server):
        self.create(client, "asks", server)
        begun = time.monotonic()
        with self.assertRaises(grpc.RpcError) as caught:
            client.CreateVolume(**self.request("refused", server))
        self.assertLess(time.monotonic() - begun, 1)
        self.assertEqual(caught.exception.code(), CODE.UNAVAILABLE)
        self.assertRegex(caught.exception.details(), "does not answer.*tried again in [0-9]+ s")


class OnVersion3(OnVersion4):
    version = "3"


if __name__ == "__main__":
    harness.main("concurrent calls")
