"""Streamed answers: chunk by chunk, beside the steps of other sequences, ended from outside, and broken off."""

import concurrent.futures
import http.client
import re
import signal

import pytest

from client import RawClient, curl
from models import ROOT, Model
from resident import resident_bytes
from server import SLOW_BUILD, address_of
from waiting import expect

COUNTER = ROOT / "examples" / "counter"

# A body "n seconds": that many pieces "1 " "2 " ..., with a rest after each; each counts in the state.
TALKER_LUA = """
local M = { api = 1 }

function M.init()
    return { said = 0 }
end

function M.step(state, req)
    local n, seconds = req.text:match("^(%d+) ([%d.]+)$")
    if not n then
        return { text = state.said }
    end
    for i = 1, tonumber(n) do
        state.said = state.said + 1
        local ok, why = coroutine.yield({ text = i .. " ", status = i == 1 and 202 or nil,
                                          headers = i == 1 and { ["x-voice"] = "low" } or nil },
                                        tonumber(seconds))
        if not ok then
            continuo.log("info", "talker stops: " .. why)
            return { text = why }
        end
    end
    return { text = "end" }
end

return M
"""

# Pieces of 1 MB, 1024 of them, or without an end; it says how far it came when it is told to stop.
FLOOD_LUA = """
local M = { api = 1 }
local megabyte = ("x"):rep(1 << 20)

function M.handle(req)
    if req.text == "ping" then
        return "pong"
    end
    local i = 0
    while req.text == "deaf" or req.text == "forever" or i < MEGABYTES do
        i = i + 1
        local ok, why = coroutine.yield(req.text == "forever" and "x" or megabyte)
        if not ok and req.text ~= "deaf" then
            continuo.log("info", "flood stops: " .. why .. " after " .. i)
            return ""
        end
    end
    return "end"
end

return M
"""


def talker(**yaml):
    return Model("talker", TALKER_LUA, yaml)


def flood(megabytes=1024, **yaml):
    return Model("flood", FLOOD_LUA.replace("MEGABYTES", str(megabytes)), yaml, stateful=False)


def streaming_counter(pieces=4, seconds=0.1, **more):
    """The example with its own YAML, only faster."""
    yaml = (COUNTER / "streaming-config.yaml").read_text()
    yaml = re.sub(r"pieces: \d+, seconds: [\d.]+", f"pieces: {pieces}, seconds: {seconds}", yaml)
    for key, value in more.items():
        yaml = re.sub(rf"^{key}:.*\n", "", yaml, flags=re.M) + f"{key}: {value}\n"
    return Model("counter", (COUNTER / "handler.lua").read_text(), yaml)


# --- what a client gets

def test_curl_gets_chunks_under_the_first_pieces_head(server, transcript):
    """The first piece has the status and the headers of the answer, and each piece is a chunk."""
    s = server(talker())
    headers, body = curl(transcript, "--raw", s.inference + "/predictions/talker", "-d", "3 0")
    assert headers.startswith("HTTP/1.1 202"), headers
    assert re.search(r"^transfer-encoding: chunked\r?$", headers, re.M | re.I), headers
    assert re.search(r"^x-voice: low\r?$", headers, re.M | re.I), headers
    assert body == "2\r\n1 \r\n2\r\n2 \r\n2\r\n3 \r\n3\r\nend\r\n0\r\n\r\n"


def test_pieces_come_as_they_are_made(server):
    """If all pieces came at the end, the answer would not be a stream."""
    s = server(talker())
    stream = s.stream("talker", "a", "3 600")  # ten minutes between two pieces
    assert stream.head.status == 202
    assert stream.piece() == b"1 "
    s.client().step("talker", "b", b"")  # the worker is free all that time
    stream.close()


def test_old_clients_get_the_same_without_chunks(server):
    """HTTP/1.0 has no chunks, so the answer ends with the connection."""
    s = server(talker())
    raw = s.raw()
    raw.send("POST /predictions/talker HTTP/1.0\r\nContent-Length: 3\r\n\r\n2 0")
    answer = raw.answer()
    assert (answer.status, answer.text) == (202, "1 2 end")
    assert answer.headers["Transfer-Encoding"] is None


