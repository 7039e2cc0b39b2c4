"""The model repository of the v2 protocol: load, unload, index, and the modes of model control."""

import ast
import json
import re

import numpy as np
import pytest
import requests
import tritonclient.grpc
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from models import ROOT, Model
from test_v2_http import accumulator, client_of, one, post, tensor
from waiting import expect

EXPLICIT = ["--model-control-mode", "explicit"]

ADD_LUA = """
return { api = 1, handle = function(req)
    local n = req.inputs.X.values[1] + ADDEND
    return { outputs = { Y = { datatype = "INT32", shape = { 1 }, data = { n } } } }
end }
"""
ADD_YAML = "inputs:\n  - {name: X, dataType: INT32, dims: [1]}\noutputs:\n  - {name: Y, dataType: INT32, dims: [1]}\n"


def adder(addend, name="adder", version="1.0", yaml=ADD_YAML):
    return Model(name, ADD_LUA.replace("ADDEND", str(addend)), yaml, version=version, stateful=False)


def put(s, model):
    """Puts an archive into the store under its name."""
    return s.pack(model, f"{model.name}.mar")


def add(s, number, name="adder"):
    answer = post(s, name, one("X", "INT32", [1], [number]))
    return answer.json()["outputs"][0]["data"][0] if answer.status_code == 200 else answer.json()["error"]


def index_of(s, **body):
    answer = requests.post(s.inference + "/v2/repository/index", data=json.dumps(body), timeout=20)
    assert answer.status_code == 200
    return answer.json()


def call(s, path, document=None):
    body = document if isinstance(document, (bytes, str)) else "" if document is None else json.dumps(document)
    answer = requests.post(f"{s.inference}/v2/repository/{path}", data=body, timeout=60)
    return answer.status_code, answer.text


@pytest.fixture
def explicit(server):
    s = server(flags=EXPLICIT)
    put(s, adder(1))
    return s


def test_load_infer_unload_by_tritonclient(explicit):
    """A load returns when the model answers, and after an unload the model is unknown. Both may be repeated."""
    client = client_of(explicit)
    assert index_of(explicit) == [{"name": "adder"}]
    for _ in range(2):
        client.load_model("adder")
    assert client.is_model_ready("adder") and add(explicit, 5) == 6
    assert client.get_model_repository_index() == [{"name": "adder", "version": "1.0", "state": "READY"}]
    for _ in range(2):
        client.unload_model("adder")
    assert not client.is_model_ready("adder")
    assert add(explicit, 5) == "Request for unknown model: 'adder' is not found"
    gone = {"name": "adder", "version": "1.0", "state": "UNAVAILABLE", "reason": "unloaded"}
    expect(lambda: index_of(explicit) == [gone], "the version is closed")
    assert index_of(explicit, ready=True) == []
    client.load_model("adder")
    assert index_of(explicit, ready=True) == [{"name": "adder", "version": "1.0", "state": "READY"}]
    client.unload_model("nobody")


def test_an_unload_with_dependents_is_taken(explicit):
    """There are no ensembles, so no model depends on another one."""
    client_of(explicit).load_model("adder")
    assert call(explicit, "models/adder/unload", {"parameters": {"unload_dependents": True}}) == (200, "")


def test_a_changed_archive_is_loaded_anew(explicit):
    """If the archive is the same, nothing happens. An archive with the same version replaces the old one."""
    client = client_of(explicit)
    client.load_model("adder")
    pids = explicit.ready_pids("adder")
    client.load_model("adder")
    assert explicit.ready_pids("adder") == pids
    put(explicit, adder(100))
    assert add(explicit, 5) == 6
    client.load_model("adder")
    assert add(explicit, 5) == 105


def test_a_new_version_becomes_the_default(explicit):
    client = client_of(explicit)
    client.load_model("adder")
    put(explicit, adder(1000, version="2.0"))
    client.load_model("adder")
    assert add(explicit, 5) == 1005
    assert {entry["version"] for entry in index_of(explicit)} == {"1.0", "2.0"}


