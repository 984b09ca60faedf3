"""From a tensor to a sequence and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from ort_sdk.api import Array, HostArray, InvalidArgument, KernelInfo, OpKernel
from ort_sdk.api.step_expansion import ExpandingProgram
from ort_sdk.opset.controlflow.expanding import concatenated, piece, stacked_values
from ort_sdk.opset.definition import operator


@operator("SplitToSequence", shape_inputs=(1,), host_inputs=(1,), any_type=True)
class SplitToSequence(OpKernel):
    """Pieces of a tensor along an axis, as a sequence of copies.

    ``split`` is the size of every piece but a shorter last one (a scalar), or the size of each piece (a vector). Without
    it the pieces have size 1 and lose the axis if ``keepdims`` is 0.
    """

    deterministic = True
    shape_inputs = (1,)

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        self._info = info
        self._xp = xp
        self._axis = info.attribute("axis", 0)
        self._keeps_axis = bool(info.attribute("keepdims", 1))

    def compute(self, x: Array, split: HostArray | None = None) -> list[Array]:
        axis, indices = self._axis_and_indices(x, split)
        before = (slice(None),) * axis
        return [self._xp.asarray(x[(*before, index, ...)], copy=True) for index in indices]

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> list[int] | None:
        """The pieces without a sequence."""
        if not program.abstract_value(inputs[0]).shape_known or not all(
            program.abstract_value(value).value_known for value in inputs[1:]
        ):
            return None
        axis, indices = self._axis_and_indices(*map(program.value, inputs))
        return [program.make_sequence([piece(program, inputs[0], axis, index) for index in indices])]

    def _axis_and_indices(self, x: Array, split: HostArray | None = None) -> tuple[int, list[Any]]:
        """The axis, and what each piece has of it."""
        axis = _axis(self._info, self._axis, x.ndim)
        if split is None and not self._keeps_axis:
            return axis, list(range(x.shape[axis]))
        bounds = pairwise(accumulate(_piece_sizes(self._info, split, x.shape[axis]), initial=0))
        return axis, [slice(start, end) for start, end in bounds]


@operator("ConcatFromSequence", any_type=True)
class ConcatFromSequence(OpKernel):
    """The tensors of a sequence joined along an axis, a new one if ``new_axis`` is 1."""

    deterministic = True
    shape_inputs = ()

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        self._info = info
        self._xp = xp
        self._axis = info.attribute("axis")
        self._is_new = bool(info.attribute("new_axis", 0))

    def compute(self, sequence: list[Array]) -> Array:
        axis = self._checked_axis(sequence)
        try:
            return (self._xp.stack if self._is_new else self._xp.concat)(sequence, axis=axis)
        except ValueError as error:
            shapes = [tuple(tensor.shape) for tensor in sequence]
            raise InvalidArgument(
                f"{self._info.describe()}: tensors of shapes {shapes} cannot be joined along axis {axis}; "
                + ("their shapes must be equal" if self._is_new else "only that dimension may differ")
            ) from error

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> list[int] | None:
        """The tensors joined without a sequence."""
        tensors = program.sequence(inputs[0])
        if tensors is None:
            return None
        arrays = program.value(inputs[0])
        self.compute(arrays)  # Raises for shapes that do not fit.
        join = stacked_values if self._is_new else concatenated
        return [join(program, self._info, self._xp, tensors, self._checked_axis(arrays))]

    def _checked_axis(self, sequence: list[Array]) -> int:
        if not sequence:
            raise InvalidArgument(
                f"{self._info.describe()}: an empty sequence cannot be concatenated; it needs at least one tensor"
            )
        return _axis(self._info, self._axis, sequence[0].ndim + self._is_new)


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
