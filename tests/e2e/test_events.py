"""Server-sent events of /predictions (docs/events.md): one for each piece, of every handler, and the rest of an answer
whose connection broke."""

import base64
import json

import pytest
import requests

from browsing import browser, page_of
from event_stream import read_events
from models import Model, counter
from waiting import expect, limit

EVENTS = {"Accept": "text/event-stream"}

# A body "n": n pieces "1 ", "2 ", ..., and "end". With "n then fail" it fails behind them, and with "n then wait" it
# rests for an hour.
TALKER_LUA = """
local M = { api = 1 }
function M.init() return { steps = 0 } end
function M.step(state, req)
    local n, what = req.text:match("^(%d+)%s*t?h?e?n?%s*(%a*)")
    state.steps = state.steps + 1
    for i = 1, tonumber(n) do
        coroutine.yield({ text = i .. " " })
    end
    if what == "fail" then error("broke") end
    if what == "wait" then coroutine.yield("waits", 3600) end
    return { text = "end" }
end
return M
"""

# Answers with the pieces that the body names in base64, one in each line, with the content type of a header.
PIECES_LUA = """
local M = { api = 1 }
local function decode(text)
    local set = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    local out, bits, n = {}, 0, 0
    for c in text:gmatch("[%w+/]") do
        bits = (bits << 6) | (set:find(c, 1, true) - 1)
        n = n + 6
        if n >= 8 then
            n = n - 8
            out[#out + 1] = string.char((bits >> n) & 255)
            bits = bits & ((1 << n) - 1)
        end
    end
    return table.concat(out)
end
function M.handle(req)
    local pieces, headers = {}, {}
    for line in req.text:gmatch("[^\\n]+") do pieces[#pieces + 1] = decode(line) end
    if req.headers["x-coding"] then headers["content-encoding"] = req.headers["x-coding"] end
    local type = req.headers["x-type"]
    for i = 1, #pieces - 1 do
        coroutine.yield({ body = pieces[i], content_type = i == 1 and type or nil, headers = i == 1 and headers or nil })
    end
    return { body = pieces[#pieces] or "", content_type = #pieces < 2 and type or nil,
             headers = #pieces < 2 and headers or nil }
end
return M
"""


def predict(server, model, body, **headers):
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = requests.post(f"{server.inference}/predictions/{model}", data=body, headers={**EVENTS, **sent},
                           timeout=limit(20))
    answer.encoding = "utf-8"
    return answer


def talker(**yaml):
    return Model("talker", TALKER_LUA, yaml)


@pytest.fixture(scope="module")
def pieces_server(shared_server):
    return shared_server(Model("pieces", PIECES_LUA, stateful=False))


@pytest.fixture(scope="module")
def three_steps(shared_server):
    """Sequence a has had three steps, with three keys."""
    s = shared_server(talker())
    for key in "first", "middle", "second":
        predict(s, "talker", "1", Continuo_Sequence="a", Idempotency_Key=key)
    return s


def test_pieces_of_a_step_are_events(server):
    """The id says which piece of which step it is, and the last event that there is no more."""
    s = server(talker())
    answer = predict(s, "talker", "2", Continuo_Sequence="a")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert "Continuo-Sequence-Step" not in answer.headers
    *pieces, end = read_events(answer.text)
    assert pieces == [("1-1", "message", "1 "), ("1-2", "message", "2 "), ("1-3", "message", "end")]
    assert end[:2] == ("1-end", "end") and json.loads(end[2]) == {
        "step": 1, "pieces": 3, "content_type": "text/plain; charset=utf-8"}
    assert read_events(predict(s, "talker", "0", Continuo_Sequence="a").text)[0] == ("2-1", "message", "end")


def test_whole_answers_are_events_too(server):
    """A client need not know whether the handler streams."""
    s = server(counter())
    assert requests.post(f"{s.inference}/predictions/counter", data="4", timeout=limit(20),
                         headers={"Accept": "*/*"}).text == "4"
    answer = predict(s, "counter", "4", Continuo_Sequence="a")
    assert answer.headers["Continuo-Sequence-Step"] == "1"
    piece, end = read_events(answer.text)
    assert piece == ("1-1", "message", "4")
    assert json.loads(end[2])["content_type"].startswith("text/plain")


