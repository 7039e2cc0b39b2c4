"""Details of the sequence batcher: statistics, bounds, timeouts, clients that leave, and gRPC's codes."""

import http.client
import json

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

import v2rpc
from recorder import PATIENT, Sender, document, recorder
from test_v2_sequence_batcher import direct, hooks, oldest, start_error
from test_v2_stats import stats_of
from waiting import expect

CORRID = ("  control_input:\n    - {name: CORRID, control: "
          "[{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_UINT64}]}\n")


# --- statistics ---


def executions(s, model="recorder"):
    """Returns {batch size: calls} and the number of inferences."""
    entry = stats_of(s, model)
    sizes = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in entry["batch_stats"]}
    assert entry["execution_count"] == sum(sizes.values())
    assert entry["inference_stats"]["queue"]["count"] == entry["inference_stats"]["success"]["count"]
    return sizes, entry["inference_count"]


def test_padding_counts_in_batches_and_not_as_inferences(server):
    """With `direct`, two sequences with one and two requests make two batches of two rows, but three inferences."""
    s = server(direct(max_batch_size=2), oldest(name="packed", max_batch_size=2), env=hooks(3))
    for model, expected in [("recorder", ({2: 2}, 3)), ("packed", ({1: 1, 2: 1}, 3))]:
        sender = Sender(s, model)
        for value, sequence in [(1, 1), (10, 2), (20, 2)]:
            sender.send(value, sequence, start=value < 20)
        assert [reply.total for reply in sender.replies()] == [1, 10, 30]
        assert executions(s, model) == expected


def test_refusals_count_as_failed(server):
    """A step without START is refused, and so are steps whose time in the backlog is over."""
    s = server(oldest(max_batch_size=0), clock=True)
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    sender.ask(1, 2)
    sender.send(1, 3, start=True, timeout=1_000_000)
    sender.send(1, 3)
    s.clock.advance(2_000)
    assert [reply.status for reply in sender.replies()] == [503, 503]
    assert stats_of(s, "recorder")["inference_stats"]["fail"]["count"] == 3
    assert executions(s) == ({1: 1}, 1)


# --- batches of the strategy oldest ---


def test_oldest_takes_preferred_batches(server):
    """The batch is the largest one that the waiting sequences can fill, with one row of each."""
    s = server(oldest("{max_candidate_sequences: 6, preferred_batch_size: [2, 3]}", max_batch_size=4), env=hooks(7))
    sender = Sender(s)
    for value, sequence in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (10, 1)]:
        sender.send(value, sequence, start=value < 10)
    replies = sender.replies()
    assert [reply.rows for reply in replies[:6]] == ["1,2,3"] * 3 + ["4,5,6"] * 3
    assert (replies[6].rows, replies[6].total) == ("10", 11)


def test_oldest_waits_for_a_preferred_batch(server):
    """It waits no longer than max_queue_delay_microseconds after its oldest row came."""
    s = server(oldest("{max_candidate_sequences: 4, preferred_batch_size: [2], max_queue_delay_microseconds: 50000000}"),
               clock=True, flags=PATIENT)
    sender = Sender(s)
    calls = [sender.send(1, 1, start=True), sender.send(2, 2, start=True)]
    assert [sender.reply(call).rows for call in calls] == ["1,2", "1,2"]
    late = sender.send(3, 1)
    s.clock.advance(49_000)
    assert s.outstanding("recorder") == 1
    s.clock.advance(2_000)
    assert (sender.reply(late).rows, sender.reply(late).total) == ("3", 4)


def test_oldest_splits_a_batch_by_shape(server):
    """Rows with another shape go into the next batch."""
    s = server(oldest(), env=hooks(4))
    sender = Sender(s)
    for value, width in [(1, 1), (2, 1), (3, 2), (4, 2)]:
        sender.send(value, value, start=True, width=width)
    assert [reply.rows for reply in sender.replies()] == ["1,2", "1,2", "3,4", "3,4"]


