"""Arguments of launches, packed once: a launch takes the address of an array of addresses, of cells with one argument each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.device import Scalar, packed_scalar

__all__ = ["ArgumentCells"]

CELL_BYTES = 8


class ArgumentCells:
    """The arguments of several launches. It lives as long as they are queued with it.

    Args:
        rows: of each launch, addresses on the device, and numbers.
    """

    def __init__(self, rows: Sequence[Sequence[int | Scalar]]) -> None:
        arguments = [argument for row in rows for argument in row]
        self._cells: HostArray = np.zeros(max(len(arguments), 1), np.uint64)
        first = int(self._cells.ctypes.data)
        self._addresses: HostArray = first + CELL_BYTES * np.arange(len(self._cells), dtype=np.uint64)
        self._first_address = int(self._addresses.ctypes.data)
        self._starts = np.cumsum([0, *(len(row) for row in rows)]).tolist()
        self._words: Any = self._cells.data
        for position, argument in enumerate(arguments):
            if isinstance(argument, Scalar):
                value = packed_scalar(argument)
                self._cells[position : position + 1].view(value.dtype)[0] = value
            else:
                self._words[position] = argument

    def parameters(self, row: int) -> int:
        """What a launch takes for the arguments of a row: an address."""
        return self._first_address + CELL_BYTES * int(self._starts[row])

    def position(self, row: int, argument: int) -> int:
        """Of a launch's argument among all."""
        return int(self._starts[row]) + argument

    def put(self, position: int, address: int) -> bool:
        """Let an argument be another address; whether it is."""
        if self._words[position] == address:
            return False
        self._words[position] = address
        return True
