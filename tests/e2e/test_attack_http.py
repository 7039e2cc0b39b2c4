"""Hostile HTTP clients. Each attack has a bound: memory, CPU time, and the time that a bystander waits."""

import contextlib
import pathlib
import re
import socket
import time

import pytest

from attacking import SPARE_MB, bystander, cpu_share, resident_mb
from client import RawClient
from models import Model, counter
from server import address_of
from waiting import expect, limit

HEAD = b"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
BIG = """
return { api = 1, step = function(_, req)
    return { body = string.rep("x", tonumber(req.body)) }
end }"""
ENDLESS = """
return { api = 1, step = function(_, req)
    for i = 1, 10000 do coroutine.yield(string.rep("x", 60000)) end
    return { body = "end" }
end }"""
STATELESS = {"minWorkers": 1, "maxWorkers": 1, "batchSize": 1}


def big():
    return Model("big", BIG, STATELESS, stateful=False)


def ask_for(s, size, receive_buffer=4096):
    raw = s.raw(receive_buffer=receive_buffer)
    raw.send(f"POST /predictions/big HTTP/1.1\r\nHost: t\r\nContent-Length: {len(str(size))}\r\n\r\n{size}")
    return raw


@pytest.mark.parametrize("begin", [b"2;" + b"a" * 9000, b"2;" + b"a" * 100_000, b"0" * 20_000, b"2;" + b"a" * 7900],
                         ids=["extension", "long-extension", "zeros", "fills-the-buffer"])
@pytest.mark.load
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_a_chunk_line_without_end_costs_no_cpu(server, begin, leaves):
    """It once kept a loop busy for a minute, also after the client had gone."""
    s = server(counter(), flags=["--loops", "1"])
    raws = [s.raw(f"c{i}") for i in range(5)]
    for raw in raws:
        with contextlib.suppress(OSError):
            raw.send(HEAD + begin)
    if leaves:
        for raw in raws:
            raw.close()
    else:
        answer = raws[0].answer()
        assert answer is None or answer.status == 400, answer
    assert cpu_share(s) < 0.3
    expect(lambda: s.metric("continuo_http_connections") <= 1, "the connections are closed", 5)
    with bystander(s):
        pass


@pytest.mark.load
def test_a_client_that_reads_a_byte_now_and_then_is_cut(server):
    """The whole answer must be read in time. What the kernel had for the client is dropped, too."""
    s = server(counter(), big(), flags=["--write-timeout", "500"])
    expect_cut(s, ask_for(s, 30_000_000))
    with bystander(s):
        pass


def expect_cut(s, raw):
    """Reads a little now and then until the server has cut the connection and its kernel has nothing more for it."""
    port = raw.socket.getsockname()[1]

    def is_cut():
        with contextlib.suppress(ConnectionError):
            raw.socket.recv(1)
        return s.metric("continuo_http_connections_cut_total") == 1 and not is_known_to_the_kernel(s, port)

    expect(is_cut, "the connection is cut", 20)
    raw.close()


def is_known_to_the_kernel(s, port):
    """Has the server's machine a socket for the client at this port?"""
    ends = [f":{address_of(s.inference)[1]:04X}", f":{port:04X}"]
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(ends[0]) and line.split()[2].endswith(ends[1]) for line in lines)


def test_a_slow_reader_of_a_stream_is_cut(server):
    """Each piece of a stream has its own write-timeout, so a rate is demanded as well."""
    endless = Model("endless", ENDLESS, {**STATELESS, "responseTimeout": 60}, stateful=False)
    s = server(counter(), endless, flags=["--write-timeout", "2000", "--min-rate", "20000"])
    raw = s.raw(receive_buffer=4096)
    raw.send("POST /predictions/endless HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n1")
    expect_cut(s, raw)


def test_a_quick_reader_of_a_slow_stream_is_not_cut(server):
    """A handler may take its time: only bytes that wait for the client count."""
    slow = Model("slow", """
return { api = 1, step = function(_, req)
    for i = 1, 15 do coroutine.yield("x") local until_s = os.clock() + 0.1 repeat until os.clock() > until_s end
    return { body = "end" }
end }""", STATELESS, stateful=False)
    s = server(slow, flags=["--write-timeout", "400", "--body-timeout", "400", "--min-rate", "100000"])
    assert s.client().post("/predictions/slow", "1").text == "x" * 15 + "end"


def test_a_body_that_trickles_is_cut_before_its_time(server):
    s = server(counter(), flags=["--body-timeout", "20000", "--header-timeout", "400", "--min-rate", "1000"])
    raw = s.raw(timeout=0.05)
    raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n")

    def is_closed():
        try:
            raw.socket.sendall(b"1")
            return raw.socket.recv(1000) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    began = time.monotonic()
    expect(is_closed, "the connection is cut", 15)
    assert time.monotonic() - began < 20, "before body-timeout"
    assert s.metric("continuo_http_connections_cut_total") == 1


