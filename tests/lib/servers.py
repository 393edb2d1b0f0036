# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""NFS servers for tests: nfs-ganesha and the kernel's own. For use inside a lab only, whose network
and /run are private: both servers take the well-known names of the machine they run on.
"""
import errno
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import zlib


class Failure(Exception):
    """A server did not start; the message has its log."""


def run(*command, check=True, env=None):
    """Run a program. If it fails, the exception has its output."""
    got = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         stdin=subprocess.DEVNULL, check=False, env=env)
    if check and got.returncode != 0:
        raise Failure("%s: exit status %d\n%s" % (" ".join(command), got.returncode, got.stdout))
    return got


def end(daemon):
    """End a daemon that should take back its registrations. rpc.mountd ignores SIGTERM while it
    starts."""
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


class Patience:
    """A limit for work whose duration depends on how busy the machine is: it is over when
    progress() has not changed between two looks that are these seconds apart."""

    def __init__(self, seconds, progress):
        self.seconds, self.progress = seconds, progress
        self.seen, self.end = progress(), time.monotonic() + seconds

    def is_over(self):
        if time.monotonic() <= self.end:
            return False
        seen, before = self.progress(), self.seen
        self.seen, self.end = seen, time.monotonic() + self.seconds
        return seen == before


def wait_for(condition, seconds=20, step=0.02, progress=lambda: None):
    """Wait until condition() is true. Return False if it is not within these seconds, or as long as
    progress() changes."""
    patience = Patience(seconds, progress)
    while not condition():
        if patience.is_over():
            return False
        time.sleep(step)
    return True


def free_port(family=socket.AF_INET):
    """Return a port outside the range of automatic ports: a server can be restarted on it."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        end = int(f.read().split()[0])
    while True:
        port = random.randrange(end // 2, end)
        with socket.socket(family) as s:
            try:
                s.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
            except OSError:
                continue
            return port


def rpc_null(port, program, version, host="127.0.0.1", timeout=1.0):
    """Return whether the RPC program answers a NULL call at this TCP port."""
    call = struct.pack(">11I", 0x80000000 | 40, 0x2a, 0, 2, program, version, 0, 0, 0, 0, 0)
    try:
        with socket.create_connection((host, port), timeout) as s:
            s.settimeout(timeout)
            s.sendall(call)
            answer = b""
            while len(answer) < 28:
                got = s.recv(64)
                if not got:
                    return False
                answer += got
            return struct.unpack(">I", answer[24:28])[0] == 0
    except OSError:
        return False


class Rpcbind:
    """The lab's rpcbind, with which NFSv3 servers register."""

    process = None

    @staticmethod
    def answers():
        return rpc_null(111, 100000, 2)

    @classmethod
    def start(cls):
        if cls.answers():
            return
        # Without -w: there is nothing to restore, and it would need a folder.
        cls.process = subprocess.Popen(["rpcbind", "-f"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       start_new_session=True)
        if not wait_for(cls.answers):
            raise Failure("rpcbind does not answer")

    @classmethod
    def stop(cls):
        """Stop it and lose its registrations: for servers that need none, or start later."""
        if cls.process is not None:
            end(cls.process)
            cls.process = None


def rpcbind():
    Rpcbind.start()


class NotMounted(Failure):
    """The file system was made, but the kernel does not mount it."""


def is_allocated(f, size):
    try:
        os.posix_fallocate(f.fileno(), 0, size)
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
        return False
    return True


def fill_disk(path, room):
    """Make a file that leaves so many bytes of its file system free, or a few more."""
    with open(path, "wb") as f:
        found = os.statvfs(path)
        size = found.f_bavail * found.f_frsize - room
        while not is_allocated(f, size):
            size -= 4096  # the map of the file takes room too


class Image:
    """A small file system in a file, mounted through a loop device."""

    def __init__(self, path, mebibytes, *mkfs, options=None):
        if options is None:
            # XFS allocates megabytes behind the end of a file that grows, and frees them when the
            # server closes it, seconds later.
            options = "loop,allocsize=64k" if mkfs[0] == "mkfs.xfs" else "loop"
        self.path = path
        self.file = path + ".image"
        self.mebibytes = mebibytes
        self.mkfs = mkfs
        self.options = options

    def mount(self):
        """Create the file system and mount it."""
        os.makedirs(self.path, exist_ok=True)
        with open(self.file, "wb") as f:
            f.truncate(self.mebibytes << 20)
        run(*self.mkfs, self.file)
        try:
            run("mount", "-o", self.options, self.file, self.path)
        except Failure as e:
            raise NotMounted(str(e)) from e
        return self

    def unmount(self):
        run("umount", self.path)
        os.unlink(self.file)


class Export:
    """An exported folder. protocols, access and squash: as in ganesha's configuration; pseudo: its
    path in version 4; privileged: require source ports below 1024; security: flavors, such as
    "sys, krb5"; more: other settings."""

    def __init__(self, path, protocols="3, 4", access="RW", squash="No_Root_Squash", clients=None,
                 pseudo=None, privileged=False, security="sys", more="", fsal="VFS"):
        self.path = path
        self.fsal = fsal
        self.security = security
        self.more = more
        self.protocols = protocols
        self.access = access
        self.squash = squash
        self.clients = clients  # None: all
        self.pseudo = pseudo or path
        self.privileged = privileged

    def block(self, number):
        access = self.access
        client = ""
        if self.clients is not None:
            client = "CLIENT { Clients = %s; Access_Type = %s; Squash = %s; }" % (
                self.clients, access, self.squash)
            access = "None"
        return """EXPORT {
	Export_Id = %d; Path = "%s"; Pseudo = "%s"; Protocols = %s; Transports = TCP;
	Access_Type = %s; Squash = %s; SecType = %s; PrivilegedPort = %s; %s
	FSAL { Name = %s; }
}
""" % (number, self.path, self.pseudo, self.protocols, access, self.squash, self.security,
       "true" if self.privileged else "false", self.more + client, self.fsal)


class Ganesha:
    """nfs-ganesha with the VFS FSAL. Its own files are in home. numeric: True sends and accepts
    owners of version 4 as numbers, False sends names, None sends names and refuses numbers.
    keytab: the keys of its Kerberos principal, and krb5_conf the configuration that goes with it;
    None for a server without Kerberos."""

    def __init__(self, home, exports, protocols="3, 4", minor_versions="0, 1, 2", numeric=True):
        self.home = home
        self.keytab = None
        self.krb5_conf = None
        self.numeric = numeric
        self.minor_versions = minor_versions
        self.exports = exports
        self.protocols = protocols
        self.port = free_port()
        self.mount_port = free_port()
        while self.mount_port == self.port:
            self.mount_port = free_port()
        self.log = os.path.join(home, "ganesha.log")
        self.process = None
        self.reviving = threading.Lock()

    @property
    def has_v3(self):
        return "3" in self.protocols

    def flags(self, version):
        """Mount options for this server. version is 3, 4, 4.1 ... With 4, each server of a part has
        one of the minor versions, in turn by its name, so that all are used everywhere; or the one
        that LAB_MINOR names."""
        if version == "4" and "4" in self.protocols:
            minors = self.minor_versions.split(", ")
            turn = zlib.crc32(os.path.basename(self.home).encode()) % len(minors)
            wanted = os.environ.get("LAB_MINOR")
            version = "4." + (wanted if wanted in minors else minors[turn])
        if version == "3":
            return ["vers=3", "port=%d" % self.port, "mountport=%d" % self.mount_port]
        return ["vers=%s" % version, "port=%d" % self.port]

    def _kerberos(self):
        if self.keytab is None:
            return "Active_krb5 = false;"
        return 'Active_krb5 = true; KeytabPath = "%s";' % self.keytab

    def _write_config(self):
        path = os.path.join(self.home, "ganesha.conf")
        with open(path, "w", encoding="ascii") as f:
            f.write("""NFS_CORE_PARAM {
	Protocols = %s; NFS_Port = %d; MNT_Port = %d;
	Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
	mount_path_pseudo = true; NSM_Use_Caller_Name = false; allow_set_io_flusher_fail = true;
}
NFSV4 {
	Only_Numeric_Owners = %s; Allow_Numeric_Owners = %s;
	Graceless = true; RecoveryRoot = "%s/recovery";
	minor_versions = %s; Lease_Lifetime = 10; Grace_Period = 10;
}
NFS_KRB5 { %s }
LOG { Default_Log_Level = EVENT; }
""" % (self.protocols, self.port, self.mount_port, "true" if self.numeric else "false",
       "false" if self.numeric is None else "true", self.home, self.minor_versions,
       self._kerberos()))
            if any(export.fsal == "MEM" for export in self.exports):
                f.write("MEM { Inode_Size = 1048576; }\n")  # the default keeps no data at all
            for number, export in enumerate(self.exports, 1):
                f.write(export.block(number))
        return path

    def _answers(self):
        if self.process.poll() is not None:
            return True  # no use to wait on; start() looks why
        if self.has_v3 and not rpc_null(self.mount_port, 100005, 3):
            return False
        return rpc_null(self.port, 100003, 3 if self.has_v3 else 4)

    def start(self):
        """Start it and wait until it answers. Raise Failure, with its log."""
        os.makedirs(os.path.join(self.home, "recovery"), exist_ok=True)
        for export in self.exports:
            os.makedirs(export.path, exist_ok=True)
        config = self._write_config()
        if self.has_v3:
            rpcbind()
        # File handles contain the file system's UUID, which libblkid takes from its cache for 2 s:
        # on a loop device that was another's shortly before, they would change at a restart.
        environment = dict(os.environ, BLKID_FILE=os.devnull)
        if self.krb5_conf is not None:
            environment["KRB5_CONFIG"] = self.krb5_conf
        with open(os.path.join(self.home, "ganesha.out"), "ab") as out:
            self.process = subprocess.Popen(
                ["ganesha.nfsd", "-F", "-f", config, "-L", self.log,
                 "-p", os.path.join(self.home, "ganesha.pid")], env=environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        if not wait_for(self._answers, 30) or self.process.poll() is not None:
            self.kill()
            raise Failure("nfs-ganesha does not answer. Its log:\n" + self.tail())
        return self

    def tail(self, lines=30):
        text = ""
        for name in (self.log, os.path.join(self.home, "ganesha.out")):
            if os.path.exists(name):
                with open(name, encoding="utf-8", errors="replace") as f:
                    text += "".join(f.readlines()[-lines:])
        status = None if self.process is None else self.process.poll()
        return text if status is None else text + "It has ended, with status %d.\n" % status

    def _end(self, how, seconds):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stop(self):
        self._end(signal.SIGTERM, 15)

    def kill(self):
        self._end(signal.SIGKILL, 15)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def revive(self):
        """Start it again if it has crashed. Version 4.3 does now and then (a NULL dereference in
        libganesha_nfsd) when directories of one name are made and removed by several at once."""
        with self.reviving:
            if not self.is_running():
                print("nfs-ganesha crashed, and is started again", flush=True)
                self.start()

    def freeze(self):
        """Stop it, and wait until every thread has stopped: on a busy machine some work on."""
        self.process.send_signal(signal.SIGSTOP)
        if not wait_for(self._is_stopped):
            raise Failure("nfs-ganesha does not stop")

    def _is_stopped(self):
        tasks = "/proc/%d/task" % self.process.pid
        for task in os.listdir(tasks):
            with open(os.path.join(tasks, task, "stat"), encoding="ascii", errors="replace") as f:
                if f.read().rpartition(")")[2].split()[0] != "T":
                    return False
        return True

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def restart(self):
        self.stop()
        return self.start()

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()


class KernelServer:
    """The kernel's NFS server with one export. NFSv3 uses its path; in NFSv4 it is the root."""

    VERSIONS = ("3", "4.0", "4.1", "4.2")
    port = 2049

    def __init__(self, path, options="rw,no_root_squash,insecure,fsid=0,no_subtree_check",
                 without=()):
        self.path = path
        self.options = options
        self.without = without  # versions that it does not have: 3, 4.0 ...
        self.mountd = None

    def start(self):
        rpcbind()
        if not os.path.ismount("/proc/fs/nfsd"):
            run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        run("exportfs", "-i", "-o", self.options, "*:" + self.path)
        if self.mountd is None:
            self.mountd = subprocess.Popen(
                ["rpc.mountd", "--foreground"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        # The kernel keeps the versions that another server left. A version 4 server accepts no
        # writes in its grace period, 90 s by default.
        run("rpc.nfsd", "--lease-time", "10", "--grace-time", "10",
            *(word for version in self.VERSIONS
              for word in ("-N" if version in self.without else "-V", version)), "8")
        with open("/proc/fs/nfsd/v4_end_grace", "w", encoding="ascii") as f:
            f.write("Y")
        if not wait_for(lambda: all(rpc_null(self.port, 100003, version) for version in (3, 4)
                                    if str(version) not in self.without)):
            raise Failure("the kernel's NFS server does not answer")
        return self

    def is_running(self):
        return rpc_null(self.port, 100003, 4)

    def stop(self):
        """Close the port. The exports stay for the next start()."""
        run("rpc.nfsd", "0")

    def done(self):
        run("rpc.nfsd", "0", check=False)
        run("exportfs", "-ua", check=False)
        if self.mountd is not None:
            end(self.mountd)
            self.mountd = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.done()


class GoNfs:
    """go-nfs, which serves a folder over NFSv3: NFS and MOUNT on one port. The program of
    tests/go-nfs, which CSI_NFS_GO_NFS names."""

    def __init__(self, path, *options):
        self.path = path
        self.options = options
        self.port = free_port()
        self.process = None

    def flags(self, _version="3"):
        return ["vers=3", "port=%d" % self.port, "mountport=%d" % self.port]

    def start(self):
        self.process = subprocess.Popen(
            [os.environ["CSI_NFS_GO_NFS"], "-listen", "127.0.0.1:%d" % self.port, *self.options,
             self.path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        if not wait_for(lambda: rpc_null(self.port, 100005, 3)):
            self.stop()
            raise Failure("go-nfs does not answer")
        return self

    def stop(self):
        self.process.kill()
        self.process.wait()


def statd():
    """Start the lab's rpc.statd, which NFSv3 locks need. Return False if that fails."""
    if shutil.which("rpc.statd") is None:
        return False
    rpcbind()
    return run("rpc.statd", "--no-notify", check=False).returncode == 0
