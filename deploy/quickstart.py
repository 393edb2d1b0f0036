# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The part of deploy/quickstart that runs inside the lab: one volume, from CreateVolume to
DeleteVolume, with the proof of each step."""
import os
import signal
import subprocess
import sys

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "lib"))

# pylint: disable=wrong-import-position
from csi_client import capability, to_json
from driver import Driver
from servers import Export, Failure, Ganesha

SERVER = "127.0.0.1"
NAME = "pvc-quickstart"
TEXT = "Written through a kernel NFS mount.\n"


def headline(text):
    print("\n== " + text, flush=True)


def show(*command):
    """Runs a command as a reader would and shows both."""
    print("$ " + " ".join(command), flush=True)
    subprocess.run(command, check=True)


def require(condition, text):
    if not condition:
        raise Failure("This should not be: " + text)


def call(client, method, **fields):
    """One RPC, shown with its answer."""
    print("-> %s %s" % (method, to_json(getattr(client, method).request(**fields))))
    answer = getattr(client, method)(**fields)
    print("<- OK %s" % to_json(answer), flush=True)
    return answer


def mountinfo(target):
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return [line.strip() for line in f if line.split()[4] == target]


def life(client, server, share):
    """The volume's way through the driver."""
    cap = capability(flags=server.flags("4.2"))
    target = os.path.join(os.environ["LAB_DIR"], "pod", "mount")
    os.makedirs(os.path.dirname(target))

    headline("Who answers?")
    call(client, "GetPluginInfo")
    call(client, "Probe")

    headline("Create a volume: a directory on the NFS server")
    volume = call(client, "CreateVolume", name=NAME, volume_capabilities=[cap],
                  capacity_range={"required_bytes": 1 << 30},
                  parameters={"server": SERVER, "share": share,
                              "mountPermissions": "0770"}).volume
    show("ls", "-l", share)
    directory = os.path.join(share, NAME)
    require(os.path.isdir(directory), "there is no directory " + directory)

    headline("The same call again: the same volume")
    again = call(client, "CreateVolume", name=NAME, volume_capabilities=[cap],
                 capacity_range={"required_bytes": 1 << 30},
                 parameters={"server": SERVER, "share": share, "mountPermissions": "0770"}).volume
    require(again.volume_id == volume.volume_id, "another id for the same name")

    headline("Publish it: the kernel mounts it")
    publish = {"volume_id": volume.volume_id, "target_path": target, "volume_capability": cap,
               "volume_context": dict(volume.volume_context)}
    call(client, "NodePublishVolume", **publish)
    lines = mountinfo(target)
    require(len(lines) == 1, "not mounted once: %r" % lines)
    print("/proc/self/mountinfo: " + lines[0])

    headline("Write through the mount, read on the server")
    with open(os.path.join(target, "hello"), "w", encoding="ascii") as f:
        f.write(TEXT)
    show("ls", "-l", directory)
    show("cat", os.path.join(directory, "hello"))
    with open(os.path.join(directory, "hello"), encoding="ascii") as f:
        require(f.read() == TEXT, "the server holds other bytes")
    with open(os.path.join(target, "hello"), encoding="ascii") as f:
        require(f.read() == TEXT, "the mount reads other bytes")
    print("%d bytes written, %d bytes read back: the same." % (len(TEXT), len(TEXT)))

    headline("Unpublish it: unmounted, and the target path is gone")
    call(client, "NodeUnpublishVolume", volume_id=volume.volume_id, target_path=target)
    require(not mountinfo(target), "still mounted")
    require(not os.path.exists(target), "the target path is still there")
    print("No line in /proc/self/mountinfo, no %s." % target)

    headline("Delete it, twice: gone, and no error the second time")
    secrets = {"mountOptions": ",".join(server.flags("4.2"))}
    call(client, "DeleteVolume", volume_id=volume.volume_id, secrets=secrets)
    call(client, "DeleteVolume", volume_id=volume.volume_id, secrets=secrets)
    show("ls", "-l", share)
    require(not os.path.exists(directory), "the directory is still there")


def main():
    share = os.path.join(os.environ["LAB_DISK"], "export")
    server = Ganesha(os.path.join(os.environ["LAB_DIR"], "ganesha"),
                     [Export(share, protocols="4")], protocols="4")
    headline("An NFS server (nfs-ganesha, NFSv4, port %d of %s) exports %s"
             % (server.port, SERVER, share))
    with server:
        print("It answers.")
        headline("csi-nfs serves the Container Storage Interface")
        with Driver(os.environ["LAB_DIR"], "--nodeid", "this-node") as driver:
            print("It listens on %s." % driver.endpoint)
            try:
                life(driver.client, server, share)
            except (Failure, grpc.RpcError):
                print("\nThe log of csi-nfs:\n" + driver.tail())
                raise
    headline("Done: one volume, from CreateVolume to DeleteVolume")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
    try:
        main()
    except grpc.RpcError as e:
        sys.exit("%s: %s" % (e.code().name, e.details()))
    except Failure as e:
        sys.exit(str(e))
