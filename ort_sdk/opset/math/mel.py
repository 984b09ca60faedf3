"""MelWeightMatrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import require_size

__all__: list[str] = []


@operator("MelWeightMatrix", host_inputs=(0, 1, 2, 3, 4), shape_inputs=(0, 1))
def mel_weight_matrix(info: KernelInfo, xp: Any) -> Compute:
    """Triangular filters, evenly spaced on the mel scale, as (dft_length // 2 + 1, num_mel_bins)."""
    element_type = info.output_element_type(0)

    def compute(bins: HostArray, dft_length: HostArray, rate: HostArray, lower: HostArray, upper: HostArray) -> Array:
        count, length, sample_rate = (int(value.reshape(())) for value in (bins, dft_length, rate))
        if count < 1 or length < 1 or sample_rate < 1:
            raise InvalidArgument(
                f"{info.describe()}: num_mel_bins, dft_length and sample_rate must be positive; "
                f"they are {count}, {length} and {sample_rate}"
            )
        require_size(info.describe(), (length // 2 + 1, count + 2), np.dtype(np.float64).itemsize)
        edges = _edges(count, length, sample_rate, float(lower.reshape(())), float(upper.reshape(())))
        return xp.astype(xp.from_host(_triangles(edges, length // 2 + 1)), element_type)

    return compute


def _edges(count: int, length: int, sample_rate: int, lower: float, upper: float) -> HostArray:
    """Spectrogram bins where the triangles start, peak and end: triangle i has edges i, i + 1 and i + 2."""
    low, high = (2595 * np.log10(1 + hertz / 700) for hertz in (lower, upper))
    mels = low + np.arange(count + 2) * ((high - low) / (count + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges: HostArray = np.floor((length + 1) * hertz / sample_rate)
    return edges


def _triangles(edges: HostArray, rows: int) -> HostArray:
    """Weights rising linearly from 0 to 1 at the peak, and falling to 0."""
    start, peak, end = edges[:-2], edges[1:-1], edges[2:]
    position = np.arange(rows)[:, None]
    rising = (position - start) / np.maximum(peak - start, 1)
    falling = (end - position) / np.maximum(end - peak, 1)
    slopes = np.where(position < peak, np.maximum(rising, 0), np.maximum(falling, 0))
    return np.where(position == peak, 1.0, slopes)
