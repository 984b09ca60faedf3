"""Matrix products."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import OPERATIONS, DeviceArray
from ort_sdk.device.expressions.nodes import element_count
from ort_sdk.device.products.product import product_of

__all__ = ["PRODUCTS", "matmul"]


def matmul(x1: DeviceArray, x2: DeviceArray, /) -> DeviceArray:
    """Products of matrices; leading axes broadcast, vectors are a row and a column."""
    if not x1.ndim or not x2.ndim:
        raise InvalidArgument(f"multiplying matrices of shapes {list(x1.shape)} and {list(x2.shape)}: scalars are none")
    target = TensorElementType.from_numpy_dtype(_promoted(x1, x2))
    a, b = arithmetic.cast(x1, target), arithmetic.cast(x2, target)
    left = a if a.ndim > 1 else a[None, :]
    right = b if b.ndim > 1 else b[:, None]
    if left.shape[-1] != right.shape[-2]:
        raise InvalidArgument(f"multiplying matrices of shapes {list(x1.shape)} and {list(x2.shape)}: inner sizes differ")
    result = left.made(product_of(left.context, left.node, right.node, target))
    shape = list(result.shape)
    if x1.ndim == 1:
        del shape[-2]
    if x2.ndim == 1:
        del shape[-1]
    return result.made(indexing.reshaped(result.context, result.node, shape))


def _promoted(x1: DeviceArray, x2: DeviceArray) -> Any:
    import numpy as np

    return np.promote_types(x1.dtype, x2.dtype)


def vecdot(x1: DeviceArray, x2: DeviceArray, /, *, axis: int = -1) -> DeviceArray:
    """Sums of products along an axis."""
    from .reductions import sum_

    return sum_(x1 * x2, axis=axis)


def tensordot(x1: DeviceArray, x2: DeviceArray, /, *, axes: Any = 2) -> DeviceArray:
    """Sums of products along several axes of both."""
    from .movement import permute_dims, reshape

    if isinstance(axes, int):
        first, second = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        first, second = [a % x1.ndim for a in axes[0]], [a % x2.ndim for a in axes[1]]
    kept1, kept2 = [a for a in range(x1.ndim) if a not in first], [a for a in range(x2.ndim) if a not in second]
    shape1, shape2 = [x1.shape[a] for a in kept1], [x2.shape[a] for a in kept2]
    inner = element_count([x1.shape[a] for a in first])
    left = reshape(permute_dims(x1, [*kept1, *first]), (element_count(shape1), inner))
    right = reshape(permute_dims(x2, [*second, *kept2]), (inner, element_count(shape2)))
    return reshape(matmul(left, right), [*shape1, *shape2])


PRODUCTS = {"matmul": matmul, "vecdot": vecdot, "tensordot": tensordot}
"""Name in the standard → function."""

OPERATIONS["matmul"] = matmul