def test_sequences_live_through_a_reload(server):
    """Stored sequences stay when a model is loaded again with its version."""
    s = server(flags=EXPLICIT)
    put(s, accumulator())
    client = client_of(s)
    client.load_model("accumulator")

    def step(number, **more):
        return client.infer("accumulator", [tensor("INPUT", np.array([number], np.int32), "INT32")], sequence_id=4,
                            **more).as_numpy("OUTPUT").tolist()[0]

    assert step(1, sequence_start=True) == 1
    changed = accumulator()
    changed.lua += "-- changed\n"
    put(s, changed)
    client.load_model("accumulator")
    assert step(2) == 3
    client.unload_model("accumulator")
    client.load_model("accumulator")
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        step(4)


def test_a_configuration_instead_of_the_archives(explicit):
    """The configuration applies until the model is loaded without one."""
    client = client_of(explicit)
    document = {"inputs": [{"name": "X", "dataType": "INT32", "dims": [-1]}],
                "outputs": [{"name": "Y", "dataType": "INT32", "dims": [1]}], "maxBatchSize": 4, "batchSize": 2}
    client.load_model("adder", config=json.dumps(document))
    assert client.get_model_metadata("adder")["inputs"][0]["shape"] == [-1, -1]
    client.load_model("adder")
    assert client.get_model_metadata("adder")["inputs"][0]["shape"] == [1]
    with pytest.raises(InferenceServerException, match="nonsense"):
        client.load_model("adder", config='{"inputs": "nonsense"}')


CONTROLS = """
  control_input:
    - {name: START, control: [{kind: CONTROL_SEQUENCE_START, fp32_false_true: [0, 1]}]}
    - {name: READY, control: [{kind: CONTROL_SEQUENCE_READY, bool_false_true: [false, true]}]}
    - {name: CORRID, control: [{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_UINT64}]}
"""


@pytest.mark.parametrize("block", [
    "sequence_batching:\n  direct: {minimum_slot_utilization: 0.5}" + CONTROLS,
    "sequence_batching:\n  oldest: {max_candidate_sequences: 6, preferred_batch_size: [2, 4]}" + CONTROLS,
    "dynamic_batching: {max_queue_delay_microseconds: 3000, priority_levels: 2, default_priority_level: 2, "
    "priority_queue_policy: {1: {timeout_action: DELAY, default_timeout_microseconds: 1000000}}}\n",
], ids=["direct", "oldest", "dynamic"])
def test_a_configuration_goes_back_as_it_was_shown(server, block):
    """Clients read the configuration, change a value and load it: over HTTP, and over gRPC, whose JSON has 64-bit
    numbers as text."""
    s = server(flags=EXPLICIT)
    put(s, Model("m", "return { api = 1, step = function() return {} end }", ADD_YAML + "max_batch_size: 4\n" + block,
                 stateful=False))
    http, grpc = client_of(s), tritonclient.grpc.InferenceServerClient(s.grpc)
    http.load_model("m")
    shown = http.get_model_config("m")
    http.load_model("m", config=json.dumps(shown))
    assert http.get_model_config("m") == shown
    grpc.load_model("m", config=json.dumps(grpc.get_model_config("m", as_json=True)["config"]))
    assert http.get_model_config("m") == shown
    http.load_model("m", config=json.dumps({**shown, "max_batch_size": 5}))
    assert http.get_model_config("m") == {**shown, "max_batch_size": 5}
    grpc.close()


ANY_LUA = "return { api = 1, step = function() return {} end, handle = function() return {} end }"


def typed_yaml():
    """Returns the YAML of all examples, and of the models of other tests if it is written there completely."""
    for path in sorted((ROOT / "examples").glob("**/*.yaml")):
        yield str(path.relative_to(ROOT)), path.read_text()
    for path in sorted((ROOT / "tests" / "e2e").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.name}:{node.lineno}", node.value


