"""Differences that clients of Triton had noticed. Each of them has a test here.

tests/differential/triton.py sends the same requests to both servers; these tests need only ours."""

import json

import numpy as np
import pytest
import requests
from tritonclient.utils import InferenceServerException

import v2rpc
from models import Model
from recorder import Sender
from test_v2_http import accumulator, client_of, identity, one, post, tensor
from test_v2_sequence_batcher import hooks, oldest
from waiting import expect, limit

NAMES = [f"OUT{n}" for n in range(24)]
MANY_LUA = """return { api = 1, handle = function(req)
    local outputs = {}
    for n = 0, 23 do outputs["OUT" .. n] = { datatype = "INT32", shape = { 1 }, data = { n } } end
    return { outputs = outputs }
end }
"""
MANY_YAML = "inputs: [{name: X, dataType: INT32, dims: [1]}]\noutputs:\n" + "".join(
    f"  - {{name: {name}, dataType: INT32, dims: [1]}}\n" for name in NAMES)

# Sends as many responses as its input says, and then the end apart from them; 9: without an end; below 0: an error.
APART_LUA = """return { api = 1, handle = function(req)
    local n = req.inputs.X.values[1]
    req:defer()
    for i = 1, n do req:respond({ outputs = { Y = { datatype = "INT32", shape = { 1 }, data = { 10 * i } } } }) end
    if n < 0 then req:fail("asked for", 404) elseif n == 9 then continuo.after(3600, function() end) else req:finish() end
end }
"""
APART_YAML = "inputs: [{name: X, dataType: INT32, dims: [1]}]\noutputs: [{name: Y, dataType: INT32, dims: [1]}]\n"


def names_of(answer):
    return [output["name"] for output in answer.json()["outputs"]]


def test_outputs_are_in_the_order_asked_for_or_declared(server):
    """A Lua table has no order, so each worker could have another one. The outputs always have the same."""
    s = server(Model("many", MANY_LUA, MANY_YAML + "minWorkers: 4\nmaxWorkers: 4\n", stateful=False))
    for _ in range(12):
        assert names_of(post(s, "many", one("X", "INT32", [1], [1]))) == NAMES
    for asked in (["OUT7", "OUT3", "OUT21"], NAMES[::-1]):
        body = one("X", "INT32", [1], [1], outputs=[{"name": name} for name in asked])
        answer = post(s, "many", body)
        assert names_of(answer) == asked
        assert [output["data"][0] for output in answer.json()["outputs"]] == [int(name[3:]) for name in asked]
    with v2rpc.channel_of(s) as channel:
        calls = v2rpc.stub_of(channel)
        for asked in ([], ["OUT9", "OUT2"]):
            answer = calls.ModelInfer(v2rpc.request("many", [("X", "INT32", [1])], [b"\1\0\0\0"],
                                                    [(name,) for name in asked]))
            got = [output.name for output in answer.outputs]
            assert got == (asked or NAMES)
            values = [int.from_bytes(raw, "little") for raw in answer.raw_output_contents]
            assert values == [int(name[3:]) for name in got]


@pytest.mark.parametrize("transport", ["http", "grpc", "stream"])
def test_a_response_and_its_end_may_come_apart(server, transport):
    """If the model is not decoupled, a response and its end become one answer. No response, or several, are an error,
    and the server continues."""
    s = server(Model("apart", APART_LUA, APART_YAML, stateful=False))

    def ask(n):
        if transport == "http":
            answer = post(s, "apart", one("X", "INT32", [1], [n]))
            body = answer.json()
            return (answer.status_code, body["outputs"][0]["data"] if "outputs" in body else body["error"])
        given = [v2rpc.tensor("X", np.array([n], np.int32), "INT32")]
        with v2rpc.client_of(s) as client:
            try:
                if transport == "grpc":
                    return (200, client.infer("apart", given).as_numpy("Y").tolist())
                got = []
                client.start_stream(lambda result, error: got.append((result, error)))
                client.async_stream_infer("apart", given)
                expect(lambda: got, "a response")
                client.stop_stream()
                assert len(got) == 1
                result, error = got[0]
                if error:
                    return (404 if n < 0 else 500, error.message())
                assert result.get_response().parameters["triton_final_response"].bool_param
                return (200, result.as_numpy("Y").tolist())
            except InferenceServerException as error:
                return ({"StatusCode.INTERNAL": 500, "StatusCode.NOT_FOUND": 404}[error.status()], error.message())

    assert ask(1) == (200, [10])
    for n in (2, 3):
        status, message = ask(n)
        assert status == 500 and "expected a single response, got 2" in message
    status, message = ask(9)
    assert status == 500 and "expected a single response, got 2" in message, "what goes on for ever is cut"
    assert ask(-1)[0] == 404 and "asked for" in ask(-1)[1]
    assert ask(0)[0] == 500
    assert ask(1) == (200, [10])


def test_model_ready_is_an_answer(server):
    """Over gRPC the answer is ready: false for a model that does not exist."""
    s = server(accumulator())
    with v2rpc.client_of(s) as client:
        assert client.is_model_ready("accumulator")
        assert not client.is_model_ready("nobody")
        assert not client.is_model_ready("accumulator", "7")


def test_the_backlogs_hold_counts_requests(server):
    """TRITONSERVER_BACKLOG_DELAY_SCHEDULER counts three requests of one sequence as three."""
    s = server(oldest("{max_candidate_sequences: 1}", max_batch_size=1, more="batchSize: 1\n"), env=hooks(0, 3))
    sender = Sender(s)
    sender.send(7, 1, start=True, end=True)  # has the slot
    for value in (1, 2, 3):
        sender.send(value, 2, start=value == 1, end=value == 3)
    assert [reply.total for reply in sender.replies()] == [7, 1, 3, 6]


def test_v2_takes_what_predictions_do_not(server):
    """The limits are 64 MiB for v2 and TorchServe's 6,553,500 bytes for other APIs. One option sets both,
    and another one sets the limit of v2 alone."""
    large = json.dumps(one("INT8", "INT8", [1], [1])).encode() + b" " * 7_000_000
    s = server(identity())
    assert post(s, "identity", large).status_code == 200
    answer = requests.post(f"{s.inference}/predictions/identity", data=large, timeout=limit(30))
    assert answer.status_code == 413
    raw = np.zeros(2_000_000, np.int32)
    with v2rpc.client_of(s) as client:
        got = client.infer("identity", [v2rpc.tensor("INT32", raw, "INT32")]).as_numpy("INT32")
    assert got.nbytes == raw.nbytes
    too_large = requests.post(f"{s.inference}/v2/models/identity/infer", data=b" " * 67108865, timeout=limit(60))
    assert too_large.status_code == 413 and "67108864 (max-v2-request-size)" in too_large.json()["error"]
    for flags, most in ((["--max-request-size", "3000"], 3000), (["--max-v2-request-size", "4000"], 4000),
                        (["--max-request-size", "3000", "--max-v2-request-size", "5000"], 5000)):
        s = server(identity(), flags=flags)
        assert post(s, "identity", large[:100] + b" " * (most - 100)).status_code == 200
        assert post(s, "identity", b" " * (most + 1)).status_code == 413
