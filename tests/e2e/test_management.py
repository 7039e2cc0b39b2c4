"""The management API behaves like TorchServe's."""

import json

import pytest

from client import curl
from models import Model, counter, stateless


def test_register_says_how_many_workers(server):
    """Scripts look for this text."""
    s = server()
    assert s.register(counter(minWorkers=2, maxWorkers=2)).json == {
        "status": 'Model "counter" Version: 1.0 registered with 2 initial workers'}
    assert s.client().step("counter", "a", 2).text == "2"


def test_register_without_workers_says_what_to_do(server):
    """The number is 0 by minWorkers: 0, or by initial_workers=0."""
    s = server()
    answer = s.register(counter(minWorkers=0, maxWorkers=0))
    assert answer.json == {"status": 'Model "counter" Version: 1.0 registered with 0 initial workers. '
                                     'Use scale workers API to add workers for the model.'}
    assert s.client().step("counter", "a", 2).status == 503
    assert s.admin().put("/models/counter?min_worker=1&synchronous=true").json == {
        "status": "Workers scaled to 1 for model: counter"}
    assert s.client().step("counter", "a", 2).text == "2"


def test_register_by_json_body(server):
    """The names are the same as in the query."""
    s = server()
    path = s.pack(counter())
    answer = s.admin().post("/models", json.dumps({"url": path.name, "model_name": "renamed"}),
                            headers={"Content-Type": "application/json"})
    assert answer.status == 200, answer
    assert s.client().step("renamed", "a", 2).text == "2"
    answer = s.admin().post("/models", json.dumps({"url": path.name, "batch_size": 2.5}),
                            headers={"Content-Type": "application/json"})
    assert (answer.status, answer.message) == (400, "batch_size must be a string, a whole number or a boolean")


def test_register_can_return_before_the_workers_are_up(server):
    """The answer is 202 with the usual text."""
    s = server()
    answer = s.register(counter(), synchronous="false")
    assert (answer.status, answer.json) == (202, {"status": "Processing worker updates..."})
    s.expect_ready("counter", 1)


def test_the_same_version_twice_is_a_conflict(server):
    """The first one continues to serve."""
    s = server(counter())
    answer = s.register(counter())
    assert answer.status == 409
    assert answer.json == {"code": 409, "type": "ConflictStatusException",
                           "message": "Model version 1.0 is already registered for model counter"}
    assert s.client().step("counter", "a", 2).text == "2"


def test_register_without_url_says_so(server):
    """The answer is 400."""
    s = server()
    answer = s.admin().post("/models")
    assert (answer.status, answer.message) == (400, "Parameter url is required.")


def test_describe_shows_settings_workers_queue_and_sequences(server):
    """The description shows what an operator needs first."""
    s = server(counter(minWorkers=2, maxWorkers=3, batchSize=5, sequenceMaxIdleMSec=70_000, maxNumSequence=99))
    client = s.client()
    for i in range(4):
        client.step("counter", f"s{i}", 1)
    s.expect_ready("counter", 2)
    model = s.describe("counter")
    expected = {"modelName": "counter", "modelVersion": "1.0", "minWorkers": 2, "maxWorkers": 3, "batchSize": 5,
                "sequenceMaxIdleMSec": 70_000, "maxNumSequence": 99, "stateful": True, "liveSequences": 4,
                "loadedAtStartup": True}
    assert {key: model.get(key) for key in expected} == expected
    assert model["jobQueueStatus"]["pendingRequests"] == 0
    for worker in model["workers"]:
        assert worker["status"] == "READY" and worker["pid"] > 1 and worker["restarts"] == 0
        assert worker["memoryUsage"] > 100_000
        assert worker["startTime"].endswith("Z")
    # TorchServe's order of the first members, for people who read it
    assert list(model)[:4] == ["modelName", "modelVersion", "modelUrl", "runtime"]


def test_list_is_sorted_and_comes_in_pages(server):
    """The parameters are limit and next_page_token."""
    s = server(stateless("c"), stateless("a"), stateless("b"))
    everything = s.admin().get("/models").json
    assert [m["modelName"] for m in everything["models"]] == ["a", "b", "c"]
    page = s.admin().get("/models?limit=2").json
    assert [m["modelName"] for m in page["models"]] == ["a", "b"]
    rest = s.admin().get(f"/models?limit=2&next_page_token={page['nextPageToken']}").json
    assert [m["modelName"] for m in rest["models"]] == ["c"]


def test_unknown_models_and_paths(server):
    """The answer is 404 with TorchServe's types."""
    s = server(counter())
    admin = s.admin()
    answer = admin.get("/models/nobody")
    assert (answer.status, answer.message) == (404, "Model not found: nobody")
    answer = admin.get("/models/counter/9.9")
    assert (answer.status, answer.message) == (404, "Model version: 9.9 does not exist for model: counter")
    assert admin.get("/nowhere").status == 404
    assert admin.put("/models/nobody?min_worker=1").status == 404
    assert admin.put("/models/counter/9.9/set-default").message == "Model version 9.9 does not exist for model counter"