def test_priority_changes_nothing_for_sequences(server):
    """Steps run in the order in which they came."""
    s = server(oldest(max_batch_size=1, more="batchSize: 1\n"), env=hooks(0, 2))
    sender = Sender(s)
    for value, priority in [(1, 3), (2, 0), (3, 1)]:
        sender.send(value, value, start=True, end=True, priority=priority)
    assert [(int(reply.says["call"]), reply.total) for reply in sender.replies()] == [(1, 1), (2, 2), (3, 3)]


# --- ids ---


def test_end_does_not_open(server):
    """END without START on an unknown id is refused like any step."""
    sender = Sender(server(oldest()))
    answer = sender.ask(1, 9, end=True)
    assert answer.status == 400 and answer.error.startswith(start_error(9))
    assert sender.ask(1, 9, start=True).total == 1


def test_numbers_texts_and_models_do_not_share_ids(server):
    """42, "42" and 42 of another model are three sequences. A model without CORRID accepts both kinds of ids."""
    s = server(oldest(), oldest(name="other"))
    for model, sequence, value in [("recorder", 42, 1), ("recorder", "42", 10), ("other", 42, 100)]:
        assert Sender(s, model).ask(value, sequence, start=True).total == value
    for model, sequence, value in [("recorder", 42, 1), ("recorder", "42", 10), ("other", 42, 100)]:
        assert Sender(s, model).ask(value, sequence).total == 2 * value


def test_an_id_again_behind_its_end_in_the_backlog(server):
    """The first sequence is done up to its END, then the second one begins."""
    s = server(oldest(max_batch_size=0))
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    for value, start, end in [(10, True, False), (20, False, True), (5, True, False), (6, False, True)]:
        sender.send(value, 2, start=start, end=end)
    assert sender.ask(1, 1, end=True).total == 2
    assert [reply.total for reply in sender.replies()] == [10, 30, 5, 11]


# --- slots ---


def test_waiting_for_a_slot_is_not_being_idle(server):
    """However long the wait was, the sequence then has its whole idle time."""
    s = server(oldest(idle_us=5_000_000, max_batch_size=0), clock=True)
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    waiting = sender.send(10, 2, start=True)
    for n in range(3):
        s.clock.advance(4_000)
        assert sender.ask(1, 1, end=n == 2).total == n + 2
    assert sender.reply(waiting).total == 10
    s.clock.advance(4_000)
    assert sender.ask(1, 2).total == 11


@pytest.mark.parametrize("bound, says", [
    ("jobQueueSize: 2\n", "model recorder has 2 jobs waiting (jobQueueSize 2); try again later"),
    ("maxNumSequence: 3\n", "model recorder has 3 sequences open (maxNumSequence 3); end one, or try again later"),
])
def test_the_backlog_is_bounded(server, bound, says):
    """What exceeds the bounds is refused at once. Waiting steps are done, since a sequence with a slot can always
    continue."""
    s = server(oldest(max_batch_size=0, more=bound))
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    for value in (2, 3):
        sender.send(value, value, start=True, end=True)
    answer = sender.ask(4, 4, start=True)
    assert (answer.status, answer.error) == (429, says)
    assert sender.ask(1, 1, end=True).total == 2
    assert [reply.total for reply in sender.replies()] == [2, 3]


def test_steps_of_one_sequence_in_the_backlog_are_bounded(server):
    """The bound is maxSequenceJobQueueSize for each sequence."""
    s = server(oldest(max_batch_size=0, more="maxSequenceJobQueueSize: 2\n"))
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    for value in (2, 3):
        sender.send(value, 2, start=value == 2)
    answer = sender.ask(4, 2)
    assert (answer.status, answer.error) == (429, "sequence 2 has 2 jobs waiting (maxSequenceJobQueueSize 2); send the "
                                                  "next step after an answer")
    sender.ask(1, 1, end=True)
    assert [reply.total for reply in sender.replies()] == [2, 5]


