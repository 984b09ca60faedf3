"""The index space of a row kernel: axes that rows are counted along, and axes that make a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.expressions.index_space import broadcast_strides, merged_axes
from ort_sdk.device.expressions.nodes import Strided, element_count

__all__ = ["RowSpace", "row_space"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RowSpace:
    """Merged axes, the rows' before those within a row."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    strides: Mapping[int, Sequence[int]]
    """``id`` of an array → its strides along the axes."""

    @property
    def rows(self) -> int:
        """How many there are."""
        return element_count(self.outer)

    @property
    def count(self) -> int:
        """Elements of a row."""
        return element_count(self.inner)

    @property
    def is_dense_along(self) -> bool:
        """Whether neighbours in a row are neighbours in memory, or the same element."""
        return all(steps[-1] in (0, 1) for steps in self.strides.values())

    @property
    def is_dense_across(self) -> bool:
        """Whether neighbouring rows are neighbours in memory, element by element."""
        axis = len(self.outer) - 1
        return self.outer[-1] > 1 and all(steps[axis] in (0, 1) for steps in self.strides.values())

    def ordered(self, each: Sequence[_T], *, across: bool) -> list[_T]:
        """What belongs to the axes, with that of the axis that vectors go along last: the rows' last one where they go across."""
        place = len(self.outer) - 1
        return [*each[:place], *each[place + 1 :], each[place]] if across else list(each)


def row_space(shape: Sequence[int], axes: Sequence[int], arrays: Sequence[Strided]) -> RowSpace:
    """The space of arrays that broadcast to a shape.

    Args:
        shape: of all elements.
        axes: that make a row, ascending.
        arrays: those that are read, or written element by element.
    """
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    strides = [broadcast_strides(array, shape) for array in arrays]
    outer, outer_strides = merged_axes([shape[a] for a in kept], [[own[a] for a in kept] for own in strides])
    inner, inner_strides = merged_axes([shape[a] for a in axes], [[own[a] for a in axes] for own in strides])
    whole = {id(array): (*outer_strides[i], *inner_strides[i]) for i, array in enumerate(arrays)}
    return RowSpace(tuple(outer), tuple(inner), whole)
