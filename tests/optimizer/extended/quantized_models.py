"""Models whose weights go through DequantizeLinear, and what they compute in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from tests.optimizer.extended.fused_graph import FLOAT, Value, build, node

DTYPES = {
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int8": np.int8,
    "uint8": np.uint8,
}
RNG = np.random.default_rng(11)
EXACT = {"session.qdq_matmulnbits_accuracy_level": "0"}


def integers(name: str, shape: Sequence[int]) -> np.ndarray:
    """Any values of a quantized type."""
    bits = int(name[-1])
    low = 0 if name.startswith("u") else -(1 << (bits - 1))
    return RNG.integers(low, low + (1 << bits), shape).astype(DTYPES[name])


def scales(shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    return RNG.uniform(0.01, 0.1, shape).astype(dtype)


def quantized(
    name: str, shape: tuple[int, ...], axis: int | None, block_size: int, zero_points: bool, dtype: Any = np.float32
) -> dict[str, np.ndarray]:
    """Constants ``w``, ``s`` and, if asked for, ``z`` of a DequantizeLinear; axis None is for one scale."""
    if block_size:
        assert axis is not None
        parameters = (*shape[:axis], -(-shape[axis] // block_size), *shape[axis + 1 :])
    else:
        parameters = () if axis is None else (shape[axis],)
    made = {"w": integers(name, shape), "s": scales(parameters, dtype)}
    return made | ({"z": integers(name, parameters)} if zero_points else {})


def dequantize(
    constants: Mapping[str, np.ndarray], axis: int | None, block_size: int, output: str = "d", **attributes: Any
) -> onnx.NodeProto:
    """DequantizeLinear of ``w``."""
    given = {} if axis is None else {"axis": axis}
    blocks = {"block_size": block_size} if block_size else {}
    return node("DequantizeLinear", [name for name in "wsz" if name in constants], [output], **given, **blocks, **attributes)


def real(constants: Mapping[str, np.ndarray], axis: int | None, block_size: int) -> np.ndarray:
    """The dequantized weight in float64."""
    weight = constants["w"].astype(np.float64)

    def expand(values: np.ndarray) -> np.ndarray:
        if axis is None or not values.ndim:
            return values
        if not block_size:
            return np.expand_dims(values, [other for other in range(weight.ndim) if other != axis])
        return np.repeat(values, block_size, axis).take(range(weight.shape[axis]), axis)

    zeros = expand(constants["z"].astype(np.float64)) if "z" in constants else 0.0
    return (weight - zeros) * expand(constants["s"].astype(np.float64))


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    constants: Mapping[str, Any],
    outputs: Sequence[Value] = (("y", FLOAT, None),),
) -> bytes:
    """A model of the opset that has 2-bit types."""
    model = onnx.ModelProto.FromString(build(nodes, inputs, outputs, constants, opset=25))
    model.ir_version = 13
    return model.SerializeToString()


def product(
    constants: Mapping[str, np.ndarray],
    axis: int | None,
    block_size: int,
    operator: str = "MatMul",
    bias: np.ndarray | None = None,
    element_type: int = FLOAT,
    **attributes: Any,
) -> bytes:
    """x @ dequantized w."""
    size_k = constants["w"].shape[1 if attributes.get("transB") else 0]
    extra = {} if bias is None else {"b": bias}
    nodes = [dequantize(constants, axis, block_size), node(operator, ["x", "d", *extra], ["y"], **attributes)]
    shape = [3, size_k] if operator == "Gemm" else [2, 3, size_k]
    return model_of(nodes, [("x", element_type, shape)], {**constants, **extra}, [("y", element_type, None)])


INT64 = TensorProto.INT64
