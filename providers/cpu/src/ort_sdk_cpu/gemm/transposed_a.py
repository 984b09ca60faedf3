"""GEMM of a transposed A with a constant B: of NHWC data, the transpose is contiguous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, Slot, TensorElementType

from .constant_b import ConstantBGemm

__all__ = ["TransposedAGemm"]


class TransposedAGemm(ConstantBGemm):
    """As its base, with the last two axes of the first operand swapped."""

    row_gemm = None
    """Its first operand has no rows."""

    def _run(self, a: HostArray, *others: Any) -> Any:
        return super()._run(np.matrix_transpose(a), *others)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """As for its base."""
        return super().bind([_Swapped(inputs[0]), *inputs[1:]], outputs)


class _Swapped:
    """A slot whose array is seen with its last two axes swapped."""

    def __init__(self, slot: Slot) -> None:
        self._slot, self.is_fixed, self.is_constant = slot, slot.is_fixed, slot.is_constant
        # slots that others make may not know it
        self.element_type: TensorElementType | None = getattr(slot, "element_type", None)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of the view."""
        shape = self._slot.shape
        return None if shape is None else (*shape[:-2], shape[-1], shape[-2])

    @property
    def array(self) -> Any:
        """A view."""
        return np.matrix_transpose(self._slot.array)

    @array.setter
    def array(self, array: Any) -> None:
        self._slot.array = np.matrix_transpose(array)
