#!/usr/bin/env python3
"""Compares a node whose states are in a shared store with one that keeps them itself, and three nodes with one.

The store is a redis-server on the same machine, with an append-only file that is synced once a second. The model is the
counter of examples/ with durability process, and every sum is checked.

Part "store": rounds alternate between the two kinds of store, each with a server of its own. The table has medians:
steps per second; the 99th percentile of a step's time, and by how many round trips to the store it is longer with the
shared one, counted in mean ones and in slow ones; the mean and the 99th percentile of the round trips, from the
worker's histogram; CPU time of a step in the server, its worker and the store. The ratio of the steps is the median of the rounds' ratios.

Part "paced": the same two kinds of store, with steps at fixed times, at half of what the shared store allows with this
many connections. Neither waits for a core then, so the table shows how much longer a step waits for the store itself.

Part "nodes": rounds alternate between one node and three, which get --rate steps a second each, far less than they
could do, at fixed times. So batches are alike, and the nodes do not wait for each other's cores. The polling of idle
loops (--tuning busy-wait) is off, because it would be counted as work.

Part "far": a relay delays all that goes to the store and comes from it, so that a round trip takes --trip-ms, far more
than the batch takes in the worker. It shows for how many round trips a step waits, and next to nothing else. The times
are divided by the mean of the round trips as the worker measured them. The steps come from --connections, each as soon
as the last one is answered, or at half of that rate at fixed times.

    bench/shared_store.py --rounds 5 --seconds 3
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from served import ROOT, Served, machine

HANDLER = ROOT / "examples/counter/handler.lua"
CONFIG = """minWorkers: 1
maxWorkers: 1
batchSize: 256
sequenceBatching: true
state: {durability: process}
"""
TICK = os.sysconf("SC_CLK_TCK")
TRIPS = re.compile(r"^continuo_store_round_trip_seconds_(sum|count)\{[^}]*\} (\S+)$", re.M)
TRIP_BUCKETS = re.compile(r'^continuo_store_round_trip_seconds_bucket\{[^}]*le="([0-9.]+)"[^}]*\} (\S+)$', re.M)


@contextlib.contextmanager
def redis():
    """Yields the port and the process of a store of its own."""
    folder = tempfile.mkdtemp(prefix="continuo-bench-store-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
                                "--appendonly", "yes", "--appendfsync", "everysec"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        yield port, process
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def cpu_seconds(pid):
    """CPU time of a process, without its children."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def node(port=None, flags=(), workers=1):
    url = ["--state-store", f"valkey://127.0.0.1:{port}/bench"] if port else []
    config = CONFIG.replace("Workers: 1", f"Workers: {workers}")
    return Served({"counter": (HANDLER, config)}, [*url, *flags])


class Trips:
    """The round trips to the store since the server was started, as its worker measured them."""

    def __init__(self, server):
        time.sleep(1.2)  # workers tell it once a second
        page = urllib.request.urlopen(f"{server.metrics}/metrics", timeout=30).read().decode()
        told = dict(TRIPS.findall(page))
        self.count, self.sum_s = float(told.get("count", 0)), float(told.get("sum", 0))
        self.buckets = [(float(limit), float(n)) for limit, n in TRIP_BUCKETS.findall(page)]  # in seconds; cumulative

    def mean_ms(self, before):
        """Returns the mean of those since `before`."""
        return (self.sum_s - before.sum_s) / max(self.count - before.count, 1) * 1e3

    def p99_ms(self, before):
        """Returns the 99th percentile of those since `before`, as if those of a bucket were spread evenly over it."""
        wanted = 0.99 * (self.count - before.count)
        was_s = was_n = 0
        for (limit, n), (_, earlier) in zip(self.buckets, before.buckets, strict=True):
            n -= earlier
            if n >= wanted:
                return (was_s + (limit - was_s) * (wanted - was_n) / max(n - was_n, 1)) * 1e3
            was_s, was_n = limit, n
        return was_s * 1e3


