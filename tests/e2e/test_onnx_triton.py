"""ONNX models of a Triton model repository (backend onnxruntime), as they lie there. Skipped where the packages
onnxruntime and onnx are missing (scripts/setup.sh --onnx)."""

import json

import numpy as np
import pytest
import requests

from models import archiver
from onnxing import library, packages
from test_onnx import graph, sums, value
from waiting import limit

onnxruntime, onnx = packages()
from onnx import helper  # noqa: E402  pylint: disable=wrong-import-position

DOUBLE = """platform: "onnxruntime_onnx"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ %s ] } ]
dynamic_batching { }
"""
SUMS = """backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { max_candidate_sequences: 8 }
    state [ { input_name: "h" output_name: "hN" data_type: TYPE_FP32 dims: [ 2 ]
              initial_state: { name: "ten" data_type: TYPE_FP32 dims: [ 2 ] data_file: "ten" } } ] }
"""


def double(**more):
    return graph([helper.make_node("Mul", ["x", "two"], ["y"])], [value("x", "batch", 2)], [value("y", "batch", 2)],
                 [("two", np.array([2, 2], np.float32))], **more)


@pytest.fixture
def repository(folder):
    made = folder / "repository"
    made.mkdir()
    return made


def put(repository, name, made, config, file="1/model.onnx", **save):
    path = repository / name / file
    path.parent.mkdir(parents=True)
    if made is not None:
        onnx.save(made, path, **save)
    (repository / name / "config.pbtxt").write_text(config)


@pytest.fixture
def serve(server, repository):
    return lambda *flags: server(flags=["--model-repository", str(repository), "--onnxruntime", library(), *flags])


def ask(s, model, x, **parameters):
    document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": x}], "parameters": parameters}
    answer = requests.post(f"{s.inference}/v2/models/{model}/infer", json=document, timeout=limit(60))
    return answer.json()["outputs"][0]["data"] if answer.status_code == 200 else (answer.status_code, answer.json()["error"])


def test_a_repository_of_onnx_models_is_served(serve, repository):
    """A file, another name, and a folder with weights beside the file; settings are in the configuration."""
    put(repository, "file", double(), DOUBLE % 2 + 'optimization { graph { level: 1 } }\nparameters { key: '
        '"intra_op_thread_count" value: { string_value: "2" } }')
    put(repository, "named", double(), DOUBLE % 2 + 'default_model_filename: "net.onnx"', "1/net.onnx")
    put(repository, "folder", double(), DOUBLE % 2, "1/model.onnx/model.onnx", save_as_external_data=True,
        location="weights.bin", size_threshold=0)
    s = serve()
    for name in ("file", "named", "folder"):
        assert ask(s, name, [1.5, -2]) == [3.0, -4.0], name
    config = requests.get(f"{s.inference}/v2/models/file/config", timeout=limit(20)).json()
    assert config["max_batch_size"] == 8 and config["input"][0]["name"] == "x"


def test_its_state_outlives_worker_and_server(serve, repository):
    """config.pbtxt says which tensors are the state, and with what it begins."""
    made = sums()
    put(repository, "sums", onnx.load_from_string(made.torchscript), SUMS)
    (repository / "sums" / "initial_state").mkdir()
    (repository / "sums" / "initial_state" / "ten").write_bytes(np.array([10, 20], np.float32).tobytes())
    s = serve()
    assert ask(s, "sums", [1, 1], sequence_id=5, sequence_start=True) == [11.0, 21.0]
    s.kill_worker("sums")
    assert ask(s, "sums", [1, 2], sequence_id=5) == [12.0, 23.0]
    s.kill()
    s.restart()
    assert ask(s, "sums", [1, 1], sequence_id=5, sequence_end=True) == [13.0, 24.0]
    assert "START" in ask(s, "sums", [1, 1], sequence_id=5)[1]


def test_what_does_not_fit_the_graph_is_told(serve, repository, folder):
    """The other models are served."""
    put(repository, "good", double(), DOUBLE % 2)
    put(repository, "shape", double(), DOUBLE % 3)
    put(repository, "absent", None, DOUBLE % 2)
    s = serve("--exit-on-model-failure=false")
    assert ask(s, "good", [1, 1]) == [2.0, 2.0]
    s.expect_log("event=model_failed", "output y of the graph", "FP32[-1,3]")
    s.expect_log("event=model_not_imported", "absent", "1/model.onnx does not exist")
    archiver("import", repository / "good", "--export-path", folder)
    inspected = json.loads(archiver("inspect", "--json", folder / "good.mar").stdout)["manifest"]
    assert inspected["model"]["serializedFile"] == "model.onnx" and inspected["runtime"] == "onnx"
