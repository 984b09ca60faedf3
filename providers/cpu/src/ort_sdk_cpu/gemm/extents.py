"""Matrix products of float32, of bytes that are given, and the packing of their operands."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, reaches, works
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, float_tile, panel_bytes, panel_width, panels_of, whole
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

__all__: list[str] = []

_HALF = 2
_STEPS, _SHARED_STEPS, _GROUP, _BLOCK = 128, 32, 8, 192
_SPARE, _HALF_SPARE, _COPIED_ROWS = 1024, 2048, 12
_COPY_ROW = _STEPS * FLOAT + VECTOR
_TRANSPOSED = frozenset({"dots_of_rows", "halves_in_rows", "panels_of_rows"})
_HALVES = frozenset({"halves_in_columns", "halves_in_rows"})


def _tall_rows() -> int:
    """Rows up to which whole panels are read where they lie."""
    return 24 if instruction_set() >= InstructionSet.AVX512 else 6


def _work_of(task: str, sizes: tuple[int, int, int], at_once: int) -> int:
    """Bytes of working memory that a part uses."""
    rows, columns, inner = sizes
    width, packed_rows = panel_width(), whole(at_once, panel_width())
    if task == "dots_of_rows":
        return 0
    if task == "sums_of_shares":
        return (rows * (whole(columns, width) + LANES) + _SHARED_STEPS * width) * FLOAT
    if task == "packed_panels":
        numbers = max(packed_rows * (width + _STEPS), min(packed_rows, float_tile()[0]) * (width + inner))
        # Sixteen lanes are written of each step of a group, of which fewer may be rows.
        return _SPARE + numbers * FLOAT + VECTOR
    if task in _HALVES:
        return _HALF_SPARE + (_STEPS + 1) * width * FLOAT + packed_rows * (width * FLOAT + _COPY_ROW)
    if task == "panels_of_rows":
        return _SPARE + _COPIED_ROWS * _COPY_ROW + _BLOCK * (packed_rows * FLOAT + VECTOR) + packed_rows * inner * FLOAT
    panels = 1 if at_once <= _tall_rows() else _GROUP
    return panels * (_STEPS + 1) * width * FLOAT + packed_rows * (width * FLOAT + _COPY_ROW)


def _product(module: str, task: str) -> None:
    @declares(module, task)
    def extents(
        a: At,
        b: At,
        c: At,
        addend: At,
        work: At,
        rows: int,
        columns: int,
        inner: int,
        a_row: int,
        b_row: int,
        c_row: int,
        a_step: int,
        b_step: int,
        c_step: int,
        addend_row: int,
        batch: int,
        activation: int,
        alpha: float,
        beta: float,
        slope: float,
        row_parts: int,
        column_parts: int,
        work_step: int,
        at_once: int,
        *,
        parts: int,
    ) -> Extents:
        itemsize = _HALF if task in _HALVES else FLOAT
        yield reaches(a, (batch, rows, inner), (a_step, a_row, FLOAT), FLOAT)
        if module == "packed_products":
            yield reaches(b, (batch, panels_of(columns)), (b_step, b_row), inner * panel_bytes())
        else:
            each = (columns, inner) if task in _TRANSPOSED else (inner, columns)
            yield reaches(b, (batch, *each), (b_step, b_row, itemsize), itemsize)
        yield reaches(c, (batch, rows, columns), (c_step, c_row, FLOAT), FLOAT, is_written=True)
        yield reaches(addend, (rows, columns), (addend_row, FLOAT), FLOAT, may_be_none=True)
        used = _work_of(task, (rows, columns, inner), at_once)
        if used and rows * columns * inner * batch:
            yield works(work, (parts - 1) * work_step + used)


for _name in (
    "dots_of_rows",
    "halves_in_columns",
    "halves_in_rows",
    "panels_of_columns",
    "panels_of_rows",
    "sums_of_columns",
    "sums_of_shares",
):
    _product("products", _name)
_product("packed_products", "packed_panels")


@declares("packed_products", "pack_columns")
def _pack_columns(b: At, panels: At, inner: int, columns: int, b_row: int, panel: int, work: At) -> Extents:
    yield reaches(b, (inner, columns), (b_row, FLOAT), FLOAT)
    yield reaches(panels, (panels_of(columns),), (panel,), inner * panel_bytes(), is_written=True)


@declares("packed_products", "pack_rows")
def _pack_rows(b: At, panels: At, inner: int, columns: int, b_row: int, panel: int, work: At, *, parts: int) -> Extents:
    last = (whole(columns) - LANES) % panel_width() * FLOAT + VECTOR
    yield reaches(b, (columns, inner), (b_row, FLOAT), FLOAT)
    yield reaches(panels, (panels_of(columns), inner), (panel, panel_bytes()), last, is_written=True)
    yield works(work, parts * _SPARE)
