"""All requests that the server holds together are bounded (--max-held-requests), whatever protocol they came by."""

import contextlib
import gzip
import json
import socket

import grpc
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from attacking import SPARE_MB, bystander, resident_mb
from models import counter
from rpc import Rpc, refused
from test_v2_http import accumulator, identity
from test_v2_shared_memory import regions, shared_input  # noqa: F401
from waiting import expect
from websocketing import Closed, Stream

MB = 1_000_000
# On a slow machine a test takes longer than a client may stop, so no client is cut off for that here.
LIMIT = ["--max-held-requests", str(8 * MB), "--max-request-size", "2500000", "--min-rate", "0", "--body-timeout", "600000"]
SAYS = "the server holds requests of 8000000 bytes already (max-held-requests); try again"
PATH = "/predictions/counter"


def head(length=None, more=""):
    framing = ("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}") + more
    return f"POST {PATH} HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n".encode()


def begin(raw, length, chunked=False):
    """Sends a body but for its last byte."""
    raw.send(head(None if chunked else length) + (f"{length:x}\r\n".encode() if chunked else b"") + b"1" * (length - 1))


def has_room(s):
    """Would a body of 700 kB be let in? The server is asked before anything of it is sent, since a body that is let in
    would take the place of those that still arrive."""
    with contextlib.closing(s.raw("probe")) as raw:
        raw.send(head(700_000, "\r\nExpect: 100-continue"))
        status = raw.socket.recv(12, socket.MSG_WAITALL)
    assert status in (b"HTTP/1.1 100", b"HTTP/1.1 503")
    return status == b"HTTP/1.1 100"


@contextlib.contextmanager
def filled(s, n=4, length=1_900_000):
    """Clients that hold nearly all of the limit and wait before their last byte."""
    raws = [s.raw(f"c{i}") for i in range(n)]
    try:
        for raw in raws:
            begin(raw, length)
        expect(lambda: not has_room(s), "all have arrived", 20)
        yield raws
    finally:
        for raw in raws:
            raw.close()


def room_again(s):
    expect(lambda: has_room(s), "there is room again", 20)


@pytest.mark.load
@pytest.mark.usefixtures("any_loops")
def test_the_bodies_of_clients_that_stop_are_bounded(server):
    """40 clients stop before the last byte of 2.4 MB. Small requests are served meanwhile."""
    s = server(counter(), flags=LIMIT)
    before = resident_mb(s)
    raws = [s.raw(f"c{i}") for i in range(40)]
    with bystander(s) as by:
        for raw in raws:
            with contextlib.suppress(OSError):  # the server does not read the bodies that it refuses
                begin(raw, 2_400_000)
        late = s.raw("late")
        late.send(head(2_400_000))
        answer = late.answer()
    assert (answer.status, answer.message, answer.headers["Retry-After"]) == (503, SAYS, "1")
    assert by.peak_mb - before < 8 + 15 + SPARE_MB
    for raw in raws:
        raw.close()
    room_again(s)


def test_a_body_without_a_length_is_refused_at_its_end(server):
    s = server(counter(), flags=LIMIT)
    with filled(s):
        raw = s.raw("chunked")
        begin(raw, 1_500_000, chunked=True)
        raw.send(b"1\r\n0\r\n\r\n")
        answer = raw.answer()
        assert (answer.status, answer.message) == (503, SAYS)
        assert raw.is_closed_by_server()
    room_again(s)


def test_a_body_that_waits_is_finished(server):
    """The limit takes nothing from a request that it has let in."""
    s = server(counter(), flags=LIMIT)
    with filled(s) as raws:
        raws[0].send(b"1")
        assert "decimal integer" in raws[0].answer().message  # the handler cannot read so long a number
    room_again(s)


def test_a_compressed_body_counts_with_its_real_size(server):
    """3 kB that become 2 MB are refused while others hold requests, and served when they have gone."""
    s = server(accumulator(), counter(), flags=LIMIT)
    document = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}],
                           "parameters": {"sequence_id": 7, "sequence_start": True, "padding": "x" * 2 * MB}})
    packed = gzip.compress(document.encode())
    assert len(packed) < 65_536

    def send():
        return s.client("gzip").post("/v2/models/accumulator/infer", packed,
                                     headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    with filled(s):
        answer = send()
        assert (answer.status, answer.json["error"]) == (503, SAYS)
    room_again(s)
    assert SAYS not in send().text


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_inputs_in_shared_memory_count(server, regions, protocol):  # noqa: F811
    """The server copies them when the request comes, and holds them until its step is answered."""
    s = server(identity(), counter(), flags=[*LIMIT, "--allow-client-shm"])
    library, address = ((tritonclient.http, s.inference.removeprefix("http://")) if protocol == "http" else
                        (tritonclient.grpc, s.grpc))
    client = library.InferenceServerClient(address)
    _, key = regions(1_500_000)
    client.register_system_shared_memory("r", key, 1_500_000)
    inputs = [shared_input("UINT8", [1_500_000], "UINT8", "r", 1_500_000, library=library)]
    with filled(s):
        with pytest.raises(InferenceServerException) as error:
            client.infer("identity", inputs)
        assert error.value.message() == SAYS
        small = [shared_input("UINT8", [1000], "UINT8", "r", 1000, library=library)]
        assert client.infer("identity", small).as_numpy("UINT8").size == 1000
    room_again(s)
    assert client.infer("identity", inputs).as_numpy("UINT8").size == 1_500_000
    client.close()


def test_grpc_messages_count(server):
    s = server(counter(), flags=LIMIT)
    with Rpc(s.grpc) as rpc, filled(s):
        error = refused(rpc.predict, "counter", "1" * 1_500_000)
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, SAYS)
        assert rpc.predict("counter", "5").prediction == b"5"
    room_again(s)


def test_messages_of_streams_count(server):
    """The stream is closed with the code for "try again later", and goes on afterwards."""
    s = server(counter(), flags=LIMIT)
    with filled(s):
        with Stream(s, "counter", "a") as stream, pytest.raises(Closed) as closed:
            stream.put(type="step", text="1" * 1_500_000)
            stream.get()
        assert (closed.value.code, closed.value.reason) == (
            1013, "the server holds too many bytes of requests (max-held-requests)")
    room_again(s)
    with Stream(s, "counter", "a") as stream:
        assert stream.step(5)["step"] == 1
