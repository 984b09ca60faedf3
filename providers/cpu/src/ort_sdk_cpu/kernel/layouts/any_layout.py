"""Kernels whose outputs may have any memory order, so that element-wise nodes keep a convolution's layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, Slot, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.bindable import BindableKernel
from ort_sdk_cpu.kernel.writer import MakeWriter

__all__ = ["AnyLayoutKernel", "FixedSlot"]


@dataclass(slots=True)
class FixedSlot:
    """A slot that always holds the same array."""

    array: HostArray
    is_fixed: bool = True
    is_constant: bool = False
    element_type: TensorElementType | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of the array; None for an absent value."""
        return getattr(self.array, "shape", None)


class AnyLayoutKernel(BindableKernel):
    """A kernel with a writer that writes outputs of any layout.

    Args:
        kernel: what computes step by step.
        make_writer: makes the writer of a program.
        is_elementwise: the writer does the same to every element, so that it may be given all arrays with their axes in
            memory order: rows that NumPy and compiled kernels take in one piece.
    """

    binds_any_layout = True

    def __init__(self, kernel: Any, make_writer: MakeWriter, *, is_elementwise: bool) -> None:
        super().__init__(kernel, make_writer)
        self._is_elementwise = is_elementwise

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the outputs' arrays."""
        slots = (*inputs, *outputs)
        if self._is_elementwise and all(slot.is_fixed for slot in slots):
            arrays = _in_memory_order([slot.array for slot in slots])
            inputs = [FixedSlot(array) for array in arrays[: len(inputs)]]
            outputs = [FixedSlot(array) for array in arrays[len(inputs) :]]
        return super().bind(inputs, outputs)


def _in_memory_order(arrays: list[Any]) -> list[Any]:
    """Views of the arrays with their axes ordered so that the last is row-major; the arrays, if they have unlike ranks."""
    last = arrays[-1]
    if last is None or last.flags.c_contiguous or any(not _can_follow(array, last) for array in arrays):
        return arrays
    order = sorted(range(last.ndim), key=lambda axis: (-last.strides[axis], axis))
    return [array if array is None or array.ndim == 0 else np.transpose(array, order) for array in arrays]


def _can_follow(array: Any, last: HostArray) -> bool:
    return array is None or array.ndim in {0, last.ndim}
