# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The calls that Nomad makes, in its order and with its fields, for the volumes in deploy/nomad.

No Nomad runs here. Agent makes the calls as Nomad 2.0's client does (plugins/csi,
client/pluginmanager/csimanager and client/allocrunner of hashicorp/nomad): it asks for capabilities
first and goes by them, always sends accessibility_requirements, publish_context and
staging_target_path, empty, makes the folder above a target path but not the target, and looks for
that after NodeUnpublishVolume.

OnVersion3 and OnVersion4 have a controller against nfs-ganesha. Mounted needs a guest with an NFS
client and server. Runs inside a lab, with CSI_NFS naming the driver.
"""
import os
import subprocess
import sys
import unittest
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "deploy"))

# pylint: disable=wrong-import-position
import harness
import hcl
from cases import CODE, DISK, GIB, LAB, SERVER, Base, OnServer
from csi_client import MODES, patiently, pb
from driver import Driver
from servers import KernelServer

FOLDER = os.path.join(HERE, "..", "..", "deploy", "nomad")
SERVICE = pb.PluginCapability.Service
CONTROLLER = pb.ControllerServiceCapability.RPC
NODE = pb.NodeServiceCapability.RPC


class Volume:
    """A volume file as Nomad keeps it: what it says, and what the plug-in answered."""

    def __init__(self, file, called=None):
        body = hcl.read(os.path.join(FOLDER, file))
        self.id = called or body.get("id")
        self.name = called or body.get("name")
        self.external_id = body.get("external_id")
        self.modes = [one.get("access_mode") for _, one in body.all("capability")]
        self.flags = list(body.one("mount_options").get("mount_flags"))
        self.blocks = {kind: dict(body.one(kind).attributes)
                       for kind in ("parameters", "context") if body.all(kind)}
        self.context = self.blocks.get("context", {})
        self.parameters = self.blocks.get("parameters", {})
        self.secrets = {}

    def capability(self, mode, flags=None):
        cap = pb.VolumeCapability(
            access_mode={"mode": MODES.Mode.Value(mode.upper().replace("-", "_"))})
        cap.mount.SetInParent()
        cap.mount.mount_flags.extend(self.flags if flags is None else flags)
        return cap


class Agent:
    """A plug-in, as Nomad's client uses it. Errors of calls raise grpc.RpcError."""

    def __init__(self, case, driver, kind, root=None):
        self.case = case
        self.driver = driver
        self.kind = kind
        self.root = root  # the folder that volumes are published in, on the host and in the task
        self.supports = set()
        self.node_id = None

    @property
    def client(self):
        return self.driver.client

    def start(self):
        """The supervisor of the task, then the first fingerprint."""
        os.stat(self.driver.socket)
        self.probe()
        info = self.client.GetPluginInfo()
        self.case.assertEqual(info.name, "nfs.csi.k8s.io")
        self.case.assertTrue(info.vendor_version)
        services = {one.service.type for one in self.client.GetPluginCapabilities().capabilities}
        self.case.assertIn(SERVICE.CONTROLLER_SERVICE, services, "of either kind")
        self.case.assertNotIn(SERVICE.VOLUME_ACCESSIBILITY_CONSTRAINTS, services)
        if self.kind == "node":
            answer = self.client.NodeGetInfo()
            self.node_id = answer.node_id
            self.case.assertTrue(self.node_id)
            self.case.assertFalse(answer.HasField("accessible_topology"))
        self.fingerprint()

    def probe(self):
        """Ready, or nothing said about it."""
        answer = self.client.Probe()
        self.case.assertTrue(answer.ready.value or not answer.HasField("ready"))

    def fingerprint(self):
        """What is asked every 30 s."""
        self.probe()
        if self.kind == "node":
            answer = self.client.NodeGetCapabilities()
        else:
            answer = self.client.ControllerGetCapabilities()
        self.supports = {one.rpc.type for one in answer.capabilities}

    # ---- the controller ----

    def create(self, volume, size=10 * GIB, source=None):
        fields = {
            "name": volume.name,
            "capacity_range": {"required_bytes": size},
            "volume_capabilities": [volume.capability(mode) for mode in volume.modes],
            "parameters": volume.parameters, "secrets": volume.secrets,
            "accessibility_requirements": pb.TopologyRequirement()}
        if source is not None:
            fields["volume_content_source"] = source
        made = patiently(self.client.CreateVolume, **fields).volume
        self.case.assertEqual(list(made.accessible_topology), [])
        volume.external_id, volume.context = made.volume_id, dict(made.volume_context)
        return made

    def validate(self, volume):
        """As register does: with what a file says, and without its mount options."""
        asked = [volume.capability(mode, ()) for mode in volume.modes]
        answer = patiently(self.client.ValidateVolumeCapabilities, volume_id=volume.external_id,
                           volume_context=volume.context, volume_capabilities=asked,
                           parameters=volume.parameters, secrets=volume.secrets)
        self.case.assertTrue(answer.HasField("confirmed"), answer.message)
        self.case.assertEqual(list(answer.confirmed.volume_capabilities), asked)

    def expand(self, volume, size):
        answer = patiently(self.client.ControllerExpandVolume, volume_id=volume.external_id,
                           capacity_range={"required_bytes": size}, secrets=volume.secrets,
                           volume_capability=volume.capability(volume.modes[0]))
        self.case.assertFalse(answer.node_expansion_required)
        return answer.capacity_bytes

    def delete(self, volume):
        patiently(self.client.DeleteVolume, volume_id=volume.external_id, secrets=volume.secrets)

    # ---- the node ----

    def target(self, volume, alloc, mode, read_only):
        usage = "%s-file-system-%s" % ("ro" if read_only else "rw", mode)
        return os.path.join(self.root, "per-alloc", alloc, volume.id, usage)

    def mount(self, volume, alloc, mode=None, read_only=False):
        """What an allocation needs before its tasks start. Returns the path that they get."""
        mode = mode or volume.modes[0]
        self.case.assertNotIn(NODE.STAGE_UNSTAGE_VOLUME, self.supports, "Nomad would stage")
        target = self.target(volume, alloc, mode, read_only)
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        if os.path.ismount(target):
            return target
        patiently(self.client.NodePublishVolume, volume_id=volume.external_id,
                  publish_context={}, staging_target_path="", target_path=target,
                  volume_capability=volume.capability(mode), readonly=read_only,
                  secrets=volume.secrets, volume_context=volume.context)
        return target

    def unmount(self, volume, alloc, mode=None, read_only=False):
        """After the tasks. Nomad removes a target that is left, and counts that as a failure."""
        target = self.target(volume, alloc, mode or volume.modes[0], read_only)
        patiently(self.client.NodeUnpublishVolume, volume_id=volume.external_id,
                  target_path=target)
        self.case.assertFalse(os.path.lexists(target))


