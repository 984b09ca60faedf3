"""CUDA's compiler, as the provider needs it."""

from __future__ import annotations

from typing import Protocol

from ort_sdk.device import Dialect

__all__ = ["CompileError", "CudaCompiler"]


class CompileError(Exception):
    """A kernel does not compile; the text is what the compiler said."""


class CudaCompiler(Protocol):
    """Compiles kernels for one architecture at a time. Thread-safe."""

    dialect: Dialect
    """Of the device language."""
    version: str
    """Of the compiler; code of another version is another one."""
    library: str
    """Path of its library, for reports."""
    architectures: tuple[int, ...]
    """Numbers of the architectures that it knows: 90 of ``sm_90``."""
    options: tuple[str, ...]
    """That it is called with, beside the architecture."""

    def compile(self, text: str, name: str, architecture: str) -> bytes:
        """An image that ``CudaDriver.load_module`` takes.

        Args:
            text: of the kernel, with the dialect's prelude.
            name: of the kernel, for messages.
            architecture: ``sm_90``.

        Raises:
            CompileError: it does not compile.
        """
