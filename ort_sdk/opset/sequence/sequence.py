"""Sequences: make, measure, read, insert into, erase from. A sequence is a list of arrays that is never changed in place."""

from __future__ import annotations

from collections.abc import Sequence as Numbers
from typing import Any

from ort_sdk.api import Array, HostArray, InvalidArgument, KernelInfo, OpKernel
from ort_sdk.api.step_expansion import ExpandingProgram
from ort_sdk.opset.definition import operator

Sequence = list[Array]


class _SequenceKernel(OpKernel):
    """One that a program needs no step for where the sequence's structure is known: its ``shape`` is that."""

    deterministic = True
    shape_inputs: tuple[int, ...] | None = ()

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        self.info = info
        self.xp = xp

    def index_of(self, position: HostArray | None, count: int, last: int, default: int) -> int:
        """Position counted from the front.

        Raises:
            InvalidArgument: it is outside [-count, last].
        """
        index = default if position is None else int(position.item())
        if not -count <= index <= last:
            raise InvalidArgument(
                f"{self.info.describe()}: position {index} is outside the sequence of {count} tensors; "
                f"allowed is [{-count}, {last}]"
            )
        return index + count if index < 0 else index

    def knows_position(self, program: ExpandingProgram, inputs: Numbers[int], index: int) -> bool:
        """Whether an input's position is known, or absent."""
        return index >= len(inputs) or program.abstract_value(inputs[index]).value_known


@operator("SequenceEmpty", shape_inputs=None, any_type=True)
class SequenceEmpty(_SequenceKernel):
    """A sequence without tensors."""

    def compute(self) -> Sequence:
        return []

    def expand(self, program: ExpandingProgram, inputs: Numbers[int]) -> list[int]:
        """No tensor."""
        return [program.make_sequence(())]


@operator("SequenceConstruct", shape_inputs=(), any_type=True)
class SequenceConstruct(_SequenceKernel):
    """A sequence of copies of the input tensors."""

    def compute(self, *tensors: Array) -> Sequence:
        return [self.xp.asarray(tensor, copy=True) for tensor in tensors]

    def expand(self, program: ExpandingProgram, inputs: Numbers[int]) -> list[int]:
        """The tensors."""
        return [program.make_sequence(inputs)]


@operator("SequenceLength", contents_from_shapes=True, any_type=True)
class SequenceLength(_SequenceKernel):
    """Number of tensors of a sequence, as an int64 scalar."""

    contents_from_shapes = True

    def compute(self, sequence: Sequence) -> Array:
        return self.xp.asarray(len(sequence), dtype=self.xp.int64)

    def expand(self, program: ExpandingProgram, inputs: Numbers[int]) -> list[int] | None:
        """The number, where it is known."""
        tensors = program.sequence(inputs[0])
        return None if tensors is None else [program.constant(self.compute(list(tensors)))]


@operator("SequenceAt", shape_inputs=(1,), host_inputs=(1,), any_type=True, alias=((0, 0),))
class SequenceAt(_SequenceKernel):
    """The tensor at a position of a sequence."""

    shape_inputs = (1,)

    def compute(self, sequence: Sequence, position: HostArray) -> Array:
        return sequence[self.index_of(position, len(sequence), len(sequence) - 1, -1)]

    def expand(self, program: ExpandingProgram, inputs: Numbers[int]) -> list[int] | None:
        """The tensor, where it is known which."""
        tensors = program.sequence(inputs[0])
        if tensors is None or not self.knows_position(program, inputs, 1):
            return None
        return [self.compute(list(tensors), program.value(inputs[1]))]


@operator("SequenceErase", shape_inputs=(1,), host_inputs=(1,), any_type=True, alias=((0, 0),))
class SequenceErase(_SequenceKernel):
    """The sequence without the tensor at a position, the last one by default."""

    shape_inputs = (1,)

    def compute(self, sequence: Sequence, position: HostArray | None = None) -> Sequence:
        index = self.index_of(position, len(sequence), len(sequence) - 1, -1)
        return sequence[:index] + sequence[index + 1 :]

    def expand(self, program: ExpandingProgram, inputs: Numbers[int]) -> list[int] | None:
        """The others, where it is known which."""
        tensors = program.sequence(inputs[0])
        if tensors is None or not self.knows_position(program, inputs, 1):
            return None
        return [program.make_sequence(self.compute(list(tensors), *map(program.value, inputs[1:])))]


@operator("SequenceInsert", shape_inputs=(2,), host_inputs=(2,), any_type=True, alias=((0, 0),))
class SequenceInsert(_SequenceKernel):
    """The sequence with a copy of a tensor before a position, at the end by default."""

    shape_inputs = (2,)

    def compute(self, sequence: Sequence, tensor: Array, position: HostArray | None = None) -> Sequence:
        return self._inserted(sequence, self.xp.asarray(tensor, copy=True), position)

    def expand(self, program: ExpandingProgram, inputs: Numbers[int]) -> list[int] | None:
        """All of them, where it is known which comes where."""
        tensors = program.sequence(inputs[0])
        if tensors is None or not self.knows_position(program, inputs, 2):
            return None
        return [program.make_sequence(self._inserted(list(tensors), inputs[1], *map(program.value, inputs[2:])))]

    def _inserted(self, sequence: list[Any], item: Any, position: HostArray | None = None) -> list[Any]:
        count = len(sequence)
        index = self.index_of(position, count, count, count)
        return [*sequence[:index], item, *sequence[index:]]
