"""Handlers with mistakes: their clients learn of them, and other clients are not affected."""

import subprocess
import threading
import time

import pytest

from models import ROOT, Model, archiver, counter, stateless
from waiting import limit


def lua(step, head=""):
    return f"local M = {{ api = 1 }}\n{head}\nfunction M.init() return {{ n = 0 }} end\n" \
           f"function M.step(state, req)\n{step}\nend\nreturn M\n"


# --- errors

def test_a_handler_that_raises_is_answered_with_the_line_and_keeps_the_state(server):
    """The step fails: nothing of it is saved, and the log has the traceback."""
    s = server(Model("m", lua("""
        state.n = state.n + 1
        if req.body == "boom" then error("that hurt") end
        return { text = tostring(state.n) }""")))
    client = s.client()
    assert client.step("m", "a", b"x").text == "1"
    failed = client.step("m", "a", b"boom")
    assert (failed.status, failed.error) == (500, "handler_failed"), failed
    assert "handler.lua:" in failed.message and "that hurt" in failed.message
    s.expect_log("that hurt")
    assert client.step("m", "a", b"x").text == "2"


def test_a_handler_can_refuse_a_step_with_a_message(server):
    """`return nil, "why"` refuses the step, and the state is not saved."""
    s = server(counter())
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    refused = client.step("counter", "a", b"five")
    assert refused.status == 500 and "the body must be a decimal integer" in refused.message, refused
    assert client.step("counter", "a", 1).text == "6"


def test_one_failing_row_does_not_harm_its_batch(server):
    """An error fails only its own row."""
    s = server(counter(batchSize=8))
    raws = [s.raw(f"r{i}") for i in range(8)]
    with s.hold():
        for i, raw in enumerate(raws):
            body = "bad" if i == 3 else str(i)
            raw.send(f"POST /predictions/counter HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: s{i}\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n{body}")
    for i, raw in enumerate(raws):
        answer = raw.answer()
        assert (answer.status == 500) if i == 3 else (answer.text == str(i)), answer
        raw.close()


BATCH = """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.batch(items)
    local sum = 0
    for _, item in ipairs(items) do
        %s
    end
end
return M
"""


def test_a_batch_handler_sees_all_rows_at_once(server):
    """batch(items) is for handlers that run many rows together faster."""
    s = server(Model("m", BATCH.replace("%s", """
        item.state.n = item.state.n + tonumber(item.body)
        item:reply({ text = item.state.n .. " of " .. #items })"""), {"batchSize": 4}))
    first = s.client().step("m", "s0", 1)
    assert first.text == "1 of 1"
    raws = [s.raw(f"r{i}") for i in range(4)]
    with s.hold():
        for i, raw in enumerate(raws):
            raw.send(f"POST /predictions/m HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: s{i}\r\n"
                     "Content-Length: 1\r\n\r\n1")
        s.expect_outstanding("m", 4)
    answers = [raw.answer().text for raw in raws]
    assert [a.split()[0] for a in answers] == ["2", "1", "1", "1"]
    assert max(int(a.split()[2]) for a in answers) > 1, "rows came together"


def test_rows_without_an_answer_are_errors(server):
    """Rows without an answer get an error, and the others get their answers."""
    s = server(Model("m", BATCH.replace("%s", """
        if item.body ~= "0" then item:reply(item.body) end"""), {"batchSize": 4}))
    client = s.client()
    assert client.step("m", "a", 7).text == "7"
    forgotten = client.step("m", "b", 0)
    assert (forgotten.status, forgotten.error) == (500, "handler_failed"), forgotten
    assert client.step("m", "a", 8).text == "8"


def test_a_row_that_is_answered_twice_is_an_error(server):
    """Nobody can say which of two answers the client should get, so it gets an error."""
    s = server(Model("m", """
    local M = { api = 1 }
    function M.init() return {} end
    function M.batch(items)
        for _, item in ipairs(items) do
            item:reply(item.body)
            if item.body == "9" then item:reply("twice") end
        end
    end
    return M"""))
    client = s.client()
    assert client.step("m", "a", 7).text == "7"
    answer = client.step("m", "a", 9)
    assert (answer.status, answer.error) == (500, "handler_failed"), answer
    assert client.step("m", "a", 8).text == "8"


@pytest.mark.parametrize("reply", ["{ text = {} }", "{ nonsense = 1 }", "function() end", "{ status = 99, text = 'x' }",
                                   "{ json = function() end }"])
def test_a_reply_of_the_wrong_shape_is_named(server, reply):
    """The client gets 500, and the worker lives on."""
    s = server(Model("m", lua(f"if req.body == '1' then return {reply} end return {{ text = 'fine' }}")))
    client = s.client()
    wrong = client.step("m", "a", 1)
    assert (wrong.status, wrong.error) == (500, "handler_failed"), wrong
    assert client.step("m", "a", 2).text == "fine"
    assert s.workers("m")[0]["restarts"] == 0


