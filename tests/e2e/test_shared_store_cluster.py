"""A cluster as the shared state store: valkey+cluster:// (docs/shared-store.md). Two nodes, and every sequence on both."""

import pytest

from models import counter
from server import SLOW_BUILD
from shared_store import shared_store_in
from stepping import HttpStepper, StreamStepper, all_go_on, end_all
from store_cluster import store_cluster_in
from waiting import expect

BUCKETS = 64
CALLERS = 4 if SLOW_BUILD else 12
STREAMS = 2 if SLOW_BUILD else 6


@pytest.fixture
def replicated(folder, transcript):
    with store_cluster_in(folder, transcript) as made:
        yield made


@pytest.fixture
def plain(folder, transcript):
    """Without replicas: a primary that is away is missed."""
    with store_cluster_in(folder, transcript, replicas=0) as made:
        yield made


class RestlessStepper(HttpStepper):
    """Sends each step to another node than the one before."""

    def attempt(self, key):
        self._which += 1
        return super().attempt(key)


def node(server, url, name, **state):
    model = counter(minWorkers=1, maxWorkers=1, batchSize=16, state={"storeTimeoutMSec": 1000, **state})
    return server(model, flags=["--state-store", url], name=name)


def pair(server, store, **state):
    return [node(server, store.url, name, **state) for name in "ab"]


def load(nodes):
    """Clients over HTTP, each step to another node, and gRPC streams that are spread over the nodes. They repeat what
    was refused, and fail at the first number that is not the next one."""
    targets = [each.grpc for each in nodes]
    made = [RestlessStepper(f"h{i}", [each.client() for each in nodes]) for i in range(CALLERS)]
    made += [StreamStepper(f"g{i}", targets[i % 2:] + targets[:i % 2]) for i in range(STREAMS)]
    return [each.start() for each in made]


def step(client, sequence, key):
    return client.step("counter", sequence, 1, headers={"Idempotency-Key": key})


def test_any_node_serves_any_sequence(server, plain):
    a, b = pair(server, plain)
    for total in range(1, 4):
        for i in range(100):
            assert (a, b)[(i + total) % 2].client().step("counter", f"s{i}", 1).text == str(total)
    listed = b.admin().get("/models/counter/sequences?limit=1000").json
    assert sorted(each["sequence"] for each in listed["sequences"]) == sorted(f"s{i}" for i in range(100))
    exported = a.admin().get("/models/counter/sequences/s7?export=true")
    assert b.admin().put("/models/counter/sequences/copy", body=exported.body).status == 200
    assert a.client().step("counter", "copy", 1).text == "4"
    assert a.admin().delete("/models/counter/sequences/s8").status == 200
    assert b.client().step("counter", "s8", 1).status == 410
    sizes = [int(each.say("DBSIZE")) for each in plain.primaries]
    assert all(size > 20 for size in sizes), sizes
    described = a.admin().get("/models/counter").json[0]["stateStore"]
    assert described["connected"] is True, described


def test_the_list_of_nodes_and_the_store_s_figures(server, replicated):
    a, b = pair(server, replicated)
    nodes = expect(lambda: (got := a.admin().get("/nodes").json) and len(got["nodes"]) == 2 and got, "both nodes")
    assert not nodes.get("error"), nodes
    assert len(nodes["store"]["replicas"]) == 3, nodes["store"]
    assert b.admin().get("/nodes").json["nodes"][0]["name"] == nodes["nodes"][0]["name"]


def test_no_step_is_lost_when_a_primary_is_killed(server, replicated):
    """A replica takes its place. The sequences of its slots get 503 until it has a replica of its own, which
    state.replicas asks for, and the others go on."""
    steppers = load(pair(server, replicated, replicas=1))
    all_go_on(steppers)
    replicated.primaries[1].kill()
    expect(lambda: replicated.replicas[1].says("role:master", "INFO", "replication"), "the failover", 30)
    before = [each.steps for each in steppers]
    expect(lambda: sum(each.steps > was + 5 for each, was in zip(steppers, before, strict=True)) > len(steppers) // 3,
           "the sequences of the other primaries to go on")
    replicated.primaries[1].start()  # comes back as a replica
    all_go_on(steppers)
    end_all(steppers)


