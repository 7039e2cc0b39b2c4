#!/usr/bin/env python3
"""Compares a step of a Python handler with the same step in Lua: the counter of examples/, one worker.

Rounds alternate between the two, each with a server of its own. The table has the medians: steps
per second, CPU time of the worker for a step (without the time in which it polls for work), and the
worker's share of memory (PSS). The ratio of the steps is the median of the rounds' ratios.

    bench/python.py --rounds 5 --python /usr/bin/python3
"""

import argparse
import re
import statistics
import time
import urllib.request

from served import ROOT, Served, machine

CONFIG = """minWorkers: 1
maxWorkers: 1
batchSize: 64
sequenceBatching: true
"""
HANDLERS = {"Lua": "examples/counter/handler.lua", "Python": "examples/python/counter/handler.py"}
BUSY = re.compile(r"^continuo_worker_busy_seconds_total\{[^}]*\} (\S+)$", re.M)


def busy_seconds(server):
    time.sleep(1.2)  # workers tell it once a second
    page = urllib.request.urlopen(f"{server.metrics}/metrics", timeout=30).read().decode()
    return sum(map(float, BUSY.findall(page)))


def pss_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def measure(kind, args, connections):
    flags = ["--python", args.python] if args.python else []
    with Served({"counter": (ROOT / HANDLERS[kind], CONFIG)}, flags) as server:
        server.bench("counter", "--connections", connections, "--duration", 1, "--warmup", 0)
        before = busy_seconds(server)
        result = server.bench("counter", "--connections", connections, "--duration", args.seconds,
                              "--warmup", 0)
        assert result["errors"] == 0, result
        spent = busy_seconds(server) - before
        return (result["steps_per_s"], spent / result["steps"] * 1e6,
                pss_bytes(server.worker_pid("counter")) / 1e6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--python", help="interpreter; default: python3 in PATH")
    args = parser.parse_args()
    print(machine())
    print("| connections | Lua, steps/s | Python, steps/s | Python / Lua | worker's CPU Lua / Python, us a step "
          "| worker's PSS Lua / Python, MB |\n|---|---|---|---|---|---|")
    for connections in args.connections:
        rounds = [[measure(kind, args, connections) for kind in HANDLERS] for _ in range(args.rounds)]
        lua, python = ([statistics.median(column) for column in zip(*side)] for side in zip(*rounds))
        ratio = statistics.median(python[0] / lua[0] for lua, python in rounds)
        print(f"| {connections} | {lua[0]:,.0f} | {python[0]:,.0f} | {ratio:.2f} | {lua[1]:.1f} / {python[1]:.1f} "
              f"| {lua[2]:.1f} / {python[2]:.1f} |", flush=True)
    print(machine())


if __name__ == "__main__":
    main()
