#!/usr/bin/env python3
"""Power cuts: what was not synced is lost, and the server starts on the rest.

A trial starts a server whose workers note the content of each file of the store at the moment of each fsync and
fdatasync (power/power_files.c). Clients make steps, and then everything is killed at once. Of each file, the pages of
4 KiB that differ from what was synced last become what they were, all of them or each by chance, as if they had never
reached the disk; a file that was never synced is emptied or keeps a random part. Then a server starts on that and is
asked for each sequence. It fails on

- with `durability: power`: an answered step that is missing;
- with any durability: a value that the sequence never had, a server or worker that ends by a signal, a start that
  hangs. Missing steps are counted, and whether something was reported.

Names of files are taken as durable, and writes through mappings (the ledger beside the journal) as not synced. The
workers run without walls, because they write the copies.

    tests/campaign/power_cut.py --trials 100 [--seed 7] [--durability power process none] [--build build/release]

Prints one line of JSON at the end."""

import argparse
import collections
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

from corrupt import HANDLER, PAGE, ROOT, Server, gone, workers_of, yaml_lines

HERE = pathlib.Path(__file__).resolve().parent


def build_tools(folder):
    source, library, wrapper = HERE / "power/power_files.c", folder / "power_files.so", folder / "worker"
    subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", library, source, "-ldl"], check=True)
    subprocess.run(["cc", "-O1", "-DWRAPPER", "-o", wrapper, source], check=True)
    return library, wrapper


def pack(build, folder, durability):
    source = folder / "source"
    source.mkdir()
    (source / "handler.lua").write_text(HANDLER)
    settings = {"sequenceBatching": "true", "minWorkers": 2, "maxWorkers": 2, "batchSize": 4,
                "state": {"durability": durability, "journalMaxBytes": 1 << 18}}
    (source / "model-config.yaml").write_text("".join(yaml_lines(settings)))
    subprocess.run([str(build / "bin/continuo-archiver"), "--model-name", "m", "--version", "1.0", "--handler",
                    str(source / "handler.lua"), "--config-file", str(source / "model-config.yaml"),
                    "--export-path", str(folder)], check=True, stdout=subprocess.DEVNULL)


class Client(threading.Thread):
    """Makes steps of its own sequences until the server is gone, and keeps all answers."""

    def __init__(self, port, number, seed):
        super().__init__(daemon=True)
        self.port, self.number = port, number
        self.rng = random.Random(f"{seed}-{number}")
        self.answers = collections.defaultdict(lambda: ["0 0"])
        self.wanted = {}  # the step that got no answer: done or not
        self.n = 0

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while True:
            sequence = f"c{self.number}q{self.rng.randrange(6)}"
            large = self.rng.random() < 0.2
            body = f"={self.rng.randrange(1, 9000)}" if large else f"+{self.rng.randrange(1, 1000)}"
            total, steps = map(int, self.answers[sequence][-1].split())
            self.wanted = {sequence: f"{total + (0 if large else int(body[1:]))} {steps + 1}"}
            try:
                connection.request("POST", "/predictions/m", body, {"ts_request_sequence_id": sequence})
                answer = connection.getresponse()
                text = answer.read().decode()
            except (OSError, http.client.HTTPException):
                return
            if answer.status == 200:
                self.answers[sequence].append(text)
                self.wanted = {}
                self.n += 1


def cut_power(rng, state, kept, counts):
    """Drops what was not synced, by one of three fates for the whole disk."""
    fate = rng.choice(["all lost", "by chance", "by chance", "nothing lost"])
    share = rng.random()
    for path in sorted(each for each in state.rglob("*") if each.is_file() and not each.is_symlink()):
        if path.name in ("lock.mdb", "LOCK") or "models" not in path.parts or fate == "nothing lost":
            continue
        now = path.read_bytes()
        copy = kept / str(path.stat().st_ino)
        synced = copy.read_bytes() if copy.exists() else b""
        if not copy.exists() and path.suffix not in (".mdb",) and path.stat().st_size < 8192:
            continue  # small files of the server, which it writes and syncs itself, unseen by the workers
        after = bytearray(max(len(now), len(synced)))
        for at in range(0, len(after), PAGE):
            old, new = synced[at:at + PAGE].ljust(PAGE, b"\0"), now[at:at + PAGE].ljust(PAGE, b"\0")
            lose = old != new and (fate == "all lost" or rng.random() < share)
            counts["pages lost"] += lose
            after[at:at + PAGE] = old if lose else new
        size = len(now) if fate == "by chance" or not synced else max(len(synced), 0)
        path.write_bytes(bytes(after[:size]))
    counts[fate] += 1
    return fate


