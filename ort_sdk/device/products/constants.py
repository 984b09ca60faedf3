"""Values of constants alone, which are computed once."""

from __future__ import annotations

import weakref

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.expressions.index_space import broadcast_strides
from ort_sdk.device.expressions.nodes import Apply, Constant, Node, Strided, resolved
from ort_sdk.device.expressions.writer import ExpressionWriter, leaves_of
from ort_sdk.device.launches import KernelSource, Launch

from .operands import index_defines, parameters_for
from .whole_numbers import narrowest_type

__all__ = ["is_of_constants", "materialised", "packed_values"]

ROWS_AT_ONCE = 128
_PACK_VALUES = """
/* panels of W columns of an expression, each row by row, with zeros behind the last column; a lane packs rows of one panel */
KERNEL WORKGROUP(1, 1, 1) void pack_values(PARAMETERS) {
  index_t part = GROUP(0) % PARTS, panel = GROUP(0) / PARTS;
  index_t first = part * ROWS_AT_ONCE, last = first + ROWS_AT_ONCE < K ? first + ROWS_AT_ONCE : K;
  for (index_t q = first; q < last; q++) {
    for (int c = 0; c < W; c++) {
      index_t column = panel * W + c < COLUMNS ? panel * W + c : COLUMNS - 1;
/*VALUE*/
      Y[(panel * K + q) * W + c] = panel * W + c < COLUMNS ? (T)value : (T)0;
    }
  }
}
"""


def is_of_constants(node: Node) -> bool:
    """Whether a value never changes."""
    return _key(node) is not None


def materialised(context: DeviceContext, node: Node) -> Strided:
    """The value in memory; that of an expression of constants is kept with the first of them, and is constant itself."""
    node = resolved(node)
    key = _key(node)
    leaves = leaves_of([node])
    if not isinstance(node, Apply) or key is None or not leaves:
        return context.materialise(node)
    kept = leaves[0].held.derived
    found = kept.get(key)
    if found is None:
        with context.at_once():
            found = context.dense(node).held
        kept[key] = found
        found.is_constant = True
    node.computed = Strided(found, node.shape, node.element_type)
    return node.computed


def packed_values(context: DeviceContext, node: Node, width: int) -> Strided | None:
    """Panels of the columns of an expression of constants, which are kept with the first of these.

    Args:
        context: of the device.
        node: (rows, columns) of float32.
        width: columns of a panel.

    Returns:
        (panels, rows, width) of the integer type of the fewest bytes that has all numbers, else of float32; None where the
        value is no expression, or not one of constants.
    """
    node = resolved(node)
    key, leaves = _key(node), leaves_of([node])
    if not isinstance(node, Apply) or key is None or not leaves:
        return None
    rows, columns = node.shape
    shape = (-(-columns // width), rows, width)
    element_type = narrowest_type(node) or TensorElementType.FLOAT
    kept, own = leaves[0].held.derived, ("packed", width, key)
    packed = kept.get(own)
    if packed is None:
        with context.at_once():
            target = context.new(shape, element_type)
            context.submit(_pack_launch(node, target, columns))
        packed = kept[own] = target.held
    return Strided(packed, shape, element_type)


def _pack_launch(node: Node, target: Strided, columns: int) -> Launch:
    panels, rows, width = target.shape
    leaves = leaves_of([node])
    parameters = parameters_for([*leaves, target])
    writer = ExpressionWriter([node], {id(leaf): broadcast_strides(leaf, node.shape) for leaf in leaves}, parameters)
    lines, names = writer.lines(("q", "column"))
    parts = -(-rows // ROWS_AT_ONCE)
    numbers = {"PARTS": parts, "K": rows, "COLUMNS": columns}
    macros: dict[str, str | int] = {name: parameters.index(value, folds=False) for name, value in numbers.items()}
    macros |= {"Y": parameters.memory(target.held, target.element_type, written=True), "T": STORAGE[target.element_type]}
    macros |= {"W": width, "ROWS_AT_ONCE": ROWS_AT_ONCE, "PARAMETERS": parameters.text}
    text = _PACK_VALUES.replace("/*VALUE*/", "\n".join([*lines, f"f32 value = {names[id(node)]};"]))
    source = KernelSource("pack_values", text, (*macros.items(), *index_defines(parameters)))
    return Launch(source, (panels * parts,), (1,), tuple(parameters.arguments), tuple(parameters.writes))


def _key(node: Node) -> tuple[object, ...] | None:
    """What an expression of constants is, so that the same one has the same key; None where it reads others."""
    node = resolved(node)
    if isinstance(node, Constant):
        return ("constant", repr(node.value), node.shape, node.element_type)
    if isinstance(node, Strided):
        if node.memory is None or not node.memory.is_constant:
            return None
        return (weakref.ref(node.memory), node.shape, node.strides, node.offset, node.element_type)
    if not isinstance(node, Apply):
        return None
    keys = [_key(operand) for operand in node.operands]
    return None if None in keys else (node.function.name, node.shape, node.element_type, *keys)
