"""LLVM code that several operations consist of: loops with values, choices, addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from .vector_types import I8, I32, call, pointer

__all__ = [
    "constant",
    "emit_choice",
    "emit_if",
    "emit_loop",
    "emit_multiply_add",
    "emit_multiply_add_read",
    "emit_prefetch",
    "moved",
    "opaque",
]

_READ, _WRITE, _KEEP, _KEEP_IN_SECOND, _DATA = (ir.Constant(I32, value) for value in (0, 1, 3, 2, 1))


def constant(value: int) -> Any:
    """An address, size or distance."""
    return ir.Constant(ir.IntType(64), value)


def moved(builder: Any, address: Any, count: int, stride: Any) -> Any:
    """An address some strides on."""
    return address if not count else builder.add(address, builder.mul(stride, constant(count)))


def emit_choice(builder: Any, value: Any, cases: Sequence[int], emit: Callable[[int], None]) -> None:
    """One block of code for each value; nothing is done for others."""
    done = builder.append_basic_block("tile.done")
    switch = builder.switch(value, done)
    for case in cases:
        block = builder.append_basic_block(f"tile.{case}")
        switch.add_case(ir.Constant(value.type, case), block)
        builder.position_at_end(block)
        emit(case)
        builder.branch(done)
    builder.position_at_end(done)


def emit_loop(builder: Any, initial: list[Any], count: Any, body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """``count`` times, at least once, ``body(index, values)``, which returns the next values; what they are at last."""
    before, loop, done = builder.block, builder.append_basic_block("tile.loop"), builder.append_basic_block("tile.end")
    builder.branch(loop)
    builder.position_at_end(loop)
    index, values = builder.phi(count.type), [builder.phi(value.type) for value in initial]
    found, following = body(index, values), builder.add(index, constant(1))
    for phi, first, value in zip((index, *values), (constant(0), *initial), (following, *found), strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    builder.position_at_end(done)
    return found


def emit_if(builder: Any, condition: Any, values: list[Any], body: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """``body(values)`` where the condition holds, else the values."""
    before = builder.block
    with builder.if_then(condition):
        found, after = body(values), builder.block
    joined = []
    for value, other in zip(values, found, strict=True):
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        phi.add_incoming(other, after)
        joined.append(phi)
    return joined


def opaque(builder: Any, value: Any) -> Any:
    """The value, of which the compiler does not know where it is from: it would compute each address from another one."""
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", (value,), side_effect=False)


def emit_multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Rounded once where the machine does that in one instruction."""
    return builder.fadd(builder.fmul(x, y, flags=("contract",)), z, flags=("contract",))


def emit_multiply_add_read(builder: Any, address: Any, offset: int, vector: Any, total: Any) -> Any:
    """AVX-512: a vector times one number of memory, added to a total, in one instruction, which reads the number each time.

    The compiler reads a number once that is used twice, by an instruction of its own. It is not told what is read: whoever writes
    there has to do so in other loops.
    """
    kinds = ir.FunctionType(total.type, [total.type, address.type, vector.type])
    text = f"vfmadd231ps {offset}($2){{1to16}}, $3, $0"
    return builder.asm(kinds, text, "=v,0,r,v", (total, address, vector), side_effect=False)


def emit_prefetch(builder: Any, address: Any, *, is_second: bool = False, is_written: bool = False) -> None:
    """Ask for the cache line of an address, which need not be mapped; into the second cache only if ``is_second``."""
    locality, use = _KEEP_IN_SECOND if is_second else _KEEP, _WRITE if is_written else _READ
    call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer(builder, address, I8), use, locality, _DATA)
