"""What a replayed run holds on devices beside its program's arena: feeds and results, counted while the run lasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ort_sdk.api import OrtDevice
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.specialisation import Specialisation
from ort_sdk.run.program.value_charge import ValueCharge
from ort_sdk.run.types import BindingProvider

from .buffers import BoundOutput, BoundSteps, bytes_of

__all__ = ["value_charges"]


def value_charges(
    outputs: Sequence[BoundOutput], specialisation: Specialisation, providers: Mapping[str, BindingProvider], bound: BoundSteps
) -> list[ValueCharge]:
    """What each run of a program takes, by device.

    Args:
        outputs: of all bound steps.
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
        fed = () if provider.device in counted else _fed(specialisation, provider)
        counted.add(provider.device)
        values = [*fed, *_made(outputs, specialisation, provider, bound)]
        if values:
            largest, name = max(values)
            account, total = provider.execution_provider.memory_account, sum(nbytes for nbytes, _ in values)
            charges.append(ValueCharge(account, total, f"a run's feeds and results, {largest} bytes of them {name},"))
    return charges


def _fed(specialisation: Specialisation, provider: BindingProvider) -> Iterator[tuple[int, str]]:
    """Bytes and name of each feed on a device; not of those whose shapes are not known."""
    for feed in specialisation.plan.feeds:
        value = specialisation.values[feed.index]
        is_known = feed.index not in specialisation.dynamic_feeds and hasattr(value, "shape")
        if feed.device == provider.device and is_known:
            element_type, shape = described_value(provider.execution_provider, value)
            nbytes = int(np.prod(shape, dtype=np.int64)) * element_type.numpy_dtype.itemsize
            yield nbytes, f"for the feed '{feed.name}', {element_type.name}{list(shape)}"


def _made(
    outputs: Sequence[BoundOutput], specialisation: Specialisation, provider: BindingProvider, bound: BoundSteps
) -> Iterator[tuple[int, str]]:
    """Bytes and name of each array that is new in each run."""
    for output in outputs:
        if output.index in bound.fresh and output.provider is provider:
            step = specialisation.steps[output.position].step
            name = f"for {output.element_type.name}{list(output.shape)} of {step.op_type} node '{step.node}'"
            yield bytes_of(output), name
