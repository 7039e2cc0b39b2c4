"""Odd requests, sent to the server directly and as three proxies forward them.

Where a proxy and the server behind it read a request differently, one request can hide another one. Each shape goes to
nginx, HAProxy and Envoy, behind which a program records what they forward. Each recorded request then goes to the
server, with another request behind it. The server must either read exactly these two, with the same URL and the same
body, or refuse the first one and close the connection."""

import concurrent.futures
import contextlib
import itertools
import pathlib
import re
import socket
import threading
import types

import pytest

from client import RawClient
from models import counter
from proxying import Proxy, program
from server import address_of
from test_behind_proxy import block
from waiting import expect, limit

PATH = "/predictions/counter"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: t\r\n"
NEXT = f"GET {PATH}/hidden HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
CHUNKED = HEAD + "Transfer-Encoding: chunked\r\n\r\n"

SHAPES = {
    "plain": HEAD + "Content-Length: 1\r\n\r\n1",
    "chunked": CHUNKED + "1\r\n1\r\n0\r\n\r\n",
    "no body": HEAD + "\r\n",
    "length and coding": HEAD + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n1",
    "coding and length": HEAD + "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n1",
    "two lengths": HEAD + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n12",
    "the same length twice": HEAD + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n1",
    "list of lengths": HEAD + "Content-Length: 1, 1\r\n\r\n1",
    "length with plus": HEAD + "Content-Length: +1\r\n\r\n1",
    "length with zeros": HEAD + "Content-Length: 0001\r\n\r\n1",
    "length with many zeros": HEAD + "Content-Length: " + "0" * 30 + "1\r\n\r\n1",
    "length with blanks": HEAD + "Content-Length: \t 1 \t\r\n\r\n1",
    "hexadecimal length": HEAD + "Content-Length: 0x1\r\n\r\n1",
    "length of 2^64 + 1": HEAD + "Content-Length: 18446744073709551617\r\n\r\n1",
    "empty length": HEAD + "Content-Length:\r\n\r\n1",
    "space before colon": HEAD + "Content-Length : 1\r\n\r\n1",
    "space before coding's colon": HEAD + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "coding with tab": HEAD + "Transfer-Encoding:\tchunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
    "coding with form feed": HEAD + "Transfer-Encoding: \x0cchunked\r\n\r\n0\r\n\r\n",
    "coding in capitals": HEAD + "TRANSFER-ENCODING: CHUNKED\r\n\r\n1\r\n1\r\n0\r\n\r\n",
    "coding twice": HEAD + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding identity": HEAD + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\n1",
    "coding xchunked": HEAD + "Transfer-Encoding: xchunked\r\nContent-Length: 1\r\n\r\n1",
    "coding gzip, chunked": HEAD + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding chunked, identity": HEAD + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "coding in quotes": HEAD + 'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "coding with 1.0": CHUNKED.replace("1.1", "1.0") + "0\r\n\r\n",
    "coding on two lines": HEAD + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "folded header": HEAD + "X: a\r\n Content-Length: 1\r\n\r\n1",
    "folded with tab": HEAD + "X: a\r\n\tContent-Length: 1\r\n\r\n1",
    "first header folded": f"POST {PATH} HTTP/1.1\r\n Host: t\r\nHost: t\r\n\r\n",
    "header without name": HEAD + ":\r\nContent-Length: 1\r\n\r\n1",
    "header without name, with value": HEAD + ": x\r\nContent-Length: 1\r\n\r\n1",
    "header without colon": HEAD + "Content-Length 1\r\nContent-Length: 1\r\n\r\n1",
    "name with underscore": HEAD + "Content_Length: 5\r\nContent-Length: 1\r\n\r\n1",
    "name with bracket": HEAD + "X[: a\r\nContent-Length: 1\r\n\r\n1",
    "zero byte in value": HEAD + "X: a\0b\r\nContent-Length: 1\r\n\r\n1",
    "zero byte in length": HEAD + "Content-Length: 1\0\r\n\r\n1",
    "zero byte in name": HEAD + "X\0: a\r\nContent-Length: 1\r\n\r\n1",
    "zero byte in URL": f"GET {PATH}\0/x HTTP/1.1\r\nHost: t\r\n\r\n",
    "zero byte in method": f"GET\0 {PATH} HTTP/1.1\r\nHost: t\r\n\r\n",
    "carriage return in value": HEAD + "X: a\rContent-Length: 5\r\nContent-Length: 1\r\n\r\n1",
    "line feeds alone": (HEAD + "Content-Length: 1\r\n\r\n").replace("\r\n", "\n") + "1",
    "one line feed alone": HEAD + "X: a\nContent-Length: 1\r\n\r\n1",
    "line feed after request line": HEAD.replace("1.1\r\n", "1.1\n") + "Content-Length: 1\r\n\r\n1",
    "empty line as line feed": HEAD + "Content-Length: 1\r\n\n1",
    "empty lines before": "\r\n\r\n" + HEAD + "Content-Length: 1\r\n\r\n1",
    "line feeds before": "\n\n" + HEAD + "Content-Length: 1\r\n\r\n1",
    "two blanks": HEAD.replace("POST ", "POST  ") + "Content-Length: 1\r\n\r\n1",
    "tab for blank": HEAD.replace("POST ", "POST\t") + "Content-Length: 1\r\n\r\n1",
    "blank in URL": f"GET {PATH}/a b HTTP/1.1\r\nHost: t\r\n\r\n",
    "blank after version": f"GET {PATH} HTTP/1.1 \r\nHost: t\r\n\r\n",
    "version 1.2": f"GET {PATH} HTTP/1.2\r\nHost: t\r\n\r\n",
    "version 1.10": f"GET {PATH} HTTP/1.10\r\nHost: t\r\n\r\n",
    "version 2.0": f"GET {PATH} HTTP/2.0\r\nHost: t\r\n\r\n",
    "lower case version": f"GET {PATH} http/1.1\r\nHost: t\r\n\r\n",
    "no version": f"GET {PATH}\r\n\r\n",
    "fragment": f"GET {PATH}#x HTTP/1.1\r\nHost: t\r\n\r\n",
    "whole URL": f"GET http://other{PATH} HTTP/1.1\r\nHost: t\r\n\r\n",
    "dots": f"GET {PATH}/../counter/x HTTP/1.1\r\nHost: t\r\n\r\n",
    "escaped dots": f"GET {PATH}/%2e%2e/x HTTP/1.1\r\nHost: t\r\n\r\n",
    "escaped slash": f"GET {PATH}%2fx HTTP/1.1\r\nHost: t\r\n\r\n",
    "escaped zero byte": f"GET {PATH}%00 HTTP/1.1\r\nHost: t\r\n\r\n",
    "bad escape": f"GET {PATH}%zz HTTP/1.1\r\nHost: t\r\n\r\n",
    "two slashes": f"GET /{PATH} HTTP/1.1\r\nHost: t\r\n\r\n",
    "high bytes in URL": f"GET {PATH}/\xe9 HTTP/1.1\r\nHost: t\r\n\r\n",
    "backslash": f"GET {PATH}\\x HTTP/1.1\r\nHost: t\r\n\r\n",
    "two hosts": HEAD + "Host: u\r\nContent-Length: 1\r\n\r\n1",
    "no host": f"GET {PATH} HTTP/1.1\r\n\r\n",
    "unknown method": f"FOO {PATH} HTTP/1.1\r\nHost: t\r\n\r\n",
    "GET with body": f"GET {PATH} HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n1",
    "HEAD with body": f"HEAD {PATH} HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n1",
    "chunk extension": CHUNKED + "1;a=b\r\n1\r\n0\r\n\r\n",
    "long chunk extension": CHUNKED + "1;" + "a" * 9000 + "\r\n1\r\n0\r\n\r\n",
    "chunk extension with line feed": CHUNKED + "1;a\n1\r\n0\r\n\r\n",
    "chunk extension with carriage return": CHUNKED + "1;\ra\r\n1\r\n0\r\n\r\n",
    "chunk line ends with line feed": CHUNKED + "1\n1\r\n0\r\n\r\n",
    "chunk ends with line feed": CHUNKED + "1\r\n1\n0\r\n\r\n",
    "chunk longer than its size": CHUNKED + "1\r\n123\r\n0\r\n\r\n",
    "chunk size with blank": CHUNKED + "1 \r\n1\r\n0\r\n\r\n",
    "blank before chunk size": CHUNKED + " 1\r\n1\r\n0\r\n\r\n",
    "chunk size with 0x": CHUNKED + "0x1\r\n1\r\n0\r\n\r\n",
    "chunk size with zeros": CHUNKED + "0" * 30 + "1\r\n1\r\n0\r\n\r\n",
    "chunk size of 2^64 + 1": CHUNKED + "10000000000000001\r\n1\r\n0\r\n\r\n",
    "negative chunk size": CHUNKED + "-1\r\n1\r\n0\r\n\r\n",
    "no chunk size": CHUNKED + "\r\n1\r\n0\r\n\r\n",
    "trailer": CHUNKED + "1\r\n1\r\n0\r\nX: y\r\n\r\n",
    "trailer with length": CHUNKED + "1\r\n1\r\n0\r\nContent-Length: 5\r\n\r\n",
    "trailer with colon": CHUNKED + "1\r\n1\r\n0\r\n:\r\n\r\n",
    "last chunk ends with line feeds": CHUNKED + "1\r\n1\r\n0\n\n",
    "upgrade to h2c": HEAD + "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\n1",
    "connection names length": HEAD + "Connection: content-length\r\nContent-Length: 1\r\n\r\n1",
    "expect nonsense": HEAD + "Expect: x\r\nContent-Length: 1\r\n\r\n1",
}


