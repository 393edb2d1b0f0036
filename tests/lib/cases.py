# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What the tests of the controller against real servers share: a driver, a server with an exported
folder, calls that name them, and looks into that folder. For use inside a lab only.
"""
import contextlib
import os
import subprocess
import sys
import unittest

import grpc

import servers
from csi_client import capability
from driver import Driver
from servers import Export, Ganesha, wait_for

LAB = os.environ["LAB_DIR"]
DISK = os.environ["LAB_DISK"]
CODE = grpc.StatusCode
GIB = 1 << 30
STATE = ".csi-nfs"
SERVER = "127.0.0.1"


class Base(unittest.TestCase):
    """Helpers that every case uses."""

    maxDiff = None

    def fails(self, codes, call, *words, **fields):
        """The call fails with one of these codes, and a message that holds these words."""
        if not isinstance(codes, tuple):
            codes = (codes,)
        try:
            answer = call(**fields)
        except grpc.RpcError as e:
            self.assertIn(e.code(), codes, e.details())
            self.assertTrue(e.details(), "an error without a message")
            for word in words:
                self.assertIn(word.lower(), e.details().lower())
            return e.details()
        self.fail("answered OK: %s" % answer)
        return None


class OnServer:
    """A driver and an nfs-ganesha that exports a folder: mixed into a case beside Base. Each case
    begins with a server that answers, and with a driver that has its usual options and has heard
    from that server, whatever the case before it did."""

    protocols = "3, 4"
    version = "3"
    options = ()  # of the driver

    @classmethod
    def more_exports(cls):
        """What is exported beside the share. cls.place is a folder for it."""
        return []

    @classmethod
    def setUpClass(cls):
        tag = cls.__name__
        cls.place = os.path.join(DISK, tag)
        cls.share = os.path.join(cls.place, "share")
        cls.server = Ganesha(os.path.join(LAB, tag),
                             [Export(cls.share, cls.protocols)] + cls.more_exports(),
                             protocols=cls.protocols)
        cls.server.start()
        cls.driver = Driver(LAB, *cls.options, name=tag)
        try:
            cls.driver.start()
        except servers.Failure:
            cls.server.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            cls.driver.stop()
        finally:
            cls.server.stop()

    def run(self, result=None):
        """Not in setUp(), which every class has its own of."""
        try:
            self.begin_well()
        except (servers.Failure, OSError):
            result.startTest(self)
            result.addError(self, sys.exc_info())
            result.stopTest(self)
            return result
        return super().run(result)

    def begin_well(self):
        cls = type(self)
        if not cls.server.is_running():
            cls.server.start()
        cls.server.thaw()
        if not cls.driver.is_running() or cls.driver.options != cls.options:
            cls.restart(*cls.options)
        if not wait_for(self.is_reached):
            raise servers.Failure("the driver does not reach its server:\n" + cls.driver.tail()
                                  + cls.server.tail())

    @classmethod
    def restart(cls, *flags):
        """The driver anew, as after an upgrade: what it only remembered is gone."""
        cls.driver.stop()
        cls.driver = Driver(LAB, *flags, name=cls.__name__)
        cls.driver.start()

    @contextlib.contextmanager
    def server_down(self):
        """For changes to the exported folder, of which a server that runs would not know."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()
            self.assertTrue(wait_for(self.is_reached), "the driver does not find its server again")

    def server_looks_again(self):
        """After changes to the exported folder that the server has not made: it forgets what it had
        cached."""
        with self.server_down():
            pass

    def is_reached(self):
        """Whether the driver speaks to the server. One that was down is tried again after a while."""
        try:
            self.client.ValidateVolumeCapabilities(
                volume_id=self.volume_id("none"), secrets=self.secrets,
                volume_capabilities=[capability()])
        except grpc.RpcError as e:
            return e.code() != CODE.UNAVAILABLE
        return True

    @property
    def client(self):
        return self.driver.client

    @property
    def secrets(self):
        return {"mountOptions": ",".join(self.server.flags(self.version))}

    def request(self, name, size=GIB, cap=None, share=None, **parameters):
        """The fields of a CreateVolume call; parameters that are None are left out."""
        given = {"server": SERVER, "share": share or self.share}
        given.update({k.replace("__", "/"): v for k, v in parameters.items()})
        given = {k: v for k, v in given.items() if v is not None}
        cap = cap or capability(flags=self.server.flags(self.version))
        fields = {"name": name, "volume_capabilities": [cap], "parameters": given,
                  "secrets": self.secrets}
        if size is not None:
            fields["capacity_range"] = {"required_bytes": size}
        return fields

    def create(self, name, **more):
        return self.client.CreateVolume(**self.request(name, **more)).volume

    def delete(self, volume_id):
        self.client.DeleteVolume(volume_id=volume_id, secrets=self.secrets)

    def volume_id(self, directory, key="", policy="", share=None):
        """As csi-driver-nfs has it: the key where it is another word than the directory."""
        return "#".join((SERVER, (share or self.share).strip("/"), directory, key, policy))

    def path(self, *parts):
        return os.path.join(self.share, *parts)

    def listed(self, share=None):
        """What is on the share, but for the state folder."""
        return sorted(n for n in os.listdir(share or self.share) if n != STATE)

    def records(self, share=None):
        """Everything that lies below the state folder and is not a folder."""
        # Trees may be deeper than os.walk can go, and the purger takes things away meanwhile.
        found = subprocess.run(["find", os.path.join(share or self.share, STATE), "!", "-type",
                                "d", "-print0"], stdout=subprocess.PIPE, check=False,
                               stderr=subprocess.DEVNULL).stdout
        return sorted(set(os.fsdecode(name) for name in found.split(b"\0") if name))

    def is_clean(self, share=None):
        """Waits until nothing is left, the purge in the background done."""
        wait_for(lambda: not self.listed(share) and not self.records(share), 120)
        self.assertEqual(self.listed(share), [])
        self.assertEqual(self.records(share), [])
