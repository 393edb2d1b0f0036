# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The mutating calls of the crash matrix: what each needs, what it has to have done, and what takes
it back.
"""
import io
import os
import shutil
import tarfile
import time

import trees
from servers import Image, run
from world import MIB, Broken, listed, mode_of, plant

HERE = os.path.dirname(os.path.abspath(__file__))
REFUSED = "FAILED_PRECONDITION"


class Scenario:
    """One mutating call. prepare() makes what it needs, call() says what it is, is_done() looks at
    what it did, and undo() brings the share back to what it was before prepare()."""

    options = ()
    deletes = False  # what the call's volume is about

    def __init__(self, case):
        self.case = case

    def prepare(self):
        pass

    def is_done(self, answer):
        pass

    def undo(self):
        pass

    def before_end(self):
        """When it is undone, and before the driver has to be done with everything."""

    def is_as_before(self):
        """After an answer that says so: nothing was done, and nothing is left of it."""
        self.expect()

    def expect(self, **state):
        self.case.check_state(**state)


class Create(Scenario):
    """CreateVolume with parameters. There may be something in its place already."""

    name = "v1"
    directory = "v1"
    parameters = {}
    on_delete = ""
    existing = False  # a directory is there, with something in it
    mode = None
    owner = None
    retained = ()

    def request(self):
        return self.case.request(self.name, **self.parameters)

    def call(self):
        return "CreateVolume", self.request()

    def prepare(self):
        if self.existing:
            path = self.case.path(self.directory)
            os.makedirs(path)
            trees.write(os.path.join(path, "theirs"), b"there before\n")

    def volume_id(self):
        return self.case.volume_id(self.name, self.parameters.get("subDir"), self.on_delete)

    def is_done(self, answer):
        case = self.case
        if answer.volume.volume_id != self.volume_id():
            raise Broken("the id is %s, not %s" % (answer.volume.volume_id, self.volume_id()))
        self.expect(volumes={self.name: self.directory})
        path = case.path(self.directory)
        if listed(path) != (["theirs"] if self.existing else []):
            raise Broken("in the new volume there is %s" % listed(path))
        if self.mode is not None and mode_of(path) != self.mode:
            raise Broken("its mode is %o, not %o" % (mode_of(path), self.mode))
        status = os.lstat(path)
        if self.owner is not None and (status.st_uid, status.st_gid) != self.owner:
            raise Broken("it belongs to %d:%d" % (status.st_uid, status.st_gid))

    def undo(self):
        self.case.must_delete(self.volume_id())

    def is_as_before(self):
        self.expect(retained=[self.directory] if self.existing else ())
        if self.existing and listed(self.case.path(self.directory)) != ["theirs"]:
            raise Broken("what was there before is gone")

    def after_undo(self):
        # Of a caller that gave up nobody knows how far it came.
        self.expect(retained=[n for n in self.retained if os.path.isdir(self.case.path(n))])


class CreatePlain(Create):
    """No parameters, and a name like those of external-provisioner."""
    name = directory = "pvc-0f8fad5b-d9cb-469f-a165-70867728950e"


class CreateNamed(Create):
    """No parameters, and a name that may be a directory's."""


class CreateBelow(Create):
    """A subDir with parents that are not there."""
    directory = "a/b/v1"
    parameters = {"subDir": "a/b/v1"}


class CreateBeside(Create):
    """A subDir in a parent that another volume has too."""
    directory = "team/v1"
    parameters = {"subDir": "team/v1"}


class CreateRefuse(Create):
    """existingDirectory refuse, with nothing there."""
    directory = "r/v1"
    parameters = {"subDir": "r/v1", "existingDirectory": "refuse"}


class CreateAdopt(Create):
    """existingDirectory adopt, with something there."""
    directory = "there"
    parameters = {"subDir": "there", "existingDirectory": "adopt"}
    existing = True


class CreateRequire(CreateAdopt):
    """existingDirectory require, with something there."""
    parameters = {"subDir": "there", "existingDirectory": "require"}
    retained = ("there",)  # by a caller that gave up before it was the volume's


