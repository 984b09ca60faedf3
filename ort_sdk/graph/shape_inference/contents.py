"""Elements of small integer tensors: how sizes computed in the graph are known before it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from ort_sdk.api import Dimension, TensorElementType

from .dimensions import product, quotient, total, unknown_sizes
from .node_call import Contents, NodeCall, contents_rule


@contents_rule("Shape")
def shape(call: NodeCall) -> Contents | None:
    """The dimensions."""
    found = call.shape(0)
    return None if found is None else found[call.attribute("start", 0) : call.attribute("end")]


@contents_rule("Size")
def size(call: NodeCall) -> Contents | None:
    """Their product."""
    found = call.shape(0)
    return None if found is None else (product(found),)


@contents_rule("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
def unchanged(call: NodeCall) -> Contents | None:
    """The first input's."""
    return call.contents(0)


@contents_rule("Cast")
def cast(call: NodeCall) -> Contents | None:
    """The same between wide integers."""
    is_wide = call.attribute("to") in {TensorElementType.INT64, TensorElementType.INT32}
    return call.contents(0) if is_wide else None


@contents_rule("Concat")
def concat(call: NodeCall) -> Contents | None:
    """All inputs' in order; of an input with a known length only, unknown elements."""
    elements: list[Dimension] = []
    for index in range(len(call.node.inputs)):
        part = call.contents(index)
        if part is None:
            length = call.shape(index)
            part = unknown_sizes(length[0]) if length else None
            if part is None:
                return None
        elements.extend(part)
    return tuple(elements)


@contents_rule("Gather")
def gather(call: NodeCall) -> Contents | None:
    """Elements at known positions of a vector."""
    elements, indices = call.contents(0), call.integers(1)
    return None if elements is None or indices is None else tuple(elements[index] for index in indices)


@contents_rule("Slice")
def slice_(call: NodeCall) -> Contents | None:
    """A known range of a vector."""
    elements = call.contents(0)
    if call.node.since_version < 10:
        bounds: tuple[int | None, int | None, int | None] = (call.attribute("starts")[0], call.attribute("ends")[0], 1)
    else:
        bounds = (call.integer(1), call.integer(2), call.integer(4) if call.has(4) else 1)
    start, end, step = bounds
    if elements is None or start is None or end is None or step is None:
        return None
    # Python's slices that go backwards from before the first element are empty; ONNX's begin at the first.
    return elements[max(start, -len(elements)) : end : step]


@contents_rule("Split")
def split(call: NodeCall) -> Contents | None:
    """The first part of a vector."""
    elements = call.contents(0)
    parts = call.integers(1) if call.has(1) else call.attribute("split")
    return None if elements is None or not parts else elements[: parts[0]]


@contents_rule("ConstantOfShape")
def constant_of_shape(call: NodeCall) -> Contents | None:
    """One number repeated."""
    lengths, value = call.integers(0), call.attribute("value")
    if lengths is None or value is None or value.element_type not in {TensorElementType.INT64, TensorElementType.INT32}:
        return None
    return (int(value.numpy().reshape(-1)[0]),) * (lengths[0] if lengths else 1)


@contents_rule("Range")
def range_(call: NodeCall) -> Contents | None:
    """The numbers."""
    start, limit, delta = call.integer(0), call.integer(1), call.integer(2)
    return None if start is None or limit is None or delta is None else tuple(range(start, limit, delta))


def _rows(inputs: Sequence[Contents]) -> Iterable[tuple[Dimension, ...]]:
    """Elements at the same position, of vectors that are broadcast."""
    longest = max(map(len, inputs)) if all(inputs) else 0
    return zip(*(part * longest if len(part) == 1 else part for part in inputs), strict=True)


def _elementwise(combine: Callable[[Dimension, Dimension], Dimension]) -> Callable[[NodeCall], Contents | None]:
    def rule(call: NodeCall) -> Contents | None:
        inputs = [part for index in range(len(call.node.inputs)) if (part := call.contents(index)) is not None]
        if len(inputs) < len(call.node.inputs):
            return None
        return tuple(functools.reduce(combine, row) for row in _rows(inputs))

    return rule


def _difference(left: Dimension, right: Dimension) -> Dimension:
    if isinstance(right, int):
        return total((left, -right))
    return 0 if left == right and left is not None else None


def _divided(left: Dimension, right: Dimension) -> Dimension:
    if isinstance(left, int) and isinstance(right, int):
        # Integer division truncates towards zero.
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient((left,), (right,))


def _equal(left: Dimension, right: Dimension) -> Dimension:
    if isinstance(left, int) and isinstance(right, int):
        return int(left == right)
    # A symbol is a size, which is never negative.
    is_negative = any(isinstance(each, int) and each < 0 for each in (left, right))
    return 0 if is_negative and any(isinstance(each, str) for each in (left, right)) else None


def _numbers_only(combine: Callable[[int, int], int]) -> Callable[[Dimension, Dimension], Dimension]:
    return lambda left, right: combine(left, right) if isinstance(left, int) and isinstance(right, int) else None


contents_rule("Add")(_elementwise(lambda left, right: total((left, right))))
contents_rule("Sub")(_elementwise(_difference))
contents_rule("Mul")(_elementwise(lambda left, right: product((left, right))))
contents_rule("Div")(_elementwise(_divided))
contents_rule("Equal")(_elementwise(_equal))
contents_rule("Max")(_elementwise(_numbers_only(max)))
contents_rule("Min")(_elementwise(_numbers_only(min)))


@contents_rule("Where")
def where(call: NodeCall) -> Contents | None:
    """Elements of either input where the condition is known."""
    condition, chosen, other = (call.contents(index) for index in range(3))
    if condition is None or chosen is None or other is None:
        return None
    return tuple(_choose(*row) for row in _rows((condition, chosen, other)))


def _choose(condition: Dimension, chosen: Dimension, other: Dimension) -> Dimension:
    if condition is None:
        return chosen if chosen == other else None
    return chosen if condition else other


@contents_rule("ReduceProd")
def reduce_prod(call: NodeCall) -> Contents | None:
    """The product of a vector; the vector if no axes are given and that means none."""
    elements = call.contents(0)
    if elements is None or (call.attribute("noop_with_empty_axes", 0) and not call.integers_or_attribute(1, "axes")):
        return elements
    return (product(elements),)


@contents_rule("Neg")
def negative(call: NodeCall) -> Contents | None:
    """Of known numbers."""
    elements = call.integers(0)
    return None if elements is None else tuple(-element for element in elements)
