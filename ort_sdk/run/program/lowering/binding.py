"""Binding: kernels that support it are given fixed buffers and become calls without arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, TensorElementType, element_type_of
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.memory import DeviceCopy
from ort_sdk.plan import ABSENT, Step
from ort_sdk.run.program.arenas import ProgramArenas
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.slots import ValueSlot
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

from .buffers import (
    SMALL_BYTES,
    BoundOutput,
    BoundSteps,
    allocate_in_runs,
    allocated_for,
    assign_buffers,
    bound_outputs,
    feed_copier,
    fetch_copier,
    fix_buffer,
    staying_outputs,
)
from .device_buffers import assign_device_buffers
from .device_views import made_views
from .liveness import (
    escaping_values,
    is_device_view,
    is_large_fetch,
    is_small_view,
    is_view,
    last_uses,
    may_be_view,
    wanted_outputs,
)
from .owners import host_provider, is_upload, memory_of, owner_of
from .user_values import FeedStaging
from .value_charges import value_charges
from .workspaces import Workspace, wanted_workspaces

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
    layout = _chosen_layout(specialisation, providers)
    if not layout.candidates:
        return bound
    _assign_memory(layout, wanted_workspaces(layout.candidates, specialisation, providers), specialisation, arenas, bound)
    for position, launched in enumerate(specialisation.steps):
        if position not in layout.candidates:
            _keep_view(position, launched, specialisation, providers, bound)
    _stage_small_values(specialisation, layout.candidates, providers, bound)
    for position, launched in layout.candidates.items():
        owner = owner_of(launched, providers)
        if owner is None:
            continue
        inputs = [_input_slot(index, specialisation, owner, bound) for index in launched.inputs]
        written = [
            ValueSlot(is_fixed=True) if own == ABSENT else bound.slots[index]
            for index, own in zip(launched.outputs, launched.step.outputs, strict=True)
        ]
        bound.calls[position] = _bind(launched.step, inputs, written, bound.workspaces.get(position))
        bound.providers[position] = owner.execution_provider
    bound.charges = value_charges(specialisation, providers, bound)
    return bound


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which steps are bound, and which of the values that they touch stay in the same memory."""

    candidates: dict[int, ProgramStep]
    outputs: list[BoundOutput]
    staying: set[int]
    """Outputs that are in the same memory in each run."""
    held: dict[int, int]
    """Value → last step that may touch it."""
    staging: FeedStaging
    feeds: dict[int, BindingProvider]


