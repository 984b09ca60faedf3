"""Gather of slices along an axis: as a copy of runs where indices are constant, by a task, or by NumPy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.checked_task import CheckedWriter
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.runs import MAX_OFFSETS, WORD, Runs, RunsWriter, addresses_of, element_runs
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer

from .arguments.gather_scatter import MODULE
from .arguments.gather_scatter import Gather as GatherSlices
from .select import GatherAlgorithm, GatherProblem, select_gather

__all__ = ["even_stride", "gather_call", "gathered_runs"]

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


@bindable("Gather", any_type=True)
def gather(info: KernelInfo, compute: Any) -> MakeWriter:
    """Slices of the data along an axis."""
    axis = info.attribute("axis", 0)
    # Without a sign, negative indices are larger than any size: one comparison finds those that are out of range on both sides.
    unsigned = {4: np.uint32, 8: np.uint64}

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[GatherAlgorithm, Writer]:
        (data, indices), out = inputs, outputs[0]
        is_one = indices.ndim == 0 and 1 in info.constants
        is_known = is_one and bool(-data.shape[axis] <= indices < data.shape[axis])
        problem = GatherProblem(_slice_bytes(data, axis), out.size, threads_for(out.size), is_known)
        algorithm = select_gather(problem)
        if algorithm is GatherAlgorithm.SLICE:
            return algorithm, _slice_at(int(indices), axis % data.ndim)
        runs = functools.partial(gathered_runs, axis)
        if algorithm is GatherAlgorithm.TEAM and is_worth_a_task(out.size, MODULE, "gather"):
            task = _team_writer(axis, compute, data, indices, problem.threads)
            return algorithm, RunsWriter(info, task, runs, task.bind_arrays)

        def write(data: HostArray, indices: HostArray, out: HostArray) -> None:
            # mode="raise" goes through a buffer as large as the output. Indices that were looked at need none.
            limit = data.shape[axis]
            if indices.size and indices.view(unsigned[indices.itemsize]).max() < limit:
                data.take(indices, axis=axis, out=out, mode="clip")
                return
            if indices.size and (indices.max() >= limit or indices.min() < -limit):
                compute(data, indices)
            wrapped = indices if not indices.size or indices.min() >= 0 else np.where(indices < 0, indices + limit, indices)
            data.take(wrapped, axis=axis, out=out, mode="clip")

        return GatherAlgorithm.NUMPY, RunsWriter(info, write, runs, functools.partial(gather_call, axis, compute))

    return SelectingMaker(make)


def _slice_bytes(data: HostArray, axis: int) -> int:
    slice_size: int = math.prod(data.shape[axis:][1:])
    return slice_size * data.itemsize


def _team_writer(axis: int, compute: Callable[..., Any], data: HostArray, indices: HostArray, threads: int) -> CheckedWriter:
    """The task on several threads."""
    outer, limit = math.prod(data.shape[: axis % data.ndim]), data.shape[axis]
    sizes = (indices.itemsize, limit, indices.size, outer, _slice_bytes(data, axis) // WORD, indices.itemsize, -limit)
    return CheckedWriter(MODULE, "gather", GatherSlices(0, Operand(0), Operand(1), Operand(2), *sizes), compute, threads)


def gather_call(
    axis: int, compute: Callable[..., Any], data: HostArray, indices: HostArray, out: HostArray, *, least: int | None = None
) -> Callable[[], Any] | None:
    """A task that gathers slices of arrays that stay; None for what NumPy does as fast, and for slices of no whole words.

    Args:
        axis: that indices are along.
        compute: raises the error for indices that are out of range.
        data: what is gathered from.
        indices: whose contents may change.
        out: what is written.
        least: smallest index there may be; None for minus the axis's size.
    """
    stride, slice_bytes = even_stride(indices), _slice_bytes(data, axis)
    problem = GatherProblem(
        *(slice_bytes, out.size, 1),
        stays=True,
        is_contiguous=all(array.flags.c_contiguous and array.size for array in (data, out)),
        has_even_indices=stride is not None and indices.dtype in {_INT32, _INT64},
    )
    if select_gather(problem) is not GatherAlgorithm.TASK or not is_worth_a_task(out.size, MODULE, "gather"):
        return None
    from ort_sdk_cpu.jit.task import TaskCall

    outer, lowest = math.prod(data.shape[: axis % data.ndim]), -data.shape[axis] if least is None else least
    sizes = (indices.itemsize, data.shape[axis], indices.size, outer, slice_bytes // WORD, stride, lowest)
    task = TaskCall(MODULE, "gather", GatherSlices.of_words((0, data, indices, out, *sizes)))
    return task.checked_call(functools.partial(compute, data, indices), data, indices, out)


def gathered_runs(axis: int, data: HostArray, indices: HostArray, out: HostArray) -> Runs | None:
    """The runs that constant indices gather; None for much data, and if an index is out of range: the writer raises the error."""
    limit = data.shape[axis]
    if not indices.size or indices.min() < -limit or indices.max() >= limit or max(data.size, out.size) > MAX_OFFSETS:
        return None
    elements = np.arange(data.size).reshape(data.shape).take(indices, axis=axis, mode="wrap").reshape(-1)
    return element_runs(addresses_of(out), addresses_of(data)[elements], out.itemsize)


def _slice_at(index: int, axis: int) -> Writer:
    index_tuple = (*[slice(None)] * axis, index, ...)
    return CopyWriter(lambda data, _indices, out: [(out, data[index_tuple])])


def even_stride(array: HostArray) -> int | None:
    """Bytes from each element to the next in row-major order; None where these differ."""
    strides = [(size, stride) for size, stride in zip(array.shape, array.strides, strict=True) if size != 1]
    if not strides:
        return array.itemsize
    stride_of_last, inner_size = strides[-1][1], 1
    for size, stride in reversed(strides):
        if stride != stride_of_last * inner_size:
            return None
        inner_size *= size
    return stride_of_last
