"""Models whose sessions come and go."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import ort_sdk

CPU = ["CPUExecutionProvider"]
RUNS = 4
"""The first is step by step, the second makes a program, the others replay it."""


def perceptron(layers=2, width=256):
    """Bytes of a model: products by constants that are packed, with Relu between them."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for layer in range(layers):
        weight = rng.standard_normal((width, width), np.float32) / np.float32(np.sqrt(width))
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"x{layer + 1}"]))
    return _model(nodes, [_floats("x0", ["n", width])], [_floats(f"x{layers}", ["n", width])], weights)


def picked_rows():
    """Bytes of a model that fails in its second node for indices that are out of range: x (n, 64), index (k,) → y (k, 64)."""
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64), np.float32), "w")
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("Gather", ["positive", "index"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
    ]
    inputs = [_floats("x", ["n", 64]), helper.make_tensor_value_info("index", TensorProto.INT64, ["k"])]
    return _model(nodes, inputs, [_floats("y", ["k", 64])], [weight])


def with_defaults(model):
    """The same with its weights as inputs that have defaults."""
    import onnx

    proto = onnx.load_from_string(model)
    proto.graph.input.extend(_floats(weight.name, list(weight.dims)) for weight in proto.graph.initializer)
    return proto.SerializeToString()


def opened(model, options=None, providers=CPU, **kwargs):
    return ort_sdk.InferenceSession(model, options, providers=providers, **kwargs)


def _floats(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(nodes, inputs, outputs, weights):
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
