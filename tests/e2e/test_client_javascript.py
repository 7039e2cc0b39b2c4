"""The JavaScript module clients/javascript/continuo.mjs in Node, against servers that are killed."""

import json
import re
import shutil
import subprocess
import threading

import pytest

from models import ROOT, Model, counter
from test_client_python import Progress, at_a_fixed_port, kill_now_and_then
from test_examples import blocks
from test_tokens import keys
from waiting import FACTOR, limit

PROGRAM = ROOT / "tests" / "e2e" / "client_javascript.mjs"


def node_command():
    """Returns the command for a Node that has a WebSocket, which is an option before version 22."""
    node = shutil.which("node") or shutil.which("nodejs")
    if not node:
        pytest.skip("Node is not installed (Debian's package nodejs)")
    for flags in [], ["--experimental-websocket"]:
        asked = subprocess.run([node, *flags, "-p", "typeof WebSocket"], capture_output=True, text=True, check=False,
                               timeout=limit(20))
        if asked.stdout.strip() == "function":
            return [node, *flags]
    pytest.skip("this Node has no WebSocket: it is older than 20.10")


@pytest.fixture
def node():
    """node(what, url, ...) starts tests/e2e/client_javascript.mjs."""
    command, started = node_command(), []

    def start(*words):
        started.append(subprocess.Popen([*command, str(PROGRAM), *map(str, words)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def said(process):
    """Returns the next result. A program that says nothing for too long is ended."""
    timer = threading.Timer(limit(60), process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    assert line, process.stderr.read()
    return json.loads(line)


@pytest.mark.load
@pytest.mark.parametrize("form", ["sequence", "stream"])
def test_kills_of_workers_and_servers_lose_double_and_reorder_nothing(server, node, form):
    """32 sequences, 60 steps each; six kills, two of them of the whole server."""
    flags, url = at_a_fixed_port()
    s = server(counter(minWorkers=2, maxWorkers=2, batchSize=8), flags=flags)
    process, progress = node("kills", url, form, int(limit(60) * 1000)), Progress()

    def read():
        for line in process.stdout:
            if "step" in json.loads(line):
                progress.add()
        if process.wait() != 0:
            progress.fail(process.stderr.read())

    reader = progress.thread(read)
    kill_now_and_then(s, progress)
    reader.join()
    assert not progress.failures
    assert progress.steps == 32 * 60 and progress.kills == 6


def test_errors_and_values(server, node):
    s = server(counter(), flags=["--token-auth", "--max-request-size", "65536"])
    found = said(node("errors", s.inference, keys(s)["inference"]["key"], int(20000 * FACTOR),
                      at_a_fixed_port()[1]))
    for form in "sequence", "stream":
        errors = found[form]
        assert {name: (error["status"], error["word"], error["type"]) for name, error in errors.items()
                if name != "values"} == {
            "missing": (404, "model_not_found", "ModelNotFoundException"),
            "token": (400, "token_refused", "InvalidKeyException"),
            "large": (413, "too_large", "RequestEntityTooLargeException"),
            "failed": (500, "handler_failed", "InternalServerException"),
            "away": (0, "connection_failed", "ContinuoError")}, (form, errors)
        assert all(error["message"] and error["help"] for name, error in errors.items() if name != "values")
        assert errors["values"] == ["4", "12", "27", "28", "2"], form


@pytest.mark.parametrize("form", ["sequence", "stream"])
def test_a_lost_answer_is_not_a_second_step(server, node, form):
    s = server(counter())
    process = node("lost", s.inference, form, int(20000 * FACTOR))
    assert said(process) == {"ready": True}
    with s.hold():
        process.stdin.write("held\n")
        process.stdin.flush()
        assert said(process) == {"word": "client_timeout"}
    process.stdin.write("released\n")
    process.stdin.flush()
    assert said(process) == {"data": "9", "step": 2, "next": "10"}


def test_failures_lose_nothing_and_leave_nothing_behind(node):
    """A stream that cannot be resumed yet keeps its step; pieces of a failed step are in no later answer; and a model
    without sequences answers the steps behind a failed one."""
    found = said(node("scripts", "http://127.0.0.1:1", int(5000 * FACTOR)))
    assert found == {"late": {"data": "4", "sent": [1]}, "pieces": ["whole"], "word": "handler_failed"}


def test_a_handshake_that_a_proxy_refuses_is_no_sign_of_a_model_without_sequences(node):
    """The server is killed after the first step, and the proxy before it refuses the next handshake. The answer comes
    from the record, and the step is not sent once more as the next one."""
    found = said(node("proxy", "http://127.0.0.1:1", int(5000 * FACTOR)))
    assert found == {"data": "4", "sent": [], "urls": ["", "last=0", "", "last=0"]}


def test_what_a_proxy_answers_is_not_the_end_of_a_step(node):
    """A redirect is not followed, because it would make a step a GET without a body; after 502 the step is open. What
    no header can carry is refused before anything is sent."""
    found = said(node("proxied", "http://127.0.0.1:1", int(5000 * FACTOR)))
    assert found == {"found": ["TypeError",
                               [301, "redirected to https://there/; use that one", False],
                               [502, "bad gateway", True],
                               "the last step is not decided: await it, or call retry()"],
                     "count": [200, 1], "modes": ["manual"] * 3}


def test_the_stream_of_the_page_comes_back_without_sequences(node):
    """A model without sequences refuses `last`, so the page must not send it. An answer that was lost still comes."""
    assert said(node("pages", "")) == {"none": {"data": "4", "urls": ["", ""]},
                                       "lost": {"data": "4", "urls": ["", "", "?last=0&generation=5"]}}


def test_the_block_of_the_docs_works_as_it_stands_there(server, folder):
    command = node_command()
    s = server(Model("average", blocks(ROOT / "docs" / "handlers-lua.md", "lua")[0]))
    shutil.copy(ROOT / "clients" / "javascript" / "continuo.mjs", folder)
    block = blocks(ROOT / "docs" / "clients.md", "js")[0].replace("http://localhost:8080", s.inference)
    (folder / "example.mjs").write_text(block)
    run = subprocess.run([*command, folder / "example.mjs"], capture_output=True, text=True, timeout=limit(30),
                         check=False)
    assert run.returncode == 0, run.stderr
    assert re.findall(r"\d+(?:\.\d+)?", run.stdout)[-1].rstrip("0.") == "9", run.stdout
