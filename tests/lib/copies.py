# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Shared by the tests of clones and snapshots: a server with sources, calls that copy a source, and
comparisons. For use inside a lab only.
"""
import os
import re
import time

import grpc

import servers
import trees
from cases import CODE, DISK, GIB, LAB, SERVER, STATE, OnServer
from csi_client import capability
from driver import Driver
from servers import Export, Ganesha, wait_for

FAR_SERVER = "127.0.0.2"  # another one, for all that the driver knows
GET_SNAPSHOT = "--enable-get-snapshot"
BUSY = (CODE.ABORTED, CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED)  # ask again
# Codes that external-provisioner does not take as final, and those that say nothing.
NOT_FINAL = BUSY + (CODE.CANCELLED, CODE.UNKNOWN)
SUFFIXES = {"none": ".tar", "gzip": ".tar.gz", "zstd": ".tar.zst"}


class Trees(OnServer):
    """A server with a share, another share, and one that FAR_SERVER is used for. Sources are
    folders on the share, made before the server starts. No test may change them."""

    options = (GET_SNAPSHOT,)
    folders = ("share", "other", "far")  # attributes and names of the exported folders
    numeric = True  # owners in version 4
    export_options = ""

    @classmethod
    def plant(cls):
        """Make the sources."""
        trees.make(os.path.join(cls.share, "small"), depth=5, many=10, megabytes=1)
        trees.make_plain(os.path.join(cls.share, "plain"))

    @classmethod
    def setUpClass(cls):
        tag = cls.__name__
        cls.place = os.path.join(DISK, tag)
        for name in cls.folders:
            setattr(cls, name, os.path.join(cls.place, name))
            os.makedirs(getattr(cls, name))
        cls.plant()
        cls.sources = {n: trees.survey(os.path.join(cls.share, n)) for n in os.listdir(cls.share)}
        exports = [Export(getattr(cls, n), cls.protocols, more=cls.export_options)
                   for n in cls.folders]
        cls.server = Ganesha(os.path.join(LAB, tag), exports + cls.more_exports(),
                             protocols=cls.protocols, minor_versions=cls.minor_versions,
                             numeric=cls.numeric).start()
        cls.driver = Driver(LAB, *cls.options, name=tag)
        try:
            cls.driver.start()
        except servers.Failure:
            cls.server.stop()
            raise

    def shares(self):
        return [getattr(self, name) for name in self.folders]

    def tearDown(self):
        try:
            self.is_tidy()
        except AssertionError:
            self.start_over()
            raise

    def leftovers(self):
        """List the shares without the sources, their records and the driver's folders."""
        found = []
        for share in self.shares():
            found += [os.path.join(share, n) for n in self.listed(share) if n not in self.sources]
            folders = [os.path.join(share, STATE, n) for n in ("work", "trash")]
            for path in filter(os.path.isdir, folders):
                found += [os.path.join(path, n) for n in os.listdir(path)]
            found += [p for p in self.records(share)
                      if os.path.basename(p).split("~")[0] not in self.sources
                      and not p.startswith(tuple(f + "/" for f in folders))]
        return sorted(set(found))

    def is_tidy(self):
        """Wait until deleted and half-made objects are gone."""
        wait_for(lambda: not self.leftovers(), 40, step=0.1, progress=self.unfinished)
        self.assertEqual(self.leftovers(), [], "left on the shares; the driver's log:\n"
                         + self.driver.tail(10))

    def unfinished(self):
        """Return how many entries the driver has in work and trash, and their size."""
        folders = [os.path.join(share, STATE, name) for share in self.shares()
                   for name in ("work", "trash")]
        # Entries come and go, at any depth; find complains of those that went.
        sizes = re.findall(r"^\d+$", servers.run("find", *folders, "-printf", "%s\n",
                                                 check=False).stdout, re.MULTILINE)
        return len(sizes), sum(map(int, sizes))

    def start_over(self):
        """Clean the shares, so that leftovers do not fail the next case."""
        self.driver.stop()
        self.server.stop()
        for share in self.shares():
            for name in os.listdir(share):
                if name not in self.sources:
                    servers.run("rm", "-rf", os.path.join(share, name))
        self.server.start()
        self.driver.start()
        wait_for(self.is_reached)

    def is_reached(self):
        """Return whether the server shows its exports, a moment after its first answers."""
        try:
            self.source(next(n for n in self.sources if os.path.isdir(self.path(n))))
        except grpc.RpcError:
            return False
        return True

    # ---- calls ----

    def source(self, name):
        """Adopt a source's folder as a volume. Return its id."""
        volume_id = self.create(name).volume_id
        self.assertEqual(volume_id, self.volume_id(name))
        return volume_id

    def snapshot_id(self, name, source, share=None, server=SERVER):
        return "#".join((server, (share or self.share).strip("/"), name, name, source))

    def from_source(self, name, content, client=None, timeout=None, **more):
        """Call CreateVolume with a source. Return the volume."""
        fields = self.request(name, **more)
        return (client or self.client).CreateVolume(
            timeout=timeout, volume_content_source=content, **fields).volume

    def clone(self, name, volume_id, **more):
        return self.from_source(name, {"volume": {"volume_id": volume_id}}, **more)

    def restore(self, name, snapshot_id, **more):
        return self.from_source(name, {"snapshot": {"snapshot_id": snapshot_id}}, **more)

    def snap(self, name, volume_id, client=None, timeout=None, **parameters):
        """Call CreateSnapshot. Return the snapshot."""
        return (client or self.client).CreateSnapshot(
            timeout=timeout, name=name, source_volume_id=volume_id, parameters=parameters,
            secrets=self.secrets).snapshot

    def unsnap(self, snapshot_id):
        self.client.DeleteSnapshot(snapshot_id=snapshot_id, secrets=self.secrets)

    def list_snapshots(self, **filters):
        return self.client.ListSnapshots(secrets=self.secrets, **filters)

    def until_ok(self, call, seconds=60):
        """Repeat the call, as an orchestrator does, until it succeeds. Return its answer. Fail when
        no copy and no purge has gone on for these seconds."""
        patience = servers.Patience(seconds, self.unfinished)
        while True:
            try:
                return call()
            except grpc.RpcError as e:
                self.assertIn(e.code(), BUSY, "asking again: " + e.details())
                self.assertFalse(patience.is_over(), "nothing done for %d s, the last answer: %s: %s"
                                 % (seconds, e.code().name, e.details()))
            time.sleep(0.1)

    # ---- looks ----

    def is_same(self, wanted, got, what, **how):
        found = trees.differences(wanted, got, **how)
        self.assertFalse(found, "%s: %s" % (what, trees.told(found)))

    def is_copy(self, source, name, share=None, **how):
        """Check that the volume's directory equals the source."""
        path = os.path.join(share or self.share, name)
        self.is_same(self.sources[source], trees.survey(path), path, **how)

    def is_restored(self, source, name, share=None):
        self.is_copy(source, name, share, sockets=False)

    def archive(self, name, source, compression="gzip", share=None):
        """Return the path of a snapshot's archive, and check that its folder has nothing else."""
        folder = os.path.join(share or self.share, name)
        file = source + SUFFIXES[compression]
        self.assertTrue(os.path.isdir(folder), "there is no folder " + folder)
        self.assertEqual(os.listdir(folder), [file], "in the folder of the snapshot")
        return os.path.join(folder, file)

    def is_archive_of(self, source, path):
        self.is_same(self.sources[source], trees.read_archive(path), path, sockets=False)

    def at_work(self, share=None):
        """Return whether a copy is in progress."""
        path = os.path.join(share or self.share, STATE, "work")
        return os.path.isdir(path) and bool(os.listdir(path))


class Chosen:
    """Asks for no version: the driver chooses one."""

    protocols = "3, 4"

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.server.flags("3")[1:])}

    def request(self, name, size=GIB, cap=None, share=None, **parameters):
        cap = cap or capability(flags=self.server.flags("3")[1:])
        return super().request(name, size, cap, share, **parameters)
