"""One keep-alive HTTP connection on asyncio. It needs so little that a thousand run on one core, and says exactly how a
request failed (never sent, broken, no answer in time)."""

import asyncio
import contextlib
import dataclasses

from waiting import limit

DEADLINE_S = limit(30)


class Unsent(Exception):
    """There was no connection, so the server has not seen the request."""


class Broken(Exception):
    """The connection ended without an answer, so the step may have been done or not."""


class Hung(Exception):
    """No answer within the deadline."""


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.text = body.decode("utf-8", "replace")

    @property
    def reason(self):
        """The error word of a refusal: "queue_full"."""
        return self.headers.get("continuo-error") or f"http_{self.status}"


@dataclasses.dataclass
class Step:
    """What a request asks for."""

    sequence: str
    body: str
    end: bool = False
    key: str = None  # Idempotency-Key
    number: int = None  # the number of the step in its sequence

    def http(self):
        lines = [f"POST /predictions/sum HTTP/1.1\r\nHost: chaos\r\nts-request-sequence-id: {self.sequence}\r\n"]
        if self.end:
            lines.append("ts-request-sequence-end: true\r\n")
        if self.key:
            lines.append(f"Idempotency-Key: {self.key}\r\n")
        if self.number:
            lines.append(f"ts-request-sequence-step: {self.number}\r\n")
        lines.append(f"Content-Length: {len(self.body)}\r\n\r\n{self.body}")
        return "".join(lines).encode()


class Link:
    kind = "http"
    parts = True  # it can send a part of a request

    def __init__(self, address):
        self._address = address
        self._reader = self._writer = None

    async def _open(self):
        if self._writer is not None:
            return
        try:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
        except OSError as e:
            raise Unsent(str(e)) from e

    def close(self, reset=False):
        """With `reset` the connection ends with RST, like that of a killed client."""
        if self._writer is not None:
            if reset:
                self._writer.transport.abort()
            else:
                self._writer.close()
        self._reader = self._writer = None

    async def ask(self, step):
        """Sends one request and returns its reply."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._open()
                return await self._exchange(step.http())
        except TimeoutError as e:
            self.close()
            raise Hung(f"no answer within {DEADLINE_S:g} s") from e
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as e:
            self.close()
            raise Broken(f"{type(e).__name__}: {e}") from e

    async def _exchange(self, request):
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if "content-length" in headers:
            body = await self._reader.readexactly(int(headers["content-length"]))
        else:
            body = await self._pieces()
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Reply(int(lines[0].split(" ", 2)[1]), headers, body)

    async def _pieces(self):
        """Reads a chunked body. Raises EOFError if it breaks off."""
        body = b""
        while size := int(await self._reader.readline() or b"end", 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return body

    async def drop(self, step, share, linger_s):
        """Sends a share of the request (1 is all of it), waits a little and leaves without reading."""
        request = step.http()
        sent_bytes = len(request) if share == 1 else 1 + int(share * (len(request) - 1))
        await self._open()
        with contextlib.suppress(OSError):
            self._writer.write(request[:sent_bytes])
            await asyncio.sleep(linger_s)
        self.close(reset=True)
