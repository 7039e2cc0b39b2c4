"""The time limit of a Lua handler's call also holds in functions that Lua cannot interrupt. Otherwise one row of a
hostile or careless handler would hold its worker, and all rows behind it, until responseTimeout."""

import threading

import pytest

from models import BUILD, Model
from waiting import expect

# Each of them runs for years, or for minutes, and its memory does not grow. Otherwise a fast machine reaches the memory
# limit before the limit of time.
ENDLESS = {
    "find with backtracking": "('x'):rep(1 << 20):find('.-.-.-y')",
    "match with backtracking": "('x'):rep(1 << 20):match('.-.-.-y')",
    "gmatch with backtracking": "for _ in ('x'):rep(1 << 20):gmatch('.-.-.-y') do end",
    "gsub with backtracking": "('x'):rep(1 << 20):gsub('.-.-.-y', '')",
    "find of a plain text": "('a'):rep(1 << 22):find(('a'):rep(1 << 21) .. 'b', 1, true)",
    "rep of nothing": "(''):rep(1 << 62)",
    "concat of an invented length": "table.concat(setmetatable({}, NOTHING), '', 1, 1 << 62)",
    "move of an invented length": "table.move({}, 1, 1 << 62, 2)",
    "insert at an invented length": "table.insert(setmetatable({}, {__len = function() return 1 << 62 end}), 1, 1)",
    "remove at an invented length": "table.remove(setmetatable({}, {__len = function() return 1 << 62 end}), 1)",
    "sort by a comparator in C":
        "table.sort(setmetatable({}, {__len = function() return 1 << 30 end, __index = INDEX, "
        "__newindex = rawequal}), math.ult)",
    "large texts, one after another":
        "local s = ('x'):rep(1 << 25) while true do local _ = s .. 'y' end",
    "patterns, one after another": "local s = ('x'):rep(1 << 14) while true do s:find('.-.-y') end",
    "format of large texts": "local s = ('x'):rep(1 << 25) while true do local _ = ('%s'):format(s) end",
    "utf8.len of large texts": "local s = ('x'):rep(1 << 26) while true do utf8.len(s) end",
    "a variable that closes for ever":
        "local co = coroutine.wrap(function() local _ <close> = setmetatable({}, {__close = function() while true do end "
        "end}) while true do end end) co()",
}
LUA = """
local NOTHING = { __metatable = "" }
NOTHING.__index = getmetatable
local INDEX = setmetatable({}, { __index = rawlen })
local endless = {
%s
}
return {
    init = function() return { n = 0 } end,
    step = function(state, req)
        if endless[req.body] then endless[req.body]() end
        if req.body == "a second" then
            local from = os.clock()
            repeat ('x'):rep(1 << 13):find('.-y') until os.clock() - from > 1
        end
        state.n = state.n + 1
        return { text = tostring(state.n) }
    end,
}
""" % "\n".join(f'    ["{name}"] = function() {code} end,' for name, code in ENDLESS.items())
LIMITS = {"handler": {"limits": {"callMSec": 100}}, "responseTimeout": 600}
pytestmark = pytest.mark.skipif(BUILD.name == "tsan", reason="ThreadSanitizer holds back signals in long functions")


@pytest.fixture(scope="module")
def limited(shared_server):
    return shared_server(Model("m", LUA, LIMITS))


@pytest.mark.parametrize("what", ENDLESS)
def test_a_function_that_runs_long_is_stopped_by_the_limit(limited, what):
    """The client gets the error of the limit, and not that of responseTimeout, which is 600 s here. The sequence goes on
    from its last step."""
    client = limited.client()
    assert client.step("m", what, "x").text == "1"
    late = client.step("m", what, what)
    assert (late.status, late.error) == (500, "deadline"), late
    assert client.step("m", what, "x").text == "2"


