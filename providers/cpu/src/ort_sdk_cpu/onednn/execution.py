"""Executions: a primitive with memory for its arguments."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ort_sdk.api import ExtentError, HostArray, RuntimeException
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.extents.bounds import memory_of
from ort_sdk_cpu.jit.native_call import CHECK_STATUS, IGNORE_STATUS, NativeCall
from ort_sdk_cpu.memory.workspace import aligned_bytes, growth
from ort_sdk_cpu.platform import threads

from .constants import Argument
from .library import check, library
from .memory_descriptor import AnyDescription, MemoryDescriptor, described
from .primitive import Primitive, reorder

__all__ = ["Execution", "PackedArray", "reordered"]


class _Scratchpad(threading.local):
    """Workspace of whatever primitive runs on this thread; grows to the largest."""

    def __init__(self) -> None:
        self.buffer = aligned_bytes(0)
        self.address = 0

    def reserve(self, nbytes: int) -> int:
        """Address of at least ``nbytes`` bytes."""
        if self.buffer.nbytes < nbytes:
            self.buffer = aligned_bytes(nbytes)
            self.address = self.buffer.ctypes.data
            growth.invalidate()
        return self.address


class _Call:
    """A call of a primitive with its own list of memory objects.

    Args:
        primitive: what is called.
        memories: argument → memory object.
    """

    __slots__ = ("_address", "_arguments", "_count", "_execute", "_memories", "_primitive", "_scratchpad", "_stream")

    def __init__(self, primitive: Primitive, memories: Mapping[int, Any]) -> None:
        onednn = library()
        self._primitive, self._memories = primitive, dict(memories)
        self._scratchpad = _new_memory(primitive.scratchpad) if primitive.scratchpad.nbytes else None
        if self._scratchpad is not None:
            self._memories[Argument.SCRATCHPAD] = self._scratchpad
        self._address = 0
        self._count = len(self._memories)
        self._arguments = onednn.ffi.new("exec_arg_t[]", self._count)
        for position, (argument, memory) in enumerate(self._memories.items()):
            self._arguments[position].arg, self._arguments[position].memory = argument, memory
        self._execute, self._stream = onednn.functions.dnnl_primitive_execute, onednn.stream

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""
        cast, handle = library().ffi.cast, self._primitive.handle
        words = [int(cast("intptr_t", pointer)) for pointer in (handle, self._stream, self._arguments)]
        row = (library().execute_address, words[0], words[1], self._count, words[2], CHECK_STATUS)
        return NativeCall((row,), None if self._scratchpad is None else self._prepare)

    def _prepare(self) -> None:
        """Use the thread's workspace."""
        if self._scratchpad is not None:
            address = _scratchpad.reserve(self._primitive.scratchpad.nbytes)
            if address != self._address:
                self._address = address
                _point(self._scratchpad, address)

    def __call__(self) -> None:
        self._prepare()
        status = self._execute(self._primitive.handle, self._stream, self._count, self._arguments)
        if status:
            check(status, f"executing {self._primitive.implementation}")


