# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Replies that are lost with their connection, and sessions that end. With NFSv4.1 and 4.2 each
change is made exactly once and its caller is answered as if nothing had happened; with 3 and 4.0
the repeated call looks what is there.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import collections
import os
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import trees
from cases import CODE, DISK, GIB, LAB, SERVER, STATE, Base
from copies import Trees
from csi_client import capability
from driver import Driver
from servers import KernelServer, wait_for
from rpc_proxy import Proxy, Rule

CHANGES = ("MKDIR", "SYMLINK", "RENAME", "REMOVE", "RMDIR", "LINK", "CREATE")
LEASE = 10  # seconds, of the tests' servers
DEPTH = LEASE + 5  # directories, each listed in a second
LOST = 3 if harness.LONG else 1  # replies of a kind, each in a run of its own
CONNECTS = 50 if harness.LONG else 12
IDLE = 180  # seconds; the driver keeps a connection for 60, and looks every 30


class Through(Trees):
    """Everything goes through a proxy."""

    folders = ("share",)

    @classmethod
    def plant(cls):
        maker = trees.Maker(os.path.join(cls.share, "small"), 2)
        for part in (maker.links, maker.hard_links, maker.modes):
            part()
        maker.times()

    def setUp(self):
        self.proxy = None
        self.proxy = Proxy(self.server.port).start()
        self.addCleanup(self.proxy.stop)
        self.proxy.begin()

    @property
    def flags(self):
        flags = self.server.flags(self.version)
        if getattr(self, "proxy", None) is None:
            return flags
        flags[1] = "port=%d" % self.proxy.port
        return flags

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.flags)}

    def request(self, name, size=GIB, cap=None, share=None, **parameters):
        cap = cap or capability(flags=self.flags)
        return super().request(name, size, cap, share, **parameters)

    def life(self, ask):
        """A volume, its clone and a snapshot come and go. ask(call) makes a call."""
        volume = ask(lambda: self.create("plain")).volume_id
        copy = ask(lambda: self.clone("copy", self.volume_id("small"))).volume_id
        snapshot = ask(lambda: self.snap("snap", volume)).snapshot_id
        ask(lambda: self.unsnap(snapshot))
        self.is_copy("small", "copy")
        for volume_id in (copy, volume):
            ask(lambda volume_id=volume_id: self.delete(volume_id))
        self.is_tidy()

    def is_given_back(self):
        """The server keeps nothing for a session that came to its end."""
        for begin, end in (("CREATE_SESSION", "DESTROY_SESSION"),
                           ("EXCHANGE_ID", "DESTROY_CLIENTID")):
            self.assertGreater(self.proxy.counts[begin], 0)
            self.assertEqual(self.proxy.counts[begin], self.proxy.counts[end], self.proxy.counts)

    def count_changes(self, names=CHANGES):
        self.source("small")
        self.life(lambda call: call())  # folders are made once
        self.proxy.begin()
        self.life(lambda call: call())
        return {name: self.proxy.counts[name] for name in names if self.proxy.counts[name]}


class Cut:
    """The connection ends in place of a reply."""

    def test_each_change(self):
        counts = self.count_changes()
        self.assertLessEqual({"MKDIR", "SYMLINK", "RENAME", "REMOVE", "LINK", "CREATE"},
                             set(counts))
        for name, count in counts.items():
            for nth in range(1, min(count, LOST) + 1):
                with self.subTest(name=name, nth=nth):
                    requests = self.lose(name, nth, 1)
                    if self.exactly_once:
                        self.assertGreater(max(requests.values()), 1, "it was not sent again")

    def lose(self, name, nth, times):
        """Lose the reply to a call so many times. Return how often each request came."""
        rule = Rule(name, nth, "cut-after", count=times, same=True)
        requests = collections.Counter()
        self.proxy.begin([rule], on_call=lambda call: requests.update(
            [call.request] if call.name == name else []))
        self.life(self.ask)
        self.assertEqual(self.proxy.problems, [])
        self.assertEqual(rule.hits, times)
        return requests


