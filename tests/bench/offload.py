# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Clones and snapshots of volumes by csi-nfs over NFSv4.2, and clones over version 3, beside
"cp -a" over a 4.2 mount of the kernel's client, which is how csi-driver-nfs clones. knfsd on XFS,
which shares blocks, and on ext4, which does not. Runs inside a lab with --kernel nfs --kernel nfsd
--kernel xfs.
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
from servers import Failure, Image, KernelServer, rpc_null, run, wait_for

MIB = 1 << 20
LARGE = int(os.environ.get("BENCH_LARGE", "1024"))  # MiB
SMALL = int(os.environ.get("BENCH_SMALL", "5000"))  # files
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))  # of clones of small files, in turn
CREATED = 200  # volumes
VERSIONS = ("3", "4.0", "4.1", "4.2")
CLONES = 10  # of one file, one after another
FAR_PORT = 12049  # a proxy that delays each way by 1 ms


def fill_large(path):
    run("dd", "if=/dev/urandom", "of=" + os.path.join(path, "file"), "bs=1M", "count=%d" % LARGE)


def fill_small(path):
    trees.make_small(path, SMALL, 50)


def fill_xattrs(path):
    """Small files as a Samba server leaves them: each with an extended attribute."""
    fill_small(path)
    for folder, _, names in os.walk(path):
        for name in [""] + names:
            os.setxattr(os.path.join(folder, name), "user.DOSATTRIB", b"x" * 60)


def fill_sparse(path):
    with open(os.path.join(path, "file"), "wb") as f:
        f.truncate(1 << 40)
        for i in range(4):
            f.seek(i << 38)
            f.write(os.urandom(4 * MIB))


KINDS = (("1 file of %d MiB" % LARGE, fill_large), ("%d files of 4 KiB" % SMALL, fill_small),
         ("the same with an extended attribute each", fill_xattrs),
         ("1 TiB of hole with 16 MiB", fill_sparse))


class Share:
    """A file system, exported, with a driver and a mount."""

    def __init__(self, name, *mkfs):
        self.name = name
        self.image = Image(os.path.join(DISK, name), 4 * LARGE + 2000, *mkfs,
                           options="loop").mount()
        self.server = KernelServer(self.image.path).start()
        self.driver = Driver(LAB, name=name).start()
        self.mount = os.path.join(LAB, "mount")
        os.makedirs(self.mount, exist_ok=True)
        run("mount", "-t", "nfs", "-o", "vers=4.2", SERVER + ":/", self.mount)

    def done(self):
        run("umount", self.mount)
        self.driver.stop()
        self.server.done()
        self.image.unmount()

    def create(self, name, version, source=None, snapshot=None, port=None):
        flags = ["vers=" + version] + (["port=%d" % port] if port is not None else [])
        more = {}
        if source is not None:
            more["volume_content_source"] = {"volume": {"volume_id": source}}
        if snapshot is not None:
            more["volume_content_source"] = {"snapshot": {"snapshot_id": snapshot}}
        return self.driver.client.CreateVolume(
            name=name, volume_capabilities=[capability(flags=flags)], timeout=1200,
            parameters={"server": SERVER,
                        "share": self.image.path if version == "3" else "/"},
            secrets={"mountOptions": ",".join(flags)}, capacity_range={"required_bytes": MIB},
            **more).volume.volume_id

    def creates(self, version):
        """How long it takes to create CREATED empty volumes, one after another."""
        volumes = [self.create("first", version)]  # opens the connection
        begun = time.monotonic()
        volumes += [self.create("volume-%d" % i, version) for i in range(CREATED)]
        seconds = time.monotonic() - begun
        self.delete(version, *volumes)
        return seconds

    def source(self, version, fill):
        source = self.create("source", version)
        fill(os.path.join(self.image.path, "source"))
        subprocess.run(["sync"], check=True)
        return source

    def delete(self, version, *volumes):
        for volume in volumes:
            self.driver.client.DeleteVolume(volume_id=volume, timeout=60,
                                            secrets={"mountOptions": "vers=" + version})
        trash = os.path.join(self.image.path, ".csi-nfs", "trash")
        wait_for(lambda: not os.listdir(trash), 300)
        self.trim()

    def trim(self):
        """The lab's disk is small. Only blocks whose freeing is on the disk can be trimmed."""
        run("sync", "-f", self.image.path)
        run("fstrim", self.image.path)

    def clone(self, version, fill, port=None, times=1):
        """How long that many clones take, one after another."""
        source = self.source(version, fill)
        begun = time.monotonic()
        copies = [self.create("copy-%d" % i, version, source, port=port) for i in range(times)]
        seconds = time.monotonic() - begun
        self.delete(version, source, *copies)
        return seconds

    def clones_far(self, fill):
        """How long clones over a network take, over 4.2 and over 3, as in_turn() says it."""
        with subprocess.Popen([os.path.join(os.environ["CSI_NFS_BENCH"], "delay"), str(FAR_PORT),
                               str(self.server.port), "1"]) as delay:
            if not wait_for(lambda: rpc_null(FAR_PORT, 100003, 4)):
                raise Failure("the delaying proxy does not answer")
            times = in_turn(ROUNDS, lambda: self.clone("4.2", fill, FAR_PORT),
                            lambda: self.clone("3", fill, FAR_PORT))
            delay.terminate()
        return times

    def snapshot(self, version, fill, **parameters):
        """How long a snapshot takes, and its restore."""
        secrets = {"mountOptions": "vers=" + version}
        source = self.source(version, fill)
        begun = time.monotonic()
        snapshot = self.driver.client.CreateSnapshot(
            name="snapshot", source_volume_id=source, parameters=parameters, secrets=secrets,
            timeout=1200).snapshot.snapshot_id
        middle = time.monotonic()
        copy = self.create("copy", version, snapshot=snapshot)
        end = time.monotonic()
        self.driver.client.DeleteSnapshot(snapshot_id=snapshot, secrets=secrets, timeout=60)
        self.delete(version, source, copy)
        return middle - begun, end - middle

    def copy(self, fill):
        source, copy = (os.path.join(self.mount, n) for n in ("source", "copy"))
        os.mkdir(source)
        fill(os.path.join(self.image.path, "source"))
        subprocess.run(["sync"], check=True)
        begun = time.monotonic()
        run("cp", "-a", source, copy)
        subprocess.run(["sync", "-f", copy], check=True)
        seconds = time.monotonic() - begun
        for path in (source, copy):
            shutil.rmtree(path)
        self.trim()
        return seconds


