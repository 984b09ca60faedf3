"""Loops over arrays that broadcast: as few dimensions as their layouts allow."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass

__all__ = ["OUTER_DIMENSIONS", "Loops", "memory_order", "strides_over"]

OUTER_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class Loops:
    """The same loops over several operands."""

    sizes: tuple[int, ...]
    """Outer dimensions, and the inner one."""
    strides: tuple[tuple[int, ...], ...]
    """Bytes between elements of each operand along them."""

    @staticmethod
    def over(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Loops:
        """Merge neighbouring dimensions along which every operand continues.

        Args:
            shape: of the result; at most ``OUTER_DIMENSIONS + 1`` of its dimensions are other than 1.
            strides: of each operand along these dimensions, 0 where it broadcasts.
        """
        sizes: list[int] = []
        merged: list[list[int]] = [[] for _ in strides]
        for axis, size in enumerate(shape):
            if size == 1:
                continue
            steps = [own[axis] for own in strides]
            if sizes and all(own[-1] == step * size for own, step in zip(merged, steps, strict=True)):
                sizes[-1] *= size
                merged = [[*own[:-1], step] for own, step in zip(merged, steps, strict=True)]
            else:
                sizes.append(size)
                merged = [[*own, step] for own, step in zip(merged, steps, strict=True)]
        missing = OUTER_DIMENSIONS + 1 - len(sizes)
        return Loops((*[1] * missing, *sizes), tuple((*[0] * missing, *own) for own in merged))


def memory_order(array: HostArray) -> tuple[int, ...]:
    """An array's axes from the outermost in memory to the innermost."""
    return tuple(sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis)))


def strides_over(shape: Sequence[int], own_shape: Sequence[int], own_strides: Sequence[int]) -> tuple[int, ...]:
    """An operand's strides along the axes of what it is broadcast to."""
    missing = len(shape) - len(own_shape)
    return (*[0] * missing, *(0 if size == 1 else stride for size, stride in zip(own_shape, own_strides, strict=True)))
