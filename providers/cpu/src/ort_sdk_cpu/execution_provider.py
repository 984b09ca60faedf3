"""The CPU provider in a session."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, ExecutionProvider, FusibleProgram, OrtDevice, StepFusion

from .kernels.scratch import shared_scratch

__all__ = ["CpuExecutionProvider"]


class CpuExecutionProvider(ExecutionProvider):
    """Computes at once, on NumPy arrays.

    Args: as for ``ExecutionProvider``.
    """

    def __init__(self, name: str, device: OrtDevice = CPU_DEVICE, options: Mapping[str, str] | None = None) -> None:
        super().__init__(name, device, options)
        self.scratch = shared_scratch()
        """Working memory of kernels, the same in all sessions."""

    def run_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Infinities and NaNs are values of ONNX's operators: NumPy's warnings about them stay off during a run."""
        return np.errstate(all="ignore")

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        """Chains of element-wise steps become compiled kernels."""
        from .fusion.fuse import fuse_chains

        return fuse_chains(program)

    def describe_environment(self) -> Sequence[str]:
        """Optional libraries, instruction set and threads."""
        from . import libraries

        return libraries.report()
