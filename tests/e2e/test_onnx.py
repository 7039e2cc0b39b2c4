"""ONNX files served without a handler, compared with a bare loop of onnxruntime. Skipped if the packages onnxruntime
and onnx are missing (scripts/setup.sh --onnx)."""

import functools
import importlib.util
import os
import random
import shutil
import signal
import sys
import threading

import numpy as np
import pytest
import requests

from models import archiver
from onnxing import ROOT, Bare, example, library, model, packages
from test_examples import Reader
from torching import registered, step, together, told
from waiting import expect

onnxruntime, onnx = packages()
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  pylint: disable=wrong-import-position

FLAGS = ["--onnxruntime", library()]
# The long form of the proofs: with 100 streams of all recordings, and 4160 steps of the encoder's sequences.
WHOLE = os.environ.get("CONTINUO_ONNX_WHOLE") == "1"


def value(name, *dims, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, list(dims))


def graph(nodes, inputs, outputs, weights=(), opset=17, **more):
    made = helper.make_graph(nodes, "graph", inputs, outputs,
                             [numpy_helper.from_array(np.asarray(array), name) for name, array in weights])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


SUM_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{{name: x, dataType: {kind}, dims: [{width}]}}]
outputs: [{{name: y, dataType: FP32, dims: [2]}}]
state: [{{input: h, output: hN, dataType: FP32, dims: [2]}}]
{more}
"""


def sums(name="sums", more="", width=2, kind="FP32", batch="batch", **options):
    """A model with y = x + h, whose next h is y."""
    made = graph([helper.make_node("Add", ["x", "h"], ["y"]), helper.make_node("Identity", ["y"], ["hN"])],
                 [value("x", batch, 2), value("h", batch, 2)], [value("y", batch, 2), value("hN", batch, 2)], **options)
    return model(name, made, SUM_YAML.format(more=more, width=width, kind=kind))


# --- the encoder of 30 states ---

class Encoder:
    """The encoder of the example, and the expected state of each sequence of a test."""

    def __init__(self):
        exported = example("onnx-encoder")
        self.made, states = exported.encoder()
        self.width, self.config = exported.WIDTH, exported.config(states)
        self.bare = Bare(self.made, {f"{name}_in": (f"{name}_out", (*dims[:axis], 1, *dims[axis:]))
                                     for name, dims, axis in states})
        assert len(states) == 30 and len({axis for _, _, axis in states}) == 3

    def model(self, **more):
        return model("encoder", self.made, self.config, **more)


@pytest.fixture(scope="module")
def encoder():
    return Encoder()


def test_thirty_states_on_three_axes_equal_a_bare_loop_in_any_interleaving(encoder, server, folder):
    """100 sequences make steps in random order. Meanwhile a worker is killed, and the sequences are exported and
    imported."""
    s = server(encoder.model(), flags=FLAGS)
    chance = random.Random(3)
    numbers = np.random.default_rng(3)
    states = [encoder.bare.begin() for _ in range(100)]

    begun, apart = set(), []

    def sequence_url(s, i):
        return f"{s.management}/models/encoder/sequences/s{i}"

    def rounds(s, count):
        for _ in range(count):
            rows = chance.sample(range(100), 16)
            begun.update(rows)
            inputs = [numbers.normal(size=encoder.width).astype(np.float32) for _ in rows]
            answers = together(s, "encoder", [(f"s{row}", {"x": x}) for row, x in zip(rows, inputs)])
            for row, x, answer in zip(rows, inputs, answers):
                want = encoder.bare.step(states[row], {"x": x[None]})["y"][0]
                np.testing.assert_allclose(answer["y"], want, atol=1e-5, rtol=0)
                apart.append(np.abs(answer["y"] - want).max())

    rounds(s, 120 if WHOLE else 12)
    os.kill(s.ready_pids("encoder")[0], signal.SIGKILL)
    s.expect_ready("encoder", 1)
    rounds(s, 60 if WHOLE else 6)
    exported = [requests.get(sequence_url(s, i), params={"export": "true"}, timeout=60) for i in range(100)]
    s.stop()
    other = server(encoder.model(), flags=FLAGS)
    for i, sequence in enumerate(exported):
        if sequence.status_code == 404:  # one that chance has not come to yet
            assert i not in begun
            continue
        imported = requests.put(sequence_url(other, i), data=sequence.content, timeout=60)
        assert imported.status_code == 200, imported.text
    rounds(other, 80 if WHOLE else 8)
    print(f"{len(begun)} sequences, the largest difference is {max(apart)}")


def test_what_the_server_tells_of_the_model(encoder, server):
    s = server(encoder.model(), flags=FLAGS)
    shown = told(s, "encoder")
    if "CONTINUO_ONNXRUNTIME" not in os.environ:
        assert shown["onnxruntime"] == onnxruntime.__version__
    assert shown["probe"]["result"] == "alike", shown["probe"]
    assert [bucket["rows"] for bucket in shown["buckets"]] == [1, 2, 4, 8, 16]
    assert "FP32 conv0_in[-1,16,3]" in shown["method"], shown["method"]
    zygote = s.describe("encoder")["zygote"]
    assert zygote and zygote["state"] == "ready", "workers are forked from a process that has loaded the model"


# --- a cache that grows ---

def decoder():
    """Attention with one head over all earlier steps. Its cache begins empty."""
    weights = [(name, np.random.default_rng(5).normal(0, 0.5, (8, 8)).astype(np.float32) * (1 + at))
               for at, name in enumerate(("wk", "wv", "wq"))]
    axes = [("axis1", np.array([1], np.int64))]
    nodes = []
    for name in ("k", "v", "q"):
        nodes += [helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
                  helper.make_node("Unsqueeze", [f"{name}0", "axis1"], [f"{name}1"])]
    for name in ("k", "v"):
        nodes.append(helper.make_node("Concat", [f"past_{name}", f"{name}1"], [f"present_{name}"], axis=1))
    nodes += [helper.make_node("Transpose", ["present_k"], ["kt"], perm=[0, 2, 1]),
              helper.make_node("MatMul", ["q1", "kt"], ["scores"]),
              helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
              helper.make_node("MatMul", ["weights", "present_v"], ["y1"]),
              helper.make_node("Squeeze", ["y1", "axis1"], ["y"])]
    return graph(nodes, [value("x", "batch", 8), *(value(f"past_{n}", "batch", "past", 8) for n in "kv")],
                 [value("y", "batch", 8), *(value(f"present_{n}", "batch", "all", 8) for n in "kv")],
                 weights + axes)


DECODER_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [8]}]
outputs: [{name: y, dataType: FP32, dims: [8]}]
state:
  - {input: past_k, output: present_k, dataType: FP32, dims: [-1, 8], init: {dims: [0, 8]}}
  - {input: past_v, output: present_v, dataType: FP32, dims: [-1, 8], init: {dims: [0, 8]}}
"""