def test_a_stream_without_a_body_is_a_head_alone(server):
    """HEAD, and the statuses 204 and 304, have no body, so not even its last chunk may come: it would be read as the
    beginning of the next answer. The step is done all the same."""
    s = server(Model("m", """
return {
    init = function() return { n = 0 } end,
    step = function(state, req)
        state.n = state.n + 1
        if req.text == "n" then return { text = state.n } end
        coroutine.yield({ text = "one ", status = tonumber(req.text), headers = { ["x-voice"] = "low" } })
        coroutine.yield("two ")
        if req.text == "500" then error("broke") end
        return "end"
    end }"""))
    for method, status, length in ("HEAD", 200, "11"), ("POST", 204, None), ("POST", 304, "11"), ("HEAD", 500, None):
        raw, head = s.raw(), f" /predictions/m HTTP/1.1\r\nHost: t\r\nContinuo-Sequence: {method}{status}\r\n"
        raw.send(f"{method}{head}Content-Length: 3\r\n\r\n{status}")
        answer = raw.answer(method)
        assert (answer.status, answer.body, answer.headers["Transfer-Encoding"]) == (status, b"", None)
        if status != 500:
            assert (answer.headers["x-voice"], answer.headers["Continuo-Sequence-Step"]) == ("low", "1")
            assert answer.headers["Content-Length"] == length
        else:
            assert answer.headers["Continuo-Error"] == "handler_failed"
        raw.send(f"POST{head}Content-Length: 1\r\n\r\nn")
        answer = raw.answer()
        assert (answer.status, answer.text) == (200, "1" if status == 500 else "2"), (method, status)


