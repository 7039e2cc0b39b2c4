"""Decoupled models: no, one or many responses for a request, also after its handler has returned."""

import concurrent.futures
import json
import socket
import threading

import pytest
import requests

from event_stream import read_events
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
    """The refusal comes before the body is read, because the endpoint is wrong for any body."""
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
    """Each response has the form of infer, and says whether it is the last one."""
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
    """The answer is lines or events. A single response is a line, too, so that clients read all answers in the same
    way."""
    url = f"{repeats.inference}/predictions/repeat"
    for values in ([7], [1, 2, 3], []):
        answer = requests.post(url, json={"IN": values, "DELAY": [0] * len(values)}, timeout=20)
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert lines(answer.text) == [{"OUT": [v], "IDX": [i]} for i, v in enumerate(values)]
    answer = requests.post(url, json={"IN": [5], "DELAY": [0]}, headers={"Accept": "text/event-stream"}, timeout=20)
    assert [(id, json.loads(data)) for id, kind, data in read_events(answer.text) if kind == "message"] == [
        ("0-1", {"OUT": [5], "IDX": [0]})]


def test_a_quick_request_overtakes_a_slow_one(repeats):
    """In one worker no request waits for the responses of others."""
    with requests.post(f"{repeats.inference}/v2/models/repeat/infer", json=wanted([1, 2], [0, 3_600_000]),
                       headers={"Accept": "application/x-ndjson"}, stream=True, timeout=60) as slow:
        first = next(slow.iter_lines())
        assert value(json.loads(first)) == 1
        assert [value(r) for r in lines(infer(repeats, "repeat", wanted([8, 9], [1, 1]), "application/x-ndjson").text)
                ] == [8, 9]
    repeats.expect_log("repeat stops: gone after 1")


def test_thousands_of_responses(repeats):
    """Many requests at once get thousands of responses, each in order."""
    values = list(range(2000))

    def one(offset):
        sent = [v + offset for v in values]
        answer = infer(repeats, "repeat", wanted(sent), "application/x-ndjson")
        return [value(r) for r in lines(answer.text)] == sent

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(0, 8000, 1000)))


# A body as text: "keep" leaves the request open, "say X" answers those that are open, "end" ends them.
KEEPER_LUA = """
local open = {}

local function out(text)
    return { outputs = { SAID = { datatype = "BYTES", data = { text } } } }
end

return { api = 1, init = function() return { n = 0 } end, step = function(state, req)
    local verb, rest = req.inputs.DO.values[1]:match("^(%w+) ?(.*)$")
    state.n = state.n + 1
    if verb == "keep" then
        local i = #open + 1
        open[i] = req
        req:respond(out("open"))
        req:defer(function(r, why)
            open[i] = false
            continuo.log("info", "keeper stops: " .. why)
            if why ~= "gone" then r:reply(out("stopped: " .. why)) end
        end)
        return
    end
    local told = 0
    for i, other in ipairs(open) do
        if other and verb == "say" then
            other:respond(out(rest .. " " .. state.n)); told = told + 1
        elseif other and verb == "end" then
            other:reply(out("bye " .. state.n)); open[i] = false
        elseif other and verb == "fail" then
            other:fail(rest, 418); open[i] = false
        elseif other and verb == "bad" then
            other:respond({ outputs = { NOBODY = { datatype = "BYTES", data = { "x" } } } })
        elseif other and verb == "text" then
            other:respond("no tensors")
        elseif other and verb == "flood" then
            for _ = 1, 100 do other:respond(out(("x"):rep(100000))) end
        end
    end
    return out("told " .. told .. " at " .. state.n)
end }
"""


def keeper(stateful=True, **yaml):
    lua = KEEPER_LUA if stateful else KEEPER_LUA.replace(
        "init = function() return { n = 0 } end, step = function(state, req)",
        "handle = function(req) local state = { n = 0 }")
    lines_ = "".join(f"{key}: {value}\n" for key, value in yaml.items())
    return Model("keeper", lua,
                 f"{'sequenceBatching: true' if stateful else ''}\nbatchSize: 8\ndecoupled: true\n{lines_}"
                 "inputs: [{name: DO, dataType: BYTES, dims: [1]}]\noutputs: [{name: SAID, dataType: BYTES, dims: [1]}]\n",
                 stateful=stateful)


