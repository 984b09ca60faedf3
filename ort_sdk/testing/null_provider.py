"""The null provider: every operator, and no work. What a session takes on it is the host's own time."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    API_VERSION,
    ExecutionProvider,
    HostArray,
    InvalidArgument,
    KernelCreateInfo,
    KernelDef,
    KernelFactory,
    KernelInfo,
    KernelRegistry,
    MemoryAccount,
    MemoryUse,
    NodeArg,
    OpKernel,
    OrtDevice,
    OrtMemoryInfo,
    ProviderHooks,
    Slot,
    TensorElementType,
    element_type_of,
    hookimpl,
    operator_names,
    schema_versions,
)

from .device_counts import DeviceCounts, JoinedWork, counted_join
from .memory_meter import HeldMemory, MemoryMeter

__all__ = ["NULL_DEVICE", "NULL_PROVIDER", "NullArray", "NullBlock", "NullDevice", "NullProvider"]

NULL_PROVIDER = "NullExecutionProvider"
NULL_DEVICE = OrtDevice("null", 0)
ALIGNMENT_BYTES = 256
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")


@dataclasses.dataclass(slots=True, eq=False)
class NullArray:
    """An array without contents."""

    shape: tuple[int, ...]
    element_type: TensorElementType
    memory: Any = None
    """The block it is a view of, or what a meter counts; None if nobody does."""

    @property
    def nbytes(self) -> int:
        """Bytes that the elements would take."""
        return math.prod(self.shape) * self.element_type.numpy_dtype.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements there are not."""
        return self.element_type.numpy_dtype


@dataclasses.dataclass(slots=True, eq=False)
class NullBlock:
    """A block without contents, of which arrays are views."""

    nbytes: int
    memory: tuple[HeldMemory, ...]
    """What a meter counts: more than one piece if it grew."""


class NullDevice:
    """What is counted of the null device.

    Args:
        meter: counts the memory that arrays would take; None if nobody does.
    """

    def __init__(self, meter: MemoryMeter | None = None) -> None:
        self.counts, self.joined, self.meter = DeviceCounts(), JoinedWork(), meter

    def counted(self, array: NullArray) -> NullArray:
        """An array like this one, in memory of its own."""
        return array if self.meter is None else NullArray(array.shape, array.element_type, self.meter.hold(array.nbytes))

    def held(self, nbytes: int) -> tuple[HeldMemory, ...]:
        """Memory of so many bytes."""
        return () if self.meter is None else (self.meter.hold(nbytes),)


class NullKernel(OpKernel):
    """Gives empty outputs: the same each time, or new ones where a meter counts them. Unknown dimensions count as 1.

    Args:
        info: the node.
        device: counts launches and outputs.
        is_accounted: whether the session's account counts them, too.
    """

    deterministic = True
    shape_inputs = ()

    def __init__(self, info: KernelInfo, device: NullDevice, *, is_accounted: bool = False) -> None:
        outputs = tuple(_nothing_of(argument) for argument in info.outputs)
        self._device = device
        self._account: MemoryAccount | None = info.execution_provider.memory_account if is_accounted else None
        self._result: Any = outputs[0] if len(outputs) == 1 else outputs

    def compute(self, *inputs: Any) -> Any:
        """The outputs made with the kernel, or others like them that are counted.

        Raises:
            MemoryError: more than the meter's capacity, or the session's limit.
        """
        del inputs
        self._device.counts.launches += 1
        self._device.counts.single_calls += 1
        if self._device.meter is None:
            return self._result
        made = self._result if isinstance(self._result, tuple) else (self._result,)
        counted = tuple(self._counted(value, self._device.meter) for value in made)
        return counted if isinstance(self._result, tuple) else counted[0]

    def _counted(self, value: Any, meter: MemoryMeter) -> Any:
        if not isinstance(value, NullArray):
            return value
        if self._account is None:
            return self._device.counted(value)
        held = self._account.hold(MemoryUse.KERNELS, value.nbytes, f"an output of {value.element_type.name}{list(value.shape)}")
        return NullArray(value.shape, value.element_type, (held, meter.hold(value.nbytes)))

    def bind(self, inputs: Sequence[Slot | None], outputs: Sequence[Slot | None]) -> Callable[[], None]:
        """A callable that does nothing but count; output slots keep what they hold."""
        del inputs, outputs
        counts = self._device.counts

        def launch() -> None:
            counts.launches += 1
            counts.single_calls += 1

        return launch


