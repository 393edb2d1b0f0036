# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Checks of the manifests in deploy/kubernetes and deploy/snapshots, for tests/check-manifests."""

import os
import re
import subprocess
import sys

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
MANIFESTS = os.path.join(SOURCE, "deploy", "kubernetes")
SNAPSHOTS = os.path.join(SOURCE, "deploy", "snapshots")
MAN_PAGE = os.path.join(SOURCE, "man", "csi-nfs.8.in")

DRIVER_NAME = "nfs.csi.k8s.io"
NAMESPACE = "kube-system"
DRIVER = "nfs"  # name of the container of csi-nfs itself

# What there has to be, by kind and name: the names are csi-driver-nfs's, for a drop-in.
OBJECTS = {
    ("CSIDriver", DRIVER_NAME): "storage.k8s.io/v1",
    ("ClusterRole", "nfs-external-provisioner-role"): "rbac.authorization.k8s.io/v1",
    ("ClusterRole", "nfs-external-resizer-role"): "rbac.authorization.k8s.io/v1",
    ("ClusterRoleBinding", "nfs-csi-provisioner-binding"): "rbac.authorization.k8s.io/v1",
    ("ClusterRoleBinding", "nfs-csi-resizer-role"): "rbac.authorization.k8s.io/v1",
    ("DaemonSet", "csi-nfs-node"): "apps/v1",
    ("PodDisruptionBudget", "csi-nfs-controller"): "policy/v1",
    ("Deployment", "csi-nfs-controller"): "apps/v1",
    ("Kustomization", None): "kustomize.config.k8s.io/v1beta1",
    ("Role", "csi-nfs-leader-election"): "rbac.authorization.k8s.io/v1",
    ("RoleBinding", "csi-nfs-leader-election"): "rbac.authorization.k8s.io/v1",
    ("ServiceAccount", "csi-nfs-controller-sa"): "v1",
    ("ServiceAccount", "csi-nfs-node-sa"): "v1",
    ("StorageClass", "nfs-csi"): "storage.k8s.io/v1",
}
NAMESPACED = ("DaemonSet", "Deployment", "PodDisruptionBudget", "Role", "RoleBinding",
              "ServiceAccount")

# What the sidecars ask of the API server, as (group, resource): verbs. From the code of
# csi-provisioner v6.3.0, for a driver without topology and capacity, and of csi-resizer v2.2.1 with
# --handle-volume-inuse-error=false, for which it watches no pods. An event recorder only creates
# and patches; leader election gets, creates and updates its lease.
READ = {"get", "list", "watch"}
EVENTS = {"create", "patch"}
RESIZER_RIGHTS = {
    ("", "persistentvolumes"): READ | {"patch"},
    ("", "persistentvolumeclaims"): READ,
    ("", "persistentvolumeclaims/status"): {"patch"},
    ("storage.k8s.io", "volumeattributesclasses"): READ,
    ("", "events"): EVENTS,
}
CLUSTER_RIGHTS = {
    ("", "persistentvolumes"): READ | {"create", "patch", "delete"},
    ("", "persistentvolumeclaims"): READ | {"update"},
    ("storage.k8s.io", "storageclasses"): READ,
    ("storage.k8s.io", "volumeattributesclasses"): READ,
    ("", "events"): EVENTS,
}
# Of csi-snapshotter v8.6.0, and of csi-provisioner for volumes that are made of a snapshot.
SNAPSHOT_GROUP = "snapshot.storage.k8s.io"
SNAPSHOTTER_RIGHTS = {
    (SNAPSHOT_GROUP, "volumesnapshotclasses"): READ,
    (SNAPSHOT_GROUP, "volumesnapshots"): READ | {"update"},
    (SNAPSHOT_GROUP, "volumesnapshotcontents"): READ | {"patch"},
    (SNAPSHOT_GROUP, "volumesnapshotcontents/status"): {"update", "patch"},
    ("", "events"): EVENTS,
}
SNAPSHOTTER = "csi-snapshotter:v8.6.0"
NAMESPACE_RIGHTS = {
    ("coordination.k8s.io", "leases"): {"get", "create", "update"},
}

