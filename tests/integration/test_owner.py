# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Whose directory it is: what the driver removes, renames, archives and takes for a volume is never
another's. Against a real nfs-ganesha, and with --kernel nfsd --kernel xfs (classes Folding and
Inner) against the kernel's server: on an XFS that folds case, and with file systems mounted inside
the share.
"""
import concurrent.futures
import contextlib
import itertools
import os
import sys
import threading
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from cases import CODE, DISK, GIB, LAB, SERVER, STATE, Base, OnServer
from csi_client import capability
from driver import FEW_IN_GUEST, Driver
from rpc_proxy import ALWAYS, Proxy, Rule
from servers import Image, KernelServer, wait_for

REFUSED = CODE.FAILED_PRECONDITION
CLAIM = "${pvc.metadata.namespace}/${pvc.metadata.name}"
JOINED = "${pvc.metadata.namespace}-${pvc.metadata.name}"


def of(namespace, name):
    """What the provisioner adds for a claim."""
    return {"csi.storage.k8s.io__pvc__namespace": namespace, "csi.storage.k8s.io__pvc__name": name}


class Calls:
    """What the cases on both kinds of server use."""

    def claim(self, name, namespace, claim, template=CLAIM, **more):
        return self.create(name, subDir=template, **of(namespace, claim), **more).volume_id

    def is_refused(self, *words, codes=REFUSED, **request):
        self.fails(codes, self.client.CreateVolume, *words,
                   **self.request(request.pop("name"), **request))

    def write(self, *parts, text="data"):
        with open(self.path(*parts), "w", encoding="ascii") as f:
            f.write(text)

    def is_kept(self, *parts, text="data"):
        with open(self.path(*parts), encoding="ascii") as f:
            self.assertEqual(f.read(), text)

    def has_record(self, key):
        return os.path.lexists(self.path(STATE, "volumes", key))


class Owners(Calls, OnServer):
    """Cases that run once for each version: mixed into Base below."""

    def setUp(self):
        if os.listdir(self.share):
            with self.server_down():
                servers.run("rm", "-rf", "--", *map(self.path, os.listdir(self.share)))

    # ---- archives ----

    def test_archive_spares_a_live_volume(self):
        """The namespace of the one is what the archive of the other is named."""
        for flags in ((), ("--remove-archived-volume-path",)):
            with self.subTest(flags=flags):
                self.restart(*flags)
                live = self.claim("pv-live", "archived-shop", "data")
                self.write("archived-shop", "data", "file", text="live")
                old = self.claim("pv-old", "shop", "data", onDelete="archive")
                self.write("shop", "data", "file", text="old")
                self.delete(old)
                self.is_kept("archived-shop", "data", "file", text="live")
                aside = [n for n in self.listed() if n.startswith("archived-shop.")]
                self.assertEqual(len(aside), 1, self.listed())
                self.is_kept(aside[0], "data", "file", text="old")
                self.delete(old)
                self.delete(live)
                self.assertEqual(self.listed(), aside)
                self.delete(self.volume_id(aside[0] + "/data"))
                self.is_clean()

    def test_archive_is_not_put_into_a_volume(self):
        self.restart("--remove-archived-volume-path")
        live = self.create("archived-shop").volume_id
        os.makedirs(self.path("archived-shop", "data"))
        self.write("archived-shop", "data", "file", text="live")
        old = self.claim("pv-old", "shop", "data", onDelete="archive")
        self.delete(old)
        self.assertEqual(os.listdir(self.path("archived-shop")), ["data"])
        self.is_kept("archived-shop", "data", "file", text="live")
        self.delete(live)

    def test_archive_is_replaced_if_it_is_one(self):
        self.restart("--remove-archived-volume-path")
        for text in ("first", "second"):
            volume = self.claim("pv", "shop", "data", onDelete="archive")
            self.write("shop", "data", "file", text=text)
            self.delete(volume)
            self.assertEqual(self.listed(), ["archived-shop"])
            self.is_kept("archived-shop", "data", "file", text=text)

    def test_archive_does_not_become_a_claims(self):
        """Of a namespace that is named like the archives of another."""
        old = self.claim("pv-old", "shop", "data", onDelete="archive")
        self.write("shop", "data", "file")
        self.delete(old)
        self.is_refused("archive", name="pv-new", subDir=CLAIM, **of("archived-shop", "data"))
        self.assertFalse(self.has_record("pv-new"))
        self.is_kept("archived-shop", "data", "file")
        self.delete(self.create("pv-new", subDir=CLAIM, existingDirectory="adopt",
                                **of("archived-shop", "data")).volume_id)
        self.is_clean()

    # ---- claims that meet ----

    def test_two_claims_with_one_directory(self):
        first = self.claim("pv-1", "a", "b-c", template=JOINED)
        self.write("a-b-c", "file")
        for _ in range(2):
            self.is_refused("pv-1", "pv-2", name="pv-2", subDir=JOINED, **of("a-b", "c"))
        self.assertFalse(self.has_record("pv-2"))
        self.is_kept("a-b-c", "file")
        self.assertEqual(self.claim("pv-1", "a", "b-c", template=JOINED), first)
        second = self.create("pv-2", subDir=JOINED, existingDirectory="adopt",
                             **of("a-b", "c")).volume_id
        self.delete(first)
        self.is_kept("a-b-c", "file")
        self.delete(second)
        self.is_clean()

    def test_one_in_the_other(self):
        outer = self.claim("pv-1", "a", "b", template="${pvc.metadata.namespace}")
        self.is_refused("pv-1", "pv-2", name="pv-2", subDir=CLAIM, **of("a", "b"))
        self.assertEqual(os.listdir(self.path("a")), [])
        self.delete(outer)
        inner = self.claim("pv-2", "a", "b")
        self.is_refused("pv-1", "pv-2", name="pv-1", subDir="${pvc.metadata.namespace}",
                        **of("a", "b"))
        self.delete(inner)
        self.is_clean()

    def test_named_like_another_volume(self):
        plain = self.create("pv-1").volume_id
        self.is_refused("pv-1", "pv-2", name="pv-2", subDir="${pvc.metadata.name}",
                        **of("a", "pv-1"))
        self.delete(plain)
        claim = self.claim("pv-2", "a", "pv-1", template="${pvc.metadata.name}")
        self.is_refused("pv-1", "pv-2", name="pv-1")
        self.delete(claim)
        self.is_clean()

    def test_constant_is_shared(self):
        volumes = [self.create("pv-%d" % i, subDir="shared").volume_id for i in range(3)]
        self.write("shared", "file")
        for volume in volumes:
            self.is_kept("shared", "file")
            self.delete(volume)
        self.is_clean()

    # ---- several volumes, several policies ----

    def kept(self, text):
        """Whether a file with the text is anywhere on the share."""
        for top, _, names in os.walk(self.share):
            for name in names if STATE not in top.split(os.sep) else ():
                with open(os.path.join(top, name), encoding="ascii") as f:
                    if f.read() == text:
                        return True
        return False

    def two_volumes(self, policy, first, second):
        ids = [self.create("pv-1", subDir=first, onDelete=policy).volume_id,
               self.create("pv-2", subDir=second).volume_id]
        for number, directory in enumerate((first, second), 1):
            self.write(directory, "file-%d" % number, text="of pv-%d" % number)
        return ids

    def test_strictest_policy_counts(self):
        """Whichever volume is deleted first, whichever lies in the other, and if a deletion is
        repeated after it has succeeded."""
        for policy in ("retain", "archive"):
            for first, second in (("p", "p"), ("p", "p/x"), ("p/x", "p"), ("p/x", "p/x")):
                for order in ((0, 1), (1, 0)):
                    with self.subTest(policy=policy, first=first, second=second, order=order):
                        self.setUp()
                        ids = self.two_volumes(policy, first, second)
                        self.delete(ids[order[0]])
                        self.assertTrue(self.kept("of pv-1"))
                        self.assertTrue(self.kept("of pv-2"))
                        for i in order[1:] + order + order:
                            self.delete(ids[i])
                            self.assertTrue(self.kept("of pv-1"))
                        if policy == "archive" and first == second:
                            self.assertEqual(self.listed(), ["archived-" + first.split("/")[0]])
                            self.assertEqual([r for r in self.records() if "/users/" in r], [])

    def test_new_volume_takes_what_was_kept(self):
        """If it is alone; while another volume is there, the policy stays."""
        ids = self.two_volumes("retain", "p", "p")
        self.delete(ids[0])
        self.delete(self.create("pv-3", subDir="p").volume_id)
        self.delete(ids[1])
        self.is_kept("p", "file-1", text="of pv-1")
        alone = self.create("pv-3", subDir="p").volume_id
        self.is_kept("p", "file-1", text="of pv-1")
        self.delete(alone)
        self.is_clean()

    def test_claim_of_a_part_of_what_was_kept(self):
        """A claim takes it by its name, with its contents, and leaves it when it goes."""
        kept = self.create("pv-1", subDir="ns", onDelete="retain").volume_id
        with self.server_down():
            os.makedirs(self.path("ns", "claim"))
            self.write("ns", "claim", "file")
        self.delete(kept)
        volume = self.claim("pv-2", "ns", "claim")
        self.is_kept("ns", "claim", "file")
        self.delete(volume)
        self.is_kept("ns", "claim", "file")
        self.delete(self.claim("pv-3", "ns", "new"))
        self.assertEqual(os.listdir(self.path("ns")), ["claim"])

    def move_late(self, path, seconds):
        """Do what a server does that performs the RENAME of a dead deletion late."""
        name = "%s.%x.1.h0" % (path.replace("/", "%2F"), time.time_ns() - seconds * 10 ** 9)
        os.makedirs(self.path(STATE, "trash"), exist_ok=True)
        os.rename(self.path(path), self.path(STATE, "trash", name))
        return name

    def test_a_late_rename_takes_what_was_kept(self):
        """It lies in the directory of a volume that is deleted then: it comes back, and stays."""
        outer = self.create("pv-1", subDir="p").volume_id
        inner = self.create("pv-2", subDir="p/in", onDelete="retain").volume_id
        self.write("p", "in", "file")
        self.delete(inner)
        with self.server_down():
            name = self.move_late("p", 10)
        self.fails(CODE.ABORTED, self.client.DeleteVolume, "'p'", volume_id=outer,
                   secrets=self.secrets)
        self.is_kept(STATE, "trash", name, "in", "file")
        with self.server_down():
            os.rename(self.path(STATE, "trash", name), self.path("p"))
            self.move_late("p", 120)
        self.restart()
        self.delete(self.create("next").volume_id)  # the driver looks into the trash
        self.assertTrue(wait_for(lambda: os.path.exists(self.path("p", "in", "file")), 60),
                        self.driver.tail())
        self.delete(outer)
        self.is_kept("p", "in", "file")

    def test_ids_go_by_what_was_kept(self):
        """Of volumes of csi-driver-nfs, which have no record."""
        ids = self.two_volumes("retain", "p", "p")
        self.delete(ids[0])
        self.delete(ids[1])
        for directory, key in (("p", ""), ("p", "pv-0"), ("p/inner", "pv-0")):
            os.makedirs(self.path("p", "inner"), exist_ok=True)
            self.delete(self.volume_id(directory, key))
            self.is_kept("p", "file-1", text="of pv-1")

    def test_policy_that_was_modified(self):
        """The id still has the first one, and the deletion is repeated."""
        volume = self.create("pv-1").volume_id
        self.write("pv-1", "file")
        self.client.ControllerModifyVolume(volume_id=volume, secrets=self.secrets,
                                           mutable_parameters={"onDelete": "retain"})
        for _ in range(3):
            self.delete(volume)
            self.is_kept("pv-1", "file")

    def test_two_drivers_with_two_policies(self):
        """Two deletions at once, by two drivers: what has to be retained stays."""
        with Driver(LAB, name=type(self).__name__ + "-2") as other:
            clients = (self.driver.client, other.client)
            for turn in range(15):
                directories = (("p", "p"), ("p", "p/x"), ("p/x", "p"))[turn % 3]
                self.setUp()
                ids = self.two_volumes("retain", *directories)
                start = threading.Barrier(2)

                def remove(i, start=start, ids=ids, turn=turn):
                    start.wait()
                    end = False
                    while not end:
                        try:
                            clients[(i + turn) % 2].DeleteVolume(volume_id=ids[i],
                                                                 secrets=self.secrets)
                            end = True
                        except grpc.RpcError as e:
                            self.assertEqual(e.code(), CODE.ABORTED, e.details())

                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    list(pool.map(remove, range(2)))
                self.assertTrue(self.kept("of pv-1"))

    def test_mode_of_another_volume_stays(self):
        first = self.create("pv-1", mountPermissions="0700").volume_id
        second = self.create("pv-2", subDir="pv-1", mountPermissions="0777", uid="1234",
                             gid="1234").volume_id
        status = os.stat(self.path("pv-1"))
        self.assertEqual((status.st_mode & 0o7777, status.st_uid), (0o700, 0))
        self.fails(REFUSED, self.client.ControllerModifyVolume, "pv-1", volume_id=second,
                   secrets=self.secrets, mutable_parameters={"mountPermissions": "0777"})
        self.delete(second)
        os.chmod(self.path("pv-1"), 0o755)
        self.server_looks_again()
        self.assertEqual(self.create("pv-1", mountPermissions="0700").volume_id, first)
        self.assertEqual(os.stat(self.path("pv-1")).st_mode & 0o7777, 0o700)
        self.delete(first)
        same = [self.create("pv-%d" % i, subDir="p", mountPermissions="2770", uid="1234")
                for i in range(3)]
        status = os.stat(self.path("p"))
        self.assertEqual((status.st_mode & 0o7777, status.st_uid), (0o2770, 1234))
        for volume in same:
            self.delete(volume.volume_id)
        self.is_clean()

    def test_unrecorded_is_adopted(self):
        """What csi-driver-nfs has left, and its volumes, which have no record."""
        with self.server_down():
            os.makedirs(self.path("ns", "claim"))
            self.write("ns", "claim", "file")
            os.makedirs(self.path("ns", "other"))
            self.write("ns", "other", "file")
        volume = self.claim("pv", "ns", "claim")
        self.is_kept("ns", "claim", "file")
        self.delete(volume)
        self.is_kept("ns", "other", "file")
        self.delete(self.volume_id("ns/other", "pv-other"))
        self.assertEqual(os.listdir(self.path("ns")), [])

    def test_ids_that_lead_to_what_has_a_record(self):
        volume = self.claim("pv", "ns", "claim")
        self.write("ns", "claim", "file")
        for directory in ("ns", "ns/claim"):
            for policy in ("", "archive"):
                self.delete(self.volume_id(directory, "another", policy))
                self.is_kept("ns", "claim", "file")
        self.assertEqual(self.listed(), ["ns"])
        self.delete(volume)
        self.is_clean()

    def test_two_replicas_at_once(self):
        """Each with its own claim of the same directory: never both."""
        with Driver(LAB, name=type(self).__name__ + "-2") as other:
            clients = (self.driver.client, other.client)
            for turn in range(15):
                start = threading.Barrier(2)
                spaces = (("a", "b-%d" % turn), ("a-b", "%d" % turn))

                def ask(i, start=start, spaces=spaces):
                    request = self.request("pv-%d" % i, subDir=JOINED, **of(*spaces[i]))
                    start.wait()
                    try:
                        return clients[i].CreateVolume(**request).volume.volume_id
                    except grpc.RpcError as e:
                        self.assertIn(e.code(), (REFUSED, CODE.ABORTED), e.details())
                        return None

                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    made = list(pool.map(ask, range(2)))
                self.assertIn(None, made)
                for i, volume in enumerate(made):
                    self.assertEqual(self.has_record("pv-%d" % i), volume is not None)
                    if volume is not None:
                        self.delete(volume)
            # What neither got may be left as an empty directory of nobody's.
            for name in self.listed():
                self.delete(self.volume_id(name))
        self.is_clean()

    # ---- snapshots ----

    def test_snapshot_does_not_take_a_volume(self):
        """A pod may put a file into its volume that looks like an archive."""
        source = self.create("source").volume_id
        volume = self.create("victim").volume_id
        self.write("victim", "source.tar.gz")
        self.fails(REFUSED, self.client.CreateSnapshot, "victim", name="victim",
                   source_volume_id=source, secrets=self.secrets)
        snapshot = "#".join((SERVER, self.share.strip("/"), "victim", "victim", "source"))
        self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        self.is_kept("victim", "source.tar.gz")
        self.assertEqual(len(self.client.ListSnapshots(snapshot_id=snapshot,
                                                       secrets=self.secrets).entries), 0)
        self.delete(volume)
        self.delete(source)
        self.is_clean()

    def test_volume_id_of_a_snapshot(self):
        source = self.create("source").volume_id
        snapshot = self.client.CreateSnapshot(name="snap", source_volume_id=source,
                                              secrets=self.secrets).snapshot.snapshot_id
        before = os.listdir(self.path("snap"))
        for directory in ("snap", "snap/" + before[0]):
            self.delete(self.volume_id(directory))
            self.delete(self.volume_id(directory, "", "archive"))
        self.assertEqual(os.listdir(self.path("snap")), before)
        self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        self.delete(source)
        self.is_clean()

    # ---- changes ----

    def test_modify_spares_others(self):
        first = self.create("pv-1", subDir="shared", mountPermissions="0750").volume_id
        second = self.create("pv-2", subDir="shared", mountPermissions="0750").volume_id
        self.fails(REFUSED, self.client.ControllerModifyVolume, "pv-2", volume_id=first,
                   secrets=self.secrets, mutable_parameters={"mountPermissions": "0777"})
        self.assertEqual(os.stat(self.path("shared")).st_mode & 0o7777, 0o750)
        self.delete(second)
        self.client.ControllerModifyVolume(volume_id=first, secrets=self.secrets,
                                           mutable_parameters={"mountPermissions": "0777"})
        self.assertEqual(os.stat(self.path("shared")).st_mode & 0o7777, 0o777)
        self.delete(first)
        self.is_clean()

    # ---- the driver's own folder ----

    def test_own_folder_in_any_case(self):
        for directory in (".CSI-NFS", ".CSI-NFS/volumes", "a/.Csi-Nfs", ".csi-nfS/trash/x"):
            with self.subTest(directory=directory):
                self.is_refused("subDir", codes=CODE.INVALID_ARGUMENT, name="pv", subDir=directory)
                self.delete(self.volume_id(directory, "pv"))
        self.assertEqual(self.listed(), [])

    def test_copied_record(self):
        """Somebody who may write there copies a record: it does not speak for the other name."""
        volume = self.create("good").volume_id
        with self.server_down():
            self.write("good", "file")
            os.symlink(os.readlink(self.path(STATE, "volumes", "good")),
                       self.path(STATE, "volumes", "bad"))
        self.fails(REFUSED, self.client.DeleteVolume, "good", volume_id=self.volume_id("bad"),
                   secrets=self.secrets)
        self.is_kept("good", "file")
        with self.server_down():
            os.unlink(self.path(STATE, "volumes", "bad"))
        self.delete(volume)

    # ---- policies ----

    def test_refuse_after_a_crash(self):
        """The record of a call that has not come to its end, and then somebody's directory."""
        self.create("pv", subDir="mine", existingDirectory="refuse")
        with self.server_down():
            record = self.path(STATE, "volumes", "pv")
            text = os.readlink(record)
            os.unlink(record)
            os.rmdir(self.path("mine"))
            # As it was before the directory was made.
            kept = [p for p in text.split(";") if p.split("=")[0] not in
                    ("built", "handle", "ready")]
            os.symlink(";".join(kept), record)
            os.mkdir(self.path("mine"))
            self.write("mine", "file")
        self.is_refused("mine", name="pv", subDir="mine", existingDirectory="refuse")
        self.is_kept("mine", "file")
        self.assertFalse(self.has_record("pv"))
        with self.server_down():
            os.symlink(";".join(kept), self.path(STATE, "volumes", "pv"))
        self.delete(self.volume_id("mine", "pv"))
        self.is_kept("mine", "file")
        self.assertFalse(self.has_record("pv"))

    def test_require_with_a_source(self):
        """What is copied goes where an empty directory has to be."""
        source = self.create("source").volume_id
        self.write("source", "file")
        request = self.request("pv", subDir="there", existingDirectory="require")
        request["volume_content_source"] = {"volume": {"volume_id": source}}
        self.fails(REFUSED, self.client.CreateVolume, "require", **request)
        self.assertFalse(self.has_record("pv"))
        with self.server_down():
            os.mkdir(self.path("there"))
        volume = self.client.CreateVolume(**request).volume.volume_id
        self.is_kept("there", "file")
        self.delete(volume)
        self.delete(source)
        self.is_clean()

    def test_snapshot_named_like_a_namespace(self):
        source = self.create("source").volume_id
        volume = self.claim("pv", "ns", "data")
        self.write("ns", "data", "file")
        self.fails(REFUSED, self.client.CreateSnapshot, "ns", name="ns", source_volume_id=source,
                   secrets=self.secrets)
        self.is_kept("ns", "data", "file")
        self.delete(volume)
        self.delete(source)
        self.is_clean()

    def test_snapshot_named_like_an_archive(self):
        volume = self.create("shop", onDelete="archive").volume_id
        snapshot = self.client.CreateSnapshot(name="archived-shop", source_volume_id=volume,
                                              secrets=self.secrets).snapshot.snapshot_id
        held = os.listdir(self.path("archived-shop"))
        self.delete(volume)
        self.assertEqual(os.listdir(self.path("archived-shop")), held)
        self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)
        self.assertEqual(len([n for n in self.listed() if n.startswith("archived-shop.")]), 1)

    def test_killed_at_any_time(self):
        """refuse: the driver dies in front of each change that it makes; whoever made the directory
        first has it."""
        strangers = []
        with Proxy(self.server.port, self.server.mount_port) as proxy:
            for step in itertools.count(1):
                name = "kill-%d" % step
                with self.through(proxy):
                    request = self.request("pv", subDir=name, existingDirectory="refuse")
                if not self.is_killed(proxy, step, request):
                    break
                stranger = False
                with self.nobody_there():
                    if not os.path.isdir(self.path(name)):
                        os.mkdir(self.path(name))
                        self.write(name, "file")
                        stranger = True
                strangers.append(stranger)
                self.driver.start()
                self.assertTrue(wait_for(self.is_reached))
                with self.subTest(step=step, stranger=stranger):
                    if stranger:
                        self.is_refused(name="pv", subDir=name, existingDirectory="refuse")
                        self.is_kept(name, "file")
                    else:
                        self.delete(self.client.CreateVolume(**request).volume.volume_id)
        self.delete(self.volume_id(name, "pv"))
        self.assertIn(True, strangers)
        self.assertIn(False, strangers)

    def is_killed(self, proxy, step, request):
        """Kill the driver in front of this change of the call. Return whether there was one."""
        def kill(_):
            self.driver.process.kill()
            self.driver.process.wait()

        death = Rule("changing", step, "hook", kill)
        proxy.begin([death, Rule("changing", step, "cut-before", count=ALWAYS)])
        try:
            self.client.CreateVolume(**request)
        except grpc.RpcError:
            self.assertTrue(death.hits, "it failed before it was killed")
        proxy.end()
        if death.hits:
            self.driver.kill()  # it knows that now, too
        return death.hits > 0

    @contextlib.contextmanager
    def nobody_there(self):
        """For changes to the exported folder while neither server nor driver run."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


class OwnersOnVersion3(Owners, Base):
    protocols = "3"
    version = "3"


class OwnersOnVersion4(Owners, Base):
    protocols = "4"
    version = "4"


class OnKernel(Calls):
    """A driver and the kernel's server, which exports a file system of its own."""

    version = None
    mkfs = ("mkfs.xfs", "-q", "-f")
    options = "rw,no_root_squash,insecure,fsid=0,no_subtree_check,crossmnt"
    without = ()  # versions that the server does not have

    @classmethod
    def setUpClass(cls):
        cls.image = Image(os.path.join(DISK, cls.__name__), 400, *cls.mkfs)
        try:
            cls.image.mount()
        except servers.NotMounted as e:
            raise unittest.SkipTest("this kernel has not that file system") from e
        cls.server = KernelServer(cls.image.path, cls.options, cls.without).start()
        cls.driver = Driver(LAB, name=cls.__name__, workers=FEW_IN_GUEST).start()

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        cls.server.done()
        cls.image.unmount()

    @property
    def client(self):
        return self.driver.client

    @property
    def share(self):
        return self.image.path if self.version == "3" else "/"

    @property
    def flags(self):
        return ["vers=" + self.version]

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.flags)}

    def request(self, name, **parameters):
        given = {"server": SERVER, "share": self.share}
        given.update({k.replace("__", "/"): v for k, v in parameters.items()})
        return {"name": name, "parameters": given, "secrets": self.secrets,
                "volume_capabilities": [capability(flags=self.flags)],
                "capacity_range": {"required_bytes": GIB}}

    def create(self, name, **more):
        return self.client.CreateVolume(**self.request(name, **more)).volume

    def delete(self, volume_id):
        self.client.DeleteVolume(volume_id=volume_id, secrets=self.secrets)

    def volume_id(self, directory, key="", policy=""):
        return "#".join((SERVER, self.share.strip("/"), directory, key, policy))

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.image.path, *parts)


