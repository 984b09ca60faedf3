"""Functions as numba translates them into LLVM's language: optimized, and without the machine code that it would make of them."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["translated"]


def translated(function: Callable[..., Any], signature: Any) -> tuple[str, str]:
    """Symbol and text of a function, as numba compiles it. Thread-safe.

    Args:
        function: the source.
        signature: types of its arguments and of its result, as ``numba.njit`` takes them.
    """
    import numba

    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    with _without_machine_code(), _without_collection():
        dispatcher = numba.njit(signature, **options)(function)
    (result,) = dispatcher.overloads.values()
    return str(result.fndesc.llvm_func_name), str(result.library.optimized_text())


@contextlib.contextmanager
def _without_machine_code() -> Iterator[None]:
    """Let numba stop at the optimized text, of the function and of those it calls: what follows is almost a third of its work."""
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    codegen = cpu_target.target_context.codegen()
    own = {"_library_class": _text_library(), "set_env": lambda *_: None}
    with global_compiler_lock:
        vars(codegen).update(own)
        try:
            yield
        finally:
            for name in own:
                delattr(codegen, name)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Let the cyclic garbage collector wait: what numba makes lives on, and is looked through again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@functools.cache
def _text_library() -> Any:
    from numba.core.codegen import JITCodeLibrary

    class TextLibrary(JITCodeLibrary):  # type: ignore[misc]
        """A module that numba links into others, but does not give to its engine: optimized once, with all it consists of."""

        def optimized_text(self) -> str:
            """The whole in LLVM's language."""
            super()._optimize_final_module()
            return str(self.get_llvm_str())

        def _optimize_final_module(self) -> None:
            """Later."""

        def get_pointer_to_function(self, name: str) -> int:
            """0, as for functions that have no wrapper."""
            self._ensure_finalized()
            return 0

        def _finalize_final_module(self) -> None:
            self._finalized = True

    return TextLibrary
