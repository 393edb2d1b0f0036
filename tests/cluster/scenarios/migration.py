# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""csi-driver-nfs is replaced by csi-nfs under running pods, and back, as doc/ tells it."""
import glob
import os
import unittest

import yaml

from servers import run
from world import DEPLOY, RELEASE, Scenario

SOURCE = os.environ.get("CSI_NFS_MIGRATE_FROM", "")  # csi-driver-nfs's source tree, built
MANIFESTS = ("rbac-csi-nfs", "csi-nfs-driverinfo", "csi-nfs-controller", "csi-nfs-node")
APPS = ("csi-nfs-controller", "csi-nfs-node")
# What its image has from Debian's packages.
TOOLS = {"/usr/bin/mount": "/usr/bin/mount", "/usr/bin/umount": "/usr/bin/umount",
         "/usr/sbin/mount.nfs": "/sbin/mount.nfs", "/usr/bin/cp": "/usr/bin/cp",
         "/etc/netconfig": "/etc/netconfig"}
LINKS = [("/sbin/mount.nfs4", "mount.nfs"), ("/sbin/umount.nfs", "mount.nfs"),
         ("/sbin/umount.nfs4", "mount.nfs"), ("/etc/mtab", "../proc/self/mounts")]


def program():
    """The program that "make nfs" leaves in csi-driver-nfs's tree, or None."""
    found = glob.glob(os.path.join(SOURCE, "bin", "**", "nfsplugin"), recursive=True)
    return found[0] if SOURCE and found else None


class Manifests:
    """Both drivers by kubectl."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.kubectl = cluster.plane.kubectl

    def _remove(self):
        for kind, name in zip(("deployment", "daemonset"), APPS):
            self.kubectl("-n", "kube-system", "delete", kind, name)

    def _theirs(self):
        return [os.path.join(SOURCE, "deploy", name + ".yaml") for name in MANIFESTS]

    def objects(self):
        found = []
        for path in self._theirs():
            with open(path, encoding="utf-8") as file:
                found += [o for o in yaml.safe_load_all(file) if o]
        return found

    def to_theirs(self, csidriver=False):
        """csidriver: inline volumes are on, which cannot be changed."""
        self._remove()
        if csidriver:
            self.kubectl("delete", "csidriver", "nfs.csi.k8s.io")
        for path in self._theirs():
            self.kubectl("apply", "-f", path)

    def to_ours(self):
        self._remove()
        self.cluster.deploy()

    def back(self):
        self.to_theirs()


class Chart:
    """Both drivers by helm, with the user's own values."""

    VALUES = {"controller": {"replicas": 1}, "volumeSnapshotClass": {"create": True}}

    def __init__(self, cluster):
        self.cluster = cluster
        self.values = os.path.join(cluster.folder, "values.yaml")
        with open(self.values, "w", encoding="ascii") as file:
            yaml.safe_dump(self.VALUES, file)
        self.theirs = os.path.join(SOURCE, "charts", "latest", "csi-driver-nfs")

    def _helm(self, *arguments):
        environment = dict(os.environ, HOME=self.cluster.folder)
        return run(os.environ["CSI_NFS_HELM"], *arguments, "--namespace", "kube-system",
                   "--kubeconfig", self.cluster.plane.admin, env=environment).stdout

    def objects(self):
        text = self._helm("template", RELEASE, self.theirs, "--values", self.values)
        return [o for o in yaml.safe_load_all(text) if o]

    def to_theirs(self, csidriver=False):
        del csidriver  # goes with the release
        self._helm("uninstall", RELEASE, "--wait")
        self._helm("install", RELEASE, self.theirs, "--values", self.values)

    def to_ours(self):
        self._helm("upgrade", RELEASE, os.path.join(DEPLOY, "helm"), "--values", self.values)

    def back(self):
        self._helm("rollback", RELEASE)