class Execution:
    """Runs a primitive on arrays set before. For one thread at a time, though not always the same.

    Args:
        primitive: what runs.
        arguments: argument → how its memory is laid out; all must be ``set`` before the first call.
        is_small: whether it was made for one thread, because a team would take longer to start than its work takes.
    """

    __slots__ = ("_alone", "_arrays", "_bytes", "_call", "_is_small", "_memories", "_primitive")

    def __init__(self, primitive: Primitive, arguments: Mapping[int, AnyDescription], *, is_small: bool = False) -> None:
        self._primitive, self._is_small = primitive, is_small
        descriptors = {argument: described(layout) for argument, layout in arguments.items()}
        self._memories = {argument: _new_memory(descriptor) for argument, descriptor in descriptors.items()}
        self._bytes = {argument: descriptor.extent_bytes for argument, descriptor in descriptors.items()}
        self._call = _Call(primitive, self._memories)
        self._alone: Callable[[], None] | None = None
        self._arrays: dict[int, HostArray] = {}

    def set(self, argument: int, array: HostArray) -> None:
        """Use an array's memory for an argument; it is kept alive.

        Raises:
            ExtentError: the argument's layout reaches outside of it.
        """
        if self._arrays.get(argument) is not array:
            self._check(argument, array)
            self._arrays[argument] = array
            _point(self._memories[argument], array.__array_interface__["data"][0])

    def _check(self, argument: int, array: HostArray) -> None:
        _, behind, is_writeable = memory_of(array)
        wanted = self._bytes[argument]
        if behind < wanted or (argument == Argument.DST and not is_writeable):
            found = f"{behind} bytes" if is_writeable else f"{behind} bytes that are read-only"
            raise ExtentError(
                f"The primitive {self._primitive.implementation} takes {wanted} bytes for argument {argument}, but "
                f"there are {found}. It was not started. This is a fault of the kernel that starts it."
            )

    def forget(self, argument: int) -> None:
        """Keep an argument's array alive no longer; it must be set before the next call."""
        self._arrays.pop(argument, None)

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python, on threads that do not work alone."""
        native = self._call.native
        if not self._is_small:
            return native
        set_threads = library().set_threads_address
        first, last = ((set_threads, count, 0, 0, 0, IGNORE_STATUS) for count in (1, library().thread_count))
        return NativeCall((first, *native.rows, last), native.prepare)

    def __call__(self) -> None:
        """Run; outputs are written when it returns.

        Raises:
            RuntimeException: oneDNN fails.
        """
        if self._is_small:
            with threads.openmp_threads(1):
                self._call()
            return
        if not threads.is_serial():
            self._call()
            return
        if self._alone is None:
            self._alone = self._made_for_one_thread()
        self._alone()

    def _made_for_one_thread(self) -> Callable[[], None]:
        """The call of a primitive that expects no team. Some divide their work by the threads they were made for."""
        primitive = self._primitive.for_one_thread
        if primitive is not None:
            return functools.partial(_with_one_thread, _Call(primitive, self._memories))
        return functools.partial(threads.run_with_team, self._call)


def _with_one_thread(call: Callable[[], None]) -> None:
    """Call a primitive made for one thread: the products inside some of them ask how many there are when they run."""
    with threads.openmp_threads(1):
        call()


def _point(memory: Any, address: int) -> None:
    onednn = library()
    data = onednn.ffi.cast("void *", address)
    check(onednn.functions.dnnl_memory_set_data_handle(memory, data), "setting an argument")


def _new_memory(descriptor: MemoryDescriptor) -> Any:
    onednn = library()
    functions = onednn.functions
    create = functions.dnnl_memory_create
    memory = onednn.new_handle("creating a memory object", create, descriptor.handle, onednn.engine, onednn.ffi.NULL)
    return onednn.ffi.gc(memory, functions.dnnl_memory_destroy)


def reordered(array: HostArray, source: AnyDescription, target: AnyDescription) -> HostArray | None:
    """A copy of an array in another layout, as bytes: uint8, (target.nbytes,); None if oneDNN cannot make it fast."""
    source, target = described(source), described(target)
    primitive = reorder(source, target)
    if primitive is None:
        return None
    result = aligned_bytes(target.nbytes)
    execution = Execution(primitive, {Argument.SRC: source, Argument.DST: target})
    execution.set(Argument.SRC, array)
    execution.set(Argument.DST, result)
    execution()
    return result


@dataclass(frozen=True, slots=True)
class PackedArray:
    """An array in a layout of oneDNN's own."""

    buffer: HostArray
    """uint8, (layout.nbytes,)."""
    layout: AnyDescription

    def in_layout(self, layout: AnyDescription) -> HostArray:
        """The bytes in another layout: a copy unless it is the same.

        Raises:
            RuntimeException: oneDNN cannot make it.
        """
        if described(layout).is_same_layout(self.layout):
            return self.buffer
        result = reordered(self.buffer, self.layout, layout)
        if result is None:
            raise RuntimeException(f"oneDNN has no fast copy from layout {self.layout} to {layout}")
        return result


_scratchpad = _Scratchpad()
