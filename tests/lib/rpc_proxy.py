# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""A proxy between csi-nfs and an NFS server that does what networks and servers do at the worst
moment, by rules that count calls and not time: the same rules hit the same calls again.

    with Proxy(server.port, server.mount_port) as proxy:   # proxy.port, proxy.mount_port
        proxy.begin([Rule("MKDIR", 2, "cut-after")])       # ... calls ...
        proxy.end()                                        # from here on it only passes on
        print("\\n".join(proxy.trace(40)))

It has one thread, which also runs the hooks.
"""
import collections
import contextlib
import heapq
import itertools
import selectors
import socket
import struct
import threading
import time

import wire

# What a rule can do before the server has the call. "status NAME" is the answer NAME in place of
# the server's. "hold" holds the call and all that follow on its connection until end(), and calls
# value once it does: a caller that is paused at that point looks like this.
# "hollow" is an OK without the result of what the call is for; the server has not done it.
BEFORE = ("drop-call", "cut-before", "delay-call", "stall", "short-page", "short-read",
          "lose-write", "hook", "hold", "hollow")
# What it can do with the answer. "half" is the first half of it and nothing more on its connection.
# "hollow-after" is like "hollow", and the server has done it.
AFTER = ("drop-reply", "cut-after", "delay-reply", "double", "trickle", "half", "small-transfers",
         "few-operations", "small-replies", "hook-after", "hollow-after")

HOST = "127.0.0.1"
ALWAYS = 1 << 30  # a count
HOLD = 86400  # seconds
PIECE = 1 << 18
HISTORY = 4000


class Rule:
    """From the nth call of a name on, count times: do what, with value. name: as in wire, or "any",
    "changing" (those that change something), "reading" (those that do not), "every" (NULL and other
    programs as well), or several with "|". same: only that very request, each time it comes."""

    def __init__(self, name, nth, what, value=None, count=1, same=False):
        if what not in BEFORE + AFTER and what.partition("status ")[2] not in wire.STATUS:
            raise ValueError("no rule can do %s" % what)
        self.name = name
        self.names = name.split("|")
        self.nth = nth
        self.what = what
        self.value = value
        self.count = count
        self.same = same
        self.request = None  # that was meant first
        self.seen = 0
        self.hits = 0

    def is_for(self, call):
        if call.name in self.names or "every" in self.names:
            return True
        if call.program != wire.NFS or call.name in ("NULL", "?"):
            return False
        return "any" in self.names \
            or ("changing" if call.is_mutating else "reading") in self.names \
            or call.name == "READDIRPLUS" and "READDIR" in self.names

    def takes(self, call):
        """Counts the call, and tells whether it is one of those that are meant."""
        if not self.is_for(call) or self.request not in (None, call.request):
            return False
        self.seen += 1
        if self.same and self.seen == self.nth:
            self.request = call.request
        return self.nth <= self.seen < self.nth + self.count

    def __repr__(self):
        value = "" if self.value is None or callable(self.value) else " %s" % self.value
        count = "" if self.count == 1 else " x%d" % self.count
        return "%s#%d%s: %s%s" % (self.name, self.nth, count, self.what, value)


class Side:
    """One of the two sockets of a connection."""

    def __init__(self, link, sock):
        self.link = link
        self.socket = sock
        self.input = bytearray()
        self.output = bytearray()
        self.is_open = False  # whether it is connected


class Link:
    """A connection of the driver's and ours to the server."""

    def __init__(self, client, server):
        self.client = Side(self, client)
        self.server = Side(self, server)
        self.pending = {}  # calls by xid
        self.paused = False  # a call is held, and so are those behind it
        self.waiting = None  # answers behind one that trickles, or came in half
        self.closed = False


