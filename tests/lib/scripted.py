# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""An NFSv4.0 server of directories and files without content, in memory, that answers as a test
wants: what real servers do once in a month. It is strict with the requests of open-owners.
"""
import collections
import contextlib
import itertools
import socketserver
import struct
import threading

import wire

OK, NOENT, EXIST = 0, 2, 17
DELAY, EXPIRED, GRACE, STALE_CLIENTID = 10008, 10011, 10013, 10022
BAD_STATEID, BAD_SEQID, NOTSUPP, CLID_INUSE = 10025, 10026, 10004, 10017
UNCOUNTED = (STALE_CLIENTID, 10023, BAD_STATEID, BAD_SEQID, 10036, 10018, 10020, 10019)

CLOSE, CREATE, GETATTR, GETFH, LOOKUP, OPEN, OPEN_CONFIRM = 4, 6, 9, 10, 15, 18, 20
PUTFH, PUTROOTFH, SETCLIENTID, SETCLIENTID_CONFIRM = 22, 24, 35, 36

ROOT = b"\0root"


class Call:
    """Reads XDR."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def u32(self):
        self.at += 4
        return struct.unpack_from(">I", self.data, self.at - 4)[0]

    def u64(self):
        return self.u32() << 32 | self.u32()

    def fixed(self, length):
        self.at += (length + 3) & ~3
        return self.data[self.at - ((length + 3) & ~3):][:length]

    def opaque(self):
        return self.fixed(self.u32())

    def bitmap(self):
        return [self.u32() for _ in range(self.u32())]


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


class Error(Exception):
    """Ends a compound with a status."""


