"""The checks of tests/gpu/run.sh: compares TorchScript models on a GPU with PyTorch on the same device.

Prints a line for each check when it ends, and then a table. Exits with 1 if a check failed. A check that this machine
cannot run says why."""

import argparse
import concurrent.futures
import math
import os
import pathlib
import platform
import random
import signal
import statistics
import sys
import tempfile
import time

import torch

import models
from server import HERE, Refused, Server, until

CHECKS = []
TOLERANCE = 1e-4  # kernels for other numbers of rows add in another order


class NotHere(Exception):
    """Why a check cannot be run on this machine."""


def check(function):
    CHECKS.append(function)
    return function


class Run:
    """What the checks share: the device, the models and their references."""

    def __init__(self, device, folder):
        self.device, self.folder = device, folder
        self.torch_device = torch.device("cuda:0" if device == "gpu" else "cpu")
        self.modules = {name: module.to(self.torch_device) for name, module in models.save(folder).items()}

    def script(self, name):
        return self.folder / f"{name}.pt"

    def steps(self, count, seed):
        chance = random.Random(seed)
        return [[chance.uniform(-1, 1) for _ in range(16)] for _ in range(count)]

    def needs_gpu(self):
        if self.device != "gpu":
            raise NotHere("needs a GPU")


def distance(given, wanted):
    return max(abs(a - b) for a, b in zip(given, wanted, strict=True))


def equal(given, wanted):
    far = distance(given, wanted)
    assert far <= TOLERANCE and not math.isnan(far), f"{given} is {far:.2g} away from {wanted}"
    return far


def stream(server, model, sequence, steps, wanted, key="x"):
    """Runs all steps of one sequence. Returns the largest difference from the reference."""
    client = server.client()
    return max(equal(client.step(model, sequence, {key: [x]})["y"][0], want) for x, want in zip(steps, wanted))


def interleaved(run, server, model, reference, sequences=48, count=25):
    steps = {f"s{i}": run.steps(count, i) for i in range(sequences)}
    wanted = {name: reference(run.modules[model], x, run.torch_device) for name, x in steps.items()}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        far = max(pool.map(lambda name: stream(server, model, name, steps[name], wanted[name]), steps))
    return f"{sequences} sequences of {count} steps, at most {far:.1e} apart"


@check
def gru_equals_pytorch(run):
    """A GRU, with interleaved sequences and batches of up to 16."""
    with Server() as server:
        server.register("gru", run.script("gru"), models.yaml(models.GRU, run.device))
        return interleaved(run, server, "gru", models.gru_reference)


@check
def lstm_equals_pytorch(run):
    """An LSTM with two states, whose batch axis is the second one."""
    with Server() as server:
        server.register("lstm", run.script("lstm"), models.yaml(models.LSTM, run.device))
        return interleaved(run, server, "lstm", models.lstm_reference)


@check
def vad_equals_pytorch(run):
    """silero-vad, which keeps its state in attributes, with an artificial sound."""
    path = HERE / "models/vad.pt"
    if not path.exists():
        raise NotHere("the bundle was packed without silero-vad")
    chance = random.Random(3)
    chunks = [[math.sin(0.05 * (k * 512 + i)) * chance.uniform(0.1, 0.6) for i in range(512)] for k in range(60)]
    wanted = models.vad_reference(path, chunks, run.torch_device)
    config = (HERE / "models/vad.yaml").read_text() + f"deviceType: {run.device}\n"
    with Server() as server:
        server.register("vad", path, config)

        def one(sequence):
            client = server.client()
            return max(equal(client.step("vad", sequence, {"audio": [chunk]})["prob"][0], want)
                       for chunk, want in zip(chunks, wanted))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            far = max(pool.map(one, [f"s{i}" for i in range(8)]))
    return f"8 streams of 60 chunks, at most {far:.1e} apart"


@check
def python_handler_equals_pytorch(run):
    """A handler in Python moves its model to the device that it is given, and keeps its state in the sequence."""
    with Server() as server:
        server.register("gru", run.script("gru"), models.yaml("", run.device, 2), models.PYTHON)
        devices = [worker.get("device", "cpu") for worker in server.describe("gru")["workers"]]
        assert all(device.startswith(run.torch_device.type) for device in devices), devices
        return f"on {', '.join(devices)}; {interleaved(run, server, 'gru', models.gru_reference, 12)}"


