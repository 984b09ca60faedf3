"""The texts of the attention kernels; ``$names`` are parameters or constants of a plan.

All forms go through the keys in tiles and keep, for each row of scores, the running maximum, the running sum of exponentials
and the running mix of values. A row is a query of a head; the rows of the heads that share a key head are next to each other.

Macros: ``LIMIT`` is the number of keys that count of sample ``b``; ``SINK`` the logit of head ``h`` that takes part without
a value; ``SOFTCAP`` bounds scores; ``HALF`` and ``INTERLEAVED`` say that queries and keys are rotated as they are loaded.
"""

from __future__ import annotations

__all__ = ["APPEND", "COMBINE", "GROW", "RANGE", "ROWS", "TILES"]

_ROTATION = """
#ifdef HALF
/* element d of a head whose pairs of elements are rotated by the angles of a position */
#if INTERLEAVED
#define PAIR(d) ((d) / 2)
#define PARTNER(d) ((d) ^ 1)
#define IS_FIRST(d) ((d) % 2 == 0)
#else
#define PAIR(d) ((d) % HALF)
#define PARTNER(d) ((d) < HALF ? (d) + HALF : (d) - HALF)
#define IS_FIRST(d) ((d) < HALF)
#endif
#define ROTATED(T, x, d, cosines, sines, C) ((d) >= 2 * HALF ? get_##T((x)[d]) \\
  : get_##T((x)[d]) * get_##C((cosines)[PAIR(d)]) \\
    + (IS_FIRST(d) ? -get_##T((x)[PARTNER(d)]) : get_##T((x)[PARTNER(d)])) * get_##C((sines)[PAIR(d)]))
#define ANGLES(b, i) (ANGLE(b, i) < 0 ? 0 : ANGLE(b, i) < ANGLE_ROWS ? ANGLE(b, i) : ANGLE_ROWS - 1) * HALF
#endif
"""

_PLACE = """
  index_t group = GROUP(0), split = group % $splits;
  group /= $splits;
  index_t first = group % $panels * ROWS;
  group /= $panels;
  index_t kh = group % $key_heads, b = group / $key_heads;
  index_t rows = $sharing * $length, begin = split * $span, end = begin + $span;
  if (end > $keys) end = $keys;
#ifdef LIMIT
  if (end > LIMIT) end = LIMIT;
#endif
  GLOBAL_PTR(const $KT) keys = $k + $ko + b * $kb + kh * $kh;
  GLOBAL_PTR(const $VT) values = $v + $vo + b * $vb + kh * $vh;
"""

RANGE = """
  {
    /* keys that no row of the group may attend need no scores */
    i64 least = end, most = begin;
    for (int r = 0; r < ROWS; r++) {
      index_t row = first + r < rows ? first + r : rows - 1;
      index_t h = kh * $sharing + row / $length, i = row % $length;
      i64 from = begin, to = end;
$limits
      if (from < least) least = from;
      if (to > most) most = to;
    }
    if (least > begin) begin = (index_t)least;
    if (most < end) end = (index_t)most;
  }
"""

