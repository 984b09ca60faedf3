"""GEMMs, and batches of them, on arrays that stay: compiled, so that their calls can be joined with others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.native_call import NativeCall, in_sequence
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task
from ort_sdk_cpu.kernel.writer import Writer
from ort_sdk_cpu.memory.workspace import Workspace, WorkspaceBinding
from ort_sdk_cpu.platform import libraries

from .arguments.sgemm import MODULE, Gemm
from .operands import GemmOperands
from .plan import WORKSPACE, Partition, partition_gemm, task_of
from .select import (
    SHORTEST_DOT,
    ChosenAlgorithm,
    GemmAlgorithm,
    GemmProblem,
    select_algorithm,
    threads_for_batch,
    threads_for_gemm,
)

__all__ = [
    "BoundGemm",
    "GemmWriter",
    "bound_gemm",
]

FLOAT = np.dtype(np.float32)
NUMPY = "numpy"
"""Algorithm of what tasks do not compute."""
MAX_CALLS = 16
"""Batches at unequal distances, up to which they are so many calls."""
MOST_REPEATED_BYTES = 1 << 20
"""Of an output, up to which a column that is added is kept for all of its columns."""
_FIELDS = (Gemm.a, Gemm.b, Gemm.c, Gemm.d)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Matrices at equal distances: bytes from A, B and C to the first ones, and from one to the next."""

    count: int
    offsets: tuple[int, int, int]
    strides: tuple[int, int, int]


def bound_gemm(operands: GemmOperands, workspace: Workspace) -> BoundGemm | None:
    """The GEMM's call; None where rows are not contiguous, types are others, or it is too small for compiled code.

    Args:
        operands: arrays that stay.
        workspace: the workspace.
    """
    operands = _transposed(operands)
    layout = _layout(operands)
    if layout is None or not is_worth_a_task(operands.out.size * layout.problem.k, MODULE, task_of(layout.problem).name):
        return None
    if layout.problem.k < SHORTEST_DOT and select_algorithm(layout.problem) is GemmAlgorithm.GEMV_NK:
        return None
    batches = list(_batches(operands, layout))
    return None if len(batches) > MAX_CALLS else BoundGemm(operands, layout, batches, workspace)


