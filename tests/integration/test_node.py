# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The node service with real mounts: the running kernel's NFS client against its own NFS server,
which exports an ext4 file system. Runs inside a lab with --kernel nfs --kernel nfsd."""
import concurrent.futures
import contextlib
import ctypes
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import odd_server
import servers
from csi_client import capability, patiently, pb
from driver import FEW_IN_GUEST, Driver, binary
from rpc_proxy import ALWAYS, Proxy, Rule
from servers import KernelServer

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
CODE = grpc.StatusCode
HOST = "127.0.0.1"
MNT_DETACH = 2
SWAPS = 24 if harness.LONG else 12  # publishes while a directory changes
KILLS = 10 if harness.LONG else 6  # of the driver while it walks

# Writes with several threads, all the time, until its standard input ends; prints what fails.
WRITER = """
import os, sys, threading
over = threading.Event()
bad = []
def write(number):
    path = os.path.join(sys.argv[1], "writer-%d" % number)
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_SYNC)
    try:
        while not over.is_set():
            os.pwrite(fd, b"x" * 262144, 0)
    except OSError as e:
        bad.append(e)
    os.close(fd)
threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
print("writing", flush=True)
sys.stdin.read()
over.set()
for t in threads:
    t.join()
for e in bad:
    print(e)
sys.exit(1 if bad else 0)
"""


def mounts(target):
    """The lines of mountinfo about this target: options, type, source, super options."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            left, right = line.rstrip("\n").split(" - ")
            if left.split(" ")[4] == target.replace(" ", "\\040"):
                kind, source, options = right.split(" ", 2)
                found.append((left.split(" ")[5].split(","), kind, source, options.split(",")))
    return found


