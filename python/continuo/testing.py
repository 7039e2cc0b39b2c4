"""Requests for tests of handlers, without a server."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from continuo.types import Part, Request

__all__ = ["request"]


BYTES_OF = {"BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2,
            "INT32": 4, "INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8}


class Row:
    """Stands for the worker's own object under a request."""

    named_request = True

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.sent: List[Any] = []

    def parts(self) -> List[Part]:
        return self._parts

    def plain_parts(self) -> Optional[Dict[str, bytearray]]:
        if any(part.content_type for part in self._parts):
            return None
        return {part.name: bytearray(part.data) for part in self._parts}

    def parameters(self) -> List[Part]:
        return [part for part in self._parts if part.content_type.startswith("parameter/")]

    def headers(self) -> List[Tuple[str, str]]:
        return self._headers

    def inputs(self) -> List[Tuple[str, str, Tuple[int, ...], Any]]:
        return self._inputs

    def send(self, piece: Any) -> None:
        self.sent.append(piece)


def _check(name: str, datatype: str, shape: Tuple[int, ...], data: Any) -> None:
    """The server checks this before a handler sees a request."""
    if datatype not in BYTES_OF:
        return
    bytes_given, bytes_due = memoryview(data).nbytes, BYTES_OF[datatype] * math.prod(shape)
    if bytes_given != bytes_due:
        raise ValueError(f"input '{name}' has {bytes_given} bytes, but {datatype} of shape "
                         f"{tuple(shape)} takes {bytes_due}")


def request(body: Any = b"", *, parts: Optional[Iterable[Part]] = None,
            headers: Optional[Mapping[str, str]] = None,
            inputs: Iterable[Tuple[str, str, Tuple[int, ...], Any]] = (),
            sequence_id: Optional[str] = None, request_id: str = "test", start: bool = False,
            end: bool = False, step: int = 0, deadline: Optional[float] = None,
            stop: Optional[str] = None, explain: bool = False, state: Any = None) -> Request:
    """Makes a request. What the handler sends is in request(...)._row.sent."""
    if isinstance(body, str):
        body = body.encode()
    inputs = list(inputs)
    for each in inputs:
        _check(*each)
    all_parts = [Part("body", body)] if parts is None else list(parts)
    named = {part.name: part.data for part in reversed(all_parts)}
    if parts is not None:
        body = named.get("body", named.get("data", all_parts[0].data if all_parts else b""))
    row = Row(body=body, _parts=all_parts, _headers=list((headers or {}).items()),
              _inputs=inputs, sequence_id=sequence_id, request_id=request_id, start=start,
              end=end, step=step, deadline_ms=-1 if deadline is None else int(deadline * 1000),
              stop=stop, explain=explain)
    return Request(row, state)
