"""Workers die at the worst moments, and no step is lost, doubled or reordered."""

import json
import os
import random
import signal
import time

import pytest

from models import counter
from waiting import expect, limit

pytestmark = pytest.mark.usefixtures("any_loops")

POINTS = ["batch_read", "handler_done", "before_commit", "appended", "after_commit", "answers_half_written",
          "answers_written"]
# With state.journal: off nothing is appended, so nobody can die there.
WAYS = [(point, journal) for journal in ("on", "off") for point in POINTS if (point, journal) != ("appended", "off")]


def killing_at(folder, point, nth=1):
    """Kills the first worker that reaches this point for the nth time. Later workers live."""
    return {"CONTINUO_TEST_KILL_AT": f"{point}:{nth}", "CONTINUO_TEST_KILL_ONCE": folder / "killed"}


@pytest.mark.parametrize("point, journal", WAYS)
def test_a_worker_that_dies_at_a_point_loses_no_step(server, folder, point, journal):
    """Wherever in a batch its worker dies, the client only gets its answer later, with a journal and without one."""
    s = server(counter(state={"journal": journal}), env=killing_at(folder, point, nth=4))
    client = s.client()
    total = 0
    for number in range(1, 11):
        total += number
        answer = client.step("counter", "k", number)
        assert (answer.status, answer.text) == (200, str(total)), answer
    assert (folder / "killed").exists(), "the worker came to the point"
    assert [w["restarts"] for w in s.workers("counter")] == [1]


@pytest.mark.parametrize("point, journal", WAYS)
def test_a_worker_that_dies_in_a_batch_of_eight_loses_no_row(server, folder, point, journal):
    """Rows of one batch share a commit, so each is either answered from the store or run again."""
    s = server(counter(batchSize=8, state={"journal": journal}), env=killing_at(folder, point, nth=9))
    clients = [s.raw(f"c{i}") for i in range(8)]

    def post(i, number):
        clients[i].send(f"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: s{i}\r\n"
                        f"Content-Length: 1\r\n\r\n{number}")

    for round_ in range(1, 21):
        with s.hold():
            for i in range(8):
                post(i, 1 + i % 9)
            s.expect_outstanding("counter", 8)
        for i in range(8):
            answer = clients[i].answer()
            assert (answer.status, answer.text) == (200, str(round_ * (1 + i % 9))), answer
    for each in clients:
        each.close()
    assert (folder / "killed").exists(), "the worker came to the point"


@pytest.mark.parametrize("point", ["journal_switched", "draining", "drained"])
def test_a_worker_that_dies_while_its_journal_is_drained_loses_no_step(server, folder, point):
    """Clients notice neither what the store does between steps nor that its worker died meanwhile."""
    s = server(counter(minWorkers=2, maxWorkers=2, state={"journalMaxBytes": 65536}), env=killing_at(folder, point))
    client = s.client()
    totals = [0] * 40
    for step in range(1, 1201):
        i = step * 7 % len(totals)
        totals[i] += step
        answer = client.step("counter", f"j{i}", step)
        assert (answer.status, answer.text) == (200, str(totals[i])), answer
    assert (folder / "killed").exists(), "the worker came to the point"
    assert sum(w["restarts"] for w in s.workers("counter")) == 1
    s.kill()
    s.restart()
    for i, total in enumerate(totals):
        assert s.client().step("counter", f"j{i}", 0).text == str(total)


def test_a_worker_that_dies_while_loading_is_started_again(server, folder):
    """If the first start fails, the model is loaded by the next one."""
    s = server(counter(), env=killing_at(folder, "loaded"))
    assert s.client().step("counter", "l", 3).text == "3"
    assert (folder / "killed").exists()


