"""Elements at computed places: gather, take, scatter."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import COMPUTE, HALF_TYPES, STORAGE
from ort_sdk.device.expressions.nodes import Node, Strided, element_count
from ort_sdk.device.launches import KernelSource, Launch, index64

__all__ = ["GATHERING", "gather", "gathered", "scatter"]

_INT64 = TensorElementType.INT64

_GATHER = """
/* y[o, c, i] = x[o, index[c], i]; negative indices count from the end */
KERNEL WORKGROUP(LANES, 1, 1) void gather(GLOBAL(const T) x, GLOBAL(const i64) index, GLOBAL(T) y,
    i64 total, i64 size, i64 count, i64 inner, GLOBAL_PTR(u32) status) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 i = e % inner, rest = e / inner, c = rest % count, o = rest / count;
    i64 at = index[c];
    if (at < 0) at += size;
    if (at < 0 || at >= size) { report(status, 1u); at = 0; }
    y[e] = x[(o * size + at) * inner + i];
  }
}
"""

_GATHER_ELEMENTS = """
/* y[o, k, i] = x[o, index[o, k, i], i] */
KERNEL WORKGROUP(LANES, 1, 1) void gather_elements(GLOBAL(const T) x, GLOBAL(const i64) index, GLOBAL(T) y,
    i64 total, i64 size, i64 count, i64 inner, GLOBAL_PTR(u32) status) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 i = e % inner, o = e / inner / count;
    i64 at = index[e];
    if (at < 0) at += size;
    if (at < 0 || at >= size) { report(status, 1u); at = 0; }
    y[e] = x[(o * size + at) * inner + i];
  }
}
"""

_SCATTER = """
/* rows y[index[m]] = combined with updates[m], in the order of m: one lane per column goes through all updates */
KERNEL WORKGROUP(LANES, 1, 1) void scatter(GLOBAL_PTR(T) y, GLOBAL(const i64) index, GLOBAL(const T) updates,
    i64 rows, i64 count, i64 inner, GLOBAL_PTR(u32) status) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < inner) {
    for (i64 m = 0; m < count; m++) {
      i64 at = index[m];
      if (at < 0 || at >= rows) { report(status, 1u); continue; }
      C now = GET(y[at * inner + e]), next = GET(updates[m * inner + e]);
      y[at * inner + e] = PUT(COMBINE(now, next));
    }
  }
}
"""

_COMBINE = {
    "none": "(next)",
    "add": "((now) + (next))",
    "mul": "((now) * (next))",
    "min": "((now) < (next) || (now) != (now) ? (now) : (next))",
    "max": "((now) > (next) || (now) != (now) ? (now) : (next))",
}


def _launch(context: DeviceContext, name: str, text: str, arguments: tuple[Any, ...], total: int, **defines: str | int) -> None:
    lanes = context.device.lanes
    written = 0 if name == "scatter" else 2
    source = KernelSource(name, text, (("LANES", lanes), *defines.items()))
    context.submit(Launch(source, (-(-total // lanes),), (lanes,), arguments, (written,), reports=True))


def _moved_type(element_type: TensorElementType) -> str:
    return STORAGE[element_type]


def gathered(context: DeviceContext, node: Node, indices: Node, axis: int) -> Strided:
    """Slices along an axis at indices of any shape, whose axes replace it. An index out of bounds is reported when the run ends."""
    shape = (*node.shape[:axis], *indices.shape, *node.shape[axis + 1 :])
    output = context.new(shape, node.element_type)
    if 0 in shape:
        return output
    size, inner = node.shape[axis], element_count(node.shape[axis + 1 :])
    if not size:
        raise InvalidArgument(f"gathering from axis {axis} of shape {list(node.shape)}: it has no elements")
    source, places = context.dense(node), context.dense(arithmetic.cast_node(context, indices, _INT64))
    total = element_count(shape)
    numbers = (index64(total), index64(size), index64(element_count(indices.shape)), index64(inner))
    memories = (source.memory, places.memory, output.memory)
    _launch(context, "gather", _GATHER, (*memories, *numbers), total, T=_moved_type(node.element_type))
    return output


def gather(array: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
    """See ``ArrayNamespace.gather``."""
    return array.made(gathered(array.context, array.node, indices.node, axis % max(array.ndim, 1)))


def take(x: DeviceArray, indices: DeviceArray, /, *, axis: int | None = None) -> DeviceArray:
    """Slices along an axis at a vector of indices."""
    return gather(x, indices, 0 if axis is None else axis)


def take_along_axis(x: DeviceArray, indices: DeviceArray, /, *, axis: int = -1) -> DeviceArray:
    """``y[..., k, ...] = x[..., indices[..., k, ...], ...]``; other axes broadcast."""
    context, place = x.context, axis % x.ndim
    shape = [max(own, size) if own and size else 0 for own, size in zip(x.shape, indices.shape, strict=True)]
    shape[place] = x.shape[place]
    source = context.dense(indexing.broadcast(context, x.node, tuple(shape)))
    shape[place] = indices.shape[place]
    target = tuple(shape)
    output = context.new(target, x.element_type)
    if 0 in target:
        return x.made(output)
    places = context.dense(indexing.broadcast(context, arithmetic.cast_node(context, indices.node, _INT64), target))
    total = element_count(target)
    numbers = (total, x.shape[place], target[place], element_count(target[place + 1 :]))
    arguments = (source.memory, places.memory, output.memory, *(index64(number) for number in numbers))
    _launch(context, "gather_elements", _GATHER_ELEMENTS, arguments, total, T=_moved_type(x.element_type))
    return x.made(output)


def scatter(array: DeviceArray, positions: DeviceArray, updates: DeviceArray, reduction: str = "none") -> DeviceArray:
    """See ``ArrayNamespace.scatter``."""
    context = array.context
    output = context.new(array.shape, array.element_type)
    if 0 in array.shape:
        return array.made(output)
    context.write(array.node, output)
    rows, inner, count = array.shape[0], element_count(array.shape[1:]), positions.size
    if not count:
        return array.made(output)
    places = context.dense(arithmetic.cast_node(context, positions.node, _INT64))
    values = context.dense(
        arithmetic.cast_node(context, indexing.broadcast(context, updates.node, (count, *array.shape[1:])), array.element_type)
    )
    storage = STORAGE[array.element_type]
    is_half = array.element_type in HALF_TYPES
    defines = {
        "T": storage,
        "C": COMPUTE[array.element_type] if array.element_type is not TensorElementType.BOOL else "b8",
        "GET(x)": f"get_{storage}(x)" if is_half else "(x)",
        "PUT(x)": f"put_{storage}(x)" if is_half else f"({storage})(x)",
        "COMBINE(now, next)": _COMBINE[reduction],
    }
    numbers = (index64(rows), index64(count), index64(inner))
    _launch(context, "scatter", _SCATTER, (output.memory, places.memory, values.memory, *numbers), inner, **defines)
    return array.made(output)


def scatter_flat(size: int, indices: DeviceArray, values: DeviceArray) -> DeviceArray:
    """See ``ArrayNamespace.scatter_flat``."""
    zeros = values.made(arithmetic.cast_node(values.context, arithmetic.node_of(0, values), values.element_type))
    whole = values.made(indexing.broadcast(values.context, zeros.node, (size,)))
    return scatter(whole, indices, values)


GATHERING = {"take": take, "take_along_axis": take_along_axis}
"""Name in the standard → function."""
