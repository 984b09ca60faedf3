"""Times of steps by the devices' own clocks, where work is queued and the host sees only how long that took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ort_sdk.api import ExecutionProvider
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.plan import Step

from .executor import StepObserver

__all__ = ["DeviceTimes", "clocks_of"]


def clocks_of(providers: Iterable[ExecutionProvider]) -> dict[str, ExecutionProvider]:
    """Provider name → those that say what their device's work takes."""
    return {each.name: each for each in providers if type(each).seconds_between is not ExecutionProvider.seconds_between}


class DeviceTimes:
    """Times the steps of one run (the executor's ``StepTimer``).

    Args:
        observer: gets the time of each step: at once, or for steps of devices with a clock from ``finish``.
        providers: provider name → those with a clock.
    """

    def __init__(self, observer: StepObserver, providers: Mapping[str, ExecutionProvider]) -> None:
        self._observer, self._providers = observer, providers
        self._begun: list[Any] = []
        """Stamps before the steps that are under way; None for steps that the host's clock times."""
        self._queued: dict[str, list[tuple[Step, int, Any, Any]]] = {}
        """Provider → steps with the host's time at their start, and the stamps around them."""

    def begin(self, step: Step) -> None:
        """Called before a step."""
        provider = self._providers.get(step.provider)
        self._begun.append(None if provider is None else provider.stamp())

    def __call__(self, step: Step, start_ns: int, duration_ns: int) -> None:
        """Called after a step."""
        begun = self._begun.pop()
        provider = self._providers.get(step.provider)
        if provider is None:
            self._observer(step, start_ns, duration_ns)
        else:
            self._queued.setdefault(step.provider, []).append((step, start_ns, begun, provider.stamp()))

    def finish(self) -> None:
        """Wait for the devices, and hand on the times of their steps: from the first one's start by the host's clock."""
        for name, steps in self._queued.items():
            provider = self._providers[name]
            _, origin_ns, origin, _ = steps[0]
            try:
                provider.synchronize()
                offsets = [provider.seconds_between(origin, start) for _, _, start, _ in steps]
                seconds = [provider.seconds_between(start, end) for _, _, start, end in steps]
            except Exception as error:  # noqa: BLE001 - a provider may raise anything
                raise_foreign(error, f"raised by {name} when its steps' times were read")
            for (step, *_), offset, duration in zip(steps, offsets, seconds, strict=True):
                self._observer(step, origin_ns + round(offset * 1e9), round(duration * 1e9))
        self._queued.clear()
