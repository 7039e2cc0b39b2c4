"""WebSocket streams with several unanswered steps: whatever dies, no step is lost, doubled or reordered, and no answer
is missing (docs/streams.md, decision 0047)."""

import random
import struct

import pytest
import requests

from models import Model, counter
from shared_store import shared_store_in
from waiting import expect, limit
from websocketing import REPLAYED, SUMS_LUA, Stream, binary_step, body_of, read_binary

CREDIT = 8
FLAGS = ["--stream-credit", str(CREDIT)]


class Talker:
    """A client of a running sum that keeps up to CREDIT steps in flight. It remembers what it must: the last answer that
    it saw, and the steps behind it. Step N adds N, so its answer is N * (N + 1) / 2."""

    def __init__(self, server, sequence):
        self.server, self.sequence = server, sequence
        self.last = self.sent = self.generation = 0
        self.stream = Stream(server, "counter", sequence)

    def send(self, count):
        for _ in range(count):
            self.sent += 1
            self.stream.put(type="step", data=self.sent)

    def read(self, count, replayed=None):
        for _ in range(count):
            answer = self.stream.get()
            assert answer["type"] == "answer", answer
            assert (answer["step"], answer["final"]) == (self.last + 1, True)
            assert body_of(answer) == str(answer["step"] * (answer["step"] + 1) // 2), answer
            assert replayed is None or answer.get("replayed", False) is replayed
            self.last = answer["step"]
            self.generation = answer.get("generation", self.generation)

    def resume(self, server=None):
        """Connects again. Reads the answers that were missed, and sends the steps that were not done."""
        self.stream.cut()
        self.stream = Stream(server or self.server, "counter", self.sequence,
                             query={"last": self.last, **({"generation": self.generation} if self.generation else {})})
        hello = self.stream.hello
        assert hello["type"] == "hello", hello
        missed, lost = hello["step"] - self.last, self.sent - hello["step"]
        assert 0 <= missed <= CREDIT and lost >= 0
        self.read(missed, replayed=True)
        self.sent = hello["step"]
        self.send(lost)
        self.read(lost)
        return missed


def committed(server, sequence):
    return requests.get(f"{server.management}/models/counter/sequences/{sequence}", timeout=limit(20)).json().get("step")


@pytest.mark.parametrize("loops", [1, 2])
def test_eight_steps_in_flight_survive_everything(server, loops):
    """All eight are committed and none of their answers is seen. Then the connection, the worker and the server go."""
    running = server(counter(), flags=[*FLAGS, "--loops", str(loops)])
    talker = Talker(running, "a")
    talker.send(5)
    talker.read(5)
    talker.send(CREDIT)
    expect(lambda: committed(running, "a") == 5 + CREDIT, "eight steps without a reader")
    talker.stream.cut()
    running.kill_worker("counter")
    running.kill()
    running.restart()
    assert talker.resume() == CREDIT
    talker.send(3)
    talker.read(3)


def test_a_kill_at_any_moment_loses_nothing(server):
    """The worker or the server dies while eight steps are anywhere between the client and the record, and the client
    has seen some of their answers."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    running = server(counter(), flags=FLAGS)
    talker = Talker(running, "a")
    talker.send(1)
    talker.read(1)
    for _ in range(12):
        talker.send(CREDIT)
        talker.read(dice.randrange(CREDIT))
        for _ in range(dice.randrange(2)):
            running.kill_worker("counter")
        if dice.randrange(2):
            running.kill()
            running.restart()
        talker.resume()
        assert talker.last == talker.sent


def test_the_answers_of_an_ended_sequence_are_kept(server):
    running = server(counter(), flags=FLAGS)
    talker = Talker(running, "a")
    talker.send(1)
    talker.read(1)
    talker.send(3)
    talker.stream.put(type="step", data=5, end=True)
    expect(lambda: running.metric("continuo_stream_steps_total") == 5, "the end")
    expect(lambda: requests.get(f"{running.management}/models/counter/sequences/a", timeout=limit(20)).status_code == 404
           or committed(running, "a") != 4, "the end to be committed")
    talker.stream.cut()
    running.kill()
    running.restart()
    again = Stream(running, "counter", "a", query={"last": 1, "generation": talker.generation})
    answers = [again.get() for _ in range(4)]
    assert [(answer["step"], body_of(answer)) for answer in answers] == [(2, "3"), (3, "6"), (4, "10"), (5, "15")]


def test_a_step_that_was_done_is_recognised_behind_others(server):
    """A client that does not know of its steps may send them again: the same ones get their answers, others do not."""
    running = server(counter(), flags=FLAGS)
    talker = Talker(running, "a")
    talker.send(4)
    talker.read(4)
    with Stream(running, "counter", "a") as again:
        for number in 2, 4, 1:
            answer = again.step(number, step=number)
            assert (answer["step"], body_of(answer), answer["replayed"]) == (number, str(number * (number + 1) // 2), True)
        assert again.step(7, step=3)["error"] == "step_done"
    assert committed(running, "a") == 4


def test_a_smaller_credit_forgets_nothing_that_is_not_seen(server):
    running = server(counter(), flags=FLAGS)
    talker = Talker(running, "a")
    talker.send(CREDIT)
    talker.stream.put(type="credit", credit=1)
    expect(lambda: committed(running, "a") == CREDIT, "eight steps")
    assert talker.resume() == CREDIT
    # A stream with a credit of 1 begins behind steps that a stream with 8 has left, and takes over one by one.
    talker.send(CREDIT)
    expect(lambda: committed(running, "a") == 2 * CREDIT, "eight more steps")
    talker.stream.cut()
    with Stream(running, "counter", "a", query={"last": CREDIT, "credit": 1}) as narrow:
        for number in range(CREDIT + 1, 2 * CREDIT + 1):
            assert narrow.get()["step"] == number
        assert body_of(narrow.step(0)) == str(2 * CREDIT * (2 * CREDIT + 1) // 2)
    messages, closed = Stream(running, "counter", "a", query={"last": CREDIT}, hello=False).closing()
    assert closed.code == 4004 and messages[-1]["error"] == "answer_not_kept"


def test_a_first_stream_that_does_not_wait_keeps_the_answer_before_it(server):
    """The sequence was served over HTTP, so its worker has it in the cache without its answer."""
    running = server(counter(), flags=FLAGS)
    assert requests.post(f"{running.inference}/predictions/counter", data="1", timeout=limit(20), headers={
        "ts-request-sequence-id": "a", "ts-request-sequence-step": "1"}).text == "1"
    with Stream(running, "counter", "a", query={"last": 1}) as stream:
        assert body_of(stream.step(2)) == "3"
    with Stream(running, "counter", "a", query={"last": 0}) as again:
        assert [body_of(again.get()) for _ in range(2)] == ["1", "3"]


def test_answers_that_have_no_room_are_named(server):
    """Earlier answers have as much room as one answer (state.answerKeepBytes). The newest ones are kept."""
    running = server(Model("large", """
return { api = 1, init = function() return { n = 0 } end, step = function(state, req)
    state.n = state.n + 1
    return ("x"):rep(1000)
end }""", {"state": {"answerKeepBytes": 2500}}), flags=FLAGS)
    with Stream(running, "large", "a") as stream:
        for number in range(6):
            stream.step(number)
    with Stream(running, "large", "a", query={"last": 3}) as again:
        assert [again.get()["step"] for _ in range(3)] == [4, 5, 6]
    messages, closed = Stream(running, "large", "a", query={"last": 2}, hello=False).closing()
    assert closed.code == 4004
    assert (messages[-1]["error"], messages[-1]["step"], messages[-1]["expected_step"]) == ("answer_not_kept", 3, 7)


def test_typed_binary_streams_resume(server):
    """The answers come again as tensors."""
    yaml = ("minWorkers: 1\nmaxWorkers: 1\nbatchSize: 4\nsequenceBatching: true\n"
            "inputs: [{name: x, datatype: FP32, shape: [1]}]\noutputs: [{name: sum, datatype: FP32, shape: [1]}]\n")
    running = server(Model("sums", SUMS_LUA, yaml), flags=FLAGS)
    stream = Stream(running, "sums", "a", form="binary")

    def send(number):
        stream.send(binary_step(tensors=[("x", "FP32", [1], struct.pack("<f", number))]))

    for number in 1, 2, 3, 4:
        send(number)
    flags, _, step, outputs = read_binary(stream.get())
    assert (flags & REPLAYED, step, outputs["sum"]) == (0, 1, ("FP32", [1], struct.pack("<f", 1)))
    expect(lambda: requests.get(f"{running.management}/models/sums/sequences/a", timeout=limit(20)).json()["step"] == 4,
           "four steps")
    stream.cut()
    running.kill()
    running.restart()
    stream = Stream(running, "sums", "a", form="binary", query={"last": 1})
    assert (stream.hello["step"], stream.hello["next"]) == (4, 5)
    for number, total in (2, 3), (3, 6), (4, 10):
        flags, _, step, outputs = read_binary(stream.get())
        assert flags & REPLAYED and (step, outputs["sum"]) == (number, ("FP32", [1], struct.pack("<f", total)))
    send(5)
    assert read_binary(stream.get())[3]["sum"][2] == struct.pack("<f", 15)


def test_another_node_of_a_shared_store_resumes(server, folder, transcript):
    """The client goes from node to node with eight steps in flight; each node is killed in turn."""
    with shared_store_in(folder, transcript) as store:
        nodes = [server(counter(batchSize=8, state={"storeTimeoutMSec": 5000}),
                        flags=["--state-store", store.url, *FLAGS], name=name) for name in ("one", "two")]
        talker = Talker(nodes[0], "a")
        talker.send(2)
        talker.read(2)
        talker.send(CREDIT)
        expect(lambda: committed(nodes[0], "a") == 2 + CREDIT, "eight steps on the first node")
        nodes[0].kill()
        assert talker.resume(nodes[1]) == CREDIT
        nodes[0].restart()
        for number in range(6):
            talker.send(CREDIT)
            talker.read(number)
            if number % 2:
                nodes[number // 2 % 2].kill_worker("counter")
            talker.resume(nodes[number % 2])
            assert talker.last == talker.sent
