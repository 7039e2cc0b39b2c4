#!/usr/bin/env python3
"""Checks packaging/grafana: the dashboard's form, and that every metric and label that it and the rules name exists.

First it checks that it finds mistakes, because a check that finds nothing protects nothing."""
import copy
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging" / "grafana"
TABLE = (ROOT / "metrics" / "counters" / "metrics.def").read_text(encoding="utf-8")
ROWS = re.findall(r'^CN_METRIC\(\w+, (\w+), (\w+), "(continuo_\w+)"', TABLE, re.M)
HISTOGRAMS = ("DURATION", "STAGES", "ROWS")
LABELS = {"ERRORS": {"error"}, "REASONS": {"reason"}, "UNREADY": {"reason"}, "LOGS": {"log"},
          "DURATION": {"le"}, "STAGES": {"le", "stage"}, "ROWS": {"le"}}
ALWAYS = {"job", "instance"}
COLUMNS = 24
BUILT_IN = {"__rate_interval", "__interval", "__range", "__all"}


def samples():
    """Returns the labels of each sample that a server can have on its page."""
    known = {}
    for scope, shape, name in ROWS:
        labels = ALWAYS | LABELS.get(shape, set()) | ({"model", "version"} if scope == "MODEL" else set())
        if shape in HISTOGRAMS:
            known[name + "_bucket"] = labels
            known[name + "_sum"] = known[name + "_count"] = labels - {"le"}
        else:
            known[name] = labels
    return known


def recorded():
    """Returns the names that the recording rules make."""
    return set(re.findall(r"record: (\S+)", (FOLDER / "rules.yml").read_text(encoding="utf-8")))


def wrong_names(text, where, known, rules):
    """Yields the metrics in a text that nothing has, and the labels that their metrics do not have."""
    for name in set(re.findall(r"\bcontinuo[_:][\w:]*", text)):
        if name not in (rules if ":" in name else known):
            yield f"{where}: no metric is called {name}"
    for clause, inside in re.findall(r"\bby \(([^)]*)\)\s*\(((?:[^()]|\([^()]*\))*)\)", text):
        names = [name for name in re.findall(r"\bcontinuo_\w+", inside) if name in known]
        for label in filter(None, re.split(r"[\s,]+", clause)):
            if names and not any(label in known[name] for name in names):
                yield f"{where}: {names[0]} has no label {label}"
    for name, inside in re.findall(r"\b(continuo_\w+)\{([^}]*)\}", text):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside):
            if name in known and label not in known[name]:
                yield f"{where}: {name} has no label {label}"


def overlap(a, b):
    return a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def wrong_form(board):
    """Yields what is wrong with the dashboard, apart from its metrics."""
    for key in ("title", "uid", "schemaVersion", "panels", "templating", "time", "refresh"):
        if not board.get(key):
            yield f"the dashboard has no {key}"
    if board.get("id") is not None:
        yield "the dashboard has an id, which belongs to one Grafana"
    variables = [each["name"] for each in board["templating"]["list"]]
    if "datasource" not in variables:
        yield "the dashboard has no variable for its data source"
    ids = [panel["id"] for panel in board["panels"]]
    if len(ids) != len(set(ids)):
        yield "two panels have one id"
    for panel in board["panels"]:
        where = f"panel {panel.get('title')!r}"
        place = panel["gridPos"]
        if place["x"] < 0 or place["x"] + place["w"] > COLUMNS:
            yield f"{where} is wider than the page"
        for other in board["panels"]:
            if other is not panel and overlap(place, other["gridPos"]):
                yield f"{where} lies on {other.get('title')!r}"
        if panel["type"] == "row":
            continue
        if not panel.get("title") or not panel.get("description", "").endswith("."):
            yield f"{where} has no title, or no description that is a sentence"
        if not panel["fieldConfig"]["defaults"].get("unit"):
            yield f"{where} has no unit"
        if not panel.get("targets"):
            yield f"{where} has no query"
        for source in [panel.get("datasource")] + [target.get("datasource") for target in panel.get("targets", [])]:
            if not source or source.get("uid") != "${datasource}":
                yield f"{where} has a data source of its own: {source}"
    for name in set(re.findall(r"\$\{?(\w+)\}?", json.dumps(board))) - BUILT_IN - set(variables):
        if name not in ("labels", "value"):
            yield f"${name} is used and not defined"


def findings(board, rules_text):
    known, rules = samples(), recorded()
    yield from wrong_form(board)
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield from wrong_names(target["expr"], f"panel {panel['title']!r}", known, rules)
    for variable in board["templating"]["list"]:
        yield from wrong_names(str(variable.get("query")), f"variable {variable['name']}", known, rules)
    for name, text in rules_text.items():
        yield from wrong_names(text, name, known, rules)


def unused(board, rules_text):
    """Yields the metrics that neither the dashboard nor a rule looks at."""
    text = json.dumps(board) + "".join(rules_text.values())
    for _, _, name in ROWS:
        if name not in text and not name.startswith("continuo_recent_"):
            yield name


def changed(board, change):
    board = copy.deepcopy(board)
    change(board)
    return board


def main():
    board = json.loads((FOLDER / "continuo.json").read_text(encoding="utf-8"))
    rules = {name: (FOLDER / name).read_text(encoding="utf-8") for name in ("rules.yml", "alerts.yml")}
    first = next(i for i, panel in enumerate(board["panels"]) if panel["type"] == "timeseries")
    mistakes = [
        lambda b: b["panels"][first]["targets"][0].update(expr="rate(continuo_no_such_total[5m])"),
        lambda b: b["panels"][first]["targets"][0].update(expr="sum by (color) (continuo_jobs_waiting)"),
        lambda b: b["panels"][first]["targets"][0].update(expr='continuo_loop_turns_total{model="m"}'),
        lambda b: b["panels"][first]["fieldConfig"]["defaults"].pop("unit"),
        lambda b: b["panels"][first].update(datasource={"type": "prometheus", "uid": "PBFA97CFB590B2093"}),
        lambda b: b["panels"][first].update(gridPos={"x": 20, "y": 0, "w": 12, "h": 8}),
        lambda b: b["panels"][first].update(id=b["panels"][0]["id"]),
        lambda b: b["panels"][first]["targets"][0].update(expr='continuo_jobs_waiting{model=~"$nobody"}'),
        lambda b: b["templating"]["list"].pop(0),
        lambda b: b.update(id=7),
    ]
    for i, change in enumerate(mistakes):
        if not any(findings(changed(board, change), rules)):
            sys.exit(f"mistake {i} was not found: this check is broken")
    if not any(findings(board, {"alerts.yml": "expr: continuo:nothing:rate5m > 0"})):
        sys.exit("a rule that does not exist was not found: this check is broken")
    found = sorted(set(findings(board, rules)))
    found += [f"no panel and no rule looks at {name}" for name in unused(board, rules)]
    for each in found:
        print(each)
    print(f"{len(board['panels'])} panels, {len(ROWS)} metrics, {len(found)} mistakes")
    sys.exit(bool(found))


main()
