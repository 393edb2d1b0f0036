# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What scenarios have: a cluster with csi-nfs in it, a server, and calls that name them. For use
inside a lab only.
"""
import hashlib
import os
import re
import shutil
import time
import unittest

import yaml

import control
from api import Refused
from node import BUSYBOX, Node, images_of
from pods import Pod
from servers import Export, Ganesha, Failure, run, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(HERE, "..", "..", "deploy")
DRIVER = "nfs.csi.k8s.io"
CONTROLLER = "csi-nfs-controller"
RELEASE = "csi-driver-nfs"  # of the chart
LEASE = "nfs-csi-k8s-io"  # csi-provisioner's
GIB = "1Gi"
PATIENCE = 180  # seconds for what takes a moment on an idle machine
# csi-provisioner 6.3 marks a snapshot while a volume is restored from it. Of several restores that
# end at once some fail to remove the mark; it goes in the next sweep, every 5 minutes.
SWEEP = 300

# Warnings that a healthy cluster gives: patterns of the event's reason and text, and why.
USUAL = (
    ("FailedScheduling", "unbound immediate PersistentVolumeClaims",
     "the pod was there before its claim was bound"),
    ("FailedScheduling", "persistentvolumeclaim .* not found", "likewise"),
    ("FailedScheduling", "(persistentvolume|storageclass.storage.k8s.io) .* not found",
     "the scheduler, which watches each kind by itself, saw the claim first"),
    ("GetSnapshotClassFailed", "not found",
     "the snapshot controller, likewise, saw the snapshot before its class"),
    ("FailedMount", "failed to sync (configmap|secret) cache|kube-root-ca.crt",
     "the kubelet had not read the namespace's certificate yet"),
    ("FailedMount", "no relationship found between node",
     "the API server, which watches pods to know what their node may read, had not seen this one"),
    ("FailedMount", "driver name nfs.csi.k8s.io not found in the list of registered CSI drivers",
     "the node's pod was being replaced"),
    ("ProvisioningFailed", "storageclass.storage.k8s.io .* not found",
     "the controller manager saw a claim before its class, or csi-provisioner looked at it once "
     "more when its case had ended"),
    ("(Provisioning|VolumeResize|VolumeModify)Failed", "the object has been modified",
     "a sidecar and a controller changed one object at once; the sidecar tries again"),
    ("(Provisioning|VolumeResize|VolumeModify)Failed", "code = Canceled desc = context canceled",
     "a sidecar was ended and gave up its calls"),
    ("SnapshotContentObjectDeleteError", "Failed to delete snapshot content API object",
     "the snapshot controller deleted an object twice, and the second time it was gone"),
)


def unexplained(events, expected=()):
    """The warnings among events, (type, reason, message, count), that nothing explains."""
    known = [entry[:2] for entry in (*USUAL, *expected)]
    return sorted({(reason, message) for kind, reason, message, _ in events if kind == "Warning"
                   and not any(re.fullmatch(r, reason) and re.search(pattern, message)
                               for r, pattern in known)})


def measured(text, *values):
    """Print a line with a number that somebody may want."""
    print("      " + text % values, flush=True)


class Cluster:
    """A control plane, nfs-ganesha, and the objects of deploy/."""

    def __init__(self, programs, logs):
        self.programs = programs
        self.logs = logs
        self.folder = os.path.join(logs, "work")
        self.export = os.path.join(os.environ["LAB_DISK"], "export")
        self.scratch = os.path.join(os.environ["LAB_DISK"], "scratch")  # for inline volumes
        self.plane = None
        self.server = None
        self.template = None
        self.pods = []
        self.node = None  # the guest with a kubelet, once it has been started
        self.usual = {}  # settings of the server, while a case has changed them
        self.foreign = []  # parts of the audit log, (begin, end), in which another driver ran

    @property
    def api(self):
        return self.plane.api

    def start(self):
        begun = time.monotonic()
        os.makedirs(self.folder)
        self.plane = control.ControlPlane(self.programs, self.folder, self.logs)
        self.plane.start()
        measured("the API server answers after %.1f s", time.monotonic() - begun)
        home = os.path.join(self.folder, "server")
        os.makedirs(home)
        self.server = Ganesha(home, [Export(self.export, privileged=True),
                                     Export(self.scratch, privileged=True)])
        self.server.port = 2049  # volumes of clusters have no port option
        self.server.start()
        self.plane.add_snapshots()
        self.tell_differences(self.deploy())

    def _use(self, text):
        """Take what is needed of rendered objects, and return them all."""
        objects = [found for found in yaml.safe_load_all(text) if found]
        self.template = next(o["spec"]["template"] for o in objects
                             if o["kind"] == "Deployment" and o["metadata"]["name"] == CONTROLLER)
        return objects

    def apply(self, path):
        """kubectl apply -k. Return the objects."""
        self.plane.kubectl("apply", "-k", path)
        return self._use(self.plane.kubectl("kustomize", path))

    def install(self, *values):
        """helm upgrade --install of the chart, with these values. Return the objects."""
        helm = os.environ["CSI_NFS_HELM"]
        flags = ["--kubeconfig", self.plane.admin, "--namespace", "kube-system"]
        chart = os.path.join(DEPLOY, "helm")
        settings = [word for value in values for word in ("--set", value)]
        environment = dict(os.environ, HOME=self.folder)
        run(helm, "upgrade", "--install", RELEASE, chart, *flags, *settings, env=environment)
        return self._use(run(helm, "get", "manifest", RELEASE, *flags, env=environment).stdout)

    def deploy(self):
        """What an administrator does, by kustomize or Helm."""
        if "CSI_NFS_HELM" in os.environ:
            return self.install("volumeSnapshotClass.create=true")
        return self.apply(os.path.join(DEPLOY, "snapshots"))

    def deploy_inline(self):
        """The same with inline volumes. What a driver offers to pods cannot be changed once it is
        there; nothing uses it yet."""
        self.plane.kubectl("delete", "csidriver", DRIVER)
        if "CSI_NFS_HELM" in os.environ:
            return self.install("volumeSnapshotClass.create=true",
                                "feature.enableInlineVolume=true",
                                "node.inlineVolumes={%s:%s}" % (control.SERVER, self.scratch))
        return self.apply(self._with_inline())

    def change_server(self, **settings):
        """Restart the server with other settings, until the case ends."""
        for name, value in settings.items():
            self.usual.setdefault(name, getattr(self.server, name))
            setattr(self.server, name, value)
        self.server.restart()

    def restore_server(self):
        if self.usual:
            usual, self.usual = self.usual, {}
            for name, value in usual.items():
                setattr(self.server, name, value)
            self.server.restart()

    def tell_differences(self, objects):
        """Print which programs are not what the manifests name."""
        for image in sorted(images_of(objects)):
            name, _, version = image.rpartition("/")[2].partition(":")
            built = self.programs.version(name)
            if built not in ("", version):
                measured("%s is %s, in place of %s", name, built, version)

    def _with_inline(self):
        """A kustomization as users write it: deploy/snapshots, the component for inline volumes,
        and what pods may mount."""
        path = os.path.join(self.folder, "inline")
        os.makedirs(path)
        change = [{"op": "replace", "path": "/spec/template/spec/containers/2/args/3",
                   "value": "--inline-volumes=%s:%s" % (control.SERVER, self.scratch)}]
        with open(os.path.join(path, "kustomization.yaml"), "w", encoding="ascii") as file:
            yaml.safe_dump({
                "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                "resources": [os.path.relpath(os.path.join(DEPLOY, "snapshots"), path)],
                "components": [os.path.relpath(os.path.join(DEPLOY, "components", "inline"),
                                               path)],
                "patches": [{"target": {"kind": "DaemonSet", "name": "csi-nfs-node"},
                             "patch": yaml.safe_dump(change)}]}, file)
        return path

    def start_node(self):
        """Boot the guest. The pods of deploy/ run there from now on, with inline volumes."""
        self.stop_pods()
        os.makedirs(self.scratch, mode=0o777, exist_ok=True)
        os.chmod(self.scratch, 0o777)
        objects = self.deploy_inline()
        begun = time.monotonic()
        self.node = Node(self)
        self.node.start(objects)
        measured("the node is ready after %.1f s", time.monotonic() - begun)
        if not wait_for(self.is_deployed, 600, 0.5):
            raise Failure("the pods of deploy/ are not ready:\n" + self.plane.kubectl(
                "-n", "kube-system", "get", "pods", "-o", "wide"))
        measured("the pods of deploy/ are ready after %.1f s", time.monotonic() - begun)

    def is_deployed(self):
        nodes = self.api.get("DaemonSet", "csi-nfs-node", "kube-system")["status"]
        controllers = self.api.get("Deployment", CONTROLLER, "kube-system")["status"]
        return nodes.get("numberReady") == 1 and controllers.get("readyReplicas") == 2

    def start_pods(self, replicas=2):
        """Start the Deployment's pods without a kubelet, and wait until one of them leads."""
        for number in range(len(self.pods), replicas):
            pod = Pod(self.plane, self.programs, self.template, CONTROLLER, number)
            self.pods.append(pod)
            pod.start()
        if not wait_for(lambda: self.leader() is not None, PATIENCE, 0.2):
            raise Failure("no csi-provisioner leads")

    def stop_pods(self):
        while self.pods:
            self.pods.pop().stop()

    def leader(self):
        """The pod whose csi-provisioner holds the lease."""
        lease = self.api.get("Lease", LEASE, "kube-system")
        holder = (lease or {}).get("spec", {}).get("holderIdentity") or ""
        return next((pod for pod in self.pods if pod.name in holder), None)

    def stop(self):
        if self.node is not None:
            self.node.stop()
        for pod in self.pods:
            pod.stop()
        if self.server is not None:
            shutil.copy(self.server.log, os.path.join(self.logs, "ganesha.log"))
            self.server.stop()
        if self.plane is not None:
            self.plane.stop()

    def records(self, kind="volumes"):
        """The names of the records on the share, without their parts."""
        folder = os.path.join(self.export, ".csi-nfs", kind)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(name for name in names if "~" not in name)

    def directories(self):
        return sorted(name for name in os.listdir(self.export) if name != ".csi-nfs")