def test_describe_tells_of_a_killed_worker(server):
    """The description shows an operator that a worker ended, and why."""
    s = server(counter())
    client = s.client()
    client.step("counter", "d", 1)
    old = s.kill_worker("counter")
    assert client.step("counter", "d", 1).text == "2"
    new = s.expect_ready("counter", 1)[0]
    worker = s.workers("counter")[0]
    assert new != old and worker["restarts"] == 1
    assert "signal 9" in worker["lastExit"], worker


def test_workers_that_die_every_third_batch_lose_nothing(server):
    """However often workers die, steps are only slower, as long as workers come back."""
    s = server(counter(), env={"CONTINUO_TEST_KILL_AT": "before_commit:3"})
    client = s.client()
    for total in range(1, 12):
        answer = client.step("counter", "a", 1)
        assert (answer.status, answer.text) == (200, str(total)), answer


def test_a_step_that_kills_every_worker_is_answered_with_the_last_words(server):
    """It is not tried for ever: after three workers have died with this step alone, the client gets the reason."""
    s = server(counter(), env={"CONTINUO_TEST_KILL_AT": "batch_read:1"})
    answer = s.client().step("counter", "a", 1)
    assert (answer.status, answer.error) == (500, "worker_died"), answer
    assert "signal 9" in answer.message, answer
    assert s.client().get("/ping").status in (200, 500)


@pytest.mark.load
def test_random_kills_under_load_of_64_verified_sequences(server):
    """The central promise: random workers are killed again and again, and the bench checks each running sum.

    There are 8 kills for each number of loops; CONTINUO_KILLS=100 makes a long run."""
    kills = int(os.environ.get("CONTINUO_KILLS", "8"))
    s = server(counter(minWorkers=3, maxWorkers=3, batchSize=16))
    s.expect_ready("counter", 3)
    # Ends by --end when it is told to (SIGINT), not by the clock.
    bench = s.bench("--connections", 64, "--duration", 100_000, "--warmup", 0, "--end", "--stall-seconds", 30)
    chance = random.Random(20261121)
    done = 0
    started = time.monotonic()
    # A kill may fall between two batches; some of them must not.
    while done < kills or (s.describe("counter")["redispatched"] == 0 and done < 20 * kills):
        pids = expect(lambda: s.ready_pids("counter"), "a worker to kill", 30)
        victim = chance.choice(pids)
        s.transcript.log("test", f"kill {done + 1} of {kills}: worker {victim}")
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        done += 1
        assert bench.poll() is None, bench.communicate()
        # The next kill comes once the load moves on, so that each one meets work in flight.
        seen = s.describe("counter")["steps"]
        expect(lambda: s.describe("counter")["steps"] > seen + 50, "the load goes on", 60)
    bench.send_signal(signal.SIGINT)
    out, err = bench.communicate(timeout=limit(90))
    s.transcript.log("test", f"{done} kills in {time.monotonic() - started:.1f} s; {out}")
    result = json.loads(out)
    assert bench.returncode == 0, f"{out} {err}"
    assert (result["errors"], result["mismatches"], result["ended"]) == (0, 0, 64), f"{out} {err}"
    assert result["steps"] > 50 * kills
    assert s.describe("counter")["redispatched"] > 0, "kills met steps in flight"


def test_durability_none_forgets_with_the_worker_and_says_so(server):
    """With `none` a state lives and dies with its worker, and the server says so."""
    s = server(counter(), flags=["--durability", "none"])
    client = s.client()
    assert client.step("counter", "n", 5).text == "5"
    assert client.step("counter", "n", 5).text == "10"
    s.kill_worker("counter")
    answer = client.step("counter", "n", 1)
    assert answer.status >= 400 or answer.text == "1", answer
    assert client.step("counter", "fresh", 1).text == "1"


def test_durability_power_survives_too(server):
    """One fsync for each batch changes the speed, not the answers."""
    s = server(counter(), flags=["--durability", "power"])
    client = s.client()
    for total in range(1, 6):
        assert client.step("counter", "p", 1).text == str(total)
    s.kill_worker("counter")
    assert client.step("counter", "p", 1).text == "6"
