"""TorchServe's errors for inference (--torchserve-errors), one test for each: status, type, message."""

import os
import signal

import pytest
import requests

from client import RawClient
from models import Model, counter, stateless
from waiting import expect

NO_WORKER = ("{} has no worker to serve inference request. Please use scale workers API to add workers. If this is "
             "a sequence inference, please check if it is closed, or expired; or exceeds maxSequenceJobQueueSize")

MOODY_LUA = """
return { api = 1, handle = function(req)
    if req.body == "raise" then error("no such thing") end
    if req.body == "refuse" then return nil, "say please", 418 end
    if req.body == "function" then return { json = print } end
    if req.body == "nothing" then return nil end
    if req.body == "memory" then local t = {} while true do t[#t + 1] = ("x"):rep(100000) .. #t end end
    return { text = "fine" }
end }
"""


@pytest.fixture
def moody(server):
    return server(Model("moody", MOODY_LUA, {"handler": {"limits": {"memoryBytes": 8000000}}}, stateful=False),
                  flags=["--torchserve-errors", "--max-request-size", "2000"])


def same(answer, status, kind, message):
    assert answer.status == status, answer
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.text == f'{{\n  "code": {status},\n  "type": "{kind}",\n  "message": {quoted(message)}\n}}\n'
    assert list(answer.json) == ["code", "type", "message"]


def quoted(text):
    return '"' + text.replace('"', '\\"') + '"'


@pytest.mark.parametrize("path, status, kind, message", [
    ("/predictions/nobody", 404, "ModelNotFoundException", "Model not found: nobody"),
    ("/explanations/nobody", 404, "ModelNotFoundException", "Model not found: nobody"),
    ("/v1/models/nobody:predict", 404, "ModelNotFoundException", "Model not found: nobody"),
    ("/invocations?model_name=nobody", 404, "ModelNotFoundException", "Model not found: nobody"),
    ("/predictions/moody/7", 404, "ModelVersionNotFoundException",
     "Model version: 7 does not exist for model: moody"),
    ("/predictions", 404, "ResourceNotFoundException",
     "Requested resource is not found, please refer to API document."),
    ("/no/where/at/all", 404, "ResourceNotFoundException",
     "Requested resource is not found, please refer to API document."),
    ("/models/moody/other", 404, "ResourceNotFoundException",
     "Requested resource is not found, please refer to API document."),
    ("/wfpredict/dogs", 404, "WorkflowNotFoundException", "Workflow not found: dogs"),
])
def test_what_is_not_there(moody, path, status, kind, message):
    """The answer is 404, and the type says what was not found."""
    same(moody.client().post(path, b"x"), status, kind, message)


def test_a_path_of_another_port_is_told_its_place(server):
    """Newcomers often make this mistake. The message names the API and the option with its address."""
    s = server()
    for port, path, place in [("inference", "/models", "management"), ("inference", "/metrics", "metrics"),
                              ("management", "/ping", "inference"), ("management", "/v2/health/ready", "inference"),
                              ("management", "/metrics", "metrics"), ("metrics", "/predictions/one", "inference")]:
        answer = requests.get(getattr(s, port) + path, timeout=10)
        assert answer.status_code == 404, (port, path)
        message = answer.json()["error" if path.startswith("/v2") else "message"]
        assert message.startswith("Requested resource is not found, please refer to API document. It belongs to the "
                                  f"{place} API: port "), (port, path)
        assert f"--{place}-address" in message
    for port in "inference", "management", "metrics":
        answer = requests.get(getattr(s, port) + "/nowhere", timeout=10)
        assert answer.json()["message"] == "Requested resource is not found, please refer to API document."


def test_no_model_name(server):
    """This is /invocations with several models."""
    s = server(stateless("one"), stateless("two"), flags=["--torchserve-errors"])
    same(s.client().post("/invocations", b"x"), 400, "BadRequestException", "Parameter model_name is required.")


@pytest.mark.parametrize("body, status, message", [
    (b"raise", 503, "Prediction failed"),
    (b"refuse", 418, "say please"),
    (b"function", 503, "Prediction failed"),
    (b"memory", 507, "Out of resources"),
])
def test_what_handlers_do(moody, body, status, message):
    """A handler's error says no more than in TorchServe. A refusal has the handler's own message."""
    client = moody.client()
    answer = client.post("/predictions/moody", body)
    same(answer, status, "InternalServerException", message)
    assert "Retry-After" not in answer.headers  # a handler's bug is the same a second later
    assert client.post("/predictions/moody", b"x").text == "fine"


