"""Reductions of expressions to a value per row."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.nodes import Node, Strided

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
    work = RowWork(position_program(combination, kind, last=last), root, [axis], rows=[("position", output)])
    context.submit(row_launch(work, work.form(context.device, context.launcher.dialect), context.device))
