"""Kernels: built, launched, and bound to memory."""

from .bound_calls import OpenClCall, OpenClCopy, joined
from .launcher import OpenClLauncher

__all__ = ["OpenClCall", "OpenClCopy", "OpenClLauncher", "joined"]
