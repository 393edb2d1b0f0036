# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Checks of the chart, the overlays and the examples in deploy/, for tests/check-manifests."""

import os
import re

import yaml

import tools
from manifests import (DRIVER_NAME, MANIFESTS, NAMESPACE, SIDECARS, SNAPSHOTS, SOURCE, Manifests,
                       StrictLoader, check_elected, check_flags, check_modes, check_pods, name_of,
                       unprivileged_container)


class Rendered(Manifests):
    """Objects that helm or kustomize made."""

    def __init__(self, text):  # pylint: disable=super-init-not-called
        self.folder = None
        self.files = {}
        self.problems = []
        self.objects = tools.objects_of(text)


TOOLS = tools.Tools()
VALUE_FILES = sorted(os.listdir(tools.VALUES))

# What the chart has beyond deploy/: labels of helm, and objects.
CHART_LABELS = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by",
                "app.kubernetes.io/version", "helm.sh/chart")
ONLY_MANIFESTS = (("VolumeSnapshotClass", "csi-nfs-snapclass"),)  # a value of the chart

# A folder of deploy/, and the file of values with which the chart gives the same.
SAME = (
    ("snapshots", None),
    ("kubernetes", "no-snapshots.yaml"),
    ("overlays/inline", "inline.yaml"),
    ("overlays/no-hostnetwork", "no-hostnetwork.yaml"),
    ("overlays/kubelet-dir", "kubelet-dir.yaml"),
)
# The chart takes one image for all pods unless it is told of two, as csi-driver-nfs's chart does.
TWO_IMAGES = ("--set", "image.nfsController.repository=csi-nfs-controller")


def compared(text):
    """Objects by kind and name, without what only a chart has."""
    found = {}
    for one in tools.objects_of(text):
        key = (one["kind"], name_of(one))
        if "helm.sh/hook" in one["metadata"].get("annotations", {}) or key in ONLY_MANIFESTS:
            continue
        template = one.get("spec", {}).get("template", {})
        for labels in (one["metadata"].get("labels", {}),
                       template.get("metadata", {}).get("labels", {})):
            for label in CHART_LABELS:
                labels.pop(label, None)
        if key in found:
            raise ValueError(f"{key[0]} {key[1]} is there twice")
        found[key] = one
    return found


def check_same(_):
    """The chart and the manifests, field by field."""
    for folder, values in SAME:
        chart = compared(TOOLS.helm(*[values] if values else [], options=TWO_IMAGES))
        manifests = compared(TOOLS.kustomize(folder))
        for kind, name in sorted(chart.keys() | manifests.keys()):
            for problem in tools.differences(chart.get((kind, name)), manifests.get((kind, name))):
                yield f"{folder}, {kind} {name}{problem}"


def check_renderings(_):
    """Whatever the values are: types of the API, privileges, sockets, flags."""
    for values in [None, *VALUE_FILES]:
        text = TOOLS.helm(*[values] if values else [])
        for problem in (*TOOLS.strict(text), *rendering_problems(Rendered(text))):
            # Accounts that exist already are not the chart's.
            if values != "everything.yaml" or "no ServiceAccount" not in problem:
                yield f"{values}: {problem}"
    yield from check_lint()


def rendering_problems(rendered):
    # The snapshot controller is no part of the driver.
    rendered.objects = [one for one in rendered.objects
                        if (one["kind"], name_of(one)) != ("Deployment", "snapshot-controller")]
    for check in (check_pods, check_modes, check_flags):
        yield from check(rendered)
    if rendered.pod("Deployment").get("hostNetwork"):
        yield "the controller is in the network of the host"
    for container in rendered.containers("Deployment"):
        yield from check_elected(container)
    driver = rendered.driver("DaemonSet")
    for kind in SIDECARS:
        for container in rendered.containers(kind):
            if container is not driver:
                yield from unprivileged_container(container)