ROWS = (
    _ROTATION
    + """
#ifdef VW
#define LOAD(T, p) load_##T##v(p)
#else
#define VW 1
#define LOAD(T, p) get_##T(*(p))
#define VLOAD(p) (*(p))
#define VSTORE(v, p) (*(p) = (v))
#define splat_f32(x) (x)
#define sum_f32v(x) (x)
typedef f32 f32v;
#endif
/* one lane for ROWS rows of a key head and a range of keys, which are loaded once for all of them */
KERNEL WORKGROUP(1, 1, 1) void attend_rows($parameters) {"""
    + _PLACE
    + """
  f32v query[ROWS][D / VW], mixed[ROWS][DV / VW];
  f32 top[ROWS], sum[ROWS], s[ROWS][TILE];
  index_t head[ROWS], token[ROWS];
  UNROLL
  for (int r = 0; r < ROWS; r++) {
    index_t row = first + r < rows ? first + r : rows - 1;
    head[r] = kh * $sharing + row / $length; token[r] = row % $length;
    GLOBAL_PTR(const $QT) from = $q + $qo + b * $qb + head[r] * $qh + token[r] * $qs;
#ifdef HALF
    index_t angle = ANGLES(b, token[r]);
    for (int c = 0; c < D / VW; c++) {
      f32 part[VW];
      for (int e = 0; e < VW; e++) part[e] = ROTATED($QT, from, c * VW + e, $cosines + angle, $sines + angle, $CT) * $scale;
      query[r][c] = VLOAD(part);
    }
#else
    for (int c = 0; c < D / VW; c++) query[r][c] = LOAD($QT, from + c * VW) * $scale;
#endif
    for (int c = 0; c < DV / VW; c++) mixed[r][c] = splat_f32(0.0f);
    top[r] = -INFINITY; sum[r] = 0.0f;
#ifdef SINK
    if (split == 0) { index_t h = head[r]; top[r] = SINK; sum[r] = 1.0f; }
#endif
  }
$range
  for (index_t start = begin; start < end; start += TILE) {
    int count = (int)(end - start < TILE ? end - start : TILE);
    for (int t = 0; t < count; t++) {
      GLOBAL_PTR(const $KT) key = keys + (start + t) * $ks;
      f32v dots[ROWS];
      UNROLL
      for (int r = 0; r < ROWS; r++) dots[r] = splat_f32(0.0f);
      UNROLL
      for (int c = 0; c < D / VW; c++) {
        f32v k = LOAD($KT, key + c * VW);
        UNROLL
        for (int r = 0; r < ROWS; r++) dots[r] += query[r][c] * k;
      }
      UNROLL
      for (int r = 0; r < ROWS; r++) s[r][t] = sum_f32v(dots[r]);
    }
    for (int r = 0; r < ROWS; r++) {
      index_t h = head[r], i = token[r];
      f32 now = top[r];
      for (int t = 0; t < count; t++) {
        index_t j = start + t;
#ifdef SOFTCAP
        s[r][t] = SOFTCAP * tanh(s[r][t] / SOFTCAP);
#endif
$bias
        s[r][t] += bias;
        now = s[r][t] > now ? s[r][t] : now;
      }
      for (int t = count; t < TILE; t++) s[r][t] = -INFINITY;
      /* rows without a key that counts stay at zeros */
      f32 shift = now == -INFINITY ? 0.0f : now, fade = exp(top[r] - shift);
      f32v added = splat_f32(0.0f);
      for (int t = 0; t < TILE; t += VW) {
        f32v p = exp(VLOAD(&s[r][t]) - shift);
        VSTORE(p, &s[r][t]);
        added += p;
      }
      sum[r] = sum[r] * fade + sum_f32v(added);
      for (int c = 0; c < DV / VW; c++) mixed[r][c] *= fade;
      top[r] = now;
    }
    for (int t = 0; t < count; t++) {
      GLOBAL_PTR(const $VT) value = values + (start + t) * $vs;
      UNROLL
      for (int c = 0; c < DV / VW; c++) {
        f32v v = LOAD($VT, value + c * VW);
        UNROLL
        for (int r = 0; r < ROWS; r++) mixed[r][c] += s[r][t] * v;
      }
    }
  }
  for (int r = 0; r < ROWS; r++) {
    if (first + r < rows) {
      index_t to = (b * $length + token[r]) * $heads + head[r];
#ifdef PARTIAL
      to = (to * $splits + split) * (DV + 2);
      for (int c = 0; c < DV / VW; c++) VSTORE(mixed[r][c], $y + to + c * VW);
      $y[to + DV] = top[r]; $y[to + DV + 1] = sum[r];
#else
      f32 factor = sum[r] == 0.0f ? 1.0f : 1.0f / sum[r];
      for (int c = 0; c < DV / VW; c++) {
        f32 part[VW];
        VSTORE(mixed[r][c] * factor, part);
        for (int e = 0; e < VW; e++) $y[to * DV + c * VW + e] = put_$YT(part[e]);
      }
#endif
    }
  }
}
"""
)

