"""What a handler of TorchServe gets of a request: a dict of its parameters, and its headers."""

from __future__ import annotations

import json
import logging
from typing import Any, Dict, List, Optional

from continuo.types import Request

logger = logging.getLogger(__name__)

SEQUENCE_ID = "ts_request_sequence_id"
SEQUENCE_START = "ts_request_sequence_start"
SEQUENCE_END = "ts_request_sequence_end"


def decode(name: str, data: bytes, content_type: str, decodes: bool = True) -> Any:
    """A parameter's value: JSON is parsed, text is a str, and everything else a bytearray."""
    if decodes and content_type == "application/json":
        try:
            return json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            logger.warning("parameter %s is not the JSON that its type says, so the handler gets "
                           "its bytes: %s", name, error)
    elif decodes and content_type.startswith("text"):
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            logger.warning("parameter %s is not UTF-8 text, so the handler gets its bytes: %s",
                           name, error)
    return bytearray(data)


def is_instance(req: Request) -> bool:
    """Returns whether the value is one instance of a service envelope that the server has opened."""
    return bool(getattr(req._row, "instance", False))


def data_of(req: Request, decodes: bool = True, opened: bool = False) -> Any:
    """One entry of the list `data`: a dict, in which the last parameter of a name counts.

    `opened`: it is an instance of an envelope, which is its value.
    """
    if opened:
        return json.loads(req.body)
    row = req._row
    return row.plain_parts() or {
        name: decode(name, data, content_type, decodes) if content_type else bytearray(data)
        for name, data, content_type in row.parts()}


class RequestHeaders(Dict[str, Any]):
    """A request's headers, with their names as the client sent them.

    get() first looks for the very name, as TorchServe does; if there is none, case does not matter
    and `-` and `_` mean the same, because proxies and HTTP/2 change the spelling of names.
    """

    _folded: Optional[Dict[str, str]] = None

    def get(self, key: Any, default: Any = None) -> Any:
        if key in self:
            return self[key]
        if self._folded is None:
            self._folded = {_fold(name): name for name in self}
        name = self._folded.get(_fold(str(key)))
        return default if name is None else self[name]


def headers_of(req: Request) -> RequestHeaders:
    """The headers, those that TorchServe's server adds, and the types of the parameters."""
    row = req._row
    headers = RequestHeaders()
    for name, _, content_type in row.parts():
        headers[name] = {"content-type": content_type}
    if req.explain:
        headers["explain"] = "True"
    headers["url_path"] = ""
    for name, value in row.headers():
        headers[name] = value
    if req.sequence_id is not None:
        headers[SEQUENCE_ID] = req.sequence_id
        if getattr(row, "generated_id", False):
            headers[SEQUENCE_START] = "true"
    return headers


def names_in(value: str) -> List[str]:
    """The ids in a header that may hold several, separated by semicolons."""
    return [name.strip() for name in value.split(";") if name.strip()]


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")
