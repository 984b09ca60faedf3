"""Sorting along an axis: equal elements keep their order, and NaN comes last."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import HALF_TYPES, is_floating
from ort_sdk.device.expressions.nodes import Apply, Strided, element_count, resolved
from ort_sdk.device.rows.selection import MOST_SELECTED, select_first
from ort_sdk.device.rows.sorting import sort_rows

from .gathering import take_along_axis
from .movement import moveaxis

__all__ = ["SORTING", "argsort", "smallest_indices"]


def _first(x: DeviceArray, kept: int, *, descending: bool) -> DeviceArray:
    """Positions of the elements of each row that come first, in order."""
    context, n = x.context, x.shape[-1]
    output = context.new((*x.shape[:-1], kept), TensorElementType.INT64)
    if not element_count(output.shape):
        return x.made(output)
    keys, descending = _without_turning(x, descending)
    source = context.dense(arithmetic.cast(keys, _compared(x.element_type)).node)
    count = element_count(x.shape[:-1])
    rows = Strided(source.memory, (count, n), source.element_type)
    positions = Strided(output.memory, (count, kept), output.element_type)
    place = select_first if kept <= MOST_SELECTED and kept < n else sort_rows
    place(context, rows, positions, descending=descending)
    return x.made(output)


def _without_turning(x: DeviceArray, descending: bool) -> tuple[DeviceArray, bool]:
    """What is sorted, and how: negated numbers, and inverted bits, are sorted as what they were made of, the other way round."""
    node = resolved(x.node)
    turning = "negative" if is_floating(x.element_type) else "bitwise_invert"
    if isinstance(node, Apply) and node.function.name == turning and node.operands[0].shape == node.shape:
        return x.made(node.operands[0]), not descending
    return x, descending


def _compared(element_type: TensorElementType) -> TensorElementType:
    """The type that elements of a type are compared in."""
    if element_type is TensorElementType.BOOL:
        return TensorElementType.UINT8
    return TensorElementType.FLOAT if element_type in HALF_TYPES else element_type


def smallest_indices(keys: DeviceArray, k: int) -> DeviceArray:
    """See ``ArrayNamespace.smallest_indices``."""
    return _first(keys, k, descending=False)


def argsort(
    x: DeviceArray,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,  # noqa: ARG001 - the standard's; it always is
) -> DeviceArray:
    """Positions of the elements along an axis, in order."""
    rows = moveaxis(x, axis, -1)
    return moveaxis(_first(rows, rows.shape[-1], descending=descending), -1, axis)


def sort(
    x: DeviceArray,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,  # noqa: ARG001 - the standard's; it always is
) -> DeviceArray:
    """The elements in order."""
    return take_along_axis(x, argsort(x, axis=axis, descending=descending), axis=axis)


SORTING = {"argsort": argsort, "sort": sort}
"""Name in the standard → function."""
