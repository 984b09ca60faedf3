"""Typed doors to plugins: one method per hook. No other module calls a pluggy hook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pluggy

from ort_sdk.api import (
    Allocator,
    ComputeCapability,
    DataTransfer,
    EPFail,
    ExecutionProvider,
    ExternalDataLoader,
    FusedNode,
    GraphViewer,
    KernelLookup,
    KernelRegistry,
    NotPacked,
    OpKernel,
    OrtDevice,
    OrtMemoryInfo,
    PrePackedWeights,
    Tensor,
)
from ort_sdk.api.foreign_errors import raise_foreign

from .state import ProviderRecord

__all__ = ["PluginsHandle", "ProviderHandle"]

_T = TypeVar("_T")


class ProviderHandle:
    """The hooks of one provider. Other providers never see a call; wrappers of observers do.

    An exception of the provider becomes an ``EPFail`` that names provider, distribution and hook, and is its cause. A result
    that is not what the specification says raises ``EPFail``, too.

    Args:
        record: what is known of the provider.
        callers: hook name → caller bound to this provider.
    """

    def __init__(self, record: ProviderRecord, callers: Mapping[str, pluggy.HookCaller]) -> None:
        self.record = record
        self._devices: tuple[OrtDevice, ...] | None = None
        self.rebind(callers)

    @property
    def name(self) -> str:
        """Provider name, ``CUDAExecutionProvider``."""
        return self.record.provider_name

    @property
    def entry_point_name(self) -> str:
        """Short name, ``cuda``."""
        return self.record.entry_point_name

    @property
    def devices(self) -> tuple[OrtDevice, ...]:
        """Devices the provider can use here."""
        return self.get_supported_devices()

    def rebind(self, callers: Mapping[str, pluggy.HookCaller]) -> None:
        """Take new callers, after other plugins came or went. For the plugin manager."""
        # Hooks that nobody implements are asked of every model, some for each of its weights.
        self._callers = {hook: _caller_of(caller, found) for hook, caller in callers.items() if (found := caller.get_hookimpls())}

    def implements(self, hook: str) -> bool:
        """Whether the provider implements a hook, or an observer wraps it. Lets hot paths skip a call."""
        return hook in self._callers

    def get_supported_devices(self) -> tuple[OrtDevice, ...]:
        """Devices the provider can use here. The provider is asked once; the answer is kept for the process."""
        if self._devices is None:
            devices = self._items(self._call("get_supported_devices"), "get_supported_devices")
            self._devices = tuple(self._check(device, OrtDevice, "get_supported_devices") for device in devices)
        return self._devices

    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider:
        """Make the provider of one session.

        Raises:
            EPFail: the provider returned something else.
        """
        result = self._call(
            "create_execution_provider", device=device, provider_options=provider_options, session_options=session_options
        )
        return self._check(result, ExecutionProvider, "create_execution_provider")

    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry | None:
        """The provider's kernels; None if it only compiles groups."""
        result = self._call("get_kernel_registry", execution_provider=execution_provider)
        return None if result is None else self._check(result, KernelRegistry, "get_kernel_registry")

    def get_capability(
        self, execution_provider: ExecutionProvider, graph_viewer: GraphViewer, kernel_lookup: KernelLookup
    ) -> list[ComputeCapability] | None:
        """The provider's claims of a graph; None means every node it has a kernel for."""
        claims = self._call(
            "get_capability", execution_provider=execution_provider, graph_viewer=graph_viewer, kernel_lookup=kernel_lookup
        )
        if claims is None:
            return None
        return [self._check(claim, ComputeCapability, "get_capability") for claim in self._items(claims, "get_capability")]

    def compile(self, execution_provider: ExecutionProvider, fused_nodes: Sequence[FusedNode]) -> list[Any]:
        """Kernels for claimed groups, one per group.

        Raises:
            EPFail: there are more or fewer kernels than groups, or one is none.
        """
        kernels = self._items(self._call("compile", execution_provider=execution_provider, fused_nodes=fused_nodes), "compile")
        if len(kernels) != len(fused_nodes):
            names = ", ".join(node.name for node in fused_nodes)
            raise EPFail(
                f"{self.record.label()}: hook compile gave {len(kernels)} kernels for {len(fused_nodes)} groups: {names}"
            )
        for kernel in kernels:
            if not callable(getattr(kernel, "compute", kernel)):
                raise self._wrong_result(kernel, "kernels", "compile")
        return kernels

    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator | None:
        """Allocator of a kind of memory; None if the host cannot preallocate there."""
        allocator: Allocator | None = self._call(
            "create_allocator", execution_provider=execution_provider, memory_info=memory_info
        )
        if allocator is not None and not callable(getattr(allocator, "allocate", None)):
            raise self._wrong_result(allocator, "an Allocator", "create_allocator")
        return allocator

    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer | None:
        """Copier between device and host; None if the provider's arrays are NumPy's."""
        result = self._call("get_data_transfer", execution_provider=execution_provider)
        # mypy: a protocol is not a type object one may pass on, so this one is checked here.
        if result is not None and not isinstance(result, DataTransfer):
            raise self._wrong_result(result, "DataTransfer", "get_data_transfer")
        return result

    def get_external_data_loader(self, execution_provider: ExecutionProvider) -> ExternalDataLoader | None:
        """Loader of external weights straight to the device; None if the host reads and copies."""
        loader: ExternalDataLoader | None = self._call("get_external_data_loader", execution_provider=execution_provider)
        return loader

    def prepack(
        self,
        execution_provider: ExecutionProvider,
        kernel: OpKernel,
        tensor: Tensor,
        input_index: int,
        allocator: Allocator | None,
    ) -> PrePackedWeights | NotPacked | None:
        """A constant input in its kernel's layout; None if the provider has no opinion and the kernel is to be asked."""
        packed = self._call(
            "prepack",
            execution_provider=execution_provider,
            kernel=kernel,
            tensor=tensor,
            input_index=input_index,
            allocator=allocator,
        )
        if packed is not None and not isinstance(packed, (PrePackedWeights, NotPacked)):
            raise self._wrong_result(packed, "PrePackedWeights, NOT_PACKED or None", "prepack")
        return packed

    def get_graph_transformers(self, execution_provider: ExecutionProvider, level: int) -> list[Any]:
        """The provider's own graph passes of an optimization level."""
        hook = "get_graph_transformers"
        passes = self._items(self._call(hook, execution_provider=execution_provider, level=level), hook)
        for found in passes:
            if not isinstance(getattr(found, "name", None), str) or not callable(getattr(found, "apply", None)):
                raise self._wrong_result(found, "graph passes, with name and apply", hook)
        return passes

    def on_session_initialization_end(self, execution_provider: ExecutionProvider) -> None:
        """Notify the provider that the session is complete."""
        self._call("on_session_initialization_end", execution_provider=execution_provider)

    def on_run_start(self, execution_provider: ExecutionProvider, run_options: Mapping[str, str]) -> None:
        """Notify the provider that a run begins."""
        self._call("on_run_start", execution_provider=execution_provider, run_options=run_options)

    def on_run_end(self, execution_provider: ExecutionProvider, run_options: Mapping[str, str]) -> None:
        """Notify the provider that a run ended."""
        self._call("on_run_end", execution_provider=execution_provider, run_options=run_options)

    def _call(self, hook: str, **arguments: Any) -> Any:
        caller = self._callers.get(hook)
        if caller is None:
            return None
        try:
            return caller(**arguments)
        except SystemExit as error:
            raise EPFail(f"{self.record.label()}: hook {hook} would end the process, with exit code {error.code}") from error
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            raise_foreign(error, f"raised in hook {hook} of execution provider {self.record.label()}")

    def _items(self, result: Any, hook: str) -> list[Any]:
        if result is None:
            return []
        if not isinstance(result, Iterable):
            raise self._wrong_result(result, "a sequence", hook)
        return list(result)

    def _check(self, result: Any, expected: type[_T], hook: str) -> _T:
        if not isinstance(result, expected):
            raise self._wrong_result(result, expected.__name__, hook)
        return result

    def _wrong_result(self, result: Any, expected: str, hook: str) -> EPFail:
        return EPFail(f"{self.record.label()}: hook {hook} must give {expected}, gave {type(result).__name__}: {result!r:.200}")

    def __repr__(self) -> str:
        return f"ProviderHandle({self.record.label()})"


