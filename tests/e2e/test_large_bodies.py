"""Large tensors are sent from where they lie. Each answer belongs to its own request, whatever its size, even if
workers die while they read or write it."""

import threading

import numpy as np
import pytest

from models import BUILD
from resident import resident_bytes
from test_v2_clients import start  # noqa: F401 (a fixture)
from v2clients import client_of_kind
from waiting import expect

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
