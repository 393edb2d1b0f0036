# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Pods without a kubelet: the containers of a Deployment as processes, with the arguments, user,
capabilities, read-only root and service account of the manifest. A pod has a network, mounts and a
host name of its own. What only a kubelet can do is left out: images, limits, probes, seccomp.

Run as a program, this holds one pod: pods.py FILE, where FILE is what Pod.start() wrote.
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import control
from servers import Failure, run, wait_for

GATEWAY = "10.88.1.1"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev")


class Pod:
    """One replica of a Deployment, such as "csi-nfs-controller-0". restart_after: the pause before
    a container that ended is started again, in seconds."""

    def __init__(self, plane, programs, template, name, number, restart_after=1):
        self.plane = plane
        self.name = "%s-%d" % (name, number)
        self.number = number
        self.folder = os.path.join(plane.folder, self.name)
        self.spec = template["spec"]
        self.programs = programs
        self.restart_after = restart_after
        self.holder = None

    def _token(self):
        account = self.spec["serviceAccountName"]
        answer = self.plane.api.call(
            "POST", "/api/v1/namespaces/kube-system/serviceaccounts/%s/token" % account,
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
             "spec": {"expirationSeconds": 86400}})
        return answer["status"]["token"]

    def _container(self, container):
        """The command that the manifest means."""
        image = container["image"].rpartition("/")[2].partition(":")[0]
        context = container.get("securityContext", {})
        identity = dict(self.spec.get("securityContext", {}), **context)
        command = ["setpriv", "--reuid=%d" % identity.get("runAsUser", 0),
                   "--regid=%d" % identity.get("runAsGroup", 0), "--clear-groups"]
        if context.get("allowPrivilegeEscalation") is False:
            command.append("--no-new-privs")
        if "ALL" in context.get("capabilities", {}).get("drop", []):
            command += ["--inh-caps=-all", "--bounding-set=-all"]
        return command + [self.programs(image), *container.get("args", [])]

    def start(self):
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, "pod.json")
        with open(self.plane.certificates.path("ca.crt"), encoding="ascii") as file:
            authority = file.read()
        read_only = all(c.get("securityContext", {}).get("readOnlyRootFilesystem")
                        for c in self.spec["containers"])
        with open(path, "w", encoding="utf-8") as file:
            json.dump({
                "name": self.name, "folder": self.folder, "logs": self.plane.logs,
                "address": "10.88.1.%d" % (10 + self.number), "read_only": read_only,
                "programs": self.programs.folders, "restart_after": self.restart_after,
                "sysctls": self.spec.get("securityContext", {}).get("sysctls", []),
                "account": {"token": self._token(), "ca.crt": authority,
                            "namespace": "kube-system"},
                "containers": {c["name"]: self._container(c) for c in self.spec["containers"]},
            }, file)
        with open(os.path.join(self.plane.logs, self.name + ".log"), "ab") as log:
            self.holder = subprocess.Popen(
                ["unshare", "--mount", "--net", "--uts", "--propagation", "private", "--",
                 sys.executable, os.path.abspath(__file__), path],
                stdin=subprocess.PIPE, stdout=log, stderr=log)
        self._connect(self.holder.pid)

    def _connect(self, pid):
        """Give the pod a network card. The holder waits for it, to hear of it by a line."""
        own = os.readlink("/proc/self/ns/net")
        if not wait_for(lambda: os.readlink("/proc/%d/ns/net" % pid) != own):
            raise Failure("no network for " + self.name)
        card = "pod%d" % self.number
        run("ip", "link", "add", "name", card, "type", "veth", "peer", "name", "eth0",
            "netns", str(pid))
        run("ip", "addr", "add", GATEWAY + "/32", "dev", card)
        run("ip", "link", "set", card, "up")
        run("ip", "route", "add", "10.88.1.%d/32" % (10 + self.number), "dev", card)
        self.holder.stdin.write(b"go\n")
        self.holder.stdin.flush()

    def pid(self, container):
        """The process of a container, or None while there is none."""
        try:
            with open(os.path.join(self.folder, container + ".pid"), encoding="ascii") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return None

    def kill(self, container, how=signal.SIGKILL):
        """Return whether there was something to kill."""
        pid = self.pid(container)
        try:
            os.kill(pid, how)
        except (TypeError, ProcessLookupError):
            return False
        return True

    def stop(self, how=signal.SIGTERM):
        """As the kubelet stops a pod. With SIGKILL: as the power does."""
        if self.holder is None:
            return
        if how == signal.SIGKILL:
            self.holder.kill()
            for container in self.spec["containers"]:
                self.kill(container["name"])
        else:
            self.holder.terminate()
        self.holder.wait()
        self.holder = None
        run("ip", "link", "del", "pod%d" % self.number, check=False)
        for container in self.spec["containers"]:
            path = os.path.join(self.folder, container["name"] + ".pid")
            if os.path.exists(path):
                os.unlink(path)


