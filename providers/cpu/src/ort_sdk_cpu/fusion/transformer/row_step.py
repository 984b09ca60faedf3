"""Steps that map rows to rows, a row for each token, as tasks whose arguments follow from how many rows there are.

They are the parts of a sequence (``sequence.RowSequence``). A task's arguments are ``Terms`` where they depend on a run: sums of
named numbers, such as the number of rows or the address of a value, times constants.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

import numpy as np

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, HostArray, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.gemm.select import BLayout
from ort_sdk_cpu.jit.task_sequence import LinearTerms, TaskWords, Word

__all__ = [
    "BATCH",
    "FLOAT_BYTES",
    "LENGTH",
    "ROWS",
    "WORK",
    "WORK_BYTES",
    "Given",
    "RowOperand",
    "RowStep",
    "RunArguments",
    "RunBinder",
    "ScoreBiasOperand",
    "are_floats",
    "constant_vector",
    "only_reader",
    "optional_input",
    "renamed",
    "shape_of",
    "value_address",
    "width_of",
]

FLOAT_BYTES = 4
ROWS: Any = (("rows", 1),)
"""Number of rows."""
BATCH: LinearTerms = (("batch", 1),)
LENGTH: LinearTerms = (("length", 1),)
"""Tokens of a sequence."""
WORK: LinearTerms = (("work", 1),)
"""Address of the workspace of all threads."""
WORK_BYTES: Any = (("work bytes", 1),)
"""Of a thread's workspace."""

Given = Mapping[int, HostArray]
"""Inputs of a sequence by value."""


@dataclass(frozen=True, slots=True)
class RunArguments:
    """What a run gives to a task, beside rows and their number."""

    numbers: tuple[tuple[Hashable, int], ...]
    """Name in the task's ``Terms``, and number, of each."""
    outputs: tuple[tuple[int, HostArray], ...]
    """Further values that the task writes, and their arrays."""
    kept: tuple[HostArray | None, ...]
    """Further arrays that it reads."""


