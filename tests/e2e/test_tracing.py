"""Traces: what a collector gets of a step, and what the server does when there is none."""

import threading

import pytest

from client import Client
from collector import ALL, Collector, check_spans
from models import Model, counter, stateless
from rpc import Rpc, request
from server import address_of
from waiting import expect
from websocketing import Stream, binary_step

CALLER = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
SAMPLED = f"00-{CALLER}-{SPAN}-01"

# Answers with the traceparent that the handler got.
TELL_LUA = """
local M = { api = 1 }

function M.init() return {} end

function M.step(state, req)
    return { text = (req.headers["traceparent"] or "none") .. " " .. (req.headers["tracestate"] or "none") }
end

return M
"""


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


def traced(collector, *more, rate=1):
    return ["--otlp-endpoint", collector.url, "--otlp-interval", 20, "--trace-sample-rate", rate, *more]


def expect_traces(collector, n, timeout=20):
    """Returns the traces when the collector has at least n of them, the oldest first."""
    expect(lambda: len(collector.traces()) >= n, f"{n} traces at the collector", timeout)
    return list(collector.traces().values())


def check_step(spans, sequence, step, parent=""):
    """The spans of one step, with what only the messages say and not every collector shows."""
    check_spans(spans, sequence, step, parent)
    assert spans["request"].kind == 2
    assert all(span.attributes["continuo.model"] and span.resource["service.name"] == "continuo"
               for span in spans.values())


def metric(s, name):
    page = Client(address_of(s.metrics), s.transcript, "metrics").get("/metrics").text
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name + " "))


def test_a_step_over_http_has_five_spans(server, collector, any_loops):
    """The caller's span is the parent of the request's, and the answer names the request's span."""
    s = server(counter(), flags=traced(collector))
    answer = s.client().step("counter", "a", 5, headers={"traceparent": SAMPLED, "tracestate": "rojo=1"})
    assert answer.status == 200
    spans = expect_traces(collector, 1)[0]
    check_step(spans, "a", 1, SPAN)
    assert spans["request"].trace == CALLER and spans["request"].state == "rojo=1"
    assert answer.headers["traceparent"] == f"00-{CALLER}-{spans['request'].id}-01"
    assert collector.requests[0][0] == "/v1/traces"
    assert collector.requests[0][1]["Content-Type"] == "application/x-protobuf"
    s.client().step("counter", "a", 5)
    spans = [each for each in expect_traces(collector, 2) if each["request"].trace != CALLER][0]
    check_step(spans, "a", 2)
    assert spans["request"].state == ""


def test_a_step_over_grpc_has_five_spans(server, collector, any_loops):
    """Unary calls answer with a traceparent in their initial metadata."""
    s = server(counter(), flags=traced(collector))
    with Rpc(s.grpc) as rpc:
        call = rpc.inference.Predictions.with_call(request("counter", 5, "g"), timeout=30,
                                                   metadata=[("traceparent", SAMPLED)])[1]
    spans = expect_traces(collector, 1)[0]
    check_step(spans, "g", 1, SPAN)
    assert dict(call.initial_metadata())["traceparent"] == f"00-{CALLER}-{spans['request'].id}-01"


def test_each_step_of_a_grpc_stream_has_five_spans(server, collector, any_loops):
    """The stream's traceparent is the parent of all of its steps. A message may name a parent of its own."""
    s = server(counter(), flags=traced(collector, rate=0))
    other = "11111111111111111111111111111111"
    with Rpc(s.grpc) as rpc:
        messages = [request("counter", 1, "s"), request("counter", 2, "s"),
                    request("counter", 3, "s", traceparent=f"00-{other}-{SPAN}-01"),
                    request("counter", 4, "s", traceparent=f"00-{other}-{SPAN}-00")]
        answers = list(rpc.inference.StreamPredictions2(iter(messages), timeout=30,
                                                        metadata=[("traceparent", SAMPLED)]))
    assert [answer.prediction for answer in answers] == [b"1", b"3", b"6", b"10"]
    expect(lambda: len(collector.spans) >= 15, "the spans of three steps")
    steps = {}
    for span in collector.spans:
        steps.setdefault(span.attributes["continuo.step"], {})[span.name] = span
    assert sorted(steps) == [1, 2, 3]
    for step, spans in steps.items():
        check_step(spans, "s", step, SPAN)
        assert {span.trace for span in spans.values()} == {other if step == 3 else CALLER}


@pytest.mark.parametrize("form", ["plain", "json", "binary"])
def test_each_step_of_a_websocket_has_five_spans(server, collector, any_loops, form):
    """The handshake's traceparent is the parent of all of its steps, and opening or resuming a stream has no trace."""
    s = server(counter(), flags=traced(collector, rate=0))
    for first in 1, 3:
        query = {"last": first - 1} if first > 1 and form != "plain" else None
        with Stream(s, "counter", "w", form=form, headers={"traceparent": SAMPLED}, query=query) as stream:
            for _ in range(2):
                stream.send({"plain": "1", "json": '{"type":"step","data":1}', "binary": binary_step(b"1")}[form])
                stream.get()
    expect(lambda: len(collector.spans) >= 20, "the spans of four steps")
    steps = {}
    for span in collector.spans:
        steps.setdefault(span.attributes["continuo.step"], {})[span.name] = span
    assert sorted(steps) == [1, 2, 3, 4] and len(collector.spans) == 20
    for step, spans in steps.items():
        check_step(spans, "w", step, SPAN)
        assert {span.trace for span in spans.values()} == {CALLER}


