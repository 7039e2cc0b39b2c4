"""docs/tutorial.md, done by the letter: a newcomer who types what the page says must see what the page shows."""

import os
import pathlib
import re
import signal
import subprocess
import threading

from models import BIN, ROOT
from ports import free_ports
from waiting import expect, limit

PAGE = ROOT / "docs" / "tutorial.md"
PORTS = {"inference": 8080, "management": 8081, "metrics": 8082}


def blocks():
    """(kind, text) of each fenced block, in the order of the page."""
    return re.findall(r"^```(sh|text dev|text)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


class Terminal:
    """The second terminal: one program at a time, which runs until the page starts another one."""

    def __init__(self, folder, env, transcript):
        self.folder, self.env, self.transcript = folder, env, transcript
        self.process = None
        self.lines = []
        self.all = []  # of all programs

    def start(self, command):
        self.stop()
        self.lines = []
        self.process = subprocess.Popen(command, shell=True, cwd=self.folder, env=self.env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process):
        for line in process.stdout:
            self.transcript.log("terminal 2", line.rstrip())
            self.lines.append(line.rstrip("\n"))
            self.all.append(line.rstrip("\n"))

    def expect(self, line):
        expect(lambda: any(line in each for each in self.lines), f"'{line}' on the second terminal", 60)
        self.lines = []  # a later block of the page is about what comes later

    def stop(self):
        if self.process is None:
            return
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(limit(60))
        self.process = None


class Reader:
    def __init__(self, folder, transcript):
        self.folder, self.transcript = folder, transcript
        self.ports = dict(zip(PORTS, free_ports(3)))
        env = {key: value for key, value in os.environ.items() if not key.startswith("CONTINUO_")}
        management = f"http://127.0.0.1:{self.ports['management']}"
        env.update(PATH=f"{BIN}:{env['PATH']}", TMPDIR=str(folder))
        self.env = {**env, "CONTINUO_MANAGEMENT": management, "CONTINUO_METRICS": self.url("metrics")}
        self.terminal = Terminal(folder, env, transcript)

    def url(self, name):
        return f"http://127.0.0.1:{self.ports[name]}"

    def addresses(self, command):
        """The page has the usual ports, on which something else may listen here."""
        if command.startswith("continuo dev"):
            return (f"exec {command} --inference {self.url('inference')} --server {self.url('management')} "
                    f"--metrics {self.url('metrics')}")
        if command.startswith("continuo --model-store"):
            flags = " ".join(f"--{name}-address {self.url(name)}" for name in PORTS)
            return f"exec {command} {flags} --grpc-inference-address none --grpc-management-address none"
        # without a terminal, curl would show its progress
        return command.replace("http://localhost:8080", self.url("inference")).replace("curl ", "curl -sS ")

    def type(self, text):
        """Types the commands of a block; returns what they print."""
        shown = ""
        for command in text.splitlines():
            typed = self.addresses(command)
            if typed.startswith("exec "):
                self.terminal.start(typed)
                if "model-store" in typed:
                    self.terminal.expect("Model server started")
                continue
            run = subprocess.run(["sh", "-c", typed], cwd=self.folder, env=self.env, text=True, check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit(120))
            self.transcript.log("reader", f"$ {typed} -> {run.returncode}\n{run.stdout}")
            assert run.returncode == 0, f"{command}: {run.stdout}"
            shown += run.stdout
        return shown


def test_the_tutorial_works_as_it_stands(folder, transcript):
    reader = Reader(folder, transcript)
    shown = ""
    try:
        for kind, text in blocks():
            if kind == "sh":
                shown = reader.type(text)
            elif kind == "text":
                for line in text.splitlines():
                    assert line in shown, f"the page shows {line!r}, and the reader sees {shown!r}"
            else:
                *before, last = text.splitlines()
                for line in before:
                    expect(lambda line=line: any(line in each for each in reader.terminal.lines), line, 60)
                reader.terminal.expect(last)
    finally:
        reader.terminal.stop()
    assert not list(pathlib.Path(folder).glob("continuo-dev-*")), "the temporary folders are removed"
