"""Unpacking a panel of the weight with its scales and zero points, whatever form its codes take.

Functions ``make`` for ``run_jobs`` of ``blocking``. They are given

* ``fill``, which brings codes into a panel: of 16 rows of a weight [N, ...] and ``count`` 4-byte lanes,
  ``fill(args, codes, stride, rows, count, half, s_panel, z_panel, panel, workspace, ahead)``, where ``half`` of the panel's 32
  columns is theirs, and ``ahead`` is prefetched meanwhile; of a strip of rows of a weight [K, N] and ``count`` blocks,
  ``fill(args, codes, stride, rows, count, s_panel, z_panel, panel, ahead)``;
* ``finish``, ``finish(s_panel, z_panel, vectors)``, which makes of scales and zero points what ``fill`` and micro-kernels want.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.scales import scales_of_columns, scales_of_rows
from ort_sdk_cpu.jit.numba_frontend import inline

from .blocking import prefetch_lines

__all__ = ["maker_of_columns", "maker_of_rows"]


def maker_of_rows(bits: int, fill: Any, finish: Any, *, takes_turns: bool = False) -> Any:
    """Panels of a weight [N, ...], of 32 rows.

    They are behind each other, so that the next ones are prefetched in that order; if strips take turns, in that of their
    use.
    """
    scales_of = scales_of_rows(bits)

    @inline
    def make(
        args: MatMulNBits,
        column: int,
        first: int,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        workspace: int,
        strip: int,
        strips: int,
    ) -> None:
        n, c_stride, z_stride = args.n, args.codes_stride, args.zero_points_stride
        s_stride, kind, start = (
            args.scales_stride,
            args.zero_points_kind,
            np.float32(args.default_zero_point),
        )
        lanes = args.block_size * bits // 32
        for half in range(2):
            # The last row stands for those missing; their results are not written.
            row = min(column + half * 16, n - 1)
            scales, zeros, rows = (
                args.scales + row * s_stride,
                args.zero_points + row * z_stride,
                min(n - row, 16),
            )
            s_place, z_place = s_panel + half * 64, z_panel + half * 64
            scales_of(scales, s_stride, zeros, z_stride, rows, first, count, kind, start, s_place, z_place, workspace)
        finish(s_panel, z_panel, count * 2)
        for half in range(2):
            row, offset = min(column + half * 16, n - 1), half * 64
            place = args.codes + row * c_stride + first * lanes * 4
            ahead = args.codes + (row + 32) * c_stride + first * lanes * 64
            # The next strip's rows, or after the last strip the first one's next chunk.
            if takes_turns:
                ahead = place + (32 * c_stride if strip + 1 < strips else count * lanes * 4 - 32 * strip * c_stride)
            s_place, z_place, rows = s_panel + offset, z_panel + offset, min(n - row, 16)
            fill(args, place, c_stride, rows, count * lanes, half, s_place, z_place, panel, workspace, ahead)

    return make


def maker_of_columns(bits: int, fill: Any, finish: Any, *, takes_turns: bool = False) -> Any:
    """Panels of a weight [K, N].

    The next blocks' bytes are prefetched in the order of memory; if strips take turns, ``fill`` prefetches them.
    """
    # Bound here: in compiled code they are constants.
    scales_of, planes = scales_of_columns(bits), 8 // bits
    pairs = 2 * planes

    @inline
    def make(
        args: MatMulNBits,
        column: int,
        first: int,
        count: int,
        s_panel: int,
        z_panel: int,
        panel: int,
        workspace: int,
        strip: int,
        strips: int,
    ) -> None:
        c_stride, s_stride, z_stride = (
            args.codes_stride,
            args.scales_stride,
            args.zero_points_stride,
        )
        block, kind, flip, byte = args.block_size, args.zero_points_kind, args.sign_flip, column // planes
        scales = args.scales + first * s_stride + column * 4
        zeros, start = args.zero_points + first * z_stride + byte, np.float32(args.default_zero_point)
        scales_of(scales, s_stride, zeros, z_stride, count, kind, start, flip & 255, s_panel, z_panel, workspace)
        finish(s_panel, z_panel, pairs * count * 2)
        rows, place = min(count * block, args.k - first * block), args.codes + byte
        ahead, place = place - strip * 64 + (first + count) * block * c_stride, place + first * block * c_stride
        # Strips of a group share the lines of the next chunk: each asks for as many.
        if not takes_turns:
            prefetch_lines(ahead, c_stride, strips, strip * rows, rows)
        elif strip + 1 < strips:
            ahead = place + 64
        fill(args, place, c_stride, rows, count, s_panel, z_panel, panel, ahead)

    return make
