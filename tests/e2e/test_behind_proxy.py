"""Runs each configuration of docs/behind-a-proxy.md as it is on the page, with other addresses."""

import contextlib
import pathlib
import re
import subprocess

import grpc
import pytest

from client import Stream
from models import BIN, ROOT, Model, counter
from proxying import SPELLINGS, Proxy, program
from rpc import Rpc
from server import address_of
from waiting import limit
from websocketing import Stream as WebSocket, body_of

PAGE = (ROOT / "docs" / "behind-a-proxy.md").read_text()


def block(name):
    """Returns a whole file from the page. The file's first line has its name."""
    found = re.search(rf"^```\w+\n(# {re.escape(name)}\n.*?)^```$", PAGE, re.M | re.S)
    assert found, f"docs/behind-a-proxy.md has no {name}"
    return found.group(1)


def streamer():
    return Model("streamer", (ROOT / "examples/counter/handler.lua").read_text(),
                 (ROOT / "examples/counter/streaming-config.yaml").read_text())


@pytest.fixture(params=["nginx", "haproxy", "envoy"])
def proxied(request, server, folder, transcript):
    """Yields (proxy, servers): a proxy and two servers behind it, each with its own state."""
    program(request.param)
    servers = [server(counter(), streamer()) for _ in range(2)]
    place = pathlib.Path(folder) / request.param
    place.mkdir()
    proxy = Proxy(request.param, place, transcript, servers, block)
    try:
        proxy.expect_up()
        yield proxy, servers
    finally:
        proxy.stop()


def test_every_sequence_goes_to_its_server_by_each_spelling_of_its_header(proxied):
    """All names of the header mean the same sequence and server, and both servers get some sequences. nginx must not
    drop the name with underscores."""
    proxy, servers = proxied
    with contextlib.closing(proxy.client()) as client:
        for step, spelling in enumerate(SPELLINGS * 2, 1):
            for i in range(40):
                answer = client.post("/predictions/counter", "1", headers={spelling: f"device-{i}"})
                assert (answer.status, answer.text) == (200, str(step)), (spelling, i, answer)
    live = [s.describe("counter")["liveSequences"] for s in servers]
    assert sum(live) == 40 and min(live) > 0, live


def test_an_nginx_that_drops_the_header_is_told(server, folder, transcript):
    """Without underscores_in_headers each step is a new sequence with status 200. The log says so once, and doctor
    names cause and remedy. Clients that write hyphens are not affected."""
    program("nginx")
    servers = [server(counter()) for _ in range(2)]
    proxy = Proxy("nginx", folder, transcript, servers, block, change=("underscores_in_headers on;", ""))
    try:
        proxy.expect_up()
        client = proxy.client()
        for _ in range(300):
            answer = client.post("/predictions/counter", "1", headers={"ts_request_sequence_id": "a"})
            assert (answer.status, answer.text) == (200, "1")  # it should be the sum
        s = next(s for s in servers if s.describe("counter")["sequences"]["idsMissing"])
        s.expect_log("event=sequence_ids_missing", "model=counter", "underscores_in_headers on")
        assert sum(each.metric('continuo_steps_without_id_total{model="counter",version="1.0"}')
                   for each in servers) == 300
        said = subprocess.run([BIN / "continuo-ctl", "--server", s.management, "doctor"], capture_output=True, text=True,
                              timeout=limit(60), check=False)
        assert "nearly all steps arrive through a proxy without a sequence id" in said.stdout
        assert "underscores_in_headers on" in said.stdout and "Continuo-Sequence" in said.stdout
        for _ in range(256):  # of which one server has all
            for name in "bcdefgh":
                client.post("/predictions/counter", "1", headers={"Continuo-Sequence": name})
            if not any(each.describe("counter")["sequences"]["idsMissing"] for each in servers):
                break
        else:
            pytest.fail("the finding stays although every step has its id now")
    finally:
        proxy.stop()


def test_a_streamed_answer_arrives_piece_by_piece(proxied):
    """The first two pieces arrive while the handler still runs; then another step tells the handler to stop. A proxy
    that collected the answer would have delivered all eleven pieces."""
    proxy, _ = proxied
    with contextlib.closing(proxy.client()) as client:
        client.post("/predictions/streamer", "2", headers={"Continuo-Sequence": "s"})
        stream = Stream(("127.0.0.1", proxy.http), proxy._transcript, "/predictions/streamer", 5,
                        {"Continuo-Sequence": "s"})
        first = stream.piece() + stream.piece()  # the head may take the first one along
        assert 1 < len(first) < 11
        assert client.post("/predictions/streamer", "-1", headers={"Continuo-Sequence": "s"}).text.strip() == "-1"
        assert len(first + stream.rest()) < 11


