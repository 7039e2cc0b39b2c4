"""Time limits end sequences. The tests move the clock and do not wait."""

import datetime
import json

import pytest

from models import counter
from rpc import Rpc, request
from test_v2_http import accumulator
from server import Clock
from v2rpc import channel_of, stub_of
from v2rpc import request as v2_request
from waiting import expect

IDLE = {"sequenceMaxIdleMSec": 60_000}
TOTAL = {"sequenceTimeoutMSec": 300_000}


def live_sequences(s, model="counter"):
    return s.describe(model)["liveSequences"]


def test_an_idle_sequence_expires_and_a_late_step_learns_why(server):
    """The answer is "expired" and not "unknown", and the state is gone."""
    s = server(counter(**IDLE), clock=True)
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    s.clock.advance(61_000)
    expect(lambda: live_sequences(s) == 0, "no live sequence")
    late = client.step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_expired"), late
    assert "idle" in late.message and "start flag" in late.message
    assert "Retry-After" not in late.headers and "Continuo-Sequence-Restarted" not in late.headers
    again = client.step("counter", "a", 3, headers={"ts_request_sequence_start": "true"})
    assert (again.status, again.text) == (200, "3")


def test_a_step_before_the_limit_starts_the_idle_clock_again(server):
    """The limit is the time without a step."""
    s = server(counter(**IDLE), clock=True)
    client = s.client()
    for step in range(1, 6):
        assert client.step("counter", "a", 1).text == str(step)
        s.clock.advance(50_000)
    assert client.step("counter", "a", 1).text == "6"


def test_the_total_time_ends_even_a_busy_sequence(server):
    """sequenceTimeoutMSec counts from the first step, whatever happens afterwards."""
    s = server(counter(**IDLE, **TOTAL), clock=True)
    client = s.client()
    for step in range(1, 7):
        assert client.step("counter", "a", 1).text == str(step)
        s.clock.advance(49_000)
    s.clock.advance(9_000)
    late = client.step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_expired"), late


def test_one_sequence_expires_and_its_neighbour_lives(server):
    """Each sequence has its own clocks."""
    s = server(counter(**IDLE), clock=True)
    client = s.client()
    client.step("counter", "old", 1)
    s.clock.advance(40_000)
    client.step("counter", "young", 2)
    s.clock.advance(30_000)
    expect(lambda: live_sequences(s) == 1, "one live sequence")
    assert client.step("counter", "young", 2).text == "4"
    assert client.step("counter", "old", 1).status == 410


def test_expiry_gives_the_slot_back(server):
    """Only live sequences count for maxNumSequence."""
    s = server(counter(**IDLE, maxNumSequence=2), clock=True)
    client = s.client()
    client.step("counter", "a", 1)
    client.step("counter", "b", 1)
    assert client.step("counter", "c", 1).error == "too_many_sequences"
    s.clock.advance(61_000)
    expect(lambda: live_sequences(s) == 0, "both expired")
    assert client.step("counter", "c", 1).text == "1"


def test_a_restarted_server_does_not_revive_an_expired_sequence(server):
    """The store has the time of the last step, so time during which the server was down counts, too."""
    s = server(counter(**IDLE), clock=True)
    assert s.client().step("counter", "a", 5).text == "5"
    s.stop()
    s.clock.advance(120_000)
    s.restart()
    late = s.client().step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_expired"), late


def test_waiting_does_not_expire_a_sequence_with_work(server):
    """A sequence whose step waits for a worker is not idle."""
    s = server(counter(**IDLE), clock=True)
    raw = s.raw()
    assert s.client().step("counter", "a", 1).text == "1"
    with s.hold():
        raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: a\r\n"
                 "Content-Length: 1\r\n\r\n5")
        s.expect_outstanding("counter", 1)
        s.clock.advance(70_000)
    answer = raw.answer()
    assert (answer.status, answer.text) == (200, "6"), answer
    raw.close()


# --- what reopens a closed id


