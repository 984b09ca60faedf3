"""How a product with a weight of packed integers is computed: which compiled tasks, in what pieces, with what working memory."""

from __future__ import annotations

import math

from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk_cpu.platform.cpu_features import has_matrix_unit, has_vnni

from .operands import Operands

__all__ = ["Form", "choose_form", "form_of_few_rows"]


FEW_ROWS = {(False, False): 10, (False, True): 4, (True, False): 8, (True, True): 6}
"""Most rows of activations for which no panels are made, by whether products are of float32, and the weight is [K, N]."""
MATRIX_ROWS, MATRIX_ROWS_OF_BYTES = 9, 17
"""Fewest rows of activations for products of float32 on the processor's matrix unit, the second of a weight [K, N] of 8 bits."""
ROUNDED_ROWS = {False: 40, True: 17}
"""Fewest for products of numbers rounded to bfloat16, by whether the weight is [K, N]."""
UNIT_ROWS, UNIT_STEPS, TILE_BYTES, STAGE_BYTES = 16, 32, 1024, 4096
"""As in the compiled modules: rows and steps along K of the unit's tiles, bytes of a tile, working memory."""
UNIT_PARTS = {False: 1, True: 3}
"""Tiles of activations for each of the weight's, by whether products are of float32."""
UNIT_PANEL_STEPS = 512
"""Most steps along K of its panels: what rows of activations are split into stays in a core's second cache beside them."""
UNIT_SUMS_BYTES = 512 << 10
"""Most sums of strips whose panels take turns, so that activations are read less often."""
COLUMNS_DISTANCE, ROWS_DISTANCE = 2, {2: 8, 4: 4, 8: 2}
"""Steps along K between those of a pair, as in ``microkernels.amx_codes``: of a weight [K, N], and of the others by bits."""
ROWS_IN_TURNS = 16
"""Most rows of activations for which the panels of a weight [K, N] are made in the order in which it lies in memory."""
ROWS_AT_ONCE = 192
"""Rows of activations a panel is used for; a multiple of all kinds of tile."""
ROUNDED_ROWS_AT_ONCE = 512
"""The same of rounded numbers, which take less memory."""
TILE_ROWS = {False: 2, True: 4}
"""Rows of the smallest tile, by whether products are of float32."""
GATHERED_ROWS = 12
"""Rows of activations that are gathered for tiles of float32."""
PANEL_BYTES = {False: 96 << 10, True: 128 << 10}
"""Size of a panel, by whether products are of float32: a part of a core's second cache."""
SMALL_PANEL_BYTES = 16 << 10
"""Size of a panel for few rows of activations, which is used soon: a part of a core's first cache."""
BLOCK_ROWS = 32
"""Rows of K to a panel of a weight [K, N] made in the order in which it lies."""
SLACK_BYTES = 64 * 128
SPARE_BYTES = 4096
GATHER_BYTES = 64 + 1024
"""Working memory behind a tile's activations."""
SPAN_BYTES = 64
BYTE_BITS = 8
FLOAT_ZEROS = 2
"""``zero_points_kind`` of those that need not be whole numbers."""
MINIMAL_CHUNK = 4
"""Blocks: the zero points of so many begin at a byte."""
WORK_PER_PART = 1 << 16
"""Elements of the weight, times rows of activations, below which another thread costs more than it gains."""
ELEMENTS_PER_PART = 1 << 15
"""The same for numbers that are only read and written."""
LINES_OF_ROWS = 6
"""Lines of a row of activations as digits."""
MOST_PARTS_OF_K = 4
"""Parts of K whose results are added up."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to compute a product."""

    module: str
    task: str
    arrange: str
    """Task that brings the activations into their form."""
    planes: int
    """Its argument: elements taken apart, or rows brought together."""
    x_stride: int
    """Bytes from row to row, or tile to tile, of what it makes."""
    buffers: tuple[int, int, int]
    """Bytes for what it makes: activations, none if they are read as they are; their scales or working memory; their sums."""
    work_stride: int = 0
    k_parts: int = 1
    n_parts: int = 1
    chunk: int = 0
    rows_at_once: int = 0
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


