"""Attention with its projection becomes a product, its parts, and attention of three inputs."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from tests.optimizer.extended.fused_graph import assert_same_results, op_types

RNG = np.random.default_rng(5)
BATCH, LENGTH, WIDTH, HEADS, PAST = 2, 6, 16, 2, 3
SIZE = WIDTH // HEADS
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
X = RNG.standard_normal((BATCH, LENGTH, WIDTH)).astype(np.float32)
WEIGHT = RNG.standard_normal((WIDTH, 3 * WIDTH)).astype(np.float32) / 4
BIAS = RNG.standard_normal(3 * WIDTH).astype(np.float32)
STACK = RNG.standard_normal((2, BATCH, HEADS, PAST, SIZE)).astype(np.float32)
KEPT = (np.arange(LENGTH) < np.array([[LENGTH], [4]])).astype(np.int32)


def _model(feeds, constants, inputs, *, op_type="Attention", opset=17, outputs=("y",), copies=1, **attributes):
    """A model of nodes that all read the same; dimensions are the feeds' but for symbolic sequences."""
    nodes = [
        helper.make_node(
            op_type,
            inputs,
            [f"{name}{copy or ''}" if name else "" for name in outputs],
            domain="com.microsoft",
            num_heads=HEADS,
            **attributes,
        )
        for copy in range(copies)
    ]
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), ["s" if size == LENGTH else size for size in array.shape]
        )
        for name, array in feeds.items()
    ]
    made = [
        helper.make_tensor_value_info(name, FLOAT, ["b", *"xyzw"[: (5 if name.startswith("p") else 3) - 1]])
        for node in nodes
        for name in node.output
        if name
    ]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", values, made, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def _check(model, feeds, tolerance=1e-5):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(3):
        for found, wanted in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("opset", [12, 13, 18])
def test_projection_is_a_product(opset):
    feeds = {"x": X}
    model = _model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b"], opset=opset)
    assert op_types(model) == ["MatMul", "MultiHeadAttention", "Split"]
    _check(model, feeds)


def test_projection_without_bias():
    feeds = {"x": X}
    model = _model(feeds, {"w": WEIGHT}, ["x", "w"])
    assert op_types(model) == ["MatMul", "MultiHeadAttention", "Split"]
    assert_same_results(model, feeds, against_onnxruntime=False)


@pytest.mark.parametrize(
    "mask",
    [KEPT, KEPT.sum(1).astype(np.int32), np.array([6, 5, 0, 1], np.int32), np.tril(np.ones((BATCH, LENGTH, LENGTH), np.int32))],
    ids=["keys", "ends", "ends and starts", "queries and keys"],
)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_masks(mask, unidirectional):
    feeds = {"x": X, "m": mask}
    model = _model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b", "m"], unidirectional=unidirectional)
    _check(model, feeds)


def test_a_mask_of_keys_becomes_numbers_once():
    feeds = {"x": X, "m": KEPT}
    model = _model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b", "m"], copies=2)
    operators = op_types(model)
    assert [operators.count(name) for name in ("Greater", "Where", "MultiHeadAttention")] == [1, 1, 2]
    _check(model, feeds)


@pytest.mark.parametrize("x", [X, X[:, :5]], ids=["any length", "one length"])
@pytest.mark.parametrize("ends", [[LENGTH, 4], [0, 1], [2, 9]])
@pytest.mark.parametrize("opset", [11, 17])
def test_ends_of_keys_become_numbers_once(x, ends, opset):
    feeds = {"x": x, "m": np.array(ends, np.int32)}
    model = _model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b", "m"], opset=opset, copies=2, mask_filter_value=-5.0)
    operators = op_types(model)
    assert [operators.count(name) for name in ("Less", "Where", "MultiHeadAttention")] == [1, 1, 2]
    _check(model, feeds)


@pytest.mark.parametrize("opset", [8, 10])
def test_ends_of_keys_stay_where_the_opset_has_no_positions(opset):
    feeds = {"x": X, "m": np.array([LENGTH, 4], np.int32)}
    model = _model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b", "m"], opset=opset)
    assert {"Less", "Range"}.isdisjoint(op_types(model))
    _check(model, feeds)


def test_a_mask_that_hides_nothing_by_its_shape_stays():
    feeds = {"x": X, "m": np.zeros((BATCH, 1), np.int32)}
    model = _model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b", "m"])
    assert "Where" not in op_types(model)


def test_numbers_added_to_the_scores():
    feeds = {"x": X, "a": RNG.standard_normal((BATCH, HEADS, LENGTH, LENGTH)).astype(np.float32), "m": KEPT}
    _check(_model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b", "m", "", "a"]), feeds)


@pytest.mark.parametrize("opset", [12, 17])
def test_past_and_present(opset):
    feeds = {"x": X[:, :1], "p": STACK}
    model = _model(
        feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b", "", "p"], opset=opset, outputs=("y", "present"), unidirectional=1
    )
    assert "MultiHeadAttention" in op_types(model)
    _check(model, feeds)


def test_present_without_past():
    feeds = {"x": X}
    _check(_model(feeds, {"w": WEIGHT, "b": BIAS}, ["x", "w", "b"], outputs=("y", "present"), unidirectional=1), feeds)


def test_values_of_another_width_and_a_scale():
    weight, bias = WEIGHT[:, : 2 * WIDTH + 8], BIAS[: 2 * WIDTH + 8]
    feeds = {"x": X}
    model = _model(feeds, {"w": weight, "b": bias}, ["x", "w", "b"], qkv_hidden_sizes=[WIDTH, WIDTH, 8], scale=0.3)
    assert "MultiHeadAttention" in op_types(model)
    _check(model, feeds)


@pytest.mark.parametrize("mask", [None, KEPT.sum(1).astype(np.int32)])
@pytest.mark.parametrize("zero_points", [True, False])
def test_projection_of_bytes(mask, zero_points):
    feeds = {"x": RNG.integers(0, 255, X.shape).astype(np.uint8)} | ({} if mask is None else {"m": mask})
    constants = {"w": RNG.integers(-100, 100, WEIGHT.shape).astype(np.int8), "b": BIAS}
    constants |= {"xs": np.float32(0.02), "ws": np.float32(0.005)}
    names = ["x", "w", "b", "xs", "ws", "" if mask is None else "m"]
    if zero_points:
        constants |= {"xz": np.uint8(128), "wz": np.int8(0)}
        names += ["xz", "wz"]
    elif mask is None:
        names.pop()
    model = _model(feeds, constants, names, op_type="QAttention")
    assert {"MatMulIntegerToFloat", "MultiHeadAttention"} <= set(op_types(model))
    _check(model, feeds, 1e-4)


def test_weights_of_unknown_width_stay():
    feeds = {"x": X, "w": WEIGHT}
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Attention", ["x", "w", "b"], ["y"], domain="com.microsoft", num_heads=HEADS)],
            "g",
            [
                helper.make_tensor_value_info("x", FLOAT, [BATCH, LENGTH, WIDTH]),
                helper.make_tensor_value_info("w", FLOAT, [WIDTH, "columns"]),
            ],
            [helper.make_tensor_value_info("y", FLOAT, ["b", "s", "w"])],
            [numpy_helper.from_array(BIAS, "b")],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    ).SerializeToString()
    assert op_types(model) == ["Attention"]
    _check(model, feeds)
