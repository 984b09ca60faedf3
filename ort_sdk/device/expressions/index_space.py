"""Index spaces: the axes that a kernel goes through, merged where all arrays allow it."""

from __future__ import annotations

from collections.abc import Sequence

from .nodes import Strided

__all__ = ["broadcast_strides", "decoded", "merged_axes"]


def broadcast_strides(array: Strided, shape: Sequence[int]) -> list[int]:
    """Strides that read an array as one of a shape it broadcasts to."""
    missing = len(shape) - len(array.shape)
    own = [0 if size == 1 else stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return [0] * missing + own


def merged_axes(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """As few axes as describe the same elements in the same order.

    Args:
        shape: sizes of the axes.
        strides: of each array, for each axis.

    Returns:
        (sizes of the merged axes, strides of each array for them); an axis of one element where there is none.
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = [own[axis] for own in strides]
        if sizes and all(own[-1] == step * size for own, step in zip(merged, steps, strict=True)):
            sizes[-1] *= size
            for own, step in zip(merged, steps, strict=True):
                own[-1] = step
        else:
            sizes.append(size)
            for own, step in zip(merged, steps, strict=True):
                own.append(step)
    if not sizes:
        return [1], [[0] for _ in strides]
    return sizes, merged


def decoded(flat: str, names: Sequence[str], sizes: Sequence[str]) -> list[str]:
    """Statements that make the index along each axis of a flat index.

    Args:
        flat: text of the flat index.
        names: of the variables, one for each axis.
        sizes: texts of the axes' sizes; that of the first one is not looked at.
    """
    lines, rest = [], flat
    for axis in range(len(names) - 1, 0, -1):
        lines.append(f"index_t {names[axis]} = ({rest}) % {sizes[axis]};")
        rest = f"({rest}) / {sizes[axis]}"
    return [*lines, f"index_t {names[0]} = {rest};"]