@pytest.mark.parametrize("content_type, pieces, expected", [
    ("text/plain", [b"one\ntwo\n", b"\n", "ü".encode()], [("message", "one\ntwo\n"), ("message", "\n"), ("message", "ü")]),
    ("text/plain", [b"a\r\nb", b"c"], [("base64", b"a\r\nb"), ("message", "c")]),
    ("text/plain", ["€".encode()[:1], "€".encode()[1:2], "€".encode()[2:] + b"!"], [("message", "€!")]),
    ("text/plain", [b"ok\xe2\x82", b"\xffx"], [("message", "ok"), ("base64", b"\xe2\x82\xffx")]),
    ("text/plain", [b"ok\xf0\x9f\x98"], [("base64", b"ok\xf0\x9f\x98")]),
    ("application/json", [b'{"a":\r\n1}', b'[2]\n'], [("message", '{"a":\n\n1}'), ("message", "[2]\n")]),
    ("audio/wav", [b"RIFF", b"\x00\xff"], [("base64", b"RIFF"), ("base64", b"\x00\xff")]),
    (None, [b"bytes"], [("base64", b"bytes")]),  # a handler that answers with a body and no type means bytes
    ("text/plain", [], []),
])
def test_every_byte_arrives(pieces_server, content_type, pieces, expected):
    """Events are lines of UTF-8: what they cannot express is base64."""
    s = pieces_server
    body = "\n".join(base64.b64encode(piece).decode() for piece in pieces)
    headers = {"X_Type": content_type} if content_type else {}
    *found, end = read_events(predict(s, "pieces", body, **headers).text)
    assert [(kind, base64.b64decode(data) if kind == "base64" else data) for _, kind, data in found] == expected
    assert [id for id, _, _ in found][:1] in ([], ["0-1"], ["0-3"])  # a stateless model has no steps
    assert json.loads(end[2])["pieces"] == len(pieces)


CUT_LUA = """
local M = { api = 1 }
function M.handle(req)
    coroutine.yield({ body = "ok\\xe2\\x82", content_type = "text/plain" })
    return { body = "" }
end
return M
"""


def test_bytes_that_no_piece_completes_have_an_id_of_their_own(server):
    """With the id of the piece before it, such an event would be left out when a client goes on behind that piece."""
    s = server(Model("cut", CUT_LUA, stateful=False))
    first, rest, end = read_events(predict(s, "cut", "").text)
    assert first == ("0-1", "message", "ok")
    assert rest[:2] == ("0-2", "base64") and base64.b64decode(rest[2]) == b"\xe2\x82"
    assert json.loads(end[2])["pieces"] == 2


def test_coded_answers_are_bytes_and_own_events_stay(pieces_server):
    s = pieces_server
    answer = predict(s, "pieces", base64.b64encode(b"zipped").decode(), X_Type="text/plain", X_Coding="gzip")
    assert "Content-Encoding" not in answer.headers
    assert read_events(answer.text)[0] == ("0-1", "base64", base64.b64encode(b"zipped").decode())
    own = predict(s, "pieces", base64.b64encode(b"data: mine\n\n").decode(), X_Type="text/event-stream")
    assert own.text == "data: mine\n\n"


def test_errors_before_and_behind_the_first_event(server):
    """Before it the status says it; behind it, an event with the same JSON."""
    s = server(talker())
    answer = predict(s, "talker", "0 then fail", Continuo_Sequence="a")
    assert answer.status_code == 500 and answer.json()["code"] == 500
    answer = predict(s, "talker", "1 then fail", Continuo_Sequence="a")
    piece, error = read_events(answer.text)
    assert (answer.status_code, piece) == (200, ("1-1", "message", "1 "))
    said = json.loads(error[2])
    assert error[1] == "error" and (said["code"], said["error"]) == (500, "handler_failed")
    assert "broke" in said["message"]
    assert read_events(predict(s, "talker", "0", Continuo_Sequence="a").text)[0][0] == "1-1"  # nothing was done


def test_killed_worker_is_an_error_event(server):
    s = server(talker())
    with requests.post(f"{s.inference}/predictions/talker", data="1 then wait", headers={**EVENTS, "Continuo-Sequence": "a"},
                       stream=True, timeout=limit(60)) as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        while next(lines) != "data: waits":
            pass
        s.kill_worker("talker")
        rest = list(lines)
    assert "event: error" in rest


def test_the_rest_of_a_broken_answer(server):
    """The step is committed, so the same request with its key brings the pieces that the client has not seen."""
    s = server(talker())
    same = {"Continuo_Sequence": "a", "Idempotency_Key": "k"}
    whole = read_events(predict(s, "talker", "3", **same).text)
    s.kill()
    s.restart()
    for seen in 0, 1, 3, 4:
        answer = predict(s, "talker", "3", Last_Event_ID=f"1-{seen}", **same)
        assert answer.headers["Continuo-Replayed"] == "true"
        *pieces, end = read_events(answer.text)
        assert pieces == whole[seen:-1] and json.loads(end[2])["replayed"] is True
    numbered = {"Continuo_Sequence": "b", "ts_request_sequence_step": "1"}
    predict(s, "talker", "3", **numbered)
    assert read_events(predict(s, "talker", "3", Last_Event_ID="1-3", **numbered).text)[0] == ("1-4", "message", "end")


def test_a_client_that_has_seen_the_end_gets_nothing(server):
    """A browser's EventSource connects again after each end, until it gets 204. No step may be done by that."""
    s = server(talker())
    predict(s, "talker", "3", Continuo_Sequence="a")
    answer = predict(s, "talker", "3", Continuo_Sequence="a", Last_Event_ID="1-end")
    assert (answer.status_code, answer.text) == (204, "")
    assert read_events(predict(s, "talker", "0", Continuo_Sequence="a").text)[0][0] == "2-1"


