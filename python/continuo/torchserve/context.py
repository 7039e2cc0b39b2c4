"""The context of a batch: the second argument of a TorchServe handler.

There is one Context in a worker, and handlers may set attributes of their own on it (many keep
`context.cache`). Requests are named by their index in the batch.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from continuo.torchserve.fields import ProcessorFields
from continuo.torchserve.rows import (SEQUENCE_END, SEQUENCE_ID, SEQUENCE_START, RequestHeaders,
                                      headers_of)
from continuo.types import Request

#: The version of TorchServe whose interface this is.
API_VERSION = "0.12.0"


class RequestProcessor(ProcessorFields):
    """The headers of one request, and the status and headers of its answer."""

    def __init__(self, request_header: Optional[Mapping[str, Any]] = None,
                 request: Optional[Request] = None, sequence_id: Optional[str] = None) -> None:
        """`sequence_id`: the request's own, if there is no `request_header`."""
        super().__init__()
        if request_header is not None:
            self._headers = RequestHeaders(request_header)
        if request is not None:
            self._request = request
        if sequence_id is not None:
            self._sequence_id = sequence_id

    def get_request_properties(self) -> Dict[str, Any]:
        if self._headers is None:  # most handlers read no header, so they are made on demand
            self._headers = headers_of(self._request) if self._request else RequestHeaders()
        return self._headers

    def report_status(self, code: int, reason_phrase: Optional[str] = None) -> None:
        self._status = code
        self._phrase = reason_phrase

    def get_response_status_code(self) -> int:
        return 200 if self._status is None else self._status

    def get_response_status_phrase(self) -> Optional[str]:
        return self._phrase

    def get_response_header(self, key: str) -> Optional[str]:
        return self.get_response_headers().get(key)


class _NoProcessors:
    """In place of a list of them."""

    def __getitem__(self, idx: int) -> RequestProcessor:
        raise LookupError("the context has no request: none is being handled now")


_NONE = _NoProcessors()


class Context:
    """What a handler may ask about the model, and about the requests of the batch that runs."""

    def __init__(self, model_name: str, model_dir: str, manifest: Optional[Dict[str, Any]],
                 batch_size: int, gpu: Optional[int], mms_version: str = API_VERSION,
                 limit_max_image_pixels: bool = True, metrics: Any = None,
                 model_yaml_config: Optional[Dict[str, Any]] = None) -> None:
        self.model_name = model_name
        self.manifest = manifest
        self.model_yaml_config = model_yaml_config
        self.metrics = metrics
        self.system_properties: Dict[str, Any] = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "MMS",  # what TorchServe says, too
            "server_version": mms_version,
            "limit_max_image_pixels": limit_max_image_pixels,
        }
        #: The requests' ids by their index.
        self.request_ids: Optional[Dict[int, str]] = None
        self.request_processor: Optional[List[RequestProcessor]] = None
        #: With continuousBatching: a function for each request, which tells whether its stream
        #: ends with this result. None: the request is answered by one plain answer.
        self.stopping_criteria: Any = None
        self.header_key_sequence_id = os.getenv("TS_REQUEST_SEQUENCE_ID", SEQUENCE_ID)
        self.header_key_sequence_start = os.getenv("TS_REQUEST_SEQUENCE_START", SEQUENCE_START)
        self.header_key_sequence_end = os.getenv("TS_REQUEST_SEQUENCE_END", SEQUENCE_END)
        #: Handlers that write answers themselves write them here (frames.py).
        self.cl_socket: Any = None

    def processor(self, idx: int) -> RequestProcessor:
        return (self.request_processor or _NONE)[idx]

    def get_request_id(self, idx: int = 0) -> Optional[str]:
        return None if self.request_ids is None else self.request_ids.get(idx)

    def get_request_header(self, idx: int, key: str) -> Any:
        return self.processor(idx).get_request_property(key)

    def get_all_request_header(self, idx: int) -> Dict[str, Any]:
        return self.processor(idx).get_request_properties()

    # Handlers call the next method and set_response_header() for each row, so these two do without
    # the call of processor().
    def get_sequence_id(self, idx: int) -> Any:
        return (self.request_processor or _NONE)[idx].get_request_property(
            self.header_key_sequence_id)

    def get_response_status(self, idx: int) -> Tuple[int, Optional[str]]:
        processor = self.processor(idx)
        return processor.get_response_status_code(), processor.get_response_status_phrase()

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        if self.request_processor is not None and self.request_processor[idx] is not None:
            self.request_processor[idx].report_status(code, reason_phrase=phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        for processor in self.request_processor or ():
            processor.report_status(code, reason_phrase=phrase)

    def get_response_headers(self, idx: int) -> Dict[str, str]:
        return self.processor(idx).get_response_headers()

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        (self.request_processor or _NONE)[idx].add_response_property(key, value)

    def get_response_content_type(self, idx: int) -> Optional[str]:
        return self.get_response_headers(idx).get("content-type")

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.set_response_header(idx, "content-type", value)
