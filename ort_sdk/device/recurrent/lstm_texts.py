"""The texts of recurrent layers; ``$names`` are parameters of a kernel.

The recurrent weight is in panels of ``W`` units, (directions, 4 gates, panels, hidden, W), with zeros behind the last unit. What
the input adds to the gates is computed before, (directions, time, batch, 4 * hidden). Gates are in ONNX's order: input, output,
forget, cell.
"""

from __future__ import annotations

__all__ = ["LANES_TEXT", "ROWS_TEXT"]

_COMMON = """
#define LOGISTIC(v) (1.0f / (1.0f + exp(-(v))))
#define IS_BACKWARDS(direction) (FIRST_BACKWARDS + (direction) > 0)
/* new cell and hidden state of what was given and what the states before add */
#define CELL(x, s, cell) (LOGISTIC(x[2] + s[2]) * cell + LOGISTIC(x[0] + s[0]) * tanh(x[3] + s[3]))
#define HIDDEN(x, s, cell) (LOGISTIC(x[1] + s[1]) * tanh(cell))
"""

_PLACE = """
  index_t b = GROUP(0) % $batch, direction = GROUP(0) / $batch;
  index_t state = (direction * $batch + b) * H;
  GLOBAL_PTR(const f32) weights = $weights + direction * (4 * PANELS * H * W);
"""

_STEP = """
  for (index_t step = 0; step < $time; step++) {
    index_t t = IS_BACKWARDS(direction) ? $time - 1 - step : step;
    GLOBAL_PTR(const f32) given = $gates + ((direction * $time + t) * $batch + b) * (4 * H);
    index_t to = ((t * $directions + direction) * $batch + b) * H;
"""

ROWS_TEXT = (
    """
#ifndef VW
#define VW 1
#define VLOAD(p) (*(p))
#define VSTORE(v, p) (*(p) = (v))
#define splat_f32(x) (x)
typedef f32 f32v;
#endif
"""
    + _COMMON
    + """
/* one lane for a sequence in one direction */
KERNEL WORKGROUP(1, 1, 1) void lstm_rows($parameters) {"""
    + _PLACE
    + """
  f32 hidden[PANELS * W], cells[PANELS * W], after[PANELS * W];
  for (int u = 0; u < PANELS * W; u++) hidden[u] = cells[u] = 0.0f;
#ifdef INITIAL_HIDDEN
  for (int u = 0; u < H; u++) hidden[u] = $initial_hidden[state + u];
#endif
#ifdef INITIAL_CELL
  for (int u = 0; u < H; u++) cells[u] = $initial_cell[state + u];
#endif"""
    + _STEP
    + """
    for (int p = 0; p < PANELS; p++) {
      /* two sums for each gate, so that additions need not wait for each other */
      f32v s[4], more[4], x[4];
      UNROLL for (int g = 0; g < 4; g++) s[g] = more[g] = splat_f32(0.0f);
      GLOBAL_PTR(const f32) panel = weights + p * (H * W);
      int q = 0;
      for (; q + 2 <= H; q += 2) {
        f32v first = splat_f32(hidden[q]), second = splat_f32(hidden[q + 1]);
        UNROLL for (int g = 0; g < 4; g++) {
          s[g] = fma(first, VLOAD(panel + g * (PANELS * H * W) + q * W), s[g]);
          more[g] = fma(second, VLOAD(panel + g * (PANELS * H * W) + (q + 1) * W), more[g]);
        }
      }
      if (q < H) {
        UNROLL for (int g = 0; g < 4; g++)
          s[g] = fma(splat_f32(hidden[q]), VLOAD(panel + g * (PANELS * H * W) + q * W), s[g]);
      }
      UNROLL for (int g = 0; g < 4; g++) {
        f32 part[W];
        for (int e = 0; e < W; e++) part[e] = p * W + e < H ? given[g * H + p * W + e] : 0.0f;
        x[g] = VLOAD(part);
        s[g] += more[g];
      }
      f32v cell = VLOAD(cells + p * W);
      cell = CELL(x, s, cell);
      VSTORE(cell, cells + p * W);
      VSTORE(HIDDEN(x, s, cell), after + p * W);
    }
    for (int u = 0; u < H; u++) hidden[u] = after[u];
#ifdef WANTS_SEQUENCE
    for (int u = 0; u < H; u++) $sequence[to + u] = put_$YT(hidden[u]);
#endif
  }
  for (int u = 0; u < H; u++) { $last_hidden[state + u] = put_$YT(hidden[u]); $last_cell[state + u] = put_$YT(cells[u]); }
}
"""
)

LANES_TEXT = (
    _COMMON
    + """
/* a group of LANES lanes for a sequence in one direction; a lane has OWN units */
KERNEL WORKGROUP(LANES, 1, 1) void lstm_lanes($parameters) {
  LOCAL(f32, hidden, H);
  int lane = LANE(0);"""
    + _PLACE
    + """
  f32 cells[OWN], after[OWN];
  for (int n = 0; n < OWN; n++) {
    int u = lane + n * LANES;
    cells[n] = after[n] = 0.0f;
    if (u < H) {
      hidden[u] = 0.0f;
#ifdef INITIAL_HIDDEN
      hidden[u] = $initial_hidden[state + u];
#endif
#ifdef INITIAL_CELL
      cells[n] = $initial_cell[state + u];
#endif
    }
  }"""
    + _STEP
    + """
    BARRIER();
    for (int n = 0; n < OWN; n++) {
      int u = lane + n * LANES;
      if (u < H) {
        f32 s[4], x[4];
        UNROLL for (int g = 0; g < 4; g++) { s[g] = 0.0f; x[g] = given[g * H + u]; }
        GLOBAL_PTR(const f32) unit = weights + u / W * (H * W) + u % W;
        for (int q = 0; q < H; q++) {
          f32 own = hidden[q];
          UNROLL for (int g = 0; g < 4; g++) s[g] = fma(own, unit[g * (PANELS * H * W) + q * W], s[g]);
        }
        cells[n] = CELL(x, s, cells[n]);
        after[n] = HIDDEN(x, s, cells[n]);
      }
    }
    BARRIER();
    for (int n = 0; n < OWN; n++) {
      int u = lane + n * LANES;
      if (u < H) {
        hidden[u] = after[n];
#ifdef WANTS_SEQUENCE
        $sequence[to + u] = put_$YT(after[n]);
#endif
      }
    }
  }
  for (int n = 0; n < OWN; n++) {
    int u = lane + n * LANES;
    if (u < H) { $last_hidden[state + u] = put_$YT(hidden[u]); $last_cell[state + u] = put_$YT(cells[n]); }
  }
}
"""
)