def settings_of(s, name):
    kept = ("minWorkers", "maxWorkers", "batchSize", "maxBatchDelay", "stateful", "state", "sequenceMaxIdleMSec",
            "durability", "continuousBatching", "maxNumSequence", "swapPolicy")
    return {key: value for key, value in s.describe(name).items() if key in kept}


def test_what_is_shown_can_be_sent_back(server):
    """The configuration of every model, over HTTP and gRPC, can be sent back and changes nothing: neither what is
    shown, nor what the protocol cannot express, such as a batch axis, an unlimited idle time, or the number of rows."""
    s = server(flags=EXPLICIT)
    http, grpc = client_of(s), tritonclient.grpc.InferenceServerClient(s.grpc)
    loaded = []
    for where, text in typed_yaml():
        if not re.search(r"^inputs?:", text, re.M) or not re.search(r"^outputs?:", text, re.M):
            continue
        if "{{" in text or "%s" in text:
            continue  # a test fills it in
        put(s, Model("m", ANY_LUA, text, stateful=False))
        if call(s, "models/m/load")[0] != 200:
            assert not where.startswith("examples"), where
            continue  # wrong on purpose
        loaded.append(where)
        shown, settings = http.get_model_config("m"), settings_of(s, "m")
        for document in (shown, grpc.get_model_config("m", as_json=True)["config"]):
            status, answer = call(s, "models/m/load", {"parameters": {"config": json.dumps(document)}})
            assert status == 200, (where, answer, document)
            assert (http.get_model_config("m"), settings_of(s, "m")) == (shown, settings), where
        http.unload_model("m")
    grpc.close()
    assert len([where for where in loaded if where.startswith("examples")]) >= 12 and len(loaded) > 30, loaded


def test_instances_are_workers(explicit):
    """A client of Triton sets the number of workers in this way. With the archive's own number everything is as before.
    """
    client = client_of(explicit)
    client.load_model("adder")
    shown = client.get_model_config("adder")
    assert shown["instance_group"] == [{"name": "adder", "kind": "KIND_CPU", "count": 1, "gpus": []}]
    client.load_model("adder", config=json.dumps({**shown, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]}))
    assert len(explicit.ready_pids("adder")) == 2
    assert client.get_model_config("adder")["instance_group"][0]["count"] == 2 and add(explicit, 5) == 6
    with pytest.raises(InferenceServerException, match="instance_group: kind: expected KIND_CPU or KIND_AUTO.*KIND_GPU"):
        client.load_model("adder", config=json.dumps({"instance_group": [{"count": 1, "kind": "KIND_GPU"}]}))
    client.load_model("adder", config=json.dumps(shown))
    assert len(explicit.ready_pids("adder")) == 1


@pytest.mark.parametrize("document, words", [
    ({"max_batch_size": "x"}, "maxBatchSize: expected an integer from 0 to 65536, found a string x"),
    ({"name": 5}, "name: expected a string, found an integer 5"),
    ({"instance_group": [{"count": "two"}]}, "instance_group: count: expected an integer from 0 to 1024, found a string two"),
    ({"input": {"name": "X"}}, "input: expected a list of 1 to 256 tensors, found a map"),
    ({"response_cache": {"enable": "yes"}}, "response_cache.enable: expected true or false, found a string yes"),
])
def test_a_wrong_kind_is_refused(explicit, document, words):
    """The message has the field, its value and what it should be. The model that is up continues."""
    client_of(explicit).load_model("adder")
    status, answer = call(explicit, "models/adder/load", {"parameters": {"config": json.dumps(document)}})
    assert status == 400 and words in json.loads(answer)["error"], answer
    assert add(explicit, 5) == 6


