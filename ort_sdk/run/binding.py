"""Binding: kernels that can are given fixed buffers and become calls without arguments."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ort_sdk.api import (
    Array,
    ExecutionProvider,
    HostArray,
    SupportsResults,
    TensorElementType,
    may_overwrite,
)
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.memory import Arena, BufferLifetime, lay_out
from ort_sdk.memory.provider_memory import allocated, described
from ort_sdk.plan import ABSENT, Step

from .plan_runner import BindingProvider
from .slots import ValueSlot
from .specialise import ProgramStep, Specialisation

__all__ = ["BoundSteps", "bind_steps", "can_bind"]


COPIED_BYTES = (1 << 17) - (1 << 12)
"""Values of the user that are cheaper to copy from or to a fixed buffer than to read or write through a slot: calls on buffers
that stay can be joined with others. Larger ones get memory from the system page by page."""
SMALL_BYTES = 1 << 12
"""Those that cost nearly nothing."""
COPIED_BYTES_IN_ALL = 1 << 19
"""What a program copies of others before, and after, it runs."""


@dataclass(slots=True)
class BoundSteps:
    """The bound part of a program."""

    calls: dict[int, Callable[[], None]] = field(default_factory=dict)
    """Position of a step → its call."""
    slots: dict[int, ValueSlot] = field(default_factory=dict)
    """Value → the slot bound kernels see it through."""
    buffers: dict[int, Array] = field(default_factory=dict)
    """Value → its buffer, fixed for the life of the program."""
    fresh: dict[int, Callable[[], Array]] = field(default_factory=dict)
    """Value handed to the user → makes the array for this run."""
    copied: set[int] = field(default_factory=set)
    """Values handed to the user as copies of their buffers, which are NumPy's arrays."""
    feeds: set[int] = field(default_factory=set)
    """Values of the user that each run copies to their buffers."""
    providers: dict[int, ExecutionProvider] = field(default_factory=dict)
    """Position of a step → the provider whose call it is."""
    landings: dict[int, HostArray] = field(default_factory=dict)
    """Value of a step that is not bound → the buffer it is copied to for steps that are."""
    memory: list[HostArray] = field(default_factory=list)
    """Memory on the host that each run writes to."""
    views: set[int] = field(default_factory=set)
    """Positions of steps that are done for good: their outputs are views of buffers."""


@dataclass(slots=True)
class _Output:
    index: int
    position: int
    element_type: TensorElementType
    shape: tuple[int, ...]
    provider: BindingProvider
    order: tuple[int, ...] | None
    """Axes from the outermost in memory to the innermost; None is row-major."""
    is_moving: bool
    """Whether the kernel writes to other memory in each run as fast as to memory that stays, and no other reads it there."""
    overwritten: tuple[int, ...]
    """Inputs of the kernel that it may be in the memory of."""


def bind_steps(specialisation: Specialisation, providers: Mapping[str, BindingProvider], arena: Arena) -> BoundSteps:
    """Bind every step whose kernel offers it, whose shapes are known and whose provider can preallocate.

    Args:
        specialisation: steps with recorded values.
        providers: provider name → what binding needs; providers without an allocator are left out.
        arena: host memory shared by the session's programs.
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
        output for position, launched in candidates.items() for output in _outputs(position, launched, specialisation, providers)
    ]
    escaping = _escaping(specialisation, {output.index for output in outputs}, providers)
    _give_buffers(outputs, specialisation, arena, bound, escaping)
    _copy_feeds(specialisation, providers, bound, escaping)
    for position, launched in enumerate(specialisation.steps):
        if position not in candidates:
            _keep_view(position, launched, specialisation, providers, bound)
    _land(specialisation, candidates, providers, bound)
    for position, launched in candidates.items():
        inputs = [_input_slot(index, specialisation, bound) for index in launched.inputs]
        written = [
            ValueSlot(is_fixed=True) if own == ABSENT else bound.slots[index]
            for index, own in zip(launched.outputs, launched.step.outputs, strict=True)
        ]
        bound.calls[position] = _bind(launched.step, inputs, written)
        bound.providers[position] = providers[launched.step.provider].execution_provider
    return bound


def _bind(step: Step, inputs: list[ValueSlot], outputs: list[ValueSlot]) -> Callable[[], None]:
    try:
        call: Callable[[], None] = step.kernel.bind(inputs, outputs)
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
    """Do a step now that only looks at a buffer in another way, as a transposition does: the view stays the same.

    The buffer lives as long as what is made of it, since a step that is not bound may hand on views anyway. A view that the user
    gets is copied.
    """
    source, *others = launched.inputs or (ABSENT,)
    buffer = bound.buffers.get(source)
    fetched = set(specialisation.fetches).intersection(launched.outputs)
    if not isinstance(buffer, np.ndarray) or not _is_view(launched, specialisation):
        return
    if fetched and not _is_small_view(launched, specialisation, providers):
        return
    views = launched.step.compute(buffer, *[specialisation.constants.get(index) for index in others])
    made = views if launched.returns_tuple else (views,)
    if not all(isinstance(view, np.ndarray) and np.may_share_memory(view, buffer) for view in made):
        return
    for target, view in zip(launched.outputs, made, strict=True):
        _fix(target, view, bound)
    bound.views.add(position)
    bound.copied.update(fetched)


def _is_view(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step's outputs are views of its first input; all others are known."""
    source, *others = launched.inputs or (ABSENT,)
    if not launched.outputs_known:
        return False
    recorded = [specialisation.values[index] for index in (source, *launched.outputs)]
    are_known = all(index == ABSENT or specialisation.constants.get(index) is not None for index in others)
    return are_known and all(isinstance(value, np.ndarray) and np.may_share_memory(value, recorded[0]) for value in recorded)


