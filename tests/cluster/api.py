# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""A client of the API server: objects are what json.loads() makes of them."""
import http.client
import json
import ssl
import threading

PATHS = {  # kind: API, plural, whether it is in a namespace
    "Namespace": ("api/v1", "namespaces", False),
    "Node": ("api/v1", "nodes", False),
    "PersistentVolume": ("api/v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims", True),
    "Pod": ("api/v1", "pods", True),
    "Secret": ("api/v1", "secrets", True),
    "ServiceAccount": ("api/v1", "serviceaccounts", True),
    "Event": ("api/v1", "events", True),
    "DaemonSet": ("apis/apps/v1", "daemonsets", True),
    "Deployment": ("apis/apps/v1", "deployments", True),
    "Lease": ("apis/coordination.k8s.io/v1", "leases", True),
    "CSINode": ("apis/storage.k8s.io/v1", "csinodes", False),
    "StorageClass": ("apis/storage.k8s.io/v1", "storageclasses", False),
    "VolumeAttributesClass": ("apis/storage.k8s.io/v1", "volumeattributesclasses", False),
    "VolumeSnapshot": ("apis/snapshot.storage.k8s.io/v1", "volumesnapshots", True),
    "VolumeSnapshotClass": ("apis/snapshot.storage.k8s.io/v1", "volumesnapshotclasses", False),
    "VolumeSnapshotContent": ("apis/snapshot.storage.k8s.io/v1", "volumesnapshotcontents", False),
}
MERGE = "application/merge-patch+json"


class Refused(Exception):
    """The API server's answer is an error: code is its HTTP status."""

    def __init__(self, code, text):
        super().__init__("%d: %s" % (code, text))
        self.code = code


def path_of(kind, namespace=None, name=None):
    api, plural, namespaced = PATHS[kind]
    parts = ["", api]
    if namespaced and namespace:
        parts += ["namespaces", namespace]
    parts += [plural] + ([name] if name else [])
    return "/".join(parts)


class Api:
    """One connection for each thread, opened again when it breaks."""

    def __init__(self, host, port, ca, certificate, key):
        self.address = (host, port)
        self.tls = ssl.create_default_context(cafile=ca)
        self.tls.load_cert_chain(certificate, key)
        self.local = threading.local()

    def _connection(self):
        if getattr(self.local, "connection", None) is None:
            self.local.connection = http.client.HTTPSConnection(*self.address, context=self.tls,
                                                                timeout=60)
        return self.local.connection

    def raw(self, method, path, body=None, kind="application/json"):
        """Return (status, text). A GET is sent again on a connection that the server has closed."""
        data = json.dumps(body) if body is not None else None
        for attempt in range(2):
            try:
                connection = self._connection()
                connection.request(method, path, data, {"Content-Type": kind})
                answer = connection.getresponse()
                return answer.status, answer.read().decode("utf-8", "replace")
            except (http.client.HTTPException, OSError):
                self.local.connection = None
                if method != "GET" or attempt:
                    raise
        return None

    def call(self, method, path, body=None, kind="application/json"):
        code, text = self.raw(method, path, body, kind)
        if code >= 300:
            raise Refused(code, text[:800])
        return json.loads(text)

    def get(self, kind, name, namespace=None):
        """Return the object, or None if there is none."""
        try:
            return self.call("GET", path_of(kind, namespace, name))
        except Refused as refused:
            if refused.code != 404:
                raise
            return None

    def list(self, kind, namespace=None):
        return self.call("GET", path_of(kind, namespace))["items"]

    def create(self, kind, name, namespace=None, **fields):
        api = PATHS[kind][0].split("/", 1)[1]
        body = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}
        return self.call("POST", path_of(kind, namespace), body)

    def patch(self, kind, name, change, namespace=None):
        return self.call("PATCH", path_of(kind, namespace, name), change, MERGE)

    def delete(self, kind, name, namespace=None, **options):
        """Return False if there is no such object."""
        code, text = self.raw("DELETE", path_of(kind, namespace, name), options or None)
        if code >= 300 and code != 404:
            raise Refused(code, text[:800])
        return code != 404
