#!/usr/bin/env python3
"""Compares Continuo with ceilings and other servers, and writes docs/benchmarks.md with its plots.

bench/suite.sh runs this; --help lists the options. The figures are also kept as JSON, and --draw FILE writes the page
and the plots from such a file without measuring."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import goals
import measure
import page
import rows
import systems
import whose
from systems import ROOT, Unavailable

PLOTS = [["matplotlib>=3.8,<4"]]
BUSY_CORES = 0.2  # what other programs may use of the machine, before its steps per second prove nothing


def say(text):
    print(text, flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="bench/suite.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 round of 0.6 s at 1 and 64 connections; writes into build/suite")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.8, help="the length of a run (0.8)")
    parser.add_argument("--warmup", type=float, default=0.5, help="the length of the run before the rounds (0.5)")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--processes", type=int, default=2, help="processes of the load tool (2)")
    parser.add_argument("--only", nargs="+", choices=[group.name for group in rows.GROUPS], help="these groups only")
    parser.add_argument("--no-facts", action="store_true", help="leave out memory, start and recovery")
    parser.add_argument("--output", type=pathlib.Path, help="the folder for benchmarks.md and its plots (docs)")
    parser.add_argument("--note", help="a sentence about the machine, for the page to have in place of what other programs used")
    parser.add_argument("--draw", type=pathlib.Path, metavar="FILE", help="only write the page from FILE again")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.warmup, options.connections = 1, 0.6, 0.2, [1, 64]
    if options.rounds < 1 or not 0 < options.seconds <= 600 or min(options.connections) < 1 or options.processes < 1:
        parser.error("--rounds, --seconds, --connections and --processes must be over 0, and --seconds at most 600")
    if options.output is None:
        options.output = ROOT / ("build/suite" if options.quick or options.only else "docs")
    return options


def command_line(*words):
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=ROOT, check=False)
        return (done.stdout or done.stderr).strip().splitlines()[0]
    except (OSError, IndexError):
        return "none"


COMMIT = command_line("git", "describe", "--always", "--dirty")  # before docs/ is written


def versions():
    with open("/etc/os-release", encoding="utf-8") as file:
        system = next((line.partition("=")[2].strip().strip('"') for line in file if line.startswith("PRETTY_NAME")), "?")
    return {"Continuo": COMMIT, "system": system,
            "Python": sys.version.split()[0], "Java": command_line("java", "-version"),
            "TorchServe": systems.torchserve_pair.TORCHSERVE, "Triton": "2.51 (nvidia-pytriton 0.7.0)"}


def start_all(group, missing):
    """Starts the systems of a group. A system that cannot be had is in `missing`, with the reason."""
    running = {}
    for name in dict.fromkeys(row.system for row in group.rows):
        try:
            running[name] = systems.SYSTEMS[name]()
        except (Unavailable, SystemExit) as problem:
            missing[name] = f"not measured: {str(problem).strip().splitlines()[-1][:200]}"
            say(f"  {name}: {missing[name]}")
    return running


def lacking(row):
    """Why the row cannot be measured here, or None."""
    return None if not row.needs or shutil.which(row.needs) else f"not measured: {row.needs} is not installed"


def measure_group(group, options, missing):
    say(f"\n{group.title}")
    running = start_all(group, missing)
    try:
        there = [row for row in group.rows if row.system in running and not lacking(row)]
        cells = measure.compare(there, running, group.connections or options.connections, options, say)
    finally:
        for system in running.values():
            system.close()
    return {"name": group.name, "title": group.title, "about": group.about, "base": group.base,
            "connections": group.connections or options.connections, "rows": [
        {"name": row.name, "title": row.title, "base": row.base or group.base, "cells": cells.get(row.name, {}),
         "missing": lacking(row) or missing.get(row.system)}
        for row in group.rows]}


def measure_facts(groups, missing):
    say("\nMemory, start and recovery")
    found = []
    for group, row in ((group, row) for group in groups for row in group.rows if row.opened):
        title = {"title": f"{row.title} ({group.title})"}  # several groups have a row of this name
        found.append(title | ({"missing": missing[row.system]} if row.system in missing else measure.facts(row, say)))
    return found


def used_cores(seconds=2.0):
    """How many cores other programs use, while nothing of the suite runs. The load average would also have what the build
    of Continuo left in it."""
    def busy():
        with open("/proc/stat", encoding="ascii") as file:
            times = [int(word) for word in file.readline().split()[1:9]]
        return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")  # without idle and iowait

    before = busy()
    time.sleep(seconds)
    return (busy() - before) / seconds


def measure_all(options):
    wanted = [group for group in rows.GROUPS if not options.only or group.name in options.only]
    machine, _, _ = systems.torchserve_handler.machine().removeprefix("machine: ").rpartition("; load ")
    results = {"date": page.today(), "commit": COMMIT, "machine": machine,
               "cores": os.cpu_count(), "versions": versions(), "connections": options.connections,
               "rounds": options.rounds, "seconds": options.seconds, "processes": options.processes}
    used = [used_cores()]
    began = time.monotonic()
    missing = {}
    results["groups"] = [measure_group(group, options, missing) for group in wanted]
    results["facts"] = [] if options.no_facts else measure_facts(wanted, missing)
    used.append(used_cores())
    results["used_cores"] = [round(each, 2) for each in used]
    results["busy"] = max(used) > BUSY_CORES
    if options.note:
        results["note"] = options.note
    results["took_s"] = round(time.monotonic() - began)
    return results


def draw(results, options):
    results["ratios"], results["goals"] = goals.ratios(results), goals.goals(results)
    results["split"], results["bounds"] = whose.split(results), whose.bounds(results)
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "benchmarks" / "results.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page.write(results, options.output / "benchmarks.md")
    try:
        python = systems.common.python_peer("plots", PLOTS, "import matplotlib")
    except Unavailable as problem:
        raise SystemExit(f"bench/suite.sh: no plots, because matplotlib cannot be installed: {problem}") from None
    subprocess.run([python, pathlib.Path(__file__).parent / "plots.py", file, file.parent], check=True)
    say(f"\nwritten: {options.output / 'benchmarks.md'} and {file.parent}")


def main():
    options = parse()
    results = json.loads(options.draw.read_text()) if options.draw else measure_all(options)
    draw(results, options)


if __name__ == "__main__":
    main()
