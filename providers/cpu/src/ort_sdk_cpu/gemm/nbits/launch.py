"""Calls of the compiled tasks of MatMulNBits, with their working memory."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.memory.workspace import Scratch, ToldMemory
from ort_sdk_cpu.platform import libraries

from .microkernels import arguments as places
from .operands import Operands
from .plan import ELEMENTS_PER_PART, SPAN_BYTES, Form, block_bytes, choose_form, form_of_few_rows, padded

__all__ = ["FewRows", "NBitsGemm", "Product"]

Product = Callable[[HostArray, HostArray | None, HostArray], None]
"""``product(a, bias, out)``."""

ACTIVATIONS = "matmul_nbits_activations"
_ARRANGED = (5, 6, 7)
"""Arguments of tasks that bring activations into their form: what they make."""
_READS_ACTIVATIONS = ("rows_f32", "rows_i32", "columns_f32")
"""What tasks are named that also read activations as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class FewRows:
    """A product with a weight [N, ...] that is the same two tasks for any few rows: one that arranges them, and dot products."""

    form: Form
    """Of one row; buffers of more are as many times as large."""
    arguments: dict[int, Any]
    """Those of the dot products that stay the same, by ``microkernels.arguments``, as numbers and arrays."""
    most: int
    """Rows."""

    @property
    def reads_activations(self) -> bool:
        """Whether the dot products read the activations as they are, too."""
        return self.form.task.startswith(_READS_ACTIVATIONS)


class NBitsGemm:
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

        The call reads and writes contiguous float32 arrays: activations (rows, K), bias (N,) or None, result. It may run on
        several threads at a time.
        """
        idle: deque[_Calls] = deque()
        make = self._maker(operands, rows)

        def product(a: HostArray, bias: HostArray | None, out: HostArray) -> None:
            calls = _taken(idle) or make()
            calls.point(a, bias, out)
            calls.run()
            idle.append(calls)

        product.kept = (self, operands)  # type: ignore[attr-defined]
        return product

    def fixed(self, operands: Operands, rows: int, a: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], None]:
        """The same on arrays that stay, for one thread at a time: a call that needs no Python, and keeps them."""
        calls = self._maker(operands, rows)()
        calls.point(a, bias, out)
        call = functools.partial(calls.run)
        call.kept = (self, operands, a, bias, out)  # type: ignore[attr-defined]
        call.native = calls.native  # type: ignore[attr-defined]
        return call

    def few_rows(self, operands: Operands) -> FewRows | None:
        """The product for few rows; None for a weight [K, N]."""
        if operands.by_columns:
            return None
        form, most = form_of_few_rows(self._weight, operands, is_exact=self._is_exact)
        return FewRows(form, self._arguments(operands, form, 1), most)

    def _maker(self, operands: Operands, rows: int) -> Callable[[], _Calls]:
        form = choose_form(self._weight, operands, rows, libraries.thread_count(), is_exact=self._is_exact)
        return functools.partial(_Calls, form, self._arguments(operands, form, rows), self._scratch)

    def _arguments(self, operands: Operands, form: Form, rows: int) -> dict[int, Any]:
        """Those that stay the same."""
        weight = self._weight
        table = self._flipped_table if operands.flip and form.task.startswith("columns") else self._table
        return {
            places.CODES: operands.codes,
            places.CODES_STRIDE: operands.codes_stride,
            places.SCALES: operands.scales,
            places.SCALES_STRIDE: operands.scales_stride,
            places.ZEROS: operands.zero_points,
            places.ZEROS_STRIDE: operands.zero_points_stride,
            places.M: rows,
            places.N: weight.size_n,
            places.K: weight.size_k,
            places.BLOCK: weight.block_size,
            places.DEFAULT_ZERO: operands.default_zero_point,
            places.FLIP: operands.flip,
            places.X_STRIDE: form.x_stride,
            places.BLOCK_STRIDE: block_bytes(weight),
            places.TABLE: table,
            places.WORK_STRIDE: form.work_stride,
            places.K_PARTS: form.k_parts,
            places.N_PARTS: form.n_parts,
            places.ZEROS_KIND: operands.zero_points_kind,
            places.CHUNK: form.chunk,
            places.ROWS_AT_ONCE: form.rows_at_once,
            places.GROUP: form.group,
            places.INDICES: self._indices,
            places.HALF_SCALES: operands.half_scales,
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

    def __init__(self, form: Form, arguments: dict[int, Any], scratch: Scratch) -> None:
        rows, inner, width = arguments[places.M], arguments[places.K], arguments[places.N]
        sizes = (*form.buffers, form.jobs * form.work_stride, (form.k_parts - 1) * rows * width * 4)
        ends = list(itertools.accumulate(padded(size, SPAN_BYTES) for size in sizes))
        self._pieces = [slice(start, end) for start, end in itertools.pairwise((0, *ends))]
        self._memory = ToldMemory(scratch, "matmul_nbits", ends[-1])
        self._reads_as_they_are = not form.buffers[0]
        self._reads_activations, self._has_bias = form.task.startswith(_READS_ACTIVATIONS), False
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

    def point(self, a: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Read and write these arrays."""
        product = self._product
        self._arrange.point(0, a)
        if self._reads_activations:
            product.point(places.ACTIVATIONS, a)
        if self._reads_as_they_are:
            product.point(places.X, a)
        if bias is not None or self._has_bias:
            product.point(places.BIAS, bias)
            self._has_bias = bias is not None
        product.point(places.OUT, out)
        if self._add is not None:
            self._add.point(0, out)

    def run(self) -> None:
        """Write the product."""
        self._prepare()
        self._arrange.run()
        self._product.run()
        if self._add is not None:
            self._add.run()

    def _prepare(self) -> None:
        """Use the thread's working memory."""
        room = self._memory.new_room()
        if room is not None:
            self._place(room)

    def _place(self, room: HostArray) -> None:
        """Use the buffers that lie here one behind the other."""
        x, scales, sums, work, partials = (room[piece] for piece in self._pieces)
        for position, place in zip(_ARRANGED, (x, scales, sums), strict=True):
            self._arrange.point(position, place)
        if not self._reads_as_they_are:
            self._product.point(places.X, x)
        positions = (places.X_SCALES, places.X_SUMS, places.WORK, places.PARTIALS)
        for position, place in zip(positions, (scales, sums, work, partials), strict=True):
            self._product.point(position, place)
        if self._add is not None:
            self._add.point(2, partials)


def _taken(idle: deque[_Calls]) -> _Calls | None:
    """Calls that no thread uses, if there are any."""
    try:
        return idle.pop()
    except IndexError:
        return None


def _threads(form: Form, pieces: int, elements: int) -> int:
    """Threads for a task of some pieces that reads or writes so many elements."""
    return max(1, min(form.jobs, pieces, elements // ELEMENTS_PER_PART))
