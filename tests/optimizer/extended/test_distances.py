"""Scans over rows that measure distances."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk

RNG = np.random.default_rng(0)
TRAINED = RNG.standard_normal((300, 7))


def _body(element_type, *, axis=1, version=17, gives=None, squares="ReduceSumSquare"):
    axes = {"axes": [axis]} if version < 18 else {}
    inputs = ["difference"] if version < 18 else ["difference", "axes"]
    nodes = [
        helper.make_node("Identity", ["matrix"], ["kept"]),
        helper.make_node("Sub", ["matrix", "row"], ["difference"]),
        helper.make_node(squares, inputs, ["sums"], keepdims=0, **axes),
        helper.make_node("Identity", ["sums"], ["distances"]),
    ]
    if gives:
        nodes[0] = helper.make_node(*gives)
    return helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info(name, element_type, None) for name in ("matrix", "row")],
        [helper.make_tensor_value_info(name, element_type, None) for name in ("kept", "distances")],
        [] if version < 18 else [numpy_helper.from_array(np.array([axis]), "axes")],
    )


def _model(dtype=np.float32, *, version=17, wanted=("y",), scan=None, width=7, **options):
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    body = _body(element_type, version=version, **options)
    nodes = [helper.make_node("Scan", ["x", "trained"], ["last", "y"], num_scan_inputs=1, body=body, **(scan or {}))]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", element_type, ["n", width])],
        [helper.make_tensor_value_info(name, element_type, None) for name in wanted],
        [numpy_helper.from_array(TRAINED.astype(dtype), "trained")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9).SerializeToString()


def _operators(session):
    return {placement.op_type for placement in session.placements()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("version", [13, 17, 18])
@pytest.mark.parametrize("rows", [1, 40, 100])
def test_distances_are_one_node(dtype, version, rows):
    model, x = _model(dtype, version=version), RNG.standard_normal((rows, 7)).astype(dtype)
    x[0] = TRAINED[3].astype(dtype) + dtype(1e-4)
    session = ort_sdk.InferenceSession(model)
    assert _operators(session) == {"CDist"}
    expected = ((TRAINED.astype(dtype)[:, None].astype(np.float64) - x) ** 2).sum(axis=2)
    (theirs,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for _ in range(3):
        (found,) = session.run(None, {"x": x})
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-12)
        np.testing.assert_allclose(found, theirs, rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"axis": 0},
        {"squares": "ReduceL1"},
        {"gives": ("Neg", ["matrix"], ["kept"])},
        {"wanted": ("y", "last")},
        {"scan": {"scan_input_directions": [1]}},
        {"scan": {"scan_output_axes": [1]}},
        {"width": 1},
    ],
)
def test_other_scans_stay(options):
    model = _model(**options)
    session = ort_sdk.InferenceSession(model)
    assert "Scan" in _operators(session)
    x = RNG.standard_normal((5, options.get("width", 7))).astype(np.float32)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for found, wanted in zip(session.run(None, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize(("rows", "others", "features"), [(1, 1, 700), (300, 5, 3), (17, 33, 40), (3, 600, 1), (0, 4, 2)])
def test_distances_of_near_rows(metric, rows, others, features):
    a, b = (RNG.standard_normal((count, features)).astype(np.float32) + 100 for count in (rows, others))
    graph = helper.make_graph(
        [helper.make_node("CDist", ["a", "b"], ["y"], domain="com.microsoft", metric=metric)],
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in ("a", "b")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    session = ort_sdk.InferenceSession(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())
    expected = ((a[:, None].astype(np.float64) - b) ** 2).sum(axis=2)
    (found,) = session.run(None, {"a": a, "b": b})
    np.testing.assert_allclose(found, expected**0.5 if metric == "euclidean" else expected, rtol=2e-6)
