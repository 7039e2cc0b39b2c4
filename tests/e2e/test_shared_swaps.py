"""Nodes that share a store and disagree about the default version of a model, as for a moment during each swap: no step
is lost or done twice, whichever node and version gets it."""

import queue
import random
import threading

import pytest

from models import COUNTER_LUA, Model
from rpc import Rpc, request
from shared_store import shared_store_in
from waiting import limit

MIGRATING = COUNTER_LUA.replace("return M\n", "function M.migrate(state)\n    return state\nend\n\nreturn M\n")
POLICIES = pytest.mark.parametrize("policy", ["migrate", "pin"])
IN_TURN = 40
AT_ONCE = 30


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


@pytest.fixture
def divided(server, store):
    """divided(policy, defaults) starts a node for each of the default versions."""
    def start(policy, defaults=("1.0", "2.0")):
        versions = sorted(set(defaults))
        nodes = []
        for i, version in enumerate(defaults):
            node = server(*(model(each, policy) for each in versions), flags=["--state-store", store.url],
                          name="abcdef"[i])
            assert node.admin().put(f"/models/counter/{version}/set-default").status == 200
            nodes.append(node)
        return nodes

    return start


def model(version, policy):
    return Model("counter", MIGRATING, {"minWorkers": 1, "maxWorkers": 1, "batchSize": 8,
                                        "sequence": {"swapPolicy": policy}}, version)


def step(client, sequence, number=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if number is not None:
        headers["ts-request-sequence-step"] = str(number)
    return client.step("counter", sequence, 1, headers=headers)


@POLICIES
def test_a_sequence_goes_on_on_nodes_with_different_default_versions(divided, policy):
    """Each node believes that it knows the sequence, since it ran its last step but one."""
    nodes = divided(policy, ("1.0", "2.0", "3.0"))
    clients = [node.client() for node in nodes]
    chance = random.Random(1)
    for name in ("numbered", "plain"):
        for total in range(1, IN_TURN + 1):
            answer = step(chance.choice(clients), name, total if name == "numbered" else None)
            assert (answer.status, answer.text) == (200, str(total)), (name, total, answer)


def test_a_start_flag_ends_the_sequence_wherever_it_lives(divided):
    nodes = divided("migrate")
    a, b = (node.client() for node in nodes)
    for first, second in ((a, b), (b, a)):
        assert step(a, "s", ts_request_sequence_start="true").text == "1"
        assert step(first, "s").text == "2"
        assert step(second, "s", ts_request_sequence_start="true").text == "1"
        assert step(first, "s").text == "2"
        assert step(second, "s").text == "3"


def test_an_ended_sequence_begins_anew_on_the_other_node(divided):
    nodes = divided("migrate")
    a, b = (node.client() for node in nodes)
    for first, second in ((a, b), (b, a)):
        assert step(first, "s").text == "1"
        assert step(second, "s").text == "2"
        assert step(first, "s", ts_request_sequence_end="true").text == "3"


class Stream:
    """A gRPC stream that stays open, with one step at a time."""

    def __init__(self, node, sequence):
        self.rpc = Rpc(node.grpc)
        self._requests = queue.Queue()
        self._answers = self.rpc.inference.StreamPredictions2(
            iter(self._requests.get, None), metadata=(("continuo-sequence-id", sequence),), timeout=limit(120))

    def send(self, key):
        self._requests.put(request("counter", 1, **{"idempotency-key": key}))

    def step(self, key):
        self.send(key)
        answer = next(self._answers)
        assert not answer.status.code, answer.status
        return answer.prediction.decode()

    def close(self):
        self._requests.put(None)
        self.rpc.close()


@pytest.mark.parametrize("defaults", [("1.0", "1.0"), ("1.0", "2.0")], ids=["agreed", "divided"])
def test_another_node_takes_a_sequence_over_in_the_middle_of_a_stream(divided, defaults):
    """Both nodes have a stream of the same sequence open, so each finds at its next step that the other one has gone
    on. At the end one node is killed while it has a step, which is then repeated on the other node's stream."""
    a, b = divided("migrate", defaults)
    on_a, on_b = Stream(a, "s"), Stream(b, "s")
    chance = random.Random(1)
    for total in range(1, IN_TURN + 1):
        stream = chance.choice((on_a, on_b))
        assert stream.step(f"k{total}") == str(total)
        assert chance.choice((on_a, on_b)).step(f"k{total}") == str(total), "a repeated step is not done again"
    with a.hold():
        on_a.send("last")
        a.expect_outstanding("counter", 1)
        a.kill()
    for _ in range(2):
        assert on_b.step("last") == str(IN_TURN + 1)
    assert on_b.step("next") == str(IN_TURN + 2)
    on_a.close()
    on_b.close()


class Racer(threading.Thread):
    """Sends each step of its sequence to all nodes at once, with a number, so that one of them does it."""

    def __init__(self, name, nodes):
        super().__init__(name=name)
        self.clients = [node.client() for node in nodes]
        self.failed = None
        self.start()

    def _send(self, client, number, said):
        answer = step(client, self.name, number)
        said.append((answer.status, answer.text if answer.status == 200 else answer.error))

    def run(self):
        for number in range(1, AT_ONCE + 1):
            said = []
            while (200, str(number)) not in said and self.failed is None:
                said = []
                threads = [threading.Thread(target=self._send, args=(client, number, said)) for client in self.clients]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                wrong = [each for each in said if each not in ((200, str(number)), (409, "contended"),
                                                               (409, "conflict"))]
                if wrong or len(said) < len(self.clients):
                    self.failed = (number, said)


@POLICIES
@pytest.mark.parametrize("defaults", [("1.0", "2.0"), ("1.0", "2.0", "3.0")], ids=["two", "three"])
def test_steps_that_meet_on_nodes_with_different_default_versions(divided, policy, defaults):
    """A sequence begins on all nodes at the same moment, and each step moves it in all directions at once. A node that
    comes too late answers as the one that was first has answered."""
    nodes = divided(policy, defaults)
    racers = [Racer(f"s{i}", nodes) for i in range(4)]
    for racer in racers:
        racer.join()
    assert [racer.failed for racer in racers] == [None] * len(racers)
    for racer in racers:
        for total, node in enumerate(nodes, AT_ONCE + 1):
            answer = step(node.client(), racer.name)
            assert (answer.status, answer.text) == (200, str(total)), (racer.name, answer)
