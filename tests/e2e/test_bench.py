"""The measurements of bench/ leave nothing behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys

from models import BIN, ROOT, counter
from waiting import expect, limit


def processes_of(folder):
    """Returns the pids of processes whose command line names the folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(folder) in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


def test_a_measurement_that_is_ended_cleans_up(tmp_path):
    """If a measurement is ended, as `timeout` does it, its servers stop and its folders are removed."""
    bench = subprocess.Popen([sys.executable, ROOT / "bench/million.py", "--many", "20000", "--seconds", "60"],
                             stdout=subprocess.PIPE, text=True,
                             env=os.environ | {"TMPDIR": str(tmp_path), "CONTINUO_BUILD": str(BIN.parent)})
    for line in bench.stdout:
        if "sequences opened" in line:
            break
    assert len(list(tmp_path.glob("continuo-bench-*"))) == 2
    bench.send_signal(signal.SIGTERM)
    assert bench.wait(limit(60)) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
    expect(lambda: not processes_of(tmp_path), "its processes have ended")


def loaded(server, *args):
    """Runs the load tool to its end. Returns its figures."""
    bench = server.bench("--duration", "0.3", "--warmup", "0.1", "--stall-seconds", limit(60), *args)
    out, words = bench.communicate(timeout=limit(120))
    assert bench.returncode == 0, words
    return json.loads(out)


def test_the_processes_of_the_load_tool_share_the_sequences(server):
    """With several processes the load tool is not slower than the server. Each sequence still has one sum, which is
    checked at its end, and the first process counts all of them."""
    figures = loaded(server(counter()), "--connections", 7, "--sequences", 20, "--processes", 3, "--end")
    assert (figures["ended"], figures["sequences"], figures["errors"]) == (20, 20, 0)


def test_a_ramp_shows_what_came_of_each_rate(server):
    """A ramp finds the rate at which a server no longer keeps up, if each part says which rate it had."""
    figures = loaded(server(counter()), "--connections", 4, "--rate", 100, "--ramp", 300, "--processes", 2)
    assert [part["rate"] for part in figures["ramp"]] == [110 + 20 * i for i in range(10)]
    assert figures["steps"] + figures["unanswered"] > 0
