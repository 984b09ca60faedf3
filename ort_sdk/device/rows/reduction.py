"""Reductions of expressions to a value per row."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import COMPUTE, STORAGE
from ort_sdk.device.expressions.nodes import Node, Strided, element_count
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
    extremes = context.new((*output.shape, form.chunks), _part_type(root))
    positions = context.new(extremes.shape, TensorElementType.INT64)
    rows = [("extreme", extremes), ("position", positions)]
    context.submit(row_launch(RowWork(program, root, [axis], rows=rows), form, context.device))
    before = {"max": ">", "min": "<"}[combination] + ("=" if last else "")
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
    order = (("BEFORE", before), ("IS_LAST", int("=" in before)), ("IS_NAN(x)", "((x) != (x))"))
    defines = (("LANES", lanes), ("T", STORAGE[extremes.element_type]), *order)
    source = KernelSource("best_of_parts", _BEST, defines)
    arguments = (extremes.held, positions.held, output.held, index64(rows), index64(extremes.shape[-1]))
    context.submit(Launch(source, (-(-rows // lanes),), (lanes,), arguments, (2,)))
