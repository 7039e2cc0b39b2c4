"""Limits of Python handlers: time and memory. What is too much fails alone, and the others are answered."""

import json
import threading

import pytest

from models import BUILD, python
from waiting import expect

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)")
SANITIZED = WORKER.exists() and b"__asan_init" in WORKER.read_bytes()

SLOW = """
import asyncio
import re
import time


def init(req):
    if req.text == "slow init":
        spin()
    return {"n": 0}


def spin():
    while True:
        pass


def step(state, req):
    state["n"] += 1
    if req.text == "spin":
        spin()
    if req.text == "sleep":
        time.sleep(1000)
    if req.text == "pattern":
        re.match(r"(a+)+b", "a" * 100)
    if req.text == "stubborn":
        while True:
            try:
                spin()
            except Exception:
                pass
    if req.text == "clean":
        try:
            spin()
        finally:
            print("cleaned up")
    if req.text == "generator":
        return slow_pieces()
    if req.text == "not to be interrupted":
        sum(range(10 ** 12))
    if req.text in ("block", "await"):
        return wait(state, req.text)
    return state["n"]


def slow_pieces():
    yield "a piece"
    spin()


async def wait(state, word):
    await asyncio.sleep(0.01)
    if word == "block":
        time.sleep(1000)
    for _ in range(100):
        await asyncio.sleep(0.01)
    return state["n"]


def close(sequence_id, state, reason):
    if sequence_id == "slow to close":
        spin()
"""


@pytest.fixture
def slow(server):
    s = server(python("m", SLOW, batchSize=8, handler={"limits": {"callMSec": 300}}))
    return s, s.client()


def line_of(text):
    return 1 + SLOW[:SLOW.index(text)].count("\n")


@pytest.mark.parametrize("word", ["spin", "sleep", "pattern", "stubborn", "clean", "slow init"])
def test_a_call_that_takes_too_long_is_interrupted(slow, word):
    """callMSec: the client hears where the handler was, the worker lives, and the state is as before."""
    s, client = slow
    assert client.step("m", "other", "x").text == "1"
    pids = s.ready_pids("m")
    answer = client.step("m", "a", word)
    assert (answer.status, answer.error) == (500, "deadline"), answer
    assert "reached its time limit of 300 ms" in answer.message and "handler.py:" in answer.message
    s.expect_log("event=handler_error", 'sequence="a"', "reached its time limit of 300 ms")
    if word == "clean":
        s.expect_log("cleaned up")
    assert client.step("m", "a", "x").text == "1"
    assert client.step("m", "other", "x").text == "2"
    assert s.ready_pids("m") == pids


def test_the_time_limit_is_from_yield_to_yield(slow):
    s, client = slow
    stream = s.stream("m", "a", "generator")
    assert stream.piece() == b"a piece"
    with pytest.raises(Exception):
        stream.rest()
    stream.close()
    assert client.step("m", "a", "x").text == "1"


def test_a_step_that_blocks_the_event_loop_is_interrupted_alone(slow):
    """Seven steps await meanwhile; they are answered, and by the same worker."""
    s, client = slow
    pids = s.ready_pids("m")
    others = {}

    def ask(n):
        others[n] = s.client(f"c{n}").step("m", f"s{n}", "await").text

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(7)]
    for thread in threads:
        thread.start()
    answer = client.step("m", "a", "block")
    for thread in threads:
        thread.join()
    assert (answer.status, answer.error) == (500, "deadline"), answer
    assert others == dict.fromkeys(range(7), "1")
    assert s.ready_pids("m") == pids


SUMS = """
import asyncio
from continuo import SequenceState

sums = SequenceState()


async def add_later(sequence_id, number, wait_ms):
    await asyncio.sleep(wait_ms / 1000)
    sums[sequence_id()] = sums.get(sequence_id(), 0) + number
    return sums[sequence_id()]
"""
TORCHSERVE_SUMS = SUMS + """

async def handle(data, context):
    if data is not None:
        number, wait_ms = map(int, bytes(data[0]["body"]).split())
        return [await add_later(lambda: context.get_sequence_id(0), number, wait_ms)]
"""
TRITON_SUMS = SUMS + """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy().tolist()
        y = await add_later(requests[0].correlation_id, *x)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([y], np.int32))])]
"""


def step_of_torchserve(s, sequence, number, wait_ms):
    answer = s.client().step("m", sequence, f"{number} {wait_ms}")
    return int(answer.text) if answer.status == 200 else answer.error


def step_of_triton(s, sequence, number, wait_ms):
    body = {"parameters": {"sequence_id": sequence, "sequence_start": number == 1},
            "inputs": [{"name": "X", "datatype": "INT32", "shape": [2], "data": [number, wait_ms]}]}
    answer = s.client().post("/v2/models/m/infer", json.dumps(body))
    return answer.json["outputs"][0]["data"][0] if answer.status == 200 else answer.error


