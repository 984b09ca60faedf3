"""Which kernel a node with a matrix product gets, and which algorithm computes a GEMM of known sizes, on how many threads.

Two decisions, each a function of one value: ``select_kernel`` when a session is made, when sizes may not be known, and
``select_algorithm`` when they are.
"""

from __future__ import annotations

import enum

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.extents.sizes import FLOAT
from ort_sdk_cpu.platform import libraries

from .arguments.blocking import SPLIT_K_KC, mr, nr

__all__ = [
    "FEW_ROWS",
    "MOST_PANEL_ELEMENTS",
    "PANEL_ELEMENTS",
    "PANEL_ROWS",
    "SHORTEST_DOT",
    "BLayout",
    "ChosenAlgorithm",
    "GemmAlgorithm",
    "GemmKernel",
    "GemmNode",
    "GemmProblem",
    "select_algorithm",
    "select_kernel",
    "threads_for_batch",
    "threads_for_gemm",
]

# Up to 4 rows of A meet a row of B in registers: the GEMM takes as long as memory brings B, whatever the rows.
FEW_ROWS = 4
"""Rows up to which B takes longer to read than to multiply."""
# Packing A transposed took twice as long with up to 10 rows.
_MOST_DOT_ROWS = 10
"""Rows up to which B (N, K) is multiplied by dot products, four rows at a time."""
# Shorter rows fill no vector of 16 lanes: B is copied transposed, or NumPy multiplies.
SHORTEST_DOT = 16
"""Elements of a row of B (N, K) from which on dot products are computed."""
# B is then read in order, up to twice as fast as panels of it. Three rows have 3 * 16 KB of sums: worth it for wide B only.
_GEMV_COLUMNS = {1: 0, 2: 0, 3: 1 << 10}
"""Rows → columns from which on B's scaled rows are summed up."""
# Each thread has partial sums of all results, which others read: up to 8 rows of 4,096 columns, 128 KB, stay in a second cache.
_SPLIT_K_ROWS, _SPLIT_K_COLUMNS = 8, 1 << 12
"""Most rows and columns of split-K."""
# With up to 3 rows B comes in up to twice as fast. With 4 of wide B it was 6 to 26 % faster, with more of them 0 to 16 %.
_SPLIT_K_FEW_ROWS, _SPLIT_K_WIDE_COLUMNS = 3, 1 << 10
"""Rows up to which any columns do, and columns from which on more rows do."""
# 2^18 multiply-adds take some 10 us on a core: some times as long as waking a thread.
_FMAS_PER_THREAD = 1 << 18
"""Multiply-adds that are worth a thread."""
# 256 KB: they take as long to come from memory as the multiply-adds above.
_B_ELEMENTS_PER_THREAD = 1 << 16
"""Elements of B that are worth a thread, however few rows are multiplied with them."""


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """(M, K) times (K, N)."""

    m: int
    k: int
    n: int
    trans_b: bool = False
    """Whether B is (N, K)."""
    is_float16: bool = False
    """Whether B is float16."""
    is_packed: bool = False
    """Whether B was packed into panels."""

    @property
    def ldb(self) -> int:
        """Bytes from row to row of a contiguous B, or from panel to panel."""
        if self.is_packed:
            return self.k * nr() * FLOAT
        return (self.k if self.trans_b else self.n) * (2 if self.is_float16 else FLOAT)


@dataclass(frozen=True, slots=True)
class BLayout:
    """A GEMM of any M."""

    k: int
    n: int
    trans_b: bool = False
    is_float16: bool = False
    is_packed: bool = False

    def problem(self, m: int) -> GemmProblem:
        """The GEMM of so many rows."""
        return GemmProblem(m, self.k, self.n, self.trans_b, self.is_float16, self.is_packed)


class GemmAlgorithm(enum.Enum):
    """Ways to compute a GEMM; see ``compiled/sgemm.py``."""

    PACKED = "packed panels"
    """B was packed into panels when the session was made, or in its first run."""
    BLOCKED = "blocked"
    """Panels of B (K, N) are packed in the course of the GEMM; read in place for few rows."""
    BLOCKED_NK = "blocked, transposed B"
    """C' = B A': A is packed transposed, B (N, K) read in place."""
    GEMV = "gemv"
    """B's rows are scaled and summed up."""
    GEMV_NK = "dot products"
    """Of A's rows with those of B (N, K)."""
    SPLIT_K = "split-K"
    """Threads share K."""
    FLOAT16 = "float16 B"
    """Panels of B (K, N) of float16 are widened in the course of the GEMM."""
    FLOAT16_NK = "float16 transposed B"


class ChosenAlgorithm:
    """Name of the algorithm that the GEMMs of a node were computed with last; it holds no array of theirs."""

    def __init__(self) -> None:
        self.name: str | None = None


def select_algorithm(problem: GemmProblem, threads: int = 1) -> GemmAlgorithm:
    """The algorithm for so many threads of one matrix's GEMM; of a batch whose matrices threads share, for one thread."""
    # Packing was paid for already: panels are the fastest to read, whatever the rows.
    if problem.is_packed:
        return GemmAlgorithm.PACKED
    # float16 has one algorithm a layout: widening costs the same, however the products are ordered.
    if problem.is_float16:
        return GemmAlgorithm.FLOAT16_NK if problem.trans_b else GemmAlgorithm.FLOAT16
    # Rows of B (N, K) are contiguous along K, so dot products read them in order; many rows amortise a transposed copy.
    if problem.trans_b:
        return GemmAlgorithm.GEMV_NK if problem.m <= _MOST_DOT_ROWS else GemmAlgorithm.BLOCKED_NK
    if _is_for_split_k(problem, threads):
        return GemmAlgorithm.SPLIT_K
    # Split-K comes before the GEMV: it is the same order of reading, shared among threads by streams and not by columns.
    is_gemv = problem.m in _GEMV_COLUMNS and problem.n >= _GEMV_COLUMNS[problem.m]
    return GemmAlgorithm.GEMV if is_gemv else GemmAlgorithm.BLOCKED