class Server:
    """say(OPEN, [DELAY, OK]) makes the next OPEN fail, and the one after it succeed. complaints
    lists the client's violations of the protocol."""

    def __init__(self, asks_to_confirm=True):
        self.asks_to_confirm = asks_to_confirm
        self.lock = threading.Lock()
        self.script = collections.defaultdict(list)
        self.counts = collections.Counter()  # of operations that were answered
        self.complaints = []
        self.files = set()
        self.open_files = 0
        self.clients = {}  # by id: whether it was confirmed
        self.owners = {}  # by client id and name: seqid, whether it was confirmed
        self.states = {}  # owner by stateid
        self.numbers = itertools.count(1)
        self.drop_after = None  # how many calls until it closes the connection
        self.calls = 0
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            """One connection."""

            def handle(self):
                with contextlib.suppress(ConnectionError):  # clients end by a reset
                    outer.serve(self.request)

        self.tcp = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler,
                                                   bind_and_activate=True)
        self.tcp.daemon_threads = True
        self.port = self.tcp.server_address[1]
        threading.Thread(target=self.tcp.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.tcp.shutdown()
        self.tcp.server_close()

    def say(self, operation, statuses):
        self.script[operation] += statuses

    def forget_clients(self):
        """Forget all clients, as a restarted server does."""
        self.clients.clear()
        self.owners.clear()
        self.states.clear()
        self.open_files = 0

    # ---- RPC ----

    def serve(self, connection):
        for data in wire.receive_records(connection):
            with self.lock:
                reply = self.answer(Call(data))
                self.calls += 1
                if self.drop_after is not None and self.calls > self.drop_after:
                    return
            connection.sendall(wire.framed(reply))

    def answer(self, call):
        xid = call.u32()
        call.fixed(16)
        procedure = call.u32()
        for _ in range(2):  # credential and verifier
            call.u32()
            call.opaque()
        head = struct.pack(">6I", xid, 1, 0, 0, 0, 0)
        return head + (self.compound(call) if procedure == 1 else b"")

    # ---- compounds ----

    def compound(self, call):
        call.opaque()
        call.u32()
        self.handle = None
        results = []
        status = OK
        for _ in range(call.u32()):
            operation = call.u32()
            body = b""
            try:
                body = self.operation(operation, call)
            except Error as e:
                status = e.args[0]
                if status == CLID_INUSE:  # by whom, RFC 7530 section 16.33
                    body = opaque(b"tcp") + opaque(b"192.0.2.1.3.4")
            self.counts[operation] += 1
            results.append(struct.pack(">2I", operation, status) + body)
            if status != OK:
                break
        return struct.pack(">3I", status, 0, len(results)) + b"".join(results)

    def operation(self, operation, call):
        do = {PUTROOTFH: self.putrootfh, PUTFH: self.putfh, LOOKUP: self.lookup,
              GETFH: self.getfh, GETATTR: self.getattr, CREATE: self.create,
              SETCLIENTID: self.setclientid, SETCLIENTID_CONFIRM: self.setclientid_confirm,
              OPEN: self.open, OPEN_CONFIRM: self.open_confirm, CLOSE: self.close}
        if operation not in do:
            raise Error(NOTSUPP)
        return do[operation](call)

    def scripted(self, operation):
        """Return the status that the test asked for."""
        statuses = self.script[operation]
        return statuses.pop(0) if statuses else OK

    def refuse_if_scripted(self, operation):
        status = self.scripted(operation)
        if status != OK:
            raise Error(status)

    def putrootfh(self, _call):
        self.handle = ROOT
        return b""

    def putfh(self, call):
        self.handle = call.opaque()
        self.refuse_if_scripted(PUTFH)
        return b""

    def lookup(self, call):
        self.handle += b"/" + call.opaque()
        return b""

    def getfh(self, _call):
        self.refuse_if_scripted(GETFH)
        return opaque(self.handle[:128])

    def getattr(self, call):
        """Send type and mode, if requested."""
        call.bitmap()
        self.refuse_if_scripted(GETATTR)
        kind = 1 if self.handle in self.files else 2
        return struct.pack(">3I", 2, 1 << 1, 1 << 1) + opaque(struct.pack(">2I", kind, 0o640))

    def create(self, call):
        call.u32()
        self.handle += b"/" + call.opaque()
        call.bitmap()
        call.opaque()
        return bytes(20) + struct.pack(">I", 0)

    # ---- clients and what they have open ----

    def setclientid(self, call):
        call.fixed(8)
        self.name = call.opaque()
        call.u32()
        call.opaque()
        call.opaque()
        call.u32()
        self.refuse_if_scripted(SETCLIENTID)
        number = next(self.numbers)
        self.clients[number] = False
        return struct.pack(">QQ", number, number)

    def setclientid_confirm(self, call):
        number = call.u64()
        if call.u64() != number or number not in self.clients:
            self.complaints.append("confirms an unknown client")
        self.refuse_if_scripted(SETCLIENTID_CONFIRM)
        self.clients[number] = True
        return b""

    def counted(self, owner, seqid, operation):
        """Check the sequence number of an owner's request. The status says if it advances."""
        known = self.owners.get(owner)
        if known is not None and known["seqid"] is not None and seqid != known["seqid"]:
            self.complaints.append("operation %d with seqid %d, not %d"
                                   % (operation, seqid, known["seqid"]))
            raise Error(BAD_SEQID)
        status = self.scripted(operation)
        if status not in UNCOUNTED:
            self.owners.setdefault(owner, {"confirmed": False})["seqid"] = seqid + 1
        elif status == BAD_SEQID:
            self.owners.setdefault(owner, {"confirmed": False})["seqid"] = -1
        if status != OK:
            raise Error(status)

    def new_state(self, owner):
        self.states = {s: o for s, o in self.states.items() if o != owner}
        state = struct.pack(">I12s", 1, struct.pack(">Q", next(self.numbers)))
        self.states[state] = owner
        return state

    def state_of(self, state):
        if state not in self.states:
            self.complaints.append("a stateid that is not the latest of its owner")
            raise Error(BAD_STATEID)
        return self.states[state]

    def open(self, call):
        seqid = call.u32()
        call.fixed(8)
        client = call.u64()
        owner = (client, call.opaque())
        if call.u32() != 1 or call.u32() != 1:
            self.complaints.append("an OPEN that is not a guarded creation")
        call.bitmap()
        call.opaque()
        call.u32()
        name = call.opaque()
        if not self.clients.get(client):
            raise Error(STALE_CLIENTID)
        if owner in self.states.values():
            self.complaints.append("an OPEN while the owner has a file open")
        self.counted(owner, seqid, OPEN)
        self.handle += b"/" + name
        if self.handle in self.files:
            raise Error(EXIST)
        self.files.add(self.handle)
        self.open_files += 1
        confirm = self.asks_to_confirm and not self.owners[owner]["confirmed"]
        return (self.new_state(owner) + bytes(20) + struct.pack(">I", 2 if confirm else 0) +
                struct.pack(">2I", 0, 0))

    def open_confirm(self, call):
        owner = self.state_of(call.fixed(16))
        self.counted(owner, call.u32(), OPEN_CONFIRM)
        self.owners[owner]["confirmed"] = True
        return self.new_state(owner)

    def close(self, call):
        seqid = call.u32()
        state = call.fixed(16)
        owner = self.state_of(state)
        self.counted(owner, seqid, CLOSE)
        if self.asks_to_confirm and not self.owners[owner]["confirmed"]:
            self.complaints.append("a CLOSE of what was not confirmed")
        del self.states[state]
        self.open_files -= 1
        return state
