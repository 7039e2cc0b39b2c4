"""ModelStreamInfer: the order of the answers, failures, decoupled models, and the end of a stream."""

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from models import Model
from rpc import refused, word
from test_v2_decoupled import repeat
from test_v2_grpc import FOUR, INT32, channel, numbers, sums  # noqa: F401 - fixtures
from test_v2_http import accumulator, identity
from v2rpc import Stream, client_of, request, step, stub_of, tensor
from waiting import expect, limit


def test_streams_by_tritonclient(sums):
    """Four sequences alternate on one stream, and the callback gets the answers in the order of the requests."""
    heard = []
    with client_of(sums) as client:
        client.start_stream(lambda result, error: heard.append(error or (result.get_response().id,
                                                                         result.as_numpy("OUTPUT").tolist())))
        for value in range(1, 26):
            for name in (1, 2, "three", "four"):
                client.async_stream_infer("accumulator", [tensor("INPUT", np.array([value], np.int32), "INT32")],
                                          sequence_id=name, sequence_start=value == 1, sequence_end=value == 25,
                                          request_id=f"{name}-{value}")
        client.stop_stream()
    assert heard == [(f"{name}-{n}", [n * (n + 1) // 2]) for n in range(1, 26) for name in (1, 2, "three", "four")]


def test_answers_come_in_the_order_of_requests_over_models(server, channel):
    """This holds whichever is done first, and for refusals, too, because clients know answers by their order."""
    s = server(accumulator(), identity())
    connection = channel(s)
    with s.hold():
        stream = Stream(connection)
        stream.send(step("accumulator", 1, 1, sequence_start=True, id="a"), request("nobody", id="b"),
                    request("identity", [INT32], FOUR, id="c"), step("accumulator", 1, 99, id="d"),
                    step("accumulator", 2, 1, id="e")).half_close()
        s.expect_outstanding("accumulator", 2)
    answers = stream.rest()
    assert [answer.infer_response.id for answer in answers] == list("abcde")
    assert [bool(answer.error_message) for answer in answers] == [False, True, False, True, False]
    assert numbers(answers[4].infer_response) == [3]
    assert stream.call.code() == grpc.StatusCode.OK


def test_every_model_response_of_a_stream_is_final(sums, channel):
    """triton_final_response is true for models with one response. Errors of the admission do not have it."""
    stream = Stream(channel(sums))
    good = stream.ask(step("accumulator", 1, 1, sequence_start=True)).infer_response
    assert good.parameters["triton_final_response"].bool_param is True
    bad = stream.ask(step("accumulator", 1, 2, id="x"))
    assert "must specify the START flag" in bad.error_message
    assert bad.infer_response == service_pb2.ModelInferResponse(id="x")
    stream.half_close()
    assert stream.rest() == []


FAILS_LUA = """
return { api = 1, handle = function(req)
    if req.inputs.X.data:byte(1) == 0 then error("zero is too little") end
    return { outputs = { Y = { datatype = "INT8", shape = {1}, data = req.inputs.X.data } } }
end }
"""


def fails():
    return Model("fails", FAILS_LUA, "inputs: [{name: X, dataType: INT8, dims: [1]}]\n"
                                     "outputs: [{name: Y, dataType: INT8, dims: [1]}]\n", stateful=False)


def ask_fails(value, **more):
    return request("fails", [("X", "INT8", [1])], [bytes([value])], **more)


def test_a_models_failure_is_told_in_the_stream(server, channel):
    """The message has the model's name and the final flag, and the stream continues."""
    stream = Stream(channel(server(fails())))
    answer = stream.ask(ask_fails(0, id="z"))
    assert "zero is too little" in answer.error_message
    told = answer.infer_response
    assert (told.id, told.model_name, told.model_version) == ("z", "fails", "1.0")
    assert told.parameters["triton_final_response"].bool_param is True and not told.outputs
    assert stream.ask(ask_fails(1)).infer_response.raw_output_contents[0] == b"\1"
    stream.half_close()
    assert stream.rest() == [] and stream.call.code() == grpc.StatusCode.OK


def test_a_strict_stream_ends_with_a_models_failure(server, channel):
    """With triton_grpc_error: true the failure becomes a status. A mistake in a request is still a message."""
    s = server(fails())
    stream = Stream(channel(s), metadata=(("triton_grpc_error", "true"),))
    assert "is not found" in stream.ask(request("nobody", id="n")).error_message
    assert stream.ask(ask_fails(1)).infer_response.raw_output_contents[0] == b"\1"
    stream.send(ask_fails(0), *(ask_fails(1) for _ in range(5)))
    error = refused(stream.rest)
    assert error.code() == grpc.StatusCode.INTERNAL and "zero is too little" in error.details()
    assert word(error) == "handler_failed"
    stream.half_close()
    expect(lambda: s.metric("continuo_grpc_calls_open") == 0, "the call is over")


# --- decoupled models


def ask_repeat(values, delays=None, **more):
    return request("repeat", [("IN", "INT32", [len(values)]), ("DELAY", "UINT32", [len(values)])],
                   [np.array(values, np.int32).tobytes(), np.array(delays or [0] * len(values), np.uint32).tobytes()],
                   **more)


def heard(answer):
    """Returns (id, value, whether it is final) of a response. The value is None if it has no outputs."""
    assert not answer.error_message, answer
    told = answer.infer_response
    assert (told.model_name, told.model_version) == ("repeat", "1.0")
    values = {output.name: np.frombuffer(raw, np.int32)[0] for output, raw in zip(told.outputs, told.raw_output_contents)}
    return told.id, values.get("OUT"), told.parameters["triton_final_response"].bool_param


def test_decoupled_responses_and_their_end(server, channel):
    """A request gets any number of responses, none of which is final, because the end comes alone. Clients that ask for
    the end get it."""
    stream = Stream(channel(server(repeat())))
    stream.send(ask_repeat([4, 2], id="a"))
    assert [heard(stream.next()) for _ in range(2)] == [("a", 4, False), ("a", 2, False)]
    stream.send(ask_repeat([], id="b"), ask_repeat([], id="c", triton_enable_empty_final_response=True))
    assert heard(stream.next()) == ("c", None, True)
    stream.send(ask_repeat([7], id="d", triton_enable_empty_final_response=True)).half_close()
    assert [heard(answer) for answer in stream.rest()] == [("d", 7, False), ("d", None, True)]
    assert stream.call.code() == grpc.StatusCode.OK


def test_decoupled_requests_overtake_each_other_and_hold_up_nobody(server, channel):
    """A slow request delays no other one. Models with one response keep their order beside it."""
    s = server(repeat(), identity())
    stream = Stream(channel(s))
    stream.send(ask_repeat([1, 2], [0, 3_600_000], id="slow"))
    assert heard(stream.next()) == ("slow", 1, False)
    stream.send(ask_repeat([8, 9], [1, 1], id="quick"))
    assert [heard(stream.next()) for _ in range(2)] == [("quick", 8, False), ("quick", 9, False)]
    assert numbers(stream.ask(request("identity", [INT32], FOUR)).infer_response) == [1]
    stream.cancel()
    s.expect_log("repeat stops: gone after 1")
    expect(lambda: s.metric("continuo_grpc_calls_open") == 0, "the call is over")


def test_decoupled_errors(server, channel):
    """A mistake in a request is reported with the id only. A handler's failure has the model and the final flag, too.
    """
    s = server(repeat())
    connection = channel(s)
    error = refused(stub_of(connection).ModelInfer, request("repeat", [INT32]), timeout=limit(30))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert error.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"
    stream = Stream(connection)
    answer = stream.ask(request("repeat", [INT32], FOUR, id="x"))
    assert "inputs" in answer.error_message and answer.infer_response == service_pb2.ModelInferResponse(id="x")
    unequal = ask_repeat([1, 2], id="y")
    unequal.inputs[1].shape[0] = 1
    unequal.raw_input_contents[1] = b"\0" * 4
    answer = stream.ask(unequal)
    assert "IN and DELAY must have the same number of elements" in answer.error_message
    told = answer.infer_response
    assert (told.id, told.model_name) == ("y", "repeat") and told.parameters["triton_final_response"].bool_param
    assert heard(stream.ask(ask_repeat([3]))) == ("", 3, False)
    stream.half_close()
    assert stream.rest() == []


def test_thousands_of_decoupled_responses(server, channel):
    """Four requests at once on one stream, and tritonclient on another, get their responses in order."""
    s = server(repeat(), flags=["--grpc-stream-steps", 4])
    stream = Stream(channel(s))
    for n in range(4):
        stream.send(ask_repeat(list(range(n * 1000, n * 1000 + 1500)), id=str(n), triton_enable_empty_final_response=True))
    stream.half_close()
    got = {str(n): [] for n in range(4)}
    for answer in stream.call:
        name, value, final = heard(answer)
        got[name].append(None if final else value)
    assert got == {str(n): [*range(n * 1000, n * 1000 + 1500), None] for n in range(4)}
    results = []
    with client_of(s) as client:
        client.start_stream(lambda result, error: results.append(error or result.as_numpy("OUT").tolist()))
        client.async_stream_infer("repeat", [tensor("IN", np.arange(500, dtype=np.int32), "INT32"),
                                             tensor("DELAY", np.zeros(500, np.uint32), "UINT32")])
        client.stop_stream()
    assert results == [[n] for n in range(500)]


def test_a_half_closed_stream_is_answered_to_its_end(sums, channel):
    connection = channel(sums)
    with sums.hold():
        stream = Stream(connection)
        stream.send(*(step("accumulator", 1, 1, sequence_start=n == 0) for n in range(20))).half_close()
        sums.expect_outstanding("accumulator", 20)
    assert [numbers(answer.infer_response)[0] for answer in stream.rest()] == list(range(1, 21))
    assert stream.call.code() == grpc.StatusCode.OK


def test_a_stream_reads_no_more_than_it_may_owe(server, channel):
    """A stream has at most grpc-stream-steps requests without an answer. Further ones wait at the client."""
    s = server(accumulator(), flags=["--grpc-stream-steps", 8])
    connection = channel(s)
    with s.hold():
        stream = Stream(connection)
        stream.send(*(step("accumulator", 1, 1, sequence_start=n == 0) for n in range(60))).half_close()
        s.expect_outstanding("accumulator", 8)
        assert s.outstanding("accumulator") <= 8
    assert [numbers(answer.infer_response)[0] for answer in stream.rest()] == list(range(1, 61))


def test_a_cancelled_stream_leaves_nothing_behind(sums, channel):
    """The client's waiting requests are cancelled. Its sequence stays, with the steps that were answered."""
    connection = channel(sums)
    stream = Stream(connection)
    assert numbers(stream.ask(step("accumulator", 5, 1, sequence_start=True)).infer_response) == [5]
    with sums.hold():
        stream.send(*(step("accumulator", 1, 1) for _ in range(20)))
        sums.expect_outstanding("accumulator", 20)
        stream.cancel()
        expect(lambda: sums.outstanding("accumulator") <= 4, "the waiting requests are cancelled")
    expect(lambda: sums.metric("continuo_grpc_calls_open") == 0, "the call is over")
    after = numbers(stub_of(connection).ModelInfer(step("accumulator", 0, 1)))[0]
    assert 5 <= after <= 9  # what a worker had was done, the rest never ran


def test_a_stopping_server_answers_what_it_has_read(sums, channel):
    """Then the stream ends with UNAVAILABLE."""
    connection = channel(sums)
    stream = Stream(connection)
    assert numbers(stream.ask(step("accumulator", 5, 1, sequence_start=True)).infer_response) == [5]
    with sums.hold():
        stream.send(*(step("accumulator", 1, 1) for _ in range(5)))
        sums.expect_outstanding("accumulator", 5)
        sums.process.terminate()
        sums.expect_log("event=stopping")
    got = []
    error = None
    try:
        for answer in stream.call:
            got.append(numbers(answer.infer_response)[0])
    except grpc.RpcError as raised:
        error = raised
    assert got == [6, 7, 8, 9, 10]
    assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert "GRPC server is shutting down and has stopped accepting new requests." == error.details()
    stream.half_close()


def test_what_belongs_to_one_request_is_no_metadata_of_a_stream(sums, channel):
    error = refused(Stream(channel(sums), metadata=(("idempotency-key", "k"),)).half_close().rest)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "idempotency-key" in error.details()
