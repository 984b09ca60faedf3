"""Reductions and ArgMax into a given output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.axes import normalized_axes
from ort_sdk_cpu.kernel.bindable import bindable, kernel_maker
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.strides import memory_order
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of
from ort_sdk_cpu.movement.embedding_bag import MODES, BagReduction

from .arguments.arg_max import MODULE as ARG_MAX
from .arguments.arg_max import ArgMax
from .launch import TaskReduction, reduction_writer
from .select import (
    ArgMaxAlgorithm,
    ReduceAlgorithm,
    ReduceOp,
    ReduceProblem,
    select_arg_max,
    select_numpy,
    select_reduce,
)

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class _Reduction:
    """What is done to elements, how they are combined, and what is done to the result."""

    combine: np.ufunc
    before: np.ufunc | None = None
    after: np.ufunc | None = None
    is_mean: bool = False
    floats_only: bool = False


_REDUCTIONS = {
    "ReduceL1": _Reduction(np.add, before=np.absolute, floats_only=True),
    "ReduceL2": _Reduction(np.add, before=np.square, after=np.sqrt, floats_only=True),
    "ReduceLogSum": _Reduction(np.add, after=np.log, floats_only=True),
    "ReduceMax": _Reduction(np.maximum),
    "ReduceMean": _Reduction(np.add, is_mean=True, floats_only=True),
    "ReduceMin": _Reduction(np.minimum),
    "ReduceProd": _Reduction(np.multiply),
    "ReduceSum": _Reduction(np.add),
    "ReduceSumSquare": _Reduction(np.add, before=np.square, floats_only=True),
}


@bindable(*_REDUCTIONS, any_layout=True)
def reduce(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """One element of all along some axes; of no elements, and of booleans, by the shared set."""
    element_type, reduction = info.input_element_type(0), _REDUCTIONS[info.op_type]
    kind = "" if element_type is None else element_type.numpy_dtype.kind
    if element_type is TensorElementType.BOOL or (reduction.floats_only and kind != "f"):
        return None
    given, keepdims = info.attribute("axes", None), bool(info.attribute("keepdims", 1))
    noop, workspace = bool(info.attribute("noop_with_empty_axes", 0)), workspace_of(info)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[ReduceAlgorithm, Writer]:
        x, axes_input = (*inputs, None)[:2]
        axes = given if axes_input is None else axes_input.tolist()
        if x.size == 0 or x.ndim == 0 or (not axes and noop):
            return ReduceAlgorithm.NUMPY, copying_writer(compute)
        over = normalized_axes(axes or range(x.ndim), x.ndim, info)
        problem = _problem(reduction, x, over, outputs[0])
        algorithm, layout = select_reduce(problem)
        if algorithm is ReduceAlgorithm.COPY:
            return algorithm, CopyWriter(lambda *arrays: [(arrays[-1], arrays[0].reshape(arrays[-1].shape))])
        otherwise = select_numpy(problem)
        by_numpy = _by_slices if otherwise is ReduceAlgorithm.SLICES else _by_numpy
        written = _finished(by_numpy(reduction, x, over, keepdims=keepdims, workspace=workspace), reduction, problem.count)
        task = None if layout is None else _as_task(reduction, problem.count)
        writer = None if layout is None or task is None else reduction_writer(task, layout, x, outputs[0], written)
        return (otherwise, written) if writer is None else (algorithm, writer)

    return SelectingMaker(make)


@kernel_maker(*MODES)
def reducing(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BagReduction:
    """The kernel, which in a program takes in the Gather of the rows that it reduces."""
    return BagReduction(info, kernel, make_writer)


@bindable("ArgMax", "ArgMin")
def arg(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Index of the first largest or smallest element along an axis."""
    if info.attribute("select_last_index", 0) or np.dtype(np.intp) != np.int64:
        return None
    find = np.argmax if info.op_type == "ArgMax" else np.argmin
    axis, keepdims = info.attribute("axis", 0), bool(info.attribute("keepdims", 1))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[ArgMaxAlgorithm, Writer]:
        x = inputs[0]
        if not x.ndim or not x.size:
            return ArgMaxAlgorithm.NUMPY, copying_writer(compute)
        writer = _ArgMaxWriter(find, axis, keepdims=keepdims)
        return writer.algorithm(x, outputs[0]), writer

    return SelectingMaker(make)


