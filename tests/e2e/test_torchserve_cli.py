"""The command `torchserve`, exactly as operators and their scripts use it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

from models import Model, counter, stateless
from torchserve import PORTS
from waiting import FACTOR, expect, limit


def test_start_returns_when_the_server_is_up(torchserve):
    """Status 0 means that requests are answered. The server keeps writing its log to the command's output."""
    t = torchserve()
    t.pack(counter())
    t.properties()
    t.start("--ncs", "--model-store", "model-store", "--models", "counter=counter.mar")
    assert t.client().step("counter", "a", 4).text == "4"
    assert t.pid != 0 and os.getsid(t.pid) == t.pid
    before = len(t.text)
    t.admin().put("/models/counter?min_worker=2&synchronous=true")
    expect(lambda: "event=model_scaled" in t.text[before:], "the log goes on")
    t.stop()
    assert "Torchserve stopped." in t.text


def test_stop_blocks_until_the_server_is_gone(torchserve):
    """Scripts start the next server right after the stop."""
    t = torchserve()
    t.pack(counter())
    t.properties()
    for _ in range(3):
        t.start("--ncs", "--model-store", "model-store", "--models", "counter=counter.mar")
        (t.folder / "key_file.json").write_text("{}")
        t.stop()
        assert t.server_pids() == []
        assert not t.pid_file.exists()
        assert not (t.folder / "key_file.json").exists()


def test_stop_is_harmless_when_nothing_runs(torchserve):
    """The status is 0, and the message is TorchServe's."""
    t = torchserve()
    assert t.run("--stop") == (0, "TorchServe is not currently running.\n")
    assert t.run("--stop", "--foreground") == (0, "TorchServe is not currently running.\n")


def test_stop_leaves_strangers_alone(torchserve):
    """After a reboot the pid file may have the number of another process."""
    t = torchserve()
    t.pid_file.write_text(str(os.getpid()))
    assert t.run("--stop") == (0, "TorchServe is not currently running.\n")


@pytest.mark.parametrize("content", ["999999999", "", "no number"])
def test_a_stale_pid_file_is_removed(torchserve, content):
    """A crash leaves a pid file behind."""
    t = torchserve()
    t.properties()
    t.pid_file.write_text(content)
    assert "Removing orphan pid file." in t.start("--ncs", "--model-store", "model-store")
    assert t.pid > 1


def test_a_killed_server_can_be_started_again(torchserve):
    """After kill -9 the same command starts the server again, with its sequences."""
    t = torchserve()
    t.pack(counter())
    t.properties()
    command = ("--ncs", "--model-store", "model-store", "--models", "counter=counter.mar")
    t.start(*command)
    t.client().step("counter", "a", 4)
    os.kill(t.pid, signal.SIGKILL)
    expect(lambda: t.server_pids() == [], "all workers notice")
    assert "Removing orphan pid file." in t.start(*command)
    assert t.client().step("counter", "a", 4).text == "8"


def test_a_second_start_is_refused(torchserve):
    """The message is TorchServe's, the status is 1, and the first server is not affected."""
    t = torchserve()
    t.properties()
    t.start("--ncs", "--model-store", "model-store")
    code, said = t.run("--start", "--ncs", "--model-store", "model-store")
    assert (code, said) == (1, "TorchServe is already running, please use torchserve --stop to stop TorchServe.\n")
    assert t.client().get("/ping").status == 200


def test_foreground_stays_attached(torchserve):
    """Containers run it this way: the process is the server, and SIGTERM ends it with status 0."""
    t = torchserve()
    t.properties()
    process = t.spawn("--start", "--foreground", "--ncs", "--model-store=model-store")
    t.expect_ready()
    assert process.poll() is None and t.pid == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(20 * FACTOR) == 0
    assert not t.pid_file.exists()
    assert t.text.splitlines()[-1] == "Torchserve stopped."


def test_stop_ends_a_server_in_the_foreground(torchserve):
    """The stop comes from another terminal."""
    t = torchserve()
    t.properties()
    process = t.spawn("--foreground", "--ncs", "--model-store=model-store")
    t.expect_ready()
    # Its parent is this test, which must take it before it is gone for the one who waits.
    stopping = t.spawn("--stop", "--foreground")
    assert process.wait(30 * FACTOR) == 0
    assert stopping.wait(30 * FACTOR) == 0


def test_a_server_that_cannot_start_gives_status_1(torchserve):
    """The port is taken. A line says which one, and nothing is left running."""
    t = torchserve()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        t.properties(ports=PORTS.replace("inference_address=http://127.0.0.1:0",
                                         f"inference_address=http://127.0.0.1:{port}"))
        code, said = t.run("--start", "--ncs", "--model-store", "model-store")
    assert code == 1 and f"127.0.0.1:{port}" in said and "in use" in said
    assert t.server_pids() == [] and not t.pid_file.exists()


@pytest.mark.parametrize("args, code, words", [
    (["--start"], 1, "Missing mandatory parameter --model-store"),
    (["--start", "--model-store", "gone"], 1, "--model-store directory not found: gone"),
    (["--start", "--model-store", "model-store", "--ts-config", "gone"], 1, "--ts-config file not found: gone"),
    (["--start", "--model-store"], 2, "argument --model-store: expected one argument"),
    (["--begin"], 2, "unrecognized arguments: --begin"),
    (["--start", "--stop"], 2, "argument --stop: not allowed with argument --start"),
])
def test_wrong_commands_say_what_is_wrong(torchserve, args, code, words):
    """The status is 2 for a wrong command line, and 1 for a wrong setting or file."""
    t = torchserve()
    got, said = t.run(*args)
    assert got == code and words in said
    assert not t.pid_file.exists()


