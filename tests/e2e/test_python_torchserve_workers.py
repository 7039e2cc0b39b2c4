"""TorchServe's Python handlers and their workers: what a metrics file declares, and what scaling down does."""

import re

import pytest

from client import Client
from server import address_of
from test_python_torchserve import EXAMPLE, REMEMBERS, pytestmark, served, step  # noqa: F401 - a fixture and others
from waiting import expect

COUNTS = """
from ts.metrics.metric_type_enum import MetricTypes


class Handler:
    def initialize(self, context):
        self.tokens = context.metrics.get_metric("Tokens")
        self.load = context.metrics.get_metric("Load", MetricTypes.GAUGE)
        self.time = context.metrics.get_metric("HandlerTime", MetricTypes.GAUGE)

    def handle(self, data, context):
        self.tokens.add_or_update(3, ["loud"])
        self.load.add_or_update(0.5, [])
        return ["%s %s %s" % (self.tokens.unit, self.tokens.dimension_names, self.time.dimension_names)] * len(data)
"""
METRICS = """
ts_metrics:
  counter:
    - {name: Requests2XX, unit: Count, dimensions: []}
model_metrics:
  counter:
    - {name: Tokens, unit: Count, dimensions: [Kind]}
  gauge:
    - {name: Load, unit: Percent, dimensions: []}
"""
OUTSIDE = """
def handle(data, context):
    if data is None:
        return
    try:
        with open(bytes(data[0]["body"])) as file:
            return [file.read()] * len(data)
    except OSError as error:
        return [type(error).__name__] * len(data)
"""
ONE_WORKER = "minWorkers: 1\nmaxWorkers: 1\n"
TWO_WORKERS = "minWorkers: 2\nmaxWorkers: 2\nbatchSize: 4\nsequenceBatching: true\nsequenceMaxIdleMSec: 60000\n"


def test_a_metric_that_only_the_metrics_file_names_is_there(served, folder):  # noqa: F811
    """As in TorchServe, where handlers seldom add metrics that the file declares."""
    (folder / "counts.py").write_text(COUNTS)
    (folder / "counts.yaml").write_text(ONE_WORKER)
    (folder / "metrics.yaml").write_text(METRICS)
    ts = served(("counts", folder / "counts.py", folder / "counts.yaml"),
                settings="metrics_config=metrics.yaml\nmetrics_mode=prometheus\n")
    answer = ts.client().request("POST", "/predictions/counts", b"x")
    assert answer.text == "Count ['Kind'] ['ModelName', 'Level']"

    def page():
        return Client(address_of(ts.ready.group(3)), ts.transcript, "metrics").get("/metrics").text

    expect(lambda: re.search(r'^Tokens\{Kind="loud",Hostname="[^"]*",\} 3\.0$', page(), re.M), "the counter")
    expect(lambda: re.search(r'^Load\{Hostname="[^"]*",\} 0\.5$', page(), re.M), "the gauge")


@pytest.mark.parametrize("declared", [False, True], ids=["no file", "a file"])
def test_metrics_whose_dimensions_are_modelname_and_level_are_there(served, folder, declared):  # noqa: F811
    """Those that add_counter() and its like make, and those that a metrics file declares with these dimensions."""
    (folder / "adds.py").write_text("""
from ts.metrics.dimension import Dimension
from ts.metrics.metric_type_enum import MetricTypes


def handle(data, context):
    if data is None:
        return
    metrics = context.metrics
    metrics.add_counter("Rows", 2)
    metrics.add_time("Decoding", 3.5, None, "ms", [Dimension("Step", "one")])
    metrics.add_size("Image", 4, unit="kB")
    metrics.add_percent("Padding", 50)
    metrics.add_metric("Words", 6, "count", metric_type=MetricTypes.GAUGE)
    metrics.add_error("Broken", 7)
    if not hasattr(context, "calls"):
        context.calls = metrics.add_metric_to_cache("Calls", "count", ["ModelName", "Level"], MetricTypes.COUNTER)
    context.calls.add_or_update(8, [context.model_name, "Model"])
    return ["done"] * len(data)
""")
    (folder / "adds.yaml").write_text(ONE_WORKER)
    (folder / "metrics.yaml").write_text("""
ts_metrics:
  counter: []
model_metrics:
  counter:
    - {name: Rows, unit: Count, dimensions: [ModelName, Level]}
    - {name: Calls, unit: Count, dimensions: [ModelName, Level]}
    - {name: Broken, unit: Count, dimensions: [Level]}
  gauge:
    - {name: Decoding, unit: ms, dimensions: [Step, ModelName, Level]}
    - {name: Image, unit: Kilobytes, dimensions: [ModelName, Level]}
    - {name: Padding, unit: Percent, dimensions: [ModelName, Level]}
    - {name: Words, unit: Count, dimensions: [ModelName, Level]}
""")
    ts = served(("adds", folder / "adds.py", folder / "adds.yaml"),
                settings="metrics_mode=prometheus\n" + ("metrics_config=metrics.yaml\n" if declared else ""))
    assert ts.client().request("POST", "/predictions/adds", b"x").text == "done"

    def page():
        return Client(address_of(ts.ready.group(3)), ts.transcript, "metrics").get("/metrics").text

    for name, value in (("Rows", 2.0), ("Decoding", 3.5), ("Image", 4.0), ("Padding", 50.0), ("Words", 6.0),
                        ("Broken", 7.0), ("Calls", 8.0)):
        line = expect(lambda name=name: re.search(rf"^{name}\{{.*", page(), re.M), name).group()
        assert float(line.rsplit(" ", 1)[1]) == value, line
        assert 'ModelName="adds"' in line or (name, declared) == ("Broken", True), line
        assert 'Level="Model"' in line and ('Step="one"' in line) == (name == "Decoding"), line


