#!/usr/bin/env python3
"""Shows where the time of a step goes. scripts/profile.sh runs this; --help lists the options.

Starts a server with the model and the load of a row of bench/suite/rows.py, samples the server and its workers with
perf, prints the functions in which most samples were taken, and draws a flame graph as SVG. With --counts it counts
instructions with callgrind instead, which does not depend on other load (bench/instructions/count.py)."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import flamegraph
import rows
import systems
from systems import ROOT

ROWS = {row.name: row for group in rows.GROUPS for row in group.rows}
#: 499 a second, so that no timer of the server beats with it. DWARF unwinding needs no frame pointers.
RECORD = ["-e", "cpu-clock", "-F", "499", "--call-graph", "dwarf,8192"]


def parse():
    parser = argparse.ArgumentParser(prog="scripts/profile.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=list(ROWS), default="http-lua", metavar="ROW",
                        help="what to profile (http-lua); one of " + " ".join(ROWS))
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/profile", help="folder (build/profile)")
    parser.add_argument("--counts", metavar="PATH", help="count instructions of a path of bench/instructions/paths.py, such "
                        "as http-lua, and print its functions")
    options = parser.parse_args()
    if options.connections < 1 or not 0 < options.seconds <= 600:
        parser.error("--connections must be over 0, and --seconds from 0 to 600")
    return options


def perf(*words, **more):
    done = subprocess.run(["perf", *map(str, words)], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise SystemExit(f"scripts/profile.sh: perf {words[0]} failed; it needs root, or kernel.perf_event_paranoid of at most 1 "
                         f"(sysctl): {done.stderr.strip()[-500:]}")
    return done.stdout


def record(row, options, data):
    """Writes the samples of the server's processes while the load runs."""
    system = systems.SYSTEMS[row.system]()
    try:
        pids = systems.tree(system.pid)
        words = [str(word) for word in row.load(system, options.connections, options.seconds + 1, min(2, options.connections))]
        load = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        time.sleep(0.5)  # until the load has begun
        try:
            perf("record", *RECORD, "-o", data, "-p", ",".join(map(str, pids)), "--", "sleep", options.seconds)
        finally:
            load.wait()
    finally:
        system.close()


def main():
    options = parse()
    if options.counts:
        script = ROOT / "bench/instructions/count.py"
        os.execv(sys.executable, [sys.executable, str(script), "--top", options.counts])
    if not shutil.which("perf"):
        raise SystemExit("scripts/profile.sh: perf is missing: install Debian's package linux-perf, or use --counts")
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="continuo-profile-") as folder:
        data = pathlib.Path(folder) / "perf.data"
        record(ROWS[options.row], options, data)
        text = perf("script", "-i", data, "--no-inline", "-F", "comm,ip,sym,dso")
    root, alone = flamegraph.tree(flamegraph.stacks(text))
    if not root.samples:
        raise SystemExit("scripts/profile.sh: perf took no samples; was the server idle?")
    file = options.output / f"{options.row}-{options.connections}.svg"
    file.write_text(flamegraph.svg(root, f"{ROWS[options.row].title}, {options.connections} connections: {root.samples} "
                                         "samples"), encoding="utf-8")
    print(f"{'share':>6}  {'process':16} function")
    for (comm, name, library), samples in alone.most_common(20):
        print(f"{100 * samples / root.samples:5.1f}%  {comm:16} {name} ({library})")
    print(f"\nflame graph: {file}")


if __name__ == "__main__":
    main()
