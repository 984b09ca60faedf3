"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.nodes import Strided, element_count
from ort_sdk.device.launches import KernelSource, Launch, index64

__all__ = ["scan"]

_ONE_LANE = """
/* running sums or products along the axis in the middle of (outer, count, inner); a lane goes along it */
KERNEL WORKGROUP(LANES, 1, 1) void scan(GLOBAL(const T) x, GLOBAL(T) y, i64 total, i64 count, i64 inner) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 position = e / inner * count * inner + e % inner;
    T a = START;
    for (i64 c = 0; c < count; c++, position += inner) { a = (T)(a OPERATOR x[position]); y[position] = a; }
  }
}
"""

_TOTALS = """
/* totals[row, part] of parts of the same rows */
KERNEL WORKGROUP(LANES, 1, 1) void scan_totals(GLOBAL(const T) x, GLOBAL(T) totals, i64 count, i64 inner, i64 part, i64 parts) {
  LOCAL(T, scratch, LANES);
  int lane = LANE(0);
  i64 row = GROUP(0), lo = (i64)GROUP(1) * part, hi = lo + part < count ? lo + part : count;
  i64 base = row / inner * count * inner + row % inner;
  T a = START;
  for (i64 c = lo + lane; c < hi; c += LANES) a = (T)(a OPERATOR x[base + c * inner]);
  scratch[lane] = a; BARRIER();
  for (int width = LANES / 2; width > 0; width >>= 1) {
    if (lane < width) scratch[lane] = (T)(scratch[lane] OPERATOR scratch[lane + width]);
    BARRIER(); }
  if (lane == 0) totals[row * parts + GROUP(1)] = scratch[0];
}
"""

_GROUP = """
/* the same, by a work-group for each part of a row; `before` (rows, parts) has the running totals of parts */
KERNEL WORKGROUP(LANES, 1, 1) void scan(
    GLOBAL(const T) x, GLOBAL(const T) before, GLOBAL(T) y, i64 count, i64 inner, i64 part, i64 parts) {
  LOCAL(T, scratch, LANES);
  int lane = LANE(0);
  i64 row = GROUP(0), lo = (i64)GROUP(1) * part, hi = lo + part < count ? lo + part : count;
  i64 base = row / inner * count * inner + row % inner;
  T carry = GROUP(1) > 0 ? before[row * parts + GROUP(1) - 1] : (T)START;
  for (i64 c = lo; c < hi; c += LANES) {
    i64 own = c + lane;
    scratch[lane] = own < hi ? x[base + own * inner] : (T)START;
    BARRIER();
    for (int width = 1; width < LANES; width <<= 1) {
      T earlier = lane >= width ? scratch[lane - width] : (T)START;
      BARRIER();
      scratch[lane] = (T)(earlier OPERATOR scratch[lane]);
      BARRIER();
    }
    if (own < hi) y[base + own * inner] = (T)(carry OPERATOR scratch[lane]);
    carry = (T)(carry OPERATOR scratch[LANES - 1]);
    BARRIER();
  }
}
"""

PART = 8192
"""Elements of a row that a work-group goes through; the totals of parts are summed first where there are several."""


def scan(context: DeviceContext, array: Strided, axis: int, output: Strided, *, product: bool) -> None:
    """Queue what makes running sums or products.

    Args:
        context: of the device.
        array: dense, of a type that is computed on as it is stored; it has elements.
        axis: along which.
        output: dense, of the same shape and type.
        product: multiply, and not add.
    """
    device, shape = context.device, array.shape
    count, inner = shape[axis], element_count(shape[axis + 1 :])
    rows = element_count(shape) // count
    operation = (("T", COMPUTE[array.element_type]), ("START", int(product)), ("OPERATOR", "*" if product else "+"))
    if device.is_cpu or (inner > 1 and rows >= device.lanes * device.units) or count < device.row_lanes(1):
        source = KernelSource("scan", _ONE_LANE, (("LANES", device.lanes), *operation))
        numbers: Any = (index64(rows), index64(count), index64(inner))
        groups = -(-rows // device.lanes)
        context.submit(Launch(source, (groups,), (device.lanes,), (array.held, output.held, *numbers), (1,)))
        return
    lanes = device.row_lanes(min(count, PART))
    part = max(PART, -(-count // PART))
    parts = -(-count // part)
    defines = (("LANES", lanes), *operation)
    numbers = (index64(count), index64(inner), index64(part), index64(parts))
    # the first part has none before it, and does not read the array in their place
    before = array
    if parts > 1:
        totals = context.new((rows, parts), array.element_type)
        source = KernelSource("scan_totals", _TOTALS, defines)
        context.submit(Launch(source, (rows, parts), (lanes, 1), (array.held, totals.held, *numbers), (1,)))
        before = context.new((rows, parts), array.element_type)
        scan(context, totals, 1, before, product=product)
    source = KernelSource("scan", _GROUP, defines)
    context.submit(Launch(source, (rows, parts), (lanes, 1), (array.held, before.held, output.held, *numbers), (2,)))
