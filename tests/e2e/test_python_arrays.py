"""Typed models in Python get NumPy arrays and may return arrays of every layout."""

import json

import pytest

from models import python
from test_python import pytestmark  # noqa: F401 - a fixture, and the reason to skip

TYPED = """
import numpy as np


def init(req):
    return np.zeros(2, np.float32)


def step(state, req):
    state += req.inputs["X"]
    return {"Y": state.copy(), "S": [f"{value:.1f}" for value in state]}
"""


def test_typed_models_get_and_give_arrays(server):
    """Inputs are NumPy arrays by name. Outputs may be arrays or lists, and are checked."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("t", TYPED,
                      input=[{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
                      output=[{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]},
                              {"name": "S", "data_type": "TYPE_STRING", "dims": [2]}]))
    client = s.client()
    for number in (1, 2):
        body = json.dumps({"parameters": {"sequence_id": "a", "sequence_start": number == 1},
                           "inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}]})
        answer = client.post("/v2/models/t/infer", body)
        outputs = {each["name"]: each["data"] for each in answer.json["outputs"]}
        assert outputs == {"Y": [number, 2.5 * number], "S": [f"{number}.0", f"{2.5 * number:.1f}"]}


@pytest.mark.parametrize("inputs, outputs, key, datatype", [
    ("inputs", "outputs", "dataType", "FP32"), ("input", "output", "data_type", "TYPE_FP32"),
    ("inputs", "outputs", "datatype", "FP32"), ("input", "output", "dataType", "TYPE_FP32")])
@pytest.mark.parametrize("text", ["""
import numpy as np


def handle(req):
    return {"Y": 2 * req.inputs["X"]}
""", """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * request.inputs()[0].as_numpy())])
                for request in requests]
"""], ids=["native", "triton"])
def test_a_datatype_has_each_name_that_the_yaml_may_have(server, text, inputs, outputs, key, datatype):
    """docs/model-config.md: dataType, data_type and datatype."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("t", text, stateful=False, **{
        inputs: [{"name": "X", key: datatype, "dims": [2]}], outputs: [{"name": "Y", key: datatype, "dims": [2]}]}))
    answer = s.client().post("/v2/models/t/infer", json.dumps(
        {"inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "data": [1, 2.5]}]}))
    assert answer.status == 200 and answer.json["outputs"][0]["data"] == [2, 5], answer


def test_bytes_of_numpy_are_a_body(server):
    """numpy.bytes_ is derived from bytes."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    s = server(python("t", "import numpy as np\nfrom continuo import Reply\n\n\ndef step(state, req):\n"
                      "    return Reply(np.array([req.body], 'S')[0])\n", sequenceBatching=False))
    answer = s.client().post("/predictions/t", "some bytes")
    assert (answer.status, answer.text) == (200, "some bytes")


LAYOUTS = """
import numpy as np
from continuo import Reply

GRID = np.arange(12, dtype=np.int32).reshape(3, 4)
VALUES = {
    "whole": lambda: GRID,
    "columns": lambda: GRID[:, ::2],
    "backwards": lambda: GRID[::-1, ::-1],
    "transposed": lambda: GRID.T,
    "fortran": lambda: np.asfortranarray(GRID),
    "other-order": lambda: GRID.astype(">i4"),
    "unaligned": lambda: np.frombuffer(b"x" + GRID.tobytes(), np.int32, offset=1),
    "read-only": lambda: np.frombuffer(GRID.tobytes(), np.int32),
    "scalar": lambda: np.array(7, np.int32),
    "number": lambda: 7,
    "large": lambda: np.arange(600, dtype=np.int32).reshape(20, 30).T,
    "large-float": lambda: np.zeros((20, 30), np.float32).T,
    "empty": lambda: np.zeros((0, 4), np.int32),
    "matrix": lambda: np.asmatrix(GRID),
    "field": lambda: np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")])["a"],
    "float": lambda: GRID.astype(np.float32),
    "date": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "pairs": lambda: np.array([(1, 2)], "<i4,<i4"),
    "deep": lambda: np.zeros((1,) * 17, np.int32),
}


def step(state, req):
    value = VALUES[req.parameters["what"]]()
    return Reply(outputs={"Y": value}) if req.parameters["reply"] else {"Y": value}
"""


def test_outputs_of_every_layout(server):
    """The client gets the elements in the order of their indices, however the array keeps them in memory."""
    pytest.importorskip("numpy", reason="the tests' own Python has no NumPy")
    grid = [[4 * row + column for column in range(4)] for row in range(3)]
    flat = [value for row in grid for value in row]
    right = {"whole": ([3, 4], flat), "columns": ([3, 2], [row[i] for row in grid for i in (0, 2)]),
             "backwards": ([3, 4], flat[::-1]), "transposed": ([4, 3], [row[i] for i in range(4) for row in grid]),
             "fortran": ([3, 4], flat), "other-order": ([3, 4], flat), "unaligned": ([12], flat), "read-only": ([12], flat),
             "scalar": ([], [7]), "number": ([], [7]),
             "large": ([30, 20], [30 * row + column for column in range(30) for row in range(20)]), "empty": ([0, 4], []), "matrix": ([3, 4], flat), "field": ([2], [1, 3])}
    wrong = {"large-float": "output 'Y' is an array of FP32, but the model declares INT32: convert it with .astype()",
             "float": "output 'Y' is an array of FP32, but the model declares INT32: convert it with .astype()",
             "date": "output 'Y': an array of type datetime64[D] has no datatype of v2",
             "pairs": "has no datatype of v2", "deep": "output 'Y': its rank is 17, and at most 16 is possible"}
    s = server(python("t", LAYOUTS, sequenceBatching=False,
                      input=[{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
                      output=[{"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]}]))
    client = s.client()

    def ask(what, reply):
        return client.post("/v2/models/t/infer", json.dumps(
            {"parameters": {"what": what, "reply": reply},
             "inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [1]}]}))

    for reply in (False, True):
        for what, (shape, data) in right.items():
            answer = ask(what, reply)
            assert answer.status == 200, (what, answer.text)
            (output,) = answer.json["outputs"]
            assert (what, output["shape"], output["data"], output["datatype"]) == (what, shape, data, "INT32")
        for what, words in wrong.items():
            answer = ask(what, reply)
            assert answer.status == 500 and words in answer.json["error"], (what, answer.text)
