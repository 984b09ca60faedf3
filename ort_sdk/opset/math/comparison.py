"""Comparisons, and the operators on truth values."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.opset.broadcasting import binary
from ort_sdk.opset.definition import operator

__all__: list[str] = []

_STANDARD_NAMES = {
    "And": "logical_and",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Or": "logical_or",
    "Xor": "logical_xor",
}


def _declare(op_type: str, standard_name: str) -> None:
    @operator(op_type)
    def comparison(info: KernelInfo, xp: Any) -> Compute:
        return binary(info, xp, getattr(xp, standard_name))


for _op_type, _standard_name in _STANDARD_NAMES.items():
    _declare(_op_type, _standard_name)
