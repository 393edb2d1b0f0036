# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""csi-nfs check against a real nfs-ganesha of many kinds, and (class Kernel, in a lab with --kernel
nfs --kernel nfsd) against the kernel's server with a real mount.

Runs inside a lab, with CSI_NFS naming the binary.
"""
import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import odd_server
import servers
from driver import binary
from rpc_proxy import Proxy, Rule
from servers import Export, Ganesha, KernelServer, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
HOST = "127.0.0.1"
NAMES = ["libraries", "resolve", "nfs", "rpcbind", "exports", "connect", "capacity", "directory",
         "port", "versions", "mount"]
STATUSES = ("ok", "failed", "warning", "skipped")
TRACE = ".csi-nfs-check-"


def has_client():
    with open("/proc/filesystems", encoding="ascii") as f:
        return "nfs4" in f.read().split()


def environment(**more):
    keep = {k: v for k, v in os.environ.items() if k not in ("NFS_SERVER", "NFS_SHARE", "NO_COLOR")}
    keep.update(more)
    return keep


def run(*args, env=None, limit=30, **more):
    return subprocess.run([binary(), "check", *args], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit,
                          check=False, env=env or environment(), **more)


class Report:
    """What --format json printed."""

    def __init__(self, case, got, server, share):
        self.status = got.returncode
        self.object = json.loads(got.stdout)
        case.assertEqual(got.stderr, "")
        case.assertEqual(sorted(self.object), ["ok", "server", "share", "steps"])
        case.assertEqual((self.object["server"], self.object["share"]), (server, share))
        case.assertEqual([s["name"] for s in self.object["steps"]], NAMES)
        for step in self.object["steps"]:
            case.assertEqual(sorted(step), ["data", "hint", "name", "status", "text"])
            case.assertIn(step["status"], STATUSES)
            case.assertTrue(step["text"], step)
            case.assertIsInstance(step["data"], dict)
            # Every failure comes with what to do.
            if step["status"] == "failed":
                case.assertTrue(step["hint"], step)
            if step["status"] in ("ok", "skipped"):
                case.assertFalse(step["hint"], step)
        failed = [s for s in self.object["steps"] if s["status"] == "failed"]
        case.assertEqual(self.object["ok"], not failed)
        case.assertEqual(got.returncode, 1 if failed else 0)

    def __getitem__(self, name):
        return self.object["steps"][NAMES.index(name)]

    def statuses(self):
        return {s["name"]: s["status"] for s in self.object["steps"]}


class Base(unittest.TestCase):
    maxDiff = None

    def check(self, share, *args, server=HOST, options=None, limit=30, **more):
        args = list(args)
        if options:
            args += ["--mount-options", ",".join(options)]
        got = run("--server", server, "--share", share, "--format", "json", *args, limit=limit,
                  **more)
        try:
            return Report(self, got, server, share)
        except json.JSONDecodeError:
            self.fail("no JSON: %s" % got)

    def states(self, report, default="ok", mount="skipped", **others):
        """The statuses of all steps: default, but for those named."""
        want = dict.fromkeys(NAMES, default)
        if others.get("port") == "skipped":
            want["versions"] = "skipped"
        want.update(others, mount=mount)
        self.assertEqual(report.statuses(), want, report.object)

    def holds(self, text, *words):
        for word in words:
            self.assertIn(word, text)

    def skipped_after(self, report, name):
        """Everything after this step is skipped, with a reason."""
        for step in report.object["steps"][NAMES.index(name) + 1:]:
            self.assertEqual(step["status"], "skipped", step)


class Exports(Base):
    """One server with exports of all kinds."""

    @classmethod
    def setUpClass(cls):
        kinds = {
            "plain": {},
            "squashed": {"squash": "Root_Squash"},
            "owned": {"squash": "Root_Squash"},
            "open": {"squash": "Root_Squash"},
            "everybody": {"squash": "All_Squash"},
            "readonly": {"access": "RO"},
            "refused": {"clients": "192.0.2.1"},
            "chosen": {"clients": HOST},
            "secure": {"privileged": True},
            "secure3": {"privileged": True, "protocols": "3"},
            "three": {"protocols": "3"},
            "four": {"protocols": "4"},
            "elsewhere": {"pseudo": "/pseudo/path"},
        }
        cls.paths = {k: os.path.join(DISK, "check", k) for k in kinds}
        # Before the server starts: it does not look again for a while.
        for kind, path in cls.paths.items():
            os.makedirs(path)
            os.chmod(path, 0o1777 if kind in ("plain", "open", "everybody") else 0o755)
        os.chown(cls.paths["owned"], 1234, 1235)
        cls.server = Ganesha(os.path.join(LAB, "check"),
                             [Export(cls.paths[k], **v) for k, v in kinds.items()]).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        for path in self.paths.values():
            self.assertEqual(os.listdir(path), [])

    def on(self, kind, *args, version=None, more=(), **others):
        flags = ["port=%d" % self.server.port] if version is None else self.server.flags(version)
        return self.check(self.paths[kind], *args, options=flags + list(more), **others)

    # ---- what is well ----

    def test_good_export(self):
        report = self.on("plain")
        self.states(report)
        self.assertEqual(report["resolve"]["data"], {"addresses": [HOST]})
        nfs = report["nfs"]["data"]
        self.assertEqual(nfs["versions"], ["3", "4.0", "4.1", "4.2"])
        self.assertEqual((nfs["port"], nfs["address"], nfs["source"]),
                         (self.server.port, HOST, HOST))
        self.assertEqual(sorted(nfs["answer_us"]), ["3", "4"])
        self.assertEqual(report["rpcbind"]["data"],
                         {"mount_port": self.server.mount_port, "from_rpcbind": True})
        self.assertEqual(report["connect"]["data"]["version"], "4.2")
        self.has_versions(report)
        self.holds(report["connect"]["text"], "extended attributes")
        space, found = os.statvfs(self.paths["plain"]), report["capacity"]["data"]
        self.assertEqual(found["total_bytes"], space.f_blocks * space.f_frsize)
        self.assertLessEqual(found["available_bytes"], found["total_bytes"])
        self.assertGreater(found["available_bytes"], 0)
        made = report["directory"]["data"]
        self.assertTrue(made["name"].startswith(TRACE), made)
        self.assertEqual((made["uid"], made["owner_uid"], made["squashed"]), (0, 0, False))
        self.assertTrue(made["symbolic_links"])
        self.assertTrue(made["sets_owner"])
        self.assertEqual(report["port"]["data"], {"may_reserve": True, "wants_reserved": False})

    def has_versions(self, report):
        found = report["versions"]["data"]
        self.assertEqual(list(found), ["3", "4.0", "4.1", "4.2"])
        for version, what in found.items():
            self.assertTrue(what["reached"], what)
            self.assertEqual("slots" in what, version in ("4.1", "4.2"))
        self.assertGreaterEqual(found["4.2"]["operations"], 8)
        self.assertGreaterEqual(found["4.2"]["slots"], 1)
        self.assertGreaterEqual(found["4.2"]["request_bytes"], 16384)
        self.assertGreaterEqual(found["4.2"]["reply_bytes"], 16384)
        self.holds(report["versions"]["text"], "3, 4.0, 4.1 (", "4.2 (", "slots", "operations")
        made = report["directory"]
        for feature in ("clone", "copy", "seek", "xattrs"):
            self.assertIn(feature, made["data"])
        self.holds(made["text"], "CLONE", "COPY", "SEEK", "extended attributes")

    def test_features_of_a_version_that_is_not_used(self):
        keys = {"clone", "copy", "seek", "xattrs"}
        for version in ("3", "4.0", "4.1"):
            report = self.on("plain", version=version)
            self.states(report)
            self.assertEqual(report["connect"]["data"]["version"], version)
            self.assertLessEqual(keys, set(report["directory"]["data"]))
            self.holds(report["directory"]["text"], "; over 4.2: ", "CLONE", "SEEK",
                       "extended attributes")
        report = self.on("three", version="3")  # the server has 4.2, but not on this export
        self.states(report)
        self.assertFalse(keys & set(report["directory"]["data"]))

    def test_version_that_the_export_lacks(self):
        for kind, lacks in (("three", "4.2"), ("four", "3")):
            report = self.on(kind)
            self.assertEqual(report["versions"]["status"], "ok")
            self.assertFalse(report["versions"]["data"][lacks]["reached"])
            self.assertTrue(report["versions"]["data"][lacks]["error"])
            self.holds(report["versions"]["text"], "not over")

    def test_low_limits(self):
        with Proxy(self.server.port) as proxy:
            proxy.begin([Rule("CREATE_SESSION", 1, "few-operations", 7, count=1000)])
            report = self.check(self.paths["plain"], options=["port=%d" % proxy.port])
        self.assertEqual(report["versions"]["status"], "warning", report.object)
        self.holds(report["versions"]["hint"], "7 operations", "8 are needed")
        self.assertEqual(report["connect"]["data"]["version"], "4.0")

    def test_versions_that_are_asked_for(self):
        for version, spoken in (("3", "3"), ("4", "4.2"), ("4.0", "4.0"), ("4.1", "4.1"),
                                ("4.2", "4.2")):
            report = self.on("plain", version="3") if version == "3" \
                else self.on("plain", more=["vers=" + version])
            self.states(report)
            self.assertEqual(report["connect"]["data"]["version"], spoken)
            self.assertEqual(report["rpcbind"]["data"]["from_rpcbind"], version != "3")

    def test_list_of_exports(self):
        report = self.on("chosen")
        self.assertEqual(report["exports"]["status"], "ok")
        self.holds(report["exports"]["text"], self.paths["chosen"], HOST)
        listed = {e["path"]: e["clients"] for e in report["exports"]["data"]["exports"]}
        self.assertTrue(report["exports"]["data"]["listed"])
        self.assertEqual(listed[self.paths["plain"]], [])
        self.assertTrue(any(HOST in c for c in listed[self.paths["chosen"]]), listed)

    def test_share_below_an_export(self):
        below = os.path.join(self.paths["plain"], "below")
        os.mkdir(below)
        try:
            report = self.check(below, options=self.server.flags("4"))
            self.states(report)
            self.holds(report["exports"]["text"], "lies in", self.paths["plain"])
            self.assertEqual(os.listdir(below), [])
        finally:
            os.rmdir(below)

    def test_ipv6_and_names(self):
        for server in ("::1", "localhost"):
            options = ["port=%d" % self.server.port]
            report = self.check(self.paths["plain"], server=server, options=options)
            self.states(report)
        got = run("--server", "[::1]", "--share", self.paths["plain"], "--mount-options",
                  "port=%d" % self.server.port)
        self.assertEqual(got.returncode, 0, got)

    def test_environment(self):
        env = environment(NFS_SERVER=HOST, NFS_SHARE=self.paths["plain"])
        got = run("--mount-options", "port=%d" % self.server.port, env=env)
        self.assertEqual(got.returncode, 0, got)

    # ---- servers that differ ----

    def test_server_without_links(self):
        """Records become files there, which is said, and is no fault."""
        for status in (odd_server.PERM, odd_server.NOTSUPP):
            server = odd_server.Server(odd_server.Habits(symlink=status)).start()
            try:
                report = self.check("/share", options=server.flags())
            finally:
                server.stop()
            self.assertEqual(report["directory"]["status"], "ok", report["directory"])
            self.assertFalse(report["directory"]["data"]["symbolic_links"])
            self.holds(report["directory"]["text"], "no symbolic links", "files")
            self.assertEqual(server.tree(), {})

    def test_server_without_owners(self):
        server = odd_server.Server(odd_server.Habits(owners=False)).start()
        try:
            report = self.check("/share", options=server.flags())
        finally:
            server.stop()
        self.assertEqual(report["directory"]["status"], "warning")
        self.assertFalse(report["directory"]["data"]["sets_owner"])
        self.holds(report["directory"]["text"], "owner cannot be changed")
        self.holds(report["directory"]["hint"], "StorageClass")
        self.assertEqual(server.tree(), {})

    # ---- text ----

    def test_text(self):
        options = ["--server", HOST, "--share", self.paths["readonly"], "--mount-options",
                   "port=%d" % self.server.port]
        got = run(*options)
        lines = got.stdout.splitlines()
        self.assertEqual((got.returncode, got.stderr), (1, ""))
        steps = [line.split()[:2] for line in lines if line and not line.startswith(" ")]
        self.assertEqual([s[1] for s in steps[:-1]], NAMES)
        self.assertEqual(steps[7], ["FAILED", "directory"])
        self.assertTrue(lines[8].lstrip().startswith("-> "), lines)
        self.assertEqual(lines[-1], "9 ok, 1 failed, 0 warnings, 1 skipped")
        self.assertNotIn("\033", got.stdout)
        coloured = self.on_terminal(options, environment(TERM="xterm"))
        self.holds(coloured, "\033[32mok", "\033[31mFAILED")
        self.assertNotIn("\033", self.on_terminal(options, environment(TERM="xterm", NO_COLOR="1")))

    @staticmethod
    def on_terminal(options, env):
        master, slave = pty.openpty()
        with subprocess.Popen([binary(), "check", *options], stdin=subprocess.DEVNULL, stdout=slave,
                              stderr=slave, env=env) as process:
            os.close(slave)
            got = b""
            while True:
                try:
                    piece = os.read(master, 4096)
                except OSError:
                    break  # EIO: the last one has closed it
                if not piece:
                    break
                got += piece
            process.wait(30)
        os.close(master)
        return got.decode()

    # ---- identities ----

    def test_squashed_root(self):
        for version in ("3", "4"):
            report = self.on("squashed", version=version)
            self.states(report, directory="failed")
            self.holds(report["directory"]["text"], "uid 0", "mode 0755")
            self.holds(report["directory"]["hint"], "squash", "uid", "gid", "no_root_squash")
            report = self.on("owned", version=version)
            self.states(report, directory="failed")
            self.holds(report["directory"]["hint"], "uid 1234", "gid 1235")
            report = self.on("owned", "--uid", "1234", "--gid=1235", version=version)
            self.states(report)
            self.assertEqual(report["directory"]["data"]["owner_uid"], 1234)
            self.assertEqual(report["directory"]["data"]["owner_gid"], 1235)

    def test_squashed_and_open_to_all(self):
        for kind, args in (("open", ()), ("everybody", ("--uid", "1234"))):
            for version in ("3", "4"):
                report = self.on(kind, *args, version=version)
                self.states(report, directory="warning")
                self.assertTrue(report["directory"]["data"]["squashed"])
                self.holds(report["directory"]["text"], "squashes")

    def test_owner_that_may_not_write(self):
        """Root makes it and gives it away, as the controller does."""
        for version in ("3", "4"):
            report = self.on("chosen", "--uid=1234", "--gid=1235", version=version)
            self.states(report)
            self.assertEqual(report["directory"]["data"]["owner_uid"], 1234)
            self.assertEqual(report["directory"]["data"]["owner_gid"], 1235)
            report = self.on("squashed", "--uid=1234", version=version)
            self.states(report, directory="failed")
            self.holds(report["directory"]["hint"], "uid 1234")

    def unprivileged(self, kind, version):
        tool = os.path.join(LAB, "csi-nfs-for-all")
        if not os.path.exists(tool):
            shutil.copy(binary(), tool)
            os.chmod(tool, 0o755)
        got = subprocess.run(
            [tool, "check", "--server", HOST, "--share", self.paths[kind], "--mount",
             "--mount-options", ",".join(self.server.flags(version)), "--format=json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            user=65534, group=65534, extra_groups=[], env=environment(), timeout=30, check=False)
        return Report(self, got, HOST, self.paths[kind])

    def test_not_root(self):
        """Without privileges: no reserved port, no mount."""
        for version in ("3", "4"):
            report = self.unprivileged("plain", version)
            self.states(report)
            self.holds(report["mount"]["text"], "root")
            self.assertEqual(report["port"]["data"],
                             {"may_reserve": False, "wants_reserved": False})
            self.assertEqual(report["directory"]["data"]["owner_uid"], 65534)
        report = self.unprivileged("secure", "4")
        self.states(report, connect="failed", capacity="skipped", directory="skipped",
                    port="skipped")
        self.holds(report["connect"]["hint"], "1023", "insecure")
        # There the server looks at the port only after the mount.
        report = self.unprivileged("secure3", "3")
        self.states(report, capacity="failed", directory="failed", port="failed")
        for step in ("capacity", "directory", "port"):
            self.holds(report[step]["hint"], "insecure")

    # ---- exports that are not well ----

    def test_read_only(self):
        for version in ("3", "4"):
            report = self.on("readonly", version=version)
            self.states(report, directory="failed")
            self.holds(report["directory"]["text"], "read-only")
            self.holds(report["directory"]["hint"], "rw")

    def test_refused(self):
        for version in ("3", "4"):
            report = self.on("refused", version=version)
            self.states(report, exports="warning", connect="failed", capacity="skipped",
                        directory="skipped", port="skipped")
            self.holds(report["connect"]["hint"], "machine", "export", HOST)

    def test_missing(self):
        for version in (None, "3", "4"):
            share = os.path.join(DISK, "check", "nothing")
            options = self.server.flags(version) if version else ["port=%d" % self.server.port]
            report = self.check(share, options=options)
            self.states(report, exports="warning", connect="failed", capacity="skipped",
                        directory="skipped", port="skipped")
            self.holds(report["exports"]["text"], share, self.paths["plain"])
            self.holds(report["connect"]["text"], share)

    def test_reserved_ports(self):
        for kind, version in (("secure", "3"), ("secure", "4"), ("secure3", "3")):
            report = self.on(kind, version=version)
            self.states(report, port="warning")
            self.assertEqual(report["port"]["data"], {"may_reserve": True, "wants_reserved": True})
            self.holds(report["port"]["text"], "1024", "secure")
            self.holds(report["port"]["hint"], "insecure", "ip_unprivileged_port_start")

    def test_exports_of_one_version(self):
        report = self.on("four")
        self.states(report, exports="warning")
        report = self.on("three")
        self.states(report, connect="warning")
        self.holds(report["connect"]["hint"], "vers=3", "pseudo")
        self.states(self.on("three", version="3"))

    def test_pseudo_path(self):
        # This server lists the pseudo paths, and serves them over version 3.
        self.states(self.check("/pseudo/path", options=self.server.flags("4")))
        report = self.on("elsewhere", version="4")
        self.states(report, exports="warning", connect="failed", capacity="skipped",
                    directory="skipped", port="skipped")
        self.holds(report["connect"]["hint"], "pseudo")

    # ---- mounting ----

    @unittest.skipIf(has_client(), "this kernel has an NFS client: the class Kernel mounts")
    def test_mount_without_a_client(self):
        folder = tempfile.mkdtemp(dir=LAB)
        report = self.on("plain", "--mount", env=environment(TMPDIR=folder))
        self.states(report, mount="failed")
        self.holds(report["mount"]["text"], "kernel", "NFS")
        self.assertEqual(os.listdir(folder), [])

    # ---- servers that do not answer ----

    def test_closed_port(self):
        begun = time.monotonic()
        report = self.check(self.paths["plain"], "--mount",
                            options=["port=%d" % servers.free_port()])
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(report["nfs"]["status"], "failed")
        self.holds(report["nfs"]["text"], "refused")
        self.skipped_after(report, "nfs")

    def test_unknown_name(self):
        begun = time.monotonic()
        report = self.check("/x", server="no-such-host.invalid")
        self.assertLess(time.monotonic() - begun, 6)
        self.assertEqual(report["resolve"]["status"], "failed")
        self.skipped_after(report, "resolve")

    @contextlib.contextmanager
    def replaced(self, path, text):
        """The text in place of a file of the system, for as long as that."""
        own = os.path.join(LAB, os.path.basename(path))
        with open(own, "w", encoding="ascii") as f:
            f.write(text)
        servers.run("mount", "--bind", own, path)
        try:
            yield
        finally:
            servers.run("umount", path)

    def test_silent_name_service(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.7", 53))
            with self.replaced("/etc/resolv.conf", "nameserver 127.0.0.7\n"):
                begun = time.monotonic()
                report = self.check("/x", server="some.example.com")
                self.assertLess(time.monotonic() - begun, 6)
        self.assertEqual(report["resolve"]["status"], "failed")
        self.holds(report["resolve"]["text"], "name service")
        self.skipped_after(report, "resolve")

    def test_several_addresses(self):
        """The first one accepts and says nothing, then refuses; the second one serves."""
        with self.replaced("/etc/hosts", "127.0.0.8 pair\n127.0.0.9 pair\n"):
            first, second = [a[4][0] for a in
                             socket.getaddrinfo("pair", 0, type=socket.SOCK_STREAM)]
            with Proxy(self.server.port, listen=second) as proxy:
                options = ["port=%d" % proxy.port]
                with socket.create_server((first, proxy.port)):
                    report = self.check(self.paths["plain"], server="pair", options=options)
                self.states(report, nfs="warning")
                self.holds(report["nfs"]["text"], first + ": no answer", second)
                self.assertEqual(report["resolve"]["data"]["addresses"], [first, second])
                report = self.check(self.paths["plain"], server="pair", options=options)
                self.states(report)
                self.holds(report["nfs"]["text"], first + ": Connection refused", second)

    def test_another_service(self):
        """RPC, but no NFS; and nothing that speaks RPC."""
        report = self.check("/x", options=["port=%d" % self.server.mount_port])
        self.assertEqual(report["nfs"]["status"], "failed")
        self.skipped_after(report, "nfs")
        with socket.create_server((HOST, 0)) as listener:
            def answer():
                with listener.accept()[0] as s:
                    s.sendall(b"SSH-2.0-x\r\n")
                    s.recv(1000)
            threading.Thread(target=answer, daemon=True).start()
            report = self.check("/x", options=["port=%d" % listener.getsockname()[1]])
        self.assertEqual(report["nfs"]["status"], "failed")
        self.skipped_after(report, "nfs")

    def test_frozen_server(self):
        self.server.freeze()
        try:
            begun = time.monotonic()
            report = self.on("plain", "--mount")
            self.assertLess(time.monotonic() - begun, 15)
            self.assertEqual(report["nfs"]["status"], "failed")
            self.holds(report["nfs"]["text"], "no answer")
            self.skipped_after(report, "nfs")
        finally:
            self.server.thaw()

    # ---- the command line ----

    def test_usage(self):
        good = ["--server", HOST, "--share", "/x"]
        for args, word in ((["--server", HOST], "--share"), (["--share", "/x"], "--server"),
                           (good + ["--nonsense"], "--nonsense"), (good + ["word"], "word"),
                           (good + ["--format", "xml"], "--format"), (good + ["--uid"], "--uid"),
                           (good + ["--uid", "root"], "--uid"), (good + ["--mount=x"], "--mount"),
                           (["--server", "a/b", "--share", "/x"], "server"),
                           (good + ["--mount-options", "port=secret"], "port"),
                           (good + ["--mount-options", "bind"], "bind")):
            got = run(*args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), got)
            self.assertEqual(len(got.stderr.splitlines()), 1, got)
            self.holds(got.stderr, word, "csi-nfs check --help")
            self.assertNotIn("secret", got.stderr)
        got = run("--help")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.holds(got.stdout, "--server", "--share", "--mount", "--mount-options", "--uid",
                   "--gid", "--format", "Exit status")

    def test_report_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            got = subprocess.run([binary(), "check", "--server", HOST, "--share", "/x"],
                                 stdout=full, stderr=subprocess.PIPE, text=True, timeout=30,
                                 env=environment(), check=False)
        self.assertEqual(got.returncode, 1)
        self.holds(got.stderr, "report")


class Interrupted(Base):
    """The directory goes, whatever happens once it was asked for."""

    @classmethod
    def setUpClass(cls):
        cls.share = os.path.join(DISK, "interrupted")
        cls.server = Ganesha(os.path.join(LAB, "interrupted"), [Export(cls.share)]).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        self.assertEqual(os.listdir(self.share), [])

    def test_signals(self):
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for version in ("3", "4"):
                started = []

                def interrupt(_, signum=signum, started=started):
                    started[0].send_signal(signum)
                    time.sleep(0.3)

                with Proxy(self.server.port) as proxy:
                    proxy.begin([Rule("MKDIR", 1, "hook", interrupt)])
                    options = "vers=%s,port=%d,mountport=%d" % (version, proxy.port,
                                                                self.server.mount_port)
                    if version == "4":
                        options = "vers=4,port=%d" % proxy.port
                    # Shells have their background jobs ignore SIGINT.
                    with subprocess.Popen(["env", "--default-signal", binary(), "check", "--server",
                                           HOST, "--share", self.share, "--mount-options", options],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          text=True, env=environment()) as process:
                        started.append(process)
                        out = process.communicate(timeout=30)[0]
                    self.assertEqual(process.returncode, -signum, out)
                    self.assertEqual(proxy.problems, [])
                    self.assertEqual(proxy.counts["MKDIR"], 1)
                    # Of the link and the two files that it made in the directory, and of that.
                    self.assertEqual(proxy.counts["RMDIR"] + proxy.counts["REMOVE"], 4)
                    self.assertEqual(os.listdir(self.share), [])
                    # What it found is told; it does not go on, not even to the counts.
                    told = [line.split()[1] for line in out.splitlines() if line[:1].strip()]
                    self.assertEqual(told, NAMES[:NAMES.index("directory") + 1], out)

    def test_connection_that_breaks(self):
        for version in ("3", "4"):
            with Proxy(self.server.port) as proxy:
                proxy.begin([Rule("MKDIR", 1, "cut-after")])
                flags = ["vers=" + version, "port=%d" % proxy.port]
                if version == "3":
                    flags.append("mountport=%d" % self.server.mount_port)
                report = self.check(self.share, options=flags)
                self.states(report, directory="failed", port="skipped")
                self.holds(report["directory"]["text"], "connection")
                self.assertTrue(wait_for(lambda: not os.listdir(self.share), 5))

    def test_server_that_dies_on_the_way(self):
        def freeze(_):
            self.server.freeze()
            time.sleep(0.3)  # until the last of its threads stands still

        with Proxy(self.server.port) as proxy:
            proxy.begin([Rule("MKDIR", 1, "hook", freeze)])
            begun = time.monotonic()
            try:
                report = self.check(self.share, options=["vers=4", "port=%d" % proxy.port])
                self.assertLess(time.monotonic() - begun, 20)
                self.states(report, directory="failed", port="skipped")
                self.holds(report["directory"]["text"], TRACE, "stopped answering")
                self.holds(report["directory"]["hint"], "by hand")
            finally:
                self.server.thaw()
        # The one thing that it can do nothing about: the server makes it once it is back.
        wait_for(lambda: os.listdir(self.share), 60)
        for name in os.listdir(self.share):
            os.rmdir(os.path.join(self.share, name))


class OverAnother(Base):
    """Version 4.2 does not work where the mount options name another one. The step tells, and the
    others don't suffer."""

    @classmethod
    def setUpClass(cls):
        cls.share = os.path.join(DISK, "another")
        cls.server = Ganesha(os.path.join(LAB, "another"), [Export(cls.share)]).start()
        cls.addClassCleanup(cls.server.stop)

    def tearDown(self):
        self.assertEqual(os.listdir(self.share), [])

    def through(self, version, *rules):
        with Proxy(self.server.port, self.server.mount_port) as proxy:
            proxy.begin(rules)
            options = ["vers=" + version, "port=%d" % proxy.port]
            if version == "3":
                options.append("mountport=%d" % proxy.mount_port)
            report = self.check(self.share, options=options)
            self.assertGreater(sum(rule.hits for rule in rules), 0)
        self.assertEqual(report.status, 0)
        return report

    def test_connection_that_breaks(self):
        for version in ("3", "4.1"):
            for call, name in (("CREATE", "files"), ("WRITE", "files"), ("CLONE", "CLONE"),
                               ("COPY", "COPY"), ("SEEK", "SEEK")):
                for what in ("cut-before", "cut-after"):
                    with self.subTest(version=version, call=call, what=what):
                        report = self.through(version, Rule(call, 1, what, count=99))
                        self.states(report, directory="warning")
                        self.holds(report["directory"]["text"],
                                   ", %s: the connection broke" % name)

    def test_silence(self):
        """It lasts longer than the server keeps the session that waits meanwhile."""
        for version in ("3", "4.1"):
            with self.subTest(version=version):
                report = self.through(version, Rule("CLONE", 1, "drop-reply"))
                self.states(report, directory="warning")
                self.holds(report["directory"]["text"],
                           "; over 4.2, CLONE: the server stopped answering")

    def test_silence_from_the_beginning(self):
        report = self.through("4.1", Rule("EXCHANGE_ID", 2, "drop-call"))
        self.states(report)
        self.assertNotIn("clone", report["directory"]["data"])


