"""Which algorithm computes a reduction, an ArgMax or a TopK.

Whether a task is worth loading for few elements is asked of ``is_worth_a_task`` where it is launched; NumPy computes the rest.
"""

from __future__ import annotations

import enum
import functools
import math

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.memory.strides import LoopNest

__all__ = [
    "ArgMaxAlgorithm",
    "ReduceAlgorithm",
    "ReduceLayout",
    "ReduceOp",
    "ReduceProblem",
    "TopKAlgorithm",
    "select_arg_max",
    "select_reduce",
    "select_top_k",
]

KEPT_AXES, REDUCED_AXES = 3, 2
"""That the tasks of reductions go over, once contiguous ones are merged."""
MIN_ROW = 8
"""Contiguous elements from which on half of a vector of them is filled: columns, or NumPy, take shorter rows."""
FEW_ELEMENTS = 1 << 9
"""Elements of an array up to which vectors may be emptier: a call of NumPy takes longer than all of them."""
MAX_FACTORS = 256
"""Factors up to which a task multiplies them: each rounds off some of the result, and tens of ulps come together of thousands."""
MAX_SLICES = 16
"""Elements along an axis up to which adding slices up is faster than NumPy's reduction, which begins anew for each result."""
MIN_RESULTS = 256
"""Results from which on it is: a call of NumPy for each slice is spread over so many."""
MAX_SEARCHED = 1 << 13
"""Elements up to which the task of ArgMax takes less time than NumPy's function needs to start."""
MAX_ROW_SEARCHED = 64
"""Contiguous elements up to which it is faster than NumPy, whatever their number: NumPy looks at a vector of them at a time, the
task at one."""
LANES = 16
"""Columns that it searches at a time, all in one vector: faster than NumPy at any length."""
MAX_K = 1 << 10
"""Elements whose heap of 8 bytes each stays in a quarter of the first cache."""
MIN_SHARE = 2
"""Elements of a row for each one selected from which on many are never put in order; of fewer, sorting is as fast."""
SHORT_ROW = 1 << 8
"""Elements of a row up to which NumPy is not faster at sorting it, whatever k."""
MAX_ROW = 1 << 31
"""An index has 32 bits of a key."""
_FLOAT_BYTES = 4


class ReduceOp(enum.Enum):
    """Reductions that tasks compute, by the beginning of their names."""

    MAX = "max"
    PROD = "prod"
    SUM = "sum"
    SUM_SQUARE = "sum_square"


class ReduceAlgorithm(enum.Enum):
    """How a reduction is computed."""

    COPY = "copy"
    """Of single elements, nothing is done with which."""
    ROWS = "row reduction"
    """A task; vectors along an axis that is reduced."""
    COLUMNS = "column reduction"
    """A task; vectors along an axis that is kept."""
    SLICES = "numpy by slices"
    """Slices along a short axis combined one by one."""
    NUMPY = "numpy"


class ArgMaxAlgorithm(enum.Enum):
    """How the index of the largest element is found."""

    TASK = "arg_max task"
    NUMPY = "numpy"


class TopKAlgorithm(enum.Enum):
    """How the largest elements are found."""

    HEAP = "heap"
    """A heap of the best so far, as a task."""
    SORT = "numpy sort"


@dataclass(frozen=True, slots=True)
class ReduceProblem:
    """A reduction of an array that has elements."""

    op: ReduceOp | None
    """None for those that no task computes."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    axes: tuple[int, ...]
    """Those that are reduced, from 0."""
    out_strides: tuple[int, ...]
    """In bytes, with or without the axes that are reduced."""
    is_float32: bool
    """Whether input and output are."""
    is_identity: bool = False
    """Whether the reduction of one element is this element."""

    @property
    def elements(self) -> int:
        """Of the input."""
        return math.prod(self.shape)

    @property
    def count(self) -> int:
        """Elements that become one."""
        return math.prod(self.shape[axis] for axis in self.axes)


@dataclass(frozen=True, slots=True)
class ReduceLayout:
    """How a task goes over the arrays of a problem."""

    algorithm: ReduceAlgorithm
    """``ROWS`` or ``COLUMNS``."""
    words: tuple[int, ...]
    """Sizes and strides in the order of the task's arguments."""


