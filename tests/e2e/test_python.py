"""Handlers in Python have the same promises as those in Lua, and run in the user's own interpreter.

CONTINUO_PYTHONS names the interpreters, separated by colons. The default is the interpreter that runs the tests."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile

import pytest

from models import BUILD, COUNTER_PY, ROOT, python
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


# --- what survives ---

def test_sequences_outlive_workers_and_servers(server, interpreter):
    """The worker is killed, the server is killed, and the server is restarted cleanly. Each step counts once."""
    s = server(python("counter", python=interpreter))
    client = s.client()
    assert [client.step("counter", "a", 5).text for _ in range(3)] == ["5", "10", "15"]
    s.kill_worker("counter")
    assert client.step("counter", "a", 5).text == "20"
    s.kill()
    s.restart()
    assert s.client().step("counter", "a", 5).text == "25"
    s.stop()
    s.restart()
    assert s.client().step("counter", "a", 5).text == "30"


def test_a_worker_that_begins_after_its_server_was_killed_ends_before_it_loads(server, folder):
    """Its interpreter may take seconds to start, and its handler minutes to import what it needs. All that time the
    worker would hold the state folder, for which the next server waits."""
    gate, slow, interpreter = folder / "gate", folder / "slow", folder / "python3"
    os.mkfifo(gate)
    slow.touch()
    interpreter.write_text(f'#!/bin/sh\n[ ! -p {gate} ] || read word <{gate}\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    importing = f"import os, time\nwhile os.path.exists({str(slow)!r}):\n    time.sleep(0.01)\n"
    s = server(start=False)
    s.models = []
    s.start()
    model = python("counter", importing + COUNTER_PY, python=interpreter)
    assert s.register(model, initial_workers=1, synchronous="false").status == 202
    expect(lambda: len(s.session_members()) == 2, "the interpreter begins")
    assert len(s.workers("counter")) == 1  # by now its LOAD was sent
    s.kill()
    with open(gate, "w", encoding="ascii") as opened:  # returns when the interpreter reads
        gate.unlink()
        opened.write("go\n")
    expect(lambda: not s.session_members(), "the worker ends")
    s.restart()


EXACT = """
import collections


def init(req):
    return {"none": None, "bool": [True, False], "int": [0, -1, 2**63 - 1, -2**63, 2**63, 10**40, -10**40],
            "float": [0.0, -0.0, 1.5, 1e308, float("inf")], "str": ["", "ü€😀", "\\ud800"],
            "bytes": bytes(range(256)), "list": [[], [1, [2]]], "tuple": ((), (1, (2,))),
            "dict": {1: "a", (1, 2): "b", None: "c", "k": {"deep": {}}}, "set": {1, 2},
            "frozen": frozenset([3]), "complex": 1 - 2j, "array": bytearray(b"xy"),
            "deque": collections.deque([1, 2, 3], maxlen=5)}


def step(state, req):
    state["deque"].append(len(state["deque"]))
    expected = init(req)
    for _ in range(req.step + 1):
        expected["deque"].append(len(expected["deque"]))
    return repr(state == expected and repr(state) == repr(expected))
"""


def test_a_state_comes_back_as_it_was(server, interpreter):
    """Types, order and every bit are the same, whether the state comes from memory or from the store."""
    s = server(python("exact", EXACT, python=interpreter))
    for _ in range(2):
        assert s.client().step("exact", "a", "x").text == "True"
        s.kill_worker("exact")
    assert s.client().step("exact", "a", "x").text == "True"


NUMBERS = """
import numpy as np


def init(req):
    return {"f": np.arange(6, dtype="<f4").reshape(2, 3), "t": np.asfortranarray(np.arange(6).reshape(2, 3)),
            "u": np.array(["a", "bc"]), "d": np.array("2026-01-01", "M8[D]"), "e": np.zeros((0, 3), ">i2"),
            "s": np.float32(0.1), "b": np.bool_(True), "view": np.arange(10)[::2]}


