"""TorchScript models without a handler: the worker keeps their state. PyTorch itself computes the expected values.

tests/support/torching.py says when these tests are skipped."""

import concurrent.futures
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import urllib.parse
import zipfile

import numpy as np
import pytest
import requests
import tritonclient.http as triton

from models import Model, ROOT, archiver
from server import SLOW_BUILD
from test_examples import Reader
from torching import SANITIZED, pytorch
from waiting import expect

torch = pytorch()

torch.set_num_threads(1)


def saved(module):
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(module.eval()), buffer)
    return buffer.getvalue()


class Lstm(torch.nn.Module):
    """The states h and c go in and come out. Their batch axis is the second one."""

    def __init__(self, width=16):
        super().__init__()
        torch.manual_seed(7)
        self.lstm = torch.nn.LSTM(4, width, 2, batch_first=True)
        self.out = torch.nn.Linear(width, 3)

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(x.unsqueeze(1), (h, c))
        return self.out(y[:, 0]), h, c


LSTM_YAML = """
batchSize: {batch}
maxBatchSize: 8
sequenceBatching: true
inputs: [{{name: x, dataType: FP32, dims: [4]}}]
outputs: [{{name: y, dataType: FP32, dims: [3]}}]
state:
  tensors:
    - {{name: h, dataType: FP32, dims: [2, 16], batchAxis: 1}}
    - {{name: c, dataType: FP32, dims: [2, 16], batchAxis: 1}}
torch: {torch}
"""


def lstm(name="lstm", torch_="{}", batch=8, **more):
    return Model(name, None, LSTM_YAML.format(batch=batch, torch=torch_), torchscript=saved(Lstm()), **more)


def stateless(name, module, yaml):
    return Model(name, None, yaml, stateful=False, torchscript=saved(module))


@torch.inference_mode()
def reference(module, steps, width=16):
    """Returns what PyTorch computes for one sequence, step by step, with one row."""
    h = c = torch.zeros(2, 1, width)
    given = []
    for x in steps:
        y, h, c = module(torch.from_numpy(x)[None], h, c)
        given.append(y[0].numpy())
    return given


def step(s, model, sequence, x, **headers):
    answer = requests.post(f"{s.inference}/predictions/{model}", json={"x": [x.tolist()]}, timeout=60,
                           headers={"ts_request_sequence_id": sequence, **headers})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["y"][0], np.float32)


def inputs(n, seed, width=4):
    return np.random.default_rng(seed).standard_normal((n, width), np.float32)


def refused(s, archive):
    answer = requests.post(f"{s.management}/models", params={"url": archive, "initial_workers": 1,
                                                             "synchronous": "true"}, timeout=120)
    assert answer.status_code >= 400, answer.text
    return answer.json()["message"]


def register(s, model):
    return refused(s, s.pack(model).name)


# --- state ---


def test_each_sequence_has_its_own_state(server):
    """Steps of many sequences come in any order, and each gives what PyTorch computes for that sequence alone."""
    s = server(lstm())
    module = Lstm().eval()
    data = {f"s{i}": inputs(6, i) for i in range(12)}
    want = {name: reference(module, steps) for name, steps in data.items()}
    order = [name for name in data for _ in range(6)]
    random.Random(3).shuffle(order)
    at = dict.fromkeys(data, 0)
    for name in order:
        got = step(s, "lstm", name, data[name][at[name]])
        np.testing.assert_allclose(got, want[name][at[name]], atol=1e-5)
        at[name] += 1


def test_one_row_is_bit_equal_to_pytorch(server):
    s = server(lstm(torch_="{buckets: [1]}"))
    data = inputs(20, 1)
    for x, want in zip(data, reference(Lstm().eval(), data)):
        assert step(s, "lstm", "a", x).tobytes() == want.tobytes()


def test_v2_sequences(server):
    """Uses the same model over the v2 protocol, with binary tensors and sequence flags."""
    s = server(lstm())
    client = triton.InferenceServerClient(s.inference.removeprefix("http://"))
    data = inputs(5, 2)
    for i, want in enumerate(reference(Lstm().eval(), data)):
        x = triton.InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(data[i:i + 1])
        answer = client.infer("lstm", [x], sequence_id=42, sequence_start=i == 0, sequence_end=i == 4)
        np.testing.assert_allclose(answer.as_numpy("y")[0], want, atol=1e-5)