def _may_be_view(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step's outputs share memory with its first input, as far as can be seen."""
    source = specialisation.values[launched.inputs[0]]
    outputs = [specialisation.values[index] for index in _asked_for(launched)]
    if not all(isinstance(value, np.ndarray) for value in (source, *outputs)):
        return True
    return any(np.may_share_memory(value, source) for value in outputs)


def _is_small_view(launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> bool:
    """Whether a step's one output is a view that can be handed to the user as a copy."""
    provider = providers.get(launched.step.provider)
    if provider is None or not provider.device.is_cpu or launched.returns_tuple or not _is_view(launched, specialisation):
        return False
    value = specialisation.values[launched.outputs[0]]
    return bool(value.nbytes <= COPIED_BYTES and not value.dtype.hasobject)


def can_bind(launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]) -> bool:
    """Whether a step's kernel offers binding, its shapes are known, and its provider can preallocate.

    Not for what can be a view, but for a large one that would be copied for the user: the kernel is faster at that.
    """
    return (
        launched.outputs_known
        and getattr(launched.step.kernel, "bind", None) is not None
        and launched.step.provider in providers
        and any(launched.step.outputs)
        and all(hasattr(specialisation.values[index], "shape") for index in _asked_for(launched))
        and not (
            getattr(launched.step.kernel, "returns_views", False)
            and _may_be_view(launched, specialisation)
            and not _is_large_fetch(launched, specialisation)
        )
    )


def _is_large_fetch(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether the user gets a large output that does not lie in the order of its axes."""
    fetched = [specialisation.values[index] for index in launched.outputs if index in specialisation.fetches]
    return any(value.nbytes > COPIED_BYTES and not value.flags.c_contiguous for value in fetched if isinstance(value, np.ndarray))


def _asked_for(launched: ProgramStep) -> list[int]:
    """The outputs somebody asked for."""
    return [index for index, own in zip(launched.outputs, launched.step.outputs, strict=True) if own != ABSENT]


def _outputs(
    position: int, launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]
) -> list[_Output]:
    provider, in_place = providers[launched.step.provider], getattr(launched.step.kernel, "in_place", ())
    found = []
    for index in _asked_for(launched):
        value = specialisation.values[index]
        element_type, shape = described(provider.execution_provider, value)
        order = _memory_order(value) if getattr(launched.step.kernel, "binds_any_layout", False) else None
        overwritten = tuple(launched.inputs[own] for own, target in in_place if launched.outputs[target : target + 1] == (index,))
        is_moving = _takes_any_memory(launched) and _is_moving(index, value, specialisation)
        found.append(_Output(index, position, element_type, shape, provider, order, is_moving, overwritten))
    return found


def _memory_order(value: Any) -> tuple[int, ...] | None:
    """The order in which a host array's axes lie in memory; None if that is row-major, or elements lie apart."""
    if not isinstance(value, np.ndarray) or value.flags.c_contiguous:
        return None
    order = tuple(sorted(range(value.ndim), key=lambda axis: (-value.strides[axis], axis)))
    return order if value.transpose(order).flags.c_contiguous else None


def _give_buffers(
    outputs: list[_Output], specialisation: Specialisation, arena: Arena, bound: BoundSteps, escaping: set[int]
) -> None:
    held = _held_until(specialisation, {output.index for output in outputs})
    copies = _Copies()
    on_host: list[_Output] = []
    for output in outputs:
        is_on_host = output.provider.device.is_cpu and not output.element_type.numpy_dtype.hasobject
        if held[output.index] >= len(specialisation.steps):
            is_copied = is_on_host and output.index not in escaping and not output.is_moving
            if is_copied and copies.take(_host_bytes(output)):
                if output.index in specialisation.fetches:
                    bound.copied.add(output.index)
                on_host.append(output)
                continue
            bound.fresh[output.index] = _new_array(output, specialisation, bound)
            bound.slots[output.index] = ValueSlot(shape=output.shape)
        elif is_on_host:
            on_host.append(output)
        else:
            _fix(output.index, _allocated(output.provider, output.shape, output.element_type), bound)
    lifetimes = [BufferLifetime(_host_bytes(output), output.position, held[output.index]) for output in on_host]
    offsets, total = lay_out(lifetimes)
    buffer = arena.reserve(total)
    bound.memory.append(buffer)
    for output, offset in zip(on_host, offsets, strict=True):
        _fix(output.index, _arena_view(buffer, offset, output), bound)


def _copy_feeds(
    specialisation: Specialisation, providers: Mapping[str, BindingProvider], bound: BoundSteps, escaping: set[int]
) -> None:
    """Give buffers to small feeds that steps bound on the host read, and nobody keeps: no step reads slots for them then.

    One that kernels read anywhere as fast, or may overwrite for the user, stays where it is.
    """
    copies = _Copies()
    for feed in specialisation.plan.feeds:
        index, value = feed.index, specialisation.values[feed.index]
        is_copied = isinstance(value, np.ndarray) and value.nbytes <= COPIED_BYTES and not value.dtype.hasobject
        stays = index in specialisation.constants or index in specialisation.open_feeds
        if not is_copied or stays or index in escaping or index in specialisation.fetches:
            continue
        if _is_moving(index, value, specialisation):
            continue
        steps = [launched.step for launched in specialisation.steps if index in launched.inputs and launched.guard is None]
        readers = {step.provider for step in steps}
        if readers and all(name in providers and providers[name].device.is_cpu for name in readers) and copies.take(value.nbytes):
            _fix(index, _allocated_for(value, providers[min(readers)]), bound)
            bound.feeds.add(index)
            bound.memory.append(bound.buffers[index])


def _allocated_for(value: HostArray, provider: BindingProvider) -> Array:
    """A provider's buffer for a value."""
    element_type, shape = described(provider.execution_provider, value)
    return _allocated(provider, shape, element_type)


def _allocated(provider: BindingProvider, shape: tuple[int, ...], element_type: TensorElementType) -> Array:
    return allocated(provider.allocator, provider.execution_provider.name, shape, element_type)


def _land(
    specialisation: Specialisation,
    candidates: Mapping[int, ProgramStep],
    providers: Mapping[str, BindingProvider],
    bound: BoundSteps,
) -> None:
    """Give buffers to small values that steps which are not bound make and bound ones read: those read no slots then."""
    readers: dict[int, set[str]] = {}
    for launched in candidates.values():
        for index in launched.inputs:
            readers.setdefault(index, set()).add(launched.step.provider)
    checked = specialisation.checked
    for position, launched in enumerate(specialisation.steps):
        if position in candidates or position in bound.views:
            continue
        for index in _asked_for(launched):
            value, names = specialisation.values[index], readers.get(index, set())
            is_known = launched.outputs_known or index in checked
            is_small = isinstance(value, np.ndarray) and value.nbytes <= SMALL_BYTES and not value.dtype.hasobject
            if names and is_known and is_small and all(providers[name].device.is_cpu for name in names):
                buffer = _allocated_for(value, providers[min(names)])
                bound.landings[index], bound.slots[index] = buffer, ValueSlot(buffer, is_fixed=True)


def _is_moving(index: int, value: Any, specialisation: Specialisation) -> bool:
    """Whether a value is not worth a copy: it is large, and all kernels that touch it take other memory in each run."""
    if not isinstance(value, np.ndarray) or value.nbytes <= SMALL_BYTES:
        return False
    return all(_takes_any_memory(step) for step in specialisation.steps if index in step.inputs or index in step.outputs)


def _takes_any_memory(launched: ProgramStep) -> bool:
    return bool(getattr(launched.step.kernel, "binds_moving_slots", False))


def _new_array(output: _Output, specialisation: Specialisation, bound: BoundSteps) -> Callable[[], Array]:
    """What makes the array of a value handed to the user in each run; that of an input the user wants it in, if there is one."""
    allocator = output.provider.allocator
    make = allocator.allocate_result if isinstance(allocator, SupportsResults) else allocator.allocate
    allocate = functools.partial(make, output.shape, output.element_type)
    feeds = {feed.index for feed in specialisation.plan.feeds}.difference(specialisation.constants)
    sources = [index for index in output.overwritten if index in feeds]
    if not sources or not output.is_moving or getattr(specialisation.values[sources[0]], "shape", None) != output.shape:
        return allocate
    slot = bound.slots.setdefault(sources[0], ValueSlot(shape=output.shape))

    def given() -> Array:
        array = slot.array
        return array if may_overwrite(array) and array.flags.c_contiguous else allocate()

    return given


class _Copies:
    """Counts what is copied on one side of a program."""

    def __init__(self) -> None:
        self._left = COPIED_BYTES_IN_ALL

    def take(self, nbytes: int) -> bool:
        """Whether a value is copied, too."""
        if nbytes <= SMALL_BYTES:
            return True
        if nbytes > min(COPIED_BYTES, self._left):
            return False
        self._left -= nbytes
        return True


def _arena_view(buffer: HostArray, offset: int, output: _Output) -> HostArray:
    if output.order is None:
        return Arena.view(buffer, offset, output.shape, output.element_type)
    lying = tuple(output.shape[axis] for axis in output.order)
    return Arena.view(buffer, offset, lying, output.element_type).transpose(np.argsort(output.order))


def _fix(index: int, array: Array, bound: BoundSteps) -> None:
    bound.buffers[index] = array
    bound.slots[index] = ValueSlot(array, is_fixed=True)


def _host_bytes(output: _Output) -> int:
    elements = 1
    for dimension in output.shape:
        elements *= dimension
    return elements * output.element_type.numpy_dtype.itemsize


def _held_until(specialisation: Specialisation, indices: set[int]) -> dict[int, int]:
    """Last step that may touch a value's memory.

    A kernel that is not bound may hand on views of inputs, so its outputs' lives extend theirs. A value that may reach the user
    that way, or leaves the program without a copy, is held past the last step.
    """
    end = len(specialisation.steps)
    held: dict[int, int] = dict.fromkeys((*specialisation.fetches, *_handed_over(specialisation)), end)
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


def _handed_over(specialisation: Specialisation) -> Iterator[int]:
    """Values that are not on the host and may leave the program at a guard: they are not copied there."""
    for launched in specialisation.steps:
        if launched.guard is not None:
            yield from (index for index in launched.inputs if not isinstance(specialisation.values[index], np.ndarray))


def _escaping(specialisation: Specialisation, indices: set[int], providers: Mapping[str, BindingProvider]) -> set[int]:
    """Values that steps that are not bound may hand to the user as they are, or in views that are not copied."""
    escaping: set[int] = set()
    for launched in reversed(specialisation.steps):
        if any(index in indices for index in launched.outputs) or _are_maps(launched, specialisation):
            continue
        viewed = {
            source
            for source, target in _may_share(launched, specialisation)
            if target in escaping or target in specialisation.fetches
        }
        if viewed and not _is_small_view(launched, specialisation, providers):
            escaping |= viewed
    return escaping


def _may_share(launched: ProgramStep, specialisation: Specialisation) -> list[tuple[int, int]]:
    """Values that a step reads and makes, and that may share memory: as its kernel declares, or as it was seen to.

    What cannot be looked at, as arrays of devices, is taken to.
    """
    declared, values = launched.step.aliases, specialisation.values
    return [
        (source, target)
        for (place, source), (own, target) in itertools.product(enumerate(launched.inputs), enumerate(launched.outputs))
        if declared is None or (place, own) in declared or _are_seen_to_share(values[source], values[target])
    ]


def _are_seen_to_share(source: Any, target: Any) -> bool:
    if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
        return np.may_share_memory(source, target)
    return source is not None and target is not None


def _are_maps(launched: ProgramStep, specialisation: Specialisation) -> bool:
    """Whether a step gives lists of maps from and to Python's numbers and texts, as ZipMap does: nothing of them is a view."""
    values = [specialisation.values[index] for index in _asked_for(launched)]
    return all(isinstance(value, list) and bool(value) and all(map(_is_plain_map, value)) for value in values)


def _is_plain_map(value: Any) -> bool:
    return isinstance(value, dict) and {*map(type, value.values())} <= {float, int, str}


def _input_slot(index: int, specialisation: Specialisation, bound: BoundSteps) -> ValueSlot:
    slot = bound.slots.get(index)
    if slot is None:
        constant: Any = specialisation.constants.get(index)
        is_constant = index in specialisation.constants
        shape = getattr(specialisation.values[index], "shape", None)
        slot = ValueSlot(constant, is_fixed=is_constant, is_constant=is_constant, shape=shape)
        bound.slots[index] = slot
    return slot
