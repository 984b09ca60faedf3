"""What a provider's answer to fusing must keep: the order of the program, and what others read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ort_sdk.api import EPFail, FusedSteps, FusibleProgram
from ort_sdk.plan import ABSENT

__all__ = ["check_answer", "unread_steps"]


class Launch(Protocol):
    """What a step reads and makes."""

    @property
    def inputs(self) -> tuple[int, ...]: ...

    @property
    def outputs(self) -> tuple[int, ...]: ...


def check_answer(name: str, program: FusibleProgram, answers: Sequence[FusedSteps]) -> None:
    """Check a provider's answer.

    Raises:
        EPFail: steps are not those it was shown, each once, or do not keep the program's order.
    """
    taken: set[int] = set()
    for fused in answers:
        positions = set(fused.positions)
        if not positions <= program.steps.keys() - taken or tuple(sorted(positions)) != fused.positions:
            raise EPFail(f"{name}: fuse_steps gave steps {fused.positions}; each must be one it was shown, once, in order")
        taken |= positions
        _check_repeated(name, program, fused)
    readers = _readers_after(program, answers)
    for fused in answers:
        _check_order(name, program, fused, readers)


def _check_repeated(name: str, program: FusibleProgram, fused: FusedSteps) -> None:
    if not fused.repeated:
        return
    others, positions = set(fused.repeated), set(fused.positions)
    is_before = others <= program.steps.keys() - positions and fused.repeated[-1] < fused.positions[-1]
    if not program.shapes_vary or not is_before or tuple(sorted(others)) != fused.repeated:
        raise EPFail(
            f"{name}: fuse_steps repeats steps {fused.repeated} in one of {fused.positions}; they must be others that it was "
            f"shown, in order and before step {fused.positions[-1]}, in runs whose shapes vary"
        )


def unread_steps(answers: Sequence[FusedSteps], steps: Sequence[Launch], fetches: Collection[int]) -> set[int]:
    """Positions of repeated steps that nothing reads once all are fused.

    Args:
        answers: of all providers.
        steps: the program's.
        fetches: values that the caller gets.
    """
    return _unread(answers, dict(enumerate(steps)), set(fetches))


def _unread(answers: Sequence[FusedSteps], steps: Mapping[int, Launch], read: set[int]) -> set[int]:
    """The same for some steps of the program; ``read`` is what others read, and grows."""
    taken = {position for fused in answers for position in fused.positions}
    repeated = {position for fused in answers for position in fused.repeated} - taken
    read.update(index for fused in answers for index in fused.inputs)
    read.update(index for position in steps.keys() - taken - repeated for index in steps[position].inputs)
    unread = set()
    for position in sorted(repeated, reverse=True):
        if read.isdisjoint(set(steps[position].outputs) - {ABSENT}):
            unread.add(position)
        else:
            read.update(steps[position].inputs)
    return unread


def _readers_after(program: FusibleProgram, answers: Sequence[FusedSteps]) -> Mapping[int, Sequence[int]]:
    """Value → positions that read it, by ascending position, once all are fused."""
    elsewhere = {index: [reader for reader in own if reader not in program.steps] for index, own in program.readers.items()}
    taken = {position for fused in answers for position in fused.positions}
    gone = taken | _unread(answers, program.steps, {index for index, own in elsewhere.items() if own})
    readers = {index: [reader for reader in own if reader not in gone] for index, own in program.readers.items()}
    for fused in answers:
        for index in fused.inputs:
            readers.setdefault(index, []).append(fused.positions[-1])
    return readers


def _check_order(name: str, program: FusibleProgram, fused: FusedSteps, readers: Mapping[int, Sequence[int]]) -> None:
    last, members = fused.positions[-1], (*fused.positions, *fused.repeated)
    made = {index for position in fused.positions for index in program.steps[position].outputs} - {ABSENT}
    read = {index for position in members for index in program.steps[position].inputs} - {ABSENT}
    for index in made:
        others = readers.get(index, ())
        if others and (index not in fused.outputs or min(others) <= last):
            raise EPFail(
                f"{name}: fuse_steps made one of steps {fused.positions}, but step {min(others)} reads value {index}, which is "
                f"one of their outputs {fused.outputs} only after step {last}"
            )
    if not set(fused.inputs) <= read - made or not set(fused.outputs) <= made:
        raise EPFail(f"{name}: fuse_steps: steps {fused.positions} have no inputs {fused.inputs} or no outputs {fused.outputs}")
