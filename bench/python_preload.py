#!/usr/bin/env python3
"""What preload: true gains for a Python model: how soon a dead worker is replaced, and the memory.

Rounds alternate between `preload: true` and `false`, each with a server of its own and a handler
that imports PACKAGE. The table has medians: the time from the start of a worker's process to
ready, in place of one that was killed, and the memory (PSS) of all processes of the model.

    bench/python_preload.py --python .venv/bin/python --package torch --workers 4
"""

import argparse
import os
import pathlib
import re
import signal
import statistics
import tempfile
import time

from python import pss_bytes
from served import Served, machine

HANDLER = """
import {package}


def init(req):
    return {{"sum": 0}}


def step(state, req):
    state["sum"] += int(req.body)
    return str(state["sum"])
"""
CONFIG = "minWorkers: {workers}\nmaxWorkers: {workers}\nsequenceBatching: true\nstartupTimeout: 300\npreload: {preload}\n"
READY = re.compile(r"event=worker_ready .*load_ms=(\d+)")


def ready_times(server):
    return [int(found) for found in READY.findall((server.folder / "stderr").read_text(errors="replace"))]


def wait_for(what, seconds=120):
    until = time.monotonic() + seconds
    while not (value := what()):
        if time.monotonic() > until:
            raise SystemExit("a worker did not become ready")
        time.sleep(0.01)
    return value


def measure(preload, handler, args):
    config = CONFIG.format(workers=args.workers, preload=str(preload).lower())
    begun = time.monotonic()
    with Served({"counter": (handler, config)}, ["--python", args.python]) as server:
        wait_for(lambda: len(ready_times(server)) >= args.workers)
        started_ms = 1000 * (time.monotonic() - begun)
        again = []
        for n in range(args.workers + 1, args.workers + 1 + args.kills):
            os.kill(wait_for(lambda: server.worker_pid("counter")), signal.SIGKILL)
            again.append(wait_for(lambda: ready_times(server)[n - 1:n])[0])
        server.bench("counter", "--connections", 16, "--duration", 2, "--warmup", 0)
        about = server.describe("counter")
        pids = [worker["pid"] for worker in about["workers"]] + [(about.get("zygote") or {}).get("pid")]
        assert preload == bool(about.get("zygote")), "the handler cannot be forked"
        return started_ms, statistics.median(again), sum(pss_bytes(pid) for pid in pids if pid) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--package", default="json", help="what the handler imports (json)")
    parser.add_argument("--python", default="python3", help="interpreter that has the package")
    args = parser.parse_args()
    print(machine())
    print("| handler imports | preload | first start of all, ms | a dead worker is back, ms | PSS of all, MB |\n"
          "|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        handler = pathlib.Path(folder) / "handler.py"
        handler.write_text(HANDLER.format(package=args.package), encoding="utf-8")
        found = {True: [], False: []}
        for _ in range(args.rounds):
            for preload, rows in found.items():
                rows.append(measure(preload, handler, args))
        for preload, rows in found.items():
            first, again, pss = (statistics.median(column) for column in zip(*rows))
            print(f"| {args.package} | {str(preload).lower()} | {first:.0f} | {again:.0f} | {pss:.1f} |", flush=True)


if __name__ == "__main__":
    main()