def test_state_that_cannot_be_stored_names_its_key(server):
    """A function in the state would be lost at the next restart, so the step is refused."""
    s = server(Model("m", lua("""
        if req.body == "1" then state.inner = { callback = function() end } end
        state.n = state.n + 1
        return { text = tostring(state.n) }""")))
    client = s.client()
    assert client.step("m", "a", 2).text == "1"
    refused = client.step("m", "a", 1)
    assert refused.status == 500 and "callback" in refused.message, refused
    assert client.step("m", "a", 2).text == "2"


# --- limits

def test_a_handler_that_loops_for_ever_meets_its_deadline_and_others_go_on(server):
    """responseTimeout limits the call. Afterwards the sequence continues from its last commit."""
    s = server(Model("m", lua("""
        if req.body == "loop" then while true do end end
        state.n = state.n + 1
        return { text = tostring(state.n) }"""), {"responseTimeout": 1, "batchSize": 1}))
    client = s.client()
    assert client.step("m", "a", b"x").text == "1"
    looping = s.client("looping")
    result = {}
    thread = threading.Thread(target=lambda: result.update(answer=looping.step("m", "a", b"loop")))
    thread.start()
    other = client.step("m", "b", b"x")
    thread.join()
    assert (other.status, other.text) == (200, "1"), other
    assert (result["answer"].status, result["answer"].error) == (500, "deadline"), result
    assert client.step("m", "a", b"x").text == "2"


def test_a_loop_that_no_hook_can_stop_gets_its_worker_replaced(server):
    """A pattern match runs in C, where the instruction limit does not reach it. So the worker is killed and replaced.
    """
    s = server(Model("m", lua("""
        if req.body == "loop" then string.rep("a", 30000):find(string.rep("a?", 30000) .. string.rep("a", 30000)) end
        if req.body == "back" then return { text = tostring((string.rep("x", 1 << 20)):find(".-.-.-y")) } end
        state.n = state.n + 1
        return { text = tostring(state.n) }"""), {"responseTimeout": 1, "batchSize": 1}))
    client = s.client()
    assert client.step("m", "a", b"x").text == "1"
    before = s.ready_pids("m")
    late = client.step("m", "a", b"back")
    assert (late.status, late.error) == (500, "deadline"), late
    assert client.step("m", "a", b"x").text == "2"
    assert s.expect_ready("m", 1) != before


def test_a_handler_that_exhausts_its_memory_is_stopped(server):
    """A step that exceeds limits.memoryBytes gets an error, and the VM can be used again."""
    s = server(Model("m", lua("""
        if req.body == "eat" then
            local t = {}
            for i = 1, 1e9 do t[i] = ("x"):rep(100000) .. i end
        end
        state.n = state.n + 1
        return { text = tostring(state.n) }"""), {"handler": {"limits": {"memoryBytes": 16_000_000}}}))
    client = s.client()
    assert client.step("m", "a", b"x").text == "1"
    hungry = client.step("m", "a", b"eat")
    assert (hungry.status, hungry.error) == (507, "out_of_memory"), hungry
    assert client.step("m", "a", b"x").text == "2"
    assert client.step("m", "b", b"x").text == "1"


@pytest.mark.parametrize("code", ["os.execute('true')", "io.popen('true')", "package.loadlib('libc.so.6', '*')",
                                  "io.open('/etc/passwd')", "load(string.dump(function() end))()",
                                  "require('socket')", "dofile('/etc/passwd')"])
def test_the_sandbox_has_no_way_out(server, code):
    """A handler can reach its rows and its state, and nothing else of the machine."""
    s = server(Model("m", lua(f"{code} return {{ text = 'out' }}")))
    refused = s.client().step("m", "a", 1)
    assert (refused.status, refused.error) == (500, "handler_failed"), refused


# --- what a handler can say

def test_a_handler_chooses_status_headers_and_content_type(server):
    """The handler decides the whole answer."""
    s = server(Model("m", lua("""
        return { status = 418, headers = { ["X-Made-By"] = "lua" }, content_type = "text/x-tea", body = "short" }""")))
    answer = s.client().step("m", "a", 1)
    assert (answer.status, answer.headers["X-Made-By"], answer.headers["Content-Type"], answer.text) == \
        (418, "lua", "text/x-tea", "short")


