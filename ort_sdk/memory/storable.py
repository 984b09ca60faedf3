"""Which packed weights files can give back."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import PrePackedWeights

__all__ = ["is_storable"]


def is_storable(weights: PrePackedWeights) -> bool:
    """Whether the buffers are plain bytes of the host; files cannot give back anything else."""
    return bool(weights.buffers) and all(
        isinstance(buffer, np.ndarray) and buffer.dtype == np.uint8 and buffer.ndim == 1 and buffer.flags.c_contiguous
        for buffer in weights.buffers
    )
