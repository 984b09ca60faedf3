"""Embeddings that are added and normalized become nodes of their own."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import InvalidArgument
from tests.optimizer.extended.fused_graph import op_types

RNG = np.random.default_rng(11)
BATCH, LENGTH, WIDTH = 2, 5, 12
NAMES = ["ids", "segments", "word", "position", "segment", "gamma", "beta", "mask", "places"]


def _feeds():
    return {
        "ids": RNG.integers(0, 9, (BATCH, LENGTH)).astype(np.int32),
        "segments": RNG.integers(0, 2, (BATCH, LENGTH)).astype(np.int32),
        "mask": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32),
        "places": RNG.integers(0, 7, (BATCH, LENGTH)).astype(np.int32),
    }


def _model(inputs, *, opset=17, outputs=("y", "count", "sum"), dimension="n", dtype=np.float32):
    sizes = {"word": (9, WIDTH), "position": (7, WIDTH), "segment": (2, WIDTH), "gamma": (WIDTH,), "beta": (WIDTH,)}
    constants = [numpy_helper.from_array(RNG.standard_normal(size).astype(dtype), name) for name, size in sizes.items()]
    node = helper.make_node("EmbedLayerNormalization", inputs, outputs, domain="com.microsoft", epsilon=1e-5)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    types = {"y": kind, "count": TensorProto.INT32, "sum": kind}
    values = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["b", dimension]) for name in inputs if name and name not in sizes
    ]
    made = [helper.make_tensor_value_info(name, types[name], None) for name in outputs if name]
    graph = helper.make_graph([node], "g", values, made, constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def _check(model, tolerance=1e-5):
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {name: array for name, array in _feeds().items() if name in {value.name for value in theirs.get_inputs()}}
    session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(3):
        for found, wanted in zip(session.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("dimension", ["n", LENGTH])
@pytest.mark.parametrize("absent", [(), ("segments", "segment"), ("places",), ("segments", "segment", "places")])
def test_tables_are_read_by_nodes_of_their_own(opset, dimension, absent):
    model = _model(["" if name in absent else name for name in NAMES], opset=opset, dimension=dimension)
    assert "EmbedLayerNormalization" not in op_types(model)
    _check(model)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("outputs", [("y", "count"), ("y", "count", "sum")])
def test_float16_tables_are_read_in_their_stored_layout(opset, outputs):
    model = _model(NAMES, opset=opset, outputs=outputs, dtype=np.float16)
    assert "EmbedLayerNormalization" not in op_types(model)
    _check(model, float(np.finfo(np.float16).eps))


@pytest.mark.parametrize("outputs", [("y", "count"), ("y", "", "sum")])
def test_fewer_outputs(outputs):
    model = _model(NAMES, outputs=outputs)
    assert "EmbedLayerNormalization" not in op_types(model)
    _check(model)


def test_words_that_are_counted_without_a_mask_stay():
    model = _model([*NAMES[:7]], outputs=("y", "count"))
    assert op_types(model) == ["EmbedLayerNormalization"]
    _check(model)


def test_ids_outside_the_table_are_refused():
    session = ort_sdk.InferenceSession(_model(NAMES, outputs=("y", "count")), providers=["CPUExecutionProvider"])
    feeds = _feeds()
    with pytest.raises(InvalidArgument):
        session.run(None, feeds | {"ids": feeds["ids"] + 9})


def _quantized_model(*, opset, dimension, has_segments, kind):
    sizes = {"word": (9, WIDTH), "position": (7, WIDTH), "segment": (2, WIDTH), "gamma": (WIDTH,), "beta": (WIDTH,)}
    limits = np.iinfo(kind)
    arrays = {name: RNG.integers(limits.min, limits.max + 1, size).astype(kind) for name, size in sizes.items()}
    arrays |= {f"{name}_scale": np.array(0.01 * (1 + place), np.float32) for place, name in enumerate(sizes)}
    arrays |= {f"{name}_zero": np.array(limits.min + 100 + place, kind) for place, name in enumerate(sizes)}
    absent = set() if has_segments else {"segments", "segment", "segment_scale", "segment_zero"}
    names = [*NAMES[:8], *(f"{name}_scale" for name in sizes), *(f"{name}_zero" for name in sizes)]
    inputs = ["" if name in absent else name for name in names]
    node = helper.make_node("QEmbedLayerNormalization", inputs, ["y", "count"], domain="com.microsoft", epsilon=1e-5)
    fed = [name for name in ("ids", "segments", "mask") if name in inputs]
    values = [helper.make_tensor_value_info(name, TensorProto.INT32, ["b", dimension]) for name in fed]
    made = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("count", TensorProto.INT32, None),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items() if name not in absent]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", values, made, constants)
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("opset", [10, 17])
@pytest.mark.parametrize("dimension", ["n", LENGTH])
@pytest.mark.parametrize("has_segments", [False, True])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_rows_of_quantized_tables_are_dequantized(opset, dimension, has_segments, kind):
    model = _quantized_model(opset=opset, dimension=dimension, has_segments=has_segments, kind=kind)
    assert "QEmbedLayerNormalization" not in op_types(model)
    _check(model)
