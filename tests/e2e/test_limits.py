"""Everything is bounded, and "full" is an ordinary error."""

import contextlib
import subprocess

import pytest

from models import BIN, counter, stateless
from waiting import expect, limit


def post(sequence, body="1", model="counter"):
    return (f"POST /predictions/{model} HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: {sequence}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}")


@contextlib.contextmanager
def waiting_steps(s, count, sequence, model="counter"):
    """`count` steps have arrived and wait. They are answered when the workers continue."""
    raws = []
    for i in range(count):
        raw = s.raw(f"waiter{i}")
        raw.send(post(sequence(i), model=model))
        raws.append(raw)
        s.expect_outstanding(model, i + 1)
    yield raws
    for raw in raws:
        raw.close()


def test_a_full_sequence_queue_refuses_with_429(server):
    """maxSequenceJobQueueSize steps may wait, and the one in flight does not count."""
    s = server(counter(maxSequenceJobQueueSize=2))
    with contextlib.ExitStack() as stack:
        hold = stack.enter_context(s.hold())
        raws = stack.enter_context(waiting_steps(s, 3, lambda i: "q"))
        refused = s.client().step("counter", "q", 1)
        assert (refused.status, refused.error) == (429, "queue_full"), refused
        assert int(refused.headers["Retry-After"]) >= 1
        other = s.raw("other")
        other.send(post("other"))
        hold.release()
        assert [raw.answer().text for raw in raws] == ["1", "2", "3"]
        assert other.answer().text == "1"
        other.close()
    assert s.client().step("counter", "q", 1).text == "4"


def test_a_full_model_queue_refuses_with_429(server):
    """jobQueueSize bounds how many steps of a model may wait."""
    s = server(counter(jobQueueSize=4, batchSize=1))
    with contextlib.ExitStack() as stack:
        hold = stack.enter_context(s.hold())
        raws = []
        # How many the worker's credit takes besides is the scheduler's business.
        while s.describe("counter")["jobQueueStatus"]["remainingCapacity"] > 0:
            raws.append(s.raw(f"w{len(raws)}"))
            raws[-1].send(post(f"s{len(raws)}"))
            s.expect_outstanding("counter", len(raws))
        refused = s.client().step("counter", "late", 1)
        assert (refused.status, refused.error) == (429, "queue_full"), refused
        hold.release()
        for raw in raws:
            assert raw.answer().text == "1"
            raw.close()
    assert 4 <= len(raws) <= 6


def test_too_many_sequences_are_refused_until_one_ends(server):
    """maxNumSequence: the refused client learns why, and open sequences continue."""
    s = server(counter(maxNumSequence=3))
    client = s.client()
    for i in range(3):
        assert client.step("counter", f"s{i}", i).text == str(i)
    refused = client.step("counter", "s3", 1)
    assert (refused.status, refused.error) == (429, "too_many_sequences"), refused
    assert "maxNumSequence" in refused.message and "3" in refused.message
    assert client.step("counter", "s1", 1, headers={"ts_request_sequence_end": "true"}).text == "2"
    assert client.step("counter", "s3", 7).text == "7"
    assert client.step("counter", "s0", 5).text == "5"


def test_a_body_over_the_limit_is_refused_by_its_length(server):
    """The answer is 413 before the bytes are read. The connection is closed."""
    s = server(stateless(), flags=["--max-request-size", "2000"])
    client = s.client()
    assert len(client.post("/predictions/echo", b"x" * 2000).body) == 2000
    raw = s.raw()
    raw.send("POST /predictions/echo HTTP/1.1\r\nHost: t\r\nContent-Length: 2001\r\n\r\n")
    refused = raw.answer()
    assert refused.status == 413
    assert "2000" in refused.message and "max-request-size" in refused.message
    raw.close()
    assert client.post("/predictions/echo", b"still here").body == b"still here"


