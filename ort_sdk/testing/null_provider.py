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

from .memory_meter import HeldMemory, MemoryMeter

__all__ = ["NULL_DEVICE", "NULL_PROVIDER", "NullArray", "NullBlock", "NullProvider"]

NULL_PROVIDER = "NullExecutionProvider"
NULL_DEVICE = OrtDevice("null", 0)
ALIGNMENT_BYTES = 256
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
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


class NullKernel(OpKernel):
    """Gives empty outputs: the same each time, or new ones where a meter counts them. Unknown dimensions count as 1.

    Args:
        info: the node.
        meter: counts outputs; None if nobody does.
        is_accounted: whether the session's account counts them, too.
    """

    deterministic = True
    shape_inputs = ()

    def __init__(self, info: KernelInfo, meter: MemoryMeter | None = None, *, is_accounted: bool = False) -> None:
        outputs = tuple(_nothing_of(argument) for argument in info.outputs)
        self._meter = meter
        self._account: MemoryAccount | None = info.execution_provider.memory_account if is_accounted else None
        self._result: Any = outputs[0] if len(outputs) == 1 else outputs

    def compute(self, *inputs: Any) -> Any:
        """The outputs made with the kernel, or others like them that are counted.

        Raises:
            MemoryError: more than the meter's capacity, or the session's limit.
        """
        del inputs
        if self._meter is None:
            return self._result
        made = self._result if isinstance(self._result, tuple) else (self._result,)
        counted = tuple(self._counted(value, self._meter) for value in made)
        return counted if isinstance(self._result, tuple) else counted[0]

    def _counted(self, value: Any, meter: MemoryMeter) -> Any:
        if not isinstance(value, NullArray):
            return value
        if self._account is None:
            return _counted(value, meter)
        held = self._account.hold(MemoryUse.KERNELS, value.nbytes, f"an output of {value.element_type.name}{list(value.shape)}")
        return NullArray(value.shape, value.element_type, (held, meter.hold(value.nbytes)))

    def bind(self, inputs: Sequence[Slot | None], outputs: Sequence[Slot | None]) -> Callable[[], None]:
        """A callable that does nothing; output slots keep what they hold."""
        del inputs, outputs
        return _do_nothing


class NullAllocator:
    """Hands out arrays without memory.

    Args:
        memory_info: the kind of memory it pretends to hand out.
        meter: counts them; None if nobody does.
        grows: whether blocks grow where they are.
    """

    block_alignment_bytes = ALIGNMENT_BYTES

    def __init__(self, memory_info: OrtMemoryInfo, meter: MemoryMeter | None = None, *, grows: bool = False) -> None:
        self._memory_info = memory_info
        self._meter = meter
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
        return _counted(NullArray(tuple(shape), element_type), self._meter)

    def release(self, array: NullArray) -> None:
        """Nothing to give back."""

    def allocate_block(self, nbytes: int) -> NullBlock:
        """A block without contents.

        Raises:
            MemoryError: more than the meter's capacity.
        """
        return NullBlock(nbytes, self._held(nbytes))

    def grow_block(self, block: NullBlock, nbytes: int) -> bool:
        """Make a block larger, if they grow here.

        Raises:
            MemoryError: more than the meter's capacity.
        """
        if self._grows:
            block.memory += self._held(nbytes - block.nbytes)
            block.nbytes = nbytes
        return self._grows

    def _held(self, nbytes: int) -> tuple[HeldMemory, ...]:
        return () if self._meter is None else (self._meter.hold(nbytes),)

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
        meter: counts arrays on the device; None if nobody does.
    """

    def __init__(self, meter: MemoryMeter | None = None) -> None:
        self._meter = meter

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
        if target.is_cpu:
            return _zeros(array)
        return _counted(NullArray(tuple(array.shape), element_type_of(array)), self._meter)


class NullProvider(ProviderHooks):
    """Hooks of the null provider. It has a kernel for every operator of the schema table, so it gets every node.

    Args:
        meter: counts the memory that its arrays would take, and ends it; None to measure nothing but the host's time.
        grows: whether its blocks grow where they are.
        accounts_kernels: whether the account of a session, with its limit, counts what kernels make, too.
    """

    name = NULL_PROVIDER
    api_version = API_VERSION

    def __init__(self, meter: MemoryMeter | None = None, *, grows: bool = False, accounts_kernels: bool = False) -> None:
        self._meter = meter
        self._grows = grows
        self._registry = KernelRegistry(NULL_PROVIDER)
        kernels_of = functools.partial(_kernels_of, functools.partial(NullKernel, meter=meter, is_accounted=accounts_kernels))
        self._registry.add_source(kernels_of, [(domain, op) for domain in DOMAINS for op in operator_names(domain)])

    @hookimpl
    def get_supported_devices(self) -> list[OrtDevice]:
        """The one null device."""
        return [NULL_DEVICE]

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        """The provider of one session."""
        del session_options
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """A kernel for every operator."""
        del execution_provider
        return self._registry

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> NullAllocator | None:
        """Allocator of no memory."""
        del execution_provider
        return NullAllocator(memory_info, self._meter, grows=self._grows) if memory_info.device == NULL_DEVICE else None

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> NullDataTransfer:
        """Copier of nothing."""
        del execution_provider
        return NullDataTransfer(self._meter)


def _kernels_of(create: KernelFactory, domain: str, op_type: str) -> list[KernelCreateInfo]:
    versions = schema_versions(op_type, domain)
    return [KernelCreateInfo(KernelDef(op_type, versions[0], domain, end_version=versions[-1]), create)]


def _counted(array: NullArray, meter: MemoryMeter | None) -> NullArray:
    """An array like this one, in memory that a meter counts if there is one."""
    return array if meter is None else NullArray(array.shape, array.element_type, meter.hold(array.nbytes))


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


def _do_nothing() -> None:
    """The work of a bound kernel."""
