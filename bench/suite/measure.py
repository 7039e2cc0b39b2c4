"""What bench/suite.sh measures of a running system: loads, memory, start-up, and what a kill costs."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import systems
import whose
from systems import BIN, Steps, tree

HERE = pathlib.Path(__file__).resolve().parent
SUITE = HERE.parent.parent / "build/suite"
VALUES = "0.5,1.5,-2.25,3.0,0.125,5.5,6.5,-7.75,8.5,9.25,10.5,11.0,-12.5,13.5,14.75,15.5]}]}"
#: Figures of a run of which the median of all rounds is kept.
FIGURES = ("steps_per_s", "p50_ms", "p99_ms", "p999_ms", "cpu_us", "client_busiest_share", "client_waited_s", *whose.PARTS)
#: Figures whose ratio is taken in each round, because the load of the machine changes from round to round.
PAIRED = ("steps_per_s", "p99_ms", "cpu_us")
ANSWER_TIMEOUT_S = 60
WARM_MAX_S = 60


def binary_body(size):
    """A v2 request with a tensor of this many bytes. Returns (body, end of the answer, header)."""
    head = (f'{{"inputs":[{{"name":"FP32","datatype":"FP32","shape":[{size // 4}],"parameters":{{"binary_data_size":'
            f'{size}}}}}],"outputs":[{{"name":"FP32","parameters":{{"binary_data":true}}}}]}}').encode()
    return head + b"?" * size, b"?" * size, f"Inference-Header-Content-Length: {len(head)}"


@functools.lru_cache
def v2_bodies():
    """Writes the bodies of v2 requests: JSON, and binary tensors of three sizes. Returns {name: (body, end, header)}."""
    SUITE.mkdir(parents=True, exist_ok=True)
    start = '{"inputs":[{"name":"FP32","datatype":"FP32","shape":[16],"data":['
    texts = {"json": ((start + VALUES).encode(), VALUES.encode(), None), "binary": binary_body(64),
             "1mb": binary_body(1000000), "10mb": binary_body(10000000)}
    found = {}
    for name, (body, end, header) in texts.items():
        (SUITE / f"{name}.body").write_bytes(body)
        (SUITE / f"{name}.end").write_bytes(end)
        found[name] = (SUITE / f"{name}.body", SUITE / f"{name}.end", header)
    return found


# --- the load tools' commands: (system, connections, seconds, processes) -> words


def continuo_bench(*flags):
    def command(system, connections, seconds, processes):
        return [BIN / "continuo-bench", "--url", f"http://{system.http}", "--connections", connections, "--duration",
                seconds, "--warmup", 0, "--stall-seconds", 600, "--processes", processes, *flags]
    return command


def post_bench(kind):
    def command(system, connections, seconds, processes):
        body, end, header = v2_bodies()[kind]
        return [BIN / "post-bench", system.http, "/v2/models/identity/infer", body, "--end", end, "--connections",
                connections, "--seconds", seconds, "--warmup", 0, "--processes", processes,
                *(["--header", header] if header else [])]
    return command


def wrk(*flags):
    """wrk takes whole seconds only, and at least one (wrk.py)."""
    def command(system, connections, seconds, processes):
        return [sys.executable, HERE / "wrk.py", system.http, "--connections", connections, "--seconds", seconds,
                "--threads", processes, *flags]
    return command


def grpc_bench(kind, model, data=1):
    def command(system, connections, seconds, processes):
        return [BIN / "grpc-bench", kind, system.grpc, model, "--calls", connections, "--seconds", seconds, "--data",
                data, "--processes", processes]
    return command


# --- one run


@contextlib.contextmanager
def only(pids, name):
    """Stops the processes of all systems but one, because an idle server also takes time. `pids` are those of each."""
    stopped = [pid for other, processes in pids.items() if other != name for pid in processes]
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def cpu_time(pids):
    """The CPU time of all threads of these processes in seconds, and how many clock ticks fell into their own code and
    into the kernel."""
    spent = own = kernel = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            own, kernel = own + int(words[11]), kernel + int(words[12])
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                spent += int(path.read_text().split()[0])
    return spent / 1e9, own, kernel


def parts(before, after):
    """What cpu_time() has counted in between: seconds in own code, and in the kernel. Their sum is exact, and the ticks
    divide it."""
    spent, own, kernel = (there - here for here, there in zip(before, after))
    in_kernel = spent * kernel / max(own + kernel, 1)
    return spent - in_kernel, in_kernel


def run(system, pids, command, connections, seconds, processes):
    """Runs a load tool once. `cpu_us` is the CPU time of all processes of the system for a step, and whose.PARTS are its
    parts and the load tool's time."""
    words = [str(word) for word in command(system, connections, seconds, min(processes, connections))]
    sides = {"server": pids[:system.servers], "worker": pids[system.servers:]}
    before = {side: cpu_time(those) for side, those in sides.items()}
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    spent = {side: parts(before[side], cpu_time(those)) for side, those in sides.items()}
    if done.returncode not in (0, 1, 3) or not done.stdout:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    us = 1e6 / max(result["steps"], 1)
    for side, (own, kernel) in spent.items():
        result |= {f"{side}_own_us": own * us, f"{side}_kernel_us": kernel * us}
    result["cpu_us"] = sum(map(sum, spent.values())) * us
    if "client_cpu_s" in result:  # wrk does not say it
        result["load_us"] = result["client_cpu_s"] * us
    return result


