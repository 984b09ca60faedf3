"""Small models for the tests of sessions."""

from itertools import pairwise

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def model(nodes, inputs, outputs, initializers=(), opset=17, **fields):
    """Bytes of a model; inputs and outputs are value infos."""
    graph = helper.make_graph(nodes, fields.pop("graph_name", "g"), inputs, outputs, list(initializers))
    imports = [helper.make_opsetid("", opset), *fields.pop("imports", ())]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **fields)


def value(name, shape=("b", 2), element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def identity(element_type=TensorProto.FLOAT, shape=("b", 2)):
    """y = x."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return model([node], [value("x", shape, element_type)], [value("y", shape, element_type)]).SerializeToString()


def rectified():
    """y = max(x, 0)."""
    return model([helper.make_node("Relu", ["x"], ["y"])], [value("x")], [value("y")]).SerializeToString()


def affine():
    """y = x @ w + c, z = relu(y); w is constant, c has a default that may be fed."""
    weights = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    default = numpy_helper.from_array(np.ones(3, np.float32), "c")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "c"], ["y"], name="sum"),
        helper.make_node("Relu", ["y"], ["z"], name="rectified"),
    ]
    inputs = [value("x"), value("c", [3])]
    outputs = [value("y", ["b", 3]), value("z", ["b", 3])]
    return model(nodes, inputs, outputs, [weights, default]).SerializeToString()


def aliases():
    """Outputs that are easily the input, a weight, or each other."""
    weights = numpy_helper.from_array(np.arange(4, dtype=np.float32).reshape(2, 2), "w")
    flat = numpy_helper.from_array(np.array([-1]), "flat")
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Reshape", ["x", "flat"], ["flattened"]),
        helper.make_node("Transpose", ["x"], ["transposed"], perm=[1, 0]),
        helper.make_node("Identity", ["w"], ["weight"]),
        helper.make_node("Relu", ["x"], ["fresh"]),
        helper.make_node("Reshape", ["fresh", "flat"], ["view"]),
        helper.make_node("Identity", ["fresh"], ["twin"]),
    ]
    outputs = [value(name, None) for name in ("same", "flattened", "transposed", "weight", "fresh", "view", "twin")]
    return model(nodes, [value("x", [2, 2])], outputs, [weights, flat]).SerializeToString()


def chain(length):
    """Many nodes, one after the other, each worth some time."""
    names = ["x", *(f"v{index}" for index in range(length - 1)), "y"]
    nodes = [helper.make_node("MatMul", [a, "x"], [b], name=f"step{i}") for i, (a, b) in enumerate(pairwise(names))]
    return model(nodes, [value("x", ["n", "n"])], [value("y", ["n", "n"])]).SerializeToString()


def optional_identity():
    """y = whether the optional x holds something."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"]))
    node = helper.make_node("OptionalHasElement", ["x"], ["y"])
    return model([node], [helper.make_value_info("x", kind)], [value("y", [], TensorProto.BOOL)], opset=18).SerializeToString()


def sequence_identity(element_type=TensorProto.FLOAT):
    """y = x for a sequence; n its length."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(element_type, None))
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("SequenceLength", ["x"], ["n"])]
    outputs = [helper.make_value_info("y", kind), value("n", [], TensorProto.INT64)]
    return model(nodes, [helper.make_value_info("x", kind)], outputs).SerializeToString()


def map_vectorizer():
    """y = the values of a map from text, in order of a vocabulary."""
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b", "c"])
    imports = [helper.make_opsetid("ai.onnx.ml", 1)]
    return model([node], [helper.make_value_info("x", kind)], [value("y", [1, 3])], imports=imports).SerializeToString()