class Scenario(unittest.TestCase):
    """A case has a namespace of its own, and its objects are deleted after it."""

    cluster = None  # set by main.py
    maxDiff = None
    expected = ()  # warnings that the cases cause on purpose: patterns of reason and text

    def setUp(self):
        self.api = self.cluster.api
        self.addCleanup(self.cluster.restore_server)
        name = "%s-%s" % (type(self).__name__, self._testMethodName[len("test_"):])
        self.namespace = name.lower().replace("_", "-")[:50]
        self.api.create("Namespace", self.namespace)
        self.addCleanup(self._tidy)
        self.addCleanup(self._explain)
        self.classes = 0

    def _explain(self):
        """Fail on warnings that neither the case nor a healthy cluster explains."""
        self.assertEqual(unexplained(self.all_events(self.namespace), self.expected), [])

    def _tidy(self):
        """Delete what the case left, and wait for it: the next case counts directories."""
        for kind in ("Pod", "VolumeSnapshot", "PersistentVolumeClaim"):
            for found in self.api.list(kind, self.namespace):
                self.api.delete(kind, found["metadata"]["name"], self.namespace)
            self.until("every %s is deleted" % kind, lambda kind=kind: not self.api.list(
                kind, self.namespace), PATIENCE + (SWEEP if kind == "VolumeSnapshot" else 0))
        self.until("every volume is deleted", lambda: not self.volumes())
        self.api.delete("Namespace", self.namespace)

    # ---- waiting ----

    def until(self, what, condition, seconds=PATIENCE, step=0.1):
        """Wait until condition() is true and return its value, else fail."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                self.fail("not within %d s: %s" % (seconds, what))
            time.sleep(step)

    # ---- objects ----

    def storage_class(self, reclaim="Delete", binding="Immediate", options=("nfsvers=4.1",),
                      **parameters):
        """Return the name of a new class, which goes with the case. A parameter that is None is
        left out."""
        self.classes += 1
        name = "%s-%d" % (self.namespace, self.classes)
        wanted = dict({"server": control.SERVER, "share": self.cluster.export}, **parameters)
        self.api.create("StorageClass", name, provisioner=DRIVER, reclaimPolicy=reclaim,
                        parameters={k: v for k, v in wanted.items() if v is not None},
                        volumeBindingMode=binding, allowVolumeExpansion=True,
                        mountOptions=list(options))
        self.addCleanup(self.api.delete, "StorageClass", name)
        return name

    def attributes_class(self, name, **parameters):
        self.api.create("VolumeAttributesClass", name, driverName=DRIVER, parameters=parameters)
        self.addCleanup(self.api.delete, "VolumeAttributesClass", name)
        return name

    def claim(self, name, storage_class, size=GIB, modes=("ReadWriteMany",), **spec):
        return self.api.create(
            "PersistentVolumeClaim", name, self.namespace,
            spec=dict({"accessModes": list(modes), "storageClassName": storage_class,
                       "resources": {"requests": {"storage": size}}}, **spec))

    def get_claim(self, name):
        return self.api.get("PersistentVolumeClaim", name, self.namespace)

    def _bound(self, name):
        claim = self.get_claim(name)
        return claim if claim["status"].get("phase") == "Bound" else None

    def bound(self, name, seconds=PATIENCE):
        """Wait for a claim. Return its volume's name."""
        try:
            claim = self.until("claim %s is bound" % name, lambda: self._bound(name), seconds)
        except AssertionError as error:
            raise AssertionError("%s; events: %s" % (error, self.events(name))) from None
        return claim["spec"]["volumeName"]

    def delete_claim(self, name):
        self.api.delete("PersistentVolumeClaim", name, self.namespace)

    def volumes(self):
        """The volumes of this case's claims, also of deleted ones."""
        return [pv for pv in self.api.list("PersistentVolume")
                if pv["spec"].get("claimRef", {}).get("namespace") == self.namespace]

    def gone(self, volume, seconds=PATIENCE):
        """Wait until a volume is deleted."""
        self.until("%s is deleted" % volume,
                   lambda: self.api.get("PersistentVolume", volume) is None, seconds)

    def all_events(self, namespace, name=None):
        """What the events say, or those of one object: (type, reason, message, count)."""
        return [(e["type"], e["reason"], e.get("message", ""), e.get("count") or 1)
                for e in self.api.list("Event", namespace)
                if name in (None, e["involvedObject"].get("name"))]

    def events(self, name):
        """What the events of an object say."""
        return self.all_events(self.namespace, name)

    def refusals(self, name):
        """What the driver said of a claim, with counts. The controller manager has the same reason
        for its own event, if it sees the claim before the class."""
        return [(message, count) for kind, reason, message, count in self.events(name)
                if (kind, reason) == ("Warning", "ProvisioningFailed")
                and not message.startswith("storageclass.storage.k8s.io ")]

    def snapshot(self, name, claim, snapshot_class="csi-nfs-snapclass"):
        self.api.create("VolumeSnapshot", name, self.namespace,
                        spec={"volumeSnapshotClassName": snapshot_class,
                              "source": {"persistentVolumeClaimName": claim}})

    def ready(self, name, seconds=PATIENCE):
        """Wait for a snapshot."""
        def status():
            return (self.api.get("VolumeSnapshot", name, self.namespace) or {}).get("status", {})
        self.until("snapshot %s is ready" % name, lambda: status().get("readyToUse"), seconds)

    def restore(self, name, snapshot, storage_class):
        self.claim(name, storage_class, dataSource={
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot})

    def clone(self, name, claim, storage_class):
        self.claim(name, storage_class,
                   dataSource={"kind": "PersistentVolumeClaim", "name": claim})

    def resize(self, name, size):
        self.api.patch("PersistentVolumeClaim", name,
                       {"spec": {"resources": {"requests": {"storage": size}}}}, self.namespace)

    def capacity(self, name):
        return self.get_claim(name)["status"]["capacity"]["storage"]

    # ---- pods ----

    def pod(self, name, script, volumes, mounts=None, **spec):
        """A pod with one container that runs a shell script. volumes: name -> claim, or what a
        volume has in place of one; mounts: further fields of a volume's mount, by its name."""
        mounts = mounts or {}
        self.until("the namespace has an account", lambda: self.api.get(
            "ServiceAccount", "default", self.namespace))
        self.api.create("Pod", name, self.namespace, spec=dict({
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": BUSYBOX, "command": ["/bin/sh", "-c", script],
                "volumeMounts": [dict({"name": volume, "mountPath": "/" + volume},
                                      **mounts.get(volume, {})) for volume in volumes]}],
            "volumes": [dict({"name": volume}, **(
                source if isinstance(source, dict)
                else {"persistentVolumeClaim": {"claimName": source}}))
                        for volume, source in volumes.items()]}, **spec))

    def pod_phase(self, name, *wanted):
        """Wait until a pod is in one of these phases. Return it."""
        def phase():
            pod = self.api.get("Pod", name, self.namespace)
            return pod["status"].get("phase") in wanted and pod["status"]["phase"]
        try:
            return self.until("pod %s is %s" % (name, " or ".join(wanted)), phase, 300, 0.2)
        except AssertionError as error:
            raise AssertionError("%s; events: %s" % (error, self.events(name))) from None

    def succeeds(self, name):
        """Wait until a pod has ended well. Return its output."""
        phase = self.pod_phase(name, "Succeeded", "Failed")
        text = self.cluster.plane.kubectl("-n", self.namespace, "logs", name)
        self.assertEqual(phase, "Succeeded", text)
        return text

    def delete_pod(self, name):
        self.api.delete("Pod", name, self.namespace)
        self.until("pod %s is deleted" % name,
                   lambda: self.api.get("Pod", name, self.namespace) is None)

    def writes_on(self, name, claim):
        """Start a pod that writes to a volume on and on. Return a function that waits until it has
        written more, and fails if the pod was started again."""
        self.pod(name, "while date >>/data/log-of-%s; do sleep 0.2; done" % name, {"data": claim})
        self.pod_phase(name, "Running")
        log = self.path(self.directory_of(self.bound(claim)), "log-of-" + name)

        def lines():
            if not os.path.exists(log):
                return 0
            with open(log, encoding="ascii") as file:
                return len(file.readlines())

        def goes_on():
            begun = lines()
            self.until("pod %s writes on" % name, lambda: lines() > begun + 5)
            status = self.api.get("Pod", name, self.namespace)["status"]
            self.assertEqual((status["phase"], status["containerStatuses"][0]["restartCount"]),
                             ("Running", 0))
        goes_on()
        return goes_on

    # ---- the share ----

    def directory_of(self, volume):
        """The path of a volume's directory below its share."""
        attributes = self.api.get("PersistentVolume", volume)["spec"]["csi"]["volumeAttributes"]
        return attributes["subDir"] if "subDir" in attributes else attributes["subdir"]

    def path(self, *names):
        return os.path.join(self.cluster.export, *names)

    def tree(self, folder):
        """Each path below a folder with its mode, owner and contents."""
        found = {}
        for where, names, files in os.walk(folder):
            for name in names + files:
                path = os.path.join(where, name)
                status = os.lstat(path)
                content = None
                if os.path.islink(path):
                    content = os.readlink(path)
                elif name in files:
                    with open(path, "rb") as file:
                        content = hashlib.sha256(file.read()).hexdigest()
                found[os.path.relpath(path, folder)] = (
                    oct(status.st_mode), status.st_uid, status.st_gid, content)
        return found

    def refusal(self, call, *arguments, **fields):
        """The API server's refusal of a call."""
        with self.assertRaises(Refused) as caught:
            call(*arguments, **fields)
        return str(caught.exception)
