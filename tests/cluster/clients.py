"""The clients of the cluster: those of tests/chaos, but behind a proxy and with several nodes.

A client that gets no answer, or an error after which the step may have been done, sends the same step again under its
Idempotency-Key or its number. It may then reach another node. If the store itself has lost steps at a failover, the
client counts them and begins a new sequence, whose answers are checked as before."""

import asyncio
import re
import time

from grpc_link import GrpcLink
from sequence import DOCUMENTED, MAYBE_DONE, Sequence

# A node, a worker or a network that stands still keeps a step's copy for seconds, and HAProxy and TCP may deliver it
# when the client has long gone on. Keys protect against that only while the sequence remembers them, so a client with
# keys makes no more than KEY_WINDOW steps in KEEP_S seconds. A client with numbers needs no such bound.
KEY_WINDOW = 255
KEEP_S = 15
EXPECTED_STEP = re.compile(r'"expectedStep": (\d+)')
# How a node says that the store has an older state than the client.
LOST = {"steps_lost", "sequence_lost", "step_mismatch"}
# Statuses of the proxy's own, and what nodes say about the store and about each other.
OF_PROXY = {"http_502", "http_503", "http_504"}


class StoreLost(Exception):
    """The store has lost confirmed steps."""

    def __init__(self, steps, why):
        super().__init__(why)
        self.steps = max(steps, 1)


class ClusterSequence(Sequence):
    documented = DOCUMENTED | OF_PROXY | {"store_unreachable", "contended", "conflict", "overloaded"}
    maybe_done = MAYBE_DONE | OF_PROXY | {"store_unreachable"}

    def __init__(self, index, run, link, chance):
        super().__init__(index, run, link, chance)
        self.clients = chance.choice(("keys", "numbers"))
        self._confirmed = time.monotonic()

    async def step(self):
        try:
            await super().step()
        except StoreLost as e:
            self._begin_anew(e)
        if self.clients == "keys":
            await asyncio.sleep(KEEP_S / KEY_WINDOW)

    async def check(self):
        try:
            await super().check()
        except StoreLost as e:
            self._begin_anew(e)
            self._link.close()

    def _begin_anew(self, lost):
        self._tally.store_lost += lost.steps
        self._run.note(f"{self.id}, at {self.state}: a failover of the store has lost {lost.steps} steps: {lost}")
        self._new()
        self._confirmed = time.monotonic()

    def _may_be_lost(self):
        """May a failover have lost steps since the last one that was confirmed?"""
        return self._run.stores.lost_since(self._confirmed)

    def _error(self, reason, body, text, expected=()):
        if reason in LOST and self._may_be_lost():
            found = EXPECTED_STEP.search(text)
            raise StoreLost(self.state[1] + 1 - int(found[1]) if found else self.state[1], f"{body} -> {reason}")
        return super()._error(reason, body, text, expected)

    def _copy_was_done(self, request, state):
        if self._may_be_lost():
            raise StoreLost(self.state[1] + 1 - state[1], f"the copy {request.body} -> {state}")
        super()._copy_was_done(request, state)

    def _judge(self, state, done, number):
        if state[1] < done[1] and self._may_be_lost():
            raise StoreLost(done[1] - state[1], f"it has {state} instead of {done}")
        super()._judge(state, done, number)
        self._confirmed = time.monotonic()


class ClusterGrpcLink(GrpcLink):
    """Names the sequence in the metadata, too, by which the proxy chooses the node. So each has a stream of its own."""

    def __init__(self, channels):
        super().__init__(channels)
        self._named = None

    def _name(self, sequence):
        if self._named != sequence:
            self.close()
            self._named = sequence

    def _open(self):
        if self._service is None:
            self._service = self._channels.service()
        if self._call is None:
            self._call = self._service.StreamPredictions2(metadata=(("continuo-sequence", self._named),))

    async def ask(self, step):
        self._name(step.sequence)
        return await super().ask(step)

    async def drop(self, step, share, linger_s):
        self._name(step.sequence)
        await super().drop(step, share, linger_s)
