"""A server is ready when every model that it was started with is up, and otherwise says why it is not."""

import socket

import grpc
import pytest
import requests
import tritonclient.grpc

from models import counter, stateless
from ports import free_port
from waiting import expect

BROKEN_LUA = "return { api = 1, step = function() end, load = function() error('no weights') end }"


def launched_with_held_model(server, source, *flags):
    """A server whose ports are known before its ready line. One of its models is loaded soon, and the archive of the
    other one does not come before source.go_on."""
    ports = {which: free_port() for which in ("inference", "management", "metrics", "grpc-inference")}
    flags = [*flags, "--allowed-urls", f"{source.base}/.*"]
    for which, port in ports.items():
        flags += [f"--{which}-address", f"http://127.0.0.1:{port}"]
    s = server(stateless("quick"), f"slow={source.base}/slow/slow.mar", flags=flags, start=False)
    s.pack(counter("slow"), file_name="slow.mar").rename(source.folder / "slow.mar")
    s.launch()
    s.inference, s.management, s.metrics, s.grpc = (f"http://127.0.0.1:{port}" for port in ports.values())
    s.grpc = s.grpc.removeprefix("http://")
    expect(lambda: can_connect(ports["management"]), "the server listens")
    return s


def can_connect(port):
    with socket.socket() as made:
        return made.connect_ex(("127.0.0.1", port)) == 0


def reasons(s):
    answer = s.client().get("/ping")
    assert answer.status in (200, 500)
    return {each["reason"]: each["count"] for each in answer.json.get("reasons", [])}


def metric(s, reason):
    text = requests.get(s.metrics + "/metrics", timeout=20).text
    line = next(line for line in text.splitlines() if line.startswith(f'continuo_unready{{reason="{reason}"}}'))
    return float(line.split()[-1])


def grpc_health(s):
    with grpc.insecure_channel(s.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        return check(b"", timeout=20)[1]  # 1: serving, 2: not serving


def test_not_ready_before_the_models_of_the_command_line_are_up(server, source):
    """All kinds of readiness checks say so. The server is alive all the time, and no client is told that a model does
    not exist."""
    s = launched_with_held_model(server, source)
    triton = tritonclient.grpc.InferenceServerClient(s.grpc)
    expect(lambda: s.client().post("/predictions/quick", b"x").status == 200, "the other model is up")
    assert reasons(s) == {"starting": 1} and metric(s, "starting") == 1
    assert s.client().get("/v2/health/ready").status == 400 and s.client().get("/v2/health/live").status == 200
    assert grpc_health(s) == 2 and triton.is_server_live() and not triton.is_server_ready()
    for answer in (s.client().step("slow", "a", 1), s.client().get("/v2/models/slow/ready"),
                   s.admin().put("/models/slow/sequences/a", b"an envelope"), s.admin().get("/models/slow/sequences"),
                   s.admin().put("/models/slow?min_worker=2"), s.admin().delete("/models/slow/1.0")):
        assert (answer.status, answer.error) == (503, "model_loading"), answer
    source.go_on.set()
    expect(lambda: s.client().get("/ping").status == 200, "the server is ready")
    assert metric(s, "starting") == 0 and grpc_health(s) == 1 and triton.is_server_ready()
    assert s.client().step("slow", "a", 1).status == 200
    triton.close()


@pytest.mark.parametrize("model, why", [
    ("gone.mar", "gone.mar: Model not found at: gone.mar"),
    ("torn.mar", "torn.mar"),
    (stateless("broken", BROKEN_LUA), "no weights"),
], ids=["missing", "torn", "load fails"])
def test_a_model_that_cannot_be_loaded_ends_the_server(server, model, why):
    """The exit status is 1, and a line names the model, the reason and the flag. Other models may have been loaded
    already."""
    s = server(counter(), model, start=False)
    (s.store / "torn.mar").write_bytes(b"PK\3\4 no archive")
    s.launch()
    assert s.exit_code() == 1
    said = [line for line in s.lines if line.startswith("continuo: cannot load a model named at start: ")]
    assert len(said) == 1 and why in said[0] and "--exit-on-model-failure=false" in said[0], s.lines
    noise = "Model server started", "event=draining", "event=drained", "event=worker_stopped"
    assert not [line for line in s.lines if any(word in line for word in noise)], "lines that hide the reason"
    expect(lambda: not s.session_members(), "no worker is left")


def test_without_the_exit_it_is_not_ready_until_the_model_is_there(server):
    """It is ready as soon as the model is registered."""
    s = server(counter(), "late=late.mar", flags=["--exit-on-model-failure=false"])
    assert reasons(s) == {"model_failed": 1} and metric(s, "model_failed") == 1
    assert s.client().get("/v2/health/ready").status == 400 and grpc_health_of(s) == 2
    assert s.client().step("counter", "a", 1).status == 200
    s.pack(counter("other"), file_name="other.mar")
    assert s.register_url("other.mar").status == 200
    assert reasons(s) == {"model_failed": 1}
    s.pack(counter("late"), file_name="late.mar")
    assert s.register_url("late.mar").status == 200
    assert reasons(s) == {} and s.client().get("/ping").status == 200 and grpc_health_of(s) == 1


def grpc_health_of(s):
    with grpc.insecure_channel(s.grpc.removeprefix("http://")) as channel:
        return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)[1]


def test_a_lenient_server_is_ready_without_a_missing_model(server):
    """--strict-readiness=false, as with Triton: a client that needs a model must ask whether that model exists."""
    s = server(counter(), "gone.mar", flags=["--exit-on-model-failure=false", "--strict-readiness=false"])
    assert reasons(s) == {} and s.client().get("/v2/health/ready").status == 200


def test_a_model_registered_at_run_time_does_not_count(server):
    """The caller gets the error. Readiness depends only on the models of the start."""
    s = server(counter())
    assert s.register(stateless("broken", BROKEN_LUA)).status == 500
    assert s.register_url("gone.mar").status == 404
    assert reasons(s) == {}


def test_the_program_torchserve_starts_without_a_model_that_fails(torchserve):
    """TorchServe logs the failure, continues and is healthy. One of our settings asks for the other rule."""
    t = torchserve()
    t.properties()
    (t.store / "torn.mar").write_bytes(b"no archive")
    t.start("--ncs", "--model-store", t.store, "--models", "torn.mar")
    assert t.client().get("/ping").text == '{\n  "status": "Healthy"\n}\n'
    t.stop()
    t.properties("continuo.exit-on-model-failure=true\n")
    code, said = t.run("--start", "--ncs", "--model-store", t.store, "--models", "torn.mar")
    assert code == 1 and "cannot load a model named at start: torn.mar" in t.text, said
