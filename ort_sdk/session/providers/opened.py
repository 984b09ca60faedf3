"""The providers of one session: opened on a device, with everything the host asked them for at the start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ort_sdk.api import (
    CPU_DEVICE,
    Allocator,
    ComputeCapability,
    DataTransfer,
    EPFail,
    ExecutionProvider,
    Fail,
    FusedNode,
    GraphViewer,
    InvalidArgument,
    KernelLookup,
    KernelRegistry,
    OrtDevice,
    OrtMemoryInfo,
    OrtSdkError,
)
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.graph import Model
from ort_sdk.graph.operator_schemas import TABLE_SCHEMAS, OperatorSchemas
from ort_sdk.kernels import KernelTypeStrResolver, known_kernels, resolver_of
from ort_sdk.memory import DataTransferManager, DeviceMemory, ExternalDataManager
from ort_sdk.partition import ProviderBinding
from ort_sdk.plugins import ProviderHandle, plugin_manager
from ort_sdk.run import BindingProvider, RunControl

__all__ = [
    "ProviderScope",
    "SessionProvider",
    "binding_providers",
    "data_transfers",
    "device_memories",
    "external_data_manager",
    "open_provider",
    "operator_schemas",
    "raise_scope_error",
    "run_scope_of",
    "type_str_resolvers",
]


ProviderScope = Callable[[RunControl], contextlib.AbstractContextManager[Any]]
"""Makes the context of one run."""


@dataclass(frozen=True, slots=True)
class SessionProvider:
    """One provider of a session."""

    handle: ProviderHandle
    execution_provider: ExecutionProvider
    registry: KernelRegistry | None
    data_transfer: DataTransfer | None
    allocator: Allocator | None

    @property
    def name(self) -> str:
        """ORT-style name."""
        return self.execution_provider.name

    @property
    def device(self) -> OrtDevice:
        """Where its arrays live."""
        return self.execution_provider.device

    @property
    def is_asynchronous(self) -> bool:
        """Whether work may still be queued where its ``run_scope`` ends."""
        return type(self.execution_provider).synchronize is not ExecutionProvider.synchronize

    @property
    def reads_late(self) -> bool:
        """Whether queued work may read host memory after a run."""
        return self.is_asynchronous and bool(getattr(self.data_transfer, "reads_late", False))

    def synchronize(self) -> None:
        """Wait for all its queued work; an error of that names the provider."""
        try:
            self.execution_provider.synchronize()
        except Exception as error:  # noqa: BLE001 - a provider may raise anything
            raise_foreign(error, f"raised by work that was queued on {self.device} by {self.name}")

    def run_scope(self) -> ProviderScope | None:
        """Context of the provider's part of each run; None if it has nothing to do there."""
        execution_provider = self.execution_provider
        own = execution_provider.run_scope
        if self.handle.implements("on_run_start") or self.handle.implements("on_run_end"):
            return lambda control: _hooked_scope(self.handle, execution_provider, control)
        if type(execution_provider).run_scope is ExecutionProvider.run_scope:
            return None
        return lambda _control: own()

    def binding(self, resolver: KernelTypeStrResolver) -> ProviderBinding:
        """The provider as partitioning sees it.

        Args:
            resolver: says which arguments the type constraints of its kernels speak of.
        """
        handle, execution_provider = self.handle, self.execution_provider

        def get_capability(graph_viewer: GraphViewer, kernel_lookup: KernelLookup) -> Sequence[ComputeCapability] | None:
            return handle.get_capability(execution_provider, graph_viewer, kernel_lookup)

        def compile_groups(fused_nodes: Sequence[FusedNode]) -> Sequence[Any]:
            return handle.compile(execution_provider, fused_nodes)

        known = known_kernels(self.registry, resolver)
        return ProviderBinding(self.name, execution_provider, self.registry, get_capability, compile_groups, resolver, known)


@contextlib.contextmanager
def run_scope_of(provider: SessionProvider, *, waits: bool = True) -> Iterator[None]:
    """A provider's scope outside of runs, for calls whose errors name it already.

    Args:
        provider: the provider.
        waits: whether what is queued inside is to be done where it ends; False if what is inside has waited for what counts.
    """
    end = None
    try:
        with provider.execution_provider.run_scope():
            yield
            if waits and provider.is_asynchronous:
                end = provider.execution_provider.record_event()
        if end is not None:
            end.wait()
    except Exception as error:
        if isinstance(error, OrtSdkError):
            raise
        raise_foreign(error, f"raised in run_scope of {provider.name}")


def raise_scope_error(error: Exception, names: Sequence[str]) -> NoReturn:
    """Raise what left a run, naming the providers if their scopes raised it: the host's own code did not, then.

    Args:
        error: as the function that entered the scope caught it.
        names: of the providers that have scopes.
    """
    try:
        called = None if error.__traceback__ is None else error.__traceback__.tb_next
        if called is not None and str(called.tb_frame.f_globals.get("__name__")).startswith("ort_sdk."):
            raise error
        raise_foreign(error, f"raised in run_scope of {' or '.join(names)}")
    finally:
        del error


