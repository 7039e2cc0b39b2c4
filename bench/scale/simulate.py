#!/usr/bin/env python3
"""Simulates nodes that share a store, from measured costs: the figures of docs/scale.md.

A discrete-event simulation (simpy): steps arrive at random, a proxy's hash decides to which node each goes, a worker
takes all steps that wait for it as one batch, and the batch's records go to the store's primaries, each of which does
one thing at a time. A batch costs something by itself, and something for each of its rows. Nobody sets the size of the
batches: it follows from how many steps arrive while a worker waits for the store. The costs are fitted to the measured
points of ONE node, and compared with those of two and three.

    python3 -m venv /tmp/scale && /tmp/scale/bin/pip install simpy numpy matplotlib
    /tmp/scale/bin/python bench/scale/simulate.py              # tables; --plots docs writes the pictures, too
"""

import argparse
import bisect
import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
import random

import numpy
import simpy

HERE = pathlib.Path(__file__).resolve().parent
BATCH_MAX = 256
RING_POINTS = 100   # of each node on the proxy's ring: an assumption, between Envoy's least and most
NETWORK_US = 200    # there and back between node and store in one data centre: an assumption
SERVERS = WORKERS = 4   # loops and workers of a node with eight cores: an assumption
SPARE = 0.6         # how busy a part may be at PLAN_ROWS rows in a batch
PLAN_ROWS = 10      # nodes and store are bought for batches of this size
STATE_BYTES = 4096  # of one sequence: an assumption
STEP_EVERY_S = 10   # pause between two steps of a sequence: an assumption


@dataclasses.dataclass
class Cost:
    """CPU time of one process in microseconds: for each row, for each batch of rows, and for each second in which
    steps come at all. The last one is what a process spends on waking up; the more steps there are, the less it
    matters."""
    row: float
    batch: float
    second: float

    def of(self, rows, batches=1):
        return self.row * rows + self.batch * batches


@dataclasses.dataclass
class Costs:
    server: Cost
    worker: Cost
    store: Cost
    lost_node: float    # what a write that lost costs in addition
    lost_store: float
    record_bytes: float


def cost(points, key):
    """Least squares of the relative errors of `key` = row + batch / rows + second / rate, with no term below 0."""
    best = None
    for n in (3, 2, 1):
        for used in itertools.combinations(range(3), n):
            terms = numpy.array([[(1, 1 / p["rows"], 1 / p["rate"])[i] / p[key] for i in used] for p in points])
            found = numpy.linalg.lstsq(terms, numpy.ones(len(points)), rcond=None)[0]
            error = float(((terms @ found - 1) ** 2).sum())
            if min(found) >= 0 and (best is None or error < best[0]):
                best = error, [float(found[used.index(i)]) if i in used else 0.0 for i in range(3)]
    return Cost(*best[1])


def fit(measured):
    one = [p for p in measured["points"] if p["nodes"] == 1 and not p["shared_sequences"]]
    # What a lost write costs is an upper bound: three nodes with a third of the steps each need more CPU for each step
    # even without conflicts, and this counts as a cost of the lost writes.
    alone, wrong = ([p for p in measured["points"] if p["shared_sequences"] and (p["nodes"] > 1) == many][0] for many in (False, True))
    costs = Costs(cost(one, "server_us"), cost(one, "worker_us"), cost(one, "store_us"), 0, 0,
                  record_bytes=measured["memory"]["bytes_per_sequence"])
    lost = max(wrong["conflicts_per_step"], 1e-9)
    costs.lost_node = max(0, wrong["node_us"] - alone["node_us"]) / lost
    costs.lost_store = max(0, wrong["store_us"] - alone["store_us"]) / lost
    return costs


def ring_weights(n):
    """Which part of all sequences each node gets from a hash ring with RING_POINTS points for each node."""
    points = sorted((int.from_bytes(hashlib.blake2b(f"{i}/{k}".encode(), digest_size=8).digest()), i)
                    for i in range(n) for k in range(RING_POINTS))
    weights, before = [0.0] * n, points[-1][0] - 2 ** 64
    for at, i in points:
        weights[i] += (at - before) / 2 ** 64
        before = at
    return weights