def test_a_load_that_fails_says_why(explicit):
    """The reason is in the answer, and in the index until the model is loaded."""
    client = client_of(explicit)
    with pytest.raises(InferenceServerException) as failed:
        client.load_model("nobody")
    assert failed.value.message() == "failed to load 'nobody', failed to poll from model repository"
    assert failed.value.status() == "500"
    put(explicit, Model("broken", "return { api = 1 ", ADD_YAML, stateful=False))
    status, text = call(explicit, "models/broken/load")
    assert status == 400 and "broken" in json.loads(text)["error"]
    entry = next(entry for entry in index_of(explicit) if entry["name"] == "broken")
    assert entry["state"] == "UNAVAILABLE" and "broken" in entry["reason"]
    put(explicit, adder(2, name="broken"))
    client.load_model("broken")
    assert add(explicit, 1, "broken") == 3


@pytest.mark.parametrize("path, document, status, words", [
    ("models/%20/load", None, 400, "Model name cannot be empty. Please enter a valid name to deploy."),
    ("models/a..b/load", None, 400,
     "invalid model name 'a..b', model name must not contain path traversal characters"),
    ("models/..%2fadder/load", None, 400, "model name must not contain path traversal characters"),
    ("other/models/adder/load", None, 501, "'repository_name' specification is not supported"),
    ("models/adder/load", {"parameters": {"speed": "1"}}, 500, "unexpected error on creating Triton parameter"),
    ("models/adder/load", {"parameters": {"file:1/model.lua": "eA=="}}, 501, "files cannot be sent with a load"),
    ("models/adder/load", {"parameters": {"config": 7}}, 500, "Unable to parse 'config'"),
    ("models/adder/load", {"parameters": []}, 500, "Unable to parse 'parameters'"),
    ("models/adder/load", "{", 500, "failed to parse the request JSON buffer"),
    ("models/adder/unload", {"parameters": {"unload_dependents": 1}}, 500, "Unable to parse 'unload_dependents'"),
    ("index", {"ready": 1}, 400, "Invalid value for 'ready': expected a boolean"),
])
def test_bad_requests(explicit, path, document, status, words):
    got, text = call(explicit, path, document)
    assert got == status and words in json.loads(text)["error"]


def test_only_the_explicit_mode_lets_clients_load(server):
    """By default an inference client cannot load or unload."""
    s = server(adder(1))
    for action in ("load", "unload"):
        status, text = call(s, f"models/adder/{action}")
        assert status == 503
        assert "explicit model load / unload is not allowed if polling is enabled" in json.loads(text)["error"]
    assert add(s, 1) == 2


def test_loads_of_one_name_wait_for_each_other(explicit):
    """Loads and unloads at the same time end in one of the possible states, and the server lives on."""
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: call(explicit, f"models/adder/{'load' if i % 2 else 'unload'}"), range(16)))
    assert answers == [(200, "")] * 16
    client_of(explicit).load_model("adder")
    assert add(explicit, 1) == 2


def test_the_store_is_polled(server):
    """A model is loaded with its archive, changes with it and is unloaded with it. A broken archive is tried once for
    each change."""
    s = server(flags=["--model-control-mode", "poll", "--repository-poll", "50"])
    assert index_of(s) == []
    put(s, adder(1))
    expect(lambda: add(s, 1) == 2, "the model is loaded")
    put(s, adder(7))
    expect(lambda: add(s, 1) == 8, "the model is loaded anew")
    (s.store / "broken.mar").write_bytes(b"no archive")
    expect(lambda: any(entry["name"] in ("broken", "broken.mar") and entry.get("reason")
                       for entry in index_of(s)), "the broken one is told of")
    (s.store / "adder.mar").unlink()
    expect(lambda: "unknown model" in str(add(s, 1)), "the model is unloaded")
    status, _ = call(s, "models/adder/load")
    assert status == 503


def test_polling_begins_with_all_models(server):
    """The server is ready when everything in the store is loaded."""
    s = server(flags=["--model-control-mode", "poll"], start=False)
    put(s, adder(3))
    s.start()
    assert add(s, 1) == 4
    assert triton.InferenceServerClient(s.inference.removeprefix("http://")).is_server_ready()
