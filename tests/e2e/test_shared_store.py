"""States in a store that several nodes share: --state-store valkey://... (docs/shared-store.md)."""

import random
import re
import shutil
import subprocess
import sys
import threading

import pytest

from models import BIN, BUILD, ROOT, counter
from shared_store import shared_store_in
from waiting import expect, limit

COUNT = 20


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


def node(server, store, name="server", flags=(), env=None, **state):
    """A server whose states are in the shared store."""
    model = counter(minWorkers=1, maxWorkers=1, batchSize=8, state=state or {"storeTimeoutMSec": 2000})
    return server(model, flags=["--state-store", store.url, *flags], env=env, name=name)


def step(client, sequence, text, key=None):
    headers = {"Idempotency-Key": key} if key else None
    return client.step("counter", sequence, text, headers=headers)


# --- one node


def test_sequences_survive_kill_9_of_worker_server_and_store(server, store):
    """What was answered is in the store, whoever dies; and the state folder has none of it."""
    s = node(server, store)
    client = s.client()
    for i in range(COUNT):
        assert step(client, f"s{i}", i).text == str(i)
    s.kill_worker("counter")
    for i in range(COUNT):
        assert step(client, f"s{i}", 1).text == str(i + 1)
    s.kill()
    s.restart()
    client = s.client()
    for i in range(COUNT):
        assert step(client, f"s{i}", 1).text == str(i + 2)
    store.kill()
    store.start()
    for i in range(COUNT):
        assert step(client, f"s{i}", 1).text == str(i + 3)
    assert not list(s.state_dir.rglob("data.mdb"))


def test_a_step_with_a_key_is_done_once_across_a_restart_of_everything(server, store):
    s = node(server, store)
    assert step(s.client(), "a", 5, key="k1").text == "5"
    s.kill()
    store.kill()
    store.start()
    s.restart()
    assert step(s.client(), "a", 5, key="k1").text == "5"
    assert step(s.client(), "a", 5, key="k2").text == "10"


def test_steps_are_refused_while_the_store_is_away_and_go_on_by_themselves(server, store):
    """503 with Retry-After says that the same request may be sent again."""
    s = node(server, store, storeTimeoutMSec=1000)
    client = s.client()
    assert step(client, "a", 1).text == "1"
    store.kill()
    refused = step(client, "a", 1, key="k1")
    assert refused.status == 503 and refused.error == "store_unreachable", refused
    assert int(refused.headers["Retry-After"]) >= 1
    assert "Idempotency-Key" in refused.message
    store.start()
    expect(lambda: step(client, "a", 1, key="k1").text == "2", "the step to be done again")
    assert step(client, "a", 1).text == "3"


def test_a_store_that_hangs_holds_a_step_no_longer_than_its_time(server, store):
    s = node(server, store, storeTimeoutMSec=1000)
    client = s.client()
    assert step(client, "a", 1).text == "1"
    store.pause()
    refused = step(client, "a", 1, key="k1")
    assert refused.status == 503 and "within 1000 ms" in refused.message, refused
    store.go_on()  # it may still take the command that it has received; the key tells
    expect(lambda: step(client, "a", 1, key="k1").text == "2", "the step to be done, or its answer")
    assert step(client, "a", 1).text == "3"


def test_power_is_confirmed_by_the_disk_of_the_store(server, store):
    """With WAITAOF a step is answered when it is on the disk, although the store writes its file only each second."""
    if "unknown command" in store.say("WAITAOF", "0", "0", "0").lower():
        pytest.skip("this store has no WAITAOF (Redis before 7.2)")
    store.say("CONFIG", "SET", "appendfsync", "everysec")
    model = counter(minWorkers=1, maxWorkers=1, state={"durability": "power", "storeTimeoutMSec": 5000})
    client = server(model, flags=["--state-store", store.url]).client()
    assert [step(client, "a", 1, key=f"k{i}").text for i in range(1, 4)] == ["1", "2", "3"]
    store.say("CONFIG", "SET", "appendfsync", "no")  # from here on nothing reaches the disk in time
    refused = step(client, "a", 1, key="k4")
    assert refused.status == 503 and refused.error == "store_unreachable", refused
    store.say("CONFIG", "SET", "appendfsync", "always")
    expect(lambda: step(client, "a", 1, key="k4").text == "4", "the answer of the step", 30)


def test_a_worker_that_dies_while_the_store_is_away_comes_back_with_it(server, store):
    s = node(server, store, storeTimeoutMSec=1000)
    client = s.client()
    assert step(client, "a", 1).text == "1"
    store.kill()
    s.kill_worker("counter")
    assert step(client, "a", 1, key="k1").status == 503
    store.start()
    expect(lambda: step(client, "a", 1, key="k1").text == "2", "the worker to come back", timeout=30)


