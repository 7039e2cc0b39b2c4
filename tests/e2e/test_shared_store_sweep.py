"""Sequences that nobody touches, in a store that nodes share: one worker of all nodes closes them, once each."""

import collections
import re

import pytest

from models import COUNTER_LUA, Model
from shared_store import shared_store_in
from waiting import expect

CLOSED = re.compile(r"closed (\w+) because (\w+) with (\w+)")
TELLS = COUNTER_LUA.replace("return M\n", """
function M.close(seq, state, reason)
    continuo.log("info", "closed " .. seq.sequence_id .. " because " .. reason .. " with " .. tostring(state and state.sum))
end
return M
""")


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


def node(server, store, name, **yaml):
    settings = {"minWorkers": 2, "maxWorkers": 2, "batchSize": 8, "sequenceMaxIdleMSec": 60000} | yaml
    return server(Model("counter", TELLS, settings), flags=["--state-store", store.url], clock=True, name=name)


def closings(*nodes):
    """How often each sequence was closed, by (id, reason, sum)."""
    return collections.Counter(found.groups() for each in nodes for line in list(each.lines)
                               if (found := CLOSED.search(line)))


def entries(store):
    return [line for line in store.say("KEYS", "*}:*").split("\n") if line]


def add(node, sequence, number):
    """Sends the step again, as a client does that gets 503 because the clock moved while its worker waited."""
    key = {"Idempotency-Key": f"{sequence}-{number}"}
    answers = []
    expect(lambda: answers.append(node.client().step("counter", sequence, 1, headers=key)) or answers[-1].status != 503,
           "an answer that is not 503")
    return answers[-1]


def test_another_node_closes_what_a_dead_node_has_left(server, store):
    """The store has the sequences in the order in which they expire, so 300 of them are found within seconds."""
    a, b = node(server, store, "a"), node(server, store, "b")
    client = a.client()
    for i in range(300):
        assert client.step("counter", f"s{i}", i).text == str(i)
    a.kill()
    b.clock.advance(30000)
    assert add(b, "s7", 1).text == "8"  # its server closes this one
    b.clock.advance(95000)  # the sweep closes a sequence a minute after it has expired
    expect(lambda: len(closings(b)) >= 300, "the sequences of the dead node to be closed", timeout=60)
    assert closings(b) == {(f"s{i}", "idle", str(8 if i == 7 else i)): 1 for i in range(300)}
    late = add(b, "s9", 1)
    assert late.status == 410 and late.error == "sequence_expired", late


def test_tombstones_are_removed_when_their_time_is_over(server, store):
    a = node(server, store, "a", sequence={"tombstoneMSec": 120000})
    for i in range(40):
        assert a.client().step("counter", f"s{i}", 1).text == "1"
        assert a.admin().delete(f"/models/counter/sequences/s{i}").status == 200
    assert len(entries(store)) == 40
    a.clock.advance(185000)
    expect(lambda: not entries(store), "the tombstones to be removed", timeout=60)


def test_a_sequence_that_two_nodes_know_is_closed_once(server, store):
    """Both servers know it and want to close it, and both nodes' workers sweep."""
    nodes = [node(server, store, name) for name in "ab"]
    for i in range(60):
        for number, each in enumerate(nodes):
            assert each.client().step("counter", f"s{i}", 1).text == str(number + 1)
    for _ in range(5):
        for each in nodes:
            each.clock.advance(40000)
    expect(lambda: len(closings(*nodes)) >= 60, "all sequences to be closed", timeout=60)
    for each in nodes:  # whoever would close one again does it now
        each.clock.advance(130000)
    expect(lambda: all(each.client().step("counter", "new", 1).status == 200 for each in nodes), "the nodes to answer")
    found = closings(*nodes)
    assert {key[0] for key in found} == {f"s{i}" for i in range(60)}
    assert set(found.values()) == {1}, [each for each in found.items() if each[1] > 1]


def test_clocks_that_differ_by_minutes_lose_no_step(server, store):
    """With limits that are longer than the difference nothing is closed too early. A sequence that has expired by the
    clock that is ahead is gone for both nodes, with the reason."""
    a, b = (node(server, store, name, sequenceMaxIdleMSec=600000) for name in "ab")
    b.clock.advance(180000)

    for total in range(1, 11):
        assert add((a, b)[total % 2], "s", total).text == str(total)
    assert add(a, "late", 1).text == "1"
    b.clock.advance(480000)  # eleven minutes ahead of the other
    gone = add(b, "late", 2)
    assert gone.status == 410 and gone.error == "sequence_expired", gone
    assert add(a, "late", 3).status == 410
    assert add(b, "new", 1).text == "1"
    assert add(a, "new", 2).text == "2"
