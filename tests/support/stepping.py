"""Clients that step a sequence without pause and repeat what has failed, as the documentation says."""

import http.client
import queue
import threading
import time

import grpc

from rpc import Rpc, request, word
from waiting import expect, limit

REFUSED_PAUSE_S = 0.02  # no server listens: nothing told the client how long to wait


class Stepper:
    """Makes one step of the model counter at a time. Each step has its own key, which its retries repeat. Subclasses
    say in attempt() how a step is sent; it returns the answer's text, or None after a failure that a retry may heal."""

    def __init__(self, sequence):
        self.sequence = sequence
        self.steps = self.retries = 0
        self.failed = None
        self.stopping = False
        self.thread = threading.Thread(target=self._run)

    def start(self):
        self.thread.start()
        return self

    def _run(self):
        try:
            while not self.stopping:
                self._step()
        except Exception as e:
            self.failed = f"{self.sequence}, step {self.steps + 1}: {type(e).__name__}: {e}"
        finally:
            self.close()

    def _step(self):
        deadline = time.monotonic() + limit(30)
        while (text := self.attempt(f"{self.sequence}-{self.steps}")) is None:
            assert time.monotonic() < deadline, "no answer in spite of all retries"
            self.retries += 1
        assert text == str(self.steps + 1), f"{text} after {self.steps} steps"
        self.steps += 1


class HttpStepper(Stepper):
    """Tries its clients in turn: after a lost connection at once, after a 503 when Retry-After is over."""

    def __init__(self, sequence, clients, patient=True):
        super().__init__(sequence)
        self._clients = clients
        self._which = 0
        self._patient = patient

    def attempt(self, key):
        client = self._clients[self._which % len(self._clients)]
        try:
            answer = client.step("counter", None, 1, headers={"Idempotency-Key": key,
                                                              "continuo-sequence-id": self.sequence})
        except (OSError, http.client.HTTPException) as e:
            if not self._patient:
                raise
            self._which += 1
            if isinstance(e, ConnectionRefusedError):
                time.sleep(REFUSED_PAUSE_S)
            return None
        if answer.status == 200:
            return answer.text
        self._which += 1
        if self._patient and answer.status == 502:  # HAProxy says so when a node dies while it answers
            return None
        assert self._patient and answer.status == 503 and "Retry-After" in answer.headers, (answer, answer.headers)
        if len(self._clients) == 1:
            time.sleep(int(answer.headers["Retry-After"]))
        return None

    def close(self):
        for client in self._clients:
            client.close()


class StreamStepper(Stepper):
    """Steps on one gRPC stream. When the stream or a step ends with UNAVAILABLE, it opens a stream at the next target
    and sends the step that was not answered again."""

    def __init__(self, sequence, targets):
        super().__init__(sequence)
        self._targets = targets
        self._which = 0
        self._rpc = self._requests = self._call = None
        self.reopened = 0

    def _open(self):
        self._rpc = Rpc(self._targets[self._which % len(self._targets)])
        self._requests = queue.Queue()
        self._call = self._rpc.inference.StreamPredictions2(
            iter(self._requests.get, None), metadata=(("continuo-sequence-id", self.sequence),), timeout=limit(300))

    def attempt(self, key):
        if self._call is None:
            self._open()
        self._requests.put(request("counter", 1, **{"idempotency-key": key}))
        try:
            answer = next(self._call)
            if not answer.status.code:
                return answer.prediction.decode()
            code, said = answer.status.code, answer.status.message
        except grpc.RpcError as error:
            code, said = error.code().value[0], (error.details(), word(error))
        # HAProxy makes CANCELLED of the status of a stream that the server ends before its client.
        turned = code == grpc.StatusCode.CANCELLED.value[0] and said[1] == "draining"
        # nginx may end a stream before its status has come, of which the client's library makes INTERNAL.
        turned = turned or (code == grpc.StatusCode.INTERNAL.value[0] and "Stream removed" in said[0])
        assert turned or code == grpc.StatusCode.UNAVAILABLE.value[0], (code, said)
        self.close()
        self._which += 1
        self.reopened += 1
        time.sleep(REFUSED_PAUSE_S)
        return None

    def close(self):
        if self._call is None:
            return
        self._requests.put(None)
        self._rpc.close()
        self._call = None


def all_go_on(steppers, more=5):
    """Waits until each client has made more steps. None may have failed."""
    seen = [each.steps for each in steppers]
    expect(lambda: all(each.failed or each.steps >= before + more
                       for each, before in zip(steppers, seen, strict=True)), "every client goes on", 30)
    failed = [each.failed for each in steppers if each.failed]
    assert not failed, failed


def end_all(steppers):
    for each in steppers:
        each.stopping = True
    for each in steppers:
        each.thread.join(limit(60))
    failed = [each.failed for each in steppers if each.failed]
    assert not failed, failed
