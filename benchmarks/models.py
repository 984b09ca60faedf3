"""Models that the benchmarks measure, made when they are needed. All need the onnx package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
FLOAT_BYTES = 4


def as_model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def value(name: str, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def tiny_nodes(count: int) -> bytes:
    """A chain of ``count`` element-wise nodes over four elements."""
    names = ["x", *(f"v{index}" for index in range(1, count)), "y"]
    op_types = ["Add", "Mul", "Sub"]
    nodes = [
        helper.make_node(op_types[index % 3], [names[index], "x"], [names[index + 1]], name=f"n{index}") for index in range(count)
    ]
    return as_model(helper.make_graph(nodes, "tiny", [value("x", [4])], [value("y", [4])])).SerializeToString()


def conv_net(nbytes: int, node_count: int) -> tuple[onnx.ModelProto, tuple[int, int, int, int]]:
    """Residual blocks of Conv, Relu and Add, then a pooled classifier.

    Args:
        nbytes: of all weights together, about.
        node_count: about; three to a block.

    Returns:
        The model and the shape of its input ``x``.
    """
    blocks = max(1, (node_count - 3) // 3)
    channels = max(2, round((nbytes / blocks / FLOAT_BYTES / 9) ** 0.5))
    rng = np.random.default_rng(0)
    nodes, weights, current = [], [], "x"
    for block in range(blocks):
        kernel = rng.standard_normal((channels, channels, 3, 3), np.float32) / (3 * channels)
        weights.append(numpy_helper.from_array(kernel, f"w{block}"))
        nodes += [
            helper.make_node("Conv", [current, f"w{block}"], [f"c{block}"], name=f"conv{block}", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{block}"], [f"r{block}"], name=f"relu{block}"),
            helper.make_node("Add", [f"r{block}", current], [f"a{block}"], name=f"add{block}"),
        ]
        current = f"a{block}"
    weights.append(numpy_helper.from_array(rng.standard_normal((channels, 10), np.float32), "classes"))
    nodes += [
        helper.make_node("GlobalAveragePool", [current], ["pooled"], name="pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "classes"], ["y"], name="classify"),
    ]
    shape = (1, channels, 8, 8)
    return as_model(helper.make_graph(nodes, "conv_net", [value("x", list(shape))], [value("y", [1, 10])], weights)), shape


def matrices(nbytes: int, count: int) -> onnx.ModelProto:
    """A chain of ``count`` square MatMuls whose weights take about ``nbytes`` bytes together."""
    size = max(4, round((nbytes / count / FLOAT_BYTES) ** 0.5))
    rng = np.random.default_rng(0)
    names = ["x", *(f"v{index}" for index in range(1, count)), "y"]
    weights = [numpy_helper.from_array(rng.standard_normal((size, size), np.float32), f"w{index}") for index in range(count)]
    nodes = [helper.make_node("MatMul", [names[index], f"w{index}"], [names[index + 1]]) for index in range(count)]
    return as_model(helper.make_graph(nodes, "matrices", [value("x", ["n", size])], [value("y", ["n", size])], weights))


def save(model: onnx.ModelProto, path: Path, *, external: bool = False) -> Path:
    """Write a model, its weights inline or all in one file beside it. The model object loses its weights then."""
    location = f"{path.stem}.data"
    onnx.save_model(model, path, save_as_external_data=external, location=location if external else None, size_threshold=0)
    return path
