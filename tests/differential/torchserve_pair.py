"""Starts TorchServe and our `torchserve` with the same configuration, and asks both the same things."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile

import common

TORCHSERVE = "0.12.0"
READY = "Model server started."
PORTS = ("inference", "management", "metrics", "grpc_inference", "grpc_management")

# Both handlers answer with one line for each parameter: its name, its content type and its text. A body that begins
# with "!" asks for something else.
HANDLER = '''
import json


class Handler:
    def __init__(self):
        self.sums = {}

    def initialize(self, context):
        pass

    def handle(self, data, context):
        if data and isinstance(data[0], str):  # instances of a service envelope
            return [self.obey(each[1:].split(" "), context, 0) if each[0] == "!" else each
                    for each in data]
        return [self.answer(row, context, at) for at, row in enumerate(data)]

    def answer(self, row, context, at):
        if context.get_request_header(at, "describe") == "True":
            return {"says": "described"}
        word = text(row.get("body", row.get("data", "")))
        if word.startswith("!"):
            return self.obey(word[1:].split(" "), context, at)
        lines = ["explain=" + (context.get_request_header(at, "explain") or ""),
                 "url_path=" + (context.get_request_header(at, "url_path") or "")]
        for name in sorted(row):
            kind = context.get_request_header(at, name)
            kind = kind["content-type"] if isinstance(kind, dict) else ""
            lines.append("|".join([name, kind, text(row[name])]))
        return "\\n".join(lines)

    def obey(self, words, context, at):
        if words[0] == "raise":
            raise ValueError("as told")
        if words[0] == "status":
            context.set_response_status(int(words[1]), words[2], at)
        elif words[0] == "header":
            context.set_response_header(at, words[1], words[2])
        elif words[0] == "type":
            context.set_response_content_type(at, words[1])
        elif words[0] == "json":
            return {"a": [1]}
        elif words[0] == "metric":
            context.metrics.add_metric_to_cache("Told", "count", dimension_names=["Kind"],
                                                metric_type=kind_of_metric())
            context.metrics.get_metric("Told", kind_of_metric()).add_or_update(3, ["loud"])
        elif words[0] == "die":
            import os
            os._exit(1)
        return " ".join(words)


def kind_of_metric():
    from ts.metrics.metric_type_enum import MetricTypes
    return MetricTypes.COUNTER


def text(value):
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
'''
# This model keeps the running sum of a sequence. A 0 does not end the sequence.
COUNTER = '''
class Handler:
    def __init__(self):
        self.sums = {}

    def initialize(self, context):
        pass

    def handle(self, data, context):
        answers = []
        for at, row in enumerate(data):
            word = row.get("body") or row.get("data")
            word = word if isinstance(word, str) else bytes(word).decode()
            name = context.get_sequence_id(at)
            self.sums[name] = self.sums.get(name, 0) + int(word)
            context.set_response_header(at, "ts_request_sequence_id", name)
            answers.append(str(self.sums[name]))
        return answers
'''
BROKEN = '''
class Handler:
    def initialize(self, context):
        raise RuntimeError("cannot load")

    def handle(self, data, context):
        return data
'''
ONE_WORKER = "minWorkers: 1\nmaxWorkers: 1\n"
SEQUENCES = "sequenceBatching: true\nsequenceMaxIdleMSec: 60000\nmaxNumSequence: 6\nbatchSize: 8\nmaxBatchDelay: 1\n"
# name: (version, handler, YAML). Both servers get the same archives.
MODELS = {
    "echo": ("1.0", HANDLER, None),
    "echo2": ("2.0", HANDLER, None),  # another version of "echo"
    "served": ("1.0", HANDLER, ONE_WORKER + "maxBatchDelay: 1\n"),
    "tuned": ("1.0", HANDLER, "batchSize: 3\nmaxBatchDelay: 7\nresponseTimeout: 33\nstartupTimeout: 44\n"),
    "counter": ("1.0", COUNTER, ONE_WORKER + SEQUENCES),
    "broken": ("1.0", BROKEN, None),
}


def write_archive(path, name):
    version, handler, yaml = MODELS[name]
    model = {"modelName": "echo" if name == "echo2" else name, "handler": "handler.py",
             "modelVersion": version}
    if yaml:
        model["configFile"] = "model-config.yaml"
    manifest = {"createdOn": "01/01/2026 00:00:00", "runtime": "python", "model": model,
                "archiverVersion": "0.12.0"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("handler.py", handler)
        if yaml:
            archive.writestr("model-config.yaml", yaml)
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest, indent=2))


_taken = set()


def free_ports(count):
    """Returns a free port below the range from which the system takes the ports of outgoing connections."""
    found = []
    while len(found) < count:
        port = random.randrange(15000, 32000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _taken:
            _taken.add(port)
            found.append(port)
    return found


def by_member(parts):
    """Makes a part of each member of a JSON body, and one of the layout of its text."""
    text = parts["body"]
    try:
        value = json.loads(text)
    except ValueError:
        return parts
    if not isinstance(value, (dict, list)):
        return parts
    del parts["body"]
    usual = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    parts["json layout"] = "two blanks and a newline" if no_floats(text) == no_floats(usual) else text
    add_members(parts, "json ", value)
    return parts


def no_floats(text):
    """Replaces all floats by one, because a float may be printed with more digits than it needs."""
    return re.sub(r"-?\d+\.\d+(e[-+]?\d+)?", "0.0", text)


def add_members(parts, name, value):
    if isinstance(value, dict) and value:
        for key, member in value.items():
            add_members(parts, f"{name}.{key}", member)
    elif isinstance(value, list) and value:
        for at, member in enumerate(value):
            add_members(parts, f"{name}[{at}]", member)
    else:
        parts[name] = json.dumps(value)


class Side:
    """One of the two servers, which runs in a folder of its own."""

    def __init__(self, side, command, folder, settings="", flags=(), variables=None, models=(),
                 archives=()):
        self.side = side
        self.folder = pathlib.Path(folder)
        self.command = command
        self.flags = list(flags)
        self.models = models
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.handler = "handler.py"
        self.process = None
        for name in ("store", "tmp"):
            (self.folder / name).mkdir(parents=True)
        for name in MODELS:
            write_archive(self.folder / "store" / f"{name}.mar", name)
        for path in archives:
            shutil.copy(path, self.folder / "store")
        (self.folder / "store" / "damaged.mar").write_text("no archive")
        text = "".join(f"{each}_address=http://127.0.0.1:{self.ports[each]}\n" for each in PORTS[:3])
        text += "".join(f"{each}_port={self.ports[each]}\n" for each in PORTS[3:])
        text += f"model_store={self.folder / 'store'}\n"
        text += "vmargs=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m\n"
        if side == "ours":  # our workers need no package of TorchServe
            text += f"continuo.python={sys.executable}\n"
        text += settings.replace("{folder}", str(self.folder))
        (self.folder / "config.properties").write_text(text)
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("CONTINUO_", "TS_", "LOG_LOCATION", "METRICS_LOCATION"))}
        self.env.update({"TMPDIR": str(self.folder / "tmp"), "TEMP": str(self.folder / "tmp"),
                         "PYTHONDONTWRITEBYTECODE": "1"})
        self.env.update({key: value.replace("{folder}", str(self.folder))
                         for key, value in (variables or {}).items()})

    def start(self):
        command = [*self.command, "--foreground", "--ts-config",
                   self.folder / "config.properties", *self.flags]
        if self.models:
            command += ["--models", *self.models]
        self.process = common.Process(command, self.folder / "output", self.env, self.folder)
        common.wait_for(lambda: READY in self.process.text or not self.process.running(),
                        f"{self.side}: {READY}", 120)
        if not self.process.running():
            raise RuntimeError(f"{self.side} did not start: {self.process.text[-2000:]}")
        return self

    def stop(self):
        if self.process:
            self.process.stop()
            with contextlib.suppress(OSError):
                self.server_gone()

    def server_gone(self):
        """Kills all processes that run in our folder, because TorchServe's workers are in sessions that Java made."""
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    variables = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                    if f"TMPDIR={self.folder / 'tmp'}".encode() in variables:
                        os.kill(int(entry), 9)

    def http(self, port, method, path, body=None, headers=None, seconds=60):
        """Returns the answer's parts. A connection that ends without an answer is a part, too."""
        text = path.replace("{handler}", self.handler).replace("{store}", str(self.folder / "store"))
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[port],
                                                timeout=seconds * common.FACTOR)
        try:
            if isinstance(body, str):
                body = body.replace("{handler}", self.handler).encode()
            connection.putrequest(method, text, skip_accept_encoding=True)
            sent = {"Content-Length": str(len(body))} if body is not None else {}
            sent.update(headers or {})
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            return {"failure": type(error).__name__}
        finally:
            connection.close()
        parts = {"status": response.status, "reason": response.reason,
                 "body": content.decode(errors="backslashreplace")}
        for name, value in response.getheaders():
            key = f"header {name.lower()}"
            parts[key] = f"{parts[key]}, {value}" if key in parts else value
        parts.pop("header content-length", None)  # it follows from the body
        return by_member(self.plain(parts))

    def plain(self, parts):
        """Replaces the texts that differ between the two sides by nature: folder, ports and handler's name."""
        for part, text in parts.items():
            if isinstance(text, str):
                text = text.replace(str(self.folder), "FOLDER").replace(self.handler, "HANDLER")
                for name, number in self.ports.items():
                    text = re.sub(rf"(?<![\w-]){number}(?!\w)", name.upper(), text)
                parts[part] = text
        return parts


