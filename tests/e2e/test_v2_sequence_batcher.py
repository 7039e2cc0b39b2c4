"""Sequences of typed models in the terms of Triton's sequence batcher: slots, backlog, controls, clocks."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import v2rpc
from models import BUILD, Model, ROOT, archiver
from recorder import CONTROLS, PATIENT, Sender, recorder
from test_v2_http import client_of, tensor
from waiting import expect

EXAMPLE = ROOT / "examples" / "v2" / "accumulator"


def oldest(settings="{}", controls="", idle_us=60_000_000, **keys):
    return recorder(batching=f"sequence_batching:\n  max_sequence_idle_microseconds: {idle_us}\n{controls}"
                             f"  oldest: {settings}\n", **keys)


def hooks(jobs, backlog=0):
    """The environment with which the server sends nothing before this many jobs and backlog sequences wait."""
    return {"TRITONSERVER_DELAY_SCHEDULER": jobs, "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": backlog}


def start_error(sequence, model="recorder"):
    return (f"inference request for sequence {sequence} to model '{model}' must specify the START flag on the first "
            "request of the sequence")


# --- examples ---


@pytest.fixture(params=["lua-oldest", "lua-direct", "c-oldest", "c-direct"])
def accumulator(server, request):
    language, strategy = request.param.split("-")
    yaml = (EXAMPLE / f"{strategy}.yaml").read_text()
    if language == "lua":
        return server(Model("accumulator", (EXAMPLE / "controls.lua").read_text(), yaml))
    s = server(start=False)
    archiver("--model-name", "accumulator", "--version", "1.0", "--handler", BUILD / "examples" / "accumulator.so",
             "--config-file", EXAMPLE / f"{strategy}.yaml", "--export-path", s.store)
    s.models.append("accumulator=accumulator.mar")
    return s.start()


@pytest.mark.parametrize("make", [client_of, v2rpc.client_of], ids=["http", "grpc"])
def test_accumulator(accumulator, make):
    """START, steps, START on the live id, and END give 1, 3, 42, 51 with each strategy and language."""
    client = make(accumulator)
    given = tensor if make is client_of else v2rpc.tensor

    def step(value, start=False, end=False, sequence=7):
        answer = client.infer("accumulator", [given("INPUT", np.array([[value]], np.int32), "INT32")],
                              sequence_id=sequence, sequence_start=start, sequence_end=end)
        return answer.as_numpy("OUTPUT").tolist()

    assert [step(1, start=True), step(2), step(42, start=True), step(9, end=True)] == [[[1]], [[3]], [[42]], [[51]]]
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        step(1)
    assert step(5, start=True, end=True, sequence=8) == [[5]]


@pytest.mark.parametrize("make", [client_of, v2rpc.client_of], ids=["http", "grpc"])
def test_accumulator_has_more_sequences_than_slots(accumulator, make):
    """Six clients share four slots, and all sums are right, with integer and string ids."""
    def run(n):
        client = make(accumulator)
        given = tensor if make is client_of else v2rpc.tensor
        return [client.infer("accumulator", [given("INPUT", np.array([[n * value]], np.int32), "INT32")],
                             sequence_id=n if n % 2 else f"s{n}", sequence_start=value == 1,
                             sequence_end=value == 5).as_numpy("OUTPUT").tolist()[0][0] for value in range(1, 6)]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run, range(1, 7))) == [[n, 3 * n, 6 * n, 10 * n, 15 * n] for n in range(1, 7)]


# --- admission ---


def test_rules_of_admission(server):
    """The rules are checked in this order: kind of id, batch size, id, START. A refusal leaves the sequence as it was.
    """
    s = server(oldest(controls="  control_input:\n    - {name: CORRID, control: "
                               "[{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_UINT64}]}\n"))
    sender = Sender(s)
    assert sender.ask(1, 5, start=True).total == 1
    answer = sender.ask(1, "five")
    assert (answer.status, answer.error) == (400, (
        "[request id: <id_unknown>] sequence batching control 'CORRID' data-type is 'BYTES', but model 'recorder' "
        "expects 'UINT64'"))
    with pytest.raises(InferenceServerException, match="inference request to model 'recorder' must specify batch-size 1 "
                                                       "due to requirements of sequence batcher"):
        client_of(s).infer("recorder", [tensor("INPUT", np.zeros((2, 1), np.int32), "INT32")], sequence_id=5)
    for nobody in (None, 0):
        answer = sender.ask(1, nobody)
        assert answer.status == 400
        assert "inference request to model 'recorder' must specify a non-zero or non-empty correlation ID" in answer.error
    answer = sender.ask(1, 6)
    assert answer.status == 400 and start_error(6) in answer.error
    assert sender.ask(1, 5).total == 2


def test_a_number_is_no_text(server):
    """A STRING control accepts no integer, and a missing id counts as the integer 0."""
    s = server(oldest(controls="  control_input:\n    - {name: CORRID, control: "
                               "[{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_STRING}]}\n"))
    for sequence in (5, None):
        answer = Sender(s).ask(1, sequence, start=True) if sequence else Sender(s).ask(1)
        assert "data-type is 'UINT64', but model 'recorder' expects 'BYTES'" in answer.error
    assert Sender(s).ask(1, "x", start=True).says["CORRID"] == "BYTES:x:1x1"


# --- control tensors ---


@pytest.mark.parametrize("word, sequence, expected", [
    ("TYPE_UINT64", 2**64 - 2, "UINT64:-2"),  # Lua's integers are signed
    ("TYPE_INT64", 2**40 + 5, f"INT64:{2**40 + 5}"),
    ("TYPE_UINT32", 2**32 + 7, "UINT32:7"),
    ("TYPE_INT32", 2**33 - 1, "INT32:-1"),
    ("TYPE_STRING", "any-text", "BYTES:any-text"),
])
def test_corrid_in_each_type(server, word, sequence, expected):
    """The control is eight bytes, the lower four, or a string."""
    s = server(oldest(controls="  control_input:\n    - {name: CORRID, control: "
                               f"[{{kind: CONTROL_SEQUENCE_CORRID, data_type: {word}}}]}}\n"))
    assert Sender(s).ask(1, sequence, start=True).says["CORRID"].startswith(expected)


def test_controls_say_where_the_sequence_stands(server):
    """START, END and READY come in the types that the model wants, with the shape [1,1], or [1] without a batch
    dimension."""
    s = server(oldest(controls=CONTROLS), oldest(controls=CONTROLS, name="flat", max_batch_size=0))
    for model, shape in [("recorder", "1x1"), ("flat", "1")]:
        sender = Sender(s, model, batched=model == "recorder")
        steps = [sender.ask(1, 3, start=True), sender.ask(1, 3), sender.ask(1, 3, end=True),
                 sender.ask(1, 4, start=True, end=True)]
        assert [step.says["START"] for step in steps] == [f"INT32:{n}:{shape}" for n in (1, 0, 0, 1)]
        assert [step.says["END"] for step in steps] == [f"BOOL:{n}:{shape}" for n in (0, 0, 1, 1)]
        assert {step.says["READY"] for step in steps} == {f"FP32:1.0:{shape}"}


def test_a_failed_step_does_not_end_the_sequence(server):
    """The state stays as it was, and the next step continues."""
    sender = Sender(server(oldest()))
    assert sender.ask(1, 3, start=True).total == 1
    assert sender.ask(666, 3).status == 400
    assert sender.ask(2, 3).total == 3


# --- slots and backlog ---


def test_one_slot_serves_one_sequence_at_a_time(server):
    """The second sequence waits with all its steps until the first has ended. Both keep their order."""
    s = server(oldest(max_batch_size=0))
    sender = Sender(s, batched=False)
    assert sender.ask(1, 1, start=True).total == 1
    for value in (10, 20, 30):
        sender.send(value, 2, start=value == 10, end=value == 30)
    assert sender.ask(2, 1).total == 3
    assert s.outstanding("recorder") == 3
    assert sender.ask(3, 1, end=True).total == 6
    assert [reply.total for reply in sender.replies()] == [10, 30, 60]


def test_unknown_sequences_are_refused_while_all_slots_are_taken(server):
    """They are refused at once, and not when a slot is free."""
    s = server(oldest(max_batch_size=0))
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    waiting = sender.send(10, 2, start=True)
    answer = sender.ask(7, 3)
    assert answer.status == 400 and start_error(3) in answer.error
    sender.ask(1, 1, end=True)
    assert sender.reply(waiting).total == 10


def test_candidates_bound_the_sequences_and_not_the_batch(server):
    """There are four candidates in batches of two, so the fifth sequence waits."""
    s = server(oldest("{max_candidate_sequences: 4}", max_batch_size=2), env=hooks(4, 1))
    sender = Sender(s)
    calls = [sender.send(n, n, start=True) for n in (1, 2, 3, 4, 5)]
    assert [sender.reply(call).rows for call in calls[:4]] == ["1,2", "1,2", "3,4", "3,4"]
    assert s.outstanding("recorder") == 1
    assert sender.ask(0, 3, end=True).total == 3
    assert sender.reply(calls[4]).total == 5


def test_a_batch_takes_one_step_of_each_sequence(server):
    """Steps that are sent without waiting are queued, never refused as busy, and answered in order."""
    s = server(oldest(), env=hooks(6))
    sender = Sender(s)
    for value, sequence in [(1, 1), (2, 1), (3, 1), (10, 2), (20, 2), (100, 3)]:
        sender.send(value, sequence, start=value in (1, 10, 100))
    replies = sender.replies()
    assert [reply.total for reply in replies] == [1, 3, 6, 10, 30, 100]
    assert [reply.rows for reply in replies] == ["1,10,100", "2,20", "3", "1,10,100", "2,20", "1,10,100"]


def test_start_on_a_live_sequence(server):
    """Queued steps are done first. Then the sequence begins anew in the same slot, without an END for the handler."""
    s = server(oldest(controls=CONTROLS), env=hooks(4))
    sender = Sender(s)
    for value in (1, 2, 42, 9):
        sender.send(value, 1, start=value in (1, 42), end=value == 9)
    replies = sender.replies()
    assert [reply.total for reply in replies] == [1, 3, 42, 51]
    assert [reply.says["START"][6] for reply in replies] == ["1", "0", "1", "0"]
    assert [reply.says["END"] for reply in replies] == ["BOOL:0:1x1"] * 3 + ["BOOL:1:1x1"]


def test_the_id_is_free_once_end_was_sent(server):
    """After END a step without START is an error, and one with START begins anew."""
    s = server(oldest(), env=hooks(4))
    sender = Sender(s)
    sender.send(1, 1, start=True)
    sender.send(2, 1, end=True)
    late = sender.send(3, 1)
    sender.send(5, 1, start=True)
    assert start_error(1) in sender.reply(late).error
    assert [reply.total for reply in sender.replies()] == [1, 3, None, 5]


def test_timeout_in_the_backlog(server):
    """The timeout of one step applies to its whole sequence. Once it has a slot, the timeout has no effect."""
    s = server(oldest(max_batch_size=0), clock=True)
    sender = Sender(s, batched=False)
    assert sender.ask(1, 1, start=True, timeout=1000).total == 1
    sender.send(10, 2, start=True)
    sender.send(20, 2, timeout=5_000_000)
    sender.send(30, 2)
    s.clock.advance(4000)
    assert sender.ask(2, 1, timeout=1).total == 3
    assert s.outstanding("recorder") == 3
    s.clock.advance(1500)
    for reply in sender.replies():
        assert (reply.status, reply.error) == (503, "timeout of the corresponding sequence has been expired")
    assert start_error(2) in sender.ask(1, 2).error
    assert sender.ask(3, 1).total == 6


# --- direct ---


def direct(settings="{}", controls=CONTROLS, idle_us=60_000_000, **keys):
    return recorder(batching=f"sequence_batching:\n  max_sequence_idle_microseconds: {idle_us}\n{controls}"
                             f"  direct: {settings}\n", **keys)


def test_a_slot_is_a_row_for_life(server):
    """A slot without work below one with work is a row of padding. Slots above are left out."""
    s = server(direct(), env=hooks(6))
    sender = Sender(s)
    for value, sequence in [(1, 1), (10, 2), (20, 2), (100, 3), (200, 3), (30, 2)]:
        sender.send(value, sequence, start=value in (1, 10, 100))
    replies = sender.replies()
    assert [reply.total for reply in replies] == [1, 10, 30, 100, 300, 60]
    assert [reply.rows for reply in replies] == ["1,10,100", "1,10,100", "-,20,200", "1,10,100", "-,20,200", "-,30"]
    assert sender.ask(2, 1).rows == "2"


def test_padding_is_zeros_and_says_no(server):
    """Padding has the shape of the batch's rows. Without READY a handler cannot tell it from a row."""
    s = server(direct(controls=""), direct(name="ready"))
    for model, expected in [("recorder", "0,10"), ("ready", "-,10")]:
        sender = Sender(s, model)
        sender.ask(1, 1, start=True)
        assert sender.ask(10, 2, start=True).rows == expected
        assert sender.ask(20, 2).total == 30
        assert sender.ask(1, 1).total == 2


