"""Functions of one input that the array API standard has under another name, or nearly."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []

_STANDARD_NAMES = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_invert",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
}


def _declare(op_type: str, standard_name: str) -> None:
    @operator(op_type)
    def unary(_info: KernelInfo, xp: Any) -> Compute:
        function: Compute = getattr(xp, standard_name)
        return function


for _op_type, _standard_name in _STANDARD_NAMES.items():
    _declare(_op_type, _standard_name)


@operator("Reciprocal")
def reciprocal(_info: KernelInfo, _xp: Any) -> Compute:
    """1 / x."""
    return lambda x: 1.0 / x