class Recorder:
    """Stands behind a proxy and keeps each request that the proxy forwards.

    A request ends where RFC 9112 says, and the bytes that come in the moment after that belong to it as well, because
    the proxy sends nothing more before it has an answer. What is not a whole request when the proxy closes is kept as
    a part."""

    def __init__(self):
        self.whole, self.parts = set(), set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, connection):
        request = b""
        with connection:
            while True:
                is_whole = body_of(request) is not None
                connection.settimeout(0.1 if is_whole else None)
                try:
                    more = connection.recv(65536)
                except TimeoutError:
                    self._keep(request, self.whole)
                    request = b""
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                except OSError:
                    more = b""
                if not more:
                    self._keep(request, self.parts)
                    return
                request += more

    @staticmethod
    def _keep(request, where):
        if request and not request.startswith((b"GET /ping", b"GET /v2/health", b"OPTIONS")):
            where.add(request)

    def close(self):
        self._listener.close()


def body_of(request):
    """The body, by the rules of RFC 9112; None if the bytes are not one whole request."""
    head, found, rest = request.partition(b"\r\n\r\n")
    if not found:
        return None
    if re.search(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?=\r\n|$)", head, re.I):
        body = b""
        while part := re.match(rb"([0-9a-fA-F]+)[ \t]*(;[^\r\n]*)?\r\n", rest):
            size = int(part.group(1), 16)
            body, rest = body + rest[part.end():part.end() + size], rest[part.end() + size:]
            if size == 0:
                return body if re.fullmatch(rb"([^\r\n]+\r\n)*\r\n", rest) else None
            rest = rest[2:]
        return None
    lengths = re.findall(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n|$)", head, re.I)
    return rest if len(rest) == (int(lengths[0]) if lengths else 0) else None


