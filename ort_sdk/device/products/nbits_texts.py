"""Kernels for weights of 4 or 8 bits, of which 32 bits hold several elements, lowest bits first."""

from __future__ import annotations

__all__ = [
    "DEQUANTIZE",
    "DEQUANTIZE_PANELS",
    "MULTIPLY",
    "MULTIPLY_WORDS",
    "PREPARE",
    "PREPARE_WORDS",
    "REST",
]

PREPARE = """
KERNEL WORKGROUP(LANES, 1, 1) void prepare(PARAMETERS) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < TOTAL) {
    index_t q = e % WIDTH;
    f32 value = q < K ? X[e / WIDTH * K + q] : 0.0f;
    Y[e] = (f32_bits(value) & 0x7f800000u) == 0u ? 0.0f : value;
  }
}
"""

PREPARE_WORDS = """
/* for VW words of a row: the elements that are multiplied by the words' first elements, their second ones ..., and their sums */
KERNEL WORKGROUP(LANES, 1, 1) void prepare(PARAMETERS) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < TOTAL) {
    index_t word = e % (CHUNKS * VW), row = e / (CHUNKS * VW);
    index_t to = (row * CHUNKS + word / VW) * (PER + 1) * VW + word % VW;
    f32 sum = 0.0f;
    for (int j = 0; j < PER; j++) {
      index_t q = word * PER + j;
      f32 value = q < K ? X[row * K + q] : 0.0f;
      value = (f32_bits(value) & 0x7f800000u) == 0u ? 0.0f : value;
      Y[to + j * VW] = value;
      sum += value;
    }
    Y[to + PER * VW] = sum;
  }
}
"""

MULTIPLY_WORDS = """
/* A lane computes VW columns of some rows, some columns at a time. A code in the highest bits of a fraction makes a number
   without a conversion: 1 + code / 2**BITS. A vector has the same element of VW words, whose sums are scaled lane by lane. */
FN f32 sum_of(f32v v) {
  float8 a = v.lo + v.hi;
  float4 b = a.lo + a.hi;
  return (b.x + b.y) + (b.z + b.w);
}
#define FIELD(v, j) ((j) * BITS <= 23 - BITS ? (v) << (u32)(23 - BITS - (j) * BITS) : (v) >> (u32)((j) * BITS + BITS - 23))
#define FRACTION (((1u << BITS) - 1u) << (23 - BITS))
KERNEL WORKGROUP(LANES, 1, 1) void multiply(PARAMETERS) {
  index_t group = GROUP(0);
  index_t row = group % ROW_GROUPS * ROWS, column = group / ROW_GROUPS * VW;
  index_t count = N - column < VW ? N - column : VW;
  f32 values[ROWS * VW];
  for (int from = 0; from < count; from += COLUMNS) {
    index_t own[COLUMNS];
    f32v sum[ROWS][COLUMNS];
    f32 rest[ROWS][COLUMNS];
    UNROLL for (int c = 0; c < COLUMNS; c++) {
      own[c] = column + from + c < N ? column + from + c : N - 1;
      UNROLL for (int i = 0; i < ROWS; i++) { sum[i][c] = splat_f32(0.0f); rest[i][c] = 0.0f; }
    }
    for (index_t chunk = 0; chunk < CHUNKS; chunk++) {
      u32v packed[COLUMNS];
      f32v part[ROWS][COLUMNS];
      UNROLL for (int c = 0; c < COLUMNS; c++) {
        packed[c] = VLOAD(CODES + own[c] * BLOCKS * WORDS + chunk * VW);
        /* rows are too short for the hardware prefetcher to see that the next columns are read next */
        PREFETCH(CODES + (i64)(own[c] + COLUMNS) * BLOCKS * WORDS + chunk * VW);
        PREFETCH(SCALES_AT(own[c] + COLUMNS, chunk));
        f32v middle = MIDDLES(own[c], chunk);
        UNROLL for (int i = 0; i < ROWS; i++) part[i][c] = -middle * VLOAD(ROW_OF(i) + PER * VW);
      }
      UNROLL for (int j = 0; j < PER; j++) {
        UNROLL for (int c = 0; c < COLUMNS; c++) {
          f32v code = JOIN(as_float, VW)((FIELD(packed[c], j) & FRACTION) | 0x3f800000u);
          UNROLL for (int i = 0; i < ROWS; i++) part[i][c] = fma(code, VLOAD(ROW_OF(i) + j * VW), part[i][c]);
        }
      }
      UNROLL for (int c = 0; c < COLUMNS; c++) {
        f32v scale = SCALES(own[c], chunk);
        UNROLL for (int i = 0; i < ROWS; i++) sum[i][c] = fma(part[i][c], scale, sum[i][c]);
      }
    }
/*REST*/
    UNROLL for (int c = 0; c < COLUMNS; c++) {
      if (from + c < VW) {
        UNROLL for (int i = 0; i < ROWS; i++) values[i * VW + from + c] = sum_of(sum[i][c]) * (f32)(1 << BITS) + rest[i][c];
      }
    }
  }
  for (index_t i = 0; i < ROWS && row + i < M; i++) {
/*STORE*/
  }
}
"""

