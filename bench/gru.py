"""A GRU of 256 units served as TorchScript, beside TorchServe's way and a bare Python loop, in alternated rounds;
what of a worker's time is not the model's; and how fast forked workers come up and what they take.

Run it with a Python that has PyTorch (docs/torch.md), and torchserve and torch-model-archiver for the
comparison with the real TorchServe (it also needs Java 17). Prints tables in Markdown. One thread."""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import torch

import served

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

HANDLER = '''"""States of sequences in an LRU of the handler, as TorchServe's stateful examples keep them."""
import collections

import torch


class Lru(collections.OrderedDict):
    def get(self, key, otherwise):
        if key in self:
            self.move_to_end(key)
            return self[key]
        return otherwise

    def put(self, key, value):
        self[key] = value
        self.move_to_end(key)
        if len(self) > 100000:
            self.popitem(last=False)


class Handler:
    def __init__(self):
        self.states = Lru()
        self.zeros = torch.zeros(256)

    def initialize(self, context):
        torch.set_num_threads(1)
        directory = context.system_properties["model_dir"]
        self.model = torch.jit.load(directory + "/model.pt").eval()
        self.context = context

    @torch.inference_mode()
    def run(self, ids, bodies):
        x = torch.frombuffer(bytearray(b"".join(bodies)), dtype=torch.uint8).reshape(-1, 1)
        h = torch.stack([self.states.get(id, self.zeros) for id in ids])
        y, h = self.model(x, h)
        for id, state in zip(ids, h):
            self.states.put(id, state.clone())
        return [{"y": [row]} for row in y.tolist()]

    def handle(self, data, context):
        ids = [context.get_request_header(i, "ts_request_sequence_id") for i in range(len(data))]
        return self.run(ids, [bytes(row.get("body") or row.get("data")) for row in data])
'''


