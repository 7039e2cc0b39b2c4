"""The administrative half of the v2 protocol over gRPC: repository, shared memory, settings, restricted groups."""

import os

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as shm
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from models import Model
from rpc import details, refused
from test_v2_http import accumulator, identity
from test_v2_repository import EXPLICIT, adder, put
from v2rpc import Stream, channel_of, client_of, request, stub_of, tensor
from waiting import expect, limit

VALUES = np.arange(4, dtype=np.int32)


@pytest.fixture
def asking(server):
    """asking(*models, flags=[...]) returns a server, and the service on a channel that is closed at the end."""
    def start(*models, **more):
        s = server(*models, **more)
        opened.append(channel_of(s))
        return s, stub_of(opened[-1])

    opened = []
    yield start
    for channel in opened:
        channel.close()


def says(call, message, code, text, **more):
    error = refused(call, message, timeout=limit(30), **more)
    assert (error.code().name, text in error.details()) == (code, True), error


# --- the repository


def test_a_name_that_is_cut_in_a_message_leaves_the_status_readable(server):
    """google.rpc.Status must be UTF-8, wherever a long name is cut, so that clients can read the reason."""
    s = server(identity())
    values = {"x" + "\u00e9" * 300: service_pb2.TraceSettingRequest.SettingValue(value=["1"])}
    with channel_of(s) as channel:
        error = refused(stub_of(channel).TraceSetting, service_pb2.TraceSettingRequest(settings=values), timeout=limit(10))
    status, _ = details(error)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert status.message == error.details() == "invalid trace setting name: 'x" + "\u00e9" * 127 + "?'"


def test_models_are_loaded_and_unloaded_by_name(server):
    """tritonclient does this, also with a configuration of the client's own."""
    s = server(accumulator(), flags=EXPLICIT)
    put(s, adder(1))
    one = [tensor("X", np.array([1], np.int32), "INT32")]
    with client_of(s) as client:
        names = {m.name: m for m in client.get_model_repository_index().models}
        assert names["adder"].state == "" and names["accumulator"].state == "READY"
        client.load_model("adder")
        assert client.infer("adder", one).as_numpy("Y").tolist() == [2]
        client.load_model("adder", config='{"inputs": [{"name": "X", "dataType": "INT32", "dims": [-1]}], '
                                          '"outputs": [{"name": "Y", "dataType": "INT32", "dims": [1]}]}')
        assert list(client.get_model_metadata("adder").inputs[0].shape) == [-1]
        client.unload_model("adder")
        expect(lambda: {m.name: m.reason for m in client.get_model_repository_index().models}["adder"] == "unloaded",
               "the version is closed")
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'adder'"):
            client.infer("adder", one)
        with pytest.raises(InferenceServerException, match="failed to load 'nobody'") as error:
            client.load_model("nobody")
        assert error.value.status() == "StatusCode.INTERNAL"


def test_load_and_unload_requests_that_are_wrong(asking):
    _, asks = asking(accumulator(), flags=EXPLICIT)
    load, unload = service_pb2.RepositoryModelLoadRequest, service_pb2.RepositoryModelUnloadRequest
    text = service_pb2.ModelRepositoryParameter(string_param="x")
    number = service_pb2.ModelRepositoryParameter(int64_param=1)
    says(asks.RepositoryModelLoad, load(repository_name="r", model_name="m"), "UNIMPLEMENTED",
         "'repository_name' specification is not supported")
    says(asks.RepositoryModelUnload, unload(repository_name="r", model_name="m"), "UNIMPLEMENTED",
         "'repository_name' specification is not supported")
    says(asks.RepositoryModelLoad, load(model_name="m", parameters={"other": text}), "INVALID_ARGUMENT",
         "unrecognized load parameter 'other'.")
    says(asks.RepositoryModelLoad, load(model_name="m", parameters={"config": number}), "INVALID_ARGUMENT",
         "expected string_param")
    says(asks.RepositoryModelLoad, load(model_name="m", parameters={"file:1/a": text}), "UNIMPLEMENTED", "file:1/a")
    says(asks.RepositoryModelUnload, unload(model_name="m", parameters={"unload_dependents": text}),
         "INVALID_ARGUMENT", "expected bool_param")
    says(asks.RepositoryModelLoad, load(model_name="../m"), "INVALID_ARGUMENT", "path traversal")


def test_the_index_of_ready_models(asking):
    """A model of the store that was never loaded is left out."""
    s, asks = asking(accumulator(), flags=EXPLICIT)
    put(s, adder(1))
    ready = asks.RepositoryIndex(service_pb2.RepositoryIndexRequest(ready=True), timeout=limit(30))
    assert [(m.name, m.state) for m in ready.models] == [("accumulator", "READY")]