def test_slots_that_are_scaled_away(server):
    """When a worker is removed, its sequences wait for slots of the remaining one, before the backlog, and keep their
    sums."""
    s = server(direct(max_batch_size=2, more="minWorkers: 2\nmaxWorkers: 2\n"))
    s.expect_ready("recorder", 2)
    sender = Sender(s)
    for n in (1, 2, 3, 4):
        sender.ask(n, n, start=True)
    waiting = sender.send(50, 5, start=True)
    assert s.admin().put("/models/recorder?min_worker=1&max_worker=1&synchronous=true").status == 200
    calls = [sender.send(10, n, end=True, arrives=False) for n in (1, 2, 3, 4)]
    assert [sender.reply(call).total for call in calls] == [11, 12, 13, 14]
    assert sender.reply(waiting).total == 50


# --- clients that go ---


class Fickle:
    """A client that sends a step and leaves when it is told to."""

    def __init__(self, s, value, sequence, **more):
        self._server = s
        before = s.outstanding("recorder")
        self._connection = http.client.HTTPConnection(s.inference.removeprefix("http://"))
        self._connection.request("POST", "/v2/models/recorder/infer",
                                 json.dumps(document(value, sequence, batched=False, **more)))
        s.expect_outstanding("recorder", before + 1)

    def leave(self):
        before = self._server.outstanding("recorder")
        self._connection.close()
        expect(lambda: self._server.outstanding("recorder") < before, "the step is given up")


def test_a_queued_step_whose_client_goes_is_not_done(server):
    """The step waits in the backlog when its client goes. The other steps of the sequence are done in order."""
    s = server(oldest(max_batch_size=0))
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    sender.send(10, 2, start=True)
    client = Fickle(s, 20, 2)
    sender.send(30, 2)
    client.leave()
    sender.ask(1, 1, end=True)
    assert [reply.total for reply in sender.replies()] == [10, 40]


def test_a_start_whose_client_goes_opens_nothing(server):
    """Steps that were queued behind the START get the error that there is no sequence."""
    s = server(oldest(max_batch_size=0))
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    client = Fickle(s, 10, 2, start=True)
    behind = sender.send(20, 2)
    client.leave()
    assert sender.reply(behind).error.startswith(start_error(2))
    assert sender.ask(1, 1, end=True).total == 2


# --- gRPC ---


def test_codes_over_grpc(server):
    """The messages are the same, with INVALID_ARGUMENT and UNAVAILABLE."""
    s = server(oldest(controls=CORRID, max_batch_size=1), clock=True)
    ids = np.array([[1]], np.int32)
    with v2rpc.client_of(s) as client:
        def ask(sequence, **more):
            answer = client.infer("recorder", [v2rpc.tensor("INPUT", ids, "INT32")], sequence_id=sequence, **more)
            return answer.as_numpy("OUTPUT").tolist()

        def refused(status, says, *args, **more):
            with pytest.raises(InferenceServerException) as error:
                ask(*args, **more)
            assert error.value.status() == f"StatusCode.{status}"
            assert says in error.value.message(), error.value

        assert ask(5, sequence_start=True) == [[1]]
        refused("INVALID_ARGUMENT", start_error(6), 6)
        refused("INVALID_ARGUMENT", "must specify a non-zero or non-empty correlation ID", 0)
        refused("INVALID_ARGUMENT", "sequence batching control 'CORRID' data-type is 'BYTES', but model 'recorder' "
                                    "expects 'UINT64'", "five", sequence_start=True)
        sender = Sender(s)
        waiting = sender.send(1, 7, start=True, timeout=1_000_000)
        s.clock.advance(2_000)
        assert sender.reply(waiting).status == 503
        refused("UNAVAILABLE", "timeout of the corresponding sequence has been expired", 8, sequence_start=True,
                timeout=1)
        assert ask(5, sequence_end=True) == [[2]]
