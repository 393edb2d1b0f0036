# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Pods that run: shared, read-only, static and inline volumes, restarts of the node's parts."""
import os
import time

from control import SERVER
from node import NAME
from world import DRIVER, Scenario, measured


class Workloads(Scenario):
    expected = (
        ("FailedMount", "are not allowed on this node; see --inline-volumes"),
        # The server, the node's pod or the kubelet is down on purpose.
        ("FailedMount", "Unavailable .*(Connection refused|does not answer|Error while dialing)"),
        ("FailedScheduling", "ReadWriteOncePod access mode already in-use by another pod"),
    )

    def test_shared_writers(self):
        """Three pods append to files of one volume at once; each then reads what all wrote."""
        self.claim("data", self.storage_class(mountPermissions="0777"))
        script = """
            for i in $(seq 200); do echo line-$i >>/data/%(name)s; done
            touch /data/%(name)s.done
            while [ $(ls /data/*.done | wc -l) -lt 3 ]; do sleep 0.2; done
            cat /data/pod-? | wc -l"""
        for name in ("pod-a", "pod-b", "pod-c"):
            self.pod(name, script % {"name": name}, {"data": "data"})
        for name in ("pod-a", "pod-b", "pod-c"):
            self.assertEqual(self.succeeds(name).strip(), "600")
        volume = self.bound("data")
        with open(self.path(volume, "pod-a"), encoding="ascii") as file:
            self.assertEqual(file.read().split(), ["line-%d" % i for i in range(1, 201)])

    def test_access_modes(self):
        """A claim for one node, with two pods; a clone for many nodes, which a pod mounts
        read-only."""
        self.claim("data", self.storage_class(mountPermissions="0777"), modes=["ReadWriteOnce"])
        for name in ("one", "two"):
            self.pod(name, "echo text >/data/%s" % name, {"data": "data"})
        for name in ("one", "two"):
            self.succeeds(name)
        self.claim("copy", self.storage_class(), modes=["ReadOnlyMany"],
                   dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
        self.pod("reader", "cat /copy/one /copy/two; echo more >/copy/one && exit 1; exit 0",
                 {"copy": {"persistentVolumeClaim": {"claimName": "copy", "readOnly": True}}})
        self.assertEqual(self.succeeds("reader").count("text\n"), 2)

    def test_read_only(self):
        self.claim("data", self.storage_class())
        self.pod("writer", "echo text >/data/file", {"data": "data"})
        self.succeeds("writer")
        script = "cat /data/file; echo more >>/data/file && exit 1; cat /data/file"
        self.pod("mounted", script, {"data": "data"}, {"data": {"readOnly": True}})
        self.pod("claimed", script, {"data": {"persistentVolumeClaim": {
            "claimName": "data", "readOnly": True}}})
        for name in ("mounted", "claimed"):
            self.assertEqual(self.succeeds(name).count("text\n"), 2)

    def test_fs_group(self):
        """A user who is nobody on the server writes by the group of the pod."""
        self.claim("data", self.storage_class())
        self.pod("writer", "id -G; echo text >/data/file; stat -c '%u %g %a' /data /data/file",
                 {"data": "data"},
                 securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 4321})
        self.assertEqual(self.succeeds("writer").splitlines(),
                         ["1000 4321", "0 4321 2775", "1000 4321 644"])

    def test_sub_path(self):
        self.claim("data", self.storage_class())
        for name in ("one", "two"):
            self.pod(name, "echo %s >/data/file" % name, {"data": "data"},
                     {"data": {"subPath": name}})
        for name in ("one", "two"):
            self.succeeds(name)
        volume = self.bound("data")
        self.assertEqual(sorted(os.listdir(self.path(volume))), ["one", "two"])

    def test_first_consumer(self):
        self.claim("data", self.storage_class(binding="WaitForFirstConsumer"))
        self.until("an event", lambda: [reason for _, reason, _, _ in self.events("data")
                                        if reason == "WaitForFirstConsumer"])
        self.pod("writer", "echo text >/data/file; cat /data/file", {"data": "data"})
        self.assertEqual(self.succeeds("writer"), "text\n")

    def test_one_pod_only(self):
        """ReadWriteOncePod: the second pod waits for the first to go."""
        self.claim("data", self.storage_class(), modes=["ReadWriteOncePod"])
        self.pod("first", "sleep 1000", {"data": "data"})
        self.pod_phase("first", "Running")
        self.pod("second", "echo text >/data/file", {"data": "data"})
        self.until("the scheduler says why", lambda: [
            message for _, reason, message, _ in self.events("second")
            if reason == "FailedScheduling"])
        self.delete_pod("first")
        self.succeeds("second")

    def test_static(self):
        """A volume made by hand, read-only for many; its directory stays when it is deleted."""
        os.makedirs(self.path("media"))
        with open(self.path("media", "file"), "w", encoding="ascii") as file:
            file.write("by hand\n")
        name = self.namespace
        self.api.create("PersistentVolume", name, spec={
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
            "mountOptions": ["nfsvers=4.1"],
            "claimRef": {"namespace": self.namespace, "name": "media"},
            "csi": {"driver": DRIVER, "volumeHandle": "by-hand#" + name, "volumeAttributes": {
                "server": SERVER, "share": self.cluster.export, "subDir": "media"}}})
        self.claim("media", "", modes=["ReadOnlyMany"], volumeName=name)
        self.bound("media")
        self.pod("reader", "cat /media/file", {"media": "media"})
        self.assertEqual(self.succeeds("reader"), "by hand\n")
        self.delete_pod("reader")
        self.delete_claim("media")
        self.api.delete("PersistentVolume", name)
        self.gone(name)
        os.unlink(self.path("media", "file"))
        os.rmdir(self.path("media"))

    def inline(self, share):
        return {"csi": {"driver": DRIVER, "volumeAttributes": {
            "server": SERVER, "share": share, "mountOptions": "nfsvers=4.1"}}}

    def test_inline(self):
        name = "file-of-" + self.namespace
        self.pod("writer", "echo text >/data/%s" % name,
                 {"data": self.inline(self.cluster.scratch)})
        self.succeeds("writer")
        self.assertIn(name, os.listdir(self.cluster.scratch))

    def test_inline_refused(self):
        """A path that the administrator has not listed."""
        self.pod("writer", "true", {"data": self.inline(self.cluster.export)})
        self.until("an event", lambda: [
            message for _, reason, message, _ in self.events("writer")
            if reason == "FailedMount" and "inline" in message.lower()])

    # ---- the node's parts are restarted under pods that run ----

    def running_pod(self):
        self.claim("data", self.storage_class(mountPermissions="0777"))
        return self.writes_on("steady", "data")

    def mounts_anew(self, name):
        self.pod(name, "wc -l </data/log-of-steady", {"data": "data"})
        self.assertGreater(int(self.succeeds(name)), 0)

    def test_daemonset_rolled(self):
        goes_on = self.running_pod()
        before = self.node_pods()
        self.cluster.plane.kubectl("-n", "kube-system", "rollout", "restart",
                                   "daemonset/csi-nfs-node")
        self.until("the node's pod is another one",
                   lambda: self.cluster.is_deployed() and self.node_pods()
                   and not self.node_pods() & before, 300)
        goes_on()
        self.mounts_anew("reader")
        self.delete_pod("steady")

    def test_daemonset_deleted(self):
        """Without the driver a pod writes on, and a new one waits for it to be back."""
        goes_on = self.running_pod()
        found = self.api.get("DaemonSet", "csi-nfs-node", "kube-system")
        self.api.delete("DaemonSet", "csi-nfs-node", "kube-system")
        try:
            self.until("the node's pod is deleted", lambda: not self.node_pods())
            goes_on()
            self.pod("reader", "wc -l </data/log-of-steady", {"data": "data"})
            self.until("the pod waits for the driver", lambda: [
                message for _, reason, message, _ in self.events("reader")
                if reason == "FailedMount" and "not found in the list of registered CSI drivers"
                in message])
        finally:
            metadata = {key: found["metadata"].get(key, {}) for key in ("labels", "annotations")}
            self.api.create("DaemonSet", "csi-nfs-node", "kube-system", spec=found["spec"],
                            metadata=dict(metadata, name="csi-nfs-node"))
        self.until("the node's pod is ready", self.cluster.is_deployed, 300)
        self.assertGreater(int(self.succeeds("reader")), 0)
        goes_on()
        self.delete_pod("steady")

    def waits_for_server(self, begin, end):
        """A pod waits for its server, as mounts are hard, and so does one that starts."""
        goes_on = self.running_pod()
        begin()
        try:
            self.pod("reader", "wc -l </data/log-of-steady", {"data": "data"})
            time.sleep(30)
        finally:
            end()
        back = time.monotonic()
        goes_on()
        on = time.monotonic() - back
        self.assertGreater(int(self.succeeds("reader")), 0)
        measured("the mounted pod writes %.1f s after the server's return, the other one has "
                 "started after %.1f s", on, time.monotonic() - back)
        self.delete_pod("steady")

    def test_server_hung(self):
        self.waits_for_server(self.cluster.server.freeze, self.cluster.server.thaw)

    def test_server_killed(self):
        self.waits_for_server(self.cluster.server.kill, self.cluster.server.start)

    def node_pods(self):
        return {pod["metadata"]["name"] for pod in self.api.list("Pod", "kube-system")
                if pod["metadata"]["labels"].get("app") == "csi-nfs-node"}

    def test_node_plugin_killed(self):
        goes_on = self.running_pod()
        self.cluster.node.order("pkill -KILL -f -- '^/usr/sbin/csi-nfs --mode=node'")
        self.mounts_anew("reader")
        goes_on()
        self.delete_pod("steady")

    def test_kubelet_restarted(self):
        goes_on = self.running_pod()
        self.cluster.node.order(
            "kill -KILL $(cat /run/kubelet.pid); sleep 1; start_kubelet")
        self.mounts_anew("reader")
        goes_on()
        self.delete_pod("steady")
        mounts = self.cluster.node.order("grep -c %s /proc/self/mounts" % self.bound("data"))
        self.assertEqual(mounts.strip(), "0")

    def test_controllers_deleted(self):
        """The pods of the Deployment are deleted while a claim waits; new ones bind it."""
        storage_class = self.storage_class()
        self.cluster.plane.kubectl("-n", "kube-system", "delete", "pod", "--wait=false",
                                   "-l", "app=csi-nfs-controller")
        self.claim("data", storage_class)
        self.bound("data", 300)
        self.until("both replicas are ready", self.cluster.is_deployed, 300)

    def test_node_is_told(self):
        """The kubelet knows the driver by the name and id that deploy/ gives."""
        drivers = self.api.get("CSINode", NAME)["spec"]["drivers"]
        self.assertEqual([(d["name"], d["nodeID"]) for d in drivers], [(DRIVER, NAME)])
