# SPDX-License-Identifier: Apache-2.0
# Copyright the csi-nfs authors
"""Runs a module's unittest cases and prints one line of counts at the end, for tests/run to add up.

The line is "NAME: N passed, N failed, N skipped"; the exit status is 1 where something failed, and
77 where nothing but skips came out.
"""
import sys
import time
import unittest


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
        self.begun = time.monotonic()
        self.broken = False

    def _line(self, word, test, more=""):
        name = test.id().replace("__main__.", "")
        print("%-5s %s (%.1f s)%s" % (word, name, time.monotonic() - self.begun, more), flush=True)

    def _fail(self, test, err):
        self.broken = True
        self.failed += 1
        self._line("FAIL", test)
        print(self._exc_info_to_string(err, test), flush=True)

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


def main(name, module="__main__"):
    """Names on the command line choose tests: Class or Class.test."""
    loader = unittest.defaultTestLoader
    if len(sys.argv) > 1:
        suite = loader.loadTestsFromNames(sys.argv[1:], sys.modules[module])
    else:
        suite = loader.loadTestsFromModule(sys.modules[module])
    result = Result()
    suite.run(result)
    print("%s: %d passed, %d failed, %d skipped"
          % (name, result.passed, result.failed, result.skipped_count), flush=True)
    if result.failed or result.passed + result.skipped_count == 0:
        sys.exit(1)
    sys.exit(77 if result.passed == 0 else 0)
