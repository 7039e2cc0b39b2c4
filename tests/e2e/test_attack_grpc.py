"""Hostile gRPC clients. Each attack has a bound: memory, and the time that a bystander waits."""

import contextlib
import socket
import struct
import time

import pytest

from attacking import SLOW, SPARE_MB, bystander, resident_mb
from h2 import DATA, HEADERS, H2, PREDICTIONS, PREFACE, RST_STREAM, SETTINGS, frame, message
from models import Model, counter
from rpc import Rpc, module, request
from waiting import expect, limit

CALL_MB = 0.02 if SLOW else 0.001  # what the server keeps for a call that has not begun

BIG = """
return { api = 1, step = function(_, req)
    return { body = string.rep("x", tonumber(req.body)) }
end }"""


def big():
    return Model("big", BIG, {"minWorkers": 1, "maxWorkers": 1, "batchSize": 1}, stateful=False)


def cancel_quickly(s, seconds, connections=1, **more):
    """Opens and cancels calls as fast as it can. Returns how many, and how many connections that took."""
    body, n, used = message("counter", "1", "victim"), 0, 0
    until = time.monotonic() + seconds
    lives = []
    while time.monotonic() < until:
        while len(lives) < connections:
            with contextlib.suppress(OSError):
                lives.append(H2(s.grpc, **more))
                used += 1
        for each in list(lives):
            try:
                each.socket.sendall(b"".join(each.cancelled(body) for _ in range(200)))
                n += 200
            except OSError:
                lives.remove(each)
    for each in lives:
        each.close()
    return n, used


@pytest.mark.load
@pytest.mark.parametrize("flags", [[], ["--token-auth"], ["--loops", "2"]], ids=["plain", "keys", "loops"])
def test_quickly_cancelled_calls_are_bounded(server, flags):
    """One connection once made the server grow by hundreds of megabytes in a second."""
    s = server(counter(), flags=flags)
    H2(s.grpc).close()  # the first client makes what gRPC needs
    expect(lambda: s.metric("continuo_grpc_connections") == 0, "it is closed", 10)
    before = resident_mb(s)
    began = time.monotonic()
    if "--token-auth" in flags:
        n, used = cancel_quickly(s, 8)
        peak = resident_mb(s)
    else:
        with bystander(s) as by:
            n, used = cancel_quickly(s, 8)
        peak = by.peak_mb
    print(f"{n} calls cancelled over {used} connections in {time.monotonic() - began:.1f} s, "
          f"{before:.0f} MB before, {peak:.0f} MB at most")
    assert used > 1, "the connection was cut"
    assert peak - before < 25 + SPARE_MB
    assert s.metric("continuo_grpc_connections_cut_total") > 0


@pytest.mark.load
def test_quickly_cancelled_calls_of_many_connections_are_bounded(server):
    """Their address may not cancel more calls than four connections."""
    s = server(counter())
    before = resident_mb(s)
    with bystander(s) as by:
        n, used = cancel_quickly(s, 8, connections=50)
    print(f"{n} calls over {used} connections, {before:.0f} MB before, {by.peak_mb:.0f} MB at most")
    assert by.peak_mb - before < 40 + SPARE_MB


def test_an_ordinary_number_of_cancelled_calls_is_served(server, rpc):
    """300 in a burst, as a client with deadlines has them."""
    s = server(counter())
    client = rpc(s.grpc)
    assert client.predict("counter", 1, "a").prediction == b"1"
    with s.hold():
        calls = [client.inference.Predictions.future(request_of(i), timeout=limit(30)) for i in range(300)]
        for call in calls:
            call.cancel()
    assert client.predict("counter", 1, "a").prediction == b"2"
    assert s.metric("continuo_grpc_connections_cut_total") == 0


@pytest.fixture
def rpc():
    with contextlib.ExitStack() as stack:
        yield lambda target, **more: stack.enter_context(Rpc(target, **more))


def request_of(i):
    return request("counter", 1, f"c{i}")


def test_silent_connections_keep_nobody_out(server, rpc):
    """2,100 connections that say nothing once shut the port for 72 s."""
    s = server(counter())
    address = (s.grpc.rsplit(":", 1)[0], int(s.grpc.rsplit(":", 1)[1]))
    silent = [socket.create_connection(address, source_address=(f"127.0.0.{2 + i % 7}", 0)) for i in range(2100)]
    began = time.monotonic()
    assert rpc(s.grpc).predict("counter", 1, "a", timeout=5).prediction == b"1"
    took = time.monotonic() - began
    print(f"served {took * 1000:.0f} ms after 2,100 silent connections")
    assert took < limit(1)
    for each in silent:
        each.close()


