"""sequence.swapPolicy: a new version becomes the default while sequences of the old one are live."""

import itertools
import os
import signal
import threading

import pytest

from models import COUNTER_LUA, Model
from waiting import expect

DOUBLE = COUNTER_LUA.replace("state.sum + number", "state.sum + 2 * number")

# Another shape of the state: what version 1.0 kept as `sum` is `total` here, and who came from where.
MIGRATING = """
local M = { api = 1, state_schema = 2 }

function M.init()
    return { total = 0, from = "new" }
end

function M.migrate(state, from_schema, from_version)
    if state.sum == 666 then error("not this one") end
    return { total = state.sum, from = from_schema .. "/" .. tostring(from_version) }
end

function M.step(state, req)
    state.total = state.total + 2 * math.tointeger(tonumber(req.body))
    return { text = state.total .. " " .. state.from }
end

return M
"""

SWAPPED = "Continuo-Sequence-Swapped"
COUNT = 20
POLL = ["--model-control-mode", "poll", "--repository-poll", "50"]


def version(number, lua=COUNTER_LUA, name="counter", **yaml):
    sequence = {"sequence": {"swapPolicy": yaml.pop("policy")}} if "policy" in yaml else {}
    return Model(name, lua, {"minWorkers": 2, "maxWorkers": 2, **sequence, **yaml}, number)


def swapped(server, policy, lua=DOUBLE, old_yaml=None, **more):
    """COUNT sequences live in version 1.0, each with its own sum. Then 2.0 becomes the default."""
    s = server(version("1.0", **(old_yaml or {})), **more)
    client = s.client()
    for i in range(COUNT):
        assert client.step("counter", f"s{i}", i).text == str(i)
    assert s.register(version("2.0", lua, policy=policy)).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    return s, client


def live(s, number):
    return s.describe("counter", number)["liveSequences"]


def queued(server, number):
    status = server.describe("counter", number)["jobQueueStatus"]
    return status["pendingRequests"] + status["inFlight"]


def test_pinned_sequences_stay_in_their_version(server):
    """The default policy: existing sequences stay where they are, and new ones begin in the new version."""
    s, client = swapped(server, "pin")
    for _ in range(2):
        for i in range(COUNT):
            answer = client.step("counter", f"s{i}", 0)
            assert (answer.status, answer.text) == (200, str(i))
            assert answer.headers[SWAPPED] is None
    assert client.step("counter", "new", 1).text == "2"
    assert client.step("counter", None, 1).text == "2"
    assert (live(s, "1.0"), live(s, "2.0")) == (COUNT, 2)


def test_pinned_sequences_are_found_after_a_restart(server):
    """The server reads no stores at the start, so a step asks the stores of all versions."""
    s, client = swapped(server, "pin")
    assert client.step("counter", "new", 1).text == "2"
    s.models.append(version("2.0", DOUBLE, policy="pin"))
    s.kill()
    s.restart()
    client = s.client()
    for default in ("1.0", "2.0"):
        assert s.admin().put(f"/models/counter/{default}/set-default").status == 200
        for i in range(COUNT):
            assert client.step("counter", f"s{i}", 0).text == str(i)
        assert client.step("counter", "new", 0).text == "2"
    assert client.step("counter", "newer", 1).text == "2"


def test_the_default_may_go_back_and_forth(server):
    """Each sequence stays with the version in which it began, whichever version is the default."""
    s, client = swapped(server, "pin")
    assert client.step("counter", "two", 1).text == "2"
    for default in ("1.0", "2.0", "1.0"):
        assert s.admin().put(f"/models/counter/{default}/set-default").status == 200
        assert client.step("counter", "s3", 0).text == "3"
        assert client.step("counter", "two", 0).text == "2"


def test_a_version_in_the_url_is_obeyed(server):
    """The policy does not apply to steps that name a version."""
    s, client = swapped(server, "migrate", MIGRATING)
    assert client.step("counter/1.0", "s4", 1).text == "5"
    assert client.step("counter/2.0", "s4", 1).text == "2 new"
    assert client.step("counter/1.0", "s4", 1).text == "6"


