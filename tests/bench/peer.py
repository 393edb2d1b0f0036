# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""csi-nfs beside csi-driver-nfs: both drivers in one guest, on one server, in turn, round by round.
BENCH_PEER is csi-driver-nfs's program. Prints the median of the rounds, and their spread. Runs
inside a lab with --kernel nfs --kernel nfsd.
"""
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import trees
from cases import DISK, LAB, SERVER
from csi_client import capability
from driver import Driver
from servers import Failure, KernelServer, wait_for

MIB = 1 << 20
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
VOLUMES = int(os.environ.get("BENCH_VOLUMES", "500"))
PEER_VOLUMES = int(os.environ.get("BENCH_PEER_VOLUMES", "30"))  # it is slow
MOUNTS = int(os.environ.get("BENCH_MOUNTS", "20"))
FILES = int(os.environ.get("BENCH_SMALL", "1000"))
EXPORT = os.path.join(DISK, "export")
FLAGS = "vers=4.2"


class Side:
    """A driver, and what was measured of it: lists of figures by row."""

    def __init__(self, name, volumes, *options, program=None):
        self.name = name
        self.volumes = volumes
        self.driver = Driver(LAB, "--nodeid", "bench", *options, name=name, program=program)
        self.figures = {}

    def note(self, row, figure):
        self.figures.setdefault(row, []).append(figure)

    def load(self, name, operation, count, callers=1, target=""):
        """Run the load generator: calls a second, and the median in ms."""
        got = subprocess.run(
            [os.path.join(os.environ["CSI_NFS_BENCH"], "load"), "-u", "-n", name,
             self.driver.socket, operation, str(count), str(callers), SERVER, "/", target, FLAGS],
            stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        return float(got[4]), float(got[5])

    def resident(self):
        with open("/proc/%d/status" % self.driver.process.pid, encoding="ascii") as f:
            line = next(line for line in f if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def volume(self, name, source=None):
        more = {} if source is None else {"volume_content_source": source}
        return self.driver.client.CreateVolume(
            name=name, volume_capabilities=[capability(flags=[FLAGS])], timeout=1200,
            parameters={"server": SERVER, "share": "/"}, capacity_range={"required_bytes": MIB},
            **more).volume.volume_id

    def timed(self, row, call):
        begun = time.monotonic()
        got = call()
        self.note(row, time.monotonic() - begun)
        return got

    def calls(self):
        # Names of their own: csi-driver-nfs remembers ids that it has deleted, and deletes a volume
        # that has the same id again in name only.
        for callers, how in ((1, "one at a time"), (16, "16 callers")):
            name = "by-%d" % callers
            for operation, what in (("create", "CreateVolume, "), ("delete", "DeleteVolume, ")):
                self.note(what + how, self.load(name, operation, self.volumes, callers)[0])
            self.is_gone(name)

    @staticmethod
    def is_gone(name):
        left = [n for n in os.listdir(EXPORT) if n.startswith(name)]
        if left:
            raise Failure("volumes that were deleted are still there: %s" % ", ".join(left))

    def mounts(self):
        target = os.path.join(LAB, "targets")
        os.makedirs(target, exist_ok=True)
        self.load("pod", "create", MOUNTS)
        for operation, what in (("publish", "NodePublishVolume, median"),
                                ("unpublish", "NodeUnpublishVolume, median")):
            self.note(what, self.load("pod", operation, MOUNTS, target=target)[1])
        self.load("pod", "delete", MOUNTS)
        self.is_gone("pod")

    def copies(self):
        source = self.volume("source")
        trees.make_small(os.path.join(EXPORT, "source"), FILES, 20)
        subprocess.run(["sync"], check=True)
        copy = self.timed("clone", lambda: self.volume("copy", {"volume": {"volume_id": source}}))
        snapshot = self.timed("snapshot", lambda: self.driver.client.CreateSnapshot(
            name="snapshot", source_volume_id=source, timeout=1200)).snapshot.snapshot_id
        back = self.timed("restore", lambda: self.volume(
            "back", {"snapshot": {"snapshot_id": snapshot}}))
        self.driver.client.DeleteSnapshot(snapshot_id=snapshot, timeout=60)
        self.timed("DeleteVolume", lambda: self.delete(copy))
        for volume in (source, back):
            self.delete(volume)
        for name in ("source", "copy", "back", "snapshot"):
            self.is_gone(name)
        trash = os.path.join(EXPORT, ".csi-nfs", "trash")
        wait_for(lambda: not os.path.isdir(trash) or not os.listdir(trash), 300)

    def delete(self, volume):
        self.driver.client.DeleteVolume(volume_id=volume, timeout=600)

    def round(self):
        self.driver.start()
        self.load("probe", "probe", 200)
        time.sleep(1)
        self.note("idle", self.resident())
        self.note("Probe, median", self.load("probe", "probe", 1000)[1])
        self.calls()
        self.mounts()
        self.copies()
        self.note("after", self.resident())
        self.driver.stop()
        shutil.rmtree(os.path.join(EXPORT, ".csi-nfs"), ignore_errors=True)
        subprocess.run(["sync"], check=True)


ROWS = (
    ("Probe, median", "Probe, median", "%.2f", "ms"),
    ("CreateVolume, one at a time", "CreateVolume, one at a time", "%.1f", "a second"),
    ("CreateVolume, 16 callers", "CreateVolume, 16 callers", "%.1f", "a second"),
    ("DeleteVolume, one at a time", "DeleteVolume of an empty volume, one at a time", "%.1f",
     "a second"),
    ("DeleteVolume, 16 callers", "DeleteVolume of an empty volume, 16 callers", "%.1f", "a second"),
    ("NodePublishVolume, median", "NodePublishVolume, median", "%.0f", "ms"),
    ("NodeUnpublishVolume, median", "NodeUnpublishVolume, median", "%.0f", "ms"),
    ("clone", "clone of %d files of 4 KiB" % FILES, "%.2f", "s"),
    ("snapshot", "snapshot of them", "%.2f", "s"),
    ("restore", "restore of that", "%.2f", "s"),
    ("DeleteVolume", "DeleteVolume of such a volume", "%.3f", "s"),
    ("idle", "resident memory, idle", "%.1f", "MB"),
    ("after", "resident memory, after the run", "%.1f", "MB"),
)


def spread(figures, form):
    return "%s (%s to %s)" % tuple(form % f for f in (statistics.median(figures), min(figures),
                                                      max(figures)))


def main():
    os.makedirs(EXPORT)
    server = KernelServer(EXPORT).start()
    work = os.path.join(LAB, "peer")
    os.makedirs(work)
    ours = Side("csi-nfs", VOLUMES)
    peer = Side("csi-driver-nfs", PEER_VOLUMES, "--working-mount-dir", work,
                program=os.environ["BENCH_PEER"])
    for _ in range(ROUNDS):
        for side in (ours, peer):
            side.round()
    server.done()
    print("Guest with knfsd on ext4; %d rounds of each driver, in turn: median (spread)\n" % ROUNDS)
    print("| | %s | %s |\n| --- | --- | --- |" % (ours.name, peer.name))
    for row, what, form, unit in ROWS:
        print("| %s | %s %s | %s %s |" % (what, spread(ours.figures[row], form), unit,
                                          spread(peer.figures[row], form), unit))


if __name__ == "__main__":
    main()
