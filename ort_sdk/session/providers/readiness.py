"""When values are ready: a run may end before the device's work on its results, or with what it was fed, is done."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from typing import NoReturn

from ort_sdk.api import Event, ExecutionProvider
from ort_sdk.api.foreign_errors import raise_foreign

from .opened import SessionProvider

__all__ = ["Ready", "recorded", "settle"]

MOST_FOLLOWED = 64
"""Runs on one value that may be under way, and whose errors those after them raise; ``OrtValue.synchronize`` raises any."""


class _End:
    """The end of one run's work."""

    __slots__ = ("event", "execution_provider", "was_raised")

    def __init__(self, event: Event, execution_provider: ExecutionProvider) -> None:
        self.event, self.execution_provider = event, execution_provider
        self.was_raised = False
        """Whether its error was raised."""

    def error(self) -> Exception | None:
        """Block until it happened; what the work raised."""
        try:
            self.event.wait()
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            return error
        return None

    def raise_error(self, error: Exception) -> NoReturn:
        """Raise what the work raised, naming the provider."""
        self.was_raised = True
        raise_foreign(error, f"raised by work that was queued by {self.execution_provider.name}")

    def is_over(self) -> bool:
        """Whether it is known that there is no error left to raise: all went well, or it was raised."""
        return self.was_raised or (self.event.is_done and self.error() is None)


class Ready:
    """The end of a run's work on one device; shared by all values that the run touched there.

    Args:
        event: what happens then.
        execution_provider: whose work it is.
    """

    __slots__ = ("_after", "_end")

    def __init__(self, event: Event, execution_provider: ExecutionProvider) -> None:
        self._end = _End(event, execution_provider)
        self._after: tuple[_End, ...] = ()

    @property
    def event(self) -> Event:
        """What happens then."""
        return self._end.event

    @property
    def execution_provider(self) -> ExecutionProvider:
        """Whose work it is."""
        return self._end.execution_provider

    def wait(self) -> None:
        """Block until it happened; raises what the work raised, naming the provider."""
        earlier, self._after = self._after, ()
        # the last one first: the others need no wait of their own then
        failed = [(end, error) for end in (self._end, *earlier) if (error := end.error()) is not None]
        for end, error in (*failed[1:], *failed[:1]):
            if end is self._end or not end.was_raised:
                end.raise_error(error)

    def raise_unraised(self) -> None:
        """Block until it happened; raises what the work raised, unless that was raised before."""
        if not self._end.was_raised:
            self.wait()

    def follow(self, earlier: Iterable[Ready]) -> None:
        """Raise errors of earlier runs on the same values, too: what was made of their results is no better.

        Args:
            earlier: ends of these runs; those that went well, or whose error was raised, are not kept.
        """
        found = dict.fromkeys(end for each in earlier for end in (*each._after, each._end))
        # what was queued first is done first
        self._after = tuple(itertools.dropwhile(_End.is_over, found))[-MOST_FOLLOWED:]

    def precede(self, execution_provider: ExecutionProvider | None) -> None:
        """Let work that a provider queues from now on come after it; None for work of the host."""
        if execution_provider is self.execution_provider:
            return  # one object's work is in order
        if execution_provider is None:
            self.wait()
            return
        try:
            execution_provider.order_after(self.event)
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            raise_foreign(error, f"raised in order_after of {execution_provider.name}")


def recorded(provider: SessionProvider) -> Ready:
    """The end of the work that a provider queued so far."""
    try:
        return Ready(provider.execution_provider.record_event(), provider.execution_provider)
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise_foreign(error, f"raised in record_event of {provider.name}")


def settle(providers: Sequence[SessionProvider]) -> None:
    """Wait for the queued work of a run that failed: its caller may free or overwrite what the run reads and writes."""
    for provider in providers:
        # What failed is being raised already.
        with contextlib.suppress(Exception):
            provider.execution_provider.synchronize()
