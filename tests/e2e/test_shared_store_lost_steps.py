"""A failover to a server that lacks the last writes: a node that knows better says what was lost."""

import contextlib

import pytest

from models import counter
from shared_store import SharedStore, shared_store_in
from waiting import expect
from websocketing import Stream


@contextlib.contextmanager
def replica_of(primary, folder, transcript, name="replica"):
    made = SharedStore(folder / name, transcript, "--repl-diskless-sync-delay", "0")
    try:
        made.start()
        primary.say("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        made.say("REPLICAOF", "127.0.0.1", str(primary.port))
        expect(lambda: made.counts("master_link_status:up", "INFO", "replication"), "the replica", 30)
        yield made
    finally:
        made.destroy()


@pytest.fixture
def pair(folder, transcript):
    with shared_store_in(folder, transcript) as primary:
        with replica_of(primary, folder, transcript) as replica:
            yield primary, replica


def node(server, pair, name="server", **state):
    url = pair[0].url.replace("/test", f",127.0.0.1:{pair[1].port}/test")
    return server(counter(minWorkers=1, maxWorkers=1, state={"storeTimeoutMSec": 1000, **state}),
                  flags=["--state-store", url], name=name)


def step(client, sequence, number=None, key=None):
    headers = {}
    if number:
        headers["ts-request-sequence-step"] = str(number)
    if key:
        headers["Idempotency-Key"] = key
    return client.step("counter", sequence, 1, headers=headers)


def has_caught_up(pair):
    """Whether the replica has all that the primary has written."""
    def offset(store, field):
        return next(line.split(":")[1].strip() for line in store.say("INFO", "replication").split("\n")
                    if line.startswith(field + ":"))

    return offset(pair[0], "master_repl_offset") == offset(pair[1], "slave_repl_offset")


def lose_what_follows(pair):
    """From here on the replica gets nothing more."""
    expect(lambda: has_caught_up(pair), "the replica to have all steps")
    pair[1].say("REPLICAOF", "NO", "ONE")


def answered(client, *args, **kwargs):
    """The first answer after the failover that is not about the store being away."""
    answers = []

    def ask():
        answers.append(step(client, *args, **kwargs))
        return answers[-1].status != 503

    expect(ask, "an answer", 30)
    return answers[-1]


def test_lost_steps_are_named_and_the_sequence_goes_on_from_what_is_there(server, pair):
    s = node(server, pair)
    client = s.client()
    for i in range(1, 5):
        assert step(client, "s").text == str(i)
    lose_what_follows(pair)
    for i in range(5, 8):
        assert step(client, "s").text == str(i)
    pair[0].kill()
    lost = answered(client, "s", key="k8")
    assert lost.status == 409 and lost.error == "steps_lost", lost
    assert "up to step 7: it has step 4" in lost.message, lost
    assert lost.headers["Continuo-Expected-Step"] == "5"
    assert step(client, "s").text == "5"  # the client has been told once, and goes on


def test_a_lost_sequence_is_gone(server, pair):
    s = node(server, pair)
    client = s.client()
    lose_what_follows(pair)
    assert step(client, "t").text == "1"
    assert step(client, "t").text == "2"
    pair[0].kill()
    lost = answered(client, "t")
    assert lost.status == 410 and lost.error == "sequence_lost", lost
    assert "was at step 2" in lost.message, lost
    assert step(client, "t").text == "1"


def test_a_key_that_was_lost_is_not_done_silently_on_an_older_state(server, pair):
    """The node has the key in its cache, and the store has a record from before it."""
    s = node(server, pair)
    client = s.client()
    assert step(client, "s", key="k1").text == "1"
    lose_what_follows(pair)
    assert step(client, "s", key="k2").text == "2"
    assert step(client, "s", key="k3").text == "3"
    pair[0].kill()
    lost = answered(client, "s", key="k3")
    assert lost.status == 409 and lost.error == "steps_lost", lost
    assert "up to step 3: it has step 1" in lost.message, lost
    assert step(client, "s", key="k2").text == "2"  # done again, as the client was told
    assert step(client, "s", key="k3").text == "3"


def test_another_step_with_the_number_of_a_lost_one_is_noticed(server, pair):
    """Another node, which does not know the lost step, has made its own one."""
    a, b = node(server, pair, "a"), node(server, pair, "b")
    assert step(a.client(), "s").text == "1"
    lose_what_follows(pair)
    assert step(a.client(), "s").text == "2"
    pair[0].kill()
    assert answered(b.client(), "s").text == "2"  # b cannot know
    lost = answered(a.client(), "s")
    assert lost.status == 409 and lost.error == "steps_lost", lost
    assert "has lost step 2" in lost.message and "another step 2 in its place" in lost.message, lost
    assert step(a.client(), "s").text == "3"


def test_a_numbered_step_is_right_on_a_node_that_cannot_know(server, pair):
    """The client's number tells what the node does not know."""
    a, b = node(server, pair, "a"), node(server, pair, "b")
    assert step(a.client(), "s", 1).text == "1"
    lose_what_follows(pair)
    assert step(a.client(), "s", 2).text == "2"
    pair[0].kill()
    lost = answered(b.client(), "s", 3)
    assert lost.status == 409 and lost.error == "step_mismatch", lost
    assert lost.headers["Continuo-Expected-Step"] == "2"


def test_a_start_begins_anew_whatever_was_lost(server, pair):
    s = node(server, pair)
    client = s.client()
    lose_what_follows(pair)
    assert step(client, "s").text == "1"
    pair[0].kill()

    def begin():
        return client.step("counter", "s", 1, headers={"ts-request-sequence-start": "true"}).status == 200

    expect(begin, "a new sequence", 30)
    assert step(client, "s").text == "2"


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_primary_that_lives_while_another_is_chosen_confirms_with_the_replicas_it_has_left(
        server, pair, folder, transcript, replicas):
    """Sentinels make one of two replicas the primary while the old primary lives. Until they have reached the other
    replica, it confirms steps of the old one, which are then lost. Only state.replicas: 2 keeps nodes from answering
    them (docs/reliability.md)."""
    primary, chosen = pair
    with replica_of(primary, folder, transcript, "other") as other:
        # The node knows only the steps that it has done without a 503, so it waits long for the replica that is left.
        patience = {"storeTimeoutMSec": 20000} if replicas == 1 else {}
        client = node(server, pair, replicas=replicas, **patience).client()
        assert step(client, "s", key="k1").text == "1"
        # One replica was enough for the answer, but the chosen one must have this step, too.
        expect(lambda: has_caught_up(pair), "the replica has the first step", 30)
        chosen.say("REPLICAOF", "NO", "ONE")
        answer = step(client, "s", key="k2")
        for each in (other, primary):
            each.say("REPLICAOF", "127.0.0.1", str(chosen.port))
        if replicas == 1:
            assert answer.text == "2"
            lost = answered(client, "s", key="k3")
            assert (lost.status, lost.error) == (409, "steps_lost"), lost
        else:
            assert (answer.status, answer.error) == (503, "store_unreachable"), answer
            assert answered(client, "s", key="k2").text == "2"


def test_a_stream_that_cannot_come_back_is_told_where_it_may_go_on(server, pair):
    """The node notices the loss when the stream asks where its sequence is."""
    running = node(server, pair)
    with Stream(running, "counter", "s") as stream:
        generation = stream.hello["generation"] or stream.step(1)["generation"]
    lose_what_follows(pair)
    assert step(running.client(), "s").text == "2"
    pair[0].kill()

    def closing():
        """What a stream that resumes behind step 2 gets, once the store is back."""
        told = Stream(running, "counter", "s", query={"last": 2, "generation": generation}, hello=False).closing()
        return None if told[1].code == 1013 else told

    messages, closed = expect(closing, "an answer about the sequence", 30)
    assert closed.code == 4004
    assert (messages[-1]["error"], messages[-1]["expected_step"]) == ("steps_lost", 2)
    with Stream(running, "counter", "s", query={"last": 1, "generation": generation}) as again:
        assert again.hello["next"] == 2
