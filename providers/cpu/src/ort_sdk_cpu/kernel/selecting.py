"""Makers of writers, and calls on a run's arrays, that select an algorithm for the arrays they get, and tell which."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

from ort_sdk.api import HostArray

from .writer import Writer

__all__ = ["SelectingMaker", "Selection", "selecting_call"]


class SelectingMaker:
    """A ``MakeWriter`` that tells the algorithm of the last writer.

    Args:
        make: from inputs and outputs, the algorithm and a writer that computes by it.
    """

    def __init__(self, make: Callable[[Sequence[Any], Sequence[HostArray]], tuple[enum.Enum, Writer]]) -> None:
        self._make = make
        self.algorithm: str | None = None

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """The writer for arrays of these shapes."""
        algorithm, writer = self._make(inputs, outputs)
        self.algorithm = algorithm.value
        return writer


class Selection:
    """The algorithm that a call selected last."""

    __slots__ = ("algorithm",)

    def __init__(self) -> None:
        self.algorithm: str | None = None


def selecting_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call on a run's arrays that tells its algorithm, as the method of a ``Selection``.

    Args:
        call: ``call(selection, *inputs)``, which sets ``selection.algorithm``.
    """
    return MethodType(call, Selection())
