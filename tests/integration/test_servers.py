# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The life of volumes on servers that differ: made, listed, filled, copied, deleted and purged, on
each server of doc/servers.md that runs in user space. test_servers_kernel.py has the kernel's own.
Runs inside a lab.
"""
import contextlib
import os
import random
import signal
import sys
import time
import unittest

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import lives
from cases import CODE, GIB, LAB, STATE
from csi_client import capability
from lives import Folder, Life, Memory, Unseen
from odd_server import (ACCES, GARBAGE_ARGS, INVAL, IO, NONE, NOTSUPP, PERM, PROC_UNAVAIL,
                        PROG_MISMATCH, PROG_UNAVAIL, SILENT, SYSTEM_ERR, Habits)
from servers import Export, Ganesha, GoNfs

MINORS = ("4.0", "4.1", "4.2")
REFUSED = (CODE.ALREADY_EXISTS, CODE.FAILED_PRECONDITION)
COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


# ---- the tests' own server ----


class Plain(Life, Memory, unittest.TestCase):
    """The tests' own server, when it is like others."""

    habits = Habits()

    def test_two_names_of_the_server(self):
        """Its volumes are listed once, on one page and on many."""
        made = [self.create("one").volume_id, self.create("two").volume_id]
        request = self.request("three")
        request["parameters"]["server"] = "localhost"
        made.append(self.client.CreateVolume(**request).volume.volume_id)
        for _ in range(2):
            listed = [e.volume.volume_id for e in self.client.ListVolumes().entries]
            self.assertEqual(sorted(listed), sorted(made))
        paged, token = [], "begin"
        while token and len(paged) < 2 * len(made):
            token = "" if token == "begin" else token
            answer = self.client.ListVolumes(max_entries=1, starting_token=token)
            paged += [e.volume.volume_id for e in answer.entries]
            token = answer.next_token
        self.assertEqual(paged, listed)
        for volume_id in made:
            self.delete(volume_id)
        self.is_clean()


class WithoutReaddirplus(Life, Memory, unittest.TestCase):
    """unfs3 and others have no READDIRPLUS."""

    habits = Habits(plus=False)

    def test_life(self):
        super().test_life()
        self.assertGreater(self.server.counts["readdir"], self.server.counts["readdirplus"])


class Killed:
    """A driver that is killed at any call."""

    def test_killed(self):
        """Killed at each of its calls, a driver leaves what the next one finishes."""
        calls = [0]

        def count(_procedure):
            calls[0] += 1
            if calls[0] == at:
                self.driver.process.kill()  # the call is still carried out

        at = 0
        self.life_of_one()  # makes the folders
        self.server.hook = count
        self.life_of_one()
        total, first = calls[0], random.randrange(1, 10)
        self.assertGreater(total, 40)
        for at in range(1 if harness.LONG else first, total + 1, 1 if harness.LONG else 9):
            with self.subTest(call=at):
                calls[0] = 0
                with contextlib.suppress(grpc.RpcError):  # the purger may make the last calls
                    self.life_of_one()
                at = 0
                self.driver.restart(signal.SIGKILL)
                lives.insist(self.life_of_one)
        self.server.hook = None

    def life_of_one(self):
        """Like lives.live(), for one volume whose path has notes and whose record has parts."""
        fields = {"subDir": "above/one", "csi.storage.k8s.io__pvc__name": "n" * 1200}
        volume_id = self.create("one", **fields).volume_id
        self.client.ControllerExpandVolume(
            volume_id=volume_id, capacity_range={"required_bytes": 2 * GIB}, secrets=self.secrets)
        self.delete(volume_id)
        left = {n: t for n, t in self.left().items() if not n.startswith(STATE + "/trash/")}
        self.assertEqual(left, {})


