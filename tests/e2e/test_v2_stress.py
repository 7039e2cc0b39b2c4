"""Random sequences, right and wrong ones, from 8 threads against both strategies: every value exact.

CONTINUO_STRESS_SECONDS makes it long, CONTINUO_STRESS_SEED repeats a run."""

import os
import random
import threading
import time

import pytest

from recorder import CONTROLS, Sender, recorder
from waiting import FACTOR, expect

SECONDS = float(os.environ.get("CONTINUO_STRESS_SECONDS", "4"))
SEED = int(os.environ.get("CONTINUO_STRESS_SEED", random.SystemRandom().randrange(2**32)))
THREADS = 8
IDLE_S = 4 * FACTOR


class Actor:
    """One client: it has one sequence at a time, and knows what each step must answer."""

    def __init__(self, sender, number, seed):
        self._sender = sender
        self._random = random.Random(f"{seed}/{number}")
        self._number = number
        self._count = 0
        self.kinds = {}

    def new_id(self):
        self._count += 1
        number = self._number * 1_000_000 + self._count
        return number if self._random.random() < 0.5 else f"s-{number}"

    def value(self):
        return self._random.randrange(-1000, 600)

    def step(self, sequence, total, **more):
        value = self.value()
        reply = self._sender.ask(value, sequence, **more)
        assert (reply.status, reply.total) == (200, total + value), f"{sequence} {more} {reply}"
        says = reply.says
        assert says["START"].split(":")[1] == str(int(more.get("start", False))), reply
        assert says["END"].split(":")[1] == str(int(more.get("end", False))), reply
        return total + value

    def refused(self, words, *args, status=400, **more):
        reply = self._sender.ask(*args, **more)
        assert reply.status == status and words in reply.error, reply

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
        """Anew under the id of one that has just ended."""
        sequence = self.whole()
        total = self.steps(sequence, self.step(sequence, 0, start=True))
        self.step(sequence, total, end=True)

    def start_again(self):
        """START on the live id, without END."""
        sequence = self.new_id()
        self.steps(sequence, self.step(sequence, 0, start=True))
        total = self.steps(sequence, self.step(sequence, 0, start=True))
        self.step(sequence, total, end=True)

    def no_start(self):
        self.refused("must specify the START flag on the first request of the sequence", 1, self.new_id(),
                     end=self._random.random() < 0.5)

    def after_the_end(self):
        self.refused("must specify the START flag", 1, self.whole())

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

    def abandoned(self):
        """No END: its slot is free once it was idle for too long."""
        sequence = self.new_id()
        self.steps(sequence, self.step(sequence, 0, start=True))

    def run(self, until):
        kinds = [(self.whole, 10), (self.one_step, 6), (self.id_again, 4), (self.start_again, 6), (self.no_start, 4),
                 (self.after_the_end, 4), (self.no_id, 2), (self.failing_step, 6), (self.wrong_shape, 2),
                 (self.abandoned, 0.1)]
        while time.monotonic() < until:
            kind = self._random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            self.kinds[kind.__name__] = self.kinds.get(kind.__name__, 0) + 1
            kind()


@pytest.mark.load
@pytest.mark.parametrize("strategy", ["direct: {}", "oldest: {max_candidate_sequences: 3}",
                                      "oldest: {max_candidate_sequences: 4, preferred_batch_size: [2], "
                                      "max_queue_delay_microseconds: 2000}"])
def test_sequences_of_all_kinds(server, strategy):
    """Eight clients share few slots, and the worker dies now and then."""
    batching = (f"sequence_batching:\n  max_sequence_idle_microseconds: {int(IDLE_S * 1e6)}\n{CONTROLS}"
                f"  {strategy}\n")
    s = server(recorder(batching=batching))
    until = time.monotonic() + SECONDS
    actors = [Actor(Sender(s), n, SEED) for n in range(1, THREADS + 1)]
    failures = []

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
    for thread in threads:
        thread.join()
    assert not failures, f"CONTINUO_STRESS_SEED={SEED}: {failures[0]}"
    assert sum(sum(actor.kinds.values()) for actor in actors) > THREADS
    expect(lambda: s.describe("recorder")["liveSequences"] == 0, "all sequences have ended", timeout=2 * IDLE_S + 5)
    assert s.outstanding("recorder") == 0
