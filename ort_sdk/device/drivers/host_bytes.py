"""The memory of host arrays, as drivers take it."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["as_bytes"]


def as_bytes(array: HostArray) -> HostArray:
    """A contiguous array's memory."""
    return array.reshape(-1).view(np.uint8)
