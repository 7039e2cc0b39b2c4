"""Typed models with handlers in C: examples/v2/square and identity."""

import json

import numpy as np
import pytest

from models import BUILD, Model, ROOT, archiver
from test_v2_http import TYPES, VALUES, client_of, post, tensor


@pytest.fixture
def run_c(server):
    """Starts a server with an example of examples/v2 that is a shared library."""
    def run(name):
        s = server(Model("echo"), start=False)
        archiver("--model-name", name, "--version", "1.0", "--handler", BUILD / "examples" / f"{name}.so",
                 "--config-file", ROOT / "examples" / "v2" / name / "model-config.yaml", "--export-path", s.store)
        s.models.append(f"{name}={name}.mar")
        s.start()
        return s
    return run


def test_square_computes_on_the_tensors_memory(run_c):
    """The handler gets and returns pointers. Shapes may have any size, including 0."""
    client = client_of(run_c("square"))
    for n in (1, 3, 0, 100_000):
        values = np.arange(n, dtype=np.float32) / 8
        got = client.infer("square", [tensor("IN", values, "FP32")]).as_numpy("OUT")
        assert got.tolist() == (values * values).tolist()


@pytest.mark.parametrize("datatype", TYPES)
def test_identity_gives_every_datatype_back(run_c, datatype):
    """The data is the same to the last bit, alone and with another input."""
    values = VALUES[datatype]
    given = [tensor(datatype, values, datatype)]
    if datatype != "INT8":
        given.append(tensor("INT8", np.array([-5], np.int8), "INT8"))
    answer = client_of(run_c("identity")).infer("identity", given)
    got = answer.as_numpy(datatype)
    assert answer.get_output(datatype)["shape"] == [2]
    if datatype == "BYTES":
        assert got.tolist() == values.tolist()
    else:
        assert got.tobytes() == values.tobytes()
    if datatype != "INT8":
        assert answer.as_numpy("INT8").tolist() == [-5]


def test_identity_of_bf16(run_c):
    """numpy does not have BF16, so the bytes are compared."""
    head = json.dumps({"inputs": [{"name": "BF16", "datatype": "BF16", "shape": [2],
                                   "parameters": {"binary_data_size": 4}}],
                       "parameters": {"binary_data_output": True}}).encode()
    answer = post(run_c("identity"), "identity", head + b"\x00\x3f\x00\xc0",
                  {"Inference-Header-Content-Length": str(len(head))})
    assert answer.content[int(answer.headers["Inference-Header-Content-Length"]):] == b"\x00\x3f\x00\xc0"