SIDECARS = {
    "Deployment": {"csi-provisioner": "v6.3.0", "csi-resizer": "v2.2.1",
                   "livenessprobe": "v2.19.0"},
    "DaemonSet": {"csi-node-driver-registrar": "v2.17.0", "livenessprobe": "v2.19.0"},
}
HEALTH_PORTS = {"Deployment": 29652, "DaemonSet": 29653}
REGISTRAR_PORT = 19809
PLUGIN_DIR = "/var/lib/kubelet/plugins/csi-nfsplugin"


class StrictLoader(yaml.SafeLoader):
    """Takes no key twice: plain YAML would silently let the last one win."""


def construct_mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = sorted({str(key) for key in keys if keys.count(key) > 1})
    if twice:
        raise yaml.constructor.ConstructorError(
            None, None, f"key given twice: {', '.join(twice)}", node.start_mark)
    return loader.construct_mapping(node, deep=True)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct_mapping)


class Manifests:
    """Every object of the folder."""

    def __init__(self, folder=MANIFESTS):
        self.folder = folder
        self.files = {}
        self.problems = []
        for name in sorted(os.listdir(folder)):
            if name.endswith((".yaml", ".yml")):
                self.files[name] = self.load(name)
        self.objects = [one for file in self.files.values() for one in file]

    def load(self, name):
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                objects = list(yaml.load_all(file, StrictLoader))
        except (OSError, yaml.YAMLError) as problem:
            self.problems.append(f"{name}: {' '.join(str(problem).split())}")
            return []
        bad = [one for one in objects if not isinstance(one, dict)]
        if bad:
            self.problems.append(f"{name}: holds an empty document or one that is no object")
        return [one for one in objects if isinstance(one, dict)]

    def all(self, kind):
        return [one for one in self.objects if one.get("kind") == kind]

    def one(self, kind, name=None):
        found = [one for one in self.all(kind) if name in (None, name_of(one))]
        if len(found) != 1:
            raise LookupError(f"{len(found)} objects of kind {kind}, not 1")
        return found[0]

    def pod(self, kind):
        return self.one(kind)["spec"]["template"]["spec"]

    def containers(self, kind):
        return self.pod(kind)["containers"] + self.pod(kind).get("initContainers", [])

    def driver(self, kind):
        found = [one for one in self.containers(kind) if one["name"] == DRIVER]
        if len(found) != 1:
            raise LookupError(f"{len(found)} containers called {DRIVER} in the {kind}, not 1")
        return found[0]


def name_of(thing):
    return thing.get("metadata", {}).get("name")


def image_parts(image):
    """The last component of an image's name, and its tag, "" when there is none."""
    base, _, tag = image.rpartition("/")[2].partition(":")
    return base, tag


def arguments(container):
    """Flags of a container without their dashes, and their values, "" for a switch."""
    parsed = {}
    for word in container.get("args", []):
        flag, _, value = str(word).partition("=")
        parsed[flag.lstrip("-")] = value
    return parsed


def volume_source(pod, name):
    for volume in pod.get("volumes", []):
        if volume["name"] == name:
            return volume
    return None


# Checks take the manifests and yield what is wrong.

def check_syntax(manifests):
    if not manifests.files:
        yield f"no manifests in {MANIFESTS}"
    yield from manifests.problems


def check_objects(manifests):
    found = {(one.get("kind"), name_of(one)): one.get("apiVersion") for one in manifests.objects}
    for key, version in OBJECTS.items():
        if key not in found:
            yield f"no {key[0]} {key[1] or ''}".rstrip()
        elif found[key] != version:
            yield f"{key[0]} {key[1]}: apiVersion {found[key]}, not {version}"
    for key in found.keys() - OBJECTS.keys():
        yield f"unexpected {key[0]} {key[1]}"
    if len(found) != len(manifests.objects):
        yield "an object is there twice"
    for one in manifests.objects:
        namespace = one.get("metadata", {}).get("namespace")
        wanted = NAMESPACE if one.get("kind") in NAMESPACED else None
        if namespace != wanted:
            yield f"{one.get('kind')} {name_of(one)}: namespace {namespace}, not {wanted}"


