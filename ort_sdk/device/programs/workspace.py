"""Workspace of captured launches: memory between them, laid out by lifetime in one block that bound calls of a device share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.api.buffer_layout import BufferLifetime, lay_out
from ort_sdk.device.context import DeviceContext, Recording
from ort_sdk.device.launcher import MovingMemory
from ort_sdk.device.launches import Memory

__all__ = ["lay_out_workspace"]


def lay_out_workspace(
    context: DeviceContext, recording: Recording, places: Mapping[Memory, Memory], moving: Sequence[MovingMemory]
) -> dict[Memory, Memory]:
    """Places for memory that only the launches use.

    The queue is in order, so that calls one after the other may use the same block.
    """
    placed = {id(memory) for memory in places} | {id(each.placeholder) for each in moving}
    lifetimes: dict[int, list[int]] = {}
    for position, launch in enumerate(recording.launches):
        for argument in launch.arguments:
            if isinstance(argument, Memory) and id(argument) in recording.memories and id(argument) not in placed:
                lifetimes.setdefault(id(argument), [position, position])[1] = position
    memories = [recording.memories[key] for key in lifetimes]
    alignment = context.launcher.alignment_bytes
    offsets, total = lay_out([_lifetime(each, lifetimes) for each in memories], alignment)
    if not total:
        return {}
    block = context.workspace(total)
    return {memory: context.part(block, offset, memory.nbytes) for memory, offset in zip(memories, offsets, strict=True)}


def _lifetime(memory: Memory, lifetimes: Mapping[int, Sequence[int]]) -> BufferLifetime:
    first, last = lifetimes[id(memory)]
    return BufferLifetime(memory.nbytes, first, last)
