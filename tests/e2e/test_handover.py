"""A server that stops hands its sequences over: first it says that it is not ready, then it drains, and then another
node that shares the state store goes on (docs/shared-store.md)."""

import contextlib
import queue
import signal

import pytest

from models import counter
from ports import fixed_addresses
from rpc import Rpc, module
from server import SLOW_BUILD
from shared_store import shared_store_in
from stepping import HttpStepper, StreamStepper, all_go_on, end_all
from waiting import expect, limit

CALLERS = 4 if SLOW_BUILD else 8
STREAMS = 2 if SLOW_BUILD else 4
DELAY_MS = 60000


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


class HealthWatch:
    """What grpc.health.v1.Health/Watch says, as a load balancer sees it."""

    def __init__(self, target):
        self._types = module("grpc.health.v1.health_pb2")
        self._rpc = Rpc(target)
        self._call = self._rpc.health.Watch(self._types.HealthCheckRequest(), timeout=limit(120))
        self._said = queue.Queue()

    def next(self):
        return self._types.HealthCheckResponse.ServingStatus.Name(next(self._call).status)

    def close(self):
        self._call.cancel()
        self._rpc.close()


def leaving(server, **more):
    return server(counter(), flags=["--drain-delay", DELAY_MS], clock=True, **more)


def test_a_server_is_not_ready_before_it_drains_but_still_serves(server):
    """A proxy needs time to notice that a server leaves. Until then it sends requests, and they are answered."""
    s = leaving(server)
    old, new = s.client(), s.client()
    assert old.step("counter", "a", 1).text == "1"
    watch = HealthWatch(s.grpc)
    assert watch.next() == "SERVING"
    s.process.send_signal(signal.SIGTERM)
    s.expect_log("event=leaving", f"drain_delay_ms={DELAY_MS}")
    s.clock.advance(2000)  # Watch looks once a second
    assert watch.next() == "NOT_SERVING"
    watch.close()

    ping = s.client().get("/ping")
    assert ping.status == 500
    assert [each["reason"] for each in ping.json["reasons"]] == ["stopping"]
    ready = s.client().get("/v2/health/ready")
    assert ready.status == 503 and ready.json["error"] == "Server exiting"
    assert s.client().get("/v2/health/live").status == 200
    for client, total in ((old, "2"), (new, "3")):  # an old connection and a new one; both end
        answer = client.step("counter", "a", 1)
        assert (answer.status, answer.text, answer.headers["Connection"]) == (200, total, "close")
    assert s.process.poll() is None

    s.clock.advance(DELAY_MS)
    s.expect_log("event=drained")
    s.stop()


def test_a_second_signal_ends_the_delay(server):
    s = leaving(server)
    s.process.send_signal(signal.SIGTERM)
    s.expect_log("event=leaving")
    s.process.send_signal(signal.SIGTERM)
    assert s.exit_code() == 0
    s.expect_log("event=stop_hurried")
    s.expect_log("event=drained")


def test_a_server_without_a_delay_drains_at_once(server):
    s = server(counter())
    s.process.send_signal(signal.SIGTERM)
    assert s.exit_code() == 0
    assert not any("event=leaving" in line for line in s.lines)


def test_two_nodes_hand_their_sequences_over_to_each_other_under_load(server, store):
    """Steps and gRPC streams are under way while each node leaves in turn. Clients that repeat a step with its key see
    no failed step, and each sum is right: no step was lost and none was done twice."""
    nodes = [server(counter(minWorkers=1, maxWorkers=1, batchSize=8), name=name,
                    flags=["--state-store", store.url, "--drain-delay", 300,
                           *fixed_addresses("inference", "grpc-inference")]) for name in "ab"]
    callers = [HttpStepper(f"h{i}", [each.client(f"h{i}-{each.name}") for each in nodes]).start()
               for i in range(CALLERS)]
    streams = [StreamStepper(f"g{i}", [each.grpc for each in nodes]).start() for i in range(STREAMS)]
    everybody = [*callers, *streams]
    with contextlib.ExitStack() as stack:
        stack.callback(end_all, everybody)
        for leaver in [*nodes, *nodes]:
            all_go_on(everybody)
            retries = sum(each.retries for each in everybody)
            leaver.stop()
            leaver.restart()
            all_go_on(everybody)
            assert sum(each.retries for each in everybody) > retries, "the stop met clients"
    assert sum(each.reopened for each in streams) >= STREAMS, "streams were told to go to another node"
    for each in everybody:
        for node in nodes:  # any node has the same sequence
            each.steps += 1
            answer = node.client().step("counter", each.sequence, 1)
            assert answer.text == str(each.steps), (each.sequence, answer)


def test_a_node_that_leaves_waits_for_the_step_that_it_runs(server, store):
    """The answer of a step that runs when the drain begins arrives, and the other node goes on from its state."""
    a, b = (server(counter(), name=name, flags=["--state-store", store.url]) for name in "ab")
    held = HttpStepper("s", [a.client()], patient=False)
    with a.hold():
        held.start()
        a.expect_outstanding("counter", 1)
        a.process.send_signal(signal.SIGTERM)
        a.expect_log("event=draining")
        assert b.client().get("/ping").status == 200
        held.stopping = True
    held.thread.join(limit(60))
    assert (held.failed, held.steps) == (None, 1)
    a.stop()
    expect(lambda: b.client().step("counter", "s", 1).text == "2", "the other node to go on")
