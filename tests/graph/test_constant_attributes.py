"""Attributes that others put on Constant nodes, which onnxruntime takes: it makes initializers of them before it looks."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import InvalidGraph


def _model(op_type):
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(3, np.float32)))
    add = helper.make_node("Add", ["x", "c"], ["y"])
    marked = constant if op_type == "Constant" else add
    marked.attribute.append(helper.make_attribute("onnxsim_transient_constant", 1))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([constant, add], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9).SerializeToString()


def test_a_mark_on_a_constant_is_ignored():
    feeds = {"x": np.arange(3, dtype=np.float32)}
    for library in (ort_sdk, onnxruntime):
        session = library.InferenceSession(_model("Constant"), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, feeds)[0], [1, 2, 3])


def test_a_mark_on_another_node_is_refused():
    with pytest.raises(InvalidGraph, match="onnxsim_transient_constant"):
        ort_sdk.InferenceSession(_model("Add"))
