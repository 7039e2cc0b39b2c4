"""Makes model.onnx: a graph that gets the state as inputs and returns it as outputs."""

import sys

try:
    import onnx
    from onnx import TensorProto, helper
except ImportError:
    sys.exit(f"make_model.py needs the package onnx, which {sys.executable} does not have: activate an environment that "
             "has it (pip install onnx onnxruntime), or name its interpreter in the variable PYTHON")


def tensor(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1])


graph = helper.make_graph(
    [helper.make_node("Constant", [], ["one"],
                      value=helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])),
     helper.make_node("Add", ["count", "one"], ["count_out"]),
     helper.make_node("Sub", ["x", "mean"], ["off"]),
     helper.make_node("Div", ["off", "count_out"], ["part"]),
     helper.make_node("Add", ["mean", "part"], ["mean_out"]),
     helper.make_node("Identity", ["mean_out"], ["y"])],
    "average", [tensor("x"), tensor("count"), tensor("mean")],
    [tensor("y"), tensor("count_out"), tensor("mean_out")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, "model.onnx")
