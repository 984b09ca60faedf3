"""Calls on arrays of any layout: arguments whose layout is not the one that the callee wants are copied."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.native_call import NativeCall, in_sequence
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Workspace, aligned_bytes
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from .memory import AnyLayout, Layout, channels_last
from .strided_copy import strided_copy

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = ["ArgumentSetter", "CopyCall", "LayoutCall", "ZeroPadding"]

_FLOAT = np.dtype(np.float32)
TEAM_BYTES = 1 << 17
"""Of an array up to which one thread has copied it before another is awake."""
OWN_BYTES = 1 << 16
"""Of copied arrays up to which a call on arrays that stay has memory of its own for them, and tells nobody where it is."""


class ArgumentSetter(Protocol):
    """Runs on arrays set before. For one thread at a time."""

    def set(self, argument: Any, array: HostArray) -> None:
        """Use an array's memory for an argument; it is kept alive."""

    def forget(self, argument: Any) -> None:
        """Keep an argument's array alive no longer; it must be set before the next call."""

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""

    def __call__(self) -> None:
        """Run; outputs are written when it returns."""


class CopyCall(Protocol):
    """Copies between arrays it was aimed at before. For one thread at a time."""

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use these arrays' memory."""

    def release(self) -> None:
        """Keep no array alive; it must be aimed before the next call."""

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""

    def __call__(self) -> None:
        """Copy."""


class _TaskCopy:
    """A copy by a compiled task, which keeps no array."""

    def __init__(self, call: TaskCall) -> None:
        self._call = call

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use these arrays' memory."""
        self._call.point(0, target)
        self._call.point(1, source)

    def release(self) -> None:
        """Nothing is kept."""

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""
        return NativeCall((self._call.row,))

    def __call__(self) -> None:
        """Copy."""
        self._call.run()


