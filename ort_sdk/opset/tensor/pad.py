"""Pad and CenterCropPad: elements added around, or cut from, a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import item_bytes, require_size

from .common import fill_array, normalize_axes

__all__ = ["PAD_SOURCES", "center_crop_pad", "pad", "pad_1", "pad_pairs"]

_Pads = Sequence[tuple[int, int]]
"""(elements before, elements after) for each axis; negative numbers cut."""


def _reflect(positions: HostArray, size: int) -> HostArray:
    period = max(2 * (size - 1), 1)
    folded = positions % period
    return np.minimum(folded, period - folded) if size > 1 else np.zeros_like(positions)


PAD_SOURCES: dict[str, Callable[[HostArray, int], HostArray]] = {
    "reflect": _reflect,
    "edge": lambda positions, size: np.clip(positions, 0, size - 1),
    "wrap": lambda positions, size: positions % size,
}
"""Mode → (positions relative to the kept part, its size) → where each is read."""


def _cropped(info: KernelInfo, x: Array, pads: _Pads) -> Array:
    """The part that negative pads leave."""
    if all(before >= 0 and after >= 0 for before, after in pads):
        return x
    bounds = [(max(-before, 0), size - max(-after, 0)) for (before, after), size in zip(pads, x.shape, strict=True)]
    if any(begin > end or end < 0 for begin, end in bounds):
        raise InvalidArgument(f"{info.describe()}: pads {list(pads)} cut more than there is of {tuple(x.shape)}")
    return x[tuple(slice(begin, end) for begin, end in bounds)]


def _pad_constant(xp: Any, x: Array, pads: _Pads, value: HostArray | None) -> Array:
    shape = [before + size + after for (before, after), size in zip(pads, x.shape, strict=True)]
    output = fill_array(xp, shape, value, x.dtype)
    output[tuple(slice(before, before + size) for (before, _), size in zip(pads, x.shape, strict=True))] = x
    return output


def _pad_gather(info: KernelInfo, xp: Any, x: Array, pads: _Pads, mode: str) -> Array:
    padded = x
    for axis, (before, after) in enumerate(pads):
        size = x.shape[axis]
        if before == after == 0:
            continue
        if size == 0:
            raise InvalidArgument(f"{info.describe()}: mode '{mode}' cannot pad axis {axis} of {tuple(x.shape)}, which is empty")
        sources = PAD_SOURCES[mode](np.arange(-before, size + after), size)
        padded = xp.gather(padded, xp.from_host(sources), axis)
    return xp.asarray(x, copy=True) if padded is x else padded


def _padder(info: KernelInfo, xp: Any, mode: str) -> Callable[[Array, _Pads, HostArray | None], Array]:
    if mode != "constant" and mode not in PAD_SOURCES:
        raise InvalidArgument(f"{info.describe()}: mode is '{mode}'; it must be constant, {', '.join(PAD_SOURCES)}")

    def run(x: Array, pads: _Pads, value: HostArray | None) -> Array:
        kept = _cropped(info, x, pads)
        added = [(max(before, 0), max(after, 0)) for before, after in pads]
        sizes = (before + size + after for (before, after), size in zip(added, kept.shape, strict=True))
        require_size(info.describe(), sizes, item_bytes(x.dtype))
        return _pad_constant(xp, kept, added, value) if mode == "constant" else _pad_gather(info, xp, kept, added, mode)

    return run


def pad_pairs(info: KernelInfo, flat: Sequence[int], axes: Sequence[int] | None, rank: int) -> _Pads:
    """ONNX's [begins..., ends...] for some axes, as pairs for all of them."""
    chosen = range(rank) if axes is None else normalize_axes(info, axes, rank)
    count = len(chosen)
    if len(flat) != 2 * count:
        raise InvalidArgument(f"{info.describe()}: pads {list(flat)} must hold two numbers for each of {count} axes")
    pads = [(0, 0)] * rank
    for axis, before, after in zip(chosen, flat[:count], flat[count:], strict=True):
        pads[axis] = (before, after)
    return pads


@operator("Pad", until=2, moves=True)
def pad_1(info: KernelInfo, xp: Any) -> Compute:
    """The input with elements added, or cut, as the attributes say."""
    run = _padder(info, xp, info.attribute("mode", "constant"))
    flat = info.attribute("paddings" if info.since_version == 1 else "pads")
    value = np.array(info.attribute("value", 0.0))
    return lambda x: run(x, pad_pairs(info, flat, None, x.ndim), value)


@operator("Pad", since=11, moves=True, shape_inputs=(1, 3), host_inputs=(1, 2, 3))
def pad(info: KernelInfo, xp: Any) -> Compute:
    """The input with elements added (a constant, its reflection, its edge, or itself again), or cut, along ``axes``."""
    run = _padder(info, xp, info.attribute("mode", "constant"))

    def compute(x: Array, pads: HostArray, constant_value: HostArray | None = None, axes: HostArray | None = None) -> Array:
        pairs = pad_pairs(info, pads.reshape(-1).tolist(), None if axes is None else axes.tolist(), x.ndim)
        return run(x, pairs, None if constant_value is None or constant_value.size == 0 else constant_value)

    return compute


@operator("CenterCropPad", moves=True, shape_inputs=(1,), host_inputs=(1,))
def center_crop_pad(info: KernelInfo, xp: Any) -> Compute:
    """The middle of the input, or the input in the middle of zeros, in the wanted size along ``axes``."""
    run = _padder(info, xp, "constant")
    axes = info.attribute("axes", None)

    def compute(x: Array, shape: HostArray) -> Array:
        chosen = range(x.ndim) if axes is None else normalize_axes(info, axes, x.ndim)
        if shape.size != len(chosen):
            raise InvalidArgument(f"{info.describe()}: shape {shape.tolist()} must hold one size for each of axes {list(chosen)}")
        pads = [(0, 0)] * x.ndim
        for axis, wanted in zip(chosen, shape.tolist(), strict=True):
            more = wanted - x.shape[axis]
            before = more // 2 if more >= 0 else -(-more // 2)
            pads[axis] = (before, more - before)
        return run(x, pads, None)

    return compute
