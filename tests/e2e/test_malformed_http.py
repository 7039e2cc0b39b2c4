"""Malformed requests get a clear refusal, and other clients are served."""

import socket
import time

import pytest

from models import Model, counter
from waiting import expect, limit

SMUGGLED = "POST /predictions/counter HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n9"
HEAD = "POST /predictions/counter HTTP/1.1\r\nHost: t\r\n"

REFUSED = {
    "content length and transfer encoding": HEAD + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two content lengths": HEAD + "Content-Length: 1\r\nContent-Length: 9\r\n\r\n1",
    "the same content length twice": HEAD + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n1",
    "a list of content lengths": HEAD + "Content-Length: 1, 9\r\n\r\n1",
    "a space before the colon": HEAD + "Content-Length : 1\r\n\r\n1",
    "a signed content length": HEAD + "Content-Length: +1\r\n\r\n1",
    "a negative content length": HEAD + "Content-Length: -1\r\n\r\n1",
    "a hexadecimal content length": HEAD + "Content-Length: 0x1\r\n\r\n1",
    "an endless content length": HEAD + "Content-Length: 99999999999999999999999\r\n\r\n1",
    "an unknown transfer encoding": HEAD + "Transfer-Encoding: gzip\r\n\r\n",
    "chunked and more": HEAD + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "transfer encoding twice": HEAD + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": HEAD + "Host: other\r\nContent-Length: 1\r\n\r\n1",
    "another host in the URL": "POST http://other/predictions/counter HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n1",
    "no host": "POST /predictions/counter HTTP/1.1\r\nContent-Length: 1\r\n\r\n1",
    "a zero byte in the path": "POST /predictions/counter%00x HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n1",
    "a bad chunk size": HEAD + "Transfer-Encoding: chunked\r\n\r\nzz\r\n1\r\n0\r\n\r\n",
    "a tunnel": "CONNECT /ping HTTP/1.1\r\nHost: t\r\n\r\n",
    "a tunnel to a host": "CONNECT t:80 HTTP/1.1\r\nHost: t\r\n\r\n",
    "no HTTP at all": "\x16\x03\x01\x02\x00 hello\r\n\r\n",
}


@pytest.fixture
def quick(server):
    """A server with short deadlines."""
    return server(counter(), flags=["--header-timeout", "400", "--body-timeout", "600", "--write-timeout", "800"])


@pytest.mark.parametrize("shape", REFUSED, ids=lambda name: name.replace(" ", "-"))
def test_request_smuggling_shapes_are_refused(quick, shape):
    """If two readers could disagree about the end of a request, the second request must never run."""
    raw = quick.raw()
    raw.send(REFUSED[shape] + SMUGGLED)
    answer = raw.answer()
    assert answer is None or 400 <= answer.status < 600, answer
    assert raw.is_closed_by_server(), "the connection ends with the refusal"
    raw.close()
    assert quick.client().step("counter", "after", 1).text == "1"
    assert quick.describe("counter")["liveSequences"] == 1, "the smuggled request did not run"


def test_a_whole_url_is_answered_like_its_path(quick):
    """Clients send it to a proxy, and some proxies pass it on (RFC 9112, 3.2.2)."""
    for url, expected in [("http://t/predictions/counter", b"1"), ("HTTPS://T/predictions/counter?x=1", b"2")]:
        raw = quick.raw()
        raw.send(f"POST {url} HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: whole\r\nContent-Length: 1\r\n\r\n1")
        answer = raw.answer()
        assert (answer.status, answer.body) == (200, expected), answer
        raw.close()


def test_a_bad_length_is_refused_once(quick):
    """The HTTP library once began its answer twice. A proxy would take the second one for another request's answer."""
    for length in ("+1", "1, 1", "0x1", "", "1 "):
        raw = quick.raw()
        raw.send(HEAD + f"Content-Length: {length}\r\n\r\n1")
        refused = raw.answer()
        assert refused.status == 400 and "Content-Length that is not one decimal number" in refused.message, length
        assert raw.answer() is None, "nothing comes after the refusal"
        raw.close()


def test_a_client_that_leaves_in_the_middle_of_its_body_is_noticed(server):
    """Its bytes and its end come together. The record of its request must not wait for the body's time."""
    s = server(counter(), flags=["--header-timeout", "400", "--body-timeout", "3600000", "--min-rate", "0"])
    raw = s.raw()
    raw.send(HEAD + "Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n")
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.is_closed_by_server(), "long before body-timeout"
    expect(lambda: s.metric("continuo_http_connections") == 0, "the connection is gone", 5)


