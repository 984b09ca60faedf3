"""Buffer assignment: where the outputs of bound steps are, in one arena by lifetime, in memory of their own, or the user's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, ExecutionProvider, HostArray, SupportsResults, TensorElementType, may_overwrite
from ort_sdk.api.buffer_layout import BufferLifetime, lay_out
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.memory import ARENA_ALIGNMENT_BYTES, Arena, ArenaBlock
from ort_sdk.memory.provider_memory import allocated, bytes_of, described
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.slots import ValueSlot
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.program.value_charge import ValueCharge
from ort_sdk.run.types import BindingProvider

from .liveness import COPIED_BYTES, DEVICE_COPIED_BYTES, wanted_outputs
from .owners import memory_of
from .workspaces import Workspace

__all__ = [
    "COPIED_BYTES_IN_ALL",
    "DEVICE_COPIED_BYTES_IN_ALL",
    "SMALL_BYTES",
    "BoundOutput",
    "BoundSteps",
    "CopyBudget",
    "DeviceValue",
    "allocate_in_runs",
    "allocated_array",
    "allocated_for",
    "assign_buffers",
    "bound_outputs",
    "feed_copier",
    "fetch_copier",
    "fix_buffer",
    "is_moving_value",
    "staying_outputs",
]


SMALL_BYTES = 1 << 12
"""Values that cost nearly nothing to copy."""
COPIED_BYTES_IN_ALL = 1 << 19
"""What a program copies of others before, and after, it runs."""
DEVICE_COPIED_BYTES_IN_ALL = 1 << 22
"""The same on a device."""


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
    """Values of the user that each run copies to their buffers, which are NumPy's arrays."""
    device_feeds: dict[int, Callable[[Array], None]] = field(default_factory=dict)
    """Value of the user on a device → copies it to its buffer in each run."""
    device_fetches: dict[int, Callable[[Array, Array | None], Array]] = field(default_factory=dict)
    """Value handed to the user on a device → makes the copy of its buffer that the user gets, in a given array or a new one."""
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
    """Whether the kernel writes as fast to memory that changes from run to run, and none on the host reads it there."""
    overwritten: tuple[int, ...]
    """Inputs of the kernel whose memory it may share."""

    @property
    def is_on_host(self) -> bool:
        """Whether it may be in an arena, which holds no objects."""
        return self.provider.device.is_cpu and not self.element_type.numpy_dtype.hasobject

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return bytes_of(self.shape, self.element_type)

    def on_device(self, last: int) -> DeviceValue:
        """The same as what a device holds, from the step that makes it to the last one that touches it."""
        return DeviceValue(self.index, self.element_type, self.shape, self.provider, self.position, last)


@dataclass(frozen=True, slots=True)
class DeviceValue:
    """A value that is in memory of a device in each run, and from which step to which it is there."""

    index: int
    element_type: TensorElementType
    shape: tuple[int, ...]
    provider: BindingProvider
    first: int
    last: int

    @property
    def nbytes(self) -> int:
        """The most bytes that it may take."""
        return bytes_of(self.shape, self.element_type)


def bound_outputs(
    position: int, launched: ProgramStep, specialisation: Specialisation, providers: Mapping[str, BindingProvider]
) -> list[BoundOutput]:
    """The outputs of a step that is to be bound."""
    provider, in_place = memory_of(launched, providers), getattr(launched.step.kernel, "in_place", ())
    found: list[BoundOutput] = []
    if provider is None:
        return found
    for index in wanted_outputs(launched):
        value = specialisation.values[index]
        element_type, shape = described_value(provider.execution_provider, value)
        order = _memory_order(value) if getattr(launched.step.kernel, "binds_any_layout", False) else None
        overwritten = tuple(launched.inputs[own] for own, target in in_place if launched.outputs[target : target + 1] == (index,))
        is_moving = takes_any_memory(launched) and (not provider.device.is_cpu or is_moving_value(index, value, specialisation))
        found.append(BoundOutput(index, position, element_type, shape, provider, order, is_moving, overwritten))
    return found


def _memory_order(value: Any) -> tuple[int, ...] | None:
    """Order of a host array's axes by stride; None if that is row-major, or the array is not contiguous."""
    if not isinstance(value, np.ndarray) or value.flags.c_contiguous:
        return None
    order = tuple(sorted(range(value.ndim), key=lambda axis: (-value.strides[axis], axis)))
    return order if value.transpose(order).flags.c_contiguous else None


def staying_outputs(
    outputs: Iterable[BoundOutput], specialisation: Specialisation, held: Mapping[int, int], escaping: set[int]
) -> set[int]:
    """The outputs that are in the same memory in each run; the others are new for the user.

    Args:
        outputs: of all bound steps.
        specialisation: the program's steps.
        held: value → last step that may touch it.
        escaping: outputs that the user may get as they are.
    """
    copies, device_copies = CopyBudget(), CopyBudget(DEVICE_COPIED_BYTES, DEVICE_COPIED_BYTES_IN_ALL)
    found = set()
    for output in outputs:
        if held[output.index] >= len(specialisation.steps):
            may_copy = output.is_on_host or (not output.provider.device.is_cpu and output.provider.copies_user_values)
            budget = copies if output.is_on_host else device_copies
            if output.index in escaping or output.is_moving or not may_copy or not budget.take(output.nbytes):
                continue
        found.add(output.index)
    return found


