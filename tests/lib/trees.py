# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Trees of files with everything in them that a copy can lose, and what two of them differ in.

    trees.make(path)                           # as root, on a file system with nanoseconds
    wanted = trees.survey(path)
    trees.differences(wanted, trees.survey(copy))     # lines of text; none: they are the same
    trees.differences(wanted, trees.read_archive("x.tar.gz"), sockets=False)

As a program: trees.py make DIR; trees.py compare DIR DIR-OR-ARCHIVE, which ends with 1 where they
differ. Names are bytes throughout, relative to the tree; b"." is the tree itself.
"""
import collections
import decimal
import os
import random
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile

SECOND = 10 ** 9
ZEROS = bytes(1 << 20)
SPARSE = b"sparse/islands"  # 64 MiB with three small islands of data
SPARSE_SIZE = 64 << 20
SPARSE_MAX = 2 << 20  # what it may take on the disk
OWNERS = (0, 1, 2, 33, 99, 100, 999, 1000, 1001, 4321, 65533, 65534, 65535, 65536, 100000, 262143,
          2097151, 2097152, 16777216, 2147483647, 2147483648, 4294967293)
NAMES = (
    b"two\nlines", b"\n", b"\r\n", b"tab\there", b"\x01\x1f\x7f", b" leading", b"trailing ", b" ",
    b"*", b"?", b"[a]", b"-rf", b"--", b"...", b"..x", b".hidden", b"~", b"#", b"a#b#c##d", b"%2F",
    b"%", b"a;b=c", b"27 path=elsewhere\n", b"=", b"\\", b"a\\b", b"\"'`$(x)", b"c:", b"CON",
    b"\xff", b"\xfe\xff not UTF-8", b"\xc3", b"caf\xe9", b"\xed\xa0\x80",
    "caf\u00e9".encode(), "cafe\u0301".encode(), "\u202e\U0001f600".encode(),
    b"n" * 255, ("\u00e9" * 127 + "x").encode(), b"\xff" * 255, b"m" * 100, b"m" * 101, b"m" * 99,
    b"lost+found", b".nfs0000000000000001", b".snapshot", b"PaxHeaders.0", b"x.tar.gz")

# kind: the letter of ls -l; data: the content, the target of a link, or the numbers of a device;
# links: all names in the tree; blocks: the space on disk, None in an archive.
Entry = collections.namedtuple("Entry", "kind mode uid gid size mtime data links nlink blocks")
KINDS = {stat.S_IFREG: "-", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p",
         stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFSOCK: "s"}


def write(path, data=b"data\n", mode=None):
    """Write a file. The folder must exist."""
    with open(path, "wb") as f:
        f.write(data)
    if mode is not None:
        os.chmod(path, mode)


def make_small(path, files, folders):
    """Write so many files of 4 KiB that no compression helps with, spread over these folders."""
    for i in range(files):
        folder = os.path.join(path, "d%d" % (i % folders))
        os.makedirs(folder, exist_ok=True)
        write(os.path.join(folder, "f%d" % i), os.urandom(4096))


def walk(root):
    """Yield every name below root, a folder before its entries, as deep as a path can be."""
    waiting = [b""]
    while waiting:
        here = waiting.pop()
        with os.scandir(os.path.join(root, here)) as found:
            entries = sorted(found, key=lambda e: e.name)
        for entry in entries:
            name = os.path.join(here, entry.name)
            yield name
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)


class Maker:
    """Makes the parts of a tree, each in its own folder."""

    def __init__(self, root, seed):
        self.root = os.fsencode(root)
        self.random = random.Random(seed)

    def folder(self, name, mode=0o755):
        path = os.path.join(self.root, name)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        return path

    def names(self):
        for i, name in enumerate(NAMES):
            write(os.path.join(self.folder(b"names"), name), b"%d" % i)
            write(os.path.join(self.folder(os.path.join(b"names of folders", name)), b"in"), b"in")
        # Named like the driver's folder, but a user's here.
        os.symlink("v=1;name=x;dir=y", os.path.join(self.folder(b".csi-nfs/volumes"), b"x"))
        write(os.path.join(self.folder(b".csi-nfs/trash/x"), b"file"))

    def files(self, megabytes):
        here = self.folder(b"files")
        write(os.path.join(here, b"empty"), b"")
        for size in (1, 511, 512, 513, 4095, 4096, 4097, 65536, 131073):
            write(os.path.join(here, b"%d" % size), self.random.randbytes(size))
        with open(os.path.join(here, b"random"), "wb") as f:
            for _ in range(megabytes):
                f.write(self.random.randbytes(1 << 20))
        write(os.path.join(here, b"zeros that are written"), bytes(300000))

    def sparse(self):
        self.folder(b"sparse")
        with open(os.path.join(self.root, SPARSE), "wb") as f:
            for at, size in ((0, 5000), (20 << 20, 70000), ((50 << 20) + 123, 1)):
                f.seek(at)
                f.write(self.random.randbytes(size))
            f.truncate(SPARSE_SIZE)
        for name, size in ((b"one hole", 3 << 20), (b"odd hole", 1234567)):
            with open(os.path.join(self.root, b"sparse", name), "wb") as f:
                f.truncate(size)
        with open(os.path.join(self.root, b"sparse", b"ends with data"), "wb") as f:
            f.seek(3 << 20)
            f.write(b"the end")

    def links(self):
        here = self.folder(b"links")
        write(os.path.join(here, b"file"))
        for name, target in (
                (b"dangling", b"nowhere/at/all"), (b"absolute", b"/etc/passwd"), (b"slash", b"/"),
                (b"up", b"../../../outside"), (b"itself", b"itself"), (b"file-link", b"file"),
                (b"folder", b"../files"), (b"dot", b"."), (b"long", b"t/" * 500 + b"t"),
                (b"bytes", b"\xff\xfe\n\x01"), (b"trailing", b"../files/"), (b"100", b"x" * 100),
                (b"101", b"x" * 101), (b"n" * 255, b"n" * 255)):
            os.symlink(target, os.path.join(here, name))

    def hard_links(self):
        here = self.folder(b"hard")
        for name in (b"a", b"b"):
            self.folder(b"hard/" + name)
        for size, names in ((10, (b"one", b"two")), (100000, (b"a/x", b"b/x", b"z", b"a/\xff")),
                            (0, (b"empty", b"b/empty"))):
            first = os.path.join(here, names[0])
            write(first, self.random.randbytes(size))
            for name in names[1:]:
                os.link(first, os.path.join(here, name))
        os.link(os.path.join(here, b"one"), os.path.join(self.root, b"at the top"))
        for i in range(30):
            os.link(os.path.join(here, b"z"), os.path.join(here, b"b", b"%d" % i))

    def special(self, sockets):
        here = self.folder(b"special")
        os.mkfifo(os.path.join(here, b"fifo"))
        for name, kind, major, minor in (
                (b"null", stat.S_IFCHR, 1, 3), (b"loop", stat.S_IFBLK, 7, 9),
                (b"large", stat.S_IFBLK, 259, 70000), (b"zero", stat.S_IFCHR, 0, 0)):
            os.mknod(os.path.join(here, name), kind | 0o640, os.makedev(major, minor))
        if sockets:
            self.socket(os.path.join(here, b"socket"))

    @staticmethod
    def socket(path):
        """Bind by a short name: a socket address has no room for a long one."""
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(b"/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
        finally:
            os.close(folder)

    def owners(self):
        here = self.folder(b"owners")
        for i, uid in enumerate(OWNERS):
            gid = OWNERS[-1 - i]
            for j, path in enumerate((b"f%d" % i, b"d%d" % i, b"d%d/in" % i, b"l%d" % i)):
                path = os.path.join(here, path)
                if j == 1:
                    os.mkdir(path)
                elif j == 3:
                    os.symlink(b"f%d" % i, path)
                else:
                    write(path)
                os.lchown(path, uid, gid)

    def modes(self):
        here = self.folder(b"modes")
        for mode in (0, 0o1, 0o22, 0o222, 0o400, 0o444, 0o600, 0o666, 0o777, 0o1644, 0o2755, 0o2644,
                     0o4755, 0o4711, 0o6755, 0o7777):
            path = os.path.join(here, b"file %04o" % mode)
            write(path)
            os.chown(path, 1000 + mode, 2000)
            os.chmod(path, mode)
        for mode in (0, 0o111, 0o500, 0o555, 0o700, 0o777, 0o1777, 0o2775, 0o2770, 0o3777, 0o7711):
            path = os.path.join(here, b"folder %04o" % mode)
            os.mkdir(path)
            write(os.path.join(path, b"file"), mode=0o640)
            os.mkdir(os.path.join(path, b"folder"))
            os.chmod(os.path.join(path, b"folder"), 0o755)
            os.chown(path, 1500, 2500)  # what a setgid bit would hand down is not in it
            os.chmod(path, mode)
        os.mkdir(os.path.join(here, b"empty of mode 0"))
        os.chmod(os.path.join(here, b"empty of mode 0"), 0)
        self.folder(b"empty")

    def deep(self, depth):
        path = self.folder(b"deep")
        for _ in range(depth):
            path = os.path.join(path, b"d")
            os.mkdir(path)
        write(os.path.join(path, b"f"), b"the bottom")

    def many(self, count):
        here = self.folder(b"many")
        for i in range(count):
            write(os.path.join(here, b"file-%05d" % i), b"%d\n" % i * (i % 50))

    def times(self):
        """Give everything a different time, folders last: a change in one sets its time."""
        names = [b"."] + list(walk(self.root))
        for i, name in enumerate(reversed(names)):
            when = 1500000000 * SECOND + i * 20011 * SECOND + i * 1000003 % SECOND
            os.utime(os.path.join(self.root, name), ns=(when, when), follow_symlinks=False)
        for name, when in ((b"files/1", 1), (b"files/511", SECOND - 1), (b"files/512", SECOND),
                           (b"files/513", 2500000000 * SECOND + 123456789),
                           (b"files/4095", 1600000000 * SECOND),
                           (b"files/4096", 1600000000 * SECOND + 999999999),
                           (b"files/4097", 1600000000 * SECOND + 100000000)):
            path = os.path.join(self.root, name)
            if os.path.lexists(path):
                os.utime(path, ns=(when, when))


def make(root, depth=1000, many=3000, megabytes=4, sockets=True, seed=1):
    """Make a tree with everything that survey() can tell apart. root may exist."""
    maker = Maker(root, seed)
    maker.folder(b"")
    maker.names()
    maker.files(megabytes)
    maker.sparse()
    maker.links()
    maker.hard_links()
    maker.special(sockets)
    maker.owners()
    maker.modes()
    maker.deep(depth)
    maker.many(many)
    os.chown(root, 1234, 2345)
    os.chmod(root, 0o2750)
    maker.times()


def make_plain(root, count=300, size=2000, seed=2):
    """Make files in folders of a hundred, for tests where only their number matters."""
    maker = Maker(root, seed)
    for i in range(count):
        here = maker.folder(b"folder-%03d" % (i // 100))
        write(os.path.join(here, b"file-%05d" % i), maker.random.randbytes(size))
    maker.times()


# ---- what is there ----

def _digest(f):
    """Return the digest of a file's content. Holes read as zeros. It is valid in this process only:
    hash() is several times as fast as hashlib."""
    pieces, offset = [], 0
    while True:
        data = f.read(len(ZEROS))
        if not data:
            return "%x" % (hash(tuple(pieces)) & (1 << 64) - 1)
        if data != ZEROS[:len(data)]:
            pieces.append((offset, hash(data)))
        offset += len(data)


def _device(number):
    return "%d:%d" % (os.major(number), os.minor(number))


def _with_links(entries, groups):
    """Group the names of each file."""
    for names in groups.values():
        names = tuple(sorted(names))
        for name in names:
            entries[name] = entries[name]._replace(links=names)
    return entries


def survey(root):
    """Return every Entry of a tree, by name. Leave out what is removed meanwhile."""
    root = os.fsencode(root)
    entries, groups = {}, collections.defaultdict(list)
    for name in [b"."] + list(walk(root)):
        path = os.path.join(root, name)
        try:
            status = os.lstat(path)
            kind = KINDS[stat.S_IFMT(status.st_mode)]
            size, data = 0, ""
            if kind == "-":
                with open(path, "rb") as f:
                    size, data = status.st_size, _digest(f)
                groups[status.st_ino].append(name)
            elif kind == "l":
                data = os.readlink(path)
            elif kind in "bc":
                data = _device(status.st_rdev)
        except FileNotFoundError:
            continue
        entries[name] = Entry(kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid,
                              size, status.st_mtime_ns, data, (name,), status.st_nlink,
                              status.st_blocks * 512)
    return _with_links(entries, groups)


def unpacked(path):
    """Open an archive for reading, decompressed. The caller closes it."""
    if not path.endswith(".zst"):
        return open(path, "rb")
    plain = tempfile.TemporaryFile()
    subprocess.run(["zstd", "-dc", path], stdin=subprocess.DEVNULL, stdout=plain, check=True)
    plain.seek(0)
    return plain


def opened(f):
    """Open the tar archive in f, with any compression."""
    tar = tarfile.open(fileobj=f, mode="r:*", encoding="utf-8", errors="surrogateescape")
    tar.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
    return tar


def clean_name(name):
    """Return a member's name as survey() has it, without a leading ./ or a trailing slash."""
    if isinstance(name, str):
        name = os.fsencode(name)
    while name.startswith(b"./"):
        name = name[2:].lstrip(b"/")
    return name.rstrip(b"/") or b"."


