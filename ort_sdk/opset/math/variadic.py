"""Max, Min, Sum and Mean of any number of inputs, with broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []


def _folded(function: Callable[[Array, Array], Array], xp: Any) -> Compute:
    """The inputs combined from left to right; a copy of a single one."""

    def compute(first: Array, *others: Array) -> Array:
        return functools.reduce(function, others, first) if others else xp.asarray(first, copy=True)

    return compute


@operator("Max")
def maximum(_info: KernelInfo, xp: Any) -> Compute:
    """Largest of the inputs, element by element."""
    return _folded(xp.maximum, xp)


@operator("Min")
def minimum(_info: KernelInfo, xp: Any) -> Compute:
    """Smallest of the inputs, element by element."""
    return _folded(xp.minimum, xp)


@operator("Sum")
def total(_info: KernelInfo, xp: Any) -> Compute:
    """Sum of the inputs, element by element."""
    return _folded(xp.add, xp)


@operator("Mean")
def mean(_info: KernelInfo, xp: Any) -> Compute:
    """Mean of the inputs, element by element."""
    add = _folded(xp.add, xp)
    return lambda *inputs: add(*inputs) / float(len(inputs))
