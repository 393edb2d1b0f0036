# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""An export that squashes root: uid and gid of a class, and what fails without them."""
import os
import stat

from world import OWNER, Scenario

WHO = {"runAsUser": OWNER, "runAsGroup": OWNER}


class Squash(Scenario):

    def squashed(self, **parameters):
        """A class of that export, whose directory belongs to a user."""
        return self.storage_class(share=self.cluster.squashed, **parameters)

    def owned(self):
        return self.squashed(uid=str(OWNER), gid=str(OWNER), mountPermissions="0770")

    def where(self, volume):
        return os.path.join(self.cluster.squashed, volume)

    def test_without_owner(self):
        """The event says what the administrator has to look at, and nothing is left."""
        self.claim("data", self.squashed())
        said = self.until("an event", lambda: [
            message for _, reason, message, _ in self.events("data")
            if reason == "ProvisioningFailed"])
        self.assertIn("PermissionDenied", said[0])
        self.assertIn("squash", said[0])
        self.assertEqual(self.cluster.directories(self.cluster.squashed), [])

    def test_life(self):
        """A pod of that user writes; a snapshot, a clone and a restored volume are that user's."""
        name = self.owned()
        self.claim("data", name)
        volume = self.bound("data")
        status = os.stat(self.where(volume))
        self.assertEqual((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid),
                         (0o770, OWNER, OWNER))
        self.pod("writer", "echo text >/data/file; stat -c '%u %g' /data/file", {"data": "data"},
                 securityContext=WHO)
        self.assertEqual(self.succeeds("writer").split(), [str(OWNER), str(OWNER)])
        self.delete_pod("writer")
        self.snapshot("snap", "data")
        self.ready("snap")
        self.claim("clone", name, dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
        self.claim("restored", name, dataSource={
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"})
        wanted = self.tree(self.where(volume))
        for copy in ("clone", "restored"):
            self.assertEqual(self.tree(self.where(self.bound(copy))), wanted)
        self.pod("reader", "cat /clone/file /restored/file",
                 {"clone": "clone", "restored": "restored"}, securityContext=WHO)
        self.assertEqual(self.succeeds("reader"), "text\ntext\n")
        self.delete_pod("reader")
        self.delete_claim("data")
        self.gone(volume)
        self.assertFalse(os.path.exists(self.where(volume)))

    def test_fs_group(self):
        """The kubelet, which is root, cannot look into a directory that is closed to others: the
        pod's event says so. It cannot give an open one to a group, but starts the pod."""
        self.claim("closed", self.owned())
        self.claim("open", self.squashed(uid=str(OWNER), gid=str(OWNER), mountPermissions="0775"))
        group = dict(WHO, fsGroup=4321)
        self.pod("closed", "true", {"data": "closed"}, securityContext=group)
        self.pod("open", "stat -c %g /data", {"data": "open"}, securityContext=group)
        self.until("an event", lambda: [
            message for _, reason, message, _ in self.events("closed")
            if reason == "FailedMount" and "applyFSGroup" in message
            and "permission denied" in message])
        self.assertEqual(self.succeeds("open").strip(), str(OWNER))