class _ArgMaxWriter:
    """A writer of the indices of the largest or the smallest elements."""

    def __init__(self, find: Callable[..., Any], axis: int, *, keepdims: bool) -> None:
        self._find, self._axis, self._keepdims = find, axis, keepdims
        self._calls: dict[tuple[int, int, int], TaskCall] = {}

    def __call__(self, x: HostArray, out: HostArray) -> None:
        """Write the output."""
        sizes = self._sizes(x, out)
        if sizes is None:
            self._find(x, axis=self._axis, out=out, keepdims=self._keepdims)
            return
        call = self._calls.get(sizes) or self._calls.setdefault(sizes, self._call(sizes))
        call.point(ArgMax.x, x)
        call.point(ArgMax.out, out)
        call.run()

    def bind_arrays(self, x: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The task on arrays that stay; None where it is not the one to do it."""
        sizes = self._sizes(x, out)
        if sizes is None:
            return None
        call = self._call(sizes)
        call.point(ArgMax.x, x)
        call.point(ArgMax.out, out)
        return call.bound_call(x, out)

    def algorithm(self, x: HostArray, out: HostArray) -> ArgMaxAlgorithm:
        """The algorithm for such arrays."""
        return ArgMaxAlgorithm.NUMPY if self._sizes(x, out) is None else ArgMaxAlgorithm.TASK

    def _call(self, sizes: tuple[int, int, int]) -> TaskCall:
        from ort_sdk_cpu.jit.task import TaskCall

        factor = 1.0 if self._find is np.argmax else -1.0
        return TaskCall(ARG_MAX, "arg_max", ArgMax(0, 0, *sizes, factor), threads_for(math.prod(sizes)))

    def _sizes(self, x: HostArray, out: HostArray) -> tuple[int, int, int] | None:
        """Elements before the axis, along it and after it in memory, where the task finds the results; else None."""
        axis = self._axis % x.ndim
        if not are_floats([x]) or not out.flags.c_contiguous:
            return None
        if x.flags.c_contiguous:
            sizes = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
        elif np.moveaxis(x, axis, -1).flags.c_contiguous:
            sizes = (x.size // x.shape[axis], x.shape[axis], 1)
        else:
            return None
        is_task = select_arg_max(*sizes, is_float32=True) is ArgMaxAlgorithm.TASK
        return sizes if is_task and is_worth_a_task(x.size, ARG_MAX, "arg_max") else None


def _op(reduction: _Reduction) -> ReduceOp | None:
    """What a task computes of it; None if there is none."""
    if reduction.after not in {None, np.sqrt}:
        return None
    return _OPS.get((reduction.combine, reduction.before))


def _problem(reduction: _Reduction, x: HostArray, axes: Sequence[int], out: HostArray) -> ReduceProblem:
    is_identity = reduction.before is reduction.after is None
    is_float32 = are_floats([x, out])
    return ReduceProblem(_op(reduction), x.shape, x.strides, tuple(axes), out.strides, is_float32, is_identity)


def _as_task(reduction: _Reduction, count: int) -> TaskReduction | None:
    """The reduction of ``count`` elements as a task; None if there is none."""
    op = _op(reduction)
    if op is None:
        return None
    factor = -1.0 if reduction.combine is np.minimum else 1.0
    divisor = float(count) if reduction.is_mean else factor
    return TaskReduction(op, factor, divisor, has_root=reduction.after is not None)


_OPS: dict[tuple[np.ufunc, np.ufunc | None], ReduceOp] = {
    (np.maximum, None): ReduceOp.MAX,
    # The largest of the opposites, whose opposite is the least.
    (np.minimum, None): ReduceOp.MAX,
    (np.multiply, None): ReduceOp.PROD,
    (np.add, None): ReduceOp.SUM,
    (np.add, np.square): ReduceOp.SUM_SQUARE,
}
"""How elements are combined, and what is done to each before → the task."""


_Run = Callable[[HostArray, HostArray], None]
"""Reduces the first array into the second."""


def _workspace_like(array: HostArray, workspace: Workspace) -> HostArray:
    """Workspace of an array's shape, type and memory order."""
    if array.flags.c_contiguous:
        return workspace.array("reduced", array.shape, array.dtype)
    order = memory_order(array)
    return workspace.array("reduced", tuple(array.shape[axis] for axis in order), array.dtype).transpose(np.argsort(order))


def _by_numpy(reduction: _Reduction, _x: HostArray, axes: tuple[int, ...], *, keepdims: bool, workspace: Workspace) -> _Run:
    combine, before = reduction.combine.reduce, reduction.before
    if before is None:
        return lambda x, out: combine(x, axis=axes, out=out, keepdims=keepdims)

    def run(x: HostArray, out: HostArray) -> None:
        elements = _workspace_like(x, workspace)
        before(x, elements)
        combine(elements, axis=axes, out=out, keepdims=keepdims)

    return run


def _by_slices(reduction: _Reduction, x: HostArray, axes: tuple[int, ...], *, keepdims: bool, workspace: Workspace) -> _Run:
    """A pass over the output for each element along one axis."""
    before_axis: tuple[Any, ...] = (slice(None),) * axes[0]
    slices: list[Any] = [(*before_axis, position) for position in range(x.shape[axes[0]])]
    target: Any = slices[0] if keepdims else ...
    combine, before = reduction.combine, reduction.before

    def run(x: HostArray, out: HostArray) -> None:
        result = out[target]
        if before is None:
            combine(x[slices[0]], x[slices[1]], out=result)
            for slice_ in slices[2:]:
                combine(result, x[slice_], out=result)
            return
        other = _workspace_like(result, workspace)
        before(x[slices[0]], result)
        for slice_ in slices[1:]:
            before(x[slice_], other)
            combine(result, other, out=result)

    return run


def _finished(run: _Run, reduction: _Reduction, count: int) -> Writer:
    after = reduction.after
    if not reduction.is_mean and after is None:
        return lambda *arrays: run(arrays[0], arrays[-1])

    def write(*arrays: HostArray) -> None:
        out = arrays[-1]
        run(arrays[0], out)
        if after is None:
            np.divide(out, count, out)
        else:
            after(out, out)

    return write
