"""What the parts of a task that run at the same time say to each other."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .vector_types import call, operation

__all__ = ["barrier"]


@operation(types.none)
def barrier(builder: Any) -> None:
    """Wait until all parts are here. Only for tasks that are loaded where there is OpenMP."""
    call(builder, "GOMP_barrier", ir.VoidType())
