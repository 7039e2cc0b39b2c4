"""Handlers in Python have the same promises as those in Lua, and run in the user's own interpreter.

CONTINUO_PYTHONS names the interpreters, separated by colons. The default is the interpreter that runs the tests."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from models import BUILD, ROOT, python
from waiting import expect, limit

WORKER = BUILD / "bin" / "python" / "continuo" / "_worker.abi3.so"
pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="this build has no Python (python3-dev)")

SANITIZED = WORKER.exists() and b"__asan_init" in WORKER.read_bytes()
PYTHONS = os.environ.get("CONTINUO_PYTHONS", sys.executable).split(":")

ALL = """
import asyncio
import logging
import sys
import threading
import time
from continuo import Refuse, Reply, metrics

state_schema = 1
loaded = []


def load(model):
    loaded.append((model.name, model.version, model.worker, model.config["mine"]))


def init(req):
    if req.text == "refuse-init":
        raise Refuse("not you", 403)
    return {"n": 0, "seen": [], "first": req.start}


def step(state, req):
    word = req.text.split(" ")[0]
    state["n"] += 1
    return globals()["do_" + word.replace("-", "_")](state, req)


def do_count(state, req):
    return state["n"]


def do_json(state, req):
    return {"n": state["n"], "step": req.step, "start": req.start, "end": req.end,
            "id": req.sequence_id, "header": req.headers["X_Mine"], "parts": list(req.parts),
            "deadline": req.deadline > 0, "loaded": loaded}


def do_reply(state, req):
    return Reply(json=[1, None, "ü"], status=202, headers={"x-score": 0.5},
                 content_type="application/x-mine")


def do_bytes(state, req):
    return bytes(range(256))


def do_end(state, req):
    return Reply(text="bye", end_sequence=True)


def do_raise(state, req):
    return {}["missing"]


def chain(n):
    try:
        if n == 0:
            raise ValueError("the first cause")
        chain(n - 1)
    except ValueError as error:
        raise ValueError(f"link {n} of the \x1b chain") from error


def do_chain(state, req):
    if req.headers.get("x-log"):
        try:
            chain(40)
        except ValueError:
            logging.exception("logged")
        return "logged"
    chain(40)


def do_exit(state, req):
    sys.exit(7)


def do_refuse(state, req):
    raise Refuse("no such user", 404)


def do_none(state, req):
    return None


def do_object(state, req):
    return object()


def do_nan(state, req):
    return {"x": float("nan")}


def do_recurse(state, req):
    return do_recurse(state, req)


def do_bad_state(state, req):
    state["a"] = [1, {"k": [print]}]
    return "never"


def do_twice(state, req):
    state["a"] = state["seen"]
    return "never"


def do_cycle(state, req):
    state["me"] = state
    return "never"


def do_large_state(state, req):
    state["large"] = b"x" * 10_000_000
    return "never"


def do_replace(state, req):
    req.state = {"n": 1000, "seen": [], "first": False}
    return "replaced"


def do_pieces(state, req):
    stop = yield "a "
    assert stop is None
    yield "b ", 0.01
    yield None
    state["n"] += 100
    return "c"


def do_break(state, req):
    yield "a "
    raise ValueError("in the middle")


def do_forever(state, req):
    while True:
        stop = yield "x" * 1000
        if stop:
            return


def do_gated(state, req):
    import os
    req.send(Reply(text="first ", status=202, headers={"x-mine": "yes"}))
    while not os.path.exists(req.headers["x-gate"]):
        if req.cancelled:
            return "never"
        time.sleep(0.01)
        req.send("")
    req.send("second ")
    return "third"


def do_send_and_raise(state, req):
    req.send("one ")
    raise ValueError("after a piece")


def do_flood(state, req):
    for _ in range(100):
        req.send("y" * 10_000)
    return "end"


def do_send(state, req):
    req.send("one ")
    req.send("two ")
    return "three"


async def do_await(state, req):
    await asyncio.sleep(0.05)
    state["n"] += 1000
    return state["n"]


