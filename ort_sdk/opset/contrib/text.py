"""Tokenizer and MurmurHash3."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

__all__ = ["murmur_hash3", "tokenizer"]

MICROSOFT = "com.microsoft"
START_OF_TEXT, END_OF_TEXT = "\x02", "\x03"


@operator("Tokenizer", domain=MICROSOFT, host_only=True, shape_inputs=None, any_type=True)
def tokenizer(info: KernelInfo, _xp: Any) -> Compute:
    """Strings (C) or (N, C) as tokens (..., longest), padded with ``pad_value``."""
    split = _splitter(info)
    shortest, pad_value = info.attribute("mincharnum"), info.attribute("pad_value")
    mark = bool(info.attribute("mark"))

    def compute(texts: HostArray) -> HostArray:
        if texts.ndim not in {1, 2}:
            raise InvalidArgument(f"{info.describe()}: input has shape {texts.shape}; it must be (C,) or (N, C)")
        rows = [[token for token in split(text) if len(token) >= shortest] for text in map(str, texts.reshape(-1).tolist())]
        if mark:
            rows = [[START_OF_TEXT, *row, END_OF_TEXT] for row in rows]
        longest = max(map(len, rows), default=0)
        padded = [token for row in rows for token in (*row, *[pad_value] * (longest - len(row)))]
        tokens = np.empty(len(padded), dtype=object)
        tokens[:] = padded
        return tokens.reshape(*texts.shape, longest)

    return compute


def _splitter(info: KernelInfo) -> Callable[[str], Iterable[str]]:
    separators, expression = list(info.attribute("separators", None) or ()), info.attribute("tokenexp", None)
    if bool(separators) == bool(expression):
        raise InvalidGraph(f"{info.describe()}: exactly one of the attributes 'separators' and 'tokenexp' must be given")
    if expression == "." or separators == [""]:
        return list
    try:
        patterns = [re.compile(pattern) for pattern in separators or [expression]]
    except re.error as error:
        raise InvalidGraph(f"{info.describe()}: bad regular expression {error.pattern!r}: {error}") from error
    if expression:
        return (
            patterns[0].findall
            if not patterns[0].groups
            else lambda text: [found.group() for found in patterns[0].finditer(text)]
        )

    def split(text: str) -> list[str]:
        pieces = [text]
        for pattern in patterns:
            pieces = [part for piece in pieces for part in _between(pattern, piece)]
        return pieces

    return split


def _between(pattern: re.Pattern[str], text: str) -> list[str]:
    """What is left of a text between the matches of a pattern, without empty pieces."""
    if not pattern.groups:
        return [piece for piece in pattern.split(text) if piece]
    bounds = [0, *(edge for match in pattern.finditer(text) for edge in match.span()), len(text)]
    return [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True) if end > start]


@operator("MurmurHash3", domain=MICROSOFT, host_only=True, any_type=True)
def murmur_hash3(info: KernelInfo, _xp: Any) -> Compute:
    """32-bit MurmurHash3 of each element's bytes (a string's UTF-8), as uint32 or, if ``positive`` is 0, int32."""
    seed = np.uint32(info.attribute("seed", 0) & 0xFFFFFFFF)
    dtype = np.uint32 if info.attribute("positive", 1) else np.int32
    is_text = info.input_element_type(0) is TensorElementType.STRING

    def compute(x: HostArray) -> HostArray:
        if is_text:
            hashes = np.array([_hash_text(str(text).encode(), seed) for text in x.reshape(-1)], dtype=np.uint32)
        else:
            words = np.ascontiguousarray(x).reshape(-1).view(np.uint32).reshape(x.size, -1)
            hashes = _finish(_mix(words, np.full(x.size, seed, dtype=np.uint32)), words.shape[1] * 4)
        result: HostArray = hashes.view(dtype).reshape(x.shape)
        return result

    return compute


def _rotated(x: HostArray, bits: int) -> HostArray:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _scrambled(word: HostArray) -> HostArray:
    return _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _mix(words: HostArray, state: HostArray) -> HostArray:
    """State after the words (elements, words) of each element, one after the other."""
    for index in range(words.shape[1]):
        state = _rotated(state ^ _scrambled(words[:, index]), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return state


def _finish(state: HostArray, length: int) -> HostArray:
    """The hash of elements of ``length`` bytes, from the state after their bytes."""
    state = state ^ np.uint32(length)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    hashes: HostArray = state ^ (state >> np.uint32(16))
    return hashes


def _hash_text(data: bytes, seed: np.uint32) -> int:
    whole = len(data) // 4 * 4
    state = _mix(np.frombuffer(data[:whole], dtype="<u4").reshape(1, -1), np.array([seed]))
    if len(data) > whole:
        tail = np.frombuffer(data[whole:].ljust(4, b"\0"), dtype="<u4")
        state = state ^ _scrambled(tail)
    return int(_finish(state, len(data))[0])
