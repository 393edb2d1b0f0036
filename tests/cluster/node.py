# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""A node of the cluster: a user-mode-linux guest with containerd and a kubelet. Its network card is
a tap device of the lab, whose address is the gateway and the NFS server.
"""
import json
import os
import re
import shutil
import signal
import subprocess

import yaml

import control
import image
from control import Process
from servers import Failure, run, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "node1"
PODS = "10.88.0.0/24"
TAP = "tap0"
MEMORY = 4096  # MiB
BUSYBOX = "docker.io/library/busybox:1"
PAUSE = "docker.io/library/pause:1"
# Our images, and their archives in the folder of tests/image/run.
BUILT = {"csi-nfs-controller": "controller.tar", "csi-nfs": "node.tar"}

CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%(pause)s"
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%(plugins)s"
    conf_dir = "%(network)s"
"""
NETWORK = {"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]],
                             "routes": [{"dst": "0.0.0.0/0"}]}}]}


def kubelet_config(certificates):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": certificates.path("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": certificates.path("node.crt"),
        "tlsPrivateKeyFile": certificates.path("node.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # The guest has no systemd; its kernel lacks iptables and some controllers.
        "cgroupDriver": "cgroupfs", "cgroupsPerQOS": False, "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False, "localStorageCapacityIsolation": False,
        "failSwapOn": False, "evictionHard": {"memory.available": "1Mi"},
        "imageGCHighThresholdPercent": 100, "address": control.NODE,
        "clusterDNS": [control.API], "clusterDomain": "cluster.local",
        "syncFrequency": "10s", "nodeStatusUpdateFrequency": "10s"}


def images_of(objects):
    """What the containers of these objects name as their images."""
    return {container["image"] for found in objects if found["kind"] in ("Deployment", "DaemonSet")
            for container in found["spec"]["template"]["spec"]["containers"]}


def name_of(reference):
    return reference.rpartition("/")[2].partition(":")[0]


class Node:
    def __init__(self, cluster):
        self.cluster = cluster
        self.programs = cluster.programs
        self.folder = os.path.join(cluster.folder, "node")
        self.guest = None
        self.orders = 0
        os.makedirs(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def _images(self, objects):
        """An archive for each image that the workloads in deploy/ name, and two of ours."""
        busybox = self.programs("busybox")
        applets = run(busybox, "--list").stdout.split()
        os.makedirs(self.path("images"))
        image.write(self.path("images/busybox.tar"), BUSYBOX, {busybox: "/bin/busybox"},
                    ["/bin/sh"], [("/bin/" + name, "busybox") for name in applets
                                  if name != "busybox"])
        image.write(self.path("images/pause.tar"), PAUSE, {busybox: "/bin/busybox"},
                    ["/bin/busybox", "sleep", "2147483647"])
        for reference in sorted(images_of(objects)):
            self._image(reference)

    def _image(self, reference):
        """Write the archive of an image that has one program. Return its path."""
        name = name_of(reference)
        path = self.path("images/%s.tar" % name)
        if name in BUILT and os.environ.get("CSI_NFS_IMAGES"):
            path = self.path("images/" + BUILT[name])
            shutil.copy(os.path.join(os.environ["CSI_NFS_IMAGES"], BUILT[name]), path)
            return path
        full = reference if "/" in reference else "docker.io/library/" + reference
        image.write(path, full, {self.programs(name): "/usr/sbin/" + name},
                    ["/usr/sbin/" + name], environment=self._environment(name))
        return path

    def import_images(self, objects, others):
        """Give the running node what the containers of these objects need. others: name of an image
        -> arguments of image.write() after the reference, for images that are not one program."""
        for reference in sorted(images_of(objects)):
            name = name_of(reference)
            if name in others:
                path = self.path("images/%s.tar" % name)
                image.write(path, reference, *others[name])
            else:
                path = self._image(reference)
            self.order("ctr -n k8s.io images import '%s'" % path)

    @staticmethod
    def _environment(name):
        """What our Containerfile sets."""
        if name not in BUILT:
            return []
        with open(os.path.join(HERE, "..", "..", "deploy", "Containerfile"),
                  encoding="utf-8") as file:
            return sorted(set(re.findall(r"^ENV (?!PATH=)(\S+=\S+)$", file.read(), re.M)))

    def _network(self):
        run("ip", "tuntap", "add", TAP, "mode", "tap")
        run("ip", "link", "set", TAP, "up")
        run("ip", "route", "add", control.NODE + "/32", "dev", TAP, "src", control.SERVER)
        run("ip", "route", "add", PODS, "via", control.NODE, "src", control.SERVER)

    def start(self, objects):
        """Boot the guest. Return when the node is ready."""
        pki = self.cluster.plane.certificates
        pki.issue("node", "/O=system:nodes/CN=system:node:" + NAME, "IP:" + control.NODE,
                  "DNS:" + NAME)
        pki.kubeconfig("node")
        self._images(objects)
        self._network()
        os.makedirs(self.path("network"))
        os.makedirs(self.path("orders"))
        with open(self.path("network/pods.conflist"), "w", encoding="ascii") as file:
            json.dump(NETWORK, file)
        with open(self.path("containerd.toml"), "w", encoding="ascii") as file:
            file.write(CONTAINERD % {"pause": PAUSE, "plugins": self.programs("cni"),
                                     "network": self.path("network")})
        with open(self.path("kubelet.yaml"), "w", encoding="ascii") as file:
            yaml.safe_dump(kubelet_config(pki), file)
        environment = dict(os.environ, LAB_KIND="uml", TMPDIR=self.cluster.folder,
                           LAB_NODE_FOLDER=self.folder, LAB_NODE_LOGS=self.cluster.logs,
                           LAB_NODE_NAME=NAME, LAB_NODE_ADDRESS=control.NODE,
                           LAB_NODE_GATEWAY=control.SERVER,
                           LAB_NODE_KUBECONFIG=pki.path("node.kubeconfig"),
                           LAB_NODE_PATH=":".join(self.programs.folders))
        self.guest = Process("guest", self.cluster.logs, os.path.join(HERE, "..", "lib", "lab"),
                             "--memory", str(MEMORY), "--tap", TAP, "--",
                             os.path.join(HERE, "node-inside"), env=environment)
        if not wait_for(lambda: not self.guest.is_running() or self.is_ready(), 600, 0.5) \
                or not self.guest.is_running():
            raise Failure("the node is not ready:\n" + self.guest.tail())

    def is_ready(self):
        node = self.cluster.api.get("Node", NAME)
        conditions = (node or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def order(self, command, seconds=120):
        """Run a shell command in the guest. Return its output."""
        self.orders += 1
        path = self.path("orders/%d" % self.orders)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(command)
        os.rename(path + ".new", path)
        if not wait_for(lambda: os.path.exists(path + ".done"), seconds, 0.1):
            raise Failure("the guest did not do within %d s: %s" % (seconds, command))
        with open(path + ".out", encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self):
        if self.guest is not None and self.guest.is_running():
            os.killpg(self.guest.process.pid, signal.SIGTERM)
            try:
                self.guest.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.guest.process.pid, signal.SIGKILL)
                self.guest.process.wait()
