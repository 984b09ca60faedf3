"""GatherElements, GatherND, their Scatters, OneHot, ReverseSequence and Tile.

Offsets that do not depend on the indices are computed once, when a writer is made.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import bindable, kernel_maker
from ort_sdk_cpu.kernel.checked_task import CheckedWriter
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.runs import MAX_OFFSETS, WORD, Runs, RunsWriter, addresses_of, element_runs, runs_of_copies
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer

from .arguments.gather_scatter import (
    MODULE,
    GatherElements,
    GatherNd,
    OneHot,
    ReverseSequence,
    ScatterElements,
    ScatterElementsAdd,
    ScatterNd,
    TakeAlongAxis,
)
from .gather_eager import INDEXING, direct_indexing
from .select import MAX_TAKEN, GatherElementsAlgorithm, select_gather_elements

__all__: list[str] = []

_REDUCTIONS = {"add": 1, "mul": 2, "max": 3, "min": 4}
"""Values of ``reduction`` of the task's arguments."""
TAKEN_WORK = 2
"""Elements of a few instructions each that one gathered by an index takes as long as: it is read from anywhere."""
kernel_maker(*INDEXING)(direct_indexing)

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


class _AxisPositions:
    """Flat positions of the elements that indices name along an axis, with the other coordinates of each index.

    Args:
        shape: of what is indexed.
        axis: along which.
        counts: shape of the indices.
    """

    def __init__(self, shape: tuple[int, ...], axis: int, counts: tuple[int, ...]) -> None:
        self._limit, self._stride = shape[axis], math.prod(shape[axis + 1 :])
        strides = [math.prod(shape[other + 1 :]) for other in range(len(shape))]
        self._offsets: HostArray = np.zeros((1,) * len(shape), INT64)
        for other, (count, stride) in enumerate(zip(counts, strides, strict=True)):
            if other != axis:
                self._offsets = self._offsets + (np.arange(count) * stride).reshape(-1, *(1,) * (len(shape) - other - 1))

    def of(self, indices: HostArray) -> HostArray | None:
        """The positions; None if an index is out of range."""
        low, high = indices.min(), indices.max()
        if high >= self._limit or low < -self._limit:
            return None
        wrapped = indices.astype(INT64, copy=False)
        if low < 0:
            wrapped = np.where(wrapped < 0, wrapped + self._limit, wrapped)
        return wrapped * self._stride + self._offsets

    def gather_call(
        self, compute: Callable[..., Any], data: HostArray, indices: HostArray, out: HostArray
    ) -> Callable[[], Any] | None:
        """A task that gathers elements of arrays that stay; None for what NumPy does as fast, and for narrow elements."""
        arrays, words = (data, indices, out), out.itemsize // WORD
        is_plain = all(array.flags.c_contiguous and array.size for array in arrays) and indices.dtype in {INT32, INT64}
        if not is_plain or out.itemsize % WORD or out.size > MAX_TAKEN:
            return None
        if not is_worth_a_task(out.size, MODULE, "gather_elements"):
            return None
        from ort_sdk_cpu.jit.task import TaskCall

        offsets = np.ascontiguousarray(np.broadcast_to(self._offsets, indices.shape))
        sizes = (indices.itemsize, self._limit, indices.size)
        arguments = GatherElements(0, data, indices, out, *sizes, offsets, self._stride, words)
        task = TaskCall(MODULE, "gather_elements", arguments)
        return task.checked_call(functools.partial(compute, data, indices), data, indices, out, offsets)

    def scatter_call(
        self, compute: Callable[..., Any], data: HostArray, indices: HostArray, updates: HostArray, out: HostArray, *, adds: bool
    ) -> Callable[[], Any] | None:
        """A task that scatters updates into arrays that stay; None where one is not contiguous."""
        arrays = (out, indices, updates)
        if not all(array.flags.c_contiguous for array in arrays) or indices.dtype.itemsize not in {4, 8}:
            return None
        from ort_sdk_cpu.jit.task import TaskCall

        offsets = np.ascontiguousarray(np.broadcast_to(self._offsets, indices.shape))
        words = (0, *arrays, indices.itemsize, self._limit, indices.size, offsets, self._stride)
        arguments = ScatterElementsAdd(*words) if adds else ScatterElements(*words, out.itemsize // 4)
        made = TaskCall(MODULE, _scatter_task(adds=adds), arguments)
        return made.checked_call(functools.partial(self._redo, compute, data, indices, updates, out), *arrays, offsets)

    @staticmethod
    def _redo(compute: Callable[..., Any], data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> None:
        np.copyto(out, compute(data, indices, updates))


def _scatter_task(*, adds: bool) -> str:
    return "scatter_elements_add" if adds else "scatter_elements"


def _axis(info: KernelInfo, rank: int) -> int:
    axis = int(info.attribute("axis", 0))
    return axis + rank if axis < 0 else axis


@bindable("GatherElements", any_type=True)
def gather_elements(info: KernelInfo, compute: Any) -> MakeWriter:
    """An element for each index."""

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> tuple[GatherElementsAlgorithm, Writer]:
        data, indices = inputs
        if not indices.size:
            return GatherElementsAlgorithm.OFFSETS, copying_writer(compute)
        positions = _AxisPositions(data.shape, _axis(info, data.ndim), indices.shape)

        def write(data: HostArray, indices: HostArray, out: HostArray) -> None:
            found = positions.of(indices)
            if found is None:
                compute(data, indices)  # raises the error
                return
            np.take(data.reshape(-1), found, out=out, mode="clip")

        def runs(data: HostArray, indices: HostArray, out: HostArray) -> Runs | None:
            found = positions.of(indices) if max(data.size, out.size) <= MAX_OFFSETS else None
            return None if found is None else element_runs(addresses_of(out), addresses_of(data)[found.reshape(-1)], out.itemsize)

        task = _along_axis(data, indices, _axis(info, data.ndim), compute)
        if task is None:
            return GatherElementsAlgorithm.OFFSETS, RunsWriter(
                info, write, runs, functools.partial(positions.gather_call, compute)
            )
        return GatherElementsAlgorithm.ALONG_AXIS, RunsWriter(info, task, runs, task.bind_arrays)

    return SelectingMaker(make)


def _along_axis(data: HostArray, indices: HostArray, axis: int, compute: Callable[..., Any]) -> CheckedWriter | None:
    """The task where each column of the data has its own indices; None for other arrays, and for narrow elements."""
    has_plain_indices = indices.dtype in {INT32, INT64}
    algorithm = select_gather_elements(data.shape, indices.shape, axis, data.itemsize, has_plain_indices=has_plain_indices)
    is_along_axis = algorithm is GatherElementsAlgorithm.ALONG_AXIS
    if not is_along_axis or not is_worth_a_task(indices.size, MODULE, "take_along_axis"):
        return None
    sizes = (math.prod(data.shape[:axis]), data.shape[axis], indices.shape[axis], math.prod(data.shape[axis + 1 :]))
    arguments = TakeAlongAxis(0, Operand(0), Operand(1), Operand(2), indices.itemsize, *sizes, data.itemsize // WORD)
    return CheckedWriter(MODULE, "take_along_axis", arguments, compute, threads_for(indices.size * TAKEN_WORK))


@bindable("GatherND", any_type=True)
def gather_nd(info: KernelInfo, compute: Any) -> MakeWriter:
    """Slices at index tuples."""
    batch_dims = int(info.attribute("batch_dims", 0))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        data, indices = inputs
        tuples = _Tuples.of(data, indices, batch_dims, "gather_nd")
        if tuples is None:
            return copying_writer(compute)
        batches = math.prod(data.shape[:batch_dims])
        operands, sizes = (Operand(0), Operand(1), Operand(2)), (*tuples.sizes, tuples.count // batches, tuples.slices)
        threads = threads_for(outputs[0].size + tuples.count * TAKEN_WORK)
        return CheckedWriter(
            MODULE, "gather_nd", GatherNd.of_words((0, *operands, *sizes)), compute, threads, kept=(tuples.table,)
        )

    return make


class _Tuples:
    """Index tuples of slices of data.

    Args:
        data: what is indexed, after some axes of batches.
        indices: the tuples are along the last axis.
        batch_dims: axes of batches.
        words: of 4 bytes in a slice.
    """

    def __init__(self, data: HostArray, indices: HostArray, batch_dims: int, words: int) -> None:
        depth = indices.shape[-1]
        dims = data.shape[batch_dims : batch_dims + depth]
        self.slices, self.count = math.prod(dims), math.prod(indices.shape[:-1])
        strides = [math.prod(dims[axis + 1 :]) for axis in range(depth)]
        self.table = np.array(list(zip(dims, strides, strict=True)), np.int64).reshape(-1)
        self.sizes = (indices.itemsize, depth, self.count, words, self.table)
        """As tasks take them: bytes of an index, its tuple's length, tuples, words of a slice, the table."""

    @classmethod
    def of(cls, data: HostArray, indices: HostArray, batch_dims: int, task: str) -> _Tuples | None:
        """None for arrays that the task is not for: slices of no whole words, indices of other types, and empty ones."""
        depth = indices.shape[-1] if indices.ndim else 0
        width = math.prod(data.shape[batch_dims + depth :])
        words, left = divmod(width * data.itemsize, 4)
        is_plain = depth and words and not left and data.size and indices.size and indices.dtype in {INT32, INT64}
        if not is_plain or not is_worth_a_task(math.prod(indices.shape[:-1]) * width, MODULE, task):
            return None
        return cls(data, indices, batch_dims, words)


@bindable("Scatter", "ScatterElements", any_type=True)
def scatter_elements(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """A copy with an update at each index, or added to it; other reductions stay the shared set's."""
    reduction = info.attribute("reduction", "none")
    adds = reduction == "add" and info.input_element_type(0) is TensorElementType.FLOAT
    if reduction != "none" and not adds:
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        data, indices, _updates = inputs
        if not indices.size:
            return copying_writer(compute)
        positions = _AxisPositions(data.shape, _axis(info, data.ndim), indices.shape)
        if adds:
            is_worth_it = is_worth_a_task(indices.size, MODULE, _scatter_task(adds=True))
            return _ScatterWriter(positions, compute, adds=True) if is_worth_it else copying_writer(compute)

        def write(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> None:
            found = positions.of(indices)
            if found is None:
                compute(data, indices, updates)  # raises the error
                return
            np.copyto(out, data)
            out.reshape(-1)[found] = updates

        def runs(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> Runs | None:
            found = positions.of(indices) if out.size <= MAX_OFFSETS else None
            return None if found is None else _scattered_runs(data, found.reshape(-1), updates, out)

        has_task = data.itemsize in {4, 8} and is_worth_a_task(indices.size, MODULE, _scatter_task(adds=False))
        return RunsWriter(info, write, runs, _ScatterWriter(positions, compute, adds=False).bind_arrays if has_task else None)

    return make


class _ScatterWriter:
    """A writer of a copy into which updates are scattered, in their order.

    Args:
        positions: where.
        compute: the shared set's function.
        adds: whether updates are added to elements; else they replace them.
    """

    def __init__(self, positions: _AxisPositions, compute: Callable[..., Any], *, adds: bool) -> None:
        self._positions, self._compute, self._adds = positions, compute, adds

    def __call__(self, data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> None:
        """Write the output."""
        change = self._positions.scatter_call(self._compute, data, indices, updates, out, adds=self._adds)
        if change is None:
            np.copyto(out, self._compute(data, indices, updates))
            return
        np.copyto(out, data)
        change()

    def bind_arrays(self, data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The call on arrays that stay."""
        change = self._positions.scatter_call(self._compute, data, indices, updates, out, adds=self._adds)
        return (
            None if change is None else in_sequence([CopyWriter(lambda data, out: [(out, data)]).bind_arrays(data, out), change])
        )


@bindable("ScatterND", any_type=True)
def scatter_nd(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """A copy with slices at index tuples replaced, or combined with updates; reductions are of float32."""
    reduction = info.attribute("reduction", "none")
    if reduction != "none" and (reduction not in _REDUCTIONS or info.input_element_type(0) is not TensorElementType.FLOAT):
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        data, indices, updates = inputs
        depth = indices.shape[-1]
        if not updates.size or not depth:
            return copying_writer(compute)
        task = _scatter_nd_task(data, indices, _REDUCTIONS.get(reduction, 0), compute)
        if reduction != "none":
            return task or copying_writer(compute)
        limits = np.array(data.shape[:depth])
        rows_shape = (math.prod(data.shape[:depth]), *data.shape[depth:])
        width = math.prod(data.shape[depth:])
        strides = np.array([math.prod(data.shape[axis + 1 : depth]) for axis in range(depth)])

        def rows_of(indices: HostArray) -> HostArray | None:
            if (indices >= limits).any() or (indices < -limits).any():
                return None
            rows: HostArray = np.where(indices < 0, indices + limits, indices) @ strides
            return rows

        def write(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> None:
            rows = rows_of(indices)
            if rows is None:
                compute(data, indices, updates)  # raises the error
            np.copyto(out, data)
            out.reshape(rows_shape)[rows] = updates

        def runs(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> Runs | None:
            rows = rows_of(indices) if out.size <= MAX_OFFSETS else None
            positions = None if rows is None else rows.reshape(-1, 1) * width + np.arange(width)
            return None if positions is None else _scattered_runs(data, positions.reshape(-1), updates, out)

        return RunsWriter(info, write, runs) if task is None else RunsWriter(info, task, runs, task.bind_arrays)

    return make


def _scatter_nd_task(data: HostArray, indices: HostArray, reduction: int, compute: Callable[..., Any]) -> CheckedWriter | None:
    """The task that scatters slices into a copy of the data; None where there is none."""
    tuples = _Tuples.of(data, indices, 0, "scatter_nd")
    if tuples is None:
        return None
    arguments = ScatterNd(0, Operand(3), Operand(1), Operand(2), *tuples.sizes, reduction)
    return CheckedWriter(MODULE, "scatter_nd", arguments, compute, copies_first=True, kept=(tuples.table,))


@bindable("ReverseSequence", any_type=True)
def reverse_sequence(info: KernelInfo, compute: Any) -> MakeWriter:
    """The first elements of each sequence in reverse order."""
    is_time_first = int(info.attribute("time_axis", 0)) == 0

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, lengths = inputs
        words, left = divmod(math.prod(x.shape[2:]) * x.itemsize, 4)
        if left or not x.size or lengths.dtype != INT64 or not is_worth_a_task(x.size, MODULE, "reverse_sequence"):
            return copying_writer(compute)
        times, batches = x.shape[:2] if is_time_first else x.shape[1::-1]
        time_stride, batch_stride = (batches, 1) if is_time_first else (1, times)
        arguments = ReverseSequence(0, Operand(0), Operand(1), Operand(2), times, batches, time_stride, batch_stride, words)
        return CheckedWriter(MODULE, "reverse_sequence", arguments, compute)

    return make


def _scattered_runs(data: HostArray, positions: HostArray, updates: HostArray, out: HostArray) -> Runs | None:
    """The runs of a copy of the data, and of updates at flat positions."""
    changed = element_runs(addresses_of(out)[positions], addresses_of(updates), out.itemsize)
    found = [runs_of_copies([(out, data)]), changed]
    return None if any(runs is None for runs in found) else np.concatenate([runs for runs in found if runs is not None])


@bindable("OneHot", any_type=True)
def one_hot(info: KernelInfo, compute: Any) -> MakeWriter:
    """One-hot rows along a last axis; other axes stay the shared set's."""
    axis = int(info.attribute("axis", -1))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        indices, out = inputs[0], outputs[0]
        depth = out.shape[-1] if out.ndim else 0
        if axis not in {-1, indices.ndim} or not out.size:
            return copying_writer(compute)
        return _OneHot(indices.size, depth)

    return make


class _OneHot:
    """One-hot rows.

    Args:
        count: rows.
        depth: elements of one.
    """

    def __init__(self, count: int, depth: int) -> None:
        self._count, self._depth = count, depth
        self._starts = np.arange(count) * depth

    def __call__(self, indices: HostArray, _depth: HostArray, values: HostArray, out: HostArray) -> None:
        """Write the rows."""
        found = indices.reshape(-1).astype(INT64)
        is_inside = (found >= -self._depth) & (found < self._depth)
        out[...] = values[0]
        out.reshape(-1)[(self._starts + found % self._depth)[is_inside]] = values[1]

    def bind_arrays(self, indices: HostArray, _depth: HostArray, values: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The task on arrays that stay; None for elements and indices that it is not for."""
        is_plain = all(array.flags.c_contiguous for array in (indices, values, out)) and indices.dtype in {INT32, INT64}
        words, rest = divmod(out.itemsize, 4)
        if not is_plain or rest or values.dtype != out.dtype or not is_worth_a_task(out.size, MODULE, "one_hot"):
            return None
        from ort_sdk_cpu.jit.task import TaskCall

        arrays = (indices, values, out)
        arguments = OneHot(*arrays, indices.itemsize, self._depth, self._count, words)
        return TaskCall(MODULE, "one_hot", arguments).bound_call(*arrays)


@bindable("Tile", any_type=True)
def tile(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """The input repeated along its axes."""
    if info.since_version < 6:
        return None

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        if not out.size or not x.ndim:
            return copying_writer(compute)
        repeats = [target // size for target, size in zip(out.shape, x.shape, strict=True)]
        source = [part for size in x.shape for part in (1, size)]
        target = [part for repeat, size in zip(repeats, x.shape, strict=True) for part in (repeat, size)]
        return CopyWriter(lambda x, _repeats, out: [(out.reshape(target), np.broadcast_to(x.reshape(source), target))])

    return make