@pytest.mark.load
def test_answers_that_nobody_reads_are_bounded(server):
    """60 answers of 8 MB, with room for 64 MB."""
    s = server(counter(), big(), flags=["--max-unread-answers", 64 << 20, "--loops", "1"])
    before = resident_mb(s)
    raws = []
    with bystander(s) as by:
        for _ in range(60):
            raws.append(ask_for(s, 8_000_000))
            expect(lambda: s.outstanding("big") == 0, "the worker has answered", 20)
        assert s.metric("continuo_unread_answer_bytes") <= 64 << 20
    assert s.metric("continuo_unread_answers_cut_total") >= 60 - 8 - 1
    assert by.peak_mb - before < 64 + 30 + SPARE_MB
    for raw in raws:
        raw.close()
    expect(lambda: s.metric("continuo_unread_answer_bytes") == 0, "nothing waits any more", 10)


def test_one_address_cannot_take_all_connections(server):
    """Another address is served meanwhile, and so is this one when it has closed some."""
    s = server(counter(), flags=["--max-connections-per-address", "20", "--loops", "1"])
    raws = [s.raw(f"c{i}") for i in range(20)]
    expect(lambda: s.metric("continuo_http_connections") == 20, "they are open", 5)
    surplus = s.raw("surplus")
    assert surplus.is_closed_by_server()
    assert s.metric("continuo_http_connections_refused_total") >= 1
    with socket.create_connection(address_of(s.inference), timeout=limit(10), source_address=("127.0.0.9", 0)) as other:
        other.sendall(b"GET /ping HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200")
    for raw in raws[:10]:
        raw.close()
    expect(lambda: s.metric("continuo_http_connections") <= 10, "they are closed", 5)
    assert s.client().get("/ping").status == 200


def test_by_default_a_proxy_gets_nine_tenths_and_others_find_room(server):
    """One address may have nine times as many connections as are still free."""
    s = server(counter(), flags=["--max-connections", "100", "--loops", "1"])
    raws = [s.raw(f"c{i}") for i in range(95)]
    expect(lambda: s.metric("continuo_http_connections") == 90, "nine tenths are open", 10)
    expect(lambda: s.metric("continuo_http_connections_refused_total") == 5, "the others are closed", 10)
    with socket.create_connection(address_of(s.inference), timeout=limit(10), source_address=("127.0.0.9", 0)) as other:
        other.sendall(b"GET /ping HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200")
    for raw in raws:
        raw.close()


@pytest.mark.load
def test_silent_connections_keep_nobody_out(server):
    s = server(counter(), flags=["--max-connections", "1000"])
    raws = [socket.create_connection(address_of(s.inference)) for _ in range(490)]
    with bystander(s):
        pass
    for raw in raws:
        raw.close()


@pytest.mark.parametrize("method", ["FOO", "TRACE", "BREW"])
def test_unknown_methods_are_refused(server, method):
    s = server(counter())
    for path in ("/ping", "/predictions/counter"):
        assert s.client().request(method, path).status == 405, path


def test_a_method_with_control_characters_does_not_reach_the_access_log(server, folder):
    """An escape sequence in the log would act on the terminal of whoever reads it."""
    s = server(counter(), flags=["--log-dir", folder / "logs"])
    raw = s.raw()
    raw.send(b"G\x1b[31mET /ping HTTP/1.1\r\nHost: t\r\n\r\n")
    assert raw.answer().status == 400
    assert s.client().request("FOO", "/ping").status == 405
    log = folder / "logs" / "access_log.log"
    expect(lambda: log.exists() and re.search(r'"FOO /ping', log.read_text()), "the line is there", 10)
    assert "\x1b" not in log.read_text()


def test_a_guarded_connection_still_pipelines(server):
    """Requests before the bad one are answered, and the bad one gets its reason."""
    s = server(counter())
    raw = s.raw()
    one = b"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nContinuo-Sequence: p\r\nContent-Length: 1\r\n\r\n1"
    raw.send(one * 3 + b"GET /ping HTTP/1.1\nHost: t\r\n\r\n" + one)
    assert [raw.answer().text for _ in range(3)] == ["1", "2", "3"]
    refused = raw.answer()
    assert refused.status == 400 and "line feed alone" in refused.message
    assert raw.is_closed_by_server()
    assert s.client().step("counter", "p", "1").text == "4"
    assert s.metric("continuo_http_malformed_total") == 1


def test_requests_in_small_pieces_are_read_alike(server):
    """The reader keeps its place between two bytes."""
    s = server(counter())
    raw = RawClient(address_of(s.inference), s.transcript, "pieces")
    data = HEAD.replace(b"\r\n\r\n", b"\r\nContinuo-Sequence: x\r\n\r\n") + b"1;a=b\r\n4\r\n1\r\n2\r\n0\r\nT: v\r\n\r\n"
    raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for i in range(len(data)):
        raw.socket.sendall(data[i:i + 1])
    assert raw.answer().text == "42"
    raw.send(data)
    assert raw.answer().text == "84"
