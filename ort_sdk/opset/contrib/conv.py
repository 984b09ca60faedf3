"""Convolution and pooling with what ONNX Runtime adds: activation, residual, channels-last data, 8-bit pooling."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, KernelInfo, NodeArg
from ort_sdk.opset.definition import operator
from ort_sdk.opset.nn.conv import conv
from ort_sdk.opset.nn.conv_transpose import conv_transpose
from ort_sdk.opset.nn.pool import average_pool, max_pool

from .fused_activation import fused_activation
from .quantized_elementwise import dequantize, requantize, storage_type

__all__ = ["fused_conv", "nhwc_conv", "nhwc_max_pool", "qlinear_average_pool"]

MICROSOFT = "com.microsoft"


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(info: KernelInfo, xp: Any) -> Compute:
    """activation(Conv(X, W, B) + Z)."""
    convolve = conv(info, xp)
    activate = fused_activation(info, xp, info.attribute("activation_params", None) or ())

    def compute(x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> Array:
        y = convolve(x, w, bias)
        if z is not None:
            y += z
        return y if activate is None else activate(y)

    return compute


@operator("NhwcConv", domain=MICROSOFT)
@operator("NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(info: KernelInfo, xp: Any) -> Compute:
    """FusedConv of channels-last data; the weight stays (M, C / group, *kernel)."""
    convolve = fused_conv(info, xp)

    def compute(x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> Array:
        y = convolve(xp.moveaxis(x, -1, 1), w, bias, None if z is None else xp.moveaxis(z, -1, 1))
        return xp.moveaxis(y, 1, -1)

    return compute


@operator("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(info: KernelInfo, xp: Any) -> Compute:
    """MaxPool of 8-bit channels-last data."""
    pool = max_pool(info, xp)
    return lambda x: xp.moveaxis(pool(xp.moveaxis(x, -1, 1)), 1, -1)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(info: KernelInfo, xp: Any) -> Compute:
    """AveragePool of 8-bit data, channels last if ``channels_last`` is set, requantised to Y's parameters."""
    pool = average_pool(dataclasses.replace(info, inputs=(NodeArg("X", "tensor(float)"),)), xp)
    channels_last = bool(info.attribute("channels_last", 0))
    element_type = storage_type(info)

    def compute(x: Array, x_scale: Array, x_zero_point: Array | None, y_scale: Array, y_zero_point: Array | None = None) -> Array:
        real = dequantize(xp, xp.moveaxis(x, -1, 1) if channels_last else x, x_scale, x_zero_point)
        y = requantize(xp, pool(real), y_scale, y_zero_point, element_type)
        return xp.moveaxis(y, 1, -1) if channels_last else y

    return compute


@operator("ConvTransposeWithDynamicPads", domain=MICROSOFT, host_inputs=(2,), shape_inputs=(2,))
def conv_transpose_with_dynamic_pads(info: KernelInfo, xp: Any) -> Compute:
    """ConvTranspose whose ``pads`` come as an input."""

    @functools.lru_cache(maxsize=16)
    def kernel(pads: tuple[int, ...]) -> Compute:
        return conv_transpose(dataclasses.replace(info, attributes={**info.attributes, "pads": pads}), xp)

    def compute(x: Array, w: Array, pads: HostArray | None = None, bias: Array | None = None) -> Array:
        given = () if pads is None else tuple(np.asarray(pads).reshape(-1).tolist())
        result: Array = kernel(given)(x, w, bias)
        return result

    return compute
