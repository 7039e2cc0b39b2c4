"""TorchServe's metrics.yaml says which metrics exist."""

from models import Model, counter
from test_handler_metrics import LUA
from test_metrics import families, page, sample
from test_startup_errors import refuses
from test_torchserve_metrics import counted

# Written like TorchServe's own file, with anchors for the dimensions.
FILE = """
dimensions:
  - &model_name "ModelName"
  - &level "Level"
ts_metrics:
  counter:
    - name: Requests2XX
      unit: Count
      dimensions: [*level, "Hostname"]
    - {name: ts_inference_requests_total, unit: Count, dimensions: ["model_name", "model_version", "hostname"]}
  gauge:
    - {name: MemoryUsed, unit: Megabytes, dimensions: [*level, "Hostname"]}
model_metrics:
  counter:
    - {name: tokens, unit: Tokens, dimensions: [*model_name, *level, kind, long]}
  gauge:
    - {name: HandlerTime, unit: ms, dimensions: [*model_name, *level]}
    - {name: token_time, unit: ms, dimensions: []}
"""


def start(server, tmp_path, *flags):
    (tmp_path / "metrics.yaml").write_text(FILE)
    s = server(Model("talk", LUA), flags=["--metrics-config", str(tmp_path / "metrics.yaml"), *flags])
    assert s.client().step("talk", "a", b"speech four").text == "ok"
    return s


def theirs(s):
    return {name for name in families(page(s)) if not name.startswith("continuo_")}


def test_the_file_says_which_metrics_there_are(server, tmp_path):
    """The file applies to metrics of the server and of handlers. Its unit is used, and a metric of another kind is left
    out."""
    s = start(server, tmp_path)
    assert theirs(s) == {"Requests2XX", "ts_inference_requests", "MemoryUsed", "HandlerTime", "tokens"}
    assert counted(s, "tokens", ModelName="talk", kind="speech", long="true") == 4
    assert "# HELP tokens Torchserve prometheus counter metric with unit: Tokens\n" in page(s)
    assert sample(s, "continuo_handler_samples_dropped_total", model="talk") == 2  # weights, token_time
    s.expect_log("event=handler_metric_left_out")


def test_auto_detect_takes_what_the_file_does_not_name(server, tmp_path):
    """A metric that contradicts the file is still left out."""
    s = start(server, tmp_path, "--metrics-auto-detect=true")
    assert sample(s, "weights", ModelName="talk") == 12.5
    assert "token_time" not in theirs(s)
    assert sample(s, "continuo_handler_samples_dropped_total", model="talk") == 1


def test_the_machines_metrics_can_be_left_out(server):
    s = server(counter(), flags=["--disable-system-metrics=true"])
    assert not theirs(s) & {"CPUUtilization", "MemoryUsed", "DiskUsage", "DiskUtilization"}
    assert "Requests2XX" in theirs(s)


def test_a_file_that_is_wrong_stops_the_start_with_its_place(server, tmp_path):
    """TorchServe would run without metrics in this case."""
    path = tmp_path / "metrics.yaml"
    for text, why in (("model_metrics:\n  gauge:\n    - {name: x, unit: ''}\n", "metrics.yaml:3:23: unit: expected"),
                      ("model_metrics:\n  meter: []\n", "metrics.yaml:2:"),
                      ("ts_metrics: *all\n", "an alias (*name) may only stand")):
        path.write_text(text)
        refuses(server(counter(), flags=["--metrics-config", str(path)], start=False), why)