class Looks(Cut, Through, Base):
    """Version 3. A call may fail, and the CO repeats it."""

    protocols = "3"
    version = "3"
    exactly_once = False

    def ask(self, call):
        return self.until_ok(call)


class LooksWithoutSessions(Looks):
    protocols = "4"
    version = "4.0"


class Repeats(Looks):
    """No call fails, so the CO repeats none."""

    protocols = "4"
    version = "4.1"
    exactly_once = True

    def ask(self, call):
        return call()

    def test_lost_again(self):
        """The connection over which a change is sent again ends, too."""
        names = self.count_changes()
        self.assertIn("MKDIR", names)
        for name in names:
            with self.subTest(name=name):
                self.assertGreater(max(self.lose(name, 1, 2).values()), 2)

    def test_session_ends_after_the_answer(self):
        """The session whose connection broke is given back over the one that got the answer."""
        self.restart()
        rule = Rule("MKDIR", 1, "cut-after")
        self.proxy.begin([rule])
        volume = self.create("made").volume_id
        self.assertEqual(rule.hits, 1)
        self.restart()
        self.is_given_back()
        self.delete(volume)
        self.is_tidy()


class RepeatsNewest(Repeats):
    version = "4.2"


class Hollow(Through, Base):
    """A reply says OK and does not have the result. It is never taken for success: the call looks
    what is there."""

    protocols = "3"
    version = "3"

    def test_each_change(self):
        counts = self.count_changes(CHANGES + ("SETATTR", "WRITE"))
        for name, count in counts.items():
            for what in ("hollow", "hollow-after"):
                for nth in range(1, min(count, LOST) + 1):
                    with self.subTest(name=name, nth=nth, what=what):
                        rule = Rule(name, nth, what)
                        self.proxy.begin([rule])
                        self.life(self.until_ok)
                        self.assertEqual(rule.hits, 1)
                        self.assertEqual(self.proxy.problems, [])


class HollowWithoutSessions(Hollow):
    protocols = "4"
    version = "4.0"


class HollowInSessions(Hollow):
    protocols = "4"
    version = "4.2"


class Versions(Through, Base):
    """A server with versions 3 and 4."""

    asked = ""

    @property
    def flags(self):
        proxy = getattr(self, "proxy", None)
        port = self.server.port if proxy is None else proxy.port
        return [*filter(None, [self.asked]), "port=%d" % port,
                "mountport=%d" % self.server.mount_port]

    def test_what_is_asked_for(self):
        """Trees go over version 3 only if the mount options leave the version open."""
        for self.asked, wanted in (("vers=4", {4}), ("vers=3", {3}), ("", {3, 4})):
            with self.subTest(asked=self.asked):
                self.restart()  # nothing is preferred because of the case before
                seen = set()
                self.proxy.begin(on_call=lambda call, seen=seen: seen.add(call.version))
                source = self.source("small")
                copy = self.clone("copy", source).volume_id
                self.is_copy("small", "copy")
                self.delete(copy)
                # Without a secret, it is what the calls before have asked for.
                self.client.CreateSnapshot(name="snap", source_volume_id=source)
                self.client.DeleteSnapshot(snapshot_id=self.snapshot_id("snap", "small"))
                self.is_tidy()
                self.assertEqual(seen, wanted)


    def test_server_that_hangs_up(self):
        """Once is an accident. A server that does it again does not have version 4."""
        self.asked = ""
        for times, wanted in ((1, {4}), (1000, {3})):
            with self.subTest(times=times):
                self.restart()
                rule = Rule("EXCHANGE_ID", 1, "cut-before", count=times)
                seen = set()
                self.proxy.begin([rule], on_call=lambda call, seen=seen: seen.update(
                    {call.version} if call.name in ("MKDIR", "CREATE") else ()))
                self.delete(self.create("made").volume_id)
                self.is_tidy()
                self.assertGreaterEqual(rule.hits, min(times, 2))  # the purge connects, too
                self.assertEqual(seen, wanted)


