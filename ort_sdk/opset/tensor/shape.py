"""Shape and Size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["shape", "size"]


@operator("Shape", moves=True, contents_from_shapes=True, host_outputs=(0,))
def shape(info: KernelInfo, _xp: Any) -> Compute:
    """Dimensions from ``start`` to ``end`` as a host int64 vector; out-of-range bounds are clamped."""
    part = slice(info.attribute("start", 0), info.attribute("end", None))

    def compute(data: Array) -> HostArray:
        return np.array(data.shape[part], dtype=np.int64)

    return compute


@operator("Size", moves=True, contents_from_shapes=True, host_outputs=(0,))
def size(_info: KernelInfo, _xp: Any) -> Compute:
    """Number of elements as a host int64 scalar."""
    return lambda data: np.array(math.prod(data.shape), dtype=np.int64)
