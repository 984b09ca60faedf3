"""Depthwise convolutions with the pointwise ones before and behind them as one task: what is between stays in the cache.

Inverted bottlenecks of MobileNetV2 (Sandler et al. 2018) and what is like them. The convolution before may also be the first of a
network, of an image of few channels. Whether stages are one task is decided by counting operations, see ``fused_stages``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.layouts.call import LayoutCall
from ort_sdk_cpu.kernel.layouts.channels_last import ChannelsLastKernel
from ort_sdk_cpu.kernel.layouts.memory import Layout, channels_last, contiguous, is_nhwc, layout_of
from ort_sdk_cpu.kernel.layouts.task_execution import TaskExecution
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.platform import libraries

from .arguments.separable import Separable
from .base import NoFallback
from .depthwise import POSITIONS, DepthwiseKernel, Image, SeparableSizes
from .direct import TaskPlan, as_nhwc, bias_of, cached
from .epilogue import ConvEpilogue
from .few_channels import FewInputChannelsKernel
from .packing import pack_panels, panel_count
from .pointwise import PointwiseKernel
from .problem import ConvAlgorithm
from .select import DEPTHWISE_LINES

__all__ = ["InvertedBottleneckKernel", "Stage", "fused_stages", "stage_of"]

MOST_CHANNELS = 512
"""Channels of X up to which a line is expanded in one chain of sums."""
JOIN_WORK = 1 << 21
"""Multiplications and additions that take about as long as ending one task and beginning the next."""
_FLOAT = np.dtype(np.float32)
_FIRST, _FILTERS, _LAST = (int(field) for field in (Separable.line_weights, Separable.filters, Separable.weights))
"""Where the task takes the address of a stage's weights; that of the bias is behind it."""


class Stage(NamedTuple):
    """A convolution in a program, with what follows it."""

    kernel: PointwiseKernel | DepthwiseKernel | FewInputChannelsKernel
    x_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    has_added: bool
    """Whether a tensor is added to its sums or at last."""

    @property
    def work(self) -> int:
        """Multiplications and additions."""
        return self.kernel.work(self.x_shape, self.kernel.constant_shape)

    @property
    def is_depthwise(self) -> bool:
        """Whether it has one filter per channel."""
        return self.kernel.is_depthwise

    @property
    def is_of_image(self) -> bool:
        """Whether it reads an image of few channels."""
        return isinstance(self.kernel, FewInputChannelsKernel)

    @property
    def is_inner(self) -> bool:
        """Whether another can read its result as it is made: only a function of the sums is applied to them."""
        return not self.has_added and not self.kernel.epilogue().is_scaled


def fused_stages(first: Stage | None, filters: Stage, last: Stage | None) -> tuple[bool, bool, bool] | None:
    """How to compute stages that follow each other.

    Args:
        first: pointwise, or of an image of few channels; None if there is none that can be part.
        filters: with one filter per channel.
        last: pointwise; None if there is none that can be part.

    Returns:
        Whether the first and the last are part of one task with the filters, and whether its threads share channels in place of
        rows. None for a task each.
    """
    if first is not None and not (first.is_inner and not first.is_depthwise and first.x_shape[1] <= MOST_CHANNELS):
        first = None
    if last is not None and not (filters.is_inner and isinstance(last.kernel, PointwiseKernel)):
        last = None
    costs: dict[tuple[bool, bool, bool] | None, float] = {None: _separate_cost(first, filters, last)}
    if first is not None or last is not None:
        costs[first is not None, last is not None, False] = _rows_cost(first, filters, last)
    if first is not None:
        costs[True, False, True] = _channels_cost(first, filters, last)
    return min(costs, key=costs.__getitem__)


