# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The part of tests/packages/run that needs a kernel to itself, in a user-mode-linux guest.

usage: inside.py upgrade|life FOLDER VERSION OLD-VERSION

FOLDER has a Debian, with packages of OLD-VERSION in work/old and of VERSION in work/new.
upgrade: boots its systemd, installs the old packages, runs the services, upgrades, removes, purges.
life: installs the new package, a .deb or an .rpm, and runs Debian's autopkgtest "life".
"""

import os
import re
import subprocess
import sys
import time

SERVICES = ("csi-nfs-controller.service", "csi-nfs-node.service")
SOCKETS = ("csi-nfs-controller.socket", "csi-nfs-node.socket")
HOLDER = "/var/lib/csi-nfs-controller/csi-nfs.holder"

FURNISH = """
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
[ -e dev/fd ] || ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
"""

# The folder becomes the root, since tools that enter the mount namespace of a process start there.
BOOT = FURNISH + """
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir -p tmp/before
pivot_root . tmp/before
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=lab SYSTEMD_LOG_TARGET=console \\
	SYSTEMD_COLORS=0 /lib/systemd/systemd --system --unit=basic.target
"""

# Asks a service through its socket, as an orchestrator would, with the client of the tests.
ASK = """
import sys
sys.path.insert(0, sys.argv[1] + "/tests/lib")
from csi_client import Client
with Client("unix://" + sys.argv[2], 120) as client:
    client.Probe()
    print(client.GetPluginInfo().vendor_version)
    if "node" in sys.argv[2]:
        print(client.NodeGetInfo().node_id)
