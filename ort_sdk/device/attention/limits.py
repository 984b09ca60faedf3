"""Which keys a query may attend, as the bias of its scores says: scores of the others need not be computed."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.element_types import is_integer
from ort_sdk.device.expressions.index_space import broadcast_strides
from ort_sdk.device.expressions.nodes import Apply, Constant, Node, Strided, resolved
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.expressions.writer import ExpressionWriter, leaves_of

__all__ = ["Limit", "limits_of", "range_text"]

HIDING = -1e30
"""A bias up to this leaves nothing of a score's exponential."""
_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
"""Comparison → the same one with its operands exchanged."""
_NEGATED = {"less": "greater_equal", "less_equal": "greater", "greater": "less_equal", "greater_equal": "less"}


@dataclass(frozen=True, slots=True)
class Limit:
    """Of the range of keys that each query may attend."""

    position: Node
    """Whole numbers that broadcast to (batch, heads, queries, 1)."""
    offset: int
    """What is to be added to them."""
    is_end: bool
    """Whether it is the first key behind the range, and not the first one in it."""


def limits_of(bias: Node, keys: int) -> list[Limit]:
    """The limits that comparisons of positions in a bias set, as those of causal masks and sliding windows.

    Args:
        bias: broadcasts to (batch, heads, queries, keys).
        keys: their number.
    """
    node = resolved(bias)
    if not isinstance(node, Apply):
        return []
    if node.function.name in {"add", "cast"}:
        return [limit for operand in node.operands for limit in limits_of(operand, keys)]
    if node.function.name != "where":
        return []
    condition, chosen, other = node.operands
    if _hides(chosen):
        return [*_compared(condition, keys, hides=True), *limits_of(other, keys)]
    if _hides(other):
        return [*_compared(condition, keys, hides=False), *limits_of(chosen, keys)]
    return []


def _hides(node: Node) -> bool:
    node = resolved(node)
    return isinstance(node, Constant) and node.value <= HIDING


def _compared(condition: Node, keys: int, *, hides: bool) -> list[Limit]:
    """Limits of a condition whose truth, or else whose falsehood, hides a key."""
    node = resolved(condition)
    if not isinstance(node, Apply):
        return []
    name, operands = node.function.name, node.operands
    if name == "logical_not":
        return _compared(operands[0], keys, hides=not hides)
    if name == ("logical_or" if hides else "logical_and"):
        return [limit for operand in operands for limit in _compared(operand, keys, hides=hides)]
    if name not in _TURNED:
        return []
    left, right = operands
    first = _first_key(left, keys)
    if first is None:
        name, right, first = _TURNED[name], left, _first_key(right, keys)
    right = resolved(right)
    if first is None or right.shape[-1:] not in ((), (1,)) or not is_integer(right.element_type):
        return []
    hidden = name if hides else _NEGATED[name]
    is_behind = hidden in {"greater", "less_equal"}
    return [Limit(right, is_behind - first, is_end=hidden.startswith("greater"))]


def _first_key(node: Node, keys: int) -> int | None:
    """The number that the first key has, where an expression counts the keys."""
    node = resolved(node)
    while isinstance(node, Apply) and node.function.name == "cast" and is_integer(node.element_type):
        node = resolved(node.operands[0])
    if not isinstance(node, Strided) or node.memory is not None or not is_integer(node.element_type):
        return None
    strides = broadcast_strides(node, node.shape)
    counts = node.shape[-1:] == (keys,) and not any(strides[:-1]) and (keys == 1 or strides[-1] == 1)
    return node.offset if counts else None


def range_text(limits: Sequence[Limit], scores: tuple[int, ...], parameters: Parameters, text: str) -> str:
    """Statements that make the range of the keys that the rows of a group may attend.

    Args:
        limits: of the bias.
        scores: (batch, heads, queries, keys).
        parameters: of the kernel; gets what the limits read.
        text: template with a place for the limits of a row, ``from`` and ``to``.
    """
    lines: list[str] = []
    for number, limit in enumerate(limits):
        strides = {id(leaf): broadcast_strides(leaf, scores) for leaf in leaves_of([limit.position])}
        writer = ExpressionWriter([limit.position], strides, parameters)
        own, values = writer.lines(("b", "h", "i", "0"), f"l{number}_")
        offset = parameters.number(limit.offset, TensorElementType.INT64)
        name, order = ("to", "<") if limit.is_end else ("from", ">")
        lines += [*own, f"i64 l{number} = (i64){values[id(limit.position)]} + {offset};"]
        lines.append(f"if (l{number} {order} {name}) {name} = l{number};")
    return Template(text).safe_substitute(limits="\n".join(lines)) if lines else ""
