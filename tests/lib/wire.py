# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""NFS calls as they are on the wire, parsed far enough to know what they do: versions 3 and 4.x and
MOUNT, over RPC records. Both versions' calls have one name, that of version 3 where there is one.
"""
import struct

NFS, MOUNT = 100003, 100005
LAST = 0x80000000  # of a record mark

STATUS = {
    "PERM": 1, "NOENT": 2, "IO": 5, "ACCES": 13, "EXIST": 17, "NOTDIR": 20, "FBIG": 27, "NOSPC": 28,
    "ROFS": 30, "NOTEMPTY": 66, "DQUOT": 69, "STALE": 70, "BADHANDLE": 10001, "NOT_SYNC": 10002,
    "BAD_COOKIE": 10003, "NOTSUPP": 10004, "SERVERFAULT": 10006, "DELAY": 10008, "EXPIRED": 10011,
    "GRACE": 10013, "RESOURCE": 10018, "STALE_CLIENTID": 10022, "STALE_STATEID": 10023,
    "NOT_SAME": 10027, "OFFLOAD_NO_REQS": 10094}
STATUS["JUKEBOX"] = STATUS["DELAY"]
STATUS_NAMES = {number: name for name, number in STATUS.items() if name != "JUKEBOX"}

V3 = ("NULL", "GETATTR", "SETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "WRITE", "CREATE",
      "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK", "READDIR", "READDIRPLUS",
      "FSSTAT", "FSINFO", "PATHCONF", "COMMIT")
MOUNT_NAMES = ("NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT")
# What a failed call of version 3 answers behind its status, in words of zeros: post_op_attr is one,
# wcc_data two. Where nothing is said: one.
V3_FAILED = {"GETATTR": 0, "SETATTR": 2, "WRITE": 2, "CREATE": 2, "MKDIR": 2, "SYMLINK": 2,
             "MKNOD": 2, "REMOVE": 2, "RMDIR": 2, "RENAME": 4, "LINK": 3, "COMMIT": 2}
# Calls that change what is on the server. OPEN_CONFIRM and CLOSE change what it remembers only.
MUTATING = frozenset(("SETATTR", "WRITE", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR",
                      "RENAME", "LINK", "COMMIT", "CLONE", "COPY"))
# What takes room, and so may find none. Where nothing may be changed, all of MUTATING fails.
GROWING = MUTATING - {"REMOVE", "RMDIR", "SETATTR"}
POSSIBLE = {"NOSPC": GROWING, "DQUOT": GROWING, "ROFS": MUTATING, "OFFLOAD_NO_REQS": {"COPY"}}
# Of version 4: their answers count, whatever the status, in a sequence that both sides keep.
SEQUENCED = ("OPEN", "OPEN_CONFIRM", "CLOSE")

V4 = {3: "ACCESS", 4: "CLOSE", 5: "COMMIT", 6: "CREATE", 9: "GETATTR", 10: "GETFH", 11: "LINK",
      15: "LOOKUP", 16: "LOOKUPP", 17: "NVERIFY", 18: "OPEN", 20: "OPEN_CONFIRM", 22: "PUTFH",
      23: "PUTPUBFH", 24: "PUTROOTFH", 25: "READ", 26: "READDIR", 27: "READLINK", 28: "REMOVE",
      29: "RENAME", 30: "RENEW", 31: "RESTOREFH", 32: "SAVEFH", 34: "SETATTR", 35: "SETCLIENTID",
      36: "SETCLIENTID_CONFIRM", 37: "VERIFY", 38: "WRITE", 41: "BIND_CONN_TO_SESSION", 42: "EXCHANGE_ID",
      43: "CREATE_SESSION", 44: "DESTROY_SESSION", 53: "SEQUENCE", 57: "DESTROY_CLIENTID",
      58: "RECLAIM_COMPLETE", 60: "COPY", 66: "OFFLOAD_CANCEL",
      67: "OFFLOAD_STATUS", 69: "SEEK", 71: "CLONE"}
V4_NUMBERS = {name: number for number, name in V4.items()}
# Operations whose answer is the status alone when they succeed.
SILENT = frozenset(("PUTFH", "PUTROOTFH", "PUTPUBFH", "SAVEFH", "RESTOREFH", "LOOKUP", "LOOKUPP",
                    "VERIFY", "NVERIFY", "RENEW", "SETCLIENTID_CONFIRM"))
# A compound is named after the first of these that it holds.
TELLING = ("CLONE", "COPY", "OFFLOAD_CANCEL", "OFFLOAD_STATUS", "SEEK", "OPEN", "OPEN_CONFIRM", "CLOSE", "CREATE", "REMOVE", "RENAME",
           "LINK", "SETATTR", "WRITE", "COMMIT", "READ", "READDIR", "READLINK", "SETCLIENTID",
           "SETCLIENTID_CONFIRM", "RENEW", "LOOKUP", "GETATTR", "PUTROOTFH", "BIND_CONN_TO_SESSION", "EXCHANGE_ID",
           "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID", "RECLAIM_COMPLETE")
TYPES4 = {2: "MKDIR", 5: "SYMLINK"}
SEQUENCE_RESULT = 36  # bytes behind its status


def framed(data):
    """A message as one record."""
    return struct.pack(">I", LAST | len(data)) + data


def take_records(data):
    """Take whole records off the front of a bytearray, one at each step."""
    while True:
        parts, at, last = [], 0, False
        while not last:
            if len(data) - at < 4:
                return
            mark = struct.unpack_from(">I", data, at)[0]
            end = at + 4 + (mark & ~LAST)
            if len(data) < end:
                return
            parts.append(bytes(data[at + 4:end]))
            at, last = end, mark & LAST
        del data[:at]
        yield b"".join(parts)


def receive_records(connection):
    """The records that come on a blocking socket, until it ends."""
    data = bytearray()
    while True:
        got = connection.recv(1 << 16)
        if not got:
            return
        data += got
        yield from take_records(data)


class Malformed(Exception):
    """Not a call that we can read."""


class Reader:
    """XDR, from a place on."""

    def __init__(self, data, at=0):
        self.data = data
        self.at = at

    def u32(self):
        self.at += 4
        return struct.unpack_from(">I", self.data, self.at - 4)[0]

    def skip(self, length):
        self.at += (length + 3) & ~3

    def opaque(self):
        length = self.u32()
        begin = self.at
        self.skip(length)
        if self.at > len(self.data):
            raise Malformed("an opaque of %d bytes" % length)
        return self.data[begin:begin + length]

    def attributes(self):
        """A bitmap, and the values in an opaque."""
        self.skip(4 * self.u32())
        self.opaque()


class Op:
    """One operation of a compound: its name, where its arguments begin, and the names in them."""

    def __init__(self, name, at):
        self.name = name
        self.at = at
        self.names = ()
        self.kind = None  # of CREATE

    def __repr__(self):
        return self.name


def _read_open(r, op):
    r.skip(20)  # seqid, access, deny, client id
    r.opaque()
    if r.u32() == 1:
        if r.u32() == 2:
            r.skip(8)
        else:
            r.attributes()
    if r.u32() == 0:
        op.names = (r.opaque(),)
    else:
        r.skip(4)


def _read_create(r, op):
    op.kind = r.u32()
    if op.kind == 5:
        r.opaque()
    elif op.kind in (3, 4):
        r.skip(8)
    op.names = (r.opaque(),)
    r.attributes()


def _read_setclientid(r, op):
    r.skip(8)
    r.opaque()
    r.skip(4)
    r.opaque()
    r.opaque()
    r.skip(4)


def _read_exchange_id(r, op):
    r.skip(8)
    r.opaque()
    r.skip(12)  # flags, no protection, no implementation


def _read_create_session(r, op):
    r.skip(16)  # client id, sequence, flags
    for _ in range(2):
        r.skip(24)
        r.skip(4 * r.u32())
    r.skip(12)  # program, one flavor: AUTH_NONE


def _read_names(count):
    def read(r, op):
        op.names = tuple(r.opaque() for _ in range(count))
    return read


def _read_fixed(length):
    return lambda r, op: r.skip(length)


def _read_setattr(r, op):
    r.skip(16)
    r.attributes()


def _read_write(r, op):
    r.skip(28)
    r.opaque()


def _read_readdir(r, op):
    r.skip(24)
    r.skip(4 * r.u32())


def _read_copy(r, _):
    r.skip(64)
    if r.u32() != 0:
        raise Malformed("a copy from another server")


ARGUMENTS = {
    "ACCESS": _read_fixed(4), "CLOSE": _read_fixed(20), "COMMIT": _read_fixed(12),
    "CLONE": _read_fixed(56), "COPY": _read_copy, "CREATE": _read_create,
    "GETATTR": lambda r, op: r.skip(4 * r.u32()), "LINK": _read_names(1),
    "LOOKUP": _read_names(1), "NVERIFY": lambda r, op: r.attributes(), "OPEN": _read_open,
    "OPEN_CONFIRM": _read_fixed(20), "PUTFH": lambda r, op: r.opaque(), "READ": _read_fixed(28),
    "READDIR": _read_readdir, "REMOVE": _read_names(1), "RENAME": _read_names(2),
    "RENEW": _read_fixed(8), "SEEK": _read_fixed(28), "SETATTR": _read_setattr,
    "SETCLIENTID": _read_setclientid,
    "SETCLIENTID_CONFIRM": _read_fixed(16), "VERIFY": lambda r, op: r.attributes(),
    "WRITE": _read_write, "BIND_CONN_TO_SESSION": _read_fixed(24),
    "EXCHANGE_ID": _read_exchange_id, "CREATE_SESSION": _read_create_session,
    "OFFLOAD_CANCEL": _read_fixed(16), "OFFLOAD_STATUS": _read_fixed(16),
    "DESTROY_SESSION": _read_fixed(16), "SEQUENCE": _read_fixed(32),
    "DESTROY_CLIENTID": _read_fixed(8), "RECLAIM_COMPLETE": _read_fixed(4)}

# Where, behind the file handles, a call of version 3 has names.
V3_NAMES = {"LOOKUP": 1, "CREATE": 1, "MKDIR": 1, "SYMLINK": 1, "MKNOD": 1, "REMOVE": 1, "RMDIR": 1}


def _short(name):
    """A name for somebody to read."""
    text = repr(name.decode("utf-8", "backslashreplace"))[1:-1]
    return text if len(text) <= 60 else text[:20] + "..." + text[-36:]


class Call:
    """A call. name: what it is, as in version 3; ops: those of a compound."""

    def __init__(self, data):
        try:
            self._parse(data)
        except (struct.error, IndexError) as e:
            raise Malformed(str(e)) from e

    def _parse(self, data):
        self.data = data
        (self.xid, kind, rpc, self.program, self.version, self.procedure, _, length) = \
            struct.unpack_from(">8I", data)
        if kind != 0 or rpc != 2:
            raise Malformed("no RPC call")
        at = 32 + ((length + 3) & ~3)
        # Of the arguments.
        self.at = at + 8 + ((struct.unpack_from(">I", data, at + 4)[0] + 3) & ~3)
        self.ops = []
        self.minor = 0
        self.forged = None  # set by the proxy: what is answered instead
        self.number = 0  # set by the proxy: which one it is
        self.action = None
        if self.program == MOUNT:
            self.name = "MOUNT?"
            if self.procedure < len(MOUNT_NAMES):
                self.name = MOUNT_NAMES[self.procedure]
        elif self.program != NFS:
            self.name = "?"
        elif self.version == 3:
            self.name = V3[self.procedure] if self.procedure < len(V3) else "?"
        elif self.version == 4 and self.procedure == 1:
            self._parse_compound()
        else:
            self.name = "NULL" if self.procedure == 0 else "?"

    def _parse_compound(self):
        r = Reader(self.data, self.at)
        self.tag = r.opaque()
        self.minor = r.u32()
        for _ in range(r.u32()):
            name = V4.get(r.u32())
            if name is None:
                raise Malformed("an operation that is not known")
            op = Op(name, r.at)
            read = ARGUMENTS.get(name)
            if read is not None:
                read(r, op)
            self.ops.append(op)
        has = {op.name: op for op in reversed(self.ops)}
        self.key = next((has[name] for name in TELLING if name in has), None)
        self.name = self.key.name if self.key is not None else "NULL"
        if self.name == "CREATE":
            self.name = TYPES4.get(self.key.kind, "MKNOD")
        elif self.name == "OPEN":
            self.name = "CREATE"
        elif self.name == "REMOVE" and "VERIFY" in has:
            self.name = "RMDIR"

    @property
    def request(self):
        """Session, number and slot of a compound in a session: the same if it is sent again."""
        if not self.ops or self.ops[0].name != "SEQUENCE":
            return None
        return self.data[self.ops[0].at:self.ops[0].at + 24]

    @property
    def is_mutating(self):
        return self.program == NFS and self.name in MUTATING

    def names(self):
        """The names that it gives."""
        if self.ops:
            return [name for op in self.ops for name in op.names]
        if self.program == MOUNT:
            return [Reader(self.data, self.at).opaque()] if self.name == "MNT" else []
        r = Reader(self.data, self.at)
        if self.name in V3_NAMES:
            r.opaque()
            return [r.opaque()]
        if self.name == "RENAME":
            r.opaque()
            first = r.opaque()
            r.opaque()
            return [first, r.opaque()]
        if self.name == "LINK":
            r.opaque()
            r.opaque()
            return [r.opaque()]
        return []

    def __str__(self):
        text = "v%d %s" % (self.version, self.name) if self.program == NFS else "MOUNT " + self.name
        names = " ".join(_short(name) for name in self.names())
        return (text + " " + names).rstrip()

    # ---- arguments that are changed on the way ----

    def _offset_of(self, name):
        """Where the arguments behind a handle are: of READ, READDIR, READDIRPLUS and WRITE."""
        if self.ops:
            return next(op.at for op in self.ops if op.name == name)
        r = Reader(self.data, self.at)
        r.opaque()
        return r.at

    def _put(self, at, value):
        self.data = self.data[:at] + struct.pack(">I", value) + self.data[at + 4:]

    def _lower(self, at, value):
        self._put(at, min(value, struct.unpack_from(">I", self.data, at)[0]))

    def shorten_page(self, size):
        """The directory page that it asks for."""
        if self.ops:
            at = self._offset_of("READDIR")
            self._lower(at + 20, size)
            self._lower(at + 16, size)
        elif self.name == "READDIR":
            self._lower(self._offset_of(self.name) + 16, size)
        else:
            at = self._offset_of(self.name)
            self._lower(at + 16, size)
            self._lower(at + 20, size)

    def shorten_read(self, size):
        self._lower(self._read_length_at(), size)

    def _read_length_at(self):
        return self._offset_of("READ") + (24 if self.ops else 8)

    def transfer_length(self):
        """Of READ and WRITE, in bytes; 0 of other calls."""
        if self.name == "READ":
            return struct.unpack_from(">I", self.data, self._read_length_at())[0]
        return self.write_arguments()[2] if self.name == "WRITE" else 0

    def cookie(self):
        """Of READDIR and READDIRPLUS."""
        return struct.unpack_from(">Q", self.data, self._offset_of("READDIR"))[0]

    def write_arguments(self):
        """Offset, how stable, and length of a WRITE."""
        at = self._offset_of("WRITE")
        if self.ops:
            offset, stable, length = struct.unpack_from(">QII", self.data, at + 16)
        else:
            offset, length, stable = struct.unpack_from(">QII", self.data, at)
        return offset, stable, length

    # ---- answers that no server gave ----

    def head(self):
        return struct.pack(">6I", self.xid, 1, 0, 0, 0, 0)

    def refuse_version(self, low, high):
        """The program is not there in that version."""
        return struct.pack(">8I", self.xid, 1, 0, 0, 0, 2, low, high)

    def _compound_reply(self, status, failed, body=b""):
        """The operations in front of failed did well; failed is the last that is answered."""
        count = self.ops.index(failed) + 1
        out = [struct.pack(">II", status, len(self.tag)), self.tag + bytes(-len(self.tag) % 4),
               struct.pack(">I", count)]
        for op in self.ops[:count - 1]:
            out.append(struct.pack(">II", V4_NUMBERS[op.name], 0))
            if op.name == "SEQUENCE":
                out.append(bytes(SEQUENCE_RESULT))  # see with_sequence()
        out.append(struct.pack(">II", V4_NUMBERS[failed.name], status) + body)
        return self.head() + b"".join(out)

    @property
    def has_session(self):
        return bool(self.ops) and self.ops[0].name == "SEQUENCE"

    def only_sequence(self):
        """The call without all that it is for: the server's slot moves on, and nothing is done."""
        at = self.ops[0].at
        return self.data[:at - 8] + struct.pack(">II", 2, V4_NUMBERS["SEQUENCE"]) \
            + self.data[at:at + 32] + struct.pack(">I", V4_NUMBERS["PUTROOTFH"])

    def with_sequence(self, forged, real):
        """A forged answer with the result of SEQUENCE in the server's answer to only_sequence()."""
        if reply_status(self, real) != 0:
            return real
        at = len(self.head()) + 20 + ((len(self.tag) + 3) & ~3)
        return forged[:at] + real[at:at + SEQUENCE_RESULT] + forged[at + SEQUENCE_RESULT:]

    def _where(self, status):
        """The operation that may fail that way, or None."""
        if self.key is None:
            return None
        first = self.ops[self.has_session]
        if first.name == "PUTFH" and status in (
                STATUS["STALE"], STATUS["DELAY"], STATUS["BADHANDLE"], STATUS["SERVERFAULT"]):
            return first
        if self.key.name in SEQUENCED:
            return None
        before = self.ops[self.has_session:self.ops.index(self.key)]
        if not all(op.name in SILENT for op in before):
            return None
        return self.key

    def fail(self, status):
        """An answer with that status, or None where this call can't be answered so."""
        if self.name in ("NULL", "?", "MOUNT?"):
            return None
        if self.program == MOUNT:
            return self.head() + struct.pack(">I", status) if self.name == "MNT" else None
        if not self.ops:
            return self.head() + struct.pack(">I", status) + bytes(4 * V3_FAILED.get(self.name, 1))
        where = self._where(status)
        if where is None:
            return None
        body = bytes(4) if where.name == "SETATTR" else b""
        if status == STATUS["OFFLOAD_NO_REQS"]:
            body = struct.pack(">II", 1, 0)  # the server would copy in order, asynchronously
        return self._compound_reply(status, where, body)

    def hollow(self):
        """An answer that all is well, without the result of what the call is for."""
        if not self.ops:
            return self.head() + bytes(4)
        return self._compound_reply(0, self.ops[self.ops.index(self.key) - 1])

    def forge_write(self, verifier):
        """The answer that the data is in the server's memory. None where the call wants it on the
        disk at once."""
        _, stable, length = self.write_arguments()
        if stable != 0:
            return None
        body = struct.pack(">II", length, 0) + verifier
        if not self.ops:
            return self.head() + bytes(4 + 8) + body
        if self.ops[-1].name != "WRITE":
            return None
        return self._compound_reply(0, self.ops[-1], body)


