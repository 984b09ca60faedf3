"""Workspace of captured launches: memory between them, laid out by lifetime in one block that bound calls of a device share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.device.context import DeviceContext, Recording
from ort_sdk.device.launcher import MovingMemory
from ort_sdk.device.launches import Memory

__all__ = ["lay_out", "lay_out_workspace"]


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
    return {memory: context.launcher.part(block, offset, memory.nbytes) for memory, offset in zip(memories, offsets, strict=True)}


def _lifetime(memory: Memory, lifetimes: Mapping[int, Sequence[int]]) -> tuple[int, int, int]:
    first, last = lifetimes[id(memory)]
    return memory.nbytes, first, last


def lay_out(buffers: Sequence[tuple[int, int, int]], alignment: int) -> tuple[list[int], int]:
    """Offsets of (bytes, first launch, last launch), largest first, each at the lowest one free for its whole life."""
    offsets = [0] * len(buffers)
    placed: list[tuple[int, int, int, int]] = []
    total = 0
    for index in sorted(range(len(buffers)), key=lambda position: -buffers[position][0]):
        nbytes, first, last = buffers[index]
        rounded = -(-nbytes // alignment) * alignment
        offset = 0
        for start, end, other_first, other_last in sorted(placed):
            if other_first <= last and first <= other_last:
                if offset + rounded <= start:
                    break
                offset = max(offset, end)
        placed.append((offset, offset + rounded, first, last))
        offsets[index], total = offset, max(total, offset + rounded)
    return offsets, total
