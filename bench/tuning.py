#!/usr/bin/env python3
"""Measures what each performance mechanism gains: the CPU time of a step and the steps per second with all mechanisms,
with each one switched off alone (--tuning all,-NAME), and with none.

A round starts one server after the other, each with another list, and runs the loads on it. Rounds begin at different
places of the list. Each figure is compared with that of `all` in the same round, and the table has the medians. With
--best, the best figure of all rounds is compared with the best one of `all`. `all` is run twice, and its second row
shows the noise. CPU time is that of the server and its workers, from the kernel's schedstat; it depends less on other
load than steps per second do. Each cell has the CPU time of a step and then the steps per second, in percent of `all`.
If a mechanism gains something, there is more CPU time, or there are fewer steps per second, without it."""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

from served import BIN, ROOT, Served, machine

TABLE = (ROOT / "core" / "tuning" / "tuning.def").read_text(encoding="utf-8")
NAMES = re.findall(r'^CN_TUNING\(\w+, "([a-z-]+)"', TABLE, re.M)

COUNTER = ROOT / "examples" / "counter" / "handler.lua"
CONFIG = """minWorkers: 1
maxWorkers: 1
batchSize: 64
sequenceBatching: true
maxNumSequence: 2000000
"""
LARGE = """local M = { api = 1 }
function M.init() return { sum = 0, ballast = ("x"):rep(1000000) } end
function M.step(state, req)
    state.sum = state.sum + math.tointeger(tonumber(req.text))
    return { text = state.sum }
end
return M
"""
LARGE_CONFIG = CONFIG + """state: { maxBytes: 16777216 }
handler: { cache: { bytes: 1073741824 }, limits: { memoryBytes: 2147483648 } }
"""
VALUES = "0.5,1.5,-2.25,3.0,0.125,5.5,6.5,-7.75,8.5,9.25,10.5,11.0,-12.5,13.5,14.75,15.5"


class Load:
    """One kind of load: its title, the mechanisms that it should show, and how it is sent to a server."""

    def __init__(self, title, names, run, prepare=None):
        self.title, self.names, self.run, self.prepare = title, names, run, prepare


def steps(connections):
    def run(server, args, seconds):
        result = server.bench("counter", "--connections", connections, "--duration", seconds, "--warmup", 0)
        return result["steps_per_s"], result["steps"], result["errors"]
    return run


def many(server, args, seconds):
    result = server.bench("counter", "--prefix", "m", "--sums", server.folder / "sums", "--connections", 64,
                          "--stall-seconds", 10, "--sequences", args.many, "--random", "--duration", seconds,
                          "--warmup", 0)
    return result["steps_per_s"], result["steps"], result["errors"]


def open_many(server, args):
    server.bench("counter", "--prefix", "m", "--sums", server.folder / "sums", "--connections", 64,
                 "--stall-seconds", 10, "--open-only", args.many)


def large_states(server, args, seconds):
    result = server.bench("large", "--connections", 8, "--duration", seconds, "--warmup", 0,
                          "--stall-seconds", 10)
    return result["steps_per_s"], result["steps"], result["errors"]


