"""Lifetimes of traced values: they end when no name stands for them any more, and no sequence has them as a member."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["Lifetimes"]


class Lifetimes:
    """Counts what still holds each value. A value is held by its own name at first."""

    def __init__(self) -> None:
        self._names: dict[int, list[int]] = {}
        """Value → all other names that it ever had."""
        self._value_of: dict[int, int] = {}
        """Name → the value it stands for, if that is another."""
        self._members: dict[int, Sequence[int]] = {}
        """Sequence → the values it has."""
        self._holders: dict[int, int] = {}
        """Value → how many hold it, if more than its own name ever did."""
        self._ended: set[int] = set()
        """Names that ended."""

    def name(self, name: int, value: int) -> None:
        """Note that another name holds a value from now on."""
        self._value_of[name] = value
        self._names.setdefault(value, []).append(name)
        self._hold(value)

    def join(self, sequence: int, members: Sequence[int]) -> None:
        """Note that a sequence holds its members from now on."""
        self._members[sequence] = members
        for member in members:
            self._hold(member)

    def names(self, value: int) -> Iterable[int]:
        """All numbers under which a value is kept."""
        return (value, *self._names.get(value, ()))

    def end(self, name: int) -> list[int]:
        """Nothing reads a name any more.

        Returns:
            The values that nothing holds now.
        """
        if name in self._ended:
            return []
        self._ended.add(name)
        return self._release(self._value_of.get(name, name))

    def forget_from(self, number: int) -> None:
        """Forget the names and sequences of this number and above."""
        for name in [name for name in self._value_of if name >= number]:
            value = self._value_of.pop(name)
            self._names[value].remove(name)
            self._release_forgotten(name, [value])
        for sequence in [sequence for sequence in self._members if sequence >= number]:
            self._release_forgotten(sequence, self._members.pop(sequence))
        self._ended = {name for name in self._ended if name < number}
        for table in (self._names, self._holders):
            for value in [value for value in table if value >= number]:
                del table[value]

    def _hold(self, value: int) -> None:
        self._holders[value] = self._holders.get(value, 1) + 1

    def _release(self, value: int) -> list[int]:
        left = self._holders[value] = self._holders.get(value, 1) - 1
        if left:
            return []
        ended = [value]
        for member in self._members.get(value, ()):
            ended.extend(self._release(member))
        return ended

    def _release_forgotten(self, holder: int, values: Sequence[int]) -> None:
        if holder not in self._ended:
            for value in values:
                self._holders[value] -= 1