class RealTorchServe:
    """One worker, all logs off, the best of its settings for this load: batches of up to 32, 1 ms of delay."""

    def __init__(self, script):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-torchserve-"))
        (self.folder / "handler.py").write_text(HANDLER, encoding="utf-8")
        (self.folder / "store").mkdir()
        python = pathlib.Path(sys.executable).parent
        self.env = os.environ | {"PATH": f"{python}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        (self.folder / "gru.yaml").write_text("batchSize: 32\nmaxBatchDelay: 1\nminWorkers: 1\nmaxWorkers: 1\n")
        shutil.copy(script, self.folder / "model.pt")
        subprocess.run(["torch-model-archiver", "--model-name", "gru", "--version", "1.0", "--serialized-file",
                        self.folder / "model.pt", "--handler", self.folder / "handler.py", "--export-path",
                        self.folder / "store", "--config-file", self.folder / "gru.yaml"], check=True, env=self.env)
        ports = [free_port() for _ in range(5)]
        (self.folder / "ts.properties").write_text(
            "".join(f"{name}_address=http://127.0.0.1:{port}\n"
                    for name, port in zip(("inference", "management", "metrics"), ports))
            + f"grpc_inference_port={ports[3]}\ngrpc_management_port={ports[4]}\n")
        (self.folder / "log4j2.xml").write_text(
            '<Configuration status="off"><Loggers><Root level="off"/></Loggers></Configuration>')
        self.process = subprocess.Popen(
            ["torchserve", "--foreground", "--ncs", "--disable-token-auth", "--enable-model-api", "--model-store",
             self.folder / "store", "--models", "gru=gru.mar", "--ts-config", self.folder / "ts.properties",
             "--log-config", self.folder / "log4j2.xml"], env=self.env, cwd=self.folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.inference = f"http://127.0.0.1:{ports[0]}"
        end = time.monotonic() + 90
        while True:
            try:
                request = urllib.request.Request(f"{self.inference}/predictions/gru", data=b"1",
                                                 headers={"ts_request_sequence_id": "first"})
                urllib.request.urlopen(request, timeout=30).read()
                return
            except OSError:
                if time.monotonic() > end:
                    self.close()
                    raise
                time.sleep(0.5)

    def bench(self, model, *args):
        return bench(self.inference, model, *args)

    def close(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bench(url, model, *args):
    command = [served.BIN / "continuo-bench", "--url", url, "--model", model, *args]
    run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.returncode)
    return json.loads(run.stdout)


def handler_loop(script, rows, seconds):
    """What TorchServe's worker does for a batch, without its sockets: the handler's share alone."""
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
    """The model alone, `rows` sequences at once whose states stay one tensor: what no server can reach."""
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
    models = {"gru": (script, yaml(32))}
    columns = ("here", "TorchServe", "its handler alone, 32 rows", "bare loop, 1 row", "bare loop, 32 rows")
    with served.Served(models) as ours:
        try:
            theirs = RealTorchServe(script)
        except (OSError, subprocess.CalledProcessError) as why:
            print(f"without TorchServe: {why}", file=sys.stderr)
            theirs = None
        table = {}
        try:
            for connections in (1, 8, 32, 64):
                load = ["--connections", connections, "--duration", seconds, "--warmup", 0.3, "--any-answer"]
                samples = collections.defaultdict(list)
                for _ in range(rounds):
                    samples[0].append(ours.bench("gru", *load)["steps_per_s"])
                    if theirs:
                        samples[1].append(theirs.bench("gru", *load)["steps_per_s"])
                    samples[2].append(handler_loop(script, 32, seconds / 2))
                    samples[3].append(bare_loop(script, 1, seconds / 2))
                    samples[4].append(bare_loop(script, 32, seconds / 2))
                table[connections] = [statistics.median(samples[i]) if samples[i] else None for i in range(5)]
        finally:
            if theirs:
                theirs.close()
    print("| connections | " + " | ".join(columns) + " | here / TorchServe | here / its handler alone | here / bare loop |")
    print("|---" * 9 + "|")
    for connections, row in table.items():
        bare = row[3] if connections == 1 else row[4]
        ratios = [row[0] / row[1] if row[1] else None, row[0] / row[2], row[0] / bare]
        print(f"| {connections} | " + " | ".join("-" if v is None else f"{v:,.0f}" for v in row) + " | "
              + " | ".join("-" if v is None else f"{v:.2f}" for v in ratios) + " |")


# --- what of a worker's time is not the model's ---


def cpu_ns(pid):
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def metric(s, name):
    text = urllib.request.urlopen(f"{s.metrics}/metrics", timeout=30).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if re.match(rf"{name}(\{{| )", line))


def share(script, seconds):
    print("| rows | durability | runs | the model, us a run | the worker, us a run | outside of the model |")
    print("|---" * 6 + "|")
    for durability in ("none", "process"):
        for rows in (8, 32):
            # Twice as many connections as rows: the next batch waits when one is done, and is full.
            with served.Served({"gru": (script, yaml(rows, durability, delay=20))}) as s:
                pid = s.worker_pid("gru")
                load = ["--connections", 2 * rows, "--duration", seconds, "--warmup", 0, "--any-answer"]
                s.bench("gru", *load[:2], "--duration", 0.5, *load[4:])
                before = cpu_ns(pid), metric(s, "TorchRunTime"), metric(s, "TorchRuns")
                s.bench("gru", *load)
                time.sleep(1.2)
                after = cpu_ns(pid), metric(s, "TorchRunTime"), metric(s, "TorchRuns")
            runs = after[2] - before[2]
            model, whole = (after[1] - before[1]) / runs, (after[0] - before[0]) / 1000 / runs
            print(f"| {rows} | {durability} | {runs:.0f} | {model:.0f} | {whole:.0f} | {1 - model / whole:.1%} |")


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
    parser.add_argument("what", nargs="*", default=["share", "workers", "compare"])
    chosen = parser.parse_args()
    print(served.machine(), f"PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "model.pt"
        torch.jit.save(torch.jit.script(Gru().eval()), script)
        if "share" in chosen.what:
            share(script, chosen.seconds)
        if "workers" in chosen.what:
            workers(script)
        if "compare" in chosen.what:
            compare(script, chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
