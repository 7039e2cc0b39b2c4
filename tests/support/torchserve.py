"""The program `torchserve` as an operator uses it: commands in a folder, with output in a file."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

from client import Client
from models import BIN, ROOT, Model, pack
from server import READY, address_of
from waiting import expect, limit

# The system chooses the ports, because tests run side by side. Keys have tests of their own.
PORTS = "".join(f"{api}_address=http://127.0.0.1:0\n" for api in ("inference", "management", "metrics"))
PORTS += "grpc_inference_port=0\ngrpc_management_port=0\n"
NO_TOKENS = "disable_token_authorization=true\n"


class TorchServe:
    def __init__(self, folder, transcript, env=None):
        self.folder = pathlib.Path(folder)
        self.transcript = transcript
        self.env = dict(env or {})
        self.store = self.folder / "model-store"
        self.work = self.folder / "work"
        self.tmp = self.folder / "tmp"  # the pid file is here, so each test has its own
        self.output = self.folder / "output"
        self.marks = self.folder / "marks"  # workers may write there, besides their own folders
        for path in (self.store, self.work, self.tmp, self.marks):
            path.mkdir(exist_ok=True)
        self.pid_file = self.tmp / ".model_server.pid"
        self._spawned = []

    # --- commands

    def environment(self):
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("CONTINUO_", "TS_", "LOG_LOCATION", "METRICS_LOCATION"))}
        report = self.marks / "sanitizer"
        env.update({
            "CONTINUO_TEST_MARKS": str(self.marks),
            "TMPDIR": str(self.tmp),
            "ASAN_OPTIONS": f"log_path={report}.address:detect_leaks=1",
            "UBSAN_OPTIONS": f"log_path={report}.undefined:print_stacktrace=1",
            "TSAN_OPTIONS": f"log_path={report}.thread:second_deadlock_stack=1:"
                            f"suppressions={ROOT / 'tests' / 'support' / 'tsan.supp'}",
        })
        env.update({key: str(value) for key, value in self.env.items()})
        return env

    def spawn(self, *args):
        """Runs the command. Its output is added to the end of self.output."""
        self.transcript.log("operator", "$ torchserve " + " ".join(map(str, args)))
        with open(self.output, "ab") as file:
            process = subprocess.Popen([BIN / "torchserve", *map(str, args)], stdout=file, stderr=file,
                                       stdin=subprocess.DEVNULL, env=self.environment(), cwd=self.folder,
                                       start_new_session=True)
        self._spawned.append(process)
        return process

    def run(self, *args, timeout=60):
        """Returns the command's exit status and what was printed meanwhile."""
        before = self.output.stat().st_size if self.output.exists() else 0
        code = self.spawn(*args).wait(limit(timeout))
        said = self.output.read_bytes()[before:].decode(errors="backslashreplace")
        for line in said.splitlines():
            self.transcript.log("torchserve", "| " + line)
        return code, said

    def start(self, *args):
        """Runs --start, which must succeed."""
        code, said = self.run("--start", *args)
        assert code == 0, said
        assert self.ready, said
        return said

    def stop(self):
        code, said = self.run("--stop")
        assert code == 0 and "TorchServe has stopped." in said, (code, said)
        return said

    # --- files

    def properties(self, text="", ports=PORTS + NO_TOKENS, name="config.properties"):
        path = self.folder / name
        path.write_text(ports + text)
        return path

    def pack(self, model: Model, file_name=None):
        return pack(model, self.store, self.work, self.transcript, file_name)

    def pack_with_theirs(self, name, handler, *flags):
        """An archive in the store, made by the pip package torch-model-archiver."""
        tool = pathlib.Path(sys.executable).parent / "torch-model-archiver"
        staging = self.folder / "staging"
        staging.mkdir(exist_ok=True)
        run = subprocess.run([tool, "--model-name", name, "--version", "1.0", "--handler", handler, "--export-path",
                              self.store, "--force", *map(str, flags)], capture_output=True, text=True, check=False,
                             timeout=limit(60), env={**os.environ, "TMPDIR": str(staging)})
        assert run.returncode == 0, run.stderr

    def snapshots(self, kind="*"):
        return sorted((self.folder / "logs" / "config").glob(f"*-{kind}.cfg"))

    # --- the server that runs

    @property
    def text(self):
        return self.output.read_text(errors="backslashreplace") if self.output.exists() else ""

    @property
    def ready(self):
        """Returns the last ready line: addresses of inference, management and metrics, and the pid."""
        found = [match for line in self.text.splitlines() if (match := READY.match(line))]
        return found[-1] if found else None

    @property
    def pid(self):
        return int(self.pid_file.read_text())

    def expect_ready(self, count=1):
        expect(lambda: len(re.findall(r"^Model server started\.", self.text, re.M)) >= count, "the ready line", 30)

    def client(self):
        return Client(address_of(self.ready.group(1)), self.transcript, "client")

    def admin(self):
        return Client(address_of(self.ready.group(2)), self.transcript, "admin", timeout=60)

    def describe(self, model, version=None):
        answer = self.admin().get(f"/models/{model}" + (f"/{version}" if version else ""))
        assert answer.status == 200, answer
        return answer.json[0]

    # --- the end of a test

    def server_pids(self):
        """Returns the servers and workers that run in this test's folder."""
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                variables = pathlib.Path(f"/proc/{int(entry)}/environ").read_bytes().split(b"\0")
                if f"TMPDIR={self.tmp}".encode() in variables:
                    found.append(int(entry))
        return found

    def sanitizer_reports(self):
        return [f"{path.name}:\n{path.read_text(errors='replace')[:6000]}"
                for path in sorted(self.marks.glob("sanitizer.*"))]

    def destroy(self):
        for pid in self.server_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._spawned:
            process.wait()