def test_silent_and_foreign_connections_are_closed_after_the_header_timeout(server):
    """A client that speaks another protocol is closed at once."""
    s = server(counter(), flags=["--header-timeout", "500"])
    H2(s.grpc).close()
    silent, half, foreign = (H2(s.grpc, preface=False) for _ in range(3))
    half.socket.sendall(PREFACE[:10])
    foreign.socket.sendall(b"nonsense of another protocol")
    for each in (foreign, silent, half):
        assert each.is_cut(limit(5))
    assert s.metric("continuo_grpc_connections_refused_total") == 3
    live = H2(s.grpc)
    expect(lambda: s.metric("continuo_grpc_connections") == 1, "it is open", 5)
    time.sleep(1)  # twice the limit, which an HTTP/2 client without calls does not have
    assert not live.is_cut()
    live.close()
    expect(lambda: s.metric("continuo_grpc_connections") == 0, "the close is noticed", 5)


def test_one_address_cannot_take_all_connections(server, rpc):
    s = server(counter(), flags=["--max-connections-per-address", "20", "--grpc-max-connections", "30"])
    lives = [H2(s.grpc, source=("127.0.0.5", 0)) for _ in range(20)]
    expect(lambda: s.metric("continuo_grpc_connections") == 20, "they are open", 10)
    assert H2(s.grpc, source=("127.0.0.5", 0)).is_cut(limit(5))
    assert rpc(s.grpc).predict("counter", 1, "a").prediction == b"1", "another address is served"
    lives.pop().close()
    expect(lambda: s.metric("continuo_grpc_connections") == 20, "it is closed", 5)
    again = H2(s.grpc, source=("127.0.0.5", 0))
    expect(lambda: s.metric("continuo_grpc_connections") == 21, "there is room again", 5)
    for each in [*lives, again]:
        each.close()


@pytest.mark.load
def test_answers_that_nobody_reads_are_bounded(server):
    """60 connections with a window of 0 once held 3.5 GB."""
    s = server(counter(), big(), flags=["--max-unread-answers", 64 << 20, "--loops", "1"])
    H2(s.grpc).close()
    before = resident_mb(s)
    body = message("big", "6000000")
    lives = []
    with bystander(s) as by:
        for _ in range(60):
            lives.append(H2(s.grpc, window=0))
            lives[-1].socket.sendall(b"".join(lives[-1].call(body) for _ in range(10)))
        expect(lambda: s.metric("continuo_grpc_calls_total") >= 600, "all calls have come", 60)
        expect(lambda: s.outstanding("big") == 0, "the worker has answered", 120)
    print(f"{before:.0f} MB before, {by.peak_mb:.0f} MB at most, {resident_mb(s):.0f} MB now")
    assert s.metric("continuo_unread_answer_bytes") <= 64 << 20
    assert by.peak_mb - before < 64 + 100 + SPARE_MB
    for each in lives:
        each.close()
    expect(lambda: s.metric("continuo_grpc_calls_open") == 0, "nothing is left", 20)
    expect(lambda: s.metric("continuo_unread_answer_bytes") == 0, "nothing waits any more", 10)


def test_open_calls_without_messages_are_bounded_by_keys(server):
    """100 connections with as many calls as they may have, of which none sends its message, and none has a key. Each
    call is refused as soon as it is read, and so takes memory only until its client has the answer."""
    s = server(counter(), flags=["--token-auth"])
    H2(s.grpc).close()
    before = resident_mb(s)
    lives = []
    for _ in range(100):
        lives.append(H2(s.grpc))
        with contextlib.suppress(OSError):
            lives[-1].socket.sendall(b"".join(lives[-1].head()[0] for _ in range(600)))
    expect(lambda: s.metric("continuo_grpc_calls_open") == 0, "all calls are refused", 60)
    peak = resident_mb(s)
    print(f"{before:.0f} MB before, {peak:.0f} MB")
    assert peak - before < 100 * 500 * CALL_MB + SPARE_MB
    for each in lives:
        each.close()


def test_messages_without_end_are_bounded(server):
    """20 connections whose calls send 60 of 64 MB each, without a key."""
    s = server(counter(), flags=["--token-auth"])
    H2(s.grpc).close()
    before = resident_mb(s)
    lives = [H2(s.grpc) for _ in range(20)]
    for each in lives:
        head, stream = each.head()
        begin = head + frame(DATA, 0, stream, b"\0" + struct.pack(">I", 60 << 20))
        each.socket.settimeout(0.2)
        with contextlib.suppress(OSError):
            each.socket.sendall(begin + frame(DATA, 0, stream, bytes(16384)) * 200)
    peak = resident_mb(s)
    print(f"{before:.0f} MB before, {peak:.0f} MB")
    assert peak - before < 25 + SPARE_MB
    for each in lives:
        each.close()


