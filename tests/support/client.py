"""Clients: an ordinary HTTP client, one that sends any bytes, and curl."""

import json
import socket
import subprocess
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection

from transcript import shorten
from waiting import limit

SEQUENCE = "ts_request_sequence_id"


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # case-insensitive
        self.body = body

    @property
    def text(self):
        return self.body.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def sequence(self):
        return self.headers.get(SEQUENCE)

    @property
    def error(self):
        """The error word of a refusal: "queue_full"."""
        return self.headers.get("Continuo-Error")

    @property
    def message(self):
        return self.json["message"]

    def __repr__(self):
        return f"<{self.status} {shorten(self.body)}>"


class Client:
    """A keep-alive connection that is opened with the first request, and again when the server has closed it."""

    def __init__(self, address, transcript, name, timeout=30, tls=None):
        self.host, self.port = address
        self._tls = tls  # an ssl.SSLContext
        self._transcript = transcript
        self.name = name
        self._timeout = limit(timeout)
        self._connection = None

    def request(self, method, path, body=None, headers=None):
        self._transcript.log(self.name, f"> {method} {path} {headers or ''} {shorten(body or '')}")
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.request(method, path, body=body, headers=headers or {})
            raw = self._connection.getresponse()
            answer = Answer(raw.status, raw.headers, raw.read())
            if raw.will_close:
                self.close()
        except Exception as e:
            self._transcript.log(self.name, f"! {type(e).__name__}: {e}")
            self.close()
            raise
        self._transcript.log(self.name, f"< {answer.status} {answer.sequence or ''} {shorten(answer.body)}")
        return answer

    def _connect(self):
        if self._tls:
            return HTTPSConnection(self.host, self.port, timeout=self._timeout, context=self._tls)
        return HTTPConnection(self.host, self.port, timeout=self._timeout)

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body=b"", **more):
        return self.request("POST", path, body=body, **more)

    def put(self, path, body=None, **more):
        return self.request("PUT", path, body=body, **more)

    def delete(self, path, **more):
        return self.request("DELETE", path, **more)

    def step(self, model, sequence, body, headers=None):
        """Makes one step of a sequence. Without an id the server makes one."""
        headers = dict(headers or {})
        if sequence is not None:
            headers[SEQUENCE] = sequence
        return self.post(f"/predictions/{model}", str(body) if isinstance(body, int) else body, headers=headers)

    def close(self):
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Stream:
    """A request on a connection of its own, whose answer is read piece by piece."""

    def __init__(self, address, transcript, path, body, headers=None, timeout=30):
        self._transcript = transcript
        self.name = f"stream {path}"
        self._connection = HTTPConnection(*address, timeout=limit(timeout))
        transcript.log(self.name, f"> {headers or ''} {shorten(str(body))}")
        self._connection.request("POST", path, body=str(body), headers=headers or {})
        self._response = None

    @property
    def head(self):
        """Waits for the status line and the headers."""
        if self._response is None:
            self._response = self._connection.getresponse()
            self._transcript.log(self.name, f"< {self._response.status}")
        return self._response

    def piece(self):
        """Returns what has arrived of the next chunk, or b"" at the end."""
        got = self.head.read1(1 << 20)
        self._transcript.log(self.name, f"< {shorten(got)}")
        return got

    def rest(self):
        """Reads the rest. Raises http.client.IncompleteRead if the answer broke off."""
        try:
            got = self.head.read()
        except Exception as e:
            self._transcript.log(self.name, f"! {type(e).__name__}: {e}")
            raise
        self._transcript.log(self.name, f"< {shorten(got)}")
        return got

    def close(self):
        # shutdown() comes first, because the response still holds the socket.
        self._transcript.log(self.name, "closes")
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class KeptFile:
    """What HTTPResponse reads from: one buffer for all answers of a connection, which the response must not close."""

    def __init__(self, file):
        self._file = file

    def makefile(self, *_):
        return self

    def close(self):
        pass

    def really_close(self):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


class RawClient:
    """A TCP connection for bytes that no ordinary client sends."""

    def __init__(self, address, transcript, name, timeout=20, receive_buffer=None):
        self._transcript = transcript
        self.name = name
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(limit(timeout))
        self.socket.connect(address)
        self._answers = KeptFile(self.socket.makefile("rb"))

    def send(self, data):
        data = data.encode() if isinstance(data, str) else data
        self._transcript.log(self.name, f"> {shorten(data)}")
        self.socket.sendall(data)

    def answer(self, method=None):
        """Reads one answer. Returns None if the server has closed the connection without one. An answer to the method
        HEAD has no body."""
        response = HTTPResponse(self._answers, method=method)
        try:
            response.begin()
        except (ConnectionError, OSError) as e:
            if isinstance(e, TimeoutError):
                raise
            self._transcript.log(self.name, f"< closed ({type(e).__name__})")
            return None
        answer = Answer(response.status, response.headers, response.read())
        self._transcript.log(self.name, f"< {answer.status} {shorten(answer.body)}")
        return answer

    def is_closed_by_server(self):
        """Waits for the end of the connection and skips what still comes."""
        try:
            while self.socket.recv(65536):
                pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def reset(self):
        """Ends the connection with RST, like a killed client."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def close(self):
        self._transcript.log(self.name, "closes")
        self._answers.really_close()
        self.socket.close()


def curl(transcript, *args, timeout=30):
    """Runs the real curl. Returns (headers as text, body as text)."""
    command = ["curl", "-sS", "-i", *args]
    transcript.log("curl", " ".join(command))
    run = subprocess.run(command, capture_output=True, timeout=limit(timeout), check=False)
    assert run.returncode == 0, f"{' '.join(command)}: {run.stderr.decode()}"
    transcript.log("curl", shorten(run.stdout, 1000))
    output = run.stdout.decode()
    while output.startswith("HTTP/1.1 100"):
        output = output.partition("\r\n\r\n")[2]
    headers, _, body = output.partition("\r\n\r\n")
    return headers, body
