"""The texts of a recurrent layer's step: sums of the gates, then what becomes of the states, unit by unit.

In cells, ``GATE(g)`` is a gate's sum with the input's share, ``INPUT(g)`` and ``SUM(g)`` the two alone, ``F``, ``G`` and ``H``
the activations; they are computed on vectors of units, and on one.
"""

from __future__ import annotations

__all__ = ["CELLS", "GROUP_STEP", "PACK_GATES", "PANEL_STEP"]

CELLS = {
    "RNN": "STORE(F(GATE(0)), HIDDEN);",
    "GRU": """
NUMBER kept = F(GATE(0)), candidate = G(INPUT(2) + F(GATE(1)) * SUM(2));
STORE(candidate + kept * (LOAD(BEFORE) - candidate), HIDDEN);""",
    "LSTM": """
NUMBER added = F(GATE(0)), shown = F(GATE(1)), kept = F(GATE(2));
NUMBER cell = kept * LOAD(CELL) + added * G(GATE(3));
STORE(cell, CELL_AFTER);
STORE(shown * H(cell), HIDDEN);""",
}
"""Operator → statements. A GRU's reset gate is applied to the sum."""

PACK_GATES = """
/* the weights of VW units: for each term those of their first gates, their second ones ..., with zeros behind the last unit */
KERNEL WORKGROUP(1, 1, 1) void pack_gates(PARAMETERS) {
  index_t panel = GROUP(0);
  for (index_t q = 0; q < UNITS; q++) {
    for (int e = 0; e < GATES * VW; e++) {
      index_t unit = panel * VW + e % VW;
      Y[(panel * UNITS + q) * (GATES * VW) + e] = unit < UNITS ? R[OFFSET + (e / VW * UNITS + unit) * UNITS + q] : 0.0f;
    }
  }
}
"""

_PLACES = """
    index_t row = first_row + i, at = row * UNITS + unit;
    GLOBAL_PTR(const f32) input = INPUTS + INPUT_OFFSET + row * (GATES * UNITS) + unit;
    GLOBAL_PTR(const f32) before = STATES + STATE_OFFSET + at;
    GLOBAL_PTR(f32) hidden = OUTPUTS + OUTPUT_OFFSET + at;
#ifdef CELLS
    GLOBAL_PTR(const f32) cell_before = CELLS + at;
    GLOBAL_PTR(f32) cell_after = CELLS_AFTER + at;
#endif
#ifdef BIAS
    GLOBAL_PTR(const f32) bias = BIAS + BIAS_OFFSET + unit;
#endif
"""

PANEL_STEP = (
    """
/* a lane has VW units of some rows: all their gates */
KERNEL WORKGROUP(1, 1, 1) void recurrent_step(PARAMETERS) {
  index_t unit = GROUP(0) % PANELS * VW, first_row = GROUP(0) / PANELS * ROWS;
  GLOBAL_PTR(const f32) weights = WEIGHTS + unit * UNITS * GATES;
  GLOBAL_PTR(const f32) states = STATES + STATE_OFFSET;
  f32 sums[ROWS * GATES * VW];
  {
    f32v sum[ROWS][GATES];
    UNROLL for (int i = 0; i < ROWS; i++) { UNROLL for (int g = 0; g < GATES; g++) sum[i][g] = splat_f32(0.0f); }
    for (index_t q = 0; q < UNITS; q++) {
      f32v column[GATES];
      UNROLL for (int g = 0; g < GATES; g++) column[g] = VLOAD(weights + (q * GATES + g) * VW);
      UNROLL for (int i = 0; i < ROWS; i++) {
        f32v element = splat_f32(states[(first_row + i < BATCH ? first_row + i : BATCH - 1) * UNITS + q]);
        UNROLL for (int g = 0; g < GATES; g++) sum[i][g] = fma(element, column[g], sum[i][g]);
      }
    }
    UNROLL for (int i = 0; i < ROWS; i++) {
      UNROLL for (int g = 0; g < GATES; g++) VSTORE(sum[i][g], sums + (i * GATES + g) * VW);
    }
  }
  for (int i = 0; i < ROWS && first_row + i < BATCH; i++) {"""
    + _PLACES
    + """
    if (unit + VW <= UNITS) {
/*VECTOR*/
    } else {
      for (index_t u = 0; unit + u < UNITS; u++) {
/*NUMBER*/
      }
    }
  }
}
"""
)

GROUP_STEP = (
    """
/* a group has a unit of some rows: its lanes divide the terms of each sum */
KERNEL WORKGROUP(LANES, 1, 1) void recurrent_step(PARAMETERS) {
  LOCAL(f32, scratch, LANES);
  index_t unit = GROUP(0) % UNITS, first_row = GROUP(0) / UNITS * ROWS, u = 0;
  GLOBAL_PTR(const f32) weights = WEIGHTS + WEIGHT_OFFSET + unit * UNITS;
  GLOBAL_PTR(const f32) states = STATES + STATE_OFFSET;
  int lane = LANE(0);
  f32 sums[ROWS * GATES];
  UNROLL for (int e = 0; e < ROWS * GATES; e++) sums[e] = 0.0f;
  for (index_t q = lane; q < UNITS; q += LANES) {
    UNROLL for (int g = 0; g < GATES; g++) {
      f32 weight = weights[g * UNITS * UNITS + q];
      UNROLL for (int i = 0; i < ROWS; i++) {
        f32 element = states[(first_row + i < BATCH ? first_row + i : BATCH - 1) * UNITS + q];
        sums[i * GATES + g] = fma(element, weight, sums[i * GATES + g]);
      }
    }
  }
  UNROLL for (int e = 0; e < ROWS * GATES; e++) sums[e] = f32_group_sum(sums[e], scratch, lane, LANES);
  UNROLL for (int i = 0; i < ROWS; i++) {
    if (lane == 0 && first_row + i < BATCH) {"""
    + _PLACES
    + """
/*NUMBER*/
    }
  }
}
"""
)
