"""The server ends, and starts again, on a disk without a free byte and without room for one more file."""

import json
import os
import shutil
import signal
import stat

import pytest

from disk import clear, fill, resize
from models import counter
from test_full_disk import PIECE, fill as fill_store, keeper
from waiting import expect


@pytest.fixture
def on_disk(server, small_disk):
    """Returns a server, not started yet, whose state folder is on the small disk."""
    def make(model, **more):
        s = server(start=False, **more)
        s.state_dir = small_disk / "state"
        s.models = [model]
        return s
    return make


def check_goes_on(s, small_disk):
    """Checks what clients see: reads are answered, and new sequences are refused until there is room."""
    client = s.client()
    shown = s.admin().get("/models/keeper/sequences/s0")
    assert shown.status == 200 and shown.json["step"] == 1, shown
    old = client.step("keeper", "s0", b"")  # its record may find room in the journal, or not
    assert (old.status, old.text) == (200, "2") or (old.status, old.error) == (507, "state_store"), old
    new = client.step("keeper", "new", PIECE * 4)
    assert (new.status, new.error) == (507, "state_store"), new
    clear(small_disk)
    resize(small_disk, "60m")
    new = client.step("keeper", "new", PIECE)
    assert (new.status, new.text) == (200, "1"), new
    assert client.step("keeper", "s0", b"").text == ("3" if old.status == 200 else "2")


def test_a_server_killed_on_a_full_disk_starts_again(on_disk, small_disk):
    """A server on a full disk is usually killed. After the restart its models are loaded and no sequence is lost."""
    s = on_disk(keeper())
    s.start()
    taken, refused = fill_store(s.client())
    assert taken > 2 and refused.status == 507, refused
    fill(small_disk)
    s.kill()
    s.restart()
    check_goes_on(s, small_disk)


def test_a_server_stopped_on_a_full_disk_starts_again(on_disk, small_disk):
    """Other programs may fill the room that a stop frees, so the stop must leave enough for the models' archives."""
    s = on_disk(keeper())
    s.start()
    fill_store(s.client())
    fill(small_disk)
    s.stop()
    assert (small_disk / "state" / "boot").read_text().split()[1] == "clean"
    fill(small_disk)
    s.restart()
    assert (small_disk / "state" / "boot").read_text().split()[1] == "running"
    check_goes_on(s, small_disk)


def forget_unpacked(s, small_disk):
    """Moves the unpacked archives away, as the next start would remove them, and returns where they are. Landlock keeps
    the inode of a folder for a moment after the end of the worker that could read it, so that is waited for."""
    kept, before = s.folder / "kept", os.statvfs(small_disk).f_ffree
    shutil.copytree(s.state_dir / "unpacked", kept)
    for path in kept.iterdir():
        gone = s.state_dir / "unpacked" / path.name
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    expect(lambda: os.statvfs(small_disk).f_ffree >= before + len(list(kept.rglob("*"))), "the inodes are free")
    return kept


def test_a_power_cut_on_a_full_disk_costs_no_store(on_disk, small_disk):
    """A store that cannot be checked for lack of room is not treated as damaged: it stays in place, and works when
    there is room."""
    s = on_disk(keeper(), flags=["--exit-on-model-failure=false"])
    s.start()
    fill_store(s.client())
    s.kill()
    expect(lambda: not s.session_members(), "the workers have ended")
    boot = small_disk / "state" / "boot"
    store = small_disk / "state" / "models" / "keeper" / "1.0"
    (store / "lock.mdb").unlink()  # never flushed
    boot.write_text("11111111-2222-3333-4444-555555555555 running\n")
    (store / "UNVERIFIED").touch()
    room = small_disk / "room"
    shutil.copytree(forget_unpacked(s, small_disk), room)
    fill(small_disk)
    shutil.rmtree(room)
    s.restart()
    s.expect_log("event=model_failed", "lock.mdb")
    assert not list(store.parent.glob("*~bad-*"))
    clear(small_disk)
    s.kill()
    s.restart()
    s.expect_log("event=store_verified")
    assert s.client().step("keeper", "s0", b"").text == "2"


