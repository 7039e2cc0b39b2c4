"""Management under load: models come, change and go in random order while clients predict.

CONTINUO_MANAGEMENT_CALLS makes it long: 10000 takes some minutes and shows whether anything leaks."""

import collections
import os
import random
import threading

from models import BUILD, counter, stateless
from resident import resident_bytes
from waiting import expect, limit

CALLS = int(os.environ.get("CONTINUO_MANAGEMENT_CALLS", "200"))
CLIENTS = 32
NAMES = [f"m{i}" for i in range(4)]
# What a caller may meet besides success: it lost a race (404, 409, 403), or its model has no worker just then.
MANAGEMENT_MAY = {200, 202, 206, 403, 404, 409}
PREDICTION_MAY = {200: None, 404: "model_not_found", 503: "no_worker"}


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Predictors:
    """Clients that go on until told: on a model that stays, and on those that come and go."""

    def __init__(self, server):
        self.stop = threading.Event()
        self.wrong = []
        self.answers = collections.Counter()
        self.threads = [threading.Thread(target=self.run, args=(server, n)) for n in range(CLIENTS)]

    def run(self, server, number):
        rng = random.Random(number)
        client = server.client()
        steps = 0
        try:
            while not self.stop.is_set():
                if rng.random() < 0.5:
                    answer = client.step("steady", f"s{number}", 1)
                    steps += 1
                    self.answers["steady"] += 1
                    if (answer.status, answer.text) != (200, str(steps)):
                        self.wrong.append(answer)
                    continue
                answer = client.post(f"/predictions/{rng.choice(NAMES)}", b"x")
                self.answers[answer.status] += 1
                if answer.status not in PREDICTION_MAY or answer.error != PREDICTION_MAY[answer.status]:
                    self.wrong.append((answer, answer.error))
        except Exception as e:  # a test's thread must tell
            self.wrong.append(e)
        finally:
            client.close()

    def __enter__(self):
        for each in self.threads:
            each.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for each in self.threads:
            each.join(limit(30))


def one_call(rng, admin, files):
    name = rng.choice(NAMES)
    kind = rng.choice(["register", "register", "scale", "scale", "unregister", "describe", "default"])
    at_once = rng.choice(["true", "false"])
    if kind == "register":
        return kind, admin.post(f"/models?url={rng.choice(files[name])}&model_name={name}&synchronous={at_once}"
                                f"&initial_workers={rng.randrange(3)}")
    if kind == "scale":
        return kind, admin.put(f"/models/{name}?min_worker={rng.randrange(3)}&synchronous={at_once}")
    if kind == "unregister":
        version = rng.choice(["", "/1.0", "/2.0"])
        return kind, admin.delete(f"/models/{name}{version}")
    if kind == "default":
        return kind, admin.put(f"/models/{name}/{rng.choice(['1.0', '2.0'])}/set-default")
    return kind, admin.get(f"/models/{name}/all")


def remove_all(admin):
    """Every model that came and went, default versions last."""
    for name in NAMES:
        for version in ("/1.0", "/2.0", "/1.0"):
            admin.delete(f"/models/{name}{version}")


def test_models_come_and_go_under_load(server):
    """Only documented answers, for callers and predicting clients; no worker, memory or descriptor is left behind."""
    s = server(counter("steady", minWorkers=2, maxWorkers=2))
    seed = random.randrange(1 << 32)
    s.transcript.log("test", f"seed {seed}")
    rng, admin = random.Random(seed), s.admin()
    files = {name: [s.pack(stateless(name, version=v), file_name=f"{name}-{v}.mar").name for v in ("1.0", "2.0")]
             for name in NAMES}
    kinds = collections.Counter()
    with Predictors(s) as predictors:
        for i in range(CALLS):
            kind, answer = one_call(rng, admin, files)
            kinds[kind, answer.status] += 1
            assert answer.status in MANAGEMENT_MAY, (seed, i, kind, answer)
            if i == CALLS // 5:  # everything that is kept is there by now
                warm_bytes = resident_bytes(s.process.pid)
        remove_all(admin)
    print(dict(kinds), dict(predictors.answers))
    assert not predictors.wrong, (seed, predictors.wrong[:3])
    assert {"register", "scale", "unregister"} <= {kind for kind, status in kinds if status in (200, 202)}
    assert [m["modelName"] for m in admin.get("/models").json["models"]] == ["steady"]
    expect(lambda: len(s.session_members()) == 3, "the server and two workers, and nobody else")
    assert s.metric("continuo_workers_ready") == 2
    grown = resident_bytes(s.process.pid) - warm_bytes
    print(f"server: {warm_bytes >> 10} kB after a fifth of the calls, {grown >> 10} kB more at the end; "
          f"{descriptors_of(s.process.pid)} descriptors")
    # Threads' arenas and the log's buffers settle; a leak of a kB a call would be 8 MB at 10000 calls.
    if BUILD.name not in ("asan", "tsan"):  # those hold freed memory back, and look for leaks themselves
        assert grown < 4 << 20, f"grown by {grown >> 10} kB in {CALLS * 4 // 5} calls"
    expect(lambda: descriptors_of(s.process.pid) < 60, "descriptors of connections and workers to be closed")
