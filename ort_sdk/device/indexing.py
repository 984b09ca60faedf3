"""Views of arrays' values, parts of them, and writing to parts."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import InvalidArgument

from .arithmetic import applied, cast_node, node_of, noted
from .array import NODE_OPERATIONS, DeviceArray
from .context import DeviceContext
from .expressions import views
from .expressions.functions import DEAR
from .expressions.nodes import Apply, Constant, Deferred, Node, Strided, resolved
from .expressions.writer import leaves_of

__all__ = ["broadcast", "item", "permuted", "reshaped", "set_item", "viewed"]

MOST_VIEWED_LEAVES = 7
"""Arrays and numbers of an expression that is worth computing again behind a view of it."""

View = Callable[[Strided], Strided | None]
"""Gives a view of an array; None where no strides describe it."""


def viewed(context: DeviceContext, node: Node, view: View) -> Node:
    """A view of a value. Of an expression that is cheap to compute again it is the expression of views; others are computed."""
    node = resolved(node)
    if isinstance(node, Constant):
        return Constant(node.value, _shape_behind(node, view), node.element_type)
    if isinstance(node, Apply) and node.cost < DEAR and node.leaves <= MOST_VIEWED_LEAVES:
        parts = [_part(operand, node.shape, view) for operand in node.operands]
        if all(part is not None for part in parts):
            return applied(context, node.function.name, tuple(part for part in parts if part is not None), node.element_type)
    array = node if isinstance(node, Strided) else context.materialise(node)
    found = view(array)
    return found if found is not None else _found(view, context.dense(array))


def _found(view: View, array: Strided) -> Strided:
    """A view of an array that is dense, or has no memory."""
    found = view(array)
    if found is None:
        raise TypeError(f"no strides describe a view of a dense array of shape {list(array.shape)}")
    return found


def _shape_behind(node: Node, view: View) -> tuple[int, ...]:
    return _found(view, Strided(None, node.shape, node.element_type)).shape


def _part(operand: Node, shape: tuple[int, ...], view: View) -> Node | None:
    """A view of an operand that broadcasts to a shape; None where that would need a kernel."""
    node = resolved(operand)
    if isinstance(node, Constant):
        return Constant(node.value, _shape_behind(Constant(node.value, shape, node.element_type), view), node.element_type)
    if isinstance(node, Strided):
        return view(views.broadcast(node, shape))
    if not isinstance(node, Apply):
        return None
    parts = [_part(each, shape, view) for each in node.operands]
    if any(part is None for part in parts):
        return None
    known = tuple(part for part in parts if part is not None)
    behind = next((part.shape for part in known if part.shape), known[0].shape)
    return noted(Apply(node.function, known, behind, node.element_type))


def permuted(context: DeviceContext, node: Node, axes: Sequence[int]) -> Node:
    """The axes in another order."""
    return viewed(context, node, lambda array: views.permuted(array, axes))


def broadcast(context: DeviceContext, node: Node, shape: tuple[int, ...]) -> Node:
    """Axes of one element repeated, and new ones in front."""
    return node if node.shape == shape else viewed(context, node, lambda array: views.broadcast(array, shape))


def reshaped(context: DeviceContext, node: Node, shape: Sequence[int]) -> Node:
    """The same elements under another shape; one size may be -1.

    Raises:
        InvalidArgument: it has another number of elements.
    """
    target = _whole_shape(node.shape, shape)
    value = resolved(node)
    if isinstance(value, Deferred) and target != node.shape and 0 not in target:
        made = value.reshaped(target)
        if made is not None:
            return made
    return node if target == node.shape else viewed(context, node, lambda array: views.reshaped(array, target))


def _whole_shape(own: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...]:
    target = [operator.index(size) for size in shape]
    count = math.prod(own)
    if target.count(-1) == 1:
        known = math.prod(size for size in target if size != -1)
        target[target.index(-1)] = count // known if known else 0
    if min(target, default=0) < 0 or math.prod(target) != count:
        raise InvalidArgument(f"reshaping an array of shape {list(own)} to {list(shape)}: the number of elements differs")
    return tuple(target)


def item(context: DeviceContext, node: Node, key: Any) -> Node:
    """Elements at whole numbers, slices, None and an Ellipsis; or, along one axis, at an array of whole numbers."""
    keys = _whole_key(key, len(node.shape))
    arrays = [position for position, each in enumerate(keys) if hasattr(each, "node")]
    if arrays:
        return _taken(context, node, keys, arrays)
    return viewed(context, node, lambda array: _indexed(array, keys))


def _whole_key(key: Any, rank: int) -> list[Any]:
    keys = list(key) if isinstance(key, tuple) else [key]
    own = sum(each is not None and each is not Ellipsis for each in keys)
    if own > rank:
        raise InvalidArgument(f"indexing an array of {rank} axes with {own} indices")
    rest = [slice(None)] * (rank - own)
    for position, each in enumerate(keys):
        if each is Ellipsis:
            return keys[:position] + rest + keys[position + 1 :]
    return keys + rest


def _indexed(array: Strided, keys: Sequence[Any]) -> Strided:
    axis = 0
    for key in keys:
        if key is None:
            shape = (*array.shape[:axis], 1, *array.shape[axis:])
            array = array.view(shape, (*array.strides[:axis], 1, *array.strides[axis:]), array.offset)
            axis += 1
        elif isinstance(key, slice):
            start, stop, step = key.indices(array.shape[axis])
            count = len(range(start, stop, step))
            array = views.sliced(array, axis, start, count, step)
            axis += 1
        else:
            index = operator.index(key)
            size = array.shape[axis]
            if not -size <= index < size:
                raise InvalidArgument(f"index {index} is out of bounds for axis {axis} of shape {list(array.shape)}")
            array = views.sliced(array, axis, index % size, 1, 1)
            array = array.view(_without(array.shape, axis), _without(array.strides, axis), array.offset)
    return array


def _without(values: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*values[:axis], *values[axis + 1 :])


def _taken(context: DeviceContext, node: Node, keys: list[Any], arrays: list[int]) -> Node:
    if len(arrays) != 1 or any(each is None or not isinstance(each, slice) for i, each in enumerate(keys) if i not in arrays):
        raise InvalidArgument("indexing an array with arrays: one index array, and slices, are what a device takes")
    axis, indices = arrays[0], keys[arrays[0]]
    rest = [slice(None) if position == axis else each for position, each in enumerate(keys)]
    source = viewed(context, node, lambda array: _indexed(array, rest))
    found: Node = NODE_OPERATIONS["gathered"](context, source, indices.node, axis)
    return found


def set_item(array: DeviceArray, key: Any, value: Any) -> None:
    """Write to a part of an array. Expressions that read it keep their values: they are computed before."""
    context, node = array.context, array.node
    if not isinstance(node, Strided) or node.memory is None:
        # expressions that others hold have the value, too, which stays what it is
        array.node = node = context.copied(node)
    memory, target = node.held, _indexed(node, _whole_key(key, len(node.shape)))
    source = cast_node(context, node_of(value, array), array.element_type)
    source = broadcast(context, _without_leading_ones(context, source, len(target.shape)), target.shape)
    for reader in memory.readers:
        expression = reader()
        if expression is not None:
            context.materialise(expression)
    memory.readers.clear()
    source = resolved(source)
    if any(leaf.memory is memory for leaf in leaves_of([source])):
        source = context.copied(source)
    context.write(source, target)


def _without_leading_ones(context: DeviceContext, node: Node, rank: int) -> Node:
    shape = node.shape
    while len(shape) > rank and shape[0] == 1:
        shape = shape[1:]
    return reshaped(context, node, shape)


NODE_OPERATIONS |= {"item": item, "permuted": permuted, "set_item": set_item}
