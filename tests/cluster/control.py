# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The control plane: etcd, API server, controller manager, scheduler and snapshot controller, as
processes of the lab. For use inside a lab only, whose network has all of these addresses.
"""
import os
import shutil
import subprocess

import yaml

from api import Api
from servers import Failure, run, wait_for

SERVER = "10.77.0.1"  # the NFS server, and the node's gateway
NODE = "10.77.0.2"
API = "10.96.0.1"  # what the service "kubernetes" is called in pods
PORT = 443  # the service's, so that pods need no proxy in between
SERVICES = "10.96.0.0/16"

AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
         "rules": [{"level": "Metadata",
                    "users": ["system:serviceaccount:kube-system:csi-nfs-controller-sa",
                              "system:serviceaccount:kube-system:csi-nfs-node-sa"]},
                   {"level": "None"}]}


class Programs:
    """The folders that tests/cluster/build printed."""

    def __init__(self, folders):
        self.folders = [folder for folder in folders.split(":") if folder]

    def __call__(self, name):
        """The path of a program. An image has the name of its program, but the controller's."""
        name = "csi-nfs" if name == "csi-nfs-controller" else name
        for folder in self.folders:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
        raise Failure("no program %s" % name)

    def version(self, name):
        """The version that a program was built at, "stand-in", or "" for one from elsewhere."""
        path = os.path.join(os.path.dirname(self(name)), "versions")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="ascii") as file:
            versions = dict(line.split() for line in file)
        return versions.get(name, "")


