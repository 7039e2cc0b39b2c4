"""A store that is far away: batches run while the commits of others are on their way (worker/commits_away.c)."""

import concurrent.futures
import itertools
import threading

import pytest

from models import counter
from relay import relay_to
from shared_store import shared_store_in
from waiting import expect, limit

STEP = b"$5\r\nsmall\r\n"  # a word of the call that commits steps of small entries


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


@pytest.fixture
def relay(store):
    with relay_to(store.port) as made:
        yield made


def node(server, relay, name="server"):
    return server(counter(minWorkers=1, maxWorkers=1, batchSize=16, state={"storeTimeoutMSec": 30000}),
                  flags=["--state-store", f"valkey://127.0.0.1:{relay.port}/test"], name=name)


def in_the_end(client, sequence, key):
    """Sends a step again and again until it is done, as a client does that numbers its requests."""
    return int(expect(lambda: (answer := client.step("counter", sequence, 1, headers={"Idempotency-Key": key})).status == 200
                      and answer, f"step {key} of {sequence}", 60).text)


@pytest.fixture
def clients():
    """clients(n, work) runs work(i) in n threads, which end when the test does: they look at clients.over."""
    pool = concurrent.futures.ThreadPoolExecutor(32)

    def start(n, work):
        return [pool.submit(work, i) for i in range(n)]

    start.over = threading.Event()
    yield start
    start.over.set()
    pool.shutdown()


def count_up(s, clients, n=12):
    """Starts clients that count, each in a sequence of its own, until the test is over. Each checks its sums."""
    def work(i):
        client = s.client()
        for k in itertools.count(1):
            if clients.over.is_set():
                return k - 1
            done = in_the_end(client, f"s{i}", f"{i}-{k}")
            assert done == k, (i, k, done)

    return clients(n, work)


def ends(clients, counting):
    clients.over.set()
    return [each.result(limit(60)) for each in counting]


def test_steps_do_not_wait_for_the_commits_of_other_sequences(server, relay, clients):
    """One worker has several commits on their way at once. Nothing else shows it, because each answer is right
    anyway."""
    s = node(server, relay)
    relay.count_unanswered(STEP)
    relay.delay_s = 0.1
    counting = count_up(s, clients)
    expect(lambda: relay.most_unanswered >= 2, "two commits on their way at once", 60)
    relay.delay_s = 0
    assert min(ends(clients, counting)) >= 1


def test_with_a_near_store_a_worker_has_one_connection(server, store, clients):
    """A batch costs more than a row, so commits on their way at once would only make it slower."""
    s = server(counter(minWorkers=1, maxWorkers=1), flags=["--state-store", store.url])
    before = store.say("CLIENT", "LIST").count("\n")
    client = s.client()
    for i in range(1, 51):
        assert client.step("counter", "s", 1).text == str(i)
    # The node's own connection, for the list of nodes, may be made later than the worker's.
    assert store.say("CLIENT", "LIST").count("\n") <= before + 1


def test_nothing_is_lost_or_done_twice_while_commits_are_away(server, store, relay, clients):
    """Connections break, the store forgets its scripts and the worker dies, each time with commits on their way. Lists
    and deletions wait for these."""
    s = node(server, relay)
    relay.count_unanswered(STEP)
    relay.delay_s = 0.02
    counting = count_up(s, clients)
    expect(lambda: relay.most_unanswered >= 2, "two commits on their way at once", 60)
    admin = s.admin()
    for i in range(4):
        assert int(s.client().step("counter", f"gone{i}", 5).text) == 5
        relay.end_connections()
        assert in_the_end(s.client(), f"other{i}", "k") == 1
        store.say("SCRIPT", "FLUSH")
        listed = expect(lambda: (answer := admin.get("/models/counter/sequences?limit=100")).status == 200 and answer,
                        "the list", 30).json
        assert f"gone{i}" in {each["sequence"] for each in listed["sequences"]}
        expect(lambda i=i: admin.delete(f"/models/counter/sequences/gone{i}").status in (200, 404), "the deletion", 30)
        s.kill_worker("counter")
    relay.delay_s = 0
    assert min(ends(clients, counting)) >= 4


def test_two_nodes_race_for_sequences_of_a_far_store(server, relay, clients):
    """Rows that the other node was quicker with run again, also if their commit was away meanwhile. Two clients step each
    sequence, on either node in turn, so every number must come exactly once."""
    nodes = [node(server, relay, name) for name in "ab"]
    relay.count_unanswered(STEP)
    relay.delay_s = 0.01
    steps = 12

    def work(i):
        sequence, me = divmod(i, 2)
        ways = [each.client() for each in nodes]
        return [in_the_end(ways[(me + k) % 2], f"s{sequence}", f"{me}-{k}") for k in range(steps)]

    got = [each.result(limit(120)) for each in clients(12, work)]
    for a, b in zip(got[::2], got[1::2], strict=True):
        assert sorted(a + b) == list(range(1, 2 * steps + 1))
    assert relay.most_unanswered >= 2
