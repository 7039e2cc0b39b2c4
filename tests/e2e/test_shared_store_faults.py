"""Stores that are slow, cut off, refuse a command or are away at the start (docs/shared-store.md)."""

import concurrent.futures
import socket
import time

import pytest

from models import counter
from relay import relay_to
from shared_store import shared_store_in
from waiting import expect, limit


@pytest.fixture
def store(folder, transcript):
    with shared_store_in(folder, transcript) as made:
        yield made


@pytest.fixture
def relay(store):
    with relay_to(store.port) as made:
        yield made


def node(server, url, name="server", start=True, flags=(), **state):
    return server(counter(minWorkers=1, maxWorkers=1, state=state or {"storeTimeoutMSec": 1000}),
                  flags=["--state-store", url, *flags], name=name, start=start)


def step(client, key, sequence="s"):
    return client.step("counter", sequence, 1, headers={"Idempotency-Key": key})


def through(relay):
    return f"valkey://127.0.0.1:{relay.port}/test"


def test_a_relay_passes_on_what_was_delayed_before_an_end():
    """The tests below rely on it: a slow network delivers the last bytes before the end of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener, relay_to(listener.getsockname()[1]) as made:
        made.delay_s = 0.2
        with socket.create_connection(("127.0.0.1", made.port)) as client:
            client.sendall(b"last words")
            client.shutdown(socket.SHUT_WR)
            far, _ = listener.accept()
            with far:
                far.settimeout(limit(10))
                assert b"".join(iter(lambda: far.recv(100), b"")) == b"last words"


def test_one_node_that_is_cut_off_refuses_steps_and_comes_back_by_itself(server, store, relay):
    """The other node goes on, and the step that the first one could not confirm is done once."""
    cut_off = node(server, through(relay), "cut-off", storeTimeoutMSec=1000)
    other = node(server, store.url, "other")
    assert step(cut_off.client(), "k1").text == "1"
    relay.cut()
    refused = step(cut_off.client(), "k2")
    assert refused.status == 503 and refused.error == "store_unreachable", refused
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.message == (
        f"the step of sequence s is not confirmed: the state store at 127.0.0.1:{relay.port} did not answer within "
        "1000 ms (state.storeTimeoutMSec); send it again with the same Idempotency-Key or step number, because it may "
        "have been saved"), refused.message
    assert step(other.client(), "k2").text == "2"
    assert step(other.client(), "k3").text == "3"
    relay.mend()
    expect(lambda: step(cut_off.client(), "k3").status == 200, "the node to come back", 30)
    assert step(cut_off.client(), "k3").text == "3"
    assert step(cut_off.client(), "k4").text == "4"


def test_a_store_with_a_latency_of_a_second_is_slow_and_right(server, store, relay):
    """With a timeout that allows for it, steps are late, and each is done once."""
    s = node(server, through(relay), storeTimeoutMSec=30000)
    client = s.client()
    assert step(client, "k1").text == "1"
    relay.delay_s = 0.5  # in each direction
    for i in range(2, 5):
        assert step(client, f"k{i}").text == str(i)
    relay.delay_s = 0
    assert step(client, "k4").text == "4"
    assert step(client, "k5").text == "5"


def test_a_slow_store_is_mostly_asked_for_steps(server, store, relay):
    """The look for expired sequences takes a round trip, for which steps wait, too. So it then comes once in ten
    seconds, and not after each step."""
    s = node(server, through(relay), storeTimeoutMSec=30000)
    client = s.client()
    assert step(client, "k1").text == "1"

    def trips():
        return s.metric("continuo_store_round_trip_seconds_count")

    relay.delay_s = 0.3  # in each direction
    assert step(client, "k2").text == "2"
    before, began = trips(), time.monotonic()
    for i in range(3, 9):
        assert step(client, f"k{i}").text == str(i)
    expect(lambda: trips() >= before + 6, "the worker's figures")
    tens = (time.monotonic() - began) / 10
    most = 6 + 3 + tens + 2 * (1 + tens)  # steps, what `before` may lack, the count of sequences, looks
    assert trips() <= before + most, (before, trips(), most)
    relay.delay_s = 0


def test_a_store_that_is_slower_than_its_time_loses_nothing(server, store, relay):
    """The steps that were refused have been saved; the key tells."""
    s = node(server, through(relay), storeTimeoutMSec=1000)
    client = s.client()
    assert step(client, "k1").text == "1"
    relay.delay_s = 1.5
    assert step(client, "k2").status == 503
    relay.delay_s = 0
    expect(lambda: step(client, "k2").text == "2", "the answer of the step", 30)
    assert step(client, "k3").text == "3"


def unanswered(server, store, relay, then, key=None):
    """A node makes step 2, to which the store's reply does not come; another node makes step 3; then the node goes on.
    Returns what its client gets, and what the other node's next step gives."""
    one = node(server, through(relay), "one", storeTimeoutMSec=60000)
    other = node(server, store.url, "other").client()
    assert one.client().step("counter", "s", 1).text == "1"
    entry = store.say("KEYS", "{test/counter/*}:s")
    relay.mute(after=b"}:s\r\n")  # what concerns this sequence; a node asks for other things, too
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(one.client().step, "counter", "s", 1, headers={"Idempotency-Key": key} if key else {})
        expect(lambda: store.say("GETRANGE", entry, "10", "10") == "\x02", "step 2 to be in the store")
        assert other.step("counter", "s", 1).text == "3"
        then(one)
        return late.result(limit(60)), other.step("counter", "s", 1).text


