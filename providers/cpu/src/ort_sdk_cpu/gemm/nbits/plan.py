"""How a MatMulNBits is computed: by which compiled tasks, in what blocks, with how much workspace.

``select.py`` says which algorithm. A plan adds to it the task that brings activations into the form it reads, how threads share K
and N (``k_parts`` by ``n_parts`` jobs), and for panels their size: ``chunk`` blocks of a strip of columns, used for ``mc`` rows
of activations; strips of a ``group`` take turns, so that their sums, and not their panels, are kept.
"""

from __future__ import annotations

import math

from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight

from .arguments import gemm_amx, gemm_f32, gemm_i8, gemv_kn, gemv_nk_f32, gemv_nk_i8, gemv_nk_i32
from .arguments.gemm_f32 import PACKED_ROWS
from .arguments.gemm_i8 import SLACK_BYTES
from .arguments.gemv_nk_i32 import LINES
from .arguments.matmul_nbits import FLOAT_ZERO_POINTS, WORKSPACE_START
from .arguments.matmul_nbits import STRIP_BYTES as SPAN_BYTES
from .operands import NBitsOperands
from .select import GEMV_ROWS, NBitsAlgorithm, NBitsProblem, select_algorithm

__all__ = ["ELEMENTS_PER_THREAD", "SPAN_BYTES", "NBitsPlan", "block_bytes", "padded", "plan_gemv", "plan_matmul", "problem_of"]

_TILE_ROWS, _TILE_STEPS, _TILE_BYTES, _STAGE_BYTES = 16, 32, 1024, 4096
"""Of the matrix unit: rows and steps along K of a tile, its bytes, and workspace for a block's sums."""
_TERMS = {False: 1, True: 3}
"""bfloat16 of an activation, by whether it stays as exact as float32."""
# What rows of activations are split into stays in a core's second cache beside a panel of so many steps.
AMX_PANEL_STEPS = 512
"""Most steps along K of a panel for the matrix unit."""
# Activations are read once for all strips of a group.
AMX_SUMS_BYTES = 512 << 10
"""Most sums of strips whose panels take turns."""
_KN_DISTANCE, _NK_DISTANCE = 2, {2: 8, 4: 4, 8: 2}
"""Steps along K between those of a pair of bfloat16, as in ``microkernels.amx_codes``: of a KN, and an NK weight by bits."""
# Then a panel's sums of all strips fit a cache, and memory is read in order, which processors foresee.
_ROWS_IN_TURNS = 16
"""Most rows of activations for which the panels of a KN weight are unpacked in the order of memory."""
# A multiple of the rows of all register tiles; sums of a strip stay in a second cache.
MC = 192
"""Rows of activations a panel is used for."""
MC_BF16 = 512
"""The same of activations rounded to bfloat16, which take less memory."""
_REGISTER_ROWS = {False: 2, True: 4}
"""Rows of the smallest register tile, by whether activations stay float32."""
PANEL_BYTES = {False: 96 << 10, True: 128 << 10}
"""Size of a panel, by whether activations stay float32: a part of a core's second cache."""
_SMALL_PANEL_BYTES = 16 << 10
"""Size of a panel for few rows of activations, which is used soon: a part of a core's first cache."""
_ROWS_OF_TURN = 32
"""Rows of K to a panel of a KN weight that is unpacked in the order of memory."""
_PACK_BYTES = 64 + 1024
"""Workspace behind a tile of packed activations."""
# The zero points of so many blocks begin at a byte, whatever their bits.
_LEAST_CHUNK = 4
"""Fewest blocks to a panel."""
# Below, another thread costs more to wake than it saves.
_WORK_PER_THREAD = 1 << 16
"""Elements of the weight, times rows of activations, that are worth a thread."""
ELEMENTS_PER_THREAD = 1 << 15
"""The same for numbers that are only read and written."""
# Each part of K has results of its own, which are added up: more of them would be more to add than reading in order saves.
_MOST_K_PARTS = 4
"""Most parts of K."""