def test_a_message_of_a_websocket_may_name_its_own_trace(server, collector):
    """Its traceparent counts in place of the handshake's, and the answer or the error names the request's span."""
    s = server(Model("tell", TELL_LUA), counter(), flags=traced(collector, rate=0))
    other, unsampled = "11111111111111111111111111111111", f"00-{CALLER}-{SPAN}-00"
    headers = {"traceparent": SAMPLED, "tracestate": "rojo=1"}
    with Stream(s, "tell", "m", headers=headers) as stream:
        first = stream.step(0)
        named = stream.step(0, traceparent=f"00-{other}-{SPAN}-01", tracestate="verde=2")
        none = [stream.step(0, traceparent=text) for text in (unsampled, "garbage", "", "a\nb", "\u20ac")]
        wrong = stream.step(0, traceparent=7)
    assert (wrong["error"], wrong["status"]) == ("bad_request", 400) and "traceparent" in wrong["message"]
    with Stream(s, "counter", "m", headers=headers) as stream:
        failed = stream.step("four")
    expect(lambda: len(collector.spans) >= 14, "the spans of three steps")
    found = {(span.name, span.trace, span.attributes["continuo.model"]): span for span in collector.spans}
    assert {key[1:] for key in found} == {(CALLER, "tell"), (other, "tell"), (CALLER, "counter")}
    assert first["text"] == f"00-{CALLER}-{found['handler', CALLER, 'tell'].id}-01 rojo=1"
    assert named["text"] == f"00-{other}-{found['handler', other, 'tell'].id}-01 verde=2"
    assert found["request", other, "tell"].state == "verde=2"
    assert first["traceparent"] == f"00-{CALLER}-{found['request', CALLER, 'tell'].id}-01"
    assert named["traceparent"] == f"00-{other}-{found['request', other, 'tell'].id}-01"
    assert failed["error"] == "handler_failed"
    assert failed["traceparent"] == f"00-{CALLER}-{found['request', CALLER, 'counter'].id}-01"
    assert [answer["text"] for answer in none] == [f"{unsampled} none", "garbage none", " none", "none none", "none none"]
    assert not any("traceparent" in answer for answer in none)


def test_a_handler_gets_the_trace_in_its_headers(server, collector):
    """What the handler calls can be a child of its span, and not of the caller's."""
    s = server(Model("tell", TELL_LUA), flags=traced(collector, rate=0))
    answer = s.client().step("tell", "a", "", headers={"Traceparent": SAMPLED, "tracestate": "rojo=1"})
    spans = expect_traces(collector, 1)[0]
    assert answer.text == f"00-{CALLER}-{spans['handler'].id}-01 rojo=1"
    unsampled = f"00-{CALLER}-{SPAN}-00"
    assert s.client().step("tell", "a", "", headers={"traceparent": unsampled}).text == unsampled + " none"
    assert s.client().step("tell", "a", "").text == "none none"
    assert len(collector.traces()) == 1


def test_the_caller_decides_and_else_chance(server, collector):
    """With a rate of 0 only callers that record their part are traced; with a rate of 0.5 about half of the rest."""
    s = server(stateless(), flags=traced(collector, rate="0.5"))
    client = s.client()
    for _ in range(200):
        answer = client.post("/predictions/echo", b"x", headers={"traceparent": f"00-{CALLER}-{SPAN}-00"})
        assert "traceparent" not in answer.headers
    told = sum("traceparent" in client.post("/predictions/echo", b"x").headers for _ in range(200))
    assert 50 < told < 150
    assert len(expect_traces(collector, told)) == told
    assert all(set(spans) == ALL - {"commit"} for spans in collector.traces().values())


@pytest.mark.parametrize("garbage", ["", "garbage", "00-0-0-01", f"ff-{CALLER}-{SPAN}-01", SAMPLED.upper(),
                                     f"00-{'0' * 32}-{SPAN}-01", f"00-{CALLER}-{'0' * 16}-01", SAMPLED + "-more",
                                     "00-" + "f" * 4000])
def test_a_garbage_traceparent_begins_a_new_trace(shared_server, module_collector, garbage):
    """The step is served, and its trace has no parent and no tracestate."""
    s = module_collector["server"] = module_collector.get("server") or shared_server(
        counter(), flags=traced(module_collector["collector"]))
    name = f"s{len(garbage)}-{garbage.count('0')}"
    answer = s.client().step("counter", name, 1, headers={"traceparent": garbage, "tracestate": "a=" + "b" * 600})
    assert answer.status == 200 and answer.text == "1"
    got = module_collector["collector"]
    expect(lambda: any(span.attributes["continuo.sequence.id"] == name for span in got.spans), "its spans")
    spans = {span.name: span for span in got.spans if span.attributes["continuo.sequence.id"] == name}
    check_step(spans, name, 1)
    assert spans["request"].trace != CALLER and spans["request"].state == ""


