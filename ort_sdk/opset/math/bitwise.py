"""BitwiseAnd, BitwiseOr, BitwiseXor and BitShift."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []

_STANDARD_NAMES = {"BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor"}


def _declare(op_type: str, standard_name: str) -> None:
    @operator(op_type)
    def bitwise(_info: KernelInfo, xp: Any) -> Compute:
        function: Compute = getattr(xp, standard_name)
        return function


for _op_type, _standard_name in _STANDARD_NAMES.items():
    _declare(_op_type, _standard_name)


@operator("BitShift")
def bit_shift(info: KernelInfo, xp: Any) -> Compute:
    """X shifted by Y bits; by a count outside [0, bits), what extending the sign leaves: -1 (right, X < 0) or 0."""
    direction = info.attribute("direction")
    if direction not in {"LEFT", "RIGHT"}:
        raise InvalidGraph(f"{info.describe()}: attribute direction is '{direction}'; allowed: 'LEFT', 'RIGHT'")
    dtype = xp.dtype(info.input_element_type(0))
    bits, zero, where = xp.iinfo(dtype).bits, xp.asarray(0, dtype=dtype), xp.where
    shift = xp.bitwise_left_shift if direction == "LEFT" else xp.bitwise_right_shift
    extends_sign = direction == "RIGHT" and xp.isdtype(dtype, "signed integer")

    def compute(x: Array, y: Array) -> Array:
        in_range = (y >= 0) & (y < bits)
        fill = where(x < 0, ~zero, zero) if extends_sign else zero
        return where(in_range, shift(x, where(in_range, y, zero)), fill)

    return compute
