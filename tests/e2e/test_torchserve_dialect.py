"""The program `torchserve` accepts what TorchServe accepts, where `continuo` is strict.

tests/differential compares with TorchServe itself. What it has found is tested here without TorchServe."""

import os
import re
import signal

import pytest

import rpc
from client import Client
from models import stateless
from rpc import Rpc, refused
from server import address_of
from test_logs import expect_line
from test_named_keys import Keys
from waiting import expect

SHOW_LUA = """
local M = { api = 1 }

function M.handle(req)
    return tostring(req.headers.explain) .. " " .. req.parts.body.data
end

return M
"""
TELL_LUA = """
local M = { api = 1 }

function M.handle()
    continuo.metrics.counter("told", 1, { kind = "a" })
    continuo.metrics.counter("whole", 1, { kind = "a" })
    return "told"
end

return M
"""
START = ("--ncs", "--model-store", "model-store", "--models", "show=show.mar")


@pytest.fixture
def running(torchserve):
    t = torchserve()
    t.pack(stateless("show", SHOW_LUA))
    t.properties("enable_model_api=true\nallowed_urls=(file|ftp)://.*\n")
    t.start(*START)
    return t


def test_what_is_no_number_means_the_default(running):
    """Scripts that worked by chance still work, and the description shows the values in use."""
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
    """Without workers the model is registered, as by TorchServe. The error names the file."""
    admin = running.admin()
    answer = admin.post("/models?url=show.mar&model_name=a&handler=gone.py&initial_workers=0")
    assert answer.status == 200, answer
    answer = admin.post("/models?url=show.mar&model_name=b&handler=gone.py&initial_workers=1")
    assert (answer.status, answer.json["type"]) == (500, "InternalServerException")
    assert answer.message.startswith("Failed to start workers for model b version: 1.0: ")
    assert "gone.py" in answer.message


def test_v2_requests_reach_models_without_tensors(running):
    """The handlers of such models read the JSON themselves, and errors have TorchServe's form."""
    client = running.client()
    headers = {"Content-Type": "application/json"}
    for path, explains in (("infer", "False"), ("explain", "True")):
        answer = client.post(f"/v2/models/show/{path}", '{"inputs":[]}', headers=headers)
        assert (answer.status, answer.text) == (200, explains + ' {"inputs":[]}')
    assert client.get("/v2/models/show/infer").text == "False "
    answer = client.post("/v2/models/nothing/infer", "{}", headers=headers)
    assert (answer.status, answer.json["type"], answer.message) == (
        404, "ModelNotFoundException", "Model not found: nothing")


def test_v2_requests_run_models_by_every_method(torchserve, folder):
    """So a key needs the scope for it with each of them, and a page of another site may send none of them."""
    keys = Keys(folder).add("shop", "infer").add("watch", "observe")
    t = torchserve()
    t.pack(stateless("show", SHOW_LUA))
    t.properties(f"continuo.keys={keys.path}\n")
    t.start(*START)
    client = t.client()
    for path in ("/v2/models/show/infer", "/v2/models/show/explain"):
        for method in ("GET", "HEAD", "POST"):
            assert client.request(method, path, headers=keys.http("shop")).status == 200, (method, path)
            assert client.request(method, path, headers=keys.http("watch")).status == 403, (method, path)
            foreign = {**keys.http("shop"), "Sec-Fetch-Site": "cross-site"}
            assert client.request(method, path, headers=foreign).status == 403, (method, path)
    assert client.get("/v2/models/show", headers=keys.http("watch")).status == 400  # reading needs no scope


def test_every_key_may_ask_for_the_health(torchserve, folder):
    """Also one that is limited to some models, and with a longer path."""
    keys = Keys(folder).add("narrow", "infer", "--models", "other").add("watch", "observe")
    t = torchserve()
    t.properties(f"continuo.keys={keys.path}\n")
    t.start("--ncs", "--model-store", "model-store")
    for path in ("/ping", "/ping/more"):
        for name in ("narrow", "watch"):
            assert t.client().get(path, headers=keys.http(name)).status == 200, (path, name)
        assert t.client().get(path).status == 401


def test_an_error_ends_the_connection_and_an_answer_keeps_it(running):
    """The headers say so, because clients of TorchServe may wait for the end of the connection after an error."""
    answer = running.client().get("/ping")
    assert (answer.status, answer.headers["connection"].lower()) == (200, "keep-alive")
    answer = running.client().get("/predictions/nothing")
    assert (answer.status, answer.headers["connection"].lower()) == (404, "close")


def test_odd_calls_are_answered_as_there(running):
    """These calls are /ping with OPTIONS and a longer path, set-default with another method, and a URL with another
    scheme."""
    client, admin = running.client(), running.admin()
    assert client.request("OPTIONS", "/ping").status == 200
    assert client.get("/ping/more").status == 200
    assert admin.post("/models/show/1.0/set-default").status == 405
    assert admin.request("OPTIONS", "/models/show/1.0").status == 200
    assert admin.post("/models?url=ftp://localhost/show.mar&model_name=f&initial_workers=0").status == 200
    answer = admin.post("/models?url=file:///nowhere/show.mar&model_name=g")
    assert (answer.status, answer.json["type"], answer.message) == (
        400, "DownloadArchiveException", "Failed to download archive from: file:///nowhere/show.mar")