class CreateMode(Create):
    """Its mode and its owner."""
    parameters = {"mountPermissions": "2770", "uid": "1000", "gid": "2000"}
    mode = 0o2770
    owner = (1000, 2000)


class CreateRetain(Create):
    """onDelete retain: the directory is there after DeleteVolume."""
    parameters = {"onDelete": "retain"}
    on_delete = "retain"
    retained = ("v1",)


class CreateLong(Create):
    """A record of several links."""
    directory = "/".join(["d" * 200, "e" * 200, "f" * 200, "v1"])
    parameters = {"subDir": "/".join(["d" * 200, "e" * 200, "f" * 200, "v1"])}

    def volume_id(self):
        return self.case.volume_id("v1")


class CreateKept(Create):
    """In a directory that one volume has and another, which is gone, wants to be retained."""
    name = "v3"
    directory = "common"
    parameters = {"subDir": "common"}
    retained = ("common",)
    others = ("v2",)

    def prepare(self):
        case = self.case
        self.first = case.must("CreateVolume", **case.request(
            "v1", subDir="common", onDelete="retain")).volume.volume_id
        case.must("CreateVolume", **case.request("v2", subDir="common"))
        trees.write(case.path("common", "theirs"), b"there before\n")
        case.must_delete(self.first)
        self.existing = True

    def expect(self, volumes=(), **state):
        super().expect(volumes=dict(volumes, **{n: "common" for n in self.others}), **state)

    def undo(self):
        self.case.must_delete(self.case.volume_id("v2", "common"))
        self.others = ()
        super().undo()
        self.case.must_delete(self.first)

    def after_undo(self):
        super().after_undo()
        if listed(self.case.path("common")) != ["theirs"]:
            raise Broken("what was to be kept is gone")


class LeftAlone:
    """Before a scenario among the bases: the call fails for good, and changes nothing."""

    def is_done(self, answer):
        raise Broken("it is answered OK")

    def is_refused(self, failure):
        if failure.code().name != REFUSED:
            raise Broken("it is answered %s: %s" % (failure.code().name, failure.details()))
        self.is_as_before()

    def undo(self):
        """Nothing was made."""

    def after_undo(self):
        self.is_as_before()


class Refused(LeftAlone, Create):
    """A volume that is refused."""

    def call(self):
        return "CreateVolume", self.request()


class RefuseExisting(Refused):
    """existingDirectory refuse, with something there."""
    directory = "there"
    parameters = {"subDir": "there", "existingDirectory": "refuse"}
    existing = True


class RequireMissing(Refused):
    """existingDirectory require, with nothing there."""
    directory = "not-there"
    parameters = {"subDir": "not-there", "existingDirectory": "require"}


class RefuseSpace(Refused):
    """No parameters, and the name of a directory that others have a volume in."""
    name = directory = "team"


class RefuseSnapshot(Refused):
    """The directory of a snapshot."""
    parameters = {"subDir": "snap"}

    def prepare(self):
        case = self.case
        self.source = case.must("CreateVolume", **case.request("source")).volume.volume_id
        plant(case.path("source"), big=1000)
        self.id = case.must("CreateSnapshot", name="snap", source_volume_id=self.source,
                            secrets=case.secrets).snapshot.snapshot_id

    def is_as_before(self):
        self.expect(volumes={"source": "source"}, snapshots=["snap"])

    def undo(self):
        self.case.must_unsnap(self.id)
        self.case.must_delete(self.source)

    def after_undo(self):
        self.expect()


class RefuseArchive(Refused):
    """No parameters, and the name of an archive that is there."""
    name = directory = "archived-v1"
    existing = True


class CreateArchive(Create):
    """No parameters, and a name that an archive might have."""
    name = directory = "archived-v1"


