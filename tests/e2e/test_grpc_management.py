"""ManagementAPIsService: every RPC does the same as the management API over HTTP."""

import json

import grpc
import pytest

from models import counter
from rpc import Rpc, module, refused, word


@pytest.fixture
def admin(server):
    clients = []

    def connect(running):
        client = Rpc(running.grpc_admin)
        clients.append(client)
        return client.management

    yield connect
    for client in clients:
        client.close()


def message(name, **fields):
    return getattr(module("management_pb2"), name)(**fields)


def test_models_are_registered_described_scaled_and_removed(server, admin):
    running = server()
    api = admin(running)
    running.pack(counter())
    done = api.RegisterModel(message("RegisterModelRequest", url="counter-1.0.mar", synchronous=True,
                                     initial_workers=1, batch_size=2, max_batch_delay=5, response_timeout=7,
                                     startup_timeout=30), timeout=60)
    assert done.msg == 'Model "counter" Version: 1.0 registered with 1 initial workers'
    described = json.loads(api.DescribeModel(message("DescribeModelRequest", model_name="counter")).msg)
    assert described == strip(running.admin().get("/models/counter").json, described)
    assert (described[0]["batchSize"], described[0]["maxBatchDelay"], described[0]["responseTimeout"]) == (2, 5, 7)
    scaled = api.ScaleWorker(message("ScaleWorkerRequest", model_name="counter", min_worker=2, max_worker=2,
                                     synchronous=True), timeout=60)
    assert "2" in scaled.msg and "counter" in scaled.msg
    running.expect_ready("counter", 2)
    later = api.ScaleWorker(message("ScaleWorkerRequest", model_name="counter", model_version="1.0", min_worker=1,
                                    max_worker=1, number_gpu=3, timeout=5), timeout=60)
    assert later.msg == "Processing worker updates..."
    gone = api.UnregisterModel(message("UnregisterModelRequest", model_name="counter", model_version="1.0"))
    assert gone.msg == 'Model "counter" unregistered'


def strip(reply, like):
    """Removes what differs between two descriptions by itself."""
    for both in zip(reply, like):
        for one in both:
            for worker in one["workers"]:
                worker.pop("memoryUsage", None)
    return reply


def test_versions_and_the_default_one(server, admin):
    running = server(counter(), counter(version="2.0"))
    api = admin(running)
    every = json.loads(api.DescribeModel(message("DescribeModelRequest", model_name="counter",
                                                 model_version="all")).msg)
    assert sorted(model["modelVersion"] for model in every) == ["1.0", "2.0"]
    default = json.loads(api.DescribeModel(message("DescribeModelRequest", model_name="counter")).msg)
    other = ({"1.0", "2.0"} - {default[0]["modelVersion"]}).pop()
    said = api.SetDefault(message("SetDefaultRequest", model_name="counter", model_version=other)).msg
    assert other in said and "counter" in said
    default = json.loads(api.DescribeModel(message("DescribeModelRequest", model_name="counter")).msg)
    assert default[0]["modelVersion"] == other


def test_lists_have_pages_and_limit_0_is_none(server, admin):
    """TorchServe treats a missing limit as zero models, and its clients rely on it."""
    running = server(counter("m1"), counter("m2"), counter("m3"))
    api = admin(running)
    page = json.loads(api.ListModels(message("ListModelsRequest", limit=2)).msg)
    assert [model["modelName"] for model in page["models"]] == ["m1", "m2"]
    rest = json.loads(api.ListModels(message("ListModelsRequest", limit=2,
                                             next_page_token=int(page["nextPageToken"]))).msg)
    assert [model["modelName"] for model in rest["models"]] == ["m3"]
    none = json.loads(api.ListModels(message("ListModelsRequest")).msg)
    assert none == {"nextPageToken": "0", "models": []}


@pytest.mark.parametrize("rpc, name, fields, code, error", [
    ("DescribeModel", "DescribeModelRequest", {"model_name": "nobody"}, "NOT_FOUND", "model_not_found"),
    ("DescribeModel", "DescribeModelRequest", {}, "INVALID_ARGUMENT", "bad_request"),
    ("DescribeModel", "DescribeModelRequest", {"model_name": "counter", "model_version": "9"}, "NOT_FOUND",
     "version_not_found"),
    ("DescribeModel", "DescribeModelRequest", {"model_name": "counter/1.0"}, "NOT_FOUND", "model_not_found"),
    ("RegisterModel", "RegisterModelRequest", {}, "INVALID_ARGUMENT", "bad_request"),
    ("RegisterModel", "RegisterModelRequest", {"url": "nowhere.mar"}, "NOT_FOUND", "model_not_found"),
    ("RegisterModel", "RegisterModelRequest", {"url": "counter-1.0.mar"}, "ALREADY_EXISTS", "conflict"),
    ("ScaleWorker", "ScaleWorkerRequest", {"model_name": "nobody"}, "NOT_FOUND", "model_not_found"),
    ("ScaleWorker", "ScaleWorkerRequest", {"model_name": "counter", "min_worker": 3, "max_worker": 1},
     "INVALID_ARGUMENT", "bad_request"),
    ("SetDefault", "SetDefaultRequest", {"model_name": "counter"}, "INVALID_ARGUMENT", "bad_request"),
    ("SetDefault", "SetDefaultRequest", {"model_name": "counter", "model_version": "9"}, "NOT_FOUND",
     "version_not_found"),
    ("UnregisterModel", "UnregisterModelRequest", {}, "INVALID_ARGUMENT", "bad_request"),
    ("UnregisterModel", "UnregisterModelRequest", {"model_name": "nobody"}, "NOT_FOUND", "model_not_found"),
])
def test_a_wrong_request_has_its_code(server, admin, rpc, name, fields, code, error):
    api = admin(server(counter()))
    status = refused(getattr(api, rpc), message(name, **fields), timeout=60)
    assert (status.code().name, word(status)) == (code, error), status.details()
    assert status.details()


def test_management_is_not_on_the_inference_port_nor_the_other_way_round(server):
    running = server(counter())
    with Rpc(running.grpc) as inference, Rpc(running.grpc_admin) as management:
        error = refused(inference.management.ListModels, message("ListModelsRequest"), timeout=30)
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED
        assert refused(management.predict, "counter", 1).code() == grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_message_are_refused(server):
    """This includes messages that would need much memory."""
    running = server(counter())
    with Rpc(running.grpc_admin) as client:
        path = "/org.pytorch.serve.grpc.management.ManagementAPIsService/DescribeModel"
        raw = client.channel.unary_unary(path)
        for body in (b"\x0a\x05ab", b"\xff" * 11, b"\x0a\x02\xff\xfe", b"\x0b" * 100_000 + b"\x0c" * 100_000):
            assert refused(raw, body, timeout=10).code().name == "INVALID_ARGUMENT", body
        error = refused(raw, b"\x7a\x00" * 500_000, timeout=10)  # unknown fields are kept by protobuf-c
        assert error.code().name == "RESOURCE_EXHAUSTED"
        assert refused(raw, b"\x0a\x01x" * 100_000, timeout=10).code().name in ("NOT_FOUND", "RESOURCE_EXHAUSTED")
