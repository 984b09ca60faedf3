"""Identity."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["identity"]


@operator("Identity", moves=True, alias=((0, 0),))
def identity(_info: KernelInfo, _xp: Any) -> Compute:
    """The input itself: a tensor, a sequence (a new list of the same arrays) or an optional."""
    return lambda x: list(x) if isinstance(x, list) else x
