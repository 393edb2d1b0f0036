# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Containers of the controller that are killed while claims come and go."""
import random
import signal
import threading
import time

from world import Scenario, measured

CLAIMS = 60
KILLS = 5  # at least
SEED = 1


class Crash(Scenario):
    # A killed driver ends the calls that it had. gRPC connects anew with the next call, up to 1 s
    # later; only then csi-provisioner exits, and it has posted its events.
    expected = (("ProvisioningFailed", "Unavailable .* error reading from server: "
                 "(EOF|.*connection reset by peer)$"),)

    def storm(self, disturb):
        """Create claims and delete every other one as soon as it is bound. Meanwhile call disturb()
        every now and then, which returns whether it killed something. Nothing may be lost or
        left."""
        before = set(self.cluster.records())
        storage_class = self.storage_class()
        over = threading.Event()
        kills = []

        def disturbing():
            while not over.is_set() or sum(kills) < KILLS:
                time.sleep(0.3)
                kills.append(disturb())

        thread = threading.Thread(target=disturbing)
        thread.start()
        try:
            names = ["claim-%d" % number for number in range(CLAIMS)]
            for name in names:
                self.claim(name, storage_class)
                time.sleep(0.05)
            for name in names[::2]:
                self.bound(name, 300)
                self.delete_claim(name)
        finally:
            over.set()
            thread.join()
        kept = [self.bound(name, 300) for name in names[1::2]]
        self.until("the other volumes are deleted",
                   lambda: sorted(pv["metadata"]["name"] for pv in self.volumes()) == sorted(kept),
                   300, 0.5)
        measured("%d claims, %d kills", CLAIMS, sum(kills))
        self.assertEqual(set(self.cluster.records()) - before, set(kept))
        self.assertEqual(set(kept) - set(self.cluster.directories()), set())

    def test_driver(self):
        dice = random.Random(SEED)

        def kill():
            leader = self.cluster.leader()
            return bool(leader) and dice.random() < 0.5 and leader.kill("nfs")
        self.storm(kill)

    def test_any_container(self):
        dice = random.Random(SEED + 1)
        names = [c["name"] for c in self.cluster.template["spec"]["containers"]]

        def kill():
            return dice.random() < 0.5 and dice.choice(self.cluster.pods).kill(dice.choice(names))
        self.storm(kill)

    def test_handover(self):
        """The leader is told to end: its lease is given back, and the other replica goes on."""
        storage_class = self.storage_class()
        leader = self.until("somebody leads", self.cluster.leader)
        begun = time.monotonic()
        leader.kill("csi-provisioner", signal.SIGTERM)
        self.claim("data", storage_class)
        self.bound("data")
        measured("a claim was bound %.1f s after the leader's SIGTERM", time.monotonic() - begun)

    def test_pod_lost(self):
        """The leader's pod vanishes: the other one leads once the lease has run out."""
        storage_class = self.storage_class()
        leader = self.until("somebody leads", self.cluster.leader)
        leader.stop(signal.SIGKILL)
        begun = time.monotonic()
        self.claim("data", storage_class)
        self.bound("data")
        measured("a claim was bound %.1f s after the leader's SIGKILL", time.monotonic() - begun)
        leader.start()
