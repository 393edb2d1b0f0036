# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The controller service against a real nfs-ganesha, over NFSv3 and NFSv4. Runs inside a lab.

What a call did is looked up in the exported folder itself. Nothing is changed there behind the
server's back, which caches directories.
"""
import concurrent.futures
import os
import signal
import socket
import stat
import sys
import threading
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from cases import CODE, DISK, GIB, LAB, SERVER, STATE, Base, OnServer
from csi_client import Client, capability, pb
from driver import Driver
from servers import Export, wait_for

OWNER = 4321  # of a volume that is not root's


class Controller(OnServer):
    """Cases that run once for each kind of server: mixed into Base below."""

    @classmethod
    def more_exports(cls):
        return [Export(os.path.join(cls.place, "ro"), cls.protocols, access="RO"),
                Export(os.path.join(cls.place, "squashed"), cls.protocols, squash="Root_Squash"),
                Export(os.path.join(cls.place, "refused"), cls.protocols, clients="192.0.2.1")]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.chmod(os.path.join(cls.place, "squashed"), 0o755)

    def setUp(self):
        self.forget_failed_case(self.share)

    def test_calls_that_end_while_the_driver_is_paused(self):
        """A driver that goes on after a pause does nothing that its callers have given up."""
        volume = self.create("kept")
        with open(self.path("kept", "data"), "w", encoding="ascii") as f:
            f.write("data")
        self.client.Probe()
        self.driver.process.send_signal(signal.SIGSTOP)
        try:
            self.fails(CODE.DEADLINE_EXCEEDED, self.client.CreateVolume, timeout=1,
                       **self.request("late"))
            self.fails(CODE.DEADLINE_EXCEEDED, self.client.DeleteVolume, timeout=1,
                       volume_id=volume.volume_id, secrets=self.secrets)
            time.sleep(1)  # the client sends the end of a call when it is already over for us
        finally:
            self.driver.process.send_signal(signal.SIGCONT)
        self.create("next")  # behind them on the same connection
        time.sleep(1)
        self.assertEqual(self.listed(), ["kept", "next"])
        self.assertEqual(os.listdir(self.path("kept")), ["data"])
        for name in ("kept", "next"):
            self.delete(self.volume_id(name))
        self.is_clean()

    # ---- create ----

    def test_create_and_delete(self):
        volume = self.create("plain")
        self.assertEqual(volume.volume_id, "%s#%s#plain##" % (SERVER, self.share.strip("/")))
        self.assertIn(volume.capacity_bytes, (0, GIB))
        self.assertEqual(volume.volume_context["server"], SERVER)
        self.assertEqual(volume.volume_context["share"], self.share)
        self.assertEqual(volume.volume_context["subdir"], "plain")
        self.assertTrue(os.path.isdir(self.path("plain")))
        self.delete(volume.volume_id)
        self.assertFalse(os.path.exists(self.path("plain")))
        self.delete(volume.volume_id)
        self.is_clean()

    def test_create_twice_is_one_volume(self):
        first = self.create("twice")
        self.assertEqual(self.create("twice"), first)
        self.delete(first.volume_id)
        self.is_clean()

    def test_create_without_size(self):
        volume = self.create("sizeless", size=None)
        self.assertEqual(self.create("sizeless", size=None).volume_id, volume.volume_id)
        self.delete(volume.volume_id)
        self.is_clean()

    def test_other_size_is_another_volume(self):
        volume = self.create("sized")
        self.fails(CODE.ALREADY_EXISTS, self.client.CreateVolume, "sized",
                   **self.request("sized", size=2 * GIB))
        self.assertEqual(self.listed(), ["sized"])
        self.delete(volume.volume_id)
        self.is_clean()

    def test_other_parameters_are_another_volume(self):
        volume = self.create("params", mountPermissions="0750")
        self.fails(CODE.ALREADY_EXISTS, self.client.CreateVolume, "params",
                   **self.request("params", mountPermissions="0770"))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("params")).st_mode), 0o750)
        self.delete(volume.volume_id)
        self.is_clean()

    def test_range_that_holds_the_size_is_the_same_volume(self):
        volume = self.create("ranged", size=2 * GIB)
        fields = self.request("ranged")
        fields["capacity_range"] = {"required_bytes": GIB, "limit_bytes": 3 * GIB}
        self.assertEqual(self.client.CreateVolume(**fields).volume.volume_id, volume.volume_id)
        self.delete(volume.volume_id)
        self.is_clean()

    def test_created_again_after_delete(self):
        for size in (GIB, 2 * GIB):
            volume = self.create("again", size=size)
            self.delete(volume.volume_id)
        self.is_clean()

    def test_mount_permissions(self):
        for given, mode in (("0777", 0o777), ("755", 0o755), ("0700", 0o700), ("2770", 0o2770),
                            ("01777", 0o1777), ("03777", 0o3777), ("4755", 0o4755)):
            with self.subTest(mountPermissions=given):
                volume = self.create("mode-" + given, mountPermissions=given)
                got = stat.S_IMODE(os.stat(self.path("mode-" + given)).st_mode)
                self.assertEqual(oct(got), oct(mode))
                self.delete(volume.volume_id)
        self.is_clean()

    def test_subdir_templates(self):
        volume = self.create(
            "pv-1", subDir="${pvc.metadata.namespace}/${pvc.metadata.name}-${pv.metadata.name}",
            **{"csi.storage.k8s.io__pvc__name": "claim", "csi.storage.k8s.io__pv__name": "pv-1",
               "csi.storage.k8s.io__pvc__namespace": "space"})
        self.assertTrue(os.path.isdir(self.path("space", "claim-pv-1")))
        self.assertEqual(volume.volume_id,
                         "%s#%s#space/claim-pv-1#pv-1#" % (SERVER, self.share.strip("/")))
        self.assertEqual(volume.volume_context["subDir"], "space/claim-pv-1")
        self.assertEqual(volume.volume_context["csi.storage.k8s.io/pvc/name"], "claim")
        self.delete(volume.volume_id)
        self.delete(volume.volume_id)
        self.assertFalse(os.path.exists(self.path("space", "claim-pv-1")))
        self.is_clean()

    def test_parameter_names_in_any_case(self):
        fields = self.request("cased", SUBDIR="cased-dir", ONDELETE="Delete")
        volume = self.client.CreateVolume(**fields).volume
        self.assertEqual(self.listed(), ["cased-dir"])
        self.delete(volume.volume_id)
        self.is_clean()

    def test_names(self):
        for name in ("x" * 128, "a/b", "..", "../up", ".", "with space", "grün-名前", "tab\there",
                     "new\nline", ".csi-nfs", "a#b", "%2e%2e", "\u00fc" * 64):
            with self.subTest(name=name):
                volume = self.create(name)
                self.assertEqual(self.create(name).volume_id, volume.volume_id)
                self.assertEqual(len(self.listed()), 1)
                self.assertTrue(os.path.isdir(self.path(self.listed()[0])))
                self.assertEqual(os.listdir(os.path.dirname(self.share)).count("up"), 0)
                self.delete(volume.volume_id)
                self.is_clean()

    def test_names_that_look_alike_are_two_volumes(self):
        pairs = (("a/b", "a%2Fb"), ("A", "a"), ("x" * 127 + "y", "x" * 127 + "z"))
        for one, other in pairs:
            with self.subTest(names=(one, other)):
                first, second = self.create(one), self.create(other)
                self.assertNotEqual(first.volume_id, second.volume_id)
                self.assertEqual(len(self.listed()), 2)
                self.delete(first.volume_id)
                self.assertEqual(len(self.listed()), 1)
                self.delete(second.volume_id)
                self.is_clean()

    def test_parallel_creates_of_one_name(self):
        ids, codes = [], []

        def one():
            with Client(self.driver.endpoint) as client:
                try:
                    ids.append(client.CreateVolume(**self.request("one")).volume.volume_id)
                except grpc.RpcError as e:
                    codes.append(e.code())
        self._together(one, 16)
        self.assertEqual(len(set(ids)), 1, ids)
        self.assertLessEqual(set(codes), {CODE.ABORTED})
        self.assertEqual(self.listed(), ["one"])
        self.assertEqual(self.create("one").volume_id, ids[0])
        self.delete(ids[0])
        self.is_clean()

    def test_parallel_creates_and_deletes(self):
        ids, lock = {}, threading.Lock()
        names = iter(["many-%d" % i for i in range(64)])

        def some():
            with Client(self.driver.endpoint) as client:
                while True:
                    with lock:
                        name = next(names, None)
                    if name is None:
                        return
                    got = client.CreateVolume(**self.request(name)).volume.volume_id
                    with lock:
                        ids[name] = got
        self._together(some, 16)
        self.assertEqual(len(set(ids.values())), 64)
        self.assertEqual(self.listed(), sorted("many-%d" % i for i in range(64)))
        queue = list(ids.values())

        def others():
            with Client(self.driver.endpoint) as client:
                while True:
                    with lock:
                        volume_id = queue.pop() if queue else None
                    if volume_id is None:
                        return
                    client.DeleteVolume(volume_id=volume_id, secrets=self.secrets)
        self._together(others, 16)
        self.is_clean()

    def _together(self, work, number):
        """Runs work in that many threads; an exception in one of them fails the test."""
        errors = []

        def guarded():
            try:
                work()
            except Exception as e:  # pylint: disable=broad-except
                errors.append(e)
        threads = [threading.Thread(target=guarded) for _ in range(number)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        self.assertEqual(errors, [])
        self.assertFalse([t for t in threads if t.is_alive()])

    # ---- delete ----

    def test_delete_of_a_tree(self):
        self._fill_and_delete("tree")

    def _fill_and_delete(self, name):
        volume = self.create(name)
        outside = os.path.join(os.path.dirname(self.share), "outside-" + name)
        os.makedirs(outside, exist_ok=True)
        with open(os.path.join(outside, "precious"), "w", encoding="ascii") as f:
            f.write("stay")
        base = self.path(name)
        for i in range(20):
            deep = os.path.join(base, "dir-%d" % i, "b", "c")
            os.makedirs(deep)
            for k in range(20):
                with open(os.path.join(deep, "file-%d" % k), "w", encoding="ascii") as f:
                    f.write("x")
        os.symlink(outside, os.path.join(base, "link-to-dir"))
        os.symlink("/nowhere", os.path.join(base, "dangling"))
        os.mkfifo(os.path.join(base, "fifo"))
        os.chmod(os.path.join(base, "dir-1"), 0)
        with self.server_down():
            pass  # it must not answer from what it remembers of the folder
        self.delete(volume.volume_id)
        self.assertFalse(os.path.exists(base))
        self.is_clean()
        self.assertTrue(os.path.exists(os.path.join(outside, "precious")))

    def test_retain(self):
        volume = self.create("kept", onDelete="retain")
        self.assertTrue(volume.volume_id.endswith("#kept##retain"), volume.volume_id)
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), ["kept"])
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), ["kept"])
        # By its plain id it is anybody's.
        self.delete("%s#%s#kept##" % (SERVER, self.share.strip("/")))
        self.is_clean()

    def test_archive(self):
        volume = self.create("filed", onDelete="archive")
        self.assertTrue(volume.volume_id.endswith("#filed##archive"), volume.volume_id)
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), ["archived-filed"])
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), ["archived-filed"])
        self.delete("%s#%s#archived-filed##" % (SERVER, self.share.strip("/")))
        self.is_clean()

    def test_archive_of_a_nested_subdir(self):
        volume = self.create("pv-2", onDelete="archive", subDir="space/claim")
        self.delete(volume.volume_id)
        self.assertEqual(self.listed(), ["archived-space"])
        self.assertTrue(os.path.isdir(self.path("archived-space", "claim")))
        self.delete(volume.volume_id)
        self.delete("%s#%s#archived-space/claim#pv-2#" % (SERVER, self.share.strip("/")))
        self.is_clean()

    def test_delete_of_garbage_ids(self):
        for volume_id in ("fake-vol-id", "x", "#", "####", "a#b", "no such thing", "é",
                          "%s#%s#never-was##" % (SERVER, self.share.strip("/"))):
            with self.subTest(volume_id=volume_id):
                self.delete(volume_id)

    def test_delete_never_leaves_the_share(self):
        other = os.path.join(os.path.dirname(self.share), "victim")
        os.makedirs(other, exist_ok=True)
        share = self.share.strip("/")
        for subdir in ("..", "../victim", "a/../../victim", "/../victim", ".", "", STATE,
                       STATE + "/trash", "../../" + os.path.basename(os.path.dirname(self.share))):
            with self.subTest(subDir=subdir):
                before = sorted(os.listdir(os.path.dirname(self.share)))
                try:
                    self.delete("%s#%s#%s##" % (SERVER, share, subdir))
                except grpc.RpcError as e:
                    self.assertNotEqual(e.code(), CODE.UNKNOWN)
                self.assertEqual(sorted(os.listdir(os.path.dirname(self.share))), before)
        self.assertTrue(os.path.isdir(self.share))

    # ---- validate ----

    def test_validate(self):
        volume = self.create("valid")
        caps = [capability()]
        got = self.client.ValidateVolumeCapabilities(
            volume_id=volume.volume_id, volume_capabilities=caps, secrets=self.secrets,
            volume_context=dict(volume.volume_context))
        self.assertEqual(len(got.confirmed.volume_capabilities), 1)
        got = self.client.ValidateVolumeCapabilities(
            volume_id=volume.volume_id, volume_capabilities=[capability(block=True)],
            secrets=self.secrets)
        self.assertFalse(got.HasField("confirmed"))
        self.assertTrue(got.message)
        got = self.client.ValidateVolumeCapabilities(
            volume_id=volume.volume_id, secrets=self.secrets,
            volume_capabilities=[capability(), capability(flags=["hard", "helper=hush"])])
        self.assertFalse(got.HasField("confirmed"))
        self.assertEqual(got.message, "mount options: 'helper' is not allowed for a volume")
        for fs_type, confirmed in (("nfs", True), ("nfs4", True), ("ext4", False)):
            got = self.client.ValidateVolumeCapabilities(
                volume_id=volume.volume_id, volume_capabilities=[capability(fs_type=fs_type)],
                secrets=self.secrets)
            self.assertEqual(got.HasField("confirmed"), confirmed)
        self.delete(volume.volume_id)
        for volume_id in ("fake-vol-id", "#", volume.volume_id):
            with self.subTest(volume_id=volume_id):
                self.fails(CODE.NOT_FOUND, self.client.ValidateVolumeCapabilities,
                           volume_id=volume_id, volume_capabilities=caps, secrets=self.secrets)
        self.is_clean()

    # ---- bad input ----

    def test_bad_requests(self):
        good = self.request("bad")

        def other(**more):
            return dict(good, **more)

        def cap(**more):
            return other(volume_capabilities=[capability(**more)])

        def parameters(**more):
            given = dict(good["parameters"])
            given.update(more)
            return other(parameters=given)
        invalid, out = CODE.INVALID_ARGUMENT, CODE.OUT_OF_RANGE
        for row, codes, word, fields in (
                ("no name", invalid, "name", other(name="")),
                ("long name", invalid, "name", other(name="x" * 129)),
                ("NUL in name", invalid, "name", other(name="a\0b")),
                ("control in name", invalid, "name", other(name="a\x01b")),
                ("C1 control in name", invalid, "name", other(name="a\x85b")),
                ("no capabilities", invalid, "volume_capabilities", other(volume_capabilities=[])),
                ("block", invalid, "block", cap(block=True)),
                ("no access mode", invalid, "access_mode",
                 other(volume_capabilities=[pb.VolumeCapability(mount={})])),
                ("access mode 0", invalid, "access_mode", cap(mode="UNKNOWN")),
                ("access mode 99", invalid, "access_mode", cap(mode=99)),
                ("no access type", invalid, "access_type", other(volume_capabilities=[
                    pb.VolumeCapability(access_mode={"mode": "SINGLE_NODE_WRITER"})])),
                ("no server", invalid, "server", other(parameters={"share": self.share})),
                ("empty server", invalid, "server", parameters(server="")),
                ("# in server", invalid, "server", parameters(server="a#b")),
                ("/ in server", invalid, "server", parameters(server="a/b")),
                ("control in server", invalid, "server", parameters(server="a\nb")),
                ("no share", invalid, "share", other(parameters={"server": SERVER})),
                (".. in share", invalid, "share", parameters(share="/a/../b")),
                ("# in share", invalid, "share", parameters(share="/a#b")),
                ("control in share", invalid, "share", parameters(share="/a\x01b")),
                (".. as subDir", invalid, "subdir", parameters(subDir="..")),
                (".. in subDir", invalid, "subdir", parameters(subDir="a/../b")),
                (". as subDir", invalid, "subdir", parameters(subDir="./")),
                ("# in subDir", invalid, "subdir", parameters(subDir="a#b")),
                ("NUL in subDir", invalid, "", parameters(subDir="a\0b")),
                ("control in subDir", invalid, "subdir", parameters(subDir="a\tb")),
                ("long component", invalid, "subdir", parameters(subDir="x" * 256)),
                ("the state folder", invalid, "subdir", parameters(subDir=STATE)),
                ("below the state folder", invalid, "subdir", parameters(subDir=STATE + "/x")),
                ("unknown parameter", invalid, "colour", parameters(colour="red")),
                ("bad octal", invalid, "mountpermissions", parameters(mountPermissions="0888")),
                ("negative octal", invalid, "mountpermissions", parameters(mountPermissions="-1")),
                ("wide octal", invalid, "mountpermissions", parameters(mountPermissions="17777")),
                ("bad onDelete", invalid, "ondelete", parameters(onDelete="burn")),
                ("negative size", (invalid, out), "capacity_range",
                 other(capacity_range={"required_bytes": -1})),
                ("negative limit", (invalid, out), "capacity_range",
                 other(capacity_range={"limit_bytes": -1})),
                ("limit below required", (invalid, out), "limit_bytes",
                 other(capacity_range={"required_bytes": 2, "limit_bytes": 1})),
                ("large parameters", invalid, "parameters",
                 parameters(**{"csi.storage.k8s.io/pv/name": "x" * 5000})),
                ("bad port", invalid, "port", cap(flags=["port=99999"])),
                ("control in a flag", invalid, "mount_flags", cap(flags=["a\nb"]))):
            with self.subTest(row=row):
                self.fails(codes, self.client.CreateVolume, word, **fields)
                self.assertEqual(self.listed(), [])
        self.is_clean()

    def test_mount_options_that_nodes_refuse(self):
        """The claim shows at once what else the pod would, in the same words, without values."""
        good = self.request("refused")
        flags = list(good["volume_capabilities"][0].mount.mount_flags)
        for option in ("bind", "remount", "helper=hush", "addr=192.0.2.1", "user", "-o",
                       "minorversion=3", "vers=5", "port=x"):
            with self.subTest(option=option):
                refused = capability(flags=flags + [option])
                told = self.fails(CODE.INVALID_ARGUMENT, self.client.NodePublishVolume,
                                  volume_id="any", target_path=os.path.join(LAB, "no-target"),
                                  volume_capability=refused, volume_context=good["parameters"])
                self.assertNotIn("hush", told)
                for fields in (dict(good, volume_capabilities=[capability(flags=flags), refused]),
                               dict(good, secrets={"mountOptions": ",".join(flags + [option])})):
                    text = self.fails(CODE.INVALID_ARGUMENT, self.client.CreateVolume, **fields)
                    self.assertEqual(text, told)
                    self.assertEqual(self.listed(), [])
        self.is_clean()

    def test_delete_reads_what_create_refuses(self):
        """A secret that has changed must not keep a volume from being deleted."""
        volume = self.create("changed")
        self.client.DeleteVolume(volume_id=volume.volume_id, secrets={
            "mountOptions": self.secrets["mountOptions"] + ",bind,minorversion=3"})
        self.is_clean()

    def test_missing_fields(self):
        caps = [capability()]
        for method, word, fields in (
                ("DeleteVolume", "volume_id", {}),
                ("ValidateVolumeCapabilities", "volume_id", {"volume_capabilities": caps}),
                ("ValidateVolumeCapabilities", "volume_capabilities", {"volume_id": "x"})):
            with self.subTest(method=method, missing=word):
                self.fails(CODE.INVALID_ARGUMENT, getattr(self.client, method), word, **fields)

    # ---- the server's side ----

    def test_share_that_does_not_exist(self):
        missing = os.path.join(DISK, type(self).__name__, "missing")
        self.fails((CODE.NOT_FOUND, CODE.PERMISSION_DENIED), self.client.CreateVolume, "missing",
                   **self.request("v", share=missing))
        self.assertFalse(os.path.exists(missing))

    def test_export_that_refuses(self):
        share = os.path.join(DISK, type(self).__name__, "refused")
        self.fails((CODE.PERMISSION_DENIED, CODE.NOT_FOUND), self.client.CreateVolume, "refused",
                   **self.request("v", share=share))
        self.assertEqual(os.listdir(share), [])

    def test_read_only_export(self):
        share = os.path.join(DISK, type(self).__name__, "ro")
        self.fails((CODE.PERMISSION_DENIED, CODE.FAILED_PRECONDITION), self.client.CreateVolume,
                   "read-only", **self.request("v", share=share))
        self.assertEqual(os.listdir(share), [])

    def test_squashed_export(self):
        share = os.path.join(DISK, type(self).__name__, "squashed")
        self.fails(CODE.PERMISSION_DENIED, self.client.CreateVolume, "check squashing",
                   **self.request("v", share=share))
        self.assertEqual(os.listdir(share), [])

    def test_frozen_server(self):
        """Others are served while one server hangs, and it works again when it is back."""
        volume = self.create("before")
        self.server.freeze()
        try:
            begun = time.monotonic()
            got = []
            thread = threading.Thread(target=lambda: got.append(self.fails(
                (CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED), self.client.CreateVolume,
                **self.request("frozen"))))
            thread.start()
            time.sleep(0.3)
            asked = time.monotonic()
            with Client(self.driver.endpoint) as client:
                client.Probe(timeout=2)
            self.assertLess(time.monotonic() - asked, 1)
            thread.join(40)
            self.assertEqual(len(got), 1)
            # It is held for 20 seconds, and the last attempt may ask for 4.
            self.assertLess(time.monotonic() - begun, 28)
        finally:
            self.server.thaw()
        self.assertTrue(wait_for(self.is_reached), "the driver does not find its server again")
        other = self.create("frozen")
        self.delete(other.volume_id)
        self.delete(volume.volume_id)
        self.is_clean()

    def test_server_restarted(self):
        first = self.create("one")
        self.server.restart()
        # What goes on in the background may have asked while it was down: the call is held.
        second = self.create("two")
        self.delete(first.volume_id)
        self.delete(second.volume_id)
        self.is_clean()

    def outcome(self, call, timeout, **fields):
        """Return the code and the text of a call, and whether it ended before its deadline."""
        begun = time.monotonic()
        try:
            call(timeout=timeout, **fields)
        except grpc.RpcError as e:
            return e.code(), e.details(), time.monotonic() - begun < timeout
        return CODE.OK, "", True

    def one_text(self, volume_id, timeouts, word):
        """Check what a caller hears that asks again and again while the server is away: Kubernetes
        makes an event of each text that is new."""
        got = set()
        for timeout in timeouts:
            got.add(self.outcome(self.client.CreateVolume, timeout, **self.request("away")))
            got.add(self.outcome(self.client.DeleteVolume, timeout, volume_id=volume_id,
                                 secrets=self.secrets))
        self.assertEqual(len(got), 1, got)
        code, text, in_time = got.pop()
        self.assertEqual(code, CODE.UNAVAILABLE)
        self.assertIn(word, text)
        self.assertTrue(in_time)

    def test_one_text_from_a_dead_server(self):
        volume = self.create("before")
        self.server.kill()
        self.one_text(volume.volume_id, (0.5, 4, 3, 2, 0.5, 7), "cannot reach server")
        self.server.start()
        self.delete(volume.volume_id)
        self.is_clean()

    def test_one_text_from_a_hung_server(self):
        volume = self.create("before")
        self.server.freeze()
        try:
            first = self.outcome(self.client.CreateVolume, 60, **self.request("away"))
            # A NULL call may take 4 seconds.
            self.one_text(volume.volume_id, (6, 8, 7), "does not answer")
            self.assertEqual(self.outcome(self.client.CreateVolume, 7, **self.request("away")),
                             first)
        finally:
            self.server.thaw()
        self.delete(volume.volume_id)
        # The driver answered the last call before its deadline, and may still work on it.
        self.assertTrue(servers.wait_for(
            lambda: self.outcome(self.client.CreateVolume, 60, **self.request("away"))[0]
            != CODE.ABORTED, 60, 0.1))
        self.delete(self.create("away").volume_id)
        self.is_clean()

    def test_held_until_the_server_is_back(self):
        """Callers that wait while the server is away are answered when it is back. One that cancels
        is forgotten."""
        volumes = [self.create("old-%d" % i) for i in range(20)]
        self.server.kill()
        self.outcome(self.client.CreateVolume, 2, **self.request("finds-out"))
        with concurrent.futures.ThreadPoolExecutor(80) as pool:
            made = [pool.submit(self.outcome, self.client.CreateVolume, 60,
                                **self.request("new-%d" % i)) for i in range(40)]
            deleted = [pool.submit(self.outcome, self.client.DeleteVolume, 60,
                                   volume_id=v.volume_id, secrets=self.secrets) for v in volumes]
            gone = [pool.submit(self.outcome, self.client.CreateVolume, 1.5,
                                **self.request("gone-%d" % i)) for i in range(10)]
            time.sleep(3)
            self.server.start()
            back = time.monotonic()
            self.assertEqual({f.result() for f in made + deleted}, {(CODE.OK, "", True)})
            self.assertLess(time.monotonic() - back, 20)
            self.assertNotIn(CODE.OK, {f.result()[0] for f in gone})
        self.assertEqual(self.listed(), sorted("new-%d" % i for i in range(40)))
        for i in range(40):
            self.delete(self.create("new-%d" % i).volume_id)
        self.is_clean()

    def test_stop_with_held_calls(self):
        """Calls that are held do not delay the end of the driver."""
        self.server.kill()
        self.outcome(self.client.CreateVolume, 2, **self.request("finds-out"))
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            held = [pool.submit(self.outcome, self.client.CreateVolume, 60,
                                **self.request("held-%d" % i)) for i in range(10)]
            time.sleep(1)
            begun = time.monotonic()
            self.driver.process.send_signal(signal.SIGTERM)
            self.assertEqual({f.result()[0] for f in held}, {CODE.UNAVAILABLE})
            self.assertEqual(self.driver.process.wait(15), 0)
            self.assertLess(time.monotonic() - begun, 15)

    # ---- what is there ----

    def entries(self, **fields):
        return self.client.ListVolumes(**fields)

    def test_list_in_pages(self):
        """Pages hold together whatever is deleted and made between them."""
        ids = {}
        for i in range(10):
            ids["list-%d" % i] = self.create("list-%d" % i).volume_id
        whole = self.entries()
        mine = [e.volume.volume_id for e in whole.entries if e.volume.volume_id in ids.values()]
        self.assertEqual(mine, [ids["list-%d" % i] for i in range(10)])
        self.assertEqual(whole.next_token, "")
        page = self.entries(max_entries=4)
        self.assertEqual(len(page.entries), 4)
        seen = [e.volume.volume_id for e in page.entries]
        self.delete(seen[-1])  # the very one that the token names
        self.delete(ids["list-7"])
        while page.next_token:
            page = self.entries(max_entries=4, starting_token=page.next_token)
            seen += [e.volume.volume_id for e in page.entries]
        wanted = [ids["list-%d" % i] for i in range(10) if i != 7]
        self.assertEqual([i for i in seen if i in ids.values()], wanted)
        for volume_id in ids.values():
            self.delete(volume_id)
        self.assertEqual([e for e in self.entries().entries
                          if e.volume.volume_id in ids.values()], [])
        self.is_clean()

    def test_list_passes_over_what_is_no_record(self):
        """Foreign and damaged links between records, more of them than fit on a page."""
        made = [self.create("r%d" % i).volume_id for i in (1, 5, 9)]
        volumes = os.path.join(self.share, STATE, "volumes")
        strange = {"r2": "elsewhere", "r3": "v=1;name=r3;size", "r4": "v=7;what=ever",
                   "r6": "v=1;parts=2;hash=0123456789abcdef", "r7": "v=1", "r8~new": "v=1"}
        for name, text in strange.items():
            os.symlink(text, os.path.join(volumes, name))
        os.mkdir(os.path.join(volumes, "r10"))
        self.server_looks_again()
        seen, token = [], ""
        while True:
            page = self.entries(max_entries=2, starting_token=token)
            seen += [e.volume.volume_id for e in page.entries]
            token = page.next_token
            if not token:
                break
        self.assertEqual([i for i in seen if i in made], made)
        self.fails(CODE.FAILED_PRECONDITION, self.client.CreateVolume, "r3",
                   **self.request("r3"))
        for name in strange:
            os.unlink(os.path.join(volumes, name))
        os.rmdir(os.path.join(volumes, "r10"))
        self.server_looks_again()
        for volume_id in made:
            self.delete(volume_id)
        self.is_clean()

    def test_list_shows_what_create_returned(self):
        made = [self.create("shown"), self.create("shown-2", subDir="a/b"),
                self.create("shown-3", **{"csi.storage.k8s.io__pvc__name": "n" * 900})]
        listed = {e.volume.volume_id: e for e in self.entries().entries}
        for volume in made:
            entry = listed[volume.volume_id]
            self.assertEqual(dict(entry.volume.volume_context), dict(volume.volume_context))
            self.assertEqual(entry.volume.capacity_bytes, GIB)
            self.assertFalse(entry.status.volume_condition.abnormal)
        for volume in made:
            self.delete(volume.volume_id)

    def test_list_bad_requests(self):
        self.fails(CODE.ABORTED, self.client.ListVolumes, "starting_token",
                   starting_token="invalid-token")
        self.fails(CODE.ABORTED, self.client.ListVolumes, starting_token="no#where#x")
        self.fails(CODE.INVALID_ARGUMENT, self.client.ListVolumes, "max_entries", max_entries=-1)

    def test_get_volume(self):
        volume = self.create("seen")
        got = self.client.ControllerGetVolume(volume_id=volume.volume_id)
        self.assertEqual(got.volume.volume_id, volume.volume_id)
        self.assertEqual(dict(got.volume.volume_context), dict(volume.volume_context))
        self.assertFalse(got.status.volume_condition.abnormal)
        self.assertTrue(got.status.volume_condition.message)
        self.delete(volume.volume_id)
        self.fails(CODE.NOT_FOUND, self.client.ControllerGetVolume, volume_id=volume.volume_id)
        self.fails(CODE.NOT_FOUND, self.client.ControllerGetVolume, volume_id="fake-vol-id")
        self.fails(CODE.INVALID_ARGUMENT, self.client.ControllerGetVolume, "volume_id")

    def test_get_volume_of_an_unreachable_server(self):
        got = self.client.ControllerGetVolume(volume_id="127.0.0.77#share#pvc-1##")
        self.assertTrue(got.status.volume_condition.abnormal)
        self.assertIn("127.0.0.77", got.status.volume_condition.message)

    def test_capacity(self):
        self.assertEqual(self.client.GetCapacity().available_capacity, 0)
        volume = self.create("capacity")  # from now on the server's port is known
        space = os.statvfs(self.share)
        parameters = {"server": SERVER, "share": self.share, "subDir": "${pvc.metadata.name}",
                      "csi.storage.k8s.io/provisioner-secret-name": "s"}
        got = self.client.GetCapacity(
            parameters=parameters, volume_capabilities=[capability()]).available_capacity
        self.assertGreater(got, 0)
        self.assertLess(abs(got - space.f_bavail * space.f_frsize), 64 << 20)
        self.assertEqual(self.client.GetCapacity(
            parameters=parameters,
            volume_capabilities=[capability(), capability(block=True)]).available_capacity, 0)
        self.delete(volume.volume_id)

    # ---- expand ----

    def expand(self, volume_id, required=0, limit=0):
        return self.client.ControllerExpandVolume(
            volume_id=volume_id, secrets=self.secrets,
            capacity_range={"required_bytes": required, "limit_bytes": limit})

    def test_expand(self):
        for name, more in (("grows", {}),
                           ("grows-long", {"csi.storage.k8s.io__pvc__name": "n" * 1200})):
            with self.subTest(name=name):
                volume = self.create(name, **more)
                got = self.expand(volume.volume_id, 3 * GIB + 1)
                self.assertEqual(got.capacity_bytes, 3 * GIB + 1)
                self.assertFalse(got.node_expansion_required)
                self.assertEqual(self.expand(volume.volume_id, GIB).capacity_bytes, 3 * GIB + 1)
                shown = self.client.ControllerGetVolume(volume_id=volume.volume_id).volume
                self.assertEqual(shown.capacity_bytes, 3 * GIB + 1)
                self.assertEqual(dict(shown.volume_context), dict(volume.volume_context))
                self.fails(CODE.OUT_OF_RANGE, self.client.ControllerExpandVolume,
                           volume_id=volume.volume_id, secrets=self.secrets,
                           capacity_range={"limit_bytes": GIB})
                self.delete(volume.volume_id)
                self.is_clean()

    def test_expand_what_another_driver_made(self):
        """A directory without a record gets one, and goes as its id says."""
        os.makedirs(self.path("team", "claim"))
        self.server_looks_again()
        volume_id = "%s#%s#team/claim#pvc-peer#" % (SERVER, self.share.strip("/"))
        self.assertEqual(self.expand(volume_id, 2 * GIB).capacity_bytes, 2 * GIB)
        shown = self.client.ControllerGetVolume(volume_id=volume_id).volume
        self.assertEqual(shown.capacity_bytes, 2 * GIB)
        self.delete(volume_id)
        self.assertEqual(self.listed(), ["team"])  # whose parent was not ours
        with self.server_down():
            os.rmdir(self.path("team"))
        self.is_clean()

    def test_expand_bad_requests(self):
        volume = self.create("fixed")
        call = self.client.ControllerExpandVolume
        self.fails(CODE.INVALID_ARGUMENT, call, "volume_id")
        self.fails(CODE.INVALID_ARGUMENT, call, "capacity_range", volume_id=volume.volume_id)
        self.fails(CODE.INVALID_ARGUMENT, call, "capacity_range", volume_id=volume.volume_id,
                   capacity_range={})
        self.fails(CODE.INVALID_ARGUMENT, call, "required_bytes", volume_id=volume.volume_id,
                   capacity_range={"required_bytes": -1})
        self.fails(CODE.NOT_FOUND, call, volume_id="fake-vol-id",
                   capacity_range={"required_bytes": GIB})
        self.delete(volume.volume_id)

    # ---- directories that are there already ----

    def peer_directory(self, *parts):
        """A directory with a file in it, as another driver has left it. The server is told."""
        os.makedirs(self.path(*parts))
        with open(self.path(*parts, "data"), "w", encoding="ascii") as f:
            f.write("theirs")
        self.server_looks_again()

    def test_existing_directory(self):
        self.peer_directory("old")
        self.fails(CODE.FAILED_PRECONDITION, self.client.CreateVolume, "existingDirectory",
                   **self.request("new", subDir="old", existingDirectory="refuse"))
        self.fails(CODE.FAILED_PRECONDITION, self.client.CreateVolume, "existingDirectory",
                   **self.request("new", subDir="none", existingDirectory="require"))
        self.fails(CODE.INVALID_ARGUMENT, self.client.CreateVolume, "existingDirectory",
                   **self.request("new", subDir="old", existingDirectory="perhaps"))
        self.assertEqual(self.listed(), ["old"])
        self.assertEqual(self.records(), [])
        volume = self.create("new", subDir="old", existingDirectory="require")
        with open(self.path("old", "data"), encoding="ascii") as f:
            self.assertEqual(f.read(), "theirs")
        # Again: it is ours now, whatever the parameter says of other people's.
        fresh = self.create("fresh", subDir="fresh", existingDirectory="refuse")
        self.assertEqual(self.create("fresh", subDir="fresh", existingDirectory="refuse"), fresh)
        self.delete(volume.volume_id)
        self.delete(fresh.volume_id)
        self.is_clean()

    def test_setgid_of_the_share(self):
        """A new directory inherits the bit, as one that csi-driver-nfs makes: a group shares it."""
        os.chown(self.share, 0, 5000)
        os.chmod(self.share, 0o2775)
        self.server_looks_again()
        volumes = [self.create("flat"), self.create("deep", subDir="x/y"),
                   self.create("closed", mountPermissions="0770")]
        for path, mode in (("flat", 0o2755), ("x", 0o2755), ("x/y", 0o2755), ("closed", 0o770)):
            with self.subTest(path=path):
                got = os.stat(self.path(path))
                self.assertEqual((oct(got.st_mode & 0o7777), got.st_gid), (oct(mode), 5000))
        for volume in volumes:
            self.delete(volume.volume_id)
        os.chmod(self.share, 0o755)
        os.chown(self.share, 0, 0)
        self.server_looks_again()
        self.is_clean()

    def test_slices_and_defaults_in_templates(self):
        volume = self.create("pvc-0123", subDir="${pvc.metadata.namespace:-none}/"
                             "${pvc.metadata.name:0:3}",
                             **{"csi.storage.k8s.io__pvc__name": "claim"})
        self.assertEqual(volume.volume_context["subDir"], "none/cla")
        self.assertTrue(os.path.isdir(self.path("none", "cla")))
        self.delete(volume.volume_id)
        self.is_clean()

    # ---- volumes of csi-driver-nfs, by the ids of all its versions ----

    def test_ids_of_csi_driver_nfs(self):
        share = self.share.strip("/")
        for number, (form, directory) in enumerate((
                ("%s/%s/v30", "v30"), ("nfs://%s/%s/url", "url"), ("%s#%s#v31", "v31"),
                ("%s#%s#v41#", "v41"), ("%s#%s#ns/v42#pvc-42", "ns/v42"),
                ("%s#/%s//#twice//./v31", "twice/v31"), ("%s#%s#v43##", "v43"), ("%s#%s#ns/v43#pvc-43#delete", "ns/v43"),
                ("%s#%s#v9###more#fields", "v9"))):
            with self.subTest(form=form):
                volume_id = form % (SERVER, share)
                self.peer_directory(*directory.split("/"))
                self.create("something-to-know-the-port-by-%d" % number)
                self.assertFalse(self.client.ControllerGetVolume(
                    volume_id=volume_id).status.volume_condition.abnormal)
                self.client.ValidateVolumeCapabilities(
                    volume_id=volume_id, volume_capabilities=[capability()], secrets=self.secrets)
                self.delete(volume_id)
                self.assertFalse(os.path.exists(self.path(directory)))
                self.delete(volume_id)
                self.delete("%s#%s#something-to-know-the-port-by-%d##" % (SERVER, share, number))
        with self.server_down():
            for name in ("ns", "twice"):  # which it had made, and csi-nfs does not know that
                os.rmdir(self.path(name))
        self.is_clean()

    def test_policies_in_ids_of_csi_driver_nfs(self):
        share = self.share.strip("/")
        self.peer_directory("kept")
        self.peer_directory("ns", "filed")
        self.delete("%s#%s#kept##retain" % (SERVER, share))
        self.delete("%s#%s#ns/filed#pvc-1#ARCHIVE" % (SERVER, share))
        self.delete("%s#%s#ns/filed#pvc-1#ARCHIVE" % (SERVER, share))
        self.assertEqual(self.listed(), ["archived-ns", "kept", "ns"])
        self.assertEqual(os.listdir(self.path("archived-ns", "filed")), ["data"])
        self.delete("%s#%s#kept##" % (SERVER, share))
        self.delete("%s#%s#archived-ns/filed##" % (SERVER, share))
        with self.server_down():
            os.rmdir(self.path("ns"))
        self.is_clean()  # archived-ns was made by csi-nfs, and goes with what was in it

    def test_driver_killed(self):
        """Killed at some moment of a burst of calls, and asked again: no volume twice or half."""
        for round_number, delay in enumerate((0.002, 0.005, 0.01, 0.02, 0.04)):
            names = ["killed-%d-%d" % (round_number, i) for i in range(16)]

            def burst(name):
                try:
                    with Client(self.driver.endpoint) as client:
                        client.CreateVolume(timeout=10, **self.request(name))
                except grpc.RpcError:
                    pass  # that is what a killed driver looks like
            threads = [threading.Thread(target=burst, args=(n,)) for n in names]
            for t in threads:
                t.start()
            time.sleep(delay)
            self.driver.restart(signal.SIGKILL)
            for t in threads:
                t.join(30)
            volumes = [self.create(n) for n in names]
            self.assertEqual(self.listed(), sorted(names))
            queue = [v.volume_id for v in volumes]
            threads = [threading.Thread(target=lambda i=i: self._try_delete(i)) for i in queue]
            for t in threads:
                t.start()
            time.sleep(delay)
            self.driver.restart(signal.SIGKILL)
            for t in threads:
                t.join(30)
            for volume_id in queue:
                self.delete(volume_id)
            self.is_clean()

    def _try_delete(self, volume_id):
        try:
            with Client(self.driver.endpoint) as client:
                client.DeleteVolume(timeout=10, volume_id=volume_id, secrets=self.secrets)
        except grpc.RpcError:
            pass  # that is what a killed driver looks like

    # ---- shares that are no directory ----

    def test_share_that_is_no_directory(self):
        """Over version 3 the mount service of nfs-ganesha refuses what is not a directory."""
        os.symlink("target", self.path("link"))
        self.addCleanup(os.unlink, self.path("link"))
        os.mkdir(self.path("target"))
        self.addCleanup(os.rmdir, self.path("target"))
        with open(self.path("file"), "w", encoding="ascii") as f:
            f.write("data")
        self.addCleanup(os.unlink, self.path("file"))
        codes = (CODE.PERMISSION_DENIED,)
        cases = {"link": "", "file": "", "link/below": "", "file/below": ""}
        if self.version != "3":
            codes = (CODE.FAILED_PRECONDITION, CODE.NOT_FOUND)
            cases["link"] = "link is a symbolic link, which csi-nfs does not follow"
            cases["file"] = "file is not a directory"
        for name, words in cases.items():
            with self.subTest(share=name):
                self.fails(codes, self.client.CreateVolume, words,
                           **self.request("lost", share=self.share + "/" + name))
        self.assertEqual(os.listdir(self.path("target")), [])

    # ---- purge ----

    def test_purge_of_closed_directories(self):
        """Where the driver is not root, modes are in the way of their owner, too."""
        share = os.path.join(DISK, type(self).__name__, "squashed")
        owner = str(OWNER)
        self.addCleanup(self._give, share, 0)
        self._give(share, OWNER)
        volume = self.create("closed", share=share, uid=owner, gid=owner)
        base = os.path.join(share, "closed")
        with self.server_down():
            for mode in (0o555, 0o500, 0o444, 0o300, 0):
                here = os.path.join(base, "mode-%o" % mode)
                for i in range(5):
                    os.makedirs(os.path.join(here, "folder-%d" % i, "empty"))
                for i in range(200):
                    with open(os.path.join(here, "file-%d" % i), "w", encoding="ascii") as f:
                        f.write("x")
                os.mkfifo(os.path.join(here, "folder-0", "fifo"))
                os.symlink(share, os.path.join(here, "folder-0", "link"))
                servers.run("chown", "-hR", owner + ":" + owner, here)
                os.chmod(os.path.join(here, "folder-0"), mode)
                os.chmod(here, mode)
        self.delete(volume.volume_id)
        self.is_clean(share)
        trash = os.path.join(share, STATE, "trash")
        servers.wait_for(lambda: not os.listdir(trash), 120)
        self.assertEqual(os.listdir(trash), [])
        self.assertEqual(stat.S_IMODE(os.stat(share).st_mode), 0o755)

    def test_closed_roots(self):
        """A rename to another parent needs the right to write to the directory itself."""
        share = os.path.join(DISK, type(self).__name__, "squashed")
        owner = str(OWNER)
        self.addCleanup(self._give, share, 0)
        self._give(share, OWNER)
        more = {"share": share, "uid": owner, "gid": owner}
        volumes = [self.create("kept", subDir="ns/kept", onDelete="archive", **more),
                   self.create("gone", subDir="ns/gone", **more)]
        with self.server_down():
            for name in ("ns/kept", "ns/gone"):
                with open(os.path.join(share, name, "data"), "w", encoding="ascii") as f:
                    f.write(name)
                os.chmod(os.path.join(share, name), 0o555)
        snapshots = [self.client.CreateSnapshot(
            name=kind, source_volume_id=volumes[0].volume_id, secrets=self.secrets,
            parameters={"format": kind}).snapshot.snapshot_id for kind in ("archive", "tree")]
        sources = [{"volume": {"volume_id": volumes[0].volume_id}}]
        sources += [{"snapshot": {"snapshot_id": s}} for s in snapshots]
        for i, source in enumerate(sources):
            for mode, wanted in (("0", 0o555), ("0555", 0o555), ("0511", 0o511), ("0755", 0o755)):
                name = "copy-%d-%s" % (i, mode)
                with self.subTest(source=source, mode=mode):
                    volumes.append(self.client.CreateVolume(
                        volume_content_source=source,
                        **self.request(name, mountPermissions=mode, **more)).volume)
                    self._is_closed(os.path.join(share, name), wanted, "ns/kept")
        volumes.append(self.create("new", mountPermissions="0555", existingDirectory="refuse",
                                   **more))
        self._is_closed(os.path.join(share, "new"), 0o555)
        for volume in volumes:
            self.delete(volume.volume_id)
        for snapshot in snapshots:
            self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        self._is_closed(os.path.join(share, "archived-ns", "kept"), 0o555, "ns/kept")
        self.assertEqual(self.listed(share), ["archived-ns"])

    def _is_closed(self, path, mode, data=None):
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), mode, path)
        self.assertEqual(os.listdir(path), [] if data is None else ["data"])
        if data is not None:
            with open(os.path.join(path, "data"), encoding="ascii") as f:
                self.assertEqual(f.read(), data)

    def _give(self, share, owner):
        """The share to somebody, with nothing in it."""
        with self.server_down():
            servers.run("rm", "-rf", "--", *(os.path.join(share, n) for n in os.listdir(share)))
            os.chown(share, owner, owner)


class OnVersion3(Controller, Base):
    protocols = "3"
    version = "3"


class OnVersion4(Controller, Base):
    protocols = "4"
    version = "4"


class OnBoth(Controller, Base):
    """No version asked for: the driver chooses."""
    protocols = "3, 4"

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.server.flags("3")[1:])}

    def request(self, name, size=GIB, cap=None, share=None, **parameters):
        cap = cap or capability(flags=self.server.flags("3")[1:])
        return super().request(name, size, cap, share, **parameters)


class WithoutServer(Base):
    """What needs no NFS server, or one that is not there."""

    @classmethod
    def setUpClass(cls):
        cls.driver = Driver(LAB, name="alone").start()

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()

    @property
    def client(self):
        return self.driver.client

    def test_unimplemented(self):
        """Every RPC that is not advertised says so, with a message."""
        done = {"GetPluginInfo", "GetPluginCapabilities", "Probe", "CreateVolume", "DeleteVolume",
                "ValidateVolumeCapabilities", "ControllerGetCapabilities", "NodePublishVolume",
                "NodeUnpublishVolume", "NodeGetInfo", "NodeGetCapabilities",
                "GroupControllerGetCapabilities"}
        controller = {pb.ControllerServiceCapability.RPC.Type.Name(c.rpc.type)
                      for c in self.client.ControllerGetCapabilities().capabilities}
        node = {pb.NodeServiceCapability.RPC.Type.Name(c.rpc.type)
                for c in self.client.NodeGetCapabilities().capabilities}
        for switch, methods in (
                ("LIST_VOLUMES", ["ListVolumes"]), ("GET_CAPACITY", ["GetCapacity"]),
                ("CREATE_DELETE_SNAPSHOT", ["CreateSnapshot", "DeleteSnapshot"]),
                ("LIST_SNAPSHOTS", ["ListSnapshots"]), ("GET_SNAPSHOT", ["GetSnapshot"]),
                ("EXPAND_VOLUME", ["ControllerExpandVolume"]),
                ("GET_VOLUME", ["ControllerGetVolume"]),
                ("MODIFY_VOLUME", ["ControllerModifyVolume"])):
            if switch in controller:
                done.update(methods)
        if "GET_VOLUME_STATS" in node:
            done.add("NodeGetVolumeStats")
        rest = [m for m in self.client.methods() if m not in done]
        self.assertGreater(len(rest), 5)
        for method in rest:
            with self.subTest(method=method):
                self.fails(CODE.UNIMPLEMENTED, getattr(self.client, method))

    def test_group_controller_has_no_capabilities(self):
        self.assertEqual(len(self.client.GroupControllerGetCapabilities().capabilities), 0)

    def test_advertised(self):
        types = {c.rpc.type for c in self.client.ControllerGetCapabilities().capabilities}
        names = pb.ControllerServiceCapability.RPC.Type
        self.assertIn(names.Value("CREATE_DELETE_VOLUME"), types)
        self.assertNotIn(names.Value("UNKNOWN"), types)
        self.assertNotIn(names.Value("PUBLISH_UNPUBLISH_VOLUME"), types)

    def _create(self, server, *flags):
        # A name of its own: the call of a case that gave up may go on beside the next case.
        return {"name": self.id().rsplit(".", 1)[1],
                "volume_capabilities": [capability(flags=flags)],
                "parameters": {"server": server, "share": "/x"}}

    def _fails_soon(self, codes, **fields):
        begun = time.monotonic()
        self.fails(codes, self.client.CreateVolume, **fields)
        self.assertLess(time.monotonic() - begun, 13)

    def test_closed_port(self):
        for version in ("3", "4"):
            with self.subTest(version=version):
                self._fails_soon(CODE.UNAVAILABLE, **self._create(
                    SERVER, "port=%d" % servers.free_port(), "vers=" + version,
                    "mountport=%d" % servers.free_port()))

    def test_black_hole(self):
        """A port that takes the connection into its queue and never answers."""
        with socket.socket() as s:
            s.bind((SERVER, 0))
            s.listen(8)
            port = s.getsockname()[1]
            for version in ("3", "4"):
                with self.subTest(version=version):
                    self._fails_soon((CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED), **self._create(
                        SERVER, "port=%d" % port, "mountport=%d" % port, "vers=" + version))

    def test_lost_packets(self):
        """An address behind which nobody is: SYNs get no answer at all."""
        if servers.run("ip", "tuntap", "add", "hole", "mode", "tun", check=False).returncode != 0:
            self.skipTest("this kernel has no tun device")
        try:
            servers.run("ip", "addr", "add", "198.51.100.1/24", "dev", "hole")
            servers.run("ip", "link", "set", "hole", "up")
            self._fails_soon((CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED),
                             **self._create("198.51.100.7", "vers=4"))
        finally:
            servers.run("ip", "link", "del", "hole")

    def test_no_route(self):
        self._fails_soon(CODE.UNAVAILABLE, **self._create("203.0.113.9", "vers=4"))

    def test_caller_deadline(self):
        with socket.socket() as s:
            s.bind((SERVER, 0))
            s.listen(8)
            begun = time.monotonic()
            self.fails(CODE.DEADLINE_EXCEEDED, self.client.CreateVolume, timeout=1,
                       **self._create(SERVER, "port=%d" % s.getsockname()[1], "vers=4"))
            self.assertLess(time.monotonic() - begun, 3)

    def test_delete_with_unreachable_server(self):
        """Something may be left there: never OK, never final."""
        begun = time.monotonic()
        self.fails((CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED), self.client.DeleteVolume,
                   volume_id=SERVER + "#x#y##",
                   secrets={"mountOptions": "vers=4,port=%d" % servers.free_port()})
        self.assertLess(time.monotonic() - begun, 13)

    def test_messages_hold_no_mount_options(self):
        text = self.fails(CODE.UNAVAILABLE, self.client.DeleteVolume, volume_id=SERVER + "#x#y##",
                          secrets={"mountOptions": "vers=4,port=%d,x-secret=hush"
                                                   % servers.free_port()})
        self.assertNotIn("hush", text)
        self.assertNotIn("hush", self.driver.tail(100))


if __name__ == "__main__":
    harness.main("controller against nfs-ganesha")
