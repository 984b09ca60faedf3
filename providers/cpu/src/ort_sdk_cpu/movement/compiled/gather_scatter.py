"""Gather, Scatter and their like, OneHot and ReverseSequence, by indices that only a run knows.

Indices are contents, which a launch cannot check: a task looks at each before it is used. Where one is out of range, nothing is
read or written for it, and ``failed`` becomes 1. With several threads it stays as it is where all are in range: it has to be 0
before. The shared set says then which index it was.
"""

from __future__ import annotations

import math
from typing import Any

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.movement.arguments.gather_scatter import (
    Gather,
    GatherElements,
    GatherNd,
    OffsetElements,
    OneHot,
    ReverseSequence,
    ScatterElements,
    ScatterElementsAdd,
    ScatterNd,
    TakeAlongAxis,
)
from ort_sdk_cpu.simd.arithmetic import splat_f32
from ort_sdk_cpu.simd.memory import (
    load_f32_masked,
    prefetch,
    read_f32,
    read_i32,
    read_i64,
    store_f32_masked,
    write_f32,
    write_i64,
)
from ort_sdk_cpu.simd.vector_types import LANES

__all__ = [
    "gather",
    "gather_elements",
    "gather_nd",
    "one_hot",
    "reverse_sequence",
    "scatter_elements",
    "scatter_elements_add",
    "scatter_nd",
    "take_along_axis",
]

_ADD, _MUL, _MAX = 1, 2, 3
"""Reductions of ScatterND; the fourth is the minimum."""
_MAX_PREFETCHED = 1024
"""Words of a slice that are prefetched: once a slice is read so far, the processor's own prefetcher knows the stream."""


@inline
def _read_index(address: int, size: int) -> Any:
    """An index of 4 or 8 bytes."""
    return read_i64(address) if size == 8 else int(read_i32(address))


@inline
def _index(address: int, size: int, limit: int) -> Any:
    """An index of 4 or 8 bytes, counted from the front; -1 if it is out of range."""
    index = _read_index(address, size)
    if index < 0:
        index += limit
    return index if 0 <= index < limit else -1


@inline
def _copy(target: int, source: int, words: int) -> None:
    for word in range(0, words, 16):
        store_f32_masked(target + word * 4, load_f32_masked(source + word * 4, words - word), words - word)


@inline
def _prefetch_slice(source: int, words: int) -> None:
    # The processor cannot foresee where the next slice is: only its index tells. Rows of embedding tables miss all caches.
    for word in range(0, min(words, _MAX_PREFETCHED), 16):
        prefetch(source + word * 4)


@inline
def _element(args: OffsetElements, position: int) -> int:
    """Which element an index names, for tasks that have offsets; -1 if it is out of range."""
    index = _index(args.indices + position * args.index_bytes, args.index_bytes, args.limit)
    return read_i64(args.offsets + position * 8) + index * args.stride if index >= 0 else -1


@inline
def _report(args: Any, threads: int, failed: int) -> None:
    # One thread may also clear what a run before has left; several would overwrite each other's 1.
    if failed or threads == 1:
        args.failed = failed