def select_reduce(problem: ReduceProblem) -> tuple[ReduceAlgorithm, ReduceLayout | None]:
    """The algorithm, and how a task goes over the arrays; None for the layout if no task computes it."""
    # Nothing is combined, divided or rooted: a reshape, which copies.
    if problem.is_identity and problem.count == 1:
        return ReduceAlgorithm.COPY, None
    is_exact = problem.op is not ReduceOp.PROD or problem.count <= MAX_FACTORS
    layout = _layout(problem) if problem.op is not None and problem.is_float32 and is_exact else None
    return (select_numpy(problem), None) if layout is None else (layout.algorithm, layout)


def select_numpy(problem: ReduceProblem) -> ReduceAlgorithm:
    """How NumPy computes it, where no task does."""
    # NumPy's reduction starts anew for each result, which for short axes takes longer than all elements; its functions of two
    # arrays go through whole slices.
    results = problem.elements // max(problem.count, 1)
    is_short = len(problem.axes) == 1 and 1 < problem.count <= MAX_SLICES
    return ReduceAlgorithm.SLICES if is_short and results >= MIN_RESULTS else ReduceAlgorithm.NUMPY


def _layout(problem: ReduceProblem) -> ReduceLayout | None:
    """Loops over what is kept and what is reduced, each from the outermost in memory to the innermost; None for too many."""
    shape, strides, out_strides = problem.shape, problem.strides, problem.out_strides
    rank = len(shape)
    # From the outermost in memory, whatever the order of axes: channels-last arrays are reduced as they are, without a copy.
    order = sorted(range(rank), key=lambda axis: -abs(strides[axis]))
    kept = [axis for axis in order if axis not in problem.axes and shape[axis] != 1]
    reduced = [axis for axis in order if axis in problem.axes and shape[axis] != 1]
    if not problem.elements or len(kept) > KEPT_AXES + 2 or len(reduced) > REDUCED_AXES + 3 or not reduced:
        return None
    in_out = [axis for axis in range(rank) if len(out_strides) == rank or axis not in problem.axes]
    position = {axis: index for index, axis in enumerate(in_out)}
    outer = LoopNest.over(
        [shape[axis] for axis in kept],
        [[strides[axis] for axis in kept], [out_strides[position[axis]] for axis in kept]],
    )
    inner = LoopNest.over([shape[axis] for axis in reduced], [[strides[axis] for axis in reduced]])
    if any(size != 1 for size in (*outer.sizes[:-KEPT_AXES], *inner.sizes[:-REDUCED_AXES])):
        return None
    x_strides, result_strides = (own[-KEPT_AXES:] for own in outer.strides)
    words = (
        *(*outer.sizes[-KEPT_AXES:], *x_strides, *result_strides),
        *(*inner.sizes[-REDUCED_AXES:], *inner.strides[0][-REDUCED_AXES:]),
    )
    # Rows first: their accumulators stay in registers, where columns store theirs once for each block.
    if inner.strides[0][-1] == _FLOAT_BYTES and (inner.sizes[-1] >= MIN_ROW or problem.elements <= FEW_ELEMENTS):
        return ReduceLayout(ReduceAlgorithm.ROWS, words)
    if x_strides[-1] == result_strides[-1] == _FLOAT_BYTES:
        return ReduceLayout(ReduceAlgorithm.COLUMNS, words)
    return None


def select_arg_max(outer: int, count: int, inner: int, *, is_float32: bool) -> ArgMaxAlgorithm:
    """The algorithm for float32 (outer, count, inner) in this order in memory, along the axis in the middle."""
    # The task wins by columns, which fill its lanes, and where a call of NumPy takes longer than looking at all elements.
    elements = outer * count * inner
    is_long = inner < LANES and count > MAX_ROW_SEARCHED and elements > MAX_SEARCHED
    return ArgMaxAlgorithm.TASK if is_float32 and not is_long else ArgMaxAlgorithm.NUMPY


@functools.lru_cache(maxsize=256)  # is asked in each run
def select_top_k(size: int, k: int, *, is_float32: bool) -> TopKAlgorithm:
    """The algorithm for the k largest of rows of so many elements."""
    # The heap is moved for few elements of a row if k is a small part of it; for short rows it wins whatever k is.
    is_few = 0 < k <= MAX_K and (size <= SHORT_ROW or k * MIN_SHARE <= size)
    return TopKAlgorithm.HEAP if is_float32 and is_few and k <= size < MAX_ROW else TopKAlgorithm.SORT
