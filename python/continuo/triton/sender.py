"""Responses that a model sends by itself: InferenceResponseSender, and the stream behind it.

A model may send from any thread. A response waits in its sender until the worker takes it: the
worker's thread reads the stream, which waits while the sender has nothing, and the sender wakes the
worker through its asyncio loop, the one way into it that other threads have.

A client that reads slowly makes the worker take nothing. Then responses pile up in the sender, and
send() waits once there are WAITING_MAX of them, unless it is called in the worker's own thread.
"""

from __future__ import annotations

import collections
import threading
from typing import Any, Callable, Deque, Optional, Tuple

from continuo.triton import errors, metrics
from continuo.triton.errors import TritonModelException
from continuo.types import Refuse, Stream

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

#: How many responses of one request may wait until the worker takes them.
WAITING_MAX = 1024

#: How many responses of one request the worker takes before other steps have their turn.
TURN_MAX = 64


class InferenceResponseSender:
    """Sends responses for one request: send(response), and in the end send(flags=...FINAL)."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        #: (response or None, is it the end?)
        self._waiting: Deque[Tuple[Any, bool]] = collections.deque()
        self._final = False
        self._failed: Optional[BaseException] = None
        #: Why nobody takes responses any more; None: somebody does.
        self._stopped: Optional[str] = None

    def send(self, response: Any = None, flags: int = 0) -> None:
        """Sends a response, or with TRITONSERVER_RESPONSE_COMPLETE_FINAL the end, or both."""
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException(f"send(response, flags): flags must be 0 or "
                                       f"TRITONSERVER_RESPONSE_COMPLETE_FINAL, got {flags!r}")
        if response is None and flags == 0:
            raise TritonModelException("send(): a response is needed, except with the flag "
                                       "TRITONSERVER_RESPONSE_COMPLETE_FINAL")
        if response is not None and not hasattr(response, "output_tensors"):
            raise TritonModelException(f"send(response, flags): an InferenceResponse is needed, "
                                       f"got a {type(response).__name__}")
        with self._changed:
            if self._final:
                raise TritonModelException("send(): the sender is closed, because the flag "
                                           "TRITONSERVER_RESPONSE_COMPLETE_FINAL was sent before")
            if threading.current_thread() is not threading.main_thread():
                self._changed.wait_for(lambda: len(self._waiting) < WAITING_MAX or self._stopped)
            self._final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
            if self._stopped is None:
                self._waiting.append((response, self._final))
        self._wake()

    def is_cancelled(self) -> bool:
        """Has the client left, or must the request end for another reason?"""
        return self._stopped is not None

    # --- for the worker

    def fail(self, error: BaseException) -> bool:
        """The model's call has raised: what has no end yet ends with this error. Returns whether it
        had none."""
        with self._changed:
            if self._final:
                return False
            self._final = True
            self._failed = error
            self._waiting.append((None, True))
        self._wake()
        return True

    def stop(self, reason: str) -> None:
        with self._changed:
            self._stopped = self._stopped or reason
            self._waiting.clear()
            self._changed.notify_all()

    def n_waiting(self) -> int:
        return len(self._waiting)

    def take(self) -> Tuple[Any, bool]:
        """The next response, and whether it is the end. (None, True): the end alone; (None, False):
        nothing yet."""
        with self._changed:
            taken = self._waiting.popleft() if self._waiting else (None, False)
            self._changed.notify()
            return taken

    def put_back(self, response: Any, last: bool) -> None:
        with self._changed:
            self._waiting.appendleft((response, last))

    def failure(self) -> Optional[BaseException]:
        return self._failed


class ResponseStream(Stream):
    """A request that is answered by its sender. `render` makes a reply of a response."""

    def __init__(self, sender: InferenceResponseSender, decoupled: bool,
                 render: Callable[[Any], Any]) -> None:
        self.sender = sender
        self.decoupled = decoupled
        self.render = render
        self.only: Any = None

    def resume(self, row: Any, stop: Optional[str]) -> Optional[Tuple[bool, Any, int]]:
        try:
            return self.go_on(row, stop)
        except BaseException:
            self.sender.stop("error")  # else send() could wait for ever: nobody takes responses now
            raise

    def go_on(self, row: Any, stop: Optional[str]) -> Optional[Tuple[bool, Any, int]]:
        metrics.flush()
        n_pieces = 0
        # A model may send faster than the worker takes, so the queue need never be empty.
        for _ in range(TURN_MAX if stop is None else self.sender.n_waiting()):
            response, last = self.sender.take()
            if response is not None and response.has_error():
                if n_pieces:  # what was sent before leaves first
                    self.sender.put_back(response, last)
                    return True, None, 0
                raise errors.refusal(response.error())
            if response is not None and not self.decoupled and self.only is not None:
                raise TritonModelException("expected a single response, got 2: a model that is not "
                                           "decoupled has one response for each request")
            if response is not None:
                reply = self.render(response)
                if last or not self.decoupled:
                    self.only = reply
                else:
                    row.send(reply)
                    n_pieces += 1
            if last:
                return self.end(n_pieces)
            if response is None:
                break
        else:
            if stop is None:
                return True, None, 0
        if stop is None:
            return None
        self.sender.stop(stop)
        if stop == "deadline":
            raise Refuse("the model has not sent the end of its responses within the time that "
                         "stream.timeoutMSec allows", 503)
        return False, None, 0

    def end(self, n_pieces: int) -> Tuple[bool, Any, int]:
        failed = self.sender.failure()
        if failed is not None:
            if n_pieces:  # what was sent before leaves first
                self.sender.put_back(None, True)
                return True, None, 0
            raise failed
        if not self.decoupled and self.only is None:
            raise TritonModelException("the model has sent the end of a request without a "
                                       "response, but a model that is not decoupled has one "
                                       "response for each request")
        return False, self.only, 0

    def close(self) -> None:
        self.sender.stop("gone")