TILES = (
    _ROTATION
    + """
/* a group of LANES lanes for ROWS rows of a key head; tiles of TILE keys, then of their values, in local memory */
KERNEL WORKGROUP(LANES, 1, 1) void attend_tiles($parameters) {
  LOCAL(f32, query, ROWS * D);
  LOCAL(f32, tile, TILE * WIDTH);
  LOCAL(f32, s, ROWS * TILE);
  LOCAL(f32, top, ROWS); LOCAL(f32, sum, ROWS); LOCAL(f32, fade, ROWS); LOCAL(f32, shift, ROWS);
  int lane = LANE(0);"""
    + _PLACE
    + """
  for (int e = lane; e < ROWS * D; e += LANES) {
    index_t row = first + e / D < rows ? first + e / D : rows - 1;
    GLOBAL_PTR(const $QT) from = $q + $qo + b * $qb + (kh * $sharing + row / $length) * $qh + row % $length * $qs;
#ifdef HALF
    index_t angle = ANGLES(b, row % $length);
    query[e] = ROTATED($QT, from, e % D, $cosines + angle, $sines + angle, $CT) * $scale;
#else
    query[e] = get_$QT(from[e % D]) * $scale;
#endif
  }
  if (lane < ROWS) {
    top[lane] = -INFINITY; sum[lane] = 0.0f;
#ifdef SINK
    index_t h = kh * $sharing + (first + lane < rows ? first + lane : rows - 1) / $length;
    if (split == 0) { top[lane] = SINK; sum[lane] = 1.0f; }
#endif
  }
  f32 mixed[OWN];
  UNROLL
  for (int n = 0; n < OWN; n++) mixed[n] = 0.0f;
$range
  for (index_t start = begin; start < end; start += TILE) {
    int count = (int)(end - start < TILE ? end - start : TILE);
    BARRIER();
    for (int e = lane; e < TILE * D; e += LANES)
      tile[e / D * (D + 1) + e % D] = e / D < count ? get_$KT(keys[(start + e / D) * $ks + e % D]) : 0.0f;
    BARRIER();
    for (int e = lane; e < ROWS * TILE; e += LANES) {
      int r = e / TILE, t = e % TILE;
      f32 score = 0.0f;
      for (int d = 0; d < D; d++) score += query[r * D + d] * tile[t * (D + 1) + d];
      if (t < count) {
        index_t row = first + r < rows ? first + r : rows - 1;
        index_t h = kh * $sharing + row / $length, i = row % $length, j = start + t;
#ifdef SOFTCAP
        score = SOFTCAP * tanh(score / SOFTCAP);
#endif
$bias
        score += bias;
      }
      s[e] = t < count ? score : -INFINITY;
    }
    BARRIER();
    if (lane < ROWS) {
      f32 now = top[lane];
      for (int t = 0; t < TILE; t++) now = s[lane * TILE + t] > now ? s[lane * TILE + t] : now;
      /* rows without a key that counts stay at zeros */
      shift[lane] = now == -INFINITY ? 0.0f : now;
      fade[lane] = exp(top[lane] - shift[lane]);
      top[lane] = now;
    }
    BARRIER();
    for (int e = lane; e < ROWS * TILE; e += LANES) s[e] = exp(s[e] - shift[e / TILE]);
    for (int e = lane; e < TILE * DV; e += LANES)
      tile[e] = e / DV < count ? get_$VT(values[(start + e / DV) * $vs + e % DV]) : 0.0f;
    BARRIER();
    if (lane < ROWS) {
      f32 added = 0.0f;
      for (int t = 0; t < TILE; t++) added += s[lane * TILE + t];
      sum[lane] = sum[lane] * fade[lane] + added;
    }
    UNROLL
    for (int n = 0; n < OWN; n++) {
      int e = lane + n * LANES;
      if (e < ROWS * DV) {
        f32 value = mixed[n] * fade[e / DV];
        for (int t = 0; t < TILE; t++) value += s[e / DV * TILE + t] * tile[t * DV + e % DV];
        mixed[n] = value;
      }
    }
  }
  BARRIER();
  UNROLL
  for (int n = 0; n < OWN; n++) {
    int e = lane + n * LANES, r = e / DV;
    index_t row = first + r;
    if (e < ROWS * DV && row < rows) {
      index_t to = (b * $length + row % $length) * $heads + kh * $sharing + row / $length;
#ifdef PARTIAL
      to = (to * $splits + split) * (DV + 2);
      $y[to + e % DV] = mixed[n];
      if (e % DV == 0) { $y[to + DV] = top[r]; $y[to + DV + 1] = sum[r]; }
#else
      $y[to * DV + e % DV] = put_$YT(sum[r] == 0.0f ? mixed[n] : mixed[n] / sum[r]);
#endif
    }
  }
}
"""
)

