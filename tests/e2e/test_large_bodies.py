"""Large tensors are sent from where they lie. Each answer belongs to its own request, whatever its size, even if
workers die while they read or write it."""

import subprocess
import threading

import numpy as np
import pytest

from models import BUILD, ROOT, archiver, counter
from resident import resident_bytes
from test_v2_clients import start  # noqa: F401 (a fixture)
from v2clients import client_of_kind
from waiting import expect, limit

# Bytes, around those at which copies end.
SIZES = [16376, 16384, 65528, 65536, 300_000, 1_000_000, 3_000_000]


class Asker(threading.Thread):
    """Asks for tensors of all sizes until it is told to stop, and at least once for each size."""

    def __init__(self, server, kind, seed):
        super().__init__()
        self.server, self.kind, self.seed = server, kind, seed
        self.stop = threading.Event()
        self.asked, self.wrong = 0, []

    def run(self):
        rng = np.random.default_rng(self.seed)
        client = client_of_kind(self.kind, self.server)
        try:
            while self.asked < len(SIZES) or not self.stop.is_set():
                size = SIZES[self.asked % len(SIZES)]
                # What stands before the second one decides how it is aligned in its frame.
                given = {"INT8": rng.integers(-128, 128, 1 + self.asked % 7, np.int8), "FP64": rng.random(size // 8)}
                answer = client.infer("identity", [client.tensor(name, value, name) for name, value in given.items()])
                self.asked += 1
                self.wrong += [(size, name) for name, value in given.items()
                               if not np.array_equal(answer.as_numpy(name), value)]
        except Exception as error:  # the test tells it
            self.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            client.close()


@pytest.mark.parametrize("kills", [0, 3])
def test_each_answer_is_its_own(start, kills):  # noqa: F811
    s = start("identity")
    askers = [Asker(s, kind, seed) for seed, kind in enumerate(("http", "grpc", "http", "grpc"))]
    for asker in askers:
        asker.start()
    for _ in range(kills):
        s.kill_worker("identity")
        s.expect_ready("identity")
        # Each has an answer to a request of after the kill: no request is in all the kills, which would refuse it.
        before = [asker.asked for asker in askers]
        expect(lambda: all(asker.wrong or asker.asked >= count + 2 for asker, count in zip(askers, before)),
               "two more answers for each")
    for asker in askers:
        asker.stop.set()
        asker.join()
        assert not asker.wrong, asker.wrong
        assert asker.asked >= len(SIZES)


@pytest.mark.skipif("release" not in BUILD.name, reason="builds for finding faults have another malloc")
@pytest.mark.parametrize("loops", [1, 2])
def test_an_idle_server_gives_the_memory_of_large_requests_back(start, loops):  # noqa: F811
    """The tuning keep-blocks keeps freed blocks of 8 MiB and more, but only for some seconds."""
    s = start("identity", flags=["--loops", loops, "--max-request-size", 50_000_000])
    client = client_of_kind("http", s)
    value = np.ones(20_000_000, np.int8)

    def ask():
        answer = client.infer("identity", [client.tensor("INT8", value, "INT8")])
        assert np.array_equal(answer.as_numpy("INT8"), value)

    client.infer("identity", [client.tensor("INT8", value[:10], "INT8")])
    before = resident_bytes(s.process.pid)
    for _ in range(4):
        ask()
    client.close()
    expect(lambda: resident_bytes(s.process.pid) < before + (15 << 20), "the server has given the memory back", 60)


def shares(s):
    """Has the worker shared memory with the server?"""
    with open(f"/proc/{s.ready_pids('identity')[0]}/maps", encoding="utf-8") as maps:
        return "continuo bodies" in maps.read()


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize("flags", [[], ["--tuning=all,-body-memory"]])
def test_memory_is_shared_from_the_first_large_body_on(start, kind, flags):  # noqa: F811
    s = start("identity", flags=flags)
    client = client_of_kind(kind, s)

    def ask(size):
        value = np.arange(size, dtype=np.uint8)
        answer = client.infer("identity", [client.tensor("UINT8", value, "UINT8")])
        assert np.array_equal(answer.as_numpy("UINT8"), value)

    ask(60_000)
    assert not shares(s)
    for size in (70_000, 1_000_000, 65_536, 5_000_000):
        ask(size)
        assert shares(s) == (not flags)
    client.close()


@pytest.fixture
def vandal(server, folder, transcript):
    """A server with a model that writes over the memory that it shares with the server, and another model."""
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I",
                    ROOT / "include", "-o", folder / "vandal.so", ROOT / "tests" / "support" / "vandal.c"],
                   check=True, timeout=limit(60))
    (folder / "vandal.yaml").write_text("minWorkers: 1\nmaxWorkers: 1\nbodyMemoryBytes: 1048576\n")
    s = server(counter(), start=False)
    archiver("--model-name", "vandal", "--version", "1.0", "--handler", folder / "vandal.so", "--config-file",
             folder / "vandal.yaml", "--export-path", s.store, transcript=transcript)
    s.models.append("vandal=vandal.mar")
    return s.start()


def test_a_handler_that_destroys_the_shared_memory_harms_nobody_else(vandal):
    client = vandal.client()
    for number in range(1, 41):
        answer = client.post("/predictions/vandal", b"x" * 100_000)
        # Its own bytes may be damaged, but not their number; and its worker may be replaced.
        assert answer.status == 200 or answer.status >= 500, answer
        if answer.status == 200:
            assert len(answer.body) == 300_000
        assert client.step("counter", "c", "1").text == str(number)
    assert vandal.process.poll() is None
