"""Convolution with what ONNX Runtime adds: activation, residual, channels-last data."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes
from ort_sdk.opset.nn.conv import conv, weight_shapes

from .fused_activation import fused_activation

__all__ = ["fused_conv", "nhwc_conv"]

MICROSOFT = "com.microsoft"


@operator("FusedConv", domain=MICROSOFT, shapes=weight_shapes)
def fused_conv(info: KernelInfo, xp: Any) -> Compute:
    """activation(Conv(X, W, B) + Z)."""
    convolve = conv(info, xp)
    activate = fused_activation(info, xp, info.attribute("activation_params", None) or ())

    def compute(x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> Array:
        y = convolve(x, w, bias)
        if z is not None:
            if tuple(z.shape) != tuple(y.shape):
                raise InvalidArgument(
                    f"{info.describe()}: Z has shape {tuple(z.shape)}; it must be that of the convolution, {tuple(y.shape)}"
                )
            y += z
        return y if activate is None else activate(y)

    return compute


def _channels_last_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """The same with channels last."""
    shapes.match(0, "X", ("batch", ..., "inputs"))
    shapes.match(1, "W", ("outputs", "inputs of a group", *(None for _ in (shapes.of(0) or ())[2:])))
    shapes.match(2, "B", ("outputs",))


@operator("NhwcConv", domain=MICROSOFT, shapes=_channels_last_shapes)
@operator("NhwcFusedConv", domain=MICROSOFT, shapes=_channels_last_shapes)
def nhwc_conv(info: KernelInfo, xp: Any) -> Compute:
    """FusedConv of channels-last data; the weight stays (M, C / group, *kernel)."""
    convolve = fused_conv(info, xp)

    def compute(x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> Array:
        y = convolve(xp.moveaxis(x, -1, 1), w, bias, None if z is None else xp.moveaxis(z, -1, 1))
        return xp.moveaxis(y, 1, -1)

    return compute
