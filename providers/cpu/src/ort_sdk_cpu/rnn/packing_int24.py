"""Recurrent weights as panels of 24-bit fixed point, with a scale per unit and gate: a quarter less is read in each step.

A step reads all weights, and goes at the pace of the outer caches if they do not fit the second level. The rounding error is at
most 2**-24 of a sum's largest weight, less than what adding up its products in float32 loses, unless most of its weights are
much smaller than the largest: then they stay float32.
"""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray, OrtMemoryInfo, TensorElementType
from ort_sdk_cpu.memory.allocator import CpuAllocator

__all__ = ["UNITS", "int24_panel_bytes", "packed_int24", "unpacked_int24"]

UNITS = 16
"""Hidden units of a panel: the lanes of a vector."""
LARGEST = 2.0**31 - 2.0**10
"""Fixed-point number of the largest weight: with what is added for rounding it still has 32 bits."""
MOST_SPREAD = 8.0
"""Largest weight of a sum over the root of their mean square."""
_GROUP, _PACKED = 4, 3
"""Vectors of weights that go into so many vectors."""


def int24_panel_bytes(hidden: int, gates: int) -> int:
    """Bytes of one panel."""
    return gates * (UNITS * 4 + hidden * UNITS * 3)


def packed_int24(panels: HostArray, hidden: int, gates_together: tuple[int, ...]) -> HostArray | None:
    """Panels of float32, (directions, elements), as such panels, uint8 (directions, bytes); None if their spread is too large."""
    count = -(-hidden // UNITS)
    size = sum(count * int24_panel_bytes(hidden, gates) for gates in gates_together)
    found: HostArray = CpuAllocator(OrtMemoryInfo()).allocate((len(panels), size), TensorElementType.UINT8)
    for source, target in zip(panels, found, strict=True):
        for panel, packed_panel in zip(
            _float_panels(source, hidden, gates_together), _packed_panels(target, hidden, gates_together), strict=True
        ):
            if not _pack_panel(panel, packed_panel):
                return None
    return found


def unpacked_int24(content: HostArray, directions: int, hidden: int, gates_together: tuple[int, ...]) -> HostArray:
    """The inverse: float32, (directions, elements)."""
    count = -(-hidden // UNITS)
    found = np.empty((directions, sum(gates_together) * count * UNITS * hidden), np.float32)
    for source, target in zip(content.reshape(directions, -1), found, strict=True):
        for panel, packed_panel in zip(
            _float_panels(target, hidden, gates_together), _packed_panels(source, hidden, gates_together), strict=True
        ):
            _unpack_panel(packed_panel, panel)
    return found


def _float_panels(panels: HostArray, hidden: int, gates_together: tuple[int, ...]) -> list[HostArray]:
    """(hidden, gates, units) for each panel of a direction."""
    count, found, first = -(-hidden // UNITS), [], 0
    for gates in gates_together:
        size = count * hidden * gates * UNITS
        found += list(panels[first : first + size].reshape(count, hidden, gates, UNITS))
        first += size
    return found


def _packed_panels(panels: HostArray, hidden: int, gates_together: tuple[int, ...]) -> list[HostArray]:
    """The bytes of each panel of a direction."""
    count, found, first = -(-hidden // UNITS), [], 0
    for gates in gates_together:
        size = count * int24_panel_bytes(hidden, gates)
        found += list(panels[first : first + size].reshape(count, -1))
        first += size
    return found


def _scales_and_vectors(packed_panel: HostArray, gates: int) -> tuple[HostArray, HostArray]:
    """Scales, (gates, units), and packed vectors, (groups, 3, units)."""
    scales = packed_panel[: gates * UNITS * 4].view(np.float32).reshape(gates, UNITS)
    return scales, packed_panel[gates * UNITS * 4 :].view(np.int32).reshape(-1, _PACKED, UNITS)


def _pack_panel(panel: HostArray, packed_panel: HostArray) -> bool:
    largest = np.abs(panel).max(axis=0).astype(np.float64)
    mean_squares = np.square(panel, dtype=np.float64).mean(axis=0)
    if not np.all(np.square(largest) <= MOST_SPREAD**2 * mean_squares) or not math.isfinite(float(largest.max())):
        return False
    scales, packed = _scales_and_vectors(packed_panel, panel.shape[1])
    scales[...] = largest / LARGEST
    inverse = np.divide(1.0, scales, out=np.zeros(scales.shape), where=scales > 0, dtype=np.float64)
    numbers = np.rint(panel * inverse).astype(np.int32).reshape(-1, _GROUP, UNITS)
    last = (numbers[:, _PACKED] + 128) >> 8
    lowest = np.stack([last >> 16, last >> 8, last], axis=1) & 0xFF
    packed[...] = ((numbers[:, :_PACKED] - lowest + 128) & ~0xFF) | lowest
    return True


def _unpack_panel(packed_panel: HostArray, panel: HostArray) -> None:
    scales, packed = _scales_and_vectors(packed_panel, panel.shape[1])
    first, second, third = (packed[:, index] for index in range(_PACKED))
    last = first << 24 | (second & 0xFF) << 16 | (third & 0xFF) << 8
    numbers = np.concatenate([packed, last[:, None]], axis=1)
    panel[...] = numbers.reshape(panel.shape) * scales.astype(np.float64)
