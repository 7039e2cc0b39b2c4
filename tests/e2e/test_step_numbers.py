"""ts-request-sequence-step: a step is done once and in its place, however often and how late copies of it come."""

import socket
import threading

import pytest

from models import Model, counter, stateless
from server import address_of
from waiting import expect, limit

START = {"ts-request-sequence-start": "true"}
END = {"ts-request-sequence-end": "true"}

SLOW_LUA = """
local M = { api = 1 }

function M.init()
    return { sum = 0 }
end

function M.step(state, req)
    if req.body == "refuse" then
        return nil, "asked to", 400
    end
    state.sum = state.sum + tonumber(req.body)
    coroutine.yield("a")
    return { text = "b" .. state.sum }
end

return M
"""


def numbered(client, number, body, headers=None, sequence="a", name="ts-request-sequence-step"):
    return client.step("counter", sequence, body, headers={name: str(number), **(headers or {})})


def expect_step(answer, text, number, replayed=False):
    assert (answer.status, answer.text) == (200, text), answer
    assert answer.headers.get("Continuo-Sequence-Step") == str(number), answer.headers
    assert (answer.headers.get("Continuo-Replayed") == "true") == replayed, answer.headers


def expect_refused(answer, error, expected):
    assert (answer.status, answer.error) == (409, error), answer
    assert answer.json["type"] == "SequenceStepException" and answer.json["expectedStep"] == expected, answer
    assert answer.headers["Continuo-Expected-Step"] == str(expected), answer.headers
    assert str(expected) in answer.message and "sequence a" in answer.message, answer


@pytest.mark.parametrize("name", ["ts-request-sequence-step", "ts_request_sequence_step", "Continuo-Sequence-Step"])
def test_a_step_is_done_when_its_number_follows(server, name):
    """Every answer has the number, even if the client sends none. A refused step changes nothing."""
    client = server(counter()).client()
    expect_refused(numbered(client, 2, 5, name=name), "step_mismatch", 1)
    expect_step(numbered(client, 1, 5, name=name), "5", 1)
    expect_refused(numbered(client, 3, 6, name=name), "step_mismatch", 2)
    expect_step(client.step("counter", "a", 6), "11", 2)
    expect_refused(numbered(client, 1, 5, name=name), "step_done", 3)
    expect_step(numbered(client, 3, 1, name=name), "12", 3)


def test_a_retry_of_the_last_step_gets_its_answer_and_another_request_does_not(server):
    """This also holds after a restart. A second client that uses the same number learns that the step was done."""
    s = server(counter())
    client = s.client()
    expect_step(numbered(client, 1, 5), "5", 1)
    expect_step(numbered(client, 1, 5), "5", 1, replayed=True)
    expect_refused(numbered(client, 1, 7), "step_done", 2)
    s.kill()
    s.restart()
    client = s.client()
    expect_step(numbered(client, 1, 5), "5", 1, replayed=True)
    expect_step(numbered(client, 2, 7), "12", 2)


def test_start_and_end(server):
    """A START has number 1. A late copy of a step does not begin an ended sequence again."""
    client = server(counter()).client()
    expect_step(numbered(client, 1, 5, START), "5", 1)
    expect_step(numbered(client, 1, 5, START), "5", 1, replayed=True)
    expect_step(numbered(client, 2, 6, END), "11", 2)
    expect_step(numbered(client, 2, 6, END), "11", 2, replayed=True)
    expect_refused(numbered(client, 1, 5), "step_done", 1)
    expect_refused(numbered(client, 3, 5), "step_mismatch", 1)
    expect_step(numbered(client, 1, 7, START), "7", 1)
    answer = numbered(client, 2, 7, START)
    assert (answer.status, answer.error) == (400, "bad_request") and "number 1" in answer.message, answer


def test_values_that_are_no_numbers_are_refused(server):
    """The message names the header and its range. A stateless model ignores the header."""
    client = server(counter(), stateless()).client()
    for value in ("0", "-1", "", "one", "1.0", "+1", "1 2", "0x1", str(1 << 63), "9" * 40):
        answer = numbered(client, value, 5)
        assert (answer.status, answer.error) == (400, "bad_request"), (value, answer)
        assert "ts-request-sequence-step" in answer.message and "from 1 to 2^63 - 1" in answer.message, answer
        answer = client.post("/predictions/echo", "x", headers={"ts-request-sequence-step": value})
        assert (answer.status, answer.text) == (200, "x")


def test_the_same_number_twice_is_one_and_two_numbers_are_a_mistake(server):
    """A proxy may send a header twice. The largest number is valid, too."""
    client = server(counter()).client()
    expect_step(numbered(client, 1, 5, {"Continuo-Sequence-Step": "01"}), "5", 1)
    answer = numbered(client, 2, 5, {"Continuo-Sequence-Step": "3"})
    assert (answer.status, answer.error) == (400, "bad_request") and "2 and 3" in answer.message, answer
    expect_refused(numbered(client, (1 << 63) - 1, 5), "step_mismatch", 2)


