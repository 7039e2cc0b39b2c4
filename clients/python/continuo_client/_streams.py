"""What a client says over a WebSocket (docs/streams.md), without any input or output.

Like _steps.py, these are generators: they yield a Connect, a Put, a Get or a Pause."""

from __future__ import annotations

import base64
import collections
import json
import time
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import Any, Deque, Dict, Generator, Iterable, List, Optional, Union

from . import tensors
from ._steps import (FIRST_PAUSE, LONGEST_PAUSE, Answer, Broken, Pause, Site, TimedOut, decoded,
                     inputs_named, wants_torch)
from .errors import (BY_WORD, BadRequestError, ClientTimeoutError, ConnectionFailedError,
                     ContinuoError, StreamClosedError, from_message)

GIVE_UP = {1002, 1003, 1007, 1009, 4001, 4004}  # closes after which connecting again is useless


@dataclass
class Connect:
    url: str
    protocol: str
    headers: Dict[str, str]
    seconds: float


@dataclass
class Put:
    message: Union[str, bytes]
    seconds: float


@dataclass
class Get:
    seconds: float


@dataclass
class Sent:
    """A step without its answer."""

    value: Any
    number: int
    start: bool
    end: bool
    content_type: Optional[str]
    torch: bool

    def message(self, binary: bool) -> Union[str, bytes]:
        if tensors.are_tensors(self.value):
            if not binary:
                raise TypeError("tensors need a stream that was made with tensors=True")
            inputs = [tensors.encode(name, each) for name, each in self.value.items()]
            return tensors.stream_step(inputs, self.number, self.start, self.end)
        if binary and isinstance(self.value, (bytes, bytearray)):
            return tensors.stream_bytes(bytes(self.value), self.number, self.start, self.end)
        members: Dict[str, Any] = {"type": "step", "step": self.number}
        if isinstance(self.value, (bytes, bytearray, memoryview)):
            members["base64"] = base64.b64encode(self.value).decode()
        elif isinstance(self.value, str):
            members["text"] = self.value
        else:
            members["data"] = self.value
        if self.content_type:
            members["content_type"] = self.content_type
        if self.start:
            members["start"] = True
        if self.end:
            members["end"] = True
        return json.dumps(members)


Talk = Generator[Union[Connect, Put, Get, Pause], Any, Any]


