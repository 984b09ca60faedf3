"""Numba as a frontend: translates functions into optimized LLVM IR, without the machine code that it would make by itself."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

from .llvm import target_machine

__all__ = ["inline", "translate"]


def inline(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels call, and that numba inlines into them."""
    import numba

    options = {"nogil": True, "error_model": "numpy", "forceinline": True}
    return numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def translate(function: Callable[..., Any], signature: Any) -> tuple[str, str]:
    """Symbol and optimized LLVM IR of a function. Thread-safe.

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
    """Context in which numba makes LLVM IR that is optimized for this process's target, and stops there.

    The code generation that it skips is almost a third of its time.
    """
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    codegen = cpu_target.target_context.codegen()
    # Numba optimizes for the processor that it runs on: what it knows of that is the target machine its passes are made with.
    own = {"_library_class": _text_library(), "set_env": lambda *_: None, "_tm": target_machine()}
    with global_compiler_lock:
        before = {name: vars(codegen)[name] for name in own if name in vars(codegen)}
        vars(codegen).update(own)
        try:
            yield
        finally:
            for name in own:
                delattr(codegen, name)
            vars(codegen).update(before)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Context without cyclic garbage collection: numba's objects live on, and each collection would traverse them again."""
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
        """A module that numba links into others but does not add to its engine; optimized once, with all that is linked in."""

        def optimized_text(self) -> str:
            """The linked module's LLVM IR."""
            super()._optimize_final_module()
            return str(self.get_llvm_str())

        def _optimize_final_module(self) -> None:
            """Nothing: ``optimized_text`` does this."""

        def get_pointer_to_function(self, name: str) -> int:
            """0, as numba's library returns for functions without a wrapper."""
            self._ensure_finalized()
            return 0

        def _finalize_final_module(self) -> None:
            self._finalized = True

    return TextLibrary
