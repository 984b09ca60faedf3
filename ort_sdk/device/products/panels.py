"""Products for processors: a lane computes a few rows of a panel of columns in vector registers.

The columns are packed panel by panel, so that a panel is read from the cache row by row; so are the rows where many panels read
them. What is packed of a constant is kept with it.
"""

from __future__ import annotations

import contextlib

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.launches import KernelSource, Launch

from .epilogue import Epilogue
from .operands import Matrices, index_defines, loading, parameters_for

__all__ = [
    "PANEL",
    "BatchSteps",
    "PanelForm",
    "group_order",
    "multiply_panels",
    "packed",
    "packed_rows",
    "panel_forms",
    "row_block",
    "row_blocks",
    "stored_row",
    "work_groups",
]

FLOAT = TensorElementType.FLOAT
PANEL = 32
"""Columns of a panel: two vectors, so that with up to 12 rows the sums fill the registers."""
PACKED_ROWS_FROM = 192
"""Columns from which on it pays to pack the rows, too."""
FEWEST_PACKED_ROWS = 5
"""Rows from which on it pays to pack columns that are not a constant's."""
TERMS_AHEAD, MOST_STREAMED_ROWS = 64, 8
"""Rows of a panel that prefetches are ahead, and up to how many rows of the product: with more, panels stay in the cache."""
GROUP_OPERATIONS = 1 << 20
"""Multiplications and additions that a lane does at least, where there are enough."""

_PACK = """
/* panels of W columns of a matrix, each row by row, with zeros behind the last column; a lane packs some rows of one panel */
KERNEL WORKGROUP(1, 1, 1) void pack(PARAMETERS) {
  index_t group = GROUP(0);
  index_t part = group % PARTS, panel = group / PARTS % PANELS, batch = group / PARTS / PANELS;
  index_t first = part * ROWS_AT_ONCE, last = first + ROWS_AT_ONCE < K ? first + ROWS_AT_ONCE : K;
  index_t count = COLUMNS - panel * W < W ? COLUMNS - panel * W : W;
  GLOBAL_PTR(const T) x = X + OFFSET + batch / INNER * OUTER_STEP + batch % INNER * INNER_STEP + panel * W * COLUMN_STEP;
  GLOBAL_PTR(f32) y = Y + ((batch * PANELS + panel) * K) * W;
  if (count == W) {
    for (index_t q = first; q < last; q++) {
      UNROLL for (int c = 0; c < W; c++) y[q * W + c] = (f32)GET(x[q * ROW_STEP + c * COLUMN_STEP]);
    }
  } else {
    for (index_t q = first; q < last; q++)
      for (int c = 0; c < W; c++) y[q * W + c] = c < count ? (f32)GET(x[q * ROW_STEP + c * COLUMN_STEP]) : 0.0f;
  }
}
"""
ROWS_AT_ONCE = 128
_WIDENED = "JOIN(convert_float, VW)(JOIN(convert_int, VW)(VLOAD(p)))"
"""A vector of integers that are stored in fewer bytes."""

_PRODUCT = """
KERNEL WORKGROUP(1, 1, 1) void product(PARAMETERS) {
  index_t group = GROUP(0);
  index_t block = BLOCK_OF(group), panel = PANEL_OF(group), batch = group / (BLOCKS * PANELS);
  index_t first = panel * PANEL;
  GLOBAL_PTR(const TB) b = B + B_OFFSET + batch / INNER * B_OUTER + batch % INNER * B_INNER + B_START;
  index_t last = (block + 1) * GROUP_ROWS < M ? (block + 1) * GROUP_ROWS : M;
  for (index_t next = block * GROUP_ROWS; next < last; next += ROWS) {
    /* the last rows are computed together with some before them, which are there already */
    index_t row = A_ROW_START;
    GLOBAL_PTR(const f32) a = A + A_OFFSET + batch / INNER * A_OUTER + batch % INNER * A_INNER + row * A_ROW;
    f32 values[ROWS * PANEL];
    {
      f32v sum[ROWS][PANEL / VW];
      UNROLL for (int i = 0; i < ROWS; i++) { UNROLL for (int j = 0; j < PANEL / VW; j++) sum[i][j] = splat_f32(0.0f); }
/*SUMS*/
      UNROLL for (int i = 0; i < ROWS; i++) {
        UNROLL for (int j = 0; j < PANEL / VW; j++) VSTORE(sum[i][j], values + i * PANEL + j * VW);
      }
    }
    for (index_t i = next - row; i < ROWS && row + i < M; i++) {
/*STORE*/
    }
  }
}
"""
_STEP = """{
  f32v column[PANEL / VW];
  UNROLL for (int j = 0; j < PANEL / VW; j++) {
    PREFETCH_AHEAD(b + (i64)(q + TERMS_AHEAD) * B_ROW + j * VW);
    column[j] = LOAD_B(b + q * B_ROW + j * VW);
  }
  UNROLL for (int i = 0; i < ROWS; i++) {
    f32v element = splat_f32(a[i * A_STEP + q * A_NEXT]);
    UNROLL for (int j = 0; j < PANEL / VW; j++) sum[i][j] = fma(element, column[j], sum[i][j]);
  }
}"""
_SUMS = f"      for (index_t q = 0; q < K; q++) {_STEP}"
_EXACT_SUMS = f"""
      i32v total[ROWS][PANEL / VW];
      UNROLL for (int i = 0; i < ROWS; i++) {{ UNROLL for (int j = 0; j < PANEL / VW; j++) total[i][j] = splat_i32(0); }}
      for (index_t start = 0; start < K; start += EXACT_TERMS) {{
        index_t end = start + EXACT_TERMS < K ? start + EXACT_TERMS : K;
        for (index_t q = start; q < end; q++) {_STEP}
        UNROLL for (int i = 0; i < ROWS; i++) {{
          UNROLL for (int j = 0; j < PANEL / VW; j++) {{
            total[i][j] += JOIN(convert_int, VW)(sum[i][j]);
            sum[i][j] = splat_f32(0.0f);
          }}
        }}
      }}"""


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """Where a panel is: elements to a batch's along both batch axes."""

    offset: int
    outer: int
    inner: int


