"""Temporary files of handlers: with --worker-temp-bytes, a model that fills its folder loses its workers and the files,
and no sequence."""

import json
import os

import pytest

from models import counter, python
from test_worker_walls import needs_python
from waiting import expect

# Writes a file of that many bytes, and says how many files there are.
WRITER = """
import os


def step(state, req):
    folder = os.environ["TMPDIR"]
    for i in range(int(req.headers.get("files", "1"))):
        with open(os.path.join(folder, f"{os.getpid()}-{state.get('n', 0)}-{i}"), "wb") as file:
            file.write(bytes(int(req.text)))
    state["n"] = state.get("n", 0) + 1
    return {"n": state["n"], "files": len(os.listdir(folder))}
"""
MB = 1 << 20

pytestmark = needs_python


def writer(**settings):
    return python("writer", WRITER, sequenceBatching=True, minWorkers=1, maxWorkers=1, **settings)


def step(s, size, **headers):
    answer = s.client().step("writer", "a", str(size), headers)
    assert answer.status == 200, answer
    return json.loads(answer.text)


def files_of(s):
    return list((s.folder / "state").glob("**/*.temp/*"))


def restarts(s, model):
    [worker] = s.workers(model)
    return worker["restarts"]


@pytest.mark.parametrize("settings", [{}, {"preload": True}], ids=["alone", "forked"])
def test_a_model_that_fills_its_folder_begins_with_an_empty_one(server, settings):
    """The log and the worker's last words name the option. Neither the sequence nor other models notice."""
    s = server(writer(**settings), counter(), flags=[f"--worker-temp-bytes={MB}"])
    assert s.describe("writer")["limits"]["tempBytes"] == MB
    assert step(s, MB // 4) == {"n": 1, "files": 1}
    assert files_of(s)
    assert step(s, 2 * MB)["n"] == 2
    s.expect_log("event=temporary_files_full", "model=writer", f"max_bytes={MB}")
    expect(lambda: restarts(s, "writer") == 1, "the worker is started again")
    [worker] = s.workers("writer")
    assert "--worker-temp-bytes" in worker["lastExit"], worker
    expect(lambda: not files_of(s), "the files are deleted")
    assert step(s, 1) == {"n": 3, "files": 1}
    assert restarts(s, "counter") == 0


# Keeps a file, and knows whether the test's files lay in the folder when it was loaded.
KEEPER = """
import os


def load(model):
    global met, own
    met = "many" in os.listdir(os.environ["TMPDIR"])
    own = os.path.join(os.environ["TMPDIR"], str(os.getpid()))
    open(own, "w").close()


def step(state, req):
    return {"met": met, "kept": os.path.exists(own)}
"""


@pytest.mark.parametrize("settings", [{}, {"preload": True}], ids=["alone", "forked"])
def test_new_workers_start_when_the_files_are_deleted(server, settings):
    """If they started before, they could meet files of the killed workers, and lose their own. A worker starts
    faster than these 20000 files are deleted."""
    s = server(python("keeper", KEEPER, minWorkers=1, maxWorkers=1, **settings), flags=[f"--worker-temp-bytes={MB}"])
    [folder] = (s.folder / "state").glob("**/*.temp")
    for n in range(1, 3):
        many = s.folder / "many"
        many.mkdir()
        for i in range(20000):
            (many / str(i)).touch()
        os.rename(many, folder / "many")
        expect(lambda n=n: restarts(s, "keeper") == n, "the worker is started again")
        answer = s.client().step("keeper", "a", "x")
        assert json.loads(answer.text) == {"met": False, "kept": True}, answer


def test_many_small_files_count_too(server):
    s = server(writer(), flags=[f"--worker-temp-bytes={MB}"])
    assert step(s, 0, files="300")["files"] == 300
    s.expect_log("event=temporary_files_full")
    expect(lambda: restarts(s, "writer") == 1, "the worker is started again")


def test_the_yaml_lowers_the_bound_and_there_is_none_by_default(server):
    s = server(writer(handler={"limits": {"tempBytes": MB}}), flags=[f"--worker-temp-bytes={64 * MB}"])
    assert s.describe("writer")["limits"]["tempBytes"] == MB
    assert step(s, 2 * MB)["n"] == 1
    s.expect_log("event=temporary_files_full", f"max_bytes={MB}")


def test_without_the_option_nobody_looks(server):
    s = server(writer())
    assert "limits" not in s.describe("writer")
    assert step(s, 8 * MB)["files"] == 1
