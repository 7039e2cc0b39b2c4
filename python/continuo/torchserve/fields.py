"""The fields of RequestProcessor, which is derived from ProcessorFields.

A step makes one of them, so the worker has this class in C (handlers/python/py_torchserve.c). It also
reads the usual requests, and makes the usual answers. Where there is no worker, as in tests of a
handler without a build, what is below takes its place.
"""

from __future__ import annotations

from typing import Any, Dict, List

__all__ = ["ProcessorFields", "give_results", "plain_data", "receive_rows", "use_torchserve"]

try:
    from continuo._worker import (ProcessorFields, give_results,  # type: ignore[attr-defined]
                                  plain_data, receive_rows, use_torchserve)
except ImportError:
    class ProcessorFields:  # type: ignore[no-redef]
        _headers: Any = None
        _request: Any = None
        _sequence_id: Any = None
        _status: Any = None
        _phrase: Any = None

        def __init__(self) -> None:
            self._response_headers: Dict[str, str] = {}

        def get_request_property(self, key: str) -> Any:
            from continuo.torchserve.rows import SEQUENCE_ID

            if key == SEQUENCE_ID and self._headers is None:
                return self._sequence_id
            return self.get_request_properties().get(key)  # type: ignore[attr-defined]

        def add_response_property(self, key: str, value: str) -> None:
            self._response_headers[key] = value

        def get_response_headers(self) -> Dict[str, str]:
            return self._response_headers

    def use_torchserve(*_: Any) -> None:
        """The worker gets the class with which it makes processors, and what it cannot do itself."""

    def receive_rows(states: List[Any], reqs: List[Any]) -> Any:
        """The processors, the requests' ids by their index, and the states by sequence."""
        from continuo.torchserve.context import RequestProcessor

        return ([RequestProcessor(None, req, req.sequence_id) for req in reqs],
                {idx: req.request_id for idx, req in enumerate(reqs)},
                {req.sequence_id: state for req, state in zip(reqs, states)
                 if req.sequence_id is not None})

    def plain_data(reqs: List[Any]) -> Any:
        """The parts of all requests by name; None if a part has a content type."""

    def give_results(processors: Any, results: List[Any]) -> Any:
        """Replies; None if the results or their headers are not of the usual kind."""
