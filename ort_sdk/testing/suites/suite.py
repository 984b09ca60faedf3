"""What all suites of the kit share: the provider under test, opened for each test, and what a subclass may say of it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ort_sdk.api import CPU_DEVICE, Array, HostArray, KernelRegistry, OrtDevice, TensorElementType, tensor_type_element
from ort_sdk.plugins import PluginManager, plugin_manager
from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.session.options.session_options import SessionOptions
from ort_sdk.session.providers.opened import SessionProvider, open_provider
from ort_sdk.testing.xfails import find_file, read_expected_failures

__all__ = ["ALL_TYPES", "CPU_PROVIDER", "ProviderSuite", "sample"]

CPU_PROVIDER = "CPUExecutionProvider"
ALL_TYPES = tuple(member for member in TensorElementType if member.bit_width)
"""Every element type with a fixed size."""


class ProviderSuite:
    """Base of the suites. A subclass names its provider; everything else has a default.

    Class attributes a subclass may set:

    ``provider_name``
        entry-point name (``npu``) or provider name (``NpuExecutionProvider``).
    ``provider_options``
        options the provider is opened with.
    ``plugin``
        provider object, or class that makes one without arguments, registered for each test; for providers that no
        installed distribution offers.
    ``xfails``
        file of expected failures, relative to the test file's folder or to a folder above it.
    ``element_types``
        element types the device stores; by default those that the provider's kernels name.
    """

    provider_name: ClassVar[str] = ""
    provider_options: ClassVar[Mapping[str, str]] = {}
    plugin: ClassVar[Any] = None
    xfails: ClassVar[str | None] = None
    element_types: ClassVar[frozenset[TensorElementType] | None] = None

    subject: SessionProvider
    """The provider as a session opens it; set before each test."""

    def read_back(self, tensor: Array) -> HostArray:
        """Contents of one of the provider's arrays. Override it with a way that does not use the data transfer."""
        return self.to_host(tensor)

    def to_host(self, array: Array) -> HostArray:
        """Contents of one of the provider's arrays, by its data transfer."""
        transfer = self.subject.data_transfer
        host: HostArray = array if transfer is None else transfer.copy(array, self.device, CPU_DEVICE)
        return host

    def to_device(self, array: HostArray) -> Array:
        """A provider's array with the contents of ``array``, complete when this returns."""
        transfer = self.subject.data_transfer
        if transfer is None:
            return array.copy()
        with self.subject.execution_provider.run_scope():
            copied = transfer.copy(array, CPU_DEVICE, self.device)
        self.subject.synchronize()
        return copied

    @property
    def device(self) -> OrtDevice:
        """Where the provider's arrays live."""
        return self.subject.device

    @property
    def stored_types(self) -> frozenset[TensorElementType]:
        """Element types the device stores."""
        return stored_types(self.subject.registry) if self.element_types is None else self.element_types

    def open_session(
        self, model: bytes, config: Mapping[str, str] | None = None, *, providers: list[Any] | None = None
    ) -> InferenceSession:
        """A session on the provider, with the CPU provider for what it leaves."""
        options = SessionOptions()
        for key, value in (config or {}).items():
            options.add_session_config_entry(key, value)
        if providers is None:
            providers = [(self.subject.name, dict(self.provider_options))]
            if self.subject.name != CPU_PROVIDER:
                providers.append(CPU_PROVIDER)
        return InferenceSession(model, options, providers=providers)

    @pytest.fixture(autouse=True)
    def _expected_failure(self, request: pytest.FixtureRequest) -> None:
        reason = expected_failures(type(self), request.config).get(request.node.name)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture(autouse=True)
    def _opened(self, request: pytest.FixtureRequest) -> Iterator[None]:
        with opened(type(self), request.config) as self.subject:
            yield


def wanted_name(suite: type[ProviderSuite], config: pytest.Config) -> str:
    """Name of the provider under test: the class's, or the command line's."""
    return suite.provider_name or config.getoption("--ort-provider", default=None) or ""


@functools.cache
def registry_for_collection(suite: type[ProviderSuite], name: str) -> KernelRegistry | None:
    """Kernels of the suite's provider while tests are collected; None if it has none, or cannot be opened.

    Args:
        suite: the class whose tests are collected.
        name: name of its provider, if it has no ``plugin``.
    """
    try:
        if suite.plugin is not None:
            handle = PluginManager(discovery=False).register(suite.plugin)
        else:
            handle = plugin_manager().handle(name)
        return open_provider(handle, suite.provider_options, {}).registry
    except Exception:  # noqa: BLE001 - each test opens the provider again and says what is wrong
        return None


@contextlib.contextmanager
def opened(suite: type[ProviderSuite], config: pytest.Config) -> Iterator[SessionProvider]:
    """The suite's provider, registered if need be, and opened on its device."""
    if suite.plugin is None:
        name = wanted_name(suite, config)
        if not name:
            pytest.skip("no provider is named: pass --ort-provider NAME, or set provider_name in a subclass")
        yield open_provider(plugin_manager().handle(name), suite.provider_options, {})
        return
    handle = plugin_manager().register(suite.plugin)
    try:
        yield open_provider(handle, suite.provider_options, {})
    finally:
        plugin_manager().unregister(handle.name)


def expected_failures(suite: type[ProviderSuite], config: pytest.Config) -> dict[str, str]:
    """Test name → reason, from the class's file or the command line's."""
    name = suite.xfails or config.getoption("--ort-xfails", default=None)
    if name is None:
        return {}
    folder = Path(inspect.getfile(suite)).parent if suite.xfails else Path.cwd()
    return read_expected_failures(find_file(name, folder))


def stored_types(registry: KernelRegistry | None) -> frozenset[TensorElementType]:
    """Element types that kernels name in their constraints, those of variable size left out; float if they name none."""
    operators = () if registry is None else registry.operators()
    found: set[TensorElementType | None] = set()
    for domain, op_type in operators:
        for candidate in registry.candidates(domain, op_type) if registry is not None else ():
            for types in candidate.kernel_def.type_constraints.values():
                found.update(tensor_type_element(text) for text in types)
    return frozenset(member for member in ALL_TYPES if member in found) or frozenset({TensorElementType.FLOAT})


def sample(shape: tuple[int, ...], element_type: TensorElementType, seed: int = 0) -> HostArray:
    """An array of arbitrary contents: any bit pattern the type allows, NaNs included."""
    rng = np.random.default_rng(seed)
    dtype = element_type.numpy_dtype
    if element_type is TensorElementType.BOOL or element_type.is_packed:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.float32).astype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape).copy()