def _mtime(member):
    text = member.pax_headers.get("mtime", str(int(member.mtime)))
    return int(decimal.Decimal(text) * SECOND)


def _data(tar, member, kind):
    """Return a member's size and data."""
    if kind == "-":
        with tar.extractfile(member) as f:
            return member.size, _digest(f)
    if kind == "l":
        return 0, os.fsencode(member.linkname)
    if kind in "bc":
        return 0, "%d:%d" % (member.devmajor, member.devminor)
    return 0, ""


def read_archive(path):
    """Return every Entry of a tar archive, by name, as survey() finds it once unpacked."""
    kinds = {tarfile.DIRTYPE: "d", tarfile.SYMTYPE: "l", tarfile.FIFOTYPE: "p",
             tarfile.CHRTYPE: "c", tarfile.BLKTYPE: "b"}
    entries, groups, firsts = {}, collections.defaultdict(set), {}
    with unpacked(path) as f, opened(f) as tar:
        for member in tar:
            name = clean_name(member.name)
            if member.islnk():
                first = firsts[clean_name(member.linkname)]  # it came before
                entries[name] = entries[first]
            else:
                first = name
                kind = kinds.get(member.type, "-")
                size, data = _data(tar, member, kind)
                entries[name] = Entry(kind, member.mode & 0o7777, member.uid, member.gid, size,
                                      _mtime(member), data, (name,), None, None)
            # A file that changed while it was read comes again, and the last one counts.
            if firsts.get(name) in groups:
                groups[firsts[name]].discard(name)
            firsts[name] = first
            if entries[name].kind == "-":
                groups[first].add(name)
    return _with_links(entries, groups)


