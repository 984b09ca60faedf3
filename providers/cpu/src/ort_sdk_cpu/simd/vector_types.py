"""Vector types of 16 lanes, and the decorators that declare operations on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

__all__ = [
    "F32",
    "I8",
    "I32",
    "LANES",
    "VF32",
    "VI32",
    "Vector",
    "call",
    "f32x16",
    "i32x16",
    "lanewise",
    "operation",
    "pointer",
]

LANES = 16
"""Lanes of a vector: 512 bits, which are two or four registers on machines with shorter ones."""

I8, I32, F32 = ir.IntType(8), ir.IntType(32), ir.FloatType()
VI32, VF32 = ir.VectorType(I32, LANES), ir.VectorType(F32, LANES)
"""LLVM types of the vectors."""


class Vector(types.Type):  # type: ignore[misc]
    """Numba type of a vector.

    Args:
        name: as shown in numba's messages.
        llvm: the LLVM type.
    """

    def __init__(self, name: str, llvm: ir.VectorType) -> None:
        self.llvm = llvm
        super().__init__(name)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


i32x16 = Vector("i32x16", VI32)
f32x16 = Vector("f32x16", VF32)

Emit = Callable[..., Any]
"""``emit(builder, *values)`` appends LLVM instructions and returns the value of the last one."""


def operation(result: Any, *operands: Any) -> Callable[[Emit], Any]:
    """Decorator that declares an operation of fixed types.

    Args:
        result: numba type of the result; ``types.none`` for a store.
        operands: numba types of the operands. Scalars are converted to these, vectors must be of the type.
    """
    return lambda emit: _declare(emit, [result(*operands)])


def lanewise(operand_count: int) -> Callable[[Emit], Any]:
    """Decorator that declares an operation on vectors of one type, float32 or int32, which returns the same type.

    Args:
        operand_count: number of operands.
    """
    return lambda emit: _declare(emit, [vector(*[vector] * operand_count) for vector in (f32x16, i32x16)])


def _declare(emit: Emit, signatures: list[Any]) -> Any:
    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        value = emit(builder, *values)
        return context.get_dummy_value() if signature.return_type == types.none else value

    def infer(_context: Any, *found: Any) -> Any:
        for signature in signatures:
            if len(found) == len(signature.args) and all(map(_accepts, signature.args, found)):
                return signature, lower
        return None

    names = list(inspect.signature(emit).parameters)
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    infer.__name__ = infer.__qualname__ = emit.__name__
    infer.__doc__, infer.__module__ = emit.__doc__, emit.__module__
    infer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(infer)


def _accepts(wanted: Any, found: Any) -> bool:
    return wanted == found if isinstance(wanted, Vector) or isinstance(found, Vector) else isinstance(found, types.Number)


def pointer(builder: Any, address: Any, pointee: ir.Type) -> Any:
    """LLVM code that converts an address to a pointer."""
    return builder.inttoptr(address, pointee.as_pointer())


def call(builder: Any, name: str, result: ir.Type, *values: Any, fastmath: tuple[str, ...] = ()) -> Any:
    """LLVM code of a call of an intrinsic or external function.

    Args:
        builder: of LLVM code.
        name: of the function.
        result: LLVM type of the result.
        values: arguments.
        fastmath: LLVM's fast-math flags.
    """
    function_type = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), values, fastmath=fastmath)
