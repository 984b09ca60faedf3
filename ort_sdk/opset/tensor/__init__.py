"""Operators of the tensor family: type, shape and order of elements, and picking, placing and sampling them."""

from . import (
    cast,
    concat,
    expand,
    gather,
    identity,
    pad,
    reshape,
    resize,
    reverse_sequence,
    scatter,
    select,
    shape,
    slice,
    transpose,
    unique,
)

__all__ = [
    "cast",
    "concat",
    "expand",
    "gather",
    "identity",
    "pad",
    "reshape",
    "resize",
    "reverse_sequence",
    "scatter",
    "select",
    "shape",
    "slice",
    "transpose",
    "unique",
]