class NullAllocator:
    """Hands out arrays without memory.

    Args:
        memory_info: the kind of memory it pretends to hand out.
        device: counts them.
        grows: whether blocks grow where they are.
    """

    block_alignment_bytes = ALIGNMENT_BYTES

    def __init__(self, memory_info: OrtMemoryInfo, device: NullDevice, *, grows: bool = False) -> None:
        self._memory_info = memory_info
        self._device = device
        self._grows = grows

    @property
    def memory_info(self) -> OrtMemoryInfo:
        """The kind of memory it pretends to hand out."""
        return self._memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> NullArray:
        """An array without contents.

        Raises:
            MemoryError: more than the meter's capacity.
        """
        return self._device.counted(NullArray(tuple(shape), element_type))

    def release(self, array: NullArray) -> None:
        """Nothing to give back."""

    def allocate_block(self, nbytes: int) -> NullBlock:
        """A block without contents.

        Raises:
            MemoryError: more than the meter's capacity.
        """
        return NullBlock(nbytes, self._device.held(nbytes))

    def grow_block(self, block: NullBlock, nbytes: int) -> bool:
        """Make a block larger, if they grow here.

        Raises:
            MemoryError: more than the meter's capacity.
        """
        if self._grows:
            block.memory += self._device.held(nbytes - block.nbytes)
            block.nbytes = nbytes
        return self._grows

    def view(self, block: NullBlock, offset_bytes: int, shape: Sequence[int], element_type: TensorElementType) -> NullArray:
        """An array in a block.

        Raises:
            InvalidArgument: it is not aligned, or reaches out of the block.
        """
        array = NullArray(tuple(shape), element_type, block)
        if offset_bytes % ALIGNMENT_BYTES or not 0 <= offset_bytes <= block.nbytes - array.nbytes:
            raise InvalidArgument(f"no view of {array.nbytes} bytes at {offset_bytes} in a block of {block.nbytes} bytes")
        return array


