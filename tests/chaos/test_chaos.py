"""The promises of docs/reliability.md are kept under faults in random order."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from models import BIN
from waiting import limit

CHAOS = pathlib.Path(__file__).with_name("chaos.py")


# Each kind of client runs with one, two and four loops, because some errors need several loops.
RUNS = [("ask", 1, 15), ("ask", 2, 12), ("ask", 4, 15), ("numbers", 1, 8), ("numbers", 4, 12), ("keys", 2, 12)]


RUNS = [(*each, "handler.lua") for each in RUNS] + [("ask", 2, 15, "handler.py"), ("keys", 1, 10, "handler.py"),
                                                   ("ask", 2, 12, "handler_torchserve.py")]


@pytest.mark.load
@pytest.mark.parametrize("clients, loops, seconds, handler", RUNS)
def test_chaos_loses_doubles_reorders_and_hangs_nothing(clients, loops, seconds, handler):
    """64 verified sequences. CONTINUO_CHAOS_SEED repeats the order of faults of a run that failed."""
    if handler.endswith(".py") and not (BIN / "python" / "continuo" / "_worker.abi3.so").exists():
        pytest.skip("this build has no Python (python3-dev)")
    command = [sys.executable, CHAOS, "--seconds", str(seconds), "--sequences", "64", "--clients", clients,
               "--loops", str(loops), "--handler", handler]
    if seed := os.environ.get("CONTINUO_CHAOS_SEED"):
        command += ["--seed", seed]
    run = subprocess.run(command, capture_output=True, text=True, timeout=limit(240), check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert (result["clients"], result["loops"]) == (clients, loops), result
    assert result["steps_by"]["http"] > 1000 and result["steps_by"]["grpc"] > 100, result
    assert sum(result["faults"].values()) > 10 and result["faults"]["kill_server"] > 0, result
    assert result["errors"]["dropped whole"] > 10, result