def test_the_manual_page_is_good_troff(torchserve):
    """Each flag and key is in the manual page."""
    t = torchserve()
    code, page = t.run("--print-man")
    assert code == 0 and page.startswith(".TH TORCHSERVE 1 ")
    for word in ("ts\\-config", "no\\-config\\-snapshots", "job_queue_size", "ts_header_key_sequence_id", "vmargs"):
        assert word in page
    if shutil.which("man"):
        (t.folder / "torchserve.1").write_text(page)
        shown = subprocess.run(["man", "--warnings", "-l", t.folder / "torchserve.1"], capture_output=True, text=True,
                               timeout=limit(30), check=True, env={**os.environ, "MANWIDTH": "100"})
        assert shown.stderr == "" and "--foreground" in shown.stdout


def test_version_and_help(torchserve):
    """Scripts compare the first line."""
    t = torchserve()
    for flag in ("--version", "-v"):
        code, said = t.run(flag)
        assert code == 0 and said.splitlines()[0] == "TorchServe Version is 0.12.0"
    code, said = t.run("--help")
    assert code == 0 and "--no-config-snapshots, --ncs" in said


@pytest.mark.parametrize("form, names", [
    (["counter.mar"], ["counter"]),
    (["one=counter.mar", "two=echo.mar"], ["one", "two"]),
    (["one=counter.mar,two=echo.mar"], ["one", "two"]),
    (["all"], ["counter", "echo"]),
    (["ALL"], ["counter", "echo"]),
    (["one={store}/counter.mar"], ["one"]),
    (["one=file://{store}/counter.mar"], ["one"]),
    (["one={folder}/work/counter-1.0"], ["one"]),
])
def test_models_in_all_forms(torchserve, form, names):
    """The forms are accepted by --models and by load_models in the file."""
    t = torchserve()
    t.pack(counter())
    t.pack(stateless())
    handler = t.folder / "work" / "counter-1.0"  # a folder is a model too
    (handler / "MAR-INF").mkdir()
    (handler / "MAR-INF" / "MANIFEST.json").write_text(
        '{"runtime": "lua", "model": {"modelName": "counter", "modelVersion": "1.0", "handler": "handler.lua"}}')
    words = [word.format(store=t.store, folder=t.folder) for word in form]
    t.properties("default_workers_per_model=1\n")
    t.start("--ncs", "--model-store", "model-store", "--models", *words)
    models = t.admin().get("/models").json["models"]
    assert [model["modelName"] for model in models] == names


def test_the_model_api_is_off_unless_asked_for(torchserve):
    """The answer is 405 with TorchServe's message. --enable-model-api or enable_model_api switches the API on."""
    t = torchserve()
    t.pack(counter())
    t.properties()
    refused = {"code": 405, "type": "MethodNotAllowedException",
               "message": "Requested method is not allowed, please refer to API document."}
    t.start("--ncs", "--model-store", "model-store")
    for answer in (t.admin().post("/models?url=counter.mar"), t.admin().delete("/models/counter")):
        assert (answer.status, answer.json) == (405, refused)
    t.stop()
    t.start("--ncs", "--model-store", "model-store", "--enable-model-api")
    answer = t.admin().post("/models?url=counter.mar&initial_workers=1")
    assert answer.json == {"status": 'Model "counter" Version: 1.0 registered with 1 initial workers'}
    assert t.admin().delete("/models/counter").status == 200
    t.stop()
    t.properties("enable_model_api=true\n")
    t.pack(Model("counter", yaml="sequenceBatching: true\n"))
    t.start("--ncs", "--model-store", "model-store")
    assert t.admin().post("/models?url=counter.mar").json == {
        "status": 'Model "counter" Version: 1.0 registered with 0 initial workers. '
                  'Use scale workers API to add workers for the model.'}


def test_tokens_are_on_unless_switched_off(torchserve):
    """The key file is in the folder of the command, and --stop removes it. With --disable-token-auth no key is needed.
    """
    t = torchserve()
    t.properties(ports=PORTS)
    t.start("--ncs", "--model-store", "model-store")
    keys = json.loads((t.folder / "key_file.json").read_text())
    assert t.client().get("/ping").status == 400
    bearer = {"Authorization": f"Bearer {keys['inference']['key']}"}
    assert t.client().get("/ping", headers=bearer).status == 200
    t.stop()
    assert not (t.folder / "key_file.json").exists()
    for flag in ("--disable-token-auth", "--dt"):
        t.start("--ncs", "--model-store", "model-store", flag)
        assert t.client().get("/ping").status == 200
        assert not (t.folder / "key_file.json").exists()
        t.stop()


def test_start_waits_for_the_models(torchserve):
    """If a handler takes long to load, --start takes as long, so that the next command can predict."""
    slow = stateless("slow", "local t = os.clock() + 0.5\nwhile os.clock() < t do end\n"
                             "local M = { api = 1 }\nfunction M.step(_, r) return { body = r.body } end\nreturn M\n")
    t = torchserve()
    t.pack(slow)
    t.properties()
    began = time.monotonic()
    t.start("--ncs", "--model-store", "model-store", "--models", "slow.mar")
    assert time.monotonic() - began >= 0.5
    assert t.client().post("/predictions/slow", b"x").body == b"x"
