#!/usr/bin/env python3
"""Measures what a commit costs: steps/s of one model with durability none, process and power, for states of several
sizes, in alternated runs on one server. Every answer is checked. Prints medians, and the medians of the ratios to
`none` in the same round. Exits with 1 if process/none of the smallest state is below --min-ratio."""

import argparse
import statistics
import sys

from served import Served, machine

LEVELS = ("none", "process", "power")
HANDLER = """local M = {{ api = 1 }}
function M.init() return {{ sum = 0, ballast = ("x"):rep({size}) }} end
function M.step(state, req)
    local number = math.tointeger(tonumber(req.text))
    if number == 0 then return {{ text = state.sum, end_sequence = true }} end
    state.sum = state.sum + number
    return {{ text = state.sum }}
end
return M
"""
CONFIG = """minWorkers: 1
batchSize: {batch}
sequenceBatching: true
state: {{ durability: {level}, maxBytes: 16777216 }}
handler: {{ cache: {{ bytes: 1073741824 }}, limits: {{ memoryBytes: 2147483648 }} }}
sequence: {{ tombstoneMSec: 0 }}
"""
MARGIN = 32  # bytes of the state besides the padding


def size_word(size):
    return f"{size} B" if size < 1024 else f"{size // 1024} kB" if size < 1 << 20 else f"{size >> 20} MB"


def measure(size, args):
    """Returns steps/s of each level, one figure for each round, and how many answers were wrong or late."""
    handler = HANDLER.format(size=size - MARGIN)
    models = {level: (handler, CONFIG.format(level=level, batch=args.sequences)) for level in LEVELS}
    rates = {level: [] for level in LEVELS}
    bad = 0
    with Served(models) as server:
        for round_ in range(args.rounds):
            for turn in range(len(LEVELS)):  # each level comes first, second and last equally often
                level = LEVELS[(turn + round_) % len(LEVELS)]
                run = server.bench(level, "--connections", args.sequences, "--duration", args.seconds,
                                   "--warmup", args.seconds / 2, "--stall-seconds", 30, "--end")
                rates[level].append(run["steps_per_s"])
                bad += run["errors"] + run["stalled"]
    return rates, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2, help="of each run (2)")
    parser.add_argument("--sequences", type=int, default=64, help="one connection each (64)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 4096, 65536, 1048576], help="bytes of state")
    parser.add_argument("--min-ratio", type=float, default=0.85, help="process/none of the smallest state (0.85)")
    args = parser.parse_args()
    print(machine())
    print(f"{args.sequences} sequences, {args.rounds} rounds of {args.seconds:g} s, alternated; medians\n")
    print("| state | none steps/s | process steps/s | power steps/s | process/none | power/none | errors |")
    print("|---|---|---|---|---|---|---|", flush=True)
    first, wrong = None, 0
    for size in sorted(args.sizes):
        rates, bad = measure(size, args)
        ratio = {level: statistics.median(ours / max(none, 0.1) for ours, none in
                                          zip(rates[level], rates["none"], strict=True)) for level in LEVELS[1:]}
        rate = {level: statistics.median(rates[level]) for level in LEVELS}
        print(f"| {size_word(size)} | {rate['none']:,.0f} | {rate['process']:,.0f} | {rate['power']:,.0f} "
              f"| {ratio['process']:.2f} | {ratio['power']:.2f} | {bad} |", flush=True)
        first = first or ratio["process"]
        wrong += bad
    met = first >= args.min_ratio
    print(f"\nprocess/none of the smallest state: {first:.2f}; the bound is {args.min_ratio}: "
          f"{'met' if met else 'MISSED'}")
    return 0 if met and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