REST = """
    /* words behind the last whole vector of them */
    for (index_t w = CHUNKS * VW; w < BLOCKS * WORDS; w++) {
      UNROLL for (int c = 0; c < COLUMNS; c++) {
        u32 packed = CODES[own[c] * BLOCKS * WORDS + w];
        f32 zero = ZERO(own[c], w / WORDS), scale = SCALE(own[c], w / WORDS);
        for (int j = 0; j < PER; j++) {
          f32 value = ((f32)((packed >> (j * BITS)) & ((1u << BITS) - 1u)) - zero) * scale;
          UNROLL for (int i = 0; i < ROWS; i++) {
            index_t at = row + i < M ? row + i : M - 1;
            rest[i][c] = fma(X[at * BLOCKS * BLOCK + w * PER + j], value, rest[i][c]);
          }
        }
      }
    }
"""

MULTIPLY = """
/* the lanes of a group go through a column's words together */
KERNEL WORKGROUP(LANES, 1, 1) void multiply(PARAMETERS) {
  LOCAL(f32, scratch, LANES);
  index_t group = GROUP(0);
  index_t row = group % ROW_GROUPS * ROWS, column = group / ROW_GROUPS;
  int lane = LANE(0);
  f32 sum[ROWS];
  UNROLL for (int i = 0; i < ROWS; i++) sum[i] = 0.0f;
  for (index_t w = lane; w < BLOCKS * WORDS; w += LANES) {
    index_t b = w / WORDS;
    u32 packed = CODES[column * BLOCKS * WORDS + w];
    f32 zero = ZERO(column, b), scale = SCALE(column, b);
    f32 part[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++) part[i] = 0.0f;
    UNROLL for (int j = 0; j < 32 / BITS; j++) {
      f32 value = (f32)((packed >> (j * BITS)) & ((1u << BITS) - 1u)) - zero;
      UNROLL for (int i = 0; i < ROWS; i++) {
        index_t at = row + i < M ? row + i : M - 1;
        part[i] = fma(X[at * BLOCKS * BLOCK + w * (32 / BITS) + j], value, part[i]);
      }
    }
    UNROLL for (int i = 0; i < ROWS; i++) sum[i] = fma(part[i], scale, sum[i]);
  }
  UNROLL for (int i = 0; i < ROWS; i++) {
    f32 total = f32_group_sum(sum[i], scratch, lane, LANES);
    if (lane == 0 && row + i < M) {
/*STORE*/
    }
  }
}
"""

DEQUANTIZE_PANELS = """
/* panels of some columns from FIRST on; a lane makes those of one block */
KERNEL WORKGROUP(LANES, 1, 1) void dequantize(PARAMETERS) {
  index_t group = GROUP(0);
  index_t b = group % BLOCKS, panel = group / BLOCKS;
  index_t end = K - b * BLOCK < BLOCK ? K - b * BLOCK : BLOCK;
  for (int from = 0; from < PANEL; from += VW) {
    index_t own[VW];
    f32 scales[VW], zeros[VW];
    for (int c = 0; c < VW; c++) own[c] = FIRST + panel * PANEL + from + c < N ? FIRST + panel * PANEL + from + c : N - 1;
    for (int c = 0; c < VW; c++) scales[c] = SCALE(own[c], b);
    for (int c = 0; c < VW; c++) zeros[c] = ZERO(own[c], b);
    f32v scale = VLOAD(scales), zero = VLOAD(zeros);
    GLOBAL_PTR(f32) y = Y + (panel * K + b * BLOCK) * PANEL + from;
    for (int w = 0; w < WORDS; w++) {
      u32 words[VW];
      UNROLL for (int c = 0; c < VW; c++) words[c] = CODES[(own[c] * BLOCKS + b) * WORDS + w];
      u32v packed = VLOAD(words);
      UNROLL for (int j = 0; j < 32 / BITS; j++) {
        f32v value = JOIN(convert_float, VW)(JOIN(as_int, VW)((packed >> (u32)(j * BITS)) & ((1u << BITS) - 1u)));
        int q = w * (32 / BITS) + j;
        if (q < end) VSTORE((value - zero) * scale, y + q * PANEL);
      }
    }
  }
}
"""

DEQUANTIZE = """
/* COUNT rows of the weight from FIRST on; a lane makes the elements of one word */
KERNEL WORKGROUP(LANES, 1, 1) void dequantize(PARAMETERS) {
  index_t e = (index_t)GROUP(0) * LANES + LANE(0);
  if (e < COUNT * BLOCKS * WORDS) {
    index_t own = e / (BLOCKS * WORDS), w = e % (BLOCKS * WORDS), row = FIRST + own;
    u32 packed = CODES[row * BLOCKS * WORDS + w];
    f32 scale = SCALE(row, w / WORDS), zero = ZERO(row, w / WORDS);
    UNROLL for (int j = 0; j < 32 / BITS; j++) {
      index_t q = w * (32 / BITS) + j;
      if (q < K) Y[own * K + q] = ((f32)((packed >> (j * BITS)) & ((1u << BITS) - 1u)) - zero) * scale;
    }
  }
}
"""
