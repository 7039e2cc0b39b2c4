"""Turns what a handler returned, or raised, into replies for the worker.

What a TorchServe handler returns must be a list with one element for each request. If it is not, or
if one element cannot be sent, no request of the batch has an answer.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any, Dict, List, Optional, Tuple, Union

from continuo.torchserve.context import Context, RequestProcessor
from continuo.torchserve.rows import names_in
from continuo.types import CheckedReply, Refuse

logger = logging.getLogger(__name__)

STREAM_NEXT = "ts_stream_next"


class BadResult(Refuse):
    """The handler did not return what it must. The message and the status are TorchServe's."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503)


#: TorchServe's JSON. An encoder of our own is not made anew for each answer.
_dumps = json.JSONEncoder(indent=2).encode


def encode(value: Any) -> bytes:
    """Returns the bytes of an answer. Raises BadResult for a value that JSON does not have."""
    kind = type(value)
    if kind is int:
        return b"%d" % value
    if kind is bytes:
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, bytearray):
        return bytes(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        return buffer.getvalue()
    return encode_json(value)


def encode_json(value: Any) -> bytes:
    try:
        return _dumps(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        logger.warning("the handler returned a %s that cannot be sent: %s", type(value).__name__,
                       error)
        raise BadResult("Unsupported model output data type.") from None


def check_length(result: Any, n: int) -> List[Any]:
    """The result, if it is a list of n elements; else raises BadResult."""
    if not isinstance(result, list):
        logger.warning("the handler must return a list with one element for each of the %d "
                       "requests; it returned a %s", n, type(result).__name__)
        raise BadResult("Invalid model predict output")
    if len(result) != n:
        logger.warning("the handler must return one element for each of the %d requests; it "
                       "returned %d", n, len(result))
        raise BadResult("number of batch response mismatched")
    return result


def of_exception(error: Exception) -> Exception:
    """Returns the replies to the requests of a batch after the handler raised this exception."""
    if isinstance(error, (Refuse, MemoryError)):
        return error
    code = getattr(error, "error_code", None)
    if type(error).__name__ == "PredictionException" and code is not None:
        message = str(getattr(error, "message", error))
        if isinstance(code, int) and 400 <= code <= 599:
            return Refuse(message, code)
        logger.warning("PredictionException(%r, %r): a status of an error is from 400 to 599; the "
                       "client gets 500", message, code)
        return Refuse(message, 500)
    if "CUDA" in str(error):
        logger.error("the handler failed for want of device memory: %s", error)
        return MemoryError(str(error))
    return error


def reply(processor: RequestProcessor, body: bytes,
          ends: bool = False) -> Union[bytes, CheckedReply]:
    """The answer of one request with the status and the headers that the handler has set.

    An answer has no content type unless the handler sets one.
    """
    headers = processor.get_response_headers()
    status = processor.get_response_status_code() or 200
    if not headers and status == 200 and not ends:
        return body
    kind = ""
    for name, value in headers.items():
        if type(name) is not str or type(value) is not str or name.lower() == "content-type":
            kind, headers = _split_headers(headers)
            break
    return tuple.__new__(CheckedReply, (body, kind, status, headers, ends))  # the fastest way


def _split_headers(headers: Dict[str, Any]) -> Tuple[str, Dict[str, str]]:
    """The content type, and the other headers as texts."""
    kind = ""
    kept: Dict[str, str] = {}
    for name, value in headers.items():
        if name.lower() == "content-type":
            kind = str(value)
        else:
            kept[str(name)] = str(value)
    return kind, kept


def ended_sequences(context: Context, n: int) -> List[str]:
    """The ids that the handler has put into the end header of an answer (continuousBatching)."""
    found: List[str] = []
    for idx in range(n):
        value = context.get_response_headers(idx).get(context.header_key_sequence_end)
        if value:
            found += names_in(str(value))
    return found
