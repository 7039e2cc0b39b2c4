#!/usr/bin/env python3
"""Measures the CPU time of a step in server and worker together, beside a bare echo on libmicrohttpd or libgrpc,
for one build or several. All of them run in turn, in short rounds.

    bench/cpu.py                                HTTP: 16, 64 and 256 connections, beside bench/echo-mhd.c
    bench/cpu.py --grpc                         gRPC: 64 calls or messages in flight, beside `grpc-bench echo`
    bench/cpu.py before=../old/build/release after=build/release

Ours is the counter example (Lua) with `durability: process` and without polling (--busy-wait 0), so that waiting costs
nothing. Every sum is checked. Other load on the machine only ever adds CPU time to a step (it empties caches and parts
batches), so each figure is the median of the best quarter of the rounds. The time is that of all threads, from the
kernel's schedstat. Needs release builds (scripts/build.sh)."""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

import served
from served import BIN, ROOT, Served, machine

CONFIG = "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 64\nsequenceBatching: true\n"
FLAGS = ["--loops", 1, "--busy-wait", 0, "--durability", "process"]
GRPC_LOADS = ["unary", "bidi"]


def cpu_us(pid):
    """Returns the CPU time of a process and its children, in microseconds."""
    tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    own = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000
    return own + sum(cpu_us(child) for task in tasks for child in (task / "children").read_text().split())


class Side:
    """One of the servers that run in turn: its process, and where its loads go."""

    def __init__(self, name, process, target, model):
        self.name, self.process, self.target, self.model = name, process, target, model

    def us_a_step(self, load, args):
        """Sends one load and returns the CPU time of a step."""
        if args.grpc:
            command = [BIN / "grpc-bench", load, self.target, self.model, "--calls", 64, "--seconds", args.seconds,
                       "--data", 1]
        else:
            command = [BIN / "continuo-bench", "--url", self.target, "--connections", load, "--duration", args.seconds,
                       "--warmup", 0, *(["--echo"] if self.name == "echo" else [])]
        before = cpu_us(self.process.pid)
        # The tools may say that they were slower than the server. To the server's CPU time that makes no difference.
        words = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False).stdout
        result = json.loads(words.splitlines()[-1])
        if result["errors"]:
            raise SystemExit(f"bench/cpu.py: {self.name}: wrong answers: {result}")
        return (cpu_us(self.process.pid) - before) / result["steps"]


def begin_echo(stack, args):
    command = [BIN / "grpc-bench", "echo"] if args.grpc else [BIN / "echo-mhd", "--loops", "1"]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    words = process.stdout.readline().replace("=", " ").split()
    port = words[words.index("port") + 1]
    return Side("echo", process, f"127.0.0.1:{port}" if args.grpc else f"http://127.0.0.1:{port}", "echo")


def begin_build(stack, build, args):
    name, _, folder = build.rpartition("=")
    served.BIN = pathlib.Path(folder).resolve() / "bin"
    models = {"counter": (ROOT / "examples/counter/handler.lua", CONFIG)}
    server = stack.enter_context(Served(models, FLAGS, grpc=args.grpc))
    served.BIN = BIN
    return Side(name or folder, server.process, server.grpc if args.grpc else server.inference, "counter")


def run_rounds(sides, loads, args):
    """Returns {(load, name): the figures of all rounds}."""
    figures = {(load, side.name): [] for load in loads for side in sides}
    for turn in range(args.rounds):
        for load in loads:
            for i in range(len(sides)):
                side = sides[(turn + i) % len(sides)]
                figures[load, side.name].append(side.us_a_step(load, args))
    return figures


def best_quarter(values):
    return statistics.median(sorted(values)[:max(1, len(values) // 4)])


def print_table(sides, loads, figures):
    head = ["load", "echo, us"] + [word for side in sides[1:] for word in (f"{side.name}, us", f"{side.name} / echo")]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for load in loads:
        echo, *ours = (best_quarter(figures[load, side.name]) for side in sides)
        print(f"| {load} | {echo:.2f} | " + " | ".join(f"{us:.2f} | {us / echo:.2f}" for us in ours) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each run (0.2)")
    parser.add_argument("--connections", nargs="+", type=int, default=[16, 64, 256])
    parser.add_argument("--grpc", action="store_true")
    parser.add_argument("builds", nargs="*", default=["ours=build/release"], help="NAME=FOLDER of each build")
    args = parser.parse_args()
    loads = GRPC_LOADS if args.grpc else args.connections
    print(f"{machine()}; {args.rounds} rounds of {args.seconds:g} s, in turn; best quarter", flush=True)
    with contextlib.ExitStack() as stack:
        sides = [begin_echo(stack, args)] + [begin_build(stack, build, args) for build in args.builds]
        print_table(sides, loads, run_rounds(sides, loads, args))
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
