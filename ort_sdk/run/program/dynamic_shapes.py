"""Automatic dynamic shapes: feeds with another shape in each run, as the growing state of a loop or past of a decoder.

After some signatures in a row that differ in the shapes of the same feeds only, one program is traced for all of them, in
which those shapes are unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api.data_classes import dataclass
from ort_sdk.plan import ExecutionPlan

__all__ = ["DynamicKey", "DynamicShapes", "DynamicSignature"]

SIGNATURES_BEFORE_DYNAMIC = 6
"""Different signatures in a row, after which the feeds that differ are expected to differ in the next, too."""
RECENT_CHANGES = 3
"""The latest changes between signatures that are looked at: a decoder's prompt differs from its tokens in more feeds than those
do from each other."""


class DynamicKey(tuple[Any, ...]):
    """The common part of signatures that differ in their dynamic shapes only."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DynamicSignature:
    """A signature in which some feeds have dynamic shapes: any of their rank."""

    positions: frozenset[int]
    """Of the feeds with dynamic shapes."""
    shapes: Mapping[int, tuple[int, ...] | None]
    """Value of the plan → its shape in one run."""

    def key(self, signature: Sequence[Any]) -> DynamicKey:
        """Equal for signatures that differ in the dynamic shapes only."""
        dynamic_positions = self.positions
        return DynamicKey(
            [
                (len(own[0]), own[1]) if position in dynamic_positions and isinstance(own, tuple) else own
                for position, own in enumerate(signature)
            ]
        )

    def feeds_of(self, plan: ExecutionPlan) -> frozenset[int]:
        """The plan's values that those feeds are."""
        return frozenset(plan.feeds[position].index for position in self.positions)


class DynamicShapes:
    """Finds feeds with dynamic shapes: those that alone differ between consecutive signatures, in their shapes."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] | None = None
        self._changes: deque[frozenset[int]] = deque(maxlen=SIGNATURES_BEFORE_DYNAMIC - 1)
        """Positions that differed from one signature to the next, the latest ones."""

    def see(self, signature: tuple[Any, ...]) -> None:
        """Look at the next one."""
        last, self._last = self._last, signature
        if last is None or last == signature:
            return
        differing = [position for position, (own, other) in enumerate(zip(signature, last, strict=True)) if own != other]
        if all(_differ_in_shape(signature[position], last[position]) for position in differing):
            self._changes.append(frozenset(differing))
        else:
            self._changes.clear()

    @property
    def positions(self) -> frozenset[int]:
        """Feeds that are likely to differ in the next run, too; empty as long as nothing is known."""
        changes = list(self._changes)
        if len(changes) < SIGNATURES_BEFORE_DYNAMIC - 1:
            return frozenset()
        recent = frozenset[int]().union(*changes[-RECENT_CHANGES:])
        return recent if all(change <= recent for change in changes) else frozenset()


def _differ_in_shape(own: Any, other: Any) -> bool:
    """Whether two tensors' entries are equal but for the sizes of their axes."""
    are_tensors = isinstance(own, tuple) and isinstance(other, tuple)
    return are_tensors and len(own[0]) == len(other[0]) and own[1] == other[1]
