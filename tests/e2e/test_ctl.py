"""Tests of continuo-ctl against a running server."""

import json
import os
import pty
import re
import signal
import subprocess

import pytest

from models import BIN, ROOT, Model, archiver, counter, stateless
from waiting import expect, limit

# Its numbers differ from run to run, and with their widths the gaps of tables.
def without_numbers(text):
    text = re.sub(r"\d+(\.\d+)*", "N", text)
    return [re.sub(r" +", " ", line) for line in text.splitlines() if line]


CRASH_C = """
#include <stdio.h>
#include <stdlib.h>
#include <continuo/handler.h>

static int
run(struct continuo_model *model, struct continuo_item *const *items, size_t n)
{
    (void)model; (void)items; (void)n;
    fputs("handler: this is the end\\n", stderr);
    abort();
}

CONTINUO_EXPORT const struct continuo_handler continuo_handler = {
    .abi = CONTINUO_HANDLER_ABI, .size = sizeof(struct continuo_handler), .run = run};
"""


@pytest.fixture
def ctl(transcript):
    """ctl(server, word, ...) runs continuo-ctl; the server may also be an address."""
    def run(s, *words, metrics=None):
        address = s if isinstance(s, str) else s.management
        metrics = metrics or ("http://127.0.0.1:1" if isinstance(s, str) else s.metrics)
        done = subprocess.run([BIN / "continuo-ctl", "--server", address, "--metrics", metrics, *words],
                              capture_output=True, text=True, timeout=limit(30), check=False)
        transcript.log("ctl", f"{' '.join(words)} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done
    return run


def test_a_healthy_server(server, ctl):
    """Each command prints a text for people, and the same facts as JSON for programs."""
    s = server(counter(minWorkers=2, maxWorkers=2), stateless())
    client = s.client()
    for i in range(3):
        client.step("counter", f"s{i}", 1)
    s.expect_ready("counter", 2)
    s.expect_ready("echo", 1)

    status = ctl(s, "status")
    assert status.returncode == 0 and "health          healthy" in status.stdout
    facts = json.loads(ctl(s, "status", "--json").stdout)
    assert (facts["workersReady"], facts["workersExpected"], facts["liveSequences"], facts["steps"]) == (3, 3, 3, 3)

    models = ctl(s, "models").stdout.splitlines()
    assert models[0].split()[:4] == ["MODEL", "VERSION", "DEFAULT", "READY/MIN"]
    assert models[1].split() == ["counter", "1.0", "yes", "2/2", "3", "0", "0", "3", "0"]
    assert [m["model"] for m in json.loads(ctl(s, "models", "--json").stdout)] == ["counter", "echo"]

    workers = json.loads(ctl(s, "workers", "--json").stdout)
    assert [w["state"] for w in workers] == ["ready"] * 3
    assert {w["pid"] for w in workers if w["model"] == "counter"} == set(s.ready_pids("counter"))
    assert len(ctl(s, "workers").stdout.splitlines()) == 4

    doctor = ctl(s, "doctor")
    assert (doctor.returncode, doctor.stdout) == (
        0, f"nothing wrong at {s.management}: 2 models, 3 of 3 workers ready, 3 live sequences\n")
    assert json.loads(ctl(s, "doctor", "--json").stdout)["ok"] is True


def test_versions_are_listed_and_the_default_is_marked(server, ctl):
    """GET /models shows default versions only; `models` shows all versions."""
    s = server(counter())
    assert s.register(counter(version="2.0")).status == 200
    listed = json.loads(ctl(s, "models", "--json").stdout)
    assert {m["version"]: m["default"] for m in listed} == {"1.0": True, "2.0": False}


def test_top_once(server, ctl):
    """Prints one frame after one interval, without a terminal's escape sequences."""
    s = server(counter())
    s.expect_ready("counter", 1)
    frame = ctl(s, "top", "--once")
    assert frame.returncode == 0 and "\x1b" not in frame.stdout
    assert "STEPS/S" in frame.stdout and "counter/1.0 1" in frame.stdout
    facts = json.loads(ctl(s, "top", "--once", "--json").stdout)
    assert facts["seconds"] >= 1 and facts["models"][0]["stepsPerSecond"] == 0


@pytest.mark.parametrize("how", ["q", "ctrl-c"])
def test_top_on_a_terminal_quits_and_leaves_it_as_it_was(server, how):
    """top ends on q or Ctrl-C, and restores the cursor and the old screen."""
    s = server(counter())
    main, other = pty.openpty()
    top = subprocess.Popen([BIN / "continuo-ctl", "--server", s.management, "top"], stdin=other, stdout=other,
                           stderr=other, start_new_session=True)
    os.close(other)
    seen = b""
    while b"q quits" not in seen:
        seen += os.read(main, 4096)
    assert b"STEPS/S" in seen
    if how == "q":
        os.write(main, b"q")
    else:
        top.send_signal(signal.SIGINT)
    assert top.wait(limit(10)) == 0
    rest = b""
    while b"\x1b[?1049l" not in rest:
        rest += os.read(main, 4096)
    os.close(main)


def test_doctor_tells_of_a_worker_that_does_not_answer(server, ctl):
    """doctor names the worker, its sequence, and for how long it has not answered. When it answers again, doctor
    reports nothing."""
    s = server(counter(), clock=True)
    client = s.client()
    client.step("counter", "seq_7", 1)
    pid = s.expect_ready("counter", 1)[0]
    os.kill(pid, signal.SIGSTOP)
    step = s.stream("counter", "seq_7", 2)
    expect(lambda: s.describe("counter")["workers"][0]["busy"], "the worker has the step")
    s.clock.advance(31_000)
    doctor = ctl(s, "doctor")
    os.kill(pid, signal.SIGCONT)
    assert doctor.returncode == 1
    assert re.search(rf"worker 1 \(pid {pid}\) has not answered for 3\d\.\d s; "
                     "it has 1 step, the first of sequence seq_7\n", doctor.stdout)
    assert f"kill -CONT {pid}" in doctor.stdout and "responseTimeout (120 s)" in doctor.stdout
    assert step.rest() == b"3"
    assert s.describe("counter")["workers"][0]["busy"] is None
    assert s.describe("counter")["meanCallMSec"] > 0
    assert re.search(r'"meanCallMSec": \d+\.\d{1,6}\b', s.admin().get("/models/counter").text), "to the nanosecond"
    assert ctl(s, "doctor").returncode == 0


def test_doctor_forgets_failures_after_five_minutes(server, ctl):
    """A rate over the server's whole life would be bad for days after a bad hour, and would stay good for hours during
    one."""
    s = server(Model("m", "return { step = function(state, req) if req.body == 'x' then error('bad') end return 'y' end }",
                     {"sequenceBatching": True}), clock=True)
    client = s.client()
    for _ in range(20):
        assert client.step("m", "a", "x").status >= 500
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 1
    assert re.search(r"PROBLEM  20 of \d+ requests failed with a 5xx status in the last \d+ s\n", doctor.stdout)

    def is_well():
        s.clock.advance(301_000)
        return ctl(s, "doctor").returncode == 0

    expect(is_well, "a diagnosis without the old failures", 60)
    assert s.metric("continuo_http_5xx_total") == 20


def test_doctor_tells_of_a_handler_that_raises_at_load(server, ctl):
    """doctor repeats the handler's own message."""
    s = server(counter(), stateless("broken", lua='error("my weights are gone")'),
               flags=["--exit-on-model-failure=false"])
    expect(lambda: s.describe("broken")["lastError"], "the load has failed")
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 1
    assert "PROBLEM  model broken 1.0 has no ready worker" in doctor.stdout
    assert "my weights are gone" in doctor.stdout and "curl -X DELETE" in doctor.stdout
    assert "counter" not in doctor.stdout
    status = ctl(s, "status", "--json")
    assert status.returncode == 1 and json.loads(status.stdout)["healthy"] is False


def test_doctor_tells_of_a_handler_that_crashes(server, ctl, folder, transcript):
    """doctor names the signal, the last line on stderr, how often it happened, and what to do."""
    (folder / "handler.c").write_text(CRASH_C)
    (folder / "crash.yaml").write_text("minWorkers: 1\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-I", ROOT / "include",
                    "-o", folder / "handler.so", folder / "handler.c"], check=True, timeout=limit(60))
    s = server(start=False)
    archiver("--model-name", "crash", "--version", "1.0", "--handler", folder / "handler.so",
             "--config-file", folder / "crash.yaml", "--export-path", s.store, transcript=transcript)
    s.models.append("crash=crash.mar")
    s.start()
    for _ in range(3):
        s.expect_ready("crash", 1)
        assert s.client().post("/predictions/crash", b"x").status == 500
    s.expect_ready("crash", 1)
    assert s.workers("crash")[0]["restarts"] >= 3
    doctor = ctl(s, "doctor")
    assert doctor.returncode == 1
    for words in ("PROBLEM  model crash 1.0: worker 1 was restarted", "signal 6", "this is the end", "native code"):
        assert words in doctor.stdout, words
    assert f"curl -X POST '{s.management}/models?url=FILE.mar'" in doctor.stdout
    found = json.loads(ctl(s, "doctor", "--json").stdout)
    assert found["ok"] is False and found["problems"] >= 1
    assert all(set(f) == {"severity", "what", "why", "do"} for f in found["findings"])