# ---- what they differ in ----

def _facts(entry):
    """Return the compared fields of an Entry: times only of files and folders."""
    facts = {"kind": entry.kind, "owner": (entry.uid, entry.gid), "data": entry.data}
    if entry.kind != "l":
        facts["mode"] = "%04o" % entry.mode
    if entry.kind in "-d":
        facts["time"] = entry.mtime
    if entry.kind == "-":
        facts["size"] = entry.size
        facts["links"] = entry.links
    return facts


def _is_same(fact, was, now, precision):
    if fact == "time" and was is not None and now is not None:
        return abs(was - now) <= precision
    return was == now


def _short(name):
    """Shorten a name for a message."""
    return repr(name) if len(name) < 80 else "%r...%r" % (name[:36], name[-36:])


def differences(wanted, got, sockets=True, root=False, precision=0):
    """Return how got differs, as lines of text. sockets=False: got has none; root: compare the two
    folders, too; precision: nanoseconds by which times may differ."""
    found = []

    def tell(name, text, *values):
        found.append("%s: %s" % (_short(name), text % values))

    for name in sorted(set(wanted) | set(got)):
        if name == b"." and not root:
            continue
        if not sockets and name in wanted and wanted[name].kind == "s":
            if name in got:
                tell(name, "is a socket, and there should be none")
            continue
        if name not in got or name not in wanted:
            tell(name, "is missing" if name in wanted else "should not be there")
            continue
        was, now = _facts(wanted[name]), _facts(got[name])
        for fact in sorted(set(was) | set(now)):
            if not _is_same(fact, was.get(fact), now.get(fact), precision):
                tell(name, "%s is %r and should be %r", fact, now.get(fact), was.get(fact))
        now = got[name]
        if now.kind != "-" or now.blocks is None:
            continue
        if now.nlink != len(now.links):
            tell(name, "has %d links, of which %d are in the tree", now.nlink, len(now.links))
        blocks = wanted[name].blocks
        if blocks is not None and now.blocks > blocks + SPARSE_MAX - (1 << 19):
            tell(name, "takes %d bytes on the disk, and %d before", now.blocks, blocks)
    return found


def told(lines, limit=25):
    """Return the differences as text for a message."""
    more = ["and %d more" % (len(lines) - limit)] if len(lines) > limit else []
    return "\n".join(["%d differences:" % len(lines)] + lines[:limit] + more)


def main(words):
    if len(words) == 2 and words[0] == "make":
        make(words[1])
    elif len(words) == 3 and words[0] == "compare":
        archive = not os.path.isdir(words[2])
        got = read_archive(words[2]) if archive else survey(words[2])
        found = differences(survey(words[1]), got, sockets=not archive, root=True)
        if found:
            sys.exit(told(found))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
