"""continuo demo, a first look; and continuo new, dev and test, the loop of somebody who writes a model."""

import html
import os
import re
import subprocess
import sys

import pytest

from models import BIN, ROOT
from test_newcomer import Reader
from waiting import expect, limit


@pytest.fixture
def desk(folder, transcript):
    reader = Reader(folder, transcript)
    yield reader
    reader.terminal.stop()


def run(desk, *words, code=0, env=None):
    done = subprocess.run([BIN / "continuo", *words], cwd=desk.folder, env={**desk.env, **(env or {})}, text=True,
                          check=False, capture_output=True, timeout=limit(120))
    desk.transcript.log("author", f"{words} -> {done.returncode}\n{done.stdout}{done.stderr}")
    assert done.returncode == code, done
    return done


def made(desk, kind="lua", name="m"):
    run(desk, "new", kind, name)
    return desk.folder / name


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def needs(kind):
    module = {"torch": "torch", "onnx": "onnx"}.get(kind)
    if module:
        pytest.importorskip(module, reason=f"the Python package {module} is not installed")
    if kind == "onnx":
        pytest.importorskip("onnxruntime", reason="the Python package onnxruntime is not installed")
    if kind == "torch" and not (BIN / "libcontinuo_torch.so").exists():
        pytest.skip("this build has no TorchScript library")
    if kind == "python" and not (BIN / "python").exists() and not list(BIN.parent.glob("**/_worker.abi3.so")):
        pytest.skip("this build has no Python package")


def lines_without_numbers(text):
    """Returns the lines of the demo without what each run has of its own: times, processes and the folder."""
    text = re.sub(r"(after |took |kill -9 |Process |started in )\S+", r"\1...", text)
    return [re.sub(" +", " ", line) for line in text.splitlines() if line]


def test_the_demo_goes_on_after_a_kill(desk):
    """It is the first thing that a newcomer runs, on a machine with nothing but the programs."""
    done = subprocess.run([BIN / "continuo", "demo"], cwd=desk.folder, env={"TMPDIR": str(desk.folder)}, text=True,
                          check=False, capture_output=True, timeout=limit(60))
    desk.transcript.log("newcomer", f"{done.returncode}\n{done.stdout}{done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"sent +(\d+), and the answer is +(\d+) ", done.stdout) == [
        ("4", "4"), ("8", "12"), ("30", "42"), ("100", "142")]
    killed, new = re.search(r"kill -9 (\d+)\n.*\nProcess (\d+) has taken over", done.stdout, re.S).groups()
    assert killed != new and not os.path.exists(f"/proc/{new}"), "the server has stopped its worker"
    assert not list(desk.folder.iterdir()), "the temporary folder is removed"
    recorded = html.unescape("\n".join(re.findall(r"<text .*?>(.*)</text>", (ROOT / "docs/demo.svg").read_text())))
    assert lines_without_numbers(recorded) == ["$ continuo demo", *lines_without_numbers(done.stdout)], (
        "the README shows another demo; run scripts/recording.py")


def test_the_demo_says_why_it_cannot_run(desk):
    assert run(desk, "demo", "more", code=2).stderr == "usage: continuo demo\n"
    gone = desk.folder / "gone"
    told = run(desk, "demo", code=1, env={"TMPDIR": str(gone)}).stderr
    assert f"continuo: error: cannot make a folder like {gone}/continuo-dev-" in told


@pytest.mark.parametrize("kind", ["lua", "python", "c", "torch", "onnx"])
def test_each_new_model_passes_its_own_test(desk, kind):
    """Nobody can be asked to mend what a generator has made."""
    needs(kind)
    folder = made(desk, kind)
    env = {"PYTHON": sys.executable, "PATH": f"{BIN}:{sys.exec_prefix}/bin:{desk.env['PATH']}"}
    done = run(desk, "test", "m", env=env)
    assert "with the worker killed after each step: " in done.stdout and "m: all answers are right" in done.stdout
    readme = (folder / "README.md").read_text()
    assert "@" not in readme.replace("@0", "") and "predictions/m" in readme