def bench(server, connections, seconds, *args, processes=1):
    result = server.bench("counter", "--connections", connections, "--duration", seconds, "--warmup", 0,
                          "--stall-seconds", 30, "--processes", processes, *args)
    if result["errors"]:
        raise SystemExit(f"{result['errors']} steps failed or had a wrong sum")
    return result


def measure(connections, seconds, shared, processes, rate=0):
    with contextlib.ExitStack() as stack:
        port, store = stack.enter_context(redis()) if shared else (None, None)
        server = stack.enter_context(node(port))
        bench(server, connections, 1, "--rate", rate, processes=processes)
        pids = [server.process.pid, server.worker_pid("counter"), *([store.pid] if shared else [])]
        before = Trips(server)
        spent = [cpu_seconds(pid) for pid in pids]
        result = bench(server, connections, seconds, "--rate", rate, processes=processes)
        spent = [(cpu_seconds(pid) - before) / result["steps"] * 1e6 for pid, before in zip(pids, spent, strict=True)]
        trips = Trips(server)
        return {"rate": result["steps_per_s"], "p50": result["p50_ms"], "p99": result["p99_ms"], "cpu": spent,
                "trip_ms": trips.mean_ms(before), "slow_trip_ms": trips.p99_ms(before)}


def compare_stores(args):
    print("| connections | embedded, steps/s | shared, steps/s | shared / embedded | p99 embedded / shared, ms "
          "| round trip: mean / p99, ms | longer p99 in mean round trips | in p99 round trips "
          "| CPU embedded: server + worker, us a step | CPU shared: server + worker + store, us a step |"
          "\n|---|---|---|---|---|---|---|---|---|---|")
    for connections in args.connections:
        rounds = [[measure(connections, args.seconds, shared, args.processes) for shared in (False, True)] for _ in range(args.rounds)]
        own, ours = ([pair[side] for pair in rounds] for side in (0, 1))

        def median(side, key):
            return statistics.median(each[key] for each in side)

        def cpu(side):
            return " + ".join(f"{statistics.median(column):.1f}" for column in zip(*(each["cpu"] for each in side), strict=True))

        ratio = statistics.median(b["rate"] / a["rate"] for a, b in rounds)
        longer, longer_slow = (statistics.median((b["p99"] - a["p99"]) / max(b[trip], 1e-3) for a, b in rounds)
                               for trip in ("trip_ms", "slow_trip_ms"))
        print(f"| {connections} | {median(own, 'rate'):,.0f} | {median(ours, 'rate'):,.0f} | {ratio:.2f} "
              f"| {median(own, 'p99'):.2f} / {median(ours, 'p99'):.2f} | {median(ours, 'trip_ms'):.2f} / {median(ours, 'slow_trip_ms'):.2f} "
              f"| {longer:.1f} | {longer_slow:.1f} "
              f"| {cpu(own)} | {cpu(ours)} |", flush=True)


def compare_paced(args):
    print("| connections | steps/s | median embedded / shared, ms | p99 embedded / shared, ms | round trip: mean / p99, ms "
          "| longer median in mean round trips | longer p99 in mean round trips | in p99 round trips |\n"
          "|---|---|---|---|---|---|---|---|")
    for connections in args.connections:
        rate = int(measure(connections, args.seconds, True, args.processes)["rate"] / 2)
        rounds = [[measure(connections, args.seconds, shared, args.processes, rate) for shared in (False, True)]
                  for _ in range(args.rounds)]

        def median(key, side):
            return statistics.median(pair[side][key] for pair in rounds)

        def longer(key, trip="trip_ms"):
            return statistics.median((b[key] - a[key]) / max(b[trip], 1e-3) for a, b in rounds)

        print(f"| {connections} | {rate:,} | {median('p50', 0):.2f} / {median('p50', 1):.2f} | {median('p99', 0):.2f} / {median('p99', 1):.2f} "
              f"| {median('trip_ms', 1):.2f} / {median('slow_trip_ms', 1):.2f} | {longer('p50'):.1f} | {longer('p99'):.1f} "
              f"| {longer('p99', 'slow_trip_ms'):.1f} |", flush=True)


