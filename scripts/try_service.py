#!/usr/bin/env python3
"""The part of scripts/try_service.sh that runs in the virtual machine, as root, beside the service of the package.

    try_service.py prepare    packs the models and writes the service's configuration
    try_service.py service    tries the service; prints "try: all is well" at the end
    try_service.py steps      makes steps without end, and prints "done SUM" for each answer
    try_service.py look       prints "found SUM", the sum that the store has

Python's own library only."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

MODELS = pathlib.Path("/var/lib/continuo/models")
GROUP = pathlib.Path("/sys/fs/cgroup/system.slice/continuo.service")
MEMORY, CPU_PERCENT, PROCESSES = 150 << 20, 50, 24
CONFIG = f"""model-store: {MODELS}
state-dir: /var/lib/continuo/state
models: all
worker-memory: {MEMORY}
worker-cpu: {CPU_PERCENT}
worker-processes: {PROCESSES}
"""
HOG = '''
import os
import time


def init(req):
    return {}


def grow():
    all = []
    while True:
        all.append(bytearray(b"x") * (8 << 20))


def begin():
    """Starts processes until it may start no more. They end with it."""
    begun = []
    try:
        while len(begun) < 1000:
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            begun.append(pid)
    except OSError:
        pass
    for pid in begun:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return len(begun)


def burn():
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() - began < 3:
        pass
    return round((time.process_time() - used) / 3 * 100)


def leave():
    """Leaves a process in a session of its own."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(3600)
        os._exit(0)
    return pid


def pid():
    return os.getpid()


def step(state, req):
    return str(globals()[req.text]())