class WithoutLinks(Killed, Memory, unittest.TestCase):
    """Servers without symbolic links: records are files."""

    habits = Habits(symlink=PERM)
    options = ("--replica-timeout", "1")

    def test_life(self):
        for status in (PERM, ACCES, NOTSUPP, INVAL):
            with self.subTest(status=status):
                self.server.habits.symlink = status
                lives.live(self)

    def setUp(self):
        """Begin with an empty share and a driver that knows nothing of it."""
        cls = type(self)
        cls.server.stop()
        cls.server = cls.start_server()
        cls.server.habits.symlink = PERM
        self.restart()

    def state_files(self, folder):
        return self.tree("%s/%s" % (STATE, folder))

    def test_record_that_was_cut_short(self):
        """It excludes others while its writer may be alive, and is not there after that."""
        self.create("first")
        for name, data in (("empty", b""), ("begun", b"v=1;name=beg"), ("zeros", bytes(300))):
            self.put("%s/volumes/%s" % (STATE, name), data)
            self.fails((CODE.ABORTED,), self.client.CreateVolume, name, **self.request(name))
        listed = [e.volume.volume_id for e in self.client.ListVolumes().entries]
        self.assertEqual(listed, [self.volume_id("first")])
        time.sleep(1.5)
        for name in ("empty", "begun", "zeros"):
            volume = self.create(name)
            self.assertEqual(self.create(name), volume)
        self.assertEqual(len(self.client.ListVolumes().entries), 4)
        for name in ("first", "empty", "begun", "zeros"):
            self.delete(self.volume_id(name))
        self.is_clean()

    def test_links_of_before(self):
        """A share whose records are links keeps them as they are."""
        self.server.habits.symlink = 0
        self.restart()
        self.create("old")
        links = {n: t for n, t in self.state_files("volumes").items() if isinstance(t, str)}
        self.assertEqual(list(links), ["old"])
        self.server.habits.symlink = PERM
        self.restart()
        self.create("new")
        self.assertEqual(self.create("old").volume_id, self.volume_id("old"))
        self.assertEqual(len(self.client.ListVolumes().entries), 2)
        found = self.state_files("volumes")
        self.assertEqual(found["old"], links["old"])
        self.assertTrue(found["new"].startswith(b"v=1;"))
        for name in ("old", "new"):
            self.delete(self.volume_id(name))
        self.is_clean()

    def test_two_replicas(self):
        """
        Of two that create one volume at once, none finds half a record. Without links, both may
        find the other one at work.
        """
        second = lives.Replica(self)
        try:
            for number in range(10):
                name = "both-%d" % number
                answers = second.together(self, name)
                self.assertLessEqual(set(answers), {"OK", "ABORTED"})
                self.assertEqual(self.create(name).volume_id, self.volume_id(name))
                self.delete(self.volume_id(name))
        finally:
            second.stop()
        self.is_clean()


class WithLinks(Killed, Memory, unittest.TestCase):
    """The same for records that are links."""

    habits = Habits()
    options = ("--replica-timeout", "1")


class AuthNone(Life, Memory, unittest.TestCase):
    """MOUNT's list has AUTH_NONE alone, and AUTH_SYS is taken: the server knows who we are."""

    habits = Habits(flavors=(NONE,))

    def test_life(self):
        super().test_life()
        self.create("owned", uid="1234", gid="5678")
        self.assertEqual(self.server.find("owned").uid, 1234)
        self.delete(self.volume_id("owned"))


class AuthNoneOnly(Life, Memory, unittest.TestCase):
    """The same where calls with AUTH_SYS are rejected."""

    habits = Habits(flavors=(NONE,), takes=(NONE,), owners=False)


class AuthSysAbsent(Memory, unittest.TestCase):
    """A list of other flavors still excludes us."""

    habits = Habits(flavors=(390003,))

    def test_refused(self):
        self.fails((CODE.FAILED_PRECONDITION,), self.client.CreateVolume, "AUTH_SYS",
                   **self.request("x"))


class WithoutCompound(Life, Memory, unittest.TestCase):
    """NULL of version 4 is answered, COMPOUND is refused: version 3 is used."""

    habits = Habits(compound=PROC_UNAVAIL)
    version = None  # nobody says which

    def test_life(self):
        for refusal in (PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR):
            with self.subTest(refusal=refusal):
                self.server.habits.compound = refusal
                self.restart()
                before = self.server.counts.get("compound", 0)
                lives.live(self)
                self.assertGreater(self.server.counts["compound"], before)

    def test_silence(self):
        """A server that is in trouble is silent, too: no other version is used in its place."""
        self.server.habits.compound = SILENT
        self.restart()
        self.addCleanup(self.restart)  # it takes the server for dead
        before = dict(self.server.counts)
        self.fails((CODE.UNAVAILABLE,), self.client.CreateVolume, "does not answer",
                   **self.request("x"))
        calls = {n: c - before.get(n, 0) for n, c in self.server.counts.items()}
        self.assertGreater(calls.pop("compound"), 0)
        self.assertEqual(set(calls.values()), {0}, calls)

    def test_version_that_was_asked_for(self):
        """It is not replaced by another one."""
        self.server.habits.compound = PROC_UNAVAIL
        request = self.request("x")
        flags = self.server.flags("4")
        request["volume_capabilities"] = [capability(flags=flags)]
        request["secrets"] = {"mountOptions": ",".join(flags)}
        self.fails((CODE.FAILED_PRECONDITION,), self.client.CreateVolume, "NFSv4", **request)


