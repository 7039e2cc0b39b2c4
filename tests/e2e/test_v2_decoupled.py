"""Decoupled models: no, one or many responses for a request, also after its handler has returned."""

import concurrent.futures
import json
import socket
import threading

import pytest
import requests

from models import Model, ROOT
from waiting import expect

REPEAT = ROOT / "examples" / "v2" / "repeat"


def repeat(**_):
    return Model("repeat", (REPEAT / "handler.lua").read_text(), (REPEAT / "model-config.yaml").read_text(),
                 stateful=False)


def wanted(values, delays=None, wait=None, **more):
    inputs = [{"name": "IN", "datatype": "INT32", "shape": [len(values)], "data": values},
              {"name": "DELAY", "datatype": "UINT32", "shape": [len(values)], "data": delays or [0] * len(values)}]
    if wait is not None:
        inputs.append({"name": "WAIT", "datatype": "UINT32", "shape": [1], "data": [wait]})
    return {"inputs": inputs, **more}


def infer(s, model, document, accept=None, **more):
    return requests.post(f"{s.inference}/v2/models/{model}/infer", json=document, timeout=60,
                         headers={"Accept": accept} if accept else {}, **more)


def events(text):
    assert text == "" or text.endswith("\n\n")
    found = text.split("\n\n")[:-1]
    assert all(event.startswith("data: ") for event in found)
    return [json.loads(event.removeprefix("data: ")) for event in found]


def lines(text):
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def value(response, name="OUT"):
    return next(output["data"][0] for output in response["outputs"] if output["name"] == name)


@pytest.fixture
def repeats(server):
    return server(repeat())


def test_infer_refuses_and_says_what_to_use(repeats):
    """Before it looks at the body: the endpoint is the wrong one whatever that holds."""
    for body in (wanted([1]), {"inputs": 3}):
        answer = infer(repeats, "repeat", body)
        assert answer.status_code == 501
        says = answer.json()["error"]
        assert says.startswith("HTTP end point doesn't support models with decoupled transaction policy")
        assert "generate_stream" in says
    assert infer(repeats, "repeat", wanted([1]), "*/*").status_code == 501


@pytest.mark.parametrize("accept, read, content_type", [
    ("text/event-stream", events, "text/event-stream; charset=utf-8"),
    ("application/x-ndjson;q=0.9, */*", lines, "application/x-ndjson"),
])
def test_infer_streams_where_the_client_accepts_it(repeats, accept, read, content_type):
    """Each response is one of infer's own, and says whether it is the last one."""
    answer = infer(repeats, "repeat", wanted([4, 2, 0], id="r1"), accept)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, content_type)
    found = read(answer.text)
    assert [value(response) for response in found] == [4, 2, 0]
    assert [value(response, "IDX") for response in found] == [0, 1, 2]
    assert {(response["id"], response["model_name"], response["model_version"]) for response in found} == {
        ("r1", "repeat", "1.0")}
    # The end comes by itself after the last one, which brings no response with it.
    assert all(response["parameters"] == {"triton_final_response": False} for response in found)
    assert read(infer(repeats, "repeat", wanted([]), accept).text) == []


def test_configuration_says_decoupled(repeats):
    config = requests.get(f"{repeats.inference}/v2/models/repeat/config", timeout=20).json()
    assert config["model_transaction_policy"] == {"decoupled": True}


def test_predictions_are_lines(repeats):
    """Or events; one response is a line like many, so that a client reads all of them one way."""
    url = f"{repeats.inference}/predictions/repeat"
    for values in ([7], [1, 2, 3], []):
        answer = requests.post(url, json={"IN": values, "DELAY": [0] * len(values)}, timeout=20)
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert lines(answer.text) == [{"OUT": [v], "IDX": [i]} for i, v in enumerate(values)]
    answer = requests.post(url, json={"IN": [5], "DELAY": [0]}, headers={"Accept": "text/event-stream"}, timeout=20)
    assert events(answer.text) == [{"OUT": [5], "IDX": [0]}]


def test_a_quick_request_overtakes_a_slow_one(repeats):
    """In one worker: nobody waits for the responses of others."""
    with requests.post(f"{repeats.inference}/v2/models/repeat/infer", json=wanted([1, 2], [0, 3_600_000]),
                       headers={"Accept": "application/x-ndjson"}, stream=True, timeout=60) as slow:
        first = next(slow.iter_lines())
        assert value(json.loads(first)) == 1
        assert [value(r) for r in lines(infer(repeats, "repeat", wanted([8, 9], [1, 1]), "application/x-ndjson").text)
                ] == [8, 9]
    repeats.expect_log("repeat stops: gone after 1")


def test_thousands_of_responses(repeats):
    """From many requests at once, each in its order."""
    values = list(range(2000))

    def one(offset):
        sent = [v + offset for v in values]
        answer = infer(repeats, "repeat", wanted(sent), "application/x-ndjson")
        return [value(r) for r in lines(answer.text)] == sent

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(0, 8000, 1000)))
