# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Peers on the wire between the driver and a server: a proxy that passes RPC calls on, changes
replies or holds a call back, and a server that answers byte by byte.
"""
import collections
import contextlib
import socket
import socketserver
import struct
import threading
import time

NFS = 100003
SETATTR3, LOOKUP3, READLINK3, READ3, WRITE3, CREATE3, MKDIR3, SYMLINK3 = 2, 3, 5, 6, 7, 8, 9, 10
REMOVE3, RMDIR3, RENAME3, LINK3 = 12, 13, 14, 15
READDIR3, READDIRPLUS3, FSINFO3, COMMIT3 = 16, 17, 19, 21
CHANGES3 = (SETATTR3, WRITE3, CREATE3, MKDIR3, SYMLINK3, REMOVE3, RMDIR3, RENAME3, LINK3)
COMMIT4, LOOKUP4, PUTFH, READ4, READLINK4, REMOVE4, WRITE4 = 5, 15, 22, 25, 27, 28, 38
STALE = 70
NOTSUPP = 10004


def receive(connection, length):
    data = b""
    while len(data) < length:
        try:
            got = connection.recv(length - len(data))
        except OSError:
            return None
        if not got:
            return None
        data += got
    return data


def record(connection):
    """The next one, whole; None at the end."""
    data = b""
    while True:
        mark = receive(connection, 4)
        if mark is None:
            return None
        mark = struct.unpack(">I", mark)[0]
        part = receive(connection, mark & 0x7fffffff)
        if part is None:
            return None
        data += part
        if mark >> 31:
            return data


def framed(data):
    return struct.pack(">I", 0x80000000 | len(data)) + data


class Call:
    """What a call says of itself."""

    def __init__(self, data):
        self.xid, _, _, self.program, self.version, self.procedure = struct.unpack_from(">6I", data)
        at = 24
        for _ in range(2):  # credential and verifier
            at += 8 + ((struct.unpack_from(">I", data, at + 4)[0] + 3) & ~3)
        self.arguments = data[at:]

    def opaque(self, at):
        """Where what follows an opaque begins."""
        return at + 4 + ((struct.unpack_from(">I", self.arguments, at)[0] + 3) & ~3)

    @property
    def kind(self):
        """(version, procedure) of NFS, for version 4 the operation behind PUTFH."""
        if self.program != NFS:
            return None
        if self.version != 4 or self.procedure != 1:
            return (self.version, self.procedure)
        at = self.opaque(0)
        _, count, first = struct.unpack_from(">3I", self.arguments, at)
        if count < 2 or first != 22:
            return (4, None)
        return (4, struct.unpack_from(">I", self.arguments, self.opaque(at + 12))[0])

    def stale(self):
        """The reply that says so: of version 3 without attributes, of version 4 by PUTFH."""
        reply = struct.pack(">7I", self.xid, 1, 0, 0, 0, 0, STALE)
        return reply + (bytes(4) if self.version == 3 else struct.pack(">4I", 0, 1, PUTFH, STALE))

    @property
    def count(self):
        """Bytes that a READ or WRITE is about."""
        if self.version == 3:
            at = self.opaque(0) + 8
        else:
            at = self.opaque(self.opaque(0) + 12) + 4 + 16 + 8
            if self.kind[1] == WRITE4:
                at += 4
        return struct.unpack_from(">I", self.arguments, at)[0]


class Held:
    """A call of version 3 that is held back once happened is set, until release(). Its connection
    waits, too: this is how a replica looks that is paused at that point."""

    def __init__(self, number, procedures, text):
        self.number = number  # of the calls that match; the first is 1
        self.procedures = procedures
        self.text = text  # in the call, as a name
        self.seen = 0
        self.happened = threading.Event()
        self.released = threading.Event()

    def matches(self, call):
        if (call.program, call.version) != (NFS, 3) or call.procedure not in self.procedures \
                or self.text not in call.arguments:
            return False
        self.seen += 1
        return self.seen == self.number

    def release(self):
        self.released.set()


class Proxy:
    """Passes calls on to a port of this host. delays: seconds by which replies to a kind of call are
    late; without: kinds that the server seems not to have; limit: the most bytes that FSINFO
    promises. It counts the calls of each kind, and the most bytes of a READ or WRITE."""

    def __init__(self, port, delays=None, without=(), limit=None, host="127.0.0.1"):
        self.to = port
        self.delays = delays or {}
        self.without = without
        self.limit = limit
        self.counts = collections.Counter()
        self.stale = collections.Counter()  # of each kind, how many are answered STALE from now on
        self.most = 0
        self.mute = False  # nothing more is answered
        self.trickle = None  # seconds between the bytes of all that is answered
        self.half = False  # where a reply is late, the next one is cut, and none follows
        self.held = None
        self.lock = threading.Lock()  # of held
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((host, 0))
        self.socket.listen(64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self):
        self.socket.close()

    @contextlib.contextmanager
    def hold(self, number=1, procedures=CHANGES3, text=b""):
        """Hold back the call of that number of these procedures."""
        held = Held(number, procedures, text)
        with self.lock:
            self.held = held
        try:
            yield held
        finally:
            with self.lock:
                self.held = None
            held.release()

    def wait_while_held(self, call):
        with self.lock:
            held = self.held
            if held is None or not held.matches(call):
                return
        held.happened.set()
        held.released.wait()

    def _accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.socket()
        with contextlib.suppress(OSError):  # an export may want a port below 1024
            for port in range(1023, 600, -1):
                try:
                    server.bind(("127.0.0.1", port))
                    break
                except OSError:
                    continue
        try:
            server.connect(("127.0.0.1", self.to))
        except OSError:
            client.close()
            return
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(self, client, server)
        threading.Thread(target=link.replies, daemon=True).start()
        link.calls()


class Link:
    """One connection."""

    def __init__(self, proxy, client, server):
        self.proxy = proxy
        self.client = client
        self.server = server
        self.lock = threading.Lock()  # of what is sent to the client
        self.kinds = {}  # by xid
        self.dead = False
        self.holds_back = False

    def calls(self):
        while True:
            data = record(self.client)
            if data is None:
                break
            call = Call(data)
            kind = call.kind
            self.proxy.counts[kind] += 1
            if kind in ((3, READ3), (3, WRITE3), (4, READ4), (4, WRITE4)):
                self.proxy.most = max(self.proxy.most, call.count)
            if kind in self.proxy.without:
                self.say(struct.pack(">7I", call.xid, 1, 0, 0, 0, 0, NOTSUPP) + bytes(4))
                continue
            if self.proxy.stale[kind] > 0:
                self.proxy.stale[kind] -= 1
                self.say(call.stale())
                continue
            self.kinds[call.xid] = kind
            self.proxy.wait_while_held(call)
            try:
                self.server.sendall(framed(data))
            except OSError:
                break
        self.close()

    def replies(self):
        while True:
            data = record(self.server)
            if data is None:
                break
            kind = self.kinds.pop(struct.unpack_from(">I", data)[0], None)
            if kind == (3, FSINFO3) and self.proxy.limit:
                data = self.limited(data)
            delay = self.proxy.delays.get(kind)
            if delay:
                self.holds_back = True
                timer = threading.Timer(delay, self.say, (data,))
                timer.daemon = True
                timer.start()
            else:
                self.say(data)
        self.close()

    def limited(self, data):
        at = 24 + 4  # behind the header and the status
        at += 4 + 84 * struct.unpack_from(">I", data, at)[0]
        limit = struct.pack(">I", self.proxy.limit)
        return (data[:at] + limit * 2 + data[at + 8:at + 12] + limit * 2 + data[at + 20:at + 24] +
                limit + data[at + 28:])

    def say(self, data):
        proxy = self.proxy
        data = framed(data)
        with self.lock, contextlib.suppress(OSError):
            if proxy.mute or self.dead:
                return
            if proxy.half and self.holds_back:
                proxy.half = False
                self.dead = True
                data = data[:len(data) // 2]
            if not proxy.trickle:
                self.client.sendall(data)
                return
            for byte in data:
                self.client.sendall(bytes([byte]))
                time.sleep(proxy.trickle)

    def close(self):
        for s in (self.client, self.server):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


class Trickle:
    """A server that accepts every call and sends its reply, without results, byte by byte, with
    seconds between the bytes."""

    def __init__(self, seconds=1.5, address=("127.0.0.1", 0)):
        outer = self
        self.calls = 0

        class Handler(socketserver.BaseRequestHandler):
            """One connection."""

            def handle(self):
                with contextlib.suppress(OSError):
                    while True:
                        data = record(self.request)
                        if data is None:
                            return
                        outer.calls += 1
                        for byte in framed(data[:4] + struct.pack(">5I", 1, 0, 0, 0, 0)):
                            self.request.sendall(bytes([byte]))
                            time.sleep(seconds)

        class Server(socketserver.ThreadingTCPServer):
            """As many connections as come."""

            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 64

        self.tcp = Server(address, Handler)
        self.port = self.tcp.server_address[1]
        threading.Thread(target=self.tcp.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.tcp.shutdown()
        self.tcp.server_close()
