"""A server that cannot start gives the reason in one line and ends, and nothing keeps running."""

import os
import socket
import subprocess

import pytest

from models import BIN, counter
from waiting import limit


def refuses(s, *words, code=None):
    """Starts `s` and expects it to end with a line that contains all the words."""
    s.lines.clear()
    s.launch()
    ended = s.exit_code()
    assert ended not in (0, -6, -11) and (code is None or ended == code), f"ended with {ended}: {s.lines}"
    assert any(all(word in line for word in words) for line in s.lines), s.lines
    assert not any("Model server started" in line for line in s.lines)


@pytest.mark.parametrize("which", ["inference", "management", "metrics"])
def test_a_taken_port_is_named(server, which):
    """The message has address and port, which show which of the three is taken."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        refuses(server(start=False, flags=[f"--{which}-address", f"http://127.0.0.1:{port}"]),
                f"127.0.0.1:{port}", "in use")


def test_a_model_store_that_is_not_there_is_named(server):
    """The message comes before anything is started."""
    s = server(start=False)
    s.store.rmdir()
    refuses(s, "model store", str(s.store))


def test_a_model_store_that_is_a_file_is_named(server):
    """A folder without permission would not stop root, so the test uses a file."""
    s = server(start=False)
    s.store.rmdir()
    s.store.write_text("")
    refuses(s, "model store", str(s.store))


def test_a_state_folder_that_cannot_be_made_is_named(server, folder):
    """A file has the name of the folder."""
    (folder / "file").write_text("")
    s = server(start=False)
    s.state_dir = folder / "file" / "state"
    refuses(s, str(s.state_dir), "Not a directory", "--state-dir")


def test_a_state_folder_under_a_missing_one_says_what_is_missing(server, folder):
    """Only one level is created, so that a mistyped path does not become a folder."""
    s = server(start=False)
    s.state_dir = folder / "missing" / "state"
    refuses(s, str(s.state_dir), "its parent folder must exist")


def test_a_state_folder_that_is_a_file_is_named(server):
    """The message names the option that chooses another folder, because newcomers meet this with the default."""
    s = server(start=False)
    s.state_dir.write_text("")
    refuses(s, str(s.state_dir), "is a file", "--state-dir")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_state_folder_without_permission_is_named(server):
    """The error comes at the start, not at the first step."""
    s = server(start=False)
    s.state_dir.mkdir()
    s.state_dir.chmod(0o500)
    refuses(s, str(s.state_dir))


def test_a_state_folder_of_a_newer_version_is_left_alone(server):
    """An old server must not write into a format that it does not know."""
    s = server(counter())
    s.client().step("counter", "a", 1)
    s.stop()
    version = s.state_dir / "FORMAT"
    before = version.read_text()
    version.write_text(before.replace("1", "99"))
    refuses(s, str(s.state_dir), "99")
    version.write_text(before)
    s.restart()
    assert s.client().step("counter", "a", 1).text == "2"


def test_two_servers_do_not_share_a_state_folder(server):
    """The second server names the pid of the first one, which is not affected."""
    first = server(counter())
    second = server(counter(), start=False, name="second")
    second.state_dir = first.state_dir
    refuses(second, str(first.state_dir), str(first.process.pid))
    assert first.client().step("counter", "a", 1).text == "1"


def test_an_unknown_flag_shows_the_nearest(server):
    """The exit status is 2, as usual for a wrong command line."""
    refuses(server(start=False, flags=["--model-stor", "x"]), "--model-stor", "--model-store", code=2)


def test_without_a_model_store_the_usage_is_shown():
    """Such a server could not register any model, and only the first request would show this."""
    for flags in ([], ["--inference-address", "http://127.0.0.1:0"]):
        ended = subprocess.run([BIN / "continuo", *flags], capture_output=True, text=True, timeout=60,
                               env={"PATH": "/usr/bin:/bin"})
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "error: no model store is given" in ended.stderr and "usage: continuo --model-store DIR" in ended.stderr


def test_the_model_store_may_be_named_by_environment_or_file(server, folder):
    (folder / "store").mkdir(exist_ok=True)
    (folder / "continuo.yaml").write_text(f"model-store: {folder / 'store'}\n")
    ports = [word for api in ("inference", "management", "metrics")
             for word in (f"--{api}-address", "http://127.0.0.1:0")]
    ports += ["--grpc-inference-address", "none", "--grpc-management-address", "none"]
    for flags, env in (([], {"CONTINUO_MODEL_STORE": str(folder / "store")}),
                       (["--config", str(folder / "continuo.yaml")], {})):
        ended = subprocess.run([BIN / "continuo", *flags, *ports, "--models", "gone.mar", "--state-dir", "/proc/nowhere"],
                               capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", **env})
        assert ended.returncode == 1 and "usage:" not in ended.stderr and "/proc/nowhere" in ended.stderr


@pytest.mark.parametrize("flags, words", [
    (["--loops", "many"], ["--loops", "many"]),
    (["--loops", "65"], ["--loops", "65", "64"]),
    (["--durability", "maybe"], ["--durability", "maybe", "process"]),
    (["--inference-address", "8080"], ["--inference-address", "8080"]),
    (["--config", "/nowhere/continuo.yaml"], ["/nowhere/continuo.yaml"]),
])
def test_a_wrong_value_is_named_with_what_is_allowed(server, flags, words):
    """The message has the option and the wrong value."""
    refuses(server(start=False, flags=flags), *words)


@pytest.mark.parametrize("text, words", [
    ("loops: many\n", ["continuo.yaml:1:8", "loops"]),
    ("loops: 1\nloops: 2\n", ["continuo.yaml:2:1", "loops"]),
    ("loops: [1\n", ["continuo.yaml:"]),
])
def test_a_wrong_config_file_is_shown_with_line_and_column(server, folder, text, words):
    """With line and column, an editor can jump there."""
    (folder / "continuo.yaml").write_text(text)
    refuses(server(start=False, flags=["--config", folder / "continuo.yaml"]), *words)


def test_an_unknown_key_of_the_config_file_only_warns(server, folder):
    """The warning has the nearest known name. A newer file must not stop an older server."""
    (folder / "continuo.yaml").write_text("loop: 1\n")
    s = server(counter(), flags=["--config", folder / "continuo.yaml"])
    s.expect_log("continuo.yaml:1:1", "loop", "loops")


def test_flag_environment_and_file_take_precedence_in_this_order(server, folder):
    """--print-config shows each value and where it comes from."""
    (folder / "continuo.yaml").write_text("loops: 1\nheader-timeout: 1111\nbody-timeout: 2222\n")
    s = server(start=False, flags=["--config", folder / "continuo.yaml", "--loops", "3", "--print-config"],
               env={"CONTINUO_LOOPS": "2", "CONTINUO_HEADER_TIMEOUT": "3333"})
    s.launch()
    assert s.exit_code() == 0
    shown = {line.split(":")[0]: line for line in s.lines if ":" in line}
    assert "3" in shown["loops"].split("#")[0] and "flag" in shown["loops"]
    assert "3333" in shown["header-timeout"] and "env" in shown["header-timeout"]
    assert "2222" in shown["body-timeout"] and "file" in shown["body-timeout"]
    assert "default" in shown["keepalive-timeout"]


def test_a_model_that_cannot_load_does_not_stop_the_others(server):
    """If it is told to, the server starts, says which model failed, and serves the others."""
    s = server(counter(), "gone=gone.mar", flags=["--exit-on-model-failure=false"])
    s.expect_log("gone", "gone.mar")
    assert s.client().step("counter", "a", 1).text == "1"


def test_help_and_version_are_answers_not_errors(server):
    """They exit with 0 and print to stdout."""
    for flag in ("--help", "--version"):
        s = server(start=False, flags=[flag])
        s.launch()
        assert s.exit_code() == 0 and s.lines


@pytest.mark.parametrize("program", ["continuo", "torchserve"])
@pytest.mark.parametrize("flag", ["--help", "--version", "--print-man"])
def test_an_answer_that_is_not_whole_is_no_success(program, flag):
    """If standard output is a full disk, the command fails, because the output is not complete."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN / program, flag], stdout=full, stderr=subprocess.PIPE, timeout=limit(30), check=False)
    assert done.returncode == 1 and done.stderr.startswith(program.encode()) and b"not be written completely" in done.stderr
