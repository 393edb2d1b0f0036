#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The half of run that goes on without a guest: what pipelining gains where system calls are cheap.

Copies of many small files and of a large one, and a purge, from and to nfs-ganesha in a namespace
lab, beside the same NFS operations without the driver (the program bare): many in flight by
libnfs's own RPC engine, which is "bare libnfs", and one at a time by the driver's client, which
is the faster one. Also over a proxy (the program delay) that makes a round trip take 2 ms. All
over NFSv3, but for a clone over each version, and all in this very run: there is no baseline of
another day.
"""
import collections
import concurrent.futures
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
from csi_client import capability
from driver import Driver
from servers import Export, Failure, Ganesha, free_port, rpc_null, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
PROGRAMS = os.environ["CSI_NFS_BENCH"]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
BIG_MB = int(os.environ.get("BENCH_BIG_MB", "1024"))
HOST = "127.0.0.1"
FILES = 5000  # of 4 KiB, a hundred in each directory
FEW = 300  # of those that take a round trip after the other
IN_FLIGHT = 64  # files
IN_FLIGHT_BIG = 16  # pieces of a large one
TIMEOUT = 600
SHARE = os.path.join(DISK, "share")
VERSIONS = ("3", "4.0", "4.1", "4.2")


def row(what, ours, baseline, asked=""):
    """As run-inside prints it."""
    print("%-40s %26s %48s%s" % (what, ours, baseline, asked and "   " + asked), flush=True)


def fill_small(folder):
    for i in range(FILES):
        here = os.path.join(folder, "d%d" % (i // 100))
        os.makedirs(here, exist_ok=True)
        with open(os.path.join(here, "f%d" % i), "wb") as f:
            f.write(os.urandom(4096))


def fill_big(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        for _ in range(BIG_MB):
            f.write(os.urandom(1 << 20))


def bare(share, flags, what, count, window):
    """Files or MB a second: by the driver's client where the window is 1, else by libnfs alone."""
    os.sync()
    by_libnfs = ["-l"] if window > 1 else []
    got = subprocess.run([os.path.join(PROGRAMS, "bare"), *by_libnfs, HOST, share, ",".join(flags),
                          what, str(count), str(window)],
                         stdout=subprocess.PIPE, text=True, check=True)
    return float(got.stdout.split()[1])


def bare_copies(flags, count, window):
    """Files a second, of copying and of removing them. Through the server: what is removed behind
    its back it would believe to be there."""
    return (bare(SHARE, flags, "copy", count, window), bare(SHARE, flags, "unlink", count, window))


class Rates:
    """The figures of each name, one a round."""

    def __init__(self):
        self.rates = collections.defaultdict(list)

    def add(self, name, rate):
        self.rates[name].append(rate)

    def __getitem__(self, name):
        return statistics.median(self.rates[name])

    def text(self, name, unit="/s"):
        """Median and spread."""
        return "%.0f%s (%.0f to %.0f)" % (self[name], unit, min(self.rates[name]),
                                          max(self.rates[name]))

    def seconds(self, name, count):
        return "%.2f s (%.2f to %.2f)" % (count / self[name], count / max(self.rates[name]),
                                          count / min(self.rates[name]))

    def ratio(self, one, other):
        return self[one] / self[other]


class Volumes:
    """A driver, and the share as these flags reach it."""

    def __init__(self, client, flags):
        self.client = client
        self.flags = flags
        self.secrets = {"mountOptions": ",".join(flags)}

    def create(self, name, source=None):
        """The id. Makes a volume, or a clone of source."""
        fields = {"name": name, "capacity_range": {"required_bytes": 1 << 30},
                  "volume_capabilities": [capability(flags=self.flags)], "secrets": self.secrets,
                  "parameters": {"server": HOST, "share": SHARE}}
        if source is not None:
            fields["volume_content_source"] = {"volume": {"volume_id": source}}
        return self.client.CreateVolume(timeout=TIMEOUT, **fields).volume.volume_id

    def clone(self, source):
        """The id, and how many seconds it took."""
        os.sync()
        begun = time.monotonic()
        return self.create("copy", source), time.monotonic() - begun

    def clone_twice(self, source):
        """How many seconds two clones took that were made at once, each over its connection."""
        os.sync()
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            copies = list(pool.map(lambda name: self.create(name, source), ("copy1", "copy2")))
        seconds = time.monotonic() - begun
        for copy in copies:
            self.purge(copy)
        return seconds

    def purge(self, volume_id):
        """How many seconds it took until nothing was left of it."""
        trash = os.path.join(SHARE, ".csi-nfs", "trash")
        os.sync()
        begun = time.monotonic()
        self.client.DeleteVolume(timeout=TIMEOUT, volume_id=volume_id, secrets=self.secrets)
        subprocess.run([os.path.join(PROGRAMS, "emptied"), trash], check=True, timeout=TIMEOUT)
        return time.monotonic() - begun


@contextlib.contextmanager
def far_away(server):
    """A function: the flags that reach the server over 1 ms more each way, for a version."""
    port = free_port()
    with subprocess.Popen([os.path.join(PROGRAMS, "delay"), str(port), str(server.port), "1"]) as p:
        try:
            if not wait_for(lambda: rpc_null(port, 100003, 3)):
                raise Failure("the proxy does not answer")
            yield lambda version: ["vers=" + version, "port=%d" % port,
                                   "mountport=%d" % server.mount_port]
        finally:
            p.terminate()


