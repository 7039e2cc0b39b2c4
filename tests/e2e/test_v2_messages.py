"""The messages for wrong requests of the v2 protocol, word for word: clients and their tests compare them.

Messages that belong to one part of the protocol (sequences, shared memory, repository ...) are in the file of that
part. This file has those of reading and checking a request, and bodies that try to break a parser."""

import gzip
import json
import zlib

import numpy as np
import pytest
import requests

from models import Model
from rpc import refused
from test_v2_http import identity, one, post
from v2rpc import channel_of, request, stub_of
from waiting import limit

UNKNOWN = "[request id: <id_unknown>] "
ONE_FIELD = ("Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
             "'shared_memory_region' in 'parameters'. But ")
NOTE = ("NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
        "input shape.")

# Its answer has no outputs, because no request of these tests reaches it: all are refused.
LUA = "return { api = 1, handle = function() return { outputs = {} } end }"
PAIR = """input: [{name: A, data_type: TYPE_INT32, dims: [4]}, {name: B, data_type: TYPE_STRING, dims: [-1]}%s]
output: [{name: C, data_type: TYPE_INT32, dims: [4]}]
"""
OPTIONAL = ", {name: O, data_type: TYPE_INT32, dims: [1], optional: true}"


def pair(name, more="", batch=0):
    return Model(name, LUA, f"max_batch_size: {batch}\n" + PAIR % more, stateful=False)


def given(name, datatype, shape, data=None, **parameters):
    field = {} if data is None else {"data": data}
    return {"name": name, "datatype": datatype, "shape": shape, **field,
            **({"parameters": parameters} if parameters else {})}


A, B = given("A", "INT32", [4], [1, 2, 3, 4]), given("B", "BYTES", [1], ["x"])
BATCH_A, BATCH_B = given("A", "INT32", [1, 4], [1, 2, 3, 4]), given("B", "BYTES", [2, 1], ["x", "y"])


@pytest.fixture
def models(server):
    return server(identity(), pair("pair"), pair("optional", OPTIONAL), pair("batched", batch=2))


def wants(document, **more):
    return {"inputs": document, **more}