def send(s, data, ends=False):
    """Sends the bytes on a connection of their own. Returns the statuses of the answers. `ends`: these are all bytes,
    which the server is told; else the server must close the connection by itself."""
    raw = RawClient(address_of(s.inference), s.transcript, "direct")
    statuses = []
    with contextlib.suppress(OSError):
        raw.socket.sendall(data)
        if ends:
            raw.socket.shutdown(socket.SHUT_WR)
    method = data.split(b" ")[0].decode("latin-1")
    with contextlib.suppress(ConnectionError):
        while answer := raw.answer(method):
            statuses.append(answer.status)
            method = None
    raw.close()
    return statuses


def log_lines(s):
    """(path, bytes of the body) of each request in the access log, which is UTF-8 whatever a client sends."""
    log = s.folder / "logs" / "access_log.log"
    found = re.findall(r'"\S+ (\S+) HTTP/1\.[01]" \d+ .* in=(\d+) ', log.read_text()) if log.exists() else []
    return [(path, int(size)) for path, size in found]


ends = itertools.count()


def read_by(s, data, more=b""):
    """Sends the bytes, and then a request that ends the log. Returns the statuses of the answers to the bytes, and the
    log's lines."""
    before = len(log_lines(s))
    statuses = send(s, data + more, ends=not more)
    end = f"/end/{next(ends)}"
    assert s.client().get(end).status == 404
    expect(lambda: any(path == end for path, _ in log_lines(s)), "the log has the last request", 10)
    return statuses, [line for line in log_lines(s)[before:] if line[0] != end]


