"""The workers of a TorchScript model, and the process that forks them, are killed again and again while 64 sequences
make steps. No step is lost or done twice, and all processes come back.

The test runs with a stand-in for libtorch, and with PyTorch if it is installed."""

import io
import os
import random
import signal
import threading
import time

import pytest
import requests

from models import BIN, Model
from server import SLOW_BUILD
from torching import LIBRARY, pytorch
from waiting import expect, limit

STAND_IN = BIN.parent / "tests" / "torchscript" / "fake_library.so"
SEQUENCES, KILLS = (64, 40) if not SLOW_BUILD else (16, 16)

YAML = """
minWorkers: 4
maxWorkers: 4
batchSize: 8
maxBatchSize: 8
sequenceBatching: true
responseTimeout: 30
inputs: [{name: x, dataType: FP32, dims: [2]}]
outputs: [{name: y, dataType: FP32, dims: [2]}]
state: [{name: h, dataType: FP32, dims: [2], batchAxis: 1}]
torch: {results: [y, h, _]}
"""


def pytorch_sum():
    """Does what the stand-in does: y = x + h, h reversed, and the number of rows."""
    torch = pytorch(under_tsan=True)

    class Sum(torch.nn.Module):
        def forward(self, x, h):
            y = x + h.t()
            return y, y.t().contiguous(), torch.full((x.size(0), 1), x.size(0))

    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(Sum()), buffer)
    return buffer.getvalue()


@pytest.fixture(params=["stand-in", "PyTorch"])
def serve(request, server):
    library = STAND_IN if request.param == "stand-in" else LIBRARY
    data = b"sum" if request.param == "stand-in" else pytorch_sum()
    assert library.exists(), library
    return server(Model("adds", None, YAML, torchscript=data), flags=["--torch-library", library])


class Stream(threading.Thread):
    """A client with one sequence that makes step after step. It knows what each answer must be. After an error it sends
    a step that adds nothing, to learn whether the step was done."""

    def __init__(self, s, index):
        super().__init__(daemon=True)
        self.url, self.name = f"{s.inference}/predictions/adds", f"s{index}"
        self.random = random.Random(index)
        self.total, self.steps, self.errors, self.broken = 0, 0, 0, None
        self.stop = threading.Event()

    def send(self, session, value):
        """Returns the sums of values and of steps, or None if there was no answer."""
        answer = session.post(self.url, json={"x": [[value, 1.0 if value else 0.0]]}, timeout=limit(60),
                              headers={"ts_request_sequence_id": self.name})
        if answer.status_code == 200:
            return tuple(answer.json()["y"][0])
        assert answer.headers.get("Continuo-Error") in ("worker_died", "no_worker"), answer.text
        self.errors += 1
        return None

    def ask(self, session):
        deadline = time.monotonic() + limit(60)
        while (told := self.send(session, 0)) is None:
            assert time.monotonic() < deadline, "no answer for a minute"
        return told

    def run(self):
        try:
            with requests.Session() as session:
                while not self.stop.is_set():
                    self.step(session)
                assert self.ask(session) == (self.total, self.steps)
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.broken = f"{self.name}: {error!r}"

    def step(self, session):
        value = self.random.randint(1, 9)
        was, after = (self.total, self.steps), (self.total + value, self.steps + 1)
        told = self.send(session, value)
        if told is None:
            told = self.ask(session)
            assert told in (was, after), (told, was, after)
        else:
            assert told == after, (told, after)
        self.total, self.steps = int(told[0]), int(told[1])


def zygote(s):
    """Returns the zygote as it is now; mostly it is loading."""
    shown = s.describe("adds")["zygote"]
    return shown["pid"] if shown else 0


def ready_zygote(s):
    """Waits for a zygote that is ready. One that is killed while it loads is restarted after longer and longer pauses.
    """
    expect(lambda: (s.describe("adds")["zygote"] or {}).get("state") == "ready", "the zygote is ready", 60)
    return zygote(s)


def kill(pids):
    """Kills the processes and returns how many of them existed."""
    killed = 0
    for pid in filter(None, pids):
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            pass
    return killed


def test_kills_of_zygote_and_workers_lose_and_double_nothing(serve):
    s, chance = serve, random.Random(20261121)
    faults = [lambda: [chance.choice(s.ready_pids("adds") or [0])],
              lambda: [ready_zygote(s)],
              lambda: [zygote(s), *s.ready_pids("adds")[:1]],
              lambda: [ready_zygote(s), *s.ready_pids("adds")]]
    s.expect_ready("adds", 4)
    streams = [Stream(s, i) for i in range(SEQUENCES)]
    for stream in streams:
        stream.start()
    killed, dealt = 0, 0
    deadline = time.monotonic() + limit(120)
    while killed < KILLS and time.monotonic() < deadline:
        n = kill(faults[dealt % len(faults)]())
        dealt += n > 0
        killed += n
        # Each time it meets another moment: the zygote loads, or forks, workers begin, or commit.
        threading.Event().wait(chance.uniform(0.02, 0.4))
    for stream in streams:
        stream.stop.set()
    for stream in streams:
        stream.join(limit(120))
    assert [stream.broken for stream in streams if stream.broken] == []
    assert not any(stream.is_alive() for stream in streams)
    assert killed >= KILLS, killed
    assert all(stream.steps > 0 for stream in streams)
    s.expect_ready("adds", 4, timeout=60)
    expect(lambda: (s.describe("adds")["zygote"] or {}).get("state") == "ready", "the zygote is back", 60)
    steps, errors = sum(stream.steps for stream in streams), sum(stream.errors for stream in streams)
    assert steps > 10 * SEQUENCES, (steps, errors)
