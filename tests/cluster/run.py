#!/usr/bin/env python3
"""Cluster: verified sequences step through a real proxy to nodes that share a store, while nodes, workers, the proxy
and the store's primary are killed, paused and cut off, in an order that the seed gives. docs/reliability.md says
what it checks and what its runs have shown.

Prints the seed first, a line each second, and one line of JSON at the end. Exit 0 only when nothing was lost, doubled,
reordered or hung, no error came that the documentation does not name, and every operation did what it should. Exit 77:
it cannot run here, and the last line says why."""

import argparse
import asyncio
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "chaos"), str(HERE.parent / "support")]

import chaos  # noqa: E402
import network  # noqa: E402
import proxies  # noqa: E402
from client import Client  # noqa: E402
from clients import KEY_WINDOW, ClusterGrpcLink, ClusterSequence  # noqa: E402
from models import Model  # noqa: E402
from nodes import Node  # noqa: E402
from stores import Stores  # noqa: E402
from transcript import Transcript  # noqa: E402
from trouble import NodeTrouble, StoreTrouble  # noqa: E402
from waiting import limit  # noqa: E402

SKIPPED = 77
PLACES = 4  # nodes that the proxy's file has
STORE_TIMEOUT_MS = 2000
TOMBSTONE_MS = 120_000  # longer than a step with all its retries
SETTLE_S = limit(120)


class Tally(chaos.Tally):
    def __init__(self):
        super().__init__()
        self.store_lost = 0  # steps that the store lost at a failover: none with state.replicas: 1 or all