class Limits(Through, Base):
    """A server that allows a session too little."""

    protocols = "4"
    version = "4.1"

    @classmethod
    def plant(cls):
        super().plant()
        for i in range(400):
            os.makedirs(os.path.join(cls.share, "many", "%060d" % i))

    def test_version_that_was_asked_for(self):
        self.proxy.begin([Rule("CREATE_SESSION", 1, "few-operations", 7, count=1000)])
        self.fails(CODE.FAILED_PRECONDITION, self.create,
                   "7 operations in a request over NFSv4.1, and 8 are needed", name="never")
        self.is_given_back()

    def test_short_replies(self):
        """A server that takes its limit seriously would answer with an error instead."""
        self.restart()  # no session with other limits
        self.proxy.begin([Rule("CREATE_SESSION", 1, "small-replies", 16384, count=1000)])
        copy = self.clone("copy", self.source("many")).volume_id
        self.assertEqual(len(os.listdir(self.path("copy"))), 400)
        self.assertGreater(self.proxy.longest, 8192)
        self.assertLessEqual(self.proxy.longest, 16384)
        for volume_id in (copy, self.volume_id("many")):
            self.delete(volume_id)
        self.is_tidy()

    def test_next_version(self):
        self.proxy.begin([Rule("CREATE_SESSION", 1, "few-operations", 7, count=1000)])
        cap = capability(flags=["port=%d" % self.proxy.port])
        secrets = {"mountOptions": "port=%d" % self.proxy.port}
        request = dict(self.request("next", cap=cap), secrets=secrets)
        volume = self.client.CreateVolume(**request).volume
        self.is_given_back()
        self.client.DeleteVolume(volume_id=volume.volume_id, secrets=secrets)
        self.is_tidy()


class Idle(Through, Base):
    """Nobody calls for a while."""

    protocols = "4"
    version = "4.2"

    def test_sessions_end(self):
        """The pool gives back the session that nobody used for a minute."""
        self.restart()
        self.proxy.begin()
        volume = self.create("made").volume_id
        counts = self.proxy.counts
        self.assertGreater(counts["EXCHANGE_ID"], counts["DESTROY_CLIENTID"])
        self.assertTrue(wait_for(lambda: counts["EXCHANGE_ID"] == counts["DESTROY_CLIENTID"],
                                 IDLE), counts)
        self.is_given_back()
        self.delete(volume)
        self.is_tidy()


class Ended(Through, Base):
    """Sessions that the server no longer has."""

    protocols = "4"
    version = "4.2"

    def test_lease_ends_while_idle(self):
        """The pool's connection is there, its session is not."""
        volume = self.create("before")
        used = self.proxy.counts["EXCHANGE_ID"]
        time.sleep(2 * LEASE + 2)
        self.assertEqual(self.create("after").volume_id, self.volume_id("after"))
        self.assertGreater(self.proxy.counts["EXCHANGE_ID"], used)
        for volume_id in (volume.volume_id, self.volume_id("after")):
            self.delete(volume_id)
        self.is_tidy()

    def test_lease_is_short_for_a_copy(self):
        """The connections that wait for the copy stay, and it is made once."""
        source = self.create("deep")
        os.makedirs(os.path.join(self.path("deep"), *["d"] * DEPTH))
        self.proxy.begin([Rule("READDIR", 1, "delay-reply", 1, 1000)])
        copy = self.clone("copy", source.volume_id, timeout=300)
        self.assertLess(self.proxy.counts["MKDIR"], 2 * DEPTH)
        self.proxy.end()
        for volume_id in (copy.volume_id, source.volume_id):
            self.delete(volume_id)
        self.is_tidy()

    def test_server_restarts(self):
        volume = self.create("before")
        self.server.restart()
        self.until_ok(lambda: self.delete(volume.volume_id))
        self.until_ok(lambda: self.create("after"))
        self.until_ok(lambda: self.delete(self.volume_id("after")))
        self.is_tidy()

    def test_server_without_sessions(self):
        """It comes back with an older version only: the volumes are the same. A call without
        options only prefers the version of the last one that had some. One that requires the newer
        version is to be repeated: an earlier attempt may have left something there."""
        volume = self.create("before")
        other = self.create("other")
        options = ",".join(self.server.flags("4")[1:])
        self.server.stop()
        self.server.minor_versions = "0"
        self.server.start()
        try:
            self.until_ok(lambda: self.client.DeleteVolume(volume_id=volume.volume_id))
            self.client.ListVolumes()
            self.fails(CODE.ABORTED, self.create, "not 4.2", name="never")
            self.client.DeleteVolume(volume_id=other.volume_id,
                                     secrets={"mountOptions": options})
            self.assertEqual(self.listed(), ["small"])
        finally:
            self.server.stop()
            self.server.minor_versions = "0, 1, 2"
            self.server.start()
            self.assertTrue(wait_for(self.is_reached))