def test_only_the_explicit_mode_lets_clients_load(asking):
    _, asks = asking(accumulator())
    says(asks.RepositoryModelLoad, service_pb2.RepositoryModelLoadRequest(model_name="m"), "UNAVAILABLE",
         "explicit model load / unload is not allowed")


# --- shared memory


@pytest.fixture
def region():
    """region(bytes) returns the handle and the key of an object in shared memory."""
    made = []

    def make(size):
        key = f"/continuo-grpc-{os.getpid()}-{len(made)}"
        made.append(shm.create_shared_memory_region(f"r{len(made)}", key, size))
        return made[-1], key

    yield make
    for handle in made:
        shm.destroy_shared_memory_region(handle)


@pytest.mark.parametrize("streamed", [False, True])
def test_tensors_in_shared_memory(server, region, streamed):
    """One input and one output are in regions, and another input is raw bytes. The raw entries keep their positions."""
    s = server(identity(), flags=["--allow-client-shm"])
    given, given_key = region(64)
    taken, taken_key = region(64)
    shm.set_shared_memory_region(given, [VALUES], offset=8)
    answers = []
    with client_of(s) as client:
        client.unregister_system_shared_memory()
        client.register_system_shared_memory("in", given_key, 64)
        client.register_system_shared_memory("out", taken_key, 64)
        status = client.get_system_shared_memory_status().regions
        assert {(name, r.name, r.key, r.offset, r.byte_size) for name, r in status.items()} == {
            ("in", "in", given_key, 0, 64), ("out", "out", taken_key, 0, 64)}
        shared = triton.InferInput("INT32", [4], "INT32")
        shared.set_shared_memory("in", 16, 8)
        wanted = triton.InferRequestedOutput("INT32")
        wanted.set_shared_memory("out", 32, 4)
        inputs = [shared, tensor("FP64", np.array([0.5]), "FP64")]
        outputs = [wanted, triton.InferRequestedOutput("FP64")]
        if streamed:
            client.start_stream(lambda result, error: answers.append(error or result))
            client.async_stream_infer("identity", inputs, outputs=outputs)
            client.stop_stream()
        else:
            answers.append(client.infer("identity", inputs, outputs=outputs))
        assert answers[0].as_numpy("FP64").tolist() == [0.5]
        response = answers[0].get_response()
        raw = dict(zip((output.name for output in response.outputs), response.raw_output_contents))
        assert raw["INT32"] == b"" and len(raw) == 2
        assert shm.get_contents_as_numpy(taken, np.int32, [4], offset=4).tolist() == VALUES.tolist()
        client.unregister_system_shared_memory("in")
        assert list(client.get_system_shared_memory_status().regions) == ["out"]
        with pytest.raises(InferenceServerException, match="Unable to find system shared memory region: 'in'") as error:
            client.get_system_shared_memory_status("in")
        assert error.value.status() == "StatusCode.NOT_FOUND"
        with pytest.raises(InferenceServerException, match="'out' already in manager") as error:
            client.register_system_shared_memory("out", taken_key, 64)
        assert error.value.status() == "StatusCode.ALREADY_EXISTS"


def test_shared_memory_is_off_by_default(server):
    """Status still works, but nothing can be registered."""
    with client_of(server(identity())) as client:
        assert not client.get_system_shared_memory_status().regions
        with pytest.raises(InferenceServerException, match="Client shared memory is disabled") as error:
            client.register_system_shared_memory("r", "/nothing", 8)
        assert error.value.status() == "StatusCode.UNIMPLEMENTED"


NAMED = {"shared_memory_region": "r", "shared_memory_byte_size": 4}


@pytest.mark.parametrize("inputs, outputs, code, text", [
    ([("INT32", "INT32", [1], None, NAMED)], [], "NOT_FOUND", "Unable to find shared memory region: 'r'"),
    ([("INT32", "INT32", [1], None, {"shared_memory_region": "r"})], [], "INVALID_ARGUMENT",
     "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'INT32'"),
    ([("INT32", "INT32", [1], None, {**NAMED, "shared_memory_offset": "1"})], [], "INVALID_ARGUMENT",
     "invalid value type for 'shared_memory_offset' parameter for tensor 'INT32', expected int64_param."),
    ([("INT32", "INT32", [1], None, {**NAMED, "shared_memory_region": 1})], [], "INVALID_ARGUMENT",
     "invalid value type for 'shared_memory_region' parameter for tensor 'INT32', expected string_param."),
    ([("INT32", "INT32", [1], {"int_contents": [1]}, NAMED)], [], "INVALID_ARGUMENT",
     "unexpected 'content' provided when using shared memory for input tensor 'INT32' for model 'identity'"),
    ([("INT32", "INT32", [1], {"int_contents": [1]})], [("INT32", {**NAMED, "classification": 1})],
     "INVALID_ARGUMENT", "Output can't set both 'shared_memory_region' and 'classification'"),
    ([("INT32", "INT32", [1], {"int_contents": [1]})], [("INT32", NAMED)], "NOT_FOUND",
     "Unable to find shared memory region: 'r'"),
])
def test_places_in_shared_memory_that_are_wrong(asking, inputs, outputs, code, text):
    _, asks = asking(identity(), flags=["--allow-client-shm"])
    says(asks.ModelInfer, request("identity", inputs, outputs=outputs), code, text)


