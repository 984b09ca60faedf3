"""Makers of writers that choose an algorithm for the arrays they get, and tell which."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import HostArray

from .bound import Writer

__all__ = ["SelectingMaker"]


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
