"""The hooks of a provider and of an observer: pluggy specifications that are also static types.

A provider subclasses ``ProviderHooks`` and marks each hook it implements with ``@hookimpl``. Implementations take every
parameter of the specification, by the same names, without defaults: pluggy would drop arguments otherwise, and the host
refuses such a provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pluggy

from .capability import ComputeCapability, FusedNode, KernelLookup
from .device import OrtDevice, OrtMemoryInfo
from .external_data import ExternalDataLoader
from .graph_viewer import GraphViewer, Tensor
from .kernel import NotPacked, OpKernel, PrePackedWeights
from .kernel_registry import KernelRegistry
from .memory import Allocator, DataTransfer
from .provider import API_VERSION, ExecutionProvider

__all__ = ["OBSERVER_GROUP", "PROJECT_NAME", "PROVIDER_GROUP", "PluginHooks", "ProviderHooks", "hookimpl", "hookspec"]

PROJECT_NAME = "ort_sdk"
"""pluggy's name for the hooks."""
PROVIDER_GROUP = "ort_sdk.providers"
"""Entry-point group of providers."""
OBSERVER_GROUP = "ort_sdk.plugins"
"""Entry-point group of plugins that are no providers."""

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
"""Marks a hook's specification; for this module only."""
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)
"""Marks a plugin's implementation of a hook."""


class ProviderHooks:
    """What the host asks a provider. Every hook but the first two is optional."""

    name: str = ""
    """ORT-style provider name, ``MyExecutionProvider``."""
    api_version: int = API_VERSION
    """Version of the contract the provider was written for."""

    @hookspec(firstresult=True)
    def get_supported_devices(self) -> Sequence[OrtDevice] | None:
        """Devices the provider can use here. Asked once per process, before any session; must be cheap.

        An empty list means "nothing here". Raising makes the provider *unavailable*, with the error as its reason.
        """

    @hookspec(firstresult=True)
    def create_execution_provider(
        self, device: OrtDevice, provider_options: Mapping[str, str], session_options: Mapping[str, str]
    ) -> ExecutionProvider | None:
        """Make the provider of one session, on one of the supported devices. Asked once per session, on its thread.

        ``session_options`` are the session's config entries. Raising aborts session creation.
        """

    @hookspec(firstresult=True)
    def get_kernel_registry(self, execution_provider: ExecutionProvider) -> KernelRegistry | None:
        """The provider's kernels. Asked once per session; build it once per device kind and return the same object.

        None: the provider only compiles groups.
        """

    @hookspec(firstresult=True)
    def get_capability(
        self, execution_provider: ExecutionProvider, graph_viewer: GraphViewer, kernel_lookup: KernelLookup
    ) -> Sequence[ComputeCapability] | None:
        """Claim nodes of a (sub)graph, inner graphs first. Asked once per graph; may be asked again after inlining.

        None: every node the provider has a kernel for. Claims that overlap earlier providers' are dropped by the host.
        """

    @hookspec(firstresult=True)
    def compile(self, execution_provider: ExecutionProvider, fused_nodes: Sequence[FusedNode]) -> Sequence[Any] | None:
        """Kernels for claimed groups, one per group and in their order. Asked once per graph that has groups."""

    @hookspec(firstresult=True)
    def create_allocator(self, execution_provider: ExecutionProvider, memory_info: OrtMemoryInfo) -> Allocator | None:
        """Allocator of a kind of memory. Asked once per session and kind. None: the host cannot preallocate there."""

    @hookspec(firstresult=True)
    def get_data_transfer(self, execution_provider: ExecutionProvider) -> DataTransfer | None:
        """Copier between the provider's device and the host. Asked once per session. None: arrays are NumPy's."""

    @hookspec(firstresult=True)
    def get_external_data_loader(self, execution_provider: ExecutionProvider) -> ExternalDataLoader | None:
        """Loader of external weights straight to the device. Asked once per session. None: the host reads and copies."""

    @hookspec(firstresult=True)
    def prepack(
        self,
        execution_provider: ExecutionProvider,
        kernel: OpKernel,
        tensor: Tensor,
        input_index: int,
        allocator: Allocator | None,
    ) -> PrePackedWeights | NotPacked | None:
        """Rearrange a constant input for its kernel. Asked per kernel and constant input at session creation.

        None: no opinion, the host asks ``kernel.prepack``. ``tensor`` must not be kept.
        """

    @hookspec(firstresult=True)
    def get_graph_transformers(self, execution_provider: ExecutionProvider, level: int) -> Sequence[Any] | None:
        """The provider's own graph passes of an optimization level (1 before partition, 2 and 3 after).

        Asked per session and level the session applies; they run after the host's passes of that level. None: it has none.
        """

    @hookspec(firstresult=True)
    def on_session_initialization_end(self, execution_provider: ExecutionProvider) -> None:
        """The session is complete. Asked once."""

    @hookspec(firstresult=True)
    def on_run_start(self, execution_provider: ExecutionProvider, run_options: Mapping[str, str]) -> None:
        """A run begins. Asked once per run, on the thread that runs it."""

    @hookspec(firstresult=True)
    def on_run_end(self, execution_provider: ExecutionProvider, run_options: Mapping[str, str]) -> None:
        """A run ended, also by an error. Asked once per run."""


class PluginHooks:
    """What the host asks a plugin that is no provider: observers and sources of external data."""

    name: str = ""
    api_version: int = API_VERSION

    @hookspec
    def on_stage_end(self, stage: str, product: Any) -> None:
        """A stage of session creation ended. Asked once per stage and session.

        ``product`` is its frozen result; it must not be changed.
        """

    @hookspec
    def on_node_run(self, node_name: str, op_type: str, provider: str, start_ns: int, duration_ns: int) -> None:
        """A node ran. Asked once per node and run, in a session that is profiling."""

    @hookspec
    def get_external_data_loader(self) -> ExternalDataLoader | None:
        """Loader of external weights from a source of the plugin's own. Asked once per session."""
