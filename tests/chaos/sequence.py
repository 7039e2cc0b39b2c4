"""A client with one sequence, which makes one step after the other and checks every answer.

It knows what each answer must be. When a step got no answer or was refused, the client finds out what became of it, and
then continues. Every other surprise counts as a broken promise. There are three kinds of clients: "ask" closes its
connection and asks before it sends the step again; "keys" and "numbers" send the step again as it was, and sometimes a
copy of an earlier step."""

import asyncio
import time
from collections import deque

from link import Broken, Hung, Step, Unsent
from waiting import limit

STALL_S = limit(60)  # for one step with all its retries, whatever faults happen
# These refusals are documented, and each says that the client may try again.
DOCUMENTED = {"queue_full", "too_many_sequences", "no_worker", "model_loading", "draining", "unavailable",
              "timeout", "deadline", "worker_died", "state_store", "out_of_memory"}
# After these the step may have been done: its worker died after the commit, or was late.
MAYBE_DONE = {"deadline", "worker_died", "broken", "hung", "dropped whole"}
NEVER_DONE = {"dropped part"}  # an incomplete request must not run
END_CHANCE = 1 / 400
DROP_CHANCE = 1 / 50  # how often a client drops its connection by itself, besides the faults that do it
COPY_CHANCE = 1 / 30  # how often a client with keys or numbers sends a late copy of a step
COPIES_OF = 3  # of this many last steps; fewer than sequence.keyWindow
IS_DONE = {"key_superseded", "step_done"}
STREAM_CHANCE = 1 / 20
STEPS_BEFORE_END = 50
NOTHING = (0, 0, 0)
ENDED = "ended"


def after(state, number):
    total, steps, order = state
    return total + number, steps + 1, (order * 31 + number) % 2147483647


class Stalled(Exception):
    pass


