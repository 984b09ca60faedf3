"""Unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, KernelInfo
from ort_sdk.opset.definition import operator

from .common import normalize_axis

__all__ = ["unique"]


def _unique_slices(x: HostArray, axis: int) -> tuple[HostArray, HostArray, HostArray]:
    """First occurrence, inverse and count of the distinct slices along an axis, in ascending order."""
    codes = x
    if x.dtype.kind in "OV":
        codes = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    return first, inverse.reshape(-1), counts


def _in_order_of_appearance(first: HostArray, inverse: HostArray, counts: HostArray) -> tuple[HostArray, HostArray, HostArray]:
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse], counts[order]


@operator("Unique", any_type=True, shape_inputs=None, host_inputs=(0,))
def unique(info: KernelInfo, xp: Any) -> Compute:
    """Distinct elements (or slices along ``axis``), where each first occurs, which one each input is, and how often.

    Found on the host: the array standard has no first occurrences along an axis.
    """
    axis, ascending = info.attribute("axis", None), bool(info.attribute("sorted", 1))

    def compute(x: HostArray) -> tuple[Array | None, ...]:
        along = 0 if axis is None else normalize_axis(info, axis, x.ndim)
        if axis is None:
            x = x.reshape(-1)
        found = _unique_slices(x, along)
        first, inverse, counts = found if ascending else _in_order_of_appearance(*found)
        outputs = (np.take(x, first, axis=along), *(part.astype(np.int64, copy=False) for part in (first, inverse, counts)))
        return tuple(xp.from_host(output) if info.wants_output(index) else None for index, output in enumerate(outputs))

    return compute