def test_the_transcript_of_a_crashing_model_in_the_docs(server, ctl, folder, transcript):
    """The output of top and doctor in docs/operating.md is the real one, apart from numbers."""
    told = (ROOT / "docs" / "operating.md").read_text().split("```crashing\n")[1].split("```")[0]
    (folder / "handler.c").write_text(CRASH_C.replace("this is the end", "frame 7 has no samples"))
    (folder / "speech.yaml").write_text("minWorkers: 1\nsequenceBatching: true\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-I", ROOT / "include",
                    "-o", folder / "handler.so", folder / "handler.c"], check=True, timeout=limit(60))
    s = server(counter("average"), start=False)
    archiver("--model-name", "speech", "--version", "1.0", "--handler", folder / "handler.so",
             "--config-file", folder / "speech.yaml", "--export-path", s.store, transcript=transcript)
    s.models.append("speech=speech.mar")
    s.start()
    client = s.client()
    for i in range(3):
        assert client.step("average", f"s{i}", 1).status == 200
        s.expect_ready("speech", 1)
        assert client.step("speech", f"s{i}", 1).status == 500
    s.expect_ready("speech", 1)
    expect(lambda: s.workers("speech")[0]["memoryUsage"] > 0, "the new worker has told of itself")
    said = (f"$ continuo-ctl top --once\n{ctl(s, 'top', '--once').stdout}"
            f"$ continuo-ctl doctor\n{ctl(s, 'doctor').stdout}")
    assert without_numbers(said) == without_numbers(told)


