"""Compares the CPU time of a served ONNX model, in batches of 16, with a bare loop around onnxruntime in Python.
The loop runs 16 rows at once and passes the state tensors back as it gets them. It has no sequences, requests or disk.

    .venv/bin/python bench/onnx_models.py [--rounds 3] [--seconds 5]

The worker's CPU time, which is compared, includes gathering, scattering and committing each state. The server's own CPU
time is in a column of its own.
Needs the packages that scripts/setup.sh --onnx installs. Prints a table in Markdown. One thread."""

import argparse
import importlib.util
import os
import pathlib
import re
import statistics
import tempfile
import time
import urllib.request

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import served

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS = 16
TICK = os.sysconf("SC_CLK_TCK")


def example(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / "examples" / name / "export.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_a_byte(model, name, width):
    """Makes the graph compute its input `name` from one byte, because the load tool sends one byte."""
    graph = model.graph
    graph.input.remove(next(value for value in graph.input if value.name == name))
    graph.input.insert(0, helper.make_tensor_value_info("byte", TensorProto.UINT8, ["batch", 1]))
    graph.initializer.append(numpy_helper.from_array(np.linspace(-0.01, 0.01, width, dtype=np.float32)[None], "spread"))
    graph.node.insert(0, helper.make_node("Mul", ["byte_float", "spread"], [name]))
    graph.node.insert(0, helper.make_node("Cast", ["byte"], ["byte_float"], to=TensorProto.FLOAT))
    return model


def yaml_of(text, name):
    text = re.sub(rf"\{{name: {name}, dataType: FP32, dims: \[\d+\]\}}", "{name: byte, dataType: UINT8, dims: [1]}", text)
    text = re.sub(r"(?m)^(batchSize|maxBatchSize): \d+$", rf"\1: {ROWS}", text)
    buckets = f"  buckets: [{ROWS}]\n"
    return text + buckets if "\nonnx:" in text else text + "onnx:\n" + buckets


def models():
    vad, encoder = example("onnx-vad"), example("onnx-encoder")
    made, states = encoder.encoder()
    yield ("encoder", from_a_byte(made, "x", encoder.WIDTH), yaml_of(encoder.config(states, ROWS), "x"),
           {f"{name}_in": (f"{name}_out", (*dims[:axis], ROWS, *dims[axis:])) for name, dims, axis in states}, {})
    yield ("vad", from_a_byte(vad.with_context(onnx.load(vad.source())), "audio", 512),
           yaml_of((ROOT / "examples" / "onnx-vad" / "model-config.yaml").read_text(encoding="utf-8"), "audio"),
           {"state": ("stateN", (2, ROWS, 128)), "context": ("contextN", (ROWS, 64))},
           {"sr": np.array(16000, np.int64)})


def bare_loop(model, states, constants, seconds):
    """Returns the CPU time for one row, in us."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = {name: np.zeros(shape, np.float32) for name, (_, shape) in states.items()}
    byte = np.full((ROWS, 1), 53, np.uint8)

    def run():
        out = dict(zip(names, session.run(None, {"byte": byte, **given, **constants})))
        for name, (output, _) in states.items():
            given[name] = out[output]

    for _ in range(50):
        run()
    runs, begun, end = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        run()
        runs += 1
    return (time.process_time() - begun) * 1e6 / (runs * ROWS)


def cpu_us(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / TICK


def spent_in_runs(s):
    """Returns the runs of the graph so far, and their CPU time in us, as the worker reports them once a second."""
    with urllib.request.urlopen(f"{s.metrics}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    return [sum(float(value) for value in re.findall(rf"(?m)^{series}(?:_total)?{{.*}} (\S+)", page))
            for series in ("OnnxRuns", "OnnxRunTime")]


def served_row(s, name, seconds):
    """Returns the CPU time for one row in us: of the worker, of the runs of the graph in it, and of the server."""
    pids = s.worker_pid(name), s.process.pid
    before, (runs_before, spent_before) = [cpu_us(pid) for pid in pids], spent_in_runs(s)
    run = s.bench(name, "--connections", 3 * ROWS, "--duration", seconds, "--warmup", 0, "--any-answer")
    worker, server = (cpu_us(pid) - was for pid, was in zip(pids, before))
    runs, spent = spent_in_runs(s)
    return worker / run["steps"], (spent - spent_before) / max(1, runs - runs_before) / ROWS, server / run["steps"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    library = importlib.util.find_spec("onnxruntime").submodule_search_locations[0]
    print(f"{served.machine()}; onnxruntime {onnxruntime.__version__}\n")
    print("| model | bare loop, us of CPU a row | worker | of it in runs | worker / bare loop | server |\n"
          "|---|---|---|---|---|---|")
    for name, model, yaml, states, constants in models():
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "model.onnx"
            onnx.save(model, file)
            with served.Served({name: (file, yaml)}, ["--onnxruntime", library]) as s:
                served_row(s, name, 1)
                rounds = [(bare_loop(model, states, constants, options.seconds), *served_row(s, name, options.seconds))
                          for _ in range(options.rounds)]
        bare, worker, runs, server = (statistics.median(column) for column in zip(*rounds))
        ratio = statistics.median(one[1] / one[0] for one in rounds)
        print(f"| {name} | {bare:.1f} | {worker:.1f} | {runs:.1f} | {ratio:.2f} | {server:.1f} |", flush=True)


if __name__ == "__main__":
    main()
