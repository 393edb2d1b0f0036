# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""A tree that changes while it is copied, and what a copy of it may look like.

    tree = Changing(path, seed)      # makes it
    tree.step()                      # one change, on the server's own disk; it notes what it did
    tree.check(copy)                 # raises Broken where the copy breaks a promise

For each directory, wherever it was moved to, it knows every object that stood at each name since it
was made, and for each object every content, mode and owner that it had. A copy that began after the
tree was made has at each name one of these objects, whole where nobody wrote into it, else each
byte one that stood there; a name may be missing where at some moment there was nothing. Steps come
from the seed, so a run with the same calls has the same changes.
"""
import os
import random
import re
import stat
import time

import trees
from world import Broken

BLOCK = 4096
BIG = 600000  # more than a server gives in one READ
CHUNK = 512
CHANGES = ("replace",) * 3 + ("write",) * 2 + (
    "append", "truncate", "create", "unlink", "link", "chmod", "move", "rename", "mkdir")
# A server sees by a directory's time that it has changed, and that goes by the kernel's
# clock ticks.
TICKS = 0.01


class Thing:
    """A file, a directory, a symbolic link. What it was in the course of time."""

    def __init__(self, kind, data=b"", mode=0o644, uid=0, gid=0, mtime=None):
        self.kind = kind  # as in trees.Entry
        self.versions = [data]
        self.modes = {mode}
        self.owners = {(uid, gid)}
        self.mtime = mtime  # None: it has changed
        self.is_written = False  # in place
        self.shrank = False
        self.same_links = True
        self.was = {}  # of a directory: all that was there at a name, None for nothing

    @property
    def data(self):
        return self.versions[-1]

    def set_data(self, data):
        if len(data) < len(self.data):
            self.shrank = True
        self.versions.append(data)
        self.is_written = True
        self.mtime = None


class Changing:
    """See above. Paths are text, relative to the root."""

    def __init__(self, root, seed, cold=12, hot=8):
        self.root = root
        self.random = random.Random("tree %s" % seed)
        self.now = {}  # what is at a path; the tree itself at ""
        self.log = []
        self.number = 0
        self.hot = []
        self._plant(cold, hot)

    def path(self, name):
        return os.path.join(self.root, name)

    # ---- its beginning ----

    def _plant(self, cold, hot):
        folders = ["", "still", "busy", "busy/one", "busy/two", "busy/two/three"]
        for name in folders[1:]:
            os.mkdir(self.path(name))
        for i in range(cold):
            folder = folders[i % len(folders)]
            size = (0, 10, BLOCK, 5000, 70000, 1)[self.random.randrange(6)]
            self._new_file(os.path.join(folder, "cold-%d" % i), self._bytes(size))
        for i in range(hot):
            folder = folders[2 + i % 4]
            name = os.path.join(folder, "hot-%d" % i)
            self._new_file(name, self._bytes(BIG if i < 3 else 20000))
            self.hot.append(name)
        os.link(self.path("still/cold-1"), self.path("busy/linked"))
        os.symlink("../nowhere", self.path("busy/symlink"))
        os.chmod(self.path("still/cold-1"), 0o4750)
        os.chown(self.path("still/cold-7"), 1000, 2000)
        for i, name in enumerate(sorted(trees.walk(os.fsencode(self.root)), reverse=True)):
            when = 1400000000 * trees.SECOND + i * 1000000007
            path = os.path.join(os.fsencode(self.root), name)
            os.utime(path, ns=(when, when), follow_symlinks=False)
        self.now.clear()
        things = {}
        for name in sorted(os.fsdecode(n) for n in trees.walk(os.fsencode(self.root))):
            status = os.lstat(self.path(name))
            thing = things.get(status.st_ino) or self._thing_at(name, status)
            things[status.st_ino] = thing
            self.now[name] = thing
        self.first = {}  # names of each file
        for name, thing in self.now.items():
            if thing.kind == "-":
                self.first.setdefault(thing, []).append(name)
        self.now[""] = Thing("d")
        for name, thing in self.now.items():
            if name:
                self.now[os.path.dirname(name)].was[os.path.basename(name)] = [thing]

    def _thing_at(self, name, status):
        kind = trees.KINDS[stat.S_IFMT(status.st_mode)]
        data = b""
        if kind == "-":
            with open(self.path(name), "rb") as f:
                data = f.read()
        elif kind == "l":
            data = os.fsencode(os.readlink(self.path(name)))
        return Thing(kind, data, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid,
                     status.st_mtime_ns)

    def _bytes(self, size):
        """Data that tells where it is from: no two blocks are the same."""
        self.number += 1
        out = b"".join(b"%07d.%06d " % (self.number, at) for at in range(0, size // 15 + 1))
        return out[:size]

    def _new_file(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)

    # ---- changes ----

    def _put(self, name, thing):
        """That is there now; the directory that it is in has changed."""
        if thing is None:
            self.now.pop(name, None)
        else:
            self.now[name] = thing
        folder = self.now[os.path.dirname(name)]
        folder.was.setdefault(os.path.basename(name), [None]).append(thing)
        folder.mtime = None

    def _files(self):
        return [n for n in self.hot if n in self.now]

    def _folders(self):
        return [n for n, t in self.now.items() if t.kind == "d" and n.startswith("busy")]

    def _fresh(self, folder):
        self.number += 1
        return os.path.join(folder, "new-%d" % self.number)

    def step(self, how=None):
        """One change, or just this one."""
        time.sleep(TICKS)
        names = self._files()
        how = how or self.random.choice(CHANGES)
        if not names and how not in ("create", "mkdir", "move"):
            how = "create"
        name = self.random.choice(names) if names else None
        text = getattr(self, "_" + how)(name)
        self.log.append("%s %s" % (how, text))

    def _replace(self, name):
        folder = os.path.dirname(name)
        draft = self._fresh(folder)
        thing = Thing("-", self._bytes(self.random.choice((100, 20000, BIG, BIG + 77777))))
        self._put(draft, thing)
        self._new_file(draft, thing.data)
        os.rename(self.path(draft), self.path(name))
        self.now[name].same_links = False
        self._put(draft, None)
        self._put(name, thing)
        return name

    def _change_data(self, name, data):
        thing = self.now[name]
        thing.set_data(data)  # before and after are both noted by the time anybody reads

    def _append(self, name):
        more = self._bytes(self.random.randrange(1, 3 * BLOCK))
        self._change_data(name, self.now[name].data + more)
        with open(self.path(name), "ab") as f:
            f.write(more)
        return name

    def _write(self, name):
        old = self.now[name].data
        at = self.random.randrange(0, len(old) // BLOCK + 1) * BLOCK
        new = self._bytes(BLOCK)
        self._change_data(name, old[:at] + new + old[at + BLOCK:])
        with open(self.path(name), "r+b") as f:
            f.seek(at)
            f.write(new)
        return "%s at %d" % (name, at)

    def _truncate(self, name):
        old = self.now[name].data
        size = self.random.randrange(0, len(old) + 1)
        self._change_data(name, old[:size])
        os.truncate(self.path(name), size)
        return "%s to %d" % (name, size)

    def _create(self, _):
        name = self._fresh(self.random.choice(self._folders()))
        self._put(name, Thing("-", self._bytes(self.random.randrange(0, 3 * BLOCK))))
        self._new_file(name, self.now[name].data)
        self.hot.append(name)
        return name

    def _unlink(self, name):
        os.unlink(self.path(name))
        self.now[name].same_links = False
        self._put(name, None)
        return name

    def _link(self, name):
        other = self._fresh(self.random.choice(self._folders()))
        thing = self.now[name]
        thing.same_links = False
        self._put(other, thing)
        os.link(self.path(name), self.path(other))
        self.hot.append(other)
        return "%s to %s" % (name, other)

    def _chmod(self, name):
        mode = self.random.choice((0o600, 0o640, 0o755, 0o4711))
        owner = (self.random.randrange(1, 3000), 50)
        thing = self.now[name]
        # chown takes set-id bits away.
        thing.modes |= {mode, mode & 0o777} | {m & 0o777 for m in thing.modes}
        thing.owners |= {owner}
        os.chown(self.path(name), *owner)
        os.chmod(self.path(name), mode)
        return name

    def _rename(self, name):
        other = self._fresh(self.random.choice(self._folders()))
        thing = self.now[name]
        os.rename(self.path(name), self.path(other))
        thing.same_links = False
        self._put(name, None)
        self._put(other, thing)
        self.hot.append(other)
        return "%s to %s" % (name, other)

    def _mkdir(self, _):
        name = self._fresh(self.random.choice(self._folders()))
        self._put(name, Thing("d", mode=0o755))
        self.now[name].mtime = None
        os.mkdir(self.path(name))
        return name

    def _move(self, _):
        folders = [n for n in self._folders() if n != "busy"]
        if not folders:
            return self._mkdir(None)
        name = self.random.choice(folders)
        to = [n for n in self._folders() if n != name and not n.startswith(name + "/")]
        other = self._fresh(self.random.choice(to))
        os.rename(self.path(name), self.path(other))
        moved = {n: self.now[n] for n in self.now if n == name or n.startswith(name + "/")}
        self._put(name, None)
        self._put(other, moved[name])
        for n, thing in moved.items():
            self.now.pop(n, None)
            self.now[other + n[len(name):]] = thing
            thing.same_links = False
        self.hot = [other + n[len(name):] if n in moved else n for n in self.hot]
        moved[name].mtime = None
        return "%s to %s" % (name, other)

    # ---- what a copy may be ----

    def check(self, copy, archived=False):
        """Of a tree, in place or unpacked."""
        got = {os.fsdecode(n): e for n, e in trees.survey(copy).items()}
        inside = {}
        for name in got:
            if name != ".":
                inside.setdefault(os.path.dirname(name), {})[os.path.basename(name)] = name
        wrong, chosen = [], {}
        waiting = [("", self.now[""])]
        while waiting:
            path, folder = waiting.pop()
            here = inside.get(path, {})
            for base in sorted(set(folder.was) | set(here)):
                name = os.path.join(path, base)
                history = folder.was.get(base)
                if base not in here:
                    if None not in history:
                        wrong.append("%s is missing, and was there all the time" % name)
                    continue
                if history is None:
                    wrong.append("%s was never there" % name)
                    continue
                thing = self._choose(history, got[name], os.path.join(copy, name), archived, wrong)
                if thing is not None:
                    chosen[name] = thing
                    if thing.kind == "d":
                        waiting.append((name, thing))
        wrong += self._check_links(got, chosen)
        if wrong:
            raise Broken("a copy of a tree that changed:\n%s\nwhat changed:\n%s" % (
                "\n".join(wrong[:20]), "\n".join(self.log[-25:])))

    def _choose(self, history, entry, path, archived, wrong):
        """Which of the things that were at a name a copy is of. None where it is of none."""
        reasons = []
        things = [t for t in dict.fromkeys(history) if t is not None]
        for thing in things:
            reason = self._differs(thing, entry, path, archived)
            if reason is None:
                return thing
            reasons.append(reason)
        nearest = max(reasons, key=lambda r: int((re.findall(r"yte (\d+)", r) or [0])[0]))
        wrong.append("%s is none of the %d that it was: %s" % (
            os.path.relpath(path, self.root), len(things), nearest))
        # What is in a directory is looked at all the same.
        return things[0] if len(things) == 1 and things[0].kind == entry.kind == "d" else None

    @staticmethod
    def _differs(thing, entry, path, archived):
        if entry.kind != thing.kind:
            return "it is of kind %s, not %s" % (entry.kind, thing.kind)
        if entry.kind == "l":
            return None if entry.data == thing.data else "it leads elsewhere"
        if entry.mode not in thing.modes:
            return "its mode is %o" % entry.mode
        if (entry.uid, entry.gid) not in thing.owners:
            return "it belongs to %d:%d" % (entry.uid, entry.gid)
        if thing.mtime is not None and entry.mtime != thing.mtime:
            return "its time is %d, not %d" % (entry.mtime, thing.mtime)
        if entry.kind != "-":
            return None
        with open(path, "rb") as f:
            data = f.read()
        if not thing.is_written:
            if data == thing.data:
                return None
            return "%d bytes of it are not the %d that were written at once%s" % (
                len(data), len(thing.data), Changing._where(data, thing.data))
        return Changing._patched(thing, data, archived)

    @staticmethod
    def _where(data, wanted):
        """Where two contents part."""
        at = next((i for i, (a, b) in enumerate(zip(data, wanted)) if a != b),
                  min(len(data), len(wanted)))
        return ", from byte %d on: %r for %r" % (at, data[at:at + 16], wanted[at:at + 16])

    @staticmethod
    def _patched(thing, data, archived):
        """Of a file that was written in place: why it can't be of it, or None."""
        sizes = [len(d) for d in thing.versions]
        if not min(sizes) <= len(data) <= max(sizes):
            return "it has %d bytes, and had %s" % (len(data), sorted(set(sizes)))
        for at in range(0, len(data), CHUNK):
            piece = data[at:at + CHUNK]
            if any(d[at:at + len(piece)] == piece for d in thing.versions):
                continue
            for i, byte in enumerate(piece, at):
                if any(i < len(d) and d[i] == byte for d in thing.versions):
                    continue
                if archived and byte == 0 and thing.shrank:
                    continue
                return "byte %d is %#x, which never stood there" % (i, byte)
        return None

    def _check_links(self, got, chosen):
        wrong = []
        for name, entry in got.items():
            if entry.kind != "-" or name not in chosen:
                continue
            thing = chosen[name]
            linked = [os.fsdecode(n) for n in entry.links]
            if thing.same_links and thing in self.first and sorted(linked) != self.first[thing]:
                wrong.append("%s is linked with %s, not with %s" % (
                    name, linked, self.first[thing]))
        return wrong
