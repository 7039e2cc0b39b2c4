"""What a handler gets and gives: Request, Reply, Refuse, Model.

A program (see Program) is what the worker runs. A handler's module becomes one in _entry.py, and a
TorchServe handler becomes one in continuo.torchserve.
"""

from __future__ import annotations

import json as _json
import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

__all__ = ["Headers", "Model", "Part", "Program", "Refuse", "Reply", "Request", "Tensor"]


class Refuse(Exception):
    """Raised by a handler to refuse a request: the client gets the status and the message.

    The step changes nothing. No traceback is logged, because a refusal is not an error of the handler."""

    def __init__(self, message: str, status: int = 400) -> None:
        if not isinstance(message, str):
            raise TypeError(f"Refuse(message, status): the message must be a str, "
                            f"got {type(message).__name__}")
        if not isinstance(status, int) or not 400 <= status <= 599:
            raise ValueError(f"Refuse(message, status): the status must be from 400 to 599, "
                             f"got {status!r}")
        super().__init__(message)
        self.message = message
        self.status = status


class Reply:
    """An answer with more than a body. Give one of body, text, json and outputs, or none of them.

    body is bytes that leave as they are; text is a str; json is any value that JSON has; outputs
    are the tensors of a typed model by name: NumPy arrays, PyTorch tensors, Tensors, numbers or
    (nested) lists. end_sequence ends the sequence with this step. stop_streams tells the streams of
    the sequence's earlier steps to end.
    """

    __slots__ = ("body", "text", "json", "outputs", "status", "headers", "content_type",
                 "end_sequence", "stop_streams", "has_json")

    _NONE = object()

    def __init__(self, body: Optional[bytes] = None, *, text: Optional[str] = None,
                 json: Any = _NONE, outputs: Optional[Mapping[str, Any]] = None, status: int = 200,
                 headers: Optional[Mapping[str, Any]] = None, content_type: Optional[str] = None,
                 end_sequence: bool = False, stop_streams: bool = False) -> None:
        self.has_json = json is not Reply._NONE
        given = (body is not None) + (text is not None) + self.has_json + (outputs is not None)
        if given > 1:
            raise ValueError("Reply: give one of body, text, json and outputs")
        self.body = body
        self.text = text
        self.json = json if self.has_json else None
        self.outputs = outputs
        self.status = status
        self.headers = headers
        self.content_type = content_type
        self.end_sequence = end_sequence
        self.stop_streams = stop_streams


class CheckedReply(NamedTuple):
    """A reply whose parts are known to be right, as the worker reads it. It is made for every answer
    of a TorchServe handler, so it costs less than a Reply."""

    body: bytes
    content_type: str  # empty: none
    status: int
    headers: Dict[str, str]
    end_sequence: bool


class OutputsReply(Reply):
    """A reply that has outputs and nothing else. The worker reads no other field of it."""

    __slots__ = ()

    def __init__(self, outputs: Dict[str, Any]) -> None:
        self.outputs = outputs


class Part(NamedTuple):
    """One parameter of a request: a form's field, or the whole body, which is named "body"."""

    name: str
    data: bytes
    content_type: str = ""

    @property
    def text(self) -> str:
        """The data as UTF-8 text; the client gets 400 if it is not."""
        return _text(self.data, f"the part '{self.name}'")