@dataclass(frozen=True, slots=True)
class PanelForm:
    """How the rows of a product are computed."""

    rows: int
    """That a lane computes at a time."""
    packs_rows: bool
    group_operations: int = GROUP_OPERATIONS
    """Multiplications and additions of a lane."""

    @property
    def name(self) -> str:
        """For tuning."""
        return f"panels of {self.rows} rows{', packed' if self.packs_rows else ''}, {self.group_operations} operations"


def panel_forms(matrices: Matrices) -> list[PanelForm]:
    """The form that is preferred for the class, and others that may be faster on a device."""
    m = matrices.m
    packs = matrices.n >= PACKED_ROWS_FROM and m > 8
    forms = [PanelForm(rows, packs) for rows in row_blocks(m)]
    forms.append(PanelForm(forms[0].rows, packs, GROUP_OPERATIONS // 8))
    if m > 8:
        forms.append(PanelForm(forms[0].rows, not packs))
    # rows that are read where they are have none behind the last one
    return [form for form in forms if form.packs_rows or form.rows <= m]


def row_blocks(rows: int) -> list[int]:
    """How many rows a lane may compute at a time: ``row_block`` first, then fewer, for processors with few registers."""
    first = row_block(rows)
    return [first, *(size for size in (8, 6, 4) if size < first)]


def row_block(rows: int) -> int:
    """How many rows a lane computes at a time."""
    if rows <= 8:
        return rows
    return min((12, 8), key=lambda size: -(-rows // size) * size * (1.0 if size == 12 else 1.04))


def work_groups(blocks: int, others: int, operations: int, units: int, group_operations: int = GROUP_OPERATIONS) -> int:
    """Blocks of rows of one lane: enough to be worth a work-group, and few enough to leave work for all processors.

    Args:
        blocks: of rows.
        others: how many times as many there are.
        operations: multiplications and additions of a block.
        units: processors.
        group_operations: multiplications and additions that are worth a work-group.
    """
    wanted = max(1, group_operations // max(operations, 1))
    most = max(1, blocks * others // (units * 8))
    return max(1, min(wanted, most, blocks))


def group_order(panels: str, *, rows_first: bool) -> dict[str, str | int]:
    """Macros ``BLOCK_OF`` and ``PANEL_OF`` a group: what is larger is read once, by groups that follow each other.

    Args:
        panels: name of the number of panels, or of parts of them.
        rows_first: whether groups that follow each other have the same panel.
    """
    if rows_first:
        return {"BLOCK_OF(g)": "((g) % BLOCKS)", "PANEL_OF(g)": f"((g) / BLOCKS % {panels})"}
    return {"BLOCK_OF(g)": f"((g) / {panels} % BLOCKS)", "PANEL_OF(g)": f"((g) % {panels})"}


def packed(context: DeviceContext, matrix: Strided, width: int) -> tuple[Strided, BatchSteps]:
    """Panels of the columns of (outer, inner, rows, columns), as float32.

    Args:
        context: of the device.
        matrix: with any strides; repeated matrices are packed once.
        width: columns of a panel.

    Returns:
        (batches, panels, rows, width) with zeros behind the last column, and where each batch's are.
    """
    *batch, rows, columns = matrix.shape
    outer, inner = (size if step else 1 for size, step in zip(batch, matrix.strides, strict=False))
    matrix = matrix.view((outer, inner, rows, columns), matrix.strides, matrix.offset)
    panels = -(-columns // width)
    size = panels * rows * width
    steps = BatchSteps(0, inner * size if outer > 1 else 0, size if inner > 1 else 0)
    shape = (outer * inner, panels, rows, width)
    memory = matrix.held
    key = ("panels", width, matrix.shape, matrix.strides, matrix.offset, matrix.element_type)
    kept = memory.derived.get(key)
    if kept is not None:
        return Strided(kept, shape, FLOAT), steps
    with context.at_once() if memory.is_constant else contextlib.nullcontext():
        target = context.new(shape, FLOAT)
        context.submit(_pack_launch(matrix, target, inner))
    if memory.is_constant:
        memory.derived[key] = target.held
    return target, steps


def _pack_launch(matrix: Strided, target: Strided, inner: int) -> Launch:
    batches, panels, rows, width = target.shape
    parts = -(-rows // ROWS_AT_ONCE)
    parameters = parameters_for([matrix, target])
    x = parameters.memory(matrix.held, matrix.element_type)
    y = parameters.memory(target.held, FLOAT, written=True)
    numbers = {
        "PARTS": parts,
        "PANELS": panels,
        "K": rows,
        "COLUMNS": matrix.shape[3],
        "OFFSET": matrix.offset,
        "INNER": inner,
        "OUTER_STEP": matrix.strides[0],
        "INNER_STEP": matrix.strides[1],
    }
    macros: dict[str, str | int] = {name: parameters.index(value, folds=False) for name, value in numbers.items()}
    macros |= {"ROW_STEP": parameters.index(matrix.strides[2]), "COLUMN_STEP": parameters.index(matrix.strides[3])}
    macros |= {"X": x, "Y": y, "PARAMETERS": parameters.text}
    defines = (*macros.items(), ("W", width), ("ROWS_AT_ONCE", ROWS_AT_ONCE), *loading(matrix), *index_defines(parameters))
    groups = batches * panels * parts
    return Launch(KernelSource("pack", _PACK, defines), (groups,), (1,), tuple(parameters.arguments), tuple(parameters.writes))


def packed_rows(context: DeviceContext, a: Strided, rows: int) -> tuple[Strided, BatchSteps]:
    """The rows of (outer, inner, m, k), packed as ``multiply_panels`` takes them for a form of so many rows."""
    transposed = a.view((*a.shape[:2], a.shape[3], a.shape[2]), (*a.strides[:2], a.strides[3], a.strides[2]), a.offset)
    return packed(context, transposed, rows)


def multiply_panels(
    context: DeviceContext,
    product: Deferred,
    matrices: Matrices,
    output: Strided,
    root: Node | None,
    form: PanelForm,
    own_rows: tuple[Strided, BatchSteps] | None = None,
) -> None:
    """Queue a product of float32 rows, or of whole numbers as float32.

    Args:
        context: of a device whose dialect has arithmetic on vectors.
        product: what is computed.
        matrices: rows of float32; columns of any type with fewer bits, too, and packed ones of float32 or of integers.
        output: dense; written row by row.
        root: expression to be written instead of the product; None for itself.
        form: one of ``panel_forms``.
        own_rows: what ``packed_rows`` gave for the rows, if they are packed already.
    """
    m, k, n, rows = matrices.m, matrices.k, matrices.n, form.rows
    if own_rows is None and form.packs_rows:
        own_rows = packed_rows(context, matrices.a, rows)
    a, a_steps = own_rows or (matrices.a, BatchSteps(matrices.a.offset, matrices.a.strides[0], matrices.a.strides[1]))
    b, b_steps, b_row, packs_columns = _columns(context, matrices)
    parameters = parameters_for([a, b, output, *Epilogue.leaves(root)])
    names = {"A": parameters.memory(a.held, FLOAT), "B": parameters.memory(b.held, b.element_type)}
    names |= {"TB": STORAGE[b.element_type], "LOAD_B(p)": "VLOAD(p)" if b.element_type is FLOAT else _WIDENED}
    epilogue = Epilogue(product, root, output, matrices.columns, parameters)
    blocks, panels = -(-m // rows), -(-n // PANEL)
    per_group = work_groups(blocks, panels * matrices.batch, rows * PANEL * k, context.device.units, form.group_operations)
    numbers = {
        "BLOCKS": -(-blocks // per_group),
        "PANELS": panels,
        "GROUP_ROWS": per_group * rows,
        "INNER": matrices.inner,
        "M": m,
        "N": n,
        "K": k,
        "A_OFFSET": a_steps.offset,
        "A_OUTER": a_steps.outer,
        "A_INNER": a_steps.inner,
        "B_OFFSET": b_steps.offset,
        "B_OUTER": b_steps.outer,
        "B_INNER": b_steps.inner,
        "FIRST_COLUMN": matrices.first_column,
    }
    macros: dict[str, str | int] = {name: parameters.index(value, folds=False) for name, value in numbers.items()}
    macros |= {"ROWS": rows, "PANEL": PANEL, "VW": context.device.vector_width, **names}
    macros |= {"TERMS_AHEAD": TERMS_AHEAD, "PREFETCH_AHEAD(p)": "PREFETCH(p)" if m <= MOST_STREAMED_ROWS else ""}
    macros |= group_order("PANELS", rows_first=m <= n)
    macros |= _row_macros(parameters, None if own_rows else a, rows) | _column_macros(parameters, b_row, is_packed=packs_columns)
    text = _product_text(epilogue, is_exact=bool(matrices.exact_terms))
    if matrices.exact_terms:
        macros["EXACT_TERMS"] = matrices.exact_terms
    macros["PARAMETERS"] = parameters.text
    source = KernelSource("product", text, (*macros.items(), *index_defines(parameters)))
    groups = int(numbers["BLOCKS"]) * panels * matrices.batch
    context.submit(Launch(source, (groups,), (1,), tuple(parameters.arguments), tuple(parameters.writes)))


def _row_macros(parameters: Parameters, direct: Strided | None, rows: int) -> dict[str, str | int]:
    """Where a lane's rows begin, and the steps to the next row and term; ``direct`` is None where rows are packed."""
    if direct is None:
        return {"A_STEP": 1, "A_NEXT": rows, "A_ROW": "K", "A_ROW_START": "next"}
    step, following = (parameters.index(each) for each in direct.strides[2:])
    return {"A_STEP": step, "A_NEXT": following, "A_ROW": step, "A_ROW_START": f"(next + {rows} <= M ? next : M - {rows})"}


def _column_macros(parameters: Parameters, row_step: int, *, is_packed: bool) -> dict[str, str | int]:
    """Where a panel of columns begins, and the step to its next row."""
    if is_packed:
        return {"B_ROW": PANEL, "B_START": "panel * K * PANEL", "COLUMN_START": "first"}
    start = "(first + PANEL <= N ? first : N - PANEL)"
    return {"B_ROW": parameters.index(row_step), "B_START": "COLUMN_START", "COLUMN_START": start}


def _product_text(epilogue: Epilogue, *, is_exact: bool) -> str:
    """The kernel's text, with sums of whole numbers as int32 if these are exact."""
    store = [
        *epilogue.row("batch * M + row + i"),
        "index_t begin = first - COLUMN_START, count = N - first < PANEL ? N - first : PANEL;",
        *stored_row(epilogue, "values + i * PANEL + begin", "FIRST_COLUMN + first", "count"),
    ]
    text = _PRODUCT.replace("/*SUMS*/", _EXACT_SUMS if is_exact else _SUMS)
    text = text.replace("/*STORE*/", "\n".join(f"      {line}" for line in store))
    if not is_exact:
        return text
    whole = text.replace("f32 values[ROWS * PANEL]", "i32 values[ROWS * PANEL]")
    return whole.replace("VSTORE(sum[i][j], values", "VSTORE(total[i][j], values")


def _columns(context: DeviceContext, matrices: Matrices) -> tuple[Strided, BatchSteps, int, bool]:
    """The columns as they are, where a few rows read them once, or packed."""
    b = matrices.b
    if matrices.is_packed:
        return b, BatchSteps(b.offset, 0, 0), PANEL, True
    is_direct = matrices.n >= PANEL and b.strides[3] == 1 and b.element_type is FLOAT and not b.held.is_constant
    if is_direct and matrices.m < FEWEST_PACKED_ROWS:
        return b, BatchSteps(b.offset, b.strides[0], b.strides[1]), b.strides[2], False
    panels, steps = packed(context, b, PANEL)
    return panels, steps, PANEL, True


def stored_row(epilogue: Epilogue, values: str, column: str, count: str) -> list[str]:
    """Statements that write elements of a row that are next to each other, as vectors where there are enough.

    Args:
        epilogue: writes them.
        values: text of a pointer to the first one, in private memory.
        column: text of its column.
        count: text of their number.
    """
    element = epilogue.element(f"{column} + at", f"({values})[at]")
    if not epilogue.takes_vectors:
        return [f"for (index_t at = 0; at < {count}; at++)", *element]
    vector = epilogue.vector(f"{column} + at", f"VLOAD({values} + at)")
    return [
        f"if ({count} >= VW) {{",
        "  /* the last vector begins within the one before it */",
        f"  for (index_t at = 0, more = 1; more; at = at + 2 * VW <= {count} ? at + VW : {count} - VW) {{",
        *vector,
        f"    more = at + VW < {count};",
        "  }",
        "} else {",
        f"  for (index_t at = 0; at < {count}; at++)",
        *element,
        "}",
    ]
