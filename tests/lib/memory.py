# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""What a process has in memory, in kB as /proc counts it, and which libraries it has mapped."""
import os
import re


def status_kb(pid, name):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return int(re.search(r"^%s:\s+(\d+) kB" % name, f.read(), re.M).group(1))


def resident_kb(pid):
    return status_kb(pid, "VmRSS")


def private_kb(pid):
    """Anonymous memory. What is private in smaps also counts pages of a program's file that no
    other process has mapped, or that were written to the file a moment ago."""
    return status_kb(pid, "RssAnon")


def libraries(pid):
    """Names of the mapped libraries, without the program's loader."""
    with open("/proc/%d/maps" % pid, encoding="utf-8") as f:
        names = {os.path.basename(line.split()[-1]) for line in f if ".so" in line}
    return sorted(name for name in names if not name.startswith("ld-"))
