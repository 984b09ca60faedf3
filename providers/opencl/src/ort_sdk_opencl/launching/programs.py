"""Built programs: each source is built once per process and device, and once per machine where they are kept."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyopencl as cl

from ort_sdk.api import RuntimeException
from ort_sdk.device import Dialect, KernelSource
from ort_sdk.device.drivers import DriverStore
from ort_sdk.device.recently_used import RecentlyUsed
from ort_sdk_opencl.queueing.device_queue import DeviceQueue

from .kernel_objects import kernel_object

__all__ = ["MOST_PROGRAMS", "Programs"]

MOST_PROGRAMS = 512
"""Programs that are kept: models come and go, and a kernel's text depends on the sizes of a run here and there."""
_KIND = "program"


class Programs:
    """The programs of one device in one dialect. Thread-safe.

    Args:
        queue: of the device.
        dialect: of its compiler.
        store: keeps what was built.
        has_float64: whether kernels may use it.
    """

    def __init__(self, queue: DeviceQueue, dialect: Dialect, store: DriverStore, *, has_float64: bool) -> None:
        self._queue, self._dialect, self._store, self._has_float64 = queue, dialect, store, has_float64
        self._lock = threading.Lock()
        self._programs: RecentlyUsed[KernelSource, Any] = RecentlyUsed(MOST_PROGRAMS)
        self.built = self.loaded = 0
        """How many programs were compiled, and taken from files."""

    @property
    def folder(self) -> Path | None:
        """Where programs are kept."""
        return self._store.folder

    @property
    def kept(self) -> int:
        """How many programs are kept in the process."""
        return len(self._programs)

    def kernel(self, source: KernelSource, types: Sequence[Any]) -> Any:
        """A new kernel object, which has arguments of its own.

        Args:
            source: of the kernel.
            types: NumPy type of each argument that is a number; None for memory.

        Raises:
            RuntimeException: it does not compile; says what the compiler said.
        """
        with self._lock:
            program = self._programs.get(source)
            if program is None:
                program = self._program(source)
                self._programs[source] = program
        with self._queue.errors(f"making kernel '{source.name}'"):
            return kernel_object(program, source.name, types)

    def _program(self, kernel: KernelSource) -> Any:
        defines = {"HAS_F64": 1} if self._has_float64 else {}
        text = self._dialect.source(kernel.text, {**defines, **dict(kernel.defines)})
        found = self._loaded(text, kernel.name)
        if found is not None:
            self.loaded += 1
            return found
        program = self._built(text, kernel.name)
        self.built += 1
        with self._queue.errors(f"reading the code of kernel '{kernel.name}'"):
            (code,) = program.get_info(cl.program_info.BINARIES)
        if code:
            self._store.write(code, _KIND, text)
        return program

    def _loaded(self, text: str, name: str) -> Any:
        """The program from a file; None if there is none, or the driver does not take it."""
        code = self._store.read(_KIND, text)
        if code is None:
            return None
        try:
            program = _quiet(lambda: cl.Program(self._queue.context, [self._queue.found.device], [code]).build())
            names = program.get_info(cl.program_info.KERNEL_NAMES).split(";")
        except cl.Error:
            return None
        return program if name in names else None

    def _built(self, text: str, name: str) -> Any:
        self._queue.check()
        try:
            return _quiet(lambda: _built_by_driver(cl.Program(self._queue.context, text)))
        except cl.Error as error:
            if error.code != cl.status_code.BUILD_PROGRAM_FAILURE:
                raise self._queue.failed(error, f"compiling kernel '{name}'") from error
            raise RuntimeException(
                f"compiling kernel '{name}' in dialect {self._dialect.name} for {self._queue.name}: {str(error)[:2000]}"
            ) from error


def _built_by_driver(program: Any) -> Any:
    # pyopencl would keep the program in a cache of its own, for which drivers with a cache compile twice. A program that has
    # been asked something is built by the driver alone.
    program.get_info(cl.program_info.REFERENCE_COUNT)
    return program.build()


def _quiet(build: Callable[[], Any]) -> Any:
    """Build a program. What compilers say of those that compile is no matter of the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build()