def test_no_worker(moody):
    """The message names the model, and the version if the client named one (with TorchServe's stray quotation mark)."""
    moody.admin().put("/models/moody?min_worker=0&synchronous=true")
    client = moody.client()
    same(client.post("/predictions/moody", b"x"), 503, "ServiceUnavailableException",
         NO_WORKER.format('Model "moody"'))
    same(client.post("/invocations", b"x"), 503, "ServiceUnavailableException", NO_WORKER.format('Model "moody"'))
    same(client.post("/predictions/moody/1.0", b"x"), 503, "ServiceUnavailableException",
         NO_WORKER.format('Model "moody" Version 1.0"'))


def test_full_queues_and_closed_sequences(server):
    """Everything that TorchServe refuses for lack of room gets 503 and the same sentence."""
    s = server(counter(maxSequenceJobQueueSize=1, maxNumSequence=2), flags=["--torchserve-errors"])
    client, refusal = s.client(), NO_WORKER.format('Model "counter"')
    with s.hold():
        raws = [RawClient((client.host, client.port), s.transcript, f"w{i}") for i in range(2)]
        for i, raw in enumerate(raws):
            raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: q\r\n"
                     "Content-Length: 1\r\n\r\n1")
            s.expect_outstanding("counter", i + 1)
        same(client.step("counter", "q", 1), 503, "ServiceUnavailableException", refusal)
    assert [raw.answer().text for raw in raws] == ["1", "2"]
    assert client.step("counter", "r", 1).status == 200
    same(client.step("counter", "s", 1), 503, "ServiceUnavailableException", refusal)
    client.step("counter", "r", 1, headers={"ts_request_sequence_end": "true"})
    s.admin().delete("/models/counter/sequences/q")
    closed = client.step("counter", "q", 1)
    same(closed, 503, "ServiceUnavailableException", refusal)
    assert "Retry-After" not in closed.headers  # waiting a second reopens nothing
    for raw in raws:
        raw.close()


def test_a_body_over_the_limit(moody):
    """The answer is 413 without a body, also to a request with Expect."""
    for extra in ("", "Expect: 100-continue\r\n"):
        raw = moody.raw()
        raw.send(f"POST /predictions/moody HTTP/1.1\r\nHost: t\r\n{extra}Content-Length: 2001\r\n\r\n")
        answer = raw.answer()
        assert (answer.status, answer.body, answer.headers["Content-Length"]) == (413, b"", "0")
        raw.close()


@pytest.mark.parametrize("number, status", [(signal.SIGABRT, 500), (signal.SIGKILL, 507)])
def test_a_worker_that_dies(server, number, status):
    """The worker dies each time that it gets the request, until the request gets an error. SIGKILL counts as lack of
    memory."""
    s = server(stateless(), flags=["--torchserve-errors"])
    raw = s.raw(timeout=60)
    with s.hold():
        raw.send("POST /predictions/echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx")
        dead = set()
        for _ in range(3):  # CN_MAX_ALONE_DEATHS
            pid = expect(lambda: next(iter(set(s.ready_pids("echo")) - dead), None), "a worker", 20)
            expect(lambda: s.describe("echo")["jobQueueStatus"]["inFlight"] == 1, "the worker has the request")
            os.kill(pid, number)
            dead.add(pid)
        same(raw.answer(), status, "InternalServerException", "Worker died.")
    raw.close()


def test_a_worker_that_does_not_answer(server):
    """After responseTimeout the answer is 500 `Worker died.`, and never 408 or 504."""
    s = server(Model("slow", "return { api = 1, handle = function() while true do end end }",
                     {"responseTimeout": 1}, stateful=False), flags=["--torchserve-errors"])
    same(s.client().post("/predictions/slow", b"x"), 500, "InternalServerException", "Worker died.")


def test_by_default_errors_say_more(server):
    """Without the option a full queue gets 429, and the message says why a handler failed."""
    s = server(Model("moody", MOODY_LUA, {}, stateful=False))
    refused = s.client().post("/predictions/moody", b"raise")
    assert refused.status == 500 and "no such thing" in refused.message
    assert "Retry-After" not in refused.headers  # good clients and proxies repeat what is 503
    assert refused.json["type"] == "InternalServerException"
    expect(lambda: s.client().post("/predictions/moody", b"x").text == "fine", "it goes on")
