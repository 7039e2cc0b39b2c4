"""What a client says over HTTP and in which order, without any input or output.

The functions are generators: they yield a Send or a Pause, and the caller (client.py or aio.py)
does it and sends the reply back. So the rules of repeating exist once for both clients."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from typing import Any, Dict, Generator, Optional, Tuple, Union

from . import tensors
from .errors import (ClientTimeoutError, ConnectionFailedError, ContinuoError, from_answer)

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0  # seconds between two attempts without a Retry-After
MAYBE_DONE = ("store_unreachable",)  # the step was refused, but it may have been saved


class Broken(Exception):
    """The connection failed before the whole reply was there. `final`: trying again is useless."""

    def __init__(self, reason: str, code: int = 1006, final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.code, self.final = reason, code, final


class TimedOut(Exception):
    """Nothing came within the time that was left."""


@dataclass
class Request:
    method: str
    path: str
    headers: Dict[str, str]
    body: bytes = b""


@dataclass
class Reply:
    status: int
    headers: Dict[str, str]  # with names in lower case
    body: bytes


@dataclass
class Send:
    request: Request
    seconds: float


@dataclass
class Pause:
    seconds: float


@dataclass
class Answer:
    """The answer to a step or a request.

    data: JSON as Python values, text as str, tensors as a dict of arrays, anything else as bytes;
    content: the bytes as they came (of tensors over a stream: none); step: the step's number, or
    None; replayed: True if the step had been done before and the server repeated its answer;
    pieces: the pieces of an answer that was streamed over a WebSocket."""

    data: Any
    content: bytes = b""
    status: int = 200
    headers: Dict[str, str] = field(default_factory=dict)
    step: Optional[int] = None
    replayed: bool = False
    pieces: Tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """The answer as text."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The answer parsed as JSON."""
        return json.loads(self.content)


Call = Generator[Union[Send, Pause], Optional[Reply], Any]


def decoded(content: bytes, content_type: str) -> Any:
    """Turns a body into a Python value, as its content type says."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/json" or kind.endswith("+json"):
            return json.loads(content)
        if kind.startswith("text/"):
            return content.decode()
    except ValueError:  # the handler's content type does not fit: the bytes are the truth
        pass
    return content


def encoded(value: Any) -> Tuple[bytes, str]:
    """Turns the value of a step into a body and its content type."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), "application/octet-stream"
    if isinstance(value, str):
        return value.encode(), "text/plain"
    return json.dumps(value).encode(), "application/json"


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def repeated(request: Request, timeout: float) -> Call:
    """Sends a request until the server answers it for good, as Retry-After and the status say.

    The error that ends it has `undecided`: True if an attempt may have been done on the server."""
    deadline = time.monotonic() + timeout
    pause, undecided = FIRST_PAUSE, False
    error: ContinuoError = ClientTimeoutError(f"no answer within {timeout:g} s")
    while True:
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimedOut
            reply = yield Send(request, left)
        except TimedOut:
            error = ClientTimeoutError(f"no answer within {timeout:g} s")
            error.undecided = True  # type: ignore[attr-defined]
            raise error from None
        except Broken as broken:
            error, undecided = ConnectionFailedError(broken.reason), True
            wait = pause
            if broken.final:
                raise error from broken
        else:
            assert reply is not None
            if reply.status < 300:
                return reply
            text = reply.body.decode("utf-8", "replace")
            if reply.status < 400:
                text = (f"redirected to {reply.headers.get('location', 'another address')}; "
                        "use that one")
            error = from_answer(reply.status, reply.headers, _parsed(reply.body), text)
            unknown = reply.status >= 500 and not error.word  # a proxy, which lost the server
            undecided = undecided or unknown or error.word in MAYBE_DONE
            if not error.retryable:
                error.undecided = unknown  # type: ignore[attr-defined]
                raise error
            wait = max(error.retry_after or 0.0, pause)
        if time.monotonic() + wait >= deadline:
            error.undecided = undecided  # type: ignore[attr-defined]
            raise error
        yield Pause(wait)
        pause = min(2 * pause, LONGEST_PAUSE)


@dataclass
class Site:
    """What all requests of a client share."""

    base: str
    token: Optional[str]
    timeout: float

    def headers(self) -> Dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def _path(prefix: str, model: str, version: Optional[str], between: str = "/") -> str:
    path = prefix + urllib.parse.quote(model, safe="")
    return path + between + urllib.parse.quote(version, safe="") if version else path


def inputs_named(site: Site, model: str, version: Optional[str], value: Any, timeout: float,
           names: Dict[Any, str]) -> Call:
    """Returns the inputs of a value by name. A tensor alone is the model's only input."""
    if isinstance(value, dict):
        return value
    if (model, version) not in names:
        path = _path("/v2/models/", model, version, "/versions/")
        reply = yield from repeated(Request("GET", path, site.headers()), timeout)
        inputs = [each["name"] for each in json.loads(reply.body)["inputs"]]
        if len(inputs) != 1:
            raise ValueError(f"model {model!r} has the inputs {', '.join(inputs)}: "
                             "send a dict with a tensor for each of them")
        names[model, version] = inputs[0]
    return {names[model, version]: value}


