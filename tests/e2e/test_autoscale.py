"""Workers follow the load between minWorkers and maxWorkers, and sequences are not affected."""

import json
import threading

import pytest
import requests

from models import counter, stateless
from test_ctl import ctl  # noqa: F401 - a fixture
from waiting import expect, limit


def scaling(s, name="counter"):
    return s.describe(name)["scaling"]


def metric(s, name):
    text = requests.get(s.metrics + "/metrics", timeout=20).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))


class Clients:
    """Clients with one sequence each. A client counts its steps and knows what each answer must be."""

    def __init__(self, s, count):
        self.s = s
        self.sums = [0] * count
        self.right = 0
        self.wrong = []

    def _step(self, i):
        # A connection of its own: the clock that goes on ends idle ones.
        answer = self.s.client().step("counter", f"s{i}", i + 1)
        self.sums[i] += i + 1
        if (answer.status, answer.text) == (200, str(self.sums[i])):
            self.right += 1
        else:
            self.wrong.append((i, self.sums[i], answer))

    def begin(self):
        """Sends a step of each sequence. end() waits for the answers."""
        self.right = 0
        self.threads = [threading.Thread(target=self._step, args=(i,)) for i in range(len(self.sums))]
        for thread in self.threads:
            thread.start()

    def end(self):
        for thread in self.threads:
            thread.join(limit(60))
        assert not self.wrong and self.right == len(self.sums), self.wrong

    def step(self):
        self.begin()
        self.end()


def later_idle(s, wanted, name="counter"):
    """Moves the clock by scaleDownIdleMSec until this many workers are left."""
    def is_there():
        if scaling(s, name)["current"] > wanted:
            s.clock.advance(60_000)
        return scaling(s, name)["current"] == wanted
    expect(is_there, f"{wanted} workers are left", 60)
    expect(lambda: len(s.workers(name)) == wanted, "the others have ended", 30)


def test_a_ramp_from_one_to_four_and_back_loses_no_step(server, ctl):  # noqa: F811
    """Steps that wait make the server start workers, one after the other, and sequences spread over them. When there is
    little to do, the sequences come together again on the last worker."""
    s = server(counter(minWorkers=1, maxWorkers=4), clock=True)
    clients = Clients(s, 24)
    clients.step()
    assert scaling(s) == {"automatic": True, "current": 1, "min": 1, "max": 4,
                          "lastChange": {"from": 0, "to": 1, "reason": "order",
                                         "time": scaling(s)["lastChange"]["time"]}}
    with s.hold():
        clients.begin()
        expect(lambda: scaling(s)["current"] == 4, "four workers are wanted", 60)
        s.expect_ready("counter", 4)
        assert scaling(s)["lastChange"]["reason"] == "queue"
        assert metric(s, "continuo_workers_wanted") == 4 and metric(s, "continuo_scale_ups_total") == 3
    clients.end()
    clients.step()
    assert len([worker for worker in s.workers("counter") if worker["liveSequences"] > 0]) > 1
    assert ctl(s, "doctor").returncode == 0
    later_idle(s, 1)
    assert scaling(s)["lastChange"]["reason"] == "idle" and metric(s, "continuo_scale_downs_total") == 3
    clients.step()
    s.clock.advance(600_000)
    assert len(s.expect_ready("counter", 1)) == 1, "minWorkers stay"
    clients.step()
    assert s.expect_log("event=workers_scaled", "from=1 to=2 reason=queue")


def test_to_none_and_back(server, ctl):  # noqa: F811
    """With minWorkers 0 an idle model has no process. Its state stays in the store, and the next step starts a worker
    and waits for it: the answer is slow, but not an error."""
    s = server(counter(minWorkers=0, maxWorkers=2), clock=True)
    assert s.workers("counter") == [] and s.client().get("/ping").status == 200
    clients = Clients(s, 6)
    clients.step()
    assert scaling(s)["lastChange"]["reason"] == "demand" and len(s.workers("counter")) == 1
    for _ in range(2):
        later_idle(s, 0)
        assert s.client().get("/ping").status == 200 and s.client().get("/v2/models/counter/ready").status == 200
        assert ctl(s, "doctor").returncode == 0
        clients.step()
    later_idle(s, 0)
    answer = s.admin().get("/models/counter/sequences/s3")
    assert answer.status in (200, 503), "a worker is on its way"
    expect(lambda: s.admin().get("/models/counter/sequences/s3").status == 200, "the store can be looked at", 20)
    s.stop()
    s.restart()
    clients.step()