def test_a_step_that_fails_does_not_use_its_number(server):
    """Only committed steps count. A streamed step is committed with its last piece."""
    client = server(Model("counter", SLOW_LUA)).client()
    assert numbered(client, 1, "refuse").status == 400
    answer = numbered(client, 1, 5)
    assert answer.text == "ab5" and "Continuo-Sequence-Step" not in answer.headers, answer.headers
    replay = numbered(client, 1, 5)
    assert replay.text == "ab5" and replay.headers["Continuo-Replayed"] == "true", replay
    assert numbered(client, 2, "refuse").status == 400
    assert numbered(client, 2, 1).text == "ab6"


def test_pipelined_steps_are_decided_when_they_run(server):
    """Three steps are sent at once. The second fails, so the third has a wrong number and is not done."""
    s = server(counter())
    raw = s.raw()
    for number, body in ((1, "5"), (2, "x"), (3, "7")):
        raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: a\r\n"
                 f"ts-request-sequence-step: {number}\r\nContent-Length: 1\r\n\r\n{body}")
    answers = [raw.answer() for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 500, 409], answers
    raw.close()
    expect_step(numbered(s.client(), 2, 6), "11", 2)


@pytest.mark.parametrize("point", ["handler_done", "before_commit", "after_commit"])
def test_a_worker_that_dies_does_a_numbered_step_once(server, folder, point):
    """First the server repeats the step, then the client does."""
    s = server(counter(), env={"CONTINUO_TEST_KILL_AT": f"{point}:2", "CONTINUO_TEST_KILL_ONCE": folder / "killed"})
    client = s.client()
    expect_step(numbered(client, 1, 5), "5", 1)
    expect_step(numbered(client, 2, 6), "11", 2, replayed=point == "after_commit")
    assert (folder / "killed").exists(), "the worker came to the point"
    expect_step(numbered(client, 2, 6), "11", 2, replayed=True)
    expect_step(numbered(client, 3, 1), "12", 3)


def test_state_that_was_lost_is_told(server):
    """With durability none a sequence dies with the server. A numbered step gets an error instead of beginning anew."""
    s = server(counter(state={"durability": "none"}))
    client = s.client()
    expect_step(numbered(client, 1, 5), "5", 1)
    s.kill()
    s.restart()
    client = s.client()
    expect_refused(numbered(client, 2, 6), "step_mismatch", 1)
    expect_step(numbered(client, 1, 6), "6", 1)


def test_numbers_go_with_a_sequence_that_moves_is_exported_and_copied(server):
    """The count goes along. A copy has no stored answer."""
    s = server(counter())
    client, admin = s.client(), s.admin()
    expect_step(numbered(client, 1, 5), "5", 1)
    file = admin.request("GET", "/models/counter/sequences/a?export=true")
    assert file.status == 200
    copied = admin.request("POST", "/models/counter/sequences/a?fork_to=b")
    assert copied.status in (200, 201), copied
    answer = numbered(client, 1, 5, sequence="b")
    assert (answer.status, answer.error) == (409, "step_done"), answer
    assert numbered(client, 2, 1, sequence="b").text == "6"
    assert admin.request("DELETE", "/models/counter/sequences/a").status == 200
    assert admin.request("PUT", "/models/counter/sequences/c", body=file.body).status in (200, 201)
    replay = numbered(client, 1, 5, sequence="c")
    assert replay.text == "5" and replay.headers["Continuo-Replayed"] == "true", replay
    assert numbered(client, 2, 2, sequence="c").text == "7"


# --- steps of clients that left

def request(sequence, body):
    return (f"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: {sequence}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def read_answer(sock):
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(4096) or pytest.fail("the connection ended")
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    while len(body) < length:
        body += sock.recv(4096)
    return body.decode()


@pytest.mark.load
@pytest.mark.parametrize("loops", [1, 2, 4])
def test_asking_first_never_doubles_a_step(server, loops):
    """Does what docs/reliability.md tells clients without keys and numbers: when the connection breaks, ask first and
    then send again."""
    tries, n = 400, 4
    s = server(counter(minWorkers=1, batchSize=16), flags=["--loops", loops])
    address = address_of(s.inference)
    resent, broken = [], []

    def ask(sequence, body):
        with socket.create_connection(address, timeout=limit(10)) as sock:
            sock.sendall(request(sequence, body))
            return read_answer(sock)

    def run(client):
        try:
            for i in range(tries):
                sequence = f"s{client}-{i}"
                with socket.create_connection(address) as sock:
                    sock.sendall(request(sequence, "1"))
                if ask(sequence, "0") == "0":
                    ask(sequence, "1")
                    resent.append(sequence)
        except Exception as e:
            broken.append(repr(e))

    threads = [threading.Thread(target=run, args=(client,)) for client in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(lambda: s.outstanding("counter") == 0, "nothing is under way")
    doubled = [sequence for client in range(n) for i in range(tries)
               if (answer := ask(sequence := f"s{client}-{i}", "0")) != "1"]
    assert not broken and not doubled, (broken[:3], doubled[:5], len(doubled), len(resent))
    assert len(resent) > n, "some were not done yet when they were asked for"
