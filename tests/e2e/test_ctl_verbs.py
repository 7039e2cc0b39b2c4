"""continuo-ctl changes a server, runs predictions and shows slow steps."""

import base64
import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from models import BIN, BUILD, Model, counter, pack, stateless
from test_v2_state import seen, step
from waiting import expect, limit

# Waits for as many ms as its body says.
SLOW_LUA = """
local M = { api = 1 }
function M.init() return { n = 0 } end
function M.step(state, req)
    local t = os.clock() + tonumber(req.body) / 1000
    while os.clock() < t do end
    state.n = state.n + 1
    return { text = tostring(state.n) }
end
return M
"""


@pytest.fixture
def ctl(transcript):
    """ctl(server, word, ...) runs continuo-ctl, with no terminal."""
    def run(s, *words, stdin="", text=True):
        env = {**os.environ, "CONTINUO_INFERENCE": s.inference}
        done = subprocess.run([BIN / "continuo-ctl", "--server", s.management, *map(str, words)], capture_output=True,
                              text=text, input=stdin, timeout=limit(60), check=False, env=env)
        transcript.log("ctl", f"{' '.join(map(str, words))} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done
    return run


def states(s, name):
    return {each["modelVersion"]: each for each in s.admin().get(f"/models/{name}/all").json}


def test_a_model_from_its_registration_to_its_end(server, ctl):
    """Each verb does what its request to the management API does, and says so."""
    s = server()
    archive = s.pack(counter()).name
    done = ctl(s, "register", archive, "--name", "sum", "--workers", 2)
    assert done.returncode == 0 and "sum" in done.stdout
    assert len(s.ready_pids("sum")) == 2  # it has waited
    assert ctl(s, "predict", "sum", "5", "--sequence", "a").stdout == "5"
    assert ctl(s, "scale", "sum/1.0", 1).returncode == 0
    expect(lambda: len(s.ready_pids("sum")) == 1, "one worker")
    answer = json.loads(ctl(s, "scale", "sum", 1, 3, "--json").stdout)
    assert "status" in answer
    model = states(s, "sum")["1.0"]
    assert (model["minWorkers"], model["maxWorkers"]) == (1, 3)
    assert ctl(s, "unregister", "sum", "--yes").returncode == 0
    assert s.admin().get("/models/sum").status == 404


def test_what_stops_something_is_asked_for(server, ctl):
    """Without a terminal, --yes must say it; nothing is done before."""
    s = server(counter())
    for words in (["unregister", "counter"], ["scale", "counter", "0"]):
        done = ctl(s, *words)
        assert done.returncode == 2 and "--yes" in done.stderr and "counter" in done.stderr
    assert len(s.ready_pids("counter")) == 1


@pytest.mark.parametrize("says, code", [("yes", 0), ("no", 2)])
def test_on_a_terminal_it_asks(server, transcript, says, code):
    s = server(counter())
    master, slave = pty.openpty()
    process = subprocess.Popen([BIN / "continuo-ctl", "--server", s.management, "unregister", "counter"], stdin=slave,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(master, says.encode() + b"\n")
    _, errors = process.communicate(timeout=limit(30))
    transcript.log("ctl", errors)
    assert process.returncode == code and "Go on? [yes/no]" in errors
    assert s.admin().get("/models/counter").status == (404 if code == 0 else 200)


def test_a_swap_is_watched_until_no_sequence_is_left(server, ctl):
    """It returns when the last live sequence has moved to the new version."""
    s = server(counter())
    client = s.client()
    for name in ("a", "b"):
        client.step("counter", name, 1)
    new = pack(counter(version="2.0"), s.store, s.work, s.transcript, "two.mar")
    assert ctl(s, "register", new.name).returncode == 0
    results = []
    swap = threading.Thread(target=lambda: results.append(ctl(s, "swap", "counter/2.0")))
    swap.start()
    expect(lambda: states(s, "counter")["2.0"]["isDefault"] if "isDefault" in states(s, "counter")["2.0"] else
           states(s, "counter")["1.0"].get("swap"), "the swap has begun")
    assert swap.is_alive()
    for name in ("a", "b"):
        assert client.step("counter", name, 1).text == "2"
    swap.join(limit(30))
    assert results[0].returncode == 0 and "0 sequences live in older versions" in results[0].stderr
    assert ctl(s, "set-default", "counter/1.0", "--policy", "pin").returncode == 0


def test_predict_sends_steps(server, ctl, folder):
    """Words, files and the standard input are bodies; --json also has step and sequence."""
    s = server(counter(), stateless())
    assert ctl(s, "predict", "echo", "hello").stdout == "hello"
    (folder / "body").write_bytes(b"\xff\x00")
    answer = json.loads(ctl(s, "predict", "echo", f"@{folder}/body", "--json").stdout)
    assert base64.b64decode(answer["bodyBase64"]) == b"\xff\x00"
    assert ctl(s, "predict", "echo", "-", stdin="from stdin").stdout == "from stdin"
    answer = json.loads(ctl(s, "predict", "counter", "7", "--sequence", "s", "--start", "--json").stdout)
    assert (answer["body"], answer["step"]) == ("7", "1")
    for _ in range(2):
        assert ctl(s, "predict", "counter/1.0", "1", "--sequence", "s", "--key", "k1").stdout == "8"
    assert ctl(s, "predict", "counter", "1", "--sequence", "s", "--end").stdout == "9"
    failed = ctl(s, "predict", "counter", "x", "--sequence", "t")
    assert failed.returncode == 1 and "decimal integer" in failed.stderr
    missing = ctl(s, "predict", "nobody", "x")
    assert missing.returncode == 1 and "404" in missing.stderr
    assert "continuo-ctl models lists what is registered" in missing.stderr, missing
    absent = ctl(s, "register", "nobody.mar")
    assert absent.returncode == 1 and "looked up in the folder of the server's --model-store" in absent.stderr, absent


@pytest.mark.parametrize("words, message", [
    (["register"], "usage: continuo-ctl register URL"),
    (["scale", "m"], "usage: continuo-ctl scale MODEL[/VERSION] MIN [MAX]"),
    (["scale", "m", "some"], "MIN is \"some\"; it must be a number from 0 to 1024"),
    (["swap", "m"], "write MODEL/VERSION"),
    (["swap", "m/2", "--policy", "mi"], "must be one of: pin migrate reset reject"),
    (["unregister", "m", "--policy", "pin"], "this command does not take --policy"),
    (["predict", "m/1/2", "x"], "does not name a model"),
    (["predict", "m", "x", "--inference", "localhost"], "is not an address"),
    (["slowlog", "--sort", "id"], "must be one of: duration time"),
    (["slowlog", "empty"], "must be one of: clear"),
    (["status", "--yes"], "this command does not take --yes"),
    (["seq", "ls", "m", "--sort", "time"], "id idle step size backlog"),
    (["seq", "show", "m", "a", "--sort", "id"], "does not take"),
    (["--print-completions", "ksh"], "must be bash, zsh or fish"),
])
def test_wrong_command_lines_name_the_mistake(words, message):
    done = subprocess.run([BIN / "continuo-ctl", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and message in done.stderr, done.stderr


@pytest.mark.parametrize("verb,flag", [("restore", "--replace"), ("backup", "--model NAME"), ("swap", "--no-wait")])
def test_the_help_of_a_command_says_what_it_does_and_has_its_flags(verb, flag):
    shown = subprocess.run([BIN / "continuo-ctl", verb, "--help"], capture_output=True, text=True, check=True).stdout
    usage, what, *rest = [line.strip() for line in shown.splitlines() if line]
    assert usage.startswith(f"usage: continuo-ctl {verb} ") and what[0].isupper() and what.endswith(".")
    assert flag in rest and not any(line.startswith("with ") for line in rest), shown


def test_slow_steps_are_kept_with_their_phases(server, ctl):
    """The slowest first; the phases add up to the whole; the ring keeps the last ones."""
    s = server(Model("slow", SLOW_LUA), counter(), flags=["--slowlog-threshold", 30, "--slowlog-length", 4])
    client = s.client()
    assert client.step("counter", "quick", 1).status == 200
    assert ctl(s, "slowlog", "--json").stdout and json.loads(ctl(s, "slowlog", "--json").stdout)["steps"] == []
    assert "No step took 30 ms" in ctl(s, "slowlog").stderr
    for ms in (40, 120, 60):
        assert client.step("slow", f"s{ms}", ms).status == 200
    listed = json.loads(ctl(s, "slowlog", "--json").stdout)
    assert (listed["thresholdMSec"], listed["kept"], listed["seen"]) == (30, 4, 3)
    assert {step["sequence"] for step in listed["steps"]} == {"s120", "s60", "s40"}
    times = [step["totalMSec"] for step in listed["steps"]]
    assert times == sorted(times, reverse=True)
    for step in listed["steps"]:
        assert step["handlerMSec"] >= int(step["sequence"][1:])
        parts = sum(step[part + "MSec"] for part in ("queue", "worker", "handler", "commit"))
        assert parts <= step["totalMSec"] + 0.001
        assert (step["modelName"], step["step"], step["error"], step["sent"]) == ("slow", 1, None, 1)
    newest = json.loads(ctl(s, "slowlog", "--json", "--sort", "time", "--limit", 2).stdout)["steps"]
    assert [step["sequence"] for step in newest] == ["s60", "s120"]
    assert json.loads(ctl(s, "slowlog", "--json", "--model", "counter").stdout)["steps"] == []
    table = ctl(s, "slowlog").stdout.splitlines()
    assert table[0].split()[:4] == ["ENDED", "MODEL", "SEQUENCE", "STEP"] and len(table) == 4
    for ms in (31, 32, 33):
        client.step("slow", f"t{ms}", ms)
    listed = json.loads(ctl(s, "slowlog", "--json").stdout)
    assert listed["seen"] == 6 and {step["sequence"] for step in listed["steps"]} == {"s60", "t31", "t32", "t33"}
    assert ctl(s, "slowlog", "clear").returncode == 2
    assert ctl(s, "slowlog", "clear", "--yes").returncode == 0
    assert json.loads(ctl(s, "slowlog", "--json").stdout)["steps"] == []
    assert s.admin().get("/slowlog?sort=size").status == 400
    assert s.admin().put("/slowlog").status == 405


def test_without_places_no_step_is_kept(server, ctl):
    s = server(counter(), flags=["--slowlog-threshold", 0, "--slowlog-length", 0])
    s.client().step("counter", "a", 1)
    assert json.loads(ctl(s, "slowlog", "--json").stdout)["steps"] == []


def test_a_threshold_of_zero_keeps_every_step(server, ctl, any_loops):
    """Several loops write into one list."""
    s = server(*(counter(f"c{i}") for i in range(3)), flags=["--slowlog-threshold", 0, "--slowlog-length", 1000])
    threads = [threading.Thread(target=lambda i=i: [s.client(f"w{i}").step(f"c{i}", f"s{k % 3}", 1) for k in range(30)])
               for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = json.loads(ctl(s, "slowlog", "--json").stdout)["steps"]
    assert len(steps) == 90 and {step["number"] for step in steps} == set(range(1, 91))


def test_sequences_are_sorted(server, ctl):
    """The largest of all pages comes first, also if the limit is smaller than the list."""
    s = server(counter(), flags=["--max-page-size", 3])
    client = s.client()
    for name, n in (("a", 1), ("b", 4), ("c", 2), ("d", 3), ("e", 5)):
        for _ in range(n):
            client.step("counter", name, 1)
    for sort, order in (("step", "ebdca"), ("id", "abcde")):
        rows = ctl(s, "seq", "ls", "counter", "--sort", sort).stdout.splitlines()[1:]
        assert [row.split()[0] for row in rows] == list(order)
    assert [each["sequence"] for each in
            json.loads(ctl(s, "seq", "ls", "counter", "--sort", "step", "--limit", 2, "--json").stdout)] == ["e", "b"]


# Runs a program and prints the most memory that it had, in kB. A process begins with the peak of the one that made it,
# so this is not done by the tests' own large process.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_bytes(s, *words):
    command = [sys.executable, "-S", "-c", PEAK, BIN / "continuo-ctl", "--server", s.management, *map(str, words)]
    # AddressSanitizer would keep what was freed.
    return int(subprocess.check_output(command, env=os.environ | {"ASAN_OPTIONS": "quarantine_size_mb=1"},
                                       timeout=limit(60))) << 10


@pytest.mark.skipif("release" not in BUILD.name, reason="sanitizers keep freed memory")
def test_to_sort_many_sequences_takes_bounded_memory(server):
    """It keeps only those of 20,000 sequences that may be among the first. All of them would take 55 MB."""
    s = server(counter(batchSize=64, maxNumSequence=30000))
    opening = s.bench("--open-only", 20000, "--connections", 64)
    assert opening.wait(limit(120)) == 0, opening.stderr.read()
    few = peak_bytes(s, "seq", "ls", "counter", "--limit", 10)
    assert peak_bytes(s, "seq", "ls", "counter", "--limit", 10, "--sort", "size") < few + (25 << 20)


# A state with each kind of value that Lua can store.
RICH_LUA = """
local M = { api = 1 }
function M.init() return { sum = 0, ratio = 0.5, name = "one", big = {}, raw = string.char(255, 0), on = true } end
function M.step(state, req)
    state.sum = state.sum - 70000
    for i = 1, 300 do state.big[i] = i end
    return { text = tostring(state.sum) }
end
return M
"""


def test_a_state_is_shown_as_json(server, ctl):
    """Numbers, texts, lists and bytes are as the handler has them; long lists are cut."""
    s = server(Model("rich", RICH_LUA), counter())
    client = s.client()
    assert client.step("rich", "a", "").text == "-70000"
    shown = json.loads(ctl(s, "seq", "show", "rich", "a", "--state", "--json").stdout)
    state = shown["stateValue"]
    assert shown["step"] == 1 and (state["sum"], state["ratio"], state["name"], state["on"]) == (-70000, 0.5, "one", True)
    assert state["raw"] == {"bytes": 2, "hex": "ff00"}
    assert state["big"][:3] == [1, 2, 3] and len(state["big"]) == 201 and state["big"][-1] == "... 100 more"
    text = ctl(s, "seq", "show", "--state", "rich", "a").stdout
    assert "state value:" in text and '"name": "one"' in text
    assert "stateValue" not in json.loads(ctl(s, "seq", "show", "rich", "a", "--json").stdout)
    client.step("counter", "e", 1)
    assert s.admin().delete("/models/counter/sequences/e").status == 200
    closed = json.loads(ctl(s, "seq", "show", "counter", "e", "--state", "--json").stdout)
    assert closed["state"] == "closed" and closed["stateValue"] is None
    assert client.step("rich", "a", "").text == "-140000"


STATE_PY = """
import collections
def init(req):
    return {"count": 2**70, "mean": 0.25, "words": ["a", None, True], 3: b"\\xff", "last": collections.deque([1], 4)}
def step(state, req):
    return "ok"
"""


def test_states_of_python_and_tensors_are_shown(server, ctl):
    """The forms of the other runtimes are decoded, too."""
    s = server(seen())
    step(s, 7)
    shown = json.loads(ctl(s, "seq", "show", "seen", "s", "--state", "--json").stdout)["stateValue"]
    assert shown == {"S": {"datatype": "INT32", "shape": [1], "bytes": 4, "first": [7]}}
    if not (BIN / "python" / "continuo" / "_worker.abi3.so").exists():
        pytest.skip("this build has no Python (python3-dev)")
    archive = s.pack(Model("py", STATE_PY, handler_name="handler.py")).name
    assert ctl(s, "register", archive).returncode == 0
    assert s.client().step("py", "p", "").text == "ok"
    state = json.loads(ctl(s, "seq", "show", "py", "p", "--state", "--json").stdout)["stateValue"]
    assert state["mean"] == 0.25 and state["words"] == ["a", None, True] and state["last"] == [1]
    assert state["3"] == {"bytes": 1, "hex": "ff"} and state["count"]["bytes"] == 9
