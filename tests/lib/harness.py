# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Run a module's unittest cases and print one line of counts at the end, for tests/run to add up.

The line is "NAME: N passed, N failed, N skipped". The exit status is 1 if something failed, and 77
if every case was skipped.

Classes that differ in the protocol version only, as NameOnVersion3, NameOnVersion4 and NameOnBoth,
share their cases: each case runs in one of them, in turn, so that every version is used in every
area. LAB_LONG=1 (make check-long) runs each case in all of them.
"""
import faulthandler
import os
import re
import sys
import time
import unittest


LONG = bool(os.environ.get("LAB_LONG"))
STUCK = 240  # seconds after which a case, or the set-up of a class, shows where it is
VERSION = re.compile(r"(On)?(Version[34]|Both|(?<=[a-z])[34])$")


def one_of(values, turn):
    """A list of all values in a long run, else of one: the value whose turn it is."""
    return list(values) if LONG else [values[turn % len(values)]]


class Result(unittest.TestResult):
    """One line a test, at once, so that a log shows where a run stands."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.failed = 0
        self.skipped_count = 0
        self.begun = time.monotonic()
        self.broken = False  # the running test has a failed row

    def startTest(self, test):
        super().startTest(test)
        faulthandler.dump_traceback_later(STUCK)
        self.begun = time.monotonic()
        self.broken = False

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.dump_traceback_later(STUCK)  # classes end and begin

    def _line(self, word, test, more=""):
        name = test.id().replace("__main__.", "")
        print("%-5s %s (%.1f s)%s" % (word, name, time.monotonic() - self.begun, more), flush=True)

    def _fail(self, test, err):
        self.broken = True
        self.failed += 1
        self._line("FAIL", test)
        print(self._exc_info_to_string(err, test), flush=True)
        case = getattr(test, "test_case", test)  # of a row
        if hasattr(case, "scene"):
            print(case.scene(), flush=True)

    def addSuccess(self, test):
        if not self.broken:
            self.passed += 1
            self._line("ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._fail(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._fail(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._fail(subtest, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.skipped_count += 1
        self._line("skip", test, ": " + reason)


def is_its_turn(cls, name):
    """Return whether this class runs the case, of all that inherit the same method. The cases go
    round the classes in the order in which they are written."""
    def area(other):
        return VERSION.sub("", other.__name__)

    method = getattr(cls, name)
    classes = [c for c in vars(sys.modules[cls.__module__]).values()
               if isinstance(c, type) and issubclass(c, unittest.TestCase)
               and VERSION.search(c.__name__) and area(c) == area(cls)
               and getattr(c, name, None) is method]
    if cls not in classes:
        return True
    owner = next(c for c in cls.__mro__ if name in vars(c))
    cases = [n for n in vars(owner) if n.startswith("test")]
    return classes[cases.index(name) % len(classes)] is cls


class Loader(unittest.TestLoader):
    """Load of each class only the cases whose turn it is there; a case by its name, always."""

    def getTestCaseNames(self, testCaseClass):
        names = super().getTestCaseNames(testCaseClass)
        return names if LONG else [n for n in names if is_its_turn(testCaseClass, n)]


def main(name, module="__main__"):
    """Names on the command line choose tests: Class or Class.test."""
    loader = Loader()
    if len(sys.argv) > 1:
        suite = loader.loadTestsFromNames(sys.argv[1:], sys.modules[module])
    else:
        suite = loader.loadTestsFromModule(sys.modules[module])
    result = Result()
    faulthandler.dump_traceback_later(STUCK)
    suite.run(result)
    faulthandler.cancel_dump_traceback_later()
    print("%s: %d passed, %d failed, %d skipped"
          % (name, result.passed, result.failed, result.skipped_count), flush=True)
    if result.failed or result.passed + result.skipped_count == 0:
        sys.exit(1)
    sys.exit(77 if result.passed == 0 else 0)