def test_scaling_down_closes_the_sequences_that_only_the_stopped_worker_remembers(served, folder):  # noqa: F811
    """They must neither go on from nothing nor hang; those of the other worker go on."""
    (folder / "remembers.py").write_text(REMEMBERS)
    (folder / "remembers.yaml").write_text(TWO_WORKERS)
    ts = served(("own", folder / "remembers.py", folder / "remembers.yaml"),
                settings="continuo.torchserve-errors=false\n")
    names = [f"s{number}" for number in range(16)]
    for number in (1, 2, 3):
        assert [step(ts, "own", name, number).text for name in names] == [str(sum(range(number + 1)))] * 16
    scaled = ts.admin().request("PUT", "/models/own?min_worker=1&max_worker=1&synchronous=true")
    assert scaled.status == 200, scaled
    answers = {name: step(ts, "own", name, 4) for name in names}
    lost = [name for name in names if answers[name].status != 200]
    assert lost and all(answers[name].status == 410 and "(worker_lost)" in answers[name].message for name in lost)
    assert {answers[name].text for name in names if name not in lost} <= {"10"}
    kept = [name for name in names if name not in lost]
    assert [step(ts, "own", name, 5).text for name in kept] == ["15"] * len(kept)
    begun = ts.client().request("POST", "/predictions/own", b"5", {"ts-request-sequence-id": lost[0],
                                                                   "ts-request-sequence-start": "true"})
    assert begun.text == "5"


def test_scaling_down_keeps_the_sequences_of_a_handler_with_sequence_state(served, folder):  # noqa: F811
    (folder / "two.yaml").write_text(TWO_WORKERS)
    ts = served(("sum", EXAMPLE / "running_sum.py", folder / "two.yaml"))
    names = [f"s{number}" for number in range(16)]
    assert [step(ts, "sum", name, 3).text for name in names] == ["3"] * 16
    assert ts.admin().request("PUT", "/models/sum?min_worker=1&max_worker=1&synchronous=true").status == 200
    assert [step(ts, "sum", name, 4).text for name in names] == ["7"] * 16


@pytest.mark.parametrize("settings, answer", [("", "weights"), ("continuo.worker-walls=on\n", "PermissionError")])
def test_a_handler_reads_any_file_unless_walls_are_asked_for(served, folder, settings, answer):  # noqa: F811
    """TorchServe has no walls around its workers, so the program `torchserve` builds them only if asked."""
    (folder / "outside.py").write_text(OUTSIDE)
    (folder / "outside.yaml").write_text(ONE_WORKER)
    (folder / "weights").write_text("weights")
    ts = served(("outside", folder / "outside.py", folder / "outside.yaml"), settings=settings)
    walls = ts.describe("outside")["workers"][0].get("walls", [])
    assert bool(walls) == bool(settings)
    if settings and "own_files" not in walls:
        pytest.skip("this system has no Landlock")
    assert ts.client().request("POST", "/predictions/outside", str(folder / "weights").encode()).text == answer
