"""ONNX models for tests: the packages that make and run them, and the results of a bare loop of onnxruntime."""

import importlib
import importlib.util
import os
import pathlib
import sys

import numpy as np
import pytest

from models import BUILD, Model

ROOT = pathlib.Path(__file__).resolve().parents[2]


def packages(*more):
    """Returns the modules onnxruntime and onnx, for tests that compare with them. If one is missing, the file or the
    test is skipped. With CONTINUO_REQUIRE_ONNX=1, which the continuous integration sets, it fails instead."""
    if BUILD.name == "tsan":
        pytest.skip("a worker, which alone opens onnxruntime, runs our code in one thread", allow_module_level=True)
    missing = [name for name in ("onnxruntime", "onnx", *more) if not importlib.util.find_spec(name)]
    if not missing:
        return importlib.import_module("onnxruntime"), importlib.import_module("onnx")
    why = f"the Python packages {', '.join(missing)} are not installed: run scripts/setup.sh --onnx"
    if os.environ.get("CONTINUO_REQUIRE_ONNX") == "1":
        pytest.fail(why, pytrace=False)
    return pytest.skip(why, allow_module_level=True)


def library():
    """Returns the folder of the package, for --onnxruntime, because the python3 of PATH need not be that of the tests.
    CONTINUO_ONNXRUNTIME names the folder of another version."""
    if other := os.environ.get("CONTINUO_ONNXRUNTIME"):
        return pathlib.Path(other)
    return pathlib.Path(importlib.util.find_spec("onnxruntime").submodule_search_locations[0])


def example(name):
    """Returns the module export.py of an example."""
    spec = importlib.util.spec_from_file_location(f"export_{name.replace('-', '_')}",
                                                  ROOT / "examples" / name / "export.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def model(name, made, yaml, **more):
    data = made if isinstance(made, bytes) else made.SerializeToString()
    return Model(name, None, yaml, torchscript=data, torchscript_name="model.onnx", **more)


class Bare:
    """Runs onnxruntime in a loop with one thread. `states` maps inputs to outputs and first values."""

    def __init__(self, made, states, constants=None):
        onnxruntime, _ = packages()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        data = made if isinstance(made, bytes) else made.SerializeToString()
        self.session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.states, self.constants = states, constants or {}
        self.names = [output.name for output in self.session.get_outputs()]

    def begin(self):
        return {name: np.zeros(shape, np.float32) for name, (_, shape) in self.states.items()}

    def step(self, state, inputs):
        """Returns the outputs of one step of one row, and changes `state` in place."""
        given = dict(zip(self.names, self.session.run(None, {**inputs, **state, **self.constants})))
        for name, (output, _) in self.states.items():
            state[name] = given[output]
        return given
