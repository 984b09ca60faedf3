"""Slots: what a bound kernel reads from and writes to."""

from __future__ import annotations

from ort_sdk.api import Array, TensorElementType

__all__ = ["ValueSlot"]


class ValueSlot:
    """One value of a program as a bound kernel sees it (the contract's ``Slot``).

    Args:
        array: the value; None for one that is filled in before each call.
        is_fixed: whether it stays the same array for the life of the program.
        is_constant: whether its contents stay the same, too.
        shape: of the value, where it is known before there is one.
        element_type: of the value, where it is known.
    """

    __slots__ = ("array", "element_type", "is_constant", "is_fixed", "shape")

    def __init__(
        self,
        array: Array = None,
        *,
        is_fixed: bool = False,
        is_constant: bool = False,
        shape: tuple[int, ...] | None = None,
        element_type: TensorElementType | None = None,
    ) -> None:
        self.array = array
        self.element_type = element_type
        self.shape = shape if array is None else getattr(array, "shape", None)
        self.is_fixed = is_fixed
        self.is_constant = is_constant
