"""Two tenants with keys on one server: whatever one of them tries, over each API, it reaches nothing of the other.

The north has a sequence in each model that both may use, and its sums hold a secret. The south knows all ids, and tries
to read, continue, end, copy and replace them, and to reach the north's own model and the server's figures."""

import json

import grpc
import pytest
import requests
import websockets.exceptions

import v2rpc
from client import SEQUENCE
from models import counter, stateless
from rpc import Rpc, inference, module, request
from test_named_keys import Keys
from test_v2_http import accumulator
from waiting import limit
from websocketing import Closed, Stream, body_of

SECRET = 1_777_000_000  # long enough not to be in a request's id by chance

SHARED = "counter,accumulator,echo"


class World:
    """The server, the keys, and what the south knows of the north."""

    def __init__(self, server, keys):
        self.server, self.keys = server, keys
        self.generated = self.session = None

    def http(self, method, where, path, key="south", body=None, **headers):
        base = {"i": self.server.inference, "m": self.server.management, "x": self.server.metrics}[where]
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            headers.update(self.keys.http(key))
        answer = requests.request(method, base + path, data=body, headers=headers, timeout=limit(20))
        return answer.status_code, f"{answer.headers} {answer.text}"

    def step(self, name="a", key="south", model="counter", body="1", **headers):
        return self.http("POST", "i", f"/predictions/{model}", key, body, **{SEQUENCE: name, **headers})

    def infer(self, key="south", model="accumulator", value=1, headers=None, **parameters):
        document = {"parameters": parameters, "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1],
                                                          "data": [value]}]}
        return self.http("POST", "i", f"/v2/models/{model}/infer", key, json.dumps(document), **(headers or {}))

    def rpc(self, call, target=None):
        try:
            with Rpc(target or self.server.grpc) as rpc:
                answer = call(rpc)
                return 200, str(list(answer) if hasattr(answer, "__next__") else answer)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def predict(self, name, key="south", model="counter", **more):
        return self.rpc(lambda rpc: rpc.predict(model, 1, name, metadata=self.keys.rpc(key), **more))

    def stream(self, name, key="south", model="counter"):
        messages = iter([request(model, b"1", name)])
        return self.rpc(lambda rpc: rpc.inference.StreamPredictions2(messages, metadata=self.keys.rpc(key),
                                                                    timeout=limit(30)))

    def v2(self, call, key="south"):
        try:
            with v2rpc.channel_of(self.server) as channel:
                return 200, str(call(v2rpc.stub_of(channel), {"metadata": self.keys.rpc(key), "timeout": limit(30)}))
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def v2_step(self, name, key="south", **more):
        return self.v2(lambda service, how: service.ModelInfer(v2rpc.step("accumulator", 1, name, **more), **how), key)

    def v2_stream(self, name, **more):
        return self.v2(lambda service, how: list(service.ModelStreamInfer(
            iter([v2rpc.step("accumulator", 1, name, **more)]), **how)))

    def socket(self, model, name, key="south", **more):
        """Opens a stream and makes a step. Returns the text of all that was heard."""
        try:
            with Stream(self.server, model, name, headers=self.keys.http(key), **more) as stream:
                answer = stream.step(1)
                return answer.get("status", 200), f"{stream.hello} {answer}"
        except websockets.exceptions.InvalidStatus as error:
            return error.response.status_code, error.response.body.decode()
        except Closed as closed:
            return closed.code, str(closed)

    def manage(self, name, key="south", **fields):
        message = module("management_pb2")
        call, kind = name.split(":")
        return self.rpc(lambda rpc: getattr(rpc.management, call)(getattr(message, kind)(**fields), timeout=limit(30),
                                                                 metadata=self.keys.rpc(key)), self.server.grpc_admin)


