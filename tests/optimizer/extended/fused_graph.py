"""Small models for the tests of fusions: built with onnx.helper, optimized, and compared at every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.graph import Graph

FLOAT = TensorProto.FLOAT
node = helper.make_node

Value = tuple[str, int, Sequence[int | str]]
"""(name, element type, shape)."""


def f32(value: Any) -> np.ndarray:
    return np.array(value, np.float32)


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> bytes:
    """A checked model with the shapes ONNX infers."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def open_session(model: bytes, level: int, disabled: Sequence[str] = (), config: Mapping[str, str] | None = None) -> Any:
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel(level)
    for key, value in (config or {}).items():
        options.add_session_config_entry(key, value)
    return ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled))


def optimized(model: bytes, disabled: Sequence[str] = (), config: Mapping[str, str] | None = None) -> Graph:
    """The graph a session runs at level 2."""
    return open_session(model, 2, disabled, config)._state.model.graph


def saved_graph(model: bytes, level: int, folder: Path) -> onnx.GraphProto:
    """The graph a session saves, in which inputs that have defaults are no constants."""
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel(level)
    options.optimized_model_filepath = str(folder / "saved.onnx")
    ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "saved.onnx").graph


def op_types(model: bytes, disabled: Sequence[str] = (), config: Mapping[str, str] | None = None) -> list[str]:
    """Operators left at level 2, sorted."""
    return sorted(found.op_type for found in optimized(model, disabled, config).nodes)


def feeds_of(model: bytes, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs; symbolic dimensions are 2."""
    rng = np.random.default_rng(seed)
    proto = onnx.ModelProto.FromString(model).graph
    constants = {tensor.name for tensor in proto.initializer}
    feeds = {}
    for value in proto.input:
        if value.name in constants:
            continue
        shape = [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        is_float = np.issubdtype(dtype, np.floating)
        feeds[value.name] = (rng.standard_normal(shape) if is_float else rng.integers(0, 100, shape)).astype(dtype)
    return feeds


def assert_same_results(
    model: bytes,
    feeds: Mapping[str, np.ndarray] | None = None,
    *,
    config: Mapping[str, str] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    against_onnxruntime: bool = True,
) -> None:
    """Results at level 2 are those without optimization, and ONNX Runtime's; each run twice, recorded and specialised."""
    feeds = feeds_of(model) if feeds is None else feeds
    session = open_session(model, 2, config=config)
    expected = [open_session(model, 0).run(None, feeds)]
    if against_onnxruntime:
        expected.append(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds))
    for _ in range(3):
        results = session.run(None, feeds)
        for reference in expected:
            for actual, wanted in zip(results, reference, strict=True):
                assert actual.dtype == wanted.dtype
                assert actual.shape == wanted.shape
                np.testing.assert_allclose(actual.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)
