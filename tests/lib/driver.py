# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Start and stop csi-nfs for a test. CSI_NFS names the binary."""
import os
import signal
import socket
import struct
import subprocess

import grpc

from csi_client import Client
from servers import Failure, wait_for

# For tests that start many drivers: each starts all of its threads at its first call, which takes a
# third of a second in a guest.
FEW_IN_GUEST = 8 if os.environ.get("LAB_KIND") == "uml" else None


def binary():
    path = os.environ.get("CSI_NFS")
    if not path:
        raise Failure("CSI_NFS must name the csi-nfs binary to test")
    return os.path.abspath(path)


class Driver:
    """A csi-nfs process, with its socket and log in home. cgroup: a folder of cgroup2 to run in;
    program: another driver; workers: how many calls run at once, or None for as many as
    it takes by itself."""

    def __init__(self, home, *options, name="csi", cgroup=None, program=None, workers=None):
        self.program = program
        self.workers = workers
        self.socket = os.path.join(home, name + ".sock")
        self.endpoint = "unix://" + self.socket
        self.log = os.path.join(home, name + ".log")
        self.options = options
        self.cgroup = cgroup
        self.process = None
        self.client = None
        self.past = set()  # process ids of those that have ended

    def start(self):
        """Start it and wait until Probe answers."""
        environment = {k: v for k, v in os.environ.items()
                       if k not in ("CSI_ENDPOINT", "NODE_ID", "NFS_SERVER", "NFS_SHARE")}
        if self.workers is not None:
            environment["UV_THREADPOOL_SIZE"] = str(self.workers)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program or binary(), "--endpoint", self.endpoint, *self.options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                preexec_fn=self._join if self.cgroup else None)
        self.past.discard(self.process.pid)
        if not wait_for(self._answers) or self.process.poll() is not None:
            self.kill()
            raise Failure("csi-nfs does not answer. Its log:\n" + self.tail())
        self.client = Client(self.endpoint)
        try:
            self.client.Probe(timeout=10)
        except grpc.RpcError as e:
            self.kill()
            raise Failure("csi-nfs fails Probe: %s\n%s" % (e, self.tail())) from e
        return self

    def _join(self):
        with open(os.path.join(self.cgroup, "cgroup.procs"), "w", encoding="ascii") as f:
            f.write("0")  # whoever writes it

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def _answers(self):
        """Return whether the socket accepts: after a refusal gRPC would wait for seconds. A child
        of one that was killed may serve the old socket for a moment."""
        if self.process.poll() is not None:
            return True  # it has exited; start() reports why
        with socket.socket(socket.AF_UNIX) as s:
            if s.connect_ex(self.socket) != 0:
                return False
            peer = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return struct.unpack("3i", peer)[0] not in self.past

    def tail(self, lines=30):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def logged_since(self, size):
        """Return what it has logged since its log had this size."""
        with open(self.log, "rb") as f:
            f.seek(size)
            return f.read().decode(errors="replace")

    def _end(self, how):
        """Stop it. Return the exit status, negative for a signal, or None if it was not running."""
        if self.client is not None:
            self.client.close()
            self.client = None
        if self.process is None:
            return None
        self.past.add(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.process = None
            raise Failure("csi-nfs did not end within 20 s of signal %d" % how) from None
        self.process = None
        return status

    def stop(self):
        return self._end(signal.SIGTERM)

    def kill(self):
        return self._end(signal.SIGKILL)

    def restart(self, how=signal.SIGTERM):
        self._end(how)
        return self.start()

    def memory_kib(self, kind="VmRSS"):
        """Return its resident memory, or another line of its status."""
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as f:
            for line in f:
                if line.startswith(kind + ":"):
                    return int(line.split()[1])
        return 0

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()