async def do_at_once(state, req):
    return "at once"


async def do_apieces(state, req):
    for i in range(3):
        await asyncio.sleep(0.01)
        yield f"{i} "
    state["n"] += 10000


async def do_asend(state, req):
    for i in range(3):
        req.send(f"{i} ")
        await asyncio.sleep(0.01)
    return "end"


async def do_araise(state, req):
    await asyncio.sleep(0.01)
    raise KeyError("later")


async def do_executor(state, req):
    return await asyncio.get_running_loop().run_in_executor(None, lambda: "from a thread")


def do_metric(state, req):
    metrics.counter("py_steps", 2, {"kind": "test"})
    return "counted"


def do_thread(state, req):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return "started"


def do_print(state, req):
    print("a line of mine")
    print("another", file=sys.stderr)
    return "printed"


def do_kept(state, req):
    global kept
    kept = req
    return "kept"


def do_use_kept(state, req):
    return kept.body


def close(sequence_id, state, reason):
    print(f"closed {sequence_id} {reason} {state['n']}")


def describe():
    return {"entries": len(loaded)}
"""


@pytest.fixture(params=PYTHONS, ids=lambda path: path.replace("/", "_"))
def interpreter(request):
    return request.param


@pytest.fixture
def all_of(server, interpreter):
    s = server(python("all", ALL, python=interpreter, mine="5", batchSize=8,
                      state={"maxBytes": 1_000_000}))
    return s, s.client()


def say(client, word, sequence="s", **headers):
    return client.step("all", sequence, word, headers=headers or None)


def test_a_step_has_the_request_and_its_state(all_of):
    """A handler sees its state, the ids, flags, headers, parts, and the model that load() got."""
    s, client = all_of
    assert say(client, "count").text == "1"
    answer = say(client, "json", **{"x-mine": "yes"})
    assert answer.json == {"n": 2, "step": 1, "start": False, "end": False, "id": "s",
                           "header": "yes", "parts": ["body"], "deadline": True,
                           "loaded": [["all", "1.0", 1, 5]]}
    assert s.admin().get("/models/all?customized=true").json[0]["customizedMetadata"] == {"entries": 1}


def test_answers_of_all_kinds(all_of):
    """An answer may be a str, bytes, a number, JSON, or a Reply with status, headers and the end of the sequence."""
    s, client = all_of
    assert say(client, "count").text == "1"
    reply = say(client, "reply")
    assert (reply.status, reply.json, reply.headers["x-score"]) == (202, [1, None, "ü"], "0.5")
    assert reply.headers["content-type"] == "application/x-mine"
    assert say(client, "bytes").body == bytes(range(256))
    assert say(client, "end").text == "bye"
    s.expect_log("closed s ended 4")


FAILURES = [
    ("raise", 500, "Prediction failed: handler.py:{line}: KeyError: 'missing'"),
    ("exit", 500, "called sys.exit(7), but a step must not end its worker"),
    ("refuse", 404, "no such user"),
    ("none", 500, "the step returned None"),
    ("object", 500, "a reply must be a str, bytes, a number, a dict or list (JSON)"),
    ("nan", 500, "the reply cannot be JSON"),
    ("recurse", 500, "RecursionError"),
    ("bad-state", 500, 'state["a"][1]["k"][0]: a builtin_function_or_method cannot be stored'),
    ("twice", 500, 'state["a"]: this object stands in the state a second time'),
    ("cycle", 500, 'state["me"]: this object stands in the state a second time'),
    ("large-state", 507, "larger than 1000000 bytes (state.maxBytes)"),
    ("araise", 500, "KeyError: 'later'"),
    ("unknown", 500, "KeyError: 'do_unknown'"),
]


@pytest.mark.parametrize("word, status, message", FAILURES, ids=lambda value: str(value)[:20])
def test_a_step_that_fails_says_why_and_changes_nothing(all_of, word, status, message):
    """The next step continues from the state before, and the worker lives on."""
    s, client = all_of
    assert say(client, "count").text == "1"
    pids = s.ready_pids("all")
    line = 1 + ALL[:ALL.index('return {}["missing"]')].count("\n")
    answer = say(client, word)
    assert answer.status == status or (status == 507 and answer.status in (413, 500, 507)), answer
    assert message.format(line=line) in answer.message, answer
    assert say(client, "count").text == "2"
    assert s.ready_pids("all") == pids


def test_a_traceback_is_whole_in_the_log(all_of):
    """The client gets the last line. The log has the whole traceback, with the model and the sequence."""
    s, client = all_of
    say(client, "raise")
    s.expect_log("event=handler_error model=all", 'sequence="s"', "KeyError: 'missing'")
    s.expect_log('return {}["missing"]')


def links_in(lines):
    return [int(n) for n in re.findall(r"ValueError: link (\d+) of the", "\n".join(lines))]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_traceback_takes_several_events_and_is_whole(server, form):
    """A chain of 41 causes is 20 kB: each link is in the log once, in order, and no event is cut."""
    s = server(python("all", ALL, mine="5"), flags=["--log-format", form])
    answer = say(s.client(), "chain")
    assert answer.status == 500 and "link 40 of the" in answer.message, answer
    s.expect_log("event=handler_error" if form == "text" else "handler_error")
    expect(lambda: sum("link 40 of the" in line for line in list(s.lines)) >= 2, "the whole traceback")
    if form == "text":
        assert links_in(line for line in s.lines if line.startswith("    ")) == list(range(41))
    else:
        events = [json.loads(line) for line in s.lines if "traceback" in line]
        assert links_in(event["traceback"] for event in events) == list(range(41))
        assert [event.get("part", 1) for event in events] == list(range(1, len(events) + 1))
        assert len(events) > 3


def test_what_a_handler_logs_is_whole_too(all_of):
    """logging.exception() writes a traceback as long as any."""
    s, client = all_of
    assert say(client, "chain", **{"x-log": "yes"}).text == "logged"
    expect(lambda: any("link 40 of the" in line for line in list(s.lines)), "all of it")
    assert links_in(s.lines) == list(range(41))


def test_a_traceback_has_a_bound(server):
    """handler.tracebackBytes: the beginning and the end stay, and the log says how much is missing."""
    s = server(python("all", ALL, mine="5", handler={"tracebackBytes": 1024}))
    say(s.client(), "chain")
    s.expect_log("characters are left out (handler.tracebackBytes)")
    expect(lambda: links_in(line for line in list(s.lines) if line.startswith("    "))[-1:] == [40], "its end")
    assert len(links_in(line for line in s.lines if line.startswith("    "))) < 20


def test_init_may_refuse_a_sequence(all_of):
    _, client = all_of
    answer = say(client, "refuse-init")
    assert (answer.status, answer.message) == (403, "not you")


def test_a_state_can_be_replaced(all_of):
    _, client = all_of
    say(client, "count")
    assert say(client, "replace").text == "replaced"
    assert say(client, "count").text == "1001"


@pytest.mark.parametrize("word, text, more", [
    ("pieces", "a b c", 101), ("send", "one two three", 1), ("await", "1001", 1001),
    ("at-once", "at once", 1), ("apieces", "0 1 2 ", 10001), ("asend", "0 1 2 end", 1),
    ("executor", "from a thread", 1)])
def test_generators_and_coroutines(all_of, word, text, more):
    """The pieces of a stream come in order, and the state is committed once, at its end."""
    _, client = all_of
    answer = say(client, word)
    assert (answer.status, answer.text) == (200, text), answer
    assert say(client, "count").text == str(more + 1)


def test_what_a_step_sends_leaves_while_it_runs_on(all_of, folder):
    """A step that never yields can show its progress: the client has a piece before the step ends."""
    s, client = all_of
    gate = folder / "gate"
    stream = s.stream("all", "s", "gated", {"x-gate": str(gate)})
    assert stream.piece() == b"first "
    assert (stream.head.status, stream.head.headers["x-mine"]) == (202, "yes")
    gate.touch()
    assert stream.rest() == b"second third"
    stream.close()
    assert say(client, "count").text == "2"


def test_a_step_that_sends_hears_that_its_client_left(all_of, folder):
    """req.cancelled is up to date after each req.send(), so such a step does not work for nobody."""
    s, client = all_of
    stream = s.stream("all", "s", "gated", {"x-gate": str(folder / "no-gate")})
    assert stream.piece() == b"first "
    stream.close()
    assert say(client, "count").text == "2"


LEAVES = """
import asyncio


