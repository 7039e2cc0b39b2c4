"""config.properties as an operator has it from TorchServe, and its effect on the server."""

import json
import os
import socket

from client import Client
from models import counter, stateless
from ports import free_port
from server import address_of

WITHOUT_WORKERS = "sequenceBatching: true\nbatchSize: 4\n"


def without_workers(name="counter", **more):
    model = counter(name)
    model.yaml = WITHOUT_WORKERS + "".join(f"{key}: {value}\n" for key, value in more.items())
    return model


def test_workers_at_start_follow_torchserves_rule(torchserve):
    """The first of these counts: the YAML, the key `models`, the default, one worker for each processor."""
    t = torchserve()
    t.pack(without_workers())
    t.pack(without_workers("other"))
    t.pack(counter("third", minWorkers=1, maxWorkers=1))
    t.properties('load_models=counter.mar,other.mar,third.mar\n'
                 'models={"other": {"1.0": {"minWorkers": 3, "maxWorkers": 4}}, '
                 '"third": {"1.0": {"minWorkers": 3, "maxWorkers": 4}}}\n')
    t.start("--ncs", "--model-store", "model-store")
    processors = len(os.sched_getaffinity(0))
    assert [t.describe(name)["minWorkers"] for name in ("counter", "other", "third")] == [processors, 3, 1]
    assert t.describe("other")["maxWorkers"] == 4
    t.stop()
    t.properties("load_models=counter.mar\ndefault_workers_per_model=2\n")
    t.start("--ncs", "--model-store", "model-store")
    assert t.describe("counter")["minWorkers"] == 2


def test_defaults_of_models_come_from_the_file(torchserve):
    """A value in the model's YAML overrides the file."""
    t = torchserve()
    t.pack(without_workers())
    t.pack(without_workers("other", responseTimeout=9, jobQueueSize=8))
    t.properties("default_workers_per_model=1\ndefault_response_timeout=7\ndefault_startup_timeout=77\n"
                 "job_queue_size=5\nload_models=all\n")
    t.start("--ncs", "--model-store", "model-store")
    model, other = t.describe("counter"), t.describe("other")
    assert (model["responseTimeout"], model["startupTimeout"]) == (7, 77)
    assert model["jobQueueStatus"]["remainingCapacity"] == 5
    assert other["responseTimeout"] == 9 and other["jobQueueStatus"]["remainingCapacity"] == 8


def test_a_body_over_max_request_size_is_413(torchserve):
    """A body with one byte less is accepted."""
    t = torchserve()
    t.pack(stateless())
    t.properties("max_request_size=2000\nload_models=echo.mar\ndefault_workers_per_model=1\n")
    t.start("--ncs", "--model-store", "model-store")
    assert t.client().post("/predictions/echo", b"x" * 2000).status == 200
    refused = t.client().post("/predictions/echo", b"x" * 2001)
    assert (refused.status, refused.body) == (413, b"")


def test_an_answer_over_max_response_size_is_an_error(torchserve):
    """The worker is not lost."""
    t = torchserve()
    t.pack(stateless())
    t.properties("max_response_size=2000\nload_models=echo.mar\ndefault_workers_per_model=1\n")
    t.start("--ncs", "--model-store", "model-store")
    pids = [worker["pid"] for worker in t.describe("echo")["workers"]]
    assert t.client().post("/predictions/echo", b"x" * 3000).status >= 500
    assert t.client().post("/predictions/echo", b"x" * 100).status == 200
    assert [worker["pid"] for worker in t.describe("echo")["workers"]] == pids


def test_keys_without_effect_and_unknown_keys_are_told_once(torchserve):
    """There is one line for each, with file and line number, and the server starts."""
    t = torchserve()
    t.properties("vmargs=-Xmx4g\nnumber_of_netty_threads=32\nload_model=all\nuse_native_io=true\n")
    said = t.start("--ncs", "--model-store", "model-store")
    lines = [line for line in said.splitlines() if line.startswith("torchserve: ")]
    assert lines == [
        "torchserve: config.properties:8: number_of_netty_threads has no effect: the server does not use Netty; "
        "continuo.loops sets the number of event loops",
        "torchserve: config.properties:9: load_model is not a known key (did you mean load_models?)"]


