"""StringSplit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, KernelInfo
from ort_sdk.opset.definition import operator


@operator("StringSplit", shape_inputs=None, host_only=True)
def string_split(info: KernelInfo, xp: Any) -> Compute:
    """Substrings between delimiters, padded with empty strings along a new last axis, and how many there are (int64)."""
    split = _splitter(info.attribute("delimiter", ""), info.attribute("maxsplit", -1))

    def compute(x: HostArray) -> tuple[HostArray, HostArray]:
        parts = [split(text) for text in x.ravel().tolist()]
        counts = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        width = int(counts.max(initial=0))
        substrings = np.full((len(parts), width), "", dtype=object)
        flat = np.empty(int(counts.sum()), dtype=object)
        flat[:] = list(itertools.chain.from_iterable(parts))
        substrings[np.arange(width) < counts[:, np.newaxis]] = flat
        return substrings.reshape(*x.shape, width), counts.reshape(x.shape)

    return compute


def _splitter(delimiter: str, max_split: int) -> Callable[[str], list[str]]:
    """Function that splits one string; an empty string has no parts, as in ONNX Runtime."""
    if delimiter:
        return lambda text: text.split(delimiter, max_split) if text else []
    return lambda text: text.strip().split(None, max_split)