def test_a_failover_needs_nothing_but_patience(server, replicated):
    """Without state.replicas the next steps succeed as soon as the replica is the primary. A planned failover, so that
    nothing is lost: CLUSTER FAILOVER waits until the replica has everything."""
    steppers = load(pair(server, replicated))
    for replica in replicated.replicas:
        all_go_on(steppers)
        replica.fail_over()
    all_go_on(steppers)
    end_all(steppers)


def test_slots_move_under_load(server, plain):
    """A reshard: MOVED and ASK, and for a moment the keys of a bucket on two servers."""
    nodes = pair(server, plain)
    steppers = load(nodes)
    all_go_on(steppers)
    slots = [plain.slot(f"{{test/counter/1.0/{bucket:02x}}}") for bucket in range(BUCKETS)]
    for slot in slots[::4]:
        source = plain.owner(slot)
        target = plain.primaries[(plain.primaries.index(source) + 1) % 3]
        plain.move_slot(slot, source, target)
    all_go_on(steppers)
    end_all(steppers)
    for each in steppers:
        assert step(nodes[0].client(), each.sequence, "after").text == str(each.steps + 1)


def test_flushed_scripts_are_loaded_again(server, plain):
    steppers = load(pair(server, plain))
    for _ in range(3):
        all_go_on(steppers)
        for each in plain.primaries:
            each.say("SCRIPT", "FLUSH")
    all_go_on(steppers)
    end_all(steppers)


def test_a_primary_that_is_away_stops_only_its_own_sequences(server, plain):
    """They get 503 with Retry-After, and go on by themselves when the server is back."""
    a, b = pair(server, plain)
    client = a.client()
    for i in range(60):
        assert step(client, f"s{i}", "k1").text == "1"
    plain.primaries[2].kill()
    answers = {i: step(client, f"s{i}", "k2") for i in range(60)}
    refused = [i for i, each in answers.items() if each.status == 503]
    assert 5 < len(refused) < 50, answers
    for i, each in answers.items():
        assert each.status == 503 or each.text == "2", each
        if each.status == 503:
            assert each.error == "store_unreachable" and "Retry-After" in each.headers, each.headers
            assert f":{plain.primaries[2].port} " in each.message, each.message
    assert [i for i in range(60) if step(b.client(), f"s{i}", "k2").status == 503] == refused
    plain.primaries[2].start()
    expect(lambda: all(step(client, f"s{i}", "k2").text == "2" for i in range(60)), "all sequences to go on", 30)
    assert all(step(b.client(), f"s{i}", "k3").text == "3" for i in range(60))


def test_a_wrong_password_is_named(server, folder, transcript):
    with store_cluster_in(folder, transcript, replicas=0, password="secret") as store:
        for login, why in ((":wrong@", "refuses the user name or the password"),
                           ("", "valkey+cluster://:password@host")):
            s = server(counter(), flags=["--state-store", store.url_with(login)], start=False)
            s.launch()
            assert s.exit_code() == 1
            s.expect_log(why)
        s = node(server, store.url, "right")
        assert step(s.client(), "s", "k1").text == "1"


def test_the_wrong_kind_of_url_is_named(server, plain, folder, transcript):
    with shared_store_in(folder, transcript) as alone:
        for url, why in ((plain.url.replace("valkey+cluster", "valkey"), "begin the URL with valkey+cluster://"),
                         (alone.url.replace("valkey", "valkey+cluster", 1), "is not a node of a cluster")):
            s = server(counter(), flags=["--state-store", url], start=False)
            s.launch()
            assert s.exit_code() == 1
            s.expect_log(why)
