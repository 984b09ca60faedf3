"""Which algorithm computes a softmax, or a normalization of channels.

Whether a task is worth loading for few elements is asked of ``is_worth_a_task`` where it is launched; NumPy computes the rest.
"""

from __future__ import annotations

import enum
import math

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.memory.strides import LoopNest

__all__ = [
    "ChannelAlgorithm",
    "SoftmaxAlgorithm",
    "SoftmaxAxisLayout",
    "SoftmaxProblem",
    "select_channels",
    "select_softmax",
    "softmax_axis_layout",
]

OUTER_AXES = 2
"""Axes that the task goes over beside that of the softmax and the last, once contiguous ones are merged."""
_FLOAT_BYTES = 4


class SoftmaxAlgorithm(enum.Enum):
    """How a softmax is computed."""

    ROWS = "row softmax"
    """A task of contiguous rows: the largest element, powers and their sum, quotients; a row stays in the first cache."""
    AXIS = "strided softmax"
    """A task along an axis that others follow: 16 neighbours of each element at a time, all of one vector."""
    COPY_AND_AXIS = "copy, strided softmax"
    """The same of a copy of the input that has the output's layout."""
    NUMPY = "numpy"


class ChannelAlgorithm(enum.Enum):
    """How channels, or groups of them, are normalized."""

    NCHW = "nchw normalization"
    """A task of contiguous channels: a vector is of one of them."""
    NHWC = "nhwc normalization"
    """A task of 16 channels at a time, which are a vector of each pixel."""
    NUMPY = "numpy"


@dataclass(frozen=True, slots=True)
class SoftmaxProblem:
    """A softmax of an array that has elements."""

    shape: tuple[int, ...]
    axis: int
    """From 0."""
    is_flattened: bool
    """Whether it is over all axes from that one on, as before opset 13."""
    strides: tuple[int, ...]
    """Of the input, in bytes."""
    out_strides: tuple[int, ...]
    is_float32: bool
    """Whether input and output are."""

    @property
    def is_of_rows(self) -> bool:
        """Whether it is over the last axes, of a contiguous array."""
        return self.is_flattened or math.prod(self.shape[self.axis + 1 :]) <= 1


@dataclass(frozen=True, slots=True)
class SoftmaxAxisLayout:
    """Sizes and strides in bytes, as the arguments of the task have them."""

    outer: tuple[int, ...]
    inner: int
    x_outer_strides: tuple[int, ...]
    x_inner_stride: int
    out_outer_strides: tuple[int, ...]
    out_inner_stride: int


def select_softmax(problem: SoftmaxProblem) -> SoftmaxAlgorithm:
    """The algorithm for contiguous outputs; inputs of other layouts are copied to rows."""
    # Other types are rare: float16 is widened by the shared set before it comes here.
    if not problem.is_float32:
        return SoftmaxAlgorithm.NUMPY
    # Inputs of other layouts are copied to rows first: a copy takes less than powers do.
    if problem.is_of_rows:
        return SoftmaxAlgorithm.ROWS
    layout = softmax_axis_layout(problem)
    if layout is None:
        return SoftmaxAlgorithm.NUMPY
    # Vectors are of neighbours along the last axis in memory, which has to be the same in both. Where it is not, a copy costs one
    # pass; NumPy makes five of them.
    if layout.x_inner_stride != layout.out_inner_stride == _FLOAT_BYTES:
        return SoftmaxAlgorithm.COPY_AND_AXIS if _is_contiguous(problem.shape, problem.out_strides) else SoftmaxAlgorithm.NUMPY
    is_contiguous = layout.x_inner_stride == layout.out_inner_stride == _FLOAT_BYTES
    has_axes = all(size == 1 for size in layout.outer[:-OUTER_AXES])
    return SoftmaxAlgorithm.AXIS if is_contiguous and has_axes else SoftmaxAlgorithm.NUMPY


def softmax_axis_layout(problem: SoftmaxProblem) -> SoftmaxAxisLayout | None:
    """Loops over the other axes; None for too many."""
    rank = len(problem.shape)
    if rank - 1 > OUTER_AXES + 3:
        return None
    others = [axis for axis in range(rank) if axis != problem.axis]
    strides = [[own[axis] for axis in others] for own in (problem.strides, problem.out_strides)]
    loops = LoopNest.over([problem.shape[axis] for axis in others], strides)
    (*outer, inner), ((*x_outer, x_inner), (*out_outer, out_inner)) = loops.sizes, loops.strides
    return SoftmaxAxisLayout(tuple(outer), inner, tuple(x_outer), x_inner, tuple(out_outer), out_inner)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    nbytes = _FLOAT_BYTES
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != nbytes:
            return False
        nbytes *= size
    return True


def select_channels(*, is_float32: bool, is_nchw: bool, is_nhwc: bool) -> ChannelAlgorithm:
    """The algorithm for arrays that have both this layout; of both, as with one pixel, NCHW."""
    # No copy between layouts for the normalization alone: in a network of channels-last arrays all its neighbours would need one.
    if is_float32 and is_nchw:
        return ChannelAlgorithm.NCHW
    return ChannelAlgorithm.NHWC if is_float32 and is_nhwc else ChannelAlgorithm.NUMPY
