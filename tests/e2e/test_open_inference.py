"""The Open Inference Protocol of TorchServe over gRPC, for typed models and for those that get JSON."""

import pytest

from models import Model
from rpc import refused
from test_v2_grpc import CONTENTS, channel, same  # noqa: F401 - fixtures
from test_v2_http import VALUES
from v2rpc import call_of, reflected
from waiting import limit

OPEN = "org.pytorch.serve.grpc.openinference.GRPCInferenceService"


def test_open_inference_protocol(same, channel):
    """TorchServe's package has the same calls, and its answers have typed contents."""
    connection = channel(same)
    make = reflected(connection, OPEN)

    def ask(method, **fields):
        return call_of(connection, OPEN, method, make)(make(f"{method}Request", **fields), timeout=limit(30))

    assert ask("ServerLive").live and ask("ServerReady").ready and ask("ModelReady", name="identity").ready
    assert ask("ServerMetadata").name == "continuo"
    assert ask("ModelMetadata", name="identity").versions == ["1.0"]
    assert not ask("ModelReady", name="nobody").ready
    for datatype, field in CONTENTS.items():
        values = VALUES[datatype].tolist()
        answer = ask("ModelInfer", model_name="identity", id="7",
                     inputs=[{"name": datatype, "datatype": datatype, "shape": [2], "contents": {field: values}}])
        assert (answer.id, answer.model_name, answer.model_version) == ("7", "identity", "1.0")
        got = getattr(answer.outputs[0].contents, field)
        assert list(got) == values and list(answer.outputs[0].shape) == [2], datatype
        assert not answer.raw_output_contents
    half = VALUES["FP16"].tobytes()
    answer = ask("ModelInfer", model_name="identity", raw_input_contents=[half],
                 inputs=[{"name": "FP16", "datatype": "FP16", "shape": [2]}])
    assert list(answer.raw_output_contents) == [half]


# Gives the inputs back, and what it was asked with; adds up over a sequence.
OPEN_LUA = """
local function answer(req)
    local outputs = {}
    for i, input in ipairs(req.json.inputs) do
        outputs[i] = { name = "OUT" .. i, datatype = input.datatype, shape = input.shape, data = input.data }
    end
    return { json = { id = req.json.id, model_name = req.json.model_name, model_version = "1.0", outputs = outputs } }
end
return { api = 1,
    init = function() return { sum = 0 } end,
    step = function(state, req)
        if state then
            state.sum = state.sum + req.json.inputs[1].data[1]
            req.json.inputs[1].data[1] = state.sum
        end
        return answer(req)
    end }
"""


@pytest.fixture
def open_call(server, channel):
    """open_call(model) returns a function ask(method, **fields) that calls TorchServe's package."""
    def start(*models):
        connection = channel(server(*models))
        make = reflected(connection, OPEN)
        return lambda method, **fields: call_of(connection, OPEN, method, make)(
            make(f"{method}Request", **fields), timeout=limit(30))

    return start


def test_open_inference_of_a_model_that_gets_json(open_call):
    """TorchServe's handlers get one JSON body and answer in JSON. Strings are sent as base64 and as JSON."""
    ask = open_call(Model("plain", OPEN_LUA, stateful=False))
    assert ask("ModelReady", name="plain").ready
    told = ask("ModelMetadata", name="plain")
    assert (told.name, list(told.versions), list(told.inputs)) == ("plain", ["1.0"], [])
    answer = ask("ModelInfer", model_name="plain", id="i-1", inputs=[
        {"name": "A", "datatype": "INT8", "shape": [2], "contents": {"int_contents": [-1, 5]}},
        {"name": "B", "datatype": "FP32", "shape": [1, 2], "contents": {"fp32_contents": [0.5, -2]}},
        {"name": "C", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"\x00hi"]}},
        {"name": "D", "datatype": "BOOL", "shape": [2], "contents": {"bool_contents": [True, False]}},
    ])
    assert (answer.id, answer.model_name, answer.model_version) == ("i-1", "plain", "1.0")
    first, second, third, fourth = answer.outputs
    assert (first.name, list(first.contents.int_contents)) == ("OUT1", [-1, 5])
    assert (list(second.shape), list(second.contents.fp32_contents)) == ([1, 2], [0.5, -2])
    assert list(third.contents.bytes_contents) == [b'"AGhp"']
    assert list(fourth.contents.bool_contents) == [True, False]


def test_open_inference_of_a_stateful_model(open_call):
    """TorchServe never answers such a call. A parameter names the sequence."""
    ask = open_call(Model("sums", OPEN_LUA))

    def add(value, **flags):
        parameters = {"sequence_id": {"string_param": "s"}, **{name: {"bool_param": v} for name, v in flags.items()}}
        one = {"name": "A", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [value]}}
        return ask("ModelInfer", model_name="sums", inputs=[one], parameters=parameters).outputs[0].contents.int_contents

    assert list(add(5, sequence_start=True)) == [5]
    assert list(add(2)) == [7]
    assert list(add(1, sequence_end=True)) == [8]
    error = refused(add, 1)
    assert error.code().name == "INVALID_ARGUMENT" and "must specify the START flag" in error.details()


@pytest.mark.parametrize("lua, says", [
    ('return { text = "no JSON" }', "the handler's answer is not valid JSON"),
    ("return { json = { a = 1 } }", "the handler's answer has no outputs"),
    ('return { json = { outputs = { { name = "A" } } } }', "it has no name, or no known datatype"),
    ('return { json = { outputs = { { name = "A", datatype = "INT8", shape = { 2 }, data = { 1 } } } } }',
     "shape does not match true shape"),
    ('return { json = { outputs = { { name = "A", datatype = "INT8", shape = { -2 }, data = { 1 } } } } }',
     "its shape is not a list of sizes"),
])
def test_open_inference_answers_that_are_none(open_call, lua, says):
    ask = open_call(Model("bad", f"return {{ api = 1, step = function() {lua} end }}", stateful=False))
    error = refused(ask, "ModelInfer", model_name="bad")
    assert error.code().name == "INTERNAL" and says in error.details()
    half = {"name": "A", "datatype": "FP16", "shape": [1]}
    error = refused(ask, "ModelInfer", model_name="bad", inputs=[half], raw_input_contents=[b"\0\0"])
    assert error.code().name == "INVALID_ARGUMENT" and "which JSON numbers cannot express" in error.details()
