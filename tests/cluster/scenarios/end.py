# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What has to hold after everything else: nothing is left on the share or in the API, and no right
was refused. It runs last, whichever scenarios were chosen.
"""
import glob
import json
import os
import re

from servers import wait_for
from world import PATIENCE, Scenario, measured, unexplained

# Warnings that the scenarios cause on purpose: patterns of reason and text.
CAUSED = (
    # outage, and cases that restart the server
    ("VolumeFailedDelete", "DeadlineExceeded|Unavailable|Aborted"),
    ("SnapshotC(reation|ontentCheckandUpdate)Failed", "Unavailable .* the connection broke"),
    # memory and snapshots ask for more copies at once than the driver makes
    ("SnapshotC(reation|ontentCheckandUpdate)Failed", "copies and archives are already running"),
    # migration replaces the Deployments; before the node boots there is none
    ("CalculateExpectedPodCountFailed", "found no controllers for pod"),
    ("FailedScheduling", "no nodes available to schedule pods"),
    # migration: csi-driver-nfs has no handler for SIGTERM, so containerd kills it
    ("FailedKillPod", 'KillContainer" for "nfs" .* ttrpc: closed'),
    # cases that kill containers, and the replacement of the Deployments
    ("Unhealthy", "Liveness probe failed: .*(connection refused|failed with statuscode: 500)"),
    # versions, squash and kerberos start the server with other versions and exports
    ("VolumeFailedDelete", "does not serve NFS version|has no NFSv4 export"),
)
LOGGED = {
    "A note that the copy is under way was not renewed": "outage",
    "Removed the note of a dead controller": "crash and outage",
    "Purging deleted volumes failed, it will be tried again": "outage",
    "Call failed UNAVAILABLE": "outage, and cases that restart the server",
}


class End(Scenario):

    def test_nothing_is_left(self):
        volumes = sorted(pv["spec"]["csi"]["volumeHandle"].split("#")[2]
                         for pv in self.api.list("PersistentVolume"))
        self.assertEqual(self.cluster.directories(), volumes)
        self.assertEqual(self.cluster.records(), volumes)
        self.assertEqual(self.cluster.records("snapshots"), [])
        for folder in ("busy", "work", "users", "parents"):
            with self.subTest(folder):
                self.is_emptied(folder)

    def is_emptied(self, folder):
        """Wait until nothing is left in a folder of the driver; fail with what is left."""
        wait_for(lambda: not self.cluster.records(folder), PATIENCE, 0.1)
        top = self.path(".csi-nfs", folder)
        left = sorted(os.path.relpath(os.path.join(where, name), top)
                      for where, names, files in os.walk(top) for name in names + files)
        self.assertEqual(left, [])

    def test_trash_empties(self):
        self.is_emptied("trash")

    def requests(self):
        """Entries of the audit log, but those from when another driver had the same accounts."""
        position = 0
        with open(self.cluster.plane.audit, "rb") as file:
            for line in file:
                if not any(begin <= position < end for begin, end in self.cluster.foreign):
                    yield json.loads(line)
                position += len(line)

    def test_no_refused_right(self):
        refused, requests = set(), 0
        for entry in self.requests():
            requests += 1
            # An event for a namespace that is being deleted has code 403, too: the right was there.
            decision = entry.get("annotations", {}).get("authorization.k8s.io/decision")
            if entry.get("responseStatus", {}).get("code") == 403 and decision != "allow":
                target = entry.get("objectRef", {})
                refused.add((entry["verb"], target.get("apiGroup", ""), target.get("resource"),
                             target.get("subresource", "")))
        self.assertEqual(refused, set())
        measured("%d requests of csi-nfs's service accounts, none refused", requests)
        self.assertGreater(requests, 0)

    def test_no_unexplained_warning(self):
        """Events of objects that are in no case's namespace: volumes and the driver's pods."""
        for namespace in ("default", "kube-system"):
            with self.subTest(namespace):
                self.assertEqual(unexplained(self.all_events(namespace), CAUSED), [])

    def test_no_unexplained_log(self):
        """What the driver logs as a warning or an error, but for what the scenarios cause."""
        found = set()
        for name in self.driver_logs():
            with open(name, encoding="utf-8", errors="replace") as file:
                for line in file:
                    said = re.search('level=(?:warn|error) msg="([^"]*)"', line)
                    code = re.search(' code="([A-Z_]*)"', line)
                    if said:
                        found.add(" ".join(m.group(1) for m in (said, code) if m))
        self.assertEqual(sorted(found - set(LOGGED)), [])

    def driver_logs(self):
        """Those of pods without a kubelet, and of those in the guest."""
        for pattern in ("*.nfs.log", "pods/kube-system_csi-nfs-*/nfs/*.log"):
            yield from glob.glob(os.path.join(self.cluster.logs, pattern))

    def test_no_crash(self):
        """No log of the driver has a failed assertion or a sanitizer's report."""
        logs = sorted(self.driver_logs())
        self.assertNotEqual(logs, [])
        for name in logs:
            with open(name, encoding="utf-8", errors="replace") as file:
                for line in file:
                    for word in ("Assertion", "ERROR: AddressSanitizer", "runtime error:"):
                        self.assertNotIn(word, line, name)
