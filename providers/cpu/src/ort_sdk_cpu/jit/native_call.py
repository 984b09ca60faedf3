"""What a call comes to where it needs no Python: C functions on arguments that stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api.data_classes import dataclass

__all__ = ["ALL_BITS", "NO_BITS", "NativeCall", "Row", "in_turn"]

Row = tuple[int, int, int, int, int, int]
"""Address of a C function, four words for it, and which bits of the 32-bit number it returns must be 0."""

ALL_BITS, NO_BITS = 0xFFFFFFFF, 0


@dataclass(frozen=True, slots=True)
class NativeCall:
    """What a call comes to.

    Args:
        rows: functions to call one after the other.
        prepare: called before, on the thread that runs, to point at its working memory; None if there is nothing to do.
    """

    rows: tuple[Row, ...]
    prepare: Callable[[], object] | None = None


def in_turn(calls: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    """A call that makes several, one after the other; it needs no Python if none of them does."""

    def run() -> None:
        for call in calls:
            call()

    natives: list[Any] = [getattr(call, "native", None) for call in calls]
    if None not in natives:
        run.native = _joined(natives)  # type: ignore[attr-defined]
    return run


def _joined(calls: Sequence[NativeCall]) -> NativeCall:
    """Several calls, one after the other."""
    prepares = [call.prepare for call in calls if call.prepare is not None]

    def prepare() -> None:
        for each in prepares:
            each()

    return NativeCall(tuple(row for call in calls for row in call.rows), prepare if prepares else None)
