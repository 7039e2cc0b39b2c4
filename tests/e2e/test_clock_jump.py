"""A wall clock that is set wrong must not cost sequences their state."""

import subprocess

import pytest

from models import BIN, counter
from test_store_damage import metric
from waiting import expect, limit

DAY_MS = 86400000
COUNT = 4


def stepped(server, *flags):
    s = server(counter(sequenceMaxIdleMSec=600000), clock=True, flags=list(flags))
    for i in range(COUNT):
        assert s.client().step("counter", f"s{i}", i + 1).text == str(i + 1)
    return s


def all_there(s, more):
    return [s.client().step("counter", f"s{i}", 0).text for i in range(more)] == [str(i + 1) for i in range(more)]


def test_a_clock_that_jumps_ahead_while_the_server_is_down(server):
    """Before jumps were detected, such a jump expired every sequence for good."""
    s = stepped(server)
    s.stop()
    s.clock.jump(400 * DAY_MS)
    s.restart()
    assert all_there(s, COUNT)
    s.expect_log("event=clock_jumped by_ms=", "error continuo")
    expect(lambda: metric(s, "continuo_clock_jumps_total") == 1, "the jump is counted")
    doctor = subprocess.run([BIN / "continuo-ctl", "--server", s.management, "--metrics", s.metrics, "doctor"],
                            capture_output=True, text=True, timeout=limit(30), check=False)
    assert "wall clock jumped" in doctor.stdout
    s.kill()
    s.restart()
    assert all_there(s, COUNT)
    s.clock.advance(700000)  # idle clocks have started anew, and run
    assert s.client().step("counter", "s0", 0).status == 410


def test_a_clock_that_jumps_ahead_and_back_under_the_server(server):
    s = stepped(server)
    s.clock.jump(400 * DAY_MS)
    s.kill_worker("counter")  # the new worker knows only what is in the store
    s.expect_ready("counter")
    expect(lambda: metric(s, "continuo_clock_jumps_total") == 1, "the jump is seen", timeout=20)
    assert all_there(s, 2)
    s.clock.jump(-400 * DAY_MS)
    expect(lambda: metric(s, "continuo_clock_jumps_total") == 2, "the way back is seen", timeout=20)
    s.kill()
    s.restart()
    assert all_there(s, COUNT)


def test_after_a_jump_ahead_and_back_idle_sequences_expire_again(server):
    """The moment of the jump ahead lies in the future then, and idle times were counted from it."""
    s = stepped(server)
    s.clock.jump(400 * DAY_MS)
    expect(lambda: metric(s, "continuo_clock_jumps_total") == 1, "the jump is seen", timeout=20)
    s.clock.jump(-400 * DAY_MS)
    expect(lambda: metric(s, "continuo_clock_jumps_total") == 2, "the way back is seen", timeout=20)
    assert s.client().step("counter", "new", 7).text == "7"
    s.kill()
    s.clock.advance(700000)
    s.restart()
    assert [s.client().step("counter", key, 0).status for key in ("s0", "new")] == [410, 410]


def test_a_server_that_was_off_for_a_weekend_expires_what_is_idle(server):
    """The wall clock and the kernel's clock both went on, so this is not a jump."""
    s = stepped(server)
    s.stop()
    s.clock.advance(3 * DAY_MS)
    s.restart()
    assert s.client().step("counter", "s0", 0).status == 410
    assert not any("event=clock_jumped" in line for line in s.lines)


def start_the_machine_again(s):
    """Makes the state folder look as after a restart of the machine: its file has the times of another boot."""
    path = s.state_dir / "clock"
    text = path.read_text()
    _, wall, _, floor = text.split()
    path.write_text(f"00000000-0000-4000-8000-000000000000 {wall} 86400000 {floor}".ljust(len(text), "\n"))


@pytest.mark.parametrize("days, flags, is_jump", [
    (400, (), True), (3, (), False), (400, ("--clock-jump-off", "0"), False), (3, ("--clock-jump-off", DAY_MS), True),
    (-400, (), True)])
def test_a_clock_that_is_another_one_after_the_machine_was_started(server, days, flags, is_jump):
    """Across a restart of the machine nobody knows how long it was off, so --clock-jump-off applies and not
    --clock-jump. A shorter time counts as time without power. A clock that went back has jumped in any case."""
    s = stepped(server, *map(str, flags))
    s.stop()
    start_the_machine_again(s)
    s.clock.jump(days * DAY_MS)
    s.restart()
    if is_jump:
        assert all_there(s, COUNT)
        s.expect_log("event=clock_jumped", 'how="since the machine was started"')
    else:
        assert s.client().step("counter", "s0", 0).status == 410
        assert not any("event=clock_jumped" in line for line in s.lines)
    assert metric(s, "continuo_clock_jumps_total") == is_jump


def test_jumps_may_be_let_pass(server):
    s = stepped(server, "--clock-jump", "0")
    s.stop()
    s.clock.jump(400 * DAY_MS)
    s.restart()
    assert s.client().step("counter", "s0", 0).status == 410
