"""QGemm and QLinearMatMul with a constant B: a convolution whose image is one column of the rows of A."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, Slot
from ort_sdk_cpu.quantized.conv.qlinear import QLinearConvKernel, can_compute
from ort_sdk_cpu.quantized.conv.qlinear_constants import QLinearConvConstants

__all__ = ["QGemmKernel", "kernel_for"]

A, A_SCALE, A_ZERO_POINT, B, B_SCALE, B_ZERO_POINT, C, Y_SCALE, Y_ZERO_POINT = range(9)
MATMUL = "QLinearMatMul"
"""Has no C, and A with any leading axes."""


def kernel_for(info: KernelInfo, kernel: Any) -> QGemmKernel | None:
    """The kernel; None if there is none for the node. All but A must be constant.

    Args:
        info: the node.
        kernel: computes what this one does not.
    """
    if not can_compute() or info.attribute("transA", 0) or info.attribute("alpha", 1.0) != 1:
        return None
    values = _constants(info)
    if any(value is None for value in values.values()) or not {B, Y_SCALE, Y_ZERO_POINT} <= values.keys():
        return None
    weight, bias = values[B], values.get(C)
    if weight is None or weight.ndim != 2:
        return None
    columns = weight.shape[0 if _is_transposed(info) else 1]
    if bias is not None and bias.shape not in {(columns,), (1, columns)}:
        return None
    image = (weight if _is_transposed(info) else weight.T)[:, :, None, None]
    order = [
        None,
        *(values[index] for index in (A_SCALE, A_ZERO_POINT)),
        image,
        *(values[index] for index in (B_SCALE, B_ZERO_POINT)),
    ]
    parameters = QLinearConvConstants.of(
        [*order, values[Y_SCALE], values[Y_ZERO_POINT], None if bias is None else bias.reshape(-1)]
    )
    return None if parameters is None else QGemmKernel(info, kernel, QLinearConvKernel(info, kernel, parameters))


def _constants(info: KernelInfo) -> dict[int, HostArray | None]:
    """Inputs behind A by QGemm's index; None for one that is not constant."""
    count = len(info.inputs)
    indices = [index for index in range(A_SCALE, Y_ZERO_POINT + 1) if info.op_type != MATMUL or index != C]
    pairs = zip(indices, range(A_SCALE, count), strict=False)
    return {index: info.constant_input(own) for index, own in pairs if info.has_input(own)}


def _is_transposed(info: KernelInfo) -> bool:
    return bool(info.attribute("transB", 0))


class QGemmKernel(OpKernel):
    """saturate(a_scale * b_scale / y_scale * (A @ B + C) + y_zero_point).

    Args:
        info: the node.
        kernel: computes what this one does not.
        conv: the same as a convolution.
    """

    def __init__(self, info: KernelInfo, kernel: Any, conv: QLinearConvKernel) -> None:
        self._kernel, self._conv = kernel, conv
        self._transposed, self._is_matmul = _is_transposed(info), info.op_type == MATMUL
        self.deterministic, self.shape_inputs = kernel.deterministic, kernel.shape_inputs

    @property
    def algorithm(self) -> str | None:
        """That of the convolution."""
        return self._conv.algorithm

    def compute(self, *inputs: Any) -> Any:
        """A new array (..., M, N)."""
        if self._kernel.input_rule is not None:
            self._kernel.input_rule.check(inputs)
        a, b = inputs[A], inputs[B]
        if self._is_known(a):
            out = np.empty((*a.shape[:-1], b.shape[0 if self._transposed else 1]), inputs[-1].dtype)
            if self._write(inputs, out):
                return out
        return self._kernel.compute(*inputs)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        other, output = self._kernel.bind(inputs, outputs), outputs[0]
        if all(slot.is_fixed for slot in (*inputs, output)) and inputs[A].array.flags.c_contiguous:
            arrays = [slot.array for slot in inputs]
            is_known = self._is_known(arrays[A])
            found = self._conv.bind_arrays(self._images(arrays), _image(output.array)) if is_known else None
            return found or other

        def call() -> None:
            arrays = [slot.array for slot in inputs]
            if not self._is_known(arrays[A]) or not self._write(arrays, output.array):
                other()

        return call

    def _is_known(self, a: HostArray) -> bool:
        return a.ndim == 2 or (self._is_matmul and a.ndim > 2)

    def _write(self, inputs: Sequence[Any], out: HostArray) -> bool:
        images = self._images(inputs)
        return self._conv.output_shape(images) is not None and self._conv.write(images, _image(out))

    def _images(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs as QLinearConv takes them: X (1, K, M, 1), W (N, K, 1, 1)."""
        weight = inputs[B] if self._transposed else inputs[B].T
        return [_image(inputs[A]), *inputs[A_SCALE:B], weight[:, :, None, None]]


def _image(matrix: HostArray) -> HostArray:
    """(..., columns) as (1, columns, rows, 1)."""
    return matrix.reshape(-1, matrix.shape[-1]).T[None, :, :, None]
