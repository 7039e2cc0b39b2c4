"""The real server for a test: started in a folder of its own, watched, and stopped cleanly."""

import contextlib
import os
import pathlib
import random
import re
import resource
import signal
import struct
import subprocess
import threading
import warnings

import pytest

from client import Client, RawClient, Stream
from models import BIN, ROOT, Model, pack
from transcript import shorten
from waiting import FACTOR, expect, limit

LEAK_CHECKS_LOST_MAX = 3  # in one run of the tests; see Server._leak_check_crashed

READY = re.compile(r"^Model server started\. inference=(\S+) management=(\S+) metrics=(\S+) grpc=(\S+) "
                   r"grpc_admin=(\S+) pid=(\d+) loops=(\d+) ready_ms=(\d+)$")

# A process of the ASan build that the server kills while the process looks for leaks at its own end: its tracer says
# so, or has only opened its file.
KILLED_IN_LEAK_CHECK = re.compile(r"(==\d+==Unable to get registers from thread \d+\.\n)*")


def address_of(url):
    host, port = url.partition("://")[2].rsplit(":", 1)
    return host, int(port)


class Clock:
    """Moves the time of server and workers ahead by what this file says."""

    def __init__(self, path, transcript):
        self.path = path
        self._transcript = transcript
        self._ahead_ms = 0
        self._wall_ms = 0
        path.write_bytes(struct.pack("<qq", 0, 0))

    def jump(self, ms):
        """Sets only the wall clock ahead or back."""
        self._wall_ms += ms
        self._transcript.log("clock", f"the wall clock jumps by {ms} ms")
        with open(self.path, "r+b") as file:
            file.seek(8)
            file.write(struct.pack("<q", self._wall_ms))

    def advance(self, ms):
        self._ahead_ms += ms
        self._transcript.log("clock", f"advances by {ms} ms")
        with open(self.path, "r+b") as file:  # in place, because other processes have mapped the file
            file.write(struct.pack("<q", self._ahead_ms))