class Migration(Scenario):

    # csi-driver-nfs starts a restore over that outlasted its call, in the same directory
    expected = (("ProvisioningFailed", "failed to copy volume for snapshot: .* file exists"),)

    def setUp(self):
        if program() is None:
            raise unittest.SkipTest("CSI_NFS_MIGRATE_FROM does not name a source tree of "
                                    "csi-driver-nfs in which make has built bin/*/nfsplugin")
        super().setUp()
        self.ways = (Chart if "CSI_NFS_HELM" in os.environ else Manifests)(self.cluster)

    # ---- who runs ----

    def audited(self):
        return os.path.getsize(self.cluster.plane.audit)

    def settle(self, driver):
        """Wait until only pods of this driver's image are left, and are ready."""
        for kind, name in zip(("deployment", "daemonset"), APPS):
            self.cluster.plane.kubectl("-n", "kube-system", "rollout", "status",
                                       "%s/%s" % (kind, name), "--timeout=600s")

        def images():
            return {container["image"] for pod in self.api.list("Pod", "kube-system")
                    if pod["metadata"]["labels"].get("app") in APPS
                    for container in pod["spec"]["containers"] if container["name"] == "nfs"}
        self.until("the other driver's pods are gone",
                   lambda: all(driver in name for name in images()), 300)

    def theirs(self, change, *arguments):
        begun = self.audited()
        change(*arguments)
        self.settle("nfsplugin")
        return begun

    def ours(self, begun):
        """begun: since when the audit log is about the other driver, too."""
        self.ways.to_ours()
        self.settle("csi-nfs")
        self.cluster.foreign.append((begun, self.audited()))

    # ---- what is there ----

    def contents(self, claim):
        return {name: entry[-1] for name, entry in self.tree(self.directory(claim)).items()
                if not name.startswith("log-of-")}

    def directory(self, claim):
        return self.path(self.directory_of(self.bound(claim, 300)))

    def fill(self, claim):
        """Written on the server's disk in one go, as nfs-ganesha wants it."""
        top = self.directory(claim)
        os.makedirs(os.path.join(top, "a", "b"))
        for name, content in (("file", b"text"), ("a/random", os.urandom(1 << 20)),
                              ("a/b/empty", b"")):
            with open(os.path.join(top, name), "wb") as file:
                file.write(content)
        os.symlink("random", os.path.join(top, "a", "link"))
        return self.contents(claim)

    def reads(self, claim):
        """A new pod sees what is in a volume."""
        self.pod("reader", "cat /data/file", {"data": claim})
        self.assertEqual(self.succeeds("reader"), "text")
        self.delete_pod("reader")

    def deleted(self, claim):
        """Delete a claim, and wait until its volume is gone. Return where its directory was."""
        volume, directory = self.bound(claim), self.directory(claim)
        self.delete_claim(claim)
        self.gone(volume, 300)
        return directory

    def test_there_and_back(self):
        """Each driver works with what the other one made, and no pod notices."""
        self.cluster.node.import_images(self.ways.objects(), {
            "nfsplugin": ({program(): "/nfsplugin", **TOOLS}, ["/nfsplugin"], LINKS)})
        begun = self.theirs(self.ways.to_theirs, True)
        plain = self.storage_class(mountPermissions="0777")
        below = self.storage_class(subDir="teams/${pvc.metadata.name}", mountPermissions="0777")
        archive = self.storage_class(onDelete="archive")
        for name, storage_class in (("old", plain), ("below", below), ("kept", archive)):
            self.claim(name, storage_class)
        old = {name: self.fill(name) for name in ("old", "below", "kept")}
        self.snapshot("old-snap", "old")
        self.ready("old-snap", 300)
        first = self.writes_on("first", "old")
        second = self.writes_on("second", "below")
        self.assertFalse(os.path.exists(self.path(".csi-nfs", "volumes", self.bound("old"))))

        self.ours(begun)
        first()
        second()
        self.reads("old")
        self.restore("from-old", "old-snap", plain)
        self.assertEqual(self.contents("from-old"), old["old"])
        self.clone("clone", "below", below)
        self.assertEqual(self.contents("clone"), old["below"])
        self.resize("old", "2Gi")
        self.until("the claim has grown", lambda: self.capacity("old") == "2Gi")
        self.delete_pod("first")
        directory = self.deleted("kept")
        self.assertFalse(os.path.exists(directory))
        archived = os.path.join(os.path.dirname(directory),
                                "archived-" + os.path.basename(directory))
        self.assertEqual(sorted(os.listdir(archived)), ["a", "file"])
        run("rm", "-r", archived)
        self.claim("new", plain)
        new = self.fill("new")
        self.snapshot("new-snap", "new")
        self.ready("new-snap", 300)
        third = self.writes_on("third", "new")

        begun = self.theirs(self.ways.back)
        second()
        third()
        for name in ("old", "new", "below"):
            self.reads(name)
        self.restore("from-new", "new-snap", plain)
        self.assertEqual(self.contents("from-new"), new)
        self.delete_pod("third")
        recorded = [self.bound(claim) for claim in ("from-old", "clone")]
        for claim in ("from-old", "clone"):
            self.assertFalse(os.path.exists(self.deleted(claim)))
        # Gone before the change, which takes the rights of the other driver's sidecars away.
        self.api.delete("VolumeSnapshot", "old-snap", self.namespace)
        self.until("the first snapshot's content is deleted",
                   lambda: len(self.api.list("VolumeSnapshotContent")) == 1, 300)

        self.ours(begun)
        second()
        for name, wanted in (("old", old["old"]), ("below", old["below"]), ("new", new),
                             ("from-new", new)):
            self.assertEqual(self.contents(name), wanted, name)
        self.delete_pod("second")
        for claim in ("old", "below", "new", "from-new"):
            self.assertFalse(os.path.exists(self.deleted(claim)))
        self.remove_the_rest(recorded)

    def remove_the_rest(self, recorded):
        """What stays, as doc/ says: csi-driver-nfs deletes volumes without their records, and
        csi-nfs leaves a directory above volumes if it did not make it."""
        self.assertEqual(sorted(recorded), self.cluster.records())
        own = self.path(".csi-nfs")
        for name in recorded:
            run("find", os.path.join(own, "volumes"), os.path.join(own, "users"),
                "-name", name, "-delete")
        run("find", os.path.join(own, "users"), "-mindepth", "1", "-empty", "-delete")
        os.rmdir(self.path("teams"))
