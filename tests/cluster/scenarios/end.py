# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What has to hold after everything else: nothing is left on the share or in the API, and no right
was refused. It runs last, whichever scenarios were chosen.
"""
import json
import os

from servers import wait_for
from world import PATIENCE, Scenario, measured


class End(Scenario):

    def test_nothing_is_left(self):
        handles = [pv["spec"]["csi"]["volumeHandle"].split("#")
                   for pv in self.api.list("PersistentVolume")]
        for export in (self.cluster.export, self.cluster.squashed):
            volumes = sorted(h[2] for h in handles if "/" + h[1] == export)
            with self.subTest(export):
                self.assertEqual(self.cluster.directories(export), volumes)
                self.assertEqual(self.cluster.records(export=export), volumes)
                self.assertEqual(self.cluster.records("snapshots", export), [])
            for folder in ("busy", "work", "users", "parents"):
                with self.subTest(export, folder=folder):
                    self.is_emptied(export, folder)

    def is_emptied(self, export, folder):
        """Wait until nothing is left in a folder of the driver; fail with what is left."""
        wait_for(lambda: not self.cluster.records(folder, export), PATIENCE, 0.1)
        top = os.path.join(export, ".csi-nfs", folder)
        left = sorted(os.path.relpath(os.path.join(where, name), top)
                      for where, names, files in os.walk(top) for name in names + files)
        self.assertEqual(left, [])

    def test_trash_empties(self):
        for export in (self.cluster.export, self.cluster.squashed):
            with self.subTest(export):
                self.is_emptied(export, "trash")

    def test_no_refused_right(self):
        refused, requests = set(), 0
        with open(self.cluster.plane.audit, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                requests += 1
                if entry.get("responseStatus", {}).get("code") == 403:
                    target = entry.get("objectRef", {})
                    refused.add((entry["verb"], target.get("apiGroup", ""), target.get("resource"),
                                 target.get("subresource", "")))
        self.assertEqual(refused, set())
        measured("%d requests of csi-nfs's service accounts, none refused", requests)
        self.assertGreater(requests, 0)

    def test_no_crash(self):
        """No log of the driver has a failed assertion or a sanitizer's report."""
        for name in sorted(os.listdir(self.cluster.logs)):
            if not name.endswith(".nfs.log"):
                continue
            with open(os.path.join(self.cluster.logs, name), encoding="utf-8",
                      errors="replace") as file:
                for line in file:
                    for word in ("Assertion", "ERROR: AddressSanitizer", "runtime error:"):
                        self.assertNotIn(word, line, name)