def test_the_worked_example(server):
    """Two slots and four sequences: backlog, START on a live id, END and the steps after it."""
    s = server(direct(max_batch_size=2))
    sender = Sender(s)
    assert sender.ask(1, "a", start=True).total == 1
    assert sender.ask(10, "b", start=True).total == 10
    assert sender.ask(2, "a").total == 3
    waiting = [sender.send(100, "c", start=True), sender.send(200, "c")]
    assert start_error("d") in sender.ask(7, "d").error
    assert sender.ask(42, "a", start=True).total == 42
    assert s.outstanding("recorder") == 2
    assert sender.ask(9, "a", end=True).total == 51
    replies = [sender.reply(call) for call in waiting]
    assert [reply.total for reply in replies] == [100, 300]
    assert replies[1].rows == "200"
    assert start_error("a") in sender.ask(1, "a").error
    assert sender.ask(5, "b").rows == "-,5"


def test_two_workers_have_slots_each(server):
    """Four sequences use two workers with two slots each, and each keeps its row."""
    s = server(direct(max_batch_size=2, more="minWorkers: 2\nmaxWorkers: 2\n"))
    s.expect_ready("recorder", 2)
    sender = Sender(s)
    rows = [sender.ask(n, n, start=True).rows for n in (1, 2, 3, 4)]
    assert sorted(rows) == ["-,3", "-,4", "1", "2"]
    assert [sender.ask(n, n).rows for n in (1, 2, 3, 4)] == rows
    assert [sender.ask(n, n, end=True).total for n in (1, 2, 3, 4)] == [3, 6, 9, 12]


