"""Elements put at computed places, or combined with what is there."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import COMPUTE, CONVERTED_TYPES, STORAGE
from ort_sdk.device.expressions.nodes import Constant, Strided, element_count
from ort_sdk.device.launches import KernelSource, Launch, Memory
from ort_sdk.device.status import SCATTER_INDEX

from .gathering import index_numbers, places_of

__all__ = ["scatter", "scatter_flat"]

_IN_ORDER = """
/* rows y[index[m]] = combined with updates[m], in the order of m: one lane per column goes through all updates */
KERNEL WORKGROUP(LANES, 1, 1) void scatter(GLOBAL_PTR(T) y, GLOBAL(const IT) index, GLOBAL(const T) updates,
    index_t columns, index_t rows, index_t count, GLOBAL_PTR(u32) status) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < columns) {
    for (index_t m = 0; m < count; m++) {
      i64 at = index[m];
      if (at < 0 || at >= rows) { report(status, FAULT); continue; }
      index_t to = (index_t)at * columns + e;
      C now = GET(y[to]), next = GET(updates[m * columns + e]);
      y[to] = PUT(COMBINE(now, next));
    }
  }
}
"""

_LAST = """
/* last[r] = the last update of row r */
KERNEL WORKGROUP(LANES, 1, 1) void scatter_last(GLOBAL_PTR(i32) last, GLOBAL(const IT) index,
    index_t count, index_t rows, GLOBAL_PTR(u32) status) {
  index_t m = (index_t)GROUP(0) * LANES + LANE(0);
  if (m < count) {
    i64 at = index[m];
    if (at < 0 || at >= rows) report(status, FAULT);
    else atomic_max_i32(last + at, (i32)m);
  }
}
"""

_PUT = """
/* rows of y that have a last update become it */
KERNEL WORKGROUP(LANES, 1, 1) void scatter_put(GLOBAL_PTR(T) y, GLOBAL(const i32) last, GLOBAL(const T) updates,
    index_t total, index_t columns) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i32 m = last[e / columns];
    if (m >= 0) y[e] = updates[(index_t)m * columns + e % columns];
  }
}
"""

_ATOMIC = """
/* rows y[index[m]] = combined with updates[m], in any order */
KERNEL WORKGROUP(LANES, 1, 1) void scatter_atomic(GLOBAL_PTR(T) y, GLOBAL(const IT) index, GLOBAL(const T) updates,
    index_t total, index_t rows, index_t columns, GLOBAL_PTR(u32) status) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 at = index[e / columns];
    if (at < 0 || at >= rows) report(status, FAULT);
    else {
      GLOBAL_PTR(u32) place = AS_GLOBAL(u32, y) + ((index_t)at * columns + e % columns);
      C next = updates[e];
      u32 was, seen = *place;
      do {
        was = seen;
        C now = FROM_BITS(was);
        seen = atomic_swap_u32(place, was, TO_BITS((C)(COMBINE(now, next))));
      } while (seen != was);
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
_FROM_BITS = {"f32": "bits_f32(u)", "i32": "((i32)(u))", "u32": "(u)"}
_TO_BITS = {"f32": "f32_bits(x)", "i32": "((u32)(x))", "u32": "(x)"}

_Defines = tuple[tuple[str, str | int], ...]


def scatter(array: DeviceArray, positions: DeviceArray, updates: DeviceArray, reduction: str = "none") -> DeviceArray:
    """See ``ArrayNamespace.scatter``. A position out of bounds is reported when the run ends, and nothing is put there.

    Updates of one place are combined in order, but for sums and products of numbers of 32 bits on a GPU.
    """
    context = array.context
    output = context.copied(array.node) if 0 not in array.shape else context.new(array.shape, array.element_type)
    count = positions.size
    if 0 in array.shape or not count:
        return array.made(output)
    places = places_of(context, positions.node)
    whole = indexing.broadcast(context, updates.node, (count, *array.shape[1:]))
    values = context.dense(arithmetic.cast_node(context, whole, array.element_type))
    is_parallel = not context.device.is_cpu and count < 1 << 31
    if is_parallel and reduction == "none":
        _put_last(context, output, places, values)
    elif is_parallel and STORAGE[array.element_type] in _FROM_BITS:
        _combine_at_once(context, output, places, values, reduction)
    else:
        _combine_in_order(context, output, places, values, reduction)
    return array.made(output)


def _launch(
    context: DeviceContext, name: str, text: str, memories: tuple[Memory, ...], numbers: tuple[int, ...], defines: _Defines
) -> None:
    """Queue a kernel with a lane for each of ``numbers[0]`` pieces of work, that writes to the first memory."""
    limit = max(*numbers, *(memory.nbytes for memory in memories))
    arguments, wide = index_numbers(*numbers, limit=limit)
    lanes, fault = context.device.lanes, (("FAULT", f"{SCATTER_INDEX}u"),)
    source = KernelSource(name, text, (("LANES", lanes), *defines, *fault, *wide))
    reports = "status" in text
    everything: tuple[Any, ...] = (*memories, *arguments)
    context.submit(Launch(source, (-(-numbers[0] // lanes),), (lanes,), everything, (0,), reports=reports))


def _columns(output: Strided) -> int:
    return element_count(output.shape[1:])


def _combine_in_order(context: DeviceContext, output: Strided, places: Strided, values: Strided, reduction: str) -> None:
    storage, computed = STORAGE[output.element_type], COMPUTE[output.element_type]
    is_converted = output.element_type in CONVERTED_TYPES
    defines = (
        *_types(output, places),
        ("C", "b8" if output.element_type is TensorElementType.BOOL else computed),
        ("GET(x)", f"get_{storage}(x)" if is_converted else "(x)"),
        ("PUT(x)", f"put_{storage}(x)" if is_converted else f"({storage})(x)"),
        ("COMBINE(now, next)", _COMBINE[reduction]),
    )
    numbers = (_columns(output), output.shape[0], values.shape[0])
    _launch(context, "scatter", _IN_ORDER, (output.held, places.held, values.held), numbers, defines)


def _put_last(context: DeviceContext, output: Strided, places: Strided, values: Strided) -> None:
    rows = output.shape[0]
    last = context.new((rows,), TensorElementType.INT32)
    context.write(Constant(-1, (rows,), TensorElementType.INT32), last)
    types = _types(output, places)
    _launch(context, "scatter_last", _LAST, (last.held, places.held), (values.shape[0], rows), types)
    numbers = (element_count(output.shape), _columns(output))
    _launch(context, "scatter_put", _PUT, (output.held, last.held, values.held), numbers, types)


def _combine_at_once(context: DeviceContext, output: Strided, places: Strided, values: Strided, reduction: str) -> None:
    storage = STORAGE[output.element_type]
    defines = (
        *_types(output, places),
        ("C", storage),
        ("FROM_BITS(u)", _FROM_BITS[storage]),
        ("TO_BITS(x)", _TO_BITS[storage]),
        ("COMBINE(now, next)", _COMBINE[reduction]),
    )
    numbers = (element_count(values.shape), output.shape[0], _columns(output))
    _launch(context, "scatter_atomic", _ATOMIC, (output.held, places.held, values.held), numbers, defines)


def _types(output: Strided, places: Strided) -> _Defines:
    return ("T", STORAGE[output.element_type]), ("IT", STORAGE[places.element_type])


def scatter_flat(size: int, indices: DeviceArray, values: DeviceArray) -> DeviceArray:
    """See ``ArrayNamespace.scatter_flat``."""
    return scatter(values.made(Constant(0, (size,), values.element_type)), indices, values)
