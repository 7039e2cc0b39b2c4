"""Compares our program `torchserve` with TorchServe: status, headers and body of a generated matrix.

Both are started on equivalent archives: their handler in Python, ours in Lua. The table of deliberate
differences is torchserve.toml; common.py says how it is read.

    tests/differential/torchserve.py [--only 'PATTERN OF CASES'] [--keep]
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

import common
import torchserve_rest as rest
from torchserve_pair import Pair, install

RULES = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r'^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"$', '"TIME"'),
    (r'^"90\d\d"$', '"WORKER"'),
    (r"^\d+$", "PID", "json *.pid"),
    (r"^\d+$", "BYTES", "json *.memoryUsage"),
    (r"(?i)^keep-alive$", "keep-alive", "header connection"),
]


def first_pair(pair):
    """Model API on, tokens off, no snapshots, everything else by default."""
    pair.http("register idle", "management", "POST",
              "/models?url=echo.mar&model_name=idle&initial_workers=0")
    rest.list_cases(pair)
    rest.register_cases(pair)
    rest.describe_cases(pair, "served")
    rest.method_cases(pair)
    rest.scale_cases(pair)
    rest.default_cases(pair)
    rest.unregister_cases(pair)
    rest.version_cases(pair)
    rest.life_cases(pair)
    rest.inference_paths(pair, "served")
    rest.inference_bodies(pair, "served")
    rest.sequence_cases(pair)
    rest.options_cases(pair, "served")
    rest.name_cases(pair)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="a pattern of cases: only these are compared")
    parser.add_argument("--keep", action="store_true", help="keep the folder of both servers")
    arguments = parser.parse_args()
    try:
        commands = install()
    except common.Unavailable as error:
        return common.skip("torchserve", str(error))
    table = pathlib.Path(__file__).with_suffix(".toml")
    comparison = common.Comparison("torchserve", "TorchServe", table, RULES, arguments.only)
    scratch = tempfile.mkdtemp(prefix="continuo-differential-")
    settings = "disable_token_authorization=true\nenable_model_api=true\nmax_request_size=100000\n"
    pair = Pair("first", commands, scratch, comparison, settings=settings, flags=["--ncs"],
                models=["served=served.mar", "counter=counter.mar"])
    try:
        pair.start()
        first_pair(pair)
    finally:
        pair.stop()
        if arguments.keep:
            common.say(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    return comparison.close()


if __name__ == "__main__":
    sys.exit(main())