async def step(state, req):
    if req.text == "show":
        return state.get("seen", "nothing")
    try:
        if req.text == "sleep":
            print("waits", flush=True)
            await asyncio.sleep(1000)
        else:
            await asyncio.gather(asyncio.wait_for(announced(), 500), asyncio.sleep(1000))
    except asyncio.CancelledError:
        state["seen"] = req.text
        return "a good end"


async def announced():
    print("waits", flush=True)
    await asyncio.sleep(1000)
"""


@pytest.mark.parametrize("word", ["sleep", "gather"])
def test_a_cancelled_step_may_end_well_whatever_it_waits_for(server, word):
    """What the step waits for is cancelled before it, and each level of it takes a turn of the loop."""
    s = server(python("leaves", LEAVES))
    stream = s.stream("leaves", "a", word)
    s.expect_log("waits")
    stream.close()
    expect(lambda: s.client().step("leaves", "a", "show").text == word, "the step's good end")
    assert not [line for line in s.lines if "handler_error" in line]


def test_an_async_step_that_has_failed_does_not_go_on(server):
    """What it sends cannot be sent, so the client has the error: the step's task must not run to its end."""
    s = server(python("fails", """
import asyncio


async def step(state, req):
    if req.text == "x":
        return "fine"
    try:
        await asyncio.sleep(0.01)
        req.send(object())
        await asyncio.sleep(0.3)
        print("the step goes on", flush=True)
    finally:
        print("the step has ended", flush=True)
        req.send("late")
"""))
    client = s.client()
    answer = client.step("fails", "a", "y")
    assert answer.status == 500 and "a reply must be a str" in answer.message, answer
    s.expect_log("the step has ended")
    assert not [line for line in s.lines if "the step goes on" in line]
    assert client.step("fails", "a", "x").text == "fine"


