"""The clients of the cluster: those of tests/chaos, but behind a proxy and with several nodes.

A client that gets no answer, or an error after which the step may have been done, sends the same step again under its
Idempotency-Key or its number. It may then reach another node."""

import asyncio
import time

from grpc_link import GrpcLink
from sequence import DOCUMENTED, MAYBE_DONE, Sequence

# A node, a worker or a network that stands still keeps a step's copy for seconds, and HAProxy and TCP may deliver it
# when the client has long gone on. Keys protect against that only while the sequence remembers them, so a client with
# keys makes no more than KEY_WINDOW steps in KEEP_S seconds. A client with numbers needs no such bound.
KEY_WINDOW = 255
KEEP_S = 15
# Statuses of the proxy's own, and what nodes say about the store and about each other.
OF_PROXY = {"http_502", "http_503", "http_504"}


class ClusterSequence(Sequence):
    documented = DOCUMENTED | OF_PROXY | {"store_unreachable", "contended", "conflict", "overloaded"}
    maybe_done = MAYBE_DONE | OF_PROXY | {"store_unreachable"}

    def __init__(self, index, run, link, chance):
        super().__init__(index, run, link, chance)
        self.clients = chance.choice(("keys", "numbers"))
        self._confirmed = time.monotonic()

    async def step(self):
        await super().step()
        if self.clients == "keys":
            await asyncio.sleep(KEEP_S / KEY_WINDOW)

    def _judge(self, state, done, number):
        """A step that is missing after a failover may have been lost by the store itself."""
        if state[1] < done[1] and self._run.stores.lost_since(self._confirmed):
            self._tally.store_lost += done[1] - state[1]
            self._run.note(f"{self.id}: the store has {state} instead of {done} after a failover")
            self.state = state
        else:
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
