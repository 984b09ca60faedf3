"""Relu."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.opset.definition import operator


@operator("Relu")
def relu(info: KernelInfo, xp: Any) -> Compute:
    """max(x, 0), element by element."""
    maximum = xp.maximum
    zero = xp.asarray(0, dtype=xp.dtype(info.input_element_type(0)))
    return lambda x: maximum(x, zero)
