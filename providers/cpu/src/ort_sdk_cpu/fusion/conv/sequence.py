"""Convolutions that follow each other as one call where shapes vary: one team, values between them in workspace.

The tasks of all of them, with their sizes, are one row of words for each shape of what they read.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.conv.direct import TaskPlan, as_nhwc, cached
from ort_sdk_cpu.jit.extents.bounds import check_words, memory_of
from ort_sdk_cpu.jit.task_code import WORD_BYTES, task_address
from ort_sdk_cpu.jit.task_sequence import HEADER_WORDS, TASK_WORDS, run_sequence
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

__all__ = ["ConvolutionSequence", "Member"]

_ALIGNMENT = 256
_FLOAT = np.dtype(np.float32)
WORKSPACE = "convolutions"
KEPT_BYTES, BYTES_PER_TASK = 1 << 23, 3 << 8
"""Memory for the tasks of shapes that came before, and what a task takes of it: images may have hundreds of sizes."""


class Member:
    """A convolution, or several that are one task.

    Args:
        kernel: of it.
        given: numbers of its inputs; 0 for absent ones.
        output: number of its result.
    """

    __slots__ = ("arrays", "constants", "kernel", "output", "values")

    def __init__(self, kernel: Any, given: Sequence[int], output: int) -> None:
        count = len(kernel.constant_positions)
        added = zip(kernel.added_positions, given[1 + count :], strict=False)
        self.kernel, self.output = kernel, output
        self.constants = tuple(given[1 : 1 + count])
        """Numbers of weights and biases."""
        self.values = [(kernel.positions.x, given[0]), *((position, index) for position, index in added if index)]
        """Where the task takes what is no constant, and its number; X first."""
        self.arrays = [*self.values, (kernel.positions.out, output)]
        """The same, and its result."""


class _Words(NamedTuple):
    """Tasks for some shapes."""

    words: HostArray
    inside: HostArray
    """Which words are addresses in workspace; they hold how far from its begin."""
    work: HostArray
    """Which are the address of a task's own workspace."""
    outside: Sequence[tuple[int, tuple[int, bool]]]
    """Words that are addresses of other arrays: the number, and whether it is read row-major."""
    out_shapes: Sequence[tuple[int, ...]]
    inside_bytes: int
    work_bytes: int


