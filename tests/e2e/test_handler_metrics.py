"""Metrics that handlers define, in Lua and in C: on /metrics, or as lines of model_metrics.log."""

import subprocess

from prometheus_client.parser import text_string_to_metric_families

from models import ROOT, Model, archiver
from test_logs import expect_line, lines
from test_metrics import families, page, sample
from test_torchserve_metrics import LINE, counted
from waiting import expect, limit

LUA = """
local M = { api = 1 }
local metrics = continuo.metrics

function M.load(ctx)
    metrics.gauge("weights", 12.5, nil, "MB")
end

function M.init() return {} end

function M.step(state, req)
    local kind, rest = req.body:match("^(%S+) ?(.*)$")
    if kind == "bad" then
        metrics.counter(rest, 1)
    elseif kind == "many" then
        local ok, why
        for i = 1, tonumber(rest) do
            ok, why = metrics.counter("looped", 1)
        end
        return { text = tostring(why) }
    else
        metrics.counter("tokens", #rest, { kind = kind, long = #rest > 3 })
        metrics.histogram("token_time", #rest, nil, "ms")
    end
    return { text = "ok" }
end

return M
"""

C_HANDLER = """
#include <continuo/handler.h>

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    struct continuo_dimension room = {"room", "kitchen"};

    for (size_t i = 0; i < n; i++) {
        int rc = continuo_metric(model, CONTINUO_COUNTER, "opened", "Count", 2, &room, 1);
        int bad = continuo_metric(model, CONTINUO_GAUGE, "not a name", NULL, 1, NULL, 0);

        continuo_metric(model, CONTINUO_GAUGE, "warmth", "Celsius", 21.5, NULL, 0);
        continuo_replyf(items[i], "%d %d", rc, bad);
    }
    return 0;
}

const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
"""


def c_server(server, tmp_path, transcript):
    (tmp_path / "handler.c").write_text(C_HANDLER)
    (tmp_path / "c.yaml").write_text("batchSize: 4\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include",
                    "-o", tmp_path / "handler.so", tmp_path / "handler.c"], check=True, timeout=limit(60))
    s = server(start=False)
    archiver("--model-name", "room", "--version", "1.0", "--handler", tmp_path / "handler.so",
             "--config-file", tmp_path / "c.yaml", "--export-path", s.store, transcript=transcript)
    s.models.append("room=room.mar")
    return s.start()


def test_what_a_lua_handler_measures_is_on_the_page(server):
    """The page has names, types, units, dimensions, ModelName and Level. Values count from load() on, over all workers.
    """
    s = server(Model("talk", LUA, {"minWorkers": 2, "maxWorkers": 2}))
    client = s.client()
    for i in range(6):
        assert client.step("talk", f"s{i}", b"speech four").text == "ok"
    assert client.step("talk", "a", b"song la").text == "ok"
    text = page(s)
    assert "# HELP tokens Torchserve prometheus counter metric with unit: Count\n# TYPE tokens counter\n" in text
    assert "# HELP token_time Torchserve prometheus histogram metric with unit: ms\n" in text
    assert counted(s, "tokens", ModelName="talk", Level="Model", kind="speech", long="true") == 24
    assert counted(s, "tokens", kind="song", long="false") == 2
    assert sample(s, "token_time_count", ModelName="talk") == 7
    assert sample(s, "token_time_sum", ModelName="talk") == 26
    assert sample(s, "token_time_bucket", le="2.5") == 1
    assert sample(s, "weights", ModelName="talk") == 12.5
    assert sample(s, "continuo_handler_samples_dropped_total", model="talk") == 0
    assert set(families(page(s, "?name[]=weights"))) == {"weights"}


def test_a_name_that_no_metric_may_have_fails_the_step_with_the_reason(server):
    """The handler's author sees the error at the first call."""
    s = server(Model("talk", LUA))
    client = s.client()
    for name, why in (("a-b", "cannot be the name of a metric"), ("QueueTime", "one of the server's own"),
                      ("continuo_jobs_total", "one of the server's own")):
        failed = client.step("talk", "a", f"bad {name}")
        assert (failed.status, failed.error) == (500, "handler_failed"), failed
        assert why in failed.message
    assert client.step("talk", "a", b"speech x").text == "ok"


def test_samples_and_series_are_bounded_and_steps_go_on(server):
    """A handler learns that a call has recorded too many values, and values that clients choose cannot fill the memory.
    """
    s = server(Model("talk", LUA, {"handler": {"metrics": {"series": 4, "samples": 100}}}))
    client = s.client()
    assert "handler.metrics.samples" in client.step("talk", "a", b"many 101").text
    assert client.step("talk", "a", b"many 100").text == "nil"
    assert counted(s, "looped") == 200
    for i in range(10):
        assert client.step("talk", "a", f"kind{i} x").text == "ok"
    assert len([line for line in page(s).splitlines() if line.startswith("tokens{")]) == 1
    assert sample(s, "continuo_handler_samples_dropped_total", model="talk") > 0
    s.expect_log("event=handler_metric_left_out")


def test_what_a_c_handler_measures_is_on_the_page(server, tmp_path, transcript):
    """The same works from C. For a bad name the function returns -1, and the log has a line."""
    s = c_server(server, tmp_path, transcript)
    for _ in range(3):
        assert s.client().post("/predictions/room", "x").text == "0 -1"
    assert counted(s, "opened", ModelName="room", Level="Model", room="kitchen") == 6
    assert sample(s, "warmth", ModelName="room") == 21.5
    s.expect_log("cannot be the name of a metric")


def test_a_model_takes_its_metrics_with_it(server):
    """When a model is unregistered, the lines of its metrics disappear."""
    s = server(Model("talk", LUA))
    assert s.client().step("talk", "a", b"speech x").text == "ok"
    assert "tokens{" in page(s)
    assert s.admin().delete("/models/talk").status == 200
    expect(lambda: "tokens{" not in page(s), "the lines are gone")


def test_in_log_mode_they_are_lines_with_the_requests_ids(server, tmp_path):
    """The lines have TorchServe's form: dimensions, then ModelName and Level, then the ids of the call's requests."""
    s = server(Model("talk", LUA), flags=["--metrics-mode", "log", "--log-dir", str(tmp_path / "logs")])
    assert s.client().step("talk", "a", b"a|b:c four").text == "ok"
    log = tmp_path / "logs" / "model_metrics.log"
    tokens = expect_line(log, " - tokens.Count:4|#kind:a_b_c,long:true,ModelName:talk,Level:Model|#hostname:")
    assert ",requestID:" in tokens and ",timestamp:" in tokens
    expect_line(log, " - token_time.Milliseconds:4|#ModelName:talk,Level:Model|#hostname:", ",requestID:")
    expect_line(log, " - weights.Megabytes:12.5|#ModelName:talk,Level:Model|#hostname:")
    for line in lines(log):
        assert LINE.match(line), line
    assert all(name.startswith("continuo_") for name in families(page(s)))
    assert list(text_string_to_metric_families(page(s)))
