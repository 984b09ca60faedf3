"""The strict provider: devices in host memory on which every fault of a host shows, with no accelerator.

Its arrays can only be read through its data transfer, its work runs as late as possible on a thread of its own, its
memory holds poison before and after use, and its two devices never share an array. A host that forgets a copy, reads
before waiting, shares a buffer, or uses memory after giving it back fails on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    API_VERSION,
    ExecutionProvider,
    InvalidArgument,
    KernelCreateInfo,
    KernelDef,
    KernelInfo,
    KernelPredicate,
    KernelRegistry,
    OrtDevice,
    OrtMemoryInfo,
    ProviderHooks,
    RuntimeException,
    Slot,
    TensorElementType,
    hookimpl,
)
from ort_sdk.opset import NumpyNamespace, add_opset
from ort_sdk.opset.definition import DEFINITIONS
from ort_sdk.opset.families import load as load_families

from .allocator import StrictAllocator
from .asynchronous import AsynchronousStrictExecutionProvider
from .execution_provider import STRICT_PROVIDER, SeparateStrictExecutionProvider, StrictExecutionProvider
from .memory import StrictArray, StrictDevice, host_type
from .transfer import StrictDataTransfer

__all__ = ["STRICT_PROVIDER", "StrictExecutionProvider", "StrictKernel", "StrictProvider"]

DEVICE_COUNT = 2
STRICT_TYPES = frozenset(TensorElementType) - {TensorElementType.UNDEFINED, TensorElementType.STRING}


class StrictProvider(ProviderHooks):
    """Hooks of the strict provider.

    Args:
        element_types: element types its devices store; all but strings by default. A host that assumes that any device
            has, say, float64 is found by leaving that out.
        capacity_bytes: bytes of each device; None for no limit.
        is_asynchronous: whether runs end before their work; see ``AsynchronousStrictExecutionProvider``.
        reads_late: whether its copies from the host read their source late then, too.
        joins_calls: whether calls that follow each other in a program become one; on asynchronous devices they always do.
    """

    name = STRICT_PROVIDER
    api_version = API_VERSION

    def __init__(
        self,
        element_types: Iterable[TensorElementType] = STRICT_TYPES,
        capacity_bytes: int | None = None,
        *,
        is_asynchronous: bool = False,
        reads_late: bool = False,
        joins_calls: bool = True,
    ) -> None:
        types = frozenset(element_types) & STRICT_TYPES
        ort_devices = [OrtDevice("strict", index) for index in range(DEVICE_COUNT)]
        self.devices = {device: StrictDevice(device, types) for device in ort_devices}
        self._capacity_bytes = capacity_bytes
        self._is_asynchronous, self._reads_late, self._joins_calls = is_asynchronous, reads_late, joins_calls
        self._registry = _make_registry(types)

    @hookimpl
    def get_supported_devices(self) -> list[OrtDevice]:
        """Both devices."""
        return list(self.devices)

    @hookimpl
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> StrictExecutionProvider:
        """The provider of one session."""
        del session_options
        if self._is_asynchronous:
            return AsynchronousStrictExecutionProvider(self.devices[device], provider_options)
        made = StrictExecutionProvider if self._joins_calls else SeparateStrictExecutionProvider
        return made(self.devices[device], provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry:
        """The operator set over NumPy, run late."""
        del execution_provider
        return self._registry

    @hookimpl
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> StrictAllocator | None:
        """Allocator of the session's device."""
        device = self.devices.get(memory_info.device)
        if device is None:
            return None
        blocks = execution_provider.blocks if isinstance(execution_provider, StrictExecutionProvider) else None
        return StrictAllocator(device, memory_info, self._capacity_bytes, blocks)

    @hookimpl
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> StrictDataTransfer:
        """Copier between the host and both devices."""
        del execution_provider
        return StrictDataTransfer(self.devices, reads_at_once=self._is_asynchronous and not self._reads_late)


def _make_registry(element_types: frozenset[TensorElementType]) -> KernelRegistry:
    """The operator set's kernels over NumPy, each wrapped so that it runs late on private memory."""
    load_families()
    host_only = {op_type for (_, op_type), rows in DEFINITIONS.items() if all(row.host_only for row in rows)}
    on_host = KernelRegistry(STRICT_PROVIDER)
    add_opset(on_host, NumpyNamespace(), types=element_types, exclude=host_only)

    def source(domain: str, op_type: str) -> list[KernelCreateInfo]:
        return [_late(candidate) for candidate in on_host.candidates(domain, op_type)]

    registry = KernelRegistry(STRICT_PROVIDER)
    registry.add_source(source, on_host.operators())
    return registry


def _late(candidate: KernelCreateInfo) -> KernelCreateInfo:
    # Outputs are always memory of their own, so nothing is an alias of anything.
    kernel_def = dataclasses.replace(
        candidate.kernel_def, alias=(), may_inplace=(), when=_tensors_only(candidate.kernel_def.when)
    )

    def create(info: KernelInfo) -> StrictKernel:
        kernel_class = StrictKernel if _needs_host(kernel_def, info) else BindableStrictKernel
        return kernel_class(candidate.create(info), kernel_def, info)

    return KernelCreateInfo(kernel_def, create)