class RefuseLate(Create):
    """existingDirectory refuse, and a stranger makes the directory once the driver is dead."""
    directory = "late"
    parameters = {"subDir": "late", "existingDirectory": "refuse"}
    stranger = False

    def meanwhile(self):
        path = self.case.path(self.directory)
        if not os.path.exists(path):
            os.makedirs(path)
            trees.write(os.path.join(path, "theirs"), b"a stranger's\n")
            self.stranger = True

    def is_done(self, answer):
        if self.stranger:
            raise Broken("it is answered OK, with a stranger's directory in its place")
        super().is_done(answer)

    def is_refused(self, failure):
        if not self.stranger or failure.code().name != REFUSED:
            raise Broken("it is answered %s: %s" % (failure.code().name, failure.details()))

    def undo(self):
        if not self.stranger:
            super().undo()

    def after_undo(self):
        self.expect(retained=[self.directory] if self.stranger else ())
        if self.stranger and listed(self.case.path(self.directory)) != ["theirs"]:
            raise Broken("a stranger's directory was emptied")


class RequireLate(Create):
    """existingDirectory require: the directory goes away once the driver is dead."""
    directory = "early"
    parameters = {"subDir": "early", "existingDirectory": "require"}
    existing = True
    gone = False

    def meanwhile(self):
        shutil.rmtree(self.case.path(self.directory))
        self.gone = True

    def is_done(self, answer):
        if self.gone:
            raise Broken("it is answered OK, without the directory that it requires")
        super().is_done(answer)

    def is_refused(self, failure):
        if not self.gone or failure.code().name not in (REFUSED, "NOT_FOUND"):
            raise Broken("it is answered %s: %s" % (failure.code().name, failure.details()))

    def undo(self):
        if not self.gone:
            super().undo()


class Copied(Create):
    """A volume that is made of another one, whose tree it has afterwards."""

    sockets = True
    big = 100000  # bytes of the largest file

    def prepare(self):
        case = self.case
        self.source = case.must("CreateVolume", **case.request("source")).volume.volume_id
        plant(case.path("source"), self.big)
        self.wanted = trees.survey(case.path("source"))
        self.more = {}

    def request(self):
        return self.case.request(self.name, source=("volume", self.source), **self.parameters)

    def is_done(self, answer):
        case = self.case
        self.expect(volumes={"source": "source", self.name: self.directory}, **self.more)
        found = trees.differences(self.wanted, trees.survey(case.path(self.directory)))
        if found:
            raise Broken("the copy differs: " + trees.told(found))

    def is_as_before(self):
        self.after_undo()

    def after_undo(self):
        self.expect(volumes={"source": "source"}, **self.more)
        found = trees.differences(self.wanted, trees.survey(self.case.path("source")), root=True)
        if found:
            raise Broken("the source has changed: " + trees.told(found))


class Clone(Copied):
    """Of a volume."""


class CloneBelow(Copied):
    """Of a volume, to a subDir with parents."""
    directory = "a/b/v1"
    parameters = {"subDir": "a/b/v1", "mountPermissions": "2770"}

    def is_done(self, answer):
        super().is_done(answer)
        if mode_of(self.case.path(self.directory)) != 0o2770:
            raise Broken("its mode is %o" % mode_of(self.case.path(self.directory)))


class Restore(Copied):
    """Of a snapshot."""

    snapshot = {}  # parameters of its class

    def prepare(self):
        super().prepare()
        case = self.case
        case.must("CreateSnapshot", name="snap", source_volume_id=self.source, secrets=case.secrets,
                  parameters=self.snapshot)
        self.more = {"snapshots": ["snap"]}

    def request(self):
        return self.case.request(self.name, **self.parameters, source=(
            "snapshot", self.case.snapshot_id("snap", "source")))


class RestoreTree(Restore):
    """Of a snapshot that is a tree."""
    snapshot = {"format": "tree"}


