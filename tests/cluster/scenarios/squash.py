# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""An export that squashes root: a class with uid and gid, and one without."""
import os
import shutil

from servers import Export
from world import Scenario

OWNER = 1000
USER = {"runAsUser": OWNER, "runAsGroup": OWNER}


class Squash(Scenario):
    expected = (("ProvisioningFailed", "PermissionDenied .* check squashing"),)

    def setUp(self):
        self.addCleanup(self.check_nothing_is_left)
        super().setUp()
        self.share = os.path.join(os.path.dirname(self.cluster.export), "squashed")
        os.makedirs(self.share)
        os.chown(self.share, OWNER, OWNER)
        os.chmod(self.share, 0o711)
        self.cluster.change_server(exports=[
            *self.cluster.server.exports,
            Export(self.share, squash="Root_Squash", privileged=True)])

    def check_nothing_is_left(self):
        """After the case's claims are deleted."""
        own = os.path.join(self.share, ".csi-nfs")
        self.assertEqual([n for n in os.listdir(self.share) if n != ".csi-nfs"], [])
        for folder in ("volumes", "snapshots"):
            path = os.path.join(own, folder)
            self.assertEqual(os.listdir(path) if os.path.isdir(path) else [], [], folder)
        shutil.rmtree(self.share)

    def test_owner(self):
        """Root is nobody on this server: all is done as the class's user, and pods run as it."""
        storage_class = self.storage_class(share=self.share, uid=str(OWNER), gid=str(OWNER),
                                           mountPermissions="0770")
        self.claim("data", storage_class)
        self.pod("writer", "echo text >/data/file; stat -c '%u %g %a' /data /data/file",
                 {"data": "data"}, securityContext=USER)
        self.assertEqual(self.succeeds("writer").splitlines(), ["1000 1000 770", "1000 1000 644"])
        self.snapshot("snap", "data")
        self.clone("clone", "data", storage_class)
        self.ready("snap")
        self.restore("restored", "snap", storage_class)
        self.pod("reader", "cat /clone/file /restored/file; echo more >>/clone/file",
                 {"clone": "clone", "restored": "restored"}, securityContext=USER)
        self.assertEqual(self.succeeds("reader"), "text\ntext\n")
        self.pod("stranger", "cat /data/file && exit 1; echo refused", {"data": "data"},
                 securityContext={"runAsUser": OWNER + 1, "runAsGroup": OWNER + 1})
        self.assertEqual(self.succeeds("stranger").splitlines()[-1], "refused")

    def test_no_owner(self):
        """Without uid the server refuses, and the claim's event says what to look at."""
        self.claim("data", self.storage_class(share=self.share))
        said = self.until("an event", lambda: self.refusals("data"))
        self.assertIn("PermissionDenied", said[0][0])
        self.assertIn("squashing", said[0][0])