@unittest.skipUnless(os.path.isdir("/proc/fs/nfsd"), "this kernel has no NFS server")
class Kernel(Base):
    """The kernel's server with 4.2 alone."""

    CLIENTS = "/proc/fs/nfsd/clients"

    @classmethod
    def setUpClass(cls):
        cls.share = os.path.join(DISK, "kernel")
        os.makedirs(cls.share)
        trees.make(os.path.join(cls.share, "small"), depth=5, many=10, megabytes=3, sockets=False)
        cls.server = KernelServer(cls.share, without=("3", "4.0", "4.1")).start()
        cls.driver = Driver(LAB, name="kernel")
        cls.driver.start()

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        cls.server.done()

    def request(self, name, **more):
        return {"name": name, "volume_capabilities": [capability()],
                "parameters": {"server": SERVER, "share": "/"}, **more}

    def test_life(self):
        """Volumes, clones, snapshots and restores; nobody says which version."""
        client = self.driver.client
        wanted = trees.survey(os.path.join(self.share, "small"))
        source = client.CreateVolume(**self.request("small")).volume.volume_id
        copy = client.CreateVolume(timeout=120, **self.request(
            "copy", volume_content_source={"volume": {"volume_id": source}})).volume.volume_id
        snapshot = client.CreateSnapshot(timeout=120, name="snap",
                                         source_volume_id=source).snapshot.snapshot_id
        back = client.CreateVolume(timeout=120, **self.request(
            "back",
            volume_content_source={"snapshot": {"snapshot_id": snapshot}})).volume.volume_id
        for name in ("copy", "back"):
            found = trees.differences(wanted, trees.survey(os.path.join(self.share, name)))
            self.assertFalse(found, "%s: %s" % (name, trees.told(found)))
        client.DeleteSnapshot(snapshot_id=snapshot)
        for volume_id in (copy, back):
            client.DeleteVolume(volume_id=volume_id)
        trash = os.path.join(self.share, STATE, "trash")
        self.assertTrue(wait_for(lambda: not os.listdir(trash), 60))
        self.assertEqual(sorted(os.listdir(self.share)), [STATE, "small"])

    def test_clients_leave(self):
        """Each program that has ended has left: the server's memory does not grow."""
        begun = len(os.listdir(self.CLIENTS))
        for _ in range(CONNECTS):
            got = subprocess.run([os.environ["CSI_NFS"], "check", "--server", SERVER, "--share",
                                  "/", "--mount-options", "vers=4.2"], stdout=subprocess.PIPE,
                                 text=True, check=False)
            self.assertIn("NFSv4.2", got.stdout)
        self.assertLessEqual(len(os.listdir(self.CLIENTS)), begun + 2)


if __name__ == "__main__":
    harness.main("sessions")