def measure_nodes(n, args):
    """Returns the CPU time of a step in microseconds: of the nodes, and of the store."""
    with contextlib.ExitStack() as stack:
        port, store = stack.enter_context(redis())
        nodes = [stack.enter_context(node(port, ["--tuning", "all,-busy-wait"])) for _ in range(n)]
        for each in nodes:
            bench(each, 64, 1, "--rate", args.rate)
        pids = [pid for each in nodes for pid in (each.process.pid, each.worker_pid("counter"))]
        before = [cpu_seconds(pid) for pid in [*pids, store.pid]]
        results = []
        threads = [threading.Thread(target=lambda each=each: results.append(
            bench(each, 64, args.seconds, "--rate", args.rate))) for each in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = [cpu_seconds(pid) - was for pid, was in zip([*pids, store.pid], before, strict=True)]
        assert len(results) == n, "a load tool failed"
        steps = sum(each["steps"] for each in results)
        return sum(spent[:-1]) / steps * 1e6, spent[-1] / steps * 1e6


def compare_nodes(args):
    rounds = [(measure_nodes(1, args), measure_nodes(3, args)) for _ in range(args.rounds)]
    one, three = ([statistics.median(column) for column in zip(*side, strict=True)] for side in zip(*rounds, strict=True))
    ratio = statistics.median(b[0] / a[0] for a, b in rounds)
    print(f"| steps/s for each node | CPU of one node, us a step | CPU of three nodes, us a step | three / one "
          f"| CPU of the store with one / three, us a step |\n|---|---|---|---|---|\n"
          f"| {args.rate:,} | {one[0]:.1f} | {three[0]:.1f} | {ratio:.2f} | {one[1]:.1f} / {three[1]:.1f} |", flush=True)


def measure_far(relay_to, connections, workers, args):
    """Returns a row for steps as fast as they are answered, and one for steps at half of that rate."""
    with contextlib.ExitStack() as stack:
        port, _ = stack.enter_context(redis())
        relay = stack.enter_context(relay_to(port))
        server = stack.enter_context(node(relay.port, workers=workers))
        bench(server, connections, 1)
        relay.delay_s = args.trip_ms / 2000
        rate, rows = 0, []
        for _ in range(2):
            before = Trips(server)
            result = bench(server, connections, max(args.seconds, 60 * args.trip_ms / 1000), "--rate", rate,
                           "--warmup", 10 * args.trip_ms / 1000)  # a first step reads the store, too
            trips = Trips(server)
            n, trip_ms = trips.count - before.count, trips.mean_ms(before)
            rows.append((f"{rate:,}" if rate else "any", result["steps_per_s"], result["steps"] / n, trip_ms,
                         result["p50_ms"] / trip_ms, result["p99_ms"] / trip_ms))
            rate = int(result["steps_per_s"] / 2)
        return rows


def compare_far(args):
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from relay import relay_to  # noqa: PLC0415 - other parts do not need it

    print("| connections | workers | steps/s at fixed times | steps/s | steps a round trip | round trip, ms "
          "| median of a step, round trips | p99 of a step, round trips |\n|---|---|---|---|---|---|---|---|")
    for connections in args.connections:
        for workers in (1, 2):
            for rate, *row in measure_far(relay_to, connections, workers, args):
                print(f"| {connections} | {workers} | {rate} | " + "{:,.0f} | {:.0f} | {:.0f} | {:.1f} | {:.1f} |".format(*row),
                      flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--processes", type=int, default=1, help="of the load tool, in the parts store and paced (1)")
    parser.add_argument("--connections", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--rate", type=int, default=2000, help="steps a second for each node, in the part nodes")
    parser.add_argument("--trip-ms", type=float, default=40, help="how long a round trip takes, in the part far")
    parser.add_argument("--parts", nargs="*", default=["store", "paced", "nodes"], choices=["store", "paced", "nodes", "far"])
    args = parser.parse_args()
    print(machine())
    if "store" in args.parts:
        compare_stores(args)
    if "paced" in args.parts:
        compare_paced(args)
    if "nodes" in args.parts:
        compare_nodes(args)
    if "far" in args.parts:
        compare_far(args)
    print(machine())


if __name__ == "__main__":
    main()
