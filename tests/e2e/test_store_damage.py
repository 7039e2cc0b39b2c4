"""State files that are damaged, cut, lost or from elsewhere are reported, and no answer comes from a state that may be
old."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from models import BIN, counter
from waiting import expect, limit

COUNT = 6


def ctl(s, *words):
    return subprocess.run([BIN / "continuo-ctl", "--server", s.management, "--metrics", s.metrics, *words],
                          capture_output=True, text=True, timeout=limit(30), check=False)


def store_of(s, name="counter", version="1.0"):
    return pathlib.Path(s.state_dir) / "models" / name / version


def ping(s):
    return s.client().get("/ping").status


def metric(s, name):
    from client import Client
    from server import address_of
    text = Client(address_of(s.metrics), s.transcript, "metrics").get("/metrics").text
    return next(int(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


def stepped(server, **more):
    s = server(counter(), **more)
    client = s.client()
    for i in range(10 * COUNT):
        assert client.step("counter", f"s{i % COUNT}", 1).status == 200
    return s


def flip(path):
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    data[used // 3] ^= 1
    path.write_bytes(data)


def empty(path):
    os.truncate(path, 0)


def delete(path):
    path.unlink()


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("harm", [flip, empty, delete])
def test_a_damaged_journal_is_told_and_never_answers_with_older_states(server, harm, end):
    """Before there was a ledger, one flipped bit silently lost six of ten steps, with status 200."""
    s = stepped(server)
    getattr(s, end)()
    harm(store_of(s) / "journal.0")
    s.restart()
    s.expect_log("event=store_damaged", " continuo ")
    assert ping(s) == 500
    assert metric(s, "continuo_stores_damaged") == 1
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 1 and "counter/1.0: the store is damaged" in doctor.stdout
    client = s.client()
    lost = []
    for i in range(COUNT):
        answer = client.step("counter", f"s{i}", 0)
        if answer.status == 507:
            assert answer.headers.get("Continuo-Error") == "state_damaged", answer
            lost.append(i)
        else:
            assert (answer.status, answer.text) == (200, "10")
    assert len(lost) == (COUNT if harm is not flip else 0)  # the flipped step was followed by others
    assert client.step("counter", "new", 3).text == "3"  # what is whole, and what begins, goes on
    s.stop()
    s.restart()
    assert ping(s) == 500  # until somebody accepts it
    accepted = ctl(s, "store", "accept", "counter")
    assert accepted.returncode == 0, accepted
    expect(lambda: ping(s) == 200, "healthy again")
    assert "damaged" not in ctl(s, "doctor").stdout
    client = s.client()
    for i in range(COUNT):
        assert client.step("counter", f"s{i}", 0).text == ("0" if i in lost else "10")
    assert client.step("counter", "new", 3).text == "6"


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_a_handler_puts_in_the_place_of_a_report_holds_up_nobody(server, kind, folder):
    """The server waits for no pipe, and does not show where a link leads."""
    s = stepped(server)
    (folder / "secret").write_text("secret words\n")
    if kind == "pipe":
        os.mkfifo(store_of(s) / "DAMAGED")
    else:
        (store_of(s) / "DAMAGED").symlink_to(folder / "secret")
    expect(lambda: ping(s) == 500, "the damage is told")
    assert s.client().step("counter", "s0", 0).text == "10"
    assert "secret words" not in s.admin().get("/stores").text
    assert s.admin().post("/models?url=counter-1.0.mar&model_name=other&initial_workers=1&synchronous=true").status == 200
    assert ctl(s, "store", "accept", "counter").returncode == 0
    expect(lambda: ping(s) == 200, "healthy again")


def test_the_check_of_a_store_follows_no_link_to_another_one(server, folder):
    """A handler may put links into the folder of its store, and the check runs outside of a worker."""
    s = server(counter(), counter("other"))
    for model in ("counter", "other"):
        assert s.client().step(model, "a", 5).status == 200
    if "own_files" not in s.workers("counter")[0]["walls"]:
        pytest.skip("this kernel has no wall for files")
    s.stop()
    other, lock = store_of(s, "other") / "data.mdb", folder / "short"
    lock.write_text("short")
    before = other.read_bytes()
    for name, target in (("data.mdb", other), ("lock.mdb", lock)):
        (store_of(s) / name).unlink()
        (store_of(s) / name).symlink_to(target)
    for word in ("--check-store", "--mend-store", "--accept-store"):
        run = subprocess.run([BIN / "continuo-worker", word, store_of(s)], capture_output=True, text=True,
                             timeout=limit(30), check=False)
        assert run.returncode == 3 and "Permission denied" in run.stdout, (word, run)
    assert other.read_bytes() == before
    assert lock.read_text() == "short"


def test_the_last_step_of_a_journal_is_missed(server):
    """Nothing after the last step shows that it existed, except the ledger."""
    s = stepped(server)
    s.stop()
    journal = store_of(s) / "journal.0"
    data = bytearray(journal.read_bytes())
    data[len(data.rstrip(b"\0")) - 3] ^= 4
    journal.write_bytes(data)
    s.restart()
    answers = [s.client().step("counter", f"s{i}", 0) for i in range(COUNT)]
    assert [a.status for a in answers] == [200] * (COUNT - 1) + [507]
    started = s.client().step("counter", f"s{COUNT - 1}", 4,
                              {"ts-request-sequence-start": "true"})
    assert (started.status, started.text) == (200, "4")
    assert s.client().step("counter", f"s{COUNT - 1}", 4).text == "8"


def test_a_step_may_be_accepted_as_lost_at_the_start(server):
    s = stepped(server)
    s.stop()
    empty(store_of(s) / "journal.0")
    s.flags += ["--accept-store-loss"]
    s.restart()
    assert ping(s) == 200
    assert s.client().step("counter", "s0", 2).text == "2"


def test_an_older_lmdb_is_told_and_the_journal_still_has_every_step(server):
    """data.mdb comes from a backup and the journals are today's, so only what was still in the journal is certain."""
    s = server(counter())
    client = s.client()
    for i in range(4):
        assert client.step("counter", f"s{i}", i).status == 200
    s.stop()
    shutil.copy(store_of(s) / "data.mdb", s.folder / "older.mdb")
    s.restart()
    client = s.client()
    for i in range(300):
        assert client.step("counter", f"t{i}", i).status == 200
    s.stop()
    shutil.copy(s.folder / "older.mdb", store_of(s) / "data.mdb")
    s.restart()
    assert ping(s) == 500
    client = s.client()
    for i in range(300):  # nothing had left the journal: nothing is lost
        assert client.step("counter", f"t{i}", 0).text == str(i)


