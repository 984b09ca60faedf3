"""How a GEMM of float32 is computed, C = f(alpha * A B + beta * D), and the calls that compute it.

A plan follows from a ``GemmProblem`` and the number of threads, in three steps:

1. ``select.py`` says which algorithm: the name of a compiled task.
2. ``partition_gemm`` says which blocks: threads share M, N, both, or K (split-K), ``m_parts`` by ``n_parts`` jobs; a job's rows
   are multiplied MC at a time.
3. The task's own loops (``compiled/sgemm.py``, in BLIS's order) have fixed block sizes, of ``arguments/blocking.py``: KC steps
   along K, panels of NR columns, NC columns at a time, register tiles of MR by NR.

What a thread packs on the way, and results that fill no panel, go to its workspace; how much of it, the class of the task's
arguments says, from which its extents are checked, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, round_up
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.memory.workspace import Workspace, WorkspaceBinding
from ort_sdk_cpu.platform import libraries

from .arguments.blocking import nr
from .arguments.sgemm import MODULE, Gemm, GemmKN, GemmKNFloat16, GemmNK, GemmNKFloat16, GemmSizes, GemvNK, SplitK
from .arguments.sgemm_packed import MODULE as PACKED_MODULE
from .arguments.sgemm_packed import GemmPacked
from .select import BLayout, GemmAlgorithm, GemmProblem, select_algorithm, threads_for_gemm

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = [
    "WORKSPACE",
    "GemmCall",
    "GemmFunction",
    "GemmPlan",
    "GemmTask",
    "Partition",
    "epilogue_words",
    "partition_gemm",
    "plan_gemm",
    "task_of",
]

# A's rows of one block of K, packed, are 256 KB: they stay in a second cache beside the panels.
_MOST_MC = 512
"""Most rows multiplied at a time."""
# 4 MB of A packed transposed: they are read once for every NC_TRANSPOSED columns.
_MOST_TRANSPOSED_ELEMENTS = 1 << 20
"""Elements of A that are packed transposed at a time."""
_MC_UNIT = 32
# What follows a GEMM mostly goes through rows, too, and finds them in the same core's caches if threads share rows. Then each
# thread reads all of B, which costs little from 8 rows on if B is small, and from 128 on whatever its size.
_LEAST_ROWS_OF_PART, _ROWS_OF_PART = 8, 128
"""Rows of a thread's part from which on threads share rows only: if B is small, and of any B."""
_B_ELEMENTS_PER_ROW = 1 << 13
"""Elements of B for each of so many rows between them."""
_WORKSPACE_FIELD = Gemm.workspace
"""Looked up once: each run of each GEMM would do it again."""
WORKSPACE = "gemm"
"""Name of the workspace that all GEMMs share."""


@dataclass(frozen=True, slots=True)
class GemmTask:
    """A compiled task of GEMM."""

    module: str
    name: str
    arguments: type[Gemm]


_TASKS = {
    GemmAlgorithm.PACKED: GemmTask(PACKED_MODULE, "gemm_packed", GemmPacked),
    GemmAlgorithm.BLOCKED: GemmTask(MODULE, "gemm_kn", GemmKN),
    GemmAlgorithm.BLOCKED_NK: GemmTask(MODULE, "gemm_nk", GemmNK),
    GemmAlgorithm.GEMV: GemmTask(MODULE, "gemv_kn", GemmKN),
    GemmAlgorithm.GEMV_NK: GemmTask(MODULE, "gemv_nk", GemvNK),
    GemmAlgorithm.SPLIT_K: GemmTask(MODULE, "split_k", SplitK),
    GemmAlgorithm.FLOAT16: GemmTask(MODULE, "gemm_kn_f16", GemmKNFloat16),
    GemmAlgorithm.FLOAT16_NK: GemmTask(MODULE, "gemm_nk_f16", GemmNKFloat16),
}


def task_of(problem: GemmProblem) -> GemmTask:
    """The task for one thread."""
    return _TASKS[select_algorithm(problem)]


@dataclass(frozen=True, slots=True)
class Partition:
    """How threads share a GEMM, or a batch of them."""

    algorithm: GemmAlgorithm
    task: GemmTask
    threads: int
    words: tuple[int, int, int, int]
    """The tasks' last arguments: ``m_parts``, ``n_parts``, ``workspace_stride`` and ``mc``."""
    workspace_bytes: int
    """Of all threads."""


def partition_gemm(problem: GemmProblem, threads: int, *, count: int = 1, parts: tuple[int, int] | None = None) -> Partition:
    """The blocks that threads get.

    Args:
        problem: one GEMM.
        threads: that share it, or a batch.
        count: of GEMMs in the batch. Split-K is for one.
        parts: of the rows and columns of each GEMM; by default as few as give work to all threads.
    """
    algorithm = select_algorithm(problem, threads if count == 1 else 1)
    if parts is None:
        is_whole = count >= threads or algorithm is GemmAlgorithm.SPLIT_K
        parts = (1, 1) if is_whole else _parts(problem, threads)
    task, mc = _TASKS[algorithm], _mc(problem)
    stride = round_up(task.arguments.workspace_of(GemmSizes(problem.m, problem.n, problem.k, mc)), VECTOR)
    return Partition(algorithm, task, threads, (*parts, stride, mc), stride * threads)


