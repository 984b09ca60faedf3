"""Pooling of 8-bit data, channels last or first."""

from __future__ import annotations

import dataclasses
from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, NodeArg
from ort_sdk.opset.definition import operator
from ort_sdk.opset.nn.pool import average_pool, max_pool

from .quantized_elementwise import dequantize, requantize, storage_type

__all__ = ["nhwc_max_pool", "qlinear_average_pool"]

MICROSOFT = "com.microsoft"


@operator("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(info: KernelInfo, xp: Any) -> Compute:
    """MaxPool of 8-bit channels-last data."""
    pool = max_pool(info, xp)
    return lambda x: xp.moveaxis(pool(xp.moveaxis(x, -1, 1)), 1, -1)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(info: KernelInfo, xp: Any) -> Compute:
    """AveragePool of 8-bit data, channels last if ``channels_last`` is set, requantized to Y's parameters."""
    pool = average_pool(dataclasses.replace(info, inputs=(NodeArg("X", "tensor(float)"),)), xp)
    channels_last = bool(info.attribute("channels_last", 0))
    element_type = storage_type(info)

    def compute(x: Array, x_scale: Array, x_zero_point: Array | None, y_scale: Array, y_zero_point: Array | None = None) -> Array:
        real = dequantize(xp, xp.moveaxis(x, -1, 1) if channels_last else x, x_scale, x_zero_point)
        y = requantize(xp, pool(real), y_scale, y_zero_point, element_type)
        return xp.moveaxis(y, 1, -1) if channels_last else y

    return compute
