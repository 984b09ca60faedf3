"""Models computed in float64: what results that differ are held against."""

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import OrtSdkError

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)
FLOAT_ONLY = {"Resize": (1, 2), "Upsample": (1,), "QuantizeLinear": (1,), "DequantizeLinear": (1,)}
"""Inputs of operators that stay float32: those that allow no other type, and scales."""
NARROWED, WIDENED = ("QuantizeLinear",), ("DequantizeLinear",)
"""Operators that read, or make, values that are cast: their scales say what type these are."""
PERTURBATION, PERTURBED_RUNS = 2.0**-22, 3
"""Some roundings of float32, which its sums come to."""


def results_in_float64(model, feeds):
    """Outputs of the model, whose float32 and float16 values are float64, and of as many models as shall tell its sensitivity.

    Those have feeds and weights that are off by some roundings.

    Returns:
        Lists of outputs, the exact ones first; none if the model has operators that allow no float64.
    """
    options = ort_sdk.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_programs", "1")
    found = []
    for widen in (_wide, *(_perturbing(seed) for seed in range(PERTURBED_RUNS))):
        wide = ModelProto.FromString(model.SerializeToString())
        _widen(wide.graph, widen)
        given = {name: widen(value) if _is_narrow(value) else value for name, value in feeds.items()}
        try:
            session = ort_sdk.InferenceSession(wide.SerializeToString(), options, providers=["CPUExecutionProvider"])
            found.append(session.run(None, given))
        except OrtSdkError:
            return []
    return found


def _is_narrow(value):
    return getattr(value, "dtype", None) in (np.float16, np.float32)


def _wide(array):
    return array.astype(np.float64)


def _perturbing(seed):
    generator = np.random.default_rng(seed)
    return lambda array: array * (1 + PERTURBATION * generator.uniform(-1, 1, array.shape))


def _widen(graph, widen):
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    kept = {name for node in graph.node for name in _float_only(node)}
    for tensor in graph.initializer:
        if tensor.name not in kept:
            _widen_tensor(tensor, widen)
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        for attribute in () if kept.intersection(node.output) else node.attribute:
            _widen_attribute(node, attribute, widen)
        graph.node.extend(_with_casts(node))


def _float_only(node):
    return [name for place in FLOAT_ONLY.get(node.op_type, ()) for name in node.input[place : place + 1]]


def _with_casts(node):
    """The node, its values of float32 cast."""
    if node.op_type in NARROWED:
        narrow = f"{node.output[0]}_narrow"
        cast = helper.make_node("Cast", [node.input[0]], [narrow], to=TensorProto.FLOAT)
        node.input[0] = narrow
        return cast, node
    if node.op_type in WIDENED:
        wide = node.output[0]
        node.output[0] = f"{wide}_narrow"
        return node, helper.make_node("Cast", [node.output[0]], [wide], to=TensorProto.DOUBLE)
    return (node,)


def _widen_attribute(node, attribute, widen):
    if attribute.type == AttributeProto.GRAPH:
        _widen(attribute.g, widen)
    elif attribute.type == AttributeProto.TENSOR:
        _widen_tensor(attribute.t, widen)
    elif node.op_type == "Cast" and attribute.i in NARROW:
        attribute.i = TensorProto.DOUBLE
    elif node.op_type == "Constant" and attribute.name in {"value_float", "value_floats"}:
        numbers = attribute.f if attribute.type == AttributeProto.FLOAT else list(attribute.floats)
        attribute.Clear()
        attribute.name, attribute.type = "value", AttributeProto.TENSOR
        attribute.t.CopyFrom(numpy_helper.from_array(np.array(numbers, np.float64)))


def _widen_tensor(tensor, widen):
    if tensor.data_type in NARROW:
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(widen(numpy_helper.to_array(tensor))), tensor.name))
