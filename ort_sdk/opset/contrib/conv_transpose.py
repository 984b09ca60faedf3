"""Transposed convolution whose pads come as an input."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.nn.conv_transpose import conv_transpose

__all__ = ["conv_transpose_with_dynamic_pads"]


@operator("ConvTransposeWithDynamicPads", domain="com.microsoft", host_inputs=(2,), shape_inputs=(2,))
def conv_transpose_with_dynamic_pads(info: KernelInfo, xp: Any) -> Compute:
    """ConvTranspose whose ``pads`` come as an input."""

    @functools.lru_cache(maxsize=16)
    def kernel(pads: tuple[int, ...]) -> Compute:
        return conv_transpose(info.with_attributes({**info.attributes, "pads": pads}), xp)

    def compute(x: Array, w: Array, pads: HostArray | None = None, bias: Array | None = None) -> Array:
        given = () if pads is None else tuple(np.asarray(pads).reshape(-1).tolist())
        result: Array = kernel(given)(x, w, bias)
        return result

    return compute
