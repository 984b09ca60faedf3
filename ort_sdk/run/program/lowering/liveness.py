"""Liveness and aliasing: until when a value's memory is in use, and which values may reach the user in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ort_sdk.plan import ABSENT
from ort_sdk.run.program.device_outline import DeviceOutline
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

from .device_views import are_views, described_bytes, hands_on
from .owners import is_copy, is_upload

__all__ = [
    "COPIED_BYTES",
    "DEVICE_COPIED_BYTES",
    "escaping_values",
    "is_device_view",
    "is_large_fetch",
    "is_small_view",
    "is_view",
    "last_uses",
    "may_be_view",
    "wanted_outputs",
]


COPIED_BYTES = (1 << 17) - (1 << 12)
"""Values of the user that are cheaper to copy from or to a fixed buffer than to read or write through a slot: calls on buffers
that stay can be joined with others. Larger ones get memory from the system page by page."""
DEVICE_COPIED_BYTES = 1 << 20
"""The same of values of the user on a device: copies within its memory take some microseconds."""


def is_view(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step's outputs are views of its first input; all others are known."""
    source, *others = launched.inputs or (ABSENT,)
    if not launched.outputs_known:
        return False
    recorded = [specialisation.values[index] for index in (source, *launched.outputs)]
    are_known = all(index == ABSENT or specialisation.constants.get(index) is not None for index in others)
    return are_known and all(isinstance(value, np.ndarray) and np.may_share_memory(value, recorded[0]) for value in recorded)


def may_be_view(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step's outputs share memory with its first input, as far as can be seen."""
    source = specialisation.values[launched.inputs[0]]
    outputs = [specialisation.values[index] for index in wanted_outputs(launched)]
    if not all(isinstance(value, np.ndarray) for value in (source, *outputs)):
        return True
    return any(np.may_share_memory(value, source) for value in outputs)


def is_small_view(launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> bool:
    """Whether a step's one output is a view that can be handed to the user as a copy."""
    provider = providers.get(launched.step.provider)
    if provider is None or not provider.device.is_cpu or launched.returns_tuple or not is_view(launched, specialisation):
        return False
    value = specialisation.values[launched.outputs[0]]
    return bool(value.nbytes <= COPIED_BYTES and not value.dtype.hasobject)


def is_device_view(launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> bool:
    """Whether a step only gives a value of a device another shape, or its rows, which its provider does without a kernel.

    Not what leaves the program on the device, but for small values that the user gets as copies.
    """
    provider = providers.get(launched.step.provider)
    if provider is None or not are_views(launched, specialisation, provider):
        return False
    if not set(launched.outputs).isdisjoint(_values_at_guards(specialisation)):
        return False
    fetched = [specialisation.values[index] for index in launched.outputs if index in specialisation.fetches]
    are_small = all(described_bytes(provider, value) <= DEVICE_COPIED_BYTES for value in fetched)
    return not fetched or (provider.copies_user_values and are_small)


def is_large_fetch(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether the user gets a large output that is not row-major."""
    fetched = [specialisation.values[index] for index in launched.outputs if index in specialisation.fetches]
    return any(value.nbytes > COPIED_BYTES and not value.flags.c_contiguous for value in fetched if isinstance(value, np.ndarray))


def wanted_outputs(launched: ProgramStep) -> list[int]:
    """The outputs that the node has."""
    return [index for index, own in zip(launched.outputs, launched.step.outputs, strict=True) if own != ABSENT]


def last_uses(specialisation: Specialisation, indices: set[int]) -> dict[int, int]:
    """Last step that may touch a value's memory.

    A kernel that is not bound may hand on views of inputs, so its outputs' lives extend theirs. A value that may reach the user
    that way, or leaves the program without a copy, is held past the last step. What is copied from the host to a device may be
    read until the work of the run is done: a bound copy holds it to the last step, any other past it.
    """
    end = len(specialisation.steps)
    held: dict[int, int] = dict.fromkeys((*specialisation.fetches, *_values_at_guards(specialisation)), end)
    for position in range(end - 1, -1, -1):
        launched = specialisation.steps[position]
        is_bound = any(index in indices for index in launched.outputs)
        viewed = [] if is_bound else _may_share(launched, specialisation)
        through: dict[int, int] = {}
        for source, target in viewed:
            through[source] = max(through.get(source, position), held.get(target, position))
        for index in launched.outputs:
            held.setdefault(index, position)
        last = position if not is_upload(launched) else end - 1 if is_bound else end
        for index in launched.inputs:
            held[index] = max(held.get(index, last), through.get(index, last), last)
    return held


def _values_at_guards(specialisation: Specialisation) -> Iterator[int]:
    """Values that are not on the host and may leave the program at a guard: they are not copied there."""
    for launched in specialisation.steps:
        if launched.guard is not None:
            yield from (index for index in launched.inputs if not isinstance(specialisation.values[index], np.ndarray))


def escaping_values(specialisation: Specialisation, indices: set[int], providers: Mapping[str, BindingProvider]) -> set[int]:
    """Values that unbound steps may hand to the user as they are, or as views that are not copied.

    And those that leave the program at a guard, or in copies to a device that are not bound, as they are.
    """
    escaping = set(_values_at_guards(specialisation))
    for launched in reversed(specialisation.steps):
        if any(index in indices for index in launched.outputs) or _are_maps(launched, specialisation):
            continue
        if is_upload(launched):
            escaping.update(launched.inputs)
            continue
        viewed = {
            source
            for source, target in _may_share(launched, specialisation)
            if target in escaping or target in specialisation.fetches
        }
        is_copied = is_small_view(launched, specialisation, providers) or is_device_view(launched, specialisation, providers)
        if viewed and not (is_copied and escaping.isdisjoint(launched.outputs)):
            escaping |= viewed
    return escaping


def _may_share(launched: ProgramStep, specialisation: Specialisation) -> list[tuple[int, int]]:
    """Values that a step reads and makes, and that may share memory: as its kernel declares, or as it was seen to.

    Of arrays on devices their provider was asked when they were made, if it can say; else what the kernel declares is believed.
    What was not looked at is taken to share.
    """
    if is_copy(launched):
        return []
    pairs = itertools.product(enumerate(launched.inputs), enumerate(launched.outputs))
    return [
        (source, target)
        for (number, source), (own, target) in pairs
        if _may_pair_share(launched, (number, own), source, specialisation.values[source], specialisation.values[target])
    ]


def _may_pair_share(launched: ProgramStep, pair: tuple[int, int], index: int, source: Any, target: Any) -> bool:
    """The same of one input, which is the value ``index``, and one output."""
    if pair[0] == 0 and hands_on(launched) and not isinstance(source, np.ndarray):
        return True  # the host may make views, whatever the kernel does
    # A fused kernel did not run when the values of its members were made.
    if isinstance(target, DeviceOutline) and not launched.members:
        return index in target.shares
    declared = launched.step.aliases
    return declared is None or pair in declared or _are_seen_to_share(source, target)


def _are_seen_to_share(source: Any, target: Any) -> bool:
    if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
        return np.may_share_memory(source, target)
    if isinstance(source, DeviceOutline) and isinstance(target, np.ndarray):
        return False
    return source is not None and target is not None


def _are_maps(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step gives lists of maps of Python's numbers and strings, as ZipMap does: they contain no views."""
    values = [specialisation.values[index] for index in wanted_outputs(launched)]
    return all(isinstance(value, list) and bool(value) and all(map(_is_plain_map, value)) for value in values)


def _is_plain_map(value: Any) -> bool:
    return isinstance(value, dict) and {*map(type, value.values())} <= {float, int, str}
