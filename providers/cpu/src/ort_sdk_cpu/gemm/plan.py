"""Calls of the compiled matrix products: which task for which sizes, on how many threads, with how much working memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation, ActivationKind
from ort_sdk_cpu.memory.workspace import Scratch, ToldMemory
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = [
    "EPILOGUE_KINDS",
    "PACKED_MODULE",
    "SPARE_BYTES",
    "SPLIT_K_TASK",
    "BLayout",
    "GemmCall",
    "GemmFunction",
    "GemmPlan",
    "GemmProblem",
    "Partition",
    "epilogue_words",
    "partition_gemm",
    "plan_gemm",
]

MODULE, PACKED_MODULE = "products", "packed_products"
SPLIT_K_TASK = "sums_of_shares"
"""The task in which threads share the second operand's rows, and read each other's sums."""
FEW_ROWS = 4
"""Most rows with which the second operand takes longer to read than to multiply."""
DOTTED_ROWS = 10
"""Rows up to which a second operand that is transposed is met row by row."""
SUMMED_COLUMNS = {1: 0, 2: 0, 3: 1 << 10}
"""Columns from which on it costs less to sum the second operand's rows than to read them a part at a time, for so many rows."""
SHARED_COLUMNS, SHARED_STEPS = 1 << 12, 32
"""Most columns of a product of which each thread has all sums, and fewest rows of the second operand for each thread: there it
costs less to read whole rows."""
SHARED_ROWS, ROWS_OF_ANY_COLUMNS, COLUMNS_OF_MORE_ROWS = 8, 3, 1 << 10
"""Most rows of such a product; up to how many it may have few columns, and from how many columns on it may have more."""
PRODUCTS_PER_THREAD = 1 << 18
"""Multiplications that take some times as long as waking a thread up."""
NUMBERS_PER_THREAD = 1 << 16
"""Numbers of the second operand that take as long to come from memory."""
MOST_ROWS = 512
"""Rows multiplied at a time, so that what is made of them stays in a cache."""
MOST_TRANSPOSED = 1 << 20
"""Numbers of them that are transposed at a time."""
FEWEST_ROWS_OF_PART, ROWS_OF_PART = 8, 128
"""Rows of a part from which on it costs little that each thread reads all of the second operand: if that is small, and of any."""
NUMBERS_PER_ROW = 1 << 13
"""Numbers of the second operand for each of so many rows between them."""
_STEPS, _GROUP, _BLOCK, SPARE_BYTES, _HALF_SPARE_BYTES = 128, 8, 192, 1024, 2048
"""As in the compiled modules."""
_FLOAT_BYTES, _HALF_BYTES = 4, 2
_A, _B, _C, _ADDEND, _WORK = range(5)
KINDS = "q" * 17 + "f" * 3 + "q" * 4
"""Of the tasks' arguments."""
WORKING_MEMORY = "products"
EPILOGUE_KINDS = frozenset(
    {
        ActivationKind.IDENTITY,
        ActivationKind.LEAKY_RELU,
        ActivationKind.SIGMOID,
        ActivationKind.TANH,
        ActivationKind.GELU,
    }
)
"""Activations that the tasks' epilogues compute."""


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """(m, k) times (k, n); the second operand may be (n, k)."""

    m: int
    k: int
    n: int
    trans_b: bool = False
    is_float16: bool = False
    """Whether the second operand is float16."""
    is_packed: bool = False
    """Whether it was laid out in panels."""

    @property
    def module(self) -> str:
        """That has the task."""
        return PACKED_MODULE if self.is_packed else MODULE

    @property
    def weight_row_bytes(self) -> int:
        """Bytes from row to row of the second operand where they follow each other, or from panel to panel."""
        if self.is_packed:
            return self.k * _width() * _FLOAT_BYTES
        row = self.k if self.trans_b else self.n
        return row * (_HALF_BYTES if self.is_float16 else _FLOAT_BYTES)

    @property
    def task(self) -> str:
        """The task for so many m."""
        if self.is_packed:
            return "packed_panels"
        if self.is_float16:
            return "halves_in_rows" if self.trans_b else "halves_in_columns"
        if self.trans_b:
            return "dots_of_rows" if self.m <= DOTTED_ROWS else "panels_of_rows"
        is_summed = self.m in SUMMED_COLUMNS and self.n >= SUMMED_COLUMNS[self.m]
        return "sums_of_columns" if is_summed else "panels_of_columns"

    @property
    def rows_at_once(self) -> int:
        """Rows multiplied at a time."""
        is_turned = self.trans_b and not self.is_float16
        most = max(32, MOST_TRANSPOSED // self.k // 32 * 32) if is_turned else MOST_ROWS
        return min(self.m, MOST_ROWS, most)

    def threads_of(self, most: int) -> int:
        """Threads worth waking up."""
        numbers = self.k * self.n
        return max(1, min(most, max(self.m * numbers // PRODUCTS_PER_THREAD, numbers // NUMBERS_PER_THREAD)))

    def is_split_k(self, threads: int) -> bool:
        """Whether each of so many threads multiplies with some m of the second operand, and not with some of its n."""
        if threads < 2 or self.trans_b or self.is_float16 or self.is_packed or not libraries.has_openmp():
            return False
        least = 1 if self.m <= ROWS_OF_ANY_COLUMNS else COLUMNS_OF_MORE_ROWS
        is_few = self.m <= min(SHARED_ROWS, _tile_rows())
        return is_few and least <= self.n <= SHARED_COLUMNS and self.k >= SHARED_STEPS * threads

    @property
    def split_k_bytes(self) -> int:
        """Working memory of a thread then: its sums, and a panel of the last n."""
        width = _width()
        return (self.m * (-(-self.n // width) * width + 16) + SHARED_STEPS * width) * _FLOAT_BYTES

    @property
    def work_bytes(self) -> int:
        """Working memory of a thread: panels, copied m, results that go elsewhere."""
        width, copy_row = _width(), _STEPS * _FLOAT_BYTES + 64
        m = -(-self.rows_at_once // width) * width
        if self.is_packed:
            numbers = max(m * (width + _STEPS), min(m, _tile_rows()) * (width + self.k))
            return SPARE_BYTES + numbers * _FLOAT_BYTES + 64
        if self.is_float16:
            return _HALF_SPARE_BYTES + (_STEPS + 1) * width * _FLOAT_BYTES + m * (width * _FLOAT_BYTES + copy_row)
        if self.trans_b:
            sums = _BLOCK * (m * _FLOAT_BYTES + 64)
            return SPARE_BYTES + 12 * copy_row + sums + m * self.k * _FLOAT_BYTES
        panels = 1 if self.rows_at_once <= _tall_rows() else _GROUP
        return panels * (_STEPS + 1) * width * _FLOAT_BYTES + m * (width * _FLOAT_BYTES + copy_row)


@dataclass(frozen=True, slots=True)
class BLayout:
    """Of a product but for its m."""

    k: int
    n: int
    trans_b: bool = False
    is_float16: bool = False
    is_packed: bool = False

    def of_rows(self, m: int) -> GemmProblem:
        """The sizes with so many m."""
        return GemmProblem(m, self.k, self.n, self.trans_b, self.is_float16, self.is_packed)


def _width() -> int:
    """Columns of a panel."""
    return 32 if instruction_set() >= InstructionSet.AVX512 else 16


def _tile_rows() -> int:
    """Rows of a tile."""
    return 12 if instruction_set() >= InstructionSet.AVX512 else 6


def _tall_rows() -> int:
    """Rows up to which whole panels of the second operand are read where they lie."""
    return 24 if instruction_set() >= InstructionSet.AVX512 else 6


@functools.lru_cache(maxsize=1024)
def plan_gemm(sizes: GemmProblem, most_threads: int) -> GemmPlan:
    """How a product of these sizes is computed."""
    rows, inner, columns = sizes.m, sizes.k, sizes.n
    threads = sizes.threads_of(most_threads)
    steps = (inner * _FLOAT_BYTES, sizes.weight_row_bytes, columns * _FLOAT_BYTES, 0, 0, 0, 0, 1)
    return GemmPlan((rows, columns, inner, *steps), partition_gemm(sizes, threads))


@dataclass(frozen=True, slots=True)
class Partition:
    """How threads share a product."""

    task: str
    threads: int
    rest: tuple[int, ...]
    """A task's last arguments."""
    work_bytes: int
    """Of all threads."""


def partition_gemm(sizes: GemmProblem, threads: int, *, is_stack: bool = False) -> Partition:
    """Parts of a product, or of a stack of products, of which each thread then has some."""
    is_split_k = not is_stack and sizes.is_split_k(threads)
    parts = (1, 1) if is_stack or is_split_k else _parts_of(sizes, threads)
    work = -(-(sizes.split_k_bytes if is_split_k else sizes.work_bytes) // 64) * 64
    task = SPLIT_K_TASK if is_split_k else sizes.task
    return Partition(task, threads, (*parts, work, sizes.rows_at_once), work * threads)


def _parts_of(sizes: GemmProblem, threads: int) -> tuple[int, int]:
    """(parts of the rows, parts of the columns): as many as there are threads.

    Of many rows: what follows a product goes through rows, too, and so finds them near the same core. Of fewer, the largest part
    is as small as can be.
    """
    unit = 16 if sizes.trans_b and not sizes.is_float16 else _width()
    units = -(-sizes.n // unit)
    least = max(FEWEST_ROWS_OF_PART, sizes.k * sizes.n // NUMBERS_PER_ROW)
    if sizes.m >= min(least, ROWS_OF_PART) * threads:
        return threads, 1

    def cost(row_parts: int) -> int:
        return -(-sizes.m // row_parts) * -(-units // (threads // row_parts))

    row_parts = min((count for count in range(1, threads + 1) if threads % count == 0), key=cost)
    return row_parts, threads // row_parts


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """How a product is computed."""

    sizes: tuple[int, ...]
    """Arguments from the rows on."""
    partition: Partition


@functools.cache
def _task(module: str, name: str) -> TaskFunction:
    from ort_sdk_cpu.jit.task import task_function

    return task_function(module, name, KINDS)


def epilogue_words(alpha: float, activation: Activation) -> tuple[int | float, ...]:
    """What follows a GEMM, as the tasks take it."""
    return int(activation.kind), float(alpha), 1.0, float(activation.alpha)


class GemmFunction:
    """``activation(alpha * A B + bias)`` for matrices with any number of rows. For any number of threads at once.

    Args:
        sizes: of A's rows and of B.
        scratch: working memory.
        alpha: factor of the product.
        activation: what follows; one of ``EPILOGUE_KINDS``.
    """

    def __init__(
        self,
        sizes: BLayout,
        scratch: Scratch,
        *,
        alpha: float = 1.0,
        activation: Activation = IDENTITY,
    ) -> None:
        self._sizes, self._scratch = sizes, scratch
        self._epilogue = epilogue_words(alpha, activation)

    def __call__(self, rows: int, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write the product of contiguous arrays; ``b`` may be bytes at any address."""
        sizes = self._sizes.of_rows(rows)
        plan = plan_gemm(sizes, libraries.thread_count())
        partition = plan.partition
        work = self._scratch.room(WORKING_MEMORY, partition.work_bytes)
        _task(sizes.module, partition.task)(
            partition.threads, a, b, out, bias, work, *plan.sizes, *self._epilogue, *partition.rest
        )


class GemmCall:
    """``activation(alpha * A B + bias)`` for matrices of some sizes. For one thread at a time.

    Args:
        sizes: of the operands.
        scratch: working memory.
        alpha: factor of the product.
        activation: what follows; one of ``EPILOGUE_KINDS``.
        a_row_bytes: from row to row of A, which may overlap; None for rows one after another.
        b_row_bytes: the same of B.
        most_threads: how many it may use; None for all.
    """

    def __init__(
        self,
        sizes: GemmProblem,
        scratch: Scratch,
        *,
        alpha: float = 1.0,
        activation: Activation = IDENTITY,
        a_row_bytes: int | None = None,
        b_row_bytes: int | None = None,
        most_threads: int | None = None,
    ) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        plan = plan_gemm(sizes, most_threads or libraries.thread_count())
        rows, columns, inner, a_row, b_row, *others = plan.sizes
        given = (rows, columns, inner, a_row_bytes or a_row, b_row_bytes or b_row, *others)
        partition = plan.partition
        arguments = (0, 0, 0, 0, 0, *given, *epilogue_words(alpha, activation), *partition.rest)
        self._call = TaskCall(sizes.module, partition.task, arguments, partition.threads)
        self._work = ToldMemory(scratch, WORKING_MEMORY, partition.work_bytes)

    def __call__(self, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write the product of contiguous arrays; ``b`` may be bytes at any address."""
        self._point(a, b, bias, out)
        self._run()

    def fixed(self, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same."""
        self._point(a, b, bias, out)
        call = functools.partial(self._run)
        call.kept = (a, b, bias, out)  # type: ignore[attr-defined]
        call.native = NativeCall((self._call.row,), self._prepare)  # type: ignore[attr-defined]
        return call

    def _point(self, a: HostArray, b: HostArray, bias: HostArray | None, out: HostArray) -> None:
        for position, array in ((_A, a), (_B, b), (_C, out), (_ADDEND, bias)):
            self._call.point(position, array)

    def _prepare(self) -> None:
        """Use the thread's working memory."""
        self._work.tell(self._call, _WORK)

    def _run(self) -> None:
        self._prepare()
        self._call.run()
