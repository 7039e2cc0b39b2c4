"""StreamPredictions2: many steps of many sequences on one call."""

import os
import queue
import random
import threading

import grpc
import pytest

from models import Model, counter, stateless
from resident import resident_bytes
from rpc import Rpc, refused, request, unpack_details
from waiting import expect, limit


class Stream:
    """One StreamPredictions2 call: send() at any time, and read the answers one by one."""

    def __init__(self, client, metadata=None, timeout=120):
        self._requests = queue.Queue()
        self.call = client.inference.StreamPredictions2(iter(self._requests.get, None), metadata=metadata,
                                                        timeout=limit(timeout))

    def send(self, *args, **more):
        self._requests.put(request(*args, **more))
        return self

    def put(self, message):
        self._requests.put(message)

    def half_close(self):
        self._requests.put(None)
        return self

    def next(self):
        return next(self.call)

    def step(self, *args, **more):
        self.send(*args, **more)
        return self.next()

    def rest(self):
        return list(self.call)

    def cancel(self):
        self.call.cancel()
        self.half_close()


@pytest.fixture
def rpc(server):
    def connect(target, **more):
        client = Rpc(target, **more)
        clients.append(client)
        return client

    clients = []
    yield connect
    for client in clients:
        client.close()


def reason(answer):
    """Returns the error word of a failed step."""
    return unpack_details(answer.status)[1]["ErrorInfo"].reason


def test_answers_of_a_sequence_come_in_order_after_the_half_close(server, rpc):
    """TorchServe drops pending answers when the client closes its sending side. Here all of them come first."""
    running = server(counter())
    client = rpc(running.grpc)
    client.predict("counter", 0, "a")
    with running.hold():
        stream = Stream(client)
        for _ in range(20):
            stream.send("counter", 1, "a")
        stream.half_close()
        running.expect_outstanding("counter", 20)
    answers = stream.rest()
    assert [int(answer.prediction) for answer in answers] == list(range(1, 21))
    assert {answer.sequence_id for answer in answers} == {"a"}
    assert stream.call.code() == grpc.StatusCode.OK


def test_a_stream_s_sequence_is_named_by_its_first_message(server, rpc):
    running = server(counter())
    stream = Stream(rpc(running.grpc))
    assert stream.step("counter", 1, "named").sequence_id == "named"
    assert stream.step("counter", 2).prediction == b"3"
    assert stream.step("counter", 10, "other").prediction == b"10"
    assert stream.step("counter", 3).prediction == b"6"
    stream.half_close()
    assert stream.rest() == []
    by_metadata = Stream(rpc(running.grpc), metadata=(("ts_request_sequence_id", "named"),))
    assert by_metadata.step("counter", 4).prediction == b"10"
    by_metadata.half_close()


def test_a_stream_without_any_id_is_one_new_sequence(server, rpc):
    """The server makes one id, even if several steps are sent before the first answer."""
    stream = Stream(rpc(server(counter()).grpc))
    for step in (1, 2, 3):
        stream.send("counter", step)
    answers = [stream.half_close().next()] + stream.rest()
    assert [answer.prediction for answer in answers] == [b"1", b"3", b"6"]
    assert len({answer.sequence_id for answer in answers}) == 1
    assert answers[0].sequence_id.startswith("ts-seq-")


def test_a_failed_step_is_a_message_and_the_stream_goes_on(server, rpc):
    """Whatever is wrong with a step, its status comes in its place, and the steps behind it run."""
    stream = Stream(rpc(server(counter()).grpc))
    assert stream.step("counter", 1, "a").prediction == b"1"
    failed = stream.step("counter", "no number", "a")
    assert failed.status.code == grpc.StatusCode.INTERNAL.value[0] and failed.prediction == b""
    assert "must be a decimal integer" in failed.status.message and failed.sequence_id == "a"
    assert reason(stream.step("nobody", 1, "a")) == "model_not_found"
    assert reason(stream.step("", 1, "a")) == "bad_request"
    assert reason(stream.step("counter", 1, "x" * 300)) == "bad_request"
    assert stream.step("counter", 2, "a").prediction == b"3"
    stream.half_close()
    assert stream.rest() == [] and stream.call.code() == grpc.StatusCode.OK


def test_refusals_keep_their_place_among_the_answers(server, rpc):
    """A refusal is known at once, but earlier answers of the sequence are sent first, because a client may have only
    the order to tell answers apart."""
    running = server(counter())
    client = rpc(running.grpc)
    client.predict("counter", 0, "a")
    with running.hold():
        stream = Stream(client)
        stream.send("counter", 1, "a").send("counter", 1, "a", version="9").send("counter", 1, "a").half_close()
        running.expect_outstanding("counter", 2)
    answers = stream.rest()
    assert [answer.prediction for answer in answers] == [b"1", b"", b"2"]
    assert reason(answers[1]) == "version_not_found"


