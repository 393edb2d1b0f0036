# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What is in the images: files, labels, sizes, bill of materials; a second build is equal."""
import hashlib
import json
import os
import re
import stat
import subprocess
import unittest

import images
from images import FOLDER, SOURCE, Image

# pylint: disable=wrong-import-order
import harness

SBOM = os.path.join(SOURCE, "deploy", "image-sbom")
OUR_FILES = {"etc/passwd", "etc/group", "etc/nsswitch.conf", "usr/sbin/csi-nfs",
             "usr/share/doc/csi-nfs/copyright", "var/lib/dpkg/status"}
# Nothing reads these, or each build writes them anew.
UNWANTED = re.compile(r"^(usr/share/(man|info|locale|lintian)/|var/(log|cache|lib/apt)/.|tmp/.|"
                      r"etc/(machine-id|ld\.so\.cache)$|usr/share/doc/[^/]+/(?!copyright$))|/gconv/|"
                      r"\.py[co]?$|\.a$|(^|/)python[0-9.]*$")
MEBI = 1024.0 * 1024.0
CONTROLLER_MIB = 12  # compressed
NODE_MIB = 30


def version():
    with open(os.path.join(SOURCE, "configure.ac"), encoding="utf-8") as file:
        return re.search(r"AC_INIT\(\[csi-nfs\], \[(.*?)\]\)", file.read())[1]


def compressed(data, *command):
    return len(subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout)