def allocate_in_runs(outputs: Iterable[BoundOutput], specialisation: Specialisation, bound: BoundSteps) -> None:
    """Let outputs be in memory that is new in each run.

    Args:
        outputs: those that do not stay.
        specialisation: the program's steps.
        bound: gets what allocates.
    """
    for output in outputs:
        bound.fresh[output.index] = _new_array(output, specialisation, bound)
        bound.slots[output.index] = ValueSlot(shape=output.shape, element_type=output.element_type)


def assign_buffers(
    outputs: Sequence[BoundOutput], workspaces: Sequence[Workspace], held: Mapping[int, int], arena: Arena, bound: BoundSteps
) -> None:
    """Give outputs of the host, and workspaces, parts of an arena by their lifetimes.

    Args:
        outputs: those that stay.
        workspaces: of steps on the host.
        held: value → last step that may touch it.
        arena: host memory shared by the session's programs.
        bound: gets the buffers.
    """
    lifetimes = [BufferLifetime(output.nbytes, output.position, held[output.index]) for output in outputs]
    lifetimes += [BufferLifetime(each.nbytes, each.position, each.position) for each in workspaces]
    offsets, total = lay_out(lifetimes, ARENA_ALIGNMENT_BYTES)
    buffer = arena.reserve(total)
    bound.memory.append(buffer)
    for output, offset in zip(outputs, offsets, strict=False):
        fix_buffer(output.index, _arena_view(buffer, offset, output), output.element_type, bound)
    for each, offset in zip(workspaces, offsets[len(outputs) :], strict=True):
        bound.workspaces[each.position] = Arena.view(buffer, offset, (each.nbytes,), TensorElementType.UINT8)


def fetch_copier(
    provider: BindingProvider, shape: tuple[int, ...], element_type: TensorElementType
) -> Callable[[Array, Array | None], Array]:
    """What makes the copy of a buffer on a device that the user gets, in a given array or a new one."""
    fill = _filler_of(provider)

    def copied(array: Array, target: Array | None) -> Array:
        if target is None:
            target = allocated_array(provider, shape, element_type)
        fill(array, target)
        return target

    return copied


def feed_copier(provider: BindingProvider, buffer: Array) -> Callable[[Array], None]:
    """What copies a value of the user on a device to its buffer."""
    fill = _filler_of(provider)
    return lambda array: fill(array, buffer)


def _filler_of(provider: BindingProvider) -> Callable[[Array, Array], None]:
    """What fills an array of the provider's device with another one."""
    fill = None if provider.transfers is None else provider.transfers.filler(provider.device, provider.device)
    if fill is None:
        raise AssertionError(f"{provider.execution_provider.name} copies nothing, so no value of the user is in a buffer of it")
    return fill


def allocated_for(value: HostArray, provider: BindingProvider) -> Array:
    """A provider's buffer for a value."""
    element_type, shape = described(provider.execution_provider, value)
    return allocated_array(provider, shape, element_type)


def allocated_array(provider: BindingProvider, shape: tuple[int, ...], element_type: TensorElementType) -> Array:
    """A provider's array, alone in its memory."""
    return allocated(provider.allocator, provider.execution_provider.name, shape, element_type)


def is_moving_value(index: int, value: Any, specialisation: Specialisation) -> bool:
    """Whether a value is not copied: all kernels that touch it take other memory in each run, and on the host it is large."""
    if isinstance(value, np.ndarray) and value.nbytes <= SMALL_BYTES:
        return False
    return all(takes_any_memory(step) for step in specialisation.steps if index in step.inputs or index in step.outputs)


def takes_any_memory(launched: ProgramStep) -> bool:
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
    slot = bound.slots.setdefault(sources[0], ValueSlot(shape=output.shape, element_type=output.element_type))

    def given() -> Array:
        array = slot.array
        is_dense = not isinstance(array, np.ndarray) or array.flags.c_contiguous
        return array if is_dense and may_overwrite(array) else allocate()

    return given


class CopyBudget:
    """Bytes that may still be copied on one side of a program, before or after it.

    Args:
        largest: bytes of one value.
        in_all: bytes of all that are not small.
    """

    def __init__(self, largest: int = COPIED_BYTES, in_all: int = COPIED_BYTES_IN_ALL) -> None:
        self._largest, self._left = largest, in_all

    def take(self, nbytes: int) -> bool:
        """Whether a value is copied, too."""
        if nbytes <= SMALL_BYTES:
            return True
        if nbytes > min(self._largest, self._left):
            return False
        self._left -= nbytes
        return True


def _arena_view(buffer: HostArray, offset: int, output: BoundOutput) -> HostArray:
    if output.order is None:
        return Arena.view(buffer, offset, output.shape, output.element_type)
    stored_shape = tuple(output.shape[axis] for axis in output.order)
    return Arena.view(buffer, offset, stored_shape, output.element_type).transpose(np.argsort(output.order))


def fix_buffer(index: int, array: Array, element_type: TensorElementType | None, bound: BoundSteps) -> None:
    """Let a value be in one array for the life of the program."""
    bound.buffers[index] = array
    bound.slots[index] = ValueSlot(array, is_fixed=True, element_type=element_type)