def test_a_step_whose_reply_was_lost_is_not_done_twice(server, store, relay):
    """The write is sent again, and meets the other node's step. Nothing shows any more that it was done before."""
    refused, after = unanswered(server, store, relay, lambda _: relay.end_connections())
    assert after == "4"
    assert refused.status == 503 and refused.error == "store_unreachable", refused
    assert refused.message == (
        "the step of sequence s is not confirmed: the state store's reply did not come, and another node or server was "
        "the last to change the sequence, so it may have been done; a step with an Idempotency-Key or a step number can be "
        "sent again")
    assert int(refused.headers["Retry-After"]) >= 1


def test_a_step_whose_worker_was_killed_is_not_done_twice(server, store, relay):
    def kill(one):
        one.kill_worker("counter")
        relay.end_connections()

    refused, after = unanswered(server, store, relay, kill)
    assert after == "4"
    assert refused.status == 503 and refused.error == "store_unreachable", refused
    assert "is not confirmed: its worker ended, and another node or server was the last to change the sequence" in refused.message


def test_a_step_with_a_key_whose_reply_was_lost_says_that_it_was_done(server, store, relay):
    refused, after = unanswered(server, store, relay, lambda _: relay.end_connections(), key="k2")
    assert after == "4"
    assert refused.status == 409 and refused.error == "key_superseded", refused


def test_a_user_without_the_right_to_load_the_script_is_refused_at_start(server, store):
    store.say("ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@read", "+info", "-@write", "-@scripting")
    s = node(server, store.url.replace("valkey://", "valkey://reader:pass@"), start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("does not take the script of conditional writes")


def test_a_user_without_the_right_to_write_is_named_at_start(server, store):
    store.say("ACL", "SETUSER", "half", "on", ">pass", "~*", "+@read", "+info", "+@scripting", "-@write")
    url = store.url.replace("valkey://", "valkey://half:pass@")
    s = node(server, url, start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("does not permit a command to the user of the URL", "docs/shared-store.md lists")
    assert "pass@" not in "\n".join(s.lines)
    store.say("ACL", "SETUSER", "half", "+@all")
    allowed = node(server, url, "allowed")
    assert step(allowed.client(), "k1").text == "1"


def test_a_right_that_is_taken_away_is_named_at_the_step(server, store):
    store.say("ACL", "SETUSER", "half", "on", ">pass", "~*", "+@all")
    s = node(server, store.url.replace("valkey://", "valkey://half:pass@"))
    assert step(s.client(), "k1").text == "1"
    store.say("ACL", "SETUSER", "half", "-mset")
    refused = step(s.client(), "k2")
    assert refused.status == 507 and refused.error == "state_store", refused
    assert "does not permit a command to the user of the URL" in refused.message, refused
    store.say("ACL", "SETUSER", "half", "+mset")
    expect(lambda: step(s.client(), "k2").text == "2", "the step to be done", 30)


def test_a_read_only_store_refuses_steps_for_now(server, store):
    """A primary that has become a replica, without another primary in the URL."""
    s = node(server, store.url, storeTimeoutMSec=1000)
    client = s.client()
    assert step(client, "k1").text == "1"
    store.say("REPLICAOF", "127.0.0.1", "1")
    refused = step(client, "k2")
    assert refused.status == 503 and refused.error == "store_unreachable", refused
    assert "is a replica" in refused.message or "READONLY" in refused.message, refused
    store.say("REPLICAOF", "NO", "ONE")
    expect(lambda: step(client, "k2").text == "2", "the step to be done", 30)


def test_a_host_without_an_address_is_named(server):
    s = node(server, "valkey://store.invalid/test", start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("the state store at store.invalid:6379 has no address")


def test_a_store_that_is_away_at_the_start_is_named(server, store):
    store.kill()
    s = node(server, store.url, start=False)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log(f"the state store at 127.0.0.1:{store.port} cannot be reached: Connection refused")


def test_a_start_waits_for_the_store_as_long_as_it_is_told(server, store):
    """A node and its store that start together need no order."""
    store.kill()
    s = node(server, store.url, start=False, flags=["--state-store-wait", "60"])
    s.launch()
    s.expect_log("event=waits_for_state_store")
    assert s.process.poll() is None
    store.start()
    s.wait_ready()
    assert step(s.client(), "k1").text == "1"


def test_a_wait_for_the_store_ends(server, store):
    store.kill()
    s = node(server, store.url, start=False, flags=["--state-store-wait", "1"], storeTimeoutMSec=200)
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("event=waits_for_state_store")
    s.expect_log("cannot be reached: Connection refused")
