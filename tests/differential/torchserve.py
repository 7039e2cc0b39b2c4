"""Compares our program `torchserve` with TorchServe: status, headers and body of a generated matrix.

Both are started on the same archives, whose handlers are written for TorchServe. The table of
deliberate differences is torchserve.toml; common.py says how it is read.

    tests/differential/torchserve.py [--only 'PATTERN OF CASES'] [--keep]
"""

import argparse
import concurrent.futures
import pathlib
import shutil
import sys
import tempfile

import common
import torchserve_builtin_cases as builtin
import torchserve_grpc as grpc_cases
import torchserve_rest as rest
import torchserve_handlers as handlers
import torchserve_server as server
from torchserve_pair import Pair, install

RULES = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r'^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"$', '"TIME"'),
    (r'^"90\d\d"$', '"WORKER"'),
    (r"^\d+$", "PID", "json *.pid"),
    (r"^\d+$", "BYTES", "json *.memoryUsage"),
    # TorchServe's details end with a line that names the Java class.
    (r"\n[\w.]+Exception(\.\(\))?$", "", "details"),
    (r"(?i)^keep-alive$", "keep-alive", "header connection"),
]


def first_pair(pair):
    """The cases of servers with the model API, without tokens and snapshots, and with defaults otherwise."""
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
    grpc_cases.management_cases(pair)
    grpc_cases.inference_cases(pair)
    rest.full_cases(pair)
    rest.name_cases(pair)


def envelope_cases(pair):
    """The cases of servers with service_envelope=kserve: an instance is a row, and answers come back as predictions."""
    kind = {"Content-Type": "application/json"}
    for case, body in {"two rows": '{"instances":["row a","row b"]}',
                       "one row": '{"instances":["row a"]}', "no rows": '{"instances":[]}',
                       "no instances": "{}", "no JSON": "no"}.items():
        for path in ("/v1/models/served:predict", "/predictions/served", "/v1/models/served:explain"):
            pair.http(f"kserve {case} {path}", "inference", "POST", path, body, kind)


# Each combination of the two variables, each metrics mode, with and without keys, with and without snapshots.
NO_KEYS = "disable_token_authorization=true\n"
SERVED = {"models": ["served=served.mar"]}
PAIRS = {
    # TorchServe ignores keys that it does not know.
    "first": {"settings": NO_KEYS + "enable_model_api=true\nmax_request_size=100000\ncontinuo.allow-local-models=true\n",
              "flags": ["--ncs"],
              "models": ["served=served.mar", "counter=counter.mar"]},
    "keys": {"settings": "metrics_mode=prometheus\n", "flags": ["--ncs"], **SERVED,
             "variables": {"LOG_LOCATION": "{folder}/elsewhere"}},
    "kept": {"settings": "metrics_mode=legacy\n", **SERVED,
             "flags": ["--disable-token-auth", "--enable-model-api"],
             "variables": {"METRICS_LOCATION": "{folder}/measured"}},
    "own": {"settings": NO_KEYS + "metrics_mode=prometheus\nmetrics_config={folder}/metrics.yaml\n"
                                  "service_envelope=kserve\n", "flags": ["--ncs"], **SERVED,
            "variables": {"LOG_LOCATION": "{folder}/elsewhere", "METRICS_LOCATION": "{folder}/measured"}},
}


def other_cases(pairs):
    server.file_cases(pairs["first"], "with neither variable")
    server.file_cases(pairs["keys"], "with LOG_LOCATION")
    server.file_cases(pairs["kept"], "with METRICS_LOCATION")
    server.file_cases(pairs["own"], "with both variables")
    server.snapshot_cases(pairs["kept"])
    server.metrics_cases(pairs["first"], "by default")
    server.metrics_cases(pairs["keys"], "of prometheus", "DiskUsage")
    server.metrics_cases(pairs["kept"], "of legacy")
    server.metrics_cases(pairs["own"], "of a file", "Told", ['{"instances":["!metric"]}'],
                         "application/json")
    server.off_cases(pairs["own"])
    envelope_cases(pairs["own"])
    server.closed_grpc_cases(pairs["keys"])
    server.closed_cases(pairs["keys"])
    server.life_cases(pairs["first"])


def compared(commands, scratch, comparison):
    python = commands["theirs"][0]
    archives = handlers.pack(pathlib.Path(scratch) / "packed", python)
    pairs = {name: Pair(name, commands, scratch, comparison, **how) for name, how in PAIRS.items()}
    pairs["handlers"] = Pair("handlers", commands, scratch, comparison, archives=archives,
                             **handlers.SETTINGS)
    own_handlers = pathlib.Path(scratch) / "packed-builtin"
    if builtin.available(python):
        how = {**builtin.SETTINGS, "settings": builtin.SETTINGS["settings"] + f"continuo.python={python}\n"}
        pairs["builtin"] = Pair("builtin", commands, scratch, comparison, archives=builtin.pack(own_handlers, python),
                                **how)
    try:
        for side in pairs["own"].sides:
            (side.folder / "metrics.yaml").write_text(server.METRICS_YAML)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(Pair.start, pairs.values()))
        handlers.cases(pairs["handlers"])
        if "builtin" in pairs:
            builtin.cases(pairs["builtin"], own_handlers)
        first_pair(pairs["first"])
        other_cases(pairs)
    finally:
        for pair in pairs.values():
            pair.stop()
    server.launcher_cases(Pair("launched", commands, scratch, comparison, settings=NO_KEYS, flags=["--ncs"]))


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
    try:
        compared(commands, scratch, comparison)
    finally:
        if arguments.keep:
            common.say(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    return comparison.close()


if __name__ == "__main__":
    sys.exit(main())