def test_migrated_sequences_go_on_in_the_new_version(server):
    """State and step count move, through the handler's migrate. The first answer says so."""
    s, client = swapped(server, "migrate", MIGRATING)
    for i in range(COUNT):
        answer = client.step("counter", f"s{i}", 1)
        assert (answer.status, answer.text) == (200, f"{i + 2} 1/1.0")
        assert answer.headers[SWAPPED] == "moved; from=1.0"
    for i in range(COUNT):
        answer = client.step("counter", f"s{i}", 1)
        assert (answer.text, answer.headers[SWAPPED]) == (f"{i + 4} 1/1.0", None)
    assert (live(s, "1.0"), live(s, "2.0")) == (0, COUNT)
    gone = client.step("counter/1.0", "s0", 1)
    assert (gone.status, gone.error) == (410, "sequence_ended")
    assert "moved to another version" in gone.message
    s.kill()
    s.models.append(version("2.0", MIGRATING, policy="migrate"))
    s.restart()
    assert s.client().step("counter", "s7", 1).text == "13 1/1.0"


def test_a_state_of_the_same_schema_is_taken_as_it_is(server):
    """No migrate function is needed if the layout is the same."""
    _, client = swapped(server, "migrate", DOUBLE)
    assert client.step("counter", "s5", 1).text == "7"


def test_what_cannot_be_migrated_stays_pinned(server):
    """If migrate fails, no sequence is lost, and the log names the sequence."""
    s, client = swapped(server, "migrate", MIGRATING)
    assert client.step("counter/1.0", "s6", 660).text == "666"
    assert client.step("counter", "s6", 0).text == "666"
    assert client.step("counter", "s6", 1).text == "667"
    assert client.step("counter", "s6", 1).text == "669 1/1.0"  # now it can be
    s.expect_log("event=sequence_not_migrated", 'sequence="s6"', "not this one")
    assert client.step("counter", "s8", 1).text == "10 1/1.0"


def test_reset_sequences_begin_anew_and_say_so(server):
    """The client must be able to see that its state is gone."""
    s, client = swapped(server, "reset")
    answer = client.step("counter", "s9", 1)
    assert (answer.text, answer.headers[SWAPPED]) == ("2", "reset; from=1.0")
    answer = client.step("counter", "s9", 1)
    assert (answer.text, answer.headers[SWAPPED]) == ("4", None)
    assert "started anew in another version" in client.step("counter/1.0", "s9", 1).message
    assert live(s, "1.0") == COUNT - 1


def test_rejected_steps_say_what_to_do(server):
    """The answer is 409 with the version where the sequence lives and the two ways to continue. Nothing changes."""
    _, client = swapped(server, "reject")
    for _ in range(2):
        answer = client.step("counter", "s2", 1)
        assert (answer.status, answer.error) == (409, "version_swapped")
        assert "lives in version 1.0 of model counter" in answer.message
    assert client.step("counter/1.0", "s2", 1).text == "3"
    started = client.step("counter", "s2", 1, headers={"ts_request_sequence_start": "true"})
    assert (started.status, started.text) == (200, "2")
    assert client.step("counter", "s2", 1).text == "4"
    assert client.step("counter", "new", 1).text == "2"


def test_a_start_ends_the_old_sequence(server):
    """A START begins in the new version, and the old version learns that its sequence has ended."""
    s, client = swapped(server, "pin")
    answer = client.step("counter", "s1", 1, headers={"ts_request_sequence_start": "true"})
    assert answer.text == "2"
    assert client.step("counter", "s1", 1).text == "4"
    assert live(s, "1.0") == COUNT - 1
    assert client.step("counter/1.0", "s1", 5).text == "5"


def live_or_none(s, number):
    """A connection that began before the clock moved may have been closed as idle."""
    try:
        return live(s, number)
    except OSError:
        return None


@pytest.mark.parametrize("policy", ["pin", "migrate", "reset"])
def test_a_retry_with_its_key_is_answered_over_the_swap(server, policy):
    """A client whose answer was lost may retry after the swap, and the step is done once."""
    s = server(version("1.0"))
    client = s.client()
    key = {"Idempotency-Key": "k1"}
    assert client.step("counter", "k", 5, headers=key).text == "5"
    assert s.register(version("2.0", policy=policy)).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    again = client.step("counter", "k", 5, headers=key)
    assert (again.text, again.headers["Continuo-Replayed"]) == ("5", "true")
    assert client.step("counter", "k", 1).text == ("1" if policy == "reset" else "6")


def test_tombstones_of_the_old_version_are_told(server):
    """A sequence that expired in the old version must not silently begin anew in the new one."""
    s, client = swapped(server, "pin", old_yaml={"sequenceMaxIdleMSec": 60000}, clock=True)
    s.clock.advance(120000)
    client.close()  # the server has closed it as idle
    expect(lambda: live_or_none(s, "1.0") == 0, "all have expired")
    late = client.step("counter", "s3", 1)
    assert (late.status, late.error) == (410, "sequence_expired")


