"""What a Triton model gets and gives: InferenceRequest and InferenceResponse."""

from __future__ import annotations

import json
from typing import Any, Callable, List, NoReturn, Optional, Set, Union

from continuo.triton.errors import TritonError, TritonModelException
from continuo.triton.fields import RequestFields, ResponseFields
from continuo.triton.sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceResponseSender
from continuo.triton.tensor import Tensor
from continuo.types import parameters_of

__all__ = ["InferenceRequest", "InferenceResponse", "InferenceTrace", "PreferredMemory",
           "TRITONSERVER_MEMORY_CPU", "TRITONSERVER_MEMORY_GPU",
           "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END", "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
           "TRITONSERVER_REQUEST_RELEASE_ALL", "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
           "TRITONSERVER_RESPONSE_COMPLETE_FINAL", "TritonError", "TritonModelException",
           "get_input_tensor_by_name", "get_output_tensor_by_name", "is_model_ready",
           "load_model", "unload_model"]

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_GPU = 1

#: The first character of a sequence id that the client gave as an integer.
_NUMBER = "\x01"


def _refuse_bls(what: str) -> NoReturn:
    raise TritonModelException(
        f"{what}: a model cannot call other models of this server from within (Triton's business "
        f"logic scripting, BLS). Call the other model over the network, for example by "
        f"tritonclient, or put both into one model")


class PreferredMemory:
    """Where a response of another model should lie. It has no effect without BLS."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceTrace:
    """A request's trace. Traces are lines of the server's log, so this one is empty."""

    def get_context(self) -> None:
        return None


def correlation_of(sequence_id: Optional[str]) -> Union[int, str]:
    """A sequence's id as Triton has it: an int or a str; 0 without a sequence.

    An int with an owner before it stays a str, which begins with _NUMBER."""
    if not sequence_id:
        return 0
    digits = sequence_id[1:]
    return int(digits) if sequence_id[0] == _NUMBER and digits.isdecimal() else sequence_id


class InferenceRequest(RequestFields):
    """One request of a batch. Models make one themselves for BLS only, which is not available."""

    def __init__(self, request_id: str = "", correlation_id: Union[int, str] = 0,
                 inputs: Optional[List[Tensor]] = None,
                 requested_output_names: Optional[List[str]] = None, model_name: str = "",
                 model_version: int = -1, flags: int = 0, timeout: int = 0,
                 preferred_memory: Optional[PreferredMemory] = None,
                 trace: Optional[InferenceTrace] = None, parameters: Any = None) -> None:
        del preferred_memory, model_version
        self._request_id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs or ())
        self._outputs = list(requested_output_names or ())
        self._model_name = model_name
        self._flags = flags
        self._timeout = timeout
        self._trace = trace
        #: A dict, or the worker's list of those that a client has sent; None: there are none.
        self._parameters: Any = dict(parameters or {})
        self._row: Any = None
        self._make_sender: Optional[Callable[[Any], InferenceResponseSender]] = None
        #: What answers the request by itself; None: execute() returns the response.
        self._sender: Optional[InferenceResponseSender] = None

    # What a request has that a client has sent.
    _model_name = ""
    _timeout = 0
    _trace: Optional[InferenceTrace] = None

    @classmethod
    def _received(cls, row: Any, outputs: List[str], make_sender: Any) -> InferenceRequest:
        """What a client has sent, if the worker does not make it."""
        flags = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START if row.sequence_id and row.start else 0
        self = cls(row.request_id if row.named_request else "", correlation_of(row.sequence_id),
                   [Tensor._received(*each) for each in row.inputs()], outputs,
                   flags=flags | (TRITONSERVER_REQUEST_FLAG_SEQUENCE_END if row.end else 0))
        self._parameters = row.parameters()
        self._row = row
        self._make_sender = make_sender
        return self

    def inputs(self) -> List[Tensor]:
        return list(self._inputs)

    def request_id(self) -> str:
        """The id that the client gave; otherwise empty."""
        return self._request_id

    def correlation_id(self) -> Union[int, str]:
        """The id of the sequence, an int or a str; 0 without one."""
        return self._correlation_id

    def requested_output_names(self) -> Set[str]:
        """The names of the model's outputs, also when the client wants some of them only."""
        return set(self._outputs)

    def flags(self) -> int:
        return self._flags

    def set_flags(self, flags: int) -> None:
        self._flags = flags

    def timeout(self) -> int:
        """0: the server itself watches over the time."""
        return self._timeout

    def trace(self) -> InferenceTrace:
        if self._trace is None:
            self._trace = InferenceTrace()
        return self._trace

    def parameters(self) -> str:
        """The request's own parameters as a JSON object."""
        given = self._parameters or {}
        return json.dumps(parameters_of(given) if isinstance(given, list) else given)

    def is_cancelled(self) -> bool:
        """Has the client left?"""
        return self._sender is not None and self._sender.is_cancelled()

    def get_response_sender(self) -> InferenceResponseSender:
        """Sends responses for this request from now on, instead of what execute() returns."""
        if self._make_sender is None:
            raise TritonModelException("get_response_sender(): only a request that a client has "
                                       "sent has a sender")
        if self._sender is None:
            self._sender = self._make_sender(self._row)
        return self._sender

    def set_release_flags(self, flags: int) -> None:
        """Only RELEASE_ALL can be set, which is the default."""
        if flags != TRITONSERVER_REQUEST_RELEASE_ALL:
            raise TritonModelException("set_release_flags(RESCHEDULE): a request is not run again "
                                       "(iterative_sequence is not supported). Send responses by "
                                       "get_response_sender() of a decoupled model instead")

    def exec(self, decoupled: bool = False) -> Any:  # noqa: A003 (Triton's name)
        del decoupled
        _refuse_bls(f"InferenceRequest(model_name=\"{self._model_name}\").exec()")

    async def async_exec(self, decoupled: bool = False) -> Any:
        del decoupled
        _refuse_bls(f"InferenceRequest(model_name=\"{self._model_name}\").async_exec()")