class Snapshot(Copied):
    """CreateSnapshot."""
    suffix = ".tar.gz"
    compression = "gzip"

    def call(self):
        return "CreateSnapshot", {
            "name": "snap", "source_volume_id": self.source, "secrets": self.case.secrets,
            "parameters": {"compression": self.compression}}

    def is_done(self, answer):
        case = self.case
        if not answer.snapshot.ready_to_use:
            raise Broken("it is not ready")
        self.expect(volumes={"source": "source"}, snapshots=["snap"])
        if listed(case.path("snap")) != ["source" + self.suffix]:
            raise Broken("in its folder there is %s" % listed(case.path("snap")))
        found = trees.differences(self.wanted, trees.read_archive(
            case.path("snap", "source" + self.suffix)), sockets=False)
        if found:
            raise Broken("the archive differs: " + trees.told(found))

    def undo(self):
        self.case.must_unsnap(self.case.snapshot_id("snap", "source"))


class SnapshotPlain(Snapshot):
    """Without compression."""
    suffix = ".tar"
    compression = "none"


class SnapshotTree(Snapshot):
    """CreateSnapshot of a class with format=tree."""

    def call(self):
        method, fields = super().call()
        return method, dict(fields, parameters={"format": "tree"})

    def is_done(self, answer):
        case = self.case
        if not answer.snapshot.ready_to_use:
            raise Broken("it is not ready")
        self.expect(volumes={"source": "source"}, snapshots=["snap"])
        if listed(case.path("snap")) != ["source.tree"] or mode_of(case.path("snap")) != 0o700:
            raise Broken("its folder has mode %o and holds %s" % (
                mode_of(case.path("snap")), listed(case.path("snap"))))
        found = trees.differences(self.wanted, trees.survey(case.path("snap", "source.tree")),
                                  root=True)
        if found:
            raise Broken("the tree differs: " + trees.told(found))


class SnapshotTheirs(Snapshot):
    """CreateSnapshot where csi-driver-nfs has made the archive, which leaves no record."""
    whole = True

    def prepare(self):
        super().prepare()
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            tar.add(os.path.join(HERE, "world.py"), "world.py")
        self.theirs = out.getvalue() if self.whole else out.getvalue()[:-1]
        os.mkdir(self.case.path("snap"))
        trees.write(self.case.path("snap", "source.tar.gz"), self.theirs)

    def is_theirs(self):
        with open(self.case.path("snap", "source.tar.gz"), "rb") as f:
            return f.read() == self.theirs

    def is_done(self, answer):
        self.expect(volumes={"source": "source"}, snapshots=["snap"])
        if not answer.snapshot.ready_to_use or not self.is_theirs():
            raise Broken("it is not the snapshot that was there")

    def is_as_before(self):
        self.expect(volumes={"source": "source"}, retained=["snap"])
        if not self.is_theirs():
            raise Broken("the archive has changed")


class SnapshotPart(LeftAlone, SnapshotTheirs):
    """CreateSnapshot where csi-driver-nfs was stopped when it wrote the archive."""
    whole = False


class SnapshotTreeLarge(SnapshotTree):
    """Of files that the server copies by itself."""
    versions = ("4.2",)
    big = 5 * MIB


class RestoreTreeLarge(RestoreTree):
    """Of files that the server copies by itself."""
    versions = ("4.2",)
    big = 5 * MIB


