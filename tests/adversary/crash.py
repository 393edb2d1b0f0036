#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The crash matrix: for every mutating call, the controller gets SIGKILL at each NFS call that changes
something, before the server has seen it or when the server has done it and the answer is on its way.
Then the caller goes on in one of several ways, and all promises are looked at.

    lab python3 crash.py [--stride N] [--offset N] [--scenario TEXT] [--version V] [--way TEXT] [--point N]

--stride 7 does every seventh run only, --offset says which. --point N with a scenario, a version and a
way does one run. Ends with a line of counts.
"""
import argparse
import os
import shutil
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import trees  # noqa: E402
from proxy import Rule  # noqa: E402
from servers import Failure  # noqa: E402
from world import MIB, Broken, Case, Server, listed, mode_of, plant  # noqa: E402

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

    def after_undo(self):
        # Of a caller that gave up nobody knows how far it came.
        self.expect(retained=[n for n in self.retained if os.path.isdir(self.case.path(n))])


class CreatePlain(Create):
    """No parameters."""


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


class Refused(Create):
    """A call that fails for good, and leaves everything as it was."""

    def call(self):
        return "CreateVolume", self.request()

    def is_done(self, answer):
        raise Broken("it is answered OK")

    def is_refused(self, failure):
        if failure.code().name != REFUSED:
            raise Broken("it is answered %s: %s" % (failure.code().name, failure.details()))
        self.is_untouched()

    def is_untouched(self):
        self.expect(retained=[self.directory] if self.existing else ())
        if self.existing and listed(self.case.path(self.directory)) != ["theirs"]:
            raise Broken("what was there before is gone")

    def undo(self):
        """Nothing: it has no volume."""

    def after_undo(self):
        self.is_untouched()


class RefuseExisting(Refused):
    """existingDirectory refuse, with something there."""
    directory = "there"
    parameters = {"subDir": "there", "existingDirectory": "refuse"}
    existing = True


class RequireMissing(Refused):
    """existingDirectory require, with nothing there."""
    directory = "not-there"
    parameters = {"subDir": "not-there", "existingDirectory": "require"}


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

    def prepare(self):
        case = self.case
        self.source = case.must("CreateVolume", **case.request("source")).volume.volume_id
        plant(case.path("source"))
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

    def prepare(self):
        super().prepare()
        case = self.case
        case.must("CreateSnapshot", name="snap", source_volume_id=self.source, secrets=case.secrets)
        self.more = {"snapshots": ["snap"]}

    def request(self):
        return self.case.request(self.name, **self.parameters, source=(
            "snapshot", self.case.snapshot_id("snap", "source")))


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
        self.id = case.must("CreateVolume", **case.request("v1", **self.parameters)).volume.volume_id
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


class DeleteRetain(Delete):
    """onDelete retain."""
    parameters = {"onDelete": "retain"}
    on_delete = "retain"
    retained = ("v1",)


class DeleteInline(Delete):
    """With --delete-mode=inline."""
    options = ("--delete-mode=inline",)


class DeleteSnapshot(Scenario):
    """DeleteSnapshot."""

    deletes = True

    def prepare(self):
        case = self.case
        source = case.must("CreateVolume", **case.request("source")).volume.volume_id
        plant(case.path("source"), big=1000)
        self.id = case.must("CreateSnapshot", name="snap", source_volume_id=source,
                            secrets=case.secrets).snapshot.snapshot_id

    def call(self):
        return "DeleteSnapshot", {"snapshot_id": self.id, "secrets": self.case.secrets}

    def is_done(self, answer):
        self.expect(volumes={"source": "source"})

    def undo(self):
        self.case.must_unsnap(self.id)

    def after_undo(self):
        self.expect(volumes={"source": "source"})


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
    CreatePlain, CreateBelow, CreateBeside, CreateRefuse, CreateAdopt, CreateRequire, CreateMode,
    CreateRetain, CreateLong, RefuseExisting, RequireMissing, RefuseLate, RequireLate, Clone, CloneBelow, Restore,
    Snapshot, SnapshotPlain, DeletePlain, DeleteEmpty, DeleteBelow, DeleteShared, DeleteArchive,
    DeleteArchiveAgain, DeleteRetain, DeleteInline, DeleteSnapshot, Expand, Modify)
# What the caller does once the driver was killed: asks again the same driver or another one, deletes what it
# never heard of, or creates what it wanted to delete.
WAYS = ("same", "other", "give-up", "create-again")
WHENS = ("before", "after")


def ways_of(scenario):
    if issubclass(scenario, (Delete,)):
        return ("same", "other", "create-again")
    # What was refused, and what may be a stranger's, nobody deletes.
    if scenario.deletes or issubclass(scenario, (Changed, Refused, RefuseLate, RequireLate)):
        return ("same", "other")
    return ("same", "other", "give-up")


class Run:
    """One scenario with one point at which the driver dies; point 0: it does not."""

    def __init__(self, scenario, version, when="before", point=0, way="same"):
        self.scenario = scenario
        self.version = version
        self.when = when
        self.point = point
        self.way = way
        self.case = None
        self.changes = 0
        self.trace = []

    def __str__(self):
        return "--scenario %s --version %s --when %s --point %d --way %s" % (
            self.scenario.__name__, self.version, self.when, self.point, self.way)

    def rules(self):
        if not self.point:
            return []
        if self.when == "after":
            return [Rule("changing", self.point, "hook-after", self.case.kill)]
        return [Rule("changing", self.point, "hook", self.case.kill),
                Rule("changing", self.point, "cut-before")]

    def go(self, server, number):
        with Case(server, "crash-%d" % number, self.version, self.scenario.options,
                  replicas=2 if self.way == "other" else 1) as self.case:
            try:
                self.steps(self.scenario(self.case))
            except BaseException:
                self.trace += self.case.proxy.trace(40) + ["the driver's log:", self.case.driver.tail(15)]
                raise
        self.case.remove_logs()

    def steps(self, x):
        case = self.case
        x.prepare()
        method, fields = x.call()
        case.proxy.begin(self.rules(), versions=case.versions)
        answer, failure = case.once(method, **fields)
        self.changes = case.proxy.changes
        died = case.killed.is_set()
        self.trace = case.proxy.trace(25)
        case.proxy.begin([], versions=case.versions)
        if died:
            case.driver.process.wait()
            case.note("killed %s change %d", self.when, self.point)
            if hasattr(x, "meanwhile"):
                x.meanwhile()
            case.revive(other=self.way == "other")
        if not died or self.way in ("same", "other"):
            if died or failure is not None and case.goes_on(method, failure):
                answer, failure = case.settle(method, **fields)
            self.is_answered(x, answer, failure)
        elif self.way == "create-again":
            x.create_again()
        case.check_strangers()
        x.undo()
        case.converge()
        x.after_undo()
        case.check_strangers()

    def is_answered(self, x, answer, failure):
        self.case.check_strangers()
        if failure is None:
            self.settled(lambda: x.is_done(answer))
        elif hasattr(x, "is_refused"):
            self.settled(lambda: x.is_refused(failure))
        else:
            raise Broken("it is answered %s: %s" % (failure.code().name, failure.details()))
        if failure is None and not x.deletes:
            method, fields = x.call()
            self.case.driver.restart()
            again, failure = self.case.settle(method, **fields)
            if failure is not None:
                raise Broken("repeated after a restart it is answered %s: %s" % (
                    failure.code().name, failure.details()))
            x.is_done(again)

    @staticmethod
    def settled(look):
        """What goes on in the background has a moment's time."""
        end = time.monotonic() + 3
        while True:
            try:
                return look()
            except (Broken, OSError):
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)


