"""A server for one measurement: it is started in a folder of its own, queried, loaded by continuo-bench, and stopped.

One thread. Needs a release build (scripts/build.sh); CONTINUO_BUILD names another build folder."""

import atexit
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = (ROOT / os.environ.get("CONTINUO_BUILD", "build/release")).resolve() / "bin"
READY = re.compile(r"^Model server started\. inference=(\S+) management=(\S+) metrics=(\S+) grpc=(\S+)")


def machine():
    """Returns a line that describes the machine and its load at that moment."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line.partition(": ")[2].strip() for line in file if line.startswith("model name")), "unknown")
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"machine: {os.cpu_count()} cores, {name}, Linux {'.'.join(platform.release().split('.')[:2])}; load {load}"


class Served:
    """`models`: {name: (handler, YAML text)}. The handler is the file of a handler or of a model of TorchScript (.pt) or
    ONNX (.onnx), or the text of a Lua handler. With `clock`, advance() works, and the server looks at its clock every
    5 ms. `under` is an object like instructions/callgrind.py's, which says what command the server is run by. Use it in a
    `with`."""

    def __init__(self, models, flags=(), clock=False, grpc=False, under=None):
        # A measurement that a timeout ends must leave neither servers nor gigabytes behind.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        self.process = self._errors = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-bench-"))
        atexit.register(self.close)
        self._clock = self.folder / "clock"
        self._clock.write_bytes(struct.pack("<q", 0))
        store = self.folder / "store"
        store.mkdir()
        for name, (handler, config) in models.items():
            self._pack(name, handler, config, store)
        self._errors = open(self.folder / "stderr", "wb")  # noqa: SIM115 - closed with the server
        self._command = command = [*(under.command if under else ()), BIN / "continuo", "--model-store", store, "--state-dir", self.folder / "state", "--models",
                   *(f"{name}={name}.mar" for name in models), *flags]
        for which in ("inference", "management", "metrics"):
            command += [f"--{which}-address", "http://127.0.0.1:0"]
        command += ["--grpc-inference-address", "http://127.0.0.1:0" if grpc else "none",
                    "--grpc-management-address", "none"]
        self._environment = (os.environ | (under.env if under else {}) |
                             ({"CONTINUO_TEST_CLOCK": str(self._clock)} if clock else {}))
        self._start()

    def _start(self):
        self.began = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in self._command], stdout=subprocess.PIPE, text=True,
                                        stderr=self._errors, env=self._environment)
        ready = next((found for line in self.process.stdout if (found := READY.match(line))), None)
        if ready is None:
            words = (self.folder / "stderr").read_text(errors="replace")[-2000:]
            self.close()
            raise SystemExit(f"the server did not start: {words}")
        self.inference, self.management, self.metrics, self.grpc = ready.group(1, 2, 3, 4)

    def _pack(self, name, handler, config, store):
        script = str(handler).endswith((".pt", ".onnx"))
        source = pathlib.Path(handler) if script or str(handler).endswith((".lua", ".py", ".so")) else self.folder / f"{name}.lua"
        if source.parent == self.folder:
            source.write_text(handler, encoding="utf-8")
        yaml = self.folder / f"{name}.yaml"
        yaml.write_text(config, encoding="utf-8")
        subprocess.run([BIN / "continuo-archiver", "--model-name", name, "--version", "1.0",
                        "--serialized-file" if script else "--handler", source,
                        "--config-file", yaml, "--export-path", store], check=True, stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process:
            self.process.stdout.close()
        if self._errors:
            self._errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def kill_and_restart(self):
        """Ends the server with SIGKILL and starts it again on the same store. Its workers end with it. Its addresses
        may change."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._start()

    @property
    def address(self):
        host, port = self.inference.partition("://")[2].rsplit(":", 1)
        return host, int(port)

    def advance(self, ms):
        """Moves the time of server and workers ahead by `ms`."""
        (now,) = struct.unpack("<q", self._clock.read_bytes())
        with open(self._clock, "r+b") as file:  # in place, because other processes have mapped the file
            file.write(struct.pack("<q", now + ms))
        time.sleep(0.1)  # a connection that opens during the jump would seem as old as the jump is long

    def describe(self, model):
        with urllib.request.urlopen(f"{self.management}/models/{model}", timeout=60) as answer:
            return json.load(answer)[0]

    def worker_pid(self, model):
        return next((w["pid"] for w in self.describe(model)["workers"] if w["status"] == "READY"), None)

    def bench(self, model, *args):
        """Runs continuo-bench once and returns its result. The caller must look at `errors`. The load tool has two
        processes where it can, so that it is not slower than the server; it ends the program if it was."""
        words = list(map(str, args))
        connections = int(words[words.index("--connections") + 1]) if "--connections" in words else 16
        if connections > 1 and "--sums" not in words:
            words += ["--processes", "2"]
        command = [BIN / "continuo-bench", "--url", self.inference, "--model", model, *words]
        run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode > 1:
            raise SystemExit(run.returncode)
        return json.loads(run.stdout)


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def disk_bytes(folder):
    """Returns the disk space that the files below really use."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
