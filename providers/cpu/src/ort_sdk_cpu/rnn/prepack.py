"""LSTM, GRU and RNN whose constant weights the host packs: W stays in its file, R becomes panels."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import NOT_PACKED, TENSOR_BYTES, NotPacked, PrePackedWeights, Tensor
from ort_sdk_cpu.kernel.bindable import BindableKernel
from ort_sdk_cpu.kernel.writer import MakeWriter

from .packing import RECURRENT, WEIGHT, LayerWeights

__all__ = ["PackedRecurrent"]


class PackedRecurrent(BindableKernel):
    """A layer over packed weights.

    Args:
        kernel: what computes what the tasks do not, and what is known of it.
        make_writer: makes the writer of a program.
        weights: of the node, which ``make_writer`` reads, too.
    """

    packs_in_first_run = True

    def __init__(self, kernel: Any, make_writer: MakeWriter, weights: LayerWeights) -> None:
        super().__init__(kernel, make_writer)
        self._weights, compute = weights, kernel.compute
        self._compute = lambda *inputs: compute(*weights.plain(inputs))

    def packing_identity(self, input_index: int) -> str | None:
        """The order of R; W stays as it is."""
        return TENSOR_BYTES if input_index == WEIGHT else self._weights.form if input_index == RECURRENT else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """W's bytes as they are; R as panels."""
        if input_index not in {WEIGHT, RECURRENT}:
            return NOT_PACKED
        return PrePackedWeights((self._weights.packed(input_index, tensor.packed()),))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weights from the buffers."""
        self._weights.use_packed(input_index, weights.buffers[0])
