# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Socket activation, notifications, and the units in deploy/systemd.

Activation passes sockets as systemd does, by a few lines of Python and by systemd's own
systemd-socket-activate. Units has systemd-analyze look at the units. Manager runs them in a systemd
that is the first process of a PID namespace, against the kernel's NFS server; a guest only, since
systemd would rearrange the control groups of a machine. Runs inside a lab, with CSI_NFS naming the
driver.
"""
import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import driver
import harness
import servers
from csi_client import Client, capability, patiently
from servers import KernelServer, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
SOURCES = os.path.join(HERE, "..", "..", "deploy", "systemd")
SERVER = "127.0.0.1"
CONFIGURATION = 2  # exit status for options and sockets that are wrong

# Becomes the driver as a service manager makes it: descriptors from 3 on, and its own process id.
STARTER = """
import os, sys
passed = [int(fd) for fd in sys.argv[1].split(",") if fd]
safe = [os.dup(os.dup2(fd, 100 + i)) for i, fd in enumerate(passed)]
safe = [os.dup2(fd, 200 + i) for i, fd in enumerate(safe)]
for fd in range(3, 100):
    try:
        os.close(fd)
    except OSError:
        pass
for i, fd in enumerate(safe):
    os.dup2(fd, 3 + i, inheritable=True)
if "LISTEN_PID" not in os.environ:
    os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""

UNSET = ("CSI_ENDPOINT", "NODE_ID", "NFS_SERVER", "NFS_SHARE")


def needs(program):
    if shutil.which(program) is None:
        raise unittest.SkipTest(program + " is not installed")


def probe(endpoint, timeout=60):
    """Probe on a connection of its own, which waits for somebody to accept it."""
    with Client(endpoint, timeout) as client:
        client.Probe()


