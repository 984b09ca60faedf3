"""Kernel look-up by type strings, and kernel creation."""

from __future__ import annotations

from .create import create_kernel, kernel_info
from .lookup import KnownKernels, RegistryLookup, ResolvedTypes, known_kernels
from .type_str_resolver import KernelTypeStrResolver, resolver_of

__all__ = [
    "KernelTypeStrResolver",
    "KnownKernels",
    "RegistryLookup",
    "ResolvedTypes",
    "create_kernel",
    "kernel_info",
    "known_kernels",
    "resolver_of",
]
