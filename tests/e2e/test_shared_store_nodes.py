"""What one node offers, across two nodes with one store: swaps, copies, streams, gRPC, Python, limits, descriptions."""

import os
import signal
import threading

import numpy as np
import pytest

import v2rpc
from models import BIN, COUNTER_LUA, Model, counter, python
from rpc import Rpc
from shared_store import shared_store_in
from test_swap import DOUBLE, MIGRATING
from test_v2_http import accumulator
from waiting import expect


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


@pytest.fixture
def pair(server, store):
    """pair(model, ...) starts two nodes with these models."""
    def start(*models, flags=(), **more):
        return [server(*models, flags=["--state-store", store.url, *flags], name=name, **more) for name in "ab"]

    return start


def model(version="1.0", lua=COUNTER_LUA, policy=None, **yaml):
    sequence = {"sequence": {"swapPolicy": policy}} if policy else {}
    return Model("counter", lua, {"minWorkers": 1, "maxWorkers": 1, "batchSize": 8} | sequence | yaml, version)


def step(node, sequence, text, **headers):
    return node.client().step("counter", sequence, text, headers=headers or None)


# --- swaps


def swap(nodes, lua, policy):
    for each in nodes:
        assert each.register(model("2.0", lua, policy)).status == 200
    for each in nodes:
        assert each.admin().put("/models/counter/2.0/set-default").status == 200


def test_a_sequence_that_migrates_on_one_node_has_migrated_on_the_other(pair):
    nodes = pair(model())
    for i in range(10):
        assert step(nodes[i % 2], f"s{i}", i).text == str(i)
    swap(nodes, MIGRATING, "migrate")
    for i in range(10):
        first, second = nodes[(i + 1) % 2], nodes[i % 2]
        assert step(first, f"s{i}", 1).text == f"{i + 2} 1/1.0"
        assert step(second, f"s{i}", 1).text == f"{i + 4} 1/1.0"
        assert step(first, f"s{i}", 1).text == f"{i + 6} 1/1.0"


def test_a_pinned_sequence_stays_in_its_version_on_both_nodes(pair):
    nodes = pair(model())
    for i in range(10):
        assert step(nodes[i % 2], f"s{i}", i).text == str(i)
    swap(nodes, DOUBLE, "pin")
    for i in range(10):
        assert step(nodes[(i + 1) % 2], f"s{i}", 1).text == str(i + 1)
        assert step(nodes[i % 2], f"s{i}", 1).text == str(i + 2)
    assert step(nodes[0], "new", 1).text == "2"
    assert step(nodes[1], "new", 1).text == "4"


def test_unregistering_on_one_node_takes_nothing_from_the_other(pair):
    a, b = pair(model())
    assert step(a, "s", 1).text == "1"
    assert step(b, "s", 1).text == "2"
    assert a.admin().delete("/models/counter").status == 200
    assert step(b, "s", 1).text == "3"
    assert a.register(model()).status == 200
    assert step(a, "s", 1).text == "4"


# --- the sequences' own interface


def test_copies_exports_and_imports(pair):
    a, b = pair(model())
    path = "/models/counter/sequences"
    assert step(a, "s", 5).text == "5"
    assert b.admin().post(f"{path}/s?fork_to=copy").status == 200
    assert step(a, "copy", 1).text == "6"
    assert step(b, "s", 1).text == "6"
    exported = a.admin().get(f"{path}/s?export=true")
    assert exported.status == 200
    assert b.admin().put(f"{path}/t", body=exported.body).status == 200
    assert step(a, "t", 1).text == "7"
    assert step(a, "s", 1).text == "7"  # the warm state of node b must not hide the import
    assert a.admin().put(f"{path}/s?replace=true", body=exported.body).status == 200
    assert step(b, "s", 1).text == "7"


def test_a_deletion_meets_a_warm_state_elsewhere(pair):
    a, b = pair(model())
    for total in range(1, 4):
        assert step(a, "s", 1).text == str(total)
    assert b.admin().delete("/models/counter/sequences/s").status == 200
    late = step(a, "s", 1)
    assert late.status == 410, late
    assert step(a, "s", 1, **{"ts-request-sequence-start": "true"}).text == "1"
    assert step(b, "s", 1).text == "2"


# --- streams, gRPC, Python

TALKER = COUNTER_LUA.replace("function M.step(state, req)\n", """function M.step(state, req)
    if req.body == "talk" then
        for i = 1, 3 do
            state.sum = state.sum + 1
            coroutine.yield({ text = state.sum .. " " })
        end
        return { text = "end" }
    end
""")


def test_a_streamed_answer_on_one_node_and_the_next_step_on_the_other(pair):
    a, b = pair(model(lua=TALKER))
    for round_ in range(3):
        for number, each in enumerate((a, b)):
            sum_ = round_ * 8 + number * 4
            stream = each.stream("counter", "s", "talk")
            assert stream.rest().decode() == f"{sum_ + 1} {sum_ + 2} {sum_ + 3} end"
            stream.close()
            assert step((b, a)[number], "s", 1).text == str(sum_ + 4)