class NullDataTransfer:
    """Copies nothing: what comes back to the host is zeros, or empty strings.

    Args:
        device: the device.
    """

    def __init__(self, device: NullDevice) -> None:
        self._device, self._counts = device, device.counts

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Whether one side is the null device and the other one is the host or the null device."""
        return NULL_DEVICE in (source, target) and all(device.is_cpu or device == NULL_DEVICE for device in (source, target))

    def copy(self, array: Any, source: OrtDevice, target: OrtDevice) -> Any:
        """An array of the same shape and type on ``target``.

        Raises:
            InvalidArgument: the devices are others than the host and the null device.
        """
        if not self.can_copy(source, target):
            raise InvalidArgument(f"cannot copy from {source} to {target}: only between cpu and {NULL_DEVICE}")
        self._counts.single_calls += 1
        if target.is_cpu:
            self._counts.downloads += 1
            self._wait()
            return _zeros(array)
        self._count_write(source)
        return self._device.counted(NullArray(tuple(array.shape), element_type_of(array)))

    def copy_all(self, arrays: Sequence[Any], source: OrtDevice, destinations: Sequence[HostArray | None]) -> list[HostArray]:
        """Zeros on the host."""
        del source
        self._counts.single_calls += len(arrays)
        self._counts.downloads += len(arrays)
        self._wait()
        return [_zeros(array) if given is None else _filled(given) for array, given in zip(arrays, destinations, strict=True)]

    def copy_into(self, array: Any, source: OrtDevice, destination: Any, target: OrtDevice) -> None:
        """Leave ``destination`` as it is, or fill it with zeros if it is on the host."""
        del array
        self._counts.single_calls += 1
        if not target.is_cpu:
            self._count_write(source)
            return
        self._counts.downloads += 1
        self._wait()
        _filled(destination)

    def bind_copy(self, source: Slot, target: Slot) -> Callable[[], None]:
        """A copy as a call; see ``ort_sdk.api.SupportsBindCopy``."""

        def copy() -> None:
            self._counts.single_calls += 1
            if not isinstance(target.array, np.ndarray):
                self._counts.uploads += 1
                return
            self._counts.downloads += 1
            _filled(target.array)
            self._device.joined.wait(self._wait)

        del source
        return copy

    def _count_write(self, source: OrtDevice) -> None:
        if source.is_cpu:
            self._counts.uploads += 1
        else:
            self._counts.device_copies += 1

    def _wait(self) -> None:
        self._counts.waits += 1


class NullExecutionProvider(ExecutionProvider):
    """The null device in one session.

    Args:
        options: provider options the user gave.
        null_device: counts what is asked of it.
    """

    def __init__(self, options: Mapping[str, str], null_device: NullDevice) -> None:
        super().__init__(NULL_PROVIDER, NULL_DEVICE, options)
        self._null_device = null_device

    def reshaped(self, array: NullArray, shape: Sequence[int]) -> NullArray:
        """An array of the shape."""
        self._null_device.counts.views += 1
        return NullArray(tuple(shape), array.element_type, array.memory)

    def outer_range(self, array: NullArray, start: int, stop: int) -> NullArray:
        """An array of so many rows."""
        self._null_device.counts.views += 1
        return NullArray((stop - start, *array.shape[1:]), array.element_type, array.memory)


class JoiningNullExecutionProvider(NullExecutionProvider):
    """The same, with calls that follow each other made one."""

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        """One call of all."""
        return counted_join(calls, self._null_device.counts, self._null_device.joined)


class NullProvider(ProviderHooks):
    """Hooks of the null provider. It has a kernel for every operator of the schema table, so it gets every node.

    Args:
        meter: counts the memory that its arrays would take, and ends it; None to measure nothing but the host's time.
        grows: whether its blocks grow where they are.
        accounts_kernels: whether the account of a session, with its limit, counts what kernels make, too.
        joins_calls: whether it makes one of calls that follow each other in a program.
    """

    name = NULL_PROVIDER
    api_version = API_VERSION

    def __init__(
        self,
        meter: MemoryMeter | None = None,
        *,
        grows: bool = False,
        accounts_kernels: bool = False,
        joins_calls: bool = False,
    ) -> None:
        self._device = NullDevice(meter)
        self._grows = grows
        self._made = JoiningNullExecutionProvider if joins_calls else NullExecutionProvider
        self._registry = KernelRegistry(NULL_PROVIDER)
        create = functools.partial(NullKernel, device=self._device, is_accounted=accounts_kernels)
        self._registry.add_source(
            functools.partial(_kernels_of, create), [(domain, op) for domain in DOMAINS for op in operator_names(domain)]
        )

    @property
    def counts(self) -> DeviceCounts:
        """What was asked of its device."""
        return self._device.counts

    @hookimpl
    def get_supported_devices(self) -> list[OrtDevice]:
        """The one null device."""
        return [NULL_DEVICE]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        """The provider of one session."""
        del session_options, device
        return self._made(provider_options, self._device)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """A kernel for every operator."""
        del execution_provider
        return self._registry

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> NullAllocator | None:
        """Allocator of no memory."""
        del execution_provider
        return NullAllocator(memory_info, self._device, grows=self._grows) if memory_info.device == NULL_DEVICE else None

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> NullDataTransfer:
        """Copier of nothing."""
        del execution_provider
        return NullDataTransfer(self._device)


def _kernels_of(create: KernelFactory, domain: str, op_type: str) -> list[KernelCreateInfo]:
    versions = schema_versions(op_type, domain)
    return [KernelCreateInfo(KernelDef(op_type, versions[0], domain, end_version=versions[-1]), create)]


def _nothing_of(argument: NodeArg | None) -> Any:
    """An empty value of the declared type."""
    if argument is None:
        return None
    kind = (argument.type or "tensor(float)").partition("(")[0]
    if kind == "seq":
        return []
    if kind == "map":
        return {}
    shape = tuple(dimension if isinstance(dimension, int) else 1 for dimension in argument.shape or ())
    return NullArray(shape, argument.element_type or TensorElementType.FLOAT)


def _zeros(array: NullArray) -> HostArray:
    if array.element_type is TensorElementType.STRING:
        return np.full(array.shape, "", dtype=object)
    return np.zeros(array.shape, array.dtype)


def _filled(array: HostArray) -> HostArray:
    array[...] = "" if array.dtype.hasobject else 0
    return array
