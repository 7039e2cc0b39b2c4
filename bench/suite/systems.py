"""The systems that bench/suite.sh compares: ours, the ceilings, and other servers, each started in a folder of its own.

A running system has `pid` (its first process), `http` and `grpc` ("ADDRESS:PORT", or None), `began` (when it was
started), close(), and for servers with a handler also worker_pids() and restart(). The first `servers` processes of its
tree are the server itself, and the others are workers. A peer that cannot be installed raises Unavailable with the
reason."""

import contextlib
import functools
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

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tests/differential")]

import common  # noqa: E402 - what the lines above make importable
import torchserve_handler  # noqa: E402
import torchserve_pair  # noqa: E402
import torchserved  # noqa: E402
import triton_peer  # noqa: E402
from served import BIN, ROOT, Served  # noqa: E402

Unavailable = common.Unavailable
COUNTER = (ROOT / "examples/counter/model-config.yaml").read_text()
IDENTITY = (ROOT / "examples/v2/identity/model-config.yaml").read_text()
ASLEEP = ["--busy-wait", "0"]
LARGE = ["--max-request-size", "20000000"]
#: Sequences stay for ten minutes. A run of the load tool opens new ones, so there must be places for all runs.
SUM_CONFIG = """max_batch_size: 64
sequence_batching {{
  max_sequence_idle_microseconds: 600000000
  {strategy}
}}
input [ {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }} ]
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
"""
TRITON_BEST = {"strategy": "oldest { max_candidate_sequences: 4096 }", "instances": 1}
SUM_PY = """import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            sequence = request.correlation_id()
            total = int(pb.get_input_tensor_by_name(request, "INPUT").as_numpy()[0, 0])
            if not request.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                total += self.sums[sequence]
            self.sums[sequence] = total
            answers.append(pb.InferenceResponse([pb.Tensor("OUTPUT", np.array([[total]], np.int32))]))
        return answers
"""
SUM_LUA = """local M = { api = 1 }

function M.step(state, req)
    local number = req.inputs.INPUT.values[1]
    state.total = req.start and number or state.total + number
    return { outputs = { OUTPUT = { datatype = "INT32", shape = { 1, 1 }, data = { state.total } } } }
end

return M
"""


def tree(pid):
    return torchserve_handler.tree(pid)


def processes_named(pid, word):
    """The processes below `pid` whose command line has the word."""
    found = []
    for each in tree(pid):
        with contextlib.suppress(OSError):
            if word.encode() in pathlib.Path(f"/proc/{each}/cmdline").read_bytes():
                found.append(each)
    return found


def began_at(pid):
    """When a process was started, as time.monotonic() says it."""
    ticks = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


class Ceiling:
    """An echo without sequences, handlers or state."""

    servers = 1

    def __init__(self, command, grpc=False):
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        port = re.search(r"port[ =](\d+)", self.process.stdout.readline())[1]
        self.http, self.grpc = (None, f"127.0.0.1:{port}") if grpc else (f"127.0.0.1:{port}", None)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Ours:
    """Continuo with packed models."""

    servers = 1

    def __init__(self, models, flags=(), grpc=False):
        self.model = next(iter(models))
        self.server = Served(models, flags, grpc=grpc)
        self._look()

    def _look(self):
        self.pid, self.began = self.server.process.pid, self.server.began
        self.http = self.server.inference.removeprefix("http://")
        self.grpc = self.server.grpc

    def worker_pids(self):
        return [self.server.worker_pid(self.model)]

    def restart(self):
        self.server.kill_and_restart()
        self._look()

    def close(self):
        self.server.close()


class TorchServe:
    servers = 2  # a Python process that starts Java, and Java

    def __init__(self, peer):
        self.peer = peer
        self._start()

    def _start(self):
        self.server = torchserve_handler.theirs(self.peer, "sequence batching", *torchserve_handler.THEIR_BEST)
        self.pid, self.began = self.server.process.pid, self.server.began
        self.http, self.grpc = self.server.inference.removeprefix("http://"), None

    def worker_pids(self):
        return processes_named(self.pid, "model_service_worker.py")

    def restart(self):
        self.server.close()  # with SIGKILL
        self._start()

    def close(self):
        self.server.close()


