"""Operators that make tensors from attributes or shapes."""

from __future__ import annotations

import math

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.dimensions import unknown_sizes
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("Constant")
def constant(call: NodeCall) -> list[Shape | None]:
    """Shape of the value."""
    value = call.attribute("value", call.attribute("sparse_value"))
    if value is not None:
        return [tuple(value.shape)]
    for name in ("value_floats", "value_ints", "value_strings"):
        if name in call.node.attributes:
            return [(len(call.attribute(name)),)]
    return [()]


@shape_rule("ConstantOfShape")
def constant_of_shape(call: NodeCall) -> list[Shape | None]:
    """The wanted shape."""
    wanted = call.contents(0)
    if wanted is not None:
        return [wanted]
    length = call.shape(0)
    return [unknown_sizes(length[0]) if length else None]


@shape_rule("RandomNormal", "RandomUniform")
def random(call: NodeCall) -> list[Shape | None]:
    """The attribute ``shape``."""
    return [tuple(call.attribute("shape"))]


@shape_rule("Multinomial")
def multinomial(call: NodeCall) -> list[Shape | None]:
    """(batch, samples)."""
    x = call.shape(0)
    return [(None if x is None else x[0], call.attribute("sample_size", 1))]


@shape_rule("Range")
@shape_rule("Range", domain="com.microsoft")
def range_(call: NodeCall) -> list[Shape | None]:
    """One axis; its length is known for known integers."""
    start, limit = call.integer(0), call.integer(1)
    delta = call.integer(2) if call.has(2) else 1
    if start is None or limit is None or not delta:
        first, last = call.contents(0), call.contents(1)
        is_count = first == (0,) and delta == 1 and last is not None and isinstance(last[0], str)
        return [(last[0],) if is_count and last is not None else (None,)]
    return [(max(0, math.ceil((limit - start) / delta)),)]


@shape_rule("Shape")
def shape(call: NodeCall) -> list[Shape | None]:
    """One axis, as long as the part of the rank that is asked for."""
    x = call.shape(0)
    return [(None if x is None else len(x[call.attribute("start", 0) : call.attribute("end")]),)]


@shape_rule("Size")
def size(_call: NodeCall) -> list[Shape | None]:
    """A scalar."""
    return [()]


@shape_rule("BlackmanWindow", "HammingWindow", "HannWindow")
def window(call: NodeCall) -> list[Shape | None]:
    """One axis of the given length."""
    return [(call.integer(0),)]


@shape_rule("OptionalHasElement", "SequenceLength")
def scalar(_call: NodeCall) -> list[Shape | None]:
    """A scalar."""
    return [()]
