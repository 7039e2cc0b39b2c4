"""Typed models: predictions, and raw and compressed requests, classification, configuration and index of the v2
protocol."""

import json
import zlib

import grpc
import numpy as np
import pytest
import requests
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import v2rpc
from models import Model
from test_v2_http import IDENTITY_LUA, VALUES, accumulator, client_of, identity, one, post, tensor

SCORES_YAML = ("{batch}inputs: [{{name: X, dataType: {type}, dims: [-1]}}]\n"
               "outputs: [{{name: X, dataType: {type}, dims: [-1]}}]\n")


def same_as(name, datatype="FP32", batch=0):
    return Model(name, IDENTITY_LUA, SCORES_YAML.format(batch=f"maxBatchSize: {batch}\n" if batch else "",
                                                        type=datatype), stateful=False)


def predict(s, model, body, content_type=None, **headers):
    if content_type:
        headers["Content-Type"] = content_type
    data = body if isinstance(body, (bytes, str)) else json.dumps(body)
    return requests.post(f"{s.inference}/predictions/{model}", data=data, headers=headers, timeout=20)


@pytest.fixture
def models(server):
    return server(identity(), identity("batched", 4), same_as("one"), same_as("pairs", batch=8),
                  same_as("word", "BYTES"), same_as("half", "FP16"), same_as("long", "INT64"), accumulator())


@pytest.fixture(scope="module")
def shared(shared_server):
    """The same server for tests that change nothing."""
    return shared_server(identity(), identity("batched", 4), same_as("one"), same_as("pairs", batch=8),
                  same_as("word", "BYTES"), same_as("half", "FP16"), same_as("long", "INT64"), accumulator())


# --- /predictions ---


