"""Traces in a collector that others have written: Arize Phoenix takes the spans over OTLP, and its API shows them.

CONTINUO_PHOENIX names the program, for example FOLDER/bin/phoenix after `pip install arize-phoenix` in an environment of
its own. It needs some 15 s to start, so the tests share one."""

import datetime
import json
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from collector import check_spans
from models import counter
from ports import free_ports
from rpc import Rpc, request
from waiting import expect, limit
from websocketing import Stream, body_of

CALLER = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
SAMPLED = f"00-{CALLER}-{SPAN}-01"


class Shown:
    """One span as Phoenix's API shows it."""

    def __init__(self, span):
        self.name = span["name"]
        self.trace, self.id = span["context"]["trace_id"], span["context"]["span_id"]
        self.parent = span["parent_id"] or ""
        self.begin, self.end = (datetime.datetime.fromisoformat(span[key]) for key in ("start_time", "end_time"))
        self.attributes = span["attributes"]

    def __repr__(self):
        return f"{self.name} {self.id} of {self.parent or 'nobody'} in {self.trace} {self.attributes}"


class Phoenix:
    def __init__(self, program, folder):
        port, grpc_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self._log = open(folder / "log", "w+b")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen([program, "serve"], stdout=self._log, stderr=subprocess.STDOUT, cwd=folder,
                                         env=os.environ | {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port),
                                                           "PHOENIX_GRPC_PORT": str(grpc_port),
                                                           "PHOENIX_WORKING_DIR": str(folder),
                                                           "PHOENIX_TELEMETRY_ENABLED": "false"})
        try:
            expect(self._is_ready, "Phoenix answers", 120)
        except BaseException:
            self.close()
            raise

    def _is_ready(self):
        if self._process.poll() is not None:
            self._log.seek(0)
            raise AssertionError(f"Phoenix has ended: {self._log.read().decode(errors='replace')[-2000:]}")
        try:
            return self._get("/healthz") is not None
        except (urllib.error.URLError, ConnectionError):
            return False

    def _get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=limit(20)) as answer:
            return answer.read()

    def spans(self, sequence):
        """Returns the spans of a sequence's steps: {step: {name: span}}."""
        found, cursor = {}, ""
        while True:
            page = json.loads(self._get("/v1/projects/default/spans?limit=100" +
                                        (f"&cursor={urllib.parse.quote(cursor)}" if cursor else "")))
            for span in map(Shown, page["data"]):
                if span.attributes.get("continuo.sequence.id") == sequence:
                    found.setdefault(span.attributes["continuo.step"], {})[span.name] = span
            cursor = page["next_cursor"]
            if not cursor:
                return found

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(limit(20))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory):
    program = os.environ.get("CONTINUO_PHOENIX")
    if not program:
        pytest.skip("CONTINUO_PHOENIX does not name the program phoenix (pip install arize-phoenix)")
    made = Phoenix(program, tmp_path_factory.mktemp("phoenix"))
    yield made
    made.close()


def expect_steps(phoenix, sequence, steps):
    """Returns the spans of the steps when Phoenix shows all five of each."""
    def all_spans():
        found = phoenix.spans(sequence)
        return found if sum(map(len, found.values())) >= 5 * steps else None

    found = expect(all_spans, f"the spans of {steps} steps of {sequence}", 30)
    assert sorted(found) == list(range(1, steps + 1))
    return found


def three_steps(s, protocol, sequence):
    """Makes three steps, whose parent is the caller's span."""
    if protocol == "http":
        client = s.client()
        return [client.step("counter", sequence, 5, headers={"traceparent": SAMPLED}).text for _ in range(3)]
    if protocol == "grpc":
        with Rpc(s.grpc) as rpc:
            return [rpc.inference.Predictions(request("counter", 5, sequence), timeout=limit(30),
                                              metadata=[("traceparent", SAMPLED)]).prediction.decode()
                    for _ in range(3)]
    with Stream(s, "counter", sequence, headers={"traceparent": SAMPLED}) as stream:
        return [str(body_of(stream.step(5))) for _ in range(3)]


@pytest.mark.parametrize("protocol", ["http", "grpc", "websocket"])
def test_phoenix_shows_the_five_spans_of_each_step(server, phoenix, any_loops, protocol):
    """The answer's trace is found there, and each span has the right parent, the sequence and the step."""
    s = server(counter(), flags=["--otlp-endpoint", phoenix.url, "--otlp-interval", 20, "--trace-sample-rate", 0])
    sequence = f"{protocol}-{s.process.pid}"
    assert three_steps(s, protocol, sequence) == ["5", "10", "15"]
    for step, spans in expect_steps(phoenix, sequence, 3).items():
        check_spans(spans, sequence, step, SPAN)
        assert {span.trace for span in spans.values()} == {CALLER}
        assert {span.attributes["continuo.model"] for span in spans.values()} == {"counter"}


def test_phoenix_shows_a_trace_that_the_server_began(server, phoenix):
    """Without a caller's span the request has no parent, and the answer's header names its trace."""
    s = server(counter(), flags=["--otlp-endpoint", phoenix.url, "--otlp-interval", 20, "--trace-sample-rate", 1])
    sequence = f"own-{s.process.pid}"
    answer = s.client().step("counter", sequence, 5)
    spans = expect_steps(phoenix, sequence, 1)[1]
    check_spans(spans, sequence, 1)
    assert answer.headers["traceparent"] == f"00-{spans['request'].trace}-{spans['request'].id}-01"
