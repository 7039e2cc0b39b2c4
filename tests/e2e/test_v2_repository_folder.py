"""--model-repository serves a Triton model repository as it is, and reports what cannot be served."""

import json
import subprocess

import pytest
import requests
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from server import BIN
from test_v2_http import one
from waiting import expect, limit

ADD_LUA = """return { api = 1, handle = function(req)
    return { outputs = { Y = { datatype = "INT32", shape = { 1 }, data = { req.inputs.X.values[1] + %d } } } }
end }
"""
CONFIG = """backend: "%s"
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
version_policy { all {} }
%s
"""


def put(repository, name, versions, backend="lua", more="", file="handler.lua"):
    for version, text in versions.items():
        (repository / name / str(version)).mkdir(parents=True, exist_ok=True)
        (repository / name / str(version) / file).write_text(text)
    (repository / name / "config.pbtxt").write_text(CONFIG % (backend, more))


@pytest.fixture
def repository(folder):
    made = folder / "repository"
    made.mkdir()
    return made


@pytest.fixture
def serve(server, repository):
    """serve(flags...) starts a server on the repository, without a model store."""
    def make(*flags):
        return server(flags=["--model-repository", str(repository), *flags])
    return make


def add(s, model, number, version=None):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
    answer = requests.post(s.inference + path, data=json.dumps(one("X", "INT32", [1], [number])), timeout=limit(20))
    return answer.json()["outputs"][0]["data"][0] if answer.status_code == 200 else answer.json()["error"]


def index(s):
    return {(each["name"], each.get("version")): (each.get("state"), each.get("reason", ""))
            for each in requests.post(s.inference + "/v2/repository/index", timeout=limit(20)).json()}


def test_a_repository_is_served_as_it_lies_there(serve, repository):
    """Every model and version is served, also with dots in the name, and even if the folder can only be read."""
    put(repository, "adder", {1: ADD_LUA % 1, 3: ADD_LUA % 3})
    put(repository, "with.dots.2", {1: ADD_LUA % 10})
    put(repository, "python-beside", {1: ADD_LUA % 7}, backend="python")
    (repository / "python-beside" / "1" / "model.py").write_text("raise SystemExit")
    (repository / "no-model").mkdir()
    before = sorted(str(path) for path in repository.rglob("*"))
    for path in (*repository.rglob("*"), repository):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        s = serve()
        assert (add(s, "adder", 1), add(s, "adder", 1, 1), add(s, "adder", 1, 3)) == (4, 2, 4)
        assert add(s, "with.dots.2", 1) == 11
        assert add(s, "python-beside", 1) == 8
        assert {name for name, _ in index(s)} == {"adder", "with.dots.2", "python-beside"}
        s.stop()
        assert add(s.restart(), "adder", 1) == 4
    finally:
        for path in (repository, *repository.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert sorted(str(path) for path in repository.rglob("*")) == before


def test_what_cannot_be_served_is_told_and_the_rest_runs(serve, repository):
    """The log has a line with a hint, the index has the reason, and the server is ready."""
    put(repository, "adder", {1: ADD_LUA % 1}, more="optimization { graph { level: 1 } }")
    put(repository, "network", {1: "x"}, backend="tensorrt", file="model.plan")
    put(repository, "typo", {1: ADD_LUA % 1}, more="max_batch_size: {}")
    s = serve()
    assert add(s, "adder", 1) == 2
    assert requests.get(s.inference + "/v2/health/ready", timeout=limit(20)).status_code == 200
    line = s.expect_log("event=model_not_imported", "model=network")
    assert "the backend tensorrt is not supported" in line and "continuo-archiver import" in line
    s.expect_log("event=model_not_imported", "model=typo")
    s.expect_log("event=model_field_ignored", "optimization is not carried over")
    state, reason = index(s)["network", None]
    assert state == "UNAVAILABLE" and "the backend tensorrt is not supported" in reason


def test_explicit_loads_read_the_folder_again(serve, repository):
    """If the folder has changed, the model is loaded again. If not, it stays up with its workers."""
    put(repository, "adder", {1: ADD_LUA % 1})
    put(repository, "other.one", {1: ADD_LUA % 5})
    put(repository, "network", {1: "x"}, backend="tensorrt", file="model.plan")
    s = serve("--model-control-mode", "explicit", "--models", "adder")
    client = triton.InferenceServerClient(s.inference.removeprefix("http://"))
    assert add(s, "adder", 1) == 2 and "unknown model" in add(s, "other.one", 1)
    client.load_model("other.one")
    assert add(s, "other.one", 1) == 6
    pids = s.ready_pids("adder")
    client.load_model("adder")
    assert s.ready_pids("adder") == pids
    put(repository, "adder", {1: ADD_LUA % 2})
    client.load_model("adder")
    assert add(s, "adder", 1) == 3
    put(repository, "late", {1: ADD_LUA % 4})
    client.load_model("late")
    assert add(s, "late", 1) == 5
    with pytest.raises(InferenceServerException, match="the backend tensorrt is not supported"):
        client.load_model("network")
    for name in ("nothing", "..", ".hidden"):
        with pytest.raises(InferenceServerException):
            client.load_model(name)
    client.unload_model("other.one")
    expect(lambda: "unknown model" in add(s, "other.one", 1), "it is unloaded")


@pytest.mark.parametrize("flags, says", [
    (["--model-repository", "REPOSITORY", "--model-store", "REPOSITORY"], "cannot be combined"),
    (["--model-repository", "REPOSITORY", "--model-control-mode", "poll"], "poll needs --model-store"),
    (["--model-repository", "REPOSITORY/nothing"], "REPOSITORY/nothing"),
])
def test_wrong_options_end_the_server(folder, repository, flags, says):
    """The message names the options and comes before anything is served."""
    words = [word.replace("REPOSITORY", str(repository)) for word in flags]
    done = subprocess.run([BIN / "continuo", *words, "--state-dir", folder / "state", "--inference-address",
                           "http://127.0.0.1:0", "--management-address", "http://127.0.0.1:0", "--metrics-address",
                           "http://127.0.0.1:0", "--grpc-inference-address", "none", "--grpc-management-address", "none"],
                          capture_output=True, text=True, timeout=limit(30), cwd=folder)
    assert done.returncode == 1 and says.replace("REPOSITORY", str(repository)) in done.stderr
