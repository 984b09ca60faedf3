"""Padding into working memory."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import HostArray
from ort_sdk.opset.nn.windows import Windows

from .scratch import Scratch

__all__ = ["padded_into"]


def padded_into(x: HostArray, windows: Windows, value: float, scratch: Scratch) -> HostArray:
    """The input extended with ``value`` (or cut) to what the windows span: (N, C, *extents); a view of it if nothing is added."""
    extents, lead = windows.extents, x.ndim - len(windows.extents)
    sources, targets = [], []
    for size, begin, extent in zip(windows.input_shape, windows.pads_begin, extents, strict=True):
        stop = max(min(size, extent - begin), 0)
        sources.append(slice(0, stop))
        targets.append(slice(begin, begin + stop))
    every: tuple[Any, ...] = (slice(None),)
    cut = x[(*every * lead, *sources)]
    if cut.shape[lead:] == extents:
        return cut
    result = scratch.array("padded", (*x.shape[:lead], *extents), x.dtype)
    result[(*every * lead, *targets)] = cut
    for axis, target in enumerate(targets):
        before = every * (lead + axis)
        result[(*before, slice(0, target.start))] = value
        result[(*before, slice(target.stop, None))] = value
    return result