def test_a_cache_begins_empty_and_grows(server):
    made = decoder()
    bare = Bare(made, {f"past_{n}": (f"present_{n}", (1, 0, 8)) for n in "kv"})
    s = server(model("decoder", made, DECODER_YAML), flags=FLAGS)
    numbers, states = np.random.default_rng(4), [bare.begin() for _ in range(6)]
    for turn in range(12):
        rows = [row for row in range(6) if (turn + row) % (row % 3 + 1) == 0]  # sequences of different lengths
        inputs = [numbers.normal(size=8).astype(np.float32) for _ in rows]
        answers = together(s, "decoder", [(f"s{row}", {"x": x}) for row, x in zip(rows, inputs)])
        for row, x, answer in zip(rows, inputs, answers):
            np.testing.assert_allclose(answer["y"], bare.step(states[row], {"x": x[None]})["y"][0], atol=1e-5)
    assert states[0]["past_k"].shape[1] == 12


# --- voices ---

def recordings():
    sys.path.insert(0, str(ROOT / "examples" / "vad"))
    import vad  # pylint: disable=import-outside-toplevel,import-error
    found = sorted(ROOT.joinpath("/usr/share/sounds/alsa").glob("*.wav"))
    assert found, "the package alsa-utils has the recordings"
    return vad, found


@pytest.fixture(scope="module")
def silero():
    packages("silero_vad")
    exported = example("onnx-vad")
    return onnx.load(exported.source()), exported.with_context(onnx.load(exported.source()))


