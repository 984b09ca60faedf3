"""Calls of a primitive on NumPy arrays, whatever their layout: arguments that lie otherwise than it wants are copied."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from ort_sdk.api import HostArray, RuntimeException
from ort_sdk_cpu.jit.native_call import NativeCall, in_turn
from ort_sdk_cpu.kernel.strided_copy import strided_copy
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.platform import libraries, threads
from ort_sdk_cpu.platform.addresses import address_of

from .constants import Argument
from .execution import Execution, aligned_bytes
from .memory_descriptor import MemoryDescriptor, strided
from .primitive import Primitive, reorder

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = [
    "LayoutCall",
    "PrimitiveCall",
    "ZeroPadding",
    "channels_last",
    "channels_last_strides",
    "empty_channels_last",
    "is_channels_last",
    "layout_of",
]


class _CopyTask:
    """A compiled task that copies, with the arguments of oneDNN's."""

    _PLACES: ClassVar[dict[int, int]] = {Argument.DST: 0, Argument.SRC: 1}

    def __init__(self, call: TaskCall) -> None:
        self._call = call

    def set(self, argument: int, array: HostArray) -> None:
        """Use an array's memory; it is not kept."""
        self._call.point(self._PLACES[argument], array)

    def forget(self, argument: int) -> None:
        """Nothing is kept."""

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""
        return NativeCall((self._call.row,))

    def __call__(self) -> None:
        """Copy."""
        self._call.run()


