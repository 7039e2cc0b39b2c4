"""The v2 protocol over gRPC: tritonclient, its aio variant, and messages that are made field by field."""

import asyncio
import threading

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from google.protobuf import json_format
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from models import Model
from rpc import refused
from test_v2_http import TYPES, VALUES, accumulator, identity
from v2rpc import Stream, channel_of, client_of, reflected, request, step, stub_of, tensor
from waiting import expect, limit


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


@pytest.fixture
def channel(request):
    """channel(server) makes a channel, which is closed at the end."""
    def connect(server):
        opened.append(channel_of(server))
        return opened[-1]

    opened = []
    yield connect
    for one in opened:
        one.close()


def numbers(response):
    """Returns the numbers of an INT32 tensor of a ModelInferResponse."""
    return np.frombuffer(response.raw_output_contents[0], np.int32).tolist()


# --- health, metadata, configuration


def test_health_and_metadata(sums):
    """tritonclient asks these questions first."""
    with client_of(sums) as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("accumulator") and client.is_model_ready("accumulator", "1.0")
        about = client.get_server_metadata()
        assert about.name == "continuo" and "sequence" in about.extensions
        assert client.get_model_metadata("accumulator", as_json=True) == {
            "name": "accumulator", "versions": ["1.0"], "platform": "continuo",
            "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": ["1"]}],
            "outputs": [{"name": "OUTPUT", "datatype": "INT32", "shape": ["1"]}],
        }
        assert not client.is_model_ready("nobody") and not client.is_model_ready("accumulator", "7")
        for ask in (client.get_model_metadata, client.get_model_config):
            with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
                ask("nobody")
            with pytest.raises(InferenceServerException, match="'accumulator' version 7 is not found") as error:
                ask("accumulator", "7")
            assert error.value.status() == "StatusCode.NOT_FOUND"


def test_a_model_without_workers_is_known_but_not_ready(sums):
    """ready=false is an answer and not an error, over both transports."""
    assert sums.admin().put("/models/accumulator?min_worker=0&max_worker=0&synchronous=true").status == 200
    with client_of(sums) as client:
        expect(lambda: not client.is_model_ready("accumulator"), "the model is not ready")
        assert not client.is_model_ready("accumulator", "1.0")
    answer = requests.get(f"{sums.inference}/v2/models/accumulator/ready", timeout=20)
    assert (answer.status_code, answer.json()) == (400, {"error": "Model version not ready"})