def _transposed(operands: GemmOperands) -> GemmOperands:
    """A GEMM with one column as the row it is of the transposes: A is read in place then, each number once."""
    a, b, out, addend = operands.a, operands.b, operands.out, operands.addend
    if min(a.ndim, b.ndim) < 2 or b.shape[-1] != 1 or a.shape[-2] == 1 or b.shape[-2] < SHORTEST_DOT:
        return operands
    is_added = addend is None or (out.ndim == 2 and addend.shape == out.shape and _is_dense(addend, -2))
    if not (is_added and _is_dense(b, -2) and _is_dense(out, -2)):
        return operands
    if b.ndim == 2 and a.flags.c_contiguous and out.flags.c_contiguous:
        a, out = a.reshape(-1, a.shape[-1]), out.reshape(-1, 1)
    numbers = (operands.alpha, operands.beta, operands.activation)
    return GemmOperands(b.mT, a.mT, out.mT, None if addend is None else addend.mT, *numbers)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Problem, bytes from row to row of A, B (or its transpose), output and addend, and whether A is one matrix of all rows."""

    problem: GemmProblem
    leading: tuple[int, int, int]
    ldd: int
    is_one: bool


def _layout(operands: GemmOperands) -> _Layout | None:
    a, b, out, addend = operands.a, operands.b, operands.out, operands.addend
    arrays = [array for array in (a, b, out, addend) if array is not None]
    if any(array.dtype != FLOAT or not array.size for array in arrays) or min(a.ndim, b.ndim) < 2:
        return None
    k, n = b.shape[-2:]
    # A column is as well a row of the transpose: vectors go along it.
    trans_b = not _is_dense(b, -1) or (n == 1 and k >= SHORTEST_DOT and _is_dense(b, -2))
    if not (_is_dense(a, -1) and _is_dense(out, -1) and (_is_dense(b, -2) or not trans_b)):
        return None
    ldd = 0 if addend is None else _addend_row(addend, out)
    if ldd is None:
        return None
    is_one = b.ndim == 2 and a.flags.c_contiguous and out.flags.c_contiguous
    rows = math.prod(a.shape[:-1]) if is_one else a.shape[-2]
    leading = (_step(a, -2), _step(b, -1 if trans_b else -2), _step(out, -2))
    return _Layout(GemmProblem(rows, k, n, trans_b), leading, ldd, is_one)


def _is_dense(array: HostArray, axis: int) -> bool:
    """Whether elements along an axis follow each other."""
    return array.shape[axis] == 1 or array.strides[axis] == FLOAT.itemsize


def _step(array: HostArray, axis: int) -> int:
    """Bytes from row to row, which is at least a row where there is one only."""
    return array.strides[axis] if array.shape[axis] > 1 else FLOAT.itemsize * max(array.shape[-2:])


def _addend_row(addend: HostArray, out: HostArray) -> int | None:
    """Bytes from row to row of an addend, 0 for one row; None for others."""
    columns = out.shape[-1]
    if out.ndim != 2 or addend.ndim == 0 or addend.shape[-1] != columns or not _is_dense(addend, -1):
        return None
    if addend.size == columns:
        return 0
    return addend.strides[0] if addend.shape == out.shape else None


def _batches(operands: GemmOperands, layout: _Layout) -> Iterator[_Batch]:
    """The output's matrices and those they are made of, in as few batches of equal distances as there are."""
    arrays = (operands.a, operands.b, operands.out)
    outer = () if layout.is_one else operands.out.shape[:-2]
    spread = [np.broadcast_to(array, (*outer, *array.shape[-2:])) for array in arrays] if outer else []
    sizes, strides = _merged(outer, [array.strides[:-2] for array in spread] or [(), (), ()])
    count, steps = (sizes.pop(), [own.pop() for own in strides]) if sizes else (1, [0, 0, 0])
    for index in np.ndindex(*sizes):
        at = (sum(map(int.__mul__, index, own)) for own in strides)
        yield _Batch(count, (next(at), next(at), next(at)), (steps[0], steps[1], steps[2]))


def _merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Neighbouring dimensions as one where all arrays continue along it: sizes, and strides of each array."""
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        steps = [own[axis] for own in strides]
        if size == 1:
            continue
        if sizes and all(own[-1] == step * size for own, step in zip(merged, steps, strict=True)):
            sizes[-1] *= size
            for own, step in zip(merged, steps, strict=True):
                own[-1] = step
        else:
            sizes.append(size)
            for own, step in zip(merged, steps, strict=True):
                own.append(step)
    return sizes, merged


@functools.lru_cache(maxsize=1024)
def _planned(problem: GemmProblem, count: int, most_threads: int) -> Partition:
    """Threads share the batch, or each of its GEMMs where these are fewer."""
    threads = threads_for_gemm(problem, most_threads) if count == 1 else threads_for_batch(problem, count, most_threads)
    return partition_gemm(problem, threads, count=count)


class BoundGemm:
    """The tasks of a GEMM, one per batch. For one thread at a time."""

    def __init__(self, operands: GemmOperands, layout: _Layout, batches: Sequence[_Batch], workspace: Workspace) -> None:
        self._operands = operands
        self._strides = _strides(operands)
        partition = _planned(layout.problem, batches[0].count, libraries.thread_count())
        self.algorithm = partition.algorithm.value
        """Its name."""
        self._work = WorkspaceBinding(workspace, WORKSPACE, partition.workspace_bytes)
        self._calls = [_task(operands, layout, batch, partition) for batch in batches]

    @property
    def native(self) -> NativeCall:
        """The tasks without Python; it holds this GEMM, so it is not kept."""
        return NativeCall(tuple(call.row for call in self._calls), self._prepare)

    def _prepare(self) -> None:
        """Use the thread's workspace."""
        room = self._work.renewed_buffer()
        if room is not None:
            for call in self._calls:
                call.point(Gemm.workspace, room)

    def moves_to(self, operands: GemmOperands) -> bool:
        """Use other arrays of the shapes and strides that the tasks were made for; whether they are, in one batch."""
        operands = _transposed(operands)
        if len(self._calls) > 1 or _strides(operands) != self._strides:
            return False
        for field, array in zip(_FIELDS, (operands.a, operands.b, operands.out, operands.addend), strict=True):
            self._calls[0].point(field, array)
        self._operands = operands
        return True

    def __call__(self) -> None:
        """Write the output."""
        self._prepare()
        for call in self._calls:
            call.run()


