"""Binding: kernels that support it are given fixed buffers and become calls without arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ort_sdk.api import Array
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.plan import ABSENT, Step
from ort_sdk.run.program.arenas import ProgramArenas
from ort_sdk.run.program.slots import ValueSlot
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

from .buffers import SMALL_BYTES, BoundSteps, allocated_for, assign_buffers, bound_outputs, fix_buffer, stage_feeds
from .device_buffers import assign_device_buffers
from .liveness import escaping_values, is_large_fetch, is_small_view, is_view, may_be_view, wanted_outputs
from .value_charges import value_charges
from .workspaces import wanted_workspaces

__all__ = ["bind_steps", "can_bind"]


def bind_steps(specialisation: Specialisation, providers: Mapping[str, BindingProvider], arenas: ProgramArenas) -> BoundSteps:
    """Bind every step whose kernel offers it, whose shapes are known and whose provider can preallocate.

    Args:
        specialisation: steps with recorded values.
        providers: provider name → what binding needs; providers without an allocator are left out.
        arenas: memory shared by the session's programs.

    Raises:
        ProgramOutOfMemory: a device has not enough memory for the program's values.
    """
    bound = BoundSteps()
    candidates = {
        position: launched
        for position, launched in enumerate(specialisation.steps)
        if can_bind(launched, specialisation, providers)
    }
    if not candidates:
        return bound
    outputs = [
        output
        for position, launched in candidates.items()
        for output in bound_outputs(position, launched, specialisation, providers)
    ]
    escaping = escaping_values(specialisation, {output.index for output in outputs}, providers)
    workspaces = wanted_workspaces(candidates, specialisation, providers)
    of_host = [each for each in workspaces if each.provider.device.is_cpu]
    of_devices = [each for each in workspaces if not each.provider.device.is_cpu]
    on_devices = assign_buffers(outputs, of_host, specialisation, arenas.host, bound, escaping)
    assign_device_buffers(on_devices, of_devices, specialisation, arenas, bound)
    bound.charges = value_charges(outputs, specialisation, providers, bound)
    stage_feeds(specialisation, providers, bound, escaping)
    for position, launched in enumerate(specialisation.steps):
        if position not in candidates:
            _keep_view(position, launched, specialisation, providers, bound)
    _stage_small_values(specialisation, candidates, providers, bound)
    for position, launched in candidates.items():
        inputs = [_input_slot(index, specialisation, bound) for index in launched.inputs]
        written = [
            ValueSlot(is_fixed=True) if own == ABSENT else bound.slots[index]
            for index, own in zip(launched.outputs, launched.step.outputs, strict=True)
        ]
        bound.calls[position] = _bind(launched.step, inputs, written, bound.workspaces.get(position))
        bound.providers[position] = providers[launched.step.provider].execution_provider
    return bound


def _bind(step: Step, inputs: list[ValueSlot], outputs: list[ValueSlot], workspace: Array | None) -> Callable[[], None]:
    given = (workspace,) if hasattr(step.kernel, "workspace_bytes") else ()
    try:
        call: Callable[[], None] = step.kernel.bind(inputs, outputs, *given)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        raise_foreign(error, f"while {step.provider} bound {step.op_type} node '{step.node}'")
    return call


def _keep_view(
    position: int,
    launched: ProgramStep,
    specialisation: Specialisation,
    providers: Mapping[str, BindingProvider],
    bound: BoundSteps,
) -> None:
    """Run a step now that only makes a view of a buffer, as a transposition does: the view stays the same.

    The buffer lives as long as what is made of it, since a step that is not bound may hand on views anyway. A view that the user
    gets is copied.
    """
    source, *others = launched.inputs or (ABSENT,)
    buffer = bound.buffers.get(source)
    fetched = set(specialisation.fetches).intersection(launched.outputs)
    if not isinstance(buffer, np.ndarray) or not is_view(launched, specialisation):
        return
    if fetched and not is_small_view(launched, specialisation, providers):
        return
    views = launched.step.compute(buffer, *[specialisation.constants.get(index) for index in others])
    made = views if launched.returns_tuple else (views,)
    if not all(isinstance(view, np.ndarray) and np.may_share_memory(view, buffer) for view in made):
        return
    for target, view in zip(launched.outputs, made, strict=True):
        fix_buffer(target, view, bound)
    bound.views.add(position)
    bound.copied.update(fetched)


def can_bind(launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> bool:
    """Whether a step's kernel offers binding, its shapes are known, and its provider can preallocate.

    Not for what can be a view, but for a large one that would be copied for the user: the kernel is faster at that.
    """
    return (
        launched.outputs_known
        and getattr(launched.step.kernel, "bind", None) is not None
        and launched.step.provider in providers
        and any(launched.step.outputs)
        and all(hasattr(specialisation.values[index], "shape") for index in wanted_outputs(launched))
        and not (
            getattr(launched.step.kernel, "returns_views", False)
            and may_be_view(launched, specialisation)
            and not is_large_fetch(launched, specialisation)
        )
    )


def _stage_small_values(
    specialisation: Specialisation,
    candidates: Mapping[int, ProgramStep],
    providers: Mapping[str, BindingProvider],
    bound: BoundSteps,
) -> None:
    """Give staging buffers to small values that unbound steps make and bound steps read, so that the latter read no slots."""
    readers: dict[int, set[str]] = {}
    for launched in candidates.values():
        for index in launched.inputs:
            readers.setdefault(index, set()).add(launched.step.provider)
    checked = specialisation.checked
    for position, launched in enumerate(specialisation.steps):
        if position in candidates or position in bound.views:
            continue
        for index in wanted_outputs(launched):
            value, names = specialisation.values[index], readers.get(index, set())
            is_known = launched.outputs_known or index in checked
            is_small = isinstance(value, np.ndarray) and value.nbytes <= SMALL_BYTES and not value.dtype.hasobject
            if names and is_known and is_small and all(providers[name].device.is_cpu for name in names):
                buffer = allocated_for(value, providers[min(names)])
                bound.staging[index], bound.slots[index] = buffer, ValueSlot(buffer, is_fixed=True)


def _input_slot(index: int, specialisation: Specialisation, bound: BoundSteps) -> ValueSlot:
    slot = bound.slots.get(index)
    if slot is None:
        constant: Any = specialisation.constants.get(index)
        is_constant = index in specialisation.constants
        shape = getattr(specialisation.values[index], "shape", None)
        slot = ValueSlot(constant, is_fixed=is_constant, is_constant=is_constant, shape=shape)
        bound.slots[index] = slot
    return slot
