"""Runs each configuration of examples/proxies/ as it is, with other addresses, before two nodes that share a store.

The configurations differ from those of docs/behind-a-proxy.md, where each server has its own sequences: here a proxy
may send a step to any node, so it checks the nodes, leaves bad ones out, and repeats steps that have a key."""

import contextlib
import itertools
import json
import os
import pathlib
import signal

import grpc
import pytest

from models import ROOT, counter
from ports import fixed_addresses
from proxying import SPELLINGS, Proxy, program
from rpc import Rpc
from server import SLOW_BUILD
from shared_store import shared_store_in
from stepping import HttpStepper, StreamStepper, all_go_on, end_all
from test_v2_http import accumulator
from waiting import expect

CALLERS = 3 if SLOW_BUILD else 6
STREAMS = 2
"""Proxies that ask each node whether it is ready. Free nginx only notices failed connections."""
CHECKING = ["haproxy", "envoy"]


def source(name):
    return (ROOT / "examples" / "proxies" / name).read_text()


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


class Site:
    """A proxy and two nodes behind it."""

    def __init__(self, proxy, nodes):
        self.proxy = proxy
        self.nodes = nodes

    def step(self, client, sequence, value=1, **headers):
        return client.post("/predictions/counter", str(value),
                           headers={"continuo-sequence-id": sequence,
                                    **{name.replace("_", "-"): text for name, text in headers.items()}})

    def done(self):
        """How many steps each node has got."""
        return [int(each.metric("continuo_jobs_total")) for each in self.nodes]

    def expect_back(self, node):
        """Waits until the proxy sends steps to a node that has just started."""
        names = itertools.count()

        def got_one():
            with contextlib.closing(self.proxy.client()) as client:
                for _ in range(8):
                    self.step(client, f"probe{next(names)}", idempotency_key="k")
            return self.done()[self.nodes.index(node)] > 0

        expect(got_one, f"{self.proxy.name} sends steps to {node.name} again", 30)

    def owner(self, sequence):
        """Sends a step of the sequence, and returns the node that has got it."""
        before = self.done()
        with contextlib.closing(self.proxy.client()) as client:
            answer = self.step(client, sequence, 0)
            assert answer.status == 200, answer
        after = self.done()
        [index] = [i for i, (was, now) in enumerate(zip(before, after, strict=True)) if now > was]
        return self.nodes[index]


@pytest.fixture
def site(request, server, store, folder, transcript):
    name = request.param
    program(name)
    nodes = [server(counter(minWorkers=1, maxWorkers=1, batchSize=8), accumulator(), name=each,
                    flags=["--state-store", store.url, "--drain-delay", 6000,
                           *fixed_addresses("inference", "grpc-inference")]) for each in "ab"]
    place = pathlib.Path(folder) / name
    place.mkdir()
    proxy = Proxy(name, place, transcript, nodes, source)
    try:
        proxy.expect_up()
        yield Site(proxy, nodes)
    finally:
        proxy.stop()


def by(*names):
    return pytest.mark.parametrize("site", names, indirect=True)


every_proxy = by("nginx", "haproxy", "envoy")


@every_proxy
def test_a_sequence_stays_on_one_node_by_any_header(site):
    """The state is in that node's cache. All names of the header mean the same, over HTTP and in gRPC's metadata."""
    with contextlib.closing(site.proxy.client()) as client, Rpc(f"127.0.0.1:{site.proxy.grpc}") as rpc:
        for i in range(12):
            for step, spelling in enumerate(SPELLINGS, 1):
                answer = client.post("/predictions/counter", "1", headers={spelling: f"device-{i}"})
                assert (answer.status, answer.text) == (200, str(step)), (spelling, i, answer)
            for step, spelling in enumerate(SPELLINGS, len(SPELLINGS) + 1):
                try:
                    answer = rpc.predict("counter", 1, metadata=((spelling.lower(), f"device-{i}"),))
                except grpc.RpcError as error:
                    pytest.fail(f"{spelling}: {error}")
                assert answer.prediction == str(step).encode(), (spelling, i)
    live = [each.describe("counter")["liveSequences"] for each in site.nodes]
    # HTTP and gRPC may hash to different nodes, since they are different groups of servers to the proxy.
    assert min(live) > 0 and 12 <= sum(live) <= 24, live