@dataclass(frozen=True, slots=True)
class NBitsPlan:
    """A MatMulNBits's tasks."""

    algorithm: NBitsAlgorithm
    module: str
    task: str
    activations_task: str
    """Task that brings the activations into their form."""
    planes: int
    """Its argument: codes of a byte by whose positions elements are put in order, or rows packed together."""
    x_stride: int
    """Bytes from row to row, or tile to tile, of what it makes."""
    buffers: tuple[int, int, int]
    """Bytes for what it makes: activations, none if they are read as they are; their scales or workspace; their sums."""
    workspace_stride: int = 0
    k_parts: int = 1
    n_parts: int = 1
    chunk: int = 0
    mc: int = 0
    group: int = 1

    @property
    def jobs(self) -> int:
        """Pieces of the work."""
        return self.k_parts * self.n_parts


def block_bytes(weight: BlockWeight) -> int:
    """Bytes of a float32 for each block of a row and one more, in whole vectors."""
    return padded(weight.blocks + 1, 16) * 4


def padded(size: int, unit: int) -> int:
    """Size in whole units."""
    return math.ceil(size / unit) * unit


def problem_of(weight: BlockWeight, operands: NBitsOperands, rows: int, *, is_exact: bool) -> NBitsProblem:
    """What the algorithm depends on."""
    has_float_zero_points = operands.zero_points_kind == FLOAT_ZERO_POINTS
    return NBitsProblem(
        rows, weight.size_k, weight.size_n, weight.bits, weight.block_size, operands.is_kn, is_exact, has_float_zero_points
    )


