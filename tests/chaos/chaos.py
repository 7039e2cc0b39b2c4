#!/usr/bin/env python3
"""Chaos: clients step verified sequences while workers and servers are killed, stopped, restarted,
scaled and starved of disk, in an order that the seed gives. tests/chaos/run.sh starts it; what it
checks and what runs of it gave stands in docs/reliability.md.

Says the seed first, a line a second, and one line of JSON at the end. Exit 0 only when nothing was
lost, doubled, reordered or hung, no error came that the documentation does not name, and every
operation on the server did what it should."""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from faults import Faults  # noqa: E402
from link import Link  # noqa: E402
from models import Model  # noqa: E402
from ports import free_port  # noqa: E402
from sequence import Sequence  # noqa: E402
from server import Server, address_of  # noqa: E402
from transcript import Transcript  # noqa: E402
from waiting import limit  # noqa: E402

DISK_MB = 48
# A store's files never shrink. The disk must hold archives beside three stores, each of which takes this limit, 2 MiB
# more (docs/reliability.md) and two journals of 1 MiB, however often each was filled.
STORE_MAX_BYTES = 10 << 20
# longer than a step with all its retries; ten minutes would fill the store
TOMBSTONE_MS = 120_000
JOURNAL_MAX_BYTES = 1 << 18  # so that both of its files are used again and again
SETTLE_S = limit(90)  # for the last steps, once the faults are over
ACCUSATIONS_SHOWN = 20
TRANSCRIPTS_KEPT = 3


class Tally:
    """What the clients saw. Promises are kept while lost, doubled, reordered and hung stay 0."""

    def __init__(self):
        self.copies = self.ended = self.done_unanswered = self.not_done = self.unreachable = 0
        self.lost = self.doubled = self.reordered = self.hung = self.unexpected = self.operations = 0
        self.slowest_ms = 0.0
        self.errors = Counter()
        self.steps = Counter()  # by kind of connection

    def heard(self, ms):
        self.slowest_ms = max(self.slowest_ms, ms)

    def done(self):
        """Returns the number of steps; any thread may ask."""
        return sum(list(self.steps.values()))

    def broken_promises(self):
        return self.lost + self.doubled + self.reordered + self.hung + self.unexpected + self.operations


