"""Buffer assignment: where the values of bound steps are, in one arena by lifetime, in memory of their own, or the user's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, ExecutionProvider, HostArray, SupportsResults, TensorElementType, may_overwrite
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.memory import Arena, ArenaBlock, BufferLifetime, lay_out
from ort_sdk.memory.provider_memory import allocated, described
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.slots import ValueSlot
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.program.value_charge import ValueCharge
from ort_sdk.run.types import BindingProvider

from .liveness import COPIED_BYTES, last_uses, wanted_outputs
from .workspaces import Workspace

__all__ = [
    "COPIED_BYTES_IN_ALL",
    "SMALL_BYTES",
    "BoundOutput",
    "BoundSteps",
    "allocated_array",
    "allocated_for",
    "assign_buffers",
    "bound_outputs",
    "bytes_of",
    "fix_buffer",
    "stage_feeds",
]


SMALL_BYTES = 1 << 12
"""Values that cost nearly nothing to copy."""
COPIED_BYTES_IN_ALL = 1 << 19
"""What a program copies of others before, and after, it runs."""


@dataclass(slots=True)
class BoundSteps:
    """The bound part of a program."""

    calls: dict[int, Callable[[], None]] = field(default_factory=dict)
    """Position of a step → its call."""
    slots: dict[int, ValueSlot] = field(default_factory=dict)
    """Value → the slot through which bound kernels see it."""
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
    staging: dict[int, HostArray] = field(default_factory=dict)
    """Value of a step that is not bound → the staging buffer it is copied to for steps that are."""
    memory: list[HostArray] = field(default_factory=list)
    """Memory on the host that each run writes to."""
    blocks: list[ArenaBlock] = field(default_factory=list)
    """Memory on devices that buffers are in."""
    charges: Sequence[ValueCharge] = ()
    """What each run takes of devices beside the blocks."""
    workspaces: dict[int, Array] = field(default_factory=dict)
    """Position of a step → memory that it needs while it runs."""
    views: set[int] = field(default_factory=set)
    """Positions of steps that are done for good: their outputs are views of buffers."""


@dataclass(slots=True)
class BoundOutput:
    """An output of a bound step, and what decides where it is."""

    index: int
    position: int
    element_type: TensorElementType
    shape: tuple[int, ...]
    provider: BindingProvider
    order: tuple[int, ...] | None
    """Axes from the outermost in memory to the innermost; None is row-major."""
    is_moving: bool
    """Whether the kernel writes as fast to memory that changes from run to run, and no other kernel reads it there."""
    overwritten: tuple[int, ...]
    """Inputs of the kernel whose memory it may share."""


def bound_outputs(
    position: int, launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]
) -> list[BoundOutput]:
    """The outputs of a step that is to be bound."""
    provider, in_place = providers[launched.step.provider], getattr(launched.step.kernel, "in_place", ())
    found = []
    for index in wanted_outputs(launched):
        value = specialisation.values[index]
        element_type, shape = described_value(provider.execution_provider, value)
        order = _memory_order(value) if getattr(launched.step.kernel, "binds_any_layout", False) else None
        overwritten = tuple(launched.inputs[own] for own, target in in_place if launched.outputs[target : target + 1] == (index,))
        is_moving = _takes_any_memory(launched) and _is_moving(index, value, specialisation)
        found.append(BoundOutput(index, position, element_type, shape, provider, order, is_moving, overwritten))
    return found


def _memory_order(value: Any) -> tuple[int, ...] | None:
    """Order of a host array's axes by stride; None if that is row-major, or the array is not contiguous."""
    if not isinstance(value, np.ndarray) or value.flags.c_contiguous:
        return None
    order = tuple(sorted(range(value.ndim), key=lambda axis: (-value.strides[axis], axis)))
    return order if value.transpose(order).flags.c_contiguous else None


