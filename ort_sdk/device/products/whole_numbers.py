"""Which whole numbers an expression can have, by its types alone."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.device.expressions.nodes import Apply, Constant, Node, resolved

__all__ = ["FLOAT32_EXACT", "largest_magnitude", "narrowest_type"]

FLOAT32_EXACT = 1 << 24
"""Whole numbers up to this magnitude are exact in float32."""

_RANGES = {
    TensorElementType.BOOL: (0, 1),
    TensorElementType.INT8: (-128, 127),
    TensorElementType.UINT8: (0, 255),
    TensorElementType.INT16: (-32768, 32767),
    TensorElementType.UINT16: (0, 65535),
}


def largest_magnitude(node: Node) -> int | None:
    """A bound of the magnitudes of an expression's whole numbers; None where it may have others, or none is known."""
    found = _range(resolved(node))
    return None if found is None else max(-found[0], found[1])


def narrowest_type(node: Node) -> TensorElementType | None:
    """The integer type of the fewest bytes that has all of an expression's whole numbers; None where it may have others."""
    found = _range(resolved(node))
    if found is None:
        return None
    types = (TensorElementType.INT8, TensorElementType.UINT8, TensorElementType.INT16)
    return next((each for each in types if _RANGES[each][0] <= found[0] and found[1] <= _RANGES[each][1]), None)


def _range(node: Node) -> tuple[int, int] | None:
    if isinstance(node, Constant) and float(node.value).is_integer():
        return int(node.value), int(node.value)
    known = _RANGES.get(node.element_type)
    if known is not None or not isinstance(node, Apply):
        return known
    operands = [_range(resolved(operand)) for operand in node.operands]
    whole = [operand for operand in operands if operand is not None]
    if len(whole) != len(operands):
        return None
    if node.function.name == "cast":
        return whole[0]
    if node.function.name == "subtract":
        (low, high), (less, most) = whole
        return low - most, high - less
    return None
