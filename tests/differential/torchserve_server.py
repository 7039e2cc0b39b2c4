"""Compares what surrounds the calls: files, snapshots, keys, metrics, a worker's life and the launcher."""

import http.client
import json
import os
import re
import signal

import common
import torchserve_grpc as grpc_cases

METRICS_YAML = """
dimensions:
  - &kind "Kind"
ts_metrics:
  counter:
    - {name: Requests2XX, unit: Count, dimensions: [Level, Hostname]}
  gauge:
    - {name: QueueTime, unit: Milliseconds, dimensions: [Level, Hostname]}
model_metrics:
  counter:
    - {name: Told, unit: Count, dimensions: [*kind]}
  gauge:
    - {name: HandlerTime, unit: ms, dimensions: [ModelName, Level]}
"""
# Scripts look for these texts in ts_log.log when a worker dies and comes back.
LIFE = ("Worker disconnected.", "Auto recovery start timestamp: ", "Retry worker: ",
        "Auto recovery succeeded, reset recoveryStartTS")


def files(side):
    """Returns the paths of log files, snapshots and the key file. Times in names are made equal."""
    found = {}
    for pattern in ("**/*.log", "**/*.cfg", "key_file.json"):
        for path in side.folder.glob(pattern):
            place = re.sub(r"\d{17}", "TIME", str(path.relative_to(side.folder)))
            if not place.startswith(("tmp/", "state", "continuo-state")):
                found[f"file {place}"] = "there"
    return found


def file_cases(pair, name):
    """Makes one request first, so that every log has a line."""
    for side in pair.sides:
        side.http("inference", "POST", "/predictions/served", "hello", {"Content-Type": "text/plain"})
    pair.compare(f"files {name}", files)


# --- the model API switched off, and keys


def closed_cases(pair):
    """Compares a server without enable_model_api and with keys, which is TorchServe's default."""
    keys = {side.side: json.loads((side.folder / "key_file.json").read_text()) for side in pair.sides}

    def ask(case, port, kind, method, path, body=None):
        def one(side):
            key = keys[side.side].get(kind, {}).get("key", "wrong")
            headers = {} if kind == "none" else {"Authorization": f"Bearer {key}"}
            return side.http(port, method, path, body, headers)
        pair.compare(f"keys {case}", one)

    for kind in ("none", "wrong", "inference", "management", "API"):
        ask(f"{kind} for a prediction", "inference", kind, "POST", "/predictions/served", "hello")
        ask(f"{kind} for ping", "inference", kind, "GET", "/ping")
        ask(f"{kind} for the description", "inference", kind, "GET", "/predictions/none")
        ask(f"{kind} for the list", "management", kind, "GET", "/models")
        ask(f"{kind} for registering", "management", kind, "POST", "/models?url=echo.mar")
        ask(f"{kind} for unregistering", "management", kind, "DELETE", "/models/served")
        ask(f"{kind} for a token", "management", kind, "GET", "/token?type=nothing")
        ask(f"{kind} for metrics", "metrics", kind, "HEAD", "/metrics")
    for method, path in (("POST", "/models"), ("DELETE", "/models/none"), ("DELETE", "/models/served/1.0"),
                         ("PUT", "/models/none"), ("PUT", "/models/served/7/set-default")):
        ask(f"model API off: {method} {path}", "management", "management", method, path)
    ask("a token without type", "management", "API", "GET", "/token")
    ask("a new key", "management", "API", "GET", "/token?type=inference")
    pair.compare("keys the old key has gone", lambda side: side.http(
        "inference", "GET", "/ping", None,
        {"Authorization": f"Bearer {keys[side.side]['inference']['key']}"}))


def closed_grpc_cases(pair):
    calls = grpc_cases.Calls(pair)
    calls.management("without key", "ListModels", limit=5)
    calls.management("without key or API", "RegisterModel", url="echo.mar")
    calls.predict("without key", "served")


def off_cases(pair):
    """Compares a server whose model API is off and that has no keys."""
    for method, path in (("POST", "/models?url=echo.mar"), ("POST", "/models"), ("DELETE", "/models/none"),
                         ("DELETE", "/models/served"), ("PUT", "/models/served/1.0/set-default"),
                         ("GET", "/models"), ("PUT", "/models/none?min_worker=1")):
        pair.http(f"off {method} {path}", "management", method, path)
    calls = grpc_cases.Calls(pair)
    calls.management("off", "RegisterModel", url="echo.mar")
    calls.management("off", "UnregisterModel", model_name="served")
    calls.management("off", "ListModels", limit=5)


# --- metrics


