#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Drives a running csi-nfs the way clients do, and the way broken clients do.

The first half goes through gRPC's C core (python3-grpcio). The second half writes HTTP/2 frames by
hand, so that it can send what no library would. One line a check; exit status 1 if any failed.

    test_grpc.py --csi-nfs PATH [--wrapper 'valgrind ...'] [--churn 10000]
"""

import argparse
import concurrent.futures
import contextlib
import ctypes
import os
import select
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

try:
    import grpc
except ImportError:
    print("1..0 # skipped: no python3-grpcio")
    sys.exit(77)

PROBE = "/csi.v1.Identity/Probe"
PLUGIN_INFO = "/csi.v1.Identity/GetPluginInfo"
STATS = "/csi.v1.Node/NodeGetVolumeStats"  # field 1, volume_id, is a string

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
WINDOW_UPDATE, CONTINUATION = 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
NO_ERROR, PROTOCOL_ERROR = 0, 1
OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED = 0, 3, 4
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 8, 12, 13
MESSAGE_MAX = 4 * 1024 * 1024


class Failure(Exception):
    """A check did not hold."""


class Skip(Exception):
    """A check cannot be made here."""


def expect(condition, why):
    if not condition:
        raise Failure(why)


def expect_equal(got, want, what):
    expect(got == want, f"{what}: got {got!r}, want {want!r}")


# ---- The driver under test ----


class Driver:
    def __init__(self, args, path, log):
        self.path = path
        self.log = open(log, "ab")
        command = shlex.split(args.wrapper) + [args.csi_nfs, "--endpoint", "unix://" + path,
                                               "--nodeid", "n1"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL)

    def wait_ready(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            expect(self.process.poll() is None, f"driver ended: {self.process.returncode}")
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                s.connect(self.path)
                return
            time.sleep(0.05)
        raise Failure("driver does not listen")

    def stop(self, seconds=30):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(seconds)
        self.log.close()
        return status

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        raise Failure("no VmRSS")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


# ---- HPACK: literals out, libnghttp2's decoder in ----


class Nv(ctypes.Structure):
    _fields_ = [("name", ctypes.POINTER(ctypes.c_uint8)),
                ("value", ctypes.POINTER(ctypes.c_uint8)),
                ("namelen", ctypes.c_size_t), ("valuelen", ctypes.c_size_t),
                ("flags", ctypes.c_uint8)]


def hpack_integer(value, prefix_bits, first=0):
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes([first | value])
    out = bytearray([first | limit])
    value -= limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def hpack_string(s):
    data = s if isinstance(s, bytes) else s.encode()
    return hpack_integer(len(data), 7) + data


def hpack_encode(fields):
    """Literal fields, never indexed, no Huffman code."""
    return b"".join(b"\0" + hpack_string(k) + hpack_string(v) for k, v in fields)


class Inflater:
    lib = None

    def __init__(self):
        if Inflater.lib is None:
            try:
                Inflater.lib = ctypes.CDLL("libnghttp2.so.14")
            except OSError as e:
                raise Skip(f"cannot decode HPACK: {e}") from None
            Inflater.lib.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
            Inflater.lib.nghttp2_hd_inflate_hd2.argtypes = [
                ctypes.c_void_p, ctypes.POINTER(Nv), ctypes.POINTER(ctypes.c_int),
                ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
            Inflater.lib.nghttp2_hd_inflate_end_headers.argtypes = [ctypes.c_void_p]
            Inflater.lib.nghttp2_hd_inflate_del.argtypes = [ctypes.c_void_p]
        self.handle = ctypes.c_void_p()
        expect_equal(self.lib.nghttp2_hd_inflate_new(ctypes.byref(self.handle)), 0, "inflater")

    def decode(self, block):
        fields, nv, flags = [], Nv(), ctypes.c_int()
        while True:
            n = self.lib.nghttp2_hd_inflate_hd2(self.handle, ctypes.byref(nv),
                                                ctypes.byref(flags), block, len(block), 1)
            expect(n >= 0, f"undecodable header block: {n}")
            block = block[n:]
            if flags.value & 2:
                fields.append((bytes(nv.name[:nv.namelen]).decode(),
                               bytes(nv.value[:nv.valuelen]).decode()))
            if flags.value & 1:
                self.lib.nghttp2_hd_inflate_end_headers(self.handle)
                return fields
            expect(flags.value & 2 or block, "header block ends early")

    def close(self):
        self.lib.nghttp2_hd_inflate_del(self.handle)


# ---- A client that sends what it is told to ----


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(payload=b"", flag=0, length=None):
    return struct.pack(">BI", flag, len(payload) if length is None else length) + payload


def request_fields(path=PROBE, drop=(), add=(), **replace):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path),
              (":authority", "localhost"), ("content-type", "application/grpc"),
              ("te", "trailers"), ("user-agent", "test")]
    replace = {k.replace("_", "-"): v for k, v in replace.items()}
    out = []
    for k, v in fields:
        if k not in drop:
            out.append((k, replace.get(k.lstrip(":"), v)))
    return out + list(add)


class Answer:
    """What came back on one stream, in order."""

    def __init__(self):
        self.headers = []       # one list of fields a HEADERS frame
        self.data = b""
        self.ended = False
        self.reset = None
        self.order = []

    def field(self, name):
        for block in self.headers:
            for k, v in block:
                if k == name:
                    return v
        return None

    @property
    def status(self):
        value = self.field("grpc-status")
        return None if value is None else int(value)


class Raw:
    def __init__(self, path, preface=True):
        self.inflater = Inflater()
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(path)
        self.buffer = b""
        self.answers = {}
        self.goaways = []       # (last stream, code)
        self.pongs = []
        self.settings = None
        self.first_type = None
        self.closed = False
        self.acks = preface     # an acknowledgement before the preface would be garbage
        if preface:
            self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.sock.close()
        self.inflater.close()

    def send(self, data):
        self.sock.sendall(data)

    def answer(self, stream):
        return self.answers.setdefault(stream, Answer())

    def take(self, kind, flags, stream, payload):
        if self.first_type is None:
            self.first_type = kind
        if kind == SETTINGS and not flags & ACK:
            self.settings = dict(struct.iter_unpack(">HI", payload))
            if self.acks:
                self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and flags & ACK:
            self.pongs.append(payload)
        elif kind == PING:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goaways.append(struct.unpack(">II", payload[:8]))
        elif stream and kind in (HEADERS, DATA, RST_STREAM):
            answer = self.answer(stream)
            answer.order.append(kind)
            if kind == HEADERS:
                answer.headers.append(self.inflater.decode(payload))
            elif kind == DATA:
                answer.data += payload
            else:
                answer.reset = struct.unpack(">I", payload)[0]
            if kind != RST_STREAM and flags & END_STREAM:
                answer.ended = True

    def pump(self, until, seconds=10):
        """Reads frames until the condition holds; False once the time or the socket is over."""
        end = time.monotonic() + seconds
        while not until():
            while len(self.buffer) < 9 or \
                    len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                left = end - time.monotonic()
                if left <= 0 or self.closed:
                    return False
                if not select.select([self.sock], [], [], left)[0]:
                    return False
                try:
                    data = self.sock.recv(65536)
                except ConnectionError:
                    data = b""
                if not data:
                    self.closed = True
                    return False
                self.buffer += data
            size = int.from_bytes(self.buffer[:3], "big")
            kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
            payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.take(kind, flags, stream & 0x7fffffff, payload)
        return True

    def wait(self, stream, seconds=10):
        answer = self.answer(stream)
        expect(self.pump(lambda: answer.ended or answer.reset is not None, seconds),
               f"no answer on stream {stream}, connection closed: {self.closed}")
        return answer

    def wait_closed(self, seconds=10):
        self.pump(lambda: self.closed, seconds)
        expect(self.closed, "connection is still open")

    def headers(self, stream, fields, end=False):
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream,
                        hpack_encode(fields)))

    def call(self, fields, body=None, stream=1, end=True):
        """A whole request: the body in frames of 16 KiB."""
        body = message() if body is None else body
        self.headers(stream, fields)
        pieces = [body[i:i + 16384] for i in range(0, len(body), 16384)] or [b""]
        for i, piece in enumerate(pieces):
            last = end and i == len(pieces) - 1
            self.send(frame(DATA, END_STREAM if last else 0, stream, piece))
        return self.wait(stream)


def window(raw, stream, size=8 * MESSAGE_MAX):
    raw.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size)))


# ---- The checks ----

CHECKS = []


def check(name):
    def register(function):
        CHECKS.append((name, function))
        return function
    return register


def channel(path):
    # A subchannel pool of its own, so that every channel is a connection.
    return grpc.insecure_channel("unix:" + path, [("grpc.use_local_subchannel_pool", 1)])


def probe(path, timeout=10):
    with channel(path) as c:
        return c.unary_unary(PROBE)(b"", timeout=timeout)


def expect_alive(t):
    expect(t.driver.process.poll() is None, "the driver is gone")
    probe(t.path)


@check("socket: mode 0600")
def _(t):
    expect_equal(stat.S_IMODE(os.lstat(t.path).st_mode), 0o600, "mode")


@check("core: Probe")
def _(t):
    probe(t.path)


@check("core: GetPluginInfo")
def _(t):
    with channel(t.path) as c:
        reply = c.unary_unary(PLUGIN_INFO)(b"", timeout=10)
    expect(reply[:1] == b"\x0a" and reply[1] > 0, f"no name in {reply!r}")


@check("core: unknown fields are ignored")
def _(t):
    with channel(t.path) as c:
        c.unary_unary(PROBE)(b"\xfa\x7f\x03abc", timeout=10)


@check("core: unknown method and service are UNIMPLEMENTED")
def _(t):
    with channel(t.path) as c:
        for path in ("/csi.v1.Identity/Nope", "/csi.v9.Identity/Probe", "/probe", "/csi.v1/"):
            try:
                c.unary_unary(path)(b"", timeout=10)
                raise Failure(f"{path} was answered")
            except grpc.RpcError as e:
                expect_equal(e.code(), grpc.StatusCode.UNIMPLEMENTED, path)
                expect(e.details(), "no message")


@check("core: 300 concurrent calls on one connection")
def _(t):
    with channel(t.path) as c:
        call = c.unary_unary(PROBE)
        futures = [call.future(b"", timeout=60) for _ in range(300)]
        expect_equal(len([f.result() for f in futures]), 300, "answers")


@check("core: 40 connections at once")
def _(t):
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        list(pool.map(lambda _: probe(t.path, 60), range(40)))


@check("256 idle connections: the next one waits until one ends, and the log says so once")
def _(t):
    path = os.path.join(t.directory, "full.sock")
    log = os.path.join(t.directory, "full.log")
    driver = Driver(t.args, path, log)
    driver.wait_ready()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(Raw(path)) for _ in range(256)]
        for raw in idle:
            expect(raw.pump(lambda raw=raw: raw.settings is not None, 30), "not accepted")
        late = stack.enter_context(Raw(path))
        late.headers(1, request_fields())
        late.send(frame(DATA, END_STREAM, 1, message()))
        expect(not late.pump(lambda: late.answer(1).ended, 1), "was answered")
        for raw in idle[:2]:
            raw.sock.close()
        expect_equal(late.wait(1, 30).status, OK, "grpc-status")
        stack.enter_context(Raw(path))
        probing = stack.enter_context(Raw(path))
        expect(not probing.pump(lambda: probing.settings is not None, 1), "was accepted")
    driver.stop()
    with open(log, encoding="utf-8") as f:
        lines = [line for line in f if "Clients have to wait for a connection" in line]
    expect_equal(len(lines), 1, "lines in the log")
    expect("too many connections are open" in lines[0], f"reason: {lines[0]}")


@check("core: a binary metadata header and custom metadata")
def _(t):
    with channel(t.path) as c:
        c.unary_unary(PROBE)(b"", timeout=10, metadata=[("x-bin", b"\0\1\2"), ("traceparent", "0")])


@check("core: compressed request is UNIMPLEMENTED, then an uncompressed one works")
def _(t):
    with channel(t.path) as c:
        call = c.unary_unary(PROBE)
        try:
            call(b"\xfa\x7f\x7d" + b"a" * 125, timeout=10, compression=grpc.Compression.Gzip)
            raise Failure("was answered")
        except grpc.RpcError as e:
            expect_equal(e.code(), grpc.StatusCode.UNIMPLEMENTED, "code")
        call(b"", timeout=10)


@check("core: message over 4 MiB is RESOURCE_EXHAUSTED")
def _(t):
    with channel(t.path) as c:
        try:
            c.unary_unary(PROBE)(b"\xfa\x7f" + b"\x84\x80\x80\x02" + bytes(MESSAGE_MAX + 4),
                                 timeout=30)
            raise Failure("was answered")
        except grpc.RpcError as e:
            expect_equal(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, "code")


@check("core: message of nearly 4 MiB arrives")
def _(t):
    size = MESSAGE_MAX - 16
    prefix = b"\xfa\x7f" + bytes([size & 0x7f | 0x80, size >> 7 & 0x7f | 0x80,
                                  size >> 14 & 0x7f | 0x80, size >> 21])
    with channel(t.path) as c:
        c.unary_unary(PROBE)(prefix + bytes(size), timeout=30)


@check("core: message that unpacks to more than the budget is RESOURCE_EXHAUSTED")
def _(t):
    # Unknown empty fields: three bytes on the wire, many times that in memory.
    with channel(t.path) as c:
        try:
            c.unary_unary(PROBE)(b"\xfa\x7f\x00" * 1000000, timeout=30)
            raise Failure("was answered")
        except grpc.RpcError as e:
            expect_equal(e.code(), grpc.StatusCode.RESOURCE_EXHAUSTED, "code")


@check("core: NUL in a string is INVALID_ARGUMENT and names the field")
def _(t):
    with channel(t.path) as c:
        try:
            c.unary_unary(STATS)(b"\x0a\x03a\0b", timeout=10)
            raise Failure("was answered")
        except grpc.RpcError as e:
            expect_equal(e.code(), grpc.StatusCode.INVALID_ARGUMENT, "code")
            expect("volume_id" in e.details() and "NUL" in e.details(), e.details())


@check("core: bad UTF-8 is INTERNAL and names the field")
def _(t):
    with channel(t.path) as c:
        try:
            c.unary_unary(STATS)(b"\x0a\x02\xc3\x28", timeout=10)
            raise Failure("was answered")
        except grpc.RpcError as e:
            expect_equal(e.code(), grpc.StatusCode.INTERNAL, "code")
            expect("volume_id" in e.details(), e.details())


@check("core: malformed protobuf is INTERNAL")
def _(t):
    with channel(t.path) as c:
        for body in (b"\x0a\x05a", b"\x00\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                     b"\x0b\x0c", b"\x09\x01"):
            try:
                c.unary_unary(STATS)(body, timeout=10)
                raise Failure(f"{body!r} was answered")
            except grpc.RpcError as e:
                expect_equal(e.code(), grpc.StatusCode.INTERNAL, repr(body))


@check("raw: SETTINGS is the first frame, sent before the client says anything")
def _(t):
    with Raw(t.path, preface=False) as raw:
        expect(raw.pump(lambda: raw.settings is not None), "no SETTINGS")
        expect_equal(raw.first_type, SETTINGS, "first frame")
        expect(raw.settings.get(3, 2 ** 31) >= 256, f"streams: {raw.settings.get(3)}")
        expect(6 in raw.settings, "no header list size")
        expect(0xfe03 not in raw.settings, "echoes an unknown setting")


@check("raw: a plain call, with HEADERS, DATA and trailers")
def _(t):
    with Raw(t.path) as raw:
        answer = raw.call(request_fields())
        expect_equal(answer.order, [HEADERS, DATA, HEADERS], "frames")
        expect_equal(answer.headers[0][0], (":status", "200"), "status")
        expect_equal(answer.field("content-type"), "application/grpc", "content-type")
        expect_equal(answer.headers[1], [("grpc-status", "0")], "trailers")
        expect_equal(answer.data[:1], b"\0", "flag")
        expect_equal(len(answer.data), 5 + int.from_bytes(answer.data[1:5], "big"), "length")


# name, what differs from a plain request, HTTP status, grpc-status
VARIANTS = [
    ("raw-path :authority", {"authority": "/var/lib/kubelet/plugins/x/csi.sock"}, "200", OK),
    ("percent-encoded :authority", {"authority": "%2Ftmp%2Fcsi.sock"}, "200", OK),
    ("empty :authority", {"authority": ""}, "200", OK),
    ("no :authority", {"drop": (":authority",)}, "200", OK),
    ("host instead of :authority", {"drop": (":authority",), "add": [("host", "h")]}, "200", OK),
    ("two :authority", {"authority": "a", "add2": (":authority", "b")}, "400", INTERNAL),
    ("two host", {"add": [("host", "a"), ("host", "b")]}, "400", INTERNAL),
    ("no te", {"drop": ("te",)}, "200", OK),
    ("other te", {"te": "gzip"}, "200", OK),
    ("https scheme", {"scheme": "https"}, "200", OK),
    ("content-type +proto", {"content_type": "application/grpc+proto"}, "200", OK),
    ("content-type with a parameter", {"content_type": "application/grpc;x=y"}, "200", OK),
    ("content-type of plain HTTP", {"content_type": "text/html"}, "415", INVALID_ARGUMENT),
    ("content-type of gRPC-Web", {"content_type": "application/grpc-web"}, "415",
     INVALID_ARGUMENT),
    ("content-type that goes on", {"content_type": "application/grpcx"}, "415", INVALID_ARGUMENT),
    ("content-type +json", {"content_type": "application/grpc+json"}, "415", INVALID_ARGUMENT),
    ("no content-type", {"drop": ("content-type",)}, "415", INVALID_ARGUMENT),
    ("method GET", {"method": "GET"}, "405", INTERNAL),
    ("method PUT", {"method": "PUT"}, "405", INTERNAL),
    ("path without slash", {"path": "csi.v1.Identity/Probe"}, "200", UNIMPLEMENTED),
    ("path without method", {"path": "/csi.v1.Identity/"}, "200", UNIMPLEMENTED),
    ("path without service", {"path": "/Probe"}, "200", UNIMPLEMENTED),
    ("path with a deeper service", {"path": "/x/csi.v1.Identity/Probe"}, "200", UNIMPLEMENTED),
    ("path in other case", {"path": "/csi.v1.identity/probe"}, "200", UNIMPLEMENTED),
    ("path of 4,000 bytes", {"path": "/" + "a" * 4000 + "/b"}, "200", UNIMPLEMENTED),
    ("empty path", {"path": ""}, "200", UNIMPLEMENTED),
    ("grpc-timeout of 5 s", {"add": [("grpc-timeout", "5S")]}, "200", OK),
    ("longest grpc-timeout", {"add": [("grpc-timeout", "99999999H")]}, "200", OK),
    ("grpc-timeout 0n", {"add": [("grpc-timeout", "0n")]}, "200", DEADLINE_EXCEEDED),
    ("grpc-timeout of nine digits", {"add": [("grpc-timeout", "123456789S")]}, "400", INTERNAL),
    ("grpc-timeout without unit", {"add": [("grpc-timeout", "10")]}, "400", INTERNAL),
    ("grpc-timeout with a sign", {"add": [("grpc-timeout", "-1S")]}, "400", INTERNAL),
    ("empty grpc-timeout", {"add": [("grpc-timeout", "")]}, "400", INTERNAL),
    ("bad base64 in -bin", {"add": [("x-bin", "a!!")]}, "400", INTERNAL),
    ("unpadded base64 in -bin", {"add": [("x-bin", "AAE")]}, "200", OK),
    ("grpc-encoding gzip, message not compressed", {"add": [("grpc-encoding", "gzip")]}, "200",
     OK),
    ("header list of 20 KiB", {"add": [("x", "a" * 5000)] * 4}, "431", RESOURCE_EXHAUSTED),
]


def variant_check(variant, http, code):
    def run(t):
        variant_fields = dict(variant)
        extra = variant_fields.pop("add2", None)
        fields = request_fields(**variant_fields)
        if extra is not None:
            fields.insert(4, extra)
        block = hpack_encode(fields)
        with Raw(t.path) as raw:
            # Longer blocks than a frame go on in a CONTINUATION.
            raw.send(frame(HEADERS, END_HEADERS if len(block) <= 16384 else 0, 1, block[:16384]))
            if len(block) > 16384:
                raw.send(frame(CONTINUATION, END_HEADERS, 1, block[16384:]))
            raw.send(frame(DATA, END_STREAM, 1, message()))
            answer = raw.wait(1)
            expect_equal(answer.field(":status"), http, "HTTP status")
            expect_equal(answer.status, code, "grpc-status")
            expect_equal(answer.field("content-type"), "application/grpc", "content-type")
            if code != OK:
                expect(answer.field("grpc-message"), "no grpc-message")
                expect_equal(answer.order[0], HEADERS, "first frame of the answer")
            # The connection is none the worse for it.
            expect_equal(raw.call(request_fields(), stream=3).status, OK, "next call")
    return run


for row_name, row, row_http, row_code in VARIANTS:
    check("raw: " + row_name)(variant_check(row, row_http, row_code))


# Requests that HTTP/2 itself forbids.
MALFORMED = [
    ("no :path", request_fields(drop=(":path",))),
    ("no :method", request_fields(drop=(":method",))),
    ("no :scheme", request_fields(drop=(":scheme",))),
    ("two :path", [(":path", PROBE)] + request_fields()),
    ("unknown pseudo field", [(":what", "x")] + request_fields()),
    ("pseudo field after a regular one", request_fields(drop=(":scheme",)) + [(":scheme", "http")]),
    ("upper-case name", request_fields(add=[("X-Y", "z")])),
    ("connection", request_fields(add=[("connection", "close")])),
    ("transfer-encoding", request_fields(add=[("transfer-encoding", "chunked")])),
    ("line feed in a value", request_fields(add=[("x", "a\nb")])),
    ("NUL in the path", request_fields(path="/csi.v1.Identity/Probe\0")),
]


def malformed_check(fields):
    def run(t):
        with Raw(t.path) as raw:
            answer = raw.call(fields)
            expect_equal(answer.reset, PROTOCOL_ERROR, "RST_STREAM")
            expect_equal(answer.headers, [], "headers")
            expect_equal(raw.call(request_fields(), stream=3).status, OK, "next call")
    return run


for row_name, row in MALFORMED:
    check("raw: PROTOCOL_ERROR for " + row_name)(malformed_check(row))


# name, body, grpc-encoding, grpc-status
BODIES = [
    ("empty message", message(), None, OK),
    ("no message at all", b"", None, INTERNAL),
    ("two messages", message() + message(), None, INTERNAL),
    ("bytes after the message", message() + b"\0", None, INTERNAL),
    ("end within the prefix", b"\0\0\0", None, INTERNAL),
    ("end within the message", message(b"abc", length=10), None, INTERNAL),
    ("compressed flag without encoding", message(b"abc", flag=1), None, INTERNAL),
    ("compressed flag with identity", message(b"abc", flag=1), "identity", INTERNAL),
    ("compressed flag with gzip", message(b"abc", flag=1), "gzip", UNIMPLEMENTED),
    ("unknown flag", message(b"", flag=2), None, INTERNAL),
    ("length over the limit", message(b"", length=MESSAGE_MAX + 1), None, RESOURCE_EXHAUSTED),
    ("length of 4 GiB", message(b"", length=2 ** 32 - 1), None, RESOURCE_EXHAUSTED),
]


def body_check(body, encoding, code):
    def run(t):
        add = [] if encoding is None else [("grpc-encoding", encoding)]
        with Raw(t.path) as raw:
            answer = raw.call(request_fields(add=add), body)
            expect_equal(answer.status, code, "grpc-status")
            expect_equal(answer.reset, None, "reset")
            if code == UNIMPLEMENTED:
                expect_equal(answer.field("grpc-accept-encoding"), "identity", "accept-encoding")
            expect_equal(raw.call(request_fields(), stream=3).status, OK, "next call")
    return run


for row_name, row, row_encoding, row_code in BODIES:
    check("raw: " + row_name)(body_check(row, row_encoding, row_code))


@check("raw: message split over DATA frames of one byte, empty ones and padded ones")
def _(t):
    body = message(b"\xfa\x7f\x03abc")
    with Raw(t.path) as raw:
        raw.headers(1, request_fields())
        for byte in body:
            raw.send(frame(DATA, 0, 1) + frame(DATA, 8, 1, b"\x02" + bytes([byte]) + b"\0\0"))
        raw.send(frame(DATA, END_STREAM, 1))
        expect_equal(raw.wait(1).status, OK, "grpc-status")


@check("raw: END_STREAM on HEADERS is no message")
def _(t):
    with Raw(t.path) as raw:
        raw.headers(1, request_fields(), end=True)
        expect_equal(raw.wait(1).status, INTERNAL, "grpc-status")


@check("raw: request trailers end the request")
def _(t):
    with Raw(t.path) as raw:
        raw.headers(1, request_fields())
        raw.send(frame(DATA, 0, 1, message()))
        raw.headers(1, [("x-trailer", "y")], end=True)
        expect_equal(raw.wait(1).status, OK, "grpc-status")


@check("raw: a second HEADERS without END_STREAM is PROTOCOL_ERROR")
def _(t):
    with Raw(t.path) as raw:
        raw.headers(1, request_fields())
        raw.headers(1, [("x-trailer", "y")])
        expect_equal(raw.wait(1).reset, PROTOCOL_ERROR, "reset")
        expect_equal(raw.call(request_fields(), stream=3).status, OK, "next call")


@check("raw: an early answer ends the stream before it is reset with NO_ERROR")
def _(t):
    with Raw(t.path) as raw:
        raw.headers(1, request_fields(path="/a/b"))
        answer = raw.answer(1)
        expect(raw.pump(lambda: answer.reset is not None), "no RST_STREAM")
        expect_equal(answer.order, [HEADERS, RST_STREAM], "frames")
        expect_equal(answer.reset, NO_ERROR, "code")
        expect(answer.ended, "no END_STREAM")
        expect_equal(answer.status, UNIMPLEMENTED, "grpc-status")


@check("raw: no RST_STREAM where the request had ended")
def _(t):
    with Raw(t.path) as raw:
        answer = raw.call(request_fields(path="/a/b"))
        raw.send(frame(PING, 0, 0, b"01234567"))
        expect(raw.pump(lambda: raw.pongs), "no PING acknowledgement")
        if RST_STREAM in answer.order:
            # The answer to HEADERS may have gone out before DATA was read.
            expect_equal(answer.order, [HEADERS, RST_STREAM], "frames")
        raw.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, hpack_encode(request_fields())))
        answer = raw.wait(3)
        raw.send(frame(PING, 0, 0, b"76543210"))
        expect(raw.pump(lambda: len(raw.pongs) == 2), "no PING acknowledgement")
        expect_equal(answer.order, [HEADERS], "frames")


@check("raw: deadline passes while the request is incomplete")
def _(t):
    with Raw(t.path) as raw:
        start = time.monotonic()
        raw.headers(1, request_fields(add=[("grpc-timeout", "300m")]))
        raw.send(frame(DATA, 0, 1, b"\0\0"))
        answer = raw.wait(1)
        took = time.monotonic() - start
        expect_equal(answer.status, DEADLINE_EXCEEDED, "grpc-status")
        expect(0.28 <= took < 5, f"after {took:.3f} s")


@check("raw: a reply waits for the client's window and survives its reset")
def _(t):
    with Raw(t.path, preface=False) as raw:
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                 frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
        for stream in (1, 3):
            raw.headers(stream, request_fields(PLUGIN_INFO))
            raw.send(frame(DATA, END_STREAM, stream, message()))
        answer = raw.answer(1)
        expect(raw.pump(lambda: answer.headers and raw.answer(3).headers), "no headers")
        expect_equal(answer.data, b"", "data beyond the window")
        raw.send(frame(RST_STREAM, 0, 3, struct.pack(">I", 8)))
        window(raw, 1, 7)
        expect(raw.pump(lambda: len(answer.data) == 7), f"{len(answer.data)} bytes, want 7")
        window(raw, 1, 65535)
        expect_equal(raw.wait(1).status, OK, "grpc-status")
        expect_equal(raw.answer(3).data, b"", "data on a stream that was reset")


@check("raw: PING is acknowledged, 5,000 of them too")
def _(t):
    with Raw(t.path) as raw:
        for i in range(0, 5000, 500):
            raw.send(b"".join(frame(PING, 0, 0, struct.pack(">Q", j)) for j in range(i, i + 500)))
            expect(raw.pump(lambda n=i: len(raw.pongs) == n + 500), f"{len(raw.pongs)} answers")
        expect_equal(raw.pongs[-1], struct.pack(">Q", 4999), "last payload")
        expect_equal(raw.call(request_fields()).status, OK, "next call")


@check("raw: GOAWAY with the client's own odd stream id closes quietly")
def _(t):
    with Raw(t.path) as raw:
        expect_equal(raw.call(request_fields()).status, OK, "grpc-status")
        raw.send(frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0) + b"client transport shutdown"))
        raw.sock.close()
    with Raw(t.path) as raw:
        raw.call(request_fields())
        raw.send(frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0)))
        raw.wait_closed()
    expect_alive(t)


@check("raw: GOAWAY with id 0 lets the running call finish")
def _(t):
    with Raw(t.path) as raw:
        raw.headers(1, request_fields())
        raw.send(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0)))
        raw.send(frame(DATA, END_STREAM, 1, message()))
        expect_equal(raw.wait(1).status, OK, "grpc-status")
        raw.wait_closed()


@check("raw: connection closed in every stage of a call")
def _(t):
    request = frame(HEADERS, END_HEADERS, 1, hpack_encode(request_fields(STATS)))
    request += frame(DATA, END_STREAM, 1, message(b"\x0a\x01v\x12\x05/none"))
    whole = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + request
    for n in range(0, len(whole) + 1):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(t.path)
            s.sendall(whole[:n])
    expect_alive(t)


@check("raw: garbage instead of a preface")
def _(t):
    for junk in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(4096), b"\0" * 100,
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        with Raw(t.path, preface=False) as raw:
            with contextlib.suppress(OSError):
                raw.send(junk)
            raw.wait_closed(15)
    expect_alive(t)


@check("raw: random frames")
def _(t):
    for i in range(200):
        with Raw(t.path) as raw:
            with contextlib.suppress(OSError):
                for _ in range(5):
                    payload = os.urandom(i % 40)
                    raw.send(frame(os.urandom(1)[0] % 11, os.urandom(1)[0], i % 5, payload))
    expect_alive(t)


@check("raw: RST flood ends the connection, not the driver")
def _(t):
    headers = hpack_encode(request_fields(STATS))
    body = message(b"\x0a\x01v\x12\x05/none")
    size = os.path.getsize(t.log)
    sent = 0
    with Raw(t.path) as raw:
        with contextlib.suppress(OSError):
            for stream in range(1, 40001, 2):
                sent += 1
                raw.send(frame(HEADERS, END_HEADERS, stream, headers) +
                         frame(DATA, END_STREAM, stream, body) +
                         frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
                raw.pump(lambda: True)
                if select.select([raw.sock], [], [], 0)[0]:
                    raw.pump(lambda: raw.goaways or raw.closed, 0.001)
                if raw.closed or raw.goaways:
                    break
        expect(raw.goaways or raw.closed or raw.pump(lambda: raw.goaways), "still open")
    expect_alive(t)
    # Only calls that had begun have a line each: those whose frames were not read together.
    with open(t.log, "rb") as f:
        f.seek(size)
        lines = f.read().count(b"Call cancelled")
    expect(lines <= sent / 5, f"{lines} lines in the log about {sent} calls")


@check("raw: SETTINGS flood and CONTINUATION flood")
def _(t):
    with Raw(t.path) as raw:
        with contextlib.suppress(OSError):
            for _ in range(200):
                raw.send(frame(SETTINGS, 0, 0) * 500)
                while select.select([raw.sock], [], [], 0)[0] and not raw.closed:
                    raw.pump(lambda: False, 0.001)
    with Raw(t.path) as raw:
        with contextlib.suppress(OSError):
            raw.send(frame(HEADERS, 0, 1, hpack_encode([("a", "b")])))
            for _ in range(100):
                raw.send(frame(CONTINUATION, 0, 1, hpack_encode([("a", "b")])))
        raw.wait_closed()
    expect_alive(t)


@check("raw: a client that does not read holds up nobody else")
def _(t):
    with Raw(t.path) as raw:
        raw.sock.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError, OSError):
            while sent < 64 * 1024 * 1024:
                sent += raw.sock.send(frame(PING, 0, 0, b"01234567") * 1000)
        expect(sent < 64 * 1024 * 1024, "everything was taken: no back-pressure")
        probe(t.path, 5)
        raw.sock.setblocking(True)
    expect_alive(t)


@check("raw: more streams than allowed are refused, not failed")
def _(t):
    # Only before the limit is acknowledged: from then on it is a connection error.
    with Raw(t.path) as raw:
        raw.acks = False
        expect(raw.pump(lambda: raw.settings is not None), "no SETTINGS")
        limit = raw.settings[3]
        for i in range(limit + 5):
            raw.headers(1 + 2 * i, request_fields())
        expect_equal(raw.wait(1 + 2 * limit).reset, 7, "RST_STREAM code")
        raw.send(frame(DATA, END_STREAM, 1, message()))
        expect_equal(raw.wait(1).status, OK, "grpc-status")


@check("raw: 300 connections wait for their turn")
def _(t):
    with contextlib.ExitStack() as stack:
        raws = [stack.enter_context(Raw(t.path)) for _ in range(300)]
        served = [r for r in raws if r.pump(lambda r=r: r.settings is not None, 0.2)]
        expect(len(served) >= 200, f"{len(served)} served")
        for raw in served:
            raw.sock.shutdown(socket.SHUT_RDWR)
        for raw in raws[-40:]:
            expect_equal(raw.call(request_fields()).status, OK, "grpc-status")


@check("raw: no preface is closed after 10 s, an idle connection is not")
def _(t):
    with Raw(t.path) as idle, Raw(t.path, preface=False) as mute, \
            Raw(t.path, preface=False) as half:
        idle.call(request_fields())
        half.send(b"PRI * HTTP/2.0\r\n")
        start = time.monotonic()
        mute.wait_closed(15)
        took = time.monotonic() - start
        expect(8 < took < 14, f"closed after {took:.1f} s")
        half.wait_closed(5)
        time.sleep(1)
        expect(not idle.pump(lambda: idle.goaways or idle.closed, 0.5), "idle one got GOAWAY")
        expect(not idle.closed, "idle one was closed")
        expect_equal(idle.call(request_fields(), stream=3).status, OK, "grpc-status")


@check("churn: connections leak nothing")
def _(t):
    def one():
        with Raw(t.path) as raw:
            expect_equal(raw.call(request_fields()).status, OK, "grpc-status")
    for _ in range(min(1000, t.args.churn)):
        one()
    time.sleep(0.2)
    resident, descriptors = t.driver.resident_kib(), t.driver.descriptors()
    for _ in range(t.args.churn):
        one()
    time.sleep(0.2)
    grown = t.driver.resident_kib() - resident
    t.note(f"{t.args.churn} connections: resident {resident} KiB, {grown:+d} KiB")
    expect_equal(t.driver.descriptors(), descriptors, "open descriptors")
    if not t.args.wrapper:
        expect(grown <= 512, f"grew by {grown} KiB")


@check("latency: Probe on an open connection")
def _(t):
    times = []
    with channel(t.path) as c:
        call = c.unary_unary(PROBE)
        for _ in range(1000):
            start = time.perf_counter()
            call(b"", timeout=10)
            times.append(time.perf_counter() - start)
    times.sort()
    median, late = times[500] * 1e6, times[990] * 1e6
    t.note(f"Probe: median {median:.0f} us, 99% {late:.0f} us")
    expect(t.args.wrapper or median < 20000, f"median {median:.0f} us")


@check("a second driver on the same socket refuses, and the first goes on")
def _(t):
    before = os.lstat(t.path)
    second = Driver(t.args, t.path, t.log + ".second")
    status = second.process.wait(30)
    expect(status > 0, f"exit status {status}")
    with open(t.log + ".second", "rb") as f:
        expect(b"another process is serving" in f.read(), "no clear message")
    expect_equal(os.lstat(t.path).st_ino, before.st_ino, "socket")
    expect_alive(t)


@check("a stale socket file is replaced")
def _(t):
    path = os.path.join(t.directory, "stale.sock")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
    driver = Driver(t.args, path, t.log)
    driver.wait_ready()
    probe(path)
    driver.stop()
    expect(not os.path.lexists(path), "socket left behind")


@check("a file that is no socket is left alone")
def _(t):
    path = os.path.join(t.directory, "file.sock")
    with open(path, "w", encoding="ascii") as f:
        f.write("precious")
    driver = Driver(t.args, path, t.log)
    expect(driver.process.wait(30) > 0, "exit status")
    with open(path, encoding="ascii") as f:
        expect_equal(f.read(), "precious", "content")


@check("a missing directory and a long path are refused")
def _(t):
    for path in ("/none/csi.sock", "/" + "d" * 107 + "/csi.sock"):
        driver = Driver(t.args, os.path.join(t.directory, path.lstrip("/")), t.log)
        expect(driver.process.wait(30) > 0, f"exit status for {path}")


@check("SIGTERM: two GOAWAYs, then the connection ends, and no socket is left")
def _(t):
    path = os.path.join(t.directory, "term.sock")
    driver = Driver(t.args, path, t.log)
    driver.wait_ready()
    with Raw(path) as raw:
        expect_equal(raw.call(request_fields()).status, OK, "grpc-status")
        start = time.monotonic()
        driver.process.send_signal(signal.SIGTERM)
        raw.wait_closed(30)
        expect_equal([g[0] for g in raw.goaways], [2 ** 31 - 1, 1], "GOAWAY ids")
        expect_equal([g[1] for g in raw.goaways], [0, 0], "GOAWAY codes")
        expect_equal(driver.process.wait(30), 0, "exit status")
        took = time.monotonic() - start
        expect(t.args.wrapper or took < 5, f"took {took:.1f} s with nothing to wait for")
    expect(not os.path.lexists(path), "socket left behind")


@check("SIGTERM: a request that is on its way is still served")
def _(t):
    path = os.path.join(t.directory, "way.sock")
    driver = Driver(t.args, path, t.log)
    driver.wait_ready()
    with Raw(path) as raw:
        raw.headers(1, request_fields())
        raw.send(frame(PING, 0, 0, b"01234567"))
        expect(raw.pump(lambda: raw.pongs), "no PING acknowledgement")
        driver.process.send_signal(signal.SIGTERM)
        expect(raw.pump(lambda: raw.goaways), "no GOAWAY")
        raw.send(frame(DATA, END_STREAM, 1, message()))
        expect_equal(raw.wait(1).status, OK, "grpc-status")
    driver.stop()


@check("SIGTERM: another's socket in our place is left alone")
def _(t):
    path = os.path.join(t.directory, "other.sock")
    driver = Driver(t.args, path, t.log)
    driver.wait_ready()
    os.rename(path, path + ".old")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        driver.stop()
        expect(os.path.lexists(path), "socket was removed")


@check("the driver that bore all this ends cleanly")
def _(t):
    expect_equal(t.driver.stop(60), 0, "exit status")
    expect(not os.path.lexists(t.path), "socket left behind")


# ---- Running them ----


class Test:
    def __init__(self, args):
        self.args = args
        self.directory = tempfile.mkdtemp(prefix="csi-nfs-grpc-")
        self.path = os.path.join(self.directory, "csi.sock")
        self.log = os.path.join(self.directory, "log")
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.driver = Driver(args, self.path, self.log)

    def note(self, text):
        print(f"# {text}", flush=True)

    def run(self, name, function):
        try:
            function(self)
            self.counts["passed"] += 1
            print(f"ok - {name}", flush=True)
        except Skip as e:
            self.counts["skipped"] += 1
            print(f"ok - {name} # skipped: {e}", flush=True)
        except (Failure, OSError, grpc.RpcError, subprocess.TimeoutExpired) as e:
            self.counts["failed"] += 1
            print(f"not ok - {name}: {' '.join(str(e).split()) or repr(e)}", flush=True)

    def finish(self):
        if self.driver.process.poll() is None:
            self.driver.process.kill()
            self.driver.process.wait()
        c = self.counts
        if c["failed"]:
            print(f"# the driver's log is {self.log}")
        else:
            shutil.rmtree(self.directory)
        print(f"{c['passed']} passed, {c['failed']} failed, {c['skipped']} skipped")
        return 1 if c["failed"] or not c["passed"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csi-nfs", required=True, help="the binary to test")
    parser.add_argument("--wrapper", default="", help="command to run it under")
    parser.add_argument("--churn", type=int, default=2000, help="connections to open and close")
    parser.add_argument("--only", default="", help="checks whose name contains this")
    args = parser.parse_args()
    test = Test(args)
    try:
        test.run("driver starts", lambda t: t.driver.wait_ready(60))
        for name, function in CHECKS:
            if args.only in name:
                test.run(name, function)
    finally:
        status = test.finish()
    return status


if __name__ == "__main__":
    sys.exit(main())
