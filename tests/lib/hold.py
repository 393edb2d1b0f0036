# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""A proxy in front of an NFSv3 server that can hold one call back, and with it its connection: what
a replica that is paused at that point looks like to the server and to other replicas.
"""
import contextlib
import socket
import struct
import threading

SETATTR, LOOKUP, READ, WRITE, CREATE, MKDIR, SYMLINK = 2, 3, 6, 7, 8, 9, 10
REMOVE, RMDIR, RENAME, LINK = 12, 13, 14, 15
CHANGES = (SETATTR, WRITE, CREATE, MKDIR, SYMLINK, REMOVE, RMDIR, RENAME, LINK)
LISTS = (16, 17)  # READDIR, READDIRPLUS
NFS = 100003


class Held:
    """A call that is held, once happened is set, until release() is called."""

    def __init__(self, number, procedures, text):
        self.number = number  # which of those that match, from 1 on
        self.procedures = procedures
        self.text = text  # that the call holds, as a name in it
        self.seen = 0
        self.happened = threading.Event()
        self.released = threading.Event()

    def matches(self, procedure, body):
        if procedure not in self.procedures or self.text not in body:
            return False
        self.seen += 1
        return self.seen == self.number

    def release(self):
        self.released.set()


class Proxy:
    """On a port of its own, for one server port."""

    def __init__(self, port):
        self.server_port = port
        self.lock = threading.Lock()
        self.held = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.socket()
                # Servers want a port below 1024 of some clients; the lab runs as root.
                with contextlib.suppress(OSError):
                    server.connect(("127.0.0.1", self.server_port))
                    for sock in (client, server):
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for work in ((self._calls, client, server), (self._replies, server, client)):
                    threading.Thread(target=work[0], args=work[1:], daemon=True).start()

    @staticmethod
    def _read(sock, n):
        data = b""
        while len(data) < n:
            got = sock.recv(n - len(data))
            if not got:
                raise OSError("closed")
            data += got
        return data

    @staticmethod
    def _close(*socks):
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _calls(self, client, server):
        with contextlib.suppress(OSError):
            while True:
                mark = self._read(client, 4)
                body = self._read(client, struct.unpack(">I", mark)[0] & 0x7fffffff)
                program, _, procedure = struct.unpack_from(">3I", body, 12)
                self._wait(program, procedure, body)
                server.sendall(mark + body)
        self._close(client, server)

    def _replies(self, server, client):
        with contextlib.suppress(OSError):
            while True:
                got = server.recv(65536)
                if not got:
                    break
                client.sendall(got)
        self._close(client, server)

    def _wait(self, program, procedure, body):
        with self.lock:
            held = self.held
            if held is None or program != NFS or not held.matches(procedure, body):
                return
        held.happened.set()
        held.released.wait()

    @contextlib.contextmanager
    def hold(self, number=1, procedures=CHANGES, text=b""):
        """Holds the call of that number of these procedures."""
        held = Held(number, procedures, text)
        with self.lock:
            self.held = held
        try:
            yield held
        finally:
            with self.lock:
                self.held = None
            held.release()

    def close(self):
        self.listener.close()