def test_no_worker_of_the_new_version_does_not_hurt_pinned_sequences(server):
    """Such sequences only need the old version."""
    s = server(version("1.0"), flags=["--scale-workers=false"])
    client = s.client()
    assert client.step("counter", "a", 1).text == "1"
    assert s.register(version("2.0"), initial_workers=0).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    assert client.step("counter", "a", 1).text == "2"
    refused = client.step("counter", "b", 1)
    assert (refused.status, refused.error) == (503, "no_worker")


def test_unregistering_the_old_version_ends_its_sequences(server):
    """Its sequences are closed as with any unregistering, and their ids begin anew."""
    s, client = swapped(server, "pin")
    assert client.step("counter", "s5", 0).text == "5"
    assert s.admin().delete("/models/counter/1.0").status == 200
    assert client.step("counter", "s5", 1).text == "2"


# Which passing of a point is the export, the import, the burial, the first step in the new version.
DEATHS = [("1.0", "batch_read", 9), ("1.0", "batch_read", 10), ("1.0", "before_commit", 9),
          ("1.0", "after_commit", 9), ("1.0", "answers_half_written", 9), ("1.0", "answers_written", 10),
          ("2.0", "batch_read", 1), ("2.0", "before_commit", 1), ("2.0", "after_commit", 1),
          ("2.0", "answers_written", 1), ("2.0", "handler_done", 1), ("2.0", "before_commit", 2),
          ("2.0", "after_commit", 2), ("2.0", "answers_half_written", 2)]


@pytest.mark.parametrize("dying, point, nth", DEATHS)
def test_a_death_in_the_middle_of_a_migration_loses_no_step(server, folder, dying, point, nth):
    """Whichever worker dies, and wherever, each step is done once, in order, without an error."""
    once = folder / "killed"
    once.touch()  # nobody dies before the swap
    s = server(version("1.0", minWorkers=1, maxWorkers=1),
               env={"CONTINUO_TEST_KILL_AT": f"{point}:{nth}", "CONTINUO_TEST_KILL_ONCE": once})
    client = s.client()
    for i in range(8):
        assert client.step("counter", f"s{i}", i).text == str(i)
    assert s.register(version("2.0", MIGRATING, policy="migrate", minWorkers=1, maxWorkers=1)).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    once.unlink()
    for i in range(8):
        assert client.step("counter", f"s{i}", 1).text == f"{i + 2} 1/1.0"
    s.expect_log("event=worker_ended", f"version={dying}", "expected=no")
    for i in range(8):
        assert client.step("counter", f"s{i}", 1).text == f"{i + 4} 1/1.0"


SERVER_DEATHS = [("after_commit", 1), ("before_commit", 2), ("after_commit", 2), ("answers_written", 1)]
KEY = {"Idempotency-Key": "one"}


def killed_in_migration(server, folder, point, nth, old_policy="pin"):
    """Sequence s had the sum 7 in version 1.0. Its step 1 with KEY was moving it to 2.0 when all processes died. Now a
    server runs again with both versions, and 1.0 is the default."""
    once = folder / "killed"
    once.touch()
    s = server(version("1.0", minWorkers=1, maxWorkers=1, policy=old_policy),
               env={"CONTINUO_TEST_KILL_AT": f"{point}:{nth}", "CONTINUO_TEST_KILL_ONCE": once})
    assert s.client().step("counter", "s", 7).text == "7"
    new = version("2.0", MIGRATING, policy="migrate", minWorkers=1, maxWorkers=1)
    assert s.register(new).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    once.unlink()
    hit = threading.Event()

    def killer():
        expect(once.exists, "the worker dies")
        s.process.kill()
        hit.set()

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        first = s.client().step("counter", "s", 1, headers=KEY).text
    except OSError:
        first = None
    thread.join()
    assert first in (None, "9 1/1.0") and hit.is_set()
    s.kill()
    s.env = {}
    s.models.append(new)
    s.restart()
    assert s.admin().put("/models/counter/1.0/set-default").status == 200
    return s


