"""Measures a GRU of 256 units that is served as TorchScript. `compare` runs it in turns with TorchServe and with a bare
Python loop, `share` shows how much of a worker's time is spent outside the model, `wires` shows what a step costs server
and worker beside the model with each protocol, and `workers` shows how fast forked workers start and how much memory
they need.

TorchServe has a Python handler with an LRU of states, as its stateful examples do. The same handler is also called
in a loop, as TorchServe's worker calls it, with as many rows as there are connections and without a server.

Run it with a Python that has PyTorch (docs/torch.md) and, for `compare`, TorchServe 0.12 and its archiver; Java 17.
Prints tables in Markdown. One thread."""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import torch

import served
import torchserved
from shared_store import cpu_seconds

torch.set_num_threads(1)
torch.manual_seed(1)
UNITS = 256
HERE = "{name: x, dataType: UINT8, dims: [1]}"


class Gru(torch.nn.Module):
    """One step: a byte in, 16 numbers out. The state is 1 KiB."""

    def __init__(self):
        super().__init__()
        self.spread = torch.nn.Linear(1, 64)
        self.cell = torch.nn.GRUCell(64, UNITS)
        self.out = torch.nn.Linear(UNITS, 16)

    def forward(self, x, h):
        h = self.cell(torch.tanh(self.spread(x.to(torch.float32) / 57.0)), h)
        return self.out(h), h


def yaml(batch, durability="process", delay=0, workers=1):
    return f"""batchSize: {batch}
maxBatchSize: {batch}
maxBatchDelay: {delay}
minWorkers: {workers}
sequenceBatching: true
inputs: [{HERE}]
outputs: [{{name: y, dataType: FP32, dims: [16]}}]
state:
  durability: {durability}
  tensors: [{{name: h, dataType: FP32, dims: [{UNITS}]}}]
"""


# --- TorchServe's way: a Python handler that keeps states in an LRU ---

# In TorchServe an idle sequence keeps one of the 64 places (maxNumSequence), so the sequences of a round must have
# expired before the next round.
THEIR_IDLE_MS = 500
THEIR_YAML = f"""minWorkers: 1
maxWorkers: 1
batchSize: 32
maxBatchDelay: 1
sequenceBatching: true
sequenceMaxIdleMSec: {THEIR_IDLE_MS}
maxNumSequence: 64
maxSequenceJobQueueSize: 10
"""

HANDLER = '''"""States of sequences in an LRU of the handler, as TorchServe's stateful examples keep them."""
import collections

import torch


class Handler:
    def __init__(self):
        self.states = collections.OrderedDict()
        self.zeros = torch.zeros(256)

    def get(self, key):
        if key not in self.states:
            return self.zeros
        self.states.move_to_end(key)
        return self.states[key]

    def put(self, key, value):
        self.states[key] = value
        self.states.move_to_end(key)
        if len(self.states) > 100000:
            self.states.popitem(last=False)

    def initialize(self, context):
        torch.set_num_threads(1)
        directory = context.system_properties["model_dir"]
        self.model = torch.jit.load(directory + "/model.pt").eval()
        self.context = context

    @torch.inference_mode()
    def run(self, ids, bodies):
        x = torch.frombuffer(bytearray(b"".join(bodies)), dtype=torch.uint8).reshape(-1, 1)
        h = torch.stack([self.get(id) for id in ids])
        y, h = self.model(x, h)
        for id, state in zip(ids, h):
            self.put(id, state.clone())
        return [{"y": [row]} for row in y.tolist()]

    def handle(self, data, context):
        ids = [context.get_request_header(i, "ts_request_sequence_id") for i in range(len(data))]
        return self.run(ids, [bytes(row.get("body") or row.get("data")) for row in data])
'''


def bench(url, model, *args):
    command = [served.BIN / "continuo-bench", "--url", url, "--model", model, *args]
    run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.returncode)
    return json.loads(run.stdout)


def handler_loop(script, rows, seconds):
    """Steps per second of the handler alone: does for each batch what TorchServe's worker does, without its sockets."""
    space = {}
    exec(compile(HANDLER, "handler.py", "exec"), space)  # pylint: disable=exec-used
    handler = space["Handler"]()
    handler.initialize(collections.namedtuple("Context", "system_properties")({"model_dir": str(script.parent)}))
    steps, n = 0, 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ids = [f"s{(n + i) % 64}" for i in range(rows)]
        json.dumps(handler.run(ids, [b"5"] * rows))
        n += rows
        steps += rows
    return steps / seconds


@torch.inference_mode()
def bare_loop(script, rows, seconds):
    """Steps per second of the model alone. All states stay in one tensor, so no server can be faster."""
    model = torch.jit.load(script).eval()
    x, h = torch.full((rows, 1), 53, dtype=torch.uint8), torch.zeros(rows, UNITS)
    for _ in range(20):
        y, h = model(x, h)
    steps = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        y, h = model(x, h)
        steps += rows
    del y
    return steps / seconds