def _strides(operands: GemmOperands) -> list[Any]:
    """Shapes and strides."""
    arrays = (operands.a, operands.b, operands.out, operands.addend)
    return [None if array is None else (array.shape, array.strides) for array in arrays]


def _task(operands: GemmOperands, layout: _Layout, batch: _Batch, partition: Partition) -> Any:
    from ort_sdk_cpu.jit.task import TaskCall

    problem, activation, task = layout.problem, operands.activation, partition.task
    sizes = (problem.m, problem.n, problem.k, *layout.leading, *batch.strides, layout.ldd, batch.count)
    numbers = (int(activation.kind), float(operands.alpha), float(operands.beta), float(activation.alpha))
    arguments = Gemm.of_words((0, 0, 0, 0, 0, *sizes, *numbers, *partition.words))
    call = TaskCall(task.module, task.name, arguments, partition.threads)
    arrays = (operands.a, operands.b, operands.out, operands.addend)
    for field, array, offset in zip(_FIELDS, arrays, (*batch.offsets, 0), strict=True):
        call.point(field, array, offset)
    return call


class GemmWriter:
    """A writer of a GEMM that compiled code computes where it can, and NumPy otherwise. For one thread at a time.

    Args:
        write: the writer over NumPy.
        workspace: the workspace.
        operands: from the inputs and the output, what is multiplied; None if something else is done to it, too.
        chosen: is told the algorithm.
    """

    def __init__(
        self,
        write: Writer,
        workspace: Workspace,
        operands: Callable[..., GemmOperands] | None,
        chosen: ChosenAlgorithm | None = None,
    ) -> None:
        self._write, self._workspace, self._operands = write, workspace, operands
        self._chosen = chosen or ChosenAlgorithm()
        self._moving: BoundGemm | None = None
        self._is_made = False

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        if self._operands is None or not self._moves_to(_repeating(self._operands(*arrays))):
            self._chosen.name = NUMPY
            self._write(*arrays)

    def _moves_to(self, operands: GemmOperands) -> bool:
        """Compute by the task that was made for the first arrays; whether it can."""
        if not self._is_made:
            self._moving, self._is_made = bound_gemm(operands, self._workspace), True
        if self._moving is None or not self._moving.moves_to(operands):
            return False
        self._moving()
        self._chosen.name = self._moving.algorithm
        return True

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if that is the writer's."""
        if self._operands is None:
            return None
        operands = self._operands(*arrays)
        column = _added_column(operands)
        if column is None:
            return self._bound(operands)
        repeated = np.empty(column.shape, column.dtype)
        gemm = self._bound(_adding(operands, repeated))
        copy = CopyWriter(lambda source, target: [(target, source)]).bind_arrays(column, repeated)
        return None if gemm is None else in_sequence([copy, gemm])

    def _bound(self, operands: GemmOperands) -> BoundGemm | None:
        found = bound_gemm(operands, self._workspace)
        if found is not None:
            self._chosen.name = found.algorithm
        return found


def _added_column(operands: GemmOperands) -> HostArray | None:
    """A column, or one number, that is added to all columns, as a view as large as the output; None for other addends."""
    addend, out = operands.addend, operands.out
    if addend is None or addend.shape[-1:] not in {(), (1,)} or out.ndim != 2 or out.shape[-1] == 1:
        return None
    return None if out.nbytes > MOST_REPEATED_BYTES else np.broadcast_to(addend, out.shape)


def _repeating(operands: GemmOperands) -> GemmOperands:
    """The same with a column that is added copied to all columns."""
    column = _added_column(operands)
    return operands if column is None else _adding(operands, np.ascontiguousarray(column))


def _adding(operands: GemmOperands, addend: HostArray) -> GemmOperands:
    """The same with another addend."""
    one = operands
    return GemmOperands(one.a, one.b, one.out, addend, one.alpha, one.beta, one.activation)
