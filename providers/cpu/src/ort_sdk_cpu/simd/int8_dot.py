"""Products of 8-bit integers, summed by fours."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ort_sdk_cpu.platform.cpu_features import InstructionSet, has_vnni, instruction_set

from .vector_types import I32, LANES, VI32, call, i32x16, operation

__all__ = ["add_products_u8_i8", "emit_products"]

_I16 = ir.IntType(16)
_I16X32 = ir.VectorType(_I16, 2 * LANES)
_I32X8 = ir.VectorType(I32, LANES // 2)


@operation(i32x16, i32x16, i32x16, i32x16)
def add_products_u8_i8(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """To each int32 lane, the sum of the products of its four bytes: unsigned ones of one vector, signed ones of the other."""
    return emit_products(builder, total, unsigned, signed)


def emit_products(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """LLVM code of ``add_products_u8_i8``."""
    if has_vnni():
        return call(builder, "llvm.x86.avx512.vpdpbusd.512", VI32, total, unsigned, signed)
    add = _pairs_avx2 if instruction_set() >= InstructionSet.AVX2 else _pairs
    for x, y in zip(_split(builder, unsigned, signed=False), _split(builder, signed, signed=True), strict=True):
        total = builder.add(total, add(builder, x, y))
    return total


def _split(builder: Any, value: Any, *, signed: bool) -> tuple[Any, Any]:
    """Even and odd bytes, widened to 16 bits."""
    words, eight = builder.bitcast(value, _I16X32), ir.Constant(_I16X32, [8] * 2 * LANES)
    shift = builder.ashr if signed else builder.lshr
    return shift(builder.shl(words, eight), eight), shift(words, eight)


def _pairs_avx2(builder: Any, x: Any, y: Any) -> Any:
    """Sums of two products of 16-bit integers, in two registers."""
    halves = []
    for start in (0, LANES):
        lanes = ir.Constant(VI32, list(range(start, start + LANES)))
        parts = [builder.shuffle_vector(value, value, lanes) for value in (x, y)]
        halves.append(call(builder, "llvm.x86.avx2.pmadd.wd", _I32X8, *parts))
    return builder.shuffle_vector(*halves, ir.Constant(VI32, list(range(LANES))))


def _pairs(builder: Any, x: Any, y: Any) -> Any:
    """The same in plain operations: a product of an unsigned and a signed byte fits 16 bits, the sum of two does not."""
    products = builder.bitcast(builder.mul(x, y), VI32)
    sixteen = ir.Constant(VI32, [16] * LANES)
    low = builder.ashr(builder.shl(products, sixteen), sixteen)
    return builder.add(low, builder.ashr(products, sixteen))
