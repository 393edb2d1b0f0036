# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The life of a volume on any server, for the tests of servers that differ. For use inside a lab.

A class has the server, a driver of its own, and looks at what is on the share: in memory (Memory)
or in the exported folder (Folder).
"""
import concurrent.futures
import os
import random
import time

import grpc

import odd_server
from cases import CODE, DISK, GIB, LAB, SERVER, STATE
from csi_client import capability
from driver import FEW_IN_GUEST, Driver
from servers import Failure, wait_for

DATA = random.Random(14).randbytes(300000)
BUSY = (CODE.ABORTED, CODE.UNAVAILABLE)


def insist(call, seconds=60):
    """Repeat the call, as sidecars do, until it succeeds or has failed for good."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except grpc.RpcError as e:
            if e.code() not in BUSY or time.monotonic() > end:
                raise
        time.sleep(0.3)


class World:
    """A server, a driver that uses it, and calls that name it."""

    maxDiff = None
    version = "3"
    share = "/share"
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = cls.start_server()
        try:
            cls.driver = Driver(LAB, *cls.options, name=cls.__name__,
                                workers=FEW_IN_GUEST).start()
        except Failure:
            cls.stop_server()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            cls.driver.stop()
        finally:
            cls.stop_server()

    @classmethod
    def stop_server(cls):
        cls.server.stop()

    def restart(self):
        self.driver.restart()

    def scene(self):
        return "\n".join(["-- exported"] + sorted(self.tree())[:60]
                         + ["-- the driver's log", self.driver.tail()])

    @property
    def client(self):
        return self.driver.client

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.server.flags(self.version))}

    def request(self, name, size=GIB, source=None, **parameters):
        fields = {"name": name, "parameters": {"server": SERVER, "share": self.share},
                  "volume_capabilities": [capability(flags=self.server.flags(self.version))],
                  "capacity_range": {"required_bytes": size}, "secrets": self.secrets}
        fields["parameters"].update({k.replace("__", "/"): v for k, v in parameters.items()})
        if source is not None:
            fields["volume_content_source"] = source
        return fields

    def create(self, name, **more):
        return self.client.CreateVolume(**self.request(name, **more), timeout=60).volume

    def delete(self, volume_id):
        self.client.DeleteVolume(volume_id=volume_id, secrets=self.secrets)

    def volume_id(self, directory, key=""):
        return "#".join((SERVER, self.share.strip("/"), directory, key, ""))

    def fails(self, codes, call, *words, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            call(**fields)
        self.assertIn(caught.exception.code(), codes, caught.exception.details())
        for word in words:
            self.assertIn(word, caught.exception.details())

    def left(self):
        """What is on the share besides the driver's empty folders."""
        return {name: what for name, what in self.tree().items()
                if what is not None or name.split("/")[0] != STATE or name.count("/") > 1}

    def is_clean(self):
        wait_for(lambda: not self.left(), 60, progress=lambda: len(self.left()))
        self.assertEqual(self.left(), {})


class Memory(World):
    """The tests' own server."""

    habits = None

    @classmethod
    def start_server(cls):
        return odd_server.Server(cls.habits).start()

    def put(self, path, data=None, target=None):
        self.server.put(path, data, target)

    def tree(self, path=""):
        return self.server.tree(path)

    def has_links(self):
        return self.habits.symlink == odd_server.OK


class Folder(World):
    """A server of a folder. It must see what the test puts there, as that owner."""

    owner = 0

    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.join(DISK, cls.__name__)
        cls.share = cls.folder
        os.makedirs(cls.folder)
        super().setUpClass()

    def put(self, path, data=None, target=None):
        above = self.folder
        for name in path.split("/")[:-1]:
            above = os.path.join(above, name)
            if not os.path.isdir(above):
                os.mkdir(above)
                self.own(above)
        path = os.path.join(self.folder, path)
        if target is not None:
            os.symlink(target, path)
        elif data is None:
            os.mkdir(path)
        else:
            with open(path, "wb") as f:
                f.write(data)
        self.own(path)

    def own(self, path):
        if self.owner != 0:
            os.lchown(path, self.owner, self.owner)

    def tree(self, path=""):
        found = {}
        top = os.path.join(self.folder, path)
        for folder, folders, files in os.walk(top):
            for name in folders + files:
                at = os.path.join(folder, name)
                where = os.path.relpath(at, top)
                try:
                    if os.path.islink(at):
                        found[where] = os.readlink(at)
                    elif os.path.isdir(at):
                        found[where] = None
                    else:
                        with open(at, "rb") as f:
                            found[where] = f.read()
                except FileNotFoundError:
                    pass  # the purger was faster
        return found

    def has_links(self):
        probe = os.path.join(self.folder, "probe")
        try:
            os.symlink("target", probe)
        except OSError:
            return False
        os.unlink(probe)
        return True


class Unseen(World):
    """A server whose share nobody but its clients can look into: volumes stay empty."""

    def put(self, path, data=None, target=None):
        pass

    def tree(self, path=""):
        del path
        return {}

    @staticmethod
    def has_links():
        return True


def fill(case, volume):
    """Put files into a volume's directory. Return what is in it then."""
    case.put(volume + "/empty", b"")
    case.put(volume + "/data", DATA)
    for number in range(40):  # more than a page
        case.put("%s/many/%02d" % (volume, number), b"%d" % number)
    case.put(volume + "/deep/er/est/file", b"deep")
    case.put(volume + "/none")
    if case.has_links():
        case.put(volume + "/link", target="no/such file")
    return case.tree(volume)


def live(case):
    """Make volumes, fill, list, copy and restore them, and delete all."""
    plain = case.create("plain")
    case.assertEqual(plain.volume_id, case.volume_id("plain"))
    case.assertEqual(case.create("plain"), plain)
    case.fails((CODE.ALREADY_EXISTS,), case.client.CreateVolume,
               **case.request("plain", size=2 * GIB))
    inner = case.create("inner", subDir="a/b/c")
    case.assertEqual(inner.volume_id, case.volume_id("a/b/c", "inner"))
    long_name = {"csi.storage.k8s.io__pvc__name": "n" * 1200}  # a record of two parts
    parted = case.create("parted", **long_name)
    case.assertEqual(case.create("parted", **long_name), parted)
    made = [plain, inner, parted]
    case.assertEqual(sorted(e.volume.volume_id for e in case.client.ListVolumes().entries),
                     sorted(v.volume_id for v in made))
    got = case.client.ControllerGetVolume(volume_id=plain.volume_id)
    case.assertEqual(got.volume.volume_id, plain.volume_id)
    content = fill(case, "plain")
    copies = copy(case, plain, content)
    for volume in (plain, parted):
        case.client.ControllerExpandVolume(
            volume_id=volume.volume_id, capacity_range={"required_bytes": 2 * GIB},
            secrets=case.secrets)
    case.assertEqual({e.volume.capacity_bytes for e in case.client.ListVolumes().entries
                      if e.volume.volume_id in (plain.volume_id, parted.volume_id)}, {2 * GIB})
    for volume in made + copies:
        case.delete(volume.volume_id)
        case.delete(volume.volume_id)
    case.assertEqual(len(case.client.ListVolumes().entries), 0)
    case.is_clean()


def copy(case, source, content):
    """Clone the volume, and restore it from a snapshot, into an empty directory. Return both."""
    snapshot = case.client.CreateSnapshot(name="snap", source_volume_id=source.volume_id,
                                          secrets=case.secrets, timeout=60).snapshot
    case.assertTrue(snapshot.ready_to_use)
    case.assertEqual([e.snapshot.snapshot_id for e in case.client.ListSnapshots().entries],
                     [snapshot.snapshot_id])
    clone = case.create("clone", source={"volume": {"volume_id": source.volume_id}})
    case.put("back")
    back = case.create("back", source={"snapshot": {"snapshot_id": snapshot.snapshot_id}})
    for name in ("clone", "back"):
        case.assertEqual(case.tree(name), content, name)
    case.client.DeleteSnapshot(snapshot_id=snapshot.snapshot_id, secrets=case.secrets)
    return [clone, back]


class Life:
    """The case that each server has."""

    def test_life(self):
        live(self)


class Replica:
    """A second driver on the share of a case."""

    def __init__(self, case):
        self.driver = Driver(LAB, *case.options, name=type(case).__name__ + "-second").start()

    def stop(self):
        self.driver.stop()

    def together(self, case, name):
        """Create a volume by both at once. Return the code of each."""
        def code(client):
            try:
                client.CreateVolume(**case.request(name))
            except grpc.RpcError as e:
                case.assertIn(e.code(), BUSY, e.details())
                return e.code().name
            return "OK"

        with concurrent.futures.ThreadPoolExecutor() as pool:
            return list(pool.map(code, (case.client, self.driver.client)))
