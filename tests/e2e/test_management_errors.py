"""Management's error catalogue: a row, a test; status, type and message as TorchServe's clients know them."""

import threading

import pytest

from models import Model, counter, stateless
from waiting import expect

NOT_FOUND = "ModelNotFoundException"
NO_VERSION = "ModelVersionNotFoundException"
BAD = "BadRequestException"

CATALOGUE = [
    ("POST", "/models", 400, BAD, "Parameter url is required."),
    ("POST", "/models?url=", 404, NOT_FOUND, "empty url"),
    ("POST", "/models?url=none.mar", 404, NOT_FOUND, "Model not found at: none.mar"),
    ("POST", "/models?url=ftp://h/none.mar", 404, NOT_FOUND,
     "Model not found at: ftp://h/none.mar (this server loads from its model store, local paths, file://, http:// "
     "and https://)"),
    ("POST", "/models?url=../a.mar", 404, NOT_FOUND, "Relative path is not allowed in url: ../a.mar"),
    ("POST", "/models?url=broken.mar", 400, "InvalidModelException", None),
    ("POST", "/models?url=one-1.0.mar&model_name=a%2Fb", 400, "InvalidModelException",
     "the name of a model may not contain slashes, quotes, spaces or control characters"),
    ("POST", "/models?url=one-1.0.mar&model_name=%C3%28", 400, "InvalidModelException",
     "the name of a model must be UTF-8"),
    ("POST", "/models?url=one-1.0.mar&runtime=ruby", 400, BAD,
     "Invalid RuntimeType value: ruby (this server runs lua, c, torch, onnx and python)"),
    ("POST", "/models?url=one-1.0.mar&batch_size=many", 400, BAD,
     'batch_size is "many"; it must be a number from 0 to 2147483647'),
    ("POST", "/models?url=one-1.0.mar", 409, "ConflictStatusException",
     "Model version 1.0 is already registered for model one"),
    ("GET", "/models/nobody", 404, NOT_FOUND, "Model not found: nobody"),
    ("GET", "/models/one/9", 404, NO_VERSION, "Model version: 9 does not exist for model: one"),
    ("PUT", "/models/nobody", 404, NOT_FOUND, "Model not found: nobody"),
    ("PUT", "/models/one/9", 404, NO_VERSION, "Model version: 9 does not exist for model: one"),
    ("PUT", "/models/one?min_worker=2&max_worker=1", 400, BAD, "max_worker cannot be less than min_worker."),
    ("PUT", "/models/one?min_worker=-1", 400, BAD, 'min_worker is "-1"; it must be a number from 0 to 1024'),
    ("PUT", "/models/nobody/1.0/set-default", 404, NOT_FOUND, "Model not found: nobody"),
    ("PUT", "/models/one/9/set-default", 404, NO_VERSION, "Model version 9 does not exist for model one"),
    ("DELETE", "/models/nobody", 404, NOT_FOUND, "Model not found: nobody"),
    ("DELETE", "/models/one/9", 404, NO_VERSION, "Model version: 9 does not exist for model: one"),
    ("DELETE", "/models/one", 403, "InvalidModelVersionException", "Cannot remove default version for model one"),
    ("PATCH", "/models/one", 405, "MethodNotAllowedException",
     "Requested method is not allowed, please refer to API document."),
    ("GET", "/nowhere", 404, "ResourceNotFoundException",
     "Requested resource is not found, please refer to API document."),
]


@pytest.fixture
def catalogue_server(server):
    s = server(start=False)
    first, second = s.pack(stateless("one", minWorkers=0)), s.pack(stateless("one", version="2.0", minWorkers=0))
    s.models = [first.name, second.name]
    (s.store / "broken.mar").write_bytes(b"this is no archive")
    return s.start()


@pytest.mark.parametrize("method, path, status, kind, message", CATALOGUE)
def test_the_catalogue(catalogue_server, method, path, status, kind, message):
    """Each error has TorchServe's status, type and message, and Continuo's error word for programs."""
    answer = catalogue_server.admin().request(method, path)
    assert (answer.status, answer.json["code"], answer.json["type"]) == (status, status, kind), answer
    assert message is None or answer.message == message, answer
    assert answer.error
    assert list(answer.json) == ["code", "type", "message"] and answer.text.endswith("}\n")


def test_a_model_whose_workers_fail_is_unregistered_again(server):
    """A synchronous call gets 500 with TorchServe's message and the reason, and nothing is left."""
    s = server()
    answer = s.register(Model("sick", "error('out of order')"))
    assert (answer.status, answer.json["type"], answer.error) == (500, "InternalServerException", "load_failed")
    assert answer.message.startswith("Failed to start workers for model sick version: 1.0")
    assert "out of order" in answer.message
    assert s.admin().get("/models/sick").status == 404
    assert s.register(Model("sick", "error('out of order')"), synchronous="false").status == 202


def test_parameters_without_meaning_are_accepted(server):
    """These are number_gpu and timeout of scaling, and s3_sse_kms and TorchServe's runtimes of registering."""
    s = server()
    answer = s.register(counter(), s3_sse_kms="true", runtime="python3")
    assert answer.status == 200, answer
    answer = s.admin().put("/models/counter?min_worker=2&number_gpu=1&timeout=3&synchronous=true")
    assert answer.json == {"status": "Workers scaled to 2 for model: counter"}
    answer = s.admin().put("/models/counter/1.0?min_worker=1&synchronous=true")
    assert answer.json == {"status": "Workers scaled to 1 for model: counter, version: 1.0"}


def test_a_scaling_overtaken_by_another_says_so(server):
    """206 for a synchronous call whose workers are not all up when another call changes the number."""
    slow = "local M = {}\nfunction M.load() for i = 1, 40000000 do end end\nfunction M.handle() return 'x' end\nreturn M"
    s = server(stateless("slow", slow, minWorkers=0))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(s.admin().put("/models/slow?min_worker=4&synchronous=true")))
    waiting.start()
    expect(lambda: len(s.workers("slow")) == 4, "the workers to be started")
    assert s.admin().put("/models/slow?min_worker=0&synchronous=true").status == 200
    waiting.join(30)
    assert (answers[0].status, answers[0].json) == (206, {"status": "Workers scaling in progress..."})
