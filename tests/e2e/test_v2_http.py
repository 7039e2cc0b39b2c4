"""The v2 protocol over HTTP: tritonclient, and requests that are written byte by byte."""

import json

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from models import Model, ROOT

EXAMPLE = ROOT / "examples" / "v2" / "accumulator"

# Gives each input back as an output.
IDENTITY_LUA = """
return { api = 1, handle = function(req)
    local outputs = {}
    for name, tensor in pairs(req.inputs) do
        outputs[name] = { datatype = tensor.datatype, shape = tensor.shape, data = tensor.data }
    end
    return { outputs = outputs }
end }
"""

TYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64",
         "BYTES"]


def accumulator():
    return Model("accumulator", (EXAMPLE / "handler.lua").read_text(), (EXAMPLE / "model-config.yaml").read_text())


def identity(name="identity", max_batch_size=0):
    tensors = "".join(f"  - {{name: {word}, dataType: {word}, dims: [-1]%s}}\n" for word in TYPES)
    return Model(
        name,
        IDENTITY_LUA,
        f"maxBatchSize: {max_batch_size}\ninputs:\n{tensors.replace('%s', ', optional: true')}"
        f"outputs:\n{tensors.replace('%s', '')}",
        stateful=False,
    )


def client_of(s):
    return triton.InferenceServerClient(s.inference.removeprefix("http://"))


def tensor(name, values, datatype, binary=True):
    given = triton.InferInput(name, list(values.shape), datatype)
    given.set_data_from_numpy(values, binary_data=binary)
    return given


def post(s, model, document, headers=None):
    body = document if isinstance(document, (bytes, str)) else json.dumps(document)
    return requests.post(f"{s.inference}/v2/models/{model}/infer", data=body, headers=headers, timeout=20)


