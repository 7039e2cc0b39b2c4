#!/usr/bin/env python3
"""Runs the libFuzzer targets in pieces, one after the other, for as long as you like.

A piece runs one target for some seconds, with AddressSanitizer and UndefinedBehaviorSanitizer, on the corpus of the
repository and on what earlier pieces found. The inputs that it finds and the counts of all pieces are kept in a folder,
so a campaign may be stopped at any time and continued later, also after the code has changed. The target with the
fewest pieces is always the next one.

    cmake --preset fuzz && cmake --build --preset fuzz
    tests/campaign/fuzz.py --hours 24 --kept ~/fuzzing [--piece 300] [--build build/fuzz] [--only NAME ...] [--jobs 2]
    tests/campaign/fuzz.py --report --kept ~/fuzzing

The exit status is 1 if any piece ended with a finding, whose input lies in KEPT/findings."""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX = "fuzz_"
GRACE_S = 120  # a piece that has not ended this long after its time hangs


class Counts:
    """What all pieces did so far, by target. Written after each piece, so that nothing is lost."""

    def __init__(self, folder):
        self._path = folder / "counts.json"
        self._lock = threading.Lock()
        self.targets = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.running = set()

    def next_of(self, names):
        """Takes the target with the fewest pieces, of those that do not run now."""
        with self._lock:
            free = [name for name in names if name not in self.running]
            name = min(free, key=lambda each: self.targets.get(each, {}).get("pieces", 0))
            self.running.add(name)
            return name

    def add(self, name, **piece):
        with self._lock:
            self.running.discard(name)
            target = self.targets.setdefault(name, {"pieces": 0, "seconds": 0, "runs": 0, "inputs": 0, "findings": []})
            target["pieces"] += 1
            target["seconds"] = round(target["seconds"] + piece["seconds"], 1)
            target["runs"] += piece["runs"]
            target["inputs"] = piece["inputs"]
            target["findings"] += piece["findings"]
            target.setdefault("first", piece["when"])
            target["last"], target["commit"] = piece["when"], piece["commit"]
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(self.targets, indent=1, sort_keys=True))
            os.replace(part, self._path)


def commit():
    said = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def run_piece(args, counts, name):
    found, findings = args.kept / "corpus" / name, args.kept / "findings"
    found.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    before, began = set(findings.iterdir()), time.monotonic()
    command = [args.build / "fuzz" / f"{PREFIX}{name}", f"-max_total_time={args.piece}", "-timeout=25", "-rss_limit_mb=4096",
               "-print_final_stats=1", f"-artifact_prefix={findings}/{name}-", found]
    corpus = ROOT / "tests" / "fuzz" / "corpus" / name
    if corpus.is_dir():
        command.append(corpus)
    env = {**os.environ, "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
    try:
        run = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", env=env,
                             timeout=args.piece + GRACE_S, check=False)
        said, status = run.stderr, run.returncode
    except subprocess.TimeoutExpired as hung:
        said, status = (hung.stderr or b"").decode(errors="replace"), "hung"
    new = [str(each.relative_to(args.kept)) for each in sorted(set(findings.iterdir()) - before)
           if each.name.startswith(f"{name}-")]
    if status != 0:
        log = findings / f"{name}-{int(time.time())}.log"
        log.write_text(said)
        new.append(str(log.relative_to(args.kept)))
    runs = re.search(r"number_of_executed_units:\s*(\d+)", said)
    counts.add(name, seconds=time.monotonic() - began, runs=int(runs.group(1)) if runs else 0,
               inputs=len(list(found.iterdir())), findings=new, commit=commit(),
               when=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"))
    print(f"{name}: {runs.group(1) if runs else '?'} runs, status {status}{', ' + str(new) if new else ''}", flush=True)


def report(counts):
    """Prints a table for docs/campaigns.md."""
    print("| target | pieces | hours | runs | inputs found | findings |\n|---|---|---|---|---|---|")
    for name, each in sorted(counts.targets.items()):
        print(f"| {name} | {each['pieces']} | {each['seconds'] / 3600:.2f} | {each['runs']:,} | {each['inputs']} | "
              f"{len(each['findings'])} |")
    each = counts.targets.values()
    print(f"| **all** | {sum(t['pieces'] for t in each)} | {sum(t['seconds'] for t in each) / 3600:.2f} | "
          f"{sum(t['runs'] for t in each):,} | {sum(t['inputs'] for t in each)} | "
          f"{sum(len(t['findings']) for t in each)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=pathlib.Path, required=True, help="folder for the corpus, findings and counts")
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--piece", type=int, default=300, help="seconds of one piece")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--only", nargs="*", default=[], help="names of targets; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="how many targets run at once")
    parser.add_argument("--report", action="store_true", help="only prints the counts as a table")
    args = parser.parse_args()
    args.kept.mkdir(parents=True, exist_ok=True)
    counts = Counts(args.kept)
    if args.report:
        report(counts)
        return 0
    names = args.only or sorted(each.name[len(PREFIX):] for each in (args.build / "fuzz").glob(f"{PREFIX}*")
                                if os.access(each, os.X_OK) and each.is_file())
    if not names:
        sys.exit(f"{args.build}/fuzz has no targets; build them: cmake --preset fuzz && cmake --build --preset fuzz")
    until = time.monotonic() + args.hours * 3600

    def work():
        while time.monotonic() < until:
            run_piece(args, counts, counts.next_of(names))

    with concurrent.futures.ThreadPoolExecutor(min(args.jobs, len(names))) as pool:
        for each in [pool.submit(work) for _ in range(min(args.jobs, len(names)))]:
            each.result()
    report(counts)
    return 1 if any(each["findings"] for each in counts.targets.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