def test_grpc_calls_in_turn(pair):
    nodes = pair(model())
    clients = [Rpc(each.grpc) for each in nodes]
    for total in range(1, 21):
        assert clients[total % 2].predict("counter", 1, "s").prediction == str(total).encode()
    for each in clients:
        each.close()


def test_grpc_streams_of_v2_in_turn(pair):
    """A bidirectional stream to each node, and one sequence in both."""
    nodes = pair(accumulator())
    channels = [v2rpc.channel_of(each) for each in nodes]
    streams = [v2rpc.Stream(each) for each in channels]
    for total in range(1, 21):
        answer = streams[total % 2].ask(v2rpc.step("accumulator", 1, "s", **({"sequence_start": True} if total == 1 else {})))
        assert not answer.error_message, answer
        assert np.frombuffer(answer.infer_response.raw_output_contents[0], np.int32).tolist() == [total]
    for each in streams:
        each.half_close()
        assert each.rest() == []
    for each in channels:
        each.close()


@pytest.mark.skipif(not (BIN / "python/continuo/_worker.abi3.so").exists(), reason="this build has no Python (python3-dev)")
def test_python_handlers(pair):
    nodes = pair(python("counter", minWorkers=1, maxWorkers=1, batchSize=8))
    for total in range(1, 21):
        assert step(nodes[total % 2], "s", 1).text == str(total)


# --- limits


def test_max_num_sequence_counts_what_a_node_knows(pair):
    """So N nodes together can have N times as many."""
    nodes = pair(model(maxNumSequence=5))
    for number, each in enumerate(nodes):
        for i in range(5):
            assert step(each, f"{number}-{i}", 1).text == "1"
        refused = step(each, f"{number}-more", 1)
        assert refused.status == 429 and refused.error == "too_many_sequences", refused


def test_a_step_that_loses_three_times_is_contended(pair):
    """Many clients of both nodes race for one sequence."""
    nodes = pair(model())
    assert step(nodes[0], "s", 1).text == "1"
    stop, answers = threading.Event(), []

    def race(node):
        client = node.client()
        while not stop.is_set():
            answers.append(client.step("counter", "s", 1))

    threads = [threading.Thread(target=race, args=(node,)) for node in nodes for _ in range(6)]
    for each in threads:
        each.start()
    try:
        refused = expect(lambda: next((each for each in list(answers) if each.status != 200), None),
                         "a step to lose three times", timeout=60)
    finally:
        stop.set()
        for each in threads:
            each.join()
    assert (refused.status, refused.error) == (409, "contended"), refused
    assert int(refused.headers["Retry-After"]) >= 1
    done = sorted(int(each.text) for each in answers if each.status == 200)
    assert done == list(range(2, len(done) + 2))


def test_a_state_folder_belongs_to_one_node(server, store):
    """A node's own files are not shared, although its sequences are."""
    a = server(model(), flags=["--state-store", store.url], name="a")
    assert step(a, "s", 1).text == "1"
    b = server(model(), flags=["--state-store", store.url], name="b", start=False)
    b.state_dir = a.state_dir
    b.launch()
    assert b.exit_code() == 1
    assert step(a, "s", 1).text == "2"


# --- seeing it


def test_descriptions_and_metrics_show_the_store(pair, store):
    store.say("CONFIG", "SET", "requirepass", "secret")
    store.password = "secret"
    a, b = pair(model(state={"storeTimeoutMSec": 1000}))
    for total in range(1, 31):
        assert step((a, b)[total % 2], "s", 1).text == str(total)

    def shown():
        return a.describe("counter")["stateStore"]

    expect(lambda: shown()["connected"], "the worker to report")
    assert shown()["kind"] == "shared" and shown()["url"] == store.url.replace("secret", "***"), shown()
    assert shown()["since"] and shown()["lastError"] is None
    for each in (a, b):
        expect(lambda each=each: each.metric("continuo_store_reloads_total") >= 14, "the reloads to be counted")
        assert each.metric("continuo_store_round_trip_seconds_count") >= 15
        assert each.metric("continuo_store_commit_rows_count") >= 15
        assert each.metric("continuo_store_conflicts_total") >= 14
    os.kill(store.process.pid, signal.SIGSTOP)
    assert step(a, "s", 1).status == 503
    expect(lambda: shown()["connected"] is False, "the description to show the loss")
    assert "within 1000 ms" in shown()["lastError"] or "storeTimeoutMSec" in shown()["lastError"], shown()
    os.kill(store.process.pid, signal.SIGCONT)
    expect(lambda: step(a, "s", 1).status == 200 and shown()["connected"], "the node to come back")


def test_a_description_of_an_embedded_store(server):
    s = server(counter(), counter("memory", state={"durability": "none"}))
    assert s.describe("counter")["stateStore"] == {"kind": "embedded"}
    assert s.describe("memory")["stateStore"] == {"kind": "memory"}
    assert s.metric("continuo_store_round_trip_seconds_count") == 0
