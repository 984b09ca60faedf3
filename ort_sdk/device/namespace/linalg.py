"""Determinants and inverses of small matrices: a lane eliminates one matrix."""

from __future__ import annotations

from types import SimpleNamespace

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.expressions.nodes import element_count
from ort_sdk.device.launches import KernelSource, Launch, index64

__all__ = ["LINALG"]

_TYPES = frozenset({TensorElementType.FLOAT, TensorElementType.DOUBLE})

_DETERMINANT = """
/* y[e] = determinant of x[e], which is overwritten: elimination with the largest pivot of each column */
KERNEL WORKGROUP(LANES, 1, 1) void determinant(GLOBAL_PTR(T) x, GLOBAL(T) y, i64 total, i64 n) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    GLOBAL_PTR(T) a = x + e * n * n;
    T product = 1;
    for (i64 c = 0; c < n; c++) {
      i64 best = c;
      for (i64 r = c + 1; r < n; r++) if (fabs(a[r * n + c]) > fabs(a[best * n + c])) best = r;
      T pivot = a[best * n + c];
      product *= best == c ? pivot : -pivot;
      for (i64 j = c; j < n; j++) { T swapped = a[c * n + j]; a[c * n + j] = a[best * n + j]; a[best * n + j] = swapped; }
      for (i64 r = c + 1; r < n && pivot != 0; r++) {
        T factor = a[r * n + c] / pivot;
        for (i64 j = c; j < n; j++) a[r * n + j] -= factor * a[c * n + j];
      }
    }
    y[e] = product;
  }
}
"""

_INVERSE = """
/* y[e] = inverse of x[e], which is overwritten: elimination with the largest pivot of each column */
KERNEL WORKGROUP(LANES, 1, 1) void inverse(GLOBAL_PTR(T) x, GLOBAL_PTR(T) y, i64 total, i64 n) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    GLOBAL_PTR(T) a = x + e * n * n;
    GLOBAL_PTR(T) b = y + e * n * n;
    for (i64 j = 0; j < n * n; j++) b[j] = j % (n + 1) == 0 ? 1 : 0;
    for (i64 c = 0; c < n; c++) {
      i64 best = c;
      for (i64 r = c + 1; r < n; r++) if (fabs(a[r * n + c]) > fabs(a[best * n + c])) best = r;
      T pivot = a[best * n + c];
      for (i64 j = 0; j < n; j++) {
        T swapped = a[c * n + j]; a[c * n + j] = a[best * n + j] / pivot; if (best != c) a[best * n + j] = swapped;
        swapped = b[c * n + j]; b[c * n + j] = b[best * n + j] / pivot; if (best != c) b[best * n + j] = swapped;
      }
      for (i64 r = 0; r < n; r++) {
        T factor = r == c ? 0 : a[r * n + c];
        for (i64 j = 0; j < n && r != c; j++) { a[r * n + j] -= factor * a[c * n + j]; b[r * n + j] -= factor * b[c * n + j]; }
      }
    }
  }
}
"""


def _eliminated(name: str, text: str, x: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.element_type not in _TYPES:
        raise InvalidArgument(
            f"computing the {name} of an array of shape {list(x.shape)} and type {x.element_type.onnx_name}: the last two sizes"
            " must be the same, and the type float or double"
        )
    context = x.context
    output = context.new(shape, x.element_type)
    if 0 not in shape:
        total, lanes = element_count(x.shape[:-2]), context.device.lanes
        arguments = (context.copied(x.node).held, output.held, index64(total), index64(x.shape[-1]))
        source = KernelSource(name, text, (("LANES", lanes), ("T", STORAGE[x.element_type])))
        context.submit(Launch(source, (-(-total // lanes),), (lanes,), arguments, (0, 1)))
    return x.made(output)


def determinant(x: DeviceArray, /) -> DeviceArray:
    """Determinants of matrices along the last two axes."""
    return _eliminated("determinant", _DETERMINANT, x, x.shape[:-2])


def inverse(x: DeviceArray, /) -> DeviceArray:
    """Inverses of matrices along the last two axes; of a singular one numbers that are not finite."""
    return _eliminated("inverse", _INVERSE, x, x.shape)


LINALG = SimpleNamespace(det=determinant, inv=inverse)
"""The standard's extension, as far as operators need it."""
