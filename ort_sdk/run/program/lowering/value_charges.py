"""What a replayed run holds on devices beside its program's arena: feeds and results, counted while the run lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ort_sdk.api import OrtDevice
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.specialisation import Specialisation
from ort_sdk.run.program.value_charge import ValueCharge
from ort_sdk.run.types import BindingProvider

from .buffers import BoundSteps
from .device_views import described_bytes
from .owners import memory_of

__all__ = ["value_charges"]


def value_charges(
    specialisation: Specialisation, providers: Mapping[str, BindingProvider], bound: BoundSteps
) -> list[ValueCharge]:
    """What each run of a program takes, by device.

    Args:
        specialisation: the program's steps.
        providers: provider name → what binding needs.
        bound: the bound steps.
    """
    charges: list[ValueCharge] = []
    counted: set[OrtDevice] = set()
    for provider in providers.values():
        if provider.device.is_cpu:
            continue
        # Feeds are on a device, and not of a provider: they count once.
        indices = [] if provider.device in counted else list(_fed(specialisation, provider))
        counted.add(provider.device)
        indices += _made(specialisation, providers, provider, bound)
        if indices:
            charges.append(_charge(indices, specialisation, provider))
    return charges


def _charge(indices: Iterable[int], specialisation: Specialisation, provider: BindingProvider) -> ValueCharge:
    """What values take in each run; names the largest."""
    own = provider.execution_provider
    sizes = {index: described_bytes(provider, specialisation.values[index]) for index in indices}
    largest = max(sizes, key=lambda index: sizes[index])
    element_type, shape = described_value(own, specialisation.values[largest])
    name = f"{element_type.name}{list(shape)} of {specialisation.origin_of(largest)}"
    purpose = f"a run's feeds and results, {sizes[largest]} bytes of them for {name},"
    return ValueCharge(own.memory_account, sum(sizes.values()), purpose)


def _fed(specialisation: Specialisation, provider: BindingProvider) -> Iterator[int]:
    """The feeds on a device; not those whose shapes are not known, and not those that its kernels read on the host."""
    for feed in specialisation.plan.feeds:
        value = specialisation.values[feed.index]
        is_known = feed.index not in specialisation.dynamic_feeds and hasattr(value, "shape")
        if feed.device == provider.device and is_known and not isinstance(value, np.ndarray):
            yield feed.index


def _made(
    specialisation: Specialisation, providers: Mapping[str, BindingProvider], provider: BindingProvider, bound: BoundSteps
) -> Iterator[int]:
    """The values of a provider that are, or that the user gets as, arrays that are new in each run."""
    for launched in specialisation.steps:
        if memory_of(launched, providers) is provider:
            yield from (index for index in launched.outputs if index in bound.fresh or index in bound.device_fetches)