def mount_ids(target):
    """The kernel's numbers of the mounts there: another mount has another one."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return [line.split(" ")[0] for line in f
                if line.split(" ")[4] == target.replace(" ", "\\040")]


class Mounts:
    """A server, a driver, and calls that name them."""

    patient = True

    @classmethod
    def setUpClass(cls):
        cls.server = KernelServer(DISK).start()
        cls.has_statd = servers.statd()
        for name in ("one", "two"):
            os.makedirs(os.path.join(DISK, "share", name), exist_ok=True)
        cls.driver = Driver(LAB, "--mode", "node", "--nodeid", "node-1", name="node",
                            workers=FEW_IN_GUEST).start()

    @classmethod
    def tearDownClass(cls):
        try:
            cls.driver.stop()
        finally:
            cls.server.done()

    def setUp(self):
        """A server that answers, and a driver that does not know of a time when it did not."""
        if not self.server.is_running():
            self.server.start()
        self.driver.restart()
        self.parent = os.path.join(LAB, "pods", self.id().rsplit(".", 1)[1])
        os.makedirs(self.parent, exist_ok=True)
        self.target = os.path.join(self.parent, "mount")

    def tearDown(self):
        for place in (self.target, self.target + "2"):
            while mounts(place):
                servers.run("umount", "-l", place)
            if os.path.isdir(place):
                os.rmdir(place)

    def scene(self):
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
            nfs = [line.rstrip("\n") for line in f if " - nfs" in line]
        return "\n".join(["-- mounts"] + nfs + ["-- the driver's log", self.driver.tail(60)])

    @property
    def client(self):
        return self.driver.client

    def publish(self, version="4.2", volume="one", target=None, flags=(), mode=None,
                host=HOST, readonly=False, share=None, timeout=None, **context):
        """NodePublishVolume of share/volume. version "" asks for none."""
        flags = list(flags) + (["vers=" + version] if version else [])
        if version == "3" and "lock" not in flags:
            flags.append("nolock")
        share = share or (os.path.join(DISK, "share") if version == "3" else "/share")
        given = {"server": host, "share": share, "subdir": volume}
        given.update(context)
        return self.again(
            self.client.NodePublishVolume,
            volume_id="%s#%s#%s##" % (host, share.strip("/"), volume),
            target_path=target or self.target, readonly=readonly, volume_context=given,
            volume_capability=capability(mode or "MULTI_NODE_MULTI_WRITER", flags), timeout=timeout)

    def again(self, call, **fields):
        """Calls until a slow server answers, unless that is what the case is about."""
        return patiently(call, **fields) if self.patient else call(**fields)

    @contextlib.contextmanager
    def impatient(self):
        """Each call is made once."""
        before, self.patient = self.patient, False
        try:
            yield
        finally:
            self.patient = before

    def unpublish(self, target=None, volume="one", timeout=None):
        self.again(self.client.NodeUnpublishVolume, volume_id=HOST + "#share#" + volume + "##",
                   target_path=target or self.target, timeout=timeout)

    def is_published(self):
        """Whether the server can be mounted again. One that was down is tried after a while."""
        try:
            with self.impatient():
                self.publish("4.2")
        except grpc.RpcError as e:
            self.assertEqual(e.code(), CODE.UNAVAILABLE, e.details())
            return False
        return True

    def fails(self, codes, call, *args, **fields):
        if not isinstance(codes, tuple):
            codes = (codes,)
        with self.assertRaises(grpc.RpcError) as got, self.impatient():
            call(*args, **fields)
        self.assertIn(got.exception.code(), codes, got.exception.details())
        self.assertTrue(got.exception.details())
        return got.exception.details()

    def is_gone(self, target=None):
        target = target or self.target
        self.assertEqual(mounts(target), [])
        self.assertFalse(os.path.lexists(target))
        self.assertTrue(os.path.isdir(os.path.dirname(target)))

    def write_and_read(self, volume="one"):
        text = "%s %s" % (self.id(), time.time())
        name = self.id().rsplit(".", 1)[1]
        with open(os.path.join(self.target, name), "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        with open(os.path.join(self.target, name), encoding="utf-8") as f:
            self.assertEqual(f.read(), text)
        with open(os.path.join(DISK, "share", volume, name), encoding="utf-8") as f:
            self.assertEqual(f.read(), text)

    def round_trip(self, version, **more):
        """Publish twice, use, unpublish twice. Returns the mountinfo line."""
        self.publish(version, **more)
        self.publish(version, **more)
        lines = mounts(self.target)
        self.assertEqual(len(lines), 1, lines)
        self.write_and_read()
        self.unpublish()
        self.is_gone()
        self.unpublish()
        return lines[0]

    def _has_version(self, line, version):
        self.assertIn("vers=" + version, line[3])

    def _answer(self, version, volume, **more):
        try:
            with self.impatient():
                self.publish(version, volume=volume, **more)
            return CODE.OK
        except grpc.RpcError as e:
            return e.code()

    def is_another(self, version, volume, **more):
        """Something else is mounted. A guest that is starved may first find its server silent."""
        answers = []

        def is_told():
            answers.append(self._answer(version, volume, **more))
            return answers[-1] != CODE.UNAVAILABLE

        self.assertTrue(servers.wait_for(is_told, 60, 1), answers)
        self.assertEqual(answers[-1], CODE.ALREADY_EXISTS, answers)


class Node(Mounts, unittest.TestCase):

    # ---- volumes of csi-driver-nfs ----

    def test_volumes_of_csi_driver_nfs(self):
        """Attributes as its versions made them, and as its manuals have people write them; the
        handle is any string, and means nothing to a node."""
        claim = {"csi.storage.k8s.io/pvc/name": "one", "csi.storage.k8s.io/pvc/namespace": "ns",
                 "csi.storage.k8s.io/pv/name": "pvc-1"}
        added = {"storage.kubernetes.io/csiProvisionerIdentity": "1700000000-8081-nfs.csi.k8s.io",
                 "unknown": "left alone"}
        place = {"server": HOST, "share": "/share"}
        for handle, context in (
                (HOST + "#share#one##", {**place, "subdir": "one", **claim, **added}),
                (HOST + "#share#one#pvc-1#retain", {**place, "subDir": "one", "onDelete": "retain",
                                                    **claim, **added}),
                (HOST + "#share#one#pvc-1", {**place, "subDir": "${pvc.metadata.name}", **claim}),
                (HOST + "#share#one", {"server": HOST, "share": "share/one", **added}),
                (HOST + "/share/one", {"server": HOST, "share": "/share/one/"}),
                (HOST + "/share##", {"server": HOST, "share": "/share", "subDir": "/one/",
                                     "mountOptions": "nosuid"}),
                ("any-string", {**place, "subDir": "one", "mountPermissions": "0"})):
            with self.subTest(handle=handle):
                self.client.NodePublishVolume(
                    volume_id=handle, target_path=self.target, volume_context=context,
                    volume_capability=capability("MULTI_NODE_MULTI_WRITER", ["nfsvers=4.1"]))
                self.write_and_read()
                self.client.NodeUnpublishVolume(volume_id=handle, target_path=self.target)
                self.is_gone()

    def test_separator_of_ids_in_a_path(self):
        """csi-driver-nfs mounts it: the path comes from the attributes, not from the handle."""
        os.makedirs(os.path.join(DISK, "share", "c#", "a#b"), exist_ok=True)
        for version, share, volume in (("4.2", "/share", "c#"), ("4.2", "/share/c#", "a#b"),
                                       ("4.2", "/share", "c#/a#b"), ("4.2", "/share/c#", "")):
            with self.subTest(share=share, volume=volume):
                self.publish(version, volume, share=share)
                self.publish(version, volume, share=share)
                self.assertEqual(len(mounts(self.target)), 1)
                self.write_and_read(os.path.join(share[len("/share/"):], volume))
                self.unpublish(volume=volume)
                self.is_gone()

    # ---- versions ----

    def test_version_3_without_locks(self):
        self._has_version(self.round_trip("3"), "3")

    def test_version_3_with_locks(self):
        if not self.has_statd:
            self.skipTest("rpc.statd does not run here")
        self._has_version(self.round_trip("3", flags=["lock"]), "3")

    def test_version_4_0(self):
        self._has_version(self.round_trip("4.0"), "4.0")

    def test_version_4_1(self):
        self._has_version(self.round_trip("4.1"), "4.1")

    def test_version_4_2(self):
        self._has_version(self.round_trip("4.2"), "4.2")

    def test_version_4(self):
        self.assertEqual(self.round_trip("4")[1], "nfs4")

    def test_no_version_takes_the_highest(self):
        self._has_version(self.round_trip(""), "4.2")

    def test_ipv6(self):
        for version, host in (("4.2", "::1"), ("3", "::1"), ("4.2", "[::1]")):
            with self.subTest(version=version, host=host):
                line = self.round_trip(version, host=host)
                self.assertTrue(line[2].startswith("[::1]:"), line[2])

    def test_host_name(self):
        self.round_trip("4.2", host="localhost")

    def test_wrong_version(self):
        self.fails((CODE.INVALID_ARGUMENT, CODE.FAILED_PRECONDITION), self.publish, "9")
        self.is_gone()

    # ---- options ----

    def test_read_only(self):
        for row, more in (("readonly", {"readonly": True}),
                          ("mount flag", {"flags": ["ro"]}),
                          ("and kept by a later rw", {"readonly": True, "flags": ["rw"]})):
            with self.subTest(row=row):
                self.publish(**more)
                self.assertIn("ro", mounts(self.target)[0][0])
                with self.assertRaises(OSError):
                    with open(os.path.join(self.target, "no"), "w", encoding="ascii"):
                        pass
                self.unpublish()
                self.is_gone()

    def test_access_modes_do_not_make_read_only(self):
        """Kubelet sends the first of a volume's modes: a claim of many may be used for writing."""
        for mode in ("MULTI_NODE_READER_ONLY", "SINGLE_NODE_READER_ONLY"):
            with self.subTest(mode=mode):
                self.publish(mode=mode)
                self.publish(mode=mode)
                self.assertIn("rw", mounts(self.target)[0][0])
                self.write_and_read()
                self.unpublish()
                self.is_gone()

    def test_same_target_with_other_readonly(self):
        self.publish()
        self.fails(CODE.ALREADY_EXISTS, self.publish, readonly=True)
        self.unpublish()
        self.is_gone()

    def test_mount_flags(self):
        self.publish(flags=["noatime", "noexec", "timeo=70", "soft", "rsize=65536"])
        line = mounts(self.target)[0]
        self.assertLessEqual({"noatime", "noexec"}, set(line[0]))
        self.assertLessEqual({"timeo=70", "soft", "rsize=65536"}, set(line[3]))
        self.unpublish()
        self.is_gone()

    def test_mount_options_attribute(self):
        self.publish("", mountOptions="vers=4.1,timeo=80,nodev")
        line = mounts(self.target)[0]
        self.assertLessEqual({"timeo=80", "vers=4.1"}, set(line[3]))
        self.assertIn("nodev", line[0])
        self.unpublish()
        self.is_gone()

    def test_unknown_mount_flag(self):
        self.fails(CODE.INVALID_ARGUMENT, self.publish, flags=["no-such-flag"])
        self.is_gone()

    def test_flags_that_are_no_nfs_mount(self):
        for flag in ("bind", "remount", "loop", "move", "rbind"):
            with self.subTest(flag=flag):
                self.fails(CODE.INVALID_ARGUMENT, self.publish, flags=[flag])
                self.is_gone()

    def test_mount_permissions(self):
        self.publish(mountPermissions="0751")
        self.assertEqual(os.stat(os.path.join(DISK, "share", "one")).st_mode & 0o7777, 0o751)
        self.unpublish()
        self.is_gone()

    def test_mount_permissions_leave_special_bits(self):
        """Kubelet sets the set-group-id bit for fsGroup, and opens the directory to the group;
        without these, it goes over all files. What changes beside the mount, stays."""
        place = os.path.join(DISK, "share", "special")
        os.makedirs(os.path.join(place, "sub"), exist_ok=True)
        volumes = (("special", place), ("special/sub", os.path.join(place, "sub")))
        rows = ((0o2770, "0770", 0o2770), (0o3755, "0770", 0o3770), (0o2770, "1777", 0o1777),
                (0o0755, "2770", 0o2770), (0o2775, "0755", 0o2775), (0o2770, "0500", 0o2770),
                (0o2775, "0700", 0o2770), (0o0770, "0700", 0o0700), (0o2755, "0", 0o2755))
        for turn, (before, asked, after) in enumerate(rows):
            for volume, at in harness.one_of(volumes, turn):
                with self.subTest(volume=volume, before=oct(before), asked=asked):
                    os.chmod(at, before)
                    changed = os.stat(at).st_ctime_ns
                    self.publish(volume=volume, mountPermissions=asked)
                    self.assertEqual(os.stat(at).st_mode & 0o7777, after)
                    if before == after:
                        self.assertEqual(os.stat(at).st_ctime_ns, changed)
                    os.chmod(at, 0o711)
                    self.publish(volume=volume, mountPermissions=asked)
                    self.assertEqual(os.stat(at).st_mode & 0o7777, 0o711)
                    self.unpublish(volume=volume)
                    self.is_gone()

    def _export(self, options):
        servers.run("exportfs", "-u", "*:" + DISK)
        servers.run("exportfs", "-i", "-o", options, "*:" + DISK)

    def test_mode_that_a_squashed_root_may_not_set(self):
        """A final code is for a request that has left nothing."""
        os.chmod(os.path.join(DISK, "share", "one"), 0o755)
        self._export(self.server.options.replace("no_root_squash", "root_squash"))
        try:
            self.fails(CODE.PERMISSION_DENIED, self.publish, mountPermissions="0777")
            self.is_gone()
        finally:
            self._export(self.server.options)

    # ---- targets ----

    def test_target_with_a_space(self):
        self.target = os.path.join(self.parent, "a mount")
        self.round_trip("4.2")

    def test_two_targets(self):
        other = self.target + "2"
        self.publish()
        self.publish(target=other)
        self.assertEqual(len(mounts(self.target)) + len(mounts(other)), 2)
        self.unpublish()
        self.is_gone()
        self.assertEqual(len(mounts(other)), 1)
        self.unpublish(target=other)
        self.is_gone(other)

    def test_other_volume_at_the_same_target(self):
        self.publish()
        self.fails(CODE.ALREADY_EXISTS, self.publish, volume="two")
        self.assertEqual(len(mounts(self.target)), 1)
        self.unpublish()
        self.is_gone()

    def test_existing_target_directory(self):
        os.mkdir(self.target)
        self.round_trip("4.2")

    def test_unpublish_of_an_empty_directory(self):
        os.mkdir(self.target)
        self.unpublish()
        self.is_gone()

    def test_unpublish_of_an_unknown_target(self):
        self.unpublish()
        self.is_gone()
        self.client.NodeUnpublishVolume(volume_id="fake-vol-id", target_path=self.target)

    def test_unpublish_never_deletes_data(self):
        os.mkdir(self.target)
        precious = os.path.join(self.target, "precious")
        with open(precious, "w", encoding="ascii") as f:
            f.write("stay")
        try:
            self.unpublish()
        except grpc.RpcError as e:
            self.assertNotEqual(e.code(), CODE.UNKNOWN)
        self.assertTrue(os.path.exists(precious))
        os.unlink(precious)

    def test_mounted_twice(self):
        self.publish()
        servers.run("mount", "--bind", self.target, self.target)
        self.assertEqual(len(mounts(self.target)), 2)
        self.unpublish()
        self.is_gone()

    def test_hidden_mount(self):
        """Somebody has mounted something over a directory above: then umount does not reach it, and
        it would be back once that is gone."""
        self.publish()
        servers.run("mount", "-t", "tmpfs", "tmpfs", self.parent)
        try:
            for call in (self.unpublish, self.publish):
                self.assertIn("mounted over", self.fails(CODE.ABORTED, call))
            os.mkdir(self.target)
            self.assertIn("mounted over", self.fails(CODE.ABORTED, self.unpublish))
            self.fails(CODE.ABORTED, self.publish)
        finally:
            servers.run("umount", self.parent)
        self.publish()
        self.assertEqual(len(mounts(self.target)), 1)
        self.unpublish()
        self.is_gone()

    def test_target_spelled_otherwise(self):
        """It is the same target, for the mount, for the access mode and for unpublishing."""
        alone = "SINGLE_NODE_SINGLE_WRITER"
        spellings = [self.target + end for end in ("/", "//", "/.", "/./")]
        spellings += [self.parent + "/./mount", self.parent + "//mount"]
        for spelling in spellings:
            with self.subTest(spelling=spelling):
                self.publish(target=spelling, mode=alone)
                self.publish(mode=alone)
                self.publish(target=spelling, mode=alone)
                self.assertEqual(len(mounts(self.target)), 1)
                self.unpublish(target=spelling)
                self.is_gone()

    def test_target_that_is_no_directory(self):
        """A file, and a link, with or without a slash behind it. Neither is followed or removed."""
        real = os.path.join(self.parent, "real")
        os.mkdir(real)
        for target, make in ((self.target, lambda: open(self.target, "w").close()),
                             (self.target, lambda: os.symlink("real", self.target)),
                             (self.target + "/", lambda: os.symlink("real", self.target)),
                             (self.target, lambda: os.symlink("nowhere", self.target))):
            make()
            for call in (self.publish, self.unpublish):
                text = self.fails(CODE.FAILED_PRECONDITION, call, target=target)
                self.assertIn("'%s' is not a directory" % self.target, text)
            self.assertEqual(mounts(self.target) + mounts(real), [])
            os.unlink(self.target)
        os.rmdir(real)

    def test_target_that_cannot_be(self):
        """Nothing can be published there, and so there is nothing to unpublish."""
        file = os.path.join(self.parent, "file")
        with open(file, "w", encoding="ascii"):
            pass
        for target, code in ((os.path.join(self.parent, "x" * 256), CODE.INVALID_ARGUMENT),
                             (os.path.join(file, "mount"), CODE.FAILED_PRECONDITION)):
            with self.subTest(code=code):
                self.fails(code, self.publish, target=target)
                self.unpublish(target=target)
        os.unlink(file)

    # ---- bad input ----

    def test_bad_requests(self):
        cap = capability(flags=["vers=4.2"])
        context = {"server": HOST, "share": "/share", "subdir": "one"}
        good = {"volume_id": "v", "target_path": self.target, "volume_capability": cap,
                "volume_context": context}
        for row, word, fields in (
                ("no id", "volume_id", {"volume_id": ""}),
                ("no target", "target_path", {"target_path": ""}),
                ("relative target", "target_path", {"target_path": "some/path"}),
                (".. in target", "target_path", {"target_path": self.parent + "/../x"}),
                ("no capability", "volume_capability", {"volume_capability": None}),
                ("block", "block", {"volume_capability": capability(block=True)}),
                ("no access mode", "access_mode",
                 {"volume_capability": pb.VolumeCapability(mount={})}),
                ("no server", "server", {"volume_context": {"share": "/share"}}),
                ("no share", "share", {"volume_context": {"server": HOST}}),
                (".. in share", "share", {"volume_context": dict(context, share="/a/../b")}),
                (".. in subdir", "subdir", {"volume_context": dict(context, subdir="../one")}),
                ("bad octal", "mountpermissions",
                 {"volume_context": dict(context, mountPermissions="9")})):
            with self.subTest(row=row):
                text = self.fails(CODE.INVALID_ARGUMENT, self.client.NodePublishVolume,
                                  **dict(good, **fields))
                self.assertIn(word, text.lower())
                self.assertFalse(os.path.exists(self.target))
        for row, word, fields in (
                ("no id", "volume_id", {"target_path": self.target}),
                ("no target", "target_path", {"volume_id": "v"}),
                ("relative", "target_path", {"volume_id": "v", "target_path": "some/path"})):
            with self.subTest(row="unpublish, " + row):
                text = self.fails(CODE.INVALID_ARGUMENT, self.client.NodeUnpublishVolume, **fields)
                self.assertIn(word, text.lower())

    def test_share_that_does_not_exist(self):
        for version, share in (("4.2", "/nowhere"), ("3", DISK + "/nowhere")):
            with self.subTest(version=version):
                self.fails((CODE.NOT_FOUND, CODE.PERMISSION_DENIED), self.publish, version,
                           share=share)
                self.is_gone()

    def test_volume_that_does_not_exist(self):
        self.fails(CODE.NOT_FOUND, self.publish, volume="nobody")
        self.is_gone()

    def test_volume_that_is_a_file(self):
        """Also where mount.nfs says so, which does the locks of version 3."""
        place = os.path.join(DISK, "share", "file")
        with open(place, "wb"):
            self.addCleanup(os.unlink, place)
        for flags in ([], ["lock"] if self.has_statd else []):
            for version in ("3", "4.2"):
                with self.subTest(version=version, flags=flags):
                    text = self.fails(CODE.NOT_FOUND, self.publish, version, volume="file",
                                      flags=flags)
                    self.assertIn("not a directory", text)
                    self.is_gone()

    def test_closed_port(self):
        for version in ("3", "4.2", ""):
            with self.subTest(version=version):
                begun = time.monotonic()
                self.fails(CODE.UNAVAILABLE, self.publish, version,
                           flags=["port=%d" % servers.free_port(),
                                  "mountport=%d" % servers.free_port()])
                self.assertLess(time.monotonic() - begun, 15)
                self.is_gone()

    # ---- what dies and comes back ----

    def test_server_stopped(self):
        self.server.stop()
        try:
            begun = time.monotonic()
            self.fails((CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED), self.publish)
            self.assertLess(time.monotonic() - begun, 20)
            self.is_gone()
        finally:
            self.server.start()
        self.assertTrue(servers.wait_for(self.is_published),
                        "the driver does not find its server again")
        self.unpublish()
        self.round_trip("4.2")

    def test_unpublish_with_the_server_stopped(self):
        """One lost server must not keep a pod from going."""
        self.publish(version="4.2")

        def is_unpublished():
            try:
                self.unpublish(timeout=30)
                return True
            except grpc.RpcError as e:
                self.assertIn(e.code(), (CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED, CODE.ABORTED),
                              e.details())
                return False
        self.server.stop()
        try:
            with self.impatient():
                self.assertTrue(servers.wait_for(is_unpublished, 60, 1))
            self.is_gone()
            self.assertFalse(self.server.is_running())
        finally:
            self.server.start()

    def _condition(self):
        got = self.client.NodeGetVolumeStats(volume_id="v", volume_path=self.target)
        return got.volume_condition.message

    def test_directory_removed_below_a_mount(self):
        """The mount is stale then; the next publish replaces it, once there is a directory."""
        place = os.path.join(DISK, "share", "passing")
        for version in ("3", "4.1"):
            with self.subTest(version=version):
                os.mkdir(place)
                self.publish(version, volume="passing")
                os.rmdir(place)
                self.assertTrue(servers.wait_for(lambda: "stale" in self._condition(), 30, 1),
                                self._condition())
                self.fails((CODE.ABORTED, CODE.UNAVAILABLE), self.publish, version,
                           volume="passing")
                self.assertEqual(len(mounts(self.target)), 1)
                os.mkdir(place)
                self.publish(version, volume="passing")
                with open(os.path.join(self.target, "new"), "w", encoding="ascii") as f:
                    f.write("new")
                self.assertEqual(os.listdir(place), ["new"])
                self.unpublish(volume="passing")
                self.is_gone()
                os.unlink(os.path.join(place, "new"))
                os.rmdir(place)

    def test_server_fails_to_look_at_a_directory(self):
        """The kernel calls that mount stale, too, but it is well again later, and a pod uses it."""
        place = os.path.join(DISK, "share", "failing")
        os.mkdir(place)
        with Proxy(2049) as proxy:
            for version, status in (("3", "IO"), ("3", "ACCES"), ("4.2", "IO"), ("4.2", "ACCES")):
                with self.subTest(version=version, status=status):
                    more = {"volume": "failing", "flags": ["port=%d" % proxy.port],
                            "mountPermissions": "0711"}
                    self.publish(version, **more)
                    os.chmod(place, 0o700)
                    before = mount_ids(self.target)
                    proxy.begin([Rule("GETATTR", 1, "status " + status, None, ALWAYS)])
                    self.assertTrue(servers.wait_for(
                        lambda: "the mount of" in self._condition(), 30, 1), self._condition())
                    for _ in range(2):
                        self.fails((CODE.ABORTED, CODE.UNAVAILABLE), self.publish, version, **more)
                        self.assertEqual(mount_ids(self.target), before)
                    proxy.end()
                    self.publish(version, **more)
                    self.assertEqual(mount_ids(self.target), before)
                    self.assertEqual(os.stat(place).st_mode & 0o7777, 0o700)
                    self.unpublish(volume="failing")
                    self.is_gone()
        os.rmdir(place)

    def test_unexported_below_a_mount(self):
        """As while a server starts, or an administrator corrects the exports."""
        for version in ("3", "4.2"):
            with self.subTest(version=version):
                self.publish(version)
                before = mount_ids(self.target)
                servers.run("exportfs", "-u", "*:" + DISK)
                servers.run("exportfs", "-f")
                try:
                    for _ in range(2):
                        self.fails((CODE.ABORTED, CODE.UNAVAILABLE), self.publish, version)
                        self.assertEqual(mount_ids(self.target), before)
                finally:
                    servers.run("exportfs", "-i", "-o", self.server.options, "*:" + DISK)
                self.publish(version)
                self.assertEqual(len(mounts(self.target)), 1)
                self.unpublish()
                self.is_gone()

    # ---- names ----

    def test_publish_again_where_the_server_has_a_link(self):
        """mountinfo has the path that the link leads to."""
        share = os.path.join(DISK, "share")
        for name, to in ((share + "/link", "one"), (DISK + "/link", "share")):
            if not os.path.islink(name):
                os.symlink(to, name)
        for turn, row in enumerate(("subDir", "share")):
            for version in harness.one_of(("3", "4.0", "4.2"), turn):
                top = DISK if version == "3" else ""
                more = {"volume": "link"} if row == "subDir" else {"share": top + "/link"}
                with self.subTest(version=version, row=row):
                    for _ in range(3):
                        self.publish(version, **more)
                    self.assertEqual(len(mounts(self.target)), 1)
                    self.write_and_read()
                    self.fails(CODE.ALREADY_EXISTS, self.publish, version, readonly=True, **more)
                    self.is_another(version, "two")
                    self.is_another(version, "nobody")
                    self.driver.restart()
                    self.publish(version, **more)
                    self.assertEqual(len(mounts(self.target)), 1)
                    self.unpublish()
                    self.is_gone()
        os.unlink(DISK + "/link")
        os.unlink(share + "/link")

    def test_one_directory_under_two_names(self):
        """In version 3 mounts of one directory all have the name of the first one."""
        os.symlink("one", os.path.join(DISK, "share", "link"))
        other = self.target + "2"
        for turn, (first, second) in enumerate((("one", "link"), ("link", "one"))):
            for version in harness.one_of(("3", "4.2"), turn):
                with self.subTest(version=version, first=first):
                    for _ in range(2):
                        self.publish(version, volume=first)
                        self.publish(version, volume=second, target=other)
                    self.assertEqual(len(mounts(self.target) + mounts(other)), 2)
                    self.is_another(version, "two", target=other)
                    self.unpublish()
                    self.unpublish(target=other)
                    self.is_gone()
                    self.is_gone(other)
        os.unlink(os.path.join(DISK, "share", "link"))

    @contextlib.contextmanager
    def names(self, text):
        """/etc/hosts has these lines, and no name service answers. Yields the file."""
        files = {"/etc/hosts": text, "/etc/resolv.conf": "nameserver 127.0.0.9\n"}
        try:
            for path, lines in files.items():
                copy = os.path.join(LAB, os.path.basename(path))
                with open(copy, "w", encoding="ascii") as f:
                    f.write(lines)
                servers.run("mount", "--bind", copy, path)
            yield os.path.join(LAB, "hosts")
        finally:
            for path in files:
                servers.run("umount", path, check=False)

    def test_two_names_of_a_server_and_no_name_service(self):
        """Both mounts have the name of the first one. Whether the other one means the same server
        is unknown while names are, and no reason for a final code."""
        other = self.target + "2"
        with self.names("127.0.0.1 name-one\n127.0.0.1 name-two\n") as hosts:
            self.publish(host="name-one")
            self.publish(host="name-two", target=other)
            self.publish(host="name-two", target=other)
            self.assertEqual(mounts(other)[0][2], "name-one:/share/one")
            with open(hosts, "w", encoding="ascii"):
                pass
            self.fails(CODE.UNAVAILABLE, self.publish, host="name-two", target=other)
            with open(hosts, "w", encoding="ascii") as f:
                f.write("127.0.0.1 name-two\n")
            self.publish(host="name-two", target=other)
            self.unpublish()
            self.unpublish(target=other)

    def test_two_addresses_of_a_server(self):
        """Over version 4, mounts by the second address have the name and address of the first. They
        are known for what they are by another mount."""
        other, second = self.target + "2", "127.0.0.2"
        for version in harness.one_of(("4.2", "4.1"), 0):
            with self.subTest(version=version):
                self.publish(version)
                for _ in range(2):
                    self.publish(version, volume="two", target=other, host=second)
                    line, = mounts(other)
                    self.assertEqual(line[2], HOST + ":/share/two")
                self.is_another(version, "one", target=other, host=second)
                self.unpublish(target=other, volume="two")
                self.unpublish()
                self.is_gone(other)

    def test_two_servers_with_the_same_handles(self):
        """What distinguishes them is only that the kernel does not take them for one."""
        flags = {}
        for host in (HOST, "127.0.0.2"):
            server = odd_server.Server().start(host)
            self.addCleanup(server.stop)
            server.put("a/b")
            flags[host] = server.flags()
        self.publish("3", share="/share", volume="a/b", flags=flags[HOST])
        self.is_another("3", "a/b", share="/share", host="127.0.0.2", flags=flags["127.0.0.2"])
        self.unpublish()

    def test_transport_of_one_family(self):
        """As mount.nfs, take an address that the transport can have."""
        rows = (("tcp", "127.0.0.1"), ("tcp6", "::1"))
        with self.names("::1 both\n127.0.0.1 both\n"):
            for proto, address in rows:
                for version in ("3", "4.2"):
                    with self.subTest(proto=proto, version=version):
                        self.publish(version, host="both", flags=["proto=" + proto])
                        self.assertIn("addr=" + address, mounts(self.target)[0][3])
                        self.unpublish()

    def is_reached(self, host, version):
        """By NFS from user space, as from a controller."""
        share = os.path.join(DISK, "share") if version == "3" else "/share"
        got = subprocess.run([binary(), "check", "--server", host, "--share", share,
                              "--mount-options", "vers=" + version, "--format", "json"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                             timeout=60, check=False)
        steps = {s["name"]: s for s in json.loads(got.stdout)["steps"]}
        self.assertEqual(steps["connect"]["status"], "ok", steps)

    def test_export_for_one_family(self):
        """The name has addresses of two, and the server refuses the first, or hides it there."""
        hidden = "[::1]:" + os.path.join(DISK, "share")
        servers.run("exportfs", "-u", "*:" + DISK)
        servers.run("exportfs", "-i", "-o", self.server.options, HOST + ":" + DISK)
        try:
            with self.names("::1 both\n127.0.0.1 both\n"):
                for version in ("3", "4.2", "4.2, hidden"):
                    if version.endswith("hidden"):
                        servers.run("exportfs", "-i", "-o", "rw,no_subtree_check,fsid=79", hidden)
                    with self.subTest(version=version):
                        self.publish(version.split(",", maxsplit=1)[0], host="both")
                        self.assertIn("addr=" + HOST, mounts(self.target)[0][3])
                        self.unpublish()
                        self.fails((CODE.NOT_FOUND, CODE.PERMISSION_DENIED), self.publish,
                                   version.split(",", maxsplit=1)[0], host="both", volume="none")
                        self.is_reached("both", version.split(",", maxsplit=1)[0])
        finally:
            servers.run("exportfs", "-u", hidden, check=False)
            servers.run("exportfs", "-u", HOST + ":" + DISK)
            servers.run("exportfs", "-i", "-o", self.server.options, "*:" + DISK)

    def test_targets_that_cannot_be_there(self):
        """Nothing is there to unpublish: that is success, whatever rmdir() says."""
        fixed = os.path.join(LAB, "fixed")
        os.makedirs(fixed)
        servers.run("mount", "-t", "tmpfs", "tmpfs", fixed)
        self.addCleanup(servers.run, "umount", fixed)
        os.mkdir(os.path.join(fixed, "there"))
        servers.run("mount", "-o", "remount,ro", fixed)
        for target in (os.path.join(fixed, "not"), os.path.join(fixed, "n" * 300, "t")):
            self.unpublish(target)
        text = self.fails(CODE.INTERNAL, self.unpublish, os.path.join(fixed, "there"))
        self.assertIn("Read-only file system", text)

    def test_mount_that_the_kernel_cannot_show(self):
        """A pod moves the directory of its subPath so deep that /proc/self/mountinfo cannot be read
        beyond the line of that mount. Its volume can be unpublished all the same, and so can what
        was published before it; others can be published."""
        other, early, flagged = self.target + "2", self.target + "3", self.target + "4"
        bound = os.path.join(LAB, "bound")
        os.makedirs(bound, exist_ok=True)
        self.publish(volume="two", target=early)
        self.publish()
        sub = os.path.join(self.target, "sub")
        os.mkdir(sub)
        servers.run("mount", "--bind", sub, bound)
        self.addCleanup(servers.run, "rm", "-rf", os.path.join(DISK, "share", "one", "d" * 200))
        try:
            top = os.open(self.target, os.O_RDONLY)
            here = os.dup(top)
            for _ in range(25):
                os.mkdir("d" * 200, dir_fd=here)
                above, here = here, os.open("d" * 200, os.O_RDONLY, dir_fd=here)
                os.close(above)
            os.rename("sub", "sub", src_dir_fd=top, dst_dir_fd=here)
            os.close(here)
            os.close(top)
            with self.assertRaises(OSError) as got, open("/proc/self/mountinfo", "rb") as f:
                f.read()
            self.assertEqual(got.exception.errno, errno.ENAMETOOLONG)
            self.publish()
            self.publish(volume="two", target=other)
            self.publish(volume="two", target=flagged, readonly=True, flags=["nosuid", "nodev"])
            for call in (lambda: self.publish(volume="two", target=other),
                         lambda: self.unpublish(other, "two")):
                self.assertIn("deep", self.fails(CODE.ABORTED, call))
            self.unpublish(early, "two")
            self.assertFalse(os.path.lexists(early))
            self.unpublish()
            self.assertFalse(os.path.lexists(self.target))
        finally:
            # umount(8) reads the list first.
            self.assertEqual(ctypes.CDLL(None).umount2(bound.encode(), MNT_DETACH), 0)
        self.publish(volume="two", target=other)
        self.unpublish(other, "two")
        self.is_gone(other)
        shown = mounts(flagged)[0]
        self.assertLessEqual({"ro", "nosuid", "nodev"}, set(shown[0]), shown)
        self.unpublish(flagged, "two")
        self.is_gone(flagged)

    def test_link_that_leads_elsewhere_by_now(self):
        link = os.path.join(DISK, "share", "moving")
        os.symlink("one", link)
        self.publish(volume="moving")
        os.unlink(link)
        os.symlink("two", link)
        # The client may remember the link for a while.
        self.assertTrue(servers.wait_for(
            lambda: self._answer("4.2", "moving") == CODE.ABORTED, 90, 1))
        self.assertEqual(len(mounts(self.target)), 1)
        self.unpublish()
        self.is_gone()
        os.unlink(link)

    # ---- users of a mount ----

    def test_writer_in_another_namespace_outlives_an_unpublish(self):
        """Somebody uses the mount here (EBUSY), and somebody writes through it elsewhere: umount by
        force would break that writer's calls, on a server that is well."""
        for version in ("3", "4.2"):
            with self.subTest(version=version):
                self.publish(version)
                writer = subprocess.Popen(
                    ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", WRITER,
                     self.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                self.assertEqual(writer.stdout.readline(), b"writing\n")
                with open(os.path.join(self.target, "in-use"), "wb"):
                    self.unpublish()
                    self.is_gone()
                    time.sleep(0.5)
                    out, _ = writer.communicate(b"", 60)
                self.assertEqual(out, b"")
                self.assertEqual(writer.returncode, 0)

    def test_driver_restarted_between(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(signal=how.name):
                self.publish()
                self.driver.restart(how)
                self.assertEqual(len(mounts(self.target)), 1)
                self.publish()
                self.assertEqual(len(mounts(self.target)), 1)
                self.write_and_read()
                self.unpublish()
                self.is_gone()

    # ---- the rest of the service ----

    def test_info(self):
        info = self.client.NodeGetInfo()
        self.assertEqual(info.node_id, "node-1")
        self.assertGreaterEqual(info.max_volumes_per_node, 0)

    def test_node_mode_serves_no_controller(self):
        self.fails(CODE.UNIMPLEMENTED, self.client.CreateVolume, name="v")


EPHEMERAL = {"csi.storage.k8s.io/ephemeral": "true"}
VERSIONS = ("3", "4.0", "4.2")


class Walk(Mounts, unittest.TestCase):
    """Volumes below directories that pods may write: what they put there is not followed."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.driver.stop()
        # Nothing is asked for by itself in version 4, where the export is the root.
        cls.driver = Driver(
            LAB, "--mode", "node", "--nodeid", "node-1",
            "--inline-volumes=%s:/share/allowed,%s:%s/share/allowed" % (HOST, HOST, DISK),
            name="walk", workers=FEW_IN_GUEST).start()

    def setUp(self):
        super().setUp()
        self.secret = os.path.join(DISK, "share", "secret")
        self.allowed = os.path.join(DISK, "share", "allowed")
        for place in (self.secret, self.allowed):
            shutil.rmtree(place, ignore_errors=True)
            os.makedirs(os.path.join(place, "dir", "deep"))
        self.closed = [os.path.join(self.secret, n) for n in ("", "dir", "dir/deep")]
        for place in self.closed:
            os.chmod(place, 0o700)

    def tearDown(self):
        super().tearDown()
        self.assertEqual(private_namespaces(), [])

    def inline(self, version, volume, **more):
        self.publish(version, volume="allowed" + volume, **EPHEMERAL, **more)

    def is_refused(self, *args, **fields):
        codes = (CODE.FAILED_PRECONDITION, CODE.PERMISSION_DENIED, CODE.NOT_FOUND)
        text = self.fails(codes, *args, mountPermissions="0777", **fields)
        self.is_gone()
        self.is_closed()
        return text

    def is_closed(self):
        for place in self.closed:
            self.assertEqual(os.stat(place).st_mode & 0o7777, 0o700, place)

    def test_inline_through_a_link(self):
        for name, to in (("out", "../secret"), ("far", "/share/secret"),
                         ("path", os.path.join(DISK, "share", "secret")), ("up", ".."),
                         ("in", "dir"), ("chain", "out")):
            os.symlink(to, os.path.join(self.allowed, name))
        os.symlink("../../secret", os.path.join(self.allowed, "dir", "out"))
        versions = VERSIONS + (("3 with locks",) if self.has_statd else ())
        for turn, path in enumerate(("/out", "/far", "/path", "/in", "/chain", "/dir/out",
                                     "/out/dir", "/up/secret", "/up/secret/dir", "/up",
                                     "/dir/out/dir/deep")):
            for version in harness.one_of(versions, turn):
                flags = ["lock"] if version.endswith("locks") else []
                with self.subTest(version=version, path=path):
                    text = self.is_refused(self.inline, version.split(" ", maxsplit=1)[0], path,
                                           flags=flags)
                    self.assertIn("symbolic link", text)

    def test_volume_in_a_volume_through_a_link(self):
        team = os.path.join(DISK, "share", "team")
        os.makedirs(team, exist_ok=True)
        os.symlink("../secret", os.path.join(team, "claim"))
        os.symlink("secret", os.path.join(DISK, "share", "crew"))
        try:
            for turn, volume in enumerate(("team/claim", "team/claim/dir", "crew/dir",
                                           "crew/dir/deep")):
                for version in harness.one_of(VERSIONS, turn):
                    with self.subTest(version=version, volume=volume):
                        self.assertIn("symbolic link",
                                      self.is_refused(self.publish, version, volume=volume))
        finally:
            os.unlink(os.path.join(DISK, "share", "crew"))
            shutil.rmtree(team)

    def test_what_is_there_is_mounted(self):
        versions = VERSIONS + ("",) + (("3 with locks",) if self.has_statd else ())
        rows = (("inline", "allowed/dir", EPHEMERAL), ("deep", "allowed/dir/deep", EPHEMERAL),
                ("all of it", "allowed", EPHEMERAL), ("plain", "secret/dir", {}),
                ("readonly", "allowed/dir/deep", {"readonly": True}))
        for turn, (row, volume, more) in enumerate(rows):
            for version in harness.one_of(versions, turn):
                with self.subTest(version=version, row=row):
                    self._is_mounted(version, volume, more)

    def _is_mounted(self, version, volume, more):
        place = os.path.join(DISK, "share", volume)
        flags = ["noexec"] + (["lock"] if version.endswith("locks") else [])
        version = version.split(" ", maxsplit=1)[0]
        for _ in range(2):
            self.publish(version, volume=volume, flags=flags, **more)
        line, = mounts(self.target)
        self.assertTrue(line[2].endswith("/" + volume), line)
        wanted = {"noexec"} | ({"nosuid", "nodev"} if "readonly" not in more and more else set())
        self.assertLessEqual(wanted, set(line[0]))
        self.assertEqual("ro" in line[0], "readonly" in more)
        if version:
            self._has_version(line, version)
        self.assertEqual(nfs_mounts(), [self.target])
        stats = self.client.NodeGetVolumeStats(volume_id="v", volume_path=self.target)
        self.assertFalse(stats.volume_condition.abnormal, stats.volume_condition.message)
        self.assertGreater(stats.usage[0].total, 0)
        if "readonly" in more:
            with self.assertRaises(OSError):
                os.mkdir(os.path.join(self.target, "no"))
        else:
            self.write_and_read(volume)
        self.assertEqual(sorted(os.listdir(self.target)), sorted(os.listdir(place)))
        self.is_another(version, "one", flags=flags)
        self.is_another(version, "secret/dir/deep", flags=flags)
        self.unpublish(volume=volume)
        self.is_gone()
        self.assertEqual(nfs_mounts(), [])
        self.assertTrue(servers.wait_for(lambda: not superblocks(), 10), superblocks())

    def test_file_system_mounted_in_the_share(self):
        """The server shows it below the share: its mount has the flags of the one above."""
        place = os.path.join(self.allowed, "dir")
        servers.run("mount", "-t", "tmpfs", "tmpfs", place)
        try:
            os.makedirs(os.path.join(place, "in", "it"))
            servers.run("exportfs", "-i", "-o",
                        "rw,no_root_squash,insecure,no_subtree_check,nohide,fsid=77", "*:" + place)
            for readonly in (False, True):
                for version in harness.one_of(VERSIONS, readonly):
                    with self.subTest(version=version, readonly=readonly):
                        self._crosses(version, readonly)
        finally:
            servers.run("exportfs", "-u", "*:" + place, check=False)
            servers.run("exportfs", "-f", check=False)
            self.assertTrue(servers.wait_for(
                lambda: servers.run("umount", place, check=False).returncode == 0, 20, 0.5))

    def _crosses(self, version, readonly):
        for _ in range(2):
            self.inline(version, "/dir/in/it", readonly=readonly)
        line, = mounts(self.target)
        self.assertLessEqual({"nosuid", "nodev"}, set(line[0]))
        self.assertEqual("ro" in line[0], readonly)
        if readonly:
            with self.assertRaises(OSError):
                os.mkdir(os.path.join(self.target, "no"))
        else:
            self.write_and_read("allowed/dir/in/it")
        self.unpublish()
        self.is_gone()
        self.assertEqual(nfs_mounts(), [])

    def test_it_is_seen_where_mounts_are_shared(self):
        """The driver's container shares the folder with the node, which sees what comes there."""
        here, there = os.path.join(self.parent, "here"), os.path.join(self.parent, "there")
        for place in (here, there):
            os.mkdir(place)
        servers.run("mount", "--bind", here, here)
        try:
            servers.run("mount", "--make-shared", here)
            servers.run("mount", "--bind", here, there)
            for volume in ("one", "secret/dir"):
                with self.subTest(volume=volume):
                    self.publish(volume=volume, target=here + "/t")
                    self.assertEqual(len(mounts(here + "/t")), 1)
                    self.assertEqual(len(mounts(there + "/t")), 1)
                    self.assertTrue(os.path.samefile(here + "/t", there + "/t"))
                    self.publish(volume=volume, target=here + "/t")
                    self.unpublish(target=here + "/t")
                    self.is_gone(here + "/t")
                    self.is_gone(there + "/t")
        finally:
            servers.run("umount", there, check=False)
            servers.run("umount", here, check=False)

    def test_driver_killed_while_it_walks(self):
        """At any moment: the mount that nobody sees goes too, and the next call does it all."""
        chance = random.Random(11)
        for number in range(KILLS):
            version = ("3", "4.2")[number % 2]
            with self.subTest(number=number, version=version):
                call = threading.Thread(target=self._answer, args=(version, "secret/dir"))
                call.start()
                time.sleep(chance.uniform(0, 0.25))
                self.driver.kill()
                call.join()
                self.assertTrue(servers.wait_for(lambda: not self._processes(), 20))
                self.assertEqual(private_namespaces(), [])
                self.driver.start()
                self.assertLessEqual(set(nfs_mounts()), {self.target})
                self.publish(version, volume="secret/dir")
                self.assertEqual(nfs_mounts(), [self.target])
                self.unpublish()
                self.is_gone()
                self.assertEqual(nfs_mounts(), [])

    def _processes(self):
        """Of the driver and its helpers, also those that it has not yet made helpers."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    words = f.read()
            except OSError:
                continue  # it has ended
            if self.driver.socket.encode() in words or b"mount-helper" in words:
                found.append(pid)
        return found

    def test_directory_that_root_may_not_search(self):
        """Where the server squashes root."""
        export = os.path.join(DISK, "squashed")
        shutil.rmtree(export, ignore_errors=True)
        os.makedirs(os.path.join(export, "private", "vol"))
        os.makedirs(os.path.join(export, "public", "vol"))
        os.chmod(os.path.join(export, "private"), 0o700)
        servers.run("exportfs", "-i", "-o",
                    "rw,root_squash,insecure,no_subtree_check,fsid=78", "*:" + export)
        try:
            text = self.fails(CODE.PERMISSION_DENIED, self.publish, "3", share=export,
                              volume="private/vol")
            self.assertIn("search", text)
            self.is_gone()
            self.publish("3", share=export, volume="public/vol")
            self.unpublish()
            self.is_gone()
        finally:
            servers.run("exportfs", "-u", "*:" + export, check=False)

    def test_top_that_is_not_there(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                top = DISK if version == "3" else ""
                text = self.fails((CODE.NOT_FOUND, CODE.PERMISSION_DENIED), self.publish, version,
                                  share=top + "/nowhere", volume="a/b")
                self.assertIn("/nowhere'", text)
                self.is_gone()

    def test_bind_mount_over_the_target(self):
        """What somebody with the rights to do so has put there stays his."""
        for volume in ("one", "secret/dir"):
            with self.subTest(volume=volume):
                os.makedirs(self.target, exist_ok=True)
                servers.run("mount", "--bind", self.parent, self.target)
                self.fails(CODE.ALREADY_EXISTS, self.publish, volume=volume)
                self.assertEqual(nfs_mounts(), [])
                self.fails(CODE.FAILED_PRECONDITION, self.unpublish)
                self.assertEqual(len(mounts(self.target)), 1)
                servers.run("umount", self.target)

    def test_mode_is_set_where_it_was_walked(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                place = os.path.join(self.allowed, "dir")
                os.chmod(place, 0o755)
                self.publish(version, volume="allowed/dir", mountPermissions="0751")
                self.assertEqual(os.stat(place).st_mode & 0o7777, 0o751)
                self.unpublish()
                self.is_gone()

    def test_mode_of_an_inline_volume_stays(self):
        """A pod does not open a directory that its user may not open."""
        place = os.path.join(self.allowed, "dir")
        os.chmod(place, 0o700)
        for version in VERSIONS:
            with self.subTest(version=version):
                for _ in range(2):
                    self.inline(version, "/dir", mountPermissions="0777")
                self.assertEqual(os.stat(place).st_mode & 0o7777, 0o700)
                self.unpublish()
                self.is_gone()

    def test_what_is_not_there(self):
        with open(os.path.join(self.allowed, "file"), "w", encoding="ascii"):
            pass
        for turn, path in enumerate(("/none", "/dir/none/deep", "/file", "/file/dir")):
            for version in harness.one_of(VERSIONS, turn):
                with self.subTest(version=version, path=path):
                    text = self.fails(CODE.NOT_FOUND, self.inline, version, path)
                    self.assertIn("allowed" + path, text)
                    self.is_gone()

    def test_renamed_below_a_mount(self):
        """A pod may move what lies above its volume: the mount is still known for what it is."""
        for version in VERSIONS:
            with self.subTest(version=version):
                self.publish(version, volume="secret/dir/deep")
                other = self.target + "2"
                self.publish(version, volume="secret", target=other)
                os.rename(other + "/dir", other + "/moved")
                text = self.fails(CODE.ABORTED, self.publish, version, volume="secret/dir/deep")
                self.assertIn("renamed or replaced", text)
                os.rename(other + "/moved", other + "/dir")
                self.publish(version, volume="secret/dir/deep")
                self.assertEqual(len(mounts(self.target)), 1)
                self.unpublish()
                self.unpublish(target=other)
                self.is_gone()

    def test_renamed_to_what_is_not_utf8(self):
        """A pod may give the directory of another volume any name. What is told about that volume
        is still text, or no client could read the answer."""
        place, other = os.path.join(DISK, "share", "team", "vol"), self.target + "2"
        for version in VERSIONS:
            with self.subTest(version=version):
                os.makedirs(place)
                self.publish(version, volume="team", target=other)
                self.publish(version, volume="team/vol")
                name = os.fsencode(other) + b"/caf\xe9"
                os.rename(other + "/vol", name)
                os.rmdir(name)
                told = self.client.NodeGetVolumeStats(volume_id="v", volume_path=self.target)
                self.assertTrue(told.volume_condition.abnormal)
                self.assertIn("stale", told.volume_condition.message)
                self.unpublish()
                self.unpublish(target=other)
                self.is_gone()

    def test_swapped_while_it_is_published(self):
        """Directory and link change places all the time: what is mounted is never the link's."""
        over = threading.Event()
        os.makedirs(os.path.join(self.allowed, "way", "deep"))
        os.symlink("../secret/dir", os.path.join(self.allowed, "link"))

        def swap():
            while not over.is_set():
                for a, b in (("way", "aside"), ("link", "way"), ("way", "link"),
                             ("aside", "way")):
                    os.rename(os.path.join(self.allowed, a), os.path.join(self.allowed, b))
                    time.sleep(0.001 if b == "way" else 0)
        with open(os.path.join(self.secret, "dir", "deep", "mark"), "w", encoding="ascii"):
            pass
        codes, both = set(), {CODE.OK, CODE.FAILED_PRECONDITION}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            swaps = pool.submit(swap)
            try:
                for number in range(500):  # until both were found, the directory and the link
                    if swaps.done() or (number >= SWAPS and codes >= both):
                        break
                    codes.add(self._publish_what_is_swapped(number))
            finally:
                over.set()
            swaps.result()
        self.assertGreaterEqual(codes, both)
        self.is_closed()

    def _publish_what_is_swapped(self, number):
        """Every other volume is one that gets a mode."""
        more = EPHEMERAL if number % 2 else {"mountPermissions": "0777"}
        try:
            self.publish(VERSIONS[number % 3], volume="allowed/way/deep", **more)
        except grpc.RpcError as e:
            self.assertIn(e.code(), (CODE.FAILED_PRECONDITION, CODE.NOT_FOUND), e.details())
            return e.code()
        self.assertEqual(os.listdir(self.target), [])
        self.unpublish()
        return CODE.OK

    def test_publishes_and_unpublishes_at_once(self):
        """Of one target path, from many sides: each has an answer, and nothing is left."""
        errors = []

        def calls(number):
            for i in range(6):
                try:
                    if (number + i) % 2:
                        self.inline(VERSIONS[number % 3], "/dir")
                    else:
                        self.unpublish()
                except grpc.RpcError as e:
                    if e.code() not in (CODE.ABORTED, CODE.UNAVAILABLE, CODE.ALREADY_EXISTS):
                        errors.append(e)
        threads = [threading.Thread(target=calls, args=(n,)) for n in range(6)]
        with self.impatient():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(errors, [])
        self.unpublish()
        self.is_gone()
        self.assertEqual(nfs_mounts(), [])

    def test_target_that_is_a_link(self):
        os.symlink(DISK, self.target)
        for volume in ("one", "secret/dir"):
            with self.subTest(volume=volume):
                self.fails((CODE.NOT_FOUND, CODE.FAILED_PRECONDITION, CODE.INTERNAL), self.publish,
                           volume=volume)
                self.assertEqual(nfs_mounts(), [])
        os.unlink(self.target)


def superblocks():
    """The NFS file systems that this kernel has, mounted anywhere or held by anything."""
    with open("/proc/fs/nfsfs/volumes", encoding="ascii") as f:
        return f.read().splitlines()[1:]


def nfs_mounts():
    """Where NFS is mounted, in every mount namespace that there is."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/mountinfo" % pid, encoding="utf-8") as f:
                found |= {line.split(" ")[4] for line in f if re.search(r" - nfs4? ", line)}
        except OSError:
            pass  # it has ended
    return sorted(found)


def private_namespaces():
    """Processes in another mount namespace than this one."""
    def namespace(pid):
        try:
            os.readlink("/proc/%s/exe" % pid)
            return os.readlink("/proc/%s/ns/mnt" % pid)
        except OSError:
            return None  # it has ended, or is the kernel's
    pids = filter(str.isdigit, os.listdir("/proc"))
    return [pid for pid in pids if namespace(pid) not in (None, namespace("self"))]


if __name__ == "__main__":
    harness.main("node with kernel NFS mounts (%s)" % os.environ["LAB_KIND"])
