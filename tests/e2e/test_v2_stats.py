"""Statistics of the v2 protocol: exact counts for each request, call and batch size, in JSON and as nv_ metrics."""

import concurrent.futures
import time

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from models import Model, counter
from test_metrics import sample
from test_v2_http import accumulator, client_of, one, post, tensor

# Gives its input back; a number below 0 fails.
WORK_LUA = """
return { api = 1, handle = function(req)
    local wanted = req.inputs.INPUT.values[1]
    if wanted < 0 then return nil, "no negative numbers" end
    local out = {}
    for i = 1, #req.inputs.INPUT.values do out[i] = req.inputs.INPUT.values[i] end
    return { outputs = { OUTPUT = { datatype = "INT32", shape = req.inputs.INPUT.shape, data = out } } }
end }
"""


def work(max_batch_size=0, rows=8):
    return Model("work", WORK_LUA, f"batchSize: {rows}\nmaxBatchSize: {max_batch_size}\n"
                 "inputs:\n  - {name: INPUT, dataType: INT32, dims: [-1]}\n"
                 "outputs:\n  - {name: OUTPUT, dataType: INT32, dims: [-1]}\n", stateful=False)


def stats_of(s, model, version=""):
    found = client_of(s).get_inference_statistics(model, version)["model_stats"]
    assert [entry["name"] for entry in found] == [model]
    return found[0]


def all_numbers(node):
    if isinstance(node, dict):
        return [number for value in node.values() for number in all_numbers(value)]
    if isinstance(node, list):
        return [number for value in node for number in all_numbers(value)]
    return [node] if not isinstance(node, str) else []


def test_every_field_is_there_from_the_start(server):
    """perf_analyzer reads all fields and asserts that they are unsigned integers."""
    entry = stats_of(server(work()), "work")
    zero = {"count": 0, "ns": 0}
    assert entry == {
        "name": "work", "version": "1.0", "last_inference": 0, "inference_count": 0, "execution_count": 0,
        "inference_stats": {key: zero for key in (
            "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit",
            "cache_miss")},
        "response_stats": {}, "batch_stats": [], "memory_usage": [],
    }


def test_requests_of_a_sequence_count(server):
    """They count like other requests. A refused one counts only as failed."""
    s = server(accumulator())
    client = client_of(s)
    before = int(time.time() * 1000)
    for step in range(5):
        client.infer("accumulator", [tensor("INPUT", np.array([step], np.int32), "INT32")], sequence_id=7,
                     sequence_start=step == 0, sequence_end=step == 4)
    with pytest.raises(InferenceServerException):
        client.infer("accumulator", [tensor("INPUT", np.array([1], np.int32), "INT32")], sequence_id=8)
    entry = stats_of(s, "accumulator", "1.0")
    assert (entry["inference_count"], entry["execution_count"]) == (5, 5)
    assert before <= entry["last_inference"] <= time.time() * 1000
    inference = entry["inference_stats"]
    for key in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert inference[key]["count"] == 5
    assert inference["fail"]["count"] == 1 and inference["fail"]["ns"] > 0
    parts = sum(inference[key]["ns"] for key in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert 0 < parts <= inference["success"]["ns"]
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in entry["batch_stats"]] == [(1, 5)]
    assert entry["response_stats"]["0"]["success"]["count"] == 5
    assert entry["response_stats"]["0"]["fail"]["count"] == 1
    assert all(isinstance(number, int) and number >= 0 for number in all_numbers(entry))


def test_batches_count_by_their_size(server):
    """While the worker is held, one request runs and the others wait, so they become one batch."""
    s = server(work())
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        with s.hold():
            calls = [pool.submit(post, s, "work", one("INPUT", "INT32", [1], [n])) for n in range(6)]
            s.expect_outstanding("work", 6)
        assert [call.result().status_code for call in calls] == [200] * 6
    entry = stats_of(s, "work")
    sizes = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in entry["batch_stats"]}
    assert sum(size * count for size, count in sizes.items()) == 6 == entry["inference_count"]
    assert sum(sizes.values()) == entry["execution_count"] < 6
    assert max(sizes) >= 5


def test_a_requests_own_batch_counts(server):
    """A request with batch size 3 counts as three inferences and one execution of that size."""
    s = server(work(max_batch_size=4))
    assert post(s, "work", one("INPUT", "INT32", [3, 2], [1] * 6)).status_code == 200
    assert post(s, "work", one("INPUT", "INT32", [1, 2], [1] * 2)).status_code == 200
    entry = stats_of(s, "work")
    assert (entry["inference_count"], entry["execution_count"]) == (4, 2)
    assert [batch["batch_size"] for batch in entry["batch_stats"]] == [1, 3]
    assert entry["inference_stats"]["success"]["count"] == 2


