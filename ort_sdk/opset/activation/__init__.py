"""Operators of the activation family."""

from . import relu

__all__ = ["relu"]