JSON_BODIES = [
    # --- the document and its members
    ("pair", "", 400, UNKNOWN + "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'pair' model "
     "configuration"),
    ("pair", '{"inputs": [}', 500, "failed to parse the request JSON buffer: "),
    ("pair", '{"inputs": []} x', 500, "failed to parse the request JSON buffer: "),
    ("pair", '{"id": "a", "id": "b", "inputs": []}', 500, "failed to parse the request JSON buffer: duplicate"),
    ("pair", {"id": 7, "inputs": []}, 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
    ("pair", {"parameters": [], "inputs": []}, 500,
     "Unable to parse 'parameters': attempt to access JSON non-object as object"),
    ("pair", {}, 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    ("pair", {"inputs": {}}, 500, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
    ("pair", wants([{"datatype": "INT32"}]), 500,
     "Unable to parse 'name': attempt to access non-existing object member 'name'"),
    ("pair", wants([{"name": "A"}]), 500,
     "Unable to parse 'datatype': attempt to access non-existing object member 'datatype'"),
    ("pair", wants([{"name": "A", "datatype": "INT32"}]), 500,
     "Unable to parse 'shape': attempt to access non-existing object member 'shape'"),
    ("pair", wants([given("A", "INT32", [-4], [1])]), 500,
     "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ("pair", wants([given("A", "INT32", [4.0], [1])]), 500,
     "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ("pair", wants([given("A", "INT33", [4], [1])]), 400, "invalid datatype for input A"),
    ("pair", wants([given("A", "INT32", [4])]), 400, ONE_FIELD + "no field is set"),
    ("pair", wants([given("A", "INT32", [4], [1], binary_data_size=4)]), 400,
     ONE_FIELD + "set 'data' 'binary_data_size'"),
    ("pair", wants([given("A", "INT32", [4], [1], binary_data_size=4, shared_memory_region="r",
                          shared_memory_byte_size=4)]), 400,
     ONE_FIELD + "set 'data' 'binary_data_size' 'shared_memory_region'"),
    ("pair", wants([given("A", "INT32", [4], binary_data_size=-1)]), 500,
     "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ("pair", wants([A, B], outputs=[{}]), 500,
     "Unable to parse 'name': attempt to access non-existing object member 'name'"),
    ("pair", wants([A, B], outputs=[{"name": "C", "parameters": {"binary_data": 1}}]), 500,
     "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean"),
    ("pair", wants([A, B], outputs=[{"name": "C", "parameters": {"classification": -1}}]), 500,
     "Unable to parse 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    # --- data
    ("pair", wants([given("A", "INT32", [4], 5)]), 500,
     "Unable to parse 'data': attempt to access JSON non-array as array"),
    ("pair", wants([given("A", "INT32", [4], [1, 2, 3])]), 500,
     "Failed to parse 'data' field: shape does not match true shape"),
    ("pair", wants([given("A", "INT32", [4], [1, 2, 3, 4, 5])]), 500,
     "Unable to parse 'data': Shape does not match true shape of 'data' field"),
    ("pair", wants([given("B", "BYTES", [1], ["x", "y"])]), 500,
     "Unable to parse 'data': shape does not match true shape of 'data' field"),
    ("pair", wants([given("A", "INT32", [4], [1, True, 3, 4])]), 500,
     "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
    ("pair", wants([given("B", "BYTES", [1], [None])]), 500,
     "Unable to parse 'data': attempt to access JSON non-string as string"),
    ("identity", one("FP16", "FP16", [1], [1]), 400,
     "receiving FP16 data via JSON is not supported. Please use the binary data format for input FP16"),
    ("identity", one("FP16", "BF16", [1], [1]), 400,
     "receiving BF16 data via JSON is not supported. Please use the binary data format for input FP16"),
    ("identity", one("INT8", "INT8", [2**62, 4], [1]), 400,
     "invalid shape for input 'INT8': shape [4611686018427387904,4] causes total element count to exceed maximum size "
     "of 9223372036854775807"),
    ("identity", one("FP32", "FP32", [2**62], [1]), 400,
     "byte size overflow for input 'FP32': element count (4611686018427387904) * data type size (4) exceeds maximum "
     "allowed size (9223372036854775807)"),
    ("identity", one("INT8", "INT8", [2**31], [1]), 400,
     "JSON input 'INT8' has a byte_size (2147483648 bytes) that exceeds the maximum allowed value of "),
    # --- parameters
    ("pair", wants([A, B], parameters={"sequence_id": -1}), 500,
     "Unable to parse 'sequence_id': attempt to access JSON non-string as string"),
    ("pair", wants([A, B], parameters={"sequence_id": 1.5}), 500,
     "Unable to parse 'sequence_id': attempt to access JSON non-string as string"),
    ("pair", wants([A, B], parameters={"sequence_start": 1}), 500,
     "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean"),
    ("pair", wants([A, B], parameters={"sequence_end": "true"}), 500,
     "Unable to parse 'sequence_end': attempt to access JSON non-boolean as boolean"),
    ("pair", wants([A, B], parameters={"priority": -1}), 500,
     "Unable to parse 'priority': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ("pair", wants([A, B], parameters={"timeout": "1"}), 500,
     "Unable to parse 'timeout': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ("pair", wants([A, B], parameters={"binary_data_output": 0}), 500,
     "Unable to parse 'binary_data_output': attempt to access JSON non-boolean as boolean"),
    ("pair", wants([A, B], parameters={"triton_enable_empty_final_response": True}), 400,
     "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."),
    ("pair", wants([A, B], parameters={"mine": [1]}), 400,
     "parameter 'mine' has invalid type. It should be either 'int', 'bool', or 'string'."),
    ("pair", wants([A, B], parameters={"mine": None}), 400,
     "parameter 'mine' has invalid type. It should be either 'int', 'bool', or 'string'."),
    # --- the first failure wins: id, parameters, inputs, outputs
    ("pair", {"id": 7, "parameters": [], "inputs": 5, "outputs": 5}, 500, "Unable to parse 'id'"),
    ("pair", {"parameters": [], "inputs": 5, "outputs": 5}, 500, "Unable to parse 'parameters'"),
    ("pair", {"inputs": 5, "outputs": 5}, 500, "Unable to parse 'inputs'"),
    ("pair", wants([A, B], outputs=5), 500, "Unable to parse 'outputs'"),
    # --- checks against the model, in their order
    ("pair", wants([A, B], outputs=[{"name": "D"}]), 400, "unexpected inference output 'D' for model 'pair'"),
    ("pair", wants([A, B], outputs=[{"name": "C"}, {"name": "C"}]), 400, UNKNOWN + "output 'C' already exists in request"),
    ("pair", wants([A, A]), 400, UNKNOWN + "input 'A' already exists in request"),
    ("pair", wants([A]), 400, UNKNOWN + "expected 2 inputs but got 1 inputs for model 'pair'. Got input(s) ['A'], but "
     "missing required input(s) ['B']. Please provide all required input(s)."),
    ("pair", wants([], id="i-1"), 400, "[request id: i-1] expected 2 inputs but got 0 inputs for model 'pair'. Got "
     "input(s) [], but missing required input(s) ['A','B']. Please provide all required input(s)."),
    ("optional", wants([A]), 400, UNKNOWN + "expected number of inputs between 2 and 3 but got 1 inputs for model "
     "'optional'. Got input(s) ['A'], but missing required input(s) ['B']. Please provide all required input(s)."),
    ("pair", wants([A, given("D", "BYTES", [1], ["x"])]), 400, "unexpected inference input 'D' for model 'pair'"),
    ("batched", wants([given("A", "INT32", [], [1]), BATCH_B]), 400,
     UNKNOWN + "input 'A' has no shape but model requires batch dimension for 'batched'"),
    ("batched", wants([BATCH_A, BATCH_B]), 400,
     UNKNOWN + "input 'B' batch size does not match other inputs for 'batched'"),
    ("batched", wants([given("A", "INT32", [3, 4], [0] * 12), given("B", "BYTES", [3, 1], ["x"] * 3)]), 400,
     UNKNOWN + "inference request batch-size must be <= 2 for 'batched'"),
    ("pair", wants([given("A", "FP32", [4], [1, 2, 3, 4]), B]), 400,
     UNKNOWN + "inference input 'A' data-type is 'FP32', but model 'pair' expects 'INT32'"),
    ("pair", wants([given("A", "INT32", [2, 2], [1, 2, 3, 4]), B]), 400,
     UNKNOWN + "unexpected shape for input 'A' for model 'pair'. Expected [4], got [2,2]."),
    ("batched", wants([given("A", "INT32", [1, 5], [0] * 5), given("B", "BYTES", [1, 1], ["x"])]), 400,
     UNKNOWN + "unexpected shape for input 'A' for model 'batched'. Expected [-1,4], got [1,5]. " + NOTE),
]


def test_json_bodies(models):
    """The whole message is compared, except where a parser's own words or a limit follow."""
    wrong = []
    for model, document, status, says in JSON_BODIES:
        answer = post(models, model, document)
        error = answer.json()["error"]
        goes_on = says.endswith((": ", "of ")) or says.endswith(": duplicate") or says.count("'") == 2
        if answer.status_code != status or not (error.startswith(says) if goes_on else error == says):
            wrong.append(f"{document}: {answer.status_code} {error}\n  instead of {status} {says}")
    assert not wrong, "\n".join(wrong)


def binary(head, tail, length=None):
    head = json.dumps(head).encode()
    return head + tail, {"Inference-Header-Content-Length": str(len(head) if length is None else length)}


def string(text, claimed=None):
    return (len(text) if claimed is None else claimed).to_bytes(4, "little") + text


A16 = given("A", "INT32", [4], binary_data_size=16)


def texts(shape, data):
    return [given("A", "INT32", [4], [1, 2, 3, 4]), given("B", "BYTES", shape, binary_data_size=len(data))], data


BINARY_PARTS = [
    ([A16, B], b"\0" * 15, "unexpected size for input 'A', expecting 1 additional bytes for model 'pair'"),
    ([A16, B], b"\0" * 17, "unexpected additional input data for model 'pair'"),
    ([given("A", "INT32", [4], binary_data_size=2**63), B], b"\0" * 16,
     f"unexpected size for input 'A', expecting {2**63 - 16} additional bytes for model 'pair'"),
    ([given("A", "INT32", [4], binary_data_size=0), B], b"",
     UNKNOWN + "input byte size mismatch for input 'A' for model 'pair'. Expected 16, got 0"),
    ([given("A", "INT32", [4], binary_data_size=15), B], b"\0" * 15,
     UNKNOWN + "input byte size mismatch for input 'A' for model 'pair'. Expected 16, got 15"),
    (*texts([2], string(b"a")), UNKNOWN + "expected 2 string elements for inference input 'B' for model 'pair', got 1"),
    (*texts([1], string(b"a") + string(b"b")),
     UNKNOWN + "unexpected number of string elements 2 for inference input 'B' for model 'pair', expecting 1"),
    (*texts([2], string(b"a") + b"\1\0\0"),
     UNKNOWN + "incomplete string length indicator for inference input 'B' for model 'pair', expecting 4 bytes but only 3 "
     "bytes available. Please make sure the string length indicator is in one buffer."),
    (*texts([1], string(b"abc", 2**32 - 1)),
     UNKNOWN + "expected 1 string elements for inference input 'B' for model 'pair', got 0"),
    (*texts([2**40], string(b"a")),
     UNKNOWN + f"expected {2**40} string elements for inference input 'B' for model 'pair', got 1"),
]


def test_binary_parts(models):
    """The sizes differ from those of the body, of the shape or of the strings."""
    for inputs, tail, says in BINARY_PARTS:
        body, headers = binary(wants(inputs), tail)
        answer = post(models, "pair", body, headers)
        assert (answer.status_code, answer.json()) == (400, {"error": says})


def test_byte_counts_that_overflow(models):
    """The number of elements still fits, but the number of bytes does not."""
    body, headers = binary(wants([given("INT64", "INT64", [2**61], binary_data_size=8)]), b"\0" * 8)
    answer = post(models, "identity", body, headers)
    assert (answer.status_code, answer.json()["error"]) == (
        400, f"{UNKNOWN}byte size overflow for input 'INT64': element count ({2**61}) * data type size (8) exceeds "
        "maximum allowed size (9223372036854775807)")


LENGTHS = [
    ("x", "Unable to parse Inference-Header-Content-Length, got: x"),
    ("1 2", "Unable to parse Inference-Header-Content-Length, got: 1 2"),
    (2**31, "Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 2147483647 ], got: "
     "2147483648"),
    (-1, "inference header size should be in range (0, 14), got: -1"),
    (15, "inference header size should be in range (0, 14), got: 15"),
]


def test_lengths_of_the_json_part(models):
    for length, says in LENGTHS:
        answer = post(models, "pair", b'{"inputs": []}', {"Inference-Header-Content-Length": str(length)})
        assert (answer.status_code, answer.json()) == (400, {"error": says})


def test_raw_bodies(server):
    """The shape cannot be deduced from the bytes alone."""
    two = "inputs: [{name: X, dataType: FP32, dims: %s}]\noutputs: [{name: Y, dataType: FP32, dims: [1]}]\n"
    s = server(Model("open", LUA, two % "[-1, -1]", stateful=False), pair("pair"),
               Model("texts", LUA, two.replace("name: X, dataType: FP32", "name: X, dataType: BYTES") % "[2]",
                     stateful=False))
    for model, says in (
            ("open", "The shape of the raw input 'X' can not be deduced because there are more than one variable-sized "
             "dimension"),
            ("pair", "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'pair' model "
             "configuration"),
            ("texts", "For BYTE datatype raw input 'X', the model must have input shape [1]")):
        answer = post(s, model, b"12345678", {"Inference-Header-Content-Length": "0"})
        assert (answer.status_code, answer.json()) == (400, {"error": UNKNOWN + says})


def test_unknown_models_and_versions(models):
    """The answer is 404. For a model that exists but is not ready, /ready says so."""
    for path, says in (("nobody/infer", "Request for unknown model: 'nobody' is not found"),
                       ("pair/versions/9/infer", "Request for unknown model: 'pair' version 9 is not found"),
                       ("pair/versions/x/infer", "Request for unknown model: 'pair' version x is not found")):
        answer = requests.post(f"{models.inference}/v2/models/{path}", data=b"{}", timeout=20)
        assert (answer.status_code, answer.json()) == (404, {"error": says})
    answer = requests.get(f"{models.inference}/v2/models/nobody/ready", timeout=20)
    assert (answer.status_code, answer.json()) == (404, {"error": "Request for unknown model: 'nobody' is not found"})


def test_a_model_without_workers_is_not_ready(server):
    s = server(pair("pair"))
    assert s.admin().put("/models/pair?min_worker=0&max_worker=0&synchronous=true").status == 200
    answer = requests.get(f"{s.inference}/v2/models/pair/ready", timeout=20)
    assert (answer.status_code, answer.json()) == (400, {"error": "Model version not ready"})


def test_sizes_are_bounded(server):
    """The JSON part, a tensor in it and a compressed body have limits. Binary parts are within the limit of the body.
    """
    s = server(identity(), flags=["--max-request-size", "2000"])
    answer = post(s, "identity", b'{"inputs": []' + b" " * 1900 + b"}")
    assert answer.status_code == 200, answer.text
    large = post(s, "identity", b" " * 2001)
    assert large.status_code == 413 and "(max-v2-request-size)" in large.json()["error"]
    answer = post(s, "identity", one("FP64", "FP64", [251], [1]))
    assert (answer.status_code, answer.json()["error"]) == (
        400, "JSON input 'FP64' has a byte_size (2008 bytes) that exceeds the maximum allowed value of 2000 bytes. Use "
        "--max-v2-request-size to increase the limit.")
    for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        answer = post(s, "identity", pack(b" " * 100_000), {"Content-Encoding": coding})
        assert (answer.status_code, answer.json()["error"]) == (
            400, "Decompressed data size exceeds the maximum allowed value of 2000 bytes. Use --max-v2-request-size to "
            "increase the limit.")
    answer = post(s, "identity", b"x", {"Content-Encoding": "br"})
    assert (answer.status_code, answer.json()) == (501, {"error": "Unsupported compression type"})
    assert answer.headers["Accept-Encoding"] == "gzip, deflate", "the codings that are accepted"


# --- bodies made to break a parser


BOMBS = [
    b"[" * 100_000, b'{"a":' * 100_000, b'{"inputs":' + b"[" * 101 + b"]" * 101 + b"}",
    json.dumps(one("INT32", "INT32", [1], [1])).replace("[1]}", "[" * 120 + "1" + "]" * 120 + "}").encode(),
]


def test_nesting_bombs(models):
    for body in BOMBS:
        answer = post(models, "identity", body)
        assert (answer.status_code, answer.json()) == (
            400, {"error": "JSON nesting depth exceeds maximum allowed limit (100)"})


NUMBERS = [
    ("1e400", 500, None), ("-1e400", 500, None), ("1e-400", 200, 0.0), ("1" * 400, 500, None), ("1e39", 200, None),
    ("NaN", 200, None), ("-NaN", 500, None), ("nan", 500, None), ("Infinity", 200, None), ("0x10", 500, None),
    ("01", 500, None), ("+1", 500, None), (".5", 500, None), ("5.", 500, None), ("18446744073709551616", 200, 2.0**64),
]


def test_numbers(models):
    """A number that JSON does not allow, or that no double can hold, is refused. The words NaN and Infinity are
    accepted."""
    body = '{"inputs":[{"name":"FP64","datatype":"FP64","shape":[1],"data":[%s]}]}'
    wrong = []
    for number, status, value in NUMBERS:
        answer = post(models, "identity", body % number)
        if answer.status_code != status or (value is not None and answer.json()["outputs"][0]["data"] != [value]):
            wrong.append(f"{number}: {answer.status_code} {answer.text}")
    assert not wrong, "\n".join(wrong)


def test_bytes_may_hold_anything(models):
    """JSON may contain NUL, control characters and surrogate pairs, but no lone surrogate and no bytes that are not
    UTF-8."""
    words = ["a\0b", "\x01", "\x01\x1f\x7f", "\x01NaN", "\U0001f600", ""]
    answer = post(models, "identity", one("BYTES", "BYTES", [6], words))
    assert answer.json()["outputs"][0]["data"] == words
    for body in (b'{"inputs":[{"name":"BYTES","datatype":"BYTES","shape":[1],"data":["\\ud800"]}]}',
                 b'{"inputs":[{"name":"BYTES","datatype":"BYTES","shape":[1],"data":["\xff"]}]}'):
        answer = post(models, "identity", body)
        assert answer.status_code == 500 and "failed to parse the request JSON buffer" in answer.json()["error"]


def test_narrow_integers_wrap(models):
    """As in Triton, only the low bits are used, without a check of the range."""
    answer = post(models, "identity", one("INT8", "INT8", [3], [128, 256, -129]))
    assert answer.json()["outputs"][0]["data"] == [-128, 0, 127]


def test_the_same_over_grpc(models):
    """Messages that both transports have are the same, with codes in place of statuses."""
    four = np.zeros(4, np.int32).tobytes()
    cases = [
        (request("pair", [("A", "INT32", [4])], [four]), UNKNOWN + "expected 2 inputs but got 1 inputs for model 'pair'. Got "
         "input(s) ['A'], but missing required input(s) ['B']. Please provide all required input(s)."),
        (request("optional", [("A", "INT32", [4])], [four]), UNKNOWN + "expected number of inputs between 2 and 3 but got 1 "
         "inputs for model 'optional'. Got input(s) ['A'], but missing required input(s) ['B']. Please provide all "
         "required input(s)."),
        (request("batched", [("A", "INT32", []), ("B", "BYTES", [1, 1])], [four, string(b"x")]),
         UNKNOWN + "input 'A' has no shape but model requires batch dimension for 'batched'"),
        (request("batched", [("A", "INT32", [1, 4]), ("B", "BYTES", [2, 1])], [four, string(b"x") * 2]),
         UNKNOWN + "input 'B' batch size does not match other inputs for 'batched'"),
        (request("pair", [("A", "INT32", [4]), ("B", "BYTES", [1])], [four, string(b"x") * 2]),
         UNKNOWN + "unexpected number of string elements 2 for inference input 'B' for model 'pair', expecting 1"),
        (request("pair", [("A", "INT32", [4]), ("B", "BYTES", [1])], [four, b"\1\0"]),
         UNKNOWN + "incomplete string length indicator for inference input 'B' for model 'pair', expecting 4 bytes but only "
         "2 bytes available. Please make sure the string length indicator is in one buffer."),
        (request("identity", [("INT64", "INT64", [2**61])], [b"\0" * 8]), UNKNOWN + "byte size overflow for input 'INT64': "
         f"element count ({2**61}) * data type size (8) exceeds maximum allowed size (9223372036854775807)"),
        (request("identity", [("INT8", "INT8", [2**62, 4])], [b"\0"]), None),
    ]
    with channel_of(models) as channel:
        for message, says in cases:
            error = refused(stub_of(channel).ModelInfer, message, timeout=limit(30))
            assert error.code().name == "INVALID_ARGUMENT" and says in (None, error.details()), error


UNLUCKY = "return { api = 1, handle = function(req) return nil, 'no luck', req.inputs.A.values[1] end }"


@pytest.mark.parametrize("own, status, code", [
    (500, 500, "INTERNAL"), (507, 500, "INTERNAL"), (503, 503, "UNAVAILABLE"), (404, 404, "NOT_FOUND"),
    (418, 400, "INVALID_ARGUMENT")])
def test_a_models_failure_is_no_overload(server, own, status, code):
    """Clients and proxies repeat requests that got 503 or UNAVAILABLE, so they get one
    only if the handler asks for it."""
    s = server(Model("m", UNLUCKY, "input: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"
                                   "output: [{name: B, data_type: TYPE_INT32, dims: [1]}]\n", stateful=False))
    answers = [post(s, "m", one("A", "INT32", [1], [own]))]
    answers += [requests.post(f"{s.inference}/v2/models/m/{verb}", json={"A": own}, timeout=limit(30))
                for verb in ("generate", "generate_stream")]
    assert [answer.status_code for answer in answers] == [status] * 3
    assert all("no luck" in answer.text for answer in answers)
    assert ("Retry-After" in answers[0].headers) == (status == 503)
    with channel_of(s) as channel:
        error = refused(stub_of(channel).ModelInfer, request("m", [("A", "INT32", [1])], [own.to_bytes(4, "little")]))
    assert (error.code().name, error.details()) == (code, "no luck")


def test_a_handlers_mistake_is_internal(server):
    """A mistake in the handler's code has no status of its own."""
    s = server(Model("m", "return { api = 1, handle = function() error('oh') end }", pair("m").yaml, stateful=False))
    answer = post(s, "m", wants([A, B]))
    assert answer.status_code == 500 and "oh" in answer.json()["error"]
    assert answer.headers["Continuo-Error"] == "handler_failed" and "Retry-After" not in answer.headers
