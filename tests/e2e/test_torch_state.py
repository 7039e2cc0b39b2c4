"""States of TorchScript models that are not tensors of a fixed size: caches that begin empty and grow, None, numbers
that a module keeps, and results with a pending sign. Skipped like test_torch.py."""

import os
import random
from typing import Dict, List, Optional, Tuple

import numpy as np
import pytest

from torching import model, pytorch, registered, saved, step, together, told

torch = pytorch()
torch.set_num_threads(1)


class Decoder(torch.nn.Module):
    """A layer of attention over all earlier steps. Its cache begins empty."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.q, self.k, self.v = (torch.nn.Linear(8, 16) for _ in range(3))
        self.out = torch.nn.Linear(16, 8)

    def forward(self, x, cache):
        rows = x.size(0)
        new = torch.stack([self.k(x), self.v(x)]).view(2, rows, 2, 1, 8).transpose(1, 2)
        cache = torch.cat([cache, new], 3)  # [2, heads, rows, entries, 8]
        q = self.q(x).view(rows, 2, 1, 8).transpose(0, 1)
        weights = torch.softmax(q @ cache[0].transpose(2, 3) / 2.8, -1)
        return self.out((weights @ cache[1]).transpose(0, 1).reshape(rows, 16)), cache


DECODER_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{{name: x, dataType: FP32, dims: [8]}}]
outputs: [{{name: y, dataType: FP32, dims: [8]}}]
state:
  tensors: [{{name: cache, dataType: FP32, dims: [2, 2, -1, 8], batchAxis: 2{init}}}]
{more}
"""
EMPTY = ", init: {dims: [2, 2, 0, 8]}"


def decoder(name="decoder", init=EMPTY, more=""):
    return model(torch, name, Decoder(), DECODER_YAML.format(init=init, more=more))


@torch.inference_mode()
def decoded(steps):
    module, cache, given = Decoder().eval(), torch.zeros(2, 2, 1, 0, 8), []
    for x in steps:
        y, cache = module(torch.from_numpy(x)[None], cache)
        given.append(y[0].numpy())
    return given


def test_a_cache_begins_empty_and_grows(server):
    """Sequences of all ages make steps in any order, and a worker is killed meanwhile. Each gives what PyTorch gives
    for it alone."""
    s = server(decoder(more="torch: {buckets: [1]}"))
    data = np.random.default_rng(1).standard_normal((6, 9, 8), np.float32)
    want = [decoded(steps) for steps in data]
    turns = [i for i in range(6) for _ in range(9)]
    random.Random(4).shuffle(turns)
    at = [0] * 6
    for n, i in enumerate(turns):
        if n == 20:
            s.kill_worker("decoder")
        got = step(s, "decoder", f"s{i}", {"x": data[i][at[i]]})["y"].astype(np.float32)
        assert got.tobytes() == want[i][at[i]].tobytes()
        at[i] += 1


def test_caches_of_other_sizes_run_apart(server):
    """Eight steps of sequences of three ages need three runs, and none is mixed with another."""
    s = server(decoder())
    assert told(s, "decoder")["probe"]["result"] == "alike"
    data = np.random.default_rng(2).standard_normal((8, 4, 8), np.float32)
    want = [decoded(steps) for steps in data]
    for i in range(8):
        for k in range(i % 3):
            step(s, "decoder", f"s{i}", {"x": data[i][k]})
    got = together(s, "decoder", [(f"s{i}", {"x": data[i][i % 3]}) for i in range(8)])
    for i in range(8):
        np.testing.assert_allclose(got[i]["y"], want[i][i % 3], atol=1e-5)


@pytest.mark.parametrize("init", ["", ", init: zeros"])
def test_a_size_of_any_without_a_beginning_is_refused(server, init):
    """One entry of zeros would take part in each softmax, and nobody would notice."""
    s = server()
    answer = registered(s, decoder("bad", init))
    message = answer.json()["message"]
    assert answer.status_code >= 400 and "cache has a size of -1" in message and "init: {dims" in message, message


def test_a_cache_over_its_limit_names_the_key_and_the_tensor(server):
    given = decoder()
    given.yaml = given.yaml.replace("state:\n", "state:\n  maxBytes: 1024\n")
    s = server(given)
    x = np.zeros(8, np.float32)
    for _ in range(7):
        step(s, "decoder", "s", {"x": x})
    message = step(s, "decoder", "s", {"x": x}, status=507)
    assert "over 1024 bytes (state.maxBytes)" in message and "cache, FP32[2,2,8,8]" in message, message


