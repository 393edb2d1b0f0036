# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What lies on a share is input: folders of the driver's that are something else, records that
somebody wrote, damaged or took away, links in place of directories, shares that take nothing or
nothing more, and what crashes leave. Against a real nfs-ganesha, over NFSv3 and NFSv4, in a lab.

Everything in a class's place, the share and what is beside it, is compared before and after: what
is not a volume's stays as it was.
"""
import errno
import os
import stat
import sys

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
from cases import CODE, DISK, GIB, STATE, Base, OnServer
from csi_client import capability
from servers import Export, Image

REFUSED = CODE.FAILED_PRECONDITION
TAKEN = (REFUSED, CODE.ALREADY_EXISTS)  # CreateVolume, where the record tells something else
FOLDERS = tuple(os.path.join(STATE, name) if name else STATE
                for name in ("", "volumes", "parents", "trash", "users", "busy"))
USERS = FOLDERS[4]
POLICIES = ("delete", "archive", "retain")
HASH = "0123456789abcdef"
LONG = {"csi.storage.k8s.io__pvc__name": "n" * 1200}  # makes a record of two parts


def look(path):
    """Everything below path, by name: its kind and mode, and its text or target. The folder of
    the directories' users, and that of calls at work, may come with any call: they are shown when
    there is something in them. The image of a file system below path is left out: the kernel
    writes to it when it likes."""
    found = {}
    for here, folders, names in os.walk(path):
        names = [name for name in names if not name.endswith(".image")]
        for name in ("users", "busy"):
            if os.path.basename(here) == STATE and name in folders:
                if not os.listdir(os.path.join(here, name)):
                    folders.remove(name)
        for name in folders + names:
            full = os.path.join(here, name)
            text = None
            try:
                status = os.lstat(full)
                if stat.S_ISLNK(status.st_mode):
                    text = os.readlink(full)
                elif stat.S_ISREG(status.st_mode):
                    with open(full, "rb") as f:
                        text = f.read()
            except FileNotFoundError:
                continue  # the purger was faster
            found[os.path.relpath(full, path)] = (oct(status.st_mode), text)
    return found


def write(path, text="data"):
    """A file, with the folders above it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def remove(path):
    """Whatever it is, and if it is."""
    servers.run("rm", "-rf", path)


def empty(path):
    """Makes the folder, or takes away what is in it."""
    os.makedirs(path, exist_ok=True)
    for name in os.listdir(path):
        remove(os.path.join(path, name))


def fnv(text):
    """The hash that the names of a record's parts hold: FNV-1a."""
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % (1 << 64)
    return "%016x" % value


class Asking(OnServer):
    """Calls about one volume, and a look at everything after each."""

    def calls(self, name, volume_id=None, share=None, **parameters):
        """Every call that is about a volume, by method, with its fields."""
        volume_id = volume_id or self.volume_id(name, share=share)
        known = {"volume_id": volume_id, "secrets": self.secrets}
        return {
            "CreateVolume": self.request(name, share=share, **parameters),
            "DeleteVolume": known,
            "ControllerGetVolume": {"volume_id": volume_id},
            "ControllerExpandVolume": dict(known, capacity_range={"required_bytes": 3 * GIB}),
            "ValidateVolumeCapabilities": dict(known, volume_capabilities=[capability()])}

    def are_refused(self, calls, *words, code=REFUSED, creating=None):
        """Each call fails, says why, and changes nothing anywhere."""
        before = look(self.place)
        for method, fields in calls.items():
            with self.subTest(method=method):
                codes = creating if creating and method == "CreateVolume" else code
                self.fails(codes, getattr(self.client, method), *words, **fields)
                self.assertEqual(look(self.place), before)

    def expand(self, volume_id, size):
        return self.client.ControllerExpandVolume(
            volume_id=volume_id, secrets=self.secrets,
            capacity_range={"required_bytes": size}).capacity_bytes

    def shown(self, volume_id):
        return self.client.ControllerGetVolume(volume_id=volume_id)

    def is_well(self, volume_id):
        return not self.shown(volume_id).status.volume_condition.abnormal

    def entries(self):
        return {e.volume.volume_id: e for e in self.client.ListVolumes().entries}


