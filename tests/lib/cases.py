# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Shared by the tests of the controller against real servers: a driver, a server with an exported
folder, calls that name them, and looks into that folder. For use inside a lab only.
"""
import contextlib
import os
import subprocess
import sys
import unittest
from unittest import mock

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
SCENE_ENTRIES = 60  # lines of a failed case about what is exported


class Base(unittest.TestCase):
    """Helpers of every case."""

    maxDiff = None

    def fails(self, codes, call, *words, **fields):
        """Check that the call fails with one of these codes, and a message with these words."""
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
    """A driver and an nfs-ganesha that exports a folder, as a mix-in beside Base. Each case starts
    with a server that answers and a driver that has its usual options and has reached that server,
    whatever the previous case did."""

    protocols = "3, 4"
    version = "3"
    minor_versions = "0, 1, 2"
    options = ()  # of the driver

    @classmethod
    def more_exports(cls):
        """Return further exports. cls.place is a folder for them."""
        return []

    @classmethod
    def setUpClass(cls):
        tag = cls.__name__
        cls.place = os.path.join(DISK, tag)
        cls.share = os.path.join(cls.place, "share")
        cls.server = Ganesha(os.path.join(LAB, tag),
                             [Export(cls.share, cls.protocols)] + cls.more_exports(),
                             protocols=cls.protocols, minor_versions=cls.minor_versions)
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
        """Begin well. Not in setUp(), which the classes override."""
        try:
            self.begin_well()
        except (servers.Failure, OSError):
            result.startTest(self)
            result.addError(self, sys.exc_info())
            result.stopTest(self)
            return result
        return super().run(result)

    def scene(self):
        """Return what a reader of a failure wants to see: the shares as they are now, and what the
        driver and the server have logged. Links are records, so their texts are shown."""
        found = subprocess.run(["find", self.place, "-printf", "%M %n %U:%G %i %p %l\\n"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", check=False).stdout.splitlines()
        if len(found) > SCENE_ENTRIES:
            found[SCENE_ENTRIES:] = ["and %d more" % (len(found) - SCENE_ENTRIES)]
        return "\n".join(["-- exported"] + found + ["-- the driver's log", self.driver.tail(),
                                                    "-- the server's log", self.server.tail(10)])

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
        """Start a new driver, as after an upgrade: its memory is gone."""
        cls.driver.stop()
        cls.driver = Driver(LAB, *flags, name=cls.__name__)
        cls.driver.start()

    @contextlib.contextmanager
    def server_down(self):
        """Stop the server while the exported folder changes: it would not notice."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()
            self.assertTrue(wait_for(self.is_reached), "the driver does not find its server again")

    def through(self, proxy):
        """Requests that are made in this context lead to the server through the proxy."""
        return mock.patch.multiple(self.server, port=proxy.port, mount_port=proxy.mount_port)

    def server_looks_again(self):
        """Drop the server's caches after a change to the exported folder behind its back."""
        with self.server_down():
            pass

    def forget_failed_case(self, *shares):
        """Empty the shares if a case that failed has left something there. What is in the trash is
        none of that: the purger may still be at work."""
        trash = os.sep + os.path.join(STATE, "trash") + os.sep
        if any(self.listed(share) or [name for name in self.records(share) if trash not in name]
               for share in shares):
            self.empty(*shares)

    def empty(self, *shares):
        """Remove everything on the shares, for good: the server has not seen it go."""
        with self.server_down():
            for share in shares:
                servers.run("find", share, "-mindepth", "1", "-delete")

    def is_reached(self):
        """Return whether the driver reaches the server. After an outage it retries with a delay."""
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
        """Return the fields of a CreateVolume call, without parameters that are None."""
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
        """Return an id as csi-driver-nfs makes it. The key is set if it is not the directory."""
        return "#".join((SERVER, (share or self.share).strip("/"), directory, key, policy))

    def path(self, *parts):
        return os.path.join(self.share, *parts)

    def listed(self, share=None):
        """List the share without the state folder."""
        return sorted(n for n in os.listdir(share or self.share) if n != STATE)

    def records(self, share=None):
        """List everything below the state folder except folders."""
        # Trees may be too deep for os.walk, and the purger removes entries meanwhile.
        found = subprocess.run(["find", os.path.join(share or self.share, STATE), "!", "-type",
                                "d", "-print0"], stdout=subprocess.PIPE, check=False,
                               stderr=subprocess.DEVNULL).stdout
        return sorted(set(os.fsdecode(name) for name in found.split(b"\0") if name))

    def is_clean(self, share=None):
        """Wait for the purge in the background, and check that nothing is left. As long as there is
        a tree in the trash, a list of what else is there may be wrong."""
        trash = os.path.join(share or self.share, STATE, "trash")
        self.assertTrue(wait_for(lambda: not os.path.exists(trash) or not os.listdir(trash), 120),
                        "the trash is not emptied")
        wait_for(lambda: not self.listed(share) and not self.records(share), 120, step=0.1)
        self.assertEqual(self.listed(share), [])
        self.assertEqual(self.records(share), [])