class Contents:
    """The same for both images."""

    target = None
    name = None
    user = None
    most_mib = None
    features = {"archives", "reserved-ports"}

    @classmethod
    def setUpClass(cls):
        cls.image = Image(cls.target).unpack()

    def test_config(self):
        config = self.image.config["config"]
        self.assertEqual(config["Entrypoint"], ["/usr/sbin/csi-nfs"])
        self.assertEqual(config["User"], self.user)
        self.assertIn("PATH=/usr/sbin:/usr/bin", config["Env"])
        self.assertIn("GLIBC_TUNABLES=glibc.malloc.tcache_count=0", config["Env"])
        labels = {key.rpartition(".")[2]: value for key, value in config["Labels"].items()
                  if key.startswith("org.opencontainers.image.")}
        self.assertEqual(labels["title"], self.name)
        self.assertEqual(labels["version"], version())
        self.assertEqual(labels["licenses"], "Apache-2.0")
        self.assertTrue(labels["description"])

    def test_no_special_modes(self):
        """No set-uid, set-gid or device files, and nothing that everybody may write but /tmp."""
        for where, folders, names in os.walk(self.image.root):
            for name in folders + names:
                path = os.path.join(where, name)
                mode = os.lstat(path).st_mode
                inside = os.path.relpath(path, self.image.root)
                with self.subTest(inside):
                    self.assertFalse(stat.S_ISBLK(mode) or stat.S_ISCHR(mode))
                    if stat.S_ISREG(mode):
                        self.assertFalse(mode & (stat.S_ISUID | stat.S_ISGID))
                    if mode & stat.S_IWOTH and not stat.S_ISLNK(mode):
                        self.assertIn(inside, ("tmp", "var/tmp"))

    def test_every_file_has_a_package(self):
        known = {}
        for files in self.image.packages().values():
            known.update(files)
        for path in self.image.files():
            if os.path.islink(self.image.path(path)) or path.startswith(images.STATUS + "/"):
                continue
            with self.subTest(path):
                self.assertFalse(UNWANTED.search(path))
                if path in OUR_FILES:
                    continue
                merged = path.replace("usr/", "", 1)
                self.assertTrue(path in known or merged in known, "no package has it")
                with open(self.image.path(path), "rb") as file:
                    self.assertEqual(hashlib.md5(file.read()).hexdigest(),
                                     known.get(path) or known[merged])

    def test_copyrights(self):
        for package in self.image.packages():
            with self.subTest(package):
                self.assertTrue(os.path.getsize(
                    self.image.path(f"usr/share/doc/{package}/copyright")))

    def test_sizes(self):
        layers = b"".join(self.image.layers())
        gzip = compressed(layers, "gzip", "-6") / MEBI
        print("%s: %.1f MiB, gzip %.1f MiB, zstd %.1f MiB, %d files" % (
            self.target, len(layers) / MEBI, gzip, compressed(layers, "zstd", "-q", "-3") / MEBI,
            len(list(self.image.files()))))
        self.assertLess(gzip, self.most_mib)
        sizes = {name: sum(os.lstat(self.image.path(path)).st_size for path in files)
                 for name, files in self.image.packages().items()}
        sizes["csi-nfs"] = os.path.getsize(self.image.path("/usr/sbin/csi-nfs"))
        for name in sorted(sizes, key=sizes.get, reverse=True)[:10]:
            print("  %-20s %6.2f MiB" % (name, sizes[name] / MEBI))
        self.assertGreater(len(sizes), 5)

    def test_loaded_libraries(self):
        """Those that the driver loads when it needs them, by the note that the program has."""
        with open(self.image.path("/usr/sbin/csi-nfs"), "rb") as file:
            notes = re.findall(rb'"feature":"([^"]+)".*?"soname":\["([^"]+)"\]', file.read())
        self.assertEqual(sorted(feature for feature, _ in notes), [b"archives", b"reserved-ports"])
        names = {os.path.basename(path) for path in self.image.files()}
        found = {feature.decode() for feature, name in notes if name.decode() in names}
        self.assertEqual(found, self.features)

    def test_libarchive(self):
        """It is deploy/image-libarchive's, and nothing of what Debian's brings is there."""
        found = {name for name in self.image.packages()
                 if re.match(r"lib(archive|icu|stdc|xml|expat|bz2|lzma|nettle|acl)", name)}
        self.assertEqual({name.removesuffix("t64") for name in found}, {"libarchive13"})
        package = found.pop()
        with open(self.image.path(f"{images.STATUS}/{package}"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"\nVersion: \d\S+\+csinfs\n")
        with open(self.image.path(f"/usr/share/doc/{package}/copyright"), encoding="utf-8") as file:
            self.assertIn("Upstream-Name: libarchive", file.read())

    def test_repeatable(self):
        again = Image(self.target + "-again")
        self.assertEqual(again.digest, self.image.digest)
        print("%s: %s, twice" % (self.name, self.image.digest))

    def make_list(self):
        archive = subprocess.run(["tar", "-cf", "-", "-C", self.image.root, "."], check=True,
                                 stdout=subprocess.PIPE).stdout
        return subprocess.run([SBOM, self.name, version()], input=archive, check=True,
                              stdout=subprocess.PIPE).stdout

    def test_bill_of_materials(self):
        made = self.make_list()
        self.assertEqual(made, self.make_list())
        with open(os.path.join(FOLDER, self.name + ".spdx.json"), "wb") as file:
            file.write(made)
        found = json.loads(made)
        Spdx(self, found).check()
        packages = {package["name"]: package for package in found["packages"]}
        for name in self.image.packages():
            with open(self.image.path(f"{images.STATUS}/{name}"), encoding="utf-8") as file:
                self.assertIn("\nVersion: %s\n" % packages[name]["versionInfo"], file.read())
            self.assertNotIn("NOASSERTION", packages[name]["licenseDeclared"], name)
        suppliers = {name: package["supplier"] for name, package in packages.items()}
        self.assertEqual(suppliers["libc6"], "Organization: Debian")
        for name in suppliers:
            if "libarchive" in name:
                self.assertEqual(suppliers[name], "Organization: the csi-nfs authors")
        self.assertEqual(packages["csi-nfs"]["licenseDeclared"], "Apache-2.0")
        print("%s: %d packages in the bill of materials; libc6 %s, libnfs13 %s" % (
            self.name, len(packages), packages["libc6"]["versionInfo"],
            packages["libnfs13"]["versionInfo"]))


class Spdx:
    """What the specification of SPDX 2.3 asks for, as far as our lists go."""

    REQUIRED = {"SPDXID", "name", "versionInfo", "supplier", "downloadLocation", "filesAnalyzed",
                "licenseConcluded", "licenseDeclared", "copyrightText"}
    OPTIONAL = {"originator", "sourceInfo", "externalRefs", "primaryPackagePurpose"}
    TOKEN = re.compile(r"\(|\)|AND\b|OR\b|LicenseRef-[A-Za-z0-9.-]+|[A-Z][A-Za-z0-9.-]+")

    def __init__(self, test, found):
        self.test = test
        self.found = found
        self.texts = {entry["licenseId"] for entry in found["hasExtractedLicensingInfos"]}

    def check(self):
        test, found = self.test, self.found
        test.assertEqual(set(found), {
            "spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo",
            "packages", "relationships", "hasExtractedLicensingInfos"})
        test.assertEqual((found["spdxVersion"], found["dataLicense"], found["SPDXID"]),
                         ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        test.assertRegex(found["documentNamespace"], r"^https://[^#\s]+$")
        test.assertRegex(found["creationInfo"]["created"],
                         r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        test.assertRegex(found["creationInfo"]["creators"][0], "^Tool: ")
        used = set()
        for package in found["packages"]:
            with test.subTest(package["name"]):
                used |= self.check_package(package)
        test.assertEqual(used & {name for name in used if name.startswith("LicenseRef-")},
                         self.texts)
        for entry in found["hasExtractedLicensingInfos"]:
            test.assertTrue(entry["extractedText"].strip(), entry["licenseId"])
        self.check_relationships()

    def check_package(self, package):
        test = self.test
        test.assertFalse(self.REQUIRED - set(package))
        test.assertFalse(set(package) - self.REQUIRED - self.OPTIONAL)
        test.assertRegex(package["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
        test.assertIs(package["filesAnalyzed"], False)
        for reference in package.get("externalRefs", ()):
            test.assertRegex(reference["referenceLocator"],
                             r"^pkg:deb/debian/[^@\s]+@[^?\s]+\?arch=(amd64|arm64|all)"
                             r"&distro=debian-\d+$")
        return self.check_expression(package["licenseDeclared"])

    def check_expression(self, text):
        """Operands and operators in turn, brackets closed."""
        depth, wants_operand, names = 0, True, set()
        for token in self.TOKEN.findall(text):
            if token in ("AND", "OR"):
                self.test.assertFalse(wants_operand, text)
                wants_operand = True
            elif token == "(":
                depth += 1
            elif token == ")":
                depth -= 1
            else:
                self.test.assertTrue(wants_operand, text)
                names.add(token)
                wants_operand = False
        self.test.assertEqual((depth, wants_operand), (0, False), text)
        self.test.assertEqual(self.TOKEN.sub("", text).strip(), "", text)
        return names

    def check_relationships(self):
        ids = [package["SPDXID"] for package in self.found["packages"]]
        self.test.assertEqual(len(ids), len(set(ids)))
        contained = {entry["relatedSpdxElement"] for entry in self.found["relationships"]
                     if entry["relationshipType"] == "CONTAINS"}
        self.test.assertEqual(contained | {"SPDXRef-Image"}, set(ids))


class Controller(Contents, unittest.TestCase):
    target = "controller"
    most_mib = CONTROLLER_MIB
    name = "csi-nfs-controller"
    user = "65532:65532"

    def test_nothing_to_run(self):
        """The driver is the only program: no shell, no mount program, nothing to do harm with."""
        programs = [path for path in self.image.files()
                    if re.match(r"usr/s?bin/|usr/libexec/", path)]
        self.assertEqual(programs, ["usr/sbin/csi-nfs"])
        self.assertFalse([path for path in self.image.files() if "mount.nfs" in path])


class Small(Controller):
    """Without archives. Built once."""

    target = "controller-small"
    features = {"reserved-ports"}

    def test_repeatable(self):
        self.assertNotEqual(Image("controller").digest, self.image.digest)

    def test_libarchive(self):
        self.assertFalse([name for name in self.image.packages() if "libarchive" in name])


class Node(Contents, unittest.TestCase):
    target = "node"
    most_mib = NODE_MIB
    name = "csi-nfs"
    user = "0:0"

    def test_programs(self):
        programs = {os.path.basename(path) for path in self.image.files()
                    if re.match(r"usr/s?bin/|usr/libexec/", path)}
        self.assertEqual(programs, {
            "cat", "csi-nfs", "dash", "flock", "mount.nfs", "mount.nfs4", "rpc.statd", "sh",
            "showmount", "sm-notify", "start-statd", "umount.nfs", "umount.nfs4"})

    def test_state_of_statd(self):
        owner = os.stat(self.image.path("/var/lib/nfs/sm"))
        self.assertEqual((owner.st_uid, owner.st_gid), (100, 65534))


class Arm64(unittest.TestCase):
    """The same images for arm64, compiled on another architecture and started by qemu."""

    @classmethod
    def setUpClass(cls):
        reason = os.path.join(FOLDER, "arm64-skipped")
        if os.path.exists(reason):
            with open(reason, encoding="utf-8") as file:
                raise unittest.SkipTest(file.read().strip())
        cls.images = [Image(target + "-arm64").unpack() for target in ("controller", "node")]

    def start(self, image, program, *args):
        return subprocess.run(
            ["qemu-aarch64-static", "-L", image.root, image.path(program), *args], check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={})

    def test_config(self):
        for image in self.images:
            self.assertEqual(image.config["architecture"], "arm64")

    def test_every_program_is_arm64(self):
        for image in self.images:
            files = [path for path in image.files() if not os.path.islink(image.path(path))]
            for path in files:
                with open(image.path(path), "rb") as file:
                    head = file.read(20)
                if head.startswith(b"\x7fELF"):
                    self.assertEqual(int.from_bytes(head[18:20], "little"), 183, path)

    def test_starts(self):
        for image in self.images:
            done = self.start(image, "/usr/sbin/csi-nfs", "--version")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("csi-nfs " + version(), done.stdout)

    def test_mount_program_starts(self):
        done = self.start(self.images[1], "/usr/sbin/mount.nfs", "-V")
        self.assertIn("linux nfs-utils", done.stdout)


if __name__ == "__main__":
    harness.main("contents")