class Records(Asking):
    """A share with a volume of its own, good, a folder that is not the driver's, canary, and a
    folder outside of it that nothing may reach."""

    def setUp(self):
        with self.server_down():
            empty(self.share)
            empty(self.outside)
            for name in ("one", "two/three"):
                write(os.path.join(self.outside, name), "outside " + name)
                write(self.path("canary", name), "inside " + name)
        self.driver.restart()
        # From now on the driver knows the server's ports.
        self.good = self.create("good").volume_id
        with self.server_down():
            write(self.path("good", "file"))

    @property
    def outside(self):
        return os.path.join(self.place, "outside")

    def state(self, *parts):
        return self.path(STATE, *parts)

    def record(self, key):
        return self.state("volumes", key)

    def stays(self, before, *but):
        """All is as it was, but for the driver's own folders, when the purger has done its work."""
        def now():
            return {k: v for k, v in look(self.place).items() if k not in spared}
        spared = [os.path.join("share", f) for f in FOLDERS + but]
        wanted = {k: v for k, v in before.items() if k not in spared}
        servers.wait_for(lambda: now() == wanted, 15)
        self.assertEqual(now(), wanted)

    def restore(self, before):
        """Takes away what came since, for the next row."""
        with self.server_down():
            for path in set(look(self.place)) - set(before):
                remove(os.path.join(self.place, path))

    def lives(self):
        """A volume from its creation to its deletion, after which nothing of it is left."""
        before = look(self.place)
        volume_id = self.create("life").volume_id
        with self.server_down():
            write(self.path("life", "deep", "file"))
        self.assertTrue(self.is_well(volume_id))
        self.assertEqual(self.expand(volume_id, 2 * GIB), 2 * GIB)
        self.assertIn(volume_id, self.entries())
        self.delete(volume_id)
        self.stays(before)

    # ---- the driver's own folders ----

    def test_state_is_something_else(self):
        """A way out of the share is not taken, wherever it begins."""
        for name in FOLDERS[:2]:
            for row, target in (("a link out of the share", "../outside/state"),
                                ("a link from its folder out of the share", "../../outside/state"),
                                ("an absolute link", os.path.join(self.outside, "state")),
                                ("a link within the share", "canary"),
                                ("a link to nowhere", "nowhere"),
                                ("a link to itself", os.path.basename(name)),
                                ("a file", None)):
                with self.subTest(name=name, row=row):
                    with self.server_down():
                        self._lay_trap(os.path.join(self.outside, "state"))
                        self._lay_trap(self.path("canary"))
                        os.rename(self.path(name), self.path("kept"))
                        if target is None:
                            write(self.path(name), "not a folder")
                        else:
                            os.symlink(target, self.path(name))
                    calls = self.calls("bad")
                    calls["ListVolumes"] = {}
                    self.are_refused(calls, "'%s'" % os.path.basename(name), "not a directory")
                    with self.server_down():
                        os.unlink(self.path(name))
                        os.rename(self.path("kept"), self.path(name))
                    self.assertEqual(list(self.entries()), [self.good])

    def _lay_trap(self, place):
        """Who follows a link there finds all as the driver would have it."""
        for folder in (place, os.path.join(place, "volumes")):
            os.makedirs(folder, exist_ok=True)
            remove(os.path.join(folder, "bad"))
            os.symlink("v=1;name=bad;id=x;dir=canary", os.path.join(folder, "bad"))

    def test_folder_of_parents_is_a_link(self):
        for target in ("../../outside/parents", "../canary"):
            with self.subTest(target=target):
                with self.server_down():
                    os.makedirs(os.path.join(self.outside, "parents"), exist_ok=True)
                    os.symlink(target, self.state("parents"))
                before = look(self.place)
                self.fails((REFUSED, CODE.ABORTED), self.client.CreateVolume, "'parents'",
                           **self.request("pv", subDir="team/claim"))
                retried = [USERS + "/team", USERS + "/team/pv", USERS + "/team%2Fclaim",
                           USERS + "/team%2Fclaim/pv", USERS + "/team%2Fclaim%",
                           USERS + "/team%2Fclaim%/pv"]
                self.stays(before, STATE + "/volumes/pv", *retried)  # which wait for a retry
                self.lives()  # which needs no such folder
                with self.server_down():
                    os.unlink(self.state("parents"))
                self.delete(self.create("pv", subDir="team/claim").volume_id)
                self.stays(before, STATE + "/parents")
                with self.server_down():
                    os.rmdir(self.state("parents"))

    def test_trash_is_a_link(self):
        """Neither what is deleted goes there, nor the purger."""
        for target in ("../../outside", "../canary"):
            with self.subTest(target=target):
                with self.server_down():
                    remove(self.state("trash"))
                    os.symlink(target, self.state("trash"))
                self.driver.restart()
                self.are_refused({"DeleteVolume": self.calls("good")["DeleteVolume"]}, "'trash'")
                before = look(self.place)
                self.delete(self.create("empty").volume_id)  # after which the purger looks
                self.assertTrue(servers.wait_for(
                    lambda: "Purging deleted volumes failed" in self.driver.tail(), 10))
                self.assertEqual(look(self.place), before)
                with self.server_down():
                    os.unlink(self.state("trash"))
                    os.unlink(self.driver.log)
        self.driver.restart()
        self.lives()

    def test_links_in_the_trash(self):
        """The purger takes the links away, not what they lead to."""
        before = look(self.place)
        with self.server_down():
            os.makedirs(self.state("trash", "dir"))
            for name in ("up", "dir/up"):
                os.symlink(self.outside, self.state("trash", name))
                os.symlink("../../canary", self.state("trash", name + "-in"))
        self.driver.restart()
        self.delete(self.create("empty").volume_id)
        self.stays(before)

    # ---- records ----

    def whole(self, key, **more):
        """The text of a record as the driver writes it, or with other values."""
        pairs = {"name": key, "id": self.volume_id(key).replace("#", "%23"), "dir": key,
                 "size": str(GIB), "mode": "0000", "ondelete": "delete"}
        pairs.update(more)
        return ";".join(["v=1"] + ["%s=%s" % p for p in pairs.items()])

    def plant(self, key, what):
        """A record, which is a text or made by a function, and a directory with a file in it."""
        write(self.path(key, "file"), "of " + key)
        if callable(what):
            what(self.record(key))
        else:
            os.symlink(what, self.record(key))

    def are_bad(self, rows, listed=True):
        """No call takes these for a volume's record, or does anything to the volume's directory.
        What depends on the key is a function of it."""
        keys = {row: "bad-%d" % i for i, row in enumerate(rows)}
        with self.server_down():
            for row, what in rows.items():
                self.plant(keys[row], what(keys[row]) if callable(what) else what)
        for row, key in keys.items():
            with self.subTest(row=row):
                self.are_refused(self.calls(key), "'%s'" % key, creating=TAKEN)
        if listed:
            self.assertEqual(list(self.entries()), [self.good])

    def test_text_is_no_record(self):
        self.are_bad({
            "cut in the version": "v",
            "cut after a key": "v=1;name",
            "cut behind a pair": "v=1;name=x;",
            "cut in an escape": "v=1;name=x;dir=a%2",
            "no version": "name=x;dir=canary",
            "version 0": "v=0;name=x;dir=canary",
            "no number": "v=one;name=x;dir=canary",
            "a later version": lambda key: self.whole(key).replace("v=1", "v=2"),
            "a much later version": "v=4294967295;anything goes",
            "too late a version": "v=4294967296;dir=canary",
            "a path": "../../etc/passwd",
            "an absolute path": "/etc/passwd",
            "a name": "canary",
            "no key": "v=1;=canary",
            "no escape": "v=1;name=x;dir=%zz",
            "NUL": "v=1;name=x;dir=canary%00",
            "a space": "v=1;name=a b;dir=canary",
            "a byte": b"v=1;name=\xff;dir=canary",
            "the directory twice": lambda key: self.whole(key) + ";dir=canary",
            "the same twice": lambda key: self.whole(key) + ";dir=" + key,
            "an unknown key twice": lambda key: self.whole(key) + ";x=1;x=2"})

    def test_later_version_says_upgrade(self):
        with self.server_down():
            self.plant("later", "v=2;name=later")
        self.are_refused(self.calls("later"), "'later'", "upgrade")

    def test_not_a_link(self):
        def full_folder(path):
            write(os.path.join(path, "bad"), "v=1;name=bad;dir=canary")
        self.are_bad({
            "a file": lambda key: lambda path: write(path, self.whole(key)),
            "an empty file": lambda key: lambda path: write(path, ""),
            "a folder": lambda key: os.mkdir,
            "a full folder": lambda key: full_folder,
            "a pipe": lambda key: os.mkfifo})

    @staticmethod
    def parted(count, *parts, number=None):
        """A record in parts: each a text, made by a function, or None for one that is missing."""
        number = number or fnv("".join(p for p in parts if isinstance(p, str)))

        def make(path):
            os.symlink("v=1;parts=%s;hash=%s" % (count, number), path)
            for i, part in enumerate(parts):
                name = "%s~%s.%d" % (path, number, i)
                if callable(part):
                    part(name)
                elif part is not None:
                    os.symlink(part, name)
        return lambda key: make

    def test_parts_are_not_right(self):
        good = ("v=1;name=x;", "dir=canary")
        self.are_bad({
            "none is there": "v=1;parts=2;hash=" + HASH,
            "no hash": "v=1;parts=2",
            "no number": "v=1;hash=" + HASH,
            "no hash, but a directory": lambda key: self.whole(key) + ";parts=2",
            "0, but a directory": lambda key: self.whole(key) + ";parts=0;hash=0",
            "0": "v=1;parts=0;hash=0",
            "99": "v=1;parts=99;hash=" + HASH,
            "-1": "v=1;parts=-1;hash=" + HASH,
            "a hash of letters": "v=1;parts=1;hash=letters",
            "too long a hash": "v=1;parts=1;hash=1" + HASH,
            "the first is missing": self.parted(2, None, good[1], number=fnv("".join(good))),
            "the last is missing": self.parted(2, good[0], number=fnv("".join(good))),
            "one too many": self.parted(1, *good),
            "another hash": self.parted(2, *good, number=HASH),
            "a folder": self.parted(2, good[0], os.mkdir),
            "a file": self.parted(2, good[0], write),
            "no record": self.parted(2, "../..", "/etc/passwd"),
            "a later version": self.parted(2, "v=2;name=x;", good[1]),
            "parts of parts": self.parted(1, "v=1;parts=1;hash=" + HASH)})

    def test_parts_are_right(self):
        """So that the rows above fail for what they are named after."""
        before = look(self.place)
        with self.server_down():
            text = self.whole("parted", **{"p.x": "y" * 1000})
            self.plant("parted", self.parted(2, text[:1000], text[1000:])("parted"))
        volume_id = self.volume_id("parted")
        self.assertEqual(self.shown(volume_id).volume.capacity_bytes, GIB)
        self.assertIn(volume_id, self.entries())
        self.delete(volume_id)
        self.stays(before)

    def test_directory_leads_elsewhere(self):
        rows = ("..", "../x", "../outside", "../../etc", "canary/../canary", ".", "./canary",
                "/etc", "/canary", "", "canary/", "canary//two", STATE, STATE + "/volumes",
                "canary/" + STATE, "canary%0Atwo", "canary%23two", "x" * 256)
        self.are_bad({"dir=" + d: lambda key, d=d: self.whole(key, dir=d) for d in rows},
                     listed=False)
        bad = [self.volume_id("bad-%d" % i) for i in range(len(rows))]
        self.are_listed({volume_id: "does not name a directory" for volume_id in bad})

    def test_no_directory_is_told(self):
        self.are_bad({"no dir": lambda key: self.whole(key).replace(";dir=" + key, ""),
                      "another case": lambda key: self.whole(key).replace(";dir=", ";Dir=")})

    def test_strange_values(self):
        """What else a record tells does no harm: a size that is none is no size, and so on."""
        rows = {"no size": {"size": ""}, "size in letters": {"size": "much"},
                "negative size": {"size": "-1"}, "large size": {"size": "9223372036854775808"},
                "mode": {"mode": "rwx"}, "policy": {"ondelete": "burn"}, "key": {"unknown": "x"}}
        with self.server_down():
            for i, more in enumerate(rows.values()):
                self.plant("odd-%d" % i, self.whole("odd-%d" % i, **more))
        for i, row in enumerate(rows):
            with self.subTest(row=row):
                key = "odd-%d" % i
                volume_id = self.volume_id(key)
                self.assertEqual(self.shown(volume_id).volume.capacity_bytes,
                                 0 if "size" in row else GIB)
                self.assertEqual(self.entries()[volume_id].volume.capacity_bytes,
                                 0 if "size" in row else GIB)
                self.assertEqual(self.expand(volume_id, 2 * GIB), 2 * GIB)
                if row == "key":
                    self.assertIn(";unknown=x", os.readlink(self.record(key)))
                self.delete(volume_id)
                self.assertFalse(os.path.lexists(self.record(key)))
                # Nobody knows what was wanted: nothing is lost.
                self.assertEqual(os.path.lexists(self.path(key)), row == "policy")

    def test_copied_record(self):
        """An administrator has kept a copy beside the record: the volume is listed once."""
        with self.server_down():
            os.symlink(os.readlink(self.record("good")), self.record("good.kept"))
        self.assertEqual([e.volume.volume_id for e in self.client.ListVolumes().entries],
                         [self.good])
        self.assertIn("somebody has copied it", self.driver.tail())

    # ---- something else in place of directories ----

    def put_in_place(self, path, target):
        """A link to the target, or a file for None."""
        if target is None:
            write(path, "not a directory")
        else:
            os.symlink(target, path)

    def targets(self):
        return {"a folder within the share": "canary", "another volume": "good", "the share": ".",
                "a folder outside": self.outside, "up to a folder outside": "../outside",
                "/etc": "/etc", "nowhere": "nowhere", "a file": None}

    def test_directory_is_something_else(self):
        """It is neither deleted nor archived, nor taken for the volume's directory again."""
        for policy in POLICIES:
            for row, target in self.targets().items():
                with self.subTest(policy=policy, row=row):
                    before = look(self.place)
                    volume_id = self.create("linked", onDelete=policy).volume_id
                    with self.server_down():
                        os.rmdir(self.path("linked"))
                        self.put_in_place(self.path("linked"), target)
                    calls = self.calls("linked", volume_id, onDelete=policy)
                    words = ("'linked'", "symbolic link" if target else "not a directory")
                    self.are_refused({"CreateVolume": calls["CreateVolume"]}, *words)
                    if policy == "retain":
                        self.delete(volume_id)  # and leaves it there
                        self.assertTrue(os.path.lexists(self.path("linked")))
                    else:
                        self.are_refused({"DeleteVolume": calls["DeleteVolume"]}, *words)
                    with self.server_down():
                        os.unlink(self.path("linked"))
                    self.delete(volume_id)
                    self.stays(before)

    def test_something_else_without_record(self):
        for row, target in self.targets().items():
            with self.subTest(row=row):
                with self.server_down():
                    self.put_in_place(self.path("linked"), target)
                words = ("'linked'", "symbolic link" if target else "not a directory")
                self.are_refused({"CreateVolume": self.request("linked")}, *words)
                for policy in ("", "archive"):
                    self.are_refused({"DeleteVolume": {
                        "volume_id": self.volume_id("linked", "", policy),
                        "secrets": self.secrets}}, *words)
                with self.server_down():
                    os.unlink(self.path("linked"))

    def test_parent_is_something_else(self):
        """At each level of a subDir. Where the link leads there is a directory of that name."""
        with self.server_down():
            for place in (self.outside, self.path("canary"), self.path("good"), self.path()):
                for deep in ("c", "b/c"):
                    write(os.path.join(place, deep, "precious"))
        for policy in POLICIES[:2]:
            for level in (1, 2):
                for row, target in self.targets().items():
                    with self.subTest(policy=policy, level=level, row=row):
                        self._parent_is(target, self.path(*"ab"[:level]), policy)

    def _parent_is(self, target, parent, policy):
        before = look(self.place)
        volume_id = self.create("pv", subDir="a/b/c", onDelete=policy).volume_id
        with self.server_down():
            os.rename(parent, self.path("moved"))
            self.put_in_place(parent, target)
        self.are_refused(self.calls("pv", volume_id, subDir="a/b/c", onDelete=policy),
                         "'%s'" % os.path.relpath(parent, self.share),
                         "symbolic link" if target else "not a directory")
        with self.server_down():
            os.unlink(parent)
            os.rename(self.path("moved"), parent)
        self.delete(volume_id)
        self.restore(before)  # of what was archived
        self.stays(before)

    def test_new_volume_below_something_else(self):
        for row, target in self.targets().items():
            for subdir in ("a/new", "a/b/new"):
                with self.subTest(row=row, subDir=subdir):
                    with self.server_down():
                        self.put_in_place(self.path("a"), target)
                    self.are_refused({"CreateVolume": self.request("pv", subDir=subdir)}, "'a'",
                                     "symbolic link" if target else "not a directory")
                    with self.server_down():
                        os.unlink(self.path("a"))

    def are_listed(self, bad):
        """All volumes are listed, and it is told what is wrong with the bad ones."""
        entries = self.entries()
        self.assertEqual(set(entries) - {self.good}, set(bad))
        for volume_id, entry in entries.items():
            condition = entry.status.volume_condition
            self.assertEqual(condition.abnormal, bad.get(volume_id) is not None, condition)
            self.assertIn(bad.get(volume_id) or "", condition.message)

    def test_one_volume_hides_no_other(self):
        """Whoever may write above a volume's directory puts something else there."""
        volumes = {"a/b/c": self.create("deep", subDir="a/b/c").volume_id,
                   "flat": self.create("flat").volume_id}
        targets = self.targets()
        for path in ("a", "a/b", "a/b/c", "flat"):
            for row in ("a folder within the share", "up to a folder outside", "a file"):
                with self.subTest(path=path, row=row):
                    with self.server_down():
                        os.rename(self.path(path), self.path("moved"))
                        self.put_in_place(self.path(path), targets[row])
                    word = "symbolic link" if targets[row] else "not a directory"
                    self.are_listed({volume_id: word if directory.startswith(path) else None
                                     for directory, volume_id in volumes.items()})
                    with self.server_down():
                        os.unlink(self.path(path))
                        os.rename(self.path("moved"), self.path(path))

    # ---- the one without the other ----

    def test_record_without_directory(self):
        for policy in POLICIES:
            for subdir in (None, "a/b/c"):
                with self.subTest(policy=policy, subDir=subdir):
                    before = look(self.place)
                    volume_id = self.create("lone", onDelete=policy, subDir=subdir).volume_id
                    with self.server_down():
                        remove(self.path("a" if subdir else "lone"))
                    self.assertFalse(self.is_well(volume_id))
                    self.assertTrue(self.entries()[volume_id].status.volume_condition.abnormal)
                    calls = self.calls("lone", volume_id)
                    for method in ("ControllerExpandVolume", "ValidateVolumeCapabilities"):
                        self.are_refused({method: calls[method]}, code=CODE.NOT_FOUND)
                    self.delete(volume_id)
                    notes = []
                    if os.path.isdir(self.state("parents")):
                        notes = [STATE + "/parents/" + n for n in os.listdir(self.state("parents"))
                                 if n.split("~")[0] in ("a", "a%2Fb")]
                    # What is retained may be there again: who made its parents stays known.
                    self.stays(before, *(notes if policy == "retain" else ()))
                    self.restore(before)

    def test_directory_is_made_anew(self):
        volume = self.create("lone", mountPermissions="0750")
        with self.server_down():
            os.rmdir(self.path("lone"))
        self.assertEqual(self.create("lone", mountPermissions="0750"), volume)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("lone")).st_mode), 0o750)

    def test_directory_without_record(self):
        """Somebody took the record away: the id tells where the directory is and what to do."""
        for policy in POLICIES:
            for subdir in (None, "a/b/c"):
                with self.subTest(policy=policy, subDir=subdir):
                    before = look(self.place)
                    volume_id = self.create("lone", onDelete=policy, subDir=subdir).volume_id
                    directory = subdir or "lone"
                    with self.server_down():
                        os.unlink(self.record("lone"))
                        write(self.path(directory, "file"), "kept")
                    self.assertTrue(self.is_well(volume_id))
                    self.assertEqual(self.shown(volume_id).volume.capacity_bytes, 0)
                    self.assertEqual(list(self.entries()), [self.good])
                    self.delete(volume_id)
                    self.delete(volume_id)
                    left = {"archive": "archived-" + directory, "retain": directory}.get(policy)
                    if left is not None:
                        with open(self.path(left, "file"), encoding="ascii") as f:
                            self.assertEqual(f.read(), "kept")
                        self.delete(self.volume_id(left, "lone"))
                    self.stays(before)

    def test_created_again_without_record(self):
        volume = self.create("lone")
        with self.server_down():
            os.unlink(self.record("lone"))
            write(self.path("lone", "file"), "kept")
        self.assertEqual(self.create("lone"), volume)
        with open(self.path("lone", "file"), encoding="ascii") as f:
            self.assertEqual(f.read(), "kept")
        self.assertIn(volume.volume_id, self.entries())

    def test_state_is_gone(self):
        """All records, with their folder. Who made the directory a, nobody knows then."""
        volumes = [self.create("v1").volume_id, self.create("v2", subDir="a/b").volume_id]
        with self.server_down():
            remove(self.state())
        self.assertEqual(self.entries(), {})
        for volume_id in volumes:
            self.assertTrue(self.is_well(volume_id))
            self.delete(volume_id)
        self.assertEqual(self.listed(), ["a", "canary", "good"])
        self.lives()

    # ---- what crashes leave ----

    def left_overs(self, key):
        """What may lie beside a record, or where one was."""
        text = self.whole(key, **{"p.x": "y" * 1100})
        number = fnv(text)
        parts = {"~%s.%d" % (number, i): text[i * 1000:i * 1000 + 1000] for i in range(2)}
        head = "v=1;parts=2;hash=" + number
        return {
            "a new one": {"~new": self.whole(key, size=str(7 * GIB))},
            "a new one, damaged": {"~new": "v=1;na"},
            "a new one with parts": dict(parts, **{"~new": head}),
            "a removed one": {"~removed": self.whole(key)},
            "a removed one with parts": dict(parts, **{"~removed": head}),
            "a removed one with one part": {"~removed": head, "~%s.1" % number: text[1000:]},
            "parts of none": parts,
            "a part of another text": {"~%s.0" % HASH: "v=1;name=other"}}

    def test_left_by_a_crash(self):
        """Beside a volume's record, short or long, or where it will be: all calls work."""
        for row, left in self.left_overs("life").items():
            for when in ("before", "after"):
                for more in ({}, LONG):
                    with self.subTest(row=row, when=when, long=bool(more)):
                        self._life_beside(left, when, more)

    def _life_beside(self, left, when, more):
        before = look(self.place)
        if when == "before":
            self._strew(left)
        volume = self.create("life", **more)
        if when == "after":
            self._strew(left)
        self.assertEqual(self.create("life", **more), volume)
        self._shows(volume, GIB)
        for size in (2 * GIB, 3 * GIB):
            self.assertEqual(self.expand(volume.volume_id, size), size)
            self._shows(volume, size)
        self.assertEqual(set(self.entries()), {self.good, volume.volume_id})
        self.delete(volume.volume_id)
        self.delete(volume.volume_id)
        self.fails(CODE.NOT_FOUND, self.client.ControllerGetVolume, volume_id=volume.volume_id)
        self.assertEqual(list(self.entries()), [self.good])
        # Parts that no link names stay: nobody reads them.
        self.stays(before, *(STATE + "/volumes/life" + s for s in left if "." in s))
        self.restore(before)

    def _strew(self, left):
        with self.server_down():
            for suffix, text in left.items():
                os.symlink(text, self.record("life") + suffix)

    def _shows(self, volume, size):
        got = self.shown(volume.volume_id).volume
        self.assertEqual(got.capacity_bytes, size)
        self.assertEqual(dict(got.volume_context), dict(volume.volume_context))

    def test_left_by_a_crash_and_damaged(self):
        """Where a removal was cut short, what tells of it is input too."""
        for row, what in (("a path", "../../etc/passwd"), ("a later version", "v=2;parts=1"),
                          ("a folder", os.mkdir), ("a file", write),
                          ("99 parts", "v=1;parts=99;hash=" + HASH)):
            with self.subTest(row=row):
                with self.server_down():
                    self.plant("gone", what)
                    os.rename(self.record("gone"), self.record("gone~removed"))
                    remove(self.path("gone"))
                self.are_refused({"DeleteVolume": self.calls("gone")["DeleteVolume"],
                                  "CreateVolume": self.request("gone", **LONG)}, "'gone'")
                self.assertEqual(list(self.entries()), [self.good])
                with self.server_down():
                    remove(self.record("gone~removed"))


