"""How a context asks which of several forms of a computation is the fastest on its device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

__all__ = ["FormChoice"]


class FormChoice(Protocol):
    """What is known of forms' times; ``ort_sdk.device.drivers.Tuning`` keeps it on disk. Thread-safe."""

    times: bool
    """Whether forms are compared where no choice is known."""

    def chosen(self, key: tuple[str | int, ...], forms: Collection[str]) -> str | None:
        """The form that was found to be fastest; None if none is known, or it is not one of these."""

    def compared(self, key: tuple[str | int, ...], forms: Mapping[str, Callable[[], None]], wait: Callable[[], None]) -> str:
        """The fastest form, which is kept.

        Args:
            key: what is computed.
            forms: name → queues the computation in this form; the first one is that which must work.
            wait: waits for what was queued.
        """
