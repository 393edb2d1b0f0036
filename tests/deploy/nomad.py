# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Checks of the Nomad files in deploy/nomad, for tests/check-manifests: their form, and that they
agree with each other, with the manifests for Kubernetes and with csi-nfs. No Nomad runs here."""

import os
import re
import sys

import hcl
import manifests

FOLDER = os.path.join(manifests.SOURCE, "deploy", "nomad")
FILES = ("controller.nomad.hcl", "example.nomad.hcl", "node.nomad.hcl", "volume-create.hcl",
         "volume-register.hcl")
JOBS = {"controller": "Deployment", "node": "DaemonSet"}
KEYS_PAGE = os.path.join(manifests.SOURCE, "man", "csi-nfs-storageclass.7.in")

# What Nomad takes in these blocks, of what the files use.
BLOCKS = {
    "job": {"type"},
    "group": {"count"},
    "constraint": {"operator", "value"},
    "task": {"driver", "kill_timeout", "user"},
    "csi_plugin": {"id", "type", "mount_dir", "stage_publish_base_dir", "health_timeout"},
    "config": {"image", "args", "command", "privileged", "network_mode", "cap_drop",
               "readonly_rootfs", "security_opt", "sysctl"},
    "resources": {"cpu", "memory"},
    "volume": {"type", "source", "access_mode", "attachment_mode"},
    "volume_mount": {"volume", "destination"},
    "capability": {"access_mode", "attachment_mode"},
    "mount_options": {"fs_type", "mount_flags"},
    "parameters": None,  # those of csi-nfs
    "context": None,
    "secrets": None,
    "volume file": {"id", "name", "type", "plugin_id", "external_id", "capacity_min",
                    "capacity_max", "snapshot_id", "clone_id"},
}
ACCESS_MODES = {"single-node-reader-only", "single-node-writer", "multi-node-reader-only",
                "multi-node-single-writer", "multi-node-multi-writer"}
# Nomad gives kubelet's part of the job to itself: the socket by CSI_ENDPOINT, no probes.
NOT_FOR_NOMAD = {"endpoint"}


def read(name):
    return hcl.read(os.path.join(FOLDER, name))


def job(mode):
    """The Bodies of the task, its csi_plugin and its config, and of its job."""
    whole = read(f"{mode}.nomad.hcl").one("job")
    task = whole.one("group").one("task")
    return whole, task, task.one("csi_plugin"), task.one("config")


def flags(config):
    return manifests.arguments({"args": config.get("args", [])})


def check_syntax(_):
    there = {name for name in os.listdir(FOLDER) if name.endswith(".hcl")}
    for name in sorted(there ^ set(FILES)):
        yield f"{name}: {'unexpected' if name in there else 'is missing'}"
    for name in sorted(there):
        body = read(name)
        top = "volume file" if name.startswith("volume-") else None
        yield from unknown(name, top, body)


def unknown(name, kind, body):
    known = BLOCKS.get(kind, set())
    for key in body.attributes:
        if known is not None and key not in known:
            yield f"{name}: {kind or 'the file'} has no attribute {key}"
    for found, _, inner in body.blocks:
        if found not in BLOCKS:
            yield f"{name}: no block {found}"
        yield from unknown(name, found, inner)


def check_jobs(kubernetes):
    ids = set()
    for mode, kind in JOBS.items():
        _, task, plugin, config = job(mode)
        driver = kubernetes.driver(kind)
        ids.add(plugin.get("id"))
        if plugin.get("type") != mode:
            yield f"{mode}: csi_plugin has type {plugin.get('type')}"
        if flags(config).get("mode") != mode:
            yield f"{mode}: --mode is {flags(config).get('mode')}"
        if config.get("image") != driver["image"]:
            yield f"{mode}: the image is {config.get('image')}, not {driver['image']}"
        wanted = manifests.arguments(driver).keys() - NOT_FOR_NOMAD
        if flags(config).keys() != wanted:
            yield f"{mode}: flags {sorted(flags(config))}, the {kind} has {sorted(wanted)}"
        memory = driver["resources"]["limits"]["memory"]
        if f"{task.one('resources').get('memory')}Mi" != memory:
            yield f"{mode}: another memory limit than {memory}"
    for name in ("volume-create.hcl", "volume-register.hcl"):
        ids.add(read(name).get("plugin_id"))
    if len(ids) != 1:
        yield f"the plugin has several ids: {sorted(map(str, ids))}"


def check_privileges(kubernetes):
    _, _, _, config = job("controller")
    context = kubernetes.driver("Deployment")["securityContext"]
    for key in ("privileged", "network_mode", "cap_add"):
        if key in config.attributes:
            yield f"controller: {key} is given"
    if [word.upper() for word in config.get("cap_drop", [])] != context["capabilities"]["drop"]:
        yield f"controller: cap_drop is {config.get('cap_drop')}"
    if config.get("readonly_rootfs") is not context["readOnlyRootFilesystem"]:
        yield "controller: its root file system is writable"
    if config.get("security_opt") != ["no-new-privileges"]:
        yield "controller: it may escalate privileges"
    given = config.get("sysctl", {})
    sysctls = kubernetes.pod("Deployment")["securityContext"]["sysctls"]
    if given != {one["name"]: one["value"] for one in sysctls}:
        yield f"controller: sysctl is {given}"
    whole, _, plugin, config = job("node")
    if config.get("privileged") is not True or config.get("network_mode") != "host":
        yield "node: not privileged, or not in the host's network"
    if whole.get("type") != "system":
        yield "node: does not run on every client"
    if not (plugin.get("stage_publish_base_dir") or "").startswith("/local/"):
        yield "node: volumes are not mounted in a folder of the task"


def check_flags(_):
    known, where = manifests.known_flags(sys.argv[1] if len(sys.argv) > 1 else None)
    for mode in JOBS:
        path = os.path.join(FOLDER, f"{mode}.nomad.hcl")
        with open(path, encoding="utf-8") as file:
            # Also those in comments.
            for flag in sorted(set(re.findall(r"--([a-z][a-z-]+)", file.read())) - known):
                yield f"{mode}: --{flag} is not in {where}"


def keys_of(section):
    """The keys that a section of csi-nfs-storageclass(7) lists."""
    with open(KEYS_PAGE, encoding="utf-8") as file:
        page = file.read()
    text = page[page.index(f"\n.SH {section}\n"):].split("\n.SH ", 2)[1]
    return set(re.findall(r"^\.T[PQ]\n\.B (\S+)$", text.replace("\\-", "-"), re.M))


def check_volumes(_):
    create, register = read("volume-create.hcl"), read("volume-register.hcl")
    for key in create.one("parameters").attributes.keys() - keys_of("STORAGECLASS PARAMETERS"):
        yield f"volume-create.hcl: no parameter {key}"
    for key in register.one("context").attributes.keys() - keys_of("VOLUME ATTRIBUTES"):
        yield f"volume-register.hcl: no attribute {key}"
    place = register.one("context")
    wanted = "#".join((place.get("server"), place.get("share").strip("/"), place.get("subDir")))
    if register.get("external_id") != wanted + "##":
        yield f"volume-register.hcl: external_id is {register.get('external_id')}"
    if "external_id" in create.attributes:
        yield "volume-create.hcl: external_id is for register"
    offered = []
    for name, body in (("create", create), ("register", register)):
        modes = [one.attributes for _, one in body.all("capability")]
        if not modes:
            yield f"volume-{name}.hcl: no capability"
        for mode in modes:
            if mode.get("access_mode") not in ACCESS_MODES:
                yield f"volume-{name}.hcl: access mode {mode.get('access_mode')}"
            if mode.get("attachment_mode") != "file-system":
                yield f"volume-{name}.hcl: NFS is no {mode.get('attachment_mode')}"
        offered.append(modes)
    group = read("example.nomad.hcl").one("job").one("group")
    asked = group.one("volume").attributes
    if {key: asked.get(key) for key in ("access_mode", "attachment_mode")} not in offered[0] \
            or asked.get("source") != create.get("id"):
        yield "example.nomad.hcl: does not ask for the volume of volume-create.hcl"


CHECKS = [
    ("Nomad: files are HCL, and what Nomad knows", check_syntax),
    ("Nomad: jobs agree with the manifests", check_jobs),
    ("Nomad: privileges are those of the manifests", check_privileges),
    ("Nomad: flags exist", check_flags),
    ("Nomad: volumes, their keys and capabilities", check_volumes),
]
