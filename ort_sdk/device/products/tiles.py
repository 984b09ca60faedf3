"""Products for graphics processors: a work-group computes a tile from tiles of both matrices in local memory."""

from __future__ import annotations

from dataclasses import replace

from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.device_class import DeviceClass
from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided
from ort_sdk.device.launches import KernelSource, Launch

from .epilogue import Epilogue
from .operands import Matrices, column_position, element_macros, index_defines, parameters_for

__all__ = ["Tile", "TileForm", "multiply_tiles", "tile_for", "tile_forms"]

_TILES = """
/* a lane computes TM x TN elements, LX and LY apart, so that neighbouring lanes read and write neighbouring elements */
KERNEL WORKGROUP(LX, LY, 1) void product(PARAMETERS) {
  LOCAL(f32, ta, BK * (BM + 1));
  LOCAL(f32, tb, BK * (BN + 1));
  index_t group = GROUP(0);
  index_t row0 = group % ROW_TILES * BM; group /= ROW_TILES;
  index_t column0 = group % COLUMN_TILES * BN; group /= COLUMN_TILES;
  index_t part = group % PARTS, batch = group / PARTS;
  index_t from = part * PART_TERMS, to = from + PART_TERMS < K ? from + PART_TERMS : K;
  GLOBAL_PTR(const TA) a = A + A_OFFSET + batch / INNER * A_OUTER + batch % INNER * A_INNER;
  GLOBAL_PTR(const TB) b = B + B_OFFSET + batch / INNER * B_OUTER + batch % INNER * B_INNER;
  int lx = LANE(0), ly = LANE(1), lane = ly * LX + lx;
  f32 sum[TM][TN];
  UNROLL for (int i = 0; i < TM; i++) { UNROLL for (int j = 0; j < TN; j++) sum[i][j] = 0.0f; }
  for (index_t start = from; start < to; start += BK) {
    UNROLL for (int i = 0; i < BM * BK / (LX * LY); i++) {
      int e = i * LX * LY + lane, r = A_ROW_OF(e), q = A_TERM_OF(e);
      index_t row = row0 + r, term = start + q;
      ta[q * (BM + 1) + r] = row < M && term < to ? (f32)GET_A(a[row * A_ROW + term * A_TERM]) : 0.0f;
    }
    UNROLL for (int i = 0; i < BK * BN / (LX * LY); i++) {
      int e = i * LX * LY + lane, c = B_COLUMN_OF(e), q = B_TERM_OF(e);
      index_t column = column0 + c, term = start + q;
      tb[q * (BN + 1) + c] = column < N && term < to ? (f32)GET_B(b[B_AT(term, column)]) : 0.0f;
    }
    BARRIER();
    UNROLL for (int q = 0; q < BK; q++) {
      f32 x[TM], y[TN];
      UNROLL for (int i = 0; i < TM; i++) x[i] = ta[q * (BM + 1) + ly + i * LY];
      UNROLL for (int j = 0; j < TN; j++) y[j] = tb[q * (BN + 1) + lx + j * LX];
      UNROLL for (int i = 0; i < TM; i++) { UNROLL for (int j = 0; j < TN; j++) sum[i][j] = fma(x[i], y[j], sum[i][j]); }
    }
    BARRIER();
    /*FLUSH*/
  }
  UNROLL for (int i = 0; i < TM; i++) {
    index_t row = row0 + ly + i * LY;
    if (row < M) {
/*ROW*/
      UNROLL for (int j = 0; j < TN; j++) {
        index_t column = column0 + lx + j * LX;
        if (column < N)
/*STORE*/
      }
    }
  }
}
"""
_SUM_PARTS = """
KERNEL WORKGROUP(LANES, 1, 1) void sum_parts(PARAMETERS) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < ROWS * N) {
    index_t row = e / N, column = e % N;
    NUMBER sum = 0;
    for (index_t part = 0; part < PARTS; part++) sum += X[(row / M * PARTS + part) * M * N + row % M * N + column];
/*ROW*/
/*STORE*/
  }
}
"""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a work-group divides a product."""

    rows: int
    columns: int
    terms: int
    lane_rows: int
    lane_columns: int

    @property
    def lanes(self) -> tuple[int, int]:
        """Lanes along columns and rows."""
        return self.columns // self.lane_columns, self.rows // self.lane_rows


_LARGE, _MIDDLE, _SMALL = Tile(128, 128, 8, 8, 8), Tile(64, 64, 16, 4, 4), Tile(32, 32, 16, 4, 4)
FEWEST_PART_TERMS = 256
"""Terms of a sum that are worth a work-group of their own."""


@dataclass(frozen=True, slots=True)
class TileForm:
    """A tile, and into how many parts the terms of each sum are divided."""

    tile: Tile
    parts: int

    @property
    def name(self) -> str:
        """For tuning."""
        return f"tiles {self.tile.rows}x{self.tile.columns}x{self.tile.terms}, {self.parts} parts"


def _fitting(device: DeviceClass) -> list[Tile]:
    """Tiles that work-groups of the device have lanes and local memory for, largest first."""
    return [
        tile
        for tile in (_LARGE, _MIDDLE, _SMALL)
        if tile.lanes[0] * tile.lanes[1] <= device.most_lanes
        and 4 * tile.terms * (tile.rows + tile.columns + 2) <= device.local_bytes
    ]


def tile_for(device: DeviceClass, m: int, n: int, batch: int) -> Tile:
    """The largest tile that leaves work for all units and fits the device."""
    for tile in _fitting(device):
        tiles = -(-m // tile.rows) * -(-n // tile.columns) * batch
        if tile is _SMALL or tiles >= 2 * device.units:
            return tile if m > tile.rows // 2 or tile is _SMALL else _SMALL
    return _SMALL


def tile_forms(device: DeviceClass, matrices: Matrices) -> list[TileForm]:
    """The form that is preferred for the class, and others that may be faster on a device."""
    preferred = tile_for(device, matrices.m, matrices.n, matrices.batch)
    tiles = [preferred, *(tile for tile in _fitting(device) if tile is not preferred)]
    forms = [TileForm(tile, _parts(device, _tiles_of(tile, matrices), matrices.k)) for tile in tiles]
    return forms + [TileForm(form.tile, 1) for form in forms if form.parts > 1]


def _tiles_of(tile: Tile, matrices: Matrices) -> int:
    return -(-matrices.m // tile.rows) * -(-matrices.n // tile.columns) * matrices.batch


def _parts(device: DeviceClass, tiles: int, k: int) -> int:
    """Into how many parts the terms of each sum are divided, so that few tiles occupy all units."""
    wanted = max(1, 2 * device.units // max(tiles, 1))
    return max(1, min(wanted, k // FEWEST_PART_TERMS))


def multiply_tiles(
    context: DeviceContext,
    product: Deferred,
    matrices: Matrices,
    output: Strided,
    root: Node | None,
    form: TileForm | None = None,
) -> None:
    """Queue a product of matrices of any type that float32 holds.

    Args:
        context: of the device.
        product: what is computed.
        matrices: with any strides.
        output: dense; written row by row.
        root: expression to be written instead of the product; None for itself.
        form: one of ``tile_forms``; None for the first one.
    """
    form = tile_forms(context.device, matrices)[0] if form is None else form
    tile, parts = form.tile, form.parts
    if parts == 1:
        _launch(context, matrices, product, output, root, tile, parts)
        return
    partial = _Partial((matrices.batch, parts, matrices.m, matrices.n), product.element_type)
    sums = context.new(partial.shape, partial.element_type)
    _launch(context, replace(matrices, first_column=0, all_columns=0), partial, sums, None, tile, parts)
    _sum_parts(context, product, sums, output, root, matrices)


class _Partial(Deferred):
    """Sums of parts of the terms."""


def _launch(
    context: DeviceContext, matrices: Matrices, value: Deferred, output: Strided, root: Node | None, tile: Tile, parts: int
) -> None:
    a, b, m, k, n = matrices.a, matrices.b, matrices.m, matrices.k, matrices.n
    parameters = parameters_for([a, b, output, *Epilogue.leaves(root)])
    names = {"A": parameters.memory(a.held, a.element_type), "B": parameters.memory(b.held, b.element_type)}
    epilogue = Epilogue(value, root, output, matrices.columns, parameters)
    row_tiles, column_tiles = -(-m // tile.rows), -(-n // tile.columns)
    part_terms = -(k // -(parts * tile.terms)) * tile.terms
    numbers = {
        "ROW_TILES": row_tiles,
        "COLUMN_TILES": column_tiles,
        "PART_TERMS": part_terms,
        "INNER": matrices.inner,
        "M": m,
        "N": n,
        "K": k,
        "A_OFFSET": a.offset,
        "A_OUTER": a.strides[0],
        "A_INNER": a.strides[1],
        "B_OFFSET": b.offset,
        "B_OUTER": b.strides[0],
        "B_INNER": b.strides[1],
    }
    macros: dict[str, str | int] = {name: parameters.index(number, folds=False) for name, number in numbers.items()}
    macros |= {name: parameters.index(step) for name, step in zip(("A_ROW", "A_TERM"), a.strides[2:], strict=True)}
    macros |= column_position(matrices, parameters)
    macros |= {**names, "PARTS": parts, **_tile_macros(tile, matrices)}
    text = _TILES
    number = "sum[i][j]"
    if matrices.exact_terms:
        text, number = _exact(text), "total[i][j]"
        macros["EXACT_TERMS"] = matrices.exact_terms // tile.terms * tile.terms
    flat_row = "batch * M + row" if parts == 1 else "(batch * PARTS + part) * M + row"
    text = text.replace("/*ROW*/", "\n".join(epilogue.row(flat_row)))
    text = text.replace("/*STORE*/", "\n".join(epilogue.element(f"column + {parameters.index(matrices.first_column)}", number)))
    macros["PARAMETERS"] = parameters.text
    source = KernelSource("product", text, (*macros.items(), *index_defines(parameters)))
    groups = row_tiles * column_tiles * parts * matrices.batch
    lanes = tile.lanes
    context.submit(Launch(source, (groups, 1), lanes, tuple(parameters.arguments), tuple(parameters.writes)))


def _exact(text: str) -> str:
    """The kernel with sums that are added up as whole numbers before float32 cannot hold them any more."""
    number = "f32 sum[TM][TN];"
    flush = (
        "if ((start - from) % EXACT_TERMS == EXACT_TERMS - BK || start + BK >= to) { UNROLL for (int i = 0; i < TM; i++) {"
        " UNROLL for (int j = 0; j < TN; j++) { total[i][j] += (i32)sum[i][j]; sum[i][j] = 0.0f; } } }"
    )
    zeros = "UNROLL for (int i = 0; i < TM; i++) { UNROLL for (int j = 0; j < TN; j++) total[i][j] = 0; }"
    return text.replace(number, f"{number}\n  i32 total[TM][TN];\n  {zeros}").replace("/*FLUSH*/", flush)


def _tile_macros(tile: Tile, matrices: Matrices) -> dict[str, str | int]:
    lanes_x, lanes_y = tile.lanes
    macros: dict[str, str | int] = {"BM": tile.rows, "BN": tile.columns, "BK": tile.terms, "LX": lanes_x, "LY": lanes_y}
    macros |= {"TM": tile.lane_rows, "TN": tile.lane_columns}
    for letter, array in (("A", matrices.a), ("B", matrices.b)):
        macros |= element_macros(letter, array)
    # lanes next to each other load along the axis whose elements are
    by_term = ("((e) / BK)", "((e) % BK)")
    by_row, by_column = ("((e) % BM)", "((e) / BM)"), ("((e) % BN)", "((e) / BN)")
    row, term = by_term if matrices.a.strides[3] == 1 else by_row
    macros |= {"A_ROW_OF(e)": row, "A_TERM_OF(e)": term}
    column, term = by_term if matrices.b.strides[2] == 1 and matrices.b.strides[3] != 1 else by_column
    return macros | {"B_COLUMN_OF(e)": column, "B_TERM_OF(e)": term}


def _sum_parts(
    context: DeviceContext, product: Deferred, sums: Strided, output: Strided, root: Node | None, matrices: Matrices
) -> None:
    """Queue the kernel that adds up (batch, parts, m, n)."""
    batch, parts, m, n = sums.shape
    parameters = parameters_for([sums, output, *Epilogue.leaves(root)])
    macros: dict[str, str | int] = {"X": parameters.memory(sums.held, sums.element_type)}
    epilogue = Epilogue(product, root, output, matrices.columns, parameters)
    numbers = {"ROWS": batch * m, "M": m, "N": n}
    macros |= {name: parameters.index(number, folds=False) for name, number in numbers.items()}
    lanes = context.device.lanes
    macros |= {"PARTS": parts, "LANES": lanes, "NUMBER": COMPUTE[sums.element_type]}
    text = _SUM_PARTS.replace("/*ROW*/", "\n".join(epilogue.row("row")))
    text = text.replace("/*STORE*/", "\n".join(epilogue.element(f"column + {parameters.index(matrices.first_column)}", "sum")))
    macros["PARAMETERS"] = parameters.text
    source = KernelSource("sum_parts", text, (*macros.items(), *index_defines(parameters)))
    groups = -(-batch * m * n // lanes)
    context.submit(Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes)))
