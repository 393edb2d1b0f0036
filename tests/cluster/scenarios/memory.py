# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The controller at the memory limit of its manifest: clones, snapshots, restores, deletions."""
import os

from world import CONTROLLER, Scenario, measured

MIB = 1 << 20
FILES = 800  # small ones, in each tree
LARGE = 48  # MiB, in each source

# Prints "limit peak kills" of the cgroup of each driver of the Deployment.
USAGE = """
for pid in $(pgrep -f -- '^/usr/sbin/csi-nfs\S* --mode=controller'); do
	cd "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$pid/cgroup)" || exit
	echo "$(cat memory.max) $(cat memory.peak)" $(sed -n 's/^oom_kill //p' memory.events)
done"""


class Memory(Scenario):
    # More copies at once than the driver makes.
    expected = (("ProvisioningFailed", "copies and archives are already running"),)

    def fill(self, claim, large=0):
        """Written on the server's disk in one go, as nfs-ganesha wants it."""
        top = self.path(self.bound(claim))
        for number in range(FILES):
            folder = os.path.join(top, str(number % 20))
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, "file-%d" % number)
            with open(path, "wb") as file:
                file.write(b"%d" % number * 100)
            if number % 4 == 0:
                os.link(path, path + "-linked")
        if large:
            with open(os.path.join(top, "large"), "wb") as file:
                for _ in range(large):
                    file.write(os.urandom(MIB))
        return self.tree(top)

    def restarts(self):
        return {(pod["metadata"]["name"], status["name"]): status["restartCount"]
                for pod in self.api.list("Pod", "kube-system")
                if pod["metadata"]["labels"].get("app") == CONTROLLER
                for status in pod["status"]["containerStatuses"]}

    def usage(self):
        lines = self.cluster.node.order(USAGE).splitlines()
        self.assertEqual(len(lines), 2, lines)
        return [[int(word) for word in line.split()] for line in lines]

    def limit(self):
        container = next(c for c in self.cluster.template["spec"]["containers"]
                         if c["name"] == "nfs")
        return int(container["resources"]["limits"]["memory"].removesuffix("Mi")) * MIB

    def test_all_at_once(self):
        before = self.restarts()
        storage_class = self.storage_class()
        sources = ["source-0", "source-1"]
        doomed = ["doomed-%d" % number for number in range(6)]
        for name in sources + doomed:
            self.claim(name, storage_class)
        wanted = [self.fill(name, LARGE) for name in sources]
        for name in doomed:
            self.fill(name)
        self.snapshot("snap", sources[0])
        self.ready("snap", 600)

        volumes = [self.bound(name) for name in doomed]
        copies = []  # claim, number of its source
        for number in range(4):
            copies.append(("clone-%d" % number, number % 2))
            self.clone(copies[-1][0], sources[number % 2], storage_class)
        for number in range(3):
            copies.append(("restored-%d" % number, 0))
            self.restore(copies[-1][0], "snap", storage_class)
        for number, source in enumerate(sources):
            self.snapshot("later-%d" % number, source)
        for name in doomed:
            self.delete_claim(name)

        for name, source in copies:
            self.assertEqual(self.tree(self.path(self.bound(name, 600))), wanted[source], name)
        for number in range(len(sources)):
            self.ready("later-%d" % number, 600)
        for volume in volumes:
            self.gone(volume, 600)

        self.assertEqual(self.restarts(), before)
        usage = self.usage()
        for limit, _, kills in usage:
            self.assertEqual((limit, kills), (self.limit(), 0))
        measured("the driver's cgroup peaked at %.1f of %d MiB",
                 max(peak for _, peak, _ in usage) / MIB, self.limit() // MIB)
