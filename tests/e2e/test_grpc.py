"""gRPC calls with one step. The clients are grpcio's, with code that is generated from proto/ when the tests run."""

import contextlib
import socket
import threading

import grpc
import pytest
from google.protobuf import empty_pb2

from models import BUILD, Model, counter, stateless
from rpc import Rpc, details, refused, request, word
from server import address_of
from waiting import expect, limit


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


def test_ping_says_what_torchserve_says(server, rpc):
    """The text equals TorchServe's to the last space, without a newline at its end."""
    client = rpc(server(counter()).grpc)
    assert client.inference.Ping(empty_pb2.Empty(), timeout=30).health == '{\n  "status": "Healthy"\n}'


def test_a_sequence_goes_on_over_calls_and_over_http(server, rpc):
    """A sequence may change its protocol between two steps, because both use the same jobs."""
    running = server(counter())
    client = rpc(running.grpc)
    first = client.predict("counter", 5, "a")
    assert (first.prediction, first.sequence_id) == (b"5", "a")
    assert client.predict("counter", 7, "a").prediction == b"12"
    assert running.client().step("counter", "a", 1).text == "13"
    assert client.predict("counter", 1, "a", version="1.0").prediction == b"14"


def test_a_step_without_id_opens_a_sequence_and_tells_its_id(server, rpc):
    client = rpc(server(counter()).grpc)
    first = client.predict("counter", 3)
    assert first.sequence_id.startswith("ts-seq-")
    assert client.predict("counter", 4, first.sequence_id).prediction == b"7"


@pytest.mark.parametrize("sequence, told", [("a b", True), (" a", False), ("a ", False), ("\u00e4", False)])
def test_an_id_that_is_no_header_is_only_in_the_message(server, rpc, sequence, told):
    """A header must not begin or end with a blank: strict clients take the whole answer for malformed."""
    client = rpc(server(counter()).grpc)
    answer, call = client.inference.Predictions.with_call(request("counter", 1, sequence), timeout=30)
    assert (answer.prediction, answer.sequence_id) == (b"1", sequence)
    assert ("ts_request_sequence_id" in dict(call.initial_metadata())) == told


def test_a_stateless_model_answers_without_id(server, rpc):
    client = rpc(server(stateless()).grpc)
    answer = client.predict("echo", b"\x00\xff bytes")
    assert answer.prediction == b"\x00\xff bytes"
    assert not answer.HasField("sequence_id") and not answer.HasField("status")
    assert client.predict("echo", b"").prediction == b""


def test_what_belongs_to_a_step_may_be_input_or_metadata(server, rpc):
    """START begins anew, END ends, and a retry with the same key is answered from the store."""
    client = rpc(server(counter()).grpc)
    client.predict("counter", 5, "s")
    assert client.predict("counter", 1, "s", ts_request_sequence_start="true").prediction == b"1"
    start = (("ts_request_sequence_start", "true"),)
    assert client.predict("counter", 2, "s", metadata=start).prediction == b"2"
    named = (("ts_request_sequence_id", "s"),)
    assert client.predict("counter", 3, metadata=named).prediction == b"5"
    for _ in range(2):
        assert client.predict("counter", 4, "s", metadata=(("idempotency-key", "k1"),)).prediction == b"9"
    for _ in range(2):
        assert client.predict("counter", 4, "s", **{"idempotency-key": "k2"}).prediction == b"13"
    assert client.predict("counter", 0, "s", ts_request_sequence_end="true").prediction == b"13"
    assert client.predict("counter", 1, "s").prediction == b"1"


def test_headers_of_sequences_may_have_other_names(server, rpc):
    """The names apply to metadata, inputs and answers. The default names are ordinary inputs then."""
    s = server(counter(), flags=["--sequence-id-header", "X-Session", "--sequence-start-header", "x-begin",
                                 "--sequence-end-header", "x-end"])
    client = rpc(s.grpc)
    assert client.predict("counter", 5, metadata=(("x-session", "s"),)).prediction == b"5"
    assert client.predict("counter", 1, **{"X-Session": "s"}).prediction == b"6"
    assert client.predict("counter", 2, "s", **{"x-begin": "true"}).prediction == b"2"
    assert client.predict("counter", 2, "s", metadata=(("ts_request_sequence_start", "true"),)).prediction == b"4"
    answer, call = client.inference.Predictions.with_call(request("counter", 1, "s", **{"x-end": "true"}), timeout=30)
    assert answer.prediction == b"5" and dict(call.initial_metadata())["x-session"] == "s"
    assert client.predict("counter", 1, "s").prediction == b"1"