@pytest.mark.parametrize("model", ["accumulator", "batched"])
def test_configuration_and_metadata_are_those_of_http(server, model):
    """Both transports return the same, field by field."""
    s = server(accumulator(), identity("batched", 4))
    with client_of(s) as client:
        config = client.get_model_config(model).config
        metadata = client.get_model_metadata(model, as_json=True)
    told = requests.get(f"{s.inference}/v2/models/{model}/config", timeout=20).json()
    shown = json_format.MessageToDict(config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    same_numbers(told, shown)
    told = requests.get(f"{s.inference}/v2/models/{model}", timeout=20).json()
    same_numbers(told, metadata)


def same_numbers(told, shown):
    """Checks that everything in `told` is in `shown`. protobuf's JSON has 64-bit numbers as strings."""
    if isinstance(told, dict):
        for key, value in told.items():
            same_numbers(value, shown[key])
    elif isinstance(told, list):
        assert len(told) == len(shown)
        for left, right in zip(told, shown):
            same_numbers(left, right)
    else:
        assert told == shown or str(told) == shown, (told, shown)


def test_statistics_are_those_of_http(same):
    """The counts are exact and the same on both transports, and so are the errors."""
    with client_of(same) as client:
        for n in (1, 2):
            client.infer("batched", [tensor("FP32", np.zeros([n, 3], np.float32), "FP32")])
        shown = client.get_inference_statistics("batched").model_stats
        assert len(client.get_inference_statistics().model_stats) == 2
        with pytest.raises(InferenceServerException, match="requested model 'nobody' is not available") as error:
            client.get_inference_statistics("nobody")
        assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
        with pytest.raises(InferenceServerException, match="requested model version is not available"):
            client.get_inference_statistics("batched", "9")
    assert [(m.name, m.version, m.inference_count, m.execution_count) for m in shown] == [("batched", "1.0", 3, 2)]
    told = requests.get(f"{same.inference}/v2/models/batched/stats", timeout=20).json()["model_stats"][0]
    one = json_format.MessageToDict(shown[0], preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    same_numbers(told, one)
    assert one["inference_stats"]["success"]["count"] == "2" and len(one["batch_stats"]) == len(told["batch_stats"])


def test_the_index_lists_what_there_is(same):
    with client_of(same) as client:
        models = {(m.name, m.version, m.state) for m in client.get_model_repository_index().models}
    assert models == {("identity", "1.0", "READY"), ("batched", "1.0", "READY")}


def test_a_repository_by_name_is_refused(sums, channel):
    asked = service_pb2.RepositoryIndexRequest(repository_name="other")
    error = refused(stub_of(channel(sums)).RepositoryIndex, asked, timeout=limit(30))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert error.details() == "'repository_name' specification is not supported"


def test_cuda_shared_memory_as_without_a_gpu(server):
    """Clients unregister all regions before they begin, so only registering fails."""
    with client_of(server(accumulator(), flags=["--allow-client-shm"])) as client:
        client.unregister_cuda_shared_memory()
        assert client.get_cuda_shared_memory_status(as_json=True) == {}
        with pytest.raises(InferenceServerException, match="failed to register CUDA shared memory region: 'r', GPUs "
                                                           "not supported") as error:
            client.register_cuda_shared_memory("r", b"AAAA", 0, 64)
        assert error.value.status() == "StatusCode.INVALID_ARGUMENT"


# --- inference


@pytest.mark.parametrize("number", [True, False])
def test_a_sequence_by_tritonclient(sums, number):
    """START, steps and END with integer and string ids."""
    name = 42 if number else "forty-two"
    with client_of(sums) as client:
        total = 0
        for value in range(1, 6):
            total += value
            answer = client.infer("accumulator", [tensor("INPUT", np.array([value], np.int32), "INT32")],
                                  sequence_id=name, sequence_start=value == 1, sequence_end=value == 5,
                                  request_id=f"r{value}")
            assert answer.as_numpy("OUTPUT").tolist() == [total]
            assert answer.get_response().id == f"r{value}" and answer.get_response().model_version == "1.0"
        with pytest.raises(InferenceServerException) as error:
            client.infer("accumulator", [tensor("INPUT", np.array([1], np.int32), "INT32")], sequence_id=name)
    assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert (f"inference request for sequence {name} to model 'accumulator' must specify the START flag on the first "
            "request of the sequence") in error.value.message()


def test_a_sequence_goes_on_over_all_transports(sums, channel):
    """HTTP, a call and a stream continue one sequence. A negative int64 means the unsigned number with the same bits.
    """
    asking = stub_of(channel(sums))
    assert numbers(asking.ModelInfer(step("accumulator", 1, -1, sequence_start=True))) == [1]
    body = {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [2]}],
            "parameters": {"sequence_id": 2**64 - 1}}
    answer = requests.post(f"{sums.inference}/v2/models/accumulator/infer", json=body, timeout=20)
    assert answer.json()["outputs"][0]["data"] == [3]
    stream = Stream(channel(sums))
    assert numbers(stream.ask(step("accumulator", 4, -1)).infer_response) == [7]
    stream.half_close()
    assert refused(asking.ModelInfer, step("accumulator", 4, str(2**64 - 1))).code() == grpc.StatusCode.INVALID_ARGUMENT


def test_flags_that_are_false_and_ids_that_are_none(sums, channel):
    """tritonclient sends flags that are false, and 0 and "" mean that there is no id."""
    asking = stub_of(channel(sums))
    assert numbers(asking.ModelInfer(step("accumulator", 5, 3, sequence_start=True, sequence_end=False))) == [5]
    assert numbers(asking.ModelInfer(step("accumulator", 5, 3, sequence_start=False, sequence_end=False))) == [10]
    for none in (0, ""):
        error = refused(asking.ModelInfer, step("accumulator", 1, none, sequence_start=True))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "must specify a non-zero or non-empty correlation ID" in error.details()


