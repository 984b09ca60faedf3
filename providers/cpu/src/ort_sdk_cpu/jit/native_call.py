"""Native calls: bound calls as lists of C function calls with fixed arguments, which compiled code can make without Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api.data_classes import dataclass

__all__ = ["CHECK_STATUS", "IGNORE_STATUS", "CallRow", "NativeCall", "in_sequence"]

CallRow = tuple[int, int, int, int, int, int]
"""Address of a C function, its four integer arguments, and a mask of the bits of its 32-bit status that must be 0."""

CHECK_STATUS, IGNORE_STATUS = 0xFFFFFFFF, 0
"""Masks of functions whose status must be 0, and of those whose status is ignored."""


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A bound call as C function calls; in the attribute ``native`` of such a call.

    Args:
        rows: the C function calls, in order.
        prepare: called before, on the thread that runs, to point tasks at its workspace; None if there is nothing to do.
    """

    rows: tuple[CallRow, ...]
    prepare: Callable[[], object] | None = None


def in_sequence(calls: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    """A call that makes several calls, one after the other; it is native if all of them are."""

    def run() -> None:
        for call in calls:
            call()

    natives: list[Any] = [getattr(call, "native", None) for call in calls]
    if None not in natives:
        run.native = _joined(natives)  # type: ignore[attr-defined]
    return run


def _joined(calls: Sequence[NativeCall]) -> NativeCall:
    """Several native calls as one."""
    prepares = [call.prepare for call in calls if call.prepare is not None]

    def prepare() -> None:
        for each in prepares:
            each()

    return NativeCall(tuple(row for call in calls for row in call.rows), prepare if prepares else None)
