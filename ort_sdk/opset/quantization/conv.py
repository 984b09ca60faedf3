"""ConvInteger and QLinearConv: convolution of centred integers, exact in floating point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.nn.conv import check_channels, convolve
from ort_sdk.opset.nn.windows import WindowAttributes

from .integer_gemm import IntegerGemm, centre, wrap_to_int32
from .matmul import output_type_of
from .parameter_shapes import conv_integer_shapes, qlinear_conv_shapes
from .saturation import saturating_cast

__all__ = ["conv_integer", "qlinear_conv"]

FLOAT = TensorElementType.FLOAT
SMALLEST_STEP = 16
"""Channels a part of a sum has at least: with fewer, one GEMM in float64 is faster."""


@operator("ConvInteger", since=10, shapes=conv_integer_shapes)
def conv_integer(info: KernelInfo, xp: Any) -> Compute:
    """Convolution of x - x_zero_point with w - w_zero_point in int32; w's zero point per tensor or output channel."""
    convolve_integers = _integer_convolution(info, xp, (0, 2), (1, 3))

    def compute(x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None) -> Array:
        return wrap_to_int32(xp, convolve_integers(x, x_zero_point, w, w_zero_point))

    return compute


@operator("QLinearConv", since=10, shapes=qlinear_conv_shapes)
@operator("QLinearConv", domain="com.microsoft", shapes=qlinear_conv_shapes)
def qlinear_conv(info: KernelInfo, xp: Any) -> Compute:
    """saturate((conv(x, w) + B) * x_scale * w_scale / y_scale + y_zero_point); w's parameters may be per output channel.

    ONNX Runtime's variant takes and gives NHWC data if ``channels_last`` is set; its weight stays (M, C / group, *kernel).
    """
    convolve_integers = _integer_convolution(info, xp, (0, 2), (3, 5))
    output_type = output_type_of(info, 7)
    channels_last = bool(info.attribute("channels_last", 0))

    def compute(
        x: Array,
        x_scale: Array,
        x_zero_point: Array,
        w: Array,
        w_scale: Array,
        w_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
        bias: Array | None = None,
    ) -> Array:
        sums = convolve_integers(xp.moveaxis(x, -1, 1) if channels_last else x, x_zero_point, w, w_zero_point)
        if bias is not None:
            sums = sums + per_channel(xp, xp.module.astype(bias, sums.dtype), sums.ndim, 1)
        scale = xp.reshape(x_scale, ()) * w_scale / xp.reshape(y_scale, ())
        values = xp.astype(sums, FLOAT) * per_channel(xp, scale, sums.ndim, 1)
        quantized = saturating_cast(xp, values, output_type, xp.astype(xp.reshape(y_zero_point, ()), FLOAT))
        return xp.moveaxis(quantized, 1, -1) if channels_last else quantized

    return compute


def _integer_convolution(
    info: KernelInfo, xp: Any, first: tuple[int, int], second: tuple[int, int]
) -> Callable[[Array, Array | None, Array, Array | None], Array]:
    """A function ``(x, x_zero_point, w, w_zero_point) -> exact sums`` as float32 or float64 whole numbers.

    Sums too large for float32 are made of parts that are not, over some channels at a time: a GEMM in float64 takes longer.
    """
    attributes = WindowAttributes.of(info)
    groups = int(info.attribute("group", 1))
    bound = IntegerGemm(info, first, second, None)

    def convolve_integers(x: Array, x_zero_point: Array | None, w: Array, w_zero_point: Array | None) -> Array:
        check_channels(info, x.shape, w.shape, groups)
        element_type = bound.element_type(math.prod(w.shape[1:]))
        offset = None if x_zero_point is None or bound.first_is_centred else xp.reshape(x_zero_point, ())
        is_centred = w_zero_point is None or bound.second_is_centred
        channel_offset = None if is_centred else per_channel(xp, w_zero_point, w.ndim, 0)
        windows = attributes.windows(tuple(x.shape[2:]), tuple(w.shape[2:]))
        step = bound.exact_terms() // max(math.prod(w.shape[2:]), 1)
        if element_type is FLOAT or groups > 1 or step < SMALLEST_STEP:
            return convolve(xp, centre(xp, x, offset, element_type), centre(xp, w, channel_offset, element_type), windows, groups)
        total: Array | None = None
        for start in range(0, w.shape[1], step):
            channels = (slice(None), slice(start, start + step), ...)
            left, right = centre(xp, x[channels], offset, FLOAT), centre(xp, w[channels], channel_offset, FLOAT)
            part = xp.astype(convolve(xp, left, right, windows, 1), TensorElementType.DOUBLE)
            total = part if total is None else total + part
        return total

    return convolve_integers


def per_channel(xp: Any, parameter: Array, rank: int, axis: int) -> Array:
    """A scalar or vector laid out along one axis of a tensor of some rank."""
    if parameter.ndim == 0 or parameter.shape[0] == 1:
        return xp.reshape(parameter, ())
    return xp.reshape(parameter, (1,) * axis + (-1,) + (1,) * (rank - axis - 1))
