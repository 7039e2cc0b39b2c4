"""Log files: TorchServe's places, an access log with sequence and step, rotation, and full disks."""

import json
import os
import re
import signal
import socket
import time

from models import Model, counter
from server import address_of
from waiting import expect

ACCESS = re.compile(r'^\S+Z - /(127\.0\.0\.1:\d+) "(\S+) (\S+) HTTP/1\.1" (\d+) (\d+) (.*)$')

PRINTING_LUA = """
local M = { api = 1 }
function M.init() return {} end
function M.step(state, req)
    print("handler says " .. req.body)
    return { text = "ok" }
end
return M
"""


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def expect_line(path, *words):
    return expect(lambda: next((line for line in lines(path) if all(w in line for w in words)), None),
                  f"a line with {' and '.join(words)} in {path.name}")


def test_each_request_leaves_one_line_with_its_sequence_and_step(server, tmp_path):
    """The line has client, method, path, status, ms, model, sequence, step and bytes, and begins like TorchServe's."""
    s = server(counter(), flags=["--log-dir", str(tmp_path / "logs")])
    log = tmp_path / "logs" / "access_log.log"
    client = s.client()
    for body in (1, 20):
        assert client.step("counter", "a b", body).status == 200
    assert client.step("counter", None, 5).status == 200
    assert client.post("/predictions/nothing", "x").status == 404
    assert s.admin().get("/models").status == 200
    found = ACCESS.match(expect_line(log, "/predictions/counter", "step=2"))
    assert found.group(2, 3, 4) == ("POST", "/predictions/counter", "200")
    assert 'model="counter" version="1.0" sequence="a b" step=2 ' in found.group(6)
    assert " in=2 out=2 " in " " + found.group(6)
    assert "step=1" in expect_line(log, 'sequence="ts-seq-')
    assert ACCESS.match(expect_line(log, "/predictions/nothing")).group(4) == "404"
    assert " out=0" not in expect_line(log, '"GET /models HTTP/1.1" 200')
    assert len([line for line in lines(log) if "/predictions/" in line]) == 4


def test_json_lines_are_json(server, tmp_path):
    """Lines of the access log, of the server's log and of handlers' output are JSON."""
    s = server(Model("talk", lua=PRINTING_LUA, yaml={"minWorkers": 1, "maxWorkers": 1}),
               flags=["--log-dir", str(tmp_path / "logs"), "--log-format", "json"])
    assert s.client().step("talk", None, 'a "quoted" \\ line').status == 200
    access = json.loads(expect_line(tmp_path / "logs" / "access_log.log", "/predictions/talk"))
    assert access["status"] == 200 and access["model"] == "talk" and access["method"] == "POST"
    printed = json.loads(expect_line(tmp_path / "logs" / "model_log.log", "handler says"))
    assert printed["event"] == "handler_log" and printed["text"] == r'handler says a "quoted" \ line'
    assert (printed["model"], printed["worker"], printed["level"]) == ("talk", 1, "info")
    started = json.loads(expect_line(tmp_path / "logs" / "ts_log.log", "worker_ready"))
    assert started["model"] == "talk" and started["worker"] == 1 and started["level"] == "info"
    for name in ("access_log.log", "model_log.log", "ts_log.log"):
        for line in lines(tmp_path / "logs" / name):
            json.loads(line)


def test_what_handlers_print_is_in_the_model_log_only(server, tmp_path):
    s = server(Model("talk", lua=PRINTING_LUA, yaml={"minWorkers": 1, "maxWorkers": 1}),
               flags=["--log-dir", str(tmp_path / "logs")])
    assert s.client().step("talk", None, "hello").status == 200
    expect_line(tmp_path / "logs" / "model_log.log", "event=handler_log", 'text="handler says hello"')
    assert not any("handler_log" in line for line in lines(tmp_path / "logs" / "ts_log.log"))
    s.stop()
    assert "event=stopped" in lines(tmp_path / "logs" / "ts_log.log")[-1]


