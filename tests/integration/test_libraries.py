# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What the driver keeps in memory at rest, and the libraries that it loads when it needs them: not
before, and with a message where one is missing.

Runs inside a lab, with CSI_NFS naming the driver. A build with --disable-dlopen has nothing of it.
"""
import concurrent.futures
import contextlib
import ctypes
import json
import os
import re
import stat
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

# pylint: disable=wrong-import-position
import harness
import servers
import trees
from cases import CODE, LAB, SERVER, Base, OnServer
from driver import Driver, binary
from memory import libraries, private_kb, resident_kb
from servers import Export

IDLE_RESIDENT = 4000  # kB
IDLE_PRIVATE = 500
IDLE_LIBRARIES = 13
USED_RESIDENT = 9000  # after many volumes were created and deleted
USED_VOLUMES = 10000 if harness.LONG else 2000
CALLERS = 16


def notes():
    """The program's dlopen metadata: what it tells tools of packagers that it loads."""
    found = []
    with open(binary(), "rb") as f:
        for text in re.findall(rb'FDO\0(\[\{"feature".*?\}\])\0', f.read()):
            found += json.loads(text)
    return {note["feature"]: note for note in found}


def soname(feature):
    return notes()[feature]["soname"][0]


def is_mapped(driver, feature):
    stem = soname(feature).split(".so")[0]
    return any(name.startswith(stem + ".so") for name in libraries(driver.process.pid))


@contextlib.contextmanager
def hidden(feature):
    """The library cannot be loaded: an empty file is in its place, in the lab's own mounts."""
    name = soname(feature)
    ctypes.CDLL(name)
    with open("/proc/self/maps", encoding="utf-8") as f:
        stem = name.split(".so")[0] + ".so"
        path, = {line.split()[-1] for line in f if "/" + stem in line}
    empty = os.path.join(LAB, "empty")
    with open(empty, "wb"):
        pass
    servers.run("mount", "--bind", empty, path)
    try:
        yield
    finally:
        servers.run("umount", path)


def needs_dlopen():
    # Not by the notes: whether they are there is what test_notes checks.
    if "libarchive" in servers.run("ldd", binary()).stdout:
        raise unittest.SkipTest("built with --disable-dlopen")


class Loading(Base):
    """Cases for a build that loads its libraries."""

    def needs_normal_build(self):
        with open(binary(), "rb") as f:
            if re.search(rb"__(asan|tsan|ubsan)_", f.read()):
                self.skipTest("built with a sanitizer")


class AtRest(Loading):
    """After one Probe."""

    @classmethod
    def setUpClass(cls):
        needs_dlopen()

    def is_small(self, driver):
        self.needs_normal_build()
        pid = driver.process.pid
        found = libraries(pid)
        print("%s: %d kB, %d kB private, %d libraries" % (
            self.id(), resident_kb(pid), private_kb(pid), len(found)))
        self.assertLessEqual(resident_kb(pid), IDLE_RESIDENT)
        self.assertLessEqual(private_kb(pid), IDLE_PRIVATE)
        self.assertLessEqual(len(found), IDLE_LIBRARIES, found)
        for feature in notes():
            self.assertFalse(is_mapped(driver, feature), feature)

    def test_controller(self):
        with Driver(LAB, "--mode", "controller", name="controller") as driver:
            self.is_small(driver)
            self.assertNotIn("library", driver.tail())

    def test_node(self):
        with Driver(LAB, "--mode", "node", "--nodeid", "n", "--state-dir", LAB, name="n") as driver:
            self.is_small(driver)

    def test_notes(self):
        """The metadata names libraries that this system has."""
        self.assertEqual(sorted(notes()), ["archives", "reserved-ports"])
        for note in notes().values():
            self.assertEqual(sorted(note), ["description", "feature", "priority", "soname"])
            self.assertEqual(note["priority"], "recommended")
            ctypes.CDLL(note["soname"][0])