class Told:
    """A request that stays open and is read event by event."""

    def __init__(self, s, sequence, text="keep"):
        self.answer = requests.post(f"{s.inference}/v2/models/keeper/generate_stream", json={"DO": text}, stream=True,
                                    headers={"Inference-Session-Id": sequence}, timeout=60)
        self.lines = self.answer.iter_lines(1)
        assert self.next() == "open"

    def next(self):
        line = next(self.lines, None)
        while line == b"":
            line = next(self.lines, None)
        if line is None:
            return None
        event = json.loads(line.removeprefix(b"data: "))
        return event.get("SAID", event)


def say(s, text, sequence="other"):
    answer = requests.post(f"{s.inference}/v2/models/keeper/generate", json={"DO": text}, timeout=60,
                           headers={"Inference-Session-Id": sequence})
    return answer.json().get("SAID", answer.json())


def test_other_requests_answer(server):
    """Requests of other sequences answer it, in any order. The last response may carry the end, and a failure is an
    event."""
    s = server(keeper())
    first, second = Told(s, "a"), Told(s, "b")
    assert say(s, "say hello") == "told 2 at 1"
    assert (first.next(), second.next()) == ("hello 1", "hello 1")
    assert say(s, "fail no more") == "told 0 at 2"
    assert first.next() == second.next() == {"error": "no more"}
    assert first.next() is None
    third = Told(s, "c")
    say(s, "end")
    assert (third.next(), third.next()) == ("bye 3", None)


def test_an_open_request_holds_its_sequence(server):
    """The step is committed when the request ends. Until then the next step waits, and nothing of it is lost."""
    s = server(keeper())
    told = Told(s, "a")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(say, s, "say x", "a")
        assert say(s, "say still") == "told 1 at 1" and told.next() == "still 1"
        assert not waits.done()
        say(s, "end")
        assert told.next() == "bye 2"
        assert waits.result(20) == "told 0 at 2"
    s.stop()
    s.restart()
    assert say(s, "say y", "a") == "told 0 at 3"


def test_continuous_batching_lets_its_sequence_go_on(server):
    """The step is committed when the handler leaves the request open, so the next step of the same sequence can answer
    it."""
    s = server(keeper(continuousBatching="true"))
    told = Told(s, "a")
    assert say(s, "say own", "a") == "told 1 at 2" and told.next() == "own 2"
    say(s, "end", "a")
    assert (told.next(), told.next()) == ("bye 3", None)


def test_its_time_is_over(server):
    """The handler is told, and sends a last response."""
    s = server(keeper(stream="{timeoutMSec: 60000}"), clock=True)
    told = Told(s, "a")
    s.clock.advance(61_000)
    assert told.next() == "stopped: deadline" and told.next() is None


def test_the_server_stops(server):
    """Open requests are told that the server stops, and end normally."""
    s = server(keeper(), flags=["--drain-timeout", "4000"])
    told = Told(s, "a")
    stops = threading.Thread(target=s.stop)
    stops.start()
    assert told.next() == "stopped: ended" and told.next() is None
    stops.join()


def test_what_is_no_response_ends_the_stream(server):
    """A client learns of its handler's mistake, and a handler learns that its client has left."""
    s = server(keeper(stateful=False, answerMaxBytes=1_000_000))
    for verb, says in (("bad", "an output 'NOBODY' that the model does not declare"), ("flood", "answerMaxBytes")):
        told = Told(s, "a")
        answer = say(s, verb)
        assert says in (told.next() if verb == "bad" else answer)["error"]
        if verb == "bad":
            assert told.next() is None
            s.expect_log("keeper stops: gone")
        told.answer.close()


def test_a_dead_worker_breaks_it_off(server):
    """The end is an event, and the server continues with a new worker."""
    s = server(keeper())
    told = Told(s, "a")
    s.kill_worker("keeper")
    assert "error" in told.next() and told.next() is None
    s.expect_ready("keeper")
    assert say(s, "say x") == "told 0 at 1"