def check_lint():
    """helm's own lint, and the schema."""
    for values in [None, *VALUE_FILES]:
        files = ["--values", os.path.join(tools.VALUES, values)] if values else []
        rc, text = TOOLS.run("helm", "lint", "--strict", tools.CHART, *files)
        if rc != 0:
            yield f"{values}: {' '.join(text.split())}"


# Values that the schema must refuse, and what its message names.
REFUSED = (
    ("controller.replica=2", "replica"),
    ("controller.livenessProbe.healthPort=99999", "healthPort"),
    ("controller.defaultOnDeletePolicy=keep", "defaultOnDeletePolicy"),
    ("driver.mountPermissions=rwx", "mountPermissions"),
    ("driver.mountPermissions=5000", "mountPermissions"),
    ("kubeletDir=relative", "kubeletDir"),
    ("controller.logLevel=verbose", "logLevel"),
    ("image.nfs.digest=latest", "digest"),
    ("image.nfsController.digest=latest", "digest"),
    ("node.inlineVolumes[0]=nfs.example.com", "inlineVolumes"),
    ("volumeAttributesClasses[0].name=a,volumeAttributesClasses[0].parameters.server=b", "server"),
    ("storageClasses[0].reclaimPolicy=Keep", "reclaimPolicy"),
    ("feature.enableInlineVolume=maybe", "enableInlineVolume"),
    ("storageClass.parameters.mountPermissions=rwx", "mountPermissions"),
    ("storageClass.parameters.mountPermissions=0789", "mountPermissions"),
    ("storageClass.parameters.mountPermissions=017777", "mountPermissions"),
    ("volumeAttributesClasses[0].name=a,"
     "volumeAttributesClasses[0].parameters.mountPermissions=0789", "mountPermissions"),
)
# As a file has them: YAML reads 0770 as an octal number, and the driver would get "504".
REFUSED_YAML = (
    ("storageClass: {parameters: {mountPermissions: 0770}}", "mountPermissions"),
    ("storageClass: {parameters: {mountPermissions: true}}", "mountPermissions"),
    ("storageClasses: [{name: a, parameters: {MountPermissions: 0770}}]", "MountPermissions"),
)


def refused(given, named, *options, text=None):
    rc, output = TOOLS.run("helm", "template", tools.CHART, *options, text=text)
    if rc == 0:
        yield f"{given} is accepted"
    elif "schema" not in output or named not in output:
        yield f"{given}: {' '.join(output.split())}"


def check_schema(_):
    for given, named in REFUSED:
        yield from refused(given, named, "--set", given)
    for given, named in REFUSED_YAML:
        yield from refused(given, named, "--values", "-", text=given)
    rc, text = TOOLS.run("helm", "template", tools.CHART, "--kube-version", "1.24.0")
    if rc == 0:
        yield "Kubernetes 1.24 is accepted"
    with open(os.path.join(tools.CHART, "values.yaml"), encoding="utf-8") as file:
        ours = yaml.safe_load(file)
    with open(os.path.join(tools.VALUES, "csi-driver-nfs.yaml"), encoding="utf-8") as file:
        for problem in unknown_keys(yaml.safe_load(file), ours):
            yield f"csi-driver-nfs's value {problem} is not in values.yaml"


def check_old_sidecars(_):
    """Those of csi-driver-nfs's charts up to v4.12.1, whose tags a user's values may have."""
    for name, tag in (("csiProvisioner", "v5.3.0"), ("csiResizer", "v1.14.0"),
                      ("csiSnapshotter", "v8.3.0"), ("externalSnapshotter", "8.3.0")):
        options = ["--set", "externalSnapshotter.enabled=true", "--set"]
        rc, text = TOOLS.run("helm", "template", tools.CHART, *options, f"image.{name}.tag={tag}")
        if rc == 0:
            yield f"{name} {tag} is accepted"
        elif f"image.{name}.tag: {tag}" not in text:
            yield f"{name} {tag}: {' '.join(text.split())}"
        for other in ("v9.0.0", "latest", "v5.3.0-mirror.1"):
            rc, text = TOOLS.run("helm", "template", tools.CHART, *options,
                                 f"image.{name}.tag={other}")
            if rc != 0:
                yield f"{name} {other}: {' '.join(text.split())}"


