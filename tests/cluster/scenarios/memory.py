# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The controller in the cgroup that the kubelet makes of the manifest's limit, with all at once."""
import os

from world import CONTROLLER, Scenario, measured

MIB = 1 << 20
SOURCES = 3
FILES = 3
FILE_MIB = 8
SMALL_FILES = 200
DELETED = 10
UNITS = {"Mi": MIB, "Gi": MIB << 10}


def in_bytes(quantity):
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


class Memory(Scenario):

    def limit(self):
        spec = self.api.get("Deployment", CONTROLLER, "kube-system")["spec"]["template"]["spec"]
        driver = next(c for c in spec["containers"] if c["name"] == "nfs")
        return in_bytes(driver["resources"]["limits"]["memory"])

    def groups(self):
        """What the cgroup of each controller tells: name of the file -> its text."""
        text = self.cluster.node.order("""
            for pid in $(pgrep -f -- '^/usr/sbin/csi-nfs[^ ]* --mode=controller'); do
                group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$pid/cgroup)
                echo "$(cat $group/memory.max) $(cat $group/memory.peak)" \\
                    "$(sed -n 's/^oom_kill //p' $group/memory.events)" \\
                    "$(sed -n 's/^anon //p' $group/memory.stat)"
            done""")
        return [tuple(map(int, line.split())) for line in text.splitlines()]

    def counts(self):
        """Of the containers of csi-nfs in the controller's pods, by pod."""
        return {pod["metadata"]["name"]: status["restartCount"]
                for pod in self.api.list("Pod", "kube-system")
                if pod["metadata"]["labels"].get("app") == CONTROLLER
                for status in pod["status"]["containerStatuses"] if status["name"] == "nfs"}

    def fill(self, volume, large):
        for number in range(large):
            with open(self.path(volume, "large-%d" % number), "wb") as file:
                for _ in range(FILE_MIB):
                    file.write(os.urandom(MIB))
        os.mkdir(self.path(volume, "small"))
        for number in range(SMALL_FILES):
            with open(self.path(volume, "small", str(number)), "wb") as file:
                file.write(os.urandom(100))
        return self.tree(self.path(volume))

    def test_all_at_once(self):
        """Clones, snapshots, volumes restored from them, and deletions compete."""
        limit = self.limit()
        before = self.counts()
        self.assertEqual([group[0] for group in self.groups()], [limit] * len(before))
        name = self.storage_class()
        for number in range(SOURCES):
            self.claim("source-%d" % number, name)
        for number in range(DELETED):
            self.claim("full-%d" % number, name)
        wanted = [self.fill(self.bound("source-%d" % number), FILES) for number in range(SOURCES)]
        full = [self.bound("full-%d" % number) for number in range(DELETED)]
        for volume in full:
            self.fill(volume, 0)
        for number in range(SOURCES):
            self.snapshot("snap-%d" % number, "source-%d" % number)
            self.claim("clone-%d" % number, name, dataSource={
                "kind": "PersistentVolumeClaim", "name": "source-%d" % number})
        for number in range(DELETED):
            self.delete_claim("full-%d" % number)
        for number in range(SOURCES):
            self.ready("snap-%d" % number, 600)
            self.claim("restored-%d" % number, name, dataSource={
                "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
                "name": "snap-%d" % number})
        for number in range(SOURCES):
            for copy in ("clone", "restored"):
                volume = self.bound("%s-%d" % (copy, number), 600)
                self.assertEqual(self.tree(self.path(volume)), wanted[number])
        for volume in full:
            self.gone(volume, 600)
        after = self.groups()
        measured("peak of the cgroups of %d MiB: %s MiB, oom kills: %d", limit // MIB,
                 " and ".join("%.1f" % (peak / MIB) for _, peak, _, _ in after),
                 sum(kills for _, _, kills, _ in after))
        self.assertEqual(self.counts(), before)
        self.assertEqual([group[2] for group in after], [0] * len(before))
