"""A Python handler that cannot be loaded says why, and one that fails, prints or forks harms nobody but its own step."""

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from models import COUNTER_PY, python
from test_python import SANITIZED, pytestmark  # noqa: F401 - a fixture, and the reason to skip
from waiting import expect


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
    shown = ["        return (1 +", "               ^"]
    expect(lambda: shown in [list(pair) for pair in itertools.pairwise(list(s.lines))], "the line and its caret in the log")


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