def test_sessions_and_keys_by_metadata(sums, channel):
    """Inference-Session-Id opens its sequence without START, and a key makes the server answer a retry from the store.
    """
    asking = stub_of(channel(sums))
    named = (("inference-session-id", "s-1"),)
    for expected in (2, 4):
        answer, call = asking.ModelInfer.with_call(step("accumulator", 2), metadata=named)
        assert numbers(answer) == [expected]
        assert dict(call.initial_metadata())["inference-session-id"] == "s-1"
    for _ in range(2):
        keyed = (*named, ("idempotency-key", "k"))
        answer, call = asking.ModelInfer.with_call(step("accumulator", 2), metadata=keyed)
        assert numbers(answer) == [6]
    assert dict(call.initial_metadata())["continuo-replayed"] == "true"


@pytest.mark.parametrize("datatype", TYPES)
def test_every_datatype_comes_back(shared, datatype):
    """The extreme values of each type are returned to the last bit."""
    values = VALUES[datatype]
    with client_of(shared) as client:
        got = client.infer("identity", [tensor(datatype, values, datatype)]).as_numpy(datatype)
    if datatype == "BYTES":
        assert got.tolist() == values.tolist()
    else:
        assert got.tobytes() == values.tobytes() and got.dtype == values.dtype


CONTENTS = {"BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
            "UINT64": "uint64_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
            "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents"}


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_of_every_datatype(shared, channel, datatype):
    """KServe's clients send values in the field of their type. Answers are raw nevertheless."""
    values = VALUES[datatype].tolist()
    asked = request("identity", [(datatype, datatype, [2], {CONTENTS[datatype]: values})])
    answer = stub_of(channel(shared)).ModelInfer(asked)
    assert [output.name for output in answer.outputs] == [datatype] and not answer.outputs[0].HasField("contents")
    raw = tensor(datatype, VALUES[datatype], datatype)._get_content()
    assert list(answer.raw_output_contents) == [raw]


def test_typed_contents_one_by_one(same, channel):
    """A sender may encode each value, and each half of a submessage, separately."""
    head = request("identity", [("INT32", "INT32", [3]), ("FP32", "FP32", [2])])
    first, second = head.inputs
    del head.inputs[:]
    ints = first.SerializeToString() + b"\x2a\x02\x10\x05" + b"\x2a\x05\x12\x03\x06\xac\x02"
    floats = second.SerializeToString() + b"\x2a\x0a\x35\x00\x00\xc0\x3f\x35\x00\x00\x00\xc0"
    raw = head.SerializeToString() + b"".join(b"\x2a" + bytes([len(one)]) + one for one in (ints, floats))
    call = channel(same).unary_unary("/inference.GRPCInferenceService/ModelInfer",
                                     response_deserializer=service_pb2.ModelInferResponse.FromString)
    answer = call(raw, timeout=limit(30))
    got = {o.name: raw for o, raw in zip(answer.outputs, answer.raw_output_contents)}
    assert np.frombuffer(got["INT32"], np.int32).tolist() == [5, 6, 300]
    assert np.frombuffer(got["FP32"], np.float32).tolist() == [1.5, -2.0]


def test_bytes_on_the_wire(same, channel):
    """A request and an answer written out byte by byte."""
    call = channel(same).unary_unary("/inference.GRPCInferenceService/ModelInfer")
    asked = bytes.fromhex("0a08" + b"identity".hex() + "1a0137" + "2a11" + "0a05494e543332" + "1205494e543332" + "1a0101"
                          + "3a0405000000")
    assert call(asked, timeout=limit(30)) == bytes.fromhex(
        "0a08" + b"identity".hex() + "1203312e30" + "1a0137" + "2a11" + "0a05494e543332" + "1205494e543332" + "1a0101"
        + "320405000000")


