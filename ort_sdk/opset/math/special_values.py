"""IsNaN and IsInf."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []


@operator("IsNaN")
def is_nan(_info: KernelInfo, xp: Any) -> Compute:
    """Whether x is not a number."""
    function: Compute = xp.isnan
    return function


@operator("IsInf")
def is_inf(info: KernelInfo, xp: Any) -> Compute:
    """Whether x is infinite, of a sign that ``detect_positive`` and ``detect_negative`` allow."""
    positive, negative = bool(info.attribute("detect_positive", 1)), bool(info.attribute("detect_negative", 1))
    if positive and negative:
        function: Compute = xp.isinf
        return function
    if positive or negative:
        sought = math.inf if positive else -math.inf
        return lambda x: x == sought

    def nothing(x: Array) -> Array:
        return xp.zeros(x.shape, dtype=xp.bool)

    return nothing
