"""What an unregistered model leaves in a shared store, and its removal: /shared-states and continuo-ctl store rm-shared
(docs/shared-store.md)."""

import json
import subprocess

import pytest

from models import BIN, counter
from shared_store import shared_store_in
from waiting import expect, limit


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


@pytest.fixture
def ctl(transcript):
    def run(server, *words):
        done = subprocess.run([BIN / "continuo-ctl", "--server", server.management, *words], capture_output=True,
                              text=True, timeout=limit(60), check=False)
        transcript.log("ctl", f"{' '.join(words)} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done
    return run


def test_states_of_an_unregistered_model_are_removed_when_no_node_serves_it(server, store, ctl):
    a, b = [server(counter(), flags=["--state-store", store.url, "--node-name", name], name=name) for name in "ab"]
    client = a.client()
    for i in range(300):
        assert client.step("counter", f"s{i}", 1).status == 200
    assert b.client().step("counter", "s7", 1).text == "2"
    expect(lambda: json.loads(ctl(a, "--json", "store", "count-shared", "counter/1.0").stdout)["inUse"],
           "the lease to be seen")
    answer = a.admin().delete("/shared-states/counter/1.0")
    assert (answer.status, answer.error) == (409, "conflict") and "is registered on this node" in answer.message
    assert a.admin().delete("/models/counter").status == 200
    # The other node still serves it.
    done = expect(lambda: (run := ctl(a, "store", "rm-shared", "counter/1.0")).returncode and run, "a refusal")
    assert "a node still serves model counter version 1.0" in done.stderr
    assert b.client().step("counter", "s7", 1).text == "3"
    assert b.admin().delete("/models/counter").status == 200

    def removed():
        store.say("HSET", "{test/counter/1.0/00}lease", "until", "1")  # instead of waiting until it ends
        run = ctl(b, "store", "rm-shared", "counter/1.0")
        return run.returncode == 0 and run

    done = expect(removed, "the states to be removed")
    assert "counter/1.0: 300 sequences deleted from the shared store" in done.stdout
    assert "counter/1.0 has 0 sequences" in ctl(a, "store", "count-shared", "counter/1.0").stdout
    assert store.say("KEYS", "{test/counter/*") == ""
    assert a.register(counter(), initial_workers=1).status == 200
    a.expect_ready("counter", 1)
    assert client.step("counter", "s7", 5).text == "5"


def test_a_server_without_a_shared_store_says_so(server, ctl):
    s = server(counter())
    answer = s.admin().get("/shared-states/counter/1.0")
    assert answer.status == 400 and "has no shared store" in answer.message
    assert s.admin().get("/shared-states/counter").status == 404
    assert s.admin().post("/shared-states/counter/1.0", b"").status == 405
    assert "does not name a store" in ctl(s, "store", "rm-shared", "counter").stderr
