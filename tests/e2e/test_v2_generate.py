"""generate and generate_stream: fields become tensors and tensors become fields; one response, or events."""

import json

import pytest
import requests

from models import Model
from test_v2_decoupled import events, repeat

# Returns each input as an output, and its shape as another one.
ECHO_LUA = """
return { api = 1, handle = function(req)
    local outputs = {}
    for name, tensor in pairs(req.inputs) do
        outputs[name] = { datatype = tensor.datatype, shape = tensor.shape, data = tensor.data }
        outputs[name .. "_RANK"] = { datatype = "INT64", shape = { #tensor.shape }, data = tensor.shape }
    end
    return { outputs = outputs }
end }
"""


def echo(name="echo", batch=0, **dims):
    types = {"TEXT": "BYTES", "INT": "INT32", "REAL": "FP32", "FLAG": "BOOL", "HALF": "FP16"}
    dims = {"TEXT": [-1], "INT": [-1], "REAL": [2, -1], "FLAG": [1], "HALF": [1], **dims}
    yaml = f"maxBatchSize: {batch}\ninputs:\n"
    yaml += "".join(f"  - {{name: {n}, dataType: {types[n]}, dims: {d}, optional: true}}\n" for n, d in dims.items())
    yaml += "outputs:\n"
    yaml += "".join(f"  - {{name: {n}, dataType: {types[n]}, dims: {d}}}\n"
                    f"  - {{name: {n}_RANK, dataType: INT64, dims: [-1]}}\n" for n, d in dims.items())
    return Model(name, ECHO_LUA, yaml, stateful=False)


def generate(s, model, document, stream=False, **more):
    body = document if isinstance(document, (str, bytes)) else json.dumps(document)
    return requests.post(f"{s.inference}/v2/models/{model}/generate{'_stream' if stream else ''}", data=body,
                         timeout=60, **more)


@pytest.fixture
def models(server):
    return server(repeat(), echo(), echo("batched", 8))


@pytest.fixture(scope="module")
def shared(shared_server):
    """The same server for tests that change nothing."""
    return shared_server(repeat(), echo(), echo("batched", 8))


def test_fields_become_tensors_and_back(models):
    """One element is a scalar, several are a list. Keys are in the order of their bytes."""
    answer = generate(models, "echo", {"TEXT": "hi", "INT": [1, -2, 3], "REAL": [0.5, 1, 2, 3], "FLAG": True})
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    found = answer.json()
    assert list(found) == sorted(found)
    assert found == {"model_name": "echo", "model_version": "1.0", "TEXT": "hi", "TEXT_RANK": 1,
                     "INT": [1, -2, 3], "INT_RANK": 3, "REAL": [0.5, 1.0, 2.0, 3.0], "REAL_RANK": [2, 2],
                     "FLAG": True, "FLAG_RANK": 1}


def test_an_open_size_takes_what_is_left(models):
    """The last open size of a shape takes all elements. The others, including the batch dimension, become 1."""
    found = generate(models, "batched", {"INT": [1, 2], "REAL": [1, 2, 3, 4, 5, 6], "FLAG": False}).json()
    assert (found["INT_RANK"], found["REAL_RANK"], found["FLAG_RANK"]) == ([1, 2], [1, 2, 3], [1, 1])
    assert generate(models, "echo", {"INT": []}).json()["INT"] == []


PARAMETERS_LUA = """
return { api = 1, handle = function(req)
    return { outputs = { SAID = { datatype = "BYTES", data = { continuo.json.encode(req.parameters) } } } }
end }
"""


def test_parameters_reach_the_handler(server):
    """The parameters of generate and infer reach the handler with their types, except those that the protocol knows."""
    s = server(Model("asks", PARAMETERS_LUA, "inputs: [{name: X, dataType: INT32, dims: [1], optional: true}]\n"
                                             "outputs: [{name: SAID, dataType: BYTES, dims: [-1]}]\n", stateful=False))
    given = {"word": "ü", "n": -3, "big": 2**63 - 1, "rate": 0.1, "flag": False, "sequence_id": 5, "id": "g"}
    assert json.loads(generate(s, "asks", {"X": 1, **given}).json()["SAID"]) == given
    answer = requests.post(f"{s.inference}/v2/models/asks/infer", timeout=20, json={
        "inputs": [], "parameters": {"word": "w", "n": 1, "half": 0.5, "priority": 3, "timeout": 0}})
    assert json.loads(answer.json()["outputs"][0]["data"][0]) == {"word": "w", "n": 1, "half": 0.5}


def test_parameters_and_id(models):
    """A field with another name is a parameter. Members of `parameters` are treated like fields, also if they are
    inputs. The id is returned."""
    found = generate(models, "echo", {"id": "g1", "INT": 4, "temperature": 0.5, "sequence_id": 3, "stop": "x",
                                      "parameters": {"FLAG": True, "n": 1}}).json()
    assert (found["id"], found["INT"], found["FLAG"]) == ("g1", 4, True)