class Headers(Dict[str, str]):
    """Headers by name. Lookups ignore case, and `-` and `_` mean the same."""

    __slots__ = ("_folded",)

    def __init__(self, pairs: Any = ()) -> None:
        super().__init__()
        self._folded: Dict[str, str] = {}
        for name, value in pairs.items() if hasattr(pairs, "items") else pairs:
            if _fold(name) not in self._folded:  # the first of a name stays
                self[name] = value

    def __setitem__(self, name: str, value: str) -> None:
        name = self._folded.setdefault(_fold(name), name)
        super().__setitem__(name, value)

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(self._folded.get(_fold(name), name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _fold(name) in self._folded

    def __delitem__(self, name: str) -> None:
        super().__delitem__(self._folded.pop(_fold(name), name))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default


class Tensor(NamedTuple):
    """A tensor without NumPy: a v2 datatype such as "FP32", a shape, and the elements.

    data is bytes (little-endian elements); for the datatype BYTES it is a list of bytes.
    """

    datatype: str
    shape: Tuple[int, ...]
    data: Any


class Model:
    """What load(model) gets: the model that this worker serves."""

    def __init__(self, *, name: str = "model", version: str = "1.0", dir: str = ".",
                 file: str = "handler.py", worker: int = 1, n_workers: int = 1,
                 config: Optional[Dict[str, Any]] = None, batch_size: int = 1, device: str = "cpu",
                 stateful: bool = False, typed: bool = False, envelope: str = "",
                 metrics: Any = ()) -> None:
        self.name = name
        self.version = version
        #: The folder with the model's files, which is also on sys.path.
        self.dir = dir
        #: The handler's file in that folder, perhaps with ":function" or ":Class".
        self.file = file
        #: The number of this worker, from 1 on; 0 while load(model) runs in the process from which
        #: the workers are forked (preload: true).
        self.worker = worker
        #: The whole model-config.yaml.
        self.config: Dict[str, Any] = config if config is not None else {}
        self.batch_size = batch_size
        #: The device that deviceType and deviceIds give this worker: "cpu", or "cuda:0" and so on. The
        #: handler moves its model there itself.
        self.device = device
        #: True if the model has sequences, so that the handler keeps a state for each of them.
        self.stateful = stateful
        #: The server's service envelope, such as "kservev2"; for handlers of TorchServe.
        self.envelope = envelope
        #: The metrics of models in the server's metrics file: (kind, name, unit, dimensions' names).
        self.metrics = metrics
        #: True if the model declares typed inputs and outputs.
        self.typed = typed


class Program:
    """What the worker runs. None stands for a method that the handler does not have.

    The worker calls, always in its main thread:

    load()                  once, when the module is imported; False: it has failed
    init(req)               returns the state of a new sequence; None: it begins as {}
    step(state, req)        returns a reply, a generator, a coroutine or an async generator; the
                            state may be changed in place or replaced by `req.state = value`
    batch(states, reqs)     instead of step: returns a list with one reply for each request. A reply
                            may be an exception, which then is that request's answer alone, a
                            generator, or a Stream. States may be changed in place or by `req.state = value`
    close(sequence_id, state, reason)
    migrate(state, from_schema, version)    returns the state in today's shape
    describe()              returns a dict, which is shown as customizedMetadata
    forked()                once in each worker that was forked after load() (preload: true)
    """

    load: Optional[Callable[[], Any]] = None
    init: Optional[Callable[["Request"], Any]] = None
    step: Optional[Callable[[Any, "Request"], Any]] = None
    batch: Optional[Callable[[List[Any], List["Request"]], List[Any]]] = None
    close: Optional[Callable[[str, Any, str], None]] = None
    migrate: Optional[Callable[[Any, int, Optional[str]], Any]] = None
    describe: Optional[Callable[[], Any]] = None
    forked: Optional[Callable[[], Any]] = None
    #: The version of the state's shape.
    state_schema: int = 1
    #: "safe", or "pickle", which stores any object but runs its code when it is read.
    state_format: str = "safe"
    #: False: workers must not be forked from a process that has called load(), also with
    #: `preload: true` in the model's YAML.
    preload: Union[bool, str] = True
    #: "cpu", or the device that the server shows for this worker.
    device: str = "cpu"


class Stream:
    """A step that is not done. resume(row, stop) goes on with it.

    resume() returns None if the step must wait until row.wake() is called. Otherwise it returns
    (more, value, rest_ms). If `more` is true, the value is a piece of the answer, and the step then
    rests for rest_ms. If `more` is false, the value is the whole answer or its last piece, and a
    rest_ms of -1 says that None is not allowed there. `stop` says why the step must end now; None:
    it may go on. close() gives the step up.
    """

    def resume(self, row: Any, stop: Optional[str]) -> Optional[Tuple[bool, Any, int]]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Request:
    """One request. It exists during its step only: keep what you need of it in the state.

    `row` is the worker's own object; continuo.testing.request() makes a request for tests.
    """

    __slots__ = ("_row", "state", "_made")

    def __init__(self, row: Any, state: Any = None) -> None:
        self._row = row
        #: The state of the sequence; a step may set it to another value.
        self.state = state
        #: What was made of the row, by the property's name; None: nothing yet. The worker sets these
        #: three fields without this function.
        self._made: Optional[Dict[str, Any]] = None

    def _cached(self, name: str, make: Callable[[Any], Any]) -> Any:
        if self._made is None:
            self._made = {}
        value = self._made.get(name)
        if value is None:
            value = self._made[name] = make(self._row)
        return value

    @property
    def body(self) -> bytes:
        """The bytes of the part named "body", or "data", or else of the first part."""
        return self._row.body

    @property
    def text(self) -> str:
        """The body as UTF-8 text; the client gets 400 if it is not."""
        return _text(self._row.body, "the request's body")

    @property
    def json(self) -> Any:
        """The body, parsed as JSON; the client gets 400 if it is not JSON."""
        return self._cached("json", _parse_json)

    @property
    def parts(self) -> Dict[str, Part]:
        """The parts by name; the last one if several have that name."""
        return self._cached("parts", lambda _: {part.name: part for part in self.part_list})

    @property
    def part_list(self) -> List[Part]:
        """All parts in the order in which they came."""
        return [Part(*part) for part in self._row.parts()]

    @property
    def headers(self) -> Headers:
        """The request's headers."""
        return self._cached("headers", lambda row: Headers(row.headers()))

    @property
    def inputs(self) -> Dict[str, Any]:
        """The tensors of a typed model by name: NumPy arrays, or Tensors where NumPy is missing."""
        return self._cached("inputs", _arrays)

    @property
    def parameters(self) -> Dict[str, Any]:
        """The parameters of a v2 request, without those that the protocol itself knows."""
        return self._cached("parameters", lambda row: parameters_of(row.parameters()))

    @property
    def sequence_id(self) -> Optional[str]:
        """The sequence's id; None without a sequence."""
        return self._row.sequence_id

    @property
    def request_id(self) -> str:
        return self._row.request_id

    @property
    def start(self) -> bool:
        """True for the first step of a sequence."""
        return self._row.start

    @property
    def end(self) -> bool:
        """True if the client ends the sequence with this step."""
        return self._row.end

    @property
    def step(self) -> int:
        """How many steps of the sequence succeeded before this one."""
        return self._row.step

    @property
    def deadline(self) -> float:
        """The seconds that are left for the answer; math.inf without a deadline."""
        left = self._row.deadline_ms
        return math.inf if left < 0 else left / 1000

    @property
    def cancelled(self) -> bool:
        """True if a stream is to end."""
        return self._row.stop is not None

    @property
    def stop_reason(self) -> Optional[str]:
        """Why a stream is to end: "gone", "deadline", "ended" or "cancelled"; else None."""
        return self._row.stop

    @property
    def explain(self) -> bool:
        """True if the request came by the explanations endpoint."""
        return self._row.explain

    def send(self, piece: Any) -> None:
        """Sends a piece of the answer at once, which may be anything that a reply may be.

        If the client does not take what was sent, further pieces wait in memory, and leave with the
        next yield or await, or with the answer. `cancelled` is up to date after the call.
        """
        self._row.send(piece)


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")


def _text(data: bytes, what: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise Refuse(f"{what} is not UTF-8 text") from None


def _parse_json(row: Any) -> Any:
    try:
        return _json.loads(row.body)
    except (ValueError, RecursionError) as error:
        raise Refuse(f"the request's body is not valid JSON: {error}") from None


def parameters_of(parts: List[Tuple[str, bytes, str]]) -> Dict[str, Any]:
    """The parameters of a v2 request by name, from the worker's row."""
    return dict(_parameters(parts))


def _parameters(parts: List[Tuple[str, bytes, str]]) -> Iterator[Tuple[str, Any]]:
    for name, data, kind in parts:
        text = str(data, "utf-8", "replace")
        kind = kind[len("parameter/"):]
        if kind == "bool":
            yield name, text == "true"
        elif kind == "int64":
            yield name, int(text)
        elif kind == "double":
            yield name, float(text)
        else:
            yield name, text


def _arrays(row: Any) -> Dict[str, Any]:
    from continuo import _tensors  # NumPy is imported when it is needed

    return {name: _tensors.to_array(datatype, shape, data)
            for name, datatype, shape, data in row.inputs()}
