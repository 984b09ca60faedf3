"""What the parts of a task that run at the same time say to each other."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .vector_types import call, operation, pointer

__all__ = ["barrier", "count_arrival"]


@operation(types.none)
def barrier(builder: Any) -> None:
    """Wait until all parts are here. Only for tasks that are loaded where there is OpenMP."""
    call(builder, "GOMP_barrier", ir.VoidType())


@operation(types.intp, types.intp)
def count_arrival(builder: Any, address: Any) -> Any:
    """What a word was before it became one more: who comes last sees what all others wrote before they came."""
    word = ir.IntType(64)
    return builder.atomic_rmw("add", pointer(builder, address, word), ir.Constant(word, 1), "acq_rel")