class Listener(threading.Thread):
    """Streams recordings one after the other, each as a sequence of its own. A step that died with its worker or with
    the server is sent again with the same key, and is done once."""

    def __init__(self, s, index, recordings):
        super().__init__(daemon=True)
        self.s, self.index, self.recordings = s, index, recordings
        self.heard, self.steps, self.broken = {}, 0, None

    def run(self):
        try:
            with requests.Session() as session:
                for path, audio in self.recordings:
                    sequence = f"{path.stem}-{self.index}"
                    self.heard[path] = [self.step(session, sequence, at, chunk)
                                        for at, chunk in enumerate(whole_chunks(audio))]
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.broken = f"{self.index}: {error!r}"

    def step(self, session, sequence, at, chunk):
        headers = {"ts-request-sequence-id": sequence, "Idempotency-Key": str(at),
                   "Content-Type": "application/octet-stream"}
        found = []

        def answered():
            try:
                answer = session.post(f"{self.s.inference}/predictions/vad", data=chunk.tobytes(), headers=headers,
                                      timeout=60)
            except requests.ConnectionError:
                return False
            if answer.status_code != 200:
                assert answer.headers.get("Continuo-Error") in ("worker_died", "no_worker"), answer.text
                return False
            found.append(answer.json()["output"][0][0])
            return True

        expect(answered, "the step is done", 60)
        self.steps += 1
        return found[0]


def whole_chunks(audio):
    """The package cuts a recording in the same way, and fills the last chunk up with silence."""
    padded = np.pad(audio, (0, -len(audio) % 512))
    return padded.reshape(-1, 512)


def heard_by_the_package(silero, audio):
    bare = Bare(silero, {"state": ("stateN", (2, 1, 128))}, {"sr": np.array(16000, np.int64)})
    state, context, heard = bare.begin(), np.zeros((1, 64), np.float32), []
    for chunk in whole_chunks(audio):
        row = np.concatenate([context, chunk[None]], 1)
        heard.append(bare.step(state, {"input": row})["output"][0][0])
        context = row[:, -64:]
    return heard


def segments_of(audio, heard):
    """Returns what get_speech_timestamps() of the package makes of these probabilities, or None without PyTorch, which
    that function needs."""
    if not importlib.util.find_spec("torch"):
        return None
    import torch  # pylint: disable=import-outside-toplevel
    from silero_vad import get_speech_timestamps  # pylint: disable=import-outside-toplevel

    class Replay:
        def reset_states(self):
            self.left = iter(heard)

        def __call__(self, chunk, rate):
            return torch.tensor([[next(self.left)]])

    return get_speech_timestamps(torch.from_numpy(audio), Replay())


@functools.cache
def package_model():
    from silero_vad import load_silero_vad  # pylint: disable=import-outside-toplevel
    return load_silero_vad(onnx=True)


def segments_of_the_package(audio):
    """Returns what that function makes of the package's own model."""
    if not importlib.util.find_spec("torch"):
        return None
    import torch  # pylint: disable=import-outside-toplevel
    from silero_vad import get_speech_timestamps  # pylint: disable=import-outside-toplevel
    return get_speech_timestamps(torch.from_numpy(audio), package_model())


def test_voices_give_the_packages_segments_while_workers_die_and_the_server_restarts(silero, server):
    """Parallel streams of all recordings against the package's own file and its way to keep state. Once a second all
    workers are killed, and in the middle the server is. With CONTINUO_ONNX_WHOLE=1 there are 100 streams, each of all
    recordings."""
    vad, paths = recordings()
    audio = {path: vad.samples(path) for path in paths}
    probabilities = {path: heard_by_the_package(silero[0], audio[path]) for path in paths}
    segments = {path: segments_of_the_package(audio[path]) for path in paths}
    s = server(model("vad", silero[1], (ROOT / "examples" / "onnx-vad" / "model-config.yaml").read_text()), flags=FLAGS)
    streams, each = (100, len(paths)) if WHOLE else (2 * len(paths), 1)
    listeners = [Listener(s, i, [(paths[(i + turn) % len(paths)], audio[paths[(i + turn) % len(paths)]])
                                 for turn in range(each)]) for i in range(streams)]
    steps = sum(len(probabilities[path]) for listener in listeners for path, _ in listener.recordings)
    for listener in listeners:
        listener.start()
    kills, restarts, done = 0, 0, threading.Event()
    while any(listener.is_alive() for listener in listeners):
        if restarts == 0 and sum(listener.steps for listener in listeners) > steps / 2:
            s.kill()
            s.restart()
            restarts += 1
        for pid in s.ready_pids("vad"):
            os.kill(pid, signal.SIGKILL)
            kills += 1
        done.wait(1 if WHOLE else 0.3)
    for listener in listeners:
        listener.join()
    assert not [listener.broken for listener in listeners if listener.broken]
    apart = max(abs(got - want) for listener in listeners for path, heard in listener.heard.items()
                for got, want in zip(heard, probabilities[path], strict=True))
    print(f"{streams} streams, {steps} steps, {kills} workers killed, {restarts} restart; probabilities differ by {apart}")
    assert apart < 1e-5 and kills > 0 and restarts == 1
    if all(found is None for found in segments.values()):
        return
    assert sum(map(len, segments.values())) > 0
    for listener in listeners:
        for path, heard in listener.heard.items():
            assert segments_of(audio[path], heard) == segments[path], path