def test_a_batch_waits_for_enough_slots(server):
    """minimum_slot_utilization makes a batch wait, but no longer than max_queue_delay_microseconds."""
    s = server(direct("{minimum_slot_utilization: 1.0, max_queue_delay_microseconds: 50000000}", max_batch_size=2),
               clock=True, flags=PATIENT)
    sender = Sender(s)
    calls = [sender.send(1, 1, start=True), sender.send(10, 2, start=True)]
    assert [sender.reply(call).rows for call in calls] == ["1,10", "1,10"]
    late = sender.send(20, 2)
    s.clock.advance(49_000)
    assert s.outstanding("recorder") == 1
    s.clock.advance(2_000)
    assert sender.reply(late).rows == "-,20"


def test_rows_of_another_shape_wait(server):
    """The first slot with work decides the shape. A row with another shape is replaced by padding this time."""
    s = server(direct(), env=hooks(3))
    sender = Sender(s)
    for value, width in [(1, 1), (10, 2), (100, 1)]:
        sender.send(value, value, start=True, width=width)
    assert [reply.rows for reply in sender.replies()] == ["1,-,100", "-,10", "1,-,100"]


def test_a_replayed_row_keeps_its_place(server):
    """A step that is answered from the store is padding for the handler, and the other rows keep their places."""
    s = server(direct("{minimum_slot_utilization: 1.0, max_queue_delay_microseconds: 50000000}", max_batch_size=2))
    sender = Sender(s)
    keyed = {"headers": {"Idempotency-Key": "k"}}
    calls = [sender.send(1, 1, start=True, **keyed), sender.send(10, 2, start=True)]
    assert [sender.reply(call).total for call in calls] == [1, 10]
    calls = [sender.send(1, 1, start=True, **keyed), sender.send(20, 2)]
    assert [sender.reply(call).total for call in calls] == [1, 30]
    assert sender.reply(calls[1]).rows == "-,20"


