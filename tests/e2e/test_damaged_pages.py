"""Damage to LMDB's file is found before LMDB reads it. Whole records stay usable, losses are reported, and no worker
dies."""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys

import pytest
from test_store_damage import ctl, metric, ping, store_of

from models import BIN, ROOT, counter
from waiting import expect, limit

COUNT = 100
PAGE = 4096


def drained(server, **more):
    """Returns a stopped server whose store has had each sequence in data.mdb. Every sequence is at 40."""
    s = server(counter(state={"journalMaxBytes": 65536}, **more))
    client = s.client()
    for i in range(40 * COUNT):
        assert client.step("counter", f"seq-{i // 40}", 1).status == 200  # the last ones stay in the journal
    s.stop()
    return s


def data_of(s):
    return store_of(s) / "data.mdb"


def no_worker_crashed(s):
    return not any("event=worker_ended" in line and "by signal" in line for line in s.lines)


def page_of(data, kind):
    """Returns the offset of a page in use of this kind: 1 is a branch, 2 a leaf. It is the root of the newest tree, or
    a page below it."""
    metas = [struct.unpack_from("<Q", data, at + 16 + 128)[0] for at in (0, PAGE)]
    root = struct.unpack_from("<Q", data, (metas[1] > metas[0]) * PAGE + 16 + 24 + 48 + 40)[0] * PAGE
    while struct.unpack_from("<H", data, root + 10)[0] & 1 and kind == 2:
        first = struct.unpack_from("<H", data, root + 16)[0]
        root = struct.unpack_from("<I", data, root + first)[0] * PAGE
    return root


def record_of(data):
    """Returns the place of the last byte of the key of some record in a leaf in use, and the number of its sequence."""
    leaf = page_of(data, 2)
    lower = struct.unpack_from("<H", data, leaf + 12)[0]
    for at in struct.unpack_from(f"<{(lower - 16) // 2}H", data, leaf + 16):
        if found := re.match(rb"\x01seq-(\d+)CNR1", data[leaf + at + 8:leaf + PAGE]):
            return leaf + at + 8 + found.end(1) - 1, int(found[1])
    raise AssertionError("no record in the first leaf")


def alter_key(data):
    data[record_of(data)[0]] ^= 1


def zero_root(data):
    root = page_of(data, 1)
    data[root:root + PAGE] = bytes(PAGE)


def wrong_child(data):
    root = page_of(data, 1)
    assert struct.unpack_from("<H", data, root + 10)[0] & 1, "a tree of one page"
    first = struct.unpack_from("<H", data, root + 16)[0]
    struct.pack_into("<H", data, root + first, 0xFFF0)


def meta_page(data):
    data[24 + 128 - 20] ^= 255
    data[PAGE:2 * PAGE] = os.urandom(PAGE)


@pytest.mark.parametrize("harm", [alter_key, zero_root, wrong_child, meta_page])
def test_a_damaged_page_is_told_and_nothing_begins_anew(server, harm):
    s = drained(server)
    data = bytearray(data_of(s).read_bytes())
    harm(data)
    data_of(s).write_bytes(data)
    s.restart()
    s.expect_log("event=data_set_aside")
    assert ping(s) == 500
    assert metric(s, "continuo_stores_damaged") == 1
    aside = [path.name for path in store_of(s).iterdir() if path.name.startswith("data.mdb~bad-")]
    assert len(aside) == 1 and (store_of(s) / aside[0]).read_bytes() == data
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 1 and aside[0] in doctor.stdout and "the store is damaged" in doctor.stdout
    client = s.client()
    for name in [f"seq-{i}" for i in range(COUNT)] + ["never-seen"]:
        answer = client.step("counter", name, 0)
        refused = answer.status == 507 and answer.headers.get("Continuo-Error") == "state_damaged"
        assert refused or (answer.status, answer.text) == (200, "40"), (name, answer)
        assert refused or name != "never-seen"
    s.stop()
    s.restart()  # it is not mended twice, and stays told
    assert ping(s) == 500 and len(list(store_of(s).glob("data.mdb~bad-*"))) == 1
    assert ctl(s, "store", "accept", "counter").returncode == 0
    expect(lambda: ping(s) == 200, "healthy again")
    client = s.client()
    for i in range(COUNT):  # the newest, or lost and begun anew; never an older one
        assert client.step("counter", f"seq-{i}", 0).text in ("40", "0")
    assert no_worker_crashed(s)