class Folding(OnKernel):
    """XFS with version=ci: "Team" and "team" are one name."""

    mkfs = OnKernel.mkfs + ("-n", "version=ci")

    def test_it_folds(self):
        os.mkdir(self.path("Folds"))
        self.assertTrue(os.path.isdir(self.path("fOLDS")))
        os.rmdir(self.path("folds"))

    def test_directories(self):
        first = self.claim("pv-1", "Team", "x")
        self.write("Team", "x", "file")
        self.is_refused("pv-1", "pv-2", name="pv-2", subDir=CLAIM, **of("team", "x"))
        self.is_refused("pv-1", "pv-2", name="pv-2", subDir="${pvc.metadata.namespace}",
                        **of("TEAM", "x"))
        self.delete(self.volume_id("team/X", "pv-2"))
        self.is_kept("Team", "x", "file")
        other = self.claim("pv-3", "team", "y")
        self.delete(other)
        self.is_kept("Team", "x", "file")
        self.delete(first)
        self.assertFalse(os.path.lexists(self.path("Team")))

    def test_constant_in_two_spellings(self):
        first = self.create("pv-1", subDir="Team/x").volume_id
        second = self.create("pv-2", subDir="team/x").volume_id
        self.write("Team", "x", "file")
        self.delete(second)
        self.is_kept("Team", "x", "file")
        self.delete(first)
        self.assertFalse(os.path.lexists(self.path("Team", "x")))

    def test_names(self):
        first = self.create("PVC-1").volume_id
        self.write("PVC-1", "file")
        self.is_refused("pvc-1", codes=CODE.ALREADY_EXISTS, name="pvc-1")
        self.delete(self.volume_id("pvc-1"))
        self.is_kept("PVC-1", "file")
        self.assertTrue(self.has_record("PVC-1"))
        self.delete(first)
        self.assertFalse(self.has_record("PVC-1"))

    def test_named_like_another_volume(self):
        first = self.create("Plain").volume_id
        self.is_refused("Plain", "pv-2", name="pv-2", subDir="${pvc.metadata.name}",
                        **of("a", "plain"))
        self.is_refused("Plain", "pv-2", name="pv-2", subDir=CLAIM, **of("PLAIN", "x"))
        self.delete(first)

    def test_own_folder(self):
        volume = self.create("pv-1").volume_id
        for directory in (".CSI-NFS", ".CSI-NFS/volumes", ".Csi-nfs/volumes"):
            self.is_refused("subDir", codes=CODE.INVALID_ARGUMENT, name="pv-2", subDir=directory)
            self.delete(self.volume_id(directory, "pv-2"))
        self.assertTrue(self.has_record("pv-1"))
        self.delete(volume)

    def test_archives(self):
        live = self.claim("pv-1", "Archived-Shop", "data")
        self.write("Archived-Shop", "data", "file", text="live")
        old = self.claim("pv-2", "shop", "data", onDelete="archive")
        self.delete(old)
        self.is_kept("archived-shop", "data", "file", text="live")
        self.delete(live)
        self.assertFalse(os.path.lexists(self.path("archived-shop", "data")))