def test_a_server_that_is_not_there(ctl):
    """doctor says what to check and exits with 1. With --json the output is still JSON."""
    doctor = ctl("http://127.0.0.1:1", "doctor")
    assert doctor.returncode == 1 and "whether it is running" in doctor.stdout and "http://127.0.0.1:1" in doctor.stdout
    status = ctl("http://127.0.0.1:1", "status", "--json")
    assert status.returncode == 1 and "no answer from" in json.loads(status.stdout)["error"]
    assert "Is the server running" in status.stderr


def test_the_wrong_address_of_the_right_server(server, ctl):
    """Each of the three APIs has its own address, and newcomers often take the wrong one."""
    s = server(counter())
    s.expect_ready("counter", 1)
    doctor = ctl(s.inference, "doctor", metrics=s.metrics)
    assert doctor.returncode == 1 and "management address" in doctor.stdout
    doctor = ctl(s, "doctor", metrics=s.inference)
    assert doctor.returncode == 0 and "--metrics URL" in doctor.stdout


def test_a_unix_socket(server, ctl, folder):
    """A Unix socket: only users of this machine with the file's permission can reach this management API."""
    path = folder / "management.sock"
    server(counter(), flags=["--management-address", f"unix:{path}"])
    assert json.loads(ctl(f"unix:{path}", "models", "--json").stdout)[0]["model"] == "counter"


