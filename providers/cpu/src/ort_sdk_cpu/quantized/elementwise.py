"""8-bit tensors element by element: QLinearAdd and its kin as compiled tasks, for constant scales and zero points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.contrib.quantized_elementwise import dequantize, requantize, storage_type
from ort_sdk.opset.nn.pool import window_counts
from ort_sdk.opset.nn.windows import WindowAttributes, Windows
from ort_sdk_cpu.jit.arguments import TaskArguments
from ort_sdk_cpu.jit.native_call import CallRow, NativeCall
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.copy import copy_elements
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.strides import OUTER_DIMENSIONS, LoopNest, broadcast_strides, memory_order
from ort_sdk_cpu.namespace import CpuNamespace
from ort_sdk_cpu.platform.addresses import address_of
from ort_sdk_cpu.pool.arguments.windows import axes_hw

from .arguments.elementwise import (
    MODULE,
    AveragePool,
    Binary,
    GlobalAveragePool,
    InputScale,
    LookUp,
    OutputScale,
    RowLoops,
    RowStrides,
    SoftmaxColumns,
    SoftmaxRows,
)
from .parameters import BYTES, Parameters, limits, parameters_of, sign_bit

__all__: list[str] = []

MICROSOFT = "com.microsoft"
_LOOKED_UP_AT_ONCE = 4
"""Elements that take as long as one of an addition."""
_SOFTMAX_COST = 16
"""Of an element, in those of an addition."""


class _Task:
    """A task on arrays, which may be others of the same strides in the next call.

    Args:
        name: the task's.
        arguments: of the task, 0 for addresses.
        work: elements of an addition that it takes as long as.
    """

    def __init__(self, name: str, arguments: TaskArguments, work: int) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        self._call = TaskCall(MODULE, name, arguments, threads_for(work))
        self._aims: list[tuple[int, int, int]] = []

    def point(self, field: int, array: HostArray | None, owner: int | None = None, owners: Sequence[Any] = ()) -> None:
        """Use an array's memory for an argument: a constant's, or that of one of the writer's arrays, or a part of it."""
        self._call.point(field, array)
        if array is not None and owner is not None:
            self._aims.append((field, owner, address_of(array) - address_of(owners[owner])))

    def aim(self, arrays: Sequence[Any]) -> None:
        """Use other arrays of the same strides."""
        for field, owner, offset in self._aims:
            self._call.point(field, arrays[owner], offset)

    def run(self) -> None:
        """Do the work."""
        self._call.run()

    @property
    def row(self) -> CallRow:
        """The work for callers that need no Python."""
        return self._call.row


class _FixedTasks:
    """A writer that makes its tasks anew for arrays of other strides.

    Args:
        make: tasks that point at the arrays; None where there is none for them.
        otherwise: writes those.
    """

    def __init__(self, make: Callable[[Sequence[Any]], list[Any] | None], otherwise: Writer) -> None:
        self._make, self._otherwise = make, otherwise
        self._strides: tuple[Any, ...] | None = None
        self._made: list[_Task] = []

    def __call__(self, *arrays: Any) -> None:
        """Write the outputs."""
        strides = tuple(None if array is None else array.strides for array in arrays)
        if strides == self._strides:
            for task in self._made:
                task.aim(arrays)
                task.run()
            return
        tasks = self._make(arrays)
        if tasks is None:
            self._otherwise(*arrays)
            return
        for task in tasks:
            task.run()
        # Copies are of these arrays alone.
        if not any(isinstance(task, _Copy) for task in tasks):
            self._strides, self._made = strides, tasks

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same."""
        tasks = self._make(arrays)
        if tasks is None:
            return None

        def call() -> None:
            for task in tasks:
                task.run()

        # Tables are held by what made the tasks.
        call.keeps_alive = (self, arrays)  # type: ignore[attr-defined]
        if not any(isinstance(task, _Copy) for task in tasks):
            call.native = NativeCall(tuple(task.row for task in tasks))  # type: ignore[attr-defined]
        return call


class _Copy:
    """In the place of a task: a copy of an array in another order of axes.

    Args:
        source: the array.
        axes: of ``source``, from the outermost in the copy's memory to the innermost.
    """

    def __init__(self, source: HostArray, axes: Sequence[int]) -> None:
        self._source = source
        ordered = np.empty(tuple(source.shape[axis] for axis in axes), source.dtype)
        self.target = ordered.transpose(np.argsort(axes))

    def run(self) -> None:
        """Copy."""
        copy_elements(self.target, self._source)


def _is_worth_it(size: int, name: str) -> bool:
    return is_worth_a_task(size, MODULE, name)


def _input_scale(array: HostArray, parameters: Parameters) -> InputScale:
    zero_point, scale = parameters
    return InputScale(sign_bit(array), zero_point + sign_bit(array), scale)


def _output_scale(array: HostArray, parameters: Parameters) -> OutputScale:
    return OutputScale(*parameters, *limits(array))


def _readable(array: HostArray, out: HostArray, copies: list[_Copy]) -> HostArray:
    """An operand, or a copy of it: along the output's innermost axis elements follow each other, or are one."""
    order = memory_order(out)
    strides = broadcast_strides(out.shape, array.shape, array.strides)
    inner = [strides[axis] for axis in order if out.shape[axis] > 1]
    if not inner or inner[-1] in {0, 1}:
        return array
    missing = out.ndim - array.ndim
    copies.append(_Copy(array, [axis - missing for axis in order if axis >= missing]))
    return copies[-1].target


