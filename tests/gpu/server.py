"""A server from the bundle: starts it, packs and registers models, sends requests, kills workers. Uses the standard
library only."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
READY = re.compile(r"^Model server started\. inference=(\S+) management=(\S+) ")


class Refused(Exception):
    """The server answered with an error: status, and its message."""

    def __init__(self, status, message):
        super().__init__(f"{status} {message}")
        self.status, self.message = status, message


class Server:
    """Use it in a `with`: at the end the server is stopped and its folder removed."""

    def __init__(self, environment=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-gpu-"))
        self.store = self.folder / "store"
        self.store.mkdir()
        self._environment = os.environ | (environment or {})
        self._start()

    def _start(self):
        command = [HERE / "bin/continuo", "--model-store", self.store, "--state-dir", self.folder / "state",
                   "--torch-library", HERE / "build/libcontinuo_torch.so", "--python", sys.executable, "--allowed-urls", "file://.*",
                   "--metrics-address", "http://127.0.0.1:0", "--grpc-inference-address", "none", "--grpc-management-address", "none",
                   "--inference-address", "http://127.0.0.1:0", "--management-address", "http://127.0.0.1:0"]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                                            stderr=log, env=self._environment)
        ready = next((found for line in self.process.stdout if (found := READY.match(line))), None)
        if ready is None:
            raise SystemExit(f"the server did not start:\n{self.log()[-3000:]}")
        self.inference, self.management = (urllib.parse.urlsplit(url).netloc for url in ready.group(1, 2))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def restart(self, with_signal):
        self.stop(with_signal)
        self._start()

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def register(self, name, script, yaml, handler=None, timeout=180):
        """Packs the TorchScript file, with the text of a Python handler if there is one, and waits until its workers are
        ready. Raises Refused with the reason otherwise."""
        with_handler = []
        if handler:
            (self.folder / "handler.py").write_text(handler)
            with_handler = ["--handler", self.folder / "handler.py"]
        config = self.folder / f"{name}.yaml"
        config.write_text(yaml)
        subprocess.run([HERE / "bin/continuo-archiver", "--model-name", name, "--version", "1.0",
                        "--serialized-file", script, *with_handler, "--config-file", config, "--export-path", self.store,
                        "--force"],
                       check=True, stdout=subprocess.DEVNULL)
        workers = re.search(r"minWorkers: (\d+)", yaml)[1]
        self.manage("POST", f"/models?url={name}.mar&initial_workers={workers}&synchronous=true", timeout)

    def manage(self, method, path, timeout=60):
        connection = http.client.HTTPConnection(self.management, timeout=timeout)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        if answer.status >= 300:
            raise Refused(answer.status, json.loads(body).get("message", body))
        return json.loads(body)

    def describe(self, name):
        return self.manage("GET", f"/models/{name}?customized=true")[0]

    def pids(self, name):
        return [worker["pid"] for worker in self.describe(name)["workers"] if worker["status"] == "READY"]

    def kill_workers(self, name):
        for pid in self.pids(name):
            os.kill(pid, signal.SIGKILL)

    def client(self):
        return Client(self.inference)

    def bench(self, name, connections, seconds):
        """Returns the steps per second of requests with one number, measured by the load tool."""
        run = subprocess.run([HERE / "bin/continuo-bench", "--url", f"http://{self.inference}", "--model", name,
                              "--connections", str(connections), "--duration", str(seconds), "--any-answer",
                              "--any-share"],
                             stdout=subprocess.PIPE, text=True, check=False)
        return json.loads(run.stdout)


class Client:
    """A connection that is opened again when the server has closed it."""

    def __init__(self, address):
        self._connection = http.client.HTTPConnection(address, timeout=120)

    def step(self, model, sequence, inputs):
        body = json.dumps(inputs)
        self._connection.request("POST", f"/predictions/{model}", body,
                                 {"Content-Type": "application/json"} |
                                 ({"ts-request-sequence-id": sequence} if sequence else {}))
        answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise Refused(answer.status, json.loads(text).get("message", text))
        return json.loads(text)


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return found
