"""A pytest plug-in for scripts/test.sh: writes down which tests failed, so that they can be run once more.

`-p tests.support.failures --failures FILE` appends one line for each failed test to FILE: the test's id, or "-" for a test that must
not be run again. A test must not be run again if a sanitizer has reported something in it: such a report is a defect
even if it appears in one run of a hundred.
"""

import pytest

SANITIZERS = ("ThreadSanitizer", "AddressSanitizer", "LeakSanitizer", "runtime error:")


def pytest_addoption(parser):
    parser.addoption("--failures", metavar="FILE", help="append the ids of the tests that failed to FILE")


def pytest_configure(config):
    # With xdist, the reports of all workers reach the process that has no `workerinput`.
    if config.getoption("--failures") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config.getoption("--failures")))


def may_run_again(report):
    texts = [report.longreprtext, *(text for _, text in report.sections)]
    return not any(word in text for text in texts for word in SANITIZERS)


class Failures:
    def __init__(self, path):
        self.path = path
        self.written = set()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report):
        self.write(report)

    @pytest.hookimpl
    def pytest_collectreport(self, report):
        self.write(report, again=False)

    def write(self, report, again=True):
        if not report.failed:
            return
        line = report.nodeid if again and may_run_again(report) else "-"
        if line == "-" or line not in self.written:
            self.written.add(line)
            with open(self.path, "a") as file:
                print(line, file=file)