class Pair:
    def __init__(self, name, commands, scratch, comparison, **how):
        self.comparison = comparison
        self.sides = [Side(side, commands[side], pathlib.Path(scratch) / name / side, **how)
                      for side in ("theirs", "ours")]

    def both(self, ask):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(ask, self.sides))

    def start(self):
        try:
            self.both(Side.start)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        self.both(Side.stop)

    def compare(self, case, ask):
        """Compares the parts that `ask(side)` returns. Does nothing if only other cases are wanted."""
        if self.comparison.wants(case):
            took = {}

            def timed(side):
                began = time.monotonic()
                answer = ask(side)
                took[side.side] = time.monotonic() - began
                return answer

            self.comparison.compare(case, *self.both(timed))
            if max(took.values()) > 2 and os.environ.get("CONTINUO_SLOW"):
                common.say(f"slow: {case}: {took}")

    def http(self, case, port, method, path, body=None, headers=None):
        self.compare(case, lambda side: side.http(port, method, path, body, headers))


def install():
    """Returns the commands of both servers."""
    if not shutil.which("java"):
        raise common.Unavailable("there is no Java: install Debian's openjdk-17-jre-headless")
    python = common.python_peer(
        "torchserve",
        [["--no-deps", common.torch_requirement()],
         ["filelock", "fsspec", "jinja2", "mpmath", "networkx", "setuptools<81", "sympy",
          "typing-extensions", "numpy", "psutil", "pyyaml", "packaging", "Pillow", "wheel"],
         ["--no-deps", f"torchserve=={TORCHSERVE}"]],
        "import torch, psutil, yaml, packaging, ts")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    common.say(f"torchserve: TorchServe {TORCHSERVE} with {java.stderr.splitlines()[0]}")
    theirs = [python, python.parent / "torchserve"]
    named = os.environ.get("CONTINUO_TORCHSERVE_PYTHON")
    if named:  # it has more packages, for TorchServe's own handlers
        python = pathlib.Path(named)
        theirs = [python, "-c", "from ts.model_server import start; start()"]
    ours = common.BIN / "torchserve"
    if not ours.exists():
        raise RuntimeError(f"{ours} is not there: run scripts/build.sh, or set CONTINUO_BUILD")
    return {"theirs": theirs, "ours": [ours]}
