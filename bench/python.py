#!/usr/bin/env python3
"""Compares a step of a Python handler with the same step in Lua: the counter of examples/, with one worker.

Rounds alternate between the two, each with a server of its own. The table has medians: steps per second, CPU time of
the worker for a step, and the worker's share of memory (PSS).

bench/python.py --rounds 5 --python /usr/bin/python3"""

import argparse
import statistics

from served import ROOT, Served, machine

CONFIG = """minWorkers: 1
maxWorkers: 1
batchSize: 64
sequenceBatching: true
"""
HANDLERS = {"Lua": "examples/counter/handler.lua", "Python": "examples/python/counter/handler.py"}


def cpu_seconds(pid):
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


def pss_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def measure(kind, args, connections):
    flags = ["--python", args.python] if args.python else []
    with Served({"counter": (ROOT / HANDLERS[kind], CONFIG)}, flags) as server:
        pid = server.worker_pid("counter")
        server.bench("counter", "--connections", connections, "--duration", 1, "--warmup", 0)
        before = cpu_seconds(pid)
        result = server.bench("counter", "--connections", connections, "--duration", args.seconds,
                              "--warmup", 0)
        assert result["errors"] == 0, result
        spent = cpu_seconds(pid) - before
        return result["steps_per_s"], spent / result["steps"] * 1e6, pss_bytes(pid) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--python", help="interpreter; default: python3 in PATH")
    args = parser.parse_args()
    print(machine())
    print("| connections | handler | steps/s | worker's CPU, us a step | worker's PSS, MB |\n"
          "|---|---|---|---|---|")
    for connections in args.connections:
        rounds = {kind: [] for kind in HANDLERS}
        for _ in range(args.rounds):
            for kind, found in rounds.items():
                found.append(measure(kind, args, connections))
        for kind, found in rounds.items():
            steps, cpu, pss = (statistics.median(column) for column in zip(*found))
            print(f"| {connections} | {kind} | {steps:.0f} | {cpu:.1f} | {pss:.1f} |", flush=True)


if __name__ == "__main__":
    main()
