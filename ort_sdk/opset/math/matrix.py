"""MatMul, Gemm and Det."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

__all__: list[str] = []


@operator("MatMul")
def matmul(_info: KernelInfo, xp: Any) -> Compute:
    """Matrix product with NumPy's rules; a stack times one matrix is a single product."""
    product, reshape = xp.matmul, xp.reshape

    def compute(a: Array, b: Array) -> Array:
        if len(b.shape) != 2 or len(a.shape) < 3 or 0 in a.shape:
            return product(a, b)
        rows = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        return reshape(product(rows, b), (*a.shape[:-1], b.shape[1]))

    return compute


@operator("Gemm")
def gemm(info: KernelInfo, xp: Any) -> Compute:
    """alpha·A'·B' + beta·C, where ' is transposition if ``transA``, ``transB`` say so and C broadcasts to (M, N)."""
    trans_a, trans_b = bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0))
    scale_product, scale_c = _scaling(info, xp, "alpha"), _scaling(info, xp, "beta")
    product = xp.matmul

    def compute(a: Array, b: Array, c: Array | None = None) -> Array:
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise InvalidArgument(
                f"{info.describe()}: A and B must be matrices; their shapes are {tuple(a.shape)} and {tuple(b.shape)}"
            )
        result = scale_product(product(a.T if trans_a else a, b.T if trans_b else b))
        if c is None:
            return result
        _check_broadcast(c, result, info)
        return result + scale_c(c)

    return compute


def _check_broadcast(c: Array, result: Array, info: KernelInfo) -> None:
    """Only C is broadcast: it must not make the result larger."""
    sizes = (1, 1, *c.shape)[-2:]
    fits = len(c.shape) <= 2 and all(size in {1, full} for size, full in zip(sizes, result.shape, strict=True))
    if not fits:
        raise InvalidArgument(f"{info.describe()}: C of shape {tuple(c.shape)} does not broadcast to {tuple(result.shape)}")


def _scaling(info: KernelInfo, xp: Any, name: str) -> Compute:
    """Multiplication by an attribute; integers are scaled as double and truncated."""
    factor, element_type, astype = info.attribute(name, 1.0), info.input_element_type(0), xp.astype
    if factor == 1:
        return lambda x: x
    if xp.isdtype(xp.dtype(element_type), "real floating"):
        return lambda x: x * factor
    return lambda x: astype(astype(x, TensorElementType.DOUBLE) * factor, element_type)


@operator("Det")
def det(_info: KernelInfo, xp: Any) -> Compute:
    """Determinants of square matrices."""
    function: Compute = xp.linalg.det
    return function
