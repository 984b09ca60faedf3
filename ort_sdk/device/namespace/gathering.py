"""Elements at computed places: gather and take."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import NODE_OPERATIONS, DeviceArray
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import STORAGE, is_integer
from ort_sdk.device.expressions.nodes import Apply, Node, Strided, element_count, resolved
from ort_sdk.device.launches import KernelSource, Launch, Scalar
from ort_sdk.device.status import GATHER_INDEX

__all__ = ["GATHERING", "gather", "gathered", "index_numbers", "places_of"]

_INT64 = TensorElementType.INT64
CHUNK = 64
"""Neighbouring elements that a lane copies where lanes are threads of a processor."""

_GATHER = """
/* y[o, c, i] = x[o, index[c], i]; negative indices count from the end; a lane takes some elements along i */
KERNEL WORKGROUP(LANES, 1, 1) void gather(GLOBAL(const T) x, GLOBAL(const IT) index, GLOBAL(T) y,
    index_t total, index_t size, index_t count, index_t inner, index_t chunk, index_t chunks, GLOBAL_PTR(u32) status) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    index_t i = e % chunks * chunk, rest = e / chunks, c = rest % count, o = rest / count;
    i64 at = index[c];
    if (at < 0) at += size;
    if (at < 0 || at >= size) { report(status, FAULT); at = 0; }
    GLOBAL_PTR(const T) from = x + (o * size + (index_t)at) * inner + i;
    GLOBAL_PTR(T) to = y + rest * inner + i;
    int own = (int)(inner - i < chunk ? inner - i : chunk);
    for (int k = 0; k < own; k++) to[k] = from[k];
  }
}
"""

_GATHER_ELEMENTS = """
/* y[o, k, i] = x[o, index[o, k, i], i] */
KERNEL WORKGROUP(LANES, 1, 1) void gather_elements(GLOBAL(const T) x, GLOBAL(const IT) index, GLOBAL(T) y,
    index_t total, index_t size, index_t count, index_t inner, GLOBAL_PTR(u32) status) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    index_t i = e % inner, o = e / inner / count;
    i64 at = index[e];
    if (at < 0 || at >= size) { report(status, FAULT); at = 0; }
    y[e] = x[(o * size + (index_t)at) * inner + i];
  }
}
"""


def index_numbers(*numbers: int, limit: int) -> tuple[tuple[Scalar, ...], tuple[tuple[str, int], ...]]:
    """Arguments of type ``index_t``, and the macro that widens it where an array has ``limit`` elements or more."""
    is_wide = limit >= (1 << 31) - (1 << 16)
    kind = "i64" if is_wide else "i32"
    return tuple(Scalar(kind, number) for number in numbers), ((("INDEX64", 1),) if is_wide else ())


def places_of(context: DeviceContext, indices: Node) -> Strided:
    """Indices as kernels read them: dense, of an integer type."""
    whole = is_integer(indices.element_type) and STORAGE[indices.element_type] in {"i32", "i64"}
    return context.dense(indices if whole else arithmetic.cast_node(context, indices, _INT64))


def gathered(context: DeviceContext, node: Node, indices: Node, axis: int) -> Node:
    """Slices along an axis at indices of any shape, whose axes replace it.

    Negative indices count from the end; one out of bounds is reported when the run ends.

    Raises:
        InvalidArgument: the axis has no elements, and there are indices.
    """
    node = resolved(node)
    if isinstance(node, Apply) and node.function.name == "cast" and node.operands[0].shape == node.shape:
        # what is picked is converted, and not the whole array
        return arithmetic.cast_node(context, gathered(context, node.operands[0], indices, axis), node.element_type)
    shape = (*node.shape[:axis], *indices.shape, *node.shape[axis + 1 :])
    output = context.new(shape, node.element_type)
    if 0 in shape:
        return output
    size, inner, device = node.shape[axis], element_count(node.shape[axis + 1 :]), context.device
    if not size:
        raise InvalidArgument(f"gathering from axis {axis} of shape {list(node.shape)}: it has no elements")
    source, places = context.dense(node), places_of(context, indices)
    chunk = min(CHUNK, inner) if device.is_cpu else 1
    chunks = -(-inner // chunk)
    total = element_count(shape) // inner * chunks
    limit = max(element_count(shape), element_count(node.shape))
    numbers, wide = index_numbers(total, size, element_count(indices.shape), inner, chunk, chunks, limit=limit)
    defines = (*_types(source, places), *wide)
    _launch(context, "gather", _GATHER, (source.held, places.held, output.held, *numbers), total, defines)
    return output


def _types(source: Strided, places: Strided) -> tuple[tuple[str, str | int], ...]:
    return ("T", STORAGE[source.element_type]), ("IT", STORAGE[places.element_type]), ("FAULT", f"{GATHER_INDEX}u")


def _launch(
    context: DeviceContext,
    name: str,
    text: str,
    arguments: tuple[Any, ...],
    total: int,
    defines: tuple[tuple[str, str | int], ...],
) -> None:
    lanes = context.device.lanes
    source = KernelSource(name, text, (("LANES", lanes), *defines))
    context.submit(Launch(source, (-(-total // lanes),), (lanes,), arguments, (2,), reports=True))


def gather(array: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
    """See ``ArrayNamespace.gather``."""
    return array.made(gathered(array.context, array.node, indices.node, axis % max(array.ndim, 1)))


def take(x: DeviceArray, indices: DeviceArray, /, *, axis: int | None = None) -> DeviceArray:
    """Slices along an axis at a vector of indices."""
    return gather(x, indices, 0 if axis is None else axis)


def take_along_axis(x: DeviceArray, indices: DeviceArray, /, *, axis: int = -1) -> DeviceArray:
    """``y[..., k, ...] = x[..., indices[..., k, ...], ...]``; other axes broadcast, and indices are not negative."""
    context, place = x.context, axis % x.ndim
    shape = [max(own, size) if own and size else 0 for own, size in zip(x.shape, indices.shape, strict=True)]
    shape[place] = x.shape[place]
    source = context.dense(indexing.broadcast(context, x.node, tuple(shape)))
    shape[place] = indices.shape[place]
    target = tuple(shape)
    output = context.new(target, x.element_type)
    if 0 in target:
        return x.made(output)
    if not x.shape[place]:
        raise InvalidArgument(f"picking elements along axis {axis} of shape {list(x.shape)}: it has no elements")
    places = places_of(context, indexing.broadcast(context, indices.node, target))
    total, limit = element_count(target), max(element_count(target), math.prod(source.shape))
    numbers, wide = index_numbers(total, x.shape[place], target[place], element_count(target[place + 1 :]), limit=limit)
    arguments = (source.held, places.held, output.held, *numbers)
    _launch(context, "gather_elements", _GATHER_ELEMENTS, arguments, total, (*_types(source, places), *wide))
    return x.made(output)


GATHERING = {"take": take, "take_along_axis": take_along_axis}
"""Name in the standard → function."""

NODE_OPERATIONS["gathered"] = gathered
