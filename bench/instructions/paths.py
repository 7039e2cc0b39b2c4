"""One client for each way in which a step reaches a handler. Each sends one step at a time and checks every answer, so
that all runs do the same work: each step is a batch of its own, in the server and in the worker."""

import base64
import json
import os
import socket
import struct
import threading

VALUES = "0.5,1.5,-2.25,3.0,0.125,5.5,6.5,-7.75,8.5,9.25,10.5,11.0,-12.5,13.5,14.75,15.5"
V2_JSON = ('{"inputs":[{"name":"FP32","datatype":"FP32","shape":[16],"data":[' + VALUES + "]}]}").encode()
V2_HEAD = (b'{"inputs":[{"name":"FP32","datatype":"FP32","shape":[16],"parameters":{"binary_data_size":64}}],'
           b'"outputs":[{"name":"FP32","parameters":{"binary_data":true}}]}')
V2_TENSOR = b"?" * 64
TIMEOUT_S = 300


class Wrong(Exception):
    """An answer was wrong."""


class Wire:
    """A TCP connection that reads whole pieces."""

    def __init__(self, server):
        self.socket = socket.create_connection(server.address, TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._got = b""

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        data = self.socket.recv(65536)
        if not data:
            raise Wrong(f"the server closed the connection after {self._got!r}")
        self._got += data

    def until(self, end):
        while end not in self._got:
            self._more()
        piece, _, self._got = self._got.partition(end)
        return piece

    def exactly(self, size):
        while len(self._got) < size:
            self._more()
        piece, self._got = self._got[:size], self._got[size:]
        return piece

    def close(self):
        self.socket.close()


class Http:
    """`request(i)` returns the headers and the body of step i (from 1), and `right(i, body)` looks at the answer."""

    def __init__(self, server, path, request, right):
        self.wire, self.path, self.request, self.right = Wire(server), path, request, right
        self.host = "%s:%d" % server.address

    def step(self, i):
        headers, body = self.request(i)
        self.wire.send(f"POST {self.path} HTTP/1.1\r\nHost: {self.host}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
                       .encode() + body)
        head = self.wire.until(b"\r\n\r\n").decode("latin-1")
        length = next(line for line in head.splitlines() if line.lower().startswith("content-length:"))
        answer = self.wire.exactly(int(length.partition(":")[2]))
        if not head.startswith("HTTP/1.1 200") or not self.right(i, answer):
            raise Wrong(f"{self.path}, step {i}: {head} {answer!r}")

    def close(self):
        self.wire.close()


class WebSocket:
    """Steps of a counter over continuo.v1.plain."""

    def __init__(self, server):
        self.wire = Wire(server)
        key = base64.b64encode(os.urandom(16)).decode()
        self.wire.send(f"GET /v1/streams/counter/websocket HTTP/1.1\r\nHost: {server.address[0]}\r\n"
                       "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                       f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: continuo.v1.plain\r\n\r\n".encode())
        head = self.wire.until(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise Wrong(f"WebSocket: {head!r}")

    def step(self, i):
        mask = b"\x11\x22\x33\x44"
        self.wire.send(b"\x81\x81" + mask + bytes([ord("1") ^ mask[0]]))
        kind, length = self.wire.exactly(2)
        answer = self.wire.exactly(length)
        if kind != 0x81 or answer != str(i).encode():
            raise Wrong(f"WebSocket, step {i}: {kind:#x} {answer!r}")

    def close(self):
        self.wire.close()


def field(number, data):
    """Returns a field of a protobuf message whose value is bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


def grpc_step(sequence):
    """Returns a PredictionsRequest (proto/inference.proto) that adds one."""
    return field(1, b"counter") + field(3, field(1, b"data") + field(2, b"1")) + field(4, sequence)


class Grpc:
    SERVICE = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"

    def __init__(self, server, streams):
        import grpc  # the other paths need no package
        self.channel = grpc.insecure_channel(server.grpc)
        self.streams = streams
        if streams:
            self.waiting, self.more = [], threading.Condition()
            self.answers = self.channel.stream_stream(self.SERVICE + "StreamPredictions2")(iter(self._next, None))
        else:
            self.call = self.channel.unary_unary(self.SERVICE + "Predictions")

    def _next(self):
        with self.more:
            self.more.wait_for(lambda: self.waiting)
            return self.waiting.pop(0)

    def step(self, i):
        if self.streams:
            with self.more:
                self.waiting.append(grpc_step(b"stream"))
                self.more.notify()
            answer = next(self.answers)
        else:
            answer = self.call(grpc_step(b"unary"), timeout=TIMEOUT_S)
        if field(1, str(i).encode()) not in answer:
            raise Wrong(f"gRPC, step {i}: {answer!r}")

    def close(self):
        if self.streams:
            with self.more:
                self.waiting.append(None)
                self.more.notify()
        self.channel.close()


def counter(sequence, keyed=False):
    def request(i):
        key = f"Idempotency-Key: step-{i:06}\r\n" if keyed else ""
        return f"ts-request-sequence-id: {sequence}\r\n{key}", b"1"
    return lambda server: Http(server, "/predictions/counter", request, lambda i, body: body == str(i).encode())


def speech(server):
    silence = struct.pack("<80h", *[0] * 80)
    return Http(server, "/predictions/speech", lambda i: ("ts-request-sequence-id: c\r\n", silence),
                lambda i, body: json.loads(body)["speech"] is False)


def infer(server, headers, body, end):
    return Http(server, "/v2/models/identity/infer", lambda i: (headers, body), lambda i, answer: answer.endswith(end))


# The model whose worker takes part, and the client.
PATHS = {
    "http-lua": ("counter", counter("lua")),
    "http-lua-keyed": ("counter", counter("keyed", keyed=True)),
    "http-c": ("speech", speech),
    "v2-json": ("identity", lambda server: infer(server, "", V2_JSON, VALUES.encode() + b"]}]}")),
    "v2-binary": ("identity", lambda server: infer(
        server, f"Inference-Header-Content-Length: {len(V2_HEAD)}\r\n", V2_HEAD + V2_TENSOR, V2_TENSOR)),
    "grpc-unary": ("counter", lambda server: Grpc(server, streams=False)),
    "grpc-stream": ("counter", lambda server: Grpc(server, streams=True)),
    "websocket": ("counter", WebSocket),
}