def test_an_error_after_a_piece_breaks_the_answer_off(all_of):
    """The client must not take the beginning for the whole answer, and the state stays as it was."""
    s, client = all_of
    stream = s.stream("all", "s", "send-and-raise")
    assert stream.piece() == b"one "
    with pytest.raises(Exception):
        stream.rest()
    stream.close()
    assert say(client, "count").text == "1"


def test_more_pieces_than_the_client_takes_arrive_all_the_same(all_of):
    """1 MB in one step is more than stream.bufferBytes: nothing is lost or doubled."""
    _, client = all_of
    assert say(client, "flood").text == "y" * 1_000_000 + "end"
    assert say(client, "count").text == "2"


def test_a_stream_that_breaks_off_changes_nothing(all_of):
    s, client = all_of
    stream = s.stream("all", "s", "break")
    assert stream.piece() == b"a "
    with pytest.raises(Exception):
        stream.rest()
    stream.close()
    assert say(client, "count").text == "1"


def test_an_endless_stream_is_told_that_its_client_left(all_of):
    """The generator gets "gone" and ends, and then the next step runs."""
    s, client = all_of
    stream = s.stream("all", "s", "forever")
    assert stream.piece()
    stream.close()
    assert say(client, "count").status == 200


def test_sleeping_steps_of_different_sequences_overlap(all_of):
    """Eight steps that await 50 ms each run at the same time. Steps of one sequence never do."""
    s, _ = all_of
    texts = []

    def ask(sequence):
        own = s.client(f"c{sequence}")
        texts.append([say(own, "await", f"o{sequence}").text for _ in range(3)])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [["1001", "2002", "3003"]] * 8