@pytest.mark.parametrize("kind, package", [("torch", "torch"), ("onnx", "onnx onnxruntime")])
def test_a_model_whose_package_is_missing_says_how_to_get_it(desk, kind, package):
    """A traceback would not tell a newcomer which Python was asked."""
    folder = made(desk, kind)
    bare = desk.folder / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')  # without any package
    bare.chmod(0o755)
    told = run(desk, "test", "m", code=1, env={"PYTHON": str(bare)}).stderr
    assert "make_model.py needs " in told and f"(pip install {package})" in told and "Traceback" not in told, told
    assert f"`pip install {package}`" in (folder / "README.md").read_text()


def test_new_never_changes_a_folder_that_is_there(desk):
    folder = made(desk)
    (folder / "handler.lua").write_text("mine")
    assert "m exists already" in run(desk, "new", "python", "m", code=1).stderr
    assert (folder / "handler.lua").read_text() == "mine" and not (folder / "handler.py").exists()
    assert "not a kind of model" in run(desk, "new", "cobol", "x", code=2).stderr
    assert "cannot be the name of a model" in run(desk, "new", "lua", "../x", code=2).stderr


def test_dev_refuses_a_flag_without_its_address(desk):
    folder = made(desk)
    done = run(desk, "dev", folder.name, "--inference", code=2)
    assert done.stderr.startswith("usage: continuo dev [DIR|FILE] [--inference URL]"), done


def test_a_wrong_answer_names_the_line_and_both_values(desk):
    folder = made(desk)
    replace(folder / "test.yaml", "count: 2, mean: 6", "count: 2, mean: 7")
    done = run(desk, "test", "m", code=1)
    assert 'test.yaml:6: a step has another answer\n  expected: {"count":2,"mean":7}' in done.stderr, done
    assert 'got:      {"count":2,"mean":6.0}' in done.stderr
    assert "as they stand: 3 tests, 8 steps, 1 wrong" in done.stdout


def test_what_is_kept_outside_of_the_state_is_found(desk):
    """Such a handler is right as long as its worker lives. Only the round with kills can see it."""
    folder = made(desk)
    (folder / "handler.lua").write_text("local seen = {}\nreturn { step = function(state, req)\n"
                                        "  seen[req.sequence_id] = (seen[req.sequence_id] or 0) + 1\n"
                                        "  return { json = { n = seen[req.sequence_id] } }\nend }\n")
    (folder / "test.yaml").write_text("tests:\n  - steps:\n      - {body: x, expect: {n: 1}}\n"
                                      "      - {body: x, expect: {n: 2}}\n")
    done = run(desk, "test", "m", code=1)
    assert "as they stand: 1 tests, 2 steps, 0 wrong" in done.stdout
    assert "with the worker killed after each step: 1 tests, 2 steps, 1 wrong" in done.stdout
    assert "test.yaml:4: a step has another answer when the worker is killed after each step" in done.stderr


def test_a_recorded_state_of_an_older_schema_is_migrated(desk, server, transcript):
    """The state was exported from a server with the first release of the handler."""
    folder = made(desk)
    from models import Model
    s = server(Model("m", lua=(folder / "handler.lua").read_text()))
    for x in (4, 8):
        assert s.client().step("m", "a", str(x)).status == 200
    subprocess.run([BIN / "continuo-ctl", "--server", s.management, "seq", "export", "m", "a",
                    folder / "v1.cnseq"], check=True, timeout=limit(60), capture_output=True)
    replace(folder / "handler.lua", "local M = { api = 1 }", "local M = { api = 1, state_schema = 2 }\n"
            "function M.migrate(state, from)\n    state.sum = state.mean * state.count\n    return state\nend\n")
    replace(folder / "handler.lua", "mean = state.mean }", "mean = state.mean, sum = state.sum }")
    (folder / "test.yaml").write_text("tests:\n  - state: v1.cnseq\n    steps:\n"
                                      "      - {body: '6', expect: {count: 3, mean: 6, sum: 12}}\n")
    assert "all answers are right" in run(desk, "test", "m").stdout
    replace(folder / "handler.lua", "function M.migrate", "function M.not_migrate")
    assert "has no migrate" in run(desk, "test", "m", code=1).stderr