class RunBinder(Protocol):
    """Binds what a task's arguments have of a run, beside rows and their number."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Values that are read beside rows."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """Values that are written beside rows."""

    def bind(self, given: Given, batch_shape: tuple[int, ...], shared: dict[Hashable, Any]) -> RunArguments | None:
        """What the arguments have of a run; None for arrays that the task does not take.

        Args:
            given: inputs by value.
            batch_shape: batch and tokens.
            shared: what binders of one run have in common, by any key: layers have the same masks and positions.
        """


@dataclass(frozen=True, slots=True)
class RowOperand:
    """Rows of one of queries, keys, values and results: a value, and strides in bytes."""

    index: int
    row: int
    offset: int = 0
    head: int = 0
    """From head to head; 0 where they follow each other."""

    def words(self, size: int) -> tuple[Word, ...]:
        """Words of ``HeadRows``."""
        start: LinearTerms = ((("value", self.index), 1), *([("one", self.offset)] if self.offset else []))
        return start, (("length", self.row),), self.head or size * FLOAT_BYTES, self.row


def value_address(index: int) -> LinearTerms:
    """Address of a value."""
    return ((("value", index), 1),)


@dataclass(frozen=True, slots=True)
class ScoreBiasOperand:
    """A value that is added to the scores."""

    index: int
    heads: int

    def terms(self, position: int) -> LinearTerms:
        """One of the words of ``ScoreBias``."""
        return (((self, position), 1),)


@dataclass(frozen=True, slots=True)
class RowStep:
    """A step of a program, or several, as a task."""

    task: TaskWords
    widths: dict[int, int]
    """Value that it reads or writes → elements of a row."""
    reads: tuple[int, ...]
    """Values whose rows it reads."""
    writes: tuple[int, ...]
    """Values whose rows it makes."""
    is_row_parallel: bool = True
    """Whether each thread makes some rows, of the same rows of what is read; a GEMM does where its rows are split."""
    product: BLayout | None = None
    added: ScoreBiasOperand | None = None
    kept: tuple[Any, ...] = ()
    """Arrays that addresses are of."""
    work: int = 0
    """Bytes of workspace of a thread, beside a product's."""
    cache: RunBinder | None = None
    """What is known of its arguments in a run only."""
    batch_shape_of: int = 0
    """Value whose shape is (batch, tokens); 0 for none."""
    may_fail: bool = False
    """Whether it sets its first argument where it could not do its work."""
    repeated: frozenset[int] = frozenset()
    """Positions of further steps whose work it does: those that only reshape rows, or work out shapes."""
    required: frozenset[tuple[int, int, int]] = frozenset()
    """(value, axis, axis of (batch, tokens)): that must be as long in a run as this."""
    rearranged: frozenset[int] = frozenset()
    """Values whose layout is not the program's: only other tasks can read them."""
    masks_nan: bool = False
    """Whether the steps put 0 for NaN, and the task does not: a run with NaN goes to the steps."""
    activation_task: RowStep | None = None
    """Task that quantizes or rearranges what it reads, whose values have numbers below 0; readers of the same share it."""
    by_columns: bool = False
    """Whether each thread makes some columns of all rows."""
    numbers: int = 0
    """Elements of a weight that is not ``product``'s."""
    most_rows: int = 0
    """Rows up to which the task is the right one; 0 for any number."""
    unfused: FusedSteps | None = None
    """Its main steps as one fused step outside of sequences, where it is several."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """All values that it makes."""
        return self.writes if self.cache is None else (*self.writes, *self.cache.outputs)

    @property
    def needs(self) -> frozenset[int]:
        """All values that it has to be given."""
        others = () if self.cache is None else self.cache.inputs
        scores = () if self.added is None else (self.added.index,)
        return frozenset((*self.reads, *others, *scores))


def renamed(task: TaskWords, names: Mapping[int, int]) -> TaskWords:
    """The task with values by their names."""
    return TaskWords(task.module, task.name, tuple(_renamed(word, names) for word in task.words))


def _renamed(word: Word, names: Mapping[int, int]) -> Word:
    """The word with values by their names."""
    if not isinstance(word, tuple):
        return word
    return tuple(
        (("value", names.get(name[1], name[1])) if isinstance(name, tuple) and name[0] == "value" else name, factor)
        for name, factor in word
    )


def are_floats(step: FusibleStep, program: FusibleProgram) -> bool:
    """Whether a step's first input and its outputs are of float32 and of rank 2 or more."""
    shown = [program.values.get(index) for index in (step.inputs[0], *step.outputs) if index]
    return all(each is not None and each.element_type is TensorElementType.FLOAT and len(each.shape) > 1 for each in shown)


def width_of(program: FusibleProgram, index: int) -> int:
    """Elements of a row of a value."""
    return program.values[index].shape[-1]


def optional_input(step: FusibleStep, position: int) -> int:
    """The value at a position of a step's inputs; 0 for none."""
    return step.inputs[position] if position < len(step.inputs) else 0


def constant_vector(step: FusibleStep, position: int, width: int, program: FusibleProgram) -> HostArray | None:
    """An input that is a constant vector of float32, made contiguous; None for any other."""
    shown = program.values.get(optional_input(step, position))
    array: Any = None if shown is None else shown.constant
    if array is None or array.shape != (width,) or array.dtype != np.float32:
        return None
    return np.ascontiguousarray(array)


def shape_of(program: FusibleProgram, index: int) -> tuple[int, ...] | None:
    """Shape of a value of float32; None for others."""
    shown = program.values.get(index)
    return None if shown is None or shown.element_type is not TensorElementType.FLOAT else shown.shape


def only_reader(index: int, op_type: str, program: FusibleProgram) -> int | None:
    """The only step that reads a value but for its shape, if it is of an operator."""
    readers = [position for position in program.readers.get(index, ()) if not _is_of_shapes(position, program)]
    step = program.steps.get(readers[0]) if len(readers) == 1 else None
    return readers[0] if step is not None and step.op_type == op_type and not step.domain else None


def _is_of_shapes(position: int, program: FusibleProgram) -> bool:
    """Whether a step gives a shape, or reshapes a value that only such steps read."""
    step = program.steps.get(position)
    if step is None or step.domain or step.op_type not in {"Shape", "Reshape"}:
        return False
    return step.op_type == "Shape" or all(_is_of_shapes(own, program) for own in program.readers.get(step.outputs[0], ()))