class Process:
    """A program whose output goes to a log."""

    def __init__(self, name, logs, *command, **options):
        self.name = name
        self.log = os.path.join(logs, name + ".log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True, **options)

    def is_running(self):
        return self.process.poll() is None

    def tail(self, lines=20):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def stop(self, seconds=10):
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Certificates:
    """A certificate authority in a folder, and kubeconfigs that use it."""

    EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        run("openssl", "req", "-x509", *self.EC, "-keyout", self.path("ca.key"),
            "-out", self.path("ca.crt"), "-days", "30", "-subj", "/CN=cluster")
        run("openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout",
            "-out", self.path("accounts.key"))
        run("openssl", "ec", "-in", self.path("accounts.key"), "-pubout",
            "-out", self.path("accounts.pub"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def issue(self, name, subject, *names):
        """A key NAME.key and certificate NAME.crt, for clients, and for servers of these names."""
        extensions = "extendedKeyUsage=clientAuth,serverAuth\n"
        if names:
            extensions += "subjectAltName=%s\n" % ",".join(names)
        with open(self.path(name + ".ext"), "w", encoding="ascii") as file:
            file.write(extensions)
        run("openssl", "req", *self.EC, "-keyout", self.path(name + ".key"),
            "-out", self.path(name + ".csr"), "-subj", subject)
        run("openssl", "x509", "-req", "-in", self.path(name + ".csr"),
            "-CA", self.path("ca.crt"), "-CAkey", self.path("ca.key"), "-CAcreateserial",
            "-days", "30", "-extfile", self.path(name + ".ext"), "-out", self.path(name + ".crt"))

    def kubeconfig(self, name):
        path = self.path(name + ".kubeconfig")
        with open(path, "w", encoding="ascii") as file:
            yaml.safe_dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "cluster",
                "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
                "clusters": [{"name": "cluster", "cluster": {
                    "server": "https://%s:%d" % (API, PORT),
                    "certificate-authority": self.path("ca.crt")}}],
                "users": [{"name": name, "user": {
                    "client-certificate": self.path(name + ".crt"),
                    "client-key": self.path(name + ".key")}}]}, file)
        return path


class ControlPlane:
    """Its state is in folder, which goes with the lab; its logs stay."""

    def __init__(self, programs, folder, logs):
        self.programs = programs
        self.folder = folder
        self.logs = logs
        self.audit = os.path.join(logs, "audit.json")
        self.processes = []
        self.certificates = Certificates(os.path.join(folder, "pki"))
        self.api = None
        self.admin = None

    def _begin(self, name, *arguments):
        process = Process(name, self.logs, self.programs(name), *arguments)
        self.processes.append(process)
        return process

    def start(self):
        """Return when the API server answers. The controllers are started then, too."""
        run("ip", "addr", "add", SERVER + "/32", "dev", "lo")
        run("ip", "addr", "add", API + "/32", "dev", "lo")
        pki = self.certificates
        pki.issue("server", "/CN=kube-apiserver", "IP:" + API, "IP:127.0.0.1",
                  "DNS:kubernetes.default.svc")
        for name, subject in (("admin", "/O=system:masters/CN=admin"),
                              ("manager", "/CN=system:kube-controller-manager"),
                              ("scheduler", "/CN=system:kube-scheduler"),
                              ("kubelet-client", "/O=system:masters/CN=kubelet-client")):
            pki.issue(name, subject)
        self.admin = pki.kubeconfig("admin")
        self._begin("etcd", "--data-dir", os.path.join(self.folder, "etcd"), "--unsafe-no-fsync",
                    "--listen-client-urls", "http://127.0.0.1:2379",
                    "--advertise-client-urls", "http://127.0.0.1:2379",
                    "--listen-peer-urls", "http://127.0.0.1:2380")
        server = self._start_api()
        self.api = Api(API, PORT, pki.path("ca.crt"), pki.path("admin.crt"), pki.path("admin.key"))
        if not wait_for(lambda: not server.is_running() or self._is_ready(), 300, 0.2) \
                or not server.is_running():
            raise Failure("the API server does not answer:\n" + server.tail())
        self._start_controllers()

    def _start_api(self):
        pki = self.certificates
        policy = os.path.join(self.folder, "audit.yaml")
        with open(policy, "w", encoding="ascii") as file:
            yaml.safe_dump(AUDIT, file)
        return self._begin(
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0",
            "--advertise-address=" + SERVER, "--secure-port=%d" % PORT,
            "--endpoint-reconciler-type=none", "--authorization-mode=Node,RBAC",
            "--client-ca-file=" + pki.path("ca.crt"),
            "--tls-cert-file=" + pki.path("server.crt"),
            "--tls-private-key-file=" + pki.path("server.key"),
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-signing-key-file=" + pki.path("accounts.key"),
            "--service-account-key-file=" + pki.path("accounts.pub"),
            "--service-cluster-ip-range=" + SERVICES, "--allow-privileged=true",
            "--kubelet-client-certificate=" + pki.path("kubelet-client.crt"),
            "--kubelet-client-key=" + pki.path("kubelet-client.key"),
            "--kubelet-preferred-address-types=InternalIP",
            "--audit-policy-file=" + policy, "--audit-log-path=" + self.audit)

    def _is_ready(self):
        try:
            return self.api.raw("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _start_controllers(self):
        pki = self.certificates
        # Its own limit of 20 requests a second would be the first thing that storms measure.
        self._begin("kube-controller-manager", "--kubeconfig=" + pki.kubeconfig("manager"),
                    "--leader-elect=false", "--bind-address=127.0.0.1",
                    "--use-service-account-credentials",
                    "--service-account-private-key-file=" + pki.path("accounts.key"),
                    "--root-ca-file=" + pki.path("ca.crt"),
                    "--kube-api-qps=2000", "--kube-api-burst=4000")
        self._begin("kube-scheduler", "--kubeconfig=" + pki.kubeconfig("scheduler"),
                    "--leader-elect=false", "--bind-address=127.0.0.1")

    def kubectl(self, *arguments):
        """Its output. Its cache stays in the lab."""
        environment = dict(os.environ, HOME=self.folder, KUBECONFIG=self.admin)
        got = subprocess.run([self.programs("kubectl"), *arguments], check=False, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, env=environment)
        if got.returncode != 0:
            raise Failure("kubectl %s: %s" % (" ".join(arguments), got.stdout))
        return got.stdout

    def add_snapshots(self):
        """What a cluster has of its own, before csi-nfs with snapshots."""
        self.kubectl("apply", "-k", self.programs("crd"))
        wait_for(lambda: self.api.raw("GET", "/apis/snapshot.storage.k8s.io/v1")[0] == 200)
        self._begin("snapshot-controller", "--kubeconfig=" + self.admin, "--v=2")

    def stop(self):
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
