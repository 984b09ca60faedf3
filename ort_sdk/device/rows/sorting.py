"""Sorting of rows: positions of the elements, ascending or descending, NaN last, and equal ones by their positions."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.expressions.nodes import Strided, item_bytes
from ort_sdk.device.launches import KernelSource, Launch, index64

__all__ = ["ordered_kernel", "sort_rows"]

_ONE_LANE = """
/* index[row, :kept] = positions of the elements of (rows, n) in order: merges longer and longer runs, in two halves of workspace
   (rows, 2, n) of elements and of positions, which are an array of 32 bits */
KERNEL WORKGROUP(1, 1, 1) void sort_rows(
    GLOBAL(const T) x, GLOBAL_PTR(T) keys, GLOBAL_PTR(i32) places, GLOBAL(i64) index, i64 n, i64 kept) {
  i64 row = GROUP(0);
  GLOBAL(const T) own = x + row * n;
  GLOBAL_PTR(T) k = keys + row * 2 * n;
  GLOBAL_PTR(i32) p = places + row * 2 * n;
  GLOBAL_PTR(T) l = k + n;
  GLOBAL_PTR(i32) q = p + n;
  for (i64 start = 0; start < n; start += RUN) {
    i64 stop = start + RUN < n ? start + RUN : n;
    for (i64 i = start; i < stop; i++) {
      T v = own[i];
      i64 j = i;
      for (; j > start && BEFORE(v, k[j - 1]); j--) { k[j] = k[j - 1]; p[j] = p[j - 1]; }
      k[j] = v; p[j] = (i32)i;
    }
  }
  for (i64 run = RUN; run < n; run *= 2) {
    for (i64 start = 0; start < n; start += 2 * run) {
      i64 middle = start + run < n ? start + run : n, stop = start + 2 * run < n ? start + 2 * run : n;
      i64 i = start, j = middle, o = start;
      while (i < middle && j < stop) {
        int right = BEFORE(k[j], k[i]);
        i64 next = right ? j : i;
        l[o] = k[next]; q[o++] = p[next];
        i += 1 - right; j += right;
      }
      for (; i < middle; i++, o++) { l[o] = k[i]; q[o] = p[i]; }
      for (; j < stop; j++, o++) { l[o] = k[j]; q[o] = p[j]; }
    }
    GLOBAL_PTR(T) t = k; k = l; l = t;
    GLOBAL_PTR(i32) s = p; p = q; q = s;
  }
  for (i64 i = 0; i < kept; i++) index[row * kept + i] = p[i];
}
"""

_GROUP = """
/* Sorts a part of SIZE elements of each row of (rows, n) in local memory, by a bitonic network; what is beyond the row comes
   last. The positions go to index[row, :kept], the elements to keys[row, :] where other parts are to be merged. */
FN int comes_first(T a, i32 i, T b, i32 j, i32 count) {
  if (i >= count || j >= count) return i < j;
  return BEFORE(a, b) || (!BEFORE(b, a) && i < j);
}
KERNEL WORKGROUP(LANES, 1, 1) void sort_rows(
    GLOBAL(const T) x, GLOBAL(T) keys, GLOBAL(i64) index, i64 n, i64 kept) {
  LOCAL(T, value, SIZE);
  LOCAL(i32, place, SIZE);
  i64 row = GROUP(0), start = (i64)GROUP(1) * SIZE;
  i32 count = (i32)(n - start < SIZE ? n - start : SIZE);
  for (int e = LANE(0); e < SIZE; e += LANES) { value[e] = e < count ? x[row * n + start + e] : (T)0; place[e] = e; }
  BARRIER();
  for (int size = 2; size <= SIZE; size <<= 1) {
    for (int step = size >> 1; step > 0; step >>= 1) {
      for (int e = LANE(0); e < SIZE / 2; e += LANES) {
        int i = 2 * e - (e & (step - 1)), j = i + step, up = (i & size) == 0;
        T a = value[i], b = value[j];
        i32 p = place[i], q = place[j];
        if (comes_first(b, q, a, p, count) == up) { value[i] = b; value[j] = a; place[i] = q; place[j] = p; }
      }
      BARRIER();
    }
  }
  for (int e = LANE(0); e < count; e += LANES) {
    if (start + e < kept) index[row * kept + start + e] = start + place[e];
    if (MERGED) keys[row * n + start + e] = value[e];
  }
}
"""

_MERGE = """
/* Merges pairs of sorted runs of each row of (rows, n): an element's place is its own in its run, and how many of the other run
   come before it. The elements are written where more is to be merged. */