class Run:
    def __init__(self, args, folder, disk):
        self.clients = args.clients
        self.handler = args.handler
        self.tally = Tally()
        self.over = False
        self.transcript = Transcript()
        self._folder = folder
        self._began = time.monotonic()
        self._accusations = Counter()
        flags = ["--max-connections", max(1000, 4 * args.sequences)]
        if args.loops:
            flags += ["--loops", args.loops]
        for which in ("inference", "management", "metrics", "grpc-inference"):
            flags += [f"--{which}-address", f"http://127.0.0.1:{free_port()}"]
        self.server = Server(folder, self.transcript, flags)
        # Both versions exist after every restart. A swap makes the other one the default.
        self.server.models = [f"sum={self.server.pack(self.model(version), f'sum-{version}.mar').name}"
                              for version in ("1.0", "2.0")]
        if disk is not None:
            self.server.state_dir = disk / "state"
        self.server.start()
        chance = random.Random(args.seed)
        self.faults = Faults(self, self.server, random.Random(chance.random()), disk, args.kills)
        links = make_links(args.grpc, address_of(self.server.inference), self.server.grpc)
        self.sequences = [Sequence(i, self, next(links), random.Random(chance.random()))
                          for i in range(args.sequences)]

    def model(self, version, policy="migrate"):
        """A version of the sum. `policy` says what happens to sequences when it becomes the default."""
        python = {"python": sys.executable} if self.handler.endswith(".py") else {}
        text = (HERE / self.handler).read_text().replace("SCHEMA", version[0])
        return Model("sum", text, {**python,"minWorkers": 2, "maxWorkers": 2, "batchSize": 16,
                                  "sequence": {"swapPolicy": policy, "tombstoneMSec": TOMBSTONE_MS},
                                  "state": {"storeMaxBytes": STORE_MAX_BYTES,
                                            "journalMaxBytes": JOURNAL_MAX_BYTES}}, version,
                     handler_name=self.handler)

    def note(self, text):
        self.transcript.log("chaos", text)

    def accuse(self, what, text):
        """Reports a broken promise at once, because later ones may only be its consequence."""
        self.transcript.log("VIOLATION", f"{what}: {text}")
        self._accusations[what] += 1
        number = self._accusations[what]
        if number <= TRANSCRIPTS_KEPT:  # a long run keeps only the first ones of each kind
            name = f"transcript-{what.replace(' ', '-')}-{number}.txt"
            (self._folder / name).write_text(str(self.transcript))
        if number <= ACCUSATIONS_SHOWN:
            print(f"{time.monotonic() - self._began:8.3f} {what}: {text}", flush=True)

    async def _progress(self):
        before = 0
        while True:
            await asyncio.sleep(1)
            t = self.tally
            print(f"{time.monotonic() - self._began:6.0f} s  {t.steps.total() - before:6} steps/s  faults "
                  f"{sum(self.faults.counts.values())}  errors {sum(t.errors.values())}  lost {t.lost} "
                  f"doubled {t.doubled} reordered {t.reordered} hung {t.hung}", flush=True)
            before = t.steps.total()

    async def play(self, seconds):
        """`seconds`: how long faults are dealt; None: until there are no more."""
        progress = asyncio.create_task(self._progress())
        clients = [asyncio.create_task(sequence.live()) for sequence in self.sequences]
        self.faults.start()
        if seconds is None:
            await asyncio.to_thread(self.faults.wait)
        else:
            await asyncio.wait(clients, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        await asyncio.to_thread(self.faults.finish)
        self.over = True
        done, late = await asyncio.wait(clients, timeout=SETTLE_S)
        for each in done:
            each.result()
        for each in late:
            each.cancel()
            self.tally.hung += 1
            self.accuse("hung", f"a client did not end within {SETTLE_S:g} s after the last fault")
        # The store decides at the end: a fresh server must tell each client what the client expects.
        await asyncio.to_thread(self.faults.deal, "kill_server")
        await asyncio.gather(*(sequence.check() for sequence in self.sequences))
        progress.cancel()
        await asyncio.to_thread(self.server.stop)

    def result(self, args, seconds):
        t = self.tally
        down = sorted(self.faults.down_ms)
        return {"seed": args.seed, "seconds": round(seconds, 1), "sequences": args.sequences,
                "handler": args.handler, "clients": args.clients, "loops": args.loops, "copies": t.copies,
                "steps": t.done(), "steps_by": t.steps,
                "sequences_ended": t.ended,
                "faults": dict(sorted(self.faults.counts.items())),
                "clients_dropped": self.faults.clients_dropped, "redispatched": self.faults.redispatched, "errors": dict(sorted(t.errors.items())),
                "unreachable": t.unreachable, "done_unanswered": t.done_unanswered, "not_done": t.not_done,
                "lost": t.lost, "doubled": t.doubled, "reordered": t.reordered, "hung": t.hung,
                "unexpected_errors": t.unexpected, "failed_operations": t.operations,
                "server_back_ms_median": round(down[len(down) // 2]) if down else None,
                "slowest_answer_ms": round(t.slowest_ms)}


def make_links(grpc_share, address, grpc_target, grpc_link=None):
    """Makes the clients' connections: this share of them are gRPC streams, spread evenly among the others."""
    if grpc_share:
        from grpc_link import Channels, GrpcLink  # only gRPC clients need grpcio
        channels = Channels(grpc_target)
        make = grpc_link or GrpcLink
    due = 0
    while True:
        due += grpc_share
        if due >= 1:
            due -= 1
            yield make(channels)
        else:
            yield Link(address)


@contextlib.contextmanager
def small_disk(folder, wanted):
    """Returns a file system that can be filled without harm, or None if mounting is not allowed."""
    path = folder / "disk"
    path.mkdir()
    made = wanted and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", path],
                                     capture_output=True, check=False).returncode == 0
    try:
        yield path if made else None
    finally:
        if made:
            subprocess.run(["umount", "-l", path], check=True)


def allow_files(sequences):
    """Raises the limit of descriptors: client and server need one for each sequence, and the server inherits the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * sequences + 1000
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def parse(argv):
    parser = argparse.ArgumentParser(prog="tests/chaos/run.sh", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long faults are dealt (60)")
    parser.add_argument("--kills", type=int, default=0,
                        help="instead of faults in random order: this many kill -9 of busy workers, with one of the "
                             "server in their middle")
    parser.add_argument("--sequences", type=int, default=64, help="clients with a sequence each (64)")
    parser.add_argument("--seed", type=int, help="of the order of faults; as printed by an earlier run")
    parser.add_argument("--clients", choices=("ask", "keys", "numbers"), default="ask",
                        help="what they do with a step that had no answer: close the connection and ask before they "
                             "send it again (ask), or send it again under its Idempotency-Key or its number")
    parser.add_argument("--idempotency", action="store_const", const="keys", dest="clients",
                        help="the same as --clients keys")
    parser.add_argument("--handler", choices=("handler.lua", "handler.py", "handler_torchserve.py"),
                        default="handler.lua",
                        help="the model, in Lua, in Python or in Python for TorchServe (handler.lua)")
    parser.add_argument("--loops", type=int, default=0, help="of the server (as many as it takes by itself)")
    parser.add_argument("--grpc", type=float, default=0.25,
                        help="this share of the clients uses gRPC streams (0.25; 0 where grpcio is missing)")
    parser.add_argument("--no-mount", action="store_true", help="fill a small store instead of a small disk")
    args = parser.parse_args(argv)
    if importlib.util.find_spec("grpc_tools") is None:
        args.grpc = 0
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 31)
    return args


def main(argv=None):
    args = parse(argv)
    print(f"seed {args.seed}", flush=True)
    allow_files(args.sequences)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no server and no mount is left behind
    folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-chaos-"))
    run, good = None, False
    try:
        with small_disk(folder, not args.no_mount) as disk:
            began = time.monotonic()
            try:
                run = Run(args, folder, disk)
                asyncio.run(run.play(None if args.kills else args.seconds))
                reports = run.server.sanitizer_reports()
                for report in reports:
                    run.accuse("sanitizer", report)
                good = run.tally.broken_promises() == 0 and not reports
            finally:
                if run:
                    run.faults.finish()  # after an interruption it has not been called yet, and it may start servers
                    run.server.destroy()
                    if not good:
                        (folder / "transcript.txt").write_text(str(run.transcript))
                        print(f"transcript: {folder}/transcript.txt", flush=True)
                    print(json.dumps(run.result(args, time.monotonic() - began)), flush=True)
    finally:
        if good:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
