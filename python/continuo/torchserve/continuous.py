"""continuousBatching: each call of the handler makes one piece of each stream that goes on.

A handler says with context.stopping_criteria which requests go on, and these get a generator as their reply. The worker
asks each generator for its next piece. The first generator without a next piece calls the handler with all streams that
have none, so there is one call for each round and not one for each stream. A new batch takes the waiting streams along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Generator, List, Optional

from continuo import sequence_state
from continuo.torchserve import answers
from continuo.torchserve.context import RequestProcessor
from continuo.torchserve.rows import data_of, is_instance
from continuo.types import CheckedReply, Request

if TYPE_CHECKING:
    from continuo.torchserve.runner import TorchServeProgram


class Stream:
    """A request whose answer goes on."""

    def __init__(self, req: Request, headers: Dict[str, Any]) -> None:
        self.req = req
        self.headers = headers
        #: The result of the last round: (reply, whether it goes on), or an exception.
        self.made: Any = None


class Streams:
    def __init__(self, program: TorchServeProgram) -> None:
        self.program = program
        self.live: List[Stream] = []
        #: The newest state of each sequence that has a stream.
        self.states: Dict[str, Any] = {}

    def batch(self, states: List[Any], reqs: List[Request]) -> List[Any]:
        """Returns the replies to new requests. Streams that wait for a piece are run together with them."""
        fresh = {req.sequence_id: state for req, state in zip(reqs, states)
                 if req.sequence_id is not None}
        for sequence_id in fresh.keys() & self.states.keys():
            self.states[sequence_id] = fresh[sequence_id]
        waiting = self.waiting()
        made = self.run(reqs, waiting, {**self.states, **fresh})
        for stream, each in zip(waiting, made[len(reqs):]):
            stream.made = each
        return [self.begin(req, each, state)
                for req, each, state in zip(reqs, made, states)]

    def begin(self, req: Request, made: Any, state: Any) -> Any:
        if isinstance(made, Exception):
            return made
        reply, goes_on, headers = made
        if not goes_on:
            return reply
        stream = Stream(req, headers)
        self.live.append(stream)
        if req.sequence_id is not None:
            self.states[req.sequence_id] = state
        return self.pieces(stream, reply)

    def pieces(self, stream: Stream, first: Any) -> Generator[Any, None, Any]:
        """Yields the pieces of a stream to the worker."""
        try:
            stop = yield first
            while not (stop or stream.req.cancelled):
                if stream.made is None:
                    self.round()
                made, stream.made = stream.made, None
                if isinstance(made, Exception):
                    raise made
                reply, goes_on, _ = made
                body = reply.body if isinstance(reply, CheckedReply) else reply
                if not goes_on:
                    return reply if isinstance(reply, CheckedReply) and reply.end_sequence else body
                stop = yield body
            return b""
        finally:
            self.forget(stream)

    def forget(self, stream: Stream) -> None:
        if stream in self.live:
            self.live.remove(stream)
        if all(each.req.sequence_id != stream.req.sequence_id for each in self.live):
            self.states.pop(stream.req.sequence_id or "", None)

    def waiting(self) -> List[Stream]:
        return [stream for stream in self.live
                if stream.made is None and not stream.req.cancelled]

    def round(self) -> None:
        waiting = self.waiting()
        for stream, made in zip(waiting, self.run([], waiting, dict(self.states))):
            stream.made = made

    def run(self, reqs: List[Request], waiting: List[Stream], states: Dict[str, Any]) -> List[Any]:
        """Calls the handler. Returns for each request, then for each stream, (reply, whether it
        goes on, the request's headers), or the exception that answers it."""
        program = self.program
        everyone = reqs + [stream.req for stream in waiting]
        processors = [RequestProcessor(None, req, req.sequence_id) for req in reqs]
        # TorchServe sends a stream's headers again in each round, and no parameters.
        processors += [RequestProcessor(stream.headers) for stream in waiting]
        program.begin({idx: req.request_id for idx, req in enumerate(everyone)}, states, processors)
        try:
            data = [data_of(req, program.decodes, is_instance(req)) for req in reqs]
            result = program.call(data + [{} for _ in waiting])
            return self.replies(everyone, result)
        except Exception as error:
            return [error] * len(everyone)
        finally:
            sequence_state.end()

    def replies(self, reqs: List[Request], result: List[Any]) -> List[Any]:
        context = self.program.context
        ended = answers.ended_sequences(context, len(reqs))
        made: List[Any] = []
        for idx, each in enumerate(result):
            stops: Optional[bool] = None
            if context.stopping_criteria:
                stops = context.stopping_criteria[idx](each)
                if stops is not None:
                    context.set_response_header(idx, answers.STREAM_NEXT,
                                                "false" if stops else "true")
            processor = context.processor(idx)
            reply = answers.reply(processor, answers.encode(each),
                                  ends=reqs[idx].sequence_id in ended)
            goes_on = stops is False
            made.append((reply, goes_on, processor.get_request_properties() if goes_on else {}))
        return made