class Unwritable(Asking):
    """Shares that take nothing, or nothing more: squashed, on a small file system."""

    @classmethod
    def more_exports(cls):
        return [Export(cls.squashed, cls.protocols, squash="Root_Squash"),
                Export(cls.small, cls.protocols)]

    @classmethod
    def setUpClass(cls):
        place = os.path.join(DISK, cls.__name__)
        cls.squashed = os.path.join(place, "squashed")
        cls.image = Image(os.path.join(place, "small"), 4, "mkfs.ext4", "-q", "-F", "-b", "1024",
                          "-m", "0", "-N", "256", "-O", "^has_journal").mount()
        cls.addClassCleanup(cls.image.unmount)
        cls.small = os.path.join(cls.image.path, "share")
        cls.fill = os.path.join(cls.image.path, "fill")
        super().setUpClass()

    def setUp(self):
        self.begin()

    def tearDown(self):
        self.release()

    def begin(self):
        """Empty shares, for each row anew."""
        self.release()
        with self.server_down():
            for share, mode in ((self.squashed, 0o777), (self.small, 0o755)):
                empty(share)
                os.chmod(share, mode)
        self.driver.restart()

    def release(self):
        for here, _, _ in os.walk(self.small):
            servers.run("chattr", "-i", here)
        remove(self.fill)

    def use(self, share):
        """Leaves the driver's own folders there, all of them, and empty."""
        volume = self.create("first", share=share, subDir="first/first")
        with self.server_down():
            write(os.path.join(share, "first", "first", "file"))
        self.delete(volume.volume_id)
        self.is_clean(share)

    def is_refused(self, code, share, *words, **more):
        """CreateVolume fails, and what it leaves is no more than folders of the driver's."""
        before = look(share)
        for _ in range(2):
            self.fails(code, self.client.CreateVolume, *words,
                       **self.request("pv", share=share, **more))
            now = {k: v for k, v in look(share).items() if k in before or k not in FOLDERS}
            self.assertEqual(now, before)

    # ---- modes, owners and flags ----

    ROWS = (  # name, what is closed, parameters of the volume, word of the message
        ("the share", "", {}, "'" + STATE + "'"),
        ("the state folder", STATE, {}, "'volumes'"),
        ("the records' folder", FOLDERS[1], {}, "record 'pv'"),
        ("the parents' folder", FOLDERS[2], {"subDir": "team/claim"}, "record 'team'"),
        ("the share, with state", "", {}, "directory 'pv'"),
        ("the share, with state, nested", "", {"subDir": "team/claim"}, "directory 'team'"),
        ("a directory above", "team", {"subDir": "team/claim"}, "directory 'team/claim'"),
        ("one further above", "team", {"subDir": "team/a/b"}, "directory 'team/a'"))

    def close_each(self, share, close, unclose, *words):
        for row, name, more, word in self.ROWS:
            with self.subTest(row=row):
                self.begin()
                if row not in ("the share", "the state folder"):
                    self.use(share)
                path = os.path.join(share, name)
                with self.server_down():
                    os.makedirs(path, exist_ok=True)
                    close(path)
                self.is_refused(CODE.PERMISSION_DENIED, share, word, *words, **more)
                self.is_refused(CODE.PERMISSION_DENIED, share, word, *words,
                                mountPermissions="0700", **dict(LONG, **more))
                with self.server_down():
                    unclose(path)
                volume = self.create("pv", share=share, **more)
                self.delete(volume.volume_id)
                self.assertEqual(self.records(share), [])

    def test_mode(self):
        def close(path):
            os.chown(path, 0, 0)
            os.chmod(path, 0o555)
        self.close_each(self.squashed, close, lambda path: os.chmod(path, 0o777),
                        "check squashing")

    def test_immutable(self):
        self.close_each(self.small, lambda path: servers.run("chattr", "+i", path),
                        lambda path: servers.run("chattr", "-i", path))

    def test_records_that_cannot_be_read(self):
        """As after squashing was switched on: what root made is closed to nobody."""
        share = self.squashed
        volume_id = self.create("pv", share=share).volume_id
        for name in FOLDERS[:2]:
            with self.subTest(name=name):
                path = os.path.join(share, name)
                before = os.stat(path)
                with self.server_down():
                    os.chown(path, 0, 0)
                    os.chmod(path, 0o700)
                # A caller that creates must not think that there is nothing: it is there.
                self.are_refused(self.calls("pv", volume_id, share), "check squashing",
                                 code=CODE.PERMISSION_DENIED, creating=CODE.ABORTED)
                self.assertNotIn(volume_id, self.entries())  # and other shares are listed
                with self.server_down():
                    os.chown(path, before.st_uid, before.st_gid)
                    os.chmod(path, before.st_mode & 0o7777)
        self.delete(volume_id)
        self.is_clean(share)

    def test_closed_directory_hides_no_other(self):
        """One that somebody has closed above a volume."""
        share = self.squashed
        closed = self.create("closed", share=share, subDir="team/closed").volume_id
        well = self.create("well", share=share).volume_id
        team = os.path.join(share, "team")
        before = os.stat(team)
        with self.server_down():
            os.chown(team, 0, 0)
            os.chmod(team, 0o700)
        entries = self.entries()
        self.assertFalse(entries[well].status.volume_condition.abnormal)
        self.assertTrue(entries[closed].status.volume_condition.abnormal)
        self.assertIn("Permission denied", entries[closed].status.volume_condition.message)
        with self.server_down():
            os.chown(team, before.st_uid, before.st_gid)
            os.chmod(team, before.st_mode & 0o7777)
        for volume_id in (closed, well):
            self.assertFalse(self.entries()[volume_id].status.volume_condition.abnormal)
            self.delete(volume_id)
        self.is_clean(share)

    def test_closed_directory_is_seen_by_its_own(self):
        """One closed to all does not change what is told of one that an identity may enter."""
        share = self.squashed
        ids = {name: self.create(name, share=share, subDir="%s-team/%s" % (name, name)).volume_id
               for name in ("all", "some")}
        paths = {name: os.path.join(share, name + "-team") for name in ids}
        paths["share"] = share
        before = {path: os.stat(path) for path in paths.values()}
        with self.server_down():
            os.chown(share, 1000, 1000)
            os.chmod(share, 0o777)
            os.chown(paths["some"], 1000, 1000)
            os.chmod(paths["some"], 0o700)
        for volume_id in ids.values():
            self.assertFalse(self.entries()[volume_id].status.volume_condition.abnormal)
        with self.server_down():
            os.chown(paths["all"], 0, 0)
            os.chmod(paths["all"], 0o700)
        for name, volume_id in ids.items():
            condition = self.entries()[volume_id].status.volume_condition
            self.assertEqual(condition.abnormal, name == "all", condition.message)
        with self.server_down():
            for path, was in before.items():
                os.chown(path, was.st_uid, was.st_gid)
                os.chmod(path, was.st_mode & 0o7777)
        for volume_id in ids.values():
            self.delete(volume_id)
        self.is_clean(share)

    def test_delete(self):
        """What cannot be removed is not said to be, and goes when it can."""
        share = self.squashed
        for row, name, word in (("the share", "", "directory 'pv'"),
                                ("the records' folder", FOLDERS[1], "record 'pv'"),
                                ("the trash", FOLDERS[3], None)):
            with self.subTest(row=row):
                self.begin()
                self.use(share)
                volume_id = self.create("pv", share=share).volume_id
                path = os.path.join(share, name)
                owner = os.stat(os.path.join(share, STATE)).st_uid
                with self.server_down():
                    write(os.path.join(share, "pv", "deep", "file"))
                    os.chown(os.path.join(share, "pv", "deep"), owner, 0)
                    os.chown(path, 0, 0)
                    os.chmod(path, 0o555)
                if word is not None:
                    self.fails(CODE.PERMISSION_DENIED, self.client.DeleteVolume, word,
                               "check squashing", volume_id=volume_id, secrets=self.secrets)
                    self.assertIn(os.path.join(share, FOLDERS[1], "pv"), self.records(share))
                else:
                    self.delete(volume_id)  # at once, not by way of the trash
                    self.assertEqual((self.listed(share), self.records(share)), ([], []))
                with self.server_down():
                    os.chown(path, owner, 0)
                    os.chmod(path, 0o777)
                self.delete(volume_id)
                self.is_clean(share)

    # ---- full ----

    def leave(self, blocks):
        """The small file system takes so many blocks more."""
        with open(self.fill, "ab", buffering=0) as f:
            for size in (65536, 1024):
                try:
                    while True:
                        f.write(b"x" * size)
                        os.fsync(f.fileno())
                except OSError as e:
                    self.assertEqual(e.errno, errno.ENOSPC)
            size = os.path.getsize(self.fill)
            while os.statvfs(self.image.path).f_bavail < blocks:
                size -= 1024
                f.truncate(size)
                os.fsync(f.fileno())

    KINDS = {"flat": {}, "nested": {"subDir": "a/b/c"}, "long": LONG}

    def test_full(self):
        """With any number of blocks left, either the volume is made, or nothing is."""
        for kind, more in self.KINDS.items():
            made = []
            for blocks in range(16):
                with self.subTest(kind=kind, blocks=blocks):
                    self.begin()
                    self.leave(blocks)
                    try:
                        volume = self.create("pv", share=self.small, **more)
                        made.append(True)
                    except grpc.RpcError as e:
                        made.append(False)
                        self.assertEqual(e.code(), CODE.RESOURCE_EXHAUSTED, e.details())
                        self.assertIn("full", e.details())
                        self.assertEqual(self.listed(self.small), [])
                        self.assertEqual(self.records(self.small), [])
                        self.release()
                        volume = self.create("pv", share=self.small, **more)
                    self.leave(0)
                    self.delete(volume.volume_id)
                    self.assertEqual(self.listed(self.small), [])
                    self.assertEqual(self.records(self.small), [])
            with self.subTest(kind=kind):
                # The folders take two blocks, a record and a directory one each, at the least.
                self.assertEqual(made, sorted(made))
                self.assertEqual((made[3], made[-1]), (False, True))

    def test_delete_when_full(self):
        """With the trash there already, what is deleted needs no room."""
        self.use(self.small)
        volume_id = self.create("pv", share=self.small).volume_id
        with self.server_down():
            write(os.path.join(self.small, "pv", "deep", "file"))
        self.leave(0)
        self.delete(volume_id)
        self.is_clean(self.small)

    def test_expand_when_full(self):
        """The volume keeps the size that it had."""
        for kind, more in self.KINDS.items():
            with self.subTest(kind=kind):
                self.begin()
                volume_id = self.create("pv", share=self.small, **more).volume_id
                before = look(self.small)
                self.leave(0)
                self.fails(CODE.RESOURCE_EXHAUSTED, self.client.ControllerExpandVolume, "full",
                           volume_id=volume_id, secrets=self.secrets,
                           capacity_range={"required_bytes": 2 * GIB})
                self.assertEqual(look(self.small), before)
                self.assertEqual(self.shown(volume_id).volume.capacity_bytes, GIB)
                self.release()
                self.assertEqual(self.expand(volume_id, 2 * GIB), 2 * GIB)
                self.delete(volume_id)
                self.is_clean(self.small)


