"""Kernel look-up by type strings, and kernel creation."""

from __future__ import annotations

from .create import create_kernel, kernel_info
from .lookup import RegistryLookup

__all__ = ["RegistryLookup", "create_kernel", "kernel_info"]