class Delete(Scenario):
    """DeleteVolume of a volume with something in it."""

    deletes = True
    directory = "v1"
    parameters = {}
    on_delete = ""
    retained = ()
    full = True
    again = False  # it was created again
    replaces = False  # what is kept of it is replaced by what is kept of the next one

    def prepare(self):
        case = self.case
        fields = case.request("v1", **self.parameters)
        self.id = case.must("CreateVolume", **fields).volume.volume_id
        if self.full:
            plant(case.path(self.directory), big=1000)
        self.wanted = trees.survey(case.path(self.directory))

    def call(self):
        return "DeleteVolume", {"volume_id": self.id, "secrets": self.case.secrets}

    def is_done(self, answer):
        self.after_undo()

    def undo(self):
        self.case.must_delete(self.id)

    def after_undo(self):
        """What was created again, and deleted, left something too where the policy keeps it."""
        case = self.case
        kept = [n for n in listed(case.share) if self.again and n.split(".")[0] in self.retained]
        self.expect(retained=set(self.retained) | set(kept))
        for name in self.retained:
            if self.again and self.replaces:
                continue
            found = trees.differences(self.wanted, trees.survey(case.path(name)), root=True)
            if found:
                raise Broken("what was to be kept has changed: " + trees.told(found))

    def create_again(self):
        """A volume of the same name. It is the old one as it was, or a new one."""
        case = self.case
        case.must("CreateVolume", **case.request("v1", **self.parameters))
        self.again = True
        now = trees.survey(case.path(self.directory))
        if trees.differences(self.wanted, now) and listed(case.path(self.directory)):
            raise Broken("created again it is neither the old volume nor an empty one: %s"
                         % sorted(now))
        self.expect(volumes={"v1": self.directory},
                    retained=[n for n in self.retained if os.path.isdir(case.path(n))])


class DeletePlain(Delete):
    """Its directory is its name."""


class DeleteEmpty(Delete):
    """Nothing in it."""
    full = False


class DeleteBelow(Delete):
    """In a subDir, whose parents go with it."""
    directory = "a/b/v1"
    parameters = {"subDir": "a/b/v1"}


class DeleteShared(Delete):
    """In a directory that another volume has too: it stays."""
    directory = "common"
    parameters = {"subDir": "common"}
    retained = ("common",)

    def prepare(self):
        super().prepare()
        self.case.must("CreateVolume", **self.case.request("v2", subDir="common"))

    def expect(self, volumes=(), **state):
        super().expect(volumes=dict(volumes, v2="common"), **state)


class DeleteKept(Delete):
    """onDelete retain, in a directory that another volume has too, which goes by delete."""
    directory = "common"
    parameters = {"subDir": "common", "onDelete": "retain"}
    on_delete = "retain"
    retained = ("common",)
    other_is_there = True

    def prepare(self):
        super().prepare()
        self.other = self.case.must("CreateVolume", **self.case.request(
            "v2", subDir="common")).volume.volume_id

    def expect(self, volumes=(), **state):
        other = {"v2": "common"} if self.other_is_there else {}
        super().expect(volumes=dict(volumes, **other), **state)

    def meanwhile(self):
        """The other volume goes before the caller asks again."""
        self.case.revive(other=False)
        self.delete_other()

    def delete_other(self):
        self.case.must_delete(self.other)
        self.other_is_there = False

    def undo(self):
        """In every order, and more often than need be."""
        self.delete_other()
        super().undo()
        self.delete_other()


class DeleteKeptAround(DeleteKept):
    """The other volume is around it."""
    directory = "common/v1"
    parameters = {"subDir": "common/v1", "onDelete": "retain"}
    retained = ("common/v1",)


class DeleteKeptLast(DeleteKept):
    """The volume that is retained has gone: what dies is the deletion of the other."""

    def prepare(self):
        super().prepare()
        self.case.must_delete(self.id)
        self.id, self.other = self.other, self.id
        self.other_is_there = False

    def meanwhile(self):
        pass

    def create_again(self):
        """A volume of the same name, which finds what is retained."""
        self.case.must("CreateVolume", **self.case.request("v2", subDir="common"))
        self.expect(volumes={"v2": "common"})
        found = trees.differences(self.wanted, trees.survey(self.case.path("common")), root=True)
        if found:
            raise Broken("what was to be kept has changed: " + trees.told(found))
        self.retained = () if self.is_taken() else self.retained

    def is_taken(self):
        """Whether the new volume has it alone, so that its deletion takes it along."""
        return not any("~" in name for names in self.case.state().users.values() for name in names)


class DeleteKeptArchive(DeleteKeptLast):
    """Likewise, where it is archived."""
    parameters = {"subDir": "common", "onDelete": "archive"}
    on_delete = "archive"
    retained = ("archived-common",)

    def create_again(self):
        """A volume of the same name: the old one, or a new one beside the archive."""
        case = self.case
        case.must("CreateVolume", **case.request("v2", subDir="common"))
        self.expect(volumes={"v2": "common"},
                    retained=[n for n in self.retained if os.path.isdir(case.path(n))])