def task_copy(source: AnyLayout, target: AnyLayout) -> CopyCall | None:
    """A compiled copy, which starts in a fraction of the time that oneDNN's reorder takes; None where there is none."""
    if not isinstance(source, Layout) or not isinstance(target, Layout) or not libraries.compiled_kernels().is_usable:
        return None
    if source.shape != target.shape or source.dtype.itemsize != target.dtype.itemsize:
        return None
    threads = threads_for(math.prod(target.shape) // 4)
    call = strided_copy(target.shape, target.byte_strides, source.byte_strides, target.dtype.itemsize, threads)
    return None if call is None else _TaskCopy(call)


def _copy_between(source: AnyLayout, target: AnyLayout, *, is_small: bool) -> CopyCall:
    """A copy between layouts: oneDNN's reorder for layouts of its own, and for bytes that the task does not transpose."""
    found = task_copy(source, target)
    if found is not None:
        return found
    from .reorder import reorder_copy

    return reorder_copy(source, target, is_small=is_small)


class _Copy:
    """Copies an argument into another layout, in the thread's workspace.

    Args:
        argument: which, so that arguments do not share memory.
        source: its layout.
        target: the layout to copy to.
        workspace: the workspace.
        is_small: whether it is not worth a team.
    """

    __slots__ = ("_name", "_workspace", "calls", "nbytes")

    def __init__(self, argument: Hashable, source: AnyLayout, target: AnyLayout, workspace: Workspace, *, is_small: bool) -> None:
        self.nbytes = max(source.nbytes, target.nbytes)
        self.calls: tuple[CopyCall, ...] = self._made(source, target, is_small or self.nbytes <= TEAM_BYTES)
        """What copies the arrays that were aimed at, one after the other."""
        self._name, self._workspace = f"copy of {argument}", workspace

    def _made(self, source: AnyLayout, target: AnyLayout, is_small: bool) -> tuple[CopyCall, ...]:
        return (_copy_between(source, target, is_small=is_small),)

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use arrays for both sides."""
        for call in self.calls:
            call.aim(source, target)

    def memory(self) -> HostArray:
        """Workspace for either side."""
        return self._workspace.array(self._name, (self.nbytes,), np.dtype(np.uint8))

    def __call__(self, source: HostArray, target: HostArray) -> None:
        """Copy; keeps neither array."""
        self.aim(source, target)
        for call in self.calls:
            call()
            call.release()


class ZeroPadding(NamedTuple):
    """Zeros around a 1-D input."""

    shape: tuple[int, int, int]
    """(1, C, L) of the input."""
    before: int
    """Elements of a channel that are 0 before it."""
    behind: int
    """And behind it."""


class _PaddingCopy(_Copy):
    """Copies a 1-D input between zeros, channels last.

    Args:
        argument: as for every copy, like those that follow.
        source: layout of the input.
        target: that of the input with the zeros.
        workspace: the workspace.
        padding: the zeros.
        is_small: whether it is not worth a team.
    """

    __slots__ = ("_padding", "_starts", "_zeros")

    def __init__(
        self,
        argument: Hashable,
        source: AnyLayout,
        target: AnyLayout,
        workspace: Workspace,
        padding: ZeroPadding,
        *,
        is_small: bool,
    ) -> None:
        self._padding = padding
        super().__init__(argument, source, target, workspace, is_small=is_small)

    def _made(self, source: AnyLayout, target: AnyLayout, is_small: bool) -> tuple[CopyCall, ...]:
        (_, channels, length), before, behind = self._padding
        self._zeros = np.zeros(channels * max(before, behind), _FLOAT)
        found: list[CopyCall] = []
        self._starts: list[int] = []
        for start, count, given in ((before, length, source), (0, before, None), (before + length, behind, None)):
            if count:
                part = channels_last((1, channels, count), _FLOAT)
                found.append(_copy_between(given or part, part, is_small=is_small))
                self._starts.append(start * channels * _FLOAT.itemsize)
        return tuple(found)

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use arrays for both sides; the target is bytes."""
        sources = (source, self._zeros, self._zeros)
        for call, start, given in zip(self.calls, self._starts, sources, strict=False):
            call.aim(given, target[start:])


class LayoutCall:
    """An execution on arrays of given layouts. For one thread at a time.

    Args:
        execution: what runs.
        arguments: of a call, in order, the output last: (argument, layout of the array, layout the execution wants).
        workspace: the workspace for copies.
        is_small: whether copies are not worth a team.
        padding: zeros that the execution wants around the first argument, and the array lacks.
    """

    def __init__(
        self,
        execution: ArgumentSetter,
        arguments: Sequence[tuple[Hashable, AnyLayout, AnyLayout]],
        workspace: Workspace,
        *,
        is_small: bool = False,
        padding: ZeroPadding | None = None,
    ) -> None:
        self._execution = execution
        self._arguments = tuple(argument for argument, _, _ in arguments)
        self._copies: list[_Copy | None] = []
        last = len(arguments) - 1
        for index, (argument, given, target) in enumerate(arguments):
            if index == 0 and padding is not None:
                self._copies.append(_PaddingCopy(argument, given, target, workspace, padding, is_small=is_small))
                continue
            ends = (target, given) if index == last else (given, target)
            self._copies.append(None if given.is_same_layout(target) else _Copy(argument, *ends, workspace, is_small=is_small))

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

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        for argument, array, copy in zip(self._arguments, arrays, self._copies, strict=True):
            if copy is None:
                self._execution.set(argument, array)
        if not self.copy_count:
            return self._execution
        calls: list[tuple[CopyCall, ...]] = [() if copy is None else copy.calls for copy in self._copies]
        steps: list[Callable[[], Any]] = [*itertools.chain(*calls[:-1]), self._execution, *calls[-1]]
        memory = _CopyMemory(self._execution, self._arguments, arrays, self._copies)
        call: Callable[[], Any] = in_sequence(steps if memory.is_own else [memory, *steps])
        call.copy_count, call.kept = self.copy_count, memory  # type: ignore[attr-defined]
        return call

    def aimed(self, positions: Sequence[int], *arrays: HostArray) -> Callable[..., None] | None:
        """The call on arrays that stay, and are kept, but for those at some positions, which it takes; None if any is copied."""
        if self.copy_count:
            return None
        execution = self._execution
        for position, (argument, array) in enumerate(zip(self._arguments, arrays, strict=True)):
            if position not in positions:
                execution.set(argument, array)
        arguments = [self._arguments[position] for position in positions]

        def run(*others: HostArray) -> None:
            for argument, array in zip(arguments, others, strict=True):
                execution.set(argument, array)
            execution()
            for argument in arguments:
                execution.forget(argument)

        return run


class _CopyMemory:
    """Tells copies, and what runs between them, where workspace is: once if it is little, else before each call.

    Args:
        execution: what runs.
        arguments: its arguments, the output last.
        arrays: that stay, in the same order.
        copies: of them, None for those that are not copied.
    """

    def __init__(
        self,
        execution: ArgumentSetter,
        arguments: Sequence[Hashable],
        arrays: Sequence[HostArray],
        copies: Sequence[_Copy | None],
    ) -> None:
        self._execution, last = execution, len(arguments) - 1
        ends = enumerate(zip(arguments, arrays, copies, strict=True))
        self._copied = [(argument, array, copy, at == last) for at, (argument, array, copy) in ends if copy is not None]
        self._memories: list[HostArray] = []
        self.is_own = sum(copy.nbytes for _, _, copy, _ in self._copied) <= OWN_BYTES
        if self.is_own:
            self._tell([aligned_bytes(copy.nbytes) for _, _, copy, _ in self._copied])

    def __call__(self) -> None:
        """Use the memory of the thread that runs."""
        memories = [copy.memory() for _, _, copy, _ in self._copied]
        if list(map(address_of, memories)) != list(map(address_of, self._memories)):
            self._tell(memories)

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python otherwise."""
        return NativeCall((), self)

    def _tell(self, memories: list[HostArray]) -> None:
        self._memories = memories
        for (argument, array, copy, is_output), memory in zip(self._copied, memories, strict=True):
            copy.aim(*((memory, array) if is_output else (array, memory)))
            self._execution.set(argument, memory)
