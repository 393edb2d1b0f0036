# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Many claims at once, and how many a second."""
import os
import time

from world import Scenario, measured

CLAIMS = int(os.environ.get("CSI_NFS_CLAIMS", "500"))
TICK = os.sysconf("SC_CLK_TCK")


class Many(Scenario):

    def storm(self, verb, begin, condition):
        """Begin a storm and wait for it. Print its rate and the CPU time that the drivers spent."""
        begun, before = time.monotonic(), self.cpu()
        begin()
        value = self.until("%d are %s" % (CLAIMS, verb), condition, 1800, 0.5)
        took = time.monotonic() - begun
        measured("%d %s in %.1f s, %.1f a second; %.1f s of the driver's CPU time",
                 CLAIMS, verb, took, CLAIMS / took, self.cpu() - before)
        return value

    def cpu(self):
        """CPU seconds of all drivers."""
        ticks = 0
        for pod in self.cluster.pods:
            with open("/proc/%d/stat" % pod.pid("nfs"), encoding="ascii") as file:
                ticks += sum(int(n) for n in file.read().rpartition(")")[2].split()[11:13])
        return ticks / TICK

    def test_storm(self):
        storage_class = self.storage_class()
        before = self.cluster.records()

        def create():
            for number in range(CLAIMS):
                self.claim("claim-%d" % number, storage_class)

        def bound():
            claims = self.api.list("PersistentVolumeClaim", self.namespace)
            return all(c["status"].get("phase") == "Bound" for c in claims) and claims
        claims = self.storm("bound", create, bound)
        volumes = sorted(c["spec"]["volumeName"] for c in claims)
        self.assertEqual(len(set(volumes)), CLAIMS)
        self.assertEqual(sorted(set(self.cluster.records()) - set(before)), volumes)

        def delete():
            for claim in claims:
                self.delete_claim(claim["metadata"]["name"])
        self.storm("deleted", delete, lambda: not self.volumes())
        self.assertEqual(self.cluster.records(), before)
        self.assertFalse(set(volumes) & set(self.cluster.directories()))