def compare(script, rounds, seconds):
    folder = pathlib.Path(sys.executable).parent
    table = {}
    with (served.Served({"gru": (script, yaml(32))}) as ours,
          torchserved.TorchServed(folder, "gru", HANDLER, script, THEIR_YAML) as theirs):
        for connections in (1, 8, 32, 64):
            load = ["--connections", connections, "--duration", seconds, "--warmup", 0.5, "--any-answer"]
            rows = min(connections, 32)
            samples = []
            for _ in range(rounds):
                runs = (bench(ours.inference, "gru", *load),
                        bench(theirs.inference, "gru", *load, "--header", torchserved.SEQUENCE_HEADER))
                samples.append((*(run["steps_per_s"] for run in runs), *(run["p99_ms"] for run in runs),
                                handler_loop(script, rows, seconds / 2), bare_loop(script, 1, seconds / 2),
                                bare_loop(script, rows, seconds / 2)))
                time.sleep(2 * THEIR_IDLE_MS / 1000)
            table[connections] = [statistics.median(column) for column in zip(*samples)]
            table[connections].append(statistics.median(one[0] / one[1] for one in samples))
    print("| connections | here, steps/s | TorchServe, steps/s | here / TorchServe | p99 here / TorchServe, ms "
          "| its handler in a loop | bare loop, 1 row | bare loop, as many rows | here / bare loop, as many rows |")
    print("|---" * 9 + "|")
    for connections, (here, there, p99, their_p99, handler, one, many, ratio) in table.items():
        print(f"| {connections} | {here:,.0f} | {there:,.0f} | {ratio:.1f} | {p99:.1f} / {their_p99:.1f} "
              f"| {handler:,.0f} | {one:,.0f} | {many:,.0f} | {here / many:.2f} |")


# --- how much of a worker's time is spent outside the model ---


def metric(s, name):
    text = urllib.request.urlopen(f"{s.metrics}/metrics", timeout=30).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if re.match(rf"{name}(\{{| )", line))


def spent(s):
    """The number of the model's runs, their CPU time, and the worker's CPU time without waiting, in us."""
    time.sleep(2.2)  # the worker reports them once a second
    return metric(s, "TorchRuns"), metric(s, "TorchRunTime"), metric(s, "continuo_worker_busy_seconds_total") * 1e6


def share(script, seconds):
    print("| rows | durability | runs | the model, us a run | the worker, us a run | outside of the model |")
    print("|---" * 6 + "|")
    for durability in ("none", "process"):
        for rows in (8, 32):
            # There are twice as many connections as rows, so the next batch is full and waiting when one is done.
            with served.Served({"gru": (script, yaml(rows, durability, delay=20))}) as s:
                load = ["--connections", 2 * rows, "--duration", seconds, "--warmup", 0, "--any-answer"]
                s.bench("gru", *load[:2], "--duration", 0.5, *load[4:])
                before = spent(s)
                s.bench("gru", *load)
                runs, model, whole = (b - a for a, b in zip(before, spent(s)))
            model, whole = model / runs, whole / runs
            print(f"| {rows} | {durability} | {runs:.0f} | {model:.0f} | {whole:.0f} | {1 - model / whole:.1%} |")


# --- what a step costs beside the model, by protocol ---


class FloatGru(Gru):
    """Takes a number, under the name that grpc-bench gives its tensor."""

    def forward(self, FP32, h):
        h = self.cell(torch.tanh(self.spread(FP32)), h)
        return self.out(h), h


FLOAT_IN = "{name: FP32, dataType: FP32, dims: [1]}"


def bodies(folder):
    """Writes the v2 requests as post-bench sends them. Returns {protocol: (file, header)}."""
    tensor = {"name": "FP32", "datatype": "FP32", "shape": [1, 1]}
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": 4}}],
                       "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    (folder / "json").write_text(json.dumps({"inputs": [tensor | {"data": [0.5]}]}))
    (folder / "binary").write_bytes(head + struct.pack("<f", 0.5))
    return {"v2 JSON": (folder / "json", "Content-Type: application/json"),
            "v2 binary": (folder / "binary", f"Inference-Header-Content-Length: {len(head)}")}


def wire_commands(s, folder, rows, seconds):
    """Returns {protocol: command}. There are twice as many sequences as rows, so that the next batch is full and waiting when
    one is done."""
    host = "{}:{}".format(*s.address)
    load = ["--processes", 2, "--seconds", seconds, "--sequences"]
    commands = {name: [served.BIN / "post-bench", host, "/v2/models/gru/infer", file, "--header", header,
                       "--connections", 2 * rows, "--warmup", 0, *load] for name, (file, header) in bodies(folder).items()}
    commands["gRPC ModelInfer"] = [served.BIN / "grpc-bench", "infer", s.grpc, "gru", "--calls", 2 * rows, "--data", 4, *load]
    return commands