def _tensors_only(when: KernelPredicate | None) -> KernelPredicate:
    def accepts(info: KernelInfo) -> str | None:
        for argument in (*info.inputs, *info.outputs):
            if argument is not None and argument.type is not None and not argument.type.startswith("tensor("):
                return f"value '{argument.name}' is a {argument.type}; a strict device holds tensors only"
        return None if when is None else when(info)

    return accepts


def _needs_host(kernel_def: KernelDef, info: KernelInfo) -> bool:
    on_host_inputs = any(kernel_def.input_on_host(index) for index in range(len(info.inputs)))
    return on_host_inputs or any(kernel_def.output_on_host(index) for index in range(len(info.outputs)))


class StrictKernel:
    """A NumPy kernel whose work is queued: it returns arrays that are filled later.

    Args:
        kernel: the NumPy kernel, a function or an object.
        kernel_def: says which arguments are on the host.
        info: the node.
    """

    def __init__(self, kernel: Any, kernel_def: KernelDef, info: KernelInfo) -> None:
        if not isinstance(info.execution_provider, StrictExecutionProvider):
            raise InvalidArgument(f"{info.describe()}: made for {info.execution_provider!r}, not for a strict device")
        self._wrapped = kernel
        self._kernel: Callable[..., Any] = getattr(kernel, "compute", kernel)
        self._kernel_def = kernel_def
        self._device = info.execution_provider.strict_device
        self._label = info.describe()
        self._outputs = tuple(argument is not None for argument in info.outputs)
        self.deterministic: bool = getattr(kernel, "deterministic", False)
        self.shape_inputs: tuple[int, ...] | None = getattr(kernel, "shape_inputs", None)
        self.contents_from_shapes: bool = getattr(kernel, "contents_from_shapes", False)

    @property
    def algorithm(self) -> str | None:
        """That of the NumPy kernel."""
        return getattr(self._wrapped, "algorithm", None)

    def compute(self, *inputs: Any) -> Any:
        """Queue the node's work and return its outputs at once; outputs on the host are waited for."""
        self._count()
        readers = self._readers(inputs)
        arrays = self._device.promised(lambda cells: self._fill(readers, cells), len(self._outputs), self._label)
        outputs = [self._delivered(index, array) if self._outputs[index] else None for index, array in enumerate(arrays)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _count(self) -> None:
        self._device.counts.launches += 1
        self._device.counts.single_calls += 1

    def _readers(self, inputs: Sequence[Any]) -> list[Callable[[], Any]]:
        """How the queued work gets each input; what is wrong with an input is said now."""
        if not self._device.queue.in_scope:
            raise RuntimeException(f"{self._label}: launched on {self._device.device} outside the provider's run_scope()")
        return [self._reader(index, value) for index, value in enumerate(inputs)]

    def _reader(self, index: int, value: Any) -> Callable[[], Any]:
        if value is None:
            return _absent
        purpose = f"{self._label}, input {index}"
        if self._kernel_def.input_on_host(index):
            if isinstance(value, StrictArray):
                raise InvalidArgument(f"{purpose}: is read on the host, got an array of device {value.device}: a copy is missing")
            # As a launch does with its arguments: taken when it is queued.
            host_type(value)
            taken = np.array(value, copy=True)
            return lambda: taken
        return self._device.cell_of(value, purpose).read

    def _fill(self, readers: Sequence[Callable[[], Any]], cells: Sequence[Any]) -> None:
        result = self._kernel(*[read() for read in readers])
        results = result if isinstance(result, tuple) else (result,)
        for index, cell in enumerate(cells):
            value = results[index] if index < len(results) else None
            if value is not None:
                cell.fill(np.asarray(value))
            elif self._outputs[index]:
                raise RuntimeException(f"{self._label}: its kernel gave nothing for output {index}")

    def _delivered(self, index: int, array: StrictArray) -> Any:
        if not self._kernel_def.output_on_host(index):
            return array
        if array.work is not None:
            self._device.queue.wait(array.work)
        return array.cell.read().copy()


class BindableStrictKernel(StrictKernel):
    """A strict kernel without arguments on the host: it can be bound to fixed memory."""

    def bind(self, inputs: Sequence[Slot | None], outputs: Sequence[Slot | None]) -> Callable[[], None]:
        """Callable that queues the work on what the slots hold when it is called.

        An output slot that holds an array has it written; an empty one gets a new array.
        """

        def launch() -> None:
            self._count()
            readers = self._readers([None if slot is None else slot.array for slot in inputs])
            targets = [None if slot is None or slot.array is None else self._target(slot.array, inputs) for slot in outputs]

            def fill(cells: Sequence[Any]) -> None:
                self._fill(readers, [target or cell for target, cell in zip(targets, cells, strict=True)])

            arrays = self._device.promised(fill, len(outputs), self._label)
            for slot, target, array in zip(outputs, targets, arrays, strict=True):
                if slot is not None and target is None:
                    slot.array = array

        return launch

    def _target(self, array: Any, inputs: Sequence[Slot | None]) -> Any:
        cell = self._device.cell_of(array, f"{self._label}, output")
        for index, slot in enumerate(inputs):
            if slot is not None and slot.array is not None and cell.overlaps(slot.array.cell):
                raise RuntimeException(
                    f"{self._label}: an output is bound to the memory of input {index}, which it may not overwrite"
                )
        return cell


def _absent() -> None:
    """Reads an optional input that is not given."""
