#!/usr/bin/env python3
"""Measures what the walls around workers cost: the CPU time of a step with --worker-walls on and off.

Three servers run at the same time, one without walls, one with, and another one without. A round sends a short load to
one after the other, and begins at another one each time. The table compares the servers' CPU times of a step at the
10th percentile of the rounds, because other load on the machine only ever makes a figure worse; the third server shows
the noise. CPU time is that of the server and its workers, from the kernel's schedstat. There is one connection and no
polling, so that each step is a batch by itself."""

import argparse
import contextlib
import os
import statistics
import sys

from served import ROOT, Served, machine
from tuning import CONFIG, COUNTER, cpu_ns

PYTHON = """def init(req):
    return {"sum": 0}


def step(state, req):
    state["sum"] += int(req.text)
    return str(state["sum"])
"""
WALLS = ("off", "on", "off")


def measure(server, model, seconds):
    """Returns the CPU time of a step in microseconds. On a busy machine a short load may not get its turn at all; it is
    then sent again."""
    while True:
        before = cpu_ns(server)
        result = server.bench(model, "--connections", 1, "--warmup", 0, "--duration", seconds)
        if result["errors"]:
            raise RuntimeError(f"{model}: {result}")
        if result["steps"]:
            return (cpu_ns(server) - before) / 1000 / result["steps"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each run (0.05)")
    args = parser.parse_args()
    handler = ROOT / "build" / "walls_handler.py"
    handler.write_text(PYTHON, encoding="utf-8")
    models = {"lua": (COUNTER, CONFIG), "python": (handler, CONFIG)}
    figures = {model: [[] for _ in WALLS] for model in models}
    print(machine())
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Served(models, ["--loops", 1, "--worker-walls", walls, "--tuning=all,-busy-wait"]))
                   for walls in WALLS]
        for round_ in range(args.rounds):
            for model in models:
                for i in range(len(WALLS)):
                    which = (i + round_) % len(WALLS)
                    figures[model][which].append(measure(servers[which], model, args.seconds))
    handler.unlink()
    print(f"{args.rounds} rounds of {args.seconds:g} s, alternated; CPU time of a step, 1 connection\n\n"
          "| worker | us without walls | with walls, % | without walls again, % |\n|---|---|---|---|")
    for model, each in figures.items():
        off, walls, again = (statistics.quantiles(one, n=10)[0] for one in each)
        print(f"| {model} | {off:.1f} | {walls / off * 100 - 100:+.1f} | {again / off * 100 - 100:+.1f} |")
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
