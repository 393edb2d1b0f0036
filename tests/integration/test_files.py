# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The operations on files, of the program beside this, against a real nfs-ganesha, over NFSv3 and
NFSv4; and what becomes of them when the server is killed or restarted, or forgets its clients. What
ganesha never answers, a scripted server does.

Runs inside a lab (Kernel: with --kernel nfsd), with CSI_NFS naming the driver: the program is
looked for where it was built with it, or CSI_NFS_FILES names it.
"""
import os
import stat
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import scripted
from scripted import CLOSE, CREATE, GETATTR, GETFH, OPEN, OPEN_CONFIRM, PUTFH, SETCLIENTID
from scripted import BAD_SEQID, BAD_STATEID, CLID_INUSE, DELAY, EXPIRED, GRACE, OK
from scripted import SETCLIENTID_CONFIRM
from servers import Export, Ganesha, KernelServer

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
SERVER = "127.0.0.1"
PROGRAM = os.environ.get("CSI_NFS_FILES") or os.path.join(
    os.path.dirname(os.environ["CSI_NFS"]), "tests", "integration", "files")
LEASE = 10  # seconds, see servers.py
TYPES = [None, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFBLK,
         stat.S_IFCHR]


def nanoseconds(text):
    """Of "SECONDS.NANOSECONDS", where a minus only belongs to the seconds."""
    seconds, rest = text.split(".")
    return int(seconds) * 1000000000 + int(rest)


class Runner:
    """Runs the program on self.share with self.flags: mixed into the cases below."""

    def command(self, *words):
        return [PROGRAM, SERVER, self.share, ",".join(self.flags), *words]

    def begin(self, *words):
        process = subprocess.Popen(self.command(*words), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def says(self, process, words):
        line = process.stdout.readline().strip()
        if line != words:
            process.kill()
            self.assertEqual(line, words, process.stderr.read())

    def go_on(self, process, *lines):
        """Another file of an idle program, which then says these lines."""
        process.stdin.write("\n")
        process.stdin.flush()
        for line in lines + ("ok idle",):
            self.says(process, line)

    def run_program(self, *words):
        return subprocess.run(self.command(*words), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=200, check=False)


TICK_NS = 10000000  # file systems stamp with the clock of the last timer tick


class Files(Runner):
    """Cases that run once for each version of NFS: mixed into a case below. Each has a server of
    its own, whose export is of one version alone."""

    version = "3"

    def setUp(self):
        tag = "%s.%s" % (type(self).__name__, self._testMethodName)
        self.share = os.path.join(DISK, tag)
        self.server = Ganesha(os.path.join(LAB, tag), [Export(self.share, self.version)],
                              protocols=self.version)
        os.makedirs(self.server.home)
        self.server.start()
        self.flags = self.server.flags(self.version)
        self.addCleanup(self.server.stop)
        self.began_ns = time.time_ns()

    def check_entry(self, fields):
        """What the program said of a file is what the server's own file system says."""
        (name, kind, mode, links, uid, gid, size, used, fileid, device, atime, mtime) = fields
        found = os.lstat(os.path.join(self.share, "top", name))
        what = "%s: %s" % (name, found)
        self.assertEqual(stat.S_IFMT(found.st_mode), TYPES[int(kind)], what)
        self.assertEqual(stat.S_IMODE(found.st_mode), int(mode, 8), what)
        self.assertEqual(found.st_nlink, int(links), what)
        self.assertEqual((found.st_uid, found.st_gid), (int(uid), int(gid)), what)
        self.assertEqual((found.st_size, found.st_ino), (int(size), int(fileid)), what)
        self.assertEqual(found.st_blocks * 512, int(used), what)
        if int(kind) > 5:
            self.assertEqual("%d:%d" % (os.major(found.st_rdev), os.minor(found.st_rdev)), device)
        if name in ("all", "times"):
            self.assertEqual(found.st_atime_ns, nanoseconds(atime), what)
        else:
            # nfs-ganesha keeps access times of its own: any time of this run.
            self.assertGreater(nanoseconds(atime), self.began_ns - TICK_NS, what)
            self.assertLessEqual(nanoseconds(atime), time.time_ns(), what)
        self.assertEqual(found.st_mtime_ns, nanoseconds(mtime), what)

    def test_every_operation(self):
        got = self.run_program("check", "top")
        self.assertEqual(got.returncode, 0, got.stdout[-2000:] + got.stderr)
        entries = [line.split()[1:] for line in got.stdout.splitlines()
                   if line.startswith("attr ")]
        self.assertEqual(sorted(os.listdir(os.path.join(self.share, "top"))),
                         sorted(fields[0] for fields in entries))
        for fields in entries:
            self.check_entry(fields)

    def test_server_killed(self):
        process = self.begin("endless", "top")
        self.says(process, "ok a round")
        time.sleep(0.2)
        self.server.kill()
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("connection abort", err)

    def test_server_frozen(self):
        process = self.begin("endless", "top")
        self.says(process, "ok a round")
        self.server.freeze()
        try:
            _, err = process.communicate(timeout=30)
        finally:
            self.server.thaw()
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("timed out", err)

    def test_restarted_while_idle(self):
        process = self.begin("idle", "top")
        self.says(process, "ok idle")
        self.server.restart()
        self.go_on(process, "ok a new connection")
        self.go_on(process)