def _loops(arrays: Sequence[HostArray], *, by_element: bool = False) -> LoopNest | None:
    """Over arrays that broadcast to the last one; None if a task does not go over them.

    Args:
        arrays: operands and output.
        by_element: whether rows may have one element, where elements of none follow each other.
    """
    out = arrays[-1]
    order = memory_order(out)
    strides = [[broadcast_strides(out.shape, array.shape, array.strides)[axis] for axis in order] for array in arrays]
    if sum(size != 1 for size in out.shape) > OUTER_DIMENSIONS + 1:
        return None
    loops = LoopNest.over([out.shape[axis] for axis in order], strides)
    is_fit = all(own[-1] in {0, 1} for own in loops.strides) and (loops.sizes[-1] == 1 or loops.strides[-1][-1] == 1)
    if is_fit:
        return loops
    return _element_by_element(loops) if by_element else None


def _element_by_element(loops: LoopNest) -> LoopNest | None:
    """The same loops over rows of one element; None for too many."""
    first, *sizes = loops.sizes
    return LoopNest((*sizes, 1), tuple((*own[1:], 0) for own in loops.strides)) if first == 1 else None


def _row_loops(loops: LoopNest) -> RowLoops:
    _, size_1, size_2, size_3, columns = loops.sizes
    return RowLoops(math.prod(loops.sizes[:-1]), columns, size_1, size_2, size_3)


def _row_strides(loops: LoopNest) -> list[RowStrides]:
    """Of each operand."""
    return [RowStrides(*strides) for strides in loops.strides]


def _binary(info: KernelInfo, compute: Any, *, is_multiplication: bool) -> MakeWriter | None:
    parameters = [parameters_of(info, index, index + 1) for index in (1, 4, 6)]
    if None in parameters:
        return None
    first, second, result = (pair for pair in parameters if pair is not None)

    def tasks(arrays: Sequence[Any]) -> list[Any] | None:
        made: list[Any] = []
        out = arrays[-1]
        a, b = (_readable(array, out, made) for array in (arrays[0], arrays[3]))
        loops = _loops([a, b, out])
        if loops is None:
            return None
        scales = (_input_scale(a, first), _input_scale(b, second), _output_scale(out, result))
        a_strides, b_strides, out_strides = _row_strides(loops)
        arguments = Binary(0, 0, 0, int(is_multiplication), *scales, _row_loops(loops), a_strides, b_strides, out_strides)
        made.append(_Task("binary", arguments, out.size))
        for field, array, owner in ((Binary.a, a, 0), (Binary.b, b, 3), (Binary.out, out, -1)):
            made[-1].point(field, array, owner if array is arrays[owner] else None, arrays)
        return made

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        out = outputs[0]
        if not BYTES.issuperset((inputs[0].dtype, inputs[3].dtype, out.dtype)) or not _is_worth_it(out.size, "binary"):
            return copying_writer(compute)
        return _FixedTasks(tasks, copying_writer(compute))

    return make