@pytest.mark.parametrize("request_, status", [
    ("GET /nowhere HTTP/1.1\r\nHost: t\r\n\r\n", 404),
    ("GET /predictions HTTP/1.1\r\nHost: t\r\n\r\n", 404),
    ("GET /predictions/ HTTP/1.1\r\nHost: t\r\n\r\n", 404),
    ("POST /predictions/nobody HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n1", 404),
    ("GET /" + "x" * 20_000 + " HTTP/1.1\r\nHost: t\r\n\r\n", 414),
    ("GET /ping HTTP/1.1\r\nHost: t\r\nX: " + "x" * 20_000 + "\r\n\r\n", 431),
], ids=["nowhere", "no-model", "no-model-slash", "unknown-model", "long-uri", "long-header"])
def test_requests_for_the_wrong_thing_are_told_so(quick, request_, status):
    """Each gets the status that says what is wrong."""
    raw = quick.raw()
    raw.send(request_)
    answer = raw.answer()
    assert answer.status == status, answer
    if status in (404, 405):
        assert answer.json["code"] == status and answer.json["type"] and answer.json["message"]
    raw.close()


def test_an_empty_body_is_the_handlers_business(quick):
    """A request without a body has an empty body. The counter asks for an integer, and the sequence lives on."""
    client = quick.client()
    assert client.step("counter", "e", 4).text == "4"
    refused = client.step("counter", "e", b"")
    assert refused.status == 500 and "decimal integer" in refused.message, refused
    assert client.step("counter", "e", 1).text == "5"


def test_headers_that_trickle_are_cut_off(quick):
    """Slowloris: each byte comes in time, but the request never ends."""
    raw = quick.raw(timeout=0.05)
    raw.send("GET /ping HTTP/1.1\r\nHost: t\r\nX-Slow: ")
    began = time.monotonic()

    def closed():
        try:
            raw.socket.sendall(b"x")
            return raw.socket.recv(65536) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    expect(closed, "the connection is cut off", 5)
    assert time.monotonic() - began < limit(5)
    raw.close()
    assert quick.client().get("/ping").status == 200


def test_a_body_that_trickles_is_cut_off(quick):
    """A body that comes slowly is cut off, too."""
    raw = quick.raw()
    raw.send(HEAD + "Content-Length: 100\r\n\r\n12345")
    answer = raw.answer()
    assert answer is None or answer.status == 408, answer
    assert raw.is_closed_by_server()
    raw.close()
    assert quick.client().step("counter", "b", 1).text == "1"


def test_a_connection_that_says_nothing_is_cut_off(quick):
    """A connection on which nothing comes is like slow headers."""
    raw = quick.raw()
    assert raw.is_closed_by_server()
    raw.close()


def test_a_slow_reader_does_not_hold_up_the_others(server):
    """An answer that the client does not read is dropped after write-timeout. The worker is free all the time."""
    big = """
    return { api = 1, step = function(_, req)
        return { body = string.rep("x", tonumber(req.body)) }
    end }"""
    s = server(Model("big", big, stateless_yaml(), stateful=False), flags=["--write-timeout", "800"])
    slow = s.raw("slow", receive_buffer=4096)
    slow.send("POST /predictions/big HTTP/1.1\r\nHost: t\r\nContent-Length: 8\r\n\r\n30000000")
    client = s.client()
    for _ in range(20):
        assert client.post("/predictions/big", b"10").body == b"x" * 10
    expect(lambda: open_connections(s) <= 1, "the slow reader is cut off", 10)
    slow.close()


def stateless_yaml():
    return {"minWorkers": 1, "maxWorkers": 1, "batchSize": 1}


def open_connections(s):
    return s.metric("continuo_http_connections")


def test_a_client_that_goes_away_in_mid_request_harms_nobody(server):
    """The client gets no answer, so its step is done once or not at all."""
    s = server(counter())
    client = s.client()
    assert client.step("counter", "g", 1).text == "1"
    with s.hold():
        raws = [s.raw(f"gone{i}") for i in range(10)]
        for i, raw in enumerate(raws):
            raw.send(HEAD + f"ts_request_sequence_id: gone{i}\r\nContent-Length: 1\r\n\r\n1")
        one = s.raw("gone")
        one.send(HEAD + "ts_request_sequence_id: g\r\nContent-Length: 2\r\n\r\n10")
        s.expect_outstanding("counter", 11)
        for raw in [*raws, one]:
            raw.reset()
    answer = client.step("counter", "g", 1)
    assert answer.text in ("2", "12"), answer
    expect(lambda: s.outstanding("counter") == 0, "nothing is left over")


def test_a_client_that_goes_away_in_mid_body_harms_nobody(quick):
    """An incomplete request does not run."""
    for _ in range(5):
        raw = quick.raw()
        raw.send(HEAD + "ts_request_sequence_id: h\r\nContent-Length: 10\r\n\r\n123")
        raw.reset()
    assert quick.client().step("counter", "h", 1).text == "1"


def test_many_parked_requests_are_all_answered(server):
    """Hundreds of clients may wait for one busy worker."""
    s = server(counter(batchSize=64))
    with s.hold():
        raws = [s.raw(f"p{i}") for i in range(300)]
        for i, raw in enumerate(raws):
            raw.send(HEAD + f"ts_request_sequence_id: p{i}\r\nContent-Length: 1\r\n\r\n{i % 10}")
    for i, raw in enumerate(raws):
        assert raw.answer().text == str(i % 10)
        raw.close()