@pytest.mark.parametrize("flags, words", [
    (["--sequence-id-header", "a b"], "is not a valid header name"),
    (["--sequence-end-header", "Host"], "already has another meaning"),
    (["--sequence-end-header", "TS-Request-Sequence-Id"], "both name the header"),
])
def test_names_that_cannot_be_stop_the_start(server, flags, words):
    s = server(counter(), flags=flags, start=False)
    s.expected_exit = 1
    assert s.launch().exit_code() == 1
    s.expect_log(flags[0], words)


def test_answers_carry_the_request_id_and_the_sequence_as_metadata(server, rpc):
    client = rpc(server(counter()).grpc)
    _, call = client.inference.Predictions.with_call(request("counter", 1, "m"), timeout=30)
    head = dict(call.initial_metadata())
    assert head["ts_request_sequence_id"] == "m" and len(head["x-request-id"]) == 36
    _, call = client.inference.Predictions.with_call(request("counter", 1, "m"), timeout=30,
                                                    metadata=(("x-request-id", "mine-1"),))
    assert dict(call.initial_metadata())["x-request-id"] == "mine-1"
    key = (("idempotency-key", "again"),)
    for _ in range(2):
        _, call = client.inference.Predictions.with_call(request("counter", 1, "m"), timeout=30, metadata=key)
    assert dict(call.initial_metadata())["continuo-replayed"] == "true"


def test_several_inputs_are_parts_and_controls_are_headers(server, rpc):
    """A handler gets each input as a part. What is meant for the server becomes a header."""
    show = stateless("show", lua="""
local M = { api = 1 }
function M.step(_, req)
    local names = {}
    for _, part in ipairs(req.parts) do names[#names + 1] = part.name .. "=" .. part.data end
    table.sort(names)
    return { text = table.concat(names, ",") .. ";" .. tostring(req.headers["x-request-id"]) ..
             ";" .. tostring(req.headers["mine"]) }
end
return M
""")
    client = rpc(server(show).grpc)
    answer = client.predict("show", metadata=(("mine", "yes"),), a=1, b=2, **{"x-request-id": "r1"})
    assert answer.prediction == b"a=1,b=2;r1;yes"


@pytest.mark.parametrize("change, code, error, text", [
    ({"model": ""}, "INVALID_ARGUMENT", "bad_request", "Parameter model_name is required."),
    ({"model": "nobody"}, "NOT_FOUND", "model_not_found", "Model not found: nobody"),
    ({"version": "7"}, "NOT_FOUND", "version_not_found", "counter"),
    ({"sequence": "x" * 257}, "INVALID_ARGUMENT", "bad_request", "257 bytes"),
    ({"sequence": "a\nb"}, "INVALID_ARGUMENT", "bad_request", "control characters"),
    ({"sequence": "a\0b"}, "INVALID_ARGUMENT", "bad_request", "zero byte"),
    ({"ts_request_sequence_id": "other"}, "INVALID_ARGUMENT", "bad_request", "two different sequences"),
    ({"ts_request_sequence_start": "maybe"}, "INVALID_ARGUMENT", "bad_request", "true or false"),
    ({"idempotency-key": ""}, "INVALID_ARGUMENT", "bad_request", "Idempotency-Key"),
])
def test_a_wrong_request_says_what_is_wrong(server, rpc, change, code, error, text):
    """Status, error word and message correspond to those over HTTP."""
    client = rpc(server(counter()).grpc)
    model, data, sequence = change.pop("model", "counter"), 1, change.pop("sequence", "s")
    status = refused(client.predict, model, data, sequence, **change)
    assert (status.code().name, word(status)) == (code, error)
    assert text in status.details()
    packed, found = details(status)
    assert packed.code == status.code().value[0] and packed.message == status.details()
    assert found["ErrorInfo"].reason == error and found["ErrorInfo"].domain == "continuo"
    assert found["ErrorInfo"].metadata["type"].endswith("Exception")


def test_a_handler_s_refusal_keeps_its_status(server, rpc):
    """The HTTP status is mapped as TorchServe maps it. A refusal leaves the sequence as it was."""
    picky = stateless("picky", lua="""
local M = { api = 1 }
function M.step(_, req)
    local status = math.tointeger(tonumber(req.body))
    return { status = status, text = "no: " .. req.body }
end
return M
""")
    client = rpc(server(picky).grpc)
    expected = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
                409: "ABORTED", 413: "RESOURCE_EXHAUSTED", 416: "OUT_OF_RANGE", 429: "RESOURCE_EXHAUSTED",
                418: "FAILED_PRECONDITION", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
                504: "DEADLINE_EXCEEDED", 500: "INTERNAL"}
    for status, code in expected.items():
        error = refused(client.predict, "picky", status)
        assert (error.code().name, error.details()) == (code, f"no: {status}")
    assert client.predict("picky", 201).prediction == b"no: 201"