@every_proxy
def test_steps_that_name_the_sequence_in_the_body_alone_are_right_on_any_node(site):
    """The proxy cannot see the id, so it sends the steps to both nodes in turn. The store makes them right."""
    with contextlib.closing(site.proxy.client()) as client:
        for total in range(1, 31):
            body = {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [1]}],
                    "parameters": {"sequence_id": "body", "sequence_start": total == 1}}
            answer = client.post("/v2/models/accumulator/infer", json.dumps(body))
            assert answer.status == 200, answer
            assert answer.json["outputs"][0]["data"] == [total]
    assert min(site.done()) > 0, site.done()


@every_proxy
def test_keyed_steps_go_on_without_a_failure_when_a_node_is_killed(site):
    """The clients repeat nothing. The proxy repeats a step that has a key, on the other node. Only HAProxy closes the
    client's connection instead if its own connection to the node breaks (docs/behind-a-proxy.md)."""
    repeats = site.proxy.name == "haproxy"
    callers = [HttpStepper(f"h{i}", [site.proxy.client()], patient=repeats).start() for i in range(CALLERS)]
    with contextlib.ExitStack() as stack:
        stack.callback(end_all, callers)
        for victim in site.nodes:
            all_go_on(callers)
            victim.kill()
            all_go_on(callers, 20)
            victim.restart()
            site.expect_back(victim)


@every_proxy
def test_nothing_fails_when_a_node_leaves_with_a_delay(site):
    """SIGTERM to each node in turn, under keyed steps whose clients repeat nothing, and under gRPC streams whose
    clients open another stream when theirs has ended."""
    callers = [HttpStepper(f"h{i}", [site.proxy.client()], patient=False).start() for i in range(CALLERS)]
    streams = [StreamStepper(f"g{i}", [f"127.0.0.1:{site.proxy.grpc}"]).start() for i in range(STREAMS)]
    everybody = [*callers, *streams]
    with contextlib.ExitStack() as stack:
        stack.callback(end_all, everybody)
        for leaver in site.nodes:
            all_go_on(everybody)
            leaver.stop(60)
            all_go_on(everybody)
            leaver.restart()
            site.expect_back(leaver)


@by(*CHECKING)
def test_a_node_that_is_not_ready_gets_no_steps_although_it_would_answer(site):
    leaver = site.nodes[0]
    names = [f"s{i}" for i in range(8)]
    with contextlib.closing(site.proxy.client()) as client:
        for name in names:
            assert site.step(client, name).text == "1"
        leaver.process.send_signal(signal.SIGTERM)
        leaver.expect_log("event=leaving")

        def moved():
            before = site.done()[0]
            for name in names:
                assert site.step(client, name, 0).status == 200
            return site.done()[0] == before

        expect(moved, "all steps go to the other node", 5)
        assert leaver.process.poll() is None, "the node would still answer"


@by(*CHECKING)
def test_a_node_that_hangs_is_taken_out_and_taken_back(site):
    """The node's connections stay open, but nothing answers: only the proxy's checks notice that. The steps have no
    key, so the proxy does not repeat them: they succeed only if it does not send them to the bad node."""
    bad, good = site.nodes
    names = [f"s{i}" for i in range(8)]
    assert {site.owner(name) for name in names} == {bad, good}

    def all_answered():
        for name in names:
            with contextlib.closing(site.proxy.client(timeout=2)) as client:
                try:
                    if site.step(client, name, 0).status != 200:
                        return False
                except OSError:
                    return False
        return True

    def got(node):
        return int(node.metric("continuo_jobs_total"))

    def taken_out():
        before = got(good)
        return all_answered() and got(good) == before + len(names)

    def taken_back():
        before = got(bad)
        return all_answered() and got(bad) > before

    members = bad.session_members()
    for pid in members:
        os.kill(pid, signal.SIGSTOP)
    try:
        expect(taken_out, "the proxy takes the node out", 60)
    finally:
        for pid in members:
            os.kill(pid, signal.SIGCONT)
    expect(taken_back, "the proxy takes the node back", 60)


@every_proxy
def test_a_step_without_a_key_is_not_repeated(site):
    """Nobody knows whether it was done. The client gets an error and can ask, with its next step."""
    node = site.owner("s")
    with contextlib.closing(site.proxy.client()) as waiting, node.hold():
        waiting._connection = waiting._connect()
        waiting._connection.request("POST", "/predictions/counter", "1", {"continuo-sequence-id": "s"})
        node.expect_outstanding("counter", 1)
        node.kill()
        assert waiting._connection.getresponse().status in (502, 503, 504)
    with contextlib.closing(site.proxy.client()) as client:
        expect(lambda: site.step(client, "s", 0).text == "0", "the other node has the state from before")