class StreamSteps:
    """The steps of one sequence over a WebSocket that is opened again when it breaks."""

    def __init__(self, site: Site, model: str, version: Optional[str], id: Optional[str],
                 binary: bool) -> None:
        self.site, self.binary = site, binary
        self.model, self.version = model, version
        self.id = id or f"client-{uuid.uuid4().hex}"
        parts = [model, version, self.id] if version else [model, self.id]
        self.url = (site.base.replace("http", "ws", 1) + "/v1/streams/"
                    + "/".join(urllib.parse.quote(str(part), safe="") for part in parts))
        self.connected = self.known = False  # known: a first hello has come
        self.resumable = True  # False: a model without sequences
        self.last = self.generation = 0
        self.credit = 1
        self.unanswered: Deque[Sent] = collections.deque()
        self._refused = False  # for now: the unanswered steps must be sent again
        self._pieces: List[Any] = []

    # --- connecting

    def _query(self) -> str:
        barrier = any(each.start or each.end for each in self.unanswered)
        if not self.known or not self.resumable or barrier:
            return ""
        query = {"last": self.last}
        if self.generation:
            query["generation"] = self.generation
        return "?" + urllib.parse.urlencode(query)

    def _open(self, deadline: float) -> Talk:
        """Connects once, reads the hello, and sends again what the server does not have."""
        query = self._query()
        protocol = "continuo.v1.binary" if self.binary else "continuo.v1.json"
        self._pieces, self._refused = [], False
        try:
            yield Connect(self.url + query, protocol, self.site.headers(), self._left(deadline))
        except BadRequestError:
            if not query or self.generation:
                raise
            self.resumable = False  # it refuses `last`: the model has no sequences
            yield Connect(self.url, protocol, self.site.headers(), self._left(deadline))
            query = ""
        hello = yield from self._read(deadline)
        while hello.get("type") != "hello":
            if hello.get("type") == "error":
                error = from_message(hello)  # a stream that cannot be served now loses nothing
                raise error if error.retryable else self._lost(hello)
            hello = yield from self._read(deadline)
        self.connected, self.credit = True, hello["credit"]
        if not query:  # a first connection, or one that must not resume
            if not self.unanswered or not self.resumable:
                self.last = hello["step"]
            self.generation = hello["generation"]
        elif hello["generation"]:
            self.generation = hello["generation"]
        if not self.known or not self.resumable:
            for number, each in enumerate(self.unanswered, hello["next"]):
                each.number = 1 if each.start else number
        self.known = True
        for each in self.unanswered:
            if not query or each.number >= hello["next"]:
                yield Put(each.message(self.binary), self._left(deadline))

    def _lost(self, message: Dict[str, Any]) -> ContinuoError:
        """The stream cannot be resumed. The next step goes on behind what is missing."""
        error = from_message(message)
        self.connected = False
        self.unanswered.clear()
        if error.expected_step is not None:
            self.last = error.expected_step - 1
        else:
            self.known = False
        return error

    @staticmethod
    def _left(deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimedOut
        return left

    def _read(self, deadline: float) -> Talk:
        message = yield Get(self._left(deadline))
        if isinstance(message, str):
            return json.loads(message)
        torch = bool(self.unanswered and self.unanswered[0].torch)
        flags, status, number, data = tensors.stream_answer(message, torch)
        return {"type": "answer", "step": number, "final": bool(flags & tensors.FINAL),
                "replayed": bool(flags & tensors.REPLAYED), "status": status or 200, "value": data}

    # --- steps

    def steps(self, values: Iterable[Sent], timeout: float) -> Talk:
        """Sends steps, at most `credit` of them before their answers, and returns the answers."""
        waiting = collections.deque(values)
        answers: List[Answer] = []
        for each in waiting:
            each.number = 0
        yield from self._until(waiting, answers, timeout)
        return answers

    def named(self, value: Any, timeout: float, names: Dict[Any, str]) -> Any:
        """Asks over HTTP for the name of the model's only input."""
        return inputs_named(self.site, self.model, self.version, value, timeout, names)

    def retry(self, timeout: float) -> Talk:
        """Goes on with the steps whose outcome is not known."""
        answers: List[Answer] = []
        yield from self._until(collections.deque(), answers, timeout)
        return answers

    def _until(self, waiting: Deque[Sent], answers: List[Answer], timeout: float) -> Talk:
        pause, error = FIRST_PAUSE, None
        deadline = time.monotonic() + timeout
        while waiting or self.unanswered:
            try:
                if not self.connected:
                    yield from self._open(deadline)
                elif self._refused:
                    yield from self._again(deadline)
                yield from self._fill(waiting, deadline)
                before = len(answers)
                yield from self._one(answers, deadline)
                if len(answers) > before:  # the timeout is that of one step
                    deadline, pause, error = time.monotonic() + timeout, FIRST_PAUSE, None
                continue
            except Broken as broken:
                self.connected = False
                error = self._closed(broken)
            except TimedOut:
                self.connected = False
                raise error or ClientTimeoutError(f"no answer within {timeout:g} s") from None
            except ContinuoError as failed:
                self.connected = self.connected and not isinstance(failed, StreamClosedError)
                if not failed.retryable:
                    raise
                error, self._refused = failed, True
            wait = max(error.retry_after or 0.0, pause)
            if time.monotonic() + wait >= deadline:
                raise error
            yield Pause(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _again(self, deadline: float) -> Talk:
        """A step was refused for now: sends it and those behind it again."""
        self._refused = False
        for each in self.unanswered:
            yield Put(each.message(self.binary), self._left(deadline))

    def _closed(self, broken: Broken) -> ContinuoError:
        if broken.final:
            raise ConnectionFailedError(broken.reason)
        if broken.code not in GIVE_UP:
            return ConnectionFailedError(f"the stream broke: {broken.code} {broken.reason}".strip())
        self.unanswered.clear()
        if broken.code == 1009:
            raise BY_WORD["too_large"](broken.reason or "the message is too large")
        error = StreamClosedError(f"{broken.code} {broken.reason}".strip())
        error.code = broken.code
        raise error

    def _fill(self, waiting: Deque[Sent], deadline: float) -> Talk:
        """Sends as many further steps as the credit allows. START and END go alone."""
        while waiting and len(self.unanswered) < self.credit:
            if self.unanswered and (waiting[0].start or waiting[0].end
                                    or self.unanswered[-1].start or self.unanswered[-1].end):
                return
            step = waiting.popleft()
            step.number = 1 if step.start else self.last + len(self.unanswered) + 1
            message = step.message(self.binary)
            self.unanswered.append(step)
            yield Put(message, self._left(deadline))

    def _one(self, answers: List[Answer], deadline: float) -> Talk:
        """Reads one message and does what it says."""
        message = yield from self._read(deadline)
        if message["type"] == "error":
            if message.get("error") == "answer_not_kept":
                raise self._lost(message)
            error = from_message(message)
            self._pieces = []
            yield from self._drain(deadline)
            if not error.retryable:
                self.unanswered.clear()
                if error.expected_step is not None:
                    self.last = error.expected_step - 1
            raise error
        if message["type"] != "answer" or not self.unanswered:
            return
        if message["step"] != self.unanswered[0].number:
            raise StreamClosedError(f"the answer of step {message['step']} came, but that of "
                                    f"step {self.unanswered[0].number} was due")
        content, data = self._body(message)
        self._pieces.append(data)
        if not message["final"]:
            return
        self.unanswered.popleft()
        self.last = message["step"]
        self.generation = message.get("generation", self.generation)
        pieces, self._pieces = tuple(self._pieces), []
        answers.append(Answer(data, content, message.get("status", 200), {}, self.last,
                              message.get("replayed", False), pieces))

    def _drain(self, deadline: float) -> Talk:
        """Reads what the steps get that were sent behind one that failed: errors, or, if the model
        has no sequences, also answers."""
        left = len(self.unanswered) - 1
        while left > 0:
            message = yield from self._read(deadline)
            left -= message["type"] == "error" or bool(message.get("final"))

    @staticmethod
    def _body(message: Dict[str, Any]) -> Any:
        if "value" in message:
            value = message["value"]
            return (value, value) if isinstance(value, bytes) else (b"", value)
        if "data" in message:
            return json.dumps(message["data"]).encode(), message["data"]
        if "text" in message:
            return message["text"].encode(), message["text"]
        content = base64.b64decode(message.get("base64", ""))
        return content, decoded(content, message.get("content_type", ""))


def sent(value: Any, start: bool = False, end: bool = False,
         content_type: Optional[str] = None) -> Sent:
    """Makes a step that has not been sent yet."""
    return Sent(value, 0, start, end, content_type, wants_torch(value))
