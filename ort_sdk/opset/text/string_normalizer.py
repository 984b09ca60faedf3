"""StringNormalizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

_CASE_CHANGES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@operator("StringNormalizer", shape_inputs=None, host_only=True)
def string_normalizer(info: KernelInfo, xp: Any) -> Compute:
    """Strings of a vector, or of a matrix of one row, without stop words and in another case; one empty string if none is left.

    Case changes follow Unicode's rules whatever ``locale`` says.

    Raises:
        InvalidGraph: the attribute ``case_change_action`` is unknown.
    """
    action = info.attribute("case_change_action", "NONE")
    if action not in _CASE_CHANGES:
        raise InvalidGraph(f"{info.describe()}: case_change_action '{action}' is unknown; allowed are {', '.join(_CASE_CHANGES)}")
    change = _CASE_CHANGES[action]
    fold: Callable[[str], str] = str if info.attribute("is_case_sensitive", 0) else str.lower
    stop_words = frozenset(map(fold, info.attribute("stopwords", ())))

    def compute(x: HostArray) -> HostArray:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise InvalidArgument(f"{info.describe()}: input of shape {x.shape} is not [C] or [1, C]")
        kept = [change(text) for text in x.ravel().tolist() if fold(text) not in stop_words] or [""]
        result = np.empty(len(kept), dtype=object)
        result[:] = kept
        return result.reshape((1,) * (x.ndim - 1) + (-1,))

    return compute
