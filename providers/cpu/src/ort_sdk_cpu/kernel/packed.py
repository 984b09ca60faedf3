"""Kernels that keep their weight in aligned memory, wherever it lies in its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    NOT_PACKED,
    HostArray,
    KernelInfo,
    NotPacked,
    OrtMemoryInfo,
    PrePackedWeights,
    Slot,
    Tensor,
    TensorElementType,
)
from ort_sdk_cpu.memory.allocator import ALIGNMENT_BYTES, CpuAllocator

from .bound import BindableKernel, MakeWriter
from .layouts.any_layout import FixedSlot

__all__ = ["PackableKernel"]

WEIGHT = 1
"""Input that is packed: the weight of a convolution, the right operand of a product."""


class PackableKernel(BindableKernel):
    """A kernel that takes its weight as one copy at a multiple of 64 bytes, if that is not where the file has it.

    It is for sessions that keep packed weights in files: there the copy is made once and mapped by every process. Without such
    a file the host makes the same copy in the first run, so packing at session creation would only cost memory earlier.

    Args:
        kernel: what computes step by step.
        make_writer: makes the writer of a program.
        info: the node.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, info: KernelInfo) -> None:
        super().__init__(kernel, make_writer)
        tensor = info.constants.get(WEIGHT)
        self._shape = () if tensor is None else tuple(tensor.shape)
        self._dtype = np.dtype(np.uint8) if tensor is None else tensor.element_type.numpy_dtype
        self._weight: HostArray | None = None
        self._allocator = CpuAllocator(OrtMemoryInfo())

    def packing_identity(self, input_index: int) -> str | None:
        """The layout: as it is, aligned."""
        return f"aligned-{ALIGNMENT_BYTES}" if input_index == WEIGHT else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """Copy a weight whose elements are not aligned where they are."""
        if input_index != WEIGHT:
            return NOT_PACKED
        data = tensor.packed()
        if data.ctypes.data % self._dtype.alignment == 0:
            return NOT_PACKED
        buffer = self._allocator.allocate((data.size,), TensorElementType.UINT8)
        np.copyto(buffer, data)
        buffer.flags.writeable = False
        return PrePackedWeights((buffer,))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight from the buffer."""
        self._weight = weights.buffers[0].view(self._dtype).reshape(self._shape)

    @property
    def compute(self) -> Callable[..., Any]:
        """The shared set's function, on the packed weight if there is one."""
        compute: Callable[..., Any] = self._compute
        weight = self._weight
        if weight is None:
            return compute
        return lambda first, _weight, *others: compute(first, weight, *others)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """As for every bindable kernel, with the packed weight in its place."""
        if self._weight is None:
            return super().bind(inputs, outputs)
        weight = FixedSlot(self._weight)
        return super().bind([*inputs[:WEIGHT], weight, *inputs[WEIGHT + 1 :]], outputs)
