"""Places a bound kernel reads from and writes to."""

from __future__ import annotations

from ort_sdk.api import Array

__all__ = ["ValueSlot"]


class ValueSlot:
    """One value of a program as a bound kernel sees it (the contract's ``Slot``).

    Args:
        array: the value; None for one that is filled in before each call.
        is_fixed: whether it stays the same array for the life of the program.
        is_constant: whether its contents stay the same, too.
    """

    __slots__ = ("array", "is_constant", "is_fixed")

    def __init__(self, array: Array = None, *, is_fixed: bool = False, is_constant: bool = False) -> None:
        self.array = array
        self.is_fixed = is_fixed
        self.is_constant = is_constant
