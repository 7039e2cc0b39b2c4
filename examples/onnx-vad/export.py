#!/usr/bin/env python3
"""Makes model.onnx of the file that the package silero-vad has: with the end of the last chunk as a state.

    .venv/bin/python examples/onnx-vad/export.py FOLDER

silero-vad's graph takes a chunk with the 64 samples before it, which its package keeps in Python. Here the graph itself
puts them in front and gives the last 64 samples back, so that the server keeps them as it keeps any state.
"""

import importlib.util
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONTEXT = 64  # samples at 16 kHz


def source():
    package = pathlib.Path(importlib.util.find_spec("silero_vad").submodule_search_locations[0])
    return package / "data" / "silero_vad.onnx"


def with_context(model):
    graph = model.graph
    graph.input.remove(next(value for value in graph.input if value.name == "input"))
    # The sizes stay open: the graph has a branch for 8 kHz, too, whose chunks are half as long.
    graph.input.extend([helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["batch", "samples"]),
                        helper.make_tensor_value_info("context", TensorProto.FLOAT, ["batch", "before"])])
    graph.output.append(helper.make_tensor_value_info("contextN", TensorProto.FLOAT, ["batch", "end"]))
    graph.initializer.extend(numpy_helper.from_array(np.array([value], np.int64), name)
                             for name, value in (("from", -CONTEXT), ("to", np.iinfo(np.int64).max), ("axis", 1)))
    graph.node.insert(0, helper.make_node("Concat", ["context", "audio"], ["input"], axis=1))
    graph.node.append(helper.make_node("Slice", ["input", "from", "to", "axis"], ["contextN"]))
    onnx.checker.check_model(model)
    return model


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    onnx.save(with_context(onnx.load(source())), pathlib.Path(sys.argv[1]) / "model.onnx")


if __name__ == "__main__":
    main()