class Activation(unittest.TestCase):

    def setUp(self):
        self.place = tempfile.mkdtemp(dir=LAB)
        self.path = os.path.join(self.place, "csi.sock")
        self.endpoint = "unix://" + self.path
        self.log = os.path.join(self.place, "log")
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def listening(self, path=None, kind=socket.SOCK_STREAM, backlog=16):
        s = self.stack.enter_context(socket.socket(socket.AF_UNIX, kind))
        s.bind(path or self.path)
        if backlog:
            s.listen(backlog)
        return s

    def start(self, *sockets, options=("--mode=node",), **variables):
        environment = {k: v for k, v in os.environ.items() if k not in UNSET}
        environment["LISTEN_FDS"] = str(len(sockets))
        environment["LISTEN_FDNAMES"] = ":".join(["csi"] * len(sockets))
        environment.update(variables)
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", STARTER, ",".join(str(s.fileno()) for s in sockets),
                 driver.binary(), *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[s.fileno() for s in sockets], env=environment)
        self.stack.callback(self.end, process, signal.SIGKILL)
        return process

    @staticmethod
    def end(process, how=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(how)
        return process.wait(30)

    def logged(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def refused(self, word, *sockets, **more):
        process = self.start(*sockets, **more)
        self.assertEqual(process.wait(30), CONFIGURATION, self.logged())
        lines = self.logged().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith("csi-nfs: "), lines)
        self.assertIn(word, lines[0])
        os.unlink(self.log)

    # ---- what is served ----

    def test_passed_socket_is_served(self):
        before = self.listening()
        process = self.start(before)
        probe(self.endpoint)
        self.assertIn("endpoint=" + self.path, self.logged().replace('"', ""))
        with open("/proc/%d/fdinfo/3" % process.pid, encoding="ascii") as f:
            flags = next(int(line.split()[1], 8) for line in f if line.startswith("flags:"))
        self.assertTrue(flags & os.O_CLOEXEC, oct(flags))
        self.assertTrue(flags & os.O_NONBLOCK, oct(flags))
        self.assertEqual(self.end(process), 0)

    def test_clients_wait_for_the_driver_and_for_the_next_one(self):
        listening = self.listening()
        inode = os.lstat(self.path).st_ino
        for how, status in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                early = pool.submit(probe, self.endpoint)
                process = self.start(listening)
                self.assertIsNone(early.exception(), self.logged())
            probe(self.endpoint)
            self.assertEqual(self.end(process, how), status)
            self.assertEqual(os.lstat(self.path).st_ino, inode, "the socket's file")

    def test_abstract_socket(self):
        name = "csi-nfs-test-%d" % os.getpid()
        process = self.start(self.listening("\0" + name))
        probe("unix-abstract:" + name)
        self.assertEqual(self.end(process), 0)

    def test_endpoint_that_agrees(self):
        listening = self.listening()
        link = self.place + ".link"
        os.symlink(self.place, link)
        self.addCleanup(os.unlink, link)
        for row, given in (
                ("option", {"options": ("--mode=node", "--endpoint=" + self.endpoint)}),
                ("variable", {"CSI_ENDPOINT": self.path}),
                ("another spelling", {"CSI_ENDPOINT": "unix://%s/csi.sock" % link})):
            with self.subTest(row=row):
                process = self.start(listening, **given)
                probe(self.endpoint)
                self.assertEqual(self.end(process), 0)

    def test_variables_for_another_process(self):
        """As a shell that was activated leaves them to what it starts."""
        process = self.start(self.listening(os.path.join(self.place, "other")),
                             options=("--mode=node", "--endpoint", self.endpoint), LISTEN_PID="1")
        self.assertTrue(wait_for(lambda: os.path.exists(self.path)), self.logged())
        probe(self.endpoint)
        self.assertEqual(self.end(process), 0)
        self.assertFalse(os.path.lexists(self.path), "its own socket is removed")

    def test_holder_is_kept_in_the_state_directory(self):
        """The directory of the socket may not be the driver's to write to."""
        state = os.path.join(self.place, "state")
        os.mkdir(state)
        process = self.start(self.listening(), options=("--mode=controller",),
                             STATE_DIRECTORY=state)
        probe(self.endpoint)
        self.assertEqual(os.listdir(state), ["csi-nfs.holder"])
        self.assertEqual(self.end(process), 0)
        self.assertFalse(os.path.exists(self.path + ".holder"))

    # ---- what is not ----

    def test_sockets_that_cannot_be_served(self):
        tcp = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pair = socket.socketpair()
        self.stack.enter_context(pair[0])
        self.stack.enter_context(pair[1])
        with open("/dev/null", "rb") as null:
            self.refused("not a socket", null)
        self.refused("no authentication", tcp)
        self.refused("does not listen", pair[0])
        self.refused("does not listen", self.listening(os.path.join(self.place, "deaf"),
                                                       backlog=0))
        self.refused("not a unix stream socket",
                     self.listening(os.path.join(self.place, "datagrams"), socket.SOCK_DGRAM, 0))
        good = self.listening()
        self.refused("serves one", good, tcp)
        self.refused("serves one", good, good)
        self.refused("LISTEN_FDS", LISTEN_FDS="1")
        self.refused("LISTEN_FDS", good, LISTEN_FDS="many")
        self.refused("LISTEN_PID", good, LISTEN_PID="me")
        self.refused("is not the passed socket", good,
                     options=("--endpoint=unix://%s/other.sock" % self.place,))
        self.refused("is not the passed socket", good, CSI_ENDPOINT="/run/other.sock")
        self.assertTrue(os.path.lexists(self.path))

    def test_bad_endpoint(self):
        """Without a passed socket, too, it is an error on the command line."""
        self.refused("no authentication", options=("--endpoint=tcp://127.0.0.1:1",))
        self.refused("is not of the form", options=("--endpoint=csi.sock",))
        self.refused("is not of the form", CSI_ENDPOINT="csi.sock")
        self.refused("names no socket", options=("--endpoint=unix:///",))
        self.refused("unix sockets allow", options=("--endpoint=unix:///" + 200 * "x",))

    # ---- notifications ----

    def hear(self, name):
        """A service manager that hears of the start and the end."""
        ear = self.listening(name.replace("@", "\0"), socket.SOCK_DGRAM, 0)
        ear.settimeout(60)
        process = self.start(self.listening(), NOTIFY_SOCKET=name)
        self.assertEqual(ear.recv(100), b"READY=1")
        probe(self.endpoint)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(ear.recv(100), b"STOPPING=1")
        self.assertEqual(process.wait(30), 0)
        ear.settimeout(0)
        self.assertRaises(BlockingIOError, ear.recv, 100)

    def test_notify(self):
        self.hear(os.path.join(self.place, "notify"))

    def test_notify_abstract(self):
        self.hear("@csi-nfs-notify-%d" % os.getpid())

    def test_notify_nobody(self):
        """It serves all the same, and says so."""
        process = self.start(self.listening(), NOTIFY_SOCKET="/nowhere/notify")
        probe(self.endpoint)
        self.assertEqual(self.end(process), 0)
        self.assertIn("Cannot notify the service manager", self.logged())

    def test_not_ready_without_a_socket(self):
        ear = self.listening(os.path.join(self.place, "notify"), socket.SOCK_DGRAM, 0)
        process = self.start(LISTEN_FDS="0", NOTIFY_SOCKET=os.path.join(self.place, "notify"),
                             options=("--endpoint=unix:///none/csi.sock",))
        self.assertEqual(process.wait(30), 1)
        ear.settimeout(0)
        self.assertRaises(BlockingIOError, ear.recv, 100)

    # ---- systemd's own ----

    def test_systemd_socket_activate(self):
        needs("systemd-socket-activate")
        environment = {k: v for k, v in os.environ.items() if k not in UNSET}
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                ["systemd-socket-activate", "--listen=" + self.path, "--fdname=csi",
                 driver.binary(), "--mode=node"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment)
        self.stack.callback(self.end, process, signal.SIGKILL)
        self.assertTrue(wait_for(lambda: os.path.exists(self.path)), self.logged())
        probe(self.endpoint)  # becomes the driver only now
        self.assertEqual(os.readlink("/proc/%d/exe" % process.pid), driver.binary())
        self.assertEqual(self.end(process), 0)
        self.assertTrue(os.path.lexists(self.path), "the socket is not the driver's to remove")


# ---- The units ----

UNITS = ("csi-nfs-controller.service", "csi-nfs-controller.socket", "csi-nfs-node.service",
         "csi-nfs-node.socket")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def install_units(folder, settings):
    """As "make install" does, with the driver in a place that every service can see."""
    program = os.path.join(LAB, "sbin")
    os.makedirs(program, exist_ok=True)
    shutil.copy(driver.binary(), os.path.join(program, "csi-nfs"))
    for unit in UNITS:
        source = os.path.join(SOURCES, unit)
        with open(source + ".in", encoding="utf-8") as f:
            text = f.read().replace("@sbindir@", program).replace("@sysconfdir@", settings)
        text = text.replace("@runstatedir@", "/run")
        if re.search(r"@\w+@", text):
            raise servers.Failure("%s: something is not filled in" % unit)
        write(os.path.join(folder, unit), text)


class Units(unittest.TestCase):
    """What systemd says of the units without running them."""

    def setUp(self):
        needs("systemd-analyze")
        self.folder = tempfile.mkdtemp(dir=LAB)
        install_units(self.folder, "/etc")

    def analyze(self, *words):
        return subprocess.run(["systemd-analyze", "--no-pager", *words], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)

    def test_verify(self):
        done = self.analyze("verify", "--man=no", "--recursive-errors=no",
                            *(os.path.join(self.folder, unit) for unit in UNITS))
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_security(self):
        """The exposure does not grow, in tenths. A node mounts, and no sandbox lets mounts out."""
        for unit, most in (("csi-nfs-controller.service", 16), ("csi-nfs-node.service", 47)):
            done = self.analyze("security", "--offline=true", "--threshold=%d" % most,
                                os.path.join(self.folder, unit))
            verdict = done.stdout.strip().splitlines()[-1]
            print("# " + verdict)
            self.assertEqual(done.returncode, 0, verdict)

    def test_node_has_the_mount_namespace_of_the_host(self):
        """What would give it one of its own, in systemd.exec(5)."""
        with open(os.path.join(self.folder, "csi-nfs-node.service"), encoding="utf-8") as f:
            given = {line.split("=")[0] for line in f if "=" in line and line[0] not in "#["}
        for word in ("Protect", "Private", "ReadOnly", "ReadWrite", "Inaccessible", "Bind", "Root",
                     "TemporaryFileSystem", "MountFlags", "DynamicUser", "ProcSubset", "Mount",
                     "LogNamespace", "Exec", "NoExec", "Extension"):
            self.assertEqual([d for d in given if d.startswith(word) and d != "ExecStart"], [])


TARGETS = ("sysinit.target", "basic.target", "shutdown.target", "sockets.target", "network.target",
           "multi-user.target")

# In namespaces of its own: a first process of PIDs, and mounts that reach nothing of the machine,
# whose root file system is the guest's.
BOOT = """
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for folder in /var/lib /var/tmp /tmp; do mount -t tmpfs tmpfs $folder; done
mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak
chown -R statd /var/lib/nfs
mount --bind /etc /etc
mount -o remount,bind,ro /etc
exec env -i PATH="$PATH" container=lab SYSTEMD_LOG_TARGET=console SYSTEMD_COLORS=0 \\
	SYSTEMD_UNIT_PATH="$1" SYSTEMD_GENERATOR_PATH="$1/none" \\
	SYSTEMD_ENVIRONMENT_GENERATOR_PATH="$1/none" \\
	/lib/systemd/systemd --system --unit=sockets.target
"""


class Manager(unittest.TestCase):
    """The units in a systemd."""

    @classmethod
    def setUpClass(cls):
        if os.environ.get("LAB_KIND") != "uml":
            raise unittest.SkipTest("systemd runs in a user-mode-linux guest only (LAB_KIND=uml)")
        if not os.path.exists("/lib/systemd/systemd"):
            raise unittest.SkipTest("systemd is not installed")
        cls.share = os.path.join(DISK, "share")
        os.makedirs(os.path.join(cls.share, "one"), exist_ok=True)
        shutil.chown(cls.share, "daemon", "daemon")
        # "secure": source ports above 1023 are refused.
        cls.server = KernelServer(
            DISK, "rw,no_root_squash,secure,fsid=0,no_subtree_check").start()
        cls.units = os.path.join(LAB, "units")
        cls.settings = os.path.join(LAB, "etc")
        cls.log = os.path.join(LAB, "systemd.log")
        install_units(cls.units, cls.settings)
        for target in TARGETS:
            write(os.path.join(cls.units, target), "[Unit]\nDefaultDependencies=no\n")
        for mode in ("node", "controller"):
            unit = "csi-nfs-%s.service" % mode
            # No journal is there to log to.
            text = "[Service]\nStandardError=append:%s\n" % os.path.join(LAB, mode + ".log")
            if mode == "controller":
                text += "User=daemon\n"
            write(os.path.join(cls.units, unit + ".d", "lab.conf"), text)
            wants = os.path.join(cls.units, "sockets.target.wants")
            os.makedirs(wants, exist_ok=True)
            os.symlink("../csi-nfs-%s.socket" % mode,
                       os.path.join(wants, "csi-nfs-%s.socket" % mode))
        # What start-statd asks systemd for, without dependencies on the rest of a machine.
        write(os.path.join(cls.units, "rpc-statd.service"),
              "[Unit]\nDefaultDependencies=no\n[Service]\nType=forking\n"
              "PIDFile=/run/rpc.statd.pid\nExecStart=/sbin/rpc.statd --no-notify\n")
        cls.set_options("node", "--log-level=debug", NODE_ID="node-of-the-unit")
        cls.set_options("controller")
        cls.boot()

    @classmethod
    def boot(cls):
        with open(cls.log, "ab") as log:
            cls.outer = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup", "bash", "-c",
                 BOOT, "boot", cls.units], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def is_up():
            with contextlib.suppress(OSError, ValueError):
                path = "/proc/%d/task/%d/children" % (cls.outer.pid, cls.outer.pid)
                with open(path, encoding="ascii") as f:
                    cls.pid = int(f.read())
                return cls.show("sockets.target", "ActiveState") == "active"
            return False
        if not wait_for(is_up, 120, 0.5):
            raise servers.Failure("systemd does not start:\n" + cls.tail("systemd"))

    @classmethod
    def tearDownClass(cls):
        cls.outer.kill()
        cls.outer.wait()
        cls.server.done()

    def tearDown(self):
        for mode in ("node", "controller"):
            self.systemctl("reset-failed", "csi-nfs-%s.service" % mode)
            self.systemctl("start", "csi-nfs-%s.socket" % mode)

    @classmethod
    def set_options(cls, mode, *options, **variables):
        variables["NFS_DRIVER_OPTIONS"] = " ".join(options)
        write(os.path.join(cls.settings, "csi-nfs", mode + ".env"),
              "".join('%s="%s"\n' % pair for pair in variables.items()))

    @staticmethod
    def tail(name):
        path = os.path.join(LAB, name + ".log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-40:])

    @classmethod
    def enter(cls, *command):
        """Run it among systemd's processes and mounts."""
        return subprocess.run(["nsenter", "-t", str(cls.pid), "-m", "-p", "-C", "--", *command],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)

    @classmethod
    def systemctl(cls, *words):
        return cls.enter("systemctl", "--no-pager", *words)

    @classmethod
    def show(cls, unit, name):
        return cls.systemctl("show", "--value", "--property=" + name, unit).stdout.strip()

    def state(self, mode):
        return self.show("csi-nfs-%s.service" % mode, "ActiveState")

    def process(self, mode):
        """The driver's directory in /proc, as seen by systemd."""
        pid = self.show("csi-nfs-%s.service" % mode, "MainPID")
        self.assertNotIn(pid, ("", "0"), self.tail(mode) + self.tail("systemd"))
        return "/proc/" + pid

    def client(self, mode):
        path = {"node": "/run/csi-nfs/node.sock",
                "controller": "/run/csi-nfs-controller/csi.sock"}[mode]
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        client = Client("unix://" + path, 120)
        self.addCleanup(client.close)
        return client

    def mounts(self, target):
        with open("/proc/%d/mountinfo" % self.pid, encoding="utf-8") as f:
            return [line for line in f if line.split(" ")[4] == target]

    # ---- the node ----

    def test_node(self):
        """The first call starts it; what it mounts is the host's, also after it has stopped."""
        self.systemctl("stop", "csi-nfs-node.service")
        self.assertEqual(self.state("node"), "inactive")
        client = self.client("node")
        self.assertEqual(client.NodeGetInfo().node_id, "node-of-the-unit")
        self.assertEqual(self.state("node"), "active")
        for kind in ("mnt", "net", "uts"):
            own = self.enter("readlink", "%s/ns/%s" % (self.process("node"), kind)).stdout
            self.assertEqual(own, self.enter("readlink", "/proc/1/ns/" + kind).stdout)
        target = os.path.join(LAB, "pods", "mount")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        self.set_options("node", "--inline-volumes=%s:/share" % SERVER)
        for row, context in (
                ("by path", {"mountPermissions": "02770"}),
                ("inline, walked", {"csi.storage.k8s.io/ephemeral": "true"})):
            with self.subTest(row=row):
                self.systemctl("stop", "csi-nfs-node.service")
                patiently(client.NodePublishVolume, volume_id="volume", target_path=target,
                          volume_capability=capability(flags=["vers=4.2"]),
                          volume_context={"server": SERVER, "share": "/share", "subDir": "one",
                                          **context})
                self.assertEqual(len(self.mounts(target)), 1, self.tail("node"))
                self.systemctl("stop", "csi-nfs-node.service")
                self.assertEqual(self.state("node"), "inactive")
                self.assertEqual(len(self.mounts(target)), 1)
                done = self.enter("sh", "-c", "echo %s >%s/file" % (row, target))
                self.assertEqual((done.returncode, done.stdout), (0, ""))
                patiently(client.NodeUnpublishVolume, volume_id="volume", target_path=target)
                self.assertEqual(self.mounts(target), [])
                self.assertFalse(os.path.lexists(target))
        one = os.path.join(self.share, "one")
        self.assertEqual(stat.S_IMODE(os.stat(one).st_mode), 0o2770)
        with open(os.path.join(one, "file"), encoding="ascii") as f:
            self.assertEqual(f.read(), "inline, walked\n")

    def test_locks_of_version_3(self):
        """mount.nfs has systemd start statd: it must not be a process of the node service."""
        client = self.client("node")
        target = os.path.join(LAB, "pods", "locked")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        patiently(client.NodePublishVolume, volume_id="volume", target_path=target,
                  volume_capability=capability(flags=["vers=3", "lock"]),
                  volume_context={"server": SERVER, "share": self.share, "subDir": "one"})
        self.assertIn("local_lock=none", self.mounts(target)[0])
        self.assertEqual(self.show("rpc-statd.service", "ActiveState"), "active")
        done = self.enter("flock", "-n", os.path.join(target, "locked"), "true")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.systemctl("stop", "csi-nfs-node.service")
        self.assertEqual(self.show("rpc-statd.service", "ActiveState"), "active")
        patiently(client.NodeUnpublishVolume, volume_id="volume", target_path=target)
        self.assertEqual(self.mounts(target), [])

    def test_a_restart_refuses_nobody(self):
        self.client("node").Probe()
        # The call that is being served when the driver is killed fails. There is one at a time.
        for how, most in (("restart", 0), ("kill --signal=SIGKILL", 1)):
            with self.subTest(how=how):
                begun = self.process("node")
                change = threading.Thread(
                    target=self.systemctl, args=(*how.split(), "csi-nfs-node.service"))
                change.start()
                calls, failed = 0, []
                while change.is_alive() or calls < 20:
                    try:
                        self.client("node").Probe()
                    except grpc.RpcError as e:
                        failed.append((e.code(), e.details()))
                    calls += 1
                change.join()
                self.assertLessEqual(len(failed), most, failed)
                self.client("node").Probe()
                self.assertNotEqual(self.process("node"), begun)

    def test_a_wrong_option_is_not_tried_again(self):
        self.systemctl("stop", "csi-nfs-node.service", "csi-nfs-node.socket")
        self.set_options("node", "--no-such-option")
        try:
            done = self.systemctl("start", "csi-nfs-node.service")
            self.assertNotEqual(done.returncode, 0)
            unit = "csi-nfs-node.service"
            self.assertEqual(self.show(unit, "ExecMainStatus"), str(CONFIGURATION))
            self.assertEqual(self.show(unit, "NRestarts"), "0")
            self.assertEqual(self.state("node"), "failed")
            self.assertIn("--no-such-option", self.tail("node"))
        finally:
            self.set_options("node", NODE_ID="node-of-the-unit")

    # ---- the controller ----

    def test_controller(self):
        client = self.client("controller")
        client.Probe()
        me = self.process("controller")
        status = dict(line.split(":\t", 1) for line in
                      self.enter("cat", me + "/status").stdout.splitlines() if ":\t" in line)
        self.assertEqual(status["Uid"].split(), ["1"] * 4)
        for kind in ("CapEff", "CapPrm", "CapBnd"):
            self.assertEqual(int(status[kind], 16), 1 << 10, kind)  # CAP_NET_BIND_SERVICE
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        holder = "/var/lib/csi-nfs-controller/csi-nfs.holder"
        first = self.enter("stat", "-c", "%U %a", holder).stdout.split()
        self.assertEqual(first, ["daemon", "600"])
        identity = self.enter("cat", holder).stdout
        parameters = {"server": SERVER, "share": "/share"}
        cap = capability(flags=["vers=4"])
        volume = patiently(client.CreateVolume, name="made", volume_capabilities=[cap],
                           parameters=parameters).volume
        self.assertEqual(os.stat(os.path.join(self.share, "made")).st_uid, 1)
        with open(os.path.join(self.share, "made", "file"), "w", encoding="ascii") as f:
            f.write("data")
        # Threads, memory and calls of a copy, under the filter.
        snapshot = patiently(client.CreateSnapshot, name="taken", source_volume_id=volume.volume_id,
                             parameters={"compression": "zstd"}).snapshot
        self.systemctl("restart", "csi-nfs-controller.service")
        copies = [
            patiently(client.CreateVolume, name="restored", volume_capabilities=[cap],
                      parameters=parameters, volume_content_source={
                          "snapshot": {"snapshot_id": snapshot.snapshot_id}}).volume,
            patiently(client.CreateVolume, name="cloned", volume_capabilities=[cap],
                      parameters=parameters, volume_content_source={
                          "volume": {"volume_id": volume.volume_id}}).volume]
        for name in ("restored", "cloned"):
            with open(os.path.join(self.share, name, "file"), encoding="ascii") as f:
                self.assertEqual(f.read(), "data")
        self.assertEqual(self.enter("cat", holder).stdout, identity)
        patiently(client.DeleteSnapshot, snapshot_id=snapshot.snapshot_id)
        for one in [volume] + copies:
            patiently(client.DeleteVolume, volume_id=one.volume_id)
        self.assertEqual(sorted(os.listdir(self.share)), [".csi-nfs", "one"])


if __name__ == "__main__":
    harness.main("systemd")