def _is_for_split_k(problem: GemmProblem, threads: int) -> bool:
    """Whether threads share B's rows, and not its columns."""
    # The threads wait for each other in the task, for which there has to be a team; each has some streams to read.
    if threads < 2 or not libraries.has_openmp() or problem.k < SPLIT_K_KC * threads:
        return False
    least = 1 if problem.m <= _SPLIT_K_FEW_ROWS else _SPLIT_K_WIDE_COLUMNS
    return problem.m <= min(_SPLIT_K_ROWS, mr()) and least <= problem.n <= _SPLIT_K_COLUMNS


def threads_for_gemm(problem: GemmProblem, most: int) -> int:
    """Threads worth waking up for one GEMM."""
    # The larger of both: a GEMV is bound by reading B, a GEMM by multiplying.
    elements = problem.k * problem.n
    return max(1, min(most, max(problem.m * elements // _FMAS_PER_THREAD, elements // _B_ELEMENTS_PER_THREAD)))


def threads_for_batch(problem: GemmProblem, count: int, most: int) -> int:
    """Threads worth waking up for a batch, whose B may be one, and in a cache."""
    return max(1, min(most, count * problem.m * problem.k * problem.n // _FMAS_PER_THREAD))


# NumPy's BLAS takes some 10 us for them with one row: as long as what a call of a task costs.
_CONSTANT_ELEMENTS = 1 << 14
"""Elements of a constant B below which NumPy is as fast, and no library is loaded."""
# Vectors have 16 lanes: of fewer rows or columns, the second vector of a panel is mostly empty.
_CONSTANT_SIZE = 24
"""Fewest rows and columns of a constant B."""
# Smaller ones are in a cache, wherever their columns are.
PANEL_ELEMENTS = 1 << 16
"""Elements of a constant B from which on it is packed."""
# With fewer B is read once, which packing does, too.
PANEL_ROWS = 8
"""Rows of a GEMM from which on."""
# 64 MB of float32: models so large had better share the pages of their files among processes than have panels of their own.
MOST_PANEL_ELEMENTS = (1 << 24) - 1
"""Most elements of a constant B outside of the model's file."""
# The copy costs M * K, the GEMM M * K * N.
_TRANSPOSED_A_COLUMNS = 64
"""Columns of a GEMM from which on a copy of a transposed A costs little beside it."""


@dataclass(frozen=True, slots=True)
class GemmNode:
    """What is known of a node with a matrix product when its kernel is made."""

    k: int = 0
    """Rows of B, if that is a constant matrix."""
    n: int = 0
    """Its columns."""
    is_float16: bool = False
    """Whether it is float16."""
    gets_panels: bool = False
    """Whether it is worth packing."""
    trans_a: bool = False
    a_rank: int | None = None
    trans_batch: bool = False
    """Whether batches are transposed, too."""
    is_plain: bool = False
    """Whether all inputs are float32, none but B is transposed, and epilogues do all that follows."""
    stores_packed_weights: bool = False
    """Whether the session keeps packed weights in files."""


class GemmKernel(enum.Enum):
    """Kernels of matrix products."""

    CONSTANT_B = "constant B"
    """B is packed into panels, or read in place."""
    CONSTANT_B_TRANSPOSED_A = "constant B, transposed A"
    """The same; A is read transposed, or copied."""
    ONEDNN = "onednn"
    """B is packed by oneDNN."""
    SMALL = "small"
    """Small GEMMs are tasks in runs without a program, too."""
    USUAL = "usual"
    """Programs compute GEMMs by tasks where arrays allow it, other runs by NumPy."""


def select_kernel(node: GemmNode) -> GemmKernel:
    """The kernel of a node."""
    # Libraries are asked last: to ask is to load them.
    if not _has_large_constant(node) or node.trans_batch:
        is_small = node.is_plain and not node.stores_packed_weights and libraries.compiled_kernels().is_usable
        return GemmKernel.SMALL if is_small else GemmKernel.USUAL
    # Files keep panels or oneDNN's layout, but not matrices that are read in place.
    if libraries.compiled_kernels().is_usable and (not node.stores_packed_weights or node.gets_panels):
        if not node.trans_a:
            return GemmKernel.CONSTANT_B
        is_worth_copying = node.a_rank is not None and node.a_rank >= 2 and node.n >= _TRANSPOSED_A_COLUMNS
        return GemmKernel.CONSTANT_B_TRANSPOSED_A if is_worth_copying else GemmKernel.USUAL
    if node.trans_a or node.is_float16 or not libraries.onednn().is_usable:
        return GemmKernel.USUAL
    return GemmKernel.ONEDNN


def _has_large_constant(node: GemmNode) -> bool:
    return node.k * node.n >= _CONSTANT_ELEMENTS and min(node.k, node.n) >= _CONSTANT_SIZE
