# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Kerberos between node and server, while the controller speaks sec=sys."""
import glob
import os
import shutil
import unittest

import control
from control import Process
from servers import Export, Ganesha, run, wait_for
from world import Scenario

REALM = "CLUSTER.TEST"
NAME = "server.cluster.test"  # of the server's address, for its principal
MODULE = "/usr/lib/uml/modules/*/kernel/net/sunrpc/auth_gss/rpcsec_gss_krb5.ko"

CLIENT = """[libdefaults]
 default_realm = %(realm)s
 dns_lookup_kdc = false
 dns_lookup_realm = false
 ignore_acceptor_hostname = true
[realms]
 %(realm)s = {
  kdc = %(address)s
 }
[domain_realm]
 .cluster.test = %(realm)s
[dbmodules]
 db_module_dir = %(programs)s/lib/krb5/plugins/kdb
"""
KDC = """[kdcdefaults]
 kdc_listen = %(address)s:88
 kdc_tcp_listen = %(address)s:88
[realms]
 %(realm)s = {
  database_name = %(home)s/principals
  key_stash_file = %(home)s/stash
  acl_file = %(home)s/acl
 }
[logging]
 kdc = STDERR
"""
# What an administrator does on a node. Caches of tickets stay in the guest.
SET_UP_NODE = """
    for name in crypto/cbc crypto/cts crypto/hmac net/sunrpc/auth_gss/rpcsec_gss_krb5; do
        insmod /usr/lib/uml/modules/$(uname -r)/kernel/$name.ko 2>/dev/null
    done
    cp %(home)s/krb5.conf /etc/krb5.conf
    cp %(home)s/node.keytab /etc/krb5.keytab
    echo "%(address)s %(name)s" >>/etc/hosts
    mkdir -p /run/rpc_pipefs /run/tickets
    mount -t rpc_pipefs sunrpc /run/rpc_pipefs
    rpc.gssd -f -p /run/rpc_pipefs -d /run/tickets >>%(logs)s/gssd.log 2>&1 &
"""


def why_not():
    """Why this machine has no Kerberos, or None."""
    if not glob.glob(MODULE):
        return "the guest's kernel has no rpcsec_gss_krb5"
    if shutil.which("rpc.gssd") is None:
        return "there is no rpc.gssd"
    return None


@unittest.skipIf(why_not(), why_not())
class Kerberos(Scenario):

    def setUp(self):
        """Start a KDC, a server that knows it, and rpc.gssd on the node."""
        self.home = os.path.join(self.cluster.folder, "kerberos")
        self.share = os.path.join(os.environ["LAB_DISK"], "kerberos")
        self.strict = os.path.join(os.environ["LAB_DISK"], "kerberos-only")
        os.makedirs(self.home)
        self.programs = self.cluster.programs("kerberos")
        values = {"realm": REALM, "address": control.SERVER, "home": self.home, "name": NAME,
                  "programs": self.programs, "logs": self.cluster.logs}
        for name, text in (("krb5.conf", CLIENT), ("kdc.conf", KDC)):
            with open(os.path.join(self.home, name), "w", encoding="ascii") as file:
                file.write(text % values)
        self.start_kdc()
        server = Ganesha(self.home, [
            Export(self.share, security="sys, krb5, krb5i, krb5p", privileged=True),
            Export(self.strict, security="krb5", privileged=True)],
            protocols="4", keytab=os.path.join(self.home, "server.keytab"))
        self.addCleanup(server.stop)
        server.start()
        self.port = "port=%d" % server.port
        self.cluster.node.order(SET_UP_NODE % values)
        super().setUp()

    def start_kdc(self):
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(self.programs, "lib"),
                           KRB5_CONFIG=os.path.join(self.home, "krb5.conf"),
                           KRB5_KDC_PROFILE=os.path.join(self.home, "kdc.conf"))

        def admin(query):
            run(os.path.join(self.programs, "kadmin.local"), "-q", query, env=environment)
        run(os.path.join(self.programs, "kdb5_util"), "create", "-s", "-P", "secret", "-r", REALM,
            env=environment)
        for principal, keytab in (("nfs/" + NAME, "server"), ("host/node1.cluster.test", "node")):
            admin("addprinc -randkey " + principal)
            admin("ktadd -k %s/%s.keytab %s" % (self.home, keytab, principal))
        kdc = Process("krb5kdc", self.cluster.logs, os.path.join(self.programs, "krb5kdc"), "-n",
                      env=environment)
        self.addCleanup(kdc.stop)
        self.assertTrue(wait_for(lambda: "commencing" in kdc.tail() or not kdc.is_running()))
        self.assertTrue(kdc.is_running(), kdc.tail())

    def written(self, flavor):
        """A volume that is mounted with that flavor. The node's own principal is root."""
        self.claim(flavor, self.storage_class(
            share=self.share, options=["nfsvers=4.1", "sec=" + flavor, self.port],
            mountPermissions="0777"))
        volume = self.bound(flavor)
        self.pod(flavor, "grep ' /data ' /proc/mounts; echo text >/data/file; cat /data/file",
                 {"data": flavor})
        mount, text = self.succeeds(flavor).splitlines()
        self.assertIn("sec=%s," % flavor, mount)
        self.assertEqual(text, "text")
        self.delete_pod(flavor)
        with open(os.path.join(self.share, volume, "file"), encoding="ascii") as file:
            self.assertEqual(file.read(), "text\n")
        return volume

    def test_kerberos(self):
        for flavor in ("krb5", "krb5p"):
            with self.subTest(flavor):
                self.written(flavor)
        with self.subTest("a user without a ticket"):
            self.pod("stranger", "touch /data/stranger || echo refused", {"data": "krb5"},
                     securityContext={"runAsUser": 1000})
            self.assertIn("refused", self.succeeds("stranger"))
            self.delete_pod("stranger")
        with self.subTest("an export with Kerberos only"):
            self.claim("strict", self.storage_class(
                share=self.strict, options=["nfsvers=4.1", "sec=krb5", self.port]))
            said = self.until("an event", lambda: [
                message for _, reason, message, _ in self.events("strict")
                if reason == "ProvisioningFailed"])
            self.assertIn("sec=sys", said[0])
        for flavor in ("krb5", "krb5p"):
            self.delete_claim(flavor)
        self.delete_claim("strict")
        self.until("nothing is left", lambda: not self.volumes() and not any(
            self.cluster.records(kind, self.share) for kind in ("volumes", "trash")))
        self.assertEqual(self.cluster.directories(self.share), [])
