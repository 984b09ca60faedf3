"""Arguments of a task by position: words of 8 bytes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .vector_types import F32, operation, pointer

__all__ = ["argument", "number"]

_WORD = 8


def _load(builder: Any, record: Any, position: Any, llvm: Any) -> Any:
    offset = builder.mul(position, ir.Constant(record.type, _WORD))
    return builder.load(pointer(builder, builder.add(record, offset), llvm))


@operation(types.intp, types.intp, types.intp)
def argument(builder: Any, record: Any, position: Any) -> Any:
    """Address or integer at a position."""
    return _load(builder, record, position, ir.IntType(64))


@operation(types.float32, types.intp, types.intp)
def number(builder: Any, record: Any, position: Any) -> Any:
    """Float32 at a position."""
    return _load(builder, record, position, F32)
