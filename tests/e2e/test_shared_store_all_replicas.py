"""state.replicas: all, with real Sentinels: a step counts when every replica that could become the primary has it."""

import pytest

from models import counter
from sentinels import NAME, replicated_store_in
from shared_store import shared_store_in
from waiting import expect

LONG_MS = 600_000


@pytest.fixture
def replicated(folder, transcript):
    with replicated_store_in(folder, transcript) as made:
        yield made


def model(replicas, **state):
    return counter(minWorkers=1, maxWorkers=1, state={"storeTimeoutMSec": 1000, "replicas": replicas, **state})


def node(server, store, replicas="all", **state):
    return server(model(replicas, **state), flags=["--state-store", store.url])


def step(client, key):
    return client.step("counter", "s", 1, headers={"Idempotency-Key": key})


def surely(client, key):
    """A client that repeats its request while the store refuses it. Returns the count."""
    answers = []

    def ask():
        answers.append(step(client, key))
        assert answers[-1].status == 200 or answers[-1].error == "store_unreachable", answers[-1]
        return answers[-1].status == 200

    expect(ask, f"the step {key} to be done", 60)
    return int(answers[-1].text)


def refused(client, key):
    answer = step(client, key)
    assert (answer.status, answer.error) == (503, "store_unreachable"), answer
    return answer.message


def says_down(sentinel, store):
    """Whether the Sentinel takes the replica for down; None if it does not know it."""
    lines = sentinel.say("SENTINEL", "REPLICAS", NAME).split("\n")
    replicas = [lines[at:] for at, line in enumerate(lines) if line == "name"]
    for each in replicas:
        if each[each.index("port") + 1] == str(store.port):
            return "s_down" in each[each.index("flags") + 1]
    return None


def has_caught_up(primary, replica):
    def offset(store, field):
        return next((line.split(":")[1].strip() for line in store.say("INFO", "replication").split("\n")
                     if line.startswith(field + ":")), None)

    return offset(primary, "master_repl_offset") == offset(replica, "slave_repl_offset")


@pytest.mark.parametrize("replicas", [1, "all"])
def test_a_primary_that_lives_while_another_is_chosen_loses_steps_only_with_a_number(server, replicated, replicas):
    """A replica is promoted, and until the Sentinels have announced it the old primary lives and has the other replica.
    With 1 it confirms a step that is then lost. With all it does not: the promoted replica still counts."""
    primary, chosen, other = replicated.stores
    replicated.down_after(LONG_MS)
    # The node knows only the steps that it has done without a 503, so with 1 it waits long for the replica.
    patience = {"storeTimeoutMSec": 20000} if replicas == 1 else {}
    client = node(server, replicated, replicas, **patience).client()
    assert surely(client, "k1") == 1
    expect(lambda: has_caught_up(primary, chosen), "the replica has the first step", 30)
    chosen.say("REPLICAOF", "NO", "ONE")
    answer = step(client, "k2")
    for each in replicated.sentinels:
        each.say("SENTINEL", "REMOVE", NAME)
        each.say("SENTINEL", "MONITOR", NAME, "127.0.0.1", str(chosen.port), "2")
    for each in (other, primary):
        each.say("REPLICAOF", "127.0.0.1", str(chosen.port))
    if replicas == 1:
        assert answer.text == "2"
        lost = []
        expect(lambda: lost.append(step(client, "k3")) or lost[-1].status != 503, "an answer", 30)
        assert (lost[-1].status, lost[-1].error) == (409, "steps_lost"), lost[-1]
        return
    assert (answer.status, answer.error) == (503, "store_unreachable"), answer
    assert "only 1 of 2 replicas" in answer.message and "state.replicas: all" in answer.message, answer
    assert surely(client, "k2") == 2
    assert surely(client, "k3") == 3


def test_a_dead_replica_stops_the_steps_until_the_sentinels_take_it_for_down(server, replicated):
    primary, _, second = replicated.stores
    replicated.down_after(LONG_MS)
    s = node(server, replicated)
    client = s.client()
    assert s.describe("counter")["stateStore"]["replicas"] == "all"
    assert surely(client, "k1") == 1
    second.kill()
    assert "only 1 of 2 replicas" in refused(client, "k2")
    replicated.down_after(1000)
    assert surely(client, "k2") == 2
    assert surely(client, "k3") == 3
    second.start()
    second.say("REPLICAOF", "127.0.0.1", str(primary.port))
    expect(lambda: not any(says_down(each, second) for each in replicated.sentinels), "the replica to be up", 60)
    expect(lambda: has_caught_up(primary, second), "the replica to have all steps", 30)
    replicated.down_after(LONG_MS)
    assert surely(client, "k4") == 4
    second.pause()
    assert "only 1 of 2 replicas" in refused(client, "k5")
    second.go_on()
    assert surely(client, "k5") == 5


def test_one_sentinel_alone_does_not_make_a_replica_count_for_down(server, replicated):
    """It may be cut off from the others together with the primary and this node, and they may choose that replica."""
    second = replicated.stores[2]
    left, *others = replicated.sentinels
    client = node(server, replicated).client()
    assert surely(client, "k1") == 1
    for each in others:
        each.kill()
    second.kill()
    expect(lambda: says_down(left, second), "the Sentinel to take the replica for down", 30)
    for _ in range(4):
        refused(client, "k2")
    others[0].start()
    assert surely(client, "k2") == 2


def test_steps_go_on_after_a_failover_with_the_replica_that_is_left(server, replicated):
    """The old primary is on the Sentinels' list of replicas, dead or not yet a replica."""
    client = node(server, replicated).client()
    for i in range(1, 4):
        assert surely(client, f"k{i}") == i
    old = replicated.primary()
    old.kill()
    new = replicated.expect_another_primary(old)
    for i in range(4, 8):
        assert surely(client, f"k{i}") == i
    old.start()
    expect(lambda: new.counts("state=online", "INFO", "replication") == 2, "the old primary to be a replica", 60)
    assert surely(client, "k8") == 8


def test_a_replica_that_is_added_must_confirm_too(server, replicated, folder, transcript):
    primary = replicated.stores[0]
    replicated.down_after(LONG_MS)
    client = node(server, replicated).client()
    assert surely(client, "k1") == 1
    with shared_store_in(folder, transcript) as third:
        third.say("REPLICAOF", "127.0.0.1", str(primary.port))
        expect(lambda: all(says_down(each, third) is False for each in replicated.sentinels), "a third replica", 60)
        expect(lambda: has_caught_up(primary, third), "the third replica to have all steps", 30)
        assert surely(client, "k2") == 2
        third.pause()
        assert "only 2 of 3 replicas" in refused(client, "k3")
        third.go_on()
        assert surely(client, "k3") == 3


def test_all_is_refused_where_nobody_says_which_replicas_these_are(server, folder, transcript):
    with shared_store_in(folder, transcript) as store:
        s = server(model("all"), flags=["--state-store", store.url], start=False)
        s.launch()
        assert s.exit_code() == 1
        s.expect_log("state.replicas is all, but the states are in a store whose URL names no Sentinels")


def test_all_is_refused_with_the_embedded_store(server):
    s = server(model("all"), start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("state.replicas is all, but the states are in the embedded store")
