# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The server hangs, or is killed, for 30 s, while claims come and go."""
import time

from world import Scenario, measured

CLAIMS = 20
SECONDS = 30


class Outage(Scenario):
    expected = (("ProvisioningFailed", "Unavailable .* (does not answer|Connection refused)"),
                ("ProvisioningFailed", "DeadlineExceeded"))

    def through(self, begin, end):
        """Create and delete claims through an outage. Return the seconds from the server's return
        to the last claim bound, and to the last volume deleted."""
        storage_class = self.storage_class()
        old = []
        for number in range(CLAIMS):
            self.claim("old-%d" % number, storage_class)
        for number in range(CLAIMS):
            old.append(self.bound("old-%d" % number))
        begin()
        try:
            for number in range(CLAIMS):
                self.claim("new-%d" % number, storage_class)
                self.delete_claim("old-%d" % number)
            time.sleep(SECONDS)
        finally:
            end()
        back = time.monotonic()
        for number in range(CLAIMS):
            self.bound("new-%d" % number, 300)
        bound = time.monotonic() - back
        for volume in old:
            self.gone(volume, 300)
        deleted = time.monotonic() - back
        said = {message for number in range(CLAIMS)
                for _, reason, message, _ in self.events("new-%d" % number)
                if reason == "ProvisioningFailed"}
        measured("last claim bound %.1f s after the server's return, last volume deleted %.1f s; "
                 "%d different texts of events", bound, deleted, len(said))
        for volume in old:
            self.assertNotIn(volume, self.cluster.records())
            self.assertNotIn(volume, self.cluster.directories())

    def test_hung(self):
        self.through(self.cluster.server.freeze, self.cluster.server.thaw)

    def test_killed(self):
        self.through(self.cluster.server.kill, self.cluster.server.start)
