# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Many claims at once."""
import os
import time

from world import Scenario, measured

CLAIMS = int(os.environ.get("CSI_NFS_CLAIMS", "500"))


class Many(Scenario):

    def test_storm(self):
        storage_class = self.storage_class()
        before = self.cluster.records()
        begun = time.monotonic()
        for number in range(CLAIMS):
            self.claim("claim-%d" % number, storage_class)

        def bound():
            claims = self.api.list("PersistentVolumeClaim", self.namespace)
            return all(c["status"].get("phase") == "Bound" for c in claims) and claims
        claims = self.until("%d claims are bound" % CLAIMS, bound, 600, 0.5)
        took = time.monotonic() - begun
        measured("%d claims bound in %.1f s, %.1f a second", CLAIMS, took, CLAIMS / took)
        volumes = sorted(c["spec"]["volumeName"] for c in claims)
        self.assertEqual(len(set(volumes)), CLAIMS)
        self.assertEqual(sorted(set(self.cluster.records()) - set(before)), volumes)

        begun = time.monotonic()
        for claim in claims:
            self.delete_claim(claim["metadata"]["name"])
        self.until("all are deleted", lambda: not self.volumes(), 600, 0.5)
        took = time.monotonic() - begun
        measured("%d volumes deleted in %.1f s, %.1f a second", CLAIMS, took, CLAIMS / took)
        self.assertEqual(self.cluster.records(), before)
        self.assertFalse(set(volumes) & set(self.cluster.directories()))