def check_kustomization(manifests):
    listed = manifests.one("Kustomization").get("resources", [])
    there = set(manifests.files) - {"kustomization.yaml", "storageclass.yaml"}
    for name in sorted(there ^ set(listed)):
        yield f"{name}: {'not listed' if name in there else 'listed, but not there'}"


def check_csidriver(manifests):
    driver = manifests.one("CSIDriver")
    wanted = {
        "attachRequired": False,  # the default, true, leaves every pod waiting
        "podInfoOnMount": False,
        "requiresRepublish": False,
        "seLinuxMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "File",
        "volumeLifecycleModes": ["Persistent"],
    }
    for key, value in wanted.items():
        if driver["spec"].get(key) != value:
            yield f"{key} is {driver['spec'].get(key)}, not {value}"
    provisioner = manifests.one("StorageClass").get("provisioner")
    if provisioner != name_of(driver):
        yield f"the StorageClass names another driver, {provisioner}"
    for kind in SIDECARS:
        named = arguments(manifests.driver(kind)).get("drivername", DRIVER_NAME)
        if named != name_of(driver):
            yield f"{kind}: --drivername is {named}"


def check_unprivileged(manifests):
    pod = manifests.pod("Deployment")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield f"{key} is set"
    for volume in pod.get("volumes", []):
        if "hostPath" in volume:
            yield f"volume {volume['name']} is a hostPath"
    context = pod.get("securityContext", {})
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "no seccomp profile"
    low_ports = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}
    if low_ports not in context.get("sysctls", []):
        yield "no right to source ports below 1024, which exports want by default"
    for container in manifests.containers("Deployment"):
        yield from unprivileged_container(container)


def unprivileged_container(container):
    context = container.get("securityContext", {})
    capabilities = context.get("capabilities", {})
    if context.get("privileged"):
        yield f"{container['name']} is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{container['name']} may escalate privileges"
    if context.get("readOnlyRootFilesystem") is not True:
        yield f"{container['name']} has a writable root file system"
    if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
        yield f"{container['name']} keeps capabilities"
    for port in container.get("ports", []):
        if "hostPort" in port:
            yield f"{container['name']} takes a port of the host"


# Sidecars that work for one replica at a time.
ELECTED = ("csi-provisioner", "csi-resizer", "csi-snapshotter")


def check_replicas(manifests):
    deployment = manifests.one("Deployment")
    if deployment["spec"].get("replicas", 1) < 2:
        yield "one replica only"
    budget = manifests.one("PodDisruptionBudget")["spec"]
    if budget != {"maxUnavailable": 1, "selector": deployment["spec"]["selector"]}:
        yield f"the PodDisruptionBudget is {budget}"
    for container in manifests.containers("Deployment"):
        yield from check_elected(container)


def longest_hold():
    """Seconds for which the driver may hold a call while a server does not answer."""
    with open(os.path.join(SOURCE, "src", "grpc", "limits.h"), encoding="ascii") as file:
        limits = dict(re.findall(r"#define (GRPC_HOLD_\w+) (\d+)U", file.read()))
    return (int(limits["GRPC_HOLD_MS"]) + int(limits["GRPC_HOLD_MARGIN_MS"])) / 1000


def check_elected(container):
    if image_parts(container["image"])[0] not in ELECTED:
        return
    given = arguments(container)
    if given.get("leader-election") not in ("", "true"):
        yield f"{container['name']} elects no leader"
    # A gate that is set to false keeps a sidecar from finding out what the API server has.
    if given.get("feature-gates") != "ReleaseLeaderElectionOnExit=true":
        yield f"{container['name']}: --feature-gates is {given.get('feature-gates')}"
    timeout = re.fullmatch(r"(\d+)s", given.get("timeout", "10s"))  # the sidecars' default
    if not timeout or int(timeout[1]) <= longest_hold():
        yield f"{container['name']} may give up a call that the driver holds"