def plan_matmul(weight: BlockWeight, operands: NBitsOperands, rows: int, threads: int, *, is_exact: bool) -> NBitsPlan:
    """The plan of a MatMulNBits.

    Args:
        weight: attributes of the node.
        operands: the weight, scales and zero points.
        rows: of activations.
        threads: that there are.
        is_exact: activations are used as they are, not quantised to 8 bits or rounded to bfloat16.
    """
    work = rows * weight.size_n * weight.size_k
    threads = max(1, min(threads, work // _WORK_PER_THREAD))
    algorithm = select_algorithm(problem_of(weight, operands, rows, is_exact=is_exact))
    match algorithm:
        case NBitsAlgorithm.AMX_BF16 | NBitsAlgorithm.AMX_BF16X3:
            return _amx(algorithm, weight, operands, rows, threads)
        case NBitsAlgorithm.GEMM_FLOAT32 | NBitsAlgorithm.GEMM_INT8:
            return _gemm(algorithm, weight, operands, rows, threads)
        case NBitsAlgorithm.GEMV_KN:
            return _gemv_kn(weight, operands, rows, threads, is_exact=is_exact)
        case NBitsAlgorithm.GEMV_INT8:
            return _gemv_int8(weight, rows, threads)
        case NBitsAlgorithm.GEMV_INT8_LIMBS:
            return _gemv_int8_limbs(weight, rows, threads)
        case NBitsAlgorithm.GEMV_FLOAT32:
            return _gemv_float32(weight, rows, threads)


def plan_gemv(weight: BlockWeight, operands: NBitsOperands, *, is_exact: bool) -> tuple[NBitsPlan, int]:
    """The plan for one row of activations on one thread, and for how many rows it is the same but for sizes of buffers."""
    return plan_matmul(weight, operands, 1, 1, is_exact=is_exact), GEMV_ROWS[is_exact, operands.is_kn]


def _name(kind: str, weight: BlockWeight, *, is_exact: bool) -> str:
    return f"{kind}_{'f32' if is_exact else 'i8'}_{weight.bits}"


def _gemv_float32(weight: BlockWeight, rows: int, threads: int) -> NBitsPlan:
    planes, sums = 8 // weight.bits, rows * block_bytes(weight)
    stride = padded(weight.blocks * weight.block_size, SPAN_BYTES * planes) * 4
    return NBitsPlan(
        NBitsAlgorithm.GEMV_FLOAT32,
        gemv_nk_f32.MODULE,
        task=f"gemv_nk_f32_{weight.bits}",
        activations_task="deinterleave_f32",
        planes=planes,
        x_stride=stride,
        buffers=(rows * stride, WORKSPACE_START * threads, sums),
        n_parts=threads,
    )


def _gemv_int8(weight: BlockWeight, rows: int, threads: int) -> NBitsPlan:
    planes = 8 // weight.bits
    stride = padded(weight.blocks * weight.block_size, SPAN_BYTES * planes) // planes * (planes + 1) + SPAN_BYTES
    return NBitsPlan(
        NBitsAlgorithm.GEMV_INT8,
        gemv_nk_i8.MODULE,
        task=f"gemv_nk_i8_{weight.bits}",
        activations_task=f"quantize_lanes_{weight.bits}",
        planes=planes,
        x_stride=stride,
        buffers=(rows * stride, 0, rows * block_bytes(weight)),
        n_parts=threads,
    )


def _gemv_int8_limbs(weight: BlockWeight, rows: int, threads: int) -> NBitsPlan:
    planes, sums = 8 // weight.bits, rows * block_bytes(weight)
    stride = padded(weight.blocks * weight.block_size, SPAN_BYTES * planes)
    return NBitsPlan(
        NBitsAlgorithm.GEMV_INT8_LIMBS,
        gemv_nk_i32.MODULE,
        task=f"gemv_nk_i32_{weight.bits}",
        activations_task="quantize_limbs",
        planes=planes,
        x_stride=stride,
        buffers=(rows * LINES * stride, sums, sums),
        n_parts=threads,
    )


def _gemv_kn(weight: BlockWeight, operands: NBitsOperands, rows: int, threads: int, *, is_exact: bool) -> NBitsPlan:
    sums = rows * block_bytes(weight)
    k_parts, n_parts = _parts(weight.blocks, threads)
    strips = math.ceil(math.ceil(operands.codes_stride / SPAN_BYTES) / n_parts)
    stride = weight.size_k * 4 if is_exact else padded(weight.blocks * weight.block_size, SPAN_BYTES)
    return NBitsPlan(
        NBitsAlgorithm.GEMV_KN,
        gemv_kn.MODULE,
        task=_name("gemv_kn", weight, is_exact=is_exact),
        activations_task="block_sums" if is_exact else "quantize_blocks",
        planes=1,
        x_stride=stride,
        buffers=(0 if is_exact else rows * stride, 0 if is_exact else sums, sums),
        workspace_stride=WORKSPACE_START + (3 if is_exact else 2) * rows * strips * 256 * (8 // weight.bits),
        k_parts=k_parts,
        n_parts=n_parts,
    )


def _parts(units: int, threads: int) -> tuple[int, int]:
    """Parts of K and of N; of K as many as can be added up, so that whole rows are read."""
    k_parts = max(count for count in range(1, min(threads, _MOST_K_PARTS, units) + 1) if threads % count == 0)
    return k_parts, threads // k_parts


def _gemm(algorithm: NBitsAlgorithm, weight: BlockWeight, operands: NBitsOperands, rows: int, threads: int) -> NBitsPlan:
    """Panels of float32 or of int8."""
    is_exact, planes = algorithm is NBitsAlgorithm.GEMM_FLOAT32, 8 // weight.bits
    pairs = 2 * planes if operands.is_kn else 1
    takes_turns = operands.is_kn and rows <= _ROWS_IN_TURNS
    chunk = (
        max(1, _ROWS_OF_TURN // weight.block_size) if takes_turns else _chunk(weight, operands, pairs, rows, is_exact=is_exact)
    )
    mc = min(padded(rows, _REGISTER_ROWS[is_exact]), MC)
    k_parts, n_parts = _parts(math.ceil(weight.blocks / chunk), threads) if takes_turns else (1, threads)
    group = math.ceil(math.ceil(operands.codes_stride / SPAN_BYTES) / n_parts) if takes_turns else 1
    panel = chunk * weight.block_size * (128 if is_exact else 32) + SLACK_BYTES
    x_planes, whole = 1 if operands.is_kn else planes, padded(rows, _REGISTER_ROWS[is_exact])
    x_stride, sums = padded(weight.blocks * weight.block_size, SPAN_BYTES * x_planes), whole * block_bytes(weight)
    buffers = (whole * x_stride, sums, sums)
    if is_exact:
        x_stride = weight.size_k * 4 * PACKED_ROWS + _PACK_BYTES
        buffers = (math.ceil(rows / PACKED_ROWS) * x_stride, 0, 0)
    return NBitsPlan(
        algorithm,
        gemm_f32.MODULE if is_exact else gemm_i8.MODULE,
        task=_name("gemm_kn" if operands.is_kn else "gemm_nk", weight, is_exact=is_exact),
        activations_task="pack_rows_f32" if is_exact else "quantize_blocks",
        planes=PACKED_ROWS if is_exact else x_planes,
        x_stride=x_stride,
        buffers=buffers,
        workspace_stride=padded(WORKSPACE_START + pairs * (group * mc * 128 + chunk * 256 + panel), SPAN_BYTES),
        k_parts=k_parts,
        n_parts=n_parts,
        chunk=chunk,
        mc=mc,
        group=group,
    )


def _amx(algorithm: NBitsAlgorithm, weight: BlockWeight, operands: NBitsOperands, rows: int, threads: int) -> NBitsPlan:
    """Panels of bfloat16 for the matrix unit."""
    is_exact = algorithm is NBitsAlgorithm.AMX_BF16X3
    pairs, layout = (2 * (8 // weight.bits), "kn") if operands.is_kn else (1, "nk")
    unit, mc = _chunk_unit(weight, operands), min(padded(rows, _TILE_ROWS), MC if is_exact else MC_BF16)
    chunk = min(padded(weight.blocks, unit), padded(AMX_PANEL_STEPS // weight.block_size, unit))
    panel_bytes = chunk * weight.block_size // _TILE_STEPS * 2 * _TILE_BYTES
    strip_bytes, strips = pairs * mc * 128, math.ceil(math.ceil(weight.size_n / (32 * pairs)) / threads)
    group = max(1, min(strips, AMX_SUMS_BYTES // strip_bytes))
    distance = _KN_DISTANCE if operands.is_kn else _NK_DISTANCE[weight.bits]
    x_stride = weight.blocks * weight.block_size // _TILE_STEPS * _TERMS[is_exact] * _TILE_BYTES
    used = WORKSPACE_START + group * strip_bytes + pairs * (chunk * 256 + panel_bytes) + _STAGE_BYTES
    return NBitsPlan(
        algorithm,
        gemm_amx.MODULE,
        task=f"gemm_{layout}_{'bf16x3' if is_exact else 'bf16'}_{weight.bits}",
        activations_task=f"{'split_bf16' if is_exact else 'round_bf16'}_{distance}",
        planes=1,
        x_stride=x_stride,
        buffers=(math.ceil(rows / _TILE_ROWS) * x_stride, 0, 0),
        workspace_stride=padded(used, SPAN_BYTES),
        n_parts=threads,
        chunk=chunk,
        mc=mc,
        group=group,
    )


def _chunk_unit(weight: BlockWeight, operands: NBitsOperands) -> int:
    """Blocks whose codes and zero points begin and end together with what is read at a time."""
    lanes = weight.block_size // (4 if operands.is_kn else 4 * (8 // weight.bits))
    return max(_LEAST_CHUNK, 16 // lanes)


def _chunk(weight: BlockWeight, operands: NBitsOperands, pairs: int, rows: int, *, is_exact: bool) -> int:
    """Blocks to a panel."""
    unit = _chunk_unit(weight, operands)
    per_block = pairs * weight.block_size * (128 if is_exact else 32)
    panel = _SMALL_PANEL_BYTES if rows <= _ROWS_IN_TURNS else PANEL_BYTES[is_exact]
    return min(padded(weight.blocks, unit), max(unit, panel // per_block // unit * unit))