# --- what is refused, and how ---

def registered_url(s, url):
    return requests.post(f"{s.management}/models", timeout=120,
                         params={"url": url, "initial_workers": 1, "synchronous": "true"})


def refusal(s, given):
    answer = registered(s, given)
    assert answer.status_code >= 400, answer.text
    return answer.json()["message"]


def sums_of_rank_two():
    given = sums()
    given.yaml = given.yaml.replace("hN, dataType: FP32, dims: [2]", "hN, dataType: FP32, dims: [2, 1]")
    return given


BROKEN = {
    "opset too new": (lambda: sums(opset=99), "onnxruntime .* cannot load model.onnx: .*opset"),
    "unknown operator": (lambda: model("custom", graph(
        [helper.make_node("Foo", ["x"], ["y"], domain="my.own")], [value("x", "batch", 2)],
        [value("y", "batch", 2)], opset=17), SUM_YAML.format(more="", width=2, kind="FP32")),
        "cannot load model.onnx: .*(my.own|Foo)"),
    "no model": (lambda: model("noise", b"this is no protobuf of ONNX", SUM_YAML.format(more="", width=2, kind="FP32")),
                 "cannot load model.onnx: "),
    "other type": (lambda: sums(kind="FP64"),
                   r"input x of the graph of model.onnx is FP32\[-1,2\], but the YAML has FP64\[-1,2\]"),
    "other shape": (lambda: sums(width=3),
                    r"input x of the graph of model.onnx is FP32\[-1,2\], but the YAML has FP32\[-1,3\]"),
    "fixed batch": (lambda: sums(batch=1), r"fixed size 1 in dimension 0 .*say onnx: \{buckets: \[1\]\}"),
    "missing provider": (lambda: sums(more="onnx: {providers: [CUDAExecutionProvider]}"),
                         "onnx.providers: onnxruntime .* has no CUDAExecutionProvider here; it has .*CPUExecutionProvider"),
    "unknown key": (lambda: sums(more="onnx: {provider: [CPUExecutionProvider]}"),
                    r"onnx: unknown key provider \(did you mean providers\?\)"),
    "misspelt map": (lambda: sums(more="onxx: {threads: 2}"), r"unknown key onxx \(did you mean onnx\?\)"),
    "no CUDA": (lambda: sums(more="deviceType: gpu"), "deviceType is gpu, but|has no CUDAExecutionProvider here"),
    "rank of a state": (sums_of_rank_two,
                        r"state h of the graph of model.onnx is FP32\[-1,2\], but the YAML has FP32\[-1,2,1\]"),
    "set of nothing": (lambda: sums(more="onnx: {set: {rate: 1}}"),
                       "the graph of model.onnx has no input rate, which the YAML declares as a number of onnx.set; "
                       "it has x, h"),
    "optimization": (lambda: sums(more="onnx: {graphOptimization: most}"),
                     "onnx.graphOptimization: expected none, basic, extended or all"),
    "no library": (lambda: sums(more="onnx: {library: /nowhere/libonnxruntime.so}"),
                   "/nowhere/libonnxruntime.so does not exist: .*pip install onnxruntime"),
    "other library": (lambda: sums(more="onnx: {library: /lib/x86_64-linux-gnu/libz.so.1}"),
                      "is not onnxruntime: it exports no symbol OrtGetApiBase"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_model_that_does_not_fit_says_why(server, what):
    import re  # pylint: disable=import-outside-toplevel
    made, expected = BROKEN[what]
    message = refusal(server(flags=FLAGS), made())
    assert re.search(expected, message), message


def test_an_input_that_nothing_fills(server):
    given = sums(more="")
    given.yaml = given.yaml.replace("state: [{input: h, output: hN, dataType: FP32, dims: [2]}]", "")
    message = refusal(server(flags=FLAGS), given)
    assert "nothing in the YAML fills the input h of the graph of model.onnx" in message
    assert "onnx: {set: {h: ...}}" in message


def test_external_data_is_packed_and_its_absence_is_named(server, tmp_path):
    weight = np.random.default_rng(1).normal(size=(2, 2)).astype(np.float32)
    made = graph([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", "batch", 2)], [value("y", "batch", 2)],
                 [("w", weight)])
    onnx.save_model(made, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    yaml = ("batchSize: 4\nmaxBatchSize: 4\ninputs: [{name: x, dataType: FP32, dims: [2]}]\n"
            "outputs: [{name: y, dataType: FP32, dims: [2]}]\n")
    (tmp_path / "model-config.yaml").write_text(yaml, encoding="utf-8")
    s = server(flags=FLAGS)
    pack = ["--model-name", "whole", "--version", "1.0", "--serialized-file", tmp_path / "model.onnx",
            "--config-file", tmp_path / "model-config.yaml", "--export-path", s.store]
    archiver(*pack)
    assert registered_url(s, "whole.mar").status_code == 200
    x = np.array([1, 2], np.float32)
    np.testing.assert_allclose(step(s, "whole", "a", {"x": x})["y"], x @ weight, atol=1e-6)

    (tmp_path / "weights.bin").unlink()
    ran = archiver(*pack, "--force", check=False)
    assert ran.returncode == 1 and "has weights in the file weights.bin, which is not beside it" in ran.stderr
    shutil.copytree(tmp_path, s.store / "half")  # a folder, as one works in it
    refused = registered_url(s, "half")
    assert refused.status_code >= 400 and "weights.bin" in refused.json()["message"], refused.text


def branching(weight):
    """y = x times a weight that only a branch of an If has."""
    def body(name, node, weights=()):
        return helper.make_graph([node], name, [], [value(f"{name}_y", "batch", 2)],
                                 [numpy_helper.from_array(array, "x_weight") for array in weights])

    right = body("yes", helper.make_node("MatMul", ["x", "x_weight"], ["yes_y"]), [weight])
    wrong = body("no", helper.make_node("Identity", ["x"], ["no_y"]))
    return graph([helper.make_node("If", ["true"], ["y"], then_branch=right, else_branch=wrong)],
                 [value("x", "batch", 2)], [value("y", "batch", 2)], [("true", np.array(True))])


def test_weights_of_branches_are_packed_too(server, tmp_path):
    """A branch of If has weights in a file, and reads the input of the graph around it."""
    weight = np.random.default_rng(1).normal(size=(2, 2)).astype(np.float32)
    made = branching(weight)
    kept = next(body.g.initializer[0] for body in made.graph.node[0].attribute if body.name == "then_branch")
    (tmp_path / "branch.bin").write_bytes(kept.raw_data)
    kept.ClearField("raw_data")
    kept.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "branch.bin"), ("offset", "0"), ("length", str(weight.nbytes))):
        entry = kept.external_data.add()
        entry.key, entry.value = key, text
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    suggested_text = archiver("suggest", tmp_path / "model.onnx").stdout
    assert "its weights are in branch.bin" in suggested_text
    assert "- {name: x, dataType: FP32, dims: [2]}" in suggested_text
    (tmp_path / "model-config.yaml").write_text(suggested_text, encoding="utf-8")
    s = server(flags=FLAGS)
    pack = ["--model-name", "branching", "--version", "1.0", "--serialized-file", tmp_path / "model.onnx",
            "--config-file", tmp_path / "model-config.yaml", "--export-path", s.store]
    archiver(*pack)
    assert registered_url(s, "branching.mar").status_code == 200
    x = np.array([1, 2], np.float32)
    answer = requests.post(f"{s.inference}/predictions/branching", json={"x": [x.tolist()]}, timeout=60)
    np.testing.assert_allclose(answer.json()["y"][0], x @ weight, atol=1e-6)

    (tmp_path / "branch.bin").unlink()
    ran = archiver(*pack, "--force", check=False)
    assert ran.returncode == 1 and "has weights in the file branch.bin, which is not beside it" in ran.stderr


def test_a_step_that_fails_leaves_the_state_and_its_neighbours_alone(server):
    """An index out of range fails its own row, and the others of its batch are answered."""
    made = graph([helper.make_node("Gather", ["table", "x"], ["found"]), helper.make_node("Add", ["found", "h"], ["y"]),
                  helper.make_node("Identity", ["y"], ["hN"])],
                 [value("x", "batch", 1, kind=TensorProto.INT64), value("h", "batch", 1)],
                 [value("y", "batch", 1), value("hN", "batch", 1)], [("table", np.arange(4, dtype=np.float32))])
    yaml = SUM_YAML.format(more="onnx: {probe: {ranges: {x: [0, 3]}}}", width=1, kind="INT64").replace("[2]", "[1]")
    s = server(model("table", made, yaml), flags=FLAGS)
    assert step(s, "table", "good", {"x": [2]})["y"] == [2]
    assert step(s, "table", "bad", {"x": [1]})["y"] == [1]
    assert "out of data bounds" in step(s, "table", "bad", {"x": [9]}, status=500)
    assert step(s, "table", "bad", {"x": [3]})["y"] == [4]
    assert step(s, "table", "good", {"x": [3]})["y"] == [5]


def test_python3_of_path_says_where_the_library_is(server, tmp_path):
    """Without an option the package of python3 is used. Without the package, the message says what to install."""
    given = sums()
    good, bad = tmp_path / "good", tmp_path / "bad"
    for place, text in ((good, f'exec "{sys.executable}" "$@"'), (bad, "exit 1")):
        place.mkdir()
        (place / "python3").write_text(f"#!/bin/sh\n{text}\n")
        (place / "python3").chmod(0o755)
    s = server(given, env={"PATH": f"{good}:{os.environ['PATH']}"})
    assert step(s, "sums", "a", {"x": [1, 2]})["y"].tolist() == [1, 2]
    s.stop()
    assert "pip install onnxruntime" in refusal(server(env={"PATH": f"{bad}:{os.environ['PATH']}"}), given)


def test_the_environment_names_the_library(server):
    s = server(sums(), env={"CONTINUO_ONNXRUNTIME": str(library())})
    assert step(s, "sums", "a", {"x": [1, 2]})["y"].tolist() == [1, 2]
    assert step(s, "sums", "a", {"x": [1, 2]})["y"].tolist() == [2, 4]


# --- the examples ---

@pytest.mark.parametrize("name", ["onnx-vad", "onnx-encoder"])
def test_the_example_runs_as_its_readme_says(name, server):
    if name == "onnx-vad":
        packages("silero_vad")
    reader = Reader(server(start=False, env={"CONTINUO_ONNXRUNTIME": str(library())}))
    said = reader.read(ROOT / "examples" / name / "README.md")
    assert ('"output"' if name == "onnx-vad" else '"y"') in str(said), said


# --- continuo-archiver suggest ---

def suggested(tmp_path, made):
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    return archiver("suggest", tmp_path / "model.onnx").stdout


def test_the_suggested_yaml_serves_the_encoder(encoder, server, tmp_path):
    """The suggestion equals the example's YAML: thirty states on three axes, which it finds by their names."""
    text = suggested(tmp_path, encoder.made)
    tensors = [line.strip() for line in text.splitlines() if "batchAxis" in line]
    assert tensors == [line.strip() for line in encoder.config.splitlines() if "batchAxis" in line]
    s = server(model("encoder", encoder.made, text), flags=FLAGS)
    state = encoder.bare.begin()
    for turn in range(3):
        x = np.full(encoder.width, turn, np.float32)
        np.testing.assert_allclose(step(s, "encoder", "a", {"x": x})["y"],
                                   encoder.bare.step(state, {"x": x[None]})["y"][0], atol=1e-5)


def test_the_suggested_yaml_of_caches_and_numbers(tmp_path):
    text = suggested(tmp_path, decoder())
    assert "input: past_k, output: present_k, dataType: FP32, dims: [-1, 8], init: {dims: [0, 8]}, batchAxis: 0" in text
    made = graph([helper.make_node("Mul", ["x", "rate"], ["y"])], [value("x", 1, 4), value("rate")], [value("y", 1, 4)])
    text = suggested(tmp_path, made)
    assert "sequenceBatching: false" in text and "buckets: [1]" in text
    assert "  set:\n    rate: 0 # put the number here" in text


def test_what_is_no_onnx_file_is_refused(tmp_path):
    (tmp_path / "noise.onnx").write_bytes(b"\x3a\xff\xff\xff\xff\x0f noise")
    for name, told_ in (("noise.onnx", "is not an ONNX file"), ("nowhere.onnx", "No such file or directory")):
        ran = archiver("suggest", tmp_path / name, check=False)
        assert ran.returncode == 1 and told_ in ran.stderr, ran.stderr
