"""Deformable convolution."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import At, Extents, declares, given, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__: list[str] = []


@declares("deformation", "sample_windows")
def _sample_windows(
    x: At,
    offsets: At,
    factors: At,
    out: At,
    samples: int,
    channels: int,
    height: int,
    width: int,
    rows: int,
    columns: int,
    taps_down: int,
    taps_right: int,
    stride_down: int,
    stride_right: int,
    dilation_down: int,
    dilation_right: int,
    top: int,
    left: int,
    groups: int,
) -> Extents:
    taps = samples * rows * columns * taps_down * taps_right
    yield reads(x, samples * height * width * channels * FLOAT)
    yield reads(offsets, groups * 2 * taps * FLOAT)
    yield given(factors, groups * taps * FLOAT)
    yield writes(out, taps * channels * FLOAT)