class Versions(Base):
    """Servers that lack some of them."""

    def serve(self, name, protocols, minor_versions="0, 1, 2"):
        self.share = os.path.join(DISK, name)
        return Ganesha(os.path.join(LAB, name), [Export(self.share, protocols)],
                       protocols=protocols, minor_versions=minor_versions)

    def tearDown(self):
        self.assertEqual(os.listdir(self.share), [])

    def test_version_3_only(self):
        with self.serve("v3", "3") as server:
            report = self.check(self.share, options=["port=%d" % server.port])
            self.states(report)
            self.assertEqual(report["nfs"]["data"]["versions"], ["3"])
            self.assertEqual(report["connect"]["data"]["version"], "3")
            self.assertIs(report["connect"]["data"]["xattrs"], False)
            self.holds(report["connect"]["text"], "without extended attributes")
            report = self.check(self.share, options=server.flags("4"))
            self.states(report, nfs="failed", connect="failed", capacity="skipped",
                        directory="skipped", port="skipped")
            self.holds(report["nfs"]["hint"], "vers=")
            report = self.check(self.share, options=["port=%d" % server.port, "mountport=1"])
            self.states(report, rpcbind="failed", exports="skipped", connect="failed",
                        capacity="skipped", directory="skipped", port="skipped")

    def test_version_4_without_rpcbind(self):
        servers.Rpcbind.stop()
        with self.serve("v4", "4") as server:
            self.assertFalse(servers.Rpcbind.answers())
            report = self.check(self.share, options=["port=%d" % server.port])
            self.states(report, rpcbind="skipped", exports="skipped")
            self.assertEqual(report["nfs"]["data"]["versions"], ["4.0", "4.1", "4.2"])
            self.holds(report["rpcbind"]["text"], "rpcbind")
            self.holds(report["rpcbind"]["text"], "NFSv3 needs it", "not used")
            servers.rpcbind()
            report = self.check(self.share, options=["port=%d" % server.port])
            self.states(report, rpcbind="skipped", exports="skipped")
            report = self.check(self.share, options=["port=%d" % server.port, "vers=3"])
            self.states(report, nfs="failed", rpcbind="failed", exports="skipped",
                        connect="failed", capacity="skipped", directory="skipped", port="skipped")

    def test_one_minor_version(self):
        """Each of them is enough, and only that one may be asked for."""
        for minor in ("0", "1", "2"):
            with self.serve("only" + minor, "4", minor) as server:
                report = self.check(self.share, options=["port=%d" % server.port])
                self.states(report, rpcbind="skipped", exports="skipped")
                self.assertEqual(report["nfs"]["data"]["versions"], ["4." + minor])
                self.assertEqual(report["connect"]["data"]["version"], "4." + minor)
                for other in {"0", "1", "2"} - {minor}:
                    report = self.check(self.share, options=server.flags("4." + other))
                    self.states(report, nfs="failed", rpcbind="skipped", exports="skipped",
                                connect="failed", capacity="skipped", directory="skipped",
                                port="skipped")
                    self.holds(report["nfs"]["text"], "4." + other)
                    self.holds(report["connect"]["text"], "4." + other)


