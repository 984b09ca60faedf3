"""Elements of one array where a condition holds, of another elsewhere: of any type, by their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import I8, LANES, operation

__all__ = ["choose"]

_INTEGERS = {size: ir.IntType(8 * size) for size in (1, 2, 4, 8)}


def _operand(builder: Any, address: Any, is_one: Any, llvm: Any) -> Any:
    """LLVM code of the next elements, or of one element in every lane."""
    with builder.if_else(builder.icmp_signed("!=", is_one, ir.Constant(is_one.type, 0))) as (then, otherwise):
        with then:
            one, after_one = splat(builder, emit_load(builder, address, llvm)), builder.block
        with otherwise:
            many, after_many = emit_load(builder, address, ir.VectorType(llvm, LANES)), builder.block
    found = builder.phi(many.type)
    found.add_incoming(one, after_one)
    found.add_incoming(many, after_many)
    return found


def _choice(size: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """For elements of so many bytes: ``(condition, x, y, out, x is one, y is one)`` for 16; ``(condition, x, y, out)``."""
    llvm = _INTEGERS[size]

    @operation(types.none, *[types.intp] * 6)
    def choose_lanes(builder: Any, condition: Any, x: Any, y: Any, out: Any, x_is_one: Any, y_is_one: Any) -> None:
        mask = emit_load(builder, condition, ir.VectorType(I8, LANES))
        chosen = builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, [0] * LANES))
        sources = (_operand(builder, x, x_is_one, llvm), _operand(builder, y, y_is_one, llvm))
        emit_store(builder, out, builder.select(chosen, *sources))

    @operation(types.none, *[types.intp] * 4)
    def choose_one(builder: Any, condition: Any, x: Any, y: Any, out: Any) -> None:
        chosen = builder.icmp_unsigned("!=", emit_load(builder, condition, I8), ir.Constant(I8, 0))
        emit_store(builder, out, builder.select(chosen, emit_load(builder, x, llvm), emit_load(builder, y, llvm)))

    return choose_lanes, choose_one


_choose_1, _choose_one_1 = _choice(1)
_choose_2, _choose_one_2 = _choice(2)
_choose_4, _choose_one_4 = _choice(4)
_choose_8, _choose_one_8 = _choice(8)


@inner
def _choose_16(size: int, condition: int, x: int, y: int, out: int, ones: tuple[int, int]) -> None:
    if size == 8:
        _choose_8(condition, x, y, out, ones[0], ones[1])
    elif size == 4:
        _choose_4(condition, x, y, out, ones[0], ones[1])
    elif size == 2:
        _choose_2(condition, x, y, out, ones[0], ones[1])
    else:
        _choose_1(condition, x, y, out, ones[0], ones[1])


@inner
def _choose_next(size: int, condition: int, x: int, y: int, out: int) -> None:
    if size == 8:
        _choose_one_8(condition, x, y, out)
    elif size == 4:
        _choose_one_4(condition, x, y, out)
    elif size == 2:
        _choose_one_2(condition, x, y, out)
    else:
        _choose_one_1(condition, x, y, out)


@task
def choose(record: int, part: int, parts: int) -> None:
    """(condition, x, y, out, count, size, x is one, y is one): elements of so many bytes; x and y may be one element each."""
    count, size = argument(record, 4), argument(record, 5)
    ones = (argument(record, 6), argument(record, 7))
    x_step, y_step = 0 if ones[0] else size, 0 if ones[1] else size
    condition, x, y, out = argument(record, 0), argument(record, 1), argument(record, 2), argument(record, 3)
    blocks = (count + 15) // 16
    for block in range(blocks * part // parts, blocks * (part + 1) // parts):
        first = block * 16
        if first + 16 <= count:
            _choose_16(size, condition + first, x + first * x_step, y + first * y_step, out + first * size, ones)
            continue
        for place in range(first, count):
            _choose_next(size, condition + place, x + place * x_step, y + place * y_step, out + place * size)