def page(side):
    """Returns TorchServe's families of the metrics page: type, help and labels."""
    connection = http.client.HTTPConnection("127.0.0.1", side.ports["metrics"], timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    parts = {}
    for line in text.splitlines():
        found = re.match(r"# (HELP|TYPE) (\S+) (.*)", line)
        sample = re.match(r"([a-zA-Z_:]\w*)\{([^}]*)\} ", line)
        if found and not found.group(2).startswith("continuo_"):
            parts[f"metric {found.group(2)} {found.group(1).lower()}"] = found.group(3)
        elif sample and not sample.group(1).startswith("continuo_"):
            names = re.findall(r'(\w+)="', sample.group(2))
            parts[f"metric {sample.group(1)} labels"] = " ".join(names)
    return parts


def metrics_cases(pair, name, awaited=None, bodies=("hello", "!metric"), kind="text/plain"):
    plain = {"Content-Type": kind}
    key = {}
    for side in pair.sides:
        file = side.folder / "key_file.json"
        if file.exists():
            key[side.side] = json.loads(file.read_text())["inference"]["key"]
        for body in bodies:
            headers = {**plain, "Authorization": f"Bearer {key.get(side.side, '')}"}
            side.http("inference", "POST", "/predictions/served", body, headers)
        if awaited:
            common.wait_for(lambda side=side: f"metric {awaited} labels" in page(side), awaited, 30)
    pair.compare(f"metrics {name}", page)


# --- snapshots


def snapshots(side):
    return sorted((side.folder / "logs" / "config").glob("*.cfg"))


def snapshot_kinds(side):
    kinds = [path.name.partition("-")[2] for path in snapshots(side)]
    return {"count": len(kinds), "last": kinds[-1] if kinds else None}


def snapshot_content(side):
    parts = {}
    for line in snapshots(side)[-1].read_text().splitlines():
        name, equals, value = line.partition("=")
        if name == "model_snapshot":
            models = json.loads(re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value))
            for model, versions in models["models"].items():
                for version, settings in versions.items():
                    for key, setting in settings.items():
                        parts[f"snapshot {model} {version} {key}"] = setting
            parts["snapshot members"] = " ".join(sorted(models))
            parts["snapshot count"] = models["modelCount"]
        elif equals and not name.startswith("#"):
            parts[f"property {name}"] = "there"
    return parts


def snapshot_cases(pair):
    """Compares snapshots. They are written before the ready line, and before the answer to a call that changes the
    models."""
    pair.compare("snapshot before the ready line", snapshot_kinds)
    pair.compare("snapshot content at start", snapshot_content)

    def after(case, method, path):
        def ask(side):
            side.http("management", method, path)
            return snapshot_kinds(side)
        pair.compare(f"snapshot after {case}", ask)

    after("registering", "POST", "/models?url=echo.mar&initial_workers=0")
    after("a second version", "POST", "/models?url=echo2.mar&initial_workers=0")
    after("set-default", "PUT", "/models/echo/2.0/set-default")
    after("scaling", "PUT", "/models/echo?min_worker=0&synchronous=true")
    pair.compare("snapshot content", snapshot_content)
    after("unregistering", "DELETE", "/models/echo/1.0")
    after("a refusal", "DELETE", "/models/none")


# --- a worker's life, and the launcher


def worker_of(side):
    parts = side.http("management", "GET", "/models/served")
    return parts.get("json [0].workers[0].status"), int(parts.get("json [0].workers[0].pid", "0"))


def log_of(side):
    return (side.folder / "logs" / "ts_log.log").read_text(errors="replace")


def life_cases(pair):
    """Kills a worker. The server says what becomes of it, and soon has another one."""
    def killed(side):
        _, pid = worker_of(side)
        os.kill(pid, signal.SIGKILL)
        common.wait_for(lambda: worker_of(side)[0] == '"READY"' and worker_of(side)[1] != pid,
                        "another worker", 60)
        try:
            common.wait_for(lambda: LIFE[3] in log_of(side), LIFE[3], 5)
        except TimeoutError:
            pass  # the comparison will report it
        log = log_of(side)
        return {f"log says {word}": "yes" if word in log else "no" for word in LIFE}

    pair.compare("worker killed", killed)


def launched(side):
    """Compares what a parent process sees that waits for the launcher, and then for its line in the file."""
    command = [*side.command, "--start", "--ts-config", side.folder / "config.properties", *side.flags]
    process = common.Process(command, side.folder / "launched", side.env, side.folder)
    try:
        status = process.popen.wait(60 * common.FACTOR)
        common.wait_for(lambda: "Model server started." in process.text, "the ready line", 60)
        return {"status": status, "ready": "seen"}
    finally:
        stop = common.Process([*side.command, "--stop"], side.folder / "stopped", side.env, side.folder)
        stop.popen.wait(60 * common.FACTOR)
        side.server_gone()


def refused(side):
    """Compares a start that fails: the parent sees the launcher end, and no line."""
    command = [*side.command, "--start", "--model-store", side.folder / "nowhere"]
    process = common.Process(command, side.folder / "refused", side.env, side.folder)
    status = process.popen.wait(60 * common.FACTOR)
    return {"status": status, "said": process.text.replace(str(side.folder), "FOLDER").strip()}


def launcher_cases(pair):
    pair.compare("launcher of a start that fails", refused)
    pair.compare("launcher and its ready line", launched)
