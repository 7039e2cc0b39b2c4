"""What the worker's C code (handlers/python) asks of Python: replies, streams, errors.

The common cases, a str or bytes as a reply, are done in C. asyncio is imported when a step first
needs it: a worker that does not is 4 MB smaller and starts faster.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import types
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    import asyncio

from continuo import _worker  # type: ignore[attr-defined]
from continuo.types import (CheckedReply, Model, OutputsReply, Program, Refuse, Reply, Request,
                            Stream)

__all__ = ["CheckedReply", "OutputsReply", "Reply", "Request", "convert_output", "declared", "open_model",
           "open_stream", "render", "report", "turn"]

REST_MAX_S = 86400
TURNS_TO_END = 32  # turns of the loop for a task that must end: what it awaits ends before it
CO_COROUTINE = 0x80  # inspect.CO_COROUTINE; that module is large

_model = Model()
_program = Program()
#: The datatypes of the outputs that the model declares, by name.
declared: Dict[str, str] = {}
#: Bytes of a traceback in the log (handler.tracebackBytes).
_traceback_bytes = 65536


def open_model(facts: Dict[str, Any], config_json: str) -> Program:
    """Imports the handler and calls its load(), if this process can use what that loads."""
    from continuo import _entry

    global _model, _program, _traceback_bytes
    _traceback_bytes = facts.pop("traceback_bytes")
    facts["metrics"] = json.loads(facts["metrics"] or "[]")
    _model = Model(config=json.loads(config_json) if config_json else {}, **facts)
    declared.update(_declared_outputs(_model.config))
    _program = program = _entry.open(_model)
    if _model.config.get("deviceType") == "gpu":
        from continuo._device import device_of

        _model.device = program.device = device_of(_model.config, _model.worker)
        if _model.device != "cpu":
            program.preload = "deviceType is gpu, and CUDA does not survive a fork"
            if _model.worker == 0:  # load() would put the model on the device, for nothing
                return program
    signal.signal(_worker.alarm_signal(), on_alarm)
    if program.load is not None and finish(program.load()) is False:
        raise _entry.HandlerError(f"{_model.file}: load(model) failed: it returned False")
    for name in ("init", "batch", "close", "migrate", "describe"):
        function = getattr(program, name, None)
        if is_coroutine_function(function):
            setattr(program, name, _wait_for(function))
    for stream in (sys.stdout, sys.stderr):  # a forked worker would write it again
        stream.flush()
    return program


def serve_forked(worker: int) -> None:
    """This process is a worker that was forked after load()."""
    _model.worker = worker
    if _program.forked is not None:
        finish(_program.forked())


def _declared_outputs(config: Dict[str, Any]) -> Dict[str, str]:
    from continuo import _settings

    return {str(entry.get("name")): _settings.datatype(entry)
            for entry in _settings.entries(config, _settings.OUTPUTS)}


# --- replies ---

class _Encoder(json.JSONEncoder):
    """JSON with NumPy's and PyTorch's values as lists and numbers."""

    def default(self, o: Any) -> Any:
        if hasattr(o, "tolist"):
            return o.tolist()
        return super().default(o)


_encode = _Encoder(ensure_ascii=False, allow_nan=False, check_circular=True,
                   separators=(",", ":")).encode


def _to_json(value: Any) -> bytes:
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the reply cannot be JSON: {error}") from None


def render(value: Any) -> Tuple[Any, Optional[str], int, Optional[List[Any]], bool, bool]:
    """A reply as (content, content type, status, headers, end_sequence, stop_streams).

    The content is bytes, or a mapping of outputs, which the worker packs.
    """
    if isinstance(value, Reply):
        return _render_reply(value)
    content, kind = _content(value)
    return content, kind, 0, None, False, False


def _content(value: Any) -> Tuple[Any, Optional[str]]:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), None
    if isinstance(value, str):
        return value.encode(), None
    if isinstance(value, bool) or value is True:
        return (b"true" if value else b"false"), None
    if isinstance(value, (int, float)):
        return str(value).encode(), None
    if _model.typed:
        if isinstance(value, dict):
            return value, ""
        if hasattr(value, "dtype") and len(declared) == 1:
            return {next(iter(declared)): value}, ""
    if isinstance(value, (dict, list, tuple)) or hasattr(value, "tolist"):
        return _to_json(value), "application/json"
    raise TypeError(f"a reply must be a str, bytes, a number, a dict or list (JSON), an array, or "
                    f"continuo.Reply, got {type(value).__name__}")


def convert_output(name: str, value: Any, datatype: Optional[str]) -> Any:
    """Makes something that the worker can pack of an output that is not an array of numbers.

    `datatype` is what the model declares; None: nothing.
    """
    from continuo import _tensors

    return _tensors.convert(name, value, datatype)


def _render_reply(reply: Reply) -> Tuple[Any, Optional[str], int, Optional[List[Any]], bool, bool]:
    content: Any = b""
    kind: Optional[str] = None
    if reply.has_json:
        content, kind = _to_json(reply.json), "application/json"
    elif reply.outputs is not None:
        if not hasattr(reply.outputs, "items"):
            raise TypeError(f"Reply.outputs must be a dict of names and arrays, got "
                            f"{type(reply.outputs).__name__}")
        content, kind = reply.outputs, ""
    elif reply.text is not None:
        content, kind = str(reply.text).encode(), "text/plain; charset=utf-8"
    elif reply.body is not None:
        content = reply.body
        kind = "application/octet-stream"
        if isinstance(content, str):
            content = content.encode()
        elif not isinstance(content, bytes):
            content = bytes(memoryview(content))
    if not isinstance(reply.status, int):
        raise TypeError(f"Reply.status must be an int, got {reply.status!r}")
    for name in ("end_sequence", "stop_streams"):
        if not isinstance(getattr(reply, name), bool):
            raise TypeError(f"Reply.{name} must be True or False, got {getattr(reply, name)!r}")
    headers = None
    if reply.headers:
        headers = [(str(name), str(value)) for name, value in
                   (reply.headers.items() if hasattr(reply.headers, "items") else reply.headers)]
    return (content, kind if reply.content_type is None else str(reply.content_type),
            0 if reply.status == 200 else reply.status, headers, reply.end_sequence,
            reply.stop_streams)


# --- streams ---

def open_stream(result: Any) -> Optional[Stream]:
    """Returns what a step returned as a stream, or None if it is a reply."""
    kind = type(result)
    if isinstance(result, Stream):
        return result
    if kind is types.GeneratorType:
        return Generator(result)
    if kind is types.AsyncGeneratorType:
        return AsyncGenerator(result)
    if hasattr(kind, "__await__"):
        return Awaitable(result)
    return None


def is_coroutine_function(function: Any) -> bool:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & CO_COROUTINE)


def _piece(value: Any) -> Tuple[bool, Any, int]:
    """Splits what was yielded into a piece and how long to rest."""
    if type(value) is not tuple:
        return True, value, 0
    if len(value) != 2 or isinstance(value[1], bool) or not isinstance(value[1], (int, float)):
        raise TypeError("yield a piece, or a piece and the seconds to rest: yield piece, seconds")
    if not 0 <= value[1] <= REST_MAX_S:
        raise ValueError(f"yield piece, seconds: seconds must be from 0 to {REST_MAX_S}, got "
                         f"{value[1]}")
    return True, value[0], math.ceil(value[1] * 1000)


class Generator(Stream):
    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.begun = False

    def resume(self, row: Any, stop: Optional[str]) -> Optional[Tuple[bool, Any, int]]:
        try:
            if not self.begun:
                self.begun = True
                return _piece(next(self.generator))
            return _piece(self.generator.send(stop))
        except StopIteration as end:
            return False, end.value, 0

    def close(self) -> None:
        self.generator.close()


class Awaitable(Stream):
    """An `async def` step: one task of the loop."""

    def __init__(self, awaitable: Any) -> None:
        self.awaitable = awaitable
        self.task: Optional["asyncio.Future[Any]"] = None

    def resume(self, row: Any, stop: Optional[str]) -> Optional[Tuple[bool, Any, int]]:
        if self.task is None:
            import asyncio

            self.task = asyncio.ensure_future(self.awaitable, loop=loop())
            self.task.add_done_callback(lambda _: row.wake())
            return None
        if stop is not None and not self.task.done():
            self.task.cancel()
            let_end(self.task)
            if not self.task.done():
                raise RuntimeError(f"the step was told to end ({stop}), and did not")
        if not self.task.done():
            return None
        return False, self.task.result(), -1

    def close(self) -> None:
        if self.task is None:
            if type(self.awaitable) is types.CoroutineType:
                self.awaitable.close()
        elif not self.task.done():
            self.task.cancel()
            let_end(self.task)


class AsyncGenerator(Stream):
    """An `async def` step with yield: a task for each piece."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.task: Optional["asyncio.Future[Any]"] = None
        self.begun = False

    def resume(self, row: Any, stop: Optional[str]) -> Optional[Tuple[bool, Any, int]]:
        if self.task is None:
            self.task = loop().create_task(self.step(stop if self.begun else None))
            self.task.add_done_callback(lambda _: row.wake())
            self.begun = True
            if stop is None:
                return None
            let_end(self.task)
        elif stop is not None and not self.task.done():
            self.task.cancel()
            let_end(self.task)
        if not self.task.done():
            if stop is not None:
                raise RuntimeError(f"the step was told to end ({stop}), and did not")
            return None
        task, self.task = self.task, None
        more, value = task.result()
        return _piece(value) if more else (False, None, 0)

    async def step(self, stop: Optional[str]) -> Tuple[bool, Any]:
        try:
            return True, await self.generator.asend(stop)
        except StopAsyncIteration:
            return False, None

    def close(self) -> None:
        if self.task is not None and not self.task.done():
            self.task.cancel()
            let_end(self.task)
        let_end(loop().create_task(self.generator.aclose()))


