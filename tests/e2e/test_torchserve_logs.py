"""The log files of the command `torchserve`: in TorchServe's places, with its lines."""

import json

from models import Model, counter
from test_logs import ACCESS, PRINTING_LUA, expect_line, lines
from waiting import expect

START = ("--ncs", "--model-store", "model-store")
FILES = {"ts_log.log", "model_log.log", "access_log.log", "ts_metrics.log", "model_metrics.log"}


def talk():
    return Model("talk", lua=PRINTING_LUA, yaml={"minWorkers": 1, "maxWorkers": 1})


def test_log_files_lie_in_logs(torchserve):
    """The files are in the folder of the command. The server log and the model log also go to the command's output."""
    t = torchserve()
    t.pack(talk())
    t.properties("load_models=talk.mar\n")
    t.start(*START)
    assert t.client().step("talk", None, "hello").status == 200
    logs = t.folder / "logs"
    assert {path.name for path in logs.iterdir()} == FILES
    assert ACCESS.match(expect_line(logs / "access_log.log", "/predictions/talk")).group(2, 3, 4) == (
        "POST", "/predictions/talk", "200")
    expect_line(logs / "model_log.log", "handler says hello")
    expect_line(logs / "ts_log.log", "event=worker_ready")
    expect_line(logs / "ts_metrics.log", "Requests2XX.Count:1.0|#Level:Host")  # metrics_mode is log
    assert "event=worker_ready" in t.text and "handler says hello" in t.text and "/predictions/talk" not in t.text
    t.stop()
    assert "event=stopped" in lines(logs / "ts_log.log")[-1]


def test_variables_move_logs_and_metrics(torchserve):
    """The folders of LOG_LOCATION and METRICS_LOCATION are created with their parents. Metrics are lines if the mode
    says so."""
    t = torchserve({"LOG_LOCATION": "var/log/serve", "METRICS_LOCATION": "var/metrics"})
    t.pack(counter())
    t.properties("load_models=counter.mar\nmetrics_mode=log\n")
    t.start(*START)
    assert t.client().step("counter", "a", 1).status == 200
    expect_line(t.folder / "var/log/serve/access_log.log", "/predictions/counter")
    expect_line(t.folder / "var/metrics/ts_metrics.log", "Requests2XX.Count:1.0|#Level:Host|#hostname:")
    expect_line(t.folder / "var/metrics/model_metrics.log", "PredictionTime.ms:", "ModelName:counter")
    assert not (t.folder / "logs").exists() and not (t.folder / "var/log/serve/ts_metrics.log").exists()


def test_lines_may_be_json_and_files_are_rotated(torchserve):
    """Our own options do what a log4j file would do."""
    t = torchserve()
    t.pack(talk())
    t.properties("load_models=talk.mar\ncontinuo.log-format=json\ncontinuo.log-file-size=3000\ncontinuo.log-keep=2\n")
    t.start(*START)
    client, log = t.client(), t.folder / "logs" / "access_log.log"

    def rotated():
        assert client.step("talk", None, "x").status == 200
        return log.with_name("access_log.log.1").exists()

    expect(rotated, "a rotation", 30)
    assert json.loads(lines(log.with_name("access_log.log.1"))[0])["model"] == "talk"
    assert json.loads(lines(t.folder / "logs" / "ts_log.log")[0])["event"]


def test_a_place_that_cannot_be_written_is_told_and_costs_nothing(torchserve):
    """In a container with a read-only folder the server runs, and its log goes to standard output."""
    t = torchserve({"LOG_LOCATION": "file/logs"})
    (t.folder / "file").write_text("")
    t.pack(counter())
    t.properties("load_models=counter.mar\n")
    said = t.start(*START)
    assert "file/logs cannot be written, so the logs go to the standard output only" in said
    assert t.client().step("counter", "a", 5).text == "5"
    assert "event=worker_ready" in t.text