def _copy_task(source: MemoryDescriptor, target: MemoryDescriptor) -> _CopyTask | None:
    """A copy between layouts with fixed steps, which starts in a fraction of the time that oneDNN's takes."""
    from_, to = source.steps, target.steps
    if from_ is None or to is None or not libraries.numba().is_usable:
        return None
    if from_.shape != to.shape or from_.itemsize != to.itemsize:
        return None
    call = strided_copy(to.shape, to.nbytes, from_.nbytes, to.itemsize, threads_for(math.prod(to.shape) // 4))
    return None if call is None else _CopyTask(call)


def _reorder(source: MemoryDescriptor, target: MemoryDescriptor, *, is_small: bool) -> Execution:
    with threads.team_of(1) if is_small else contextlib.nullcontext():
        primitive = reorder(source, target)
    if primitive is None:
        raise RuntimeException(f"oneDNN has no fast copy from layout {source.key} to {target.key}")
    return Execution(primitive, {Argument.SRC: source, Argument.DST: target}, is_small=is_small)


def _copying(source: MemoryDescriptor, target: MemoryDescriptor, *, is_small: bool) -> ArgumentSetter:
    return _copy_task(source, target) or _reorder(source, target, is_small=is_small)


_FLOAT = np.dtype(np.float32)
TEAM_BYTES = 1 << 17
"""Of an array up to which one thread has copied it before another is awake."""
OWN_BYTES = 1 << 16
"""Of copied arrays up to which a call on arrays that stay has memory of its own for them, and tells nobody where it is."""


class _Copy:
    """Copies an argument into another layout, in working memory of the thread.

    Args:
        argument: which, so that arguments do not share memory.
        source: its layout.
        target: the layout to copy to.
        scratch: working memory.
        is_small: whether it is not worth a team.
    """

    __slots__ = ("_name", "_scratch", "executions", "nbytes")

    def __init__(
        self, argument: int, source: MemoryDescriptor, target: MemoryDescriptor, scratch: Scratch, *, is_small: bool
    ) -> None:
        self.nbytes = max(source.nbytes, target.nbytes)
        self.executions: tuple[ArgumentSetter, ...] = self._made(source, target, is_small or self.nbytes <= TEAM_BYTES)
        """What copies the arrays that were aimed at, one after the other."""
        self._name, self._scratch = f"onednn {argument}", scratch

    def _made(self, source: MemoryDescriptor, target: MemoryDescriptor, is_small: bool) -> tuple[ArgumentSetter, ...]:
        return (_copying(source, target, is_small=is_small),)

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use arrays for both sides."""
        for execution in self.executions:
            execution.set(Argument.SRC, source)
            execution.set(Argument.DST, target)

    def memory(self) -> HostArray:
        """Working memory for either side."""
        return self._scratch.array(self._name, (self.nbytes,), np.dtype(np.uint8))

    def __call__(self, source: HostArray, target: HostArray) -> None:
        """Copy; keeps neither array."""
        self.aim(source, target)
        for execution in self.executions:
            execution()
            execution.forget(Argument.SRC)
            execution.forget(Argument.DST)


class ZeroPadding(NamedTuple):
    """Zeros around a signal."""

    shape: tuple[int, int, int]
    """(1, C, L) of the signal."""
    before: int
    """Elements of a channel that are 0 before it."""
    behind: int
    """And behind it."""


class _PaddingCopy(_Copy):
    """Copies a signal between zeros, channels last.

    Args:
        argument: as for every copy, like those that follow.
        source: layout of the signal.
        target: that of the signal with the zeros.
        scratch: working memory.
        padding: the zeros.
        is_small: whether it is not worth a team.
    """

    __slots__ = ("_padding", "_starts", "_zeros")

    def __init__(
        self,
        argument: int,
        source: MemoryDescriptor,
        target: MemoryDescriptor,
        scratch: Scratch,
        padding: ZeroPadding,
        *,
        is_small: bool,
    ) -> None:
        self._padding = padding
        super().__init__(argument, source, target, scratch, is_small=is_small)

    def _made(self, source: MemoryDescriptor, target: MemoryDescriptor, is_small: bool) -> tuple[ArgumentSetter, ...]:
        (_, channels, length), before, behind = self._padding
        self._zeros = np.zeros(channels * max(before, behind), _FLOAT)
        found: list[ArgumentSetter] = []
        self._starts: list[int] = []
        for start, count, given in ((before, length, source), (0, before, None), (before + length, behind, None)):
            if count:
                place = channels_last((1, channels, count), _FLOAT)
                found.append(_copying(given or place, place, is_small=is_small))
                self._starts.append(start * channels * _FLOAT.itemsize)
        return tuple(found)

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use arrays for both sides; the target is bytes."""
        sources = (source, self._zeros, self._zeros)
        for execution, start, given in zip(self.executions, self._starts, sources, strict=False):
            execution.set(Argument.SRC, given)
            execution.set(Argument.DST, target[start:])


class ArgumentSetter(Protocol):
    """Runs on arrays set before. For one thread at a time."""

    def set(self, argument: int, array: HostArray) -> None:
        """Use an array's memory for an argument; it is kept alive."""

    def forget(self, argument: int) -> None:
        """Keep an argument's array alive no longer; it must be set before the next call."""

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""

    def __call__(self) -> None:
        """Run; outputs are written when it returns."""


class LayoutCall:
    """An execution on arrays of given layouts. For one thread at a time.

    Args:
        execution: what runs.
        arguments: of a call, in order, DST last: (argument, layout of the array, layout the execution wants).
        scratch: memory for copies.
        is_small: whether copies are not worth a team.
        padding: zeros that the execution wants around SRC, and the array lacks.
    """

    def __init__(
        self,
        execution: ArgumentSetter,
        arguments: Sequence[tuple[int, MemoryDescriptor, MemoryDescriptor]],
        scratch: Scratch,
        *,
        is_small: bool = False,
        padding: ZeroPadding | None = None,
    ) -> None:
        self._execution = execution
        self._arguments = tuple(argument for argument, _, _ in arguments)
        self._copies: list[_Copy | None] = []
        for argument, given, target in arguments:
            if argument == Argument.SRC and padding is not None:
                self._copies.append(_PaddingCopy(argument, given, target, scratch, padding, is_small=is_small))
                continue
            ends = (target, given) if argument == Argument.DST else (given, target)
            self._copies.append(None if given.is_same_layout(target) else _Copy(argument, *ends, scratch, is_small=is_small))

    @property
    def copy_count(self) -> int:
        """Arguments that are copied at each call."""
        return sum(copy is not None for copy in self._copies)

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays are in the order of ``arguments`` and are not kept."""
        execution, copy_out = self._execution, self._copies[-1]
        for argument, array, copy in zip(self._arguments, arrays, self._copies, strict=True):
            if copy is None:
                execution.set(argument, array)
                continue
            memory = copy.memory()
            if copy is not copy_out:
                copy(array, memory)
            execution.set(argument, memory)
        execution()
        if copy_out is not None:
            copy_out(copy_out.memory(), arrays[-1])
        for argument in self._arguments:
            execution.forget(argument)

    def fixed(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        for argument, array, copy in zip(self._arguments, arrays, self._copies, strict=True):
            if copy is None:
                self._execution.set(argument, array)
        if not self.copy_count:
            return self._execution
        *before, after = (() if copy is None else copy.executions for copy in self._copies)
        steps = (*itertools.chain(*before), self._execution, *after)
        ends = zip(self._arguments, arrays, self._copies, strict=True)
        memory = _CopyMemory(self._execution, [(argument, array, copy) for argument, array, copy in ends if copy is not None])
        call: Callable[[], Any] = in_turn(steps if memory.is_own else (memory, *steps))
        call.copy_count, call.kept = self.copy_count, memory  # type: ignore[attr-defined]
        return call

    def aimed(self, places: Sequence[int], *arrays: HostArray) -> Callable[..., None] | None:
        """The call on arrays that stay, and keeps them, but for those at some places, which it takes; None if any are copied."""
        if self.copy_count:
            return None
        execution = self._execution
        for place, (argument, array) in enumerate(zip(self._arguments, arrays, strict=True)):
            if place not in places:
                execution.set(argument, array)
        arguments = [self._arguments[place] for place in places]

        def run(*others: HostArray) -> None:
            for argument, array in zip(arguments, others, strict=True):
                execution.set(argument, array)
            execution()
            for argument in arguments:
                execution.forget(argument)

        return run


class _CopyMemory:
    """Tells copies, and what runs between them, where working memory is: once if it is little, else before each call.

    Args:
        execution: what runs.
        copied: its arguments that are copied: which, the array that stays, the copy.
    """

    def __init__(self, execution: ArgumentSetter, copied: Sequence[tuple[int, HostArray, _Copy]]) -> None:
        self._execution, self._copied = execution, copied
        self._memories: list[HostArray] = []
        self.is_own = sum(copy.nbytes for _, _, copy in copied) <= OWN_BYTES
        if self.is_own:
            self._tell([aligned_bytes(copy.nbytes) for _, _, copy in copied])

    def __call__(self) -> None:
        """Use the memory of the thread that runs."""
        memories = [copy.memory() for _, _, copy in self._copied]
        if list(map(address_of, memories)) != list(map(address_of, self._memories)):
            self._tell(memories)

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python otherwise."""
        return NativeCall((), self)

    def _tell(self, memories: list[HostArray]) -> None:
        self._memories = memories
        for (argument, array, copy), memory in zip(self._copied, memories, strict=True):
            copy.aim(*((memory, array) if argument == Argument.DST else (array, memory)))
            self._execution.set(argument, memory)


class PrimitiveCall(LayoutCall):
    """A primitive on arrays of given layouts. For one thread at a time.

    Args:
        primitive: what runs.
        arguments: of a call, in order, DST last: (argument, layout of the array, layout the primitive wants).
        constants: arguments that are the same in every call: (argument, layout, array).
        scratch: memory for copies.
        is_small: whether the primitive was made for one thread; see ``Execution``.
        padding: see ``LayoutCall``.
    """

    def __init__(
        self,
        primitive: Primitive,
        arguments: Sequence[tuple[int, MemoryDescriptor, MemoryDescriptor]],
        constants: Sequence[tuple[int, MemoryDescriptor, HostArray]],
        scratch: Scratch,
        *,
        is_small: bool = False,
        padding: ZeroPadding | None = None,
    ) -> None:
        wanted = {argument: target for argument, _, target in arguments}
        execution = Execution(primitive, wanted | {argument: layout for argument, layout, _ in constants}, is_small=is_small)
        for argument, _, array in constants:
            execution.set(argument, array)
        super().__init__(execution, arguments, scratch, is_small=is_small, padding=padding)


@functools.lru_cache(maxsize=1024)
def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Steps in elements of (N, C, *spatial) in memory as (N, *spatial, C)."""
    strides, step = [0] * len(shape), 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis], step = step, step * max(1, shape[axis])
    return tuple(strides)


def channels_last(shape: tuple[int, ...], dtype: np.dtype[Any]) -> MemoryDescriptor:
    """(N, C, *spatial) in memory as (N, *spatial, C)."""
    return strided(shape, dtype, channels_last_strides(shape))


def empty_channels_last(shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    """A new array (N, C, *spatial) that lies in memory as (N, *spatial, C)."""
    return np.moveaxis(np.empty((shape[0], *shape[2:], shape[1]), dtype), -1, 1)


def is_channels_last(array: HostArray) -> bool:
    """Whether (N, C, *spatial) lies in memory as (N, *spatial, C), and not row-major at once."""
    return not array.flags.c_contiguous and np.moveaxis(array, 1, -1).flags.c_contiguous


def layout_of(array: HostArray) -> MemoryDescriptor | None:
    """How an array lies in memory; None if oneDNN cannot read it there.

    Steps along axes of one element mean nothing, so an array that is channels last but for them is told as such.
    """
    return _layout(array.shape, array.strides, array.dtype) if array.flags.aligned else None


@functools.lru_cache(maxsize=4096)
def _layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> MemoryDescriptor | None:
    if any(stride % dtype.itemsize for stride in strides):
        return None
    steps = tuple(stride // dtype.itemsize for stride in strides)
    wanted = channels_last_strides(shape) if len(shape) > 2 else ()
    if wanted and all(step == other or size == 1 for step, other, size in zip(steps, wanted, shape, strict=True)):
        return channels_last(shape, dtype)
    reach = 1
    for step, size in sorted(zip(steps, shape, strict=True)):
        if size > 1 and step < reach:
            return None
        reach = max(reach, step * size)
    return strided(shape, dtype, tuple(max(1, step) for step in steps))
