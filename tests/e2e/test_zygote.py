"""With `preload` a process loads a TorchScript model once and forks its workers. PyTorch is not needed: a stand-in for
libtorch adds up its inputs. test_torch.py tests PyTorch itself."""

import concurrent.futures
import os
import pathlib
import re
import signal
import threading
import time

import pytest
import requests

from models import BIN, Model
from server import SLOW_BUILD
from test_autoscale import later_idle, scaling
from waiting import expect

LIBRARY = BIN.parent / "tests" / "torchscript" / "fake_library.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} was not built")

YAML = """
minWorkers: {workers}
maxWorkers: {most}
batchSize: 4
maxBatchSize: 8
sequenceBatching: true
inputs: [{{name: x, dataType: FP32, dims: [2]}}]
outputs: [{{name: y, dataType: FP32, dims: [2]}}]
state: [{{name: h, dataType: FP32, dims: [2], batchAxis: 1}}]
torch: {{results: [y, h, _], threads: {threads}}}
{more}
"""


def adds(text="sum", workers=1, threads=1, more="", most=8, **rest):
    yaml = YAML.format(workers=workers, most=most, threads=threads, more=more)
    return Model("adds", None, yaml, torchscript=text.encode(), **rest)


@pytest.fixture
def serve(server):
    def start(*models, flags=(), **more):
        return server(*models, flags=["--torch-library", LIBRARY, *flags], **more)
    return start


def step(s, sequence, value=1.0):
    answer = requests.post(f"{s.inference}/predictions/adds", json={"x": [[value, 0.0]]}, timeout=60,
                           headers={"ts_request_sequence_id": sequence})
    assert answer.status_code == 200, answer.text
    return answer.json()["y"][0][0]


def zygote(s, state="ready"):
    def found():
        shown = s.describe("adds")["zygote"]
        return shown if shown and shown["state"] == state else None
    return expect(found, f"the zygote is {state}", 20)