def assign_buffers(
    outputs: list[BoundOutput],
    workspaces: Sequence[Workspace],
    specialisation: Specialisation,
    arena: Arena,
    bound: BoundSteps,
    escaping: set[int],
) -> list[tuple[BoundOutput, int]]:
    """Give each output of the host a buffer in the arena by its lifetime, and each for the user one that is new in each run.

    Args:
        outputs: of all bound steps.
        workspaces: of steps on the host; in the arena, too.
        specialisation: the program's steps.
        arena: host memory shared by the session's programs.
        bound: gets the buffers.
        escaping: outputs that the user may get as they are.

    Returns:
        The outputs on devices that stay in the program, each with the last step that touches it.
    """
    held = last_uses(specialisation, {output.index for output in outputs})
    copies = _CopyBudget()
    on_host: list[BoundOutput] = []
    on_devices: list[tuple[BoundOutput, int]] = []
    for output in outputs:
        is_on_host = output.provider.device.is_cpu and not output.element_type.numpy_dtype.hasobject
        if held[output.index] >= len(specialisation.steps):
            is_copied = is_on_host and output.index not in escaping and not output.is_moving
            if is_copied and copies.take(bytes_of(output)):
                if output.index in specialisation.fetches:
                    bound.copied.add(output.index)
                on_host.append(output)
                continue
            bound.fresh[output.index] = _new_array(output, specialisation, bound)
            bound.slots[output.index] = ValueSlot(shape=output.shape)
        elif is_on_host:
            on_host.append(output)
        else:
            on_devices.append((output, held[output.index]))
    lifetimes = [BufferLifetime(bytes_of(output), output.position, held[output.index]) for output in on_host]
    lifetimes += [BufferLifetime(each.nbytes, each.position, each.position) for each in workspaces]
    offsets, total = lay_out(lifetimes)
    buffer = arena.reserve(total)
    bound.memory.append(buffer)
    for output, offset in zip(on_host, offsets, strict=False):
        fix_buffer(output.index, _arena_view(buffer, offset, output), bound)
    for each, offset in zip(workspaces, offsets[len(on_host) :], strict=True):
        bound.workspaces[each.position] = Arena.view(buffer, offset, (each.nbytes,), TensorElementType.UINT8)
    return on_devices


def stage_feeds(
    specialisation: Specialisation, providers: Mapping[str, BindingProvider], bound: BoundSteps, escaping: set[int]
) -> None:
    """Give buffers to small feeds that steps bound on the host read, and no fetch keeps: no step reads slots for them then.

    One that kernels read anywhere as fast, or may overwrite for the user, stays where it is.
    """
    copies = _CopyBudget()
    for feed in specialisation.plan.feeds:
        index, value = feed.index, specialisation.values[feed.index]
        is_copied = isinstance(value, np.ndarray) and value.nbytes <= COPIED_BYTES and not value.dtype.hasobject
        stays = index in specialisation.constants or index in specialisation.dynamic_feeds
        if not is_copied or stays or index in escaping or index in specialisation.fetches:
            continue
        if _is_moving(index, value, specialisation):
            continue
        steps = [launched.step for launched in specialisation.steps if index in launched.inputs and launched.guard is None]
        readers = {step.provider for step in steps}
        if readers and all(name in providers and providers[name].device.is_cpu for name in readers) and copies.take(value.nbytes):
            fix_buffer(index, allocated_for(value, providers[min(readers)]), bound)
            bound.feeds.add(index)
            bound.memory.append(bound.buffers[index])


def allocated_for(value: HostArray, provider: BindingProvider) -> Array:
    """A provider's buffer for a value."""
    element_type, shape = described(provider.execution_provider, value)
    return allocated_array(provider, shape, element_type)


def allocated_array(provider: BindingProvider, shape: tuple[int, ...], element_type: TensorElementType) -> Array:
    """A provider's array, alone in its memory."""
    return allocated(provider.allocator, provider.execution_provider.name, shape, element_type)


def _is_moving(index: int, value: Any, specialisation: Specialisation) -> bool:
    """Whether a value is not copied: it is large, and all kernels that touch it take other memory in each run."""
    if not isinstance(value, np.ndarray) or value.nbytes <= SMALL_BYTES:
        return False
    return all(_takes_any_memory(step) for step in specialisation.steps if index in step.inputs or index in step.outputs)


def _takes_any_memory(launched: ProgramStep) -> bool:
    return bool(getattr(launched.step.kernel, "binds_moving_slots", False))


def _new_array(output: BoundOutput, specialisation: Specialisation, bound: BoundSteps) -> Callable[[], Array]:
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


class _CopyBudget:
    """Bytes that may still be copied on one side of a program, before or after it."""

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


def _arena_view(buffer: HostArray, offset: int, output: BoundOutput) -> HostArray:
    if output.order is None:
        return Arena.view(buffer, offset, output.shape, output.element_type)
    stored_shape = tuple(output.shape[axis] for axis in output.order)
    return Arena.view(buffer, offset, stored_shape, output.element_type).transpose(np.argsort(output.order))


def fix_buffer(index: int, array: Array, bound: BoundSteps) -> None:
    """Let a value be in one array for the life of the program."""
    bound.buffers[index] = array
    bound.slots[index] = ValueSlot(array, is_fixed=True)


def bytes_of(output: BoundOutput) -> int:
    """Bytes of an output: on a device the most that it may take."""
    elements = 1
    for dimension in output.shape:
        elements *= dimension
    return elements * output.element_type.numpy_dtype.itemsize
