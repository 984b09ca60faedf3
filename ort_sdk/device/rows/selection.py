"""Selection of a few elements of each row that come first in its order."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.launches import Launch, index64

from .sorting import ordered_kernel

__all__ = ["MOST_SELECTED", "select_first"]

MOST_SELECTED = 64
"""Elements up to which selecting takes less than sorting."""
BLOCK = 32
"""Elements that a processor compares at once."""
PART = 4096
"""Elements of a row that a work-group selects from; of what all select another one does."""

_ONE_LANE = """
/* index[row, :KEPT] = positions of the first elements of (rows, n), in order; a lane keeps those it has found so far, sorted, and
   looks at a block of elements only if one comes before the last of them */
KERNEL WORKGROUP(1, 1, 1) void select_first(GLOBAL(const T) x, GLOBAL(i64) index, i64 n) {
  LOCAL(T, best, KEPT);
  LOCAL(i64, at, KEPT);
  i64 row = GROUP(0);
  GLOBAL(const T) own = x + row * n;
  int count = 0;
  for (i64 start = 0; start < n; start += BLOCK) {
    i64 stop = start + BLOCK < n ? start + BLOCK : n;
    int found = count < KEPT;
    if (!found && start + BLOCK <= n) {
      T bound = best[KEPT - 1];
      for (int e = 0; e < BLOCK; e++) found |= BEFORE(own[start + e], bound);
    } else found = 1;
    if (found) {
      for (i64 i = start; i < stop; i++) {
        T v = own[i];
        if (count < KEPT || BEFORE(v, best[KEPT - 1])) {
          int p = count < KEPT ? count++ : KEPT - 1;
          for (; p > 0 && BEFORE(v, best[p - 1]); p--) { best[p] = best[p - 1]; at[p] = at[p - 1]; }
          best[p] = v; at[p] = i;
        }
      }
    }
  }
  for (int p = 0; p < KEPT; p++) index[row * KEPT + p] = at[p];
}
"""

_GROUP = """
/* index[row, part, :KEPT] = positions of the first elements, in order, of a part of (rows, n), or of those elements that `given`
   (rows, m) has the positions of; -1 where there are no more. Each round finds the first that comes after the one before. */
KERNEL WORKGROUP(LANES, 1, 1) void select_first(
    GLOBAL(const T) x, GLOBAL(const i64) given, GLOBAL(i64) index, i64 n, i64 m, i64 part) {
  LOCAL(T, value, LANES);
  LOCAL(i64, place, LANES);
  int lane = LANE(0);
  i64 row = GROUP(0), lo = (i64)GROUP(1) * part, hi = lo + part < m ? lo + part : m;
  i64 parts = (m + part - 1) / part, last = -1;
  GLOBAL(const T) own = x + row * n;
  T bound = 0;
  for (int round = 0; round < KEPT; round++) {
    T best = 0;
    i64 at = -1;
    for (i64 e = lo + lane; e < hi; e += LANES) {
      i64 i = GIVEN ? given[row * m + e] : e;
      if (i >= 0) {
        T v = own[i];
        int is_left = last < 0 || BEFORE(bound, v) || (!BEFORE(v, bound) && i > last);
        if (is_left && (at < 0 || BEFORE(v, best) || (!BEFORE(best, v) && i < at))) { best = v; at = i; }
      }
    }
    value[lane] = best; place[lane] = at;
    BARRIER();
    for (int width = LANES / 2; width > 0; width >>= 1) {
      if (lane < width) {
        T v = value[lane + width];
        i64 i = place[lane + width];
        best = value[lane]; at = place[lane];
        if (i >= 0 && (at < 0 || BEFORE(v, best) || (!BEFORE(best, v) && i < at))) { value[lane] = v; place[lane] = i; }
      }
      BARRIER();
    }
    bound = value[0]; last = place[0];
    BARRIER();
    if (lane == 0) index[(row * parts + GROUP(1)) * KEPT + round] = last;
    if (last < 0) { last = n; bound = own[0]; hi = lo; }
  }
}
"""


def select_first(context: DeviceContext, rows: Strided, output: Strided, *, descending: bool) -> None:
    """Queue what finds the elements of each row that come first.

    Args:
        context: of the device.
        rows: dense (rows, n), of a type that is computed on as it is stored; it has elements.
        output: dense (rows, k) of int64; k is 1 to n, and at most ``MOST_SELECTED``.
        descending: largest first.
    """
    (count, n), k = rows.shape, output.shape[1]
    if context.device.is_cpu:
        kernel = ordered_kernel("select_first", _ONE_LANE, rows.element_type, descending=descending, KEPT=k, BLOCK=BLOCK)
        context.submit(Launch(kernel, (count,), (1,), (rows.held, output.held, index64(n)), (1,)))
        return
    given: Strided | None = None
    while True:
        items = n if given is None else given.shape[1]
        part = max(PART, 4 * k)
        parts = -(-items // part)
        target = output if parts == 1 else context.new((count, parts * k), TensorElementType.INT64)
        lanes = min(context.device.lanes, context.device.row_lanes(min(items, part)))
        defines = {"KEPT": k, "LANES": lanes, "GIVEN": int(given is not None)}
        kernel = ordered_kernel("select_first", _GROUP, rows.element_type, descending=descending, **defines)
        # without positions that are given, the array in their place is not read
        positions = rows.held if given is None else given.held
        numbers = (index64(n), index64(items), index64(part))
        arguments: Any = (rows.held, positions, target.held, *numbers)
        context.submit(Launch(kernel, (count, parts), (lanes, 1), arguments, (2,)))
        if parts == 1:
            return
        given = target
