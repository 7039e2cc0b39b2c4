"""An archive that is broken, half copied or missing for a moment must not affect the model that is up."""

import os

import pytest
import requests

from models import Model, counter
from test_ctl import ctl  # noqa: F401 - a fixture
from test_v2_repository import ADD_YAML, add, adder, call, index_of, put
from waiting import expect

POLL = ["--model-control-mode", "poll", "--repository-poll", "50"]


def polling(server, *models):
    s = server(flags=POLL, start=False)
    for model in models:
        put(s, model)
    return s.start()


def metric(s, name):
    text = requests.get(s.metrics + "/metrics", timeout=20).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


def looks(s):
    """Waits for this many looks at the store. They leave a trace only in the metric of a file that is broken again."""
    (s.store / "probe.mar").write_bytes(b"no archive")
    before = metric(s, "continuo_archive_load_failures_total")
    expect(lambda: metric(s, "continuo_archive_load_failures_total") > before, "the store was looked at")
    (s.store / "probe.mar").unlink()
    expect(lambda: not any(e["name"].startswith("probe") and e.get("state") != "UNAVAILABLE" for e in index_of(s)),
           "the probe is gone")


def failing(name="adder"):
    """Makes a valid archive whose handler cannot load."""
    return Model(name, "return { api = 1, handle = function() end, load = function() error('no weights') end }",
                 ADD_YAML, stateful=False)


def broken_reload(s, ctl, words):
    failed = expect(lambda: s.describe("adder")["failedReload"], "the failure is shown", 30)
    assert failed["archive"] == "adder.mar" and words in failed["error"] and failed["since"].endswith("Z")
    assert add(s, 1) == 2, "the old one serves"
    assert metric(s, "continuo_archives_broken") == 1
    assert requests.get(s.inference + "/ping", timeout=20).status_code == 200
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 1 and "adder.mar has changed and cannot be loaded" in doctor.stdout
    assert words in doctor.stdout
    return failed


def told(s):
    return sum("event=archive_broken archive=adder.mar" in line for line in s.lines)


def test_a_torn_archive_leaves_the_old_version_up(server, ctl):  # noqa: F811
    """The failure is logged once and shown until the archive is whole. Loading is tried again only when the file
    changes."""
    s = polling(server, adder(1))
    pids = s.ready_pids("adder")
    whole = (s.store / "adder.mar").read_bytes()
    (s.store / "adder.mar").write_bytes(whole[:len(whole) // 2])
    broken_reload(s, ctl, "adder.mar")
    failures = metric(s, "continuo_archive_load_failures_total")
    looks(s)
    assert metric(s, "continuo_archive_load_failures_total") == failures + 1, "only the probe failed"
    assert told(s) == 1 and s.ready_pids("adder") == pids
    put(s, adder(7))
    expect(lambda: add(s, 1) == 8, "the whole archive is loaded")
    assert s.describe("adder")["failedReload"] is None and metric(s, "continuo_archives_broken") == 0
    assert ctl(s, "doctor").returncode == 0


def test_a_handler_that_cannot_load_leaves_the_old_version_up(server, ctl):  # noqa: F811
    """The archive is valid and has the version number of the model that is up, so it is first loaded beside it."""
    s = polling(server, adder(1))
    put(s, failing())
    broken_reload(s, ctl, "no weights")
    assert told(s) == 1
    put(s, adder(3))
    expect(lambda: add(s, 1) == 4, "the next one is loaded")


def test_no_request_fails_while_broken_archives_come(server):
    """Sequences make step after step while broken archives and a good one are loaded."""
    s = polling(server, counter())
    client, steps = s.client(), 0
    for i, content in enumerate([b"", b"no archive", b"PK\3\4"]):
        (s.store / "counter.mar").write_bytes(content + bytes(i))
        while not (s.describe("counter")["failedReload"] and metric(s, "continuo_archive_load_failures_total") > i):
            steps += 1
            assert client.step("counter", "a", 1).text == str(steps)
    changed = counter()
    changed.lua += "-- changed\n"
    put(s, changed)
    # While the new workers load, management doesn't know the model either.
    expect(lambda: (got := s.admin().get("/models/counter")).status == 200 and got.json[0]["failedReload"] is None,
           "the good one is loaded", 30)
    answer = expect(lambda: (got := client.step("counter", "a", 1)).status == 200 and got, "the step is done")
    assert answer.text == str(steps + 1)


def test_a_load_by_name_that_fails_changes_nothing(server):
    """In the explicit mode, too, the caller gets the reason, and the old version serves."""
    s = server(flags=["--model-control-mode", "explicit"])
    put(s, adder(1))
    assert call(s, "models/adder/load")[0] == 200
    put(s, failing())
    status, text = call(s, "models/adder/load")
    assert status == 400 and "no weights" in text
    assert add(s, 1) == 2 and s.describe("adder")["failedReload"]["archive"] == "adder.mar"
    put(s, adder(5))
    assert call(s, "models/adder/load")[0] == 200
    assert add(s, 1) == 6 and s.describe("adder")["failedReload"] is None


def test_an_archive_that_is_replaced_while_it_is_unpacked_is_loaded(server, tmp_path):
    """What was unpacked is the old archive then, so the file counts as changed. A restart takes the new one, too."""
    s = polling(server)
    put(s, adder(7)).rename(tmp_path / "late.mar")
    slow = adder(1)
    slow.extra = {"weights.bin": os.urandom(64_000_000)}
    put(s, slow)
    expect(lambda: list((s.state_dir / "unpacked").glob("*/weights.bin")), "the archive is being unpacked")
    (tmp_path / "late.mar").replace(s.store / "adder.mar")
    expect(lambda: add(s, 1) == 8, "the new archive is loaded", 60)
    s.stop()
    s.restart()
    assert add(s, 1) == 8


@pytest.mark.load  # alone, because a copy that stands still for a second is taken for complete
def test_a_file_that_grows_is_left_alone(server):
    """A slow copy is loaded when it is complete, without a failure before."""
    s = server(flags=["--model-control-mode", "poll", "--repository-poll", "1000"], start=False)
    put(s, adder(9))
    whole = (s.store / "adder.mar").read_bytes()
    put(s, adder(1))
    s.start()
    with open(s.store / "adder.mar", "wb") as file:
        for byte in whole:
            file.write(bytes([byte]))
            file.flush()
            assert isinstance(add(s, 1), int)
    expect(lambda: add(s, 1) == 10, "the whole file is loaded")
    assert told(s) == 0 and s.describe("adder")["failedReload"] is None


def test_a_model_goes_with_its_file(server):
    """The model is unloaded as in Triton. Its stored sequences stay, and are there again when the file comes back."""
    s = polling(server, counter())
    assert s.client().step("counter", "a", 3).text == "3"
    whole = (s.store / "counter.mar").read_bytes()
    (s.store / "counter.mar").unlink()
    expect(lambda: s.client().step("counter", "b", 1).status == 404, "the model is unloaded")
    (s.store / "counter.mar").write_bytes(whole)
    expect(lambda: s.admin().get("/models/counter").status == 200, "the model is back")
    assert s.client().step("counter", "a", 1).text == "4"