def step(state, req):
    state["f"] += 1
    want = init(req)
    want["f"] += req.step + 1
    for name, value in want.items():
        have = state[name]
        assert type(have) is type(value) and have.dtype == value.dtype, name
        assert np.shape(have) == np.shape(value) and np.all(have == value), name
    if req.text == "object":
        state["f"] = np.array([object()])
    assert state["t"].flags.f_contiguous or req.text == "object"
    return state["f"].tolist() if req.text != "object" else "x"
"""


def test_numpy_arrays_are_state(server):
    """This includes scalars, other byte orders, column-major order and empty arrays, but not arrays of objects."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("numbers", NUMBERS))
    client = s.client()
    assert client.step("numbers", "a", "x").json == [[1, 2, 3], [4, 5, 6]]
    s.kill_worker("numbers")
    assert client.step("numbers", "a", "x").json == [[2, 3, 4], [5, 6, 7]]
    answer = client.step("numbers", "a", "object")
    assert 'state["f"]: a NumPy array of type object cannot be stored' in answer.message


TORCH = """
import torch


def init(req):
    return {"h": torch.zeros(1, 4), "b": torch.ones(3, dtype=torch.bfloat16), "c": (torch.arange(4),)}


def step(state, req):
    state["h"] = state["h"] + 1
    assert state["b"].dtype is torch.bfloat16 and state["c"][0].tolist() == [0, 1, 2, 3]
    if req.text == "grad":
        state["h"].requires_grad_()
    return state["h"].tolist()
"""


def test_torch_tensors_are_state(server):
    pytest.importorskip("torch", reason="the tests' own Python has no PyTorch")
    s = server(python("tensors", TORCH, startupTimeout=120))
    client = s.client()
    assert client.step("tensors", "a", "x").json == [[1.0] * 4]
    s.kill_worker("tensors")
    assert client.step("tensors", "a", "x").json == [[2.0] * 4]
    assert 'state["h"]: a tensor that requires grad' in client.step("tensors", "a", "grad").message


PICKLED = """
import fractions
state_format = "pickle"


def init(req):
    return fractions.Fraction(1, 3)


def step(state, req):
    req.state = state * 2
    return str(req.state)
"""


def test_pickle_is_opt_in(server):
    """With pickle any object may be a state. A handler without it refuses a pickled state."""
    s = server(python("p", PICKLED))
    client = s.client()
    assert client.step("p", "a", "x").text == "2/3"
    s.kill_worker("p")
    assert client.step("p", "a", "x").text == "4/3"
    exported = s.admin().get("/models/p/sequences/a?export=true")
    assert s.register(python("q", PICKLED.replace('state_format = "pickle"', ""))).status == 200
    imported = s.admin().put("/models/q/sequences/a?any_model=true", body=exported.body)
    answer = client.step("q", "a", "x") if imported.status == 200 else imported
    assert answer.status >= 400 and "pickle" in answer.message, answer


MIGRATING = """
state_schema = 2


def init(req):
    return {"total": 0, "from": "new"}


def migrate(state, from_schema, version):
    return {"total": state["sum"], "from": f"{from_schema}/{version}"}


def step(state, req):
    state["total"] += 2 * int(req.body)
    return f"{state['total']} {state['from']}"
"""


def test_sequences_move_to_the_next_version(server):
    """migrate(state, from_schema, version) makes a state of today's layout. An exported sequence can be imported, too.
    """
    s = server(python("counter"))
    client = s.client()
    assert client.step("counter", "a", 5).text == "5"
    exported = s.admin().get("/models/counter/sequences/a?export=true")
    assert s.register(python("counter", MIGRATING, "2.0", sequence={"swapPolicy": "migrate"})).status == 200
    assert s.admin().put("/models/counter/2.0/set-default").status == 200
    assert client.step("counter", "a", 1).text == "7 1/1.0"
    assert s.admin().put("/models/counter/1.0/sequences/b", body=exported.body).status == 200
    assert client.step("counter/1.0", "b", 1).text == "6"