@pytest.mark.parametrize("text, step, yaml", [
    (TORCHSERVE_SUMS, step_of_torchserve, {}),
    (TRITON_SUMS, step_of_triton, {"input": "[{name: X, data_type: TYPE_INT32, dims: [2]}]",
                                   "output": "[{name: Y, data_type: TYPE_INT32, dims: [1]}]"}),
], ids=["torchserve", "triton"])
def test_an_async_call_that_takes_too_long_does_not_go_on_in_a_later_one(server, text, step, yaml):
    """A handler of another server: its call would find the sequences of the later call, and change their states."""
    if step is step_of_triton:
        pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("m", text, batchSize=1, handler={"limits": {"callMSec": 600}}, **yaml))
    assert step(s, "a", 1, 0) == 1
    assert step(s, "a", 1000, 900) == "deadline"
    assert step(s, "b", 1, 500) == 1  # the call before would have gone on after 300 ms
    assert step(s, "a", 2, 0) == 3
    assert step(s, "b", 2, 0) == 3


def test_a_slow_close_holds_up_nobody_for_long(slow):
    s, client = slow
    assert client.step("m", "slow to close", "x").text == "1"
    s.admin().delete("/models/m/sequences/slow%20to%20close")
    s.expect_log("event=handler_close_failed", "reached its time limit of 300 ms")
    assert client.step("m", "a", "x").text == "1"


def test_what_cannot_be_interrupted_costs_the_worker(server):
    """Code in C that never looks up: responseTimeout replaces the worker, and other sequences go on."""
    s = server(python("m", SLOW, responseTimeout=2))
    client = s.client()
    assert client.step("m", "a", "x").text == "1"
    assert client.step("m", "b", "not to be interrupted").status >= 500
    assert client.step("m", "a", "x").text == "2"
    assert client.step("m", "b", "x").text == "1"


HUNGRY = """
kept = []


def init(req):
    return {"n": 0}


def step(state, req):
    state["n"] += 1
    if req.text == "take":
        bytearray(1 << 30)
    if req.text == "leak":
        kept.append(bytearray(20 << 20))
    return state["n"]
"""


@pytest.mark.skipif(SANITIZED, reason="a sanitizer reserves 16 TB itself")
def test_a_step_that_wants_too_much_memory_fails_alone(server):
    """memoryBytes: the step is refused with the limit's name, and the worker goes on."""
    s = server(python("m", HUNGRY, handler={"limits": {"memoryBytes": 256 << 20}}))
    client = s.client()
    assert client.step("m", "a", "x").text == "1"
    pids = s.ready_pids("m")
    answer = client.step("m", "a", "take")
    assert (answer.status, answer.error) == (507, "out_of_memory"), answer
    assert "reached the memory limit of 268435456 bytes (handler.limits.memoryBytes)" in answer.message
    assert client.step("m", "a", "x").text == "2"
    assert s.ready_pids("m") == pids


@pytest.mark.skipif(SANITIZED, reason="a sanitizer reserves 16 TB itself")
def test_a_handler_that_leaks_gets_a_new_worker(server):
    """Otherwise each step would fail from then on. No step that was answered is lost."""
    s = server(python("m", HUNGRY, handler={"limits": {"memoryBytes": 256 << 20}}))
    client = s.client()
    assert client.step("m", "a", "x").text == "1"
    first = s.ready_pids("m")
    steps = 1
    for _ in range(20):
        answer = client.step("m", "b", "leak")
        if answer.status != 200:
            break
    assert (answer.status, answer.error) == (507, "out_of_memory"), answer
    s.expect_log("event=worker_stopped", "the handler does not free its memory")
    steps += 1
    assert client.step("m", "a", "x").text == str(steps)
    expect(lambda: s.ready_pids("m") not in ([], first), "another worker")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer reserves 16 TB itself")
def test_a_limit_below_what_the_interpreter_needs_is_refused(server):
    s = server(start=False)
    s.models = []
    s.start()
    answer = s.register(python("m", HUNGRY, handler={"limits": {"memoryBytes": 1 << 20}}),
                        initial_workers=1, synchronous="true")
    assert answer.status >= 400 and "the interpreter alone has reserved" in answer.message, answer
    with pytest.raises(AssertionError, match="allowed are 0 and values from 1048576 on"):
        s.pack(python("m", HUNGRY, handler={"limits": {"memoryBytes": 1000}}))


def test_python_has_no_memory_limit_by_default(server):
    """256 MiB, the default of Lua, would be too little for most packages."""
    s = server(python("m", HUNGRY))
    assert s.client().step("m", "a", "take").text == "1"
