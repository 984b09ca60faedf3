"""DFT and STFT. The last dimension holds (real,) or (real, imaginary) parts."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import require_size

__all__: list[str] = []

_COMPLEX_BYTES = 16


def _scalar(value: HostArray | None) -> int | None:
    return None if value is None else int(value.reshape(()))


def _check_parts(x: Array, info: KernelInfo) -> None:
    if len(x.shape) < 2 or x.shape[-1] not in {1, 2}:
        raise InvalidArgument(
            f"{info.describe()}: the last of at least two dimensions must hold 1 (real) or 2 (complex) parts; "
            f"the input's shape is {tuple(x.shape)}"
        )


def _check_complex(x: Array, info: KernelInfo) -> None:
    if x.shape[-1] != 2:
        raise InvalidArgument(f"{info.describe()}: a one-sided inverse needs complex input; the last dimension holds 1 part")


def _signal_axis(axis: int, rank: int, info: KernelInfo) -> int:
    if not -rank <= axis < rank - 1 or axis == -1:
        raise InvalidArgument(f"{info.describe()}: axis {axis} is outside [{-rank}, -2] and [0, {rank - 2}]")
    return axis + rank if axis < 0 else axis


@operator("DFT", until=17, host_inputs=(1,), shape_inputs=(1,))
def dft_along_attribute(info: KernelInfo, xp: Any) -> Compute:
    """Discrete Fourier transform along attribute ``axis``."""
    axis, transform = info.attribute("axis", 1), _transform(info, xp)
    return lambda x, dft_length=None: transform(x, _scalar(dft_length), axis)


@operator("DFT", since=20, host_inputs=(1, 2), shape_inputs=(1, 2))
def dft(info: KernelInfo, xp: Any) -> Compute:
    """Discrete Fourier transform along the axis input, the last signal dimension by default."""
    transform = _transform(info, xp)

    def compute(x: Array, dft_length: HostArray | None = None, axis: HostArray | None = None) -> Array:
        return transform(x, _scalar(dft_length), -2 if axis is None else _scalar(axis))

    return compute


def _transform(info: KernelInfo, xp: Any) -> Compute:
    inverse, onesided = bool(info.attribute("inverse", 0)), bool(info.attribute("onesided", 0))
    to_real = inverse and onesided

    def compute(x: Array, length: int | None, axis: int) -> Array:
        _check_parts(x, info)
        along = _signal_axis(axis, len(x.shape), info)
        if length is None:
            length = 2 * (x.shape[along] - 1) if to_real else x.shape[along]
        if length < 1:
            raise InvalidArgument(f"{info.describe()}: the transform's length must be positive; it is {length}")
        require_size(info.describe(), (*x.shape[:along], length, *x.shape[along + 1 : -1]), _COMPLEX_BYTES)
        if to_real:
            _check_complex(x, info)
        elif onesided and x.shape[-1] == 2:
            raise InvalidArgument(f"{info.describe()}: a one-sided spectrum needs real input; the last dimension holds 2 parts")
        return xp.fourier(x, length, along, inverse=inverse, onesided=onesided)

    return compute


@operator("STFT", host_inputs=(1, 3), shape_inputs=(1, 3))
def stft(info: KernelInfo, xp: Any) -> Compute:
    """Spectra of windowed frames of a signal (batch, length, parts), as (batch, frames, bins, 2).

    A complex signal may be asked for one side of its spectrum too, and a real signal may come without its last dimension,
    both as in ONNX Runtime.
    """
    onesided = bool(info.attribute("onesided", 1))

    def compute(
        signal: Array, frame_step: HostArray, window: Array | None = None, frame_length: HostArray | None = None
    ) -> Array:
        if len(signal.shape) == 2:
            signal = signal[..., None]
        _check_parts(signal, info)
        length, step = _frame_length(signal, window, _scalar(frame_length), info), int(frame_step.reshape(()))
        count = (signal.shape[1] - length) // step + 1 if step > 0 and 0 < length <= signal.shape[1] else 0
        if count < 1:
            raise InvalidArgument(
                f"{info.describe()}: no frame of {length} samples, {step} apart, fits into a signal of {signal.shape[1]}"
            )
        frames = xp.frames(signal, length, step, count)
        if window is not None:
            frames = frames * window[:, None]
        return xp.fourier(frames, length, 2, onesided=onesided)

    return compute


def _frame_length(signal: Array, window: Array | None, given: int | None, info: KernelInfo) -> int:
    if window is None:
        return signal.shape[1] if given is None else given
    if given is not None and given != window.shape[0]:
        raise InvalidArgument(f"{info.describe()}: frame_length is {given} and the window has {window.shape[0]} samples")
    return int(window.shape[0])
