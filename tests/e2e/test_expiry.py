"""Sequences end by their clocks. Time is moved, not waited for."""

from models import counter
from waiting import expect

IDLE = {"sequenceMaxIdleMSec": 60_000}
TOTAL = {"sequenceTimeoutMSec": 300_000}


def live_sequences(s, model="counter"):
    return s.describe(model)["liveSequences"]


def test_an_idle_sequence_expires_and_a_late_step_learns_why(server):
    """Not "unknown": expired, and the state is gone."""
    s = server(counter(**IDLE), clock=True)
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    s.clock.advance(61_000)
    expect(lambda: live_sequences(s) == 0, "no live sequence")
    late = client.step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_expired"), late
    assert "idle" in late.message
    again = client.step("counter", "a", 3, headers={"ts_request_sequence_start": "true"})
    assert (again.status, again.text) == (200, "3")


def test_a_step_before_the_limit_starts_the_idle_clock_again(server):
    """Only silence counts."""
    s = server(counter(**IDLE), clock=True)
    client = s.client()
    for step in range(1, 6):
        assert client.step("counter", "a", 1).text == str(step)
        s.clock.advance(50_000)
    assert client.step("counter", "a", 1).text == "6"


def test_the_total_time_ends_even_a_busy_sequence(server):
    """sequenceTimeoutMSec counts from the first step, whatever happens in between."""
    s = server(counter(**IDLE, **TOTAL), clock=True)
    client = s.client()
    for step in range(1, 7):
        assert client.step("counter", "a", 1).text == str(step)
        s.clock.advance(49_000)
    s.clock.advance(9_000)
    late = client.step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_expired"), late


def test_one_sequence_expires_and_its_neighbour_lives(server):
    """Clocks are per sequence."""
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
    """maxNumSequence counts live sequences only."""
    s = server(counter(**IDLE, maxNumSequence=2), clock=True)
    client = s.client()
    client.step("counter", "a", 1)
    client.step("counter", "b", 1)
    assert client.step("counter", "c", 1).error == "too_many_sequences"
    s.clock.advance(61_000)
    expect(lambda: live_sequences(s) == 0, "both expired")
    assert client.step("counter", "c", 1).text == "1"


def test_a_restarted_server_does_not_revive_an_expired_sequence(server):
    """The time of the last step is in the store: sleeping through the limit counts."""
    s = server(counter(**IDLE), clock=True)
    assert s.client().step("counter", "a", 5).text == "5"
    s.stop()
    s.clock.advance(120_000)
    s.restart()
    late = s.client().step("counter", "a", 1)
    assert (late.status, late.error) == (410, "sequence_expired"), late


def test_waiting_does_not_expire_a_sequence_with_work(server):
    """A step that waits for its worker is not silence."""
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