class Repository:
    """Triton or Continuo on a model repository with the model `sum`."""

    servers = 1

    def __init__(self, start, backend, settings=None):
        self.start = start
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-bench-"))
        version = self.folder / "models/sum/1"
        version.mkdir(parents=True)
        name, text = ("model.py", SUM_PY) if backend == "python" else ("handler.lua", SUM_LUA)
        (version / name).write_text(text, encoding="utf-8")
        (version.parent / "config.pbtxt").write_text(
            f'name: "sum"\nbackend: "{backend}"\n' + SUM_CONFIG.format(**(settings or TRITON_BEST)), encoding="utf-8")
        self.runs = 0
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _start(self):
        # Continuo keeps its states in the folder, so it gets the same one again. Triton's only has programs.
        home = self.folder / ("run" if self.start is triton_peer.start_ours else f"run{self.runs}")
        home.mkdir(exist_ok=True)
        (home / "continuo.log").unlink(missing_ok=True)  # it has the address of the last run
        self.runs += 1
        self.side = self.start(home, self.folder / "models", ["sum"])
        self.pid = self.side.process.popen.pid
        self.began = began_at(self.pid)  # after its files were copied
        self.http, self.grpc = self.side.http, self.side.grpc

    def worker_pids(self):
        if self.start is triton_peer.start_ours:
            return [max(tree(self.pid)[1:])]  # the other one is the zygote, which is older
        return processes_named(self.pid, "triton_python_backend_stub")

    def restart(self):
        self.side.process.signal(signal.SIGKILL)
        self.side.process.popen.wait()
        for left in pathlib.Path("/dev/shm").glob(triton_peer.SHARED_PREFIX + "*"):
            left.unlink()
        self._start()

    def close(self):
        self.side.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.lru_cache
def counter_in_c():
    """Builds counter.c once and returns the library."""
    folder = ROOT / "build/suite"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", ROOT / "include", HERE / "counter.c", "-o",
                    folder / "counter.so"], check=True)
    return folder / "counter.so"


@functools.lru_cache
def torchserve_bin():
    """The folder with TorchServe's programs, which is made on the first call."""
    return pathlib.Path(torchserve_pair.install()["theirs"][1]).parent


LUA, PYTHON = ROOT / "examples/counter/handler.lua", ROOT / "examples/python/counter/handler.py"


def same_handler():
    config = torchserve_handler.config_of("sequence batching", torchserve_handler.OUR_IDLE_MS,
                                          *torchserve_handler.OUR_BEST)
    return Ours({"sum": (torchserve_handler.EXAMPLE, config)}, ["--python", torchserve_bin() / "python"])


#: name -> what starts it
SYSTEMS = {
    "epoll": lambda: Ceiling([BIN / "echo-epoll"]),
    "epoll-polling": lambda: Ceiling([BIN / "echo-epoll", "--busy-wait"]),
    "mhd": lambda: Ceiling([BIN / "echo-mhd", "--loops", "1"]),
    "grpc-core": lambda: Ceiling([BIN / "grpc-bench", "echo"], grpc=True),
    "lua": lambda: Ours({"counter": (LUA, COUNTER)}, grpc=True),
    "lua-asleep": lambda: Ours({"counter": (LUA, COUNTER)}, ASLEEP, grpc=True),
    "c": lambda: Ours({"counter": (counter_in_c(), COUNTER)}),
    "python": lambda: Ours({"counter": (PYTHON, COUNTER)}, ["--python", sys.executable]),
    "identity": lambda: Ours({"identity": (BIN.parent / "examples/identity.so", IDENTITY)}, LARGE, grpc=True),
    "identity-asleep": lambda: Ours({"identity": (BIN.parent / "examples/identity.so", IDENTITY)}, [*ASLEEP, *LARGE],
                                    grpc=True),
    "same-handler": same_handler,
    "torchserve": lambda: TorchServe(torchserve_bin()),
    "sum-lua": lambda: Repository(triton_peer.start_ours, "lua"),
    "sum-python": lambda: Repository(triton_peer.start_ours, "python"),
    "triton": lambda: Repository(triton_peer.start_triton, "python"),
}


class Steps:
    """Sends single steps to a counter and returns its sum, or None if there is no answer. `kind` is "text" or "v2"."""

    def __init__(self, kind, model):
        self.kind, self.model = kind, model
        self.sequence = 1 + os.getpid() * 1000 + time.time_ns() % 1000

    def send(self, address, number, start=False, timeout=5):
        headers, path = {"ts_request_sequence_id": f"one-{self.sequence}"}, f"/predictions/{self.model}"
        body = str(number)
        if self.kind == "v2":
            headers, path = {"Content-Type": "application/json"}, f"/v2/models/{self.model}/infer"
            body = json.dumps({"parameters": {"sequence_id": self.sequence, "sequence_start": start}, "inputs": [
                {"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [number]}]})
        connection = http.client.HTTPConnection(address, timeout=timeout)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                return None
            return int(json.loads(text)["outputs"][0]["data"][0] if self.kind == "v2" else text)
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()
