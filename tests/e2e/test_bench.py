"""The measurements of bench/ leave nothing behind."""

import importlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from models import BIN, ROOT, Model, counter
from waiting import expect, limit


@pytest.fixture
def suite(monkeypatch):
    """suite(name) returns a module of bench/suite."""
    monkeypatch.syspath_prepend(str(ROOT / "bench/suite"))
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module


def processes_of(folder):
    """Returns the pids of processes whose command line names the folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(folder) in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


def test_a_measurement_that_is_ended_cleans_up(tmp_path):
    """If a measurement is ended, as `timeout` does it, its servers stop and its folders are removed."""
    bench = subprocess.Popen([sys.executable, ROOT / "bench/million.py", "--many", "20000", "--seconds", "60"],
                             stdout=subprocess.PIPE, text=True,
                             env=os.environ | {"TMPDIR": str(tmp_path), "CONTINUO_BUILD": str(BIN.parent)})
    for line in bench.stdout:
        if "sequences opened" in line:
            break
    assert len(list(tmp_path.glob("continuo-bench-*"))) == 2
    bench.send_signal(signal.SIGTERM)
    assert bench.wait(limit(60)) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
    expect(lambda: not processes_of(tmp_path), "its processes have ended")


def loaded(server, *args):
    """Runs the load tool to its end. Returns its figures."""
    bench = server.bench("--duration", "0.3", "--warmup", "0.1", "--stall-seconds", limit(60), *args)
    out, words = bench.communicate(timeout=limit(120))
    assert bench.returncode == 0, words
    return json.loads(out)


def test_the_processes_of_the_load_tool_share_the_sequences(server):
    """With several processes the load tool is not slower than the server. Each sequence still has one sum, which is
    checked at its end, and the first process counts all of them."""
    figures = loaded(server(counter()), "--connections", 7, "--sequences", 20, "--processes", 3, "--end")
    assert (figures["ended"], figures["sequences"], figures["errors"]) == (20, 20, 0)


@pytest.mark.parametrize("protocol", ["plain", "json"])
def test_the_load_tool_checks_the_sums_of_streams(server, protocol):
    """Steps over WebSocket streams are checked as those over HTTP are. A stream whose client does not answer pings would
    be cut off between two steps."""
    s = server(counter(), flags=["--stream-ping", "1000"])
    figures = loaded(s, "--connections", 6, "--processes", 2, "--stream", protocol)
    assert figures["errors"] == 0 and figures["steps"] > 0
    figures = loaded(s, "--connections", 2, "--stream", protocol, "--rate", 1, "--duration", 4)
    assert figures["errors"] == 0 and figures["steps"] > 0


def test_the_load_tool_finds_a_wrong_sum_of_a_stream(server):
    """The model of this test counts each step twice from the third on."""
    s = server(Model("counter", lua= "local M = {api = 1}\nfunction M.init() return {n = 0, steps = 0} end\n"
                       "function M.step(state, req)\n  state.steps = state.steps + 1\n"
                       "  state.n = state.n + tonumber(req.body) * (state.steps < 3 and 1 or 2)\n"
                       "  return {body = tostring(state.n)}\nend\nreturn M\n"))
    bench = s.bench("--connections", 1, "--stream", "plain", "--duration", "0.3", "--warmup", "0", "--any-share")
    out, words = bench.communicate(timeout=limit(60))
    assert bench.returncode == 1 and "expected" in words and json.loads(out)["mismatches"] > 0


def test_a_ramp_shows_what_came_of_each_rate(server):
    """A ramp finds the rate at which a server no longer keeps up, if each part says which rate it had."""
    figures = loaded(server(counter()), "--connections", 4, "--rate", 100, "--ramp", 300, "--processes", 2)
    assert [part["rate"] for part in figures["ramp"]] == [110 + 20 * i for i in range(10)]
    assert 0 < figures["steps"] + figures["unanswered"] <= 100


def test_a_flame_graph_has_each_function_on_its_caller(suite):
    """Two samples with the same callers share their boxes, and each box says what share of the samples it has."""
    flamegraph = suite("flamegraph")
    text = ("continuo\n\t  7f recv+0x1 ([kernel.kallsyms])\n\t  55 turn+0x2a (/bin/continuo)\n\n"
            "continuo\n\t  55 parse<T>+0x1 (/bin/continuo)\n\t  55 turn+0x2b (/bin/continuo)\n\n"
            "continuo-worker\n\t  56 step+0x1 (/lib/liblua5.4.so)\n\n")
    root, alone = flamegraph.tree(flamegraph.stacks(text))
    assert (root.samples, flamegraph.depth(root)) == (3, 4)
    assert root.below["continuo"].below["turn"].samples == 2
    assert alone["continuo", "recv", "[kernel.kallsyms]"] == 1
    drawn = xml.etree.ElementTree.fromstring(flamegraph.svg(root, "a & b"))
    titles = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert "turn: 2 samples, 66.7 %" in titles and "parse<T>: 1 samples, 33.3 %" in titles


def test_the_page_says_what_could_not_be_measured(suite, tmp_path):
    """A peer that cannot be installed, and runs in which the load tool was the bottleneck, are rows that say so. A ratio
    is the median of the ratios of the rounds, so rounds of different luck do not mix."""
    goals, page = suite("goals"), suite("page")

    def cell(*steps):
        figures = {name: 1.0 for name in ("p50_ms", "p99_ms", "p999_ms", "cpu_us", "client_busiest_share")}
        rounds = {"steps_per_s": list(steps), "p99_ms": [1.0] * 3, "cpu_us": [2.0] * 3}
        return figures | {"steps_per_s": 10.0, "rounds": rounds, "refused": 0, "errors": 0}

    ours, theirs = {"1": cell(40, 100, None)}, {"1": cell(10, 50, 1)}
    rows = [{"name": "ts-ours", "title": "Continuo", "cells": ours, "missing": None},
            {"name": "ts-theirs", "title": "TorchServe", "cells": theirs, "missing": None},
            {"name": "gone", "title": "Peer", "cells": {}, "missing": "not measured: there is no Java"},
            {"name": "slow", "title": "Slow", "cells": {"1": {"refused": 3, "errors": 0, "rounds": {}}}, "missing": None}]
    for row in rows:
        row["base"] = "ts-theirs"
    results = {"date": "2026-01-01", "commit": "abc", "machine": "m", "cores": 2, "used_cores": [0.1, 1.4], "busy": True, "rounds": 3,
               "versions": {"Python": "3"}, "seconds": 1, "processes": 2, "connections": [1],
               "facts": [{"title": "Peer", "missing": "not measured: there is no Java"}],
               "groups": [{"name": "torchserve", "title": "T", "about": "A.", "base": "ts-theirs", "rows": rows},
                          {"name": "large", "title": "L", "about": "B.", "base": "big", "connections": [4], "rows": [
                              {"name": "big", "title": "Big", "base": "big", "cells": {"4": cell(1, 1, 1)}}]}]}
    assert goals.of_rounds(ours["1"], theirs["1"], "steps_per_s") == [4, 2]
    results["ratios"], results["goals"] = goals.ratios(results), goals.goals(results)
    results["split"], results["bounds"] = [], []  # a file from before there were such figures
    assert (results["ratios"][0]["steps"], results["goals"][0]["reached"]) == (3, False)
    page.write(results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert text.count("not measured: there is no Java") == 2
    assert "| Slow | refused 3 times: the load tool was slower than the server" in text
    assert "used 0.10 and 1.40 of its 2 cores" in text and "Other programs wanted these cores" in text
    assert "| 4 | Big | 10 | 1.00 |" in text and "| 1 | Big |" not in text


def test_the_page_says_whose_microseconds_a_step_takes(suite, tmp_path):
    """A reader sees who takes the cores' time, and which goals a server would miss that only echoes."""
    goals, measure, page, whose = suite("goals"), suite("measure"), suite("page"), suite("whose")
    assert measure.parts((1, 10, 10), (3, 40, 20)) == (1.5, 0.5)

    def cell(steps, load, *sides):
        latency = dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "client_busiest_share"), 1.0)
        return {"steps_per_s": steps, "cpu_us": sum(sides), "rounds": {"steps_per_s": [steps], "p99_ms": [1.0]}, "refused": 0,
                "errors": 0, **latency, **dict(zip(whose.PARTS, (load, *sides)))}

    cells = {"tr-epoll": cell(100000, 9, 1, 7, 0, 0), "tr-epoll-polling": cell(50000, 12, 4, 20, 0, 0),
             "tr-ours": cell(40000, 10, 5, 6, 8, 2), "tr-theirs": cell(20000, 11, 30, 20, 30, 5)}
    rows = [{"name": name, "title": name, "base": "tr-theirs", "missing": None, "cells": {"1": each, "64": each}}
            for name, each in cells.items()]
    results = {"date": "2026-01-01", "commit": "abc", "machine": "m", "cores": 2, "used_cores": [0.1], "busy": False, "rounds": 1,
               "versions": {"Python": "3"}, "seconds": 1, "processes": 2, "connections": [1, 64], "facts": [],
               "groups": [{"name": "triton", "title": "Beside Triton", "about": "A.", "base": "tr-theirs", "rows": rows}]}
    results["ratios"], results["goals"] = goals.ratios(results), goals.goals(results)
    results["split"], results["bounds"] = whose.split(results), whose.bounds(results)
    page.write(results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| tr-ours | 64 | 50.0 | 10.0 | 5.0 | 6.0 | 8.0 | 2.0 | 19.0 |" in text
    # 2 cores, and 9 us of the load tool and 7 us of the kernel at least, are 125,000 steps/s
    assert "| Triton | 64 | 20,000 | 5.00 | 6.25 |" in text and "| Triton | 1 | 20,000 | 5.00 |  |" in text
    assert "| steps/s to Triton's, the same model.py | 64 | 2.00 | at least 10 | **missed** | 5.00, **missed** |" in text


WRK = [sys.executable, ROOT / "bench/suite/wrk.py"]


def wrk(s, *args, path=None):
    """Runs bench/suite/wrk.py. Returns its exit status and its figures."""
    done = subprocess.run([str(word) for word in [*WRK, s.inference.removeprefix("http://"), *args]], capture_output=True, text=True,
                          timeout=limit(120), env=os.environ | ({"PATH": path} if path else {}))
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")
@pytest.mark.load
def test_the_steps_that_wrk_counts_are_in_the_sums(server):
    """wrk does not look at the answers. Each of them is found again in the sum of its sequence."""
    code, found = wrk(server(counter(maxNumSequence=100)), "--connections", 4, "--threads", 2)
    assert (code, found["errors"]) in ((0, 0), (3, 0)), found
    assert found["steps"] > 8, found


def test_steps_that_wrk_only_claims_are_found_out(server, tmp_path):
    """If the sums do not have the steps that wrk has counted, the run is wrong."""
    fake = tmp_path / "wrk"
    fake.write_text("""#!/bin/sh
echo '{"steps": 5, "seconds": 1, "status_errors": 0, "socket_errors": 0, "p50_ms": 1, "p99_ms": 1, "p999_ms": 1}'
""")
    fake.chmod(0o755)
    code, found = wrk(server(counter()), "--connections", 2, path=f"{tmp_path}:{os.environ['PATH']}")
    assert (code, found["errors"], found["mismatches"]) == (1, 1, 1), found