@pytest.mark.parametrize("flags, code", [([], "INTERNAL"), (["--torchserve-errors"], "UNAVAILABLE")])
def test_a_handlers_bug_is_no_overload(server, rpc, flags, code):
    """Clients repeat a call with UNAVAILABLE, so a handler's error must not have that code. With TorchServe's errors it
    has, but nothing says when to repeat it."""
    broken = stateless("broken", lua="return { api = 1, handle = function() error('oh') end }")
    client = rpc(server(broken, flags=flags).grpc)
    error = refused(client.predict, "broken", 1)
    assert (error.code().name, word(error)) == (code, "handler_failed")
    assert "retry-after" not in dict(error.trailing_metadata()) and "RetryInfo" not in details(error)[1]


def test_a_full_queue_is_told_with_the_time_to_wait(server, rpc):
    """The code is RESOURCE_EXHAUSTED with RetryInfo, so that clients know how long to wait."""
    running = server(counter(jobQueueSize=1, batchSize=1))
    client = rpc(running.grpc)
    client.predict("counter", 1, "s")
    with running.hold():
        calls = [client.inference.Predictions.future(request("counter", 1, f"s{i}"), timeout=60)
                 for i in range(12)]
        full = next(call for call in calls if _failed(call))
    assert full.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(full.trailing_metadata())["continuo-error"] in ("queue_full", "too_many_sequences")
    _, found = details(full)
    assert found["RetryInfo"].retry_delay.seconds >= 1
    assert int(dict(full.trailing_metadata())["retry-after"]) >= 1


def _failed(call):
    try:
        call.result(timeout=0.5)
    except grpc.FutureTimeoutError:
        return False
    except grpc.RpcError:
        return True
    return False


@pytest.mark.parametrize("loops", [1, 2])
def test_predictions_takes_a_first_piece_of_any_size(server, rpc, loops):
    """Also if it has more bytes than may wait for a client (stream.bufferBytes): nothing waits for this one."""
    lua = """
    local M = { api = 1 }

    function M.handle(req)
        coroutine.yield(("x"):rep(tonumber(req.text)))
        coroutine.yield("more ")
        return "end"
    end

    return M
    """
    client = rpc(server(Model("pieces", lua, stateful=False), flags=["--loops", loops]).grpc)
    for first in (10, 5_000_000):
        assert client.predict("pieces", first).prediction == b"x" * first + b"more end"


@pytest.mark.parametrize("last", [1000, 100_000, 5_000_000])
def test_predictions_joins_pieces_of_any_size(server, rpc, last):
    """A large piece lies in memory of its own, which is freed once."""
    lua = """
    local M = { api = 1 }

    function M.handle(req)
        coroutine.yield("first ")
        return ("x"):rep(tonumber(req.text))
    end

    return M
    """
    client = rpc(server(Model("pieces", lua, stateful=False)).grpc)
    for _ in range(5):
        assert client.predict("pieces", last).prediction == b"first " + b"x" * last


def test_stream_predictions_of_a_plain_handler_is_one_message(server, rpc):
    """TorchServe loses its worker in this case. Here the answer is one message."""
    client = rpc(server(counter()).grpc)
    for step, total in ((5, b"5"), (6, b"11")):
        answers = list(client.inference.StreamPredictions(request("counter", step, "a"), timeout=30))
        assert [answer.prediction for answer in answers] == [total]
        assert answers[0].sequence_id == "a"
    assert refused(client.inference.StreamPredictions, request("nobody", 1)).code().name == "NOT_FOUND"


def test_a_call_without_message_and_unknown_methods_are_refused_at_once(server, rpc):
    client = rpc(server(counter()).grpc)
    service = "/org.pytorch.serve.grpc.inference.InferenceAPIsService"
    for path in (f"{service}/Nothing", "/no.Such/Method"):
        call = client.channel.unary_unary(path)
        error = refused(call, b"", timeout=10)
        assert error.code().name == "UNIMPLEMENTED" and path.split("/")[-1] in error.details()
    no_message = client.channel.stream_unary(f"{service}/Predictions")
    assert refused(no_message, iter(()), timeout=10).code().name == "INTERNAL"


