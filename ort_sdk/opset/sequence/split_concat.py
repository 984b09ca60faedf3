"""From a tensor to a sequence and back."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator


@operator("SplitToSequence", shape_inputs=None, host_inputs=(1,), any_type=True)
def split_to_sequence(info: KernelInfo, xp: Any) -> Compute:
    """Pieces of a tensor along an axis, as a sequence of copies.

    ``split`` is the size of every piece but a shorter last one (a scalar), or the size of each piece (a vector). Without
    it the pieces have size 1 and lose the axis if ``keepdims`` is 0.
    """
    axis_attribute = info.attribute("axis", 0)
    keep_axis = bool(info.attribute("keepdims", 1))
    asarray = xp.asarray

    def compute(x: Array, split: HostArray | None = None) -> list[Array]:
        axis = _axis(info, axis_attribute, x.ndim)
        before = (slice(None),) * axis
        if split is None and not keep_axis:
            return [asarray(x[(*before, index, ...)], copy=True) for index in range(x.shape[axis])]
        sizes = _piece_sizes(info, split, x.shape[axis])
        bounds = pairwise(accumulate(sizes, initial=0))
        return [asarray(x[(*before, slice(start, end), ...)], copy=True) for start, end in bounds]

    return compute


@operator("ConcatFromSequence", shape_inputs=None, any_type=True)
def concat_from_sequence(info: KernelInfo, xp: Any) -> Compute:
    """The tensors of a sequence joined along an axis, a new one if ``new_axis`` is 1."""
    axis_attribute = info.attribute("axis")
    join = xp.stack if info.attribute("new_axis", 0) else xp.concat
    extra = 1 if info.attribute("new_axis", 0) else 0

    def compute(sequence: list[Array]) -> Array:
        if not sequence:
            raise InvalidArgument(f"{info.describe()}: an empty sequence cannot be concatenated; it needs at least one tensor")
        axis = _axis(info, axis_attribute, sequence[0].ndim + extra)
        try:
            return join(sequence, axis=axis)
        except ValueError as error:
            shapes = [tuple(tensor.shape) for tensor in sequence]
            raise InvalidArgument(
                f"{info.describe()}: tensors of shapes {shapes} cannot be joined along axis {axis}; "
                + ("their shapes must be equal" if extra else "only that dimension may differ")
            ) from error

    return compute


def _axis(info: KernelInfo, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InvalidArgument(f"{info.describe()}: axis {axis} is outside [{-rank}, {rank - 1}] for rank {rank}")
    return axis % rank


def _piece_sizes(info: KernelInfo, split: HostArray | None, length: int) -> list[int]:
    """Sizes of the pieces; they add up to ``length``.

    Raises:
        InvalidArgument: a size is not allowed, or the sizes do not add up.
    """
    if split is None:
        return [1] * length
    if split.ndim == 0:
        size = int(split)
        if size <= 0:
            raise InvalidArgument(f"{info.describe()}: split size {size} must be positive")
        return [min(size, length - start) for start in range(0, length, size)]
    sizes: list[int] = split.tolist()
    if split.ndim != 1 or any(size < 0 for size in sizes) or sum(sizes) != length:
        raise InvalidArgument(
            f"{info.describe()}: split {sizes} must be a vector of sizes >= 0 that add up to {length}, the size of the axis"
        )
    return sizes
