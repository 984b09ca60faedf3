"""Execution providers as the host holds them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .device import CPU_DEVICE, OrtDevice
from .element_type import TensorElementType, element_type_of
from .errors import NotImplemented as OrtNotImplemented
from .kernel import Array
from .memory import Event
from .memory_account import MemoryAccount, memory_limit
from .step_fusion import FusibleProgram, StepFusion

__all__ = ["API_VERSION", "ExecutionProvider"]

API_VERSION = 1
"""Version of this contract. A provider built for a newer one is refused."""


class ExecutionProvider:
    """One provider in one session, made by the hook ``create_execution_provider``. Subclass it.

    Args:
        name: ORT-style name, ``CUDAExecutionProvider``.
        device: where the provider's arrays live.
        options: provider options the user gave, as text. ``gpu_mem_limit`` limits ``memory_account``, on any device but the host.

    Raises:
        InvalidArgument: ``gpu_mem_limit`` is no number of bytes.
    """

    compiles_on_demand: bool = False
    """Whether making or running kernels may need code that is not compiled yet, and asks ``compilation_context()`` what to do."""
    has_compiled_code: bool = True
    """Of a provider that compiles on demand: whether some code is compiled, so that sessions may be made of what there is."""
    compiles_at_once: bool = False
    """Whether ``fuse_steps`` may compile when a program is made, and not only once it has run for a while: where work is queued,
    the host's clock does not see what a run takes."""
    dlpack_device_type: int = 0
    """DLPack's code of the device's type (``kDLCUDA`` is 2, ``kDLOpenCL`` 4), if ``to_dlpack`` and ``from_dlpack`` work."""

    def __init__(self, name: str, device: OrtDevice = CPU_DEVICE, options: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.device = device
        self.options: dict[str, str] = dict(options or {})
        self.memory_account = MemoryAccount(device, None if device.is_cpu else memory_limit(self.options))
        """What the session holds on the device; kernels that allocate memory themselves may count it there, too."""

    def run_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Context of every run: owns the stream and the allocator.

        Its exit waits until all queued work is done, unless the provider has ``synchronize``.
        """
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        """Wait until all work queued so far is done; raises the first error of it that was not raised yet.

        A provider that overrides it need not wait where ``run_scope`` ends: the host waits where it reads, here or for an event.
        It promises that work of one object is done in the order it was queued, whichever thread queued it; that arrays last until
        queued work has read them; that its copies from the host have read their source when they return, unless its data transfer
        says that it ``reads_late``; and that a copy to the host raises what work raised that the same run queued before.
        """

    def record_event(self) -> Event:
        """What happens when the work queued so far is done (CUDA: an event recorded on the stream; OpenCL: a marker).

        Asked inside ``run_scope``, at the end of a run that leaves results on the device. By default it is waited for with
        ``synchronize``, and so with all that was queued later.
        """
        return _EndOfWork(self)

    def order_after(self, event: Event) -> None:
        """Let work that is queued from now on begin when an event has happened.

        Args:
            event: of another provider object on the same device, which may be another provider's. By default the host waits.
        """
        event.wait()

    def shares_memory(self, first: Array, second: Array, *, entirely: bool = False) -> bool:
        """Whether two of the provider's arrays may have bytes in common, wherever they begin. Reads no contents.

        The host asks it of what steps read and make when it records a run, to know until when memory is in use: no provider that
        does not override it, since then it believes what definitions of kernels declare (``KernelDef.alias``).

        Args:
            first: an array.
            second: another one.
            entirely: asks whether arrays of the same type and shape begin at the same byte: of bound values, which then need no
                copies.
        """
        return first is second

    def wrap_memory(self, address: int, shape: tuple[int, ...], element_type: TensorElementType, owner: Any) -> Array:
        """An array of memory that others allocated on the device.

        Args:
            address: of the first element, in the device's address space; a multiple of the element's size.
            shape: in elements, dense and row by row.
            element_type: of the elements.
            owner: kept alive as long as the array; None if the caller of the session sees to it.

        Raises:
            NotImplemented: the provider's memory has no addresses.
            InvalidArgument: there is no memory of the device at the address, or not as much.
        """
        raise OrtNotImplemented(
            f"{self.name} makes no arrays of memory at an address ({address:#x} on {self.device}); bind an OrtValue instead "
            "(OrtValue.ortvalue_from_numpy or ortvalue_from_shape_and_type with the device)"
        )

    def to_dlpack(self, array: Array, stream: Any, ready: Event | None) -> Any:
        """DLPack capsule of an array, which shares its memory.

        Args:
            array: the provider's.
            stream: of the consumer, as DLPack numbers them for the device: its work comes after that on the array. None: its
                default stream; -1: nothing is to be ordered.
            ready: happens when the work on the array is done; None if that is over. By default the host waits for it.
        """
        if ready is not None:
            ready.wait()
        return array.__dlpack__() if stream is None else array.__dlpack__(stream=stream)

    def from_dlpack(self, tensor: Any) -> Array:
        """An array that shares the memory of another library's tensor.

        Args:
            tensor: has ``__dlpack__`` and is on a device of type ``dlpack_device_type``; is called with the stream whose work
                comes after what the other library has queued.

        Raises:
            InvalidArgument: its elements have gaps, or another order than row by row, or are of a type the device lacks.
        """
        raise OrtNotImplemented(f"{self.name} takes no DLPack tensors; copy it to the host first")

    def stamp(self) -> Any:
        """A point in the work queued so far, for profiles (CUDA: an event with timing; OpenCL: a marker on a profiling queue)."""
        return None

    def seconds_between(self, start: Any, end: Any) -> float:
        """Seconds of the device's clock between two stamps; asked after ``synchronize``.

        A provider that overrides it is asked for stamps around each step of a profiled run.
        """
        raise NotImplementedError

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape of one of the provider's arrays. Reads no contents."""
        return element_type_of(array), tuple(int(dimension) for dimension in array.shape)

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        """Make one kernel of several steps of a program, as often as it pays.

        Asked when a program is made, and again after it has run for a while as long as the answer is not complete. Results must
        stay the same within the rounding of the elements' type.
        """
        return StepFusion()

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        """Make one call of several, or another one of one, where that is faster.

        Args:
            calls: of bound kernels that follow each other in a program, with nothing between them.

        Returns:
            (number of calls, one call that does the same), in order, for all of them. A call made of several may have an
            attribute ``failed``, the position among them of the one that raised, so that its step is named. It looks itself
            between them whether the run shall stop (``ort_sdk.api.stopping``).
        """
        return [(1, call) for call in calls]

    def reshaped(self, array: Array, shape: Sequence[int]) -> Array | None:
        """An array of the device with another shape in the same memory, made without a kernel; None if there can be none.

        What it is asked for takes no call in a program: Reshape, Squeeze, Unsqueeze, Flatten and Identity of a value in a buffer
        that stays. The view is only read. It keeps the memory alive.

        Args:
            array: one of the provider's allocator, or a view of one.
            shape: of as many elements.
        """
        return None

    def outer_range(self, array: Array, start: int, stop: int) -> Array | None:
        """Some rows of an array of the device in the same memory, made without a kernel; None if there can be none.

        As ``reshaped``, for a Split of the outermost axis.

        Args:
            array: one of the provider's allocator, or a view of one.
            start: first position along axis 0.
            stop: the one after the last.
        """
        return None

    def step_kernel(self, op_type: str, types: Sequence[str], attributes: Mapping[str, Any]) -> Any:
        """The kernel of a step that no node of the model has, made where control flow is expanded; None if there is none.

        Args:
            op_type: one of ONNX's operators that move elements, of its newest version.
            types: of its inputs, as type strings.
            attributes: of the operator.
        """
        return None

    def describe_environment(self) -> Sequence[str]:
        """Libraries and settings the provider uses here, and how to get what is missing: lines of text, for reports."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.device})"


class _EndOfWork:
    """The end of all work of a provider that has no events."""

    is_done = False

    def __init__(self, execution_provider: ExecutionProvider) -> None:
        self._execution_provider = execution_provider

    def wait(self) -> None:
        """Wait for it."""
        self._execution_provider.synchronize()