def test_empty_tensors_and_listed_outputs(same):
    """The answer has only the requested outputs, in the handler's order. An empty tensor has a raw entry, too."""
    given = [tensor("INT32", np.zeros([0], np.int32), "INT32"), tensor("FP64", np.array([1.5]), "FP64"),
             tensor("BYTES", np.zeros([0], np.object_), "BYTES")]
    with client_of(same) as client:
        answer = client.infer("identity", given, outputs=[triton.InferRequestedOutput("INT32"),
                                                          triton.InferRequestedOutput("BYTES")])
    assert {o.name for o in answer.get_response().outputs} == {"INT32", "BYTES"}
    assert len(answer.get_response().raw_output_contents) == 2
    assert answer.as_numpy("INT32").shape == (0,) and answer.as_numpy("BYTES").shape == (0,)


def test_big_tensors_beside_small_ones(same):
    """Large parts are sent without a copy and small ones by copy, all in their places."""
    rng = np.random.default_rng(7)
    given = {"FP32": rng.random(1_000_000, np.float32), "INT8": np.array([1, 2], np.int8),
             "INT64": rng.integers(-(2**60), 2**60, 200_000), "UINT8": rng.integers(0, 255, 65536).astype(np.uint8),
             "FP64": np.array([0.25])}
    with client_of(same) as client:
        answer = client.infer("identity", [tensor(name, values, name) for name, values in given.items()])
    for name, values in given.items():
        assert answer.as_numpy(name).tobytes() == values.tobytes(), name


def test_batches_and_classification(same):
    """The batch dimension is checked. The largest values are returned as "value:index"."""
    values = np.array([[1, 5, 3], [9, 8, 7]], np.float32)
    with client_of(same) as client:
        assert client.infer("batched", [tensor("FP32", values, "FP32")]).as_numpy("FP32").tolist() == values.tolist()
        best = client.infer("batched", [tensor("FP32", values, "FP32")],
                            outputs=[triton.InferRequestedOutput("FP32", class_count=2)]).as_numpy("FP32")
        assert best.tolist() == [[b"5.000000:1", b"3.000000:2"], [b"9.000000:0", b"8.000000:1"]]
        with pytest.raises(InferenceServerException, match="inference request batch-size must be <= 4 for 'batched'"):
            client.infer("batched", [tensor("FP32", np.zeros([5, 1], np.float32), "FP32")])


INT32 = ("INT32", "INT32", [1])
FOUR = [b"\1\0\0\0"]