@contextlib.contextmanager
def _hooked_scope(handle: ProviderHandle, execution_provider: ExecutionProvider, control: RunControl) -> Iterator[None]:
    """The provider's scope, with its hooks called at the run's start and end."""
    handle.on_run_start(execution_provider, control.config)
    try:
        with execution_provider.run_scope():
            yield
    finally:
        handle.on_run_end(execution_provider, control.config)


def open_provider(handle: ProviderHandle, options: Mapping[str, str], session_config: Mapping[str, str]) -> SessionProvider:
    """Create a provider for one session.

    Args:
        handle: the loaded provider.
        options: provider options; ``device_id`` chooses among its devices.
        session_config: the session's config entries.

    Raises:
        Fail: the provider has no such device, or made nothing.
    """
    execution_provider = handle.create_execution_provider(_choose_device(handle, options), options, session_config)
    # Options of its own may have led the provider to another of its devices.
    device = execution_provider.device
    registry = handle.get_kernel_registry(execution_provider)
    transfer = handle.get_data_transfer(execution_provider)
    if transfer is None and device != CPU_DEVICE:
        raise Fail(f"{handle.name}: its arrays live on {device}, so its hook get_data_transfer must return a DataTransfer")
    allocator = handle.create_allocator(execution_provider, OrtMemoryInfo(device))
    return SessionProvider(handle, execution_provider, registry, transfer, allocator)


def _choose_device(handle: ProviderHandle, options: Mapping[str, str]) -> OrtDevice:
    devices = handle.get_supported_devices()
    wanted = options.get("device_id")
    if wanted is None:
        return devices[0]
    if not str(wanted).isdigit():
        raise InvalidArgument(f"{handle.name}: provider option device_id must be a number, got {wanted!r}")
    for device in devices:
        if device.index == int(wanted):
            return device
    raise InvalidArgument(f"{handle.name}: no device {wanted}; it has {', '.join(str(device) for device in devices)}")


def operator_schemas(providers: Sequence[SessionProvider]) -> OperatorSchemas:
    """Schemas of the operators a session may run; of two declarations of one operator the first provider's counts."""
    declared = [schema for each in providers if each.registry is not None for schema in each.registry.declared_operators()]
    return OperatorSchemas(declared) if declared else TABLE_SCHEMAS


def type_str_resolvers(model: Model, providers: Sequence[SessionProvider]) -> dict[str, KernelTypeStrResolver]:
    """Provider → what its kernels are matched by for a model."""
    return {provider.name: resolver_of(provider.registry, model) for provider in providers}


def data_transfers(providers: Sequence[SessionProvider]) -> DataTransferManager:
    """The copiers of a session's providers."""
    found = [(provider.data_transfer, provider.name) for provider in providers if provider.data_transfer is not None]
    return DataTransferManager([transfer for transfer, _ in found], [name for _, name in found])


def external_data_manager(providers: Sequence[SessionProvider]) -> ExternalDataManager:
    """The external data loaders of a session: those of plugins first, which know what their files mean.

    Raises:
        EPFail: what a hook gave is no loader.
    """
    found = [("a plugin", loader) for loader in plugin_manager().plugins().get_external_data_loaders()]
    for provider in providers:
        loader = provider.handle.get_external_data_loader(provider.execution_provider)
        if loader is not None:
            found.append((provider.name, loader))
    for owner, loader in found:
        if not callable(getattr(loader, "can_load", None)) or not callable(getattr(loader, "load_tensor", None)):
            raise EPFail(f"hook get_external_data_loader of {owner} must give an ExternalDataLoader, gave {loader!r:.200}")
    return ExternalDataManager([loader for _, loader in found], {id(loader): owner for owner, loader in found})


def device_memories(providers: Sequence[SessionProvider]) -> dict[OrtDevice, DeviceMemory]:
    """Where weights for each device go; the first provider of a device decides."""
    memories: dict[OrtDevice, DeviceMemory] = {}
    for provider in providers:
        allocator = provider.allocator
        memory_info = OrtMemoryInfo(provider.device) if allocator is None else allocator.memory_info
        account = provider.execution_provider.memory_account
        memories.setdefault(provider.device, DeviceMemory(provider.handle, provider.name, memory_info, allocator, account))
    return memories


def binding_providers(providers: Sequence[SessionProvider]) -> dict[str, BindingProvider]:
    """What binding kernels needs of the providers that can preallocate."""
    transfers = data_transfers(providers)
    return {
        provider.name: BindingProvider(provider.execution_provider, provider.allocator, provider.device, transfers)
        for provider in providers
        if provider.allocator is not None
    }
