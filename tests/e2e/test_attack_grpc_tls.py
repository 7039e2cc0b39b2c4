"""The attacks of test_attack_grpc.py on a gRPC port with TLS."""

import contextlib
import socket
import time

import pytest

from attacking import SPARE_MB, bystander, resident_mb
from h2 import H2, message, tls_context
from models import Model, counter
from rpc import Rpc, request
from test_attack_grpc import BIG, cancel_quickly
from test_grpc_tls import GRPCS, Identity, trusting
from waiting import expect, limit


@pytest.fixture
def identity(folder):
    return Identity(folder, "first")


def serving(server, identity, *models, flags=()):
    return server(counter(), *models, flags=[*GRPCS, *identity.flags(), *flags])


@pytest.mark.load
@pytest.mark.parametrize("connections", [1, 20])
def test_quickly_cancelled_calls_are_bounded(server, identity, connections):
    """One connection once made the server grow by hundreds of megabytes in a second."""
    s = serving(server, identity)
    H2(s.grpc, tls=tls_context()).close()
    before = resident_mb(s)
    with bystander(s, times=3) as by:
        n, used = cancel_quickly(s, 8, connections, tls=tls_context())
    print(f"{n} calls cancelled over {used} connections, {before:.0f} MB before, {by.peak_mb:.0f} MB at most")
    assert used > connections, "connections were cut"
    assert by.peak_mb - before < 40 + SPARE_MB
    assert s.metric("continuo_grpc_connections_cut_total") > 0


def test_an_ordinary_number_of_cancelled_calls_is_served(server, identity):
    s = serving(server, identity)
    with Rpc(s.grpc, trusting(identity)) as client:
        assert client.predict("counter", 1, "a").prediction == b"1"
        with s.hold():
            calls = [client.inference.Predictions.future(request("counter", 1, f"c{i}"), timeout=limit(30))
                     for i in range(300)]
            for call in calls:
                call.cancel()
        assert client.predict("counter", 1, "a").prediction == b"2"
    assert s.metric("continuo_grpc_connections_cut_total") == 0


def test_connections_of_a_port_and_of_an_address_are_bounded(server, identity):
    s = serving(server, identity, flags=["--grpc-max-connections", "25", "--max-connections-per-address", "20"])
    lives = [H2(s.grpc, source=("127.0.0.5", 0), tls=tls_context()) for _ in range(20)]
    expect(lambda: s.metric("continuo_grpc_connections") == 20, "they are open", 10)
    with pytest.raises(OSError):
        H2(s.grpc, source=("127.0.0.5", 0), tls=tls_context())
    lives += [H2(s.grpc, source=("127.0.0.6", 0), tls=tls_context()) for _ in range(5)]
    with pytest.raises(OSError):
        H2(s.grpc, source=("127.0.0.7", 0), tls=tls_context())
    expect(lambda: s.metric("continuo_grpc_connections_refused_total") == 2, "both are counted", 10)
    for each in lives:
        each.close()
    expect(lambda: s.metric("continuo_grpc_connections") == 0, "they are closed", 20)
    with Rpc(s.grpc, trusting(identity)) as client:
        assert client.predict("counter", 1, "a").prediction == b"1"


def test_silent_connections_keep_nobody_out(server, identity):
    """They never begin their handshake."""
    s = serving(server, identity, flags=["--header-timeout", "2000"])
    host, port = s.grpc.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port)), source_address=("127.0.0.5", 0)) for _ in range(2100)]
    began = time.monotonic()
    with Rpc(s.grpc, trusting(identity)) as client:
        assert client.predict("counter", 1, "a", timeout=limit(30)).prediction == b"1"
    print(f"served {(time.monotonic() - began) * 1000:.0f} ms after 2,100 silent connections")
    assert s.metric("continuo_grpc_connections_refused_total") > 0
    expect(lambda: s.metric("continuo_grpc_connections") == 0, "the handshakes' time has passed", 30)
    for each in silent:
        each.close()


@pytest.mark.load
def test_answers_that_nobody_reads_are_bounded(server, identity):
    """20 connections with a window of 0 ask for 200 answers of 6 MB."""
    big = Model("big", BIG, {"minWorkers": 1, "maxWorkers": 1, "batchSize": 1}, stateful=False)
    s = serving(server, identity, big, flags=["--max-unread-answers", 64 << 20, "--loops", "1"])
    before = resident_mb(s)
    body = message("big", "6000000")
    lives = []
    with bystander(s) as by:
        for _ in range(20):
            lives.append(H2(s.grpc, window=0, tls=tls_context()))
            lives[-1].socket.sendall(b"".join(lives[-1].call(body) for _ in range(10)))
        expect(lambda: s.metric("continuo_grpc_calls_total") >= 200, "all calls have come", 60)
        expect(lambda: s.outstanding("big") == 0, "the worker has answered", 120)
    assert s.metric("continuo_unread_answer_bytes") <= 64 << 20
    assert by.peak_mb - before < 64 + 100 + SPARE_MB
    for each in lives:
        with contextlib.suppress(OSError):
            each.close()