def test_refusals_of_messages_with_mistakes_keep_their_place(server, rpc):
    """Also if the message is refused before it is known whether there is such a model."""
    running = server(counter())
    client = rpc(running.grpc)
    client.predict("counter", 0, "a")
    many = {f"part{i}": "x" for i in range(300)}
    with running.hold():
        stream = Stream(client)
        stream.send("counter", 1, "a").send("", 1, "a").send("", 1)
        stream.send("counter", 1, ts_request_sequence_start="maybe").send("counter", sequence="a", **many)
        stream.send("counter", 1).half_close()
        running.expect_outstanding("counter", 2)
    answers = stream.rest()
    assert [answer.prediction for answer in answers] == [b"1", b"", b"", b"", b"", b"2"]
    assert [reason(answer) for answer in answers[1:5]] == ["bad_request"] * 4
    assert {answer.sequence_id for answer in answers} == {"a"}


def test_a_refused_first_message_names_the_stream_s_sequence(server, rpc):
    client = rpc(server(counter()).grpc)
    client.predict("counter", 5, "a")
    stream = Stream(client).send("nobody", 1, "a").send("counter", 1).half_close()
    failed, answer = stream.rest()
    assert reason(failed) == "model_not_found"
    assert (answer.prediction, answer.sequence_id) == (b"6", "a")


@pytest.mark.parametrize("method", ["StreamPredictions", "StreamPredictions2"])
def test_a_failure_before_other_pieces_does_not_hold_its_handler_up(server, rpc, method):
    """The first piece has an error's status and more bytes than may wait for a client, and the handler goes on."""
    lua = """
    return { api = 1, handle = function(req)
        coroutine.yield({ status = 500, text = ("x"):rep(5000000) })
        coroutine.yield("more")
        return "end"
    end }"""
    running = server(Model("bad", lua, stateful=False))
    client = rpc(running.grpc)
    if method == "StreamPredictions":
        assert refused(lambda: list(client.inference.StreamPredictions(request("bad", 1), timeout=30)))
    else:
        assert Stream(client).send("bad", 1).half_close().rest()[0].status.code == grpc.StatusCode.INTERNAL.value[0]
    expect(lambda: running.outstanding("bad") == 0, "the handler is done", 10)
    expect(lambda: running.metric("continuo_grpc_calls_open") == 0, "nothing is left", 10)


def test_an_answer_may_outlive_its_model(server, rpc):
    """A failed step waits for an earlier step of its sequence, which another model does. Its own model is gone before
    its error is put into TorchServe's words."""
    slow = """
    return { api = 1, handle = function()
        coroutine.yield(nil, 2)
        return "late"
    end }"""
    running = server(counter(), Model("slow", slow, stateful=False), flags=["--torchserve-errors"])
    stream = Stream(rpc(running.grpc))
    stream.send("slow", "", "a").send("counter", "no number", "a").half_close()
    running.expect_outstanding("slow", 1)
    expect(lambda: running.metric("continuo_job_errors_total") == 1, "the step has failed")
    assert running.admin().delete("/models/counter").status == 200
    running.expect_log("event=model_closed", "model=counter")
    answers = stream.rest()
    assert [answer.prediction for answer in answers] == [b"late", b""]
    assert answers[1].status.message == "Prediction failed"


def test_start_end_and_keys_belong_to_messages(server, rpc):
    stream = Stream(rpc(server(counter()).grpc))
    assert stream.step("counter", 1, "a").prediction == b"1"
    assert stream.step("counter", 5, ts_request_sequence_start="true").prediction == b"5"
    for _ in range(2):
        assert stream.step("counter", 2, **{"idempotency-key": "k"}).prediction == b"7"
    assert stream.step("counter", 0, ts_request_sequence_end="true").prediction == b"7"
    assert stream.step("counter", 1).prediction == b"1"
    stream.half_close()


@pytest.mark.parametrize("name", ["idempotency-key", "ts_request_sequence_start", "ts_request_sequence_end"])
def test_what_belongs_to_one_step_is_refused_as_the_stream_s_metadata(server, rpc, name):
    stream = Stream(rpc(server(counter()).grpc), metadata=((name, "true"),))
    stream.send("counter", 1, "a").half_close()
    error = refused(stream.rest)
    assert error.code().name == "INVALID_ARGUMENT" and name in error.details()