def _mc(problem: GemmProblem) -> int:
    """Rows multiplied at a time."""
    most = _MOST_MC
    if problem.trans_b and not problem.is_float16:
        most = max(_MC_UNIT, min(most, _MOST_TRANSPOSED_ELEMENTS // problem.k // _MC_UNIT * _MC_UNIT))
    return min(problem.m, most)


def _parts(problem: GemmProblem, threads: int) -> tuple[int, int]:
    """(parts of M, parts of N): as many as there are threads.

    Of many rows, parts of M; of fewer, the largest part is as small as can be.
    """
    unit = LANES if problem.trans_b and not problem.is_float16 else nr()
    units = -(-problem.n // unit)
    least = max(_LEAST_ROWS_OF_PART, problem.k * problem.n // _B_ELEMENTS_PER_ROW)
    if problem.m >= min(least, _ROWS_OF_PART) * threads:
        return threads, 1

    def largest(m_parts: int) -> int:
        return -(-problem.m // m_parts) * -(-units // (threads // m_parts))

    m_parts = min((count for count in range(1, threads + 1) if threads % count == 0), key=largest)
    return m_parts, threads // m_parts


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """How one GEMM of contiguous matrices is computed."""

    sizes: tuple[int, ...]
    """Arguments of the tasks from M to the batch's size."""
    partition: Partition


@functools.lru_cache(maxsize=1024)
def plan_gemm(problem: GemmProblem, most_threads: int) -> GemmPlan:
    """The plan of one GEMM."""
    m, k, n = problem.m, problem.k, problem.n
    sizes = (m, n, k, k * FLOAT, problem.ldb, n * FLOAT, 0, 0, 0, 0, 1)
    return GemmPlan(sizes, partition_gemm(problem, threads_for_gemm(problem, most_threads)))


@functools.cache
def _function(module: str, name: str) -> TaskFunction:
    from ort_sdk_cpu.jit.task import task_function

    return task_function(module, name)


def epilogue_words(alpha: float, activation: Activation) -> tuple[int | float, ...]:
    """What follows a GEMM, as the tasks take it: (activation, alpha, beta, slope)."""
    return int(activation.kind), float(alpha), 1.0, float(activation.alpha)


class GemmFunction:
    """``activation(alpha * A B + bias)`` for matrices A with any number of rows. For any number of threads at once.

    Args:
        layout: of B.
        workspace: the workspace.
        alpha: factor of the product.
        activation: what follows; one of ``arguments.epilogue``.
    """

    def __init__(
        self,
        layout: BLayout,
        workspace: Workspace,
        *,
        alpha: float = 1.0,
        activation: Activation = IDENTITY,
    ) -> None:
        self._layout, self._workspace = layout, workspace
        self._epilogue = epilogue_words(alpha, activation)
        self.algorithm: GemmAlgorithm | None = None
        """Of the last call."""

    def __call__(self, rows: int, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write the result, of contiguous arrays; ``b`` may be bytes at any address."""
        plan = plan_gemm(self._layout.problem(rows), libraries.thread_count())
        parts = plan.partition
        self.algorithm = parts.algorithm
        workspace = self._workspace.buffer(WORKSPACE, parts.workspace_bytes)
        words = (a, b, out, bias, workspace, *plan.sizes, *self._epilogue, *parts.words)
        _function(parts.task.module, parts.task.name)(parts.threads, Gemm.of_words(words))


class GemmCall:
    """``activation(alpha * A B + bias)`` for matrices of some sizes. For one thread at a time.

    Args:
        problem: of contiguous matrices.
        workspace: the workspace.
        alpha: factor of the product.
        activation: what follows; one of ``arguments.epilogue``.
        lda: bytes from row to row of A, which may overlap; None for contiguous rows.
        ldb: the same of B.
        most_threads: how many it may use; None for all.
    """

    def __init__(
        self,
        problem: GemmProblem,
        workspace: Workspace,
        *,
        alpha: float = 1.0,
        activation: Activation = IDENTITY,
        lda: int | None = None,
        ldb: int | None = None,
        most_threads: int | None = None,
    ) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        plan = plan_gemm(problem, most_threads or libraries.thread_count())
        parts = plan.partition
        m, n, k, a_row, b_row, *others = plan.sizes
        sizes = (m, n, k, lda or a_row, ldb or b_row, *others)
        words = (0, 0, 0, 0, 0, *sizes, *epilogue_words(alpha, activation), *parts.words)
        self.algorithm = parts.algorithm
        self._call = TaskCall(parts.task.module, parts.task.name, Gemm.of_words(words), parts.threads)
        self._workspace = WorkspaceBinding(workspace, WORKSPACE, parts.workspace_bytes)

    def __call__(self, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write the result, of contiguous arrays; ``b`` may be bytes at any address."""
        self._point(a, b, bias, out)
        self._run()

    def bind_arrays(self, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same."""
        self._point(a, b, bias, out)
        call = functools.partial(self._run)
        call.keeps_alive = (a, b, bias, out)  # type: ignore[attr-defined]
        call.native = NativeCall((self._call.row,), self._prepare)  # type: ignore[attr-defined]
        return call

    def _point(self, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> None:
        for field, array in ((Gemm.a, a), (Gemm.b, b), (Gemm.c, out), (Gemm.d, bias)):
            self._call.point(field, array)

    def _prepare(self) -> None:
        """Use the calling thread's workspace."""
        self._workspace.bind(self._call, _WORKSPACE_FIELD)

    def _run(self) -> None:
        self._prepare()
        self._call.run()