def test_what_a_handler_prints_and_logs_is_in_the_log(all_of):
    s, client = all_of
    assert say(client, "print").text == "printed"
    s.expect_log("model=all", "a line of mine")
    s.expect_log("model=all", "another")


def test_a_handlers_metrics_are_on_the_page(all_of):
    s, client = all_of
    say(client, "metric")
    expect(lambda: s.metric("py_steps") == 2, "the metric")


def test_a_request_that_is_kept_is_over(all_of):
    """A request object that the handler has kept cannot be used any more, because its bytes would belong to another
    client."""
    _, client = all_of
    say(client, "kept")
    answer = say(client, "use-kept", "t")
    assert answer.status == 500 and "this request has ended" in answer.message


def test_a_thread_that_outlives_its_step_holds_nothing_up(all_of):
    """Such a thread delays neither the next step nor the end of the worker."""
    s, client = all_of
    assert say(client, "thread").text == "started"
    assert say(client, "count").text == "2"
    s.stop()


BATCH = """
class Handler:
    def init(self, req):
        return {"n": 0}

    def batch(self, states, reqs):
        replies = []
        for state, req in zip(states, reqs):
            state["n"] += len(reqs)
            if req.text == "all":
                raise RuntimeError("all of us")
            if req.text == "short":
                return replies
            if req.text == "one":
                replies.append(ValueError("only me"))
            else:
                replies.append(str(state["n"]))
        return replies
"""


def test_a_class_with_batch_gets_all_rows_at_once(server):
    """batch() returns one reply for each row. An exception in the list fails its own row, and an exception that is
    raised fails all."""
    s = server(python("b", BATCH, batchSize=8))
    clients = [s.raw(f"c{i}") for i in range(4)]

    def round_(*bodies):
        with s.hold():
            for i, body in enumerate(bodies):
                clients[i].send(f"POST /predictions/b HTTP/1.1\r\nHost: t\r\nts-request-sequence-id: s{i}\r\n"
                                f"Content-Length: {len(body)}\r\n\r\n{body}")
            s.expect_outstanding("b", len(bodies))
        return [clients[i].answer() for i in range(len(bodies))]

    assert [a.text for a in round_("x", "x", "x", "x")] == ["4"] * 4
    answers = round_("x", "one", "x", "x")
    assert [a.status for a in answers] == [200, 500, 200, 200] and "only me" in answers[1].text
    assert [a.status for a in round_("x", "all", "x", "x")] == [500] * 4
    answers = round_("x", "short", "x", "x")
    # how many were made before it gave up depends on the order in which the four arrived
    assert all(re.search(r"got 4 requests and returned [0-3] replies", a.text) for a in answers), answers
    assert [a.text for a in round_("x", "x", "x", "x")] == ["12", "8", "12", "12"]


def test_the_wheel_is_the_package(folder, interpreter):
    """The wheel is for tests of handlers in a venv without the server."""
    run = subprocess.run([sys.executable, ROOT / "scripts" / "wheel.py", BUILD], capture_output=True, text=True,
                         timeout=limit(60), check=True)
    with zipfile.ZipFile(ROOT / run.stdout.split()[1].rstrip(",")) as wheel:
        wheel.extractall(folder / "site")
    if SANITIZED:
        return
    asked = "from continuo import testing, _worker; print(testing.request('5').text, _worker.VERSION)"
    said = subprocess.run([interpreter, "-c", asked], cwd=folder / "site", capture_output=True, text=True,
                          timeout=limit(60), check=False)
    assert said.stdout.split()[:1] == ["5"], said.stderr


def test_the_package_tests_pass(interpreter):
    """Runs python/tests with each interpreter."""
    if SANITIZED:
        pytest.skip("ctest runs them with the sanitizer's library before all others")
    for test in sorted((ROOT / "python" / "tests").glob("*_test.py")):
        run = subprocess.run([interpreter, test, WORKER.parents[1]], capture_output=True, text=True,
                             timeout=limit(120), check=False)
        assert run.returncode in (0, 77), run.stdout + run.stderr
