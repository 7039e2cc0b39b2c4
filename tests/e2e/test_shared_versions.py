"""Nodes of several versions of Continuo on one shared store: what another version has written is refused with a clear
error, and is never misread, replaced or removed."""

import pytest

from models import counter
from shared_store import shared_store_in

STAMP_BYTES = 34
ENTRY = "{test/counter/1.0/*}:s"
LAYOUT = "{test/counter/1.0/00}layout"

"""What another version might write: (where, byte, what the error says). The record's format follows its magic."""
OTHERS = {
    "an older layout": (0, 1, "in layout 1"),
    "a newer layout": (0, 3, "in layout 3"),
    "an older format": (STAMP_BYTES + 4, 5, "in format 5"),
    "a newer format": (STAMP_BYTES + 4, 7, "in format 7"),
}


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


def node(server, store, **more):
    return server(counter(minWorkers=1, maxWorkers=1), flags=["--state-store", store.url], **more)


def set_byte(store, key, offset, value):
    store.say("EVAL", "local now = redis.call('GETRANGE', KEYS[1], ARGV[1], ARGV[1])"
                      "redis.call('SETRANGE', KEYS[1], ARGV[1], string.char(ARGV[2]))"
                      "return string.byte(now)", "1", key, str(offset), str(value))


def digest(store, key):
    return store.say("EVAL", "return redis.sha1hex(redis.call('GET', KEYS[1]) or '')", "1", key)


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("warm", [True, False], ids=["in the cache", "not in the cache"])
def test_a_state_of_another_version_is_refused_and_kept(server, store, what, warm):
    """Each request that would replace or remove a damaged state must leave this one alone. When its own version has it
    again, the sequence goes on."""
    offset, byte, said = OTHERS[what]
    s = node(server, store)
    client, admin = s.client(), s.admin()
    for total in (1, 2, 3):
        assert client.step("counter", "s", 1).text == str(total)
    key = store.say("KEYS", ENTRY)
    ours = {at: int(store.say("EVAL", "return string.byte(redis.call('GETRANGE', KEYS[1], ARGV[1], ARGV[1]))", "1", key,
                              str(at))) for at in (offset, 18)}
    if not warm:
        s.kill_worker("counter")
        s.expect_ready("counter")
    set_byte(store, key, offset, byte)
    set_byte(store, key, 18, (ours[18] + 1) % 256)  # the other version has done a step, so the last job differs
    before = digest(store, key)

    for headers in ({}, {"Idempotency-Key": "k"}, {"ts-request-sequence-start": "true"},
                    {"ts-request-sequence-end": "true"}):
        refused = client.step("counter", "s", 1, headers=headers)
        assert refused.status == 507 and refused.error == "state_store", (headers, refused)
        assert said in refused.message and "another version of Continuo" in refused.message, refused
        assert digest(store, key) == before, headers
    assert admin.get("/models/counter/sequences/s").status == 507
    assert admin.delete("/models/counter/sequences/s").status == 507
    assert admin.get("/models/counter/sequences").status == 200  # a list leaves out what it cannot read
    assert digest(store, key) == before
    assert client.step("counter", "other", 1).text == "1", "other sequences go on"

    for at, value in ours.items():
        set_byte(store, key, at, value)
    assert client.step("counter", "s", 1).text == "4"


@pytest.mark.parametrize("layout", ["1/6", "2/7", "3/6", "9" * 100, "what is this"])
def test_a_node_does_not_open_a_store_whose_layout_it_does_not_know(server, store, layout):
    """Its keys may have other names, so the node would see no sequences and begin each of them anew."""
    store.say("SET", LAYOUT, layout)
    s = node(server, store, start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("in layout " + layout[:30], "knows layout 2/6")
    assert store.say("GET", LAYOUT) == layout


def test_the_first_node_writes_the_layout_and_others_of_its_version_join(server, store):
    a = node(server, store, name="a")
    assert store.say("GET", LAYOUT) == "2/6"
    b = node(server, store, name="b")
    assert a.client().step("counter", "s", 1).text == "1"
    assert b.client().step("counter", "s", 1).text == "2"


def test_a_node_that_runs_is_not_disturbed_by_a_version_that_comes_and_goes(server, store):
    """A newer version sets the layout aside only when no older node is left; until then all write the old one. A worker
    that starts in spite of that is refused, and the states that are there stay as they are."""
    s = node(server, store)
    assert s.client().step("counter", "s", 1).text == "1"
    store.say("SET", LAYOUT, "3/6")
    assert s.client().step("counter", "s", 1).text == "2"
    s.kill_worker("counter")
    s.expect_log("in layout 3/6")
    store.say("SET", LAYOUT, "2/6")
    s.expect_ready("counter", timeout=60)
    assert s.client().step("counter", "s", 1).text == "3"
