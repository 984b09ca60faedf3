"""What a kernel tells of itself so that it may become part of a chain. Imports nothing, as every kernel asks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ort_sdk.api import KernelInfo

__all__ = ["ElementOperation", "operation_of"]

_ATTRIBUTES: dict[tuple[str, str], Mapping[str, Any]] = {
    **{
        ("", op_type): {}
        for op_type in (
            *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual"),
            *("HardSwish", "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu"),
            *("Round", "Sigmoid", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor"),
        )
    },
    ("", "Gelu"): {"approximate": "none"},
    ("", "HardSigmoid"): {"alpha": 0.2, "beta": 0.5},
    ("", "LeakyRelu"): {"alpha": 0.01},
    ("", "Swish"): {"alpha": 1.0},
    ("com.microsoft", "BiasGelu"): {},
    ("com.microsoft", "FastGelu"): {},
    ("com.microsoft", "Gelu"): {},
    ("com.microsoft", "QuickGelu"): {"alpha": 1.702},
}
"""Operators that can be part of a chain, with the defaults of the attributes that matter."""

_FIRST_VERSIONS = {
    **dict.fromkeys(("Add", "And", "Div", "Mul", "Or", "PRelu", "Pow", "Sub", "Xor"), 7),
    "Clip": 11,
    "Sum": 8,
}
"""Versions below these do not broadcast as NumPy does, or have attributes in place of inputs."""


@dataclass(frozen=True, slots=True)
class ElementOperation:
    """One operator of a chain."""

    op_type: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


def operation_of(info: KernelInfo) -> ElementOperation | None:
    """A node as an operation on elements; None if it is none."""
    defaults = _ATTRIBUTES.get((info.domain, info.op_type))
    if defaults is None or info.since_version < _FIRST_VERSIONS.get(info.op_type, 1):
        return None
    return ElementOperation(info.op_type, {name: info.attribute(name, default) for name, default in defaults.items()})
