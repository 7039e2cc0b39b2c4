"""A worker without its process: it opens a handler, gives it batches and keeps its states."""

import asyncio
import copy
import os
import sys
import textwrap

from continuo import _awaiting, _entry, testing
from continuo.torchserve import metrics as torchserve_metrics
from continuo import sequence_state
from continuo.types import CheckedReply, Model, Reply


class Worker:
    def __init__(self, folder, handler, file="handler.py", files=None, config=None, **model):
        if handler is not None:
            (folder / file.partition(":")[0]).write_text(textwrap.dedent(handler))
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(textwrap.dedent(text))
        self.model = Model(dir=str(folder), file=file, config=config or {}, **model)
        self.measured = []
        self.states = {}
        self.streams = []
        self._before = set(sys.modules), list(sys.path), os.getcwd()
        sequence_state.forget_names()
        self.start()

    def start(self):
        """Loads the handler like a new process. Committed states stay."""
        self.program = _entry.open(self.model)
        _awaiting.run = asyncio.run  # there is no worker's loop
        torchserve_metrics.report = lambda *sample: self.measured.append(sample)
        self.program.load()

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        modules, path, folder = self._before
        for name in set(sys.modules) - modules:
            if not name.startswith("continuo"):
                del sys.modules[name]
        sys.path[:] = path
        os.chdir(folder)
        sequence_state.forget_names()

    def batch(self, *reqs):
        """Returns the replies to a batch. A state is kept if its reply is not an error."""
        states = []
        for req in reqs:
            kept = self.states.get(req.sequence_id)
            states.append(copy.deepcopy(kept) if kept is not None or req.sequence_id is None
                          else self.program.init(req))
        replies = [self.program.reply(each) if type(each).__name__ == "InferenceResponse" else each
                   for each in self.program.batch(states, list(reqs))]
        for req, state, reply in zip(reqs, states, replies):
            if req.sequence_id is not None and not isinstance(reply, Exception):
                self.states[req.sequence_id] = state
        return replies

    def ask(self, *args, **kwargs):
        """Returns the reply to one request."""
        return self.batch(testing.request(*args, **kwargs))[0]


def body(reply):
    return reply.body if isinstance(reply, (CheckedReply, Reply)) else reply