def test_a_chunked_body_over_the_limit_is_refused(server):
    """Without a length, the limit is noticed while the body is read."""
    s = server(stateless(), flags=["--max-request-size", "2000"])
    raw = s.raw()
    raw.send("POST /predictions/echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
    raw.send(b"bb8\r\n" + b"x" * 3000 + b"\r\n0\r\n\r\n")
    assert raw.answer().status == 413
    raw.close()
    assert s.client().post("/predictions/echo", b"ok").body == b"ok"


def test_an_oversized_upload_is_refused_before_it_is_sent(server):
    """This is what Expect: 100-continue is for: the answer is 413 and not 100."""
    s = server(stateless(), flags=["--max-request-size", "2000"])
    raw = s.raw()
    raw.send("POST /predictions/echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 9999\r\n\r\n")
    assert raw.answer().status == 413
    raw.close()


def test_a_chunked_body_within_the_limit_arrives_whole(server):
    """Chunks do not change the body."""
    s = server(stateless())
    raw = s.raw()
    raw.send("POST /predictions/echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in ("hello ", "wide ", "world"):
        raw.send(f"{len(piece):x}\r\n{piece}\r\n")
    raw.send("0\r\n\r\n")
    assert raw.answer().text == "hello wide world"
    raw.close()


@pytest.mark.parametrize("sequence", ["x" * 256, "a b c", "seq/0?x=%20", "5", "é"], ids=ascii)
def test_any_id_of_up_to_256_bytes_is_a_sequence(server, sequence):
    """An id may be any bytes."""
    s = server(counter())
    client = s.client()
    headers = {"ts_request_sequence_id": sequence.encode()}
    assert client.post("/predictions/counter", b"2", headers=headers).text == "2"
    answer = client.post("/predictions/counter", b"3", headers=headers)
    assert answer.text == "5"
    assert answer.sequence.encode("latin-1") == sequence.encode()


def test_an_id_over_256_bytes_is_refused(server):
    """The answer is 400, and the message names the limit."""
    s = server(counter())
    refused = s.client().step("counter", "x" * 257, 1)
    assert (refused.status, refused.error) == (400, "bad_request"), refused
    assert "256" in refused.message


def test_an_empty_id_is_no_id(server):
    """As in TorchServe, the server opens a new sequence and returns its id."""
    s = server(counter())
    client = s.client()
    answer = client.step("counter", "", 3)
    assert answer.text == "3" and answer.sequence
    assert client.step("counter", answer.sequence, 4).text == "7"


def test_two_different_ids_in_one_request_are_refused(server):
    """If the server guessed which one was meant, it could mix the states of two clients."""
    s = server(counter())
    raw = s.raw()
    raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: a\r\n"
             "ts-request-sequence-id: b\r\nContent-Length: 1\r\n\r\n1")
    assert raw.answer().status == 400
    raw.close()


def test_new_clients_are_taken_again_when_there_are_descriptors(server):
    """When no descriptor is free, new clients wait. They are served as soon as one is free, even if none of their
    connections has ended."""
    s = server(counter())
    old = s.client("old")
    assert old.step("counter", "a", 1).text == "1"
    with s.without_descriptors():
        waiting = s.raw("waiting")
        waiting.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: a\r\n"
                     "Content-Length: 1\r\n\r\n1")
        s.expect_log("event=accept_failed")
        assert old.step("counter", "a", 1).text == "2", "who is connected is served"
    assert waiting.answer().text == "3"
    waiting.close()


def test_clients_over_the_limit_wait_for_a_place(server):
    """Some clients over the limit get 503, and the others wait until a client leaves."""
    s = server(counter(), flags=["--max-connections", 10, "--max-connections-per-address", 1000])
    clients = [s.raw(f"c{i}") for i in range(100)]
    for client in clients:
        client.send("GET /ping HTTP/1.1\r\nHost: t\r\n\r\n")
    statuses = []
    for client in clients:
        statuses.append(client.answer().status)
        client.close()
    assert set(statuses) == {200, 503} and statuses[:10] == [200] * 10, statuses
    # A client that closes tells the server by a packet: the place is free once that has been read.
    expect(lambda: s.client().get("/ping").status == 200, "a place is free again")


def test_a_full_server_tells_so(server):
    """Clients for which there is no room may get no answer for a while. The log, the metrics and doctor say why."""
    s = server(counter(), flags=["--max-connections", 8, "--max-connections-per-address", 1000,
                                       "--loops", 1])
    assert s.metric("continuo_http_connections_max") == 8
    clients = [s.raw(f"c{i}") for i in range(20)]
    s.expect_log("event=connections_full max_connections=8")
    doctor = [BIN / "continuo-ctl", "--server", s.management, "--metrics", s.metrics, "doctor"]
    said = subprocess.run(doctor, capture_output=True, text=True, timeout=limit(30), check=False)
    assert said.returncode == 1 and "of 8 HTTP connections are open" in said.stdout, said.stdout
    for client in clients:
        client.close()
    expect(lambda: s.metric("continuo_http_connections") == 0, "all have gone")
    assert len([line for line in s.lines if "connections_full" in line]) == 1
    again = [s.raw(f"d{i}") for i in range(9)]
    expect(lambda: len([line for line in s.lines if "connections_full" in line]) == 2, "it is told again")
    for client in again:
        client.close()
