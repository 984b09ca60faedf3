"""The kernels: each a function called once per node, which returns the function that runs it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_sdk.api import KernelInfo, KernelRegistry

from .npu import NpuArray

__all__ = ["registry"]

registry = KernelRegistry("ExampleExecutionProvider")
FLOAT = {"T": ["tensor(float)", "tensor(double)"]}


@registry.kernel("Abs", since_version=13, type_constraints=FLOAT)
def absolute(info: KernelInfo) -> Callable[[NpuArray], NpuArray]:
    """|x|, element by element."""
    return lambda x: NpuArray(np.asarray(np.abs(x.memory)))


@registry.kernel("Relu", since_version=13, end_version=14, type_constraints=FLOAT)
def relu(info: KernelInfo) -> Callable[[NpuArray], NpuArray]:
    """max(x, 0), element by element."""
    return lambda x: NpuArray(np.asarray(np.maximum(x.memory, 0)))


@registry.kernel("Add", since_version=13, end_version=14, type_constraints=FLOAT)
def add(info: KernelInfo) -> Callable[[NpuArray, NpuArray], NpuArray]:
    """a + b, broadcast as ONNX says, which is as NumPy does."""
    return lambda a, b: NpuArray(np.asarray(a.memory + b.memory))
