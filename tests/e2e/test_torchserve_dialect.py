"""The program `torchserve` takes what TorchServe takes, where `continuo` is strict.

tests/differential compares with TorchServe itself. What it found stays held here, without one.
"""

import pytest

from models import stateless

SHOW_LUA = """
local M = { api = 1 }

function M.handle(req)
    return tostring(req.headers.explain) .. " " .. req.parts.body.data
end

return M
"""
START = ("--ncs", "--model-store", "model-store", "--models", "show=show.mar")


@pytest.fixture
def running(torchserve):
    t = torchserve()
    t.pack(stateless("show", SHOW_LUA))
    t.properties("enable_model_api=true\n")
    t.start(*START)
    return t


def test_what_is_no_number_means_the_default(running):
    """Scripts that worked by chance go on working; the description says which values are in force."""
    admin = running.admin()
    for value in ("", "seven", "1.5", "-7", "99999999999"):
        for name, member, default in (("batch_size", "batchSize", 4), ("max_batch_delay", "maxBatchDelay", 0),
                                      ("response_timeout", "responseTimeout", 120),
                                      ("startup_timeout", "startupTimeout", 120),
                                      ("initial_workers", "minWorkers", 1)):
            answer = admin.post(f"/models?url=show.mar&model_name=m&initial_workers=0&{name}={value}"
                                if name != "initial_workers" else f"/models?url=show.mar&model_name=m&{name}={value}")
            assert answer.status == 200, (name, value, answer)
            assert running.describe("m")[member] == default, (name, value)
            assert admin.delete("/models/m").status == 200
    for name in ("response_timeout", "startup_timeout"):
        assert admin.post(f"/models?url=show.mar&model_name=m&initial_workers=0&{name}=0").status == 200
        assert admin.delete("/models/m").status == 200
    assert admin.put("/models/show?min_worker=word&synchronous=true").json == {
        "status": "Workers scaled to 1 for model: show"}
    assert admin.post("/models?url=show.mar&model_name=m&initial_workers=5000").status == 400


def test_a_handler_that_is_not_in_the_archive_fails_with_its_workers(running):
    """With none it is registered, as by TorchServe; the error names the file."""
    admin = running.admin()
    answer = admin.post("/models?url=show.mar&model_name=a&handler=gone.py&initial_workers=0")
    assert answer.status == 200, answer
    answer = admin.post("/models?url=show.mar&model_name=b&handler=gone.py&initial_workers=1")
    assert (answer.status, answer.json["type"]) == (500, "InternalServerException")
    assert answer.message.startswith("Failed to start workers for model b version: 1.0: ")
    assert "gone.py" in answer.message


def test_v2_requests_reach_models_without_tensors(running):
    """Their handlers read the JSON themselves; errors have TorchServe's form."""
    client = running.client()
    headers = {"Content-Type": "application/json"}
    for path, explains in (("infer", "False"), ("explain", "True")):
        answer = client.post(f"/v2/models/show/{path}", '{"inputs":[]}', headers=headers)
        assert (answer.status, answer.text) == (200, explains + ' {"inputs":[]}')
    assert client.get("/v2/models/show/infer").text == "False "
    answer = client.post("/v2/models/nothing/infer", "{}", headers=headers)
    assert (answer.status, answer.json["type"], answer.message) == (
        404, "ModelNotFoundException", "Model not found: nothing")


def test_an_error_ends_the_connection_and_an_answer_keeps_it(running):
    """Each says so: clients of TorchServe may wait for the end after an error."""
    answer = running.client().get("/ping")
    assert (answer.status, answer.headers["connection"].lower()) == (200, "keep-alive")
    answer = running.client().get("/predictions/nothing")
    assert (answer.status, answer.headers["connection"].lower()) == (404, "close")


def test_odd_calls_are_answered_as_there(running):
    """/ping with OPTIONS and more path, set-default with another method, a URL of another scheme."""
    client, admin = running.client(), running.admin()
    assert client.request("OPTIONS", "/ping").status == 200
    assert client.get("/ping/more").status == 200
    assert admin.post("/models/show/1.0/set-default").status == 405
    assert admin.request("OPTIONS", "/models/show/1.0").status == 200
    assert admin.post("/models?url=ftp://localhost/show.mar&model_name=f&initial_workers=0").status == 200
    answer = admin.post("/models?url=file:///nowhere/show.mar&model_name=g")
    assert (answer.status, answer.json["type"], answer.message) == (
        400, "DownloadArchiveException", "Failed to download archive from: file:///nowhere/show.mar")
