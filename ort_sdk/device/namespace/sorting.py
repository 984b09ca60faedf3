"""Sorting along the last axis."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import COMPUTE, STORAGE
from ort_sdk.device.expressions.nodes import element_count
from ort_sdk.device.launches import KernelSource, Launch, index64

from .gathering import take_along_axis
from .movement import moveaxis

__all__ = ["SORTING", "argsort", "smallest_indices"]

_RANK = """
/* index[r, place of element i among its row] = i: an element's place is how many come before it */
KERNEL WORKGROUP(LANES, 1, 1) void rank(GLOBAL(const T) x, GLOBAL(i64) index, i64 total, i64 n, i64 kept) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 i = e % n, row = e / n;
    GLOBAL(const T) own = x + row * n;
    T value = own[i];
    i64 place = 0;
    for (i64 j = 0; j < n; j++) {
      T other = own[j];
      int before = BEFORE(other, value), after = BEFORE(value, other);
      place += before || (!after && j < i);
    }
    if (place < kept) index[row * kept + place] = i;
  }
}
"""


def _ranked(x: DeviceArray, kept: int, *, descending: bool) -> DeviceArray:
    """Indices of the first elements of each row in order; equal ones keep their order, NaN comes last."""
    context, n = x.context, x.shape[-1]
    output = context.new((*x.shape[:-1], kept), TensorElementType.INT64)
    total = element_count(x.shape)
    if not total or not kept:
        return x.made(output)
    wide = x if COMPUTE[x.element_type] == STORAGE[x.element_type] else arithmetic.cast(x, _computed(x.element_type))
    source = context.dense(wide.node)
    order = "((a) > (b) || ((a) == (a) && (b) != (b)))" if descending else "((a) < (b) || ((a) == (a) && (b) != (b)))"
    lanes = context.device.lanes
    kernel = KernelSource("rank", _RANK, (("LANES", lanes), ("T", STORAGE[wide.element_type]), ("BEFORE(a, b)", order)))
    arguments: Any = (source.memory, output.memory, index64(total), index64(n), index64(kept))
    context.submit(Launch(kernel, (-(-total // lanes),), (lanes,), arguments, (1,)))
    return x.made(output)


def _computed(element_type: TensorElementType) -> TensorElementType:
    return TensorElementType.UINT8 if element_type is TensorElementType.BOOL else TensorElementType.FLOAT


def smallest_indices(keys: DeviceArray, k: int) -> DeviceArray:
    """See ``ArrayNamespace.smallest_indices``."""
    return _ranked(keys, k, descending=False)


def argsort(x: DeviceArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> DeviceArray:
    """Indices that sort along an axis; equal elements keep their order."""
    rows = moveaxis(x, axis, -1)
    return moveaxis(_ranked(rows, rows.shape[-1], descending=descending), -1, axis)


def sort(x: DeviceArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> DeviceArray:
    """The elements in order."""
    return take_along_axis(x, argsort(x, axis=axis, descending=descending), axis=axis)


SORTING = {"argsort": argsort, "sort": sort}
"""Name in the standard → function."""
