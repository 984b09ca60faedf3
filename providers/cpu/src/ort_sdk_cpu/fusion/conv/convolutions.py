"""Convolutions of a program that do the element-wise steps behind them as well, and the convolutions before and behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, Slot
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.platform import libraries

from .epilogue import Tail, tail_of

__all__ = ["FollowedConvolution", "fused_convolutions"]

IMAGE_RANK = 4
"""Axes of what is convolved in a sequence."""
NODE_INPUTS = 4
"""X, W, B and Z."""


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution and what is part of it."""

    positions: tuple[int, ...]
    kernel: Any
    given: tuple[int, ...]
    """Values of X, W, B, Z and of what is added at last; 0 for absent ones."""
    output: int
    stages: int = 1
    """How many convolutions it is; each has a weight and a bias."""

    @property
    def x(self) -> int:
        """The value that it convolves."""
        return self.given[0]

    @property
    def added(self) -> tuple[int, ...]:
        """Values that are added before an activation and behind it; 0 for none."""
        return (*self.given[NODE_INPUTS - 1 :], 0)[:2]


def fused_convolutions(program: FusibleProgram) -> Iterator[FusedSteps]:
    """One kernel for each convolution and what follows it, where it can be its epilogue, and for inverted bottlenecks.

    Where shapes vary, those that follow each other are one, too.
    """
    convolutions = {convolution.output: convolution for convolution in _convolutions(program)}
    made = list(_blocks(program, convolutions))
    taken = {position for block in made for position in block.positions}
    made += [convolution for convolution in convolutions.values() if taken.isdisjoint(convolution.positions)]
    runs = _runs(program, made) if program.shapes_vary else [[each] for each in made]
    for run in runs:
        if len(run) > 1:
            yield _sequence(program, run)
        elif len(run[0].positions) > 1:
            yield _steps(run[0])


def _steps(made: _Convolution) -> FusedSteps:
    inputs = tuple(value for value in made.given if value)
    followed = FollowedConvolution(made.kernel, [bool(value) for value in made.given], made.stages)
    return FusedSteps(tuple(sorted(made.positions)), followed, inputs, (made.output,))


def _runs(program: FusibleProgram, made: Sequence[_Convolution]) -> Iterator[list[_Convolution]]:
    """Convolutions in order, those together that can be one sequence: nothing between them needs what one of them makes."""
    run: list[_Convolution] = []
    for each in sorted(made, key=lambda each: max(each.positions)):
        if run and not _can_join(program, run, each):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _can_join(program: FusibleProgram, run: Sequence[_Convolution], each: _Convolution) -> bool:
    joined = (*run, each)
    if not all(hasattr(one.kernel, "fitted") and len(program.values[one.x].shape) == IMAGE_RANK for one in joined):
        return False
    made = {one.output for one in run}
    if each.kernel.reads_nchw and each.x in made:
        return False
    own = {position for one in joined for position in one.positions}
    others = {reader for value in made for reader in program.readers.get(value, ())} - own
    return libraries.compiled_kernels().is_usable and max(own) < min(others, default=math.inf)


def _sequence(program: FusibleProgram, run: Sequence[_Convolution]) -> FusedSteps:
    from .sequence import ConvolutionSequence, Member

    positions = {position for each in run for position in each.positions}
    made = {each.output for each in run}
    inputs = tuple(dict.fromkeys(value for each in run for value in each.given if value and value not in made))
    outputs = tuple(each.output for each in run if not positions.issuperset(program.readers.get(each.output, ())))
    members = [Member(each.kernel, each.given, each.output) for each in run]
    kernel = ConvolutionSequence(members, inputs, outputs, run[0].kernel.workspace)
    return FusedSteps(tuple(sorted(positions)), kernel, inputs, outputs)


def _convolutions(program: FusibleProgram) -> Iterator[_Convolution]:
    """All of a program, with what follows them."""
    taken: set[int] = set()
    for position, step in program.steps.items():
        if not hasattr(step.kernel, "followed_by") or position in taken or len(step.outputs) != 1:
            continue
        tail = tail_of(program, step.outputs[0], taken)
        followed = None if tail is None else _followed(program, position, step, tail)
        given = (*step.inputs, *(0,) * (NODE_INPUTS - len(step.inputs)))
        made = followed or _Convolution((position,), step.kernel, given, step.outputs[0])
        taken.update(made.positions)
        yield made