SUMS_OF_TORCHSERVE = """
from continuo import SequenceState


class Sum:
    def initialize(self, context):
        self.sums = SequenceState()

    def handle(self, data, context):
        ids = [context.get_sequence_id(i) for i, _ in enumerate(data)]
        for id, row in zip(ids, data):
            self.sums[id] = self.sums.get(id, 0) + int(bytes(row["body"]).decode())
        return [str(self.sums[id]) for id in ids]
"""


@pytest.mark.load
@pytest.mark.parametrize("text", [COUNTER_PY, SUMS_OF_TORCHSERVE], ids=["native", "torchserve"])
def test_random_kills_under_load_of_verified_sequences(server, text):
    """The central promise, as for Lua in test_kill.py: the bench checks each running sum.

    There are 8 kills; CONTINUO_KILLS=100 makes a long run."""
    kills = int(os.environ.get("CONTINUO_KILLS", "8"))
    s = server(python("counter", text, minWorkers=3, maxWorkers=3, batchSize=16))
    s.expect_ready("counter", 3)
    bench = s.bench("--connections", 64, "--duration", 100_000, "--warmup", 0, "--end", "--stall-seconds", 60)
    chance = random.Random(20261123)
    for number in range(kills):
        victim = chance.choice(expect(lambda: s.ready_pids("counter"), "a worker to kill", 60))
        s.transcript.log("test", f"kill {number + 1} of {kills}: worker {victim}")
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        assert bench.poll() is None, bench.communicate()
        seen = s.describe("counter")["steps"]
        expect(lambda: s.describe("counter")["steps"] > seen + 50, "the load goes on", 60)
    bench.send_signal(signal.SIGINT)
    out, err = bench.communicate(timeout=limit(90))
    assert bench.returncode == 0, f"{out} {err}"
    result = json.loads(out)
    assert (result["errors"], result["mismatches"], result["ended"]) == (0, 0, 64), f"{out} {err}"


# --- what is wrong before the first step ---

def refused(server, text, **yaml):
    """Registers the model and returns the message that the operator reads."""
    s = server(start=False)
    s.models = []
    s.start()
    made = s.register(python("m", text, **yaml), initial_workers=1, synchronous="true")
    return made


LOADS = [
    ("def step(state, req)\n    pass\n", "handler.py:1: SyntaxError: expected ':'"),
    ("x = 1\n", "the handler has neither step(state, req) nor batch(states, reqs) nor handle(req)"),
    ("import not_there\ndef step(s, r): pass\n", "No module named 'not_there'"),
    ("import not_there\ndef step(s, r): pass\n", "install the package that has it for " + sys.executable),
    ("def load(model): import not_there\ndef step(s, r): pass\n", "handler.py:1: ModuleNotFoundError"),
    ("import sys\nsys.exit(3)\ndef step(s, r): pass\n", "sys.exit(3)"),
    ("def load(model):\n    x = [0] * 5\n    return x[9]\ndef step(s, r): pass\n", "handler.py:3: IndexError"),
    ("import os\nos._exit(3)\ndef step(s, r): pass\n", "exited with status 3"),
    ("api = 2\ndef step(s, r): pass\n", "the handler has api = 2, and this version of Continuo runs Python "
                                         "handlers with api = 1"),
    ("def load(model): raise OSError('no weights')\ndef step(s, r): pass\n", "OSError: no weights"),
    ("async def load(model): raise OSError('no weights')\ndef step(s, r): pass\n", "OSError: no weights"),
    ("def load(model): return False\ndef step(s, r): pass\n", "load(model) failed: it returned False"),
    ("def handle(req): pass\n", "handle(req) gets no state, but the model has sequenceBatching"),
    ("step = 5\ndef batch(s, r): pass\n", "step must be a function, got int"),
    ("state_schema = 'x'\ndef step(s, r): pass\n", "state_schema must be a whole number, got 'x'"),
    ("def on_close(s): pass\ndef step(s, r): pass\n", "on_close is never called"),
]


@pytest.mark.parametrize("text, message", LOADS, ids=[str(i) for i in range(len(LOADS))])
def test_a_handler_that_cannot_be_loaded_says_why(server, text, message):
    answer = refused(server, text)
    assert answer.status >= 400 and (message in answer.message or
                                     message.startswith("handler.py:1: SyntaxError") and
                                     "handler.py:1: SyntaxError" in answer.message), answer


