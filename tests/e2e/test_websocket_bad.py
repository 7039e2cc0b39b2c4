"""WebSocket streams and what clients do wrong: each case has a clear answer, and everything is bounded."""

import json
import os
import socket
import ssl
import struct
import threading
import time
import zlib

import pytest
import requests
import websockets.exceptions

from attacking import SPARE_MB
from models import Model, counter, stateless
from server import address_of
from test_tls import Identity
from waiting import expect, limit
from websocketing import Closed, Stream, body_of

BIG_LUA = """
local M = { api = 1 }
function M.step(_, req)
    return { body = string.rep("x", tonumber(req.body)) }
end
return M
"""


class Raw:
    """A client that writes frames by hand."""

    def __init__(self, server, path="/v1/streams/echo/s", headers=(), status=101, made=None):
        host, port = address_of(server.inference)
        self.socket = made or socket.create_connection((host, port), timeout=limit(20))
        lines = ["GET " + path + " HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *headers]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self.bytes = b""
        head = self.until(b"\r\n\r\n").decode()
        assert head.startswith(f"HTTP/1.1 {status} "), head
        self.head = head

    def until(self, end):
        while end not in self.bytes:
            got = self.socket.recv(65536)
            assert got, self.bytes
            self.bytes += got
        before, _, self.bytes = self.bytes.partition(end)
        return before

    def take(self, n):
        while len(self.bytes) < n:
            got = self.socket.recv(65536)
            if not got:
                raise EOFError
            self.bytes += got
        taken, self.bytes = self.bytes[:n], self.bytes[n:]
        return taken

    def send(self, first, payload=b"", mask=True, length=None):
        n = len(payload) if length is None else length
        size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else \
            b"\x7f" + struct.pack(">Q", n)
        size = bytes([size[0] | (0x80 if mask else 0)]) + size[1:]
        self.socket.sendall(bytes([first]) + size + (bytes(4) if mask else b"") + payload)
        return self

    def frame(self):
        first, size = self.take(2)
        if size == 126:
            size = struct.unpack(">H", self.take(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self.take(8))[0]
        return first, self.take(size)

    def code(self):
        """Reads until the close frame; returns its code."""
        while True:
            first, payload = self.frame()
            if first == 0x88:
                return struct.unpack(">H", payload[:2])[0] if payload else None

    def close(self):
        self.socket.close()


@pytest.fixture(scope="module")
def echo(shared_server):
    return shared_server(stateless(), counter(), flags=["--max-request-size", "100000", "--stream-credit", "4"])


@pytest.mark.parametrize("send,code", [
    (lambda raw: raw.send(0x81, b"text", mask=False), 1002),
    (lambda raw: raw.send(0x83, b"text"), 1002),
    (lambda raw: raw.send(0x80, b"text"), 1002),
    (lambda raw: raw.send(0xc1, b"text"), 1002),
    (lambda raw: raw.send(0x01, b"text").send(0x81, b"text"), 1002),
    (lambda raw: raw.send(0x89, b"p" * 126), 1002),
    (lambda raw: raw.send(0x81, b"\xc3\x28"), 1007),
    (lambda raw: raw.send(0x82, b"x", length=100001), 1009),
    (lambda raw: raw.send(0x82, b"x", length=1 << 62), 1009),
    (lambda raw: raw.send(0x02, b"x" * 60000).send(0x80, b"x" * 60000), 1009),
], ids=["no-mask", "opcode", "continuation", "rsv", "text-in-text", "long-ping", "utf-8", "large", "huge", "fragments"])
def test_frames_that_break_the_protocol(echo, send, code):
    raw = Raw(echo)
    send(raw)
    assert raw.code() == code
    raw.close()
    assert echo.client().post("/predictions/echo", "alive").text == "alive"


def handshake(server, path="/v1/streams/echo/s", **headers):
    given = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
             "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    given.update({name.replace("_", "-"): value for name, value in headers.items()})
    return requests.get(server.inference + path, timeout=limit(20),
                        headers={name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize("path,headers,status,word,part", [
    ("/v1/streams/echo/s", {"Upgrade": None}, 400, "bad_request", "Upgrade"),
    ("/v1/streams/echo/s", {"Sec_WebSocket_Version": "8"}, 400, "bad_request", "Version"),
    ("/v1/streams/echo/s", {"Sec_WebSocket_Key": "x"}, 400, "bad_request", "Key"),
    ("/v1/streams/echo/s", {"Sec_WebSocket_Protocol": "chat"}, 400, "bad_request", "continuo.v1.json"),
    ("/v1/streams/nobody/s", {}, 404, "model_not_found", "nobody"),
    ("/v1/streams/echo/7.0/s", {}, 404, "version_not_found", "7.0"),
    ("/v1/streams/echo/s", {"Origin": "https://evil.example"}, 403, "foreign_site", "evil.example"),
    ("/v1/streams/echo/s?last=x", {}, 400, "bad_request", "last"),
    ("/v1/streams/echo/s?last=1", {}, 400, "bad_request", "no sequences"),
    ("/v1/streams/counter/s?last=99999999999999999999", {}, 400, "bad_request", "last"),
    ("/v1/streams/counter/" + "x" * 257, {}, 400, "bad_request", "257"),
    ("/v1/streams/counter/%01", {}, 400, "bad_request", "UTF-8"),
    ("/v1/streams/counter/s", {"ts_request_sequence_id": "other"}, 400, "bad_request", "other"),
    ("/v1/streams/counter/s", {"Idempotency_Key": "k"}, 400, "bad_request", "one step"),
    ("/v1/streams/counter/s", {"ts_request_sequence_end": "true"}, 400, "bad_request", "END"),
    ("/v1/streams/counter/s", {"ts_request_sequence_step": "1"}, 400, "bad_request", "numbers"),
])
def test_handshakes_that_are_refused(echo, path, headers, status, word, part):
    answer = handshake(echo, path, **headers)
    assert (answer.status_code, answer.headers["Continuo-Error"]) == (status, word), answer.text
    assert part in answer.json()["message"]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_client_that_does_not_wait_for_its_handshake(server, folder, tls):
    """A frame that comes together with the handshake is refused. Over TLS such a connection once stayed for ever, also
    after its client had gone."""
    more = [*Identity(folder, "ws").flags(), "--inference-address", "https://127.0.0.1:0"] if tls else []
    running = server(stateless(), flags=more)
    head = "\r\n".join(["GET /v1/streams/echo/s HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
                        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]).encode()
    before = len(os.listdir(f"/proc/{running.process.pid}/fd"))
    for _ in range(20):
        with socket.create_connection(address_of(running.inference), timeout=limit(20)) as early:
            if tls:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                early = context.wrap_socket(early)
            early.sendall(head + bytes([0x81, 0x82]) + bytes(4) + b"go")
            answer = b""
            while b"4.1)" not in answer and (got := early.recv(65536)):
                answer += got
            early.close()
        assert answer.startswith(b"HTTP/1.1 400 ") and b"after the answer 101" in answer, answer
    expect(lambda: len(os.listdir(f"/proc/{running.process.pid}/fd")) <= before + 1, "no connection is left")


def test_pages_of_this_server_and_of_allowed_origins_may_connect(server):
    running = server(stateless(), flags=["--cors-allowed-origin", "https://app.example"])
    for origin in running.inference, "https://app.example":
        Raw(running, headers=["Origin: " + origin]).close()
    assert handshake(running, Origin="https://evil.example").status_code == 403


def test_a_message_must_be_complete_in_time(server):
    """A client that sends fragments for ever is closed after --body-timeout."""
    running = server(stateless(), flags=["--body-timeout", "1000000", "--stream-ping", "0"], clock=True)
    raw = Raw(running)
    raw.send(0x01, b"x")
    for _ in range(3):
        raw.send(0x00, b"")
        raw.send(0x89, b"alive")
        assert raw.frame() == (0x8a, b"alive")
        running.clock.advance(250000)
    running.clock.advance(500001)
    assert raw.code() == 1008


def test_a_refused_message_may_come_slowly(server):
    """A client that sends all of its message before it reads sees why it was refused, also if that takes longer than a
    client has for its own close. In the end the server waits no longer."""
    flags = ["--max-request-size", "100000", "--stream-ping", "0", "--loops", "1"]
    running = server(stateless(), flags=flags, clock=True)
    raw = Raw(running)
    raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.send(0x82, b"x", length=1_000_000)
    for _ in range(8):
        assert running.metric("continuo_streams_open") == 1
        running.clock.advance(500)  # so little that a turn which began before it does no harm
        raw.socket.sendall(bytes(1000))
    assert raw.code() == 1009
    assert running.metric("continuo_streams_open") == 1
    running.clock.advance(2001)
    expect(lambda: running.metric("continuo_streams_open") == 0, "the stream has ended")


def test_a_message_that_the_server_does_not_read_is_not_late(server):
    """A client has sent one step and half of the next one. While its credit is used up, --body-timeout does not run."""
    running = server(counter(), flags=["--body-timeout", "1000", "--stream-ping", "0"], clock=True)
    raw = Raw(running, "/v1/streams/counter/a")
    with running.hold():
        raw.socket.sendall(bytes([0x81, 0x81]) + bytes(4) + b"4" + bytes([0x81, 0x82]) + bytes(4) + b"4")
        running.expect_outstanding("counter", 1)
        for _ in range(6):
            running.clock.advance(501)
    assert raw.frame() == (0x81, b"4")
    raw.socket.sendall(b"0")
    assert raw.frame() == (0x81, b"44")


def test_a_silent_client_is_pinged_and_cut(server):
    """A half-open connection ends after two times --stream-ping; a client that answers pings stays."""
    running = server(counter(), flags=["--stream-ping", "10000", "--loops", "1"], clock=True)
    dead, alive = Raw(running, "/v1/streams/counter/a"), Stream(running, "counter", "b")
    for _ in range(6):
        running.clock.advance(5001)
        alive.put(type="ping")
        assert alive.get() == {"type": "pong"}
    first, payload = dead.frame()
    assert (first, payload) == (0x89, b"")
    with pytest.raises(EOFError):
        dead.frame()
    expect(lambda: running.metric("continuo_streams_open") == 1, "only the living stream is open")


def resident(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:")) << 10


def test_a_client_that_never_reads_costs_bounded_bytes(server):
    """It sends steps whose answers have a megabyte each; the server stops reading, and cuts it after --write-timeout."""
    running = server(Model("big", BIG_LUA, stateful=False),
                     flags=["--stream-credit", "64", "--stream-buffer", "100000", "--write-timeout", "20000",
                            "--stream-ping", "0"], clock=True)
    before = resident(running.process.pid)
    raw = Raw(running, "/v1/streams/big/s")
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.socket.settimeout(0.3)
    sent = 0
    try:
        for sent in range(100000):
            raw.send(0x81, b"1000000")
    except (TimeoutError, OSError):
        pass
    assert running.metric("continuo_stream_steps_total") < 100
    assert resident(running.process.pid) - before < 120 << 20
    for _ in range(4):
        running.clock.advance(10001)
        running.metric("continuo_streams_open")
    expect(lambda: running.metric("continuo_streams_open") == 0, "the stream is cut")


def test_a_client_that_always_lags_behind_costs_bounded_bytes(server):
    """It reads each answer, but never all that wait for it. What it has read must not stay in the server's memory."""
    steps = 150
    running = server(Model("big", BIG_LUA, stateful=False),
                     flags=["--stream-credit", "12", "--stream-buffer", "8000000", "--stream-ping", "0"])
    raw = Raw(running, "/v1/streams/big/s")
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262144)
    before = resident(running.process.pid)
    for _ in range(steps):
        raw.send(0x81, b"1000000")
    for read in range(steps):
        due = min(read + 10, steps)
        expect(lambda due=due: running.metric("continuo_jobs_total") >= due, "further answers that wait")
        assert len(raw.frame()[1]) == 1000000
    assert resident(running.process.pid) - before < (30 + SPARE_MB) << 20


@pytest.mark.parametrize("loops", [1, 2])
def test_answers_that_nobody_reads_are_bounded_together(server, loops):
    """12 streams ask for 2 answers of 6 MB each, with room for 40 MB. The second answer waits in its step. Those that
    have waited longest are cut; a client that reads loses nothing."""
    running = server(Model("big", BIG_LUA, stateful=False),
                     flags=["--stream-credit", "2", "--stream-buffer", "100000", "--max-unread-answers", 40 << 20,
                            "--loops", str(loops)])
    raws, quick = [], Stream(running, "big", "quick", form="plain")
    for sent in range(12):
        raws.append(Raw(running, f"/v1/streams/big/s{sent}"))
        with running.hold():
            raws[-1].send(0x81, b"6000000").send(0x81, b"6000000")
            running.expect_outstanding("big", 2)
        expect(lambda: running.outstanding("big") == 0, "the worker has answered", 20)
        quick.send("1000000")
        assert len(quick.get()) == 1_000_000
    assert 20 << 20 < running.metric("continuo_unread_answer_bytes") <= 40 << 20
    expect(lambda: running.metric("continuo_streams_open") < 10, "others are cut")
    assert running.metric("continuo_unread_answers_cut_total") >= 12 - 8
    assert len(raws[-1].frame()[1]) == len(raws[-1].frame()[1]) == 6_000_000
    for raw in raws:
        raw.close()
    quick.cut()
    expect(lambda: running.metric("continuo_streams_open") == 0, "no stream is left")
    assert running.metric("continuo_unread_answer_bytes") == 0


def test_a_client_whose_messages_become_large_leaves_turns_to_others(server):
    """Each message of 6 kB is decompressed to 6 MB and refused, so the client needs no credit for the next one. Another
    client waits for some of them, and not for all that have come."""
    running = server(counter(), flags=["--loops", "1"])
    raw = Raw(running, "/v1/streams/counter/a", headers=["Sec-WebSocket-Extensions: permessage-deflate",
                                                         "Sec-WebSocket-Protocol: continuo.v1.json"])
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    blanks = (packer.compress(b" " * 6_500_000) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    frame = b"\xc1\xfe" + struct.pack(">H", len(blanks)) + bytes(4) + blanks
    other, answers = running.client(), []
    assert json.loads(raw.frame()[1])["type"] == "hello"
    began = time.monotonic()
    sender = threading.Thread(target=lambda: raw.socket.sendall(frame * 200))
    sender.start()
    reader = threading.Thread(target=lambda: answers.extend(raw.frame() for _ in range(200)))
    reader.start()
    slowest = 0
    while reader.is_alive():
        asked = time.monotonic()
        other.get("/ping")
        slowest = max(slowest, time.monotonic() - asked)
    assert slowest < (time.monotonic() - began) / 8
    sender.join()
    assert len(answers) == 200 and all(b"bad_request" in message for _, message in answers)


PIECES_LUA = """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.step(state, req)
    for i = 1, 9 do coroutine.yield({ text = string.rep("x", 8000) }) end
    return { text = "end" }
end
return M
"""


@pytest.mark.parametrize("loops", [1, 2, 4])
def test_pieces_that_are_taken_after_the_final_answer(server, loops):
    """All pieces come at once, and only one of them has room at a time. When the last ones are taken, the step has
    ended, and nothing may be said of it to the loop of its model."""
    running = server(Model("pieces", PIECES_LUA, {"stream": {"bufferBytes": 80000}}),
                     flags=["--stream-buffer", "1024", "--loops", str(loops)])
    streams = [Stream(running, "pieces", f"s{i}", form="plain") for i in range(8)]
    for _ in range(20):
        for stream in streams:
            stream.send("go")
        for stream in streams:
            assert [len(stream.get()) for _ in range(10)] == [8000] * 9 + [3]
    for stream in streams:
        stream.cut()
    expect(lambda: running.metric("continuo_streams_open") == 0, "no stream is left")


def test_steps_beyond_the_credit_wait(server):
    running = server(counter(), flags=["--stream-credit", "4"])
    with Stream(running, "counter", "a") as stream, running.hold():
        for _ in range(20):
            stream.put(type="step", data=1)
        running.expect_outstanding("counter", 4)
        other = running.client()
        assert other.get("/ping").status == 200
        assert running.outstanding("counter") == 4
    # after the hold: all of them, in order


def test_all_steps_beyond_the_credit_are_answered(server):
    running = server(counter(), flags=["--stream-credit", "4"])
    with Stream(running, "counter", "a") as stream:
        with running.hold():
            for _ in range(200):
                stream.put(type="step", data=1)
            running.expect_outstanding("counter", 4)
        assert [body_of(stream.get()) for _ in range(200)] == [str(i) for i in range(1, 201)]


# --- keys

def keys(server):
    return json.loads((server.folder / "key_file.json").read_text())


def test_keys_come_by_header_subprotocol_or_ticket(server):
    running = server(counter(), flags=["--token-auth"])
    key, other = (keys(running)[kind]["key"] for kind in ("inference", "management"))
    bearer = {"Authorization": f"Bearer {key}"}
    for wrong in {}, {"headers": {"Authorization": f"Bearer {other}"}}, {"query": {"ticket": "0" * 32}}, \
            {"query": {"ticket": "x"}}, {"protocols": ["continuo.v1.json", "continuo.key." + other]}:
        with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
            Stream(running, "counter", "a", **wrong)
        assert refused.value.response.status_code == 400
        assert refused.value.response.headers["Continuo-Error"] == "token_refused"
    with Stream(running, "counter", "a", headers=bearer) as stream:
        assert body_of(stream.step(1)) == "1"
    with Stream(running, "counter", "a", protocols=["continuo.key." + key, "continuo.v1.json"]) as stream:
        assert stream.ws.subprotocol == "continuo.v1.json"
        assert body_of(stream.step(1)) == "2"
    assert requests.post(running.inference + "/v1/streams/tickets", timeout=limit(20)).status_code == 400
    ticket = requests.post(running.inference + "/v1/streams/tickets", headers=bearer, timeout=limit(20)).json()
    assert ticket["expires_ms"] == 30000
    with Stream(running, "counter", "a", query={"ticket": ticket["ticket"]}) as stream:
        assert body_of(stream.step(1)) == "3"
    with pytest.raises(websockets.exceptions.InvalidStatus):  # it opens one stream
        Stream(running, "counter", "a", query={"ticket": ticket["ticket"]})


def test_tickets_expire_and_are_bounded(server):
    running = server(counter(), flags=["--token-auth", "--stream-ticket-lifetime", "600000"], clock=True)
    bearer = {"Authorization": "Bearer " + keys(running)["inference"]["key"]}
    with requests.Session() as session:
        def make():
            return session.post(running.inference + "/v1/streams/tickets", headers=bearer, timeout=limit(20))

        tickets = [make() for _ in range(1025)]
        assert {answer.status_code for answer in tickets[:-1]} == {200}
        assert tickets[-1].status_code == 429 and tickets[-1].headers["Continuo-Error"] == "too_many_calls"
    running.clock.advance(600001)  # idle connections are closed by it, too
    answer = requests.post(running.inference + "/v1/streams/tickets", headers=bearer, timeout=limit(20))
    assert answer.status_code == 200
    with pytest.raises(websockets.exceptions.InvalidStatus):
        Stream(running, "counter", "a", query={"ticket": tickets[0].json()["ticket"]})


# --- TLS and compression

@pytest.mark.parametrize("loops", [1, 2])
def test_streams_over_tls(server, folder, loops):
    identity = Identity(folder, "ws")
    running = server(counter(), stateless(), flags=[
        *identity.flags(), "--inference-address", "https://127.0.0.1:0", "--loops", str(loops),
        "--stream-credit", "8"])
    for _ in range(3):
        with Stream(running, "counter", "a") as stream:
            for _ in range(20):
                stream.step(1)
    with Stream(running, "counter", "a") as stream:
        assert stream.hello["step"] == 60
        older = stream
        with Stream(running, "counter", "a"):
            assert older.closing()[1].code == 4001
    with Stream(running, "echo", "x", form="plain") as stream:
        large = os.urandom(1 << 20)
        stream.send(large)
        assert stream.get() == large
    expect(lambda: running.metric("continuo_streams_open") == 0, "no open stream")


def tls_raw(running, path, room=4096):
    """A stream over TLS whose frames are written by hand."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(address_of(running.inference), timeout=limit(20))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    return Raw(running, path, made=context.wrap_socket(plain))


def test_a_client_over_tls_that_reads_slowly_gets_every_byte(server, folder):
    """The server cannot send the answer at once: TLS then keeps a record that the socket did not take. The bytes come and
    go in large pieces, so they take few turns of the loop."""
    running = server(stateless(), flags=[*Identity(folder, "ws").flags(), "--inference-address", "https://127.0.0.1:0"])
    raw = tls_raw(running, "/v1/streams/echo/s", 65536)
    for size in 6 << 20, 1, 70000:
        message = os.urandom(size)
        turns = running.metric("continuo_loop_turns_total")
        raw.send(0x82, message)
        assert raw.frame() == (0x82, message)
        assert running.metric("continuo_loop_turns_total") - turns < 20000
    raw.close()


@pytest.mark.parametrize("habit", ["breaks the protocol", "closes well", "falls silent", "never reads"])
def test_a_client_over_tls_that_holds_its_connection_is_let_go(server, folder, habit):
    """The server has ended the stream, and the client does not close. Nothing of the stream stays in the server."""
    running = server(Model("big", BIG_LUA, stateful=False), clock=True, flags=[
        *Identity(folder, "ws").flags(), "--inference-address", "https://127.0.0.1:0", "--stream-credit", "64",
        "--stream-buffer", "100000", "--write-timeout", "20000", "--stream-ping", "30000"])
    before = len(os.listdir(f"/proc/{running.process.pid}/fd"))
    raw = tls_raw(running, "/v1/streams/big/s")
    if habit == "breaks the protocol":
        assert raw.send(0x83, b"text").code() == 1002
    elif habit == "closes well":
        assert raw.send(0x88, struct.pack(">H", 1000)).code() == 1000
    elif habit == "never reads":
        for _ in range(10):
            raw.send(0x81, b"1000000")

    def is_gone():
        running.clock.advance(1000)
        return running.metric("continuo_streams_open") == 0

    expect(is_gone, "no stream is left", 30)
    # One more may be that of the request for the metric.
    expect(lambda: len(os.listdir(f"/proc/{running.process.pid}/fd")) <= before + 1, "no descriptor is left")
    raw.close()


def test_messages_are_compressed(server):
    running = server(stateless(), flags=["--compress-above", "100"])
    with Stream(running, "echo", "s", form="plain", compression="deflate") as stream:
        for size in 1, 50, 100, 1000, 100000, 2000000:
            stream.send("a" * size)
            answer = stream.get()
            assert answer in ("a" * size, b"a" * size)
    raw = Raw(running, headers=["Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"])
    assert "server_no_context_takeover" in raw.head
    raw.send(0x81, b"x" * 1000)
    first, payload = raw.frame()
    assert first in (0xc1, 0xc2) and len(payload) < 100
    raw.close()


def test_a_small_message_that_inflates_too_much_is_refused(server):
    import zlib
    running = server(stateless(), flags=["--max-request-size", "100000"])
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = (packer.compress(bytes(50 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    assert len(bomb) < 100000
    raw = Raw(running, headers=["Sec-WebSocket-Extensions: permessage-deflate"])
    raw.send(0xc2, bomb)
    assert raw.code() == 1009
    raw.close()
