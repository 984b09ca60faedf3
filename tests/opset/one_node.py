"""Models of one node, run by ort_sdk and by onnxruntime."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import ort_sdk
from ort_sdk.api import TensorElementType


def make_model(op_type, inputs, outputs=1, *, domain="", opset=None, attributes=None, constants=(), output_types=()):
    """A model of one node. ``inputs``: arrays, None where an optional one is absent; ``constants``: indices of initializers."""
    names = ["" if value is None else f"x{index}" for index, value in enumerate(inputs)]
    output_names = [f"y{index}" for index in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op_type, names, output_names, domain=domain, **(attributes or {}))
    feeds = {
        name: value
        for index, (name, value) in enumerate(zip(names, inputs, strict=True))
        if value is not None and index not in constants
    }
    graph_inputs = [
        helper.make_tensor_value_info(name, int(TensorElementType.from_numpy_dtype(value.dtype)), value.shape)
        for name, value in feeds.items()
    ]
    initializers = [onnx.numpy_helper.from_array(inputs[index], names[index]) for index in constants if inputs[index] is not None]
    graph_outputs = [helper.make_empty_tensor_value_info(name) for name in output_names if name]
    for info, element_type in zip(graph_outputs, output_types, strict=False):
        info.CopyFrom(helper.make_tensor_value_info(info.name, element_type, None))
    opsets = [helper.make_opsetid(domain, opset or 1)] if domain else []
    opsets.append(helper.make_opsetid("", 21 if domain or opset is None else opset))
    graph = helper.make_graph([node], "one_node", graph_inputs, graph_outputs, initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


@functools.cache
def _quiet():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # a pool of threads takes longer to make than such a model to run
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def run_reference(model, feeds):
    """Outputs of onnxruntime's CPU provider."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), _quiet(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_sdk(model, feeds):
    """Outputs of ort_sdk's CPU provider."""
    return ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def compare(op_type, inputs, outputs=1, *, rtol=1e-5, atol=1e-5, off_by=0, **model_arguments):
    """Run one node in both runtimes and compare types, shapes and values; ``off_by``: tolerance for integer outputs.

    Returns ort_sdk's outputs.
    """
    model, feeds = make_model(op_type, inputs, outputs, **model_arguments)
    expected = run_reference(model, feeds)
    types = [int(TensorElementType.from_numpy_dtype(np.asarray(value).dtype)) for value in expected]
    model, feeds = make_model(op_type, inputs, outputs, **{**model_arguments, "output_types": types})
    actual = run_sdk(model, feeds)
    assert len(actual) == len(expected)
    for got, want in zip(actual, expected, strict=True):
        assert_same(got, want, rtol, atol, off_by)
    return actual


def assert_same(got, want, rtol, atol, off_by=0):
    """Equal type and shape; values equal for strings, within ``off_by`` for integers, within tolerances for floats."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind in "OUSb":
        assert got.tolist() == want.tolist()
    elif want.dtype.kind in "iu":
        assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0) <= off_by
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol)