def test_a_syntax_error_is_shown_with_a_caret(server):
    """File and line for the one who registers, and the place in the line for the one who reads the log."""
    s = server(start=False)
    s.models = []
    s.start()
    answer = s.register(python("m", "x = 1\ndef step(state, req):\n    return (1 +\n"),
                        initial_workers=1, synchronous="true")
    assert answer.status >= 400 and "handler.py:3: SyntaxError: " in answer.message, answer
    lines = list(s.lines)
    at = next(i for i, line in enumerate(lines) if line == "        return (1 +")
    assert lines[at + 1] == "               ^"


def test_api_may_be_a_name_of_the_handlers_own(server):
    """Only a number is the version of the interface."""
    s = server(python("m", "api = object()\n" + COUNTER_PY))
    assert s.client().step("m", "a", 5).text == "5"
    assert s.register(python("m1", "api = 1\n" + COUNTER_PY)).status == 200
    assert s.client("two").step("m1", "a", 5).text == "5"


def test_no_interpreter(server):
    """The message names the interpreter, and says where another one can be set."""
    answer = refused(server, COUNTER_PY, python="/no/such/python")
    assert answer.status == 400 and "there is no Python interpreter /no/such/python" in answer.message
    assert "--python" in answer.message


def test_an_interpreter_that_is_too_old(server):
    old = next((path for path in (shutil.which("python3.8"), shutil.which("python2.7"),
                                  *map(str, pathlib.Path.home().glob(".pyenv/versions/3.8.*/bin/python")))
                if path and subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0),
               None)
    if old is None:
        pytest.skip("no Python before 3.9 is here")
    answer = refused(server, COUNTER_PY, python=old)
    assert answer.status >= 400 and "Python models need 3.9 or later" in answer.message, answer


def test_a_worker_that_dies_in_a_step_is_replaced(server):
    """The process ends by os._exit or by a crash in C. Other steps are answered, and the step's own client learns why.
    """
    text = ("import ctypes, os\ndef init(req): return {'n': 0}\n"
            "def step(state, req):\n    if req.text == 'exit': os._exit(3)\n"
            "    if req.text == 'crash': ctypes.string_at(0)\n"
            "    if req.text == 'recurse': recurse()\n    state['n'] += 1\n    return state['n']\n"
            "def recurse():\n    import sys\n    sys.setrecursionlimit(10 ** 9)\n    nested = []\n"
            "    for _ in range(500_000): nested = [nested]\n    return repr(nested)\n")
    s = server(python("m", text))
    client = s.client()
    assert client.step("m", "a", "x").text == "1"
    words = ["exit"]
    if not SANITIZED:  # a sanitizer reports a crash
        words += ["crash", "recurse"] if sys.version_info < (3, 12) else ["crash"]
    for word in words:
        answer = client.step("m", "b", word)
        assert (answer.status, answer.error) == (500, "worker_died"), answer
        assert ("exited with status 3" if word == "exit" else "SIGSEGV") in answer.message, answer
        assert client.step("m", "a", "x").status == 200
    assert client.step("m", "a", "x").text == str(2 + len(words))


FORKING = """
import os, subprocess, time


def init(req):
    return {"n": 0}


def step(state, req):
    state["n"] += 1
    if req.text == "fork":
        if os.fork() == 0:
            return "from the child"
        os.wait()
    if req.text == "leave":  # a child that lives on
        child = os.fork()
        if child == 0:
            time.sleep(3600)
            os._exit(0)
        return child
    if req.text == "program":
        return subprocess.run(["sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"], capture_output=True).stdout
    return state["n"]
"""


def test_a_child_of_a_fork_never_answers_for_its_parent(server):
    """A forked child would be a second worker on the same socket, so it never continues as one. Programs that the
    handler starts inherit none of its descriptors."""
    s = server(python("m", FORKING))
    client = s.client()
    assert client.step("m", "a", "fork").text == "1"
    s.expect_log("a child process that the handler has forked returned")
    assert client.step("m", "a", "x").text == "2"
    assert set(client.step("m", "a", "program").text.split()) <= {"0", "1", "2", "3"}  # 3: of ls itself


