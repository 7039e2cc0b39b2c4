"""What the Python client (clients/python) makes of a server's messages, without a server: its rules do no input and no
output themselves, so a script can stand for the network."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"))

from continuo_client import _steps, _streams, errors  # noqa: E402

HELLO = {"type": "hello", "generation": 0, "step": 0, "next": 1, "credit": 4}
NO_WORKER = {"type": "error", "status": 503, "error": "no_worker", "message": "no worker runs"}


def answer(step, data, final=True):
    return {"type": "answer", "step": step, "final": final, "data": data}


def error(word, status, **members):
    return {"type": "error", "status": status, "error": word, "message": word, **members}


class Network:
    """Plays a script of messages. An exception in it is what the client gets in place of a message. It notes the
    addresses that were connected to, and the steps that were sent."""

    def __init__(self, *script):
        self.script, self.connected, self.sent = list(script), [], []
        self.puts, self.broken_puts = 0, []  # which of the messages that the client sends find the connection broken

    def act(self, todo):
        if isinstance(todo, _streams.Connect):
            self.connected.append(todo.url)
        elif isinstance(todo, _streams.Put):
            self.puts += 1
            if self.puts in self.broken_puts:
                raise _steps.Broken("", 1012)
            self.sent.append(json.loads(todo.message)["step"])
        elif isinstance(todo, _streams.Get):
            assert self.script, "the client waits for a message that will never come"
            message = self.script.pop(0)
            if isinstance(message, Exception):
                raise message
            return json.dumps(message)
        return None

    def drive(self, call):
        """Runs a generator of the client, as continuo_client.client does."""
        try:
            todo = next(call)
            while True:
                try:
                    result = self.act(todo)
                except _steps.Broken as broken:
                    todo = call.throw(broken)
                else:
                    todo = call.send(result)
        except StopIteration as stop:
            return stop.value

    def steps(self, stream, *values, timeout=20.0):
        return [each.data for each in self.drive(stream.steps([_streams.sent(value) for value in values], timeout))]


def new_stream():
    site = _steps.Site("http://127.0.0.1:8080", None, 20.0)
    return _streams.StreamSteps(site, "counter", None, "a", False)


def test_a_step_survives_a_server_that_cannot_resume_the_stream_yet():
    """The connection breaks, and the next one is told to come later. The step is sent again then, and not dropped."""
    network, stream = Network(HELLO, _steps.Broken("", 1006), NO_WORKER, HELLO, answer(1, "4")), new_stream()
    assert network.steps(stream, 4) == ["4"]
    assert network.sent == [1, 1] and len(network.connected) == 3


def test_a_step_stays_undecided_if_the_stream_cannot_be_resumed_in_time():
    network, stream = Network(HELLO, _steps.Broken("", 1006), *[NO_WORKER] * 5), new_stream()
    with pytest.raises(errors.NoWorkerError):
        network.steps(stream, 4, timeout=0.05)
    assert [each.value for each in stream.unanswered] == [4]


def test_pieces_of_a_failed_step_are_not_in_the_next_answer():
    network = Network(HELLO, answer(1, "half", final=False), error("handler_failed", 500, step=1), answer(1, "whole"))
    stream = new_stream()
    with pytest.raises(errors.HandlerFailedError):
        network.steps(stream, 4)
    assert network.drive(stream.steps([_streams.sent(4)], 20.0))[0].pieces == ("whole",)


def test_a_failure_without_sequences_does_not_wait_for_the_others_to_fail():
    """A model without sequences answers the steps behind a failed one."""
    network = Network(HELLO, error("handler_failed", 500, step=1), answer(2, "b"), answer(3, "c"))
    stream = new_stream()
    with pytest.raises(errors.HandlerFailedError):
        network.steps(stream, "a", "b", "c")
    assert not network.script and not stream.unanswered


def test_a_message_that_is_refused_leaves_no_error_for_the_next_step():
    """An error without a number answers a message that is not valid, here NaN. The step behind it is refused, too."""
    network = Network(HELLO, answer(1, "1"), error("bad_request", 400),
                      error("step_mismatch", 409, step=3, expected_step=2), answer(2, "6"))
    stream = new_stream()
    with pytest.raises(errors.BadRequestError):
        network.steps(stream, 1, float("nan"), 3)
    assert network.steps(stream, 5) == ["6"]


def test_a_stream_that_breaks_while_a_refused_step_goes_again_is_opened_again():
    """The server refuses a step for now, and then closes the stream. The client notices that when it sends again."""
    network, stream = Network(HELLO, NO_WORKER, HELLO, answer(1, "4")), new_stream()
    network.broken_puts = [2]
    assert network.steps(stream, 4) == ["4"]
    assert network.sent == [1, 1] and len(network.connected) == 2


def test_a_step_that_was_refused_until_the_timeout_is_sent_again_by_retry():
    network, stream = Network(HELLO, NO_WORKER, answer(1, "4")), new_stream()
    with pytest.raises(errors.NoWorkerError):
        network.steps(stream, 4, timeout=0.01)
    assert [each.data for each in network.drive(stream.retry(20.0))] == ["4"]
    assert network.sent == [1, 1] and len(network.connected) == 1


def refused(word):
    """A step over HTTP that is refused until its time is over."""
    reply = _steps.Reply(503, {"continuo-error": word}, b"{}")
    sequence = _steps.SequenceSteps(_steps.Site("http://127.0.0.1:8080", None, 20.0), "counter", None, "a", {}, True)
    call = sequence.step(4, False, False, 0.01)
    todo = next(call)
    with pytest.raises(errors.ContinuoError) as caught:
        while True:
            todo = call.send(reply if isinstance(todo, _steps.Send) else None)
    assert caught.value.word == word
    return sequence


def test_a_step_that_may_have_been_saved_can_be_retried():
    """503 store_unreachable does not say whether the step is done, so no further step may take its place."""
    with pytest.raises(RuntimeError, match="retry"):
        next(refused("store_unreachable").step(5, False, False, 1.0))
    with pytest.raises(RuntimeError, match="nothing"):
        next(refused("no_worker").retry(1.0))
