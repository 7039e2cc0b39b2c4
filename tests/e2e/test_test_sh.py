"""The rules by which scripts/test.sh runs failed tests once more."""

import os
import subprocess
import sys

import pytest

from models import BUILD, ROOT

pytestmark = pytest.mark.skipif(BUILD.name != "release", reason="a script does not depend on the build")

SUITE = '''
import pytest

def test_passes():
    pass

@pytest.mark.parametrize("value", [1, 2])
def test_fails(value):
    assert value == 2

@pytest.fixture
def broken():
    raise RuntimeError("no fixture")

def test_has_no_fixture(broken):
    pass
'''

REPORTED = '''
def test_races():
    print("WARNING: ThreadSanitizer: data race (pid=1)")
    assert False
'''

NOT_PYTHON = "this is not Python"


def failures_of(folder, source):
    """Runs the source as a file of tests, and returns what the plug-in has written down."""
    (folder / "test_some.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.failures",
               "--rootdir", str(folder), f"--failures={folder}/failures", str(folder / "test_some.py")]
    subprocess.run(command, cwd=ROOT, env=dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"), capture_output=True)
    return (folder / "failures").read_text().split("\n")[:-1] if (folder / "failures").exists() else []


@pytest.mark.parametrize("source, expected", [
    ("def test_passes(): pass", []),
    (SUITE, ["test_some.py::test_fails[1]", "test_some.py::test_has_no_fixture"]),
    (REPORTED, ["-"]),
    (NOT_PYTHON, ["-"]),
], ids=["nothing failed", "failed and without fixture", "a sanitizer reported", "not collected"])
def test_what_failed_is_written_down(folder, source, expected):
    assert failures_of(folder, source) == expected


def run_again(folder, ids, status=0):
    """Calls the shell function with a list of failed tests and a test command that ends with the status.

    Returns whether it succeeded, the tests that it called unstable, and the arguments of the command, or None."""
    function = subprocess.run(["sed", "-n", "/^run_again()/,/^}/p", ROOT / "scripts/test.sh"],
                              capture_output=True, text=True, check=True).stdout
    (folder / "failures-release").write_text("".join(f"{each}\n" for each in ids))
    command = folder / "tests"
    command.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{folder}/arguments\nexit {status}\n')
    command.chmod(0o755)
    script = f"""{function}
        logs={folder} unstable=()
        run_again release {command} -q --failures={folder}/failures-release >&2; echo $?
        printf '%s\\n' "${{unstable[@]}}" """
    lines = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True).stdout.split("\n")
    arguments = folder / "arguments"
    return (lines[0] == "0", [line.partition(",")[0] for line in lines[1:] if line],
            arguments.read_text().split("\n")[:-1] if arguments.exists() else None)


def test_failed_tests_run_once_more_and_are_called_unstable(folder):
    assert run_again(folder, ["a::b", "c::d[e f]"]) == (
        True, ["a::b", "c::d[e f]"], ["-q", "--failures=/dev/null", "a::b", "c::d[e f]"])


@pytest.mark.parametrize("ids, status, runs", [
    (["a::b"], 1, True),
    (["a::b", "-"], 0, False),
    ([f"a::{number}" for number in range(11)], 0, False),
    ([], 0, False),
], ids=["fails again", "a sanitizer reported", "too many", "none is listed"])
def test_a_failure_stays_one(folder, ids, status, runs):
    passed, unstable, arguments = run_again(folder, ids, status)
    assert not passed and not unstable and (arguments is not None) == runs


CTEST = """
 1/2 Test #1: core.a ..............   Passed    0.02 sec
      Start 2: store.b
 2/2 Test #2: store.b .............***Failed    0.01 sec
the port is taken
{report}
50% tests passed, 1 tests failed out of 2

The following tests FAILED:
{failed}
"""


def unit_again(folder, names, status=0, report=""):
    """Calls the shell functions with ctest's log, and a ctest that ends with the status.

    Returns whether the tests passed at the second run, those that are unstable, and what is printed of the first."""
    functions = subprocess.run(["sed", "-n", "/^failed_units()/,/^unit()/p", ROOT / "scripts/test.sh"],
                               capture_output=True, text=True, check=True).stdout.rpartition("unit()")[0]
    failed = "\n".join(f"\t {number} - {name} (Failed)" for number, name in enumerate(names))
    (folder / "unit-debug.log").write_text(CTEST.format(failed=failed + "\n\t 99 - lint.c (Skipped)", report=report))
    script = f"""{functions}
        ctest() {{ return {status}; }}
        logs={folder} unstable=()
        output_of_failed_units {folder}/unit-debug.log >{folder}/printed
        unit_again debug >&2; echo $?
        printf '%s\\n' "${{unstable[@]}}" """
    lines = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True).stdout.split("\n")
    return (lines[0] == "0", [line.partition(":")[0] for line in lines[1:] if line], (folder / "printed").read_text())


def test_failed_unit_tests_run_once_more_and_are_called_unstable(folder):
    passed, unstable, printed = unit_again(folder, ["store.b"])
    assert passed and unstable == ["unit test store.b, debug"]
    assert "the port is taken" in printed and "core.a" not in printed and "FAILED" not in printed


@pytest.mark.parametrize("names, status, report", [
    (["store.b"], 8, ""),
    (["store.b"], 0, "WARNING: ThreadSanitizer: data race (pid=1)"),
    ([f"store.{number}" for number in range(6)], 0, ""),
    ([], 0, ""),
], ids=["fails again", "a sanitizer reported", "too many", "none is listed"])
def test_a_failure_of_a_unit_test_stays_one(folder, names, status, report):
    passed, unstable, _ = unit_again(folder, names, status, report)
    assert not passed and not unstable