def test_a_child_of_a_fork_keeps_no_server_from_starting(server):
    """Nothing ends the child when the worker and the server are killed, so it must not hold the state folder."""
    s = server(python("m", FORKING))
    child = int(s.client().step("m", "a", "leave").text)
    try:
        s.kill()
        s.restart()
        assert s.client().step("m", "a", "x").text == "2"
        os.kill(child, 0)  # it lived meanwhile
    finally:
        os.kill(child, signal.SIGKILL)


LOUD = """
import sys


def init(req):
    return {"n": 0}


def step(state, req):
    state["n"] += 1
    if req.text == "print":
        for n in range(1000):
            print(n, "x" * 100_000)
        sys.stdout.write("y" * 1_000_000)
    return state["n"]


def close(sequence_id, state, reason):
    raise KeyError(sequence_id)
"""


def test_a_handler_that_prints_100_mb_is_answered(server):
    """What it prints goes through the server, which keeps answering others; nothing is kept in memory."""
    s = server(python("loud", LOUD), python("counter"))
    client = s.client()
    done = []
    thread = threading.Thread(target=lambda: done.append(client.step("loud", "a", "print")))
    thread.start()
    other = s.client("other")
    answers = 0
    while thread.is_alive():
        assert other.step("counter", "b", 1).status == 200
        answers += 1
    thread.join()
    assert done[0].text == "1" and answers > 0
    s.expect_log("event=worker_stderr", "999 xxx", timeout=60)
    assert client.step("loud", "a", "x").text == "2"
    resident = int(pathlib.Path(f"/proc/{s.process.pid}/statm").read_text().split()[1]) * 4096
    assert SANITIZED or resident < 100_000_000


def test_an_exception_in_close_is_logged_and_the_sequence_is_closed(server):
    """Nobody waits for the answer of close(), so it is for the operator."""
    s = server(python("loud", LOUD))
    client = s.client()
    assert client.step("loud", "a", "x").text == "1"
    assert s.admin().delete("/models/loud/sequences/a").status == 200
    s.expect_log("event=handler_close_failed", "KeyError: 'a'")
    assert client.step("loud", "b", "x").text == "1"


def test_an_exception_in_init_fails_the_step_alone(server):
    s = server(python("m", "def init(req): return {'n': 1 / len(req.body)}\n"
                           "def step(state, req): return 'x'\n"))
    client = s.client()
    answer = client.step("m", "a", "")
    assert answer.status == 500 and "handler.py:1: ZeroDivisionError" in answer.message, answer
    assert client.step("m", "a", "x").text == "x"


def test_a_step_that_does_not_end_is_cut_off(server):
    """The worker is replaced after responseTimeout, and the sequence continues from its last step."""
    text = ("def init(req): return {'n': 0}\n"
            "def step(state, req):\n    state['n'] += 1\n    if req.text == 'hang': sum(range(10 ** 12))\n"
            "    return state['n']\n")
    s = server(python("m", text, responseTimeout=2))
    client = s.client()
    assert client.step("m", "a", "x").text == "1"
    assert client.step("m", "a", "hang").status >= 500
    assert client.step("m", "a", "x").text == "2"


TYPED = """
import numpy as np


def init(req):
    return np.zeros(2, np.float32)


def step(state, req):
    state += req.inputs["X"]
    return {"Y": state.copy(), "S": [f"{value:.1f}" for value in state]}
"""


def test_typed_models_get_and_give_arrays(server):
    """Inputs are NumPy arrays by name. Outputs may be arrays or lists, and are checked."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("t", TYPED,
                      input=[{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
                      output=[{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]},
                              {"name": "S", "data_type": "TYPE_STRING", "dims": [2]}]))
    client = s.client()
    for number in (1, 2):
        body = json.dumps({"parameters": {"sequence_id": "a", "sequence_start": number == 1},
                           "inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}]})
        answer = client.post("/v2/models/t/infer", body)
        outputs = {each["name"]: each["data"] for each in answer.json["outputs"]}
        assert outputs == {"Y": [number, 2.5 * number], "S": [f"{number}.0", f"{2.5 * number:.1f}"]}


def test_bytes_of_numpy_are_a_body(server):
    """numpy.bytes_ is derived from bytes."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("t", "import numpy as np\nfrom continuo import Reply\n\n\ndef step(state, req):\n"
                      "    return Reply(np.array([req.body], 'S')[0])\n", sequenceBatching=False))
    answer = s.client().post("/predictions/t", "some bytes")
    assert (answer.status, answer.text) == (200, "some bytes")