def test_direct_slots_survive_a_worker(server):
    """The worker is killed in the middle. The sums are right, whatever rows the sequences get in the next worker."""
    s = server(direct(max_batch_size=2))
    sender = Sender(s)
    for n in (1, 2):
        sender.ask(n, n, start=True)
    waiting = sender.send(3, 3, start=True)
    s.kill_worker("recorder")
    assert [sender.ask(10, n).total for n in (1, 2)] == [11, 12]
    assert sender.ask(1, 1, end=True).total == 12
    assert sender.reply(waiting).total == 3


def test_a_batch_of_large_rows(server):
    """A batch that does not fit into one frame is still one batch."""
    s = server(direct("{minimum_slot_utilization: 1.0, max_queue_delay_microseconds: 50000000}"),
               flags=["--max-request-size", 100_000_000])
    values = np.ones((1, 2_500_000), np.int32)
    client = triton.InferenceServerClient(s.inference.removeprefix("http://"), concurrency=4)
    calls = [client.async_infer("recorder", [tensor("INPUT", values, "INT32")], sequence_id=n, sequence_start=True)
             for n in (1, 2, 3, 4)]
    assert [call.get_result().as_numpy("SAYS")[0][0].split()[1] for call in calls] == [b"rows=1,1,1,1"] * 4


