#!/usr/bin/env python3
"""Measures what a step costs with a shared store, for the simulation beside this file (docs/scale.md).

All costs are CPU time, read from /proc, so they do not depend on how many cores the machine has or what else runs on
it. One, two and three nodes get steps at fixed rates, and a redis-server on the same machine is their store. The
model is the counter of examples/: its handler costs nearly nothing, so what is measured is Continuo's own part.

    bench/scale/measure.py > bench/scale/points.json
"""

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import shared_store
from served import machine

SAMPLE = re.compile(r"^(continuo_store_\w+)\{[^}]*\} (\S+)$", re.M)
QUIET = ["--tuning", "all,-busy-wait"]  # the polling of an idle loop would be counted as work
MODEL = ("counter", "--warmup", 0, "--stall-seconds", 30)


def counters(nodes):
    """The sums of the store's metrics over all nodes, once they have been reported."""
    time.sleep(1.2)
    out = {}
    for node in nodes:
        page = urllib.request.urlopen(f"{node.metrics}/metrics", timeout=30).read().decode()
        for name, value in SAMPLE.findall(page):
            if "_bucket" not in name:
                out[name] = out.get(name, 0) + float(value)
    return out


def store_info(port, field):
    said = subprocess.run(["redis-cli", "-p", str(port), "INFO"], capture_output=True, text=True, check=True).stdout
    return int(re.search(rf"^{field}:(\d+)", said, re.M).group(1))


def load(nodes, *args, contended=0.0):
    """Runs the load tool against all nodes at once. Returns their results. At most the share `contended` of the steps
    may fail: a step that loses against other nodes three times is answered with 409, and not done."""
    results = []
    threads = [threading.Thread(target=lambda node=node: results.append(node.bench(*MODEL, *args))) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) != len(nodes) or any(each["errors"] > each["steps"] * contended for each in results):
        raise SystemExit(f"steps failed: {results}")
    return results


def point(n, rate, seconds, shared_sequences=0, connections=64):
    """One measurement. With rate 0, each connection sends its next step as soon as it has an answer. With `shared_sequences`, all nodes work on the same sequences, as behind a router that sends
    each step anywhere."""
    with contextlib.ExitStack() as stack:
        port, store = stack.enter_context(shared_store.redis())
        nodes = [stack.enter_context(shared_store.node(port, [*QUIET, "--node-name", f"n{i}"])) for i in range(n)]
        more = ["--connections", connections, *(["--rate", rate] if rate else [])]
        if shared_sequences:
            more = ["--connections", 64, "--rate", rate, "--sequences", shared_sequences, "--prefix", "same", "--random",
                    "--any-answer"]
        load(nodes, *more, "--duration", 1, contended=0.05 if shared_sequences else 0)
        pids = [pid for node in nodes for pid in (node.process.pid, node.worker_pid("counter"))]
        counted, spent = counters(nodes), [shared_store.cpu_seconds(pid) for pid in [*pids, store.pid]]
        results = load(nodes, *more, "--duration", seconds, contended=0.05 if shared_sequences else 0)
        spent = [shared_store.cpu_seconds(pid) - was for pid, was in zip([*pids, store.pid], spent, strict=True)]
        counted = {name: value - counted.get(name, 0) for name, value in counters(nodes).items()}
        steps = sum(each["steps"] for each in results)
        trips = counted["continuo_store_round_trip_seconds_count"]
        return {
            "nodes": n, "rate": rate or steps / seconds, "full": not rate, "connections": connections, "shared_sequences": shared_sequences, "steps": steps, "seconds": seconds,
            "node_us": sum(spent[:-1]) / steps * 1e6, "server_us": sum(spent[:-1:2]) / steps * 1e6,
            "worker_us": sum(spent[1:-1:2]) / steps * 1e6, "store_us": spent[-1] / steps * 1e6,
            "rows": counted["continuo_store_commit_rows_sum"] / max(counted["continuo_store_commit_rows_count"], 1),
            "commits_per_step": counted["continuo_store_commit_rows_count"] / steps,
            "trips_per_step": trips / steps,
            "trip_ms": counted["continuo_store_round_trip_seconds_sum"] / max(trips, 1) * 1e3,
            "conflicts_per_step": counted["continuo_store_conflicts_total"] / steps,
            "reloads_per_step": counted["continuo_store_reloads_total"] / steps,
            "contended_per_step": sum(each["errors"] for each in results) / steps,
        }


def median_point(rounds, *args, **more):
    """Each figure is the median of some rounds."""
    points = [point(*args, **more) for _ in range(rounds)]
    print(points[-1], file=sys.stderr)
    return {key: statistics.median(each[key] for each in points) for key in points[0]}


def idle(seconds):
    """What a node and the store need each second when nothing happens."""
    with shared_store.redis() as (port, store), shared_store.node(port, QUIET) as node:
        pids = [node.process.pid, node.worker_pid("counter"), store.pid]
        spent = [shared_store.cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        spent = [shared_store.cpu_seconds(pid) - was for pid, was in zip(pids, spent, strict=True)]
        return {"node_ms_per_s": sum(spent[:2]) / seconds * 1e3, "store_ms_per_s": spent[2] / seconds * 1e3}


def memory(count):
    """The store's memory for each sequence of the counter, whose state has a few bytes."""
    with shared_store.redis() as (port, _), shared_store.node(port, QUIET) as node:
        before = store_info(port, "used_memory")
        node.bench(*MODEL, "--connections", 64, "--open-only", count)
        return {"sequences": count, "bytes_per_sequence": (store_info(port, "used_memory") - before) / count}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rates", type=int, nargs="*", default=[300, 1000, 2000])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--sequences", type=int, default=20000)
    parser.add_argument("--only-full", action="store_true", help="measure only the points without a rate")
    args = parser.parse_args()
    if args.only_full:
        args.nodes = []
    out = {"machine": machine(), "idle": idle(args.seconds), "memory": memory(args.sequences), "points": []}
    for n in args.nodes:
        for rate in args.rates:
            out["points"].append(median_point(args.rounds, n, rate, args.seconds))
    for connections in (1, 8, 64, 256):  # as fast as the machine can: batches grow with the connections
        out["points"].append(median_point(args.rounds, 1, 0, args.seconds, connections=connections))
    for n in () if args.only_full else (1, 3):  # the same load, once on one node and once behind a router that does not look at the sequence
        out["points"].append(median_point(args.rounds, n, 600 // n, args.seconds, shared_sequences=2000))
    json.dump(out, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
