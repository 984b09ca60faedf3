"""Helpers of text generation: NGramRepeatBlock, BifurcationDetector and DynamicTimeWarping."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["bifurcation_detector", "dynamic_time_warping", "ngram_repeat_block"]

MICROSOFT = "com.microsoft"


@operator("NGramRepeatBlock", domain=MICROSOFT, host_inputs=(0,))
def ngram_repeat_block(info: KernelInfo, xp: Any) -> Compute:
    """Scores (batch, vocabulary) with minus infinity for tokens that would repeat an n-gram of input_ids (batch, length)."""
    size = info.attribute("ngram_size")

    def compute(input_ids: HostArray, scores: Array) -> Array:
        banned = np.zeros(scores.shape, dtype=bool)
        if input_ids.size and not 0 <= input_ids.min() <= input_ids.max() < scores.shape[1]:
            raise InvalidArgument(
                f"{info.describe()}: input_ids reach from {input_ids.min()} to {input_ids.max()}; with scores of shape"
                f" {tuple(scores.shape)} they must be in [0, {scores.shape[1]})"
            )
        if input_ids.shape[1] >= size:
            windows = np.lib.stride_tricks.sliding_window_view(input_ids, size, axis=1)
            suffix = input_ids[:, input_ids.shape[1] - size + 1 :]
            rows, positions = np.nonzero((windows[:, :, :-1] == suffix[:, None, :]).all(axis=-1))
            banned[rows, windows[rows, positions, -1]] = True
        return xp.where(xp.from_host(banned), xp.asarray(-float("inf"), dtype=scores.dtype), scores)

    return compute


@operator("BifurcationDetector", domain=MICROSOFT, host_only=True, shape_inputs=None)
def bifurcation_detector(info: KernelInfo, _xp: Any) -> Compute:
    """Tokens with the prediction up to its first difference from the source, and where their end continues in the source.

    The second output is the position behind the only occurrence of the tokens' last n-gram in the source, or -1.
    """
    sizes = range(info.attribute("min_ngram_size", 1), info.attribute("max_ngram_size", 3) + 1)

    def compute(
        source: HostArray, current: HostArray, previous: HostArray, predicted: HostArray | None = None
    ) -> tuple[HostArray, HostArray]:
        if predicted is None:
            tokens = current.copy()
        else:
            expected = source[int(previous.reshape(-1)[0]) :]
            differs = np.nonzero(predicted[: len(expected)] != expected)[0]
            count = int(differs[0]) if differs.size else len(expected)
            tokens = np.concatenate([current, predicted[: count + 1]])
        return tokens, np.full(previous.shape, _continuation(source, tokens, sizes), dtype=np.int64)

    return compute


def _continuation(source: HostArray, tokens: HostArray, sizes: range) -> int:
    for size in sizes:
        if size > min(len(tokens), len(source)):
            break
        windows = np.lib.stride_tricks.sliding_window_view(source, size)
        found = np.nonzero((windows == tokens[-size:]).all(axis=-1))[0]
        if found.size == 0:
            break
        end = int(found[0]) + size
        if end >= len(source):
            return end
        if found.size == 1:
            return end
    return -1


@operator("DynamicTimeWarping", domain=MICROSOFT, host_only=True, shape_inputs=None)
def dynamic_time_warping(_info: KernelInfo, _xp: Any) -> Compute:
    """The cheapest path through a cost matrix (M, N) or (1, M, N) from its first to its last element, as int32 (2, length)."""

    def compute(costs: HostArray) -> HostArray:
        return _trace(_directions(costs.reshape(costs.shape[-2:])))

    return compute


def _directions(costs: HostArray) -> HostArray:
    """How each element is best reached: 0 diagonally, 1 from above, 2 from the left. By anti-diagonals."""
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, dtype=costs.dtype)
    total[0, 0] = 0
    directions = np.zeros((rows + 1, columns + 1), dtype=np.int8)
    directions[0, :], directions[:, 0] = 2, 1
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        slanted, above, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_slanted, is_above = (slanted < above) & (slanted < left), (above < slanted) & (above < left)
        directions[i, j] = np.where(is_slanted, 0, np.where(is_above, 1, 2))
        total[i, j] = costs[i - 1, j - 1] + np.where(is_slanted, slanted, np.where(is_above, above, left))
    return directions


def _trace(directions: HostArray) -> HostArray:
    i, j = directions.shape[0] - 1, directions.shape[1] - 1
    path = []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        direction = directions[i, j]
        i -= direction != 2
        j -= direction != 1
    return np.array(path[::-1], dtype=np.int32).T