WRONG = [
    (request("nobody", [INT32], FOUR), "NOT_FOUND", "Request for unknown model: 'nobody' is not found"),
    (request("identity", [INT32], FOUR, version="9"), "NOT_FOUND",
     "Request for unknown model: 'identity' version 9 is not found"),
    (request("identity", [("NOBODY", "INT32", [1])], FOUR), "INVALID_ARGUMENT",
     "unexpected inference input 'NOBODY' for model 'identity'"),
    (request("identity", [INT32, INT32], FOUR * 2, id="i7"), "INVALID_ARGUMENT",
     "[request id: i7] input 'INT32' already exists in request"),
    (request("identity", [("INT32", "FP32", [1])], FOUR), "INVALID_ARGUMENT",
     "[request id: <id_unknown>] inference input 'INT32' data-type is 'FP32', but model 'identity' expects 'INT32'"),
    (request("identity", [("INT32", "INT33", [1])], FOUR), "INVALID_ARGUMENT", "invalid datatype for input INT32"),
    (request("identity", [("INT32", "INT32", [1, 1])], FOUR), "INVALID_ARGUMENT",
     "unexpected shape for input 'INT32' for model 'identity'. Expected [-1], got [1,1]."),
    (request("identity", [("INT32", "INT32", [-1])], FOUR), "INVALID_ARGUMENT",
     "All input dimensions should be specified for input 'INT32' for model 'identity', got [-1]"),
    (request("identity", [("INT32", "INT32", [1] * 17)], FOUR), "INVALID_ARGUMENT", "more than the limit of 16 dimensions"),
    (request("identity", [("INT32", "INT32", [2])], FOUR), "INVALID_ARGUMENT",
     "input byte size mismatch for input 'INT32' for model 'identity'. Expected 8, got 4"),
    (request("identity", [("BYTES", "BYTES", [2])], [b"\1\0\0\0a"]), "INVALID_ARGUMENT",
     "expected 2 string elements for inference input 'BYTES' for model 'identity', got 1"),
    (request("identity", [("BYTES", "BYTES", [1])], [b"\1\0"]), "INVALID_ARGUMENT", "incomplete string length indicator"),
    (request("identity", [INT32]), "INVALID_ARGUMENT",
     "unable to find data for input tensor 'INT32' for model 'identity' in request."),
    (request("identity", [INT32, ("INT8", "INT8", [1])], FOUR), "INVALID_ARGUMENT",
     "unable to find data for input tensor 'INT8' for model 'identity' in request."),
    (request("identity", [(*INT32, {"int_contents": [1]})], FOUR), "INVALID_ARGUMENT",
     "contents field must not be specified when using raw_input_contents for 'INT32' for model 'identity'"),
    (request("identity", [(*INT32, {})], FOUR), "INVALID_ARGUMENT", "contents field must not be specified"),
    (request("identity", [(*INT32, {"fp32_contents": [1]})]), "INVALID_ARGUMENT",
     "unexpected explicit tensor data for input tensor 'INT32' for model 'identity' of type 'FP32', expected datatype "
     "'INT32'"),
    (request("identity", [("FP16", "FP16", [1], {"fp32_contents": [1]})]), "INVALID_ARGUMENT",
     "of type 'FP32', expected datatype 'FP16'"),
    (request("identity", [(*INT32, {"int_contents": [1], "int64_contents": [1]})]), "INVALID_ARGUMENT",
     "unexpected explicit tensor data for input tensor 'INT32' for model 'identity', binary data was already supplied."),
    (request("identity", [(*INT32, {"int_contents": [1, 2]})]), "INVALID_ARGUMENT", "Expected 4, got 8"),
    (request("identity", [INT32], FOUR, [("NOBODY",)]), "INVALID_ARGUMENT",
     "unexpected inference output 'NOBODY' for model 'identity'"),
    (request("identity", [INT32], FOUR, [("INT32",), ("INT32",)]), "INVALID_ARGUMENT",
     "output 'INT32' already exists in request"),
    (request("identity", [INT32], FOUR, [("INT32", {"classification": 0})]), "INVALID_ARGUMENT",
     "invalid value for 'classification' parameter, expected >= 0"),
    (request("identity", [INT32], FOUR, [("INT32", {"classification": "2"})]), "INVALID_ARGUMENT",
     "invalid value type for 'classification' parameter"),
    (request("identity", [INT32], FOUR, sequence_id=True), "INVALID_ARGUMENT",
     "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."),
    (request("identity", [INT32], FOUR, sequence_id=("uint64_param", 5)), "INVALID_ARGUMENT",
     "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."),
    (request("identity", [INT32], FOUR, sequence_start=1), "INVALID_ARGUMENT",
     "invalid value type for 'sequence_start' parameter, expected bool_param."),
    (request("identity", [INT32], FOUR, sequence_end="true"), "INVALID_ARGUMENT",
     "invalid value type for 'sequence_end' parameter, expected bool_param."),
    (request("identity", [INT32], FOUR, priority=-1), "INVALID_ARGUMENT",
     "invalid value for 'priority', expected value >= 0."),
    (request("identity", [INT32], FOUR, priority="1"), "INVALID_ARGUMENT",
     "invalid value type for 'priority' parameter, expected int64_param or uint64_param."),
    (request("identity", [INT32], FOUR, timeout=("uint64_param", 5)), "INVALID_ARGUMENT",
     "invalid value type for 'timeout' parameter, expected int64_param."),
    (request("identity", [INT32], FOUR, triton_enable_empty_final_response=1), "INVALID_ARGUMENT",
     "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."),
    (request("identity", [INT32], FOUR, triton_other=True), "INVALID_ARGUMENT",
     "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
     "'triton_' are allowed: triton_enable_empty_final_response"),
    (request("identity", [INT32], FOUR, mine=("uint64_param", 5)), "INVALID_ARGUMENT",
     "invalid value type for 'mine' parameter, expected int64_param, bool_param, or string_param."),
    (request("identity", [(f"I{i}", "INT32", [1]) for i in range(300)]), "INVALID_ARGUMENT", "300 inputs"),
    (request("identity", [INT32], FOUR, **{f"p{i}": i for i in range(2000)}), "INVALID_ARGUMENT", "2000 parameters"),
]