def test_connections_to_the_servers_are_kept(proxied):
    """A step through the proxy does not need a new connection to the server each time."""
    proxy, servers = proxied
    before = client_ports(servers)  # an earlier test's server may have had this port
    with contextlib.closing(proxy.client()) as client:
        for _ in range(60):
            assert client.post("/predictions/counter", "1", headers={"Continuo-Sequence": "kept"}).status == 200
    assert len(client_ports(servers) - before) < 30  # 60 without: each leaves a socket in TIME_WAIT


def client_ports(servers):
    """Returns the sockets, open or in TIME_WAIT, that have a server's inference port at one end."""
    wanted = {f"{address_of(s.inference)[1]:04X}" for s in servers}
    found = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote = line.split()[1:3]
        if remote.rpartition(":")[2] in wanted:
            found.add(local)
        elif local.rpartition(":")[2] in wanted and remote.rpartition(":")[2] != "0000":
            found.add(remote)
    return found


def test_a_step_is_sent_once_and_to_its_own_server_only(proxied):
    """The server of a sequence dies during a step. The client gets an error, and the other server never sees the
    sequence."""
    proxy, servers = proxied
    with contextlib.closing(proxy.client()) as client:
        name = "mine"
        assert client.post("/predictions/counter", "1", headers={"Continuo-Sequence": name}).status == 200
        owner = next(s for s in servers if s.describe("counter")["liveSequences"] == 1)
        other = next(s for s in servers if s is not owner)
        with contextlib.closing(proxy.client()) as waiting, owner.hold():
            waiting._connection = waiting._connect()
            waiting._connection.request("POST", "/predictions/counter", "1", {"Continuo-Sequence": name})
            owner.expect_outstanding("counter", 1)
            owner.kill()
            assert waiting._connection.getresponse().status in (502, 503, 504)
        refused = client.post("/predictions/counter", "1", headers={"Continuo-Sequence": name})
        assert refused.status in (502, 503, 504), refused
        assert other.describe("counter")["liveSequences"] == 0


def test_grpc_passes_with_its_metadata(proxied):
    """Each sequence goes to one server, chosen by the metadata that name it in any spelling. A stream does, too."""
    proxy, servers = proxied
    client = Rpc(f"127.0.0.1:{proxy.grpc}")
    for step, spelling in enumerate(SPELLINGS, 1):
        for i in range(20):
            metadata = ((spelling.lower(), f"call-{i}"),)
            try:
                answer = client.predict("counter", 1, metadata=metadata)
            except grpc.RpcError as error:
                pytest.fail(f"{spelling}: {error}")
            assert answer.prediction == str(step).encode(), (spelling, i)
    live = [s.describe("counter")["liveSequences"] for s in servers]
    assert sum(live) == 20 and min(live) > 0, live
    client.close()


def test_streams_go_to_the_server_of_their_sequence(proxied):
    """A WebSocket names its sequence in its path. It meets the steps that came over HTTP, and is told when it breaks.
    Envoy keeps a stream that is closed for a second, so there are few of them."""
    proxy, servers = proxied
    base = f"http://127.0.0.1:{proxy.http}"
    with contextlib.closing(proxy.client()) as client:
        for i in range(8):
            assert client.post("/predictions/counter", "1", headers={"Continuo-Sequence": f"device-{i}"}).text == "1"
            with WebSocket(None, "counter", f"device-{i}", base=base,
                           headers={"Origin": base}) as stream:
                assert stream.hello["next"] == 2
                answers = [stream.step(1) for _ in range(5)]
                assert [body_of(answer) for answer in answers] == ["2", "3", "4", "5", "6"]
            with WebSocket(None, "counter", f"device-{i}", base=base, query={"last": 5}) as stream:
                missed = stream.get()
                assert (missed["step"], body_of(missed), missed["replayed"]) == (6, "6", True)
    live = [s.describe("counter")["liveSequences"] for s in servers]
    assert sum(live) == 8 and min(live) > 0, live
