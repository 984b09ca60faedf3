"""Operators that put elements where indices say: positions of all but the indices are worked out once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.native_call import in_turn

from .bindable import MakeWriter, Writer, bindable, copied
from .copies import MAX_PLACES, CopyWriter, Runs, addresses_of, element_runs, indexing_words, moving, plain_runs
from .task_writer import is_worth_a_task

__all__: list[str] = []

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


class _Places:
    """Flat positions of the elements that indices name along an axis, their other coordinates being those of the index.

    Args:
        shape: of what is indexed.
        axis: along which.
        counts: shape of the indices.
    """

    def __init__(self, shape: tuple[int, ...], axis: int, counts: tuple[int, ...]) -> None:
        self._limit, self._step = shape[axis], math.prod(shape[axis + 1 :])
        steps = [math.prod(shape[other + 1 :]) for other in range(len(shape))]
        self._offsets: HostArray = np.zeros((1,) * len(shape), INT64)
        for other, (count, step) in enumerate(zip(counts, steps, strict=True)):
            if other != axis:
                self._offsets = self._offsets + (np.arange(count) * step).reshape(-1, *(1,) * (len(shape) - other - 1))

    def of(self, indices: HostArray) -> HostArray | None:
        """The positions; None if an index is out of range."""
        low, high = indices.min(), indices.max()
        if high >= self._limit or low < -self._limit:
            return None
        places = indices.astype(INT64, copy=False)
        if low < 0:
            places = np.where(places < 0, places + self._limit, places)
        return places * self._step + self._offsets

    def taking(
        self, compute: Callable[..., Any], data: HostArray, indices: HostArray, out: HostArray
    ) -> Callable[[], Any] | None:
        """A task that takes elements of arrays that stay; None for what NumPy does as well, and for bytes."""
        words = indexing_words([data, indices, out], 1, "take_elements") if indices.flags.c_contiguous else 0
        if not words:
            return None
        from ort_sdk_cpu.machine_code import TaskCall

        offsets = np.ascontiguousarray(np.broadcast_to(self._offsets, indices.shape))
        arrays = tuple(map(address_of, (data, indices, out)))
        sizes = (indices.itemsize, self._limit, indices.size, address_of(offsets), self._step, words)
        task = TaskCall("indexing", "take_elements", (0, *arrays, *sizes))
        return task.checked(functools.partial(compute, data, indices), data, indices, out, offsets)

    def adding(
        self, compute: Callable[..., Any], data: HostArray, indices: HostArray, updates: HostArray, out: HostArray
    ) -> Callable[[], Any] | None:
        """A task that adds updates to elements of arrays that stay; None where they lie otherwise than it wants."""
        arrays = (out, indices, updates)
        if not all(array.flags.c_contiguous for array in arrays) or indices.dtype.itemsize not in {4, 8}:
            return None
        from ort_sdk_cpu.machine_code import TaskCall

        offsets = np.ascontiguousarray(np.broadcast_to(self._offsets, indices.shape))
        sizes = (indices.itemsize, self._limit, indices.size, address_of(offsets), self._step)
        task = TaskCall("indexing", "add_elements", (0, *map(address_of, arrays), *sizes))
        return task.checked(functools.partial(compute, data, indices, updates), *arrays, offsets)


def _axis(info: KernelInfo, rank: int) -> int:
    axis = int(info.attribute("axis", 0))
    return axis + rank if axis < 0 else axis


@bindable("GatherElements", any_type=True)
def gather_elements(info: KernelInfo, compute: Any) -> MakeWriter:
    """An element for each index."""

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        data, indices = inputs
        if not indices.size:
            return copied(compute)
        places = _Places(data.shape, _axis(info, data.ndim), indices.shape)

        def write(data: HostArray, indices: HostArray, out: HostArray) -> None:
            found = places.of(indices)
            if found is None:
                compute(data, indices)  # Says which index it is.
                return
            np.take(data.reshape(-1), found, out=out, mode="clip")

        def runs(data: HostArray, indices: HostArray, out: HostArray) -> Runs | None:
            found = places.of(indices) if max(data.size, out.size) <= MAX_PLACES else None
            return None if found is None else element_runs(addresses_of(out), addresses_of(data)[found.reshape(-1)], out.itemsize)

        return moving(info, write, runs, functools.partial(places.taking, compute))

    return make


@bindable("Scatter", "ScatterElements", any_type=True)
def scatter_elements(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """A copy with an update put at the place of each index, or added to what is there; others stay the shared set's."""
    reduction = info.attribute("reduction", "none")
    adds = reduction == "add" and info.input_element_type(0) is TensorElementType.FLOAT
    if reduction != "none" and not adds:
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        data, indices, _updates = inputs
        if not indices.size:
            return copied(compute)
        places = _Places(data.shape, _axis(info, data.ndim), indices.shape)
        if adds:
            return _Adding(places, compute) if is_worth_a_task(indices.size, "indexing", "add_elements") else copied(compute)

        def write(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> None:
            found = places.of(indices)
            if found is None:
                compute(data, indices, updates)  # Says which index it is.
                return
            np.copyto(out, data)
            out.reshape(-1)[found] = updates

        def runs(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> Runs | None:
            found = places.of(indices) if out.size <= MAX_PLACES else None
            return None if found is None else _put(data, found.reshape(-1), updates, out)

        return moving(info, write, runs)

    return make


class _Adding:
    """A writer of a copy with updates added at the places of indices, in their order."""

    def __init__(self, places: _Places, compute: Callable[..., Any]) -> None:
        self._places, self._compute = places, compute

    def __call__(self, data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> None:
        """Write the output."""
        add = self._places.adding(self._compute, data, indices, updates, out)
        if add is None:
            np.copyto(out, self._compute(data, indices, updates))
            return
        np.copyto(out, data)
        add()

    def fixed(self, data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The call on arrays that stay."""
        add = self._places.adding(self._compute, data, indices, updates, out)
        return None if add is None else in_turn([CopyWriter(lambda data, out: [(out, data)]).fixed(data, out), add])


@bindable("ScatterND", any_type=True)
def scatter_nd(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """A copy with slices put in at index tuples; those that combine them with what is there stay the shared set's."""
    if info.attribute("reduction", "none") != "none":
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        data, indices, updates = inputs
        depth = indices.shape[-1]
        if not updates.size or not depth:
            return copied(compute)
        limits = np.array(data.shape[:depth])
        rows_shape = (math.prod(data.shape[:depth]), *data.shape[depth:])
        width = math.prod(data.shape[depth:])
        steps = np.array([math.prod(data.shape[place + 1 : depth]) for place in range(depth)])

        def rows_of(indices: HostArray) -> HostArray | None:
            if (indices >= limits).any() or (indices < -limits).any():
                return None
            rows: HostArray = np.where(indices < 0, indices + limits, indices) @ steps
            return rows

        def write(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> None:
            rows = rows_of(indices)
            if rows is None:
                compute(data, indices, updates)  # Says which index it is.
            np.copyto(out, data)
            out.reshape(rows_shape)[rows] = updates

        def runs(data: HostArray, indices: HostArray, updates: HostArray, out: HostArray) -> Runs | None:
            rows = rows_of(indices) if out.size <= MAX_PLACES else None
            places = None if rows is None else rows.reshape(-1, 1) * width + np.arange(width)
            return None if places is None else _put(data, places.reshape(-1), updates, out)

        return moving(info, write, runs)

    return make


def _put(data: HostArray, places: HostArray, updates: HostArray, out: HostArray) -> Runs | None:
    """The runs of a copy of the data, with updates put at flat places."""
    changed = element_runs(addresses_of(out)[places], addresses_of(updates), out.itemsize)
    found = [plain_runs([(out, data)]), changed]
    return None if any(runs is None for runs in found) else np.concatenate([runs for runs in found if runs is not None])


@bindable("OneHot", any_type=True)
def one_hot(info: KernelInfo, compute: Any) -> MakeWriter:
    """A last axis with one element on; other axes stay the shared set's."""
    axis = int(info.attribute("axis", -1))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        indices, out = inputs[0], outputs[0]
        depth = out.shape[-1] if out.ndim else 0
        if axis not in {-1, indices.ndim} or not out.size:
            return copied(compute)
        return _OneHot(indices.size, depth)

    return make


class _OneHot:
    """Rows with one element on.

    Args:
        count: of rows.
        depth: elements of one.
    """

    def __init__(self, count: int, depth: int) -> None:
        self._count, self._depth = count, depth
        self._starts = np.arange(count) * depth

    def __call__(self, indices: HostArray, _depth: HostArray, values: HostArray, out: HostArray) -> None:
        """Write the rows."""
        places = indices.reshape(-1).astype(INT64)
        is_inside = (places >= -self._depth) & (places < self._depth)
        out[...] = values[0]
        out.reshape(-1)[(self._starts + places % self._depth)[is_inside]] = values[1]

    def fixed(self, indices: HostArray, _depth: HostArray, values: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The task on arrays that stay; None for elements and indices it does not go over."""
        is_plain = all(array.flags.c_contiguous for array in (indices, values, out)) and indices.dtype in {INT32, INT64}
        words, rest = divmod(out.itemsize, 4)
        if not is_plain or rest or values.dtype != out.dtype or not is_worth_a_task(out.size, "indexing", "one_hot"):
            return None
        from ort_sdk_cpu.machine_code import TaskCall

        arrays = (indices, values, out)
        sizes = (indices.itemsize, self._depth, self._count, words)
        return TaskCall("indexing", "one_hot", (*map(address_of, arrays), *sizes)).kept(*arrays)


@bindable("Tile", any_type=True)
def tile(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """The input repeated along its axes."""
    if info.since_version < 6:
        return None

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        if not out.size or not x.ndim:
            return copied(compute)
        repeats = [target // size for target, size in zip(out.shape, x.shape, strict=True)]
        source = [part for size in x.shape for part in (1, size)]
        target = [part for repeat, size in zip(repeats, x.shape, strict=True) for part in (repeat, size)]
        return CopyWriter(lambda x, _repeats, out: [(out.reshape(target), np.broadcast_to(x.reshape(source), target))])

    return make
