"""Which algorithm computes a pooling node: the one place that chooses, with all thresholds of the family."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task

from .arguments.argmax import MODULE as ARGMAX
from .arguments.nchw import MODULE as NCHW
from .arguments.nhwc import MODULE as NHWC

__all__ = ["CHANNELS_LAST", "PoolAlgorithm", "PoolProblem", "nchw_task", "select_pool", "select_with_indices"]

# Two copies, to channels last and back, read and write each element twice: windows have to read many times that.
MINIMUM_READS = 1 << 18
"""Elements read by all windows together from which on NCHW is copied to channels last."""
# A vector has 16 channels: with fewer than 8, more than half of each would be empty, and NumPy's run along rows.
LEAST_CHANNELS = 8
"""Channels from which on NCHW is copied to channels last."""
# One call of the task against some of NumPy, each of which costs about a microsecond; its vectors have one lane of sixteen.
MAX_SMALL_READS = 1 << 12
"""Elements read by all windows together from which on NumPy, which takes rows of them at a time, is faster than single lanes."""
_FLOAT = np.dtype(np.float32)
_BYTES = frozenset({np.dtype(np.uint8), np.dtype(np.int8)})


class PoolAlgorithm(enum.StrEnum):
    """How a pooling node is computed."""

    REDUCTION = "reduction"
    """Global pooling by the task of reductions."""
    NCHW = "separable nchw"
    """A task: down columns, then along rows, of contiguous NCHW."""
    NHWC = "nhwc"
    """A task: the largest float32, vectors along channels."""
    ONEDNN = "onednn"
    """oneDNN's pooling of channels last."""
    SINGLE_CHANNEL = "nhwc of single channels"
    """The task ``NHWC`` on contiguous NCHW, whose channels are samples of one: for few windows."""
    WITH_INDICES = "maximum with indices"
    """A task, element by element."""
    NUMPY = "numpy"


CHANNELS_LAST = frozenset({PoolAlgorithm.REDUCTION, PoolAlgorithm.NHWC, PoolAlgorithm.ONEDNN})
"""Those of kernels that take channels last, and copy what is not."""


@dataclass(frozen=True, slots=True)
class PoolProblem:
    """A pooling node on one input."""

    shape: tuple[int, ...]
    """(N, C, *spatial)."""
    dtype: np.dtype[Any]
    windows: Windows
    is_maximum: bool
    """Whether it is a maximum, and not a mean."""
    is_global: bool
    is_contiguous: bool
    is_channels_last: bool
    has_nhwc: bool = True
    """Whether there is a kernel that takes channels last: oneDNN's, or the task with what oneDNN has around it."""

    @classmethod
    def of(
        cls, x: HostArray, windows: Windows, *, is_maximum: bool, is_global: bool = False, is_channels_last: bool, has_nhwc: bool
    ) -> PoolProblem:
        """For an input."""
        flags = (x.flags.c_contiguous, is_channels_last, has_nhwc)
        return cls(x.shape, x.dtype, windows, is_maximum, is_global, *flags)

    @property
    def reads(self) -> int:
        """Elements read by all windows together."""
        return math.prod((*self.shape[:2], *self.windows.output_shape, *self.windows.kernel_shape))


def select_pool(problem: PoolProblem) -> PoolAlgorithm:
    """The algorithm; what no other computes is left to NumPy."""
    if not 3 <= len(problem.shape) <= 5 or 0 in (*problem.shape, *problem.windows.output_shape):
        return PoolAlgorithm.NUMPY
    if problem.is_global:
        return _select_global(problem)
    # What is channels last already stays so: a copy of it to NCHW would cost more than what the separable passes gain.
    is_nhwc = problem.has_nhwc and _is_computed_as_nhwc(problem)
    if not (is_nhwc and problem.is_channels_last) and _is_for_nchw(problem):
        return PoolAlgorithm.NCHW
    if is_nhwc and (problem.is_channels_last or _is_worth_copies(problem)):
        return _nhwc(problem)
    is_small = problem.is_maximum and problem.dtype == _FLOAT and 0 < problem.reads < MAX_SMALL_READS
    if is_small and is_worth_a_task(problem.reads, NHWC, "max_pool_nhwc"):
        return PoolAlgorithm.SINGLE_CHANNEL
    return PoolAlgorithm.NUMPY


def _select_global(problem: PoolProblem) -> PoolAlgorithm:
    if not problem.has_nhwc or not _is_computed_as_nhwc(problem):
        return PoolAlgorithm.NUMPY
    if problem.dtype == _FLOAT and is_worth_a_task(math.prod(problem.shape)):
        return PoolAlgorithm.REDUCTION
    return _nhwc(problem) if problem.is_channels_last or _is_worth_copies(problem) else PoolAlgorithm.NUMPY


def _is_computed_as_nhwc(problem: PoolProblem) -> bool:
    """Whether the element type is one that kernels of channels last take."""
    return problem.dtype == _FLOAT or (problem.is_maximum and problem.dtype in _BYTES)


def _nhwc(problem: PoolProblem) -> PoolAlgorithm:
    # oneDNN starts from the least finite float32 and passes over NaN: the largest float32 is not left to it.
    is_task = problem.is_maximum and problem.dtype == _FLOAT
    return PoolAlgorithm.NHWC if is_task else PoolAlgorithm.ONEDNN


def _is_worth_copies(problem: PoolProblem) -> bool:
    return problem.reads >= MINIMUM_READS and problem.shape[1] >= LEAST_CHANNELS


def _is_for_nchw(problem: PoolProblem) -> bool:
    """Whether the separable task pools it; it takes no negative padding."""
    if problem.dtype != _FLOAT or not problem.is_contiguous or min(problem.windows.pads_begin) < 0:
        return False
    reads = problem.reads
    return reads > 0 and is_worth_a_task(reads, NCHW, nchw_task(len(problem.shape) - 2))


def nchw_task(axes: int) -> str:
    """The separable task for so many spatial axes."""
    return "pool_nchw" if axes < 3 else "pool_ncdhw"


def select_with_indices(x: HostArray, windows: Windows) -> PoolAlgorithm:
    """The algorithm of MaxPool with Indices; where a window has no element of the input, no index is right."""
    if x.ndim not in {3, 4} or x.dtype != _FLOAT or 0 in windows.output_shape or not _hold_elements(windows):
        return PoolAlgorithm.NUMPY
    reads = math.prod((*x.shape[:2], *windows.output_shape, *windows.kernel_shape))
    is_worth_it = is_worth_a_task(reads, ARGMAX, "max_pool_with_indices")
    return PoolAlgorithm.WITH_INDICES if is_worth_it else PoolAlgorithm.NUMPY


def _hold_elements(windows: Windows) -> bool:
    """Whether each window has an element of the input."""
    for axis, size in enumerate(windows.input_shape):
        positions = windows.tap_positions(axis)
        if not ((positions >= 0) & (positions < size)).any(axis=0).all():
            return False
    return True
