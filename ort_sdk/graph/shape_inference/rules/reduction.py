"""Reductions along axes."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.dimensions import normalized_axis
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd")
@shape_rule("ReduceSum", "ReduceSumSquare")
def reduce(call: NodeCall) -> list[Shape | None]:
    """Reduced axes become 1 or go."""
    x = call.shape(0)
    if x is None:
        return [None]
    keep = call.attribute("keepdims", 1)
    if call.has(1) and call.integers(1) is None:
        return [(None,) * len(x) if keep else None]
    axes = call.integers_or_attribute(1, "axes")
    if not axes:
        if call.attribute("noop_with_empty_axes", 0):
            return [x]
        axes = tuple(range(len(x)))
    reduced = {normalized_axis(axis, len(x)) for axis in axes}
    return [tuple(1 if axis in reduced else size for axis, size in enumerate(x) if keep or axis not in reduced)]


@shape_rule("ArgMax", "ArgMin")
def arg(call: NodeCall) -> list[Shape | None]:
    """The axis becomes 1 or goes."""
    x = call.shape(0)
    if x is None:
        return [None]
    axis = normalized_axis(call.attribute("axis", 0), len(x))
    return [(*x[:axis], *((1,) if call.attribute("keepdims", 1) else ()), *x[axis + 1 :])]


@shape_rule("TopK")
def top_k(call: NodeCall) -> list[Shape | None]:
    """The axis becomes k."""
    x = call.shape(0)
    if x is None:
        return [None]
    axis = normalized_axis(call.attribute("axis", -1), len(x))
    k = call.attribute("k") if not call.has(1) else (call.contents(1) or (None,))[0]
    found = (*x[:axis], k, *x[axis + 1 :])
    return [found, found]