def test_a_configuration_that_is_sent_back_changes_nothing(server):
    """Settings that the protocol cannot express, such as `torch` and a batch axis, stay as in the archive, and the
    sequence continues."""
    s = server(flags=["--model-control-mode", "explicit"])
    s.pack(lstm(torch_="{buckets: [1, 8], threads: 1}"), "lstm.mar")
    client = triton.InferenceServerClient(s.inference.removeprefix("http://"))
    client.load_model("lstm")
    shown, described = client.get_model_config("lstm"), s.describe("lstm")["state"]
    data = inputs(6, 12)
    for i, want in enumerate(reference(Lstm().eval(), data)):
        if i == 3:
            client.load_model("lstm", config=json.dumps(shown))
            assert (client.get_model_config("lstm"), s.describe("lstm")["state"]) == (shown, described)
        np.testing.assert_allclose(step(s, "lstm", "a", data[i]), want, atol=1e-5)
    client.load_model("lstm", config=json.dumps({**shown, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]}))
    assert len(s.ready_pids("lstm")) == 2


def test_a_killed_worker_loses_no_step(server):
    s = server(lstm(torch_="{buckets: [1]}"))
    data = inputs(8, 3)
    for i, (x, want) in enumerate(zip(data, reference(Lstm().eval(), data))):
        if i in (3, 5):
            s.kill_worker("lstm")
        assert step(s, "lstm", "k", x).tobytes() == want.tobytes()


def test_a_sequence_goes_on_in_another_server(server):
    """The sequence is exported in the middle and imported in another server. A START there begins with zeros."""
    first, second = server(lstm(torch_="{buckets: [1]}")), server(lstm(torch_="{buckets: [1]}"))
    data = inputs(9, 4)
    want = reference(Lstm().eval(), data)
    for i in range(5):
        step(first, "lstm", "m", data[i])
    envelope = requests.get(f"{first.management}/models/lstm/sequences/m?export=true", timeout=20)
    assert envelope.status_code == 200, envelope.text
    taken = requests.put(f"{second.management}/models/lstm/sequences/m", data=envelope.content, timeout=20)
    assert taken.status_code < 300, taken.text
    for i in range(5, 9):
        assert step(second, "lstm", "m", data[i]).tobytes() == want[i].tobytes()
    first.kill()
    first.restart()
    assert step(first, "lstm", "m", data[5]).tobytes() == want[5].tobytes()
    assert step(first, "lstm", "n", data[0]).tobytes() == want[0].tobytes()