def bold(target, **more):
    """A client that has taken the server's settings, so that it may send frames of 256 KiB."""
    each = H2(target, **more)
    assert SETTINGS in each.socket.recv(1000)[3:4]
    each.socket.sendall(frame(SETTINGS, 1))
    return each


def in_frames(stream, body):
    return b"".join(frame(DATA, 0, stream, body[at:at + 250_000]) for at in range(0, len(body), 250_000))


def test_messages_of_steps_that_wait_are_bounded(server):
    """40 streams of 64 steps with 60 kB each, whose client reads no answer. They once held 154 MB."""
    s = server(counter(), flags=["--grpc-memory", 16 << 20, "--loops", "1"])
    H2(s.grpc).close()
    before = resident_mb(s)
    each = bold(s.grpc, window=0, path=PREDICTIONS.replace("Predictions", "StreamPredictions2"))
    body = message("nobody", "x" * 60_000) * 64
    for _ in range(40):
        head, stream = each.head()
        each.socket.sendall(head + in_frames(stream, body))
    expect(lambda: s.metric("continuo_grpc_calls_total") >= 40, "all calls have come", 20)
    peak = resident_mb(s)
    print(f"{before:.0f} MB before, {peak:.0f} MB")
    assert peak - before < 16 + SPARE_MB
    each.close()
    expect(lambda: s.metric("continuo_grpc_calls_open") == 0, "nothing is left", 20)
    with Rpc(s.grpc) as rpc:
        assert rpc.predict("counter", "1" * 18, "a").prediction == b"1" * 18


def checking(service):
    """The request message of a health check."""
    module("inference_pb2")
    request_of_health = module("grpc.health.v1.health_pb2").HealthCheckRequest
    body = request_of_health(service=service).SerializeToString()
    return b"\0" + struct.pack(">I", len(body)) + body


@pytest.mark.parametrize("method, service_bytes, calls", [("Watch", 250_000, 300), ("Check", 20_000_000, 30)])
def test_questions_for_health_are_bounded(server, method, service_bytes, calls):
    """They need no key. The service is not known, so Watch would go on for ever, and kept 0.5 MB for each call; and a
    refused Check kept its message until its client had closed the call."""
    s = server(counter(), flags=["--token-auth", "--grpc-memory", 16 << 20, "--loops", "1"])
    H2(s.grpc).close()
    before = resident_mb(s)
    each = bold(s.grpc, path=f"/grpc.health.v1.Health/{method}")
    body = checking("x" * service_bytes)
    for _ in range(calls):
        head, stream = each.head()
        each.socket.sendall(head + in_frames(stream, body))
    expect(lambda: s.metric("continuo_grpc_calls_total") >= calls, "all calls have come", 20)
    peak = resident_mb(s)
    print(f"{before:.0f} MB before, {peak:.0f} MB")
    assert peak - before < 16 + SPARE_MB
    each.close()


def test_a_call_is_refused_for_its_key_before_its_message_comes(server):
    s = server(counter(), flags=["--token-auth"])
    each = H2(s.grpc)
    each.socket.sendall(each.head()[0])
    assert HEADERS in each.kinds(limit(5)), "the refusal comes although no message was sent"
    each.close()


@pytest.mark.parametrize("flags, metadata", [(["--token-auth"], []), ([], [("grpc-timeout", "soon")])],
                         ids=["key", "time"])
@pytest.mark.parametrize("path", ["/org.pytorch.serve.grpc.inference.InferenceAPIsService/StreamPredictions2",
                                  "/inference.GRPCInferenceService/ModelStreamInfer"])
def test_a_refused_call_is_cancelled_before_it_is_answered(server, path, flags, metadata):
    """Both frames come together, and the method does not know of the call."""
    s = server(counter(), flags=flags)
    each = H2(s.grpc, path=path, metadata=metadata)
    head, stream = each.head()
    each.socket.sendall(head + frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
    expect(lambda: s.metric("continuo_grpc_errors_total") == 1 and s.metric("continuo_grpc_calls_open") == 0,
           "the call is over", 10)
    each.close()


def test_calls_over_the_limit_of_a_connection_wait(server, rpc):
    """The client is told how many calls it may have open (SETTINGS)."""
    s = server(counter(), flags=["--grpc-max-streams", "7"])
    each = H2(s.grpc, path=PREDICTIONS)
    each.socket.settimeout(limit(5))
    got = each.socket.recv(1000)
    assert got[3] == SETTINGS and struct.pack(">HI", 3, 7) in got
    each.close()
    client = rpc(s.grpc)
    calls = [client.inference.Predictions.future(request_of(i), timeout=limit(30)) for i in range(50)]
    assert [call.result().prediction for call in calls] == [b"1"] * 50
    assert SLOW or s.metric("continuo_grpc_errors_total") == 0