def test_the_log_tells_of_headers_that_are_lost(server):
    """A handler that gives the id of its sequence, as those of TorchServe do, loses nothing."""
    s = server(Model("m", lua("""
        return { text = "ok", headers = { ["ts_request_sequence_id"] = req.body, ["X-Made-By"] = "lua" } }""")))
    client = s.client()
    own = client.step("m", "a", "a")
    assert (own.headers["ts_request_sequence_id"], own.headers["X-Made-By"]) == ("a", "lua")
    other = client.step("m", "a", "b")
    assert (other.headers["ts_request_sequence_id"], other.headers["X-Made-By"]) == ("a", "lua")
    s.expect_log("event=handler_header_dropped", 'header="ts_request_sequence_id"')
    assert len([line for line in s.lines if "handler_header_dropped" in line]) == 1


def test_headers_that_are_always_lost_do_not_fill_the_log(server):
    s = server(Model("m", lua("""return { text = "ok", headers = { ["ts_request_sequence_id"] = "x" } }""")))
    client = s.client()
    begun = time.monotonic()
    for _ in range(300):
        assert client.step("m", "a", "a").text == "ok"
    most = time.monotonic() - begun + 2
    s.expect_log("event=handler_header_dropped", 'header="ts_request_sequence_id"', "untold=0")
    assert len([line for line in s.lines if "handler_header_dropped" in line]) <= most


def test_json_goes_in_and_out(server):
    """Integers stay integers, and lists stay lists."""
    s = server(Model("m", lua("""
        local got = req.json
        state.n = state.n + #got.list
        return { json = { total = state.n, big = got.big, text = got.text, list = got.list } }""")))
    body = '{"list": [1, 2.5, "three"], "big": 9007199254740993, "text": "\\u00e4\\n"}'
    answer = s.client().step("m", "a", body, headers={"Content-Type": "application/json"})
    assert answer.status == 200, answer
    assert answer.json == {"total": 3, "big": 9007199254740993, "text": "\u00e4\n", "list": [1, 2.5, "three"]}
    assert answer.headers["Content-Type"].startswith("application/json")


def test_a_handler_can_call_a_request_bad(server):
    """The third value is the status, because a client's mistake is not a failure of the server."""
    s = server(Model("m", lua('return nil, "x must not be negative", 422')))
    answer = s.client().step("m", "a", 1)
    assert (answer.status, answer.message) == (422, "x must not be negative")


def test_broken_json_is_the_clients_mistake(server):
    """The message says where the JSON is broken."""
    s = server(Model("m", lua("return { text = tostring(req.json.x) }")))
    broken = s.client().step("m", "a", '{"x": 5')
    assert broken.status == 400 and "line 1" in broken.message, broken
    assert s.client().step("m", "a", '{"x": 5}').text == "5"


def test_a_handler_streams_chunks(server):
    """Pieces are sent as chunks, in order, and together they are the body."""
    s = server(Model("m", lua("""
        for i = 1, 5 do req:send("piece " .. i .. "\\n") end
        return { text = "end\\n" }""")))
    answer = s.client().step("m", "a", 1)
    assert answer.status == 200, answer
    assert answer.text == "".join(f"piece {i}\n" for i in range(1, 6)) + "end\n"
    assert answer.headers["Transfer-Encoding"] == "chunked"


def test_a_handler_reads_headers_and_ids(server):
    """Header names work in any case, and the handler sees the sequence's id and flags."""
    s = server(Model("m", lua("""
        return { text = req.headers["X-Who"] .. "/" .. req.sequence_id .. "/" .. tostring(req.start) }""")))
    answer = s.client().step("m", "sq", 1, headers={"x-who": "me"})
    assert answer.text == "me/sq/true", answer
    assert s.client().step("m", "sq", 1, headers={"X-WHO": "you"}).text == "you/sq/false"


def test_a_handler_can_end_its_sequence(server):
    """The counter example does this on 0."""
    s = server(Model("m", lua("""
        state.n = state.n + 1
        return { text = tostring(state.n), end_sequence = req.body == "bye" }""")))
    client = s.client()
    assert client.step("m", "a", b"x").text == "1"
    assert client.step("m", "a", b"bye").text == "2"
    assert client.step("m", "a", b"x").text == "1", "the id begins a new sequence"


def test_a_stateless_model_keeps_nothing_and_names_no_sequence(server):
    """Without sequenceBatching each request stands alone."""
    s = server(stateless())
    client = s.client()
    for i in range(3):
        answer = client.post("/predictions/echo", f"hello {i}".encode())
        assert (answer.text, answer.sequence) == (f"hello {i}", None)
    assert client.get("/predictions/echo").body == b""
    assert client.put("/predictions/echo", b"put").body == b"put"


def test_a_large_body_and_answer_arrive_whole(server):
    """Bodies and answers of several megabytes arrive unchanged."""
    s = server(stateless())
    body = bytes(range(256)) * 16_000
    assert s.client().post("/predictions/echo", body).body == body


