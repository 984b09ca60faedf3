"""Arguments of the tasks of MatMulNBits, the same for all: their positions in a record.

Strides are bytes from row to row of the codes and of ``X``; of a weight [K, N], from block to block of scales and zero points; of
one [N, k_blocks, bytes], from row to row of them. A weight [K, N] has rows of whole bytes, at least 64.

* ``ZEROS_KIND``: 0 for ``DEFAULT_ZERO`` everywhere, 1 for packed zero points, 2 for float32.
* ``FLIP``: bits to turn over in each 4 bytes of a weight [K, N] and its zero points.
* ``X``, ``X_SCALES``, ``X_SUMS``: activations as a task says; two float32 for each block, ``BLOCK_STRIDE`` bytes from row to row.
* ``TABLE``: float32 values of the 16 codes of an element and bits above it, from half their range.
* ``WORK``: ``WORK_STRIDE`` bytes of working memory for each job. ``K_PARTS`` times ``N_PARTS`` jobs share K and the strips.
* ``PARTIALS``: results [m, n] of all parts of K but the first, which goes to ``OUT``, with the bias, whose address may be 0.
* ``CHUNK``: blocks to a panel; ``ROWS_AT_ONCE``: rows of activations it is used for; ``GROUP``: strips whose panels take turns.
* ``ACTIVATIONS``: rows of float32 that ``X`` was made of.
* ``HALF_SCALES``: the same scales as float16, which tasks may read instead: a float32 to multiply them by, and behind
  ``HALVES_START`` bytes the numbers; 0 if there are none.
* ``INDICES``: int32 block that each 4-byte lane of 16 blocks of a row of a weight [N, ...] belongs to.
"""

from __future__ import annotations

__all__ = [
    "ACTIVATIONS",
    "ARGUMENTS",
    "BIAS",
    "BLOCK",
    "BLOCK_STRIDE",
    "CHUNK",
    "CODES",
    "CODES_STRIDE",
    "DEFAULT_ZERO",
    "FLIP",
    "GROUP",
    "HALF_SCALES",
    "HALVES_START",
    "INDICES",
    "K_PARTS",
    "N_PARTS",
    "OUT",
    "PARTIALS",
    "ROWS_AT_ONCE",
    "SCALES",
    "SCALES_STRIDE",
    "TABLE",
    "WORK",
    "WORK_STRIDE",
    "X_SCALES",
    "X_STRIDE",
    "X_SUMS",
    "ZEROS",
    "ZEROS_KIND",
    "ZEROS_STRIDE",
    "K",
    "M",
    "N",
    "X",
]

HALVES_START = 64
"""Bytes before the first of the numbers of ``HALF_SCALES``."""
ARGUMENTS = 32
CODES, CODES_STRIDE, SCALES, SCALES_STRIDE, ZEROS, ZEROS_STRIDE, BIAS, OUT = range(8)
M, N, K, BLOCK, DEFAULT_ZERO, FLIP = range(8, 14)
X, X_SCALES, X_SUMS, X_STRIDE, BLOCK_STRIDE, TABLE = range(14, 20)
WORK, WORK_STRIDE, K_PARTS, N_PARTS, PARTIALS = range(20, 25)
ZEROS_KIND, CHUNK, ROWS_AT_ONCE, GROUP, INDICES, ACTIVATIONS, HALF_SCALES = range(25, 32)