def wires(folder, rounds, seconds):
    script = folder / "float.pt"
    torch.jit.save(torch.jit.script(FloatGru().eval()), script)
    print("| rows of a batch | protocol | steps/s | rows a run | the model, us a step | server and worker, us a step "
          "| beside the model, us a step |")
    print("|---" * 7 + "|")
    for rows in (8, 32):
        config = yaml(rows, delay=20).replace(HERE, FLOAT_IN)
        with served.Served({"gru": (script, config)}, ["--busy-wait", 0], grpc=True) as s:
            commands = wire_commands(s, folder, rows, seconds)
            pids = [s.process.pid, s.worker_pid("gru")]
            samples, opened = {name: [] for name in commands}, 0
            for name in [name for _ in range(rounds) for name in commands]:
                before, began = spent(s), sum(map(cpu_seconds, pids))
                run = subprocess.run([str(word) for word in commands[name]], stdout=subprocess.PIPE, text=True, check=False)
                result = json.loads(run.stdout.splitlines()[-1])
                if result["errors"]:
                    raise SystemExit(f"bench/gru.py: {name}: wrong answers: {result}")
                opened += 2 * rows
                if (live := metric(s, "continuo_sequences_opened_total")) != opened:
                    raise SystemExit(f"bench/gru.py: {name}: the server has opened {live:.0f} sequences instead of {opened}")
                whole = (sum(map(cpu_seconds, pids)) - began) * 1e6
                runs, model, _ = (b - a for a, b in zip(before, spent(s)))
                steps = result["steps"]
                samples[name].append((steps / seconds, steps / runs, model / steps, whole / steps, (whole - model) / steps))
        for name, rounds_of_it in samples.items():
            rate, full, model, whole, beside = (statistics.median(column) for column in zip(*rounds_of_it))
            print(f"| {rows} | {name} | {rate:,.0f} | {full:.1f} | {model:.1f} | {whole:.1f} | {beside:.1f} |", flush=True)


# --- forked workers ---


def pss_kb(pid, key="Pss"):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(rf"^{key}:\s+(\d+)", text, re.M).group(1))


def workers(script):
    print("| workers | their load, ms | PSS each, MB | private, MB | PSS of all and the zygote, MB |")
    print("|---" * 5 + "|")
    for text, name in (("preload: true", "forked"), ("preload: false", "each by itself")):
        for n in (1, 4):
            with served.Served({"gru": (script, yaml(8, workers=n) + text + "\n")}) as s:
                bench(s.inference, "gru", "--connections", 4 * n, "--duration", 1, "--any-answer")
                about = s.describe("gru")
                zygote = about["zygote"]["pid"] if "zygote" in about else None
                log = (s.folder / "stderr").read_text(errors="replace")
                times = sorted(int(t) for t in re.findall(r"event=worker_ready.*load_ms=(\d+)", log))
                back = []
                for _ in range(5 if n == 1 else 0):
                    seen = len(re.findall("event=worker_ready", (s.folder / "stderr").read_text()))
                    os.kill(s.worker_pid("gru"), signal.SIGKILL)
                    while len(re.findall("event=worker_ready", log := (s.folder / "stderr").read_text())) == seen:
                        time.sleep(0.005)
                    back.append(int(re.findall(r"event=worker_ready.*load_ms=(\d+)", log)[-1]))
                    time.sleep(0.2)
                each = statistics.median(pss_kb(pid) for pid in s_pids(s)) / 1024
                private = statistics.median(pss_kb(pid, "Private_Dirty") for pid in s_pids(s)) / 1024
                whole = sum(pss_kb(pid) for pid in [*s_pids(s), *([zygote] if zygote else [])]) / 1024
                again = f"; after a kill: {back}" if back else ""
                print(f"| {n}, {name} | {times}{again} | {each:.0f} | {private:.1f} | {whole:.0f} |")


def s_pids(s):
    return [worker["pid"] for worker in s.describe("gru")["workers"] if worker["status"] == "READY"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("what", nargs="*", default=["share", "wires", "workers", "compare"])
    chosen = parser.parse_args()
    print(served.machine(), f"PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "model.pt"
        torch.jit.save(torch.jit.script(Gru().eval()), script)
        if "share" in chosen.what:
            share(script, chosen.seconds)
        if "wires" in chosen.what:
            wires(pathlib.Path(folder), chosen.rounds, chosen.seconds)
        if "workers" in chosen.what:
            workers(script)
        if "compare" in chosen.what:
            compare(script, chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
