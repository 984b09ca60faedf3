"""Loop nests over arrays that broadcast, with as few dimensions as their strides allow."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass

__all__ = ["OUTER_DIMENSIONS", "LoopNest", "broadcast_strides", "memory_order"]

OUTER_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class LoopNest:
    """One loop nest over several operands."""

    sizes: tuple[int, ...]
    """Sizes of ``OUTER_DIMENSIONS`` outer loops and of the inner one."""
    strides: tuple[tuple[int, ...], ...]
    """For each operand, bytes between elements along each loop."""

    @staticmethod
    def over(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> LoopNest:
        """Collapse neighbouring dimensions that every operand passes with a single stride.

        Args:
            shape: of the result; at most ``OUTER_DIMENSIONS + 1`` of its dimensions are other than 1.
            strides: of each operand along these dimensions, 0 where it broadcasts.
        """
        sizes: list[int] = []
        merged: list[list[int]] = [[] for _ in strides]
        for axis, size in enumerate(shape):
            if size == 1:
                continue
            along = [own[axis] for own in strides]
            if sizes and all(own[-1] == stride * size for own, stride in zip(merged, along, strict=True)):
                sizes[-1] *= size
                merged = [[*own[:-1], stride] for own, stride in zip(merged, along, strict=True)]
            else:
                sizes.append(size)
                merged = [[*own, stride] for own, stride in zip(merged, along, strict=True)]
        missing = OUTER_DIMENSIONS + 1 - len(sizes)
        return LoopNest((*[1] * missing, *sizes), tuple((*[0] * missing, *own) for own in merged))


def memory_order(array: HostArray) -> tuple[int, ...]:
    """An array's axes from the outermost in memory to the innermost."""
    return tuple(sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis)))


def broadcast_strides(shape: Sequence[int], own_shape: Sequence[int], own_strides: Sequence[int]) -> tuple[int, ...]:
    """An operand's strides along the axes of a shape that it is broadcast to: 0 where it is repeated.

    Args:
        shape: of the result.
        own_shape: of the operand.
        own_strides: of the operand, in any unit.
    """
    missing = len(shape) - len(own_shape)
    return (*[0] * missing, *(0 if size == 1 else stride for size, stride in zip(own_shape, own_strides, strict=True)))
