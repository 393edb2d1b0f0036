# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Where an adversary's run takes place: a server behind the proxy, a share for each case, drivers
that can be killed, a caller that asks again as Kubernetes' sidecars do, and looks at what is on the
disk. For use inside a lab only.
"""
import contextlib
import os
import re
import shutil
import stat
import subprocess
import threading
import time
import urllib.parse

import grpc

import trees
from csi_client import capability
from driver import Driver
from rpc_proxy import Proxy
from servers import Export, Ganesha, KernelServer, run, wait_for

CODE = grpc.StatusCode
SERVER = "127.0.0.1"
STATE = ".csi-nfs"
MIB = 1 << 20
# "It may yet come to be": what a caller goes on with, whatever else it wants (external-provisioner,
# external-resizer and external-snapshotter; those two also take RESOURCE_EXHAUSTED so).
NOT_FINAL = (CODE.ABORTED, CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED, CODE.CANCELLED)
PATIENCE = 180  # seconds for a call to come to its end: not its speed, but whether it has one
QUIET = 10  # seconds in which nothing comes of a purge any more


class Broken(Exception):
    """A promise that was not kept."""


def settled(look, seconds):
    """What look() returns. What goes on in the background has so long until it does not fail."""
    end = time.monotonic() + seconds
    while True:
        try:
            return look()
        except (Broken, OSError):
            if time.monotonic() > end:
                raise
        time.sleep(0.05)


class Fresh(Export):
    """An export of which the server remembers nothing, so that it sees changes of its disk."""

    def block(self, number):
        return super().block(number).replace("FSAL {", "Attr_Expiration_Time = 0; FSAL {")


class Forgetful(Ganesha):
    """Likewise of what is in directories."""

    def _write_config(self):
        path = super()._write_config()
        with open(path, "a", encoding="ascii") as f:
            f.write("MDCACHE { Dir_Chunk = 0; }\n")
        return path


class Kernel(KernelServer):
    """The kernel's own server. What is mounted below its root is exported too."""

    def __init__(self, home, root):
        super().__init__(root, "rw,no_root_squash,insecure,fsid=0,no_subtree_check,crossmnt")
        self.home = home

    @property
    def mount_port(self):
        """Where rpcbind says that rpc.mountd is."""
        def ports():
            found = run("rpcinfo", "-p", "127.0.0.1").stdout.splitlines()
            return [int(w[3]) for w in map(str.split, found) if w[:3] == ["100005", "3", "tcp"]]
        wait_for(ports)
        return ports()[0]

    def restart(self):
        self.stop()
        self.start()


class Server:
    """The server and the proxy before it; they serve one case after the other."""

    def __init__(self, home, disk, kernel=False):
        self.home = home
        self.root = os.path.join(disk, "shares")
        self.kernel = kernel
        os.makedirs(self.root)
        os.makedirs(home, exist_ok=True)
        self.real = Kernel(home, self.root) if kernel else \
            Forgetful(os.path.join(home, "server"), [Fresh(self.root)])
        self.real.start()
        self.proxy = Proxy(self.real.port, self.real.mount_port).start()

    def path(self, path, version):
        """As clients name it. The root of the kernel's version 4 tree is what it exports."""
        return path[len(self.root):] if self.kernel and version != "3" else path

    def stop(self):
        self.proxy.stop()
        self.real.__exit__()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


# ---- records ----

def decode(text):
    """A record's text as a dict."""
    pairs = (part.split("=", 1) for part in text.split(";"))
    return {urllib.parse.unquote(k): urllib.parse.unquote(v) for k, v in pairs}


def read_text(path):
    """Of a link, or of the file that stands for one where the server refuses links."""
    if os.path.islink(path):
        return os.readlink(path)
    with open(path) as f:
        text, _, checksum = f.read().rstrip("\n").rpartition("\n")
    if len(checksum) != 16:
        raise Broken("%s is no whole record" % path)
    return text