@pytest.mark.parametrize("point, nth", SERVER_DEATHS)
def test_a_server_that_dies_in_the_middle_of_a_migration_loses_no_step(server, folder, point, nth):
    """Both stores may have the sequence then, but the retry with its key is done once."""
    s = killed_in_migration(server, folder, point, nth)
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    client = s.client()
    assert client.step("counter", "s", 1, headers=KEY).text == "9 1/1.0"
    assert client.step("counter", "s", 1).text == "11 1/1.0"
    assert client.step("counter/1.0", "s", 1).error == "sequence_ended"


@pytest.mark.parametrize("policy", ["pin", "migrate", "reject"])
@pytest.mark.parametrize("point, nth", SERVER_DEATHS)
def test_after_such_a_death_the_old_version_as_default_knows_where_the_sequence_is(server, folder, point, nth,
                                                                                   policy):
    """It may be in 2.0 as an import that no step has used yet, and closed in 1.0. It does not begin anew."""
    s = killed_in_migration(server, folder, point, nth, policy)
    client = s.client()
    answer = client.step("counter", "s", 1, headers=KEY)
    where = "counter"
    if policy == "reject" and answer.text != "8":  # in 2.0, and to be sent there
        where = "counter/2.0"
        assert answer.text == "9 1/1.0" or answer.error == "version_swapped" and "2.0" in answer.text
        answer = client.step(where, "s", 1, headers=KEY)
    assert answer.text in ("8", "9 1/1.0")
    assert client.step(where, "s", 1).text == ("9" if answer.text == "8" else "11 1/1.0")