FAILING_LUA = """
local M = { api = 1 }
local function mean_of(state)
    return state.sum / state.count
end
function M.init() return { sum = 1 } end
function M.step(state, req)
    local mean = mean_of(state)
    return { text = tostring(mean) }
end
return M
"""


def test_an_error_of_a_lua_handler_reads_as_lua_prints_it(server):
    """File and line come first, and the traceback below, line by line. No line of it looks like a log line of its own.
    """
    s = server(Model("fails", lua=FAILING_LUA, yaml={"minWorkers": 1, "maxWorkers": 1}))
    assert s.client().step("fails", "a b", 1).status >= 500
    line = s.expect_log("event=handler_error")
    assert line.split(" ", 1)[1].startswith("warn continuo event=handler_error model=fails version=1.0 worker=1 pid=")
    assert line.endswith(''' sequence="a b" error="handler.lua:4: attempt to perform arithmetic on a nil value (field 'count')"''')
    below = expect(lambda: s.lines[s.lines.index(line) + 1:][:2] if len(s.lines) > s.lines.index(line) + 2 else None,
                   "two lines of a traceback")
    assert below[0].startswith("    handler.lua:4: in ") and "mean_of" in below[0]
    assert below[1].startswith("    handler.lua:8: in ")
    assert not any("worker_stderr" in each or "stack traceback" in each for each in s.lines)


def test_an_error_of_a_lua_handler_is_one_json_event(server):
    s = server(Model("fails", lua=FAILING_LUA, yaml={"minWorkers": 1, "maxWorkers": 1}), flags=["--log-format", "json"])
    assert s.client().step("fails", "a", 1).status >= 500
    event = json.loads(s.expect_log('"handler_error"'))
    assert (event["model"], event["worker"], event["sequence"], event["level"]) == ("fails", 1, "a", "warn")
    assert event["error"] == "handler.lua:4: attempt to perform arithmetic on a nil value (field 'count')"
    assert [line.strip().split(": ")[0] for line in event["traceback"].split("\n")] == ["handler.lua:4", "handler.lua:8"]


def test_a_handler_that_cannot_load_is_told_in_one_readable_reason(server):
    """The reason for a syntax error has its file and line, and does not contain another log line."""
    s = server(Model("bad", lua="local M = {}\nlocal x = = 3\nreturn M\n", yaml={"minWorkers": 1, "maxWorkers": 1}),
               flags=["--exit-on-model-failure=false"], start=False)
    s.launch()
    assert s.expect_log("event=handler_error").endswith('''error="handler.lua:2: unexpected symbol near '='"''')
    reason = s.expect_log("event=worker_ended", "cause=").split("cause=")[1]
    assert reason.endswith("could not load the model: handler.lua:2: unexpected symbol near '='\"")


def test_failing_steps_write_few_lines_and_their_number(server):
    """At most --handler-error-lines are written each second, and those that are left out are counted."""
    s = server(Model("fails", lua=FAILING_LUA, yaml={"minWorkers": 1, "maxWorkers": 1}),
               flags=["--handler-error-lines", "3"])
    client = s.client()
    began = time.monotonic()
    for _ in range(500):
        assert client.step("fails", "a", 1).status >= 500

    def counts():
        written = sum("event=handler_error " in line for line in list(s.lines))
        left_out = [re.search(r"event=handler_errors_left_out .* count=(\d+)", line) for line in list(s.lines)]
        return written, sum(int(found.group(1)) for found in left_out if found)

    expect(lambda: sum(counts()) == 500, "each of 500 errors written or counted")
    assert 3 <= counts()[0] <= 3 * (time.monotonic() - began + 2)


