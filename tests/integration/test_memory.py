# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The controller's memory while clones, a snapshot, restores and deletions run at once, and after
them, in the limit that the manifest sets.

Runs inside a lab, with CSI_NFS naming the driver. In a guest the driver has a cgroup of its own
with that limit, and sockets and page cache count. Elsewhere its resident memory is compared with
the same numbers.
"""
import concurrent.futures
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
import trees
from cases import LAB, Base, OnServer
from copies import GET_SNAPSHOT, Trees
from driver import Driver
from servers import wait_for

MANIFEST = os.path.join(HERE, "..", "..", "deploy", "kubernetes", "controller.yaml")
KIB = 1 << 10
MIB = 1 << 20
PEAK = 36 * MIB  # the documentation says what was measured
LEFT = 20 * MIB  # with the page cache of the program and its libraries
CLONES = 3  # as many as there may be on one server
CROWD = 30_000  # names in the root of a share
FILE_MIB = 24 if harness.LONG else 8
FILES = 600  # of a source
DELETIONS = 10 if harness.LONG else 5


def limit_of_manifest():
    """Return the memory limit of the container "nfs", in bytes."""
    with open(MANIFEST, encoding="utf-8") as f:
        container = f.read().split("- name: nfs\n")[1]
    return int(re.search(r"limits:\s+memory: (\d+)Mi\n", container).group(1)) * MIB


def make_cgroup(name):
    """Return a folder of cgroup2 with the limit, or None where this is not the lab's own kernel."""
    top = os.path.join(LAB, "cgroup")
    if os.environ["LAB_KIND"] != "uml":
        return None
    if not os.path.ismount(top):
        os.makedirs(top)
        servers.run("mount", "-t", "cgroup2", "none", top)
        with open(os.path.join(top, "cgroup.subtree_control"), "w", encoding="ascii") as f:
            f.write("+memory")
    place = os.path.join(top, name)
    os.mkdir(place)
    with open(os.path.join(place, "memory.max"), "w", encoding="ascii") as f:
        f.write(str(limit_of_manifest()))
    return place


class Memory(Trees):
    options = (GET_SNAPSHOT, "--mode", "controller")

    @classmethod
    def plant(cls):
        for i in range(CLONES):
            place = os.path.join(cls.share, "source-%d" % i)
            trees.make_plain(place, count=FILES)
            for j in range(3):
                with open(os.path.join(place, "large-%d" % j), "wb") as f:
                    for _ in range(FILE_MIB):
                        f.write(os.urandom(MIB))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cgroup = make_cgroup(cls.__name__)
        cls.restart(*cls.options)

    @classmethod
    def restart(cls, *flags):
        cls.driver.stop()
        cls.driver = Driver(LAB, *flags, name=cls.__name__, cgroup=cls.cgroup)
        cls.driver.start()

    def of_cgroup(self, name):
        with open(os.path.join(self.cgroup, name), encoding="ascii") as f:
            return f.read()

    def peak(self):
        if self.cgroup:
            return int(self.of_cgroup("memory.peak"))
        return self.driver.memory_kib("VmHWM") * KIB

    def now(self):
        if self.cgroup:
            return int(self.of_cgroup("memory.current"))
        return self.driver.memory_kib() * KIB

    def clone_one(self, i, source):
        volume = self.until_ok(lambda: self.clone("clone-%d" % i, source), 300)
        self.is_copy("source-%d" % i, "clone-%d" % i)
        self.until_ok(lambda: self.delete(volume.volume_id))

    def snap_and_restore(self, source):
        snapshot = self.until_ok(lambda: self.snap("snap", source), 300).snapshot_id
        volume = self.until_ok(lambda: self.restore("restored", snapshot), 300)
        self.is_restored("source-0", "restored")
        self.until_ok(lambda: self.delete(volume.volume_id))
        self.until_ok(lambda: self.unsnap(snapshot))

    def delete_some(self):
        for i in range(DELETIONS):
            volume = self.until_ok(lambda n="full-%d" % i: self.create(n))
            trees.make_plain(self.path("full-%d" % i), count=300, size=1)
            self.until_ok(lambda v=volume: self.delete(v.volume_id))

    def test_all_at_once(self):
        """Three clones take every place at times; a snapshot, its restore and deletions compete."""
        sources = [self.source("source-%d" % i) for i in range(CLONES)]
        with concurrent.futures.ThreadPoolExecutor(CLONES + 2) as pool:
            work = [pool.submit(self.clone_one, i, s) for i, s in enumerate(sources)]
            work.append(pool.submit(self.snap_and_restore, sources[0]))
            work.append(pool.submit(self.delete_some))
            for future in work:
                future.result()
        told = "the peak is %.1f MiB" % (self.peak() / MIB)
        self.assertLess(self.peak(), PEAK, told)
        self.assertLess(PEAK * 1.5, limit_of_manifest(), "the manifest's limit has no margin")
        if self.cgroup:
            self.assertIn("oom_kill 0\n", self.of_cgroup("memory.events"))
        # The next sweep gives back what is free.
        self.assertTrue(wait_for(lambda: self.now() < LEFT, 60, step=1),
                        "%.1f MiB stay; %s" % (self.now() / MIB, told))


class MemoryOnVersion3(Memory, Base):
    version = "3"


class MemoryOnVersion4(Memory, Base):
    version = "4"
    protocols = "4"


class LargeRoot(OnServer):
    """What else lies in the root of the share takes little memory."""

    options = ("--mode", "controller")

    def test_list(self):
        crowd = [self.path("crowd-%05d" % i) for i in range(CROWD)]
        for name in crowd:
            os.mknod(name)
        volume = self.create("listed")
        before = self.driver.memory_kib("VmHWM")
        try:
            listed = self.client.ListVolumes().entries
        finally:
            for name in crowd:
                os.unlink(name)
        found = [e for e in listed if e.volume.volume_id == volume.volume_id]
        self.assertEqual([e.status.volume_condition.abnormal for e in found], [False])
        grown = (self.driver.memory_kib("VmHWM") - before) * KIB / len(crowd)
        self.assertLess(grown, 100, "bytes a name")
        self.delete(volume.volume_id)


class LargeRootOnVersion4(LargeRoot, Base):
    version = "4"
    protocols = "4"


class LargeRootOnVersion3(LargeRoot, Base):
    version = "3"


if __name__ == "__main__":
    harness.main("memory")
