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


def run_chaos(handler, *flags):
    """Runs chaos.py with 64 sequences, and returns the line of JSON at its end."""
    if handler.endswith(".py") and not (BIN / "python" / "continuo" / "_worker.abi3.so").exists():
        pytest.skip("this build has no Python (python3-dev)")
    command = [sys.executable, CHAOS, "--sequences", "64", "--handler", handler, *map(str, flags)]
    if seed := os.environ.get("CONTINUO_CHAOS_SEED"):
        command += ["--seed", seed]
    run = subprocess.run(command, capture_output=True, text=True, timeout=limit(240), check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.load
@pytest.mark.parametrize("clients, loops, seconds, handler", RUNS)
def test_chaos_loses_doubles_reorders_and_hangs_nothing(clients, loops, seconds, handler):
    """64 verified sequences. CONTINUO_CHAOS_SEED repeats the order of faults of a run that failed."""
    result = run_chaos(handler, "--seconds", seconds, "--clients", clients, "--loops", loops)
    assert (result["clients"], result["loops"]) == (clients, loops), result
    assert result["steps_by"]["http"] > 1000 and result["steps_by"]["grpc"] > 100, result
    assert sum(result["faults"].values()) > 10 and result["faults"]["kill_server"] > 0, result
    assert result["errors"]["dropped whole"] > 10, result


@pytest.mark.load
@pytest.mark.parametrize("handler", ["handler.lua", "handler.py", "handler_torchserve.py"])
def test_kills_of_busy_workers_and_of_the_server_lose_double_and_reorder_nothing(handler):
    """64 verified sequences. CONTINUO_KILLS=100 makes a long run."""
    kills = int(os.environ.get("CONTINUO_KILLS", "8"))
    result = run_chaos(handler, "--kills", kills)
    assert set(result["faults"]) == {"kill_busy_worker", "kill_server"}, result
    assert result["faults"]["kill_busy_worker"] >= kills and result["faults"]["kill_server"] == 2, result
    assert result["redispatched"] > 0, "kills met steps in flight"
    assert result["steps"] > 50 * kills, result