@pytest.fixture(scope="module")
def module_collector():
    made = {"collector": Collector()}
    yield made
    made["collector"].close()


def test_a_failed_step_says_so_and_has_no_commit(server, collector):
    s = server(counter(), flags=traced(collector))
    answer = s.client().step("counter", "a", "not a number")
    assert answer.status >= 400
    spans = expect_traces(collector, 1)[0]
    assert set(spans) == ALL - {"commit"}
    assert spans["request"].failed and spans["request"].attributes["error.type"] == "handler_failed"
    assert answer.headers["traceparent"].split("-")[1] == spans["request"].trace


def test_a_step_that_a_worker_died_with_is_one_trace(server, collector):
    """The trace says that the step was sent twice; it is answered once."""
    s = server(counter(), flags=traced(collector))
    with s.hold():
        step = threading.Thread(target=lambda: s.client("c").step("counter", "a", 1))
        step.start()
        s.expect_outstanding("counter", 1)
        s.kill_worker("counter")
    step.join()
    spans = expect_traces(collector, 1)[0]
    check_step(spans, "a", 1)
    assert spans["batch"].attributes["continuo.sent"] == 2


def steps_are_served(s, n=50):
    client = s.client()
    return [client.step("counter", "a", 1).text for _ in range(n)] == [str(i + 1) for i in range(n)]


@pytest.mark.parametrize("trouble", ["down", "slow", "500", "garbage"])
def test_a_broken_collector_harms_nothing(server, collector, trouble, any_loops):
    """Steps are served as ever, what cannot be sent is dropped and counted, and the log says why."""
    flags = traced(collector, "--trace-queue", 8, "--otlp-timeout", 60000)
    if trouble == "down":
        flags[1] = "http://127.0.0.1:9"
    if trouble == "slow":
        collector.go_on.clear()
    if trouble == "500":
        collector.status = 500
    collector.body = b"\xff" * 100 if trouble == "garbage" else b""
    s = server(counter(), flags=flags)
    assert steps_are_served(s)
    if trouble == "garbage":
        expect(lambda: metric(s, "continuo_trace_spans_exported_total") >= 5, "exported spans")
        return
    expect(lambda: metric(s, "continuo_trace_spans_dropped_total") >= 5, "dropped spans", 30)
    assert metric(s, "continuo_trace_spans_exported_total") == 0
    if trouble in ("500", "down"):
        s.expect_log("event=traces_not_exported", timeout=30)
    s.stop()  # does not wait for the collector


def test_the_collector_gets_the_headers_that_the_operator_gives(server, collector):
    """They often have a password, so they are not printed with the configuration."""
    s = server(counter(), flags=traced(collector, "--trace-service", "asr"),
               env={"CONTINUO_OTLP_HEADERS": "Authorization=Bearer secret,x-tenant=a=b"})
    assert steps_are_served(s, 1)
    spans = expect_traces(collector, 1)[0]
    assert spans["request"].resource["service.name"] == "asr"
    headers = collector.requests[0][1]
    assert headers["Authorization"] == "Bearer secret" and headers["x-tenant"] == "a=b"


def test_rejected_spans_count_as_dropped(server, collector):
    """The collector's answer says how many spans it did not take."""
    collector.body = b"\x0a\x02\x08\x02"  # partial_success { rejected_spans: 2 }
    s = server(counter(), flags=traced(collector))
    assert steps_are_served(s, 1)
    expect(lambda: metric(s, "continuo_trace_spans_dropped_total") == 2, "two spans rejected")
    assert metric(s, "continuo_trace_spans_exported_total") == 3


def test_without_an_endpoint_nothing_is_traced(server):
    s = server(Model("tell", TELL_LUA))
    answer = s.client().step("tell", "a", "", headers={"traceparent": SAMPLED})
    assert "traceparent" not in answer.headers and answer.text == SAMPLED + " none"


@pytest.mark.parametrize("flags, words", [
    (["--otlp-endpoint", "127.0.0.1:4318"], "--otlp-endpoint is"),
    (["--otlp-endpoint", "http://user:pass@127.0.0.1:4318"], "--otlp-headers"),
    (["--otlp-endpoint", "http://127.0.0.1:4318", "--otlp-headers", "nothing"], "NAME=VALUE"),
    (["--trace-sample-rate", "2"], "a number from 0 to 1"),
    (["--trace-sample-rate", "0.0000001"], "at most 6 decimals"),
    (["--trace-sample-rate", "some"], "a number from 0 to 1"),
    (["--trace-queue", "0"], "an integer from 1"),
])
def test_wrong_options_are_refused_at_the_start(server, flags, words):
    s = server(counter(), flags=flags, start=False)
    assert s.launch().exit_code() != 0
    assert any(words in line for line in s.lines), s.lines
