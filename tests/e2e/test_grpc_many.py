"""Thousands of streams at once, opened by bench's client in C: how much memory they need, and a stop while they are
open.

CONTINUO_GRPC_STREAMS=10000 CONTINUO_GRPC_ROUNDS=10 is the long form."""

import contextlib
import itertools
import os
import signal
import subprocess

import pytest

from models import BIN, BUILD, counter
from resident import resident_bytes
from waiting import expect, limit

STREAMS = int(os.environ.get("CONTINUO_GRPC_STREAMS", "500"))
ROUNDS = int(os.environ.get("CONTINUO_GRPC_ROUNDS", "6"))
ROUNDS_MAX = 3 * ROUNDS
PLAIN = BUILD.name not in ("asan", "tsan")  # those hold freed memory back


@pytest.fixture
def streams():
    """streams(target) starts a client that keeps STREAMS streams open and makes step after step on each."""
    def start(target):
        client = subprocess.Popen([BIN / "grpc-bench", "bidi", target, "counter", "--calls", str(STREAMS),
                                   "--channels", "10", "--seconds", "600"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        clients.append(client)
        return client

    clients = []
    yield start
    for client in clients:
        with contextlib.suppress(ProcessLookupError):
            client.kill()
        client.wait(limit(10))


def start_server(server, clock=False):
    return server(counter(maxNumSequence=20 * STREAMS, jobQueueSize=10 * STREAMS, batchSize=256,
                          sequenceMaxIdleMSec=600_000), flags=["--grpc-max-calls", 2 * STREAMS], clock=clock)


def test_streams_come_and_go_without_growth(server, streams):
    """The client is killed in each round. Its streams end, and soon a round needs no more memory than the one before.

    Its sequences stay until their time limits have passed, which happens before the next round."""
    s = start_server(server, clock=True)
    open_kb, closed_kb = [], []
    # The allocator takes some rounds until it has all that it needs; a leak would be there in each of them.
    while len(closed_kb) < ROUNDS or (PLAIN and len(closed_kb) < ROUNDS_MAX and least_growth(closed_kb) >= 1000):
        client = streams(s.grpc)
        expect(lambda: s.metric("continuo_grpc_calls_open") == STREAMS, "all streams are open", 60)
        open_kb.append(resident_bytes(s.process.pid) // 1024)
        client.kill()
        client.wait(limit(10))
        expect(lambda: s.metric("continuo_grpc_calls_open") == 0, "all streams are over", 60)
        s.clock.advance(601_000)
        expect(lambda: s.describe("counter")["liveSequences"] == 0, "all sequences are over", 60)
        closed_kb.append(resident_bytes(s.process.pid) // 1024)
    print(f"{STREAMS} streams, kB: open {open_kb}, closed {closed_kb}")
    if PLAIN:
        assert least_growth(closed_kb) < 1000, closed_kb


def least_growth(kb):
    return min(after - before for before, after in itertools.pairwise(kb))


def test_a_stop_with_many_live_streams_leaves_nothing(server, streams):
    """Each stream has a step under way. The server ends in time with status 0, and so do its workers."""
    s = start_server(server)
    client = streams(s.grpc)
    expect(lambda: s.metric("continuo_grpc_calls_open") == STREAMS, "all streams are open", 60)
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(limit(60)) == 0
    expect(lambda: s.session_members() == [], "no worker is left")
    client.wait(limit(30))
