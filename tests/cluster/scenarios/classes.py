# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Bad StorageClasses: the claim stays Pending, its event says why, and nothing is left."""
from world import Scenario

BAD = {  # parameters, and words of the event
    "no server": ({"server": None}, "server"),
    "no share": ({"share": None}, "share"),
    "unknown key": ({"serverr": "x"}, "serverr"),
    "unknown policy": ({"onDelete": "keep"}, "onDelete: must be delete, retain or archive"),
    "mode": ({"mountPermissions": "0999"}, "mountPermissions: must be an octal number"),
    "owner": ({"uid": "root"}, "uid: must be a number"),
    "way out": ({"subDir": "../elsewhere"}, "subDir"),
    "unknown variable": ({"subDir": "${pvc.metadata.uid}"}, "subDir: unknown variable"),
    "unknown export": ({"share": "/not/exported"}, "/not/exported"),
    "file system": ({"csi.storage.k8s.io/fstype": "xfs"}, "fs_type must be nfs"),
    "nobody answers": ({"server": "10.77.0.99"}, "10.77.0.99"),
    "name without address": ({"server": "nobody.invalid"}, "nobody.invalid"),
}


class Classes(Scenario):
    expected = (("ProvisioningFailed", ""),)

    def check(self, key, storage_class, text):
        name = key.replace(" ", "-")
        self.claim(name, storage_class)
        said = self.until("an event for " + key, lambda: self.refusals(name))
        self.assertIn(text, said[0][0])
        self.assertEqual(self.get_claim(name)["status"]["phase"], "Pending")

    def test_refused(self):
        before = self.cluster.directories(), self.cluster.records()
        for key, (parameters, text) in BAD.items():
            with self.subTest(key):
                self.check(key, self.storage_class(**parameters), text)
        with self.subTest("an option that nodes refuse"):
            self.check("option", self.storage_class(options=["bind"]), "bind")
        self.assertEqual((self.cluster.directories(), self.cluster.records()), before)

    def test_few_events(self):
        """Attempts that fail for one cause are one event, counted."""
        self.claim("data", self.storage_class(server="10.77.0.99"))
        self.until("several attempts",
                   lambda: sum(count for _, count in self.refusals("data")) >= 3)
        said = {message for message, _ in self.refusals("data")}
        self.assertEqual(len(said), 1, said)

    def test_mended(self):
        """The class is replaced by a right one, and the claim is bound."""
        name = self.storage_class(share="/not/exported")
        self.claim("data", name)
        self.until("an event", lambda: self.refusals("data"))
        self.api.delete("StorageClass", name)
        self.classes -= 1
        self.assertEqual(self.storage_class(), name)
        self.bound("data")
