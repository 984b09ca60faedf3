"""Sequences of vectors in memory: elements taken apart by their position, and put together again."""

from __future__ import annotations

from ort_sdk_cpu.jit.cache_folder import inner

from .memory import load_f32, store_f32
from .shuffles import even_lanes, interleave_high, interleave_low, odd_lanes

__all__ = ["deinterleave", "interleave"]


@inner
def _evens_then_odds(source: int, target: int, vectors: int) -> None:
    half = vectors // 2 * 64
    for index in range(vectors // 2):
        x, y = load_f32(source + index * 128), load_f32(source + index * 128 + 64)
        store_f32(target + index * 64, even_lanes(x, y))
        store_f32(target + half + index * 64, odd_lanes(x, y))


@inner
def _halves_in_turns(source: int, target: int, vectors: int) -> None:
    half = vectors // 2 * 64
    for index in range(vectors // 2):
        x, y = load_f32(source + index * 64), load_f32(source + half + index * 64)
        store_f32(target + index * 128, interleave_low(x, y))
        store_f32(target + index * 128 + 64, interleave_high(x, y))


@inner
def deinterleave(source: int, target: int, spare: int, vectors: int, streams: int) -> int:
    """Sort the 4-byte elements of a sequence of vectors by their index modulo ``streams``, keeping order otherwise.

    Args:
        source: address of the vectors, which stay.
        target, spare: buffers of their size.
        vectors: how many; a power of two.
        streams: a power of two, at most ``vectors``.

    Returns:
        Which address has the result: source, if streams is 1, else target or spare.
    """
    while streams > 1:
        _evens_then_odds(source, target, vectors)
        source, target, spare = target, spare, target
        streams //= 2
    return source


@inner
def interleave(source: int, target: int, spare: int, vectors: int, streams: int) -> int:
    """The reverse of ``deinterleave``."""
    while streams > 1:
        _halves_in_turns(source, target, vectors)
        source, target, spare = target, spare, target
        streams //= 2
    return source