def test_descriptions_need_no_slot(server):
    """GET ?customized=true belongs to no sequence, and is answered while all slots are taken."""
    s = server(direct(max_batch_size=1))
    Sender(s).ask(1, 1, start=True)
    assert s.admin().get("/models/recorder?customized=true").status == 200


# --- idle sequences ---


def test_idle_sequences_are_forgotten(server):
    """They are closed silently, and the next step without START is refused. A step before the limit starts the idle
    time anew."""
    s = server(oldest(idle_us=5_000_000), clock=True)
    sender = Sender(s)
    assert sender.ask(1, 1, start=True).total == 1
    for expected in (2, 3, 4):
        s.clock.advance(4000)
        assert sender.ask(1, 1).total == expected
    s.clock.advance(5500)
    expect(lambda: s.describe("recorder")["liveSequences"] == 0, "the sequence is forgotten")
    answer = sender.ask(1, 1)
    assert answer.status == 400 and start_error(1) in answer.error
    assert sender.ask(7, 1, start=True).total == 7


def test_the_default_is_a_second(server):
    """The default is that of Triton, and 0 means the same."""
    s = server(recorder(), recorder("zero", "sequence_batching:\n  max_sequence_idle_microseconds: 0\n"))
    for model in ("recorder", "zero"):
        config = client_of(s).get_model_config(model)
        assert config["sequence_batching"]["max_sequence_idle_microseconds"] == 1_000_000


def test_an_idle_sequence_gives_its_slot_to_the_backlog(server):
    """A sequence in the backlog is not idle, however long it waits."""
    s = server(oldest(idle_us=5_000_000, max_batch_size=0), clock=True)
    sender = Sender(s, batched=False)
    sender.ask(1, 1, start=True)
    s.clock.advance(3000)
    waiting = sender.send(10, 2, start=True)
    s.clock.advance(2500)
    assert sender.reply(waiting).total == 10
    assert start_error(1) in sender.ask(2, 1).error


def test_idle_counts_from_arrival(server):
    """A step that runs longer than the limit does not keep its sequence alive, but queued steps are still done."""
    s = server(oldest(idle_us=5_000_000), clock=True)
    sender = Sender(s)
    with s.hold():
        sender.send(1, 1, start=True)
        sender.send(2, 1)
        s.clock.advance(5500)
        expect(lambda: start_error(1) in sender.ask(3, 1).error, "later steps are refused")
    assert [reply.total for reply in sender.replies()] == [1, 3]
    expect(lambda: s.describe("recorder")["liveSequences"] == 0, "the slot is free")
    assert start_error(1) in sender.ask(4, 1).error


def test_start_while_the_old_one_expires(server):
    """The sequence begins anew behind the queued steps."""
    s = server(oldest(idle_us=5_000_000), clock=True)
    sender = Sender(s)
    with s.hold():
        sender.send(1, 1, start=True)
        s.clock.advance(5500)
        expect(lambda: start_error(1) in sender.ask(3, 1).error, "later steps are refused")
        sender.send(100, 1, start=True)
    assert [reply.total for reply in sender.replies()] == [1, 100]
    assert sender.ask(1, 1).total == 101


