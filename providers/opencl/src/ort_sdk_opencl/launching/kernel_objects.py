"""Kernel objects of programs, each with arguments of its own.

For every kernel object pyopencl writes, compiles and keeps two Python functions that set arguments, or reads them from its
cache on disk: milliseconds and memory for each kernel of each bound call. They are the same for all kernels of one name and one
list of types, so that they are made once.
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyopencl as cl
from pyopencl import invoker

from ort_sdk.device.recently_used import RecentlyUsed

__all__ = ["kernel_object"]

MOST_SIGNATURES = 2048
"""Of kernels, by name and types of arguments."""

_Functions = tuple[Callable[..., Any], Callable[..., Any]]
_lock = threading.Lock()
_made: RecentlyUsed[tuple[Any, ...], _Functions] = RecentlyUsed(MOST_SIGNATURES)
_generate = invoker.generate_enqueue_and_set_args


def kernel_object(program: Any, name: str, types: Sequence[Any]) -> Any:
    """A new kernel object.

    Args:
        program: built.
        name: of the kernel.
        types: NumPy type of each argument that is a number; None for memory.
    """
    # pyopencl looks the function up whenever it makes a kernel, and one thread at a time may change that
    with _lock:
        invoker.generate_enqueue_and_set_args = _generated_once
        try:
            kernel = cl.Kernel(program, name)
            kernel.set_scalar_arg_dtypes(types)
        finally:
            invoker.generate_enqueue_and_set_args = _generate
    return kernel


def _generated_once(*arguments: Any, devs: Any = None, **keywords: Any) -> _Functions:
    """The functions for a name and types, which are those of any device."""
    *rest, devices = (*arguments, devs) if devs is not None else arguments
    key = (*rest, *sorted(keywords.items()))
    found = _made.get(key)
    if found is None:
        found = _made[key] = _generate(*rest, devs=devices, **keywords)
        for function in found:
            # their source, which tracebacks would show
            linecache.cache.pop(function.__code__.co_filename, None)
    return found