def request_of(site: Site, model: str, version: Optional[str], value: Any, timeout: float,
               names: Dict[Any, str], parameters: Dict[str, Any],
               content_type: Optional[str]) -> Call:
    """Makes the request of a step: to /v2 for tensors, otherwise to /predictions."""
    headers = site.headers()
    if tensors.are_tensors(value):
        inputs = yield from inputs_named(site, model, version, value, timeout, names)
        body, head = tensors.infer_request(
            [tensors.encode(name, each) for name, each in inputs.items()], parameters)
        headers["Inference-Header-Content-Length"] = str(head)
        headers["Content-Type"] = "application/octet-stream"
        path = _path("/v2/models/", model, version, "/versions/") + "/infer"
    else:
        body, kind = encoded(value)
        headers["Content-Type"] = content_type or kind
        path = _path("/predictions/", model, version)
    return Request("POST", path, headers, body)


def wants_torch(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else [value]
    return any(tensors.is_torch(each) for each in values)


def answer_of(reply: Reply, torch: bool) -> Answer:
    number = reply.headers.get("continuo-sequence-step")
    head = reply.headers.get("inference-header-content-length")
    content_type = reply.headers.get("content-type", "")
    data = (tensors.infer_answer(reply.body, int(head), torch) if head
            else decoded(reply.body, content_type))
    return Answer(data, reply.body, reply.status, reply.headers,
                  int(number) if number and number.isdigit() else None,
                  reply.headers.get("continuo-replayed", "").lower() == "true")


def _checked(headers: Dict[str, str]) -> None:
    """Refuses what no header can carry before it is sent. Later the step would stay undecided."""
    for name, value in headers.items():
        if re.search(r"[^\t -~\x80-\xff]", value):
            raise ValueError(f"the header {name} would have a character that no header can carry")


def predict(site: Site, model: str, version: Optional[str], value: Any, timeout: float,
            names: Dict[Any, str], content_type: Optional[str] = None) -> Call:
    """One request to a model without sequences."""
    request = yield from request_of(site, model, version, value, timeout, names, {}, content_type)
    _checked(request.headers)
    reply = yield from repeated(request, timeout)
    return answer_of(reply, wants_torch(value))


class SequenceSteps:
    """The steps of one sequence: each has a key of its own, and a number once the count is known.

    A step that is sent again has the same key, so the server does it once."""

    def __init__(self, site: Site, model: str, version: Optional[str], id: Optional[str],
                 names: Dict[Any, str], numbered: bool) -> None:
        self.site, self.model, self.version, self.names = site, model, version, names
        self.id = id or f"client-{uuid.uuid4().hex}"
        self.count: Optional[int] = None if id else 0  # committed steps; None: not known
        self.numbered = numbered
        self.fresh = not id
        self.open = False
        self.pending: Optional[Tuple[Request, bool, bool, bool]] = None
        self._key, self._sent = uuid.uuid4().hex, 0

    def step(self, value: Any, start: bool, end: bool, timeout: float,
             content_type: Optional[str] = None) -> Call:
        if self.pending:
            raise RuntimeError("nobody knows whether the last step was done: call retry() first")
        number = 1 if start else (self.count + 1 if self.count is not None else None)
        parameters: Dict[str, Any] = {}
        typed = tensors.are_tensors(value)
        if typed:
            parameters = {"sequence_start": start, "sequence_end": end}
        request = yield from request_of(self.site, self.model, self.version, value, timeout,
                                        self.names, parameters, content_type)
        headers = request.headers
        name = "Inference-Session-Id" if typed else "Continuo-Sequence"
        headers[name] = self.id.encode().decode("latin-1")
        headers["Idempotency-Key"] = f"{self._key}-{self._sent}"
        self._sent += 1
        if number and self.numbered:
            headers["Continuo-Sequence-Step"] = str(number)
        if start and not typed:
            headers["ts-request-sequence-start"] = "true"
        if end and not typed:
            headers["ts-request-sequence-end"] = "true"
        _checked(headers)
        self.pending = request, wants_torch(value), start, end
        return (yield from self.retry(timeout))

    def retry(self, timeout: float) -> Call:
        """Sends the step again whose outcome is not known."""
        if not self.pending:
            raise RuntimeError("the last step was answered: there is nothing to send again")
        request, torch, start, end = self.pending
        try:
            reply = yield from repeated(request, timeout)
        except ContinuoError as error:
            if not getattr(error, "undecided", False):
                self.pending = None
            if error.expected_step is not None:
                self.count = error.expected_step - 1
            elif error.word in ("answer_not_kept", "key_superseded"):
                self.count = None  # the next answer tells it
            raise
        self.pending = None
        answer = answer_of(reply, torch)
        if answer.step is not None:
            self.count = answer.step
        elif self.count is not None:  # a streamed answer has no number
            self.count = 1 if start else self.count + 1
        self.open = not end
        return answer