def test_a_tombstone_says_when_its_id_is_free(server):
    """At the time in the message a step begins a new sequence. Sending the step again before that does not help."""
    s = server(counter(**IDLE, sequence={"tombstoneMSec": 120_000}), clock=True)
    client = s.client()
    client.step("counter", "a", 5)
    s.clock.advance(61_000)
    expect(lambda: live_sequences(s) == 0, "no live sequence")
    late = client.step("counter", "a", 1)
    assert late.status == 410 and "Retry-After" not in late.headers
    free = late.message.rpartition("or wait: from ")[2]
    assert free.endswith(" on the id is as good as new")
    closed = late.message.partition("expired at ")[2].partition(" ")[0]
    moments = [datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (closed, free.split()[0])]
    assert (moments[1] - moments[0]).total_seconds() == 120
    s.clock.advance(121_000)
    assert client.step("counter", "a", 3).text == "3"


RESTART = {"sequence": {"onExpired": "restart"}}


@pytest.mark.parametrize("limit, clock", [(IDLE, "idle"), (TOTAL, "lifetime")])
def test_where_the_model_says_so_a_late_step_begins_anew_and_is_told(server, limit, clock):
    """sequence.onExpired: restart, over HTTP. The header appears once, with the name of the clock; later answers do not
    have it."""
    s = server(counter(**limit, **RESTART), clock=True)
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    s.clock.advance(301_000)
    expect(lambda: live_sequences(s) == 0, "no live sequence")
    client = s.client()
    late = client.step("counter", "a", 1, headers={"Idempotency-Key": "k"})
    assert (late.status, late.text, late.headers["Continuo-Sequence-Restarted"]) == (200, "1", clock)
    again = client.step("counter", "a", 1, headers={"Idempotency-Key": "k"})
    assert (again.text, again.headers["Continuo-Sequence-Restarted"]) == ("1", clock)
    following = client.step("counter", "a", 1)
    assert following.text == "2" and "Continuo-Sequence-Restarted" not in following.headers


def test_a_late_step_begins_anew_after_a_restart_of_the_server(server):
    """The store's times decide, because there is no tombstone."""
    s = server(counter(**IDLE, **RESTART), clock=True)
    assert s.client().step("counter", "a", 5).text == "5"
    s.stop()
    s.clock.advance(120_000)
    s.restart()
    late = s.client().step("counter", "a", 1)
    assert (late.status, late.text, late.headers["Continuo-Sequence-Restarted"]) == (200, "1", "idle")


def test_a_step_that_waits_when_the_total_time_is_over_begins_anew(server):
    """The step came in time but was not run before the end. The model did not ask to refuse it."""
    s = server(counter(sequenceTimeoutMSec=60_000, **RESTART), clock=True)
    raw = s.raw(timeout=60)
    assert s.client().step("counter", "a", 5).text == "5"
    with s.hold():
        raw.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nContinuo-Sequence: a\r\n"
                 "Content-Length: 1\r\n\r\n1")
        s.expect_outstanding("counter", 1)
        s.clock.advance(61_000)
    answer = raw.answer()
    assert answer.status == 200 and answer.text in ("1", "6"), answer  # 6: it was given out before the end
    assert (answer.text == "1") == ("Continuo-Sequence-Restarted" in answer.headers)
    raw.close()


def test_grpc_tells_that_a_sequence_began_anew(server):
    """The answer's metadata say so."""
    s = server(counter(**IDLE, **RESTART), clock=True)
    client = Rpc(s.grpc)
    client.predict("counter", 5, "a")
    s.clock.advance(61_000)
    expect(lambda: live_sequences(s) == 0, "no live sequence")
    answer, call = client.inference.Predictions.with_call(request("counter", 1, "a"), timeout=30)
    assert answer.prediction == b"1" and dict(call.initial_metadata())["continuo-sequence-restarted"] == "idle"
    client.close()