class Inner(OnKernel):
    """File systems that are mounted inside the share, and shown (crossmnt)."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mounted = []
        for name in ("inner", "t/vol"):
            path = cls.path(name)
            os.makedirs(path)
            image = Image(path, 20, "mkfs.ext4", "-q")
            image.file = os.path.join(DISK, "%s-%d.image" % (cls.__name__, len(cls.mounted)))
            cls.mounted.append(image.mount())

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        cls.server.done()
        for image in cls.mounted + [cls.image]:
            image.unmount()

    def setUp(self):
        os.makedirs(self.path("inner", "old"), exist_ok=True)
        self.write("inner", "old", "file")
        self.write("t", "vol", "file")

    def test_none_is_created(self):
        source = self.create("source").volume_id
        for directory in ("inner", "inner/new", "inner/old", "t/vol", "inner/deep/new"):
            with self.subTest(directory=directory):
                self.is_refused("another file system", "as the share", name="pv", subDir=directory)
                request = self.request("pv", subDir=directory)
                request["volume_content_source"] = {"volume": {"volume_id": source}}
                self.fails(REFUSED, self.client.CreateVolume, "as the share", **request)
                self.assertFalse(self.has_record("pv"))
        self.assertEqual(sorted(os.listdir(self.path("inner"))), ["lost+found", "old"])
        self.is_kept("t", "vol", "file")
        self.delete(source)

    def test_archive_is_refused(self):
        for directory in ("inner/old", "t/vol"):
            self.fails(REFUSED, self.client.DeleteVolume, "as the share",
                       volume_id=self.volume_id(directory, "pv", "archive"), secrets=self.secrets)
        self.is_kept("inner", "old", "file")
        self.is_kept("t", "vol", "file")
        self.assertFalse([n for n in os.listdir(self.path()) if n.startswith("archived-")])

    def test_delete_is_done_in_its_place(self):
        self.delete(self.volume_id("inner/old", "pv"))
        self.assertEqual(os.listdir(self.path("inner")), ["lost+found"])
        self.delete(self.volume_id("inner/old", "pv"))

    def test_what_is_mounted_stays(self):
        for directory in ("inner", "t/vol"):
            self.fails(REFUSED, self.client.DeleteVolume, "is a mount point", "retain",
                       volume_id=self.volume_id(directory, "pv"), secrets=self.secrets)
        self.is_kept("inner", "old", "file")
        self.is_kept("t", "vol", "file")
        self.delete(self.volume_id("t/vol", "pv", "retain"))

    def test_snapshot_and_clone_of_one(self):
        """Reading is possible: what is made of it goes where it belongs. The volume may be all of
        such a file system, whose root a server tells apart."""
        for directory, below in (("inner/old", ()), ("inner", ("old",)), ("t/vol", ())):
            with self.subTest(directory=directory):
                source = self.volume_id(directory, "pv")
                snapshot = self.client.CreateSnapshot(name="snap", source_volume_id=source,
                                                      secrets=self.secrets).snapshot.snapshot_id
                for content in ({"volume": {"volume_id": source}},
                                {"snapshot": {"snapshot_id": snapshot}}):
                    request = self.request("copy")
                    request["volume_content_source"] = content
                    volume = self.client.CreateVolume(**request).volume.volume_id
                    self.is_kept("copy", *below, "file")
                    self.delete(volume)
                self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)


class Hidden(Inner):
    """Likewise, but without crossmnt: each is exported by a line of its own, so that version 4
    shows it, and version 3 the directory underneath. The options name no version. The share has
    one path over both: a folder below the root of version 4, mounted where its path leads in
    version 3."""

    options = OnKernel.options.replace(",crossmnt", "")
    without = ("4.2",)  # which has extended attributes, for which a copy would stay on it
    flags = ()
    share = os.path.join(DISK, "same")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.makedirs(cls.share)
        servers.run("mount", "--bind", cls.image.path + cls.share, cls.share)
        cls.addClassCleanup(servers.run, "umount", cls.share)
        for fsid, path in enumerate([cls.share] + [i.path for i in cls.mounted], 7):
            servers.run("exportfs", "-i", "-o", cls.options.replace("fsid=0", "fsid=%d" % fsid),
                        "*:" + path)

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.image.path + cls.share, *parts)


class FoldingOnVersion3(Folding, Base):
    version = "3"


class FoldingOnVersion4(Folding, Base):
    version = "4"


class InnerOnVersion3(Inner, Base):
    version = "3"


class InnerOnVersion4(Inner, Base):
    version = "4"


class InnerHiddenFromVersion3(Hidden, Base):
    pass


if __name__ == "__main__":
    harness.main("owners")