def test_environment_beats_flag_beats_file(torchserve):
    """The order is TorchServe's, if the file allows variables."""
    t = torchserve({"TS_LOAD_MODELS": "env=counter.mar"})
    t.pack(counter())
    config = t.properties("load_models=file=counter.mar\n", name="a.properties")
    t.start("--ncs", "--ts-config", config, "--model-store", "model-store", "--models", "flag=counter.mar")
    assert [m["modelName"] for m in t.admin().get("/models").json["models"]] == ["flag"]
    t.stop()
    t.properties("load_models=file=counter.mar\nenable_envvars_config=true\n", name="a.properties")
    t.start("--ncs", "--ts-config", config, "--model-store", "model-store", "--models", "flag=counter.mar")
    assert [m["modelName"] for m in t.admin().get("/models").json["models"]] == ["env"]


def test_ts_config_file_names_the_file(torchserve):
    """Containers name the file in this way."""
    t = torchserve({"TS_CONFIG_FILE": "b.properties"})
    t.pack(counter())
    t.properties("load_models=counter.mar\nmodel_store=model-store\n", name="b.properties")
    t.start("--ncs")
    assert t.client().step("counter", "a", 3).text == "3"


def test_headers_of_sequences_may_have_other_names(torchserve):
    """ts_header_key_sequence_... applies over HTTP and in the description. The default names have no effect then."""
    t = torchserve()
    t.pack(counter())
    t.properties("load_models=counter.mar\nts_header_key_sequence_id=X-Session\n"
                 "ts_header_key_sequence_start=X-Begin\nts_header_key_sequence_end=X-End\n")
    t.start("--ncs", "--model-store", "model-store")
    client = t.client()

    def step(number, **headers):
        answer = client.post("/predictions/counter", str(number), headers={k.replace("_", "-"): v for k, v in headers.items()})
        assert answer.status == 200, answer
        return answer.text, answer.headers["X-Session"]

    assert step(3, X_Session="a") == ("3", "a")
    assert step(4, x_session="a") == ("7", "a")
    assert step(1, X_Session="a", X_Begin="true") == ("1", "a")
    assert step(1, X_Session="a", X_End="true") == ("2", "a")
    text, made = step(9, ts_request_sequence_id="a")
    assert text == "9" and made.startswith("ts-seq-")
    described = t.client().get("/api-description").json["paths"]["/predictions/{model_name}"]["post"]["parameters"]
    assert {"x-session", "x-begin", "x-end"} <= {each["name"] for each in described}


def shared(*interfaces):
    """Returns the properties that give these APIs one address."""
    port = free_port()
    return "".join(f"{api}_address=http://127.0.0.1:{port if api in interfaces else 0}\n"
                   for api in ("inference", "management", "metrics"))


def test_inference_and_management_may_share_an_address(torchserve):
    """SageMaker's containers need this. It works with any number of loops."""
    t = torchserve()
    t.pack(counter())
    t.properties("disable_token_authorization=true\nenable_model_api=true\ncontinuo.loops=3\n",
                 ports=shared("inference", "management"))
    t.start("--ncs", "--model-store", "model-store")
    assert t.ready.group(1) == t.ready.group(2) != t.ready.group(3)
    client = t.client()
    assert client.post("/models?url=counter.mar&initial_workers=1").status == 200
    for i in range(1, 9):
        assert t.client().step("counter", "a", 1).text == str(i)
        assert t.client().get("/models").json["models"][0]["modelName"] == "counter"
    assert client.get("/ping").status == 200
    assert client.post("/models/counter/invoke", b"1").status == 200
    assert client.get("/metrics").status == 404
    assert Client(address_of(t.ready.group(3)), t.transcript, "metrics").get("/metrics").status == 200


def test_all_three_interfaces_may_share_an_address(torchserve):
    """One open port is enough. Each API has its own key, and metrics need none."""
    t = torchserve()
    t.pack(counter())
    t.properties("load_models=counter.mar\n", ports=shared("inference", "management", "metrics"))
    t.start("--ncs", "--model-store", "model-store")
    keys = json.loads((t.folder / "key_file.json").read_text())

    def get(path, kind):
        return t.client().get(path, headers={"Authorization": f"Bearer {keys[kind]['key']}"}).status

    assert (get("/ping", "inference"), get("/ping", "management")) == (200, 400)
    assert (get("/models", "inference"), get("/models", "management")) == (400, 200)
    assert t.client().get("/metrics").status == 200
    assert get("/nowhere", "management") == 404


def test_inference_may_be_a_unix_socket(torchserve):
    """The address is unix:/path."""
    t = torchserve()
    t.properties(ports=f"inference_address=unix:{t.folder}/i.sock\nmanagement_address=http://127.0.0.1:0\n"
                       "metrics_address=http://127.0.0.1:0\ndisable_token_authorization=true\n")
    t.start("--ncs", "--model-store", "model-store")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(t.folder / "i.sock"))
        s.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")