KERNEL WORKGROUP(LANES, 1, 1) void merge_rows(
    GLOBAL(const T) x, GLOBAL(const i64) from, GLOBAL(T) keys, GLOBAL(i64) index, i64 total, i64 n, i64 run, i64 kept) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 i = e % n, row = e / n, start = i / (2 * run) * (2 * run);
    GLOBAL(const T) own = x + row * n;
    i64 middle = start + run < n ? start + run : n, stop = start + 2 * run < n ? start + 2 * run : n;
    int is_right = i >= middle;
    T v = own[i];
    i64 lo = is_right ? start : middle, hi = is_right ? middle : stop, first = lo;
    while (lo < hi) {
      i64 between = lo + (hi - lo) / 2;
      T other = own[between];
      if (is_right ? !BEFORE(v, other) : BEFORE(other, v)) lo = between + 1; else hi = between;
    }
    i64 place = is_right ? start + (i - middle) + (lo - first) : i + (lo - first);
    if (place < kept) index[row * kept + place] = from[e];
    if (MERGED) keys[row * n + place] = v;
  }
}
"""

RUN = 16
"""Elements that a processor sorts by insertion."""


_BEFORE = "(((a) {0} (b)) | (((a) == (a)) & ((b) != (b))))"
"""Without branches, which nobody could predict."""


def ordered_kernel(name: str, text: str, element_type: TensorElementType, *, descending: bool, **defines: int) -> KernelSource:
    """A kernel that compares elements with ``BEFORE(a, b)``, in whose text ``T`` is their type."""
    before = _BEFORE.format(">" if descending else "<")
    return KernelSource(name, text, (("T", STORAGE[element_type]), ("BEFORE(a, b)", before), *defines.items()))


def sort_rows(context: DeviceContext, rows: Strided, output: Strided, *, descending: bool) -> None:
    """Queue what sorts rows.

    Args:
        context: of the device.
        rows: dense (rows, n), of a type that is computed on as it is stored; it has elements, fewer than 2**31 in a row.
        output: dense (rows, kept) of int64: gets the positions of the elements that come first, in order.
        descending: largest first.
    """
    if context.device.is_cpu:
        _sort_on_processor(context, rows, output, descending=descending)
    else:
        _sort_in_groups(context, rows, output, descending=descending)


def _sort_on_processor(context: DeviceContext, rows: Strided, output: Strided, *, descending: bool) -> None:
    count, n = rows.shape
    keys = context.new((count, 2, n), rows.element_type)
    places = context.new((count, 2, n), TensorElementType.INT32)
    kernel = ordered_kernel("sort_rows", _ONE_LANE, rows.element_type, descending=descending, RUN=RUN)
    memories = (rows.held, keys.held, places.held, output.held)
    context.submit(Launch(kernel, (count,), (1,), (*memories, index64(n), index64(output.shape[1])), (1, 2, 3)))


def _sort_in_groups(context: DeviceContext, rows: Strided, output: Strided, *, descending: bool) -> None:
    (count, n), kept, device = rows.shape, output.shape[1], context.device
    size = 2
    while size < n and size * 2 * (item_bytes(rows.element_type) + 4) <= device.local_bytes // 2:
        size *= 2
    lanes = min(device.most_lanes, max(32, size // 2))
    run, is_last = size, size >= n
    keys, index = _targets(context, rows, output, is_last=is_last)
    defines = {"LANES": lanes, "SIZE": size, "MERGED": int(not is_last)}
    kernel = ordered_kernel("sort_rows", _GROUP, rows.element_type, descending=descending, **defines)
    arguments: Any = (rows.held, keys.held, index.held, index64(n), index64(index.shape[1]))
    context.submit(Launch(kernel, (count, -(-n // size)), (lanes, 1), arguments, (1, 2)))
    while not is_last:
        is_last = 2 * run >= n
        source, positions = keys, index
        keys, index = _targets(context, rows, output, is_last=is_last)
        defines = {"LANES": device.lanes, "MERGED": int(not is_last)}
        kernel = ordered_kernel("merge_rows", _MERGE, rows.element_type, descending=descending, **defines)
        numbers = (index64(count * n), index64(n), index64(run), index64(kept if is_last else n))
        arguments = (source.held, positions.held, keys.held, index.held, *numbers)
        context.submit(Launch(kernel, (-(-count * n // device.lanes),), (device.lanes,), arguments, (2, 3)))
        run *= 2


def _targets(context: DeviceContext, rows: Strided, output: Strided, *, is_last: bool) -> tuple[Strided, Strided]:
    """Elements and positions that a pass writes; the last one leaves the elements out, and gets memory of one."""
    if is_last:
        return context.new((1,), rows.element_type), output
    return context.new(rows.shape, rows.element_type), context.new(rows.shape, TensorElementType.INT64)
