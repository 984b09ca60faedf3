"""Compiled functions by name: in memory, in files, or compiled now, if the thread waits for that."""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING

from ort_sdk.api import CompilationPending, CompilationPolicy, RuntimeException, compilation_context
from ort_sdk_cpu.platform import libraries

from .cache_folder import log_compiled
from .compiler.code_files import has_file, load_content, load_file

if TYPE_CHECKING:
    from .compiler.messages import Build, CompileReply, CompileRequest

__all__ = ["code_address", "is_cached"]


def code_address(name: str, build: Build) -> int:
    """Address of a compiled function. Thread-safe; only one process of a machine builds it at a time.

    Args:
        name: of the file, with a digest of all that the code depends on.
        build: makes the function's object file, in the compiler process: a function of a module, or a partial of one.

    Raises:
        CompilationPending: it is not compiled, and this thread does not wait.
        RuntimeException: there is no compiler, or it cannot be compiled, has no such function, or calls one that no library has.
    """
    return _store().address(name, build)


def is_cached(name: str) -> bool:
    """Whether a function is compiled: in memory or in a file."""
    return _store().has(name) or has_file(name)


@functools.cache
def _store() -> _Store:
    return _Store()


class _Store:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, int] = {}

    def has(self, name: str) -> bool:
        return name in self._addresses

    def address(self, name: str, build: Build) -> int:
        found = self._addresses.get(name) or self._loaded(name)
        if found is not None:
            return found
        if compilation_context().policy is CompilationPolicy.RAISE:
            raise CompilationPending(name)
        if not libraries.numba().is_usable:
            raise RuntimeException(
                f"the kernel {name} is in no archive and no cache folder, and cannot be compiled: {libraries.numba()}; "
                "if the package should have brought it, reinstall ort-sdk-cpu"
            )
        from .compiler.messages import CompileRequest

        # Not under the lock: meanwhile other threads may load what is compiled.
        found = self._compiled(CompileRequest(name, build))
        if found is None:
            # The folder was cleared meanwhile, or is another one in the compiler's eyes.
            found = self._compiled(CompileRequest(name, build, wants_content=True))
        if found is None:
            raise RuntimeException(f"the kernel {name} was compiled, and its code is damaged")
        return self._addresses.setdefault(name, found)

    def _compiled(self, request: CompileRequest) -> int | None:
        reply = _reply(request)
        if reply.file:
            log_compiled(request.name.rpartition("-")[0] or request.name, reply.seconds)
        return load_content(reply.file, reply.content) if reply.content else self._loaded(request.name)

    def _loaded(self, name: str) -> int | None:
        with self._lock:
            found = self._addresses.get(name) or load_file(name)
            if found is not None:
                self._addresses[name] = found
            return found


def _after_fork() -> None:
    """In a forked process: the lock may be held by a thread that is not there."""
    if _store.cache_info().currsize:
        _store()._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _reply(request: CompileRequest) -> CompileReply:
    from .compiler.process import can_compile_elsewhere, compile_elsewhere

    if can_compile_elsewhere(request):
        return compile_elsewhere(request)
    from .compiler.worker import compiled

    return compiled(request)