def one(name, datatype, shape, data, **more):
    return {"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}], **more}


@pytest.fixture
def sums(server):
    return server(accumulator())


@pytest.fixture
def same(server):
    return server(identity(), identity("batched", 4))


@pytest.fixture(scope="module")
def shared(shared_server):
    """The same server for tests that change nothing."""
    return shared_server(identity(), identity("batched", 4))


def test_health_and_metadata(sums):
    """tritonclient asks these questions first."""
    client = client_of(sums)
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("accumulator") and client.is_model_ready("accumulator", "1.0")
    assert not client.is_model_ready("nobody")
    assert {"sequence", "schedule_policy"} <= set(client.get_server_metadata()["extensions"])
    assert client.get_model_metadata("accumulator") == {
        "name": "accumulator",
        "versions": ["1.0"],
        "platform": "continuo",
        "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1]}],
        "outputs": [{"name": "OUTPUT", "datatype": "INT32", "shape": [1]}],
    }
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
        client.get_model_metadata("nobody")


def test_metadata_has_the_batch_dimension(same):
    """With maxBatchSize the first dimension is -1, which perf_analyzer drops without looking at it."""
    assert client_of(same).get_model_metadata("batched")["inputs"][0]["shape"] == [-1, -1]


def test_an_integer_id_is_logged_as_its_digits(server):
    """The log can be searched for sequence 42."""
    s = server(Model("m", "return { api = 1, step = function() error('broken') end }", accumulator().yaml))
    document = {**one("INPUT", "INT32", [1], [1]), "parameters": {"sequence_id": 42, "sequence_start": True}}
    assert post(s, "m", document).status_code == 500
    s.expect_log("handler_error", 'sequence="42"')


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("number", [True, False])
def test_a_sequence_by_tritonclient(sums, binary, number):
    """START, steps and END with integer and string ids, in both encodings."""
    client = client_of(sums)
    total = 0
    for step in range(5):
        total += step + 1
        answer = client.infer(
            "accumulator",
            [tensor("INPUT", np.array([step + 1], np.int32), "INT32", binary)],
            outputs=[triton.InferRequestedOutput("OUTPUT", binary_data=binary)],
            sequence_id=42 if number else "forty-two",
            sequence_start=step == 0,
            sequence_end=step == 4,
        )
        assert answer.as_numpy("OUTPUT").tolist() == [total]
    with pytest.raises(InferenceServerException, match="must specify the START flag on the first request"):
        client.infer("accumulator", [tensor("INPUT", np.array([1], np.int32), "INT32")],
                     sequence_id=42 if number else "forty-two")


def test_a_sequence_stays_with_its_version_over_a_swap(sums):
    """Steps without a version find the sequence where it lives, as in other protocols."""
    begun = one("INPUT", "INT32", [1], [5], parameters={"sequence_id": 9, "sequence_start": True})
    assert post(sums, "accumulator", begun).json()["outputs"][0]["data"] == [5]
    newer = accumulator()
    newer.version = "2.0"
    assert sums.register(newer).status == 200
    assert sums.admin().put("/models/accumulator/2.0/set-default").status == 200
    step = one("INPUT", "INT32", [1], [1], parameters={"sequence_id": 9})
    assert post(sums, "accumulator", step).json()["outputs"][0]["data"] == [6]
    assert sums.describe("accumulator", "1.0")["liveSequences"] == 1


def test_numbers_and_texts_are_different_sequences(sums):
    """The integer 7 and the string "7" are different ids, and the largest integer is an id, too."""
    for sequence_id in [7, "7", 2**64 - 1]:
        document = one("INPUT", "INT32", [1], [5],
                       parameters={"sequence_id": sequence_id, "sequence_start": True})
        assert post(sums, "accumulator", document).json()["outputs"][0]["data"] == [5]
    again = one("INPUT", "INT32", [1], [1], parameters={"sequence_id": "7"})
    assert post(sums, "accumulator", again).json()["outputs"][0]["data"] == [6]


def test_missing_inputs_are_listed(sums):
    """The message lists the inputs that came and those that are missing."""
    answer = post(sums, "accumulator", {"inputs": [], "parameters": {"sequence_id": 1, "sequence_start": True}})
    assert answer.status_code == 400
    assert ("[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'accumulator'. Got input(s) [], "
            "but missing required input(s) ['INPUT']. Please provide all required input(s).") == answer.json()["error"]


def test_start_on_a_live_sequence_starts_anew(sums):
    """This is not an error: the state begins again."""
    for expected in [3, 3]:
        document = one("INPUT", "INT32", [1], [3], parameters={"sequence_id": 9, "sequence_start": True})
        assert post(sums, "accumulator", document).json()["outputs"][0]["data"] == [expected]


def test_rules_of_sequences(sums):
    """A request without an id or without START gets 400 with the protocol's message."""
    answer = post(sums, "accumulator", one("INPUT", "INT32", [1], [1]))
    assert answer.status_code == 400
    assert "must specify a non-zero or non-empty correlation ID" in answer.json()["error"]
    answer = post(sums, "accumulator", one("INPUT", "INT32", [1], [1], parameters={"sequence_id": 77}))
    assert answer.status_code == 400
    assert ("inference request for sequence 77 to model 'accumulator' must specify the START flag on the first "
            "request of the sequence (sequence 77 does not exist, and ") in answer.json()["error"]


def test_a_session_header_opens_its_sequence(sums):
    """Inference-Session-Id needs no START, and the answer returns it."""
    for expected in [2, 4]:
        answer = post(sums, "accumulator", one("INPUT", "INT32", [1], [2]), {"Inference-Session-Id": "s-1"})
        assert answer.json()["outputs"][0]["data"] == [expected]
        assert answer.headers["Inference-Session-Id"] == "s-1"


VALUES = {
    "BOOL": np.array([True, False]),
    "UINT8": np.array([0, 255], np.uint8),
    "UINT16": np.array([0, 65535], np.uint16),
    "UINT32": np.array([0, 2**32 - 1], np.uint32),
    "UINT64": np.array([0, 2**64 - 1], np.uint64),
    "INT8": np.array([-128, 127], np.int8),
    "INT16": np.array([-32768, 32767], np.int16),
    "INT32": np.array([-(2**31), 2**31 - 1], np.int32),
    "INT64": np.array([-(2**63), 2**63 - 1], np.int64),
    "FP16": np.array([0.5, -65504.0], np.float16),
    "FP32": np.array([0.1, -3.4e38], np.float32),
    "FP64": np.array([0.1, -1.7e308], np.float64),
    "BYTES": np.array([b"a\x00b", "ü\"\\\n".encode()], np.object_),
}


@pytest.mark.parametrize("datatype", TYPES)
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_every_datatype_comes_back(shared, datatype, binary_in, binary_out):
    """The extreme values of each type are returned to the last bit, in all combinations of encodings."""
    if datatype == "FP16" and not (binary_in and binary_out):
        pytest.skip("JSON has no FP16: test_json_has_no_half_floats")
    values = VALUES[datatype]
    answer = client_of(shared).infer(
        "identity",
        [tensor(datatype, values, datatype, binary_in)],
        outputs=[triton.InferRequestedOutput(datatype, binary_data=binary_out)],
        request_id="r-1",
    )
    got = answer.as_numpy(datatype)
    if datatype == "BYTES":
        assert [x.encode() if isinstance(x, str) else x for x in got.tolist()] == values.tolist()
    else:
        assert got.tobytes() == values.tobytes()
    assert answer.get_response()["id"] == "r-1"
    assert answer.get_response()["model_version"] == "1.0"


def test_json_has_no_half_floats(same):
    """FP16 in JSON is refused in requests and answers, and the message names the tensor."""
    answer = post(same, "identity", one("FP16", "FP16", [1], [0.5]))
    assert answer.status_code == 400
    assert "receiving FP16 data via JSON is not supported" in answer.json()["error"]
    with pytest.raises(InferenceServerException, match="sending FP16 data via JSON is not supported"):
        client_of(same).infer("identity", [tensor("FP16", VALUES["FP16"], "FP16")],
                              outputs=[triton.InferRequestedOutput("FP16", binary_data=False)])


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_not_a_number_and_infinity_are_null_in_json_and_themselves_in_binary(same, datatype):
    """Clients may write the bare words, as v2 clients do. An answer is always valid JSON."""
    body = (f'{{"inputs":[{{"name":"{datatype}","datatype":"{datatype}","shape":[4],'
            '"data":[NaN,Infinity,-Infinity,1.5]}]}')

    def refuse(word):
        raise ValueError(word)

    answer = post(same, "identity", body)
    [output] = json.loads(answer.text, parse_constant=refuse)["outputs"]
    assert output["data"] == [None, None, None, 1.5]
    plain = requests.post(f"{same.inference}/predictions/identity", data=f'{{"{datatype}": [NaN, 2.5]}}',
                          headers={"Content-Type": "application/json"}, timeout=30)
    if plain.status_code == 200:
        assert json.loads(plain.text, parse_constant=refuse)[datatype] == [None, 2.5]
    values = np.array([np.nan, np.inf, -np.inf, 1.5], np.float32 if datatype == "FP32" else np.float64)
    for binary in (True, False):
        got = client_of(same).infer("identity", [tensor(datatype, values, datatype)],
                                    outputs=[triton.InferRequestedOutput(datatype, binary_data=binary)]).as_numpy(datatype)
        assert np.isnan(got[0]) and got[3] == 1.5
        assert not binary or got.tobytes() == values.tobytes()


def test_nesting_and_empty_tensors(same):
    """The nesting of the data is ignored, and a zero in the shape makes the tensor empty."""
    nested = one("INT32", "INT32", [4], [[1, [2]], [[3], 4]])
    assert post(same, "identity", nested).json()["outputs"][0]["data"] == [1, 2, 3, 4]
    assert post(same, "identity", one("INT32", "INT32", [0], [])).json()["outputs"][0]["data"] == []


def test_mixed_encodings_and_the_worked_bytes(same):
    """One input is in JSON and one is binary. Listed outputs are in JSON unless the request asks otherwise."""
    head = json.dumps({
        "id": "42",
        "inputs": [
            {"name": "INT32", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}},
            {"name": "BYTES", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 13}},
            {"name": "INT8", "datatype": "INT8", "shape": [1], "data": [-5]},
        ],
        "outputs": [{"name": "INT32", "parameters": {"binary_data": True}}, {"name": "INT8"}],
    }).encode()
    tail = b"\x01\0\0\0\xfe\xff\xff\xff" + b"\x02\0\0\0hi\x03\0\0\0bye"
    answer = post(same, "identity", head + tail, {"Inference-Header-Content-Length": str(len(head))})
    assert answer.headers["Content-Type"] == "application/octet-stream"
    split = int(answer.headers["Inference-Header-Content-Length"])
    document = json.loads(answer.content[:split])
    by_name = {output["name"]: output for output in document["outputs"]}
    assert set(by_name) == {"INT32", "INT8"}
    assert by_name["INT32"]["parameters"] == {"binary_data_size": 8}
    assert "parameters" not in by_name["INT8"] and by_name["INT8"]["data"] == [-5]
    assert answer.content[split:] == tail[:8]


