#!/usr/bin/env python3
"""One handler of TorchServe on both servers: the running sum of examples/torchserve-stateful.

TorchServe 0.12 keeps the sums in its worker's memory, Continuo commits each of them before the
answer leaves. Runs of the two alternate, and one server is stopped while the other one is
measured. continuo-bench checks every sum on both, and the tables
have the medians of the rounds: steps per second, the 99th percentile of the latency, and the CPU
time that all processes of a server took for a step.

    bench/torchserve_handler.py --peer FOLDER    with torchserve and python in it; default:
                                                 where tests/differential/run.sh installed them
    bench/torchserve_handler.py --tune           first: which settings suit TorchServe best
    bench/torchserve_handler.py --tune ours      the same for Continuo, in alternated rounds
    bench/torchserve_handler.py --ours 2 64 0    compares with Continuo at other settings than OUR_BEST
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import time

import torchserved
from served import BIN, ROOT, Served, machine

EXAMPLE = ROOT / "examples/torchserve-stateful/running_sum.py"
#: A silent sequence keeps its place in TorchServe, and one of its threads, for this long.
THEIR_IDLE_MS = 500
CONFIG = """minWorkers: {workers}
maxWorkers: {workers}
batchSize: {batch}
maxBatchDelay: {delay}
sequenceBatching: true
sequenceMaxIdleMSec: {idle}
maxNumSequence: 4096
maxSequenceJobQueueSize: 10
"""
MODES = {"sequence batching": "", "sequence-continuous batching": "continuousBatching: true\n"}
#: Workers, batch size and maxBatchDelay (ms) with which each server is fastest. TorchServe's were found
#: with --tune, ours with --tune ours. Ours takes what has arrived and waits for nothing.
THEIR_BEST = (2, 16, 1)
OUR_BEST = (1, 32, 0)
TRIED = {"theirs": list(itertools.product((1, 2), (1, 4, 16, 64), (0, 1))),
         "ours": list(itertools.product((1, 2), (16, 32, 64, 128), (0,)))}
#: Our sequences stay for ten minutes.
OUR_IDLE_MS = 600000


def tree(pid):
    """The process and its descendants."""
    children = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def cpu_seconds(pid):
    """The CPU time of all threads of a process and its descendants."""
    spent = 0
    for process in tree(pid):
        for path in pathlib.Path(f"/proc/{process}/task").glob("*/schedstat"):
            try:
                spent += int(path.read_text().split()[0])
            except OSError:
                continue
    return spent / 1e9


def load(server, connections, seconds, *flags):
    """steps/s, p99 in ms, CPU us a step, errors."""
    def run(duration):
        command = [BIN / "continuo-bench", "--url", server.inference, "--model", "sum", "--connections", connections,
                   "--duration", duration, "--warmup", 0.5, *flags]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False)
        return json.loads(done.stdout)

    before = cpu_seconds(server.process.pid)
    began = time.monotonic()
    result = run(seconds)
    spent, took = cpu_seconds(server.process.pid) - before, time.monotonic() - began
    steps = result["steps"] * took / result["seconds"]  # those of the warm-up, too
    return (result["steps_per_s"], result["p99_ms"], spent / max(steps, 1) * 1e6,
            result["errors"] + result["mismatches"])


def config_of(mode, idle_ms, workers, batch, delay):
    return CONFIG.format(workers=workers, batch=batch, delay=delay, idle=idle_ms) + MODES[mode]


def theirs(peer, mode, *settings):
    config = config_of(mode, THEIR_IDLE_MS, *settings)
    return torchserved.TorchServed(peer, "sum", EXAMPLE.read_text(), None, config)


@contextlib.contextmanager
def stopped(server):
    """All processes of a server are stopped: an idle TorchServe takes 7 % of a core."""
    processes = tree(server.process.pid)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def load_theirs(server, connections, seconds):
    found = load(server, connections, seconds, "--header", torchserved.SEQUENCE_HEADER)
    time.sleep(2 * THEIR_IDLE_MS / 1000)  # these sequences give their places back
    return found


def ours(peer, mode, *settings):
    return Served({"sum": (EXAMPLE, config_of(mode, OUR_IDLE_MS, *settings))}, ["--python", peer / "python"])


def tune_ours(args, mode):
    """Tries each setting in each round, and prints the medians. Every second round has the opposite order."""
    print(f"\n{mode}, Continuo; steps/s (CPU us a step)\n\n| workers | batch size | " +
          " | ".join(f"at {n}" for n in args.connections) + " |\n" + "|---" * (2 + len(args.connections)) + "|")
    found = {}
    for i in range(args.rounds):
        for settings in TRIED["ours"][::-1 if i % 2 else 1]:
            with ours(args.peer, mode, *settings) as server:
                for connections in args.connections:
                    found.setdefault((settings, connections), []).append(load(server, connections, args.seconds))
    for settings in TRIED["ours"]:
        row = []
        for connections in args.connections:
            steps, _, cpu_us, errors = zip(*found[settings, connections])
            row.append(f"{statistics.median(steps):,.0f} ({statistics.median(cpu_us):.1f})" +
                       (f" {sum(errors)} errors" if any(errors) else ""))
        print(f"| {settings[0]} | {settings[1]} | " + " | ".join(row) + " |", flush=True)


def tune_theirs(args, mode):
    """Tries each setting once; the best of all rounds counts."""
    print(f"\n{mode}\n\n| workers | batch size | maxBatchDelay | " + " | ".join(f"steps/s at {n}" for n in args.connections) +
          " |\n" + "|---" * (3 + len(args.connections)) + "|")
    for settings in TRIED["theirs"]:
        with theirs(args.peer, mode, *settings) as server:
            load_theirs(server, 16, 2)  # Java compiles what it runs
            row = []
            for connections in args.connections:
                steps, _, _, errors = load_theirs(server, connections, args.seconds)
                row.append(f"{steps:,.0f}" + (f" ({errors} errors)" if errors else ""))
        print("| " + " | ".join(map(str, settings)) + " | " + " | ".join(row) + " |", flush=True)


def compare(args, mode):
    print(f"\n{mode}\n\n| connections | ours, steps/s | TorchServe, steps/s | ours / TorchServe | p99 ours / "
          "TorchServe, ms | ratio of p99 | CPU ours / TorchServe, us a step | ratio of the CPU |\n" +
          "|---" * 8 + "|")
    for connections in args.connections:
        rounds = []
        with (ours(args.peer, mode, *args.ours) as our_server,
              theirs(args.peer, mode, *THEIR_BEST) as their_server):
            load_theirs(their_server, connections, 3)  # Java compiles what it runs
            for _ in range(args.rounds):
                with stopped(their_server):
                    here = load(our_server, connections, args.seconds)
                with stopped(our_server):
                    rounds.append((here, load_theirs(their_server, connections, args.seconds)))
        here, there = ([statistics.median(column) for column in zip(*side)] for side in zip(*rounds))
        faster = statistics.median(a[0] / b[0] for a, b in rounds)
        later = statistics.median(a[1] / b[1] for a, b in rounds)
        cheaper = statistics.median(b[2] / a[2] for a, b in rounds)
        errors = [sum(each[side][3] for each in rounds) for side in (0, 1)]
        print(f"| {connections} | {here[0]:,.0f} | {there[0]:,.0f} | {faster:.1f} | {here[1]:.2f} / {there[1]:.2f} | "
              f"{later:.2f} | {here[2]:.0f} / {there[2]:.0f} | {cheaper:.1f} |" +
              (f" errors: {errors[0]} / {errors[1]}" if any(errors) else ""), flush=True)


def installed_peer():
    folder = pathlib.Path("~/.cache/continuo/peers").expanduser()
    return next((path.parent for path in sorted(folder.glob("torchserve-*/bin/torchserve"))), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--mode", choices=list(MODES), action="append")
    parser.add_argument("--peer", type=pathlib.Path, default=installed_peer())
    parser.add_argument("--tune", nargs="?", choices=("theirs", "ours"), const="theirs")
    parser.add_argument("--ours", type=int, nargs=3, metavar=("WORKERS", "BATCH", "DELAY"), default=OUR_BEST)
    args = parser.parse_args()
    if not args.peer:
        raise SystemExit("TorchServe is not installed: run tests/differential/run.sh, or name its folder with --peer")
    print(machine())
    for mode in args.mode or MODES:
        {"theirs": tune_theirs, "ours": tune_ours, None: compare}[args.tune](args, mode)
    print(machine())


if __name__ == "__main__":
    main()
