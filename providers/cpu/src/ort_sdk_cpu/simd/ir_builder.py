"""LLVM code that operations and micro-kernels share: loops, branches, addresses, prefetches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ort_sdk_cpu.platform.cpu_features import has_fma

from .vector_types import I8, I32, LANES, VF32, call, pointer

__all__ = [
    "advance",
    "constant",
    "emit_fma",
    "emit_fma_broadcast",
    "emit_if",
    "emit_loop",
    "emit_multiply_add",
    "emit_prefetch",
    "emit_switch",
    "opaque",
]

_VF64 = ir.VectorType(ir.DoubleType(), LANES)

_READ, _WRITE, _L1, _L2, _DATA = (ir.Constant(I32, value) for value in (0, 1, 3, 2, 1))
"""Operands of ``llvm.prefetch``: access, locality, kind of cache."""


def constant(value: int) -> Any:
    """An int64 constant: an address, size or offset."""
    return ir.Constant(ir.IntType(64), value)


def advance(builder: Any, address: Any, count: int, stride: Any) -> Any:
    """LLVM code of ``address + count * stride``."""
    return address if not count else builder.add(address, builder.mul(stride, constant(count)))


def emit_switch(builder: Any, value: Any, cases: Sequence[int], emit: Callable[[int], None]) -> None:
    """LLVM code of a switch.

    Args:
        builder: of LLVM code.
        value: the value that is switched on; other values than ``cases`` do nothing.
        cases: the values.
        emit: emits the code of a case.
    """
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
    """LLVM code of a counted loop with loop-carried values, which runs at least once.

    Args:
        builder: of LLVM code.
        initial: the values before the loop.
        count: number of iterations, at least 1.
        body: ``body(index, values)`` emits an iteration and returns the next values.

    Returns:
        The values after the loop.
    """
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
    """LLVM code of a conditional update of values.

    Args:
        builder: of LLVM code.
        condition: whether the values are updated.
        values: the values.
        body: ``body(values)`` emits the update and returns the new values.

    Returns:
        The values after it.
    """
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
    """The value, hidden from LLVM's optimizer by an empty ``asm``: it would derive addresses of rows from each other."""
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", (value,), side_effect=False)


def emit_fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """LLVM code of x * y + z, contracted to one instruction, which rounds once, where the machine has it."""
    return builder.fadd(builder.fmul(x, y, flags=("contract",)), z, flags=("contract",))


def emit_multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """LLVM code of x * y + z as if it were rounded once.

    Without an instruction for it LLVM would call the C library for each lane. Float64 holds the product exactly, so that the sum
    is rounded there and once more to float32: the same but for numbers within 2 ** -29 of their last digit's half.
    """
    if has_fma():
        return call(builder, "llvm.fma.v16f32", VF32, x, y, z)
    wide = [builder.fpext(each, _VF64) for each in (x, y, z)]
    return builder.fptrunc(builder.fadd(builder.fmul(wide[0], wide[1]), wide[2]), VF32)


def emit_fma_broadcast(builder: Any, address: Any, offset: int, vector: Any, total: Any) -> Any:
    """LLVM code of total + vector * (float32 in memory), by AVX-512's FMA with an embedded broadcast.

    LLVM would hoist the broadcast of a number that is used twice into an instruction and a register of its own. The ``asm`` does
    not declare what it reads: the memory must not be written in the same loop.

    Args:
        builder: of LLVM code.
        address: of the number, less the offset.
        offset: in bytes.
        vector: the factor.
        total: the addend.
    """
    kinds = ir.FunctionType(total.type, [total.type, address.type, vector.type])
    text = f"vfmadd231ps {offset}($2){{1to16}}, $3, $0"
    return builder.asm(kinds, text, "=v,0,r,v", (total, address, vector), side_effect=False)


def emit_prefetch(builder: Any, address: Any, *, into_l2: bool = False, is_written: bool = False) -> None:
    """LLVM code of a prefetch of an address's cache line.

    Args:
        builder: of LLVM code.
        address: need not be mapped.
        into_l2: into L2 only.
        is_written: for writing.
    """
    locality, use = _L2 if into_l2 else _L1, _WRITE if is_written else _READ
    call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer(builder, address, I8), use, locality, _DATA)
