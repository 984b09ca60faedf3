"""Reductions of expressions to a value per row."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import COMPUTE, STORAGE
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.index_space import decoded
from ort_sdk.device.expressions.nodes import Node, Strided, element_count
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.expressions.writer import ExpressionWriter
from ort_sdk.device.launches import KernelSource, Launch, index64

from .launch import RowWork, row_launch
from .program import position_program, reduction_program

__all__ = ["find_position", "reduce_rows"]


def reduce_rows(context: DeviceContext, name: str, node: Node, axes: Sequence[int], output: Strided) -> None:
    """Queue what combines elements along axes.

    Args:
        context: of the device.
        name: one of ``COMBINATIONS``.
        node: elements, of the output's type.
        axes: that are reduced, ascending.
        output: dense, of the shape of the other axes, in order.
    """
    root, device = context.ready(node), context.device
    work = RowWork(reduction_program(name), root, axes, rows=[("result", output)])
    form = work.form(device, context.launcher.dialect)
    if form.chunks == 1:
        context.submit(row_launch(work, form, device))
        return
    # parts of long rows, and then their results
    parts = context.new((*output.shape, form.chunks), _part_type(root))
    split = RowWork(work.program, root, axes, rows=[("result", parts)])
    context.submit(row_launch(split, form, device))
    reduce_rows(context, name, parts, [len(output.shape)], output)


def _part_type(node: Node) -> TensorElementType:
    return TensorElementType.FLOAT if COMPUTE[node.element_type] == "f32" else node.element_type


def find_position(
    context: DeviceContext, combination: str, node: Node, axis: int, output: Strided, *, last: bool = False
) -> None:
    """Queue what finds the largest or smallest elements along an axis; a NaN is before all others.

    Args:
        context: of the device.
        combination: ``max`` or ``min``.
        node: elements.
        axis: that is searched.
        output: dense, of int64, of the shape of the other axes.
        last: of equal elements the last, and not the first.
    """
    root = context.ready(node)
    kind = "i32" if root.shape[axis] < 1 << 31 else "i64"
    program = position_program(combination, kind, last=last)
    form = RowWork(program, root, [axis]).form(context.device, context.launcher.dialect)
    if form.chunks == 1:
        context.submit(row_launch(RowWork(program, root, [axis], rows=[("position", output)]), form, context.device))
        return
    before = {"max": ">", "min": "<"}[combination] + ("=" if last else "")
    if context.device.is_cpu and isinstance(root, Strided):
        _find_in_best_part(context, combination, root, axis, output, before)
        return
    extremes = context.new((*output.shape, form.chunks), _part_type(root))
    positions = context.new(extremes.shape, TensorElementType.INT64)
    rows = [("extreme", extremes), ("position", positions)]
    context.submit(row_launch(RowWork(program, root, [axis], rows=rows), form, context.device))
    _best_of_parts(context, extremes, positions, output, before)


_BEST = """
/* index[row] = the position (rows, parts) of the part whose extreme is before all others, a NaN before all numbers */
KERNEL WORKGROUP(LANES, 1, 1) void best_of_parts(
    GLOBAL(const T) extremes, GLOBAL(const i64) positions, GLOBAL(i64) index, i64 rows, i64 parts) {
  i64 row = (i64)GROUP(0) * LANES + LANE(0);
  if (row < rows) {
    T best = extremes[row * parts];
    i64 at = positions[row * parts];
    for (i64 p = row * parts + 1; p < (row + 1) * parts; p++) {
      T next = extremes[p];
      if (next BEFORE best || (IS_NAN(next) & (IS_LAST | !IS_NAN(best)))) { best = next; at = positions[p]; }
    }
    index[row] = at;
  }
}
"""


def _best_of_parts(context: DeviceContext, extremes: Strided, positions: Strided, output: Strided, before: str) -> None:
    lanes, rows = context.device.lanes, element_count(output.shape)
    defines: list[tuple[str, str | int]] = [("LANES", lanes), ("T", STORAGE[extremes.element_type]), *_order(before)]
    source = KernelSource("best_of_parts", _BEST, tuple(defines))
    arguments = (extremes.held, positions.held, output.held, index64(rows), index64(extremes.shape[-1]))
    context.submit(Launch(source, (-(-rows // lanes),), (lanes,), arguments, (2,)))


def _order(before: str) -> tuple[tuple[str, str | int], ...]:
    """Macros that say which of two elements comes first."""
    return ("BEFORE", before), ("IS_LAST", int("=" in before)), ("IS_NAN(x)", "((x) != (x))")


SEARCHED_ELEMENTS = 4096
"""Elements of a part of a long row of which a processor looks for the best one, if the part has it."""
_SEARCH = """
/* y[row] = the position of the first element, or of the last one, that is the best of the first or last part that has it */
KERNEL WORKGROUP(1, 1, 1) void search_best_part(PARAMETERS) {
  index_t row = GROUP(0), part = 0;
/*ROW*/
  T best = EXTREMES[row * PARTS];
  for (index_t p = 1; p < PARTS; p++) {
    T next = EXTREMES[row * PARTS + p];
    if (next BEFORE best || (IS_NAN(next) & (IS_LAST | !IS_NAN(best)))) { best = next; part = p; }
  }
  index_t begin = part * PART, end = begin + PART < COUNT ? begin + PART : COUNT, found = begin;
  for (index_t step = 0; step < end - begin; step++) {
    index_t j = IS_LAST ? end - 1 - step : begin + step;
/*ELEMENT*/
    if (x == best || (IS_NAN(x) && IS_NAN(best))) { found = j; break; }
  }
  INDEX[row] = (i64)found;
}
"""


def _find_in_best_part(context: DeviceContext, combination: str, array: Strided, axis: int, output: Strided, before: str) -> None:
    """Queue what finds the best elements of parts, each in one pass, and then where the best part has it.

    Only of elements in memory: what is computed again on vectors of another width may be rounded in another way.
    """
    device = context.device
    work = RowWork(reduction_program(combination), array, [axis])
    form = work.form(device, context.launcher.dialect)
    (count,) = form.space.inner
    part = min(form.chunk, SEARCHED_ELEMENTS)
    form = dataclasses.replace(form, chunk=part, chunks=-(-count // part))
    extremes = context.new((*output.shape, form.chunks), _part_type(array))
    context.submit(row_launch(dataclasses.replace(work, rows=[("result", extremes)]), form, device))
    parameters = Parameters(wide=is_wide([array, extremes, output]))
    macros: dict[str, str | int] = {
        "EXTREMES": parameters.memory(extremes.held, extremes.element_type),
        "INDEX": parameters.memory(output.held, output.element_type, written=True),
        "T": STORAGE[extremes.element_type],
        "PARTS": parameters.index(form.chunks, folds=False),
        "PART": parameters.index(part, folds=False),
        "COUNT": parameters.index(count, folds=False),
    }
    space = form.space
    outer = [f"i{place}" for place in range(len(space.outer))]
    sizes = [parameters.index(size) if place else "" for place, size in enumerate(space.outer)]
    writer = ExpressionWriter([array], space.strides, parameters)
    lines, names = writer.lines([*outer, "j"])
    text = _SEARCH.replace("/*ROW*/", "\n".join(decoded("row", outer, sizes)))
    text = text.replace("/*ELEMENT*/", "\n".join([*lines, f"T x = (T){names[id(array)]};"]))
    macros["PARAMETERS"] = parameters.text
    defines = [*macros.items(), *_order(before), *([("INDEX64", 1)] if parameters.is_wide else [])]
    source = KernelSource("search_best_part", text, tuple(defines))
    groups = (element_count(output.shape),)
    context.submit(Launch(source, groups, (1,), tuple(parameters.arguments), tuple(parameters.writes)))
