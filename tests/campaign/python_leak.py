#!/usr/bin/env python3
"""Does the worker of a Python handler grow with its steps? It must not.

Each handler answers a million steps of 64 sequences; continuo-bench checks each answer. The worker's
memory is read once a second: its PSS, and the anonymous part of it (Pss_Anon), which is what the worker
allocated. The rest is pages of files that it has mapped. They include those of its store, which it reads
as the store grows, and which the system takes back when it needs memory. Fails if the line through the
second half of the anonymous figures rises by more than --most bytes a step, or if an answer was wrong.

Noise: the allocators take and give back memory in blocks of up to a megabyte, so the line is never level.
The smallest object of Python has 16 bytes: a leak of one in every sixteen steps exceeds one byte a step.
The table also has the line's standard error.

    tests/campaign/python_leak.py --steps 1000000 [--python /usr/bin/python3] [--only counter]
"""

import argparse
import http.client
import itertools
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from served import BIN, Served, machine  # noqa: E402

CONFIG = "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 64\nsequenceBatching: true\n"
COUNTER = """
def init(req):
    return {"sum": 0, "last": [], "at": {}}


def step(state, req):
    state["sum"] += int(req.body)
    state["last"] = (state["last"] + [{"step": req.step, "id": req.sequence_id}])[-5:]
    state["at"][req.step % 10] = req.headers.get("content-length")
    return str(state["sum"])
"""
GENERATOR = """
def init(req):
    return {"sum": 0}


def step(state, req):
    yield None
    state["sum"] += int(req.body)
    yield None
    return str(state["sum"])
"""
SENT = """
def init(req):
    return {"sum": 0}


def step(state, req):
    state["sum"] += int(req.body)
    text = str(state["sum"])
    req.send(text[:1])
    return text[1:]
"""
ASYNC = """
import asyncio


def init(req):
    return {"sum": 0}


async def step(state, req):
    await asyncio.sleep(0)
    state["sum"] += int(req.body)
    return str(state["sum"])
"""
NUMPY = """
import numpy as np


def init(req):
    return {"sum": np.zeros(1, np.int64), "window": np.zeros((4, 8), np.float32)}


def step(state, req):
    state["sum"] += int(req.body)
    state["window"] = np.roll(state["window"], 1, axis=0)
    state["window"][0] = float(state["sum"][0])
    return str(state["sum"][0])
"""
FAILING = """
def init(req):
    return {"sum": 0}


def step(state, req):
    if req.step % 2:  # half of the steps meet an error that the handler makes good itself
        try:
            raise ValueError("an error with a traceback", req)
        except ValueError as error:
            state["error"] = str(error)[:20]
    state["sum"] += int(req.body)
    return str(state["sum"])
"""
TORCHSERVE = """
from continuo import SequenceState


class Sum:
    def initialize(self, context):
        self.sums = SequenceState()

    def handle(self, data, context):
        ids = [context.get_sequence_id(i) for i, _ in enumerate(data)]
        for id, row in zip(ids, data):
            self.sums[id] = self.sums.get(id, 0) + int(bytes(row.get("body", row.get("data"))))
        return [str(self.sums[id]) for id in ids]
"""
HANDLERS = {"counter": COUNTER, "generator": GENERATOR, "sent": SENT, "async": ASYNC, "numpy": NUMPY,
            "failing": FAILING, "torchserve": TORCHSERVE}


def memory_bytes(pid):
    """What the worker allocated, and its whole PSS."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        found = {line.split()[0]: int(line.split()[1]) * 1024 for line in file if line.startswith("Pss")}
    return found["Pss_Anon:"], found["Pss:"]


def slope(points):
    """The rise of the line through the points (least squares), and its standard error."""
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    if not spread or len(points) < 3:
        return 0.0, 0.0
    rise = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread
    off = sum((y - y_mean - rise * (x - x_mean)) ** 2 for x, y in points)
    return rise, (off / (len(points) - 2) / spread) ** 0.5


def run(name, args):
    with tempfile.TemporaryDirectory() as folder:
        handler = pathlib.Path(folder) / "handler.py"
        handler.write_text(HANDLERS[name], encoding="utf-8")
        flags = ["--python", args.python] if args.python else []
        with Served({"counter": (handler, CONFIG)}, flags) as server:
            return watch(name, server, args)


def load_of(name, server):
    """The program that sends the steps. continuo-bench does not read answers in pieces."""
    command = [BIN / "continuo-bench", "--url", server.inference, "--model", "counter", "--connections", 64,
               "--duration", 100_000, "--warmup", 0]
    if name == "sent":
        command = [sys.executable, __file__, "--client", *server.address]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)


def client(host, port):
    """Steps 8 sequences until SIGINT, with answers in pieces, and prints what was wrong."""
    over = threading.Event()
    wrong = []

    def go_on(number):
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        for count in itertools.count(1):
            if over.is_set():
                return
            connection.request("POST", "/predictions/counter", b"1", {"ts-request-sequence-id": f"s{number}"})
            if connection.getresponse().read() != str(count).encode():
                wrong.append(number)
                return

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    signal.signal(signal.SIGINT, lambda *_: over.set())
    for thread in threads:
        thread.join()
    print(json.dumps({"errors": 0, "mismatches": len(wrong)}))


def watch(name, server, args):
    pid = server.worker_pid("counter")
    bench = load_of(name, server)
    points = []
    try:
        while (steps := server.describe("counter")["steps"]) < args.steps:
            if bench.poll() is not None:
                raise SystemExit(f"{name}: continuo-bench has ended: {bench.stdout.read()}")
            points.append((steps, *memory_bytes(pid)))
            time.sleep(1)
        points.append((steps, *memory_bytes(pid)))
    finally:
        bench.send_signal(signal.SIGINT)
        out = bench.communicate(timeout=60)[0]
    result = json.loads(out)
    rise, error = slope([(steps_, allocated) for steps_, allocated, _ in points[len(points) // 2:]])
    good = (result["errors"], result["mismatches"]) == (0, 0) and server.worker_pid("counter") == pid \
        and rise <= args.most
    cells = (f"{allocated / 1e6:.1f}, {pss / 1e6:.1f}"
             for _, allocated, pss in (points[0], points[len(points) // 2], points[-1]))
    print(f"| {name} | {steps} | {' | '.join(cells)} | {rise:.3f} ± {error:.3f} | {'good' if good else 'BAD'} |", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--most", type=float, default=1.0, help="bytes a step that are still no leak (1.0)")
    parser.add_argument("--only", nargs="*", choices=list(HANDLERS), default=list(HANDLERS))
    parser.add_argument("--python", help="interpreter; default: python3 in PATH")
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        client(*args.client)
        return
    print(machine())
    print("| handler | steps | allocated and PSS at first, MB | half way | at the end | rise, bytes a step | |\n"
          "|---|---|---|---|---|---|---|", flush=True)
    results = [run(name, args) for name in args.only]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