WRONG = [
    ("{", 500, "failed to parse the request JSON buffer"),
    ("[1]", 500, "failed to parse the request JSON buffer"),
    ("{}", 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    ('{"id":5,"inputs":[]}', 500, "Unable to parse 'id'"),
    (one("NOBODY", "INT32", [1], [1]), 400, "unexpected inference input 'NOBODY' for model 'identity'"),
    (one("INT32", "FP32", [1], [1]), 400,
     "inference input 'INT32' data-type is 'FP32', but model 'identity' expects 'INT32'"),
    (one("INT32", "INT33", [1], [1]), 400, "invalid datatype for input INT32"),
    (one("INT32", "INT32", [1, 1], [1]), 400, "unexpected shape for input 'INT32' for model 'identity'. Expected [-1]"),
    (one("INT32", "INT32", [-1], [1]), 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
    (one("INT32", "INT32", [2], [1]), 500, "shape does not match true shape"),
    (one("INT32", "INT32", [1], [1, 2]), 500, "Shape does not match true shape of 'data' field"),
    (one("BYTES", "BYTES", [1], ["a", "b"]), 500, "shape does not match true shape of 'data' field"),
    (one("INT32", "INT32", [1], [1.0]), 500, "attempt to access JSON non-signed-integer as signed-integer"),
    (one("UINT8", "UINT8", [1], [-1]), 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
    (one("BOOL", "BOOL", [1], [1]), 500, "attempt to access JSON non-boolean as boolean"),
    (one("BYTES", "BYTES", [1], [1]), 500, "attempt to access JSON non-string as string"),
    (one("FP32", "FP32", [1], ["x"]), 500, "attempt to access JSON non-number as double"),
    (one("INT32", "INT32", [2**62, 4], [1]), 400, "causes total element count to exceed"),
    ({"inputs": [{"name": "INT32", "datatype": "INT32", "shape": [1]}]}, 400, "But no field is set"),
    (one("INT32", "INT32", [1], [1], parameters={"triton_x": 1}), 400, "reserved for Triton usage"),
    (one("INT32", "INT32", [1], [1], parameters={"x": {}}), 400, "parameter 'x' has invalid type"),
    (one("INT32", "INT32", [1], [1], outputs=[{"name": "NOBODY"}]), 400,
     "unexpected inference output 'NOBODY' for model 'identity'"),
    (one("INT32", "INT32", [1], [1], outputs=[{"name": "INT32"}, {"name": "INT32"}]), 400,
     "output 'INT32' already exists in request"),
    ("[" * 200, 400, "nesting depth exceeds maximum allowed limit (100)"),
]


@pytest.mark.parametrize("document, status, says", WRONG)
def test_wrong_requests_get_the_protocols_words(shared, document, status, says):
    """Each mistake has its status and its text, because clients and tests compare them."""
    answer = post(shared, "identity", document)
    assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text


def test_wrong_binary_parts(same):
    """There are too few or too many bytes, or the lengths are not numbers."""
    head = json.dumps({"inputs": [{"name": "INT32", "datatype": "INT32", "shape": [1],
                                   "parameters": {"binary_data_size": 4}}]}).encode()
    length = str(len(head))
    for body, header, says in [
        (head + b"\0\0", length, "unexpected size for input 'INT32', expecting 2 additional bytes for model 'identity'"),
        (head + b"\0" * 5, length, "unexpected additional input data for model 'identity'"),
        (head, "x", "Unable to parse Inference-Header-Content-Length, got: x"),
        (head, "99999999999", "value is out of range"),
        (head, "-1", "inference header size should be in range"),
        (head, str(len(head) + 1), "inference header size should be in range"),
    ]:
        answer = post(same, "identity", body, {"Inference-Header-Content-Length": header})
        assert (answer.status_code, says in answer.json()["error"]) == (400, True), answer.text
    head = head.replace(b"4}", b"3}")
    answer = post(same, "identity", head + b"\0\0\0", {"Inference-Header-Content-Length": str(len(head))})
    assert "input byte size mismatch for input 'INT32' for model 'identity'. Expected 4, got 3" in answer.json()["error"]


def test_batches_of_a_stateless_model(same):
    """The batch dimension must be the same for all inputs and within the limit."""
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    answer = client_of(same).infer("batched", [tensor("FP32", values, "FP32")])
    assert answer.as_numpy("FP32").tolist() == values.tolist()
    answer = post(same, "batched", one("FP32", "FP32", [5, 1], [0] * 5))
    assert "inference request batch-size must be <= 4 for 'batched'" in answer.json()["error"]
    answer = post(same, "batched", one("FP32", "FP32", [], [0]))
    assert "has no shape but model requires batch dimension" in answer.json()["error"]


def test_a_handler_that_breaks_its_word(server):
    """Wrong outputs are the model's mistake, and the message says what is wrong."""
    declares = ("inputs: [{name: A, dataType: INT32, dims: [1]}]\n"
                "outputs: [{name: B, dataType: INT32, dims: [1]}]\n")
    replies = {
        "text": ("'hello'", "answered without outputs"),
        "type": ("{outputs = {B = {datatype = 'FP32', data = {1.5}}}}", "returned output 'B' as FP32"),
        "name": ("{outputs = {C = {datatype = 'INT32', data = {1}}}}", "returned an output 'C'"),
        "size": ("{outputs = {B = {datatype = 'INT32', shape = {2}, data = {1}}}}", "tensor B: 4 bytes, 2 elements"),
        "none": ("{outputs = {B = {datatype = 'INT32'}}}", "output 'B' needs data"),
    }
    s = server(*[Model(name, f"return {{ api = 1, handle = function() return {lua} end }}", declares, stateful=False)
                 for name, (lua, _) in replies.items()])
    for name, (_, says) in replies.items():
        answer = post(s, name, one("A", "INT32", [1], [1]))
        assert answer.status_code == 500 and says in answer.json()["error"], answer.text


def test_untyped_models_say_so(server):
    """A model without inputs in its YAML cannot be used with v2."""
    s = server(Model("plain"))
    answer = post(s, "plain", one("A", "INT32", [1], [1]))
    assert answer.status_code == 400 and "declares no inputs and outputs" in answer.json()["error"]


def test_sequences_survive_a_restart(server, folder):
    """A v2 sequence is stored like any other."""
    s = server(accumulator())
    document = one("INPUT", "INT32", [1], [4], parameters={"sequence_id": 5, "sequence_start": True})
    assert post(s, "accumulator", document).json()["outputs"][0]["data"] == [4]
    s.kill()
    s.restart()
    document["parameters"] = {"sequence_id": 5}
    assert post(s, "accumulator", document).json()["outputs"][0]["data"] == [8]