class DeleteArchive(Delete):
    """onDelete archive."""
    parameters = {"onDelete": "archive"}
    on_delete = "archive"
    retained = ("archived-v1",)


class DeleteArchiveAgain(DeleteArchive):
    """onDelete archive, where there is an archive of that name, which is replaced."""
    options = ("--remove-archived-volume-path",)
    replaces = True

    def prepare(self):
        super().prepare()
        os.mkdir(self.case.path("archived-v1"))
        trees.write(self.case.path("archived-v1/older"))

    def after_undo(self):
        """An older archive that may not be moved stays, and the new one has a date."""
        case = self.case
        dated = [n for n in listed(case.share) if n.startswith("archived-v1.")]
        if self.again or not case.is_denied or not dated:
            super().after_undo()
            return
        self.expect(retained=["archived-v1", *dated])
        if not os.path.exists(case.path("archived-v1/older")):
            raise Broken("the older archive is neither whole nor gone")
        found = trees.differences(self.wanted, trees.survey(case.path(dated[0])), root=True)
        if found or len(dated) > 1:
            raise Broken("the archive is %s: %s" % (dated, trees.told(found)))


class DeleteRetain(Delete):
    """onDelete retain."""
    parameters = {"onDelete": "retain"}
    on_delete = "retain"
    retained = ("v1",)


class DeleteInline(Delete):
    """With --delete-mode=inline."""
    options = ("--delete-mode=inline",)


class DeleteCrossing(Delete):
    """With another file system mounted in it, by the server's administrator. That one stays."""

    def prepare(self):
        super().prepare()
        case = self.case
        self.image = Image(case.path("v1", "d", "mounted"), 16, "mkfs.ext4", "-q", "-F")
        self.image.file = os.path.join(case.place, "image")
        self.image.mount()
        self.top = os.open(self.image.path, os.O_RDONLY | os.O_DIRECTORY)
        case.cleanups.callback(self.unmount)
        plant(self.there())
        self.inside = trees.survey(self.there())
        self.wanted = trees.survey(case.path(self.directory))

    def there(self):
        """Where it is mounted, now that what is around it may have been renamed."""
        return os.readlink("/proc/self/fd/%d" % self.top)

    def unmount(self):
        if self.top is None:
            return
        run("umount", "-l", self.there())  # the server may know it for a while
        os.close(self.top)
        self.top = None

    def is_done(self, answer):
        self.expect()

    def before_end(self):
        """The purger has had its time. Without what is mounted there the rest can go."""
        time.sleep(2)
        found = trees.differences(self.inside, trees.survey(self.there()))
        self.unmount()
        if found:
            raise Broken("the file system that is mounted in the volume has changed: "
                         + trees.told(found))


class DeleteSnapshot(Scenario):
    """DeleteSnapshot."""

    deletes = True
    parameters = {}

    def prepare(self):
        case = self.case
        source = case.must("CreateVolume", **case.request("source")).volume.volume_id
        plant(case.path("source"), big=1000)
        self.id = case.must("CreateSnapshot", name="snap", source_volume_id=source,
                            secrets=case.secrets, parameters=self.parameters).snapshot.snapshot_id

    def call(self):
        return "DeleteSnapshot", {"snapshot_id": self.id, "secrets": self.case.secrets}

    def is_done(self, answer):
        self.expect(volumes={"source": "source"})

    def undo(self):
        self.case.must_unsnap(self.id)

    def after_undo(self):
        self.expect(volumes={"source": "source"})


class DeleteSnapshotTree(DeleteSnapshot):
    """DeleteSnapshot of a tree."""
    parameters = {"format": "tree"}


