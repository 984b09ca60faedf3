"""ConvTranspose of many weights by oneDNN, its bias added afterwards.

Where oneDNN reads weights of a strided transposed convolution in pieces of their input channels, it adds the bias wrongly (3.2:
kernels of 4 x 4 in steps of 4, or 3 x 3 in steps of 2, with 256 and more channels).
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, ExecutionProvider, HostArray, KernelInfo, tensor_type
from ort_sdk.api import TensorElementType as Element
from ort_sdk.api.step_expansion import ExpandedKernel, ExpandingProgram
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.kernel.layouts.call import LayoutCall

from .onednn import ConvKernel
from .onednn_tiled_1d import PiecedCall

__all__ = ["BiasApartKernel", "needs_bias_apart"]

WEIGHT, BIAS = 1, 2
LEAST_CHANNELS = 64
"""Input channels of a group up to which there is one piece."""
LEAST_WEIGHTS = 1 << 15
"""Elements of a weight that are read at once whatever the size of the caches."""


def needs_bias_apart(info: KernelInfo) -> bool:
    """Whether oneDNN's result with a bias may be wrong for a ConvTranspose node."""
    if not info.has_input(BIAS) or max(info.attribute("strides", None) or (1,)) == 1:
        return False
    weight = info.constants.get(WEIGHT)
    if weight is None:
        return True
    channels = weight.shape[0] // int(info.attribute("group", 1))
    return channels > LEAST_CHANNELS and math.prod(weight.shape) > LEAST_WEIGHTS


class BiasApartKernel(ConvKernel):
    """ConvTranspose by a primitive without bias; in programs, an Add follows, which is joined with what comes then.

    Args:
        info: the node.
        kernel: computes what oneDNN does not.
        activate: see ``ConvKernel``.
    """

    def __init__(self, info: KernelInfo, kernel: Any, activate: InPlace | None) -> None:
        super().__init__(info, kernel, activate)
        self.has_finish, self._has_bias = True, False
        self._expected = self._expected_variant()
        self._provider: ExecutionProvider | None = info.execution_provider

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X, and W unless it is constant."""
        return super().operands(inputs[:BIAS])

    def make_call(self, inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> LayoutCall | PiecedCall | None:
        """The primitive on arrays of these layouts."""
        return super().make_call(inputs[:BIAS], operands, out)

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """A task that takes sizes as arguments."""
        return super().write_varying(inputs[:BIAS], out)

    def finish(self, inputs: Sequence[Any], out: HostArray) -> None:
        """Add the bias."""
        if self.has_finish:
            np.add(out, _along_channels(inputs[BIAS], out.ndim), out)

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> list[int] | None:
        """The convolution, and an Add of a constant bias."""
        if self._provider is None or not program.abstract_value(inputs[BIAS]).value_known or not self._computes(program, inputs):
            return None
        types = [tensor_type(Element.FLOAT)] * 2
        kernel = self._provider.step_kernel("Add", types, {}) or ExpandedKernel(_added)
        bias = _along_channels(program.value(inputs[BIAS]), program.value(inputs[0]).ndim)
        sums = program.launch("ConvTranspose", self._without_bias(), inputs[:BIAS])
        return [program.launch("Add", kernel, [sums, program.constant(bias)])]

    def _computes(self, program: ExpandingProgram, inputs: Sequence[int]) -> bool:
        """Whether oneDNN computes inputs of this shape; the other kernel does not add in two steps, or refuses the bias."""
        if not program.abstract_value(inputs[0]).shape_known:
            return False
        shape = self.output_shape([program.value(inputs[0]), program.value(inputs[WEIGHT])])
        return shape is not None and program.value(inputs[BIAS]).shape == (shape[1],)

    def _without_bias(self) -> BiasApartKernel:
        """The kernel for two inputs."""
        made = copy.copy(self)
        made.has_finish, made._calls = False, threading.local()
        return made


def _along_channels(bias: HostArray, rank: int) -> HostArray:
    """(M,) as (M, 1, …, 1), to be added to (N, M, *spatial)."""
    return np.reshape(bias, (-1, *(1,) * (rank - 2)))


def _added(sums: Array, bias: Array) -> Array:
    return sums + bias