# ---- the holder ----

class Holder:
    def __init__(self, pod):
        self.pod = pod
        self.root = os.path.join(pod["folder"], "root")
        self.processes = {}
        self.ended = {}
        self.stopping = False

    def furnish(self):
        pod = self.pod
        socket_dir = os.path.join(pod["folder"], "csi")
        run("hostname", pod["name"])
        os.makedirs(socket_dir, exist_ok=True)
        os.makedirs(self.root, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", self.root)
        for path in ("/csi", "/run", "/tmp", "/var"):
            os.mkdir(self.root + path)
        for path in (*SYSTEM, *filter(None, pod["programs"])):
            if os.path.islink(path):
                os.symlink(os.readlink(path), self.root + path)
            elif os.path.isdir(path):
                os.makedirs(self.root + path, exist_ok=True)
                run("mount", "--rbind", path, self.root + path)
        os.symlink("../run", self.root + "/var/run")
        account = self.root + "/run/secrets/kubernetes.io/serviceaccount"
        os.makedirs(account)
        for name, text in pod["account"].items():
            with open(os.path.join(account, name), "w", encoding="ascii") as file:
                file.write(text)
        run("mount", "--bind", socket_dir, self.root + "/csi")
        if pod["read_only"]:
            run("mount", "-o", "remount,bind,ro", self.root)

    def connect(self):
        run("ip", "link", "set", "lo", "up")
        run("ip", "addr", "add", self.pod["address"] + "/32", "dev", "eth0")
        run("ip", "link", "set", "eth0", "up")
        run("ip", "route", "add", GATEWAY + "/32", "dev", "eth0")
        run("ip", "route", "add", "default", "via", GATEWAY)
        for sysctl in self.pod["sysctls"]:
            path = "/proc/sys/" + sysctl["name"].replace(".", "/")
            with open(path, "w", encoding="ascii") as file:
                file.write(sysctl["value"])

    def start(self, name):
        path = os.path.join(self.pod["logs"], "%s.%s.log" % (self.pod["name"], name))
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/",
                       "KUBERNETES_SERVICE_HOST": control.API,
                       "KUBERNETES_SERVICE_PORT": str(control.PORT)}
        with open(path, "ab") as log:
            process = subprocess.Popen(["chroot", self.root, *self.pod["containers"][name]],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=environment)
        self.processes[name] = process
        with open(os.path.join(self.pod["folder"], name + ".pid"), "w", encoding="ascii") as file:
            file.write(str(process.pid))
        print(time.strftime("%X"), name, "started:", process.pid, flush=True)

    def restart_ended(self):
        for name, process in self.processes.items():
            if process.poll() is None:
                continue
            if name not in self.ended:
                print(time.strftime("%X"), name, "ended:", process.returncode, flush=True)
                self.ended[name] = time.monotonic()
            elif time.monotonic() - self.ended[name] > self.pod["restart_after"]:
                del self.ended[name]
                self.start(name)

    def hold(self):
        def stop(*_):
            self.stopping = True
        signal.signal(signal.SIGTERM, stop)
        for name in self.pod["containers"]:
            self.start(name)
        while not self.stopping:
            time.sleep(0.1)
            self.restart_ended()
        for process in self.processes.values():
            process.terminate()
        end = time.monotonic() + 30  # terminationGracePeriodSeconds
        for process in self.processes.values():
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        holder = Holder(json.load(file))
    holder.furnish()
    sys.stdin.readline()
    holder.connect()
    holder.hold()


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
    main()
