"""Packing of constant operands of 8-bit GEMMs and convolutions, in the order in which compiled tasks read them."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.memory.workspace import aligned_bytes

__all__ = ["PANEL", "pack_columns", "pack_columns_plain", "pack_panels", "pack_panels_plain"]

PANEL = 64
"""Columns of a panel, as in ``microkernels.tile``."""
_LANES = (4, -1, 4)
"""A column's position in a panel: which 128-bit part of a vector, which vector, which lane of the part."""
_INT32 = np.dtype(np.int32)


def pack_panels(lines: HostArray, panel: int) -> HostArray:
    """Int8 weights in panels: (panels, steps, vectors, lanes, 4).

    Args:
        lines: (columns, lines, elements of a line); zeros are put behind each line up to a multiple of four, and zero columns up
            to whole panels.
        panel: columns of one, a multiple of 16.
    """
    fours = _in_fours(lines, panel)
    return _aligned(fours.reshape(len(fours) // panel, *_LANES, fours[0].size).transpose(0, 4, 2, 1, 3))


def pack_panels_plain(lines: HostArray) -> HostArray:
    """The same with a panel's columns in their own order: int32, (panels, steps, columns)."""
    fours = _in_fours(lines, PANEL)
    return _aligned(fours.reshape(-1, PANEL, fours[0].size).transpose(0, 2, 1))


def _in_fours(lines: HostArray, panel: int) -> HostArray:
    """Four elements of a line in an int32: (columns of whole panels, lines, fours)."""
    columns, _, length = lines.shape
    whole = np.ascontiguousarray(lines)
    if columns % panel or length % 4:
        whole = np.pad(whole, ((0, -columns % panel), (0, 0), (0, -length % 4)))
    fours: HostArray = whole.view(_INT32)
    return fours


def pack_columns(panel: int, *rows: HostArray) -> HostArray:
    """What belongs to the columns, int32 or float32, row behind row in a panel's order: int32, (panels, rows * its columns)."""
    return _aligned(np.concatenate([_in_panels(panel, row) for row in rows], axis=1))


def pack_columns_plain(*rows: HostArray) -> HostArray:
    """What belongs to each panel's columns, int32 or float32, row behind row: int32, (panels, rows, 64)."""
    whole = np.zeros((len(rows), -(-rows[0].size // PANEL) * PANEL), _INT32)
    for target, row in zip(whole, rows, strict=True):
        target[: row.size] = np.ascontiguousarray(row).view(_INT32)
    return _aligned(whole.reshape(len(rows), -1, PANEL).transpose(1, 0, 2))


def _aligned(array: HostArray) -> HostArray:
    """A contiguous copy at a multiple of 64 bytes: no vector of it is in two cache lines."""
    found = aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    np.copyto(found, array)
    return found


def _in_panels(panel: int, values: HostArray) -> HostArray:
    panels = -(-values.size // panel)
    whole = np.zeros(panels * panel, _INT32)
    whole[: values.size] = np.ascontiguousarray(values).view(_INT32)
    return np.ascontiguousarray(whole.reshape(panels, *_LANES).transpose(0, 2, 1, 3).reshape(panels, panel))
