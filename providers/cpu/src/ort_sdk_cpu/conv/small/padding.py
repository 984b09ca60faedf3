"""Copies with padding, in workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import HostArray
from ort_sdk.opset.nn.windows import Windows
from ort_sdk.opset.sizes import require_size
from ort_sdk_cpu.memory.workspace import Workspace

__all__ = ["padder"]


def padder(windows: Windows, value: float, workspace: Workspace) -> Callable[[HostArray], HostArray]:
    """A function that extends (N, C, *spatial) with ``value`` (or cuts it) to what the windows span: (N, C, *extents).

    It gives workspace, or a view of the input if nothing is added.
    """
    extents = require_size("a padded input", windows.extents, 1)
    every: tuple[Any, ...] = (slice(None), slice(None))
    sources, targets, borders = every, every, []
    for size, begin, extent in zip(windows.input_shape, windows.pads_begin, extents, strict=True):
        stop = max(min(size, extent - begin), 0)
        whole = (slice(None),) * (len(targets))
        if begin:
            borders.append((*whole, slice(0, begin)))
        if begin + stop < extent:
            borders.append((*whole, slice(begin + stop, None)))
        sources, targets = (*sources, slice(0, stop)), (*targets, slice(begin, begin + stop))
    if not borders:
        return lambda x: x[sources]

    def pad(x: HostArray) -> HostArray:
        result = workspace.array("padded", (*x.shape[:2], *extents), x.dtype)
        result[targets] = x[sources]
        for border in borders:
            result[border] = value
        return result

    return pad
