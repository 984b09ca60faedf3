"""Pad: the input copied into its place, then each border, from the input's own elements or one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.tensor.pad import PAD_SOURCES, pad_pairs

from .bindable import MakeWriter, Writer, bindable
from .copies import CopyWriter

__all__: list[str] = []

_PADS, _VALUE, _AXES = 1, 2, 3
_WITH_INPUTS = 11
"""Opset from which pads are an input, whose contents programs know."""

Place = tuple[Any, ...]
Border = tuple[Place, Place | None]
"""Where elements are written in the output, and where in the output they are read; None is the value given."""


@bindable("Pad", any_type=True)
def pad(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Elements added around the input; where some are cut off, the shared set does it."""
    mode = info.attribute("mode", "constant")
    if info.since_version < _WITH_INPUTS or (mode != "constant" and mode not in PAD_SOURCES):
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, axes = inputs[0], inputs[_AXES] if len(inputs) > _AXES else None
        pairs = pad_pairs(info, inputs[_PADS].reshape(-1).tolist(), None if axes is None else axes.tolist(), x.ndim)
        if x.size == 0 or min(min(pair) for pair in [*pairs, (0, 0)]) < 0:
            return lambda *arrays: np.copyto(arrays[-1], compute(*arrays[:-1]))
        middle = tuple(slice(before, before + size) for (before, _), size in zip(pairs, x.shape, strict=True))
        return _writer(middle, list(_borders(pairs, x.shape, mode)))

    return make


def _writer(middle: Place, borders: Sequence[Border]) -> Writer:
    def pairs(x: HostArray, *others: Any) -> list[tuple[HostArray, HostArray]]:
        out = others[-1]
        found = [(out[(*middle, ...)], x)]
        for target, source in borders:
            place = out[target]
            found.append((place, np.broadcast_to(_value(others), place.shape) if source is None else out[source]))
        return found

    return CopyWriter(pairs)


def _value(others: Sequence[Any]) -> HostArray:
    """The constant among pads, value, axes and output; 0 if there is none."""
    value: HostArray | None = others[_VALUE - 1] if len(others) > _VALUE else None
    return np.zeros((), others[-1].dtype) if value is None or value.size == 0 else value.reshape(())


def _borders(pairs: Sequence[tuple[int, int]], shape: Sequence[int], mode: str) -> Iterator[Border]:
    """One axis after another: each takes what the axes before it have written, too."""
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


def _at(around: tuple[list[slice], list[slice]], place: Any) -> Place:
    return (*around[0], place, *around[1])


def _runs(start: int, positions: HostArray) -> Iterator[tuple[slice, slice]]:
    """Pieces of a border, and where each is read: neighbouring positions, upwards or downwards, are read in one piece."""
    while len(positions):
        first, step = int(positions[0]), int(positions[1] - positions[0]) if len(positions) > 1 else 1
        step = step if step in {1, -1} else 1
        expected = np.arange(first, first + step * len(positions), step)
        is_other = positions != expected
        count = int(is_other.argmax()) if is_other.any() else len(positions)
        stop = first + step * count
        yield slice(start, start + count), slice(first, None if stop < 0 else stop, step)
        start, positions = start + count, positions[count:]
