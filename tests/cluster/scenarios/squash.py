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
        """The kubelet, which is root, cannot give the files to a group, and cannot even look into
        a directory that is closed to others: the pods' events say so."""
        for mode, text in (("0770", "permission denied"), ("0775", "operation not permitted")):
            name = "mode-" + mode
            self.claim(name, self.squashed(uid=str(OWNER), gid=str(OWNER), mountPermissions=mode))
            self.pod(name, "true", {"data": name}, securityContext=dict(WHO, fsGroup=4321))
            self.until("an event", lambda name=name, text=text: [
                message for _, reason, message, _ in self.events(name)
                if reason == "FailedMount" and "applyFSGroup" in message and text in message])
