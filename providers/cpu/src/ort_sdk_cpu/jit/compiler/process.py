"""The compiler process of this process: started when code is missing, and again if it ended meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import select
import subprocess
import sys
import threading

from ort_sdk.api import CompilationPending, RuntimeException, compilation_context

from .messages import CompileReply, CompileRequest, read_message, write_message

__all__ = ["can_compile_elsewhere", "compile_elsewhere"]

POLL_SECONDS = 0.1
"""How often a thread that waits looks whether it still should."""
NICENESS = 5
"""Of compilers that nobody waits for: a third of a core where programs use all of them, or all that is left over. With 19 they
would get a hundredth of a busy machine, and models that run all the time would be compiled after hours."""


def can_compile_elsewhere(request: CompileRequest) -> bool:
    """Whether a compiler process can be started and take the request: not in an embedded Python, nor without inherited pipes."""
    if os.name != "posix" or not sys.executable:
        return False
    try:
        pickle.dumps(request)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False  # a function that no other process can import
    return True


def compile_elsewhere(request: CompileRequest) -> CompileReply:
    """Have a function compiled; returns when it is. Thread-safe.

    Raises:
        CompilationPending: the thread's work was cancelled.
        RuntimeException: it cannot be compiled, or the process cannot be started or died twice.
    """
    reply = _compiler().reply(request)
    if reply.error:
        raise RuntimeException(f"compiling the kernel {request.name} failed:\n{reply.error}")
    return reply


class _Compiler:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = self._replies = -1
        self._is_busy = False
        """Whether a reply is due."""

    def reply(self, request: CompileRequest) -> CompileReply:
        while not self._lock.acquire(timeout=POLL_SECONDS):
            _check_cancelled()
        try:
            for is_last in (False, True):
                if self._process is None:
                    self._start()
                with contextlib.suppress(OSError, EOFError):
                    return self._answer(request)
                code = self._end()
                # It may have been about to end for want of requests.
                if is_last:
                    raise RuntimeException(f"the compiler process ended with code {code} while it compiled {request.name}")
            raise AssertionError
        finally:
            self._lock.release()

    def _answer(self, request: CompileRequest) -> CompileReply:
        if self._is_busy:
            # What a cancelled thread asked for is compiled to the end, or sessions that end soon would never get a kernel.
            self._next_reply()
        write_message(self._requests, request)
        self._is_busy = True
        return self._next_reply()

    def _next_reply(self) -> CompileReply:
        while not select.select([self._replies], [], [], POLL_SECONDS)[0]:
            _check_cancelled()
        reply: CompileReply = read_message(self._replies)
        self._is_busy = False
        return reply

    def _start(self) -> None:
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        command = [sys.executable, "-P", "-m", "ort_sdk_cpu.jit.compiler.worker", str(requests), str(replies)]
        niceness = NICENESS if compilation_context().in_background else 0
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with arguments of our own
                command,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=(requests, replies),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Signals of the terminal are for the process that asks.
                start_new_session=True,
            )
        finally:
            os.close(requests)
            os.close(replies)
        if niceness and hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)

    def _end(self) -> int | None:
        """Kill the process; returns its exit code."""
        process, self._process, self._is_busy = self._process, None, False
        for pipe in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(pipe)
        self._requests = self._replies = -1
        if process is None:
            return None
        process.kill()
        return process.wait()

    def leave_to_parent(self) -> None:
        """In a forked process: forget the parent's compiler."""
        if self._process is not None:
            self._process.returncode = 0  # or its destructor would warn that it still runs
        for pipe in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(pipe)


@functools.cache
def _compiler() -> _Compiler:
    made = _Compiler()
    atexit.register(made._end)
    return made


def _after_fork() -> None:
    if _compiler.cache_info().currsize:
        atexit.unregister(_compiler()._end)
        _compiler().leave_to_parent()
        _compiler.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _check_cancelled() -> None:
    is_cancelled = compilation_context().is_cancelled
    if is_cancelled is not None and is_cancelled():
        raise CompilationPending
