#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What the driver keeps in memory: idle as controller and as node, after the first volume, after
many volumes were created and deleted, and after a snapshot as archive. On nfs-ganesha in a
namespace lab, with CSI_NFS naming the driver and CSI_NFS_BENCH the folder of the program load.
"""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
from csi_client import capability
from driver import Driver
from memory import libraries, private_kb, resident_kb
from servers import Export, Ganesha

LAB = os.environ["LAB_DIR"]
SHARE = os.path.join(os.environ["LAB_DISK"], "share")
LOAD = os.path.join(os.environ["CSI_NFS_BENCH"], "load")
HOST = "127.0.0.1"
COUNT = int(os.environ.get("BENCH_RESIDENT", "10000"))
CALLERS = 16
SWEEP = 35  # seconds: memory is given back every 30 s
IMAGE = "glibc.malloc.tcache_count=0"  # as deploy/Containerfile sets GLIBC_TUNABLES


def row(what, driver):
    pid = driver.process.pid
    print("%-52s %7d %7d %4d" % (what, resident_kb(pid), private_kb(pid), len(libraries(pid))),
          flush=True)


def load(driver, operation, flags):
    subprocess.run([LOAD, driver.socket, operation, str(COUNT), str(CALLERS), HOST, SHARE, "",
                    ",".join(flags)], check=True, stdout=subprocess.DEVNULL)


def controller(server, version):
    flags = server.flags(version)
    secrets = {"mountOptions": ",".join(flags)}
    with Driver(LAB, "--mode", "controller", "--log-level", "error") as driver:
        row("controller, idle", driver)
        volume = driver.client.CreateVolume(
            name="first", capacity_range={"required_bytes": 1 << 30}, secrets=secrets,
            volume_capabilities=[capability(flags=flags)],
            parameters={"server": HOST, "share": SHARE}).volume.volume_id
        row("  after one CreateVolume, NFSv%s" % version, driver)
        load(driver, "create", flags)
        load(driver, "delete", flags)
        row("  right after creating and deleting %d volumes" % COUNT, driver)
        time.sleep(SWEEP)
        row("  %d s later" % SWEEP, driver)
        driver.client.CreateSnapshot(source_volume_id=volume, name="snap", secrets=secrets)
        time.sleep(SWEEP)
        row("  %d s after a snapshot as archive" % SWEEP, driver)


def main():
    print("%-52s %7s %7s %4s" % ("", "kB", "private", "libraries"), flush=True)
    with Driver(LAB, "--mode", "node", "--nodeid", "n", "--state-dir", LAB) as driver:
        row("node, idle", driver)
    with Ganesha(os.path.join(LAB, "ganesha"), [Export(SHARE)]) as server:
        versions = os.environ.get("BENCH_VERSIONS", "4 3").split()
        for version in versions:
            controller(server, version)
        print("with %s:" % IMAGE, flush=True)
        os.environ["GLIBC_TUNABLES"] = IMAGE
        controller(server, versions[0])


if __name__ == "__main__":
    main()
