"""/metrics counts sequences, batches and errors, and programs that read metrics can read it."""

import re
import shutil
import subprocess
import time
from threading import Thread

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from client import Client
from collector import Collector
from models import counter, stateless
from server import address_of
from waiting import expect

START = {"ts_request_sequence_start": "true"}
END = {"ts_request_sequence_end": "true"}


def reader(s):
    return Client(address_of(s.metrics), s.transcript, "metrics")


def page(s, query="", method="GET"):
    answer = reader(s).request(method, "/metrics" + query)
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return answer.text


def families(text):
    """By name, as a reader of metrics sees them. Each sample stands under its family."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def sample(s, name, **labels):
    for family in families(page(s)).values():
        for one in family.samples:
            if one.name == name and labels.items() <= one.labels.items():
                return one.value
    return None


def test_sequences_are_counted_by_what_became_of_them(server):
    """Opened, live, ended, expired and deleted ones, by model and version, and never by id."""
    s = server(counter(sequenceMaxIdleMSec=2000), clock=True)
    client = s.client()
    for name in ("a", "b", "c"):
        assert client.step("counter", name, 1, headers=START).status == 200
    assert sample(s, "continuo_sequences_live", model="counter", version="1.0") == 3
    assert client.step("counter", "a", 1, headers=END).status == 200
    assert s.admin().delete("/models/counter/sequences/b").status == 200
    s.clock.advance(3000)
    expect(lambda: sample(s, "continuo_sequences_closed_total", model="counter", reason="idle") == 1, "c expired")
    assert sample(s, "continuo_sequences_closed_total", model="counter", reason="ended") == 1
    assert sample(s, "continuo_sequences_closed_total", model="counter", reason="deleted") == 1
    assert sample(s, "continuo_sequences_opened_total", model="counter") == 3
    assert sample(s, "continuo_sequences_live", model="counter") == 0
    assert "seq" not in {label for f in families(page(s)).values() for one in f.samples for label in one.labels}


def test_steps_batches_and_times_are_counted_once_each(server):
    """A step is counted once in each histogram. The batch has the rows that waited together."""
    s = server(counter(batchSize=8))
    with s.hold():
        steps = [Thread(target=lambda i=i: s.client(f"c{i}").step("counter", f"s{i}", 1)) for i in range(4)]
        for step in steps:
            step.start()
        s.expect_outstanding("counter", 4)
    for step in steps:
        step.join()
    for name in ("continuo_step_duration_seconds", "continuo_queue_duration_seconds"):
        assert sample(s, name + "_count", model="counter") == 4
        assert 0 <= sample(s, name + "_sum", model="counter") < 60
    assert sample(s, "continuo_batch_rows_sum", model="counter") == 4
    assert sample(s, "continuo_batch_rows_count", model="counter") == 1
    assert sample(s, "continuo_handler_duration_seconds_count", model="counter") == 1
    assert sample(s, "continuo_jobs_total", model="counter") == 4
    assert sample(s, "continuo_jobs_waiting", model="counter") == 0


def stages(s, what, model="counter"):
    """Returns {stage: count or sum}."""
    return {one.labels["stage"]: one.value for one in families(page(s))["continuo_stage_duration_seconds"].samples
            if one.name.endswith("_" + what) and one.labels["model"] == model}


def test_the_stages_of_a_step_are_counted_and_add_up(server):
    """Each step counts once in each stage that it reached, and the stages are not longer than the steps."""
    s = server(counter())
    client = s.client()
    assert "continuo_stage_duration_seconds_bucket" not in page(s)
    began = time.monotonic()
    for _ in range(5):
        assert client.step("counter", "a", 1).status == 200
    took = time.monotonic() - began
    assert stages(s, "count") == dict.fromkeys(("read", "parse", "queue", "batch_wait", "handler", "commit"), 5)
    assert sample(s, "continuo_reply_duration_seconds_count") == 5
    # The client may have an answer a moment before the server has noted that it was sent.
    assert 0 < sum(stages(s, "sum").values()) + sample(s, "continuo_reply_duration_seconds_sum") < took + 0.05
    assert client.step("counter", "b", 1, headers={"Idempotency-Key": "k"}).text == "1"
    assert client.step("counter", "b", 1, headers={"Idempotency-Key": "k"}).headers["Continuo-Replayed"] == "true"
    assert stages(s, "count") == {"read": 7, "parse": 7, "queue": 7, "batch_wait": 6, "handler": 6, "commit": 6}
    assert sample(s, "continuo_reply_duration_seconds_count") == 7


def test_a_step_that_waits_counts_as_waiting(server):
    """Time is counted where a step spent it: until its body was there, in the queue, or at a worker that was busy."""
    s = server(counter(), clock=True, flags=["--loops", "1"])
    slow = s.raw("slow")
    slow.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: a\r\nContent-Length: 2\r\n\r\n1")
    expect(lambda: sample(s, "continuo_http_connections") == 1, "the connection is there")
    other = s.client()
    assert all(other.step("counter", "b", 1).status == 200 for _ in range(10))  # by now the loop has read the head, too
    s.clock.advance(2000)
    next_step = s.raw("next")
    with s.hold():
        slow.send("2")
        s.expect_outstanding("counter", 1)
        next_step.send("POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: a\r\nContent-Length: 1\r\n\r\n3")
        s.expect_outstanding("counter", 2)
        s.clock.advance(1000)
    assert slow.answer().text == "12" and next_step.answer().text == "15"
    times = stages(s, "sum")
    assert times["read"] >= 2  # the body of the first one
    assert times["batch_wait"] >= 1  # the first one, whose worker was held
    assert times["queue"] >= 1  # the other one, which waited for the first one
    assert stages(s, "count")["read"] == stages(s, "count")["queue"] == 12


def test_stages_can_be_switched_off(server):
    s = server(counter(), flags=["--tuning", "all,-stage-times"])
    assert s.client().step("counter", "a", 1).status == 200
    assert "continuo_stage_duration_seconds_bucket" not in page(s)
    assert sample(s, "continuo_reply_duration_seconds_count") == 0
    assert sample(s, "continuo_step_duration_seconds_count", model="counter") == 1


def test_refusals_are_counted_by_error(server):
    """Each kind of 429 is counted under its own word."""
    s = server(counter(maxNumSequence=1))
    client = s.client()
    assert client.step("counter", "a", 1).status == 200
    for _ in range(3):
        assert client.step("counter", "b", 1).status == 429
    assert sample(s, "continuo_job_errors_total", model="counter", error="too_many_sequences") == 3
    assert sample(s, "continuo_jobs_refused_total", model="counter") == 3


def test_a_dead_worker_and_its_rescued_step_are_counted(server):
    s = server(counter())
    client = s.client()
    assert client.step("counter", "a", 1).status == 200
    s.kill_worker("counter")
    assert client.step("counter", "a", 1).status == 200
    assert sample(s, "continuo_worker_deaths_total", model="counter") == 1
    assert sample(s, "continuo_worker_starts_total", model="counter") == 2
    assert sample(s, "continuo_workers_ready", model="counter") == 1


def test_workers_tell_what_they_hold(server):
    """Workers report the bytes of their states, cached and stored, once a second."""
    s = server(counter())
    client = s.client()
    for i in range(10):
        assert client.step("counter", f"s{i}", 1).status == 200
    expect(lambda: sample(s, "continuo_states_stored", model="counter") == 10, "ten records are told of")
    assert sample(s, "continuo_state_stored_bytes", model="counter") >= 4096
    assert sample(s, "continuo_states_cached", model="counter") == 10
    assert sample(s, "continuo_state_cached_bytes", model="counter") > 0
    assert sample(s, "continuo_worker_resident_bytes", model="counter") > 1 << 20
    assert 0 < sample(s, "continuo_worker_busy_seconds_total", model="counter") < 1


def test_what_workers_hold_without_a_store_is_added_up(server):
    """With durability none each worker has its own states, which are added up. A store that all workers share counts
    once."""
    s = server(counter(durability="none", minWorkers=2, maxWorkers=2), counter("kept", minWorkers=2, maxWorkers=2))
    client = s.client()
    for i in range(8):
        for model in ("counter", "kept"):
            assert client.step(model, f"s{i}", 1).status == 200
    for model in ("counter", "kept"):
        assert all(worker["liveSequences"] > 0 for worker in s.workers(model))
        expect(lambda: sample(s, "continuo_states_stored", model=model) == 8, f"eight records of {model}")


def test_a_reader_may_ask_for_some_families_only(server):
    s = server(counter(), stateless())
    text = page(s, "?name[]=continuo_jobs_total&name%5B%5D=continuo_batch_rows_count")
    assert set(families(text)) == {"continuo_jobs", "continuo_batch_rows"}
    assert {one.labels["model"] for one in families(text)["continuo_jobs"].samples} == {"counter", "echo"}
    assert page(s, "?name[]=nothing") == ""
    assert page(s, method="POST") != ""
    assert reader(s).get("/metrics?name[]=%zz").status == 400


def test_a_label_keeps_what_the_model_is_called(server):
    """A model that is gone leaves no line behind."""
    s = server()
    s.register(stateless(name="odd-name_1"))
    assert sample(s, "continuo_workers_ready", model="odd-name_1", version="1.0") == 1
    assert s.admin().delete("/models/odd-name_1").status == 200
    assert "odd-name_1" not in page(s)


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed (Debian package prometheus)")
def test_promtool_finds_nothing_to_complain_about(server, tmp_path):
    """promtool checks only our own metrics, because TorchServe's names break its rules."""
    s = server(counter(), flags=["--metrics-mode", "log", "--log-dir", str(tmp_path)])
    s.client().step("counter", "a", 1)
    checked = subprocess.run(["promtool", "check", "metrics"], input=page(s), capture_output=True, text=True, timeout=30)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def openmetrics(s):
    answer = reader(s).get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return {family.name: family for family in openmetrics_parser.text_string_to_metric_families(answer.text)}


