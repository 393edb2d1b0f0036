# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""VolumeAttributesClasses: at creation, changed later, and refused."""
import os
import shutil
import stat

from world import Scenario


class Attributes(Scenario):
    expected = (
        ("VolumeModifyFailed", "unknown parameter 'share'"),  # test_refused
        # csi-resizer saw the claim's change before the class, which it has of another watch.
        ("VolumeModifyFailed", '^VAC "right" does not exist'),
    )

    def owner(self, volume):
        status = os.stat(self.path(volume))
        return oct(stat.S_IMODE(status.st_mode)), status.st_uid, status.st_gid

    def current(self, name):
        return self.get_claim(name)["status"].get("currentVolumeAttributesClassName")

    def change(self, name, attributes_class):
        self.api.patch("PersistentVolumeClaim", name,
                       {"spec": {"volumeAttributesClassName": attributes_class}}, self.namespace)

    def test_created_with_a_class(self):
        self.attributes_class("narrow", mountPermissions="0700", uid="1000")
        self.claim("data", self.storage_class(mountPermissions="0777"),
                   volumeAttributesClassName="narrow")
        self.assertEqual(self.owner(self.bound("data"))[:2], ("0o700", 1000))

    def test_changed(self):
        self.attributes_class("narrow", mountPermissions="0700", gid="1000")
        self.attributes_class("wide", mountPermissions="2775", gid="2000", onDelete="retain")
        self.claim("data", self.storage_class(), volumeAttributesClassName="narrow")
        volume = self.bound("data")
        self.change("data", "wide")
        self.until("the class is changed", lambda: self.current("data") == "wide")
        self.assertEqual(self.owner(volume), ("0o2775", 0, 2000))
        self.delete_claim("data")
        self.gone(volume)
        self.assertTrue(os.path.isdir(self.path(volume)))
        # The id says "delete". If a deletion is repeated, notes tell that the directory stays.
        for name in (volume, volume + "%"):
            folder = self.path(".csi-nfs", "users", name)
            self.assertEqual(os.listdir(folder), [volume + "~retain"])
            shutil.rmtree(folder)
        os.rmdir(self.path(volume))

    def test_refused(self):
        """A class with a key of a StorageClass: an event says so, and the volume is as it was."""
        self.attributes_class("moving", share="/elsewhere")
        self.claim("data", self.storage_class(mountPermissions="0750"))
        volume = self.bound("data")
        self.change("data", "moving")
        said = self.until("an event", lambda: [
            message for kind, reason, message, _ in self.events("data")
            if kind == "Warning" and "share" in message])
        self.assertTrue(said)
        self.assertEqual(self.owner(volume)[0], "0o750")
        self.attributes_class("right", mountPermissions="0700")
        self.change("data", "right")
        self.until("the class is changed", lambda: self.current("data") == "right")
        self.assertEqual(self.owner(volume)[0], "0o700")