def parent_of(pid):
    return int(re.search(r"^PPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1))


def title_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")[-1].decode()


def ready_lines(s):
    return [line for line in list(s.lines) if "event=worker_ready" in line]


def load_ms(line):
    return int(re.search(r"load_ms=(\d+)", line).group(1))


def test_workers_are_forked_and_children_of_the_server(serve):
    """So the server learns of their deaths, and they end with the server. ps tells them apart."""
    s = serve(adds(workers=3))
    pids = s.expect_ready("adds", 3)
    about = zygote(s)
    assert about["pid"] not in pids and about["restarts"] == 0 and about["lastExit"] is None
    assert {parent_of(pid) for pid in [*pids, about["pid"]]} == {s.process.pid}
    assert {title_of(pid) for pid in pids} == {"adds/1.0#1", "adds/1.0#2", "adds/1.0#3"}
    assert title_of(about["pid"]) == "adds/1.0#zygote"
    assert all(os.getpgid(pid) == pid for pid in pids)
    assert [step(s, "a") for _ in range(3)] == [1, 2, 3]


def test_a_worker_has_what_one_has_that_was_started(serve):
    """It has its socket, the lock and its output, and no descriptor of the zygote."""
    s = serve(adds(workers=2))
    s.expect_ready("adds", 2)
    plain = serve(adds(workers=1, more="preload: false"))
    alone = plain.expect_ready("adds")[0]
    step(plain, "a")

    def descriptors(pid):
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    for sequence in "abcdefgh":
        step(s, sequence)
    for pid in s.ready_pids("adds"):
        assert len(descriptors(pid)) <= len(descriptors(alone)), (descriptors(pid), descriptors(alone))
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status


def test_no_step_is_lost_while_workers_and_the_zygote_are_killed(serve):
    """Each sequence counts its own steps, whichever process dies, and no step waits until the zygote is back."""
    s = serve(adds(workers=2))
    s.expect_ready("adds", 2)
    stop = threading.Event()

    def kill():
        n = 0
        while not stop.wait(0.15):
            n += 1
            victims = [s.describe("adds")["zygote"]["pid"]] if n % 3 == 0 else s.ready_pids("adds")
            for pid in victims[:1]:
                if pid:
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            counted = list(pool.map(lambda name: [step(s, name) for _ in range(120)],
                                    [f"s{i}" for i in range(8)]))
    finally:
        stop.set()
        killer.join()
    assert all(got == list(range(1, 121)) for got in counted)
    assert s.describe("adds")["zygote"]["restarts"] >= 1
    s.expect_ready("adds", 2)


def test_a_killed_worker_is_back_at_once(serve):
    """No program is started and nothing is loaded, so the new worker is ready within 50 ms."""
    s = serve(adds())
    s.expect_ready("adds")
    times = []
    for n in range(7):
        before = len(ready_lines(s))
        s.kill_worker("adds")
        expect(lambda: len(ready_lines(s)) > before, "it is back")
        times.append(load_ms(ready_lines(s)[-1]))
    assert SLOW_BUILD or sorted(times)[3] < 50, times


def test_the_zygote_may_die_and_comes_back(serve):
    """Its workers live on. A worker that is needed meanwhile loads the model itself."""
    s = serve(adds(workers=2))
    before = s.expect_ready("adds", 2)
    first = zygote(s)["pid"]
    os.kill(first, signal.SIGKILL)
    expect(lambda: zygote(s)["pid"] != first, "another zygote")
    assert sorted(s.ready_pids("adds")) == sorted(before)
    assert "SIGKILL" in zygote(s)["lastExit"]
    os.kill(zygote(s)["pid"], signal.SIGSTOP)  # takes no FORK: it is given up after a while
    s.kill_worker("adds")
    s.expect_log("event=zygote_ended", "did not fork a worker in time", timeout=30)
    s.expect_ready("adds", 2)
    assert step(s, "a") == 1


def test_workers_start_alone_while_the_zygote_loads_again(serve, folder):
    gate = folder / "gate"
    gate.touch()
    s = serve(adds(f"sum {gate}"))
    s.expect_ready("adds")
    gate.unlink()
    os.kill(zygote(s)["pid"], signal.SIGKILL)
    s.expect_log("event=zygote_ended")
    s.kill_worker("adds")
    # Both wait at the gate now, each for itself.
    expect(lambda: s.workers("adds")[0].get("loading") == "reading the model", "it loads the model")
    assert s.workers("adds")[0]["pid"] and zygote(s, "loading")["pid"]
    gate.touch()
    s.expect_ready("adds")
    zygote(s)


def test_describe_shows_how_far_loading_is(serve, folder):
    gate = folder / "gate"
    s = serve()
    archive = s.pack(adds(f"sum {gate}", workers=2)).name
    requests.post(f"{s.management}/models", timeout=20,
                  params={"url": archive, "initial_workers": 2, "synchronous": "false"})
    expect(lambda: [w.get("loading") for w in s.workers("adds")] == ["reading the model"] * 2,
           "both workers wait for the zygote that reads the model")
    assert zygote(s, "loading")["loading"] == "reading the model"
    assert [worker["pid"] for worker in s.workers("adds")] == [0, 0]
    gate.touch()
    s.expect_ready("adds", 2)
    assert not any("loading" in worker for worker in s.workers("adds"))
    assert zygote(s)["loadMSec"] >= 0


def test_preload_false_has_no_zygote(serve):
    s = serve(adds(workers=2, more="preload: false"))
    s.expect_ready("adds", 2)
    assert "zygote" not in s.describe("adds")
    assert not any("zygote" in line for line in s.lines)
    assert step(s, "a") == 1


@pytest.mark.parametrize("model, reason", [
    (lambda: adds(workers=2, threads=2), "torch.threads is 2"),
    (lambda: adds("sum thread", workers=2), " left ")])
def test_what_cannot_be_forked_is_loaded_by_each_worker(serve, model, reason):
    """Threads do not survive a fork."""
    s = serve(model())
    s.expect_ready("adds", 2)
    s.expect_log("event=zygote_declined", reason)
    expect(lambda: s.describe("adds")["zygote"] is None, "no zygote is left")
    s.kill_worker("adds")
    s.expect_ready("adds", 2)
    assert step(s, "a") == 1
    assert sum("event=zygote_started" in line for line in s.lines) == 1


def test_a_model_that_cannot_load_says_why(serve):
    """The error is reported once for all waiting workers, with the same message as without a zygote. A crash is
    reported, too."""
    s = serve()
    for text, words in (("nothing", "cannot load model.pt as TorchScript"), ("sum die", "exited with status 9")):
        archive = s.pack(adds(text, workers=2)).name
        answer = requests.post(f"{s.management}/models", params={"url": archive, "initial_workers": 2,
                                                                 "synchronous": "true"}, timeout=60)
        assert answer.status_code == 500 and words in answer.json()["message"], answer.text


def test_scaling_to_nothing_ends_the_zygote(serve):
    """Scaling up again starts a new zygote. Unregistering leaves no process."""
    s = serve(adds(workers=2))
    s.expect_ready("adds", 2)
    first = zygote(s)["pid"]

    def scale(n):
        answer = requests.put(f"{s.management}/models/adds", timeout=60,
                              params={"min_worker": n, "max_worker": max(n, 1) if n else 0, "synchronous": "true"})
        assert answer.status_code < 300, answer.text
    scale(0)
    expect(lambda: not pathlib.Path(f"/proc/{first}").exists(), "the zygote is gone")
    scale(3)
    s.expect_ready("adds", 3)
    assert zygote(s)["pid"] != first
    last = zygote(s)["pid"]
    requests.delete(f"{s.management}/models/adds", timeout=60)
    expect(lambda: not pathlib.Path(f"/proc/{last}").exists(), "the zygote is gone")


def test_all_end_with_the_server(serve):
    """After kill -9 of the server no worker and no zygote lives on, but the states do."""
    s = serve(adds(workers=2))
    pids = s.expect_ready("adds", 2) + [zygote(s)["pid"]]
    assert [step(s, "a") for _ in range(2)] == [1, 2]
    s.kill()
    expect(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), "all are gone")
    s.restart()
    s.expect_ready("adds", 2)
    assert step(s, "a") == 3


def test_describe_shows_the_devices_that_workers_use(serve):
    """Workers use the devices in turn, and the description shows which. On the CPU there are none."""
    s = serve(adds(workers=3, more="deviceType: gpu\ndeviceIds: [1, 3]\n"))
    s.expect_ready("adds", 3)
    shown = s.describe("adds")
    assert shown["deviceType"] == "gpu" and shown["deviceIds"] == [1, 3]
    devices = {worker["index"]: (worker["gpu"], worker["device"]) for worker in shown["workers"]}
    assert devices == {1: (True, "cuda:1"), 2: (True, "cuda:3"), 3: (True, "cuda:1")}
    assert shown["zygote"] is None
    all_of_them = serve(adds(workers=3, more="deviceType: gpu\n"))  # there are two
    all_of_them.expect_ready("adds", 3)
    devices = {worker["index"]: worker["device"] for worker in all_of_them.workers("adds")}
    assert devices == {1: "cuda:0", 2: "cuda:1", 3: "cuda:0"}
    shown = serve(adds()).describe("adds")
    assert shown["deviceType"] == "cpu" and "deviceIds" not in shown
    assert [(worker["gpu"], worker["device"]) for worker in shown["workers"]] == [(False, "cpu")]


def rounds_of_load(s, sequences):
    """Makes steps of all sequences. each() makes one of each and checks the answers. ramp() does so while the workers
    are held, until there are four."""
    counts = dict.fromkeys(sequences, 0)

    def each(until=lambda: None):
        with concurrent.futures.ThreadPoolExecutor(len(sequences)) as pool:
            futures = {name: pool.submit(step, s, name) for name in sequences}
            until()
            for name, future in futures.items():
                counts[name] += 1
                assert future.result() == counts[name], name

    def ramp():
        def four_are_ready():
            expect(lambda: scaling(s, "adds")["current"] == 4, "four workers are wanted", 60)
            s.expect_ready("adds", 4)
            hold.release()
        hold = s.hold()
        with hold:
            each(four_are_ready)
    return each, ramp


def test_workers_by_load_are_forked_and_lose_no_step(serve):
    """The number of workers goes from one to four and back, twice. The zygote forks the new ones, and stays."""
    s = serve(adds(most=4), clock=True)
    s.expect_ready("adds")
    about = zygote(s)
    each, ramp = rounds_of_load(s, [f"s{i}" for i in range(40)])
    each()
    for _ in range(2):
        ramp()
        assert {parent_of(pid) for pid in s.ready_pids("adds")} == {s.process.pid}
        assert {title_of(pid) for pid in s.ready_pids("adds")} == {f"adds/1.0#{n}" for n in range(1, 5)}
        each()
        later_idle(s, 1, "adds")
        each()
    assert zygote(s)["pid"] == about["pid"] and zygote(s)["restarts"] == 0
    assert s.metric("continuo_scale_ups_total") == s.metric("continuo_scale_downs_total") == 6


def test_the_zygote_of_an_idle_model_goes_and_comes_back(serve):
    """With minWorkers 0 an idle model has no process, and the next step starts everything again."""
    s = serve(adds(workers=0, most=4), clock=True)
    each, ramp = rounds_of_load(s, [f"s{i}" for i in range(40)])
    assert s.describe("adds")["zygote"] is None
    for _ in range(2):
        each()
        ramp()
        pids = s.ready_pids("adds") + [zygote(s)["pid"]]
        later_idle(s, 0, "adds")
        expect(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), "all are gone")


def test_workers_by_load_share_out_the_devices(serve):
    """A new worker uses the device of its place, also if an earlier worker had that place."""
    s = serve(adds(most=4, more="deviceType: gpu\ndeviceIds: [1, 3]\n"), clock=True)
    s.expect_ready("adds")
    each, ramp = rounds_of_load(s, [f"s{i}" for i in range(40)])
    for _ in range(2):
        ramp()
        devices = {worker["index"]: worker["device"] for worker in s.workers("adds")}
        assert devices == {1: "cuda:1", 2: "cuda:3", 3: "cuda:1", 4: "cuda:3"}
        each()
        later_idle(s, 1, "adds")
        assert [worker["device"] for worker in s.workers("adds")] == ["cuda:1"]
        each()