def warm(row, system, pids, options):
    """Sends the steps that a system needs before it has its speed, but for no longer than WARM_MAX_S."""
    steps, end = 0, time.monotonic() + WARM_MAX_S
    while steps < row.warm_steps and time.monotonic() < end:
        steps += run(system, pids, row.load, 64, 2, options.processes)["steps"]
        time.sleep(row.pause_s)


def compare(rows, running, counts, options, say):
    """Runs the rows of a group in alternated rounds, with each of these counts of connections. Returns {row:
    {connections: cell}}."""
    cells = {row.name: {} for row in rows}
    pids = {name: tree(system.pid) for name, system in running.items()}  # they have all their workers
    for row in rows:
        with only(pids, row.system):
            warm(row, running[row.system], pids[row.system], options)
    for connections in counts:
        runs = {row.name: [] for row in rows}
        for number in range(-1, options.rounds):  # round -1 warms up
            for row in rows if number % 2 else rows[::-1]:
                with only(pids, row.system):
                    seconds = options.seconds if number >= 0 else options.warmup
                    result = run(running[row.system], pids[row.system], row.load, connections, seconds, options.processes)
                    time.sleep(row.pause_s)
                if number >= 0:
                    runs[row.name].append(result)
        for row in rows:
            cells[row.name][str(connections)] = summary(runs[row.name])
            say(f"  {connections:4} connections  {row.title:44} {shown(cells[row.name][str(connections)])}")
    return cells


def summary(runs):
    """The medians of the rounds, and the rounds themselves. A run in which the load tool refused is None there."""
    good = [each for each in runs if "refused" not in each and each["steps"] > 0]
    known = [name for name in FIGURES if good and all(name in each for each in good)]  # not every tool has them all
    cell = {name: statistics.median(each[name] for each in good) for name in known}
    cell["rounds"] = {name: [round(each[name], 3) if each in good else None for each in runs] for name in PAIRED}
    return cell | {"refused": sum("refused" in each for each in runs), "errors": sum(each["errors"] for each in runs)}


def shown(cell):
    if "steps_per_s" not in cell:
        return f"refused {cell['refused']} times: the load tool was the bottleneck"
    return (f"{cell['steps_per_s']:9,.0f} steps/s, p99 {cell['p99_ms']:7.2f} ms, {cell['cpu_us']:6.1f} us of CPU a step" +
            (f", {cell['errors']} errors" if cell["errors"] else ""))


# --- memory, start-up, kills


def pss_bytes(pid):
    """The memory of all processes of a system; a page that several share counts once."""
    total = 0
    for each in tree(pid):
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{each}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def first_answer(system, steps, number):
    """Sends a step until it is answered. If the sequence was lost and must be started again, that is an answer, too.
    Returns the sum, or None."""
    end = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < end:
        for start in (False, True) if steps.kind == "v2" else (False,):
            answer = steps.send(system.http, number, start)
            if answer is not None:
                return answer
        time.sleep(0.002)
    return None


def open_sequences(system, row):
    """Opens sequences over HTTP. Returns the memory that each of them took, in bytes."""
    few, many = row.opened // 10, row.opened
    command = row.load(system, 16, 0, 1)
    command = [*command[:command.index("--duration")], *command[command.index("--stall-seconds"):]]
    before = None
    for count in (few, many):
        done = subprocess.run([str(word) for word in [*command, "--open-only", count]], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return None, done.stderr.strip().splitlines()[-1:]
        memory = pss_bytes(system.pid)
        before = memory if before is None else before
    return (memory - before) / many, None


def facts(row, say):
    """Starts a system of its own for this row. Returns its start-up, memory and recovery."""
    system = systems.SYSTEMS[row.system]()
    try:
        steps = Steps(row.kind, row.model)
        answer = steps.send(system.http, 5, start=True, timeout=60)
        found = {"start_ms": (time.monotonic() - system.began) * 1e3, "first": answer}
        found["idle_bytes"] = pss_bytes(system.pid)
        found["sequence_bytes"], found["sequence_problem"] = open_sequences(system, row)
        found["opened"] = row.opened
        for what in ("worker", "server"):
            before = steps.send(system.http, 5)
            began = time.monotonic()
            if what == "worker":
                for pid in system.worker_pids():
                    os.kill(pid, signal.SIGKILL)
            else:
                system.restart()
            total = first_answer(system, steps, 5)
            found[f"{what}_ms"] = (time.monotonic() - (began if what == "worker" else system.began)) * 1e3
            found[f"{what}_kept"] = None if total is None else before is not None and total == before + 5
        say(f"  {row.title}: {found}")
        return found
    finally:
        system.close()