def test_error_words_are_explained_without_a_server(ctl):
    """The reader of an error has the word, and perhaps nothing else. A lint checks that each word has a section."""
    words = re.findall(r'CN_ERROR\(\s*CN_E_\w+,\s*"(\w+)", (\d+)', (ROOT / "core/errors/errors.def").read_text())
    nowhere = "http://127.0.0.1:1"
    listed = ctl(nowhere, "explain", "--json")
    assert [(each["word"], str(each["http"])) for each in json.loads(listed.stdout)] == words and len(words) > 50
    assert ctl(nowhere, "explain").stdout.splitlines()[1].split() == [*words[0]]
    for word, status in words[::6]:
        told = ctl(nowhere, "explain", word)
        assert told.returncode == 0 and told.stdout.startswith(f"HTTP {status}, gRPC "), word
        assert all(f"\n\n{part} " in told.stdout for part in ("What happened.", "Why.", "What to do.")), told
        assert "**" not in told.stdout and "](" not in told.stdout and max(map(len, told.stdout.splitlines())) <= 80, told
    value = json.loads(ctl(nowhere, "explain", "queue_full", "--json").stdout)
    assert (value["word"], value["http"]) == ("queue_full", 429) and "Too many requests wait" in value["explanation"]
    assert ctl(nowhere, "explain", "Queue-Full").stdout == ctl(nowhere, "explain", "queue_full").stdout
    wrong = ctl(nowhere, "explain", "queuefull")
    assert wrong.returncode == 1 and "no error word queuefull (did you mean queue_full?)" in wrong.stderr


def test_a_type_and_a_status_lead_to_their_words(ctl):
    """The JSON of an error has its type and status; the word is in a header, which curl shows with -i only."""
    nowhere = "http://127.0.0.1:1"
    assert ctl(nowhere, "explain", "ModelNotFoundException").stdout.startswith("HTTP 404, gRPC NOT_FOUND")
    several = ctl(nowhere, "explain", "SequenceStepException")
    assert [line.split()[0] for line in several.stdout.splitlines()[1:]] == ["step_done", "steps_lost", "step_mismatch"]
    assert "header Continuo-Error, which curl -i shows" in several.stderr
    words = [each["word"] for each in json.loads(ctl(nowhere, "explain", "410", "--json").stdout)]
    assert words == ["sequence_expired", "sequence_ended", "sequence_lost"]


@pytest.mark.parametrize("command, flags", [
    ("status", ["--metrics URL", "--all", "--nodes LIST"]),
    ("top", ["--metrics URL", "--all", "--nodes LIST", "--once"]),
    ("models", []),
])
def test_each_command_has_a_help_of_its_own(ctl, command, flags):
    shown = ctl("http://127.0.0.1:1", command, "--help").stdout
    assert shown.startswith(f"usage: continuo-ctl {command}\n") and "\n\n\n" not in shown
    assert [line.strip() for line in shown.splitlines() if line.startswith("  --")] == flags
    assert not any(line.startswith("with ") for line in shown.splitlines()), shown


def test_silence_names_the_address_that_was_asked(ctl):
    for words, address in (["status"], "its management address (--server)"), (
            ["predict", "m", "4", "--inference", "http://127.0.0.1:1"], "its inference address (--inference)"):
        silent = ctl("http://127.0.0.1:1", *words)
        assert silent.returncode == 1 and address in silent.stderr, silent


def test_usage(ctl):
    """A wrong command line exits with 2 and the reason. The help fits on a screen."""
    wrong = ctl("http://127.0.0.1:1", "statsu")
    assert wrong.returncode == 2 and "unknown command statsu (did you mean status?)" in wrong.stderr
    shown = ctl("http://127.0.0.1:1", "--help").stdout.splitlines()
    assert len(shown) <= 32 and max(map(len, shown)) <= 100
    assert ctl("http://127.0.0.1:1", "--print-man").stdout.startswith(".TH CONTINUO")