@task
def gather(args: Gather, thread: int, threads: int) -> None:
    """Slices along an axis; each thread has a range of slices of the output."""
    size, limit, count, words, stride = args.index_bytes, args.limit, args.count, args.slice_words, args.index_stride
    # Threads share slices of the output, not indices: many indices of few rows and few of many are both work for all threads.
    slices = count * args.outer
    first, failed = slices * thread // threads, 0
    block, position = (first // count, first % count) if slices else (0, 0)
    for taken in range(first, slices * (thread + 1) // threads):
        index = _index(args.indices + position * stride, size, limit)
        if index < 0 or _read_index(args.indices + position * stride, size) < args.least:
            failed = 1
        else:
            # Shorter slices share their cache lines with neighbours, and are done before a prefetch would arrive.
            if words >= LANES and position + 1 < count:
                following = _index(args.indices + (position + 1) * stride, size, limit)
                _prefetch_slice(args.data + (block * limit + following) * words * 4, words)
            _copy(args.out + taken * words * 4, args.data + (block * limit + index) * words * 4, words)
        position += 1
        if position == count:
            block, position = block + 1, 0
    _report(args, threads, failed)


@task
def gather_elements(args: GatherElements, _thread: int, _threads: int) -> None:
    """Elements at an index along an axis, each from an offset of its own; one thread."""
    words, failed = args.slice_words, 0
    for position in range(args.count):
        element = _element(args, position)
        if element < 0:
            failed = 1
        else:
            _copy(args.values + position * words * 4, args.data + element * words * 4, words)
    args.failed = failed


@task
def scatter_elements_add(args: ScatterElementsAdd, _thread: int, _threads: int) -> None:
    """float32 updates added to elements; one thread."""
    # In the order of the updates, since several may go to one element, and sums depend on their order.
    failed = 0
    for position in range(args.count):
        element = _element(args, position)
        if element < 0:
            failed = 1
        else:
            target = args.data + element * 4
            write_f32(target, read_f32(target) + read_f32(args.values + position * 4))
    args.failed = failed


@task
def scatter_elements(args: ScatterElements, _thread: int, _threads: int) -> None:
    """Elements replaced by updates; one thread, since of several updates of an element the last one counts."""
    words, failed = args.slice_words, 0
    for position in range(args.count):
        element = _element(args, position)
        if element < 0:
            failed = 1
        else:
            _copy(args.data + element * words * 4, args.values + position * words * 4, words)
    args.failed = failed


@task
def one_hot(args: OneHot, _thread: int, _threads: int) -> None:
    """Rows of the first value, but at an index of the second; one thread. A row whose index is out of range has none."""
    # Rows are filled by vectors, and one element is put in after that, so that the loop compares nothing.
    depth, words, size = args.depth, args.slice_words, args.index_bytes
    for position in range(args.count):
        row = args.out + position * depth * words * 4
        for element in range(0, depth, 16 if words == 1 else 1):
            if words == 1:
                store_f32_masked(row + element * 4, splat_f32(read_f32(args.values)), depth - element)
            else:
                _copy(row + element * words * 4, args.values, words)
        index = _index(args.indices + position * size, size, depth)
        if index >= 0:
            _copy(row + index * words * 4, args.values + words * 4, words)


@inline
def _slice_of(tuple_: int, size: int, depth: int, axes: int) -> int:
    """Which slice a tuple names; -1 if it is out of range. ``axes`` has the size and the stride of each index's axis."""
    # No early exit where an index is out of range: that is an error, and need not be fast.
    found, is_inside = 0, True
    for axis in range(depth):
        index, limit = _read_index(tuple_ + axis * size, size), read_i64(axes + axis * 16)
        if index < 0:
            index += limit
        if index < 0 or index >= limit:
            is_inside = False
        found += index * read_i64(axes + axis * 16 + 8)
    return found if is_inside else -1


@inline
def _reduce(reduction: int, target: int, source: int, count: int) -> None:
    """Combine float32 with those that are there; of maximum and minimum, NaN is both."""
    for element in range(count):
        before, update = read_f32(target + element * 4), read_f32(source + element * 4)
        if reduction == _ADD:
            before += update
        elif reduction == _MUL:
            before *= update
        elif (update > before if reduction == _MAX else update < before) or math.isnan(update):
            before = update
        write_f32(target + element * 4, before)


@inline
def _copy_slice(target: int, source: int, words: int) -> None:
    # Tuples mostly name single elements: a vector of one lane costs a mask each time.
    if words == 1:
        write_f32(target, read_f32(source))
    else:
        _copy(target, source, words)


@task
def scatter_nd(args: ScatterNd, _thread: int, threads: int) -> None:
    """Slices at index tuples replaced by updates, or combined with them; one thread, in the order of the updates."""
    words, reduction, size, depth = args.slice_words, args.reduction, args.index_bytes, args.depth
    failed = 0
    for position in range(args.count):
        found = _slice_of(args.indices + position * depth * size, size, depth, args.axes)
        source, target = args.updates + position * words * 4, args.out + found * words * 4
        if found < 0:
            failed = 1
        elif reduction:
            _reduce(reduction, target, source, words)
        else:
            _copy_slice(target, source, words)
    _report(args, threads, failed)


@task
def gather_nd(args: GatherNd, thread: int, threads: int) -> None:
    """Slices at index tuples, of batches that follow each other; each thread has a range of tuples."""
    words, size, depth, count = args.slice_words, args.index_bytes, args.depth, args.count
    failed = 0
    for position in range(count * thread // threads, count * (thread + 1) // threads):
        found = _slice_of(args.indices + position * depth * size, size, depth, args.axes)
        if found < 0:
            failed = 1
            continue
        source = args.data + (position // args.batch * args.slices + found) * words * 4
        _copy_slice(args.out + position * words * 4, source, words)
    _report(args, threads, failed)


@inline
def _take_row(data: int, indices: int, out: int, size: int, limit: int, stride: int, count: int, words: int) -> int:
    """Elements of a row, each ``stride`` further in the data than the one before; whether one is out of range."""
    if limit < 1:
        return 1 if count else 0
    failed = 0
    for position in range(count):
        index = _read_index(indices + position * size, size)
        if index < 0:
            index += limit
        # Element 0 in place of one out of range: without a branch that skips the copy, which is predicted for all others.
        if index < 0 or index >= limit:
            failed, index = 1, 0
        source = data + (index * stride + (position if stride > 1 else 0)) * words * 4
        if words == 1:
            write_f32(out + position * 4, read_f32(source))
        else:
            write_i64(out + position * 8, read_i64(source))
    return failed


@task
def take_along_axis(args: TakeAlongAxis, thread: int, threads: int) -> None:
    """GatherElements of whole columns; each thread has a range of rows of the output."""
    size, outer, limit, count, inner_size = args.index_bytes, args.outer, args.limit, args.count, args.inner
    words, failed = args.slice_words, 0
    # Along the last axis, elements of a row come from one row of the data; else row by row of the output, so that both sides are
    # read and written in order, but for the indices' own jumps.
    if inner_size == 1:
        for row in range(outer * thread // threads, outer * (thread + 1) // threads):
            data, indices = args.data + row * limit * words * 4, args.indices + row * count * size
            failed |= _take_row(data, indices, args.out + row * count * words * 4, size, limit, 1, count, words)
    else:
        rows = outer * count
        for row in range(rows * thread // threads, rows * (thread + 1) // threads):
            start = row * inner_size
            data, indices = args.data + row // count * limit * inner_size * words * 4, args.indices + start * size
            failed |= _take_row(data, indices, args.out + start * words * 4, size, limit, inner_size, inner_size, words)
    _report(args, threads, failed)


@task
def reverse_sequence(args: ReverseSequence, _thread: int, threads: int) -> None:
    """The first elements of each sequence in reverse order, the others as they are; one thread."""
    times, time_stride, words = args.times, args.time_stride, args.slice_words
    failed = 0
    for batch in range(args.batches):
        length = read_i64(args.lengths + batch * 8)
        if length < 0 or length > times:
            failed = 1
            continue
        for time in range(times):
            source = length - 1 - time if time < length else time
            first = batch * args.batch_stride
            target = args.out + (first + time * time_stride) * words * 4
            _copy(target, args.x + (first + source * time_stride) * words * 4, words)
    _report(args, threads, failed)
