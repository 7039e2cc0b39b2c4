"""WebSocket streams (docs/streams.md): steps, answers, control messages and resuming."""

import base64
import json
import threading

import pytest
import requests
import websockets.exceptions

from models import Model, counter, stateless
from waiting import expect, limit
from websocketing import BYTES, END, FINAL, Closed, Stream, binary_step, body_of, read_binary

STREAMER = """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.step(state, req)
    state.n = state.n + 1
    for i = 1, 3 do
        coroutine.yield({ text = string.format("%d.%d ", state.n, i) })
    end
    return { text = "end" }
end
return M
"""

JSON_LUA = """
local M = { api = 1 }
function M.init() return { sum = 0 } end
function M.step(state, req)
    state.sum = state.sum + req.json.add
    return { json = { sum = state.sum, type = req.parts[1].content_type } }
end
return M
"""


def refusal(server, path, headers=None):
    """Returns the HTTP answer to a handshake that is refused."""
    return requests.get(server.inference + path, timeout=limit(20), headers={
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **(headers or {})})

# Answers with a string of the bytes ff fe, which are not UTF-8.
STRINGS_LUA = """
local M = { api = 1 }
function M.init() return {} end
function M.step()
    return { outputs = { y = { datatype = "BYTES", shape = { 1 }, data = { "\\xff\\xfe" } } } }
end
return M
"""
STRINGS_YAML = {"inputs": "[{name: x, datatype: FP32, dims: [1]}]",
                "outputs": "[{name: y, datatype: BYTES, dims: [1]}]"}


@pytest.mark.parametrize("loops", [1, 2, 4])
def test_steps_are_answered_in_order(server, loops):
    """The message of docs/streams.md: hello, then one final answer for each step, with its number."""
    running = server(counter(), flags=["--loops", str(loops)])
    with Stream(running, "counter", "a") as stream:
        assert {key: stream.hello[key] for key in ("type", "model", "sequence", "step", "next", "generation")} == {
            "type": "hello", "model": "counter", "sequence": "a", "step": 0, "next": 1, "generation": 0}
        first = stream.step(4)
        assert (first["type"], first["step"], first["final"], body_of(first)) == ("answer", 1, True, "4")
        assert first["generation"] > 0
        for number in range(2, 50):
            answer = stream.step(1)
            assert (answer["step"], body_of(answer)) == (number, str(number + 3))
            assert "generation" not in answer
    with Stream(running, "counter", "a") as stream:
        assert (stream.hello["step"], stream.hello["next"]) == (49, 50)
        assert stream.hello["generation"] == first["generation"]


def test_plain_messages_are_bodies(server):
    """The five-line client: no subprotocol, no control messages; text stays text and bytes stay bytes."""
    running = server(counter(), stateless())
    with Stream(running, "counter", "s", form="none") as stream:
        for sent, answer in ("4", "4"), ("8", "12"), ("15", "27"):
            stream.send(sent)
            assert stream.get() == answer
    with Stream(running, "echo", "any", form="plain") as stream:
        for message in "text", b"\x00\xff", "", "ünï":
            stream.send(message)
            assert stream.get() in (message, message.encode() if isinstance(message, str) else message)


def test_a_plain_client_is_closed_by_its_first_failure(server):
    running = server(counter())
    with Stream(running, "counter", "s", form="plain") as stream:
        stream.send("4")
        assert stream.get() == "4"
        stream.send("four")
        messages, closed = stream.closing()
        assert messages == [] and closed.code == 1011 and closed.reason.startswith("handler_failed")
    with Stream(running, "counter", "s", form="plain") as stream:
        stream.send("1")
        assert stream.get() == "5"


def test_json_bodies_go_through_unchanged(server):
    """`data` reaches the handler as JSON and comes back as JSON; text and base64 have their own content types."""
    running = server(Model("sums", JSON_LUA), stateless())
    with Stream(running, "sums", "a") as stream:
        answer = stream.step({"add": 4})
        assert answer["data"] == {"sum": 4, "type": "application/json"}
        stream.put(type="step", text='{"add": 1}', content_type="application/x-own")
        assert stream.get()["data"] == {"sum": 5, "type": "application/x-own"}
        stream.put(type="step", base64=base64.b64encode(b'{"add": 2}').decode())
        assert stream.get()["data"] == {"sum": 7, "type": "application/octet-stream"}
        stream.send(b'{"add": 3}')
        assert stream.get()["data"]["sum"] == 10
    with Stream(running, "echo", "any") as stream:
        stream.put(type="step", base64=base64.b64encode(b"\x00\xff\x80").decode())
        assert stream.get()["base64"] == base64.b64encode(b"\x00\xff\x80").decode()
        stream.put(type="step", text='quote " and \\ and é')
        assert body_of(stream.get()).decode() == 'quote " and \\ and é'


