"""Eight threads send random sequences, correct and wrong ones, under both strategies. Every value is checked.

CONTINUO_STRESS_SECONDS makes the run longer, CONTINUO_STRESS_SEED repeats a run, and -s shows what was done."""

import collections
import http.client
import json
import os
import random
import threading
import time

import pytest

from recorder import CONTROLS, Sender, document, recorder
from v2rpc import Stream, channel_of, request
from waiting import FACTOR, expect

SECONDS = float(os.environ.get("CONTINUO_STRESS_SECONDS", "4"))
SEED = int(os.environ.get("CONTINUO_STRESS_SEED", random.SystemRandom().randrange(2**32)))
THREADS = 8
NO_START = "must specify the START flag on the first request of the sequence"
OUT_OF_TIME = "timeout of the corresponding sequence has been expired"
IDLE_S = 4 * FACTOR


class Actor:
    """One client: it has one sequence at a time, and knows what each step must answer."""

    def __init__(self, server, number, seed):
        self._server = server
        self._sender = Sender(server)
        self._channel = channel_of(server)
        self._stream = None
        self._random = random.Random(f"{seed}/{number}")
        self._number = number
        self._count = 0
        self.did = collections.Counter()
        self.errors = collections.Counter()

    def new_id(self):
        self._count += 1
        number = self._number * 1_000_000 + self._count
        return number if self._random.random() < 0.5 else f"s-{number}"

    def value(self):
        return self._random.randrange(-1000, 600)

    def ask(self, *args, **more):
        self.did["requests"] += 1
        return self._sender.ask(*args, **more)

    def step(self, sequence, total, **more):
        value = self.value()
        reply = self.ask(value, sequence, **more)
        assert (reply.status, reply.total) == (200, total + value), f"{sequence} {more} {reply}"
        says = reply.says
        assert says["START"].split(":")[1] == str(int(more.get("start", False))), reply
        assert says["END"].split(":")[1] == str(int(more.get("end", False))), reply
        return total + value

    def refused(self, words, *args, status=400, **more):
        reply = self.ask(*args, **more)
        assert reply.status == status and words in reply.error, reply
        self.errors[words] += 1

    def steps(self, sequence, total, most=5):
        for _ in range(self._random.randrange(most)):
            total = self.step(sequence, total)
        return total

    # --- kinds of sequences

    def whole(self):
        sequence = self.new_id()
        total = self.steps(sequence, self.step(sequence, 0, start=True))
        self.step(sequence, total, end=True)
        return sequence

    def one_step(self):
        self.step(self.new_id(), 0, start=True, end=True)

    def id_again(self):
        """Begins a sequence under the id of one that has just ended."""
        sequence = self.whole()
        total = self.steps(sequence, self.step(sequence, 0, start=True))
        self.step(sequence, total, end=True)

    def start_again(self):
        """Sends START on a live id, without an END before it."""
        sequence = self.new_id()
        self.steps(sequence, self.step(sequence, 0, start=True))
        total = self.steps(sequence, self.step(sequence, 0, start=True))
        self.step(sequence, total, end=True)

    def no_start(self):
        self.refused(NO_START, 1, self.new_id(), end=self._random.random() < 0.5)

    def after_the_end(self):
        self.refused(NO_START, 1, self.whole())

    def no_id(self):
        self.refused("must specify a non-zero or non-empty correlation ID", 1, self._random.choice([0, "", None]))

    def failing_step(self):
        """A step that the handler refuses changes nothing."""
        sequence = self.new_id()
        total = self.steps(sequence, self.step(sequence, 0, start=True))
        self.refused("no such number", 666, sequence)
        total = self.steps(sequence, total)
        self.step(sequence, total, end=True)

    def wrong_shape(self):
        sequence = self.new_id()
        total = self.step(sequence, 0, start=True)
        self.refused("unexpected shape", [1], sequence, batched=False)
        self.step(sequence, total, end=True)

    def impatient(self):
        """A START whose time runs out in the backlog opens no sequence. Once it has a slot, the time has no effect."""
        sequence = self.new_id()
        value = self.value()
        reply = self.ask(value, sequence, start=True, timeout=self._random.randrange(1000, 30_000))
        if reply.status == 503:
            assert reply.error == OUT_OF_TIME, reply
            self.errors[OUT_OF_TIME] += 1
            self.refused(NO_START, 1, sequence)
            return
        assert (reply.status, reply.total) == (200, value), reply
        self.step(sequence, self.steps(sequence, value), end=True)

    def vanishing(self):
        """The client goes away before the answer: the step was done once, or not at all."""
        sequence = self.new_id()
        total = self.steps(sequence, self.step(sequence, 0, start=True))
        value = self.value()
        connection = http.client.HTTPConnection(self._server.inference.removeprefix("http://"))
        connection.request("POST", "/v2/models/recorder/infer", json.dumps(document(value, sequence)))
        connection.close()
        self.did["requests"] += 1
        reply = self.ask(0, sequence, end=True)
        assert reply.status == 200 and reply.total in (total, total + value), f"{sequence} {total} {value} {reply}"
        self.did["vanished, done"] += reply.total == total + value

    def streamed(self):
        """Sends all steps at once on a gRPC stream. None is refused because another one runs, and all run in order."""
        sequence = self.new_id()
        length = self._random.randrange(2, 12)
        starts = {0} | ({self._random.randrange(1, length)} if self._random.random() < 0.3 else set())
        values = [self.value() for _ in range(length)]
        late = self._random.random() < 0.3
        if self._stream is None:
            self._stream = Stream(self._channel, timeout=SECONDS + 300)
        for n in range(length + late):
            raw = (values[n] if n < length else 1).to_bytes(4, "little", signed=True)
            self._stream.send(request("recorder", [("INPUT", "INT32", [1, 1])], [raw], sequence_id=sequence,
                                      sequence_start=n in starts, sequence_end=n == length - 1))
        self.did["requests"] += length + late
        total = 0
        for n in range(length):
            total = values[n] + (0 if n in starts else total)
            answer = self._stream.next()
            assert answer.error_message == "", f"{sequence} {n} {starts} {answer}"
            at = [output.name for output in answer.infer_response.outputs].index("OUTPUT")
            got = int.from_bytes(answer.infer_response.raw_output_contents[at], "little", signed=True)
            assert got == total, f"{sequence} step {n} of {values}, START at {starts}: {got}"
        if late:
            assert NO_START in self._stream.next().error_message
            self.errors[NO_START] += 1

    def abandoned(self):
        """Never sends END. The slot becomes free when the sequence has been idle for too long."""
        sequence = self.new_id()
        self.steps(sequence, self.step(sequence, 0, start=True))

    def run(self, until):
        kinds = [(self.whole, 10), (self.one_step, 6), (self.id_again, 4), (self.start_again, 6), (self.no_start, 4),
                 (self.after_the_end, 4), (self.no_id, 2), (self.failing_step, 6), (self.wrong_shape, 2),
                 (self.impatient, 4), (self.vanishing, 4), (self.streamed, 10), (self.abandoned, 0.1)]
        while time.monotonic() < until:
            kind = self._random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            self.did[kind.__name__] += 1
            kind()
        if self._stream:
            self._stream.half_close()
        self._channel.close()


