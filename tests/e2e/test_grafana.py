"""A real Prometheus reads a server, and every query of the dashboard and of the rules has an answer.

Skipped where Prometheus is not installed (Debian's package prometheus); PROMETHEUS names another program."""

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request

import pytest

from models import ROOT, counter
from ports import free_port
from waiting import expect

FOLDER = ROOT / "packaging" / "grafana"
PROGRAM = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="Prometheus is not installed (Debian's package prometheus)")
# With one loaded model and a few steps these have values; the others are about trouble or a shared store.
ALWAYS = ("Not ready", "Workers ready", "Steps per second", "p99 of a step", "Live sequences", "Rows in a batch",
          "Waiting and running steps", "Memory of workers", "HTTP and gRPC", "Event loops", "States", "Durations of steps")


@pytest.fixture
def prometheus(folder, transcript):
    made = []

    def start(target):
        port = free_port()
        shutil.copy(FOLDER / "rules.yml", folder)
        shutil.copy(FOLDER / "alerts.yml", folder)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"
            "rule_files: [rules.yml, alerts.yml]\n"
            "scrape_configs:\n- job_name: continuo\n  static_configs:\n"
            f"  - targets: ['{target.removeprefix('http://')}']\n", encoding="utf-8")
        made.append(subprocess.Popen(
            [PROGRAM, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL,
            stderr=open(folder / "prometheus.log", "w", encoding="utf-8")))

        def ask(path, **query):
            url = f"http://127.0.0.1:{port}/api/v1/{path}?" + urllib.parse.urlencode(query)
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                text = error.read().decode()
                return json.loads(text) if text.startswith("{") else {"status": text}
            except OSError:
                return {"status": "away"}
        return ask

    yield start
    for process in made:
        process.terminate()
        process.wait()


def test_every_query_of_the_dashboard_has_an_answer(server, prometheus):
    s = server(counter())
    client = s.client()
    ask = prometheus(s.metrics)
    expect(lambda: ask("query", query="up == 1").get("data", {}).get("result"), "a first reading", 30)
    for i in range(50):
        client.step("counter", f"s{i % 5}", 1)

    def result(expr):
        for name, value in (("$job", ".*"), ("$instance", ".*"), ("$model", ".*"), ("$__rate_interval", "1m")):
            expr = expr.replace(name, value)
        answer = ask("query", query=expr)
        assert answer["status"] == "success", (expr, answer)
        return [float(each["value"][1]) for each in answer["data"]["result"]]

    expect(lambda: result("sum(rate(continuo_step_duration_seconds_count[1m])) > 0"), "two readings with steps", 30)
    board = json.loads((FOLDER / "continuo.json").read_text(encoding="utf-8"))
    queries = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    answers = {}
    for title, expr in queries:
        answers.setdefault(title, []).append(result(expr))
    assert len(queries) > 60
    assert not [title for title in ALWAYS if not answers[title][0]], answers
    assert answers["Not ready"][0] == [0] and answers["Live sequences"][0] == [5]
    groups = ask("rules")["data"]["groups"]
    assert sum(len(group["rules"]) for group in groups) == 17
    expect(lambda: all(rule["health"] == "ok" for group in ask("rules")["data"]["groups"] for rule in group["rules"]),
           "all rules were evaluated without an error", 60)
    assert [rule["name"] for group in groups for rule in group["rules"] if rule.get("state") == "firing"] == []
