"""Operators that ONNX Runtime keeps from before ONNX 1.0 or from old versions of its own schemas, in ai.onnx."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []


@operator("Affine")
def affine(info: KernelInfo, _xp: Any) -> Compute:
    """Alpha * X + beta."""
    alpha, beta = info.attribute("alpha", 1.0), info.attribute("beta", 0.0)
    return lambda x: x * alpha + beta


@operator("Scale")
def scale(info: KernelInfo, _xp: Any) -> Compute:
    """Scale * X."""
    factor = info.attribute("scale", 1.0)
    return lambda x: x * factor


@operator("ScaledTanh")
def scaled_tanh(info: KernelInfo, xp: Any) -> Compute:
    """Alpha * tanh(beta * X)."""
    alpha, beta = info.attribute("alpha", 1.0), info.attribute("beta", 1.0)
    return lambda x: xp.tanh(x * beta) * alpha


@operator("ParametricSoftplus")
def parametric_softplus(info: KernelInfo, xp: Any) -> Compute:
    """Alpha * log(exp(beta * X) + 1)."""
    alpha, beta = info.attribute("alpha", 1.0), info.attribute("beta", 1.0)
    return lambda x: xp.logaddexp(x * beta, xp.zeros_like(x)) * alpha


@operator("ImageScaler")
def image_scaler(info: KernelInfo, xp: Any) -> Compute:
    """Scale * X + bias, with one bias per channel of NCHW data."""
    factor = info.attribute("scale", 1.0)
    bias = xp.reshape(xp.asarray(list(info.attribute("bias", [])), dtype=xp.dtype(info.input_element_type(0))), (-1, 1, 1))
    return lambda x: x * factor + bias


@operator("Crop")
def crop(info: KernelInfo, xp: Any) -> Compute:
    """NCHW data without ``border`` (left, top, right, bottom), cut to ``scale`` (height, width) if given."""
    left, top, right, bottom = info.attribute("border")
    scale_hw = tuple(info.attribute("scale", None) or ())

    def compute(x: Array) -> Array:
        height, width = (scale_hw or (x.shape[2] - top - bottom, x.shape[3] - left - right))[:2]
        if height < 0 or width < 0 or top + height > x.shape[2] or left + width > x.shape[3]:
            raise InvalidArgument(
                f"{info.describe()}: border {[left, top, right, bottom]} and scale {list(scale_hw)} do not fit X of shape"
                f" {tuple(x.shape)}"
            )
        return xp.asarray(x[:, :, top : top + height, left : left + width], copy=True)

    return compute


@operator("DynamicSlice", moves=True, host_inputs=(1, 2, 3), shape_inputs=(1, 2, 3))
def dynamic_slice(_info: KernelInfo, xp: Any) -> Compute:
    """Elements from ``starts`` up to ``ends`` along ``axes`` (the first ones, if absent)."""

    def compute(data: Array, starts: HostArray, ends: HostArray, axes: HostArray | None = None) -> Array:
        chosen = np.arange(len(starts)) if axes is None else axes
        slices = [slice(None)] * data.ndim
        for axis, start, end in zip(chosen.tolist(), starts.tolist(), ends.tolist(), strict=True):
            slices[axis] = slice(*slice(start, end).indices(data.shape[axis]))
        return xp.asarray(data[tuple(slices)], copy=True)

    return compute


@operator("MeanVarianceNormalization", until=1)
def mean_variance_normalization(info: KernelInfo, xp: Any) -> Compute:
    """Zero mean and, with ``normalize_variance``, unit variance of each channel over the batch, or ``across_channels``."""
    across_channels = bool(info.attribute("across_channels", 0))
    unit_variance = bool(info.attribute("normalize_variance", 1))

    def compute(x: Array) -> Array:
        axes = None if across_channels else (0, *range(2, x.ndim))
        centred = x - xp.mean(x, axis=axes, keepdims=True)
        if not unit_variance:
            return centred
        return centred / xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True))

    return compute