class OddErrors(Life, Memory, unittest.TestCase):
    """RMDIR of a full directory is answered IO, SYMLINK for an existing name ACCES, and CREATE
    follows a symbolic link."""

    habits = Habits(rmdir_full=IO, symlink_exists=ACCES, follows=True)

    def test_records_stay_links(self):
        self.create("one")
        self.assertEqual(self.create("one").volume_id, self.volume_id("one"))
        kinds = {type(t) for n, t in self.tree(STATE).items() if n.startswith("volumes/")}
        self.assertEqual(kinds, {str})
        self.delete(self.volume_id("one"))
        self.is_clean()


class WithoutHardLinks(Life, Memory, unittest.TestCase):
    """LINK is not supported. A tree with hard links is not copied as something else."""

    habits = Habits(link=NOTSUPP)

    def test_clone(self):
        source = self.create("source")
        self.put("source/one", b"data")
        self.server.link("source/one", "two")
        request = self.request("clone", source={"volume": {"volume_id": source.volume_id}})
        self.fails((CODE.FAILED_PRECONDITION,), self.client.CreateVolume, "linking 'two'",
                   **request)
        self.delete(source.volume_id)
        self.is_clean()


class FoldsCase(Life, Memory, unittest.TestCase):
    """Names that differ in case only are the same."""

    habits = Habits(folds=True)

    def test_names_that_differ_in_case(self):
        volume = self.create("name")
        self.put("name/file", b"data")
        self.fails((CODE.ALREADY_EXISTS, CODE.FAILED_PRECONDITION), self.client.CreateVolume,
                   **self.request("NAME"))
        self.delete(self.volume_id("NAME"))
        self.assertEqual(self.tree("name"), {"file": b"data"})
        self.delete(volume.volume_id)
        self.is_clean()


class Normalizes(Life, Memory, unittest.TestCase):
    """A name in composed and in decomposed characters is the same, and is kept as it was given."""

    habits = Habits(normalizes="NFD", keeps_form=True)

    def pairs(self):
        """Each form first, on an empty share."""
        for mine, theirs in ((COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)):
            with self.subTest(mine=ascii(mine)):
                yield mine, theirs
                self.is_clean()

    def is_kept(self, path):
        self.assertEqual(self.server.find(path).data, b"data")

    def test_names(self):
        """The second volume does not get the first one's directory."""
        for mine, theirs in self.pairs():
            volume = self.create(mine)
            self.put(mine + "/file", b"data")
            for _ in range(2):
                self.fails(REFUSED, self.client.CreateVolume, **self.request(theirs))
            self.delete(self.volume_id(theirs))
            self.is_kept(mine + "/file")
            self.delete(volume.volume_id)

    def test_claims(self):
        """Nor by a pattern, for the directory itself or for one in it."""
        for mine, theirs in self.pairs():
            namespace = "csi.storage.k8s.io__pvc__namespace"
            fields = {"subDir": "${pvc.metadata.namespace}"}
            volume = self.create("one", **fields, **{namespace: mine})
            self.put(mine + "/file", b"data")
            for more in ({}, {"subDir": fields["subDir"] + "/${pvc.metadata.name}",
                              "csi.storage.k8s.io__pvc__name": "inner"}):
                self.fails(REFUSED, self.client.CreateVolume,
                           **self.request("two", **{**fields, namespace: theirs, **more}))
            for directory in (theirs, theirs + "/inner"):
                self.delete(self.volume_id(directory, "two"))
            self.is_kept(mine + "/file")
            self.delete(volume.volume_id)

    def test_constants(self):
        """Volumes with a constant subDir may share a directory. It goes with the last one."""
        for mine, theirs in self.pairs():
            for inner in ("", "/inner"):
                outer = self.create("one", subDir=mine).volume_id
                other = self.create("two", subDir=theirs + inner).volume_id
                self.put(mine + inner + "/file", b"data")
                self.delete(other)
                self.is_kept(mine + inner + "/file")
                self.delete(outer)

    def test_neighbors(self):
        """A directory above two volumes goes with the last one, whichever form they call it by."""
        volumes = [self.create("one", subDir=COMPOSED + "/one"),
                   self.create("two", subDir=DECOMPOSED + "/two")]
        self.put(DECOMPOSED + "/two/file", b"data")
        self.delete(volumes[0].volume_id)
        self.assertEqual(self.server.find(COMPOSED + "/two/file").data, b"data")
        self.delete(volumes[1].volume_id)
        self.is_clean()

    def test_copies(self):
        """Clones and restores have each entry once, also where a name is listed in another form."""
        source = self.create("source")
        content = {COMPOSED: b"composed", "folder/" + DECOMPOSED: b"decomposed"}
        for path, data in content.items():
            self.put("source/" + path, data)
        copies = lives.copy(self, source, self.tree("source"))
        for volume in copies + [source]:
            self.delete(volume.volume_id)
        self.is_clean()