def test_strings_of_tensors_that_are_not_utf8(server):
    """No text message may have them: a client would have to close the stream, and to get them again when it resumes."""
    running = server(Model("strings", STRINGS_LUA, STRINGS_YAML))
    with Stream(running, "strings", "a") as stream:
        answer = stream.step({"x": [1]})
        assert answer["content_type"] == "application/json"
        assert base64.b64decode(answer["base64"]) == b'{"y":["\xff\xfe"]}'
    with Stream(running, "strings", "b", form="plain") as stream:
        stream.send('{"x": [1]}')
        assert stream.get() == b'{"y":["\xff\xfe"]}'


def test_binary_messages(server):
    running = server(counter())
    with Stream(running, "counter", "b", form="binary") as stream:
        assert stream.hello["type"] == "hello"
        stream.send(binary_step(b"4"))
        flags, status, step, body = read_binary(stream.get())
        assert (flags, status, step, body) == (FINAL | BYTES, 0, 1, b"4")
        stream.send(binary_step(b"5", step=2, end=True))
        flags, _, step, body = read_binary(stream.get())
        assert (flags, step, body) == (FINAL | BYTES | END, 2, b"9")
        assert stream.get() == {"type": "end", "step": 2}
        for wrong in b"", b"x", binary_step(b"1")[:15], b"\x07" + binary_step(b"1")[1:]:
            stream.send(wrong)
            assert stream.get()["error"] == "bad_request"


def test_pieces_of_a_streamed_answer_are_messages(server):
    running = server(Model("streamer", STREAMER))
    with Stream(running, "streamer", "a") as stream:
        stream.put(type="step", data=0)
        stream.put(type="step", data=0)
        for step in 1, 2:
            pieces = [stream.get()]
            while not pieces[-1]["final"]:
                pieces.append(stream.get())
            assert [piece["step"] for piece in pieces] == [step] * len(pieces)
            assert "".join(body_of(piece) for piece in pieces) == f"{step}.1 {step}.2 {step}.3 end"
            assert len(pieces) >= 3


def test_a_failed_step_uses_no_number(server):
    """The steps behind a failed one are refused, each with an error of its own; then the count goes on."""
    running = server(counter(), flags=["--stream-credit", "8"])
    with Stream(running, "counter", "a") as stream:
        assert body_of(stream.step(4)) == "4"
        with running.hold():
            for data in "four", 1, 1:
                stream.put(type="step", data=data)
            running.expect_outstanding("counter", 3)
        errors = [stream.get() for _ in range(3)]
        assert [(error["type"], error["step"], error["error"]) for error in errors] == [
            ("error", 2, "handler_failed"), ("error", 3, "step_mismatch"), ("error", 4, "step_mismatch")]
        assert errors[1]["expected_step"] == 2 and errors[1]["status"] == 409
        assert errors[1]["exception"] == "SequenceStepException"
        answer = stream.step(1)
        assert (answer["step"], body_of(answer)) == (2, "5")


def test_a_client_may_number_its_steps(server):
    running = server(counter())
    with Stream(running, "counter", "a") as stream:
        assert body_of(stream.step(4, step=1)) == "4"
        again = stream.step(4, step=1)
        assert body_of(again) == "4" and again["replayed"] is True
        assert stream.step(5, step=1)["error"] == "step_done"
        assert stream.step(5, step=7)["error"] == "step_mismatch"
        assert body_of(stream.step(5, step=2)) == "9"