def read_record(folder, name):
    """Of a record in one text or several. Raises Broken where parts are missing."""
    text = read_text(os.path.join(folder, name))
    head = decode(text)
    if "parts" not in head:
        return head
    whole = ""
    for i in range(int(head["parts"])):
        part = os.path.join(folder, "%s~%s.%d" % (name, head["hash"], i))
        if not os.path.lexists(part):
            raise Broken("the record of %s lacks its part %d" % (name, i))
        whole += read_text(part)
    return dict(decode(whole), parts=head["parts"], hash=head["hash"])


def listed(path):
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


class State:
    """What the driver keeps on a share, as it is now."""

    def __init__(self, share):
        self.top = os.path.join(share, STATE)
        self.volumes, self.snapshots = self.records("volumes"), self.records("snapshots")
        self.strays = self.loose("volumes", self.volumes) + self.loose("snapshots", self.snapshots)
        self.parents = self.records("parents")  # pending notes
        self.noted, strays = self.final_notes()
        self.strays += strays
        users = os.path.join(self.top, "users")
        self.users = {d: listed(os.path.join(users, d)) for d in listed(users)}
        self.work = listed(os.path.join(self.top, "work"))
        self.trash = listed(os.path.join(self.top, "trash"))

    def left(self, folder, name):
        """The directory that a note of one that was left to others is about."""
        return read_record(os.path.join(self.top, "users", folder), name)["dir"]

    def records(self, folder):
        path = os.path.join(self.top, folder)
        return {n: read_record(path, n) for n in listed(path) if "~" not in n}

    def final_notes(self):
        """Notes about directories that were made, {name: (directory, inode number)}, and parts of
        no pending one."""
        path, noted, strays = os.path.join(self.top, "parents"), {}, []
        for name in self.loose("parents", self.parents):
            name = os.path.basename(name)
            found = re.fullmatch(r".*~([0-9a-f]+)\.[34]\.[0-9a-f]+", name)
            if found:
                noted[name] = read_record(path, name)["dir"], int(found.group(1), 16)
            else:
                strays.append("parents/" + name)
        return noted, strays

    def loose(self, folder, records):
        """Parts of no record, and drafts."""
        found = []
        for name in listed(os.path.join(self.top, folder)):
            key, mark, rest = name.partition("~")
            record = records.get(key)
            if mark and (record is None or rest.split(".")[0] != record.get("hash")):
                found.append(folder + "/" + name)
        return found


# ---- what is in volumes ----