def test_a_compressed_answer_without_a_body_is_a_head_alone(server):
    s = server(Model("m", "return { handle = function(req) return ('x'):rep(4096) end }", stateful=False),
               flags=["--compress-above", "1024"])
    for address, path in (s.inference, "/predictions/m"), (s.management, "/"):
        raw = RawClient(address_of(address), s.transcript, "raw")
        for method in "HEAD", "HEAD", "GET":
            raw.send(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
            answer = raw.answer(method)
            assert (answer.status, answer.headers["Transfer-Encoding"]) == (200, "chunked" if method == "GET" else None)


def test_error_before_the_first_piece_is_an_ordinary_answer(server):
    s = server(Model("m", "return { step = function() coroutine.yield(print) end }"))
    answer = s.client().step("m", "a", b"")
    assert (answer.status, answer.error) == (500, "handler_failed")


def test_error_after_the_first_piece_breaks_the_answer_off(server):
    """The head has already said 200. So the server leaves out the end of the body, which clients notice."""
    s = server(Model("m", "return { step = function(state) coroutine.yield('p') error('broke') end }"))
    stream = s.stream("m", "a", "")
    with pytest.raises(http.client.IncompleteRead) as broken:
        stream.rest()
    assert broken.value.partial == b"p"
    s.expect_log("handler_error", "broke")


# --- one step

def test_stream_is_one_step_and_its_retry_gets_it_whole(server):
    """The state and the answer are stored with the last piece."""
    s = server(talker())
    client, key = s.client(), {"Idempotency-Key": "k1"}
    first = client.step("talker", "a", b"3 0", headers=key)
    again = client.step("talker", "a", b"3 0", headers=key)
    assert first.text == again.text == "1 2 3 end"
    assert (again.status, again.headers["x-voice"]) == (202, "low")
    assert again.headers["Continuo-Replayed"] == "true"
    assert client.step("talker", "a", b"").text == "3"


def test_next_step_waits_for_the_stream(server):
    """Without continuousBatching the steps of a sequence run one by one, even if they stream."""
    s = server(talker())
    stream = s.stream("talker", "a", "3 0.2")
    assert stream.piece() == b"1 "
    assert s.client().step("talker", "a", b"").text == "3"
    assert stream.rest() == b"2 3 end"


def test_killed_worker_breaks_the_stream_off_and_the_step_is_not_done(server):
    """The pieces that the client has cannot be made again. So the body has no end, and nothing is kept."""
    s = server(talker())
    client = s.client()
    stream = s.stream("talker", "a", "3 600")
    assert stream.piece() == b"1 "
    s.kill_worker("talker")
    with pytest.raises(http.client.IncompleteRead):
        stream.rest()
    assert client.step("talker", "a", b"").text == "0"


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_broken_off_answer_leaves_no_connection_behind(server, version):
    """The server ends the connection itself, whatever the client does. Otherwise each such answer would keep a
    descriptor, and a stop would wait for its connection."""
    s = server(talker())
    older = s.client("older")
    older.step("talker", "a", b"")
    open_ones = s.metric("continuo_http_connections")
    for i in range(3):
        raw = s.raw(f"stream{i}")
        raw.send(f"POST /predictions/talker HTTP/{version}\r\nHost: t\r\nts_request_sequence_id: s{i}\r\n"
                 "Content-Length: 5\r\n\r\n9 600")
        assert raw.socket.recv(4096).startswith(b"HTTP/1.1 202")
        s.kill_worker("talker")
        assert raw.is_closed_by_server()
        raw.close()
        s.expect_ready("talker")
    expect(lambda: s.metric("continuo_http_connections") == open_ones, "only the older connection is left")
    assert older.step("talker", "a", b"").status == 200
    s.stop(timeout=5)


def test_old_client_whose_answer_ends_late_leaves_no_connection_behind(server):
    """The same can happen to an HTTP/1.0 client, whose answer ends with the connection."""
    s = server(Model("m", "return { step = function() coroutine.yield('p', 0.2) return '' end }"))
    older = s.client("older")
    older.get("/ping")
    open_ones = s.metric("continuo_http_connections")
    raw = s.raw()
    raw.send("POST /predictions/m HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
    answer = raw.answer()
    assert (answer.status, answer.text) == (200, "p")
    raw.close()
    expect(lambda: s.metric("continuo_http_connections") == open_ones, "only the older connection is left")
    assert older.get("/ping").status == 200


def test_killed_worker_with_a_committed_stream(server):
    """With continuousBatching the step was committed at its first yield, and its retry learns only that."""
    s = server(talker(continuousBatching=True))
    client, key = s.client(), {"Idempotency-Key": "k1"}
    stream = s.stream("talker", "a", "3 600", headers=key)
    assert stream.piece() == b"1 "
    s.kill_worker("talker")
    with pytest.raises(http.client.IncompleteRead):
        stream.rest()
    again = client.step("talker", "a", b"3 600", headers=key)
    assert (again.status, again.error) == (409, "answer_not_kept")
    assert "its answer was streamed" in again.message
    assert client.step("talker", "a", b"").text == "1"


# --- ends from outside

def test_handler_hears_that_its_client_is_gone(server):
    """The handler ends in its own way, and what it did until then is kept."""
    s = server(talker())
    stream = s.stream("talker", "a", "9 600")
    assert stream.piece() == b"1 "
    stream.close()
    s.expect_log("talker stops: gone")
    assert s.client().step("talker", "a", b"").text == "1"


@pytest.mark.parametrize("how", ["end", "start"])
def test_end_and_start_need_not_wait_for_a_stream(server, how):
    """A client that ends its sequence does not want more of the stream."""
    s = server(talker())
    stream = s.stream("talker", "a", "9 600")
    assert stream.piece() == b"1 "
    answer = s.client().step("talker", "a", b"", headers={f"ts_request_sequence_{how}": "true"})
    assert answer.text == ("1" if how == "end" else "0")
    assert stream.rest() == b"ended"


def test_delete_need_not_wait_for_a_stream(server):
    s = server(talker())
    stream = s.stream("talker", "a", "9 600")
    assert stream.piece() == b"1 "
    assert s.admin().delete("/models/talker/sequences/a").status == 200
    assert stream.rest() == b"ended"


def test_unregister_need_not_wait_for_a_stream(server):
    s = server(talker())
    stream = s.stream("talker", "a", "9 600")
    assert stream.piece() == b"1 "
    assert s.admin().delete("/models/talker").status == 200
    assert stream.rest() == b"ended"


def test_time_is_up_for_a_stream(server):
    """stream.timeoutMSec: the handler is told to end, and the step counts."""
    s = server(talker(stream={"timeoutMSec": 200}))
    stream = s.stream("talker", "a", "9 600")
    assert stream.rest() == b"1 deadline"


# --- a next step while the one before streams

def test_cancel_overtakes_the_stream(server):
    """-1 on a second connection ends the stream of the first one, and 0 then frees the place, again and again."""
    s = server(streaming_counter(pieces=1000, seconds=0.05, maxNumSequence=1, batchSize=1))
    client = s.client()
    for _ in range(3):
        opened = client.step("counter", None, 2)
        assert (opened.status, opened.text) == (200, "2")
        assert opened.headers["Transfer-Encoding"] is None
        stream = s.stream("counter", opened.sequence, 5)
        assert stream.head.headers["Transfer-Encoding"] == "chunked"
        assert stream.piece().startswith(b"7")
        assert client.step("counter", opened.sequence, 4).text == "11"  # overtakes it, and is no stream
        assert client.step("counter", opened.sequence, -1).text == "-1"
        rest = stream.rest()
        assert set(rest) <= set(b"7") and len(rest) < 900
        assert client.step("counter", opened.sequence, 0).text == "11"
        assert s.describe("counter")["liveSequences"] == 0


def test_end_of_the_sequence_ends_its_streams(server):
    s = server(streaming_counter(pieces=1000, seconds=0.05))
    client = s.client()
    client.step("counter", "a", 2)
    streams = [s.stream("counter", "a", 5) for _ in range(3)]
    for stream in streams:
        assert stream.piece()
    assert client.step("counter", "a", 0).text == "17"
    for stream in streams:
        stream.rest()
    assert client.step("counter", "a", 3).text == "3"


def test_odd_numbers_stream_until_their_limit(server):
    """The first request of a sequence gets an answer in one piece, whatever the number is."""
    s = server(streaming_counter(pieces=4, seconds=0.01))
    client = s.client()
    assert client.step("counter", "a", 3).headers["Transfer-Encoding"] is None
    streamed = client.step("counter", "a", b'{"input": 5}')
    assert (streamed.text, streamed.headers["Transfer-Encoding"]) == ("8888", "chunked")


def test_commits_are_in_the_order_of_arrival(server):
    """Each step is committed before the next one runs, even while all of them still stream."""
    s = server(streaming_counter(pieces=30, seconds=0.02))
    s.client().step("counter", "a", 2)
    streams = []
    for number in (1, 3, 5, 7):
        streams.append(s.stream("counter", "a", number))
        streams[-1].head  # its first piece is out, so it is committed
    assert [int(stream.rest()[:2].decode()[0:1] or 0) > 0 for stream in streams] == [True] * 4
    assert s.client().step("counter", "a", 2).text == "20"


def test_a_committed_stream_has_a_state_of_its_own(server):
    """What the stream does to its state is dropped, even if later steps give the sequence another table."""
    s = server(Model("two", """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.step(state, req)
    if req.text == "add" then
        req.state = { n = state.n + 100 }
    elseif req.text == "stop" then
        return { text = state.n, stop_streams = true }
    end
    while req.text == "stream" do
        state.n = state.n + 1
        if not coroutine.yield({ text = state.n .. " " }, 0.02) then
            return { text = "end" }
        end
    end
    return { text = req.state.n }
end
return M
""", {"continuousBatching": True}))
    client = s.client()
    stream = s.stream("two", "a", "stream")
    told = b""

    def hear(n):
        nonlocal told
        while told.count(b" ") < n:
            told += stream.piece()

    hear(1)
    assert client.step("two", "a", b"add").text == "101"
    hear(told.count(b" ") + 2)
    assert client.step("two", "a", b"add").text == "201"
    hear(told.count(b" ") + 2)
    assert client.step("two", "a", b"stop").text == "201"
    told += stream.rest()
    n = told.count(b" ")
    assert n >= 5
    assert told.decode() == "".join(f"{i} " for i in range(1, n + 1)) + "end"
    assert client.step("two", "a", b"").text == "201"


# --- bad input

def test_client_that_does_not_read_holds_up_nobody(server):
    """The answer has 1 GB, and its client reads nothing. Only a few pieces are made, other clients are served, and the
    server needs no memory for the rest."""
    s = server(flood(stream={"bufferBytes": 2 << 20}))
    before = resident_bytes(s.process.pid)
    raw = s.raw(receive_buffer=4096)
    raw.send("POST /predictions/flood HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nflood")
    client = s.client()
    for _ in range(50):
        assert client.post("/predictions/flood", b"ping").text == "pong"
    expect(lambda: s.describe("flood")["jobQueueStatus"]["inFlight"] == 1, "one row streams")
    assert resident_bytes(s.process.pid) - before < 64 << 20
    raw.close()
    line = s.expect_log("flood stops: gone")
    assert int(re.search(r"after (\d+)", line).group(1)) < 20


def test_slow_reader_gets_everything(server):
    """The reader pauses at each megabyte, and no byte is lost."""
    megabytes = 64 if SLOW_BUILD else 256
    s = server(flood(megabytes, stream={"bufferBytes": 1 << 20}))
    stream = s.stream("flood", None, "flood")
    got, ends = 0, b""
    while piece := stream.piece():
        got, ends = got + len(piece), (ends + piece)[-3:]
    assert (got, ends) == ((megabytes << 20) + 3, b"end")


def test_stream_without_an_end_ends_with_its_time(server):
    """A handler that yields for ever and ignores the request to stop is given up: its client's answer breaks off."""
    s = server(flood(stream={"timeoutMSec": 300}))
    stream = s.stream("flood", None, "forever")
    assert set(stream.rest()) == set(b"x")  # this one listens
    s.expect_log("flood stops: deadline")
    deaf = s.stream("flood", None, "deaf")
    with pytest.raises(http.client.IncompleteRead):
        while deaf.head.read(1 << 20):
            pass
    assert s.client().post("/predictions/flood", b"ping").text == "pong"


def test_handler_that_never_yields_is_cut_beside_a_stream(server):
    """callMSec limits one call: the hanging one fails alone, and the stream in the same worker continues."""
    lua = TALKER_LUA.replace("if not n then", "if req.text == 'hang' then while true do end end\n    if not n then")
    s = server(Model("talker", lua, {"handler": {"limits": {"callMSec": 200}}}))
    stream = s.stream("talker", "a", "3 0.1")
    assert stream.piece() == b"1 "
    hung = s.client().step("talker", "b", b"hang")
    assert (hung.status, hung.error) == (500, "deadline")
    assert stream.rest().endswith(b"end")


def test_many_streams_and_steps_in_one_worker(server):
    """One worker has 64 streams and the steps of 16 sequences. Each client gets its own answers, in order."""
    s = server(talker(batchSize=8))
    wanted = "".join(f"{i} " for i in range(1, 21)) + "end"

    def read(number):
        return s.stream("talker", f"t{number}", "20 0.01").rest().decode()

    def steps(number):
        client = s.client()
        return [client.step("talker", f"s{number}", b"1 0").text for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(80) as pool:
        streams = [pool.submit(read, i) for i in range(64)]
        others = [pool.submit(steps, i) for i in range(16)]
        assert all(f.result() == wanted for f in streams)
        assert all(f.result() == ["1 end"] * 20 for f in others)
    assert s.client().step("talker", "t0", b"").text == "20"


def test_drain_lets_a_stream_end(server):
    """After SIGTERM a stream may go on for three quarters of --drain-timeout; then its handler is told to end."""
    s = server(talker(), flags=["--drain-timeout", "1000"])
    stream = s.stream("talker", "a", "9 600")
    assert stream.piece() == b"1 "
    s.process.send_signal(signal.SIGTERM)
    assert stream.rest() == b"ended"
    assert s.exit_code() == 0


PIECES_LUA = """
local pieces = { text = { "caf\\u{e9} ", "end" }, cut = { "caf\\xc3", "\\xa9" }, bytes = { "\\xff\\x00", "\\x01" } }
return { api = 1, handle = function(req)
    local own = req.text:match("^own (.*)$")
    if own then
        coroutine.yield({ body = "first", content_type = own })
        return "last"
    end
    coroutine.yield(pieces[req.text][1])
    return pieces[req.text][2]
end }
"""


@pytest.mark.parametrize("body, kind", [
    ("text", "text/plain; charset=utf-8"), ("cut", "text/plain; charset=utf-8"), ("bytes", "application/octet-stream"),
    ("own audio/L16", "audio/L16")])
def test_a_streamed_answer_says_what_it_is(server, body, kind):
    """This also holds if the handler yields plain strings, as text, even if the first piece ends within a character, or
    as bytes."""
    s = server(Model("pieces", PIECES_LUA, {}, stateful=False))
    answer = s.client().post("/predictions/pieces", body)
    assert answer.status == 200 and answer.headers["Transfer-Encoding"] == "chunked", answer
    assert answer.headers["Content-Type"] == kind
