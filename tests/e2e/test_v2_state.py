"""Implicit state: tensors that the model's YAML declares as state and that the server keeps
(examples/v2/implicit_state)."""

import json

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from models import BUILD, Model, ROOT, archiver
from test_sequence_api import export, url
from test_v2_http import client_of, one, post, tensor

EXAMPLE = ROOT / "examples" / "v2" / "implicit_state"
TENSORS = "inputs: [{name: IN, dataType: INT32, dims: [1]}]\noutputs: [{name: OUT, dataType: INT32, dims: [1]}]\n"
HEADERS = "sequenceBatching: true\nbatchSize: 4\n"

# Tells what each step finds: its state tensors' values, and whether it is the first.
SEEN_LUA = """
return { api = 1, handle = function(req)
    local s, n = req.inputs.S, req.inputs.IN.values[1]
    local outputs = { OUT = { datatype = "INT32", shape = { 1 }, data = { s.values[1] } } }
    if n ~= 0 then outputs.S = { datatype = "INT32", shape = { 1 }, data = { n } } end
    if n == 13 then error("unlucky") end
    return { outputs = outputs }
end }
"""


def example(lua=None, name="implicit", version="1.0", yaml=None):
    return Model(name, lua or (EXAMPLE / "handler.lua").read_text(),
                 yaml or (EXAMPLE / "model-config.yaml").read_text(), version)


def seen(state="  - {name: S, dataType: INT32, dims: [1]}\n", lua=SEEN_LUA, more="", **rest):
    return Model("seen", lua, f"{HEADERS}{TENSORS}{more}state:\n{state}", **rest)


def total(client, sequence, value, start=False, end=False, begin=None):
    """Makes one step over v2 and returns the value of OUTPUT."""
    inputs = [tensor("INPUT", np.array([value], np.int32), "INT32")]
    if begin is not None:
        inputs.append(tensor("START_AT", np.array([begin], np.int32), "INT32"))
    answer = client.infer("implicit", inputs, sequence_id=sequence, sequence_start=start, sequence_end=end)
    assert [each["name"] for each in answer.get_response()["outputs"]] == ["OUTPUT"]
    return answer.as_numpy("OUTPUT").tolist()[0]


def step(s, value, sequence="s", status=200, model="seen"):
    """Makes one step over /predictions and returns OUT, or the message."""
    answer = s.client().post(f"/predictions/{model}", json.dumps({"IN": value}),
                             headers={"ts_request_sequence_id": sequence, "Content-Type": "application/json"})
    assert answer.status == status, answer
    return answer.json["OUT"][0] if status == 200 else answer.message


@pytest.fixture(params=["lua", "c"])
def sums(server, request):
    """The example, with its handler in Lua and in C."""
    if request.param == "lua":
        return server(example())
    s = server(start=False)
    archiver("--model-name", "implicit", "--version", "1.0", "--handler", BUILD / "examples" / "implicit_state.so",
             "--config-file", EXAMPLE / "model-config.yaml", "--export-path", s.store)
    s.models.append("implicit=implicit.mar")
    return s.start()


def test_the_state_goes_from_step_to_step(sums):
    """The steps are those of tritonclient's users: START begins with zeros, sequences are separate, END removes the
    state, and clients do not see it."""
    client = client_of(sums)
    assert total(client, 1, 5, start=True) == 5
    assert total(client, 2, 100, start=True) == 100
    assert total(client, 1, 2) == 7
    assert total(client, "two", 1, start=True) == 1
    assert total(client, 2, 1, end=True) == 101
    assert total(client, 1, 40, start=True) == 40, "a START on a live id begins anew"
    assert total(client, 1, 2) == 42
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        total(client, 2, 1)


def test_the_state_may_begin_as_the_caller_says(sums):
    """The first request has an input with the first value. Later requests may send it, without an effect."""
    client = client_of(sums)
    assert total(client, 1, 5, start=True, begin=1000) == 1005
    assert total(client, 1, 5, begin=7) == 1010
    assert total(client, 1, 5, start=True) == 5
    with pytest.raises(InferenceServerException, match="unexpected inference input 'TOTAL_IN'"):
        client.infer("implicit", [tensor(name, np.array([1], np.int32), "INT32") for name in ("INPUT", "TOTAL_IN")],
                     sequence_id=1)