class Tokens(torch.nn.Module):
    """Adds as many entries to the cache as the request says."""

    def forward(self, n, cache):
        cache = torch.cat([cache, torch.ones(1, int(n[0, 0]), 24, 768)], 1)
        return cache.sum((1, 2, 3)).unsqueeze(1), cache


@pytest.mark.skipif("release" not in os.environ.get("CONTINUO_BUILD", "release"), reason="many large copies")
def test_the_default_limit_fits_a_small_decoder(server):
    """With 12 layers of 768 floats a token takes 72 KiB, so 256 tokens take 18 MiB."""
    s = server(model(torch, "tokens", Tokens(), """
batchSize: 1
maxBatchSize: 1
sequenceBatching: true
inputs: [{name: n, dataType: INT64, dims: [1]}]
outputs: [{name: y, dataType: FP32, dims: [1]}]
state: {tensors: [{name: cache, dataType: FP32, dims: [-1, 24, 768], init: {dims: [0, 24, 768]}}]}
torch: {probe: {ranges: {n: [1, 2]}}}
"""))
    for i in range(2):
        assert step(s, "tokens", "s", {"n": [128]})["y"][0] == (i + 1) * 128 * 24 * 768
    s.kill_worker("tokens")
    assert step(s, "tokens", "s", {"n": [1]})["y"][0] == 257 * 24 * 768


# --- None ---


class Maybe(torch.nn.Module):
    """A model whose state is None before the first step, and again after a step with a negative number."""

    def forward(self, x: torch.Tensor, h: Optional[torch.Tensor]) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        y = x + 100
        if h is not None:
            y = x + h
        if bool((x < 0).any()):
            return y, None
        return y, x.clone()


MAYBE_YAML = """
batchSize: 4
maxBatchSize: 4
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [1]}]
outputs: [{name: y, dataType: FP32, dims: [1]}]
state: {tensors: [{name: h, dataType: FP32, dims: [1], init: none}]}
torch: {probe: {ranges: {x: [1, 2]}}}
"""


def test_a_state_may_be_none(server):
    """A state is None at the beginning, in a batch with others that are not, again later, and after the death of a
    worker."""
    s = server(model(torch, "maybe", Maybe(), MAYBE_YAML))

    def given(sequence, x):
        return float(step(s, "maybe", sequence, {"x": [x]})["y"][0])

    assert [given("a", 1), given("a", 2), given("a", 3)] == [101, 3, 5]
    got = together(s, "maybe", [("a", {"x": [4]}), ("b", {"x": [4]}), ("c", {"x": [5]})])
    assert [float(row["y"][0]) for row in got] == [7, 104, 105]
    assert given("b", -1) == 3
    s.kill_worker("maybe")
    assert [given("b", 6), given("b", 1), given("a", 1)] == [106, 7, 5]
    assert s.describe("maybe")["state"][0]["init"]["none"] is True


def test_none_where_the_model_did_not_say_so_is_refused(server):
    given = model(torch, "maybe", Maybe(), MAYBE_YAML.replace("init: none", "init: zeros"))
    s = server(given)
    assert float(step(s, "maybe", "a", {"x": [1]})["y"][0]) == 1
    message = step(s, "maybe", "a", {"x": [-1]}, status=500)
    assert "returned state h as None" in message, message


# --- numbers of the module ---


class Counter(torch.nn.Module):
    """A model that counts in an int and keeps a float. Each is one number for all rows of a run."""

    def __init__(self):
        super().__init__()
        self.n = 0
        self.scale = 1.0

    def forward(self, x):
        self.n += 1
        self.scale = self.scale * 2.0
        return x * self.n, torch.full_like(x, self.scale)


COUNTER_YAML = """
batchSize: 4
maxBatchSize: 4
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [1]}]
outputs: [{name: y, dataType: FP32, dims: [1]}, {name: z, dataType: FP32, dims: [1]}]
state:
  tensors:
    - {name: n, dataType: INT64, dims: []}
    - {name: scale, dataType: FP64, dims: []}
torch: {attributes: {n: n, scale: scale}}
"""


