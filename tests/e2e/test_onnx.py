"""ONNX files served without a handler, compared with a bare loop of onnxruntime. Skipped if the packages onnxruntime
and onnx are missing (scripts/setup.sh --onnx)."""

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

    begun = set()

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

    rounds(s, 12)
    os.kill(s.ready_pids("encoder")[0], signal.SIGKILL)
    s.expect_ready("encoder", 1)
    rounds(s, 6)
    exported = [requests.get(sequence_url(s, i), params={"export": "true"}, timeout=60) for i in range(100)]
    s.stop()
    other = server(encoder.model(), flags=FLAGS)
    for i, sequence in enumerate(exported):
        if sequence.status_code == 404:  # one that chance has not come to yet
            assert i not in begun
            continue
        imported = requests.put(sequence_url(other, i), data=sequence.content, timeout=60)
        assert imported.status_code == 200, imported.text
    rounds(other, 8)


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


def test_voices_give_the_packages_probabilities_while_workers_die(silero, server):
    """All recordings run as parallel streams, three of each, and are compared with the package's own file and its own
    way of keeping state."""
    vad, paths = recordings()
    bare = Bare(silero[0], {"state": ("stateN", (2, 1, 128))}, {"sr": np.array(16000, np.int64)})
    s = server(model("vad", silero[1], (ROOT / "examples" / "onnx-vad" / "model-config.yaml").read_text()), flags=FLAGS)
    broken, done = [], threading.Event()

    def stream(path, name):
        try:
            state, context = bare.begin(), np.zeros((1, 64), np.float32)
            for chunk in vad.chunks(path):
                row = np.concatenate([context, chunk[None]], 1)
                want, context = bare.step(state, {"input": row})["output"][0][0], row[:, -64:]
                got = again(s, name, chunk)
                assert abs(got - want) < 1e-5, (path, got, want)
        except Exception as error:  # pylint: disable=broad-exception-caught
            broken.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=stream, args=(path, f"{path.stem}-{i}")) for path in paths for i in range(3)]
    for thread in threads:
        thread.start()
    kills = 0
    while any(thread.is_alive() for thread in threads) and kills < 5:
        for pid in s.ready_pids("vad"):
            os.kill(pid, signal.SIGKILL)
            kills += 1
        done.wait(0.3)
    for thread in threads:
        thread.join()
    assert not broken, broken[:3]
    assert kills > 0


def again(s, name, chunk):
    """Returns the probability of a chunk. If a step's worker died, the step is sent again with the same key, and is
    done once."""
    url = f"{s.inference}/predictions/vad"
    again.keys = getattr(again, "keys", 0) + 1
    headers = {"ts-request-sequence-id": name, "Idempotency-Key": f"{name}-{again.keys}"}
    found = []

    def answered():
        answer = requests.post(url, json={"audio": [chunk.tolist()]}, headers=headers, timeout=60)
        if answer.status_code != 200:
            assert answer.headers.get("Continuo-Error") in ("worker_died", "no_worker"), answer.text
            return False
        found.append(answer.json()["output"][0][0])
        return True

    expect(answered, "the step is done", 60)
    return found[0]


def test_voices_give_the_packages_segments(silero, server):
    """Runs get_speech_timestamps() of the package, once with its own model and once with the served one."""
    torch = pytest.importorskip("torch", reason="the package silero-vad finds segments with PyTorch: "
                                                 "scripts/setup.sh --torch")
    from silero_vad import get_speech_timestamps, load_silero_vad  # pylint: disable=import-outside-toplevel
    vad, paths = recordings()
    s = server(model("vad", silero[1], (ROOT / "examples" / "onnx-vad" / "model-config.yaml").read_text()), flags=FLAGS)

    class Served:
        """The served model, with the interface that the package expects."""

        def __init__(self):
            self.sequence = 0

        def reset_states(self):
            self.sequence += 1

        def __call__(self, chunk, rate):
            assert rate == 16000
            return torch.tensor(step(s, "vad", f"q{self.sequence}", {"audio": chunk.numpy()})["output"])

    own, served, spoken = load_silero_vad(onnx=True), Served(), 0
    for path in paths:
        audio = torch.from_numpy(vad.samples(path))
        want = get_speech_timestamps(audio, own)
        assert get_speech_timestamps(audio, served) == want, path
        spoken += len(want)
    assert spoken > 0


# --- what is refused, and how ---

def registered_url(s, url):
    return requests.post(f"{s.management}/models", timeout=120,
                         params={"url": url, "initial_workers": 1, "synchronous": "true"})


def refusal(s, given):
    answer = registered(s, given)
    assert answer.status_code >= 400, answer.text
    return answer.json()["message"]


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
