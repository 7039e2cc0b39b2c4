"""Lua handlers that run TorchScript modules themselves (torch.load). PyTorch computes the expected values.

tests/support/torching.py says when these tests are skipped."""

import concurrent.futures
import sys
import urllib.parse

import numpy as np
import pytest
import requests
import tritonclient.http as triton

from models import BIN, Model, ROOT
from server import SLOW_BUILD
from test_examples import blocks
# pylint: disable-next=unused-import
from test_torch import (Affine, SILERO, VOICES, inputs, memory, read_example, register,  # noqa: F401
                        saved, vad)
from test_torch_package import Cell
from torching import SANITIZED, pytorch, step as torch_step, told

torch = pytorch()


class Encoder(torch.nn.Module):
    """One step of a recurrent encoder."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.cell = torch.nn.GRUCell(4, 16)

    def forward(self, x, h):
        return self.cell(x, h)


class Decoder(torch.nn.Module):
    """Two methods with the same weights: one gives scores of five words, the other the best word with an offset."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, h):
        return torch.log_softmax(self.out(h), 1)

    @torch.jit.export
    def best(self, h, offset: int):
        return torch.argmax(self.out(h), 1) + offset


TWO_LUA = """
local M = { api = 1 }
local encoder, decoder
local words = { "yes", "no", "left", "right", "stop" }

function M.load(ctx)
    encoder = torch.load("encoder.pt", { threads = 1 })
    decoder = torch.load("decoder.pt")
end

function M.init(seq)
    return { h = { datatype = "FP32", shape = { 1, 16 }, data = ("\\0"):rep(4 * 16) } }
end

-- Numbers are scaled before, and scores become a word behind.
function M.step(state, req)
    local x = {}
    for i, value in ipairs(req.json) do
        x[i] = value / 10
    end
    local h = encoder:run { { datatype = "FP32", shape = { 1, 4 }, data = x }, state.h }
    local scores = decoder:run { h }
    local best = decoder:run("best", { h, 1 })
    state.h = h
    return { json = { word = words[best.values[1]], scores = scores.values:table() } }
end

return M
"""


def two(**more):
    return Model("two", TWO_LUA, {"batchSize": 4},
                 extra={"encoder.pt": saved(Encoder()), "decoder.pt": saved(Decoder())}, **more)


@torch.inference_mode()
def two_reference(steps):
    encoder, decoder, h, given = Encoder().eval(), Decoder().eval(), torch.zeros(1, 16), []
    for x in steps:
        h = encoder(torch.from_numpy((x.astype(np.float64) / 10).astype(np.float32))[None], h)
        given.append((int(decoder.best(h, 0)), decoder(h)[0].numpy()))
    return given


def say(s, model, sequence, x):
    answer = requests.post(f"{s.inference}/predictions/{model}", json=[float(value) for value in x], timeout=60,
                           headers={"ts_request_sequence_id": sequence})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_two_modules_before_and_behind_lua(server):
    """Two modules, and a second method of one, with Lua before, between and after them, give what PyTorch gives, to the
    last bit. The tensors are the state, which continues in another worker and in another server."""
    s = server(two())
    data = {f"s{i}": inputs(8, 20 + i) for i in range(6)}
    want = {name: two_reference(steps) for name, steps in data.items()}
    words = ["yes", "no", "left", "right", "stop"]
    for i in range(8):
        if i == 3:
            s.kill_worker("two")
        if i == 5:
            s.kill()
            s.restart()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = pool.map(lambda name, at=i: say(s, "two", name, data[name][at]), data)
        for name, answer in zip(data, answers):
            best, scores = want[name][i]
            assert answer["word"] == words[best]
            assert np.array(answer["scores"], np.float32).tobytes() == scores.tobytes()


def test_the_documentations_own_handler(server):
    """The handler in docs/torch.md works as it is written."""
    s = server(Model("commands", blocks(ROOT / "docs" / "torch.md", "lua")[0], {},
                     extra={"encoder.pt": saved(Encoder()), "decoder.pt": saved(Decoder())}))
    data = inputs(3, 30)
    for x, (_, scores) in zip(data, two_reference(10 * data)):
        np.testing.assert_allclose(say(s, "commands", "d", x), scores, atol=1e-5)


# --- rows that depend on each other ---


TRYING_LUA = blocks(ROOT / "docs" / "torch.md", "lua")[1]
TRYING_YAML = """
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [4]}]
outputs: [{name: y, dataType: FP32, dims: [16]}]
state: {tensors: [{name: h, dataType: FP32, dims: [16]}]}
"""


