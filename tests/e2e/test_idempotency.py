"""Idempotency-Key: a client that got no answer sends its step again, and the step is done once."""

import pytest

from models import Model, counter, stateless
from waiting import expect

START = {"ts_request_sequence_start": "true"}
END = {"ts_request_sequence_end": "true"}

# Answers with as many bytes as it is told, and counts.
BLOB_LUA = """
local M = { api = 1 }

function M.init()
    return { steps = 0 }
end

function M.step(state, req)
    if req.body == "fail" then
        return nil, "asked to"
    end
    state.steps = state.steps + 1
    return { text = state.steps .. ":" .. string.rep("x", tonumber(req.body)) }
end

return M
"""


def keyed(client, key, sequence, body, headers=None):
    return client.step("counter", sequence, body, headers={"Idempotency-Key": key, **(headers or {})})


def replayed(answer):
    return answer.headers.get("Continuo-Replayed") == "true"


def expect_answer(answer, text, replay):
    assert (answer.status, answer.text, replayed(answer)) == (200, text, replay), answer


def lose_answer(s, key, sequence, body, head=""):
    """Sends a step and disconnects when it is committed, like a client whose network failed."""
    seen = s.describe("counter")["steps"]
    raw = s.raw("lost")
    raw.send(f"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: {sequence}\r\n{head}"
             f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    expect(lambda: s.describe("counter")["steps"] > seen and s.outstanding("counter") == 0, "the step is answered")
    raw.close()


def test_a_retry_gets_the_same_answer_and_does_no_second_step(server):
    """The retry may be repeated, and the next step continues after one step."""
    s = server(counter())
    client = s.client()
    expect_answer(keyed(client, "k1", "a", 5), "5", False)
    expect_answer(keyed(client, "k2", "a", 6), "11", False)
    for _ in range(3):
        expect_answer(keyed(client, "k2", "a", 6), "11", True)
    expect_answer(keyed(client, "k3", "a", 1), "12", False)
    assert s.metric("continuo_jobs_replayed_total") == 3
    assert s.metric("continuo_sequences_opened_total") == 1


def test_a_retry_after_kill_9_of_the_server_gets_the_stored_answer(server):
    """The server dies before the answer leaves. The client does not know whether its step was done, and need not know.
    """
    s = server(counter())
    client = s.client()
    expect_answer(keyed(client, "k1", "a", 5), "5", False)
    lose_answer(s, "k2", "a", "6")
    s.kill()
    s.restart()
    client = s.client()
    expect_answer(keyed(client, "k2", "a", 6), "11", True)
    expect_answer(keyed(client, "k3", "a", 1), "12", False)


def test_a_step_that_did_not_run_before_the_server_died_runs_on_retry(server):
    """In this case the step was not done."""
    s = server(counter())
    expect_answer(keyed(s.client(), "k1", "a", 5), "5", False)
    raw = s.raw()
    with s.hold():
        raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: a\r\n"
                 "Idempotency-Key: k2\r\nContent-Length: 1\r\n\r\n6")
        s.expect_outstanding("counter", 1)
        s.kill()
    expect(lambda: not s.session_members(), "the held worker has ended, with or without the step")
    raw.close()
    s.restart()
    client = s.client()
    assert keyed(client, "k2", "a", 6).text == "11"
    expect_answer(keyed(client, "k3", "a", 1), "12", False)


@pytest.mark.parametrize("point", ["handler_done", "after_commit"])
def test_a_worker_that_dies_around_its_commit_does_a_keyed_step_once(server, folder, point):
    """The server's own repetition and the client's retry find the same record."""
    s = server(counter(), env={"CONTINUO_TEST_KILL_AT": f"{point}:2", "CONTINUO_TEST_KILL_ONCE": folder / "killed"})
    client = s.client()
    expect_answer(keyed(client, "k1", "a", 5), "5", False)
    expect_answer(keyed(client, "k2", "a", 6), "11", point == "after_commit")
    assert (folder / "killed").exists(), "the worker came to the point"
    expect_answer(keyed(client, "k2", "a", 6), "11", True)
    expect_answer(keyed(client, "k3", "a", 1), "12", False)


def test_another_request_under_the_same_key_is_refused(server):
    """This is a client's mistake, and the answer to another request would hide it."""
    s = server(counter())
    client = s.client()
    expect_answer(keyed(client, "order-7", "a", 5), "5", False)
    for body, headers in ((6, None), (5, END), (5, START), (5, {"Content-Type": "text/plain"})):
        answer = keyed(client, "order-7", "a", body, headers)
        assert (answer.status, answer.error) == (422, "key_reused"), answer
        assert answer.json["type"] == "BadRequestException"
        assert "order-7" in answer.message and "sequence a;" in answer.message
    expect_answer(keyed(client, "order-7", "a", 5), "5", True)


def test_a_retried_end_is_answered_from_the_tombstone(server):
    """The sequence is over, but the client that ended it may repeat the last step, also after a restart."""
    s = server(counter())
    client = s.client()
    expect_answer(keyed(client, "k1", "a", 5), "5", False)
    expect_answer(keyed(client, "k2", "a", 6, END), "11", False)
    expect_answer(keyed(client, "k2", "a", 6, END), "11", True)
    assert s.describe("counter")["liveSequences"] == 0
    s.kill()
    s.restart()
    client = s.client()
    expect_answer(keyed(client, "k2", "a", 6, END), "11", True)
    expect_answer(keyed(client, "k3", "a", 1), "1", False)


