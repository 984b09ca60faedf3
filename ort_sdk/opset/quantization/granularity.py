"""Scales and zero points laid out against the tensor they belong to: per tensor, per axis or per block."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, InvalidArgument

__all__ = ["Granularity"]


class Granularity:
    """Broadcasts quantization parameters of one node.

    Args:
        xp: array namespace.
        axis: axis a 1-D parameter runs along, or blocks are counted along; may be negative.
        block_size: elements per block along ``axis``; 0 unless quantization is blocked.
        where: description of the node, for messages.
    """

    def __init__(self, xp: Any, axis: int, block_size: int, where: str) -> None:
        self._xp = xp
        self._axis = axis
        self._block_size = block_size
        self._where = where

    def expand(self, parameter: Array, shape: tuple[int, ...]) -> Array:
        """A view (a copy if blocked) of a scale or zero point that broadcasts against a tensor of ``shape``.

        Raises:
            InvalidArgument: the parameter's shape fits no granularity of such a tensor.
        """
        if parameter.ndim == 0:
            return parameter
        if parameter.ndim == 1 and parameter.shape[0] == 1:
            return self._xp.reshape(parameter, ())
        axis = self._normalised_axis(len(shape))
        if self._block_size > 0:
            return self._blocks(parameter, shape, axis)
        if parameter.ndim == 1 and parameter.shape[0] == shape[axis]:
            return self._xp.reshape(parameter, (1,) * axis + (shape[axis],) + (1,) * (len(shape) - axis - 1))
        raise InvalidArgument(
            f"{self._where}: scale or zero point of shape {tuple(parameter.shape)} fits no tensor of shape {shape}; allowed are "
            f"a scalar, a vector of {shape[axis]} (axis {axis}), or blocks with the attribute block_size"
        )

    def _normalised_axis(self, rank: int) -> int:
        if not -rank <= self._axis < max(rank, 1):
            raise InvalidArgument(f"{self._where}: axis {self._axis} is outside a tensor of rank {rank}")
        return self._axis % rank if rank else 0

    def _blocks(self, parameter: Array, shape: tuple[int, ...], axis: int) -> Array:
        blocks = -(-shape[axis] // self._block_size)
        expected = (*shape[:axis], blocks, *shape[axis + 1 :])
        if tuple(parameter.shape) != expected:
            raise InvalidArgument(
                f"{self._where}: scale or zero point has shape {tuple(parameter.shape)}; a tensor of shape {shape} in blocks of "
                f"{self._block_size} along axis {axis} needs {expected}"
            )
        repeated = self._xp.repeat(parameter, min(self._block_size, shape[axis]), axis=axis)
        if repeated.shape[axis] == shape[axis]:
            return repeated
        return repeated[(*(slice(None),) * axis, slice(0, shape[axis]), ...)]