# Functions of a libnfs that the driver must not start with, and words of its message.
WRONG_LIBNFS = {
    "reads beyond the end": ("""
        int libnfs_zdr_u_int(struct zdr *z, uint32_t *n)
        {
            char *at = z->buf + z->pos;

            if (z->op == 0) {
                *(uint32_t *)at = htonl(*n);
            } else {
                *n = ntohl(*(uint32_t *)at);
            }
            z->pos += 4;
            return 1;
        }""", "integers"),
    "reads in the wrong byte order": ("""
        int libnfs_zdr_uint64_t(struct zdr *z, uint64_t *n)
        {
            if (z->pos + 8 > z->size)
                return 0;
            memcpy(z->op == 0 ? (char *)z->buf + z->pos : (char *)n,
                   z->op == 0 ? (char *)n : (char *)z->buf + z->pos, 8);
            z->pos += 8;
            return 1;
        }""", "integers"),
    "returns the same memory": ("""
        void *zdr_malloc(void *z, uint32_t size)
        {
            static char memory[4096];
            return size < sizeof(memory) ? memory : 0;
        }""", "allocations"),
    "encodes nothing": ("""
        uint32_t zdr_LOOKUP3args(void *z, void *args)
        {
            return 1;
        }""", "zdr_LOOKUP3args"),
    "writes beyond the end": ("""
        uint32_t zdr_WRITE3args(struct zdr *z, void *args)
        {
            static int (*real)(void *, void *);
            int size = z->size, fits;

            if (!real)
                real = dlsym(RTLD_NEXT, "zdr_WRITE3args");
            z->size += 128;
            fits = real(z, args);
            z->size = size;
            return fits;
        }""", "zdr_WRITE3args"),
    "crashes": ("""
        uint32_t zdr_SETATTR3args(void *z, void *args)
        {
            return *(volatile uint32_t *)8;
        }""", "signal 11"),
    "has other arguments": ("""
        uint32_t zdr_nfs_argop4(void *z, void *args)
        {
            static int (*real)(void *, void *);

            if (!real)
                real = dlsym(RTLD_NEXT, "zdr_nfs_argop4");
            return real(z, (char *)args + 8);
        }""", "zdr_nfs_argop4"),
}
WRONG_LIBNFS_HEAD = """
    #define _GNU_SOURCE
    #include <arpa/inet.h>
    #include <dlfcn.h>
    #include <string.h>
    struct zdr { int op; char *buf; int size, pos; };
"""


class WrongLibnfs(Loading):
    """A libnfs that the decoders cannot stand on is refused at the start."""

    def commands(self):
        for mode in ("controller", "node", "all"):
            yield mode, [binary(), "--mode", mode, "--nodeid", "n", "--state-dir", LAB, "--endpoint",
                         "unix://" + os.path.join(LAB, "wrong.sock")]
        yield "check", [binary(), "check", "--server", "127.0.0.1", "--share", "/none"]

    def refuses(self, name, source, *words):
        with open(os.path.join(LAB, "wrong.c"), "w", encoding="ascii") as f:
            f.write(WRONG_LIBNFS_HEAD + source)
        library = os.path.join(LAB, "wrong.so")
        servers.run("cc", "-w", "-shared", "-fPIC", "-o", library, os.path.join(LAB, "wrong.c"))
        for what, command in self.commands():
            with self.subTest(libnfs=name, command=what):
                got = subprocess.run(command, env={**os.environ, "LD_PRELOAD": library},
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, timeout=60, check=False)
                self.assertEqual(got.returncode, 1, got)
                self.assertEqual(got.stderr.count("\n"), 1, got)
                for word in ("csi-nfs: the libnfs of this system cannot be used: ", *words):
                    self.assertIn(word, got.stderr)
                self.assertNotIn("Serving", got.stdout)

    def test_refused(self):
        self.needs_normal_build()
        if "libnfs" not in servers.run("ldd", binary()).stdout:
            self.skipTest("built with a static libnfs")
        for name, (source, *words) in WRONG_LIBNFS.items():
            self.refuses(name, source, *words)