def test_a_retried_start_does_not_start_again(server):
    """The generation that the START opened stays, also after a restart."""
    s = server(counter())
    client = s.client()
    expect_answer(keyed(client, "k1", "a", 5), "5", False)
    expect_answer(keyed(client, "k2", "a", 1, START), "1", False)
    expect_answer(keyed(client, "k2", "a", 1, START), "1", True)
    s.kill()
    s.restart()
    client = s.client()
    expect_answer(keyed(client, "k2", "a", 1, START), "1", True)
    expect_answer(keyed(client, "k3", "a", 1), "2", False)


def test_a_retried_step_that_opens_a_sequence_and_is_lost(server):
    """The first step of a sequence is not an exception."""
    s = server(counter())
    lose_answer(s, "k1", "a", "7", head="ts_request_sequence_start: true\r\n")
    client = s.client()
    expect_answer(keyed(client, "k1", "a", 7, START), "7", True)
    expect_answer(keyed(client, "k2", "a", 1), "8", False)


def test_a_late_copy_of_a_keyed_step_is_not_done_again(server):
    """The first copy of K1 is delayed on its way. Meanwhile its retry and K2 are done on other connections."""
    s = server(counter(sequence={"keyWindow": 3}))
    client, late = s.client(), s.raw("late")
    text = ("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: a\r\n"
            "Idempotency-Key: k1\r\nContent-Length: 1\r\n\r\n5")
    late.send(text[:-1])
    expect_answer(keyed(client, "k1", "a", 5), "5", False)
    expect_answer(keyed(client, "k2", "a", 7), "12", False)
    late.send(text[-1])
    answer = late.answer()
    assert (answer.status, answer.error) == (409, "key_superseded") and "k1" in answer.message, answer
    s.kill()
    s.restart()
    client = s.client()
    assert keyed(client, "k1", "a", 5).error == "key_superseded"
    expect_answer(keyed(client, "k2", "a", 7), "12", True)
    for i in (3, 4):
        assert keyed(client, f"k{i}", "a", 1).status == 200
    assert keyed(client, "k2", "a", 7).error == "key_superseded"
    expect_answer(keyed(client, "k1", "a", 5), "19", False)  # the window is 3 keys


def test_two_sequences_may_use_the_same_key(server):
    """A key belongs to its sequence."""
    s = server(counter())
    client = s.client()
    for sequence, number in (("a", 5), ("b", 6)):
        expect_answer(keyed(client, "k", sequence, number), str(number), False)
    for sequence, number in (("a", 5), ("b", 6)):
        expect_answer(keyed(client, "k", sequence, number), str(number), True)


def test_a_retry_after_the_sequence_expired_still_gets_its_answer(server):
    """A client may be away for longer than its sequence lives."""
    s = server(counter(sequenceMaxIdleMSec=60_000), clock=True)
    client = s.client()
    expect_answer(keyed(client, "k", "a", 5), "5", False)
    s.clock.advance(61_000)
    expect(lambda: s.describe("counter")["liveSequences"] == 0, "it expired")
    expect_answer(keyed(client, "k", "a", 5), "5", True)
    assert s.describe("counter")["liveSequences"] == 0
    assert keyed(client, "l", "a", 5).error == "sequence_expired"


def test_a_large_answer_is_not_kept_but_its_step_is(server):
    """The client learns that it must not send the step under a new key."""
    s = server(Model("counter", BLOB_LUA, {"state": {"answerKeepBytes": 100}}))
    client = s.client()
    assert keyed(client, "k", "a", 1000).status == 200
    answer = keyed(client, "k", "a", 1000)
    assert (answer.status, answer.error) == (409, "answer_not_kept"), answer
    assert "step 1 of sequence a is committed" in answer.message
    expect_answer(keyed(client, "l", "a", 1), "2:x", False)


def test_a_failed_step_runs_again(server):
    """Nothing was committed, so the key is still unused."""
    s = server(Model("counter", BLOB_LUA))
    client = s.client()
    for _ in range(2):
        answer = keyed(client, "k", "a", "fail")
        assert answer.status == 500 and not replayed(answer), answer
    expect_answer(keyed(client, "k", "a", 2), "1:xx", False)


def test_keys_that_are_none_are_refused_where_they_matter(server):
    """A stateless model ignores keys, because it cannot remember them."""
    s = server(counter(), stateless())
    client = s.client()
    for key in ("", "k" * 257, "k\tk", "k\xe4"):
        answer = keyed(client, key, "a", 1)
        assert (answer.status, answer.error) == (400, "bad_request"), answer
        assert "Idempotency-Key" in answer.message
    expect_answer(keyed(client, "k" * 256, "a", 1), "1", False)
    for _ in range(2):
        answer = client.post("/predictions/echo", "x", headers={"Idempotency-Key": "k" * 300})
        assert (answer.status, answer.text, replayed(answer)) == (200, "x", False)
