# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Nodes that mount with Kerberos, while the controller uses sec=sys."""
import os
import shutil
import socket
import unittest

from control import SERVER, Process
from servers import Export, Failure, run, wait_for
from world import Scenario

REALM = "CLUSTER.TEST"
HOST = "server.cluster.test"
MODULES = ("crypto/cbc", "crypto/cts", "crypto/hmac", "net/sunrpc/auth_gss/rpcsec_gss_krb5")

KRB5_CONF = """[libdefaults]
	default_realm = %(realm)s
	dns_lookup_kdc = false
	dns_lookup_realm = false
	dns_canonicalize_hostname = false
	rdns = false
[realms]
	%(realm)s = {
		kdc = %(server)s
	}
[domain_realm]
	.cluster.test = %(realm)s
"""
KDC_CONF = """[kdcdefaults]
	kdc_listen = 88
	kdc_tcp_listen = 88
[realms]
	%(realm)s = {
		database_name = %(folder)s/principal
		key_stash_file = %(folder)s/stash
		acl_file = %(folder)s/acl
		supported_enctypes = aes256-cts:normal
	}
[dbmodules]
	db_module_dir = %(programs)s/lib/krb5/plugins/kdb
"""
# What an administrator sets up on a node. Prints "ready", or what is missing.
NODE = """
root=/usr/lib/uml/modules/$(uname -r)/kernel
for name in %(modules)s; do
	insmod $root/$name.ko 2>/dev/null
done
if ! grep -q ^rpcsec_gss_krb5 /proc/modules; then
	echo "the guest's kernel has no rpcsec_gss_krb5"
	exit
fi
if ! command -v rpc.gssd >/dev/null; then
	echo "there is no rpc.gssd"
	exit
fi
cp %(folder)s/krb5.conf /etc/krb5.conf
cp %(folder)s/node.keytab /etc/krb5.keytab
echo "%(server)s %(host)s" >>/etc/hosts
mkdir -p /run/rpc_pipefs
mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
rpc.gssd -p /run/rpc_pipefs -vvv -f >%(log)s 2>&1 &
echo $! >/run/gssd.pid
echo ready
"""


def answers(host, port):
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


class Kerberos(Scenario):
    expected = (("ProvisioningFailed", "PermissionDenied .* supports only sec=sys"),)

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.cluster.folder, "kerberos")
        os.makedirs(self.folder)
        self.addCleanup(shutil.rmtree, self.folder)
        self.programs = self.cluster.programs("kerberos")
        self.environment = dict(
            os.environ, LD_LIBRARY_PATH=os.path.join(self.programs, "lib"),
            KRB5_CONFIG=self.file("krb5.conf"), KRB5_KDC_PROFILE=self.file("kdc.conf"))
        self.start_kdc()
        self.start_gssd()

    def file(self, name):
        return os.path.join(self.folder, name)

    def program(self, name, *arguments):
        return run(os.path.join(self.programs, name), *arguments, env=self.environment)

    def start_kdc(self):
        words = {"realm": REALM, "server": SERVER, "folder": self.folder,
                 "programs": self.programs}
        for name, text in (("krb5.conf", KRB5_CONF), ("kdc.conf", KDC_CONF)):
            with open(self.file(name), "w", encoding="ascii") as file:
                file.write(text % words)
        self.program("kdb5_util", "create", "-s", "-P", "secret", "-r", REALM)
        for keytab, principal in (("server", "nfs/" + HOST), ("node", "host/node1.cluster.test")):
            self.program("kadmin.local", "-q", "addprinc -randkey " + principal)
            self.program("kadmin.local", "-q", "ktadd -k %s %s"
                         % (self.file(keytab + ".keytab"), principal))
        kdc = Process("kdc", self.cluster.logs, os.path.join(self.programs, "krb5kdc"), "-n",
                      env=self.environment)
        self.addCleanup(kdc.stop)
        if not wait_for(lambda: answers(SERVER, 88) or not kdc.is_running()) \
                or not kdc.is_running():
            raise Failure("the KDC does not run:\n" + kdc.tail())

    def start_gssd(self):
        said = self.cluster.node.order(NODE % {
            "modules": " ".join(MODULES), "folder": self.folder, "server": SERVER, "host": HOST,
            "log": os.path.join(self.cluster.logs, "gssd.log")}).strip()
        if said != "ready":
            raise unittest.SkipTest(said)
        self.addCleanup(self.cluster.node.order,
                        "kill $(cat /run/gssd.pid); umount /run/rpc_pipefs")

    def export(self, security):
        """Restart the server with another export, of these flavors. Return its path."""
        path = os.path.join(os.path.dirname(self.cluster.export), "kerberos")
        os.makedirs(path, exist_ok=True)
        self.cluster.change_server(
            keytab=self.file("server.keytab"), krb5_conf=self.file("krb5.conf"),
            exports=[*self.cluster.server.exports, Export(path, security=security)])
        return path

    def test_mounted(self):
        """Each flavor: the pod's data arrives, and the mount is not by sec=sys."""
        share = self.export("sys, krb5, krb5i, krb5p")
        for flavor in ("krb5", "krb5p"):
            with self.subTest(flavor):
                self.claim(flavor, self.storage_class(
                    share=share, mountPermissions="0777",
                    options=["nfsvers=4.1", "sec=" + flavor]))
                self.pod(flavor, "echo text >/data/file; cat /data/file; "
                         "grep ' /data ' /proc/mounts", {"data": flavor})
                lines = self.succeeds(flavor).splitlines()
                self.assertEqual(lines[0], "text")
                self.assertIn("sec=%s," % flavor, lines[1])
                self.delete_pod(flavor)

    def test_controller_refused(self):
        """An export without sec=sys: the claim's event says that the controller needs it."""
        share = self.export("krb5")
        self.claim("data", self.storage_class(share=share, options=["nfsvers=4.1", "sec=krb5"]))
        said = self.until("an event", lambda: self.refusals("data"))
        self.assertIn("sec=sys", said[0][0])
