"""Which taps of a pooling window are within the input."""

from __future__ import annotations

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.pool.arguments.windows import WindowAxis

__all__ = ["taps_within"]


@inline
def taps_within(axis: WindowAxis, origin: int) -> tuple[int, int]:
    """First tap within the input, and the one behind the last, of a window whose first tap is at ``origin``.

    Bounds are worked out once per window and axis, so that the loops over taps have no branches.
    """
    first = 0 if origin >= 0 else (axis.dilation - 1 - origin) // axis.dilation
    # Most windows end within the input: no division for them.
    if origin + (axis.kernel - 1) * axis.dilation < axis.size:
        return first, axis.kernel
    return first, 0 if origin >= axis.size else (axis.size - origin + axis.dilation - 1) // axis.dilation
