#!/usr/bin/env python3
"""The wrong router: each step of each sequence goes to a random one of several nodes that share a store. Is any step
lost, done twice or out of order?

Two clients race for each sequence, and each adds 1. So the answers of a sequence must be 1, 2, 3, ..., each exactly
once, and each client must see growing numbers. A step that is refused with 409 contended counts apart and must not have
been done. The campaign fails on a number that is missing or comes twice, and on any other answer. With --unconditional,
the nodes write without a condition, and it must fail.

    tests/campaign/random_router.py --steps 1000000 [--nodes 3] [--cluster] [--sequences 64] [--seed 1] [--build build/release]
"""

import argparse
import contextlib
import os
import pathlib
import random
import re
import selectors
import socket
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
METRIC = re.compile(r"^continuo_store_(conflicts_total|reloads_total|round_trip_seconds_count|round_trip_seconds_sum)"
                    r"\{[^}]*\} (\S+)$", re.M)
CONFIG = """minWorkers: 1
maxWorkers: 1
batchSize: 64
sequenceBatching: true
maxNumSequence: 100000
sequenceMaxIdleMSec: 3600000
state: {storeTimeoutMSec: 30000}
"""


class Client:
    """One of the two that race for a sequence. It has a connection to each node, and one step in flight."""

    def __init__(self, campaign, sequence, which):
        self.campaign = campaign
        self.rng = random.Random(f"{campaign.seed}/{sequence}/{which}")
        self.sequence = sequence
        self.sockets = [socket.create_connection(address) for address in campaign.addresses]
        self.last = 0
        self.got = b""
        head = "POST /predictions/counter HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nts-request-sequence-id: "
        self.request = f"{head}s{sequence}\r\n\r\n1".encode()
        for each in self.sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            campaign.selector.register(each, selectors.EVENT_READ, self)

    def send(self):
        self.rng.choice(self.sockets).sendall(self.request)

    def read(self, sock):
        """Returns True when a step is answered."""
        piece = sock.recv(65536)
        if not piece:
            raise ConnectionError("a node has closed its connection")
        self.got += piece
        head, end, body = self.got.partition(b"\r\n\r\n")
        if not end:
            return False
        length = int(re.search(rb"content-length: (\d+)", head, re.I).group(1))
        if len(body) < length:
            return False
        self.got = b""
        self.campaign.note(self, int(head[9:12]), head, body)
        return True


class Campaign:
    def __init__(self, args, addresses):
        self.seed, self.steps, self.addresses = args.seed, args.steps, addresses
        self.selector = selectors.DefaultSelector()
        self.done = self.contended = 0
        self.wrong = []
        self.seen = [bytearray() for _ in range(args.sequences)]
        self.clients = [Client(self, i, which) for i in range(args.sequences) for which in range(2)]

    def note(self, client, status, head, body):
        if status == 409 and b": contended\r\n" in head + b"\r\n":
            self.contended += 1
            return
        if status != 200:
            self.wrong.append(f"s{client.sequence}: {status} {body[:200]}")
            return
        value, seen = int(body), self.seen[client.sequence]
        self.done += 1
        if value >= len(seen):
            seen.extend(bytes(value + 1 - len(seen)))
        if seen[value] or value <= client.last:
            self.wrong.append(f"s{client.sequence}: {value} was answered before")
        seen[value] = 1
        client.last = value

    def run(self):
        for client in self.clients:
            client.send()
        in_flight, said = len(self.clients), time.monotonic()
        while in_flight:
            ready = self.selector.select(60)
            if not ready:
                self.wrong.append(f"{in_flight} steps were not answered within a minute")
                break
            for key, _ in ready:
                if not key.data.read(key.fileobj):
                    continue
                if self.done + self.contended < self.steps and len(self.wrong) < 10:
                    key.data.send()
                else:
                    in_flight -= 1
            if time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{self.done} steps, {self.contended} contended, {len(self.wrong)} wrong", flush=True)
        for sequence, seen in enumerate(self.seen):
            missing = seen.count(0) - 1  # 0 itself is no answer
            if missing:
                self.wrong.append(f"s{sequence}: {missing} steps were done and never answered")


def measured(nodes):
    sums = {}
    time.sleep(1.5)  # workers report once a second
    for node in nodes:
        page = urllib.request.urlopen(f"{node.metrics}/metrics", timeout=30).read().decode()
        for name, value in METRIC.findall(page):
            sums[name] = sums.get(name, 0) + float(value)
    return sums


class Silent:
    def log(self, *_):
        pass


@contextlib.contextmanager
def store_for(cluster, redis):
    """Starts one server, or a cluster of three primaries. Gives the URL and the processes' ids."""
    if not cluster:
        with redis() as (port, store):
            yield f"valkey://127.0.0.1:{port}/campaign", [store.pid]
        return
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    del sys.modules["shared_store"]  # that of bench/, which has the same name
    from store_cluster import store_cluster_in  # noqa: PLC0415 - it needs pytest
    with tempfile.TemporaryDirectory() as folder, \
            store_cluster_in(pathlib.Path(folder), Silent(), replicas=0) as store:
        yield store.url.replace("/test", "/campaign"), [each.process.pid for each in store.primaries]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--cluster", action="store_true", help="the store is a cluster of three primaries")
    parser.add_argument("--unconditional", action="store_true", help="switches the nodes' conditions off")
    args = parser.parse_args()
    os.environ["CONTINUO_BUILD"] = args.build
    if args.unconditional:
        os.environ["CONTINUO_TEST_UNCONDITIONAL"] = "1"
    sys.path.insert(0, str(ROOT / "bench"))
    from served import Served, machine  # noqa: PLC0415 - it reads CONTINUO_BUILD
    from shared_store import HANDLER, cpu_seconds, redis  # noqa: PLC0415

    print(machine())
    with store_for(args.cluster, redis) as (url, stores):
        nodes = [Served({"counter": (HANDLER, CONFIG)}, ["--state-store", url]) for _ in range(args.nodes)]
        try:
            pids = [pid for node in nodes for pid in (node.process.pid, node.worker_pid("counter"))]
            campaign = Campaign(args, [node.address for node in nodes])
            before, begun = [cpu_seconds(pid) for pid in [*pids, *stores]], time.monotonic()
            campaign.run()
            seconds = time.monotonic() - begun
            spent = [cpu_seconds(pid) - was for pid, was in zip([*pids, *stores], before, strict=True)]
            sums = measured(nodes)
        finally:
            for node in nodes:
                node.close()
    done = max(campaign.done, 1)
    print(f"{campaign.done} steps done in {seconds:.0f} s ({campaign.done / seconds:.0f}/s), seed {args.seed}, {args.nodes} "
          f"nodes, {args.sequences} sequences with two clients each\n"
          f"refused as contended: {campaign.contended} ({campaign.contended / done:.2%})\n"
          f"conflicts: {sums['conflicts_total']:.0f} ({sums['conflicts_total'] / done:.2f} a step), reloads: "
          f"{sums['reloads_total']:.0f} ({sums['reloads_total'] / done:.2f} a step), round trips: "
          f"{sums['round_trip_seconds_count']:.0f}\n"
          f"CPU a step: nodes {sum(spent[:len(pids)]) / done * 1e6:.1f} us, store "
          f"{sum(spent[len(pids):]) / done * 1e6:.1f} us\n"
          f"wrong: {len(campaign.wrong)}", *campaign.wrong[:10], sep="\n")
    print(machine())
    return 1 if campaign.wrong or not campaign.done else 0


if __name__ == "__main__":
    sys.exit(main())