class Matrix:
    """All runs, in one order, of which every stride-th is made."""

    def __init__(self, server, stride, offset):
        self.server = server
        self.stride = stride
        self.at = -offset
        self.number = 0
        self.passed = self.failed = 0
        self.unreached = 0

    def one(self, run):
        """Whether it passed."""
        self.number += 1
        try:
            run.go(self.server, self.number)
        except (Broken, Failure, OSError, AssertionError) as e:
            self.failed += 1
            print("FAIL %s\n   %s" % (run, str(e).replace("\n", "\n   ")))
            if not isinstance(e, Broken):
                traceback.print_exc(file=sys.stdout)
            for line in run.case.log if run.case else []:
                print("   | " + line)
            for line in run.trace:
                print("   > " + line)
            sys.stdout.flush()
            return False
        self.passed += 1
        if run.point and not run.case.killed.is_set():
            self.unreached += 1
        return True

    def due(self):
        self.at += 1
        return self.at % self.stride == 1 % self.stride

    def scenario(self, scenario, version, ways):
        first = Run(scenario, version)
        if not self.one(first):
            return
        begun, count = time.monotonic(), self.passed + self.failed
        for point in range(1, first.changes + 1):
            for when in WHENS:
                for way in ways:
                    if self.due():
                        self.one(Run(scenario, version, when, point, way))
        print("%s over version %s: %d changes, %d runs, %.2f s a run" % (
            scenario.__name__, version, first.changes, self.passed + self.failed - count,
            (time.monotonic() - begun) / max(1, self.passed + self.failed - count)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--scenario", default="")
    parser.add_argument("--version", choices=("3", "4"))
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--when", choices=WHENS)
    parser.add_argument("--point", type=int)
    given = parser.parse_args()
    chosen = [s for s in SCENARIOS if s.__name__ == given.scenario] or \
        [s for s in SCENARIOS if given.scenario.lower() in s.__name__.lower()]
    with Server(os.path.join(os.environ["LAB_DIR"], "crash"),
                os.path.join(os.environ["LAB_DISK"], "crash")) as server:
        matrix = Matrix(server, given.stride, given.offset)
        for scenario in chosen:
            for version in [given.version] if given.version else ("3", "4"):
                if given.point is not None:
                    matrix.one(Run(scenario, version, given.when or "after", given.point,
                                   given.way or "same"))
                    continue
                matrix.scenario(scenario, version, [w for w in ways_of(scenario)
                                                    if given.way in (None, w)])
    if matrix.unreached:
        print("%d points were not reached: the call took another way" % matrix.unreached)
    print("crash points: %d passed, %d failed, 0 skipped" % (matrix.passed, matrix.failed))
    sys.exit(1 if matrix.failed or not matrix.passed else 0)


if __name__ == "__main__":
    main()