# --- asyncio ---

_loop: "Optional[asyncio.AbstractEventLoop]" = None


def loop() -> "asyncio.AbstractEventLoop":
    """The worker's loop. The worker waits for its events together with the server's frames."""
    global _loop
    if _loop is None:
        import asyncio
        import selectors

        selector = selectors.EpollSelector()
        _loop = asyncio.SelectorEventLoop(selector)
        asyncio.set_event_loop(_loop)
        _worker.loop_begin(selector.fileno())
    return _loop


def turn() -> int:
    """Runs what can run, and waits for nothing. Returns the ms until the loop's next timer, or -1.
    """
    this = loop()
    # run_forever() looks for events and runs everything that is ready, once, and then stops.
    this.call_soon(this.stop)
    this.run_forever()
    if getattr(this, "_ready", ()):
        return 0
    timers = [timer for timer in getattr(this, "_scheduled", ())[:1]]
    if not timers:
        return -1
    return max(0, math.ceil((timers[0].when() - this.time()) * 1000))


def let_end(task: "asyncio.Future[Any]") -> None:
    """Lets a task end that was cancelled, or told to end, as long as it waits for nothing."""
    for _ in range(TURNS_TO_END):
        if task.done():
            break
        turn()


def finish(value: Any) -> Any:
    """Returns the value, or its result if it must be awaited."""
    if not hasattr(type(value), "__await__"):
        return value
    import asyncio

    task = asyncio.ensure_future(value, loop=loop())
    try:
        return loop().run_until_complete(task)
    except TimeUp:
        task.cancel()
        let_end(task)
        raise


