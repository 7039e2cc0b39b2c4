"""The client for ordinary, blocking programs."""

from __future__ import annotations

import collections
import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
import urllib.parse
from types import TracebackType
from typing import Any, Deque, Dict, Iterable, List, Optional, Type, Union

from . import _steps, _streams
from ._steps import Answer, Broken, Pause, Reply, Send, Site, TimedOut
from .errors import from_answer
from .tensors import is_tensor

LARGE_MESSAGE = 16 << 10  # smaller ones find room in the socket

TLS = Union[ssl.SSLContext, str, None]


def context_of(base: str, tls: TLS) -> Optional[ssl.SSLContext]:
    """Returns the TLS context of an https address; a str is the file of a CA's certificate."""
    if not base.startswith("https"):
        return None
    return tls if isinstance(tls, ssl.SSLContext) else ssl.create_default_context(cafile=tls)


class _Wire:
    """HTTP connections that stay open between requests. Threads may share it."""

    def __init__(self, base: str, tls: Optional[ssl.SSLContext]) -> None:
        parts = urllib.parse.urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address {base!r} is not one like http://127.0.0.1:8080")
        self._host, self._port, self._tls = parts.hostname, parts.port, tls
        self._prefix = parts.path.rstrip("/")
        self._idle: Deque[http.client.HTTPConnection] = collections.deque()
        self._process = os.getpid()

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._process != os.getpid():  # a fork: the parent still uses these connections
            self._process, self._idle = os.getpid(), collections.deque()
        try:
            connection = self._idle.pop()
        except IndexError:
            if self._tls is None:
                return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
            return http.client.HTTPSConnection(self._host, self._port, timeout=seconds,
                                               context=self._tls)
        connection.timeout = seconds  # the server may have closed it: then it is opened again
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        return connection

    def send(self, send: Send) -> Reply:
        connection = self._connection(send.seconds)
        request = send.request
        try:
            try:
                connection.request(request.method, self._prefix + request.path,
                                   request.body or None, request.headers)
            except (BrokenPipeError, ConnectionResetError):
                if connection.sock is None:  # otherwise the answer says why the body was refused
                    raise
            answer = connection.getresponse()
            reply = Reply(answer.status, {name.lower(): value for name, value
                                          in answer.getheaders()}, answer.read())
        except (TimeoutError, socket.timeout):  # two classes before Python 3.10
            connection.close()
            raise TimedOut from None
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise Broken(str(error), final=True) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.close()  # the server has closed the other idle ones, too, if it was restarted
            raise Broken(f"{type(error).__name__}: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return reply

    def close(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while True:
                self._idle.pop().close()


def _drive(call: Any, act: Any) -> Any:
    """Runs a generator of _steps or _streams: does what it yields, and gives it the results."""
    try:
        todo = next(call)
        while True:
            if isinstance(todo, Pause):
                time.sleep(todo.seconds)
                todo = call.send(None)
                continue
            try:
                result = act(todo)
            except Exception as error:
                todo = call.throw(error)
            else:
                todo = call.send(result)
    except StopIteration as stop:
        return stop.value


class Client:
    """A client of one server, for any number of threads.

    url: the inference address; token: the inference key of a server with --token-auth, or a key of
    a server with --keys; timeout: seconds for one step with all its repetitions; tls: an
    ssl.SSLContext, or the file of the certificate that the server's certificate is signed with."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: float = 30.0,
                 tls: TLS = None) -> None:
        url = urllib.parse.urlsplit(url).geturl()  # the scheme in lower case
        self._tls = context_of(url, tls)
        self._site = Site(url.rstrip("/"), token, timeout)
        self._wire = _Wire(url, self._tls)
        self._names: Dict[Any, str] = {}

    def predict(self, model: str, value: Any, version: Optional[str] = None,
                timeout: Optional[float] = None, content_type: Optional[str] = None) -> Answer:
        """Sends one request to a model without sequences. It is repeated like a step."""
        return _drive(_steps.predict(self._site, model, version, value,
                                     timeout or self._site.timeout, self._names, content_type),
                      self._wire.send)

    def sequence(self, model: str, id: Optional[str] = None, version: Optional[str] = None,
                 numbered: bool = True) -> "Sequence":
        """Returns a sequence whose steps go over HTTP.

        Without an id it is a new one. With the id of an existing sequence its steps go on.
        numbered=False: several clients step this sequence in turn, so steps have keys only."""
        steps = _steps.SequenceSteps(self._site, model, version, id, self._names, numbered)
        return Sequence(self, steps)

    def stream(self, model: str, id: Optional[str] = None, version: Optional[str] = None,
               tensors: bool = False) -> "Stream":
        """Returns a sequence whose steps go over a WebSocket.

        tensors=True: its steps are tensors, or dicts of them, as of Sequence.step."""
        return Stream(self, _streams.StreamSteps(self._site, model, version, id, tensors))

    def close(self) -> None:
        """Closes the idle connections."""
        self._wire.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Sequence:
    """One sequence over HTTP. Use it from one thread at a time.

    As a context manager it only groups the steps: the sequence stays on the server, as `id`, until
    a step with end=True or the model's clocks end it."""

    def __init__(self, client: Client, steps: _steps.SequenceSteps) -> None:
        self._client, self._steps = client, steps

    @property
    def id(self) -> str:
        """The sequence's id."""
        return self._steps.id

    @property
    def count(self) -> Optional[int]:
        """The number of committed steps; None before the first answer of an existing sequence."""
        return self._steps.count

    def step(self, value: Any, start: bool = False, end: bool = False,
             timeout: Optional[float] = None, content_type: Optional[str] = None) -> Answer:
        """Does one step. start=True begins the sequence anew; end=True ends it with this step.

        value: bytes, a str, a NumPy array or a tensor of PyTorch, a dict of them, or anything that
        JSON can express. The step is repeated until `timeout`, and is done once."""
        timeout = timeout or self._client._site.timeout
        return _drive(self._steps.step(value, start, end, timeout, content_type),
                      self._client._wire.send)

    def retry(self, timeout: Optional[float] = None) -> Answer:
        """Sends the last step again, after an error that left open whether it was done."""
        return _drive(self._steps.retry(timeout or self._client._site.timeout),
                      self._client._wire.send)

    def __enter__(self) -> "Sequence":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Stream:
    """One sequence over a WebSocket, which is opened again and resumed when it breaks."""

    def __init__(self, client: Client, steps: _streams.StreamSteps) -> None:
        self._client, self._steps = client, steps
        self._socket: Any = None
        self._opened = contextlib.ExitStack()  # has the socket, which websockets wants to close

    @property
    def id(self) -> str:
        """The sequence's id."""
        return self._steps.id

    def step(self, value: Any, start: bool = False, end: bool = False,
             timeout: Optional[float] = None, content_type: Optional[str] = None) -> Answer:
        """Does one step like Sequence.step. Tensors need stream(..., tensors=True)."""
        return self._do([_streams.sent(value, start, end, content_type)], timeout)[0]

    def steps(self, values: Iterable[Any], timeout: Optional[float] = None) -> List[Answer]:
        """Does many steps, and sends as many before their answers as the server allows."""
        return self._do([_streams.sent(value) for value in values], timeout)

    def retry(self, timeout: Optional[float] = None) -> List[Answer]:
        """Goes on with steps after an error that left open whether they were done."""
        return _drive(self._steps.retry(timeout or self._client._site.timeout), self._act)

    def _do(self, values: List[_streams.Sent], timeout: Optional[float]) -> List[Answer]:
        if self._steps.unanswered:
            raise RuntimeError("nobody knows whether the last step was done: call retry() first")
        timeout = timeout or self._client._site.timeout
        for each in values:
            if is_tensor(each.value):
                each.value = _drive(self._steps.named(each.value, timeout, self._client._names),
                                    self._client._wire.send)
        return _drive(self._steps.steps(values, timeout), self._act)

    def _act(self, todo: Any) -> Any:
        import websockets.exceptions
        try:
            if isinstance(todo, _streams.Connect):
                return self._connect(todo)
            if isinstance(todo, _streams.Put):
                return self._put(todo)
            return self._socket.recv(timeout=todo.seconds)
        except websockets.exceptions.InvalidStatus as refused:
            raise refusal(refused) from None
        except ssl.SSLCertVerificationError as error:
            raise Broken(str(error), final=True) from error
        except TimeoutError:
            self.close()
            raise TimedOut from None
        except websockets.exceptions.ConnectionClosed as closed:
            self.close()
            raise broken_by(closed) from None
        except (OSError, EOFError, websockets.exceptions.WebSocketException) as error:
            self.close()
            raise Broken(f"{type(error).__name__}: {error}") from error

    def _put(self, put: _streams.Put) -> None:
        """Sends a message. websockets would wait without an end for a server that does not read."""
        if len(put.message) < LARGE_MESSAGE:
            return self._socket.send(put.message)
        cutting = threading.Event()

        def cut(wire: socket.socket) -> None:
            cutting.set()
            with contextlib.suppress(OSError):
                socket.socket.shutdown(wire, socket.SHUT_RDWR)

        timer = threading.Timer(put.seconds, cut, (self._socket.socket,))
        timer.start()
        try:
            self._socket.send(put.message)
        except Exception as error:
            raise TimeoutError if cutting.is_set() else error
        finally:
            timer.cancel()

    def _connect(self, todo: _streams.Connect) -> None:
        import websockets.sync.client
        self.close()
        self._opened = contextlib.ExitStack()
        self._socket = self._opened.enter_context(websockets.sync.client.connect(
            todo.url, subprotocols=[todo.protocol], additional_headers=todo.headers,
            ssl=self._client._tls, open_timeout=todo.seconds, close_timeout=1, max_size=None,
            compression=None, proxy=None))

    def close(self) -> None:
        """Closes the connection. The sequence stays on the server."""
        socket, self._socket = self._socket, None
        self._steps.connected = False
        if socket is not None:
            self._opened.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def broken_by(closed: Any) -> Broken:
    """Turns websockets' ConnectionClosed into the code and the reason of the server's close."""
    return Broken(closed.rcvd.reason, closed.rcvd.code) if closed.rcvd else Broken("", 1006)


def refusal(refused: Any) -> Exception:
    """Turns a handshake that the server refused into its error."""
    response = refused.response
    body = bytes(response.body or b"")
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    return from_answer(response.status_code, headers, _steps._parsed(body),
                       body.decode("utf-8", "replace"))
