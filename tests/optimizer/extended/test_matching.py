"""What holds for every fusion: providers, kernels, leftovers, and that the result is a model of its own."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import ort_sdk
from ort_sdk.loader import load_model
from ort_sdk.optimizer import TransformerContext, apply_transformers, transformers_of_level
from tests.optimizer.extended import test_attention, test_quantized
from tests.optimizer.extended.fused_graph import (
    FLOAT,
    assert_same_results,
    build,
    f32,
    feeds_of,
    node,
    op_types,
    optimized,
    saved_graph,
)

WEIGHT = np.ones((2, 3, 1, 1), np.float32)


def conv_relu():
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    return build(nodes, [("x", FLOAT, [1, 3, 4, 4])], [("y", FLOAT, None)], {"w": WEIGHT})


def apply(model, providers, *, has_kernel=True):
    graph = load_model(model).graph
    for placed, provider in zip(graph.nodes, providers, strict=True):
        placed.execution_provider = provider
    context = TransformerContext({"": 17}, lambda *_: None, lambda *_: has_kernel, lambda *_: has_kernel)
    changed = apply_transformers(graph, transformers_of_level(2), context)
    return graph, changed


def test_nodes_of_one_provider_are_fused_there():
    graph, changed = apply(conv_relu(), ["GPU", "GPU"])
    assert changed == ["ConvActivationFusion"]
    assert [(found.op_type, found.execution_provider) for found in graph.nodes] == [("FusedConv", "GPU")]


@pytest.mark.parametrize(("providers", "has_kernel"), [(["GPU", "CPU"], True), (["GPU", "GPU"], False)])
def test_separate_nodes_and_nodes_without_kernel_are_left(providers, has_kernel):
    graph, changed = apply(conv_relu(), providers, has_kernel=has_kernel)
    assert changed == []
    assert [found.op_type for found in graph.nodes] == ["Conv", "Relu"]


def test_constants_nothing_reads_go():
    nodes = [node("Mul", ["x", "s"], ["p"]), node("MatMul", ["p", "w"], ["y"])]
    graph = optimized(build(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, None)], {"s": f32(2), "w": np.ones((3, 2), np.float32)}))
    assert set(graph.initializers) == {"w"}
    assert "p" not in graph.values


def test_constant_that_is_read_elsewhere_or_put_out_stays():
    nodes = [node("Mul", ["x", "s"], ["p"]), node("MatMul", ["p", "w"], ["y"]), node("Add", ["x", "s"], ["z"])]
    constants = {"s": f32(2), "w": np.ones((3, 2), np.float32)}
    model = build(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, None), ("z", FLOAT, None), ("w", FLOAT, [3, 2])], constants)
    assert op_types(model) == ["Add", "FusedMatMul"]
    assert_same_results(model)


def test_default_of_an_input_is_no_constant(tmp_path):
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Mul", ["p", "s"], ["y"])]
    model = build(
        nodes, [("x", FLOAT, [2, 3]), ("s", FLOAT, [])], [("y", FLOAT, None)], {"s": f32(2), "w": np.ones((3, 2), np.float32)}
    )
    assert sorted(node.op_type for node in saved_graph(model, 2, tmp_path).node) == ["MatMul", "Mul"]


def quantized_block():
    dq, q = test_quantized.dq, test_quantized.q
    nodes = [dq("x"), dq("w", "w"), node("Conv", ["xf", "wf"], ["c"], pads=[1] * 4), q("c", "y", "y")]
    return test_quantized.model_of(nodes, [test_quantized.IMAGE], w=test_quantized.WEIGHT)


def layer():
    shape = [test_attention.BATCH, test_attention.LENGTH, test_attention.WIDTH]
    values = [("x", FLOAT, shape), ("mask", FLOAT, test_attention.FULL)]
    return build(test_attention.transformer_layer(), values, [("y", FLOAT, shape)], test_attention.layer_constants())


@pytest.mark.parametrize("make", [conv_relu, quantized_block, layer])
def test_onnxruntime_runs_the_fused_model_as_it_is_written(make, tmp_path):
    model, path = make(), tmp_path / "fused.onnx"
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    feeds = feeds_of(model)
    results = ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(path, plain, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(results[0].astype(np.float32), wanted[0].astype(np.float32), rtol=1e-4, atol=1e-5)