def reply_status(call, data):
    """The status in an answer, or None where there is none to be read."""
    try:
        kind, accepted, _, length = struct.unpack_from(">4I", data, 4)
        at = 20 + ((length + 3) & ~3)
        if kind != 1 or accepted != 0 or struct.unpack_from(">I", data, at)[0] != 0 \
                or call.name == "NULL":
            return None
        return struct.unpack_from(">I", data, at + 4)[0]
    except struct.error:
        return None


def limit_fsinfo(data, limit):
    """An answer to FSINFO with the most and the preferred bytes of READ, WRITE and READDIR lowered
    to this."""
    at = 24 + 4  # behind the header and the status
    at += 4 + 84 * struct.unpack_from(">I", data, at)[0]
    words = list(struct.unpack_from(">7I", data, at))
    for i in (0, 1, 3, 4, 6):  # rtmax, rtpref, wtmax, wtpref, dtpref
        words[i] = limit
    return data[:at] + struct.pack(">7I", *words) + data[at + 28:]


SESSION_LIMITS = {"reply": -8, "operations": 0}  # where, from the number of operations


def limit_session(data, what, limit):
    """An answer to CREATE_SESSION with one of SESSION_LIMITS lowered to this."""
    tag = struct.unpack_from(">I", data, 28)[0]
    # Behind the tag: a count, the operation and its status, the session, two numbers, four limits.
    at = 32 + ((tag + 3) & ~3) + 12 + 16 + 8 + 16
    at += SESSION_LIMITS[what]
    return data[:at] + struct.pack(">I", limit) + data[at + 4:]
