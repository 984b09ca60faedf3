"""What a kernel tells of itself so that it may become part of a chain. Imports nothing, as every kernel asks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ort_sdk.api import KernelInfo
from ort_sdk.api.data_classes import dataclass, field

__all__ = ["ElementOperation", "clip_bounds", "operation_of"]

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
    "Sum": 8,
}
"""Versions below these do not broadcast as NumPy does."""

_LARGEST = 3.4028234663852886e38
"""Of float32."""

_CLIP_WITH_INPUTS = 11


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
    if info.op_type == "Clip":
        return ElementOperation(info.op_type, clip_bounds(info))
    return ElementOperation(info.op_type, {name: info.attribute(name, default) for name, default in defaults.items()})


def clip_bounds(info: KernelInfo) -> dict[str, float]:
    """``min`` and ``max`` of a Clip that has them as attributes, as before opset 11; empty where they are inputs."""
    if info.since_version >= _CLIP_WITH_INPUTS:
        return {}
    return {"min": float(info.attribute("min", -_LARGEST)), "max": float(info.attribute("max", _LARGEST))}