def plant(path, big=100000):
    """A small tree with one of each that a copy may lose."""
    path = os.fsencode(path)
    for folder in (b"", b"d", b"d/e", b"empty", b"locked"):
        os.makedirs(os.path.join(path, folder), exist_ok=True)
    files = {b"a": b"first\n", b"none": b"", b"d/b": b"x" * 5000, b"d/e/c": b"deep\n",
             b"locked/in": b"in\n",
             b"big": bytes(i * 7 & 255 for i in range(256)) * (big // 256), b"names\n\xff": b"n"}
    for name, data in files.items():
        trees.write(os.path.join(path, name), data)
    os.link(os.path.join(path, b"a"), os.path.join(path, b"d", b"a too"))
    os.symlink(b"/nowhere/at/all", os.path.join(path, b"link"))
    os.mkfifo(os.path.join(path, b"d", b"fifo"))
    with open(os.path.join(path, b"sparse"), "wb") as f:
        f.seek(1 << 20)
        f.write(b"end")
    os.chown(os.path.join(path, b"d/b"), 1000, 2000)
    os.chmod(os.path.join(path, b"d/b"), 0o4755)
    os.chmod(os.path.join(path, b"locked"), 0o2550)
    for i, name in enumerate(sorted(list(trees.walk(path)), reverse=True)):
        when = 1500000000 * trees.SECOND + i * 1000000007
        os.utime(os.path.join(path, name), ns=(when, when), follow_symlinks=False)


class Case:
    """A share of its own with strangers on it, and the drivers of a run."""

    neighbours = {"neighbour": "neighbour", "other-neighbour": "team/neighbour"}

    def __init__(self, server, name, version="3", options=(), replicas=1):
        self.server = server
        self.proxy = server.proxy
        self.name = name
        self.version = version
        self.versions = (3, 4) if version == "3" else (4,)
        self.place = os.path.join(server.root, name)
        self.share = os.path.join(self.place, "share")
        self.export = server.path(self.share, version)  # the share, as the driver knows it
        self.outside = os.path.join(self.place, "outside")
        self.drivers = [Driver(server.home, *options, name="%s-%d" % (name, i))
                        for i in range(replicas)]
        self.active = 0
        self.killed = threading.Event()
        self.is_denied = False  # a call: notes of use may stay, which do no harm
        self.log = []
        self.cleanups = contextlib.ExitStack()  # of what a scenario has set up
        self.started = time.monotonic()

    # ---- its beginning and its end ----

    def __enter__(self):
        self.proxy.begin([], versions=self.versions)
        for path in (self.share, self.outside, os.path.join(self.share, "canary/d")):
            os.makedirs(path)
        for path in (self.outside, os.path.join(self.share, "canary"),
                     os.path.join(self.share, "canary/d")):
            trees.write(os.path.join(path, "file"), b"not yours\n", 0o640)
        try:
            for driver in self.drivers:
                driver.start()
            for name, directory in self.neighbours.items():
                self.must("CreateVolume", **self.request(
                    name, subDir=directory if directory != name else None))
                trees.write(os.path.join(self.share, directory, "file"), b"a neighbour's\n")
        except BaseException:
            self.__exit__()
            raise
        self.before = self.strangers()
        return self

    def __exit__(self, *unused):
        self.proxy.end()
        for driver in self.drivers:
            driver.kill()
        self.proxy.cut_all()
        self.cleanups.close()
        shutil.rmtree(self.place, onerror=self._unlock)

    @staticmethod
    def _unlock(function, path, failure):
        if isinstance(failure[1], FileNotFoundError):
            return
        raise failure[1]

    def remove_logs(self):
        for driver in self.drivers:
            for path in (driver.log, driver.socket):
                if os.path.exists(path):
                    os.unlink(path)

    def note(self, text, *values):
        text = text % values if values else text
        self.log.append("%6.2f %s" % (time.monotonic() - self.started, text))

    # ---- calls ----

    @property
    def driver(self):
        return self.drivers[self.active]

    @property
    def mount_options(self):
        return "vers=%s,port=%d,mountport=%d" % (
            self.version, self.proxy.port, self.proxy.mount_port)

    @property
    def secrets(self):
        return {"mountOptions": self.mount_options}

    def request(self, name, size=MIB, source=None, mutable=None, **parameters):
        """Fields of CreateVolume. source: of a volume_content_source."""
        given = {"server": SERVER, "share": self.export}
        given.update({k.replace("__", "/"): v for k, v in parameters.items() if v is not None})
        fields = {"name": name, "parameters": given, "secrets": self.secrets,
                  "volume_capabilities": [capability(flags=self.mount_options.split(","))],
                  "capacity_range": {"required_bytes": size}}
        if mutable:
            fields["mutable_parameters"] = mutable
        if source is not None:
            kind, text = source
            fields["volume_content_source"] = {kind: {kind + "_id": text}}
        return fields

    def volume_id(self, name, directory=None, on_delete=""):
        """As the manual has it, for calls about a volume whose creation never answered."""
        plain = directory is None
        return "#".join((SERVER, self.export.strip("/"), name if plain else directory,
                         "" if plain else name, on_delete))

    def snapshot_id(self, name, source):
        return "#".join((SERVER, self.export.strip("/"), name, name, source))

    def once(self, method, timeout=30, **fields):
        """One call: the answer and None, or None and the error."""
        client = self.driver.client
        try:
            answer = getattr(client, method)(timeout=timeout, **fields)
        except grpc.RpcError as e:
            self.note("%s %s: %s: %s", method, self.what(fields), e.code().name, e.details())
            return None, e
        self.note("%s %s: OK", method, self.what(fields))
        return answer, None

    @staticmethod
    def what(fields):
        return next((fields[k].rpartition("/")[2] for k in ("name", "volume_id", "snapshot_id")
                     if k in fields), "")

    def settle(self, method, tries=1000, **fields):
        """Calls until the answer is final: as once(). Drivers that died are started anew."""
        end = time.monotonic() + PATIENCE
        for i in range(tries):
            if self.driver.process.poll() is not None:
                self.revive()
            answer, failure = self.once(method, **fields)
            if failure is None or not self.goes_on(method, failure):
                return answer, failure
            if method == "DeleteVolume" and self.find_server():
                end = time.monotonic() + PATIENCE
            if time.monotonic() > end:
                raise Broken("%s has no end after %d s: %s: %s" % (
                    method, PATIENCE, failure.code().name, failure.details()))
            time.sleep(min(0.05 * (i + 1), 0.4))
        return answer, failure

    @staticmethod
    def goes_on(method, failure):
        """Whether a caller asks again because it does not know what has come of it."""
        code = failure.code()
        return code in NOT_FINAL or method.startswith("Delete") \
            or code == CODE.RESOURCE_EXHAUSTED and method != "CreateVolume"

    def must(self, method, **fields):
        """The answer of what has to be answered OK in the end."""
        answer, failure = self.settle(method, **fields)
        if failure is not None:
            raise Broken("%s %s is answered %s: %s" % (method, self.what(fields),
                                                       failure.code().name, failure.details()))
        return answer

    def must_delete(self, volume_id):
        self.must("DeleteVolume", volume_id=volume_id, secrets=self.secrets)

    def must_unsnap(self, snapshot_id):
        self.must("DeleteSnapshot", snapshot_id=snapshot_id, secrets=self.secrets)

    # ---- death ----

    def kill(self, *unused):
        """SIGKILL to the active driver. The proxy's thread may call it."""
        process = self.driver.process
        if process is not None:
            process.kill()
        self.killed.set()

    def revive(self, other=False):
        """The same driver again, or another that was running all the time."""
        self.driver.kill()
        if other:
            self.active = (self.active + 1) % len(self.drivers)
            self.note("another driver takes over")
        if self.driver.process is None:
            self.driver.start()
            self.note("the driver is started again")

    # ---- looks ----

    def path(self, *parts):
        return os.path.join(self.share, *parts)

    def state(self):
        return State(self.share)

    def strangers(self):
        """All of what no call is about, to be compared."""
        state = self.state()
        found = {path: trees.survey(os.path.join(self.place, path))
                 for path in ["outside", "share/canary"]
                 + ["share/" + d for d in self.neighbours.values()]}
        return found, {n: state.volumes.get(n) for n in self.neighbours}

    def check_strangers(self):
        trees_now, records = self.strangers_now()
        for path, wanted in self.before[0].items():
            lines = trees.differences(wanted, trees_now.get(path, {}), root=True)
            if lines:
                raise Broken("%s, which no call was about, has changed: %s" % (
                    path, trees.told(lines)))
        for name, record in self.before[1].items():
            if records[name] != record:
                raise Broken("the record of %s, which no call was about, was %s and is %s" % (
                    name, record, records[name]))

    def strangers_now(self):
        try:
            return self.strangers()
        except FileNotFoundError as e:
            raise Broken("what no call was about is gone: %s" % e.filename) from e

    def touch(self):
        """A call that changes nothing, so that the driver knows of the share."""
        self.must("ValidateVolumeCapabilities", volume_id=self.volume_id("neighbour"),
                  volume_capabilities=[capability()], secrets=self.secrets)

    def converge(self):
        """Once every call has had its last answer: what the driver does by itself."""
        self.driver.restart()
        self.touch()
        if self.purged():
            return
        if self.find_server():
            self.driver.restart()
            self.touch()
            if self.purged():
                return
        raise Broken("left behind:\n" + self.left("%y %p\n"))

    def find_server(self):
        """nfs-ganesha may have lost its way in a directory that was changed on its disk: then it
        says that a directory which is there is not, until it is started again. Whether it was."""
        if self.server.kernel or not any("READDIR" in line and "NOENT" in line
                                         for line in self.proxy.trace(30)):
            return False
        self.note("the server is started again, for it does not find a directory that is there")
        self.server.real.restart()
        return True

    def left(self, form):
        """What is in trash and work, as find prints it."""
        return subprocess.run(
            ["find", *(os.path.join(self.share, STATE, n) for n in ("trash", "work")), "-mindepth",
             "1", "-printf", form], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            errors="backslashreplace", check=False).stdout

    def purged(self):
        """Waits as long as there is progress. Whether nothing is left."""
        before, end = None, 0
        while True:
            left = len(self.left("x"))
            if not left:
                return True
            if before is None or left < before:
                before, end = left, time.monotonic() + QUIET
            if time.monotonic() > end:
                return False
            time.sleep(0.05)

    def check_state(self, volumes=(), snapshots=(), retained=()):
        """There are just these volumes, {name: directory}, and snapshots; retained: directories."""
        volumes = dict(volumes, **self.neighbours)
        state = self.state()
        if sorted(state.volumes) != sorted(volumes):
            raise Broken("records of volumes: %s; there should be %s" % (
                sorted(state.volumes), sorted(volumes)))
        if sorted(state.snapshots) != sorted(snapshots):
            raise Broken("records of snapshots: %s; there should be %s" % (
                sorted(state.snapshots), sorted(snapshots)))
        if state.strays:
            raise Broken("parts of no record: %s" % state.strays)
        for name, directory in volumes.items():
            if not os.path.isdir(self.path(directory)):
                raise Broken("the volume %s has a record and no directory %s" % (name, directory))
            if state.volumes[name]["dir"] != directory:
                raise Broken("the record of %s leads to %s" % (name, state.volumes[name]["dir"]))
        self._check_names(state, list(volumes.values()) + list(snapshots) + list(retained))
        self._check_notes(state, volumes)

    def _check_names(self, state, directories):
        tops = {d.split("/")[0] for d in directories} | {"canary", STATE}
        found = set(listed(self.share))
        if found != tops:
            raise Broken("on the share: %s should not be there, %s is missing" % (
                sorted(found - tops), sorted(tops - found)))
        made = {os.path.dirname(d) for d in directories if "/" in d}
        for parent in made:
            inside = {os.path.relpath(d, parent).split("/")[0] for d in directories
                      if d.startswith(parent + "/")}
            extra = set(listed(self.path(parent))) - inside
            if extra:
                raise Broken("in %s: %s belongs to no volume" % (parent, sorted(extra)))

    def _check_notes(self, state, volumes):
        noted = {n: (r["dir"], None) for n, r in state.parents.items()}
        noted.update(state.noted)
        for name, (directory, number) in noted.items():
            if not os.path.isdir(self.path(directory)):
                raise Broken("parents/%s is of a directory that is not there" % name)
            if number not in (None, os.stat(self.path(directory)).st_ino):
                raise Broken("parents/%s is of an earlier directory" % name)
            if not listed(self.path(directory)) and directory not in volumes.values():
                raise Broken("the directory %s, which parents/%s is of, is empty" % (
                    directory, name))
        for directory, keys in state.users.items():
            for key in keys:
                if "~" in key:
                    # A volume that was deleted has left a directory to others: it is still there.
                    left = state.left(directory, key)
                    if not os.path.isdir(self.path(left)):
                        raise Broken("users/%s/%s is of a directory that is not there" % (
                            directory, key))
                elif key not in volumes and not self.is_denied:
                    raise Broken("users/%s/%s is of a volume that is not there" % (directory, key))
            if not keys:
                raise Broken("users/%s is empty" % directory)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)
