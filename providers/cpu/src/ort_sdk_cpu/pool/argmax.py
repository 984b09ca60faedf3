"""MaxPool with its output Indices by a compiled task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.layouts.contiguous import contiguous_first
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import TaskWriter, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import Workspace

from .arguments.argmax import MODULE, MaxPoolWithIndices
from .arguments.windows import axes_hw
from .select import PoolAlgorithm, select_with_indices

__all__ = ["max_pool_with_indices_writer"]

NAME = "max_pool_with_indices"


def max_pool_with_indices_writer(
    attributes: WindowAttributes, compute: Callable[..., Any], workspace: Workspace, *, is_column_major: bool
) -> MakeWriter:
    """Makes writers of maxima and their indices.

    Args:
        attributes: of the windows.
        compute: the shared set's function.
        workspace: the workspace.
        is_column_major: whether indices are of the transposed planes (``storage_order`` 1).
    """

    def otherwise(x: HostArray, *outputs: HostArray | None) -> None:
        for value, out in zip(compute(x), outputs, strict=True):
            if out is not None:
                np.copyto(out, value)

    def make(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[PoolAlgorithm, Writer]:
        x = inputs[0]
        if any(out is None for out in outputs) or x.ndim < 3:
            return PoolAlgorithm.NUMPY, otherwise
        windows = attributes.windows(x.shape[2:]).trimmed()
        algorithm = select_with_indices(x, windows)
        if algorithm is PoolAlgorithm.NUMPY:
            return algorithm, otherwise
        reads = math.prod((*x.shape[:2], *windows.output_shape, *windows.kernel_shape))
        steps = (1, windows.input_shape[0]) if is_column_major else (windows.input_shape[-1], 1)
        planes, axes = math.prod(x.shape[:2]), axes_hw(windows)
        arguments = MaxPoolWithIndices(Operand(0), Operand(1), Operand(2), planes, *axes, *steps)
        writer = TaskWriter(MODULE, NAME, arguments, otherwise, threads_for(reads))
        return algorithm, contiguous_first(writer, x, workspace)

    return SelectingMaker(make)
