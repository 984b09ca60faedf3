"""Convolution, GEMM and quantization of 8-bit tensors into given outputs; quantization also to 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.layouts.contiguous import contiguous_first
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.strides import memory_order
from ort_sdk_cpu.memory.workspace import workspace_of

from .arguments.dynamic import MODULE as DYNAMIC
from .arguments.linear import MODULE as LINEAR
from .arguments.linear import Dequantize, Quantize
from .dynamic import TASK, RangeQuantization
from .matmul.dynamic_b import matmul_integer_writer, qlinear_matmul_writer
from .parameters import BYTES, WORDS, is_of_one_scale, limits, parameters_of, sign_bit
from .per_axis import dequantized_rows, quantized_rows

__all__: list[str] = []

_FLOAT = np.dtype(np.float32)


@bindable("QLinearConv")
@bindable("QLinearConv", domain="com.microsoft")
def qlinear_conv(_info: KernelInfo, compute: Any) -> MakeWriter:
    """Convolution of integers."""
    return lambda _inputs, _outputs: copying_writer(compute)


@kernel_maker("QLinearConv")
@kernel_maker("QLinearConv", domain="com.microsoft")
def qlinear_conv_kernel(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """The kernel with a constant weight, where there is one for the node."""
    from .conv.qlinear import kernel_for

    return kernel_for(info, BindableKernel(kernel, make_writer))


@bindable("QLinearMatMul")
@bindable("QGemm", domain="com.microsoft")
def qgemm(info: KernelInfo, compute: Any) -> MakeWriter:
    """GEMM of 8-bit matrices, requantized."""
    make = qlinear_matmul_writer(info, copying_writer(compute)) if info.op_type == "QLinearMatMul" else None
    return make or (lambda _inputs, _outputs: copying_writer(compute))


@kernel_maker("QLinearMatMul")
@kernel_maker("QGemm", domain="com.microsoft")
def qgemm_kernel(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """The kernel with a constant weight, where there is one for the node."""
    from .matmul.qgemm import kernel_for

    return kernel_for(info, BindableKernel(kernel, make_writer))


def _task_of(name: str, quantized: HostArray) -> str | None:
    """The task for quantized elements of an array's type; None if there is none."""
    if quantized.dtype in BYTES:
        return f"{name}_8"
    return f"{name}_16" if quantized.dtype in WORDS else None


@bindable("QuantizeLinear", elementwise=True)
@bindable("QuantizeLinear", domain="com.microsoft", elementwise=True)
def quantize_linear(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """With one constant scale and zero point, or per axis."""
    if info.attribute("precision", 0) not in {0, TensorElementType.FLOAT}:
        return lambda _inputs, _outputs: copying_writer(compute)
    parameters = parameters_of(info, 1, 2)
    if parameters is None:
        return quantized_rows(info, compute)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        task = _task_of("quantize", out)
        if x.dtype != _FLOAT or task is None or not is_worth_a_task(out.size, LINEAR, task):
            return copying_writer(compute)
        arguments = Quantize(Operand(0), Operand(len(inputs)), out.size, *parameters, *limits(out))
        return TaskWriter(LINEAR, task, arguments, copying_writer(compute), threads_for(out.size))

    return make


@bindable("DequantizeLinear", elementwise=True)
@bindable("DequantizeLinear", domain="com.microsoft", elementwise=True)
def dequantize_linear(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """(x - zero point) * scale: with one constant scale and zero point, or per axis."""
    parameters = parameters_of(info, 1, 2)
    if parameters is None:
        return dequantized_rows(info, compute)
    workspace = workspace_of(info)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        task = _task_of("dequantize", x)
        if out.dtype != _FLOAT or task is None or not is_worth_a_task(out.size, LINEAR, task):
            return copying_writer(compute)
        zero_point, scale = parameters
        sign = sign_bit(x)
        arguments = Dequantize(Operand(0), Operand(len(inputs)), out.size, sign, zero_point + sign, scale)
        writer = TaskWriter(LINEAR, task, arguments, copying_writer(compute), threads_for(out.size))
        return contiguous_first(writer, x, workspace)

    return make


@kernel_maker("DequantizeLinear", "QuantizeLinear")
@kernel_maker("DequantizeLinear", "QuantizeLinear", domain="com.microsoft")
def rows_in_order(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """A kernel whose arrays' axes stay in order, where scales run along one of them."""
    return None if is_of_one_scale(info, 1) else BindableKernel(kernel, make_writer)


@bindable("MatMulInteger")
@bindable("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain="com.microsoft")
def integer_matmul(info: KernelInfo, compute: Any) -> MakeWriter:
    """GEMM of 8-bit matrices, in 32 bits or as float32."""
    if info.op_type == "MatMulInteger":
        return matmul_integer_writer(info, copying_writer(compute))
    return lambda _inputs, _outputs: copying_writer(compute)


@kernel_maker("MatMulInteger")
@kernel_maker("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain="com.microsoft")
def integer_matmul_kernel(info: KernelInfo, kernel: Any, _make_writer: MakeWriter) -> Any:
    """The kernel with a constant B, where there is one for the node."""
    from .matmul.constant_b import kernel_for

    return kernel_for(info, kernel)


@bindable("DynamicQuantizeLinear", any_type=True, any_layout=True)
def dynamic_quantize_linear(_info: KernelInfo, compute: Any) -> MakeWriter:
    """Quantization by the input's own range."""

    def otherwise(x: HostArray, *outputs: HostArray) -> None:
        for out, value in zip(outputs, compute(x), strict=True):
            np.copyto(out, value)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x = inputs[0]
        is_wanted = x.dtype == _FLOAT and len(outputs) == 3 and not any(out is None for out in outputs)
        if not is_wanted or not is_worth_a_task(x.size, DYNAMIC, TASK):
            return otherwise
        return _RangeWriter(x.size, otherwise)

    return make


class _RangeWriter:
    """DynamicQuantizeLinear as tasks on arrays of the same order of axes, without gaps.

    Args:
        size: elements.
        otherwise: writes other arrays.
    """

    def __init__(self, size: int, otherwise: Writer) -> None:
        self._tasks, self._otherwise = RangeQuantization(size), otherwise

    def __call__(self, *arrays: HostArray) -> None:
        """Write the outputs."""
        if _are_alike(*arrays[:2]):
            self._tasks.run(*arrays)
        else:
            self._otherwise(*arrays)

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None for other layouts."""
        return self._tasks.bind_arrays(*arrays) if _are_alike(*arrays[:2]) else None


def _are_alike(x: HostArray, out: HostArray) -> bool:
    order = memory_order(x)
    return bool(x.transpose(order).flags.c_contiguous and out.transpose(order).flags.c_contiguous)


@bindable("ConvInteger")
def conv_integer(_info: KernelInfo, compute: Any) -> MakeWriter:
    """Convolution of integers, in 32 bits."""
    return lambda _inputs, _outputs: copying_writer(compute)


@kernel_maker("ConvInteger")
def conv_integer_kernel(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """The kernel with a constant weight, where there is one for the node."""
    from .conv.integer import kernel_for

    return kernel_for(info, BindableKernel(kernel, make_writer))
