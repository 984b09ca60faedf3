"""Masks of MultiHeadAttention in programs, beside onnxruntime: what they hide may be another in each run."""

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort
from ort_sdk.api import NodeArg

BATCH, LENGTH, KEYS, HEADS, SIZE = 2, 18, 24, 4, 16


def masks_of(form):
    """Two masks of a form."""
    rng = np.random.default_rng(2)
    for _ in range(2):
        kept = rng.integers(0, 3, (BATCH, LENGTH, KEYS)) > 0
        kept[:, :, 3] = True
        yield {
            "ends": rng.integers(4, KEYS + 1, BATCH),
            "keys": kept[:, 0],
            "keys of queries": kept,
        }[form].astype(np.int32)


def model_of(rank, has_bias):
    hidden = HEADS * SIZE
    shapes = {"query": (BATCH, LENGTH, hidden), "key": (BATCH, KEYS, hidden), "value": (BATCH, KEYS, hidden)}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    values.append(helper.make_tensor_value_info("mask", TensorProto.INT32, [None] * rank))
    if has_bias:
        values.append(helper.make_tensor_value_info("added", TensorProto.FLOAT, (BATCH, HEADS, LENGTH, KEYS)))
    names = ["query", "key", "value", "", "mask", *(["added"] if has_bias else [])]
    nodes = [
        helper.make_node("MultiHeadAttention", names, ["attended"], domain="com.microsoft", num_heads=HEADS),
        helper.make_node("Relu", ["attended"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "graph", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("form", ["ends", "keys", "keys of queries"])
def test_what_a_mask_hides(form, has_bias):
    masks = list(masks_of(form))
    model, rng = model_of(masks[0].ndim, has_bias), np.random.default_rng(1)
    ours = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {
        value.name: rng.standard_normal(value.shape).astype(np.float32) for value in ours.get_inputs() if value.name != "mask"
    }
    for mask in masks * 2:
        (found,), (expected,) = (session.run(None, {**feeds, "mask": mask}) for session in (ours, theirs))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=libraries.compiled_kernels().reason)
@pytest.mark.parametrize(
    ("shape", "is_native"),
    [
        *(((BATCH,), True), ((BATCH, KEYS), True), ((BATCH, LENGTH, KEYS), True), ((BATCH, 1), False)),
        *(((2 * BATCH,), False), ((3 * BATCH + 2,), False), ((BATCH, 1, KEYS, KEYS), False)),
    ],
)
def test_which_masks_need_no_python(make_kernel, shape, is_native):
    hidden = HEADS * SIZE
    rng = np.random.default_rng(4)
    parts = [rng.standard_normal((BATCH, length, hidden)).astype(np.float32) for length in (LENGTH, KEYS, KEYS)]
    inputs = (*parts, None, rng.integers(1, 9, shape).astype(np.int32))
    out = np.empty((BATCH, LENGTH, hidden), np.float32)
    declared = (NodeArg("y", "tensor(float)", out.shape),)
    kernel = make_kernel("MultiHeadAttention", inputs, {"num_heads": HEADS}, "com.microsoft", None, (), declared)
    call = kernel.bind(*([SimpleNamespace(array=array, is_fixed=True) for array in arrays] for arrays in (inputs, [out])))
    assert (getattr(call, "native", None) is not None) == is_native
    for ends in (7, 12):
        inputs[-1][...] = ends - 2 * np.arange(inputs[-1].size).reshape(shape) % 9
        call()
        np.testing.assert_allclose(out, kernel.compute(*inputs), rtol=1e-5, atol=1e-6)
