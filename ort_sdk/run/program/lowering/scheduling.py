"""Order of steps: what computes on the host goes ahead, so that calls of a device follow each other and can be joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ort_sdk.plan import ABSENT
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation, is_declared
from ort_sdk.run.types import BindingProvider

from .binding import can_bind
from .owners import is_upload, owner_of

__all__ = ["with_host_steps_ahead"]


def with_host_steps_ahead(specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> Specialisation:
    """The steps in an order in which as few as possible on the host are between those on a device that joins calls.

    Guards, and kernels that declare nothing, stay where they are among all others.

    Args:
        specialisation: steps with recorded values.
        providers: provider name → what binding needs.
    """
    if not any(provider.joins_calls and not provider.device.is_cpu for provider in providers.values()):
        return specialisation

    def is_on_device(launched: ProgramStep) -> bool:
        owner = owner_of(launched, providers)
        is_call = not is_upload(launched) or can_bind(launched, specialisation, providers)
        return owner is not None and not owner.device.is_cpu and is_call

    steps: list[ProgramStep] = []
    for section in _sections(specialisation.steps):
        steps.extend(_ordered(section, is_on_device))
    return replace(specialisation, steps=steps)


def _sections(steps: Sequence[ProgramStep]) -> Iterator[list[ProgramStep]]:
    """Steps between those that nothing may pass, and those, each on its own."""
    section: list[ProgramStep] = []
    for launched in steps:
        if launched.guard is None and all(map(is_declared, launched.members or (launched.step,))):
            section.append(launched)
            continue
        yield section
        yield [launched]
        section = []
    yield section


def _ordered(section: Sequence[ProgramStep], is_on_device: Callable[[ProgramStep], bool]) -> Iterator[ProgramStep]:
    """Steps on the host as far as they go without the device, then those on the device as far as they go, and so on."""
    kinds = [(launched, is_on_device(launched)) for launched in section]
    missing = {index for launched in section for index in launched.outputs} - {ABSENT}
    wanted = False
    while kinds:
        left = []
        for launched, kind in kinds:
            if kind is wanted and missing.isdisjoint(launched.inputs):
                missing.difference_update(launched.outputs)
                yield launched
            else:
                left.append((launched, kind))
        kinds, wanted = left, not wanted
