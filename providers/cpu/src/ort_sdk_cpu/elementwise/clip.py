"""Clip by NumPy: its clip is four times faster on large arrays than maximum and minimum with a scalar, slower on small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["clamp", "largest", "rectifier"]

SMALL = 4096
"""Elements up to which the call itself takes longer than the work."""


def clamp(x: HostArray, low: Any, high: Any, out: HostArray) -> None:
    """min(max(x, low), high), NaN where x is; ``x`` may be ``out``."""
    if out.size > SMALL:
        np.clip(x, low, high, out=out)
    else:
        np.maximum(x, low, out=out)
        np.minimum(out, high, out=out)


def largest(dtype: np.dtype[Any]) -> HostArray:
    """What no value of a number type exceeds."""
    return np.asarray(np.inf if dtype.kind == "f" else np.iinfo(dtype).max, dtype=dtype)


def rectifier(dtype: np.dtype[Any]) -> Callable[[HostArray, HostArray], None]:
    """``function(x, out)`` for max(x, 0); ``x`` may be ``out``."""
    zero, top = np.asarray(0, dtype=dtype), largest(dtype)

    def rectify(x: HostArray, out: HostArray) -> None:
        if out.size > SMALL:
            np.clip(x, zero, top, out=out)
        else:
            np.maximum(x, zero, out=out)

    return rectify
