"""Nodes as operations of element-wise chains. A leaf module that imports little, since every kernel uses it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ort_sdk.api import KernelInfo
from ort_sdk.api.data_classes import dataclass, field

__all__ = ["ElementOperation", "clip_bounds", "operation_of"]

_ATTRIBUTES: dict[tuple[str, str], Mapping[str, Any]] = {
    **{
        ("", op_type): {}
        for op_type in (
            *("Abs", "Add", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Clip", "Div", "Equal"),
            *("Erf", "Exp", "Floor", "Greater", "GreaterOrEqual", "HardSwish", "IsNaN", "Less", "LessOrEqual", "Max", "Mean"),
            *("Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign"),
            *("Softsign", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor"),
        )
    },
    ("", "Celu"): {"alpha": 1.0},
    ("", "Elu"): {"alpha": 1.0},
    ("", "Gelu"): {"approximate": "none"},
    ("", "HardSigmoid"): {"alpha": 0.2, "beta": 0.5},
    ("", "LeakyRelu"): {"alpha": 0.01},
    ("", "Selu"): {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ("", "Shrink"): {"bias": 0.0, "lambd": 0.5},
    ("", "Swish"): {"alpha": 1.0},
    ("", "ThresholdedRelu"): {"alpha": 1.0},
    ("com.microsoft", "BiasGelu"): {},
    ("com.microsoft", "FastGelu"): {},
    ("com.microsoft", "Gelu"): {},
    ("com.microsoft", "QuickGelu"): {"alpha": 1.702},
}
"""(domain, op_type) of operators that can be part of a chain → the attributes that matter, with their defaults."""

_FIRST_VERSIONS = {
    **dict.fromkeys(("Add", "And", "Div", "Mul", "Or", "PRelu", "Pow", "Sub", "Xor"), 7),
    **dict.fromkeys(("Mean", "Sum"), 8),
    "Selu": 6,
}
"""Least versions: earlier ones do not broadcast as NumPy does, or have other attributes."""

_LARGEST = 3.4028234663852886e38
"""The largest float32."""

_CLIP_WITH_INPUTS = 11
"""Version from which on Clip has its bounds as inputs."""


@dataclass(frozen=True, slots=True)
class ElementOperation:
    """One operation of a chain: an operator with its attributes, of which defaults are filled in."""

    op_type: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


def operation_of(info: KernelInfo) -> ElementOperation | None:
    """The operation of a node; None if it cannot be part of a chain."""
    defaults = _ATTRIBUTES.get((info.domain, info.op_type))
    if defaults is None or info.since_version < _FIRST_VERSIONS.get(info.op_type, 1):
        return None
    if info.op_type == "Clip":
        return ElementOperation(info.op_type, clip_bounds(info))
    if not defaults:
        return _without_attributes(info.op_type)
    attributes = {name: info.attribute(name, default) for name, default in defaults.items()}
    if info.op_type not in _EXPONENTIAL:
        return ElementOperation(info.op_type, attributes)
    return None if attributes["alpha"] <= 0 else ElementOperation(info.op_type, _of_exponential(info.op_type, **attributes))


@functools.cache
def _without_attributes(op_type: str) -> ElementOperation:
    return ElementOperation(op_type)


_EXPONENTIAL = frozenset({"Celu", "Elu", "Selu"})


def _of_exponential(op_type: str, alpha: float, gamma: float = 1.0) -> dict[str, float]:
    """``gamma * x``, and ``scale * (exp(x / width) - 1)`` where x is negative."""
    return {"gamma": gamma, "scale": alpha * gamma, "width": alpha if op_type == "Celu" else 1.0}


def clip_bounds(info: KernelInfo) -> dict[str, float]:
    """``min`` and ``max`` of a Clip that has them as attributes, as before opset 11; empty where they are inputs."""
    if info.since_version >= _CLIP_WITH_INPUTS:
        return {}
    return {"min": float(info.attribute("min", -_LARGEST)), "max": float(info.attribute("max", _LARGEST))}
