"""Where tasks are: a name that launches, declarations and files of machine code have of a module, and the module."""

from __future__ import annotations

__all__ = ["TASK_MODULES"]

TASK_MODULES: dict[str, str] = {}
"""Name → module below ``ort_sdk_cpu``."""