def test_an_altered_value_costs_its_sequence_alone(server):
    s = drained(server)
    data = bytearray(data_of(s).read_bytes())
    key_end, lost = record_of(data)
    data[key_end + 40] ^= 1
    data_of(s).write_bytes(data)
    s.restart()
    s.expect_log("event=store_damaged", "suspect=0")
    assert ping(s) == 500
    client = s.client()
    for i in range(COUNT):
        answer = client.step("counter", f"seq-{i}", 0)
        assert answer.text == "40" or (i == lost and answer.status == 507), (i, lost, answer)
    assert client.step("counter", "never-seen", 3).text == "3"  # all keys are known
    assert no_worker_crashed(s)


def test_a_store_is_checked_once_in_a_life_of_the_server_and_after_a_crash(server):
    s = drained(server)
    checked = store_of(s) / "CHECKED"
    checked.touch()
    before = checked.stat().st_ino, checked.stat().st_mtime_ns
    s.restart()
    s.client().step("counter", "seq-1", 0)
    since = checked.stat().st_ino, checked.stat().st_mtime_ns
    assert since != before  # at the start, whatever an earlier life found
    # A sanitizer takes SIGSEGV for itself, so the crash is an abort.
    for how, again in ((signal.SIGKILL, False), (signal.SIGABRT, True)):
        worker = s.ready_pids("counter")[0]
        os.kill(worker, how)
        expect(lambda gone=worker: gone not in s.ready_pids("counter") and s.ready_pids("counter"), "another worker")
        assert s.client().step("counter", "seq-1", 0).text == "40"
        expect(checked.exists, "it was looked at")
        assert ((checked.stat().st_ino, checked.stat().st_mtime_ns) != since) == again


def test_a_store_over_the_limit_is_not_checked_and_says_so(server):
    s = drained(server, **{"minWorkers": 1})
    s.models = [counter(state={"journalMaxBytes": 65536, "checkMaxBytes": 4096})]
    s.restart()
    s.expect_log("event=store_not_checked", "state.checkMaxBytes")
    assert s.client().step("counter", "seq-1", 0).text == "40"


def test_a_second_server_is_refused_though_the_lock_file_is_gone(server):
    s = server(counter())
    (pathlib.Path(s.state_dir) / "lock").unlink()
    second = subprocess.run([BIN / "continuo", "--state-dir", s.state_dir, "--model-store", s.store,
                             "--inference-address", "http://127.0.0.1:0", "--management-address", "http://127.0.0.1:0", "--metrics-address", "http://127.0.0.1:0",
                             "--grpc-inference-address", "none", "--grpc-management-address", "none"],
                            capture_output=True, text=True, timeout=limit(60), check=False)
    assert second.returncode == 1, second
    assert "in use by another server" in second.stderr + second.stdout
    assert s.client().step("counter", "a", 2).text == "2"


def test_sixty_random_corruptions():
    """A short form of the campaign: no silent loss, no wrong value, no crash, no hang."""
    run = subprocess.run([sys.executable, ROOT / "tests/campaign/corrupt.py", "--trials", "60", "--seed", "7", "--jobs", "2",
                          "--build", BIN.parent], capture_output=True, text=True, timeout=limit(280), check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert result["trials"] == 60 and result["failed"] == 0
    assert result["told"] > 30 and result["right"] > 1000
