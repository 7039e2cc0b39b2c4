"""A shared store with replicas and Sentinels: valkey+sentinel:// (docs/shared-store.md)."""

import threading

import pytest

from models import counter
from sentinels import NAME, replicated_store_in
from waiting import expect


@pytest.fixture
def replicated(folder, transcript):
    with replicated_store_in(folder, transcript) as made:
        yield made


def node(server, store, name="server", **state):
    model = counter(minWorkers=1, maxWorkers=1, batchSize=8,
                    state={"storeTimeoutMSec": 1000, "replicas": 1, **state})
    return server(model, flags=["--state-store", store.url], name=name)


def step(client, sequence, key):
    return client.step("counter", sequence, 1, headers={"Idempotency-Key": key})


def surely(client, sequence, key):
    """A client that repeats its request while the store is away. Each refusal must be one that says so."""
    answers = []

    def ask():
        answers.append(step(client, sequence, key))
        assert answers[-1].status == 200 or answers[-1].error == "store_unreachable", answers[-1]
        return answers[-1].status == 200

    expect(ask, f"the step {key} of {sequence} to be done", 60)
    return int(answers[-1].text)


def test_no_step_is_lost_when_the_primary_is_killed(server, replicated):
    """With state.replicas: 1, one machine may die: clients that repeat their requests see each count once."""
    nodes = [node(server, replicated, name) for name in "ab"]
    wrong = []
    killed = threading.Event()

    def drive(which):
        clients = [each.client() for each in nodes]
        for i in range(1, 61):
            value = surely(clients[i % 2], f"s{which}", f"k{i}")
            if value != i:
                wrong.append((which, i, value))
            if i == 20:
                killed.wait(60)

    threads = [threading.Thread(target=drive, args=(which,)) for which in range(4)]
    for each in threads:
        each.start()
    old = replicated.primary()
    old.kill()
    killed.set()
    for each in threads:
        each.join()
    assert not wrong, wrong[:5]
    assert replicated.primary() is not old
    listed = nodes[0].admin().get("/models/counter/sequences?limit=100").json
    assert [each["sequence"] for each in listed["sequences"]] == [f"s{i}" for i in range(4)]


def follows(primary, n):
    """Waits until the primary has n replicas with its data."""
    expect(lambda: primary.counts("state=online", "INFO", "replication") == n, f"{n} replicas", 30)


def restarted_without_one_replica(store):
    """The primary is killed and comes back at once, before the Sentinels take it for down. One replica gets its data, and
    the other one does not, but is well otherwise. The Sentinels would choose the latter, because its offset is that of
    the old primary's data, and the offset of the other one began at zero again."""
    primary, fresh, stale = store.stores
    store.down_after(600_000)
    primary.say("EVAL", "for i = 1, 100 do redis.call('SET', 'padding' .. i, string.rep('x', 10000)) end", "0")
    expect(lambda: all(each.say("GET", "padding100") for each in (fresh, stale)), "the replicas to have all", 30)
    stale.say("CONFIG", "SET", "masterauth", "a password that the primary does not know")
    primary.kill()
    primary.start()
    follows(primary, 1)
    return primary, fresh, stale


def test_a_primary_that_is_restarted_confirms_nothing_before_all_replicas_have_its_data(server, replicated):
    """Otherwise a step would be lost that one replica has confirmed."""
    client = node(server, replicated).client()
    for i in range(1, 4):
        assert surely(client, "s", f"k{i}") == i
    primary, fresh, stale = restarted_without_one_replica(replicated)
    refused = expect(lambda: (answer := step(client, "s", "k4")).status == 503 and "was started anew" in answer.message
                     and answer, "a refusal")
    assert "only 1 of the 2 replicas" in refused.message, refused
    primary.kill()
    replicated.down_after(1000)
    assert replicated.expect_another_primary(primary) is stale
    for i in range(4, 8):
        assert surely(client, "s", f"k{i}") == i


def test_steps_go_on_when_all_replicas_have_the_data_of_a_restarted_primary(server, replicated):
    client = node(server, replicated).client()
    assert surely(client, "s", "k1") == 1
    primary, fresh, stale = restarted_without_one_replica(replicated)
    assert step(client, "s", "k2").status == 503
    stale.say("CONFIG", "SET", "masterauth", "")
    follows(primary, 2)
    assert surely(client, "s", "k2") == 2
    primary.kill()
    replicated.down_after(1000)
    replicated.expect_another_primary(primary)
    assert surely(client, "s", "k3") == 3


def test_a_replica_that_is_down_does_not_stop_the_steps_of_a_restarted_primary(server, replicated):
    client = node(server, replicated).client()
    assert surely(client, "s", "k1") == 1
    primary, fresh, stale = restarted_without_one_replica(replicated)
    assert step(client, "s", "k2").status == 503
    stale.kill()
    replicated.down_after(1000)
    assert surely(client, "s", "k2") == 2
    assert replicated.primary() is primary


def test_an_idle_node_leaves_a_primary_that_was_replaced_and_comes_back(server, replicated):
    """A primary that was cut off comes back and still takes writes, until the Sentinels make it a replica. A node with
    an open connection to it must not use it."""
    a, b = node(server, replicated, "a"), node(server, replicated, "b")
    assert surely(a.client(), "s", "k1") == 1
    assert surely(b.client(), "s", "k2") == 2
    old = replicated.primary()
    old.pause()
    new = replicated.expect_another_primary(old)
    assert surely(a.client(), "s", "k3") == 3
    old.go_on()
    assert surely(b.client(), "s", "k4") == 4  # 503 as long as the new primary has no replica again
    assert surely(a.client(), "s", "k5") == 5
    expect(lambda: old.counts("role:slave", "INFO", "replication"), "the old primary to be a replica", 60)
    assert new is replicated.primary()


def test_a_node_follows_without_waiting_for_a_broken_connection(server, replicated):
    """A planned failover: the old primary becomes a replica and refuses writes (READONLY)."""
    s = node(server, replicated)
    client = s.client()
    assert surely(client, "s", "k1") == 1
    old = replicated.primary()
    replicated.sentinels[0].say("SENTINEL", "FAILOVER", NAME)
    replicated.expect_another_primary(old)
    for i in range(2, 12):
        assert surely(client, "s", f"k{i}") == i


def test_one_dead_sentinel_does_not_matter(server, replicated):
    replicated.sentinels[0].kill()
    s = node(server, replicated)
    assert surely(s.client(), "s", "k1") == 1
    replicated.sentinels[1].kill()  # also the one that the node has subscribed to
    assert surely(s.client(), "s", "k2") == 2


def test_an_unknown_primary_is_named(server, replicated):
    s = server(counter(), flags=["--state-store", replicated.url.replace(NAME, "other")], start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("does not know a primary with the name 'other'")