class Controller(OnServer):
    """Mixed into Base below, once for each version of NFS."""

    options = ("--mode=controller",)

    def setUp(self):
        self.forget_failed_case(self.share)
        self.agent = Agent(self, self.driver, "controller")
        self.agent.start()

    def tearDown(self):
        self.is_clean()

    def volume(self, called=None, file="volume-create.hcl"):
        """One of the files, with this server and share, and a policy that leaves nothing."""
        made = Volume(file, called)
        made.flags = [f for f in made.flags if "vers=" not in f] + self.server.flags(self.version)
        for block in (made.parameters, made.context):
            if block:
                block.update(server=SERVER, share=self.share)
        if made.parameters:
            made.parameters["onDelete"] = "delete"
        made.secrets = self.secrets  # nfs-ganesha listens on ports of its own
        return made

    def test_capabilities(self):
        """What Nomad goes by: no ControllerPublishVolume, and the rest is offered."""
        for name in ("PUBLISH_UNPUBLISH_VOLUME", "PUBLISH_READONLY",
                     "LIST_VOLUMES_PUBLISHED_NODES"):
            self.assertNotIn(CONTROLLER.Type.Value(name), self.agent.supports)
        for name in ("CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT", "LIST_SNAPSHOTS",
                     "LIST_VOLUMES", "CLONE_VOLUME", "EXPAND_VOLUME"):
            self.assertIn(CONTROLLER.Type.Value(name), self.agent.supports)

    def test_life_of_a_volume(self):
        volume = self.volume()
        made = self.agent.create(volume)
        self.assertEqual(made.capacity_bytes, 10 * GIB)
        status = os.stat(self.path("shared-data"))
        self.assertEqual((status.st_uid, status.st_gid, status.st_mode & 0o7777),
                         (1000, 1000, 0o770))
        self.assertEqual(volume.context["server"], SERVER)
        self.assertEqual(self.agent.create(volume), made)
        self.agent.validate(volume)
        self.agent.fingerprint()
        self.assertEqual(self.agent.expand(volume, 20 * GIB), 20 * GIB)
        self.agent.delete(volume)
        self.agent.delete(volume)

    def test_one_for_each_allocation(self):
        """Volumes of a group with per_alloc have an index in brackets."""
        volumes = [self.volume("data[%d]" % i) for i in range(2)]
        for volume in volumes:
            self.agent.create(volume)
        self.assertEqual(self.listed(), ["data[0]", "data[1]"])
        for volume in volumes:
            self.agent.delete(volume)

    def test_listed_by_pages(self):
        """nomad volume status -verbose, which asks for pages of 30."""
        volumes = [self.volume("v%d" % i) for i in range(3)]
        for volume in volumes:
            self.agent.create(volume)
        found, token = [], ""
        while True:
            answer = self.client.ListVolumes(max_entries=2, starting_token=token)
            found += [entry.volume.volume_id for entry in answer.entries]
            token = answer.next_token
            if not token:
                break
        self.assertEqual(sorted(found), sorted(volume.external_id for volume in volumes))
        for volume in volumes:
            self.agent.delete(volume)

    def test_snapshot_and_clone(self):
        volume = self.volume()
        self.agent.create(volume)
        with open(self.path("shared-data", "file"), "w", encoding="ascii") as f:
            f.write("data")
        snapshot = patiently(self.client.CreateSnapshot, source_volume_id=volume.external_id,
                             name="monday", secrets=volume.secrets,
                             parameters={"compression": "zstd"}).snapshot
        self.assertTrue(snapshot.ready_to_use)
        self.assertTrue(snapshot.creation_time.seconds)
        listed = self.client.ListSnapshots(max_entries=0, starting_token="", secrets=volume.secrets)
        self.assertEqual([entry.snapshot.snapshot_id for entry in listed.entries],
                         [snapshot.snapshot_id])
        copies = [self.volume(name) for name in ("restored", "cloned")]
        self.agent.create(copies[0], source={"snapshot": {"snapshot_id": snapshot.snapshot_id}})
        self.agent.create(copies[1], source={"volume": {"volume_id": volume.external_id}})
        for copy in copies:
            with open(self.path(copy.name, "file"), encoding="ascii") as f:
                self.assertEqual(f.read(), "data")
        patiently(self.client.DeleteSnapshot, snapshot_id=snapshot.snapshot_id,
                  secrets=volume.secrets)
        for one in [volume] + copies:
            self.agent.delete(one)

    def test_register(self):
        """A directory that is there already. One that is not is an error at once."""
        volume = self.volume(file="volume-register.hcl")
        volume.external_id = "%s#%s#%s##" % (SERVER, self.share.strip("/"), volume.name)
        self.fails(CODE.NOT_FOUND, self.client.ValidateVolumeCapabilities,
                   volume_id=volume.external_id, volume_context=volume.context,
                   volume_capabilities=[volume.capability(volume.modes[0], ())],
                   secrets=volume.secrets)
        os.mkdir(self.path(volume.name))
        self.server_looks_again()
        self.agent.validate(volume)
        os.rmdir(self.path(volume.name))

    def test_block_devices_are_refused(self):
        cap = pb.VolumeCapability(access_mode={"mode": MODES.SINGLE_NODE_WRITER})
        cap.block.SetInParent()
        volume = self.volume()
        self.fails(CODE.INVALID_ARGUMENT, self.client.CreateVolume, "block", name="disk",
                   volume_capabilities=[cap], parameters=volume.parameters,
                   accessibility_requirements=pb.TopologyRequirement(), secrets=volume.secrets)