# --- C

C_HANDLER = """
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <continuo/handler.h>

struct state { long steps; };

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    (void)model;
    for (size_t i = 0; i < n; i++) {
        struct continuo_bytes body = continuo_body(items[i]);
        struct state *state = continuo_state(items[i], sizeof(*state));

        if (!state)
            continue;
        if (body.len == 3 && memcmp(body.data, "die", 3) == 0) {
            fputs("handler: this is the end\\n", stderr);
            abort();
        }
        if (body.len == 4 && memcmp(body.data, "loop", 4) == 0)
            for (volatile int forever = 1; forever;)
                ;
        if (body.len == 4 && memcmp(body.data, "none", 4) == 0)
            continue;
        if (body.len == 4 && memcmp(body.data, "fail", 4) == 0) {
            continuo_fail(items[i], 422, "not %s again", "that");
            continue;
        }
        continuo_set_header(items[i], "X-Made-By", "C");
        continuo_replyf(items[i], "%ld", ++state->steps);
    }
    return 0;
}

CONTINUO_EXPORT const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
"""


@pytest.fixture
def c_server(server, folder, transcript):
    """A server with the C handler above as the model "c", with batchSize 1, and with the counter."""
    (folder / "handler.c").write_text(C_HANDLER)
    (folder / "c.yaml").write_text("sequenceBatching: true\nbatchSize: 1\nresponseTimeout: 1\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include",
                    "-o", folder / "handler.so", folder / "handler.c"], check=True, timeout=limit(60))
    s = server(counter(), start=False)
    archiver("--model-name", "c", "--version", "1.0", "--handler", folder / "handler.so",
             "--config-file", folder / "c.yaml", "--export-path", s.store, transcript=transcript)
    s.models.append("c=c.mar")
    return s.start()


def test_a_c_handler_keeps_state_and_survives_a_kill(c_server):
    """The promises are the same as for Lua."""
    client = c_server.client()
    for steps in range(1, 4):
        answer = client.step("c", "a", b"x")
        assert (answer.status, answer.text, answer.headers["X-Made-By"]) == (200, str(steps), "C")
    c_server.kill_worker("c")
    assert client.step("c", "a", b"x").text == "4"


def test_a_c_handler_can_refuse_a_step(c_server):
    """The client gets the handler's status and message, and the state stays as it was."""
    client = c_server.client()
    client.step("c", "a", b"x")
    refused = client.step("c", "a", b"fail")
    assert (refused.status, refused.message) == (422, "not that again")
    assert client.step("c", "a", b"x").text == "2"


def test_a_c_handler_that_forgets_a_row_is_told_on(c_server):
    """The request neither hangs nor gets an empty 200."""
    client = c_server.client()
    forgotten = client.step("c", "a", b"none")
    assert (forgotten.status, forgotten.error) == (500, "handler_failed"), forgotten
    assert client.step("c", "a", b"x").text == "1"


def test_a_step_that_crashes_c_code_gets_the_last_words_and_others_go_on(c_server):
    """The step is tried again alone, then it gets an error with the signal and the last line. No other step fails."""
    client = c_server.client()
    client.step("c", "good", b"x")
    client.step("c", "bad", b"x")
    raws = [c_server.raw(f"r{i}") for i in range(6)]
    with c_server.hold():
        for i, raw in enumerate(raws):
            body = "die" if i == 2 else "x"
            raw.send(f"POST /predictions/c HTTP/1.1\r\nHost: t\r\nts_request_sequence_id: {'bad' if i == 2 else i}\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n{body}")
        c_server.expect_outstanding("c", 6)
    for i, raw in enumerate(raws):
        answer = raw.answer()
        if i == 2:
            assert (answer.status, answer.error) == (500, "worker_died"), answer
            assert "signal 6" in answer.message and "this is the end" in answer.message, answer
        else:
            assert (answer.status, answer.text) == (200, "1"), answer
        raw.close()
    assert client.step("c", "bad", b"x").text == "2", "its state stayed at its last commit"
    assert client.step("c", "good", b"x").text == "2"


def test_c_code_that_loops_for_ever_is_killed_at_its_deadline(c_server):
    """Nothing inside the process can stop the loop."""
    client = c_server.client()
    client.step("c", "a", b"x")
    before = c_server.expect_ready("c", 1)
    late = client.step("c", "a", b"loop")
    assert (late.status, late.error) == (500, "deadline"), late
    assert client.step("c", "a", b"x").text == "2"
    assert client.step("c", "b", b"x").text == "1"
    assert c_server.expect_ready("c", 1) != before
    assert c_server.client().step("counter", "a", 3).text == "3"
