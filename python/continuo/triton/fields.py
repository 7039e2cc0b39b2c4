"""The fields of Tensor, InferenceRequest and InferenceResponse, which are derived from these classes.

A step makes some objects of each, so the worker has these classes in C (handlers/python/py_triton.c).
It also makes the requests, and packs the usual responses. Where there is no worker, as in tests of a
model without a build, the classes below take their place.
"""

from __future__ import annotations

from typing import Any, List

__all__ = ["RequestFields", "ResponseFields", "TensorFields", "receive", "use_triton"]

try:
    from continuo._worker import (RequestFields, ResponseFields,  # type: ignore[attr-defined]
                                  TensorFields, receive, use_triton)
except ImportError:
    class TensorFields:  # type: ignore[no-redef]
        __slots__ = ("_name", "_value", "_raw")

        def __init__(self, *args: Any, **named: Any) -> None:
            self._begin(*args, **named)  # type: ignore[attr-defined]

        def as_numpy(self) -> Any:
            return self._as_numpy()  # type: ignore[attr-defined]

    class RequestFields:  # type: ignore[no-redef]
        pass

    class ResponseFields:  # type: ignore[no-redef]
        def __init__(self, *args: Any, **named: Any) -> None:
            self._begin(*args, **named)  # type: ignore[attr-defined]

    def use_triton(*_: Any) -> None:
        """The worker gets the classes with which it makes requests and knows responses."""

    def receive(reqs: List[Any], outputs: List[str], make_sender: Any) -> List[Any]:
        from continuo.triton.messages import InferenceRequest

        return [InferenceRequest._received(req._row, outputs, make_sender) for req in reqs]
