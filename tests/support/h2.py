"""HTTP/2 frames by hand, for what no gRPC client sends."""

import contextlib
import socket
import ssl
import struct

from rpc import request
from waiting import limit

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
PREDICTIONS = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(*args, **more):
    body = request(*args, **more).SerializeToString()
    return b"\0" + struct.pack(">I", len(body)) + body


def tls_context():
    """For H2(tls=...): any certificate will do."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class H2:
    """A connection to a gRPC port. Its first call has its headers as text, later ones refer to them."""

    def __init__(self, target, window=65535, path=PREDICTIONS, metadata=(), source=None, preface=True,
                 tls=None):
        host, port = target.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=limit(10), source_address=source)
        if tls:
            self.socket = tls.wrap_socket(self.socket)
        self.headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                        ("content-type", "application/grpc"), ("te", "trailers"), *metadata]
        self.stream = -1
        if preface:
            self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))

    def head(self):
        """The headers of the next call, and its number."""
        self.stream += 2
        n = len(self.headers)
        if self.stream > 1:
            block = bytes(0x80 | 62 + n - 1 - i for i in range(n))
        else:
            block = b"".join(b"\x40" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
                             for name, value in self.headers)
        return frame(HEADERS, 4, self.stream, block), self.stream

    def call(self, body):
        """The bytes of a whole call."""
        head, stream = self.head()
        return head + frame(DATA, 1, stream, body)

    def cancelled(self, body):
        return self.call(body) + frame(RST_STREAM, 0, self.stream, struct.pack(">I", 8))

    def is_cut(self, timeout=0.01):
        """Has the server closed the connection? Reads what has come."""
        self.socket.settimeout(timeout)
        try:
            while self.socket.recv(1 << 16):
                pass
            return True
        except TimeoutError:
            return False
        except OSError:
            return True

    def kinds(self, timeout=5):
        """The kinds of frames that come until a stream ends, or the connection does."""
        self.socket.settimeout(timeout)
        kinds, data = [], b""
        with contextlib.suppress(OSError):
            while more := self.socket.recv(1 << 16):
                data += more
                while len(data) >= 9 and len(data) >= 9 + (size := int.from_bytes(data[:3], "big")):
                    kinds.append(data[3])
                    if data[3] in (HEADERS, DATA) and data[4] & 1:
                        return kinds
                    data = data[9 + size:]
        return kinds

    def close(self):
        self.socket.close()
