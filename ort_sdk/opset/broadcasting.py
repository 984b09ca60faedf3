"""Broadcasting of operator versions before 7: only the second input, only where ``broadcast`` says so, along ``axis``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo

__all__ = ["binary"]


def binary(info: KernelInfo, xp: Any, function: Callable[[Array, Array], Array]) -> Compute:
    """A two-input kernel with the broadcasting of its version; ``function`` broadcasts as NumPy does.

    Raises:
        InvalidArgument: when called, if the version forbids the shapes.
    """
    if info.since_version >= 7:
        return function
    broadcast = bool(info.attribute("broadcast", 0))
    axis = info.attribute("axis", None)

    def compute(a: Array, b: Array) -> Array:
        if tuple(a.shape) == tuple(b.shape):
            return function(a, b)
        if not broadcast:
            raise InvalidArgument(
                f"{info.describe()}: shapes {tuple(a.shape)} and {tuple(b.shape)} differ; "
                "before version 7 that needs attribute broadcast=1"
            )
        return function(a, xp.reshape(b, _aligned_shape(tuple(a.shape), tuple(b.shape), axis, info)))

    return compute


def _aligned_shape(a: tuple[int, ...], b: tuple[int, ...], axis: int | None, info: KernelInfo) -> tuple[int, ...]:
    """Shape of ``b`` with trailing ones, so that its first dimension meets ``axis`` of ``a``; suffix matching without one."""
    if all(size == 1 for size in b):
        return ()
    start = len(a) - len(b) if axis is None else axis + len(a) * (axis < 0)
    trailing = len(a) - len(b) - start
    if start < 0 or trailing < 0:
        raise InvalidArgument(
            f"{info.describe()}: the second input's shape {b} does not fit into the first one's, {a}, at axis {axis}"
        )
    return b + (1,) * trailing
