"""Scales and zero points of 8-bit and 16-bit tensors, as compiled tasks take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo

__all__ = ["BYTES", "EXACT_FLOAT", "WORDS", "Parameters", "is_of_one_scale", "limits", "parameters_of", "sign_bit"]

Parameters = tuple[float, float]
"""(zero point, scale)."""
BYTES = frozenset({np.dtype(np.uint8), np.dtype(np.int8)})
WORDS = frozenset({np.dtype(np.uint16), np.dtype(np.int16)})
EXACT_FLOAT = 1 << 24
"""Whole numbers up to which float32 has all."""
_FLOAT = np.dtype(np.float32)


def parameters_of(info: KernelInfo, scale: int, zero_point: int) -> Parameters | None:
    """From constant inputs of one element, if the scale is float32; None for others."""
    scales, zeros = info.constant_input(scale), info.constant_input(zero_point)
    if scales is None or scales.size != 1 or scales.dtype != _FLOAT or (zeros is None and info.has_input(zero_point)):
        return None
    if zeros is not None and (zeros.size != 1 or zeros.dtype not in BYTES | WORDS):
        return None
    return 0.0 if zeros is None else float(zeros.reshape(())), float(scales.reshape(()))


def is_of_one_scale(info: KernelInfo, scale: int) -> bool:
    """Whether a scale, constant or not, is known to be one number for the whole tensor."""
    argument = info.inputs[scale]
    return argument is not None and argument.shape in {(), (1,)}


def sign_bit(array: HostArray) -> int:
    """What makes a tensor's elements unsigned by exclusive or, and larger by as much; 0 for those that are unsigned."""
    return 1 << (8 * array.itemsize - 1) if array.dtype.kind == "i" else 0


def limits(array: HostArray) -> tuple[float, float]:
    """Lowest and highest number of a tensor's type."""
    found: Any = np.iinfo(array.dtype)
    return float(found.min), float(found.max)