def test_predictions_share_it(sums):
    """/predictions and v2 continue the same sequence."""
    s = sums
    answer = s.client().post("/predictions/implicit", b'{"INPUT": 5, "START_AT": [10]}',
                             headers={"ts_request_sequence_id": "p", "Content-Type": "application/json"})
    assert answer.json == {"OUTPUT": [15]}
    assert total(client_of(s), "p", 1) == 16


def test_asking_for_the_hidden_output_is_refused(sums):
    """The state is not one of the model's outputs."""
    answer = post(sums, "implicit", one("INPUT", "INT32", [1], [1], outputs=[{"name": "TOTAL_OUT"}],
                                        parameters={"sequence_id": 1, "sequence_start": True}))
    assert answer.status_code == 400
    assert "unexpected inference output 'TOTAL_OUT' for model 'implicit'" in answer.json()["error"]


def test_kill_9_and_restart(sums):
    """The worker is killed between steps, the server is killed, and the server is stopped cleanly. No step is lost."""
    client = client_of(sums)
    for i in range(1, 6):
        assert total(client, i, i, start=True, begin=100) == 100 + i
    sums.kill_worker("implicit")
    for i in range(1, 6):
        assert total(client, i, i) == 100 + 2 * i
    for stop in (sums.kill, sums.stop):
        stop()
        sums.restart()
    client = client_of(sums)
    for i in range(1, 6):
        assert total(client, i, 0) == 100 + 2 * i


@pytest.mark.parametrize("point", ["handler_done", "before_commit", "after_commit", "answers_written"])
def test_a_worker_that_dies_in_a_step(server, folder, point):
    """Each step counts once, wherever the worker dies."""
    s = server(example(), env={"CONTINUO_TEST_KILL_AT": f"{point}:3", "CONTINUO_TEST_KILL_ONCE": folder / "killed"})
    client = client_of(s)
    assert [total(client, 1, n, start=n == 1) for n in range(1, 8)] == [1, 3, 6, 10, 15, 21, 28]
    assert (folder / "killed").exists()


def test_export_import_and_copy(server):
    """The sequence is imported in a second server, and copied to another id."""
    s, there = server(example()), server(example(), name="there")
    assert total(client_of(s), "s", 5, start=True, begin=100) == 105
    assert there.admin().put(url("s", "implicit"), body=export(s, "s", "implicit")).status == 200
    assert total(client_of(there), "s", 1) == 106
    assert s.admin().post(url("s", "implicit", fork_to="copy")).status == 200
    assert total(client_of(s), "copy", 2) == 107
    assert total(client_of(s), "s", 0) == 105


def test_an_import_that_does_not_fit_is_refused(server):
    """A state of a handler's own, and a state with another declaration: each message says what was found."""
    s = server(example(), seen(), Model("counter"))
    s.client().step("counter", "s", 5)
    total(client_of(s), "s", 5, start=True)
    answer = s.admin().put(url("t", "implicit", any_model="true"), body=export(s, "s", "counter"))
    assert answer.status >= 400 and "a handler that kept its state itself wrote it" in answer.message, answer
    answer = s.admin().put(url("t", "seen", any_model="true"), body=export(s, "s", "implicit"))
    assert answer.status >= 400 and "has a tensor 'TOTAL_IN' that the model does not declare" in answer.message
    answer = s.admin().put(url("t", "counter", any_model="true"), body=export(s, "s", "implicit"))
    assert answer.status >= 400, answer


def test_a_step_without_state_output_keeps_it(server):
    """As with Triton's no_state_update, the state stays. A step that fails changes nothing."""
    s = server(seen("  - {name: S, dataType: INT32, dims: [1], init: {file: begin.bin}}\n",
                    extra={"begin.bin": b"\x07\x00\x00\x00"}))
    assert [step(s, n) for n in (0, 0, 5, 0)] == [7, 7, 7, 5]
    assert "unlucky" in step(s, 13, status=500)
    assert step(s, 0) == 5
    s.kill_worker("seen")
    assert step(s, 0) == 5
    assert step(s, 0, "other") == 7


def test_a_state_that_is_an_output_too_is_visible(server):
    """If it is listed in outputs, clients get it, and it is also the next state."""
    lua = SEEN_LUA.replace("outputs.S =", "outputs.LAST =")
    s = server(Model("seen", lua, HEADERS + TENSORS.replace(
        "outputs: [", "outputs: [{name: LAST, dataType: INT32, dims: [1]}, ") +
        "sequence_batching_was: {}\nstate: [{input: S, output: LAST, dataType: INT32, dims: [1]}]\n"))
    answer = s.client().post("/predictions/seen", b'{"IN": 5}', headers={"ts_request_sequence_id": "s",
                                                                        "Content-Type": "application/json"})
    assert answer.json == {"OUT": [0], "LAST": [5]}
    assert step(s, 6) == 5


