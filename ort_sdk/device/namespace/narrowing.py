"""Casts to types of at most 8 bits, by ONNX's rules."""

from __future__ import annotations

import ml_dtypes

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import NARROW_TYPES, is_floating

__all__ = ["converted"]

_SCALES = TensorElementType.FLOAT8E8M0
ROUND_MODES = ("up", "down", "nearest")


def converted(array: DeviceArray, element_type: TensorElementType, *, saturate: bool, round_mode: str) -> DeviceArray:
    """See ``ArrayNamespace.converted``.

    Raises:
        InvalidArgument: ``round_mode`` is none of up, down and nearest.
    """
    if element_type not in NARROW_TYPES or not is_floating(element_type) or array.element_type is element_type:
        return arithmetic.cast(array, element_type)
    wide = arithmetic.cast(array, TensorElementType.FLOAT)
    if element_type is _SCALES:
        if round_mode not in ROUND_MODES:
            raise InvalidArgument(f"round_mode '{round_mode}' of a cast to float8e8m0 must be one of {', '.join(ROUND_MODES)}")
        rounded = arithmetic.unary(f"e8m0_{round_mode}{'' if saturate else '_beyond'}", wide)
        return arithmetic.cast(rounded, element_type)
    if saturate:
        # the few types without infinities saturate in any case
        largest = float(ml_dtypes.finfo(element_type.numpy_dtype).max)
        wide = arithmetic.binary("minimum", arithmetic.binary("maximum", wide, -largest), largest)
    return arithmetic.cast(wide, element_type)
