"""TritonProgram: runs a model for Triton's Python backend as one of Continuo's programs.

execute(requests) gets the batch that the worker has formed, and each response becomes the reply of
its row. A decoupled model may take its time in execute(), and its responses must leave meanwhile.
So its initialize(), execute() and finalize() run in a thread of their own, one call after the other
as Triton has it, while the worker's thread sends what comes. An `async def execute` of a decoupled
model is a task of the worker's asyncio loop instead, so that its calls overlap while they wait.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import inspect
import json
import logging
import threading
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional

from continuo import _awaiting, _settings, sequence_state
from continuo._worker_memory import WORKER_KEY, WorkerLost, WorkerMemory
from continuo.triton import CLASS, errors, metrics, model_config
from continuo.triton.errors import TritonModelException
from continuo.triton.fields import receive, use_triton
from continuo.triton.messages import InferenceRequest, InferenceResponse, correlation_of
from continuo.triton.sender import InferenceResponseSender, ResponseStream
from continuo.triton.tensor import Tensor
from continuo.types import Model, OutputsReply, Program, Request

logger = logging.getLogger(__name__)

#: How long the end of a worker waits for finalize().
FINALIZE_S = 10


class TritonProgram(Program):
    """Gives batches to execute(requests), and turns what it returns into replies."""

    step = None
    migrate = None

    def __init__(self, module: ModuleType, model: Model) -> None:
        self.model_class = getattr(module, CLASS)
        self.model = model
        self.memory = WorkerMemory()
        #: The model remembers its sequences in this process, without SequenceState.
        self.volatile = False
        self.decoupled = model_config.is_decoupled(model.config)
        self.config = model_config.triton_config(model)
        self.outputs = [each["name"] for each in self.config["output"]]
        #: The outputs that are sent; empty: all.
        self.known_outputs = (frozenset(self.outputs + _state_outputs(model.config))
                              if self.outputs else frozenset())
        self.told: set = set()
        self.thread: Optional[concurrent.futures.ThreadPoolExecutor] = None
        self.loop: Any = None
        self.tasks: set = set()

    # --- once

    def load(self) -> None:  # type: ignore[override]
        execute = getattr(self.model_class, "execute", None)
        if not callable(execute):
            raise TritonModelException(f"the class {CLASS} has no method execute(self, requests)")
        self.is_async = inspect.iscoroutinefunction(execute)
        if self.decoupled and not self.is_async:
            self.thread = concurrent.futures.ThreadPoolExecutor(1, "execute")
        use_triton(InferenceRequest, Tensor, InferenceResponse, self.known_outputs)
        self.apart(self.initialize)
        atexit.register(self.finalize)
        self.volatile = self.model.stateful and not sequence_state.in_use()

    def forked(self) -> None:  # type: ignore[override]
        self.memory.forked()

    def apart(self, function: Callable[[], Any], timeout: Optional[float] = None) -> Any:
        """Calls the function where execute() is called, and waits for it."""
        return function() if self.thread is None else self.thread.submit(function).result(timeout)

    def initialize(self) -> None:
        self.instance = self.model_class()
        initialize = getattr(self.instance, "initialize", None)
        if initialize is None:
            return
        arguments = {"model_config": json.dumps(self.config), **model_config.arguments(self.model)}
        self.wait_for(initialize(arguments))

    def finalize(self) -> None:
        finalize = getattr(self.instance, "finalize", None)
        try:
            if finalize is not None:
                self.apart(lambda: self.wait_for(finalize()), FINALIZE_S)
        except concurrent.futures.TimeoutError:
            logger.warning("finalize() was not called: execute() has not returned within %s s",
                           FINALIZE_S)
        except Exception:
            logger.exception("finalize() failed")

    def wait_for(self, result: Any) -> Any:
        """What a coroutine gives; anything else as it is."""
        if not inspect.isawaitable(result):
            return result
        if threading.current_thread() is not threading.main_thread():
            return asyncio.run(_awaiting.awaited(result))
        self.asyncio_loop()
        return _awaiting.finish(result)

    def asyncio_loop(self) -> Any:
        """The worker's loop, which waits for its events together with the server's."""
        if self.loop is None:
            from continuo import _runtime

            self.loop = _runtime.loop()
        return self.loop

    # --- sequences

    def init(self, req: Request) -> Dict[str, Any]:  # type: ignore[override]
        return self.memory.new_state() if self.volatile else {}

    # --- batches

    def batch(self, states: List[Any],  # type: ignore[override]
              reqs: List[Request]) -> List[Any]:
        lost = self.memory.lost(states) if self.volatile else None
        if lost:
            kept = [idx for idx in range(len(reqs)) if idx not in lost]
            replies: List[Any] = [WorkerLost(str(correlation_of(req.sequence_id))) for req in reqs]
            made = self.batch([states[idx] for idx in kept],
                              [reqs[idx] for idx in kept]) if kept else []
            for idx, each in zip(kept, made):
                replies[idx] = each
            return replies
        if not self.volatile:
            for state in states:
                if isinstance(state, dict):
                    state.pop(WORKER_KEY, None)
        requests: List[InferenceRequest] = receive(reqs, self.outputs, self.make_sender)
        by_id = {request._correlation_id: state for request, state in zip(requests, states)
                 if isinstance(state, dict)}
        by_id.pop(0, None)  # a request without a sequence
        if self.decoupled:
            return self.begin_decoupled(requests, by_id)
        sequence_state.begin(by_id)
        try:
            result = self.instance.execute(requests)
            if type(result) is not list:
                result = self.wait_for(result)
        finally:
            sequence_state.end()
        metrics.flush()
        return self.replies(result, requests)

    def make_sender(self, row: Any) -> InferenceResponseSender:
        def wake() -> None:
            # The model may send before there is a stream, which will be read when it is made.
            if self.loop is not None:
                self.loop.call_soon_threadsafe(row.wake)

        return InferenceResponseSender(wake)

    def stream(self, request: InferenceRequest) -> ResponseStream:
        self.asyncio_loop()  # made here, because it must be made in the worker's own thread
        return ResponseStream(request.get_response_sender(), self.decoupled, self.reply)

    def replies(self, result: Any, requests: List[InferenceRequest]) -> List[Any]:
        """The replies to a batch of a model that is not decoupled."""
        if result is None and all(each._sender for each in requests):
            result = [None] * len(requests)
        if not isinstance(result, (list, tuple)):
            raise TritonModelException(f"execute(requests) must return a list with one "
                                       f"InferenceResponse for each request, got "
                                       f"{_name_of(result)}")
        if len(result) != len(requests):
            raise TritonModelException(f"execute(requests) got {len(requests)} requests and "
                                       f"returned {len(result)} responses: return one for each")
        # The worker packs the usual responses itself, and calls reply() for the others.
        return [each if type(each) is InferenceResponse and each._error is None and
                request._sender is None else self.other_reply(each, request)
                for each, request in zip(result, requests)]

    def other_reply(self, response: Any, request: InferenceRequest) -> Any:
        """The reply by a sender, or with an error."""
        if response is None and request._sender is not None:
            return self.stream(request)
        if request._sender is not None:
            raise TritonModelException("execute(requests) has returned a response for a request "
                                       "that has a response sender: return None for it")
        if not isinstance(response, InferenceResponse):
            raise TritonModelException(f"execute(requests) must return a list of "
                                       f"InferenceResponse, and an element is {_name_of(response)}")
        error = response._error
        return self.reply(response) if error is None else errors.refusal(error)

    def reply(self, response: InferenceResponse) -> OutputsReply:
        outputs: Dict[str, Any] = {}
        known = self.known_outputs
        for each in response._tensors:
            name = each._name
            if known and name not in known:
                self.tell_once(name, "the model gives the output \"%s\", which its configuration "
                                     "does not declare: it is left out", name)
                continue
            if name in outputs:
                raise TritonModelException(f"a response has the output \"{name}\" twice")
            outputs[name] = each._packable() if each._value is None else each._value
        if response._parameters:
            self.tell_once("", "parameters of a response are not sent")
        return OutputsReply(outputs)

    def tell_once(self, key: str, text: str, *values: Any) -> None:
        if key not in self.told:
            self.told.add(key)
            logger.warning(text, *values)

    # --- decoupled models

    def begin_decoupled(self, requests: List[InferenceRequest],
                        states: Dict[Any, Any]) -> List[ResponseStream]:
        streams = [self.stream(request) for request in requests]
        if self.thread is not None:
            self.thread.submit(self.execute_decoupled, requests, states)
        else:
            task = self.asyncio_loop().create_task(self.execute_async(requests, states))
            self.tasks.add(task)  # the loop itself holds a task weakly
            task.add_done_callback(self.tasks.discard)
        return streams

    def execute_decoupled(self, requests: List[InferenceRequest], states: Dict[Any, Any]) -> None:
        try:
            sequence_state.begin(states)
            try:
                result = self.instance.execute(requests)
            finally:
                sequence_state.end()
            _check_decoupled(result)
        except BaseException as error:
            fail(requests, error)

    async def execute_async(self, requests: List[InferenceRequest],
                            states: Dict[Any, Any]) -> None:
        try:
            sequence_state.begin_task(states)
            _check_decoupled(await self.instance.execute(requests))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            fail(requests, error)


def fail(requests: List[InferenceRequest], error: BaseException) -> None:
    """Ends the requests that have no end yet. If all have one, no client gets the error."""
    told = [request._sender.fail(error) for request in requests if request._sender is not None]
    if not any(told):
        logger.error("execute() raised after the end of its requests", exc_info=error)


def _check_decoupled(result: Any) -> None:
    if result is not None:
        raise TritonModelException(f"execute(requests) of a decoupled model must return None and "
                                   f"send its responses by get_response_sender(), got "
                                   f"{_name_of(result)}")


def _name_of(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"an {name}" if name[:1] in "aeiou" else f"a {name}"


def _state_outputs(config: Dict[str, Any]) -> List[str]:
    """The names under which a model returns its declared state tensors."""
    batching = _settings.setting(config, _settings.SEQUENCE_BATCHING)
    found: List[str] = []
    for listed in (batching.get("state") if isinstance(batching, dict) else None,
                   config.get("state")):
        if isinstance(listed, dict):
            listed = listed.get("tensors")
        for each in listed if isinstance(listed, list) else ():
            found += [str(each[name]) for name in _settings.STATE_OUTPUT if name in each][:1]
    return found
