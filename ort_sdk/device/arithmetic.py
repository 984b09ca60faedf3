"""Arithmetic on arrays: promotes types, broadcasts shapes, and makes an expression."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ort_sdk.api import InvalidArgument, TensorElementType

from .array import OPERATIONS, DeviceArray
from .context import DeviceContext
from .element_types import is_floating
from .expressions.functions import FUNCTIONS
from .expressions.nodes import MOST_LEAVES, MOST_NODES, Apply, Constant, Deferred, Node, Strided, resolved

__all__ = [
    "applied",
    "binary",
    "bitwise",
    "broadcast_shape",
    "cast",
    "cast_node",
    "compare",
    "invert",
    "node_of",
    "noted",
    "power",
    "predicate",
    "select",
    "unary",
]

_BOOL = TensorElementType.BOOL


def applied(context: DeviceContext, name: str, operands: tuple[Node, ...], element_type: TensorElementType) -> Node:
    """An expression; parts of what would be too long for one kernel are computed now."""
    operands = tuple(resolved(each) for each in operands)
    shape = broadcast_shape(tuple(each.shape for each in operands))
    node = Apply(FUNCTIONS[name], operands, shape, element_type)
    if node.size > MOST_NODES or node.leaves > MOST_LEAVES:
        largest = max((each for each in operands if isinstance(each, Apply)), key=lambda each: each.size)
        context.materialise(largest)
        return applied(context, name, operands, element_type)
    return noted(node)


def noted(node: Apply) -> Apply:
    """The expression, remembered by what it reads: it is computed before memory is written again."""
    for operand in node.operands:
        if isinstance(operand, Strided) and operand.memory is not None:
            operand.memory.note_reader(node)
        elif isinstance(operand, Deferred):
            operand.note_reader(node)
    return node


@functools.lru_cache(maxsize=4096)
def broadcast_shape(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The shape that arrays have together.

    Raises:
        InvalidArgument: they do not broadcast.
    """
    if all(each == shapes[0] for each in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise InvalidArgument(f"shapes {[list(each) for each in shapes]} do not broadcast together") from None


@functools.lru_cache(maxsize=1024)
def _promoted(left: TensorElementType, right: TensorElementType) -> TensorElementType:
    return TensorElementType.from_numpy_dtype(np.promote_types(left.numpy_dtype, right.numpy_dtype))


def node_of(value: Any, other: DeviceArray | None) -> Node:
    """An operand: an array's value, or a number, which takes the type of the other operand if that can hold it."""
    node = getattr(value, "node", None)
    if isinstance(node, Node):
        return node
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.size == 1 and array.ndim == 0:
            return Constant(array.item(), (), TensorElementType.from_numpy_dtype(array.dtype))
        raise InvalidArgument(
            f"computing with a host array of shape {list(array.shape)}: bring it to the device first (from_host)"
        )
    if isinstance(value, bool):
        return Constant(value, (), _BOOL)
    if isinstance(value, int | float):
        if other is None:
            raise TypeError("a number alone has no element type")
        own = other.element_type
        if isinstance(value, float) and not is_floating(own):
            own = TensorElementType.FLOAT if own is not TensorElementType.DOUBLE else own
        return Constant(value, (), TensorElementType.INT64 if own is _BOOL else own)
    raise TypeError(f"computing with {type(value).__name__}: neither an array of the device nor a number")


def _pair(left: Any, right: Any) -> tuple[DeviceArray, Node, Node]:
    array = left if hasattr(left, "node") else right
    a, b = node_of(left, array), node_of(right, array)
    if a.element_type is not b.element_type:
        target = _promoted(a.element_type, b.element_type)
        a, b = cast_node(array.context, a, target), cast_node(array.context, b, target)
    return array, a, b


def cast_node(context: DeviceContext, node: Node, element_type: TensorElementType) -> Node:
    """A value converted to another type."""
    node = resolved(node)
    if node.element_type is element_type:
        return node
    if isinstance(node, Constant):
        converted = np.asarray(node.value, node.element_type.numpy_dtype).astype(element_type.numpy_dtype)
        return Constant(converted.item(), node.shape, element_type)
    return applied(context, "cast", (node,), element_type)


def cast(array: DeviceArray, element_type: TensorElementType) -> DeviceArray:
    """The array converted to another type."""
    return array if array.element_type is element_type else array.made(cast_node(array.context, array.node, element_type))


def binary(name: str, left: Any, right: Any) -> DeviceArray:
    """A function of two arrays, or of an array and a number, of the type they promote to."""
    array, a, b = _pair(left, right)
    return array.made(applied(array.context, name, (a, b), a.element_type))


def compare(name: str, left: Any, right: Any) -> DeviceArray:
    """The same, of type bool."""
    array, a, b = _pair(left, right)
    return array.made(applied(array.context, name, (a, b), _BOOL))


def unary(name: str, array: DeviceArray) -> DeviceArray:
    """A function of an array, of its type."""
    return array.made(applied(array.context, name, (array.node,), array.element_type))


def predicate(name: str, array: DeviceArray) -> DeviceArray:
    """A function of an array, of type bool."""
    if not is_floating(array.element_type):
        return array.made(Constant(name == "isfinite", array.shape, _BOOL))
    return array.made(applied(array.context, name, (array.node,), _BOOL))


def bitwise(name: str, left: Any, right: Any) -> DeviceArray:
    """``and``, ``or`` or ``xor`` of integers or bools."""
    array, a, b = _pair(left, right)
    kind = "logical" if a.element_type is _BOOL else "bitwise"
    return array.made(applied(array.context, f"{kind}_{name}", (a, b), a.element_type))


def invert(array: DeviceArray) -> DeviceArray:
    """All bits changed; not of a bool."""
    return unary("logical_not" if array.element_type is _BOOL else "bitwise_invert", array)


def select(condition: DeviceArray, left: Any, right: Any) -> DeviceArray:
    """Elements of one array where the condition is true, else of the other."""
    if not hasattr(left, "node") and not hasattr(right, "node"):
        left = condition.made(node_of(left, None if isinstance(left, np.generic | np.ndarray) else condition))
    array, a, b = _pair(left, right)
    return array.made(applied(array.context, "where", (condition.node, a, b), a.element_type))


def power(left: Any, right: Any) -> DeviceArray:
    """``left ** right``; a few constant exponents of floating-point arrays need no power."""
    array, a, b = _pair(left, right)
    exponent = resolved(b)
    if isinstance(exponent, Constant) and is_floating(a.element_type) and exponent.value in (1, 2, 0.5):
        name = {1: None, 2: "square", 0.5: "sqrt"}[exponent.value]
        shape = broadcast_shape((a.shape, b.shape))
        if shape == a.shape:
            return array.made(a if name is None else applied(array.context, name, (a,), a.element_type))
    return array.made(applied(array.context, "pow", (a, b), a.element_type))


OPERATIONS |= {
    "binary": binary,
    "bitwise": bitwise,
    "compare": compare,
    "invert": invert,
    "power": power,
    "unary": unary,
}
