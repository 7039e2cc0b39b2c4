"""preload: true of a Python model: one process imports the handler and calls load(), and the workers
are forked from it. What a zygote itself promises stands in test_zygote.py."""

import os
import pathlib
import re
import signal

import pytest

from models import BUILD, python
from waiting import expect

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)")
SANITIZED = WORKER.exists() and b"__asan_init" in WORKER.read_bytes()

FORKED = """
import os
import random
import time

drawn = random.random()
loaded = []


def load(model):
    loaded.append((os.getpid(), model.worker))
    with open(os.path.join(os.environ["TMPDIR"], "note"), "a") as file:
        file.write("load\\n")
    if model.config.get("thread"):
        import threading
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    if model.config.get("numpy"):
        import numpy
        assert (numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum() > 0


def forked(model):
    loaded.append((os.getpid(), model.worker))
    if model.config.get("broken"):
        raise OSError("no socket")


def init(req):
    return {"n": 0}


def step(state, req):
    state["n"] += 1
    if req.text == "spin":
        while True:
            pass
    return {"n": state["n"], "loaded": loaded, "pid": os.getpid(), "random": random.random(), "drawn": drawn}
"""


@pytest.fixture
def serve(server, folder):
    def start(text=FORKED, **yaml):
        yaml = {"preload": True, "batchSize": 1, "maxWorkers": yaml.get("minWorkers", 1), **yaml}
        return server(python("m", text, **yaml))
    return start


def zygote(s):
    return expect(lambda: (lambda z: z if z and z["state"] == "ready" else None)(s.describe("m").get("zygote")),
                  "the zygote is ready", 20)


def loads(folder):
    return sum(path.read_text().count("load") for path in folder.rglob("*.temp/note"))


def parent_of(pid):
    return int(re.search(r"^PPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1))


def title_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")[-1].decode()


def answers_of_all(s, n):
    """One answer of each of n workers, by the worker's pid."""
    found = {}

    def ask():
        number = len(found), os.urandom(4).hex()
        answer = s.client(f"c{number}").step("m", f"s{number}", "x").json
        found[answer["pid"]] = answer
        return len(found) == n
    expect(ask, f"answers of {n} workers", 30)
    return found


def test_one_process_loads_and_the_workers_are_forked(serve, folder):
    """load() runs once; each worker is the server's child, has its number, and draws its own numbers."""
    s = serve(minWorkers=3)
    pids = s.expect_ready("m", 3)
    about = zygote(s)
    assert loads(folder) == 1 and about["pid"] not in pids
    assert {parent_of(pid) for pid in [*pids, about["pid"]]} == {s.process.pid}
    assert {title_of(pid) for pid in pids} == {"m/1.0#1", "m/1.0#2", "m/1.0#3"}
    assert title_of(about["pid"]) == "m/1.0#zygote"
    found = answers_of_all(s, 3)
    assert {tuple(answer["loaded"][0]) for answer in found.values()} == {(about["pid"], 0)}
    assert {answer["loaded"][1][1] for answer in found.values()} == {1, 2, 3}
    assert all(answer["loaded"][1][0] == pid for pid, answer in found.items())
    assert len({answer["drawn"] for answer in found.values()}) == 1
    assert len({answer["random"] for answer in found.values()}) == 3


def test_a_dead_worker_is_forked_again_and_its_sequences_go_on(serve, folder):
    s = serve()
    client = s.client()
    for n in range(1, 4):
        assert client.step("m", "a", "x").json["n"] == n
        s.kill_worker("m")
    assert loads(folder) == 1
    os.kill(zygote(s)["pid"], signal.SIGKILL)
    s.kill_worker("m")
    assert client.step("m", "a", "x").json["n"] == 4


def test_a_forked_worker_has_the_limits_of_any(serve):
    s = serve(handler={"limits": {"callMSec": 300}})
    answer = s.client().step("m", "a", "spin")
    assert (answer.status, answer.error) == (500, "deadline"), answer
    assert s.client().step("m", "a", "x").json["n"] == 1


def test_a_torchserve_handler_whose_start_awaits_is_not_forked(serve):
    """The loop of asyncio in which it waits would be one for all workers, and wake the wrong one."""
    s = serve("""
import asyncio
import os


async def handle(data, context):
    if data is None:  # the start
        return await asyncio.sleep(0)
    await asyncio.to_thread(os.getpid)
    return [os.getpid()]
""", minWorkers=2)
    s.expect_ready("m", 2)
    s.expect_log("event=zygote_declined", "load(model) has used asyncio")
    assert int(s.client().step("m", "a", "x").text) in s.ready_pids("m")


def test_numpy_does_not_keep_a_model_from_being_forked(serve, folder):
    """Its library starts threads, which end before a fork."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = serve(numpy=True, minWorkers=2)
    s.expect_ready("m", 2)
    zygote(s)
    assert loads(folder) == 1


@pytest.mark.parametrize("text, yaml, reason", [
    (FORKED + "\npreload = False\n", {}, "the handler has preload = False"),
    (FORKED, {"thread": True}, "loading the model left 2 threads running"),
    (FORKED.replace("def load(model):", "async def load(model):"), {}, "load(model) has used asyncio")])
def test_what_cannot_be_forked_is_loaded_by_each_worker(serve, folder, text, yaml, reason):
    s = serve(text, minWorkers=2, **yaml)
    s.expect_ready("m", 2)
    s.expect_log("event=zygote_declined", reason)
    assert loads(folder) == 3
    assert s.client().step("m", "a", "x").json["n"] == 1


def test_without_preload_each_worker_loads(serve, folder):
    """A handler must be written for it: the default is a plain start."""
    s = serve(minWorkers=2, preload=False)
    s.expect_ready("m", 2)
    assert loads(folder) == 2 and "zygote" not in s.describe("m")


def test_an_error_in_forked_keeps_the_worker_from_starting(server, folder):
    s = server(start=False)
    s.models = []
    s.start()
    answer = s.register(python("m", FORKED, preload=True, broken=True),
                        initial_workers=1, synchronous="true")
    assert answer.status >= 400 and "OSError: no socket" in answer.message, answer


REMEMBERS = """
class Handler:
    def initialize(self, context):
        self.sums = {}

    def handle(self, data, context):
        for i, row in enumerate(data):
            id = context.get_sequence_id(i)
            self.sums[id] = self.sums.get(id, 0) + int(bytes(row["body"]).decode())
        return [self.sums[context.get_sequence_id(i)] for i, _ in enumerate(data)]
"""


def test_forked_workers_do_not_take_each_others_memory_for_their_own(serve):
    """A TorchServe handler that remembers sequences itself: a worker that was forked later has none of
    them, so they are closed and do not begin from nothing."""
    s = serve(REMEMBERS)
    zygote(s)
    client = s.client()
    assert [client.step("m", "a", n).text for n in (3, 4)] == ["3", "7"]
    s.kill_worker("m")
    answer = client.step("m", "a", 5)
    assert answer.status == 410 and "(worker_lost)" in answer.message, answer
