"""Operators that pick elements."""

from __future__ import annotations

from ort_sdk.api import Dimension, Shape
from ort_sdk.graph.shape_inference.dimensions import normalized_axis, total
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("Gather")
def gather(call: NodeCall) -> list[Shape | None]:
    """The axis is replaced by the axes of the indices."""
    x, indices = call.shape(0), call.shape(1)
    if x is None or indices is None:
        return [None]
    axis = normalized_axis(call.attribute("axis", 0), len(x))
    return [(*x[:axis], *indices, *x[axis + 1 :])]


@shape_rule("GatherElements")
def gather_elements(call: NodeCall) -> list[Shape | None]:
    """Shape of the indices."""
    return [call.shape(1)]


@shape_rule("GatherND")
@shape_rule("GatherND", domain="com.microsoft")
def gather_nd(call: NodeCall) -> list[Shape | None]:
    """The last axis of the indices is replaced by the axes they do not reach."""
    x, indices = call.shape(0), call.shape(1)
    if x is None or indices is None or not isinstance(indices[-1], int):
        return [None]
    return [(*indices[:-1], *x[call.attribute("batch_dims", 0) + indices[-1] :])]


@shape_rule("Scatter", "ScatterElements", "ScatterND", "TensorScatter")
def scatter(call: NodeCall) -> list[Shape | None]:
    """Shape of the data."""
    return [call.shape(0)]


@shape_rule("Slice")
def slice_(call: NodeCall) -> list[Shape | None]:
    """Lengths of ranges with clamped bounds."""
    x = call.shape(0)
    if x is None:
        return [None]
    starts, ends, axes, steps = _bounds(call)
    if axes is None:
        return [(None,) * len(x)]
    sizes = list(x)
    for position, axis in enumerate(axes):
        dim = normalized_axis(axis, len(x))
        step = None if steps is None else steps[position]
        start = None if starts is None else starts[position]
        sizes[dim] = _length(x[dim], start, None if ends is None else ends[position], step)
    return [tuple(sizes)]


_Bounds = tuple[Dimension, ...] | None


def _bounds(call: NodeCall) -> tuple[_Bounds, _Bounds, tuple[int, ...] | None, _Bounds]:
    if call.node.since_version < 10:
        given = tuple(call.attribute("starts"))
        return given, tuple(call.attribute("ends")), tuple(call.attribute("axes") or range(len(given))), (1,) * len(given)
    starts, ends = call.contents(1), call.contents(2)
    count = len(starts) if starts is not None else len(ends) if ends is not None else None
    axes = call.integers(3) if call.has(3) else None if count is None else tuple(range(count))
    steps = call.contents(4) if call.has(4) else None if axes is None else (1,) * len(axes)
    return starts, ends, axes, steps


def _length(size: Dimension, start: Dimension, end: Dimension, step: Dimension) -> Dimension:
    if not isinstance(start, int) or not isinstance(step, int):
        return None
    if isinstance(size, int) and isinstance(end, int):
        return len(range(size)[max(start, -size) : end : step])  # as ONNX, which begins at the first if before it
    if step != 1 or start < 0:
        return None
    if start == 0 and (end == size or (isinstance(end, int) and end >= 2**31 - 1)):
        return size
    return total((end, -start)) if isinstance(end, str) and end == size and start == 0 else None


@shape_rule("Compress")
def compress(call: NodeCall) -> list[Shape | None]:
    """One axis, or the named one, of unknown length."""
    x, axis = call.shape(0), call.attribute("axis")
    if axis is None:
        return [(None,)]
    if x is None:
        return [None]
    axis = normalized_axis(axis, len(x))
    return [(*x[:axis], None, *x[axis + 1 :])]


@shape_rule("NonZero")
def non_zero(call: NodeCall) -> list[Shape | None]:
    """(rank, count)."""
    x = call.shape(0)
    return [(None if x is None else len(x), None)]


@shape_rule("NonMaxSuppression")
def non_max_suppression(_call: NodeCall) -> list[Shape | None]:
    """(count, 3)."""
    return [(None, 3)]


@shape_rule("Unique")
def unique(call: NodeCall) -> list[Shape | None]:
    """Values, and three vectors."""
    x, axis = call.shape(0), call.attribute("axis")
    if axis is None:
        return [(None,)] * 2 + [None, (None,)]
    if x is None:
        return [None]
    axis = normalized_axis(axis, len(x))
    return [(*x[:axis], None, *x[axis + 1 :]), (None,), (x[axis],), (None,)]


@shape_rule("OneHot")
def one_hot(call: NodeCall) -> list[Shape | None]:
    """A new axis of length depth."""
    indices = call.shape(0)
    if indices is None:
        return [None]
    axis = normalized_axis(call.attribute("axis", -1), len(indices) + 1)
    depth = call.contents(1)
    return [(*indices[:axis], depth[0] if depth else None, *indices[axis:])]