@pytest.mark.parametrize("body, status, says", [
    ({"REAL": [1, 2, 3]}, 400, "The schema can not convert input 'REAL' to tensor with proper shape"),
    ({"FLAG": []}, 400, "The schema can not convert input 'FLAG' to tensor with proper shape"),
    ({"INT": [[1], [2]]}, 400, "The schema can not convert input 'INT' to tensor with proper shape"),
    ({"INT": 1, "extra": {"a": 1}}, 400, "parameter 'extra' has invalid type."),
    ({"INT": 1, "extra": [1]}, 400, "parameter 'extra' has invalid type."),
    ({"INT": 1, "parameters": {"parameters": {}}}, 400, "parameter 'parameters' has invalid type."),
    ({"INT": "one"}, 500, "attempt to access JSON non-signed-integer as signed-integer"),
    ({"INT": {}}, 500, "attempt to access JSON non-signed-integer as signed-integer"),
    ({"TEXT": 1}, 500, "attempt to access JSON non-string as string"),
    ({"HALF": 1}, 400, "receiving FP16 data via JSON is not supported"),
    ({"INT": 1, "id": 3}, 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
    ({"INT": 1, "parameters": {"INT": 2}}, 400, "input 'INT' already exists in request"),
    ("[1]", 500, "failed to parse the request JSON buffer"),
    ("{", 500, "failed to parse the request JSON buffer"),
    ("[" * 200, 400, "JSON nesting depth exceeds maximum allowed limit (100)"),
])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_wrong_before_the_model_runs(shared, body, status, says, stream):
    """The error is plain JSON, also for a stream."""
    answer = generate(shared, "echo", body, stream)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert says in answer.json()["error"]


def test_coded_requests_are_refused(models):
    answer = generate(models, "echo", {"INT": 1}, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 400
    assert answer.json() == {"error": "Unsupported content-encoding, only 'identity' is supported."}


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_models_and_methods(models, stream):
    answer = generate(models, "nobody", {"INT": 1}, stream)
    assert answer.status_code == 404
    assert answer.json() == {"error": "Request for unknown model: 'nobody' is not found"}
    url = f"{models.inference}/v2/models/echo/generate{'_stream' if stream else ''}"
    assert requests.get(url, timeout=20).status_code == 405


def test_generate_wants_exactly_one_response(models):
    """This holds for a decoupled model, too: one response is an answer, none or two are not."""
    one = generate(models, "repeat", {"IN": 7, "DELAY": 0}).json()
    assert one == {"IDX": 0, "OUT": 7, "model_name": "repeat", "model_version": "1.0"}
    for values in ([], [1, 2], list(range(500))):
        answer = generate(models, "repeat", {"IN": values, "DELAY": [0] * len(values)})
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
        assert answer.json()["error"].startswith("generate expects model to produce exactly 1 response, use generate "
                                                 "stream")


def test_generate_stream_gives_events(models):
    for values in ([1, 2, 3], [4], []):
        answer = generate(models, "repeat", {"id": "s", "IN": values, "DELAY": [1] * len(values)}, True)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
        assert events(answer.text) == [
            {"IDX": i, "OUT": v, "id": "s", "model_name": "repeat", "model_version": "1.0"} for i, v in enumerate(values)]


def test_an_ordinary_model_gives_one_event(models):
    """A version may be named, too."""
    url = f"{models.inference}/v2/models/echo/versions/1.0/generate_stream"
    assert [event["INT"] for event in events(requests.post(url, json={"INT": 3}, timeout=20).text)] == [3]


def test_the_models_refusal(models):
    """If the refusal comes first, it sets the status and is a plain error. Otherwise it is an event."""
    body = {"IN": [1], "DELAY": [1, 2]}
    answer = generate(models, "repeat", body)
    assert answer.status_code == 400 and "same number of elements" in answer.json()["error"]
    answer = generate(models, "repeat", body, True)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "text/event-stream; charset=utf-8")
    assert "same number of elements" in events(answer.text)[0]["error"]


@pytest.mark.parametrize("text, status, says", [
    ('{"TEXT": "a", "TEXT": "b"}', 400, "[request id: <id_unknown>] input 'TEXT' already exists in request"),
    ('{"TEXT": "a", "other": 1, "other": 2}', 500, "failed to parse the request JSON buffer: duplicate"),
    ('{"TEXT": "a", "parameters": {"x": {"y": 1}}}', 400, "Converting keyword: 'parameters': parameter 'x' has invalid type."),
    ('{"TEXT": "a", "parameters": null}', 500, "Expected JSON object for keyword: 'parameters': attempt to access JSON "
     "non-object as object"),
    ('{"TEXT": "a", "parameters": "x"}', 500, "Expected JSON object for keyword: 'parameters'"),
])
def test_wrong_members_and_parameters(shared, text, status, says):
    """The messages are those that clients know, for one response and for a stream."""
    for stream in (False, True):
        answer = generate(shared, "echo", text, stream)
        assert answer.status_code == status and answer.json()["error"].startswith(says), answer.text