class Proxy:
    """See above. versions: what of NFS the server seems to have."""

    def __init__(self, port, mount_port=None, listen=HOST):
        self.targets = {}
        self.selector = selectors.DefaultSelector()
        self.port = self._listen(listen, port)
        self.mount_port = self._listen(listen, mount_port) if mount_port else None
        self.versions = (3, 4)
        self.lock = threading.RLock()
        self.rules = []
        self.calls = 0  # since begin()
        self.changes = 0  # of them, those that change something
        self.counts = collections.Counter()
        self.history = collections.deque(maxlen=HISTORY)
        self.on_call = None  # of every call, before it is passed on
        self.longest = 0  # bytes of an answer
        self.problems = []  # calls that could not be read, hooks that failed
        self.links = set()
        self.timers = []
        self.order = itertools.count()
        self.stalled_until = 0
        self.waker, self.wake = socket.socketpair()
        self.waker.setblocking(False)
        self.selector.register(self.waker, selectors.EVENT_READ, None)
        self.ending = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _listen(self, host, target):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, 0))
        sock.listen(64)
        sock.setblocking(False)
        self.targets[sock] = target
        self.selector.register(sock, selectors.EVENT_READ, sock)
        return sock.getsockname()[1]

    # ---- from other threads ----

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.ending = True
        self.wake.send(b"x")
        self.thread.join()
        # Not before: the thread may see that it ends without being woken.
        self.wake.close()
        self.waker.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()

    def begin(self, rules=(), on_call=None, versions=(3, 4)):
        """Counts from here on, by these rules."""
        with self.lock:
            self.rules = list(rules)
            self.on_call = on_call
            self.versions = versions
            self.calls = self.changes = self.longest = 0
            self.counts.clear()
            self.history.clear()
            self.problems.clear()
            self.stalled_until = 0

    def end(self):
        """No more rules. What is held back is let go. What the rules did is told."""
        with self.lock:
            hits = [(rule, rule.hits) for rule in self.rules]
            self.rules = []
            self.on_call = None
            self.stalled_until = 0
            self.timers = [(0,) + timer[1:] for timer in self.timers]
            heapq.heapify(self.timers)
        self.wake.send(b"x")
        return hits

    def cut_all(self):
        """Every connection."""
        with self.lock:
            for link in list(self.links):
                self._close(link)

    def trace(self, last=60):
        """The last calls as text."""
        with self.lock:
            return ["%5d %s" % entry for entry in list(self.history)[-last:]]

    # ---- the loop ----

    def _run(self):
        while not self.ending:
            with self.lock:
                wait = None
                if self.timers:
                    wait = max(0, self.timers[0][0] - time.monotonic())
            for key, events in self.selector.select(wait):
                with self.lock:
                    self._event(key, events)
            with self.lock:
                self._run_timers()
        for link in list(self.links):
            self._close(link)
        for sock in self.targets:
            sock.close()
        self.selector.close()

    def _event(self, key, events):
        if key.data is None:
            self.waker.recv(4096)
        elif key.data in self.targets:
            self._accept(key.data)
        else:
            side = key.data
            if side.link.closed:
                return
            if events & selectors.EVENT_WRITE:
                self._writable(side)
            if events & selectors.EVENT_READ and not side.link.closed:
                self._receive(side)

    def _run_timers(self):
        now = time.monotonic()
        while self.timers and self.timers[0][0] <= now:
            link, run = heapq.heappop(self.timers)[2:]
            if link is None or not link.closed:
                run()

    def _later(self, seconds, link, run):
        heapq.heappush(self.timers, (time.monotonic() + seconds, next(self.order), link, run))

    def _accept(self, listener):
        try:
            client = listener.accept()[0]
        except OSError:
            return
        server = socket.socket()
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex((HOST, self.targets[listener]))
        link = Link(client, server)
        link.client.is_open = True
        self.links.add(link)
        self.selector.register(client, selectors.EVENT_READ, link.client)
        self.selector.register(server, selectors.EVENT_READ | selectors.EVENT_WRITE, link.server)

    def _close(self, link, reset=False):
        if link.closed:
            return
        link.closed = True
        self.links.discard(link)
        for side in (link.client, link.server):
            with contextlib.suppress(KeyError):
                self.selector.unregister(side.socket)
            if reset:
                side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.socket.close()

    def _send(self, side, data):
        link = side.link
        if link.closed:
            return
        data = wire.framed(data)
        if side is link.client and link.waiting is not None:
            link.waiting += data
            return
        side.output += data
        self._flush(side)

    def _flush(self, side):
        """Sends what it can. Of a side that is not connected yet: when it is."""
        if side.link.closed or not side.is_open:
            return
        try:
            while side.output:
                sent = side.socket.send(side.output[:PIECE])
                del side.output[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._close(side.link)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if side.output else 0)
        if self.selector.get_key(side.socket).events != wanted:
            self.selector.modify(side.socket, wanted, side)

    def _writable(self, side):
        if not side.is_open:
            if side.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                self._close(side.link, reset=True)
                return
            side.is_open = True
        self._flush(side)

    def _receive(self, side):
        try:
            data = side.socket.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        link = side.link
        if data:
            side.input += data
            self._take_records(side)
        elif side is link.client and link.paused:
            self.selector.unregister(side.socket)  # the call that is held is on its way already
            side.is_open = False
        else:
            self._close(link)

    def _take_records(self, side):
        link = side.link
        take = self._call if side is link.client else self._reply
        records = wire.take_records(side.input)
        while not link.closed and not (side is link.client and link.paused):
            record = next(records, None)
            if record is None:
                return
            take(link, record)

    # ---- calls ----

    def _call(self, link, data):
        try:
            call = wire.Call(data)
        except wire.Malformed as e:
            self.problems.append("a call that can't be read: %s" % e)
            self._send(link.server, data)
            return
        if call.program == wire.NFS and call.version not in self.versions:
            self._send(link.client, call.refuse_version(min(self.versions), max(self.versions)))
            return
        rules = self._count(call)
        if self.on_call is not None:
            self._hook(self.on_call, call)
        wait = self.stalled_until - time.monotonic()
        if wait > 0:
            self._later(wait, link, lambda: self._decide(link, call, rules))
        else:
            self._decide(link, call, rules)

    def _count(self, call):
        """Number the call. Return the rules that are for it."""
        if call.name not in ("NULL", "?"):
            self.calls += 1
            self.changes += call.is_mutating
            self.counts[call.name] += 1
            call.number = self.calls
            self.history.append((call.number, str(call)))
        return [rule for rule in self.rules if rule.takes(call)]

    def _hook(self, hook, call):
        try:
            hook(call)
        except Exception as e:  # pylint: disable=broad-except
            self.problems.append("a hook failed at %s: %r" % (call, e))

    def _note(self, call, rule):
        rule.hits += 1
        self.history.append((call.number, "   ^ %s" % rule))

    def _decide(self, link, call, rules):
        """What is done with a call, before the server sees it."""
        for rule in rules:
            what = rule.what
            if what == "hook":
                self._note(call, rule)
                self._hook(rule.value, call)
            elif what == "drop-call":
                self._note(call, rule)
                return
            elif what == "cut-before":
                self._note(call, rule)
                self._close(link, reset=True)
                return
            elif what == "hold":
                self._note(call, rule)
                link.paused = True
                rest = rules[rules.index(rule) + 1:]
                self._later(HOLD, link, lambda rest=rest: self._go_on(link, call, rest))
                rule.value()
                return
            elif what in ("delay-call", "stall"):
                self._note(call, rule)
                if what == "stall":
                    self.stalled_until = time.monotonic() + rule.value
                rest = rules[rules.index(rule) + 1:]
                self._later(rule.value, link, lambda rest=rest: self._decide(link, call, rest))
                return
            elif self._answer(link, call, rule):
                return
            else:
                self._change(call, rule)
        call.action = next((rule for rule in rules if rule.what in AFTER), None)
        link.pending[call.xid] = call
        self._send(link.server, call.data)

    def _go_on(self, link, call, rules):
        """Let go of a call that was held, and of those behind it."""
        link.paused = False
        self._decide(link, call, rules)
        self._take_records(link.client)

    def _answer(self, link, call, rule):
        """Answers in place of the server, where the rule says so."""
        reply = None
        if rule.what.startswith("status "):
            name = rule.what.split()[1]
            if name == "NOT_SAME" and call.version == 3:
                name = "NOT_SYNC"
            if name in ("BAD_COOKIE", "NOT_SAME", "NOT_SYNC") and \
                    (not call.name.startswith("READDIR") or call.cookie() == 0):
                return False
            if name in ("EXPIRED", "GRACE") and call.version == 3:
                name = "JUKEBOX"
            if call.name not in wire.POSSIBLE.get(name, (call.name,)):
                return False
            reply = call.fail(wire.STATUS[name])
        elif rule.what == "lose-write" and call.name == "WRITE":
            reply = call.forge_write(struct.pack(">II", 0xadadadad, rule.seen))
        elif rule.what == "hollow":
            reply = call.hollow()
        if reply is None:
            return False
        self._note(call, rule)
        if not call.has_session:
            self._send(link.client, reply)
            return True
        call.forged = reply
        link.pending[call.xid] = call
        self._send(link.server, call.only_sequence())
        return True

    def _change(self, call, rule):
        if rule.what == "short-page" and call.name.startswith("READDIR"):
            call.shorten_page(rule.value)
            rule.hits += 1
        elif rule.what == "short-read" and call.name == "READ":
            call.shorten_read(rule.value)
            rule.hits += 1

    # ---- replies ----

    def _reply(self, link, data):
        call = link.pending.pop(struct.unpack_from(">I", data)[0], None)
        self.longest = max(self.longest, len(data))
        wait = self.stalled_until - time.monotonic()
        if wait > 0:
            self._later(wait, link, lambda: self._return(link, call, data))
        else:
            self._return(link, call, data)

    def _return(self, link, call, data):
        if call is None:
            self._send(link.client, data)
            return
        if call.forged is not None:
            data = call.with_sequence(call.forged, data)
        status = wire.reply_status(call, data)
        if status and call.number:
            name = wire.STATUS_NAMES.get(status, status)
            self.history.append((call.number, "   %s: %s" % (call.name, name)))
        rule = call.action
        if rule is None:
            self._send(link.client, data)
            return
        self._note(call, rule)
        if rule.what == "drop-reply":
            return
        if rule.what == "cut-after":
            self._close(link, reset=True)
        elif rule.what == "delay-reply":
            self._later(rule.value, link, lambda: self._send(link.client, data))
        elif rule.what == "double":
            self._send(link.client, data)
            self._send(link.client, data)
        elif rule.what == "trickle" and link.waiting is None:
            link.waiting = bytearray()
            self._trickle(link, wire.framed(data), rule.value)
        elif rule.what == "half" and link.waiting is None:
            link.waiting = bytearray()
            whole = wire.framed(data)
            link.client.output += whole[:len(whole) // 2]
            self._flush(link.client)
        elif rule.what == "small-transfers":
            self._send(link.client, wire.limit_fsinfo(data, rule.value))
        elif rule.what == "few-operations":
            self._send(link.client, wire.limit_session(data, "operations", rule.value))
        elif rule.what == "small-replies":
            self._send(link.client, wire.limit_session(data, "reply", rule.value))
        elif rule.what == "hollow-after" and status == 0:
            self._send(link.client, call.with_sequence(call.hollow(), data)
                       if call.has_session else call.hollow())
        elif rule.what == "hook-after":
            self._hook(rule.value, call)
            self._close(link)
        else:
            self._send(link.client, data)

    def _trickle(self, link, data, pause):
        """Send it byte by byte. Answers behind it wait, and then go at once."""
        link.client.output += data[:1]
        if len(data) == 1:
            link.client.output += link.waiting
            link.waiting = None
        self._flush(link.client)
        if len(data) > 1:
            self._later(pause, link, lambda: self._trickle(link, data[1:], pause))
