"""Matrix products."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import COMPUTE, HALF_TYPES, STORAGE
from ort_sdk.device.expressions.nodes import Constant, Strided, element_count
from ort_sdk.device.launches import KernelSource, Launch, index64

__all__ = ["PRODUCTS", "matmul"]

_MATMUL = """
/* y[b, i, j] = sum of x[b, i, k] * w[b, k, j] for any strides; one lane per element */
KERNEL WORKGROUP(LANES, 1, 1) void matmul(GLOBAL(const T) x, GLOBAL(const T) w, GLOBAL(T) y,
    i64 total, i64 m, i64 n, i64 k, i64 xo, i64 wo, i64 b0, i64 b1, i64 xb0, i64 xb1, i64 wb0, i64 wb1,
    i64 xi, i64 xk, i64 wk, i64 wj) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 j = e % n, i = e / n % m, b = e / n / m;
    i64 p = xo + b / b1 % b0 * xb0 + b % b1 * xb1 + i * xi;
    i64 q = wo + b / b1 % b0 * wb0 + b % b1 * wb1 + j * wj;
    C a = 0;
    for (i64 r = 0; r < k; r++) a += GET(x[p + r * xk]) * GET(w[q + r * wk]);
    y[e] = PUT(a);
  }
}
"""


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
    result = _batched(left, right, target)
    shape = list(result.shape)
    if x1.ndim == 1:
        del shape[-2]
    if x2.ndim == 1:
        del shape[-1]
    return result.made(indexing.reshaped(result.context, result.node, shape))


def _promoted(x1: DeviceArray, x2: DeviceArray) -> Any:
    import numpy as np

    return np.promote_types(x1.dtype, x2.dtype)


def _batched(left: DeviceArray, right: DeviceArray, element_type: TensorElementType) -> DeviceArray:
    context = left.context
    batch = arithmetic.broadcast_shape((left.shape[:-2], right.shape[:-2]))
    (m, k), n = left.shape[-2:], right.shape[-1]
    shape = (*batch, m, n)
    if 0 in shape or k == 0:
        return left.made(Constant(0, shape, element_type))
    x, w = left.strided(), right.strided()
    output = context.new(shape, element_type)
    x, w, outer = _two_axes(left, right, x, w, batch)
    storage = STORAGE[element_type]
    is_half = element_type in HALF_TYPES
    lanes = context.device.lanes
    defines = (
        ("LANES", lanes),
        ("T", storage),
        ("C", COMPUTE[element_type]),
        ("GET(x)", f"get_{storage}(x)" if is_half else "(x)"),
        ("PUT(x)", f"put_{storage}(x)" if is_half else f"({storage})(x)"),
    )
    total = element_count(shape)
    numbers = (total, m, n, k, x.offset, w.offset, *outer, *x.strides[:2], *w.strides[:2], *x.strides[2:], *w.strides[2:])
    arguments: Any = (x.memory, w.memory, output.memory, *(index64(number) for number in numbers))
    source = KernelSource("matmul", _MATMUL, defines)
    context.submit(Launch(source, (-(-total // lanes),), (lanes,), arguments, (2,)))
    return left.made(output)


def _two_axes(
    left: DeviceArray, right: DeviceArray, x: Strided, w: Strided, batch: tuple[int, ...]
) -> tuple[Strided, Strided, tuple[int, int]]:
    """Both with two leading axes; copied where their own do not merge to as many."""
    from ort_sdk.device.expressions import views
    from ort_sdk.device.expressions.index_space import merged_axes

    x, w = views.broadcast(x, (*batch, *x.shape[-2:])), views.broadcast(w, (*batch, *w.shape[-2:]))
    sizes, (xs, ws) = merged_axes(batch, [x.strides[:-2], w.strides[:-2]])
    if len(sizes) > 2:
        context = left.context
        whole = (element_count(batch),)
        dense_x, dense_w = context.dense(x), context.dense(w)
        sizes = [1, *whole]
        xs, ws = [0, element_count(x.shape[-2:])], [0, element_count(w.shape[-2:])]
        x, w = dense_x, dense_w
    if len(sizes) == 1:
        sizes, xs, ws = [1, *sizes], [0, *xs], [0, *ws]
    outer = (sizes[0], sizes[1])
    x = Strided(x.memory, (*outer, *x.shape[-2:]), x.element_type, (*xs, *x.strides[-2:]), x.offset)
    w = Strided(w.memory, (*outer, *w.shape[-2:]), w.element_type, (*ws, *w.strides[-2:]), w.offset)
    return x, w, outer


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