def _caller_of(caller: pluggy.HookCaller, implementations: Sequence[pluggy.HookImpl]) -> Callable[..., Any]:
    """What calls a hook: the function itself, with the arguments it takes, where one plugin implements it and none wraps it."""
    only = implementations[0]
    if len(implementations) > 1 or only.wrapper or only.hookwrapper:
        return caller
    function, names = only.function, only.argnames
    return lambda **arguments: function(*[arguments[name] for name in names])


class PluginsHandle:
    """The hooks of all plugins that are no providers, as one.

    Args:
        names: the plugins' names, in calling order.
        callers: hook name → caller of every plugin that implements it.
    """

    def __init__(self, names: Sequence[str], callers: Mapping[str, pluggy.HookCaller]) -> None:
        self.names = tuple(names)
        self._callers = dict(callers)
        self.observes_stages = bool(callers["on_stage_end"].get_hookimpls())
        """Whether any plugin wants ``on_stage_end``."""
        self.observes_nodes = bool(callers["on_node_run"].get_hookimpls())
        """Whether any plugin wants ``on_node_run``."""
        self._has_loaders = bool(callers["get_external_data_loader"].get_hookimpls())

    @property
    def has_observers(self) -> bool:
        """Whether any plugin observes anything; a plain attribute test."""
        return self.observes_stages or self.observes_nodes

    def on_stage_end(self, stage: str, product: Any) -> None:
        """Notify observers that a stage of session creation ended."""
        if self.observes_stages:
            self._call("on_stage_end", stage=stage, product=product)

    def on_node_run(self, node_name: str, op_type: str, provider: str, start_ns: int, duration_ns: int) -> None:
        """Notify observers that a node ran."""
        if self.observes_nodes:
            self._call(
                "on_node_run",
                node_name=node_name,
                op_type=op_type,
                provider=provider,
                start_ns=start_ns,
                duration_ns=duration_ns,
            )

    def get_external_data_loaders(self) -> list[ExternalDataLoader]:
        """Loaders of the plugins that have one, in the plugins' order."""
        # pluggy calls the last registered plugin first.
        return list(reversed(self._call("get_external_data_loader"))) if self._has_loaders else []

    def _call(self, hook: str, **arguments: Any) -> Any:
        try:
            return self._callers[hook](**arguments)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            raise_foreign(error, f"raised in hook {hook} of one of the plugins {', '.join(self.names)}")
