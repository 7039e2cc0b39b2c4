"""TorchServe's metrics under its names: on /metrics, or as lines of its metric logs."""

import re

from models import counter, stateless
from test_logs import expect_line, lines
from test_metrics import families, page, sample
from test_swap import COUNT, swapped

LINE = re.compile(r"^\S+Z - ([^|]+)\.(\w+):([0-9.e+-]+)\|#([^|]*)\|#hostname:([^,]+)(?:,requestID:[0-9a-f,-]+)?,timestamp:(\d{10})$")


def counted(s, name, **labels):
    """Returns the family of a counter. The parser adds _total to a name that does not have it."""
    found = sample(s, name, **labels)
    return sample(s, name + "_total", **labels) if found is None else found


def test_requests_are_counted_by_model_and_version(server):
    """As in TorchServe, model_version is "default" if the request names no version."""
    s = server(counter(), stateless())
    client = s.client()
    for _ in range(3):
        assert client.step("counter", "a", 1).status == 200
    for _ in range(2):
        assert client.post("/predictions/counter/1.0", "1", headers={"ts_request_sequence_id": "a"}).status == 200
    assert client.post("/predictions/nothing", "1").status == 404
    count = "ts_inference_requests_total"
    assert counted(s, count, model_name="counter", model_version="default") == 3
    assert counted(s, count, model_name="counter", model_version="1.0") == 2
    assert counted(s, count, model_name="echo") is None
    assert counted(s, "ts_inference_latency_microseconds", model_name="counter", model_version="1.0") > 0
    assert counted(s, "ts_queue_latency_microseconds", model_name="counter", model_version="1.0") >= 0
    assert counted(s, "Requests2XX", Level="Host") >= 5
    assert counted(s, "Requests4XX", Level="Host") == 1
    assert counted(s, "Requests5XX", Level="Host") == 0


def test_only_requests_of_clients_are_counted_and_each_once(server):
    """A description asks the handler, too, and a step of a pinned sequence passes through two versions. Neither is
    counted twice."""
    s, client = swapped(server, "pin")
    assert s.admin().get("/models/counter?customized=true").status == 200
    assert client.step("counter", "s1", 1).text == "2"
    assert counted(s, "ts_inference_requests_total", model_name="counter", model_version="default") == COUNT + 1


def test_the_default_set_is_there_in_torchserves_form(server):
    """Names, types, labels, HELP texts, the comma after the last label and the decimal point in each value are
    TorchServe's."""
    s = server(counter())
    assert s.client().step("counter", "a", 1).status == 200
    text = page(s)
    host = r'Level="Host",Hostname="[^"]+",} \d+\.\d+'
    for name in ("QueueTime", "WorkerThreadTime", "CPUUtilization", "MemoryUtilization", "MemoryUsed",
                 "MemoryAvailable", "DiskUtilization", "DiskUsage", "DiskAvailable"):
        assert f"# TYPE {name} gauge\n" in text
        assert re.search(rf"^{name}{{{host}", text, re.M), name
    assert "# HELP QueueTime Torchserve prometheus gauge metric with unit: Milliseconds\n" in text
    assert re.search(r'^WorkerLoadTime{WorkerName="W-\d+-counter_1.0",' + host, text, re.M)
    for name in ("HandlerTime", "PredictionTime"):
        assert re.search(rf'^{name}{{ModelName="counter",Level="Model",Hostname="[^"]+",}} \d+\.\d+', text, re.M)
    assert 0 < sample(s, "MemoryUtilization") < 100
    assert sample(s, "DiskUsage") > 0
    assert 0 <= sample(s, "CPUUtilization") <= 100
    assert set(families(page(s, "?name[]=QueueTime"))) == {"QueueTime"}


def test_in_log_mode_they_are_lines_and_not_on_the_page(server, tmp_path):
    """The lines have TorchServe's format. Our own metrics stay on the page."""
    s = server(counter(), flags=["--metrics-mode", "log", "--log-dir", str(tmp_path / "logs")])
    assert s.client().step("counter", "a", 1).status == 200
    log, model_log = tmp_path / "logs" / "ts_metrics.log", tmp_path / "logs" / "model_metrics.log"
    for name, dims in (("Requests2XX.Count:1.0", "Level:Host"), ("QueueTime.Milliseconds:", "Level:Host"),
                       ("WorkerThreadTime.Milliseconds:", "Level:Host"),
                       ("WorkerLoadTime.Milliseconds:", "-counter_1.0,Level:Host"),
                       ("ts_inference_requests_total.Count:1.0", "model_name:counter,model_version:default"),
                       ("ts_inference_latency_microseconds.Microseconds:", "model_name:counter"),
                       ("ts_queue_latency_microseconds.Microseconds:", "model_name:counter"),
                       ("CPUUtilization.Percent:", "Level:Host"), ("DiskUsage.Gigabytes:", "Level:Host")):
        assert dims in expect_line(log, f" - {name}")
    expect_line(model_log, " - HandlerTime.ms:", "|#ModelName:counter,Level:Model|#hostname:")
    expect_line(model_log, " - PredictionTime.ms:")
    for path in (log, model_log):
        for line in lines(path):
            assert LINE.match(line), line
    assert all(name.startswith("continuo_") for name in families(page(s)))


def test_legacy_mode_has_three_on_the_page_and_the_rest_as_lines(server, tmp_path):
    s = server(counter(), flags=["--metrics-mode", "legacy", "--log-dir", str(tmp_path / "logs")])
    assert s.client().step("counter", "a", 1).status == 200
    theirs = {name for name in families(page(s)) if not name.startswith("continuo_")}
    assert theirs == {"ts_inference_requests", "ts_inference_latency_microseconds", "ts_queue_latency_microseconds"}
    expect_line(tmp_path / "logs" / "ts_metrics.log", "QueueTime.Milliseconds:")
    assert not any("ts_inference" in line for line in lines(tmp_path / "logs" / "ts_metrics.log"))
