"""A WebSocket client for tests: the library websockets, with the messages of docs/streams.md."""

import base64
import contextlib
import json
import ssl
import struct
import urllib.parse

import websockets.exceptions
import websockets.sync.client

from waiting import limit

HEAD = struct.Struct("<BBHIQ")
TENSOR = struct.Struct("<BBHIQ")
DATATYPES = {"BOOL": 1, "UINT8": 2, "UINT16": 3, "UINT32": 4, "UINT64": 5, "INT8": 6, "INT16": 7, "INT32": 8,
             "INT64": 9, "FP16": 10, "FP32": 11, "FP64": 12, "BYTES": 13, "BF16": 14}
# A model whose step adds the tensor x to the sum of its sequence.
SUMS_LUA = """
local M = { api = 1 }
function M.init() return { sum = 0 } end
function M.step(state, req)
    state.sum = state.sum + req.inputs.x.values[1]
    return { outputs = { sum = { datatype = "FP32", data = { state.sum } } } }
end
return M
"""
START, END, FINAL, REPLAYED, BYTES = 1, 2, 4, 8, 16


class Closed(Exception):
    """The server has closed the stream."""

    def __init__(self, code, reason):
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class Stream:
    """One stream. `form`: plain, json or binary."""

    def __init__(self, server, model, sequence, form="json", version=None, query=None, headers=None, protocols=None,
                 timeout=20, path=None, base=None, tls=None, hello=True, **more):
        path = path or "/v1/streams/" + "/".join(urllib.parse.quote(part, safe="")
                                                 for part in (model, version, sequence) if part)
        if query:
            path += "?" + urllib.parse.urlencode(query)
        base = base or server.inference
        self.form = form
        self.timeout = limit(timeout)
        if protocols is None:
            protocols = None if form == "none" else [f"continuo.v1.{form}"]
        if base.startswith("https") and tls is None:
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self._stack = contextlib.ExitStack()
        self.ws = self._stack.enter_context(websockets.sync.client.connect(
            base.replace("http", "ws", 1) + path, subprotocols=protocols, additional_headers=headers, ssl=tls,
            open_timeout=self.timeout, close_timeout=2, max_size=None, proxy=None,
            **{"compression": None, "ping_interval": None, **more}))
        self.hello = self.get() if hello and form in ("json", "binary") else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def send(self, message):
        try:
            self.ws.send(message)
        except websockets.exceptions.ConnectionClosed as closed:
            raise self._closed(closed) from closed

    def put(self, **members):
        self.send(json.dumps(members))

    def get(self, timeout=None):
        """Returns the next message: an object, or the bytes of a binary one."""
        try:
            message = self.ws.recv(timeout=limit(timeout) if timeout else self.timeout)
        except websockets.exceptions.ConnectionClosed as closed:
            raise self._closed(closed) from closed
        return json.loads(message) if isinstance(message, str) and self.form in ("json", "binary") else message

    @staticmethod
    def _closed(closed):
        return Closed(closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else Closed(1006, "")

    def step(self, data, **members):
        """Sends a step and returns its answer, or its error."""
        self.put(type="step", data=data, **members)
        return self.get()

    def closing(self):
        """Reads until the server closes. Returns the messages before and the close."""
        messages = []
        while True:
            try:
                messages.append(self.get())
            except Closed as closed:
                return messages, closed

    def cut(self):
        """Ends the connection without a close frame."""
        self.ws.socket.close()


def body_of(answer):
    if "data" in answer:
        return answer["data"]
    return answer["text"] if "text" in answer else base64.b64decode(answer["base64"])


def _padded(content):
    return content + bytes(-len(content) % 8)


def binary_step(body=b"", tensors=(), step=0, start=False, end=False):
    """A step as a binary message. A tensor is (name, datatype, shape, bytes)."""
    flags = START * start | END * end | (0 if tensors else BYTES)
    message = HEAD.pack(1, flags, len(tensors), 0, step)
    for name, datatype, shape, content in tensors:
        message += TENSOR.pack(DATATYPES[datatype], len(shape), len(name), 0, len(content))
        message += struct.pack(f"<{len(shape)}Q", *shape) + _padded(name.encode()) + _padded(content)
    return message if tensors else message + body


def read_binary(message):
    """Returns (flags, status, step, body) or (flags, status, step, {name: (datatype, shape, bytes)})."""
    kind, flags, n, status, step = HEAD.unpack_from(message)
    assert kind == 2
    if flags & BYTES:
        return flags, status, step, message[HEAD.size:]
    words, tensors, at = {number: word for word, number in DATATYPES.items()}, {}, HEAD.size
    for _ in range(n):
        datatype, rank, name_len, _, data_len = TENSOR.unpack_from(message, at)
        at += TENSOR.size
        shape = struct.unpack_from(f"<{rank}Q", message, at)
        at += 8 * rank
        name = message[at:at + name_len].decode()
        at += len(_padded(message[at:at + name_len]))
        assert at % 8 == 0
        tensors[name] = (words[datatype], list(shape), message[at:at + data_len])
        at += data_len + -data_len % 8
    assert at == len(message)
    return flags, status, step, tensors