@check
def torchserve_handler_gets_the_device(run):
    """A handler for TorchServe finds gpu_id in its context, and its base class loads the model there."""
    x = run.steps(1, 5)[0]
    wanted = models.gru_reference(run.modules["gru"], [x], run.torch_device)[0]
    with Server() as server:
        config = models.yaml("", run.device).replace("sequenceBatching: true\n", "")
        server.register("gru", run.script("gru"), config, models.TORCHSERVE)
        given = server.client().step("gru", None, {"x": [x]})
        equal(given["y"][0], wanted)
        assert given["device"].startswith(run.torch_device.type), given
        return f"computed on {given['device']}"


@check
def workers_take_devices_in_turns(run):
    """Two workers use the devices that deviceIds names, and sequences move between them."""
    ids = list(range(torch.cuda.device_count()))[:4] if run.device == "gpu" else None
    workers = max(2, len(ids or []))
    with Server() as server:
        server.register("gru", run.script("gru"), models.yaml(models.GRU, run.device, workers, ids))
        until(lambda: len(server.pids("gru")) == workers, "all workers are up")
        devices = [worker.get("device", "cpu") for worker in server.describe("gru")["workers"]]
        if ids:
            expected = [f"cuda:{ids[i % len(ids)]}" for i in range(workers)]
            assert sorted(devices) == sorted(expected), devices
        said = interleaved(run, server, "gru", models.gru_reference, sequences=24)
    return f"{workers} workers on {', '.join(devices)}; {said}"


@check
def device_that_is_not_there_is_refused(run):
    run.needs_gpu()
    count = torch.cuda.device_count()
    with Server() as server:
        try:
            server.register("gru", run.script("gru"), models.yaml(models.GRU, "gpu", ids=[count]))
        except Refused as refused:
            assert f"cuda:{count}" in refused.message, refused.message
            return refused.message[:160]
    raise AssertionError("it was registered")


@check
def killed_workers_lose_no_step(run):
    """The worker is killed right after every second answer, so the next step needs the state of the last one."""
    steps = run.steps(24, 99)
    wanted = models.gru_reference(run.modules["gru"], steps, run.torch_device)
    kills = 0
    with Server() as server:
        server.register("gru", run.script("gru"), models.yaml(models.GRU, run.device))
        client = server.client()
        for i, (x, want) in enumerate(zip(steps, wanted)):
            equal(client.step("gru", "a", {"x": [x]})["y"][0], want)
            if i % 2:
                server.kill_workers("gru")
                kills += 1
                until(lambda: server.pids("gru"), "a worker is up again", 120)
        return f"{kills} kills in {len(steps)} steps, each value right"


@check
def killed_server_loses_no_step(run):
    """The whole server is killed in the middle of a sequence. The state was stored before the answer."""
    steps = run.steps(12, 7)
    wanted = models.lstm_reference(run.modules["lstm"], steps, run.torch_device)
    with Server() as server:
        server.register("lstm", run.script("lstm"), models.yaml(models.LSTM, run.device))
        for i, (x, want) in enumerate(zip(steps, wanted)):
            equal(server.client().step("lstm", "a", {"x": [x]})["y"][0], want)
            if i in (3, 7):
                server.restart(signal.SIGKILL)
                server.register("lstm", run.script("lstm"), models.yaml(models.LSTM, run.device))
    return "2 kills in 12 steps, each value right"


@check
def memory_of_the_device_is_used_up(run):
    """A step that finds no memory fails with PyTorch's message, and the worker continues."""
    run.needs_gpu()
    total = torch.cuda.get_device_properties(0).total_memory >> 30
    with Server() as server:
        server.register("hungry", run.script("hungry"), models.yaml(models.HUNGRY, "gpu"))
        client = server.client()
        pids = server.pids("hungry")
        assert client.step("hungry", "a", {"x": [[0.0]]})["y"] == [[0.0]]
        try:
            client.step("hungry", "a", {"x": [[float(2 * total)]]})
        except Refused as refused:
            assert "memory" in refused.message, refused.message
            said = f"{refused.status}: {refused.message[:120]}"
        else:
            raise AssertionError(f"{2 * total} GiB were had on a device of {total}")
        assert client.step("hungry", "a", {"x": [[0.0]]})["y"] == [[0.0]]
        assert server.pids("hungry") == pids, "the worker was started anew"
    return said


