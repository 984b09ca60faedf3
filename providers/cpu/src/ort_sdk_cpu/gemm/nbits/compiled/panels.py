"""Panels of a weight of packed integers with their scales and zero points, whatever form its codes take in them.

Functions ``make`` for ``run_jobs`` of ``microkernels.panel_order``. They are given

* ``fill``, which brings codes into a panel: of 16 rows of a weight [N, ...] and ``count`` 4-byte lanes,
  ``fill(record, codes, stride, rows, count, half, s_panel, z_panel, panel, spare, soon)``, where ``half`` of the panel's 32
  columns is theirs, and ``soon`` is to be asked for meanwhile; of a strip of rows of a weight [K, N] and ``count`` blocks,
  ``fill(record, codes, stride, rows, count, s_panel, z_panel, panel, soon)``;
* ``finish``, ``finish(s_panel, z_panel, vectors)``, which makes what ``fill`` and products want of scales and zero points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.microkernels.arguments import (
    BLOCK,
    CODES,
    CODES_STRIDE,
    DEFAULT_ZERO,
    FLIP,
    SCALES,
    SCALES_STRIDE,
    ZEROS,
    ZEROS_KIND,
    ZEROS_STRIDE,
    K,
    N,
)
from ort_sdk_cpu.gemm.nbits.microkernels.panel_order import ask_for
from ort_sdk_cpu.gemm.nbits.microkernels.scales import scales_of_columns, scales_of_rows
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.simd.arguments import argument

__all__ = ["maker_of_columns", "maker_of_rows"]


def maker_of_rows(bits: int, fill: Any, finish: Any, *, takes_turns: bool = False) -> Any:
    """Panels of a weight [N, ...], of 32 rows.

    They lie behind each other, so that the next ones are asked for in that order; if strips take turns, in that in which they are
    wanted.
    """
    scales_of = scales_of_rows(bits)

    @inner
    def make(
        record: int,
        column: int,
        first: int,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        spare: int,
        strip: int,
        strips: int,
    ) -> None:
        n, c_stride, z_stride = argument(record, N), argument(record, CODES_STRIDE), argument(record, ZEROS_STRIDE)
        s_stride, kind, start = (
            argument(record, SCALES_STRIDE),
            argument(record, ZEROS_KIND),
            np.float32(argument(record, DEFAULT_ZERO)),
        )
        lanes = argument(record, BLOCK) * bits // 32
        for half in range(2):
            row = min(column + half * 16, n - 1)
            scales, zeros, rows = (
                argument(record, SCALES) + row * s_stride,
                argument(record, ZEROS) + row * z_stride,
                min(n - row, 16),
            )
            s_place, z_place = s_panel + half * 64, z_panel + half * 64
            scales_of(scales, s_stride, zeros, z_stride, rows, first, count, kind, start, s_place, z_place, spare)
        finish(s_panel, z_panel, count * 2)
        for half in range(2):
            row, offset = min(column + half * 16, n - 1), half * 64
            place = argument(record, CODES) + row * c_stride + first * lanes * 4
            soon = argument(record, CODES) + (row + 32) * c_stride + first * lanes * 64
            if takes_turns:
                soon = place + (32 * c_stride if strip + 1 < strips else count * lanes * 4 - 32 * strip * c_stride)
            s_place, z_place, rows = s_panel + offset, z_panel + offset, min(n - row, 16)
            fill(record, place, c_stride, rows, count * lanes, half, s_place, z_place, panel, spare, soon)

    return make


def maker_of_columns(bits: int, fill: Any, finish: Any, *, takes_turns: bool = False) -> Any:
    """Panels of a weight [K, N].

    The next blocks' bytes are asked for in the order in which they lie; if strips take turns, ``fill`` asks for them.
    """
    scales_of, planes = scales_of_columns(bits), 8 // bits
    pairs = 2 * planes

    @inner
    def make(
        record: int,
        column: int,
        first: int,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        spare: int,
        strip: int,
        strips: int,
    ) -> None:
        c_stride, s_stride, z_stride = (
            argument(record, CODES_STRIDE),
            argument(record, SCALES_STRIDE),
            argument(record, ZEROS_STRIDE),
        )
        block, kind, flip, byte = argument(record, BLOCK), argument(record, ZEROS_KIND), argument(record, FLIP), column // planes
        scales = argument(record, SCALES) + first * s_stride + column * 4
        zeros, start = argument(record, ZEROS) + first * z_stride + byte, np.float32(argument(record, DEFAULT_ZERO))
        scales_of(scales, s_stride, zeros, z_stride, count, kind, start, flip & 255, s_panel, z_panel, spare)
        finish(s_panel, z_panel, pairs * count * 2)
        rows, place = min(count * block, argument(record, K) - first * block), argument(record, CODES) + byte
        soon, place = place - strip * 64 + (first + count) * block * c_stride, place + first * block * c_stride
        if not takes_turns:
            ask_for(soon, c_stride, strips, strip * rows, rows)
        elif strip + 1 < strips:
            soon = place + 64
        fill(record, place, c_stride, rows, count, s_panel, z_panel, panel, soon)

    return make
