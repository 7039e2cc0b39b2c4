#!/usr/bin/env python3
"""Measures what a step costs depending on the size of its sequence's state, with one connection and with several.

The model adds one to each number of its state, so it does hardly more than pass the state on. With each step the state
is decoded, batched, run, separated, encoded and committed. Prints a table in Markdown: steps/s (medians of alternated
rounds), and for all rounds together the CPU time of the worker and the page faults for each step, which other load on
the machine disturbs less.

With several connections a step should cost no more than with one: a batch handles more bytes, but not more bytes for
each step. The last column is the ratio of the worker's CPU times for a step. Exits with 1 if it is above --max-ratio.

Run it with a Python that has PyTorch (docs/torch.md), on a release build that has libcontinuo_torch.so."""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import torch

from served import Served, machine

KIB = 1024
SIZES = {"1 KiB": KIB, "64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": 1024 * KIB, "4 MiB": 4096 * KIB,
         "16 MiB": 16384 * KIB}
TICKS = 100  # ticks of CPU time in a second, in /proc


class AddOne(torch.nn.Module):
    def forward(self, x, h):
        h = h + 1.0
        return h[:, :1], h


def yaml(size, rows, durability):
    return f"""batchSize: {rows}
maxBatchSize: {rows}
minWorkers: 1
maxWorkers: 1
sequenceBatching: true
inputs: [{{name: x, dataType: UINT8, dims: [1]}}]
outputs: [{{name: y, dataType: FP32, dims: [1]}}]
state:
  durability: {durability}
  maxBytes: {size + 4096}
  storeMaxBytes: {64 * rows * (size + 65536)}
  tensors: [{{name: h, dataType: FP32, dims: [{size // 4}]}}]
"""


def used(pid):
    """Returns CPU seconds and page faults of the process."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS, int(words[7])


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


class Point:
    """One size with one number of connections, with a server of its own that runs through all rounds."""

    def __init__(self, script, size, connections, durability):
        self.connections = connections
        self.server = Served({"add": (script, yaml(size, connections, durability))},
                             flags=("--loops", "1", "--max-request-size", "10000"))
        self.rates, self.cpu, self.faults, self.steps, self.errors = [], 0.0, 0, 0, 0
        for _ in range(600):
            if self.server.worker_pid("add"):
                return
            time.sleep(0.1)
        errors = (self.server.folder / "stderr").read_text(errors="replace")
        raise SystemExit(f"the worker did not become ready: {errors[-2000:]}")

    def warm_up(self):
        """Runs until all buffers have their size, which takes a few batches of all sequences."""
        steps = 0
        while steps < 5 * self.connections:
            steps += self._bench(3)["steps"]

    def _bench(self, seconds):
        return self.server.bench("add", "--connections", str(self.connections), "--duration", str(seconds),
                                 "--warmup", "0", "--any-answer", "--prefix", "s")

    def round(self, seconds):
        pid = self.server.worker_pid("add")
        cpu, faults = used(pid)
        done = self._bench(seconds)
        cpu_after, faults_after = used(pid)
        self.steps += done["steps"]
        self.cpu += cpu_after - cpu
        self.faults += faults_after - faults
        self.rates.append(done["steps_per_s"])
        self.errors += done["errors"]
        self.resident = resident_mb(pid)

    def figures(self):
        return statistics.median(self.rates), self.cpu / self.steps * 1e6, self.faults / self.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES), metavar="SIZE")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--durability", nargs="*", default=["process", "none"])
    parser.add_argument("--max-ratio", type=float, default=0)
    options = parser.parse_args()
    worst = 0.0
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "add.pt"
        torch.jit.script(AddOne()).save(str(script))
        print(f"\n| state | durability | steps/s at 1 | at {options.connections} | worker's CPU, us a step at 1 | "
              f"at {options.connections} | page faults a step at 1 | at {options.connections} | worker's RSS, MB | "
              "CPU ratio |\n|---|---|---|---|---|---|---|---|---|---|")
        for name in options.sizes:
            for durability in options.durability:
                points = [Point(script, SIZES[name], n, durability) for n in (1, options.connections)]
                for point in points:
                    point.warm_up()
                for _ in range(options.rounds):
                    for point in points:
                        point.round(options.seconds)
                for point in points:
                    if point.errors:
                        print(f"{point.errors} errors", file=sys.stderr)
                        worst = float("inf")
                    point.server.close()
                (rate_1, cpu_1, faults_1), (rate_n, cpu_n, faults_n) = (point.figures() for point in points)
                worst = max(worst, cpu_n / cpu_1)
                print(f"| {name} | {durability} | {rate_1:,.0f} | {rate_n:,.0f} | {cpu_1:,.0f} | {cpu_n:,.0f} | "
                      f"{faults_1:.1f} | {faults_n:.1f} | {points[1].resident:.0f} | {cpu_n / cpu_1:.2f} |", flush=True)
    return 1 if options.max_ratio and worst > options.max_ratio else 0


if __name__ == "__main__":
    sys.exit(main())