def test_every_step_is_done_once_while_the_default_changes_and_workers_die(server):
    """Clients make steps all the time, and no step fails, is lost or is doubled."""
    s = server(version("1.0"))
    answers = {}
    stop = threading.Event()

    def scenario(i):
        client, total = s.client(f"c{i}"), 0
        while not stop.is_set():
            total += 1
            answer = client.step("counter", f"m{i}", 1)
            if (answer.status, answer.text) != (200, str(total)):
                answers[i] = (total, answer)
                return
        answers[i] = total

    threads = [threading.Thread(target=scenario, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    try:
        for number in ("2.0", "3.0"):
            assert s.register(version(number, policy="migrate")).status == 200
            assert s.admin().put(f"/models/counter/{number}/set-default").status == 200
            for each in ("1.0", "2.0", number):
                s.kill_worker("counter", version=each)
                s.expect_ready("counter", 2, each)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert all(isinstance(total, int) and total > 0 for total in answers.values()), answers
    client = s.client()
    assert {i: client.step("counter", f"m{i}", 0).text for i in answers} == \
        {i: str(total) for i, total in answers.items()}
    assert (live(s, "1.0"), live(s, "2.0"), live(s, "3.0")) == (0, 0, 8)


def test_the_policy_may_be_given_with_the_order(server):
    """set-default?swap_policy= overrides the YAML. A wrong value changes nothing."""
    s = server(version("1.0"))
    client = s.client()
    assert client.step("counter", "a", 1).text == "1"
    assert s.register(version("2.0", DOUBLE)).status == 200
    wrong = s.admin().put("/models/counter/2.0/set-default?swap_policy=mirgate")
    assert (wrong.status, wrong.error) == (400, "bad_request")
    assert s.describe("counter")["modelVersion"] == "1.0"
    assert s.admin().put("/models/counter/2.0/set-default?swap_policy=reset").status == 200
    assert s.describe("counter")["swapPolicy"] == "reset"
    assert client.step("counter", "a", 1).text == "2"


def test_the_progress_of_a_swap_can_be_seen(server):
    """The description shows how many sequences the old version has left, where they go, and until when."""
    s, client = swapped(server, "migrate")
    for left in (COUNT - 1, COUNT - 2):
        assert client.step("counter", f"s{left}", 1).status == 200
        assert s.describe("counter", "1.0")["swap"] == {
            "to": "2.0", "policy": "migrate", "sequencesLeft": left, "retired": False, "deadline": None}
    assert "swap" not in s.describe("counter")


@pytest.mark.parametrize("policy, error", [("pin", "sequence_ended"), ("reject", "sequence_ended"),
                                           ("migrate", None), ("reset", None)])
def test_at_its_deadline_the_old_version_goes(server, policy, error):
    """No step runs there any more. Its sequences move, begin anew, or are closed with an error."""
    s = server(version("1.0"), clock=True)
    client = s.client()
    for i in range(3):
        assert client.step("counter", f"d{i}", 5).text == "5"
    assert s.register(version("2.0", DOUBLE, policy=policy)).status == 200
    assert s.admin().put("/models/counter/2.0/set-default?swap_deadline=60").status == 200
    if policy == "pin":
        assert client.step("counter", "d0", 1).text == "6"
    assert s.describe("counter", "1.0")["swap"]["deadline"]
    s.clock.advance(61_000)
    client.close()  # the server has closed it as idle
    s.expect_log("event=version_retired", "version=1.0")
    assert s.describe("counter", "1.0")["swap"]["retired"]
    for _ in range(2):
        answer = client.step("counter", "d1", 1)
        if error:
            assert (answer.status, answer.error) == (410, error)
            assert "evicted" in answer.message
    if policy in ("migrate", "reset"):
        assert answer.text == ("9" if policy == "migrate" else "4")
    named = client.step("counter/1.0", "d2", 1)
    assert (named.status, named.error) == (409, "version_swapped")
    s.clock.advance(601_000)
    client.close()
    s.expect_log("event=model_closed", "version=1.0", "store=deleted")
    assert s.admin().get("/models/counter/1.0").status == 404
    assert client.step("counter", "d2", 1).text == "2"


def test_a_default_that_comes_back_is_not_retired(server):
    """set-default cancels the deadline."""
    s = server(version("1.0"), clock=True)
    client = s.client()
    assert client.step("counter", "b", 1).text == "1"
    assert s.register(version("2.0", DOUBLE)).status == 200
    assert s.admin().put("/models/counter/2.0/set-default?swap_deadline=60").status == 200
    assert s.admin().put("/models/counter/1.0/set-default").status == 200
    s.clock.advance(700_000)
    client.close()
    assert client.step("counter", "b", 1).text == "2"
    assert s.admin().get("/models/counter/1.0").status == 200


@pytest.mark.parametrize("retired", [False, True])
def test_a_version_that_is_the_default_again_because_the_new_one_went_is_not_retired(server, retired):
    """The archive of the new version is deleted from a store that is polled."""
    s = server(flags=POLL, start=False, clock=True)
    s.pack(version("1.0"), "old.mar")
    s.pack(version("2.0", DOUBLE), "new.mar")
    s.start()
    assert s.admin().put("/models/counter/1.0/set-default").status == 200
    client = s.client()
    assert client.step("counter", "b", 1).text == "1"
    assert s.admin().put("/models/counter/2.0/set-default?swap_deadline=60").status == 200
    if retired:
        s.clock.advance(61_000)
        client.close()  # the server has closed it as idle
        s.expect_log("event=version_retired", "version=1.0")
    (s.store / "new.mar").unlink()
    expect(lambda: s.admin().get("/models/counter/2.0").status == 404, "the new version went")
    for step in (2, 3):
        s.clock.advance(700_000)
        client.close()
        assert client.step("counter", "b", 1).text == str(step)
    assert "swap" not in s.describe("counter", "1.0")


def test_a_default_stays_the_default_when_its_archive_is_replaced(server, tmp_path):
    """The versions are from two archives. The old one was the default only meanwhile, so it gets no deadline."""
    s = server(flags=POLL, start=False)
    s.pack(version("2.0", DOUBLE, sequence={"swapDeadlineMSec": 60000}), "new.mar").rename(tmp_path / "next.mar")
    s.pack(version("2.0"), "new.mar")
    s.pack(version("1.0"), "old.mar")
    s.start()
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    client, names = s.client(), itertools.count()
    assert client.step("counter", "b", 1).text == "1"
    (tmp_path / "next.mar").replace(s.store / "new.mar")
    expect(lambda: client.step("counter", f"n{next(names)}", 1).text == "2", "the changed archive is the default")
    assert s.describe("counter", "1.0")["swap"]["deadline"] is None


@pytest.mark.load
@pytest.mark.parametrize("policy", ["pin", "migrate", "reset", "reject"])
def test_a_swap_with_1000_live_sequences_under_load_has_no_unexpected_error(server, policy):
    """CONTINUO_SWAPS=N swaps N times (2 by default), while 16 clients make steps of all sequences without pause."""
    count, clients = 1000, 16
    swaps = int(os.environ.get("CONTINUO_SWAPS", "2"))
    s = server(version("1.0", batchSize=16))
    bad, done, stop = [], [0] * clients, threading.Event()
    opened = threading.Barrier(clients + 1)

    def scenario(c):
        client = s.client(f"load{c}")
        sums = dict.fromkeys(range(c, count, clients), 0)

        def step(i):
            answer = client.step("counter", f"n{i}", 1)
            if answer.status == 200 and answer.text == str(sums[i] + 1):
                sums[i] += 1
            elif answer.status == 200 and policy == "reset" and answer.text == "1" \
                    and answer.headers[SWAPPED].startswith("reset; from="):
                sums[i] = 1
            elif policy == "reject" and answer.error == "version_swapped":
                assert client.step("counter", f"n{i}", 1,
                                   headers={"ts_request_sequence_start": "true"}).text == "1"
                sums[i] = 1
            else:
                bad.append((i, sums[i], answer))
            done[c] += 1

        for i in sums:
            step(i)
        opened.wait()
        while not stop.is_set() and not bad:
            for i in sums:
                step(i)

    threads = [threading.Thread(target=scenario, args=(c,)) for c in range(clients)]
    for thread in threads:
        thread.start()
    opened.wait()
    try:
        for n in range(2, swaps + 2):
            assert s.register(version(f"{n}.0", policy=policy, batchSize=16)).status == 200
            assert s.admin().put(f"/models/counter/{n}.0/set-default").status == 200
            at = list(done)
            expect(lambda at=at: bad or all(now > before + 3 * count // clients
                                            for now, before in zip(done, at, strict=True)),
                   "all sequences have gone on", timeout=120)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not bad, bad[:5]
    left = [live(s, f"{n}.0") for n in range(1, swaps + 2)]
    assert left == ([count] + [0] * swaps if policy == "pin" else [0] * swaps + [count])


def test_two_steps_of_a_sequence_that_is_still_looked_for_meet(server):
    """After a restart the server does not know where the sequence lives. A step asks version 1.0, whose worker is
    stopped. Then 2.0 becomes the default, and the next step looks for the sequence there. It waits for the answer of
    1.0 instead of opening a new sequence."""
    old = version("1.0", minWorkers=1, maxWorkers=1)
    s = server(old, version("2.0", policy="migrate", minWorkers=1, maxWorkers=1))
    assert s.client().step("counter", "a", 5).text == "5"
    s.stop()
    s.restart()
    assert s.describe("counter")["modelVersion"] == "1.0"
    [pid] = s.expect_ready("counter", 1, "1.0")
    s.expect_ready("counter", 1, "2.0")
    step = "POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: a\r\nContent-Length: 1\r\n\r\n"
    first, second = s.raw(), s.raw()
    os.kill(pid, signal.SIGSTOP)
    try:
        first.send(step + "7")
        s.expect_outstanding("counter", 1)
        assert s.admin().put("/models/counter/2.0/set-default").status == 200
        second.send(step + "9")
        expect(lambda: queued(s, "1.0") == 2, "the second one's question waits in version 1.0, too")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (first.answer().text, second.answer().text) == ("12", "21")
    assert s.client().step("counter", "a", 1).text == "22"


TALKER = """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.step(state, req)
    if req.text == "n" then return { text = "n" } end
    local i, piece = 0, string.rep("x", 50000)
    while req.text == "forever" or i < 40 do
        i = i + 1
        local ok = coroutine.yield(req.text == "forever" and "x" or piece, req.text == "forever" and 0.01 or nil)
        if not ok then break end
    end
    return "end"
end
return M
"""


@pytest.mark.parametrize("loops", [1, 3])
def test_streams_of_pinned_sequences_are_like_others(server, loops):
    """Their handlers get credit in time, though the new version could have much more under way, and they end when an
    END comes, or when the version that has passed them on is unregistered."""
    s = server(version("1.0", TALKER, "talker", stream={"bufferBytes": 100000}), flags=["--loops", str(loops)])
    client = s.client()
    for sequence in "abc":
        assert client.step("talker", sequence, "n").text == "n"
    new = version("2.0", TALKER, "talker", stream={"bufferBytes": 64 << 20})
    assert s.register(new).status == 200
    assert s.admin().put("/models/talker/2.0/set-default").status == 200
    assert client.step("talker", "a", "long").text == "x" * 2_000_000 + "end"
    ends, goes = s.stream("talker", "b", "forever"), s.stream("talker", "c", "forever")
    assert ends.piece() and goes.piece()
    assert client.step("talker", "b", "n", {"ts-request-sequence-end": "true"}).text == "n"
    assert ends.rest().endswith(b"end")
    assert s.admin().put("/models/talker/1.0/set-default").status == 200
    assert s.admin().delete("/models/talker/2.0").status == 200
    assert goes.rest().endswith(b"end")