class Version3(Files, unittest.TestCase):
    """Every case over NFSv3."""


class Version4(Files, unittest.TestCase):
    """Every case over NFSv4, each with one of the minor versions."""

    version = "4"

    def test_idle_for_longer_than_the_lease(self):
        processes = {}
        for version in ("4.0", "4.1", "4.2"):
            self.flags = self.server.flags(version)
            processes[version] = self.begin("idle", "top" + version)
            self.says(processes[version], "ok idle")
        time.sleep(2.5 * LEASE)
        for version, process in processes.items():
            with self.subTest(version=version):
                # A session ends with the lease. In version 4.0 the same connection gets a new
                # client id.
                self.go_on(process, *(["ok a new connection"] if version != "4.0" else []))
                self.go_on(process)


class Kernel(Runner, unittest.TestCase):
    """Every operation on Linux's own server, which takes less at a time than ganesha."""

    def test_every_operation(self):
        path = os.path.join(DISK, "kernel")
        os.makedirs(path)
        with KernelServer(path):
            for version, self.share in (("3", path), ("4.0", "/"), ("4.1", "/"), ("4.2", "/")):
                with self.subTest(version=version):
                    self.flags = ["vers=" + version]
                    got = self.run_program("check", "top" + version)
                    self.assertEqual(got.returncode, 0, got.stdout[-2000:] + got.stderr)


