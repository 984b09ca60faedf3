"""The loaded library: its engine and stream, and its failures as errors."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ort_sdk.api import RuntimeException
from ort_sdk_cpu.platform import libraries

from .constants import CPU_ENGINE, IN_ORDER_STREAM, STATUS, UNIMPLEMENTED

__all__ = ["OneDnn", "check", "is_available", "is_loaded", "library"]

MAJOR_VERSION = 3


@dataclass(frozen=True)
class OneDnn:
    """oneDNN in this process."""

    ffi: Any
    """cffi's view of its types."""
    functions: Any
    engine: Any
    stream: Any
    """One for all threads: on a CPU without a thread pool it holds no state, and work is done when a call returns."""
    version: str
    instruction_set: str
    """``dnnl_cpu_isa_t`` in hexadecimal: what kernels are generated for."""

    @property
    def thread_count(self) -> int:
        """Threads that a primitive made now on this thread will use."""
        return int(self.functions.omp_get_max_threads())

    @functools.cached_property
    def execute_address(self) -> int:
        """Where ``dnnl_primitive_execute`` is."""
        return self._address("dnnl_primitive_execute")

    @functools.cached_property
    def set_threads_address(self) -> int:
        """Where ``omp_set_num_threads`` is."""
        return self._address("omp_set_num_threads")

    def _address(self, name: str) -> int:
        return int(self.ffi.cast("intptr_t", self.ffi.addressof(self.functions, name)))

    def new_handle(self, description: str, function: Any, *arguments: Any) -> Any:
        """What a creating function gives.

        Raises:
            RuntimeException: it fails.
        """
        handle = self.ffi.new("handle_t *")
        check(function(handle, *arguments), description)
        return handle[0]

    def new_or_none(self, description: str, function: Any, *arguments: Any) -> Any:
        """The same; None if the library does not implement what is asked."""
        handle = self.ffi.new("handle_t *")
        status = function(handle, *arguments)
        if status == UNIMPLEMENTED:
            return None
        check(status, description)
        return handle[0]

    def integers(self, values: tuple[int, ...]) -> Any:
        """A C array of 64-bit integers."""
        return self.ffi.new("int64_t[]", values)


def is_available() -> bool:
    """Whether primitives can be made here. Loads nothing."""
    return libraries.onednn().is_usable


def is_loaded() -> bool:
    """Whether this process has loaded the library already."""
    return bool(library.cache_info().currsize)


@functools.cache
def library() -> OneDnn:
    """oneDNN, loaded by the first call.

    Raises:
        RuntimeException: it cannot be loaded; the text says what to do.
    """
    found = libraries.onednn()
    path = libraries.onednn_path()
    if not found.is_usable or path is None:
        raise RuntimeException(str(found))
    libraries.set_environment()
    from .interface import ffi

    try:
        functions = ffi.dlopen(str(path))
    except OSError as error:
        raise RuntimeException(
            f"oneDNN's library {path} cannot be loaded: {error}; reinstall onednn-cpu-gomp, or set "
            f"{libraries.DISABLE_VARIABLE}=onednn to do without it"
        ) from error
    return _opened(ffi, functions, str(path))


def _opened(ffi: Any, functions: Any, path: str) -> OneDnn:
    version = functions.dnnl_version()
    text = f"{version.major}.{version.minor}.{version.patch}"
    if version.major != MAJOR_VERSION:
        raise RuntimeException(
            f"{path} is oneDNN {text}; the provider calls version {MAJOR_VERSION}. Install onednn-cpu-gomp 2023.2, or set "
            f"{libraries.DISABLE_VARIABLE}=onednn to do without it"
        )
    engine, stream = ffi.new("handle_t *"), ffi.new("handle_t *")
    check(functions.dnnl_engine_create(engine, CPU_ENGINE, 0), "creating the CPU engine")
    check(functions.dnnl_stream_create(stream, engine[0], IN_ORDER_STREAM), "creating a stream")
    return OneDnn(ffi, functions, engine[0], stream[0], text, f"{functions.dnnl_get_effective_cpu_isa():x}")


def check(status: int, description: str) -> None:
    """Raise unless a call succeeded.

    Raises:
        RuntimeException: what was attempted, and oneDNN's status.
    """
    if status:
        raise RuntimeException(f"oneDNN failed at {description}: status {status} ({STATUS.get(status, 'unknown')})")
