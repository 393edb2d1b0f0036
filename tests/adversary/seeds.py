#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Runs that a seed makes up: a sequence of calls, each with faults of its own, each repeated until
its answer is final; then the faults end, the driver is started anew, and every promise is checked.

    lab python3 seeds.py [--first K] [--count N] [--step J] [--verbose]

The seeds are K, K + J, K + 2 J ... of them N. A failure prints the seed, what was planned and what
happened. Ends with a line of counts.
"""
import argparse
import os
import random
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import trees  # noqa: E402
from changing import Changing  # noqa: E402
from faults import make_rules  # noqa: E402
from servers import Failure  # noqa: E402
from world import MIB, Broken, Case, Server, listed, mode_of, plant, settled  # noqa: E402

STEPS_MAX = 40  # changes of a tree that changes while it is copied


class Volume:
    """What is known of one that was answered OK."""

    def __init__(self, name, volume_id, directory, parameters):
        self.name = name
        self.id = volume_id
        self.directory = directory
        self.on_delete = parameters.get("onDelete", "delete")
        self.parameters = parameters
        self.size = MIB
        self.content = {}  # a survey
        self.mode = None
        self.owner = None
        self.is_shared = False
        self.request = None  # the fields of the CreateVolume that was answered OK


class Run:
    """One seed."""

    def __init__(self, seed):
        self.seed = seed
        self.r = random.Random(seed)
        r = self.r
        self.version = r.choice(("3", "3", "3", "4.0", "4.2"))
        self.options = [option for option, chance in (
            ("--delete-mode=inline", 0.15), ("--verify-clones", 0.15),
            ("--remove-archived-volume-path", 0.3)) if r.random() < chance]
        self.options.append("--window=%d" % r.choice((1, 3, 64)))
        self.replicas = r.choice((1, 1, 2))
        self.has_faults = r.random() < 0.95
        self.volumes = {}
        self.snapshots = {}  # entries by name, with the name of the source
        self.retained = {}  # directories that stay, with a survey
        self.kept = set()  # directories that volumes share and one of them retained
        self.deleted = []  # ids
        self.plan = []
        self.count = 0
        self.case = None
        self.trace = []

    # ---- a call ----

    def faults(self):
        if not self.has_faults or self.r.random() < 0.35:
            return []
        return [rule for _ in range(self.r.choice((1, 1, 2, 3)))
                for rule in make_rules(self.r, self.case.kill)]

    def call(self, method, on_call=None, **fields):
        """With faults, until it is final: the answer, the error, and whether a fault may be why."""
        case = self.case
        rules = self.faults()
        takes_over = case.drivers[1:] and self.r.random() < 0.5
        self.plan.append("%s %s: %s%s" % (method, case.what(fields), rules,
                                          ", another driver takes over" if takes_over else ""))
        case.note("faults: %s", rules)
        case.proxy.begin(rules, on_call, case.versions)
        answer, failure = case.once(method, **fields)
        if case.killed.is_set():
            case.killed.clear()
            case.driver.process.wait()
            case.revive(other=takes_over)
        if failure is not None and case.goes_on(method, failure):
            answer, failure = case.settle(method, **fields)
        hits = case.proxy.end()
        excused = any(n and rule.what.startswith("status") for rule, n in hits)
        if case.proxy.problems:
            raise Failure("the proxy: %s" % case.proxy.problems)
        self.trace = case.proxy.trace(150)
        case.proxy.begin([], versions=case.versions)
        case.killed.clear()
        if failure is not None and not excused:
            raise Broken("%s is answered %s: %s, and nothing is in its way" % (
                method, failure.code().name, failure.details()))
        return answer, failure

    def create(self, name, fields, check):
        """CreateVolume. A final error leaves nothing behind; without faults it is OK then."""
        answer, failure = self.call("CreateVolume", **fields)
        if failure is not None:
            settled(self.check_state, 2)
            if self.r.random() < 0.4:
                self.case.note("the caller gives up")
                return None
            answer = self.case.must("CreateVolume", **fields)
        check(answer.volume)
        return answer.volume

    # ---- what may happen ----

    def fresh(self, kind):
        self.count += 1
        return "%s%d" % (kind, self.count)

    def parameters(self, name):
        """Of a StorageClass, and the directory that they lead to. Plants what is there already."""
        r = self.r
        given = {}
        form = r.choice(("", "", "", "team", "deep", "claim", "long", "refuse", "adopt", "require",
                         "shared"))
        directory = name
        if form == "team":
            directory = given["subDir"] = "team/" + name
        elif form == "deep":
            directory = given["subDir"] = "a/b/c/" + name
        elif form == "claim":
            given["subDir"] = "ns/${pvc.metadata.name}"
            given["csi.storage.k8s.io/pvc/name"] = "claim-" + name
            given["csi.storage.k8s.io/pvc/namespace"] = "ns"
            directory = "ns/claim-" + name
        elif form == "long":
            directory = given["subDir"] = "%s/%s/%s" % ("l" * 180, "m" * 200, name)
        elif form == "refuse":
            directory = given["subDir"] = "refuse/" + name
            given["existingDirectory"] = "refuse"
        elif form in ("adopt", "require"):
            directory = given["subDir"] = "there-" + name
            given["existingDirectory"] = form
            os.makedirs(self.case.path(directory))
            trees.write(self.case.path(directory, "theirs"), b"there before\n")
        elif form == "shared":
            directory = given["subDir"] = "shared"
            given["onDelete"] = r.choice((None, None, "retain"))
        else:
            given["onDelete"] = r.choice((None, None, "delete", "retain", "archive"))
            if r.random() < 0.3:
                given["mountPermissions"] = r.choice(("0770", "2775", "0700"))
            if r.random() < 0.2:
                given["uid"], given["gid"] = "1000", "2000"
        return {k: v for k, v in given.items() if v is not None}, directory

    def is_new(self, name, directory, parameters, source=None, content=None, size=MIB):
        """Creates it. content: what has to be in it then."""
        case = self.case
        fields = case.request(name, size, source, **parameters)
        existing = trees.survey(case.path(directory)) if os.path.isdir(case.path(directory)) else {}
        if content is None:
            content = existing
        if parameters.get("existingDirectory") in ("adopt", "require"):
            self.retained[directory] = existing  # until it is a volume

        def check(volume):
            found = trees.differences(content, trees.survey(case.path(directory)),
                                      sockets=source is None or source[0] == "volume")
            if found:
                raise Broken("in the new volume %s: %s" % (name, trees.told(found)))
            if source is not None and getattr(
                    getattr(volume.content_source, source[0]), source[0] + "_id") != source[1]:
                raise Broken("the answer does not tell what it is made of")
            self.check_attributes(directory, parameters)

        volume = self.create(name, fields, check)
        if volume is None:
            return None
        made = self.volumes[name] = Volume(name, volume.volume_id, directory, parameters)
        made.size = size
        made.is_shared = parameters.get("subDir") == "shared"
        made.request = fields
        self.retained.pop(directory, None)
        if not made.is_shared and source is None and self.r.random() < 0.7:
            plant(case.path(directory), big=self.r.choice((1000, 100000, 600000)))
        made.content = trees.survey(case.path(directory))
        for other in self.volumes.values():
            if other.directory == directory:
                other.content = made.content
        settled(self.check_state, 2)
        return made

    def check_attributes(self, directory, parameters):
        path = self.case.path(directory)
        status = os.lstat(path)
        wanted = parameters.get("mountPermissions")
        if wanted is not None and mode_of(path) != int(wanted, 8):
            raise Broken("%s has mode %o and should have %s" % (directory, mode_of(path), wanted))
        if "uid" in parameters and (status.st_uid, status.st_gid) != (1000, 2000):
            raise Broken("%s belongs to %d:%d" % (directory, status.st_uid, status.st_gid))

    def do_create(self):
        name = self.fresh("v")
        parameters, directory = self.parameters(name)
        self.is_new(name, directory, parameters)

    def do_clone(self):
        source = self.some(self.volumes)
        if source is None:
            return self.do_create()
        name = self.fresh("c")
        parameters, directory = self.for_copy(name)
        self.is_new(name, directory, parameters, ("volume", source.id), source.content,
                    source.size)
        return None

    def for_copy(self, name):
        """A place with nothing in it."""
        parameters, directory = {"existingDirectory": "adopt"}, ""
        while parameters.get("existingDirectory") in ("adopt", "require") or directory == "shared":
            if directory.startswith("there-"):
                subprocess.run(["rm", "-rf", self.case.path(directory)], check=True)
            parameters, directory = self.parameters(name)
        return parameters, directory

    def do_snapshot(self):
        source = self.some(self.volumes)
        if source is None:
            return self.do_create()
        self.snap(source, lambda path: trees.differences(
            source.content, trees.read_archive(path), sockets=False))
        return None

    def snap(self, source, differences, on_call=None):
        case = self.case
        name = self.fresh("s")
        kind = self.r.choice(("none", "gzip"))
        fields = {"name": name, "source_volume_id": source.id, "secrets": case.secrets,
                  "parameters": {"compression": kind}}
        answer, failure = self.call("CreateSnapshot", on_call, **fields)
        if failure is not None:
            settled(self.check_state, 2)
            answer = case.must("CreateSnapshot", **fields)
        found = listed(case.path(name))
        if len(found) != 1 or not found[0].endswith(".tar" if kind == "none" else ".tar.gz"):
            raise Broken("in the folder of the snapshot %s there is %s" % (name, found))
        path = case.path(name, found[0])
        lines = differences(path)
        if lines:
            raise Broken("the archive of %s: %s" % (source.name, trees.told(lines)))
        self.snapshots[name] = (answer.snapshot.snapshot_id, trees.read_archive(path), source.size)
        settled(self.check_state, 2)

    def do_restore(self):
        if not self.snapshots:
            return self.do_snapshot()
        snapshot_id, content, size = self.snapshots[self.r.choice(sorted(self.snapshots))]
        name = self.fresh("r")
        parameters, directory = self.for_copy(name)
        self.is_new(name, directory, parameters, ("snapshot", snapshot_id), content, size)
        return None

    def do_changing(self):
        """A clone or a snapshot of a volume whose files change meanwhile."""
        case, r = self.case, self.r
        name = self.fresh("x")
        volume = case.must("CreateVolume", **case.request(name)).volume
        tree = Changing(case.path(name), "%s %s" % (self.seed, name))
        made = self.volumes[name] = Volume(name, volume.volume_id, name, {})
        every = r.choice((3, 7, 15))
        steps = [0]

        # Blind changes, or a file is replaced while files are read.
        aims = r.random() < 0.5

        def on_call(call):
            if steps[0] >= STEPS_MAX:
                return
            if call.number % every == 0 or aims and call.name == "READ" and call.number % 2:
                steps[0] += 1
                tree.step("replace" if aims and call.name == "READ" else None)
        try:
            if r.random() < 0.5:
                self.changing_clone(tree, made, on_call)
            else:
                self.changing_snapshot(tree, made, on_call)
        finally:
            self.plan.append("   %d changes meanwhile" % steps[0])
        made.content = trees.survey(case.path(name))

    def changing_clone(self, tree, made, on_call):
        case = self.case
        name = self.fresh("c")
        fields = case.request(name, source=("volume", made.id))
        answer, failure = self.call("CreateVolume", on_call, **fields)
        made.content = trees.survey(case.path(made.directory))
        if failure is not None:
            settled(self.check_state, 2)
            answer = case.must("CreateVolume", **fields)
        tree.check(case.path(name))
        clone = self.volumes[name] = Volume(name, answer.volume.volume_id, name, {})
        clone.content = trees.survey(case.path(name))
        settled(self.check_state, 2)

    def changing_snapshot(self, tree, made, on_call):
        case = self.case

        def differences(path):
            place = os.path.join(case.place, "unpacked")
            os.mkdir(place)
            subprocess.run(["tar", "-xpf", path, "--same-owner", "-C", place], check=True)
            inside = [n for n in listed(place)]
            root = os.path.join(place, inside[0]) if inside == [made.name] else place
            tree.check(root, archived=True)
            subprocess.run(["rm", "-rf", place], check=True)
            made.content = trees.survey(case.path(made.directory))
            return []
        made.content = None
        self.snap(made, differences, on_call)

    def do_expand(self):
        volume = self.some(self.volumes)
        if volume is None:
            return
        size = volume.size + self.r.randrange(1, 5) * MIB
        fields = {"volume_id": volume.id, "capacity_range": {"required_bytes": size},
                  "secrets": self.case.secrets}
        answer, failure = self.call("ControllerExpandVolume", **fields)
        if failure is not None:
            answer = self.case.must("ControllerExpandVolume", **fields)
        if answer.capacity_bytes != size:
            raise Broken("the size of %s is %d, not %d" % (
                volume.name, answer.capacity_bytes, size))
        volume.size = size

    def do_modify(self):
        volume = self.some({n: v for n, v in self.volumes.items() if not v.is_shared})
        if volume is None:
            return
        mutable = {"mountPermissions": self.r.choice(("2770", "0711"))}
        if self.r.random() < 0.5:
            mutable["uid"], mutable["gid"] = "1000", "2000"
        if self.r.random() < 0.6:
            mutable["onDelete"] = self.r.choice(("retain", "delete", "archive"))
        fields = {"volume_id": volume.id, "mutable_parameters": mutable,
                  "secrets": self.case.secrets}
        answer, failure = self.call("ControllerModifyVolume", **fields)
        if failure is not None:
            answer = self.case.must("ControllerModifyVolume", **fields)
        del answer
        # Special bits that a directory has stay, where none are asked for.
        mode = int(mutable["mountPermissions"], 8)
        if not mode & 0o7000:
            mode |= int(volume.parameters.get("mountPermissions", "0"), 8) & 0o7000
        mutable["mountPermissions"] = "%04o" % mode
        volume.parameters = dict(volume.parameters, **mutable)
        volume.on_delete = volume.parameters.get("onDelete", "delete")
        self.check_attributes(volume.directory, volume.parameters)

    def do_delete(self):
        volume = self.some(self.volumes)
        if volume is not None:
            self.delete(volume)

    def delete(self, volume, faults=True):
        case = self.case
        fields = {"volume_id": volume.id, "secrets": case.secrets}
        if faults:
            failure = self.call("DeleteVolume", **fields)[1]
            if failure is not None:
                raise Broken("DeleteVolume of %s has no end: %s: %s" % (
                    volume.name, failure.code().name, failure.details()))
        else:
            case.must("DeleteVolume", **fields)
        del self.volumes[volume.name]
        self.deleted.append(volume.id)
        last = not any(v.directory == volume.directory for v in self.volumes.values())
        if volume.on_delete == "retain" and not last:
            self.kept.add(volume.directory)
        if last and (volume.on_delete == "retain" or volume.directory in self.kept):
            self.kept.discard(volume.directory)
            self.retained[volume.directory] = volume.content
        elif last and volume.on_delete == "archive":
            self.retained["archived-" + volume.directory] = volume.content
        elif not last:
            return
        settled(self.check_state, 2)

    def do_repeat(self):
        """A caller asks again for what was answered OK: it lost the answer."""
        case = self.case
        made = {n: v for n, v in self.volumes.items() if v.request is not None}
        if made and self.r.random() < 0.4:
            volume = self.some(made)
            answer = case.must("CreateVolume", **volume.request)
            if answer.volume.volume_id != volume.id:
                raise Broken("%s is %s now, and was %s" % (
                    volume.name, answer.volume.volume_id, volume.id))
        elif self.deleted:
            case.must("DeleteVolume", volume_id=self.r.choice(self.deleted), secrets=case.secrets)
        settled(self.check_state, 2)
        self.check_contents()

    def do_unsnap(self):
        if not self.snapshots:
            return
        name = self.r.choice(sorted(self.snapshots))
        self.call("DeleteSnapshot", snapshot_id=self.snapshots[name][0], secrets=self.case.secrets)
        del self.snapshots[name]
        settled(self.check_state, 2)

    def do_list(self):
        self.call("ListVolumes")

    def some(self, volumes):
        """One of them, or None."""
        return volumes[self.r.choice(sorted(volumes))] if volumes else None

    # ---- looks ----

    def check_state(self):
        self.case.check_state(volumes={n: v.directory for n, v in self.volumes.items()},
                              snapshots=self.snapshots, retained=self.retained)

    def check_contents(self):
        case = self.case
        case.check_strangers()
        wanted = {v.directory: v.content for v in self.volumes.values()}
        wanted.update(self.retained)
        for directory, content in wanted.items():
            found = trees.differences(content, trees.survey(case.path(directory)))
            if found:
                raise Broken("%s has changed: %s" % (directory, trees.told(found)))
        for volume in self.volumes.values():
            self.check_attributes(volume.directory,
                                  volume.parameters if not volume.is_shared else {})
        for name, (_, content, _) in self.snapshots.items():
            found = trees.differences(content, trees.read_archive(
                case.path(name, listed(case.path(name))[0])), sockets=False)
            if found:
                raise Broken("the snapshot %s has changed: %s" % (name, trees.told(found)))

    def check_listed(self):
        case = self.case
        wanted = sorted([v.id for v in self.volumes.values()]
                        + [case.volume_id(n, d if d != n else None)
                           for n, d in case.neighbours.items()])
        found = sorted(e.volume.volume_id for e in case.must("ListVolumes").entries)
        if found != wanted:
            raise Broken("ListVolumes lists %s; there should be %s" % (found, wanted))
        entries = case.must("ListSnapshots", secrets=case.secrets).entries
        found = sorted(e.snapshot.snapshot_id for e in entries)
        wanted = sorted(i for i, _, _ in self.snapshots.values())
        if found != wanted:
            raise Broken("ListSnapshots lists %s; there should be %s" % (found, wanted))
        for volume in self.volumes.values():
            size = int(case.state().volumes[volume.name]["size"])
            if size != volume.size:
                raise Broken("the size of %s is %d, not %d" % (volume.name, size, volume.size))

    # ---- all of it ----

    CALLS = ("create",) * 5 + ("clone",) * 3 + ("changing",) * 3 + ("snapshot", "restore") * 2 + (
        "expand", "modify", "delete", "delete", "delete", "repeat", "repeat", "unsnap", "list")

    def go(self, server):
        with Case(server, "seed-%d" % self.seed, self.version, tuple(self.options),
                  self.replicas) as self.case:
            self.plan.append("version %s, %s, %d drivers" % (
                self.version, self.options, self.replicas))
            self.trace = []
            try:
                for _ in range(self.r.randrange(3, 8)):
                    getattr(self, "do_" + self.r.choice(self.CALLS))()
                self.the_end()
            except BaseException:
                self.trace += ["then:"] + self.case.proxy.trace(25)
                for driver in self.case.drivers:
                    self.trace += ["the driver's log:", driver.tail(25)]
                raise
        self.case.remove_logs()

    def the_end(self):
        case = self.case
        case.note("the faults have ended")
        case.converge()
        self.check_state()
        self.check_contents()
        self.check_listed()
        for volume in list(self.volumes.values()):
            self.delete(volume, faults=False)
        for snapshot_id, _, _ in self.snapshots.values():
            case.must_unsnap(snapshot_id)
        self.snapshots.clear()
        for volume_id in self.deleted:
            case.must("DeleteVolume", volume_id=volume_id, secrets=case.secrets)
        case.converge()
        self.check_state()
        self.check_contents()


def report(run, failure):
    print("FAIL seed %d: %s" % (run.seed, str(failure).replace("\n", "\n   ")))
    if not isinstance(failure, Broken):
        traceback.print_exception(failure, file=sys.stdout)
    log = run.case.log if run.case else []
    for mark, lines in (("planned", run.plan), ("|", log), (">", run.trace)):
        for line in lines:
            print("   %s %s" % (mark, line.rstrip().replace("\n", "\n      ")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="begin no seed after this time")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--kernel", action="store_true", 
                        help="the kernel's server, see lab --kernel nfsd")
    given = parser.parse_args()
    passed = failed = 0
    begun = time.monotonic()
    with Server(os.path.join(os.environ["LAB_DIR"], "seeds"),
                os.path.join(os.environ["LAB_DISK"], "seeds"), given.kernel) as server:
        for seed in range(given.first, given.first + given.count * given.step, given.step):
            if given.seconds and time.monotonic() - begun > given.seconds and passed:
                break
            run = Run(seed)
            at = time.monotonic()
            try:
                run.go(server)
            except Exception as e:  # pylint: disable=broad-except
                failed += 1
                report(run, e)
            else:
                passed += 1
                print("ok   seed %d (%.1f s)" % (seed, time.monotonic() - at))
                if given.verbose:
                    print("\n".join("   planned " + line for line in run.plan))
            sys.stdout.flush()
    print("%.1f s, %.2f s a seed" % (time.monotonic() - begun,
                                     (time.monotonic() - begun) / max(1, passed + failed)))
    print("adversary: %d passed, %d failed, 0 skipped" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
