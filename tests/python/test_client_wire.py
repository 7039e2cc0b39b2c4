"""How the Python client (clients/python) uses its connections, against a small server that closes them."""

import asyncio
import base64
import hashlib
import http.server
import json
import os
import pathlib
import re
import socket
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"))

from continuo_client import AsyncClient, Client, ClientTimeoutError, ContinuoError  # noqa: E402


@pytest.fixture
def serving():
    """serving(answer) starts a server; answer(handler) may wait, and change what the handler does then. The body of
    each answer is the port of the client's end. Returns the server's address."""
    servers = []

    def start(answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            status, close, headers_of_answer = 200, False, {}

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                answer(self)
                body = str(self.client_address[1]).encode()
                self.send_response(self.status)
                for name, value in {"Content-Length": str(len(body)), **self.headers_of_answer}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = self.close or self.close_connection

            def log_message(self, *_):
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,)).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for each in servers:
        each.shutdown()
        each.server_close()


def crowd(n):
    """What n clients at once get: each waits for the others, and then its connection is closed without a word."""
    together, count = threading.Barrier(n), iter(range(1 << 30))

    def answer(handler):
        if next(count) < n:
            together.wait(60)
            handler.close = True
    return answer


def test_a_restart_breaks_many_idle_connections_and_costs_one_attempt(serving):
    client = Client(serving(crowd(24)), timeout=60)
    threads = [threading.Thread(target=client.predict, args=("echo", "x")) for _ in range(24)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert client.predict("echo", "x", timeout=1.5).status == 200


def test_a_restart_breaks_many_idle_connections_of_asyncio_and_costs_one_attempt(serving):
    async def talk():
        async with AsyncClient(url, timeout=60) as client:
            await asyncio.gather(*[client.predict("echo", "x") for _ in range(24)])
            return (await client.predict("echo", "x", timeout=1.5)).status

    url = serving(crowd(24))
    assert asyncio.run(talk()) == 200


def test_a_connection_that_is_opened_again_has_the_timeout_of_its_request(serving):
    """The first request has little time, and its answer says that the connection is closed."""
    times = [0, 1.0]

    def answer(handler):
        time.sleep(times.pop(0))
        handler.headers_of_answer = {"Connection": "close"}

    client = Client(serving(answer))
    client.predict("echo", "x", timeout=0.5)
    assert client.predict("echo", "x", timeout=60).status == 200


def test_a_redirect_is_no_answer(serving):
    """A proxy that redirects to https has not done the step."""
    def answer(handler):
        handler.status, handler.headers_of_answer = 301, {"Location": "https://127.0.0.1/"}

    one = Client(serving(answer)).sequence("counter")
    with pytest.raises(ContinuoError, match="301: redirected to https://127.0.0.1/; use") as caught:
        one.step(4)
    assert (one.count, caught.value.retryable) == (0, False)
    with pytest.raises(RuntimeError, match="nothing"):
        one.retry()


@pytest.mark.parametrize("status", [502, 504])
def test_what_a_proxy_answers_leaves_open_whether_the_step_is_done(serving, status):
    def answer(handler):
        handler.status = statuses.pop(0)

    statuses = [status, 200, 200]
    one = Client(serving(answer)).sequence("counter")
    with pytest.raises(ContinuoError, match=str(status)):
        one.step(4)
    with pytest.raises(RuntimeError, match="retry"):
        one.step(5)
    assert (one.retry().status, one.step(5).status, one.count) == (200, 200, 2)


@pytest.mark.parametrize("kind", ["text/plain\n", "text/\u20ac", "text/\x7f"])
def test_a_content_type_that_no_header_can_carry_leaves_nothing_behind(serving, kind):
    url = serving(lambda handler: None)
    one = Client(url).sequence("counter")
    with pytest.raises(ValueError, match="Content-Type"):
        one.step(4, content_type=kind)
    assert (one.step(4).status, one.count) == (200, 1)

    async def talk():
        one = AsyncClient(url).sequence("counter")
        with pytest.raises(ValueError, match="Content-Type"):
            await one.step(4, content_type=kind)
        return (await one.step(4)).status
    assert asyncio.run(talk()) == 200


def test_a_fork_does_not_use_the_connections_of_its_parent(serving):
    client = Client(serving(lambda handler: None), timeout=60)
    port = client.predict("echo", "x").content
    child = os.fork()
    if child == 0:
        same = True
        try:
            same = client.predict("echo", "x").content == port
        finally:
            os._exit(same)
    assert os.waitpid(child, 0)[1] == 0
    assert client.predict("echo", "x").content == port


def test_a_client_of_asyncio_may_be_used_in_one_loop_after_the_other(serving):
    client = AsyncClient(serving(lambda handler: None), timeout=60)
    for _ in range(2):
        assert asyncio.run(client.predict("echo", "x")).status == 200


def deaf(listener, kept):
    """Accepts streams, says hello and reads nothing more."""
    hello = json.dumps({"type": "hello", "generation": 0, "step": 0, "next": 1, "credit": 1}).encode()
    while True:
        try:
            kept.append(listener.accept()[0])
        except OSError:
            return
        head = b""
        while b"\r\n\r\n" not in head:
            head += kept[-1].recv(4096)
        key = re.search(rb"(?i)sec-websocket-key: (\S+)", head)[1]
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        kept[-1].sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         b"Sec-WebSocket-Protocol: continuo.v1.json\r\nSec-WebSocket-Accept: " + accept +
                         b"\r\n\r\n\x81" + bytes([len(hello)]) + hello)


def test_a_server_that_does_not_read_does_not_outlast_the_timeout_of_a_stream():
    listener, kept = socket.create_server(("127.0.0.1", 0)), []
    threading.Thread(target=deaf, args=(listener, kept)).start()
    url, large = f"http://127.0.0.1:{listener.getsockname()[1]}", "x" * 30_000_000

    async def talk():
        async with AsyncClient(url).stream("counter") as stream:
            await stream.step(large, timeout=1)

    began = time.monotonic()
    try:
        with pytest.raises(ClientTimeoutError), Client(url).stream("counter") as stream:
            stream.step(large, timeout=1)
        with pytest.raises(ClientTimeoutError):
            asyncio.run(asyncio.wait_for(talk(), 60))
        assert time.monotonic() - began < 30
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        for each in listener, *kept:
            each.close()
