"""The promises of docs/shared-store.md are kept behind a real proxy, under faults in random order: short forms of
tests/cluster/run.py. CONTINUO_CLUSTER_SEED repeats the order of faults of a run that failed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from waiting import limit

RUN = pathlib.Path(__file__).with_name("run.py")
SKIPPED = 77
TRIES = 3


def play(*args):
    """Returns the exit status, what the run printed, and its result."""
    command = [sys.executable, RUN, *map(str, args)]
    if seed := os.environ.get("CONTINUO_CLUSTER_SEED"):
        command += ["--seed", seed]
    run = subprocess.run(command, capture_output=True, text=True, timeout=limit(240), check=False)
    if run.returncode == SKIPPED:
        pytest.skip(run.stdout.strip().rpartition("skipped: ")[2])
    results = [line for line in run.stdout.splitlines() if line.startswith("{")]
    assert results, run.stdout + run.stderr
    return run.returncode, run.stdout + run.stderr, json.loads(results[-1])


@pytest.mark.load
@pytest.mark.parametrize("proxy", ["envoy", "haproxy", "nginx"])
def test_a_cluster_loses_doubles_reorders_and_hangs_nothing(proxy):
    """Nodes, workers, the proxy and the store's primary are killed, paused and cut off."""
    status, said, result = play("--proxy", proxy, "--seconds", 15, "--sequences", 40)
    assert status == 0, said
    assert result["steps_by"]["http"] > 500 and result["steps_by"]["grpc"] > 100, result
    assert sum(result["faults"].values()) > 10, result


@pytest.mark.load
def test_the_run_notices_a_store_without_conditions():
    """The same run fails with the error switched on, so it can fail."""
    for _ in range(TRIES):
        status, said, result = play("--seconds", 10, "--sequences", 40, "--router", "random", "--bug", "unconditional")
        if result["lost"] + result["doubled"] + result["reordered"] + result["unexpected_errors"] > 0:
            assert status == 1, said
            return
    raise AssertionError(f"{TRIES} runs without conditions found nothing: {said}")