def test_a_failure_touches_nothing_else(server):
    s = server(work())
    assert post(s, "work", one("INPUT", "INT32", [1], [-1])).status_code >= 400
    entry = stats_of(s, "work")
    assert (entry["inference_count"], entry["execution_count"]) == (0, 1)
    assert {key: value["count"] for key, value in entry["inference_stats"].items() if value["count"]} == {"fail": 1}


def test_a_replayed_answer_is_a_cache_hit(server):
    """A retry with its key computes nothing: success and queue count it, compute_* do not."""
    s = server(accumulator())
    document = one("INPUT", "INT32", [1], [5], parameters={"sequence_id": 1, "sequence_start": True})
    for _ in range(2):
        assert post(s, "accumulator", document, {"Idempotency-Key": "k1"}).status_code == 200
    inference = stats_of(s, "accumulator")["inference_stats"]
    assert (inference["success"]["count"], inference["queue"]["count"]) == (2, 2)
    assert (inference["compute_infer"]["count"], inference["cache_hit"]["count"]) == (1, 1)


def test_all_models_and_their_errors(server):
    """The answer for an unknown model is 400 with this message. Models without tensors are not listed."""
    s = server(accumulator(), work(), counter())
    assert [entry["name"] for entry in client_of(s).get_inference_statistics()["model_stats"]] == [
        "accumulator", "work"]
    for path, words in [
        ("/v2/models/nobody/stats", "requested model 'nobody' is not available"),
        ("/v2/models/counter/stats", "requested model 'counter' is not available"),
        ("/v2/models/work/versions/9/stats", "requested model version is not available for model 'work'"),
    ]:
        answer = requests.get(s.inference + path, timeout=20)
        assert (answer.status_code, answer.json()) == (400, {"error": words})
    with pytest.raises(InferenceServerException, match="is not available"):
        triton.InferenceServerClient(s.inference.removeprefix("http://")).get_inference_statistics("nobody")


def counted(s, name, **labels):
    found = sample(s, name, **labels)
    return sample(s, name + "_total", **labels) if found is None else found


def test_the_same_under_nv_names(server):
    """The metrics are beside our own, with Triton's labels."""
    s = server(work(max_batch_size=4), counter())
    assert post(s, "work", one("INPUT", "INT32", [3, 1], [1, 2, 3])).status_code == 200
    assert post(s, "work", one("INPUT", "INT32", [1, 1], [-1])).status_code >= 400
    labels = {"model": "work", "version": "1.0"}
    assert counted(s, "nv_inference_request_success", **labels) == 1
    assert counted(s, "nv_inference_count", **labels) == 3
    assert counted(s, "nv_inference_exec_count", **labels) == 2
    assert counted(s, "nv_inference_request_failure", reason="BACKEND", **labels) == 1
    assert counted(s, "nv_inference_request_failure", reason="REJECTED", **labels) == 0
    assert counted(s, "nv_inference_pending_request_count", **labels) == 0
    assert counted(s, "nv_inference_request_duration_us", **labels) > 0
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert counted(s, f"nv_inference_{part}_duration_us", **labels) >= 0
    assert counted(s, "nv_inference_count", model="counter") is None


def test_the_parameter_sequence_step_numbers_a_step(server):
    """The parameter works like the header: the next number is done, the last one is answered again, and others are
    refused."""
    s = server(accumulator())

    def ask(number, value, **more):
        return post(s, "accumulator", one("INPUT", "INT32", [1], [value],
                                          parameters={"sequence_id": 7, "sequence_step": number, **more}), {})

    assert ask(1, 5, sequence_start=True).headers["Continuo-Sequence-Step"] == "1"
    for replayed in (None, "true"):
        answer = ask(2, 6)
        assert answer.json()["outputs"][0]["data"] == [11] and answer.headers.get("Continuo-Replayed") == replayed
    answer = ask(4, 7)
    assert (answer.status_code, answer.headers["Continuo-Error"]) == (409, "step_mismatch"), answer.text
    assert answer.headers["Continuo-Expected-Step"] == "3" and "number 3" in answer.json()["error"]
    assert ask(1, 5).headers["Continuo-Error"] == "step_done"
    for value in (0, -1, "2", 1 << 63):
        assert ask(value, 5).status_code == 400, value
