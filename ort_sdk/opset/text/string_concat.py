"""StringConcat."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Compute, KernelInfo
from ort_sdk.opset.definition import operator


@operator("StringConcat", host_only=True)
def string_concat(info: KernelInfo, xp: Any) -> Compute:
    """Strings of two broadcast tensors, joined element by element."""
    return lambda x, y: np.asarray(np.add(x, y), dtype=object)