def test_grpc_refusals_have_its_codes(running):
    """Predictions answers INTERNAL to everything that it refuses, and PERMISSION_DENIED is for a model API that is off.
    """
    with Rpc(running.ready.group(4)) as clients:
        error = refused(clients.predict, "nothing", "x")
        assert (error.code().name, error.details()) == ("INTERNAL", "Model not found: nothing")
        assert running.admin().put("/models/show?min_worker=0&synchronous=true").status == 200
        error = refused(clients.predict, "show", "x", version="1.0")
        assert error.code().name == "INTERNAL"
        assert error.details().startswith('Model "show" Version 1.0" has no worker to serve inference request.')


def test_grpc_says_that_the_model_api_is_off(torchserve):
    t = torchserve()
    t.pack(stateless("show", SHOW_LUA))
    t.properties()
    t.start(*START)
    messages = rpc.module("management_pb2")
    with Rpc(t.ready.group(5)) as clients:
        for call, message in ((clients.management.RegisterModel, messages.RegisterModelRequest(url="show.mar")),
                              (clients.management.UnregisterModel,
                               messages.UnregisterModelRequest(model_name="show"))):
            error = refused(call, message)
            assert (error.code().name, error.details()) == ("PERMISSION_DENIED", "Model API disabled")


def test_a_snapshot_is_there_when_its_change_is_answered(torchserve):
    """The snapshot of the start exists before the ready line. Scripts copy the newest snapshot right after a call."""
    t = torchserve()
    t.pack(stateless("show", SHOW_LUA))
    t.properties("enable_model_api=true\nmodel_store=model-store\nload_models=show.mar\n")
    t.start()
    assert len(t.snapshots("startup")) == 1
    admin = t.admin()
    for count in range(1, 6):
        assert admin.put("/models/show?min_worker=1&synchronous=true").status == 200
        assert len(t.snapshots("snapshot")) == count
    assert admin.post("/models?url=show.mar&model_name=m&initial_workers=0").status == 200
    assert '"m"' in t.snapshots("snapshot")[-1].read_text().replace("\\", "")


def test_metrics_stay_in_logs_when_only_the_logs_have_moved(torchserve):
    """LOG_LOCATION does not move metrics; METRICS_LOCATION does."""
    t = torchserve({"LOG_LOCATION": "elsewhere"})
    t.pack(stateless("show", SHOW_LUA))
    t.properties()
    t.start(*START)
    assert t.client().post("/predictions/show", "x").status == 200
    expect_line(t.folder / "logs" / "ts_metrics.log", "Requests2XX.Count:1.0|#Level:Host")
    assert {path.name for path in (t.folder / "logs").iterdir()} == {"ts_metrics.log", "model_metrics.log"}
    assert (t.folder / "elsewhere" / "ts_log.log").exists()


def test_a_workers_end_is_told_in_its_words(running):
    """Scripts look for these lines in ts_log.log."""
    pid = running.describe("show")["workers"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    log = running.folder / "logs" / "ts_log.log"
    for sentence in ("Worker disconnected.", "Auto recovery start timestamp: ", "Retry worker: 9000 in 0 seconds.",
                     "Auto recovery succeeded, reset recoveryStartTS"):
        expect_line(log, sentence)


def test_the_files_dimensions_are_all_that_a_metric_has(torchserve):
    """Without ModelName in metrics.yaml, all models are counted together."""
    t = torchserve()
    for name in ("one", "two"):
        t.pack(stateless(name, TELL_LUA))
    (t.folder / "metrics.yaml").write_text("ts_metrics:\n  counter:\n    - {name: Requests2XX, unit: Count}\n"
                                           "model_metrics:\n  counter:\n"
                                           "    - {name: told, unit: Count, dimensions: [kind]}\n"
                                           "    - {name: whole, unit: Count, dimensions: [kind, ModelName, Level]}\n")
    t.properties("metrics_config=metrics.yaml\nmetrics_mode=prometheus\n")
    t.start("--ncs", "--model-store", "model-store", "--models", "one=one.mar", "two=two.mar")
    for name in ("one", "two"):
        assert t.client().post(f"/predictions/{name}", "x").status == 200

    def page():
        client = Client(address_of(t.ready.group(3)), t.transcript, "metrics")
        return client.get("/metrics").text

    expect(lambda: re.search(r'^told\{kind="a",Hostname="[^"]*",\} 2\.0$', page(), re.M), "both models' sum")
    assert len(re.findall(r'^whole\{kind="a",ModelName="\w+",Level="Model",Hostname="[^"]*",\} 1\.0$', page(), re.M)) == 2