def test_bytes_that_are_no_message_are_refused(server, rpc):
    client = rpc(server(counter()).grpc)
    raw = client.channel.unary_unary("/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions")
    wrong = [b"\x0a\x05ab", b"\xff" * 11, b"\x1a\x02\x0a\x09", b"\x0b", b"\x00\x01",
             b"\x0b" * 500_000, b"\x0b" * 500_000 + b"\x0c" * 500_000]  # groups in groups, half a million deep
    for body in wrong:
        assert refused(raw, body, timeout=10).code().name == "INVALID_ARGUMENT", body
    invalid_text = refused(raw, b"\x0a\x02\xff\xfe", timeout=10)
    assert invalid_text.code().name == "INVALID_ARGUMENT" and "UTF-8" in invalid_text.details()


def entry(key, value):
    body = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value
    return b"\x1a" + bytes([len(body)]) + body


def test_of_a_key_that_comes_twice_the_last_value_counts(server, rpc):
    client = rpc(server(counter()).grpc)
    raw = client.channel.unary_unary("/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions")
    body = b"\x0a\x07counter" + entry(b"data", b"1") + entry(b"data", b"41") + b"\x22\x01q"
    assert b"41" in raw(body, timeout=10)


def test_many_empty_inputs_do_not_cost_memory(server, rpc):
    """Two megabytes of empty entries would become a hundred megabytes of structures."""
    client = rpc(server(counter()).grpc)
    raw = client.channel.unary_unary("/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions")
    error = refused(raw, b"\x0a\x07counter" + b"\x1a\x00" * 1_000_000, timeout=10)
    assert error.code().name == "INVALID_ARGUMENT" and "1000000 entries" in error.details()


def test_sizes_are_bounded_by_options(server, rpc):
    """max-request-size limits messages, and connection-memory limits metadata. Nothing above a limit reaches a model.
    """
    running = server(counter(), flags=["--max-request-size", 100_000])
    client = rpc(running.grpc)
    assert refused(client.predict, "counter", b"1" * 100_000).code().name == "RESOURCE_EXHAUSTED"
    big = (("big", "x" * 20_000),)
    assert refused(client.predict, "counter", 1, "s", metadata=big).code().name == "RESOURCE_EXHAUSTED"
    assert rpc(running.grpc).predict("counter", 1, "s").prediction == b"1"


