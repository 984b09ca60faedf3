"""Layout of the values between the tasks of a sequence in its workspace: a linear scan over lifetimes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.task_sequence import TaskWords, Word

from .row_step import RowStep

__all__ = ["RowLayout"]

PADDING_BYTES = 320
"""Between values: else a row of several values would be at one offset of a page in all, and so in the same sets of a cache."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """Offset of a value in the workspace: ``rows * row_bytes + offset``, since the number of rows is not known yet."""

    row_bytes: int
    offset: int


class RowLayout:
    """Slots of the values between steps; one that is not read any more leaves its slot to others as wide.

    Args:
        steps: in order.
        outside: values with memory of their own: inputs and outputs.
    """

    def __init__(self, steps: Sequence[RowStep], outside: frozenset[int]) -> None:
        self.slots: dict[int, _Slot] = {}
        self.row_bytes = self.offset = 0
        last = {index: position for position, step in enumerate(steps) for index in (*step.writes, *step.reads)}
        free: dict[int, list[_Slot]] = {}
        for position, step in enumerate(steps):
            for index in step.writes:
                if index not in outside:
                    waiting = free.get(step.widths[index])
                    self.slots[index] = waiting.pop() if waiting else self._new(step.widths[index])
            for index in {*step.writes, *step.reads}:
                if last[index] == position and index in self.slots:
                    free.setdefault(step.widths[index], []).append(self.slots[index])

    def _new(self, width: int) -> _Slot:
        slot = _Slot(self.row_bytes, self.offset)
        self.row_bytes += -(-width * 4 // 64) * 64
        self.offset += PADDING_BYTES
        return slot

    def word(self, word: Word) -> Word:
        """A word with the address of a value between steps as address of the workspace and offset."""
        if not isinstance(word, tuple):
            return word
        terms: list[tuple[Any, int]] = []
        for name, factor in word:
            slot = self.slots.get(name[1]) if isinstance(name, tuple) and name[0] == "value" else None
            if slot is None:
                terms.append((name, factor))
            else:
                terms += [("base", factor), ("rows", slot.row_bytes), ("one", slot.offset)]
        return tuple(terms)

    def placed(self, step: RowStep) -> TaskWords:
        """A step's task with these words."""
        return TaskWords(step.task.module, step.task.name, tuple(self.word(word) for word in step.task.words))
