"""Which algorithm computes a MatMulNBits of known sizes: one function of one value."""

from __future__ import annotations

import enum

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.platform.cpu_features import has_amx, has_vnni

__all__ = [
    "AMX_BF16X3_ROWS",
    "AMX_BF16X3_ROWS_OF_BYTES",
    "AMX_BF16_ROWS",
    "GEMV_ROWS",
    "NBitsAlgorithm",
    "NBitsProblem",
    "select_algorithm",
]

# Unpacking a panel costs about as much as multiplying some rows with it: with fewer, each row unpacks codes in registers.
GEMV_ROWS = {(False, False): 10, (False, True): 4, (True, False): 8, (True, True): 6}
"""Most rows of activations for which no panels are unpacked, by whether activations stay float32, and the weight is KN."""
# Below, vectors were up to a fifth faster; panels of a KN weight of bytes they unpack in the order of memory.
AMX_BF16X3_ROWS, AMX_BF16X3_ROWS_OF_BYTES = 9, 17
"""Fewest rows of activations for three bfloat16 each on the matrix unit, the second of a KN weight of 8 bits."""
# From there on a third less time than int8 on vectors, and results nearer to float32's.
AMX_BF16_ROWS = {False: 40, True: 17}
"""Fewest for one bfloat16 each, by whether the weight is KN."""
_TILE_STEPS = 32
"""Steps along K of the matrix unit's tiles."""
_BYTE_BITS = 8


@dataclass(frozen=True, slots=True)
class NBitsProblem:
    """Activations (M, K) times a weight of packed integers."""

    m: int
    k: int
    n: int
    bits: int
    block_size: int
    is_kn: bool
    """Whether the weight is DequantizeLinear's [K, N], and not MatMulNBits' [N, k_blocks, bytes]."""
    is_exact: bool
    """Whether activations stay float32, and are not rounded to 8 bits or bfloat16."""
    has_float_zero_points: bool
    """Whether zero points need not be whole numbers."""


class NBitsAlgorithm(enum.Enum):
    """Ways to compute a MatMulNBits."""

    GEMV_FLOAT32 = "gemv, float32"
    """Codes are made float32 in registers."""
    GEMV_INT8_LIMBS = "gemv, int8 limbs"
    """Activations are fixed-point numbers of four int8 limbs, for exact int8 dot products."""
    GEMV_INT8 = "gemv, int8"
    """Activations are int8 with a scale for the elements of each four bytes of codes."""
    GEMV_KN = "gemv [K, N]"
    """Sums of rows of a KN weight."""
    GEMM_FLOAT32 = "panels of float32"
    GEMM_INT8 = "panels of int8"
    AMX_BF16X3 = "amx, bf16x3"
    AMX_BF16 = "amx, bf16"


def select_algorithm(problem: NBitsProblem) -> NBitsAlgorithm:
    """The fastest algorithm known."""
    # The matrix unit wins over everything from some rows on, and has no use below: a tile has 16 rows, full or not.
    if has_amx() and problem.m >= _fewest_amx_rows(problem) and _fits_tiles(problem):
        return NBitsAlgorithm.AMX_BF16X3 if problem.is_exact else NBitsAlgorithm.AMX_BF16
    # Many rows are worth unpacking a panel for, few are bound by reading codes: see the thresholds.
    if problem.m > GEMV_ROWS[problem.is_exact, problem.is_kn]:
        return NBitsAlgorithm.GEMM_FLOAT32 if problem.is_exact else NBitsAlgorithm.GEMM_INT8
    # Codes of one column lie a row apart in a KN weight: dot products along K would read a line of cache for each.
    if problem.is_kn:
        return NBitsAlgorithm.GEMV_KN
    if not problem.is_exact:
        return NBitsAlgorithm.GEMV_INT8
    # Without VNNI an int8 dot product is several instructions, and four limbs take more than float32.
    return NBitsAlgorithm.GEMV_INT8_LIMBS if has_vnni() else NBitsAlgorithm.GEMV_FLOAT32


def _fewest_amx_rows(problem: NBitsProblem) -> int:
    if not problem.is_exact:
        return AMX_BF16_ROWS[problem.is_kn]
    return AMX_BF16X3_ROWS_OF_BYTES if problem.is_kn and problem.bits == _BYTE_BITS else AMX_BF16X3_ROWS


def _fits_tiles(problem: NBitsProblem) -> bool:
    """Whether codes less their zero points are whole numbers, which bfloat16 holds, and blocks are whole tiles."""
    # bfloat16 has 8 bits of mantissa: a code of 8 bits less a zero point is exact, a fraction of one is not.
    return not problem.has_float_zero_points and problem.block_size % _TILE_STEPS == 0
