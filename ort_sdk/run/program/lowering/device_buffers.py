"""Buffers on devices: views of one block, laid out by lifetime, or arrays of their own where the allocator makes no blocks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NoReturn

from ort_sdk.api import OutOfMemory, TensorElementType
from ort_sdk.api.buffer_layout import BufferLifetime, lay_out
from ort_sdk.memory import DeviceArena
from ort_sdk.run.program.arenas import ProgramArenas, ProgramOutOfMemory
from ort_sdk.run.program.specialisation import Specialisation
from ort_sdk.run.types import BindingProvider

from .buffers import BoundSteps, DeviceValue, allocated_array, fix_buffer
from .workspaces import Workspace

__all__ = ["assign_device_buffers"]

NAMED_VALUES = 3
"""Of the largest values, which an error names."""


def assign_device_buffers(
    values: Sequence[DeviceValue],
    workspaces: Sequence[Workspace],
    specialisation: Specialisation,
    arenas: ProgramArenas,
    bound: BoundSteps,
) -> None:
    """Give values that stay in the program memory of their devices.

    Args:
        values: outputs of bound steps, and feeds that are copied; arrays of objects on the host, which no arena holds, too.
        workspaces: of steps on devices.
        specialisation: the program's steps.
        arenas: shared by the session's programs.
        bound: gets the buffers.

    Raises:
        ProgramOutOfMemory: there is not enough; names the largest values.
    """
    wanted = [*(value.provider for value in values), *(each.provider for each in workspaces)]
    for name, provider in {each.execution_provider.name: each for each in wanted}.items():
        own = [value for value in values if value.provider.execution_provider.name == name]
        needed = [each for each in workspaces if each.provider.execution_provider.name == name]
        arena = arenas.of(provider)
        try:
            if arena is None:
                _allocate_each(own, needed, provider, bound)
            else:
                _lay_out_block(own, needed, arena, bound)
        except OutOfMemory as error:
            _raise_out_of_memory(error, own, specialisation)


def _lay_out_block(values: Sequence[DeviceValue], workspaces: Sequence[Workspace], arena: DeviceArena, bound: BoundSteps) -> None:
    lifetimes = [BufferLifetime(value.nbytes, value.first, value.last) for value in values]
    lifetimes += [BufferLifetime(each.nbytes, each.position, each.position) for each in workspaces]
    offsets, total = lay_out(lifetimes, arena.alignment_bytes)
    block = arena.reserve(total)
    bound.blocks.append(block)
    for value, offset in zip(values, offsets, strict=False):
        fix_buffer(value.index, arena.view(block, offset, value.shape, value.element_type), value.element_type, bound)
    for each, offset in zip(workspaces, offsets[len(values) :], strict=True):
        bound.workspaces[each.position] = arena.view(block, offset, (each.nbytes,), TensorElementType.UINT8)


def _allocate_each(
    values: Sequence[DeviceValue], workspaces: Sequence[Workspace], provider: BindingProvider, bound: BoundSteps
) -> None:
    """Arrays of an allocator without blocks. Steps run one after the other, so one workspace does for all of them."""
    for value in values:
        array = allocated_array(provider, value.shape, value.element_type)
        fix_buffer(value.index, array, value.element_type, bound)
    if workspaces:
        most_bytes = max(each.nbytes for each in workspaces)
        shared = allocated_array(provider, (most_bytes,), TensorElementType.UINT8)
        bound.workspaces.update({each.position: shared for each in workspaces})


def _raise_out_of_memory(error: OutOfMemory, values: Sequence[DeviceValue], specialisation: Specialisation) -> NoReturn:
    """Raise the error with the values that the memory is for."""
    largest = heapq.nlargest(NAMED_VALUES, values, key=lambda value: value.nbytes)
    named = ", ".join(
        f"{value.nbytes} bytes for {value.element_type.name}{list(value.shape)} of {specialisation.origin_of(value.index)}"
        for value in largest
    )
    text = f"no memory for the {len(values)} values of a program, the largest of them {named or 'workspaces'}: {error.text}"
    try:
        raise ProgramOutOfMemory(text) from error
    finally:
        del error  # or the traceback would keep this frame, and this frame the traceback