def test_batches_and_shapes(server):
    """With a batch dimension state tensors have one, too. A size of -1 grows and shrinks. Strings and floats are kept.
    """
    lua = """
    return { api = 1, batch = function(items)
        for _, req in ipairs(items) do
            local words, log = req.inputs.words, req.inputs.log
            assert(words.shape[1] == 1 and #log.shape == 2 and log.shape[2] == 1, "batch dimension")
            local numbers, texts = {}, {}
            for i = 1, log.shape[1] do numbers[i] = log.values[i] end
            for i, word in ipairs(words.values) do texts[i] = word end
            numbers[#numbers + 1] = req.inputs.IN.values[1]
            texts[#texts + 1] = "w" .. #texts
            req:reply { outputs = {
                OUT = { datatype = "INT32", shape = { 1, 1 }, data = { #numbers * 100 + #texts } },
                log = { datatype = "FP64", shape = { #numbers, 1 }, data = numbers },
                words = { datatype = "BYTES", shape = { 1, #texts }, data = texts } } }
        end
    end }
    """
    s = server(seen("  - {name: log, dataType: FP64, dims: [-1], batchAxis: 1}\n"
                    "  - {name: words, dataType: BYTES, dims: [-1]}\n", lua, "maxBatchSize: 8\n"))
    for n in range(1, 6):
        assert step(s, n) == [(n + 1) * 101]
    s.kill_worker("seen")
    assert step(s, 9) == [707]


@pytest.mark.parametrize("datatype, shape, words", [
    ("FP32", "{ 1 }", "the state output 'S' is FP32[1]; the model declares INT32[1]"),
    ("INT32", "{ 1, 1 }", "is INT32[1,1]; the model declares INT32[1]"),
])
def test_a_state_output_that_does_not_fit_fails_the_step(server, datatype, shape, words):
    """Only that step fails, and the state stays as it was."""
    lua = SEEN_LUA.replace('outputs.S = {', 'outputs.S = n == 9 and { datatype = "%s", shape = %s, data = { 1 } } or {'
                           % (datatype, shape))
    s = server(seen(lua=lua))
    assert step(s, 5) == 0
    assert words in step(s, 9, status=500)
    assert step(s, 0) == 5


def test_streams_carry_state(server):
    """State outputs of pieces and of the answer count, and clients do not see them."""
    lua = """
    return { api = 1, handle = function(req)
        local function both(n) return { outputs = {
            OUT = { datatype = "INT32", shape = { 1 }, data = { req.inputs.S.values[1] } },
            S = { datatype = "INT32", shape = { 1 }, data = { n } } } } end
        if req.inputs.IN.values[1] == 2 then coroutine.yield(nil, 0.01) end
        return both(req.inputs.S.values[1] + req.inputs.IN.values[1])
    end }
    """
    s = server(seen(lua=lua))
    assert [step(s, n) for n in (1, 2, 2, 1)] == [0, 1, 3, 5]


def swap(server, policy, state="  - {name: S, dataType: INT32, dims: [1]}\n", lua=SEEN_LUA):
    s = server(seen())
    assert step(s, 5) == 0
    model = seen(state, lua, f"sequence: {{swapPolicy: {policy}}}\n", version="2.0")
    assert s.register(model).status == 200
    assert s.admin().put("/models/seen/2.0/set-default").status == 200
    return s


@pytest.mark.parametrize("policy, found", [("pin", 5), ("migrate", 5), ("reset", 0)])
def test_versions_are_swapped(server, policy, found):
    """With the same declaration the tensors are used without any code."""
    s = swap(server, policy)
    assert step(s, 0) == found


def test_a_version_with_another_declaration_does_not_take_it(server):
    """The state stays in its version, like any state that cannot be migrated, and the log says why."""
    s = swap(server, "migrate", "  - {name: S, dataType: INT32, dims: [1]}\n  - {name: T, dataType: FP32, dims: [2]}\n")
    assert [step(s, 6), step(s, 0)] == [5, 6]
    s.expect_log("event=sequence_not_migrated", "the stored state lacks the tensor 'T' that the model declares")
    assert step(s, 0, "new") == 0


