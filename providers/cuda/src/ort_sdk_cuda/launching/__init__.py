"""Kernels: compiled, launched, bound to memory, and captured in graphs."""

from .bound_calls import CudaCall, CudaCopy
from .launcher import CudaLauncher
from .sequences import CudaSequence, joined

__all__ = ["CudaCall", "CudaCopy", "CudaLauncher", "CudaSequence", "joined"]