class ConvolutionSequence:
    """Convolutions in order. For any number of threads at once.

    Args:
        members: in order.
        inputs: numbers of what they read and do not make, in the order of the arrays.
        outputs: numbers of what others read.
        workspace: the workspace.
    """

    def __init__(self, members: Sequence[Member], inputs: Sequence[int], outputs: Sequence[int], workspace: Workspace) -> None:
        self._members, self._inputs, self._outputs, self._workspace = members, inputs, outputs, workspace
        constants = {index for member in members for index in member.constants if index}
        self._constant_at = [at for at, index in enumerate(inputs) if index in constants]
        self._value_at = [at for at, index in enumerate(inputs) if index not in constants]
        self._constants: list[Any] = []
        self._weights: list[list[tuple[int, HostArray]]] = []
        """Where each task takes its weights and biases, and those."""
        self._room = _Room(members, {*inputs, *outputs})
        self._made: dict[Any, _Words | None] = {}
        self._most_shapes = KEPT_BYTES // (BYTES_PER_TASK * len(members)) + 1
        self._results = ResultAllocator()

    @property
    def algorithm(self) -> str:
        """Those of its members, each once, in order."""
        return "+".join(dict.fromkeys(member.kernel.own_algorithm for member in self._members))

    def compute(self, *inputs: Any) -> Any:
        """New arrays; ``NotImplemented`` for inputs that are left to the steps."""
        constants, values = [inputs[at] for at in self._constant_at], [inputs[at] for at in self._value_at]
        if len(constants) != len(self._constants) or not all(map(operator.is_, constants, self._constants)):
            self._use(inputs)
            self._made, self._constants = {}, constants
        if any(value.dtype != _FLOAT or value.ndim != 4 for value in values):
            return NotImplemented
        threads, shapes = libraries.thread_count(), tuple([value.shape for value in values])
        made = cached(self._made, (threads, *shapes), lambda: self._words_for(inputs, threads), self._most_shapes)
        if made is None:
            return NotImplemented
        outs = [self._new_output(shape) for shape in made.out_shapes]
        self._run(made, dict(zip((*self._inputs, *self._outputs), (*inputs, *outs), strict=True)), threads)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _use(self, inputs: Sequence[Any]) -> None:
        """Take weights and biases from these inputs from now on."""
        arrays = dict(zip(self._inputs, inputs, strict=True))
        self._weights = [_constants_of(member, arrays) for member in self._members]

    def _run(self, made: _Words, arrays: Mapping[int, Any], threads: int) -> None:
        words = made.words.copy()
        words[made.inside] += self._workspace.address(WORKSPACE, made.inside_bytes)
        words[made.work] = self._workspace.address("task", made.work_bytes)
        arranged: dict[tuple[int, bool], HostArray] = {}
        for word, key in made.outside:
            if key not in arranged:
                arranged[key] = np.ascontiguousarray(arrays[key[0]]) if key[1] else as_nhwc(arrays[key[0]])
            words[word] = address_of(arranged[key])
        run_sequence(words, threads)

    def _new_output(self, shape: tuple[int, ...]) -> HostArray:
        return self._results.empty((shape[0], *shape[2:], shape[1])).transpose(0, 3, 1, 2)

    def _words_for(self, inputs: Sequence[Any], threads: int) -> _Words | None:
        """The tasks for inputs of these shapes; None if one of them cannot."""
        shapes = {self._inputs[at]: inputs[at].shape for at in self._value_at}
        plans = []
        for member in self._members:
            found = member.kernel.fitted(shapes[member.values[0][1]])
            if found is None or any(shapes[index] != found[0] for _, index in member.values[1:]):
                return None
            shapes[member.output] = found[0]
            plans.append(found[1])
        return self._written(plans, shapes, threads)

    def _written(self, plans: Sequence[TaskPlan], shapes: Mapping[int, tuple[int, ...]], threads: int) -> _Words:
        starts = _starts(plans)
        words = np.zeros(starts[-1], np.int64)
        steps = [(WORD_BYTES * start, at > 0) for at, start in enumerate(starts[:-1])]
        words[: starts[0]] = (len(plans), threads, 0, 0, *(word for step in steps for word in step))
        offsets, inside_bytes = self._room.offsets(shapes)
        inside, outside = [], []
        work_bytes = max(plan.work_bytes // plan.threads for plan in plans) * threads
        for at, (member, plan, start) in enumerate(zip(self._members, plans, starts[:-1], strict=True)):
            arguments = list(plan.arguments.words)
            memory = {position: memory_of(array) for position, array in self._weights[at]}
            for position, array in self._weights[at]:
                arguments[position] = address_of(array)
            for position, index in member.arrays:
                memory[position] = (0, math.prod(shapes[index]) * _FLOAT.itemsize, True)
                if index in offsets:
                    arguments[position] = offsets[index]
                    inside.append(start + 1 + position)
                else:
                    outside.append(
                        (start + 1 + position, (index, position == member.kernel.positions.x and member.kernel.reads_nchw))
                    )
            pack, code = _packer(plan.module, plan.name, plan.arguments.kinds)
            memory[plan.positions.work] = (0, work_bytes, True)
            check_words(plan.module, plan.name, arguments, threads, memory)
            pack(words, WORD_BYTES * start, code, *arguments)
        work = [start + 1 + plan.positions.work for plan, start in zip(plans, starts, strict=False)]
        out_shapes = [shapes[index] for index in self._outputs]
        return _Words(words, np.array(inside, np.int64), np.array(work), outside, out_shapes, inside_bytes, work_bytes)


def _constants_of(member: Member, arrays: Mapping[int, Any]) -> list[tuple[int, HostArray]]:
    """Where a task takes its weights and biases, and those."""
    given = [arrays[index] if index else None for index in member.constants]
    return [(position, array) for position, array in member.kernel.constant_arrays(given) if array is not None]


class _Room:
    """Offsets of values between convolutions in workspace; what nobody reads any more makes room for others.

    Args:
        members: in order.
        outside: numbers of values that are elsewhere.
    """

    def __init__(self, members: Sequence[Member], outside: set[int]) -> None:
        last = {index: member.output for member in members for _, index in member.values}
        reads = [{index for _, index in member.values} - outside for member in members]
        self._steps = [
            (member.output, member.output in outside, [index for index in read if last[index] == member.output])
            for member, read in zip(members, reads, strict=True)
        ]
        """What is made, whether that is elsewhere, and what is read for the last time."""

    def offsets(self, shapes: Mapping[int, tuple[int, ...]]) -> tuple[dict[int, int], int]:
        """Number of a value → bytes from the begin; and bytes of all.

        Args:
            shapes: of all values.
        """
        offsets: dict[int, int] = {}
        free: list[tuple[int, int]] = []
        nbytes = 0
        for made, is_elsewhere, ended in self._steps:
            if not is_elsewhere:
                wanted = _room_of(shapes[made])
                size, position = min((room for room in free if room[0] >= wanted), default=(0, nbytes))
                if size:
                    free.remove((size, position))
                    free.append((size - wanted, position + wanted))
                else:
                    nbytes += wanted
                offsets[made] = position
            free += [(_room_of(shapes[index]), offsets[index]) for index in ended]
        return offsets, nbytes


def _room_of(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) * _FLOAT.itemsize // _ALIGNMENT) * _ALIGNMENT


def _starts(plans: Sequence[TaskPlan]) -> list[int]:
    """Where records begin, in words, and where the last one ends."""
    starts = [HEADER_WORDS + TASK_WORDS * len(plans)]
    for plan in plans:
        starts.append(starts[-1] + 1 + len(plan.arguments.words))
    return starts


@functools.cache
def _packer(module: str, name: str, kinds: str) -> tuple[Any, int]:
    return struct.Struct("=q" + kinds.replace("f", "f4x")).pack_into, task_address(module, name)
