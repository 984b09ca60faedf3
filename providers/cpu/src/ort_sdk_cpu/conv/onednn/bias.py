"""ConvTranspose of many weights by oneDNN, its bias added afterwards.

Some of them it adds wrongly: ``conv.select`` says which.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, ExecutionProvider, HostArray, KernelInfo, tensor_type
from ort_sdk.api import TensorElementType as Element
from ort_sdk.api.step_expansion import ExpandedKernel, ExpandingProgram
from ort_sdk_cpu.conv.problem import ConvAlgorithm
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.kernel.layouts.channels_last import ArraysCall

from .kernel import OneDnnConvKernel

__all__ = ["BiasApartKernel"]

WEIGHT, BIAS = 1, 2


class BiasApartKernel(OneDnnConvKernel):
    """ConvTranspose by a primitive without bias; in programs, an Add follows, which is joined with what comes then.

    Args:
        info: the node.
        fallback: computes what this does not.
        activate: see ``ConvKernel``.
    """

    own_algorithm = ConvAlgorithm.ONEDNN_BIAS_APART

    def __init__(self, info: KernelInfo, fallback: Any, activate: InPlace | None) -> None:
        super().__init__(info, fallback, activate)
        self.has_finish, self._has_bias = True, False
        self._expected = self._expected_variant()
        self._provider: ExecutionProvider | None = info.execution_provider

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X, and W unless it is constant."""
        return super().operands(inputs[:BIAS])

    def make_call(self, inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> ArraysCall | None:
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
        """Whether oneDNN computes inputs of this shape; the fallback does not add in two steps, or refuses the bias."""
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