@pytest.mark.load
@pytest.mark.parametrize("strategy", ["direct: {}", "oldest: {max_candidate_sequences: 3}",
                                      "oldest: {max_candidate_sequences: 4, preferred_batch_size: [2], "
                                      "max_queue_delay_microseconds: 2000}"])
def test_sequences_of_all_kinds(server, strategy):
    """Eight clients share few slots, and the worker dies now and then."""
    batching = (f"sequence_batching:\n  max_sequence_idle_microseconds: {int(IDLE_S * 1e6)}\n{CONTROLS}"
                f"  {strategy}\n")
    s = server(recorder(batching=batching), clock=True)
    until = time.monotonic() + SECONDS
    actors = [Actor(s, n, SEED) for n in range(1, THREADS + 1)]
    failures = []
    deaths = 0

    def act(actor):
        try:
            actor.run(until)
        except BaseException as e:  # pylint: disable=broad-except
            failures.append(e)

    threads = [threading.Thread(target=act, args=(actor,)) for actor in actors]
    for thread in threads:
        thread.start()
    while time.monotonic() + 1.5 < until and not failures:
        time.sleep(1.5)  # deaths need no exact moment
        s.kill_worker("recorder")
        deaths += 1
    for thread in threads:
        thread.join()
    did = sum((actor.did for actor in actors), collections.Counter())
    errors = sum((actor.errors for actor in actors), collections.Counter())
    print(f"\n{strategy} seed={SEED} seconds={SECONDS:g} deaths={deaths} did={dict(did)} refused={dict(errors)}")
    assert not failures, f"CONTINUO_STRESS_SEED={SEED}: {failures[0]}"
    assert did["requests"] > THREADS
    s.clock.advance(int(IDLE_S * 1000))  # abandoned sequences that are still live end now
    expect(lambda: s.describe("recorder")["liveSequences"] == 0, "all sequences have ended")
    assert s.outstanding("recorder") == 0