def test_a_step_that_was_not_committed_is_done_again_and_says_so(server):
    """The pieces of the second answer need not be those of the first."""
    s = server(talker())
    same = {"Continuo-Sequence": "a", "Idempotency-Key": "k"}
    with requests.post(f"{s.inference}/predictions/talker", data="2 then wait", headers={**EVENTS, **same}, stream=True,
                       timeout=limit(60)) as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        while next(lines) != "data: waits":
            pass
        s.kill()
    s.restart()
    answer = predict(s, "talker", "2 then end", Last_Event_ID="1-2", **same)
    restart, *pieces, end = read_events(answer.text)
    assert restart[1] == "restart" and "done again" in json.loads(restart[2])["message"]
    assert [data for _, _, data in pieces] == ["1 ", "2 ", "end"] and json.loads(end[2])["step"] == 1


@pytest.mark.parametrize("last, headers, status, says", [
    ("x", {}, 400, "must be the id of an event"),
    ("1-", {}, 400, "must be the id of an event"),
    ("-1", {}, 400, "must be the id of an event"),
    ("9999999999999999999-1", {}, 400, "must be the id of an event"),
    ("1-1", {}, 400, "neither the Idempotency-Key nor the number"),
    ("2-1", {"ts-request-sequence-step": "1"}, 400, "names an event of step 2, but the request is step 1"),
    ("2-1", {"Idempotency-Key": "second"}, 400, "names an event of step 2, but this request was step 3"),
    ("1-1", {"Idempotency-Key": "first"}, 409, "was already done"),
    ("2-1", {"ts-request-sequence-step": "2"}, 409, "was already done"),
])
def test_what_cannot_be_resumed(three_steps, last, headers, status, says):
    answer = requests.post(f"{three_steps.inference}/predictions/talker", data="1", timeout=limit(20),
                           headers={**EVENTS, "Continuo-Sequence": "a", "Last-Event-ID": last, **headers})
    assert answer.status_code == status and says in answer.json()["message"]


def test_a_slow_reader_holds_up_only_its_handler(server):
    """The credit counts the handler's bytes, not those of the events."""
    s = server(Model("flood", """
return { api = 1, handle = function(req)
    local piece = ("x\\n"):rep(50000)
    for i = 1, 40 do coroutine.yield(piece) end
    return "end"
end }""", {"stream": {"bufferBytes": 200000}}, stateful=False))
    answer = predict(s, "flood", "")
    *pieces, last, end = read_events(answer.text)
    assert len(pieces) == 40 and all(data == "x\n" * 50000 for _, _, data in pieces)
    assert last == ("0-41", "message", "end") and end[0] == "0-end"


THREE_LUA = """
return { api = 1, handle = function(req)
    continuo.log("info", "three runs")
    coroutine.yield("one")
    coroutine.yield("two\\nlines")
    return "three"
end }"""


def test_a_browsers_own_reader_ends(server):
    """EventSource connects again after each end, with the id of the last event. It must not run the request again."""
    s = server(Model("three", THREE_LUA, stateful=False))
    with browser() as chromium, page_of(chromium, s.inference) as page:
        page.goto(s.inference + "/try/three")
        page.evaluate("""() => {
            window.seen = [];
            window.source = new EventSource("/predictions/three");
            source.onmessage = (event) => seen.push(event.lastEventId + " " + event.data);
            source.addEventListener("end", (event) => seen.push(event.lastEventId));
        }""")
        expect(lambda: page.evaluate("source.readyState === EventSource.CLOSED"), "the end of EventSource", timeout=30)
        assert page.evaluate("seen") == ["0-1 one", "0-2 two\nlines", "0-3 three", "0-end"]
    assert sum("three runs" in line for line in s.lines) == 1


# The second piece has an output that JSON cannot express.
HOLE_LUA = """
local M = { api = 1 }
function M.step()
    coroutine.yield({ outputs = { y = { datatype = "FP32", shape = { 1 }, data = { 1 } } } })
    coroutine.yield({ outputs = { z = { datatype = "FP16", shape = { 1 }, data = "ab" } } })
    coroutine.yield({ outputs = { y = { datatype = "FP32", shape = { 1 }, data = { 3 } } } })
    return { outputs = { y = { datatype = "FP32", shape = { 1 }, data = { 4 } } } }
end
return M
"""


def test_nothing_follows_a_piece_that_cannot_be_sent(server):
    """An answer with a hole must not look complete."""
    tensors = "[{name: y, datatype: FP32, dims: [1]}, {name: z, datatype: FP16, dims: [1]}]"
    running = server(Model("hole", HOLE_LUA, {"decoupled": True, "inputs": "[{name: x, datatype: FP32, dims: [1]}]",
                                              "outputs": tensors}, stateful=False))
    for _ in range(5):
        answer = requests.post(running.inference + "/predictions/hole", json={"x": [1]}, headers=EVENTS,
                               timeout=limit(20))
        (_, *first), (_, kind, error) = read_events(answer.text)
        assert (first, kind) == (["message", '{"y":[1.0]}'], "error")
        assert "FP16" in json.loads(error)["message"]
