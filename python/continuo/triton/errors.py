"""TritonError, which answers one request, and TritonModelException, which models may raise."""

from __future__ import annotations

from typing import Any

from continuo.types import Refuse


class TritonModelException(Exception):
    """A wrong use of the module triton_python_backend_utils, or what a model itself raises."""


class TritonError:
    """The error of one response: TritonError(message, code)."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        if not isinstance(message, str):
            raise TypeError(f"TritonError(message, code): the message must be a str, got "
                            f"{type(message).__name__}")
        if isinstance(code, bool) or not isinstance(code, int) or code not in STATUS:
            raise ValueError(f"TritonError(message, code): the code must be one of the constants "
                             f"of TritonError, from 0 to {max(STATUS)}, got {code!r}")
        self._message = message
        self._code = code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code

    def __repr__(self) -> str:
        return f"TritonError({self._message!r}, {self._code})"

    def __str__(self) -> str:
        return self._message


#: Codes as HTTP statuses.
STATUS = {TritonError.UNKNOWN: 500, TritonError.INTERNAL: 500, TritonError.NOT_FOUND: 404,
          TritonError.INVALID_ARG: 400, TritonError.UNAVAILABLE: 503,
          TritonError.UNSUPPORTED: 501, TritonError.ALREADY_EXISTS: 409,
          TritonError.CANCELLED: 499}


def refusal(error: Any) -> Refuse:
    """What answers the request that has this error."""
    return Refuse(error.message(), STATUS[error.code()])