def parts_of(weight: BlockWeight, rows: int, threads: int) -> int:
    """Threads that a product is worth."""
    return max(1, min(threads, rows * weight.size_n * weight.size_k // WORK_PER_PART))


def choose_form(weight: BlockWeight, operands: Operands, rows: int, threads: int, *, is_exact: bool) -> Form:
    """The fastest form known.

    Args:
        weight: attributes of the node.
        operands: the weight, scales and zero points.
        rows: of activations.
        threads: that there are.
        is_exact: activations are used as they are, not quantised to 8 bits or rounded to bfloat16.
    """
    parts = parts_of(weight, rows, threads)
    if has_matrix_unit() and rows >= _fewest_rows(weight, operands, is_exact=is_exact) and _is_of_tiles(weight, operands):
        return _tiles(weight, operands, rows, parts, is_exact=is_exact)
    if rows > FEW_ROWS[is_exact, operands.by_columns]:
        return _panels(weight, operands, rows, parts, is_exact=is_exact)
    if operands.by_columns:
        return _columns(weight, operands, rows, parts, is_exact=is_exact)
    if not is_exact:
        return _rows_by_lanes(weight, rows, parts)
    return _rows_by_digits(weight, rows, parts) if has_vnni() else _rows(weight, rows, parts)


def form_of_few_rows(weight: BlockWeight, operands: Operands, *, is_exact: bool) -> tuple[Form, int]:
    """The form for one row of activations on one thread, and for how many rows it is the same but for sizes of buffers."""
    return choose_form(weight, operands, 1, 1, is_exact=is_exact), FEW_ROWS[is_exact, operands.by_columns]


def _name(kind: str, weight: BlockWeight, *, is_exact: bool) -> str:
    return f"{kind}_{'f32' if is_exact else 'i8'}_{weight.bits}"


def _rows(weight: BlockWeight, rows: int, parts: int) -> Form:
    """Dot products with rows of a weight [N, ...]."""
    planes, sums = 8 // weight.bits, rows * block_bytes(weight)
    stride = padded(weight.blocks * weight.block_size, SPAN_BYTES * planes) * 4
    return Form(
        module="matmul_nbits_rows_f32",
        task=f"rows_f32_{weight.bits}",
        arrange="arrange_rows_f32",
        planes=planes,
        x_stride=stride,
        buffers=(rows * stride, SPARE_BYTES * parts, sums),
        n_parts=parts,
    )


def _rows_by_lanes(weight: BlockWeight, rows: int, parts: int) -> Form:
    """The same with activations quantised lane by lane."""
    planes = 8 // weight.bits
    stride = padded(weight.blocks * weight.block_size, SPAN_BYTES * planes) // planes * (planes + 1) + SPAN_BYTES
    return Form(
        module="matmul_nbits_rows_i8",
        task=f"rows_i8_{weight.bits}",
        arrange=f"lanes_of_rows_{weight.bits}",
        planes=planes,
        x_stride=stride,
        buffers=(rows * stride, 0, rows * block_bytes(weight)),
        n_parts=parts,
    )


def _rows_by_digits(weight: BlockWeight, rows: int, parts: int) -> Form:
    """The same as exact as of float32, of integers."""
    planes, sums = 8 // weight.bits, rows * block_bytes(weight)
    stride = padded(weight.blocks * weight.block_size, SPAN_BYTES * planes)
    return Form(
        module="matmul_nbits_rows_i32",
        task=f"rows_i32_{weight.bits}",
        arrange="digits_of_rows",
        planes=planes,
        x_stride=stride,
        buffers=(rows * LINES_OF_ROWS * stride, sums, sums),
        n_parts=parts,
    )


def _columns(weight: BlockWeight, operands: Operands, rows: int, parts: int, *, is_exact: bool) -> Form:
    """Sums of rows of a weight [K, N]."""
    sums = rows * block_bytes(weight)
    k_parts, n_parts = _parts_of_k(weight.blocks, parts)
    strips = math.ceil(math.ceil(operands.codes_stride / SPAN_BYTES) / n_parts)
    stride = weight.size_k * 4 if is_exact else padded(weight.blocks * weight.block_size, SPAN_BYTES)
    return Form(
        module="matmul_nbits_columns",
        task=_name("columns", weight, is_exact=is_exact),
        arrange="sum_rows" if is_exact else "arrange_rows_i8",
        planes=1,
        x_stride=stride,
        buffers=(0 if is_exact else rows * stride, 0 if is_exact else sums, sums),
        work_stride=SPARE_BYTES + (3 if is_exact else 2) * rows * strips * 256 * (8 // weight.bits),
        k_parts=k_parts,
        n_parts=n_parts,
    )


def _parts_of_k(units: int, parts: int) -> tuple[int, int]:
    """Parts of K and of N; of K as many as can be added up, so that whole rows are read."""
    k_parts = max(count for count in range(1, min(parts, MOST_PARTS_OF_K, units) + 1) if parts % count == 0)
    return k_parts, parts // k_parts


def _panels(weight: BlockWeight, operands: Operands, rows: int, parts: int, *, is_exact: bool) -> Form:
    """Panels of the weight."""
    planes, layout = 8 // weight.bits, "columns" if operands.by_columns else "rows"
    pairs = 2 * planes if operands.by_columns else 1
    takes_turns = operands.by_columns and rows <= ROWS_IN_TURNS
    chunk = max(1, BLOCK_ROWS // weight.block_size) if takes_turns else _chunk(weight, operands, pairs, rows, is_exact=is_exact)
    at_once = min(padded(rows, TILE_ROWS[is_exact]), ROWS_AT_ONCE)
    k_parts, n_parts = _parts_of_k(math.ceil(weight.blocks / chunk), parts) if takes_turns else (1, parts)
    group = math.ceil(math.ceil(operands.codes_stride / SPAN_BYTES) / n_parts) if takes_turns else 1
    panel = chunk * weight.block_size * (128 if is_exact else 32) + SLACK_BYTES
    x_planes, whole = 1 if operands.by_columns else planes, padded(rows, TILE_ROWS[is_exact])
    x_stride, sums = padded(weight.blocks * weight.block_size, SPAN_BYTES * x_planes), whole * block_bytes(weight)
    buffers = (whole * x_stride, sums, sums)
    if is_exact:
        x_stride = weight.size_k * 4 * GATHERED_ROWS + GATHER_BYTES
        buffers = (math.ceil(rows / GATHERED_ROWS) * x_stride, 0, 0)
    return Form(
        module=f"matmul_nbits_panels_{'f32' if is_exact else 'i8'}",
        task=_name(f"panels_of_{layout}", weight, is_exact=is_exact),
        arrange="gather_tiles" if is_exact else "arrange_rows_i8",
        planes=GATHERED_ROWS if is_exact else x_planes,
        x_stride=x_stride,
        buffers=buffers,
        work_stride=padded(SPARE_BYTES + pairs * (group * at_once * 128 + chunk * 256 + panel), SPAN_BYTES),
        k_parts=k_parts,
        n_parts=n_parts,
        chunk=chunk,
        rows_at_once=at_once,
        group=group,
    )


def _fewest_rows(weight: BlockWeight, operands: Operands, *, is_exact: bool) -> int:
    """Of activations, for products on the processor's matrix unit."""
    if not is_exact:
        return ROUNDED_ROWS[operands.by_columns]
    return MATRIX_ROWS_OF_BYTES if operands.by_columns and weight.bits == BYTE_BITS else MATRIX_ROWS


def _is_of_tiles(weight: BlockWeight, operands: Operands) -> bool:
    """Whether codes less their zero points are whole numbers, and blocks are whole tiles."""
    return operands.zero_points_kind != FLOAT_ZEROS and weight.block_size % UNIT_STEPS == 0


def _tiles(weight: BlockWeight, operands: Operands, rows: int, parts: int, *, is_exact: bool) -> Form:
    """Panels of the weight for the processor's matrix unit."""
    pairs, layout = (2 * (8 // weight.bits), "columns") if operands.by_columns else (1, "rows")
    most = ROWS_AT_ONCE if is_exact else ROUNDED_ROWS_AT_ONCE
    unit, at_once = _chunk_unit(weight, operands), min(padded(rows, UNIT_ROWS), most)
    chunk = min(padded(weight.blocks, unit), padded(UNIT_PANEL_STEPS // weight.block_size, unit))
    panel_bytes = chunk * weight.block_size // UNIT_STEPS * 2 * TILE_BYTES
    strip_bytes, strips = pairs * at_once * 128, math.ceil(math.ceil(weight.size_n / (32 * pairs)) / parts)
    group = max(1, min(strips, UNIT_SUMS_BYTES // strip_bytes))
    distance = COLUMNS_DISTANCE if operands.by_columns else ROWS_DISTANCE[weight.bits]
    x_stride = weight.blocks * weight.block_size // UNIT_STEPS * UNIT_PARTS[is_exact] * TILE_BYTES
    return Form(
        module="matmul_nbits_tiles",
        task=f"{'tiles' if is_exact else 'numbers'}_of_{layout}_{weight.bits}",
        arrange=f"{'parts_of_rows' if is_exact else 'rounded_rows'}_{distance}",
        planes=1,
        x_stride=x_stride,
        buffers=(math.ceil(rows / UNIT_ROWS) * x_stride, 0, 0),
        work_stride=padded(SPARE_BYTES + group * strip_bytes + pairs * (chunk * 256 + panel_bytes) + STAGE_BYTES, SPAN_BYTES),
        n_parts=parts,
        chunk=chunk,
        rows_at_once=at_once,
        group=group,
    )


def _chunk_unit(weight: BlockWeight, operands: Operands) -> int:
    """Blocks whose codes and zero points begin and end together with what is read at a time."""
    lanes = weight.block_size // (4 if operands.by_columns else 4 * (8 // weight.bits))
    return max(MINIMAL_CHUNK, 16 // lanes)


def _chunk(weight: BlockWeight, operands: Operands, pairs: int, rows: int, *, is_exact: bool) -> int:
    """Blocks to a panel."""
    unit = _chunk_unit(weight, operands)
    per_block = pairs * weight.block_size * (128 if is_exact else 32)
    panel = SMALL_PANEL_BYTES if rows <= ROWS_IN_TURNS else PANEL_BYTES[is_exact]
    return min(padded(weight.blocks, unit), max(unit, panel // per_block // unit * unit))