class Scripted(Runner, unittest.TestCase):
    """NFSv4.0 servers that lose clients, count otherwise, are busy or go away at any moment."""

    share = "/share"

    def setUp(self):
        self.serve()

    def serve(self, **more):
        self.server = scripted.Server(**more)
        self.flags = ["vers=4", "port=%d" % self.server.port]
        self.addCleanup(self.server.stop)

    def creates(self, count=300, window=64):
        got = self.run_program("create", "top", str(count), str(window))
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(len(self.server.files), count)
        self.assertEqual(self.server.complaints, [])

    def fails(self, words):
        got = self.run_program("create", "top", "300", "64")
        self.assertEqual(got.returncode, 1, got.stderr)
        self.assertIn(words, got.stderr)
        self.assertEqual(self.server.complaints, [])

    def idle(self):
        process = self.begin("idle", "top")
        self.says(process, "ok idle")
        return process

    def test_each_owner_is_confirmed_once(self):
        self.creates()
        self.assertEqual(self.server.open_files, 0)
        self.assertEqual(self.server.counts[SETCLIENTID], 1)
        self.assertEqual(self.server.counts[OPEN_CONFIRM], len(self.server.owners))
        self.assertLessEqual(len(self.server.owners), 64)

    def test_more_at_a_time_than_owners(self):
        self.server.say(OPEN, [OK] * 50 + [EXPIRED] * 10 + [OK] * 50 + [BAD_SEQID] * 10)
        self.creates(300, 250)
        self.assertLessEqual(len(self.server.owners), 64 + 64 + 10)
        self.assertEqual(self.server.open_files, 0)

    def test_one_at_a_time_needs_one_owner(self):
        self.creates(50, 1)
        self.assertEqual(len(self.server.owners), 1)

    def test_no_confirmation_wanted(self):
        self.serve(asks_to_confirm=False)
        self.creates()
        self.assertEqual(self.server.counts[OPEN_CONFIRM], 0)
        self.assertEqual(self.server.open_files, 0)

    def test_numbers_that_the_server_does_not_like(self):
        self.server.say(OPEN, [OK] * 50 + [BAD_SEQID] * 5 + [OK] * 50 + [BAD_SEQID])
        self.creates()
        self.assertEqual(self.server.open_files, 0)

    def test_lease_lost_in_the_middle(self):
        self.server.say(OPEN, [OK] * 50 + [EXPIRED] * 3)
        self.creates()
        self.assertEqual(self.server.counts[SETCLIENTID], 2)

    def test_clients_forgotten(self):
        process = self.idle()
        self.server.forget_clients()
        self.go_on(process)
        self.go_on(process)
        self.assertEqual(self.server.counts[SETCLIENTID], 2)
        self.assertEqual(self.server.complaints, [])

    def test_lease_lost_again_and_again(self):
        self.server.say(OPEN, [EXPIRED] * 1000)
        self.fails("Remote I/O error")
        self.assertEqual(self.server.counts[OPEN], 300 * 3)

    def test_busy(self):
        for status in (DELAY, GRACE):
            for operation in (OPEN, SETCLIENTID, SETCLIENTID_CONFIRM):
                with self.subTest(status=status, operation=operation):
                    self.serve()
                    self.server.say(operation, [status])
                    self.fails("Resource temporarily unavailable")
                    self.serve()
                    self.server.say(operation, [status] * 2)
                    process = self.idle()  # asks again
                    self.go_on(process)
                    self.assertEqual(self.server.complaints, [])

    def test_client_refused(self):
        self.server.say(SETCLIENTID, [CLID_INUSE] * 300)
        self.fails("Remote I/O error")
        self.assertEqual(self.server.counts[OPEN], 0)

    def test_file_that_cannot_be_closed(self):
        for status in (EXPIRED, BAD_STATEID, BAD_SEQID, DELAY):
            for operation in (CLOSE, OPEN_CONFIRM):
                with self.subTest(status=status, operation=operation):
                    self.serve()
                    self.server.say(operation, [OK] * 10 + [status] * 3)
                    self.creates()
                    self.assertEqual(self.server.open_files, 3)

    def test_directory_refused_before_the_owner_is_asked(self):
        self.server.say(PUTFH, [OK, DELAY])
        process = self.idle()
        self.go_on(process)
        self.assertEqual(self.server.counts[OPEN], 2)
        self.assertEqual(self.server.complaints, [])

    def test_attributes_are_a_courtesy(self):
        self.server.say(GETATTR, [OK, OK, DELAY])
        process = self.idle()
        self.go_on(process)
        self.assertEqual(self.server.counts[OPEN], 2)
        self.assertEqual(self.server.open_files, 0)

    def test_no_handle(self):
        self.server.say(GETFH, [OK] * 20 + [10006])
        self.fails("Remote I/O error")

    def test_connection_that_ends_at_any_moment(self):
        for calls in range(4, 150, 5):
            with self.subTest(calls=calls):
                self.serve()
                self.server.drop_after = calls
                self.fails("connection abort")
        self.assertGreater(self.server.counts[CREATE], 0)


if __name__ == "__main__":
    harness.main("files")