def test_openmetrics_has_the_same_samples(server):
    """A strict reader of OpenMetrics reads the page, and finds each sample of the other format with its value."""
    s = server(counter(), stateless())
    s.client().step("counter", "a", 1)
    s.client().step("counter", "a", "wrong")
    plain = {re.match(r"\w+", line).group() for line in page(s).splitlines() if line[0] != "#"}
    found = openmetrics(s)
    assert plain == {one.name for f in found.values() for one in f.samples}
    assert found["continuo_jobs"].type == "counter" and found["continuo_sequences_live"].type == "gauge"
    assert found["ts_inference_latency_microseconds"].type == "unknown"
    assert not [one for f in found.values() for one in f.samples if one.exemplar]


def test_exemplars_name_the_trace_of_a_step(server):
    """The bucket of the step has its trace, and the values of the exemplars lie in their buckets."""
    collector = Collector()
    s = server(counter(), stateless(), flags=["--otlp-endpoint", collector.url, "--otlp-interval", 20,
                                              "--trace-sample-rate", 1])
    told = {s.client().step("counter", "a", 1).headers["traceparent"].split("-")[1] for _ in range(20)}

    def exemplars():
        return [(one, one.exemplar) for one in openmetrics(s)["continuo_step_duration_seconds"].samples if one.exemplar]

    expect(exemplars, "exemplars")
    for one, exemplar in exemplars():
        assert exemplar.labels["trace_id"] in told and one.labels["model"] == "counter"
        assert 0 < exemplar.value <= float(one.labels["le"]) and exemplar.timestamp
    collector.close()
