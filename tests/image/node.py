# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The node's image mounts, with the mount.nfs and rpc.statd that are in it. Runs inside a lab with
--kernel nfs, in a change of root: what isolates a container does not matter here."""
import os
import unittest

from images import FOLDER, Image

# pylint: disable=wrong-import-order
import harness
from csi_client import capability, patiently
from driver import Driver
from servers import Export, Ganesha, run

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
HOST = "127.0.0.1"


def has_process(program):
    """Whether a process runs this file."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.samefile(f"/proc/{number}/exe", program):
                return True
        except OSError:
            continue  # it has ended, or is a thread of the kernel
    return False


class Mounts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = os.path.join(LAB, "root")
        cls.share = os.path.join(DISK, "share")
        home = os.path.join(LAB, "server")
        for folder in (cls.root, cls.share, home):
            os.makedirs(folder)
        # A copy: rpc.statd keeps notes.
        run("cp", "-a", Image("node").root + "/.", cls.root)
        for folder in ("/proc", "/dev", "/run"):
            run("mount", "--rbind", folder, cls.root + folder)
        cls.addClassCleanup(run, "umount", "-l", cls.root + "/run")
        cls.addClassCleanup(run, "umount", "-l", cls.root + "/dev")
        cls.addClassCleanup(run, "umount", "-l", cls.root + "/proc")
        program = os.path.join(LAB, "csi-nfs")
        with open(program, "w", encoding="ascii") as file:
            file.write('#!/bin/sh\nexec env -i PATH=/usr/sbin:/usr/bin chroot %s '
                       '/usr/sbin/csi-nfs "$@"\n' % cls.root)
        os.chmod(program, 0o755)
        os.environ["CSI_NFS"] = program
        cls.server = Ganesha(home, [Export(cls.share)])
        cls.server.start()
        cls.addClassCleanup(cls.server.stop)
        cls.driver = Driver(LAB, "--mode=node", "--nodeid=node-1",
                            "--state-dir=" + os.path.join(LAB, "state"))
        os.makedirs(os.path.join(LAB, "state"))
        cls.driver.start()
        cls.addClassCleanup(cls.driver.stop)

    def mount(self, name, flags):
        """Publish a volume, write through it, and unpublish it."""
        os.makedirs(os.path.join(self.share, name))
        target = os.path.join(LAB, "pods", name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        client = self.driver.client
        volume_id = "%s#%s#%s##" % (HOST, self.share.strip("/"), name)
        patiently(client.NodePublishVolume, volume_id=volume_id,
                  target_path=target, volume_capability=capability(flags=flags),
                  volume_context={"server": HOST, "share": self.share, "subdir": name})
        with open(self.root + target + "/file", "w", encoding="ascii") as file:
            file.write("written")
        with open(os.path.join(self.share, name, "file"), encoding="ascii") as file:
            self.assertEqual(file.read(), "written")
        patiently(client.NodeUnpublishVolume, volume_id=volume_id, target_path=target)

    def test_version_4(self):
        self.mount("four", self.server.flags("4.1"))

    def test_version_3_without_locks(self):
        self.mount("three", self.server.flags("3") + ["nolock"])

    def test_version_3_with_locks(self):
        """The image's mount.nfs starts the image's rpc.statd, by its shell."""
        statd = self.root + "/usr/sbin/rpc.statd"
        self.assertFalse(has_process(statd))
        self.mount("locks", self.server.flags("3"))
        self.assertTrue(has_process(statd))

    def test_mount_program(self):
        """It mounts alone, too."""
        target = os.path.join(LAB, "direct")
        os.makedirs(target)
        done = run("chroot", self.root, "/sbin/mount.nfs", f"{HOST}:{self.share}", target, "-o",
                   ",".join(self.server.flags("4.1")), check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        run("umount", self.root + target)


if __name__ == "__main__":
    assert FOLDER
    harness.main("mounting")