def _chosen_layout(specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> _Layout:
    """Choose what is bound, and what stays in the same memory.

    A step on a device that can be a view is none of those that are bound, unless what it would be a view of changes from run to
    run.
    """
    bindable = {
        position: launched
        for position, launched in enumerate(specialisation.steps)
        if can_bind(launched, specialisation, providers)
    }
    views = {
        position: launched
        for position, launched in enumerate(specialisation.steps)
        if is_device_view(launched, specialisation, providers)
    }
    while True:
        candidates = {position: launched for position, launched in bindable.items() if position not in views}
        layout = _layout(candidates, specialisation, providers)
        staying = layout.staying | layout.feeds.keys()
        for launched in views.values():
            if launched.inputs[0] in staying:
                staying.update(launched.outputs)
        moving = [position for position in bindable.keys() & views.keys() if views[position].inputs[0] not in staying]
        if not moving:
            return layout
        del views[min(moving)]


def _layout(
    candidates: dict[int, ProgramStep], specialisation: Specialisation, providers: Mapping[str, BindingProvider]
) -> _Layout:
    outputs = [
        output
        for position, launched in candidates.items()
        for output in bound_outputs(position, launched, specialisation, providers)
    ]
    escaping = escaping_values(specialisation, {output.index for output in outputs}, providers)
    held = last_uses(specialisation, {output.index for output in outputs})
    staying = staying_outputs(outputs, specialisation, held, escaping)
    staging = FeedStaging(specialisation, providers, escaping)
    return _Layout(candidates, outputs, staying, held, staging, staging.choose(candidates))


def _assign_memory(
    layout: _Layout, workspaces: Sequence[Workspace], specialisation: Specialisation, arenas: ProgramArenas, bound: BoundSteps
) -> None:
    """Say where everything is that bound steps read and write."""
    fetched, held = set(specialisation.fetches), layout.held
    staying = [output for output in layout.outputs if output.index in layout.staying]
    allocate_in_runs([output for output in layout.outputs if output.index not in layout.staying], specialisation, bound)
    on_host = [output for output in staying if output.is_on_host]
    assign_buffers(on_host, [each for each in workspaces if each.is_on_host], held, arenas.host, bound)
    bound.copied.update(fetched.intersection(output.index for output in on_host))
    layout.staging.stage(layout.feeds, bound)
    values = [
        *(output.on_device(held[output.index]) for output in staying if not output.is_on_host),
        *layout.staging.on_devices(layout.feeds, held),
    ]
    assign_device_buffers(values, [each for each in workspaces if not each.is_on_host], specialisation, arenas, bound)
    for value in values:
        if value.index in layout.feeds:
            bound.device_feeds[value.index] = feed_copier(value.provider, bound.buffers[value.index])
        elif value.index in fetched:
            bound.device_fetches[value.index] = fetch_copier(value.provider, value.shape, value.element_type)


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
    if buffer is not None and is_device_view(launched, specialisation, providers):
        _keep_device_view(position, launched, specialisation, providers[launched.step.provider], bound)
        return
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
        fix_buffer(target, view, bound.slots[source].element_type, bound)
    bound.views.add(position)
    bound.copied.update(fetched)


def _keep_device_view(
    position: int, launched: ProgramStep, specialisation: Specialisation, provider: BindingProvider, bound: BoundSteps
) -> None:
    """The same for a buffer on a device, whose provider makes the views."""
    views = made_views(launched, specialisation, provider, bound.buffers[launched.inputs[0]])
    if views is None:
        return
    for target, view in zip(launched.outputs, views, strict=True):
        element_type, shape = described_value(provider.execution_provider, specialisation.values[target])
        fix_buffer(target, view, element_type, bound)
        if target in specialisation.fetches:
            bound.device_fetches[target] = fetch_copier(provider, shape, element_type)
    bound.views.add(position)


def can_bind(launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> bool:
    """Whether a step's kernel offers binding, its shapes are known, and its provider can preallocate.

    Not for what can be a view, but for a large one that would be copied for the user: the kernel is faster at that.
    """
    return (
        launched.outputs_known
        and getattr(launched.step.kernel, "bind", None) is not None
        and memory_of(launched, providers) is not None
        and _may_bind_copy(launched, specialisation)
        and any(launched.step.outputs)
        and all(hasattr(specialisation.values[index], "shape") for index in wanted_outputs(launched))
        and not (
            getattr(launched.step.kernel, "returns_views", False)
            and may_be_view(launched, specialisation)
            and not is_large_fetch(launched, specialisation)
        )
    )


def _may_bind_copy(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step is no copy between devices, or one that can be bound: of a tensor of numbers, by a transfer that binds.

    Not to a device, if the device might still read what it was given when the program runs the next time.
    """
    kernel = launched.step.kernel
    if not isinstance(kernel, DeviceCopy):
        return True
    value = specialisation.values[launched.inputs[0] if kernel.is_upload else launched.outputs[0]]
    is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return is_array and kernel.may_bind and not (kernel.is_upload and specialisation.is_repeated)


def _stage_small_values(
    specialisation: Specialisation,
    candidates: Mapping[int, ProgramStep],
    providers: Mapping[str, BindingProvider],
    bound: BoundSteps,
) -> None:
    """Give staging buffers to small values that unbound steps make and bound steps read, so that the latter read no slots."""
    readers: dict[int, list[BindingProvider | None]] = {}
    for launched in candidates.values():
        reader = host_provider(providers) if is_upload(launched) else owner_of(launched, providers)
        for index in launched.inputs:
            readers.setdefault(index, []).append(reader)
    checked = specialisation.checked
    for position, launched in enumerate(specialisation.steps):
        if position in candidates or position in bound.views:
            continue
        for index in wanted_outputs(launched):
            value, own = specialisation.values[index], [reader for reader in readers.get(index, []) if reader is not None]
            is_known = launched.outputs_known or index in checked
            is_small = isinstance(value, np.ndarray) and value.nbytes <= SMALL_BYTES and not value.dtype.hasobject
            if own and is_known and is_small and all(reader.device.is_cpu for reader in own):
                provider = min(own, key=lambda reader: reader.execution_provider.name)
                buffer, element_type = allocated_for(value, provider), described_value(provider.execution_provider, value)[0]
                bound.staging[index] = buffer
                bound.slots[index] = ValueSlot(buffer, is_fixed=True, element_type=element_type)


def _input_slot(index: int, specialisation: Specialisation, owner: BindingProvider, bound: BoundSteps) -> ValueSlot:
    slot = bound.slots.get(index)
    if slot is None:
        constant: Any = specialisation.constants.get(index)
        is_constant = index in specialisation.constants
        value = specialisation.values[index]
        shape = getattr(value, "shape", None)
        element_type = None if shape is None else _element_type(value, owner)
        slot = ValueSlot(constant, is_fixed=is_constant, is_constant=is_constant, shape=shape, element_type=element_type)
        bound.slots[index] = slot
    return slot


def _element_type(value: Any, owner: BindingProvider) -> TensorElementType:
    """Element type of a tensor that a step reads, on the host or on the device of its provider."""
    return element_type_of(value) if isinstance(value, np.ndarray) else described_value(owner.execution_provider, value)[0]