@bindable("QLinearAdd", domain=MICROSOFT, elementwise=True)
def qlinear_add(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Sum of two tensors."""
    return _binary(info, compute, is_multiplication=False)


@bindable("QLinearMul", domain=MICROSOFT, elementwise=True)
def qlinear_mul(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Product of two tensors."""
    return _binary(info, compute, is_multiplication=True)


def _looked_up(arrays: Sequence[Any], source: int, out: HostArray, table: HostArray | None) -> list[Any] | None:
    """The task, and what comes before it; None if there is none for these arrays.

    Args:
        arrays: the writer's.
        source: which of them is read.
        out: a part of the last one.
        table: of 256 bytes.
    """
    made: list[Any] = []
    x = _readable(arrays[source], out, made)
    loops = _loops([x, out], by_element=True)
    if loops is None:
        return None
    x_strides, out_strides = _row_strides(loops)
    arguments = LookUp(0, 0, 0, _row_loops(loops), x_strides, out_strides)
    made.append(_Task("look_up", arguments, out.size // _LOOKED_UP_AT_ONCE))
    made[-1].point(LookUp.x, x, source if x is arrays[source] else None, arrays)
    made[-1].point(LookUp.out, out, -1, arrays)
    made[-1].point(LookUp.table, table)
    return made


def _every_byte(dtype: np.dtype[Any]) -> HostArray:
    return np.arange(256, dtype=np.uint8).view(dtype)


@bindable("QLinearLeakyRelu", "QLinearSigmoid", domain=MICROSOFT, elementwise=True)
def function_of_bytes(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """A function of each element: one of 256."""
    if None in (parameters_of(info, 1, 2), parameters_of(info, 3, 4)):
        return None
    tables: dict[np.dtype[Any], HostArray] = {}

    def tasks(arrays: Sequence[Any]) -> list[Any] | None:
        x, out = arrays[0], arrays[-1]
        if x.dtype not in tables:
            tables[x.dtype] = np.ascontiguousarray(compute(_every_byte(x.dtype), *arrays[1:-1]))
        return _looked_up(arrays, 0, out, tables[x.dtype])

    return _on_bytes(tasks, compute, "look_up")


def _on_bytes(tasks: Callable[[Sequence[Any]], list[Any] | None], compute: Any, name: str) -> MakeWriter:
    """Tasks where the first input and the output are of bytes."""

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        if not BYTES.issuperset((x.dtype, out.dtype)) or not _is_worth_it(x.size, name):
            return copying_writer(compute)
        return _FixedTasks(tasks, copying_writer(compute))

    return make


@bindable("QLinearConcat", domain=MICROSOFT, any_layout=True)
def qlinear_concat(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Concatenation, each tensor by the table of its own scale and zero point."""
    count = (len(info.inputs) - 2) // 3
    parameters = [parameters_of(info, index, index + 1) for index in (0, *range(3, 3 * count + 1, 3))]
    if count < 1 or None in parameters:
        return None
    axis = int(info.attribute("axis"))
    tables: dict[tuple[int, np.dtype[Any]], HostArray | None] = {}

    def table_of(index: int, arrays: Sequence[Any]) -> HostArray | None:
        """None if the elements stay as they are."""
        x, out = arrays[2 + 3 * index], arrays[-1]
        key = (index, x.dtype)
        if key not in tables:
            triple = (_every_byte(x.dtype), *arrays[3 + 3 * index : 5 + 3 * index])
            table = np.ascontiguousarray(_requantized(info, triple, arrays[:2]))
            is_same = x.dtype == out.dtype and np.array_equal(table, triple[0])
            tables[key] = None if is_same else table
        return tables[key]

    def tasks(arrays: Sequence[Any]) -> list[Any] | None:
        out, made, start = arrays[-1], [], 0
        for index, x in enumerate(arrays[2:-1:3]):
            stop = start + x.shape[axis]
            part = (*(slice(None) for _ in range(axis % out.ndim)), slice(start, stop))
            found = _looked_up(arrays, 2 + 3 * index, out[part], table_of(index, arrays)) if x.size else []
            if found is None:
                return None
            made += found
            start = stop
        return made

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        types = {array.dtype for array in (*inputs[2::3], *outputs)}
        if not BYTES.issuperset(types) or not _is_worth_it(outputs[0].size, "look_up"):
            return copying_writer(compute)
        return _FixedTasks(tasks, copying_writer(compute))

    return make


@bindable("QLinearWhere", domain=MICROSOFT)
def qlinear_where(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Elements of two tensors, each by the table of its own scale and zero point."""
    if None in (parameters_of(info, 2, 3), parameters_of(info, 5, 6), parameters_of(info, 7, 8)):
        return None
    tables: dict[tuple[int, np.dtype[Any]], HostArray] = {}

    def looked_up(index: int, arrays: Sequence[Any]) -> HostArray:
        x, key = arrays[index], (index, arrays[index].dtype)
        if key not in tables:
            triple = (_every_byte(x.dtype), *arrays[index + 1 : index + 3])
            tables[key] = np.ascontiguousarray(_requantized(info, triple, arrays[7:9], 7))
        is_same = x.dtype == arrays[-1].dtype and np.array_equal(tables[key], _every_byte(x.dtype))
        found: HostArray = x.view(np.uint8) if is_same else tables[key].view(np.uint8)[x.view(np.uint8)]
        return found

    def write(*arrays: Any) -> None:
        # By bits: NumPy copies where a condition holds byte by byte.
        x, y, out = looked_up(1, arrays), looked_up(4, arrays), arrays[-1].view(np.uint8)
        np.bitwise_and(x ^ y, np.negative(arrays[0].view(np.uint8)), out=out)
        np.bitwise_xor(out, y, out=out)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        return write if BYTES.issuperset((inputs[1].dtype, inputs[4].dtype, outputs[0].dtype)) else copying_writer(compute)

    return make


def _requantized(info: KernelInfo, triple: Sequence[Any], result: Sequence[Any], scale_index: int = 0) -> Any:
    """Requantized with the result's scale, input ``scale_index``, and the zero point behind it."""
    xp = CpuNamespace()
    scale, zero_point = result
    return requantize(xp, dequantize(xp, *triple), scale, zero_point, storage_type(info, scale_index + 1))


@bindable("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Softmax along an axis, or from one on."""
    own, result = parameters_of(info, 1, 2), parameters_of(info, 3, 4)
    axis, is_coerced = int(info.attribute("axis", -1)), int(info.attribute("opset")) < 13
    if own is None or result is None:
        return None

    def tasks(arrays: Sequence[Any]) -> list[Any] | None:
        x, out = arrays[0], arrays[-1]
        if not x.ndim or not x.size or not out.flags.c_contiguous:
            return None
        copies = [] if x.flags.c_contiguous else [_Copy(x, range(x.ndim))]
        size, behind = x.shape[axis], math.prod(x.shape[axis % x.ndim + 1 :])
        if is_coerced:
            size, behind = size * behind, 1
        count, scales = x.size // (size * behind), (_input_scale(x, own), _output_scale(out, result))
        if behind > 1:
            made = _Task("softmax_columns", SoftmaxColumns(0, 0, count, size, behind, *scales), x.size * _SOFTMAX_COST)
        else:
            made = _Task("softmax_rows", SoftmaxRows(0, 0, count, size, *scales), x.size * _SOFTMAX_COST)
        # Both classes begin alike.
        made.point(SoftmaxRows.x, copies[0].target if copies else x, None if copies else 0, arrays)
        made.point(SoftmaxRows.out, out, -1, arrays)
        return [*copies, made]

    return _on_bytes(tasks, compute, "softmax_rows")


@bindable("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Mean over the spatial axes."""
    own, result = parameters_of(info, 1, 2), parameters_of(info, 3, 4)
    if own is None or result is None or info.attribute("channels_last", 0):
        return None

    def tasks(arrays: Sequence[Any]) -> list[Any] | None:
        x, out = arrays[0], arrays[-1]
        is_last, pixels = np.moveaxis(x, 1, -1).flags.c_contiguous, math.prod(x.shape[2:])
        if x.ndim < 3 or not (is_last or x.flags.c_contiguous) or not pixels or not out.flags.c_contiguous:
            return None
        samples, channels = x.shape[:2]
        pixel_stride, channel_stride = (channels, 1) if is_last else (1, pixels)
        scales = (_input_scale(x, own), _output_scale(out, result))
        arguments = GlobalAveragePool(0, 0, samples, channels, pixels, pixel_stride, channel_stride, *scales)
        made = _Task("global_average_pool", arguments, x.size // 4)
        made.point(GlobalAveragePool.x, x, 0, arrays)
        made.point(GlobalAveragePool.out, out, -1, arrays)
        return [made]

    return _on_bytes(tasks, compute, "global_average_pool")


@bindable("QLinearAveragePool", domain=MICROSOFT, any_layout=True)
def qlinear_average_pool(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Means of windows of 1-D and 2-D input with channels last in memory."""
    own, result = parameters_of(info, 1, 2), parameters_of(info, 3, 4)
    if own is None or result is None or info.attribute("channels_last", 0):
        return None
    attributes, include_pad = WindowAttributes.of(info), bool(info.attribute("count_include_pad", 0))
    held: dict[Windows, list[HostArray]] = {}

    def tasks(arrays: Sequence[Any]) -> list[Any] | None:
        x, out = arrays[0], arrays[-1]
        if x.ndim not in {3, 4} or not all(np.moveaxis(array, 1, -1).flags.c_contiguous for array in (x, out)):
            return None
        windows = attributes.windows(x.shape[2:])
        if windows not in held:
            counts = window_counts(windows, include_pad, np.dtype(np.float32))
            held[windows] = [np.ones(1, np.float32)] * (4 - x.ndim) + counts
        row_counts, column_counts = held[windows]
        scales = (_input_scale(x, own), _output_scale(out, result))
        arguments = AveragePool(0, 0, row_counts, column_counts, x.shape[0], x.shape[1], *axes_hw(windows), *scales)
        made = _Task("average_pool_nhwc", arguments, out.size * math.prod(windows.kernel_shape))
        made.point(AveragePool.x, x, 0, arrays)
        made.point(AveragePool.out, out, -1, arrays)
        return [made]

    return _on_bytes(tasks, compute, "average_pool_nhwc")