def unknown_keys(theirs, ours, path=""):
    for key, value in theirs.items():
        if key not in ours:
            yield path + key
        elif isinstance(value, dict) and isinstance(ours[key], dict):
            yield from unknown_keys(value, ours[key], f"{path}{key}.")


POD = "spec/template/spec"
NFS = f"{POD}/containers/nfs"
# What values have to give: a file of values, an object, a field, and what it holds. A callable says
# whether the field is right.
GIVEN = (
    ("csi-driver-nfs.yaml", "Deployment", "csi-nfs-controller", "spec/replicas", 1),
    ("csi-driver-nfs.yaml", "Deployment", "csi-nfs-controller", "spec/strategy/type", "Recreate"),
    ("csi-driver-nfs.yaml", "Deployment", "csi-nfs-controller", f"{POD}/hostNetwork", None),
    ("csi-driver-nfs.yaml", "Deployment", "csi-nfs-controller", f"{NFS}/image",
     lambda image: re.fullmatch(r"csi-nfs:[0-9.]+", image)),
    ("csi-driver-nfs.yaml", "Deployment", "csi-nfs-controller", f"{NFS}/args",
     ["--mode=controller", "--endpoint=unix:///csi/csi.sock"]),
    ("csi-driver-nfs.yaml", "Deployment", "csi-nfs-controller",
     f"{NFS}/resources/limits/memory", "200Mi"),
    ("csi-driver-nfs.yaml", "DaemonSet", "csi-nfs-node", f"{POD}/containers/"
     "node-driver-registrar/args", lambda args: "--timeout=60s" in args),
    ("everything.yaml", "Deployment", "files-controller", "spec/replicas", 3),
    ("everything.yaml", "Deployment", "files-controller", "metadata/labels/team", "storage"),
    ("everything.yaml", "Deployment", "files-controller",
     "spec/template/metadata/labels/team", "storage"),
    ("everything.yaml", "Deployment", "files-controller",
     f"{POD}/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/topologyKey",
     "kubernetes.io/hostname"),
    ("everything.yaml", "Deployment", "files-controller", f"{POD}/affinity/nodeAffinity/"
     "requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
     lambda terms: [term["matchExpressions"][0]["key"] for term in terms] == [
         "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]),
    ("everything.yaml", "Deployment", "files-controller", f"{POD}/nodeSelector",
     {"kubernetes.io/os": "linux", "disk": "fast"}),
    ("everything.yaml", "Deployment", "files-controller", f"{POD}/tolerations", None),
    ("everything.yaml", "Deployment", "files-controller", f"{POD}/topologySpreadConstraints",
     [{"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone",
       "whenUnsatisfiable": "DoNotSchedule",
       "labelSelector": {"matchLabels": {"app": "files-controller"}}}]),
    ("everything.yaml", "Deployment", "files-controller", f"{POD}/securityContext",
     lambda context: context["runAsUser"] == 65532 and "sysctls" in context),
    ("everything.yaml", "Deployment", "files-controller", f"{POD}/containers/csi-provisioner/image",
     "mirror.example.com/k8s/sig-storage/csi-provisioner:6.3"),
    ("everything.yaml", "Deployment", "files-controller", f"{NFS}/image",
     "mirror.example.com/csi-nfs-controller:0.2"),
    ("everything.yaml", "DaemonSet", "files-node", f"{NFS}/image",
     "mirror.example.com/csi-nfs@sha256:" + 4 * "0123456789abcdef"),
    ("everything.yaml", "NetworkPolicy", "files-controller", "spec/podSelector/matchExpressions",
     [{"key": "app", "operator": "In", "values": ["files-controller", "files-controller-test"]}]),
    ("everything.yaml", "Pod", "csi-driver-nfs-test-files", "metadata/labels/app",
     "files-controller-test"),
    ("everything.yaml", "Pod", "csi-driver-nfs-test-files", "spec/containers/nfs/image",
     "mirror.example.com/csi-nfs-controller:0.2"),
    ("second-driver.yaml", "DaemonSet", "csi-nfs2-node", f"{NFS}/image",
     lambda image: re.fullmatch(r"csi-nfs:[0-9.]+", image)),
    ("second-driver.yaml", "Deployment", "csi-nfs2-controller", f"{NFS}/image",
     lambda image: re.fullmatch(r"csi-nfs:[0-9.]+", image)),
    ("everything.yaml", "Deployment", "files-controller", f"{NFS}/args",
     ["--mode=controller", "--endpoint=unix:///csi/csi.sock", "--drivername=files.example.com",
      "--mount-permissions=0770", "--default-ondelete-policy=retain",
      "--enable-snapshot-compression=false", "--log-level=debug", "--log-format=json"]),
    ("everything.yaml", "Deployment", "files-controller", f"{POD}/containers/csi-provisioner/args",
     lambda args: args[-2:] == ["--kube-api-qps=500", "--kube-api-burst=1000"]),
    ("everything.yaml", "PodDisruptionBudget", "files-controller", "spec/maxUnavailable", "50%"),
    ("everything.yaml", "DaemonSet", "files-node", f"{NFS}/args",
     ["--mode=node", "--endpoint=unix:///csi/csi.sock", "--nodeid=$(NODE_ID)",
      "--drivername=files.example.com", "--mount-permissions=0770",
      "--inline-volumes=nfs.example.com:/scratch,[2001:db8::1]:/srv", "--server=nfs.example.com"]),
    ("everything.yaml", "DaemonSet", "files-node", f"{POD}/volumes/socket-dir/hostPath/path",
     "/var/lib/k0s/kubelet/plugins/files.example.com"),
    ("everything.yaml", "DaemonSet", "files-node",
     f"{POD}/volumes/host-nfsmount-conf/hostPath/path", "/etc/nfsmount.conf"),
    ("everything.yaml", "CSIDriver", "files.example.com", "spec/volumeLifecycleModes",
     ["Persistent", "Ephemeral"]),
    ("everything.yaml", "CSIDriver", "files.example.com", "spec/fsGroupPolicy", None),
    ("everything.yaml", "ClusterRole", "files-external-provisioner-role", "rules",
     lambda rules: rules[-1]["resourceNames"] == ["mount-options", "other"]),
    ("everything.yaml", "StorageClass", "files", "parameters/uid", "1000000"),
    ("everything.yaml", "StorageClass", "files", "parameters/MountPermissions", "0750"),
    ("everything.yaml", "StorageClass", "files", "provisioner", "files.example.com"),
    ("everything.yaml", "StorageClass", "files-plain", "parameters",
     {"server": "nfs.example.com", "share": "/srv/plain"}),
    ("everything.yaml", "StorageClass", "files-plain", "allowVolumeExpansion", False),
    ("everything.yaml", "VolumeSnapshotClass", "csi-nfs-snapclass", "parameters/compression",
     "zstd"),
    ("everything.yaml", "VolumeAttributesClass", "files-shared", "driverName", "files.example.com"),
    ("everything.yaml", "NetworkPolicy", "files-controller", "spec/egress",
     lambda rules: len(rules) == 4 and rules[2]["ports"] == [{"port": 2049, "protocol": "TCP"}]),
    ("everything.yaml", "Pod", "csi-driver-nfs-test-files", "spec/containers/nfs/args",
     ["check", "--server=nfs.example.com", "--share=/srv/k8s", "--uid=1000000", "--gid=2000",
      "--mount-options=nfsvers=4.1"]),
    ("everything.yaml", "Deployment", "snapshot-controller", "spec/replicas", 2),
    ("second-driver.yaml", "Deployment", "csi-nfs2-controller", "spec/revisionHistoryLimit", 0),
    ("second-driver.yaml", "DaemonSet", "csi-nfs2-node", "spec/revisionHistoryLimit", 0),
    ("second-driver.yaml", "Deployment", "csi-nfs2-controller", f"{NFS}/args",
     lambda args: "--default-ondelete-policy=Retain" in args),
    ("second-driver.yaml", "DaemonSet", "csi-nfs2-node", f"{POD}/volumes/socket-dir/hostPath/path",
     "/var/lib/kubelet/plugins/nfs2.csi.k8s.io"),
    ("second-driver.yaml", "DaemonSet", "csi-nfs2-node", f"{POD}/volumes/state-dir/hostPath/path",
     "/run/csi-nfs-nfs2.csi.k8s.io"),
)

# What csi-driver-nfs's chart makes: helm upgrade replaces an object of the same kind and name, and
# would delete another one.
THEIRS = {
    ("CSIDriver", "nfs.csi.k8s.io"), ("Deployment", "csi-nfs-controller"),
    ("DaemonSet", "csi-nfs-node"), ("ServiceAccount", "csi-nfs-controller-sa"),
    ("ServiceAccount", "csi-nfs-node-sa"), ("ClusterRole", "nfs-external-provisioner-role"),
    ("ClusterRole", "nfs-external-resizer-role"),
    ("ClusterRoleBinding", "nfs-csi-provisioner-binding"),
    ("ClusterRoleBinding", "nfs-csi-resizer-role"),
}


def check_values(_):
    """Each value has its effect."""
    rendered = {name: tools.objects_of(TOOLS.helm(name)) for name in VALUE_FILES}
    for values, kind, name, path, wanted in GIVEN:
        found = tools.field(rendered[values], kind, name, path)
        right = wanted(found) if callable(wanted) else found == wanted
        if not right:
            yield f"{values}: {path} of {kind} {name} is {found}"
    objects = {(one["kind"], name_of(one)) for one in rendered["csi-driver-nfs.yaml"]}
    for kind, name in sorted(THEIRS - objects):
        yield f"csi-driver-nfs.yaml: no {kind} {name}"
    account = {"kind": "ServiceAccount", "name": "files-controller", "namespace": NAMESPACE}
    for one in rendered["everything.yaml"]:
        if one["kind"].endswith("Binding") and name_of(one).startswith(("files-", "csi-files-")):
            if one["subjects"] != [account]:
                yield f"everything.yaml: {name_of(one)} is for {one['subjects']}"
        elif one["kind"] == "ServiceAccount" and name_of(one) != "snapshot-controller":
            yield f"everything.yaml: makes the account {name_of(one)}"
    yield from check_notes()


def check_notes():
    warnings = {"csi-driver-nfs.yaml": "image of csi-driver-nfs", "everything.yaml": None,
                "inline.yaml": None, "no-hostnetwork.yaml": "node.hostNetwork is false"}
    for values, wanted in warnings.items():
        notes = TOOLS.notes(values)
        if "WARNING" in notes if wanted is None else wanted not in notes:
            yield f"{values}: the notes are {notes!r}"


def without_text(schema, is_properties=False):
    """A schema without the descriptions, with spaces as helm's YAML folds them."""
    if isinstance(schema, dict):
        return {key: without_text(value, key == "properties") for key, value in schema.items()
                if is_properties or not (key == "description" and isinstance(value, str))}
    if isinstance(schema, list):
        return [without_text(one) for one in schema]
    return " ".join(schema.split()) if isinstance(schema, str) else schema


def snapshot_resources():
    """The chart's resources of the snapshot API, by name."""
    return {name_of(one): one for one in tools.objects_of(TOOLS.helm("everything.yaml"))
            if one["kind"] == "CustomResourceDefinition"}


def check_snapshot_api(_):
    """The chart's resources of the snapshot API, and the published ones."""
    ours = snapshot_resources()
    folder = os.path.join(tools.snapshot_api(), "config", "crd")
    for name in ("volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"):
        path = os.path.join(folder, f"snapshot.storage.k8s.io_{name}.yaml")
        with open(path, encoding="utf-8") as file:
            published = yaml.safe_load(file)
        one = ours.pop(name_of(published), None)
        if one is None:
            yield f"no {name}"
            continue
        if one["metadata"]["annotations"].get("helm.sh/resource-policy") != "keep":
            yield f"{name} would be deleted with the release, and all snapshots with it"
        versions = [[version for version in crd["spec"].pop("versions") if version["name"] == "v1"]
                    for crd in (one, published)]
        for problem in tools.differences(without_text([one["spec"], versions[0]]),
                                         without_text([published["spec"], versions[1]])):
            yield f"{name}: {problem}"
    for name in ours:
        yield f"unexpected {name}"


def check_examples(_):
    """Objects for users: types of the API, and of the snapshot API."""
    schemas = {one["spec"]["names"]["kind"]: one["spec"]["versions"][0]["schema"]
               for one in snapshot_resources().values()}
    folder = os.path.join(tools.DEPLOY, "examples")
    files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    for path in [*files, os.path.join(MANIFESTS, "storageclass.yaml"),
                 os.path.join(SNAPSHOTS, "snapshotclass.yaml")]:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for problem in TOOLS.strict(text):
            yield f"{os.path.basename(path)}: {problem}"
        for one in yaml.load_all(text, StrictLoader):
            schema = schemas.get(one["kind"], {}).get("openAPIV3Schema")
            for problem in breaches(one, schema or {}):
                yield f"{os.path.basename(path)}: {one['kind']}{problem}"
            driver = one.get("driver") or one.get("driverName") or \
                one.get("spec", {}).get("csi", {}).get("driver", DRIVER_NAME)
            if driver != DRIVER_NAME:
                yield f"{os.path.basename(path)}: another driver, {driver}"


def breaches(value, schema, path=""):
    """What of a schema of the API server an object does not keep: types, fields, enumerations."""
    types = {"object": dict, "string": str, "array": list, "boolean": bool, "integer": int}
    if "type" in schema and not isinstance(value, types[schema["type"]]):
        yield f"{path} is no {schema['type']}"
    elif value not in schema.get("enum", [value]):
        yield f"{path} is {value}"
    elif isinstance(value, dict) and "properties" in schema:
        for key in schema.get("required", []):
            if key not in value:
                yield f"{path}/{key} is missing"
        for key, inner in value.items():
            if key not in schema["properties"]:
                yield f"{path}/{key} is unknown"
            else:
                yield from breaches(inner, schema["properties"][key], f"{path}/{key}")


def check_distributed(_):
    """Every file below deploy/ and tests/deploy is in the release."""
    with open(os.path.join(SOURCE, "deploy", "Makemodule.am"), encoding="utf-8") as file:
        listed = file.read()
    with open(os.path.join(SOURCE, "tests", "Makemodule.am"), encoding="utf-8") as file:
        listed += file.read()
    listed = set(re.findall(r"^\t(\S+)", listed, re.M))
    for top in ("deploy", os.path.join("tests", "deploy")):
        for folder, _, names in os.walk(os.path.join(SOURCE, top)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), SOURCE)
                if path not in listed and name != "Makemodule.am" and not path.endswith(".pyc"):
                    yield f"{path} is not in EXTRA_DIST"


CHECKS = [
    ("chart: the same as the manifests and overlays", check_same),
    ("chart: types, privileges, flags, for each file of values", check_renderings),
    ("chart: the schema refuses what is wrong", check_schema),
    ("chart: sidecars that are too old are refused", check_old_sidecars),
    ("chart: each value has its effect", check_values),
    ("chart: the snapshot API is the published one", check_snapshot_api),
    ("examples: types", check_examples),
    ("every file is in the release", check_distributed),
]
