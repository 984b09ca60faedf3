"""Block sizes of GEMM, in BLIS's names: what tasks, their extents and plans have to agree on.

A register tile of MR rows and NR columns stays in registers over KC steps along K; KC rows of NR columns of B are a *panel*.
"""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR, panel_bytes, panel_width, register_tile

__all__ = [
    "A_COPY_ROW_BYTES",
    "KC",
    "NC_PANELS",
    "NC_TRANSPOSED",
    "PANEL_BYTES",
    "SPLIT_K_KC",
    "TRANSPOSE_BYTES",
    "WIDEN_BYTES",
    "mr",
    "nr",
    "unpacked_rows",
]

# KC * NR floats are 16 KB at AVX-512: half of a first cache of 32 KB, beside the rows of A that meet them.
KC = 128
"""Rows of B in a panel that is packed in the course of a GEMM."""
NC_PANELS = 8
"""Panels packed at a time: NC is so many times NR. All of them (128 KB at AVX-512) stay in a second cache."""
# As many streams as a processor's prefetcher follows at the same time.
SPLIT_K_KC = 32
"""Rows of B that split-K reads side by side."""
NC_TRANSPOSED = 192
"""Rows of B (N, K) whose results are kept transposed at a time."""
TRANSPOSE_BYTES = 1024
"""Workspace of a transpose of 16 vectors."""
WIDEN_BYTES = 2048
"""Workspace of a conversion of float16 rows."""
# One more row than there is: reading ahead of the last row of a panel stays inside.
PANEL_BYTES = (KC + 1) * panel_bytes()
"""From one panel in the workspace to the next."""
# A multiple of a cache's way would bring all rows into the same few sets; one line more spreads them.
A_COPY_ROW_BYTES = KC * FLOAT + VECTOR
"""From row to row of copied rows of A."""


def mr() -> int:
    """Rows of a register tile."""
    return register_tile()[0]


def nr() -> int:
    """Columns of a register tile, and of a panel."""
    return panel_width()


def unpacked_rows() -> int:
    """Rows of A up to which whole panels of B are read in place: each is used by two register tiles at most."""
    return mr() * register_tile()[1]