def test_a_thousand_sequences_in_any_order_and_in_two_servers(server):
    """Steps come in random order. In the middle every sequence is exported and continues in another server. Each gives
    what PyTorch computes for that sequence alone."""
    n, steps = (1000, 6) if not SLOW_BUILD else (100, 4)
    module = Lstm().eval()
    data = np.random.default_rng(12).standard_normal((n, steps, 4), np.float32)
    want = [reference(module, data[i]) for i in range(n)]
    servers = [server(lstm(batch=8)), server(lstm(batch=8))]
    lanes = [list(range(lane, n, 16)) for lane in range(16)]

    def run(s, lane, first, last):
        """Runs the steps of this lane's sequences in random order, but each sequence's own steps in order."""
        turns = [i for i in lanes[lane] for _ in range(first, last)]
        random.Random(lane * 100 + first).shuffle(turns)
        at = dict.fromkeys(lanes[lane], first)
        with requests.Session() as session:
            for i in turns:
                answer = session.post(f"{s.inference}/predictions/lstm", json={"x": [data[i][at[i]].tolist()]},
                                      headers={"ts_request_sequence_id": f"s{i}"}, timeout=60)
                assert answer.status_code == 200, answer.text
                np.testing.assert_allclose(answer.json()["y"][0], want[i][at[i]], atol=1e-5)
                at[i] += 1

    def move(lane):
        with requests.Session() as session:
            for i in lanes[lane]:
                taken = session.get(f"{servers[0].management}/models/lstm/sequences/s{i}?export=true", timeout=60)
                assert taken.status_code == 200, taken.text
                put = session.put(f"{servers[1].management}/models/lstm/sequences/s{i}", data=taken.content,
                                  timeout=60)
                assert put.status_code < 300, put.text

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda lane: run(servers[0], lane, 0, steps // 2), range(16)))
        list(pool.map(move, range(16)))
        list(pool.map(lambda lane: run(servers[1], lane, steps // 2, steps), range(16)))


def together(s, model, jobs):
    """Sends all (sequence, x) while the worker is held, so that they run as one batch."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool, s.hold():
        futures = [pool.submit(step, s, model, sequence, x) for sequence, x in jobs]
        s.expect_outstanding(model, len(jobs))
    return [future.result() for future in futures]


def test_deterministic_answers_do_not_depend_on_neighbours(server):
    """With one bucket the same row gives the same bits alone, with one neighbour and with seven."""
    s = server(lstm(torch_="{deterministic: true}"))
    x, rest = inputs(1, 5)[0], inputs(7, 6)
    alone = step(s, "lstm", "a", x)
    for n in (1, 7):
        row = together(s, "lstm", [(f"b{n}", x)] + [(f"c{n}.{i}", rest[i]) for i in range(n)])[0]
        assert row.tobytes() == alone.tobytes()


def test_batches_of_any_size_agree(server):
    s = server(lstm())
    data = inputs(8, 7)
    want = [reference(Lstm().eval(), data[i:i + 1])[0] for i in range(8)]
    for n in (2, 3, 5, 8):
        got = together(s, "lstm", [(f"{n}.{i}", data[i]) for i in range(n)])
        np.testing.assert_allclose(got, want[:n], atol=1e-5)


class Counts(torch.nn.Module):
    """Keeps a sum in an attribute, for as many rows as the last call had. Batches of another size break such a model.
    """

    def __init__(self):
        super().__init__()
        self._sum = torch.zeros(0)
        self._rows = 0

    def forward(self, x, scale: float):
        if self._rows != x.size(0):
            self._sum = torch.zeros(x.size(0), 1)
            self._rows = x.size(0)
        self._sum = self._sum + x * scale
        return self._sum


COUNTS_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [1]}]
outputs: [{name: y, dataType: FP32, dims: [1]}]
state: {tensors: [{name: sum, dataType: FP32, dims: [1]}]}
torch:
  arguments: [x, 2]
  attributes: {_sum: sum}
  set: {_rows: batch}
"""


def test_state_in_attributes_is_each_sequences_own(server):
    s = server(Model("counts", None, COUNTS_YAML, torchscript=saved(Counts())))
    for n in (1, 3, 8, 2):
        together(s, "counts", [(f"s{i}", np.ones(1, np.float32)) for i in range(n)])
    got = [float(step(s, "counts", f"s{i}", np.zeros(1, np.float32))[0]) for i in range(4)]
    assert got == [8.0, 6.0, 4.0, 2.0]


class Grows(torch.nn.Module):
    """A state that grows with each step, like a cache of attention."""

    def forward(self, x, seen):
        seen = torch.cat([seen, x], 1)
        return seen.sum(1), seen


GROWS_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{name: x, dataType: INT64, dims: [-1, 2]}]
outputs: [{name: y, dataType: INT64, dims: [2]}]
state: {tensors: [{name: seen, dataType: INT64, dims: [-1, 2], init: {dims: [1, 2]}}]}
"""


def test_states_of_open_size_grow_and_run_with_their_like(server):
    s = server(Model("grows", None, GROWS_YAML, torchscript=saved(Grows())))
    together(s, "grows", [(f"s{i}", np.full((1 + i % 2, 2), i)) for i in range(6)])
    answers = together(s, "grows", [(f"s{i}", np.full((1, 2), 100)) for i in range(6)])
    assert [int(y[0]) for y in answers] == [i * (1 + i % 2) + 100 for i in range(6)]


# --- without state ---


class Affine(torch.nn.Module):
    def forward(self, x, scale):
        if bool((x < 0).any()):
            raise RuntimeError("x must not be negative")
        return x * scale, (x + 1).to(torch.int64)


AFFINE_YAML = """
batchSize: 8
maxBatchSize: 4
inputs: [{name: x, dataType: FP32, dims: [2]}, {name: scale, dataType: FP32, dims: [1]}]
outputs: [{name: y, dataType: FP32, dims: [2]}, {name: n, dataType: INT64, dims: [2]}]
torch: {buckets: [1, 2, 8]}
"""


def ask(s, model, document):
    return requests.post(f"{s.inference}/predictions/{model}", json=document, timeout=30)


def test_requests_of_many_rows(server):
    """Rows of one request may be in different runs. Its answer has all rows in order."""
    s = server(stateless("affine", Affine(), AFFINE_YAML))
    for n in (1, 2, 3, 4):
        x = [[float(i), i + 0.5] for i in range(n)]
        answer = ask(s, "affine", {"x": x, "scale": [[2.0 + i] for i in range(n)]})
        assert answer.json() == {"y": [[(2.0 + i) * v for v in row] for i, row in enumerate(x)],
                                 "n": [[int(v + 1) for v in row] for row in x]}
    raised = ask(s, "affine", {"x": [[1, 1], [-1, 0]], "scale": [[1], [1]]})
    assert raised.status_code == 500 and "x must not be negative" in raised.json()["message"]
    uneven = ask(s, "affine", {"x": [[1, 1], [1, 0]], "scale": [[1]]})
    assert uneven.status_code == 400, uneven.text


def test_a_rows_fault_is_nobody_elses(server):
    """If one row of a batch raises an exception, the others get their answers. The log has the whole message."""
    s = server(stateless("affine", Affine(), AFFINE_YAML))
    with concurrent.futures.ThreadPoolExecutor(4) as pool, s.hold():
        rows = [[[3, 4]], [[-1, 4]], [[5, 6]], [[7, 8]]]
        futures = [pool.submit(ask, s, "affine", {"x": x, "scale": [[1]]}) for x in rows]
        s.expect_outstanding("affine", 4)
    answers = [future.result() for future in futures]
    assert [answer.status_code for answer in answers] == [200, 500, 200, 200]
    assert answers[3].json()["y"] == [[7, 8]]
    assert answers[1].json()["message"].endswith("RuntimeError: x must not be negative")
    s.expect_log("event=torch_error", "Traceback of TorchScript")


def test_unbatched_models_get_their_tensors_as_they_are(server):
    class Outer(torch.nn.Module):
        def forward(self, a, b):
            return torch.outer(a, b)

    s = server(stateless("outer", Outer(), "batchSize: 4\n"
                         "inputs: [{name: a, dataType: FP64, dims: [-1]}, {name: b, dataType: FP64, dims: [2]}]\n"
                         "outputs: [{name: y, dataType: FP64, dims: [-1, 2]}]\n"))
    assert ask(s, "outer", {"a": [1, 2, 3], "b": [1, 10]}).json() == {"y": [[1, 10], [2, 20], [3, 30]]}


def test_describe_shows_what_a_batch_costs(server):
    s = server(lstm(torch_="{buckets: [1, 4, 8]}"))
    told = requests.get(f"{s.management}/models/lstm", params={"customized": "true"}, timeout=20).json()[0]
    assert told["runtime"] == "torch"
    about = told["customizedMetadata"]
    about = json.loads(about) if isinstance(about, str) else about
    assert about["method"].startswith("forward(Tensor x, Tensor h, Tensor c) -> ")
    assert [bucket["rows"] for bucket in about["buckets"]] == [1, 4, 8]
    assert all(bucket["microseconds"] > 0 for bucket in about["buckets"])


def test_metrics_show_what_batches_cost(server):
    """The metrics show the times that were measured at load and those of real runs, by the number of rows."""
    s = server(lstm(torch_="{buckets: [4]}"))
    before = s.metric("TorchRuns")
    for i in range(3):
        step(s, "lstm", "a", inputs(3, 1)[i])
    expect(lambda: s.metric("TorchRuns") == before + 3, "three runs")
    assert s.metric("TorchRunTime") > 0 and s.metric("TorchBucketTime") > 0


class Keeper(torch.nn.Module):
    """Keeps its arguments in attributes, whole and as a view, changes one in place and returns one."""

    def __init__(self):
        super().__init__()
        self.whole = torch.zeros(1, 4)
        self.view = torch.zeros(1, 4)

    def forward(self, x, z, w):
        before = torch.cat([self.whole, self.view], 1)
        self.whole = x
        self.view = w[:, 1:]
        x.add_(1)
        return before, z


KEEPER_YAML = """
batchSize: 1
maxBatchSize: 1
inputs:
  - {name: x, dataType: FP32, dims: [4]}
  - {name: z, dataType: FP32, dims: [5]}
  - {name: w, dataType: FP32, dims: [5]}
outputs: [{name: before, dataType: FP32, dims: [8]}, {name: z, dataType: FP32, dims: [5]}]
torch: {probe: false}
"""


def test_what_a_module_keeps_of_its_arguments_stays_its_own(server):
    """The memory of arguments is used again in the next run, unless the module still holds it."""
    s = server(stateless("keeper", Keeper(), KEEPER_YAML))
    xs, zs, ws = inputs(6, 1), inputs(6, 2, 5), inputs(6, 3, 5)
    for i in range(6):
        answer = requests.post(f"{s.inference}/predictions/keeper", timeout=60,
                               json={"x": [xs[i].tolist()], "z": [zs[i].tolist()], "w": [ws[i].tolist()]}).json()
        assert np.array_equal(np.array(answer["z"][0], np.float32), zs[i])
        if i > 0:
            want = np.concatenate([xs[i - 1] + 1, ws[i - 1][1:]])
            assert np.array_equal(np.array(answer["before"][0], np.float32), want)


# --- forked workers ---


def memory(pid, key):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M).group(1)) / 1024


def test_forked_workers_are_quick_and_small(server):
    """libtorch is opened, and the model run, only once. A worker that is added or replaced is ready within
    milliseconds, gives the same bits and has little memory of its own."""
    model = lstm(torch_="{buckets: [1]}")
    model.yaml = "minWorkers: 3\nmaxWorkers: 3\n" + model.yaml
    s = server(model)
    s.expect_ready("lstm", 3, timeout=60)
    times = []
    data, module = inputs(9, 8), Lstm().eval()
    for x, want in zip(data, reference(module, data)):
        seen = sum("event=worker_ready" in line for line in s.lines)
        s.kill_worker("lstm")
        expect(lambda: sum("event=worker_ready" in line for line in s.lines) > seen, "it is back", 60)
        line = [line for line in s.lines if "event=worker_ready" in line][-1]
        times.append(int(re.search(r"load_ms=(\d+)", line).group(1)))
        assert step(s, "lstm", "a", x).tobytes() == want.tobytes()
    assert SLOW_BUILD or sorted(times)[4] < 50, times
    pids = s.expect_ready("lstm", 3)
    zygote = s.describe("lstm")["zygote"]["pid"]
    assert all(memory(pid, "Private_Dirty") < memory(zygote, "Rss") / 2 for pid in pids)


@pytest.mark.load
def test_many_steps_leave_nothing_behind(server):
    """Compares the worker's memory after a tenth of the steps with that after all. CONTINUO_TORCH_STEPS sets their
    number."""
    steps = int(os.environ.get("CONTINUO_TORCH_STEPS", "10000"))
    yaml = LSTM_YAML.format(batch=8, torch="{}").replace("name: x, dataType: FP32, dims: [4]",
                                                         "name: x, dataType: UINT8, dims: [1]")

    class Bytes(Lstm):
        def forward(self, x, h, c):
            y, (h, c) = self.lstm(x.to(torch.float32).expand(x.size(0), 4).unsqueeze(1), (h, c))
            return self.out(y[:, 0]), h, c

    s = server(Model("lstm", None, yaml, torchscript=saved(Bytes())))
    pid = s.expect_ready("lstm")[0]

    def run(n):
        done = 0
        while done < n:
            load = s.bench("--model", "lstm", "--connections", 16, "--sequences", 64, "--duration", 2, "--warmup", 0,
                           "--prefix", "m", "--any-answer")
            report = json.loads(load.communicate(timeout=60)[0])
            assert report["errors"] == 0, report
            done += report["steps"]
    run(steps // 10)
    before = memory(pid, "Pss_Anon")
    run(steps)
    assert s.ready_pids("lstm") == [pid]
    after = memory(pid, "Pss_Anon")
    assert SANITIZED or after < before + 4, (before, after)  # the sanitizer keeps what was freed, and finds leaks


# --- the examples ---


class TorchReader(Reader):
    """A reader of the README whose PyTorch may be elsewhere than in .venv."""

    def adapt(self, command):
        command = command.replace(".venv/bin/python", sys.executable)
        command = command.replace(".venv/lib/python3*/site-packages", str(ROOT_OF_PACKAGES))
        return super().adapt(command)


ROOT_OF_PACKAGES = pathlib.Path(torch.__file__).parents[1]


@pytest.fixture
def read_example(server):
    def read(name):
        reader = TorchReader(server(start=False))
        return reader.s, reader.read(ROOT / "examples" / name / "README.md")
    return read


def test_lstm_as_its_readme_says(read_example):
    """The model is trained, archived and served, and gives what PyTorch gives, step by step, over both protocols."""
    _, ((checked, _), (by_hand, _)) = read_example("lstm")
    assert "/predictions: 8 sequences of 120 days" in checked and "v2: 8 sequences" in checked
    assert -20 < json.loads(by_hand)["tomorrow"][0][0] < 50


@pytest.fixture
def vad():
    if not SILERO.exists():
        pytest.skip("the Python package silero-vad is not installed")
    if not VOICES.is_dir():
        pytest.skip(f"{VOICES} is missing (Debian's alsa-utils)")
    sys.path.insert(0, str(ROOT / "examples" / "vad"))
    import vad  # pylint: disable=import-error,import-outside-toplevel
    return vad


VOICES = pathlib.Path("/usr/share/sounds/alsa")
SILERO = ROOT_OF_PACKAGES / "silero_vad" / "data" / "silero_vad.jit"


def test_vad_as_its_readme_says(vad, read_example):
    """Both protocols find the same speech, and none in noise."""
    _, ((first, _), (second, _)) = read_example("vad")
    assert first == second
    lines = dict(line.split(": ", 1) for line in first.splitlines())
    assert lines["Noise.wav"].endswith("speech: none") and "Front_Center.wav" in lines
    assert not lines["Front_Center.wav"].endswith("none")


@torch.inference_mode()
def silero(vad, path):
    """Returns what the package's own model gives for the file, chunk by chunk."""
    model = torch.jit.load(SILERO)
    model.reset_states()
    return [model(torch.from_numpy(chunk.copy())[None], 16000).item() for chunk in vad.chunks(path)]


def vad_model(torch_):
    yaml = (ROOT / "examples" / "vad" / "model-config.yaml").read_text()
    return Model("vad", None, yaml.replace("buckets: [1, 8, 32]", torch_),
                 torchscript=SILERO.read_bytes())


@pytest.mark.parametrize("torch_, tolerance", [("buckets: [1]", 0), ("buckets: [16]\n  deterministic: true", 1e-5),
                                               ("buckets: [1, 4, 16]", 1e-5)])
def test_sixteen_real_streams_with_kills(vad, server, torch_, tolerance):
    """Sixteen streams of real voices run at the same time while the worker is killed again and again. Each probability
    is what PyTorch gives for that stream alone, to the last bit if each row runs by itself."""
    s = server(vad_model(torch_))
    voices = sorted(VOICES.glob("*.wav"))
    paths = [voices[i % len(voices)] for i in range(16)]
    want = {path: silero(vad, path) for path in voices}
    address = urllib.parse.urlsplit(s.inference)
    with s.killing("vad", 1), concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda path: vad.probabilities(address, path), paths))
    for path, probs in zip(paths, got):
        assert np.abs(np.array(probs) - np.array(want[path])).max() <= tolerance
        assert vad.segments(probs) == vad.segments(want[path])


# --- what does not fit ---


def with_yaml(old, new, name="bad", torch_="{}"):
    model = lstm(name, torch_)
    assert old in model.yaml
    return Model(name, None, model.yaml.replace(old, new), torchscript=model.torchscript)


@pytest.mark.parametrize("model, words", [
    (lambda: Model("bad", None, LSTM_YAML.format(batch=1, torch="{}"), torchscript=b"no zip"),
     ["cannot load model.pt as TorchScript"]),
    (lambda: lstm("bad", "{method: predict}"), ["there is no method predict", "forward"]),
    (lambda: lstm("bad", "{submodule: nobody}"), ["there is no submodule nobody", "lstm, out"]),
    (lambda: lstm("bad", "{method: predict, bucket: [1]}"), ["torch: unknown key bucket (did you mean buckets?)"]),
    (lambda: lstm("bad", "{buckets: [4, 0]}"), ["torch.buckets", "from 1 to 65536"]),
    (lambda: lstm("bad", "{deterministic: true, buckets: [4, 8]}"), ["deterministic"]),
    (lambda: lstm("bad", "{arguments: [x, h]}"), ["takes more arguments"]),
    (lambda: lstm("bad", "{arguments: [h, c]}"), ["torch.arguments does not name the input x"]),
    (lambda: lstm("bad", "{results: [y, h]}"), ["torch.results does not name the state c"]),
    (lambda: lstm("bad", "{results: [y, h, c, _]}"), ["returned 3 tensors", "declares 4"]),
    (lambda: lstm("bad", "{attributes: {_h: h}, results: [y, _, c], arguments: [x, c, c]}"),
     ["there is no attribute _h"]),
    (lambda: with_yaml("dims: [2, 16], batchAxis: 1}\n    - {name: c",
                       "dims: [2, 16], batchAxis: 0}\n    - {name: c"), ["RuntimeError"]),
    (lambda: with_yaml("name: c, dataType: FP32, dims: [2, 16]", "name: c, dataType: FP32, dims: [2, 12]"),
     ["RuntimeError"]),
    (lambda: with_yaml("name: c, dataType: FP32", "name: c, dataType: FP64"), ["RuntimeError"]),
    (lambda: with_yaml("dims: [3]", "dims: [5]"), ["returned output y as FP32[1,3]", "declares FP32[1,5]"]),
    (lambda: with_yaml("name: y, dataType: FP32", "name: y, dataType: INT32"), ["FP32[1,3]", "INT32[1,3]"]),
    (lambda: with_yaml("name: x, dataType: FP32", "name: x, dataType: BYTES"), ["TorchScript does not support"]),
    (lambda: with_yaml("sequenceBatching: true", "sequenceBatching: false"), ["sequenceBatching"]),
    (lambda: Model("bad", None, "batchSize: 2\n", torchscript=saved(Lstm())), ["needs inputs and outputs"]),
], ids=lambda value: value[0][:40] if isinstance(value, list) else "")
def test_a_wrong_declaration_is_refused_at_registration(server, model, words):
    """The model is tried with zeros when it is loaded, so that a mistake shows before the first client."""
    s = server()
    message = register(s, model())
    for word in words:
        assert word in message, message


def test_an_operator_that_libtorch_does_not_know(server):
    """The operator could be from a newer PyTorch. Whoever registers the model learns its name."""
    data = saved(Lstm())
    archive = zipfile.ZipFile(io.BytesIO(data))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as out:
        for name in archive.namelist():
            out.writestr(name, archive.read(name).replace(b"torch.unsqueeze", b"torch.unsqueezf"))
    s = server()
    message = register(s, Model("newer", None, LSTM_YAML.format(batch=1, torch="{}"), torchscript=buffer.getvalue()))
    assert "unsqueezf" in message, message


def test_wrong_requests(server):
    s = server(lstm())
    head = {"ts_request_sequence_id": "w"}

    def message(document):
        answer = requests.post(f"{s.inference}/predictions/lstm", json=document, headers=head, timeout=20)
        assert answer.status_code == 400, answer.text
        return answer.json()["message"]

    assert "x" in message({"x": [[1, 2, 3]]})
    assert "x" in message({})
    assert "batch-size 1" in message({"x": [[1, 2, 3, 4], [1, 2, 3, 4]]})


def test_nan_is_a_value(server):
    """NaN goes through the model as in PyTorch, and only affects its own sequence."""
    s = server(lstm())
    client = triton.InferenceServerClient(s.inference.removeprefix("http://"))
    for sequence, value in ((1, np.nan), (2, 0.5)):
        x = triton.InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(np.full((1, 4), value, np.float32))
        y = client.infer("lstm", [x], sequence_id=sequence, sequence_start=True).as_numpy("y")
        assert np.isnan(y).all() == np.isnan(value)


def test_an_empty_tensor_and_another_rank(server):
    """If dims say -1, a size of 0 is allowed. An additional dimension is the client's mistake."""
    s = server(Model("grows", None, GROWS_YAML, torchscript=saved(Grows())))
    head = {"ts_request_sequence_id": "e"}

    def ask_with(document):
        return requests.post(f"{s.inference}/predictions/grows", json=document, headers=head, timeout=20)

    assert ask_with({"x": [[[1, 2]]]}).json() == {"y": [[1, 2]]}
    empty = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 0, 2], "data": []}],
             "parameters": {"sequence_id": "e"}}
    answer = requests.post(f"{s.inference}/v2/models/grows/infer", json=empty, timeout=20)
    assert answer.status_code == 200 and answer.json()["outputs"][0]["data"] == [1, 2], answer.text
    for document in ({"x": [[[[1, 2]]]]}, {"x": [[[1, 2, 3]]]}, {"x": 1}):
        answer = ask_with(document)
        assert answer.status_code == 400 and "x" in answer.json()["message"], answer.text
    for shape in ([1, 2], [1, 1, 1, 2], [2], [1, 2, 1]):
        empty["inputs"][0] |= {"shape": shape, "data": [1, 2]}
        answer = requests.post(f"{s.inference}/v2/models/grows/infer", json=empty, timeout=20)
        assert answer.status_code == 400 and "x" in answer.json()["error"], answer.text
    assert ask_with({"x": [[[1, 0]]]}).json() == {"y": [[2, 2]]}


