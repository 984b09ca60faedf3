"""Discrete Fourier transforms as products with matrices of cosines and sines, of lengths that are split into factors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.expressions.nodes import Constant

from .movement import concat, flip, moveaxis, permute_dims, reshape
from .products import matmul

__all__ = ["fourier"]

LONGEST_MATRIX = 64
"""Length up to which the transform is one product; longer ones are split if they have factors."""

_Parts = tuple[DeviceArray, DeviceArray]
"""Real and imaginary parts; transforms run along the last axis."""
_Upload = Callable[[HostArray], DeviceArray]


def fourier(parts: DeviceArray, length: int, axis: int, *, inverse: bool, onesided: bool, upload: _Upload) -> DeviceArray:
    """See ``ArrayNamespace.fourier``.

    Args:
        parts: array with its parts along the last axis.
        length: of the transform.
        axis: that is transformed.
        inverse: the inverse transform.
        onesided: give, or take, half a spectrum.
        upload: brings a host array to the device.
    """
    bins, own = length // 2 + 1, parts.element_type
    # in float64 where the device has it: parts of a spectrum that nearly cancel keep their digits
    wide = TensorElementType.DOUBLE if parts.context.device.has_float64 else own
    signal = moveaxis(arithmetic.cast(parts, wide), axis, -1)
    signal = _of_length(signal, bins if onesided and inverse else length)
    real = signal[..., 0, :]
    imaginary = signal[..., 1, :] if parts.shape[-1] == 2 else real.made(Constant(0.0, real.shape, real.element_type))
    if onesided and inverse:
        real, imaginary = _mirrored(real, 1, length), _mirrored(imaginary, -1, length)
    real, imaginary = _transformed((real, imaginary), -1 if not inverse else 1, upload)
    if inverse:
        real, imaginary = real / length, imaginary / length
    if onesided and not inverse:
        real, imaginary = real[..., :bins], imaginary[..., :bins]
    wanted = [real] if onesided and inverse else [real, imaginary]
    return concat([moveaxis(arithmetic.cast(each, own), -1, axis)[..., None] for each in wanted], axis=-1)


def _of_length(x: DeviceArray, length: int) -> DeviceArray:
    """The last axis cut, or filled up with zeros."""
    missing = length - x.shape[-1]
    if missing <= 0:
        return x[..., :length]
    return concat([x, x.made(Constant(0.0, (*x.shape[:-1], missing), x.element_type))], axis=-1)


def _mirrored(half: DeviceArray, sign: int, length: int) -> DeviceArray:
    """A part of the whole spectrum of a real signal."""
    mirrored = flip(half[..., 1 : (length + 1) // 2], axis=-1)
    return concat([half, mirrored if sign > 0 else -mirrored], axis=-1)


def _transformed(parts: _Parts, sign: int, upload: _Upload) -> _Parts:
    length = parts[0].shape[-1]
    first = next((size for size in range(math.isqrt(length), 1, -1) if length % size == 0), 1)
    if length <= LONGEST_MATRIX or first == 1:
        return _product(parts, _angles(length, length, length, sign), upload, matmul)
    second, lead = length // first, parts[0].shape[:-1]
    rank = len(lead)
    order = [*range(rank), rank + 1, rank]
    # element second * n + m of the signal: along n first, then, times the twiddle factors, along m
    columns = tuple(permute_dims(reshape(each, (*lead, first, second)), order) for each in parts)
    rotated = _product(_transformed((columns[0], columns[1]), sign, upload), _angles(second, first, length, sign), upload, _times)
    rows = tuple(permute_dims(each, order) for each in rotated)
    real, imaginary = _transformed((rows[0], rows[1]), sign, upload)
    return tuple(reshape(permute_dims(each, order), (*lead, length)) for each in (real, imaginary))  # type: ignore[return-value]


def _times(a: DeviceArray, b: DeviceArray) -> DeviceArray:
    return a * b


def _product(parts: _Parts, angles: HostArray, upload: _Upload, multiply: Callable[[Any, Any], Any]) -> _Parts:
    """The product with the complex numbers of absolute value 1 at these angles."""
    real, imaginary = parts
    cosines, sines = (upload(function(angles).astype(real.dtype)) for function in (np.cos, np.sin))
    return (
        multiply(real, cosines) - multiply(imaginary, sines),
        multiply(real, sines) + multiply(imaginary, cosines),
    )


@functools.lru_cache(maxsize=16)
def _angles(rows: int, columns: int, length: int, sign: int) -> HostArray:
    """``2 pi row column / length``, (rows, columns)."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    return sign * 2 * np.pi / length * turns