def test_stores_of_nobody_are_found_listed_and_removed(server):
    s = stepped(server)
    s.stop()
    shutil.copytree(store_of(s), store_of(s, "gone", "2.0"))
    s.restart()
    expect(lambda: any("event=store_unused store=gone/2.0" in line for line in s.lines), "the log tells")
    expect(lambda: metric(s, "continuo_stores_unused") == 1, "the metric tells")
    assert ping(s) == 200
    listed = {entry["name"]: entry for entry in json.loads(ctl(s, "store", "ls", "--json").stdout)}
    assert listed["gone/2.0"]["state"] == "unused" and listed["gone/2.0"]["sequences"] == COUNT
    assert listed["gone/2.0"]["bytes"] > 4096
    assert listed["counter/1.0"]["state"] == "in use"
    assert "gone/2.0" in ctl(s, "store", "ls").stdout
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 0 and "1 store" in doctor.stdout and "gone/2.0" in doctor.stdout
    used = ctl(s, "store", "rm", "counter/1.0")
    assert used.returncode == 1 and "registered" in used.stderr
    assert ctl(s, "store", "rm", "gone/2.0").returncode == 0
    assert not store_of(s, "gone", "2.0").exists() and store_of(s).exists()
    assert ctl(s, "store", "rm", "gone/2.0").returncode == 1
    assert ctl(s, "store", "rm", "gone/..").returncode == 1
    assert s.client().step("counter", "s0", 0).text == "10"


@pytest.mark.parametrize("which", ["store", "state"])
def test_a_folder_that_is_deleted_under_the_server_is_noticed(server, which):
    s = stepped(server)
    shutil.rmtree(store_of(s) if which == "store" else s.state_dir)
    expect(lambda: ping(s) == 500, "unhealthy", timeout=20)
    s.expect_log("event=store_missing")
    assert metric(s, "continuo_stores_missing") == 1
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 1 and "folder is gone" in doctor.stdout


def test_only_the_store_that_is_gone_is_named(server):
    """The watch looks at all stores together, and must not take one for another."""
    s = server(*(counter(name) for name in ("first", "counter", "last")))
    client = s.client()
    for name in ("first", "counter", "last"):
        assert client.step(name, "a", 1).status == 200
    shutil.rmtree(store_of(s))
    assert "store=counter/1.0" in s.expect_log("event=store_missing")
    assert metric(s, "continuo_stores_missing") == 1
    assert sum("event=store_missing" in line for line in list(s.lines)) == 1


def test_a_sweep_closes_nothing_by_an_older_lmdb(server):
    """By a data.mdb from a backup the sequence has been idle for long, but its newest step is from a moment ago."""
    s = server(counter(sequenceMaxIdleMSec=600000, state={"journalMaxBytes": 65536}), clock=True)
    start = {"ts-request-sequence-start": "true"}

    def fill(name):
        """Moves what was in the journal before to LMDB."""
        for i in range(800):
            assert s.client().step("counter", f"{name}{i % 400}", i).status == 200

    assert s.client().step("counter", "s", 1).text == "1"
    fill("t")
    s.stop()
    shutil.copy(store_of(s) / "data.mdb", s.folder / "older.mdb")
    s.clock.advance(700000)
    s.restart()
    assert s.client().step("counter", "s", 5, start).text == "5"
    fill("u")
    s.stop()
    shutil.copy(s.folder / "older.mdb", store_of(s) / "data.mdb")
    s.restart()
    for i in range(100):  # the sweep goes on after each batch
        assert s.client().step("counter", f"new{i}", 1, start).status == 200
        s.clock.advance(20)
    answer = s.client().step("counter", "s", 1)
    assert answer.status == 507 and answer.headers.get("Continuo-Error") == "state_damaged", answer
