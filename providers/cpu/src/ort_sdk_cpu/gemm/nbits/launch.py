"""Calls of the compiled tasks of MatMulNBits, with their workspace."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from functools import cache

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.memory.workspace import Workspace, WorkspaceBinding
from ort_sdk_cpu.platform import libraries

from .arguments.activations import MODULE as ACTIVATIONS
from .arguments.activations import Activations, AddPartials
from .arguments.matmul_nbits import MatMulNBits
from .operands import NBitsOperands
from .plan import ELEMENTS_PER_THREAD, SPAN_BYTES, NBitsPlan, block_bytes, padded, plan_gemv, plan_matmul
from .select import NBitsAlgorithm

__all__ = ["ACTIVATIONS", "NBitsGemm", "NBitsGemv", "RunGemm"]

RunGemm = Callable[[HostArray, HostArray | None, HostArray], None]
"""``run(a, bias, out)``."""

_READ_ACTIVATIONS = ("gemv_nk_f32", "gemv_nk_i32", "gemv_kn_f32")
"""What tasks are named that also read activations as they are, where these have infinities."""


@dataclass(frozen=True, slots=True, eq=False)
class NBitsGemv:
    """A GEMM with an NK weight that is the same two tasks for any few rows: one on activations, and dot products."""

    plan: NBitsPlan
    """Of one row; buffers of more are as many times as large."""
    arguments: MatMulNBits
    """Of the dot products: numbers and arrays that stay; 0 for others."""
    most: int
    """Rows."""

    @property
    def reads_activations(self) -> bool:
        """Whether the dot products read the activations as they are, too."""
        return self.plan.task.startswith(_READ_ACTIVATIONS)


class NBitsGemm:
    """GEMM with weights of one shape.

    Args:
        weight: its attributes.
        is_exact: activations are used as they are, not quantised to 8 bits or rounded to bfloat16.
        workspace: the workspace.
    """

    def __init__(self, weight: BlockWeight, workspace: Workspace, *, is_exact: bool) -> None:
        self._weight = weight
        self._is_exact = is_exact
        self._workspace = workspace
        self._table, self._flipped_table = _tables(weight.bits)
        self._lane_blocks = _lane_blocks(weight.block_size * weight.bits // 32)
        self.algorithm: NBitsAlgorithm | None = None
        """Last selected."""

    def bind(self, operands: NBitsOperands, rows: int) -> RunGemm:
        """A GEMM with a weight for a number of rows of activations, at least one, and at least one column.

        The call reads and writes contiguous float32 arrays: activations (rows, K), bias (N,) or None, result. It may run on
        several threads at a time.
        """
        idle: deque[_Calls] = deque()
        make = self._maker(operands, rows)

        def run(a: HostArray, bias: HostArray | None, out: HostArray) -> None:
            calls = _taken(idle) or make()
            calls.point(a, bias, out)
            calls.run()
            idle.append(calls)

        run.keeps_alive = (self, operands)  # type: ignore[attr-defined]
        return run

    def bind_arrays(
        self, operands: NBitsOperands, rows: int, a: HostArray, bias: HostArray | None, out: HostArray
    ) -> Callable[[], None]:
        """The same on arrays that stay, for one thread at a time: a call that needs no Python, and keeps them."""
        calls = self._maker(operands, rows)()
        calls.point(a, bias, out)
        call = functools.partial(calls.run)
        call.keeps_alive = (self, operands, a, bias, out)  # type: ignore[attr-defined]
        call.native = calls.native  # type: ignore[attr-defined]
        return call

    def gemv(self, operands: NBitsOperands) -> NBitsGemv | None:
        """The GEMM for few rows; None for a KN weight."""
        if operands.is_kn:
            return None
        plan, most = plan_gemv(self._weight, operands, is_exact=self._is_exact)
        return NBitsGemv(plan, self._arguments(operands, plan, 1), most)

    def _maker(self, operands: NBitsOperands, rows: int) -> Callable[[], _Calls]:
        plan = plan_matmul(self._weight, operands, rows, libraries.thread_count(), is_exact=self._is_exact)
        self.algorithm = plan.algorithm
        return functools.partial(_Calls, plan, self._arguments(operands, plan, rows), self._workspace)

    def _arguments(self, operands: NBitsOperands, plan: NBitsPlan, rows: int) -> MatMulNBits:
        """Those that stay the same; 0 for others."""
        weight = self._weight
        is_flipped = operands.sign_flip and plan.algorithm is NBitsAlgorithm.GEMV_KN
        return MatMulNBits(
            codes=operands.codes,
            codes_stride=operands.codes_stride,
            scales=operands.scales,
            scales_stride=operands.scales_stride,
            zero_points=operands.zero_points,
            zero_points_stride=operands.zero_points_stride,
            bias=None,
            out=0,
            m=rows,
            n=weight.size_n,
            k=weight.size_k,
            block_size=weight.block_size,
            default_zero_point=operands.default_zero_point,
            sign_flip=operands.sign_flip,
            x=0,
            x_scales=0,
            x_sums=0,
            x_stride=plan.x_stride,
            block_stride=block_bytes(weight),
            table=self._flipped_table if is_flipped else self._table,
            workspace=0,
            workspace_stride=plan.workspace_stride,
            k_parts=plan.k_parts,
            n_parts=plan.n_parts,
            partials=0,
            zero_points_kind=operands.zero_points_kind,
            chunk=plan.chunk,
            mc=plan.mc,
            group=plan.group,
            lane_blocks=self._lane_blocks,
            activations=0,
            float16_scales=operands.float16_scales,
        )


@cache
def _tables(bits: int) -> tuple[HostArray, HostArray]:
    """The number that each of sixteen codes stands for; the same of codes whose sign bit is flipped."""
    codes, half = np.arange(16) & ((1 << bits) - 1), 1 << (bits - 1)
    table = (codes - half).astype(np.float32)
    return table, np.roll(table, len(table) // 2 if bits == 4 else 2)


@cache
def _lane_blocks(lanes: int) -> HostArray:
    """The block that each of the lanes of sixteen blocks is of."""
    return (np.arange(16 * lanes) // lanes).astype(np.int32)


class _Calls:
    """The calls of a GEMM. For one thread at a time."""

    def __init__(self, plan: NBitsPlan, arguments: MatMulNBits, workspace: Workspace) -> None:
        rows, k, n = arguments.m, arguments.k, arguments.n
        sizes = (*plan.buffers, plan.jobs * plan.workspace_stride, (plan.k_parts - 1) * rows * n * 4)
        ends = list(itertools.accumulate(padded(size, SPAN_BYTES) for size in sizes))
        self._pieces = [slice(start, end) for start, end in itertools.pairwise((0, *ends))]
        self._memory = WorkspaceBinding(workspace, "matmul_nbits", ends[-1])
        self._reads_as_they_are = not plan.buffers[0]
        self._reads_activations, self._has_bias = plan.task.startswith(_READ_ACTIVATIONS), False
        given = Activations(0, rows, k, arguments.block_size, plan.planes, 0, 0, 0, plan.x_stride, arguments.block_stride)
        self._activations = TaskCall(ACTIVATIONS, plan.activations_task, given, _threads(plan, rows, rows * k))
        self._gemm = TaskCall(plan.module, plan.task, arguments, plan.jobs)
        self._add: TaskCall | None = None
        if plan.k_parts > 1:
            threads = _threads(plan, plan.jobs, rows * n)
            self._add = TaskCall(ACTIVATIONS, "add_partials", AddPartials(0, rows * n, 0, plan.k_parts - 1), threads)

    @property
    def native(self) -> NativeCall:
        """The calls for callers that need no Python."""
        tasks = [self._activations, self._gemm, *([] if self._add is None else [self._add])]
        return NativeCall(tuple(task.row for task in tasks), self._prepare)

    def point(self, a: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Read and write these arrays."""
        gemm = self._gemm
        self._activations.point(Activations.x, a)
        if self._reads_activations:
            gemm.point(MatMulNBits.activations, a)
        if self._reads_as_they_are:
            gemm.point(MatMulNBits.x, a)
        if bias is not None or self._has_bias:
            gemm.point(MatMulNBits.bias, bias)
            self._has_bias = bias is not None
        gemm.point(MatMulNBits.out, out)
        if self._add is not None:
            self._add.point(AddPartials.target, out)

    def run(self) -> None:
        """Write the result."""
        self._prepare()
        self._activations.run()
        self._gemm.run()
        if self._add is not None:
            self._add.run()

    def _prepare(self) -> None:
        """Use the thread's workspace."""
        room = self._memory.renewed_buffer()
        if room is not None:
            self._use(room)

    def _use(self, room: HostArray) -> None:
        """Use the buffers that are here one behind the other."""
        x, scales, sums, workspace, partials = (room[piece] for piece in self._pieces)
        for field, buffer in ((Activations.target, x), (Activations.scales, scales), (Activations.sums, sums)):
            self._activations.point(field, buffer)
        if not self._reads_as_they_are:
            self._gemm.point(MatMulNBits.x, x)
        fields = (MatMulNBits.x_scales, MatMulNBits.x_sums, MatMulNBits.workspace, MatMulNBits.partials)
        for field, buffer in zip(fields, (scales, sums, workspace, partials), strict=True):
            self._gemm.point(field, buffer)
        if self._add is not None:
            self._add.point(AddPartials.source, partials)


def _taken(idle: deque[_Calls]) -> _Calls | None:
    """Calls that no thread uses, if there are any."""
    try:
        return idle.pop()
    except IndexError:
        return None


def _threads(plan: NBitsPlan, pieces: int, elements: int) -> int:
    """Threads for a task of some pieces that reads or writes so many elements."""
    return max(1, min(plan.jobs, pieces, elements // ELEMENTS_PER_THREAD))
