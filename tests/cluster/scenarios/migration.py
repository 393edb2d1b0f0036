# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""From the real csi-driver-nfs to csi-nfs under a pod that runs, and back. CSI_NFS_PEER names the
folder with its binary, nfsplugin.
"""
import copy
import os
import shutil
import unittest

from world import CONTROLLER, Scenario, measured

NODE = "csi-nfs-node"
KINDS = {CONTROLLER: "Deployment", NODE: "DaemonSet"}
PEER = "docker.io/library/csi-driver-nfs:peer"
PLUGIN = os.path.join(os.environ.get("CSI_NFS_PEER", ""), "nfsplugin")
# What its image has beside the program.
TOOLS = ("/bin/mount", "/bin/umount", "/sbin/mount.nfs", "/bin/cp", "/bin/tar", "/etc/netconfig",
         "/etc/protocols", "/etc/services")
LINKS = [("/sbin/" + name, "mount.nfs") for name in ("mount.nfs4", "umount.nfs", "umount.nfs4")]


def peer_of(spec, kind):
    """The spec of a workload with csi-driver-nfs in place of csi-nfs, as its manifests have it."""
    spec = copy.deepcopy(spec)
    pod = spec["template"]["spec"]
    driver = next(c for c in pod["containers"] if c["name"] == "nfs")
    driver.update(
        image=PEER, args=["-v=5", "--nodeid=$(NODE_ID)", "--endpoint=unix:///csi/csi.sock"],
        env=[{"name": "NODE_ID", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        securityContext={"privileged": True}, resources={"limits": {"memory": "300Mi"}})
    if kind == "Deployment":
        # It mounts, which needs the node's network; so there can be one on a node.
        spec["replicas"] = 1
        pod["hostNetwork"] = True
        pod["securityContext"] = {}
        for container in pod["containers"]:
            container.pop("ports", None)
    return spec


@unittest.skipUnless(os.path.exists(PLUGIN), "CSI_NFS_PEER names no folder with csi-driver-nfs")
class Migration(Scenario):

    def setUp(self):
        super().setUp()
        self.ours = {name: self.api.get(kind, name, "kube-system")["spec"]
                     for name, kind in KINDS.items()}
        self.theirs = {name: peer_of(self.ours[name], kind) for name, kind in KINDS.items()}
        self.running = self.ours
        programs = {tool: tool for tool in TOOLS if os.path.exists(tool)}
        self.cluster.node.add_image(PEER, dict(programs, **{PLUGIN: "/nfsplugin"}),
                                    ["/nfsplugin"], LINKS)
        self.addCleanup(self.swap, self.ours)

    def swap(self, wanted):
        """Delete the driver's workloads and create others, as the guide says."""
        if self.running is wanted:
            return
        for name, kind in KINDS.items():
            self.api.delete(kind, name, "kube-system", propagationPolicy="Foreground")
        self.until("the old pods are gone", lambda: not self.driver_pods(), 300, 0.5)
        for name, kind in KINDS.items():
            self.api.create(kind, name, "kube-system", spec=wanted[name])
        self.running = wanted
        self.until("the new pods are ready", lambda: self.is_ready(wanted), 600, 0.5)

    def driver_pods(self):
        return [pod for pod in self.api.list("Pod", "kube-system")
                if pod["metadata"]["labels"].get("app") in KINDS]

    def is_ready(self, wanted):
        nodes = self.api.get("DaemonSet", NODE, "kube-system")["status"]
        controllers = self.api.get("Deployment", CONTROLLER, "kube-system")["status"]
        return nodes.get("numberReady") == 1 and \
            controllers.get("readyReplicas") == wanted[CONTROLLER]["replicas"]

    def filled(self, name, storage_class):
        """A claim with data that a pod wrote. Return the volume."""
        self.claim(name, storage_class)
        self.pod("fill-" + name,
                 "mkdir /data/a; echo %s >/data/a/file; ln -s a/file /data/link; "
                 "chmod 640 /data/a/file; dd if=/dev/urandom of=/data/random bs=64k count=9" % name,
                 {"data": name})
        self.succeeds("fill-" + name)
        self.delete_pod("fill-" + name)
        return self.bound(name)

    def restored(self, name, storage_class, snapshot, source):
        """A claim that is made of a snapshot has what the source has."""
        self.claim(name, storage_class, dataSource={
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot})
        self.assertEqual(self.tree(self.path(self.bound(name, 300))),
                         self.tree(self.path(source)))

    def deleted(self, name, volume):
        self.delete_claim(name)
        self.gone(volume)
        self.assertFalse(os.path.exists(self.path(volume)))

    def test_there_and_back(self):
        name = self.storage_class(mountPermissions="0777")
        self.swap(self.theirs)
        self.assertEqual({c["image"] for pod in self.driver_pods()
                          for c in pod["spec"]["containers"] if c["name"] == "nfs"}, {PEER})
        goes_on = self.running_pod()
        theirs, other = self.filled("theirs", name), self.filled("other", name)
        self.assertNotIn(theirs, self.cluster.records())
        self.snapshot("by-them", "theirs")
        self.ready("by-them", 300)
        measured("csi-driver-nfs made three volumes and a snapshot")

        self.swap(self.ours)
        goes_on()
        self.assertEqual(self.restarts(), ("Running", 0))
        self.pod("reader", "cat /data/link", {"data": "theirs"})
        self.assertEqual(self.succeeds("reader"), "theirs\n")
        self.delete_pod("reader")
        self.restored("from-them", name, "by-them", theirs)
        self.claim("clone", name, dataSource={"kind": "PersistentVolumeClaim", "name": "theirs"})
        self.assertEqual(self.tree(self.path(self.bound("clone"))), self.tree(self.path(theirs)))
        self.api.patch("PersistentVolumeClaim", "theirs", {
            "spec": {"resources": {"requests": {"storage": "2Gi"}}}}, self.namespace)
        self.until("the claim has grown", lambda: self.get_claim("theirs")["status"]["capacity"] ==
                   {"storage": "2Gi"})
        self.deleted("other", other)
        ours, brief = self.filled("ours", name), self.filled("brief", name)
        self.snapshot("by-us", "ours")
        self.ready("by-us", 300)
        measured("csi-nfs went on with them")

        self.swap(self.theirs)
        goes_on()
        self.restored("from-us", name, "by-us", ours)
        self.pod("reader", "cat /data/link", {"data": "ours"})
        self.assertEqual(self.succeeds("reader"), "ours\n")
        self.delete_pod("reader")
        self.deleted("brief", brief)
        measured("csi-driver-nfs went on with those of csi-nfs")

        self.swap(self.ours)
        goes_on()
        self.assertEqual(self.restarts(), ("Running", 0))
        self.delete_pod("steady")
        # csi-driver-nfs knows no records: that of the volume that it deleted is left.
        self.assertIn(brief, self.cluster.records())
        self.forget(brief)

    def forget(self, volume):
        """Remove the record of a volume, as an administrator would."""
        folder = self.path(".csi-nfs", "volumes")
        for name in os.listdir(folder):
            if name.partition("~")[0] == volume:
                path = os.path.join(folder, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
