"""Kernels of chains on arrays of known shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import FusibleStep, HostArray, Slot
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.copy import CopyWriter, copy_elements
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.memory.strides import LoopNest, broadcast_strides, memory_order

from .compile import address_of
from .extents import declaration_of_chain
from .groups import Group
from .ir import HEADER_WORDS, OPERAND_WORDS
from .types import ELEMENTS, LANES

__all__ = ["ChainKernel", "JoinableKernel"]

BLOCK = 1 << 12
"""Elements of a row that one thread computes at a time: rows that are few and long are work for all threads."""


class ChainKernel:
    """A group of steps as one kernel.

    Args:
        group: what it computes.
        shapes: of its inputs.
        threads: how many it may use.
    """

    binds_any_layout = True

    def __init__(self, group: Group, shapes: Sequence[tuple[int, ...]], threads: int) -> None:
        self._group = group
        self._shapes = (*shapes, *[group.shape] * len(group.outputs))
        self._threads = threads
        self.input_numbers = group.inputs
        """Numbers of the values it reads, in the order of its inputs."""

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the outputs' arrays."""
        operands, loops = self._operands(inputs, outputs)
        run = self._call(operands, loops)
        if all(operand.is_fixed for operand in operands):
            read, written = operands[: len(inputs)], operands[len(inputs) :]
            before = [operand.copied_in() for operand in read if not operand.stays]
            calls = [*before, run, *[operand.copied_out() for operand in written if not operand.stays]]
            return run if len(calls) == 1 else in_sequence(calls)
        return _moving_call([operand for operand in operands[: len(inputs)] if not operand.stays], run, operands[len(inputs) :])

    def bind_joinable(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any] | None:
        """The same where it is nothing but compiled code, and rows are long enough for it; else None."""
        if not all(slot.is_fixed for slot in (*inputs, *outputs)):
            return None
        operands, loops = self._operands(inputs, outputs)
        is_worth_it = loops.sizes[-1] >= LANES or math.prod(loops.sizes[:-1]) <= LANES
        return self._call(operands, loops) if is_worth_it and all(operand.stays for operand in operands) else None

    def _operands(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> tuple[list[_Operand], LoopNest]:
        """Inputs and outputs, and the loops over them in memory order."""
        chain, shape = self._group.chain, self._group.shape
        order = memory_order(outputs[0].array) if outputs[0].is_fixed else tuple(range(len(shape)))
        dtypes = [ELEMENTS[kind].dtype for kind in chain.inputs + chain.output_types]
        operands = [
            _Operand(slot, own, dtype, shape, order)
            for slot, own, dtype in zip((*inputs, *outputs), self._shapes, dtypes, strict=True)
        ]
        return operands, LoopNest.over([shape[axis] for axis in order], [operand.strides for operand in operands])

    def _call(self, operands: Sequence[_Operand], loops: LoopNest) -> Callable[[], Any]:
        chain = self._group.chain
        call = TaskCall.at(address_of(chain), _arguments(loops), self._threads, declaration_of_chain(chain))
        for number, operand in enumerate(operands):
            operand.attach(call, HEADER_WORDS + OPERAND_WORDS * number)
        if all(operand.is_fixed for operand in operands):
            return call.bound_call(*operands)

        def run() -> None:
            call.run()

        return run


class JoinableKernel:
    """One step, as a chain where that is a call that others can be joined with; else as its own kernel.

    Args:
        chain: computes it.
        step: the step, with the kernel that computes it otherwise.
    """

    def __init__(self, chain: ChainKernel, step: FusibleStep) -> None:
        self._chain, self._step = chain, step
        self.binds_any_layout: bool = getattr(step.kernel, "binds_any_layout", False)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        call: Callable[[], Any] | None = self._chain.bind_joinable(inputs, outputs)
        if call is None:
            slots: dict[int, Any] = dict(zip(self._chain.input_numbers, inputs, strict=True))
            absent = FixedSlot(None)  # type: ignore[arg-type]
            call = self._step.kernel.bind([slots.get(index, absent) for index in self._step.inputs], outputs)
        return call


def _arguments(loops: LoopNest) -> tuple[int, ...]:
    *outer, inner = loops.sizes
    header = (math.prod(outer), inner, BLOCK, -(-inner // BLOCK), *outer[1:])
    return (*header, *(word for strides in loops.strides for word in (0, *strides)))


def _moving_call(inputs: Sequence[_Operand], run: Callable[[], Any], outputs: Sequence[_Operand]) -> Callable[[], Any]:
    """The call where some arrays change from run to run."""
    written = [output for output in outputs if not output.stays]

    def call() -> None:
        held = [operand.read() for operand in inputs]
        for output in written:
            output.point()
        run()
        for output in written:
            output.copy_out()
        held.clear()

    return call


class _Operand:
    """One input or output of a chain, and its strides.

    Args:
        slot: where it is.
        own_shape: its shape.
        dtype: its type.
        shape: what it is broadcast to.
        order: the axes of ``shape`` from the outermost loop to the innermost.
    """

    def __init__(
        self, slot: Slot, own_shape: tuple[int, ...], dtype: np.dtype[Any], shape: tuple[int, ...], order: Sequence[int]
    ) -> None:
        self._slot = slot
        self._staged: HostArray | None = None
        """A copy in the layout that the kernel needs."""
        # Arrays of slots that are not fixed are row-major, or made so.
        own_strides = slot.array.strides if slot.is_fixed else np.empty(own_shape, dtype).strides
        along = broadcast_strides(shape, own_shape, own_strides)
        self.strides = tuple(along[axis] for axis in order)
        inner = [stride for stride, axis in zip(self.strides, order, strict=True) if shape[axis] > 1]
        if inner and inner[-1] not in {0, dtype.itemsize}:
            self._stage(own_shape, dtype, order)

    def _stage(self, own_shape: tuple[int, ...], dtype: np.dtype[Any], order: Sequence[int]) -> None:
        padded = (*[1] * (len(order) - len(own_shape)), *own_shape)
        contiguous = np.empty(tuple(padded[axis] for axis in order), dtype)
        self._staged = contiguous.transpose(np.argsort(order)).reshape(own_shape)
        self.strides = tuple(
            0 if size == 1 else stride for size, stride in zip(contiguous.shape, contiguous.strides, strict=True)
        )
        self._contiguous = contiguous

    @property
    def is_fixed(self) -> bool:
        """Whether its array is the same each time."""
        return self._slot.is_fixed

    @property
    def stays(self) -> bool:
        """Whether nothing has to be done for it before or after a call."""
        return self._slot.is_fixed and self._staged is None

    def copied_in(self) -> Callable[[], Any]:
        """A call that copies an input's array, which is the same each time, to the staged copy."""
        staged, array = self._staged, self._slot.array
        return CopyWriter(lambda: [] if staged is None else [(staged, array)]).bind_arrays()

    def copied_out(self) -> Callable[[], Any]:
        """A call that copies the staged output to its array, which is the same each time."""
        staged, array = self._staged, self._slot.array
        return CopyWriter(lambda: [] if staged is None else [(array, staged)]).bind_arrays()

    def attach(self, call: TaskCall, position: int) -> None:
        """Point argument ``position`` of a call at it."""
        self._call, self._position = call, position
        if self._staged is not None:
            call.point(position, self._contiguous)
        elif self._slot.is_fixed:
            call.point(position, self._slot.array)

    def read(self) -> HostArray:
        """Point the call at an input's array; returns what has to stay alive until the call is done."""
        array: HostArray = self._slot.array
        if self._staged is not None:
            copy_elements(self._staged, array)
            return self._staged
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._call.point(self._position, array)
        return array

    def point(self) -> None:
        """Point the call at an output's array."""
        if self._staged is None:
            self._call.point(self._position, self._slot.array)

    def copy_out(self) -> None:
        """Copy a staged output to its array."""
        if self._staged is not None:
            copy_elements(self._slot.array, self._staged)
