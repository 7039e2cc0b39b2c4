"""The nodes of a shared store know of each other: GET /nodes (docs/shared-store.md)."""

import pytest

from models import counter
from shared_store import shared_store_in
from waiting import expect

TTL_MS = 900  # a node that was killed is on the list for this time


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


def node(server, store, name, *flags):
    return server(counter(), name=name, flags=["--state-store", store.url, "--node-ttl", TTL_MS,
                                               "--node-name", name, *flags])


def nodes(s):
    answer = s.admin().get("/nodes")
    assert answer.status == 200, answer
    return answer.json


def names(s):
    return [each["name"] for each in nodes(s)["nodes"]]


def test_every_node_lists_all_nodes_and_forgets_those_that_are_gone(server, store):
    """One that is stopped leaves the list at once, one that is killed after --node-ttl."""
    a, b, c = (node(server, store, name) for name in "abc")
    for s in (a, b, c):
        expect(lambda s=s: names(s) == ["a", "b", "c"], "all nodes to be listed")
    entry = nodes(c)["nodes"][0]
    assert entry["management"] == a.management and entry["inference"] == a.inference, entry
    expect(lambda: nodes(b)["nodes"][0]["state"] == "ready", "a to be ready")
    assert abs(entry["clockAheadMSec"] or 0) < 5000
    b.stop()
    expect(lambda: names(a) == ["a", "c"], "b to be gone")
    c.kill()
    expect(lambda: names(a) == ["a"], "c to be gone")


def test_two_nodes_with_one_name_are_told(server, store):
    """Otherwise each would be taken for the other by whoever looks for a node by its name."""
    a = node(server, store, "a")
    twin = server(counter(), name="twin", flags=["--state-store", store.url, "--node-ttl", TTL_MS,
                                                 "--node-name", "a"])
    for s in (a, twin):
        s.expect_log("event=node_name_taken name=a")
        expect(lambda s=s: nodes(s)["duplicateName"] is True, "the duplicate to be told")
    assert names(a) == ["a", "a"]
    twin.stop()
    a.expect_log("event=node_name_free name=a")


def test_a_node_that_was_killed_and_came_back_is_not_its_own_duplicate(server, store):
    a = node(server, store, "a")
    expect(lambda: names(a) == ["a"], "the node to be listed")
    before = nodes(a)["instance"]
    a.kill()
    a.restart()
    expect(lambda: [each["instance"] for each in nodes(a)["nodes"]] == [nodes(a)["instance"]],
           "the entry of the killed process to go")
    assert nodes(a)["instance"] != before
    assert not any("node_name_taken" in line for line in a.lines)


def test_the_list_outlives_the_store(server, store):
    """While the store is away, the answer has the last list and the reason; then it goes on by itself."""
    a = node(server, store, "a")
    expect(lambda: names(a) == ["a"], "the node to be listed")
    store.kill()
    a.expect_log("event=nodes_unreachable")
    answer = nodes(a)
    assert [each["name"] for each in answer["nodes"]] == ["a"]
    assert "state store" in answer["error"] and answer["store"] is None
    store.start()
    a.expect_log("event=nodes_reachable")
    expect(lambda: nodes(a)["error"] is None, "the list to be read again")


def test_the_advertised_addresses_are_listed(server, store):
    a = node(server, store, "a", "--advertise", "http://node-a.example:80",
             "--advertise-management", "https://node-a.example:8444")
    expect(lambda: names(a) == ["a"], "the node to be listed")
    entry = nodes(a)["nodes"][0]
    assert entry["inference"] == "http://node-a.example:80"
    assert entry["management"] == "https://node-a.example:8444"


@pytest.mark.parametrize("flags, words", [
    (("--node-name", "a b"), "a name may have letters"),
    (("--node-name", "x" * 64), "1 to 63 characters"),
    (("--advertise", "somewhere"), "--advertise"),
    (("--advertise-management", "ftp://x"), "--advertise-management"),
])
def test_wrong_options_are_refused(server, flags, words):
    s = server(counter(), flags=flags, start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log(words)


def test_a_server_with_an_embedded_store_has_no_list(server):
    s = server(counter())
    assert nodes(s) == {"shared": False, "nodes": []}
    assert s.admin().post("/nodes", b"").status == 405
    assert s.admin().get("/nodes/a").status == 404
    with open(f"/proc/{s.process.pid}/maps", encoding="ascii") as maps:
        text = maps.read()
    assert "hiredis" not in text and "lmdb" not in text
