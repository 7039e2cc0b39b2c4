"""SIGTERM under load: clients that reconnect and retry as the headers say see no failed request."""

import http.client
import socket
import threading
import time

from models import counter
from ports import fixed_addresses
from server import SLOW_BUILD
from waiting import expect, limit

CLIENTS = 8 if SLOW_BUILD else 24
DRAINS = 2 if SLOW_BUILD else 4
DRAIN_TIMEOUT_S = 10
REFUSED_PAUSE_S = 0.02  # no server listens: nothing told the client how long to wait


class Caller:
    """A client with one sequence. It makes one step at a time, each with its own key, which its retries repeat."""

    def __init__(self, client, sequence):
        self._client = client
        self._sequence = sequence
        self.steps = self.retries = 0
        self.failed = None
        self.stopping = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            while not self.stopping:
                self._step()
        except Exception as e:
            self.failed = f"{self._sequence}, step {self.steps + 1}: {type(e).__name__}: {e}"
        finally:
            self._client.close()

    def _step(self):
        deadline = time.monotonic() + limit(30)
        while True:
            try:
                answer = self._client.step("counter", self._sequence, 1,
                                           headers={"Idempotency-Key": f"{self._sequence}-{self.steps}"})
            except (OSError, http.client.HTTPException) as e:
                pause = REFUSED_PAUSE_S if isinstance(e, ConnectionRefusedError) else 0
            else:
                if answer.status == 200:
                    assert answer.text == str(self.steps + 1), answer
                    self.steps += 1
                    return
                assert answer.status == 503 and "Retry-After" in answer.headers, answer
                pause = int(answer.headers["Retry-After"])
            assert time.monotonic() < deadline, "no answer in spite of all retries"
            self.retries += 1
            time.sleep(pause)


def all_go_on(callers):
    seen = [caller.steps for caller in callers]
    expect(lambda: all(caller.failed or caller.steps > before + 5
                       for caller, before in zip(callers, seen, strict=True)), "every client goes on", 30)
    assert not [caller.failed for caller in callers if caller.failed]


def test_no_request_fails_while_servers_follow_each_other(server):
    """Each server drains under load and ends in time. The next one takes its place and continues its sequences."""
    s = server(counter(minWorkers=2, maxWorkers=2, batchSize=8),
               flags=["--drain-timeout", DRAIN_TIMEOUT_S * 1000, *fixed_addresses("inference")])
    callers = [Caller(s.client(f"c{i}"), f"s{i}") for i in range(CLIENTS)]
    try:
        for _ in range(DRAINS):
            all_go_on(callers)
            retries = sum(caller.retries for caller in callers)
            began = time.monotonic()
            s.stop()
            took = time.monotonic() - began
            s.transcript.log("test", f"drained in {took * 1000:.0f} ms")
            assert took < limit(DRAIN_TIMEOUT_S)
            s.restart()
            all_go_on(callers)
            assert sum(caller.retries for caller in callers) > retries, "the drain met clients"
    finally:
        for caller in callers:
            caller.stopping = True
        for caller in callers:
            caller.thread.join(limit(60))
    assert not [caller.failed for caller in callers if caller.failed]
    last = s.client("last")
    for i, caller in enumerate(callers):
        assert last.step("counter", f"s{i}", 1).text == str(caller.steps + 1), "no step was lost or done twice"


def ask_unix(path):
    """Makes a step over a Unix socket. Returns the body of the answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(limit(20))
        client.connect(str(path))
        client.sendall(b"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
                       b"Content-Length: 1\r\n\r\n5")
        answer = b""
        while got := client.recv(65536):
            answer += got
    return answer.partition(b"\r\n\r\n")[2]


def test_a_unix_socket_belongs_to_the_next_server(server, folder):
    """A server that still drains has closed its socket, so the next one may listen there. The end of the first one must
    not remove the file of the second one."""
    path = folder / "inference.sock"
    flags = ["--inference-address", f"unix:{path}"]
    first, answers = server(counter(), flags=flags), []
    with first.hold():
        asker = threading.Thread(target=lambda: answers.append(ask_unix(path)))
        asker.start()
        first.expect_outstanding("counter", 1)
        first.terminate()
        expect(lambda: not path.exists(), "the first server listens no more")
        server(counter(), flags=flags)
        assert ask_unix(path) == b"5"
    asker.join()
    assert answers == [b"5"]
    first.stop()
    assert ask_unix(path) == b"5"
