"""Calls of the compiled tasks of MatMulNBits, with their working memory."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from functools import cache

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk_cpu import libraries
from ort_sdk_cpu.machine_code import TaskCall
from ort_sdk_cpu.native_call import NativeCall
from ort_sdk_cpu.simd import nbits_arguments as places

from .matmul_nbits_form import ELEMENTS_PER_PART, SPAN_BYTES, Form, block_bytes, choose_form, padded
from .matmul_nbits_operands import Operands
from .scratch import Scratch, ToldMemory

__all__ = ["NBitsProduct", "Product", "address"]

Product = Callable[[int, int, int], None]
"""``product(a, bias, out)``: addresses."""

ACTIVATIONS = "matmul_nbits_activations"
_ARRANGED = (5, 6, 7)
"""Arguments of tasks that bring activations into their form: what they make."""


class NBitsProduct:
    """Products with weights of one shape.

    Args:
        weight: its attributes.
        is_exact: activations are used as they are, not quantised to 8 bits or rounded to bfloat16.
        scratch: working memory.
    """

    def __init__(self, weight: BlockWeight, scratch: Scratch, *, is_exact: bool) -> None:
        self._weight = weight
        self._is_exact = is_exact
        self._scratch = scratch
        self._table, self._flipped_table = _tables(weight.bits)
        self._indices = _indices(weight.block_size * weight.bits // 32)

    def bind(self, operands: Operands, rows: int) -> Product:
        """A product with a weight for a number of rows of activations, at least one, and at least one column.

        The call reads and writes at addresses, of contiguous float32 arrays: activations (rows, K), bias (N,) or 0, result. It
        may run on several threads at a time.
        """
        idle: deque[_Calls] = deque()
        make = self._maker(operands, rows)

        def product(a: int, bias: int, out: int) -> None:
            calls = _taken(idle) or make()
            calls.point(a, bias, out)
            calls.run()
            idle.append(calls)

        product.kept = (self, operands)  # type: ignore[attr-defined]
        return product

    def fixed(self, operands: Operands, rows: int, a: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], None]:
        """The same on arrays that stay, for one thread at a time: a call that needs no Python, and keeps them."""
        calls = self._maker(operands, rows)()
        calls.point(address(a), address(bias), address(out))
        call = functools.partial(calls.run)
        call.kept = (self, operands, a, bias, out)  # type: ignore[attr-defined]
        call.native = calls.native  # type: ignore[attr-defined]
        return call

    def _maker(self, operands: Operands, rows: int) -> Callable[[], _Calls]:
        form = choose_form(self._weight, operands, rows, libraries.thread_count(), is_exact=self._is_exact)
        return functools.partial(_Calls, form, self._arguments(operands, form, rows), self._scratch)

    def _arguments(self, operands: Operands, form: Form, rows: int) -> dict[int, int]:
        """Those that stay the same."""
        weight = self._weight
        table = self._flipped_table if operands.flip and form.task.startswith("columns") else self._table
        return {
            places.CODES: address(operands.codes),
            places.CODES_STRIDE: operands.codes_stride,
            places.SCALES: address(operands.scales),
            places.SCALES_STRIDE: operands.scales_stride,
            places.ZEROS: address(operands.zero_points),
            places.ZEROS_STRIDE: operands.zero_points_stride,
            places.M: rows,
            places.N: weight.size_n,
            places.K: weight.size_k,
            places.BLOCK: weight.block_size,
            places.DEFAULT_ZERO: operands.default_zero_point,
            places.FLIP: operands.flip,
            places.X_STRIDE: form.x_stride,
            places.BLOCK_STRIDE: block_bytes(weight),
            places.TABLE: address(table),
            places.WORK_STRIDE: form.work_stride,
            places.K_PARTS: form.k_parts,
            places.N_PARTS: form.n_parts,
            places.ZEROS_KIND: operands.zero_points_kind,
            places.CHUNK: form.chunk,
            places.ROWS_AT_ONCE: form.rows_at_once,
            places.GROUP: form.group,
            places.INDICES: address(self._indices),
            places.HALF_SCALES: address(operands.half_scales),
        }


@cache
def _tables(bits: int) -> tuple[HostArray, HostArray]:
    """The number that each of sixteen codes stands for; the same of codes whose sign bit is turned over."""
    codes, half = np.arange(16) & ((1 << bits) - 1), 1 << (bits - 1)
    table = (codes - half).astype(np.float32)
    return table, np.roll(table, len(table) // 2 if bits == 4 else 2)


@cache
def _indices(lanes: int) -> HostArray:
    """The block that each of the lanes of sixteen blocks is of."""
    return (np.arange(16 * lanes) // lanes).astype(np.int32)


class _Calls:
    """The calls of a product. For one thread at a time."""

    def __init__(self, form: Form, arguments: dict[int, int], scratch: Scratch) -> None:
        rows, inner, width = arguments[places.M], arguments[places.K], arguments[places.N]
        sizes = (*form.buffers, form.jobs * form.work_stride, (form.k_parts - 1) * rows * width * 4)
        padded_sizes = [padded(size, SPAN_BYTES) for size in sizes]
        self._offsets = [sum(padded_sizes[:index]) for index in range(len(sizes))]
        self._memory = ToldMemory(scratch, "matmul_nbits", sum(padded_sizes))
        self._reads_as_they_are = not form.buffers[0]
        known = (rows, inner, arguments[places.BLOCK], form.planes)
        strides = (form.x_stride, arguments[places.BLOCK_STRIDE])
        self._arrange = TaskCall(ACTIVATIONS, form.arrange, (0, *known, 0, 0, 0, *strides), _threads(form, rows, rows * inner))
        record = [arguments.get(place, 0) for place in range(places.ARGUMENTS)]
        self._product = TaskCall(form.module, form.task, tuple(record), form.jobs)
        self._add: TaskCall | None = None
        if form.k_parts > 1:
            threads = _threads(form, form.jobs, rows * width)
            self._add = TaskCall(ACTIVATIONS, "add_parts", (0, rows * width, 0, form.k_parts - 1), threads)

    @property
    def native(self) -> NativeCall:
        """The calls for callers that need no Python."""
        tasks = [self._arrange, self._product, *([] if self._add is None else [self._add])]
        return NativeCall(tuple(task.row for task in tasks), self._prepare)

    def point(self, a: int, bias: int, out: int) -> None:
        """Read and write arrays at these addresses."""
        product = self._product
        self._arrange.set(0, a)
        product.set(places.ACTIVATIONS, a)
        if self._reads_as_they_are:
            product.set(places.X, a)
        product.set(places.BIAS, bias)
        product.set(places.OUT, out)
        if self._add is not None:
            self._add.set(0, out)

    def run(self) -> None:
        """Write the product."""
        self._prepare()
        self._arrange.run()
        self._product.run()
        if self._add is not None:
            self._add.run()

    def _prepare(self) -> None:
        """Use the thread's working memory."""
        start = self._memory.new_address()
        if start is not None:
            self._place(start)

    def _place(self, start: int) -> None:
        """Use the buffers that begin at this address."""
        x, scales, sums, work, partials = (start + offset for offset in self._offsets)
        for position, place in zip(_ARRANGED, (x, scales, sums), strict=True):
            self._arrange.set(position, place)
        if not self._reads_as_they_are:
            self._product.set(places.X, x)
        positions = (places.X_SCALES, places.X_SUMS, places.WORK, places.PARTIALS)
        for position, place in zip(positions, (scales, sums, work, partials), strict=True):
            self._product.set(position, place)
        if self._add is not None:
            self._add.set(2, partials)


def _taken(idle: deque[_Calls]) -> _Calls | None:
    """Calls that no thread uses, if there are any."""
    try:
        return idle.pop()
    except IndexError:
        return None


def _threads(form: Form, pieces: int, elements: int) -> int:
    """Threads for a task of some pieces that reads or writes so many elements."""
    return max(1, min(form.jobs, pieces, elements // ELEMENTS_PER_PART))


def address(array: HostArray | None) -> int:
    """Of an array's first byte; 0 for none."""
    return 0 if array is None else int(array.__array_interface__["data"][0])