def _uneven(count: int, threads: int) -> float:
    """How much longer the thread with the most jobs takes than if all had as many."""
    return -(-count // threads) * threads / count


def _total(*stages: Stage | None) -> int:
    return sum(stage.work for stage in stages if stage is not None)


def _separate_cost(first: Stage | None, filters: Stage, last: Stage | None) -> float:
    joins = sum(stage is not None for stage in (first, filters, last))
    return _total(first, filters, last) + joins * JOIN_WORK


def _rows_cost(first: Stage | None, filters: Stage, last: Stage | None) -> float:
    """Threads make the lines that windows of two of them read twice."""
    threads, rows, height = libraries.thread_count(), filters.out_shape[0] * filters.out_shape[2], filters.x_shape[2]
    most = min(rows, -(-rows // threads))
    kernel = filters.kernel
    padding = kernel.geometry.padding(filters.x_shape, kernel.constant_shape)
    lines = (most - 1) * padding.strides[0] + (kernel.constant_shape[2] - 1) * padding.dilations[0] + 1
    made = min(lines, height * filters.x_shape[0]) * threads / (height * filters.x_shape[0])
    return _total(first) * max(1.0, made) + _total(filters, last) * _uneven(rows, threads) + JOIN_WORK


def _channels_cost(first: Stage, filters: Stage, last: Stage | None) -> float:
    uneven = _uneven(panel_count(filters.x_shape[1]), libraries.thread_count())
    return _total(first, filters) * uneven + JOIN_WORK + (_total(last) + JOIN_WORK if last is not None else 0)


class InvertedBottleneckKernel(ChannelsLastKernel):
    """Stages as one task; inputs are X, weight and bias of each stage, and last what is added, all of which may be absent but X.

    Args:
        first: pointwise, or of an image of few channels; None for none.
        filters: with one filter per channel.
        last: pointwise; None for none.
        by_channels: whether threads share channels in place of rows; there must be no last stage then.
    """

    def __init__(self, first: Stage | None, filters: Stage, last: Stage | None, *, by_channels: bool) -> None:
        self._first, self._filters, self._last, self._by_channels = first, filters, last, by_channels
        self._fallback, self._input_rule, self.workspace = NoFallback(), None, filters.kernel.workspace
        self._calls, self._results, self._varies = threading.local(), ResultAllocator(), False
        stages = ((_FIRST, first), (_FILTERS, filters), (_LAST, last))
        self._stages = [(position, stage.kernel) for position, stage in stages if stage is not None]
        """Where the task takes a stage's weights, and its kernel, in the order of the inputs."""
        self._fitted: dict[Any, _Fitted | None] = {}
        """By shape of X and threads."""
        self._panels: list[HostArray] = []
        """Weights of the stages."""

    def _fit(self, x_shape: tuple[int, ...]) -> _Fitted | None:
        """For X of a shape; None if the task does not convolve it."""
        return cached(self._fitted, (x_shape, libraries.thread_count()), lambda: self.fitted(x_shape))

    def fitted(self, x_shape: tuple[int, ...]) -> _Fitted | None:
        """Shape of the output for one of X, and the task; None if it cannot."""
        shapes = [x_shape]
        for _, kernel in self._stages:
            shape = kernel.fitted_shape(shapes[-1])
            if shape is None:
                return None
            shapes.append(shape)
        threads = libraries.thread_count()
        sizes = self._sizes(x_shape, shapes[self._first is not None], shapes[-1])
        first, middle = (_epilogue(stage) for stage in (self._first, self._filters))
        last = middle if self._last is None else _epilogue(self._last)
        return _Fitted(shapes[-1], sizes.plan(last, first, middle, threads, by_channels=self._by_channels))

    def _sizes(self, x_shape: tuple[int, ...], filtered: tuple[int, ...], out_shape: tuple[int, ...]) -> SeparableSizes:
        """Of the task.

        Args:
            x_shape: of X.
            filtered: shape of what the filters read.
            out_shape: of the result.
        """
        kernel = self._filters.kernel
        shape = kernel.constant_shape
        lines = (x_shape[0], x_shape[1], *filtered[2:])
        image = None if self._first is None or not self._first.is_of_image else _image(self._first, x_shape)
        padding = kernel.geometry.padding(filtered, shape)
        return SeparableSizes(lines, shape[0], out_shape, shape[2:], padding, self._last is not None, image)

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """(N, M, H, W)."""
        x = inputs[0]
        fitted = self._fit(x.shape) if x.ndim == 4 and x.dtype == _FLOAT else None
        return None if fitted is None else fitted.out_shape

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X, biases and what is added, if they are there."""
        weights = {1 + 2 * index for index in range(len(self._stages))}
        self._biases(inputs[1:])
        return [value for index, value in enumerate(inputs) if value is not None and index not in weights]

    def make_call(self, inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> LayoutCall | None:
        """The task on arrays of these layouts."""
        fitted = self._fit(inputs[0].shape)
        if fitted is None:
            return None
        execution = TaskExecution(fitted.plan.call(), None, self.workspace, (POSITIONS.work, fitted.plan.work_bytes))
        for position, weight in self._weights(inputs):
            execution.set(position, weight)
        arguments = [
            (position, layout_of(array) or contiguous(array.shape, _FLOAT), self._wanted(position, array))
            for position, array in zip((*self._positions(inputs), POSITIONS.out), (*operands, out), strict=True)
        ]
        self._used = self.own_algorithm
        return LayoutCall(execution, arguments, self.workspace)

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """The task, whatever the shapes."""
        fitted = self._fit(inputs[0].shape)
        if fitted is None or not is_nhwc(out):
            return False
        arrays = [*self._weights(inputs), (POSITIONS.out, out)]
        for position, array in zip(self._positions(inputs), self.operands(inputs), strict=True):
            is_row_major = self._is_row_major(position, array)
            arrays.append((position, np.ascontiguousarray(array) if is_row_major else as_nhwc(array)))
        fitted.plan.run(arrays, self.workspace)
        self._used = self.own_algorithm
        return True

    # In a sequence

    positions = POSITIONS
    own_algorithm = ConvAlgorithm.INVERTED_BOTTLENECK

    added_positions = (POSITIONS.added, POSITIONS.last)
    """Where the task takes what is added to the sums and at last."""

    @property
    def reads_nchw(self) -> bool:
        """Whether it reads X row-major."""
        return self._first is not None and self._first.is_of_image

    @property
    def constant_positions(self) -> tuple[int, ...]:
        """Where the task takes weights and biases."""
        return tuple(position + of for position, _ in self._stages for of in (0, 1))

    def constant_arrays(self, given: Sequence[Any]) -> list[tuple[int, HostArray | None]]:
        """Weights and biases as the task reads them, with their positions."""
        return [*self._weights([None, *given]), *self._biases(given)]

    def _biases(self, given: Sequence[Any]) -> list[tuple[int, HostArray | None]]:
        """Where the task takes biases, and those, of the inputs behind X."""
        stages = enumerate(self._stages)
        return [(position + 1, bias_of(given[1 + 2 * index], kernel.constant_shape[0])) for index, (position, kernel) in stages]

    def _weights(self, inputs: Sequence[Any]) -> list[tuple[int, HostArray]]:
        """Where the task takes weights, and those."""
        if not self._panels:
            self._panels = [_weight(kernel, inputs[1 + 2 * index]) for index, (_, kernel) in enumerate(self._stages)]
        return [(position, panels) for (position, _), panels in zip(self._stages, self._panels, strict=True)]

    def _positions(self, inputs: Sequence[Any]) -> list[int]:
        """Where the task takes the operands."""
        biases = [position + 1 for position, _ in self._stages]
        positions = [0, *(position for index, position in enumerate(biases) if inputs[2 + 2 * index] is not None)]
        added = zip((POSITIONS.added, POSITIONS.last), inputs[1 + 2 * len(biases) :], strict=False)
        return positions + [position for position, value in added if value is not None]

    def _is_row_major(self, position: int, array: HostArray) -> bool:
        return array.ndim == 1 or (position == POSITIONS.x and self.reads_nchw)

    def _wanted(self, position: int, array: HostArray) -> Layout:
        layout = contiguous if self._is_row_major(position, array) else channels_last
        return layout(array.shape, _FLOAT)


class _Fitted(NamedTuple):
    """What a block comes to for X of a shape."""

    out_shape: tuple[int, ...]
    plan: TaskPlan


def _epilogue(stage: Stage | None) -> ConvEpilogue:
    return ConvEpilogue() if stage is None else stage.kernel.epilogue()


def _image(stage: Stage, x_shape: tuple[int, ...]) -> Image:
    shape = stage.kernel.constant_shape
    return Image(x_shape, shape[2:], stage.kernel.geometry.padding(x_shape, shape))


def _weight(kernel: PointwiseKernel | DepthwiseKernel | FewInputChannelsKernel, weight: Any) -> HostArray:
    """A stage's in panels."""
    packed = kernel.weight_of(weight)
    if not isinstance(kernel, FewInputChannelsKernel):
        return packed
    return pack_panels(kernel.unpack_weight(packed), kernel.constant_shape[0])


def stage_of(kernel: Any, x_shape: tuple[int, ...], out_shape: tuple[int, ...], *, has_added: bool) -> Stage | None:
    """A convolution of these shapes as a stage; None if it cannot be one.

    Args:
        kernel: of the convolution.
        x_shape: of X.
        out_shape: of its result.
        has_added: whether a tensor is added to its sums or at last.
    """
    is_stage = isinstance(kernel, PointwiseKernel | DepthwiseKernel | FewInputChannelsKernel)
    if not is_stage or len(x_shape) != 4 or 0 in (*x_shape, *out_shape):
        return None
    padding = kernel.geometry.padding(x_shape, kernel.constant_shape)
    lines = x_shape[1] * kernel.constant_shape[2]
    if min(*padding.begins, *padding.ends) < 0 or (isinstance(kernel, FewInputChannelsKernel) and lines > DEPTHWISE_LINES):
        return None
    return Stage(kernel, x_shape, out_shape, has_added)