COMBINE = """
/* the parts of each row, which ranges of keys gave, as one */
KERNEL WORKGROUP(LANES, 1, 1) void attend_combine(GLOBAL(const f32) parts, GLOBAL($YT) y, i64 total, i64 splits) {
  i64 e = (i64)GROUP(0) * LANES + LANE(0);
  if (e < total) {
    i64 from = e / DV * splits * (DV + 2);
    f32 top = -INFINITY, sum = 0.0f, mixed = 0.0f;
    for (i64 n = 0; n < splits; n++) {
      f32 own = parts[from + n * (DV + 2) + DV];
      top = own > top ? own : top;
    }
    f32 shift = top == -INFINITY ? 0.0f : top;
    for (i64 n = 0; n < splits; n++) {
      i64 part = from + n * (DV + 2);
      f32 factor = exp(parts[part + DV] - shift);
      mixed += parts[part + e % DV] * factor;
      sum += parts[part + DV + 1] * factor;
    }
    y[e] = put_$YT(sum == 0.0f ? mixed : mixed / sum);
  }
}
"""

_NEW_ROW = """
      GLOBAL_PTR(const $KT) key = $k + $ko + b * $kb + h * $kh + i * $ks;
      GLOBAL_PTR(const $VT) value = $v + $vo + b * $vb + h * $vh + i * $vs;
#ifdef HALF
      index_t angle = ANGLES(b, i);
#endif
      for (int s = 0; s < SPAN; s++) {
        int d = at + s;
#ifdef HALF
        $keys[to + s] = put_$T(ROTATED($KT, key, d, $cosines + angle, $sines + angle, $CT));
#else
        $keys[to + s] = put_$T(get_$KT(key[d]));
#endif
        $values[to + s] = put_$T(get_$VT(value[d]));
      }"""

APPEND = (
    _ROTATION
    + """
/* new keys, rotated by their positions' angles, and values behind those of each sequence; a lane does SPAN elements of a row */
KERNEL WORKGROUP(LANES, 1, 1) void cache_append($parameters, GLOBAL_PTR(u32) status) {
  index_t piece = (index_t)GROUP(0) * LANES + LANE(0);
  if (piece < $total) {
    int at = (int)(piece % (D / SPAN)) * SPAN;
    index_t i = piece / (D / SPAN) % $length, h = piece / (D / SPAN) / $length % $key_heads;
    index_t b = piece / (D / SPAN) / $length / $key_heads;
    i64 row = (i64)START(b) + i;
    if (row < 0 || row >= $rows || TOTAL(b) > $rows) report(status, FAULT);
    else {
      index_t to = ((b * $key_heads + h) * $capacity + (index_t)row) * D + at;"""
    + _NEW_ROW
    + """
    }
  }
}
"""
)

GROW = (
    _ROTATION
    + """
/* all rows of both caches: the new ones, else those of the past where there are, else zeros; a lane does SPAN elements of a row.
   Where past and present are one memory, only the new rows are written. */
KERNEL WORKGROUP(LANES, 1, 1) void cache_grow($parameters, GLOBAL_PTR(u32) status) {
  index_t piece = (index_t)GROUP(0) * LANES + LANE(0);
  if (piece < $total) {
    int at = (int)(piece % (D / SPAN)) * SPAN;
    index_t row = piece / (D / SPAN) % $capacity, h = piece / (D / SPAN) / $capacity % $key_heads;
    index_t b = piece / (D / SPAN) / $capacity / $key_heads, to = piece * SPAN;
    i64 start = (i64)START(b), i = row - start;
    int fits = start >= 0 && start + $length <= $rows && TOTAL(b) <= $rows;
    if (!fits && row == 0) report(status, FAULT);
    if (fits && i >= 0 && i < $length) {"""
    + _NEW_ROW
    + """
    } else {
#ifdef PAST
      index_t from = ((b * $key_heads + h) * $past_rows + row) * D + at;
      if ((GLOBAL_PTR(const $T))$keys != (GLOBAL_PTR(const $T))$past_keys)
        for (int s = 0; s < SPAN; s++) $keys[to + s] = row < $past_rows ? $past_keys[from + s] : ($T)0;
      if ((GLOBAL_PTR(const $T))$values != (GLOBAL_PTR(const $T))$past_values)
        for (int s = 0; s < SPAN; s++) $values[to + s] = row < $past_rows ? $past_values[from + s] : ($T)0;
#else
      for (int s = 0; s < SPAN; s++) $keys[to + s] = $values[to + s] = ($T)0;
#endif
    }
  }
}
"""
)