def test_an_operators_zero_is_zero(server):
    """With maxWorkers 0 no worker is started, and steps are refused as before."""
    s = server(counter(maxWorkers=2))
    assert s.admin().put("/models/counter?min_worker=0&max_worker=0&synchronous=true").status == 200
    assert s.client().step("counter", "a", 1).error == "no_worker"
    assert s.client().get("/v2/models/counter/ready").status == 400


def test_a_model_registered_without_workers_starts_one_when_it_is_asked(server):
    """The answer to the registration says that a step starts a worker."""
    s = server()
    assert s.register(counter(minWorkers=0, maxWorkers=1)).json == {
        "status": 'Model "counter" Version: 1.0 registered with 0 initial workers. The first request starts one.'}
    assert s.client().step("counter", "a", 2).text == "2"


def test_a_handler_that_cannot_load_on_demand_says_so(server):
    """A step that waits for such a worker gets the reason, within its time limit."""
    s = server(stateless("broken", "return { api = 1, step = function() end, load = function() error('no weights') end }",
                         minWorkers=0, maxWorkers=1))
    answer = s.client().post("/predictions/broken", b"x")
    assert answer.status == 503 and "no weights" in answer.message, answer


@pytest.mark.load
def test_workers_that_come_and_go_all_the_time_lose_no_step(server):
    """Clients verify their sequences under load, while limits that are far too narrow make the number of workers swing.
    """
    s = server(counter(minWorkers=1, maxWorkers=4, batchSize=1, scaleUpQueueMSec=1, scaleDownIdleMSec=40))
    for _ in range(3):
        bench = s.bench("--connections", 32, "--duration", 2, "--warmup", 0)
        out, err = bench.communicate(timeout=limit(60))
        result = json.loads(out)
        assert bench.returncode == 0, f"{out} {err}"
        assert result["errors"] == 0 and result["mismatches"] == 0 and result["steps"] > 0
        expect(lambda: scaling(s)["current"] == 1, "the load is over", 30)
    assert metric(s, "continuo_scale_ups_total") >= 3 and metric(s, "continuo_scale_downs_total") >= 3


DIRECT = """minWorkers: 1
maxWorkers: 4
max_batch_size: 4
input: [{name: X, data_type: TYPE_INT32, dims: [1]}]
output: [{name: Y, data_type: TYPE_INT32, dims: [1]}]
sequence_batching: {direct: {}}
"""


@pytest.mark.parametrize("model, why", [
    (counter(maxWorkers=4, state={"durability": "none"}), "its states exist only in its workers (durability none)"),
    (counter(maxWorkers=4, useJobTicket=True), "its requests never wait (useJobTicket)"),
    (counter(), None),
], ids=["durability none", "job tickets", "one number"])
def test_where_it_cannot_be_the_model_says_why(server, model, why):
    """The log also says it, once, if maxWorkers asks for scaling."""
    model.name = "counter"
    s = server(model)
    assert scaling(s).get("fixedBecause") == why and scaling(s)["automatic"] == (why is None)
    if why:
        s.expect_log("event=workers_fixed", why)


def test_slots_belong_to_their_workers(server):
    """With Triton's strategies a sequence has a slot of one worker, so the number of workers is fixed."""
    model = counter("direct")
    model.yaml = DIRECT
    model.lua = "return { api = 1, step = function(state, req) return { outputs = { Y = { 1 } } } end }"
    s = server(model)
    assert scaling(s, "direct")["fixedBecause"].startswith("its sequences have slots")
    s.expect_log("event=workers_fixed", "sequence_batching")


def test_an_operator_can_turn_it_off(server):
    """--scale-workers=false switches scaling off for all models, and scaleUpQueueMSec: 0 for one."""
    s = server(counter(maxWorkers=4), flags=["--scale-workers=false"])
    assert scaling(s)["automatic"] is False and "fixedBecause" not in scaling(s)
    s = server(counter(maxWorkers=4, scaleUpQueueMSec=0))
    assert scaling(s)["automatic"] is False


def test_torchserve_does_not_scale_by_itself(torchserve):
    """In TorchServe maxWorkers only limits what an operator may ask for, and operators plan memory accordingly."""
    t = torchserve()
    t.properties()
    t.pack(counter(maxWorkers=4), "counter.mar")
    t.start("--ncs", "--model-store", t.store, "--models", "counter.mar")
    described = t.describe("counter")
    assert described["scaling"]["automatic"] is False
    assert (described["minWorkers"], described["maxWorkers"]) == (1, 4)
