# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Starts a cluster, runs scenarios in it, and stops it. For use inside a lab; see run.

main.py --list
main.py SCENARIO[.Class[.test]]...
"""
import importlib.util
import os
import shutil
import signal
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "scenarios"), os.path.join(HERE, "..", "lib")]

# In this order. Those after "kubelet" have pods that run, in a guest.
CONTROLLER = ("volumes", "classes", "attributes", "resize", "snapshots", "many", "crash", "outage")
KUBELET = ("workloads", "versions", "squash", "memory", "kerberos",
           "migration")
LAST = "end"


def title(name):
    """The first line of a scenario's description."""
    path = os.path.join(HERE, "scenarios", name + ".py")
    with open(path, encoding="utf-8") as file:
        return next(line for line in file if line.startswith('"""')).strip().strip('"')


def list_scenarios():
    for name in (*CONTROLLER, *KUBELET, LAST):
        needs = "kubelet" if name in KUBELET else "-"
        print("%-12s %-8s %s" % (name, needs, title(name)))


def scenario(name):
    """The module of a scenario, by its path: tests/lib has modules of the same names."""
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(HERE, "scenarios", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(names):
    """The cases of these scenarios, each "scenario", "scenario.Class" or "scenario.Class.test"."""
    suite = unittest.TestSuite()
    for name in names:
        module = scenario(name.partition(".")[0])
        rest = name.partition(".")[2]
        loader = unittest.defaultTestLoader
        if rest:
            found = [loader.loadTestsFromName(rest, module)]
        else:
            found = [loader.loadTestsFromTestCase(c) for c in vars(module).values()
                     if isinstance(c, type) and c.__module__ == module.__name__]
        if not any(cases.countTestCases() for cases in found):
            raise RuntimeError("scenario %s has no case" % name)
        suite.addTests(found)
    return suite


def programs_of(logs):
    """The folders of the programs, the driver's in front."""
    import control  # pylint: disable=import-outside-toplevel
    own = os.path.join(logs, "driver")
    os.makedirs(own)
    shutil.copy(os.environ["CSI_NFS"], os.path.join(own, "csi-nfs"))
    return control.Programs(":".join((own, os.environ.get("CSI_NFS_SIDECARS", ""),
                                      os.environ["CSI_NFS_PROGRAMS"])))


def run(names):
    import harness  # pylint: disable=import-outside-toplevel
    import world  # pylint: disable=import-outside-toplevel
    logs = os.environ["CSI_NFS_LOGS"]
    cluster = world.Cluster(programs_of(logs), logs)
    world.Scenario.cluster = cluster
    harness.STUCK = 1800  # some cases swap all pods four times
    result = harness.Result()
    first = load(name for name in names if name.partition(".")[0] in CONTROLLER)
    second = load(name for name in names if name.partition(".")[0] in KUBELET)
    last = load([LAST])
    try:
        cluster.start()
        if first.countTestCases():
            cluster.start_pods()
            first.run(result)
        if second.countTestCases():
            cluster.start_node()
            second.run(result)
        last.run(result)
    finally:
        cluster.stop()
    print("cluster: %d passed, %d failed, %d skipped"
          % (result.passed, result.failed, result.skipped_count), flush=True)
    return 1 if result.failed else 0


def main():
    names = sys.argv[1:]
    if names == ["--list"]:
        list_scenarios()
        return 0
    for name in names:
        if name.partition(".")[0] not in (*CONTROLLER, *KUBELET, LAST):
            print("there is no scenario %s, see --list" % name, file=sys.stderr)
            return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run(names or [*CONTROLLER, *KUBELET])


if __name__ == "__main__":
    sys.exit(main())
