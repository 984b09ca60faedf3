"""Small models for the loader's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def _add_model(
    initializers: Sequence[TensorProto] = (),
    nodes: Sequence[onnx.NodeProto] | None = None,
    opset: int = 17,
    ir_version: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
    extra_imports: Sequence[onnx.OperatorSetIdProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes) if nodes is not None else [helper.make_node("Add", ["x", "w"], ["y"])],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        list(initializers),
    )
    imports = [helper.make_opsetid("", opset), *extra_imports]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=list(functions))


@pytest.fixture
def add_model() -> Callable[..., onnx.ModelProto]:
    """Makes a model that adds ``w`` to ``x``, or has the given nodes between ``x`` and ``y``."""
    return _add_model


@pytest.fixture
def external_tensor() -> Callable[..., TensorProto]:
    """Makes a float tensor ``w`` of four elements with the given external data entries."""

    def make(*entries: tuple[str, str], dims: Sequence[int] = (4,), data_type: int = TensorProto.FLOAT) -> TensorProto:
        tensor = TensorProto(name="w", data_type=data_type, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in entries:
            tensor.external_data.add(key=key, value=value)
        return tensor

    return make


@pytest.fixture
def rich_model() -> onnx.ModelProto:
    """A model with all that a scanner meets: weights of both sizes, bodies, functions, attribute tensors, sparse weights."""
    large = np.arange(256, dtype=np.float32)
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(large, "c"))
    body = helper.make_graph(
        [constant, helper.make_node("Add", ["c", "x"], ["b"])],
        "then",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [256])],
    )
    other = helper.make_graph(
        [helper.make_node("Add", ["w", "x"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [256])],
    )
    scale = helper.make_function(
        "local",
        "Scale",
        ["a"],
        ["r"],
        [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(large * 2, "k")),
            helper.make_node("Mul", ["a", "k"], ["r"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [40], np.ones(40, dtype=np.float32)),
        helper.make_tensor("i", TensorProto.INT64, [40], np.arange(40, dtype=np.int64)),
        [256],
    )
    graph = helper.make_graph(
        [
            helper.make_node("If", ["p"], ["f"], then_branch=body, else_branch=other),
            helper.make_node("Scale", ["f"], ["g"], domain="local"),
            helper.make_node("Add", ["g", "s"], ["y"]),
        ],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [256]), helper.make_tensor_value_info("p", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [256])],
        [numpy_helper.from_array(large + 1, "w")],
        sparse_initializer=[sparse],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=[scale])
