#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Keeps a driver busy with a dead server, while run-inside measures what is left for others.

    stuck.py SOCKET FOLDER

Starts nfs-ganesha, has VOLUMES volumes of it mounted through the driver, stops it with SIGSTOP, and
then asks as many at once as there are volumes, again and again: half of them unpublish, half
publish and ask for statistics. Prints "stuck" once that goes on. When its standard input ends, it
lets the server go on, unmounts what is left and ends.
"""
import os
import sys
import threading
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
from csi_client import Client, capability
from servers import Export, Ganesha

VOLUMES = 50
HOST = "127.0.0.1"


class Stuck:
    def __init__(self, socket, folder):
        self.client = Client("unix://" + socket)
        self.targets = os.path.join(folder, "stuck")
        self.share = os.path.join(folder, "share")
        for i in range(VOLUMES):
            os.makedirs(os.path.join(self.share, "v%d" % i))
        os.makedirs(self.targets)
        # Version 4 alone: rpcbind goes on telling the mount service of the server that lives.
        self.server = Ganesha(os.path.join(folder, "ganesha"), [Export(self.share, "4")],
                              protocols="4").start()
        self.over = threading.Event()

    def target(self, i):
        return os.path.join(self.targets, "t%d" % i)

    def publish(self, i):
        self.client.NodePublishVolume(
            volume_id="v%d" % i, target_path=self.target(i), timeout=30,
            volume_context={"server": HOST, "share": self.share, "subdir": "v%d" % i},
            volume_capability=capability("MULTI_NODE_MULTI_WRITER", self.server.flags("4.2")))

    def unpublish(self, i):
        self.client.NodeUnpublishVolume(volume_id="v%d" % i, target_path=self.target(i), timeout=30)

    def stats(self, i):
        self.client.NodeGetVolumeStats(volume_id="v%d" % i, volume_path=self.target(i), timeout=30)

    def nag(self, i):
        """As kubelet does, which waits a little between two calls."""
        calls = (self.unpublish,) if i % 2 else (self.stats, self.publish)
        while not self.over.is_set():
            for call in calls:
                try:
                    call(i)
                except grpc.RpcError:
                    pass
            self.over.wait(1)

    def run(self):
        for i in range(VOLUMES):
            self.publish(i)
        self.server.freeze()
        threads = [threading.Thread(target=self.nag, args=(i,)) for i in range(VOLUMES)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        print("stuck", flush=True)
        sys.stdin.read()
        self.over.set()
        self.server.thaw()
        for thread in threads:
            thread.join()
        for i in range(VOLUMES):
            self.unpublish(i)
        self.server.kill()


if __name__ == "__main__":
    Stuck(sys.argv[1], sys.argv[2]).run()
