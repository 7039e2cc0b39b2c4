#!/usr/bin/env python3
"""Counts the instructions that a step takes in the server and in its worker, for eight ways to send it, and compares
them with bench/instructions/figures.json.

    bench/instructions/count.py            prints the figures and what has changed
    bench/instructions/count.py --check    the same; exit 1 if a figure is more than 3 % above that of the file (6 % for
                                           gRPC, 13 % for WebSockets)
    bench/instructions/count.py --renew    writes the file anew: do so in the commit that changes the figures
    bench/instructions/count.py --top http-lua    prints the functions of one path

There are two figures for a step: the instructions of our own code (server and worker), and how often our
code calls a library. Neither depends on the version of a library or on other load. Both depend on the compiler, so the
file names it, and the check is left out (exit 77) for another one, and where valgrind is missing. The instructions that
libraries run are shown and not checked. Needs valgrind, a release build and, for gRPC, the package grpcio."""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from callgrind import OURS, Callgrind, Unavailable  # noqa: E402
from paths import PATHS  # noqa: E402
from served import BIN, ROOT, Served  # noqa: E402

FIGURES = HERE / "figures.json"
STEPS, WARMUP = 200, 50
LIMIT_PERCENT = 3
# How many percent more these paths may take: they come last in a worker whose garbage collector is then at another
# point of its cycle.
SPREAD_PERCENT = {"grpc-unary": 3, "grpc-stream": 3, "websocket": 10}
# Under valgrind a process has no room for the 64 GiB that a store may have by default.
STORE = "state: {storeMaxBytes: 1073741824}\n"
CONFIG = "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 64\nsequenceBatching: true\n" + STORE


def compiler():
    """Returns the compiler of the server's program, as the program itself says it, without its patch level."""
    words = subprocess.run(["readelf", "-p", ".comment", BIN / "continuo"], capture_output=True, text=True,
                           check=True).stdout
    found = re.search(r"(GCC|clang)\b.*?(\d+\.\d+)\.\d+\s*$", words, re.M)
    return f"{found[1]} {found[2]}" if found else words.strip()


def one(server, valgrind, name):
    """Returns the counts of STEPS steps of a path."""
    model, make = PATHS[name]
    client = make(server)
    for i in range(1, WARMUP + 1):
        client.step(i)
    counts = valgrind.counts([server.process.pid, server.worker_pid(model)],
                             lambda: [client.step(WARMUP + i) for i in range(1, STEPS + 1)])
    client.close()
    return counts


def count(names=tuple(PATHS)):
    """Returns {path: Counts}."""
    if importlib.util.find_spec("grpc") is None:
        raise Unavailable(f"{sys.executable} has no package grpcio: use .venv/bin/python")
    examples = BIN.parent / "examples"
    identity = (ROOT / "examples/v2/identity/model-config.yaml").read_text(encoding="utf-8")
    models = {"counter": (ROOT / "examples/counter/handler.lua", CONFIG), "speech": (examples / "speech.so", CONFIG),
              "identity": (examples / "identity.so", identity + STORE)}
    with Callgrind() as valgrind, Served(models, ["--loops", 1, "--busy-wait", 0, "--durability", "process"],
                                         grpc=True, under=valgrind) as server:
        return {name: one(server, valgrind, name) for name in names}


def figures_of(counts):
    return {name: {"instructions": round(each.own() / STEPS), "calls": round(each.calls_out() / STEPS, 1)}
            for name, each in counts.items()}


def compare(before, now, percent=LIMIT_PERCENT):
    """Returns a sentence for each figure that is more than `percent` above that of the file."""
    wrong = []
    for name, figures in now.items():
        for which, value in figures.items():
            old = before.get(name, {}).get(which)
            if old is None:
                wrong.append(f"{name} is not in {FIGURES.name}")
            elif value > old * (1 + (percent + SPREAD_PERCENT.get(name, 0)) / 100):
                wrong.append(f"{name}: {old:,} {which} a step became {value:,} ({value / old * 100 - 100:+.1f} %)")
    return wrong


def show(before, now, counts):
    print("| path | our instructions a step | in the file | calls of libraries a step | in the file "
          "| all instructions a step |\n|---|---|---|---|---|---|")
    for name, figures in now.items():
        old = before.get(name, {})
        print(f"| `{name}` | {figures['instructions']:,} | {old.get('instructions', 0):,} | {figures['calls']:,} "
              f"| {old.get('calls', 0):,} | {counts[name].all() / STEPS:,.0f} |")


def show_functions(counts):
    for (which, name), n in counts.instructions.most_common(60):
        print(f"{n / STEPS:10.1f}  {'*' if which in OURS else ' '} {which} {name}")
    print("\ncalls of libraries:")
    for (caller, called), n in counts.calls.most_common(40):
        print(f"{n / STEPS:10.2f}  {caller} -> {called}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--percent", type=float, default=LIMIT_PERCENT, help="another limit for --check")
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--top", choices=PATHS)
    args = parser.parse_args()
    try:
        if args.top:
            show_functions(count([args.top])[args.top])
            return 0
        counts = count()
    except Unavailable as why:
        print(f"count.py: {why}", file=sys.stderr)
        return 77
    now, built_by = figures_of(counts), compiler()
    file = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {"paths": {}}
    show(file["paths"], now, counts)
    if args.renew:
        FIGURES.write_text(json.dumps({"compiler": built_by, "paths": now}, indent=2) + "\n", encoding="utf-8")
        return 0
    if file.get("compiler") != built_by:
        print(f"not compared: the file is for {file.get('compiler')}, and this build is of {built_by}")
        return 77
    wrong = compare(file["paths"], now, args.percent)
    for line in wrong:
        print(line)
    if wrong and args.check:
        print("If the change is worth this, write the new figures with bench/instructions/count.py --renew and commit "
              "them with it. bench/instructions/count.py --top PATH shows where the instructions are.")
    return 1 if wrong and args.check else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
