"""Where: elements of one array where a condition holds, of another elsewhere, of any type, as their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.movement.arguments.where import Where
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import I8, LANES, operation

__all__ = ["where"]

# Integers of the same size stand for all types: a select moves bits, and those of NaN stay what they are.
_INTEGERS = {size: ir.IntType(8 * size) for size in (1, 2, 4, 8)}


def _operand(builder: Any, address: Any, is_scalar: Any, llvm: Any) -> Any:
    """LLVM code of the next 16 elements, or of one element in every lane."""
    # A branch, which is always predicted, in place of a task for each of the four cases of scalars.
    with builder.if_else(builder.icmp_signed("!=", is_scalar, ir.Constant(is_scalar.type, 0))) as (then, otherwise):
        with then:
            scalar, after_scalar = splat(builder, emit_load(builder, address, llvm)), builder.block
        with otherwise:
            vector, after_vector = emit_load(builder, address, ir.VectorType(llvm, LANES)), builder.block
    found = builder.phi(vector.type)
    found.add_incoming(scalar, after_scalar)
    found.add_incoming(vector, after_vector)
    return found


def _select(size: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Selections of elements of so many bytes: of 16, and of one."""
    llvm = _INTEGERS[size]

    @operation(types.none, *[types.intp] * 6)
    def select_16(builder: Any, condition: Any, x: Any, y: Any, out: Any, x_is_scalar: Any, y_is_scalar: Any) -> None:
        mask = emit_load(builder, condition, ir.VectorType(I8, LANES))
        # Any byte but 0 is true, as for NumPy.
        is_true = builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, [0] * LANES))
        sources = (_operand(builder, x, x_is_scalar, llvm), _operand(builder, y, y_is_scalar, llvm))
        emit_store(builder, out, builder.select(is_true, *sources))

    @operation(types.none, *[types.intp] * 4)
    def select_one(builder: Any, condition: Any, x: Any, y: Any, out: Any) -> None:
        is_true = builder.icmp_unsigned("!=", emit_load(builder, condition, I8), ir.Constant(I8, 0))
        emit_store(builder, out, builder.select(is_true, emit_load(builder, x, llvm), emit_load(builder, y, llvm)))

    return select_16, select_one


_select_16_x8, _select_one_x8 = _select(1)
_select_16_x16, _select_one_x16 = _select(2)
_select_16_x32, _select_one_x32 = _select(4)
_select_16_x64, _select_one_x64 = _select(8)


# The size is an argument: four tasks would each be compiled, kept and loaded by themselves.
@inline
def _select_16(size: int, condition: int, x: int, y: int, out: int, x_is_scalar: int, y_is_scalar: int) -> None:
    if size == 8:
        _select_16_x64(condition, x, y, out, x_is_scalar, y_is_scalar)
    elif size == 4:
        _select_16_x32(condition, x, y, out, x_is_scalar, y_is_scalar)
    elif size == 2:
        _select_16_x16(condition, x, y, out, x_is_scalar, y_is_scalar)
    else:
        _select_16_x8(condition, x, y, out, x_is_scalar, y_is_scalar)


@inline
def _select_one(size: int, condition: int, x: int, y: int, out: int) -> None:
    if size == 8:
        _select_one_x64(condition, x, y, out)
    elif size == 4:
        _select_one_x32(condition, x, y, out)
    elif size == 2:
        _select_one_x16(condition, x, y, out)
    else:
        _select_one_x8(condition, x, y, out)


@task
def where(args: Where, thread: int, threads: int) -> None:
    """Elements of x or y; each thread has a range of vectors."""
    count, size = args.count, args.itemsize
    x_is_scalar, y_is_scalar = args.x_is_scalar, args.y_is_scalar
    x_step, y_step = 0 if x_is_scalar else size, 0 if y_is_scalar else size
    vectors = (count + 15) // 16
    for vector in range(vectors * thread // threads, vectors * (thread + 1) // threads):
        first = vector * 16
        condition, out = args.condition + first, args.out + first * size
        x, y = args.x + first * x_step, args.y + first * y_step
        if first + 16 <= count:
            _select_16(size, condition, x, y, out, x_is_scalar, y_is_scalar)
            continue
        for lane in range(count - first):
            _select_one(size, condition + lane, x + lane * x_step, y + lane * y_step, out + lane * size)