def check_node(manifests):
    pod = manifests.pod("DaemonSet")
    if pod.get("hostNetwork") is not True:
        yield "no hostNetwork: mounts would lose their connection with the pod"
    if pod.get("automountServiceAccountToken") is not False:
        yield "pods get a token for the API server"
    if {"operator": "Exists"} not in pod.get("tolerations", []):
        yield "does not run on every node"
    driver = manifests.driver("DaemonSet")
    if driver.get("securityContext", {}).get("privileged") is not True:
        yield "csi-nfs is not privileged"
    for container in manifests.containers("DaemonSet"):
        if container is not driver:
            yield from unprivileged_container(container)
    for mount in driver.get("volumeMounts", []):
        path = (volume_source(pod, mount["name"]) or {}).get("hostPath", {}).get("path")
        if path == "/var/lib/kubelet/pods":
            if mount["mountPath"] != path:
                yield f"{path} is mounted elsewhere: kubelet's target paths would not be there"
            if mount.get("mountPropagation") != "Bidirectional":
                yield f"{path} is not Bidirectional: mounts would not reach the host"
            return
    yield "csi-nfs does not see /var/lib/kubelet/pods"


def check_pods(manifests):
    accounts = {name_of(one) for one in manifests.all("ServiceAccount")}
    for kind in SIDECARS:
        spec = manifests.one(kind)["spec"]
        labels = spec["template"]["metadata"]["labels"]
        selector = spec["selector"]["matchLabels"]
        pod = manifests.pod(kind)
        # A selector cannot be changed later: it has to be csi-driver-nfs's.
        if selector != {"app": name_of(manifests.one(kind))}:
            yield f"{kind}: selector {selector}"
        if not selector.items() <= labels.items():
            yield f"{kind}: its pods do not match its selector"
        if pod.get("serviceAccountName") not in accounts:
            yield f"{kind}: no ServiceAccount {pod.get('serviceAccountName')}"
        for container in manifests.containers(kind):
            yield from check_container(kind, pod, container)


def check_container(kind, pod, container):
    where = f"{kind}, {container['name']}"
    for mount in container.get("volumeMounts", []):
        if volume_source(pod, mount["name"]) is None:
            yield f"{where}: no volume {mount['name']}"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield f"{where}: no memory limit"
    known = {variable["name"] for variable in container.get("env", [])}
    for word in container.get("args", []):
        for variable in re.findall(r"\$\(([^)]*)\)", str(word)):
            if variable not in known:
                yield f"{where}: no environment variable {variable}"


def check_modes(manifests):
    for kind, mode in (("Deployment", "controller"), ("DaemonSet", "node")):
        given = arguments(manifests.driver(kind)).get("mode")
        if given != mode:
            yield f"{kind}: --mode is {given}, not {mode}"


def known_flags(binary):
    """Options of csi-nfs and where they were found."""
    if binary is None:
        with open(MAN_PAGE, encoding="utf-8") as file:
            text = file.read().replace("\\-", "-")
        return set(re.findall(r"^\.T[PQ]\n\.BR --([a-z][a-z0-9-]*)", text, re.M)), "the man page"
    run = subprocess.run([binary, "--help"], stdout=subprocess.PIPE, text=True, check=True)
    return set(re.findall(r"^\s+--([a-z][a-z0-9-]*)", run.stdout, re.M)), "--help"


def check_flags(manifests):
    binary = sys.argv[1] if len(sys.argv) > 1 else None
    known, where = known_flags(binary)
    if not known:
        yield f"no options in {where}"
    for kind in SIDECARS:
        for flag in sorted(arguments(manifests.driver(kind)).keys() - known):
            yield f"{kind}: --{flag} is not in {where}"


def check_sockets(manifests):
    for kind in SIDECARS:
        pod = manifests.pod(kind)
        driver = manifests.driver(kind)
        endpoint = arguments(driver).get("endpoint", "")
        socket = socket_at(pod, driver, endpoint.removeprefix("unix://"))
        if not endpoint.startswith("unix:///") or socket is None:
            yield f"{kind}: --endpoint={endpoint} is on no volume of the pod"
            continue
        for container in manifests.containers(kind):
            if container is driver:
                continue
            address = arguments(container).get("csi-address", "")
            if socket_at(pod, container, address) != socket:
                yield f"{kind}, {container['name']}: csi-nfs does not serve {address}"
        yield from check_registration(kind, manifests, pod, socket)


