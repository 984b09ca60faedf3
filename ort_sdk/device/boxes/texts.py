"""Kernels of non-maximum suppression in the device language."""

from __future__ import annotations

__all__ = ["ROWS", "SUPPRESS_BY_GROUPS", "SUPPRESS_BY_LANES"]

_BOXES = """
/* Larger for the better box: that of the higher score, of equal ones the earlier. NaN is the lowest score; 0 is no box. */
FN u64 key_of(f32 score, i32 box) {
  u32 bits = f32_bits(score == 0.0f ? 0.0f : score);
  u32 order = score != score ? 0u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ((u64)order << 32) | (0xffffffffu - (u32)box);
}
FN i32 box_of(u64 key) { return (i32)(0xffffffffu - (u32)key); }
/* Corners of a box, low ones first, and its area. fma with 0 rounds a product that compilers would fuse with what follows. */
FN void corners_of(GLOBAL_PTR(const f32) box, f32 *c) {
  for (int d = 0; d < 2; d++) {
    f32 first = box[d], second = box[d + 2];
    c[d] = CENTERED ? first - second * 0.5f : nan_min(first, second);
    c[d + 2] = CENTERED ? first + second * 0.5f : nan_max(first, second);
  }
  c[4] = fma(c[2] - c[0], c[3] - c[1], 0.0f);
}
/* Whether the intersection is more than a share of the union. The sign of the fma is exact, the quotient is rounded as NumPy's:
   equality is right also where divisions are not. NaN and boxes without area overlap with nothing. */
FN int overlaps(f32 a0, f32 a1, f32 a2, f32 a3, f32 area, const f32 *b, f32 share) {
  f32 height = nan_min(a2, b[2]) - nan_max(a0, b[0]), width = nan_min(a3, b[3]) - nan_max(a1, b[1]);
  f32 common = fma(height, width, 0.0f), both = area + b[4] - common;
  int is_some = (height > 0.0f) & (width > 0.0f) & (common > 0.0f) & (area > 0.0f) & (b[4] > 0.0f);
  return is_some & (fma(-share, both, common) > 0.0f) & (common / both > share);
}
"""

SUPPRESS_BY_LANES = (
    _BOXES
    + """
/* puts a key into the place of the largest of a heap's part, and lets larger ones rise */
FN void sift_down(GLOBAL_PTR(u64) heap, i32 count, i32 at, u64 key) {
  for (i32 child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && heap[child + 1] > heap[child]) child++;
    if (heap[child] <= key) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = key;
}
#ifdef VW
/* the same of BLOCK boxes, whose numbers are in rows; NaN is where an area is, and that is all that looks for it */
FN int overlaps_any(GLOBAL_PTR(const f32) row, i32 pitch, const f32 *b, f32 share) {
  f32v height = fmin(VLOAD(row + 2 * pitch), splat_f32(b[2])) - fmax(VLOAD(row), splat_f32(b[0]));
  f32v width = fmin(VLOAD(row + 3 * pitch), splat_f32(b[3])) - fmax(VLOAD(row + pitch), splat_f32(b[1]));
  f32v zero = splat_f32(0.0f), least = splat_f32(share), area = VLOAD(row + 4 * pitch), other = splat_f32(b[4]);
  f32v common = fma(height, width, zero), both = area + other - common;
  i32v is_some = (height > zero) & (width > zero) & (common > zero) & (area > zero) & (other > zero);
  return any(is_some & (fma(-least, both, common) > zero) & (common / both > least));
}
#else
FN int overlaps_any(GLOBAL_PTR(const f32) row, i32 pitch, const f32 *b, f32 share) {
  int hit = 0;
  for (i32 k = 0; k < BLOCK; k++)
    hit |= overlaps(row[k], row[pitch + k], row[2 * pitch + k], row[3 * pitch + k], row[4 * pitch + k], b, share);
  return hit;
}
#endif
/* A lane keeps boxes of a batch and class: those of the heap, best first, that overlap with none kept before. Of these the
   corners and areas are in rows of `pitch`, a multiple of BLOCK: boxes that fill up the last block have no area. */
KERNEL WORKGROUP(1, 1, 1) void suppress(GLOBAL(const f32) boxes, GLOBAL(const f32) scores, GLOBAL_PTR(u64) heaps,
    GLOBAL_PTR(f32) table, GLOBAL(i32) kept, GLOBAL(i64) counts, i32 classes, i32 n, i32 most, i32 pitch, f32 share, f32 bound) {
  i64 pair = GROUP(0);
  GLOBAL_PTR(const f32) own = scores + pair * n;
  GLOBAL_PTR(const f32) corners = boxes + pair / classes * n * 4;
  GLOBAL_PTR(u64) heap = heaps + pair * n;
  GLOBAL_PTR(f32) row = table + pair * 5 * pitch;
  i32 left = 0, found = 0;
  for (i32 i = 0; i < n; i++) if (!BOUNDED || own[i] > bound) heap[left++] = key_of(own[i], i);
  for (i32 at = left / 2 - 1; at >= 0; at--) sift_down(heap, left, at, heap[at]);
  while (left > 0 && found < most) {
    i32 box = box_of(heap[0]);
    f32 c[5];
    int hit = 0;
    left--;
    sift_down(heap, left, 0, heap[left]);
    corners_of(corners + (i64)box * 4, c);
    for (i32 block = 0; block < found && !hit; block += BLOCK) hit = overlaps_any(row + block, pitch, c, share);
    if (!hit) {
      if (found % BLOCK == 0) {
        for (int d = 0; d < 5; d++) { for (int k = 0; k < BLOCK; k++) row[d * pitch + found + k] = 0.0f; }
      }
      for (int d = 0; d < 5; d++) row[d * pitch + found] = c[d];
      kept[pair * most + found++] = box;
    }
  }
  counts[pair] = found;
}
"""
)

