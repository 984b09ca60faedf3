"""Code that nobody waits for: a thread has it compiled, one function after the other, and whoever wants it looks again later."""

from __future__ import annotations

import functools
import logging
import os
import queue
import threading

from ort_sdk.api import CompilationContext, CompilationPolicy, RuntimeException
from ort_sdk_cpu.jit.code_store import code_address, is_cached

from .messages import Build, CompileRequest

__all__ = ["request_compilation"]

_logger = logging.getLogger("ort_sdk.cpu")


def request_compilation(name: str, build: Build) -> None:
    """Have a function compiled some time; does nothing for one that was requested or is compiled. Thread-safe.

    Args:
        name: as for ``code_address``.
        build: as for ``code_address``.
    """
    if not is_cached(name):
        _queue().request(CompileRequest(name, build))


class _Queue:
    def __init__(self) -> None:
        self._requested: set[str] = set()
        self._requests: queue.SimpleQueue[CompileRequest] = queue.SimpleQueue()
        threading.Thread(target=self._compile_all, name="ort_sdk compilation queue", daemon=True).start()

    def request(self, request: CompileRequest) -> None:
        if request.name not in self._requested:
            self._requested.add(request.name)
            self._requests.put(request)

    def _compile_all(self) -> None:
        with CompilationContext(CompilationPolicy.WAIT, in_background=True):
            while True:
                request = self._requests.get()
                try:
                    code_address(request.name, request.build)
                except RuntimeException as error:
                    # It is not requested again: steps are computed one by one instead.
                    _logger.warning("a kernel could not be compiled and is done without: %s", error)


@functools.cache
def _queue() -> _Queue:
    return _Queue()


if hasattr(os, "register_at_fork"):
    # The thread is not there in a forked process, which compiles nothing by itself.
    os.register_at_fork(after_in_child=_queue.cache_clear)
