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

__all__ = [
    "COPIED_BYTES",
    "escaping_values",
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
    that way, or leaves the program without a copy, is held past the last step.
    """
    end = len(specialisation.steps)
    held: dict[int, int] = dict.fromkeys((*specialisation.fetches, *_values_at_guards(specialisation)), end)
    for position in range(end - 1, -1, -1):
        launched = specialisation.steps[position]
        viewed = [] if any(index in indices for index in launched.outputs) else _may_share(launched, specialisation)
        through: dict[int, int] = {}
        for source, target in viewed:
            through[source] = max(through.get(source, position), held.get(target, position))
        for index in launched.outputs:
            held.setdefault(index, position)
        for index in launched.inputs:
            held[index] = max(held.get(index, position), through.get(index, position))
    return held


def _values_at_guards(specialisation: Specialisation) -> Iterator[int]:
    """Values that are not on the host and may leave the program at a guard: they are not copied there."""
    for launched in specialisation.steps:
        if launched.guard is not None:
            yield from (index for index in launched.inputs if not isinstance(specialisation.values[index], np.ndarray))


def escaping_values(specialisation: Specialisation, indices: set[int], providers: Mapping[str, BindingProvider]) -> set[int]:
    """Values that unbound steps may hand to the user as they are, or as views that are not copied."""
    escaping: set[int] = set()
    for launched in reversed(specialisation.steps):
        if any(index in indices for index in launched.outputs) or _are_maps(launched, specialisation):
            continue
        viewed = {
            source
            for source, target in _may_share(launched, specialisation)
            if target in escaping or target in specialisation.fetches
        }
        if viewed and not is_small_view(launched, specialisation, providers):
            escaping |= viewed
    return escaping


def _may_share(launched: ProgramStep, specialisation: Specialisation) -> list[tuple[int, int]]:
    """Values that a step reads and makes, and that may share memory: as its kernel declares, or as it was seen to.

    Of arrays on devices their provider was asked when they were made, if it can say; else what the kernel declares is believed.
    What was not looked at is taken to share.
    """
    pairs = itertools.product(enumerate(launched.inputs), enumerate(launched.outputs))
    return [
        (source, target)
        for (number, source), (own, target) in pairs
        if _may_pair_share(launched, (number, own), source, specialisation.values[source], specialisation.values[target])
    ]


def _may_pair_share(launched: ProgramStep, pair: tuple[int, int], index: int, source: Any, target: Any) -> bool:
    """The same of one input, which is the value ``index``, and one output."""
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