def _followed(program: FusibleProgram, position: int, step: FusibleStep, tail: Tail) -> _Convolution | None:
    if not _adds_whole(program, step):
        return None
    x_shape = program.values[step.inputs[0]].shape
    kernel = step.kernel.followed_by(tail.activations, x_shape, adds_last=tail.added != 0)
    if kernel is None:
        return None
    given = (*step.inputs, *(0,) * (NODE_INPUTS - len(step.inputs)), *((tail.added,) if tail.added else ()))
    return _Convolution((position, *tail.members), kernel, given, tail.output)


def _adds_whole(program: FusibleProgram, step: FusibleStep) -> bool:
    """Whether what a convolution's node adds has the output's shape."""
    shape = program.values[step.outputs[0]].shape
    return all(program.values[value].shape == shape for value in step.inputs[NODE_INPUTS - 1 :] if value)


def _blocks(program: FusibleProgram, convolutions: Mapping[int, _Convolution]) -> Iterator[_Convolution]:
    """Convolutions with one filter per channel, with those around them where that is faster."""
    if not any(getattr(each.kernel, "is_depthwise", False) for each in convolutions.values()):
        return  # Before kernels are imported that the model has none of.
    from ort_sdk_cpu.conv.inverted_bottleneck import InvertedBottleneckKernel, fused_stages, stage_of

    def stage(convolution: _Convolution | None) -> Any:
        if convolution is None or not all(value in program.values for value in (convolution.x, convolution.output)):
            return None
        shapes = (program.values[convolution.x].shape, program.values[convolution.output].shape)
        is_whole = all(not value or program.values[value].shape == shapes[1] for value in convolution.added)
        return stage_of(convolution.kernel, *shapes, has_added=any(convolution.added)) if is_whole else None

    next_of = {convolution.x: convolution for convolution in convolutions.values()}
    taken: set[int] = set()
    for filters in convolutions.values():
        middle = stage(filters)
        if middle is None or not middle.is_depthwise or not taken.isdisjoint(filters.positions):
            continue
        around = convolutions.get(filters.x), next_of.get(filters.output)
        first, last = (stage(found) if found is not None and taken.isdisjoint(found.positions) else None for found in around)
        first = first if _is_read_once(program, filters.x, filters) else None
        last = last if _is_read_once(program, filters.output, around[1]) else None
        fused = fused_stages(first, middle, last)
        if fused is None:
            continue
        has_first, has_last, by_channels = fused
        members = [one for one, is_part in ((around[0], has_first), (filters, True), (around[1], has_last)) if is_part and one]
        kernel = InvertedBottleneckKernel(
            first if has_first else None, middle, last if has_last else None, by_channels=by_channels
        )
        given = (members[0].x, *(value for one in members for value in one.given[1:3]), *members[-1].added)
        positions = tuple(position for one in members for position in one.positions)
        taken.update(positions)
        yield _Convolution(positions, kernel, given, members[-1].output, len(members))


def _is_read_once(program: FusibleProgram, value: int, reader: _Convolution | None) -> bool:
    """Whether nothing but a convolution reads a value, and only as what it convolves."""
    if reader is None or value in reader.given[1:]:
        return False
    return set(program.readers.get(value, ())) <= {reader.positions[0]}


class FollowedConvolution:
    """A convolution with what follows it, or several of them.

    Args:
        kernel: computes all, with all inputs it may have.
        is_given: which of them there are.
        stages: how many convolutions it is; each has a weight and a bias.
    """

    binds_any_layout = True

    def __init__(self, kernel: Any, is_given: Sequence[bool], stages: int = 1) -> None:
        self._kernel, self._is_given, self._first_added = kernel, is_given, 1 + 2 * stages

    @property
    def algorithm(self) -> str | None:
        """The kernel's."""
        found: str | None = self._kernel.algorithm
        return found

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        given = iter(inputs)
        call: Callable[[], Any] = self._kernel.bind(
            [next(given) if is_there else FixedSlot(None) for is_there in self._is_given],  # type: ignore[arg-type]
            outputs,
        )
        return call

    def compute(self, *inputs: Any) -> Any:
        """A new array; ``NotImplemented`` for shapes for which they are not computed as one."""
        there = iter(inputs)
        given = [next(there) if is_there else None for is_there in self._is_given]
        added = {value.shape for value in given[self._first_added :] if value is not None}
        if added and added != {self._kernel.output_shape(given)}:
            return NotImplemented
        result = self._kernel.computed(given)
        return NotImplemented if result is None else result