@unittest.skipUnless(has_client(), "this kernel has no NFS client")
class Kernel(Base):
    """The kernel's server, and its client for --mount."""

    def setUp(self):
        self.share = os.path.join(DISK, "share")
        os.makedirs(self.share, exist_ok=True)
        self.folder = tempfile.mkdtemp(dir=LAB)

    def tearDown(self):
        self.assertEqual(os.listdir(self.share), [])
        self.assertEqual(os.listdir(self.folder), [])
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            self.assertNotIn("csi-nfs-check", f.read())

    def mount(self, share, **more):
        return self.check(share, "--mount", limit=90, env=environment(TMPDIR=self.folder), **more)

    def test_kernel_server(self):
        with KernelServer(DISK):
            report = self.mount("/share")
            self.states(report, exports="warning", mount="ok")
            self.assertEqual(report["nfs"]["data"]["versions"], ["3", "4.0", "4.1", "4.2"])
            self.assertGreater(report["mount"]["data"]["mount_ms"], 0)
            report = self.mount(self.share, options=["vers=3", "nolock"])
            self.states(report, mount="ok")
            self.holds(report["exports"]["text"], DISK)
            report = self.mount("/nothing")
            self.states(report, exports="warning", connect="failed", capacity="skipped",
                        directory="skipped", port="skipped", mount="failed")
            self.holds(report["mount"]["text"], "/nothing")
            os.rmdir(self.folder)
            report = self.mount("/share")
            self.states(report, exports="warning", mount="failed")
            self.holds(report["mount"]["text"], self.folder)
            os.mkdir(self.folder)

    def test_options_stay_secret(self):
        """Also from who reads why the mount failed."""
        with KernelServer(DISK):
            for share, option in (("/share", "nonsense=sesame"), ("/nothing", "context=sesame")):
                with self.subTest(option=option):
                    report = self.mount(share, options=[option])
                    self.assertEqual(report["mount"]["status"], "failed", report.object)
                    self.assertNotIn("sesame", json.dumps(report.object))

    def test_secure_and_squashed(self):
        """The kernel's defaults: option secure, root_squash."""
        os.chmod(self.share, 0o1777)
        with KernelServer(DISK, "rw,fsid=0,no_subtree_check"):
            for share, options in (("/share", None), (self.share, ["vers=3"])):
                report = self.check(share, options=options, limit=60)
                self.assertEqual(report["port"]["status"], "warning", report.object)
                self.assertTrue(report["port"]["data"]["wants_reserved"])
                self.assertEqual(report["directory"]["data"]["owner_uid"], 65534)


if __name__ == "__main__":
    harness.main("check")