class Remembers(Encoder):
    """Keeps the last row's state, and so gives it to another sequence."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(16))

    def forward(self, x, h):
        h = self.cell(x, h + self.last)
        self.last.copy_(h[-1])
        return h


def trying(module, lua=TRYING_LUA):
    return Model("tries", lua, TRYING_YAML, extra={"encoder.pt": saved(module)})


def test_describe_says_that_no_probe_ran_for_a_lua_handler(server):
    s = server(Model("commands", TWO_LUA, {}, extra={"encoder.pt": saved(Encoder()), "decoder.pt": saved(Decoder())}),
               trying(Encoder(), TRYING_LUA.replace("function M.describe()", "function describe()")))
    probe = told(s, "commands")["probe"]
    assert probe["result"] == "none" and "Rows in a Lua handler" in probe["reason"], probe
    probe = told(s, "tries")["probe"]
    assert probe["result"] == "none" and "rows that run together" in probe["reason"], probe


def test_a_lua_handler_tries_its_rows_as_the_documentation_does(server):
    """The handler in docs/torch.md loads a module whose rows are independent, and serves it. Its description says
    `alike`."""
    s = server(trying(Encoder()))
    assert told(s, "tries")["probe"] == {"result": "alike", "rows": 8, "tolerance": 1e-4}
    data = inputs(3, 31)
    cell, h = Encoder().eval(), torch.zeros(1, 16)
    for x in data:
        with torch.inference_mode():
            h = cell(torch.from_numpy(x)[None], h)
        np.testing.assert_allclose(torch_step(s, "tries", "a", {"x": x})["y"], h[0].numpy(), atol=1e-5)


def test_a_lua_handler_that_tries_its_rows_refuses_those_that_depend_on_each_other(server):
    """One module scales int8 activations over all rows of a run. The other has a buffer that carries the state of one
    sequence into the next."""
    s = server()
    int8 = torch.ao.quantization.quantize_dynamic(Encoder().eval(), {torch.nn.GRUCell}, torch.qint8)
    message = register(s, trying(int8))
    assert "among others, result 1: a row differs by" in message, message
    message = register(s, trying(Remembers()))
    assert "a second run, result 1: a row differs by" in message, message


# --- examples/voice ---


@pytest.fixture
def voice(vad):
    sys.path.insert(0, str(ROOT / "examples" / "voice"))
    import voice  # pylint: disable=import-error,import-outside-toplevel,redefined-outer-name
    return voice


def test_voice_as_its_readme_says(voice, read_example):
    _, ((shown, _),) = read_example("voice")
    lines = dict(line.split(": ", 1) for line in shown.splitlines())
    assert lines["Noise.wav"].endswith("speech: none")
    assert "begin" in lines["Front_Center.wav"] and "end" in lines["Front_Center.wav"], shown


@torch.inference_mode()
def silero(pcm):
    """Returns what the package's own model gives for the sound, window by window."""
    model = torch.jit.load(SILERO)
    model.reset_states()
    audio = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    return [model(torch.from_numpy(audio[at:at + 512].copy())[None], 16000).item()
            for at in range(0, len(audio) - 511, 512)]


