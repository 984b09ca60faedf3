"""Captures what kernels launch for fixed buffers, so that a program replays launches and no Python of the operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import ExtentError, Slot
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext, Recording
from ort_sdk.device.expressions.nodes import Strided, element_count, item_bytes, resolved
from ort_sdk.device.launcher import BoundLaunches, MovingMemory
from ort_sdk.device.launches import Memory

from .workspace import lay_out_workspace

__all__ = ["CapturedCall", "bind_launches"]

Trace = Callable[[Sequence[Any]], Sequence[Any]]
"""Takes a value per input and gives the outputs, or one tuple of them."""


@dataclass(slots=True)
class CapturedCall:
    """A bound kernel: its launches as one call, which the provider may join with others."""

    launches: BoundLaunches
    count: int
    """How many launches."""
    kept: list[Any] = field(default_factory=list)
    """What the launches refer to."""

    def __call__(self) -> None:
        self.launches()


def bind_launches(context: DeviceContext, trace: Trace, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> CapturedCall:
    """Run a trace on the inputs' buffers, and make a call of what it launches that leaves its results in the outputs'.

    Raises:
        HostReadDuringCapture: the trace reads contents.
    """
    moving: list[MovingMemory] = []
    with context.capture() as recording:
        values = [_input(context, slot, moving) for slot in inputs]
        results = list(trace(values))
        if len(results) == 1 and isinstance(results[0], tuple):
            results = list(results[0])
        places = _placed_outputs(context, recording, results, outputs, moving)
    workspace = lay_out_workspace(context, recording, places, moving)
    places |= workspace
    call = context.launcher.bind(recording.launches, places, moving)
    return CapturedCall(call, len(recording.launches), [values, recording.launches, places])


def _input(context: DeviceContext, slot: Slot, moving: list[MovingMemory]) -> Any:
    array = slot.array
    if slot.is_constant and isinstance(array, DeviceArray):
        _note_constant(array)
    element_type, shape = slot.element_type, slot.shape
    is_moving = not slot.is_fixed and (array is None or isinstance(array, DeviceArray))
    if not is_moving or shape is None or element_type is None:
        return array
    memory = Memory(max(1, element_count(shape) * item_bytes(element_type)))
    moving.append(MovingMemory(memory, lambda: _memory_of(slot, memory.nbytes)))
    return DeviceArray(context, Strided(memory, shape, element_type))


def _note_constant(array: DeviceArray) -> None:
    node = resolved(array.node)
    if isinstance(node, Strided) and node.memory is not None:
        node.memory.is_constant = True


def _memory_of(slot: Slot, nbytes: int) -> Memory:
    """The memory of a slot's array in this run."""
    memory: Memory = slot.array.dense().held
    if memory.nbytes < nbytes:
        raise ExtentError(f"running bound launches on an array of {memory.nbytes} bytes: they were bound for {nbytes}")
    return memory


def _placed_outputs(
    context: DeviceContext,
    recording: Recording,
    results: Sequence[Any],
    outputs: Sequence[Slot],
    moving: list[MovingMemory],
) -> dict[Memory, Memory]:
    """Let the kernels write their results to the outputs' buffers, or copy them there."""
    places: dict[Memory, Memory] = {}
    for result, slot in zip(results, outputs, strict=False):
        if result is None or not (slot.array is not None or slot.shape is not None):
            continue
        array = context.dense(result.node)
        memory = array.held
        is_free = id(memory) in recording.memories and memory not in places and not any(m.placeholder is memory for m in moving)
        if not is_free or memory.nbytes != max(1, result.nbytes):
            copy = context.new(array.shape, array.element_type)
            context.write(array, copy)
            memory = copy.held
        if slot.is_fixed:
            places[memory] = slot.array.dense().held
        else:
            moving.append(MovingMemory(memory, _current(slot, memory.nbytes)))
    return places


def _current(slot: Slot, nbytes: int) -> Callable[[], Memory]:
    return lambda: _memory_of(slot, nbytes)