def trial(args, tools, base, number, durability, counts):
    rng = random.Random(f"{args.seed}-{number}-{durability}")
    folder, kept = base / f"t{number}-{durability}", base / f"kept{number}-{durability}"
    folder.mkdir()
    kept.mkdir()
    pack(args.build, folder, durability)
    env = {"CONTINUO_TEST_POWER_DIR": str(folder / "state"), "CONTINUO_TEST_POWER_KEPT": str(kept),
           "CONTINUO_TEST_POWER_LIBRARY": str(tools[0]),
           "CONTINUO_TEST_POWER_WORKER": str(args.build / "bin/continuo-worker")}
    server = Server(args.build, folder, ["--worker", str(tools[1]), "--worker-walls", "off"], env)
    assert server.ports, server.lines
    clients = [Client(server.ports[0], i, f"{args.seed}-{number}") for i in range(4)]
    for each in clients:
        each.start()
    until = rng.randrange(20, 600)
    deadline = time.monotonic() + 60
    while sum(each.n for each in clients) < until and time.monotonic() < deadline:
        time.sleep(0.002)
    pids = workers_of(server.process.pid)
    for pid in [server.process.pid, *pids]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    server.end(signal.SIGKILL)
    gone(server)
    for each in clients:
        each.join(60)
    fate = cut_power(rng, folder / "state", kept, counts)
    faults = look(args, folder, clients, durability, counts)
    counts["steps"] += sum(each.n for each in clients)
    if faults:
        print(f"trial {number} {durability} ({fate}): {faults[:4]}", flush=True)
        if args.keep:
            return faults
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(kept, ignore_errors=True)
    return faults


def look(args, folder, clients, durability, counts):
    """Starts a server on what is left and asks each sequence."""
    after, faults = Server(args.build, folder), []
    if after.hung or not after.ports:
        if after.process.poll() is not None and after.process.returncode >= 0 and durability != "power":
            counts["did not start, with a reason"] += 1
        else:
            faults.append(("did not start", after.process.poll(), after.lines[-3:]))
        after.end(signal.SIGKILL)
        return faults
    lost = 0
    for client in clients:
        for sequence, answers in client.answers.items():
            status, text, error = after.step(sequence, "?")
            had = set(answers) | set(client.wanted.values())
            is_last = text in (answers[-1], client.wanted.get(sequence))
            if status == 200 and text not in had:
                faults.append(("a value it never had", sequence, text, answers[-2:]))
            elif durability == "power" and not (status == 200 and is_last):
                faults.append(("an answered step is missing", sequence, status, error, text, answers[-2:]))
            elif not (status == 200 and is_last):
                lost += 1
                counts[f"lost: {error or 'older state'}"] += 1
    code = after.end(signal.SIGTERM)
    gone(after)
    said = [line for line in after.lines if re.search(r"cause=\"[^\"]*signal", line)]
    if code != 0 or said:
        faults.append(("ended", code, said[-2:]))
    counts["sequences with lost steps"] += lost
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="for each durability")
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--durability", nargs="*", default=["power", "process", "none"])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--keep", action="store_true", help="keep the folders of failed trials")
    args = parser.parse_args()
    args.build = args.build.resolve()
    print(f"seed {args.seed}", flush=True)
    base, failed, began = pathlib.Path(tempfile.mkdtemp(prefix="continuo-power-")), 0, time.monotonic()
    tools, result = build_tools(base), {}
    for durability in args.durability:
        counts = collections.Counter()
        for number in range(args.trials):
            faults = trial(args, tools, base, number, durability, counts)
            counts["trials failed"] += bool(faults)
            failed += bool(faults)
        result[durability] = dict(counts)
    print(json.dumps({"seed": args.seed, "trials": args.trials, "seconds": round(time.monotonic() - began),
                      "failed": failed, **result}))
    if not (failed and args.keep):
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
