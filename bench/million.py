#!/usr/bin/env python3
"""Measures a million live sequences in one server: opens them over HTTP, makes steps in random order, and lets them
expire. Runs alternate with those of a second server, which has a thousand sequences. Every sum is checked. Prints the
steps/s of both, their ratio, the memory and disk space of a sequence, and how long the expiry of all takes. Exits with
1 if the ratio is below --min-ratio, an answer is wrong, or a sequence outlives its time limit. Takes several minutes,
and about 1 GB of disk in the folder for temporary files."""

import argparse
import statistics
import sys
import time
import urllib.error
import urllib.request

from served import ROOT, Served, disk_bytes, machine, resident_bytes

IDLE_MS = 3_600_000
CONFIG = """minWorkers: 1
batchSize: 64
sequenceBatching: true
maxNumSequence: 2000000
sequenceMaxIdleMSec: {idle_ms}
"""
CACHE = "handler: {{ cache: {{ capacity: {cache}, bytes: 4000000000 }}, limits: {{ memoryBytes: 8000000000 }} }}\n"


class Crowd:
    """A server and its sequences."""

    def __init__(self, count, args):
        self.count = count
        config = CONFIG.format(idle_ms=IDLE_MS) + (CACHE.format(cache=args.cache) if args.cache else "")
        self.server = Served({"counter": (ROOT / "examples/counter/handler.lua", config)},
                             ["--durability", args.durability], clock=True)
        self.rates = []
        self.bad = 0

    def run(self, *args):
        result = self.server.bench("counter", "--prefix", "m", "--sums", self.server.folder / "sums", "--connections",
                                   64, "--stall-seconds", 10, *args)
        self.bad += result["errors"] + result["stalled"]
        return result

    def step(self, seconds):
        run = self.run("--sequences", self.count, "--random", "--duration", seconds, "--warmup", 0.5)
        self.rates.append(run["steps_per_s"])

    def footprint(self):
        """Returns in bytes: the server's memory, the worker's memory, the state folder."""
        return (resident_bytes(self.server.process.pid), resident_bytes(self.server.worker_pid("counter")),
                disk_bytes(self.server.folder / "state"))

    def live(self):
        return self.server.describe("counter")["sequences"]["live"]


def expire(crowd):
    """Returns the seconds from the end of the time limit until no sequence is live, and the answer to a late step."""
    began = time.monotonic()
    crowd.server.advance(IDLE_MS + 1000)
    while crowd.live() > 0 and time.monotonic() - began < 120:
        time.sleep(0.05)
    took = time.monotonic() - began
    late = urllib.request.Request(f"{crowd.server.inference}/predictions/counter", data=b"1",
                                  headers={"ts-request-sequence-id": "m-000000007-000"})
    try:
        with urllib.request.urlopen(late, timeout=30) as answer:
            return took, f"{answer.status}"
    except urllib.error.HTTPError as refusal:
        return took, f"{refusal.code} {refusal.headers.get('Continuo-Error')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each run (3)")
    parser.add_argument("--durability", default="process")
    parser.add_argument("--cache", type=int, help="handler.cache.capacity, with memory for it (as the server has it)")
    parser.add_argument("--min-ratio", type=float, default=0.8, help="steps/s with many / with few (0.8)")
    args = parser.parse_args()
    print(machine())
    few, many = Crowd(args.few, args), Crowd(args.many, args)
    with few.server, many.server:
        few.run("--open-only", args.few)
        before = few.footprint()
        opening = many.run("--open-only", args.many)
        after = many.footprint()
        print(f"{many.live():,} sequences opened over HTTP in {opening['seconds']:.0f} s, durability "
              f"{args.durability}", flush=True)
        slope = [(b - a) / (args.many - args.few) for a, b in zip(before, after, strict=True)]
        print(f"a sequence: {slope[0]:.0f} bytes of the server's memory, {slope[2]:.0f} bytes on disk; the worker "
              f"{after[1] / 1e6:.0f} MB, which its cache bounds and which counts mapped pages of the store",
              flush=True)
        for round_ in range(args.rounds):
            for crowd in (few, many) if round_ % 2 == 0 else (many, few):
                crowd.step(args.seconds)
        ratio = statistics.median(m / f for m, f in zip(many.rates, few.rates, strict=True))
        print(f"stepped at random, {args.rounds} rounds of {args.seconds:g} s, alternated, medians: "
              f"{statistics.median(few.rates):,.0f} steps/s with {args.few:,} live, "
              f"{statistics.median(many.rates):,.0f} with {args.many:,}", flush=True)
        held = many.live()
        took, refusal = expire(many)
        left = many.live()
    print(f"expired: {held - left:,} of {held:,} in {took:.1f} s; a late step hears {refusal}; "
          f"{few.bad + many.bad} errors in all")
    ratio_met = ratio >= args.min_ratio
    print(f"\nmany/few: {ratio:.2f}; the bound is {args.min_ratio}: {'met' if ratio_met else 'MISSED'}")
    fine = held == args.many and left == 0 and refusal == "410 sequence_expired" and not few.bad + many.bad
    return 0 if ratio_met and fine else 1


if __name__ == "__main__":
    sys.exit(main())
