"""Models computed in float64: what results that differ are held against."""

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, numpy_helper

import ort_sdk
from ort_sdk.api import OrtSdkError

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)
FLOAT_ONLY = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs of operators that are float32 whatever else is."""


def results_in_float64(model, feeds):
    """The outputs of the model, whose float32 and float16 values are float64; None if it has operators that allow no such."""
    wide = ModelProto.FromString(model.SerializeToString())
    _widen(wide.graph)
    given = {name: _wide(value) for name, value in feeds.items()}
    options = ort_sdk.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_programs", "1")
    try:
        return ort_sdk.InferenceSession(wide.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, given)
    except OrtSdkError:
        return None


def _wide(value):
    return value.astype(np.float64) if getattr(value, "dtype", None) in (np.float16, np.float32) else value


def _widen(graph):
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    kept = {name for node in graph.node for name in _float_only(node)}
    for tensor in graph.initializer:
        if tensor.name not in kept:
            _widen_tensor(tensor)
    for node in graph.node:
        for attribute in () if kept.intersection(node.output) else node.attribute:
            _widen_attribute(node, attribute)


def _float_only(node):
    return [name for place in FLOAT_ONLY.get(node.op_type, ()) for name in node.input[place : place + 1]]


def _widen_attribute(node, attribute):
    if attribute.type == AttributeProto.GRAPH:
        _widen(attribute.g)
    elif attribute.type == AttributeProto.TENSOR:
        _widen_tensor(attribute.t)
    elif node.op_type == "Cast" and attribute.i in NARROW:
        attribute.i = TensorProto.DOUBLE
    elif node.op_type == "Constant" and attribute.name in {"value_float", "value_floats"}:
        numbers = attribute.f if attribute.type == AttributeProto.FLOAT else list(attribute.floats)
        attribute.Clear()
        attribute.name, attribute.type = "value", AttributeProto.TENSOR
        attribute.t.CopyFrom(numpy_helper.from_array(np.array(numbers, np.float64)))


def _widen_tensor(tensor):
    if tensor.data_type in NARROW:
        tensor.CopyFrom(numpy_helper.from_array(_wide(numpy_helper.to_array(tensor)), tensor.name))
