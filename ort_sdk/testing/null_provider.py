"""The null provider: every operator, and no work. What a session takes on it is the host's own time."""

from __future__ import annotations

import dataclasses
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
    KernelInfo,
    KernelRegistry,
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

from .device_counts import CountedJoin, DeviceCounts, JoinedWork

__all__ = ["NULL_DEVICE", "NULL_PROVIDER", "NullArray", "NullProvider"]

NULL_PROVIDER = "NullExecutionProvider"
NULL_DEVICE = OrtDevice("null", 0)
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")


@dataclasses.dataclass(slots=True, eq=False)
class NullArray:
    """An array without contents."""

    shape: tuple[int, ...]
    element_type: TensorElementType

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements there are not."""
        return self.element_type.numpy_dtype


class NullKernel(OpKernel):
    """Gives the same empty outputs each time. Unknown dimensions count as 1."""

    deterministic = True
    shape_inputs = ()

    def __init__(self, info: KernelInfo) -> None:
        own = info.execution_provider
        self._counts = own.counts if isinstance(own, NullExecutionProvider) else DeviceCounts()
        outputs = tuple(_nothing_of(argument) for argument in info.outputs)
        self._result: Any = outputs[0] if len(outputs) == 1 else outputs

    def compute(self, *inputs: Any) -> Any:
        """The outputs made with the kernel."""
        del inputs
        self._counts.launches += 1
        self._counts.single_calls += 1
        return self._result

    def bind(self, inputs: Sequence[Slot | None], outputs: Sequence[Slot | None]) -> Callable[[], None]:
        """A callable that does nothing but count; output slots keep what they hold."""
        del inputs, outputs
        counts = self._counts

        def launch() -> None:
            counts.launches += 1
            counts.single_calls += 1

        return launch


class NullAllocator:
    """Hands out arrays without memory."""

    def __init__(self, memory_info: OrtMemoryInfo) -> None:
        self._memory_info = memory_info

    @property
    def memory_info(self) -> OrtMemoryInfo:
        """The kind of memory it pretends to hand out."""
        return self._memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> NullArray:
        """An array without contents."""
        return NullArray(tuple(shape), element_type)

    def release(self, array: NullArray) -> None:
        """Nothing to give back."""


class NullDataTransfer:
    """Copies nothing: what comes back to the host is zeros, or empty strings.

    Args:
        counts: of the device.
        work: of the device.
    """

    def __init__(self, counts: DeviceCounts | None = None, work: JoinedWork | None = None) -> None:
        self._counts = DeviceCounts() if counts is None else counts
        self._work = JoinedWork() if work is None else work

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
        return NullArray(tuple(array.shape), element_type_of(array))

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
            self._work.wait(self._wait)

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
        counts: of the device.
        work: of the device.
    """

    def __init__(self, options: Mapping[str, str], counts: DeviceCounts, work: JoinedWork) -> None:
        super().__init__(NULL_PROVIDER, NULL_DEVICE, options)
        self.counts, self.work = counts, work

    def reshaped(self, array: NullArray, shape: Sequence[int]) -> NullArray:
        """An array of the shape."""
        self.counts.views += 1
        return NullArray(tuple(shape), array.element_type)

    def outer_range(self, array: NullArray, start: int, stop: int) -> NullArray:
        """An array of so many rows."""
        self.counts.views += 1
        return NullArray((stop - start, *array.shape[1:]), array.element_type)


class JoiningNullExecutionProvider(NullExecutionProvider):
    """The same, with calls that follow each other made one."""

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        """One call of all."""
        return [(len(calls), CountedJoin(calls, self.counts, self.work))]


class NullProvider(ProviderHooks):
    """Hooks of the null provider. It has a kernel for every operator of the schema table, so it gets every node.

    Args:
        joins_calls: whether it makes one of calls that follow each other in a program.
    """

    name = NULL_PROVIDER
    api_version = API_VERSION

    def __init__(self, *, joins_calls: bool = False) -> None:
        self.counts, self._work = DeviceCounts(), JoinedWork()
        self._made = JoiningNullExecutionProvider if joins_calls else NullExecutionProvider
        self._registry = KernelRegistry(NULL_PROVIDER)
        self._registry.add_source(_kernels_of, [(domain, op) for domain in DOMAINS for op in operator_names(domain)])

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
        return self._made(provider_options, self.counts, self._work)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """A kernel for every operator."""
        del execution_provider
        return self._registry

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> NullAllocator | None:
        """Allocator of no memory."""
        del execution_provider
        return NullAllocator(memory_info) if memory_info.device == NULL_DEVICE else None

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> NullDataTransfer:
        """Copier of nothing."""
        del execution_provider
        return NullDataTransfer(self.counts, self._work)


def _kernels_of(domain: str, op_type: str) -> list[KernelCreateInfo]:
    versions = schema_versions(op_type, domain)
    return [KernelCreateInfo(KernelDef(op_type, versions[0], domain, end_version=versions[-1]), NullKernel)]


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
