# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The life of a volume, with each policy."""
import os
import stat

from world import Scenario


class Volumes(Scenario):

    def test_delete(self):
        self.claim("data", self.storage_class())
        volume = self.bound("data")
        self.assertTrue(os.path.isdir(self.path(volume)))
        self.assertIn(volume, self.cluster.records())
        pv = self.api.get("PersistentVolume", volume)
        self.assertEqual(pv["spec"]["capacity"]["storage"], "1Gi")
        self.assertEqual(pv["spec"]["mountOptions"], ["nfsvers=4.1"])
        self.delete_claim("data")
        self.gone(volume)
        self.assertFalse(os.path.exists(self.path(volume)))
        self.assertNotIn(volume, self.cluster.records())

    def test_retain_by_class(self):
        """reclaimPolicy: Retain: the driver is not asked, the PV and its directory stay."""
        self.claim("data", self.storage_class(reclaim="Retain"))
        volume = self.bound("data")
        self.delete_claim("data")
        self.until("the volume is released", lambda: self.api.get(
            "PersistentVolume", volume)["status"]["phase"] == "Released")
        self.assertTrue(os.path.isdir(self.path(volume)))
        self.api.patch("PersistentVolume", volume,
                       {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
        self.gone(volume)
        self.assertFalse(os.path.exists(self.path(volume)))

    def test_retain_by_driver(self):
        self.claim("data", self.storage_class(onDelete="retain"))
        volume = self.bound("data")
        with open(self.path(volume, "file"), "w", encoding="ascii") as file:
            file.write("kept")
        self.delete_claim("data")
        self.gone(volume)
        self.assertEqual(os.listdir(self.path(volume)), ["file"])
        self.assertNotIn(volume, self.cluster.records())
        os.unlink(self.path(volume, "file"))
        os.rmdir(self.path(volume))

    def test_archive(self):
        self.claim("data", self.storage_class(onDelete="archive"))
        volume = self.bound("data")
        with open(self.path(volume, "file"), "w", encoding="ascii") as file:
            file.write("kept")
        self.delete_claim("data")
        self.gone(volume)
        self.assertFalse(os.path.exists(self.path(volume)))
        self.assertEqual(os.listdir(self.path("archived-" + volume)), ["file"])
        os.unlink(self.path("archived-" + volume, "file"))
        os.rmdir(self.path("archived-" + volume))

    def test_template(self):
        """subDir is filled in from the claim. The parents, which all of these calls make at once,
        go with the last volume."""
        storage_class = self.storage_class(
            subDir="teams/${pvc.metadata.namespace}/${pvc.metadata.name}")
        names = ["claim-%d" % number for number in range(8)]
        for name in names:
            self.claim(name, storage_class)
        volumes = [self.bound(name) for name in names]
        self.assertEqual(sorted(os.listdir(self.path("teams", self.namespace))), names)
        for name in names:
            self.delete_claim(name)
        for volume in volumes:
            self.gone(volume)
        self.assertFalse(os.path.exists(self.path("teams")))

    def test_mode_and_owner(self):
        self.claim("data", self.storage_class(mountPermissions="2770", uid="1234", gid="2345"))
        status = os.stat(self.path(self.bound("data")))
        self.assertEqual((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid),
                         (0o2770, 1234, 2345))

    def test_access_modes(self):
        storage_class = self.storage_class()
        modes = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
        for mode in modes:
            self.claim(mode.lower(), storage_class, modes=[mode])
        for mode in modes:
            volume = self.bound(mode.lower())
            pv = self.api.get("PersistentVolume", volume)
            self.assertEqual(pv["spec"]["accessModes"], [mode])