def test_stateless_steps_answer_in_the_order_they_came(server, rpc):
    """The steps run at the same time, but clients can only tell the answers apart by their order."""
    stream = Stream(rpc(server(stateless(minWorkers=2, maxWorkers=2, batchSize=1)).grpc))
    for i in range(50):
        stream.send("echo", i)
    stream.half_close()
    assert [int(answer.prediction) for answer in stream.rest()] == list(range(50))


def thousand_steps(stream, sequences=50, steps=1000, seed=7):
    """Sends steps of several sequences in random order. Returns what each sequence must have answered."""
    chance = random.Random(seed)
    expected = {f"s{i}": [] for i in range(sequences)}
    for _ in range(steps):
        name = f"s{chance.randrange(sequences)}"
        number = chance.randrange(1000)
        expected[name].append(number + (expected[name][-1] if expected[name] else 0))
        stream.send("counter", number, name)
    stream.half_close()
    return expected


def gather(stream):
    answers = {}
    for answer in stream.call:
        assert not answer.HasField("status"), answer
        answers.setdefault(answer.sequence_id, []).append(int(answer.prediction))
    return answers


def test_a_thousand_steps_of_fifty_sequences_on_one_stream(server, rpc):
    """All answers come, in order within each sequence, and every value is right."""
    stream = Stream(rpc(server(counter(batchSize=16, minWorkers=2, maxWorkers=2)).grpc))
    expected = thousand_steps(stream)
    assert gather(stream) == expected
    assert stream.call.code() == grpc.StatusCode.OK


def test_a_thousand_steps_while_workers_are_killed(server, rpc):
    """The values are the same: the steps of a killed worker are sent again, and done once."""
    running = server(counter(batchSize=4, minWorkers=2, maxWorkers=2))
    stream = Stream(rpc(running.grpc), timeout=300)
    # A worker under ThreadSanitizer takes a tenth of a second to start, and three deaths in a row end a step.
    slow = "tsan" in os.environ.get("CONTINUO_BUILD", "")
    with running.killing("counter", 0.4 if slow else 0.05):
        expected = thousand_steps(stream)
        answers = gather(stream)
    assert answers == expected
    assert running.metric("continuo_worker_deaths_total") >= 1


def test_a_stream_reads_no_more_than_it_may_owe(server, rpc):
    """A stream has at most grpc-stream-steps steps without an answer. Further ones wait at the client."""
    running = server(counter(jobQueueSize=1000), flags=["--grpc-stream-steps", 8])
    client = rpc(running.grpc)
    client.predict("counter", 0, "a")
    with running.hold():
        stream = Stream(client)
        for _ in range(100):
            stream.send("counter", 1, "a")
        running.expect_outstanding("counter", 8)
        assert running.outstanding("counter") <= 8
    stream.half_close()
    assert [int(answer.prediction) for answer in stream.rest()] == list(range(1, 101))


def test_a_client_that_is_gone_leaves_nothing_behind(server, rpc):
    """The client's waiting steps are cancelled. Its sequence stays, with the steps that were answered."""
    running = server(counter(jobQueueSize=1000))
    client = rpc(running.grpc)
    stream = Stream(client)
    assert stream.step("counter", 5, "a").prediction == b"5"
    with running.hold():
        for _ in range(20):
            stream.send("counter", 1, "a")
        running.expect_outstanding("counter", 20)
        stream.cancel()
        expect(lambda: running.outstanding("counter") <= 4, "the waiting steps are cancelled")
    expect(lambda: running.metric("continuo_grpc_calls_open") == 0, "the call is over")
    after = int(client.predict("counter", 0, "a").prediction)
    assert 5 <= after <= 9  # what a worker had was done, the rest never ran


def test_a_storm_of_cancels_leaves_nothing_behind(server, rpc):
    """Streams and calls end at any moment. Nothing leaks or crashes, and the next client is served.

    CONTINUO_GRPC_STORM=2000 makes the test longer."""
    running = server(counter(jobQueueSize=1000, maxNumSequence=5000))
    clients = [rpc(running.grpc) for _ in range(4)]
    chance = random.Random(11)
    for i in range(int(os.environ.get("CONTINUO_GRPC_STORM", "500"))):
        client = clients[i % 4]
        if i % 2:
            stream = Stream(client)
            for step in range(chance.randrange(4)):
                stream.send("counter", step, f"storm{i}")
            if chance.random() < 0.5:
                stream.next() if chance.random() < 0.3 and step_sent(stream) else None
            stream.cancel()
        else:
            client.inference.Predictions.future(request("counter", 1, f"storm{i}"), timeout=30).cancel()
    expect(lambda: running.metric("continuo_grpc_calls_open") == 0, "all calls are over", 30)
    assert clients[0].predict("counter", 1, "after").prediction == b"1"