def test_a_flushed_script_is_loaded_again(server, store):
    s = node(server, store)
    client = s.client()
    assert step(client, "a", 1).text == "1"
    store.say("SCRIPT", "FLUSH")
    assert step(client, "a", 1).text == "2"


def test_a_full_store_refuses_steps_and_loses_none(server, store):
    s = node(server, store)
    client = s.client()
    assert step(client, "a", 1).text == "1"
    store.say("CONFIG", "SET", "maxmemory", "1")
    refused = step(client, "a", 1)
    assert refused.status == 507 and "is full" in refused.message, refused
    store.say("CONFIG", "SET", "maxmemory", "0")
    assert step(client, "a", 1).text == "2"


def test_a_store_that_may_evict_states_is_refused_at_start(server, store):
    store.say("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    s = server(counter(), flags=["--state-store", store.url], start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("maxmemory-policy is allkeys-lru")


def test_a_wrong_password_is_named_and_never_shown(server, store, folder):
    """Neither in the log, nor in an error, nor in a description."""
    store.say("CONFIG", "SET", "requirepass", "right")
    store.password = "hunter2"
    s = server(counter(), env={"CONTINUO_STATE_STORE": store.url}, start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("refuses the user name or the password")
    assert "hunter2" not in "\n".join(s.lines)
    store.password = "right"
    s = server(counter(), env={"CONTINUO_STATE_STORE": store.url})
    assert step(s.client(), "a", 1).text == "1"
    assert "right@" not in s.admin().get("/models/counter").text
    assert "right@" not in "\n".join(s.lines)


def test_a_model_may_have_a_store_of_its_own(server, store):
    """state.store of the YAML, in both directions."""
    own = server(counter(state={"store": store.url}))
    assert step(own.client(), "a", 1).text == "1"
    assert store.say("KEYS", "*counter*:?") == "{test/counter/1.0/20}:a"
    embedded = server(counter(state={"store": "embedded"}), flags=["--state-store", store.url])
    assert step(embedded.client(), "b", 1).text == "1"
    assert store.say("KEYS", "*counter*:?") == "{test/counter/1.0/20}:a"


def test_sequences_are_listed_exported_ended_and_deleted(server, store):
    s = node(server, store)
    client, admin = s.client(), s.admin()
    for i in range(30):
        assert step(client, f"s{i:02}", 1).text == "1"
    listed = admin.get("/models/counter/sequences?limit=100").json
    assert [each["sequence"] for each in listed["sequences"]] == [f"s{i:02}" for i in range(30)]
    assert admin.delete("/models/counter/sequences/s00").status == 200
    assert step(client, "s00", 1).status == 410
    ended = client.step("counter", "s01", 1, headers={"ts-request-sequence-end": "true"})
    assert ended.text == "2"
    assert step(client, "s01", 1).text == "1"


def libraries(*programs):
    """The libraries that these programs are linked with."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r"([^\s/]+)\.so\b", said))


def mapped(pid):
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        return set(re.findall(r"/([^\s/]+)\.so\b", maps.read()))


def test_an_embedded_server_loads_nothing_for_a_shared_store(server, store):
    """A server without a shared store does not pay for one: neither it nor its worker loads any library that it is not
    linked with, and hiredis is none of those. With a shared store, the worker loads it."""
    linked = libraries(BIN / "continuo", BIN / "continuo-worker")
    assert not any("hiredis" in name for name in linked), linked
    embedded = server(counter(), flags=["--state-store", "embedded"])
    assert step(embedded.client(), "a", 1).text == "1"
    for pid in [embedded.process.pid, *embedded.ready_pids("counter")]:
        assert mapped(pid) <= linked, mapped(pid) - linked
    shared = node(server, store)
    assert step(shared.client(), "a", 1).text == "1"
    assert any("hiredis" in name for pid in shared.ready_pids("counter") for name in mapped(pid))


# --- two nodes


def test_two_nodes_serve_one_sequence_in_turn(server, store):
    """The second node meets what the first has committed, although the first one's cache is warm."""
    a, b = node(server, store, "a"), node(server, store, "b")
    clients = [a.client(), b.client()]
    for i in range(1, 41):
        assert step(clients[i % 2], "s", 1).text == str(i)


def test_an_end_on_one_node_is_an_end_on_the_other(server, store):
    a, b = node(server, store, "a"), node(server, store, "b")
    assert step(a.client(), "s", 1).text == "1"
    assert step(b.client(), "s", 1).text == "2"
    ended = b.client().step("counter", "s", 1, headers={"ts-request-sequence-end": "true"})
    assert ended.text == "3"
    assert step(a.client(), "s", 1).text == "1"  # a new sequence, as after an end on the same node
    assert a.admin().delete("/models/counter/sequences/s").status == 200
    assert step(b.client(), "s", 1).status == 410


def test_a_node_does_not_close_what_another_one_keeps_alive(server, store):
    """Each server has a clock for the sequences that it knows; the record says when the last step was."""
    def clocked(name):
        model = counter(minWorkers=1, maxWorkers=1, sequenceMaxIdleMSec=60000)
        return server(model, flags=["--state-store", store.url], clock=True, name=name)

    a, b = clocked("a"), clocked("b")

    def advance(ms):
        for each in (a, b):
            each.clock.advance(ms)

    def surely(node, key):
        """A worker that waits for the store while the clock moves thinks that the store is too slow. It
        says 503 then, and the client sends the same step again."""
        answers = []

        def ask():
            answers.append(step(node.client(), "s", 1, key=key))
            return answers[-1].status != 503

        expect(ask, f"an answer to the step {key} that is not 503")
        return answers[-1]

    assert surely(a, "k1").text == "1"
    for total in range(2, 6):  # the first node thinks that the sequence is idle from the second round on
        advance(40000)
        assert surely(b, f"k{total}").text == str(total)
    assert surely(a, "k6").text == "6"
    advance(70000)
    late = surely(a, "k7")
    assert late.status == 410 and late.error == "sequence_expired", late
    assert surely(b, "k8").status == 410


def test_a_key_that_one_node_has_done_is_answered_by_the_other(server, store):
    a, b = node(server, store, "a"), node(server, store, "b")
    assert step(a.client(), "s", 1, key="k1").text == "1"
    assert step(b.client(), "s", 1, key="k1").text == "1"
    assert step(b.client(), "s", 1, key="k2").text == "2"
    assert step(a.client(), "s", 1, key="k1").status == 409  # superseded
    assert step(a.client(), "s", 1, key="k2").text == "2"


def run_random_router(nodes, sequences, steps, seed):
    """Each step of each sequence goes to a random node; clients of one sequence race in pairs. Returns
    per sequence the values that were answered, and how many steps were refused as contended."""
    answered = {f"s{seed}-{i}": [] for i in range(sequences)}
    contended, wrong = [], []
    lock = threading.Lock()

    def drive(sequence, rng):
        clients = [each.client() for each in nodes]
        for _ in range(steps):
            answer = step(clients[rng.randrange(len(clients))], sequence, 1)
            with lock:
                if answer.status == 200:
                    answered[sequence].append(int(answer.text))
                elif answer.status == 409 and answer.error == "contended":
                    contended.append(sequence)
                else:
                    wrong.append(answer)

    threads = [threading.Thread(target=drive, args=(sequence, random.Random(f"{seed}/{sequence}/{which}")))
               for sequence in answered for which in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong, wrong[:3]
    return answered, len(contended)


def is_exact(values):
    """No step was lost and none was done twice: each count from 1 on was answered once."""
    return sorted(values) == list(range(1, len(values) + 1))


def test_a_random_router_and_racing_clients_get_right_values(server, store):
    """The deliberately worst router: correctness must not depend on it."""
    nodes = [node(server, store, name) for name in "ab"]
    answered, _ = run_random_router(nodes, 4, 60, seed=24)
    assert all(is_exact(values) for values in answered.values()), answered


def test_the_random_router_test_notices_a_store_without_conditions(server, store):
    """The same test fails with the bug switched on, so it can fail."""
    env = {"CONTINUO_TEST_UNCONDITIONAL": "1"}
    nodes = [node(server, store, name, env=env) for name in "ab"]
    for seed in range(20):
        answered, _ = run_random_router(nodes, 4, 60, seed)
        if not all(is_exact(values) for values in answered.values()):
            return
    raise AssertionError("20 rounds of races without a condition gave right values")


def test_the_campaign_of_the_random_router_passes_and_can_fail(transcript):
    """tests/campaign/random_router.py, in short: three nodes, two clients race for each sequence."""
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server (scripts/setup.sh installs it)")

    def run(*more):
        done = subprocess.run([sys.executable, ROOT / "tests" / "campaign" / "random_router.py", "--steps", "6000", "--build",
                               BUILD, *more], capture_output=True, text=True, timeout=limit(120), check=False)
        transcript.log("campaign", done.stdout + done.stderr)
        return done

    right = run()
    assert right.returncode == 0 and "wrong: 0" in right.stdout, right.stdout
    assert run("--unconditional").returncode == 1