"""


class Failed(Exception):
    """A step went wrong, and those after it would."""


def step(good, text, detail=""):
    if not good:
        raise Failed(f"{text}: {detail}")
    print("ok - " + text, flush=True)


class Machine:
    """The Debian, booted."""

    def __init__(self, root):
        self.log = os.path.join(os.environ["LAB_DIR"], "systemd.log")
        with open(self.log, "wb") as log:
            self.outer = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup", "bash", "-ec",
                 BOOT, "boot", root], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 600
        while not self.is_up():
            if self.outer.poll() is not None or time.monotonic() > end:
                raise Failed("systemd does not start:\n" + self.tail())
            time.sleep(0.5)

    def is_up(self):
        try:
            path = f"/proc/{self.outer.pid}/task/{self.outer.pid}/children"
            with open(path, encoding="ascii") as file:
                self.pid = int(file.read())
        except (OSError, ValueError):
            return False
        return self.run("systemctl", "is-active", "basic.target")[1].strip() == "active"

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-40:])

    def run(self, *command):
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "--", "/usr/bin/env", "-i",
             "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root",
             "DEBIAN_FRONTEND=noninteractive", *command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            check=False)
        return done.returncode, done.stdout

    def must(self, what, *command):
        status, output = self.run(*command)
        if status != 0:
            raise Failed(f"{what}: exit status {status}\n{output}\n{self.tail()}")
        return output

    def sh(self, script):
        return self.must(script, "sh", "-c", script)

    def property(self, unit, name):
        return self.must("systemctl show", "systemctl", "show", "--value", "--property=" + name,
                         unit).strip()

    def ask(self, mode, tree):
        path = {"node": "/run/csi-nfs/node.sock",
                "controller": "/run/csi-nfs-controller/csi.sock"}[mode]
        return self.must(f"a call of the {mode}", "python3", "-c", ASK, tree, path).split()

    def files(self):
        """All files but those in which dpkg, systemd and others keep what they did."""
        kept = re.compile(r"^/(dev|proc|run|sys|tmp|work)(/|$)|^/var/(cache|log|lib/dpkg)/|"
                          r"^/var/lib/systemd/|-$|\.pyc$|/__pycache__$|^/etc/machine-id$")
        names = self.must("find", "find", "/", "-xdev").splitlines()
        return {name for name in names if not kept.search(name)}


def upgrade(root, version, old):
    machine = Machine(root)
    tree = "/work/csi-nfs-" + version
    before = machine.files()

    machine.sh("dpkg -i /work/old/*.deb")
    step(f"csi-nfs {old}" in machine.sh("csi-nfs --version"), f"dpkg -i of {old}")
    states = {unit: (machine.run("systemctl", "is-enabled", unit)[1].strip(),
                     machine.property(unit, "ActiveState")) for unit in SERVICES + SOCKETS}
    step(set(states.values()) == {("disabled", "inactive")}, "nothing is enabled, nothing runs",
         str(states))

    machine.sh("echo NODE_ID=of-the-settings >>/etc/csi-nfs/node.env && "
               "echo NFS_SERVER=nfs.example.com >>/etc/csi-nfs/controller.env && "
               "systemctl enable --now " + " ".join(SOCKETS))
    step(machine.ask("node", tree) == [old, "of-the-settings"] and
         machine.ask("controller", tree) == [old], "the sockets start both services")
    processes = {unit: machine.property(unit, "MainPID") for unit in SERVICES}
    # Not the owner of its files: the guest's root file system shows all as root's.
    users = {unit: machine.sh(f"ps -o user= -p {pid}").strip() for unit, pid in processes.items()}
    step(list(users.values()) == ["csi-nfs", "root"], "each runs as its user", str(users))
    holder = machine.sh("cat " + HOLDER)
    sockets = machine.sh("stat -c %i /run/csi-nfs/node.sock /run/csi-nfs-controller/csi.sock")
    settings = machine.sh("cat /etc/csi-nfs/*.env")

    machine.sh("dpkg -i /work/new/*.deb")
    step(f"csi-nfs {version}" in machine.sh("csi-nfs --version"), f"upgrade to {version}")
    for unit in SERVICES:
        now = machine.property(unit, "MainPID")
        state = machine.property(unit, "ActiveState")
        step(state == "active" and now not in ("0", processes[unit]), f"{unit} was restarted",
             f"{state}, process {now}")
    step(sockets == machine.sh("stat -c %i /run/csi-nfs/node.sock "
                               "/run/csi-nfs-controller/csi.sock"), "the sockets stayed open")
    step(settings == machine.sh("cat /etc/csi-nfs/*.env"), "the settings stayed")
    step(machine.ask("node", tree) == [version, "of-the-settings"] and
         machine.ask("controller", tree) == [version], "the new program answers, with the settings")
    step(holder == machine.sh("cat " + HOLDER), "the controller kept its id on shares")

    machine.sh("dpkg --remove csi-nfs csi-nfs-doc")
    states = {unit: machine.property(unit, "ActiveState") for unit in SERVICES + SOCKETS}
    step(not {"active", "activating", "failed"} & set(states.values()), "remove stops all units",
         str(states))
    step(machine.run("pgrep", "-x", "csi-nfs")[0] != 0, "no process is left")
    step(settings == machine.sh("cat /etc/csi-nfs/*.env") and
         holder == machine.sh("cat " + HOLDER), "remove keeps settings and id")

    machine.sh("dpkg --purge csi-nfs csi-nfs-doc")
    after = machine.files()
    step(before == after, "after purge, the same files as before", " ".join(sorted(before ^ after)))
    left = machine.sh("find /run -name 'csi-nfs*'").split()
    step(not left, "nothing is left in /run", " ".join(left))


def life(root, version, _):
    is_rpm = any(name.endswith(".rpm") for name in os.listdir(root + "/work/new"))
    install = ("rpm --force-debian --nodeps -i /work/new/csi-nfs-[0-9]*.rpm" if is_rpm
               else "dpkg -i /work/new/csi-nfs_*.deb")
    script = FURNISH + """
	exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 sh -c \\
		'""" + install + """ && cd /work/csi-nfs-'"$2"' && debian/tests/life'
	"""
    status = subprocess.call(["unshare", "--mount", "bash", "-ec", script, "life", root, version])
    if status == 77:
        return status
    step(status == 0, "the life of a volume with the installed program", f"exit status {status}")
    return 0


def main():
    try:
        return {"upgrade": upgrade, "life": life}[sys.argv[1]](*sys.argv[2:])
    except Failed as reason:
        print(f"not ok - {reason}", flush=True)
        return 1


sys.exit(main())