def _wait_for(function: Any) -> Any:
    return lambda *args: finish(function(*args))


# --- time ---

class TimeUp(BaseException):
    """Raised in a call whose time is up. It is not an Exception, so that `except Exception` in a
    handler does not catch it."""


def on_alarm(number: int, frame: Any) -> None:
    limit_ms = _worker.overdue()
    if limit_ms:
        raise TimeUp(f"the handler reached its time limit of {limit_ms} ms")


# --- errors ---

def report(error: BaseException) -> Tuple[str, int, str, str]:
    """(kind, status, message, traceback) of an exception that left the handler.

    kind is "refused" or "lost" (with a status; the state of the sequence is lost), "memory",
    "deadline" or "failed".
    """
    kind, status, message, traceback = _report(error)
    return kind, status, _printable(message), _printable(traceback)


def _printable(text: str) -> str:
    """The text without what cannot be a C string in UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _report(error: BaseException) -> Tuple[str, int, str, str]:
    if isinstance(error, Refuse):
        lost = getattr(error, "close_reason", None) == "worker_lost"
        return "lost" if lost else "refused", error.status, error.message, ""
    where = _place(error)
    if isinstance(error, TimeUp):
        return "deadline", 0, f"{where}{error}", _traceback(error)
    if isinstance(error, MemoryError):
        return "memory", 0, f"{where}{_out_of_memory()}", _traceback(error)
    if isinstance(error, SyntaxError) and error.filename:
        name = os.path.basename(error.filename)
        line = (error.text or "").rstrip("\n")
        caret = " " * max(0, (error.offset or 1) - 1) + "^"
        return ("failed", 0, f"{name}:{error.lineno}: {type(error).__name__}: {error.msg}",
                f"{line}\n{caret}" if line else "")
    if isinstance(error, SystemExit):
        return ("failed", 0, f"{where}the handler called sys.exit({error.code!r}), but a step must "
                             f"not end its worker", _traceback(error))
    if type(error).__name__ in ("HandlerError", "StateError"):
        return "failed", 0, str(error), ""
    text = str(error)
    name = type(error).__name__
    message = f"{where}{name}: {text}" if text else f"{where}{name}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        message += (f" (install the package that has it for {sys.executable}, or name another "
                    f"interpreter with the key python of the model's YAML)")
    if _means_missing_state(error):
        message += (": this model is not stateful, so it has no state; sequenceBatching: true in "
                    "the model's YAML makes it stateful")
    return "failed", 0, message, _traceback(error)


def _means_missing_state(error: BaseException) -> bool:
    """Has the handler used the state of a model that keeps none, which is None?"""
    at = error.__traceback__
    if not isinstance(error, (TypeError, AttributeError)) or "NoneType" not in str(error):
        return False
    if _model is None or _model.stateful or _program is None:
        return False
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_name == "step" and code.co_argcount > 0:
            return at.tb_next is None and at.tb_frame.f_locals.get(
                code.co_varnames[code.co_argcount - 2 if code.co_argcount > 1 else 0], 0) is None
        at = at.tb_next
    return False


def _out_of_memory() -> str:
    limit = _worker.memory_limit()
    if not limit:
        return "the handler has no memory left"
    return (f"the handler and its states reached the memory limit of {limit} bytes "
            f"(handler.limits.memoryBytes)")


def _place(error: BaseException) -> str:
    """Returns "handler.py:12: " for the last line of the model's own files through which the error came."""
    place = ""
    folder = os.path.join(os.path.realpath(_model.dir), "")
    at = error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if os.path.realpath(file).startswith(folder):
            place = f"{os.path.relpath(os.path.realpath(file), folder)}:{at.tb_lineno}: "
        at = at.tb_next
    return place


def _traceback(error: BaseException) -> str:
    """The traceback without the frames of this package; a long one loses its middle."""
    import traceback

    own = os.path.dirname(__file__)
    at = error.__traceback__
    while at is not None and os.path.dirname(at.tb_frame.f_code.co_filename) == own:
        at = at.tb_next
    text = "".join(traceback.format_exception(type(error), error, at)).rstrip("\n")
    if len(text) > _traceback_bytes:
        left_out = len(text) - _traceback_bytes
        text = (f"{text[:_traceback_bytes // 3]}\n... {left_out} characters are left out "
                f"(handler.tracebackBytes) ...\n{text[-(_traceback_bytes * 2 // 3):]}")
    return text
