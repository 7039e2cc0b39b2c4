"""The measurements of bench/ leave nothing behind."""

import os
import pathlib
import signal
import subprocess
import sys

from models import BIN, ROOT
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
