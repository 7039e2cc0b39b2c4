#!/usr/bin/env python3
"""Random damage to the state files of a stopped or killed server: is every loss told?

A trial copies a state folder whose sequences have known answers, damages one file of it, starts the server on
it and asks each sequence. It fails on

- a silent loss: an answer with status 200 that misses acknowledged steps, and nothing reported anywhere (no
  error event of the server's, /ping healthy);
- a wrong value: one that the sequence never had;
- a crash: the server or a worker ended by a signal; a hang: no answer within the limit.

    tests/campaign/corrupt.py --trials 2000 --seed 7 [--build build/release] [--jobs 2] [--keep]
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
READY = re.compile(r"Model server started\. inference=\S+:(\d+) management=\S+:(\d+) metrics=\S+:(\d+) ")
HANDLER = """
local M = { api = 1 }
function M.init() return { sum = 0, steps = 0, padding = "" } end
function M.step(state, req)
    local c, d = req.body:match("^([+?=])(%d*)$")
    local n = math.tointeger(tonumber(d))
    if c == "+" then state.sum = state.sum + n; state.steps = state.steps + 1
    elseif c == "=" then state.padding = string.rep("x", n); state.steps = state.steps + 1 end
    return { text = ("%d %d"):format(state.sum, state.steps) }
