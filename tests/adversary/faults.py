# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Faults that a seed makes up. Most come early in a call, where most of its steps are; those that
cost seconds are rare.
"""
from rpc_proxy import Rule

# Errors that a server has for a reason of its own, and that go away.
ERRORS = ("IO", "NOSPC", "DQUOT", "ACCES", "PERM", "ROFS", "SERVERFAULT")
FREQUENT = ("LOOKUP", "MKDIR", "SYMLINK", "READLINK", "RENAME", "REMOVE", "RMDIR", "SETATTR",
            "READDIR", "READ", "WRITE", "CREATE", "COMMIT", "GETATTR", "changing", "any")


def make_rules(r, kill):
    """One fault, as rules for the proxy. kill: what kills the driver."""
    name = r.choice(FREQUENT)
    nth = min(1 + int(r.expovariate(0.25)), 80) if name not in ("any", "changing") \
        else 1 + int(r.expovariate(0.06))
    kind = r.random()
    if kind < 0.30:
        return [Rule(name, nth, "status " + r.choice(ERRORS), count=r.choice((1, 1, 1, 2, 3)))]
    if kind < 0.38:
        return [Rule(name, nth, "status DELAY", count=r.choice((1, 3)))]
    if kind < 0.46:
        return [Rule(r.choice((name, "any")), nth, "status STALE", count=r.choice((1, 2, 5, 20)))]
    if kind < 0.52:
        return [Rule("READDIR", 1, "short-page", r.choice((1024, 1500, 2048)), 10000),
                Rule("READDIR", r.randrange(2, 8),
                     "status " + r.choice(("BAD_COOKIE", "NOT_SAME")))]
    if kind < 0.56:
        return [Rule("READ", 1, "short-read", r.choice((1000, 4096, 65536)), 300)]
    if kind < 0.60:
        return [Rule("WRITE", r.randrange(1, 6), "lose-write", count=r.choice((1, 3, 20)))]
    if kind < 0.63:
        return [Rule(name, nth, "status " + r.choice(("EXPIRED", "GRACE")))]
    if kind < 0.73:
        return [Rule(name, nth, r.choice(("cut-before", "cut-after")))]
    if kind < 0.76:
        return [Rule(name, nth, "double")]
    if kind < 0.79:
        return [Rule(name, nth, "trickle", 0.002)]
    if kind < 0.84:
        return [Rule(name, nth, r.choice(("delay-call", "delay-reply")), r.choice((0.05, 0.3)))]
    if kind < 0.855:
        return [Rule("any", nth, "stall", r.choice((0.5, 2.5)))]
    if kind < 0.86:
        # What takes a disk long is waited for as long as the server answers others: ten minutes.
        if name in ("COMMIT", "REMOVE", "SETATTR", "changing", "any"):
            name = "READ"
        return [Rule(name, nth, r.choice(("drop-call", "drop-reply")))]
    if kind < 0.93:
        return [Rule(name, nth, "hook", kill), Rule(name, nth, "cut-before")]
    return [Rule(name, nth, "hook-after", kill)]
