"""Which algorithm moves elements: Gather, GatherElements and Where.

Whether a task is worth loading for few elements is asked of ``is_worth_a_task`` where it is launched; NumPy moves the rest. How
copies between layouts are made is chosen in ``kernel.copy``.
"""

from __future__ import annotations

import enum
import math

from ort_sdk.api.data_classes import dataclass

__all__ = [
    "MAX_TAKEN",
    "GatherAlgorithm",
    "GatherElementsAlgorithm",
    "GatherProblem",
    "WhereAlgorithm",
    "select_gather",
    "select_gather_elements",
    "select_where",
]

MAX_TAKEN = 1 << 16
"""Elements up to which one thread gathers them as fast as NumPy. It is bound then, without a step of Python; more are NumPy's, or
for all threads."""
MAX_BROADCAST = 1 << 20
"""Elements up to which a condition with fewer is kept once for each: a megabyte."""
_WORD = 4
"""Bytes that the tasks move at a time."""
_ITEM_SIZES = frozenset({1, 2, 4, 8})


class GatherAlgorithm(enum.Enum):
    """How slices are gathered."""

    SLICE = "slice copy"
    """Of one constant index: a copy between layouts."""
    TASK = "gather task"
    """By one thread, bound to arrays that stay."""
    TEAM = "gather task on threads"
    NUMPY = "numpy take"


class GatherElementsAlgorithm(enum.Enum):
    """How elements are gathered."""

    ALONG_AXIS = "take along axis"
    """A task, where each column of the data has its own indices: an element's offset follows from its position."""
    OFFSETS = "gather by offsets"
    """A task over a table of the offset of each index; where arrays stay, else NumPy."""


class WhereAlgorithm(enum.Enum):
    """How elements are selected."""

    TASK = "where task"
    BROADCAST = "broadcast condition"
    """The task, on a condition that is repeated first."""
    NUMPY = "numpy"


@dataclass(frozen=True, slots=True)
class GatherProblem:
    """A Gather along an axis."""

    slice_bytes: int
    out_elements: int
    threads: int
    """That are worth waking up for so many elements."""
    index_is_known: bool = False
    """Whether there is one index, which is constant and in range."""
    stays: bool = False
    """Whether the task is bound to arrays that stay, so that one thread goes without a step of Python."""
    is_contiguous: bool = True
    """Whether data and output are, and have elements."""
    has_even_indices: bool = True
    """Whether indices are int32 or int64, each as far from the one before."""


def select_gather(problem: GatherProblem) -> GatherAlgorithm:
    """The algorithm for a Gather."""
    if problem.index_is_known:
        return GatherAlgorithm.SLICE
    # The tasks move whole words; narrow elements are rare, and NumPy takes them as they are.
    if problem.slice_bytes % _WORD:
        return GatherAlgorithm.NUMPY
    # NumPy's ``take`` has one thread. Where several are not worth waking up, it is as fast as the task, and loads no code.
    if not problem.stays:
        is_large = problem.threads > 1 and problem.out_elements > MAX_TAKEN
        return GatherAlgorithm.TEAM if is_large else GatherAlgorithm.NUMPY
    # Bound to arrays that stay, the task is one of a list of calls without Python between them; NumPy would be a step of its own.
    fits = problem.is_contiguous and problem.has_even_indices and problem.slice_bytes > 0
    return GatherAlgorithm.TASK if fits and problem.out_elements <= MAX_TAKEN else GatherAlgorithm.NUMPY


def select_gather_elements(
    data: tuple[int, ...], indices: tuple[int, ...], axis: int, itemsize: int, *, has_plain_indices: bool
) -> GatherElementsAlgorithm:
    """The algorithm for data and indices of these shapes, elements of so many bytes, and int32 or int64 indices."""
    # With as many columns of indices as of data, offsets follow from positions. Else they are a table as large as the indices.
    others = [other for other in range(len(data)) if other != axis]
    is_whole = len(indices) == len(data) and all(data[other] == indices[other] for other in others)
    fits = is_whole and has_plain_indices and itemsize in {_WORD, 2 * _WORD}
    return GatherElementsAlgorithm.ALONG_AXIS if fits else GatherElementsAlgorithm.OFFSETS


def select_where(
    condition: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...], out: tuple[int, ...], itemsize: int
) -> WhereAlgorithm:
    """The algorithm for arrays of these shapes, with elements of so many bytes."""
    # Broadcasts of x and y that are no scalars would need strides; masks and fill values, for which models have Where, do not.
    fits = all(math.prod(shape) == 1 or shape == out for shape in (x, y))
    if not fits or itemsize not in _ITEM_SIZES:
        return WhereAlgorithm.NUMPY
    if condition == out:
        return WhereAlgorithm.TASK
    return WhereAlgorithm.BROADCAST if math.prod(out) <= MAX_BROADCAST else WhereAlgorithm.NUMPY