end
return M
"""
# name: number of sequences, steps, bytes of padding, settings of the model
CONFIGS = {
    "small": (8, 60, 0, {}),
    "many": (300, 900, 0, {"state": {"journalMaxBytes": 1 << 20}}),
    "drained": (120, 1600, 4000, {"state": {"journalMaxBytes": 1 << 20}}),
    "large": (12, 120, 60000, {"state": {"journalMaxBytes": 1 << 20}}),
    "power": (30, 200, 500, {"state": {"durability": "power"}}),
    "two workers": (60, 600, 3000, {"minWorkers": 2, "maxWorkers": 2, "state": {"journalMaxBytes": 1 << 20}}),
}
WAIT_S = 60


class Server:
    def __init__(self, build, folder, flags=(), more_env=None):
        self.folder = folder
        self.lines = []
        self.ports = None
        ready = threading.Event()
        env = {key: value for key, value in os.environ.items() if not key.startswith("CONTINUO_")}
        env.update(more_env or {})
        self.process = subprocess.Popen(
            [str(build / "bin/continuo"), "--state-dir", str(folder / "state"), "--model-store", str(folder),
             "--inference-address", "http://127.0.0.1:0", "--management-address", "http://127.0.0.1:0",
             "--metrics-address", "http://127.0.0.1:0", "--grpc-inference-address", "none",
             "--grpc-management-address", "none", "--models", "m=m.mar", "--loops", "1", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=env, cwd=folder,
            start_new_session=True)

        def read():
            for line in self.process.stdout:
                self.lines.append(line.rstrip("\n"))
                if found := READY.search(line):
                    self.ports = [int(port) for port in found.groups()]
                    ready.set()
            ready.set()
        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        self.hung = not ready.wait(WAIT_S)
        self._connection = None

    def ask(self, method, path, body=None, headers=None):
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=WAIT_S)
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            return answer.status, answer.read().decode(errors="replace"), answer.headers.get("Continuo-Error")
        except OSError:
            self._connection = None
            raise

    def step(self, sequence, body):
        return self.ask("POST", "/predictions/m", body, {"ts_request_sequence_id": sequence})

    def end(self, how):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            code = None
        if code is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(10)
        return code


def workers_of(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
                if int(fields[3]) == pid and fields[0] != "Z":
                    found.append(int(entry))
            except (OSError, IndexError):
                pass
    return found


def gone(server):
    deadline = time.monotonic() + WAIT_S
    while workers_of(server.process.pid) and time.monotonic() < deadline:
        time.sleep(0.005)


def yaml_lines(keys, indent=""):
    for key, value in keys.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:\n"
            yield from yaml_lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value}\n"


def prepare(build, base, name, end, rng):
    """Makes a folder with a model and the state of sequences whose every answer is known, and an older copy of it."""
    sequences, steps, padding, keys = CONFIGS[name]
    folder = base / f"{name.replace(' ', '-')}-{end}"
    folder.mkdir()
    source = folder / "source"
    source.mkdir()
    (source / "handler.lua").write_text(HANDLER)
    settings = {"sequenceBatching": "true", "minWorkers": 1, "maxWorkers": 1, "batchSize": 4}
    (source / "model-config.yaml").write_text("".join(yaml_lines({**settings, **keys})))
    subprocess.run([str(build / "bin/continuo-archiver"), "--model-name", "m", "--version", "1.0", "--handler",
                    str(source / "handler.lua"), "--config-file", str(source / "model-config.yaml"),
                    "--export-path", str(folder)], check=True, stdout=subprocess.DEVNULL)
    truth = {}
    for part in (0, 1):
        server = Server(build, folder)
        for i in range(steps // 2):
            sequence = f"q{rng.randrange(sequences)}" if i >= sequences else f"q{i}"
            body = f"={rng.randrange(1, 2 * padding)}" if padding and i % 3 == 0 else f"+{rng.randrange(1, 1000)}"
            status, text, _ = server.step(sequence, body)
            assert status == 200, (status, text)
            truth.setdefault(sequence, ["0 0"]).append(text)
        code = server.end(signal.SIGTERM if part == 0 or end == "stop" else signal.SIGKILL)
        gone(server)
        assert code in (0, -signal.SIGKILL), (code, server.lines[-5:])
        if part == 0:
            shutil.copytree(folder / "state", folder / "older")
    return folder, truth


PAGE = 4096


def used_pages(data):
    return [at for at in range(0, len(data) - PAGE + 1, PAGE) if any(data[at:at + PAGE])]


def damage_data(rng, path):
    """Damages the structure of LMDB's file: keys, headers of pages, page numbers, meta pages, whole pages."""
    data = bytearray(path.read_bytes())
    pages = used_pages(data)
    how = rng.choice(["key", "key", "page header", "page number", "meta", "meta", "swap pages", "copy page", "zero page",
                      "zero pages", "random page", "cut"])
    at, other = rng.choice(pages), rng.choice(pages)
    if how == "key":
        keys = [match.start() + 2 for match in re.finditer(rb"\x01q\d+", data)]
        where = rng.choice(keys) if keys else at + rng.randrange(PAGE)
        data[where] ^= 1 << rng.randrange(8)
    elif how == "page header":
        data[at + rng.randrange(40)] ^= 1 << rng.randrange(8)
    elif how == "page number":  # of a branch's children, of the tree's root, of free pages: all are small numbers
        places = [i for i in range(at, at + PAGE - 8, 2) if 0 < int.from_bytes(data[i:i + 4], "little") < len(data) // PAGE]
        where = rng.choice(places) if places else at
        data[where:where + 2] = (rng.choice(pages) // PAGE).to_bytes(2, "little")
    elif how == "meta":
        where = rng.randrange(2) * PAGE
        if rng.randrange(3):
            data[where + rng.randrange(152)] ^= 1 << rng.randrange(8)
        else:
            data[where:where + PAGE] = bytes(PAGE) if rng.randrange(2) else rng.randbytes(PAGE)
    elif how == "swap pages":
        data[at:at + PAGE], data[other:other + PAGE] = data[other:other + PAGE], data[at:at + PAGE]
    elif how == "copy page":
        data[at:at + PAGE] = data[other:other + PAGE]
    elif how == "zero pages":
        for page in rng.sample(pages, min(len(pages), rng.randrange(2, 9))):
            data[page:page + PAGE] = bytes(PAGE)
    elif how in ("zero page", "random page"):
        data[at:at + PAGE] = bytes(PAGE) if how == "zero page" else rng.randbytes(PAGE)
    else:
        data = data[:at + (rng.randrange(PAGE) if rng.randrange(2) else 0)]
    path.write_bytes(data)
    return f"{path.name}: {how}"


def damage(rng, folder, older):
    """Damages one file. Returns a description of what was done."""
    store = folder / "state/models/m/1.0"
    files = sorted(path for path in store.iterdir() if path.name not in ("lock.mdb", "CHECKED"))
    if rng.randrange(2):
        return damage_data(rng, store / "data.mdb")
    path = rng.choice([p for p in files if p.stat().st_size > 0])
    data = bytearray(path.read_bytes())
    used = max(len(data.rstrip(b"\0")), 64)
    how = rng.choice(["bit", "bits", "zero page", "random page", "cut", "empty", "delete", "swap", "older", "head"])
    if how == "bit":
        data[rng.randrange(used)] ^= 1 << rng.randrange(8)
    elif how == "bits":
        for _ in range(rng.randrange(2, 40)):
            data[rng.randrange(used)] ^= 1 << rng.randrange(8)
    elif how in ("zero page", "random page"):
        at = rng.randrange(0, used, 4096)
        length = min(4096, len(data) - at)
        data[at:at + length] = bytes(length) if how == "zero page" else rng.randbytes(length)
    elif how == "cut":
        data = data[:rng.randrange(used)]
    elif how == "empty":
        data = bytearray()
    elif how == "head":
        data[rng.randrange(min(64, len(data)))] ^= 1 << rng.randrange(8)
    if how == "delete":
        path.unlink()
        return f"{path.name}: deleted"
    if how == "swap":
        other = rng.choice([p for p in files if p != path])
        mine, its = path.read_bytes(), other.read_bytes()
        path.write_bytes(its)
        other.write_bytes(mine)
        return f"{path.name}: exchanged with {other.name}"
    if how == "older":
        source = older / "models/m/1.0" / path.name
        if source.exists():
            shutil.copy(source, path)
        return f"{path.name}: replaced by an older copy"
    path.write_bytes(data)
    return f"{path.name}: {how}"


def trial(build, base, number, seed, prepared, keep):
    rng = random.Random(f"{seed}-{number}")
    (config, end), (source, truth) = rng.choice(sorted(prepared.items(), key=lambda item: item[0]))
    folder = base / f"trial-{number}"
    folder.mkdir()
    shutil.copytree(source / "state", folder / "state")
    os.link(source / "m.mar", folder / "m.mar")
    what = damage(rng, folder, source / "older")
    verdict = collections.Counter()
    notes = []
    server = Server(build, folder)
    if server.hung:
        verdict["hung"] += 1
    elif server.ports is None:
        code = server.process.wait(WAIT_S)
        verdict["refused"] += 1
        if code < 0:
            verdict["crashed"] += 1
            notes.append(f"server ended with {code}")
    else:
        answers(server, truth, verdict, notes)
        try:
            if server.ask("GET", "/ping")[0] != 200:
                verdict["told"] += 1
        except OSError:
            verdict["crashed"] += 1
    code = server.end(signal.SIGTERM)
    gone(server)
    if any(re.search(r"event=(store_damaged|model_failed|store_set_aside)", line) for line in server.lines):
        verdict["told"] += 1
    if any("event=worker_ended" in line and "by signal" in line for line in server.lines):
        verdict["worker crashed"] += 1
    if code is None:
        verdict["hung"] += 1
    elif code < 0 and server.ports:
        verdict["crashed"] += 1
    if verdict["older answers"] and not verdict["told"]:
        verdict["SILENT LOSS"] += 1
    bad = [word for word in ("SILENT LOSS", "wrong values", "crashed", "worker crashed", "hung") if verdict[word]]
    if bad and keep:
        (folder / "log").write_text("\n".join(server.lines))
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return number, config, end, what, verdict, bad, notes


def answers(server, truth, verdict, notes):
    for sequence, history in truth.items():
        try:
            status, text, word = server.step(sequence, "?")
        except OSError as error:
            verdict["hung" if "timed out" in str(error) else "broken"] += 1
            notes.append(f"{sequence}: {error}")
            return
        if status == 200 and text == history[-1]:
            verdict["right"] += 1
        elif status == 200 and text in history:
            verdict["older answers"] += 1
            if len(notes) < 5:
                notes.append(f"{sequence}: {text} instead of {history[-1]}")
        elif status == 200:
            verdict["wrong values"] += 1
            notes.append(f"{sequence}: {text}, which it never was")
        else:
            verdict[f"{status} {word}"] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, to repeat one")
    parser.add_argument("--verbose", action="store_true", help="also show trials whose losses were told")
    parser.add_argument("--keep", action="store_true", help="keep the folders of failed trials")
    args = parser.parse_args()
    build = args.build.resolve()
    base = pathlib.Path(tempfile.mkdtemp(prefix="continuo-corrupt-"))
    totals, failed, by_file = collections.Counter(), 0, collections.Counter()
    try:
        rng = random.Random(f"{args.seed}-prepare")
        prepared = {(name, end): prepare(build, base, name, end, rng) for name in CONFIGS for end in ("stop", "kill")}
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            jobs = [pool.submit(trial, build, base, number, args.seed, prepared, args.keep)
                    for number in range(args.first, args.first + args.trials)]
            for job in concurrent.futures.as_completed(jobs):
                number, config, end, what, verdict, bad, notes = job.result()
                totals.update(verdict)
                totals["trials"] += 1
                by_file[what.partition(":")[0]] += 1
                failed += bool(bad)
                if bad or (verdict["older answers"] and args.verbose):
                    print(f"trial {number} ({config}, {end}; {what}): {', '.join(bad)}: {dict(verdict)} {notes}",
                          flush=True)
    finally:
        if not (args.keep and failed):
            shutil.rmtree(base, ignore_errors=True)
    print(json.dumps({"failed": failed, **dict(sorted(totals.items())), "files": dict(by_file)}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