def test_large_files_are_rotated_and_few_are_kept(server, tmp_path):
    s = server(counter(), flags=["--log-dir", str(tmp_path / "logs"), "--log-file-size", "2000", "--log-keep", "2"])
    client = s.client()

    def third():
        assert client.step("counter", "a", 1).status == 200
        return (tmp_path / "logs" / "access_log.log.2").exists()

    expect(third, "a second rotation", 30)
    for _ in range(50):
        assert client.step("counter", "a", 1).status == 200
    s.stop()
    assert not (tmp_path / "logs" / "access_log.log.3").exists()
    for name in ("access_log.log.2", "access_log.log.1", "access_log.log"):
        assert all(ACCESS.match(line) for line in lines(tmp_path / "logs" / name))


def test_sighup_opens_moved_files_again(server, tmp_path):
    """logrotate moves files in this way. The server continues, and no line is lost."""
    s = server(counter(), flags=["--log-dir", str(tmp_path / "logs")])
    client = s.client()
    log = tmp_path / "logs" / "access_log.log"
    assert client.step("counter", "a", 1).status == 200
    expect_line(log, "step=1")
    for name in os.listdir(tmp_path / "logs"):
        os.rename(tmp_path / "logs" / name, tmp_path / f"old-{name}")
    os.kill(s.process.pid, signal.SIGHUP)
    expect(log.exists, "the file is there again")
    assert client.step("counter", "a", 1).status == 200
    expect_line(log, "step=2")
    assert not any("step=2" in line for line in lines(tmp_path / "old-access_log.log"))
    os.kill(s.process.pid, signal.SIGHUP)
    expect_line(tmp_path / "logs" / "ts_log.log", "event=logs_reopened")


def test_a_full_disk_costs_log_lines_and_no_request(server, tmp_path):
    """Each lost line is counted, and the log reports the loss once."""
    (tmp_path / "logs").mkdir()
    os.symlink("/dev/full", tmp_path / "logs" / "access_log.log")
    s = server(counter(), flags=["--log-dir", str(tmp_path / "logs")])
    client = s.client()
    for i in range(50):
        assert client.step("counter", "a", 1).text == str(i + 1)
    expect(lambda: s.metric("continuo_log_lines_dropped_total") >= 50, "the lost lines are counted")
    s.expect_log("event=log_failing", "log=access")
    assert len([line for line in lines(tmp_path / "logs" / "ts_log.log") if "log_failing" in line]) == 1


def test_the_access_log_can_go_to_stdout_or_nowhere(server, tmp_path):
    s = server(counter(), flags=["--access-log", "on"])
    assert s.client().step("counter", "a", 1).status == 200
    s.expect_log('"POST /predictions/counter HTTP/1.1" 200', 'sequence="a" step=1')
    s = server(counter(), flags=["--access-log", "off", "--log-dir", str(tmp_path / "logs")])
    assert s.client().step("counter", "a", 1).status == 200
    s.stop()
    assert lines(tmp_path / "logs" / "access_log.log") == []
    s = server(counter())
    assert s.client().step("counter", "a", 1).status == 200
    s.stop()
    assert not any("/predictions/" in line for line in s.lines)


def test_a_client_that_goes_away_is_logged_as_499(server, tmp_path):
    """The client goes away in the middle of its body, so there was nothing to answer yet."""
    s = server(counter(), flags=["--log-dir", str(tmp_path / "logs")])
    with socket.create_connection(address_of(s.inference)) as gone:
        gone.sendall(b"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
        assert b" 100 " in gone.recv(100)  # so its head was read
    expect_line(tmp_path / "logs" / "access_log.log", '"POST /predictions/counter HTTP/1.1" 499 ')


def test_a_log_folder_that_cannot_be_is_an_error_at_start(server, tmp_path):
    (tmp_path / "file").write_text("")
    s = server(counter(), flags=["--log-dir", str(tmp_path / "file")], start=False)
    s.launch()
    assert s.exit_code() != 0
    s.expect_log("log-dir", str(tmp_path / "file"))