def of_line(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return result["steps_per_s"], result["steps"], result["errors"]


def v2(kind):
    def run(server, args, seconds):
        body, end, head = server.bodies[kind]
        command = [BIN / "post-bench", "%s:%d" % server.address, "/v2/models/identity/infer", body, "--end", end,
                   "--connections", 4 if kind == "large" else 64, "--seconds", seconds, "--processes", 2]
        return of_line(command + (["--header", head] if head else []))
    return run


def rpc(method, model, calls, data):
    def run(server, args, seconds):
        return of_line([BIN / "grpc-bench", method, server.grpc, model, "--calls", calls, "--data", data,
                        "--seconds", seconds, "--processes", 2])
    return run


LOADS = {
    "steps16": Load("counter, 16 connections", {"busy-wait", "lockstep", "block-pages", "journal", "store-hints"},
                    steps(16)),
    "steps64": Load("counter, 64 connections", {"busy-wait", "lockstep", "block-pages", "journal", "store-hints",
                                                "lua-steps"}, steps(64)),
    "many": Load("counter, random steps of many sequences",
                 {"prefetch", "lua-layout", "block-pages", "lua-steps", "journal", "store-hints"}, many,
                 open_many),
    "states": Load("states of 1 MB, 8 connections", {"keep-heap", "borrowed-output", "journal"}, large_states),
    "json": Load("v2 JSON, 16 FP32, 64 connections", {"json-cuts", "json-heads", "busy-wait"}, v2("json")),
    "binary": Load("v2 binary, 16 FP32, 64 connections", {"json-heads"}, v2("small")),
    "mb": Load("v2 binary, 1 MB, 4 connections", {"borrowed-output", "keep-heap"}, v2("large")),
    "rpc": Load("gRPC Predictions, 64 in flight", {"busy-wait"},
                rpc("unary", "counter", 64, 1)),
    "infer": Load("gRPC ModelInfer, 16 FP32, 64 in flight", set(),
                  rpc("infer", "identity", 64, 64)),
}


def write_bodies(server):
    """Writes the v2 requests as files. The tensor is the last part of request and answer."""
    server.bodies = {}
    text = '{"inputs":[{"name":"FP32","datatype":"FP32","shape":[16],"data":[' + VALUES + "]}]}"
    made = {"json": (text.encode(), (VALUES + "]}]}").encode(), None)}
    for kind, size in (("small", 64), ("large", 1_000_000)):
        head = ('{"inputs":[{"name":"FP32","datatype":"FP32","shape":[%d],"parameters":{"binary_data_size":%d}}],'
                '"outputs":[{"name":"FP32","parameters":{"binary_data":true}}]}' % (size // 4, size)).encode()
        made[kind] = (head + b"?" * size, b"?" * size, f"Inference-Header-Content-Length: {len(head)}")
    for kind, (body, end, head) in made.items():
        paths = server.folder / kind, server.folder / f"{kind}.end"
        for path, content in zip(paths, (body, end), strict=True):
            path.write_bytes(content)
        server.bodies[kind] = (*paths, head)


def cpu_ns(server):
    """Returns the CPU time of the threads of the server and its workers."""
    pids = [server.process.pid]
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            pids += [int(child) for child in (task / "children").read_text().split()]
    return sum(int((task / "schedstat").read_text().split()[0])
               for pid in pids for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def measure(tuning, wanted, args):
    """Returns {load: (CPU us of a step, steps/s)} for one server."""
    found = {}
    models = {"counter": (COUNTER, CONFIG), "large": (LARGE, LARGE_CONFIG),
              "identity": (BIN.parent / "examples" / "identity.so",
                           (ROOT / "examples/v2/identity/model-config.yaml").read_text(encoding="utf-8"))}
    with Served(models, ["--loops", 1, f"--tuning={tuning}", "--durability", args.durability], grpc=True) as server:
        write_bodies(server)
        for name in wanted:
            if LOADS[name].prepare:
                LOADS[name].prepare(server, args)
            LOADS[name].run(server, args, 0.2)
            before = cpu_ns(server)
            rate, count, failed = LOADS[name].run(server, args, args.seconds)
            found[name] = ((cpu_ns(server) - before) / 1000 / max(count, 1), rate)
            if failed:
                raise RuntimeError(f"--tuning={tuning}, {name}: {failed} answers were wrong")
    return found


def cell(values, base, best):
    """Returns medians of the ratios to `all` of the same round, or the ratios of the best figures, in percent."""
    rounds = values.keys() & base.keys()
    if rounds and best:
        return " / ".join(f"{pick(values[r][i] for r in rounds) / pick(base[r][i] for r in rounds) * 100 - 100:+.0f}"
                          for i, pick in enumerate((min, max)))
    return " / ".join(f"{statistics.median(values[r][i] / base[r][i] for r in rounds) * 100 - 100:+.0f}"
                      for i in range(2)) if rounds else ""


def run_rounds(rows, args):
    """Returns {row: {load: {round: figures}}}. On SIGINT or SIGTERM it stops early and returns what it has."""
    results = {row: {load: {} for load in args.loads} for row in rows}
    try:
        for round_ in range(args.rounds):
            start = round_ * len(rows) // args.rounds
            for row in rows[start:] + rows[:start]:
                wanted = [load for load in args.loads if row in ("all", "all again", "none") or args.every
                          or row in LOADS[load].names]
                tuning = "all" if row.startswith("all") else "none" if row == "none" else f"all,-{row}"
                for load, figures in (measure(tuning, wanted, args) if wanted else {}).items():
                    results[row][load][round_] = figures
            print(f"round {round_ + 1} is done", file=sys.stderr, flush=True)
    except (KeyboardInterrupt, SystemExit):  # served.py turns SIGTERM into the latter
        pass
    return results


def print_table(results, args):
    base = results["all"]
    print("\n| without | " + " | ".join(LOADS[load].title for load in args.loads) + " |")
    print("|---" * (len(args.loads) + 1) + "|")
    least, most = (min, max) if args.best else (statistics.median, statistics.median)
    print("| nothing: us of CPU, steps/s | " + " | ".join(
        f"{least(v[0] for v in base[load].values()):.1f}, {most(v[1] for v in base[load].values()):,.0f}"
        for load in args.loads) + " |")
    for row in [row for row in results if row != "all"]:
        title = {"all again": "nothing, again", "none": "all of them"}.get(row, f"`{row}`")
        print(f"| {title} | " + " | ".join(cell(results[row][load], base[load], args.best) for load in args.loads) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each run (1)")
    parser.add_argument("--many", type=int, default=200_000, help="sequences of the load `many` (200000)")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--names", nargs="+", choices=NAMES, default=NAMES, help="mechanisms (all of them)")
    parser.add_argument("--best", action="store_true",
                        help="compare the best figures of all rounds, for a machine with much other load, where "
                             "disturbances only ever make a figure worse")
    parser.add_argument("--durability", default="process")
    parser.add_argument("--every", action="store_true", help="each mechanism under each load, not only where it "
                                                             "should show")
    args = parser.parse_args()
    print(machine())
    print(f"{args.rounds} rounds of {args.seconds:g} s, alternated, durability {args.durability}, "
          f"{args.many:,} sequences in `many`; CPU time of a step / steps per second, percent of `all`", flush=True)
    rows = ["all", "all again", *args.names, "none"]
    print_table(run_rounds(rows, args), args)
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