@pytest.mark.parametrize("method, path", [("PATCH", "/models"), ("POST", "/models/counter"), ("DELETE", "/models")])
def test_a_wrong_method_is_405(server, method, path):
    """The type and the message are TorchServe's."""
    s = server(counter())
    answer = s.admin().request(method, path)
    assert (answer.status, answer.json["type"]) == (405, "MethodNotAllowedException"), answer


def test_ping_tells_health(server):
    """The server is healthy when the workers are up, and unhealthy when a model has fewer than its minimum."""
    s = server(counter())
    answer = s.client().get("/ping")
    assert (answer.status, answer.json) == (200, {"status": "Healthy"})


def test_every_answer_names_its_request(server):
    """x-request-id helps to find a request in logs."""
    s = server(counter())
    client = s.client()
    ids = {client.step("counter", "a", 1).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3 and all(ids)


def test_models_in_two_ways_of_the_command_line(server):
    """--models accepts NAME=FILE and FILE."""
    s = server(start=False)
    first, second = s.pack(counter()), s.pack(stateless())
    s.models = [f"renamed={first.name}", second.name]
    s.start()
    client = s.client()
    assert client.step("renamed", "a", 3).text == "3"
    assert client.post("/predictions/echo", b"hi").body == b"hi"


def test_a_unix_socket_serves_too(server, transcript, folder):
    """A Unix socket is for clients on the same machine: it has no port, and file permissions guard it."""
    path = folder / "inference.sock"
    server(counter(), flags=["--inference-address", f"unix:{path}"])
    headers, body = curl(transcript, "--unix-socket", str(path), "http://localhost/predictions/counter", "-d", "5")
    assert headers.startswith("HTTP/1.1 200") and body == "5"


DESCRIBING_LUA = """
local M = { api = 1 }

function M.step(state, req)
    return "answer"
end

function M.describe()
    return { labels = { "cat", "dog" }, input = { size = 224 } }
end

return M
"""


def test_describe_asks_the_handler_when_told_to(server):
    """With customized=true the description has what the handler's describe() returns. For a stateful model no sequence
    is opened."""
    s = server(Model("animals", DESCRIBING_LUA), counter())
    answer = s.admin().get("/models/animals?customized=true")
    assert answer.status == 200, answer
    assert answer.json[0]["customizedMetadata"] == {"labels": ["cat", "dog"], "input": {"size": 224}}
    assert answer.json[0]["sequences"]["opened"] == 0
    assert "customizedMetadata" not in s.describe("animals")
    assert s.admin().get("/models/counter?customized=true").json[0]["customizedMetadata"] == {}
    s.admin().put("/models/counter?min_worker=0&synchronous=true")
    answer = s.admin().get("/models/counter?customized=true")
    assert (answer.status, answer.error, answer.message) == (
        503, "no_worker", 'Model "counter" has no worker to serve describe request. '
                          'Please use scale workers API to add workers.')


def test_management_errors_carry_their_word(server):
    """Programs distinguish errors by Continuo-Error, as for inference. A 503 says when to try again."""
    s = server(counter(minWorkers=0, maxWorkers=0))
    admin = s.admin()
    answer = admin.get("/models/nobody")
    assert (answer.status, answer.error, answer.json["type"]) == (404, "model_not_found", "ModelNotFoundException")
    assert admin.post("/models").error == "bad_request"
    assert admin.get("/models").error is None
    answer = admin.get("/models/counter?customized=true")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


def test_the_model_api_can_be_switched_off(server):
    """With --model-api=false register and unregister get 405, and other calls work."""
    s = server(counter(), flags=["--model-api=false"])
    for answer in (s.register_url("counter.mar"), s.admin().delete("/models/counter")):
        assert (answer.status, answer.json["type"], answer.message) == (
            405, "MethodNotAllowedException", "Requested method is not allowed, please refer to API document.")
    assert s.admin().put("/models/counter?min_worker=2&synchronous=true").status == 200
    assert s.client().step("counter", "a", 2).text == "2"


def test_kserve_asks_for_readiness_and_workflows_are_none(server):
    """GET /v1/models/{m} on the management port, and the answers of a server without workflows."""
    s = server(counter())
    s.expect_ready("counter")
    assert s.admin().get("/v1/models/counter").json == {"name": "counter", "ready": True}
    assert s.admin().get("/v1/models/nobody").status == 404
    assert s.admin().get("/workflows").json == {"workflows": []}
    answer = s.admin().post("/workflows?url=a.war")
    assert (answer.status, answer.message) == (400, "Registering new workflows is disabled.")
    answer = s.admin().delete("/workflows/w")
    assert (answer.status, answer.json["type"]) == (404, "WorkflowNotFoundException")