SUPPRESS_BY_GROUPS = (
    _BOXES
    + """
/* A group keeps boxes of a batch and class. Each round drops what overlaps with the box kept last, and finds the best of the
   rest; a lane has every LANES-th box, and in `left` the list of those that are left of them. */
KERNEL WORKGROUP(LANES, 1, 1) void suppress(GLOBAL(const f32) boxes, GLOBAL(const f32) scores, GLOBAL_PTR(i32) left,
    GLOBAL(i32) kept, GLOBAL(i64) counts, i32 classes, i32 n, i32 most, f32 share, f32 bound) {
  LOCAL(u64, best, LANES);
  int lane = LANE(0);
  i64 pair = GROUP(0);
  GLOBAL_PTR(const f32) own = scores + pair * n;
  GLOBAL_PTR(const f32) corners = boxes + pair / classes * n * 4;
  GLOBAL_PTR(i32) list = left + pair * n + lane;
  i32 count = 0, found = 0, last = -1, rounds = most;
  f32 kept_last[5];
  for (int d = 0; d < 5; d++) kept_last[d] = 0.0f;
  for (i32 i = lane; i < n; i += LANES) if (!BOUNDED || own[i] > bound) list[count++ * LANES] = i;
  for (i32 round = 0; round < rounds; round++) {
    u64 top = 0;
    i32 stay = 0;
    for (i32 j = 0; j < count; j++) {
      i32 i = list[j * LANES];
      f32 c[5];
      corners_of(corners + (i64)i * 4, c);
      if (i != last && !overlaps(kept_last[0], kept_last[1], kept_last[2], kept_last[3], kept_last[4], c, share)) {
        u64 key = key_of(own[i], i);
        top = key > top ? key : top;
        list[stay++ * LANES] = i;
      }
    }
    count = stay;
    best[lane] = top;
    BARRIER();
    for (int width = LANES / 2; width > 0; width >>= 1) {
      if (lane < width && best[lane + width] > best[lane]) best[lane] = best[lane + width];
      BARRIER();
    }
    top = best[0];
    BARRIER();
    if (top == 0) rounds = round;
    else {
      last = box_of(top);
      corners_of(corners + (i64)last * 4, kept_last);
      if (lane == 0) kept[pair * most + found] = last;
      found++;
    }
  }
  if (lane == 0) counts[pair] = found;
}
"""
)

ROWS = """
/* rows (batch, class, box) of the boxes kept; ends[pair] is the number of those of all pairs up to this one */
KERNEL WORKGROUP(LANES, 1, 1) void kept_rows(
    GLOBAL(const i32) kept, GLOBAL(const i64) ends, GLOBAL(i64) rows, i64 total, i64 pairs, i64 classes, i64 most) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 pair = 0, high = pairs - 1;
    while (pair < high) {
      i64 middle = (pair + high) / 2;
      if (ends[middle] > e) high = middle; else pair = middle + 1;
    }
    rows[e * 3] = pair / classes;
    rows[e * 3 + 1] = pair % classes;
    rows[e * 3 + 2] = kept[pair * most + e - (pair > 0 ? ends[pair - 1] : 0)];
  }
}
"""
