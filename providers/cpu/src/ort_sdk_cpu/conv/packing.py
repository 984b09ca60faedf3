"""Weights in panels of output channels, as the tasks of direct convolutions read them.

A panel holds as many output channels as a row of a register tile: ``[panels][taps and input channels][channels of a panel]``,
zeros behind the last channel. So a micro-kernel reads each panel from its begin to its end, one row of the tile per step of K.
"""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.extents.sizes import panel_count, panel_width
from ort_sdk_cpu.memory.workspace import aligned_bytes

__all__ = ["pack_panels", "panel_count", "panel_width", "unpack_panels"]

_FLOAT = np.dtype(np.float32)


def pack_panels(weight: HostArray, outputs: int) -> HostArray:
    """A weight in panels: uint8, from the address of a cache line on.

    Args:
        weight: float32 (M, K), given as any contiguous array.
        outputs: M.
    """
    width = panel_width()
    rows = weight.reshape(-1).view(_FLOAT).reshape(outputs, -1)
    result = aligned_bytes(panel_count(outputs) * width * rows.shape[1] * _FLOAT.itemsize)
    panels = result.view(_FLOAT).reshape(-1, rows.shape[1], width)
    for index, panel in enumerate(panels):
        part = rows[index * width : (index + 1) * width]
        panel[:, : len(part)] = part.T
        panel[:, len(part) :] = 0
    return result


def unpack_panels(packed: HostArray, shape: tuple[int, ...]) -> HostArray:
    """The inverse: a weight of a shape (M, ...)."""
    panels = packed.view(_FLOAT).reshape(panel_count(shape[0]), -1, panel_width())
    return np.ascontiguousarray(panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[: shape[0]]).reshape(shape)