@pytest.mark.parametrize("bytes_", [1 << 20, 10 << 20])
def test_large_messages_come_back_whole(server, rpc, bytes_):
    client = rpc(server(stateless(), flags=["--max-request-size", 64 << 20]).grpc)
    data = bytes(range(256)) * (bytes_ // 256)
    assert client.predict("echo", data).prediction == data


@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_understood(server, rpc, how):
    client = rpc(server(stateless()).grpc, compression=how)
    assert client.predict("echo", b"abc" * 5000).prediction == b"abc" * 5000


class Wire:
    """Stands between client and server and counts the bytes of answers."""

    def __init__(self, target):
        self.answered = 0
        self.target = address_of("http://" + target)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.here = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
                threading.Thread(target=self.pass_on, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self.pass_on, args=(server, client, True), daemon=True).start()

    def pass_on(self, one, other, counted):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self.answered += len(data) if counted else 0
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("options, compressed", [([], True), ([("grpc.compression_enabled_algorithms_bitset", 1)], False)])
def test_answers_are_compressed_for_clients_that_accept_it(server, rpc, options, compressed):
    """Answers from --compress-above to 256 KiB are compressed, in calls and in streams."""
    wire = Wire(server(stateless(), flags=["--compress-above", 1000]).grpc)
    client = rpc(wire.here, options=options)

    def cost(bytes_, how):
        before, body = wire.answered, b"abcd" * (bytes_ // 4)
        if how == "call":
            assert client.predict("echo", body).prediction == body
        else:
            answers = client.inference.StreamPredictions2(iter([request("echo", body)] * 3), timeout=30)
            assert [answer.prediction for answer in answers] == [body] * 3
        return wire.answered - before

    assert (cost(200_000, "call") < 20_000) == compressed
    assert (cost(200_000, "stream") < 60_000) == compressed
    assert cost(900, "call") > 900
    assert cost(400_000, "call") > 400_000


def test_without_the_option_answers_are_as_they_are(server, rpc):
    wire = Wire(server(stateless()).grpc)
    assert rpc(wire.here).predict("echo", b"a" * 100_000).prediction == b"a" * 100_000
    assert wire.answered > 100_000


def test_a_deadline_cancels_what_waits(server, rpc):
    """A deadline that has already passed cancels the call, too. Later steps run."""
    running = server(counter())
    client = rpc(running.grpc)
    client.predict("counter", 1, "s")
    with running.hold():
        for timeout in (0, 0.2):
            error = refused(client.inference.Predictions, request("counter", 1, "w"), timeout=timeout)
            assert error.code().name == "DEADLINE_EXCEEDED"
    assert client.predict("counter", 1, "t").prediction == b"1"


def test_calls_over_the_limit_are_refused_and_may_come_again(server, rpc):
    running = server(counter(), flags=["--grpc-max-calls", 4, "--loops", 1])
    first = rpc(running.grpc)
    first.predict("counter", 1, "s")
    with running.hold():
        held = [first.inference.Predictions.future(request("counter", 1, f"h{i}"), timeout=60) for i in range(4)]
        running.expect_outstanding("counter", 4)
        error = refused(rpc(running.grpc).predict, "counter", 1, "more")
        assert error.code().name == "RESOURCE_EXHAUSTED" and word(error) == "too_many_calls"
        assert details(error)[1]["RetryInfo"].retry_delay.seconds >= 1
    assert [call.result().prediction for call in held] == [b"1"] * 4
    assert first.predict("counter", 1, "more").prediction == b"1"


def test_connections_over_the_limit_are_closed_until_somebody_leaves(server, rpc):
    """Without the limit, clients of this port could use up all descriptors of the server. Silent clients do not count
    here: test_attack_grpc.py has them."""
    running = server(counter(), flags=["--grpc-max-connections", 20, "--max-connections-per-address", 1000])
    first = rpc(running.grpc)
    assert first.predict("counter", 1, "s").prediction == b"1"

    def speaking():
        """A client that has begun to speak HTTP/2: the preface, and a SETTINGS frame without settings."""
        client = socket.create_connection(address_of("http://" + running.grpc), limit(10))
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        return client

    held = [speaking() for _ in range(19)]
    assert all(client.recv(1) for client in held), "each has its answer"
    over = speaking()
    with contextlib.suppress(ConnectionResetError):
        assert over.recv(1) == b"", "closed at once"
    over.close()
    running.expect_log("event=grpc_connections_full", "max=20")
    assert first.predict("counter", 1, "s").prediction == b"2"
    for each in held:
        each.close()

    def is_served():
        with contextlib.suppress(grpc.RpcError):
            return rpc(running.grpc).predict("counter", 0, "s").prediction == b"2"

    expect(is_served, "a new client is served")


def test_new_clients_are_taken_again_when_there_are_descriptors(server, rpc):
    """When no descriptor is free, new clients wait, and connected ones are served. The log says so once."""
    running = server(counter())
    old = rpc(running.grpc)
    assert old.predict("counter", 1, "s").prediction == b"1"
    with running.without_descriptors():
        waiting = rpc(running.grpc).inference.Predictions.future(request("counter", 1, "s"), timeout=limit(20))
        running.expect_log("event=accept_failed")
        assert old.predict("counter", 1, "s").prediction == b"2"
    assert waiting.result().prediction == b"3"
    assert len([line for line in running.lines if "accept_failed" in line]) == 1


def test_unix_sockets_serve_grpc_too(server, rpc, folder):
    address = f"unix:{folder}/grpc.sock"
    running = server(counter(), flags=["--grpc-inference-address", address])
    assert running.grpc == address
    assert rpc(address).predict("counter", 2, "u").prediction == b"2"


def test_grpc_can_be_off(server):
    running = server(counter(), flags=["--grpc-inference-address", "none", "--grpc-management-address", "none"])
    assert (running.grpc, running.grpc_admin) == ("none", "none")
    assert running.client().step("counter", "a", 1).text == "1"


def test_metrics_count_calls(server, rpc):
    running = server(counter())
    client = rpc(running.grpc)
    client.predict("counter", 1, "s")
    refused(client.predict, "nobody", 1)
    assert running.metric("continuo_grpc_calls_total") == 2
    assert running.metric("continuo_grpc_errors_total") == 1


def test_a_stop_answers_what_runs(server, rpc):
    """Calls that are under way get their answers, and new ones are refused."""
    running = server(counter())
    client = rpc(running.grpc)
    client.predict("counter", 1, "s")
    with running.hold() as held:
        call = client.inference.Predictions.future(request("counter", 1, "s"), timeout=60)
        running.expect_outstanding("counter", 1)
        running.process.terminate()
        running.expect_log("event=draining")
        held.release()
    assert call.result().prediction == b"2"
    running.stop()


def test_describe_over_http_knows_steps_of_grpc(server, rpc):
    running = server(counter())
    rpc(running.grpc).predict("counter", 1, "s")
    assert running.describe("counter")["liveSequences"] == 1
