"""What shapes a node's inputs may have together: sizes with names, which are the same wherever the name is.

An operator's rule compares all inputs with each other before anything is computed. It is asked in the first run and in every
later one, and again when a provider binds the node to arrays, so that compiled code only meets shapes that the operator allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

from ort_sdk.api import InvalidArgument, KernelInfo

__all__ = ["ABSENT", "InputRule", "InputShapes", "Pattern", "Shape", "ShapeRule"]

Shape = tuple[int, ...]
Pattern = tuple["int | str | EllipsisType | None", ...]
"""Sizes of an input: a number; a name, which stands for one size in all inputs; None for any; ``...`` for any axes."""

ABSENT = -1
"""What ``InputShapes.match`` gives for an input that the node does not have."""


class InputShapes:
    """The shapes of one call's inputs.

    Args:
        info: the node.
        shapes: of its inputs, None for those that are absent.
    """

    __slots__ = ("_info", "_shapes", "_sizes")

    def __init__(self, info: KernelInfo, shapes: Sequence[Shape | None]) -> None:
        self._info, self._shapes = info, shapes
        self._sizes: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """The size that a name stands for."""
        return self._sizes[name]

    def __setitem__(self, name: str, size: int) -> None:
        self._sizes[name] = size

    def of(self, index: int) -> Shape | None:
        """Shape of an input; None if it is absent."""
        return self._shapes[index] if index < len(self._shapes) else None

    def match(self, index: int, name: str, *allowed: Pattern) -> int:
        """Compare an input with the shapes that it may have; names in the first that fits have its sizes from then on.

        Args:
            index: of the input.
            name: what the operator calls it.
            allowed: the shapes.

        Returns:
            Which of them it has, or ``ABSENT``.

        Raises:
            InvalidArgument: it has none of them.
        """
        shape = self.of(index)
        if shape is None:
            return ABSENT
        for number, pattern in enumerate(allowed):
            found = self._fit(shape, pattern)
            if found is not None:
                self._sizes.update(found)
                return number
        wanted = " or ".join(self._shown(pattern) for pattern in allowed)
        raise self.refused(f"input {index}, '{name}', has shape {shape}; it must have {wanted}")

    def spread(self, index: int, name: str, target: Sequence[int]) -> None:
        """Compare an input with a shape that it may be broadcast to: as many axes or fewer, each of that size or of 1."""
        shape = self.of(index)
        if shape is None:
            return
        whole = target[len(target) - len(shape) :]
        if len(shape) > len(target) or any(own not in {1, size} for own, size in zip(shape, whole, strict=True)):
            raise self.refused(f"input {index}, '{name}', has shape {shape}, which cannot be broadcast to {tuple(target)}")

    def count(self, index: int, name: str, *counts: int) -> None:
        """Compare the number of an input's elements with those that it may have, in whatever axes."""
        shape = self.of(index)
        if shape is None:
            return
        size = 1
        for own in shape:
            size *= own
        if size not in counts:
            wanted = " or ".join(map(str, counts))
            raise self.refused(f"input {index}, '{name}', has shape {shape}; it must have {wanted} element(s)")

    def refused(self, problem: str) -> InvalidArgument:
        """The error for shapes that the operator does not allow."""
        shown = ", ".join("absent" if shape is None else str(shape) for shape in self._shapes)
        return InvalidArgument(f"{self._info.describe()}: {problem}. All inputs: {shown}")

    def _fit(self, shape: Shape, pattern: Pattern) -> dict[str, int] | None:
        """Sizes of the pattern's new names; None for another shape."""
        if ... in pattern:
            front = pattern.index(...)
            pattern = pattern[:front] + pattern[front + 1 :]
            shape = shape[:front] + shape[max(front, len(shape) - len(pattern) + front) :]
        if len(shape) != len(pattern):
            return None
        found: dict[str, int] = {}
        for size, wanted in zip(shape, pattern, strict=True):
            own = found.setdefault(wanted, self._sizes.get(wanted, size)) if isinstance(wanted, str) else wanted
            if own is not None and own != size:
                return None
        return found

    def _shown(self, pattern: Pattern) -> str:
        """A pattern with the sizes that are known."""
        return f"({', '.join(map(self._shown_size, pattern))}{',' if len(pattern) == 1 else ''})"

    def _shown_size(self, wanted: Any) -> str:
        if wanted is ...:
            return "..."
        if isinstance(wanted, str):
            return f"{wanted} = {self._sizes[wanted]}" if wanted in self._sizes else wanted
        return "any" if wanted is None else str(wanted)


ShapeRule = Callable[[KernelInfo, InputShapes], None]
"""Compares the shapes of a node's inputs with what its operator allows, by ``InputShapes``' methods, which raise."""


class InputRule:
    """A node's rule.

    Args:
        info: the node.
        rule: its operator's.
    """

    __slots__ = ("_allowed", "_constants", "_info", "_rule")

    def __init__(self, info: KernelInfo, rule: ShapeRule) -> None:
        self._info, self._rule = _without_constants(info), rule
        self._constants: Mapping[int, Shape] = {index: tuple(tensor.shape) for index, tensor in info.constants.items()}
        self._allowed: tuple[Shape | None, ...] | None = None

    def check(self, inputs: Sequence[Any]) -> None:
        """Look at the shapes of a call's inputs, if they are others than in the call before.

        Args:
            inputs: arrays; None for what is absent, or constant and packed.

        Raises:
            InvalidArgument: the operator does not allow them.
        """
        shapes = tuple([None if array is None else array.shape for array in inputs])
        if shapes == self._allowed:
            return
        given: list[Shape | None] = [None if shape is None else tuple(shape) for shape in shapes]
        for index, shape in self._constants.items():
            if index < len(given) and given[index] is None:
                given[index] = shape
        self._rule(self._info, InputShapes(self._info, given))
        self._allowed = shapes


def _without_constants(info: KernelInfo) -> KernelInfo:
    """The node without the weights, which it would keep."""
    if not info.constants:
        return info
    return KernelInfo(info.op_type, info.since_version, info.domain, info.name, info.attributes, info.inputs, info.outputs)