REFUSED = (400, 405, 414, 431, 501, 505)
FLAGS = ["--log-dir", "logs", "--loops", "1", "--header-timeout", "1000"]


@pytest.mark.parametrize("name", ["nginx", "haproxy", "envoy"])
def test_what_a_proxy_forwards_is_read_as_the_proxy_reads_it(server, folder, transcript, name):
    program(name)
    place = pathlib.Path(folder) / name
    place.mkdir()
    s = server(counter(), flags=FLAGS)
    recorder = Recorder()
    behind = types.SimpleNamespace(inference=f"http://{recorder.address}", grpc=recorder.address)
    proxy = Proxy(name, place, transcript, [behind, behind], block)
    try:
        proxy.expect_up()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda text: sent_through(proxy, (text + NEXT).encode("latin-1")), SHAPES.values()))
    finally:
        proxy.stop()
        recorder.close()
    counts = {"same": 0, "refused": 0}
    wrong = [found for request in sorted(recorder.whole) if (found := difference(s, request, counts))]
    print(f"{name} forwarded {len(recorder.whole)} different requests of {len(SHAPES)} shapes, of which the server "
          f"read {counts['same']} alike and refused {counts['refused']}; {len(recorder.parts)} were not whole")
    assert counts["same"] > 10, "the proxy forwards ordinary requests"
    for request in sorted(recorder.parts):
        statuses, logged = read_by(s, request)
        if len(statuses) > 1 or len(logged) > 1:
            wrong.append((request[:300], statuses, logged))
    assert not wrong, wrong


def difference(s, request, counts):
    """None if the server reads the bytes as this one request, or refuses them and what is behind them."""
    statuses, logged = read_by(s, request, NEXT.encode())
    if not statuses or (len(statuses) == 1 and statuses[0] in REFUSED):
        counts["refused"] += 1
        return None
    target = request.split(b" ")[1].partition(b"?")[0].replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    body = body_of(request)
    expected = [(target, -1 if body is None else len(body)), (PATH + "/hidden", 0)]
    closes = re.search(rb"^[^\r]* HTTP/1\.0\r\n|\r\nconnection:[ \t]*close[ \t]*\r\n", request.split(b"\r\n\r\n")[0] + b"\r\n", re.I)
    if logged == expected[:len(statuses)] and len(statuses) == (1 if closes else 2):
        counts["same"] += 1
        return None
    return request[:300], statuses, logged, body


def sent_through(proxy, data):
    """Sends the bytes to the proxy and waits until it has answered both requests or closed."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", proxy.http), timeout=5) as connection:
        connection.sendall(data)
        connection.settimeout(min(limit(2), 8))
        while connection.recv(65536):
            pass


def test_no_shape_hides_a_second_request(server):
    """Directly: each shape is one request, after which the next one is read, or the connection ends."""
    s = server(counter(), flags=FLAGS)
    wrong = []
    for shape, text in SHAPES.items():
        statuses, logged = read_by(s, text.encode("latin-1"), NEXT.encode())
        if statuses and statuses[-1] in (400, 501, 505):
            continue
        paths = [path for path, _ in logged]
        if len(statuses) != len(paths) or len(paths) > 2 or paths[1:] not in ([], [PATH + "/hidden"]):
            wrong.append((shape, statuses, paths))
    assert not wrong, wrong
