"""Sequences: make, measure, read, insert into, erase from. A sequence is a list of arrays that is never changed in place."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

Sequence = list[Array]


@operator("SequenceEmpty", shape_inputs=None, any_type=True)
def sequence_empty(info: KernelInfo, xp: Any) -> Compute:
    """A sequence without tensors."""
    return list


@operator("SequenceConstruct", shape_inputs=None, any_type=True)
def sequence_construct(info: KernelInfo, xp: Any) -> Compute:
    """A sequence of copies of the input tensors."""
    asarray = xp.asarray
    return lambda *tensors: [asarray(tensor, copy=True) for tensor in tensors]


@operator("SequenceLength", any_type=True)
def sequence_length(info: KernelInfo, xp: Any) -> Compute:
    """Number of tensors of a sequence, as an int64 scalar."""
    asarray, int64 = xp.asarray, xp.int64
    return lambda sequence: asarray(len(sequence), dtype=int64)


@operator("SequenceAt", shape_inputs=None, host_inputs=(1,), any_type=True, alias=((0, 0),))
def sequence_at(info: KernelInfo, xp: Any) -> Compute:
    """The tensor at a position of a sequence."""

    def compute(sequence: Sequence, position: HostArray) -> Array:
        return sequence[_index(info, position, len(sequence), len(sequence) - 1)]

    return compute


@operator("SequenceErase", shape_inputs=None, host_inputs=(1,), any_type=True, alias=((0, 0),))
def sequence_erase(info: KernelInfo, xp: Any) -> Compute:
    """The sequence without the tensor at a position, the last one by default."""

    def compute(sequence: Sequence, position: HostArray | None = None) -> Sequence:
        count = len(sequence)
        index = _index(info, -1 if position is None else position, count, count - 1)
        return sequence[:index] + sequence[index + 1 :]

    return compute


@operator("SequenceInsert", shape_inputs=None, host_inputs=(2,), any_type=True, alias=((0, 0),))
def sequence_insert(info: KernelInfo, xp: Any) -> Compute:
    """The sequence with a copy of a tensor before a position, at the end by default."""
    asarray = xp.asarray

    def compute(sequence: Sequence, tensor: Array, position: HostArray | None = None) -> Sequence:
        count = len(sequence)
        index = count if position is None else _index(info, position, count, count)
        return [*sequence[:index], asarray(tensor, copy=True), *sequence[index:]]

    return compute


def _index(info: KernelInfo, position: HostArray | int, count: int, last: int) -> int:
    """Position counted from the front.

    Raises:
        InvalidArgument: it is outside [-count, last].
    """
    index = position if isinstance(position, int) else int(position.item())
    if not -count <= index <= last:
        raise InvalidArgument(
            f"{info.describe()}: position {index} is outside the sequence of {count} tensors; allowed is [{-count}, {last}]"
        )
    return index + count if index < 0 else index