class NormalizesLists(Normalizes):
    """The same where a name is listed in decomposed characters, however it was given."""

    habits = Habits(normalizes="NFD")


class IgnoresOwners(Memory, unittest.TestCase):
    """SETATTR of an owner is answered OK and changes nothing."""

    habits = Habits(owners=False)

    def test_clone(self):
        """A copy that would lose owners fails, and leaves no set-id file of root's."""
        source = self.create("source")
        self.put("source/file", b"data")
        node = self.server.find("source/file")
        node.uid, node.mode = 1000, 0o4755
        request = self.request("clone", source={"volume": {"volume_id": source.volume_id}})
        self.fails((CODE.FAILED_PRECONDITION,), self.client.CreateVolume,
                   "has not set this owner", **request)
        left = [n for n in self.server.nodes.values() if n.mode & 0o6000 and n is not node]
        self.assertEqual(left, [])
        self.delete(source.volume_id)
        self.is_clean()

    def test_owned_volume(self):
        """A volume does not silently get another owner than it asks for."""
        self.fails((CODE.FAILED_PRECONDITION,), self.client.CreateVolume,
                   "has not set this owner", **self.request("owned", uid="1234", gid="5678"))
        self.is_clean()


class LikeVfat(Life, Memory, unittest.TestCase):
    """No links of either kind, times of two seconds, no owners, names without case."""

    habits = Habits(symlink=PERM, link=PERM, folds=True, grain=2, owners=False)


# ---- real ones ----


@unittest.skipUnless("CSI_NFS_GO_NFS" in os.environ, "go-nfs was not built: it needs Go")
class OnGoNfs(Life, Folder, unittest.TestCase):
    """go-nfs, a library of servers in Go."""

    more = ()

    @classmethod
    def start_server(cls):
        return GoNfs(cls.folder, *cls.more).start()


class OnGoNfsWithoutLinks(OnGoNfs):
    """The same without symbolic links, as rclone serves."""

    more = ("-no-links",)

    def has_links(self):
        return False


class OnGanesha(Life, Folder, unittest.TestCase):
    """nfs-ganesha on a local file system."""

    @classmethod
    def start_server(cls):
        return Ganesha(os.path.join(LAB, cls.__name__), [Export(cls.folder)]).start()


class OnGanesha4(OnGanesha):
    """The same over version 4."""

    def test_life(self):
        for self.version in harness.one_of(MINORS, 2):
            with self.subTest(version=self.version):
                lives.live(self)


class OnGaneshaInMemory(Life, Unseen, unittest.TestCase):
    """nfs-ganesha with a file system of its own, in memory."""

    share = "/memory"

    @classmethod
    def start_server(cls):
        export = Export(cls.share, fsal="MEM")
        return Ganesha(os.path.join(LAB, cls.__name__), [export]).start()

    def test_life_again(self):
        """Nothing of the first life is in the way."""
        for self.version in ["3"] + harness.one_of(MINORS, 1):
            with self.subTest(version=self.version):
                lives.live(self)


if __name__ == "__main__":
    harness.main("servers")