@pytest.mark.parametrize("message, code, says", WRONG, ids=range(len(WRONG)))
def test_wrong_requests_get_the_protocols_words(shared, channel, message, code, says):
    """Each mistake has its code and its text, as the status of a call and in a stream, which continues."""
    connection = channel(shared)
    error = refused(stub_of(connection).ModelInfer, message, timeout=limit(30))
    assert (error.code().name, says in error.details()) == (code, True), error.details()
    stream = Stream(connection)
    answer = stream.ask(message)
    assert answer.error_message == error.details()
    assert answer.infer_response == service_pb2.ModelInferResponse(id=message.id)
    assert numbers(stream.ask(request("identity", [INT32], FOUR)).infer_response) == [1]
    stream.half_close()


def test_bytes_that_are_no_request(same, channel):
    connection = channel(same)
    call = connection.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    for raw in (b"\x0a", b"\x0a\x05ab", b"\x2a\x03\x1a\x05\x01", b"\x0a\x02\xff\xfe", b"\xff" * 20):
        error = refused(call, raw, timeout=limit(30))
        assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), error
    assert numbers(stub_of(connection).ModelInfer(request("identity", [INT32], FOUR))) == [1]


def test_parameters_of_all_kinds_are_taken(same, channel):
    """Custom parameters are accepted, the last of two with one name, and those that the C++ client adds to every
    request."""
    message = request("identity", [INT32], FOUR * 3, mine=5, text="x", flag=True, share=("double_param", 0.5),
                      priority=("uint64_param", 2), timeout=5, triton_enable_empty_final_response=True)
    twice = message.SerializeToString() + request("", mine=("int64_param", 7)).SerializeToString()
    call = channel(same).unary_unary("/inference.GRPCInferenceService/ModelInfer",
                                     response_deserializer=service_pb2.ModelInferResponse.FromString)
    answer = call(twice, timeout=limit(30))
    assert numbers(answer) == [1] and not answer.parameters


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests(same, algorithm):
    values = np.zeros([100_000], np.float32)
    with client_of(same) as client:
        answer = client.infer("identity", [tensor("FP32", values, "FP32")], compression_algorithm=algorithm)
    assert answer.as_numpy("FP32").tobytes() == values.tobytes()


def test_a_handlers_failure_has_its_words(server):
    model = Model("bad", 'return { api = 1, handle = function() error("no luck") end }',
                  "inputs: [{name: X, dataType: INT8, dims: [1]}]\noutputs: [{name: Y, dataType: INT8, dims: [1]}]\n",
                  stateful=False)
    with client_of(server(model)) as client:
        with pytest.raises(InferenceServerException, match="no luck"):
            client.infer("bad", [tensor("X", np.array([1], np.int8), "INT8")])


def test_a_model_without_tensors_is_no_v2_model(server):
    plain = Model("plain", stateful=True)
    with client_of(server(plain)) as client:
        with pytest.raises(InferenceServerException, match="declares no inputs and outputs") as error:
            client.infer("plain", [tensor("X", np.array([1], np.int8), "INT8")])
    assert error.value.status() == "StatusCode.INVALID_ARGUMENT"


# --- asynchronous calls, deadlines, cancellation


def test_async_infer(sums):
    """Many calls run at once, each with its callback."""
    results = {}
    done = threading.Event()

    def on_done(name, result, error):
        results[name] = error or result.as_numpy("OUTPUT").tolist()
        if len(results) == 50:
            done.set()

    with client_of(sums) as client:
        for name in range(1, 51):
            client.async_infer("accumulator", [tensor("INPUT", np.array([name], np.int32), "INT32")],
                               lambda result, error, name=name: on_done(name, result, error),
                               sequence_id=name, sequence_start=True)
        assert done.wait(limit(30))
    assert results == {name: [name] for name in range(1, 51)}


