"""continuo-archiver import makes archives from folders of a Triton model repository, and the server runs them."""

import json

import numpy as np
import pytest

from models import archiver
from test_v2_http import client_of, tensor

CONFIG = """
name: "sums"  # a running sum
backend: "%s"
max_batch_size: 4
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output { name: 'OUTPUT', data_type: TYPE_INT32; dims: 1 label_filename: "labels.txt" }
instance_group [ { count: 2 kind: KIND_CPU } ]
parameters { key: "step" value: { string_value: "1" "0" } }
dynamic_batching { max_queue_delay_microseconds: 0x64 }
optimization { graph { level: 1 } }
made_up: 5
%s
"""

LUA = """
local step
return { api = 1,
    load = function(ctx) step = tonumber(ctx.config.parameters.step) end,
    handle = function(req)
        return { outputs = { OUTPUT = { datatype = "INT32", shape = { 1, 1 },
                                        data = { req.inputs.INPUT.values[1] * step + %d } } } }
    end }
"""


@pytest.fixture
def repository(folder):
    """repository(config, {version: handler}) makes a folder in Triton's layout."""
    def make(config, versions, **files):
        model = folder / "repository" / "sums"
        for version, lua in versions.items():
            (model / str(version)).mkdir(parents=True)
            (model / str(version) / "handler.lua").write_text(lua)
        (model / "config.pbtxt").write_text(config)
        for name, content in files.items():
            path = model / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        return model
    return make


def infer(s, model, value):
    return client_of(s).infer(model, [tensor("INPUT", np.array([[value]], np.int32), "INT32")]).as_numpy("OUTPUT")


def test_a_folder_becomes_an_archive(server, repository):
    """The archive can be loaded. Fields without a meaning here are listed with their lines."""
    model = repository(CONFIG % ("lua", ""), {1: LUA % 1, 3: LUA % 3})
    s = server(start=False)
    run = archiver("import", model, "--export-path", s.store)
    lines = [line.partition("config.pbtxt:")[2] for line in run.stdout.splitlines() if "not carried over" in line]
    assert lines == [
        "6: output.label_filename is not carried over: classification answers carry no labels",
        "10: optimization is not carried over: it configures backends that are not used here",
        "11: made_up is not carried over: unknown field",
    ]
    assert run.stdout.splitlines()[-1] == f"{s.store}/sums.mar: version 3"
    s.models.append("sums=sums.mar")
    s.start()
    assert infer(s, "sums", 5).tolist() == [[53]]
    shown = s.describe("sums")
    assert (shown["modelVersion"], shown["minWorkers"], shown["maxWorkers"], shown["batchSize"]) == ("3", 2, 2, 4)


@pytest.mark.parametrize("policy, made", [
    ("version_policy: { all { } }", ["sums-1.mar", "sums-2.mar", "sums-10.mar"]),
    ("version_policy { specific { versions: [ 1, 10 ] } }", ["sums-1.mar", "sums-10.mar"]),
    ("version_policy { latest { num_versions: 2 } }", ["sums-10.mar", "sums-2.mar"]),
    ("", ["sums.mar"]),
])
def test_versions_by_the_policy(repository, folder, policy, made):
    """Each version becomes an archive with a name of its own. A second run needs --force."""
    model = repository(CONFIG % ("lua", policy), {1: LUA % 1, 2: LUA % 2, 10: LUA % 10})
    store = folder / "made"
    store.mkdir()
    if len(made) > 1:
        made = ["sums.mar", *made]
        (store / "sums.mar").write_bytes(b"another's")
    archiver("import", model, "--export-path", store)
    assert sorted(path.name for path in store.iterdir()) == sorted(made)
    assert "exists" in archiver("import", model, "--export-path", store, check=False).stderr
    archiver("import", model, "--export-path", store, "--force")
    if len(made) > 1:
        assert (store / "sums.mar").read_bytes() == b"another's"


def test_other_backends_need_a_handler(repository, folder):
    """The message says what to do. With --handler the import works, and the archive contains the version's files."""
    model = repository(CONFIG % ("tensorrt", ""), {1: LUA % 1}, **{"1__model.onnx": b"weights"})
    (model / "1" / "handler.lua").unlink()
    run = archiver("import", model, "--export-path", folder, check=False)
    assert run.returncode == 1
    assert "the backend tensorrt is not supported; models of the backends python and" in run.stderr
    other = folder / "other.lua"
    other.write_text(LUA % 7)
    archiver("import", model, "--export-path", folder, "--handler", other)
    inspected = json.loads(archiver("inspect", "--json", folder / "sums.mar").stdout)
    assert inspected["manifest"]["model"]["handler"] == "other.lua"
    assert {"model.onnx", "other.lua", "model-config.yaml"} <= {each["path"] for each in inspected["files"]}


@pytest.mark.parametrize("config, words", [
    ("max_batch_size 4", "config.pbtxt:1:16: expected : or { after the name of a field"),
    ('backend: "lua" input { name: "A" data_type: TYPE_FLOAT dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 }',
     "expected BOOL, UINT8"),
    ('backend: "lua" instance_group { count: 5000 }', "a number from 0 to 1024"),
    ('backend: "lua" parameters { key: "a" }', "expected key and value { string_value }"),
])
def test_what_is_wrong_is_named(repository, folder, config, words):
    """Nothing is written in these cases."""
    run = archiver("import", repository(config, {1: LUA % 1}), "--export-path", folder, check=False)
    assert run.returncode == 1 and words in run.stderr, run.stderr
    assert not list(folder.glob("*.mar"))


def test_folders_that_are_none(folder):
    """A folder without config.pbtxt, and one without a version."""
    assert "config.pbtxt; give the folder of a model in a Triton repository" in archiver("import", folder, check=False).stderr
    (folder / "config.pbtxt").write_text('backend: "lua"')
    assert "has no version folder" in archiver("import", folder, check=False).stderr
    run = archiver("import", check=False)
    assert run.returncode == 2 and "name the folder of a model" in run.stderr


@pytest.mark.parametrize("command", ["import", "inspect", "verify", "keygen", "sign", "suggest"])
def test_each_command_of_the_archiver_answers_help(command):
    """A newcomer asks a command for help before its arguments are known. The text fits 100 columns."""
    shown = archiver(command, "--help").stdout
    assert f"continuo-archiver {command} " in shown and max(map(len, shown.splitlines())) <= 100