def shm(world):
    region = {"shared_memory_region": "north", "shared_memory_byte_size": 4}
    document = {"parameters": {"sequence_id": 5, "sequence_start": True},
                "inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1], "parameters": region}]}
    return world.http("POST", "i", "/v2/models/accumulator/infer", body=json.dumps(document))


V2_MESSAGES = v2rpc.triton.service_pb2
NONE = (401, 403, 404)
DENIED = ("PERMISSION_DENIED",)
CLOSED = (400, 404, 409, 410)

# What is tried, what may come of it, and how. A status of 200 stands for a sequence of the south's own.
ATTEMPTS = [
    # Sequences over TorchServe's interface
    ("continue it", (200,), lambda w: w.step()),
    ("by the name with its owner", (200,), lambda w: w.step("north/a")),
    ("by a path in the name", (200,), lambda w: w.step("../north/a")),
    ("by the short header", (200,), lambda w: w.http("POST", "i", "/predictions/counter", body="1",
                                                    Continuo_Sequence="north/a")),
    ("by the long header", (200,), lambda w: w.http("POST", "i", "/predictions/counter", body="1",
                                                   Continuo_Sequence_Id="a")),
    ("the id that the server made", (200,), lambda w: w.step(w.generated)),
    ("the id that the server made, with owner", (200,), lambda w: w.step("north/" + w.generated)),
    ("by /invocations", (200,), lambda w: w.http("POST", "i", "/invocations?model_name=counter", body="1",
                                                **{SEQUENCE: "a"})),
    ("by /models/invoke", (200,), lambda w: w.http("POST", "i", "/models/counter/invoke", body="1", **{SEQUENCE: "a"})),
    ("by the old path", (200,), lambda w: w.http("POST", "i", "/counter/predict", body="1", **{SEQUENCE: "a"})),
    ("end it", (200,), lambda w: w.step(ts_request_sequence_end="true")),
    ("begin it anew", (200,), lambda w: w.step(ts_request_sequence_start="true")),
    ("its answer by the idempotency key", (200,), lambda w: w.step("b", Idempotency_Key="north-1")),
    ("its next step by number", CLOSED, lambda w: w.step("c", ts_request_sequence_step="2")),
    ("its last step by number", (200,), lambda w: w.step("d", ts_request_sequence_step="1")),
    ("the session of SageMaker", CLOSED, lambda w: w.http(
        "POST", "i", "/invocations?model_name=counter", body="1", X_Amzn_SageMaker_Session_Id=w.session)),
    ("the session with its owner", CLOSED, lambda w: w.http(
        "POST", "i", "/invocations?model_name=counter", body="1", X_Amzn_SageMaker_Session_Id="north/" + w.session)),
    ("with two names at once", (400,), lambda w: w.step(Continuo_Sequence="north/a")),
    ("an integer's mark in the name", (400,), lambda w: w.step("%01north/42".replace("%01", "\x01"))),
    # Sequences over the v2 protocol
    ("v2: continue the number", CLOSED, lambda w: w.infer(sequence_id=42)),
    ("v2: begin the number anew", (200,), lambda w: w.infer(sequence_id=42, sequence_start=True)),
    ("v2: end the number", (200,), lambda w: w.infer(sequence_id=42, sequence_end=True)),
    ("v2: the number as a text", CLOSED, lambda w: w.infer(sequence_id="42")),
    ("v2: the text with owner", CLOSED, lambda w: w.infer(sequence_id="north/42")),
    ("v2: by a header", (200, 400), lambda w: w.infer(headers={"Continuo-Sequence": "north/42"})),
    ("v2: by the session header", (200, 400), lambda w: w.infer(headers={"Inference-Session-Id": "42"})),
    ("v2: generate", (400, 404), lambda w: w.http("POST", "i", "/v2/models/accumulator/generate",
                                                 body='{"sequence_id": 42, "INPUT": 1}')),
    ("v2: regions of shared memory", (403,), shm),
    # Sequences over gRPC
    ("gRPC: continue it", (200,), lambda w: w.predict("a")),
    ("gRPC: with owner", (200,), lambda w: w.predict("north/a")),
    ("gRPC: the id that the server made", (200,), lambda w: w.predict(w.generated)),
    ("gRPC: in a stream", (200,), lambda w: w.stream("a")),
    ("gRPC: with owner in a stream", (200,), lambda w: w.stream("north/a")),
    ("gRPC v2: continue the number", ("INVALID_ARGUMENT",), lambda w: w.v2_step(42)),
    ("gRPC v2: begin it anew", (200,), lambda w: w.v2_step(42, sequence_start=True)),
    ("gRPC v2: the text with owner", (200, "INVALID_ARGUMENT"), lambda w: w.v2_step("north/42")),
    ("gRPC v2: in a stream", (200,), lambda w: w.v2_stream(42)),
    ("gRPC v2: status of regions", DENIED, lambda w: w.v2(lambda service, how: service.SystemSharedMemoryStatus(
        V2_MESSAGES.SystemSharedMemoryStatusRequest(), **how))),
    # Sequences over WebSockets
    ("WebSocket: continue it", (200,), lambda w: w.socket("counter", "e")),
    ("WebSocket: with owner", (200,), lambda w: w.socket("counter", "north/a")),
    ("WebSocket: resume it", (4004, 4009, 4010), lambda w: w.socket("counter", "f", query={"last": "1"})),
    # Sequences over management
    ("list them", NONE, lambda w: w.http("GET", "m", "/models/counter/sequences")),
    ("show it", NONE, lambda w: w.http("GET", "m", "/models/counter/sequences/north/a")),
    ("show its state", NONE, lambda w: w.http("GET", "m", "/models/counter/sequences/north/a?show_state=true")),
    ("export it", NONE, lambda w: w.http("GET", "m", "/models/counter/sequences/north/a?export=true", "south-ops")),
    ("fork it", NONE, lambda w: w.http("POST", "m", "/models/counter/sequences/north/a?fork_to=south/a", "south-ops")),
    ("replace it", NONE, lambda w: w.http("PUT", "m", "/models/counter/sequences/north/a", "south-ops", b"x")),
    ("delete it", NONE, lambda w: w.http("DELETE", "m", "/models/counter/sequences/north/a", "south-ops")),
    ("list them by an odd path", NONE, lambda w: w.http("GET", "m", "//models//counter//sequences", "south-ops")),
    # The north's own model
    ("run its model", NONE, lambda w: w.step(model="north-only")),
    ("run its model by a parameter", NONE, lambda w: w.http("POST", "i", "/invocations?model_name=north-only")),
    ("run its model by an escaped name", NONE, lambda w: w.step(model="north%2Donly")),
    ("explain with its model", NONE, lambda w: w.http("POST", "i", "/explanations/north-only")),
    ("v1 of its model", NONE, lambda w: w.http("GET", "i", "/v1/models/north-only")),
    ("v2: run its model", NONE, lambda w: w.infer(model="north-only")),
    ("v2: what its model takes", NONE, lambda w: w.http("GET", "i", "/v2/models/north-only")),
    ("v2: its configuration", NONE, lambda w: w.http("GET", "i", "/v2/models/north-only/config")),
    ("v2: is it ready", NONE, lambda w: w.http("GET", "i", "/v2/models/north-only/ready")),
    ("v2: unload it", NONE, lambda w: w.http("POST", "i", "/v2/repository/models/north-only/unload", "south-ops")),
    ("gRPC: run its model", DENIED, lambda w: w.predict("a", model="north-only")),
    ("gRPC: its model in a stream", (200,), lambda w: w.stream("a", model="north-only")),
    ("WebSocket: its model", NONE, lambda w: w.socket("north-only", "a")),
    ("describe it", NONE, lambda w: w.http("GET", "m", "/models/north-only", "south-ops")),
    ("scale it", NONE, lambda w: w.http("PUT", "m", "/models/north-only?min_worker=0", "south-ops")),
    ("remove it", NONE, lambda w: w.http("DELETE", "m", "/models/north-only", "south-ops")),
    ("make a version of it the default", NONE, lambda w: w.http("PUT", "m", "/models/north-only/1.0/set-default",
                                                               "south-ops")),
    ("register over it", NONE, lambda w: w.http("POST", "m", "/models?url=echo.mar&model_name=north-only",
                                               "south-ops")),
    ("gRPC: describe it", DENIED, lambda w: w.manage("DescribeModel:DescribeModelRequest", "south-ops",
                                                    model_name="north-only")),
    ("gRPC: remove it", DENIED, lambda w: w.manage("UnregisterModel:UnregisterModelRequest", "south-ops",
                                                  model_name="north-only")),
    ("gRPC: list all", DENIED, lambda w: w.manage("ListModels:ListModelsRequest", "south-ops", limit=9)),
    # The server's figures
    ("metrics", NONE, lambda w: w.http("GET", "x", "/metrics", "south")),
    ("metrics as operator", NONE, lambda w: w.http("GET", "x", "/metrics", "south-ops")),
    ("metrics by name", NONE, lambda w: w.http("GET", "x", "/metrics?name[]=continuo_jobs_total", "south-ops")),
    ("v2: figures of its model", NONE, lambda w: w.http("GET", "i", "/v2/models/north-only/stats")),
    ("v2: figures of all", NONE, lambda w: w.http("GET", "i", "/v2/models/stats")),
    ("gRPC v2: figures of all", DENIED, lambda w: w.v2(lambda service, how: service.ModelStatistics(
        V2_MESSAGES.ModelStatisticsRequest(), **how))),
    ("the list of models", NONE, lambda w: w.http("GET", "m", "/models", "south-ops")),
    ("the repository's list", NONE, lambda w: w.http("POST", "i", "/v2/repository/index")),
    ("the slow log", NONE, lambda w: w.http("GET", "m", "/slowlog", "south-ops")),
    ("the page's feed", NONE, lambda w: w.http("GET", "m", "/events", "south-ops")),
    ("the stores", NONE, lambda w: w.http("GET", "m", "/stores", "south-ops")),
    ("the log's settings", NONE, lambda w: w.http("GET", "i", "/v2/logging", "south-ops")),
    ("without a key", (401,), lambda w: w.step(key=None)),
]


@pytest.fixture
def world(server, folder):
    keys = Keys(folder)
    for side in ("north", "south"):
        keys.add(side, "infer", "--models", f"{SHARED},{side}-only")
        keys.add(f"{side}-ops", "manage,observe", "--models", f"{side}-only")
    s = server(counter(), accumulator(), stateless(), stateless("north-only"), stateless("south-only"),
               flags=["--keys", keys.path, "--model-control-mode", "explicit", "--allow-client-shm"])
    return World(s, keys)


def settle(world):
    """Opens the north's sequences."""
    assert world.step(key="north", body=str(SECRET), Idempotency_Key="north-1")[0] == 200
    for name in "bcdef":
        assert world.step(name, key="north", body=str(SECRET), Idempotency_Key="north-1")[0] == 200
    made = requests.post(world.server.inference + "/predictions/counter", data=str(SECRET), timeout=limit(20),
                         headers=world.keys.http("north"))
    world.generated = made.headers[SEQUENCE]
    opened = requests.post(world.server.inference + "/invocations?model_name=counter", data=str(SECRET),
                           headers={"X-Amzn-SageMaker-Session-Id": "NEW_SESSION", **world.keys.http("north")},
                           timeout=limit(20))
    world.session = opened.headers["X-Amzn-SageMaker-New-Session-Id"].partition(";")[0]
    assert world.infer("north", value=SECRET, sequence_id=42, sequence_start=True)[0] == 200


def test_no_tenant_reaches_what_is_the_others(world):
    """Each attempt is refused, or works on a sequence of the south's own; and the north's are as they were."""
    assert len(ATTEMPTS) == 83
    settle(world)
    for what, allowed, attempt in ATTEMPTS:
        status, text = attempt(world)
        assert status in allowed, (what, status, text)
        assert str(SECRET)[:7] not in text, (what, text)
        if status == 200 and "its model in a stream" in what:
            assert "key_forbidden" in text, text
    for name in ["a", *"bcdef", world.generated]:
        status, text = world.step(name, key="north")
        assert status == 200 and text.endswith(f" {SECRET + 1}"), (name, text)
    assert str(SECRET + 1) in world.http("POST", "i", "/invocations?model_name=counter", "north", "1",
                                         X_Amzn_SageMaker_Session_Id=world.session)[1]
    assert str(SECRET + 1) in world.infer("north", sequence_id=42)[1]


def shared_keys(folder):
    return Keys(folder).add("north", "infer").add("south", "infer").add("ops", "manage")


def test_the_same_id_of_two_keys_is_two_sequences(server, folder):
    """Clients see their ids only, and operators see whose they are."""
    keys = shared_keys(folder)
    s = server(counter(), flags=["--keys", keys.path])
    client, ops = s.client(), keys.http("ops")
    for name, body, text in (("north", "5", "5"), ("south", "7", "7"), ("north", "1", "6"), ("south", "1", "8")):
        answer = client.post("/predictions/counter", body, headers={"Continuo-Sequence": "a", **keys.http(name)})
        assert (answer.text, answer.headers["Continuo-Sequence"]) == (text, "a"), answer
    made = client.post("/predictions/counter", "9", headers=keys.http("north"))
    assert made.sequence.startswith("ts-seq-")
    assert client.post("/predictions/counter", "1", headers={SEQUENCE: made.sequence, **keys.http("north")}).text == "10"
    found = s.admin().get("/models/counter/sequences", headers=ops).json["sequences"]
    assert sorted(each["sequence"] for each in found) == sorted(["north/a", "south/a", "north/" + made.sequence])
    only = s.admin().get("/models/counter/sequences?prefix=south/", headers=ops).json["sequences"]
    assert [each["sequence"] for each in only] == ["south/a"]
    assert s.admin().delete("/models/counter/sequences/south/a", headers=ops).status == 200
    gone = client.post("/predictions/counter", "1", headers={SEQUENCE: "a", **keys.http("south")})
    assert (gone.status, gone.error) == (410, "sequence_ended")
    assert client.post("/predictions/counter", "1", headers={SEQUENCE: "a", **keys.http("north")}).text == "7"


def test_a_new_key_of_the_same_name_has_the_sequences(server, folder):
    """Keys are replaced from time to time, and a restart must not lose the owner."""
    keys = shared_keys(folder)
    s = server(counter(), flags=["--keys", keys.path])
    assert s.client().post("/predictions/counter", "5", headers={SEQUENCE: "a", **keys.http("north")}).text == "5"
    s.stop()
    keys.path.unlink()
    keys.add("north", "infer")
    s.start()
    assert s.client().post("/predictions/counter", "1", headers={SEQUENCE: "a", **keys.http("north")}).text == "6"


def test_sequences_may_be_shared(server, folder):
    """With --sequence-ownership=false an id is the same for all keys."""
    keys = shared_keys(folder)
    s = server(counter(), flags=["--keys", keys.path, "--sequence-ownership=false"])
    for name, text in (("north", "1"), ("south", "2")):
        assert s.client().post("/predictions/counter", "1", headers={SEQUENCE: "a", **keys.http(name)}).text == text


def test_an_id_that_is_too_long_with_its_owner_is_refused(server, folder):
    keys = shared_keys(folder)
    s = server(counter(), flags=["--keys", keys.path])
    for length, status in ((250, 200), (251, 400)):
        answer = s.client().post("/predictions/counter", "1", headers={SEQUENCE: "x" * length, **keys.http("north")})
        assert answer.status == status, answer
    assert answer.message == "the sequence id has 251 bytes; the limit for the key north is 250"


def test_a_stream_is_not_taken_over_by_another_key_with_the_same_id(world):
    """Each key has a sequence of its own under this id, so both streams go on, on any loop."""
    with Stream(world.server, "counter", "same", headers=world.keys.http("north")) as north:
        assert body_of(north.step(4)) == "4"
        for _ in range(4):
            with Stream(world.server, "counter", "same", headers=world.keys.http("south")) as south:
                assert south.step(1)
        assert body_of(north.step(1)) == "5"