'''


def sh(*words, check=True):
    return subprocess.run(words, check=check, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


def prepare():
    work = pathlib.Path("/mnt")
    (work / "hog.py").write_text(HOG, encoding="utf-8")
    (work / "power.yaml").write_text("sequenceBatching: true\nminWorkers: 1\nmaxWorkers: 1\nstate: {durability: power}\n", encoding="utf-8")
    (work / "plain.yaml").write_text("sequenceBatching: true\nminWorkers: 1\nmaxWorkers: 1\n", encoding="utf-8")
    store = work / "models"
    store.mkdir(exist_ok=True)
    for name, handler, config in (("counter", "handler.lua", "power.yaml"), ("hog", "hog.py", "plain.yaml")):
        print(sh("continuo-archiver", "--model-name", name, "--version", "1.0", "--handler", str(work / handler),
                 "--config-file", str(work / config), "--export-path", str(store), "--force"))
    # The service's user exists only while it runs, so systemd makes its folder when it starts; it owns what is there.
    private = pathlib.Path("/var/lib/private/continuo/models")
    private.mkdir(parents=True, exist_ok=True)
    private.parent.parent.chmod(0o700)
    for archive in store.iterdir():
        (private / archive.name).write_bytes(archive.read_bytes())
    pathlib.Path("/etc/continuo/continuo.yaml").write_text(CONFIG, encoding="utf-8")


def say(text):
    print(f"try: {text}", flush=True)


def must(good, what, found=""):
    if not good:
        print(sh("journalctl", "-u", "continuo", "-n", "60", "--no-pager", check=False))
        say(f"WRONG: {what}: {found}")
        sys.exit(1)
    say(what)


def until(look, what, seconds=300):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    must(False, f"{what} within {seconds} s")


def http(path, port=8080, data=None, headers=None):
    """Returns (status, text)."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def step(model, body, sequence="s"):
    return http(f"/predictions/{model}", data=body.encode(), headers={"ts-request-sequence-id": sequence})


def describe(model):
    return json.loads(http(f"/models/{model}", 8081)[1])[0]


def ready(model):
    status, text = http(f"/models/{model}", 8081)
    workers = json.loads(text)[0]["workers"] if status == 200 else []
    return any(worker["status"] == "READY" for worker in workers)


def main_pid():
    return int(sh("systemctl", "show", "-p", "MainPID", "--value", "continuo"))


def up():
    for model in ("counter", "hog"):
        until(lambda model=model: ready(model), f"a ready worker of {model}")


def try_start():
    up()
    pid = main_pid()
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    uid = int(status.split("Uid:\t")[1].split("\t")[0])
    say(f"{sh('uname', '-sr').strip()}, {sh('systemctl', '--version').splitlines()[0]}")
    must(61184 <= uid <= 65519, f"the service runs as a user that systemd has made up ({uid})")
    for model in ("counter", "hog"):
        for worker in describe(model)["workers"]:
            must(not worker.get("limitsLacking"), f"all limits of a worker of {model} hold", worker)
            say(f"its walls: {' '.join(worker['walls'])}; lacking: {worker.get('wallsLacking') or 'none'}")
    said = sh("continuo-ctl", "doctor", check=False)
    must("model" in said and "limit" not in said.lower(), "continuo-ctl doctor has nothing to say about limits", said)


def groups():
    return sorted(each.name for each in GROUP.iterdir() if each.is_dir())


def try_groups():
    must(groups() and groups()[0] == "server", "the server is in a control group of its own", groups())
    workers = [each for each in groups() if each.startswith("worker-")]
    must(len(workers) == 2, "each worker has a control group", groups())
    for name in workers:
        got = {file: (GROUP / name / file).read_text(encoding="ascii").strip() for file in ("memory.max", "cpu.max", "pids.max")}
        must(got == {"memory.max": str(MEMORY), "cpu.max": f"{CPU_PERCENT * 1000} 100000", "pids.max": str(PROCESSES)},
             f"the limits of a worker are those of its group: {got}", got)


def try_memory():
    counted = step("counter", "1", "beside")[1]
    status, text = step("hog", "grow", "m")
    must(status >= 500, f"a worker that takes too much memory is killed: {status} {json.loads(text).get('type')}", text)
    must(step("counter", "1", "beside") == (200, str(int(counted) + 1)), "the other model goes on")
    until(lambda: ready("hog"), "a new worker")
    last = describe("hog")["workers"][0].get("lastExit")
    must(last and str(MEMORY) in last and "--worker-memory" in last, f"the description of the model says why: {last}", last)
    until(lambda: len(groups()) == 3, f"the control group of the dead worker to go: {groups()}")


def try_processes():
    status, text = step("hog", "begin", "p")
    must(status == 200 and 0 < int(text) < PROCESSES, f"a worker can start {text} processes where {PROCESSES} are allowed", (status, text))


def try_cpu():
    status, text = step("hog", "burn", "c")
    must(status == 200 and int(text) <= CPU_PERCENT * 1.2, f"a worker that spins gets {text} % of a core where {CPU_PERCENT} are allowed", (status, text))


def try_left_behind():
    left = int(step("hog", "leave", "l")[1])
    worker = int(step("hog", "pid", "l")[1])
    must(pathlib.Path(f"/proc/{left}").exists(), "a handler leaves a process in a session of its own")
    os.kill(worker, signal.SIGKILL)
    until(lambda: not pathlib.Path(f"/proc/{left}").exists(), "the end of the process that the dead worker has left")
    say("what a worker has left ends with it")
    until(lambda: ready("hog"), "a new worker")


def try_kill():
    total = int(step("counter", "5")[1])
    pid = main_pid()
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    until(lambda: main_pid() not in (0, pid) and ready("counter"), "systemd to start the service again")
    say(f"after kill -9 of the server, systemd has it ready again after {time.monotonic() - began:.2f} s")
    must(step("counter", "2") == (200, str(total + 2)), "the sequence goes on where it was")


def try_restart():
    total = int(step("counter", "5")[1])
    began = time.monotonic()
    sh("systemctl", "stop", "continuo")
    ended = sh("systemctl", "show", "-p", "Result,ExecMainStatus", "continuo").split()
    must(sorted(ended) == ["ExecMainStatus=0", "Result=success"], "the server has ended with 0", ended)
    sh("systemctl", "start", "continuo")
    up()
    say(f"systemctl stop and start, until both models are ready: {time.monotonic() - began:.2f} s")
    must(step("counter", "2") == (200, str(total + 2)), "the sequence goes on where it was")


def try_service():
    for trial in (try_start, try_groups, try_processes, try_cpu, try_memory, try_left_behind, try_kill, try_restart):
        trial()
    say("all is well")


def steps():
    up()
    while True:
        status, text = step("counter", "1", "power")
        if status == 200:
            print(f"done {text}", flush=True)


def look():
    up()
    status, text = step("counter", "1", "power")
    print(f"found {int(text) - 1}" if status == 200 else f"wrong {status} {text}", flush=True)


if __name__ == "__main__":
    {"prepare": prepare, "service": try_service, "steps": steps, "look": look}[sys.argv[1]]()