def socket_at(pod, container, path):
    """The volume and the name in it that a path of a container means; None on no volume."""
    for mount in container.get("volumeMounts", []):
        if os.path.dirname(path) == mount["mountPath"].rstrip("/"):
            if volume_source(pod, mount["name"]) is not None:
                return mount["name"], os.path.basename(path)
    return None


def check_registration(kind, manifests, pod, socket):
    """kubelet opens the socket by its path on the host."""
    if kind != "DaemonSet":
        return
    folder = volume_source(pod, socket[0]).get("hostPath", {}).get("path")
    if folder != PLUGIN_DIR:
        yield f"{kind}: the socket is in {folder}, not in {PLUGIN_DIR}"
    paths = [arguments(one)["kubelet-registration-path"] for one in manifests.containers(kind)
             if "kubelet-registration-path" in arguments(one)]
    if paths != [f"{folder}/{socket[1]}"]:
        yield f"{kind}: --kubelet-registration-path is {paths}, not {folder}/{socket[1]}"
    registries = [volume["name"] for volume in pod["volumes"]
                  if volume.get("hostPath", {}).get("path") == "/var/lib/kubelet/plugins_registry"]
    mounted = [mount["mountPath"] for one in manifests.containers(kind)
               for mount in one.get("volumeMounts", []) if mount["name"] in registries]
    if mounted != ["/registration"]:
        yield f"{kind}: the registrar's folder is mounted at {mounted}, not at /registration"


def check_ports(manifests):
    for kind, port in HEALTH_PORTS.items():
        yield from check_port(kind, manifests, "livenessprobe", manifests.driver(kind), port)
    for container in manifests.containers("DaemonSet"):
        if image_parts(container["image"])[0] == "csi-node-driver-registrar":
            yield from check_port("DaemonSet", manifests, "csi-node-driver-registrar", container,
                                  REGISTRAR_PORT)


def check_port(kind, manifests, sidecar, probed, port):
    """What one container serves is what kubelet asks for another one's health."""
    host = "localhost" if manifests.pod(kind).get("hostNetwork") else ""
    for container in manifests.containers(kind):
        if image_parts(container["image"])[0] == sidecar:
            endpoint = arguments(container).get("http-endpoint")
            if endpoint != f"{host}:{port}":
                yield f"{kind}: {sidecar} listens on {endpoint}, not on {host}:{port}"
    get = probed.get("livenessProbe", {}).get("httpGet", {})
    if (get.get("host", ""), get.get("port"), get.get("path")) != (host, port, "/healthz"):
        yield f"{kind}: the liveness probe of {probed['name']} does not ask {host}:{port}/healthz"


def check_images(manifests):
    with open(os.path.join(SOURCE, "NEWS.md"), encoding="utf-8") as file:
        version = re.search(r"^## ([0-9.]+)", file.read(), re.M)
    for kind, sidecars in SIDECARS.items():
        found = {}
        for container in manifests.containers(kind):
            base, tag = image_parts(container["image"])
            if not tag or tag in ("latest", "canary"):
                yield f"{kind}, {container['name']}: {container['image']} has no fixed tag"
            found[base] = tag
        ours = "csi-nfs-controller" if kind == "Deployment" else "csi-nfs"
        wanted = {ours: version[1] if version else "in NEWS.md", **sidecars}
        if found != wanted:
            yield f"{kind}: images are {found}, not {wanted}"


def rights(rules):
    """(group, resource) -> verbs of rules that are not bound to names, and the rules that are."""
    free, named = {}, []
    for rule in rules:
        if "resourceNames" in rule:
            named.append(rule)
            continue
        for group in rule.get("apiGroups", [None]):
            for resource in rule.get("resources", [None]):
                free.setdefault((group, resource), set()).update(rule.get("verbs", []))
    return free, named


# Roles by kind and name: their rights, and the binding that gives them to the controller.
ROLES = (
    ("ClusterRole", "nfs-external-provisioner-role", CLUSTER_RIGHTS, "nfs-csi-provisioner-binding"),
    ("ClusterRole", "nfs-external-resizer-role", RESIZER_RIGHTS, "nfs-csi-resizer-role"),
    ("Role", "csi-nfs-leader-election", NAMESPACE_RIGHTS, "csi-nfs-leader-election"),
)