# --- settings


def test_log_settings(server):
    """They are shown, changed and refused as over HTTP."""
    with client_of(server(accumulator())) as client:
        settings = client.get_log_settings().settings
        assert settings["log_info"].bool_param is True and settings["log_verbose_level"].uint32_param == 0
        assert settings["log_format"].string_param == "ISO8601" and settings["log_file"].string_param == ""
        changed = client.update_log_settings({"log_verbose_level": 1, "log_warning": False}).settings
        assert changed["log_verbose_level"].uint32_param == 1 and changed["log_warning"].bool_param is False
        assert client.get_log_settings().settings["log_verbose_level"].uint32_param == 1
        with pytest.raises(InferenceServerException) as error:
            client.update_log_settings({"log_file": "/tmp/x"})
        assert error.value.status() == "StatusCode.UNIMPLEMENTED"
        with pytest.raises(InferenceServerException, match="nobody"):
            client.update_log_settings({"nobody": True})


def test_trace_settings(server):
    """They apply to all models or to one. A setting without values is removed."""
    s = server(accumulator())
    with client_of(s) as client:
        assert list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"]
        client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
        own = client.update_trace_settings("accumulator", {"trace_rate": "7"}).settings
        assert list(own["trace_rate"].value) == ["7"] and list(own["trace_level"].value) == ["TIMESTAMPS"]
        assert list(client.get_trace_settings().settings["trace_rate"].value) == ["1"]
        assert list(client.update_trace_settings("accumulator", {"trace_rate": None}).settings["trace_rate"].value) == ["1"]
        client.infer("accumulator", [tensor("INPUT", np.array([1], np.int32), "INT32")], sequence_id=1,
                     sequence_start=True, request_id="traced-1")
        s.expect_log("event=trace", "traced-1")
        for wrong, text in (({"nobody": "1"}, "nobody"), ({"trace_rate": "x"}, "x")):
            with pytest.raises(InferenceServerException, match=text):
                client.update_trace_settings(settings=wrong)
        with pytest.raises(InferenceServerException, match="Request for unknown model"):
            client.get_trace_settings("nobody")


# --- who may do what


def test_a_restricted_group_asks_for_its_metadata(asking):
    """Each group has its own key, and other groups stay open."""
    s, asks = asking(identity(), flags=["--grpc-restricted-protocol", "inference,model-repository:key=secret"])
    asked = request("identity", [("INT32", "INT32", [1])], [b"\1\0\0\0"])
    text = "This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
    says(asks.ModelInfer, asked, "UNAVAILABLE", text)
    says(asks.RepositoryIndex, service_pb2.RepositoryIndexRequest(), "UNAVAILABLE", text)
    says(asks.ModelInfer, asked, "UNAVAILABLE", text, metadata=(("triton-grpc-protocol-key", "wrong"),))
    assert asks.ServerLive(service_pb2.ServerLiveRequest(), timeout=limit(30)).live
    metadata = (("triton-grpc-protocol-key", "secret"),)
    assert asks.ModelInfer(asked, metadata=metadata, timeout=limit(30)).model_name == "identity"
    with channel_of(s) as channel:
        error = refused(Stream(channel).send(asked).half_close().rest)
    assert error.code() == grpc.StatusCode.UNAVAILABLE and error.details() == text


def test_metadata_goes_on_as_parameters(asking):
    """Metadata that match the pattern become parameters. A name of the protocol is refused."""
    lua = """
return { api = 1, handle = function(req)
    local text = tostring(req.parameters["my-tenant"])
    return { outputs = { Y = { datatype = "BYTES", shape = { 1 }, data = { text } } } }
end }
"""
    yaml = "inputs: [{name: X, dataType: INT8, dims: [1]}]\noutputs: [{name: Y, dataType: BYTES, dims: [1]}]\n"
    _, asks = asking(Model("tells", lua, yaml, stateful=False), flags=["--grpc-header-forward-pattern", "^my-|^timeout$"])
    asked = request("tells", [("X", "INT8", [1])], [b"\1"])
    answer = asks.ModelInfer(asked, metadata=(("my-tenant", "blue"),), timeout=limit(30))
    assert answer.raw_output_contents[0] == b"\4\0\0\0blue"
    says(asks.ModelInfer, asked, "INVALID_ARGUMENT", "timeout", metadata=(("timeout", "5"),))
