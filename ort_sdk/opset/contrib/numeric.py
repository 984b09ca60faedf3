"""CDist, complex products, Inverse, Rfft and Irfft."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

__all__ = ["cdist", "complex_mul", "inverse", "irfft", "rfft"]

MICROSOFT = "com.microsoft"


@operator("CDist", domain=MICROSOFT)
def cdist(info: KernelInfo, xp: Any) -> Compute:
    """Distance of each row of A to each row of B: ``sqeuclidean`` or ``euclidean``."""
    metric = info.attribute("metric", "sqeuclidean")
    if metric not in {"sqeuclidean", "euclidean"}:
        raise InvalidArgument(f"{info.describe()}: metric is '{metric}'; it must be 'sqeuclidean' or 'euclidean'")

    def compute(a: Array, b: Array) -> Array:
        # Distances of near rows are small differences of large numbers.
        dtype, a, b = a.dtype, xp.astype(a, TensorElementType.DOUBLE), xp.astype(b, TensorElementType.DOUBLE)
        squares = xp.sum(a * a, axis=1, keepdims=True) + xp.sum(b * b, axis=1)
        distances = xp.maximum(squares - 2 * xp.matmul(a, b.T), xp.zeros_like(squares))
        found = xp.sqrt(distances) if metric == "euclidean" else distances
        return found if dtype == found.dtype else xp.astype(found, TensorElementType.FLOAT)

    return compute


def _complex_product(xp: Any, sign: float) -> Compute:
    def compute(a: Array, b: Array) -> Array:
        a_real, a_imaginary, b_real, b_imaginary = a[..., 0], a[..., 1], b[..., 0], b[..., 1] * sign
        real = a_real * b_real - a_imaginary * b_imaginary
        return xp.stack([real, a_real * b_imaginary + a_imaginary * b_real], axis=-1)

    return compute


@operator("ComplexMul", domain=MICROSOFT)
def complex_mul(_info: KernelInfo, xp: Any) -> Compute:
    """Products of complex numbers, whose real and imaginary parts are along the last axis."""
    return _complex_product(xp, 1.0)


@operator("ComplexMulConj", domain=MICROSOFT)
def complex_mul_conj(_info: KernelInfo, xp: Any) -> Compute:
    """Products of A with the conjugate of B."""
    return _complex_product(xp, -1.0)


@operator("Inverse", domain=MICROSOFT)
def inverse(_info: KernelInfo, xp: Any) -> Compute:
    """Inverses of square matrices."""
    function: Compute = xp.linalg.inv
    return function


def _check_fourier(info: KernelInfo) -> None:
    if info.attribute("normalized", 0) or not info.attribute("onesided", 1) or info.attribute("signal_ndim", 1) not in {1, 2}:
        raise InvalidArgument(
            f"{info.describe()}: normalized must be 0, onesided 1 and signal_ndim 1 or 2; they are "
            f"{info.attribute('normalized', 0)}, {info.attribute('onesided', 1)} and {info.attribute('signal_ndim', 1)}"
        )


@operator("Rfft", domain=MICROSOFT)
def rfft(info: KernelInfo, xp: Any) -> Compute:
    """Fourier transform of real data over the last ``signal_ndim`` axes, with the parts along a new last axis."""
    _check_fourier(info)
    others = range(2, info.attribute("signal_ndim", 1) + 1)

    def compute(x: Array) -> Array:
        parts = xp.fourier(x[..., None], x.shape[-1], x.ndim - 1, onesided=True)
        for back in others:
            parts = xp.fourier(parts, x.shape[-back], x.ndim - back)
        return parts

    return compute


@operator("Irfft", domain=MICROSOFT)
def irfft(info: KernelInfo, xp: Any) -> Compute:
    """Inverse of Rfft, of even length."""
    _check_fourier(info)
    others = range(2, info.attribute("signal_ndim", 1) + 1)

    def compute(x: Array) -> Array:
        rank = x.ndim - 1
        for back in reversed(others):
            x = xp.fourier(x, x.shape[rank - back], rank - back, inverse=True)
        return xp.fourier(x, 2 * (x.shape[-2] - 1), rank - 1, inverse=True, onesided=True)[..., 0]

    return compute