def test_rejected_when_expired(server):
    """timeout_action: reject refuses the queued steps."""
    model = recorder(batching="sequence_batching:\n  max_sequence_idle_microseconds: 5000000\n"
                              "  timeout_action: describe\n  oldest: {}\n")
    s = server(model, clock=True)
    sender = Sender(s)
    with s.hold():
        sender.send(1, 1, start=True)
        late = sender.send(2, 1)
        s.clock.advance(5500)
        assert start_error(1) in sender.reply(late).error
    assert sender.replies()[0].total == 1
    s.expect_log("event=sequence_expired", "model=recorder")


# --- deaths ---


def test_slots_and_state_survive_a_worker(server):
    """After kill -9 of the worker, sequences get slots in the next worker, with their sums, and the backlog still
    waits."""
    s = server(oldest("{max_candidate_sequences: 2}"))
    sender = Sender(s)
    for sequence in (1, 2):
        sender.ask(sequence, sequence, start=True)
    waiting = sender.send(3, 3, start=True)
    s.kill_worker("recorder")
    assert [sender.ask(10, sequence).total for sequence in (1, 2)] == [11, 12]
    assert sender.ask(1, 2, end=True).total == 13
    assert sender.reply(waiting).total == 3


def test_sequences_survive_the_server(server):
    """After kill -9 of the server, a step without START continues with its sum, although the server does not know the
    sequence yet."""
    s = server(oldest("{max_candidate_sequences: 2}"))
    Sender(s).ask(5, 1, start=True)
    s.kill()
    s.restart()
    assert Sender(s).ask(6, 1).total == 11
    assert start_error(2) in Sender(s).ask(6, 2).error


# --- configuration ---


def test_configuration_is_shown(server):
    """The configuration has the spelling in which it was written."""
    s = server(oldest("{max_candidate_sequences: 6, preferred_batch_size: [4, 2], max_queue_delay_microseconds: 100}",
                      controls=CONTROLS))
    batching = client_of(s).get_model_config("recorder")["sequence_batching"]
    assert batching["oldest"] == {"max_candidate_sequences": 6, "preferred_batch_size": [2, 4],
                                  "max_queue_delay_microseconds": 100, "preserve_ordering": False}
    kinds = {control["name"]: control["control"][0] for control in batching["control_input"]}
    assert kinds["START"] == {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1], "fp32_false_true": [],
                              "bool_false_true": [], "data_type": "TYPE_INVALID"}
    assert kinds["END"]["bool_false_true"] == [False, True]
    assert kinds["READY"]["fp32_false_true"] == [0, 1]


@pytest.mark.parametrize("block, says", [
    ("control_input: [{control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}]",
     "sequence batching control tensor must have a name for recorder"),
    ("control_input: [{name: A, control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}, "
     "{name: B, control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}]",
     "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for recorder"),
    ("control_input: [{name: A, control: [{kind: CONTROL_SEQUENCE_END}]}]",
     "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
     "CONTROL_SEQUENCE_END for recorder"),
    ("control_input: [{name: A, control: [{kind: CONTROL_SEQUENCE_END, int32_false_true: [0]}]}]",
     "sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_END for recorder"),
    ("control_input: [{name: A, control: [{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_FP32}]}]",
     "unexpected data type for control CONTROL_SEQUENCE_CORRID for recorder. Allowed data types are TYPE_UINT64, "
     "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"),
    ("oldest: {preferred_batch_size: [5]}", "sequence batching preferred batch size must be <= max batch size for recorder"),
    ("oldest: {candidates: 5}", "oldest has no setting candidates"),
])
def test_wrong_configurations_do_not_load(server, block, says):
    """The message has the reason and the place."""
    s = server()
    answer = s.register(recorder(batching=f"sequence_batching:\n  {block}\n"))
    assert answer.status == 400 and says in answer.json["message"], answer
    assert "model-config.yaml:" in answer.json["message"]


def test_tritonclient_async_by_text_ids(server):
    """The real client sends steps of many sequences over its connections, each sequence in order."""
    s = server(oldest("{max_candidate_sequences: 8}", max_batch_size=8))
    client = triton.InferenceServerClient(s.inference.removeprefix("http://"), concurrency=8)
    for step in range(4):
        calls = [client.async_infer("recorder", [tensor("INPUT", np.array([[n]], np.int32), "INT32")],
                                    sequence_id=f"client-{n}", sequence_start=step == 0, sequence_end=step == 3)
                 for n in range(8)]
        totals = [call.get_result().as_numpy("OUTPUT").tolist() for call in calls]
        assert totals == [[[n * (step + 1)]] for n in range(8)]
