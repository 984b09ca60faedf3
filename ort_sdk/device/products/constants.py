"""Values of constants alone, which are computed once."""

from __future__ import annotations

import weakref

from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Apply, Constant, Node, Strided, resolved
from ort_sdk.device.expressions.writer import leaves_of

__all__ = ["materialised"]


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
