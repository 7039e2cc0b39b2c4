"""The client for asyncio. It has the methods of client.py, which are awaited here."""

from __future__ import annotations

import asyncio
import collections
import ssl
import urllib.parse
from typing import Any, Deque, Dict, Iterable, List, Optional, Tuple

from . import _steps, _streams
from ._steps import Answer, Broken, Pause, Reply, Send, Site, TimedOut
from .client import TLS, broken_by, context_of, refusal
from .tensors import is_tensor

Ends = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Wire:
    """HTTP/1.1 over asyncio's streams, with connections that stay open between requests."""

    def __init__(self, base: str, tls: Optional[ssl.SSLContext]) -> None:
        parts = urllib.parse.urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address {base!r} is not one like http://127.0.0.1:8080")
        self._host, self._tls = parts.hostname, tls
        self._port = parts.port or (443 if tls else 80)
        self._name, self._prefix = parts.netloc.rpartition("@")[2], parts.path.rstrip("/")
        self._idle: Deque[Ends] = collections.deque()
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    async def send(self, send: Send) -> Reply:
        ends: List[Ends] = []
        try:
            reply, reusable = await asyncio.wait_for(self._exchange(send, ends), send.seconds)
        except asyncio.TimeoutError:
            self._cut(ends)
            raise TimedOut from None
        except ssl.SSLCertVerificationError as error:
            self._cut(ends)
            raise Broken(str(error), final=True) from error
        except (OSError, EOFError, ValueError) as error:
            self._cut(ends)
            self.close()  # the server has closed the other idle ones, too, if it was restarted
            raise Broken(f"{type(error).__name__}: {error}") from error
        except BaseException:
            self._cut(ends)
            raise
        if reusable:
            self._idle.extend(ends)
        else:
            self._cut(ends)
        return reply

    @staticmethod
    def _cut(ends: List[Ends]) -> None:
        for _, writer in ends:
            writer.close()

    async def _exchange(self, send: Send, ends: List[Ends]) -> Tuple[Reply, bool]:
        if self._loop is not asyncio.get_running_loop():  # the other has ended, or is a fork's
            self._loop, self._idle = asyncio.get_running_loop(), collections.deque()
        if self._idle:
            ends.append(self._idle.pop())
        else:
            ends.append(await asyncio.open_connection(self._host, self._port, ssl=self._tls))
        reader, writer = ends[0]
        request = send.request
        headers = {"Host": self._name, "Content-Length": str(len(request.body)), **request.headers}
        lines = [f"{request.method} {self._prefix}{request.path} HTTP/1.1"]
        for name, value in headers.items():
            if "\r" in value or "\n" in value:
                raise RuntimeError(f"the header {name} has a line break")
            lines.append(f"{name}: {value}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + request.body)
        try:
            await writer.drain()
        except OSError:  # the server may have refused the body: its answer says why
            if reader.at_eof():
                raise
        return await self._reply(reader)

    async def _reply(self, reader: asyncio.StreamReader) -> Tuple[Reply, bool]:
        status = 100
        while status < 200:
            status, headers = await self._head(reader)
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = await self._chunks(reader)
        elif "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = b"" if status in (204, 304) else await reader.read()
            return Reply(status, headers, body), False
        return Reply(status, headers, body), headers.get("connection", "").lower() != "close"

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(first.split(" ")[1]), headers

    @staticmethod
    async def _chunks(reader: asyncio.StreamReader) -> bytes:
        body = bytearray()
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if size:
                body += await reader.readexactly(size)
                await reader.readexactly(2)
                continue
            while (await reader.readuntil(b"\r\n")) != b"\r\n":
                pass  # trailers
            return bytes(body)

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


async def _drive(call: Any, act: Any) -> Any:
    """Runs a generator of _steps or _streams, as client._drive does."""
    try:
        todo = next(call)
        while True:
            if isinstance(todo, Pause):
                await asyncio.sleep(todo.seconds)
                todo = call.send(None)
                continue
            try:
                result = await act(todo)
            except Exception as error:
                todo = call.throw(error)
            else:
                todo = call.send(result)
    except StopIteration as stop:
        return stop.value


class AsyncClient:
    """A client of one server for asyncio. See Client."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: float = 30.0,
                 tls: TLS = None) -> None:
        url = urllib.parse.urlsplit(url).geturl()  # the scheme in lower case
        self._tls = context_of(url, tls)
        self._site = Site(url.rstrip("/"), token, timeout)
        self._wire = _Wire(url, self._tls)
        self._names: Dict[Any, str] = {}

    async def predict(self, model: str, value: Any, version: Optional[str] = None,
                      timeout: Optional[float] = None,
                      content_type: Optional[str] = None) -> Answer:
        """Sends one request to a model without sequences. It is repeated like a step."""
        return await _drive(_steps.predict(self._site, model, version, value,
                                           timeout or self._site.timeout, self._names,
                                           content_type), self._wire.send)

    def sequence(self, model: str, id: Optional[str] = None, version: Optional[str] = None,
                 numbered: bool = True) -> "AsyncSequence":
        """Returns a sequence whose steps go over HTTP. See Client.sequence."""
        steps = _steps.SequenceSteps(self._site, model, version, id, self._names, numbered)
        return AsyncSequence(self, steps)

    def stream(self, model: str, id: Optional[str] = None, version: Optional[str] = None,
               tensors: bool = False) -> "AsyncStream":
        """Returns a sequence whose steps go over a WebSocket. See Client.stream."""
        return AsyncStream(self, _streams.StreamSteps(self._site, model, version, id, tensors))

    async def close(self) -> None:
        """Closes the idle connections."""
        self._wire.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class AsyncSequence:
    """One sequence over HTTP. See Sequence."""

    def __init__(self, client: AsyncClient, steps: _steps.SequenceSteps) -> None:
        self._client, self._steps = client, steps

    @property
    def id(self) -> str:
        """The sequence's id."""
        return self._steps.id

    @property
    def count(self) -> Optional[int]:
        """The number of committed steps; None before the first answer of an existing sequence."""
        return self._steps.count

    async def step(self, value: Any, start: bool = False, end: bool = False,
                   timeout: Optional[float] = None,
                   content_type: Optional[str] = None) -> Answer:
        """Does one step. See Sequence.step."""
        timeout = timeout or self._client._site.timeout
        return await _drive(self._steps.step(value, start, end, timeout, content_type),
                            self._client._wire.send)

    async def retry(self, timeout: Optional[float] = None) -> Answer:
        """Sends the last step again, after an error that left open whether it was done."""
        return await _drive(self._steps.retry(timeout or self._client._site.timeout),
                            self._client._wire.send)

    async def __aenter__(self) -> "AsyncSequence":
        return self

    async def __aexit__(self, *_: Any) -> None:
        pass


class AsyncStream:
    """One sequence over a WebSocket, which is opened again and resumed when it breaks."""

    def __init__(self, client: AsyncClient, steps: _streams.StreamSteps) -> None:
        self._client, self._steps = client, steps
        self._socket: Any = None

    @property
    def id(self) -> str:
        """The sequence's id."""
        return self._steps.id

    async def step(self, value: Any, start: bool = False, end: bool = False,
                   timeout: Optional[float] = None,
                   content_type: Optional[str] = None) -> Answer:
        """Does one step. See Stream.step."""
        return (await self._do([_streams.sent(value, start, end, content_type)], timeout))[0]

    async def steps(self, values: Iterable[Any], timeout: Optional[float] = None) -> List[Answer]:
        """Does many steps. See Stream.steps."""
        return await self._do([_streams.sent(value) for value in values], timeout)

    async def retry(self, timeout: Optional[float] = None) -> List[Answer]:
        """Goes on with steps after an error that left open whether they were done."""
        return await _drive(self._steps.retry(timeout or self._client._site.timeout), self._act)

    async def _do(self, values: List[_streams.Sent], timeout: Optional[float]) -> List[Answer]:
        if self._steps.unanswered:
            raise RuntimeError("nobody knows whether the last step was done: call retry() first")
        timeout = timeout or self._client._site.timeout
        for each in values:
            if is_tensor(each.value):
                each.value = await _drive(
                    self._steps.named(each.value, timeout, self._client._names),
                    self._client._wire.send)
        return await _drive(self._steps.steps(values, timeout), self._act)

    async def _act(self, todo: Any) -> Any:
        import websockets.exceptions
        try:
            if isinstance(todo, _streams.Connect):
                return await self._connect(todo)
            if isinstance(todo, _streams.Put):
                return await self._put(todo)
            return await asyncio.wait_for(self._socket.recv(), todo.seconds)
        except websockets.exceptions.InvalidStatus as refused:
            raise refusal(refused) from None
        except ssl.SSLCertVerificationError as error:
            raise Broken(str(error), final=True) from error
        except (TimeoutError, asyncio.TimeoutError):
            await self.close()
            raise TimedOut from None
        except websockets.exceptions.ConnectionClosed as closed:
            await self.close()
            raise broken_by(closed) from None
        except (OSError, EOFError, websockets.exceptions.WebSocketException) as error:
            await self.close()
            raise Broken(f"{type(error).__name__}: {error}") from error

    async def _put(self, put: _streams.Put) -> None:
        try:
            await asyncio.wait_for(self._socket.send(put.message), put.seconds)
        except (TimeoutError, asyncio.TimeoutError, asyncio.CancelledError):
            self._socket.transport.abort()  # its close would wait for a server that does not read
            raise

    async def _connect(self, todo: _streams.Connect) -> None:
        import websockets.asyncio.client
        await self.close()
        self._socket = await websockets.asyncio.client.connect(
            todo.url, subprotocols=[todo.protocol], additional_headers=todo.headers,
            ssl=self._client._tls, open_timeout=todo.seconds, close_timeout=1, max_size=None,
            compression=None, proxy=None)

    async def close(self) -> None:
        """Closes the connection. The sequence stays on the server."""
        socket, self._socket = self._socket, None
        self._steps.connected = False
        if socket is not None:
            await socket.close()

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