LAYOUTS = """
import numpy as np
from continuo import Reply

GRID = np.arange(12, dtype=np.int32).reshape(3, 4)
VALUES = {
    "whole": lambda: GRID,
    "columns": lambda: GRID[:, ::2],
    "backwards": lambda: GRID[::-1, ::-1],
    "transposed": lambda: GRID.T,
    "fortran": lambda: np.asfortranarray(GRID),
    "other-order": lambda: GRID.astype(">i4"),
    "unaligned": lambda: np.frombuffer(b"x" + GRID.tobytes(), np.int32, offset=1),
    "read-only": lambda: np.frombuffer(GRID.tobytes(), np.int32),
    "scalar": lambda: np.array(7, np.int32),
    "number": lambda: 7,
    "large": lambda: np.arange(600, dtype=np.int32).reshape(20, 30).T,
    "large-float": lambda: np.zeros((20, 30), np.float32).T,
    "empty": lambda: np.zeros((0, 4), np.int32),
    "matrix": lambda: np.asmatrix(GRID),
    "field": lambda: np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")])["a"],
    "float": lambda: GRID.astype(np.float32),
    "date": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "pairs": lambda: np.array([(1, 2)], "<i4,<i4"),
    "deep": lambda: np.zeros((1,) * 17, np.int32),
}


def step(state, req):
    value = VALUES[req.parameters["what"]]()
    return Reply(outputs={"Y": value}) if req.parameters["reply"] else {"Y": value}
"""


def test_outputs_of_every_layout(server):
    """The client gets the elements in the order of their indices, however the array keeps them in memory."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    grid = [[4 * row + column for column in range(4)] for row in range(3)]
    flat = [value for row in grid for value in row]
    right = {"whole": ([3, 4], flat), "columns": ([3, 2], [row[i] for row in grid for i in (0, 2)]),
             "backwards": ([3, 4], flat[::-1]), "transposed": ([4, 3], [row[i] for i in range(4) for row in grid]),
             "fortran": ([3, 4], flat), "other-order": ([3, 4], flat), "unaligned": ([12], flat), "read-only": ([12], flat),
             "scalar": ([], [7]), "number": ([], [7]),
             "large": ([30, 20], [30 * row + column for column in range(30) for row in range(20)]), "empty": ([0, 4], []), "matrix": ([3, 4], flat), "field": ([2], [1, 3])}
    wrong = {"large-float": "output 'Y' is an array of FP32, but the model declares INT32: convert it with .astype()",
             "float": "output 'Y' is an array of FP32, but the model declares INT32: convert it with .astype()",
             "date": "output 'Y': an array of type datetime64[D] has no datatype of v2",
             "pairs": "has no datatype of v2", "deep": "output 'Y': its rank is 17, and at most 16 is possible"}
    s = server(python("t", LAYOUTS, sequenceBatching=False,
                      input=[{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
                      output=[{"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]}]))
    client = s.client()

    def ask(what, reply):
        return client.post("/v2/models/t/infer", json.dumps(
            {"parameters": {"what": what, "reply": reply},
             "inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [1]}]}))

    for reply in (False, True):
        for what, (shape, data) in right.items():
            answer = ask(what, reply)
            assert answer.status == 200, (what, answer.text)
            (output,) = answer.json["outputs"]
            assert (what, output["shape"], output["data"], output["datatype"]) == (what, shape, data, "INT32")
        for what, words in wrong.items():
            answer = ask(what, reply)
            assert answer.status == 500 and words in answer.json["error"], (what, answer.text)


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