class DeleteSnapshotTheirs(DeleteSnapshot):
    """DeleteSnapshot of one that csi-driver-nfs has made, which leaves no record."""

    def prepare(self):
        case = self.case
        case.must("CreateVolume", **case.request("source"))
        os.mkdir(case.path("snap"))
        trees.write(case.path("snap", "source.tar.gz"), b"theirs")
        self.id = case.snapshot_id("snap", "source")

    def is_as_before(self):
        self.expect(volumes={"source": "source"}, retained=["snap"])


class DeleteTheirs(Scenario):
    """DeleteVolume of one that csi-driver-nfs has made, which leaves no record."""

    deletes = True

    def prepare(self):
        plant(self.case.path("v1"), big=1000)
        self.id = self.case.volume_id("v1")

    def call(self):
        return "DeleteVolume", {"volume_id": self.id, "secrets": self.case.secrets}

    def is_done(self, answer):
        self.expect()

    def is_as_before(self):
        self.expect(retained=["v1"])

    def undo(self):
        self.case.must_delete(self.id)

    def after_undo(self):
        self.expect()


class Changed(Scenario):
    """A call that changes a volume's record."""

    def prepare(self):
        case = self.case
        self.id = case.must("CreateVolume", **case.request("v1", subDir="a/v1")).volume.volume_id
        plant(case.path("a/v1"), big=1000)
        self.wanted = trees.survey(case.path("a/v1"))

    def same_tree(self):
        self.expect(volumes={"v1": "a/v1"})
        found = trees.differences(self.wanted, trees.survey(self.case.path("a/v1")))
        if found:
            raise Broken("the volume has changed: " + trees.told(found))

    def is_as_before(self):
        self.same_tree()

    def undo(self):
        self.case.must_delete(self.id)

    def after_undo(self):
        self.expect()


class Expand(Changed):
    """ControllerExpandVolume."""

    def call(self):
        return "ControllerExpandVolume", {
            "volume_id": self.id, "capacity_range": {"required_bytes": 5 * MIB},
            "secrets": self.case.secrets}

    def is_done(self, answer):
        self.same_tree()
        size = self.case.state().volumes["v1"]["size"]
        if answer.capacity_bytes != 5 * MIB or size != str(5 * MIB):
            raise Broken("its size is %s, and %s in the record" % (answer.capacity_bytes, size))


class Modify(Changed):
    """ControllerModifyVolume."""

    def call(self):
        return "ControllerModifyVolume", {
            "volume_id": self.id, "secrets": self.case.secrets,
            "mutable_parameters": {"mountPermissions": "2750", "uid": "1000", "gid": "3000"}}

    def is_done(self, answer):
        self.same_tree()
        path = self.case.path("a/v1")
        status = os.lstat(path)
        if (mode_of(path), status.st_uid, status.st_gid) != (0o2750, 1000, 3000):
            raise Broken("it is %o %d:%d" % (mode_of(path), status.st_uid, status.st_gid))


SCENARIOS = (
    CreatePlain, CreateNamed, CreateBelow, CreateBeside, CreateRefuse, CreateAdopt, CreateRequire,
    CreateMode, CreateRetain, CreateLong, CreateKept, CreateArchive, RefuseExisting, RefuseSpace,
    RefuseSnapshot, RefuseArchive, RequireMissing, RefuseLate, RequireLate,
    Clone, CloneBelow, Restore, Snapshot, SnapshotPlain, DeletePlain, DeleteEmpty, DeleteBelow,
    DeleteShared, DeleteKept, DeleteKeptAround, DeleteKeptLast, DeleteKeptArchive, DeleteArchive,
    DeleteArchiveAgain, DeleteRetain, DeleteInline, DeleteSnapshot, Expand, Modify, SnapshotTree,
    RestoreTree, DeleteSnapshotTree, SnapshotTheirs, SnapshotPart,
    DeleteSnapshotTheirs, DeleteTheirs)
# Of servers that show what is mounted in what they export, and that copy by themselves.
KERNEL = (DeleteCrossing, SnapshotTreeLarge, RestoreTreeLarge)