def test_rows_beside_a_row_that_is_stopped_are_answered(server):
    """They are sent again, each one alone, and their steps are done once."""
    s = server(Model("m", LUA, {**LIMITS, "batchSize": 8}))
    client, answers = s.client(), {}
    assert client.step("m", "a", "x").text == "1"

    def ask(name, body):
        answers[name] = s.client(name).step("m", name, body)

    with s.hold():
        threads = [threading.Thread(target=ask, args=(name, body))
                   for name, body in [("b", "x"), ("c", "rep of nothing"), ("d", "x")]]
        for thread in threads:
            thread.start()
        s.expect_outstanding("m", 3)
    for thread in threads:
        thread.join()
    assert (answers["c"].status, answers["c"].error) == (500, "deadline"), answers
    assert "handler.limits.callMSec" in answers["c"].message
    assert [answers[name].text for name in "bd"] == ["1", "1"]
    assert [client.step("m", name, "x").text for name in "abd"] == ["2", "2", "2"]


def test_a_deadline_of_a_client_does_not_end_a_worker(server):
    """Clients choose it. So the call goes on until the model's own limit."""
    s = server(Model("m", LUA, {"responseTimeout": 600, "clientTimeoutInMills": 50}))
    client = s.client()
    assert client.step("m", "a", "x").text == "1"
    pids = s.ready_pids("m")
    client.step("m", "a", "a second")
    assert client.step("m", "b", "x").text == "1"
    assert s.ready_pids("m") == pids


CLOSING = """
return {
    init = function() return { n = 0 } end,
    step = function(state, req)
        state.n, state.hangs = state.n + 1, req.body == "hang"
        return { text = tostring(state.n) }
    end,
    close = function(seq, state)
        if state and state.hangs then ('x'):rep(1 << 20):find('.-.-.-y') end
    end,
}
"""


def test_a_row_does_not_get_the_error_of_a_call_beside_it(server):
    """The sequence `a` expires, and its close() ends the worker. A step of `b` that the worker has meanwhile is sent
    again, and is not told that it took too long."""
    s = server(Model("m", CLOSING, {**LIMITS, "sequenceMaxIdleMSec": 1000}))
    client = s.client()
    assert client.step("m", "a", "hang").text == "1"
    answers = []

    def has_died():
        answers.append(client.step("m", "b", "x"))
        return s.workers("m")[0]["restarts"]

    expect(has_died, "close() ends the worker", 30)
    answers.append(client.step("m", "b", "x"))
    assert [answer.text for answer in answers] == [str(i + 1) for i in range(len(answers))], answers[-3:]
    s.expect_log("event=worker_ended", "a call of the handler beside its steps")


MIGRATING = """
return {
    state_schema = %d,
    init = function() return { n = 0 } end,
    migrate = function(state) ('x'):rep(1 << 20):find('.-.-.-y') end,
    step = function(state, req)
        state.n = state.n + 1
        return { text = tostring(state.n) }
    end,
}
"""


def test_a_step_whose_state_is_migrated_too_slowly_gets_the_error(server):
    """That call of migrate() is for the step, so the step is to blame, and is not sent again."""
    s = server(Model("m", MIGRATING % 1, LIMITS), flags=["--model-control-mode", "explicit"])
    client = s.client()
    assert client.step("m", "a", "x").text == "1"
    s.pack(Model("m", MIGRATING % 2, LIMITS))
    loaded = s.client().request("POST", "/v2/repository/models/m/load", b"{}")
    assert loaded.status == 200, loaded
    late = client.step("m", "a", "x")
    assert (late.status, late.error) == (500, "deadline"), late
    assert client.step("m", "b", "x").text == "1"
    assert s.workers("m")[0]["restarts"] == 1


DESCRIBING = """
return {
    describe = function() ('x'):rep(1 << 20):find('.-.-.-y') end,
    step = function(state, req) return { text = req.body } end,
}
"""


def test_a_description_that_takes_too_long_gets_the_error(server):
    """It is a job like any other: it ends the worker once beside the step, and once alone. The step is done."""
    s = server(Model("m", DESCRIBING, LIMITS))
    answers = {}

    def ask(who, function, *args):
        threads.append(threading.Thread(target=lambda: answers.update({who: function(*args)})))
        threads[-1].start()
        s.expect_outstanding("m", len(threads))

    threads = []
    with s.hold():
        ask("describe", s.admin().get, "/models/m?customized=true")
        ask("step", s.client().step, "m", None, "x")
    for thread in threads:
        thread.join()
    assert (answers["step"].status, answers["step"].text) == (200, "x"), answers
    assert answers["describe"].status == 500 and "the handler took too long" in answers["describe"].message, answers
    assert s.workers("m")[0]["restarts"] == 2