class InferenceResponse(ResponseFields):
    """One response: outputs, or an error."""

    def _begin(self, output_tensors: Optional[List[Tensor]] = None,
               error: Optional[TritonError] = None, parameters: Any = None) -> None:
        tensors = list(output_tensors or ())
        for each in tensors:
            if not isinstance(each, Tensor):
                raise TypeError(f"InferenceResponse(output_tensors=...): a list of Tensor is "
                                f"needed, and an element is a {type(each).__name__}")
        if error is not None and not isinstance(error, TritonError):
            if not isinstance(error, str):
                raise TypeError(f"InferenceResponse(error=...): a TritonError is needed, got a "
                                f"{type(error).__name__}")
            error = TritonError(error)
        self._tensors = tensors
        self._error = error
        self._parameters = parameters

    def output_tensors(self) -> List[Tensor]:
        return list(self._tensors)

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> Optional[TritonError]:
        return self._error

    def parameters(self) -> str:
        return json.dumps(self._parameters or {})


def _tensor_by_name(tensors: List[Tensor], name: str) -> Optional[Tensor]:
    for each in tensors:
        if each._name == name:
            return each
    return None


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Optional[Tensor]:
    """The request's input of this name; None if it has none."""
    return _tensor_by_name(inference_request._inputs, name)


def get_output_tensor_by_name(inference_response: InferenceResponse,
                              name: str) -> Optional[Tensor]:
    """The response's output of this name; None if it has none."""
    return _tensor_by_name(inference_response._tensors, name)


def load_model(model_name: str, *_: Any, **__: Any) -> None:
    _refuse_bls(f"load_model(\"{model_name}\")")


def unload_model(model_name: str, *_: Any, **__: Any) -> None:
    _refuse_bls(f"unload_model(\"{model_name}\")")


def is_model_ready(model_name: str, *_: Any, **__: Any) -> bool:
    _refuse_bls(f"is_model_ready(\"{model_name}\")")
