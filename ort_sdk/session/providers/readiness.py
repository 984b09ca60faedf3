"""When values are ready: a run may end before the device's work on its results, or with what it was fed, is done."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ort_sdk.api import Event, ExecutionProvider
from ort_sdk.api.foreign_errors import raise_foreign

from .opened import SessionProvider

__all__ = ["Ready", "recorded", "settle"]


class Ready:
    """The end of a run's work on one device; shared by all values that the run touched there.

    Args:
        event: what happens then.
        execution_provider: whose work it is.
    """

    __slots__ = ("event", "execution_provider")

    def __init__(self, event: Event, execution_provider: ExecutionProvider) -> None:
        self.event = event
        self.execution_provider = execution_provider

    def wait(self) -> None:
        """Block until it happened; raises what the work raised, naming the provider."""
        try:
            self.event.wait()
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            raise_foreign(error, f"raised by work that was queued by {self.execution_provider.name}")

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