def step_sent(stream):
    stream.send("counter", 1, "storm-extra")
    return True


def test_a_client_that_does_not_read_is_cut_off(server, rpc):
    """The client's answers fill the connection's window. After write-timeout the call ends."""
    running = server(stateless(), flags=["--write-timeout", 500, "--max-request-size", 8 << 20])
    client = rpc(running.grpc, options=[("grpc.http2.lookahead_bytes", 65536), ("grpc.http2.bdp_probe", 0)])
    stream = Stream(client)
    for _ in range(20):
        stream.send("echo", b"x" * (1 << 20))
    expect(lambda: running.metric("continuo_grpc_calls_total") == 1 and
           running.metric("continuo_grpc_calls_open") == 0, "the call is cut off", 30)
    stream.cancel()


def test_a_stop_ends_streams_after_their_answers(server, rpc):
    """Outstanding answers are sent, then the stream ends with UNAVAILABLE. Idle streams end at once."""
    running = server(counter())
    idle, busy = Stream(rpc(running.grpc)), Stream(rpc(running.grpc))
    assert idle.step("counter", 1, "idle").prediction == b"1"
    assert busy.step("counter", 1, "busy").prediction == b"1"
    with running.hold():
        busy.send("counter", 1, "busy")
        running.expect_outstanding("counter", 1)
        running.process.terminate()
        running.expect_log("event=draining")
    assert refused(idle.rest).code().name == "UNAVAILABLE"
    assert busy.next().prediction == b"2"
    assert refused(busy.rest).code().name == "UNAVAILABLE"
    running.stop()
    for stream in (idle, busy):
        stream.half_close()


def test_idle_streams_cost_little(server, rpc):
    """Measures the memory of a stream, and opens and closes streams again and again without growth."""
    running = server(counter(), flags=["--grpc-max-calls", 10000])
    clients = [rpc(running.grpc) for _ in range(4)]
    clients[0].predict("counter", 0, "a")

    def resident_kb():
        return resident_bytes(running.process.pid) // 1024

    before = resident_kb()
    after = []
    for _ in range(4):
        calls = [client.inference.StreamPredictions2(forever()) for client in clients for _ in range(100)]
        expect(lambda: running.metric("continuo_grpc_calls_open") == 400, "400 streams are open", 30)
        after.append(resident_kb())
        for call in calls:
            call.cancel()
        expect(lambda: running.metric("continuo_grpc_calls_open") == 0, "all streams are over", 30)
    if "asan" not in os.environ.get("CONTINUO_BUILD", "") and "tsan" not in os.environ.get("CONTINUO_BUILD", ""):
        assert (after[0] - before) / 400 < 30
        assert after[3] <= after[1] + 2000, after  # the first round fills the allocator's caches, thread by thread


def forever():
    threading.Event().wait(60)
    yield from ()


def test_numbered_steps_of_a_stream_and_of_calls(server, rpc):
    """The number is an entry of input, or metadata of a unary call. A refusal has the number that the server expects.
    """
    client = rpc(server(counter()).grpc)

    def numbered(number):
        return {"ts-request-sequence-step": str(number).encode()}

    stream = Stream(client)
    assert stream.step("counter", 5, "a", **numbered(1)).prediction == b"5"
    assert stream.step("counter", 5, "a", **numbered(1)).prediction == b"5"
    assert stream.step("counter", 6, "a", **numbered(2)).prediction == b"11"
    answer = stream.step("counter", 7, "a", **numbered(4))
    status, details = unpack_details(answer.status)
    assert status.code == grpc.StatusCode.FAILED_PRECONDITION.value[0] and reason(answer) == "step_mismatch"
    assert details["ErrorInfo"].metadata["expected_step"] == "3", details
    assert reason(stream.step("counter", 5, "a", **numbered(1))) == "step_done"
    stream.half_close()
    answer, call = client.inference.Predictions.with_call(request("counter", 7, "a"), timeout=limit(30),
                                                          metadata=(("ts-request-sequence-step", "3"),))
    assert answer.prediction == b"18" and dict(call.initial_metadata())["continuo-sequence-step"] == "3"
    error = refused(client.predict, "counter", 7, "a", metadata=(("continuo-sequence-step", "9"),))
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
    assert dict(error.initial_metadata())["continuo-expected-step"] == "4"
    error = refused(client.predict, "counter", 7, "a", metadata=(("continuo-sequence-step", "0"),))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    error = refused(Stream(client, metadata=(("ts-request-sequence-step", "1"),)).half_close().rest)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "ts-request-sequence-step" in error.details()