class OnVersion3(Controller, Base):
    version = "3"


class OnVersion4(Controller, Base):
    version = "4"


class Mounted(unittest.TestCase):
    """A controller, a node and mounts, each call as the two jobs get it."""

    @classmethod
    def setUpClass(cls):
        cls.share = os.path.join(DISK, "share")
        os.makedirs(cls.share, exist_ok=True)
        cls.server = KernelServer(DISK).start()
        cls.controller = Driver(LAB, "--mode=controller", name="controller").start()
        cls.node = Driver(LAB, "--mode=node", "--nodeid=" + str(uuid.uuid4()), name="node").start()

    @classmethod
    def tearDownClass(cls):
        cls.node.stop()
        cls.controller.stop()
        cls.server.done()

    def setUp(self):
        self.agents = [Agent(self, self.controller, "controller"),
                       Agent(self, self.node, "node",
                             os.path.join(LAB, "nomad", "client", "csi", "node", "nfs"))]
        for agent in self.agents:
            agent.start()

    def volume(self, called=None):
        volume = Volume("volume-create.hcl", called)
        volume.parameters.update(server=SERVER, share="/share", onDelete="delete")
        self.agents[0].create(volume)
        return volume

    def write(self, folder, text):
        """As a task with the user of the example, which sees the mount and not what is above."""
        done = subprocess.run(
            ["sh", "-c", 'printf %s "$1" >>log', "task", text], cwd=folder, check=False,
            user=1000, group=1000, extra_groups=[], stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_life_of_an_allocation(self):
        controller, node = self.agents
        volume = self.volume()
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        paths = [node.mount(volume, alloc) for alloc in (first, second)]
        for path in paths:
            self.assertTrue(os.path.ismount(path))
            self.assertEqual(os.stat(path).st_mode & 0o7777, 0o770)
        # The folders above are Nomad's, and closed: tasks get the mount itself.
        self.assertEqual(os.stat(os.path.dirname(paths[0])).st_mode & 0o777, 0o700)
        self.write(paths[0], "one\n")
        with open(os.path.join(paths[1], "log"), encoding="ascii") as f:
            self.assertEqual(f.read(), "one\n")
        node.unmount(volume, second)
        self.assertTrue(os.path.ismount(paths[0]))
        self.assertEqual(controller.expand(volume, 20 * GIB), 20 * GIB)
        node.unmount(volume, first)
        controller.delete(volume)
        self.assertFalse(os.path.exists(os.path.join(self.share, volume.name)))

    def test_plugin_task_is_replaced(self):
        """Mounts stay; Nomad finds them mounted, and the new task unmounts them."""
        node = self.agents[1]
        volume = self.volume()
        alloc = str(uuid.uuid4())
        path = node.mount(volume, alloc)
        self.node.restart()
        node.start()
        self.assertEqual(node.mount(volume, alloc), path)
        self.assertTrue(os.path.ismount(path))
        node.unmount(volume, alloc)
        node.unmount(volume, alloc)  # the server's garbage collection asks again
        self.agents[0].delete(volume)
        self.assertFalse(os.path.exists(os.path.join(self.share, volume.name)))

    def test_read_only_and_per_alloc(self):
        node = self.agents[1]
        volume = self.volume("data[0]")
        mode, alloc = "multi-node-reader-only", str(uuid.uuid4())
        path = node.mount(volume, alloc, mode, read_only=True)
        self.assertIn("/data[0]/ro-file-system-", path)
        self.assertTrue(os.path.ismount(path))
        with self.assertRaises(OSError):
            with open(os.path.join(path, "no"), "w", encoding="ascii"):
                pass
        node.unmount(volume, alloc, mode, read_only=True)
        self.agents[0].delete(volume)


if __name__ == "__main__":
    harness.main("nomad")