class Run:
    """It has what chaos.Sequence wants of its run: tally, over, note and accuse."""

    clients = None  # each sequence chooses for itself

    def __init__(self, args, folder):
        self.args = args
        self.tally = Tally()
        self.over = False
        self.transcript = Transcript()
        self.nodes = []
        self._folder = folder
        self._began = time.monotonic()
        self._accusations = Counter()
        chance = random.Random(args.seed)
        network.make_network()
        self.stores = Stores(folder, self.transcript)
        self._say("the store is there")
        self.proxy = proxies.Proxy(args.proxy, folder, self.transcript, args.router)
        env = {"CONTINUO_TEST_UNCONDITIONAL": "1"} if args.bug == "unconditional" else {}
        flags = ["--state-store", self.stores.url(args.found_by), "--max-connections", max(1000, 4 * args.sequences)]
        self.nodes = [Node(i + 1, folder / f"node{i + 1}", self.transcript, flags, env) for i in range(PLACES)]
        for i, node in enumerate(self.nodes):
            node.models = [f"sum={node.pack(self.model(version), f'sum-{version}.mar').name}"
                           for version in ("1.0", "2.0")]
            if i < args.nodes:
                node.start()
        self._say("the nodes are there")
        self.proxy.start()
        self.proxy.expect_up(self._ping)
        self._say("the proxy is there")
        self.trouble = NodeTrouble(self, random.Random(chance.random()))
        self.store_trouble = StoreTrouble(self, random.Random(chance.random()))
        links = chaos.make_links(args.grpc, (self.proxy.address, proxies.HTTP_PORT),
                                 f"{self.proxy.address}:{proxies.GRPC_PORT}", ClusterGrpcLink)
        self.sequences = [ClusterSequence(i, self, next(links), random.Random(chance.random()))
                          for i in range(args.sequences)]

    def model(self, version):
        text = (HERE.parent / "chaos/handler.lua").read_text().replace("SCHEMA", version[0])
        return Model("sum", text, {"minWorkers": 1, "maxWorkers": 1, "batchSize": 16,
                                   "sequence": {"swapPolicy": self.args.swap_policy, "tombstoneMSec": TOMBSTONE_MS,
                                                "keyWindow": KEY_WINDOW},
                                   "state": {"storeTimeoutMSec": STORE_TIMEOUT_MS, "replicas": self.args.replicas}},
                     version)

    def _ping(self):
        try:
            client = Client((self.proxy.address, proxies.HTTP_PORT), self.transcript, "ping")
            return client.get("/ping").status == 200
        except OSError:
            return False

    def _say(self, text):
        print(f"{time.monotonic() - self._began:6.0f} s  {text}", flush=True)

    def note(self, text):
        self.transcript.log("cluster", text)

    accuse = chaos.Run.accuse

    async def _progress(self):
        before = 0
        while True:
            await asyncio.sleep(1)
            t = self.tally
            print(f"{time.monotonic() - self._began:6.0f} s  {t.steps.total() - before:6} steps/s  faults "
                  f"{sum(self._faults().values())}  errors {sum(t.errors.values())}  lost {t.lost} doubled "
                  f"{t.doubled} reordered {t.reordered} hung {t.hung}  the store lost {t.store_lost}", flush=True)
            before = t.steps.total()

    def _faults(self):
        return self.trouble.counts + self.store_trouble.counts

    def _repair(self):
        """Ends the faults. Afterwards the store is whole and as many nodes are up as at the beginning."""
        self.trouble.finish()
        self.store_trouble.finish()
        self.stores.settle()
        for node in self.nodes[:self.args.nodes]:
            if not node.up:
                node.restart()

    def _replace_nodes(self):
        """The store decides at the end: fresh nodes must tell each client what the client expects."""
        for node in self.nodes:
            if node.up:
                node.kill()
        for node in self.nodes[:self.args.nodes]:
            node.restart()
        self.proxy.expect_up(self._ping)

    async def play(self, seconds):
        progress = asyncio.create_task(self._progress())
        clients = [asyncio.create_task(sequence.live()) for sequence in self.sequences]
        self.trouble.start()
        self.store_trouble.start()
        await asyncio.wait(clients, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        await asyncio.to_thread(self._repair)
        self.over = True
        proven = self.args.bug and self.tally.broken_promises() > 0  # nothing more is to be learned
        done, late = await asyncio.wait(clients, timeout=1 if proven else SETTLE_S)
        for each in done:
            each.result()
        for each in late:
            each.cancel()
            self.tally.hung += 1
            self.accuse("hung", f"a client did not end within {SETTLE_S:g} s after the last fault")
        if proven:
            progress.cancel()
            return
        await asyncio.to_thread(self._replace_nodes)
        await asyncio.gather(*(sequence.check() for sequence in self.sequences))
        progress.cancel()
        for node in self.nodes:
            if node.up:
                await asyncio.to_thread(node.stop)

    def is_good(self):
        t = self.tally
        return t.broken_promises() == 0 and (t.store_lost == 0 or self.args.replicas == 0)

    def result(self, seconds):
        t, args = self.tally, self.args
        return {"seed": args.seed, "seconds": round(seconds, 1), "sequences": args.sequences, "nodes": args.nodes,
                "proxy": args.proxy, "router": args.router, "replicas": args.replicas,
                "found_by": args.found_by, "bug": args.bug,
                "swap_policy": args.swap_policy, "without": args.without, "steps": t.steps.total(), "steps_by": t.steps, "copies": t.copies,
                "sequences_ended": t.ended, "faults": dict(sorted(self._faults().items())),
                "failovers": self.stores.failovers, "starts_refused": sum(node.starts_refused for node in self.nodes),
                "errors": dict(sorted(t.errors.items())), "unreachable": t.unreachable,
                "lost": t.lost, "doubled": t.doubled, "reordered": t.reordered, "hung": t.hung,
                "lost_by_store": t.store_lost, "unexpected_errors": t.unexpected, "failed_operations": t.operations,
                "slowest_answer_ms": round(t.slowest_ms)}

    def destroy(self):
        for node in self.nodes:
            node.destroy()


def parse(argv):
    parser = argparse.ArgumentParser(prog="tests/cluster/run.py", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long faults are dealt (60)")
    parser.add_argument("--sequences", type=int, default=200, help="clients with a sequence each (200)")
    parser.add_argument("--seed", type=int, help="of the order of faults; as printed by an earlier run")
    parser.add_argument("--proxy", choices=proxies.NAMES, default="envoy", help="in front of the nodes (envoy)")
    parser.add_argument("--nodes", type=int, choices=range(2, PLACES + 1), default=3,
                        help=f"at the beginning (3); there may be up to {PLACES} meanwhile")
    parser.add_argument("--grpc", type=float, default=0.25, help="this share of the clients uses gRPC streams (0.25)")
    parser.add_argument("--replicas", type=lambda text: text if text == "all" else int(text), choices=(0, 1, "all"),
                        default=1,
                        help="state.replicas (1); with 0 the store may lose steps, which are counted apart; all needs "
                             "--found-by sentinels")
    parser.add_argument("--without", action="append", default=[], choices=(*NodeTrouble.DECK, *StoreTrouble.DECK),
                        help="leaves out this fault; may be given again")
    parser.add_argument("--found-by", choices=("sentinels", "hosts"), default="sentinels",
                        help="how the nodes find the store's primary (sentinels)")
    parser.add_argument("--router", choices=("hash", "random"), default="hash",
                        help="random: the proxy sends each step to any node")
    parser.add_argument("--swap-policy", choices=("migrate", "pin"), default="migrate",
                        help="what happens to sequences when the default version changes (migrate)")
    parser.add_argument("--bug", choices=("unconditional",), help="with this error switched on, the run must fail")
    args = parser.parse_args(argv)
    if args.replicas == "all" and args.found_by != "sentinels":
        parser.error("--replicas all needs --found-by sentinels")
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 31)
    return args


def why_not(args):
    if shutil.which("redis-server") is None:
        return "there is no redis-server (scripts/setup.sh installs it)"
    if proxies.program(args.proxy) is None:
        return f"{args.proxy} is not installed (scripts/proxies.sh)"
    return network.why_not()


def inside(args, folder):
    """Runs in the namespaces."""
    began, run = time.monotonic(), None
    try:
        run = Run(args, folder)
        asyncio.run(run.play(args.seconds))
        for report in (text for node in run.nodes for text in node.sanitizer_reports()):
            run.tally.unexpected += 1
            run.accuse("sanitizer", report)
        good = run.is_good()
    finally:
        if run:
            if not run.is_good():
                (folder / "transcript.txt").write_text(str(run.transcript))
            run.destroy()
            print(json.dumps(run.result(time.monotonic() - began)), flush=True)
    return 0 if good else 1


def main(argv):
    args = parse(argv)
    if network.is_inside():
        return inside(args, pathlib.Path(os.environ["CONTINUO_CLUSTER_FOLDER"]))
    if reason := why_not(args):
        print(f"skipped: {reason}")
        return SKIPPED
    print(f"seed {args.seed}", flush=True)
    chaos.allow_files(args.sequences)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    folder = tempfile.mkdtemp(prefix="continuo-cluster-")
    code = 1
    try:
        with network.entered([__file__, *argv, "--seed", str(args.seed)], {"CONTINUO_CLUSTER_FOLDER": folder}) as process:
            code = process.wait()
    finally:
        if code == 0:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"kept: {folder}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