class Hold:
    def __init__(self, path, transcript):
        self._path = path
        self._transcript = transcript
        transcript.log("test", "holds the workers")
        path.touch()

    def release(self):
        if self._path.exists():
            self._transcript.log("test", "releases the workers")
            self._path.unlink()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Server:
    _leak_checks_lost = 0

    def __init__(self, folder, transcript, flags=(), env=None, clock=False, models=(), name="server"):
        self.folder = pathlib.Path(folder)
        self.transcript = transcript
        self.name = name
        self.store = self.folder / "store"
        self.state_dir = self.folder / "state"
        self.work = self.folder / "work"
        self.marks = self.folder / "marks"  # the only folder here that workers may write, besides their own
        for path in (self.store, self.work, self.marks):
            path.mkdir(exist_ok=True)
        self.hold_file = self.folder / "hold"
        self.clock = Clock(self.folder / "clock", transcript) if clock else None
        self.flags = list(flags)
        self.env = dict(env or {})
        self.models = list(models)
        self.lines = []  # lines of stdout and stderr
        self.program = BIN / "continuo"
        self.process = None
        self.expected_exit = 0
        self._told_to_end = False
        self._clients = 0
        self._ready = threading.Event()
        self._readers = []
        self.inference = self.management = self.metrics = self.grpc = self.grpc_admin = None
        self.tls = None

    # --- start and stop

    def command(self):
        flags = ["--state-dir", self.state_dir]
        if "--model-repository" not in self.flags:
            flags += ["--model-store", self.store]
        for which in ("inference", "management", "metrics"):
            if f"--{which}-address" not in self.flags:
                flags += [f"--{which}-address", "http://127.0.0.1:0"]
        for which in ("inference", "management"):
            if f"--grpc-{which}-address" not in self.flags:
                plain = "none" if "--require-tls" in self.flags else "http://127.0.0.1:0"
                flags += [f"--grpc-{which}-address", plain]
        if "CONTINUO_TEST_LOOPS" in os.environ and "--loops" not in self.flags:
            flags += ["--loops", os.environ["CONTINUO_TEST_LOOPS"]]
        archives = []
        for model in self.models:
            if isinstance(model, Model):
                archives.append(f"{model.name}={self.pack(model).name}")
            else:
                archives.append(model)
        if archives:
            flags += ["--models", *archives]
        return [str(self.program), *map(str, flags), *map(str, self.flags)]

    def environment(self):
        env = {key: value for key, value in os.environ.items() if not key.startswith("CONTINUO_")}
        report = self.marks / "sanitizer"
        env.update({
            "CONTINUO_TEST_HOLD": str(self.hold_file),
            "CONTINUO_TEST_MARKS": str(self.marks),
            "ASAN_OPTIONS": f"log_path={report}.address:detect_leaks=1",
            "UBSAN_OPTIONS": f"log_path={report}.undefined:print_stacktrace=1",
            "TSAN_OPTIONS": f"log_path={report}.thread:second_deadlock_stack=1:"
                            f"suppressions={ROOT / 'tests' / 'support' / 'tsan.supp'}",
        })
        if self.clock:
            env["CONTINUO_TEST_CLOCK"] = str(self.clock.path)
        if "CONTINUO_TEST_TUNING" in os.environ:
            env["CONTINUO_TUNING"] = os.environ["CONTINUO_TEST_TUNING"]
        env.update({key: str(value) for key, value in self.env.items()})
        return env

    def launch(self):
        """Starts the process without waiting for it to be ready."""
        command = self.command()
        self.transcript.log(self.name, "$ " + " ".join(command))
        self._ready.clear()
        # It gets a session of its own, so that all processes that it leaves behind can be found.
        self._told_to_end = False
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="backslashreplace", env=self.environment(), cwd=self.folder,
                                        start_new_session=True)
        self._readers = [threading.Thread(target=self._read, args=(stream,), daemon=True)
                         for stream in (self.process.stdout, self.process.stderr)]
        for reader in self._readers:
            reader.start()
        return self

    def _read(self, stream):
        for line in stream:
            line = line.rstrip("\n")
            self.lines.append(line)
            self.transcript.log(self.name, "| " + shorten(line, 2000))
            if found := READY.match(line):
                self.inference, self.management, self.metrics = found.group(1, 2, 3)
                self.grpc, self.grpc_admin = found.group(4, 5)
                self._ready.set()
        stream.close()

    def start(self):
        self.launch()
        return self.wait_ready()

    def wait_ready(self):
        """Waits until a server that was launched is ready."""
        expect(lambda: self._ready.is_set() or self.process.poll() is not None,
               "the server's ready line", timeout=20)
        if not self._ready.is_set():
            self._join_readers()
            raise AssertionError(f"the server ended with {self.process.poll()}: {self.lines[-5:]}")
        return self

    def _join_readers(self):
        for reader in self._readers:
            reader.join(limit(5))

    def exit_code(self, timeout=20):
        """Waits until the process has ended by itself."""
        code = self.process.wait(limit(timeout))
        self._join_readers()
        self.transcript.log(self.name, f"ended with {code}")
        return 0 if code == 1 and self._leak_check_crashed() else code

    def _leak_check_crashed(self):
        """Returns True if LeakSanitizer itself has crashed. It stops all threads at the end, and sometimes crashes if
        one is just ending (gRPC's). Then it reports only that, and nobody knows what would have leaked, so this is a
        warning. It is accepted only after a clean end of the server, whose exit status it has replaced, and only a few
        times in a run, because a crash each time would hide a leak."""
        path = self.marks / f"sanitizer.address.{self.process.pid}"
        text = path.read_text() if path.exists() else ""
        if not text.startswith("Tracer caught signal") or "ERROR:" in text or len(text.splitlines()) > 4:
            return False
        ended_well = any("event=stopped" in line for line in self.lines)
        if not ended_well or Server._leak_checks_lost == LEAK_CHECKS_LOST_MAX:
            return False
        Server._leak_checks_lost += 1
        path.unlink()
        warnings.warn(f"{self.name}: LeakSanitizer itself crashed, no word about leaks: {text}", stacklevel=3)
        return True

    def terminate(self):
        """Sends SIGTERM, unless the server has ended or has got it."""
        if self.process.poll() is None and not self._told_to_end:
            self.transcript.log(self.name, "SIGTERM")
            self.process.send_signal(signal.SIGTERM)
            self._told_to_end = True

    def stop(self, timeout=40):
        """Sends SIGTERM and checks everything that a clean end promises."""
        self.terminate()
        code = self.exit_code(timeout)
        assert code == self.expected_exit, "\n".join([f"the server ended with {code}", *self.sanitizer_reports()])
        expect(lambda: not self.session_members(), "no process left behind")

    def kill(self):
        """Kills the server with -9, like a crash. Its workers must notice."""
        self.transcript.log(self.name, "SIGKILL")
        self.process.kill()
        self.process.wait()
        self._join_readers()
        self.expected_exit = -signal.SIGKILL

    def restart(self):
        self.expected_exit = 0
        return self.start()

    def session_members(self):
        """Returns the pids of the last started process's session, without zombies of others."""
        members = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    members.append(int(entry))
        return members

    def destroy(self):
        """Ends all processes that are left, without checks."""
        if self.process is None:
            return
        for pid in self.session_members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self._join_readers()

    def sanitizer_reports(self):
        texts = {path.name: path.read_text(errors="replace") for path in sorted(self.marks.glob("sanitizer.*"))}
        return [f"{name}:\n{text[:6000]}" for name, text in texts.items() if not KILLED_IN_LEAK_CHECK.fullmatch(text)]

    # --- actors

    def client(self, name=None, **more):
        self._clients += 1
        return Client(address_of(self.inference), self.transcript, name or f"client{self._clients}",
                      tls=self.tls_of(self.inference), **more)

    def admin(self):
        return Client(address_of(self.management), self.transcript, "admin", timeout=60,
                      tls=self.tls_of(self.management))

    def tls_of(self, url):
        """Returns the context for an https listener. A test sets self.tls to a context that trusts its certificate."""
        return self.tls if url.startswith("https://") else None

    def stream(self, model, sequence, body, headers=None, **more):
        headers = dict(headers or {})
        if sequence is not None:
            headers["ts_request_sequence_id"] = sequence
        return Stream(address_of(self.inference), self.transcript, f"/predictions/{model}", body, headers, **more)

    def raw(self, name="raw", **more):
        return RawClient(address_of(self.inference), self.transcript, name, **more)

    def bench(self, *args, timeout=120):
        """Starts continuo-bench against this server. The caller waits for it."""
        command = [str(BIN / "continuo-bench"), "--url", self.inference, "--any-share", *map(str, args)]
        self.transcript.log("bench", "$ " + " ".join(command))
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pack(self, model, file_name=None):
        if file_name is None and model.archive_format == "default":
            file_name = f"{model.name}-{model.version}.mar"
        return pack(model, self.store, self.work, self.transcript, file_name)

    def register(self, model, **query):
        """Packs a model and registers it. Returns the answer of the management API."""
        path = self.pack(model)
        return self.register_url(path.name, **query)

    def register_url(self, url, **query):
        words = "".join(f"&{key}={value}" for key, value in query.items())
        return self.admin().post(f"/models?url={url}{words}")

    # --- what can be seen and done from outside

    def describe(self, model, version=None):
        answer = self.admin().get(f"/models/{model}" + (f"/{version}" if version else ""))
        assert answer.status == 200, answer
        return answer.json[0]

    def workers(self, model, version=None):
        return self.describe(model, version)["workers"]

    def outstanding(self, model):
        """Returns the number of steps that have arrived and are not answered yet."""
        queue = self.describe(model)["jobQueueStatus"]
        return queue["pendingRequests"] + queue["inFlight"]

    def expect_outstanding(self, model, count):
        expect(lambda: self.outstanding(model) >= count, f"{count} steps have arrived at {model}")

    def ready_pids(self, model, version=None):
        return [worker["pid"] for worker in self.workers(model, version) if worker["status"] == "READY"]

    def expect_ready(self, model, count=1, version=None, timeout=20):
        def pids():
            found = self.ready_pids(model, version)
            return found if len(found) == count else None
        return expect(pids, f"{count} ready workers of {model}", timeout)

    def kill_worker(self, model, index=0, version=None):
        """Returns the pid of a live worker. The server may not have noticed yet that another one was killed."""
        def killed():
            pid = self.expect_ready_any(model, version)[index]
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return None
            return pid

        pid = expect(killed, f"a worker of {model} to kill")
        self.transcript.log("test", f"kill -9 worker {pid} of {model}")
        return pid

    def expect_ready_any(self, model, version=None):
        return expect(lambda: self.ready_pids(model, version), f"a ready worker of {model}", 20)

    @contextlib.contextmanager
    def killing(self, model, every_s):
        """Kills one of the model's ready workers every `every_s` seconds while the `with` block runs, the first one soon."""
        over = threading.Event()

        def kill():
            chance = random.Random(3)
            wait_s = 0.02
            while not over.wait(wait_s):
                wait_s = every_s
                if pids := self.ready_pids(model):
                    with contextlib.suppress(ProcessLookupError):  # the last kill may have ended it
                        os.kill(chance.choice(pids), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            yield
        finally:
            over.set()
            killer.join()

    def hold(self):
        """Holds all workers: they take no batch until release(), or until the end of the `with` block."""
        return Hold(self.hold_file, self.transcript)

    @contextlib.contextmanager
    def without_descriptors(self):
        """Leaves the server no free descriptor, as if all were in use."""
        try:
            taken = {int(number) for number in os.listdir(f"/proc/{self.process.pid}/fd")}
        except PermissionError:
            pytest.skip("the server is not dumpable, so only root sees its descriptors")
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        before = resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (free, before[1]))
        yield
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, before)

    def metric(self, name):
        """Returns the sum of a metric over its labels, from the metrics listener."""
        answer = Client(address_of(self.metrics), self.transcript, "metrics",
                        tls=self.tls_of(self.metrics)).get("/metrics")
        assert answer.status == 200, answer
        total = 0.0
        for line in answer.text.splitlines():
            if re.match(rf"{re.escape(name)}(\{{| )", line):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def expect_log(self, *words, timeout=10):
        """Waits for a line of the server's output that contains all the words."""
        return expect(lambda: next((line for line in list(self.lines) if all(w in line for w in words)), None),
                      f"a line with {' and '.join(words)}", timeout)


SLOW_BUILD = FACTOR > 1