def check_rbac(manifests):
    for kind, name, wanted, _ in ROLES:
        free, named = rights(manifests.one(kind, name).get("rules", []))
        for what in sorted(free.keys() | wanted.keys(), key=str):
            lacking = wanted.get(what, set()) - free.get(what, set())
            excess = free.get(what, set()) - wanted.get(what, set())
            if lacking:
                yield f"{name} lacks {sorted(lacking)} on {'/'.join(map(str, what))}"
            if excess:
                yield f"{name} needs no {sorted(excess)} on {'/'.join(map(str, what))}"
        for rule in named:
            if (rule.get("resources"), rule.get("verbs")) != (["secrets"], ["get"]) or \
                    not rule["resourceNames"] or name != "nfs-external-provisioner-role":
                yield f"{name} has an unexpected rule with names: {rule}"


def check_bindings(manifests):
    for kind, role, _, name in ROLES:
        binding = manifests.one(kind + "Binding", name)
        reference = binding.get("roleRef", {})
        if (reference.get("kind"), reference.get("name")) != (kind, role):
            yield f"{name}: refers to {reference}"
        account = {"kind": "ServiceAccount", "namespace": NAMESPACE,
                   "name": manifests.pod("Deployment").get("serviceAccountName")}
        if binding.get("subjects") != [account]:
            yield f"{name}: is not for the controller's ServiceAccount alone"


def check_snapshots(manifests):
    """The folder that adds snapshots to the other one."""
    more = Manifests(SNAPSHOTS)
    yield from more.problems
    plan = more.one("Kustomization")
    files = set(plan["resources"]) | {patch["path"] for patch in plan["patches"]}
    if files != set(more.files) - {"kustomization.yaml"} | {"../kubernetes"}:
        yield f"kustomization.yaml names {sorted(files)}"
    target = more.one("Deployment")
    if target["metadata"] != {key: manifests.one("Deployment")["metadata"][key]
                              for key in ("name", "namespace")}:
        yield "the patch is for another Deployment"
    for container in more.containers("Deployment"):
        yield from unprivileged_container(container)
        yield from check_container("Deployment", manifests.pod("Deployment"), container)
        yield from check_elected(container)
        if not container["image"].endswith("/" + SNAPSHOTTER):
            yield f"image {container['image']}, not {SNAPSHOTTER}"
        sockets = [arguments(one).get("csi-address") for one in manifests.containers("Deployment")]
        if arguments(container).get("csi-address") not in sockets:
            yield "csi-snapshotter asks another socket"
    found, named = rights(more.one("ClusterRole").get("rules", []))
    if found != SNAPSHOTTER_RIGHTS or named:
        yield f"rights are {found}"
    binding = more.one("ClusterRoleBinding")
    if binding["roleRef"]["name"] != name_of(more.one("ClusterRole")) or \
            binding["subjects"] != manifests.one(
                "ClusterRoleBinding", "nfs-csi-provisioner-binding")["subjects"]:
        yield "the rights are not the controller's"
    if more.one("VolumeSnapshotClass").get("driver") != DRIVER_NAME:
        yield "the VolumeSnapshotClass is another driver's"


CHECKS = [
    ("manifests are YAML, no key twice", check_syntax),
    ("objects, their versions and namespaces", check_objects),
    ("kustomization lists every manifest", check_kustomization),
    ("CSIDriver: no attaching, and the rest", check_csidriver),
    ("controller has no privileges", check_unprivileged),
    ("controller has replicas and a leader", check_replicas),
    ("node is privileged and propagates mounts", check_node),
    ("pods: selectors, accounts, volumes, limits", check_pods),
    ("services: controller here, node there", check_modes),
    ("flags exist", check_flags),
    ("sockets: driver, sidecars and kubelet agree", check_sockets),
    ("ports: health checks agree", check_ports),
    ("images are those wanted, pinned by tag", check_images),
    ("rights are what the sidecars need, no more", check_rbac),
    ("rights are bound to the controller", check_bindings),
    ("snapshots: sidecar, rights, class", check_snapshots),
]
