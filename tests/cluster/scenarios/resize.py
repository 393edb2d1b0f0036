# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Volumes grow, without a pod."""
from world import Scenario


class Resize(Scenario):

    def test_grows(self):
        self.claim("data", self.storage_class())
        volume = self.bound("data")
        self.resize("data", "3Gi")
        self.until("the claim has grown", lambda: self.capacity("data") == "3Gi")
        pv = self.api.get("PersistentVolume", volume)
        self.assertEqual(pv["spec"]["capacity"]["storage"], "3Gi")
        self.resize("data", "4Gi")
        self.until("the claim has grown again", lambda: self.capacity("data") == "4Gi")

    def test_shrinks_never(self):
        self.claim("data", self.storage_class(), size="2Gi")
        self.bound("data")
        self.refusal(self.resize, "data", "1Gi")
        self.assertEqual(self.capacity("data"), "2Gi")
