"""Handlers that compute a batch as one tensor: continuo.stack in Lua, continuo_stack() in C."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests

import v2rpc
from models import BUILD, Model, ROOT, archiver
from test_v2_http import client_of, tensor
from test_v2_stats import stats_of
from waiting import limit

LINEAR = ROOT / "examples" / "v2" / "linear"

STACK_LUA = """
return { api = 1, batch = function(items)
    local all = continuo.stack(items, "X")
    if not all then
        for _, item in ipairs(items) do item:fail("X differs", 400) end
        return
    end
    local doubled, rows = {}, {}
    for i = 1, #all.values do
        doubled[i] = all.datatype == "BYTES" and all.values[i] .. all.values[i] or 2 * all.values[i]
    end
    for i = 1, all.shape[1] + EXTRA do
        rows[i] = all.shape[1]
    end
    continuo.reply_stack(items, {
        Y = { datatype = all.datatype, shape = all.shape, data = doubled },
        ROWS = { datatype = "INT32", shape = { #rows, 1 }, data = rows } })
end }
"""


def yaml(batch, datatype="INT32", ragged=False):
    return (f"max_batch_size: {batch}\nbatchSize: 4\ndynamic_batching: {{}}\n"
            f"input: [{{name: X, data_type: {datatype}, dims: [-1], allow_ragged_batch: {str(ragged).lower()}}}]\n"
            f"output: [{{name: Y, data_type: {datatype}, dims: [-1]}}, {{name: ROWS, data_type: INT32, dims: [1]}}]\n")


def lua(batch=4, extra=0, **keys):
    return Model("stack", STACK_LUA.replace("EXTRA", str(extra)), yaml(batch, **keys), stateful=False)


def ask(s, shape, data, datatype="INT32"):
    body = {"inputs": [{"name": "X", "datatype": datatype, "shape": shape, "data": data}]}
    answer = requests.post(f"{s.inference}/v2/models/stack/infer", data=json.dumps(body), timeout=limit(30))
    if answer.status_code != 200:
        return answer.json()["error"]
    outputs = {output["name"]: output for output in answer.json()["outputs"]}
    return outputs["Y"]["shape"], outputs["Y"]["data"], outputs["ROWS"]["data"]


def together(s, *requests_):
    """Sends all requests as one batch: the queue is held until they have arrived."""
    with ThreadPoolExecutor() as pool:
        return [call.result() for call in [pool.submit(ask, s, *each) for each in requests_]]


def hooks(jobs):
    return {"TRITONSERVER_DELAY_SCHEDULER": jobs}


@pytest.fixture(params=["lua", "c"])
def start(server, request):
    def run(jobs, batch=4, **keys):
        if request.param == "lua":
            return server(lua(batch, **keys), env=hooks(jobs))
        s = server(env=hooks(jobs), start=False)
        (s.work / "stack.yaml").write_text(yaml(batch, **keys))
        archiver("--model-name", "stack", "--version", "1.0", "--handler",
                 BUILD / "tests" / "handlers" / "test_stack.so", "--config-file", s.work / "stack.yaml",
                 "--export-path", s.store)
        s.models.append("stack=stack.mar")
        return s.start()
    return run


def test_the_batch_dimension_grows(start):
    """Each request gets its own rows back, in its own shape."""
    s = start(3)
    assert together(s, ([1, 2], [1, 2]), ([2, 2], [3, 4, 5, 6]), ([1, 2], [7, 8])) == [
        ([1, 2], [2, 4], [4]), ([2, 2], [6, 8, 10, 12], [4, 4]), ([1, 2], [14, 16], [4])]


def test_without_a_batch_dimension_there_is_a_new_one(start):
    """The answers have no batch dimension."""
    s = start(2, batch=0)
    assert together(s, ([3], [1, 2, 3]), ([3], [4, 5, 6]))[1][1:] == ([8, 10, 12], [2])


def test_rows_that_do_not_fit(start):
    """Ragged inputs may share a batch, but cannot be stacked."""
    s = start(2, ragged=True)
    assert together(s, ([1, 1], [1]), ([1, 2], [1, 2])) == ["X differs"] * 2


def test_strings(server):
    """Elements of different lengths go back to their rows."""
    s = server(lua(datatype="BYTES"), env=hooks(2))
    answers = together(s, ([1, 2], ["a", ""], "BYTES"), ([2, 2], ["bcd", "e", "ü", "g"], "BYTES"))
    assert answers == [([1, 2], ["aa", ""], [3]), ([2, 2], ["bcdbcd", "ee", "üü", "gg"], [3, 3])]


@pytest.mark.parametrize("extra, says", [(1, "output 'ROWS' has more rows than the items"),
                                         (-1, "output 'ROWS' has fewer rows than the items")])
def test_wrong_numbers_of_rows(server, extra, says):
    """No item gets the rows of another one."""
    s = server(lua(extra=extra), env=hooks(2))
    for answer in together(s, ([1, 1], [1]), ([1, 1], [2])):
        assert says in answer


@pytest.mark.parametrize("handler", [LINEAR / "handler.lua", BUILD / "examples" / "linear.so"], ids=["lua", "c"])
def test_the_linear_example(server, handler):
    """Requests with one and with several rows, over HTTP and gRPC, run as one call, and each gets its own rows."""
    s = server(env=hooks(3), start=False)
    archiver("--model-name", "linear", "--version", "1.0", "--handler", handler, "--config-file",
             LINEAR / "model-config.yaml", "--export-path", s.store)
    s.models.append("linear=linear.mar")
    s.start()
    rows = [np.array([[1, 2, 4]], np.float32), np.array([[0, 0, 0], [4, 2, 8]], np.float32),
            np.array([[-1, 1, 0]], np.float32)]
    makers = [(client_of, tensor), (client_of, tensor), (v2rpc.client_of, v2rpc.tensor)]
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(make(s).infer, "linear", [given("X", x, "FP32")]) for (make, given), x in zip(makers, rows)]
        answers = [call.result().as_numpy("Y").tolist() for call in calls]
    assert answers == [[[13.0, 23.0]], [[10.0, 20.0], [17.0, 20.0]], [[9.5, 23.0]]]
    entry = stats_of(s, "linear")
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in entry["batch_stats"]] == [(4, 1)]
    assert entry["inference_count"] == 4
