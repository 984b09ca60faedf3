"""The CPU provider in a session."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from ort_sdk.api import ExecutionProvider

__all__ = ["CpuExecutionProvider"]


class CpuExecutionProvider(ExecutionProvider):
    """Computes at once, on NumPy arrays."""

    def run_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Infinities and NaNs are values of ONNX's operators: NumPy's warnings about them stay off during a run."""
        return np.errstate(all="ignore")
