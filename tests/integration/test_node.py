# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The node service with real mounts: the running kernel's NFS client against its own NFS server,
which exports an ext4 file system. Runs inside a lab with --kernel nfs --kernel nfsd."""
import os
import signal
import sys
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from csi_client import capability, pb
from driver import Driver
from servers import KernelServer

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
CODE = grpc.StatusCode
HOST = "127.0.0.1"


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


class Node(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = KernelServer(DISK).start()
        cls.has_statd = servers.statd()
        for name in ("one", "two"):
            os.makedirs(os.path.join(DISK, "share", name), exist_ok=True)
        cls.driver = Driver(LAB, "--mode", "node", "--nodeid", "node-1", name="node").start()

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
        return self.client.NodePublishVolume(
            volume_id="%s#%s#%s##" % (host, share.strip("/"), volume),
            target_path=target or self.target, readonly=readonly, volume_context=given,
            volume_capability=capability(mode or "MULTI_NODE_MULTI_WRITER", flags), timeout=timeout)

    def unpublish(self, target=None, volume="one", timeout=None):
        self.client.NodeUnpublishVolume(volume_id=HOST + "#share#" + volume + "##",
                                        target_path=target or self.target, timeout=timeout)

    def is_published(self):
        """Whether the server lets itself be mounted again. One that was down is tried after a while."""
        try:
            self.publish("4.2")
        except grpc.RpcError as e:
            self.assertEqual(e.code(), CODE.UNAVAILABLE, e.details())
            return False
        return True

    def fails(self, codes, call, *args, **fields):
        if not isinstance(codes, tuple):
            codes = (codes,)
        with self.assertRaises(grpc.RpcError) as got:
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

    # ---- volumes of csi-driver-nfs ----

    def test_volumes_of_csi_driver_nfs(self):
        """Attributes as its versions made them, and as its manuals have people write them; the handle
        is any string, and means nothing to a node."""
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
                          ("access mode", {"mode": "MULTI_NODE_READER_ONLY"}),
                          ("mount flag", {"flags": ["ro"]})):
            with self.subTest(row=row):
                self.publish(**more)
                self.assertIn("ro", mounts(self.target)[0][0])
                with self.assertRaises(OSError):
                    with open(os.path.join(self.target, "no"), "w", encoding="ascii"):
                        pass
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
        self.assertTrue(wait_for(self.is_published), "the driver does not find its server again")
        self.unpublish()
        self.round_trip("4.2")

    def test_unpublish_with_the_server_stopped(self):
        """One lost server must not keep a pod from going."""
        self.publish(version="4.2")
        self.server.stop()
        try:
            begun = time.monotonic()
            done = False
            while not done and time.monotonic() - begun < 60:
                try:
                    self.unpublish(timeout=30)
                    done = True
                except grpc.RpcError as e:
                    self.assertIn(e.code(), (CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED,
                                             CODE.ABORTED), e.details())
                    time.sleep(1)
            self.assertTrue(done, "not unpublished within a minute")
            self.is_gone()
        finally:
            self.server.start()

    def _condition(self):
        got = self.client.NodeGetVolumeStats(volume_id="v", volume_path=self.target)
        return got.volume_condition.message

    def test_directory_removed_below_a_mount(self):
        """The mount is stale then; the next publish makes it anew, once there is a directory again."""
        place = os.path.join(DISK, "share", "passing")
        for version in ("3", "4.1"):
            with self.subTest(version=version):
                os.mkdir(place)
                self.publish(version, volume="passing")
                os.rmdir(place)
                self.assertTrue(servers.wait_for(lambda: "stale" in self._condition(), 30, 1),
                                self._condition())
                self.fails(CODE.NOT_FOUND, self.publish, version, volume="passing")
                os.mkdir(place)
                self.publish(version, volume="passing")
                with open(os.path.join(self.target, "new"), "w", encoding="ascii") as f:
                    f.write("new")
                self.assertEqual(os.listdir(place), ["new"])
                self.unpublish(volume="passing")
                self.is_gone()
                os.unlink(os.path.join(place, "new"))
                os.rmdir(place)

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


if __name__ == "__main__":
    harness.main("node with kernel NFS mounts (%s)" % os.environ["LAB_KIND"])
