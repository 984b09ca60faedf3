"""Pad: the input is copied to the middle of the output, then each border, from the output's own elements or one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.tensor.pad import PAD_SOURCES, pad_pairs
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer

__all__: list[str] = []

_PADS, _VALUE, _AXES = 1, 2, 3
_WITH_INPUTS = 11
"""Opset from which pads are an input, whose contents a program knows."""

Indices = tuple[Any, ...]
Border = tuple[Indices, Indices | None]
"""Indices of the output that are written, and those that they are read from; None for the padding value."""


@bindable("Pad", any_type=True)
def pad(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Elements added around the input, or cut from it."""
    mode = info.attribute("mode", "constant")
    if info.since_version == 1 or (mode != "constant" and mode not in PAD_SOURCES):
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, pairs = inputs[0], _pairs(info, inputs)
        kept = tuple(slice(max(-before, 0), size - max(-after, 0)) for (before, after), size in zip(pairs, x.shape, strict=True))
        sizes = [own.stop - own.start for own in kept]
        if x.size == 0 or min(sizes, default=1) <= 0:
            return copying_writer(compute)
        added = [(max(before, 0), max(after, 0)) for before, after in pairs]
        interior = tuple(slice(before, before + size) for (before, _), size in zip(added, sizes, strict=True))
        return _writer(kept, interior, list(_borders(added, sizes, mode)), info.attribute("value", 0.0))

    return make


def _pairs(info: KernelInfo, inputs: Sequence[Any]) -> list[tuple[int, int]]:
    """Elements added before and after, for each axis."""
    rank = inputs[0].ndim
    if info.since_version < _WITH_INPUTS:
        return list(pad_pairs(info, info.attribute("pads"), None, rank))
    axes = inputs[_AXES] if len(inputs) > _AXES else None
    return list(pad_pairs(info, inputs[_PADS].reshape(-1).tolist(), None if axes is None else axes.tolist(), rank))


def _writer(kept: Indices, interior: Indices, borders: Sequence[Border], default: float) -> Writer:
    def pairs(x: HostArray, *others: Any) -> list[tuple[HostArray, HostArray]]:
        out = others[-1]
        found = [(out[(*interior, ...)], x[(*kept, ...)])]
        for target, source in borders:
            border = out[target]
            found.append((border, np.broadcast_to(_value(others, default) if source is None else out[source], border.shape)))
        return found

    return CopyWriter(pairs)


def _value(others: Sequence[Any], default: float) -> HostArray:
    """The constant among pads, value, axes and output; the default if there is none."""
    value: HostArray | None = others[_VALUE - 1] if len(others) > _VALUE else None
    return np.array(default).astype(others[-1].dtype) if value is None or value.size == 0 else value.reshape(())


def _borders(pairs: Sequence[tuple[int, int]], shape: Sequence[int], mode: str) -> Iterator[Border]:
    """The borders of one axis after another: each includes those of the axes before it."""
    done: list[slice] = []
    left = [slice(before, before + size) for (before, _), size in zip(pairs, shape, strict=True)]
    sources = PAD_SOURCES.get(mode)
    for axis, ((before, after), size) in enumerate(zip(pairs, shape, strict=True)):
        for start, stop in ((0, before), (before + size, before + size + after)):
            around = (done, left[axis + 1 :])
            if sources is None and start < stop:
                yield _at(around, slice(start, stop)), None
            elif sources is not None and start < stop:
                for target, source in _runs(start, before + sources(np.arange(start, stop) - before, size)):
                    yield _at(around, target), _at(around, source)
        done.append(slice(None))


def _at(around: tuple[list[slice], list[slice]], border: Any) -> Indices:
    return (*around[0], border, *around[1])


def _runs(start: int, positions: HostArray) -> Iterator[tuple[slice, slice]]:
    """Slices of a border, and the slices that they are read from: neighbouring positions, in either direction, are one slice.

    A position that is repeated is a slice of one element, which is broadcast.
    """
    while len(positions):
        first, step = int(positions[0]), int(positions[1] - positions[0]) if len(positions) > 1 else 1
        step = step if step in {1, 0, -1} else 1
        is_other = positions != first + step * np.arange(len(positions))
        count = int(is_other.argmax()) if is_other.any() else len(positions)
        stop = first + step * count if step else first + 1
        yield slice(start, start + count), slice(first, None if stop < 0 else stop, step or 1)
        start, positions = start + count, positions[count:]