def test_predictions_take_and_give_names_and_values(models):
    """The nesting gives the shape, and a single number is a tensor of one element."""
    answer = predict(models, "identity", {"INT32": [1, -2], "FP64": [0.5], "BOOL": [True], "BYTES": ["ü"]},
                     "application/json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == {"INT32": [1, -2], "FP64": [0.5], "BOOL": [True], "BYTES": ["ü"]}
    assert predict(models, "identity", {"INT8": 7}).json() == {"INT8": [7]}
    assert predict(models, "batched", {"INT8": [[1, 2], [3, 4]]}).json() == {"INT8": [[1, 2], [3, 4]]}
    assert predict(models, "batched", {"INT8": [1, 2]}).json() == {"INT8": [[1, 2]]}
    assert predict(models, "identity", {"INT8": []}).json() == {"INT8": []}


def test_predictions_take_one_raw_tensor(models):
    """The shape is the declared one, and an open size follows from the number of bytes."""
    values = np.array([0.5, -1.25, 3], np.float32)
    raw = "application/octet-stream"
    assert predict(models, "one", values.tobytes(), raw).json() == {"X": values.tolist()}
    assert predict(models, "pairs", values.tobytes(), raw).json() == {"X": [values.tolist()]}
    answer = predict(models, "one", b"\0" * 5, raw)
    assert answer.status_code == 400 and "Expected 4, got 5" in answer.text
    answer = predict(models, "identity", b"\0" * 4, raw)
    assert answer.status_code == 400 and "Raw request must only have 1 input" in answer.text


def test_a_sequence_of_predictions(models):
    """Both paths use the same state. Ids and repeated answers work as for predictions."""
    for expected in (5, 10):
        answer = predict(models, "accumulator", {"INPUT": 5}, ts_request_sequence_id="s1")
        assert answer.json() == {"OUTPUT": [expected]}
    keyed = {"ts_request_sequence_id": "s1", "Idempotency-Key": "k"}
    assert [predict(models, "accumulator", {"INPUT": 1}, **keyed).json() for _ in range(2)] == [{"OUTPUT": [11]}] * 2
    again = one("INPUT", "INT32", [1], [4], parameters={"sequence_id": "s1"})
    assert post(models, "accumulator", again).json()["outputs"][0]["data"] == [15]


@pytest.mark.parametrize("body, content_type, says", [
    ("[1]", "application/json", "takes a JSON object of input names and values"),
    ("{", "application/json", "failed to parse the request JSON buffer"),
    ({"NOBODY": [1]}, None, "unexpected inference input 'NOBODY' for model 'identity'"),
    ({"INT32": [1.5]}, None, "non-signed-integer as signed-integer"),
    ({"INT32": [[1], [2, 3]]}, None, "input 'INT32': its lists differ in length"),
    ({"INT32": [[1, 2]]}, None, "unexpected shape for input 'INT32' for model 'identity'. Expected [-1], got [1,2]"),
    ({"INT32": [1, [2]]}, None, "its lists differ in length"),
    ({"FP16": [1]}, None, "receiving FP16 data via JSON is not supported"),
    ("[" * 200, "application/json", "nesting depth exceeds"),
    ("a=1&b=2", "application/x-www-form-urlencoded", "not as a form"),
])
def test_wrong_predictions_are_400(shared, body, content_type, says):
    """A mistake of the client gets 400, and the message names it."""
    answer = predict(shared, "identity", body, content_type)
    assert (answer.status_code, says in answer.text) == (400, True), answer.text


def test_json_answers_have_no_half_floats(models):
    """FP16 can be sent as bytes. It cannot be returned as JSON, and the message says how to get it."""
    answer = predict(models, "half", b"\0\x3c", "application/octet-stream")
    assert answer.status_code == 400 and "request it as binary data" in answer.text


HALVES_YAML = ("sequenceBatching: true\n"
               "inputs: [{name: X, dataType: INT32, dims: [1]}]\n"
               "outputs: [{name: SUM, dataType: INT32, dims: [1]}, {name: HALF, dataType: %s, dims: [1]},\n"
               "          {name: WORD, dataType: BYTES, dims: [1]}]\n")
HALVES_LUA = """return {
    init = function() return { sum = 0 } end,
    step = function(state, req)
        state.sum = state.sum + req.inputs.X.values[1]
        return { outputs = {
            SUM = { datatype = "INT32", shape = { 1 }, data = string.pack("<i4", state.sum) },
            HALF = { datatype = "%s", shape = { 1 }, data = "\\0\\x3c" },
            WORD = { datatype = "BYTES", shape = { 1 }, data = string.pack("<s4", "w") } } }
    end,
}
"""


def output(name, **parameters):
    return {"name": name, "parameters": parameters}


@pytest.mark.parametrize("half", ["FP16", "BF16"])
def test_no_step_is_done_whose_answer_cannot_be_written(server, half):
    """A request whose outputs would be refused after the step is refused before it, so the sum does not change."""
    s = server(Model("halves", HALVES_LUA % half, HALVES_YAML % half))
    session = {"Inference-Session-Id": "s"}

    def infer(*outputs, **more):
        return post(s, "halves", one("X", "INT32", [1], [1], **({"outputs": outputs} if outputs else {}), **more), session)

    def refused(answer, says):
        assert (answer.status_code, says in answer.text) == (400, True), answer.text

    for says, outputs in [
        ("binary data format for output 'HALF', or list the outputs", ()),
        ("Please use the binary data format for output", (output("SUM"), output("HALF"))),
        ("Please use the binary data format for output", (output("HALF", binary_data=False),)),
        (f"output 'HALF' is {half}, which cannot be classified", (output("HALF", classification=1),)),
        ("output 'WORD' is BYTES, which cannot be classified", (output("WORD", classification=1),)),
    ]:
        refused(infer(*outputs), says)
    refused(requests.post(f"{s.inference}/v2/models/halves/generate", json={"X": 1}, headers=session, timeout=20),
            "binary data format for output 'HALF'")
    refused(predict(s, "halves", {"X": 1}, **{"ts-request-sequence-id": "s"}), "request it as binary data")
    with v2rpc.channel_of(s) as channel:
        with pytest.raises(grpc.RpcError, match="cannot be classified"):
            v2rpc.stub_of(channel).ModelInfer(
                v2rpc.request("halves", [("X", "INT32", [1])], [b"\1\0\0\0"], [("HALF", {"classification": 1})]),
                metadata=[("inference-session-id", "s")])
    assert infer(output("SUM")).json()["outputs"][0]["data"] == [1]
    answer = infer(output("SUM"), output("HALF", binary_data=True))
    assert b'"data":[2]' in answer.content and answer.content.endswith(b"\0\x3c")
    assert infer(parameters={"binary_data_output": True}).status_code == 200
    assert infer(output("SUM"), output("WORD")).json()["outputs"][0]["data"] == [4]


# --- raw requests ---


def test_raw_requests(models):
    """With Inference-Header-Content-Length 0 the body is the tensor, and the outputs are binary."""
    values = np.array([1, 2, 3], np.float32)
    answer = post(models, "one", values.tobytes(), {"Inference-Header-Content-Length": "0"})
    split = int(answer.headers["Inference-Header-Content-Length"])
    assert json.loads(answer.content[:split])["outputs"][0]["shape"] == [3]
    assert answer.content[split:] == values.tobytes()
    answer = post(models, "pairs", values.tobytes(), {"Inference-Header-Content-Length": "0"})
    assert json.loads(answer.content[:int(answer.headers["Inference-Header-Content-Length"])]
                      )["outputs"][0]["shape"] == [1, 3]
    for model, says in [("word", "For BYTE datatype raw input 'X', the model must have input shape [1]"),
                        ("identity", "Raw request must only have 1 input (found 1) to be deduced but got 13 inputs "
                                     "in 'identity' model configuration")]:
        answer = post(models, model, b"abc", {"Inference-Header-Content-Length": "0"})
        assert answer.status_code == 400 and says in answer.json()["error"]


def test_raw_bytes_are_one_string(server):
    """The request leaves out the string's length, which the server adds."""
    s = server(Model("word", IDENTITY_LUA, "inputs: [{name: X, dataType: BYTES, dims: [1]}]\n"
                                           "outputs: [{name: X, dataType: BYTES, dims: [1]}]\n", stateful=False))
    answer = post(s, "word", b"a\0b", {"Inference-Header-Content-Length": "0"})
    assert answer.content[int(answer.headers["Inference-Header-Content-Length"]):] == b"\3\0\0\0a\0b"


# --- compressed requests ---


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_requests(models, coding):
    """tritonclient compresses JSON and binary tensors together."""
    values = np.arange(10_000, dtype=np.float32)
    for binary in (True, False):
        answer = client_of(models).infer("one", [tensor("X", values, "FP32", binary)],
                                         request_compression_algorithm=coding)
        assert answer.as_numpy("X").tobytes() == values.tobytes()


def test_wrong_compressed_requests(server):
    """Bytes that are not compressed data, too few and too many of them, a decompression bomb, and an unknown encoding.
    """
    s = server(identity(), flags=["--max-request-size", 100_000])
    good = zlib.compress(json.dumps(one("INT8", "INT8", [1], [1])).encode())
    assert post(s, "identity", good, {"Content-Encoding": "deflate"}).status_code == 200
    for body, coding, status, says in [
        (b"hello", "gzip", 400, "not a complete gzip or zlib stream"),
        (good[:-3], "deflate", 400, "it ends early"),
        (good + b"x", "deflate", 400, "bytes follow its end"),
        (zlib.compress(bytes(50_000_000)), "deflate", 400, "Decompressed data size exceeds the maximum allowed value"),
        (good, "br", 501, "Unsupported compression type"),
    ]:
        answer = post(s, "identity", body, {"Content-Encoding": coding})
        assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text


# --- classification ---


def test_classification(models):
    """The largest values come with their indexes, never more than exist, separately for each row of a batch."""
    client = client_of(models)

    def classes(model, values, datatype, count):
        answer = client.infer(model, [tensor("X", values, datatype)],
                              outputs=[triton.InferRequestedOutput("X", class_count=count)])
        return answer.as_numpy("X").tolist()

    scores = np.array([0.25, 3, -1, 3, np.nan], np.float32)
    assert classes("one", scores, "FP32", 2) == [b"3.000000:1", b"3.000000:3"]
    assert len(classes("one", scores, "FP32", 100)) == 5
    assert classes("long", np.array([2**63 - 2, 2**63 - 1, -5]), "INT64", 2) == [
        b"9223372036854775807:1", b"9223372036854775806:0"]
    batch = np.array([[1, 2], [4, 3]], np.float32)
    assert classes("pairs", batch, "FP32", 1) == [[b"2.000000:1"], [b"4.000000:0"]]
    with pytest.raises(InferenceServerException, match="classification output tensor too large"):
        classes("one", np.zeros(1_000_001, np.float32), "FP32", 1)
    with pytest.raises(InferenceServerException, match="is BYTES, which cannot be classified"):
        classes("word", VALUES["BYTES"], "BYTES", 1)


# --- configuration, index, errors ---


def test_configuration(models):
    """perf_analyzer reads kinds of batching, sizes and tensors, and fields that it expects without a check."""
    client = client_of(models)
    config = client.get_model_config("accumulator")
    assert config["name"] == "accumulator" and config["max_batch_size"] == 0
    assert config["input"][0] | {"name": "INPUT", "data_type": "TYPE_INT32", "dims": [1]} == config["input"][0]
    assert config["output"][0]["name"] == "OUTPUT"
    assert config["sequence_batching"]["max_sequence_idle_microseconds"] == 60_000_000
    assert "dynamic_batching" not in config
    assert config["model_transaction_policy"]["decoupled"] is False
    assert config["response_cache"]["enable"] is False
    batched = client.get_model_config("batched", "1.0")
    assert batched["max_batch_size"] == 4 and "sequence_batching" not in batched
    assert [i["optional"] for i in batched["input"]] == [True] * 13
    assert {i["data_type"] for i in batched["input"]} >= {"TYPE_STRING", "TYPE_FP16"}
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
        client.get_model_config("nobody")


def test_repository_index(models):
    """The index has every version, whether READY or not. A filter that is not a boolean is refused."""
    index = client_of(models).get_model_repository_index()
    assert {"name": "accumulator", "version": "1.0", "state": "READY"} in index
    assert len(index) == 8
    url = f"{models.inference}/v2/repository/index"
    assert len(requests.post(url, json={"ready": True}, timeout=20).json()) == 8
    answer = requests.post(url, json={"ready": 1}, timeout=20)
    assert (answer.status_code, answer.json()) == (
        400, {"error": "Invalid value for 'ready': expected a boolean"})


@pytest.mark.parametrize("method, path, status, says", [
    ("GET", "/v2/models/one/infer", 405, "Method Not Allowed"),
    ("POST", "/v2/health/live", 405, "Method Not Allowed"),
    ("POST", "/v2", 405, "Method Not Allowed"),
    ("DELETE", "/v2/models/one", 405, "Method Not Allowed"),
    ("GET", "/v2/nothing", 404, "Not Found"),
    ("POST", "/v2/models/one/infer/more", 404, "Not Found"),
])
def test_wrong_paths_and_methods_below_v2(shared, method, path, status, says):
    """The error has the protocol's form, with the header Allow if the path is known."""
    answer = requests.request(method, shared.inference + path, timeout=20)
    assert (answer.status_code, answer.json()) == (status, {"error": says})
    assert ("Allow" in answer.headers) == (status == 405)