@pytest.mark.parametrize("text, told", [
    ("tests: []\n", "test.yaml:1:1: there is no test"),
    ("test: 1\n", "test.yaml:1:1: unknown key test: the file has one key, tests"),
    ("tests:\n  - steps: 5\n", "test.yaml:2:5: a test needs steps, a list"),
    ("tests:\n  - steps:\n      - {bdy: 1}\n", "test.yaml:3:10: unknown key bdy: a step has sequence, body or json"),
    ("tests: [\n", "test.yaml:"),
], ids=["empty", "key", "steps", "step", "yaml"])
def test_a_mistake_in_the_test_names_its_place(desk, text, told):
    (made(desk) / "test.yaml").write_text(text)
    assert told in run(desk, "test", "m", code=1).stderr


@pytest.mark.parametrize("level", [None, "info"])
def test_dev_shows_what_is_wrong_and_not_what_is_usual(desk, level):
    """An author watches the terminal for mistakes; each save would bring six lines about workers."""
    folder = made(desk)
    desk.terminal.env = {**desk.terminal.env, **({"CONTINUO_LOG_LEVEL": level} if level else {})}
    desk.type("continuo dev m")
    desk.terminal.expect("m: version 1 serves")
    replace(folder / "handler.lua", "local x = tonumber(req.body)", "x = tonumber(req.body)")
    desk.terminal.expect("m: version 2 serves")
    desk.type("curl -H 'ts-request-sequence-id: a' http://localhost:8080/predictions/m -d 4")
    desk.terminal.expect("handler.lua:10: the global 'x' is assigned outside of load")
    desk.terminal.stop()
    assert any(" info " in line for line in desk.terminal.all) == (level == "info"), desk.terminal.all


def test_dev_begins_with_a_broken_folder_and_ends_with_its_server(desk):
    folder = made(desk)
    replace(folder / "handler.lua", "\nreturn M\n", "\nreturn\n")
    desk.type("continuo dev m")
    desk.terminal.expect("m: nothing serves yet")
    replace(folder / "handler.lua", "\nreturn\n", "\nreturn M\n")
    desk.terminal.expect("m: version 2 serves")
    desk.terminal.stop()
    assert not list(desk.folder.glob("continuo-dev-*"))


def test_dev_removes_versions_without_sequences(desk):
    """Each version keeps a worker."""
    folder = made(desk)
    desk.type("continuo dev m")
    desk.terminal.expect("m: version 1 serves")
    for number in range(2, 5):
        with open(folder / "handler.lua", "a", encoding="utf-8") as file:
            file.write("-- one more line\n")
        desk.terminal.expect(f"m: version {number} serves")

    def versions():
        done = subprocess.run([BIN / "continuo-ctl", "models", "--json"], env=desk.env, text=True, check=False,
                              capture_output=True, timeout=limit(60)).stdout
        return done.count('"version"')
    expect(lambda: versions() == 1, "only the newest version is there", 60)


def test_dev_builds_once_for_each_change_whatever_the_build_makes(desk):
    """A build.sh that makes more than the model, such as an object file, would run for ever. And a handler that the
    author writes beside a build.sh is the author's."""
    folder = made(desk)
    build = folder / "build.sh"
    build.write_text("#!/bin/sh\necho >> runs.txt\n")
    build.chmod(0o755)

    def runs():
        return (folder / "runs.txt").read_text().count("\n")

    def versions():
        done = subprocess.run([BIN / "continuo-ctl", "models", "--json"], env=desk.env, text=True, check=False,
                              capture_output=True, timeout=limit(60)).stdout
        return done.count('"version"')
    desk.type("continuo dev m")
    desk.terminal.expect("m: version 1 serves")
    before = runs()
    for number in range(2, 5):
        with open(folder / "handler.lua", "a", encoding="utf-8") as file:
            file.write("-- one more line\n")
        desk.terminal.expect(f"m: version {number} serves")
        expect(lambda: versions() == 1, "the folder was looked at since", 60)
    for _ in range(20):  # many looks at the folder
        assert versions() == 1
    assert runs() == before + 3, "one run for each change"
    (folder / "runs.txt").write_text("mine\n")
    desk.terminal.expect("m: version 5 serves")
