"""LogSoftmax, ReduceLogSumExp, LpNormalization and CumSum by compiled tasks on contiguous arrays, and Trilu by a bit mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.axes import normalized_axes
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import BindableKernel, DirectBindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.layouts.contiguous import contiguous_first
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of
from ort_sdk_cpu.movement.arguments.where import MODULE as WHERE
from ort_sdk_cpu.movement.arguments.where import Where

from .arguments.log_softmax import MODULE, CumSumFloat, CumSumInt64, LogSoftmax, LogSumExp, LpNormalization

__all__: list[str] = []

MAX_JOINED = 1 << 16
"""Elements of a matrix up to which being joined with other steps gains more than NumPy's faster masks."""
_CUM_SUMS = {TensorElementType.FLOAT: ("cum_sum_f32", CumSumFloat), TensorElementType.INT64: ("cum_sum_i64", CumSumInt64)}
EXPONENTIAL_WORK = 4
"""Elements of a few instructions each that one of a softmax takes as long as."""


@bindable("LogSoftmax")
def log_softmax(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """LogSoftmax along the last axes; along others by the shared set."""
    if info.input_element_type(0) is not TensorElementType.FLOAT:
        return None
    rows_of = _rows(info.attribute("axis", -1 if info.since_version >= 13 else 1), is_flattened=info.since_version < 13)
    return _RowTask("log_softmax", rows_of, LogSoftmax, (), EXPONENTIAL_WORK, compute, workspace_of(info))


@bindable("LpNormalization")
def lp_normalization(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Rows divided by their norms; along other axes by the shared set."""
    if info.input_element_type(0) is not TensorElementType.FLOAT:
        return None
    rows_of = _rows(info.attribute("axis", -1), is_flattened=False)
    return _RowTask("lp_normalization", rows_of, LpNormalization, (int(info.attribute("p", 2)),), 1, compute, workspace_of(info))


def _rows(axis: int, *, is_flattened: bool) -> Any:
    """From a shape its number of rows and their length; None where other axes follow."""

    def rows_of(shape: tuple[int, ...]) -> tuple[int, int] | None:
        first = axis + len(shape) if axis < 0 else axis
        if not 0 <= first < len(shape) or (not is_flattened and math.prod(shape[first + 1 :]) != 1):
            return None
        return math.prod(shape[:first]), math.prod(shape[first:])

    return rows_of


class _RowTask:
    """Makes writers of a task on rows, and calls it on arrays of any shape.

    Args:
        name: the task's.
        rows_of: see ``_rows``.
        arguments: its class of arguments.
        options: what these have after sizes.
        work: elements of a few instructions each that one takes as long as.
        compute: the shared set's function.
        workspace: the workspace.
    """

    def __init__(
        self,
        name: str,
        rows_of: Any,
        arguments: type[LogSoftmax],
        options: tuple[int, ...],
        work: int,
        compute: Any,
        workspace: Workspace,
    ) -> None:
        self._name, self._rows_of, self._arguments, self._options, self._work = name, rows_of, arguments, options, work
        self._otherwise, self._workspace = copying_writer(compute), workspace
        self._results = ResultAllocator()

    def _sizes(self, x: HostArray) -> tuple[int, int] | None:
        rows: tuple[int, int] | None = self._rows_of(x.shape)
        return rows if rows is not None and is_worth_a_task(x.size, MODULE, self._name) else None

    def __call__(self, inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        """The writer for arrays of these shapes."""
        sizes = self._sizes(inputs[0])
        if sizes is None:
            return self._otherwise
        threads = min(threads_for(inputs[0].size * self._work), sizes[0])
        arguments = self._arguments(Operand(0), Operand(1), *sizes, *self._options)
        writer = TaskWriter(MODULE, self._name, arguments, self._otherwise, threads)
        return contiguous_first(writer, inputs[0], self._workspace)

    def call(self, x: HostArray) -> Any:
        """The result, or ``NotImplemented``."""
        sizes = self._sizes(x) if x.flags.c_contiguous else None
        if sizes is None:
            return NotImplemented
        from ort_sdk_cpu.jit.task import task_function

        out, threads = self._results.empty(x.shape), min(threads_for(x.size * self._work), sizes[0])
        task_function(MODULE, self._name)(threads, self._arguments(x, out, *sizes, *self._options))
        return out


@bindable("ReduceLogSumExp")
def reduce_log_sum_exp(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """ReduceLogSumExp over the last axes; over others by the shared set."""
    if info.input_element_type(0) is not TensorElementType.FLOAT:
        return None
    given, otherwise, workspace = info.attribute("axes", None), copying_writer(compute), workspace_of(info)
    noop = bool(info.attribute("noop_with_empty_axes", 0))

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, along = (*inputs, None)[:2]
        axes = given if along is None else along.tolist()
        if (along is not None and 1 not in info.constants) or (not axes and noop):
            return otherwise
        over = normalized_axes(axes or range(x.ndim), x.ndim, info)
        first = min(over, default=x.ndim)
        rows, width = math.prod(x.shape[:first]), math.prod(x.shape[axis] for axis in over)
        if width != math.prod(x.shape[first:]) or not is_worth_a_task(x.size, MODULE, "log_sum_exp"):
            return otherwise
        threads = min(threads_for(x.size * EXPONENTIAL_WORK), rows)
        arguments = LogSumExp(Operand(0), Operand(len(inputs)), rows, width)
        writer = TaskWriter(MODULE, "log_sum_exp", arguments, otherwise, threads)
        return contiguous_first(writer, x, workspace)

    return make


@kernel_maker("LogSoftmax", "LpNormalization")
def for_any_shape(_info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The kernel over the task, for arrays of any shape."""
    return DirectBindableKernel(kernel, make_writer, make_writer.call) if isinstance(make_writer, _RowTask) else None


@bindable("CumSum")
def cum_sum(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Cumulative sums of float32 and int64."""
    element_type, otherwise = info.input_element_type(0), copying_writer(compute)
    if element_type not in _CUM_SUMS:
        return None
    task, arguments = _CUM_SUMS[element_type]
    options, workspace = (int(info.attribute("exclusive", 0)), int(info.attribute("reverse", 0))), workspace_of(info)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, along = inputs
        if 1 not in info.constants or along.size != 1 or not is_worth_a_task(x.size, MODULE, task):
            return otherwise
        axis = int(along.reshape(()))
        if not -x.ndim <= axis < x.ndim:
            return otherwise
        axis %= x.ndim
        sizes = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
        threads = min(threads_for(x.size), sizes[0] * sizes[2])
        made = arguments(Operand(0), Operand(2), *sizes, *options)
        return contiguous_first(TaskWriter(MODULE, task, made, otherwise, threads), x, workspace)

    return make


@bindable("Trilu", any_type=True)
def trilu(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """A triangle of each matrix, zeros elsewhere."""
    is_upper, otherwise = bool(info.attribute("upper", 1)), copying_writer(compute)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, *diagonals = inputs
        given = diagonals[0] if diagonals else None
        if x.ndim < 2 or not x.size or (given is not None and (given.size != 1 or 1 not in info.constants)):
            return otherwise
        unsigned = np.dtype(f"u{outputs[0].itemsize}")
        rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
        distance = columns - rows - (0 if given is None else int(given.reshape(())))
        is_kept = distance >= 0 if is_upper else distance <= 0
        mask = np.where(is_kept, unsigned.type(np.iinfo(unsigned).max), unsigned.type(0))

        def write(*arrays: HostArray) -> None:
            np.bitwise_and(arrays[0].view(unsigned), mask, out=arrays[-1].view(unsigned))

        is_joined = x.size == is_kept.size <= MAX_JOINED and is_worth_a_task(x.size, WHERE, "where")
        return _Triangle(is_kept, x.itemsize, len(inputs), write) if is_joined else write

    return make


class _Triangle(TaskWriter):
    """One matrix where a mask is true, else zero.

    Args:
        is_kept: the mask.
        itemsize: bytes of an element.
        given: how many inputs there are.
        otherwise: writes matrices that are not contiguous.
    """

    def __init__(self, is_kept: HostArray, itemsize: int, given: int, otherwise: Writer) -> None:
        self._kept = (np.ascontiguousarray(is_kept), np.zeros(itemsize, np.uint8))
        condition, zero = self._kept
        arguments = Where(condition, Operand(0), zero, Operand(given), is_kept.size, itemsize, 0, 1)
        super().__init__(WHERE, "where", arguments, otherwise, threads_for(is_kept.size * itemsize // 4))