def test_a_store_that_cannot_be_mended_for_lack_of_room_stays(on_disk, small_disk):
    """A power cut has torn a page of data.mdb. To mend it needs room for a second file; the sequences must not be lost
    because there is none."""
    s = on_disk(keeper(state={"journal": "off"}), flags=["--exit-on-model-failure=false"])
    s.start()
    client = s.client()
    for i in range(10):
        assert client.step("keeper", f"s{i}", PIECE).text == "1"
    s.kill()
    expect(lambda: not s.session_members(), "the workers have ended")
    store = small_disk / "state" / "models" / "keeper" / "1.0"
    with open(store / "data.mdb", "r+b") as file:
        file.seek(20 * 4096 + 100)
        file.write(bytes(byte ^ 255 for byte in file.read(50)))
    (small_disk / "state" / "boot").write_text("11111111-2222-3333-4444-555555555555 running\n")
    (store / "UNVERIFIED").touch()
    room = small_disk / "room"
    shutil.copytree(forget_unpacked(s, small_disk), room)
    fill(small_disk)
    shutil.rmtree(room)
    s.restart()
    s.expect_log("event=model_failed", "No space left on device")
    assert not list(store.parent.glob("*~bad-*"))
    clear(small_disk)
    s.kill()
    s.restart()
    answers = [s.client().step("keeper", f"s{i}", b"").text for i in range(10)]
    assert answers.count("2") >= 8, answers


def test_keys_are_written_over_the_last_ones(server, small_disk):
    """A full disk has no room for a new key file, so the keys are written over the last ones, which have the same
    length. A file of somebody else is never overwritten."""
    path = small_disk / "keys.json"
    s = server(counter(), flags=["--token-auth", "--token-file", str(path)])
    before = json.loads(path.read_text())
    fill(small_disk)
    s.kill()
    s.restart()
    after = json.loads(path.read_text())
    assert after.keys() == before.keys() and after["inference"]["key"] != before["inference"]["key"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and not path.with_name("keys.json.new").exists()
    key = {"Authorization": f"Bearer {after['inference']['key']}"}
    assert s.client().get("/ping", headers=key).status == 200
    s.kill()
    os.chmod(path, 0o644)  # somebody may have it open
    s.launch()
    assert s.exit_code() == 1
    s.expect_log("cannot write the keys to", str(path), "No space left on device")
    s.expected_exit = 1


def test_logs_wait_for_room(server, small_disk):
    """There is no room for log files or their folder. The server runs, reports this once for each log, and writes the
    files when it can."""
    logs = small_disk / "logs"
    fill(small_disk)
    s = server(counter(), flags=["--log-dir", str(logs)])
    client = s.client()
    assert client.step("counter", "a", 1).text == "1"
    s.expect_log("event=log_failing", "log=server", "No space left on device")
    s.expect_log("event=log_failing", "log=access", "No space left on device")
    expect(lambda: s.metric("continuo_log_lines_dropped_total") >= 1, "lost lines are counted")
    clear(small_disk)
    expect(lambda: client.step("counter", "a", 1).status == 200 and (logs / "access_log.log").exists()
           and "POST /predictions" in (logs / "access_log.log").read_text(), "the access log goes on")
    expect((logs / "ts_log.log").exists, "the server's log goes on")
    os.kill(s.process.pid, signal.SIGHUP)
    expect(lambda: "event=logs_reopened" in (logs / "ts_log.log").read_text(), "and takes lines")


def test_torchserve_starts_without_its_pid_file(torchserve, small_disk):
    """Only --stop needs the pid file. The warning says how to stop the server without it."""
    ts = torchserve()
    ts.pack(counter())
    ts.properties()
    ts.pid_file = small_disk / ts.pid_file.name
    ts.env["TMPDIR"] = str(small_disk)
    fill(small_disk)
    code, said = ts.run("--start", "--ncs", "--model-store", "model-store", "--models", "counter.mar",
                        "--ts-config", "config.properties")
    assert code == 0, said
    pid = int(ts.ready.group(6))
    assert f"cannot write the pid file {ts.pid_file}: No space left on device" in ts.text
    assert f"stop it with: kill {pid}" in ts.text
    assert ts.client().step("counter", "a", 5).text == "5"
    assert not ts.pid_file.exists()
    os.kill(pid, signal.SIGTERM)
    expect(lambda: "Torchserve stopped." in ts.text, "the server has ended")
