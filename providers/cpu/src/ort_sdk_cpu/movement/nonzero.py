"""NonZero by NumPy, with nothing between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import KernelInfo
from ort_sdk_cpu.kernel.eager import direct_call

__all__: list[str] = []


@direct_call("NonZero")
def nonzero(_info: KernelInfo) -> Callable[..., Any]:
    """Coordinates of elements that are not zero."""
    return lambda x: np.array(np.nonzero(x), np.int64) if x.ndim else NotImplemented