def test_ints_and_floats_of_a_module_are_each_sequences_own(server):
    given = model(torch, "counter", Counter(), COUNTER_YAML)
    s = server(given)
    for k in range(4):
        for _ in range(k % 2):
            step(s, "counter", f"s{k}", {"x": [1]})
    got = together(s, "counter", [(f"s{k}", {"x": [10]}) for k in range(4)])
    assert [float(row["y"][0]) for row in got] == [10, 20, 10, 20]
    s.kill_worker("counter")
    assert float(step(s, "counter", "s1", {"x": [1]})["y"][0]) == 3
    wrong = model(torch, "wrong", Counter(), COUNTER_YAML.replace("INT64", "INT32"))
    message = registered(s, wrong).json()["message"]
    assert "holds the state n as INT64" in message, message


# --- bits of a tensor that its memory does not show ---


class Conjugate(torch.nn.Module):
    def forward(self, x, h):
        y = torch.complex(x, x).conj().imag
        return y, y


def test_a_pending_sign_is_resolved(server):
    """`imag` of a conjugate is a view whose sign is pending. This is tested for an output and for the state."""
    s = server(model(torch, "conj", Conjugate(), """
batchSize: 4
maxBatchSize: 4
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [1]}]
outputs: [{name: y, dataType: FP32, dims: [1]}, {name: h, dataType: FP32, dims: [1]}]
state: {tensors: [{name: h, dataType: FP32, dims: [1]}]}
torch: {buckets: [1]}
"""))
    for x in (1, 2.5):
        got = step(s, "conj", "a", {"x": [x]})
        assert float(got["y"][0]) == float(got["h"][0]) == -x


# --- NaN, and types that do not fit ---


class Logs(torch.nn.Module):
    def forward(self, x, h):
        return torch.log(x), h + x


LOGS_YAML = """
batchSize: 4
maxBatchSize: 4
sequenceBatching: true
inputs: [{{name: x, dataType: FP32, dims: [1]}}]
outputs: [{{name: y, dataType: FP32, dims: [1]}}, {{name: h, dataType: FP32, dims: [1]}}]
state: {{tensors: [{{name: h, dataType: FP32, dims: [1]}}]}}
torch: {{nanPolicy: {policy}, results: [y, h]}}
"""


def test_nan_is_refused_where_the_yaml_says_so(server):
    s = server(model(torch, "logs", Logs(), LOGS_YAML.format(policy="refuse")))
    assert float(step(s, "logs", "a", {"x": [1]})["h"][0]) == 1
    message = step(s, "logs", "a", {"x": [-1]}, status=500)
    assert "gives NaN or an infinity in output y, which torch.nanPolicy refuses" in message, message
    assert float(step(s, "logs", "a", {"x": [2]})["h"][0]) == 3


class Nested(torch.nn.Module):
    def forward(self, x, states: List[List[torch.Tensor]]):
        return x, states


class Wants(torch.nn.Module):
    def forward(self, x, h: Dict[str, torch.Tensor]):
        return x, h["a"]


@pytest.mark.parametrize("module, words", [
    (Nested(), ["takes a List[List[Tensor]]", "write a wrapper"]),
    (Wants(), ["Expected a value of type 'Dict[str, Tensor]' for argument 'h' but instead found type 'Tensor'"]),
], ids=["list", "dict"])
def test_the_cause_of_a_schema_that_does_not_fit_reaches_the_client(server, module, words):
    s = server()
    message = registered(s, model(torch, "bad", module, LOGS_YAML.format(policy="pass"))).json()["message"]
    for word in words:
        assert word in message, message


def test_a_program_that_is_not_compiled_is_told_how_to(server, folder):
    path = folder / "program.pt2"
    example = (torch.zeros(2, 1), torch.zeros(2, 1))
    torch.export.save(torch.export.export(Logs().eval(), example), path)
    s = server()
    message = registered(s, model(torch, "raw", path.read_bytes(), LOGS_YAML.format(policy="pass"),
                                  torchscript_name="model.pt2")).json()["message"]
    assert "aoti_compile_and_package" in message, message


def test_the_version_is_that_of_the_library_that_is_loaded(server):
    s = server(model(torch, "logs", Logs(), LOGS_YAML.format(policy="pass")))
    assert told(s, "logs")["libtorch"] == torch.__version__.split("+")[0]