def test_a_state_of_another_declaration_in_the_store(server):
    """The same version gets another declaration. A step's message names the tensor that does not fit, and a START
    begins anew."""
    s = server(seen())
    assert step(s, 5) == 0
    s.stop()
    s.models = [seen("  - {name: S, dataType: INT32, dims: [1]}\n  - {name: T, dataType: FP32, dims: [2]}\n")]
    s.restart()
    assert "the stored state lacks the tensor 'T' that the model declares" in step(s, 0, status=507)
    answer = s.client().post("/predictions/seen", b'{"IN": 1}', headers={
        "ts_request_sequence_id": "s", "ts_request_sequence_start": "true", "Content-Type": "application/json"})
    assert answer.json == {"OUT": [0]}


@pytest.mark.parametrize("yaml, words", [
    ("state: [{name: S, dataType: INT32, dims: [1], init: {file: none.bin}}]\n", "none.bin, which is not in the archive"),
    ("state: [{name: S, dataType: INT32, dims: [1], init: {file: short.bin}}]\n", "3 bytes, 1 elements of INT32 need 4"),
    ("state: [{name: IN, dataType: INT32, dims: [1]}]\n", "'IN' is also listed under inputs"),
    ("state: {tensors: [{name: S, dataType: INT32}]}\n", "a list of up to 15 sizes"),
])
def test_wrong_declarations_are_refused_at_registration(server, yaml, words):
    """The answer is 400 with place and reason, before any worker starts."""
    s = server(Model("counter"))
    answer = s.register(Model("seen", SEEN_LUA, HEADERS + TENSORS + yaml, extra={"short.bin": b"123"}))
    assert answer.status == 400 and words in answer.message, answer


def test_state_without_sequences_is_refused(server):
    """Without sequences there would be nothing to keep the state for."""
    s = server(Model("counter"))
    answer = s.register(Model("seen", SEEN_LUA, TENSORS + "state: [{name: S, dataType: INT32, dims: [1]}]\n"))
    assert answer.status == 400 and "set sequenceBatching: true" in answer.message, answer


def test_a_handler_has_no_second_state(server):
    """For a handler with init or migrate the message says that it was written for another kind of model. Setting
    req.state is an error."""
    s = server(Model("counter"))
    answer = s.register(seen(lua=SEEN_LUA.replace("api = 1,", "api = 1, init = function() return {} end,")),
                        initial_workers=1, synchronous="true")
    assert answer.status >= 400 and "declares its state as tensors" in answer.message, answer
    s = server(seen(lua=SEEN_LUA.replace("local s,", "req.state = {}\nlocal s,")))
    assert "return the new ones in outputs" in step(s, 1, status=500)


def test_it_is_shown(server):
    """The state is in the model's description, and in the configuration as v2 clients know it."""
    s = server(example())
    assert s.describe("implicit")["state"] == [{
        "input": "TOTAL_IN", "output": "TOTAL_OUT", "dataType": "INT32", "dims": [1], "batchAxis": 0,
        "init": {"caller": "START_AT", "dims": [1]}, "visible": False}]
    config = client_of(s).get_model_config("implicit")
    assert config["sequence_batching"]["state"] == [{
        "input_name": "TOTAL_IN", "output_name": "TOTAL_OUT", "data_type": "TYPE_INT32", "dims": [1],
        "initial_state": [{"name": "TOTAL_IN", "data_type": "TYPE_INT32", "dims": [1], "zero_data": True}],
        "use_same_buffer_for_input_output": False, "use_growable_memory": False}]
    names = [each["name"] for each in client_of(s).get_model_metadata("implicit")["inputs"]]
    assert names == ["INPUT", "START_AT"]


def test_a_state_over_its_limit_fails_the_step(server):
    """The answer is 507 with both numbers, and the stored state stays."""
    lua = """
    return { api = 1, handle = function(req)
        local n = req.inputs.IN.values[1]
        local out = { OUT = { datatype = "INT32", shape = { 1 }, data = { req.inputs.S.shape[1] } } }
        if n > 0 then
            out.S = { datatype = "UINT8", shape = { n }, data = string.rep("x", n) }
        end
        return { outputs = out }
    end }
    """
    s = server(Model("seen", lua, HEADERS + TENSORS + "state: {maxBytes: 4096, tensors: [{name: S, dataType: UINT8, "
                     "dims: [-1]}]}\n"))
    assert step(s, 4000) == 1
    message = step(s, 5000, status=507)
    assert "exceeds 4096 (state.maxBytes)" in message
    assert step(s, 0) == 4000
