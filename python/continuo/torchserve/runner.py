"""TorchServeProgram: runs a handler of TorchServe as one of Continuo's programs."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
import sys
import uuid
from types import ModuleType
from typing import Any, Dict, List, Optional

from continuo import _awaiting, sequence_state
from continuo._worker_memory import WORKER_KEY, WorkerLost, WorkerMemory
from continuo.torchserve import answers, entry_points, metrics
from continuo.torchserve.context import Context, RequestProcessor
from continuo.torchserve.continuous import Streams
from continuo.torchserve.envelopes import Envelope, find_envelope
from continuo.torchserve.fields import (give_results, plain_data, receive_rows,
                                        use_torchserve)
from continuo.torchserve.frames import AnswerSocket, Piece
from continuo.torchserve.rows import data_of, is_instance
from continuo.types import Model, Program, Reply, Request

logger = logging.getLogger(__name__)


def read_manifest(folder: str) -> Optional[Dict[str, Any]]:
    try:
        with open(os.path.join(folder, "MAR-INF", "MANIFEST.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def gpu_of(device: str) -> Optional[int]:
    """The number behind "cuda:"; None on a CPU."""
    kind, _, number = device.partition(":")
    if kind in ("", "cpu"):
        return None
    return int(number) if number.isdigit() else 0


class TorchServeProgram(Program):
    """Gives batches to handle(data, context), and turns what it returns into replies."""

    step = None
    migrate = None

    def __init__(self, module: ModuleType, model: Model, envelope: str = "") -> None:
        self.module = module
        self.model = model
        self.envelope: Optional[Envelope] = find_envelope(
            envelope or model.envelope)
        self.decodes = os.environ.get("TS_DECODE_INPUT_REQUEST", "true") == "true"
        self.memory = WorkerMemory()
        #: The handler has no SequenceState: what it remembers dies with this process.
        self.volatile = False
        self.streams: Optional[Streams] = None
        #: asyncCommunication: requests overlap while their handler awaits.
        self.is_async = False
        if model.config.get("continuousBatching") is True:
            self.streams = Streams(self)

    # --- once

    def load(self) -> None:  # type: ignore[override]
        logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
        os.chdir(self.model.dir)
        if self.model.dir not in sys.path:
            sys.path.insert(0, self.model.dir)
        self.context = Context(
            self.model.name, self.model.dir, read_manifest(self.model.dir), self.model.batch_size,
            gpu_of(self.model.device), metrics=metrics.MetricsCache(self.model.name, self.model.metrics),
            model_yaml_config=self.model.config)
        use_torchserve(RequestProcessor, answers.encode)
        _, _, entry = self.model.file.partition(":")
        self.entry = entry_points.find(self.module, entry)
        self.run(self.entry.initialize(self.context))
        self.volatile = self.model.stateful and not sequence_state.in_use()
        self.is_async = (self.model.config.get("asyncCommunication") is True and
                         inspect.iscoroutinefunction(self.entry.handle))

    def forked(self) -> None:  # type: ignore[override]
        self.memory.forked()

    def run(self, result: Any) -> Any:
        """Waits for a coroutine of a handler that is written with async def."""
        if type(result) is list or not inspect.isawaitable(result):
            return result
        return _awaiting.finish(result)

    # --- sequences

    def init(self, req: Request) -> Dict[str, Any]:  # type: ignore[override]
        return self.memory.new_state() if self.volatile else {}

    # --- batches

    def batch(self, states: List[Any],  # type: ignore[override]
              reqs: List[Request]) -> List[Any]:
        if self.volatile:
            lost = self.memory.lost(states)
            if lost:
                return self.batch_without(lost, states, reqs)
        if self.streams is not None:
            return self.streams.batch(states, reqs)
        if self.envelope is not None and 0 < sum(map(is_instance, reqs)) < len(reqs):
            return self.batch_apart(states, reqs)
        if self.is_async:
            return [self.answer_alone(req, state) for req, state in zip(reqs, states)]
        processors, request_ids, named = receive_rows(states, reqs)
        self.begin(request_ids, named, processors)
        try:
            return self.answer(reqs)
        finally:
            sequence_state.end()

    def batch_without(self, lost: List[int], states: List[Any], reqs: List[Request]) -> List[Any]:
        replies: List[Any] = [WorkerLost(req.sequence_id) for req in reqs]
        kept = [idx for idx in range(len(reqs)) if idx not in lost]
        if kept:
            made = self.batch([states[idx] for idx in kept], [reqs[idx] for idx in kept])
            for idx, each in zip(kept, made):
                replies[idx] = each
        return replies

    def batch_apart(self, states: List[Any], reqs: List[Request]) -> List[Any]:
        """Some rows are instances of envelopes that the server has opened, others are not, such as
        those of gRPC: a call of the handler gets only rows of one kind."""
        replies: List[Any] = [None] * len(reqs)
        for kind in (True, False):
            chosen = [idx for idx, req in enumerate(reqs) if is_instance(req) is kind]
            made = self.batch([states[idx] for idx in chosen], [reqs[idx] for idx in chosen])
            for idx, each in zip(chosen, made):
                replies[idx] = each
        return replies

    def begin(self, request_ids: Dict[int, str], states: Dict[Any, Any],
              processors: List[RequestProcessor]) -> None:
        """Sets up the context for these requests. The caller must call sequence_state.end()."""
        context = self.context
        context.request_ids = request_ids
        context.request_processor = processors
        context.metrics.request_ids = request_ids
        if not self.volatile:
            for state in states.values():
                if WORKER_KEY in state:
                    del state[WORKER_KEY]
        sequence_state.begin(states)

    def call(self, data: List[Any], opened: bool = False) -> List[Any]:
        """The handler's results for these rows. Raises what answers the requests.

        `opened`: the rows are instances already.
        """
        envelope = None if opened else self.envelope
        try:
            if envelope is not None:
                result = envelope.call(lambda rows: self.run(self.entry.handle(rows, self.context)),
                                       data, self.context)
            else:
                result = self.run(self.entry.handle(data, self.context))
        except Exception as error:
            raise answers.of_exception(error) from error
        finally:
            metrics.flush()
        return answers.check_length(result, len(data))

    def answer(self, reqs: List[Request]) -> List[Any]:
        """The replies to a batch of a model without continuousBatching."""
        context = self.context
        ids = context.request_ids
        sent: Dict[str, int] = {}

        def take(piece: Piece) -> None:
            req = next((reqs[idx] for idx, id in ids.items() if id == piece.request_id), None)
            if req is None:
                raise LookupError(f"the request {piece.request_id} is not in the running batch")
            req.send(first_piece(piece) if piece.request_id not in sent else piece.body)
            sent[piece.request_id] = 1

        context.cl_socket = AnswerSocket(take)
        try:
            opened = is_instance(reqs[0])
            data = None if opened else plain_data(reqs)
            if data is None:
                data = [data_of(req, self.decodes, opened) for req in reqs]
            result = self.call(data, opened)
            if opened:
                return [Reply(answers.encode_json(each), content_type="application/json")
                        for each in result]
            given = (None if sent or context.stopping_criteria else
                     give_results(context.request_processor, result))
            return given or [self.final(idx, each, bool(sent) and ids[idx] in sent)
                             for idx, each in enumerate(result)]
        except Exception as error:
            return [error] * len(reqs)

    async def answer_alone(self, req: Request, state: Any) -> Any:
        """The reply of a model with asyncCommunication, whose requests overlap.

        Each request has a context of its own, with what the handler has set on the common one.
        """
        named = {} if req.sequence_id is None or self.volatile else {req.sequence_id: state}
        for each in named.values():
            each.pop(WORKER_KEY, None)
        sequence_state.begin_task(named)
        context = copy.copy(self.context)
        context.request_ids = {0: req.request_id}
        context.request_processor = [RequestProcessor(None, req, req.sequence_id)]
        sent: List[Piece] = []

        def take(piece: Piece) -> None:
            req.send(piece.body if sent else first_piece(piece))
            sent.append(piece)

        context.cl_socket = AnswerSocket(take)
        try:
            result = await self.entry.handle([data_of(req, self.decodes, is_instance(req))],
                                             context)
        except Exception as error:
            raise answers.of_exception(error) from error
        finally:
            metrics.flush()
        return self.final(0, answers.check_length(result, 1)[0], bool(sent), context)

    def final(self, idx: int, result: Any, streamed: bool,
              context: Optional[Context] = None) -> Any:
        context = context or self.context
        processor = context.processor(idx)
        headers = processor.get_response_headers()
        if context.stopping_criteria:
            stops = context.stopping_criteria[idx](result)
            if stops is not None:
                headers[answers.STREAM_NEXT] = "false" if stops else "true"
        elif headers.get(answers.STREAM_NEXT) == "true":
            headers[answers.STREAM_NEXT] = "false"
        body = answers.encode(result)
        return body if streamed else answers.reply(processor, body)

    # --- describe

    def describe(self) -> Any:  # type: ignore[override]
        """Asks the handler's own description, as TorchServe does with customized=true."""
        context = self.context
        context.request_ids = {0: str(uuid.uuid4())}
        context.request_processor = [RequestProcessor({"describe": "True"})]
        result = answers.check_length(self.run(self.entry.handle([{}], context)), 1)[0]
        if isinstance(result, (bytes, bytearray, str)):
            try:
                return json.loads(result)
            except ValueError:
                return {"description": result if isinstance(result, str) else repr(bytes(result))}
        return result


def first_piece(piece: Piece) -> Reply:
    """The piece with which the head of a streamed answer leaves."""
    headers = {name: value for name, value in piece.headers.items()
               if name.lower() != "content-type"}
    return Reply(piece.body, status=piece.status, headers=headers,
                 content_type=piece.content_type)