class Sequence:
    documented = DOCUMENTED
    maybe_done = MAYBE_DONE

    def __init__(self, index, run, link, chance):
        self._run = run
        self.clients = run.clients
        self._tally = run.tally
        self._chance = chance
        self._index = index
        self._generation = 0
        self._link = link
        self._recent = deque(maxlen=12)  # what it sent and received, for a report
        self.state = NOTHING
        self.drop_next = None  # set by a fault: "part" or "whole"
        self._new()

    def _new(self):
        self._generation += 1
        self.id = f"c{self._index}-{self._generation}"
        self.state = NOTHING
        self._done = deque(maxlen=COPIES_OF)  # (step, the state after it)

    # --- one request

    def _request(self, body, end=False):
        """Returns a step in the form in which this kind of client sends it, also when it sends it again."""
        key = f"{self.id}-{self.state[1] + 1}" if self.clients == "keys" else None
        return Step(self.id, body, end, key, self.state[1] + 1 if self.clients == "numbers" else None)

    async def _ask(self, request, expected=()):
        """Returns (the state in the answer, None), or (None, the reason why there is none)."""
        body, end = request.body, request.end
        began = time.monotonic()
        try:
            reply = await self._link.ask(request)
        except Unsent:
            self._tally.unreachable += 1
            return None, "unsent"
        except Broken as e:
            return None, self._error("broken", body + " end" * end, e)
        except Hung as e:
            self._tally.hung += 1
            self._accuse("hung", f"{body} {e}")
            return None, self._error("hung", body, e)
        self._tally.heard((time.monotonic() - began) * 1000)
        if reply.status == 200:
            self._recent.append(f"{body}{' end' if end else ''} -> {reply.text}")
            return tuple(map(int, reply.text.lstrip(".").split())), None
        return None, self._error(reply.reason, body + " end" * end, " ".join(reply.text.split()), expected)

    def _error(self, reason, body, text, expected=()):
        self._recent.append(f"{body} -> {reason}: {text}")
        self._tally.errors[reason] += 1
        if reason == "sequence_ended":
            return ENDED
        if reason not in self.documented | self.maybe_done | NEVER_DONE and reason not in expected:
            self._tally.unexpected += 1
            self._accuse("unexpected", f"{body} -> {reason}: {text}")
        return reason

    def _accuse(self, what, text):
        self._run.accuse(what, f"{self.id}, at {self.state}: {text}; before: {' | '.join(self._recent)}")

    async def _pause(self, deadline):
        if time.monotonic() > deadline:
            raise Stalled
        await asyncio.sleep(self._chance.uniform(0.02, 0.1))

    async def _told(self, deadline):
        """Asks the server for the state of the sequence, until it answers."""
        while True:
            state, reason = await self._ask(Step(self.id, "?"))
            if reason is None or reason == ENDED:
                return state or ENDED
            await self._pause(deadline)

    async def _end_again(self, deadline):
        """Ends the sequence that the question about an END has opened. Nobody would continue it, and a version whose
        sequences must move would wait for it."""
        while (await self._ask(Step(self.id, "?", True)))[1] not in (None, ENDED):
            await self._pause(deadline)

    # --- one step, until it is known to be done

    async def step(self):
        number = self._chance.randint(1, 999)
        end = self.state[1] >= STEPS_BEFORE_END and self._chance.random() < END_CHANCE
        deadline = time.monotonic() + STALL_S
        sign = "~" if self._chance.random() < STREAM_CHANCE else "+"
        request, done = self._request(f"{sign}{number}", end), after(self.state, number)
        if self._chance.random() < DROP_CHANCE:
            self.drop_next = self._chance.choice(("part", "whole"))
        maybe_done = False
        while True:
            if self.drop_next:
                state, reason = None, await self._drop(request)
            else:
                state, reason = await self._ask(request)
            if reason is None:
                self._judge(state, done, number)
                self._done.append((request, done))
                break
            if reason == ENDED and end and maybe_done:
                break  # only the answer to the END was lost
            if reason != "unsent":
                if reason in self.maybe_done:
                    maybe_done = True
                if self.clients == "ask" or reason == ENDED:
                    # A connection without an answer is closed, so that no copy of the step can come after the
                    # question.
                    state = await self._told(deadline)
                    if self._settle(state, done, end, reason):
                        if end and state == NOTHING:
                            await self._end_again(deadline)
                        break
                    # A step that was not done by then is never done.
                    maybe_done = False
            await self._pause(deadline)
        self._tally.steps[self._link.kind] += 1
        if end:
            self._tally.ended += 1
            self._new()
        elif self.clients != "ask" and self._done and self._chance.random() < COPY_CHANCE:
            await self._send_copy()

    async def _send_copy(self):
        """Sends a copy of a finished step, as a slow connection would deliver it. The answer must be that it was done,
        and nothing may change."""
        request, led_to = self._chance.choice(self._done)
        state, reason = await self._ask(request, IS_DONE)
        self._tally.copies += 1
        if reason is None and not (request is self._done[-1][0] and state == led_to):
            self._copy_was_done(request, state)

    def _copy_was_done(self, request, state):
        self._tally.doubled += 1
        self._accuse("a copy was done", f"{request} gave {state}")

    def _judge(self, state, done, number):
        """Checks the answer to a step: it must be the next value."""
        if state != done:
            missing = done[1] - state[1]
            if missing > 0:
                self._tally.lost += missing
            elif missing < 0:
                self._tally.doubled -= missing
            else:
                self._tally.reordered += 1
            self._accuse("wrong answer", f"+{number} must give {done}, gave {state}")
        self.state = state

    def _settle(self, state, done, end, reason):
        """Finds out whether a step without an answer was done. Counts contradictions."""
        # After its END an id may be used again, so asking about an ended sequence has opened it anew.
        was_done = state in (ENDED, NOTHING) if end else state == done
        if was_done and reason in self.maybe_done:
            self._tally.done_unanswered += 1
            self.state = done
            return True
        if was_done:
            self._tally.doubled += 1  # the client was told that it may send the step again
            self._accuse("done though refused", f"the step was refused with {reason}")
            self.state = done
            return True
        if state == ENDED:
            self._tally.lost += 1
            self._accuse("ended by nobody", f"after {reason}")
            self._new()
        elif state != self.state:
            self._judge(state, self.state, 0)
        else:
            self._tally.not_done += 1
        return False

    async def _drop(self, request):
        mode, self.drop_next = self.drop_next, None
        whole = mode == "whole" or not self._link.parts
        try:
            await self._link.drop(request, 1 if whole else self._chance.random(),
                                  self._chance.choice((0, 0, 0, 0.001, 0.02)))
        except Unsent:
            return "unsent"
        return self._error("dropped whole" if whole else "dropped part", request.body + " end" * request.end,
                           "by the test")

    # --- all of them

    async def live(self):
        while not self._run.over:
            try:
                await self.step()
            except Stalled:
                self._tally.hung += 1
                self._accuse("stalled", f"no step within {STALL_S:g} s")
                return

    async def check(self):
        """At the end the server's state of the sequence must be the one that the client expects."""
        try:
            state = await self._told(time.monotonic() + STALL_S)
        except Stalled:
            self._tally.hung += 1
            self._accuse("stalled", "at the last look")
            return
        if state == ENDED:
            self._tally.lost += self.state[1]
            self._accuse("ended by nobody", "at the last look")
        elif state != self.state:
            self._judge(state, self.state, 0)
        self._link.close()