def test_a_clients_timeout_cancels_its_request(sums):
    """The job leaves the queue when its client stops waiting."""
    one = [tensor("INPUT", np.array([1], np.int32), "INT32")]
    with client_of(sums) as client:
        client.infer("accumulator", one, sequence_id=5, sequence_start=True)
        with sums.hold():
            with pytest.raises(InferenceServerException, match="(?i)deadline.exceeded"):
                client.infer("accumulator", one, sequence_id=5, client_timeout=0.3)
            context = client.async_infer("accumulator", one, lambda result, error: None, sequence_id=6,
                                         sequence_start=True)
            context.cancel()
            expect(lambda: sums.outstanding("accumulator") <= 4, "waiting requests are cancelled")
        expect(lambda: sums.outstanding("accumulator") == 0, "nothing is left")
        assert client.infer("accumulator", one, sequence_id=9, sequence_start=True).as_numpy("OUTPUT").tolist() == [1]


def test_aio(sums):
    """The asyncio client makes calls, a stream and an error."""
    async def run():
        async with triton_aio.InferenceServerClient(sums.grpc) as client:
            assert await client.is_server_live() and await client.is_model_ready("accumulator")
            answers = await asyncio.gather(*(
                client.infer("accumulator", [tensor("INPUT", np.array([name], np.int32), "INT32")], sequence_id=name,
                             sequence_start=True) for name in range(1, 21)))
            assert [answer.as_numpy("OUTPUT").tolist() for answer in answers] == [[name] for name in range(1, 21)]

            async def requests_of():
                for value in range(1, 11):
                    yield {"model_name": "accumulator", "sequence_id": "aio", "sequence_start": value == 1,
                           "sequence_end": value == 10, "request_id": str(value),
                           "inputs": [tensor("INPUT", np.array([value], np.int32), "INT32")]}

            got = []
            async for result, error in client.stream_infer(requests_of()):
                assert error is None
                got.append((result.get_response().id, result.as_numpy("OUTPUT").tolist()))
            assert got == [(str(n), [n * (n + 1) // 2]) for n in range(1, 11)]
            with pytest.raises(InferenceServerException, match="unknown model"):
                await client.infer("nobody", [tensor("INPUT", np.array([1], np.int32), "INT32")])

    asyncio.run(run())


# --- reflection


def fields_of(message):
    return [(f.name, f.number, f.type, f.is_repeated) for f in message.fields]


def test_reflection_describes_the_protocols_messages(sums, channel):
    """Everything in our files is in tritonclient's, too, with the same names, numbers and types."""
    file = reflected(channel(sums), "inference.GRPCInferenceService")("ModelInferRequest").DESCRIPTOR.file
    theirs = service_pb2.DESCRIPTOR
    for service in file.services_by_name.values():
        for method in service.methods:
            other = theirs.services_by_name[service.name].methods_by_name[method.name]
            assert (method.input_type.full_name, method.output_type.full_name) == (
                other.input_type.full_name, other.output_type.full_name)
    messages = {**file.message_types_by_name, **file.dependencies[0].message_types_by_name}
    others = {**theirs.message_types_by_name, **theirs.dependencies[0].message_types_by_name}
    assert len(messages) > 50
    for name, message in messages.items():
        left, right = [message], [others[name]]
        while left:
            ours, other = left.pop(), right.pop()
            assert set(fields_of(ours)) <= set(fields_of(other)), ours.full_name
            for nested in ours.nested_types:
                left.append(nested)
                right.append(other.nested_types_by_name[nested.name])


def test_the_parameter_sequence_step_numbers_a_step(sums, channel):
    """It is an int64_param: the next number is done, the last one is answered again, and others are refused."""
    asking = stub_of(channel(sums))
    assert numbers(asking.ModelInfer(step("accumulator", 5, 31, sequence_start=True, sequence_step=1))) == [5]
    for replayed in (None, "true"):
        answer, call = asking.ModelInfer.with_call(step("accumulator", 6, 31, sequence_step=2))
        head = dict(call.initial_metadata())
        assert numbers(answer) == [11] and head["continuo-sequence-step"] == "2"
        assert head.get("continuo-replayed") == replayed
    error = refused(asking.ModelInfer, step("accumulator", 7, 31, sequence_step=4))
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert dict(error.initial_metadata())["continuo-expected-step"] == "3"
    for none in (0, -1, "3"):
        error = refused(asking.ModelInfer, step("accumulator", 7, 31, sequence_step=none))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "sequence_step" in error.details(), error