def test_sound_in_pieces_of_any_size_with_kills(voice, server):
    """Each stream comes in pieces of another size, and the worker is killed again and again. Every probability has the
    bits that PyTorch gives for the whole sound, and the events follow from the probabilities."""
    folder = ROOT / "examples" / "voice"
    s = server(Model("voice", (folder / "handler.lua").read_text(), (folder / "model-config.yaml").read_text(),
                     extra={"silero_vad.jit": SILERO.read_bytes()}))
    paths = sorted(VOICES.glob("*.wav"))
    address = urllib.parse.urlsplit(s.inference)
    with s.killing("voice", 1.5), concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        got = list(pool.map(lambda i: voice.listen(address, paths[i], 777 + 1000 * i), range(len(paths))))
    for path, (probs, events) in zip(paths, got):
        assert probs == silero(voice.pcm(path)), path
        heard = [event["speech"] for event in events]
        assert heard == ["begin", "end"] * (len(heard) // 2) + ["begin"] * (len(heard) % 2)
        assert bool(heard) == any(prob >= 0.5 for prob in probs)


BATCH_LUA = """
local M = { api = 1 }
local cell

function M.load(ctx)
    cell = torch.load("cell.pt")
end

-- A batch of sequences is one run: the inputs and the declared states row behind row.
function M.batch(items)
    local y, h = cell:run { continuo.stack(items, "x"), continuo.stack(items, "h") }
    y.data = continuo.array(doubled(y.values), "f32")
    continuo.reply_stack(items, { y = y, h = h })
end

function doubled(values)
    local out = {}
    for i = 1, #values do
        out[i] = 2 * values[i]
    end
    return out
end

return M
"""

BATCH_YAML = """
minWorkers: 1
maxWorkers: 1
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
inputs: [{name: x, dataType: FP32, dims: [4]}]
outputs: [{name: y, dataType: FP32, dims: [3]}]
state: {tensors: [{name: h, dataType: FP32, dims: [16]}]}
"""


def test_a_batch_with_declared_state_is_one_run(server):
    """Eight sequences that wait together run as eight rows, and each gives what PyTorch gives for it alone."""
    s = server(Model("cell", BATCH_LUA, BATCH_YAML, extra={"cell.pt": saved(Cell())}))
    data = np.random.default_rng(9).standard_normal((8, 4, 4), np.float32)

    @torch.inference_mode()
    def reference(steps):
        module, h, given = Cell().eval(), torch.zeros(1, 16), []
        for x in steps:
            y, h = module(torch.from_numpy(x)[None], h)
            given.append(2 * y[0].numpy())
        return given

    def step(i, at):
        client = triton.InferenceServerClient(s.inference.removeprefix("http://"))
        x = triton.InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(data[i][at:at + 1])
        return client.infer("cell", [x], sequence_id=i + 1, sequence_start=at == 0).as_numpy("y")[0]

    want = [reference(data[i]) for i in range(8)]
    for at in range(4):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            with s.hold():
                futures = [pool.submit(step, i, at) for i in range(8)]
                s.expect_outstanding("cell", 8)
            for i, future in enumerate(futures):
                np.testing.assert_allclose(future.result(), want[i][at], atol=1e-5)


AFFINE_LUA = """
local M = { api = 1 }
local affine = torch.load("affine.pt")

function M.step(state, req)
    state.steps = (state.steps or 0) + 1
    if req.text == "steps" then
        return state.steps
    end
    local x = { datatype = "FP32", shape = { 1, 2 }, data = req.json }
    local y, n = affine:run { x, { datatype = "FP32", data = { 2 } } }
    return { json = { y.values[2], n.datatype, n.values[2] } }
end

return M
"""


def test_an_exception_in_the_module_fails_its_step_only(server):
    """The client gets TorchScript's last line, the log has the whole message, and the state stays as it was."""
    s = server(Model("affine", AFFINE_LUA, {}, extra={"affine.pt": saved(Affine())}))
    head = {"ts_request_sequence_id": "a"}

    def post(body):
        return requests.post(f"{s.inference}/predictions/affine", data=body, headers=head, timeout=30)

    assert post("[1, 2]").json() == [4.0, "INT64", 3]
    raised = post("[-1, 2]")
    assert raised.status_code == 500, raised.text
    message = raised.json()["message"]
    assert "forward of affine.pt: " in message and message.endswith("RuntimeError: x must not be negative"), message
    s.expect_log("event=torch_error", "Traceback of TorchScript")
    wrong = post("[1, 2, 3]")
    assert wrong.status_code == 500 and "argument" in wrong.json()["message"], wrong.text
    assert post("steps").text == "2"


def test_a_module_that_does_not_load_stops_the_registration(server):
    s = server()

    def message(lua, file=b"no zip"):
        return register(s, Model("bad", f"local m = {lua}\nreturn {{ step = print }}", {}, extra={"m.pt": file}))

    assert "cannot load m.pt" in message("torch.load('m.pt')")
    assert "has no file other.pt" in message("torch.load('other.pt')")
    good = saved(Affine())
    assert "there is no method sing; there are: forward" in message("torch.load('m.pt', {method = 'sing'})", good)
    assert "there is no submodule a" in message("torch.load('m.pt', {submodule = 'a'})", good)
    if not torch.cuda.is_available():
        assert "CUDA" in message("torch.load('m.pt', {device = 'cuda:0'})", good)


def test_without_the_library_the_handler_says_how_to_get_it(server, folder):
    s = server(flags=["--torch-library", folder / "nowhere.so"])
    message = register(s, two())
    assert "scripts/setup.sh --torch" in message and "nowhere.so" in message
    s.register(Model("free", "return { step = function() return type(torch.load) end }", {}))
    answer = requests.post(f"{s.inference}/predictions/free", headers={"ts_request_sequence_id": "f"}, timeout=20)
    assert answer.text == "function"


LOADS_LUA = """
local M = { api = 1 }

function M.step(state, req)
    local m = torch.load("affine.pt")
    local x = { datatype = "FP32", shape = { 1, 2 }, data = { 1, 2 } }
    for i = 1, 20 do
        m:run { x, { datatype = "FP32", data = { 2 } } }
    end
    return "done"
end

return M
"""


def test_modules_and_results_do_not_pile_up(server):
    """A handler that loads a module in each step and drops it has a bounded number of modules."""
    s = server(Model("loads", LOADS_LUA, {}, extra={"affine.pt": saved(Affine())}))
    pid = s.expect_ready("loads")[0]
    steps = 300 if not SLOW_BUILD else 80

    def run(n):
        with requests.Session() as session:
            for _ in range(n):
                answer = session.post(f"{s.inference}/predictions/loads", timeout=60,
                                      headers={"ts_request_sequence_id": "l"})
                assert answer.text == "done", answer.text

    run(steps)
    before = memory(pid, "Pss_Anon")
    run(steps)
    after = memory(pid, "Pss_Anon")
    assert s.ready_pids("loads") == [pid]
    assert SANITIZED or after < before + 4, (before, after)
