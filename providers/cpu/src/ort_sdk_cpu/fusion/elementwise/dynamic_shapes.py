"""Chains on arrays of dynamic shapes: the record of arguments is packed for each call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.task import TaskFunction
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.strides import OUTER_DIMENSIONS, LoopNest, broadcast_strides, memory_order

from .compile import address_of
from .extents import declaration_of_chain
from .groups import Group
from .ir import HEADER_WORDS, OPERAND_WORDS, Chain
from .kernel import BLOCK
from .types import ELEMENTS

__all__ = ["DynamicChain"]

MIN_WORK = 1 << 14
"""Elements times steps below which NumPy's functions take less time than packing the record."""


class DynamicChain:
    """A group of steps whose values have any shapes. For any number of threads at once.

    Args:
        group: what it computes.
    """

    def __init__(self, group: Group) -> None:
        chain, self._cost, self._steps = group.chain, group.cost, len(group.positions)
        self._types, self._inputs = chain.inputs + chain.output_types, len(chain.inputs)
        self._sources = [_sources(chain, output) for output in chain.outputs]
        """Inputs that each output depends on."""
        kinds = "q" * (HEADER_WORDS + OPERAND_WORDS * len(self._types))
        self._call = TaskFunction.at(address_of(chain), kinds, declaration_of_chain(chain))
        self._results = [ResultAllocator() for _ in chain.outputs]

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` where they are small, not of one shape, or have too many dimensions."""
        if math.prod([array.size for array in inputs]) * self._steps < MIN_WORK:
            return NotImplemented
        shape = _broadcast([array.shape for array in inputs])
        if shape is None or math.prod(shape) * self._steps < MIN_WORK or not self._is_of_all(inputs, shape):
            return NotImplemented
        if sum(size != 1 for size in shape) > OUTER_DIMENSIONS + 1:
            return NotImplemented
        order = _order(inputs, shape)
        ordered = tuple(shape[axis] for axis in order)
        arrays = [_readable(array, order) for array in inputs]
        outputs = [self._new(number, ordered) for number in range(len(self._results))]
        strides = [_strides(array, shape, order) for array in arrays]
        loops = LoopNest.over(ordered, [*strides, *(output.strides for output in outputs)])
        *outer, inner = loops.sizes
        words: list[Any] = [math.prod(outer), inner, BLOCK, -(-inner // BLOCK), *outer[1:]]
        for array, own in zip((*arrays, *outputs), loops.strides, strict=True):
            words += (array, *own)
        self._call(threads_for(math.prod(shape) * self._cost // 2), *words)
        back = np.argsort(order).tolist()
        results = tuple(output.transpose(back) for output in outputs)
        return results if len(results) > 1 else results[0]

    def _is_of_all(self, inputs: Sequence[HostArray], shape: tuple[int, ...]) -> bool:
        """Whether every output has the shape that all inputs have together."""
        return all(
            len(sources) == len(inputs) or _broadcast([inputs[source].shape for source in sources]) == shape
            for sources in self._sources
        )

    def _new(self, number: int, shape: tuple[int, ...]) -> HostArray:
        kind = self._types[self._inputs + number]
        return self._results[number].empty(shape) if kind == "f" else np.empty(shape, ELEMENTS[kind].dtype)


def _sources(chain: Chain, output: int) -> tuple[int, ...]:
    """Inputs that a value depends on."""
    count, found, waiting = len(chain.inputs), set(), [output]
    while waiting:
        value = waiting.pop()
        if value < count:
            found.add(value)
        else:
            waiting.extend(operand for operand in chain.steps[value - count].operands if operand >= 0)
    return tuple(sorted(found))


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """What arrays of these shapes are broadcast to; None if they cannot be."""
    different = set(shapes)
    widest = max(different, key=_extent)
    # NumPy's own function takes longer than computing on a thousand elements.
    if all(shape == widest[len(widest) - len(shape) :] or math.prod(shape) == 1 for shape in different):
        return widest
    try:
        return np.broadcast_shapes(*different)
    except ValueError:
        return None


def _extent(shape: tuple[int, ...]) -> tuple[int, int]:
    return len(shape), math.prod(shape)


def _order(inputs: Sequence[HostArray], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes from the outermost to the innermost in memory, of the first input that has the outputs' shape."""
    whole = next((array for array in inputs if array.shape == shape), None)
    return tuple(range(len(shape))) if whole is None or whole.flags.c_contiguous else memory_order(whole)


def _readable(array: HostArray, order: Sequence[int]) -> HostArray:
    """The array, or a copy that is contiguous along the innermost axis."""
    axis = array.ndim - len(order) + order[-1] if order else -1
    if axis < 0 or array.shape[axis] == 1 or array.strides[axis] == array.itemsize:
        return array
    own = [axis - len(order) + array.ndim for axis in order if axis - len(order) + array.ndim >= 0]
    return np.array(array.transpose(own), order="C").transpose(np.argsort(own))


def _strides(array: HostArray, shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    along = broadcast_strides(shape, array.shape, array.strides)
    return tuple(along[axis] for axis in order)