def small_files(volumes, one_by_one):
    """Some rounds; so many files are copied and removed one after the other."""
    rates = Rates()
    source = volumes.create("small")  # from now on this is how the share is reached
    volumes.purge(volumes.clone(source)[0])  # neither is the first to ask
    for _ in range(ROUNDS):
        copy, seconds = volumes.clone(source)
        rates.add("clone", FILES / seconds)
        rates.add("purge", FILES / volumes.purge(copy))
        for name, count, window in (("bare", FILES, IN_FLIGHT), ("one", one_by_one, 1)):
            copied, removed = bare_copies(volumes.flags, count, window)
            rates.add(name, copied)
            rates.add(name + " removed", removed)
    return rates


def near(volumes):
    rates = small_files(volumes, FILES)
    row("Clone of %d files of 4 KiB" % FILES, rates.seconds("clone", FILES),
        "bare libnfs: %s" % rates.seconds("bare", FILES), "%d files in flight" % IN_FLIGHT)
    row("  one at a time", rates.text("clone"), rates.text("one"),
        "is %.1f times" % rates.ratio("clone", "one"))
    row("Purge of them", rates.text("purge"), "one at a time: %s" % rates.text("one removed"),
        "is %.1f times" % rates.ratio("purge", "one removed"))


def far(volumes):
    rates = small_files(volumes, FEW)
    row("Clone with 1 ms more each way", rates.text("clone"),
        "one at a time: %s" % rates.text("one"),
        "asked: 20 times, is %.2f" % rates.ratio("clone", "one"))
    row("  bare libnfs, %d files in flight" % IN_FLIGHT, "-", rates.text("bare"))
    row("Purge with 1 ms more each way", rates.text("purge"),
        "one at a time: %s" % rates.text("one removed"),
        "is %.2f times" % rates.ratio("purge", "one removed"))
    row("  bare libnfs, %d files in flight" % IN_FLIGHT, "-", rates.text("bare removed"))


def each_version(client, flags, where):
    """Clones over each version, in turn."""
    rates = Rates()
    on = {version: Volumes(client, flags(version)) for version in VERSIONS}
    source = on["3"].create("small")
    for number in range(ROUNDS + 1):
        for version, volumes in on.items():
            copy, seconds = volumes.clone(source)
            if number > 0:  # none is the first to ask
                rates.add(version, FILES / seconds)
            volumes.purge(copy)
    for version in VERSIONS:
        row("Clone over NFSv%s%s" % (version, where), rates.seconds(version, FILES), "",
            "is %.2f times as fast as over 3" % rates.ratio(version, "3"))


def big_file(volumes, places):
    """Each round has a place of its own for what bare makes: see bare_copies()."""
    rates = Rates()
    source = volumes.create("big")
    megabytes = BIG_MB * 1.048576
    # Where this machine is itself a guest, memory costs several times as much when it is used
    # first. Hence one copy that does not count, and each gives back what it took.
    volumes.purge(volumes.clone(source)[0])
    for place in places:
        copy, seconds = volumes.clone(source)
        rates.add("clone", megabytes / seconds)
        volumes.purge(copy)
        rates.add("twice", 2 * megabytes / volumes.clone_twice(source))
        rates.add("bare", bare(place, volumes.flags, "transfer", BIG_MB, IN_FLIGHT_BIG))
        os.truncate(os.path.join(place, "bare-to"), 0)  # the server may have it open
    row("Clone of a file of %d MiB" % BIG_MB, rates.text("clone", " MB/s"),
        "bare libnfs: %s" % rates.text("bare", " MB/s"),
        "asked: 0.8 of it, is %.2f" % rates.ratio("clone", "bare"))
    row("  two at once, over two connections", rates.text("twice", " MB/s"),
        "one: %s" % rates.text("clone", " MB/s"),
        "is %.2f times" % rates.ratio("twice", "clone"))


def main():
    places = [os.path.join(DISK, "place-%d" % i) for i in range(ROUNDS)]
    needed = 5 * BIG_MB << 20  # two sources and two copies, with some room
    has_room = shutil.disk_usage(DISK).free > needed
    # All before the server starts, which does not look for what it has not made itself.
    fill_small(os.path.join(SHARE, "small"))
    shutil.copy(os.path.join(SHARE, "small", "d0", "f0"), os.path.join(SHARE, "bare-from"))
    if has_room:
        fill_big(os.path.join(SHARE, "big", "big"))
        fill_big(os.path.join(places[0], "bare-from"))
        for place in places[1:]:
            os.makedirs(place)
            os.link(os.path.join(places[0], "bare-from"), os.path.join(place, "bare-from"))
    print("\nNatively, nfs-ganesha, %d CPUs: all of it in this very run, median and spread of %d rounds.\n"
          % (len(os.sched_getaffinity(0)), ROUNDS))
    row("", "csi-nfs", "baseline")
    with Ganesha(os.path.join(LAB, "ganesha"), [Export(p) for p in [SHARE] + places]) as server, \
            Driver(LAB, "--log-level", os.environ.get("BENCH_LOG", "error")) as driver:
        volumes = Volumes(driver.client, server.flags("3"))
        near(volumes)
        each_version(driver.client, server.flags, "")
        if has_room:
            big_file(volumes, places)
        else:
            row("Clone of a file of %d MiB" % BIG_MB, "-", "-", "there is no room for it")
        with far_away(server) as flags:
            far(Volumes(driver.client, flags("3")))
            each_version(driver.client, flags, ", 1 ms more each way")


if __name__ == "__main__":
    main()