@check
def missing_driver_is_told(run):
    """No device is visible, or PyTorch was built without CUDA: the registration says which."""
    with Server({"CUDA_VISIBLE_DEVICES": ""}) as server:
        try:
            server.register("gru", run.script("gru"), models.yaml(models.GRU, "gpu"))
        except Refused as refused:
            assert "CUDA" in refused.message, refused.message
            return refused.message[:200]
    raise AssertionError("it was registered")


class Spread(torch.nn.Module):
    """Takes the requests of the load tool, which are one byte."""

    def __init__(self, units):
        super().__init__()
        self.spread = torch.nn.Linear(1, units)
        self.cell = torch.nn.GRUCell(units, units)
        self.out = torch.nn.Linear(units, 4)

    def forward(self, x, h):
        h = self.cell(torch.tanh(self.spread(x.to(torch.float32) / 57.0)), h)
        return self.out(h), h


@check
def steps_per_second(run):
    """A GRU of 256 units and one of 2,048, with 64 connections, on the CPU and on the device in turn."""
    said = []
    devices = ["cpu", "gpu"] if run.device == "gpu" else ["cpu"]
    for units in (256, 2048):
        path = run.folder / f"spread{units}.pt"
        torch.jit.script(Spread(units).eval()).save(str(path))
        rates = {device: [] for device in devices}
        config = (f"inputs: [{{name: x, dataType: UINT8, dims: [1]}}]\noutputs: [{{name: y, dataType: FP32, dims: [4]}}]\n"
                  f"state: {{tensors: [{{name: h, dataType: FP32, dims: [{units}]}}]}}\n").replace("batchSize: 16", "")
        with Server() as server:
            for device in devices:
                server.register(f"m{device}", path, models.yaml(config, device).replace("16", "64"))
            for _ in range(3):
                for device in devices:
                    done = server.bench(f"m{device}", 64, 3)
                    assert done["errors"] == 0, done
                    rates[device].append(done["steps_per_s"])
        said.append(f"{units} units: " + ", ".join(f"{d} {statistics.median(r):,.0f}/s" for d, r in rates.items()))
    return "; ".join(said)


def machine(device):
    words = [f"{platform.platform()}, {os.cpu_count()} cores", f"Python {platform.python_version()}",
             f"PyTorch {torch.__version__}", f"CUDA {torch.version.cuda}"]
    if device == "gpu":
        words += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return "; ".join(words)


def run_check(function, run):
    begun = time.monotonic()
    try:
        verdict, said = "ok", function(run)
    except NotHere as why:
        verdict, said = "not run", str(why)
    except Exception as error:  # noqa: BLE001 - whatever it was, the other checks go on
        verdict, said = "FAILED", f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begun
    print(f"{verdict:8}{function.__name__} ({seconds:.0f} s): {said}", flush=True)
    return function.__name__, verdict, seconds, said


def main():
    parser = argparse.ArgumentParser(description="Checks TorchScript models on a GPU.")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--only", nargs="*", help="names of checks", choices=[c.__name__ for c in CHECKS])
    options = parser.parse_args()
    if options.device == "gpu" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU here (torch.cuda.is_available() is false); --device cpu runs what needs none")
    print(machine(options.device), flush=True)
    torch.set_num_threads(1)  # the references' threads would take cores from the server
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options.device, pathlib.Path(folder))
        rows = [run_check(c, run) for c in CHECKS if not options.only or c.__name__ in options.only]
    commit = HERE / "commit"
    print(f"\n{machine(options.device)}; commit {commit.read_text().strip() if commit.exists() else 'unknown'}\n")
    print("| check | | s | what was seen |\n|---|---|---|---|")
    for name, verdict, seconds, said in rows:
        print(f"| {name.replace('_', ' ')} | {verdict} | {seconds:.0f} | {said.replace('|', '/')} |")
    failed = sum(verdict == "FAILED" for _, verdict, _, _ in rows)
    print(f"\n{sum(v == 'ok' for _, v, _, _ in rows)} passed, {failed} failed, "
          f"{sum(v == 'not run' for _, v, _, _ in rows)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