class Hungry(torch.nn.Module):
    def forward(self, x):
        n = int(x.sum()) * 1000000000000
        return x + torch.zeros(n, dtype=torch.float32).sum()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer ends the process itself for such a size")
def test_a_model_that_wants_too_much_memory(server):
    """libtorch's message reaches the client, and the worker lives on."""
    s = server(stateless("hungry", Hungry(), "batchSize: 1\nmaxBatchSize: 1\n"
                         "inputs: [{name: x, dataType: FP32, dims: [1]}]\n"
                         "outputs: [{name: y, dataType: FP32, dims: [1]}]\n"))
    pid = s.expect_ready("hungry")[0]
    answer = ask(s, "hungry", {"x": [[3]]})
    assert answer.status_code == 500 and "memory" in answer.json()["message"], answer.text
    assert ask(s, "hungry", {"x": [[0]]}).json() == {"y": [[0]]}
    assert s.ready_pids("hungry") == [pid]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there(server):
    """The registration fails and says what is missing."""
    s = server()
    model = lstm("bad")
    model.yaml += "deviceType: gpu\ndeviceIds: [0, 1]\n"
    message = register(s, model)
    assert "CUDA" in message, message
    model.yaml = model.yaml.replace("[0, 1]", "[zero]")
    message = register(s, Model("worse", None, model.yaml, torchscript=model.torchscript))
    assert "deviceIds: expected device numbers" in message, message


# --- what is missing, and the archiver ---


def test_without_the_library_the_model_is_refused_with_the_way_to_get_it(server, folder):
    s = server(flags=["--torch-library", folder / "nowhere.so"])
    message = register(s, lstm())
    assert "scripts/setup.sh --torch" in message and "nowhere.so" in message


def test_a_library_of_another_abi_is_refused(server, folder):
    source = folder / "old.c"
    source.write_text("const void *continuo_torch(unsigned abi) { (void)abi; return 0; }\n")
    library = folder / "old.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    s = server(flags=["--torch-library", library])
    assert "another version of Continuo" in register(s, lstm())


def test_the_archiver_packs_a_model_without_handler(folder, server):
    """The runtime follows from the file's ending, and `inspect` shows it."""
    s = server(lstm())
    archive = next(s.store.glob("lstm*"))
    shown = archiver("inspect", archive).stdout
    assert "runtime:  torch" in shown and "model.pt" in shown
    assert "good" in archiver("verify", archive).stdout