def test_grpc_tells_all_that_there_is_to_tell_of_one_step(server):
    """The retry of the step that began the sequence anew, while steps are traced."""
    s = server(counter(**IDLE, **RESTART), clock=True,
               flags=["--otlp-endpoint", "http://127.0.0.1:1", "--trace-sample-rate", 1])
    with Rpc(s.grpc) as client:
        client.predict("counter", 5, "a")
        s.clock.advance(61_000)
        expect(lambda: live_sequences(s) == 0, "no live sequence")
        for _ in range(2):
            call = client.inference.Predictions.with_call(request("counter", 1, "a"), timeout=30,
                                                          metadata=[("idempotency-key", "k")])[1]
        told = dict(call.initial_metadata())
    assert {name: told.get(name) for name in ("ts_request_sequence_id", "continuo-replayed",
                                              "continuo-sequence-restarted", "continuo-sequence-step")} == {
        "ts_request_sequence_id": "a", "continuo-replayed": "true", "continuo-sequence-restarted": "idle",
        "continuo-sequence-step": "1"}
    assert told["x-request-id"] and told["traceparent"]


def test_v2_tells_it_where_a_header_names_the_sequence_and_else_wants_a_start(server):
    """In the v2 protocol a sequence_id needs a START, whatever the model's settings are."""
    model = accumulator()
    s = server(model, clock=True, flags=["--sequence-on-expired", "restart"])
    tensors = {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "data": [5]}]}

    def infer(headers=None, **parameters):
        return s.client().post("/v2/models/accumulator/infer", json.dumps({**tensors, "parameters": parameters}),
                               headers=headers or {})

    assert infer(sequence_id="p", sequence_start=True).status == 200
    assert infer({"Continuo-Sequence": "h"}).status == 200
    with channel_of(s) as channel:
        def over_grpc():
            message = v2_request("accumulator", [("INPUT", "INT32", [1])], [(5).to_bytes(4, "little")])
            return stub_of(channel).ModelInfer.with_call(message, metadata=(("continuo-sequence", "g"),), timeout=30)

        over_grpc()
        s.clock.advance(61_000)
        expect(lambda: live_sequences(s, "accumulator") == 0, "no live sequence")
        late = infer({"Continuo-Sequence": "h"})
        assert late.json["outputs"][0]["data"] == [5] and late.headers["Continuo-Sequence-Restarted"] == "idle"
        answer, call = over_grpc()
        assert answer.raw_output_contents[0] == (5).to_bytes(4, "little")
        assert dict(call.initial_metadata())["continuo-sequence-restarted"] == "idle"
    refused = infer(sequence_id="p")
    assert refused.status == 400 and "must specify the START flag" in refused.json["error"]


@pytest.mark.parametrize("own, fresh", [({}, True), ({"sequence": {"onExpired": "refuse"}}, False)])
def test_the_program_torchserve_begins_anew_unless_the_model_refuses(torchserve, transcript, own, fresh):
    """TorchServe's clients name sequences by device and do not send start flags, and TorchServe serves an expired id,
    too."""
    t = torchserve()
    clock = Clock(t.folder / "clock", transcript)
    t.env["CONTINUO_TEST_CLOCK"] = str(clock.path)
    t.pack(counter(**IDLE, **own), "counter.mar")
    t.properties()
    t.start("--ts-config", "config.properties", "--model-store", "model-store", "--models", "counter=counter.mar", "--ncs")
    t.expect_ready()
    assert t.client().step("counter", "device-7", 5).text == "5"
    clock.advance(61_000)
    late = t.client().step("counter", "device-7", 1)
    if fresh:
        assert (late.status, late.text, late.headers["Continuo-Sequence-Restarted"]) == (200, "1", "idle"), late
    else:
        assert (late.status, late.error) == (503, "sequence_expired") and "Retry-After" not in late.headers


def test_an_old_versions_expired_sequence_begins_anew_in_the_default_version(server):
    """The sequence no longer belongs to a version, so the step goes to the version in which new sequences begin."""
    s = server(counter(**IDLE, **RESTART), clock=True)
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    second = counter(version="2.0", **IDLE, **RESTART)
    assert s.register(second, initial_workers=1).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    assert client.step("counter", "a", 1).text == "6"
    s.clock.advance(61_000)
    expect(lambda: live_sequences(s) == 0, "no live sequence")
    late = client.step("counter", "a", 1)
    assert (late.status, late.text) == (200, "1"), late
    assert client.step("counter", "a", 1).text == "2"