def test_start_and_end(server):
    running = server(counter())
    with Stream(running, "counter", "a") as stream:
        stream.step(4)
        stream.put(type="start")
        answer = stream.step(7)
        assert (answer["step"], body_of(answer)) == (1, "7") and answer["generation"]
        answer = stream.step(1, end=True)
        assert (answer["step"], body_of(answer)) == (2, "8")
        assert stream.get() == {"type": "end", "step": 2}
        assert stream.step(1)["error"] == "step_done"
        answer = stream.step(3, start=True)
        assert (answer["step"], body_of(answer)) == (1, "3")
    with Stream(running, "counter", "b") as stream:
        stream.step(4, end=True)
        stream.get()
    with Stream(running, "counter", "b") as stream:
        assert stream.hello["closed"]["error"] == "step_done" and stream.hello["next"] == 1
    with Stream(running, "counter", "b", form="plain") as stream:  # as a step over HTTP would begin anew
        stream.send("9")
        assert stream.get() == "9"


def test_a_sequence_that_begins_anew_behind_a_failure_is_counted_anew(server):
    """The failed step had a number of the old sequence, which must not become that of a step of the new one."""
    running = server(counter(), flags=["--stream-credit", "4"])
    with Stream(running, "counter", "a") as stream:
        for data in 1, 2, 3:
            stream.step(data)
        with running.hold():
            stream.put(type="step", data=1, step=9)
            stream.put(type="step", data=5, start=True)
            running.expect_outstanding("counter", 2)
        assert stream.get()["expected_step"] == 4
        assert body_of(stream.get()) == "5"
        answer = stream.step(2)
        assert (answer["step"], body_of(answer)) == (2, "7")


def test_a_sequence_that_begins_before_the_old_one_has_ended_keeps_its_count(server):
    """The answer to END comes when steps of the next sequence have their numbers already."""
    running = server(counter(), flags=["--stream-credit", "4"])
    with Stream(running, "counter", "a") as stream:
        stream.step(1)
        with running.hold():
            stream.put(type="step", data=2, end=True)
            for data in 10, 20:
                stream.put(type="step", data=data, start=data == 10)
            running.expect_outstanding("counter", 3)
        assert body_of(stream.get()) == "3"
        assert stream.get() == {"type": "end", "step": 2}
        assert [body_of(stream.get()) for _ in range(2)] == ["10", "30"]
        answer = stream.step(5)
        assert (answer.get("step"), body_of(answer)) == (3, "35")
        stream.step(1, end=True)
        stream.get()
        assert stream.step(1, start=True)["step"] == 1


def test_control_messages(server):
    running = server(counter(), flags=["--stream-credit", "4"])
    with Stream(running, "counter", "a") as stream:
        assert stream.hello["credit"] == 4
        stream.put(type="ping")
        assert stream.get() == {"type": "pong"}
        for asked, got in (2, 2), (9, 4), (1, 1):
            stream.put(type="credit", credit=asked)
            assert stream.get() == {"type": "credit", "credit": got}
        for wrong in ('{"type":"bad"}', "[]", "x", '{"type":"step"}', '{"type":"step","data":1,"text":"a"}',
                      '{"type":"step","data":1,"step":0}', '{"type":"credit"}', '{"type":"step","base64":"?"}',
                      '{"type":"step","data":1}x', '{"data":1}'):
            stream.send(wrong)
            error = stream.get()
            assert (error["type"], error["error"], error["status"]) == ("error", "bad_request", 400), wrong
            assert "step" not in error
        assert body_of(stream.step(4)) == "4"
    with Stream(running, "counter", "b", query={"credit": 2}) as stream:
        assert stream.hello["credit"] == 2


def test_a_version_can_be_named(server):
    running = server(counter(), counter(version="2.0"))
    with Stream(running, "counter", "a", version="2.0") as stream:
        assert stream.hello["version"] == "2.0"
        assert body_of(stream.step(4)) == "4"
    assert refusal(running, "/v1/streams/counter/3.0/a").json()["type"] == "ModelVersionNotFoundException"


def test_ids_are_decoded(server):
    running = server(counter())
    with Stream(running, "counter", "a/b ü") as stream:
        assert stream.hello["sequence"] == "a/b ü"
        stream.step(4)
    answer = requests.post(running.inference + "/predictions/counter", data=b"1", timeout=limit(20),
                           headers={"ts-request-sequence-id": "a/b ü".encode()})
    assert answer.text == "5"


# --- resuming

