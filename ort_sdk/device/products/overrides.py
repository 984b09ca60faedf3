"""Operators whose products a device computes with kernels of its own."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Compute, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import HALF_TYPES
from ort_sdk.opset.contrib.fused_activation import fused_activation
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk.opset.nn.conv import check_channels
from ort_sdk.opset.nn.conv_transpose import TransposeAttributes
from ort_sdk.opset.nn.windows import WindowAttributes

from .convolutions.convolution import Convolution
from .convolutions.transposed import TransposedConvolution
from .nbits import BlockProduct, Blocks

__all__ = ["PRODUCT_OVERRIDES"]

FLOAT = TensorElementType.FLOAT
FLOATING = frozenset({FLOAT, *HALF_TYPES})
MOST_SPATIAL_AXES = 3


def conv(info: KernelInfo, namespace: Any, shared: Compute) -> Compute | None:
    """Conv of float32, float16 and bfloat16, over one to three axes."""
    convolve = _convolution(info, namespace)
    output_type = info.input_element_type(0)
    if convolve is None or output_type is None:
        return None

    def compute(x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None = None) -> Any:
        y = convolve(x, weight, bias)
        return shared(x, weight, bias) if y is None else namespace.astype(y, output_type)

    return compute


def fused_conv(info: KernelInfo, namespace: Any, shared: Compute) -> Compute | None:
    """FusedConv, with the activation and the sum in the epilogue."""
    convolve = _convolution(info, namespace)
    output_type = info.input_element_type(0)
    if convolve is None or output_type is None:
        return None
    activate = fused_activation(info, namespace, info.attribute("activation_params", None) or ())

    def compute(x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None = None, z: DeviceArray | None = None) -> Any:
        y = convolve(x, weight, bias)
        if y is None:
            return shared(x, weight, bias, z)
        if z is not None:
            if z.shape != y.shape:
                raise InvalidArgument(
                    f"{info.describe()}: Z has shape {list(z.shape)}; it must be that of the convolution, {list(y.shape)}"
                )
            y = y + namespace.astype(z, FLOAT)
        return namespace.astype(y if activate is None else activate(y), output_type)

    return compute


def _convolution(info: KernelInfo, namespace: Any) -> Any:
    """A function that gives the convolution with its bias as float32, or None where the kernels do not take the arrays."""
    if info.input_element_type(0) not in FLOATING:
        return None
    attributes, groups = WindowAttributes.of(info), int(info.attribute("group", 1))

    def convolve(x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None) -> DeviceArray | None:
        check_channels(info, x.shape, weight.shape, groups)
        windows = attributes.windows(tuple(x.shape[2:]), tuple(weight.shape[2:]))
        is_empty = 0 in (*x.shape, *weight.shape, *windows.output_shape)
        if is_empty or len(windows.output_shape) > MOST_SPATIAL_AXES:
            return None
        y = x.made(Convolution(x.context, x.strided(), weight.strided(), windows, groups))
        return _with_bias(namespace, y, bias)

    return convolve


def conv_transpose(info: KernelInfo, namespace: Any, shared: Compute) -> Compute | None:
    """ConvTranspose of float32, float16 and bfloat16, over one to three axes."""
    output_type = info.input_element_type(0)
    if output_type not in FLOATING:
        return None
    attributes, groups = TransposeAttributes.of(info), int(info.attribute("group", 1))

    def compute(x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None = None) -> Any:
        fits = x.ndim == weight.ndim and 3 <= x.ndim <= 2 + MOST_SPATIAL_AXES
        if not fits or 0 in (*x.shape, *weight.shape) or x.shape[1] != weight.shape[0] or x.shape[1] % groups:
            return shared(x, weight, bias)
        windows = attributes.windows(tuple(x.shape[2:]), tuple(weight.shape[2:]))
        y = x.made(TransposedConvolution(x.context, x.strided(), weight.strided(), windows, groups))
        return namespace.astype(_with_bias(namespace, y, bias), output_type)

    return compute


def _with_bias(namespace: Any, y: DeviceArray, bias: DeviceArray | None) -> DeviceArray:
    if bias is None:
        return y
    along = (1, -1, *(1 for _ in y.shape[2:]))
    shifted: DeviceArray = y + namespace.reshape(namespace.astype(bias, FLOAT), along)
    return shifted


def matmul_nbits(info: KernelInfo, namespace: Any, shared: Compute) -> Compute | None:
    """MatMulNBits of 4 and 8 bits, whose blocks follow each other."""
    weight = BlockWeight.of(info)
    output_type = info.input_element_type(0)
    if weight.bits not in {4, 8} or output_type not in FLOATING or info.has_input(4):
        return None

    def compute(
        a: DeviceArray,
        b: DeviceArray,
        scales: DeviceArray,
        zero_points: DeviceArray | None = None,
        g_idx: DeviceArray | None = None,
        bias: DeviceArray | None = None,
    ) -> Any:
        weight.check(a, b, scales)
        if zero_points is not None:
            weight.check_zero_points(zero_points)
        if g_idx is not None or 0 in a.shape:
            return shared(a, b, scales, zero_points, g_idx, bias)
        zeros = None if zero_points is None else zero_points.dense()
        blocks = Blocks(b.dense(), scales.dense(), zeros, weight.bits, weight.block_size, weight.size_n, weight.size_k)
        y = a.made(BlockProduct(a.context, namespace.astype(a, FLOAT).dense(), blocks))
        return namespace.astype(y if bias is None else y + namespace.astype(bias, FLOAT), output_type)

    return compute


PRODUCT_OVERRIDES = {
    ("", "Conv"): conv,
    ("", "ConvTranspose"): conv_transpose,
    ("com.microsoft", "FusedConv"): fused_conv,
    ("com.microsoft", "MatMulNBits"): matmul_nbits,
}
"""(domain, op_type) → what makes its function."""
