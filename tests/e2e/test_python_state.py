"""What a Python handler keeps comes back as it was: from memory, from the store, after a kill, and in another version."""

import json
import os
import random
import signal
import sys

import pytest

from models import COUNTER_PY, python
from test_python import interpreter, pytestmark  # noqa: F401 - a fixture, and the reason to skip
from waiting import expect, limit


def test_sequences_outlive_workers_and_servers(server, interpreter):
    """The worker is killed, the server is killed, and the server is restarted cleanly. Each step counts once."""
    s = server(python("counter", python=interpreter))
    client = s.client()
    assert [client.step("counter", "a", 5).text for _ in range(3)] == ["5", "10", "15"]
    s.kill_worker("counter")
    assert client.step("counter", "a", 5).text == "20"
    s.kill()
    s.restart()
    assert s.client().step("counter", "a", 5).text == "25"
    s.stop()
    s.restart()
    assert s.client().step("counter", "a", 5).text == "30"


def test_a_worker_that_begins_after_its_server_was_killed_ends_before_it_loads(server, folder):
    """Its interpreter may take seconds to start, and its handler minutes to import what it needs. All that time the
    worker would hold the state folder, for which the next server waits."""
    gate, slow, interpreter = folder / "gate", folder / "slow", folder / "python3"
    os.mkfifo(gate)
    slow.touch()
    interpreter.write_text(f'#!/bin/sh\n[ ! -p {gate} ] || read word <{gate}\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    importing = f"import os, time\nwhile os.path.exists({str(slow)!r}):\n    time.sleep(0.01)\n"
    s = server(start=False)
    s.models = []
    s.start()
    model = python("counter", importing + COUNTER_PY, python=interpreter)
    assert s.register(model, initial_workers=1, synchronous="false").status == 202
    expect(lambda: len(s.session_members()) == 2, "the interpreter begins")
    assert len(s.workers("counter")) == 1  # by now its LOAD was sent
    s.kill()
    with open(gate, "w", encoding="ascii") as opened:  # returns when the interpreter reads
        gate.unlink()
        opened.write("go\n")
    expect(lambda: not s.session_members(), "the worker ends")
    s.restart()


EXACT = """
import collections


def init(req):
    return {"none": None, "bool": [True, False], "int": [0, -1, 2**63 - 1, -2**63, 2**63, 10**40, -10**40],
            "float": [0.0, -0.0, 1.5, 1e308, float("inf")], "str": ["", "ü€😀", "\\ud800"],
            "bytes": bytes(range(256)), "list": [[], [1, [2]]], "tuple": ((), (1, (2,))),
            "dict": {1: "a", (1, 2): "b", None: "c", "k": {"deep": {}}}, "set": {1, 2},
            "frozen": frozenset([3]), "complex": 1 - 2j, "array": bytearray(b"xy"),
            "deque": collections.deque([1, 2, 3], maxlen=5)}


def step(state, req):
    state["deque"].append(len(state["deque"]))
    expected = init(req)
    for _ in range(req.step + 1):
        expected["deque"].append(len(expected["deque"]))
    return repr(state == expected and repr(state) == repr(expected))
"""


def test_a_state_comes_back_as_it_was(server, interpreter):
    """Types, order and every bit are the same, whether the state comes from memory or from the store."""
    s = server(python("exact", EXACT, python=interpreter))
    for _ in range(2):
        assert s.client().step("exact", "a", "x").text == "True"
        s.kill_worker("exact")
    assert s.client().step("exact", "a", "x").text == "True"


NUMBERS = """
import numpy as np


def init(req):
    return {"f": np.arange(6, dtype="<f4").reshape(2, 3), "t": np.asfortranarray(np.arange(6).reshape(2, 3)),
            "u": np.array(["a", "bc"]), "d": np.array("2026-01-01", "M8[D]"), "e": np.zeros((0, 3), ">i2"),
            "s": np.float32(0.1), "b": np.bool_(True), "view": np.arange(10)[::2]}


def step(state, req):
    state["f"] += 1
    want = init(req)
    want["f"] += req.step + 1
    for name, value in want.items():
        have = state[name]
        assert type(have) is type(value) and have.dtype == value.dtype, name
        assert np.shape(have) == np.shape(value) and np.all(have == value), name
    if req.text == "object":
        state["f"] = np.array([object()])
    assert state["t"].flags.f_contiguous or req.text == "object"
    return state["f"].tolist() if req.text != "object" else "x"
"""


def test_numpy_arrays_are_state(server):
    """This includes scalars, other byte orders, column-major order and empty arrays, but not arrays of objects."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("numbers", NUMBERS))
    client = s.client()
    assert client.step("numbers", "a", "x").json == [[1, 2, 3], [4, 5, 6]]
    s.kill_worker("numbers")
    assert client.step("numbers", "a", "x").json == [[2, 3, 4], [5, 6, 7]]
    answer = client.step("numbers", "a", "object")
    assert 'state["f"]: a NumPy array of type object cannot be stored' in answer.message


TORCH = """
import torch


def init(req):
    return {"h": torch.zeros(1, 4), "b": torch.ones(3, dtype=torch.bfloat16), "c": (torch.arange(4),)}


def step(state, req):
    state["h"] = state["h"] + 1
    assert state["b"].dtype is torch.bfloat16 and state["c"][0].tolist() == [0, 1, 2, 3]
    if req.text == "grad":
        state["h"].requires_grad_()
    return state["h"].tolist()
"""


def test_torch_tensors_are_state(server):
    pytest.importorskip("torch", reason="the tests' own Python has no PyTorch")
    s = server(python("tensors", TORCH, startupTimeout=120))
    client = s.client()
    assert client.step("tensors", "a", "x").json == [[1.0] * 4]
    s.kill_worker("tensors")
    assert client.step("tensors", "a", "x").json == [[2.0] * 4]
    assert 'state["h"]: a tensor that requires grad' in client.step("tensors", "a", "grad").message


PICKLED = """
import fractions
state_format = "pickle"


def init(req):
    return fractions.Fraction(1, 3)


def step(state, req):
    req.state = state * 2
    return str(req.state)
"""


def test_pickle_is_opt_in(server):
    """With pickle any object may be a state. A handler without it refuses a pickled state."""
    s = server(python("p", PICKLED))
    client = s.client()
    assert client.step("p", "a", "x").text == "2/3"
    s.kill_worker("p")
    assert client.step("p", "a", "x").text == "4/3"
    exported = s.admin().get("/models/p/sequences/a?export=true")
    assert s.register(python("q", PICKLED.replace('state_format = "pickle"', ""))).status == 200
    imported = s.admin().put("/models/q/sequences/a?any_model=true", body=exported.body)
    answer = client.step("q", "a", "x") if imported.status == 200 else imported
    assert answer.status >= 400 and "pickle" in answer.message, answer


MIGRATING = """
state_schema = 2


def init(req):
    return {"total": 0, "from": "new"}


def migrate(state, from_schema, version):
    return {"total": state["sum"], "from": f"{from_schema}/{version}"}


def step(state, req):
    state["total"] += 2 * int(req.body)
    return f"{state['total']} {state['from']}"
"""


def test_sequences_move_to_the_next_version(server):
    """migrate(state, from_schema, version) makes a state of today's layout. An exported sequence can be imported, too.
    """
    s = server(python("counter"))
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    exported = s.admin().get("/models/counter/sequences/a?export=true")
    assert s.register(python("counter", MIGRATING, "2.0", sequence={"swapPolicy": "migrate"})).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    assert client.step("counter", "a", 1).text == "7 1/1.0"
    assert s.admin().put("/models/counter/1.0/sequences/b", body=exported.body).status == 200
    assert client.step("counter/1.0", "b", 1).text == "6"


SUMS_OF_TORCHSERVE = """
from continuo import SequenceState


class Sum:
    def initialize(self, context):
        self.sums = SequenceState()

    def handle(self, data, context):
        ids = [context.get_sequence_id(i) for i, _ in enumerate(data)]
        for id, row in zip(ids, data):
            self.sums[id] = self.sums.get(id, 0) + int(bytes(row["body"]).decode())
        return [str(self.sums[id]) for id in ids]
"""


@pytest.mark.load
@pytest.mark.parametrize("text", [COUNTER_PY, SUMS_OF_TORCHSERVE], ids=["native", "torchserve"])
def test_random_kills_under_load_of_verified_sequences(server, text):
    """The central promise, as for Lua in test_kill.py: the bench checks each running sum.

    There are 8 kills; CONTINUO_KILLS=100 makes a long run."""
    kills = int(os.environ.get("CONTINUO_KILLS", "8"))
    s = server(python("counter", text, minWorkers=3, maxWorkers=3, batchSize=16))
    s.expect_ready("counter", 3)
    bench = s.bench("--connections", 64, "--duration", 100_000, "--warmup", 0, "--end", "--stall-seconds", 60)
    chance = random.Random(20261123)
    for number in range(kills):
        victim = chance.choice(expect(lambda: s.ready_pids("counter"), "a worker to kill", 60))
        s.transcript.log("test", f"kill {number + 1} of {kills}: worker {victim}")
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        assert bench.poll() is None, bench.communicate()
        seen = s.describe("counter")["steps"]
        expect(lambda: s.describe("counter")["steps"] > seen + 50, "the load goes on", 60)
    bench.send_signal(signal.SIGINT)
    out, err = bench.communicate(timeout=limit(90))
    assert bench.returncode == 0, f"{out} {err}"
    result = json.loads(out)
    assert (result["errors"], result["mismatches"], result["ended"]) == (0, 0, 64), f"{out} {err}"
