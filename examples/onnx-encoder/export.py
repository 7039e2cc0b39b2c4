#!/usr/bin/env python3
"""Makes model.onnx and model-config.yaml of a streaming encoder: ten layers with three states each.

    .venv/bin/python examples/onnx-encoder/export.py FOLDER

Each layer has a causal convolution over the last four steps, a recurrent unit and a running mean, and their states have
the batch in the first, the second and the third dimension. The weights are random: the example shows how many states
of different shapes are served, not what they are good for.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, WIDTH, TAPS = 10, 16, 4


class Builder:
    def __init__(self):
        self.random = np.random.default_rng(7)
        self.nodes, self.inputs, self.outputs, self.weights, self.states = [], [], [], [], []

    def node(self, op, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape):
        return self.constant(self.random.normal(0, 0.6 / np.sqrt(shape[-2]), shape).astype(np.float32))

    def state(self, name, dims, axis):
        """The state as an input; `dims` without the batch, which is put in at `axis`."""
        shape = [*dims[:axis], "batch", *dims[axis:]]
        self.inputs.append(helper.make_tensor_value_info(f"{name}_in", TensorProto.FLOAT, shape))
        self.outputs.append(helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, shape))
        self.states.append((name, dims, axis))
        return f"{name}_in"

    def give(self, name, value):
        self.nodes.append(helper.make_node("Identity", [value], [f"{name}_out"]))


def layer(b, index, x):
    one, two, zero = b.constant(np.array([1], np.int64)), b.constant(np.array([2], np.int64)), \
        b.constant(np.array([0], np.int64))
    end = b.constant(np.array([np.iinfo(np.int64).max], np.int64))

    window = b.node("Concat", b.state(f"conv{index}", [WIDTH, TAPS - 1], 0), b.node("Unsqueeze", x, two), axis=2)
    b.give(f"conv{index}", b.node("Slice", window, one, end, two))
    y = b.node("ReduceSum", b.node("Mul", window, b.weight(WIDTH, TAPS)), two, keepdims=0)

    h = b.node("Squeeze", b.state(f"hidden{index}", [1, WIDTH], 1), zero)
    h = b.node("Tanh", b.node("Add", b.node("MatMul", h, b.weight(WIDTH, WIDTH)), y))
    b.give(f"hidden{index}", b.node("Unsqueeze", h, zero))

    both = b.node("Concat", *(b.node("Unsqueeze", b.node("Transpose", t, perm=[1, 0]), zero) for t in (h, y)), axis=0)
    mean = b.node("Add", b.node("Mul", b.state(f"mean{index}", [2, WIDTH], 2), b.constant(np.float32(0.9))),
                  b.node("Mul", both, b.constant(np.float32(0.1))))
    b.give(f"mean{index}", mean)
    rest = b.node("Transpose", b.node("ReduceSum", mean, zero, keepdims=0), perm=[1, 0])
    return b.node("Tanh", b.node("Add", b.node("MatMul", rest, b.weight(WIDTH, WIDTH)), b.node("Add", x, h)))


def encoder(layers=LAYERS):
    """The model, and its states: name, dimensions without the batch, axis of the batch."""
    b = Builder()
    b.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH]))
    b.outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH]))
    x = "x"
    for index in range(layers):
        x = layer(b, index, x)
    b.nodes.append(helper.make_node("Identity", [x], ["y"]))
    graph = helper.make_graph(b.nodes, "encoder", b.inputs, b.outputs, b.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model, b.states


def config(states, batch=16):
    lines = ["sequenceBatching: true", f"batchSize: {batch}", f"maxBatchSize: {batch}", "minWorkers: 1",
             "maxWorkers: 1", f"inputs: [{{name: x, dataType: FP32, dims: [{WIDTH}]}}]",
             f"outputs: [{{name: y, dataType: FP32, dims: [{WIDTH}]}}]", "state:", "  tensors:"]
    lines += [f"    - {{input: {name}_in, output: {name}_out, dataType: FP32, dims: {dims}, batchAxis: {axis}}}"
              for name, dims, axis in states]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    model, states = encoder()
    onnx.save(model, folder / "model.onnx")
    (folder / "model-config.yaml").write_text(config(states), encoding="utf-8")


if __name__ == "__main__":
    main()