def test_a_slow_reader_holds_up_only_itself(server):
    """Responses that a client does not read stay in the worker, up to the model's limits. Other requests are answered
    meanwhile."""
    s = server(repeat())
    n = 60_000
    slow = socket.create_connection(s.inference.removeprefix("http://").split(":"), 20)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = json.dumps({"IN": [123456789] * n, "DELAY": [0] * n})
    slow.sendall(f"POST /v2/models/repeat/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
                 f"{body}".encode())
    assert slow.recv(4096).startswith(b"HTTP/1.1 200")
    answer = infer(s, "repeat", wanted(list(range(50))), "application/x-ndjson")
    assert len(lines(answer.text)) == 50
    slow.close()
    s.expect_log("repeat stops: gone")


@pytest.mark.parametrize("loops", [1, 3])
def test_clients_on_every_loop(server, loops):
    """Credit and cancellation pass from the client's loop to the loop of the model's queue."""
    s = server(repeat(), flags=("--loops", str(loops)))

    def one(i):
        with requests.post(f"{s.inference}/v2/models/repeat/infer", json=wanted([i] * 1500), stream=True, timeout=60,
                           headers={"Accept": "application/x-ndjson"}) as answer:
            if i % 3 == 0:
                return value(json.loads(next(answer.iter_lines()))) == i # and away
            return [value(json.loads(line)) for line in answer.iter_lines()] == [i] * 1500

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(24)))


def test_untyped_models_answer_later_too(server):
    """Over /predictions there is one late answer, or several pieces of it."""
    lua = """
    return { api = 1, handle = function(req)
        req:defer()
        continuo.after(0.01, function() req:respond("one ") end)
        continuo.after(0.02, function() req:send("two ") end)
        continuo.after(0.03, function() req:reply({ text = "three" }) end)
        continuo.after(0.02, function() error("is logged") end)
    end }
    """
    s = server(Model("late", lua, stateful=False))
    answer = requests.post(f"{s.inference}/predictions/late", timeout=20)
    assert answer.text == "one two three"
    s.expect_log("is logged")


LATE_LUA = """
return { api = 1, handle = function(req)
    req:defer()
    continuo.after(0.01, function() req:reply({ outputs = { X = { datatype = "INT32", data = { 7 } } } }) end)
end }
"""


def test_an_ordinary_model_may_answer_late(server):
    """Its only response works with every endpoint."""
    s = server(Model("late", LATE_LUA, "inputs: [{name: X, dataType: INT32, dims: [1]}]\n"
                                       "outputs: [{name: X, dataType: INT32, dims: [1]}]\n", stateful=False))
    document = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [1]}]}
    answer = infer(s, "late", document).json()
    assert value(answer, "X") == 7 and "parameters" not in answer
    assert requests.post(f"{s.inference}/v2/models/late/generate", json={"X": 1}, timeout=20).json()["X"] == 7
    predicted = requests.post(f"{s.inference}/predictions/late", json={"X": 1}, timeout=20)
    assert (predicted.headers["Content-Type"], predicted.json()) == ("application/json", {"X": [7]})
    event, = events(infer(s, "late", document, "text/event-stream").text)
    assert value(event, "X") == 7 and event["parameters"] == {"triton_final_response": True}
    raw = requests.post(f"{s.inference}/v2/models/late/infer", data=b"\0\0\0\0", timeout=20,
                        headers={"Inference-Header-Content-Length": "0", "Accept": "application/x-ndjson"})
    assert value(lines(raw.text)[0], "X") == 7


def test_binary_outputs_are_no_text(server):
    """In a stream they are refused if the request asks for them. In a raw request they are only the default."""
    s = server(repeat())
    for more in ({"parameters": {"binary_data_output": True}},
                 {"outputs": [{"name": "OUT", "parameters": {"binary_data": True}}]}):
        answer = infer(s, "repeat", wanted([1], **more), "text/event-stream")
        assert answer.status_code == 400 and "cannot be streamed as text" in answer.json()["error"]
    answer = infer(s, "repeat", wanted([3, 4], outputs=[{"name": "IDX"}]), "application/x-ndjson")
    assert [[output["name"] for output in response["outputs"]] for response in lines(answer.text)] == [["IDX"]] * 2


def test_events_are_not_compressed(server):
    """Events must leave at once, even one that is the whole answer."""
    s = server(repeat(), flags=("--compress-above", "10"))
    answer = requests.post(f"{s.inference}/v2/models/repeat/generate_stream", json={"IN": [1], "DELAY": [0]},
                           headers={"Accept-Encoding": "gzip"}, timeout=20)
    assert "Content-Encoding" not in answer.headers and events(answer.text)[0]["OUT"] == 1
