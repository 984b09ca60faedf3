"""Small models of the tests."""

import numpy as np
from onnx import TensorProto, helper
from stand_in.plugin import NAME

import ort_sdk as ort

X = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30)


def model(nodes, inputs=("x",), outputs=("y",), initializers=(), shape=None):
    """A model of float tensors."""
    values = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names] for names in (inputs, outputs)]
    graph = helper.make_graph(list(nodes), "g", *values, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def layers(depth, size):
    """A model of products, each followed by a softmax, which no kernel computes with its neighbours."""
    rng = np.random.default_rng(depth)
    nodes, weights, value = [], [], "x"
    for layer in range(depth):
        weight = (rng.standard_normal((size, size)) / size**0.5).astype(np.float32)
        weights.append(helper.make_tensor(f"w{layer}", TensorProto.FLOAT, weight.shape, weight.tobytes(), raw=True))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"]))
        value = "y" if layer == depth - 1 else f"s{layer}"
        nodes.append(helper.make_node("Softmax", [f"m{layer}"], [value]))
    return model(nodes, initializers=weights, shape=["n", size])


def session_of(content, options=None):
    """A session on the first device."""
    return ort.InferenceSession(content, providers=[(NAME, options or {}), "CPUExecutionProvider"])


def host_results(content, feeds):
    """What the CPU provider computes."""
    return ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
