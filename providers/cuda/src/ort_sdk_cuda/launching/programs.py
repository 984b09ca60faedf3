"""Compiled kernels: each source is compiled once per process and device, and once per machine where they are kept."""

from __future__ import annotations

import threading
from pathlib import Path

from ort_sdk.api import RuntimeException
from ort_sdk.device import KernelSource
from ort_sdk.device.drivers import DriverStore
from ort_sdk_cuda.driver import CudaError, Handle
from ort_sdk_cuda.driver.compiler import CompileError
from ort_sdk_cuda.queueing import DeviceQueue

__all__ = ["Programs"]

_KIND = "program"


class Programs:
    """The kernels of one device. Thread-safe.

    Args:
        queue: of the device.
        store: keeps what was compiled; its key has the device's architecture, and the compiler's version and options.
    """

    def __init__(self, queue: DeviceQueue, store: DriverStore) -> None:
        self._queue, self._store = queue, store
        self._compiler = queue.found.cuda.compiler
        self._lock = threading.Lock()
        self._functions: dict[KernelSource, Handle] = {}
        self._modules: list[Handle] = []
        self.built = self.loaded = 0
        """How many kernels were compiled, and taken from files."""

    @property
    def folder(self) -> Path | None:
        """Where compiled kernels are kept."""
        return self._store.folder

    def kernel(self, source: KernelSource) -> Handle:
        """A kernel, ready to be launched.

        Raises:
            RuntimeException: it does not compile; says what the compiler said.
        """
        found = self._functions.get(source)
        if found is None:
            with self._lock:
                found = self._functions.get(source) or self._made(source)
                self._functions[source] = found
        return found

    def _made(self, source: KernelSource) -> Handle:
        text = self._compiler.dialect.source(source.text, {"HAS_F64": 1, **dict(source.defines)})
        kept = self._store.read(_KIND, text)
        function = None if kept is None else self._loaded(kept, source.name)
        if function is not None:
            self.loaded += 1
            return function
        image = self._compiled(text, source.name)
        with self._queue.commands(f"loading kernel '{source.name}'") as driver:
            module = driver.load_module(image)
            function = driver.function(module, source.name)
        self._modules.append(module)
        self.built += 1
        self._store.write(image, _KIND, text)
        return function

    def _loaded(self, image: bytes, name: str) -> Handle | None:
        """The kernel of a kept image; None if the driver does not take it."""
        with self._queue.commands(f"loading kernel '{name}'") as driver:
            try:
                module = driver.load_module(image)
                function = driver.function(module, name)
            except CudaError:
                return None
        self._modules.append(module)
        return function

    def _compiled(self, text: str, name: str) -> bytes:
        self._queue.check()
        architecture = self._queue.found.architecture
        attempt = f"compiling kernel '{name}' for {architecture} with NVRTC {self._compiler.version}"
        try:
            return self._compiler.compile(text, name, architecture)
        except CompileError as error:
            raise RuntimeException(f"{attempt}: {str(error)[:2000]}") from error
        except CudaError as error:
            raise self._queue.failed(error, attempt) from error