class Cluster:
    """`misrouted`: the share of steps that reach another node than the one that has the sequence's state."""

    def __init__(self, costs, n, primaries, rate, handler_us=0, network_us=NETWORK_US, misrouted=0.0, workers=WORKERS, even=False, connections=0,
                 seed=1):
        self.env = simpy.Environment()
        self.costs, self.rate, self.handler_us, self.network_us, self.misrouted = costs, rate, handler_us, network_us, misrouted
        self.random = random.Random(seed)
        weights = [1 / n] * n if even else ring_weights(n)
        self.ends = list(itertools.accumulate(weights))
        self.n, self.n_workers = n, workers
        self.queues = [[] for _ in range(n * workers)]
        self.wake = [None] * (n * workers)
        self.shards = [simpy.Resource(self.env) for _ in range(primaries)]
        self.busy_shard, self.busy_node = [0.0] * primaries, [0.0] * n
        self.latencies, self.commits, self.rows = [], 0, 0
        self.connections = connections
        for i in range(n * workers):
            self.env.process(self.worker(i))
        if connections:
            for i in range(connections):
                self.arrive(i % n)
        else:
            self.env.process(self.clients())

    def clients(self):
        mean_us = 1e6 / self.rate
        while True:
            yield self.env.timeout(self.random.expovariate(1) * mean_us)
            self.arrive(min(bisect.bisect(self.ends, self.random.random()), self.n - 1))

    def arrive(self, node):
        i = node * self.n_workers + self.random.randrange(self.n_workers)
        self.queues[i].append(self.env.now)
        if self.wake[i]:
            wake, self.wake[i] = self.wake[i], None
            wake.succeed()

    def worker(self, i):
        """One worker process with its share of the server: it takes what waits, runs it, and waits for the store."""
        c, node = self.costs, i // self.n_workers
        while True:
            if not self.queues[i]:
                self.wake[i] = self.env.event()
                yield self.wake[i]
            rows, self.queues[i] = self.queues[i][:BATCH_MAX], self.queues[i][BATCH_MAX:]
            lost = sum(self.random.random() < self.misrouted for _ in rows)
            took = c.worker.of(len(rows)) + len(rows) * self.handler_us + lost * (c.lost_node + self.handler_us)
            served = c.server.of(len(rows))
            self.busy_node[node] += took + served
            yield self.env.timeout(took)
            shares = {}
            for _ in range(len(rows) + lost):
                shard = self.random.randrange(len(self.shards))
                shares[shard] = shares.get(shard, 0) + 1
            yield self.env.all_of([self.env.process(self.commit(shard, k, lost / (len(rows) + lost))) for shard, k in shares.items()])
            if self.connections:
                yield self.env.timeout(served)  # nothing comes before the answers are out
            done = self.env.now + (0 if self.connections else served / SERVERS)
            self.latencies += [done - since for since in rows]
            self.commits += 1
            self.rows += len(rows)
            for _ in rows if self.connections else ():
                self.arrive(node)

    def commit(self, shard, rows, lost):
        took = self.costs.store.of(rows) + rows * lost * self.costs.lost_store
        yield self.env.timeout(self.network_us / 2)
        with self.shards[shard].request() as turn:
            yield turn
            self.busy_shard[shard] += took
            yield self.env.timeout(took)
        yield self.env.timeout(self.network_us / 2)

    def run(self, steps):
        us = max(steps / self.rate * 1e6, 4000)
        self.env.run(us / 2)
        half = self.rows
        self.env.run(us)
        cores = SERVERS + self.n_workers
        c, seconds = self.costs, us / 1e6
        self.busy_node = [each + seconds * (c.server.second + c.worker.second) for each in self.busy_node]
        self.busy_shard = [each + seconds * c.store.second for each in self.busy_shard]
        late = sorted(self.latencies[len(self.latencies) // 4:]) or [float("inf")]
        return {"done": (self.rows - half) / (us / 2) * 1e6 / self.rate, "batch": self.rows / max(self.commits, 1),
                "node_us": sum(self.busy_node) / max(self.rows, 1), "store_us": sum(self.busy_shard) / max(self.rows, 1),
                "node_busy": max(self.busy_node) / us / cores, "store_busy": max(self.busy_shard) / us,
                "p50_ms": late[len(late) // 2] / 1e3, "p99_ms": late[int(len(late) * 0.99)] / 1e3}


def validate(costs, measured):
    """Compares the model with every measured point. Returns the rows."""
    rows = []
    for p in measured["points"]:
        if p["shared_sequences"]:
            continue
        # A part of the measured round trip is the store's own work, which the simulation adds.
        network_us = max(20, p["trip_ms"] * 1e3 - costs.store.of(p["rows"]))
        sim = Cluster(costs, p["nodes"], 1, p["rate"] * p["nodes"], network_us=network_us, workers=1, even=True,
                      connections=p["connections"] if p["full"] else 0).run(20000)
        rows.append((p, sim))
    print("| nodes | steps/s each | rows in a batch: measured | simulated | node, µs a step: measured | simulated | error | store, µs a step: measured | simulated | error |"
          "\n|---|---|---|---|---|---|---|---|---|---|")
    for p, sim in rows:
        node, store = sim["node_us"], sim["store_us"]
        rate = f"all they can, {p['connections']} at a time" if p["full"] else f"{p['rate']:,.0f}"
        print(f"| {p['nodes']} | {rate} | {p['rows']:.1f} | {sim['batch']:.1f} | {p['node_us']:.0f} | {node:.0f} | {node / p['node_us'] - 1:+.0%} | {p['store_us']:.0f} "
              f"| {store:.0f} | {store / p['store_us'] - 1:+.0%} |")
    return rows


def needed(costs, rate, handler_us=0):
    """Nodes and primaries that do `rate` steps a second in batches of PLAN_ROWS, with SPARE of their time. When they are
    busier, batches grow, and a step costs less."""
    per_core = SPARE * 1e6 / rate
    server, worker, store = (each.of(PLAN_ROWS) / PLAN_ROWS for each in (costs.server, costs.worker, costs.store))
    return max(server / SERVERS, (worker + handler_us) / WORKERS) / per_core, store / per_core


def simulated(costs, n, primaries, rate, handler_us=0):
    """What happens at that rate. Many nodes and primaries are simulated as a slice of them."""
    part = max(1, min(n // 3, primaries // 4))
    return Cluster(costs, n // part, max(1, primaries // part), rate / part, handler_us).run(min(100000, max(15000, rate / part / 15)))


def size(costs, sequences, handler_us):
    """Nodes (at least 3) and primaries for this number of sequences, and what happens with them."""
    rate = sequences / STEP_EVERY_S
    n, primaries = (math.ceil(each) for each in needed(costs, rate, handler_us))
    n = max(3, math.ceil(n * max(1, max(ring_weights(min(n, 100))) * min(n, 100) * SPARE / 0.8)))  # the busiest node
    return n, primaries, rate, simulated(costs, n, primaries, rate, handler_us)


def buy(costs, handler_us):
    print(f"\nhandler: {handler_us} us a step\n\n| sequences | steps/s | nodes of 8 cores | primaries of the store | memory of the store "
          "| rows in a batch | busiest node | busiest primary | p50 / p99, ms |\n|---|---|---|---|---|---|---|---|---|")
    out = []
    for sequences in (10 ** 4, 10 ** 5, 10 ** 6, 10 ** 7, 10 ** 8):
        n, primaries, rate, result = size(costs, sequences, handler_us)
        gigabytes = sequences * (costs.record_bytes + STATE_BYTES) / 1e9
        out.append((sequences, n, primaries, gigabytes))
        shown = f"{n:,}" + ("" if result["done"] >= 0.95 else " (steps pile up)")
        print(f"| {sequences:,} | {rate:,.0f} | {shown} | {primaries} | {gigabytes:,.1f} GB | {result['batch']:.1f} | {result['node_busy']:.0%} "
              f"| {result['store_busy']:.0%} | {result['p50_ms']:.1f} / {result['p99_ms']:.1f} |", flush=True)
    return out


def capacity(costs):
    """The rate for which some nodes and primaries are enough, and what is full first."""
    print("\n| nodes | primaries | steps/s | rows in a batch | busiest node | busiest primary | p99, ms | what is full first |"
          "\n|---|---|---|---|---|---|---|---|")
    out = {}
    of_node, of_primary = needed(costs, 1.0)
    for primaries in (1, 4):
        for n in (3, 10, 100):
            rate = min(n / of_node, primaries / of_primary)
            result = simulated(costs, n, primaries, rate)
            out.setdefault(primaries, []).append((n, rate))
            first = "store" if primaries / of_primary < n / of_node else "nodes"
            kept = "" if result["done"] >= 0.95 else " (steps pile up)"
            print(f"| {n:,} | {primaries} | {rate:,.0f}{kept} | {result['batch']:.1f} | {result['node_busy']:.0%} | {result['store_busy']:.0%} "
                  f"| {result['p99_ms']:.1f} | {first} |", flush=True)
    return out


def misrouting(costs):
    print("\n| steps at a wrong node | CPU of the node | CPU of the store | p99, ms |\n|---|---|---|---|")
    right = Cluster(costs, 3, 1, 5000).run(15000)
    for share in (0, 0.01, 0.1, 2 / 3):
        result = Cluster(costs, 3, 1, 5000, misrouted=share).run(15000)
        print(f"| {share:.0%} | {result['node_us'] / right['node_us']:.2f} times | {result['store_us'] / right['store_us']:.2f} times "
              f"| {result['p99_ms']:.1f} |")


def plots(folder, rows, capacities):
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "continuo"
    from matplotlib import pyplot
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for n, mark in ((1, "o"), (2, "s"), (3, "^")):
        left.plot([p["node_us"] for p, _ in rows if p["nodes"] == n], [sim["node_us"] for p, sim in rows if p["nodes"] == n], mark,
                  label=f"{n} node{'s' if n > 1 else ''}")
    most = max(p["node_us"] for p, _ in rows) * 1.1
    left.plot([0, most], [0, most], color="gray", linewidth=0.8)
    left.set(xlabel="measured CPU of a step in the nodes, us", ylabel="the model's", title="Model and measurement")
    left.legend()
    for primaries, points in capacities.items():
        right.plot(*zip(*points, strict=True), marker=".", label=f"{primaries} primar{'y' if primaries == 1 else 'ies'}")
    right.set(xscale="log", yscale="log", xlabel="nodes of 8 cores", ylabel="steps/s, with 40 % to spare", title="What nodes and primaries can do")
    right.legend()
    figure.tight_layout()
    figure.savefig(pathlib.Path(folder) / "scale.svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--points", default=HERE / "points.json", help="output of measure.py")
    parser.add_argument("--plots", help="folder for the pictures")
    args = parser.parse_args()
    measured = json.loads(pathlib.Path(args.points).read_text(encoding="utf-8"))
    print(measured["machine"])
    costs = fit(measured)
    print(costs, "\n")
    rows = validate(costs, measured)
    misrouting(costs)
    buy(costs, 0)
    buy(costs, 1000)
    capacities = capacity(costs)
    weights = ring_weights(10)
    print(f"\nbusiest of 10 nodes: {max(weights) * 10:.2f} times the mean; of 100: {max(ring_weights(100)) * 100:.2f} times")
    if args.plots:
        plots(args.plots, rows, capacities)


if __name__ == "__main__":
    main()