def test_a_client_gets_the_answer_that_it_missed(server):
    """The step is committed, its answer lost with the connection; the next connection brings it from the record."""
    running = server(counter(), flags=["--loops", "2"])
    stream = Stream(running, "counter", "a")
    stream.step(4)
    generation = stream.step(5).get("generation") or stream.hello["generation"]
    stream.put(type="step", data=6)
    expect(lambda: requests.get(f"{running.management}/models/counter/sequences/a",
                                timeout=limit(20)).json().get("step") == 3, "the third step")
    stream.cut()
    with Stream(running, "counter", "a", query={"last": 2}) as again:
        assert (again.hello["step"], again.hello["next"]) == (3, 4)
        assert again.hello["generation"] > 0
        missed = again.get()
        assert (missed["step"], body_of(missed), missed["replayed"], missed["final"]) == (3, "15", True, True)
        answer = again.step(1)
        assert (answer["step"], body_of(answer)) == (4, "16")
    assert running.metric("continuo_stream_resumes_total") == 1
    assert generation is not None


def test_a_restarted_server_resumes(server):
    running = server(counter())
    stream = Stream(running, "counter", "a")
    first = stream.step(4)
    stream.step(5)
    running.kill()
    running.restart()
    with Stream(running, "counter", "a", query={"last": 1, "generation": first["generation"]}) as again:
        assert again.hello["next"] == 3
        assert body_of(again.get()) == "9"
        assert body_of(again.step(1)) == "10"


def test_a_resume_that_is_impossible_says_why(server):
    running = server(counter())
    with Stream(running, "counter", "a") as stream:
        generation = stream.step(4)["generation"]
        for number in 5, 6:
            stream.step(number)
    for query, word, expected in (({"last": 7}, "steps_lost", 4), ({"last": 0}, "answer_not_kept", 4),
                                  ({"last": 3, "generation": generation - 1}, "sequence_ended", None)):
        stream = Stream(running, "counter", "a", query=query, hello=False)
        messages, closed = stream.closing()
        assert closed.code == 4004
        error = messages[-1]
        assert (error["type"], error["error"], error.get("expected_step")) == ("error", word, expected)
    messages, closed = Stream(running, "counter", "new", query={"last": 1}, hello=False).closing()
    assert messages[0]["error"] == "sequence_unknown" and closed.code == 4004


def test_the_newer_of_two_connections_takes_over(server):
    """The older one is closed with 4001, also if it is on another loop, and its waiting steps are not done."""
    running = server(counter(), flags=["--loops", "4"])
    older = Stream(running, "counter", "a")
    older.step(4)
    for _ in range(12):
        newer = Stream(running, "counter", "a")
        assert newer.hello["step"] >= 1
        messages, closed = older.closing()
        assert messages == [] and closed.code == 4001
        newer.step(1)
        older = newer
    assert running.metric("continuo_stream_takeovers_total") == 12
    other = Stream(running, "counter", "b")
    assert body_of(other.step(1)) == "1" and body_of(older.step(1)) == "17"


def test_a_worker_that_dies_is_not_noticed(server):
    running = server(counter())
    with Stream(running, "counter", "a") as stream:
        stream.step(4)
        running.kill_worker("counter")
        answer = stream.step(5)
        assert (answer["step"], body_of(answer)) == (2, "9")


def test_streams_are_told_to_reconnect_when_the_server_leaves(server):
    """At the begin of --drain-delay: the answers that are due come first, then 1012."""
    running = server(counter(), flags=["--drain-delay", "3000"])
    stream = Stream(running, "counter", "a")
    idle = Stream(running, "counter", "b")
    stream.step(4)
    with running.hold():
        stream.put(type="step", data=5)
        running.expect_outstanding("counter", 1)
        running.process.terminate()
        _, closed = idle.closing()
        assert closed.code == 1012
    messages, closed = stream.closing()
    assert [body_of(message) for message in messages] == ["9"]
    assert closed.code == 1012
    assert running.exit_code(timeout=30) == 0


def test_many_clients_at_once(server):
    """Each of them gets its own answers, while others connect and leave."""
    running = server(counter(batchSize=8, maxWorkers=2, minWorkers=2), flags=["--loops", "2"])
    failures = []

    def talk(name):
        try:
            total = 0
            for round_ in range(3):
                with Stream(running, "counter", name) as stream:
                    for number in range(20):
                        total += number
                        assert body_of(stream.step(number)) == str(total), (name, round_, number)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=talk, args=(f"s{i}",)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    expect(lambda: running.metric("continuo_streams_open") == 0, "no open stream")
    assert running.metric("continuo_streams_opened_total") == 48
    assert running.metric("continuo_stream_steps_total") == 16 * 60