class Use(OnServer, Loading):
    """A controller with a server."""

    version = "4"
    options = ("--mode", "controller")

    @classmethod
    def more_exports(cls):
        cls.secure = os.path.join(cls.place, "secure")
        return [Export(cls.secure, privileged=True)]

    @classmethod
    def setUpClass(cls):
        needs_dlopen()
        super().setUpClass()

    def snap(self, source, name, **parameters):
        return self.client.CreateSnapshot(source_volume_id=source, name=name, secrets=self.secrets,
                                          parameters=parameters).snapshot.snapshot_id

    def unsnap(self, snapshot):
        self.client.DeleteSnapshot(snapshot_id=snapshot, secrets=self.secrets)

    def restore(self, name, snapshot):
        fields = self.request(name)
        fields["volume_content_source"] = {"snapshot": {"snapshot_id": snapshot}}
        return self.client.CreateVolume(**fields).volume.volume_id

    def fill(self, name):
        """A volume with files. Returns its id."""
        volume = self.create(name).volume_id
        trees.make_plain(self.path(name), count=20)
        self.server_looks_again()
        return volume

    def setUp(self):
        self.forget_failed_case(self.share, self.secure)

    def left(self):
        """What is there beside volumes and their records."""
        return [name for name in self.records(self.share) if "/volumes/" not in name]

    @contextlib.contextmanager
    def fresh(self, *hide):
        """Start a new driver, without these libraries."""
        with contextlib.ExitStack() as stack:
            for feature in hide:
                stack.enter_context(hidden(feature))
            self.restart(*self.options)
            yield

    def test_loaded_when_needed(self):
        self.restart(*self.options)
        self.assertFalse(is_mapped(self.driver, "reserved-ports"))
        volume = self.fill("volume")
        self.assertTrue(is_mapped(self.driver, "reserved-ports"))
        snapshot = self.snap(volume, "tree", format="tree")
        self.unsnap(snapshot)
        self.assertFalse(is_mapped(self.driver, "archives"))
        snapshot = self.snap(volume, "archive")
        self.assertTrue(is_mapped(self.driver, "archives"))
        restored = self.restore("restored", snapshot)
        self.assertEqual(trees.survey(self.path("restored")), trees.survey(self.path("volume")))
        self.unsnap(snapshot)
        for name in (volume, restored):
            self.delete(name)

    def test_restore_loads(self):
        volume = self.fill("volume")
        snapshot = self.snap(volume, "archive")
        self.restart(*self.options)
        restored = self.restore("restored", snapshot)
        self.assertTrue(is_mapped(self.driver, "archives"))
        self.unsnap(snapshot)
        for name in (volume, restored):
            self.delete(name)

    def test_small_after_use(self):
        self.needs_normal_build()
        self.restart(*self.options)
        with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
            made = list(pool.map(lambda i: self.create("v-%d" % i).volume_id, range(USED_VOLUMES)))
            list(pool.map(self.delete, made))
        pid = self.driver.process.pid
        print("after %d volumes: %d kB, %d kB private" % (
            USED_VOLUMES, resident_kb(pid), private_kb(pid)))
        self.assertLessEqual(resident_kb(pid), USED_RESIDENT)

    def test_unprivileged_needs_no_ports(self):
        """The kernel says no before libtirpc is loaded."""
        wrapper = os.path.join(LAB, "unprivileged")
        with open(wrapper, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\nexec setpriv --bounding-set=-net_bind_service "
                    "--inh-caps=-net_bind_service %s \"$@\"\n" % binary())
        os.chmod(wrapper, stat.S_IRWXU)
        usual = os.environ["CSI_NFS"]
        try:
            os.environ["CSI_NFS"] = wrapper
            self.restart(*self.options)
        finally:
            os.environ["CSI_NFS"] = usual
        volume = self.create("volume").volume_id
        self.assertFalse(is_mapped(self.driver, "reserved-ports"))
        message = self.fails((CODE.PERMISSION_DENIED, CODE.NOT_FOUND), self.create, name="secure",
                             share=self.secure)
        self.assertNotIn("tirpc", message)
        self.delete(volume)
        self.restart(*self.options)

    # ---- one is missing ----

    def test_no_archives(self):
        """FAILED_PRECONDITION and nothing left; the rest works; no restart after installing it."""
        volume = self.fill("volume")
        snapshot = self.snap(volume, "before")
        with self.fresh("archives"):
            self.assertIn("A library is missing", self.driver.tail())
            self.assertIn(soname("archives"), self.driver.tail())
            before = self.left()
            words = soname("archives"), "install", "debian", "fedora", "format: tree"
            for _ in range(2):
                self.fails(CODE.FAILED_PRECONDITION, self.snap, *words, source=volume, name="after")
                self.assertEqual(self.left(), before)
                self.fails(CODE.FAILED_PRECONDITION, self.restore, *words, name="restored",
                           snapshot=snapshot)
                self.assertEqual(self.left(), before)
                self.assertEqual(self.listed(), ["before", "volume"])
            self.assertEqual(self.snap(volume, "before"), snapshot)  # it is there
            self.unsnap(self.snap(volume, "tree", format="tree"))
        after = self.snap(volume, "after")
        restored = self.restore("restored", after)
        self.assertEqual(trees.survey(self.path("restored")), trees.survey(self.path("volume")))
        for name in (snapshot, after):
            self.unsnap(name)
        for name in (volume, restored):
            self.delete(name)

    def test_no_reserved_ports(self):
        """Other ports are used, and a server that minds makes the message name the library."""
        size = os.path.getsize(self.driver.log)
        with self.fresh("reserved-ports"):
            self.assertRegex(self.driver.logged_since(size),
                             "A library is missing.*" + re.escape(soname("reserved-ports")))
            volume = self.create("volume").volume_id
            self.fails((CODE.PERMISSION_DENIED, CODE.NOT_FOUND), self.create,
                       soname("reserved-ports"), "install", "insecure", name="secure",
                       share=self.secure)
            self.assertTrue(self.driver.is_running())
        secure = self.create("secure", share=self.secure).volume_id
        for name in (volume, secure):
            self.delete(name)

    def check(self):
        got = subprocess.run(
            [binary(), "check", "--server", SERVER, "--share", self.share, "--mount-options",
             ",".join(self.server.flags("4")), "--format=json"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, timeout=30, check=False)
        return got.returncode, json.loads(got.stdout)["steps"][0]

    def test_check_tells(self):
        status, step = self.check()
        self.assertEqual((status, step["name"], step["status"]), (0, "libraries", "ok"))
        self.assertEqual(step["data"], {"archives": True, "reserved_ports": True})
        with hidden("archives"), hidden("reserved-ports"):
            status, step = self.check()
        self.assertEqual((status, step["status"]), (0, "warning"))
        self.assertEqual(step["data"], {"archives": False, "reserved_ports": False})
        for feature in notes():
            self.assertIn(soname(feature), step["text"])

    def tearDown(self):
        """Wait for the purge, too: left() of the next case would see what it has yet to remove."""
        for share in (self.share, self.secure):
            self.is_clean(share)


if __name__ == "__main__":
    harness.main("libraries")
