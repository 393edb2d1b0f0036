# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The calls about snapshots, against a real nfs-ganesha, and archives that csi-nfs did not make:
those of csi-driver-nfs, and some that mean harm.

Runs inside a lab, with CSI_NFS naming the driver.
"""
import gzip
import io
import os
import random
import sys
import tarfile
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
import trees
from cases import CODE, GIB, SERVER, STATE, Base
from copies import FAR_SERVER, GET_SNAPSHOT, NOT_FINAL, Chosen, Trees
from csi_client import pb
from servers import wait_for

RPC = pb.ControllerServiceCapability.RPC


class Snapshots(Trees):
    """The calls about snapshots."""

    def test_what_is_told(self):
        source = self.source("plain")
        before = time.time()
        snapshot = self.snap("snap", source)
        self.assertEqual(snapshot.snapshot_id, self.snapshot_id("snap", "plain"))
        self.assertEqual(snapshot.source_volume_id, source)
        self.assertTrue(snapshot.ready_to_use)
        self.assertEqual(snapshot.size_bytes, GIB)
        made = snapshot.creation_time.seconds + snapshot.creation_time.nanos / 1e9
        self.assertTrue(before - 2 < made < time.time() + 2,
                        "creation_time is %s at %s" % (made, before))
        for row in ("again", "after a restart"):
            with self.subTest(row=row):
                time.sleep(0.01)
                path = self.archive("snap", "plain")
                written = os.stat(path)
                self.assertEqual(self.snap("snap", source), snapshot)
                now = os.stat(path)
                self.assertEqual((now.st_ino, now.st_mtime_ns),
                                 (written.st_ino, written.st_mtime_ns), "it was packed again")
                listed = self.list_snapshots(snapshot_id=snapshot.snapshot_id).entries
                self.assertEqual([e.snapshot for e in listed], [snapshot])
                got = self.client.GetSnapshot(snapshot_id=snapshot.snapshot_id,
                                              secrets=self.secrets).snapshot
                self.assertEqual(got, snapshot)
                self.driver.restart()
        self.unsnap(snapshot.snapshot_id)

    def test_volume_with_subdir(self):
        """The archive is named after the volume, which the id tells then."""
        source = self.create("claim", subDir="team").volume_id
        self.assertEqual(source.split("#")[2:4], ["team", "claim"])
        snapshot = self.snap("snap", source).snapshot_id
        self.assertEqual(snapshot, self.snapshot_id("snap", "claim"))
        self.archive("snap", "claim")
        self.delete(source)
        self.delete(self.restore("back", snapshot).volume_id)
        self.unsnap(snapshot)

    def test_it_outlives_its_source(self):
        source = self.clone("source", self.source("plain")).volume_id
        snapshot = self.snap("snap", source)
        self.delete(source)
        self.driver.restart()
        listed = self.list_snapshots(snapshot_id=snapshot.snapshot_id).entries
        self.assertEqual([e.snapshot for e in listed], [snapshot])
        volume = self.restore("restored", snapshot.snapshot_id)
        self.is_copy("plain", "restored")
        volumes = [volume, self.restore("source", snapshot.snapshot_id)]  # under the old name too
        self.is_copy("plain", "source")
        self.unsnap(snapshot.snapshot_id)
        self.is_copy("plain", "restored")  # and it outlives the snapshot
        for volume in volumes:
            self.delete(volume.volume_id)

    def test_same_name_again(self):
        one, two = self.source("plain"), self.source("small")
        snapshot = self.snap("snap", one)
        self.fails(CODE.ALREADY_EXISTS, self.snap, name="snap", volume_id=two)
        self.is_archive_of("plain", self.archive("snap", "plain"))
        self.unsnap(snapshot.snapshot_id)
        snapshot = self.snap("snap", two)
        self.assertEqual(snapshot.snapshot_id, self.snapshot_id("snap", "small"))
        self.unsnap(snapshot.snapshot_id)

    def test_name_of_a_volume(self):
        """A snapshot's folder and a volume's lie side by side."""
        source = self.source("plain")
        self.fails((CODE.ALREADY_EXISTS, CODE.FAILED_PRECONDITION), self.snap, name="small",
                   volume_id=source)
        self.is_copy("small", "small", root=True)

    def test_volume_of_its_name(self):
        """It would take the archive with it when it is deleted."""
        source = self.source("plain")
        snapshot = self.snap("snap", source)
        for fields in ({}, {"subDir": "snap"}, {"subDir": "snap/below"}):
            with self.subTest(**fields):
                self.fails(CODE.FAILED_PRECONDITION, self.create, "snapshot",
                           name="other" if fields else "snap", **fields)
        self.is_archive_of("plain", self.archive("snap", "plain"))
        self.unsnap(snapshot.snapshot_id)
        self.delete(self.create("snap").volume_id)

    def test_source_that_is_no_directory(self):
        """The volume's data is elsewhere: an administrator has left a link. An archive of the link
        would be ready, and empty."""
        moved, file = (self.create(name).volume_id for name in ("moved", "file"))
        with self.server_down():
            os.rename(self.path("moved"), os.path.join(self.place, "elsewhere"))
            os.symlink("../elsewhere", self.path("moved"))
            os.rmdir(self.path("file"))
            trees.write(self.path("file"))
        for volume_id, word in ((moved, "symbolic link"), (file, "not a directory")):
            for format_ in ("archive", "tree"):
                with self.subTest(word=word, format=format_):
                    self.fails(CODE.FAILED_PRECONDITION, self.snap, word, name="snap",
                               volume_id=volume_id, format=format_)
                    self.assertFalse(os.path.lexists(self.path("snap")))
            content = {"volume": {"volume_id": volume_id}}
            self.fails(CODE.FAILED_PRECONDITION, self.from_source, word, name="clone",
                       content=content)
        with self.server_down():
            for name in ("moved", "file"):
                os.remove(self.path(name))
            os.rmdir(os.path.join(self.place, "elsewhere"))
        for volume_id in (moved, file):
            self.delete(volume_id)

    def test_copied_record(self):
        """An administrator has kept a copy beside the record: the snapshot is listed once."""
        snapshot = self.snap("snap", self.source("plain")).snapshot_id
        record = self.path(STATE, "snapshots", "snap")
        with self.server_down():
            os.symlink(os.readlink(record), record + ".kept")
        self.assertEqual([e.snapshot.snapshot_id for e in self.list_snapshots().entries],
                         [snapshot])
        with self.server_down():
            os.unlink(record + ".kept")
        self.unsnap(snapshot)

    def test_bad_calls(self):
        source = self.source("plain")
        good = {"name": "snap", "source_volume_id": source, "secrets": self.secrets}
        for code, change in (
                (CODE.INVALID_ARGUMENT, {"name": ""}),
                (CODE.INVALID_ARGUMENT, {"source_volume_id": ""}),
                (CODE.INVALID_ARGUMENT, {"parameters": {"unknown": "value"}}),
                (CODE.INVALID_ARGUMENT, {"parameters": {"compression": "lzma"}}),
                (CODE.INVALID_ARGUMENT, {"parameters": {"share": "/../etc"}}),
                (CODE.NOT_FOUND, {"source_volume_id": self.volume_id("absent")}),
                (CODE.NOT_FOUND, {"source_volume_id": "fake-vol-id"})):
            with self.subTest(**change):
                self.fails(code, self.client.CreateSnapshot, **dict(good, **change))
                self.assertEqual(self.leftovers(), [])
        self.fails(CODE.INVALID_ARGUMENT, self.client.DeleteSnapshot, snapshot_id="")
        for name in ("..", "a/b", "a#b", STATE):  # are names, and no paths
            with self.subTest(name=name):
                before = self.listed(self.share)
                snapshot = self.client.CreateSnapshot(**dict(good, name=name)).snapshot
                self.assertEqual(len(self.listed(self.share)), len(before) + 1)
                self.unsnap(snapshot.snapshot_id)

    def test_parameters(self):
        source = self.source("plain")
        for row, server, share in (("another share", SERVER, self.other),
                                   ("another server", FAR_SERVER, self.far)):
            with self.subTest(destination=row):
                # As csi-snapshotter adds them, and in any case.
                snapshot = self.snap("snap", source, server=server, SHARE=share, Compression="NONE",
                                     **{"csi.storage.k8s.io/volumesnapshot/name": "n"}).snapshot_id
                self.assertEqual(snapshot, self.snapshot_id("snap", "plain", share, server))
                self.is_archive_of("plain", self.archive("snap", "plain", "none", share))
                self.assertFalse(os.path.lexists(self.path("snap")), "beside the source")
                listed = self.list_snapshots(snapshot_id=snapshot).entries
                self.assertEqual([e.snapshot.snapshot_id for e in listed], [snapshot])
                volume = self.restore("restored", snapshot)
                self.is_copy("plain", "restored")
                self.delete(volume.volume_id)
                self.unsnap(snapshot)
                self.assertEqual(self.listed(share), [])

    def test_mount_options_in_the_parameters(self):
        """For classes without secrets, of a driver that knows nothing yet."""
        self.source("plain")
        self.driver.restart()
        snapshot = self.client.CreateSnapshot(
            name="snap", source_volume_id=self.volume_id("plain"),
            parameters={"mountOptions": self.secrets["mountOptions"]}).snapshot.snapshot_id
        self.is_archive_of("plain", self.archive("snap", "plain"))
        self.client.DeleteSnapshot(snapshot_id=snapshot)  # it knows now

    def test_delete(self):
        snapshot = self.snap("snap", self.source("plain")).snapshot_id
        wrong = self.snapshot_id("snap", "small")
        self.unsnap(wrong)
        self.archive("snap", "plain")
        for _ in range(2):
            self.unsnap(snapshot)
            self.assertFalse(os.path.lexists(self.path("snap")))
        self.assertEqual(list(self.list_snapshots(snapshot_id=snapshot).entries), [])
        for garbage in ("fake-snapshot", "#", "####", "a#b", "%", "\u00e9", "/",
                        self.snapshot_id("absent", "plain"), snapshot + "#more", "x" * 2000):
            with self.subTest(snapshot_id=garbage[:80]):
                self.unsnap(garbage)

    def test_delete_takes_nothing_else(self):
        """Ids that somebody made up lead to nothing but archives."""
        volume = self.clone("volume", self.source("plain")).volume_id
        with self.server_down():
            trees.write(self.path("volume", "volume.tar.gz"), b"a user's own")
            os.makedirs(self.path("folder", "kept"))
        before = {n: trees.survey(os.path.join(self.place, n)) for n in ("share", "other")}
        share = self.share.strip("/")
        for name, source in (("volume", "volume"), ("volume", "file"), ("folder", "kept"),
                             ("..", "other"), (".", "plain"), (STATE, "volumes"), ("plain", ".."),
                             ("volume", "folder-000"), ("plain", "folder-000/file-00000")):
            with self.subTest(name=name, source=source):
                try:
                    self.unsnap("#".join((SERVER, share, name, name, source)))
                except grpc.RpcError as e:
                    self.assertNotIn(e.code(), NOT_FINAL + (CODE.INTERNAL,), e.details())
                for place, wanted in before.items():
                    got = trees.survey(os.path.join(self.place, place))
                    kept = {k: v for k, v in got.items() if not k.startswith(STATE.encode())}
                    wanted = {k: v for k, v in wanted.items() if k in kept
                              or not k.startswith(STATE.encode())}
                    self.is_same(wanted, kept, place)
        with self.server_down():
            servers.run("rm", "-rf", self.path("folder"))
        self.delete(volume)

    # ---- lists ----

    def five(self):
        """Snapshots of two sources, by id."""
        one, two = self.source("plain"), self.create("empty").volume_id
        made = {}
        for i, source in enumerate((one, two, two, one, two)):
            snapshot = self.snap("snap-%d" % i, source)
            made[snapshot.snapshot_id] = snapshot
        return made

    def take_away(self, made):
        for snapshot_id in made:
            self.unsnap(snapshot_id)
        self.delete(self.volume_id("empty"))

    def test_list(self):
        made = self.five()
        self.driver.restart()
        self.source("plain")  # tells the new process where to look
        for filters, wanted in (
                ({}, list(made)),
                ({"source_volume_id": self.volume_id("plain")},
                 [i for i in made if i.endswith("#plain")]),
                ({"source_volume_id": self.volume_id("empty")},
                 [i for i in made if i.endswith("#empty")]),
                ({"source_volume_id": self.volume_id("absent")}, []),
                ({"source_volume_id": "fake-vol-id"}, []),
                ({"snapshot_id": self.snapshot_id("snap-3", "plain")},
                 [self.snapshot_id("snap-3", "plain")]),
                ({"snapshot_id": self.snapshot_id("snap-3", "empty")}, []),
                ({"snapshot_id": self.snapshot_id("absent", "plain")}, []),
                ({"snapshot_id": "fake-snapshot"}, []),
                ({"snapshot_id": self.snapshot_id("snap-3", "plain"),
                  "source_volume_id": self.volume_id("plain")},
                 [self.snapshot_id("snap-3", "plain")]),
                ({"snapshot_id": self.snapshot_id("snap-3", "plain"),
                  "source_volume_id": self.volume_id("empty")}, [])):
            with self.subTest(**filters):
                entries = self.list_snapshots(**filters).entries
                self.assertEqual(sorted(e.snapshot.snapshot_id for e in entries), sorted(wanted))
                for entry in entries:
                    self.assertEqual(entry.snapshot, made[entry.snapshot.snapshot_id])
        self.take_away(made)
        self.assertEqual(list(self.list_snapshots().entries), [])

    def pages(self, token="", size=2):
        """(ids, token) of one page."""
        answer = self.list_snapshots(max_entries=size, starting_token=token)
        ids = [e.snapshot.snapshot_id for e in answer.entries]
        self.assertLessEqual(len(ids), size)
        return ids, answer.next_token

    def test_pages(self):
        made = self.five()
        for size in (1, 2, 4, 5, 6):
            with self.subTest(size=size):
                seen, token, count = [], "", 0
                while count < 10:
                    ids, token = self.pages(token, size)
                    seen += ids
                    count += 1
                    if not token:
                        break
                self.assertEqual(sorted(seen), sorted(made))
                self.assertLessEqual(count, (5 + size - 1) // size + 1)
        answer = self.list_snapshots(source_volume_id=self.volume_id("empty"), max_entries=2)
        self.assertEqual(len(answer.entries), 2)
        rest = self.list_snapshots(source_volume_id=self.volume_id("empty"), max_entries=2,
                                   starting_token=answer.next_token)
        self.assertEqual((len(rest.entries), rest.next_token), (1, ""))
        self.take_away(made)

    def test_tokens(self):
        made = self.five()
        everything = [e.snapshot.snapshot_id for e in self.list_snapshots().entries]
        ids, token = self.pages()
        self.assertEqual(ids, everything[:2])
        # Whichever the token names, the last one told or the next one: it is gone.
        for snapshot_id in everything[1:3]:
            self.unsnap(snapshot_id)
        seen = []
        while token:
            ids, token = self.pages(token)
            seen += ids
        self.assertEqual(seen, everything[3:])
        for garbage in ("garbage", "0", "2", "-1", "\u00e9", "x" * 3000):
            with self.subTest(token=garbage[:20]):
                self.fails(CODE.ABORTED, self.list_snapshots, starting_token=garbage)
        self.fails(CODE.INVALID_ARGUMENT, self.list_snapshots, max_entries=-1)
        self.take_away(made)

    def test_get(self):
        for unknown in (self.snapshot_id("absent", "plain"), "fake-snapshot"):
            self.fails(CODE.NOT_FOUND, self.client.GetSnapshot, snapshot_id=unknown,
                       secrets=self.secrets)
        self.fails(CODE.INVALID_ARGUMENT, self.client.GetSnapshot, snapshot_id="")

    def test_capabilities(self):
        def told():
            return {RPC.Type.Name(c.rpc.type)
                    for c in self.client.ControllerGetCapabilities().capabilities}
        always = {"CREATE_DELETE_SNAPSHOT", "LIST_SNAPSHOTS", "CLONE_VOLUME"}
        self.assertLessEqual(always | {"GET_SNAPSHOT"}, told())
        self.restart()
        try:
            self.assertLessEqual(always, told())
            self.assertNotIn("GET_SNAPSHOT", told(), "advertised without " + GET_SNAPSHOT)
        finally:
            self.restart(*self.options)


# ---- archives that others made ----

def member(name, kind=tarfile.REGTYPE, data=b"", link="", mode=0o644, **more):
    """A member for pack()."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = kind, link, mode, 1600000000
    if kind == tarfile.REGTYPE:
        info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def pack(*members, form=tarfile.PAX_FORMAT):
    """The bytes of an archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def pack_tree(path, prefix, form, file):
    """A folder as csi-driver-nfs archives it: by tar, whose names begin with "./", or in Go."""
    path = os.fsencode(path)

    def exact(info):
        if form == tarfile.PAX_FORMAT:  # which Python would write as a floating-point number
            when = os.lstat(os.path.join(path, trees.clean_name(info.name))).st_mtime_ns
            info.pax_headers["mtime"] = "%d.%09d" % divmod(when, trees.SECOND)
        return info

    with tarfile.open(fileobj=file, mode="w", format=form, encoding="utf-8",
                      errors="surrogateescape") as tar:
        if prefix:
            tar.add(os.fsdecode(path), ".", recursive=False, filter=exact)
        for name in sorted(trees.walk(path), key=lambda n: n.split(b"/")):
            tar.add(os.fsdecode(os.path.join(path, name)), prefix + os.fsdecode(name),
                    recursive=False, filter=exact)


class Foreign(Trees):
    """Snapshots that csi-driver-nfs left, and archives that mean harm in the place of one."""

    def put(self, name, file, data):
        """A snapshot that has no record. Call it while the server is down."""
        os.mkdir(self.path(name))
        trees.write(self.path(name, file), data)

    def test_of_csi_driver_nfs(self):
        rows = {}
        with self.server_down():
            for i, (tree, prefix, form, suffix) in enumerate((
                    ("small", "./", tarfile.GNU_FORMAT, ".tar.gz"),
                    ("small", "", tarfile.PAX_FORMAT, ".tar.gz"),
                    ("small", "./", tarfile.PAX_FORMAT, ".tar"),
                    ("plain", "", tarfile.USTAR_FORMAT, ".tar"),
                    ("plain", "", tarfile.GNU_FORMAT, ".tar.gz"))):
                name = "snapshot-%d" % i
                out = io.BytesIO()
                pack_tree(self.path(tree), prefix, form, out)
                data = out.getvalue()
                self.put(name, "gone" + suffix,
                         gzip.compress(data, 1) if suffix.endswith("gz") else data)
                rows[name] = (tree, form, prefix + suffix)
        for name, (tree, form, row) in rows.items():
            with self.subTest(row=row, form=form):
                snapshot = self.snapshot_id(name, "gone")
                entries = self.list_snapshots(snapshot_id=snapshot).entries
                self.assertEqual([(e.snapshot.snapshot_id, e.snapshot.ready_to_use)
                                  for e in entries], [(snapshot, True)])
                self.assertGreater(entries[0].snapshot.creation_time.seconds, 0)
                volume = self.restore("restored", snapshot)
                # Only PAX has fractions of seconds. Zeros need not become holes.
                wanted = {k: v._replace(blocks=None) for k, v in self.sources[tree].items()}
                self.is_same(wanted, trees.survey(self.path("restored")), name, sockets=False,
                             precision=0 if form == tarfile.PAX_FORMAT else trees.SECOND)
                self.delete(volume.volume_id)
                self.unsnap(snapshot)
                self.assertFalse(os.path.lexists(self.path(name)), "it is not deleted")
                self.assertEqual(list(self.list_snapshots(snapshot_id=snapshot).entries), [])

    def test_what_csi_driver_nfs_had_begun(self):
        """It writes archives in place: one that is there may be the part that it had written when
        it was stopped. CreateSnapshot takes whole ones, and refuses and leaves all others."""
        source = self.source("plain")
        tar = pack(member("other", data=b"x" * 9999))
        whole = gzip.compress(tar)
        rows = {"whole": ("plain.tar.gz", whole), "whole-tar": ("plain.tar", tar),
                "cut": ("plain.tar.gz", whole[:len(whole) // 2]),
                "cut-late": ("plain.tar.gz", whole[:-1]),
                "cut-before": ("plain.tar.gz", gzip.compress(tar[:9999])),
                "cut-tar": ("plain.tar", tar[:9999]), "none": ("plain.tar.gz", b""),
                "hole": ("plain.tar.gz", whole[:20] + bytes(20) + whole[40:])}
        with self.server_down():
            for name, (file, data) in rows.items():
                self.put(name, file, data)
            self.put("more", "plain.tar.gz", whole[:-1])
            trees.write(self.path("more", "precious"), b"")
            os.mkdir(self.path("folder"))
        for name, (file, data) in rows.items():
            with self.subTest(row=name):
                if name.startswith("whole"):
                    snapshot = self.snap(name, source)
                    self.assertTrue(snapshot.ready_to_use)
                else:
                    self.fails(CODE.FAILED_PRECONDITION, self.snap, "%s/%s" % (name, file),
                               "not a whole archive", "move the directory away", name=name,
                               volume_id=source)
                self.assertEqual(os.listdir(self.path(name)), [file])
                with open(self.path(name, file), "rb") as f:
                    self.assertEqual(f.read(), data)
                if name.startswith("whole"):
                    self.unsnap(snapshot.snapshot_id)
                    continue
                with self.server_down():
                    servers.run("rm", "-r", self.path(name))
                snapshot = self.snap(name, source)
                self.is_archive_of("plain", self.archive(name, "plain"))
                self.unsnap(snapshot.snapshot_id)
        for name, inside in (("more", ["plain.tar.gz", "precious"]), ("folder", [])):
            self.fails(CODE.FAILED_PRECONDITION, self.snap, name, name=name, volume_id=source)
            self.assertEqual(sorted(os.listdir(self.path(name))), inside)
            with self.server_down():
                servers.run("rm", "-r", self.path(name))

    def test_root_behind_its_contents(self):
        """As "tar -cf x.tar * ." and "find . -depth" have it."""
        root = member("./", tarfile.DIRTYPE, mode=0o2770, uid=1000, gid=2000)
        with self.server_down():
            self.put("late", "src.tar", pack(member("d/f", data=b"x"), root))
            self.put("twice", "src.tar", pack(member("./", tarfile.DIRTYPE, mode=0o755),
                                              member("./d/f", data=b"x"), root))
        for name in ("late", "twice"):
            with self.subTest(row=name):
                snapshot = self.snapshot_id(name, "src")
                volume = self.restore("restored", snapshot)
                got = os.stat(self.path("restored"))
                self.assertEqual((got.st_mode & 0o7777, got.st_uid, got.st_gid, got.st_mtime),
                                 (0o2770, 1000, 2000, 1600000000))
                self.assertTrue(os.path.isfile(self.path("restored", "d", "f")))
                self.delete(volume.volume_id)
                self.unsnap(snapshot)

    def outside(self, *parts):
        return os.path.join(self.place, "outside", *parts)

    def hostile(self):
        """Archives by what is wrong with them."""
        folder, link, hard = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
        good = [member("good", data=b"good"), member("folder/", folder, mode=0o755)]
        evil, out = b"evil", self.outside()
        rows = {
            "absolute name": [member(self.outside("evil"), data=evil)],
            "absolute name of a folder": [member(self.outside("evil"), folder)],
            "absolute name of a link": [member(self.outside("evil"), link, link="x")],
            "name above": [member("../evil", data=evil)],
            "name far above": [member("../../outside/evil", data=evil)],
            "name above in the middle": [member("folder/../../evil", data=evil)],
            "name above behind a dot": [member("./../evil", data=evil)],
            "name above at the end": [member("folder/../..", folder, mode=0o777)],
            "the name ..": [member("..", folder, mode=0o777)],
            "file below a link": [member("out", link, link=out), member("out/evil", data=evil)],
            "file below a relative link": [member("out", link, link="../../outside"),
                                           member("out/evil", data=evil)],
            "overwriting below a link": [member("out", link, link=out),
                                         member("out/one", data=evil)],
            "folder below a link": [member("out", link, link=out), member("out/evil", folder)],
            "link below a link": [member("out", link, link=out),
                                  member("out/evil", link, link="x")],
            "emptying below a link": [member("out", link, link=out), member("out/one")],
            "two links": [member("a", link, link="."), member("a/b", link, link=out),
                          member("b/evil", data=evil)],
            "hard link to above": [member("evil", hard, link="../../outside/one")],
            "hard link to an absolute name": [member("evil", hard, link=self.outside("one"))],
            "hard link to another volume": [member("evil", hard, link="../plain/folder-000")],
            "hard link by a link": [member("out", link, link=out),
                                    member("evil", hard, link="out/one")],
            "hard link to nothing": [member("evil", hard, link="nothing")],
            "GNU long name above": None}
        packed = {row: pack(*good, *what) for row, what in rows.items() if what}
        packed["GNU long name above"] = pack(
            *good, member("folder/" + "../" * 60 + "evil", data=evil), form=tarfile.GNU_FORMAT)
        return {row: gzip.compress(data) for row, data in packed.items()}

    def damaged(self):
        """(suffix, bytes) by what is wrong."""
        noise = random.Random(3).randbytes(100000)
        plain = pack(*[member("file-%d" % i, data=noise[:9999]) for i in range(10)])
        whole = gzip.compress(plain)
        broken = bytearray(plain)
        broken[10240 + 512 + 3] ^= 0xff  # in the second member's header
        middle = bytearray(whole)
        middle[len(middle) // 2] ^= 0xff
        huge = pack(member("huge", data=b"x"))
        sizes = tarfile.TarInfo("huge")
        sizes.size = 1 << 62
        lying = sizes.tobuf(tarfile.GNU_FORMAT) + huge[512:]
        sparse = member("s", data=b"3\n0\n5\n99999999999999999999\n5\n" + bytes(482),
                        pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                                     "GNU.sparse.name": "s", "GNU.sparse.realsize": "1000"})
        return {
            "gzip cut in the middle": (".tar.gz", whole[:len(whole) // 2]),
            "gzip without its end": (".tar.gz", whole[:-6]),
            "gzip with a wrong sum": (".tar.gz", whole[:-8] + bytes(8)),
            "gzip with a wrong byte": (".tar.gz", bytes(middle)),
            "tar cut in a file": (".tar", plain[:512 + 5000]),
            "tar cut in a header": (".tar", plain[:10240 + 512 + 100]),
            "tar with a wrong header": (".tar", bytes(broken)),
            "noise as tar": (".tar", noise),
            "noise as gzip": (".tar.gz", noise),
            "nothing as gzip": (".tar.gz", b""),
            "size without end": (".tar", lying),
            "sparse map without end": (".tar", pack(sparse))}

    def is_harmless(self, row, name, before):
        """A restore fails for good, and changes nothing."""
        snapshot = self.snapshot_id(name, "src")
        try:
            self.restore("victim", snapshot)
        except grpc.RpcError as e:
            self.assertNotIn(e.code(), NOT_FINAL, "%s: %s" % (row, e.details()))
            self.assertTrue(e.details(), "an error without a message")
        else:
            self.delete(self.volume_id("victim"))
            self.fail("%s: it is restored" % row)
        self.assertFalse(os.path.lexists(self.path("victim")), "%s: a volume appears" % row)
        self.assertTrue(wait_for(lambda: not self.at_work(), 15), "%s: work is left" % row)
        self.is_same(before, self.all_but_state(), row, root=True)
        self.delete(self.volume_id("victim"))  # as a CO does

    def all_but_state(self):
        """Everything in the class's place, but the driver's own folders and times of the shares."""
        found = trees.survey(self.place)
        return {k: v for k, v in found.items()
                if STATE.encode() not in k.split(b"/")[:2]
                and k not in (b".", b"share", b"other", b"far")}

    def are_harmless(self, rows):
        with self.server_down():
            os.makedirs(self.outside())
            trees.write(self.outside("one"), b"outside", 0o600)
            names = {}
            for i, (row, (suffix, data)) in enumerate(rows.items()):
                names[row] = "evil-%02d" % i
                self.put(names[row], "src" + suffix, data)
        before = self.all_but_state()
        for row, name in names.items():
            with self.subTest(row=row):
                self.is_harmless(row, name, before)
        for name in names.values():
            self.unsnap(self.snapshot_id(name, "src"))
        servers.run("rm", "-rf", self.outside())

    def test_hostile(self):
        self.source("plain")
        self.are_harmless({row: (".tar.gz", data) for row, data in self.hostile().items()})

    def test_damaged(self):
        self.source("plain")
        self.are_harmless(self.damaged())

    def test_replaced(self):
        """A name that comes twice: whatever is made of it, it stays in the volume."""
        link = tarfile.SYMTYPE
        rows = {
            "file for a link": [member("x", link, link=self.outside("one")),
                                member("x", data=b"evil")],
            "file for a relative link": [member("x", link, link="../../outside/one"),
                                         member("x", data=b"evil")],
            "folder for a link": [member("x", link, link=self.outside()),
                                  member("x/", tarfile.DIRTYPE, mode=0o777),
                                  member("x/evil", data=b"evil")],
            "link for a folder": [member("x/", tarfile.DIRTYPE, mode=0o755),
                                  member("x", link, link=self.outside()),
                                  member("x/evil", data=b"evil")],
            "the volume itself": [member("./", link, link=self.outside()),
                                  member("./evil", data=b"evil")]}
        with self.server_down():
            os.makedirs(self.outside())
            trees.write(self.outside("one"), b"outside", 0o600)
            for i, what in enumerate(rows.values()):
                self.put("twice-%d" % i, "src.tar", pack(*what))
        before = trees.survey(self.outside())
        for i, row in enumerate(rows):
            with self.subTest(row=row):
                snapshot = self.snapshot_id("twice-%d" % i, "src")
                try:
                    self.restore("victim", snapshot)
                except grpc.RpcError as e:
                    self.assertNotIn(e.code(), NOT_FINAL, e.details())
                self.assertFalse(os.path.islink(self.path("victim")), "the volume is a link")
                self.is_same(before, trees.survey(self.outside()), row, root=True)
                self.delete(self.volume_id("victim"))
                self.unsnap(snapshot)
        servers.run("rm", "-rf", self.outside())


def read(path):
    with open(path, "rb") as f:
        return f.read()


def flipped(data, at):
    """The data with one wrong bit."""
    bad = bytearray(data)
    bad[at] ^= 0x10
    return bytes(bad)


def without_blocks(data):
    """The data as after a loss of blocks, which read as zeros: at the first header of a file behind
    the middle if it is a tar, where they look like the end of the archive."""
    at = next((at for at in range(len(data) // 2 // 512 * 512, len(data) - 2048, 512)
               if data[at + 257:at + 262] == b"ustar"), len(data) // 2)
    return data[:at] + bytes(2048) + data[at + 2048:]


class Damaged(Trees):
    """Archives that csi-nfs made and that were changed since, and their records."""

    def write(self, path, data):
        with self.server_down():
            with open(path, "wb") as f:
                f.write(data)

    def is_refused(self, snapshot_id, code=CODE.DATA_LOSS, words=("damaged",)):
        """The restore fails for good, and nothing of it stays."""
        self.fails(code, lambda: self.restore("victim", snapshot_id), *words)
        self.assertFalse(os.path.lexists(self.path("victim")), "a volume appears")
        self.assertFalse(os.path.lexists(self.path(STATE, "volumes", "victim")), "a record stays")
        self.assertTrue(wait_for(lambda: not self.at_work(), 15), "work is left")

    def is_restored_from(self, snapshot_id, source="plain"):
        volume = self.restore("restored", snapshot_id)
        self.is_restored(source, "restored")
        self.delete(volume.volume_id)

    def test_archive(self):
        source, small = self.source("plain"), self.source("small")
        for compression in ("none", "gzip", "zstd"):
            snapshot = self.snap("snap", source, compression=compression).snapshot_id
            other = self.snap("other", small, compression=compression).snapshot_id
            path = self.archive("snap", "plain", compression)
            file = os.path.basename(path)
            good = read(path)
            n = len(good)
            rows = {
                "bit at the start": flipped(good, 5),
                "bit in the middle": flipped(good, n // 2),
                "bit at the end": flipped(good, n - 1),
                "cut by a byte": good[:-1],
                "cut by a block": good[:-512],
                "cut to half": good[:n // 2],
                "empty": b"",
                "lost blocks": without_blocks(good),
                "zeros appended": good + bytes(10240),
                "garbage appended": good + b"garbage",
                "itself appended": good + good,
                "that of another": read(self.archive("other", "small", compression))}
            for row, data in rows.items():
                with self.subTest(compression=compression, row=row):
                    self.write(path, data)
                    self.is_refused(snapshot, words=("damaged", "snap/" + file))
            self.write(path, good)
            self.is_restored_from(snapshot)
            self.unsnap(other)
            self.unsnap(snapshot)

    def test_archive_without_a_sum(self):
        """One of csi-driver-nfs, or of an administrator: what the format tells is noticed."""
        source = self.source("plain")
        for compression in ("none", "gzip", "zstd"):
            snapshot = self.snap("snap", source, compression=compression).snapshot_id
            path = self.archive("snap", "plain", compression)
            good = read(path)
            rows = {"cut to half": good[:len(good) // 2], "empty": b""}
            if compression != "zstd":
                rows["lost blocks"] = without_blocks(good)
                rows["itself appended"] = good + good
            if compression == "none":
                rows["no end"] = good[:-1024]
                rows["garbage appended"] = good + b"garbage"
            with self.server_down():
                os.unlink(self.path(STATE, "snapshots", "snap"))
            self.is_restored_from(snapshot)
            for row, data in rows.items():
                with self.subTest(compression=compression, row=row):
                    self.write(path, data)
                    self.is_refused(snapshot)
            if compression == "none":
                self.write(path, good + bytes(1 << 20))  # as with a large blocking factor
                self.is_restored_from(snapshot)
            self.unsnap(snapshot)

    def test_archive_replaced_on_purpose(self):
        source = self.source("plain")
        snapshot = self.snap("snap", source).snapshot_id
        path = self.archive("snap", "plain")
        plain = gzip.decompress(read(path))
        # Under another name it is not the file whose sum was recorded.
        with self.server_down():
            trees.write(self.path("snap", "plain.tar"), plain)
            os.rename(path, self.path("kept"))
        self.is_restored_from(snapshot)
        # Where both are, the recorded one counts.
        with self.server_down():
            os.rename(self.path("kept"), path)
            trees.write(self.path("snap", "plain.tar"), b"damaged")
        self.is_restored_from(snapshot)
        with self.server_down():
            os.unlink(self.path("snap", "plain.tar"))
        # Under the same name it is, until its record is removed.
        self.write(path, gzip.compress(plain, 1))
        details = self.fails(CODE.DATA_LOSS, lambda: self.restore("victim", snapshot))
        self.assertIn("remove its record", details)
        with self.server_down():
            os.unlink(self.path(STATE, "snapshots", "snap"))
        self.is_restored_from(snapshot)
        self.unsnap(snapshot)

    def test_made_again(self):
        """The sum is that of the archive that is in place, whichever attempt made it."""
        source = self.source("plain")
        for compression in ("zstd", "none"):
            snapshot = self.snap("snap", source, compression="gzip").snapshot_id
            record = self.path(STATE, "snapshots", "snap")
            text = os.readlink(record)
            with self.server_down():
                # As after a crash in front of the rename into place.
                servers.run("rm", "-rf", self.path("snap"))
                os.unlink(record)
                os.symlink(text.split(";time=")[0], record)
            self.assertEqual(self.snap("snap", source, compression=compression).snapshot_id,
                             snapshot)
            self.archive("snap", "plain", compression)
            self.is_restored_from(snapshot)
            self.unsnap(snapshot)

    def test_archive_removed_by_hand(self):
        """It is not made again, as the volume has changed, and a repeat does not call it ready."""
        source = self.source("plain")
        snapshot = self.snap("snap", source).snapshot_id
        other = self.snap("other", source).snapshot_id
        with self.server_down():
            servers.run("rm", "-r", self.path("snap"))
            for name in os.listdir(self.path("other")):
                os.unlink(self.path("other", name))
        for name in ("snap", "other"):
            self.fails(CODE.FAILED_PRECONDITION, lambda name=name: self.snap(name, source),
                       "'%s'" % name, "removed", "delete the snapshot")
            self.assertTrue(os.path.islink(self.path(STATE, "snapshots", name)))
        self.unsnap(snapshot)
        self.unsnap(other)
        snapshot = self.snap("snap", source).snapshot_id
        self.archive("snap", "plain")
        self.unsnap(snapshot)

    def test_deletion_whose_id_is_damaged(self):
        """A deletion that was cut short keeps its directory: only DeleteSnapshot can finish it."""
        source = self.source("plain")
        snapshot = self.snap("snap", source).snapshot_id
        record = self.path(STATE, "snapshots", "snap")
        with self.server_down():
            text = os.readlink(record).replace("id=" + snapshot.replace("#", "%23"), "id=nothing")
            self.assertIn("id=nothing", text)
            os.unlink(record)
            os.symlink(text, self.path(STATE, "busy", "snap~s~0123456789abcdef.1"))
        self.fails(CODE.FAILED_PRECONDITION, lambda: self.snap("snap", source), "damaged", "busy",
                   "delete that snapshot")
        self.unsnap(snapshot)
        again = self.snap("snap", source).snapshot_id
        self.archive("snap", "plain")
        self.unsnap(again)

    def test_record(self):
        """A record that was cut short is damaged, wherever it was cut."""
        source = self.source("plain")
        snapshot = self.snap("snap", source).snapshot_id
        record = self.path(STATE, "snapshots", "snap")
        text = os.readlink(record)
        last = text.index(".tar.gz;")  # the end of what a record has from the beginning
        cuts = {key: text.index(";%s=" % key) + len(key) + 3
                for key in ("name", "id", "source", "size", "file", "bytes", "crc32")}
        cuts.update({"the middle of the id": text.index(";source=") - 2, "the suffix": last + 3,
                     "the length": text.index(";crc32=") - 1,
                     "the sum": text.index(";crc32=") + 12})
        for row, cut in cuts.items():
            with self.subTest(row=row):
                with self.server_down():
                    os.unlink(record)
                    os.symlink(text[:cut], record)
                where = ("snapshots", "damaged")
                self.is_refused(snapshot, CODE.FAILED_PRECONDITION, where)
                for call in (lambda: self.snap("snap", source), lambda: self.unsnap(snapshot),
                             lambda: self.list_snapshots(snapshot_id=snapshot)):
                    self.fails(CODE.FAILED_PRECONDITION, call, *where)
                size = os.path.getsize(self.driver.log)
                self.assertEqual(list(self.list_snapshots().entries), [])
                self.assertRegex(self.driver.logged_since(size),
                                 "Skipping an unusable record.* is damaged")
                self.archive("snap", "plain")
                self.assertEqual(os.readlink(record), text[:cut])
        with self.server_down():
            os.unlink(record)
            os.symlink(text, record)
        self.is_restored_from(snapshot)
        self.unsnap(snapshot)

    def test_record_of_another(self):
        source = self.source("plain")
        one = self.snap("one", source).snapshot_id
        two = self.snap("two", source).snapshot_id
        records = [self.path(STATE, "snapshots", n) for n in ("one", "two")]
        text = os.readlink(records[1])
        with self.server_down():
            os.unlink(records[1])
            os.symlink(os.readlink(records[0]), records[1])
        self.is_refused(two, CODE.FAILED_PRECONDITION, ("another snapshot",))
        self.fails(CODE.FAILED_PRECONDITION, lambda: self.unsnap(two), "another snapshot")
        self.fails(CODE.FAILED_PRECONDITION, lambda: self.snap("two", source), "another snapshot")
        self.archive("two", "plain")
        with self.server_down():
            os.unlink(records[1])
            os.symlink(text, records[1])
        self.unsnap(one)
        self.unsnap(two)


class SnapshotsOnVersion3(Snapshots, Base):
    protocols = "3"
    version = "3"

    def test_pages_fit_into_a_message(self):
        """More than the 4 MiB that a gRPC client takes at once: pages, though none was asked."""
        source = self.source("plain")
        made = self.snap("snap", source)
        folder = self.path(STATE, "snapshots")
        name, = [n for n in os.listdir(folder) if "~" not in n]
        text = os.readlink(os.path.join(folder, name))
        noted = ";source=" + source.replace("#", "%23")
        self.assertIn(noted, text)
        long = text.replace(noted, ";source=" + "x" * 640)
        names = ["copy-%04d" % i for i in range(6800)]
        added = [os.path.join(folder, name) for name in names]
        with self.server_down():
            for name, place in zip(names, added):  # each is that of a snapshot of its own
                os.symlink(long.replace("%23snap%23snap%23", "%%23%s%%23%s%%23" % (name, name)),
                           place)
        self.source("plain")
        seen, token = 0, ""
        for _ in range(10):
            answer = self.list_snapshots(starting_token=token)
            self.assertTrue(answer.entries)
            seen += len(answer.entries)
            token = answer.next_token
            if not token:
                break
        self.assertEqual((seen, token), (len(added) + 1, ""))
        with self.server_down():
            for place in added:
                os.unlink(place)
        self.unsnap(made.snapshot_id)


class SnapshotsOnVersion4(Snapshots, Base):
    protocols = "4"
    version = "4"


class SnapshotsOnBoth(Chosen, Snapshots, Base):
    pass


class DamagedOnVersion3(Damaged, Base):
    protocols = "3"
    version = "3"


class DamagedOnVersion4(Damaged, Base):
    protocols = "4"
    version = "4"


class ForeignOnVersion3(Foreign, Base):
    protocols = "3"
    version = "3"


class ForeignOnVersion4(Foreign, Base):
    protocols = "4"
    version = "4"


if __name__ == "__main__":
    harness.main("snapshots")