class RecordsOnVersion3(Records, Base):
    protocols = "3"
    version = "3"


class RecordsOnVersion4(Records, Base):
    protocols = "4"
    version = "4"


class UnwritableOnVersion3(Unwritable, Base):
    protocols = "3"
    version = "3"

    def test_pages_fit_into_a_message(self):
        """More than the 4 MiB that a gRPC client takes at once, for what is told of each volume."""
        share = self.squashed
        self.delete(self.create("pv", share=share, subDir="team/pv").volume_id)
        keys = ["p%05d" % i for i in range(18000)]
        team, folder = os.path.join(share, "team"), os.path.join(share, FOLDERS[1])
        with self.server_down():
            os.mkdir(team, 0o700)
            for key in keys:
                volume_id = self.volume_id(key, share=share).replace("#", "%23")
                os.symlink("v=1;id=%s;dir=team/%s;mode=0000" % (volume_id, key),
                           os.path.join(folder, key))
        seen, token = 0, ""
        for _ in range(10):
            answer = self.client.ListVolumes(starting_token=token)
            seen += sum("Permission denied" in e.status.volume_condition.message
                        for e in answer.entries)
            token = answer.next_token
            if not token:
                break
        self.assertEqual((seen, token), (len(keys), ""))
        with self.server_down():
            for key in keys:
                os.unlink(os.path.join(folder, key))
            os.rmdir(team)
        self.is_clean(share)


class UnwritableOnVersion4(Unwritable, Base):
    protocols = "4"
    version = "4"


if __name__ == "__main__":
    harness.main("records against nfs-ganesha")
