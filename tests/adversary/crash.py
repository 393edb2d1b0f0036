#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""The crash matrix: for every mutating call, the controller gets SIGKILL at each NFS call that
changes something, before the server has seen it or when the server has done it and the answer is on
its way. Then the caller goes on in one of several ways, and all promises are looked at. The sweep:
likewise, every call fails in turn, in each of several ways, and the caller asks until an answer is
final.

    lab python3 crash.py [--stride N] [--offset N] [--scenario TEXT] [--version V] [--when TEXT]
        [--way TEXT] [--point N]

--stride 7 does every seventh run only, --offset says which. A scenario runs over one version, in
turn, and over all with LAB_LONG=1. --point N with a scenario, a version and a way does one run.
Ends with a line of counts.
"""
import argparse
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))

import harness  # noqa: E402
from rpc_proxy import Rule  # noqa: E402
from scenarios import (  # noqa: E402
    KERNEL, REFUSED, SCENARIOS, Changed, Delete, Refused, RefuseLate, RequireLate)
from servers import Failure  # noqa: E402
from world import Broken, Case, Server, settled  # noqa: E402

# What the caller does once the driver was killed: asks again the same driver or another one,
# deletes what it never heard of, or creates what it wanted to delete.
WAYS = ("same", "other", "give-up", "create-again")
WHENS = ("before", "after")
# The sweep. From one call on: which calls, what happens to them, and how many.
FAULTS = {
    "stale": ("any", "status STALE", 3), "stale-long": ("any", "status STALE", 12),
    "io": ("any", "status IO", 1), "no-space": ("changing", "status NOSPC", 2),
    "denied": ("any", "status ACCES", 2), "cut": ("any", "cut-after", 1)}


def ways_of(scenario):
    if issubclass(scenario, (Delete,)):
        return ("same", "other", "create-again")
    # What was refused, and what may be a stranger's, nobody deletes.
    if scenario.deletes or issubclass(scenario, (Changed, Refused, RefuseLate, RequireLate)):
        return ("same", "other")
    return ("same", "other", "give-up")


class Run:
    """One scenario with one point at which the driver dies; point 0: it does not."""

    def __init__(self, scenario, version, when="before", point=0, way="same"):
        self.scenario = scenario
        self.version = version
        self.when = when
        self.point = point
        self.way = way
        self.case = None
        self.reached = not point
        self.changes = self.calls = 0  # that the call makes
        self.trace = []

    def __str__(self):
        return "--scenario %s --version %s --when %s --point %d --way %s" % (
            self.scenario.__name__, self.version, self.when, self.point, self.way)

    def rules(self):
        if not self.point:
            return []
        if self.when in FAULTS:
            name, what, count = FAULTS[self.when]
            return [Rule(name, self.point, what, count=count)]
        if self.when == "after":
            return [Rule("changing", self.point, "hook-after", self.case.kill)]
        return [Rule("changing", self.point, "hook", self.case.kill),
                Rule("changing", self.point, "cut-before")]

    def go(self, server, number):
        # Who is killed is dead: nobody needs the time to find out.
        options = self.scenario.options + ("--replica-timeout=1",)
        with Case(server, "crash-%d" % number, self.version, options,
                  replicas=2 if self.way == "other" else 1) as self.case:
            try:
                self.steps(self.scenario(self.case))
            except BaseException:
                self.trace += self.case.proxy.trace(40)
                self.trace += ["the driver's log:", self.case.driver.tail(15)]
                raise
        self.case.remove_logs()

    def steps(self, x):
        case = self.case
        x.prepare()
        method, fields = x.call()
        # The undo of a creation removes notes last, and may be denied that.
        case.is_denied = self.when == "denied"
        rules = self.rules()
        case.proxy.begin(rules, versions=case.versions)
        answer, failure = case.once(method, **fields)
        self.reached = self.reached or any(rule.hits for rule in rules)
        self.changes, self.calls = case.proxy.changes, case.proxy.calls
        if self.when in FAULTS and self.point and failure is not None:
            answer, failure = self.fail(x, method, fields, failure)
        died = case.killed.is_set()
        self.trace = case.proxy.trace(25)
        case.proxy.begin([], versions=case.versions)
        if died:
            case.driver.process.wait()
            case.note("killed %s change %d", self.when, self.point)
            if hasattr(x, "meanwhile"):
                x.meanwhile()
            case.revive(other=self.way == "other")
        if not died or self.way in ("same", "other"):
            if died or failure is not None and case.goes_on(method, failure):
                answer, failure = case.settle(method, **fields)
            self.is_answered(x, answer, failure)
        elif self.way == "create-again":
            x.create_again()
        case.check_strangers()
        x.undo()
        x.before_end()
        case.converge()
        x.after_undo()
        case.check_strangers()

    def fail(self, x, method, fields, failure):
        """Until the answer is final. One that says that nothing came of it is taken at its word."""
        case = self.case
        answer = None
        if case.goes_on(method, failure):
            answer, failure = case.settle(method, **fields)
        self.trace = case.proxy.trace(40)
        case.proxy.begin([], versions=case.versions)
        if failure is None or hasattr(x, "is_refused") and failure.code().name == REFUSED:
            return answer, failure
        case.note("the answer is final")
        settled(x.is_as_before, 3)
        case.check_strangers()
        return case.settle(method, **fields)

    def is_answered(self, x, answer, failure):
        self.case.check_strangers()
        if failure is None:
            settled(lambda: x.is_done(answer), 3)
        elif hasattr(x, "is_refused"):
            settled(lambda: x.is_refused(failure), 3)
        else:
            raise Broken("it is answered %s: %s" % (failure.code().name, failure.details()))
        if failure is None and not x.deletes:
            method, fields = x.call()
            self.case.driver.restart()
            again, failure = self.case.settle(method, **fields)
            if failure is not None:
                raise Broken("repeated after a restart it is answered %s: %s" % (
                    failure.code().name, failure.details()))
            x.is_done(again)


class Matrix:
    """All runs, in one order, of which every stride-th is made."""

    def __init__(self, server, stride, offset):
        self.server = server
        self.stride = stride
        self.at = -offset
        self.number = 0
        self.passed = self.failed = 0
        self.unreached = 0

    def one(self, run):
        """Whether it passed."""
        self.number += 1
        try:
            run.go(self.server, self.number)
        except (Broken, Failure, OSError, AssertionError) as e:
            self.failed += 1
            print("FAIL %s\n   %s" % (run, str(e).replace("\n", "\n   ")))
            if not isinstance(e, Broken):
                traceback.print_exc(file=sys.stdout)
            for line in run.case.log if run.case else []:
                print("   | " + line)
            for line in run.trace:
                print("   > " + line)
            sys.stdout.flush()
            return False
        self.passed += 1
        self.unreached += not run.reached
        return True

    def due(self):
        self.at += 1
        return self.at % self.stride == 1 % self.stride

    def scenario(self, scenario, version, ways, whens):
        first = Run(scenario, version)
        if not self.one(first):
            return
        begun, count = time.monotonic(), self.passed + self.failed
        for point in range(1, first.calls + 1):
            for when in whens:
                if point > first.changes and FAULTS.get(when, ("changing",))[0] == "changing":
                    continue
                for way in ways if when in WHENS else ("same",):
                    if self.due():
                        self.one(Run(scenario, version, when, point, way))
        runs = self.passed + self.failed - count
        print("%s over version %s: %d calls, %d changes, %d runs, %.2f s a run" % (
            scenario.__name__, version, first.calls, first.changes, runs,
            (time.monotonic() - begun) / max(1, runs)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--scenario", default="")
    parser.add_argument("--version", choices=("3", "4.0", "4.1", "4.2"))
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--when", choices=WHENS + tuple(FAULTS))
    parser.add_argument("--point", type=int)
    parser.add_argument("--kernel", action="store_true", 
                        help="the kernel's server, see lab --kernel nfsd")
    given = parser.parse_args()
    known = SCENARIOS + KERNEL if given.kernel else SCENARIOS
    chosen = [s for s in known if s.__name__ == given.scenario] or \
        [s for s in known if given.scenario.lower() in s.__name__.lower()]
    with Server(os.path.join(os.environ["LAB_DIR"], "crash"),
                os.path.join(os.environ["LAB_DISK"], "crash"), given.kernel) as server:
        matrix = Matrix(server, given.stride, given.offset)
        for scenario in chosen:
            turn = known.index(scenario)
            fours = harness.one_of(("4.0", "4.2", "4.1"), turn)
            versions = getattr(scenario, "versions", None) or \
                [v for group in harness.one_of((["3"], fours), turn) for v in group]
            for version in [given.version] if given.version else versions:
                if given.point is not None:
                    matrix.one(Run(scenario, version, given.when or "after", given.point,
                                   given.way or "same"))
                    continue
                matrix.scenario(scenario, version, [w for w in ways_of(scenario)
                                                    if given.way in (None, w)],
                                [w for w in WHENS + tuple(FAULTS) if given.when in (None, w)])
    if matrix.unreached:
        print("%d points were not reached: the call took another way" % matrix.unreached)
    # A few may not be. If it is many, the runs no longer show what they say.
    lost = matrix.unreached * 10 > matrix.passed + 10
    if lost:
        print("FAIL too few points were reached")
    print("crash points: %d passed, %d failed, 0 skipped" % (matrix.passed, matrix.failed + lost))
    sys.exit(1 if matrix.failed or lost or not matrix.passed else 0)


if __name__ == "__main__":
    main()
