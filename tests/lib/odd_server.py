# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""An NFSv3 server with a file system in memory, whose answers a test chooses where servers differ:
no READDIRPLUS, no symbolic or hard links, coarse times, names without case, and errors that other
servers do not send. NFS and MOUNT share one port; there is no rpcbind, lock or quota service.

    server = Server(Habits(plus=False)).start()
    server.put("pvc-1/file", b"data")
"""
import contextlib
import itertools
import os
import random
import socketserver
import struct
import threading
import time
import unicodedata

import wire
from scripted import Call, opaque

OK, PERM, NOENT, IO, ACCES, EXIST, NOTDIR, ISDIR = 0, 1, 2, 5, 13, 17, 20, 21
INVAL, NAMETOOLONG, NOTEMPTY, STALE, NOTSUPP = 22, 63, 66, 70, 10004
REG, DIR, BLK, CHR, LNK, SOCK, FIFO = range(1, 8)
PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR = range(1, 6)
SILENT = -1
NONE, SYS = 0, 1  # flavors
PAGE = 12  # entries of a READDIR or READDIRPLUS reply


class Habits:
    """How a server differs from most others."""

    def __init__(self, plus=True, symlink=OK, symlink_exists=EXIST, link=OK, rmdir_full=NOTEMPTY,
                 flavors=(SYS,), takes=(NONE, SYS), follows=False, folds=False,
                 normalizes=None, keeps_form=False, grain=0, owners=True, compound=None):
        self.plus = plus  # has READDIRPLUS
        self.symlink = symlink  # status of each SYMLINK
        self.symlink_exists = symlink_exists  # status of SYMLINK for an existing name
        self.link = link  # status of each LINK
        self.rmdir_full = rmdir_full
        self.flavors = flavors  # in MOUNT's list
        self.takes = takes  # flavors of NFS calls that are not rejected
        self.follows = follows  # CREATE makes what a dangling symbolic link leads to
        self.folds = folds  # "A" is another name of "a"
        # A Unicode normalization form: names with the same one are the same. READDIR has them in
        # that form (HFS+), or as they were given (ZFS).
        self.normalizes = normalizes
        self.keeps_form = keeps_form
        self.grain = grain  # of times, in seconds; 0: nanoseconds
        self.owners = owners  # keeps them; else everything is root's
        # How RPC refuses COMPOUND where version 4 answers NULL, or SILENT; None: there is no
        # version 4.
        self.compound = compound


class Refusal(Exception):
    """Ends a call with a status."""


class Node:
    """A file, directory or other object."""

    def __init__(self, number, kind, mode):
        self.number = number
        self.kind = kind
        self.mode = mode
        self.uid = self.gid = 0
        self.links = 1
        self.data = bytearray()  # of a file; the target of a symbolic link
        self.device = (0, 0)
        self.names = {}  # of a directory, by folded name: name, node
        self.atime = self.mtime = self.ctime = 0
        self.cookies = {}  # of names, for READDIR
        self.next_cookie = 1


class Server:
    """Serves until stop(). counts has the calls of each procedure."""

    def __init__(self, habits=None):
        self.habits = habits or Habits()
        self.lock = threading.RLock()
        self.numbers = itertools.count(2)
        self.nodes = {}
        self.root = self.new(DIR, 0o755)
        self.verifier = struct.pack(">Q", random.getrandbits(64))
        self.counts = {}
        self.hook = None  # called with the name of each NFS procedure before it is done
        self.tcp = None
        self.port = None

    # ---- for tests ----

    def start(self, host="127.0.0.1"):
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            """One connection."""

            def handle(self):
                with contextlib.suppress(ConnectionError):  # clients end by a reset
                    for data in wire.receive_records(self.request):
                        with outer.lock:
                            reply = outer.answer(Call(data))
                        if reply is not None:
                            self.request.sendall(wire.framed(reply))

        self.tcp = socketserver.ThreadingTCPServer((host, 0), Handler)
        self.tcp.daemon_threads = True
        self.port = self.tcp.server_address[1]
        threading.Thread(target=self.tcp.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self):
        self.tcp.shutdown()
        self.tcp.server_close()

    def flags(self, version="3"):
        ports = ["port=%d" % self.port, "mountport=%d" % self.port]
        return ["vers=" + version] + ports if version else ports

    def find(self, path):
        """The node at path, or None."""
        node = self.root
        for name in filter(None, path.split("/")):
            found = node.names.get(self.fold(name)) if node.kind == DIR else None
            if found is None:
                return None
            node = found[1]
        return node

    def put(self, path, data=None, target=None):
        """Make a file, a symbolic link, or with neither a directory, and all directories above."""
        with self.lock:
            node = self.root
            parts = path.strip("/").split("/")
            for name in parts[:-1]:
                found = node.names.get(self.fold(name))
                node = found[1] if found else self.add(node, name, self.new(DIR, 0o755))
            kind = REG if data is not None else LNK if target is not None else DIR
            made = self.new(kind, 0o644)
            made.data += data if data is not None else (target or "").encode()
            self.add(node, parts[-1], made)

    def link(self, path, name):
        """Give the file at path another name in the same directory."""
        with self.lock:
            node = self.find(path)
            node.links += 1
            self.add(self.find(os.path.dirname(path)), name, node)

    def tree(self, path="", skip=()):
        """What is at path and below, by path: bytes of files, targets of links, None else."""
        with self.lock:
            found = {}

            def visit(node, at):
                for name, child in node.names.values():
                    where = at + "/" + name if at else name
                    if where in skip:
                        continue
                    found[where] = (bytes(child.data) if child.kind == REG else
                                    child.data.decode() if child.kind == LNK else None)
                    visit(child, where)

            visit(self.find(path), "")
            return found

    # ---- the file system ----

    def normal(self, name):
        form = self.habits.normalizes
        return unicodedata.normalize(form, name) if form else name

    def fold(self, name):
        name = self.normal(name)
        return name.casefold() if self.habits.folds else name

    def now(self):
        grain = self.habits.grain * 10**9
        now = time.time_ns()
        return now - now % grain if grain else now

    def new(self, kind, mode):
        node = Node(next(self.numbers), kind, mode)
        node.atime = node.mtime = node.ctime = self.now()
        self.nodes[node.number] = node
        return node

    def touch(self, node):
        node.mtime = node.ctime = self.now()

    def add(self, folder, name, node):
        if not self.habits.keeps_form:
            name = self.normal(name)
        folder.names[self.fold(name)] = (name, node)
        folder.cookies[name] = folder.next_cookie
        folder.next_cookie += 1
        self.touch(folder)
        return node

    def drop(self, folder, name):
        name, node = folder.names.pop(self.fold(name))
        del folder.cookies[name]
        self.touch(folder)
        node.links -= 1
        if node.kind == DIR or node.links == 0:
            del self.nodes[node.number]

    # ---- RPC ----

    def answer(self, call):
        xid = call.u32()
        call.fixed(8)
        program, version, procedure = call.u32(), call.u32(), call.u32()
        flavor = call.u32()
        self.user = self.identity(flavor, call.opaque())
        call.u32()
        call.opaque()
        if flavor not in self.habits.takes and program == 100003 and procedure != 0:
            return struct.pack(">5I", xid, 1, 1, 1, 5)  # AUTH_TOOWEAK
        head = struct.pack(">5I", xid, 1, 0, 0, 0)
        if program not in (100003, 100005):
            return head + struct.pack(">I", 1)
        if version == 4 and self.habits.compound is not None:
            refusal = self.refuse_compound(procedure)
            return head + refusal if refusal is not None else None
        if version != 3:
            return head + struct.pack(">3I", PROG_MISMATCH, 3, 3)
        if procedure == 0:
            return head + struct.pack(">I", 0)
        if program == 100005:
            return head + struct.pack(">I", 0) + self.mount(procedure, call)
        return head + self.nfs(procedure, call)

    def refuse_compound(self, procedure):
        if procedure == 0:
            return struct.pack(">I", 0)
        self.counts["compound"] = self.counts.get("compound", 0) + 1
        if self.habits.compound == SILENT:
            return None
        if self.habits.compound == PROG_MISMATCH:
            return struct.pack(">3I", PROG_MISMATCH, 3, 3)
        return struct.pack(">I", self.habits.compound)

    @staticmethod
    def identity(flavor, body):
        if flavor != SYS:
            return 65534, 65534
        body = Call(body)
        body.u32()
        body.opaque()
        return body.u32(), body.u32()

    def mount(self, procedure, call):
        if procedure != 1:
            return b""
        if call.opaque() != b"/share":
            return struct.pack(">I", NOENT)
        return (struct.pack(">I", OK) + self.handle(self.root) +
                struct.pack(">I", len(self.habits.flavors)) +
                b"".join(struct.pack(">I", f) for f in self.habits.flavors))

    PROCEDURES = {1: "getattr", 2: "setattr", 3: "lookup", 4: "access", 5: "readlink", 6: "read",
                  7: "write", 8: "create", 9: "mkdir", 10: "symlink", 11: "mknod", 12: "remove",
                  13: "rmdir", 14: "rename", 15: "link", 16: "readdir", 17: "readdirplus",
                  18: "fsstat", 19: "fsinfo", 21: "commit"}
    # Words that follow the status of a failure: attributes that are not there.
    FAILED = {"getattr": 0, "lookup": 1, "access": 1, "readlink": 1, "read": 1, "readdir": 1,
              "readdirplus": 1, "fsstat": 1, "fsinfo": 1, "rename": 4, "link": 3}

    def nfs(self, procedure, call):
        name = self.PROCEDURES.get(procedure)
        self.counts[name] = self.counts.get(name, 0) + 1
        if name is None or name == "readdirplus" and not self.habits.plus:
            return struct.pack(">I", PROC_UNAVAIL)
        if self.hook is not None:
            self.hook(name)
        try:
            return struct.pack(">2I", 0, OK) + getattr(self, "do_" + name)(call)
        except Refusal as e:
            return struct.pack(">2I", 0, e.args[0]) + bytes(4 * self.FAILED.get(name, 2))

    # ---- parts of messages ----

    @staticmethod
    def handle(node):
        return opaque(struct.pack(">Q", node.number))

    @staticmethod
    def attributes(node):
        size = len(node.data) if node.kind != DIR else 4096
        links = 2 if node.kind == DIR else node.links
        times = b"".join(struct.pack(">2I", t // 10**9, t % 10**9)
                         for t in (node.atime, node.mtime, node.ctime))
        return struct.pack(">5I2Q2I2Q", node.kind, node.mode, links, node.uid, node.gid, size, size,
                           *node.device, 77, node.number) + times

    def after(self, node):
        return struct.pack(">I", 1) + self.attributes(node)

    def wcc(self, node):
        return struct.pack(">I", 0) + self.after(node)

    def node(self, call, kind=None):
        node = self.nodes.get(struct.unpack(">Q", call.opaque())[0])
        if node is None:
            raise Refusal(STALE)
        if kind == DIR and node.kind != DIR:
            raise Refusal(NOTDIR)
        if kind is not None and node.kind != kind:
            raise Refusal(INVAL)
        return node

    def place(self, call):
        """A directory and a name; the name's node, or None."""
        folder = self.node(call, DIR)
        name = call.opaque().decode("utf-8", "surrogateescape")
        if len(name) > 255:
            raise Refusal(NAMETOOLONG)
        return folder, name, folder.names.get(self.fold(name), (None, None))[1]

    def change(self, call, node):
        """Read new attributes, and set them if there is a node."""
        values = {"mode": call.u32() if call.u32() else None}
        values["uid"] = call.u32() if call.u32() else None
        values["gid"] = call.u32() if call.u32() else None
        size = call.u64() if call.u32() else None
        for field in ("atime", "mtime"):
            how = call.u32()
            values[field] = self.now() if how == 1 else None
            if how == 2:
                values[field] = call.u32() * 10**9 + call.u32()
                grain = self.habits.grain * 10**9
                values[field] -= values[field] % grain if grain else 0
        if node is None:
            return
        if not self.habits.owners:
            values["uid"] = values["gid"] = None
        if size is not None:
            node.data = node.data[:size] + bytes(max(0, size - len(node.data)))
            node.mtime = self.now()
        for field, value in values.items():
            if value is not None:
                setattr(node, field, value)
        node.ctime = self.now()

    def make(self, folder, name, kind, call, change=True):
        node = self.new(kind, 0o755 if kind == DIR else 0o644)
        if self.habits.owners:
            node.uid, node.gid = self.user
        if change:
            self.change(call, node)
        return self.add(folder, name, node)

    def made(self, folder, node):
        return (struct.pack(">I", 1) + self.handle(node) + self.after(node) + self.wcc(folder))

    # ---- procedures ----

    def do_getattr(self, call):
        return self.attributes(self.node(call))

    def do_setattr(self, call):
        node = self.node(call)
        self.change(call, node)
        return self.wcc(node)

    def do_lookup(self, call):
        folder, _, node = self.place(call)
        if node is None:
            raise Refusal(NOENT)
        return self.handle(node) + self.after(node) + self.after(folder)

    def do_access(self, call):
        return self.after(self.node(call)) + call.fixed(4)

    def do_readlink(self, call):
        node = self.node(call, LNK)
        return self.after(node) + opaque(bytes(node.data))

    def do_read(self, call):
        node = self.node(call, REG)
        offset, count = call.u64(), call.u32()
        data = bytes(node.data[offset:offset + count])
        eof = offset + len(data) >= len(node.data)
        return self.after(node) + struct.pack(">2I", len(data), eof) + opaque(data)

    def do_write(self, call):
        node = self.node(call, REG)
        offset, count = call.u64(), call.u32()
        call.u32()
        data = call.opaque()
        node.data += bytes(max(0, offset - len(node.data)))
        node.data[offset:offset + count] = data
        self.touch(node)
        return self.wcc(node) + struct.pack(">2I", count, 2) + self.verifier

    def do_create(self, call):
        folder, name, node = self.place(call)
        how = call.u32()
        if how == 2:
            raise Refusal(NOTSUPP)
        if node is not None and node.kind == LNK and self.habits.follows:
            folder, name, node = folder, node.data.decode(), None
        if node is not None and how == 1:
            raise Refusal(EXIST)
        if node is None:
            node = self.make(folder, name, REG, call)
        else:
            self.change(call, node)
        return self.made(folder, node)

    def do_mkdir(self, call):
        folder, name, node = self.place(call)
        if node is not None:
            raise Refusal(EXIST)
        return self.made(folder, self.make(folder, name, DIR, call))

    def do_symlink(self, call):
        folder, name, node = self.place(call)
        if self.habits.symlink != OK:
            raise Refusal(self.habits.symlink)
        if node is not None:
            raise Refusal(self.habits.symlink_exists)
        node = self.make(folder, name, LNK, call)
        node.data += call.opaque()
        return self.made(folder, node)

    def do_mknod(self, call):
        folder, name, node = self.place(call)
        if node is not None:
            raise Refusal(EXIST)
        node = self.make(folder, name, call.u32(), call)
        if node.kind in (BLK, CHR):
            node.device = (call.u32(), call.u32())
        return self.made(folder, node)

    def do_remove(self, call):
        folder, name, node = self.place(call)
        if node is None:
            raise Refusal(NOENT)
        if node.kind == DIR:
            raise Refusal(ISDIR)
        self.drop(folder, name)
        return self.wcc(folder)

    def do_rmdir(self, call):
        folder, name, node = self.place(call)
        if node is None:
            raise Refusal(NOENT)
        if node.kind != DIR:
            raise Refusal(NOTDIR)
        if node.names:
            raise Refusal(self.habits.rmdir_full)
        self.drop(folder, name)
        return self.wcc(folder)

    def do_rename(self, call):
        folder, name, node = self.place(call)
        to, to_name, there = self.place(call)
        if node is None:
            raise Refusal(NOENT)
        if there is not None and there is not node:
            if (there.kind == DIR) != (node.kind == DIR):
                raise Refusal(EXIST)
            if there.names:
                raise Refusal(NOTEMPTY)
            self.drop(to, to_name)
        if there is not node or to_name != name:
            own = folder.names.pop(self.fold(name))[0]
            del folder.cookies[own]
            self.touch(folder)
            self.add(to, to_name, node)
            node.ctime = self.now()
        return self.wcc(folder) + self.wcc(to)

    def do_link(self, call):
        node = self.node(call)
        folder, name, there = self.place(call)
        if self.habits.link != OK:
            raise Refusal(self.habits.link)
        if there is not None:
            raise Refusal(EXIST)
        node.links += 1
        node.ctime = self.now()
        self.add(folder, name, node)
        return self.after(node) + self.wcc(folder)

    def page(self, call, folder, entry):
        """Entries after a cookie, each by entry(name, node, cookie)."""
        cookie = call.u64()
        call.fixed(8)
        listed = sorted((number, name) for name, number in folder.cookies.items()
                        if number > cookie)
        found = [struct.pack(">I", 1) + entry(name, folder.names[self.fold(name)][1], number)
                 for number, name in listed[:PAGE]]
        return (self.after(folder) + bytes(8) + b"".join(found) +
                struct.pack(">2I", 0, len(listed) <= PAGE))

    @staticmethod
    def entry(name, node, cookie):
        return (struct.pack(">Q", node.number) + opaque(name.encode("utf-8", "surrogateescape")) +
                struct.pack(">Q", cookie))

    def do_readdir(self, call):
        return self.page(call, self.node(call, DIR), self.entry)

    def do_readdirplus(self, call):
        return self.page(call, self.node(call, DIR), lambda name, node, cookie:
                         self.entry(name, node, cookie) + self.after(node) +
                         struct.pack(">I", 1) + self.handle(node))

    def do_fsstat(self, call):
        node = self.node(call)
        return self.after(node) + struct.pack(">6QI", 1 << 40, 1 << 39, 1 << 39, 1 << 20, 1 << 19,
                                              1 << 19, 0)

    def do_fsinfo(self, call):
        node = self.node(call)
        return (self.after(node) + struct.pack(">7I", *[1 << 18, 1 << 18, 512] * 2, 1 << 16) +
                struct.pack(">Q3I", 1 << 40, 0, 1, 0x1b))

    def do_commit(self, call):
        return self.wcc(self.node(call)) + self.verifier
