"""Completions in real shells: what a user gets who types a part of a command and presses the tab key."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from models import BIN, ROOT, counter, stateless
from waiting import limit

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The folder of all completions, as the package installs them."""
    folder = tmp_path_factory.mktemp("completions")
    subprocess.run([ROOT / "scripts" / "completions.sh", BIN, folder], check=True)
    return folder


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, argv, env, transcript):
        self.transcript = transcript
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, {**os.environ, "TERM": "vt100", "LINES": "50", "COLUMNS": "200", **env})

    def until(self, pattern, what):
        """Reads until the pattern is there, and returns the text so far."""
        text, end = "", time.monotonic() + limit(20)
        while not (found := re.search(pattern, text)):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"{what}: no {pattern!r} in {text!r}"
            text += ESCAPES.sub("", os.read(self.fd, 65536).decode(errors="replace"))
        self.transcript.log("shell", text)
        return text, found

    def run(self, line, marker):
        os.write(self.fd, f"{line}\n".encode())
        return self.until(marker, line)

    def complete(self, typed, *words):
        """Types a text and presses the tab key until all words were shown; then clears the line. Returns the text."""
        os.write(self.fd, typed.encode() + b"\t\t\t")
        text, _ = self.until("(?s)" + "".join(f"(?=.*{re.escape(word)})" for word in words), typed)
        os.write(self.fd, b"\x15")
        return text

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["bash", "zsh"])
def shell(request, scripts, folder, transcript):
    """shell(server) starts the shell with the completions loaded; CONTINUO_MANAGEMENT names the server."""
    program = shutil.which(request.param)
    if not program:
        pytest.skip(f"{request.param} is not installed (Debian's package {request.param})")
    made = []

    def start(management="http://127.0.0.1:1"):
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "CONTINUO_MANAGEMENT": management, "PS1": "ready> ",
               "HOME": str(folder), "ZDOTDIR": str(folder)}
        if request.param == "bash":
            made.append(Shell([program, "--norc", "--noprofile", "-i"], env, transcript))
            made[0].run("bind 'set enable-bracketed-paste off'; bind 'set page-completions off'; "
                        f"for f in {scripts}/bash-completion/completions/*; do . $f; done; echo load''ed", "loaded")
        else:
            made.append(Shell([program, "-f", "-i"], env, transcript))
            made[0].run(f"unset zle_bracketed_paste; fpath=({scripts}/zsh/vendor-completions $fpath); "
                        "autoload -U compinit; compinit -u -D; LISTMAX=1000; echo load''ed", "loaded")
        return made[0]

    yield start
    for each in made:
        each.close()


def test_commands_flags_and_words(shell):
    """A part of a command becomes the command; several candidates are listed; flags have their words."""
    s = shell()
    s.complete("continuo-ctl unreg", "unregister")
    s.complete("continuo-ctl seq ", "ls", "show", "export", "import", "fork", "rm")
    s.complete("continuo-ctl --server http://h:1 sto", "store")
    s.complete("continuo-ctl swap --pol", "--policy")
    s.complete("continuo-ctl swap --policy ", "pin", "migrate", "reset", "reject")
    s.complete("continuo-ctl seq ls --sort ba", "backlog")
    s.complete("continuo-ctl slowlog --sort dur", "duration")


def test_every_option_of_the_server(shell):
    """They come from the table of options, so a new option is completed without further work."""
    s = shell()
    s.complete("continuo --otlp-end", "--otlp-endpoint")
    s.complete("continuo --durability ", "none", "process", "power")
    s.complete("continuo --log-format js", "json")
    s.complete("continuo --sequence-", "--sequence-start-header", "--sequence-id-header", "--sequence-on-expired")


def test_files_and_folders(shell, folder):
    (folder / "some-models").mkdir()
    s = shell()
    s.run(f"cd {folder}; echo the''re", "there")
    s.complete("continuo --model-store some-m", "some-models")


def test_models_of_the_running_server(shell, server):
    """The names come from the server that CONTINUO_MANAGEMENT names."""
    s = shell(server(counter(), stateless()).management)
    text = s.complete("continuo-ctl unregister cou", "counter/1.0")
    assert "echo" not in text
    s.complete("continuo-ctl seq ls ec", "echo")


def test_fish_reads_its_script(scripts, folder):
    """fish can say without a terminal what it would complete."""
    program = shutil.which("fish")
    if not program:
        pytest.skip("fish is not installed (Debian's package fish)")

    def complete(line):
        return subprocess.run(
            [program, "--no-config", "-c", f"for f in {scripts}/fish/vendor_completions.d/*; source $f; end; "
             f"complete --do-complete '{line}'"], capture_output=True, text=True, check=True,
            env={**os.environ, "HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}).stdout
    assert "unregister\t" in complete("continuo-ctl unreg")
    assert "fork\t" in complete("continuo-ctl seq ")
    assert "migrate" in complete("continuo-ctl swap --policy ")
    assert "--otlp-endpoint" in complete("continuo --otlp")


def test_all_options_are_in_all_scripts(scripts):
    """The tables are the only source."""
    table = (ROOT / "config" / "server" / "server_options.def").read_text(encoding="utf-8")
    flags = re.findall(r'CN_OPTION\(\w+,\s*[\w \*]+?,\s*\w+,\s*"([a-z0-9-]+)"', table)
    assert len(flags) > 90
    for path in ("bash-completion/completions/continuo", "zsh/vendor-completions/_continuo"):
        text = (pathlib.Path(scripts) / path).read_text(encoding="utf-8")
        assert [flag for flag in flags if f"--{flag}" not in text] == []
    assert [flag for flag in flags
            if f"-l {flag} " not in (scripts / "fish/vendor_completions.d/continuo.fish").read_text()] == []