def in_turn(rounds, *ways):
    """Measure each way once a round, so that none always comes first; return a text for each."""
    seconds = [[way() for way in ways] for _ in range(rounds)]
    return ["%.2f s" % times[0] if rounds == 1 else
            "%.2f s (%.2f to %.2f)" % (statistics.median(times), min(times), max(times))
            for times in zip(*seconds)]


def main():
    for share in (("xfs", "mkfs.xfs", "-q", "-f"), ("ext4", "mkfs.ext4", "-q", "-F")):
        on = Share(*share)
        times = in_turn(ROUNDS, *(lambda version=version: on.creates(version)
                                  for version in VERSIONS))
        print("%s, %d empty volumes: %s" % (on.name, CREATED, ", ".join(
            "over %s %s" % words for words in zip(VERSIONS, times))), flush=True)
        for kind, fill in KINDS:
            ways = {"csi-nfs over 4.2": lambda fill=fill: on.clone("4.2", fill)}
            # Version 3 reads holes, for hours, and has no extended attributes.
            if fill not in (fill_sparse, fill_xattrs):
                ways["over 3"] = lambda fill=fill: on.clone("3", fill)
            ways["cp -a over a 4.2 mount"] = lambda fill=fill: on.copy(fill)
            rounds = ROUNDS if fill in (fill_small, fill_xattrs) else 1
            times = in_turn(rounds, *ways.values())
            print("%s, %s: %s" % (on.name, kind, ", ".join(map(" ".join, zip(ways, times)))),
                  flush=True)
        if on.name == "xfs":  # elsewhere they take the space of ten
            seconds = on.clone("4.2", fill_large, times=CLONES)
            print("%s, %s, %d clones over 4.2: %.2f s" % (on.name, KINDS[0][0], CLONES, seconds),
                  flush=True)
        print("%s, %s, 1 ms more each way: csi-nfs over 4.2 %s, over 3 %s" % (
            on.name, KINDS[1][0], *on.clones_far(fill_small)), flush=True)
        for how, parameters in (("tree", {"format": "tree"}),
                                ("archive", {"format": "archive", "compression": "none"})):
            print("%s, %s, over 4.2: snapshot as %s %.2f s, its restore %.2f s" % (
                on.name, KINDS[0][0], how, *on.snapshot("4.2", fill_large, **parameters)),
                flush=True)
        on.done()


if __name__ == "__main__":
    main()
